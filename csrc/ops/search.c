/* Searching: searchsorted, bucketize, isin, histc and histogram, repeat_interleave. */
#include <math.h>
#include <string.h>

#include "ops/indexing.h"
#include "ops/ops.h"
#include "ops/scan.h"
#include "ops/sorting.h"

/* sorted[..., position] for every query; position has the query's shape. */
static hlo_value read_sorted(hlo_builder *b, hlo_value sorted, hlo_value position) {
    if (!sorted || !position) return NULL;
    return sorted->rank == 1 ? index_take(b, sorted, 0, position) : index_gather(b, sorted, sorted->rank - 1, position);
}

hlo_value search_sorted(hlo_builder *b, hlo_value sorted, hlo_value order, hlo_value query, bool right) {
    if (!sorted || !query) return NULL;
    int64_t n = sorted->dims[sorted->rank - 1];
    hlo_value low = index_zeros(b, DTYPE_I32, query->rank, query->dims);
    if (n == 0 || hlo_element_count(query) == 0) return low;
    hlo_value high = hlo_like(b, low, (double)n), one = hlo_like(b, low, 1), last = hlo_like(b, low, (double)(n - 1));
    /* Each step halves [low, high); NaN compares false, so it goes to the end as in PyTorch (Bucketization.cpp). */
    for (int64_t width = n; width > 0; width /= 2) {
        hlo_value middle = hlo_shift_right_logical(b, hlo_add(b, low, high), one), at = hlo_minimum(b, middle, last);
        if (order) at = read_sorted(b, order, at);
        hlo_value stop = hlo_compare(b, right ? HLO_GT : HLO_GE, read_sorted(b, sorted, at), query);
        hlo_value open = hlo_lt(b, low, high), go = hlo_and(b, open, hlo_not(b, stop));
        high = hlo_select(b, hlo_and(b, open, stop), middle, high);
        low = hlo_select(b, go, hlo_add(b, middle, one), low);
    }
    return low;
}

/* The type in which a search compares; a Python number takes the sequence's type unless it is of a higher kind. */
static dtype search_type(lowering *l, int sequence, int query) {
    dtype a = arg_tensor_dtype(l, sequence), q = arg_tensor_dtype(l, query);
    if (arg_is_tensor(l, query) && arg_is_tensor(l, sequence)) return dtype_promote(a, q);
    if (dtype_is_float(a) || !dtype_is_float(q)) return a;
    return DTYPE_F32;
}

static void lower_search(lowering *l, int sequence, int query, bool right, int sorter) {
    hlo_builder *b = lower_builder(l);
    hlo_value sorted = arg_tensor(l, sequence), x = arg_tensor(l, query),
              order = sorter >= 0 ? arg_tensor(l, sorter) : NULL;
    if (!sorted || !x || sorted->rank == 0) return;
    dtype t = search_type(l, sequence, query);
    if (t == DTYPE_INVALID) t = sorted->dtype;
    if (order) order = hlo_convert(b, order, DTYPE_I32);
    bool scalar = x->rank == 0 && sorted->rank > 1;
    if (scalar) x = hlo_broadcast_to(b, x, 1, (int64_t[]){1});
    hlo_value y = search_sorted(b, hlo_convert(b, sorted, t), order, hlo_convert(b, x, t), right);
    result_set(l, 0, hlo_reshape(b, y, result_rank(l, 0), result_dims(l, 0)));
}

static void lower_searchsorted(lowering *l) {
    const char *side = arg_string(l, 4);
    lower_search(l, 0, 1, arg_bool(l, 3) || (side && !strcmp(side, "right")), 5);
}

static void lower_bucketize(lowering *l) { lower_search(l, 1, 0, arg_bool(l, 3), -1); }

/* ---- isin ---- */

static void lower_isin(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), test = arg_tensor(l, 1), found;
    if (!x || !test) return;
    int64_t n = hlo_element_count(test);
    test = hlo_reshape(b, test, 1, &n);
    if (n == 0) {
        found = index_zeros(b, DTYPE_BOOL, x->rank, x->dims);
    } else if (n <= 32) {
        int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK], last = x->rank;
        for (int i = 0; i < x->rank; i++) dims[i] = x->dims[i], map[i] = i;
        dims[x->rank] = n;
        hlo_value all = hlo_broadcast_in_dim(b, x, x->rank + 1, dims, map);
        found = hlo_reduce(b, HLO_REDUCE_OR, hlo_eq(b, all, test), 1, &last);
    } else {
        hlo_value sorted, indices;
        sort_with_indices(b, test, 0, false, &sorted, &indices);
        hlo_value at = search_sorted(b, sorted, NULL, x, false);
        at = at ? hlo_minimum(b, at, hlo_like(b, at, (double)(n - 1))) : NULL;
        found = hlo_eq(b, read_sorted(b, sorted, at), x);
    }
    result_set(l, 0, arg_bool(l, 3) ? hlo_not(b, found) : found);
}

