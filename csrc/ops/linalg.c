/* Linear algebra: triangular systems, Cholesky, cross product, matrix exponential; and the helpers of its other files.
 */
#include "ops/linalg.h"

#include <math.h>
#include <string.h>

#include "ops/indexing.h"
#include "ops/loop.h"
#include "ops/matmul.h"
#include "ops/reduction.h"

hlo_value matrix_batch(hlo_builder *b, hlo_value x) {
    if (!x || x->rank < 2) return x ? hlo_fail(b, STATUS_RUNTIME, "expected a matrix or a batch of matrices") : NULL;
    int64_t batch = 1;
    for (int i = 0; i < x->rank - 2; i++) batch *= x->dims[i];
    return hlo_reshape(b, x, 3, (int64_t[]){batch, x->dims[x->rank - 2], x->dims[x->rank - 1]});
}

hlo_value matrix_rows(hlo_builder *b, hlo_value x) {
    return x ? hlo_iota(b, DTYPE_I32, 3, (int64_t[]){1, x->dims[1], 1}, 1) : NULL;
}

hlo_value matrix_columns(hlo_builder *b, hlo_value x) {
    return x ? hlo_iota(b, DTYPE_I32, 3, (int64_t[]){1, 1, x->dims[2]}, 2) : NULL;
}

hlo_value matrix_identity(hlo_builder *b, dtype t, int64_t batch, int64_t m, int64_t n) {
    int64_t dims[3] = {batch, m, n};
    return hlo_convert(b, hlo_eq(b, index_iota(b, 3, dims, 1), index_iota(b, 3, dims, 2)), t);
}

hlo_value matrix_triangle(hlo_builder *b, hlo_value x, bool lower) {
    if (!x) return NULL;
    hlo_value keep = hlo_compare(b, lower ? HLO_LE : HLO_GE, matrix_columns(b, x), matrix_rows(b, x));
    return hlo_select(b, keep, x, hlo_scalar(b, x->dtype, 0));
}

hlo_value matrix_pick(hlo_builder *b, hlo_value mask, hlo_value x, int dim) {
    if (!x) return NULL;
    dim_set d = dims_range(dim, dim + 1);
    return reduce_keep(b, HLO_REDUCE_ADD, hlo_select(b, mask, x, hlo_scalar(b, x->dtype, 0)), &d);
}

hlo_value matrix_diagonal(hlo_builder *b, hlo_value x) {
    if (!x) return NULL;
    int64_t k = x->dims[1] < x->dims[2] ? x->dims[1] : x->dims[2];
    hlo_value on = hlo_eq(b, matrix_columns(b, x), matrix_rows(b, x));
    hlo_value column = hlo_slice_dim(b, matrix_pick(b, on, x, 2), 1, 0, k, 1);
    return hlo_reshape(b, column, 2, (int64_t[]){x->dims[0], k});
}

hlo_value matrix_column(hlo_builder *b, hlo_value x, hlo_value k) {
    hlo_value zero = hlo_constant_int(b, DTYPE_I32, 0, NULL, 0), start[3] = {zero, zero, k};
    return x && k ? hlo_dynamic_slice(b, x, start, (int64_t[]){x->dims[0], x->dims[1], 1}) : NULL;
}

hlo_value matrix_row(hlo_builder *b, hlo_value x, hlo_value k) {
    hlo_value zero = hlo_constant_int(b, DTYPE_I32, 0, NULL, 0), start[3] = {zero, k, zero};
    return x && k ? hlo_dynamic_slice(b, x, start, (int64_t[]){x->dims[0], 1, x->dims[2]}) : NULL;
}

hlo_value matrix_product_exact(hlo_builder *b, hlo_value x, hlo_value y) {
    hlo_precision before = hlo_get_precision(b);
    hlo_set_precision(b, HLO_PRECISION_HIGHEST);
    hlo_value product = matrix_product(b, x, y);
    hlo_set_precision(b, before);
    return product;
}

