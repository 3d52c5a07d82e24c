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
    hlo_value largest = reduce_keep(b, HLO_REDUCE_MAXIMUM, x, &d);
    hlo_value e = hlo_exponential(b, hlo_subtract(b, x, largest));
    hlo_value y = hlo_divide(b, e, reduce_keep(b, HLO_REDUCE_ADD, e, &d));
    if (!safe) return y;
    return hlo_select(b, hlo_eq(b, largest, hlo_like(b, largest, -INFINITY)), hlo_like(b, y, 0), y);
}

hlo_value log_softmax_along(hlo_builder *b, hlo_value x, int64_t dim) {
    if (!x || hlo_element_count(x) == 0) return x;
    dim_set d = dims_only(x, dim);
    hlo_value shifted = hlo_subtract(b, x, reduce_keep(b, HLO_REDUCE_MAXIMUM, x, &d));
    hlo_value sum = reduce_keep(b, HLO_REDUCE_ADD, hlo_exponential(b, shifted), &d);
    return hlo_subtract(b, shifted, hlo_log(b, sum));
}

void set_reshaped(lowering *l, int k, hlo_value v) {
    if (v && result_wanted(l, k)) result_set(l, k, hlo_reshape(lower_builder(l), v, result_rank(l, k), result_dims(l, k)));
}
