/* Building the ATen graph: nodes and value types in one arena. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/internal.h"
#include "ops/fault.h"

graph *graph_create(void) {
    graph *g = mem_alloc(sizeof *g);
    if (!g) return NULL;
    g->references = 1;
    g->arena = arena_create();
    if (!g->arena) {
        mem_free(g);
        return NULL;
    }
    return g;
}

void graph_destroy(graph *g) {
    if (!g || --g->references > 0) return;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_subs; k++) graph_destroy(g->nodes[i].subs[k]);
    status_free(g->error);
    mem_free(g->nodes);
    mem_free(g->types);
    mem_free(g->inputs);
    mem_free(g->outputs);
    arena_destroy(g->arena);
    mem_free(g);
}

graph *graph_retain(graph *g) {
    g->references++;
    return g;
}

arena *graph_arena(graph *g) { return g->arena; }
const status *graph_status(const graph *g) { return g->error; }
int graph_node_count(const graph *g) { return g->n_nodes; }
const graph_node *graph_node_at(const graph *g, int i) { return &g->nodes[i]; }
int graph_input_count(const graph *g) { return g->n_inputs; }
int graph_output_count(const graph *g) { return g->n_outputs; }
int32_t graph_input_at(const graph *g, int i) { return g->inputs[i]; }
int32_t graph_output_at(const graph *g, int k) { return g->outputs[k]; }
tensor_type graph_output_type(const graph *g, int k) { return graph_value_type(g, g->outputs[k]); }

tensor_type graph_value_type(const graph *g, int32_t value) {
    tensor_type none = {DTYPE_INVALID, 0, NULL};
    return value >= 0 && value < g->n_values ? g->types[value] : none;
}

static int32_t fail(graph *g, status *s) {
    if (g->error)
        status_free(s);
    else
        g->error = s;
    return -1;
}

static int32_t no_memory(graph *g) { return fail(g, status_no_memory()); }

static bool valid(const graph *g, int32_t value) {
    return value >= 0 && value < g->n_values && g->types[value].dtype != DTYPE_INVALID;
}

static int32_t bad_value(graph *g, const char *what, int32_t value) {
    if (g->error) return -1;
    return fail(g, status_new(STATUS_INTERNAL, "graph: %s: there is no value %d", what, (int)value));
}

/* Room for `more` entries of `size` bytes behind `count`. */
static bool reserve(void **array, int count, int *capacity, int more, size_t size) {
    if (count + more <= *capacity) return true;
    int wanted = *capacity ? *capacity * 2 : 8;
    while (wanted < count + more) wanted *= 2;
    void *grown = mem_realloc(*array, (size_t)wanted * size);
    if (!grown) return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

static int32_t add_value(graph *g, dtype t, int rank, const int64_t *dims) {
    int64_t *copy = arena_copy(g->arena, dims, sizeof(int64_t) * (size_t)rank);
    if (!copy || !reserve((void **)&g->types, g->n_values, &g->value_capacity, 1, sizeof(tensor_type)))
        return no_memory(g);
    g->types[g->n_values] = (tensor_type){t, rank, copy};
    return g->n_values++;
}

static graph_node *add_node(graph *g, node_kind kind) {
    if (!reserve((void **)&g->nodes, g->n_nodes, &g->node_capacity, 1, sizeof(graph_node))) {
        no_memory(g);
        return NULL;
    }
    graph_node *n = &g->nodes[g->n_nodes++];
    memset(n, 0, sizeof *n);
    n->kind = kind;
    n->base = n->source = n->offset_slot = -1;
    return n;
}

int32_t graph_input(graph *g, dtype t, int rank, const int64_t *dims) {
    if (rank < 0 || rank > HLO_MAX_RANK || t == DTYPE_INVALID)
        return fail(g, status_new(STATUS_INTERNAL, "graph: input of an invalid type"));
    int32_t v = add_value(g, t, rank, dims);
    if (v < 0) return -1;
    if (!reserve((void **)&g->inputs, g->n_inputs, &g->input_capacity, 1, sizeof(int32_t))) return no_memory(g);
    g->inputs[g->n_inputs++] = v;
    return v;
}

static geometry *copy_geometry(graph *g, const geometry *view) {
    geometry *copy = arena_alloc(g->arena, sizeof *copy);
    if (!copy) {
        no_memory(g);
        return NULL;
    }
    geometry_copy(copy, view);
    return copy;
}

int32_t graph_read(graph *g, int32_t base, const geometry *view) {
    if (!valid(g, base)) return bad_value(g, "read", base);
    geometry *copy = copy_geometry(g, view);
    if (!copy) return -1;
    int32_t v = add_value(g, view->dtype, view->rank, view->sizes);
    graph_node *n = v < 0 ? NULL : add_node(g, NODE_READ);
    if (!n) return -1;
    n->view = copy;
    n->base = base;
    n->n_results = 1;
    n->first_result = v;
    return v;
}

static int32_t add_write(graph *g, int32_t base, const geometry *view, int32_t source, dtype t, int rank,
                         const int64_t *dims) {
    if (!valid(g, source)) return bad_value(g, "write", source);
    geometry *copy = copy_geometry(g, view);
    if (!copy) return -1;
    int32_t v = add_value(g, t, rank, dims);
    graph_node *n = v < 0 ? NULL : add_node(g, NODE_WRITE);
    if (!n) return -1;
    n->view = copy;
    n->base = base;
    n->source = source;
    n->n_results = 1;
    n->first_result = v;
    return v;
}

int32_t graph_write(graph *g, int32_t base, const geometry *view, int32_t source) {
    if (!valid(g, base)) return bad_value(g, "write", base);
    tensor_type from = g->types[base];
    dtype t;
    int rank;
    int64_t dims[HLO_MAX_RANK];
    view_write_type(from.dtype, from.rank, from.dims, view, &t, &rank, dims);
    return add_write(g, base, view, source, t, rank, dims);
}

int32_t graph_write_fresh(graph *g, const geometry *view, int32_t source) {
    int rank;
    int64_t dims[HLO_MAX_RANK];
    geometry_base_dims(view, &rank, dims);
    int32_t v = add_write(g, -1, view, source, view->dtype, rank, dims);
    if (v < 0) return -1;
    graph_node *n = &g->nodes[g->n_nodes - 1];
    n->fresh_rank = rank;
    n->fresh_dims = g->types[v].dims;
    return v;
}

/* Deep copy of arguments into the arena; values are checked. */
static bool copy_arguments(graph *g, int n, const argument *from, argument **out);

static bool copy_argument(graph *g, const argument *from, argument *to) {
    *to = *from;
    arena *a = g->arena;
    size_t count = (size_t)from->count;
    switch (from->tag) {
        case ARG_VALUE:
            if (!valid(g, from->u.value)) return bad_value(g, "operand", from->u.value) >= 0;
            return true;
        case ARG_STRING:
            return (to->u.string = arena_copy(a, from->u.string, strlen(from->u.string) + 1)) || no_memory(g) >= 0;
        case ARG_INTS:
            return (to->u.ints = arena_copy(a, from->u.ints, count * sizeof(int64_t))) || no_memory(g) >= 0;
        case ARG_NUMBERS:
            return (to->u.numbers = arena_copy(a, from->u.numbers, count * sizeof(number))) || no_memory(g) >= 0;
        case ARG_VALUES: {
            argument *list;
            if (!copy_arguments(g, from->count, from->u.list, &list)) return false;
            to->u.list = list;
            return true;
        }
        default:
            return true;
    }
}

static bool copy_arguments(graph *g, int n, const argument *from, argument **out) {
    argument *to = ARENA_NEW(g->arena, argument, n);
    if (!to) return no_memory(g) >= 0;
    for (int i = 0; i < n; i++)
        if (!copy_argument(g, &from[i], &to[i])) return false;
    *out = to;
    return true;
}

int32_t graph_call(graph *g, const op_row *row, int n_args, const argument *args, int n_results,
                   const tensor_type *results) {
    argument *copy;
    if (!row) return fail(g, status_new(STATUS_INTERNAL, "graph: call of no operator"));
    if (!copy_arguments(g, n_args, args, &copy)) return -1;
    int32_t first = g->n_values;
    for (int k = 0; k < n_results; k++)
        if (add_value(g, results[k].dtype, results[k].rank, results[k].dims) < 0) return -1;
    tensor_type *types = ARENA_NEW(g->arena, tensor_type, n_results);
    graph_node *n = types ? add_node(g, NODE_OP) : NULL;
    if (!n) return no_memory(g);
    for (int k = 0; k < n_results; k++) types[k] = g->types[first + k];
    for (int i = 0; i < n_args && row->flags & OP_ASSERTS; i++)
        if (copy[i].tag == ARG_STRING) fault_remember(copy[i].u.string);
    n->row = row;
    n->n_args = n_args;
    n->args = copy;
    n->n_results = n_results;
    n->first_result = first;
    n->result_types = types;
    return first;
}

static argument *value_arguments(graph *g, int n, const int32_t *values) {
    argument *args = ARENA_NEW(g->arena, argument, n);
    for (int i = 0; args && i < n; i++) {
        args[i].tag = ARG_VALUE;
        args[i].u.value = values[i];
    }
    return args;
}

/* Values of the types of the sub-graph's outputs: the first one's id, or -1. */
static int32_t add_outputs(graph *g, const graph *sub) {
    int32_t first = g->n_values;
    for (int k = 0; k < sub->n_outputs; k++) {
        tensor_type t = sub->outputs[k] < 0 ? (tensor_type){DTYPE_INVALID, 0, NULL} : graph_output_type(sub, k);
        if (add_value(g, t.dtype, t.rank, t.dims) < 0) return -1;
    }
    return first;
}

int32_t graph_call_graph(graph *g, const graph *sub, int n_args, const int32_t *args) {
    if (n_args != sub->n_inputs)
        return fail(
            g, status_new(STATUS_INTERNAL, "graph: a graph of %d inputs is called with %d", sub->n_inputs, n_args));
    for (int i = 0; i < n_args; i++)
        if (!valid(g, args[i])) return bad_value(g, "operand", args[i]);
    argument *copy = value_arguments(g, n_args, args);
    if (!copy) return no_memory(g);
    int32_t first = add_outputs(g, sub);
    graph_node *n = first < 0 ? NULL : add_node(g, NODE_GRAPH);
    if (!n) return -1;
    n->sub = sub;
    n->n_args = n_args;
    n->args = copy;
    n->n_results = sub->n_outputs;
    n->first_result = first;
    return first;
}

/* ---- control flow ---- */

static bool same_type(const tensor_type *a, const tensor_type *b) {
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) same = a->dims[i] == b->dims[i];
    return same;
}

