/* Maximum pooling with the place of each maximum, as PyTorch's CPU kernels find it: places count through the input's
 * plane; of equal elements the first is taken, and a NaN beats everything (the last NaN, if there are several).
 *
 * A window is a product of intervals, so the maximum goes axis by axis, carrying values and places along: k1 + k2 steps
 * instead of k1 * k2, all of them slices, comparisons and selections. */
#include <string.h>

#include "ops/indexing.h"
#include "ops/pool.h"
#include "ops/windows.h"

typedef struct {
    hlo_value value, place;
} located;

static const int64_t nowhere = -1; /* the place of padding */

/* Whether (v, p) replaces (best, place). Associative and commutative, so that windows may be combined in any order. */
static hlo_value replaces(hlo_builder *b, located best, located next) {
    hlo_value later = hlo_gt(b, next.place, best.place);
    hlo_value empty = hlo_lt(b, best.place, hlo_constant_int(b, DTYPE_I32, 0, NULL, 0));
    hlo_value real = hlo_ge(b, next.place, hlo_constant_int(b, DTYPE_I32, 0, NULL, 0));
    hlo_value earlier = hlo_and(b, hlo_not(b, later), real);
    hlo_value take = hlo_gt(b, next.value, best.value);
    take = hlo_or(b, take, hlo_and(b, hlo_eq(b, next.value, best.value), hlo_or(b, earlier, hlo_and(b, empty, real))));
    if (!next.value || !dtype_is_float(next.value->dtype)) return take;
    hlo_value number = hlo_not(b, hlo_is_nan(b, best.value));
    return hlo_or(b, take, hlo_and(b, hlo_is_nan(b, next.value), hlo_or(b, number, later)));
}

static located larger(hlo_builder *b, located best, located next) {
    hlo_value take = replaces(b, best, next);
    return (located){hlo_select(b, take, next.value, best.value), hlo_select(b, take, next.place, best.place)};
}

/* Each element's place in its plane of the last `spatial` dimensions. */
static hlo_value places(hlo_builder *b, hlo_value x, int spatial) {
    if (!x) return NULL;
    int64_t dims[3], count = 1;
    for (int i = 0; i < spatial; i++) count *= dims[i] = x->dims[x->rank - spatial + i];
    hlo_value flat = hlo_iota(b, DTYPE_I32, 1, &count, 0);
    return hlo_broadcast_to(b, hlo_reshape(b, flat, spatial, dims), x->rank, x->dims);
}

/* ---- one axis ---- */

static located reduce_dim(hlo_builder *b, located x, int dim) {
    if (!x.value || !x.place) return (located){NULL, NULL};
    hlo_value operands[2] = {x.value, x.place}, results[2] = {NULL, NULL}, arguments[4];
    hlo_value init[2] = {hlo_min_value(b, x.value->dtype), hlo_constant_int(b, DTYPE_I32, 0, NULL, nowhere)};
    hlo_type types[4] = {
        {x.value->dtype, 0, NULL}, {DTYPE_I32, 0, NULL}, {x.value->dtype, 0, NULL}, {DTYPE_I32, 0, NULL}};
    int64_t along = dim;
    hlo_region_begin(b, 4, types, arguments);
    located best = larger(b, (located){arguments[0], arguments[1]}, (located){arguments[2], arguments[3]});
    hlo_value region_results[2] = {best.value, best.place};
    hlo_region *body = hlo_region_end(b, 2, region_results);
    hlo_reduce_region(b, 2, operands, init, 1, &along, body, results);
    return (located){results[0], results[1]};
}

static located one_by_one(hlo_builder *b, located x, int dim, const axis_windows *w) {
    hlo_value values[WINDOWS_MAX_SLICES], places[WINDOWS_MAX_SLICES];
    for (int64_t i = 0; i < w->count; i++) {
        located part = {windows_slice(b, x.value, dim, w, i), windows_slice(b, x.place, dim, w, i)};
        part = reduce_dim(b, part, dim);
        values[i] = hlo_unsqueeze_dim(b, part.value, dim);
        places[i] = hlo_unsqueeze_dim(b, part.place, dim);
    }
    return (located){hlo_concatenate(b, (int)w->count, values, dim), hlo_concatenate(b, (int)w->count, places, dim)};
}

