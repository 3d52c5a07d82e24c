/* From a call that was not seen before to an executable: infer, build the graph, lower, compile. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "exec/internal.h"

/* Below this size giving a buffer up costs more than it saves. */
#define DONATION_BYTES 65536

void variant_destroy(variant *v) {
    if (!v) return;
    mem_free(v->constants);
    mem_free(v->slots);
    graph_destroy(v->graph);
    pjrt_executable_release(v->executable);
    mem_free(v);
}

void entry_destroy(entry *e) {
    if (!e) return;
    while (e->variants) {
        variant *next = e->variants->next;
        variant_destroy(e->variants);
        e->variants = next;
    }
    graph_destroy(e->sub);
    mem_free(e->results);
    mem_free(e->inputs);
    mem_free(e->outputs);
    mem_free(e);
}

/* ---- numbers ---- */

bool call_visit_numbers(const call *c, number_visitor visit, void *context) {
    for (int i = 0; i < c->n_args; i++) {
        const argument *a = &c->args[i];
        if (a->tag == ARG_NUMBER && !visit(context, i, 0, &a->u.number)) return false;
        if (a->tag == ARG_NUMBERS)
            for (int j = 0; j < a->count; j++)
                if (!visit(context, i, j, &a->u.numbers[j])) return false;
    }
    return true;
}

static bool number_equal(const number *a, const number *b) {
    if (dtype_is_complex(a->dtype)) return memcmp(a->v.f, b->v.f, 16) == 0;
    return a->v.i == b->v.i; /* bits: a NaN equals itself */
}

typedef struct comparison {
    const variant *v;
    int position;
    uint64_t ignored, different;
} comparison;

static bool compare_number(void *context, int arg, int element, const number *n) {
    (void)element;
    comparison *k = context;
    const number *constant = &k->v->constants[k->position++];
    uint64_t bit = arg < 64 ? (uint64_t)1 << arg : 0;
    if (arg < 64 && !(k->ignored & bit) && !number_equal(constant, n)) k->different |= bit;
    return true;
}

uint64_t variant_difference(const variant *v, const call *c, uint64_t structural) {
    comparison k = {v, 0, structural | v->dynamic_args, 0};
    if (v->n_constants) call_visit_numbers(c, compare_number, &k);
    return k.different;
}

bool variant_matches(const variant *v, const call *c, uint64_t structural) {
    return variant_difference(v, c, structural) == 0;
}

static bool count_number(void *context, int arg, int element, const number *n) {
    (void)arg, (void)element, (void)n;
    ++*(int *)context;
    return true;
}

static bool keep_number(void *context, int arg, int element, const number *n) {
    variant *v = context;
    if (element == 0 && arg < 64) v->first_number[arg] = (int16_t)v->n_constants;
    v->constants[v->n_constants++] = *n;
    return true;
}

/* ---- results ---- */

static status *copy_results(entry *e, const call *c) {
    e->n_results = c->n_results;
    e->results = mem_alloc(sizeof(call_result) * (size_t)(c->n_results + 1));
    if (!e->results) return status_no_memory();
    for (int k = 0; k < c->n_results; k++) {
        e->results[k].kind = c->results[k].kind;
        if (c->results[k].kind == RESULT_NEW) geometry_copy(&e->results[k].geometry, &c->results[k].geometry);
    }
    return NULL;
}

static status *check_extent(const core_tensor *t) {
    int64_t bytes = (geometry_extent(&t->geometry)) * (int64_t)dtype_bytes(t->geometry.dtype);
    if (bytes <= t->storage->bytes) return NULL;
    return status_new(STATUS_RUNTIME, "a tensor needs a storage of %lld bytes, but its storage has %lld",
                      (long long)bytes, (long long)t->storage->bytes);
}

status *call_check_extents(const call *c) {
    for (int i = 0; i < c->n_args; i++) {
        if (c->args[i].tag == ARG_VALUE) STATUS_TRY(check_extent(c->args[i].u.tensor));
        if (c->args[i].tag != ARG_VALUES) continue;
        for (int j = 0; j < c->args[i].count; j++)
            if (c->args[i].u.list[j].tag == ARG_VALUE) STATUS_TRY(check_extent(c->args[i].u.list[j].u.tensor));
    }
    for (int k = 0; k < c->n_results; k++)
        if (c->results[k].kind == RESULT_WRITE) STATUS_TRY(check_extent(c->results[k].target));
    return NULL;
}

