/* LU factorisation with partial pivoting, and what is solved with it: systems, inverses, determinants. */
#include "ops/indexing.h"
#include "ops/linalg.h"
#include "ops/loop.h"
#include "ops/matmul.h"
#include "ops/reduction.h"

static hlo_value i32(hlo_builder *b, int64_t v) { return hlo_constant_int(b, DTYPE_I32, 0, NULL, v); }

/* L below the diagonal, U on and above; pivots [B, k], counted from 1, as LAPACK's getrf; info [B]: 0, or the number of
 * the first pivot that is zero. */
typedef struct {
    hlo_value lu, pivots, info;
} lu_factors;

/* How large an element counts: LAPACK takes |re| + |im| for complex numbers. */
static hlo_value pivot_size(hlo_builder *b, hlo_value x) {
    if (!x || !dtype_is_complex(x->dtype)) return hlo_abs(b, x);
    return hlo_add(b, hlo_abs(b, hlo_real(b, x)), hlo_abs(b, hlo_imag(b, x)));
}

/* Row of the largest element of `column` at or below row k, [B, 1, 1]. */
static hlo_value find_pivot(hlo_builder *b, hlo_value column, hlo_value row, hlo_value k) {
    hlo_value size = pivot_size(b, column), best[2];
    size = hlo_select(b, hlo_ge(b, row, k), size, hlo_like(b, size, -1));
    reduce_first(b, size, 1, true, best);
    return hlo_unsqueeze_dim(b, best[1], 1);
}

/* state: matrix, pivots, info. One step of right-looking elimination. */
static void eliminate(hlo_builder *b, const void *context, hlo_value k, hlo_value *state) {
    bool pivoting = *(const bool *)context;
    hlo_value a = state[0], row = matrix_rows(b, a), column_number = matrix_columns(b, a);
    if (!a) return;
    hlo_value p = pivoting ? find_pivot(b, matrix_column(b, a, k), row, k)
                           : hlo_broadcast_to(b, k, 3, (int64_t[]){a->dims[0], 1, 1});
    hlo_value here = hlo_eq(b, row, k), there = hlo_eq(b, row, p);
    hlo_value old_row = matrix_row(b, a, k), pivot_row = matrix_pick(b, there, a, 1);
    a = hlo_select(b, here, pivot_row, hlo_select(b, there, old_row, a));
    hlo_value pivot = matrix_column(b, pivot_row, k), zero = hlo_scalar(b, a ? a->dtype : DTYPE_F32, 0);
    hlo_value singular = hlo_eq(b, pivot, zero), below = hlo_gt(b, row, k);
    hlo_value factor = hlo_divide(b, matrix_column(b, a, k), hlo_select(b, singular, hlo_like(b, pivot, 1), pivot));
    factor = hlo_select(b, below, factor, zero);
    hlo_value right = hlo_select(b, hlo_gt(b, column_number, k), pivot_row, zero);
    hlo_value next = hlo_subtract(b, a, hlo_multiply(b, factor, right));
    state[0] = hlo_select(b, hlo_and(b, below, hlo_eq(b, column_number, k)), factor, next);
    hlo_value start[2] = {i32(b, 0), k}, number = hlo_add(b, k, i32(b, 1));
    state[1] = hlo_dynamic_update_slice(b, state[1], hlo_add(b, hlo_squeeze_dim(b, p, 2), i32(b, 1)), start);
    hlo_value first = hlo_and(b, hlo_squeeze_dim(b, singular, 2), hlo_eq(b, state[2], i32(b, 0)));
    state[2] = hlo_select(b, first, number, state[2]);
}

static lu_factors factor(hlo_builder *b, hlo_value a, bool pivoting) {
    lu_factors f = {0};
    if (!a) return f;
    int64_t k = a->dims[1] < a->dims[2] ? a->dims[1] : a->dims[2], batch = a->dims[0];
    hlo_value state[3] = {a, index_zeros(b, DTYPE_I32, 2, (int64_t[]){batch, k}),
                          index_zeros(b, DTYPE_I32, 2, (int64_t[]){batch, 1})};
    if (hlo_element_count(a) > 0) loop_steps(b, i32(b, k), 3, state, eliminate, &pivoting);
    f = (lu_factors){state[0], state[1], hlo_reshape(b, state[2], 1, &batch)};
    return f;
}

