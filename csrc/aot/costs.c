/* Where an optimised program's time goes, by the backend's estimate of each instruction in cycles. */
#include <stdlib.h>
#include <string.h>

#include "aot/module.h"

typedef struct walk {
    arena *arena;
    const aot_module *module;
    aot_costs *out;
    int capacity, depth;
} walk;

enum { MAX_DEPTH = 64 };

static bool is(const aot_instruction *i, const char *opcode) { return strcmp(i->opcode, opcode) == 0; }

/* ---- trip counts ---- */

/* What an instruction is, behind copies and bitcasts. */
static const aot_instruction *behind_copies(const aot_computation *c, int64_t id) {
    const aot_instruction *i = aot_instruction_find(c, id);
    while (i && i->n_operands == 1 && (is(i, "copy") || is(i, "bitcast"))) i = aot_instruction_find(c, i->operands[0]);
    return i;
}

static const aot_instruction *operand(const aot_computation *c, const aot_instruction *i, int k) {
    return i && k < i->n_operands ? behind_copies(c, i->operands[k]) : NULL;
}

/* The comparison that a loop's condition gives: directly, or as the root of a fusion. Its operands are then the
 * fusion's. */
typedef struct bound {
    const char *direction;
    const aot_instruction *counter, *limit; /* in the condition */
} bound;

static const aot_instruction *through_fusion(const aot_computation *outer, const aot_instruction *fusion,
                                             const aot_instruction *inner) {
    if (!fusion || !inner || !is(inner, "parameter")) return inner;
    return operand(outer, fusion, (int)inner->parameter_number);
}

static bool find_bound(const walk *w, const aot_computation *condition, bound *out) {
    const aot_instruction *root = behind_copies(condition, condition->root), *fusion = NULL;
    const aot_computation *c = condition;
    if (root && is(root, "fusion") && root->n_called == 1) {
        fusion = root;
        c = aot_computation_find(w->module, root->called[0]);
        root = c ? behind_copies(c, c->root) : NULL;
    }
    if (!root || !is(root, "compare") || !root->direction) return false;
    out->direction = root->direction;
    out->counter = through_fusion(condition, fusion, operand(c, root, 0));
    out->limit = through_fusion(condition, fusion, operand(c, root, 1));
    return out->counter && out->limit;
}

/* How often a loop runs that counts up by one from a constant to a constant, as those that the core makes do; -1 for
 * others. */
static int64_t trip_count(const walk *w, const aot_computation *c, const aot_instruction *loop) {
    if (loop->trip_count >= 0) return loop->trip_count;
    bound b;
    const aot_computation *first = loop->n_called == 2 ? aot_computation_find(w->module, loop->called[0]) : NULL;
    const aot_computation *second = loop->n_called == 2 ? aot_computation_find(w->module, loop->called[1]) : NULL;
    if (!first || !second) return -1;
    /* Which of the two is the condition is told by its root. */
    if (!find_bound(w, second, &b) && !find_bound(w, first, &b)) return -1;
    bool less = strcmp(b.direction, "LT") == 0, at_most = strcmp(b.direction, "LE") == 0;
    if (!(less || at_most) || !is(b.counter, "get-tuple-element")) return -1;
    const aot_instruction *init = operand(c, loop, 0);
    const aot_instruction *start = init && is(init, "tuple") ? operand(c, init, (int)b.counter->tuple_index) : NULL;
    const aot_instruction *limit = b.limit;
    if (is(limit, "get-tuple-element") && init && is(init, "tuple")) limit = operand(c, init, (int)limit->tuple_index);
    if (!start || !start->has_integer || !limit || !limit->has_integer) return -1;
    int64_t trips = limit->integer - start->integer + at_most;
    return trips > 0 ? trips : 0;
}

/* ---- the walk ---- */

/* An instruction that says where it comes from: itself, else one that it fuses, the root first, else what it copies. */
static const aot_instruction *placed(const walk *w, const aot_computation *c, const aot_instruction *i) {
    for (int steps = 0; i && !i->source_line && steps < MAX_DEPTH; steps++) {
        const aot_computation *inner =
            i->fusion_kind && i->n_called ? aot_computation_find(w->module, i->called[0]) : NULL;
        for (int k = inner ? inner->n - 1 : -1; k >= 0; k--)
            if (inner->instructions[k].source_line) return &inner->instructions[k];
        i = i->n_operands ? aot_instruction_find(c, i->operands[0]) : NULL;
    }
    return i;
}

static bool add(walk *w, const aot_computation *c, const aot_instruction *i, int64_t runs) {
    aot_costs *out = w->out;
    if (out->n == w->capacity) {
        int wanted = w->capacity ? 2 * w->capacity : 256;
        aot_cost_line *grown = ARENA_NEW(w->arena, aot_cost_line, wanted);
        if (!grown) return false;
        if (out->n) memcpy(grown, out->lines, sizeof *grown * (size_t)out->n);
        out->lines = grown;
        w->capacity = wanted;
    }
    double cycles = (double)i->cycles * (double)runs;
    double extra = (double)i->cycles * (double)(runs - 1);
    const aot_instruction *place = placed(w, c, i);
    out->lines[out->n++] = (aot_cost_line){i, place ? place : i, runs, cycles, extra};
    out->cycles += cycles;
    out->extra_cycles += extra;
    return true;
}

/* `runs`: how often the computation runs. */
static bool visit(walk *w, const aot_computation *c, int64_t runs) {
    if (!c || w->depth == MAX_DEPTH) return true;
    w->depth++;
    bool ok = true;
    for (int k = 0; ok && k < c->n; k++) {
        const aot_instruction *i = &c->instructions[k];
        if (i->cycles > 0) ok = add(w, c, i, runs);
        bool loop = is(i, "while");
        if (!loop && !is(i, "call") && !is(i, "conditional") && !is(i, "async-start")) continue;
        int64_t trips = loop ? trip_count(w, c, i) : 1;
        w->out->loops += loop;
        w->out->unknown_loops += trips < 0;
        for (int j = 0; ok && j < i->n_called; j++)
            ok = visit(w, aot_computation_find(w->module, i->called[j]), runs * (trips < 0 ? 1 : trips));
    }
    w->depth--;
    return ok;
}

static int dearer(const void *a, const void *b) {
    double x = ((const aot_cost_line *)a)->cycles, y = ((const aot_cost_line *)b)->cycles;
    return x < y ? 1 : x > y ? -1 : 0;
}

status *aot_costs_find(arena *a, const aot_module *m, aot_costs *out) {
    *out = (aot_costs){0};
    walk w = {.arena = a, .module = m, .out = out};
    if (!visit(&w, aot_computation_find(m, m->entry), 1)) return status_no_memory();
    if (out->n) qsort(out->lines, (size_t)out->n, sizeof *out->lines, dearer);
    return NULL;
}
