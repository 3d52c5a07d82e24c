/* Singular values and eigenvalues by one-sided Jacobi rotations (Hestenes, 1958; Demmel and Veselic, "Jacobi's Method
 * is More Accurate than QR", 1992): columns are rotated in pairs until all are orthogonal. Every round rotates n / 2
 * disjoint pairs at once; the round-robin tournament of Brent and Luk (1985) meets all pairs in n - 1 rounds, one
 * sweep. */
#include <float.h>
#include <math.h>

#include "ops/indexing.h"
#include "ops/linalg.h"
#include "ops/loop.h"
#include "ops/matmul.h"
#include "ops/reduction.h"
#include "ops/sorting.h"

#define JACOBI_MAX_SWEEPS 30

static hlo_value column_sums(hlo_builder *b, hlo_value x) {
    dim_set d = dims_range(1, 2);
    return reduce_keep(b, HLO_REDUCE_ADD, x, &d);
}

/* context of the loop: the first `rows` rows are made orthogonal, those below are carried along. */
typedef struct {
    int64_t rows, sweep;
    double tolerance;
} jacobi;

static hlo_value largest_of_all(hlo_builder *b, hlo_value x) {
    dim_set d = dims_all(x);
    return reduce_drop(b, HLO_REDUCE_MAXIMUM, x, &d);
}

/* Rotates column i of *left against column i of *right; returns the largest cosine between two of them before. */
static hlo_value rotate_pairs(hlo_builder *b, const jacobi *j, hlo_value *left, hlo_value *right) {
    hlo_value x = *left, y = *right;
    if (!x || !y) return NULL;
    hlo_value p = hlo_slice_dim(b, x, 1, 0, j->rows, 1), q = hlo_slice_dim(b, y, 1, 0, j->rows, 1);
    hlo_value alpha = column_sums(b, square_size(b, p)), beta = column_sums(b, square_size(b, q));
    hlo_value gamma = column_sums(b, hlo_multiply(b, conjugate(b, p), q)), size = hlo_abs(b, gamma);
    hlo_value zero = hlo_like(b, size, 0), one = hlo_like(b, size, 1), two = hlo_like(b, size, 2);
    hlo_value nothing = hlo_eq(b, size, zero), safe = hlo_select(b, nothing, one, size);
    hlo_value zeta = hlo_divide(b, hlo_subtract(b, beta, alpha), hlo_multiply(b, two, safe));
    hlo_value root = hlo_sqrt(b, hlo_add(b, one, hlo_multiply(b, zeta, zeta)));
    hlo_value tangent = hlo_divide(b, one, hlo_add(b, hlo_abs(b, zeta), root));
    tangent = hlo_select(b, hlo_lt(b, zeta, zero), hlo_negate(b, tangent), tangent);
    tangent = hlo_select(b, nothing, zero, tangent);
    hlo_value cosine = hlo_rsqrt(b, hlo_add(b, one, hlo_multiply(b, tangent, tangent)));
    dtype t = x->dtype;
    hlo_value phase = hlo_divide(b, hlo_select(b, nothing, hlo_like(b, gamma, 1), gamma), hlo_convert(b, safe, t));
    hlo_value sine = hlo_multiply(b, phase, hlo_convert(b, hlo_multiply(b, cosine, tangent), t));
    cosine = hlo_convert(b, cosine, t);
    *left = hlo_subtract(b, hlo_multiply(b, cosine, x), hlo_multiply(b, conjugate(b, sine), y));
    *right = hlo_add(b, hlo_multiply(b, sine, x), hlo_multiply(b, cosine, y));
    hlo_value product = hlo_multiply(b, hlo_sqrt(b, alpha), hlo_sqrt(b, beta)), none = hlo_eq(b, product, zero);
    hlo_value angle = hlo_divide(b, size, hlo_select(b, none, one, product));
    return largest_of_all(b, hlo_select(b, none, zero, angle));
}

