/* Fused LSTM and GRU cells. PyTorch calls them on accelerators only; between forward and backward they keep the
 * activated gates in a workspace whose layout is theirs alone. Formulas: torch.nn.LSTMCell and torch.nn.GRUCell. */
#include "ops/ops.h"

enum { MAX_GATES = 5 };

/* [batch, n * hidden] in n parts of [batch, hidden]. */
static void split_gates(hlo_builder *b, hlo_value gates, int n, hlo_value *parts) {
    for (int i = 0; i < n; i++) parts[i] = NULL;
    if (!gates || gates->rank == 0) return;
    int last = gates->rank - 1;
    int64_t width = gates->dims[last] / n;
    for (int i = 0; i < n; i++) parts[i] = hlo_slice_dim(b, gates, last, i * width, (i + 1) * width, 1);
}

static hlo_value join_gates(hlo_builder *b, int n, const hlo_value *parts) {
    return parts[0] ? hlo_concatenate(b, n, parts, parts[0]->rank - 1) : NULL;
}

static hlo_value add_if_given(lowering *l, hlo_value x, int argument) {
    return arg_given(l, argument) ? hlo_add(lower_builder(l), x, arg_tensor(l, argument)) : x;
}

static hlo_value one_minus(hlo_builder *b, hlo_value x) { return x ? hlo_subtract(b, hlo_like(b, x, 1), x) : NULL; }
static hlo_value sigmoid_slope(hlo_builder *b, hlo_value y) { return hlo_multiply(b, y, one_minus(b, y)); }
static hlo_value tanh_slope(hlo_builder *b, hlo_value y) { return one_minus(b, hlo_multiply(b, y, y)); }

static hlo_value sum_batch(hlo_builder *b, hlo_value x) {
    int64_t batch = 0;
    return x ? hlo_reduce(b, HLO_REDUCE_ADD, x, 1, &batch) : NULL;
}

/* (input_gates, hidden_gates, cx, input_bias, hidden_bias) -> (hy, cy, workspace: the activated gates i, f, g, o) */
static void lower_lstm_cell(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value gates[4], sum = hlo_add(b, arg_tensor(l, 0), arg_tensor(l, 1));
    split_gates(b, add_if_given(l, add_if_given(l, sum, 3), 4), 4, gates);
    hlo_value i = hlo_logistic(b, gates[0]), f = hlo_logistic(b, gates[1]), g = hlo_tanh(b, gates[2]),
              o = hlo_logistic(b, gates[3]);
    hlo_value cy = hlo_add(b, hlo_multiply(b, f, arg_tensor(l, 2)), hlo_multiply(b, i, g));
    hlo_value activated[4] = {i, f, g, o};
    result_set(l, 0, hlo_multiply(b, o, hlo_tanh(b, cy)));
    result_set(l, 1, cy);
    result_set(l, 2, join_gates(b, 4, activated));
}

/* (grad_hy, grad_cy, cx, cy, workspace, has_bias) -> (grad_gates, grad_cx, grad_bias) */
static void lower_lstm_cell_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value gates[4], cx = arg_tensor(l, 2), squashed = hlo_tanh(b, arg_tensor(l, 3));
    if (!squashed) return;
    split_gates(b, arg_tensor(l, 4), 4, gates);
    hlo_value i = gates[0], f = gates[1], g = gates[2], o = gates[3];
    hlo_value grad_hy = arg_given(l, 0) ? arg_tensor(l, 0) : hlo_like(b, squashed, 0);
    hlo_value grad_c = add_if_given(l, hlo_multiply(b, hlo_multiply(b, grad_hy, o), tanh_slope(b, squashed)), 1);
    hlo_value parts[4] = {
        hlo_multiply(b, hlo_multiply(b, grad_c, g), sigmoid_slope(b, i)),
        hlo_multiply(b, hlo_multiply(b, grad_c, cx), sigmoid_slope(b, f)),
        hlo_multiply(b, hlo_multiply(b, grad_c, i), tanh_slope(b, g)),
        hlo_multiply(b, hlo_multiply(b, grad_hy, squashed), sigmoid_slope(b, o)),
    };
    hlo_value grad_gates = join_gates(b, 4, parts);
    result_set(l, 0, grad_gates);
    result_set(l, 1, hlo_multiply(b, grad_c, f));
    if (result_wanted(l, 2)) result_set(l, 2, sum_batch(b, grad_gates));
}

/* (input_gates, hidden_gates, hx, input_bias, hidden_bias) -> (hy, workspace: r, z, n, hx, hidden part of n) */
static void lower_gru_cell(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value in[3], hidden[3], hx = arg_tensor(l, 2);
    split_gates(b, add_if_given(l, arg_tensor(l, 0), 3), 3, in);
    split_gates(b, add_if_given(l, arg_tensor(l, 1), 4), 3, hidden);
    hlo_value r = hlo_logistic(b, hlo_add(b, in[0], hidden[0])), z = hlo_logistic(b, hlo_add(b, in[1], hidden[1]));
    hlo_value n = hlo_tanh(b, hlo_add(b, in[2], hlo_multiply(b, r, hidden[2])));
    hlo_value kept[5] = {r, z, n, hx, hidden[2]};
    result_set(l, 0, hlo_add(b, n, hlo_multiply(b, z, hlo_subtract(b, hx, n))));
    result_set(l, 1, join_gates(b, 5, kept));
}

/* (grad_hy, workspace, has_bias) -> (grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias)
 */
static void lower_gru_cell_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value kept[MAX_GATES], grad = arg_tensor(l, 0);
    split_gates(b, arg_tensor(l, 1), 5, kept);
    hlo_value r = kept[0], z = kept[1], n = kept[2], hx = kept[3], hidden_n = kept[4];
    hlo_value grad_n = hlo_multiply(b, hlo_multiply(b, grad, one_minus(b, z)), tanh_slope(b, n));
    hlo_value grad_z = hlo_multiply(b, hlo_multiply(b, grad, hlo_subtract(b, hx, n)), sigmoid_slope(b, z));
    hlo_value grad_r = hlo_multiply(b, hlo_multiply(b, grad_n, hidden_n), sigmoid_slope(b, r));
    hlo_value input_parts[3] = {grad_r, grad_z, grad_n}, hidden_parts[3] = {grad_r, grad_z, hlo_multiply(b, grad_n, r)};
    hlo_value grad_input = join_gates(b, 3, input_parts), grad_hidden = join_gates(b, 3, hidden_parts);
    result_set(l, 0, grad_input);
    result_set(l, 1, grad_hidden);
    result_set(l, 2, hlo_multiply(b, grad, z));
    if (result_wanted(l, 3)) result_set(l, 3, sum_batch(b, grad_input));
    if (result_wanted(l, 4)) result_set(l, 4, sum_batch(b, grad_hidden));
}

const op_row ops_rnn[] = {
    {"aten::_thnn_fused_lstm_cell", PROMOTE_NONE, OP_OPMATH, .lower = lower_lstm_cell},
    {"aten::_thnn_fused_lstm_cell_backward_impl", PROMOTE_NONE, OP_OPMATH, .lower = lower_lstm_cell_backward},
    {"aten::_thnn_fused_gru_cell", PROMOTE_NONE, OP_OPMATH, .lower = lower_gru_cell},
    {"aten::_thnn_fused_gru_cell_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_gru_cell_backward},
    {0},
};