/* The sub-graph's inputs are these values. */
static bool takes(graph *g, const graph *sub, int n_args, const int32_t *args) {
    bool same = n_args == sub->n_inputs;
    for (int i = 0; same && i < n_args; i++) {
        if (!valid(g, args[i])) return bad_value(g, "operand", args[i]) >= 0;
        same = same_type(&g->types[args[i]], &sub->types[sub->inputs[i]]);
    }
    if (!same) fail(g, status_new(STATUS_INTERNAL, "graph: control flow over a graph whose inputs are others"));
    return same;
}

static bool gives(graph *g, const graph *sub, int k, const tensor_type *wanted) {
    tensor_type got = sub->outputs[k] < 0 ? (tensor_type){DTYPE_INVALID, 0, NULL} : graph_output_type(sub, k);
    if (same_type(&got, wanted)) return true;
    fail(g, status_new(STATUS_INTERNAL, "graph: result %d of a graph in control flow has another type", k));
    return false;
}

/* Results have the types of the first graph's outputs. */
static int32_t add_control(graph *g, node_kind kind, int n_subs, graph *const *subs, int n_args, const int32_t *args) {
    argument *copy = value_arguments(g, n_args, args);
    graph **kept = arena_copy(g->arena, subs, sizeof *subs * (size_t)n_subs);
    const graph *last = subs[n_subs - 1];
    if (!copy || !kept) return no_memory(g);
    int32_t first = add_outputs(g, last);
    graph_node *n = first < 0 ? NULL : add_node(g, kind);
    if (!n) return -1;
    n->subs = kept;
    n->n_subs = n_subs;
    for (int i = 0; i < n_subs; i++) graph_retain(kept[i]);
    n->n_args = n_args;
    n->args = copy;
    n->n_results = last->n_outputs;
    n->first_result = first;
    return first;
}

