/* Padding (constant, reflecting, replicating) and its gradients; im2col and col2im. */
#include <string.h>

#include "ops/indexing.h"
#include "ops/ops.h"

static void lower_constant_pad(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    const int64_t *pad;
    int64_t low[HLO_MAX_RANK] = {0}, high[HLO_MAX_RANK] = {0};
    int n = arg_ints(l, 1, &pad) / 2;
    /* Pairs start at the last dimension. Negative padding crops, as StableHLO's does. */
    for (int i = 0; i < n && i < x->rank; i++)
        low[x->rank - 1 - i] = pad[2 * i], high[x->rank - 1 - i] = pad[2 * i + 1];
    hlo_value fill = arg_number_or(l, 2, x->dtype, 0);
    result_set(l, 0, hlo_pad(lower_builder(l), x, fill, low, high, NULL));
}

/* ---- reflection and replication: one dimension after the other ---- */

/* x without the elements that negative padding crops. */
static hlo_value crop(hlo_builder *b, hlo_value x, int dim, int64_t low, int64_t high) {
    if (!x || (low >= 0 && high >= 0)) return x;
    return hlo_slice_dim(b, x, dim, low < 0 ? -low : 0, x->dims[dim] + (high < 0 ? high : 0), 1);
}

/* `count` copies of the slice `at` of dim. */
static hlo_value copies(hlo_builder *b, hlo_value x, int dim, int64_t at, int64_t count) {
    if (!x) return NULL;
    int64_t dims[HLO_MAX_RANK];
    memcpy(dims, x->dims, sizeof(int64_t) * (size_t)x->rank);
    dims[dim] = count;
    return hlo_broadcast_to(b, hlo_slice_dim(b, x, dim, at, at + 1, 1), x->rank, dims);
}

static hlo_value mirrored(hlo_builder *b, hlo_value x, int dim, int64_t start, int64_t end) {
    int64_t d = dim;
    return hlo_reverse(b, hlo_slice_dim(b, x, dim, start, end, 1), 1, &d);
}

static hlo_value pad_dim(hlo_builder *b, hlo_value x, int dim, int64_t low, int64_t high, bool reflect) {
    if (!x) return NULL;
    int64_t n = x->dims[dim];
    hlo_value parts[3];
    int k = 0;
    if (low > 0) parts[k++] = reflect ? mirrored(b, x, dim, 1, low + 1) : copies(b, x, dim, 0, low);
    parts[k++] = crop(b, x, dim, low, high);
    if (high > 0) parts[k++] = reflect ? mirrored(b, x, dim, n - 1 - high, n - 1) : copies(b, x, dim, n - 1, high);
    return k == 1 ? parts[0] : hlo_concatenate(b, k, parts, dim);
}

static hlo_value sum_dim(hlo_builder *b, hlo_value x, int dim) {
    int64_t d = dim;
    return hlo_unsqueeze_dim(b, hlo_reduce(b, HLO_REDUCE_ADD, x, 1, &d), dim);
}

/* part placed at `at` in a dimension of n, zeros around. */
static hlo_value place(hlo_builder *b, hlo_value part, int dim, int64_t n, int64_t at) {
    return part ? index_spread(b, part, hlo_scalar(b, part->dtype, 0), dim, n, at, 1) : NULL;
}

/* The gradient of pad_dim for a dimension that had n elements: what each copy got goes back to where it came from. */
static hlo_value pad_dim_backward(hlo_builder *b, hlo_value g, int dim, int64_t n, int64_t low, int64_t high,
                                  bool reflect) {
    if (!g) return NULL;
    int64_t size = g->dims[dim], before = low > 0 ? low : 0, after = high > 0 ? high : 0;
    hlo_value middle = hlo_slice_dim(b, g, dim, before, size - after, 1);
    hlo_value result = place(b, middle, dim, n, low < 0 ? -low : 0);
    if (before) {
        hlo_value part =
            reflect ? mirrored(b, g, dim, 0, before) : sum_dim(b, hlo_slice_dim(b, g, dim, 0, before, 1), dim);
        result = hlo_add(b, result, place(b, part, dim, n, reflect ? 1 : 0));
    }
    if (after) {
        hlo_value part = reflect ? mirrored(b, g, dim, size - after, size)
                                 : sum_dim(b, hlo_slice_dim(b, g, dim, size - after, size, 1), dim);
        result = hlo_add(b, result, place(b, part, dim, n, reflect ? n - 1 - after : n - 1));
    }
    return result;
}

