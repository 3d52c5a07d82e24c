/* Reading and writing by index tensors: index, index_put, index_select, gather, take, put, index_add and their kin.
 * Indices out of range are clamped (reads) or dropped (writes) by the program, which says so afterwards. */
#include <string.h>

#include "ops/indexing.h"
#include "ops/ops.h"
#include "ops/reduction.h"
#include "ops/scan.h"

static int index_dim(lowering *l, int argument, int rank) {
    int64_t d = dim_wrap(arg_int(l, argument), rank);
    if (d >= 0) return (int)d;
    hlo_fail(lower_builder(l), STATUS_INDEX, "Dimension out of range");
    return 0;
}

static hlo_value flatten(hlo_builder *b, hlo_value x) {
    int64_t n = hlo_element_count(x);
    return hlo_reshape(b, x, 1, &n);
}

static bool is_mask(hlo_value v) { return v && (v->dtype == DTYPE_BOOL || v->dtype == DTYPE_U8); }

/* ---- index ---- */

/* What PyTorch's own decompositions index with is in range. */
static void check_entries(lowering *l, hlo_value x, int n, const hlo_value *entries) {
    if (!x || strncmp(lower_name(l), "aten::_unsafe", 13) == 0) return;
    for (int i = 0; i < n && i < x->rank; i++)
        if (entries[i]) check_index(l, entries[i], x->dims[i], true, NULL);
}

static void lower_index(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    const hlo_value *entries;
    int n = arg_tensors(l, 1, &entries), given = 0;
    for (int i = 0; i < n; i++) {
        given += entries[i] != NULL;
        if (!is_mask(entries[i])) continue;
        hlo_fail(b, STATUS_NOT_IMPLEMENTED,
                 "a mask index decides the result's size; it must be expanded with nonzero() first");
        return;
    }
    advanced_index a;
    check_entries(l, x, n, entries);
    if (!given)
        result_set(l, 0, x);
    else if (advanced_index_init(b, &a, x, n, entries))
        result_set(l, 0, advanced_index_read(b, &a, x));
}

static void lower_unsafe_masked_index(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    const hlo_value *entries;
    int n = arg_tensors(l, 2, &entries);
    advanced_index a;
    if (!x || !advanced_index_init(b, &a, x, n, entries)) return;
    result_set(l, 0, hlo_select(b, arg_tensor(l, 1), advanced_index_read(b, &a, x), arg_number(l, 3, x->dtype)));
}

static void lower_unsafe_masked_index_put(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    const hlo_value *entries;
    int n = arg_tensors(l, 2, &entries);
    advanced_index a;
    if (!x || !advanced_index_init(b, &a, x, n, entries)) return;
    hlo_value values = hlo_convert(b, arg_tensor(l, 3), x->dtype);
    values = hlo_select(b, arg_tensor(l, 1), values, hlo_scalar(b, x->dtype, 0));
    result_set(l, 0, advanced_index_write(b, &a, x, values, INDEX_ADD));
}

/* ---- index_put with one mask over dimensions [first, first + mask rank) ---- */

static hlo_value broadcast_mask(hlo_builder *b, hlo_value mask, int first, hlo_value x) {
    if (!mask || !x) return NULL;
    int64_t map[HLO_MAX_RANK];
    for (int i = 0; i < mask->rank; i++) map[i] = first + i;
    return hlo_broadcast_in_dim(b, mask, x->rank, x->dims, map);
}

/* The values where the mask is true, laid out like x. The indexed result is [before, count, after]; values broadcast to
 * it. Their count dimension is either 1 (or missing), or the true elements take the values in order. */
static hlo_value masked_values(hlo_builder *b, hlo_value mask, int first, hlo_value x, hlo_value values) {
    int after = x->rank - first - mask->rank, before = values->rank - after - 1;
    int64_t dims[HLO_MAX_RANK];
    int rank = 0;
    if (before < 0) return values;
    if (values->dims[before] == 1) {
        for (int i = 0; i < before; i++) dims[rank++] = values->dims[i];
        for (int i = 0; i < mask->rank; i++) dims[rank++] = 1;
        for (int i = before + 1; i < values->rank; i++) dims[rank++] = values->dims[i];
        return hlo_reshape(b, values, rank, dims);
    }
    if (values->dims[before] == 0) return hlo_scalar(b, values->dtype, 0); /* nothing is selected */
    hlo_value order = hlo_reshape(b, scan_count_before(b, flatten(b, mask)), mask->rank, mask->dims);
    return index_take(b, values, before, order);
}

