/* Normalisations: batch, layer, group, root-mean-square, weight; forward and backward. All compute in the type PyTorch
 * accumulates in. A "per channel" vector [C] stands in dimension 1 of the operand. */
#include <float.h>

#include "ops/ops.h"
#include "ops/reduction.h"

/* v[C] so that it broadcasts along dimension 1 of x; NULL stays NULL. */
static hlo_value channel(hlo_builder *b, hlo_value v, hlo_value x) {
    if (!v || !x) return NULL;
    int64_t dims[HLO_MAX_RANK];
    for (int i = 0; i < x->rank; i++) dims[i] = i == 1 ? v->dims[0] : 1;
    return v->rank == 1 ? hlo_reshape(b, v, x->rank, dims) : v;
}

static hlo_value times(hlo_builder *b, hlo_value x, hlo_value factor) {
    return factor ? hlo_multiply(b, x, factor) : x;
}
static hlo_value plus(hlo_builder *b, hlo_value x, hlo_value y) { return y ? hlo_add(b, x, y) : x; }

static hlo_value inverse_deviation(lowering *l, hlo_value variance, int eps_argument) {
    hlo_builder *b = lower_builder(l);
    return variance ? hlo_rsqrt(b, hlo_add(b, variance, arg_number(l, eps_argument, variance->dtype))) : NULL;
}

/* Mean, and mean square of the distance from it, over d; kept for broadcasting. */
static void moments(hlo_builder *b, hlo_value x, const dim_set *d, hlo_value *mean, hlo_value *variance) {
    *mean = mean_keep(b, x, d);
    hlo_value centred = hlo_subtract(b, x, *mean);
    *variance = mean_keep(b, hlo_multiply(b, centred, centred), d);
}

/* In the result's shape; an empty result (statistics that are not saved) is filled with nothing. */
static void set_statistic(lowering *l, int k, hlo_value v) {
    if (!result_wanted(l, k)) return;
    hlo_builder *b = lower_builder(l);
    int64_t count = 1;
    for (int i = 0; i < result_rank(l, k); i++) count *= result_dims(l, k)[i];
    if (count == 0 || !v) v = hlo_constant_int(b, result_dtype(l, k), result_rank(l, k), result_dims(l, k), 0);
    result_set(l, k, hlo_reshape(b, v, result_rank(l, k), result_dims(l, k)));
}

/* ---- batch normalisation ---- */

/* Where the operators of one family have their arguments and results. -1: absent. */
typedef struct {
    int running_mean, running_var, training, momentum, eps;
    bool always;           /* no training argument: this value */
    int reserve, new_mean; /* results: the reserve tensor, the first of the two updated statistics */
} batch_norm_form;

/* (1 - momentum) old + momentum new */
static hlo_value moved(lowering *l, hlo_value old, hlo_value now, int momentum_argument) {
    hlo_builder *b = lower_builder(l);
    if (!old || !now) return NULL;
    hlo_value m = arg_number(l, momentum_argument, old->dtype);
    now = hlo_reshape(b, hlo_convert(b, now, old->dtype), old->rank, old->dims);
    return hlo_add(b, hlo_multiply(b, hlo_subtract(b, hlo_like(b, m, 1), m), old), hlo_multiply(b, m, now));
}

/* The running variance takes the unbiased one: over n - 1. */
static hlo_value unbiased(hlo_builder *b, hlo_value variance, double n) {
    return hlo_multiply(b, variance, hlo_like(b, variance, n / (n - 1)));
}