hlo_value conjugate(hlo_builder *b, hlo_value x) { return x && dtype_is_complex(x->dtype) ? hlo_conj(b, x) : x; }
hlo_value real_part(hlo_builder *b, hlo_value x) { return x && dtype_is_complex(x->dtype) ? hlo_real(b, x) : x; }

hlo_value square_size(hlo_builder *b, hlo_value x) {
    if (!x || !dtype_is_complex(x->dtype)) return hlo_multiply(b, x, x);
    hlo_value re = hlo_real(b, x), im = hlo_imag(b, x);
    return hlo_add(b, hlo_multiply(b, re, re), hlo_multiply(b, im, im));
}

hlo_value matrix_expand_batch(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!x || !y) return NULL;
    int rank = x->rank > y->rank ? x->rank : y->rank;
    int64_t dims[HLO_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        int xi = i - (rank - x->rank), yi = i - (rank - y->rank);
        int64_t size = xi >= 0 ? x->dims[xi] : 1;
        dims[i] = i < rank - 2 && yi >= 0 && size == 1 ? y->dims[yi] : size;
    }
    return hlo_broadcast_to(b, x, rank, dims);
}

/* ---- triangular systems ---- */

static hlo_value solve_triangle(hlo_builder *b, hlo_value a, hlo_value x, bool left, bool lower, bool unit,
                                int transpose) {
    hlo_value wide_a = matrix_expand_batch(b, a, x), wide_x = matrix_expand_batch(b, x, a);
    if (!wide_a || !wide_x || hlo_element_count(wide_x) == 0) return wide_x;
    return hlo_triangular_solve(b, wide_a, wide_x, left, lower, unit, transpose);
}

/* (A, B, upper, left, unitriangular) */
static void lower_solve_triangular(lowering *l) {
    bool left = !arg_given(l, 3) || arg_bool(l, 3);
    result_set(
        l, 0,
        solve_triangle(lower_builder(l), arg_tensor(l, 0), arg_tensor(l, 1), left, !arg_bool(l, 2), arg_bool(l, 4), 0));
}

/* (self, A, upper, transpose, unitriangular) -> solution, A */
static void lower_triangular_solve(lowering *l) {
    hlo_value x = arg_tensor(l, 0), a = arg_tensor(l, 1);
    bool upper = !arg_given(l, 2) || arg_bool(l, 2);
    result_set(l, 0, solve_triangle(lower_builder(l), a, x, true, !upper, arg_bool(l, 4), arg_bool(l, 3) ? 1 : 0));
    result_set(l, 1, matrix_expand_batch(lower_builder(l), a, x));
}

/* ---- Cholesky ---- */

/* One column of the factorisation without its results: only where the first non-positive pivot stands. state: a, info.
 */
static void find_bad_pivot(hlo_builder *b, const void *context, hlo_value k, hlo_value *state) {
    (void)context;
    hlo_value a = state[0], one = hlo_constant_int(b, DTYPE_I32, 0, NULL, 1);
    hlo_value column = matrix_column(b, a, k), here = hlo_eq(b, matrix_rows(b, a), k);
    hlo_value pivot = real_part(b, matrix_pick(b, here, column, 1));
    hlo_value bad = hlo_not(b, hlo_gt(b, pivot, hlo_like(b, pivot, 0)));
    hlo_value none_yet = hlo_eq(b, state[1], hlo_like(b, state[1], 0));
    state[1] = hlo_select(b, hlo_and(b, none_yet, bad), hlo_add(b, k, one), state[1]);
    hlo_value product = hlo_multiply(b, column, matrix_adjoint(b, column));
    state[0] = hlo_subtract(b, a, hlo_divide(b, product, hlo_convert(b, pivot, a ? a->dtype : DTYPE_F32)));
}

/* LAPACK's info [B]: 0, or the order of the first leading minor that is not positive. Looked for only if the
 * factorisation failed. */
