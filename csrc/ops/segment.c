/* Reductions over consecutive segments of one axis, given by their lengths or by where they start and end. */
#include <math.h>
#include <string.h>

#include "ops/indexing.h"
#include "ops/ops.h"
#include "ops/scan.h"

typedef enum { SEGMENT_SUM, SEGMENT_MEAN, SEGMENT_MAX, SEGMENT_MIN, SEGMENT_PROD } segment_kind;

typedef struct {
    int axis;
    int64_t count;
    segment_kind kind;
    hlo_value lengths; /* [lead.., segments] */
    hlo_value owner;   /* data's shape, i32: the segment an element belongs to; `count` for none */
} segments;

static bool read_kind(lowering *l, int argument, segment_kind *kind) {
    static const char *const names[] = {"sum", "mean", "max", "min", "prod"};
    const char *given = arg_string(l, argument);
    for (int i = 0; given && i < 5; i++) {
        if (strcmp(given, names[i])) continue;
        *kind = (segment_kind)i;
        return true;
    }
    hlo_fail(lower_builder(l), STATUS_RUNTIME, "segment_reduce: unsupported reduction given!");
    return false;
}

/* An element's segment is the number of segments that end at or before it. starts, ends: [lead.., segments]. */
static hlo_value owners(hlo_builder *b, hlo_value data, int axis, hlo_value starts, hlo_value ends, int64_t count) {
    if (!data || !ends || !starts) return NULL;
    int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK], along = axis + 1;
    memcpy(dims, data->dims, sizeof(int64_t) * (size_t)(axis + 1));
    dims[axis + 1] = count;
    for (int i = 0; i < axis; i++) map[i] = i;
    map[axis] = axis + 1;
    hlo_value at = hlo_iota(b, ends->dtype, axis + 2, dims, axis);
    hlo_value over = hlo_ge(b, at, hlo_broadcast_in_dim(b, ends, axis + 2, dims, map));
    hlo_value begun = hlo_ge(b, at, hlo_broadcast_in_dim(b, starts, axis + 2, dims, map));
    hlo_value owner = hlo_reduce(b, HLO_REDUCE_ADD, hlo_convert(b, over, DTYPE_I32), 1, &along);
    hlo_value any = hlo_reduce(b, HLO_REDUCE_OR, begun, 1, &along);
    owner = hlo_select(b, any, owner, hlo_constant_int(b, DTYPE_I32, 0, NULL, count));
    for (int i = 0; i <= axis; i++) map[i] = i;
    return hlo_broadcast_in_dim(b, owner, data->rank, data->dims, map);
}

static bool read_segments(lowering *l, hlo_value data, int lengths, int offsets, int axis, segments *s) {
    hlo_builder *b = lower_builder(l);
    if (!data) return false;
    s->axis = (int)dim_wrap(arg_int_or(l, axis, 0), data->rank);
    if (s->axis < 0 || data->rank == 0) {
        hlo_fail(b, STATUS_INDEX, "segment_reduce: axis out of range");
        return false;
    }
    hlo_value starts, ends;
    if (arg_given(l, lengths)) {
        s->lengths = arg_tensor(l, lengths);
        if (!s->lengths || s->lengths->rank != s->axis + 1) return false;
        s->count = s->lengths->dims[s->axis];
        ends = scan_reduction(b, HLO_REDUCE_ADD, s->lengths, s->axis);
        starts = hlo_subtract(b, ends, s->lengths);
    } else if (arg_given(l, offsets)) {
        hlo_value given = arg_tensor(l, offsets);
        if (!given || given->rank != s->axis + 1) return false;
        s->count = given->dims[s->axis] - 1;
        starts = hlo_slice_dim(b, given, s->axis, 0, s->count, 1);
        ends = hlo_slice_dim(b, given, s->axis, 1, s->count + 1, 1);
        s->lengths = hlo_subtract(b, ends, starts);
    } else {
        hlo_fail(b, STATUS_RUNTIME, "segment_reduce: either lengths or offsets must be given");
        return false;
    }
    s->owner = owners(b, data, s->axis, starts, ends, s->count);
    return s->owner != NULL;
}

static hlo_value initial_value(lowering *l, segment_kind kind, int argument, dtype t) {
    static const double identity[] = {0, 0, -INFINITY, INFINITY, 1};
    return arg_number_or(l, argument, t, identity[kind]);
}

/* x [data's shape but for the axis] at each element's segment. */
static hlo_value at_owner(hlo_builder *b, const segments *s, hlo_value x) {
    return index_gather(b, x, s->axis, s->owner);
}

static hlo_value combine(hlo_builder *b, const segments *s, hlo_value init, hlo_value data, index_combine how) {
    if (!data || !init) return NULL;
    int64_t dims[HLO_MAX_RANK];
    memcpy(dims, data->dims, sizeof(int64_t) * (size_t)data->rank);
    dims[s->axis] = s->count;
    return index_scatter(b, hlo_broadcast_to(b, init, data->rank, dims), s->axis, s->owner, data, how);
}

static hlo_value lengths_like(hlo_builder *b, const segments *s, hlo_value y) {
    if (!y) return NULL;
    int64_t map[HLO_MAX_RANK];
    for (int i = 0; i <= s->axis; i++) map[i] = i;
    return hlo_broadcast_in_dim(b, hlo_convert(b, s->lengths, y->dtype), y->rank, y->dims, map);
}

