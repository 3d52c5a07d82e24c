/* The inverses of views: *_scatter (a tensor with a view's elements replaced) and the backward of views (zeros with a
 * view's elements set). */
#include <string.h>

#include "ops/indexing.h"
#include "ops/ops.h"

static int64_t clamp_to(int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; }

/* The start of a slice argument after PyTorch's wrapping and clamping; *length is the number of elements it has. */
static int64_t slice_range(int64_t n, int64_t start, int64_t end, int64_t step, int64_t *length) {
    start = clamp_to(start < 0 ? start + n : start, 0, n);
    end = clamp_to(end < 0 ? end + n : end, start, n);
    if (step < 1) step = 1;
    *length = (end - start + step - 1) / step;
    return start;
}

/* src in x's type, and in x's shape except that dim has `length` elements. */
static hlo_value fit(hlo_builder *b, hlo_value src, hlo_value x, int dim, int64_t length) {
    if (!src || !x) return NULL;
    int64_t dims[HLO_MAX_RANK];
    memcpy(dims, x->dims, sizeof(int64_t) * (size_t)x->rank);
    dims[dim] = length;
    return hlo_broadcast_to(b, hlo_convert(b, src, x->dtype), x->rank, dims);
}

static void lower_slice_scatter(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank == 0) return;
    int dim = (int)dim_wrap(arg_int_or(l, 2, 0), x->rank);
    int64_t length, step = arg_int_or(l, 5, 1);
    int64_t start = slice_range(x->dims[dim], arg_int_or(l, 3, 0), arg_int_or(l, 4, INT64_MAX), step, &length);
    result_set(l, 0, index_replace_strided(b, x, fit(b, arg_tensor(l, 1), x, dim, length), dim, start, step));
}

static void lower_select_scatter(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), src = arg_tensor(l, 1);
    if (!x || !src || x->rank == 0) return;
    int dim = (int)dim_wrap(arg_int(l, 2), x->rank);
    int64_t index = arg_int(l, 3);
    if (index < 0) index += x->dims[dim];
    if (src->rank == x->rank - 1) src = hlo_unsqueeze_dim(b, src, dim);
    result_set(l, 0, index_replace_strided(b, x, fit(b, src, x, dim, 1), dim, index, 1));
}

static void lower_slice_backward(lowering *l) {
    hlo_value grad = arg_tensor(l, 0);
    if (!grad || grad->rank == 0) return;
    int dim = (int)dim_wrap(arg_int(l, 2), grad->rank);
    int64_t n = result_dims(l, 0)[dim], length, step = arg_int(l, 5);
    int64_t start = slice_range(n, arg_int(l, 3), arg_int(l, 4), step, &length);
    hlo_builder *b = lower_builder(l);
    result_set(l, 0, index_spread(b, grad, hlo_scalar(b, grad->dtype, 0), dim, n, start, step));
}

static void lower_select_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value grad = arg_tensor(l, 0);
    if (!grad) return;
    int dim = (int)dim_wrap(arg_int(l, 2), grad->rank + 1);
    int64_t n = result_dims(l, 0)[dim], index = arg_int(l, 3);
    hlo_value slice = hlo_unsqueeze_dim(b, grad, dim);
    result_set(l, 0, index_spread(b, slice, hlo_scalar(b, grad->dtype, 0), dim, n, index < 0 ? index + n : index, 1));
}

/* diagonal [..., count] spread over a flattened matrix of rows x columns, with `fill` elsewhere: [..., rows, columns].
 */
static hlo_value spread_diagonal(hlo_builder *b, hlo_value diagonal, hlo_value fill, int64_t offset, int64_t rows,
                                 int64_t columns) {
    if (!diagonal || diagonal->rank == 0) return NULL;
    int last = diagonal->rank - 1;
    int64_t dims[HLO_MAX_RANK], start = offset >= 0 ? offset : -offset * columns;
    memcpy(dims, diagonal->dims, sizeof(int64_t) * (size_t)diagonal->rank);
    hlo_value flat = index_spread(b, diagonal, fill, last, rows * columns, start, columns + 1);
    dims[last] = rows;
    dims[last + 1] = columns;
    return hlo_reshape(b, flat, last + 2, dims);
}

/* Moves the last two dimensions of x to dim1 and dim2. */
static hlo_value matrix_dims_to(hlo_builder *b, hlo_value x, int dim1, int dim2) {
    if (!x) return NULL;
    int64_t permutation[HLO_MAX_RANK];
    for (int i = 0, next = 0; i < x->rank; i++)
        permutation[i] = i == dim1 ? x->rank - 2 : i == dim2 ? x->rank - 1 : next++;
    return hlo_transpose(b, x, permutation);
}

static void lower_diagonal_scatter(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), src = arg_tensor(l, 1);
    if (!x || !src || x->rank < 2) return;
    int dim1 = (int)dim_wrap(arg_int_or(l, 3, 0), x->rank), dim2 = (int)dim_wrap(arg_int_or(l, 4, 1), x->rank);
    int64_t offset = arg_int_or(l, 2, 0), rows = x->dims[dim1], columns = x->dims[dim2];
    hlo_value no = hlo_constant_int(b, DTYPE_BOOL, 0, NULL, 0);
    hlo_value marks = hlo_constant_int(b, DTYPE_BOOL, src->rank, src->dims, 1);
    marks = spread_diagonal(b, marks, no, offset, rows, columns);
    src = spread_diagonal(b, hlo_convert(b, src, x->dtype), hlo_scalar(b, x->dtype, 0), offset, rows, columns);
    result_set(l, 0, hlo_select(b, matrix_dims_to(b, marks, dim1, dim2), matrix_dims_to(b, src, dim1, dim2), x));
}

