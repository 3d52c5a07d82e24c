/* Convolutions of any number of spatial dimensions, transposed ones, and their gradients.
 * The gradient of the input is the transposed convolution of the result's gradient; that of the kernel is a convolution
 * of the input by the result's gradient with the roles of batch and feature exchanged, groups becoming batch groups. */
#include <string.h>

#include "ops/ops.h"

typedef struct {
    int spatial;
    int64_t stride[6], padding[6], dilation[6], groups;
    bool transposed;
} conv_parameters;

/* A list of one entry stands for all spatial dimensions. */
static void read_list(lowering *l, int argument, int spatial, int64_t absent, int64_t *out) {
    const int64_t *given;
    int n = arg_ints(l, argument, &given);
    for (int i = 0; i < spatial; i++) out[i] = n == 0 ? absent : given[n == spatial ? i : 0];
}

/* stride, padding, dilation, transposed, output_padding, groups from argument `first` on. The result's type already
 * tells the output padding. */
static bool read_parameters(lowering *l, int first, hlo_value weight, conv_parameters *p) {
    memset(p, 0, sizeof *p);
    if (!weight) return false;
    p->spatial = weight->rank - 2;
    if (p->spatial < 1 || p->spatial > 6) {
        hlo_fail(lower_builder(l), STATUS_RUNTIME,
                 "convolution: a weight of rank %d has no spatial dimensions, or too many", weight->rank);
        return false;
    }
    read_list(l, first, p->spatial, 1, p->stride);
    read_list(l, first + 1, p->spatial, 0, p->padding);
    read_list(l, first + 2, p->spatial, 1, p->dilation);
    p->transposed = arg_bool(l, first + 3);
    p->groups = arg_int(l, first + 5);
    for (int i = 0; i < p->spatial; i++) {
        if (p->padding[i] >= 0) continue;
        hlo_fail(lower_builder(l), STATUS_RUNTIME, "negative padding is not supported");
        return false;
    }
    return p->groups > 0;
}

static int64_t kernel_extent(const conv_parameters *p, hlo_value weight, int i) {
    return p->dilation[i] * (weight->dims[2 + i] - 1) + 1;
}

/* ---- real and complex products ---- */

/* Rows are raised to float32 where PyTorch accumulates in it; the operands of a product stay narrow, its result does
 * not. */
static hlo_value convolve_real(hlo_builder *b, hlo_value lhs, hlo_value rhs, const hlo_convolution_dims *d) {
    return lhs ? hlo_convolution(b, lhs, rhs, d, dtype_opmath(lhs->dtype)) : NULL;
}

static hlo_value convolve(hlo_builder *b, hlo_value lhs, hlo_value rhs, const hlo_convolution_dims *d) {
    if (!lhs || !rhs || !dtype_is_complex(lhs->dtype)) return convolve_real(b, lhs, rhs, d);
    hlo_value a = hlo_real(b, lhs), ai = hlo_imag(b, lhs), c = hlo_real(b, rhs), ci = hlo_imag(b, rhs);
    hlo_value re = hlo_subtract(b, convolve_real(b, a, c, d), convolve_real(b, ai, ci, d));
    hlo_value im = hlo_add(b, convolve_real(b, a, ci, d), convolve_real(b, ai, c, d));
    return hlo_complex(b, re, im);
}

static bool is_empty(hlo_value v) { return hlo_element_count(v) == 0; }

static hlo_value zeros(hlo_builder *b, dtype t, int rank, const int64_t *dims) {
    return hlo_constant_int(b, t, rank, dims, 0);
}

/* ---- the two directions ---- */

/* input [N, I, ..] by weight [O, I / groups, ..] to spatial sizes `size`. */
static hlo_value correlate(hlo_builder *b, hlo_value input, hlo_value weight, const conv_parameters *p,
                           const int64_t *size) {
    if (!input || !weight) return NULL;
    hlo_convolution_dims d;
    hlo_convolution_dims_init(&d, p->spatial);
    int64_t dims[8] = {input->dims[0], weight->dims[0]};
    for (int i = 0; i < p->spatial; i++) {
        d.stride[i] = p->stride[i];
        d.rhs_dilation[i] = p->dilation[i];
        d.low[i] = p->padding[i];
        d.high[i] = (size[i] - 1) * p->stride[i] + kernel_extent(p, weight, i) - input->dims[2 + i] - p->padding[i];
        dims[2 + i] = size[i];
    }
    d.feature_groups = p->groups;
    if (is_empty(input) || is_empty(weight)) return zeros(b, dtype_opmath(input->dtype), p->spatial + 2, dims);
    return convolve(b, input, weight, &d);
}