static hlo_value put_mask(hlo_builder *b, hlo_value x, hlo_value mask, int first, hlo_value values, bool accumulate) {
    if (!x || !mask || !values || hlo_element_count(x) == 0) return x;
    values = masked_values(b, mask, first, x, hlo_convert(b, values, x->dtype));
    hlo_value full = broadcast_mask(b, mask, first, x);
    if (!accumulate) return hlo_select(b, full, values, x);
    hlo_value added = x->dtype == DTYPE_BOOL ? hlo_or(b, x, values) : hlo_add(b, x, values);
    return hlo_select(b, full, added, x);
}

static void lower_index_put(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), values = arg_tensor(l, 2);
    const hlo_value *entries;
    int n = arg_tensors(l, 1, &entries), masks = 0, others = 0, first = 0, dim = 0;
    hlo_value mask = NULL;
    if (!x || !values) return;
    for (int i = 0; i < n; i++) {
        if (is_mask(entries[i])) {
            masks++;
            mask = hlo_convert(b, entries[i], DTYPE_BOOL);
            first = dim;
        } else if (entries[i]) {
            others++;
        }
        dim += is_mask(entries[i]) ? entries[i]->rank : 1;
    }
    bool accumulate = arg_bool(l, 3);
    if (accumulate) x = hlo_convert(b, x, dtype_opmath(x->dtype));
    if (!x) return;
    advanced_index a;
    if (masks == 0 && others == 0) {
        values = hlo_convert(b, values, x->dtype);
        result_set(l, 0, accumulate ? hlo_add(b, x, values) : values);
    } else if (masks == 0) {
        check_entries(l, x, n, entries);
        if (advanced_index_init(b, &a, x, n, entries))
            result_set(l, 0, advanced_index_write(b, &a, x, values, accumulate ? INDEX_ADD : INDEX_SET));
    } else if (masks == 1 && others == 0) {
        result_set(l, 0, put_mask(b, x, mask, first, values, accumulate));
    } else {
        hlo_fail(b, STATUS_NOT_IMPLEMENTED, "a mask beside another index must be expanded with nonzero() first");
    }
}

/* ---- one index tensor on one dimension ---- */

static hlo_value at_least_1d(hlo_builder *b, hlo_value x) {
    return x && x->rank == 0 ? hlo_reshape(b, x, 1, (int64_t[]){1}) : x;
}

static void lower_index_select(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = at_least_1d(b, arg_tensor(l, 0)), index = at_least_1d(b, arg_tensor(l, 2));
    if (!x || !index) return;
    int dim = index_dim(l, 1, x->rank);
    check_index(l, index, x->dims[dim], false, NULL);
    hlo_value y = index_take(b, x, dim, index_normalize(b, index, x->dims[dim]));
    result_set(l, 0, hlo_reshape(b, y, result_rank(l, 0), result_dims(l, 0)));
}

/* Operands of index_add, index_copy, index_reduce and index_fill: x at least 1-d, index 1-d, source shaped like x but
 * for dim. */
typedef struct {
    hlo_value x, index, source;
    int dim;
} slices;

static bool read_slices(lowering *l, slices *s, hlo_value source, bool negative) {
    hlo_builder *b = lower_builder(l);
    s->x = at_least_1d(b, arg_tensor(l, 0));
    hlo_value index = at_least_1d(b, arg_tensor(l, 2));
    if (!s->x || !index || !source) return false;
    s->dim = index_dim(l, 1, s->x->rank);
    check_index(l, index, s->x->dims[s->dim], negative, NULL);
    s->index = index_normalize(b, index, s->x->dims[s->dim]);
    int64_t dims[HLO_MAX_RANK], count = 1;
    memcpy(dims, s->x->dims, sizeof(int64_t) * (size_t)s->x->rank);
    dims[s->dim] = index->dims[0];
    for (int i = 0; i < s->x->rank; i++) count *= dims[i];
    source = hlo_convert(b, source, s->x->dtype);
    s->source = source->rank > 0 && hlo_element_count(source) == count ? hlo_reshape(b, source, s->x->rank, dims)
                                                                       : hlo_broadcast_to(b, source, s->x->rank, dims);
    return s->source != NULL;
}

