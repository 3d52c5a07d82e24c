/* Emitting a plan backwards: the base with the geometry's elements replaced.
 *
 * Every step has an inverse that turns the new value of its result into the new value of its operand. Those of reshape,
 * transpose, pad and broadcast need the new value only; a slice that leaves elements out, and a gather, need the old
 * operand too. So the old base is read up to the last of these and no further: a full cover never reads it. */
#include "view/plan.h"

/* value over the elements box[start, start + span) of x; the box may be the whole. */
static hlo_value put_box(hlo_builder *b, const view_step *s, hlo_value x, hlo_value value, const int64_t *start,
                         const hlo_value *dynamic_starts) {
    hlo_value starts[HLO_MAX_RANK];
    if (!x || !value) return NULL;
    bool whole = !dynamic_starts;
    for (int i = 0; i < s->rank; i++) {
        if (value->dims[i] != x->dims[i]) whole = false;
        if (dynamic_starts)
            starts[i] = dynamic_starts[i];
        else
            starts[i] = hlo_constant_int(b, DTYPE_I64, 0, NULL, start[i]);
    }
    return whole ? value : hlo_dynamic_update_slice(b, x, value, starts);
}

/* Spreads value over a box: where[i] is its first place, box[i] the box's size, step between. A mask says which
 * elements of the box are its. */
static hlo_value spread(hlo_builder *b, const view_step *s, hlo_value old_box, hlo_value value, const int64_t *where,
                        const int64_t *box) {
    if (!value || !old_box) return NULL;
    int64_t high[HLO_MAX_RANK], interior[HLO_MAX_RANK];
    for (int i = 0; i < s->rank; i++) {
        interior[i] = s->step[i] - 1;
        high[i] = box[i] - where[i] - ((s->dims[i] - 1) * s->step[i] + 1);
    }
    hlo_value spread_value = hlo_pad(b, value, hlo_scalar(b, value->dtype, 0), where, high, interior);
    hlo_value ones = hlo_constant_int(b, DTYPE_BOOL, s->rank, s->dims, 1);
    hlo_value mask = hlo_pad(b, ones, hlo_scalar(b, DTYPE_BOOL, 0), where, high, interior);
    return hlo_select(b, mask, spread_value, old_box);
}

/* A slice with steps: unit dimensions are cut to a box, the others keep their whole length (or, where the start is
 * known only at run time, the span from it). */
static hlo_value put_strided(hlo_builder *b, const view_step *s, hlo_value x, hlo_value value,
                             const hlo_value *dynamic_starts) {
    int64_t start[HLO_MAX_RANK], where[HLO_MAX_RANK], box[HLO_MAX_RANK], limit[HLO_MAX_RANK];
    bool whole = true;
    for (int i = 0; i < s->rank; i++) {
        int64_t span = (s->dims[i] - 1) * s->step[i] + 1;
        bool keeps = s->step[i] > 1 && !dynamic_starts;
        start[i] = keeps ? 0 : s->start[i];
        where[i] = keeps ? s->start[i] : 0;
        box[i] = keeps ? s->operand_dims[i] : span;
        limit[i] = start[i] + box[i];
        if (box[i] != s->operand_dims[i]) whole = false;
    }
    if (whole) return spread(b, s, x, value, where, box);
    hlo_value old_box =
        dynamic_starts ? hlo_dynamic_slice(b, x, dynamic_starts, box) : hlo_slice(b, x, start, limit, NULL);
    return put_box(b, s, x, spread(b, s, old_box, value, where, box), start, dynamic_starts);
}

static hlo_value unslice(hlo_builder *b, const view_step *s, hlo_value x, hlo_value value, hlo_value dynamic_offset) {
    if (!view_step_is_partial(s)) return value;
    hlo_value starts[HLO_MAX_RANK];
    bool dynamic = view_dynamic_starts(b, s, dynamic_offset, starts);
    if (view_step_has_stride(s)) return put_strided(b, s, x, value, dynamic ? starts : NULL);
    return put_box(b, s, x, value, s->start, dynamic ? starts : NULL);
}

static hlo_value unpad(hlo_builder *b, const view_step *s, hlo_value value) {
    int64_t start[HLO_MAX_RANK] = {0};
    return hlo_slice(b, value, start, s->operand_dims, NULL);
}

static hlo_value untranspose(hlo_builder *b, const view_step *s, hlo_value value) {
    int64_t inverse[HLO_MAX_RANK];
    for (int i = 0; i < s->rank; i++) inverse[s->map[i]] = i;
    return hlo_transpose(b, value, inverse);
}

/* PyTorch refuses writes through an expanded tensor, except where all copies are equal: the last one stands for all. */
static hlo_value unbroadcast(hlo_builder *b, const view_step *s, hlo_value value) {
    int64_t start[HLO_MAX_RANK], limit[HLO_MAX_RANK];
    for (int i = 0; i < s->rank; i++) {
        limit[i] = s->dims[i];
        start[i] = s->dims[i] - 1;
    }
    for (int i = 0; i < s->operand_rank; i++) start[s->map[i]] = 0;
    return hlo_reshape(b, hlo_slice(b, value, start, limit, NULL), s->operand_rank, s->operand_dims);
}

