/* gather and scatter. */
#include "hlo/internal.h"

/* The indices' dimensions but the one that holds index vectors. Returns how many. */
static int batch_sizes(hlo_value indices, int64_t index_vector_dim, int64_t *dims) {
    int n = 0;
    for (int d = 0; d < indices->rank; d++)
        if (d != index_vector_dim) dims[n++] = indices->dims[d];
    return n;
}

static bool contains(int n, const int64_t *list, int64_t v) {
    for (int i = 0; i < n; i++)
        if (list[i] == v) return true;
    return false;
}

/* What gather and scatter ask of the indices: integers; vectors as long as the map; batching dimensions of equal sizes.
 */
static bool check_indices(hlo_builder *b, const char *name, hlo_value operand, int index, hlo_value indices,
                          int64_t vector_dim, int n_map, const int64_t *map, int n_batch, const int64_t *operand_batch,
                          const int64_t *indices_batch) {
    if (!dtype_is_int(indices->dtype)) {
        hlo_fail(b, STATUS_TYPE, "%s: operand %d, %s, must hold integers", name, index, hlo_value_text(b, indices));
        return false;
    }
    int64_t length = vector_dim >= 0 && vector_dim < indices->rank ? indices->dims[vector_dim] : 1;
    if (vector_dim < 0 || vector_dim > indices->rank || length != n_map) {
        hlo_fail(b, STATUS_INTERNAL, "%s: operand %d, %s, must hold vectors of %d indices in dimension %lld", name,
                 index, hlo_value_text(b, indices), n_map, (long long)vector_dim);
        return false;
    }
    if (!hlo_check_dims(b, name, "indexed dimensions", operand->rank, n_map, map) ||
        !hlo_check_dims(b, name, "batching dimensions", operand->rank, n_batch, operand_batch) ||
        !hlo_check_dims(b, name, "batching dimensions of the indices", indices->rank, n_batch, indices_batch))
        return false;
    for (int i = 0; i < n_batch; i++)
        if (operand->dims[operand_batch[i]] != indices->dims[indices_batch[i]]) {
            hlo_fail(b, STATUS_RUNTIME,
                     "%s: batching dimension %lld of operand 0, %s, and %lld of operand %d, %s, differ", name,
                     (long long)operand_batch[i], hlo_value_text(b, operand), (long long)indices_batch[i], index,
                     hlo_value_text(b, indices));
            return false;
        }
    return true;
}

/* ---- gather ---- */

static bool gather_result(hlo_builder *b, const char *name, hlo_value operand, hlo_value indices,
                          const hlo_gather_dims *d, int *rank, int64_t *dims) {
    int64_t batch[HLO_MAX_RANK], offset[HLO_MAX_RANK];
    int n_batch = batch_sizes(indices, d->index_vector_dim, batch), n_offset = 0;
    for (int i = 0; i < operand->rank; i++) {
        bool dropped =
            contains(d->n_collapsed, d->collapsed_dims, i) || contains(d->n_operand_batch, d->operand_batch_dims, i);
        if (d->slice_sizes[i] < 0 || d->slice_sizes[i] > operand->dims[i] || (dropped && d->slice_sizes[i] > 1)) {
            hlo_fail(b, STATUS_INDEX, "%s: a slice of %lld in dimension %d of operand 0, %s", name,
                     (long long)d->slice_sizes[i], i, hlo_value_text(b, operand));
            return false;
        }
        if (!dropped) offset[n_offset++] = d->slice_sizes[i];
    }
    *rank = n_batch + n_offset;
    if (n_offset != d->n_offset || *rank > HLO_MAX_RANK) {
        hlo_fail(b, STATUS_INTERNAL, "%s: %d offset dimensions, expected %d of a result of %d dimensions", name,
                 d->n_offset, n_offset, *rank);
        return false;
    }
    if (!hlo_check_dims(b, name, "offset dimensions", *rank, n_offset, d->offset_dims)) return false;
    for (int i = 0, next_batch = 0, next_offset = 0; i < *rank; i++)
        dims[i] = contains(n_offset, d->offset_dims, i) ? offset[next_offset++] : batch[next_batch++];
    return true;
}

