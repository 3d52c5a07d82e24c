/* A base read as another dtype: PyTorch's view(dtype), view_as_real, and storages that were bytes first. Little-endian,
 * as PyTorch's storages are. */
#include "view/plan.h"

void view_retyped_dims(dtype from, int rank, const int64_t *dims, dtype to, int *to_rank, int64_t *to_dims) {
    int64_t from_bytes = (int64_t)dtype_bytes(from), to_bytes = (int64_t)dtype_bytes(to);
    *to_rank = rank;
    int64_t count = 1;
    for (int d = 0; d < rank; d++) {
        to_dims[d] = dims[d];
        count *= dims[d];
    }
    if (from_bytes == to_bytes) return;
    if (rank > 0 && dims[rank - 1] * from_bytes % to_bytes == 0) {
        to_dims[rank - 1] = dims[rank - 1] * from_bytes / to_bytes;
        return;
    }
    *to_rank = 1;
    to_dims[0] = count * from_bytes / to_bytes;
}

static hlo_value flatten(hlo_builder *b, hlo_value x) {
    const int64_t count = hlo_element_count(x);
    return hlo_reshape(b, x, 1, &count);
}

/* Splits the last dimension [n] into [n / parts, parts]. */
static hlo_value split_last(hlo_builder *b, hlo_value x, int64_t parts) {
    if (!x || x->rank == 0 || x->rank + 1 > HLO_MAX_RANK)
        return x ? hlo_fail(b, STATUS_INTERNAL, "cannot split") : NULL;
    int64_t dims[HLO_MAX_RANK];
    for (int d = 0; d < x->rank; d++) dims[d] = x->dims[d];
    dims[x->rank - 1] /= parts;
    dims[x->rank] = parts;
    return hlo_reshape(b, x, x->rank + 1, dims);
}

/* Merges the last two dimensions. */
static hlo_value merge_last(hlo_builder *b, hlo_value x) {
    if (!x || x->rank < 2) return x;
    int64_t dims[HLO_MAX_RANK];
    for (int d = 0; d < x->rank; d++) dims[d] = x->dims[d];
    dims[x->rank - 2] *= dims[x->rank - 1];
    return hlo_reshape(b, x, x->rank - 1, dims);
}

/* [..., n] complex -> [..., 2n]: real and imaginary parts alternate. */
static hlo_value complex_to_pairs(hlo_builder *b, hlo_value x) {
    if (!x) return NULL;
    hlo_value parts[2] = {hlo_unsqueeze_dim(b, hlo_real(b, x), x->rank), hlo_unsqueeze_dim(b, hlo_imag(b, x), x->rank)};
    return merge_last(b, hlo_concatenate(b, 2, parts, x->rank));
}

static hlo_value pairs_to_complex(hlo_builder *b, hlo_value x) {
    hlo_value pairs = split_last(b, x, 2);
    if (!pairs) return NULL;
    int last = pairs->rank - 1;
    hlo_value real = hlo_squeeze_dim(b, hlo_slice_dim(b, pairs, last, 0, 1, 1), last);
    hlo_value imaginary = hlo_squeeze_dim(b, hlo_slice_dim(b, pairs, last, 1, 2, 1), last);
    return hlo_complex(b, real, imaginary);
}

/* Between types that StableHLO can bitcast (neither bool nor complex); the last dimension holds the bytes. */
static hlo_value bitcast_last(hlo_builder *b, hlo_value x, dtype to) {
    if (!x) return NULL;
    size_t from_bytes = dtype_bytes(x->dtype), to_bytes = dtype_bytes(to);
    if (from_bytes == to_bytes) return hlo_bitcast_convert(b, x, to);
    if (from_bytes > to_bytes) return merge_last(b, hlo_bitcast_convert(b, x, to));
    return hlo_bitcast_convert(b, split_last(b, x, (int64_t)(to_bytes / from_bytes)), to);
}

hlo_value view_retype_keeping_dims(hlo_builder *b, hlo_value base, dtype to) {
    if (!base || base->dtype == to) return base;
    int rank;
    int64_t dims[HLO_MAX_RANK];
    view_retyped_dims(base->dtype, base->rank, base->dims, to, &rank, dims);
    hlo_value x = base;
    int64_t bytes = hlo_element_count(x) * (int64_t)dtype_bytes(x->dtype), to_bytes = (int64_t)dtype_bytes(to);
    if (bytes < to_bytes) return hlo_constant_int(b, to, rank, dims, 0); /* no element: dims hold a 0 */
    bool same_size = dtype_bytes(x->dtype) == dtype_bytes(to);
    if (!same_size && (x->rank == 0 || x->dims[x->rank - 1] * (int64_t)dtype_bytes(x->dtype) % to_bytes != 0)) {
        x = flatten(b, x);
        if (bytes % to_bytes != 0)
            x = hlo_slice_dim(b, x, 0, 0, bytes / to_bytes * to_bytes / (int64_t)dtype_bytes(base->dtype), 1);
    }
    if (base->dtype == DTYPE_BOOL) x = hlo_convert(b, x, DTYPE_U8);
    if (dtype_is_complex(base->dtype)) x = complex_to_pairs(b, x->rank ? x : flatten(b, x));
    if (to == DTYPE_BOOL) {
        x = bitcast_last(b, x, DTYPE_U8);
        x = x ? hlo_ne(b, x, hlo_like(b, x, 0)) : NULL;
    } else if (dtype_is_complex(to)) {
        if (x && x->rank == 0) x = flatten(b, x);
        x = pairs_to_complex(b, bitcast_last(b, x, dtype_real(to)));
    } else {
        x = bitcast_last(b, x, to);
    }
    return hlo_reshape(b, x, rank, dims);
}

hlo_value view_retype(hlo_builder *b, hlo_value base, dtype t) {
    return flatten(b, view_retype_keeping_dims(b, base, t));
}
