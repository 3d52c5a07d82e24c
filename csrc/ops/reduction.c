/* Reductions over sets of dimensions. */
#include "ops/reduction.h"

#include <math.h>

dim_set dims_range(int64_t first, int64_t limit) {
    dim_set d = {0};
    for (int64_t i = first; i < limit; i++) d.dims[d.n++] = i;
    return d;
}

dim_set dims_all(hlo_value x) { return dims_range(0, x ? x->rank : 0); }

dim_set dims_only(hlo_value x, int64_t dim) {
    dim_set d = {0};
    if (x && x->rank) d.dims[d.n++] = dim;
    return d;
}

dim_set dims_except(hlo_value x, int64_t dim) {
    dim_set d = {0};
    for (int64_t i = 0; x && i < x->rank; i++)
        if (i != dim) d.dims[d.n++] = i;
    return d;
}

double dims_count(hlo_value x, const dim_set *d) {
    double count = 1;
    for (int i = 0; x && i < d->n; i++) count *= (double)x->dims[d->dims[i]];
    return count;
}

hlo_value reduce_drop(hlo_builder *b, hlo_reduction kind, hlo_value x, const dim_set *d) {
    return x && d->n ? hlo_reduce(b, kind, x, d->n, d->dims) : x;
}

hlo_value reduce_keep(hlo_builder *b, hlo_reduction kind, hlo_value x, const dim_set *d) {
    if (!x || !d->n) return x;
    return keep_dims(b, hlo_reduce(b, kind, x, d->n, d->dims), x->rank, x->dims, d->n, d->dims);
}

hlo_value mean_keep(hlo_builder *b, hlo_value x, const dim_set *d) {
    hlo_value sum = reduce_keep(b, HLO_REDUCE_ADD, x, d);
    return hlo_divide(b, sum, hlo_like(b, sum, dims_count(x, d)));
}

hlo_value sum_to(hlo_builder *b, hlo_value x, int rank, const int64_t *dims) {
    if (!x) return NULL;
    dim_set d = {0};
    int lead = x->rank - rank;
    for (int i = 0; i < x->rank; i++)
        if (i < lead || (dims[i - lead] == 1 && x->dims[i] != 1)) d.dims[d.n++] = i;
    return hlo_reshape(b, reduce_drop(b, HLO_REDUCE_ADD, x, &d), rank, dims);
}

hlo_value norm_drop(hlo_builder *b, hlo_value x, double p, const dim_set *d) {
    if (!x) return NULL;
    if (p == 0) {
        hlo_value nonzero = hlo_convert(b, hlo_convert(b, x, DTYPE_BOOL), dtype_real(x->dtype));
        return reduce_drop(b, HLO_REDUCE_ADD, nonzero, d);
    }
    hlo_value size = hlo_abs(b, x);
    if (!size) return NULL;
    if (isinf(p)) return reduce_drop(b, p > 0 ? HLO_REDUCE_MAXIMUM : HLO_REDUCE_MINIMUM, size, d);
    if (d->n == 0 || p == 1) return reduce_drop(b, HLO_REDUCE_ADD, size, d);
    if (p == 2) return hlo_sqrt(b, reduce_drop(b, HLO_REDUCE_ADD, hlo_multiply(b, size, size), d));
    hlo_value sum = reduce_drop(b, HLO_REDUCE_ADD, hlo_power(b, size, hlo_like(b, size, p)), d);
    return hlo_power(b, sum, hlo_like(b, sum, 1 / p));
}

hlo_value log_sum_exp_drop(hlo_builder *b, hlo_value x, const dim_set *d) {
    if (!x) return NULL;
    hlo_value largest = reduce_keep(b, HLO_REDUCE_MAXIMUM, dtype_is_complex(x->dtype) ? hlo_real(b, x) : x, d);
    hlo_value infinite = hlo_eq(b, hlo_abs(b, largest), hlo_like(b, largest, INFINITY));
    largest = hlo_convert(b, hlo_select(b, infinite, hlo_like(b, largest, 0), largest), x->dtype);
    hlo_value sum = reduce_drop(b, HLO_REDUCE_ADD, hlo_exponential(b, hlo_subtract(b, x, largest)), d);
    return sum ? hlo_add(b, hlo_log(b, sum), hlo_reshape(b, largest, sum->rank, sum->dims)) : NULL;
}

