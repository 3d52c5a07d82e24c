/* Tables of rows: embedding, embedding_bag, their gradients. Rows are taken and added whole. */
#include <string.h>

#include "ops/indexing.h"
#include "ops/ops.h"

static hlo_value flatten(hlo_builder *b, hlo_value x) {
    int64_t n = hlo_element_count(x);
    return hlo_reshape(b, x, 1, &n);
}

static void lower_embedding(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value table = arg_tensor(l, 0);
    if (!table) return;
    check_index(l, arg_tensor(l, 1), table->dims[0], false, NULL);
    result_set(l, 0, index_take(b, table, 0, index_normalize(b, arg_tensor(l, 1), table->dims[0])));
}

/* How often each of `rows` indices occurs, and that count for every index. */
static hlo_value frequencies(hlo_builder *b, hlo_value index, int64_t rows, dtype t) {
    if (!index) return NULL;
    hlo_value counts = index_put_slices(b, index_zeros(b, t, 1, &rows), 0, index,
                                        hlo_constant_int(b, t, 1, index->dims, 1), INDEX_ADD);
    return index_take(b, counts, 0, index);
}

/* The rows of padding_idx (none if negative) get an index past the end, which a scatter drops. */
static hlo_value drop_padding(hlo_builder *b, hlo_value index, int64_t padding, int64_t rows) {
    if (!index || padding < 0) return index;
    return hlo_select(b, hlo_eq(b, index, hlo_like(b, index, (double)padding)), hlo_like(b, index, (double)rows),
                      index);
}

static hlo_value scale_rows(hlo_builder *b, hlo_value rows, hlo_value scale, hlo_binary_fn op) {
    if (!rows || !scale) return NULL;
    int64_t map = 0;
    return op(b, rows, hlo_broadcast_in_dim(b, scale, rows->rank, rows->dims, &map));
}

/* Few rows: one-hot [rows, n] times the gradient [n, width] keeps matrix units busy, where a scatter would go index by
 * index. */
static bool prefers_one_hot(int64_t rows, int64_t count) { return rows <= 1024 && count >= 64; }

static hlo_value add_rows(hlo_builder *b, hlo_value index, hlo_value grad, int64_t rows) {
    if (!index || !grad) return NULL;
    int64_t dims[2] = {rows, grad->dims[1]}, one_hot[2] = {rows, grad->dims[0]};
    if (!dtype_is_float(grad->dtype) || !prefers_one_hot(rows, grad->dims[0]))
        return index_put_slices(b, index_zeros(b, grad->dtype, 2, dims), 0, index, grad, INDEX_ADD);
    hlo_value hit = hlo_eq(b, hlo_iota(b, index->dtype, 2, one_hot, 0), hlo_broadcast_to(b, index, 2, one_hot));
    hlo_dot_dims d = {.n_contract = 1, .lhs_contract = {1}, .rhs_contract = {0}};
    /* The products are exact copies of the gradient only if the operands are not rounded. */
    hlo_precision before = hlo_get_precision(b);
    hlo_set_precision(b, HLO_PRECISION_HIGHEST);
    hlo_value sum = hlo_dot_general(b, hlo_convert(b, hit, grad->dtype), grad, &d, grad->dtype);
    hlo_set_precision(b, before);
    return sum;
}

static void lower_embedding_dense_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value grad = arg_tensor(l, 0), index = arg_tensor(l, 1);
    if (!grad || !index) return;
    int64_t rows = arg_int(l, 2), dims[2] = {hlo_element_count(index), grad->rank ? grad->dims[grad->rank - 1] : 1};
    index = index_normalize(b, flatten(b, index), rows);
    grad = hlo_reshape(b, grad, 2, dims);
    if (arg_bool(l, 4)) grad = scale_rows(b, grad, frequencies(b, index, rows, grad->dtype), hlo_divide);
    result_set(l, 0, add_rows(b, drop_padding(b, index, arg_int_or(l, 3, -1), rows), grad, rows));
}

/* Rows that `indices` names and whose norm is above max_norm are scaled to it (by max_norm / (norm + 1e-7), as PyTorch
 * does). */