/* state: permutation [B, m]; context: pivots. Undoes the swaps into row numbers. */
static void swap_rows(hlo_builder *b, const void *context, hlo_value k, hlo_value *state) {
    hlo_value pivots = *(const hlo_value *)context, order = state[0], start[2] = {i32(b, 0), k};
    if (!order) return;
    int64_t batch = order->dims[0], dims[2] = {1, order->dims[1]};
    hlo_value position = hlo_iota(b, DTYPE_I32, 2, dims, 1);
    hlo_value p = hlo_subtract(b, hlo_dynamic_slice(b, pivots, start, (int64_t[]){batch, 1}), i32(b, 1));
    hlo_value there = hlo_eq(b, position, p), at_k = hlo_dynamic_slice(b, order, start, (int64_t[]){batch, 1});
    hlo_value at_p = matrix_pick(b, there, order, 1);
    state[0] = hlo_select(b, hlo_eq(b, position, k), at_p, hlo_select(b, there, at_k, order));
}

/* [B, m]: row i of L U is row order[i] of the matrix. */
static hlo_value row_order(hlo_builder *b, hlo_value pivots, int64_t m) {
    pivots = hlo_convert(b, pivots, DTYPE_I32);
    if (!pivots) return NULL;
    hlo_value order = hlo_iota(b, DTYPE_I32, 2, (int64_t[]){pivots->dims[0], m}, 1);
    if (hlo_element_count(order) > 0) loop_steps(b, i32(b, pivots->dims[1]), 1, &order, swap_rows, &pivots);
    return order;
}

/* Rows of x [B, n, r] taken in this order, or put back from it. */
static hlo_value permute_rows(hlo_builder *b, hlo_value x, hlo_value order, bool back) {
    if (!x || !order || hlo_element_count(x) == 0) return x;
    hlo_value index = hlo_broadcast_to(b, hlo_unsqueeze_dim(b, order, 2), 3, x->dims);
    if (!back) return index_gather(b, x, 1, index);
    return index_scatter(b, index_zeros(b, x->dtype, 3, x->dims), 1, index, x, INDEX_SET);
}

/* y with A y = x, or A^H y = x, for A = P L U; all [B, n, .]. */
static hlo_value solve(hlo_builder *b, const lu_factors *f, hlo_value x, bool adjoint) {
    if (!x || !f->lu || hlo_element_count(x) == 0) return x;
    hlo_value order = row_order(b, f->pivots, f->lu->dims[1]);
    if (!adjoint) {
        x = hlo_triangular_solve(b, f->lu, permute_rows(b, x, order, false), true, true, true, 0);
        return hlo_triangular_solve(b, f->lu, x, true, false, false, 0);
    }
    x = hlo_triangular_solve(b, f->lu, x, true, false, false, 2);
    return permute_rows(b, hlo_triangular_solve(b, f->lu, x, true, true, true, 2), order, true);
}

/* X A = B is A^H X^H = B^H. */
static hlo_value solve_side(hlo_builder *b, const lu_factors *f, hlo_value x, bool left, bool adjoint) {
    if (left) return solve(b, f, x, adjoint);
    return matrix_adjoint(b, solve(b, f, matrix_adjoint(b, x), !adjoint));
}

/* ---- operators ---- */

static void lower_lu_factor(lowering *l) {
    hlo_builder *b = lower_builder(l);
    lu_factors f = factor(b, matrix_batch(b, arg_tensor(l, 0)), !arg_given(l, 1) || arg_bool(l, 1));
    set_reshaped(l, 0, f.lu);
    set_reshaped(l, 1, f.pivots);
    set_reshaped(l, 2, f.info);
}

/* L and U as results k and k + 1. */
static void set_triangles(lowering *l, hlo_value lu, int k) {
    hlo_builder *b = lower_builder(l);
    if (!lu) return;
    int64_t m = lu->dims[1], n = lu->dims[2], least = m < n ? m : n;
    hlo_value left = hlo_slice_dim(b, lu, 2, 0, least, 1);
    hlo_value on = hlo_eq(b, matrix_columns(b, left), matrix_rows(b, left));
    left = hlo_select(b, on, hlo_scalar(b, lu->dtype, 1), matrix_triangle(b, left, true));
    set_reshaped(l, k, left);
    set_reshaped(l, k + 1, matrix_triangle(b, hlo_slice_dim(b, lu, 1, 0, least, 1), false));
}

