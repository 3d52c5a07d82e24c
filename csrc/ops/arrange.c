/* Operators that put elements somewhere else without computing: joining, repeating, turning and shuffling. */
#include <string.h>

#include "ops/indexing.h"
#include "ops/ops.h"

static int join_dim(int64_t dim, int rank) {
    int64_t d = dim_wrap(dim, rank);
    return d < 0 ? 0 : (int)d;
}

/* The tensors of argument 0 that have elements or at least the result's rank: cat skips 1-d tensors of no elements. */
static int tensors_to_join(lowering *l, int rank, hlo_value *out) {
    const hlo_value *given;
    int n = arg_tensors(l, 0, &given), kept = 0;
    for (int i = 0; i < n; i++)
        if (given[i] && !(given[i]->rank == 1 && given[i]->dims[0] == 0 && rank != 1)) out[kept++] = given[i];
    return kept;
}

static void lower_cat(lowering *l) {
    hlo_builder *b = lower_builder(l);
    const hlo_value *given;
    int rank = result_rank(l, 0), n = arg_tensors(l, 0, &given);
    hlo_value *parts = ARENA_NEW(hlo_arena(b), hlo_value, n + 1);
    if (!parts) return;
    n = tensors_to_join(l, rank, parts);
    if (n == 0)
        result_set(l, 0, index_zeros(b, result_dtype(l, 0), rank, result_dims(l, 0)));
    else
        result_set(l, 0, n == 1 ? parts[0] : hlo_concatenate(b, n, parts, join_dim(arg_int_or(l, 1, 0), rank)));
}

static void lower_stack(lowering *l) {
    hlo_builder *b = lower_builder(l);
    const hlo_value *given;
    int rank = result_rank(l, 0), n = arg_tensors(l, 0, &given), dim = join_dim(arg_int_or(l, 1, 0), rank);
    hlo_value *parts = ARENA_NEW(hlo_arena(b), hlo_value, n + 1);
    if (!parts) return;
    for (int i = 0; i < n; i++) parts[i] = hlo_unsqueeze_dim(b, given[i], dim);
    result_set(l, 0, n == 1 ? parts[0] : hlo_concatenate(b, n, parts, dim));
}

/* Every tensor is padded along dim to a multiple of the chunk count and flattened behind it; the rows are joined. */
static void lower_chunk_cat(lowering *l) {
    hlo_builder *b = lower_builder(l);
    const hlo_value *given;
    int n = arg_tensors(l, 0, &given);
    int64_t chunks = arg_int(l, 2);
    hlo_value *parts = ARENA_NEW(hlo_arena(b), hlo_value, n + 1);
    if (!parts || n == 0 || !given[0] || chunks < 1) return;
    int dim = join_dim(arg_int(l, 1), given[0]->rank);
    for (int i = 0; i < n; i++) {
        hlo_value x = given[i];
        if (!x) return;
        int64_t high[HLO_MAX_RANK] = {0}, low[HLO_MAX_RANK] = {0}, dims[HLO_MAX_RANK], size = x->dims[dim], rest = 1;
        high[dim] = (size + chunks - 1) / chunks * chunks - size;
        for (int d = 0; d < dim; d++) dims[d] = x->dims[d];
        for (int d = dim; d < x->rank; d++) rest *= d == dim ? size + high[dim] : x->dims[d];
        dims[dim] = chunks;
        dims[dim + 1] = rest / chunks;
        parts[i] = hlo_reshape(b, hlo_pad(b, x, hlo_scalar(b, x->dtype, 0), low, high, NULL), dim + 2, dims);
    }
    result_set(l, 0, hlo_concatenate(b, n, parts, dim + 1));
}