hlo_value softmax_along(hlo_builder *b, hlo_value x, int64_t dim, bool safe) {
    if (!x || hlo_element_count(x) == 0) return x;
    dim_set d = dims_only(x, dim);
    hlo_value e = hlo_exponential(b, hlo_subtract(b, x, reduce_keep(b, HLO_REDUCE_MAXIMUM, x, &d)));
    if (safe) e = hlo_select(b, hlo_eq(b, x, hlo_like(b, x, -INFINITY)), hlo_like(b, e, 0), e);
    hlo_value sum = reduce_keep(b, HLO_REDUCE_ADD, e, &d);
    /* The largest element's share is 1: less is the sum of nothing. */
    return hlo_divide(b, e, safe ? hlo_maximum(b, sum, hlo_like(b, sum, 0.5)) : sum);
}

hlo_value log_softmax_along(hlo_builder *b, hlo_value x, int64_t dim) {
    if (!x || hlo_element_count(x) == 0) return x;
    dim_set d = dims_only(x, dim);
    hlo_value shifted = hlo_subtract(b, x, reduce_keep(b, HLO_REDUCE_MAXIMUM, x, &d));
    hlo_value sum = reduce_keep(b, HLO_REDUCE_ADD, hlo_exponential(b, shifted), &d);
    return hlo_subtract(b, shifted, hlo_log(b, sum));
}

/* Region over (value, index) pairs: the better value, of equal ones the first, and the first NaN before everything. */
static hlo_region *first_extreme(hlo_builder *b, dtype t, dtype index, hlo_direction better) {
    hlo_type types[4] = {{t, 0, NULL}, {index, 0, NULL}, {t, 0, NULL}, {index, 0, NULL}};
    hlo_value a[4], results[2];
    hlo_region_begin(b, 4, types, a);
    hlo_value take = hlo_compare(b, better, a[2], a[0]), same = hlo_eq(b, a[2], a[0]);
    if (dtype_is_float(t)) {
        hlo_value new_nan = hlo_is_nan(b, a[2]), old_nan = hlo_is_nan(b, a[0]);
        take = hlo_or(b, hlo_and(b, take, hlo_not(b, old_nan)), hlo_and(b, new_nan, hlo_not(b, old_nan)));
        same = hlo_or(b, same, hlo_and(b, new_nan, old_nan));
    }
    take = hlo_or(b, take, hlo_and(b, same, hlo_lt(b, a[3], a[1])));
    for (int i = 0; i < 2; i++) results[i] = hlo_select(b, take, a[2 + i], a[i]);
    return hlo_region_end(b, 2, results);
}

void reduce_first(hlo_builder *b, hlo_value x, int64_t dim, bool largest, hlo_value results[2]) {
    results[0] = x;
    results[1] = hlo_constant_int(b, DTYPE_I64, 0, NULL, 0);
    if (!x || x->rank == 0) return;
    dtype index = x->dims[dim] <= INT32_MAX ? DTYPE_I32 : DTYPE_I64;
    hlo_value operands[2] = {x, hlo_iota(b, index, x->rank, x->dims, (int)dim)};
    hlo_value init[2] = {largest ? hlo_min_value(b, x->dtype) : hlo_max_value(b, x->dtype), hlo_max_value(b, index)};
    hlo_region *body = first_extreme(b, x->dtype, index, largest ? HLO_GT : HLO_LT);
    hlo_reduce_region(b, 2, operands, init, 1, &dim, body, results);
}

void set_reshaped(lowering *l, int k, hlo_value v) {
    if (v && result_wanted(l, k))
        result_set(l, k, hlo_reshape(lower_builder(l), v, result_rank(l, k), result_dims(l, k)));
}