static located by_windows(hlo_builder *b, located x, int dim, const axis_windows *w) {
    if (!x.value) return x;
    if (windows_few(w)) return one_by_one(b, x, dim, w);
    located parts = {windows_take(b, x.value, dim, w, hlo_min_value(b, x.value->dtype)),
                     windows_take(b, x.place, dim, w, hlo_constant_int(b, DTYPE_I32, 0, NULL, nowhere))};
    return reduce_dim(b, parts, dim + 1);
}

static located by_slices(hlo_builder *b, located x, int dim, const pool_axis *a) {
    if (!x.value || !x.place) return x;
    int64_t low[HLO_MAX_RANK] = {0}, high[HLO_MAX_RANK] = {0}, span = (a->count - 1) * a->stride + 1;
    int64_t missing = span + (a->kernel - 1) * a->dilation - a->size - a->padding;
    low[dim] = a->padding;
    high[dim] = missing > 0 ? missing : 0;
    if (low[dim] || high[dim]) {
        x.value = hlo_pad(b, x.value, hlo_min_value(b, x.value->dtype), low, high, NULL);
        x.place = hlo_pad(b, x.place, hlo_constant_int(b, DTYPE_I32, 0, NULL, nowhere), low, high, NULL);
    }
    located best = {NULL, NULL};
    for (int64_t k = 0; k < a->kernel; k++) {
        int64_t start = k * a->dilation;
        located part = {hlo_slice_dim(b, x.value, dim, start, start + span, a->stride),
                        hlo_slice_dim(b, x.place, dim, start, start + span, a->stride)};
        best = k ? larger(b, best, part) : part;
    }
    return best;
}

enum { MAX_SLICES = 32 };

static located pool_dim(hlo_builder *b, located x, int dim, const pool_axis *a) {
    if (a->kernel <= MAX_SLICES || a->dilation > 1) return by_slices(b, x, dim, a);
    axis_windows w;
    if (!windows_init(b, &w, a->size, a->count)) return (located){NULL, NULL};
    for (int64_t i = 0; i < a->count; i++) {
        int64_t start = i * a->stride - a->padding, end = start + a->kernel;
        w.start[i] = start < 0 ? 0 : start;
        w.length[i] = (end > a->size ? a->size : end) - w.start[i];
    }
    windows_measure(&w);
    return by_windows(b, x, dim, &w);
}

/* ---- max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode) ---- */

static void pool_window(hlo_window *w, int rank, int spatial, const pool_axis *axes) {
    hlo_window_init(w, rank);
    for (int i = 0; i < spatial; i++) {
        const pool_axis *a = &axes[i];
        int dim = rank - spatial + i;
        int64_t missing = (a->count - 1) * a->stride + (a->kernel - 1) * a->dilation + 1 - a->size - a->padding;
        w->window[dim] = a->kernel;
        w->stride[dim] = a->stride;
        w->window_dilation[dim] = a->dilation;
        w->low[dim] = a->padding;
        w->high[dim] = missing > 0 ? missing : 0;
    }
}

/* Values alone: one reduce_window. */
static hlo_value pool_values(hlo_builder *b, hlo_value x, int spatial, const pool_axis *axes) {
    hlo_window w;
    pool_window(&w, x->rank, spatial, axes);
    return hlo_reduce_window(b, HLO_REDUCE_MAXIMUM, x, &w);
}

/* What a pool's places are the places of. A gradient in the same program that gets them knows then that they are those
 * of the maxima, and need not read them: the compiler drops what computes them. */
typedef struct {
    const void *kind; /* &places_kind */
    hlo_value x;
    int spatial;
    pool_axis axes[3];
} places_note;
static const char places_kind;

static hlo_value noted(hlo_builder *b, hlo_value places, hlo_value x, int spatial, const pool_axis *axes) {
    places_note *note = ARENA_NEW(hlo_arena(b), places_note, 1);
    if (!note) return hlo_fail(b, STATUS_OUT_OF_MEMORY, "out of host memory");
    *note = (places_note){&places_kind, x, spatial, {{0}}};
    memcpy(note->axes, axes, sizeof *axes * (size_t)spatial);
    hlo_set_note(places, note);
    return places;
}

