/* A graph as one StableHLO program. */
#include <string.h>

#include "base/alloc.h"
#include "graph/internal.h"
#include "ops/lowering.h"

/* State of one graph_lower; the callbacks of lowering_host get it. */
typedef struct lower_state {
    hlo_builder *builder;
    const graph *top;
    lower_request *request;
    hlo_value vectors[SLOT_CLASSES]; /* parameters that hold run-time numbers */
    hlo_value words;                 /* parameter of random words */
    int n_parameters;
    int random_node; /* how many random nodes came before */
    int random_use;  /* within the current node */
    /* Whose numbers may be run-time inputs now: which of them, and the node number that their slots carry. */
    uint64_t dynamic_args;
    int32_t slot_node;
    int depth;
    hlo_value code;     /* of the indices seen so far; NULL: none */
    bool silent;        /* in the condition of a loop, which gives nothing but itself */
    hlo_value turns;    /* in loops: ui64[1], different in every turn; NULL outside */
    const graph *graph; /* and its node that is being lowered */
    const graph_node *node;
} lower_state;

void lower_request_init(lower_request *request, hlo_precision precision) {
    memset(request, 0, sizeof *request);
    request->precision = precision;
    request->random_parameter = -1;
    for (int c = 0; c < SLOT_CLASSES; c++) request->class_parameter[c] = -1;
}

void lower_request_free(lower_request *request) {
    mem_free(request->slots);
    request->slots = NULL;
    request->n_slots = request->slot_capacity = 0;
}

/* ---- run-time numbers ---- */

static const dtype slot_dtype[SLOT_CLASSES] = {DTYPE_F32, DTYPE_F64, DTYPE_I64};

/* How many run-time numbers the operators of a graph can ask for with these arguments: complex ones are two. */
static int64_t number_bound(const graph *g, uint64_t dynamic_args) {
    int64_t n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const graph_node *node = &g->nodes[i];
        if (node->offset_slot >= 0) n++;
        if (node->kind != NODE_OP) continue;
        for (int k = 0; k < node->n_args && k < 64; k++)
            if (dynamic_args >> k & 1) n += 2 * (node->args[k].tag == ARG_NUMBERS ? node->args[k].count : 1);
    }
    return n;
}

/* An upper bound for the whole program, known before lowering because a parameter's type is. */
static int64_t slot_bound(const lower_state *s) {
    int64_t n = number_bound(s->top, s->request->dynamic_args);
    for (int i = 0; i < s->top->n_nodes; i++) {
        const graph_node *node = &s->top->nodes[i];
        if (node->kind == NODE_GRAPH) n += number_bound(node->sub, node->dynamic_args);
    }
    return n;
}

static int find_slot(const lower_request *r, const number_slot *wanted, int *position) {
    int within = 0;
    for (int i = 0; i < r->n_slots; i++) {
        const number_slot *s = &r->slots[i];
        if (s->cls != wanted->cls) continue;
        if (s->arg == wanted->arg && s->element == wanted->element && s->node == wanted->node &&
            s->imaginary == wanted->imaginary) {
            *position = within;
            return i;
        }
        within++;
    }
    *position = within;
    return -1;
}

static hlo_value slot_value(lower_state *s, number_slot slot) {
    lower_request *r = s->request;
    hlo_builder *b = s->builder;
    int64_t length = slot_bound(s);
    int position;
    if (!s->vectors[slot.cls]) {
        s->vectors[slot.cls] = hlo_parameter(b, slot_dtype[slot.cls], 1, &length);
        r->class_parameter[slot.cls] = s->n_parameters++;
        r->class_length[slot.cls] = length;
    }
    if (find_slot(r, &slot, &position) < 0) {
        if (position >= length) return hlo_fail(b, STATUS_INTERNAL, "more run-time numbers than the call has");
        if (r->n_slots == r->slot_capacity) {
            int wanted = r->slot_capacity ? 2 * r->slot_capacity : 4;
            number_slot *grown = mem_realloc(r->slots, sizeof *grown * (size_t)wanted);
            if (!grown) return hlo_fail(b, STATUS_OUT_OF_MEMORY, "out of host memory");
            r->slots = grown;
            r->slot_capacity = wanted;
        }
        r->slots[r->n_slots++] = slot;
    }
    return hlo_reshape(b, hlo_slice_dim(b, s->vectors[slot.cls], 0, position, position + 1, 1), 0, NULL);
}

