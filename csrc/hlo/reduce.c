/* Reductions: over dimensions, over windows, and select_and_scatter. */
#include "hlo/internal.h"

hlo_value hlo_combine(hlo_builder *b, hlo_reduction kind, hlo_value x, hlo_value y) {
    bool logical = x && x->dtype == DTYPE_BOOL;
    switch (kind) {
        case HLO_REDUCE_ADD:
            return logical ? hlo_or(b, x, y) : hlo_add(b, x, y);
        case HLO_REDUCE_MULTIPLY:
            return logical ? hlo_and(b, x, y) : hlo_multiply(b, x, y);
        case HLO_REDUCE_MAXIMUM:
            return logical ? hlo_or(b, x, y) : hlo_maximum(b, x, y);
        case HLO_REDUCE_MINIMUM:
            return logical ? hlo_and(b, x, y) : hlo_minimum(b, x, y);
        case HLO_REDUCE_AND:
            return hlo_and(b, x, y);
        case HLO_REDUCE_OR:
            return hlo_or(b, x, y);
        case HLO_REDUCE_XOR:
            return hlo_xor(b, x, y);
    }
    return hlo_fail(b, STATUS_INTERNAL, "a reduction of unknown kind %d", (int)kind);
}

hlo_value hlo_reduction_identity(hlo_builder *b, hlo_reduction kind, dtype t) {
    switch (kind) {
        case HLO_REDUCE_ADD:
        case HLO_REDUCE_OR:
        case HLO_REDUCE_XOR:
            return hlo_constant_int(b, t, 0, NULL, 0);
        case HLO_REDUCE_MULTIPLY:
            return hlo_constant_int(b, t, 0, NULL, 1);
        case HLO_REDUCE_MAXIMUM:
            return hlo_min_value(b, t);
        case HLO_REDUCE_MINIMUM:
            return hlo_max_value(b, t);
        case HLO_REDUCE_AND:
            return hlo_constant_int(b, t, 0, NULL, -1);
    }
    return hlo_fail(b, STATUS_INTERNAL, "a reduction of unknown kind %d", (int)kind);
}

static hlo_region *reduction_body(hlo_builder *b, hlo_reduction kind, dtype t) {
    hlo_type scalar = {t, 0, NULL}, types[2] = {scalar, scalar};
    hlo_value arguments[2];
    hlo_region_begin(b, 2, types, arguments);
    hlo_value result = hlo_combine(b, kind, arguments[0], arguments[1]);
    return hlo_region_end(b, 1, &result);
}

/* Inputs of one shape, an initial scalar of each one's type, and a body on such scalars. */
static bool check_reduction(hlo_builder *b, const char *name, int n, const hlo_value *x, const hlo_value *init,
                            const hlo_region *body) {
    if (!hlo_ready(b, n, x) || !hlo_ready(b, n, init) || !body) return false;
    if (n < 1) return hlo_fail(b, STATUS_INTERNAL, "%s: no operands", name) != NULL;
    hlo_type *types = ARENA_NEW(b->arena, hlo_type, 2 * n);
    if (!types) return hlo_out_of_memory(b) != NULL;
    for (int i = 0; i < n; i++) {
        if (!hlo_same_shape(x[i], x[0]))
            return hlo_fail(b, STATUS_RUNTIME, "%s: operand %d, %s, has not the shape of operand 0, %s", name, i,
                            hlo_value_text(b, x[i]), hlo_value_text(b, x[0])) != NULL;
        if (init[i]->rank != 0 || init[i]->dtype != x[i]->dtype)
            return hlo_fail(b, STATUS_RUNTIME, "%s: the initial value %d, %s, is no %s scalar", name, i,
                            hlo_value_text(b, init[i]), dtype_hlo_name(x[i]->dtype)) != NULL;
        types[i] = types[n + i] = (hlo_type){x[i]->dtype, 0, NULL};
    }
    return hlo_check_region(b, name, "body", body, 2 * n, types, n, types);
}