int32_t graph_call_case(graph *g, int32_t index, int n_branches, graph *const *branches, int n_args,
                        const int32_t *args) {
    if (!valid(g, index)) return bad_value(g, "branch", index);
    if (n_branches < 1) return fail(g, status_new(STATUS_INTERNAL, "graph: a choice among no branches"));
    const graph *last = branches[n_branches - 1];
    for (int i = 0; i < n_branches; i++) {
        if (!takes(g, branches[i], n_args, args)) return -1;
        if (branches[i]->n_outputs != last->n_outputs)
            return fail(g, status_new(STATUS_INTERNAL, "graph: branches with different numbers of results"));
        for (int k = 0; k < last->n_outputs; k++) {
            tensor_type t = last->outputs[k] < 0 ? (tensor_type){DTYPE_INVALID, 0, NULL} : graph_output_type(last, k);
            if (!gives(g, branches[i], k, &t)) return -1;
        }
    }
    int32_t *all = ARENA_NEW(g->arena, int32_t, n_args + 1);
    if (!all) return no_memory(g);
    all[0] = index;
    if (n_args) memcpy(all + 1, args, sizeof *args * (size_t)n_args);
    return add_control(g, NODE_CASE, n_branches, branches, n_args + 1, all);
}

int32_t graph_call_while(graph *g, graph *condition, graph *body, int n_args, const int32_t *args) {
    if (!takes(g, condition, n_args, args) || !takes(g, body, n_args, args)) return -1;
    tensor_type predicate = {DTYPE_BOOL, 0, NULL};
    if (condition->n_outputs != 1 || body->n_outputs > n_args)
        return fail(g, status_new(STATUS_INTERNAL, "graph: a loop with the wrong number of results"));
    if (!gives(g, condition, 0, &predicate)) return -1;
    for (int k = 0; k < body->n_outputs; k++)
        if (!gives(g, body, k, &g->types[args[k]])) return -1;
    graph *subs[2] = {condition, body};
    return add_control(g, NODE_WHILE, 2, subs, n_args, args);
}