static hlo_value runtime_number(void *context, int arg, int element, const number *n, dtype t) {
    lower_state *s = context;
    if (arg < 0 || arg >= 64 || !(s->dynamic_args >> arg & 1)) return NULL;
    dtype real = dtype_real(t);
    number_slot slot = {.arg = arg, .element = element, .node = s->slot_node};
    slot.cls = dtype_is_int(t) || t == DTYPE_BOOL ? SLOT_I64 : real == DTYPE_F64 ? SLOT_F64 : SLOT_F32;
    hlo_value re = slot_value(s, slot);
    if (!dtype_is_complex(t) || !dtype_is_complex(n->dtype)) return hlo_convert(s->builder, re, t);
    slot.imaginary = true;
    hlo_value im = slot_value(s, slot);
    return hlo_complex(s->builder, re, im);
}

static void number_used(void *context, int arg, bool structural) {
    lower_state *s = context;
    if (structural && s->depth == 0 && arg >= 0 && arg < 64) s->request->structural_args |= (uint64_t)1 << arg;
}

static bool is_fixed(void *context, int arg) {
    lower_state *s = context;
    if (arg < 0 || arg >= 64) return true;
    if (s->depth == 0) s->request->fixed_args |= (uint64_t)1 << arg;
    return !(s->dynamic_args >> arg & 1);
}

/* ---- random numbers ---- */

/* Uses of one node are 2^40 counter values apart: more than any array has elements. */
#define RANDOM_USE_SHIFT 40

static hlo_value random_state(void *context) {
    lower_state *s = context;
    hlo_builder *b = s->builder;
    if (!s->words) {
        int64_t n = graph_random_count(s->top);
        s->words = hlo_parameter(b, DTYPE_U64, 1, &n);
        s->request->random_parameter = s->n_parameters++;
    }
    hlo_value word = hlo_slice_dim(b, s->words, 0, s->random_node, s->random_node + 1, 1);
    if (s->turns) word = hlo_add(b, word, s->turns);
    int64_t counter = (int64_t)s->random_use++ << RANDOM_USE_SHIFT;
    hlo_value parts[2] = {word, hlo_constant_ints(b, DTYPE_U64, 1, &counter)};
    return hlo_concatenate(b, 2, parts, 0);
}

/* A value that is read through a view has the view's strides; results are row-major. */
static bool is_contiguous(void *context, int arg) {
    const lower_state *s = context;
    if (arg < 0 || arg >= s->node->n_args || s->node->args[arg].tag != ARG_VALUE) return true;
    int32_t value = s->node->args[arg].u.value;
    for (int i = 0; i < s->graph->n_nodes; i++) {
        const graph_node *n = &s->graph->nodes[i];
        if (n->kind == NODE_READ && n->first_result == value) return geometry_is_contiguous(n->view);
    }
    return true;
}

/* ---- what the program says of its values ---- */

static bool wants_codes(void *context) {
    const lower_state *s = context;
    return s->request->check_indices && !s->silent;
}

static void code_seen(void *context, hlo_value code) {
    lower_state *s = context;
    s->code = s->code ? hlo_maximum(s->builder, s->code, code) : code;
}

/* ---- nodes ---- */

/* wanted: which of the graph's outputs somebody reads; NULL: all. */
static bool lower_graph(lower_state *s, const graph *g, const bool *wanted, hlo_value *values);

