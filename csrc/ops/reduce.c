/* Reductions: sums, products, extremes, truth values, norms, variances. Half types accumulate in float32, integers in
 * int64: the result's type, which PyTorch's meta kernel says, raised to the type PyTorch accumulates in. */
#include <math.h>

#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/reduction.h"

/* Which dimensions an operator reduces: none of them named in its schema (all), a list, or one. */
static dim_set listed_dims(lowering *l, int argument, hlo_value x) {
    dim_set d = {0};
    if (x) d.n = arg_reduce_dims(l, argument, x->rank, d.dims);
    return d;
}

/* `int? dim`: None means all. */
static dim_set optional_dim(lowering *l, int argument, hlo_value x) {
    if (!x || !arg_given(l, argument)) return dims_all(x);
    int64_t dim = dim_wrap(arg_int(l, argument), x->rank);
    if (dim < 0) hlo_fail(lower_builder(l), STATUS_INDEX, "Dimension out of range");
    return dims_only(x, dim < 0 ? 0 : dim);
}

/* The operand in the type of the result, then raised: what dtype= rounds away is rounded before. */
static hlo_value accumulated(lowering *l, hlo_value x) {
    hlo_builder *b = lower_builder(l);
    x = hlo_convert(b, x, result_dtype(l, 0));
    return x ? hlo_convert(b, x, dtype_opmath(x->dtype)) : NULL;
}

/* ---- sum, product, mean ---- */

typedef dim_set (*dims_fn)(lowering *l, int argument, hlo_value x);

static dim_set every_dim(lowering *l, int argument, hlo_value x) {
    (void)l, (void)argument;
    return dims_all(x);
}

static void lower_fold(lowering *l, hlo_reduction kind, dims_fn which) {
    hlo_value x = accumulated(l, arg_tensor(l, 0));
    dim_set d = which(l, 1, x);
    set_reshaped(l, 0, reduce_drop(lower_builder(l), kind, x, &d));
}

static void lower_sum(lowering *l) { lower_fold(l, HLO_REDUCE_ADD, every_dim); }
static void lower_sum_dims(lowering *l) { lower_fold(l, HLO_REDUCE_ADD, listed_dims); }
static void lower_prod(lowering *l) { lower_fold(l, HLO_REDUCE_MULTIPLY, every_dim); }
static void lower_prod_dim(lowering *l) { lower_fold(l, HLO_REDUCE_MULTIPLY, optional_dim); }

static void lower_nansum(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (x && dtype_is_float(x->dtype) && !dtype_is_float(result_dtype(l, 0))) {
        math_not_implemented(b, "nansum_cpu", result_dtype(l, 0));
        return;
    }
    if (x && dtype_is_float(x->dtype)) x = hlo_select(b, hlo_is_nan(b, x), hlo_like(b, x, 0), x);
    x = accumulated(l, x);
    dim_set d = listed_dims(l, 1, x);
    set_reshaped(l, 0, reduce_drop(b, HLO_REDUCE_ADD, x, &d));
}

static void lower_mean_over(lowering *l, dims_fn which) {
    hlo_value x = accumulated(l, arg_tensor(l, 0));
    dim_set d = which(l, 1, x);
    set_reshaped(l, 0, mean_keep(lower_builder(l), x, &d));
}

static void lower_mean(lowering *l) { lower_mean_over(l, every_dim); }
static void lower_mean_dims(lowering *l) { lower_mean_over(l, listed_dims); }

/* ---- extremes ---- */

static void lower_extreme(lowering *l, hlo_reduction kind, dims_fn which) {
    hlo_value x = arg_tensor(l, 0);
    dim_set d = which(l, 1, x);
    set_reshaped(l, 0, reduce_drop(lower_builder(l), kind, x, &d));
}

static void lower_amax(lowering *l) { lower_extreme(l, HLO_REDUCE_MAXIMUM, listed_dims); }
static void lower_amin(lowering *l) { lower_extreme(l, HLO_REDUCE_MINIMUM, listed_dims); }

static void lower_extreme_of_all(lowering *l, hlo_reduction kind, const char *name) {
    hlo_value x = arg_tensor(l, 0);
    if (x && hlo_element_count(x) == 0)
        hlo_fail(lower_builder(l), STATUS_RUNTIME,
                 "%s(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with "
                 "the 'dim' argument.",
                 name);
    else
        lower_extreme(l, kind, every_dim);
}

static void lower_max(lowering *l) { lower_extreme_of_all(l, HLO_REDUCE_MAXIMUM, "max"); }
static void lower_min(lowering *l) { lower_extreme_of_all(l, HLO_REDUCE_MINIMUM, "min"); }

static void lower_aminmax(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    dim_set d = optional_dim(l, 1, x);
    set_reshaped(l, 0, reduce_drop(b, HLO_REDUCE_MINIMUM, x, &d));
    set_reshaped(l, 1, reduce_drop(b, HLO_REDUCE_MAXIMUM, x, &d));
}