static hlo_value cholesky_info(hlo_builder *b, hlo_value a, hlo_value factor) {
    if (!a || !factor) return NULL;
    int64_t batch[1] = {a->dims[0]}, column[3] = {a->dims[0], 1, 1};
    hlo_value fine = index_zeros(b, DTYPE_I32, 3, column);
    if (hlo_element_count(a) == 0) return index_zeros(b, DTYPE_I32, 1, batch);
    dim_set all = dims_all(factor);
    hlo_value good = hlo_eq(b, factor, factor);
    good = reduce_drop(b, HLO_REDUCE_AND, good, &all);
    hlo_region *branches[2];
    hlo_region_begin(b, 0, NULL, NULL);
    hlo_value state[2] = {a, fine};
    loop_steps(b, hlo_constant_int(b, DTYPE_I32, 0, NULL, a->dims[1]), 2, state, find_bad_pivot, NULL);
    branches[0] = hlo_region_end(b, 1, &state[1]);
    hlo_region_begin(b, 0, NULL, NULL);
    branches[1] = hlo_region_end(b, 1, &fine);
    hlo_value info = NULL;
    hlo_case(b, hlo_convert(b, good, DTYPE_I32), 2, branches, 1, &info);
    return hlo_reshape(b, info, 1, batch);
}

/* (A, upper, check_errors) -> L, info. The lower triangle is read, with `upper` the upper one. */
static void lower_cholesky_ex(lowering *l) {
    hlo_builder *b = lower_builder(l);
    bool upper = arg_bool(l, 1);
    hlo_value a = matrix_batch(b, arg_tensor(l, 0));
    if (upper) a = matrix_adjoint(b, a);
    if (!a) return;
    hlo_value factor = hlo_element_count(a) ? matrix_triangle(b, hlo_cholesky(b, a, true), true) : a;
    set_reshaped(l, 1, cholesky_info(b, a, factor));
    set_reshaped(l, 0, upper ? matrix_adjoint(b, factor) : factor);
}

/* x with L L^H x = rhs; `upper`: the factor is L^H. */
static hlo_value cholesky_solve(hlo_builder *b, hlo_value factor, hlo_value rhs, bool upper) {
    hlo_value y = solve_triangle(b, factor, rhs, true, !upper, false, upper ? 2 : 0);
    return solve_triangle(b, factor, y, true, !upper, false, upper ? 0 : 2);
}

static void lower_cholesky_solve(lowering *l) {
    result_set(l, 0, cholesky_solve(lower_builder(l), arg_tensor(l, 1), arg_tensor(l, 0), arg_bool(l, 2)));
}

static void lower_cholesky_inverse(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value factor = matrix_batch(b, arg_tensor(l, 0));
    if (!factor) return;
    hlo_value one = matrix_identity(b, factor->dtype, factor->dims[0], factor->dims[1], factor->dims[2]);
    set_reshaped(l, 0, cholesky_solve(b, factor, one, arg_bool(l, 1)));
}

/* ---- cross product ---- */

/* Components i + 1, i + 2, i of x along dim, for shift 1; i + 2, i, i + 1 for shift 2. */
static hlo_value rotated(hlo_builder *b, hlo_value x, int dim, int64_t shift) {
    hlo_value parts[2] = {hlo_slice_dim(b, x, dim, shift, 3, 1), hlo_slice_dim(b, x, dim, 0, shift, 1)};
    return hlo_concatenate(b, 2, parts, dim);
}

static void lower_cross(lowering *l) {
    hlo_builder *b = lower_builder(l);
    int rank = result_rank(l, 0);
    hlo_value x = hlo_broadcast_to(b, arg_tensor(l, 0), rank, result_dims(l, 0));
    hlo_value y = hlo_broadcast_to(b, arg_tensor(l, 1), rank, result_dims(l, 0));
    int64_t dim = dim_wrap(arg_int_or(l, 2, -1), rank);
    if (!x || !y || dim < 0) return;
    int d = (int)dim;
    result_set(l, 0,
               hlo_subtract(b, hlo_multiply(b, rotated(b, x, d, 1), rotated(b, y, d, 2)),
                            hlo_multiply(b, rotated(b, x, d, 2), rotated(b, y, d, 1))));
}