static void lower_block_diag(lowering *l) {
    hlo_builder *b = lower_builder(l);
    const hlo_value *given;
    int n = arg_tensors(l, 0, &given);
    int64_t columns = result_dims(l, 0)[1], at = 0;
    hlo_value *rows = ARENA_NEW(hlo_arena(b), hlo_value, n + 1);
    if (!rows) return;
    for (int i = 0; i < n; i++) {
        hlo_value x = given[i];
        if (!x) return;
        int64_t dims[2] = {x->rank == 2 ? x->dims[0] : 1, x->rank ? x->dims[x->rank - 1] : 1};
        int64_t low[2] = {0, at}, high[2] = {0, columns - at - dims[1]};
        rows[i] = hlo_pad(b, hlo_reshape(b, x, 2, dims), hlo_scalar(b, x->dtype, 0), low, high, NULL);
        at += dims[1];
    }
    result_set(l, 0, n == 1 ? rows[0] : hlo_concatenate(b, n, rows, 0));
}

static void lower_repeat(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    const int64_t *repeats;
    int n = arg_ints(l, 1, &repeats), extra = n - x->rank, rank = 0;
    int64_t wide[HLO_MAX_RANK], map[HLO_MAX_RANK];
    bool plain = true; /* no dimension of x is itself repeated: a broadcast is enough */
    for (int i = 0; i < n; i++) plain = plain && (i < extra || repeats[i] == 1 || x->dims[i - extra] == 1);
    if (plain) {
        result_set(l, 0, hlo_broadcast_to(b, x, result_rank(l, 0), result_dims(l, 0)));
        return;
    }
    for (int i = 0; i < n; i++) {
        if (i < extra || repeats[i] != 1) wide[rank++] = repeats[i];
        if (i < extra) continue;
        map[i - extra] = rank;
        wide[rank++] = x->dims[i - extra];
    }
    result_set(l, 0, hlo_reshape(b, hlo_broadcast_in_dim(b, x, rank, wide, map), n, result_dims(l, 0)));
}

static void lower_flip(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    const int64_t *given;
    int64_t dims[HLO_MAX_RANK];
    int n = arg_ints(l, 1, &given);
    for (int i = 0; i < n; i++) dims[i] = join_dim(given[i], x->rank);
    result_set(l, 0, x->rank && n ? hlo_reverse(lower_builder(l), x, n, dims) : x);
}

static hlo_value roll_dim(hlo_builder *b, hlo_value x, int64_t shift, int dim) {
    if (!x || x->dims[dim] == 0) return x;
    int64_t n = x->dims[dim], first = ((-shift % n) + n) % n;
    if (first == 0) return x;
    hlo_value parts[2] = {hlo_slice_dim(b, x, dim, first, n, 1), hlo_slice_dim(b, x, dim, 0, first, 1)};
    return hlo_concatenate(b, 2, parts, dim);
}

static void lower_roll(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    const int64_t *shifts, *dims;
    int n = arg_ints(l, 1, &shifts), n_dims = arg_ints(l, 2, &dims);
    if (n_dims == 0 && n == 1) {
        int64_t flat = hlo_element_count(x);
        result_set(l, 0, hlo_reshape(b, roll_dim(b, hlo_reshape(b, x, 1, &flat), shifts[0], 0), x->rank, x->dims));
        return;
    }
    for (int i = 0; i < n && i < n_dims && x && x->rank; i++) x = roll_dim(b, x, shifts[i], join_dim(dims[i], x->rank));
    result_set(l, 0, x);
}

static void lower_rot90(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    const int64_t *dims;
    int64_t turns = ((arg_int_or(l, 1, 1) % 4) + 4) % 4, plane[2] = {0, 1}, swap[HLO_MAX_RANK];
    if (!x || x->rank < 2) return;
    if (arg_ints(l, 2, &dims) == 2) plane[0] = join_dim(dims[0], x->rank), plane[1] = join_dim(dims[1], x->rank);
    for (int i = 0; i < x->rank; i++) swap[i] = i == plane[0] ? plane[1] : i == plane[1] ? plane[0] : i;
    if (turns == 1)
        x = hlo_transpose(b, hlo_reverse(b, x, 1, &plane[1]), swap);
    else if (turns == 2)
        x = hlo_reverse(b, x, 2, plane);
    else if (turns == 3)
        x = hlo_transpose(b, hlo_reverse(b, x, 1, &plane[0]), swap);
    result_set(l, 0, x);
}

