/* Views in functional form: graphs from torch.compile and decompositions hold them as nodes on logical values.
 * The *_copy variants are the same computation; the *_scatter ones and the backward ones are in shape_scatter.c. */
#include <string.h>

#include "ops/indexing.h"
#include "ops/ops.h"

/* view, reshape, squeeze, unsqueeze, flatten, ...: whatever the operator's arguments say, the result has the same
 * elements in the same order, and PyTorch's meta kernel has said which shape. */
static void lower_reshape(lowering *l) {
    result_set(l, 0, hlo_reshape(lower_builder(l), arg_tensor(l, 0), result_rank(l, 0), result_dims(l, 0)));
}

static void lower_identity(lowering *l) { result_set(l, 0, arg_tensor(l, 0)); }

static void lower_conj(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    result_set(l, 0, x && dtype_is_complex(x->dtype) ? hlo_conj(lower_builder(l), x) : x);
}

static void lower_neg_view(lowering *l) { result_set(l, 0, hlo_negate(lower_builder(l), arg_tensor(l, 0))); }

static int wrap(lowering *l, int64_t dim, int rank) {
    int64_t d = dim_wrap(dim, rank);
    if (d < 0) {
        hlo_fail(lower_builder(l), STATUS_INDEX,
                 "Dimension out of range (expected to be in range of [%d, %d], but got %lld)", rank ? -rank : -1,
                 rank ? rank - 1 : 0, (long long)dim);
        return 0;
    }
    return (int)d;
}

static void lower_permute(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    const int64_t *dims;
    int64_t permutation[HLO_MAX_RANK];
    int n = arg_ints(l, 1, &dims);
    if (n != x->rank) {
        hlo_fail(lower_builder(l), STATUS_RUNTIME, "permute: %d dims given for a tensor of rank %d", n, x->rank);
        return;
    }
    for (int i = 0; i < n; i++) permutation[i] = wrap(l, dims[i], n);
    result_set(l, 0, hlo_transpose(lower_builder(l), x, permutation));
}

static hlo_value swap_dims(lowering *l, hlo_value x, int64_t dim0, int64_t dim1) {
    if (!x || x->rank == 0) return x;
    int64_t permutation[HLO_MAX_RANK];
    int a = wrap(l, dim0, x->rank), c = wrap(l, dim1, x->rank);
    for (int i = 0; i < x->rank; i++) permutation[i] = i == a ? c : i == c ? a : i;
    return hlo_transpose(lower_builder(l), x, permutation);
}

static void lower_transpose(lowering *l) {
    result_set(l, 0, swap_dims(l, arg_tensor(l, 0), arg_int(l, 1), arg_int(l, 2)));
}

static void lower_t(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    result_set(l, 0, x && x->rank == 2 ? swap_dims(l, x, 0, 1) : x);
}

/* mT, mH, adjoint and T reverse the last two dimensions or all of them. */
static void lower_reverse_dims(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    int64_t permutation[HLO_MAX_RANK];
    for (int i = 0; i < x->rank; i++) permutation[i] = x->rank - 1 - i;
    result_set(l, 0, hlo_transpose(lower_builder(l), x, permutation));
}

static void lower_movedim(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    const int64_t *source, *target;
    int64_t one_source, one_target, permutation[HLO_MAX_RANK];
    int n = 1;
    if (!strcmp(lower_name(l), "aten::movedim.int")) {
        one_source = arg_int(l, 1);
        one_target = arg_int(l, 2);
        source = &one_source;
        target = &one_target;
    } else {
        n = arg_ints(l, 1, &source);
        arg_ints(l, 2, &target);
    }
    bool moved[HLO_MAX_RANK] = {0}, taken[HLO_MAX_RANK] = {0};
    for (int i = 0; i < n; i++) {
        int from = wrap(l, source[i], x->rank), to = wrap(l, target[i], x->rank);
        permutation[to] = from;
        moved[from] = taken[to] = true;
    }
    for (int to = 0, from = 0; to < x->rank; to++) {
        if (taken[to]) continue;
        while (from < x->rank - 1 && moved[from]) from++;
        permutation[to] = from++;
    }
    result_set(l, 0, x->rank ? hlo_transpose(lower_builder(l), x, permutation) : x);
}

