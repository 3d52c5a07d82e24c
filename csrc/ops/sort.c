/* Sorting, and what is read off a sorted dimension: topk, kthvalue, median, mode, unique's order; searching in sorted
 * data. PyTorch's order: NaN is greater than everything, -0 equals 0, equal elements keep their order. */
#include <string.h>

#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/ops.h"
#include "ops/scan.h"
#include "ops/sorting.h"

static hlo_region *comparator(hlo_builder *b, int n, const hlo_value *x, bool descending) {
    hlo_type types[2 * SORT_MAX_VALUES];
    hlo_value arguments[2 * SORT_MAX_VALUES];
    for (int i = 0; i < n; i++) types[2 * i] = types[2 * i + 1] = (hlo_type){x[i]->dtype, 0, NULL};
    hlo_region_begin(b, 2 * n, types, arguments);
    hlo_value left = arguments[0], right = arguments[1];
    hlo_value before = hlo_compare(b, descending ? HLO_GT : HLO_LT, left, right);
    if (dtype_is_float(x[0]->dtype)) {
        hlo_value last = descending ? left : right, first = descending ? right : left;
        before = hlo_or(b, before, hlo_and(b, hlo_is_nan(b, last), hlo_not(b, hlo_is_nan(b, first))));
    }
    return hlo_region_end(b, 1, &before);
}

void sort_by_first(hlo_builder *b, int n, const hlo_value *x, int dim, bool descending, hlo_value *results) {
    for (int i = 0; i < n; i++) results[i] = x[i];
    for (int i = 0; i < n; i++)
        if (!x[i]) return;
    if (x[0]->rank == 0 || x[0]->dims[dim] < 2 || hlo_element_count(x[0]) == 0) return;
    hlo_sort(b, n, x, dim, true, comparator(b, n, x, descending), results);
}

void sort_with_indices(hlo_builder *b, hlo_value x, int dim, bool descending, hlo_value *values, hlo_value *indices) {
    *values = *indices = NULL;
    if (!x) return;
    hlo_value operands[2] = {
        x, x->rank ? index_iota(b, x->rank, x->dims, dim) : hlo_constant_int(b, DTYPE_I32, 0, NULL, 0)};
    hlo_value results[2];
    sort_by_first(b, 2, operands, dim, descending, results);
    *values = results[0];
    *indices = results[1];
}

static int sort_dim(lowering *l, int argument, int64_t absent, int rank) {
    int64_t d = dim_wrap(arg_int_or(l, argument, absent), rank);
    if (d >= 0) return (int)d;
    hlo_fail(lower_builder(l), STATUS_INDEX, "Dimension out of range");
    return 0;
}

static void set_sorted(lowering *l, int dim_argument, bool descending) {
    hlo_value x = arg_tensor(l, 0), values, indices;
    if (!x) return;
    sort_with_indices(lower_builder(l), x, sort_dim(l, dim_argument, -1, x->rank), descending, &values, &indices);
    result_set(l, 0, values);
    result_set(l, 1, indices);
}

static void lower_sort(lowering *l) { set_sorted(l, 1, arg_bool(l, 2)); }
static void lower_sort_stable(lowering *l) { set_sorted(l, 2, arg_bool(l, 3)); }

static void set_argsort(lowering *l, int dim_argument, bool descending) {
    hlo_value x = arg_tensor(l, 0), values, indices;
    if (!x) return;
    sort_with_indices(lower_builder(l), x, sort_dim(l, dim_argument, -1, x->rank), descending, &values, &indices);
    result_set(l, 0, indices);
}

static void lower_argsort(lowering *l) { set_argsort(l, 1, arg_bool(l, 2)); }
static void lower_argsort_stable(lowering *l) { set_argsort(l, 2, arg_bool(l, 3)); }

static void lower_msort(lowering *l) {
    hlo_value x = arg_tensor(l, 0), values, indices;
    sort_with_indices(lower_builder(l), x, 0, false, &values, &indices);
    result_set(l, 0, values);
}

/* ---- topk ---- */

/* The largest along the last dimension of a float32 key through the top-k operation, whose order is total: NaN with a
 * clear sign bit first, and -0 before 0, so both are made canonical. */
