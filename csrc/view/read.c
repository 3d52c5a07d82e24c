/* Emitting a plan forwards. */
#include "view/plan.h"

bool view_check(hlo_builder *b, int base_rank, const int64_t *base_dims, const geometry *g) {
    int64_t count = 1;
    for (int d = 0; d < base_rank; d++) count *= base_dims[d];
    int64_t extent = geometry_extent(g);
    if (g->offset < 0) {
        hlo_fail(b, STATUS_INDEX, "a view with the negative storage offset %lld", (long long)g->offset);
        return false;
    }
    for (int d = 0; d < g->rank; d++)
        if (g->strides[d] < 0 || g->sizes[d] < 0) {
            hlo_fail(b, STATUS_INDEX, "a view with a negative size or stride in dimension %d", d);
            return false;
        }
    if (extent > count) {
        hlo_fail(b, STATUS_INDEX, "a view reaches element %lld of a storage that holds %lld elements of %s",
                 (long long)extent, (long long)count, dtype_torch_name(g->dtype));
        return false;
    }
    return true;
}

bool view_dynamic_starts(hlo_builder *b, const view_step *s, hlo_value dynamic_offset, hlo_value *starts) {
    bool any = false;
    for (int i = 0; dynamic_offset && i < s->rank; i++)
        if (s->divisor[i]) any = true;
    if (!any) return false;
    for (int i = 0; i < s->rank; i++) {
        if (!s->divisor[i]) {
            starts[i] = hlo_scalar(b, DTYPE_I64, (double)s->start[i]);
            continue;
        }
        starts[i] = dynamic_offset;
        if (s->divisor[i] > 1)
            starts[i] = hlo_divide(b, starts[i], hlo_constant_int(b, DTYPE_I64, 0, NULL, s->divisor[i]));
        starts[i] = hlo_remainder(b, starts[i], hlo_constant_int(b, DTYPE_I64, 0, NULL, s->modulus[i]));
    }
    return true;
}

static hlo_value emit_slice(hlo_builder *b, const view_step *s, hlo_value x, hlo_value dynamic_offset) {
    int64_t start[HLO_MAX_RANK], limit[HLO_MAX_RANK], span[HLO_MAX_RANK];
    hlo_value starts[HLO_MAX_RANK];
    for (int i = 0; i < s->rank; i++) {
        span[i] = (s->dims[i] - 1) * s->step[i] + 1;
        start[i] = s->start[i];
        limit[i] = start[i] + span[i];
    }
    if (!view_dynamic_starts(b, s, dynamic_offset, starts)) return hlo_slice(b, x, start, limit, s->step);
    x = hlo_dynamic_slice(b, x, starts, span);
    if (!view_step_has_stride(s)) return x;
    for (int i = 0; i < s->rank; i++) start[i] = 0;
    return hlo_slice(b, x, start, span, s->step);
}

hlo_value view_gather_indices(hlo_builder *b, const view_step *s, hlo_value dynamic_offset) {
    dtype t = s->operand_dims[0] <= INT32_MAX ? DTYPE_I32 : DTYPE_I64;
    int64_t dims[HLO_MAX_RANK];
    for (int i = 0; i < s->rank; i++) dims[i] = s->dims[i];
    dims[s->rank] = 1;
    hlo_value index = dynamic_offset ? hlo_broadcast_to(b, hlo_convert(b, dynamic_offset, t), s->rank + 1, dims)
                                     : hlo_constant_int(b, t, s->rank + 1, dims, s->offset);
    for (int i = 0; i < s->rank; i++) {
        hlo_value step = hlo_constant_int(b, t, s->rank + 1, dims, s->step[i]);
        index = hlo_add(b, index, hlo_multiply(b, hlo_iota(b, t, s->rank + 1, dims, i), step));
    }
    return index;
}

static hlo_value emit_gather(hlo_builder *b, const view_step *s, hlo_value x, hlo_value dynamic_offset) {
    if (s->rank >= HLO_MAX_RANK) return hlo_fail(b, STATUS_NOT_IMPLEMENTED, "a view of %d dimensions", s->rank);
    hlo_gather_dims d = {.n_collapsed = 1, .n_start_map = 1, .index_vector_dim = s->rank};
    d.slice_sizes[0] = 1;
    return hlo_gather(b, x, view_gather_indices(b, s, dynamic_offset), &d);
}

static hlo_value emit_pad(hlo_builder *b, const view_step *s, hlo_value x) {
    int64_t low[HLO_MAX_RANK] = {0}, high[HLO_MAX_RANK];
    for (int i = 0; i < s->rank; i++) high[i] = s->dims[i] - s->operand_dims[i];
    return x ? hlo_pad(b, x, hlo_scalar(b, x->dtype, 0), low, high, NULL) : NULL;
}

hlo_value view_emit_step(hlo_builder *b, const view_step *s, hlo_value x, hlo_value dynamic_offset) {
    int64_t map[HLO_MAX_RANK];
    switch (s->kind) {
        case VIEW_STEP_RESHAPE:
            return hlo_reshape(b, x, s->rank, s->dims);
        case VIEW_STEP_SLICE:
            return emit_slice(b, s, x, dynamic_offset);
        case VIEW_STEP_PAD:
            return emit_pad(b, s, x);
        case VIEW_STEP_TRANSPOSE:
            for (int i = 0; i < s->rank; i++) map[i] = s->map[i];
            return hlo_transpose(b, x, map);
        case VIEW_STEP_BROADCAST:
            for (int i = 0; i < s->operand_rank; i++) map[i] = s->map[i];
            return hlo_broadcast_in_dim(b, x, s->rank, s->dims, map);
        case VIEW_STEP_GATHER:
            return emit_gather(b, s, x, dynamic_offset);
    }
    return hlo_fail(b, STATUS_INTERNAL, "a view step of unknown kind %d", (int)s->kind);
}

/* conj and neg are their own inverses: reading and writing apply the same. */
static hlo_value apply_bits(hlo_builder *b, const geometry *g, hlo_value x) {
    if (g->conj && dtype_is_complex(g->dtype)) x = hlo_conj(b, x);
    return g->neg ? hlo_negate(b, x) : x;
}

hlo_value view_read(hlo_builder *b, hlo_value base, const geometry *g, hlo_value dynamic_offset) {
    if (!base) return NULL;
    if (geometry_count(g) == 0) return hlo_constant_int(b, g->dtype, g->rank, g->sizes, 0);
    hlo_value x = view_retype_keeping_dims(b, base, g->dtype);
    if (!x || !view_check(b, x->rank, x->dims, g)) return NULL;
    view_plan *plan = dynamic_offset ? view_plan_create_dynamic(hlo_arena(b), x->rank, x->dims, g)
                                     : view_plan_create(hlo_arena(b), x->rank, x->dims, g, false);
    if (!plan) return hlo_fail(b, STATUS_OUT_OF_MEMORY, "out of host memory");
    for (const view_step *s = plan->first; s; s = s->next) x = view_emit_step(b, s, x, dynamic_offset);
    return apply_bits(b, g, x);
}