static void lower_extreme_with_index(lowering *l, bool largest) {
    hlo_value x = arg_tensor(l, 0), results[2];
    dim_set d = optional_dim(l, 1, x);
    reduce_first(lower_builder(l), x, d.dims[0], largest, results);
    set_reshaped(l, 0, results[0]);
    set_reshaped(l, 1, results[1]);
}

static void lower_max_dim(lowering *l) { lower_extreme_with_index(l, true); }
static void lower_min_dim(lowering *l) { lower_extreme_with_index(l, false); }

static void lower_index_of_extreme(lowering *l, bool largest) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), results[2];
    dim_set d = optional_dim(l, 1, x);
    if (x && !arg_given(l, 1)) x = hlo_reshape(b, x, 1, (int64_t[]){hlo_element_count(x)});
    reduce_first(b, x, arg_given(l, 1) ? d.dims[0] : 0, largest, results);
    set_reshaped(l, 0, results[1]);
}

static void lower_argmax(lowering *l) { lower_index_of_extreme(l, true); }
static void lower_argmin(lowering *l) { lower_index_of_extreme(l, false); }

/* ---- truth values ---- */

static void lower_truth(lowering *l, hlo_reduction kind, dims_fn which) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = hlo_convert(b, arg_tensor(l, 0), DTYPE_BOOL);
    dim_set d = which(l, 1, x);
    set_reshaped(l, 0, reduce_drop(b, kind, x, &d));
}

/* Unlike other reductions, any.dims and all.dims of an empty list reduce nothing. */
static dim_set truth_dims(lowering *l, int argument, hlo_value x) {
    const int64_t *given;
    if (arg_given(l, argument) && arg_ints(l, argument, &given) == 0) return dims_range(0, 0);
    return listed_dims(l, argument, x);
}

static void lower_any(lowering *l) { lower_truth(l, HLO_REDUCE_OR, every_dim); }
static void lower_any_dim(lowering *l) { lower_truth(l, HLO_REDUCE_OR, optional_dim); }
static void lower_any_dims(lowering *l) { lower_truth(l, HLO_REDUCE_OR, truth_dims); }
static void lower_all(lowering *l) { lower_truth(l, HLO_REDUCE_AND, every_dim); }
static void lower_all_dim(lowering *l) { lower_truth(l, HLO_REDUCE_AND, optional_dim); }
static void lower_all_dims(lowering *l) { lower_truth(l, HLO_REDUCE_AND, truth_dims); }

static void lower_count_nonzero_over(lowering *l, dims_fn which) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    dtype count = hlo_element_count(x) <= INT32_MAX ? DTYPE_I32 : DTYPE_I64;
    dim_set d = which(l, 1, x);
    x = hlo_convert(b, hlo_convert(b, x, DTYPE_BOOL), count);
    set_reshaped(l, 0, reduce_drop(b, HLO_REDUCE_ADD, x, &d));
}

static void lower_count_nonzero(lowering *l) { lower_count_nonzero_over(l, optional_dim); }
static void lower_count_nonzero_dims(lowering *l) { lower_count_nonzero_over(l, listed_dims); }

/* ---- norms ---- */

/* dtype= converts the operand; it names the result's type, for a complex operand too (then the complex type is kept).
 */
static void lower_norm_over(lowering *l, dims_fn which) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    dtype t = dtype_opmath(result_dtype(l, 0));
    x = hlo_convert(b, x, dtype_is_complex(x->dtype) && !dtype_is_complex(t) ? dtype_complex(t) : t);
    double p = 2;
    if (arg_given(l, 1)) p = arg_float(l, 1);
    dim_set d = which(l, 2, x);
    set_reshaped(l, 0, norm_drop(b, x, p, &d));
}

static void lower_norm(lowering *l) { lower_norm_over(l, every_dim); }
static void lower_norm_dims(lowering *l) { lower_norm_over(l, listed_dims); }

/* Slices along `dim` whose p-norm is above maxnorm are scaled to it (aten/src/ATen/native/Normalization.cpp, renorm).
 */
static void lower_renorm(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    int64_t dim = dim_wrap(arg_int(l, 2), x->rank);
    dim_set d = dims_except(x, dim);
    hlo_value norm = norm_drop(b, x, arg_float(l, 1), &d);
    if (!norm) return;
    norm = keep_dims(b, norm, x->rank, x->dims, d.n, d.dims);
    hlo_value bound = arg_number(l, 3, norm ? norm->dtype : DTYPE_F32);
    hlo_value factor = hlo_divide(b, bound, hlo_add(b, norm, hlo_like(b, norm, 1e-7)));
    factor = hlo_select(b, hlo_gt(b, norm, bound), factor, hlo_like(b, norm, 1));
    result_set(l, 0, hlo_multiply(b, x, hlo_convert(b, factor, x->dtype)));
}

/* ---- variance ---- */