static void lower_expand(lowering *l) {
    result_set(l, 0, hlo_broadcast_to(lower_builder(l), arg_tensor(l, 0), result_rank(l, 0), result_dims(l, 0)));
}

/* ---- parts ---- */

static int64_t clamp_to(int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; }

static void lower_slice(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank == 0) return;
    int dim = wrap(l, arg_int_or(l, 1, 0), x->rank);
    int64_t n = x->dims[dim], start = arg_int_or(l, 2, 0), end = arg_int_or(l, 3, INT64_MAX),
            step = arg_int_or(l, 4, 1);
    if (step < 1) {
        hlo_fail(lower_builder(l), STATUS_VALUE, "slice step must be positive");
        return;
    }
    start = clamp_to(start < 0 ? start + n : start, 0, n);
    end = clamp_to(end < 0 ? end + n : end, start, n);
    result_set(l, 0, hlo_slice_dim(lower_builder(l), x, dim, start, end, step));
}

static void lower_select(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank == 0) return;
    int dim = wrap(l, arg_int(l, 1), x->rank);
    int64_t n = x->dims[dim], index = arg_int(l, 2);
    if (index < -n || index >= n) {
        hlo_fail(lower_builder(l), STATUS_INDEX, "select(): index %lld out of range for a dimension of size %lld",
                 (long long)index, (long long)n);
        return;
    }
    if (index < 0) index += n;
    hlo_value part = hlo_slice_dim(lower_builder(l), x, dim, index, index + 1, 1);
    result_set(l, 0, hlo_squeeze_dim(lower_builder(l), part, dim));
}

static void lower_narrow(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank == 0) return;
    int dim = wrap(l, arg_int(l, 1), x->rank);
    int64_t n = x->dims[dim], start = arg_int(l, 2), length = arg_int(l, 3);
    if (start < 0) start += n;
    result_set(l, 0, hlo_slice_dim(lower_builder(l), x, dim, start, start + length, 1));
}

/* Sets every wanted result to its run of dim; sizes NULL: all `size` long, the last one shorter. */
static void set_parts(lowering *l, hlo_value x, int dim, int64_t size, int n_sizes, const int64_t *sizes) {
    if (!x || x->rank == 0) return;
    int64_t n = x->dims[dim], at = 0;
    for (int k = 0; k < result_count(l); k++) {
        int64_t length = sizes ? (k < n_sizes ? sizes[k] : 0) : (at + size > n ? n - at : size);
        if (result_wanted(l, k)) result_set(l, k, hlo_slice_dim(lower_builder(l), x, dim, at, at + length, 1));
        at += length;
    }
}

static void lower_split(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (x) set_parts(l, x, wrap(l, arg_int_or(l, 2, 0), x->rank), arg_int(l, 1), 0, NULL);
}

static void lower_split_with_sizes(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    const int64_t *sizes;
    int n = arg_ints(l, 1, &sizes);
    if (x) set_parts(l, x, wrap(l, arg_int_or(l, 2, 0), x->rank), 0, n, sizes);
}

static void lower_chunk(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank == 0) return;
    int dim = wrap(l, arg_int_or(l, 2, 0), x->rank);
    int64_t chunks = arg_int(l, 1);
    set_parts(l, x, dim, chunks > 0 ? (x->dims[dim] + chunks - 1) / chunks : 0, 0, NULL);
}

