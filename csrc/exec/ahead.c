#include "exec/ahead.h"

#include <string.h>

#include "base/alloc.h"
#include "exec/internal.h"

/* A call on storages that have no base value, and what is freed with it. */
typedef struct pretence {
    operator_info op;
    call call;
    core_tensor *tensors;
    argument *args;
    call_result *results;
    entry *entry;
    variant *variant;
    scan scan;
} pretence;

static void base_of(const geometry *g, base_type *out) {
    int rank;
    int64_t dims[VIEW_MAX_RANK];
    geometry_base_dims(g, &rank, dims);
    base_type_init(out, g->dtype, rank, dims);
}

static status *make_call(pretence *p, const ahead_call *c) {
    size_t n = (size_t)c->n_inputs + 1, m = (size_t)c->n_results + 1;
    p->tensors = mem_alloc(sizeof *p->tensors * n);
    p->args = mem_alloc(sizeof *p->args * n);
    p->results = mem_alloc(sizeof *p->results * m);
    p->entry = mem_alloc(sizeof *p->entry);
    if (!p->tensors || !p->args || !p->results || !p->entry) return status_no_memory();
    for (int i = 0; i < c->n_inputs; i++) {
        const geometry *g = &c->inputs[i];
        geometry_copy(&p->tensors[i].geometry, g);
        p->tensors[i].storage = storage_create(geometry_extent(g) * (int64_t)dtype_bytes(g->dtype), 0);
        if (!p->tensors[i].storage) return status_no_memory();
        p->args[i] = (argument){.tag = ARG_VALUE, .u.tensor = &p->tensors[i]};
    }
    for (int k = 0; k < c->n_results; k++) {
        const ahead_result *r = &c->results[k];
        p->results[k].kind = r->input < 0 ? RESULT_NEW : RESULT_WRITE;
        if (r->input >= 0)
            p->results[k].target = &p->tensors[r->input];
        else
            geometry_copy(&p->results[k].geometry, &r->geometry);
    }
    p->op = (operator_info){.name = "graph", .graph = c->graph, .constant_numbers = true};
    p->call = (call){.op = &p->op,
                     .n_args = c->n_inputs,
                     .args = p->args,
                     .n_results = c->n_results,
                     .max_results = c->n_results,
                     .results = p->results,
                     .results_known = true,
                     .options = exec_get_options()};
    return NULL;
}

/* The scan of the call, as it would be if the storages had values. */
static status *scan_pretended(pretence *p, const ahead_call *c) {
    scan *s = &p->scan;
    s->declared_results = c->n_results;
    exec_acquire();
    scan_call(s, &p->call, c->precision);
    bool ok = !s->failed && scan_snapshot(s);
    exec_release();
    if (!ok) return status_no_memory();
    for (int i = 0; i < c->n_inputs; i++) {
        int at = scan_index(s, p->tensors[i].storage);
        if (at < 0) continue;
        s->has_base[at] = geometry_count(&c->inputs[i]) > 0;
        base_of(&c->inputs[i], &s->types[at]);
    }
    return NULL;
}

static status *lower(pretence *p, ahead_call *c, strbuf *text) {
    uint64_t structural;
    STATUS_TRY(entry_plan(p->entry, &p->call, &p->scan));
    STATUS_TRY(entry_make_variant(p->entry, &p->call, &p->scan, c->precision, 0, false, &p->variant, &structural));
    lower_request request;
    lower_request_init(&request, c->precision);
    request.lines = c->lines;
    request.line_capacity = c->lines ? graph_node_count(c->graph) : 0;
    status *s = variant_text(p->entry, p->variant, &request, text);
    c->n_lines = request.n_lines;
    lower_request_free(&request);
    return s;
}

static void end_call(pretence *p, const ahead_call *c) {
    for (int i = 0; p->tensors && i < c->n_inputs; i++)
        if (p->tensors[i].storage) storage_destroy(p->tensors[i].storage);
    variant_destroy(p->variant);
    entry_destroy(p->entry);
    scan_free(&p->scan);
    mem_free(p->tensors);
    mem_free(p->args);
    mem_free(p->results);
}

status *ahead_program(ahead_call *c, strbuf *text) {
    pretence p = {0};
    scan_init(&p.scan);
    status *s = make_call(&p, c);
    if (!s) s = scan_pretended(&p, c);
    if (!s) s = lower(&p, c, text);
    end_call(&p, c);
    return s;
}

/* ---- the disk cache ---- */

status *ahead_store(const char *plugin, const pjrt_topology_info *devices, const char *mlir, size_t size,
                    const pjrt_compile_options *options, const strbuf *executable, strbuf *path) {
    strbuf identity, serialized;
    strbuf_init(&identity);
    strbuf_init(&serialized);
    disk_put_identity(&identity, plugin, strbuf_text(&devices->platform), strbuf_text(&devices->version),
                      strbuf_text(&devices->kind));
    pjrt_compile_options_serialize(options, &serialized);
    bool failed = strbuf_failed(&identity) || strbuf_failed(&serialized);
    if (!failed) disk_store_bytes(&identity, mlir, size, &serialized, executable, path);
    strbuf_free(&identity);
    strbuf_free(&serialized);
    return failed ? status_no_memory() : NULL;
}
