/* Gathers and scatters along dimensions. Dimensions that index and operand walk together become batching dimensions of
 * the StableHLO operation, so no coordinates are materialised for them. */
#include "ops/indexing.h"

#include <string.h>

hlo_value index_zeros(hlo_builder *b, dtype t, int rank, const int64_t *dims) {
    return hlo_constant_int(b, t, rank, dims, 0);
}

hlo_value index_iota(hlo_builder *b, int rank, const int64_t *dims, int dim) {
    return hlo_iota(b, DTYPE_I32, rank, dims, dim);
}

static bool has_zero(int rank, const int64_t *dims) {
    for (int i = 0; i < rank; i++)
        if (dims[i] == 0) return true;
    return false;
}

hlo_value index_normalize(hlo_builder *b, hlo_value index, int64_t size) {
    if (!index) return NULL;
    if (!dtype_is_int(index->dtype))
        return hlo_fail(b, STATUS_RUNTIME, "expected dtype int32 or int64 for index, got %s",
                        dtype_torch_name(index->dtype));
    dtype t = size <= INT32_MAX ? DTYPE_I32 : DTYPE_I64;
    bool is_signed = dtype_is_signed(index->dtype);
    index = hlo_convert(b, index, t);
    if (!is_signed) return index;
    hlo_value zero = hlo_constant_int(b, t, 0, NULL, 0), count = hlo_constant_int(b, t, 0, NULL, size);
    return hlo_select(b, hlo_lt(b, index, zero), hlo_add(b, index, count), index);
}

hlo_value index_take(hlo_builder *b, hlo_value x, int dim, hlo_value index) {
    if (!x || !index) return NULL;
    hlo_gather_dims d = {0};
    int64_t dims[HLO_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < x->rank; i++) {
        d.slice_sizes[i] = i == dim ? 1 : x->dims[i];
        if (i != dim) {
            d.offset_dims[d.n_offset++] = rank;
            dims[rank++] = x->dims[i];
            continue;
        }
        for (int k = 0; k < index->rank; k++) dims[rank++] = index->dims[k];
    }
    if (has_zero(rank, dims) || x->dims[dim] == 0) return index_zeros(b, x->dtype, rank, dims);
    d.collapsed_dims[d.n_collapsed++] = dim;
    d.start_index_map[d.n_start_map++] = dim;
    d.index_vector_dim = index->rank;
    return hlo_gather(b, x, index, &d);
}

/* The leading part of x that has these sizes, `dim` (or -1) left whole. */
static hlo_value leading_part(hlo_builder *b, hlo_value x, int dim, const int64_t *sizes) {
    int64_t start[HLO_MAX_RANK] = {0}, limit[HLO_MAX_RANK];
    bool same = true;
    for (int i = 0; i < x->rank; i++) {
        limit[i] = i == dim ? x->dims[i] : sizes[i];
        same = same && limit[i] == x->dims[i];
    }
    return same ? x : hlo_slice(b, x, start, limit, NULL);
}

hlo_value index_gather(hlo_builder *b, hlo_value x, int dim, hlo_value index) {
    if (!x || !index) return NULL;
    if (x->rank == 0) return hlo_broadcast_to(b, x, index->rank, index->dims);
    if (index->rank == 0) index = hlo_broadcast_to(b, index, 1, (int64_t[]){1});
    if (!index || has_zero(index->rank, index->dims))
        return index ? index_zeros(b, x->dtype, index->rank, index->dims) : NULL;
    x = leading_part(b, x, dim, index->dims);
    hlo_gather_dims d = {0};
    for (int i = 0; i < index->rank; i++) {
        d.slice_sizes[i] = 1;
        if (i == dim) continue;
        d.operand_batch_dims[d.n_operand_batch] = i;
        d.indices_batch_dims[d.n_operand_batch++] = i;
    }
    d.collapsed_dims[d.n_collapsed++] = dim;
    d.start_index_map[d.n_start_map++] = dim;
    d.index_vector_dim = index->rank;
    return hlo_gather(b, x, index, &d);
}

hlo_region *index_region(hlo_builder *b, dtype t, index_combine combine) {
    hlo_type types[2] = {{t, 0, NULL}, {t, 0, NULL}};
    hlo_value arguments[2], result = NULL;
    hlo_region_begin(b, 2, types, arguments);
    hlo_value current = arguments[0], update = arguments[1];
    switch (combine) {
        case INDEX_SET:
            result = update;
            break;
        case INDEX_ADD:
            result = t == DTYPE_BOOL ? hlo_or(b, current, update) : hlo_add(b, current, update);
            break;
        case INDEX_MULTIPLY:
            result = t == DTYPE_BOOL ? hlo_and(b, current, update) : hlo_multiply(b, current, update);
            break;
        case INDEX_MAXIMUM:
            result = hlo_maximum(b, current, update);
            break;
        case INDEX_MINIMUM:
            result = hlo_minimum(b, current, update);
            break;
        case INDEX_OR:
            result = hlo_or(b, current, update);
            break;
    }
    return hlo_region_end(b, 1, &result);
}