static void lower_unbind(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank == 0) return;
    int dim = wrap(l, arg_int_or(l, 1, 0), x->rank);
    for (int k = 0; k < result_count(l); k++) {
        if (!result_wanted(l, k)) continue;
        hlo_value part = hlo_slice_dim(lower_builder(l), x, dim, k, k + 1, 1);
        result_set(l, k, hlo_squeeze_dim(lower_builder(l), part, dim));
    }
}

/* The diagonal of [..., rows, columns] is a strided run of the flattened matrix. */
static void lower_diagonal(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank < 2) return;
    int64_t offset = arg_int_or(l, 1, 0);
    int dim1 = wrap(l, arg_int_or(l, 2, 0), x->rank), dim2 = wrap(l, arg_int_or(l, 3, 1), x->rank), n = 0;
    int64_t permutation[HLO_MAX_RANK], flat[HLO_MAX_RANK], rows = x->dims[dim1], columns = x->dims[dim2];
    for (int i = 0; i < x->rank; i++)
        if (i != dim1 && i != dim2) flat[n] = x->dims[i], permutation[n++] = i;
    permutation[n] = dim1;
    permutation[n + 1] = dim2;
    flat[n] = rows * columns;
    int64_t count = result_dims(l, 0)[n], start = offset >= 0 ? offset : -offset * columns;
    if (count == 0) {
        result_set(l, 0, index_zeros(b, x->dtype, result_rank(l, 0), result_dims(l, 0)));
        return;
    }
    hlo_value y = hlo_reshape(b, hlo_transpose(b, x, permutation), n + 1, flat);
    result_set(l, 0, hlo_slice_dim(b, y, n, start, start + (count - 1) * (columns + 1) + 1, columns + 1));
}

/* unfold(dim, size, step): windows of a dimension, their elements in a new last dimension. */
static void lower_unfold(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    int64_t size = arg_int(l, 2), step = arg_int(l, 3);
    if (x->rank == 0) {
        result_set(l, 0, hlo_reshape(b, x, result_rank(l, 0), result_dims(l, 0)));
        return;
    }
    int dim = wrap(l, arg_int(l, 1), x->rank);
    int64_t dims[2] = {result_dims(l, 0)[dim], size}, permutation[HLO_MAX_RANK];
    hlo_value window = index_iota(b, 2, dims, 0), element = index_iota(b, 2, dims, 1);
    hlo_value index = hlo_add(b, hlo_multiply(b, window, hlo_like(b, window, (double)step)), element);
    hlo_value y = index_take(b, x, dim, index); /* [..., windows, size, ...] */
    for (int i = 0; i <= x->rank; i++) permutation[i] = i <= dim ? i : i == x->rank ? dim + 1 : i + 1;
    result_set(l, 0, hlo_transpose(b, y, permutation));
}

static void lower_as_strided(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    const int64_t *sizes, *strides;
    geometry g = {.dtype = x->dtype};
    g.rank = arg_ints(l, 1, &sizes);
    if (arg_ints(l, 2, &strides) != g.rank || g.rank > VIEW_MAX_RANK) {
        hlo_fail(lower_builder(l), STATUS_RUNTIME, "as_strided: sizes and strides differ in length");
        return;
    }
    memcpy(g.sizes, sizes, sizeof(int64_t) * (size_t)g.rank);
    memcpy(g.strides, strides, sizeof(int64_t) * (size_t)g.rank);
    g.offset = arg_int_or(l, 3, 0);
    result_set(l, 0, view_read(lower_builder(l), x, &g, NULL));
}

/* ---- other types ---- */

static void lower_view_dtype(lowering *l) {
    geometry g;
    geometry_contiguous(&g, result_dtype(l, 0), result_rank(l, 0), result_dims(l, 0));
    result_set(l, 0, view_read(lower_builder(l), arg_tensor(l, 0), &g, NULL));
}

static void lower_view_as_real(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    hlo_value parts[2] = {hlo_unsqueeze_dim(b, hlo_real(b, x), x->rank), hlo_unsqueeze_dim(b, hlo_imag(b, x), x->rank)};
    result_set(l, 0, hlo_concatenate(b, 2, parts, x->rank));
}

