/* Prefix combinations, and the cumulative operators made of them. */
#include "ops/scan.h"

#include <string.h>

#include "ops/indexing.h"
#include "ops/ops.h"

/* a[0] b[0] a[1] b[1] ...: `even` has as many elements of dim as `odd`, or one more. */
static hlo_value interleave(hlo_builder *b, hlo_value even, hlo_value odd, int dim) {
    if (!even || !odd) return NULL;
    int64_t n = even->dims[dim] + odd->dims[dim], dims[HLO_MAX_RANK], high[HLO_MAX_RANK] = {0}, low[HLO_MAX_RANK] = {0};
    memcpy(dims, even->dims, sizeof(int64_t) * (size_t)even->rank);
    high[dim] = even->dims[dim] - odd->dims[dim];
    if (high[dim]) odd = hlo_pad(b, odd, hlo_scalar(b, odd->dtype, 0), low, high, NULL);
    hlo_value pair[2] = {hlo_unsqueeze_dim(b, even, dim + 1), hlo_unsqueeze_dim(b, odd, dim + 1)};
    dims[dim] *= 2;
    hlo_value y = hlo_reshape(b, hlo_concatenate(b, 2, pair, dim + 1), even->rank, dims);
    return hlo_slice_dim(b, y, dim, 0, n, 1);
}

static void slice_all(hlo_builder *b, int n, const hlo_value *x, int dim, int64_t start, int64_t limit, int64_t stride,
                      hlo_value *out) {
    for (int i = 0; i < n; i++) out[i] = hlo_slice_dim(b, x[i], dim, start, limit, stride);
}

/* Scans neighbouring pairs, then fills in the even places: the recursive odd-even scheme of Ladner and Fischer,
 * "Parallel Prefix Computation" (1980): n combinations, 2 log n deep. */
void scan_associative(hlo_builder *b, int n, const hlo_value *x, int dim, scan_combine combine, hlo_value *results) {
    hlo_value first[SCAN_MAX_VALUES] = {NULL}, left[SCAN_MAX_VALUES] = {NULL}, right[SCAN_MAX_VALUES] = {NULL};
    hlo_value odd[SCAN_MAX_VALUES] = {NULL};
    memcpy(results, x, sizeof(hlo_value) * (size_t)n);
    for (int i = 0; i < n; i++)
        if (!x[i]) return;
    int64_t size = x[0]->dims[dim];
    if (size < 2) return;
    slice_all(b, n, x, dim, 0, size / 2 * 2, 2, left);
    slice_all(b, n, x, dim, 1, size, 2, right);
    combine(b, n, left, right, first);
    scan_associative(b, n, first, dim, combine, odd);
    for (int i = 0; i < n; i++)
        if (!odd[i]) return;
    slice_all(b, n, x, dim, 0, 1, 1, first);
    if (size > 2) {
        hlo_value even[SCAN_MAX_VALUES];
        int64_t count = (size - 1) / 2;
        slice_all(b, n, odd, dim, 0, count, 1, left);
        slice_all(b, n, x, dim, 2, size, 2, right);
        combine(b, n, left, right, even);
        for (int i = 0; i < n; i++) {
            hlo_value parts[2] = {first[i], even[i]};
            first[i] = hlo_concatenate(b, 2, parts, dim);
        }
    }
    for (int i = 0; i < n; i++) results[i] = interleave(b, first[i], odd[i], dim);
}

hlo_value scan_reduction(hlo_builder *b, hlo_reduction kind, hlo_value x, int dim) {
    if (!x || x->rank == 0 || hlo_element_count(x) == 0) return x;
    hlo_window w;
    hlo_window_init(&w, x->rank);
    w.window[dim] = x->dims[dim];
    w.low[dim] = x->dims[dim] - 1;
    return hlo_reduce_window(b, kind, x, &w);
}

hlo_value scan_count_before(hlo_builder *b, hlo_value flat_mask) {
    hlo_value ones = hlo_convert(b, flat_mask, DTYPE_I32);
    return hlo_subtract(b, scan_reduction(b, HLO_REDUCE_ADD, ones, 0), ones);
}

/* ---- operators ---- */

static int scan_dim(lowering *l, int argument, int rank) {
    int64_t d = dim_wrap(arg_int(l, argument), rank);
    if (d >= 0) return (int)d;
    hlo_fail(lower_builder(l), STATUS_INDEX, "Dimension out of range");
    return 0;
}

static void lower_cumulative(lowering *l, hlo_reduction kind) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = hlo_convert(b, arg_tensor(l, 0), result_dtype(l, 0));
    if (x) x = hlo_convert(b, x, dtype_opmath(x->dtype));
    result_set(l, 0, x ? scan_reduction(b, kind, x, scan_dim(l, 1, x->rank)) : NULL);
}

