/* Resizing of the last dimensions: nearest, linear, cubic, and the antialiased filters, with their gradients.
 *
 * Every mode goes axis by axis. Along one axis result element o is a weighted sum of a few input elements, its taps;
 * which and how heavy is arithmetic on the host, as PyTorch's CPU kernels do it (aten/src/ATen/native/UpSample.h,
 * cpu/UpSampleKernel.cpp). The taps become a [out, in] matrix, built in the program from the tap vectors, for small
 * axes, so that matrix units do the work; long axes gather their taps. The gradient is the transpose of either. */
#include <math.h>
#include <string.h>

#include "ops/indexing.h"
#include "ops/ops.h"
#include "ops/windows.h"

typedef enum {
    RESIZE_NEAREST,
    RESIZE_NEAREST_EXACT,
    RESIZE_LINEAR,
    RESIZE_CUBIC,
    RESIZE_LINEAR_AA,
    RESIZE_CUBIC_AA,
    RESIZE_LANCZOS_AA
} resize_mode;

typedef struct {
    int64_t in, out, taps;
    int64_t *index; /* [out, taps] */
    double *weight; /* [out, taps] */
} resize_axis;

/* ---- host arithmetic, in float unless the data is double ---- */

typedef struct {
    resize_mode mode;
    bool align_corners, wide;
    double scale; /* 0: not given */
} resize_rule;

static double rounded(const resize_rule *r, double v) { return r->wide ? v : (double)(float)v; }

/* area_pixel_compute_scale: input elements a result element */
static double axis_scale(const resize_rule *r, int64_t in, int64_t out) {
    if (r->align_corners) return out > 1 ? rounded(r, (double)(in - 1) / (double)(out - 1)) : 0;
    return r->scale > 0 ? rounded(r, 1.0 / r->scale) : rounded(r, (double)in / (double)out);
}

static int64_t clamp_index(int64_t i, int64_t size) { return i < 0 ? 0 : i >= size ? size - 1 : i; }

static double cubic_near(double x, double a) { return ((a + 2) * x - (a + 3)) * x * x + 1; }
static double cubic_far(double x, double a) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }

static void linear_taps(const resize_rule *r, resize_axis *a) {
    double scale = axis_scale(r, a->in, a->out);
    for (int64_t o = 0; o < a->out; o++) {
        double at = r->align_corners ? rounded(r, scale * (double)o) : rounded(r, scale * ((double)o + 0.5) - 0.5);
        if (a->in == a->out) at = (double)o;
        if (at < 0) at = 0;
        int64_t first = clamp_index((int64_t)at, a->in);
        double second = rounded(r, at - (double)first);
        second = second < 0 ? 0 : second > 1 ? 1 : second;
        a->index[2 * o] = first;
        a->index[2 * o + 1] = clamp_index(first + 1, a->in);
        a->weight[2 * o] = rounded(r, 1 - second);
        a->weight[2 * o + 1] = second;
    }
}

/* Keys' cubic convolution with A = -0.75. */
static void cubic_taps(const resize_rule *r, resize_axis *a) {
    double scale = axis_scale(r, a->in, a->out), A = -0.75;
    for (int64_t o = 0; o < a->out; o++) {
        double at = r->align_corners ? rounded(r, scale * (double)o) : rounded(r, scale * ((double)o + 0.5) - 0.5);
        double whole = floor(at), t = rounded(r, at - whole);
        double w[4] = {cubic_far(t + 1, A), cubic_near(t, A), cubic_near(1 - t, A), cubic_far(2 - t, A)};
        for (int k = 0; k < 4; k++) {
            a->index[4 * o + k] = clamp_index((int64_t)whole - 1 + k, a->in);
            a->weight[4 * o + k] = w[k];
        }
    }
}

static double sinc(double x) { return x == 0 ? 1 : sin(M_PI * x) / (M_PI * x); }

static double filter(resize_mode mode, double x) {
    x = fabs(x);
    switch (mode) {
        case RESIZE_LINEAR_AA:
            return x < 1 ? 1 - x : 0;
        case RESIZE_CUBIC_AA:
            return x < 1 ? cubic_near(x, -0.5) : x < 2 ? cubic_far(x, -0.5) : 0;
        default:
            return x < 3 ? sinc(x) * sinc(x / 3) : 0;
    }
}