static void lower_batch_norm(lowering *l, const batch_norm_form *f) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), mean, variance;
    hlo_value old_mean = arg_tensor(l, f->running_mean), old_var = arg_tensor(l, f->running_var);
    if (!x) return;
    hlo_value new_mean = old_mean, new_var = old_var;
    if (!old_mean || (f->training >= 0 ? arg_bool(l, f->training) : f->always)) {
        dim_set d = dims_except(x, 1);
        moments(b, x, &d, &mean, &variance);
        new_mean = moved(l, old_mean, mean, f->momentum);
        new_var = old_var ? moved(l, old_var, unbiased(b, variance, dims_count(x, &d)), f->momentum) : NULL;
    } else {
        mean = channel(b, old_mean, x);
        variance = channel(b, old_var, x);
    }
    hlo_value inverse = inverse_deviation(l, variance, f->eps);
    hlo_value y = hlo_multiply(b, hlo_subtract(b, x, mean), inverse);
    y = plus(b, times(b, y, channel(b, arg_tensor(l, 1), x)), channel(b, arg_tensor(l, 2), x));
    result_set(l, 0, y);
    set_statistic(l, 1, mean);
    set_statistic(l, 2, inverse);
    if (f->reserve >= 0) set_statistic(l, f->reserve, NULL);
    if (f->new_mean >= 0) {
        result_set(l, f->new_mean, new_mean);
        result_set(l, f->new_mean + 1, new_var);
    }
}

static void lower_native_batch_norm(lowering *l) {
    lower_batch_norm(l, &(batch_norm_form){3, 4, 5, 6, 7, false, -1, 3});
}
static void lower_batch_norm_no_stats(lowering *l) {
    lower_batch_norm(l, &(batch_norm_form){-1, -1, 3, 4, 5, false, -1, -1});
}
static void lower_batch_norm_no_training(lowering *l) {
    lower_batch_norm(l, &(batch_norm_form){3, 4, -1, 5, 6, false, -1, -1});
}
static void lower_batch_norm_with_update(lowering *l) {
    lower_batch_norm(l, &(batch_norm_form){3, 4, -1, 5, 6, true, 3, 4});
}
static void lower_batch_norm_no_update(lowering *l) {
    lower_batch_norm(l, &(batch_norm_form){3, 4, -1, 5, 6, false, 3, -1});
}

/* With xhat = (x - mean) r: dx = w r (g - mean(g) - xhat mean(g xhat)) when the statistics came from x (Ioffe and
 * Szegedy, "Batch Normalization", 2015), w r g when they are constants. */
static hlo_value normalisation_gradient(hlo_builder *b, hlo_value g, hlo_value xhat, hlo_value inverse,
                                        const dim_set *d) {
    hlo_value inner = hlo_subtract(b, g, mean_keep(b, g, d));
    inner = hlo_subtract(b, inner, hlo_multiply(b, xhat, mean_keep(b, hlo_multiply(b, g, xhat), d)));
    return hlo_multiply(b, inner, inverse);
}

/* (grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask) */
static void lower_batch_norm_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = arg_tensor(l, 1), weight = channel(b, arg_tensor(l, 2), x);
    bool train = arg_bool(l, 7);
    hlo_value mean = channel(b, arg_tensor(l, train ? 5 : 3), x);
    hlo_value inverse = channel(b, train ? arg_tensor(l, 6) : inverse_deviation(l, arg_tensor(l, 4), 8), x);
    hlo_value xhat = hlo_multiply(b, hlo_subtract(b, x, mean), inverse);
    dim_set d = dims_except(x, 1);
    hlo_value dx = train ? normalisation_gradient(b, g, xhat, inverse, &d) : hlo_multiply(b, g, inverse);
    result_set(l, 0, times(b, dx, weight));
    result_set(l, 1, reduce_drop(b, HLO_REDUCE_ADD, hlo_multiply(b, g, xhat), &d));
    result_set(l, 2, reduce_drop(b, HLO_REDUCE_ADD, g, &d));
}

/* ---- batch normalisation in steps, for statistics gathered over devices ---- */

/* (input, eps) -> mean, invstd */
static void lower_batch_norm_stats(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), mean, variance;
    dim_set d = dims_except(x, 1);
    moments(b, x, &d, &mean, &variance);
    set_statistic(l, 0, mean);
    set_statistic(l, 1, inverse_deviation(l, variance, 1));
}

