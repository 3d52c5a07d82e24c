/* Distances between rows: cdist, pdist, dist, with their gradients. */
#include <math.h>

#include "ops/indexing.h"
#include "ops/linalg.h"
#include "ops/matmul.h"
#include "ops/ops.h"
#include "ops/reduction.h"
#include "ops/sorting.h"

/* Row i of x1 minus row j of x2, for every i and j: [..., P, R, M]. */
static hlo_value differences(hlo_builder *b, hlo_value x1, hlo_value x2) {
    if (!x1 || !x2 || x1->rank < 2 || x2->rank < 2) return NULL;
    return hlo_subtract(b, hlo_unsqueeze_dim(b, x1, x1->rank - 1), hlo_unsqueeze_dim(b, x2, x2->rank - 2));
}

static hlo_value direct_distance(hlo_builder *b, hlo_value x1, hlo_value x2, double p) {
    hlo_value z = differences(b, x1, x2);
    if (!z) return NULL;
    dim_set last = dims_range(z->rank - 1, z->rank);
    return norm_drop(b, z, z->dims[z->rank - 1] == 0 ? 2 : p, &last);
}

static hlo_value square_sums(hlo_builder *b, hlo_value x) {
    if (!x) return NULL;
    dim_set last = dims_range(x->rank - 1, x->rank);
    return reduce_keep(b, HLO_REDUCE_ADD, hlo_multiply(b, x, x), &last);
}

/* sqrt(max(0, |x|^2 + |y|^2 - 2 x y)): a matrix product, at the highest precision because the terms cancel. */
static hlo_value euclidean_by_product(hlo_builder *b, hlo_value x1, hlo_value x2) {
    hlo_value left = matrix_expand_batch(b, x1, x2), right = matrix_expand_batch(b, x2, x1);
    if (!left || !right) return NULL;
    hlo_precision before = hlo_get_precision(b);
    hlo_set_precision(b, HLO_PRECISION_HIGHEST);
    hlo_value product = contract(b, left, left->rank - 1, right, right->rank - 1, left->rank - 2);
    hlo_set_precision(b, before);
    hlo_value sums = hlo_add(b, square_sums(b, left), matrix_transpose(b, square_sums(b, right)));
    hlo_value square = hlo_subtract(b, sums, hlo_multiply(b, product, hlo_like(b, product, 2)));
    return hlo_sqrt(b, hlo_maximum(b, square, hlo_like(b, square, 0)));
}

/* (x1, x2, p, compute_mode). Mode 0 or none: by product where there are more than 25 rows; 1: always; 2: never. */
static void lower_cdist(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x1 = arg_tensor(l, 0), x2 = arg_tensor(l, 1);
    if (!x1 || !x2 || x1->rank < 2 || x2->rank < 2) return;
    double p = arg_float(l, 2);
    int64_t mode = arg_int_or(l, 3, 0), rows = x1->dims[x1->rank - 2], others = x2->dims[x2->rank - 2];
    bool product = p == 2 && (mode == 1 || (mode == 0 && (rows > 25 || others > 25)));
    result_set(l, 0, product ? euclidean_by_product(b, x1, x2) : direct_distance(b, x1, x2, p));
}

static void lower_euclidean(lowering *l) {
    result_set(l, 0, euclidean_by_product(lower_builder(l), arg_tensor(l, 0), arg_tensor(l, 1)));
}

/* Derivative of the distance by each difference z, times g; g and distance have a last dimension of size 1. */
static hlo_value distance_slope(hlo_builder *b, hlo_value z, hlo_value g, hlo_value distance, double p) {
    hlo_value zero = hlo_like(b, z, 0), sign = hlo_sign(b, z), size = hlo_abs(b, z);
    if (p == 0) return zero;
    if (p == 1) return hlo_multiply(b, g, sign);
    if (isinf(p))
        return hlo_multiply(b, hlo_multiply(b, g, sign),
                            hlo_convert(b, hlo_eq(b, size, distance), z ? z->dtype : DTYPE_F32));
    hlo_value slope;
    if (p == 2) {
        slope = hlo_divide(b, hlo_multiply(b, g, z), distance);
    } else {
        hlo_value power = hlo_multiply(b, sign, hlo_power(b, size, hlo_like(b, size, p - 1)));
        if (p < 1) power = hlo_select(b, hlo_eq(b, z, zero), zero, power);
        slope = hlo_divide(b, hlo_multiply(b, power, g), hlo_power(b, distance, hlo_like(b, distance, p - 1)));
    }
    return hlo_select(b, hlo_eq(b, distance, hlo_like(b, distance, 0)), zero, slope);
}

/* Sum over the rows of x2 of the slopes: the gradient of x1. g and distance are [..., P, R]. */
static hlo_value distance_gradient(hlo_builder *b, hlo_value x1, hlo_value x2, hlo_value g, hlo_value distance,
                                   double p) {
    hlo_value z = differences(b, x1, x2);
    if (!z || !g || !distance) return NULL;
    g = hlo_unsqueeze_dim(b, g, g->rank);
    distance = hlo_unsqueeze_dim(b, distance, distance->rank);
    hlo_value slope = distance_slope(b, z, g, distance, p);
    dim_set rows = dims_range(z->rank - 2, z->rank - 1);
    return reduce_drop(b, HLO_REDUCE_ADD, slope, &rows);
}