/* The tournament's next seating: the first column of `left` stays, all others move on by one seat. */
static void next_pairs(hlo_builder *b, hlo_value *left, hlo_value *right) {
    hlo_value x = *left, y = *right;
    if (!x || !y || x->dims[2] < 2) return;
    int64_t half = x->dims[2];
    hlo_value top[3] = {hlo_slice_dim(b, x, 2, 0, 1, 1), hlo_slice_dim(b, y, 2, 0, 1, 1),
                        hlo_slice_dim(b, x, 2, 1, half - 1, 1)};
    hlo_value bottom[2] = {hlo_slice_dim(b, y, 2, 1, half, 1), hlo_slice_dim(b, x, 2, half - 1, half, 1)};
    *left = hlo_concatenate(b, half > 2 ? 3 : 2, top, 2);
    *right = hlo_concatenate(b, 2, bottom, 2);
}

/* state: left and right columns, largest cosine of this sweep so far, done. */
static void jacobi_round(hlo_builder *b, const void *context, hlo_value round, hlo_value *state) {
    const jacobi *j = context;
    hlo_value angle = rotate_pairs(b, j, &state[0], &state[1]);
    next_pairs(b, &state[0], &state[1]);
    hlo_value length = hlo_constant_int(b, DTYPE_I32, 0, NULL, j->sweep),
              last = hlo_constant_int(b, DTYPE_I32, 0, NULL, j->sweep - 1);
    hlo_value ends = hlo_eq(b, hlo_remainder(b, round, length), last);
    hlo_value worst = hlo_maximum(b, state[2], angle), bound = hlo_like(b, worst, j->tolerance);
    state[3] = hlo_and(b, ends, hlo_not(b, hlo_gt(b, worst, bound))); /* NaN ends it too */
    state[2] = hlo_select(b, ends, hlo_like(b, worst, 0), worst);
}

/* x [B, r, n] times a unitary matrix, so that the columns of the first `rows` rows are orthogonal. */
static hlo_value orthogonalize(hlo_builder *b, hlo_value x, int64_t rows) {
    if (!x) return NULL;
    int64_t n = x->dims[2], even = n + n % 2, half = even / 2;
    dtype t = dtype_real(x->dtype);
    if (even != n) x = hlo_pad(b, x, hlo_scalar(b, x->dtype, 0), (int64_t[]){0, 0, 0}, (int64_t[]){0, 0, 1}, NULL);
    double epsilon = t == DTYPE_F64 ? DBL_EPSILON : FLT_EPSILON;
    jacobi j = {rows, even - 1, epsilon * 2 * sqrt((double)rows + 4)};
    hlo_value state[4] = {hlo_slice_dim(b, x, 2, 0, half, 1), hlo_slice_dim(b, x, 2, half, even, 1),
                          hlo_scalar(b, t, 0), hlo_constant_int(b, DTYPE_BOOL, 0, NULL, 0)};
    loop_until(b, hlo_constant_int(b, DTYPE_I32, 0, NULL, JACOBI_MAX_SWEEPS * j.sweep), 4, state, 3, jacobi_round, &j);
    return hlo_slice_dim(b, hlo_concatenate(b, 2, state, 2), 2, 0, n, 1);
}

/* The largest |element| of each matrix, 1 for zeros: [B, 1, 1], real. */
static hlo_value matrix_scale(hlo_builder *b, hlo_value a) {
    dim_set d = dims_range(1, 3);
    hlo_value scale = reduce_keep(b, HLO_REDUCE_MAXIMUM, hlo_abs(b, a), &d);
    return hlo_select(b, hlo_eq(b, scale, hlo_like(b, scale, 0)), hlo_like(b, scale, 1), scale);
}

/* Columns of x in the order of `index` [B, n]. */
static hlo_value take_columns(hlo_builder *b, hlo_value x, hlo_value index) {
    if (!x || !index) return NULL;
    return index_gather(b, x, 2, hlo_broadcast_to(b, hlo_unsqueeze_dim(b, index, 1), 3, x->dims));
}