static void lower_embedding_renorm(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value table = arg_tensor(l, 0), index = arg_tensor(l, 1), norm;
    if (!table || !index || table->rank != 2) return;
    int64_t rows = table->dims[0], width = 1, count = hlo_element_count(index);
    double p = arg_float(l, 3);
    hlo_value size = hlo_abs(b, table);
    if (p == 1)
        norm = hlo_reduce(b, HLO_REDUCE_ADD, size, 1, &width);
    else if (p == 2)
        norm = hlo_sqrt(b, hlo_reduce(b, HLO_REDUCE_ADD, hlo_multiply(b, table, table), 1, &width));
    else if (p > 1e308)
        norm = hlo_reduce(b, HLO_REDUCE_MAXIMUM, size, 1, &width);
    else {
        hlo_value powers = hlo_reduce(b, HLO_REDUCE_ADD, hlo_power(b, size, hlo_scalar(b, size->dtype, p)), 1, &width);
        norm = hlo_power(b, powers, hlo_scalar(b, size->dtype, 1 / p));
    }
    hlo_value limit = arg_number(l, 2, table->dtype);
    hlo_value scale = hlo_divide(b, limit, hlo_add(b, norm, hlo_scalar(b, table->dtype, 1e-7)));
    index = index_normalize(b, flatten(b, index), rows);
    hlo_value named = index_put_slices(b, index_zeros(b, DTYPE_BOOL, 1, &rows), 0, index,
                                       hlo_constant_int(b, DTYPE_BOOL, 1, &count, 1), INDEX_SET);
    scale = hlo_select(b, hlo_and(b, named, hlo_gt(b, norm, limit)), scale, hlo_scalar(b, table->dtype, 1));
    result_set(l, 0, scale_rows(b, table, scale, hlo_multiply));
}

/* ---- embedding_bag ---- */

enum { BAG_SUM, BAG_MEAN, BAG_MAX };

/* Which bag each of n indices belongs to: the number of offsets that are not above its position, less one. */
static hlo_value bag_of_index(hlo_builder *b, hlo_value offsets, int64_t n, int64_t bags) {
    if (!offsets) return NULL;
    offsets = hlo_slice_dim(b, offsets, 0, 0, bags, 1);
    int64_t dims[2] = {n, bags}, second = 1;
    hlo_value position = hlo_iota(b, offsets ? offsets->dtype : DTYPE_I64, 2, dims, 0);
    hlo_value started = hlo_convert(b, hlo_ge(b, position, hlo_broadcast_to(b, offsets, 2, dims)), DTYPE_I32);
    hlo_value count = hlo_reduce(b, HLO_REDUCE_ADD, started, 1, &second);
    return count ? hlo_subtract(b, count, hlo_like(b, count, 1)) : NULL;
}

typedef struct {
    hlo_value table, index, bag, used;
    int64_t rows, width, n, bags;
} bags;

/* The largest value of each bag and the index it came from; an empty bag gives 0 and index 0. */
static void bag_maximum(lowering *l, const bags *e, hlo_value values, hlo_value sizes) {
    hlo_builder *b = lower_builder(l);
    int64_t dims[2] = {e->bags, e->width}, wide[2] = {e->n, e->width}, map = 0;
    hlo_value low = hlo_min_value(b, values ? values->dtype : DTYPE_F32);
    hlo_value target = hlo_select(b, e->used, e->bag, hlo_like(b, e->bag, (double)e->bags));
    hlo_value best = index_put_slices(b, hlo_broadcast_to(b, low, 2, dims), 0, target, values, INDEX_MAXIMUM);
    hlo_value empty = hlo_broadcast_in_dim(b, hlo_eq(b, sizes, hlo_like(b, sizes, 0)), 2, dims, &map);
    result_set(l, 0, hlo_select(b, empty, hlo_scalar(b, low ? low->dtype : DTYPE_F32, 0), best));
    if (!result_wanted(l, 3)) return;
    /* The first element of a bag that equals its maximum: the least position among them. */
    hlo_value equal = hlo_eq(b, values, index_take(b, best, 0, e->bag));
    hlo_value position = hlo_iota(b, DTYPE_I32, 2, wide, 0), far = hlo_constant_int(b, DTYPE_I32, 0, NULL, e->n);
    position = hlo_select(b, equal, position, far);
    hlo_value first = index_put_slices(b, hlo_broadcast_to(b, far, 2, dims), 0, target, position, INDEX_MINIMUM);
    hlo_value chosen = index_take(b, hlo_convert(b, e->index, DTYPE_I64), 0, first);
    result_set(l, 3, hlo_select(b, empty, hlo_constant_int(b, DTYPE_I64, 0, NULL, 0), chosen));
}