static bool are_places_of(hlo_value index, hlo_value x, int spatial, const pool_axis *axes) {
    const places_note *note = hlo_note(index);
    return note && note->kind == &places_kind && note->x == x && note->spatial == spatial &&
           memcmp(note->axes, axes, sizeof *axes * (size_t)spatial) == 0;
}

static void lower_max_pool(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    int spatial = pool_spatial(l);
    if (!x || x->rank < spatial) return;
    pool_axis axes[3];
    pool_axes(l, 1, true, x->dims + x->rank - spatial, result_dims(l, 0) + x->rank - spatial, axes);
    if (hlo_element_count(x) == 0) {
        result_set(l, 0, index_zeros(b, x->dtype, result_rank(l, 0), result_dims(l, 0)));
        result_set(l, 1, index_zeros(b, DTYPE_I64, result_rank(l, 0), result_dims(l, 0)));
    } else if (!result_wanted(l, 1)) {
        result_set(l, 0, pool_values(b, x, spatial, axes));
    } else {
        located best = {x, places(b, x, spatial)};
        for (int i = spatial - 1; i >= 0; i--) best = pool_dim(b, best, x->rank - spatial + i, &axes[i]);
        result_set(l, 0, pool_values(b, x, spatial, axes));
        result_set(l, 1, noted(b, hlo_convert(b, best.place, DTYPE_I64), x, spatial, axes));
    }
}

static void lower_adaptive_max(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    int spatial = pool_spatial(l);
    if (!x || x->rank < spatial) return;
    located best = {x, places(b, x, spatial)};
    for (int i = spatial - 1; i >= 0; i--) {
        int dim = x->rank - spatial + i;
        axis_windows w;
        if (!windows_adaptive(b, &w, x->dims[dim], result_dims(l, 0)[dim])) return;
        if (hlo_element_count(x) == 0 || w.count == 0) {
            result_set(l, 0, index_zeros(b, x->dtype, result_rank(l, 0), result_dims(l, 0)));
            result_set(l, 1, index_zeros(b, DTYPE_I64, result_rank(l, 0), result_dims(l, 0)));
            return;
        }
        best = by_windows(b, best, dim, &w);
    }
    result_set(l, 0, best.value);
    result_set(l, 1, best.place);
}

/* ---- gradients ---- */

/* Windows of one axis that hold position i start at floor((i + padding) / stride) - q for q = 0 .. holders - 1. This is
 * x's slice of window q for every position: each window repeated `stride` times, moved q windows on, cut to the input;
 * `fill` outside. */
static hlo_value holder(hlo_builder *b, hlo_value x, hlo_value fill, int dim, const pool_axis *a, int64_t q) {
    if (!x) return NULL;
    int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK], low[HLO_MAX_RANK] = {0}, high[HLO_MAX_RANK] = {0};
    for (int i = 0; i < x->rank; i++) map[i] = i <= dim ? i : i + 1;
    for (int i = 0; i <= x->rank; i++) dims[i] = i <= dim ? x->dims[i] : i == dim + 1 ? a->stride : x->dims[i - 1];
    hlo_value y = a->stride == 1 ? x : hlo_broadcast_in_dim(b, x, x->rank + 1, dims, map);
    memcpy(dims, x->dims, sizeof(int64_t) * (size_t)x->rank);
    dims[dim] = a->count * a->stride;
    y = hlo_reshape(b, y, x->rank, dims);
    low[dim] = q * a->stride - a->padding;
    high[dim] = a->size - dims[dim] - low[dim];
    return low[dim] || high[dim] ? hlo_pad(b, y, fill, low, high, NULL) : y;
}

enum { MAX_HOLDERS = 16 };

static int64_t holders_of(const pool_axis *a) { return (a->kernel - 1) / a->stride + 1; }

