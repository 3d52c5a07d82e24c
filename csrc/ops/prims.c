/* Primitive operators (torch._prims) that reduce and draw random numbers; PyTorch's decompositions and references end
 * in them. The views are in shape.c, factories and elementwise ones with their ATen namesakes. */
#include <math.h>

#include "ops/ops.h"

/* ---- reductions: (inp, dims, .., output_dtype); types are promoted before, the result's is known ---- */

/* PyTorch's kernels take an empty list as all dimensions, its metadata as none: the result's rank tells which. */
static int reduced_dims(lowering *l, hlo_value x, int64_t *dims) {
    return result_rank(l, 0) == x->rank ? 0 : arg_reduce_dims(l, 1, x->rank, dims);
}

static void reduce(lowering *l, hlo_reduction kind, bool in_result_dtype) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    int64_t dims[HLO_MAX_RANK];
    if (!x) return;
    int n = reduced_dims(l, x, dims);
    if (in_result_dtype) x = hlo_convert(b, x, dtype_opmath(result_dtype(l, 0)));
    result_set(l, 0, hlo_reduce(b, kind, x, n, dims));
}

static void lower_sum(lowering *l) { reduce(l, HLO_REDUCE_ADD, true); }
static void lower_prod(lowering *l) { reduce(l, HLO_REDUCE_MULTIPLY, true); }
static void lower_amax(lowering *l) { reduce(l, HLO_REDUCE_MAXIMUM, false); }
static void lower_amin(lowering *l) { reduce(l, HLO_REDUCE_MINIMUM, false); }
static void lower_xor_sum(lowering *l) { reduce(l, HLO_REDUCE_XOR, false); }

/* (inp, dims, correction): the mean squared distance from the mean, over count - correction. */
static void lower_var(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    int64_t dims[HLO_MAX_RANK];
    if (!x) return;
    int n = reduced_dims(l, x, dims);
    double count = 1, correction = arg_float_or(l, 2, 1);
    for (int i = 0; i < n; i++) count *= (double)x->dims[dims[i]];
    hlo_value distance = hlo_subtract(b, x, keep_dims(b, mean_of(b, x, n, dims), x->rank, x->dims, n, dims));
    hlo_value square = hlo_multiply(b, distance, distance);
    if (x && dtype_is_complex(x->dtype)) square = hlo_real(b, hlo_multiply(b, distance, hlo_conj(b, distance)));
    hlo_value sum = square ? hlo_reduce(b, HLO_REDUCE_ADD, square, n, dims) : NULL;
    if (sum) result_set(l, 0, hlo_divide(b, sum, hlo_scalar(b, sum->dtype, fmax(count - correction, 0))));
}

/* ---- copies ---- */

static void lower_identity(lowering *l) { result_set(l, 0, arg_tensor(l, 0)); }

/* ---- random numbers ---- */

/* (shape, mean, std, ..) */
static void lower_normal(lowering *l) {
    hlo_builder *b = lower_builder(l);
    dtype t = result_dtype(l, 0), part = dtype_real(t);
    hlo_value x = random_normal(l, part, result_rank(l, 0), result_dims(l, 0));
    if (dtype_is_complex(t)) {
        hlo_value y = random_normal(l, part, result_rank(l, 0), result_dims(l, 0)),
                  half = hlo_scalar(b, part, sqrt(0.5));
        x = hlo_complex(b, hlo_multiply(b, x, half), hlo_multiply(b, y, half));
    }
    result_set(l, 0, hlo_add(b, hlo_multiply(b, x, arg_number(l, 2, t)), arg_number(l, 1, t)));
}

/* (shape, low, high, ..) */
static void lower_uniform(lowering *l) {
    hlo_builder *b = lower_builder(l);
    dtype t = result_dtype(l, 0);
    hlo_value low = arg_number(l, 1, t), span = hlo_subtract(b, arg_number(l, 2, t), low);
    result_set(l, 0,
               hlo_add(b, hlo_multiply(b, random_uniform(l, t, result_rank(l, 0), result_dims(l, 0)), span), low));
}

const op_row ops_prims[] = {
    {"prims::sum", PROMOTE_NONE, .lower = lower_sum},
    {"prims::prod", PROMOTE_NONE, .lower = lower_prod},
    {"prims::amax", PROMOTE_NONE, .lower = lower_amax},
    {"prims::amin", PROMOTE_NONE, .lower = lower_amin},
    {"prims::xor_sum", PROMOTE_NONE, .lower = lower_xor_sum},
    {"prims::var", PROMOTE_NONE, OP_OPMATH, .lower = lower_var},
    {"prims::device_put", PROMOTE_NONE, .lower = lower_identity},
    {"prims::normal", PROMOTE_NONE, OP_RANDOM, .lower = lower_normal},
    {"prims::uniform", PROMOTE_NONE, OP_RANDOM, .lower = lower_uniform},
    {0},
};
