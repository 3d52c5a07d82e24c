/* Operations that move elements and change none. */
#include <string.h>

#include "hlo/internal.h"

static bool same_dims(hlo_value x, int rank, const int64_t *dims) {
    return x->rank == rank && (rank == 0 || memcmp(x->dims, dims, sizeof(int64_t) * (size_t)rank) == 0);
}

static bool check_rank(hlo_builder *b, const char *name, int rank) {
    if (rank >= 0 && rank <= HLO_MAX_RANK) return true;
    hlo_fail(b, STATUS_NOT_IMPLEMENTED, "%s: a result of %d dimensions; at most %d are supported", name, rank,
             HLO_MAX_RANK);
    return false;
}

hlo_value hlo_broadcast_in_dim(hlo_builder *b, hlo_value x, int rank, const int64_t *dims, const int64_t *map) {
    const char *name = "stablehlo.broadcast_in_dim";
    if (!hlo_ready(b, 1, &x) || !check_rank(b, name, rank) ||
        !hlo_check_dims(b, name, "broadcast dimensions", rank, x->rank, map))
        return NULL;
    for (int d = 0; d < x->rank; d++)
        if (x->dims[d] != 1 && x->dims[d] != dims[map[d]])
            return hlo_fail(b, STATUS_RUNTIME, "%s: dimension %d of operand 0, %s, cannot become %lld", name, d,
                            hlo_value_text(b, x), (long long)dims[map[d]]);
    hlo_attribute_ints(b, "broadcast_dimensions", x->rank, map);
    return hlo_emit_one(b, name, 1, &x, x->dtype, rank, dims);
}

hlo_value hlo_broadcast_to(hlo_builder *b, hlo_value x, int rank, const int64_t *dims) {
    if (!hlo_ready(b, 1, &x)) return NULL;
    if (same_dims(x, rank, dims)) return x;
    if (x->rank > rank)
        return hlo_fail(b, STATUS_RUNTIME, "stablehlo.broadcast_in_dim: operand 0, %s, to only %d dimensions",
                        hlo_value_text(b, x), rank);
    int64_t map[HLO_MAX_RANK];
    for (int d = 0; d < x->rank; d++) map[d] = rank - x->rank + d;
    return hlo_broadcast_in_dim(b, x, rank, dims, map);
}

hlo_value hlo_reshaped_from(hlo_value v) { return v ? ((const hlo_node *)v)->reshaped : NULL; }
hlo_value hlo_transposed_from(hlo_value v) { return v ? ((const hlo_node *)v)->transposed : NULL; }
void hlo_set_note(hlo_value v, const void *note) {
    if (v) ((hlo_node *)v)->note = note;
}
const void *hlo_note(hlo_value v) { return v ? ((const hlo_node *)v)->note : NULL; }

hlo_value hlo_reshape(hlo_builder *b, hlo_value x, int rank, const int64_t *dims) {
    if (!hlo_ready(b, 1, &x) || !check_rank(b, "stablehlo.reshape", rank)) return NULL;
    if (same_dims(x, rank, dims)) return x;
    int64_t count = 1;
    bool overflow = false;
    for (int d = 0; d < rank; d++) overflow |= __builtin_mul_overflow(count, dims[d], &count);
    hlo_type to = {x->dtype, rank, dims};
    if (overflow || count != hlo_element_count(x))
        return hlo_fail(b, STATUS_RUNTIME, "stablehlo.reshape: operand 0, %s, cannot become %s", hlo_value_text(b, x),
                        hlo_type_text(b, &to));
    if (hlo_reshaped_from(x)) x = hlo_reshaped_from(x);
    if (same_dims(x, rank, dims)) return x;
    hlo_value v = hlo_emit_one(b, "stablehlo.reshape", 1, &x, x->dtype, rank, dims);
    if (v) ((hlo_node *)v)->reshaped = x;
    return v;
}

hlo_value hlo_transpose(hlo_builder *b, hlo_value x, const int64_t *permutation) {
    if (!hlo_ready(b, 1, &x) ||
        !hlo_check_dims(b, "stablehlo.transpose", "the permutation's entries", x->rank, x->rank, permutation))
        return NULL;
    int64_t dims[HLO_MAX_RANK];
    bool identity = true;
    for (int d = 0; d < x->rank; d++) {
        dims[d] = x->dims[permutation[d]];
        identity &= permutation[d] == d;
    }
    if (identity) return x;
    hlo_attribute_ints(b, "permutation", x->rank, permutation);
    hlo_value v = hlo_emit_one(b, "stablehlo.transpose", 1, &x, x->dtype, x->rank, dims);
    if (v && x->rank == 2) ((hlo_node *)v)->transposed = x;
    return v;
}

/* ---- slices ---- */