static hlo_value ungather(hlo_builder *b, const view_step *s, hlo_value x, hlo_value value, const geometry *g,
                          hlo_value dynamic_offset) {
    if (!x || !value) return NULL;
    if (s->rank >= HLO_MAX_RANK) return hlo_fail(b, STATUS_NOT_IMPLEMENTED, "a view of %d dimensions", s->rank);
    hlo_type scalar = {x->dtype, 0, NULL}, types[2] = {scalar, scalar};
    hlo_value arguments[2], result = NULL;
    hlo_value indices = view_gather_indices(b, s, dynamic_offset);
    hlo_region_begin(b, 2, types, arguments);
    hlo_region *body = hlo_region_end(b, 1, &arguments[1]);
    hlo_scatter_dims d = {
        .n_inserted = 1, .n_scatter_map = 1, .index_vector_dim = s->rank, .unique_indices = !geometry_may_overlap(g)};
    hlo_scatter(b, 1, &x, indices, &value, &d, body, &result);
    return result;
}

static hlo_value undo_step(hlo_builder *b, const view_step *s, hlo_value old_operand, hlo_value value,
                           const geometry *g, hlo_value dynamic_offset) {
    switch (s->kind) {
        case VIEW_STEP_RESHAPE:
            return hlo_reshape(b, value, s->operand_rank, s->operand_dims);
        case VIEW_STEP_SLICE:
            return unslice(b, s, old_operand, value, dynamic_offset);
        case VIEW_STEP_PAD:
            return unpad(b, s, value);
        case VIEW_STEP_TRANSPOSE:
            return untranspose(b, s, value);
        case VIEW_STEP_BROADCAST:
            return unbroadcast(b, s, value);
        case VIEW_STEP_GATHER:
            return ungather(b, s, old_operand, value, g, dynamic_offset);
    }
    return hlo_fail(b, STATUS_INTERNAL, "a view step of unknown kind %d", (int)s->kind);
}

/* The new base of g->dtype, in the shape of x. */
static hlo_value write_same_type(hlo_builder *b, hlo_value x, const geometry *g, hlo_value value,
                                 hlo_value dynamic_offset) {
    arena *a = hlo_arena(b);
    view_plan *plan = dynamic_offset ? view_plan_create_dynamic(a, x->rank, x->dims, g)
                                     : view_plan_create(a, x->rank, x->dims, g, false);
    const view_step **steps = plan ? ARENA_NEW(a, const view_step *, plan->n_steps) : NULL;
    hlo_value *old = plan ? ARENA_NEW(a, hlo_value, plan->n_steps) : NULL;
    if (!steps || !old) return hlo_fail(b, STATUS_OUT_OF_MEMORY, "out of host memory");
    int n = 0, last_partial = -1;
    for (const view_step *s = plan->first; s; s = s->next) {
        if (view_step_is_partial(s)) last_partial = n;
        steps[n++] = s;
    }
    for (int i = 0; i <= last_partial; i++)
        old[i] = i == 0 ? x : view_emit_step(b, steps[i - 1], old[i - 1], dynamic_offset);
    for (int i = n - 1; i >= 0; i--) value = undo_step(b, steps[i], old[i], value, g, dynamic_offset);
    return value;
}

void view_write_type(dtype base_dtype, int base_rank, const int64_t *base_dims, const geometry *g, dtype *result_dtype,
                     int *result_rank, int64_t *result_dims) {
    int64_t bytes = (int64_t)dtype_bytes(base_dtype), element = (int64_t)dtype_bytes(g->dtype);
    *result_dtype = base_dtype;
    *result_rank = base_rank;
    for (int d = 0; d < base_rank; d++) {
        result_dims[d] = base_dims[d];
        bytes *= base_dims[d];
    }
    if (g->dtype == base_dtype || bytes % element != 0) return;
    *result_dtype = g->dtype;
    *result_rank = 1;
    result_dims[0] = bytes / element;
}

/* The base's bytes beyond its last whole element of g->dtype stay as they are. */
static hlo_value append_rest(hlo_builder *b, hlo_value base, hlo_value written) {
    if (!base || !written) return NULL;
    hlo_value head = view_retype(b, written, base->dtype), all = view_retype(b, base, base->dtype);
    if (!head || !all) return NULL;
    hlo_value parts[2] = {head, hlo_slice_dim(b, all, 0, head->dims[0], all->dims[0], 1)};
    return hlo_reshape(b, hlo_concatenate(b, 2, parts, 0), base->rank, base->dims);
}

hlo_value view_write(hlo_builder *b, hlo_value base, const geometry *g, hlo_value value, hlo_value dynamic_offset) {
    if (!base || !value) return NULL;
    hlo_value x = view_retype_keeping_dims(b, base, g->dtype);
    if (!x) return NULL;
    if (geometry_count(g) > 0) {
        if (!view_check(b, x->rank, x->dims, g)) return NULL;
        value = hlo_broadcast_to(b, hlo_convert(b, value, g->dtype), g->rank, g->sizes);
        if (g->neg) value = hlo_negate(b, value);
        if (g->conj && dtype_is_complex(g->dtype)) value = hlo_conj(b, value);
        x = write_same_type(b, x, g, value, dynamic_offset);
    }
    dtype t;
    int rank;
    int64_t dims[HLO_MAX_RANK];
    view_write_type(base->dtype, base->rank, base->dims, g, &t, &rank, dims);
    if (t != g->dtype) return append_rest(b, base, x);
    return hlo_reshape(b, x, rank, dims);
}
