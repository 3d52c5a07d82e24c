/* Average pooling, adaptive pooling and unpooling; maximum pooling is in max_pool.c. All act on the last dimensions, so
 * one image and a batch of them are the same. */
#include "ops/pool.h"

#include <string.h>

#include "ops/indexing.h"
#include "ops/windows.h"

int pool_spatial(const lowering *l) { return strstr(lower_name(l), "1d") ? 1 : strstr(lower_name(l), "3d") ? 3 : 2; }

static int64_t entry(const int64_t *list, int n, int spatial, int i) { return list[n == spatial ? i : 0]; }

void pool_axes(lowering *l, int first, bool has_dilation, const int64_t *input, const int64_t *output,
               pool_axis *axes) {
    int spatial = pool_spatial(l);
    const int64_t *kernel, *stride, *padding, *dilation = NULL;
    int nk = arg_ints(l, first, &kernel), ns = arg_ints(l, first + 1, &stride), np = arg_ints(l, first + 2, &padding);
    int nd = has_dilation ? arg_ints(l, first + 3, &dilation) : 0;
    for (int i = 0; i < spatial; i++) {
        pool_axis *a = &axes[i];
        a->size = input[i];
        a->count = output[i];
        a->kernel = nk ? entry(kernel, nk, spatial, i) : 1;
        a->stride = ns ? entry(stride, ns, spatial, i) : a->kernel;
        a->padding = np ? entry(padding, np, spatial, i) : 0;
        a->dilation = nd ? entry(dilation, nd, spatial, i) : 1;
    }
}

/* ---- average ---- */

typedef struct {
    int spatial, argument; /* of ceil_mode; count_include_pad and divisor_override follow */
    bool count_padding;
    pool_axis axes[3];
} average;

/* How many elements each window along an axis counts: inside the padded dimension, or inside the dimension alone. */
static hlo_value axis_counts(hlo_builder *b, const pool_axis *a, bool count_padding, dtype t, int rank, int dim) {
    axis_windows w;
    if (!windows_init(b, &w, a->size, a->count)) return NULL;
    for (int64_t i = 0; i < a->count; i++) {
        int64_t start = i * a->stride - a->padding, end = start + a->kernel;
        int64_t low = count_padding ? -a->padding : 0, high = a->size + (count_padding ? a->padding : 0);
        if (start < low) start = low;
        if (end > high) end = high;
        w.length[i] = end - start > 1 ? end - start : 1;
    }
    return windows_lengths(b, &w, t, rank, dim);
}

/* What the sum of each window is divided by, in a shape that broadcasts to the result's. */
static hlo_value divisor(lowering *l, const average *p, dtype t, int rank) {
    hlo_builder *b = lower_builder(l);
    if (arg_given(l, p->argument + 2)) return hlo_constant_int(b, t, 0, NULL, arg_int(l, p->argument + 2));
    hlo_value product = NULL;
    for (int i = 0; i < p->spatial; i++) {
        hlo_value counts = axis_counts(b, &p->axes[i], p->count_padding, t, rank, rank - p->spatial + i);
        product = product ? hlo_multiply(b, product, counts) : counts;
    }
    return product;
}

static bool read_average(lowering *l, int first, hlo_value x, hlo_value y_shape, const int64_t *output, average *p) {
    p->spatial = pool_spatial(l);
    if (!x || x->rank < p->spatial || (y_shape && y_shape->rank != x->rank)) return false;
    p->argument = first + 3;
    p->count_padding = !arg_given(l, first + 4) || arg_bool(l, first + 4);
    pool_axes(l, first, false, x->dims + x->rank - p->spatial, output, p->axes);
    return true;
}

static int64_t at_least_zero(int64_t v) { return v > 0 ? v : 0; }

/* (self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) */
static void lower_average_pool(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    average p;
    int spatial = pool_spatial(l);
    if (!read_average(l, 1, x, NULL, result_dims(l, 0) + result_rank(l, 0) - spatial, &p)) return;
    hlo_window w;
    hlo_window_init(&w, x->rank);
    for (int i = 0; i < spatial; i++) {
        const pool_axis *a = &p.axes[i];
        int dim = x->rank - spatial + i;
        w.window[dim] = a->kernel;
        w.stride[dim] = a->stride;
        w.low[dim] = a->padding;
        w.high[dim] = at_least_zero((a->count - 1) * a->stride + a->kernel - a->size - a->padding);
    }
    if (hlo_element_count(x) == 0) {
        result_set(l, 0, index_zeros(b, x->dtype, result_rank(l, 0), result_dims(l, 0)));
        return;
    }
    hlo_value sum = hlo_reduce_window(b, HLO_REDUCE_ADD, x, &w);
    result_set(l, 0, hlo_divide(b, sum, divisor(l, &p, x->dtype, x->rank)));
}

