/* while and case: regions that may use values from outside. */
#include "hlo/internal.h"

static void clear(int n, hlo_value *results) {
    for (int i = 0; i < n; i++) results[i] = NULL;
}

void hlo_while(hlo_builder *b, int n, const hlo_value *init, hlo_region *condition, hlo_region *body,
               hlo_value *results) {
    const char *name = "stablehlo.while";
    hlo_region *regions[2] = {condition, body};
    hlo_type predicate = {DTYPE_BOOL, 0, NULL}, *types = ARENA_NEW(b->arena, hlo_type, n);
    if (!types) hlo_out_of_memory(b);
    bool ok = types && hlo_ready(b, n, init) && condition && body;
    for (int i = 0; ok && i < n; i++) types[i] = hlo_type_of(init[i]);
    if (!ok || !hlo_check_region(b, name, "condition", condition, n, types, 1, &predicate) ||
        !hlo_check_region(b, name, "body", body, n, types, n, types)) {
        clear(n, results);
        return;
    }
    hlo_operation o = {.name = name,
                       .n_operands = n,
                       .operands = init,
                       .n_regions = 2,
                       .regions = regions,
                       .may_capture = true,
                       .n_results = n,
                       .types = types};
    hlo_emit(b, &o, results);
}

static bool check_branches(hlo_builder *b, const char *name, int branches, hlo_region **regions, int n) {
    if (branches < 1) return hlo_fail(b, STATUS_INTERNAL, "%s: no branches", name) != NULL;
    for (int i = 0; i < branches; i++)
        if (!regions[i]) return false;
    for (int i = 0; i < branches; i++) {
        if (regions[0]->n_results != n)
            return hlo_fail(b, STATUS_INTERNAL, "%s: branch 0 has %d results, expected %d", name, regions[0]->n_results,
                            n) != NULL;
        if (!hlo_check_region(b, name, i ? "other branch" : "first branch", regions[i], 0, NULL, n,
                              regions[0]->result_types))
            return false;
    }
    return true;
}

void hlo_case(hlo_builder *b, hlo_value index, int branches, hlo_region **regions, int n, hlo_value *results) {
    const char *name = "stablehlo.case";
    clear(n, results);
    if (!hlo_ready(b, 1, &index) || !check_branches(b, name, branches, regions, n)) return;
    if (index->rank != 0 || index->dtype != DTYPE_I32) {
        hlo_fail(b, STATUS_TYPE, "%s: operand 0, %s, must be an i32 scalar", name, hlo_value_text(b, index));
        return;
    }
    hlo_operation o = {.name = name,
                       .n_operands = 1,
                       .operands = &index,
                       .n_regions = branches,
                       .regions = regions,
                       .may_capture = true,
                       .n_results = n,
                       .types = regions[0]->result_types};
    hlo_emit(b, &o, results);
}