/* Every position looks which of the windows that hold it took it, so nothing is scattered. */
static hlo_value gather_gradient(hlo_builder *b, hlo_value grad, hlo_value index, int spatial, const pool_axis *axes,
                                 hlo_value own) {
    int64_t n[3] = {1, 1, 1};
    for (int i = 0; i < spatial; i++) n[i] = holders_of(&axes[i]);
    hlo_value sum = NULL, zero = hlo_scalar(b, grad->dtype, 0), none = hlo_constant_int(b, DTYPE_I32, 0, NULL, nowhere);
    for (int64_t k = 0; k < n[0] * n[1] * n[2]; k++) {
        int64_t q[3] = {k / (n[1] * n[2]), k / n[2] % n[1], k % n[2]};
        hlo_value g = grad, at = index;
        for (int i = 0; i < spatial; i++) {
            int dim = grad->rank - spatial + i;
            g = holder(b, g, zero, dim, &axes[i], q[i]);
            at = holder(b, at, none, dim, &axes[i], q[i]);
        }
        hlo_value part = hlo_select(b, hlo_eq(b, at, own), g, zero);
        sum = sum ? hlo_add(b, sum, part) : part;
    }
    return sum;
}

static hlo_value scatter_gradient(lowering *l, hlo_value grad, hlo_value index, hlo_value x) {
    hlo_builder *b = lower_builder(l);
    pool_plane p;
    if (!pool_plane_init(l, &p, grad, x->dims)) return NULL;
    hlo_value target = index_zeros(b, grad->dtype, 2, p.large);
    hlo_value y =
        index_scatter(b, target, 1, hlo_reshape(b, index, 2, p.small), hlo_reshape(b, grad, 2, p.small), INDEX_ADD);
    return hlo_reshape(b, y, x->rank, x->dims);
}

static bool few_holders(const pool_axis *axes, int spatial) {
    int64_t product = 1;
    for (int i = 0; i < spatial; i++) {
        if (axes[i].dilation != 1) return false;
        product *= holders_of(&axes[i]);
    }
    return product <= MAX_HOLDERS;
}

static hlo_value gradient(lowering *l, hlo_value grad, hlo_value x, hlo_value index, const pool_axis *axes) {
    hlo_builder *b = lower_builder(l);
    int spatial = pool_spatial(l);
    if (hlo_element_count(grad) == 0) return index_zeros(b, grad->dtype, x->rank, x->dims);
    index = hlo_convert(b, index, DTYPE_I32);
    if (axes && few_holders(axes, spatial))
        return gather_gradient(b, grad, index, spatial, axes, places(b, x, spatial));
    return scatter_gradient(l, grad, index, x);
}

/* Each window's gradient goes to its maximum, found again: the first of equal ones, the last NaN. */
static hlo_value window_gradient(hlo_builder *b, hlo_value grad, hlo_value x, int spatial, const pool_axis *axes) {
    hlo_value pair[2];
    const hlo_type types[2] = {{x->dtype, 0, NULL}, {x->dtype, 0, NULL}};
    hlo_region_begin(b, 2, types, pair);
    hlo_value stays = hlo_ge(b, pair[0], pair[1]);
    if (dtype_is_float(x->dtype))
        stays = hlo_or(b, stays, hlo_and(b, hlo_is_nan(b, pair[0]), hlo_not(b, hlo_is_nan(b, pair[1]))));
    hlo_region *select = hlo_region_end(b, 1, &stays);
    hlo_region_begin(b, 2, types, pair);
    hlo_value sum = hlo_add(b, pair[0], pair[1]);
    hlo_region *scatter = hlo_region_end(b, 1, &sum);
    hlo_window w;
    pool_window(&w, x->rank, spatial, axes);
    return hlo_select_and_scatter(b, x, grad, hlo_scalar(b, x->dtype, 0), &w, select, scatter);
}

static bool is_dilated(const pool_axis *axes, int spatial) {
    for (int i = 0; i < spatial; i++)
        if (axes[i].dilation != 1) return true;
    return false;
}

/* (grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices) */
static void lower_max_pool_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value grad = arg_tensor(l, 0), x = arg_tensor(l, 1), index = arg_tensor(l, 7);
    int spatial = pool_spatial(l);
    if (!grad || !x || !index || x->rank < spatial) return;
    pool_axis axes[3];
    pool_axes(l, 2, true, x->dims + x->rank - spatial, grad->dims + grad->rank - spatial, axes);
    bool known = grad->dtype == x->dtype && !is_dilated(axes, spatial) && are_places_of(index, x, spatial, axes);
    if (known && hlo_element_count(grad) > 0)
        result_set(l, 0, window_gradient(b, grad, x, spatial, axes));
    else
        result_set(l, 0, gradient(l, hlo_convert(b, grad, dtype_opmath(grad->dtype)), x, index, axes));
}