static void set_slices(lowering *l, const slices *s, index_combine combine) {
    hlo_builder *b = lower_builder(l);
    hlo_value y = index_put_slices(b, s->x, s->dim, s->index, s->source, combine);
    result_set(l, 0, hlo_reshape(b, y, result_rank(l, 0), result_dims(l, 0)));
}

static void lower_index_add(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), source = arg_tensor(l, 3);
    slices s;
    if (!x || !source || !read_slices(l, &s, source, false)) return;
    if (arg_given(l, 4)) {
        hlo_value alpha = arg_number(l, 4, x->dtype);
        s.source = x->dtype == DTYPE_BOOL ? hlo_and(b, s.source, alpha) : hlo_multiply(b, s.source, alpha);
    }
    set_slices(l, &s, INDEX_ADD);
}

static void lower_index_copy(lowering *l) {
    slices s;
    if (read_slices(l, &s, arg_tensor(l, 3), false)) set_slices(l, &s, INDEX_SET);
}

static void lower_index_fill(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    slices s;
    if (!x) return;
    hlo_value value = arg_number(l, 3, x->dtype);
    if (read_slices(l, &s, value, true)) set_slices(l, &s, INDEX_SET);
}

/* ---- gather, take, put ---- */

static void lower_gather(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), index = arg_tensor(l, 2);
    if (!x || !index) return;
    int dim = index_dim(l, 1, x->rank);
    check_index(l, index, x->rank ? x->dims[dim] : 1, false, NULL);
    hlo_value y = index_gather(b, x, dim, index_normalize(b, index, x->rank ? x->dims[dim] : 1));
    result_set(l, 0, hlo_reshape(b, y, result_rank(l, 0), result_dims(l, 0)));
}

static void lower_take(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    check_index(l, arg_tensor(l, 1), hlo_element_count(x), true, NULL);
    result_set(l, 0, index_take(b, flatten(b, x), 0, index_normalize(b, arg_tensor(l, 1), hlo_element_count(x))));
}

static void lower_put(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), index = arg_tensor(l, 1), source = arg_tensor(l, 2);
    bool accumulate = arg_bool(l, 3);
    if (x && accumulate) x = hlo_convert(b, x, dtype_opmath(x->dtype));
    if (!x || !index || !source) return;
    check_index(l, index, hlo_element_count(x), true, NULL);
    index = index_normalize(b, flatten(b, index), hlo_element_count(x));
    source = flatten(b, hlo_convert(b, source, x->dtype));
    hlo_value y = index_put_slices(b, flatten(b, x), 0, index, source, accumulate ? INDEX_ADD : INDEX_SET);
    result_set(l, 0, hlo_reshape(b, y, x->rank, x->dims));
}

/* ---- masks ---- */

static void lower_masked_scatter(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), mask = arg_tensor(l, 1), source = arg_tensor(l, 2);
    if (!x || !mask || !source) return;
    if (arg_tensor_dtype(l, 1) != DTYPE_BOOL) {
        hlo_fail(b, STATUS_RUNTIME, "masked_scatter: the mask has to be of bool");
        return;
    }
    int rank = result_rank(l, 0);
    const int64_t *dims = result_dims(l, 0);
    x = hlo_broadcast_to(b, x, rank, dims);
    mask = hlo_broadcast_to(b, hlo_convert(b, mask, DTYPE_BOOL), rank, dims);
    dim_set all = dims_all(x);
    if (mask)
        check_value(l, reduce_drop(b, HLO_REDUCE_ADD, hlo_convert(b, mask, DTYPE_I64), &all),
                    hlo_element_count(source) + 1, NULL);
    if (hlo_element_count(source) == 0 || hlo_element_count(x) == 0) {
        result_set(l, 0, x);
        return;
    }
    hlo_value order = hlo_reshape(b, scan_count_before(b, flatten(b, mask)), rank, dims);
    hlo_value values = index_take(b, flatten(b, hlo_convert(b, source, result_dtype(l, 0))), 0, order);
    result_set(l, 0, hlo_select(b, mask, values, x));
}

/* The flat `value` at the true elements of the flat mask, in order, in the first places of a vector of `size`; `fill`
 * behind. */
static hlo_value compress(hlo_builder *b, hlo_value value, hlo_value mask, hlo_value fill, int64_t size) {
    if (!value || !mask) return NULL;
    hlo_value place = scan_count_before(b, mask);
    place = hlo_select(b, mask, place, hlo_like(b, place, (double)size)); /* out of range: dropped */
    return index_put_slices(b, hlo_broadcast_to(b, fill, 1, &size), 0, place, value, INDEX_SET);
}