/* ---- counting ---- */

/* Adds weight (1 each if NULL) of every used x to its bin, a number in [0, bins). */
static hlo_value count_bins(hlo_builder *b, hlo_value bin, hlo_value used, hlo_value weight, int64_t bins, dtype t) {
    if (!bin) return NULL;
    bin = hlo_select(b, used, bin, hlo_like(b, bin, (double)bins));
    if (!weight) weight = hlo_constant_int(b, t, 1, bin->dims, 1);
    return index_put_slices(b, index_zeros(b, t, 1, &bins), 0, bin, weight, INDEX_ADD);
}

/* Bounds that are numbers, as the program has them. */
static bool good_range(hlo_builder *b, const char *name, double low, double high, dtype t) {
    if (!isfinite(low) || !isfinite(high)) {
        hlo_fail(b, STATUS_RUNTIME, "%s: range of [%g, %g] is not finite", name, low, high);
        return false;
    }
    if (low > high) {
        hlo_fail(b, STATUS_RUNTIME, "%s: min should not exceed max, but got min %g max %g", name, low, high);
        return false;
    }
    if (t == DTYPE_U8 && (low < 0 || high > UINT8_MAX)) {
        hlo_fail(b, STATUS_RUNTIME, "value cannot be converted to type uint8_t without overflow");
        return false;
    }
    return true;
}

/* min and max of x when both are given as equal; a range of no width is widened by `margin` on both sides. */
static void value_range(hlo_builder *b, hlo_value x, double low, double high, double margin, hlo_value *min,
                        hlo_value *max) {
    int64_t d = 0;
    dtype t = x->dtype;
    *min = hlo_scalar(b, t, low);
    *max = hlo_scalar(b, t, high);
    if (low == high && hlo_element_count(x) > 0) {
        *min = hlo_reduce(b, HLO_REDUCE_MINIMUM, x, 1, &d);
        *max = hlo_reduce(b, HLO_REDUCE_MAXIMUM, x, 1, &d);
    }
    hlo_value equal = hlo_eq(b, *min, *max), zero = hlo_scalar(b, t, 0);
    hlo_value widen = hlo_select(b, equal, hlo_scalar(b, t, margin), zero);
    *min = hlo_subtract(b, *min, widen);
    *max = hlo_add(b, *max, widen);
}

/* Bin (x - min) * bins / (max - min), the upper edge included in the last one; what is outside, NaN too, is not
 * counted. */
static hlo_value equal_bins(hlo_builder *b, hlo_value x, hlo_value min, hlo_value max, int64_t bins, hlo_value weight,
                            dtype t) {
    if (!x) return NULL;
    dtype f = dtype_is_float(x->dtype) ? x->dtype : DTYPE_F64;
    hlo_value used = hlo_and(b, hlo_ge(b, x, min), hlo_le(b, x, max));
    hlo_value low = hlo_convert(b, min, f), width = hlo_subtract(b, hlo_convert(b, max, f), low);
    hlo_value scaled = hlo_multiply(b, hlo_subtract(b, hlo_convert(b, x, f), low), hlo_scalar(b, f, (double)bins));
    hlo_value bin = hlo_convert(b, hlo_divide(b, scaled, width), DTYPE_I32);
    bin = bin ? hlo_minimum(b, bin, hlo_like(b, bin, (double)(bins - 1))) : NULL;
    return count_bins(b, bin, used, weight, bins, t);
}

static hlo_value flatten(hlo_builder *b, hlo_value x) {
    int64_t n = hlo_element_count(x);
    return x ? hlo_reshape(b, x, 1, &n) : NULL;
}

static void lower_histc(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = flatten(b, arg_tensor(l, 0)), min, max;
    double low = arg_float_or(l, 2, 0), high = arg_float_or(l, 3, 0);
    if (!x || !good_range(b, "torch.histc", low, high, x->dtype)) return;
    value_range(b, x, low, high, 1, &min, &max);
    result_set(l, 0, equal_bins(b, x, min, max, arg_int_or(l, 1, 100), NULL, x->dtype));
}

