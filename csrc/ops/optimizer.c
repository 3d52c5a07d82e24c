/* Optimizer steps over lists of tensors, and the loss scaling of mixed precision.
 *
 * Formulas: aten/src/ATen/native/cpu/Fused{Adam,SGD,Adagrad}Kernel.cpp. Results stand list after list, in the order of
 * the operator's returns. Where found_inf says so, a step changes nothing. */
#include "ops/formula.h"

/* Tensor j of the list in argument i, in the type that the step is computed in. */
static hlo_value element(lowering *l, int i, int j, dtype t) {
    const hlo_value *list;
    int n = arg_tensors(l, i, &list);
    return j < n ? hlo_convert(lower_builder(l), list[j], t) : NULL;
}

static int list_length(lowering *l, int i) {
    const hlo_value *list;
    return arg_tensors(l, i, &list);
}

/* A `float` argument, or a tensor of one element in its place, as a scalar. */
static hlo_value scalar(lowering *l, int i, dtype t) {
    hlo_value v = arg_number(l, i, t);
    return v && v->rank > 0 ? hlo_reshape(lower_builder(l), v, 0, NULL) : v;
}

static dtype step_type(lowering *l, int j) {
    const hlo_value *list;
    return j < arg_tensors(l, 0, &list) && list[j] ? dtype_opmath(list[j]->dtype) : DTYPE_F32;
}

/* What every step of tensor j starts from. `kept` tells whether found_inf forbids the step; NULL: it is not asked. */
typedef struct {
    dtype type;
    hlo_value param, grad, unscaled, kept;
} step;

static step step_begin(lowering *l, int j, bool maximize, int grad_scale) {
    hlo_builder *b = lower_builder(l);
    step s = {.type = step_type(l, j)};
    s.param = element(l, 0, j, s.type);
    s.grad = element(l, 1, j, s.type);
    if (arg_given(l, grad_scale)) s.grad = DIV(s.grad, scalar(l, grad_scale, s.type));
    s.unscaled = s.grad;
    if (maximize) s.grad = NEG(s.grad);
    if (arg_given(l, grad_scale + 1)) s.kept = EQK(scalar(l, grad_scale + 1, DTYPE_F32), 1);
    return s;
}

/* Result j of list `which`; the lists have n tensors each. The old value stays where the step is forbidden. */
static void step_result(lowering *l, const step *s, int which, int n, int j, hlo_value new_value, hlo_value old_value) {
    hlo_builder *b = lower_builder(l);
    result_set(l, which * n + j, s->kept ? IF(s->kept, old_value, new_value) : new_value);
}

/* ---- Adam and AdamW: arguments (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, beta1, beta2,
 * weight_decay, eps, amsgrad, maximize, grad_scale, found_inf) ---- */

/* 1 - beta^t as -expm1(t log beta), which keeps its digits when beta is near 1. */
static hlo_value bias_correction(hlo_builder *b, hlo_value t, double beta) {
    if (beta <= 0) return K(t, 1);
    return NEG(EXPM1(MULK(t, log(beta))));
}

static void adam_element(lowering *l, int n, int j, bool decoupled, bool amsgrad, double beta1, double beta2) {
    hlo_builder *b = lower_builder(l);
    step s = step_begin(l, j, arg_bool(l, 12), 13);
    hlo_value lr = scalar(l, 6, s.type), decay = scalar(l, 9, s.type), eps = scalar(l, 10, s.type);
    hlo_value t = element(l, 5, j, s.type), m = element(l, 2, j, s.type), v = element(l, 3, j, s.type);
    if (t && t->rank > 0) t = hlo_reshape(b, t, 0, NULL);
    hlo_value param = s.param, grad = s.grad;
    if (decoupled)
        param = SUB(param, MUL(MUL(lr, decay), param));
    else
        grad = ADD(grad, MUL(decay, param));
    hlo_value new_m = ADD(m, MULK(SUB(grad, m), 1 - beta1));
    hlo_value new_v = ADD(MULK(v, beta2), MULK(MUL(grad, grad), 1 - beta2));
    hlo_value largest = amsgrad ? MAX(element(l, 4, j, s.type), new_v) : new_v;
    hlo_value root = SQRT(bias_correction(b, t, beta2));
    hlo_value denominator = ADD(DIV(SQRT(largest), root), eps);
    param = SUB(param, MUL(DIV(lr, bias_correction(b, t, beta1)), DIV(new_m, denominator)));
    step_result(l, &s, 0, n, j, param, s.param);
    step_result(l, &s, 1, n, j, s.unscaled, element(l, 1, j, s.type));
    step_result(l, &s, 2, n, j, new_m, m);
    step_result(l, &s, 3, n, j, new_v, v);
    if (amsgrad) step_result(l, &s, 4, n, j, largest, element(l, 4, j, s.type));
}

static void adam(lowering *l, bool decoupled) {
    int n = list_length(l, 0);
    bool amsgrad = arg_bool(l, 11);
    double beta1 = arg_float(l, 7), beta2 = arg_float(l, 8);
    for (int j = 0; j < n; j++) adam_element(l, n, j, decoupled, amsgrad, beta1, beta2);
    /* Without amsgrad the list of maxima may still have tensors: they pass through. */
    for (int j = 0; !amsgrad && j < list_length(l, 4); j++) result_set(l, 4 * n + j, element(l, 4, j, step_type(l, j)));
}
static void lower_adam(lowering *l) { adam(l, false); }
static void lower_adamw(lowering *l) { adam(l, true); }

/* ---- SGD: (params, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step,
 * grad_scale, found_inf) ---- */