/* (grad_output, self, indices): windows are regular where the sizes divide. */
static void lower_adaptive_max_backward(lowering *l) {
    hlo_value grad = arg_tensor(l, 0), x = arg_tensor(l, 1), index = arg_tensor(l, 2);
    int spatial = pool_spatial(l);
    if (!grad || !x || !index || x->rank < spatial) return;
    pool_axis axes[3];
    bool regular = true;
    for (int i = 0; i < spatial; i++) {
        int64_t size = x->dims[x->rank - spatial + i], count = grad->dims[grad->rank - spatial + i];
        int64_t kernel = count ? size / count : 0;
        regular = regular && kernel > 0 && kernel * count == size;
        axes[i] = (pool_axis){size, count, kernel, kernel, 0, 1};
    }
    result_set(l, 0, gradient(l, grad, x, index, regular ? axes : NULL));
}

/* ---- fractional: where the windows lie depends on random samples, one per image, channel and axis ---- */

/* Starts of the windows along one axis: floor((i + sample) * step) - floor(sample * step), the last one at the end
 * (PyTorch's generate_intervals, aten/src/ATen/native/FractionalMaxPooling.h). [lead.., count] */
static hlo_value fractional_starts(hlo_builder *b, hlo_value sample, int64_t size, int64_t count, int64_t kernel) {
    if (!sample) return NULL;
    int64_t dims[HLO_MAX_RANK];
    int rank = sample->rank + 1;
    memcpy(dims, sample->dims, sizeof(int64_t) * (size_t)sample->rank);
    dims[sample->rank] = count;
    hlo_value at = hlo_iota(b, DTYPE_I32, rank, dims, rank - 1),
              last = hlo_constant_int(b, DTYPE_I32, 0, NULL, size - kernel);
    if (count == 1) return hlo_broadcast_to(b, last, rank, dims);
    hlo_value step = hlo_divide(b, hlo_scalar(b, sample->dtype, (double)(size - kernel)),
                                hlo_scalar(b, sample->dtype, (double)(count - 1)));
    sample = hlo_unsqueeze_dim(b, sample, rank - 1);
    hlo_value moved = hlo_multiply(b, hlo_add(b, hlo_convert(b, at, sample ? sample->dtype : DTYPE_F32), sample), step);
    hlo_value start =
        hlo_subtract(b, hlo_convert(b, moved, DTYPE_I32), hlo_convert(b, hlo_multiply(b, sample, step), DTYPE_I32));
    return hlo_select(b, hlo_eq(b, at, hlo_constant_int(b, DTYPE_I32, 0, NULL, count - 1)), last, start);
}

/* Moves dimension `from` of x to the end. */
static hlo_value dim_to_end(hlo_builder *b, hlo_value x, int from) {
    if (!x) return NULL;
    int64_t permutation[HLO_MAX_RANK] = {0};
    for (int i = 0; i < x->rank; i++) permutation[i] = i == x->rank - 1 ? from : i < from ? i : i + 1;
    return hlo_transpose(b, x, permutation);
}

static hlo_value end_to_dim(hlo_builder *b, hlo_value x, int to) {
    if (!x) return NULL;
    int64_t permutation[HLO_MAX_RANK] = {0};
    for (int i = 0; i < x->rank; i++) permutation[i] = i == to ? x->rank - 1 : i < to ? i : i - 1;
    return hlo_transpose(b, x, permutation);
}