/* [B, 1, n] as [B, n] */
static hlo_value as_rows(hlo_builder *b, hlo_value x) {
    return x ? hlo_reshape(b, x, 2, (int64_t[]){x->dims[0], x->dims[2]}) : NULL;
}

static void set_zeros(lowering *l, int k) {
    if (result_wanted(l, k))
        result_set(l, k, index_zeros(lower_builder(l), result_dtype(l, k), result_rank(l, k), result_dims(l, k)));
}

/* Of a matrix without elements: identities. */
static void set_identity(lowering *l, int k) {
    if (!result_wanted(l, k)) return;
    int rank = result_rank(l, k);
    const int64_t *dims = result_dims(l, k);
    if (rank < 2)
        set_zeros(l, k);
    else
        result_set(l, k,
                   hlo_convert(lower_builder(l),
                               hlo_eq(lower_builder(l), index_iota(lower_builder(l), rank, dims, rank - 2),
                                      index_iota(lower_builder(l), rank, dims, rank - 1)),
                               result_dtype(l, k)));
}

/* ---- singular value decomposition ---- */

typedef struct {
    hlo_value u, s, v;
} svd; /* A = U diag(S) V^H; V always square */

/* U from A V sorted by size: its columns are orthogonal, so that its R is diagonal, and Q completes the basis where
 * singular values are zero. */
static hlo_value left_vectors(hlo_builder *b, hlo_value product, int64_t width) {
    hlo_value factored, tau;
    if (!product) return NULL;
    int64_t n = product->dims[2];
    householder_factor(b, product, &factored, &tau);
    hlo_value q = householder_apply(
        b, factored, tau, matrix_identity(b, product->dtype, product->dims[0], product->dims[1], width), false);
    hlo_value diagonal = matrix_diagonal(b, factored), one = hlo_like(b, diagonal, 1);
    hlo_value size = hlo_abs(b, diagonal), none = hlo_eq(b, size, hlo_like(b, size, 0));
    hlo_value divisor = hlo_select(b, none, hlo_like(b, size, 1), size);
    hlo_value phase = hlo_select(b, none, one, hlo_divide(b, diagonal, hlo_convert(b, divisor, product->dtype)));
    if (width > n)
        phase = hlo_pad(b, phase, hlo_scalar(b, product->dtype, 1), (int64_t[]){0, 0}, (int64_t[]){0, width - n}, NULL);
    return hlo_multiply(b, q, hlo_unsqueeze_dim(b, phase, 1));
}

/* a [B, m, n] with m >= n. vectors: S alone if not. full: U has m columns. */
static svd decompose(hlo_builder *b, hlo_value a, bool vectors, bool full) {
    svd r = {0};
    if (!a) return r;
    int64_t m = a->dims[1], n = a->dims[2];
    hlo_value scale = matrix_scale(b, a), x = hlo_divide(b, a, hlo_convert(b, scale, a->dtype));
    hlo_value stacked[2] = {x, matrix_identity(b, a->dtype, a->dims[0], n, n)};
    x = orthogonalize(b, vectors ? hlo_concatenate(b, 2, stacked, 1) : x, m);
    hlo_value product = hlo_slice_dim(b, x, 1, 0, m, 1), order;
    hlo_value norms = as_rows(b, hlo_sqrt(b, column_sums(b, square_size(b, product))));
    sort_with_indices(b, norms, 1, true, &r.s, &order);
    r.s = hlo_multiply(b, r.s, hlo_squeeze_dim(b, scale, 2));
    if (!vectors) return r;
    r.v = take_columns(b, hlo_slice_dim(b, x, 1, m, m + n, 1), order);
    r.u = left_vectors(b, take_columns(b, product, order), full ? m : n);
    return r;
}

