/* Connectionist temporal classification (Graves et al., 2006): the forward and backward recursions over the extended
 * labels blank, l1, blank, l2, ..., blank, as loops over time. Everything is [batch N, states S] with S = 2 * longest
 * target + 1. */
#include <math.h>

#include "ops/indexing.h"
#include "ops/loop.h"
#include "ops/ops.h"
#include "ops/reduction.h"
#include "ops/scan.h"

typedef struct {
    int64_t time, batch, classes, states;
    hlo_value input_length, target_length; /* i32 [N, 1] */
    hlo_value label;                       /* i32 [N, S] */
    hlo_value may_skip;                    /* [N, S]: a label may follow the one before last */
    hlo_value emission;                    /* [T, N, S]: log probability of each state's label */
} ctc;

static hlo_value i32(hlo_builder *b, int64_t v) { return hlo_constant_int(b, DTYPE_I32, 0, NULL, v); }

/* int[] or a tensor, as i32 [N, 1]. */
static hlo_value read_lengths(lowering *l, int argument, int64_t batch) {
    hlo_builder *b = lower_builder(l);
    hlo_value v;
    if (arg_is_tensor(l, argument)) {
        v = hlo_convert(b, arg_tensor(l, argument), DTYPE_I32);
    } else {
        const int64_t *given;
        int n = arg_ints(l, argument, &given);
        if (n != batch)
            return hlo_fail(b, STATUS_RUNTIME, "input_lengths and target_lengths must be of size batch_size");
        v = hlo_constant_ints(b, DTYPE_I32, n, given);
    }
    return hlo_reshape(b, v, 2, (int64_t[]){batch, 1});
}

/* Targets as i32 [N, longest]: given as a matrix, or one behind the other. */
static hlo_value read_targets(hlo_builder *b, hlo_value targets, hlo_value lengths, int64_t batch, int64_t longest) {
    targets = hlo_convert(b, targets, DTYPE_I32);
    if (!targets || !lengths) return NULL;
    int64_t dims[2] = {batch, longest};
    if (longest == 0 || hlo_element_count(targets) == 0) return index_zeros(b, DTYPE_I32, 2, dims);
    if (targets->rank == 2) {
        if (targets->dims[1] < longest)
            return hlo_fail(b, STATUS_RUNTIME, "targets have less columns than the longest target");
        return hlo_slice_dim(b, targets, 1, 0, longest, 1);
    }
    hlo_value start = hlo_subtract(b, scan_reduction(b, HLO_REDUCE_ADD, lengths, 0), lengths);
    hlo_value at = hlo_add(b, index_iota(b, 2, dims, 1), start);
    return index_take(b, targets, 0, hlo_minimum(b, at, i32(b, targets->dims[0] - 1)));
}

/* x moved by n states to the right (n > 0) or left; what comes in is `fill`. */
static hlo_value shift_states(hlo_builder *b, hlo_value x, int64_t n, hlo_value fill) {
    if (!x || !fill) return NULL;
    int64_t size = x->dims[1], move = n < 0 ? -n : n;
    if (size <= move) return hlo_broadcast_to(b, fill, 2, x->dims);
    int64_t low[2] = {0, n > 0 ? move : 0}, high[2] = {0, n > 0 ? 0 : move};
    return hlo_pad(b, hlo_slice_dim(b, x, 1, n > 0 ? 0 : move, n > 0 ? size - move : size, 1), fill, low, high, NULL);
}

/* Arguments first .. first + 3: log_probs, targets, input_lengths, target_lengths. */
static ctc read_ctc(lowering *l, int first, int blank_argument, int64_t states) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, first);
    ctc c = {.states = states};
    if (!x || x->rank != 3) return c;
    c.time = x->dims[0], c.batch = x->dims[1], c.classes = x->dims[2];
    c.input_length = read_lengths(l, first + 2, c.batch);
    c.target_length = read_lengths(l, first + 3, c.batch);
    hlo_value blank = i32(b, arg_int_or(l, blank_argument, 0));
    hlo_value target = read_targets(b, arg_tensor(l, first + 1), c.target_length, c.batch, states / 2);
    c.label = states > 1 ? index_spread(b, target, blank, 1, states, 1, 2)
                         : hlo_broadcast_to(b, blank, 2, (int64_t[]){c.batch, states});
    hlo_value before_last = shift_states(b, c.label, 2, blank);
    c.may_skip = hlo_and(b, hlo_ne(b, c.label, blank), hlo_ne(b, c.label, before_last));
    if (!c.label) return c;
    hlo_value each = hlo_broadcast_to(b, c.label, 3, (int64_t[]){c.time, c.batch, states});
    c.emission = index_gather(b, x, 2, each);
    return c;
}