hlo_value hlo_gather(hlo_builder *b, hlo_value operand, hlo_value indices, const hlo_gather_dims *d) {
    const char *name = "stablehlo.gather";
    hlo_value operands[2] = {operand, indices};
    int rank;
    int64_t dims[HLO_MAX_RANK];
    if (!hlo_ready(b, 2, operands) ||
        !check_indices(b, name, operand, 1, indices, d->index_vector_dim, d->n_start_map, d->start_index_map,
                       d->n_operand_batch, d->operand_batch_dims, d->indices_batch_dims) ||
        !hlo_check_dims(b, name, "collapsed dimensions", operand->rank, d->n_collapsed, d->collapsed_dims) ||
        !gather_result(b, name, operand, indices, d, &rank, dims))
        return NULL;
    strbuf *out = &b->attributes;
    hlo_attribute(b, "dimension_numbers", "#stablehlo.gather<");
    hlo_append_list(out, "", "offset_dims", d->n_offset, d->offset_dims);
    hlo_append_list(out, ", ", "collapsed_slice_dims", d->n_collapsed, d->collapsed_dims);
    hlo_append_list(out, ", ", "operand_batching_dims", d->n_operand_batch, d->operand_batch_dims);
    hlo_append_list(out, ", ", "start_indices_batching_dims", d->n_operand_batch, d->indices_batch_dims);
    hlo_append_list(out, ", ", "start_index_map", d->n_start_map, d->start_index_map);
    strbuf_printf(out, ", index_vector_dim = %lld>", (long long)d->index_vector_dim);
    hlo_attribute_ints(b, "slice_sizes", operand->rank, d->slice_sizes);
    hlo_attribute_bool(b, "indices_are_sorted", d->indices_are_sorted);
    return hlo_emit_one(b, name, 2, operands, operand->dtype, rank, dims);
}

/* ---- scatter ---- */

/* An update holds the indices' batch dimensions and, at update_window_dims, a window that fits the operand. */
static bool check_update(hlo_builder *b, const char *name, hlo_value operand, hlo_value indices, int index,
                         hlo_value update, const hlo_scatter_dims *d) {
    int64_t batch[HLO_MAX_RANK], limit[HLO_MAX_RANK];
    int n_batch = batch_sizes(indices, d->index_vector_dim, batch), n_window = 0;
    for (int i = 0; i < operand->rank; i++)
        if (!contains(d->n_inserted, d->inserted_window_dims, i) && !contains(d->n_input_batch, d->input_batch_dims, i))
            limit[n_window++] = operand->dims[i];
    bool fits = n_window == d->n_window && update->rank == n_batch + n_window;
    if (fits && !hlo_check_dims(b, name, "update window dimensions", update->rank, d->n_window, d->update_window_dims))
        return false;
    for (int i = 0, next_batch = 0, next_window = 0; fits && i < update->rank; i++) {
        bool window = contains(d->n_window, d->update_window_dims, i);
        fits = window ? update->dims[i] <= limit[next_window++] : update->dims[i] == batch[next_batch++];
    }
    if (!fits)
        hlo_fail(b, STATUS_RUNTIME, "%s: operand %d, the update %s, does not fit the operand %s with the indices %s",
                 name, index, hlo_value_text(b, update), hlo_value_text(b, operand), hlo_value_text(b, indices));
    return fits;
}