static hlo_value top_indices(hlo_builder *b, hlo_value x, int64_t k) {
    hlo_value key = hlo_convert(b, x, DTYPE_F32), values, indices;
    key = hlo_select(b, hlo_eq(b, key, hlo_like(b, key, 0)), hlo_scalar(b, DTYPE_F32, 0), key);
    key = hlo_select(b, hlo_is_nan(b, key), hlo_constant_float(b, DTYPE_F32, 0, NULL, __builtin_nan("")), key);
    hlo_top_k(b, key, k, &values, &indices);
    return indices;
}

static bool fits_float32(dtype t) { return t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16; }

static void lower_topk(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), values, indices;
    if (!x) return;
    int64_t k = arg_int(l, 1);
    int dim = sort_dim(l, 2, -1, x->rank);
    bool largest = !arg_given(l, 3) || arg_bool(l, 3);
    if (x->rank == 0 || k == 0) {
        result_set(l, 0, x->rank == 0 ? x : index_zeros(b, x->dtype, result_rank(l, 0), result_dims(l, 0)));
        result_set(l, 1, index_zeros(b, DTYPE_I64, result_rank(l, 1), result_dims(l, 1)));
        return;
    }
    if (largest && dim == x->rank - 1 && fits_float32(x->dtype) && hlo_element_count(x) > 0) {
        indices = top_indices(b, x, k);
        values = index_gather(b, x, dim, indices);
    } else {
        sort_with_indices(b, x, dim, largest, &values, &indices);
        values = hlo_slice_dim(b, values, dim, 0, k, 1);
        indices = hlo_slice_dim(b, indices, dim, 0, k, 1);
    }
    result_set(l, 0, values);
    result_set(l, 1, indices);
}

/* ---- one element of the sorted dimension ---- */

/* Sets values and indices (either may be unwanted) to the sorted element at `at` (same in every row), or at
 * position[row]. */
static void set_element(lowering *l, hlo_value values, hlo_value indices, int dim, int64_t at, hlo_value position) {
    hlo_builder *b = lower_builder(l);
    hlo_value sorted[2] = {values, indices};
    for (int k = 0; k < 2; k++) {
        if (!sorted[k] || !result_wanted(l, k)) continue;
        hlo_value y = sorted[k];
        if (y->rank) y = position ? index_gather(b, y, dim, position) : hlo_slice_dim(b, y, dim, at, at + 1, 1);
        result_set(l, k, hlo_reshape(b, y, result_rank(l, k), result_dims(l, k)));
    }
}

static void lower_kthvalue(lowering *l) {
    hlo_value x = arg_tensor(l, 0), values, indices;
    if (!math_require(lower_builder(l), x, KIND_INT | KIND_FLOAT, "kthvalue_cpu")) return;
    int dim = sort_dim(l, 2, -1, x->rank);
    sort_with_indices(lower_builder(l), x, dim, false, &values, &indices);
    set_element(l, values, indices, dim, arg_int(l, 1) - 1, NULL);
}

static hlo_value count_true(hlo_builder *b, hlo_value mask, int dim) {
    int64_t d = dim;
    return hlo_unsqueeze_dim(b, hlo_reduce(b, HLO_REDUCE_ADD, hlo_convert(b, mask, DTYPE_I32), 1, &d), dim);
}

/* The lower of the two middle elements. median: a NaN anywhere is the answer, the first one; nanmedian: NaN does not
 * count. */
static void set_median(lowering *l, hlo_value x, int dim, bool ignore_nan) {
    hlo_builder *b = lower_builder(l);
    hlo_value values, indices, position = NULL;
    sort_with_indices(b, x, dim, false, &values, &indices);
    if (!values) return;
    int64_t n = x->rank ? x->dims[dim] : 1;
    if (x->rank && dtype_is_float(x->dtype)) {
        hlo_value number = count_true(b, hlo_not(b, hlo_is_nan(b, x)), dim); /* also where the first NaN stands */
        if (!number) return;
        hlo_value less = hlo_maximum(b, hlo_subtract(b, number, hlo_like(b, number, 1)), hlo_like(b, number, 0));
        hlo_value middle = hlo_divide(b, less, hlo_like(b, number, 2));
        hlo_value whole = hlo_constant_int(b, DTYPE_I32, 0, NULL, n);
        position = ignore_nan ? middle : hlo_select(b, hlo_eq(b, number, whole), middle, number);
    }
    set_element(l, values, indices, dim, (n - 1) / 2, position);
}