status *entry_plan(entry *e, call *c, const scan *s) {
    (void)s;
    e->op = c->op;
    e->options = c->options;
    if (!c->results_known) {
        if (!exec_host.infer) return status_new(STATUS_INTERNAL, "no one to infer results");
        STATUS_TRY(exec_host.infer(c));
    }
    STATUS_TRY(call_check_extents(c));
    STATUS_TRY(copy_results(e, c));
    e->way = c->op->row ? WAY_NATIVE : c->op->graph ? WAY_GRAPH : WAY_DECOMPOSED;
    if (e->way != WAY_DECOMPOSED) return NULL;
    if (!exec_host.decompose) return status_new(STATUS_NOT_IMPLEMENTED, "no lowering and no decomposition");
    COUNT(decomposed, 1);
    return exec_host.decompose(c, &e->sub);
}

/* ---- the graph of a call ---- */

typedef struct builder {
    entry *e;
    call *c;
    const scan *s;
    graph *g;
    bool *read, *kept; /* per storage: some operand reads it; some write leaves a part of it */
    bool *written;
    int32_t *base;      /* per storage: current base value, -1 none */
    int32_t *new_value; /* per result: its value, of RESULT_NEW */
    entry_input *inputs;
    entry_output *outputs;
    int n_inputs, n_outputs;
    int n_tensors; /* met so far, in the scan's order */
} builder;

bool storage_covered(const storage *st, const geometry *g) {
    int permutation[VIEW_MAX_RANK];
    return g->offset == 0 && geometry_count(g) * (int64_t)dtype_bytes(g->dtype) == st->bytes &&
           geometry_memory_order(g, permutation);
}

static void mark_read(builder *b, const argument *a) {
    if (a->tag == ARG_VALUE) b->read[scan_index(b->s, ((core_tensor *)a->u.tensor)->storage)] = true;
    if (a->tag == ARG_VALUES)
        for (int j = 0; j < a->count; j++) mark_read(b, &a->u.list[j]);
}

static status *add_inputs(builder *b) {
    const scan *s = b->s;
    for (int i = 0; i < b->c->n_args; i++) mark_read(b, &b->c->args[i]);
    for (int k = 0; k < b->c->n_results; k++) {
        const call_result *r = &b->c->results[k];
        if (r->kind == RESULT_WRITE && !storage_covered(r->target->storage, &r->target->geometry))
            b->kept[scan_index(s, r->target->storage)] = true;
    }
    b->inputs = mem_alloc(sizeof *b->inputs * (size_t)(s->n_storages + 1));
    if (!b->inputs) return status_no_memory();
    for (int i = 0; i < s->n_storages; i++) {
        b->base[i] = -1;
        if (!s->has_base[i] || !(b->read[i] || b->kept[i])) continue;
        b->base[i] = graph_input(b->g, s->types[i].dtype, s->types[i].rank, s->types[i].dims);
        b->inputs[b->n_inputs++] = (entry_input){i, -1};
    }
    return NULL;
}

static int32_t zeros(builder *b, dtype t, int rank, const int64_t *dims) {
    tensor_type type = {t, rank, dims};
    return graph_call(b->g, &row_zeros, 0, NULL, 1, &type);
}

/* Of the next tensor: its view starts at a run-time offset. */
static void give_offset(builder *b, int ordinal) {
    if (ordinal < 64 && (b->e->offset_mask >> ordinal & 1)) graph_set_offset(b->g, ordinal);
}

static int32_t read_tensor(builder *b, const core_tensor *t) {
    int ordinal = b->n_tensors++;
    int32_t base = b->base[scan_index(b->s, t->storage)];
    if (base < 0) return zeros(b, t->geometry.dtype, t->geometry.rank, t->geometry.sizes);
    int32_t value = graph_read(b->g, base, &t->geometry);
    give_offset(b, ordinal);
    return value;
}