static void lower_edge_pad(lowering *l, bool reflect) {
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    const int64_t *pad;
    int n = arg_ints(l, 1, &pad) / 2, rank = x->rank;
    for (int i = 0; i < n && i < rank; i++)
        if (pad[2 * i] || pad[2 * i + 1])
            x = pad_dim(lower_builder(l), x, rank - 1 - i, pad[2 * i], pad[2 * i + 1], reflect);
    result_set(l, 0, x);
}

static void lower_edge_pad_backward(lowering *l, bool reflect) {
    hlo_value g = arg_tensor(l, 0), x = arg_tensor(l, 1);
    if (!g || !x) return;
    const int64_t *pad;
    int n = arg_ints(l, 2, &pad) / 2, rank = x->rank;
    for (int i = 0; i < n && i < rank; i++) {
        int dim = rank - 1 - i;
        if (pad[2 * i] || pad[2 * i + 1])
            g = pad_dim_backward(lower_builder(l), g, dim, x->dims[dim], pad[2 * i], pad[2 * i + 1], reflect);
    }
    result_set(l, 0, g);
}

static void lower_reflection_pad(lowering *l) { lower_edge_pad(l, true); }
static void lower_replication_pad(lowering *l) { lower_edge_pad(l, false); }
static void lower_reflection_pad_backward(lowering *l) { lower_edge_pad_backward(l, true); }
static void lower_replication_pad_backward(lowering *l) { lower_edge_pad_backward(l, false); }

/* ---- im2col: [N, C, H, W] -> [N, C kh kw, positions] ---- */

typedef struct {
    int64_t kernel, dilation, padding, stride, positions;
} window_axis;

static int64_t pair_at(const int64_t *v, int n, int i) { return n == 0 ? 0 : v[n == 1 ? 0 : i]; }

/* Reads kernel_size, dilation, padding and stride from `first` on. */
static void window_axes(lowering *l, int first, const int64_t *size, window_axis out[2]) {
    const int64_t *kernel, *dilation, *padding, *stride;
    int nk = arg_ints(l, first, &kernel), nd = arg_ints(l, first + 1, &dilation);
    int np = arg_ints(l, first + 2, &padding), ns = arg_ints(l, first + 3, &stride);
    for (int i = 0; i < 2; i++) {
        window_axis *a = &out[i];
        *a = (window_axis){pair_at(kernel, nk, i), pair_at(dilation, nd, i), pair_at(padding, np, i),
                           pair_at(stride, ns, i), 0};
        if (a->stride < 1) a->stride = 1;
        a->positions = (size[i] + 2 * a->padding - a->dilation * (a->kernel - 1) - 1) / a->stride + 1;
    }
}

/* [kernel, positions]: which padded element the kernel's element reads at a position. */
static hlo_value window_index(hlo_builder *b, const window_axis *a) {
    int64_t dims[2] = {a->kernel, a->positions};
    hlo_value k = index_iota(b, 2, dims, 0), p = index_iota(b, 2, dims, 1);
    return hlo_add(b, hlo_multiply(b, k, hlo_like(b, k, (double)a->dilation)),
                   hlo_multiply(b, p, hlo_like(b, p, (double)a->stride)));
}