static bool give_values(const argument *a, const hlo_value *values, arena *mem, hlo_value **out) {
    *out = NULL;
    if (a->tag == ARG_VALUE) {
        *out = ARENA_NEW(mem, hlo_value, 1);
        if (!*out) return false;
        (*out)[0] = values[a->u.value];
    } else if (a->tag == ARG_VALUES) {
        *out = ARENA_NEW(mem, hlo_value, a->count);
        if (!*out) return false;
        for (int j = 0; j < a->count; j++)
            if (a->u.list[j].tag == ARG_VALUE) (*out)[j] = values[a->u.list[j].u.value];
    }
    return true;
}

static void mark_argument(const argument *a, bool *read) {
    if (a->tag == ARG_VALUE) read[a->u.value] = true;
    if (a->tag == ARG_VALUES)
        for (int j = 0; j < a->count; j++) mark_argument(&a->u.list[j], read);
}

/* For each value of the graph, whether it is an output that is wanted or a node has it as an operand; NULL: no memory.
 */
static bool *values_read(arena *mem, const graph *g, const bool *wanted) {
    bool *read = ARENA_NEW(mem, bool, g->n_values + 1);
    if (!read) return NULL;
    for (int k = 0; k < g->n_outputs; k++)
        if (g->outputs[k] >= 0 && (!wanted || wanted[k])) read[g->outputs[k]] = true;
    for (int i = 0; i < g->n_nodes; i++) {
        const graph_node *n = &g->nodes[i];
        for (int k = 0; k < n->n_args; k++) mark_argument(&n->args[k], read);
        if ((n->kind == NODE_READ || n->kind == NODE_WRITE) && n->base >= 0) read[n->base] = true;
        if (n->kind == NODE_WRITE) read[n->source] = true;
    }
    return read;
}

/* The results' types, without those that nothing reads: places of maxima, say, which cost more than the maxima. Not of
 * operators that use random bits: which bits a result gets may depend on the results before it. */
static const tensor_type *wanted_results(arena *mem, const graph_node *n, const bool *read) {
    int unread = 0;
    for (int k = 0; k < n->n_results; k++) unread += !read[k];
    if (!unread || unread == n->n_results || (n->row->flags & OP_RANDOM)) return n->result_types;
    tensor_type *types = ARENA_NEW(mem, tensor_type, n->n_results);
    for (int k = 0; types && k < n->n_results; k++) {
        types[k] = n->result_types[k];
        if (!read[k]) types[k].dtype = DTYPE_INVALID;
    }
    return types;
}

static bool lower_op(lower_state *s, const graph *g, const graph_node *n, const bool *read, hlo_value *values) {
    arena *mem = hlo_arena(s->builder);
    lowering_host host = {runtime_number, number_used, random_state, s,
                          is_contiguous,  is_fixed,    code_seen,    wants_codes};
    lowering l = {.builder = s->builder,
                  .row = n->row,
                  .n_args = n->n_args,
                  .args = n->args,
                  .n_results = n->n_results,
                  .result_types = wanted_results(mem, n, read + n->first_result),
                  .host = &host};
    l.values = ARENA_NEW(mem, hlo_value *, n->n_args);
    l.results = ARENA_NEW(mem, hlo_value, n->n_results);
    if (!l.values || !l.results || !l.result_types) return false;
    for (int i = 0; i < n->n_args; i++)
        if (!give_values(&n->args[i], values, mem, &l.values[i])) return false;
    s->graph = g;
    s->node = n;
    s->random_use = 0;
    hlo_set_context(s->builder, n->row->name);
    lowering_run(&l);
    hlo_set_context(s->builder, NULL);
    if (n->row->flags & OP_RANDOM) s->random_node++;
    for (int k = 0; k < n->n_results; k++) values[n->first_result + k] = l.results[k];
    return true;
}