static void lower_masked_scatter_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value grad = arg_tensor(l, 0), mask = arg_tensor(l, 1);
    if (!grad || !mask) return;
    mask = hlo_broadcast_to(b, hlo_convert(b, mask, DTYPE_BOOL), grad->rank, grad->dims);
    int64_t size = 1;
    for (int i = 0; i < result_rank(l, 0); i++) size *= result_dims(l, 0)[i];
    hlo_value y = compress(b, flatten(b, grad), flatten(b, mask), hlo_scalar(b, grad->dtype, 0), size);
    result_set(l, 0, hlo_reshape(b, y, result_rank(l, 0), result_dims(l, 0)));
}

/* nonzero with a given number of rows: [size, rank], filled up with fill_value. */
static void lower_nonzero_static(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    int64_t size = result_dims(l, 0)[0], column[2] = {size, 1};
    if (x->rank == 0 || size == 0) {
        result_set(l, 0, index_zeros(b, DTYPE_I64, result_rank(l, 0), result_dims(l, 0)));
        return;
    }
    hlo_value mask = flatten(b, hlo_convert(b, x, DTYPE_BOOL)), columns[HLO_MAX_RANK];
    hlo_value fill = hlo_constant_int(b, DTYPE_I64, 0, NULL, arg_int_or(l, 2, -1));
    for (int i = 0; i < x->rank; i++) {
        hlo_value at = flatten(b, hlo_iota(b, DTYPE_I64, x->rank, x->dims, i));
        columns[i] = hlo_reshape(b, compress(b, at, mask, fill, size), 2, column);
    }
    result_set(l, 0, x->rank == 1 ? columns[0] : hlo_concatenate(b, x->rank, columns, 1));
}

/* ---- one_hot ---- */

static void lower_one_hot(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value index = arg_tensor(l, 0);
    int rank = result_rank(l, 0);
    const int64_t *dims = result_dims(l, 0);
    if (!index || rank != index->rank + 1) return;
    check_value(l, index, dims[rank - 1], NULL);
    hlo_value wide = hlo_broadcast_to(b, hlo_unsqueeze_dim(b, index, index->rank), rank, dims);
    result_set(l, 0, hlo_convert(b, hlo_eq(b, wide, hlo_iota(b, index->dtype, rank, dims, rank - 1)), DTYPE_I64));
}

const op_row ops_index[] = {
    {"aten::index.Tensor", PROMOTE_NONE, .lower = lower_index},
    {"aten::_unsafe_index.Tensor", PROMOTE_NONE, .lower = lower_index},
    {"aten::_unsafe_masked_index", PROMOTE_NONE, .lower = lower_unsafe_masked_index},
    {"aten::_unsafe_masked_index_put_accumulate", PROMOTE_NONE, OP_OPMATH, .lower = lower_unsafe_masked_index_put},
    {"aten::index_put", PROMOTE_NONE, .lower = lower_index_put},
    {"aten::_index_put_impl", PROMOTE_NONE, .lower = lower_index_put},
    {"aten::_unsafe_index_put", PROMOTE_NONE, .lower = lower_index_put},
    {"aten::index_select", PROMOTE_NONE, .lower = lower_index_select},
    {"aten::index_add", PROMOTE_NONE, OP_OPMATH, .lower = lower_index_add},
    {"aten::index_copy", PROMOTE_NONE, .lower = lower_index_copy},
    {"aten::index_fill.int_Scalar", PROMOTE_NONE, .lower = lower_index_fill},
    {"aten::index_fill.int_Tensor", PROMOTE_NONE, .lower = lower_index_fill},
    {"aten::gather", PROMOTE_NONE, .lower = lower_gather},
    {"aten::take", PROMOTE_NONE, .lower = lower_take},
    {"aten::put", PROMOTE_NONE, .lower = lower_put},
    {"aten::masked_scatter", PROMOTE_NONE, .lower = lower_masked_scatter},
    {"aten::masked_scatter_backward", PROMOTE_NONE, .lower = lower_masked_scatter_backward},
    {"aten::nonzero_static", PROMOTE_NONE, .lower = lower_nonzero_static},
    {"aten::one_hot", PROMOTE_NONE, .lower = lower_one_hot},
    {0},
};
