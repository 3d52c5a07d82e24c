/* Fake quantisation: rounding to a grid of integers and back, and its gradients.
 * q = zero_point + round(x / scale); y = (clamp(q, quant_min, quant_max) - zero_point) * scale; the mask says where q
 * needed no clamping (aten/src/ATen/native/quantized/cpu/kernels/QuantizedOpKernels.cpp). */
#include "ops/ops.h"

typedef struct {
    hlo_value x, scale, zero_point; /* scale and zero point broadcast against x, in its type */
    hlo_value low, high;            /* rank 0 */
    hlo_value inverse;              /* 1 / scale */
    int axis;                       /* of per-channel parameters; -1: one for all */
} quantizer;

/* A [channels] vector along the axis of x; a [1] vector or scalar as it is. */
static hlo_value parameter(hlo_builder *b, hlo_value v, hlo_value x, int axis) {
    v = hlo_convert(b, v, x->dtype);
    if (!v || v->rank == 0) return v;
    int64_t map = axis;
    if (axis < 0) return hlo_reshape(b, v, 0, NULL);
    return hlo_broadcast_in_dim(b, v, x->rank, x->dims, &map);
}

static void quantizer_finish(lowering *l, quantizer *q, int first_limit) {
    hlo_builder *b = lower_builder(l);
    q->low = hlo_convert(b, hlo_constant_int(b, DTYPE_I64, 0, NULL, arg_int(l, first_limit)), q->x->dtype);
    q->high = hlo_convert(b, hlo_constant_int(b, DTYPE_I64, 0, NULL, arg_int(l, first_limit + 1)), q->x->dtype);
    q->inverse = q->scale ? hlo_divide(b, hlo_scalar(b, q->scale->dtype, 1), q->scale) : NULL;
}

/* (.., scale, zero_point, [axis,] quant_min, quant_max) with tensors at argument `first` on. */
static bool quantizer_read(lowering *l, quantizer *q, hlo_value x, int first, bool per_channel) {
    hlo_builder *b = lower_builder(l);
    if (!x) return false;
    *q = (quantizer){.x = x, .axis = per_channel ? (int)dim_wrap(arg_int(l, first + 2), x->rank) : -1};
    q->scale = parameter(b, arg_tensor(l, first), x, q->axis);
    q->zero_point = parameter(b, arg_tensor(l, first + 1), x, q->axis);
    quantizer_finish(l, q, first + (per_channel ? 3 : 2));
    return q->scale && q->zero_point;
}

static hlo_value quantized(hlo_builder *b, const quantizer *q) {
    return hlo_add(b, hlo_round_nearest_even(b, hlo_multiply(b, q->x, q->inverse)), q->zero_point);
}

static hlo_value dequantized(hlo_builder *b, const quantizer *q, hlo_value level) {
    return hlo_multiply(b, hlo_subtract(b, hlo_clamp(b, q->low, level, q->high), q->zero_point), q->scale);
}

static hlo_value in_range(hlo_builder *b, const quantizer *q, hlo_value level) {
    return hlo_and(b, hlo_ge(b, level, q->low), hlo_le(b, level, q->high));
}

static void set_quantized(lowering *l, const quantizer *q) {
    hlo_builder *b = lower_builder(l);
    hlo_value level = quantized(b, q);
    result_set(l, 0, dequantized(b, q, level));
    if (result_wanted(l, 1)) result_set(l, 1, in_range(b, q, level));
}

/* (self, scale: float, zero_point: int, quant_min, quant_max) -> (output, mask) */
static void lower_per_tensor(lowering *l) {
    hlo_builder *b = lower_builder(l);
    quantizer q = {.x = arg_tensor(l, 0), .axis = -1};
    if (!q.x) return;
    q.scale = arg_number(l, 1, q.x->dtype);
    q.zero_point = hlo_convert(b, hlo_constant_int(b, DTYPE_I64, 0, NULL, arg_int(l, 2)), q.x->dtype);
    quantizer_finish(l, &q, 3);
    set_quantized(l, &q);
}

/* (self, scale, zero_point, fake_quant_enabled, quant_min, quant_max) -> (output, mask): disabled, everything passes.
 */
static void lower_per_tensor_switched(lowering *l) {
    hlo_builder *b = lower_builder(l);
    quantizer q = {.x = arg_tensor(l, 0), .axis = -1};
    hlo_value enabled = arg_tensor(l, 3);
    if (!q.x || !enabled) return;
    q.scale = parameter(b, arg_tensor(l, 1), q.x, -1);
    q.zero_point = parameter(b, arg_tensor(l, 2), q.x, -1);
    quantizer_finish(l, &q, 4);
    enabled = hlo_convert(b, hlo_reshape(b, enabled, 0, NULL), DTYPE_BOOL);
    hlo_value level = quantized(b, &q);
    result_set(l, 0, hlo_select(b, enabled, dequantized(b, &q, level), q.x));
    if (result_wanted(l, 1)) result_set(l, 1, hlo_or(b, hlo_not(b, enabled), in_range(b, &q, level)));
}