static double filter_width(resize_mode mode) { return mode == RESIZE_LINEAR_AA ? 2 : mode == RESIZE_CUBIC_AA ? 4 : 6; }

/* The filter stretched over the input elements that one result element covers, normalised. */
static void filter_taps(const resize_rule *r, resize_axis *a) {
    double scale = axis_scale(r, a->in, a->out);
    double support = rounded(r, filter_width(r->mode) * 0.5 * (scale >= 1 ? scale : 1)),
           inverse = scale >= 1 ? rounded(r, 1 / scale) : 1;
    for (int64_t o = 0; o < a->out; o++) {
        double center = rounded(r, scale * ((double)o + 0.5)), total = 0;
        int64_t first = (int64_t)rounded(r, center - support + 0.5), end = (int64_t)rounded(r, center + support + 0.5);
        if (first < 0) first = 0;
        if (end > a->in) end = a->in;
        double *w = a->weight + o * a->taps;
        for (int64_t k = 0; k < a->taps; k++) {
            bool inside = first + k < end;
            w[k] = inside ? filter(r->mode, ((double)(k + first) - center + 0.5) * inverse) : 0;
            a->index[o * a->taps + k] = clamp_index(first + k, a->in);
            total += w[k];
        }
        for (int64_t k = 0; k < a->taps; k++) w[k] = total != 0 ? w[k] / total : w[k];
    }
}

static int64_t tap_count(const resize_rule *r, int64_t in, int64_t out) {
    if (r->mode == RESIZE_LINEAR) return 2;
    if (r->mode == RESIZE_CUBIC) return 4;
    double scale = axis_scale(r, in, out), support = filter_width(r->mode) * 0.5 * (scale >= 1 ? scale : 1);
    int64_t n = (int64_t)ceil(support) * 2 + 1;
    return n > in ? in : n;
}

static bool resize_axis_init(hlo_builder *b, const resize_rule *r, int64_t in, int64_t out, resize_axis *a) {
    *a = (resize_axis){.in = in, .out = out, .taps = tap_count(r, in, out)};
    a->index = ARENA_NEW(hlo_arena(b), int64_t, out * a->taps + 1);
    a->weight = ARENA_NEW(hlo_arena(b), double, out * a->taps + 1);
    if (!a->index || !a->weight) {
        hlo_fail(b, STATUS_OUT_OF_MEMORY, "out of host memory");
        return false;
    }
    if (r->mode == RESIZE_LINEAR)
        linear_taps(r, a);
    else if (r->mode == RESIZE_CUBIC)
        cubic_taps(r, a);
    else
        filter_taps(r, a);
    return true;
}

/* 8-bit images are resized in integers as the CPU kernels do it (Pillow's way): weights are multiples of 2^-bits that
 * fit 16 bits, taps of one element at the border are one weight, and every axis' result is rounded and held in range.
 */
enum { WEIGHT_BITS_MOST = 22 };

static void join_taps(resize_axis *a, int64_t o) {
    int64_t *index = a->index + o * a->taps;
    double *w = a->weight + o * a->taps;
    for (int64_t k = 1; k < a->taps; k++)
        for (int64_t j = 0; j < k; j++)
            if (index[j] == index[k]) {
                w[j] += w[k];
                w[k] = 0;
                break;
            }
}

static int whole_weights(resize_axis *a) {
    double most = 0;
    for (int64_t o = 0; o < a->out; o++) join_taps(a, o);
    for (int64_t i = 0; i < a->out * a->taps; i++) most = fmax(most, a->weight[i]);
    int bits = 0;
    while (bits < WEIGHT_BITS_MOST && ldexp(most, bits + 1) + 0.5 < (1 << 15)) bits++;
    for (int64_t i = 0; i < a->out * a->taps; i++) a->weight[i] = round(ldexp(a->weight[i], bits));
    return bits;
}

/* ---- weighted sums along one axis ---- */

/* Elements of an [out, in] matrix beyond which taps are gathered. High, because on TPUs a gather costs far more than a
 * product. */
enum { MATRIX_LIMIT = 1 << 21 };

static hlo_value tap_constant(hlo_builder *b, const resize_axis *a, hlo_value flat) {
    int64_t dims[2] = {a->out, a->taps};
    return hlo_reshape(b, flat, 2, dims);
}