hlo_value hlo_slice(hlo_builder *b, hlo_value x, const int64_t *start, const int64_t *limit, const int64_t *stride) {
    if (!hlo_ready(b, 1, &x)) return NULL;
    int64_t dims[HLO_MAX_RANK], strides[HLO_MAX_RANK];
    bool whole = true;
    for (int d = 0; d < x->rank; d++) {
        strides[d] = stride ? stride[d] : 1;
        if (start[d] < 0 || start[d] > limit[d] || limit[d] > x->dims[d] || strides[d] < 1)
            return hlo_fail(b, STATUS_INDEX, "stablehlo.slice: [%lld:%lld:%lld] in dimension %d of operand 0, %s",
                            (long long)start[d], (long long)limit[d], (long long)strides[d], d, hlo_value_text(b, x));
        dims[d] = (limit[d] - start[d] + strides[d] - 1) / strides[d];
        whole &= dims[d] == x->dims[d];
    }
    if (whole) return x;
    hlo_attribute_ints(b, "start_indices", x->rank, start);
    hlo_attribute_ints(b, "limit_indices", x->rank, limit);
    hlo_attribute_ints(b, "strides", x->rank, strides);
    return hlo_emit_one(b, "stablehlo.slice", 1, &x, x->dtype, x->rank, dims);
}

hlo_value hlo_slice_dim(hlo_builder *b, hlo_value x, int dim, int64_t start, int64_t limit, int64_t stride) {
    if (!hlo_ready(b, 1, &x) || !hlo_check_dim(b, "stablehlo.slice", x, dim)) return NULL;
    int64_t starts[HLO_MAX_RANK] = {0}, limits[HLO_MAX_RANK], strides[HLO_MAX_RANK];
    for (int d = 0; d < x->rank; d++) {
        limits[d] = x->dims[d];
        strides[d] = 1;
    }
    starts[dim] = start;
    limits[dim] = limit;
    strides[dim] = stride;
    return hlo_slice(b, x, starts, limits, strides);
}

/* Start indices: integer scalars of one type. */
static bool check_starts(hlo_builder *b, const char *name, int first, int rank, const hlo_value *start) {
    for (int i = 0; i < rank; i++) {
        if (start[i]->rank == 0 && dtype_is_int(start[i]->dtype) && start[i]->dtype == start[0]->dtype) continue;
        hlo_fail(b, STATUS_TYPE, "%s: operand %d, %s, must be an integer scalar, of one type with the other starts",
                 name, first + i, hlo_value_text(b, start[i]));
        return false;
    }
    return true;
}

static bool check_window(hlo_builder *b, const char *name, hlo_value x, const int64_t *sizes) {
    for (int d = 0; d < x->rank; d++) {
        if (sizes[d] >= 0 && sizes[d] <= x->dims[d]) continue;
        hlo_fail(b, STATUS_INDEX, "%s: %lld elements of dimension %d of operand 0, %s", name, (long long)sizes[d], d,
                 hlo_value_text(b, x));
        return false;
    }
    return true;
}

hlo_value hlo_dynamic_slice(hlo_builder *b, hlo_value x, const hlo_value *start, const int64_t *sizes) {
    const char *name = "stablehlo.dynamic_slice";
    if (!hlo_ready(b, 1, &x) || !hlo_ready(b, x->rank, start) || !check_starts(b, name, 1, x->rank, start) ||
        !check_window(b, name, x, sizes))
        return NULL;
    hlo_value operands[1 + HLO_MAX_RANK] = {x};
    for (int d = 0; d < x->rank; d++) operands[1 + d] = start[d];
    hlo_attribute_ints(b, "slice_sizes", x->rank, sizes);
    return hlo_emit_one(b, name, 1 + x->rank, operands, x->dtype, x->rank, sizes);
}

hlo_value hlo_dynamic_update_slice(hlo_builder *b, hlo_value x, hlo_value update, const hlo_value *start) {
    const char *name = "stablehlo.dynamic_update_slice";
    hlo_value operands[2 + HLO_MAX_RANK] = {x, update};
    if (!hlo_ready(b, 2, operands) || !hlo_ready(b, x->rank, start) || !hlo_check_dtype(b, name, 1, update, x->dtype))
        return NULL;
    if (update->rank != x->rank)
        return hlo_fail(b, STATUS_RUNTIME, "%s: operand 1, %s, has not the dimensions of operand 0, %s", name,
                        hlo_value_text(b, update), hlo_value_text(b, x));
    if (!check_starts(b, name, 2, x->rank, start) || !check_window(b, name, x, update->dims)) return NULL;
    for (int d = 0; d < x->rank; d++) operands[2 + d] = start[d];
    return hlo_emit_one(b, name, 2 + x->rank, operands, x->dtype, x->rank, x->dims);
}

/* ---- pad, concatenate, reverse ---- */