/* Counts become densities: divided by their sum and the bins' widths. */
static hlo_value as_density(hlo_builder *b, hlo_value counts, hlo_value edges) {
    if (!counts || !edges) return NULL;
    int64_t bins = counts->dims[0], d = 0;
    hlo_value widths =
        hlo_subtract(b, hlo_slice_dim(b, edges, 0, 1, bins + 1, 1), hlo_slice_dim(b, edges, 0, 0, bins, 1));
    return hlo_divide(b, hlo_divide(b, counts, hlo_reduce(b, HLO_REDUCE_ADD, counts, 1, &d)), widths);
}

/* histogram.bin_ct(self, bins, range, weight, density) -> (hist, bin_edges) */
static void lower_histogram_count(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = flatten(b, arg_tensor(l, 0)), weight = flatten(b, arg_tensor(l, 3)), min, max;
    if (!x) return;
    const double *range;
    int64_t bins = arg_int_or(l, 1, 100), n = bins + 1;
    int given = arg_floats(l, 2, &range);
    double low = given == 2 ? range[0] : 0, high = given == 2 ? range[1] : hlo_element_count(x) == 0;
    if (!good_range(b, "torch.histogram", low, high, x->dtype)) return;
    if (given == 2 && low == high) { /* histc would take the range of the values */
        low -= 0.5;
        high += 0.5;
    }
    value_range(b, x, low, high, 0.5, &min, &max);
    hlo_value counts = equal_bins(b, x, min, max, bins, weight, x->dtype);
    hlo_value step = hlo_divide(b, hlo_subtract(b, max, min), hlo_scalar(b, x->dtype, (double)bins));
    hlo_value position = hlo_iota(b, x->dtype, 1, &n, 0);
    hlo_value edges = hlo_add(b, min, hlo_multiply(b, step, position));
    edges = hlo_select(b, hlo_eq(b, position, hlo_scalar(b, x->dtype, (double)bins)), max, edges);
    result_set(l, 0, arg_bool(l, 4) ? as_density(b, counts, edges) : counts);
    result_set(l, 1, edges);
}

/* histogram.bins_tensor(self, bins, weight, density) -> (hist, bin_edges) */
static void lower_histogram_edges(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = flatten(b, arg_tensor(l, 0)), edges = arg_tensor(l, 1), weight = flatten(b, arg_tensor(l, 2));
    if (!x || !edges || edges->rank != 1) return;
    int64_t bins = edges->dims[0] - 1;
    hlo_value low = hlo_slice_dim(b, edges, 0, 0, 1, 1), high = hlo_slice_dim(b, edges, 0, bins, bins + 1, 1);
    hlo_value used = hlo_and(b, hlo_ge(b, x, low), hlo_le(b, x, high));
    hlo_value bin = search_sorted(b, edges, NULL, x, true);
    if (!bin) return;
    bin = hlo_subtract(b, bin, hlo_like(b, bin, 1));
    bin = hlo_minimum(b, bin, hlo_like(b, bin, (double)(bins - 1)));
    hlo_value counts = count_bins(b, bin, used, weight, bins, x->dtype);
    result_set(l, 0, arg_bool(l, 3) ? as_density(b, counts, edges) : counts);
    result_set(l, 1, edges);
}

/* Index i repeated repeats[i] times, when the size of the result is known: element j belongs to the first i whose
 * running sum is above j. */
static void lower_repeat_interleave(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value repeats = arg_tensor(l, 0);
    if (!repeats || repeats->rank != 1) return;
    hlo_value ends = scan_reduction(b, HLO_REDUCE_ADD, repeats, 0);
    hlo_value position = ends ? hlo_iota(b, ends->dtype, 1, result_dims(l, 0), 0) : NULL;
    result_set(l, 0, search_sorted(b, ends, NULL, position, true));
}

const op_row ops_search[] = {
    {"aten::searchsorted.Tensor", PROMOTE_NONE, .lower = lower_searchsorted},
    {"aten::searchsorted.Scalar", PROMOTE_NONE, .lower = lower_searchsorted},
    {"aten::bucketize.Tensor", PROMOTE_NONE, .lower = lower_bucketize},
    {"aten::bucketize.Scalar", PROMOTE_NONE, .lower = lower_bucketize},
    {"aten::isin.Tensor_Tensor", PROMOTE, .lower = lower_isin},
    {"aten::isin.Tensor_Scalar", PROMOTE, .lower = lower_isin},
    {"aten::isin.Scalar_Tensor", PROMOTE, .lower = lower_isin},
    {"aten::histc", PROMOTE_NONE, .lower = lower_histc},
    {"aten::histogram.bin_ct", PROMOTE_NONE, .lower = lower_histogram_count},
    {"aten::histogram.bins_tensor", PROMOTE_NONE, .lower = lower_histogram_edges},
    {"aten::repeat_interleave.Tensor", PROMOTE_NONE, .lower = lower_repeat_interleave},
    {0},
};
