/* Sampling an input at the points of a grid (grid_sampler_2d and _3d), and the grids of affine maps.
 *
 * Along each spatial axis a point has a few taps: input positions with a weight. The result is the sum over all
 * combinations of taps of (product of weights) * input[positions], where taps outside the input count as zero. One
 * function makes the taps of an axis for every interpolation and padding; forward and backward walk the combinations.
 * Formulas: aten/src/ATen/native/GridSampler.h. */
#include <string.h>

#include "ops/indexing.h"
#include "ops/ops.h"

enum { BILINEAR, NEAREST, BICUBIC };
enum { PAD_ZEROS, PAD_BORDER, PAD_REFLECTION };
enum { MAX_TAPS = 4, MAX_SPATIAL = 3, MAX_COMBINATIONS = 16 };

typedef struct {
    int count;
    hlo_value index[MAX_TAPS];  /* i32, inside the axis */
    hlo_value weight[MAX_TAPS]; /* zero for a tap outside */
    hlo_value slope[MAX_TAPS];  /* derivative of the weight by the grid's coordinate */
} axis_taps;

typedef struct {
    int spatial;
    int64_t interpolation, padding, batch, channels, points, area;
    bool align_corners;
    int64_t size[MAX_SPATIAL];
    hlo_value input; /* [N, area, C] */
    axis_taps taps[MAX_SPATIAL];
} sampler;

static hlo_value number(hlo_builder *b, hlo_value like, double v) {
    return like ? hlo_scalar(b, like->dtype, v) : NULL;
}
static hlo_value plus(hlo_builder *b, hlo_value x, double v) { return hlo_add(b, x, number(b, x, v)); }
static hlo_value times(hlo_builder *b, hlo_value x, double v) { return hlo_multiply(b, x, number(b, x, v)); }
static hlo_value negative_if(hlo_builder *b, hlo_value condition, hlo_value x) {
    return hlo_select(b, condition, hlo_negate(b, x), x);
}

/* ---- coordinates; slope is the derivative by the grid's coordinate, or NULL when nobody wants it ---- */

typedef struct {
    hlo_value at, slope;
} coordinate;

static coordinate clip(hlo_builder *b, coordinate c, int64_t size) {
    hlo_value zero = number(b, c.at, 0), last = number(b, c.at, (double)(size - 1));
    hlo_value inside = hlo_and(b, hlo_gt(b, c.at, zero), hlo_lt(b, c.at, last));
    return (coordinate){hlo_clamp(b, zero, c.at, last), hlo_select(b, inside, c.slope, zero)};
}

/* Mirrors the coordinate at low and high (given doubled, for they may lie between elements) until it is between them.
 */
static coordinate reflect(hlo_builder *b, coordinate c, int64_t twice_low, int64_t twice_high) {
    if (twice_low == twice_high) return (coordinate){times(b, c.at, 0), times(b, c.slope, 0)};
    double low = (double)twice_low / 2, span = (double)(twice_high - twice_low) / 2;
    hlo_value distance = plus(b, c.at, -low);
    hlo_value mirrored = hlo_lt(b, distance, number(b, distance, 0));
    distance = hlo_abs(b, distance);
    hlo_value flips = hlo_floor(b, hlo_divide(b, distance, number(b, distance, span)));
    hlo_value rest = hlo_subtract(b, distance, times(b, flips, span));
    hlo_value odd = hlo_ne(b, hlo_remainder(b, flips, number(b, flips, 2)), number(b, flips, 0));
    hlo_value at = plus(b, hlo_select(b, odd, hlo_subtract(b, number(b, rest, span), rest), rest), low);
    return (coordinate){at, negative_if(b, odd, negative_if(b, mirrored, c.slope))};
}

static coordinate unnormalized(hlo_builder *b, const sampler *s, hlo_value grid, int axis) {
    double size = (double)s->size[axis], scale = (s->align_corners ? size - 1 : size) / 2;
    hlo_value at = plus(b, times(b, plus(b, grid, 1), scale), s->align_corners ? 0 : -0.5);
    return (coordinate){at, grid ? hlo_like(b, grid, scale) : NULL};
}