static hlo_value scatter_one(hlo_builder *b, hlo_value x, hlo_value index, hlo_value src, const hlo_scatter_dims *d,
                             index_combine combine) {
    if (!x || !index || !src) return NULL;
    hlo_value result = NULL;
    hlo_region *body = index_region(b, x->dtype, combine);
    hlo_scatter(b, 1, &x, index, &src, d, body, &result);
    return result;
}

hlo_value index_scatter(hlo_builder *b, hlo_value x, int dim, hlo_value index, hlo_value src, index_combine combine) {
    if (!x || !index || !src) return NULL;
    if (has_zero(index->rank, index->dims) || has_zero(x->rank, x->dims)) return x;
    if (x->rank == 0) {
        hlo_value one = hlo_reshape(b, x, 1, (int64_t[]){1});
        hlo_value row = hlo_reshape(b, index, 1, (int64_t[]){1});
        return hlo_reshape(b, index_scatter(b, one, 0, row, hlo_reshape(b, src, 1, (int64_t[]){1}), combine), 0, NULL);
    }
    if (index->rank == 0) index = hlo_broadcast_to(b, index, 1, (int64_t[]){1});
    if (!index) return NULL;
    if (src->rank < index->rank)
        src = hlo_broadcast_to(b, src, index->rank, index->dims);
    else
        src = leading_part(b, src, -1, index->dims);
    hlo_value part = leading_part(b, x, dim, index->dims);
    hlo_scatter_dims d = {0};
    for (int i = 0; i < index->rank; i++) {
        if (i == dim) continue;
        d.input_batch_dims[d.n_input_batch] = i;
        d.indices_batch_dims[d.n_input_batch++] = i;
    }
    d.inserted_window_dims[d.n_inserted++] = dim;
    d.scatter_dims_to_operand[d.n_scatter_map++] = dim;
    d.index_vector_dim = index->rank;
    hlo_value done = scatter_one(b, part, index, src, &d, combine);
    if (part == x || !done) return done;
    hlo_value start[HLO_MAX_RANK], zero = hlo_constant_int(b, DTYPE_I32, 0, NULL, 0);
    for (int i = 0; i < x->rank; i++) start[i] = zero;
    return hlo_dynamic_update_slice(b, x, done, start);
}

hlo_value index_put_slices(hlo_builder *b, hlo_value x, int dim, hlo_value index, hlo_value src,
                           index_combine combine) {
    if (!x || !index || !src) return NULL;
    if (has_zero(src->rank, src->dims) || has_zero(x->rank, x->dims)) return x;
    hlo_scatter_dims d = {0};
    for (int i = 0; i < x->rank; i++)
        if (i != dim) d.update_window_dims[d.n_window++] = i < dim ? i : i + index->rank - 1;
    d.inserted_window_dims[d.n_inserted++] = dim;
    d.scatter_dims_to_operand[d.n_scatter_map++] = dim;
    d.index_vector_dim = index->rank;
    return scatter_one(b, x, index, src, &d, combine);
}

/* ---- advanced indexing ---- */

/* The common shape of the index tensors, into a->index_dims. */
static bool broadcast_indices(hlo_builder *b, advanced_index *a, const hlo_value *entries) {
    for (int k = 0; k < a->n_indexed; k++) {
        hlo_value e = entries[a->indexed[k]];
        if (e->rank > a->index_rank) {
            int shift = e->rank - a->index_rank;
            memmove(a->index_dims + shift, a->index_dims, sizeof(int64_t) * (size_t)a->index_rank);
            for (int i = 0; i < shift; i++) a->index_dims[i] = 1;
            a->index_rank = e->rank;
        }
        for (int i = 0; i < e->rank; i++) {
            int64_t *size = &a->index_dims[a->index_rank - e->rank + i];
            if (*size != e->dims[i] && *size != 1 && e->dims[i] != 1) {
                hlo_fail(b, STATUS_INDEX, "shape mismatch: indexing tensors could not be broadcast together");
                return false;
            }
            if (*size == 1) *size = e->dims[i];
        }
    }
    return true;
}

bool advanced_index_init(hlo_builder *b, advanced_index *a, hlo_value x, int count, const hlo_value *entries) {
    memset(a, 0, sizeof *a);
    if (!x) return false;
    a->rank = x->rank;
    for (int i = 0; i < x->rank; i++) {
        if (i < count && entries[i])
            a->indexed[a->n_indexed++] = i;
        else
            a->rest[a->n_rest++] = i;
    }
    if (!a->n_indexed) {
        hlo_fail(b, STATUS_INDEX, "indexing needs at least one index tensor");
        return false;
    }
    if (!broadcast_indices(b, a, entries)) return false;
    /* Index tensors that stand side by side keep their place; otherwise their dimensions come first. */
    bool adjacent = a->indexed[a->n_indexed - 1] - a->indexed[0] == a->n_indexed - 1;
    a->position = adjacent ? a->indexed[0] : 0;
    for (int i = 0; i < a->position; i++) a->result_dims[a->result_rank++] = x->dims[a->rest[i]];
    for (int i = 0; i < a->index_rank; i++) a->result_dims[a->result_rank++] = a->index_dims[i];
    for (int i = a->position; i < a->n_rest; i++) a->result_dims[a->result_rank++] = x->dims[a->rest[i]];

    int64_t column[HLO_MAX_RANK], largest = 0;
    memcpy(column, a->index_dims, sizeof column);
    column[a->index_rank] = 1;
    for (int i = 0; i < x->rank; i++) largest = x->dims[i] > largest ? x->dims[i] : largest;
    hlo_value parts[HLO_MAX_RANK];
    for (int k = 0; k < a->n_indexed; k++) {
        hlo_value e = index_normalize(b, entries[a->indexed[k]], x->dims[a->indexed[k]]);
        if (e && largest > INT32_MAX) e = hlo_convert(b, e, DTYPE_I64);
        parts[k] = hlo_reshape(b, hlo_broadcast_to(b, e, a->index_rank, a->index_dims), a->index_rank + 1, column);
    }
    a->vectors = a->n_indexed == 1 ? parts[0] : hlo_concatenate(b, a->n_indexed, parts, a->index_rank);
    return a->vectors != NULL;
}

