/* Canonical bytes of a graph, and its form for readers. */
#include <inttypes.h>
#include <string.h>

#include "graph/internal.h"

static void put(strbuf *out, int64_t v) { strbuf_append(out, &v, sizeof v); }

static void put_text(strbuf *out, const char *text) {
    size_t n = text ? strlen(text) : 0;
    put(out, text ? (int64_t)n : -1);
    if (n) strbuf_append(out, text, n);
}

static void put_ints(strbuf *out, int n, const int64_t *v) {
    put(out, n);
    if (n) strbuf_append(out, v, sizeof(int64_t) * (size_t)n);
}

static void put_type(strbuf *out, const tensor_type *t) {
    put(out, t->dtype);
    put_ints(out, t->rank, t->dims);
}

static void put_geometry(strbuf *out, const geometry *g) {
    put(out, g->dtype | (g->conj ? 1 << 8 : 0) | (g->neg ? 1 << 9 : 0));
    put(out, g->offset);
    put_ints(out, g->rank, g->sizes);
    put_ints(out, g->rank, g->strides);
}

static void put_number(strbuf *out, const number *n) {
    put(out, n->dtype | (n->wrapped ? 1 << 8 : 0));
    bool pair = dtype_is_float(n->dtype) || dtype_is_complex(n->dtype);
    int64_t bits[2] = {0, 0};
    if (pair)
        memcpy(bits, n->v.f, dtype_is_complex(n->dtype) ? 16 : 8);
    else
        bits[0] = n->v.i;
    put(out, bits[0]);
    put(out, bits[1]);
}

static void put_argument(strbuf *out, const argument *a) {
    put(out, a->tag);
    switch (a->tag) {
        case ARG_NONE:
            break;
        case ARG_VALUE:
            put(out, a->u.value);
            break;
        case ARG_NUMBER:
            put_number(out, &a->u.number);
            break;
        case ARG_INT:
            put(out, a->u.i);
            break;
        case ARG_DTYPE:
            put(out, a->u.dtype);
            break;
        case ARG_STRING:
            put_text(out, a->u.string);
            break;
        case ARG_INTS:
            put_ints(out, a->count, a->u.ints);
            break;
        case ARG_NUMBERS:
            put(out, a->count);
            for (int i = 0; i < a->count; i++) put_number(out, &a->u.numbers[i]);
            break;
        case ARG_VALUES:
            put(out, a->count);
            for (int i = 0; i < a->count; i++) put_argument(out, &a->u.list[i]);
            break;
    }
}

static void put_node(const graph *g, strbuf *out, const graph_node *n) {
    put(out, n->kind);
    if (n->kind == NODE_OP) put_text(out, n->row->name);
    if (n->kind == NODE_GRAPH) graph_key(n->sub, out);
    if (n->kind == NODE_FUNCTION) put_text(out, n->function);
    for (int k = 0; k < n->n_subs; k++) graph_key(n->subs[k], out);
    put(out, n->base);
    put(out, n->source);
    if (n->view) put_geometry(out, n->view);
    put(out, n->n_args);
    for (int i = 0; i < n->n_args; i++) put_argument(out, &n->args[i]);
    put(out, n->offset_slot);
    put(out, (int64_t)n->dynamic_args);
    put(out, n->n_results);
    put(out, n->first_result);
    for (int k = 0; k < n->n_results; k++) put_type(out, &g->types[n->first_result + k]);
}

void graph_key(const graph *g, strbuf *out) {
    put(out, g->n_inputs);
    for (int i = 0; i < g->n_inputs; i++) {
        put(out, g->inputs[i]);
        put_type(out, &g->types[g->inputs[i]]);
    }
    put(out, g->n_nodes);
    for (int i = 0; i < g->n_nodes; i++) put_node(g, out, &g->nodes[i]);
    put(out, g->n_outputs);
    for (int k = 0; k < g->n_outputs; k++) put(out, g->outputs[k]);
}

/* ---- for readers ---- */

static void print_dims(strbuf *out, int n, const int64_t *dims) {
    strbuf_puts(out, "[");
    for (int i = 0; i < n; i++) strbuf_printf(out, i ? ", %" PRId64 : "%" PRId64, dims[i]);
    strbuf_puts(out, "]");
}

static void print_type(strbuf *out, const tensor_type *t) {
    strbuf_puts(out, dtype_torch_name(t->dtype));
    print_dims(out, t->rank, t->dims);
}

