#include "ops/windows.h"

#include <string.h>

#include "ops/indexing.h"

bool windows_init(hlo_builder *b, axis_windows *w, int64_t size, int64_t count) {
    int64_t *storage = ARENA_NEW(hlo_arena(b), int64_t, 2 * count + 1);
    *w = (axis_windows){.size = size, .count = count, .longest = 1, .start = storage};
    if (!storage) {
        hlo_fail(b, STATUS_OUT_OF_MEMORY, "out of host memory");
        return false;
    }
    w->length = storage + count;
    return true;
}

void windows_measure(axis_windows *w) {
    w->longest = 1;
    for (int64_t i = 0; i < w->count; i++)
        if (w->length[i] > w->longest) w->longest = w->length[i];
}

bool windows_adaptive(hlo_builder *b, axis_windows *w, int64_t size, int64_t count) {
    if (!windows_init(b, w, size, count)) return false;
    for (int64_t i = 0; i < count; i++) {
        w->start[i] = i * size / count;
        w->length[i] = ((i + 1) * size + count - 1) / count - w->start[i];
    }
    windows_measure(w);
    return true;
}

bool windows_invert(hlo_builder *b, const axis_windows *w, axis_windows *inverse) {
    if (!windows_init(b, inverse, w->count, w->size)) return false;
    int64_t first = 0, end = 0;
    for (int64_t i = 0; i < w->size; i++) {
        while (end < w->count && w->start[end] <= i) end++;
        while (first < end && w->start[first] + w->length[first] <= i) first++;
        inverse->start[i] = first;
        inverse->length[i] = end - first;
    }
    windows_measure(inverse);
    return true;
}

static bool all_longest(const axis_windows *w) {
    for (int64_t i = 0; i < w->count; i++)
        if (w->length[i] != w->longest) return false;
    return true;
}

bool windows_tile(const axis_windows *w) {
    for (int64_t i = 0; i < w->count; i++)
        if (w->start[i] != i * w->longest) return false;
    return all_longest(w) && w->count * w->longest == w->size;
}

hlo_value vector_along(hlo_builder *b, hlo_value vector, int rank, int dim) {
    if (!vector) return NULL;
    int64_t dims[HLO_MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = i == dim ? vector->dims[0] : 1;
    return hlo_reshape(b, vector, rank, dims);
}

hlo_value windows_lengths(hlo_builder *b, const axis_windows *w, dtype t, int rank, int dim) {
    return vector_along(b, hlo_convert(b, hlo_constant_ints(b, DTYPE_I32, w->count, w->length), t), rank, dim);
}

/* [count, longest]: start + element, held inside the dimension. */
static hlo_value window_positions(hlo_builder *b, const axis_windows *w) {
    int64_t dims[2] = {w->count, w->longest}, map = 0;
    hlo_value start = hlo_broadcast_in_dim(b, hlo_constant_ints(b, DTYPE_I32, w->count, w->start), 2, dims, &map);
    hlo_value at = hlo_add(b, start, index_iota(b, 2, dims, 1));
    return at ? hlo_minimum(b, at, hlo_like(b, at, (double)(w->size - 1))) : NULL;
}

hlo_value windows_take(hlo_builder *b, hlo_value x, int dim, const axis_windows *w, hlo_value fill) {
    if (!x || !fill) return NULL;
    int64_t dims[HLO_MAX_RANK];
    int rank = x->rank + 1;
    for (int i = 0; i < rank; i++)
        dims[i] = i == dim ? w->count : i == dim + 1 ? w->longest : x->dims[i > dim ? i - 1 : i];
    if (windows_tile(w)) return hlo_reshape(b, x, rank, dims);
    hlo_value y = index_take(b, x, dim, window_positions(b, w));
    if (all_longest(w)) return y;
    int64_t mask_dims[HLO_MAX_RANK];
    for (int i = 0; i < rank; i++) mask_dims[i] = i == dim || i == dim + 1 ? dims[i] : 1;
    hlo_value element = index_iota(b, rank, mask_dims, dim + 1);
    hlo_value inside = hlo_lt(b, element, windows_lengths(b, w, DTYPE_I32, rank, dim));
    return hlo_select(b, inside, y, fill);
}

hlo_value windows_slice(hlo_builder *b, hlo_value x, int dim, const axis_windows *w, int64_t i) {
    return hlo_slice_dim(b, x, dim, w->start[i], w->start[i] + w->length[i], 1);
}

bool windows_few(const axis_windows *w) {
    return w->longest > 1 && w->count > 0 && w->count <= WINDOWS_MAX_SLICES && !windows_tile(w);
}

/* Window by window: no element is read more often than windows hold it, where a gather makes TPUs write all of them
 * out. */
static hlo_value sum_slices(hlo_builder *b, hlo_value x, int dim, const axis_windows *w) {
    hlo_value sums[WINDOWS_MAX_SLICES];
    int64_t along = dim;
    for (int64_t i = 0; i < w->count; i++) {
        hlo_value part = hlo_reduce(b, HLO_REDUCE_ADD, windows_slice(b, x, dim, w, i), 1, &along);
        sums[i] = hlo_unsqueeze_dim(b, part, dim);
    }
    return hlo_concatenate(b, (int)w->count, sums, dim);
}

hlo_value windows_sum(hlo_builder *b, hlo_value x, int dim, const axis_windows *w) {
    if (!x) return NULL;
    if (windows_few(w)) return sum_slices(b, x, dim, w);
    int64_t along = dim + 1;
    return hlo_reduce(b, HLO_REDUCE_ADD, windows_take(b, x, dim, w, hlo_scalar(b, x->dtype, 0)), 1, &along);
}