static hlo_value tap_index(hlo_builder *b, const resize_axis *a) {
    return tap_constant(b, a, hlo_constant_ints(b, DTYPE_I32, a->out * a->taps, a->index));
}

static hlo_value tap_weight(hlo_builder *b, const resize_axis *a, dtype t) {
    int64_t n = a->out * a->taps;
    if (dtype_is_float(t)) return tap_constant(b, a, hlo_constant_floats(b, t, n, a->weight));
    int64_t *whole = ARENA_NEW(hlo_arena(b), int64_t, n + 1);
    if (!whole) {
        hlo_fail(b, STATUS_OUT_OF_MEMORY, "out of host memory");
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) whole[i] = (int64_t)a->weight[i];
    return tap_constant(b, a, hlo_constant_ints(b, t, n, whole));
}

/* [out, in]: the sum over taps of weight where the tap reads that input. */
static hlo_value tap_matrix(hlo_builder *b, const resize_axis *a, dtype t) {
    int64_t dims[3] = {a->out, a->taps, a->in}, map[2] = {0, 1}, along = 1;
    hlo_value index = hlo_broadcast_in_dim(b, tap_index(b, a), 3, dims, map);
    hlo_value weight = hlo_broadcast_in_dim(b, tap_weight(b, a, t), 3, dims, map);
    hlo_value hit = hlo_eq(b, index, index_iota(b, 3, dims, 2));
    return hlo_reduce(b, HLO_REDUCE_ADD, hlo_select(b, hit, weight, hlo_scalar(b, t, 0)), 1, &along);
}

/* Contracts dimension dim of x with dimension `contract` of a matrix; the matrix' other dimension takes its place. */
static hlo_value contract(hlo_builder *b, hlo_value x, int dim, hlo_value matrix, int contracted) {
    if (!x || !matrix) return NULL;
    hlo_dot_dims d = {.n_contract = 1, .lhs_contract = {dim}, .rhs_contract = {contracted}};
    hlo_precision before = hlo_get_precision(b);
    hlo_set_precision(b, HLO_PRECISION_HIGHEST); /* weights are exact to the data's precision */
    hlo_value y = hlo_dot_general(b, x, matrix, &d, x->dtype);
    hlo_set_precision(b, before);
    int64_t permutation[HLO_MAX_RANK];
    for (int i = 0; i < x->rank; i++) permutation[i] = i < dim ? i : i == dim ? x->rank - 1 : i - 1;
    return hlo_transpose(b, y, permutation);
}

/* weights [out, taps] for a value [.., out, taps, ..] with out at dim. */
static hlo_value weights_at(hlo_builder *b, const resize_axis *a, hlo_value shape_of, int dim) {
    if (!shape_of) return NULL;
    int64_t map[2] = {dim, dim + 1};
    return hlo_broadcast_in_dim(b, tap_weight(b, a, shape_of->dtype), shape_of->rank, shape_of->dims, map);
}

static hlo_value resize_dim(hlo_builder *b, hlo_value x, int dim, const resize_axis *a) {
    if (!x) return NULL;
    if (a->in * a->out <= MATRIX_LIMIT) return contract(b, x, dim, tap_matrix(b, a, x->dtype), 1);
    int64_t along = dim + 1;
    hlo_value parts = index_take(b, x, dim, tap_index(b, a));
    return hlo_reduce(b, HLO_REDUCE_ADD, hlo_multiply(b, parts, weights_at(b, a, parts, dim)), 1, &along);
}

/* x holds 8-bit values in int32, and so does the result. */
static hlo_value resize_dim_whole(hlo_builder *b, hlo_value x, int dim, resize_axis *a) {
    int bits = whole_weights(a);
    hlo_value y = resize_dim(b, x, dim, a);
    if (bits) y = hlo_add(b, y, hlo_scalar(b, DTYPE_I32, 1 << (bits - 1)));
    y = hlo_shift_right_arithmetic(b, y, hlo_scalar(b, DTYPE_I32, bits));
    return hlo_clamp(b, hlo_scalar(b, DTYPE_I32, 0), y, hlo_scalar(b, DTYPE_I32, 255));
}