/* [groups * I, O, ..] -> [I, groups * O, ..], which is how a grouped convolution wants a kernel whose input comes
 * first. */
static hlo_value group_kernel(hlo_builder *b, hlo_value weight, int64_t groups) {
    if (groups == 1 || !weight) return weight;
    int rank = weight->rank;
    int64_t split[HLO_MAX_RANK] = {groups, weight->dims[0] / groups}, permutation[HLO_MAX_RANK] = {1, 0};
    memcpy(split + 2, weight->dims + 1, sizeof(int64_t) * (size_t)(rank - 1));
    for (int i = 2; i <= rank; i++) permutation[i] = i;
    hlo_value y = hlo_transpose(b, hlo_reshape(b, weight, rank + 1, split), permutation);
    int64_t joined[HLO_MAX_RANK] = {split[1], groups * weight->dims[1]};
    memcpy(joined + 2, weight->dims + 2, sizeof(int64_t) * (size_t)(rank - 2));
    return hlo_reshape(b, y, rank, joined);
}

/* The transpose of correlate: input [N, I, ..] by weight [I, O / groups, ..] to spatial sizes `size`. */
static hlo_value correlate_transposed(hlo_builder *b, hlo_value input, hlo_value weight, const conv_parameters *p,
                                      const int64_t *size) {
    if (!input || !weight) return NULL;
    hlo_convolution_dims d;
    hlo_convolution_dims_init(&d, p->spatial);
    int64_t dims[8] = {input->dims[0], weight->dims[1] * p->groups}, flipped[6];
    for (int i = 0; i < p->spatial; i++) {
        int64_t extent = kernel_extent(p, weight, i), spread = (input->dims[2 + i] - 1) * p->stride[i] + 1;
        d.lhs_dilation[i] = p->stride[i];
        d.rhs_dilation[i] = p->dilation[i];
        d.low[i] = extent - 1 - p->padding[i];
        d.high[i] = size[i] + extent - 1 - spread - d.low[i];
        dims[2 + i] = size[i];
        flipped[i] = 2 + i;
    }
    d.rhs_input = 0;
    d.rhs_output = 1;
    d.feature_groups = p->groups;
    if (is_empty(input) || is_empty(weight)) return zeros(b, dtype_opmath(input->dtype), p->spatial + 2, dims);
    hlo_value kernel = hlo_reverse(b, group_kernel(b, weight, p->groups), p->spatial, flipped);
    return convolve(b, input, kernel, &d);
}

static hlo_value run_forward(hlo_builder *b, hlo_value input, hlo_value weight, const conv_parameters *p,
                             const int64_t *size) {
    return p->transposed ? correlate_transposed(b, input, weight, p, size) : correlate(b, input, weight, p, size);
}

static hlo_value conjugate(hlo_builder *b, hlo_value x) { return x && dtype_is_complex(x->dtype) ? hlo_conj(b, x) : x; }

static hlo_value input_gradient(hlo_builder *b, hlo_value grad, hlo_value input, hlo_value weight,
                                const conv_parameters *p) {
    if (!input || !weight) return NULL;
    weight = conjugate(b, weight);
    return p->transposed ? correlate(b, grad, weight, p, input->dims + 2)
                         : correlate_transposed(b, grad, weight, p, input->dims + 2);
}

/* sum over batch and positions of small[n, o, i] * large[n, c, i * stride + k * dilation - padding], as [o, c / groups,
 * k]. A convolution has `large` = its input and `small` = its result's gradient; a transposed one the other way round.
 */
static hlo_value weight_gradient(hlo_builder *b, hlo_value grad, hlo_value input, hlo_value weight,
                                 const conv_parameters *p) {
    if (!grad || !input || !weight) return NULL;
    hlo_value large = p->transposed ? grad : input, small = p->transposed ? input : grad;
    if (is_empty(large) || is_empty(small) || is_empty(weight))
        return zeros(b, dtype_opmath(weight->dtype), weight->rank, weight->dims);
    hlo_convolution_dims d;
    hlo_convolution_dims_init(&d, p->spatial);
    for (int i = 0; i < p->spatial; i++) {
        int64_t spread = (small->dims[2 + i] - 1) * p->stride[i] + 1;
        d.stride[i] = p->dilation[i];
        d.rhs_dilation[i] = p->stride[i];
        d.low[i] = p->padding[i];
        d.high[i] = (weight->dims[2 + i] - 1) * p->dilation[i] + spread - large->dims[2 + i] - p->padding[i];
    }
    d.lhs_batch = 1;
    d.lhs_feature = 0;
    d.rhs_input = 0;
    d.rhs_output = 1;
    d.out_batch = 1;
    d.out_feature = 0;
    d.batch_groups = p->groups;
    if (p->transposed)
        small = conjugate(b, small);
    else
        large = conjugate(b, large);
    return convolve(b, large, small, &d);
}

