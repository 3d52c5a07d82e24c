/* Operators by name, and the core's own rows. */
#include <string.h>

#include "base/alloc.h"
#include "exec/internal.h"

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static hashmap *table;
static operator_info *all_operators;

static operator_info *make(const char *name, const op_row *row) {
    operator_info *op = mem_alloc(sizeof *op);
    if (!op) return NULL;
    op->name = mem_strdup(name);
    if (!op->name) {
        mem_free(op);
        return NULL;
    }
    op->row = row;
    /* Without a row, or where the row says so, every number decides the program. */
    op->constant_numbers = !row || (row->flags & OP_CONSTANT_NUMBERS);
    return op;
}

static operator_info *intern(const char *name, const op_row *row) {
    size_t size = strlen(name);
    uint64_t hash = hash_bytes(name, size);
    if (!table && !(table = hashmap_create())) return NULL;
    operator_info *op = hashmap_find(table, name, size, hash);
    if (op) return op;
    op = make(name, row ? row : op_find(name));
    if (!op) return NULL;
    op->interned = true;
    if (!hashmap_insert(table, name, size, hash, op)) {
        mem_free((char *)op->name);
        mem_free(op);
        return NULL;
    }
    op->next = all_operators;
    all_operators = op;
    return op;
}

operator_info *operator_intern(const char *functional_name) {
    pthread_mutex_lock(&table_lock);
    operator_info *op = intern(functional_name, NULL);
    pthread_mutex_unlock(&table_lock);
    return op;
}

operator_info *operator_of_row(const op_row *row) {
    pthread_mutex_lock(&table_lock);
    operator_info *op = intern(row->name, row);
    pthread_mutex_unlock(&table_lock);
    return op;
}

operator_info *operator_from_graph(graph *g) {
    operator_info *op = make("graph", NULL);
    if (!op) {
        graph_destroy(g);
        return NULL;
    }
    op->graph = g;
    return op;
}

/* A hash of the call's dtypes, never 0. Of a list of tensors, the first one's counts. */
static uint64_t hash_dtypes(const call *c) {
    uint64_t hash = 1;
    for (int i = 0; i < c->n_args; i++) {
        const argument *a = &c->args[i];
        while (a->tag == ARG_VALUES && a->count > 0) a = &a->u.list[0];
        const core_tensor *x = a->tag == ARG_VALUE ? a->u.tensor : NULL;
        uint64_t t = 0;
        if (x)
            t = (uint64_t)x->geometry.dtype;
        else if (a->tag == ARG_NUMBER)
            t = (uint64_t)a->u.number.dtype;
        else if (a->tag == ARG_DTYPE)
            t = (uint64_t)a->u.dtype;
        hash = (hash ^ ((uint64_t)a->tag << 8 | t)) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash ? hash : 1;
}

learned_numbers *operator_numbers(operator_info *op, const call *c) {
    learned_numbers *n = &op->numbers;
    if (op->constant_numbers) {
        n->structural_args = ~(uint64_t)0;
        return n;
    }
    uint64_t dtypes = hash_dtypes(c);
    if (!n->dtypes) n->dtypes = dtypes;
    while (n->dtypes != dtypes && n->next) n = n->next;
    if (n->dtypes == dtypes) return n;
    n->next = mem_alloc(sizeof *n->next);
    if (n->next) n->next->dtypes = dtypes;
    return n->next;
}

const char *operator_name(const operator_info *op) { return op->name; }
const op_row *operator_row(const operator_info *op) { return op->row; }

void operator_count_cpu_fallback(operator_info *op) {
    atomic_fetch_add_explicit(&op->calls[WAY_CPU], 1, memory_order_relaxed);
    COUNT(cpu_fallbacks, 1);
}

int operator_uses(operator_use *out, int capacity) {
    int n = 0;
    pthread_mutex_lock(&table_lock);
    for (operator_info *op = all_operators; op; op = op->next)
        for (int way = WAY_NATIVE; way <= WAY_GRAPH; way++) {
            int64_t calls = op->calls[way];
            if (!calls || strncmp(op->name, "core::", 6) == 0) continue;
            if (n < capacity) out[n] = (operator_use){op->name, (op_way)way, calls};
            n++;
        }
    pthread_mutex_unlock(&table_lock);
    return n;
}

/* ---- the core's own rows ---- */

static void lower_assign(lowering *l) { result_set(l, 0, arg_tensor(l, 0)); }

static void lower_resize(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    int64_t from = x->dims[0], to = result_dims(l, 0)[0], zero = 0;
    if (to <= from) {
        result_set(l, 0, hlo_slice_dim(b, x, 0, 0, to, 1));
        return;
    }
    int64_t more = to - from;
    result_set(l, 0, hlo_pad(b, x, hlo_constant_int(b, x->dtype, 0, NULL, 0), &zero, &more, NULL));
}

static void lower_zeros(lowering *l) {
    result_set(l, 0, hlo_constant_int(lower_builder(l), result_dtype(l, 0), result_rank(l, 0), result_dims(l, 0), 0));
}

const op_row row_assign = {.name = "core::assign", .lower = lower_assign};
const op_row row_resize = {.name = "core::resize", .lower = lower_resize};
const op_row row_zeros = {.name = "core::zeros", .lower = lower_zeros};