static void lower_median_dim(lowering *l, bool ignore_nan) {
    hlo_value x = arg_tensor(l, 0);
    if (math_require(lower_builder(l), x, KIND_INT | KIND_FLOAT, "median_out"))
        set_median(l, x, sort_dim(l, 1, -1, x->rank), ignore_nan);
}

static void lower_median_all(lowering *l, bool ignore_nan) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!math_require(b, x, KIND_INT | KIND_FLOAT, "median_cpu")) return;
    int64_t n = hlo_element_count(x);
    if (n == 0)
        result_set(l, 0, hlo_scalar(b, x->dtype, dtype_is_float(x->dtype) ? __builtin_nan("") : 0));
    else
        set_median(l, hlo_reshape(b, x, 1, &n), 0, ignore_nan);
}

static void lower_median(lowering *l) { lower_median_all(l, false); }
static void lower_nanmedian(lowering *l) { lower_median_all(l, true); }
static void lower_median_along(lowering *l) { lower_median_dim(l, false); }
static void lower_nanmedian_along(lowering *l) { lower_median_dim(l, true); }

/* Start of the run of equal elements that each sorted position is in: the last position where a new run began. */
static hlo_value run_starts(hlo_builder *b, hlo_value sorted, int dim) {
    if (!sorted) return NULL;
    int64_t n = sorted->dims[dim];
    hlo_value position = index_iota(b, sorted->rank, sorted->dims, dim);
    hlo_value left = hlo_slice_dim(b, sorted, dim, 0, n - 1, 1), right = hlo_slice_dim(b, sorted, dim, 1, n, 1);
    hlo_value begins = hlo_ne(b, left, right);
    int64_t low[HLO_MAX_RANK] = {0}, high[HLO_MAX_RANK] = {0};
    low[dim] = 1;
    begins = hlo_pad(b, begins, hlo_constant_int(b, DTYPE_BOOL, 0, NULL, 1), low, high, NULL);
    hlo_value start = hlo_select(b, begins, position, hlo_like(b, position, 0));
    return scan_reduction(b, HLO_REDUCE_MAXIMUM, start, dim);
}

/* The most frequent value, the least of several; its index is that of its last occurrence. */
static void lower_mode(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), values, indices;
    if (!x) return;
    int dim = sort_dim(l, 1, -1, x->rank);
    int64_t d = dim;
    sort_with_indices(b, x, dim, false, &values, &indices);
    if (x->rank == 0 || x->dims[dim] < 2) {
        set_element(l, values, indices, dim, 0, NULL);
        return;
    }
    hlo_value position = index_iota(b, x->rank, x->dims, dim);
    hlo_value length = hlo_subtract(b, position, run_starts(b, values, dim)); /* one less than the run so far */
    if (!length) return;
    hlo_value longest = hlo_unsqueeze_dim(b, hlo_reduce(b, HLO_REDUCE_MAXIMUM, length, 1, &d), dim);
    hlo_value far = hlo_constant_int(b, DTYPE_I32, 0, NULL, x->dims[dim] - 1);
    hlo_value candidate = hlo_select(b, hlo_eq(b, length, longest), position, far);
    set_element(l, values, indices, dim, 0,
                hlo_unsqueeze_dim(b, hlo_reduce(b, HLO_REDUCE_MINIMUM, candidate, 1, &d), dim));
}

const op_row ops_sort[] = {
    {"aten::sort", PROMOTE_NONE, .lower = lower_sort},
    {"aten::sort.stable", PROMOTE_NONE, .lower = lower_sort_stable},
    {"aten::argsort", PROMOTE_NONE, .lower = lower_argsort},
    {"aten::argsort.stable", PROMOTE_NONE, .lower = lower_argsort_stable},
    {"aten::msort", PROMOTE_NONE, .lower = lower_msort},
    {"aten::topk", PROMOTE_NONE, .lower = lower_topk},
    {"aten::kthvalue", PROMOTE_NONE, .lower = lower_kthvalue},
    {"aten::median", PROMOTE_NONE, .lower = lower_median},
    {"aten::median.dim", PROMOTE_NONE, .lower = lower_median_along},
    {"aten::nanmedian", PROMOTE_NONE, .lower = lower_nanmedian},
    {"aten::nanmedian.dim", PROMOTE_NONE, .lower = lower_nanmedian_along},
    {"aten::mode", PROMOTE_NONE, .lower = lower_mode},
    {0},
};
