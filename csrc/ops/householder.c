/* Products of Householder reflectors, and the QR factorisation that makes them (LAPACK's geqrf, orgqr and ormqr).
 * Reflector i is I - tau[i] v v^H with v = 0 above row i, 1 at it, and column i of a matrix below it. */
#include <string.h>

#include "ops/indexing.h"
#include "ops/loop.h"
#include "ops/ops.h"

typedef struct {
    hlo_value reflectors, tau; /* [B, m, n], [B, k] */
    int64_t count;             /* k */
    bool left, adjoint, backwards;
} reflection;

/* x with everything but its last `kept` dimensions in one. */
static hlo_value flat_batch(hlo_builder *b, hlo_value x, int kept) {
    if (!x || x->rank < kept) return NULL;
    int64_t dims[3] = {1};
    for (int i = 0; i < x->rank - kept; i++) dims[0] *= x->dims[i];
    for (int i = 0; i < kept; i++) dims[1 + i] = x->dims[x->rank - kept + i];
    return hlo_reshape(b, x, 1 + kept, dims);
}

static hlo_value conjugate(hlo_builder *b, hlo_value x) { return x && dtype_is_complex(x->dtype) ? hlo_conj(b, x) : x; }

/* Slice `at` (an i32 scalar) of the last dimension. */
static hlo_value last_slice(hlo_builder *b, hlo_value x, hlo_value at) {
    if (!x) return NULL;
    hlo_value start[3], zero = hlo_constant_int(b, DTYPE_I32, 0, NULL, 0);
    int64_t sizes[3];
    for (int i = 0; i < x->rank; i++) {
        start[i] = i == x->rank - 1 ? at : zero;
        sizes[i] = i == x->rank - 1 ? 1 : x->dims[i];
    }
    return hlo_dynamic_slice(b, x, start, sizes);
}

/* tau[:, at] as [B, 1, 1] */
static hlo_value coefficient(hlo_builder *b, hlo_value tau, hlo_value at, bool conjugated) {
    hlo_value t = hlo_unsqueeze_dim(b, last_slice(b, tau, at), 2);
    return conjugated ? conjugate(b, t) : t;
}

/* A column [B, m, 1] with its head cut off: 1 at row `at`, 0 above. */
static hlo_value reflector(hlo_builder *b, hlo_value column, hlo_value at) {
    if (!column) return NULL;
    hlo_value row = index_iota(b, 3, column->dims, 1);
    hlo_value head = hlo_convert(b, hlo_eq(b, row, at), column->dtype);
    return hlo_select(b, hlo_gt(b, row, at), column, head);
}

static hlo_value batched_product(hlo_builder *b, hlo_value x, int x_dim, hlo_value y, int y_dim) {
    if (!x || !y) return NULL;
    hlo_dot_dims d = {.n_batch = 1, .n_contract = 1, .lhs_contract = {x_dim}, .rhs_contract = {y_dim}};
    return hlo_dot_general(b, x, y, &d, x->dtype);
}

/* (I - tau v v^H) x */
static hlo_value reflect_left(hlo_builder *b, hlo_value x, hlo_value v, hlo_value tau) {
    hlo_value row = batched_product(b, conjugate(b, v), 1, x, 1); /* [B, 1, n] */
    return hlo_subtract(b, x, hlo_multiply(b, hlo_multiply(b, tau, v), row));
}

/* x (I - tau v v^H) */
static hlo_value reflect_right(hlo_builder *b, hlo_value x, hlo_value v, hlo_value tau) {
    static const int64_t swap[3] = {0, 2, 1};
    hlo_value column = batched_product(b, x, 2, v, 1), row = v ? hlo_transpose(b, conjugate(b, v), swap) : NULL;
    return hlo_subtract(b, x, hlo_multiply(b, hlo_multiply(b, tau, column), row));
}

static void reflect_step(hlo_builder *b, const void *context, hlo_value step, hlo_value *state) {
    const reflection *r = context;
    hlo_value at = r->backwards ? hlo_subtract(b, hlo_constant_int(b, DTYPE_I32, 0, NULL, r->count - 1), step) : step;
    hlo_value v = reflector(b, last_slice(b, r->reflectors, at), at), tau = coefficient(b, r->tau, at, r->adjoint);
    state[0] = r->left ? reflect_left(b, state[0], v, tau) : reflect_right(b, state[0], v, tau);
}

static hlo_value reflect_all(hlo_builder *b, const reflection *r, hlo_value x) {
    hlo_precision before = hlo_get_precision(b);
    hlo_set_precision(b, HLO_PRECISION_HIGHEST);
    loop_steps(b, hlo_constant_int(b, DTYPE_I32, 0, NULL, r->count), 1, &x, reflect_step, r);
    hlo_set_precision(b, before);
    return x;
}

/* (input [.., m, n], tau [.., k]): the first n columns of the product of the reflectors. */
static void lower_householder_product(lowering *l) {
    hlo_builder *b = lower_builder(l);
    reflection r = {.reflectors = flat_batch(b, arg_tensor(l, 0), 2),
                    .tau = flat_batch(b, arg_tensor(l, 1), 1),
                    .left = true,
                    .backwards = true};
    if (!r.reflectors || !r.tau) return;
    const int64_t *dims = r.reflectors->dims;
    r.count = r.tau->dims[1];
    hlo_value eye = hlo_eq(b, index_iota(b, 3, dims, 1), index_iota(b, 3, dims, 2));
    hlo_value q = hlo_convert(b, eye, r.reflectors->dtype);
    if (r.count && hlo_element_count(r.reflectors)) q = reflect_all(b, &r, q);
    result_set(l, 0, q ? hlo_reshape(b, q, result_rank(l, 0), result_dims(l, 0)) : NULL);
}