static hlo_value resize_dim_backward(hlo_builder *b, hlo_value grad, int dim, const resize_axis *a) {
    if (!grad) return NULL;
    if (a->in * a->out <= MATRIX_LIMIT) return contract(b, grad, dim, tap_matrix(b, a, grad->dtype), 0);
    int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK], target[HLO_MAX_RANK];
    for (int i = 0; i < grad->rank; i++) map[i] = i <= dim ? i : i + 1;
    for (int i = 0; i <= grad->rank; i++)
        dims[i] = i <= dim ? grad->dims[i] : i == dim + 1 ? a->taps : grad->dims[i - 1];
    memcpy(target, grad->dims, sizeof(int64_t) * (size_t)grad->rank);
    target[dim] = a->in;
    hlo_value parts = hlo_broadcast_in_dim(b, grad, grad->rank + 1, dims, map);
    parts = hlo_multiply(b, parts, weights_at(b, a, parts, dim));
    return index_put_slices(b, index_zeros(b, grad->dtype, grad->rank, target), dim, tap_index(b, a), parts, INDEX_ADD);
}

/* ---- nearest: each result element copies one input element, in order, so the gradient sums runs ---- */

static int64_t nearest_index(const resize_rule *r, int64_t o, int64_t in, int64_t out) {
    resize_rule narrow = {.mode = r->mode, .scale = r->scale}; /* float whatever the data */
    float scale = (float)axis_scale(&narrow, in, out);
    if (r->mode == RESIZE_NEAREST_EXACT) return clamp_index((int64_t)floorf(((float)o + 0.5f) * scale), in);
    return in == out ? o : clamp_index((int64_t)floorf((float)o * scale), in);
}

static bool nearest_windows(hlo_builder *b, const resize_rule *r, int64_t in, int64_t out, axis_windows *w) {
    if (!windows_init(b, w, in, out)) return false;
    for (int64_t o = 0; o < out; o++) {
        w->start[o] = nearest_index(r, o, in, out);
        w->length[o] = 1;
    }
    windows_measure(w);
    return true;
}

static hlo_value nearest_dim(hlo_builder *b, hlo_value x, int dim, int64_t out, const resize_rule *r) {
    axis_windows w;
    if (!x || !nearest_windows(b, r, x->dims[dim], out, &w)) return NULL;
    int64_t in = x->dims[dim], times = in ? out / in : 0;
    bool repeats = times * in == out;
    for (int64_t o = 0; o < out && repeats; o++) repeats = w.start[o] == o / times;
    int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK];
    memcpy(dims, x->dims, sizeof(int64_t) * (size_t)x->rank);
    dims[dim] = out;
    if (repeats && times == 1) return x;
    if (!repeats) return hlo_reshape(b, windows_take(b, x, dim, &w, hlo_scalar(b, x->dtype, 0)), x->rank, dims);
    for (int i = 0; i < x->rank; i++) map[i] = i <= dim ? i : i + 1;
    for (int i = x->rank; i > dim + 1; i--) dims[i] = x->dims[i - 1];
    dims[dim] = in;
    dims[dim + 1] = times;
    hlo_value y = hlo_broadcast_in_dim(b, x, x->rank + 1, dims, map);
    memcpy(dims, x->dims, sizeof(int64_t) * (size_t)x->rank);
    dims[dim] = out;
    return hlo_reshape(b, y, x->rank, dims);
}

static hlo_value nearest_dim_backward(hlo_builder *b, hlo_value grad, int dim, int64_t in, const resize_rule *r) {
    axis_windows w, readers;
    if (!grad || !nearest_windows(b, r, in, grad->dims[dim], &w) || !windows_invert(b, &w, &readers)) return NULL;
    return windows_sum(b, grad, dim, &readers);
}

/* ---- operators ---- */

typedef struct {
    const char *part;
    resize_mode mode;
} mode_name;

static resize_mode mode_of(const char *name) {
    static const mode_name modes[] = {
        {"nearest_exact", RESIZE_NEAREST_EXACT}, {"nearest", RESIZE_NEAREST},
        {"bilinear2d_aa", RESIZE_LINEAR_AA},     {"bicubic2d_aa", RESIZE_CUBIC_AA},
        {"lanczos2d_aa", RESIZE_LANCZOS_AA},     {"bicubic", RESIZE_CUBIC},
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strstr(name, modes[i].part)) return modes[i].mode;
    return RESIZE_LINEAR;
}