static bool lower_sub_graph(lower_state *s, const graph_node *n, const bool *read, hlo_value *values) {
    const graph *sub = n->sub;
    hlo_value *inner = ARENA_NEW(hlo_arena(s->builder), hlo_value, sub->n_values);
    if (!inner) return false;
    for (int i = 0; i < n->n_args; i++) inner[sub->inputs[i]] = values[n->args[i].u.value];
    s->depth++;
    bool ok = lower_graph(s, sub, read + n->first_result, inner);
    s->depth--;
    if (!ok) return false;
    for (int k = 0; k < n->n_results; k++)
        values[n->first_result + k] = sub->outputs[k] < 0 ? NULL : inner[sub->outputs[k]];
    return true;
}

static hlo_value dynamic_offset(lower_state *s, const graph_node *n) {
    number_slot slot = {.arg = OFFSET_SLOT, .element = n->offset_slot, .node = s->slot_node, .cls = SLOT_I64};
    return n->offset_slot >= 0 ? slot_value(s, slot) : NULL;
}

/* ---- control flow ---- */

static hlo_value no_code(hlo_builder *b) { return hlo_constant_int(b, DTYPE_I32, 0, NULL, 0); }

/* The graph's outputs for these inputs, in the region that is open; false with no memory. */
static bool lower_inside(lower_state *s, const graph *sub, const hlo_value *inputs, hlo_value *outputs) {
    hlo_value *inner = ARENA_NEW(hlo_arena(s->builder), hlo_value, sub->n_values);
    if (!inner) return false;
    for (int i = 0; i < sub->n_inputs; i++) inner[sub->inputs[i]] = inputs[i];
    s->depth++;
    bool ok = lower_graph(s, sub, NULL, inner);
    s->depth--;
    for (int k = 0; ok && k < sub->n_outputs; k++) outputs[k] = sub->outputs[k] < 0 ? NULL : inner[sub->outputs[k]];
    return ok;
}

/* Absent outputs are left out of regions and their owners' results. */
static int close_up(int n, hlo_value *values) {
    int kept = 0;
    for (int k = 0; k < n; k++)
        if (values[k]) values[kept++] = values[k];
    return kept;
}

static hlo_value *operands_of(lower_state *s, const graph_node *n, const hlo_value *values, int from) {
    hlo_value *operands = ARENA_NEW(hlo_arena(s->builder), hlo_value, n->n_args + 1);
    for (int i = from; operands && i < n->n_args; i++) operands[i - from] = values[n->args[i].u.value];
    return operands;
}

/* A branch gives, behind its results, the code of what it was given: it is of use if any branch has one. */
static bool lower_case(lower_state *s, const graph_node *n, hlo_value *values) {
    hlo_builder *b = s->builder;
    arena *mem = hlo_arena(b);
    hlo_value *operands = operands_of(s, n, values, 1), *outputs = ARENA_NEW(mem, hlo_value, n->n_results + 2);
    hlo_region **regions = ARENA_NEW(mem, hlo_region *, n->n_subs);
    if (!operands || !outputs || !regions) return false;
    const bool codes = wants_codes(s);
    const hlo_value outer = s->code;
    bool any = false;
    int count = 0;
    for (int i = 0; i < n->n_subs; i++) {
        hlo_region_begin(b, 0, NULL, NULL);
        s->code = NULL;
        if (!lower_inside(s, n->subs[i], operands, outputs)) return false;
        any = any || s->code;
        count = hlo_status(b) ? 0 : close_up(n->n_results, outputs);
        if (codes) outputs[count++] = s->code ? s->code : no_code(b);
        regions[i] = hlo_region_end(b, count, outputs);
    }
    s->code = outer;
    hlo_value index = hlo_convert(b, values[n->args[0].u.value], DTYPE_I32);
    hlo_case(b, index, n->n_subs, regions, count, outputs);
    const graph *first = n->subs[0];
    int k = 0;
    for (int r = 0; r < n->n_results; r++) values[n->first_result + r] = first->outputs[r] < 0 ? NULL : outputs[k++];
    if (codes && any && !hlo_status(b)) code_seen(s, outputs[k]);
    return true;
}