/* P with A = P L U: column i has its one in row order[i]. */
static void set_permutation(lowering *l, int k, hlo_value order) {
    hlo_builder *b = lower_builder(l);
    if (!order || !result_wanted(l, k)) return;
    int64_t dims[3] = {order->dims[0], order->dims[1], order->dims[1]};
    set_reshaped(
        l, k, hlo_convert(b, hlo_eq(b, hlo_unsqueeze_dim(b, order, 1), index_iota(b, 3, dims, 1)), result_dtype(l, k)));
}

static void set_empty(lowering *l, int k) {
    if (result_wanted(l, k))
        result_set(l, k, index_zeros(lower_builder(l), result_dtype(l, k), result_rank(l, k), result_dims(l, k)));
}

/* (A, pivot) -> P, L, U */
static void lower_lu(lowering *l) {
    hlo_builder *b = lower_builder(l);
    bool pivoting = !arg_given(l, 1) || arg_bool(l, 1);
    lu_factors f = factor(b, matrix_batch(b, arg_tensor(l, 0)), pivoting);
    set_triangles(l, f.lu, 1);
    if (pivoting && f.lu)
        set_permutation(l, 0, row_order(b, f.pivots, f.lu->dims[1]));
    else
        set_empty(l, 0);
}

static hlo_value pivot_batch(hlo_builder *b, hlo_value pivots) {
    if (!pivots || pivots->rank == 0) return NULL;
    int64_t k = pivots->dims[pivots->rank - 1], batch = 1;
    for (int i = 0; i + 1 < pivots->rank; i++) batch *= pivots->dims[i];
    return hlo_reshape(b, hlo_convert(b, pivots, DTYPE_I32), 2, (int64_t[]){batch, k});
}

/* (LU_data, LU_pivots, unpack_data, unpack_pivots) -> P, L, U */
static void lower_lu_unpack(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value lu = matrix_batch(b, arg_tensor(l, 0));
    if (!lu) return;
    if (!arg_given(l, 2) || arg_bool(l, 2)) {
        set_triangles(l, lu, 1);
    } else {
        set_empty(l, 1);
        set_empty(l, 2);
    }
    if (!arg_given(l, 3) || arg_bool(l, 3))
        set_permutation(l, 0, row_order(b, pivot_batch(b, arg_tensor(l, 1)), lu->dims[1]));
    else
        set_empty(l, 0);
}

/* (LU, pivots, B, left, adjoint), batches broadcast. */
static void lower_lu_solve(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value lu = arg_tensor(l, 0), pivots = arg_tensor(l, 1), x = arg_tensor(l, 2);
    if (!lu || !pivots || !x) return;
    pivots = hlo_unsqueeze_dim(b, pivots, pivots->rank);
    lu_factors f = {.lu = matrix_batch(b, matrix_expand_batch(b, lu, x))};
    hlo_value wide = matrix_batch(b, matrix_expand_batch(b, pivots, x));
    f.pivots = wide ? hlo_reshape(b, wide, 2, wide->dims) : NULL;
    x = matrix_batch(b, matrix_expand_batch(b, x, lu));
    set_reshaped(l, 0, solve_side(b, &f, x, !arg_given(l, 3) || arg_bool(l, 3), arg_bool(l, 4)));
}

/* (A, B, left, check_errors) -> result, LU, pivots, info. B may be a vector, or a batch of them in A's shape. */
static void lower_solve(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value a = arg_tensor(l, 0), x = arg_tensor(l, 1);
    if (!a || !x) return;
    lu_factors f = factor(b, matrix_batch(b, a), true), wide = {0};
    set_reshaped(l, 1, f.lu);
    set_reshaped(l, 2, f.pivots);
    set_reshaped(l, 3, f.info);
    bool vector = x->rank == 1;
    if (x->rank == a->rank - 1) {
        vector = true;
        for (int i = 0; i < x->rank; i++) vector = vector && x->dims[i] == a->dims[i];
    }
    if (vector) x = hlo_unsqueeze_dim(b, x, x->rank);
    hlo_value lu = hlo_reshape(b, f.lu, a->rank, a->dims);
    hlo_value pivots = hlo_reshape(b, f.pivots, a->rank - 1, a->dims);
    pivots = pivots ? hlo_unsqueeze_dim(b, pivots, pivots->rank) : NULL;
    wide.lu = matrix_batch(b, matrix_expand_batch(b, lu, x));
    hlo_value p = matrix_batch(b, matrix_expand_batch(b, pivots, x));
    wide.pivots = p ? hlo_reshape(b, p, 2, p->dims) : NULL;
    x = matrix_batch(b, matrix_expand_batch(b, x, lu));
    set_reshaped(l, 0, solve_side(b, &wide, x, !arg_given(l, 2) || arg_bool(l, 2), false));
}