/* (grad, x1, x2, p, cdist) */
static void lower_cdist_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value y =
        distance_gradient(b, arg_tensor(l, 1), arg_tensor(l, 2), arg_tensor(l, 0), arg_tensor(l, 4), arg_float(l, 3));
    if (y) result_set(l, 0, sum_to(b, y, result_rank(l, 0), result_dims(l, 0)));
}

/* ---- pairs i < j of n rows, numbered row by row: k = i (2 n - i - 1) / 2 + j - i - 1 ---- */

/* i (2 n - i - 1) / 2 */
static hlo_value first_pair(hlo_builder *b, hlo_value i, int64_t n) {
    hlo_value width = hlo_subtract(b, hlo_like(b, i, (double)(2 * n - 1)), i);
    return hlo_shift_right_logical(b, hlo_multiply(b, i, width), hlo_like(b, i, 1));
}

/* Pairs are counted in 64 bits where 32 are too few for 2 i n. */
static dtype pair_type(int64_t n) { return n < 30000 ? DTYPE_I32 : DTYPE_I64; }

/* (self, p) */
static void lower_pdist(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank != 2) return;
    int64_t n = x->dims[0], pairs = n * (n - 1) / 2;
    if (pairs <= 0) {
        result_set(l, 0, index_zeros(b, x->dtype, result_rank(l, 0), result_dims(l, 0)));
        return;
    }
    dtype t = pair_type(n);
    hlo_value starts = first_pair(b, hlo_iota(b, t, 1, &n, 0), n), k = hlo_iota(b, t, 1, &pairs, 0);
    hlo_value row = hlo_convert(b, search_sorted(b, starts, NULL, k, true), t);
    row = hlo_subtract(b, row, hlo_like(b, row, 1));
    hlo_value column = hlo_add(b, hlo_subtract(b, k, first_pair(b, row, n)), hlo_add(b, row, hlo_like(b, row, 1)));
    hlo_value z = hlo_subtract(b, index_take(b, x, 0, row), index_take(b, x, 0, column));
    dim_set last = dims_range(1, 2);
    result_set(l, 0, norm_drop(b, z, x->dims[1] == 0 ? 2 : arg_float_or(l, 1, 2), &last));
}

/* A vector over pairs as a symmetric matrix with a diagonal of zeros. */
static hlo_value pairs_as_matrix(hlo_builder *b, hlo_value v, int64_t n) {
    int64_t dims[2] = {n, n};
    dtype t = pair_type(n);
    hlo_value i = hlo_iota(b, t, 2, dims, 0), j = hlo_iota(b, t, 2, dims, 1);
    hlo_value low = hlo_minimum(b, i, j), high = hlo_maximum(b, i, j), one = hlo_like(b, i, 1);
    hlo_value k = hlo_add(b, first_pair(b, low, n), hlo_subtract(b, hlo_subtract(b, high, low), one));
    hlo_value diagonal = hlo_eq(b, i, j);
    k = hlo_select(b, diagonal, hlo_like(b, k, 0), k);
    return v ? hlo_select(b, diagonal, hlo_scalar(b, v->dtype, 0), index_take(b, v, 0, k)) : NULL;
}

/* (grad, self, p, pdist) */
static void lower_pdist_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 1);
    if (!x || x->rank != 2) return;
    if (x->dims[0] < 2) {
        result_set(l, 0, index_zeros(b, x->dtype, 2, x->dims));
        return;
    }
    hlo_value g = pairs_as_matrix(b, arg_tensor(l, 0), x->dims[0]);
    hlo_value distance = pairs_as_matrix(b, arg_tensor(l, 3), x->dims[0]);
    result_set(l, 0, distance_gradient(b, x, x, g, distance, arg_float(l, 2)));
}

/* (self, other, p): the norm of the difference. */
static void lower_dist(lowering *l) {
    hlo_value z = hlo_subtract(lower_builder(l), arg_tensor(l, 0), arg_tensor(l, 1));
    dim_set all = dims_all(z);
    result_set(l, 0, norm_drop(lower_builder(l), z, arg_float_or(l, 2, 2), &all));
}

const op_row ops_distance[] = {
    {"aten::_cdist_forward", PROMOTE_NONE, OP_OPMATH, .lower = lower_cdist},
    {"aten::_cdist_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_cdist_backward},
    {"aten::_euclidean_dist", PROMOTE_NONE, OP_OPMATH, .lower = lower_euclidean},
    {"aten::_pdist_forward", PROMOTE_NONE, OP_OPMATH, .lower = lower_pdist},
    {"aten::_pdist_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_pdist_backward},
    {"aten::dist", PROMOTE, OP_OPMATH, .lower = lower_dist},
    {0},
};