static hlo_value bias_gradient(hlo_builder *b, hlo_value grad) {
    if (!grad) return NULL;
    int64_t dims[HLO_MAX_RANK] = {0};
    for (int i = 2; i < grad->rank; i++) dims[i - 1] = i;
    return hlo_reduce(b, HLO_REDUCE_ADD, hlo_convert(b, grad, dtype_opmath(grad->dtype)), grad->rank - 1, dims);
}

static hlo_value add_bias(hlo_builder *b, hlo_value y, hlo_value bias) {
    if (!y || !bias) return y;
    int64_t channel = 1;
    return hlo_add(b, y, hlo_broadcast_in_dim(b, hlo_convert(b, bias, y->dtype), y->rank, y->dims, &channel));
}

/* Kernels that take one image without its batch dimension get one. */
static hlo_value batched(hlo_builder *b, hlo_value x, int spatial) {
    return x && x->rank == spatial + 1 ? hlo_unsqueeze_dim(b, x, 0) : x;
}

static void set_forward(lowering *l, const conv_parameters *p, hlo_value weight, hlo_value bias) {
    hlo_builder *b = lower_builder(l);
    hlo_value input = batched(b, arg_tensor(l, 0), p->spatial);
    const int64_t *size = result_dims(l, 0) + result_rank(l, 0) - p->spatial;
    hlo_value y = add_bias(b, run_forward(b, input, weight, p, size), bias);
    result_set(l, 0, y ? hlo_reshape(b, y, result_rank(l, 0), result_dims(l, 0)) : NULL);
}

/* (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups) */
static void lower_convolution(lowering *l) {
    conv_parameters p;
    hlo_value weight = arg_tensor(l, 1);
    if (read_parameters(l, 3, weight, &p)) set_forward(l, &p, weight, arg_tensor(l, 2));
}

static void set_gradients(lowering *l, const conv_parameters *p, hlo_value grad, hlo_value input, hlo_value weight) {
    hlo_builder *b = lower_builder(l);
    int rank[2] = {result_rank(l, 0), result_rank(l, 1)};
    grad = batched(b, grad, p->spatial);
    input = batched(b, input, p->spatial);
    if (result_wanted(l, 0)) {
        hlo_value y = input_gradient(b, grad, input, weight, p);
        result_set(l, 0, y ? hlo_reshape(b, y, rank[0], result_dims(l, 0)) : NULL);
    }
    if (result_wanted(l, 1)) {
        hlo_value y = weight_gradient(b, grad, input, weight, p);
        result_set(l, 1, y ? hlo_reshape(b, y, rank[1], result_dims(l, 1)) : NULL);
    }
    if (result_wanted(l, 2)) result_set(l, 2, bias_gradient(b, grad));
}

/* (grad, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask) */
static void lower_convolution_backward(lowering *l) {
    conv_parameters p;
    hlo_value weight = arg_tensor(l, 2);
    if (read_parameters(l, 4, weight, &p)) set_gradients(l, &p, arg_tensor(l, 0), arg_tensor(l, 1), weight);
}

/* The same without bias_sizes. */
static void lower_convolution_backward_overrideable(lowering *l) {
    conv_parameters p;
    hlo_value weight = arg_tensor(l, 2);
    if (read_parameters(l, 3, weight, &p)) set_gradients(l, &p, arg_tensor(l, 0), arg_tensor(l, 1), weight);
}

/* ---- kernels of their own name ---- */

static bool read_named(lowering *l, int first, hlo_value weight, conv_parameters *p) {
    memset(p, 0, sizeof *p);
    if (!weight) return false;
    p->spatial = weight->rank == 2 ? 2 : weight->rank - 2; /* slow_conv2d may give its weight flattened */
    read_list(l, first, p->spatial, 1, p->stride);
    read_list(l, first + 1, p->spatial, 0, p->padding);
    for (int i = 0; i < p->spatial; i++) p->dilation[i] = 1;
    p->groups = 1;
    return true;
}

/* [O, I k..] as [O, I, k..]; kernel sizes are in an argument. */
static hlo_value unflatten_weight(lowering *l, hlo_value weight, int argument) {
    const int64_t *kernel;
    if (!weight || weight->rank != 2 || arg_ints(l, argument, &kernel) != 2) return weight;
    int64_t dims[4] = {weight->dims[0], weight->dims[1] / (kernel[0] * kernel[1]), kernel[0], kernel[1]};
    return hlo_reshape(lower_builder(l), weight, 4, dims);
}

