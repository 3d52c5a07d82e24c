/* Matrix products. */
#include "ops/matmul.h"

#include "ops/ops.h"
#include "ops/reduction.h"

hlo_value contract(hlo_builder *b, hlo_value x, int cx, hlo_value y, int cy, int n_batch) {
    if (!x || !y) return NULL;
    if (x->dtype != y->dtype)
        return hlo_fail(b, STATUS_RUNTIME, "expected both operands to have the same dtype, but got: %s != %s",
                        dtype_torch_name(x->dtype), dtype_torch_name(y->dtype));
    hlo_dot_dims d = {.n_batch = n_batch, .n_contract = 1, .lhs_contract = {cx}, .rhs_contract = {cy}};
    for (int i = 0; i < n_batch; i++) d.lhs_batch[i] = d.rhs_batch[i] = i;
    return hlo_dot_general(b, x, y, &d, dtype_opmath(x->dtype));
}

/* ---- products of matrices whose rows were merged ----
 *
 * Layers see x [batch, length, K] as [batch * length, K]. The product with x as it was is the same, and the compiler
 * for TPUs can make one kernel of it and of what comes before and after, which work on the dimensions apart. */

/* What the matrix x merges the leading dimensions of, or NULL. */
static hlo_value unmerged(hlo_value x) {
    hlo_value source = hlo_reshaped_from(x);
    bool merges = source && x->rank == 2 && source->rank > 2 && source->dims[source->rank - 1] == x->dims[1];
    return merges && hlo_element_count(x) > 0 ? source : NULL;
}

static hlo_value rows_product(hlo_builder *b, hlo_value x, hlo_value rows, hlo_value y) {
    hlo_value product = contract(b, rows, rows->rank - 1, y, 0, 0);
    return product ? hlo_reshape(b, product, 2, (int64_t[]){x->dims[0], y->dims[1]}) : NULL;
}

/* x^T y, which sums over the rows: as they were on both sides, or NULL. */
static hlo_value rows_sum_product(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!x || !y || x->rank != y->rank || x->dtype != y->dtype) return NULL;
    hlo_dot_dims d = {.n_contract = x->rank - 1};
    for (int i = 0; i < d.n_contract; i++) {
        if (x->dims[i] != y->dims[i]) return NULL;
        d.lhs_contract[i] = d.rhs_contract[i] = i;
    }
    return hlo_dot_general(b, x, y, &d, dtype_opmath(x->dtype));
}

hlo_value matrix_product(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!x || !y) return NULL;
    bool matrices = x->rank == 2 && y->rank == 2;
    hlo_value rows = matrices ? unmerged(x) : NULL;
    if (rows) return rows_product(b, x, rows, y);
    hlo_value transposed = matrices ? hlo_transposed_from(x) : NULL;
    hlo_value sum = transposed ? rows_sum_product(b, unmerged(transposed), unmerged(y)) : NULL;
    return sum ? sum : contract(b, x, x->rank - 1, y, y->rank - 2, x->rank - 2);
}

hlo_value matrix_transpose(hlo_builder *b, hlo_value x) {
    if (!x || x->rank < 2) return x;
    int64_t permutation[HLO_MAX_RANK];
    for (int i = 0; i < x->rank; i++) permutation[i] = i;
    permutation[x->rank - 1] = x->rank - 2;
    permutation[x->rank - 2] = x->rank - 1;
    return hlo_transpose(b, x, permutation);
}

hlo_value matrix_adjoint(hlo_builder *b, hlo_value x) {
    if (x && dtype_is_complex(x->dtype)) x = hlo_conj(b, x);
    return matrix_transpose(b, x);
}

static void lower_mm(lowering *l) {
    result_set(l, 0, matrix_product(lower_builder(l), arg_tensor(l, 0), arg_tensor(l, 1)));
}

static hlo_value flat_dot(hlo_builder *b, hlo_value x, hlo_value y) { return contract(b, x, 0, y, 0, 0); }
static void lower_dot(lowering *l) { result_set(l, 0, flat_dot(lower_builder(l), arg_tensor(l, 0), arg_tensor(l, 1))); }

static void lower_vdot(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (x && dtype_is_complex(x->dtype)) x = hlo_conj(b, x);
    result_set(l, 0, flat_dot(b, x, arg_tensor(l, 1)));
}

static void lower_mv(lowering *l) {
    result_set(l, 0, contract(lower_builder(l), arg_tensor(l, 0), 1, arg_tensor(l, 1), 0, 0));
}

/* ---- beta self + alpha product ---- */