/* The call's arguments with graph values in the place of tensors. */
static bool build_argument(builder *b, const argument *from, argument *to) {
    *to = *from;
    if (from->tag == ARG_VALUE) {
        to->u.value = read_tensor(b, from->u.tensor);
    } else if (from->tag == ARG_VALUES) {
        argument *list = ARENA_NEW(graph_arena(b->g), argument, from->count);
        if (!list) return false;
        for (int j = 0; j < from->count; j++)
            if (!build_argument(b, &from->u.list[j], &list[j])) return false;
        to->u.list = list;
    }
    return true;
}

static void flatten(const argument *a, int32_t *values, int *n) {
    if (a->tag == ARG_VALUE) values[(*n)++] = a->u.value;
    if (a->tag == ARG_VALUES)
        for (int j = 0; j < a->count; j++) flatten(&a->u.list[j], values, n);
}

static int flat_count(const argument *a) {
    if (a->tag == ARG_VALUE) return 1;
    int n = 0;
    if (a->tag == ARG_VALUES)
        for (int j = 0; j < a->count; j++) n += flat_count(&a->u.list[j]);
    return n;
}

static tensor_type result_type(const call_result *r) {
    const geometry *g = r->kind == RESULT_NEW ? &r->geometry : &r->target->geometry;
    if (r->kind == RESULT_UNWANTED) return (tensor_type){DTYPE_INVALID, 0, NULL};
    return (tensor_type){g->dtype, g->rank, g->sizes};
}

static status *check_sub_results(const builder *b, const graph *sub) {
    const call *c = b->c;
    if (graph_output_count(sub) != c->n_results)
        return status_new(STATUS_INTERNAL, "a decomposition gives %d results where %d are expected",
                          graph_output_count(sub), c->n_results);
    for (int k = 0; k < c->n_results; k++) {
        const call_result *r = &c->results[k];
        if (r->kind == RESULT_UNWANTED) continue;
        tensor_type got = graph_output_type(sub, k), want = result_type(r);
        bool same =
            got.dtype != DTYPE_INVALID && got.rank == want.rank && (r->kind == RESULT_WRITE || got.dtype == want.dtype);
        for (int i = 0; same && i < want.rank; i++) same = got.dims[i] == want.dims[i];
        if (!same)
            return status_new(STATUS_INTERNAL,
                              "result %d of the decomposition is %s of rank %d where the operator gives %s of rank %d",
                              k, dtype_torch_name(got.dtype), got.rank, dtype_torch_name(want.dtype), want.rank);
    }
    return NULL;
}

static status *build_call(builder *b, int32_t *first) {
    call *c = b->c;
    arena *mem = graph_arena(b->g);
    argument *args = ARENA_NEW(mem, argument, c->n_args);
    if (!args) return status_no_memory();
    int flat = 0;
    for (int i = 0; i < c->n_args; i++) {
        if (!build_argument(b, &c->args[i], &args[i])) return status_no_memory();
        flat += flat_count(&args[i]);
    }
    if (c->op->row) {
        tensor_type *types = ARENA_NEW(mem, tensor_type, c->n_results);
        if (!types) return status_no_memory();
        for (int k = 0; k < c->n_results; k++) types[k] = result_type(&c->results[k]);
        *first = graph_call(b->g, c->op->row, c->n_args, args, c->n_results, types);
        return NULL;
    }
    const graph *sub = c->op->graph ? c->op->graph : b->e->sub;
    STATUS_TRY(check_sub_results(b, sub));
    int32_t *values = ARENA_NEW(mem, int32_t, flat);
    if (!values) return status_no_memory();
    int n = 0;
    for (int i = 0; i < c->n_args; i++) flatten(&args[i], values, &n);
    *first = graph_call_graph(b->g, sub, n, values);
    return NULL;
}

/* A base of more dimensions than a storage keeps becomes flat. */
static int32_t limit_rank(builder *b, int32_t value) {
    tensor_type t = graph_value_type(b->g, value);
    if (t.rank <= STORAGE_MAX_RANK) return value;
    int64_t count = 1;
    for (int i = 0; i < t.rank; i++) count *= t.dims[i];
    geometry flat;
    geometry_contiguous(&flat, t.dtype, 1, &count);
    return graph_read(b->g, value, &flat);
}