static coordinate pad_coordinate(hlo_builder *b, const sampler *s, coordinate c, int axis) {
    int64_t size = s->size[axis];
    if (s->padding == PAD_REFLECTION)
        c = s->align_corners ? reflect(b, c, 0, 2 * (size - 1)) : reflect(b, c, -1, 2 * size - 1);
    return s->padding == PAD_ZEROS ? c : clip(b, c, size);
}

/* ---- taps ---- */

/* A tap at a whole coordinate: outside the input its weight is zero. */
static void add_tap(hlo_builder *b, const sampler *s, axis_taps *t, int axis, hlo_value whole, hlo_value weight,
                    hlo_value slope) {
    hlo_value zero = number(b, whole, 0), last = number(b, whole, (double)(s->size[axis] - 1));
    hlo_value inside = hlo_and(b, hlo_ge(b, whole, zero), hlo_le(b, whole, last));
    int k = t->count++;
    t->index[k] = hlo_convert(b, hlo_select(b, inside, whole, zero), DTYPE_I32);
    t->weight[k] = hlo_select(b, inside, weight, zero);
    t->slope[k] = hlo_select(b, inside, slope, zero);
}

/* Keys' cubic (A = -0.75) for distances below 1 and from 1 to 2, and their derivatives. */
static hlo_value cubic_near(hlo_builder *b, hlo_value x) {
    return plus(b, hlo_multiply(b, hlo_multiply(b, plus(b, times(b, x, 1.25), -2.25), x), x), 1);
}
static hlo_value cubic_far(hlo_builder *b, hlo_value x) {
    hlo_value y = plus(b, times(b, x, -0.75), 3.75);
    return plus(b, hlo_multiply(b, plus(b, hlo_multiply(b, y, x), -6), x), 3);
}
static hlo_value cubic_near_slope(hlo_builder *b, hlo_value x) {
    return hlo_multiply(b, plus(b, times(b, x, 3.75), -4.5), x);
}
static hlo_value cubic_far_slope(hlo_builder *b, hlo_value x) {
    return plus(b, hlo_multiply(b, plus(b, times(b, x, -2.25), 7.5), x), -6);
}

/* Each of the four elements is padded by itself, so a border or a mirror repeats elements, not coordinates. */
static void cubic_taps(hlo_builder *b, const sampler *s, axis_taps *t, int axis, coordinate c) {
    hlo_value whole = hlo_floor(b, c.at), x = hlo_subtract(b, c.at, whole);
    hlo_value before = plus(b, x, 1), after = plus(b, hlo_negate(b, x), 1), beyond = plus(b, after, 1);
    hlo_value weight[4] = {cubic_far(b, before), cubic_near(b, x), cubic_near(b, after), cubic_far(b, beyond)};
    hlo_value slope[4] = {cubic_far_slope(b, before), cubic_near_slope(b, x), hlo_negate(b, cubic_near_slope(b, after)),
                          hlo_negate(b, cubic_far_slope(b, beyond))};
    for (int k = 0; k < 4; k++) {
        coordinate element = pad_coordinate(b, s, (coordinate){plus(b, whole, k - 1), c.slope}, axis);
        add_tap(b, s, t, axis, element.at, weight[k], hlo_multiply(b, slope[k], c.slope));
    }
}

static void make_taps(hlo_builder *b, const sampler *s, axis_taps *t, int axis, hlo_value grid) {
    t->count = 0;
    coordinate c = unnormalized(b, s, grid, axis);
    if (s->interpolation == BICUBIC) {
        cubic_taps(b, s, t, axis, c);
        return;
    }
    c = pad_coordinate(b, s, c, axis);
    hlo_value one = number(b, c.at, 1), zero = number(b, c.at, 0);
    if (s->interpolation == NEAREST) {
        add_tap(b, s, t, axis, hlo_round_nearest_even(b, c.at), one, zero);
        return;
    }
    hlo_value whole = hlo_floor(b, c.at), x = hlo_subtract(b, c.at, whole);
    add_tap(b, s, t, axis, whole, hlo_subtract(b, one, x), hlo_negate(b, c.slope));
    add_tap(b, s, t, axis, plus(b, whole, 1), x, c.slope);
}

