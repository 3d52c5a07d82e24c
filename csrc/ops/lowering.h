/* One operator call while it is lowered: made by graph/lower.c, read by the accessors of ops.h. */
#ifndef OPS_LOWERING_H
#define OPS_LOWERING_H

#include "ops/call.h"
#include "ops/ops.h"

typedef struct lowering_host {
    /* The value of a number argument as a run-time input, or NULL: use the constant. */
    hlo_value (*runtime_number)(void *context, int arg, int element, const number *n, dtype t);
    void (*number_used)(void *context, int arg, bool structural);
    /* The generator state (ui64[2]) with the stream of this use, advanced by use. */
    hlo_value (*random_state)(void *context);
    void *context;
    /* Whether the tensor argument is row-major where the caller has it; NULL: it is. */
    bool (*is_contiguous)(void *context, int arg);
    /* Whether a number is a constant of this program; NULL: numbers that are asked for are structural. */
    bool (*is_fixed)(void *context, int arg);
    /* Takes a number (s32, rank 0) that is 0 where all that is checked was good, else a fault_code; NULL, or false from
     * wants_codes: nobody asks for it. */
    void (*code_seen)(void *context, hlo_value code);
    bool (*wants_codes)(void *context);
} lowering_host;

struct lowering {
    hlo_builder *builder;
    const op_row *row;
    int n_args;
    const argument *args;
    hlo_value **values;   /* per argument: 1 value for ARG_VALUE, count for ARG_VALUES (NULL: None or a number) */
    hlo_value **promoted; /* the same after promotion, made by lowering_run */
    dtype common;         /* result_type of the operands; DTYPE_INVALID if the row promotes nothing */
    dtype compute;        /* common, raised by OP_OPMATH */
    int n_results;
    const tensor_type *result_types; /* DTYPE_INVALID: not wanted */
    hlo_value *results;
    const lowering_host *host;
};

/* Promotes the operands, runs the row, checks that every wanted result is set with its type. Errors go to the builder.
 */
void lowering_run(lowering *l);

#endif
