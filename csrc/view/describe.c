/* Plans as text and as bytes. */
#include <stdio.h>
#include <string.h>

#include "view/plan.h"

static const char *step_name(const view_step *s) {
    switch (s->kind) {
        case VIEW_STEP_RESHAPE:
            return "reshape";
        case VIEW_STEP_SLICE:
            return "slice";
        case VIEW_STEP_PAD:
            return "pad";
        case VIEW_STEP_TRANSPOSE:
            return "transpose";
        case VIEW_STEP_BROADCAST:
            return "broadcast";
        case VIEW_STEP_GATHER:
            return "gather";
    }
    return "?";
}

static bool lies_within(int base_rank, const int64_t *base_dims, const geometry *g) {
    int64_t count = 1;
    for (int d = 0; d < base_rank; d++) count *= base_dims[d];
    return g->offset >= 0 && geometry_extent(g) <= count;
}

const char *view_describe(int base_rank, const int64_t *base_dims, const geometry *g) {
    static _Thread_local char text[512];
    if (geometry_count(g) == 0) return "zeros";
    if (!lies_within(base_rank, base_dims, g)) return "out of range";
    arena *a = arena_create();
    view_plan *plan = a ? view_plan_create(a, base_rank, base_dims, g, false) : NULL;
    snprintf(text, sizeof text, "%s", plan ? plan->first ? "" : "identity" : "out of memory");
    for (const view_step *s = plan ? plan->first : NULL; s; s = s->next) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", used ? "+" : "", step_name(s));
    }
    if (a) arena_destroy(a);
    return text;
}

static void append_numbers(strbuf *out, const int64_t *numbers, int n) {
    strbuf_append(out, numbers, sizeof *numbers * (size_t)n);
}

static void append_step(strbuf *out, const view_step *s) {
    int32_t head[3] = {(int32_t)s->kind, s->operand_rank, s->rank};
    strbuf_append(out, head, sizeof head);
    append_numbers(out, s->dims, s->rank);
    if (s->step) append_numbers(out, s->step, s->rank);
    if (s->map)
        strbuf_append(out, s->map,
                      sizeof *s->map * (size_t)(s->kind == VIEW_STEP_BROADCAST ? s->operand_rank : s->rank));
    if (s->kind != VIEW_STEP_SLICE) return;
    append_numbers(out, s->divisor, s->rank);
    append_numbers(out, s->modulus, s->rank);
    for (int i = 0; i < s->rank; i++)
        if (!s->divisor[i]) append_numbers(out, &s->start[i], 1);
}

bool view_offset_structure(dtype base_dtype, int base_rank, const int64_t *base_dims, const geometry *g, strbuf *out) {
    int rank;
    int64_t dims[VIEW_MAX_RANK];
    if (base_rank > VIEW_MAX_RANK || geometry_count(g) == 0) return false;
    view_retyped_dims(base_dtype, base_rank, base_dims, g->dtype, &rank, dims);
    if (!lies_within(rank, dims, g)) return false;
    arena *a = arena_create();
    view_plan *plan = a ? view_plan_create_dynamic(a, rank, dims, g) : NULL;
    for (const view_step *s = plan ? plan->first : NULL; s; s = s->next) append_step(out, s);
    if (a) arena_destroy(a);
    return plan != NULL && !strbuf_failed(out);
}