/* ---- combinations of taps ---- */

/* [N, C, spatial..] -> [N, points, C] */
static hlo_value channels_last(hlo_builder *b, hlo_value x, int64_t batch, int64_t channels, int64_t points) {
    int64_t flat[3] = {batch, channels, points};
    static const int64_t order[3] = {0, 2, 1};
    return hlo_transpose(b, hlo_reshape(b, x, 3, flat), order);
}

static hlo_value channels_first(hlo_builder *b, hlo_value x, int rank, const int64_t *dims) {
    static const int64_t order[3] = {0, 2, 1};
    return hlo_reshape(b, hlo_transpose(b, x, order), rank, dims);
}

/* Reads input and grid; grid column 0 is the last axis. */
static bool sampler_init(lowering *l, sampler *s, int input_argument) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, input_argument), grid = arg_tensor(l, input_argument + 1);
    memset(s, 0, sizeof *s);
    if (!x || !grid || x->rank < 4 || grid->rank != x->rank || x->rank - 2 > MAX_SPATIAL) return false;
    s->spatial = x->rank - 2;
    s->interpolation = arg_int(l, input_argument + 2);
    s->padding = arg_int(l, input_argument + 3);
    s->align_corners = arg_bool(l, input_argument + 4);
    s->batch = x->dims[0];
    s->channels = x->dims[1];
    s->area = s->points = 1;
    for (int i = 0; i < s->spatial; i++) {
        s->size[i] = x->dims[2 + i];
        s->area *= s->size[i];
        s->points *= grid->dims[1 + i];
    }
    int64_t flat[3] = {s->batch, s->points, s->spatial}, column[2] = {s->batch, s->points};
    s->input = channels_last(b, x, s->batch, s->channels, s->area);
    grid = hlo_reshape(b, hlo_convert(b, grid, x->dtype), 3, flat);
    for (int i = 0; i < s->spatial; i++) {
        int k = s->spatial - 1 - i;
        make_taps(b, s, &s->taps[i], i, hlo_reshape(b, hlo_slice_dim(b, grid, 2, k, k + 1, 1), 2, column));
    }
    return s->input != NULL;
}

static int combinations(const sampler *s) {
    int n = 1;
    for (int i = 0; i < s->spatial; i++) n *= s->taps[i].count;
    return n;
}

/* Combination k: the flat input position [N, points], and which tap of each axis it is. */
static hlo_value position(hlo_builder *b, const sampler *s, int k, int *tap) {
    hlo_value at = NULL;
    for (int i = s->spatial - 1; i >= 0; i--) {
        tap[i] = k % s->taps[i].count;
        k /= s->taps[i].count;
    }
    for (int i = 0; i < s->spatial; i++) {
        hlo_value index = s->taps[i].index[tap[i]];
        at = at ? hlo_add(b, hlo_multiply(b, at, hlo_like(b, at, (double)s->size[i])), index) : index;
    }
    return at;
}

/* The product of the taps' weights, axis `derived` (or -1) giving its slope. */
static hlo_value product(hlo_builder *b, const sampler *s, const int *tap, int derived) {
    hlo_value p = NULL;
    for (int i = 0; i < s->spatial; i++) {
        hlo_value factor = i == derived ? s->taps[i].slope[tap[i]] : s->taps[i].weight[tap[i]];
        p = p ? hlo_multiply(b, p, factor) : factor;
    }
    return p;
}

/* input[n, at[n, p], :] */
static hlo_value read_rows(hlo_builder *b, const sampler *s, hlo_value at) {
    hlo_gather_dims d = {.n_offset = 1, .n_collapsed = 1, .n_operand_batch = 1, .n_start_map = 1};
    d.offset_dims[0] = 2;
    d.collapsed_dims[0] = 1;
    d.start_index_map[0] = 1;
    d.index_vector_dim = 2;
    d.slice_sizes[0] = d.slice_sizes[1] = 1;
    d.slice_sizes[2] = s->channels;
    return hlo_gather(b, s->input, at, &d);
}