static void lower_im2col(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank < 3) return;
    if (x->rank == 3) x = hlo_unsqueeze_dim(b, x, 0);
    window_axis a[2];
    window_axes(l, 1, x->dims + 2, a);
    int64_t edges[4] = {0, 0, a[0].padding, a[1].padding};
    hlo_value y = hlo_pad(b, x, hlo_scalar(b, x->dtype, 0), edges, edges, NULL);
    y = index_take(b, y, 3, window_index(b, &a[1])); /* [N, C, H, kw, ow] */
    y = index_take(b, y, 2, window_index(b, &a[0])); /* [N, C, kh, oh, kw, ow] */
    static const int64_t order[6] = {0, 1, 2, 4, 3, 5};
    result_set(l, 0, hlo_reshape(b, hlo_transpose(b, y, order), result_rank(l, 0), result_dims(l, 0)));
}

static void lower_col2im(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    const int64_t *size;
    if (!x || x->rank < 2 || arg_ints(l, 1, &size) != 2) return;
    if (x->rank == 2) x = hlo_unsqueeze_dim(b, x, 0);
    window_axis a[2];
    window_axes(l, 2, size, a);
    int64_t area = a[0].kernel * a[1].kernel, channels = area ? x->dims[1] / area : 0;
    int64_t dims[6] = {x->dims[0], channels, a[0].kernel, a[1].kernel, a[0].positions, a[1].positions};
    static const int64_t order[6] = {0, 1, 2, 4, 3, 5};
    hlo_value y = hlo_transpose(b, hlo_reshape(b, x, 6, dims), order); /* [N, C, kh, oh, kw, ow] */
    int64_t height = size[0] + 2 * a[0].padding, width = size[1] + 2 * a[1].padding;
    int64_t tall[5] = {dims[0], channels, height, a[1].kernel, a[1].positions},
            whole[4] = {dims[0], channels, height, width};
    y = index_put_slices(b, index_zeros(b, x->dtype, 5, tall), 2, window_index(b, &a[0]), y, INDEX_ADD);
    y = index_put_slices(b, index_zeros(b, x->dtype, 4, whole), 3, window_index(b, &a[1]), y, INDEX_ADD);
    int64_t edges[4] = {0, 0, -a[0].padding, -a[1].padding};
    y = hlo_pad(b, y, hlo_scalar(b, x->dtype, 0), edges, edges, NULL);
    result_set(l, 0, hlo_reshape(b, y, result_rank(l, 0), result_dims(l, 0)));
}

const op_row ops_pad[] = {
    {"aten::constant_pad_nd", PROMOTE_NONE, .lower = lower_constant_pad},
    {"aten::reflection_pad1d", PROMOTE_NONE, .lower = lower_reflection_pad},
    {"aten::reflection_pad2d", PROMOTE_NONE, .lower = lower_reflection_pad},
    {"aten::reflection_pad3d", PROMOTE_NONE, .lower = lower_reflection_pad},
    {"aten::replication_pad1d", PROMOTE_NONE, .lower = lower_replication_pad},
    {"aten::replication_pad2d", PROMOTE_NONE, .lower = lower_replication_pad},
    {"aten::replication_pad3d", PROMOTE_NONE, .lower = lower_replication_pad},
    {"aten::reflection_pad1d_backward", PROMOTE_NONE, .lower = lower_reflection_pad_backward},
    {"aten::reflection_pad2d_backward", PROMOTE_NONE, .lower = lower_reflection_pad_backward},
    {"aten::reflection_pad3d_backward", PROMOTE_NONE, .lower = lower_reflection_pad_backward},
    {"aten::replication_pad1d_backward", PROMOTE_NONE, .lower = lower_replication_pad_backward},
    {"aten::replication_pad2d_backward", PROMOTE_NONE, .lower = lower_replication_pad_backward},
    {"aten::replication_pad3d_backward", PROMOTE_NONE, .lower = lower_replication_pad_backward},
    {"aten::im2col", PROMOTE_NONE, .lower = lower_im2col},
    {"aten::col2im", PROMOTE_NONE, .lower = lower_col2im},
    {0},
};