/* (self, tau, other, left, transpose): Q other, Q^H other, other Q or other Q^H, with Q the product of all reflectors.
 */
static void lower_ormqr(lowering *l) {
    hlo_builder *b = lower_builder(l);
    reflection r = {.reflectors = flat_batch(b, arg_tensor(l, 0), 2), .tau = flat_batch(b, arg_tensor(l, 1), 1)};
    hlo_value x = flat_batch(b, arg_tensor(l, 2), 2);
    if (!r.reflectors || !r.tau || !x) return;
    r.count = r.tau->dims[1];
    r.left = !arg_given(l, 3) || arg_bool(l, 3);
    r.adjoint = arg_bool(l, 4);
    r.backwards = r.left != r.adjoint;
    if (r.count && hlo_element_count(x)) x = reflect_all(b, &r, x);
    result_set(l, 0, hlo_reshape(b, x, result_rank(l, 0), result_dims(l, 0)));
}

/* ---- geqrf ---- */

static hlo_value real_part(hlo_builder *b, hlo_value x) { return x && dtype_is_complex(x->dtype) ? hlo_real(b, x) : x; }

/* Sum of |x|^2 over the column, [B, 1, 1]. */
static hlo_value square_norm(hlo_builder *b, hlo_value x) {
    int64_t row = 1;
    hlo_value square = real_part(b, hlo_multiply(b, x, conjugate(b, x)));
    return square ? hlo_unsqueeze_dim(b, hlo_reduce(b, HLO_REDUCE_ADD, square, 1, &row), 1) : NULL;
}

/* LAPACK's larfg: the reflector that turns the column from row `at` on into (beta, 0, ..). state: matrix, tau [B, k].
 */
static void factor_step(hlo_builder *b, const void *context, hlo_value at, hlo_value *state) {
    (void)context;
    hlo_value matrix = state[0], column = last_slice(b, matrix, at);
    if (!column) return;
    dtype t = column->dtype;
    int64_t row_dim = 1;
    hlo_value row = index_iota(b, 3, column->dims, 1), nothing = hlo_like(b, column, 0), below = hlo_gt(b, row, at);
    hlo_value tail = hlo_select(b, below, column, nothing), head = hlo_select(b, hlo_eq(b, row, at), column, nothing);
    hlo_value alpha = hlo_unsqueeze_dim(b, hlo_reduce(b, HLO_REDUCE_ADD, head, 1, &row_dim), 1);
    hlo_value length = hlo_sqrt(b, hlo_add(b, square_norm(b, tail), square_norm(b, alpha)));
    hlo_value positive = hlo_ge(b, real_part(b, alpha), hlo_scalar(b, dtype_real(t), 0));
    hlo_value beta = hlo_convert(b, hlo_select(b, positive, hlo_negate(b, length), length), t);
    hlo_value done = hlo_eq(b, square_norm(b, tail), hlo_scalar(b, dtype_real(t), 0));
    if (dtype_is_complex(t)) done = hlo_and(b, done, hlo_eq(b, hlo_imag(b, alpha), hlo_scalar(b, dtype_real(t), 0)));
    beta = hlo_select(b, done, alpha, beta);
    hlo_value zero = hlo_scalar(b, t, 0), one = hlo_scalar(b, t, 1);
    hlo_value tau =
        hlo_select(b, done, zero, hlo_divide(b, hlo_subtract(b, beta, alpha), hlo_select(b, done, one, beta)));
    tail = hlo_divide(b, tail, hlo_select(b, done, one, hlo_subtract(b, alpha, beta)));
    hlo_value v = reflector(b, tail, at), across = index_iota(b, 3, matrix->dims, 2);
    hlo_value reflected = reflect_left(b, matrix, v, conjugate(b, tau));
    hlo_value stored = hlo_select(b, below, tail, hlo_select(b, hlo_eq(b, row, at), beta, column));
    matrix = hlo_select(b, hlo_gt(b, across, at), reflected, matrix);
    state[0] = hlo_select(b, hlo_eq(b, across, at), stored, matrix);
    int64_t flat[2] = {column->dims[0], 1};
    hlo_value here = hlo_eq(b, index_iota(b, 2, state[1]->dims, 1), at);
    state[1] = hlo_select(b, here, hlo_reshape(b, tau, 2, flat), state[1]);
}

/* self [.., m, n] -> (a: R above and reflectors below the diagonal, tau [.., min(m, n)]) */
static void lower_geqrf(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value state[2] = {flat_batch(b, arg_tensor(l, 0), 2)};
    if (!state[0]) return;
    const int64_t *dims = state[0]->dims;
    int64_t count = dims[1] < dims[2] ? dims[1] : dims[2], tau_dims[2] = {dims[0], count};
    state[1] = index_zeros(b, state[0]->dtype, 2, tau_dims);
    hlo_precision before = hlo_get_precision(b);
    hlo_set_precision(b, HLO_PRECISION_HIGHEST);
    if (hlo_element_count(state[0]))
        loop_steps(b, hlo_constant_int(b, DTYPE_I32, 0, NULL, count), 2, state, factor_step, NULL);
    hlo_set_precision(b, before);
    for (int k = 0; k < 2; k++)
        if (state[k]) result_set(l, k, hlo_reshape(b, state[k], result_rank(l, k), result_dims(l, k)));
}

const op_row ops_householder[] = {
    {"aten::linalg_householder_product", PROMOTE_NONE, .lower = lower_householder_product},
    {"aten::ormqr", PROMOTE_NONE, .lower = lower_ormqr},
    {"aten::geqrf", PROMOTE_NONE, .lower = lower_geqrf},
    {0},
};