/* What random words are shifted by in a turn: an odd constant of the golden ratio (as in splitmix64) keeps the turns of
 * one loop and of those around it apart. */
static hlo_value next_turn(hlo_builder *b, hlo_value turns) {
    int64_t one = (int64_t)0x9E3779B97F4A7C15u;
    return hlo_add(b, turns, hlo_constant_ints(b, DTYPE_U64, 1, &one));
}

/* Carried: the body's results, then the turns where random bits are used, then the code of what the body was given. The
 * other operands are captured. */
static bool lower_while(lower_state *s, const graph_node *n, hlo_value *values) {
    hlo_builder *b = s->builder;
    arena *mem = hlo_arena(b);
    const graph *condition = n->subs[0], *body = n->subs[1];
    const bool codes = wants_codes(s), random = graph_random_count(condition) + graph_random_count(body) > 0;
    int carried = n->n_results, all = carried + random + codes;
    hlo_value *init = ARENA_NEW(mem, hlo_value, all + 1), *inner = operands_of(s, n, values, 0);
    hlo_value *outputs = ARENA_NEW(mem, hlo_value, all + 1), *carry = ARENA_NEW(mem, hlo_value, all + 1);
    hlo_type *types = ARENA_NEW(mem, hlo_type, all + 1);
    if (!init || !inner || !outputs || !carry || !types) return false;
    int64_t one = 1;
    const hlo_value outside = s->turns, outer = s->code;
    for (int i = 0; i < carried; i++) init[i] = inner[i];
    if (random) init[carried] = outside ? outside : hlo_constant_int(b, DTYPE_U64, 1, &one, 0);
    if (codes) init[all - 1] = no_code(b);
    if (hlo_status(b)) return true;
    for (int i = 0; i < all; i++) types[i] = (hlo_type){init[i]->dtype, init[i]->rank, init[i]->dims};
    hlo_region *regions[2];
    bool any = false;
    for (int r = 0; r < 2; r++) {
        const bool silent = s->silent;
        hlo_region_begin(b, all, types, carry);
        for (int i = 0; i < carried; i++) inner[i] = carry[i];
        if (random) s->turns = carry[carried];
        s->code = NULL;
        s->silent = silent || r == 0;
        if (!lower_inside(s, n->subs[r], inner, outputs)) return false;
        s->silent = silent;
        if (r == 1 && random) outputs[carried] = next_turn(b, carry[carried]);
        any = any || s->code;
        if (r == 1 && codes) outputs[all - 1] = s->code ? hlo_maximum(b, s->code, carry[all - 1]) : carry[all - 1];
        regions[r] = hlo_region_end(b, r == 0 ? 1 : all, outputs);
    }
    s->turns = outside;
    s->code = outer;
    hlo_while(b, all, init, regions[0], regions[1], outputs);
    for (int k = 0; k < carried; k++) values[n->first_result + k] = outputs[k];
    if (codes && any && !hlo_status(b)) code_seen(s, outputs[all - 1]);
    return true;
}

static bool lower_function(lower_state *s, const graph_node *n, hlo_value *values) {
    arena *mem = hlo_arena(s->builder);
    hlo_value *operands = operands_of(s, n, values, 0);
    hlo_type *types = ARENA_NEW(mem, hlo_type, n->n_results);
    if (!operands || !types) return false;
    for (int k = 0; k < n->n_results; k++) {
        const tensor_type *t = &n->result_types[k];
        types[k] = (hlo_type){t->dtype, t->rank, t->dims};
    }
    hlo_call_function(s->builder, n->function, n->text, n->n_args, operands, n->n_results, types,
                      values + n->first_result);
    return true;
}

static hlo_value lower_write(lower_state *s, const graph *g, const graph_node *n, hlo_value *values) {
    hlo_value base = n->base >= 0 ? values[n->base] : NULL;
    if (n->base < 0) {
        const tensor_type *t = &g->types[n->first_result];
        base = hlo_constant_int(s->builder, t->dtype, t->rank, t->dims, 0);
    }
    return view_write(s->builder, base, n->view, values[n->source], dynamic_offset(s, n));
}

