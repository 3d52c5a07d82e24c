/* The ATen graph: what every operator call, in every mode, becomes.
 *
 * Values are numbered; nodes are in program order. A node reads a view of a base value, writes one, calls an operator,
 * calls a whole graph, chooses among graphs, repeats one, or calls a StableHLO function. Mutation exists only as WRITE
 * nodes: they make a new base value. */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include "base/arena.h"
#include "ops/call.h"
#include "ops/ops.h"

typedef enum { NODE_READ, NODE_WRITE, NODE_OP, NODE_GRAPH, NODE_CASE, NODE_WHILE, NODE_FUNCTION } node_kind;
typedef struct graph graph;
typedef struct graph_node {
    node_kind kind;
    const op_row *row; /* NODE_OP */
    const graph *sub;  /* NODE_GRAPH: arguments are its inputs, flattened */
    /* NODE_CASE: branches; NODE_WHILE: condition and body. Owned; their inputs are the arguments, in NODE_CASE without
     * the first, which chooses the branch. */
    int n_subs;
    graph *const *subs;
    const char *function, *text; /* NODE_FUNCTION: see graph_call_function */
    const geometry *view;        /* NODE_READ, NODE_WRITE */
    int32_t base, source; /* NODE_READ: base; NODE_WRITE: base, source value (base -1: a fresh base, see fresh_*) */
    int32_t fresh_rank;
    const int64_t *fresh_dims;
    int n_args;
    const argument *args;
    int n_results;
    int32_t first_result;            /* values first_result .. + n_results - 1 */
    const tensor_type *result_types; /* dtype DTYPE_INVALID: not wanted */
    int32_t
        offset_slot; /* NODE_READ, NODE_WRITE: the view's offset is run-time number OFFSET_SLOT's element; -1: not */
    uint64_t dynamic_args; /* NODE_GRAPH of the outermost graph: numbers of its operator that are run-time inputs */
} graph_node;

graph *graph_create(void);
void graph_destroy(graph *g); /* one owner less; the last one's destroys it */
graph *graph_retain(graph *g);
arena *graph_arena(graph *g);
/* All of these return -1 with no memory or on a bad id; graph_status has the first error. */
int32_t graph_input(graph *g, dtype t, int rank, const int64_t *dims);
int32_t graph_read(graph *g, int32_t base, const geometry *view);
int32_t graph_write(graph *g, int32_t base, const geometry *view, int32_t source);
int32_t graph_write_fresh(graph *g, const geometry *view,
                          int32_t source); /* a new base that holds just this geometry */
/* Copies the arguments. Returns the first result's value id. */
int32_t graph_call(graph *g, const op_row *row, int n_args, const argument *args, int n_results,
                   const tensor_type *results);
int32_t graph_call_graph(graph *g, const graph *sub, int n_args, const int32_t *args); /* first result's id */
/* Both retain the graphs. Of the branches, whose results have the same types, the one numbered by the index runs: a
 * bool or an integer, clamped to the last branch where there is none of its number. */
int32_t graph_call_case(graph *g, int32_t index, int n_branches, graph *const *branches, int n_args,
                        const int32_t *args);
/* While the condition (one bool result) holds: the body's results take the place of the first arguments, whose types
 * they have; the other arguments stay. The node's results are those arguments in the end. */
int32_t graph_call_while(graph *g, graph *condition, graph *body, int n_args, const int32_t *args);
/* A function in StableHLO text, as hlo_call_function takes it. The name is the text's identity: equal names must mean
 * equal texts, so it holds a digest. */
int32_t graph_call_function(graph *g, const char *name, const char *text, int n_args, const int32_t *args,
                            int n_results, const tensor_type *results);
void graph_set_dynamic(graph *g, int node, uint64_t dynamic_args);
/* The view of the READ or WRITE added last starts where a run-time number says. */
void graph_set_offset(graph *g, int32_t slot);
#define GRAPH_NO_OUTPUT (-2)
void graph_output(graph *g, int32_t value); /* GRAPH_NO_OUTPUT: a result that is absent (None) */
int graph_input_count(const graph *g);
int graph_output_count(const graph *g);
int32_t graph_input_at(const graph *g, int i);  /* its value id */
int32_t graph_output_at(const graph *g, int k); /* or GRAPH_NO_OUTPUT */
tensor_type graph_value_type(const graph *g, int32_t value);
tensor_type graph_output_type(const graph *g, int k);
const status *graph_status(const graph *g);
int graph_node_count(const graph *g);
const graph_node *graph_node_at(const graph *g, int i);
/* Canonical bytes: equal graphs, and only they, have equal bytes. */
void graph_key(const graph *g, strbuf *out);
void graph_print(const graph *g, strbuf *out);

/* How many nodes, sub-graphs included, may use random bits. */
int graph_random_count(const graph *g);

/* ---- lowering a graph ---- */
typedef enum { SLOT_F32, SLOT_F64, SLOT_I64, SLOT_CLASSES } slot_class;
#define OFFSET_SLOT (-1)
/* A run-time number: element `element` of argument `arg` of the outermost graph's NODE_OP (node -1), or of the NODE_OP
 * in the graph that its node `node` calls. arg OFFSET_SLOT: the offset of a view, that of tensor `element` of the call.
 */
typedef struct number_slot {
    int32_t arg, element, node;
    slot_class cls;
    bool imaginary;
} number_slot;
/* The text of a node begins on this line, and ends where the next one's begins. */
typedef struct node_line {
    int32_t node, line;
} node_line;
typedef struct lower_request {
    hlo_precision precision;
    node_line *lines; /* room for a line a node of the graph that the outermost graph calls, or NULL: not asked for */
    int n_lines, line_capacity;
    /* Numbers of the single NODE_OP of a strict graph that are run-time inputs: bit `arg`. */
    uint64_t dynamic_args;
    /* Filled in: */
    number_slot *slots; /* in order within their class: the n-th slot of a class is element n of its vector */
    int n_slots, slot_capacity;
    uint64_t structural_args;          /* numbers whose value the lowering asked for as a constant */
    uint64_t fixed_args;               /* numbers that have a shorter form as constants */
    int class_parameter[SLOT_CLASSES]; /* parameter index of the vector, -1: not used */
    int64_t class_length[SLOT_CLASSES];
    /* Asked for: where an operator takes indices, or asserts, the program has one result more, the last, of s32[]: 0,
     * or the greatest fault_code of what it was given and was not good. has_code: it has. */
    bool check_indices, has_code;
    int random_parameter; /* of the ui64[graph_random_count] words, one a random node; -1: not used */
} lower_request;
void lower_request_init(lower_request *request, hlo_precision precision);
/* Emits @main: parameters are the graph's inputs, then (in order of first use) the vectors of numbers and the random
 * words. donate[i] >= 0: input i is donated to that output. */
status *graph_lower(const graph *g, const char *name, lower_request *request, const int32_t *donate, strbuf *mlir);
void lower_request_free(lower_request *request);

#endif