/* sum |x - mean|^2 / max(0, n - correction), two passes. `mean` is kept for broadcasting. */
static hlo_value variance(lowering *l, hlo_value x, const dim_set *d, hlo_value mean) {
    hlo_builder *b = lower_builder(l);
    hlo_value centred = hlo_subtract(b, x, mean), square;
    if (!centred) return NULL;
    if (dtype_is_complex(x->dtype)) {
        hlo_value re = hlo_real(b, centred), im = hlo_imag(b, centred);
        square = hlo_add(b, hlo_multiply(b, re, re), hlo_multiply(b, im, im));
    } else {
        square = hlo_multiply(b, centred, centred);
    }
    dtype t = dtype_real(x->dtype);
    hlo_value n = hlo_scalar(b, t, dims_count(x, d)), zero = hlo_scalar(b, t, 0);
    hlo_value divisor = hlo_maximum(b, hlo_subtract(b, n, arg_number_or(l, 2, t, 1)), zero);
    return hlo_divide(b, reduce_drop(b, HLO_REDUCE_ADD, square, d), divisor);
}

static void lower_variance(lowering *l, bool root) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    dim_set d = listed_dims(l, 1, x);
    hlo_value mean = mean_keep(b, x, &d), spread = variance(l, x, &d, mean);
    set_reshaped(l, 0, root ? hlo_sqrt(b, spread) : spread);
    set_reshaped(l, 1, mean); /* of var_mean and std_mean */
}

static void lower_var(lowering *l) { lower_variance(l, false); }
static void lower_std(lowering *l) { lower_variance(l, true); }

static void lower_logsumexp(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = hlo_convert(b, arg_tensor(l, 0), dtype_opmath(result_dtype(l, 0)));
    dim_set d = listed_dims(l, 1, x);
    set_reshaped(l, 0, log_sum_exp_drop(b, x, &d));
}

const op_row ops_reduce[] = {
    {"aten::sum", PROMOTE_NONE, .lower = lower_sum},
    {"aten::sum.dim_IntList", PROMOTE_NONE, .lower = lower_sum_dims},
    {"aten::nansum", PROMOTE_NONE, .lower = lower_nansum},
    {"aten::prod", PROMOTE_NONE, .lower = lower_prod},
    {"aten::prod.dim_int", PROMOTE_NONE, .lower = lower_prod_dim},
    {"aten::mean", PROMOTE_NONE, .lower = lower_mean},
    {"aten::mean.dim", PROMOTE_NONE, .lower = lower_mean_dims},
    {"aten::amax", PROMOTE_NONE, .lower = lower_amax},
    {"aten::amin", PROMOTE_NONE, .lower = lower_amin},
    {"aten::aminmax", PROMOTE_NONE, .lower = lower_aminmax},
    {"aten::max", PROMOTE_NONE, .lower = lower_max},
    {"aten::min", PROMOTE_NONE, .lower = lower_min},
    {"aten::max.dim", PROMOTE_NONE, .lower = lower_max_dim},
    {"aten::min.dim", PROMOTE_NONE, .lower = lower_min_dim},
    {"aten::argmax", PROMOTE_NONE, .lower = lower_argmax},
    {"aten::argmin", PROMOTE_NONE, .lower = lower_argmin},
    {"aten::any", PROMOTE_NONE, .lower = lower_any},
    {"aten::any.dim", PROMOTE_NONE, .lower = lower_any_dim},
    {"aten::any.dims", PROMOTE_NONE, .lower = lower_any_dims},
    {"aten::all", PROMOTE_NONE, .lower = lower_all},
    {"aten::all.dim", PROMOTE_NONE, .lower = lower_all_dim},
    {"aten::all.dims", PROMOTE_NONE, .lower = lower_all_dims},
    {"aten::_is_any_true", PROMOTE_NONE, .lower = lower_any},
    {"aten::_is_all_true", PROMOTE_NONE, .lower = lower_all},
    {"aten::count_nonzero", PROMOTE_NONE, .lower = lower_count_nonzero},
    {"aten::count_nonzero.dim_IntList", PROMOTE_NONE, .lower = lower_count_nonzero_dims},
    {"aten::norm.Scalar", PROMOTE_NONE, .lower = lower_norm},
    {"aten::norm.ScalarOpt_dtype", PROMOTE_NONE, .lower = lower_norm},
    {"aten::norm.ScalarOpt_dim", PROMOTE_NONE, .lower = lower_norm_dims},
    {"aten::norm.ScalarOpt_dim_dtype", PROMOTE_NONE, .lower = lower_norm_dims},
    {"aten::linalg_vector_norm", PROMOTE_NONE, .lower = lower_norm_dims},
    {"aten::renorm", PROMOTE_NONE, OP_OPMATH, .lower = lower_renorm},
    {"aten::var.correction", PROMOTE_NONE, OP_OPMATH, .lower = lower_var},
    {"aten::std.correction", PROMOTE_NONE, OP_OPMATH, .lower = lower_std},
    {"aten::var_mean.correction", PROMOTE_NONE, OP_OPMATH, .lower = lower_var},
    {"aten::std_mean.correction", PROMOTE_NONE, OP_OPMATH, .lower = lower_std},
    {"aten::logsumexp", PROMOTE_NONE, .lower = lower_logsumexp},
    {0},
};