/* (self, scale, zero_point, axis, quant_min, quant_max) -> (output, mask) */
static void lower_per_channel(lowering *l) {
    quantizer q;
    if (quantizer_read(l, &q, arg_tensor(l, 0), 1, true)) set_quantized(l, &q);
}

/* A learned zero point is rounded and clamped before use. */
static void round_zero_point(hlo_builder *b, quantizer *q) {
    q->zero_point = hlo_clamp(b, q->low, hlo_round_nearest_even(b, q->zero_point), q->high);
}

static void set_learnable(lowering *l, bool per_channel) {
    quantizer q;
    if (!quantizer_read(l, &q, arg_tensor(l, 0), 1, per_channel)) return;
    round_zero_point(lower_builder(l), &q);
    set_quantized(l, &q);
}

static void lower_learnable_per_tensor(lowering *l) { set_learnable(l, false); }
static void lower_learnable_per_channel(lowering *l) { set_learnable(l, true); }

/* Summed over everything but the axis, in the parameter's shape. */
static void set_parameter_gradient(lowering *l, int result, const quantizer *q, hlo_value x) {
    hlo_builder *b = lower_builder(l);
    int64_t dims[HLO_MAX_RANK];
    int n = 0;
    for (int i = 0; i < q->x->rank; i++)
        if (i != q->axis) dims[n++] = i;
    if (!x || !result_wanted(l, result)) return;
    hlo_value sum = hlo_reduce(b, HLO_REDUCE_ADD, x, n, dims);
    result_set(l, result, hlo_reshape(b, sum, result_rank(l, result), result_dims(l, result)));
}

/* (grad, self, scale, zero_point, [axis,] quant_min, quant_max, grad_factor) -> (grad, grad_scale, grad_zero_point) */
static void set_learnable_backward(lowering *l, bool per_channel) {
    hlo_builder *b = lower_builder(l);
    hlo_value grad = arg_tensor(l, 0);
    quantizer q;
    if (!grad || !quantizer_read(l, &q, arg_tensor(l, 1), 2, per_channel)) return;
    round_zero_point(b, &q);
    hlo_value factor = arg_number_or(l, per_channel ? 7 : 6, grad->dtype, 1), zero = hlo_scalar(b, grad->dtype, 0);
    hlo_value level = quantized(b, &q), inside = in_range(b, &q, level);
    result_set(l, 0, hlo_select(b, inside, grad, zero));
    hlo_value scaled = hlo_multiply(b, grad, factor);
    hlo_value error = hlo_multiply(b, hlo_subtract(b, dequantized(b, &q, level), q.x), q.inverse);
    hlo_value limit = hlo_subtract(b, hlo_select(b, hlo_lt(b, level, q.low), q.low, q.high), q.zero_point);
    set_parameter_gradient(l, 1, &q, hlo_multiply(b, scaled, hlo_select(b, inside, error, limit)));
    hlo_value shift = hlo_select(b, inside, zero, hlo_negate(b, q.scale));
    set_parameter_gradient(l, 2, &q, hlo_multiply(b, scaled, shift));
}

static void lower_learnable_per_tensor_backward(lowering *l) { set_learnable_backward(l, false); }
static void lower_learnable_per_channel_backward(lowering *l) { set_learnable_backward(l, true); }

const op_row ops_fake_quantize[] = {
    {"aten::fake_quantize_per_tensor_affine_cachemask", PROMOTE_NONE, OP_OPMATH, .lower = lower_per_tensor},
    {"aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", PROMOTE_NONE, OP_OPMATH,
     .lower = lower_per_tensor_switched},
    {"aten::fake_quantize_per_channel_affine_cachemask", PROMOTE_NONE, OP_OPMATH, .lower = lower_per_channel},
    {"aten::_fake_quantize_learnable_per_tensor_affine", PROMOTE_NONE, OP_OPMATH, .lower = lower_learnable_per_tensor},
    {"aten::_fake_quantize_learnable_per_channel_affine", PROMOTE_NONE, OP_OPMATH,
     .lower = lower_learnable_per_channel},
    {"aten::_fake_quantize_learnable_per_tensor_affine_backward", PROMOTE_NONE, OP_OPMATH,
     .lower = lower_learnable_per_tensor_backward},
    {"aten::_fake_quantize_learnable_per_channel_affine_backward", PROMOTE_NONE, OP_OPMATH,
     .lower = lower_learnable_per_channel_backward},
    {0},
};