/* log(exp x + exp y + exp z), -inf of three -inf. */
static hlo_value log_add(hlo_builder *b, hlo_value x, hlo_value y, hlo_value z) {
    hlo_value largest = hlo_maximum(b, hlo_maximum(b, x, y), z), nothing = hlo_like(b, largest, -INFINITY);
    hlo_value base = hlo_select(b, hlo_eq(b, largest, nothing), hlo_like(b, largest, 0), largest);
    hlo_value sum = hlo_exponential(b, hlo_subtract(b, x, base));
    sum = hlo_add(b, sum, hlo_exponential(b, hlo_subtract(b, y, base)));
    sum = hlo_add(b, sum, hlo_exponential(b, hlo_subtract(b, z, base)));
    return hlo_add(b, hlo_log(b, sum), base);
}

static hlo_value at_time(hlo_builder *b, hlo_value x, hlo_value t) {
    if (!x || !t) return NULL;
    hlo_value start[3] = {t, i32(b, 0), i32(b, 0)};
    return hlo_squeeze_dim(b, hlo_dynamic_slice(b, x, start, (int64_t[]){1, x->dims[1], x->dims[2]}), 0);
}

static hlo_value put_at_time(hlo_builder *b, hlo_value x, hlo_value row, hlo_value t) {
    hlo_value start[3] = {t, i32(b, 0), i32(b, 0)};
    return hlo_dynamic_update_slice(b, x, hlo_unsqueeze_dim(b, row, 0), start);
}

/* Before the first and after the last step only the outermost two states are possible. */
static hlo_value first_states(hlo_builder *b, const ctc *c) {
    hlo_value state = index_iota(b, 2, c->label->dims, 1), zero = i32(b, 0);
    hlo_value second = hlo_and(b, hlo_eq(b, state, i32(b, 1)), hlo_gt(b, c->target_length, zero));
    return hlo_or(b, hlo_eq(b, state, zero), second);
}

static hlo_value last_states(hlo_builder *b, const ctc *c) {
    hlo_value state = index_iota(b, 2, c->label->dims, 1), last = hlo_add(b, c->target_length, c->target_length);
    hlo_value one = i32(b, 1), second = hlo_eq(b, state, hlo_subtract(b, last, one));
    return hlo_or(b, hlo_eq(b, state, last), second);
}

static hlo_value forward_step(hlo_builder *b, const ctc *c, hlo_value t, hlo_value alpha) {
    if (!alpha) return NULL;
    hlo_value nothing = hlo_scalar(b, alpha->dtype, -INFINITY);
    hlo_value skip = hlo_select(b, c->may_skip, shift_states(b, alpha, 2, nothing), nothing);
    hlo_value next = log_add(b, alpha, shift_states(b, alpha, 1, nothing), skip);
    next =
        hlo_select(b, hlo_eq(b, t, i32(b, 0)), hlo_select(b, first_states(b, c), hlo_like(b, alpha, 0), nothing), next);
    return hlo_add(b, next, at_time(b, c->emission, t));
}

/* Rows end at their own length: there the recursion starts, after it nothing is possible. */
static hlo_value backward_step(hlo_builder *b, const ctc *c, hlo_value t, hlo_value beta) {
    if (!beta) return NULL;
    hlo_value nothing = hlo_scalar(b, beta->dtype, -INFINITY), no = hlo_constant_int(b, DTYPE_BOOL, 0, NULL, 0);
    hlo_value skip = hlo_select(b, shift_states(b, c->may_skip, -2, no), shift_states(b, beta, -2, nothing), nothing);
    hlo_value next = log_add(b, beta, shift_states(b, beta, -1, nothing), skip);
    hlo_value last = hlo_subtract(b, c->input_length, i32(b, 1));
    hlo_value start = hlo_select(b, last_states(b, c), hlo_like(b, beta, 0), nothing);
    next = hlo_select(b, hlo_eq(b, t, last), start, next);
    next = hlo_select(b, hlo_gt(b, t, last), nothing, next);
    return hlo_add(b, next, at_time(b, c->emission, t));
}

typedef hlo_value (*ctc_step)(hlo_builder *b, const ctc *c, hlo_value t, hlo_value previous);
typedef struct {
    const ctc *c;
    ctc_step step;
    bool backward;
} ctc_run;

/* state: the last step's [N, S], and all steps' [T, N, S]. */
static void run_step(hlo_builder *b, const void *context, hlo_value at, hlo_value *state) {
    const ctc_run *run = context;
    hlo_value now = run->backward ? hlo_subtract(b, i32(b, run->c->time - 1), at) : at;
    state[0] = run->step(b, run->c, now, state[0]);
    state[1] = put_at_time(b, state[1], state[0], now);
}