/* (input, weight, bias, mean, invstd, eps) */
static void lower_batch_norm_elemt(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    hlo_value y = hlo_subtract(b, x, channel(b, arg_tensor(l, 3), x));
    y = times(b, hlo_multiply(b, y, channel(b, arg_tensor(l, 4), x)), channel(b, arg_tensor(l, 1), x));
    result_set(l, 0, plus(b, y, channel(b, arg_tensor(l, 2), x)));
}

/* (grad_out, input, mean, invstd, weight, input_g, weight_g, bias_g) -> sum_dy, sum_dy_xmu, grad_weight, grad_bias */
static void lower_batch_norm_backward_reduce(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = arg_tensor(l, 1);
    dim_set d = dims_except(x, 1);
    hlo_value sum = reduce_drop(b, HLO_REDUCE_ADD, g, &d);
    hlo_value centred = hlo_subtract(b, x, channel(b, arg_tensor(l, 2), x));
    hlo_value product = reduce_drop(b, HLO_REDUCE_ADD, hlo_multiply(b, g, centred), &d);
    result_set(l, 0, sum);
    result_set(l, 1, product);
    result_set(l, 2, hlo_multiply(b, product, arg_tensor(l, 3)));
    result_set(l, 3, sum);
}

/* (grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count): the sums are over all devices. */
static void lower_batch_norm_backward_elemt(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = arg_tensor(l, 1), count = arg_tensor(l, 7);
    if (!g || !x || !count) return;
    dim_set all = dims_all(count);
    hlo_value n = hlo_convert(b, reduce_drop(b, HLO_REDUCE_ADD, count, &all), x->dtype);
    hlo_value inverse = channel(b, arg_tensor(l, 3), x);
    hlo_value centred = hlo_subtract(b, x, channel(b, arg_tensor(l, 2), x));
    hlo_value mean_g = hlo_divide(b, channel(b, arg_tensor(l, 5), x), n);
    hlo_value slope =
        hlo_multiply(b, hlo_divide(b, channel(b, arg_tensor(l, 6), x), n), hlo_multiply(b, inverse, inverse));
    hlo_value dx = hlo_subtract(b, hlo_subtract(b, g, mean_g), hlo_multiply(b, centred, slope));
    result_set(l, 0, times(b, hlo_multiply(b, dx, inverse), channel(b, arg_tensor(l, 4), x)));
}

/* (input, mean, invstd, running_mean, running_var, momentum, eps, count or counts) -> mean, invstd of all devices'
 * elements. mean and invstd are [devices, C]; the variances are combined as Chan, Golub and LeVeque do (1983). */
static void lower_batch_norm_gather_stats(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value means = arg_tensor(l, 1), inverses = arg_tensor(l, 2);
    if (!means || !inverses || means->rank != 2) return;
    dtype t = means->dtype;
    hlo_value counts = arg_is_tensor(l, 7) ? arg_tensor(l, 7) : arg_number(l, 7, t);
    counts = hlo_convert(b, counts, t);
    if (counts && counts->rank == 1) counts = hlo_reshape(b, counts, 2, (int64_t[]){counts->dims[0], 1});
    counts = hlo_broadcast_to(b, counts, 2, (int64_t[]){means->dims[0], 1});
    dim_set d = dims_only(means, 0);
    hlo_value n = reduce_keep(b, HLO_REDUCE_ADD, counts, &d);
    hlo_value mean = hlo_divide(b, reduce_keep(b, HLO_REDUCE_ADD, hlo_multiply(b, means, counts), &d), n);
    hlo_value square = hlo_divide(b, hlo_like(b, inverses, 1), hlo_multiply(b, inverses, inverses));
    hlo_value variance = hlo_subtract(b, square, arg_number(l, 6, t)), apart = hlo_subtract(b, means, mean);
    hlo_value sum = hlo_multiply(b, hlo_add(b, variance, hlo_multiply(b, apart, apart)), counts);
    sum = reduce_keep(b, HLO_REDUCE_ADD, sum, &d);
    hlo_value old_mean = arg_tensor(l, 3), old_var = arg_tensor(l, 4);
    set_statistic(l, 0, mean);
    set_statistic(l, 1, inverse_deviation(l, hlo_divide(b, sum, n), 6));
    result_set(l, 2, moved(l, old_mean, mean, 5));
    if (old_var) {
        hlo_value c = hlo_broadcast_to(b, hlo_divide(b, sum, hlo_subtract(b, n, hlo_like(b, n, 1))), 2,
                                       (int64_t[]){1, means->dims[1]});
        result_set(l, 3, moved(l, old_var, c, 5));
    }
}

