/* The chain of structural steps that turns a base into the value of a geometry. Reading runs it forwards, writing
 * backwards; the tests interpret it on index arrays. */
#ifndef VIEW_PLAN_H
#define VIEW_PLAN_H

#include "base/arena.h"
#include "view/view.h"

typedef enum {
    VIEW_STEP_RESHAPE,
    VIEW_STEP_SLICE,     /* start, step: one a dimension; dims are how many are taken */
    VIEW_STEP_PAD,       /* appends zeros to dimensions until they have `dims`: never visible in the value */
    VIEW_STEP_TRANSPOSE, /* result dimension i is operand dimension map[i] */
    VIEW_STEP_BROADCAST, /* operand dimension i is result dimension map[i] */
    VIEW_STEP_GATHER /* from a flat operand: element (i, j, ...) is operand[offset + i * step[0] + j * step[1] ...] */
} view_step_kind;

typedef struct view_step {
    view_step_kind kind;
    int operand_rank, rank;
    const int64_t *operand_dims, *dims;
    int64_t *start, *step; /* SLICE; step also of GATHER */
    /* SLICE: where the start comes from, (offset / divisor) % modulus; divisor 0: it is the same for every offset. */
    int64_t *divisor, *modulus;
    int *map;
    int64_t offset; /* GATHER */
    struct view_step *next;
} view_step;

typedef struct view_plan {
    view_step *first; /* NULL: the base is the value */
    int n_steps;
    /* The steps, not just the starts of slices, follow from the offset: no plan for a run-time offset. */
    bool offset_fixed;
    bool gathers;
} view_plan;

/* The geometry must not be empty and must lie within the base. `gather` asks for the last resort. NULL with no memory.
 */
view_plan *view_plan_create(arena *a, int base_rank, const int64_t *base_dims, const geometry *g, bool gather);

/* The plan for a run-time offset: the usual one if only starts depend on the offset, else a gather. */
view_plan *view_plan_create_dynamic(arena *a, int base_rank, const int64_t *base_dims, const geometry *g);

bool view_step_is_partial(const view_step *s); /* a slice that leaves elements out, or a gather */
bool view_step_has_stride(const view_step *s); /* a slice with a step over 1 */

/* What a base of type (from, dims) becomes when its bytes are read as `to`. Keeps the outer dimensions when it can;
 * a rest of bytes that fills no element is dropped. */
void view_retyped_dims(dtype from, int rank, const int64_t *dims, dtype to, int *to_rank, int64_t *to_dims);
/* The value of that type. */
hlo_value view_retype_keeping_dims(hlo_builder *b, hlo_value base, dtype to);

/* ---- emission, shared by read and write ---- */
/* Records an error and returns false unless g lies within a base of this type. */
bool view_check(hlo_builder *b, int base_rank, const int64_t *base_dims, const geometry *g);
hlo_value view_emit_step(hlo_builder *b, const view_step *s, hlo_value x, hlo_value dynamic_offset);
/* Starts of a slice as scalars (i64), or all NULL when the step has none that depends on a run-time offset. */
bool view_dynamic_starts(hlo_builder *b, const view_step *s, hlo_value dynamic_offset, hlo_value *starts);
/* Indices of a gather: i32 when the base allows it, shape of the result with one more dimension of size 1. */
hlo_value view_gather_indices(hlo_builder *b, const view_step *s, hlo_value dynamic_offset);

#endif