static hlo_value add_to_rows(hlo_builder *b, hlo_value target, hlo_value at, hlo_value rows) {
    if (!target || !at || !rows) return NULL;
    hlo_scatter_dims d = {.n_window = 1, .n_inserted = 1, .n_input_batch = 1, .n_scatter_map = 1};
    d.update_window_dims[0] = 2;
    d.inserted_window_dims[0] = 1;
    d.scatter_dims_to_operand[0] = 1;
    d.index_vector_dim = 2;
    hlo_value result = NULL;
    hlo_scatter(b, 1, &target, at, &rows, &d, index_region(b, target->dtype, INDEX_ADD), &result);
    return result;
}

/* weight [N, points] over all channels */
static hlo_value over_channels(hlo_builder *b, const sampler *s, hlo_value weight) {
    int64_t dims[3] = {s->batch, s->points, s->channels};
    static const int64_t map[2] = {0, 1};
    return hlo_broadcast_in_dim(b, weight, 3, dims, map);
}

/* A tap outside counts as zero even where its weight meets an infinite or undefined element. */
static hlo_value weighted(hlo_builder *b, const sampler *s, hlo_value rows, hlo_value weight) {
    weight = over_channels(b, s, weight);
    hlo_value zero = number(b, weight, 0);
    return hlo_select(b, hlo_eq(b, weight, zero), zero, hlo_multiply(b, rows, weight));
}

static bool is_empty(const sampler *s) { return s->batch * s->channels * s->points * s->area == 0; }

/* (input, grid, interpolation_mode, padding_mode, align_corners) */
static void lower_grid_sampler(lowering *l) {
    hlo_builder *b = lower_builder(l);
    sampler s;
    int tap[MAX_SPATIAL];
    if (!sampler_init(l, &s, 0)) return;
    if (is_empty(&s)) {
        result_set(l, 0, index_zeros(b, result_dtype(l, 0), result_rank(l, 0), result_dims(l, 0)));
        return;
    }
    hlo_value sum = NULL;
    for (int k = 0; k < combinations(&s); k++) {
        hlo_value at = position(b, &s, k, tap);
        hlo_value part = weighted(b, &s, read_rows(b, &s, at), product(b, &s, tap, -1));
        sum = sum ? hlo_add(b, sum, part) : part;
    }
    result_set(l, 0, channels_first(b, sum, result_rank(l, 0), result_dims(l, 0)));
}

static hlo_value sum_channels(hlo_builder *b, hlo_value x) {
    int64_t channel = 2;
    return x ? hlo_reduce(b, HLO_REDUCE_ADD, x, 1, &channel) : NULL;
}

/* (grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask) -> (grad_input, grad_grid)
 */
static void lower_grid_sampler_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    sampler s;
    int tap[MAX_SPATIAL];
    hlo_value grad = arg_tensor(l, 0);
    if (!grad || !sampler_init(l, &s, 1)) return;
    if (is_empty(&s)) {
        for (int k = 0; k < 2; k++)
            if (result_wanted(l, k))
                result_set(l, k, index_zeros(b, result_dtype(l, k), result_rank(l, k), result_dims(l, k)));
        return;
    }
    grad = channels_last(b, grad, s.batch, s.channels, s.points);
    int64_t column[3] = {s.batch, s.points, 1};
    hlo_value positions[MAX_COMBINATIONS], shares[MAX_COMBINATIONS];
    hlo_value grad_axis[MAX_SPATIAL] = {NULL};
    for (int k = 0; k < combinations(&s); k++) {
        positions[k] = position(b, &s, k, tap);
        if (result_wanted(l, 0)) shares[k] = weighted(b, &s, grad, product(b, &s, tap, -1));
        if (!result_wanted(l, 1)) continue;
        hlo_value share = sum_channels(b, hlo_multiply(b, grad, read_rows(b, &s, positions[k])));
        for (int i = 0; i < s.spatial; i++) {
            hlo_value part = hlo_multiply(b, share, product(b, &s, tap, i));
            grad_axis[i] = grad_axis[i] ? hlo_add(b, grad_axis[i], part) : part;
        }
    }
    if (result_wanted(l, 0)) {
        int64_t rows[3] = {s.batch, s.area, s.channels};
        hlo_value at = hlo_concatenate(b, combinations(&s), positions, 1),
                  all = hlo_concatenate(b, combinations(&s), shares, 1);
        hlo_value sum = all ? add_to_rows(b, index_zeros(b, all->dtype, 3, rows), at, all) : NULL;
        result_set(l, 0, channels_first(b, sum, result_rank(l, 0), result_dims(l, 0)));
    }
    if (!result_wanted(l, 1)) return;
    hlo_value columns[MAX_SPATIAL];
    for (int i = 0; i < s.spatial; i++) columns[s.spatial - 1 - i] = hlo_reshape(b, grad_axis[i], 3, column);
    hlo_value grad_grid = hlo_concatenate(b, s.spatial, columns, 2);
    result_set(l, 1, hlo_reshape(b, grad_grid, result_rank(l, 1), result_dims(l, 1)));
}