/* (self, weight, kernel_size, bias, stride, padding[, dilation]) */
static void lower_slow_conv(lowering *l) {
    conv_parameters p;
    hlo_value weight = unflatten_weight(l, arg_tensor(l, 1), 2);
    if (!read_named(l, 4, weight, &p)) return;
    if (arg_count(l) > 6) read_list(l, 6, p.spatial, 1, p.dilation);
    set_forward(l, &p, weight, arg_tensor(l, 3));
}

static void lower_depthwise(lowering *l) {
    conv_parameters p;
    hlo_value weight = arg_tensor(l, 1), input = arg_tensor(l, 0);
    if (!input || !read_named(l, 4, weight, &p)) return;
    read_list(l, 6, p.spatial, 1, p.dilation);
    p.groups = input->dims[input->rank - p.spatial - 1];
    if (p.groups > 0) set_forward(l, &p, weight, arg_tensor(l, 3));
}

/* (self, weight, kernel_size, bias, stride, padding, output_padding, dilation) */
static void lower_slow_conv_transpose(lowering *l) {
    conv_parameters p;
    hlo_value weight = arg_tensor(l, 1);
    if (!read_named(l, 4, weight, &p)) return;
    read_list(l, 7, p.spatial, 1, p.dilation);
    p.transposed = true;
    set_forward(l, &p, weight, arg_tensor(l, 3));
}

/* (grad, self, weight, kernel_size, stride, padding, output_mask) */
static void lower_slow_conv_backward(lowering *l) {
    conv_parameters p;
    hlo_value weight = unflatten_weight(l, arg_tensor(l, 2), 3);
    if (read_named(l, 4, weight, &p)) set_gradients(l, &p, arg_tensor(l, 0), arg_tensor(l, 1), weight);
}

/* conv_tbc: input [time, batch, in], weight [k, in, out], bias [out], pad. */
static void lower_conv_tbc(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value input = arg_tensor(l, 0), weight = arg_tensor(l, 1), bias = arg_tensor(l, 2);
    if (!input || !weight) return;
    hlo_convolution_dims d;
    hlo_convolution_dims_init(&d, 1);
    d.low[0] = d.high[0] = arg_int_or(l, 3, 0);
    d.lhs_batch = d.out_batch = 1;
    d.lhs_feature = d.out_feature = 2;
    d.rhs_input = 1;
    d.rhs_output = 2;
    hlo_value y = is_empty(input) || is_empty(weight)
                      ? zeros(b, dtype_opmath(input->dtype), result_rank(l, 0), result_dims(l, 0))
                      : convolve(b, input, weight, &d);
    result_set(l, 0, y ? hlo_add(b, y, hlo_convert(b, bias, y->dtype)) : NULL);
}

const op_row ops_convolution[] = {
    {"aten::convolution", PROMOTE_NONE, .lower = lower_convolution},
    {"aten::convolution_overrideable", PROMOTE_NONE, .lower = lower_convolution},
    {"aten::_convolution", PROMOTE_NONE, .lower = lower_convolution},
    {"aten::convolution_backward", PROMOTE_NONE, .lower = lower_convolution_backward},
    {"aten::convolution_backward_overrideable", PROMOTE_NONE, .lower = lower_convolution_backward_overrideable},
    {"aten::_slow_conv2d_forward", PROMOTE_NONE, .lower = lower_slow_conv},
    {"aten::slow_conv3d_forward", PROMOTE_NONE, .lower = lower_slow_conv},
    {"aten::slow_conv_dilated2d", PROMOTE_NONE, .lower = lower_slow_conv},
    {"aten::slow_conv_dilated3d", PROMOTE_NONE, .lower = lower_slow_conv},
    {"aten::_slow_conv2d_backward.output_mask", PROMOTE_NONE, .lower = lower_slow_conv_backward},
    {"aten::slow_conv_transpose2d", PROMOTE_NONE, .lower = lower_slow_conv_transpose},
    {"aten::slow_conv_transpose3d", PROMOTE_NONE, .lower = lower_slow_conv_transpose},
    {"aten::_conv_depthwise2d", PROMOTE_NONE, .lower = lower_depthwise},
    {"aten::conv_depthwise3d", PROMOTE_NONE, .lower = lower_depthwise},
    {"aten::conv_tbc", PROMOTE_NONE, .lower = lower_conv_tbc},
    {0},
};
