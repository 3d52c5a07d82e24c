/* Building the ATen graph: nodes and value types in one arena. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/internal.h"

graph *graph_create(void) {
    graph *g = mem_alloc(sizeof *g);
    if (!g) return NULL;
    g->arena = arena_create();
    if (!g->arena) {
        mem_free(g);
        return NULL;
    }
    return g;
}

void graph_destroy(graph *g) {
    if (!g) return;
    status_free(g->error);
    mem_free(g->nodes);
    mem_free(g->types);
    mem_free(g->inputs);
    mem_free(g->outputs);
    arena_destroy(g->arena);
    mem_free(g);
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
    n->row = row;
    n->n_args = n_args;
    n->args = copy;
    n->n_results = n_results;
    n->first_result = first;
    n->result_types = types;
    return first;
}

int32_t graph_call_graph(graph *g, const graph *sub, int n_args, const int32_t *args) {
    if (n_args != sub->n_inputs)
        return fail(
            g, status_new(STATUS_INTERNAL, "graph: a graph of %d inputs is called with %d", sub->n_inputs, n_args));
    argument *copy = ARENA_NEW(g->arena, argument, n_args);
    if (!copy) return no_memory(g);
    for (int i = 0; i < n_args; i++) {
        if (!valid(g, args[i])) return bad_value(g, "operand", args[i]);
        copy[i].tag = ARG_VALUE;
        copy[i].u.value = args[i];
    }
    int32_t first = g->n_values;
    for (int k = 0; k < sub->n_outputs; k++) {
        tensor_type t = sub->outputs[k] < 0 ? (tensor_type){DTYPE_INVALID, 0, NULL} : graph_output_type(sub, k);
        if (add_value(g, t.dtype, t.rank, t.dims) < 0) return -1;
    }
    graph_node *n = add_node(g, NODE_GRAPH);
    if (!n) return -1;
    n->sub = sub;
    n->n_args = n_args;
    n->args = copy;
    n->n_results = sub->n_outputs;
    n->first_result = first;
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
    }
    return n;
}