static bool check_scatter(hlo_builder *b, const char *name, int n, const hlo_value *operands, hlo_value indices,
                          const hlo_value *updates, const hlo_scatter_dims *d, const hlo_region *body) {
    hlo_type *types = ARENA_NEW(b->arena, hlo_type, 2 * n);
    if (!types) return hlo_out_of_memory(b) != NULL;
    for (int i = 0; i < n; i++) {
        if (!hlo_same_shape(operands[i], operands[0]))
            return hlo_fail(b, STATUS_RUNTIME, "%s: operand %d, %s, has not the shape of operand 0, %s", name, i,
                            hlo_value_text(b, operands[i]), hlo_value_text(b, operands[0])) != NULL;
        if (!hlo_check_dtype(b, name, n + 1 + i, updates[i], operands[i]->dtype)) return false;
        types[i] = types[n + i] = (hlo_type){operands[i]->dtype, 0, NULL};
    }
    if (!check_indices(b, name, operands[0], n, indices, d->index_vector_dim, d->n_scatter_map,
                       d->scatter_dims_to_operand, d->n_input_batch, d->input_batch_dims, d->indices_batch_dims) ||
        !hlo_check_dims(b, name, "inserted dimensions", operands[0]->rank, d->n_inserted, d->inserted_window_dims))
        return false;
    for (int i = 0; i < n; i++)
        if (!check_update(b, name, operands[0], indices, n + 1 + i, updates[i], d)) return false;
    return hlo_check_region(b, name, "body", body, 2 * n, types, n, types);
}

static void scatter_attributes(hlo_builder *b, const hlo_scatter_dims *d) {
    strbuf *out = &b->attributes;
    hlo_attribute(b, "scatter_dimension_numbers", "#stablehlo.scatter<");
    hlo_append_list(out, "", "update_window_dims", d->n_window, d->update_window_dims);
    hlo_append_list(out, ", ", "inserted_window_dims", d->n_inserted, d->inserted_window_dims);
    hlo_append_list(out, ", ", "input_batching_dims", d->n_input_batch, d->input_batch_dims);
    hlo_append_list(out, ", ", "scatter_indices_batching_dims", d->n_input_batch, d->indices_batch_dims);
    hlo_append_list(out, ", ", "scatter_dims_to_operand_dims", d->n_scatter_map, d->scatter_dims_to_operand);
    strbuf_printf(out, ", index_vector_dim = %lld>", (long long)d->index_vector_dim);
    hlo_attribute_bool(b, "indices_are_sorted", d->indices_are_sorted);
    hlo_attribute_bool(b, "unique_indices", d->unique_indices);
}

void hlo_scatter(hlo_builder *b, int n, const hlo_value *operands, hlo_value indices, const hlo_value *updates,
                 const hlo_scatter_dims *d, hlo_region *body, hlo_value *results) {
    const char *name = "stablehlo.scatter";
    bool ok = hlo_ready(b, n, operands) && hlo_ready(b, 1, &indices) && hlo_ready(b, n, updates) && body;
    if (ok && n < 1) hlo_fail(b, STATUS_INTERNAL, "%s: no operands", name);
    ok = ok && n > 0 && check_scatter(b, name, n, operands, indices, updates, d, body);
    hlo_value *all = ok ? ARENA_NEW(b->arena, hlo_value, 2 * n + 1) : NULL;
    hlo_type *types = ok ? ARENA_NEW(b->arena, hlo_type, n) : NULL;
    if (ok && (!all || !types)) hlo_out_of_memory(b);
    if (!all || !types) {
        for (int i = 0; i < n; i++) results[i] = NULL;
        return;
    }
    for (int i = 0; i < n; i++) {
        all[i] = operands[i];
        all[n + 1 + i] = updates[i];
        types[i] = hlo_type_of(operands[i]);
    }
    all[n] = indices;
    scatter_attributes(b, d);
    hlo_operation o = {.name = name,
                       .n_operands = 2 * n + 1,
                       .operands = all,
                       .n_regions = 1,
                       .regions = &body,
                       .n_results = n,
                       .types = types};
    hlo_emit(b, &o, results);
}