/* The lengths of a row add up to the axis, and none is negative; `unsafe` says that they are not looked at. */
static void check_lengths(lowering *l, hlo_value data) {
    hlo_builder *b = lower_builder(l);
    hlo_value lengths = arg_tensor(l, 2);
    int64_t axis = dim_wrap(arg_int_or(l, 5, 0), data->rank);
    if (!lengths || arg_bool(l, 6) || axis < 0 || hlo_element_count(lengths) == 0) return;
    int64_t last = lengths->rank - 1, n = data->dims[axis];
    check_value(l, lengths, INT32_MAX, NULL);
    hlo_value sum = hlo_reduce(b, HLO_REDUCE_ADD, lengths, 1, &last);
    check_value(l, hlo_subtract(b, sum, hlo_like(b, sum, (double)n)), 1, NULL);
}

/* (data, reduce, lengths, indices, offsets, axis, unsafe, initial) */
static void lower_segment_reduce(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value data = arg_tensor(l, 0);
    segments s = {0};
    if (!data || !read_kind(l, 1, &s.kind) || !read_segments(l, data, 2, 4, 5, &s)) return;
    check_lengths(l, data);
    static const index_combine how[] = {INDEX_ADD, INDEX_ADD, INDEX_MAXIMUM, INDEX_MINIMUM, INDEX_MULTIPLY};
    hlo_value y = combine(b, &s, initial_value(l, s.kind, 7, data->dtype), data, how[s.kind]);
    if (s.kind == SEGMENT_MEAN) {
        hlo_value n = lengths_like(b, &s, y), zero = hlo_scalar(b, data->dtype, 0);
        hlo_value empty = arg_given(l, 7) ? y : hlo_constant_float(b, data->dtype, 0, NULL, NAN);
        y = hlo_select(b, hlo_gt(b, n, zero), hlo_divide(b, y, n), empty);
    }
    result_set(l, 0, y);
}

/* ---- backward ---- */

/* The product of the other elements of an element's segment, for elements that are zero or NaN, where result / element
 * has no meaning: the product of the ordinary elements, and what the other special ones make of it. */
static hlo_value product_of_others(lowering *l, const segments *s, hlo_value data) {
    hlo_builder *b = lower_builder(l);
    hlo_value zero = hlo_like(b, data, 0), one = hlo_like(b, data, 1), nothing = hlo_scalar(b, data->dtype, 0);
    hlo_value is_zero = hlo_eq(b, data, zero), is_nan = hlo_is_nan(b, data);
    hlo_value ordinary = hlo_select(b, hlo_or(b, is_zero, is_nan), one, data);
    hlo_value rest =
        at_owner(b, s, combine(b, s, initial_value(l, SEGMENT_PROD, 7, data->dtype), ordinary, INDEX_MULTIPLY));
    hlo_value zeros = at_owner(b, s, combine(b, s, nothing, hlo_convert(b, is_zero, data->dtype), INDEX_ADD));
    hlo_value nans = at_owner(b, s, combine(b, s, nothing, hlo_convert(b, is_nan, data->dtype), INDEX_ADD));
    hlo_value other_zero = hlo_gt(b, hlo_subtract(b, zeros, hlo_convert(b, is_zero, data->dtype)), zero);
    hlo_value other_nan = hlo_gt(b, hlo_subtract(b, nans, hlo_convert(b, is_nan, data->dtype)), zero);
    rest = hlo_select(b, other_zero, hlo_multiply(b, rest, zero), rest);
    return hlo_select(b, other_nan, hlo_constant_float(b, data->dtype, 0, NULL, NAN), rest);
}

/* (grad, output, data, reduce, lengths, offsets, axis, initial). Equal extremes share the gradient. */
static void lower_segment_reduce_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value grad = arg_tensor(l, 0), output = arg_tensor(l, 1), data = arg_tensor(l, 2);
    segments s = {0};
    if (!grad || !output || !data || !read_kind(l, 3, &s.kind) || !read_segments(l, data, 4, 5, 6, &s)) return;
    hlo_value g = at_owner(b, &s, grad), y = at_owner(b, &s, output), zero = hlo_scalar(b, data->dtype, 0);
    if (s.kind == SEGMENT_MEAN) {
        g = hlo_divide(b, g, at_owner(b, &s, lengths_like(b, &s, grad)));
    } else if (s.kind == SEGMENT_MAX || s.kind == SEGMENT_MIN) {
        hlo_value hit = hlo_or(b, hlo_eq(b, data, y), hlo_is_nan(b, data));
        hlo_value hits = at_owner(b, &s, combine(b, &s, zero, hlo_convert(b, hit, data->dtype), INDEX_ADD));
        g = hlo_select(b, hit, hlo_divide(b, g, hits), zero);
    } else if (s.kind == SEGMENT_PROD) {
        hlo_value special = hlo_or(b, hlo_eq(b, data, zero), hlo_is_nan(b, data));
        g = hlo_multiply(b, g, hlo_select(b, special, product_of_others(l, &s, data), hlo_divide(b, y, data)));
    }
    hlo_value owned = hlo_lt(b, s.owner, hlo_constant_int(b, DTYPE_I32, 0, NULL, s.count));
    result_set(l, 0, hlo_select(b, owned, g, zero));
}

const op_row ops_segment[] = {
    {"aten::segment_reduce", PROMOTE_NONE, OP_OPMATH, .lower = lower_segment_reduce},
    {"aten::_segment_reduce_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_segment_reduce_backward},
    {0},
};