/* (A, full_matrices, compute_uv, driver) -> U, S, Vh. A wide matrix is decomposed as its adjoint. */
static void lower_svd(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value a = matrix_batch(b, arg_tensor(l, 0));
    if (!a) return;
    bool vectors = !arg_given(l, 2) || arg_bool(l, 2), wide = a->dims[1] < a->dims[2];
    if (hlo_element_count(a) == 0) {
        set_identity(l, 0);
        set_zeros(l, 1);
        set_identity(l, 2);
        return;
    }
    svd r = decompose(b, wide ? matrix_adjoint(b, a) : a, vectors, arg_bool(l, 1));
    set_reshaped(l, 1, r.s);
    if (vectors) {
        set_reshaped(l, 0, wide ? r.v : r.u);
        set_reshaped(l, 2, matrix_adjoint(b, wide ? r.u : r.v));
    } else {
        set_zeros(l, 0);
        set_zeros(l, 2);
    }
}

/* ---- eigenvalues of a Hermitian matrix ---- */

/* The whole matrix from one triangle; the diagonal counts as real. */
static hlo_value hermitian(hlo_builder *b, hlo_value a, bool lower) {
    if (!a) return NULL;
    hlo_value row = matrix_rows(b, a), column = matrix_columns(b, a);
    hlo_value given = hlo_compare(b, lower ? HLO_GT : HLO_LT, row, column);
    hlo_value diagonal = hlo_convert(b, real_part(b, a), a->dtype);
    return hlo_select(b, hlo_eq(b, row, column), diagonal, hlo_select(b, given, a, matrix_adjoint(b, a)));
}

/* (A, UPLO, compute_v) -> eigenvalues, ascending; eigenvectors. A is shifted by more than its norm: then it is positive
 * definite, its left singular vectors are its eigenvectors, and Rayleigh's quotient with A itself gives the
 * eigenvalues. */
static void lower_eigh(lowering *l) {
    hlo_builder *b = lower_builder(l);
    const char *triangle = arg_string(l, 1);
    hlo_value a =
        hermitian(b, matrix_batch(b, arg_tensor(l, 0)), !triangle || triangle[0] == 'L' || triangle[0] == 'l');
    if (!a) return;
    if (hlo_element_count(a) == 0) {
        set_zeros(l, 0);
        set_zeros(l, 1);
        return;
    }
    dtype t = a->dtype;
    hlo_value scale = matrix_scale(b, a), x = hlo_divide(b, a, hlo_convert(b, scale, t));
    dim_set rows = dims_range(1, 2), columns = dims_range(2, 3);
    hlo_value norm = reduce_keep(b, HLO_REDUCE_MAXIMUM, reduce_keep(b, HLO_REDUCE_ADD, hlo_abs(b, x), &rows), &columns);
    hlo_value shift = hlo_add(b, hlo_add(b, norm, norm), hlo_like(b, norm, 1));
    hlo_value on = hlo_eq(b, matrix_rows(b, a), matrix_columns(b, a));
    hlo_value shifted = hlo_add(b, x, hlo_select(b, on, hlo_convert(b, shift, t), hlo_scalar(b, t, 0)));
    hlo_value v = orthogonalize(b, shifted, a->dims[1]), order, values;
    v = hlo_divide(b, v, hlo_convert(b, hlo_sqrt(b, column_sums(b, square_size(b, v))), t));
    hlo_value quotient = column_sums(b, hlo_multiply(b, conjugate(b, v), matrix_product_exact(b, x, v)));
    sort_with_indices(b, as_rows(b, real_part(b, quotient)), 1, false, &values, &order);
    set_reshaped(l, 0, hlo_multiply(b, values, hlo_squeeze_dim(b, scale, 2)));
    if (!arg_given(l, 2) || arg_bool(l, 2))
        set_reshaped(l, 1, take_columns(b, v, order));
    else
        set_zeros(l, 1);
}

const op_row ops_jacobi[] = {
    {"aten::_linalg_svd", PROMOTE_NONE, .lower = lower_svd},
    {"aten::_linalg_eigh", PROMOTE_NONE, .lower = lower_eigh},
    {0},
};