static void sgd_element(lowering *l, int n, int j, bool has_momentum) {
    hlo_builder *b = lower_builder(l);
    step s = step_begin(l, j, arg_bool(l, 8), 10);
    hlo_value grad = ADD(s.grad, MUL(scalar(l, 3, s.type), s.param));
    if (has_momentum) {
        hlo_value momentum = scalar(l, 4, s.type), buffer = element(l, 2, j, s.type), next = grad;
        if (!arg_bool(l, 9)) next = ADD(MUL(momentum, buffer), MUL(grad, SUBFROM(1, scalar(l, 6, s.type))));
        grad = arg_bool(l, 7) ? ADD(grad, MUL(momentum, next)) : next;
        step_result(l, &s, 2, n, j, next, buffer);
    }
    step_result(l, &s, 0, n, j, SUB(s.param, MUL(scalar(l, 5, s.type), grad)), s.param);
    step_result(l, &s, 1, n, j, s.unscaled, element(l, 1, j, s.type));
}

static void lower_sgd(lowering *l) {
    int n = list_length(l, 0), buffers = list_length(l, 2);
    bool has_momentum = buffers > 0 && arg_float(l, 4) != 0;
    for (int j = 0; j < n; j++) sgd_element(l, n, j, has_momentum);
    for (int j = 0; !has_momentum && j < buffers; j++) result_set(l, 2 * n + j, element(l, 2, j, step_type(l, j)));
}

/* ---- Adagrad: (params, grads, state_sums, steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale, found_inf)
 * ---- */

static void lower_adagrad(lowering *l) {
    hlo_builder *b = lower_builder(l);
    int n = list_length(l, 0);
    for (int j = 0; j < n; j++) {
        step s = step_begin(l, j, arg_bool(l, 8), 9);
        hlo_value t = element(l, 3, j, s.type), sum = element(l, 2, j, s.type);
        if (t && t->rank > 0) t = hlo_reshape(b, t, 0, NULL);
        hlo_value rate = DIV(scalar(l, 4, s.type), ADDK(MUL(ADDK(t, -1), scalar(l, 5, s.type)), 1));
        hlo_value grad = ADD(s.grad, MUL(scalar(l, 6, s.type), s.param));
        hlo_value new_sum = ADD(sum, MUL(grad, grad));
        hlo_value param = SUB(s.param, MUL(rate, DIV(grad, ADD(SQRT(new_sum), scalar(l, 7, s.type)))));
        step_result(l, &s, 0, n, j, param, s.param);
        step_result(l, &s, 1, n, j, s.unscaled, element(l, 1, j, s.type));
        step_result(l, &s, 2, n, j, new_sum, sum);
        result_set(l, 3 * n + j, t);
    }
}

/* ---- loss scaling (aten/src/ATen/native/cuda/AmpKernels.cu; the CPU's are the same) ---- */

/* (grads, found_inf, inv_scale) -> (grads, found_inf): found_inf becomes 1 when any element is inf or nan. */
static void lower_unscale(lowering *l) {
    hlo_builder *b = lower_builder(l);
    const hlo_value *grads;
    int n = arg_tensors(l, 0, &grads);
    hlo_value found = arg_tensor(l, 1), scale = arg_number(l, 2, DTYPE_F32);
    for (int j = 0; j < n; j++) {
        if (!grads[j]) continue;
        int64_t dims[HLO_MAX_RANK];
        for (int d = 0; d < grads[j]->rank; d++) dims[d] = d;
        hlo_value bad = hlo_reduce(b, HLO_REDUCE_OR, NOT(hlo_is_finite(b, grads[j])), grads[j]->rank, dims);
        found = found ? IF(bad, K(found, 1), found) : NULL;
        hlo_value factor = hlo_convert(b, scale, grads[j]->dtype);
        result_set(l, j, IF(EQK(factor, 1), grads[j], MUL(grads[j], factor)));
    }
    result_set(l, n, found);
}

/* (scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval) -> (scale, growth_tracker) */
static void lower_update_scale(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value scale = arg_tensor(l, 0), tracker = arg_tensor(l, 1), found = NEK(arg_tensor(l, 2), 0);
    if (!scale) return;
    hlo_value grown = MUL(scale, arg_number(l, 3, scale->dtype)), count = ADDK(tracker, 1);
    hlo_value due = EQK(count, (double)arg_int(l, 5));
    hlo_value kept = IF(AND(due, hlo_is_finite(b, grown)), grown, scale);
    result_set(l, 0, IF(found, MUL(scale, arg_number(l, 4, scale->dtype)), kept));
    result_set(l, 1, IF(OR(found, due), K(tracker, 0), count));
}

const op_row ops_optimizer[] = {
    {"aten::_fused_adam", PROMOTE_NONE, .lower = lower_adam},
    {"aten::_fused_adam.tensor_lr", PROMOTE_NONE, .lower = lower_adam},
    {"aten::_fused_adamw", PROMOTE_NONE, .lower = lower_adamw},
    {"aten::_fused_adamw.tensor_lr", PROMOTE_NONE, .lower = lower_adamw},
    {"aten::_fused_sgd", PROMOTE_NONE, .lower = lower_sgd},
    {"aten::_fused_sgd.tensor_lr", PROMOTE_NONE, .lower = lower_sgd},
    {"aten::_fused_adagrad", PROMOTE_NONE, .lower = lower_adagrad},
    {"aten::_fused_adagrad.tensor_lr", PROMOTE_NONE, .lower = lower_adagrad},
    {"aten::_amp_foreach_non_finite_check_and_unscale", PROMOTE_NONE, OP_OPMATH, .lower = lower_unscale},
    {"aten::_amp_update_scale", PROMOTE_NONE, .lower = lower_update_scale},
    {NULL}};