/* (input, running_mean, running_var, momentum) -> mean, biased variance */
static void lower_batch_norm_update_stats(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), mean, variance, old_var = arg_tensor(l, 2);
    dim_set d = dims_except(x, 1);
    moments(b, x, &d, &mean, &variance);
    set_statistic(l, 0, mean);
    set_statistic(l, 1, variance);
    result_set(l, 2, moved(l, arg_tensor(l, 1), mean, 3));
    if (old_var) result_set(l, 3, moved(l, old_var, unbiased(b, variance, dims_count(x, &d)), 3));
}

/* ---- layer normalisation ---- */

/* The last dimensions, as many as argument i lists. */
static dim_set normalized_dims(lowering *l, int i, hlo_value x) {
    const int64_t *shape;
    int n = arg_ints(l, i, &shape);
    return x ? dims_range(x->rank - n, x->rank) : dims_range(0, 0);
}

static dim_set outer_dims(hlo_value x, const dim_set *inner) { return dims_range(0, x ? x->rank - inner->n : 0); }

/* (input, normalized_shape, weight, bias, eps) -> output, mean, rstd */
static void lower_layer_norm(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), mean, variance;
    dim_set d = normalized_dims(l, 1, x);
    moments(b, x, &d, &mean, &variance);
    hlo_value inverse = inverse_deviation(l, variance, 4);
    hlo_value y = times(b, hlo_multiply(b, hlo_subtract(b, x, mean), inverse), arg_tensor(l, 2));
    result_set(l, 0, plus(b, y, arg_tensor(l, 3)));
    set_statistic(l, 1, mean);
    set_statistic(l, 2, inverse);
}

/* (grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask) */
static void lower_layer_norm_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = arg_tensor(l, 1), inverse = arg_tensor(l, 4);
    dim_set d = normalized_dims(l, 2, x), outer = outer_dims(x, &d);
    hlo_value xhat = hlo_multiply(b, hlo_subtract(b, x, arg_tensor(l, 3)), inverse);
    result_set(l, 0, normalisation_gradient(b, times(b, g, arg_tensor(l, 5)), xhat, inverse, &d));
    result_set(l, 1, reduce_drop(b, HLO_REDUCE_ADD, hlo_multiply(b, g, xhat), &outer));
    result_set(l, 2, reduce_drop(b, HLO_REDUCE_ADD, g, &outer));
}

/* (input, normalized_shape, weight, eps) -> output, rstd. No eps: the machine epsilon of the type it computes in. */
static void lower_rms_norm(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    dim_set d = normalized_dims(l, 1, x);
    hlo_value eps = arg_number_or(l, 3, x->dtype, x->dtype == DTYPE_F64 ? DBL_EPSILON : FLT_EPSILON);
    hlo_value inverse = hlo_rsqrt(b, hlo_add(b, mean_keep(b, hlo_multiply(b, x, x), &d), eps));
    result_set(l, 0, times(b, hlo_multiply(b, x, inverse), arg_tensor(l, 2)));
    set_statistic(l, 1, inverse);
}