/* (A, check_errors) -> inverse, info */
static void lower_inverse(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value a = matrix_batch(b, arg_tensor(l, 0));
    if (!a) return;
    lu_factors f = factor(b, a, true);
    set_reshaped(l, 0, solve(b, &f, matrix_identity(b, a->dtype, a->dims[0], a->dims[1], a->dims[2]), false));
    set_reshaped(l, 1, f.info);
}

/* For a determinant PyTorch factors the transpose of a contiguous real matrix, and its formulas for gradients count on
 * it (BatchLinearAlgebra.cpp and FunctionsManual.cpp: use_A_T). */
static hlo_value matrix_to_factor(lowering *l) {
    hlo_value a = matrix_batch(lower_builder(l), arg_tensor(l, 0));
    bool transpose = arg_is_contiguous(l, 0) && !dtype_is_complex(arg_tensor_dtype(l, 0));
    return transpose ? matrix_transpose(lower_builder(l), a) : a;
}

/* -1 where the number of swaps is odd, else 1: [B]. */
static hlo_value swap_sign(hlo_builder *b, hlo_value pivots, dtype t) {
    if (!pivots) return NULL;
    hlo_value own = hlo_add(b, hlo_iota(b, DTYPE_I32, 2, pivots->dims, 1), i32(b, 1));
    dim_set d = dims_range(1, 2);
    hlo_value swapped = hlo_convert(b, hlo_ne(b, pivots, own), DTYPE_I32);
    hlo_value odd = hlo_and(b, reduce_drop(b, HLO_REDUCE_ADD, swapped, &d), i32(b, 1));
    return hlo_select(b, hlo_eq(b, odd, i32(b, 1)), hlo_scalar(b, t, -1), hlo_scalar(b, t, 1));
}

/* A -> result, LU, pivots */
static void lower_det(lowering *l) {
    hlo_builder *b = lower_builder(l);
    lu_factors f = factor(b, matrix_to_factor(l), true);
    if (!f.lu) return;
    dim_set d = dims_range(1, 2);
    hlo_value product = reduce_drop(b, HLO_REDUCE_MULTIPLY, matrix_diagonal(b, f.lu), &d);
    set_reshaped(l, 0, hlo_multiply(b, product, swap_sign(b, f.pivots, f.lu->dtype)));
    set_reshaped(l, 1, f.lu);
    set_reshaped(l, 2, f.pivots);
}

/* A -> sign, log |det|, LU, pivots */
static void lower_slogdet(lowering *l) {
    hlo_builder *b = lower_builder(l);
    lu_factors f = factor(b, matrix_to_factor(l), true);
    if (!f.lu) return;
    dim_set d = dims_range(1, 2);
    hlo_value diagonal = matrix_diagonal(b, f.lu);
    hlo_value sign = reduce_drop(b, HLO_REDUCE_MULTIPLY, hlo_sign(b, diagonal), &d);
    set_reshaped(l, 0, hlo_multiply(b, sign, swap_sign(b, f.pivots, f.lu->dtype)));
    set_reshaped(l, 1, reduce_drop(b, HLO_REDUCE_ADD, hlo_log(b, hlo_abs(b, diagonal)), &d));
    set_reshaped(l, 2, f.lu);
    set_reshaped(l, 3, f.pivots);
}

const op_row ops_lu[] = {
    {"aten::linalg_lu_factor_ex", PROMOTE_NONE, .lower = lower_lu_factor},
    {"aten::linalg_lu", PROMOTE_NONE, .lower = lower_lu},
    {"aten::lu_unpack", PROMOTE_NONE, .lower = lower_lu_unpack},
    {"aten::linalg_lu_solve", PROMOTE_NONE, .lower = lower_lu_solve},
    {"aten::_linalg_solve_ex", PROMOTE_NONE, .lower = lower_solve},
    {"aten::linalg_inv_ex", PROMOTE_NONE, .lower = lower_inverse},
    {"aten::_linalg_det", PROMOTE_NONE, .lower = lower_det},
    {"aten::_linalg_slogdet", PROMOTE_NONE, .lower = lower_slogdet},
    {0},
};