static hlo_value scaled(lowering *l, hlo_value v, int argument) {
    return v && arg_given(l, argument) ? hlo_multiply(lower_builder(l), v, arg_number(l, argument, v->dtype)) : v;
}

/* beta decides structure: 0 ignores self, NaN and all. alpha is a run-time number. */
static hlo_value add_product(lowering *l, hlo_value matrix, int beta, int alpha) {
    hlo_builder *b = lower_builder(l);
    double constant = 1;
    if (!matrix) return NULL;
    hlo_value rows = unmerged(matrix), self = arg_tensor(l, 0);
    bool by_row = rows && self && self->rank < 2; /* a bias: the rows need not be merged for it */
    hlo_value product = scaled(l, by_row ? rows : matrix, alpha);
    bool known = !arg_given(l, beta) || arg_constant(l, beta, &constant);
    if (product && (!known || constant != 0)) {
        self = hlo_convert(b, self, product->dtype);
        if (!known || constant != 1) self = scaled(l, self, beta);
        product = hlo_add(b, self, product);
    }
    return by_row ? hlo_reshape(b, product, 2, matrix->dims) : product;
}

static void lower_addmm(lowering *l) {
    result_set(l, 0, add_product(l, matrix_product(lower_builder(l), arg_tensor(l, 1), arg_tensor(l, 2)), 3, 4));
}

/* out_dtype stands before beta. */
static void lower_addmm_dtype(lowering *l) {
    result_set(l, 0, add_product(l, matrix_product(lower_builder(l), arg_tensor(l, 1), arg_tensor(l, 2)), 4, 5));
}

/* The batch is summed too. */
static void lower_addbmm(lowering *l) {
    hlo_value x = arg_tensor(l, 1), y = arg_tensor(l, 2);
    if (!x || !y) return;
    hlo_dot_dims d = {.n_contract = 2, .lhs_contract = {0, 2}, .rhs_contract = {0, 1}};
    result_set(l, 0, add_product(l, hlo_dot_general(lower_builder(l), x, y, &d, dtype_opmath(x->dtype)), 3, 4));
}

static void lower_addmv(lowering *l) {
    result_set(l, 0, add_product(l, contract(lower_builder(l), arg_tensor(l, 1), 1, arg_tensor(l, 2), 0, 0), 3, 4));
}

static void lower_addr(lowering *l) {
    hlo_value x = arg_tensor(l, 1), y = arg_tensor(l, 2);
    if (!x || !y) return;
    x = hlo_unsqueeze_dim(lower_builder(l), x, 1);
    result_set(l, 0, add_product(l, hlo_multiply(lower_builder(l), x, y), 3, 4));
}

/* relu, or with use_gelu x (1 + erf(x / sqrt 2)) / 2 */
static void lower_addmm_activation(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = add_product(l, matrix_product(b, arg_tensor(l, 1), arg_tensor(l, 2)), 3, 4);
    if (!x) return;
    if (!arg_bool(l, 5)) {
        result_set(l, 0, hlo_maximum(b, x, hlo_like(b, x, 0)));
        return;
    }
    hlo_value erf = hlo_erf(b, hlo_multiply(b, x, hlo_like(b, x, 0.70710678118654752440)));
    result_set(l, 0, hlo_multiply(b, hlo_multiply(b, x, hlo_like(b, x, 0.5)), hlo_add(b, erf, hlo_like(b, x, 1))));
}

/* ---- quantised and scaled ---- */

/* int8 times int8 in int32. */
static void lower_int_mm(lowering *l) {
    hlo_dot_dims d = {.n_contract = 1, .lhs_contract = {1}, .rhs_contract = {0}};
    result_set(l, 0, hlo_dot_general(lower_builder(l), arg_tensor(l, 0), arg_tensor(l, 1), &d, DTYPE_I32));
}

/* (self[M, K], int8 mat2[N, K], scales[N]) */
static void lower_weight_int8pack_mm(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    hlo_value product = contract(b, x, 1, hlo_convert(b, arg_tensor(l, 1), x->dtype), 1, 0);
    result_set(l, 0, product ? hlo_multiply(b, product, hlo_convert(b, arg_tensor(l, 2), product->dtype)) : NULL);
}

/* (self[M, K], mat2[K, N], scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum): scales are one number, or
 * one a row of self ([M, 1]) and a column of mat2 ([1, N]). */