static void lower_view_as_complex(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x || x->rank == 0) return;
    int last = x->rank - 1;
    hlo_value re = hlo_squeeze_dim(b, hlo_slice_dim(b, x, last, 0, 1, 1), last);
    hlo_value im = hlo_squeeze_dim(b, hlo_slice_dim(b, x, last, 1, 2, 1), last);
    if (x->dtype == DTYPE_F16) re = hlo_convert(b, re, DTYPE_F32), im = hlo_convert(b, im, DTYPE_F32);
    result_set(l, 0, hlo_complex(b, re, im));
}

/* ---- prims ---- */

static void lower_broadcast_in_dim(lowering *l) {
    const int64_t *map;
    arg_ints(l, 2, &map);
    result_set(l, 0,
               hlo_broadcast_in_dim(lower_builder(l), arg_tensor(l, 0), result_rank(l, 0), result_dims(l, 0), map));
}

const op_row ops_shape[] = {
    {"aten::view", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::view_copy", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::view_as", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::_unsafe_view", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::_reshape_alias", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::_reshape_alias_copy", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::_reshape_copy", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::reshape", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::reshape_as", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::flatten.using_ints", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::unflatten.int", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::ravel", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::squeeze", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::squeeze.dim", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::squeeze.dims", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::squeeze_copy", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::squeeze_copy.dim", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::squeeze_copy.dims", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::unsqueeze", PROMOTE_NONE, .lower = lower_reshape},
    {"aten::unsqueeze_copy", PROMOTE_NONE, .lower = lower_reshape},
    {"prims::reshape", PROMOTE_NONE, .lower = lower_reshape},
    {"prims::collapse", PROMOTE_NONE, .lower = lower_reshape},
    {"prims::collapse_view", PROMOTE_NONE, .lower = lower_reshape},
    {"prims::split_dim", PROMOTE_NONE, .lower = lower_reshape},
    {"prims::squeeze", PROMOTE_NONE, .lower = lower_reshape},

    {"aten::alias", PROMOTE_NONE, .lower = lower_identity},
    {"aten::alias_copy", PROMOTE_NONE, .lower = lower_identity},
    {"aten::detach", PROMOTE_NONE, .lower = lower_identity},
    {"aten::detach_copy", PROMOTE_NONE, .lower = lower_identity},
    {"aten::lift", PROMOTE_NONE, .lower = lower_identity},
    {"aten::lift_fresh", PROMOTE_NONE, .lower = lower_identity},
    {"aten::lift_fresh_copy", PROMOTE_NONE, .lower = lower_identity},
    {"aten::_fw_primal", PROMOTE_NONE, .lower = lower_identity},
    {"aten::_fw_primal_copy", PROMOTE_NONE, .lower = lower_identity},
    {"aten::_make_dual", PROMOTE_NONE, .lower = lower_identity},
    {"aten::_make_dual_copy", PROMOTE_NONE, .lower = lower_identity},
    {"aten::_lazy_clone", PROMOTE_NONE, .lower = lower_identity},
    {"aten::resolve_conj", PROMOTE_NONE, .lower = lower_identity},
    {"aten::resolve_neg", PROMOTE_NONE, .lower = lower_identity},
    {"prims::view_of", PROMOTE_NONE, .lower = lower_identity},

    {"aten::_conj", PROMOTE_NONE, .lower = lower_conj},
    {"aten::_conj_copy", PROMOTE_NONE, .lower = lower_conj},
    {"aten::_neg_view", PROMOTE_NONE, .lower = lower_neg_view},
    {"aten::_neg_view_copy", PROMOTE_NONE, .lower = lower_neg_view},
    {"prims::conj", PROMOTE_NONE, .lower = lower_conj},

    {"aten::permute", PROMOTE_NONE, .lower = lower_permute},
    {"aten::permute_copy", PROMOTE_NONE, .lower = lower_permute},
    {"prims::transpose", PROMOTE_NONE, .lower = lower_permute},
    {"aten::transpose.int", PROMOTE_NONE, .lower = lower_transpose},
    {"aten::transpose_copy.int", PROMOTE_NONE, .lower = lower_transpose},
    {"aten::t", PROMOTE_NONE, .lower = lower_t},
    {"aten::t_copy", PROMOTE_NONE, .lower = lower_t},
    {"aten::numpy_T", PROMOTE_NONE, .lower = lower_reverse_dims},
    {"aten::movedim.int", PROMOTE_NONE, .lower = lower_movedim},
    {"aten::movedim.intlist", PROMOTE_NONE, .lower = lower_movedim},
    {"aten::expand", PROMOTE_NONE, .lower = lower_expand},
    {"aten::expand_copy", PROMOTE_NONE, .lower = lower_expand},
    {"prims::broadcast_in_dim", PROMOTE_NONE, .lower = lower_broadcast_in_dim},

    {"aten::slice.Tensor", PROMOTE_NONE, .lower = lower_slice},
    {"aten::slice_copy.Tensor", PROMOTE_NONE, .lower = lower_slice},
    {"aten::select.int", PROMOTE_NONE, .lower = lower_select},
    {"aten::select_copy.int", PROMOTE_NONE, .lower = lower_select},
    {"aten::narrow", PROMOTE_NONE, .lower = lower_narrow},
    {"aten::narrow_copy", PROMOTE_NONE, .lower = lower_narrow},
    {"aten::split.Tensor", PROMOTE_NONE, .lower = lower_split},
    {"aten::split_copy.Tensor", PROMOTE_NONE, .lower = lower_split},
    {"aten::unsafe_split.Tensor", PROMOTE_NONE, .lower = lower_split},
    {"aten::split_with_sizes", PROMOTE_NONE, .lower = lower_split_with_sizes},
    {"aten::split_with_sizes_copy", PROMOTE_NONE, .lower = lower_split_with_sizes},
    {"aten::unsafe_split_with_sizes", PROMOTE_NONE, .lower = lower_split_with_sizes},
    {"aten::chunk", PROMOTE_NONE, .lower = lower_chunk},
    {"aten::unsafe_chunk", PROMOTE_NONE, .lower = lower_chunk},
    {"aten::unbind.int", PROMOTE_NONE, .lower = lower_unbind},
    {"aten::unbind_copy.int", PROMOTE_NONE, .lower = lower_unbind},
    {"aten::diagonal", PROMOTE_NONE, .lower = lower_diagonal},
    {"aten::diagonal_copy", PROMOTE_NONE, .lower = lower_diagonal},
    {"aten::unfold", PROMOTE_NONE, .lower = lower_unfold},
    {"aten::unfold_copy", PROMOTE_NONE, .lower = lower_unfold},
    {"aten::as_strided", PROMOTE_NONE, .lower = lower_as_strided},
    {"aten::as_strided_copy", PROMOTE_NONE, .lower = lower_as_strided},
    {"prims::as_strided", PROMOTE_NONE, .lower = lower_as_strided},

    {"aten::view.dtype", PROMOTE_NONE, .lower = lower_view_dtype},
    {"aten::view_copy.dtype", PROMOTE_NONE, .lower = lower_view_dtype},
    {"prims::view_of_dtype", PROMOTE_NONE, .lower = lower_view_dtype},
    {"aten::view_as_real", PROMOTE_NONE, .lower = lower_view_as_real},
    {"aten::view_as_real_copy", PROMOTE_NONE, .lower = lower_view_as_real},
    {"aten::view_as_complex", PROMOTE_NONE, .lower = lower_view_as_complex},
    {"aten::view_as_complex_copy", PROMOTE_NONE, .lower = lower_view_as_complex},
    {0},
};