static int32_t store_new(builder *b, const geometry *g, int32_t value) {
    bool plain = g->offset == 0 && !g->conj && !g->neg && geometry_is_contiguous(g);
    return limit_rank(b, plain ? value : graph_write_fresh(b->g, g, value));
}

static int32_t store_write(builder *b, const core_tensor *t, int ordinal, int32_t value) {
    const geometry *g = &t->geometry;
    int i = scan_index(b->s, t->storage);
    if (storage_covered(t->storage, g)) return limit_rank(b, graph_write_fresh(b->g, g, value));
    if (b->base[i] < 0) {
        int64_t count = t->storage->bytes / (int64_t)dtype_bytes(g->dtype);
        b->base[i] = zeros(b, g->dtype, 1, &count);
    }
    int32_t written = graph_write(b->g, b->base[i], g, value);
    give_offset(b, ordinal);
    return limit_rank(b, written);
}

static void build_results(builder *b, int32_t first) {
    for (int k = 0; k < b->c->n_results && first >= 0; k++) {
        const call_result *r = &b->c->results[k];
        int ordinal = r->kind == RESULT_WRITE ? b->n_tensors++ : 0;
        if (r->kind == RESULT_NEW) {
            b->new_value[k] = store_new(b, &r->geometry, first + k);
        } else if (r->kind == RESULT_WRITE && geometry_count(&r->target->geometry) > 0) {
            int i = scan_index(b->s, r->target->storage);
            b->base[i] = store_write(b, r->target, ordinal, first + k);
            b->written[i] = true;
        }
    }
}

static void add_output(builder *b, int result, int storage_index, int32_t value) {
    entry_output *o = &b->outputs[b->n_outputs++];
    tensor_type t = graph_value_type(b->g, value);
    o->result = result;
    o->storage = storage_index;
    base_type_init(&o->type, t.dtype, t.rank, t.dims);
    graph_output(b->g, value);
}

static status *add_outputs(builder *b) {
    b->outputs = mem_alloc(sizeof *b->outputs * (size_t)(b->c->n_results + b->s->n_storages + 1));
    if (!b->outputs) return status_no_memory();
    for (int k = 0; k < b->c->n_results; k++)
        if (b->c->results[k].kind == RESULT_NEW) add_output(b, k, -1, b->new_value[k]);
    for (int i = 0; i < b->s->n_storages; i++)
        if (b->written[i]) add_output(b, -1, i, b->base[i]);
    for (int i = 0; i < b->n_inputs; i++)
        for (int o = 0; o < b->n_outputs; o++) {
            const base_type *in = &b->s->types[b->inputs[i].storage];
            bool same = b->outputs[o].storage == b->inputs[i].storage && base_type_equal(in, &b->outputs[o].type);
            if (same && base_type_bytes(in) >= DONATION_BYTES) b->inputs[i].donate_to = o;
        }
    return NULL;
}

/* Every variant of an entry has the same inputs and outputs: the first one's stay, other threads may be reading them.
 */
static void keep_plan(entry *e, builder *b) {
    if (e->inputs) {
        mem_free(b->inputs);
        mem_free(b->outputs);
        return;
    }
    e->inputs = b->inputs;
    e->n_inputs = b->n_inputs;
    e->outputs = b->outputs;
    e->n_outputs = b->n_outputs;
}

static status *build_graph(entry *e, call *c, const scan *s, graph *g) {
    arena *mem = graph_arena(g);
    size_t n = (size_t)s->n_storages + 1;
    builder b = {.e = e, .c = c, .s = s, .g = g};
    b.read = ARENA_NEW(mem, bool, n);
    b.kept = ARENA_NEW(mem, bool, n);
    b.written = ARENA_NEW(mem, bool, n);
    b.base = ARENA_NEW(mem, int32_t, n);
    b.new_value = ARENA_NEW(mem, int32_t, c->n_results + 1);
    if (arena_failed(mem)) return status_no_memory();
    int32_t first = -1;
    status *result = add_inputs(&b);
    if (!result) result = build_call(&b, &first);
    if (!result) {
        build_results(&b, first);
        const status *bad = graph_status(g);
        result = bad ? status_new(status_get_code(bad), "%s", status_message(bad)) : add_outputs(&b);
    }
    if (result) {
        mem_free(b.inputs);
        mem_free(b.outputs);
        return result;
    }
    keep_plan(e, &b);
    return NULL;
}