/* ---- functions from outside ---- */

int32_t graph_call_function(graph *g, const char *name, const char *text, int n_args, const int32_t *args,
                            int n_results, const tensor_type *results) {
    for (int i = 0; i < n_args; i++)
        if (!valid(g, args[i])) return bad_value(g, "operand", args[i]);
    argument *copy = value_arguments(g, n_args, args);
    tensor_type *types = ARENA_NEW(g->arena, tensor_type, n_results);
    const char *kept_name = arena_copy(g->arena, name, strlen(name) + 1);
    const char *kept_text = arena_copy(g->arena, text, strlen(text) + 1);
    if (!copy || !types || !kept_name || !kept_text) return no_memory(g);
    int32_t first = g->n_values;
    for (int k = 0; k < n_results; k++)
        if (add_value(g, results[k].dtype, results[k].rank, results[k].dims) < 0) return -1;
    graph_node *n = add_node(g, NODE_FUNCTION);
    if (!n) return -1;
    for (int k = 0; k < n_results; k++) types[k] = g->types[first + k];
    n->function = kept_name;
    n->text = kept_text;
    n->n_args = n_args;
    n->args = copy;
    n->n_results = n_results;
    n->first_result = first;
    n->result_types = types;
    return first;
}

void graph_set_dynamic(graph *g, int node, uint64_t dynamic_args) { g->nodes[node].dynamic_args = dynamic_args; }

void graph_set_offset(graph *g, int32_t slot) {
    if (!g->error) g->nodes[g->n_nodes - 1].offset_slot = slot;
}

void graph_output(graph *g, int32_t value) {
    if (value != GRAPH_NO_OUTPUT && !valid(g, value)) {
        bad_value(g, "output", value);
        return;
    }
    if (!reserve((void **)&g->outputs, g->n_outputs, &g->output_capacity, 1, sizeof(int32_t))) {
        no_memory(g);
        return;
    }
    g->outputs[g->n_outputs++] = value;
}

int graph_random_count(const graph *g) {
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const graph_node *node = &g->nodes[i];
        if (node->kind == NODE_OP && (node->row->flags & OP_RANDOM)) n++;
        if (node->kind == NODE_GRAPH) n += graph_random_count(node->sub);
        for (int k = 0; k < node->n_subs; k++) n += graph_random_count(node->subs[k]);
    }
    return n;
}