/* The operation on inputs and initial values, with the same result dimensions for each. */
static void emit_reduction(hlo_builder *b, const char *name, int n, const hlo_value *x, const hlo_value *init,
                           hlo_region *body, int rank, const int64_t *dims, hlo_value *results) {
    hlo_value *operands = ARENA_NEW(b->arena, hlo_value, 2 * n);
    hlo_type *types = ARENA_NEW(b->arena, hlo_type, n);
    if (!operands || !types) {
        hlo_out_of_memory(b);
        return;
    }
    for (int i = 0; i < n; i++) {
        operands[i] = x[i];
        operands[n + i] = init[i];
        types[i] = (hlo_type){x[i]->dtype, rank, dims};
    }
    hlo_operation o = {.name = name,
                       .n_operands = 2 * n,
                       .operands = operands,
                       .n_regions = 1,
                       .regions = &body,
                       .n_results = n,
                       .types = types};
    hlo_emit(b, &o, results);
}

/* ---- over dimensions ---- */

void hlo_reduce_region(hlo_builder *b, int n, const hlo_value *x, const hlo_value *init, int n_dims,
                       const int64_t *dims, hlo_region *body, hlo_value *results) {
    const char *name = "stablehlo.reduce";
    bool ok =
        check_reduction(b, name, n, x, init, body) && hlo_check_dims(b, name, "dimensions", x[0]->rank, n_dims, dims);
    int64_t rest[HLO_MAX_RANK];
    int rank = 0;
    for (int d = 0; ok && d < x[0]->rank; d++) {
        bool reduced = false;
        for (int i = 0; i < n_dims; i++) reduced |= dims[i] == d;
        if (!reduced) rest[rank++] = x[0]->dims[d];
    }
    if (!ok) {
        for (int i = 0; i < n; i++) results[i] = NULL;
        return;
    }
    hlo_attribute_ints(b, "dimensions", n_dims, dims);
    emit_reduction(b, name, n, x, init, body, rank, rest, results);
}

hlo_value hlo_reduce(hlo_builder *b, hlo_reduction kind, hlo_value x, int n, const int64_t *dims) {
    if (!hlo_ready(b, 1, &x)) return NULL;
    if (n == 0) return x;
    hlo_value result = NULL, init = hlo_reduction_identity(b, kind, x->dtype);
    hlo_reduce_region(b, 1, &x, &init, n, dims, reduction_body(b, kind, x->dtype), &result);
    return result;
}

/* ---- over windows ---- */

void hlo_window_init(hlo_window *w, int rank) {
    *w = (hlo_window){0};
    for (int d = 0; d < rank; d++) w->window[d] = w->stride[d] = w->base_dilation[d] = w->window_dilation[d] = 1;
}

static int64_t dilated(int64_t size, int64_t dilation) { return size > 0 ? (size - 1) * dilation + 1 : 0; }

static bool window_result(hlo_builder *b, const char *name, hlo_value x, const hlo_window *w, int64_t *dims) {
    for (int d = 0; d < x->rank; d++) {
        int64_t size = dilated(x->dims[d], w->base_dilation[d]) + w->low[d] + w->high[d];
        int64_t window = dilated(w->window[d], w->window_dilation[d]);
        if (w->window[d] < 1 || w->stride[d] < 1 || w->base_dilation[d] < 1 || w->window_dilation[d] < 1 || size < 0) {
            hlo_fail(b, STATUS_RUNTIME,
                     "%s: window %lld, stride %lld, dilations %lld and %lld in dimension %d of operand 0, %s", name,
                     (long long)w->window[d], (long long)w->stride[d], (long long)w->base_dilation[d],
                     (long long)w->window_dilation[d], d, hlo_value_text(b, x));
            return false;
        }
        dims[d] = size < window ? 0 : (size - window) / w->stride[d] + 1;
    }
    return true;
}