/* ---- compiling ---- */

static status *lower_text(const entry *e, const graph *g, lower_request *request, strbuf *text) {
    int32_t *donate = mem_alloc(sizeof *donate * (size_t)(e->n_inputs + 1));
    if (!donate) return status_no_memory();
    for (int i = 0; i < e->n_inputs; i++) donate[i] = e->inputs[i].donate_to;
    request->check_indices = indices_are_checked();
    status *s = graph_lower(g, "program", request, donate, text);
    if (!s && strbuf_failed(text)) s = status_no_memory();
    mem_free(donate);
    return s;
}

status *variant_text(const entry *e, const variant *v, lower_request *request, strbuf *text) {
    return lower_text(e, v->graph, request, text);
}

static status *fill_variant(variant *v, const call *c, const entry *e, lower_request *request) {
    int n = 0;
    call_visit_numbers(c, count_number, &n);
    v->constants = mem_alloc(sizeof *v->constants * (size_t)(n + 1));
    if (!v->constants) return status_no_memory();
    call_visit_numbers(c, keep_number, v);
    v->dynamic_args = request->dynamic_args;
    v->slots = request->slots;
    v->n_slots = request->n_slots;
    request->slots = NULL;
    v->n_parameters = e->n_inputs;
    for (int k = 0; k < SLOT_CLASSES; k++) {
        v->class_parameter[k] = request->class_parameter[k];
        v->class_length[k] = request->class_length[k];
        v->n_parameters += request->class_parameter[k] >= 0;
    }
    v->has_code = request->has_code;
    v->random_parameter = request->random_parameter;
    v->random_count = graph_random_count(v->graph);
    v->n_parameters += request->random_parameter >= 0;
    return NULL;
}

static status *make_variant(variant *v, entry *e, call *c, const scan *s, lower_request *request, bool compile) {
    static _Atomic uint64_t next_serial = 1;
    v->serial = next_serial++;
    v->graph = graph_create();
    if (!v->graph) return status_no_memory();
    STATUS_TRY(build_graph(e, c, s, v->graph));
    strbuf text;
    strbuf_init(&text);
    status *result = e->n_outputs > 0 ? lower_text(e, v->graph, request, &text) : NULL;
    if (!result && e->n_outputs > 0 && compile)
        result = program_get(strbuf_text(&text), text.size, e->op->name, e->options, &v->executable);
    strbuf_free(&text);
    return result ? result : fill_variant(v, c, e, request);
}

status *entry_make_variant(entry *e, call *c, const scan *s, hlo_precision precision, uint64_t dynamic_args,
                           bool compile, variant **out, uint64_t *structural) {
    variant *v = mem_alloc(sizeof *v);
    if (!v) return status_no_memory();
    lower_request request;
    lower_request_init(&request, precision);
    request.dynamic_args = dynamic_args;
    status *result = make_variant(v, e, c, s, &request, compile);
    *structural = request.structural_args;
    s->numbers->fixed_args |= request.fixed_args;
    lower_request_free(&request);
    if (result)
        variant_destroy(v);
    else
        *out = v;
    return result;
}

status *variant_compile(const entry *e, variant *v, hlo_precision precision) {
    lower_request request;
    lower_request_init(&request, precision);
    request.dynamic_args = v->dynamic_args;
    strbuf text;
    strbuf_init(&text);
    pjrt_executable *made = NULL;
    status *result = lower_text(e, v->graph, &request, &text);
    if (!result) result = program_get(strbuf_text(&text), text.size, e->op->name, e->options, &made);
    strbuf_free(&text);
    lower_request_free(&request);
    if (!result) v->executable = made;
    return result;
}