hlo_value advanced_index_read(hlo_builder *b, const advanced_index *a, hlo_value x) {
    if (!x) return NULL;
    if (has_zero(a->result_rank, a->result_dims) || has_zero(x->rank, x->dims))
        return index_zeros(b, x->dtype, a->result_rank, a->result_dims);
    hlo_gather_dims d = {0};
    for (int i = 0; i < a->rank; i++) d.slice_sizes[i] = x->dims[i];
    for (int k = 0; k < a->n_indexed; k++) {
        d.slice_sizes[a->indexed[k]] = 1;
        d.collapsed_dims[d.n_collapsed++] = a->indexed[k];
        d.start_index_map[d.n_start_map++] = a->indexed[k];
    }
    for (int i = 0; i < a->n_rest; i++) d.offset_dims[d.n_offset++] = i < a->position ? i : i + a->index_rank;
    d.index_vector_dim = a->index_rank;
    return hlo_gather(b, x, a->vectors, &d);
}

hlo_value advanced_index_write(hlo_builder *b, const advanced_index *a, hlo_value x, hlo_value values,
                               index_combine combine) {
    if (!x || !values) return NULL;
    if (has_zero(a->result_rank, a->result_dims) || has_zero(x->rank, x->dims)) return x;
    values = hlo_broadcast_to(b, hlo_convert(b, values, x->dtype), a->result_rank, a->result_dims);
    hlo_scatter_dims d = {0};
    for (int k = 0; k < a->n_indexed; k++) {
        d.inserted_window_dims[d.n_inserted++] = a->indexed[k];
        d.scatter_dims_to_operand[d.n_scatter_map++] = a->indexed[k];
    }
    for (int i = 0; i < a->n_rest; i++) d.update_window_dims[d.n_window++] = i < a->position ? i : i + a->index_rank;
    d.index_vector_dim = a->index_rank;
    return scatter_one(b, x, a->vectors, values, &d, combine);
}

/* ---- strided parts of a dimension ---- */

hlo_value index_spread(hlo_builder *b, hlo_value src, hlo_value fill, int dim, int64_t size, int64_t start,
                       int64_t step) {
    if (!src || !fill) return NULL;
    int64_t count = src->dims[dim];
    if (count == 0) {
        int64_t dims[HLO_MAX_RANK];
        memcpy(dims, src->dims, sizeof(int64_t) * (size_t)src->rank);
        dims[dim] = size;
        return hlo_broadcast_to(b, fill, src->rank, dims);
    }
    int64_t low[HLO_MAX_RANK] = {0}, high[HLO_MAX_RANK] = {0}, interior[HLO_MAX_RANK] = {0};
    low[dim] = start;
    interior[dim] = count > 1 ? step - 1 : 0;
    high[dim] = size - (start + (count - 1) * step + 1);
    return hlo_pad(b, src, fill, low, high, interior);
}

hlo_value index_replace_strided(hlo_builder *b, hlo_value x, hlo_value src, int dim, int64_t start, int64_t step) {
    if (!x || !src || src->dims[dim] == 0) return x && src ? x : NULL;
    int64_t count = src->dims[dim], size = x->dims[dim];
    if (count == size) return src;
    if (step == 1 || count == 1) {
        hlo_value at[HLO_MAX_RANK], zero = hlo_constant_int(b, DTYPE_I32, 0, NULL, 0);
        for (int i = 0; i < x->rank; i++) at[i] = i == dim ? hlo_constant_int(b, DTYPE_I32, 0, NULL, start) : zero;
        return hlo_dynamic_update_slice(b, x, src, at);
    }
    hlo_value marks = hlo_constant_int(b, DTYPE_BOOL, 1, &count, 1);
    marks = index_spread(b, marks, hlo_constant_int(b, DTYPE_BOOL, 0, NULL, 0), 0, size, start, step);
    int64_t map = dim;
    marks = hlo_broadcast_in_dim(b, marks, x->rank, x->dims, &map);
    hlo_value spread = index_spread(b, src, hlo_scalar(b, x->dtype, 0), dim, size, start, step);
    return hlo_select(b, marks, spread, x);
}