/* (grad_out, input, normalized_shape, rstd, weight, output_mask): dx = r (w g - xhat mean(w g xhat)) */
static void lower_rms_norm_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = arg_tensor(l, 1), inverse = arg_tensor(l, 3);
    dim_set d = normalized_dims(l, 2, x), outer = outer_dims(x, &d);
    hlo_value xhat = hlo_multiply(b, x, inverse), weighted = times(b, g, arg_tensor(l, 4));
    hlo_value slope = mean_keep(b, hlo_multiply(b, weighted, xhat), &d);
    result_set(l, 0, hlo_multiply(b, hlo_subtract(b, weighted, hlo_multiply(b, xhat, slope)), inverse));
    result_set(l, 1, reduce_drop(b, HLO_REDUCE_ADD, hlo_multiply(b, g, xhat), &outer));
}

/* ---- group normalisation: dimension 1 of C channels seen as groups of C / groups ---- */

typedef struct {
    int64_t n, c, hw, groups;
} group_shape;

/* The four ints that start at argument i. */
static group_shape read_group_shape(lowering *l, int i) {
    group_shape s = {arg_int(l, i), arg_int(l, i + 1), arg_int(l, i + 2), arg_int(l, i + 3)};
    if (s.groups <= 0 || s.c % s.groups) {
        hlo_fail(lower_builder(l), STATUS_RUNTIME,
                 "Expected number of channels in input to be divisible by num_groups, but got %lld channels and "
                 "num_groups=%lld",
                 (long long)s.c, (long long)s.groups);
        s.groups = s.c = 1;
    }
    return s;
}

/* [N, C, ...] as [N, groups, C / groups, HxW]; [C] and [N, groups] to match. */
static hlo_value grouped(hlo_builder *b, hlo_value x, const group_shape *s) {
    return hlo_reshape(b, x, 4, (int64_t[]){s->n, s->groups, s->c / s->groups, s->hw});
}
static hlo_value grouped_channel(hlo_builder *b, hlo_value v, const group_shape *s) {
    return v ? hlo_reshape(b, v, 4, (int64_t[]){1, s->groups, s->c / s->groups, 1}) : NULL;
}
static hlo_value grouped_statistic(hlo_builder *b, hlo_value v, const group_shape *s) {
    return hlo_reshape(b, v, 4, (int64_t[]){s->n, s->groups, 1, 1});
}

/* (input, weight, bias, N, C, HxW, group, eps) -> output, mean, rstd */
static void lower_group_norm(lowering *l) {
    hlo_builder *b = lower_builder(l);
    group_shape s = read_group_shape(l, 3);
    hlo_value x = grouped(b, arg_tensor(l, 0), &s), mean, variance;
    dim_set d = dims_range(2, 4);
    moments(b, x, &d, &mean, &variance);
    hlo_value inverse = inverse_deviation(l, variance, 7);
    hlo_value y =
        times(b, hlo_multiply(b, hlo_subtract(b, x, mean), inverse), grouped_channel(b, arg_tensor(l, 1), &s));
    set_reshaped(l, 0, plus(b, y, grouped_channel(b, arg_tensor(l, 2), &s)));
    set_statistic(l, 1, mean);
    set_statistic(l, 2, inverse);
}

/* (grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask) */
static void lower_group_norm_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    group_shape s = read_group_shape(l, 5);
    hlo_value g = grouped(b, arg_tensor(l, 0), &s), x = grouped(b, arg_tensor(l, 1), &s);
    hlo_value inverse = grouped_statistic(b, arg_tensor(l, 3), &s);
    hlo_value xhat = hlo_multiply(b, hlo_subtract(b, x, grouped_statistic(b, arg_tensor(l, 2), &s)), inverse);
    dim_set d = dims_range(2, 4), others = {2, {0, 3}};
    hlo_value weighted = times(b, g, grouped_channel(b, arg_tensor(l, 4), &s));
    set_reshaped(l, 0, normalisation_gradient(b, weighted, xhat, inverse, &d));
    set_reshaped(l, 1, reduce_drop(b, HLO_REDUCE_ADD, hlo_multiply(b, g, xhat), &others));
    set_reshaped(l, 2, reduce_drop(b, HLO_REDUCE_ADD, g, &others));
}