/* (grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override): an element's
 * gradient is the sum over the windows that hold it, which is a window sum over the spread-out gradient. */
static void lower_average_pool_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value grad = arg_tensor(l, 0), x = arg_tensor(l, 1);
    average p;
    int spatial = pool_spatial(l);
    if (!grad || !read_average(l, 2, x, grad, grad->dims + grad->rank - spatial, &p)) return;
    if (hlo_element_count(grad) == 0) {
        result_set(l, 0, index_zeros(b, grad->dtype, x->rank, x->dims));
        return;
    }
    hlo_window w;
    hlo_window_init(&w, x->rank);
    for (int i = 0; i < spatial; i++) {
        const pool_axis *a = &p.axes[i];
        int dim = x->rank - spatial + i;
        w.window[dim] = a->kernel;
        w.base_dilation[dim] = a->stride;
        w.low[dim] = a->kernel - 1 - a->padding;
        w.high[dim] = a->size - 1 + a->padding - (a->count - 1) * a->stride;
    }
    hlo_value share = hlo_divide(b, grad, divisor(l, &p, grad->dtype, grad->rank));
    result_set(l, 0, hlo_reduce_window(b, HLO_REDUCE_ADD, share, &w));
}

/* ---- adaptive average ---- */

static void lower_adaptive_average(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    int spatial = pool_spatial(l);
    if (!x) return;
    for (int i = 0; i < spatial && x; i++) {
        int dim = x->rank - spatial + i;
        axis_windows w;
        if (!windows_adaptive(b, &w, x->dims[dim], result_dims(l, 0)[dim])) return;
        hlo_value sum = windows_sum(b, x, dim, &w);
        x = hlo_divide(b, sum, windows_lengths(b, &w, x->dtype, x->rank, dim));
    }
    result_set(l, 0, x);
}

static void lower_adaptive_average_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value grad = arg_tensor(l, 0), x = arg_tensor(l, 1);
    int spatial = pool_spatial(l);
    if (!grad || !x) return;
    for (int i = 0; i < spatial && grad; i++) {
        int dim = x->rank - spatial + i;
        axis_windows w, holders;
        if (!windows_adaptive(b, &w, x->dims[dim], grad->dims[dim]) || !windows_invert(b, &w, &holders)) return;
        grad = hlo_divide(b, grad, windows_lengths(b, &w, grad->dtype, grad->rank, dim));
        grad = windows_sum(b, grad, dim, &holders);
    }
    result_set(l, 0, grad);
}

/* ---- unpooling: values go back to where they were taken from ---- */

static void lower_max_unpool(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), index = arg_tensor(l, 1);
    if (!x || !index) return;
    pool_plane p;
    if (!pool_plane_init(l, &p, x, result_dims(l, 0))) return;
    hlo_value target = index_zeros(b, x->dtype, 2, p.large);
    check_value(l, index, p.large[1], NULL);
    hlo_value y = index_scatter(b, target, 1, hlo_reshape(b, index_normalize(b, index, p.large[1]), 2, p.small),
                                hlo_reshape(b, x, 2, p.small), INDEX_SET);
    result_set(l, 0, hlo_reshape(b, y, result_rank(l, 0), result_dims(l, 0)));
}

bool pool_plane_init(lowering *l, pool_plane *p, hlo_value small, const int64_t *large_dims) {
    int spatial = pool_spatial(l);
    if (!small || small->rank < spatial) return false;
    int first = small->rank - spatial;
    p->small[0] = p->small[1] = p->large[1] = 1;
    for (int i = 0; i < first; i++) p->small[0] *= small->dims[i];
    for (int i = first; i < small->rank; i++) p->small[1] *= small->dims[i], p->large[1] *= large_dims[i];
    p->large[0] = p->small[0];
    return true;
}

const op_row ops_pool[] = {
    {"aten::avg_pool2d", PROMOTE_NONE, OP_OPMATH, .lower = lower_average_pool},
    {"aten::avg_pool3d", PROMOTE_NONE, OP_OPMATH, .lower = lower_average_pool},
    {"aten::avg_pool2d_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_average_pool_backward},
    {"aten::avg_pool3d_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_average_pool_backward},
    {"aten::_adaptive_avg_pool2d", PROMOTE_NONE, OP_OPMATH, .lower = lower_adaptive_average},
    {"aten::_adaptive_avg_pool3d", PROMOTE_NONE, OP_OPMATH, .lower = lower_adaptive_average},
    {"aten::_adaptive_avg_pool2d_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_adaptive_average_backward},
    {"aten::_adaptive_avg_pool3d_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_adaptive_average_backward},
    {"aten::max_unpool2d", PROMOTE_NONE, .lower = lower_max_unpool},
    {"aten::max_unpool3d", PROMOTE_NONE, .lower = lower_max_unpool},
    {0},
};