static int resized_dims(const lowering *l) {
    return strstr(lower_name(l), "1d") ? 1 : strstr(lower_name(l), "3d") ? 3 : 2;
}

/* The CPU kernels leave an axis of equal sizes alone in antialiased resizing, and copy the gradient of cubic resizing
 * when all sizes are equal, whatever scales are given. */
static bool axis_is_copied(const resize_rule *r, int64_t from, int64_t to, bool backward) {
    return !backward && from == to && r->mode >= RESIZE_LINEAR_AA;
}

static bool gradient_is_copied(const lowering *l, const resize_rule *r, hlo_value grad) {
    if (r->mode != RESIZE_CUBIC || result_rank(l, 0) != grad->rank) return false;
    return !memcmp(result_dims(l, 0), grad->dims, sizeof(int64_t) * (size_t)grad->rank);
}

/* forward: (self, output_size[, align_corners], scales...); backward: (grad, output_size, input_size[, align_corners],
 * scales...); nearest modes have no align_corners. */
static void resize(lowering *l, bool backward) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    int spatial = resized_dims(l), next = backward ? 3 : 2;
    if (!x || x->rank < spatial) return;
    resize_rule rule = {.mode = mode_of(lower_name(l))};
    bool nearest = rule.mode == RESIZE_NEAREST || rule.mode == RESIZE_NEAREST_EXACT;
    bool whole = x->dtype == DTYPE_U8 && !nearest;
    rule.wide = x->dtype == DTYPE_F64 || whole;
    if (!nearest) rule.align_corners = arg_bool(l, next++);
    if (hlo_element_count(x) == 0) {
        result_set(l, 0, index_zeros(b, x->dtype, result_rank(l, 0), result_dims(l, 0)));
        return;
    }
    if (backward && gradient_is_copied(l, &rule, x)) {
        result_set(l, 0, x);
        return;
    }
    if (whole)
        x = hlo_convert(b, x, DTYPE_I32);
    else if (!nearest || backward)
        x = hlo_convert(b, x, dtype_is_float(x->dtype) ? dtype_opmath(x->dtype) : DTYPE_F32);
    for (int n = 0; n < spatial && x; n++) {
        int i = whole ? spatial - 1 - n : n; /* rounding makes the order count: the CPU's is the last axis first */
        int dim = x->rank - spatial + i;
        int64_t from = x->dims[dim], to = result_dims(l, 0)[dim];
        rule.scale = arg_float_or(l, next + i, 0);
        if (nearest) {
            x = backward ? nearest_dim_backward(b, x, dim, to, &rule) : nearest_dim(b, x, dim, to, &rule);
            continue;
        }
        resize_axis a;
        if (axis_is_copied(&rule, from, to, backward)) continue;
        if (!resize_axis_init(b, &rule, backward ? to : from, backward ? from : to, &a)) return;
        x = whole      ? resize_dim_whole(b, x, dim, &a)
            : backward ? resize_dim_backward(b, x, dim, &a)
                       : resize_dim(b, x, dim, &a);
    }
    result_set(l, 0, x);
}

static void lower_resize(lowering *l) { resize(l, false); }
static void lower_resize_backward(lowering *l) { resize(l, true); }

#define RESIZE_ROWS(name)                                                       \
    {"aten::" name, PROMOTE_NONE, .lower = lower_resize}, {                     \
        "aten::" name "_backward", PROMOTE_NONE, .lower = lower_resize_backward \
    }

const op_row ops_upsample[] = {
    RESIZE_ROWS("upsample_nearest1d"),        RESIZE_ROWS("upsample_nearest2d"),
    RESIZE_ROWS("upsample_nearest3d"),        RESIZE_ROWS("_upsample_nearest_exact1d"),
    RESIZE_ROWS("_upsample_nearest_exact2d"), RESIZE_ROWS("_upsample_nearest_exact3d"),
    RESIZE_ROWS("upsample_linear1d"),         RESIZE_ROWS("upsample_bilinear2d"),
    RESIZE_ROWS("upsample_trilinear3d"),      RESIZE_ROWS("upsample_bicubic2d"),
    RESIZE_ROWS("_upsample_bilinear2d_aa"),   RESIZE_ROWS("_upsample_bicubic2d_aa"),
    RESIZE_ROWS("_upsample_lanczos2d_aa"),    {0},
};
