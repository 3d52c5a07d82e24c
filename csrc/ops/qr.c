/* Householder reflections, as LAPACK's geqrf, orgqr and ormqr: H = I - tau v v^H, with v = (0, .., 0, 1, tail), so that
 * the signs are those of the CPU. One step of a loop is one reflection. */
#include "ops/indexing.h"
#include "ops/linalg.h"
#include "ops/loop.h"
#include "ops/matmul.h"
#include "ops/reduction.h"

static hlo_value sum_of(hlo_builder *b, hlo_value x, int dim) {
    dim_set d = dims_range(dim, dim + 1);
    return reduce_keep(b, HLO_REDUCE_ADD, x, &d);
}

/* a + i b for a complex type t, a for a real one. */
static hlo_value combine(hlo_builder *b, dtype t, hlo_value re, hlo_value im) {
    return dtype_is_complex(t) ? hlo_complex(b, re, im) : re;
}

/* The reflection that clears `column` below row k (LAPACK's larfg). */
typedef struct {
    hlo_value v, tau, beta;
} reflection;

static reflection reflect(hlo_builder *b, hlo_value column, hlo_value row, hlo_value k) {
    reflection r = {0};
    if (!column) return r;
    dtype t = column->dtype;
    hlo_value below = hlo_gt(b, row, k), here = hlo_eq(b, row, k);
    hlo_value alpha = matrix_pick(b, here, column, 1), re = real_part(b, alpha);
    hlo_value im = dtype_is_complex(t) ? hlo_imag(b, alpha) : hlo_like(b, re, 0), zero = hlo_like(b, re, 0);
    hlo_value active = hlo_select(b, hlo_ge(b, row, k), column, hlo_scalar(b, t, 0));
    dim_set d = dims_range(1, 2);
    hlo_value scale = reduce_keep(b, HLO_REDUCE_MAXIMUM, hlo_abs(b, active), &d);
    scale = hlo_select(b, hlo_eq(b, scale, zero), hlo_like(b, scale, 1), scale);
    hlo_value unit = hlo_divide(b, active, hlo_convert(b, scale, t));
    hlo_value norm = hlo_multiply(b, scale, hlo_sqrt(b, sum_of(b, square_size(b, unit), 1)));
    hlo_value rest = sum_of(b, hlo_select(b, below, hlo_abs(b, active), hlo_scalar(b, dtype_real(t), 0)), 1);
    hlo_value trivial = hlo_and(b, hlo_eq(b, rest, zero), hlo_eq(b, im, zero));
    hlo_value beta = hlo_select(b, hlo_ge(b, re, zero), hlo_negate(b, norm), norm), one = hlo_like(b, re, 1);
    hlo_value safe = hlo_select(b, trivial, one, beta);
    r.tau = combine(b, t, hlo_select(b, trivial, zero, hlo_divide(b, hlo_subtract(b, beta, re), safe)),
                    hlo_negate(b, hlo_divide(b, im, safe)));
    r.beta = hlo_select(b, trivial, alpha, hlo_convert(b, beta, t));
    hlo_value divisor = hlo_select(b, trivial, hlo_like(b, alpha, 1), hlo_subtract(b, alpha, hlo_convert(b, beta, t)));
    hlo_value tail = hlo_select(b, below, hlo_divide(b, column, divisor), hlo_scalar(b, t, 0));
    r.v = hlo_select(b, here, hlo_scalar(b, t, 1), tail);
    return r;
}

/* c - tau v (v^H c) */
static hlo_value apply_reflection(hlo_builder *b, hlo_value c, hlo_value v, hlo_value tau) {
    hlo_value along = sum_of(b, hlo_multiply(b, conjugate(b, v), c), 1);
    return hlo_subtract(b, c, hlo_multiply(b, hlo_multiply(b, tau, v), along));
}