hlo_value hlo_pad(hlo_builder *b, hlo_value x, hlo_value padding_value, const int64_t *low, const int64_t *high,
                  const int64_t *interior) {
    const char *name = "stablehlo.pad";
    hlo_value operands[2] = {x, padding_value};
    if (!hlo_ready(b, 2, operands) || !hlo_check_dtype(b, name, 1, padding_value, x->dtype)) return NULL;
    if (padding_value->rank != 0)
        return hlo_fail(b, STATUS_RUNTIME, "%s: operand 1, %s, must be a scalar", name,
                        hlo_value_text(b, padding_value));
    int64_t dims[HLO_MAX_RANK], between[HLO_MAX_RANK];
    bool nothing = true;
    for (int d = 0; d < x->rank; d++) {
        between[d] = interior ? interior[d] : 0;
        dims[d] = x->dims[d] + low[d] + high[d] + (x->dims[d] > 1 ? (x->dims[d] - 1) * between[d] : 0);
        if (dims[d] < 0 || between[d] < 0)
            return hlo_fail(b, STATUS_RUNTIME, "%s: (%lld, %lld, %lld) in dimension %d of operand 0, %s", name,
                            (long long)low[d], (long long)high[d], (long long)between[d], d, hlo_value_text(b, x));
        nothing &= low[d] == 0 && high[d] == 0 && dims[d] == x->dims[d];
    }
    if (nothing) return x;
    hlo_attribute_ints(b, "edge_padding_low", x->rank, low);
    hlo_attribute_ints(b, "edge_padding_high", x->rank, high);
    hlo_attribute_ints(b, "interior_padding", x->rank, between);
    return hlo_emit_one(b, name, 2, operands, x->dtype, x->rank, dims);
}

hlo_value hlo_concatenate(hlo_builder *b, int n, const hlo_value *x, int dim) {
    const char *name = "stablehlo.concatenate";
    if (!hlo_ready(b, n, x)) return NULL;
    if (n < 1) return hlo_fail(b, STATUS_INTERNAL, "%s: no operands", name);
    if (!hlo_check_dim(b, name, x[0], dim)) return NULL;
    if (n == 1) return x[0];
    int64_t dims[HLO_MAX_RANK];
    memcpy(dims, x[0]->dims, sizeof(int64_t) * (size_t)x[0]->rank);
    for (int i = 1; i < n; i++) {
        if (!hlo_check_dtype(b, name, i, x[i], x[0]->dtype)) return NULL;
        bool fits = x[i]->rank == x[0]->rank;
        for (int d = 0; fits && d < x[0]->rank; d++) fits = d == dim || x[i]->dims[d] == x[0]->dims[d];
        if (!fits)
            return hlo_fail(b, STATUS_RUNTIME, "%s: operand %d, %s, does not go with operand 0, %s, along dimension %d",
                            name, i, hlo_value_text(b, x[i]), hlo_value_text(b, x[0]), dim);
        dims[dim] += x[i]->dims[dim];
    }
    hlo_attribute_int(b, "dimension", dim);
    return hlo_emit_one(b, name, n, x, x[0]->dtype, x[0]->rank, dims);
}

hlo_value hlo_reverse(hlo_builder *b, hlo_value x, int n, const int64_t *dims) {
    if (!hlo_ready(b, 1, &x) || !hlo_check_dims(b, "stablehlo.reverse", "dimensions", x->rank, n, dims)) return NULL;
    if (n == 0) return x;
    hlo_attribute_ints(b, "dimensions", n, dims);
    return hlo_emit_one(b, "stablehlo.reverse", 1, &x, x->dtype, x->rank, x->dims);
}

/* ---- dimensions of size 1 ---- */

hlo_value hlo_squeeze_dim(hlo_builder *b, hlo_value x, int dim) {
    if (!hlo_ready(b, 1, &x) || !hlo_check_dim(b, "squeeze", x, dim)) return NULL;
    if (x->dims[dim] != 1)
        return hlo_fail(b, STATUS_RUNTIME, "squeeze: dimension %d of operand 0, %s, is not 1", dim,
                        hlo_value_text(b, x));
    int64_t dims[HLO_MAX_RANK];
    for (int d = 0; d + 1 < x->rank; d++) dims[d] = x->dims[d < dim ? d : d + 1];
    return hlo_reshape(b, x, x->rank - 1, dims);
}

hlo_value hlo_unsqueeze_dim(hlo_builder *b, hlo_value x, int dim) {
    if (!hlo_ready(b, 1, &x)) return NULL;
    if (dim < 0 || dim > x->rank)
        return hlo_fail(b, STATUS_INDEX, "unsqueeze: dimension %d of operand 0, %s", dim, hlo_value_text(b, x));
    int64_t dims[HLO_MAX_RANK + 1];
    for (int d = 0; d <= x->rank; d++) dims[d] = d == dim ? 1 : x->dims[d < dim ? d : d - 1];
    return hlo_reshape(b, x, x->rank + 1, dims);
}