static void print_number(strbuf *out, const number *n) {
    if (dtype_is_complex(n->dtype))
        strbuf_printf(out, "%.17g%+.17gj", n->v.f[0], n->v.f[1]);
    else if (dtype_is_float(n->dtype))
        strbuf_printf(out, "%.17g", n->v.f[0]);
    else
        strbuf_printf(out, "%" PRId64, n->v.i);
}

static void print_argument(strbuf *out, const argument *a) {
    switch (a->tag) {
        case ARG_NONE:
            strbuf_puts(out, "None");
            break;
        case ARG_VALUE:
            strbuf_printf(out, "%%%d", (int)a->u.value);
            break;
        case ARG_NUMBER:
            print_number(out, &a->u.number);
            break;
        case ARG_INT:
            strbuf_printf(out, "%" PRId64, a->u.i);
            break;
        case ARG_DTYPE:
            strbuf_puts(out, dtype_torch_name(a->u.dtype));
            break;
        case ARG_STRING:
            strbuf_printf(out, "'%s'", a->u.string);
            break;
        case ARG_INTS:
            print_dims(out, a->count, a->u.ints);
            break;
        case ARG_NUMBERS:
        case ARG_VALUES:
            strbuf_puts(out, "[");
            for (int i = 0; i < a->count; i++) {
                if (i) strbuf_puts(out, ", ");
                if (a->tag == ARG_NUMBERS)
                    print_number(out, &a->u.numbers[i]);
                else
                    print_argument(out, &a->u.list[i]);
            }
            strbuf_puts(out, "]");
            break;
    }
}

static void print_view(strbuf *out, const geometry *v) {
    strbuf_printf(out, " %s sizes ", dtype_torch_name(v->dtype));
    print_dims(out, v->rank, v->sizes);
    strbuf_puts(out, " strides ");
    print_dims(out, v->rank, v->strides);
    strbuf_printf(out, " offset %" PRId64 "%s%s", v->offset, v->conj ? " conj" : "", v->neg ? " neg" : "");
}

static const char *node_name(const graph_node *n) {
    if (n->kind == NODE_OP) return n->row->name;
    if (n->kind == NODE_FUNCTION) return n->function;
    return n->kind == NODE_CASE ? "case" : n->kind == NODE_WHILE ? "while" : "graph";
}

static void print_node(const graph *g, strbuf *out, const graph_node *n) {
    for (int k = 0; k < n->n_results; k++) {
        strbuf_printf(out, "%s%%%d: ", k ? ", " : "  ", (int)(n->first_result + k));
        print_type(out, &g->types[n->first_result + k]);
    }
    switch (n->kind) {
        case NODE_READ:
            strbuf_printf(out, " = read %%%d", (int)n->base);
            print_view(out, n->view);
            break;
        case NODE_WRITE:
            if (n->base >= 0)
                strbuf_printf(out, " = write %%%d <- %%%d", (int)n->base, (int)n->source);
            else
                strbuf_printf(out, " = fresh <- %%%d", (int)n->source);
            print_view(out, n->view);
            break;
        case NODE_OP:
        case NODE_GRAPH:
        case NODE_CASE:
        case NODE_WHILE:
        case NODE_FUNCTION:
            strbuf_printf(out, " = %s(", node_name(n));
            for (int i = 0; i < n->n_args; i++) {
                if (i) strbuf_puts(out, ", ");
                print_argument(out, &n->args[i]);
            }
            strbuf_puts(out, ")");
            break;
    }
    strbuf_puts(out, "\n");
    for (int k = 0; k < n->n_subs; k++) graph_print(n->subs[k], out);
}

void graph_print(const graph *g, strbuf *out) {
    strbuf_puts(out, "graph(");
    for (int i = 0; i < g->n_inputs; i++) {
        strbuf_printf(out, i ? ", %%%d: " : "%%%d: ", (int)g->inputs[i]);
        print_type(out, &g->types[g->inputs[i]]);
    }
    strbuf_puts(out, "):\n");
    for (int i = 0; i < g->n_nodes; i++) print_node(g, out, &g->nodes[i]);
    strbuf_puts(out, "  return");
    for (int k = 0; k < g->n_outputs; k++)
        if (g->outputs[k] < 0)
            strbuf_puts(out, " None");
        else
            strbuf_printf(out, " %%%d", (int)g->outputs[k]);
    strbuf_puts(out, "\n");
}