void hlo_reduce_window_region(hlo_builder *b, int n, const hlo_value *x, const hlo_value *init, const hlo_window *w,
                              hlo_region *body, hlo_value *results) {
    const char *name = "stablehlo.reduce_window";
    int64_t dims[HLO_MAX_RANK];
    if (!check_reduction(b, name, n, x, init, body) || !window_result(b, name, x[0], w, dims)) {
        for (int i = 0; i < n; i++) results[i] = NULL;
        return;
    }
    int rank = x[0]->rank;
    hlo_attribute_ints(b, "window_dimensions", rank, w->window);
    hlo_attribute_ints(b, "window_strides", rank, w->stride);
    hlo_attribute_ints(b, "base_dilations", rank, w->base_dilation);
    hlo_attribute_ints(b, "window_dilations", rank, w->window_dilation);
    hlo_attribute_padding(b, rank, w->low, w->high);
    emit_reduction(b, name, n, x, init, body, rank, dims, results);
}

hlo_value hlo_reduce_window(hlo_builder *b, hlo_reduction kind, hlo_value x, const hlo_window *w) {
    if (!hlo_ready(b, 1, &x)) return NULL;
    hlo_value result = NULL, init = hlo_reduction_identity(b, kind, x->dtype);
    hlo_reduce_window_region(b, 1, &x, &init, w, reduction_body(b, kind, x->dtype), &result);
    return result;
}

hlo_value hlo_select_and_scatter(hlo_builder *b, hlo_value operand, hlo_value source, hlo_value init,
                                 const hlo_window *w, hlo_region *select, hlo_region *scatter) {
    const char *name = "stablehlo.select_and_scatter";
    hlo_value operands[3] = {operand, source, init};
    hlo_region *regions[2] = {select, scatter};
    int64_t dims[HLO_MAX_RANK];
    if (!hlo_ready(b, 3, operands) || !select || !scatter || !hlo_check_dtype(b, name, 1, source, operand->dtype) ||
        !hlo_check_dtype(b, name, 2, init, operand->dtype) || !window_result(b, name, operand, w, dims))
        return NULL;
    hlo_type expected = {operand->dtype, operand->rank, dims}, scalar = {operand->dtype, 0, NULL},
             is = hlo_type_of(source);
    for (int d = 0; d < operand->rank; d++)
        if (w->window_dilation[d] != 1 || w->base_dilation[d] != 1)
            return hlo_fail(b, STATUS_NOT_IMPLEMENTED, "%s: a dilated window in dimension %d", name, d);
    if (!hlo_same_type(&is, &expected))
        return hlo_fail(b, STATUS_RUNTIME, "%s: operand 1, %s, must be %s", name, hlo_value_text(b, source),
                        hlo_type_text(b, &expected));
    if (init->rank != 0)
        return hlo_fail(b, STATUS_RUNTIME, "%s: operand 2, %s, must be a scalar", name, hlo_value_text(b, init));
    hlo_type pair[2] = {scalar, scalar}, predicate = {DTYPE_BOOL, 0, NULL};
    if (!hlo_check_region(b, name, "select region", select, 2, pair, 1, &predicate) ||
        !hlo_check_region(b, name, "scatter region", scatter, 2, pair, 1, &scalar))
        return NULL;
    hlo_attribute_ints(b, "window_dimensions", operand->rank, w->window);
    hlo_attribute_ints(b, "window_strides", operand->rank, w->stride);
    hlo_attribute_padding(b, operand->rank, w->low, w->high);
    hlo_type type = hlo_type_of(operand);
    hlo_operation o = {.name = name,
                       .n_operands = 3,
                       .operands = operands,
                       .n_regions = 2,
                       .regions = regions,
                       .n_results = 1,
                       .types = &type};
    hlo_value result = NULL;
    hlo_emit(b, &o, &result);
    return result;
}
