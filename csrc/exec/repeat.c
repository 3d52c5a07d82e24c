/* Calls of a graph that are like the one before: a training loop's, a model's that serves. Where every tensor is dense
 * and the whole of a storage of its own, nothing but the bases' types decides the key, so none is built. */
#include <string.h>

#include "base/alloc.h"
#include "exec/internal.h"

typedef struct repeat {
    entry *e;
    variant *v;
    uint64_t removed; /* entries_removed() when it was noted: `e` may be gone, if that has grown */
    hlo_precision precision;
    int device, options, n_inputs, n_results;
    base_type types[]; /* of the inputs' bases */
} repeat;

void repeat_forget(operator_info *op) {
    mem_free(op->repeat);
    op->repeat = NULL;
}

static bool is_row_major(const geometry *g) {
    int64_t stride = 1;
    for (int d = g->rank - 1; d >= 0; d--) {
        if (g->sizes[d] != 1 && g->strides[d] != stride) return false;
        stride *= g->sizes[d];
    }
    return true;
}

/* Whether the tensor is its storage's base as it is. */
static bool is_base(const core_tensor *t) {
    const storage *st = t->storage;
    const geometry *g = &t->geometry;
    base_type type;
    if (!storage_has_value(st) || g->offset || g->conj || g->neg || g->rank > STORAGE_MAX_RANK) return false;
    base_type_init(&type, g->dtype, g->rank, g->sizes);
    return base_type_equal(&st->type, &type) && st->bytes == base_type_bytes(&type) && is_row_major(g);
}

void repeat_note(const call *c, const scan *s, entry *e, variant *v, hlo_precision precision) {
    operator_info *op = c->op;
    repeat_forget(op);
    if (!c->results_known || s->n_storages != c->n_args || v->random_parameter >= 0) return;
    for (int i = 0; i < c->n_args; i++)
        if (c->args[i].tag != ARG_VALUE || !is_base(c->args[i].u.tensor)) return;
    repeat *r = mem_alloc(sizeof *r + sizeof *r->types * (size_t)c->n_args);
    if (!r) return; /* the next call has a key again */
    *r = (repeat){e, v, entries_removed(), precision, c->device, c->options, c->n_args, c->n_results};
    for (int i = 0; i < c->n_args; i++) r->types[i] = s->storages[i]->type;
    op->repeat = r;
}

/* Whether the storage is as a launch that was noted found one of this type. Under the lock. */
static bool is_ready(const storage *s, const base_type *type) {
    if (s->lost || s->writing || fused_pending(s) || !s->base) return false;
    return base_type_equal(&s->type, type) && s->bytes == base_type_bytes(type);
}

static bool is_like(const repeat *r, const call *c, int n, storage *const *inputs) {
    if (!r || r->removed != entries_removed() || r->e->building || !r->v->executable) return false;
    if (exec_mode_now != MODE_STRICT || r->precision != exec_get_precision() || r->options != c->options) return false;
    if (r->device != c->device || r->n_inputs != n || r->n_results != c->n_results) return false;
    for (int i = 0; i < n; i++)
        if (!is_ready(inputs[i], &r->types[i])) return false;
    return scan_distinct(n, inputs);
}

status *exec_call_repeat(call *c, int n, storage *const *inputs, bool *done) {
    programs_make_room();
    c->options = c->op->options ? c->op->options : exec_options_now;
    exec_acquire();
    const repeat *r = c->op->repeat;
    *done = is_like(r, c, n, inputs);
    if (!*done) {
        exec_release();
        return NULL;
    }
    entry *e = r->e;
    COUNT(calls, 1);
    COUNT(cache_requests, 1);
    COUNT(cache_hits, 1);
    atomic_fetch_add_explicit(&e->op->calls[e->way], 1, memory_order_relaxed);
    e->users++;
    return launch_variant(e, r->v, inputs, c);
}