/* The first bag begins at 0, none beyond the end or before the one in front of it. */
static void check_offsets(lowering *l, hlo_value offsets, int64_t n) {
    hlo_builder *b = lower_builder(l);
    int64_t count = offsets->dims[0];
    check_value(l, offsets, n + 1, NULL);
    if (count > 0) check_value(l, hlo_slice_dim(b, offsets, 0, 0, 1, 1), 1, NULL);
    if (count < 2) return;
    hlo_value later = hlo_slice_dim(b, offsets, 0, 1, count, 1);
    check_value(l, hlo_subtract(b, later, hlo_slice_dim(b, offsets, 0, 0, count - 1, 1)), INT32_MAX, NULL);
}

/* (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
 * -> (output, offset2bag, bag_size, max_indices) */
static void lower_embedding_bag(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value table = arg_tensor(l, 0), index = arg_tensor(l, 1), offsets = arg_tensor(l, 2);
    if (!table || !index || !offsets || table->rank != 2) return;
    int64_t mode = arg_int(l, 4), padding = arg_int_or(l, 8, -1), map = 0;
    bags e = {.table = table, .rows = table->dims[0], .width = table->dims[1], .n = hlo_element_count(index)};
    e.bags = offsets->dims[0] - (arg_bool(l, 7) ? 1 : 0);
    check_value(l, index, e.rows, NULL);
    check_offsets(l, offsets, e.n);
    e.index = index_normalize(b, flatten(b, index), e.rows);
    e.bag = bag_of_index(b, offsets, e.n, e.bags);
    if (padding < -1) padding += e.rows;
    e.used = hlo_ne(b, e.index, hlo_constant_int(b, e.index ? e.index->dtype : DTYPE_I32, 0, NULL, padding));
    hlo_value used = hlo_convert(b, e.used, DTYPE_I64);
    hlo_value sizes = index_put_slices(b, index_zeros(b, DTYPE_I64, 1, &e.bags), 0, e.bag, used, INDEX_ADD);
    hlo_value values = index_take(b, table, 0, e.index);
    if (!values || !sizes) return;
    if (result_wanted(l, 1)) result_set(l, 1, hlo_slice_dim(b, e.bag, 0, 0, result_dims(l, 1)[0], 1));
    if (result_wanted(l, 2)) {
        int64_t low = 0, high = result_dims(l, 2)[0] - e.bags;
        result_set(l, 2, hlo_pad(b, sizes, hlo_constant_int(b, DTYPE_I64, 0, NULL, 0), &low, &high, NULL));
    }
    if (mode == BAG_MAX) {
        bag_maximum(l, &e, values, sizes);
        return;
    }
    if (result_wanted(l, 3)) result_set(l, 3, index_zeros(b, DTYPE_I64, result_rank(l, 3), result_dims(l, 3)));
    if (arg_given(l, 6)) values = scale_rows(b, values, hlo_convert(b, arg_tensor(l, 6), table->dtype), hlo_multiply);
    if (!values) return;
    hlo_value keep = hlo_broadcast_in_dim(b, e.used, 2, values->dims, &map);
    values = hlo_select(b, keep, values, hlo_scalar(b, table->dtype, 0));
    hlo_value sum = add_rows(b, e.bag, values, e.bags);
    if (mode == BAG_MEAN) {
        hlo_value count = hlo_convert(b, hlo_maximum(b, sizes, hlo_like(b, sizes, 1)), table->dtype);
        sum = scale_rows(b, sum, count, hlo_divide);
    }
    result_set(l, 0, sum);
}