/* [N, groups * k, ...] seen as [N, groups, k, ...], the two swapped. */
static void lower_channel_shuffle(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank < 2) return;
    int64_t groups = arg_int(l, 1), dims[HLO_MAX_RANK], permutation[HLO_MAX_RANK];
    if (groups < 1) return;
    dims[0] = x->dims[0];
    dims[1] = groups;
    dims[2] = x->dims[1] / groups;
    for (int i = 2; i < x->rank; i++) dims[i + 1] = x->dims[i];
    for (int i = 0; i <= x->rank; i++) permutation[i] = i == 1 ? 2 : i == 2 ? 1 : i;
    hlo_value y = hlo_transpose(b, hlo_reshape(b, x, x->rank + 1, dims), permutation);
    result_set(l, 0, hlo_reshape(b, y, x->rank, x->dims));
}

/* [..., C r r, H, W] -> [..., C, H r, W r], and back. */
static void lower_pixel_shuffle(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank < 3) return;
    int64_t r = arg_int(l, 1), dims[HLO_MAX_RANK], permutation[HLO_MAX_RANK];
    int base = x->rank - 3;
    for (int i = 0; i < base; i++) dims[i] = x->dims[i], permutation[i] = i;
    int64_t inner[5] = {r ? x->dims[base] / (r * r) : 0, r, r, x->dims[base + 1], x->dims[base + 2]};
    static const int order[5] = {0, 3, 1, 4, 2};
    for (int i = 0; i < 5; i++) dims[base + i] = inner[i], permutation[base + i] = base + order[i];
    hlo_value y = hlo_transpose(b, hlo_reshape(b, x, base + 5, dims), permutation);
    result_set(l, 0, hlo_reshape(b, y, result_rank(l, 0), result_dims(l, 0)));
}

static void lower_pixel_unshuffle(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank < 3) return;
    int64_t r = arg_int(l, 1), dims[HLO_MAX_RANK], permutation[HLO_MAX_RANK];
    int base = x->rank - 3;
    if (r < 1) return;
    for (int i = 0; i < base; i++) dims[i] = x->dims[i], permutation[i] = i;
    int64_t inner[5] = {x->dims[base], x->dims[base + 1] / r, r, x->dims[base + 2] / r, r};
    static const int order[5] = {0, 2, 4, 1, 3};
    for (int i = 0; i < 5; i++) dims[base + i] = inner[i], permutation[base + i] = base + order[i];
    hlo_value y = hlo_transpose(b, hlo_reshape(b, x, base + 5, dims), permutation);
    result_set(l, 0, hlo_reshape(b, y, result_rank(l, 0), result_dims(l, 0)));
}

const op_row ops_arrange[] = {
    {"aten::cat", PROMOTE_RESULT, .lower = lower_cat},
    {"prims::cat", PROMOTE_RESULT, .lower = lower_cat},
    {"aten::stack", PROMOTE_RESULT, .lower = lower_stack},
    {"aten::_stack", PROMOTE_RESULT, .lower = lower_stack},
    {"aten::_chunk_cat", PROMOTE_RESULT, .lower = lower_chunk_cat},
    {"aten::block_diag", PROMOTE_RESULT, .lower = lower_block_diag},
    {"aten::repeat", PROMOTE_NONE, .lower = lower_repeat},
    {"aten::flip", PROMOTE_NONE, .lower = lower_flip},
    {"prims::rev", PROMOTE_NONE, .lower = lower_flip},
    {"aten::roll", PROMOTE_NONE, .lower = lower_roll},
    {"aten::rot90", PROMOTE_NONE, .lower = lower_rot90},
    {"aten::channel_shuffle", PROMOTE_NONE, .lower = lower_channel_shuffle},
    {"aten::pixel_shuffle", PROMOTE_NONE, .lower = lower_pixel_shuffle},
    {"aten::pixel_unshuffle", PROMOTE_NONE, .lower = lower_pixel_unshuffle},
    {0},
};