/* ---- affine_grid_generator(theta [N, n, n + 1], size, align_corners): coordinates of the result's elements, mapped
 * ---- */

/* linspace(-1, 1, size) along dimension dim of a grid of this shape, drawn in by half an element without align_corners.
 */
static hlo_value base_coordinate(hlo_builder *b, dtype t, int rank, const int64_t *dims, int dim, bool align_corners) {
    int64_t size = dims[dim];
    double step = size > 1 ? 2.0 / (double)(size - 1) : 0, first = size > 1 ? -1 : 0;
    double shrink = align_corners || size == 0 ? 1 : (double)(size - 1) / (double)size;
    hlo_value at = hlo_iota(b, t, rank, dims, dim);
    return at ? plus(b, times(b, at, step * shrink), first * shrink) : NULL;
}

static void lower_affine_grid(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value theta = arg_tensor(l, 0);
    if (!theta || theta->rank != 3) return;
    int spatial = (int)theta->dims[1], rank = result_rank(l, 0) - 1;
    const int64_t *dims = result_dims(l, 0); /* [N, sizes.., spatial] */
    int64_t column[HLO_MAX_RANK];
    memcpy(column, dims, sizeof(int64_t) * (size_t)rank);
    column[rank] = 1;
    hlo_value results[MAX_SPATIAL] = {NULL};
    if (spatial > MAX_SPATIAL || rank != spatial + 1) return;
    for (int i = 0; i < spatial; i++) {
        hlo_value row = hlo_slice_dim(b, theta, 1, i, i + 1, 1), sum = NULL;
        for (int k = 0; k <= spatial; k++) {
            int64_t batch = dims[0], map = 0;
            hlo_value entry = hlo_reshape(b, hlo_slice_dim(b, row, 2, k, k + 1, 1), 1, &batch);
            entry = hlo_broadcast_in_dim(b, entry, rank, dims, &map);
            hlo_value part =
                k == spatial ? entry
                             : hlo_multiply(b, entry,
                                            base_coordinate(b, theta->dtype, rank, dims, rank - 1 - k, arg_bool(l, 2)));
            sum = sum ? hlo_add(b, sum, part) : part;
        }
        results[i] = hlo_reshape(b, sum, rank + 1, column);
    }
    result_set(l, 0, hlo_concatenate(b, spatial, results, rank));
}

const op_row ops_grid[] = {
    {"aten::grid_sampler_2d", PROMOTE_NONE, OP_OPMATH, .lower = lower_grid_sampler},
    {"aten::grid_sampler_3d", PROMOTE_NONE, OP_OPMATH, .lower = lower_grid_sampler},
    {"aten::_grid_sampler_2d_cpu_fallback", PROMOTE_NONE, OP_OPMATH, .lower = lower_grid_sampler},
    {"aten::grid_sampler_2d_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_grid_sampler_backward},
    {"aten::grid_sampler_3d_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_grid_sampler_backward},
    {"aten::_grid_sampler_2d_cpu_fallback_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_grid_sampler_backward},
    {"aten::affine_grid_generator", PROMOTE_NONE, OP_OPMATH, .lower = lower_affine_grid},
    {0},
};