static void lower_diagonal_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value grad = arg_tensor(l, 0);
    if (!grad) return;
    int rank = result_rank(l, 0), dim1 = (int)dim_wrap(arg_int(l, 3), rank), dim2 = (int)dim_wrap(arg_int(l, 4), rank);
    const int64_t *dims = result_dims(l, 0);
    hlo_value y = spread_diagonal(b, grad, hlo_scalar(b, grad->dtype, 0), arg_int(l, 2), dims[dim1], dims[dim2]);
    result_set(l, 0, matrix_dims_to(b, y, dim1, dim2));
}

static void lower_diag_embed(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    int rank = result_rank(l, 0), dim1 = (int)dim_wrap(arg_int_or(l, 2, -2), rank),
        dim2 = (int)dim_wrap(arg_int_or(l, 3, -1), rank);
    int64_t side = result_dims(l, 0)[dim1];
    hlo_value y = spread_diagonal(b, x, hlo_scalar(b, x->dtype, 0), arg_int_or(l, 1, 0), side, side);
    result_set(l, 0, matrix_dims_to(b, y, dim1, dim2));
}

/* Windows may overlap, so their gradients are added up. */
static void lower_unfold_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value grad = arg_tensor(l, 0);
    if (!grad) return;
    int rank = result_rank(l, 0);
    if (rank == 0) {
        result_set(l, 0, hlo_reshape(b, grad, 0, NULL));
        return;
    }
    int dim = (int)dim_wrap(arg_int(l, 2), rank);
    int64_t dims[2] = {grad->dims[dim], arg_int(l, 3)}, permutation[HLO_MAX_RANK];
    hlo_value window = index_iota(b, 2, dims, 0), element = index_iota(b, 2, dims, 1);
    hlo_value index = hlo_add(b, hlo_multiply(b, window, hlo_like(b, window, (double)arg_int(l, 4))), element);
    for (int i = 0; i <= rank; i++) permutation[i] = i <= dim ? i : i == dim + 1 ? rank : i - 1;
    hlo_value zero = index_zeros(b, grad->dtype, rank, result_dims(l, 0));
    result_set(l, 0, index_put_slices(b, zero, dim, index, hlo_transpose(b, grad, permutation), INDEX_ADD));
}

static void lower_as_strided_scatter(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    const int64_t *sizes, *strides;
    geometry g = {.dtype = x->dtype};
    g.rank = arg_ints(l, 2, &sizes);
    if (arg_ints(l, 3, &strides) != g.rank || g.rank > VIEW_MAX_RANK) {
        hlo_fail(lower_builder(l), STATUS_RUNTIME, "as_strided_scatter: sizes and strides differ in length");
        return;
    }
    memcpy(g.sizes, sizes, sizeof(int64_t) * (size_t)g.rank);
    memcpy(g.strides, strides, sizeof(int64_t) * (size_t)g.rank);
    g.offset = arg_int_or(l, 4, 0);
    hlo_value y = view_write(lower_builder(l), x, &g, arg_tensor(l, 1), NULL);
    result_set(l, 0, hlo_reshape(lower_builder(l), y, x->rank, x->dims));
}

/* The sum of a matrix' diagonal, and its gradient: the gradient on the diagonal. */
static void lower_trace(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank != 2) return;
    int64_t count = x->dims[0] < x->dims[1] ? x->dims[0] : x->dims[1], flat = x->dims[0] * x->dims[1], all = 0;
    if (count == 0) {
        result_set(l, 0, hlo_scalar(b, result_dtype(l, 0), 0));
        return;
    }
    int64_t step = x->dims[1] + 1;
    hlo_value y = hlo_slice_dim(b, hlo_reshape(b, x, 1, &flat), 0, 0, (count - 1) * step + 1, step);
    dtype t = dtype_opmath(result_dtype(l, 0));
    result_set(l, 0, hlo_reduce(b, HLO_REDUCE_ADD, hlo_convert(b, y, t), 1, &all));
}

const op_row ops_shape_scatter[] = {
    {"aten::slice_scatter", PROMOTE_NONE, .lower = lower_slice_scatter},
    {"aten::select_scatter", PROMOTE_NONE, .lower = lower_select_scatter},
    {"aten::diagonal_scatter", PROMOTE_NONE, .lower = lower_diagonal_scatter},
    {"aten::as_strided_scatter", PROMOTE_NONE, .lower = lower_as_strided_scatter},
    {"prims::as_strided_scatter", PROMOTE_NONE, .lower = lower_as_strided_scatter},
    {"aten::slice_backward", PROMOTE_NONE, .lower = lower_slice_backward},
    {"aten::select_backward", PROMOTE_NONE, .lower = lower_select_backward},
    {"aten::diagonal_backward", PROMOTE_NONE, .lower = lower_diagonal_backward},
    {"aten::unfold_backward", PROMOTE_NONE, .lower = lower_unfold_backward},
    {"aten::diag_embed", PROMOTE_NONE, .lower = lower_diag_embed},
    {"aten::trace", PROMOTE_NONE, .lower = lower_trace},
    {0},
};