/* state: matrix, tau. */
static void factor_step(hlo_builder *b, const void *context, hlo_value k, hlo_value *state) {
    (void)context;
    hlo_value a = state[0], row = matrix_rows(b, a), column = matrix_columns(b, a),
              zero = hlo_constant_int(b, DTYPE_I32, 0, NULL, 0);
    reflection r = reflect(b, matrix_column(b, a, k), row, k);
    if (!r.v) return;
    hlo_value right = hlo_gt(b, column, k), here = hlo_eq(b, column, k);
    hlo_value next = hlo_select(b, right, apply_reflection(b, a, r.v, conjugate(b, r.tau)), a);
    next = hlo_select(b, hlo_and(b, here, hlo_eq(b, row, k)), r.beta, next);
    state[0] = hlo_select(b, hlo_and(b, here, hlo_gt(b, row, k)), r.v, next);
    hlo_value start[2] = {zero, k};
    state[1] = hlo_dynamic_update_slice(b, state[1], hlo_squeeze_dim(b, r.tau, 2), start);
}

void householder_factor(hlo_builder *b, hlo_value a, hlo_value *factored, hlo_value *tau) {
    *factored = *tau = NULL;
    if (!a) return;
    int64_t k = a->dims[1] < a->dims[2] ? a->dims[1] : a->dims[2];
    hlo_value state[2] = {a, index_zeros(b, a->dtype, 2, (int64_t[]){a->dims[0], k})};
    if (hlo_element_count(a) > 0)
        loop_steps(b, hlo_constant_int(b, DTYPE_I32, 0, NULL, k), 2, state, factor_step, NULL);
    *factored = state[0];
    *tau = state[1];
}

typedef struct {
    hlo_value factored, tau;
    bool adjoint;
} reflectors;

static void apply_step(hlo_builder *b, const void *context, hlo_value step, hlo_value *state) {
    const reflectors *r = context;
    hlo_value last = hlo_constant_int(b, DTYPE_I32, 0, NULL, r->tau->dims[1] - 1);
    hlo_value k = r->adjoint ? step : hlo_subtract(b, last, step);
    hlo_value row = matrix_rows(b, r->factored), column = matrix_column(b, r->factored, k);
    hlo_value zero = hlo_constant_int(b, DTYPE_I32, 0, NULL, 0), start[2] = {zero, k};
    hlo_value tau = hlo_dynamic_slice(b, r->tau, start, (int64_t[]){r->tau->dims[0], 1});
    tau = hlo_unsqueeze_dim(b, r->adjoint ? conjugate(b, tau) : tau, 2);
    if (!column) return;
    hlo_value v = hlo_select(b, hlo_gt(b, row, k), column, hlo_scalar(b, column->dtype, 0));
    v = hlo_select(b, hlo_eq(b, row, k), hlo_scalar(b, column->dtype, 1), v);
    state[0] = apply_reflection(b, state[0], v, tau);
}

hlo_value householder_apply(hlo_builder *b, hlo_value factored, hlo_value tau, hlo_value c, bool adjoint) {
    if (!factored || !tau || !c || tau->dims[1] == 0 || hlo_element_count(c) == 0) return c;
    reflectors r = {factored, tau, adjoint};
    loop_steps(b, hlo_constant_int(b, DTYPE_I32, 0, NULL, tau->dims[1]), 1, &c, apply_step, &r);
    return c;
}

/* ---- operators ---- */

/* (A, mode) -> Q, R: reduced, complete, or r (no Q). */
static void lower_qr(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value a = matrix_batch(b, arg_tensor(l, 0)), factored, tau;
    if (!a) return;
    const char *mode = arg_string(l, 1);
    bool complete = mode && mode[0] == 'c', with_q = !mode || mode[0] != 'r' || mode[1] != '\0';
    int64_t m = a->dims[1], k = m < a->dims[2] ? m : a->dims[2], width = complete ? m : k;
    householder_factor(b, a, &factored, &tau);
    set_reshaped(l, 1, matrix_triangle(b, hlo_slice_dim(b, factored, 1, 0, complete ? m : k, 1), false));
    hlo_value one = with_q ? matrix_identity(b, a->dtype, a->dims[0], m, width) : NULL;
    if (with_q)
        set_reshaped(l, 0, householder_apply(b, factored, tau, one, false));
    else
        result_set(l, 0, index_zeros(b, a->dtype, result_rank(l, 0), result_dims(l, 0)));
}

const op_row ops_qr[] = {
    {"aten::linalg_qr", PROMOTE_NONE, .lower = lower_qr},
    {0},
};