/* All steps' [N, S] as [T, N, S]; first to last, or last to first. */
static hlo_value run_steps(hlo_builder *b, const ctc *c, ctc_step step, bool backward) {
    if (!c->emission) return NULL;
    hlo_value nothing = hlo_scalar(b, c->emission->dtype, -INFINITY);
    hlo_value state[2] = {hlo_broadcast_to(b, nothing, 2, c->label->dims),
                          hlo_broadcast_to(b, nothing, 3, c->emission->dims)};
    loop_steps(b, i32(b, c->time), 2, state, run_step, &(ctc_run){c, step, backward});
    return state[1];
}

static hlo_value swap_time_and_batch(hlo_builder *b, hlo_value x) { return hlo_transpose(b, x, (int64_t[]){1, 0, 2}); }

/* (log_probs, targets, input_lengths, target_lengths, blank, zero_infinity) -> neg_log_likelihood[N], log_alpha[N, T,
 * S] */
static void lower_ctc_loss(lowering *l) {
    hlo_builder *b = lower_builder(l);
    ctc c = read_ctc(l, 0, 4, result_rank(l, 1) == 3 ? result_dims(l, 1)[2] : 1);
    hlo_value alpha = run_steps(b, &c, forward_step, false);
    if (!alpha) return;
    result_set(l, 1, swap_time_and_batch(b, alpha));
    /* The last step's outermost two states; an empty input fits an empty target alone. */
    hlo_value nothing = hlo_scalar(b, alpha->dtype, -INFINITY), zero = i32(b, 0);
    hlo_value last = hlo_eq(b, index_iota(b, 3, alpha->dims, 0), hlo_subtract(b, c.input_length, i32(b, 1)));
    hlo_value ends = hlo_select(b, hlo_and(b, last, last_states(b, &c)), alpha, nothing);
    dim_set d = {2, {0, 2}};
    hlo_value loss = hlo_negate(b, log_sum_exp_drop(b, ends, &d));
    int64_t n = c.batch;
    hlo_value no_target = hlo_eq(b, hlo_reshape(b, c.target_length, 1, &n), zero);
    hlo_value no_input = hlo_eq(b, hlo_reshape(b, c.input_length, 1, &n), zero);
    hlo_value empty = hlo_select(b, no_target, hlo_scalar(b, alpha->dtype, 0), hlo_scalar(b, alpha->dtype, INFINITY));
    result_set(l, 0, hlo_select(b, no_input, empty, loss));
}

/* (grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha, blank, zero_infinity):
 * exp(log_probs) minus the posterior of each class, sum over its states of exp(alpha + beta - emission + loss). */
static void lower_ctc_loss_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 1), alpha = arg_tensor(l, 6);
    if (!x || !alpha || alpha->rank != 3) return;
    ctc c = read_ctc(l, 1, 7, alpha->dims[2]);
    hlo_value beta = run_steps(b, &c, backward_step, true);
    if (!beta) return;
    int64_t row[3] = {1, c.batch, 1}, four[4] = {c.time, c.batch, c.states, c.classes};
    hlo_value loss = hlo_reshape(b, arg_tensor(l, 5), 3, row), g = hlo_reshape(b, arg_tensor(l, 0), 3, row);
    hlo_value zero = hlo_scalar(b, x->dtype, 0), infinite = hlo_eq(b, loss, hlo_like(b, loss, INFINITY));
    hlo_value both = hlo_add(b, swap_time_and_batch(b, alpha), beta);
    hlo_value possible = hlo_gt(b, both, hlo_scalar(b, x->dtype, -INFINITY));
    hlo_value posterior = hlo_exponential(b, hlo_add(b, hlo_subtract(b, both, c.emission), loss));
    posterior = hlo_select(b, possible, posterior, zero);
    hlo_value is_class = hlo_eq(b, hlo_unsqueeze_dim(b, c.label, 2), index_iota(b, 3, four + 1, 2));
    posterior = hlo_select(b, is_class, hlo_unsqueeze_dim(b, posterior, 3), zero);
    dim_set states = dims_range(2, 3);
    posterior = reduce_drop(b, HLO_REDUCE_ADD, posterior, &states);
    hlo_value y = hlo_multiply(b, hlo_subtract(b, hlo_exponential(b, x), posterior), g);
    y = hlo_select(b, infinite, arg_bool(l, 8) ? zero : hlo_scalar(b, x->dtype, NAN), y);
    hlo_value used = hlo_lt(b, index_iota(b, 3, x->dims, 0), c.input_length);
    result_set(l, 0, hlo_select(b, used, y, zero));
}

const op_row ops_ctc[] = {
    {"aten::_ctc_loss", PROMOTE_NONE, OP_OPMATH, .lower = lower_ctc_loss},
    {"aten::_ctc_loss.Tensor", PROMOTE_NONE, OP_OPMATH, .lower = lower_ctc_loss},
    {"aten::_ctc_loss_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_ctc_loss_backward},
    {"aten::_ctc_loss_backward.Tensor", PROMOTE_NONE, OP_OPMATH, .lower = lower_ctc_loss_backward},
    {0},
};