/* (grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, per_sample_weights,
 * padding_idx) */
static void lower_embedding_bag_dense_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value grad = arg_tensor(l, 0), index = arg_tensor(l, 1), bag = arg_tensor(l, 2), sizes = arg_tensor(l, 3);
    if (!grad || !index || !sizes || grad->rank != 2) return;
    int64_t rows = arg_int(l, 5), mode = arg_int(l, 7), count = grad->dims[0], dims[2] = {rows, grad->dims[1]}, map = 0;
    if (mode == BAG_MAX) {
        hlo_value best = index_normalize(b, arg_tensor(l, 4), rows);
        hlo_value empty = hlo_eq(b, sizes, hlo_like(b, sizes, 0));
        empty = hlo_broadcast_in_dim(b, hlo_slice_dim(b, empty, 0, 0, count, 1), 2, grad->dims, &map);
        best = hlo_select(b, empty, hlo_constant_int(b, best ? best->dtype : DTYPE_I32, 0, NULL, rows), best);
        result_set(l, 0, index_scatter(b, index_zeros(b, grad->dtype, 2, dims), 0, best, grad, INDEX_ADD));
        return;
    }
    bag = index_normalize(b, bag, count);
    index = index_normalize(b, flatten(b, index), rows);
    hlo_value g = index_take(b, grad, 0, bag);
    if (mode == BAG_MEAN) {
        hlo_value n = hlo_convert(b, index_take(b, sizes, 0, bag), grad->dtype);
        g = scale_rows(b, g, hlo_maximum(b, n, hlo_like(b, n, 1)), hlo_divide);
    }
    if (arg_given(l, 8)) g = scale_rows(b, g, hlo_convert(b, arg_tensor(l, 8), grad->dtype), hlo_multiply);
    if (arg_bool(l, 6)) g = scale_rows(b, g, frequencies(b, index, rows, grad->dtype), hlo_divide);
    result_set(l, 0, add_rows(b, drop_padding(b, index, arg_int_or(l, 9, -1), rows), g, rows));
}

/* (grad, weight, indices, offsets, offset2bag, mode, padding_idx): each weight's gradient is <its bag's gradient, its
 * row>. */
static void lower_embedding_bag_weights_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value grad = arg_tensor(l, 0), table = arg_tensor(l, 1), index = arg_tensor(l, 2);
    if (!grad || !table || !index) return;
    int64_t second = 1, padding = arg_int_or(l, 6, -1);
    index = index_normalize(b, flatten(b, index), table->dims[0]);
    hlo_value g = index_take(b, grad, 0, index_normalize(b, arg_tensor(l, 4), grad->dims[0]));
    hlo_value products = hlo_multiply(b, g, index_take(b, table, 0, index));
    hlo_value sum = products ? hlo_reduce(b, HLO_REDUCE_ADD, products, 1, &second) : NULL;
    if (sum && index && padding >= 0)
        sum = hlo_select(b, hlo_eq(b, index, hlo_like(b, index, (double)padding)), hlo_scalar(b, sum->dtype, 0), sum);
    result_set(l, 0, sum);
}

const op_row ops_embedding[] = {
    {"aten::embedding", PROMOTE_NONE, .lower = lower_embedding},
    {"aten::embedding_dense_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_embedding_dense_backward},
    {"aten::embedding_renorm", PROMOTE_NONE, OP_OPMATH, .lower = lower_embedding_renorm},
    {"aten::_embedding_bag", PROMOTE_NONE, OP_OPMATH, .lower = lower_embedding_bag},
    {"aten::_embedding_bag_forward_only", PROMOTE_NONE, OP_OPMATH, .lower = lower_embedding_bag},
    {"aten::_embedding_bag_dense_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_embedding_bag_dense_backward},
    {"aten::_embedding_bag_per_sample_weights_backward", PROMOTE_NONE, OP_OPMATH,
     .lower = lower_embedding_bag_weights_backward},
    {0},
};