/* ---- matrix exponential: scaling and squaring (Higham, "Functions of Matrices", 2008, chapter 10) with a Taylor
 * polynomial of degree 19, evaluated by Paterson and Stockmeyer's scheme: exact to double precision for a 1-norm of at
 * most 1 ---- */

static hlo_value taylor_part(hlo_builder *b, const hlo_value power[4], int first) {
    hlo_value sum = NULL;
    for (int i = 0; i < 4; i++) {
        double factorial = tgamma(first + i + 1);
        hlo_value term = hlo_multiply(b, power[i], hlo_like(b, power[i], 1 / factorial));
        sum = sum ? hlo_add(b, sum, term) : term;
    }
    return sum;
}

/* state: the matrices; context: how often each is to be squared. */
static void square_step(hlo_builder *b, const void *context, hlo_value step, hlo_value *state) {
    hlo_value times = *(const hlo_value *)context;
    state[0] = hlo_select(b, hlo_lt(b, step, times), matrix_product_exact(b, state[0], state[0]), state[0]);
}

static void lower_matrix_exp(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value a = matrix_batch(b, arg_tensor(l, 0));
    if (!a || hlo_element_count(a) == 0) {
        result_set(l, 0, arg_tensor(l, 0));
        return;
    }
    dim_set rows = dims_range(1, 2), columns = dims_range(2, 3);
    hlo_value norm = reduce_keep(b, HLO_REDUCE_ADD, hlo_abs(b, a), &rows);
    norm = reduce_keep(b, HLO_REDUCE_MAXIMUM, norm, &columns);
    hlo_value finite = hlo_is_finite(b, norm), zero = hlo_like(b, norm, 0);
    hlo_value log2 = hlo_divide(b, hlo_log(b, hlo_maximum(b, norm, hlo_like(b, norm, 1))), hlo_like(b, norm, M_LN2));
    hlo_value times = hlo_select(b, finite, hlo_ceil(b, log2), zero);
    hlo_value factor = hlo_exponential(b, hlo_multiply(b, times, hlo_like(b, times, -M_LN2)));
    factor = hlo_convert(b, factor, a->dtype);
    times = hlo_convert(b, times, DTYPE_I32);
    hlo_value power[5] = {matrix_identity(b, a->dtype, a->dims[0], a->dims[1], a->dims[2]), hlo_multiply(b, a, factor)};
    for (int i = 2; i < 5; i++) power[i] = matrix_product_exact(b, power[i - 1], power[1]);
    hlo_value sum = taylor_part(b, power, 16);
    for (int first = 12; first >= 0; first -= 4)
        sum = hlo_add(b, taylor_part(b, power, first), matrix_product_exact(b, sum, power[4]));
    dim_set all = dims_all(times);
    loop_steps(b, reduce_drop(b, HLO_REDUCE_MAXIMUM, times, &all), 1, &sum, square_step, &times);
    set_reshaped(l, 0, sum);
}

const op_row ops_linalg[] = {
    {"aten::linalg_solve_triangular", PROMOTE_NONE, .lower = lower_solve_triangular},
    {"aten::triangular_solve", PROMOTE_NONE, .lower = lower_triangular_solve},
    {"aten::linalg_cholesky_ex", PROMOTE_NONE, .lower = lower_cholesky_ex},
    {"aten::cholesky_solve", PROMOTE_NONE, .lower = lower_cholesky_solve},
    {"aten::_cholesky_solve_helper", PROMOTE_NONE, .lower = lower_cholesky_solve},
    {"aten::cholesky_inverse", PROMOTE_NONE, .lower = lower_cholesky_inverse},
    {"aten::linalg_cross", PROMOTE, .lower = lower_cross},
    {"aten::linalg_matrix_exp", PROMOTE_NONE, OP_OPMATH, .lower = lower_matrix_exp},
    {0},
};
