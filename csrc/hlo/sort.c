/* sort and top_k. */
#include "hlo/internal.h"

static bool check_sort(hlo_builder *b, const char *name, int n, const hlo_value *x, int dim,
                       const hlo_region *comparator) {
    if (!hlo_ready(b, n, x) || !comparator) return false;
    if (n < 1) return hlo_fail(b, STATUS_INTERNAL, "%s: no operands", name) != NULL;
    hlo_type predicate = {DTYPE_BOOL, 0, NULL}, *types = ARENA_NEW(b->arena, hlo_type, 2 * n);
    if (!types) return hlo_out_of_memory(b) != NULL;
    for (int i = 0; i < n; i++) {
        if (!hlo_same_shape(x[i], x[0]))
            return hlo_fail(b, STATUS_RUNTIME, "%s: operand %d, %s, has not the shape of operand 0, %s", name, i,
                            hlo_value_text(b, x[i]), hlo_value_text(b, x[0])) != NULL;
        types[2 * i] = types[2 * i + 1] = (hlo_type){x[i]->dtype, 0, NULL};
    }
    return hlo_check_dim(b, name, x[0], dim) &&
           hlo_check_region(b, name, "comparator", comparator, 2 * n, types, 1, &predicate);
}

void hlo_sort(hlo_builder *b, int n, const hlo_value *x, int dim, bool stable, hlo_region *comparator,
              hlo_value *results) {
    const char *name = "stablehlo.sort";
    hlo_type *types = ARENA_NEW(b->arena, hlo_type, n);
    if (!types) hlo_out_of_memory(b);
    if (!types || !check_sort(b, name, n, x, dim, comparator)) {
        for (int i = 0; i < n; i++) results[i] = NULL;
        return;
    }
    for (int i = 0; i < n; i++) types[i] = hlo_type_of(x[i]);
    hlo_attribute_int(b, "dimension", dim);
    hlo_attribute_bool(b, "is_stable", stable);
    hlo_operation o = {.name = name,
                       .n_operands = n,
                       .operands = x,
                       .n_regions = 1,
                       .regions = &comparator,
                       .n_results = n,
                       .types = types};
    hlo_emit(b, &o, results);
}

void hlo_top_k(hlo_builder *b, hlo_value x, int64_t k, hlo_value *values, hlo_value *indices) {
    const char *name = "chlo.top_k";
    hlo_value results[2] = {NULL, NULL};
    *values = *indices = NULL;
    if (!hlo_ready(b, 1, &x)) return;
    if (dtype_is_complex(x->dtype) || x->dtype == DTYPE_BOOL) {
        hlo_fail(b, STATUS_TYPE, "%s: operand 0, %s, is neither integer nor float", name, hlo_value_text(b, x));
        return;
    }
    if (x->rank == 0 || k < 0 || k > x->dims[x->rank - 1]) {
        hlo_fail(b, STATUS_RUNTIME, "%s: the %lld largest of the last dimension of operand 0, %s", name, (long long)k,
                 hlo_value_text(b, x));
        return;
    }
    int64_t dims[HLO_MAX_RANK];
    for (int d = 0; d < x->rank; d++) dims[d] = d + 1 < x->rank ? x->dims[d] : k;
    hlo_type types[2] = {{x->dtype, x->rank, dims}, {DTYPE_I32, x->rank, dims}};
    hlo_attribute_int(b, "k", k);
    hlo_operation o = {.name = name, .n_operands = 1, .operands = &x, .n_results = 2, .types = types};
    hlo_emit(b, &o, results);
    *values = results[0];
    *indices = results[1];
}