static bool lower_node(lower_state *s, const graph *g, int i, const bool *read, hlo_value *values) {
    const graph_node *n = &g->nodes[i];
    switch (n->kind) {
        case NODE_READ:
            values[n->first_result] = view_read(s->builder, values[n->base], n->view, dynamic_offset(s, n));
            return true;
        case NODE_WRITE:
            values[n->first_result] = lower_write(s, g, n, values);
            return true;
        case NODE_OP:
            return lower_op(s, g, n, read, values);
        case NODE_GRAPH:
            return lower_sub_graph(s, n, read, values);
        case NODE_CASE:
            return lower_case(s, n, values);
        case NODE_WHILE:
            return lower_while(s, n, values);
        case NODE_FUNCTION:
            return lower_function(s, n, values);
    }
    return true;
}

static void mark_line(lower_state *s, int node) {
    lower_request *r = s->request;
    if (r->n_lines < r->line_capacity) r->lines[r->n_lines++] = (node_line){node, hlo_next_line(s->builder)};
}

static bool lower_graph(lower_state *s, const graph *g, const bool *wanted, hlo_value *values) {
    uint64_t dynamic_args = s->dynamic_args;
    const bool *read = values_read(hlo_arena(s->builder), g, wanted);
    if (!read) return false;
    for (int i = 0; i < g->n_nodes; i++) {
        if (hlo_status(s->builder)) return true; /* reported by hlo_finish */
        const graph_node *n = &g->nodes[i];
        if (n->kind == NODE_GRAPH || n->n_subs) {
            s->dynamic_args = s->depth == 0 ? n->dynamic_args : 0;
            if (s->depth == 0) s->slot_node = i;
        }
        if (s->depth == 1) mark_line(s, i);
        if (!lower_node(s, g, i, read, values)) return false;
        s->dynamic_args = dynamic_args;
        if (s->depth == 0) s->slot_node = -1;
    }
    return true;
}

static status *emit(lower_state *s, const graph *g, const char *name, const int32_t *donate, strbuf *mlir) {
    hlo_builder *b = s->builder;
    arena *mem = hlo_arena(b);
    hlo_value *values = ARENA_NEW(mem, hlo_value, g->n_values);
    hlo_value *outputs = ARENA_NEW(mem, hlo_value, g->n_outputs + 1);
    if (!values || !outputs) return status_no_memory();
    for (int i = 0; i < g->n_inputs; i++) {
        const tensor_type *t = &g->types[g->inputs[i]];
        values[g->inputs[i]] = hlo_parameter(b, t->dtype, t->rank, t->dims);
        if (donate && donate[i] >= 0) hlo_parameter_donate(b, i, donate[i]);
    }
    s->n_parameters = g->n_inputs;
    if (!lower_graph(s, g, NULL, values)) return status_no_memory();
    int n = 0;
    for (int k = 0; k < g->n_outputs; k++)
        if (g->outputs[k] >= 0) outputs[n++] = values[g->outputs[k]];
    s->request->has_code = s->code != NULL;
    if (s->code) outputs[n++] = s->code;
    return hlo_finish(b, name, n, outputs, mlir);
}

status *graph_lower(const graph *g, const char *name, lower_request *request, const int32_t *donate, strbuf *mlir) {
    if (g->error) return status_new(status_get_code(g->error), "%s", status_message(g->error));
    lower_state s = {.top = g, .request = request, .dynamic_args = request->dynamic_args, .slot_node = -1};
    s.builder = hlo_create();
    if (!s.builder) return status_no_memory();
    hlo_set_precision(s.builder, request->precision);
    status *result = emit(&s, g, name, donate, mlir);
    hlo_destroy(s.builder);
    return result;
}
