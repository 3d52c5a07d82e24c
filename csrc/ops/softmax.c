/* Softmax and its logarithm, with their gradients. */
#include "ops/ops.h"
#include "ops/reduction.h"

static int64_t softmax_dim(lowering *l, int argument, int64_t absent, hlo_value x) {
    if (!x) return 0;
    int64_t dim = dim_wrap(arg_int_or(l, argument, absent), x->rank);
    if (dim < 0) hlo_fail(lower_builder(l), STATUS_INDEX, "Dimension out of range");
    return dim < 0 ? 0 : dim;
}

static void lower_softmax(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    result_set(l, 0, softmax_along(lower_builder(l), x, softmax_dim(l, 1, -1, x), false));
}

static void lower_log_softmax(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    result_set(l, 0, log_softmax_along(lower_builder(l), x, softmax_dim(l, 1, -1, x)));
}

/* dtype= converts first. */
static void lower_safe_softmax(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = hlo_convert(b, arg_tensor(l, 0), dtype_opmath(result_dtype(l, 0)));
    result_set(l, 0, softmax_along(b, x, softmax_dim(l, 1, -1, x), true));
}

/* (g - sum(g y)) y */
static hlo_value softmax_gradient(hlo_builder *b, hlo_value g, hlo_value y, int64_t dim) {
    dim_set d = dims_only(y, dim);
    return hlo_multiply(b, hlo_subtract(b, g, reduce_keep(b, HLO_REDUCE_ADD, hlo_multiply(b, g, y), &d)), y);
}

static void lower_softmax_backward(lowering *l) {
    hlo_value g = arg_tensor(l, 0), y = arg_tensor(l, 1);
    result_set(l, 0, softmax_gradient(lower_builder(l), g, y, softmax_dim(l, 2, -1, y)));
}

/* g - exp(y) sum(g) */
static void lower_log_softmax_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), y = arg_tensor(l, 1);
    dim_set d = dims_only(y, softmax_dim(l, 2, -1, y));
    hlo_value sum = reduce_keep(b, HLO_REDUCE_ADD, g, &d);
    result_set(l, 0, hlo_subtract(b, g, hlo_multiply(b, hlo_exponential(b, y), sum)));
}

/* True elements of the mask get no weight; a row that is masked whole is NaN. Type 1 pads keys: [B, T] for [B, H, T,
 * T]; type 0 is [T, T]. */
static void lower_masked_softmax(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), mask = arg_tensor(l, 1);
    if (!x || !mask) return;
    if (arg_int_or(l, 3, 2) == 1 && mask->rank == 2 && x->rank == 4)
        mask = hlo_reshape(b, mask, 4, (int64_t[]){mask->dims[0], 1, 1, mask->dims[1]});
    x = hlo_select(b, mask, hlo_min_value(b, x->dtype), x);
    result_set(l, 0, softmax_along(b, x, softmax_dim(l, 2, -1, x), false));
}

static void lower_masked_softmax_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), y = arg_tensor(l, 1), mask = arg_tensor(l, 2);
    g = hlo_select(b, mask, hlo_like(b, g, 0), g);
    y = hlo_select(b, mask, hlo_like(b, y, 0), y);
    result_set(l, 0, softmax_gradient(b, g, y, softmax_dim(l, 3, -1, y)));
}

const op_row ops_softmax[] = {
    {"aten::_softmax", PROMOTE_NONE, OP_OPMATH, .lower = lower_softmax},
    {"aten::_log_softmax", PROMOTE_NONE, OP_OPMATH, .lower = lower_log_softmax},
    {"aten::_safe_softmax", PROMOTE_NONE, .lower = lower_safe_softmax},
    {"aten::_softmax_backward_data", PROMOTE_NONE, OP_OPMATH, .lower = lower_softmax_backward},
    {"aten::_log_softmax_backward_data", PROMOTE_NONE, OP_OPMATH, .lower = lower_log_softmax_backward},
    {"aten::_masked_softmax", PROMOTE_NONE, OP_OPMATH, .lower = lower_masked_softmax},
    {"aten::_masked_softmax_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_masked_softmax_backward},
    {0},
};