static void lower_scaled_mm(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = hlo_convert(b, arg_tensor(l, 0), DTYPE_F32), y = hlo_convert(b, arg_tensor(l, 1), DTYPE_F32);
    hlo_value product = matrix_product(b, x, y);
    for (int i = 2; i <= 3; i++) product = hlo_multiply(b, product, hlo_convert(b, arg_tensor(l, i), DTYPE_F32));
    if (arg_given(l, 4)) product = hlo_add(b, product, hlo_convert(b, arg_tensor(l, 4), DTYPE_F32));
    if (arg_given(l, 5)) product = hlo_multiply(b, product, hlo_convert(b, arg_tensor(l, 5), DTYPE_F32));
    set_reshaped(l, 0, product);
}

/* ---- linear and bilinear layers ---- */

/* x[..., n] as [rows, n] */
static hlo_value as_rows(hlo_builder *b, hlo_value x) {
    if (!x || x->rank == 0) return NULL;
    int64_t rows = 1, n = x->dims[x->rank - 1];
    for (int i = 0; i + 1 < x->rank; i++) rows *= x->dims[i];
    return hlo_reshape(b, x, 2, (int64_t[]){rows, n});
}

/* (self, grad_output, weight, output_mask) -> gradients of input, weight, bias */
static void lower_linear_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = as_rows(b, arg_tensor(l, 0)), g = as_rows(b, arg_tensor(l, 1));
    set_reshaped(l, 0, matrix_product(b, g, arg_tensor(l, 2)));
    result_set(l, 1, contract(b, g, 0, x, 0, 0));
    dim_set rows = dims_range(0, 1);
    result_set(l, 2, reduce_drop(b, HLO_REDUCE_ADD, hlo_convert(b, g, g ? dtype_opmath(g->dtype) : DTYPE_F32), &rows));
}

/* (i1, i2, i3, expand1, expand2, expand3, sumdim): every operand gets dimensions of size 1 where its list says; the
 * product is summed over sumdim. */
static void lower_trilinear(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value product = NULL;
    for (int i = 0; i < 3; i++) {
        const int64_t *expand;
        hlo_value x = arg_tensor(l, i);
        int n = arg_ints(l, 3 + i, &expand);
        bool here[HLO_MAX_RANK] = {false};
        for (int k = 0; k < n; k++) here[dim_wrap(expand[k], x ? x->rank + n : HLO_MAX_RANK)] = true;
        for (int d = 0; x && d < HLO_MAX_RANK; d++)
            if (here[d]) x = hlo_unsqueeze_dim(b, x, d);
        product = product ? hlo_multiply(b, product, x) : x;
    }
    dim_set d = {0};
    if (product) d.n = arg_reduce_dims(l, 6, product->rank, d.dims);
    const int64_t *listed;
    if (arg_ints(l, 6, &listed) == 0) d.n = 0;
    set_reshaped(l, 0, reduce_drop(b, HLO_REDUCE_ADD, product, &d));
}

const op_row ops_matmul[] = {
    {"aten::mm", PROMOTE_NONE, .lower = lower_mm},
    {"aten::mm.dtype", PROMOTE_NONE, .lower = lower_mm},
    {"aten::bmm", PROMOTE_NONE, .lower = lower_mm},
    {"aten::bmm.dtype", PROMOTE_NONE, .lower = lower_mm},
    {"aten::mv", PROMOTE_NONE, .lower = lower_mv},
    {"aten::dot", PROMOTE_NONE, .lower = lower_dot},
    {"aten::vdot", PROMOTE_NONE, .lower = lower_vdot},
    {"aten::addmm", PROMOTE_NONE, .lower = lower_addmm},
    {"aten::addmm.dtype", PROMOTE_NONE, .lower = lower_addmm_dtype},
    {"aten::baddbmm", PROMOTE_NONE, .lower = lower_addmm},
    {"aten::baddbmm.dtype", PROMOTE_NONE, .lower = lower_addmm_dtype},
    {"aten::addbmm", PROMOTE_NONE, .lower = lower_addbmm},
    {"aten::addmv", PROMOTE_NONE, .lower = lower_addmv},
    {"aten::addr", PROMOTE_RESULT, OP_OPMATH, .lower = lower_addr},
    {"aten::_addmm_activation", PROMOTE_NONE, .lower = lower_addmm_activation},
    {"aten::_int_mm", PROMOTE_NONE, .lower = lower_int_mm},
    {"aten::_weight_int8pack_mm", PROMOTE_NONE, .lower = lower_weight_int8pack_mm},
    {"aten::_scaled_mm", PROMOTE_NONE, .lower = lower_scaled_mm},
    {"aten::linear_backward", PROMOTE_NONE, .lower = lower_linear_backward},
    {"aten::_trilinear", PROMOTE_NONE, OP_OPMATH, .lower = lower_trilinear},
    {0},
};
