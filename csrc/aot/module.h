/* An optimised program, as the compiler gives it: HloModuleProto (openxla/xla, xla/service/hlo.proto), read into plain
 * structs. Only what the cost analysis and the text need is kept; the rest stays in the bytes. */
#ifndef AOT_MODULE_H
#define AOT_MODULE_H

#include "aot/wire.h"
#include "base/arena.h"
#include "base/status.h"
#include "base/strbuf.h"

typedef struct aot_computation aot_computation;

typedef struct aot_instruction {
    const char *name, *opcode;
    const char *op_name, *source_file; /* of its metadata; "" where unknown */
    int source_line;                   /* 0: unknown */
    const char *fusion_kind, *custom_call_target, *direction;
    int64_t id, tuple_index, parameter_number;
    int n_operands, n_called;
    const int64_t *operands, *called; /* ids */
    wire shape, raw;                  /* raw: the whole message, for attributes that only the text needs */
    bool has_integer;                 /* a scalar integer constant: */
    int64_t integer;
    int64_t cycles;     /* the backend's estimate; -1: none */
    int64_t trip_count; /* of a loop, where the backend says it; -1: not */
} aot_instruction;

struct aot_computation {
    const char *name;
    int64_t id, root;
    int n;
    aot_instruction *instructions;
};

typedef struct aot_module {
    const char *name;
    int64_t entry;
    int n;
    aot_computation *computations;
} aot_module;

/* From PJRT_Executable_OptimizedProgram's bytes in format "hlo" or "hlo_with_config". Everything lives in `a`, and the
 * bytes must outlive it. */
status *aot_module_read(arena *a, const void *data, size_t size, bool with_config, aot_module *out);
const aot_computation *aot_computation_find(const aot_module *m, int64_t id);
const aot_instruction *aot_instruction_find(const aot_computation *c, int64_t id);
/* Human-readable text in the manner of XLA's; not every attribute is printed. */
void aot_module_print(const aot_module *m, strbuf *out);

/* ---- what it costs ---- */
typedef struct aot_cost_line {
    const aot_instruction *instruction;
    const aot_instruction *place; /* whose metadata says where it comes from */
    int64_t runs;                 /* how often it runs: product of the trip counts of the loops around it */
    double cycles;                /* in all */
    double extra;                 /* of them, those that a count of each loop body once leaves out */
} aot_cost_line;

typedef struct aot_costs {
    int n; /* dearest first */
    aot_cost_line *lines;
    double cycles, extra_cycles; /* sums */
    int loops, unknown_loops;    /* those whose trip count could not be found count once */
} aot_costs;
status *aot_costs_find(arena *a, const aot_module *m, aot_costs *out);

#endif