static void lower_cumsum(lowering *l) { lower_cumulative(l, HLO_REDUCE_ADD); }
static void lower_cumprod(lowering *l) { lower_cumulative(l, HLO_REDUCE_MULTIPLY); }

/* The later of equal elements stays, and a NaN beats everything before it. */
static void combine_extreme(hlo_builder *b, const hlo_value *left, const hlo_value *right, hlo_direction better,
                            hlo_value *out) {
    hlo_value take = hlo_compare(b, better, right[0], left[0]);
    if (left[0] && dtype_is_float(left[0]->dtype)) {
        hlo_value old = hlo_not(b, hlo_is_nan(b, left[0]));
        take = hlo_or(b, hlo_is_nan(b, right[0]), hlo_and(b, old, take));
    }
    for (int i = 0; i < 2; i++) out[i] = hlo_select(b, take, right[i], left[i]);
}

static void combine_maximum(hlo_builder *b, int n, const hlo_value *left, const hlo_value *right, hlo_value *out) {
    (void)n;
    combine_extreme(b, left, right, HLO_GE, out);
}

static void combine_minimum(hlo_builder *b, int n, const hlo_value *left, const hlo_value *right, hlo_value *out) {
    (void)n;
    combine_extreme(b, left, right, HLO_LE, out);
}

static void lower_cumulative_extreme(lowering *l, int dim_argument, scan_combine combine) {
    hlo_builder *b = lower_builder(l);
    hlo_value x[2] = {arg_tensor(l, 0), NULL}, results[2] = {NULL, NULL};
    if (!x[0]) return;
    int dim = scan_dim(l, dim_argument, x[0]->rank);
    if (x[0]->rank == 0) {
        results[0] = x[0];
        results[1] = hlo_constant_int(b, DTYPE_I32, 0, NULL, 0);
    } else {
        x[1] = index_iota(b, x[0]->rank, x[0]->dims, dim);
        scan_associative(b, 2, x, dim, combine, results);
    }
    result_set(l, 0, results[0]);
    result_set(l, 1, results[1]);
}

static void lower_cummax(lowering *l) { lower_cumulative_extreme(l, 1, combine_maximum); }
static void lower_cummin(lowering *l) { lower_cumulative_extreme(l, 1, combine_minimum); }
/* These write their arguments 1 and 2. */
static void lower_cummax_helper(lowering *l) { lower_cumulative_extreme(l, 3, combine_maximum); }
static void lower_cummin_helper(lowering *l) { lower_cumulative_extreme(l, 3, combine_minimum); }

/* log(exp(l) + exp(r)) = max + log1p(exp(min - max)); equal infinities stay as they are. Complex numbers compare by
 * real part. */
static void combine_log_sum(hlo_builder *b, int n, const hlo_value *left, const hlo_value *right, hlo_value *out) {
    (void)n;
    hlo_value x = left[0], y = right[0];
    *out = NULL;
    if (!x || !y) return;
    hlo_value x_key = x, y_key = y;
    if (dtype_is_complex(x->dtype)) x_key = hlo_real(b, x), y_key = hlo_real(b, y);
    hlo_value swap = hlo_or(b, hlo_lt(b, x_key, y_key), hlo_is_nan(b, y_key));
    hlo_value high = hlo_select(b, swap, y, x), low = hlo_select(b, swap, x, y);
    hlo_value sum = hlo_add(b, hlo_log_plus_one(b, hlo_exponential(b, hlo_subtract(b, low, high))), high);
    hlo_value same = hlo_and(b, hlo_eq(b, x_key, y_key), hlo_not(b, hlo_is_finite(b, x_key)));
    *out = hlo_select(b, same, high, sum);
}

static void lower_logcumsumexp(lowering *l) {
    hlo_value x = arg_tensor(l, 0), y = x;
    if (!x) return;
    int dim = scan_dim(l, 1, x->rank);
    if (x->rank) scan_associative(lower_builder(l), 1, &x, dim, combine_log_sum, &y);
    result_set(l, 0, y);
}

const op_row ops_scan[] = {
    {"aten::cumsum", PROMOTE_NONE, .lower = lower_cumsum},
    {"aten::cumprod", PROMOTE_NONE, .lower = lower_cumprod},
    {"aten::cummax", PROMOTE_NONE, .lower = lower_cummax},
    {"aten::cummin", PROMOTE_NONE, .lower = lower_cummin},
    {"aten::_cummax_helper", PROMOTE_NONE, .lower = lower_cummax_helper},
    {"aten::_cummin_helper", PROMOTE_NONE, .lower = lower_cummin_helper},
    {"aten::logcumsumexp", PROMOTE_NONE, OP_OPMATH, .lower = lower_logcumsumexp},
    {"aten::_logcumsumexp", PROMOTE_NONE, OP_OPMATH, .lower = lower_logcumsumexp},
    {0},
};