static located fractional_dim(hlo_builder *b, located x, int dim, int lead, hlo_value starts, int64_t kernel) {
    hlo_value moved[2] = {dim_to_end(b, x.value, dim), dim_to_end(b, x.place, dim)};
    if (!moved[0] || !moved[1] || !starts) return (located){NULL, NULL};
    int last = moved[0]->rank - 1;
    int64_t dims[HLO_MAX_RANK], count = starts->dims[starts->rank - 1], map[HLO_MAX_RANK];
    memcpy(dims, moved[0]->dims, sizeof(int64_t) * (size_t)last);
    dims[last] = count;
    dims[last + 1] = kernel;
    for (int i = 0; i < lead; i++) map[i] = i;
    map[lead] = last;
    hlo_value index =
        hlo_add(b, hlo_broadcast_in_dim(b, starts, last + 2, dims, map), index_iota(b, last + 2, dims, last + 1));
    int64_t flat[HLO_MAX_RANK];
    memcpy(flat, dims, sizeof flat);
    flat[last] = count * kernel;
    index = hlo_reshape(b, index, last + 1, flat);
    located parts = {hlo_reshape(b, index_gather(b, moved[0], last, index), last + 2, dims),
                     hlo_reshape(b, index_gather(b, moved[1], last, index), last + 2, dims)};
    located best = reduce_dim(b, parts, last + 1);
    return (located){end_to_dim(b, best.value, dim), end_to_dim(b, best.place, dim)};
}

/* (self, kernel_size, output_size, random_samples [N, C, spatial]). The samples of 2d come width first, those of 3d
 * depth first. */
static void lower_fractional_max(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), samples = arg_tensor(l, 3);
    int spatial = pool_spatial(l);
    const int64_t *kernel;
    if (!x || !samples || samples->rank != 3 || x->rank < spatial + 1) return;
    int lead = x->rank - spatial, nk = arg_ints(l, 1, &kernel);
    if (hlo_element_count(x) == 0) {
        result_set(l, 0, index_zeros(b, x->dtype, result_rank(l, 0), result_dims(l, 0)));
        result_set(l, 1, index_zeros(b, DTYPE_I64, result_rank(l, 0), result_dims(l, 0)));
        return;
    }
    samples = hlo_slice_dim(b, samples, 0, 0, lead == 2 ? x->dims[0] : 1, 1);
    located best = {x, places(b, x, spatial)};
    for (int i = spatial - 1; i >= 0; i--) {
        int dim = lead + i, column = spatial == 2 ? 1 - i : i;
        int64_t size = x->dims[dim], count = result_dims(l, 0)[dim], k = kernel[nk == spatial ? i : 0];
        hlo_value sample = hlo_reshape(b, hlo_slice_dim(b, samples, 2, column, column + 1, 1), lead, x->dims);
        best = fractional_dim(b, best, dim, lead, fractional_starts(b, sample, size, count, k), k);
    }
    result_set(l, 0, best.value);
    result_set(l, 1, best.place);
}

/* (grad_output, self, kernel_size, output_size, indices) */
static void lower_fractional_max_backward(lowering *l) {
    hlo_value grad = arg_tensor(l, 0), x = arg_tensor(l, 1), index = arg_tensor(l, 4);
    if (grad && x && index) result_set(l, 0, gradient(l, grad, x, index, NULL));
}

const op_row ops_max_pool[] = {
    {"aten::max_pool2d_with_indices", PROMOTE_NONE, .lower = lower_max_pool},
    {"aten::max_pool3d_with_indices", PROMOTE_NONE, .lower = lower_max_pool},
    {"aten::max_pool2d_with_indices_backward", PROMOTE_NONE, .lower = lower_max_pool_backward},
    {"aten::max_pool3d_with_indices_backward", PROMOTE_NONE, .lower = lower_max_pool_backward},
    {"aten::adaptive_max_pool2d", PROMOTE_NONE, .lower = lower_adaptive_max},
    {"aten::adaptive_max_pool3d", PROMOTE_NONE, .lower = lower_adaptive_max},
    {"aten::adaptive_max_pool2d_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_adaptive_max_backward},
    {"aten::adaptive_max_pool3d_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_adaptive_max_backward},
    {"aten::fractional_max_pool2d", PROMOTE_NONE, .lower = lower_fractional_max},
    {"aten::fractional_max_pool3d", PROMOTE_NONE, .lower = lower_fractional_max},
    {"aten::fractional_max_pool2d_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_fractional_max_backward},
    {"aten::fractional_max_pool3d_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_fractional_max_backward},
    {0},
};