/* ---- weight normalisation: g v / |v|, the norm over all dimensions but one ---- */

static dim_set weight_dims(lowering *l, int argument, hlo_value v) {
    return v ? dims_except(v, dim_wrap(arg_int_or(l, argument, 0), v->rank)) : dims_range(0, 0);
}

/* (v, g, dim) -> w, norms */
static void lower_weight_norm(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value v = arg_tensor(l, 0);
    dim_set d = weight_dims(l, 2, v);
    hlo_value norm = hlo_sqrt(b, reduce_keep(b, HLO_REDUCE_ADD, hlo_multiply(b, v, v), &d));
    result_set(l, 0, hlo_multiply(b, v, hlo_divide(b, arg_tensor(l, 1), norm)));
    set_statistic(l, 1, norm);
}

/* (grad_w, saved_v, saved_g, saved_norms, dim) -> grad_v, grad_g */
static void lower_weight_norm_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value grad = arg_tensor(l, 0), v = arg_tensor(l, 1), norm = arg_tensor(l, 3);
    dim_set d = weight_dims(l, 4, v);
    hlo_value product = hlo_divide(b, reduce_keep(b, HLO_REDUCE_ADD, hlo_multiply(b, grad, v), &d), norm);
    hlo_value along = hlo_multiply(b, v, hlo_divide(b, product, norm));
    result_set(l, 0, hlo_multiply(b, hlo_subtract(b, grad, along), hlo_divide(b, arg_tensor(l, 2), norm)));
    set_statistic(l, 1, product);
}

const op_row ops_norm[] = {
    {"aten::native_batch_norm", PROMOTE_NONE, OP_OPMATH, .lower = lower_native_batch_norm, .hidden_writes = {4, 5}},
    {"aten::_native_batch_norm_legit", PROMOTE_NONE, OP_OPMATH, .lower = lower_native_batch_norm},
    {"aten::_native_batch_norm_legit_functional", PROMOTE_NONE, OP_OPMATH, .lower = lower_native_batch_norm},
    {"aten::_native_batch_norm_legit.no_stats", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_no_stats},
    {"aten::_native_batch_norm_legit_no_training", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_no_training},
    {"aten::_batch_norm_with_update", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_with_update},
    {"aten::_batch_norm_with_update_functional", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_with_update},
    {"aten::_batch_norm_no_update", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_no_update},
    {"aten::native_batch_norm_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_backward},
    {"aten::batch_norm_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_backward},
    {"aten::batch_norm_stats", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_stats},
    {"aten::batch_norm_elemt", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_elemt},
    {"aten::batch_norm_backward_reduce", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_backward_reduce},
    {"aten::batch_norm_backward_elemt", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_backward_elemt},
    {"aten::batch_norm_gather_stats", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_gather_stats,
     .hidden_writes = {4, 5}},
    {"aten::batch_norm_gather_stats_with_counts", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_gather_stats,
     .hidden_writes = {4, 5}},
    {"aten::batch_norm_update_stats", PROMOTE_NONE, OP_OPMATH, .lower = lower_batch_norm_update_stats,
     .hidden_writes = {2, 3}},
    {"aten::native_layer_norm", PROMOTE_NONE, OP_OPMATH, .lower = lower_layer_norm},
    {"aten::native_layer_norm_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_layer_norm_backward},
    {"aten::_fused_rms_norm", PROMOTE_NONE, OP_OPMATH, .lower = lower_rms_norm},
    {"aten::_fused_rms_norm_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_rms_norm_backward},
    {"aten::native_group_norm", PROMOTE_NONE, OP_OPMATH, .lower = lower_group_norm},
    {"aten::native_group_norm_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_group_norm_backward},
    {"aten::_weight_norm_interface", PROMOTE_NONE, OP_OPMATH, .lower = lower_weight_norm},
    {"aten::_weight_norm_interface_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_weight_norm_backward},
    {0},
};
