/* Fused eager mode: calls gather in a pending graph and run as one program.
 *
 * A node is an entry's variant: its graph, already built and checked when the call was first seen. Recording appends
 * the variant's serial number and the numbers of its operands, which together are the key of the program; so recording
 * costs little more than finding the entry, and a program is looked up, not rebuilt, when the same stream of calls
 * comes again.
 *
 * Which values are still wanted at a flush can differ each time round a loop (cyclic garbage lives a little longer, and
 * another thread may be about to drop its result), so what was once wanted stays wanted for that stream: the programs
 * of a stream grow to one that serves every round. They grow fast: the values that differ are nearly always among the
 * last, so the m-th program of a stream gives the last 2^m values too. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/environment.h"
#include "exec/internal.h"

typedef struct pending_value {
    storage *owner; /* NULL: nobody can see it any more */
    int32_t origin; /* external whose storage it overwrites, -1: none */
} pending_value;

typedef struct pending_node {
    entry *e;
    variant *v;
    int32_t first_operand, first_value, first_number;
    uint64_t seed, offset;
} pending_node;

typedef struct vector {
    void *data;
    size_t n, capacity;
} vector;

/* All of it under the lock; while `busy` only owners change. */
static struct pending_graph {
    vector nodes;     /* pending_node */
    vector operands;  /* int32_t: a value's number, or ~(an external's number) */
    vector values;    /* pending_value */
    vector numbers;   /* number: of nodes with run-time numbers */
    vector externals; /* pjrt_buffer * */
    vector types;     /* base_type of externals */
    vector key;       /* uint64_t */
    uint64_t serial;  /* names the graph in storages' external_serial */
    size_t random_count;
    int device, options;
    bool busy;
} pending = {.serial = 1};

static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static size_t node_limit; /* a flush is due at this many nodes; 0: not read from the environment yet */
static _Atomic bool held; /* a training step is one program, however many nodes it has */

#define AT(v, type, i) (((type *)(v).data)[i])

static void *append(vector *v, size_t size) {
    if (v->n == v->capacity) {
        size_t wanted = v->capacity ? 2 * v->capacity : 64;
        void *grown = mem_realloc(v->data, wanted * size);
        if (!grown) return NULL;
        v->data = grown;
        v->capacity = wanted;
    }
    return (char *)v->data + size * v->n++;
}

bool fused_pending(const storage *s) { return s->pending >= 0; }
void fused_hold(bool hold) { held = hold; }
bool fused_held(void) { return held; }
bool fused_is_busy(void) { return pending.busy; }
bool fused_empty(void) { return pending.nodes.n == 0; }
bool fused_full(void) { return node_limit && !held && pending.nodes.n >= node_limit; }
bool fused_other_options(int options) { return pending.nodes.n > 0 && pending.options != options; }

void fused_wait_idle(void) {
    while (pending.busy) pthread_cond_wait(&idle, &exec_lock);
}

void fused_forget(storage *s) {
    AT(pending.values, pending_value, s->pending).owner = NULL;
    s->pending = -1;
}

/* ---- recording ---- */

static bool put_key(uint64_t word) {
    uint64_t *w = append(&pending.key, sizeof *w);
    if (w) *w = word;
    return w != NULL;
}

/* The storage's value as an operand. */
static bool put_operand(storage *s) {
    int32_t operand = s->pending;
    if (operand < 0 && s->external_serial == pending.serial) operand = ~s->external;
    if (operand == -1 && s->pending < 0 && s->external_serial != pending.serial) {
        pjrt_buffer **b = append(&pending.externals, sizeof *b);
        base_type *t = append(&pending.types, sizeof *t);
        if (b) *b = NULL;
        if (!b || !t) return false;
        *b = pjrt_buffer_retain(s->base);
        *t = s->type;
        s->external = (int32_t)pending.externals.n - 1;
        s->external_serial = pending.serial;
        operand = ~s->external;
    }
    int32_t *o = append(&pending.operands, sizeof *o);
    if (o) *o = operand;
    return o && put_key((uint64_t)(uint32_t)operand);
}

static bool keep_number(void *context, int arg, int element, const number *n) {
    (void)context, (void)arg, (void)element;
    number *kept = append(&pending.numbers, sizeof *kept);
    if (kept) *kept = *n;
    return kept != NULL;
}

/* Where the call's tensors start, behind its numbers. */
static bool keep_offsets(const call *c) {
    const core_tensor *t;
    for (int i = 0; i < SCAN_TENSORS && (t = call_tensor(c, i)); i++) {
        number n = {.dtype = DTYPE_I64, .v.i = t->geometry.offset};
        if (!keep_number(NULL, 0, 0, &n)) return false;
    }
    return true;
}

/* A storage's coming value. */
static bool put_value(storage *s, const base_type *t) {
    int32_t origin = -1;
    if (s->pending >= 0)
        origin = AT(pending.values, pending_value, s->pending).origin;
    else if (s->base && s->external_serial == pending.serial)
        origin = s->external;
    pending_value *v = append(&pending.values, sizeof *v);
    if (!v) return false;
    v->owner = s;
    v->origin = origin;
    storage_set_base(s, NULL, NULL);
    s->external_serial = 0;
    s->pending = (int32_t)pending.values.n - 1;
    s->type = *t;
    return true;
}

static bool make_results(const entry *e, call *c) {
    entry_give_results(e, c);
    for (int k = 0; k < e->n_results; k++) {
        if (e->results[k].kind != RESULT_NEW) continue;
        const geometry *g = &e->results[k].geometry;
        c->results[k].storage = storage_create_locked(geometry_extent(g) * (int64_t)dtype_bytes(g->dtype), c->device);
        if (!c->results[k].storage) return false;
    }
    return true;
}

static void drop_results(call *c) {
    for (int k = 0; k < c->n_results; k++) {
        if (c->results[k].kind != RESULT_NEW || !c->results[k].storage) continue;
        storage_destroy_locked(c->results[k].storage);
        c->results[k].storage = NULL;
    }
}

static bool put_node(entry *e, variant *v, const scan *s, const call *c) {
    pending_node node = {.e = e, .v = v, .seed = c->seed, .offset = c->offset};
    node.first_operand = (int32_t)pending.operands.n;
    node.first_value = (int32_t)pending.values.n;
    node.first_number = (int32_t)pending.numbers.n;
    if (!put_key(v->serial)) return false;
    for (int i = 0; i < e->n_inputs; i++)
        if (!put_operand(s->storages[e->inputs[i].storage])) return false;
    if (v->n_slots && !call_visit_numbers(c, keep_number, NULL)) return false;
    if (e->offset_mask && !keep_offsets(c)) return false;
    pending_node *place = append(&pending.nodes, sizeof *place);
    if (place) *place = node;
    return place != NULL;
}

static size_t default_limit(void) { return (size_t)environment_count("TORCH_TPU_FUSED_NODES", 1024); }

/* Takes back what a call that could not be recorded has appended. */
typedef struct mark {
    size_t nodes, operands, values, numbers, key;
} mark;

static mark take_mark(void) {
    return (mark){pending.nodes.n, pending.operands.n, pending.values.n, pending.numbers.n, pending.key.n};
}

static void go_back(const mark *m) {
    pending.nodes.n = m->nodes;
    pending.operands.n = m->operands;
    pending.values.n = m->values;
    pending.numbers.n = m->numbers;
    pending.key.n = m->key;
}

/* Room for all values first, so that no failure leaves a storage half changed. */
static bool reserve_values(int n) {
    mark m = take_mark();
    for (int i = 0; i < n; i++)
        if (!append(&pending.values, sizeof(pending_value))) {
            pending.values.n = m.values;
            return false;
        }
    pending.values.n = m.values;
    return true;
}

status *fused_record(entry *e, variant *v, const scan *s, call *c) {
    if (!node_limit) node_limit = default_limit();
    mark m = take_mark();
    bool ok = make_results(e, c) && reserve_values(e->n_outputs) && (e->n_outputs == 0 || put_node(e, v, s, c));
    if (!ok) {
        go_back(&m);
        drop_results(c);
        return status_no_memory();
    }
    if (e->n_outputs == 0) return NULL;
    pending.device = c->device;
    pending.options = c->options;
    e->users++;
    pending.random_count += (size_t)(v->random_parameter >= 0 ? v->random_count : 0);
    for (int o = 0; o < e->n_outputs; o++) {
        const entry_output *out = &e->outputs[o];
        put_value(out->result >= 0 ? c->results[out->result].storage : s->storages[out->storage], &out->type);
    }
    return NULL;
}

/* ---- the cut of a stream that nothing else cuts ---- */

static bool has_period(size_t p) {
    size_t n = pending.nodes.n;
    for (size_t i = n - 2 * p; i + p < n; i++)
        if (AT(pending.nodes, pending_node, i).v != AT(pending.nodes, pending_node, i + p).v) return false;
    return true;
}

/* When the limit cuts a loop, the next cuts come a whole number of rounds later, so the same programs serve again. */
static void choose_limit(void) {
    size_t n = pending.nodes.n;
    if (n < node_limit || held) return;
    for (size_t p = 1; p <= n / 2; p++) {
        if (!has_period(p)) continue;
        node_limit = n / p * p;
        return;
    }
    node_limit = default_limit();
}

/* ---- programs of streams ---- */

typedef struct fused_program {
    size_t n_values, n_externals, n_outputs;
    size_t n_recent;       /* this many of the last values are wanted whoever owns them */
    bool *wanted;          /* per value */
    int32_t *outputs;      /* values, in order */
    int32_t *donate_to;    /* per external: output, or -1 */
    lower_request request; /* slots and parameters */
    size_t n_parameters;
    pjrt_executable *executable;
} fused_program;

static hashmap *streams; /* key of a stream -> fused_program; under the lock, changed only while busy */

static void program_destroy(fused_program *p) {
    if (!p) return;
    mem_free(p->wanted);
    mem_free(p->outputs);
    mem_free(p->donate_to);
    lower_request_free(&p->request);
    pjrt_executable_release(p->executable);
    mem_free(p);
}

static bool is_used(void *value, void *before) {
    fused_program *p = value;
    bool used = pjrt_executable_last_use(p->executable) >= *(const uint64_t *)before;
    if (!used) program_destroy(p);
    return used;
}

void fused_release_programs(uint64_t before) {
    if (streams && !pending.busy) hashmap_keep(streams, is_used, &before);
}

static bool serves(const fused_program *p) {
    for (size_t i = 0; i < pending.values.n; i++)
        if (AT(pending.values, pending_value, i).owner && !p->wanted[i]) return false;
    return true;
}

static fused_program *program_create(const fused_program *before) {
    fused_program *p = mem_alloc(sizeof *p);
    if (!p) return NULL;
    p->n_values = pending.values.n;
    p->n_externals = pending.externals.n;
    p->wanted = mem_alloc(p->n_values + 1);
    p->outputs = mem_alloc(sizeof(int32_t) * (p->n_values + 1));
    p->donate_to = mem_alloc(sizeof(int32_t) * (p->n_externals + 1));
    if (!p->wanted || !p->outputs || !p->donate_to) {
        program_destroy(p);
        return NULL;
    }
    p->n_recent = !before ? 0 : before->n_recent ? 2 * before->n_recent : 2;
    for (size_t i = 0; i < p->n_values; i++) {
        p->wanted[i] = AT(pending.values, pending_value, i).owner || (before && before->wanted[i]) ||
                       i + p->n_recent >= p->n_values;
        if (p->wanted[i]) p->outputs[p->n_outputs++] = (int32_t)i;
    }
    for (size_t j = 0; j < p->n_externals; j++) p->donate_to[j] = -1;
    return p;
}

static const entry_output *output_of(int32_t value) {
    /* The node that makes a value: the last one that starts at or before it. */
    size_t low = 0, high = pending.nodes.n;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (AT(pending.nodes, pending_node, middle).first_value <= value)
            low = middle;
        else
            high = middle;
    }
    const pending_node *n = &AT(pending.nodes, pending_node, low);
    return &n->e->outputs[value - n->first_value];
}

#define DONATION_BYTES 4096

/* An overwritten storage's old value makes room for the new one. */
static void choose_donations(fused_program *p) {
    for (size_t o = 0; o < p->n_outputs; o++) {
        int32_t origin = AT(pending.values, pending_value, p->outputs[o]).origin;
        if (origin < 0 || p->donate_to[origin] >= 0) continue;
        const base_type *t = &AT(pending.types, base_type, origin);
        if (pjrt_buffer_references(AT(pending.externals, pjrt_buffer *, origin)) != 1) continue;
        if (base_type_bytes(t) >= DONATION_BYTES && base_type_equal(t, &output_of(p->outputs[o])->type))
            p->donate_to[origin] = (int32_t)o;
    }
}

static status *build_program_graph(const fused_program *p, graph *g) {
    int32_t *values = mem_alloc(sizeof *values * (p->n_values + 1));
    int32_t *operands = mem_alloc(sizeof *operands * (pending.operands.n + 1));
    if (!values || !operands) {
        mem_free(values);
        mem_free(operands);
        return status_no_memory();
    }
    for (size_t j = 0; j < p->n_externals; j++) {
        const base_type *t = &AT(pending.types, base_type, j);
        graph_input(g, t->dtype, t->rank, t->dims);
    }
    for (size_t i = 0; i < pending.nodes.n; i++) {
        const pending_node *n = &AT(pending.nodes, pending_node, i);
        for (int k = 0; k < n->e->n_inputs; k++) {
            int32_t operand = AT(pending.operands, int32_t, n->first_operand + k);
            operands[k] = operand < 0 ? ~operand : values[operand];
        }
        int32_t first = graph_call_graph(g, n->v->graph, n->e->n_inputs, operands);
        for (int k = 0; k < n->e->n_outputs; k++) values[n->first_value + k] = first < 0 ? -1 : first + k;
        if (first >= 0) graph_set_dynamic(g, (int)i, n->v->dynamic_args);
    }
    for (size_t o = 0; o < p->n_outputs; o++) graph_output(g, values[p->outputs[o]]);
    mem_free(values);
    mem_free(operands);
    const status *bad = graph_status(g);
    return bad ? status_new(status_get_code(bad), "%s", status_message(bad)) : NULL;
}

static status *compile_program(fused_program *p, hlo_precision precision) {
    graph *g = graph_create();
    if (!g) return status_no_memory();
    strbuf text;
    strbuf_init(&text);
    lower_request_init(&p->request, precision);
    p->request.check_indices = indices_are_checked();
    status *s = build_program_graph(p, g);
    if (!s) s = graph_lower(g, "program", &p->request, p->donate_to, &text);
    if (!s && strbuf_failed(&text)) s = status_no_memory();
    if (!s) s = program_get(strbuf_text(&text), text.size, "fused", pending.options, &p->executable);
    strbuf_free(&text);
    graph_destroy(g);
    p->n_parameters = p->n_externals + (p->request.random_parameter >= 0);
    for (int k = 0; k < SLOT_CLASSES; k++) p->n_parameters += p->request.class_parameter[k] >= 0;
    return s;
}

static size_t key_size(void) { return pending.key.n * sizeof(uint64_t); }

static status *find_program(fused_program **out) {
    uint64_t hash = hash_bytes(pending.key.data, key_size());
    fused_program *known = streams ? hashmap_find(streams, pending.key.data, key_size(), hash) : NULL;
    exec_acquire();
    bool good = known && serves(known);
    fused_program *made = good ? NULL : program_create(known);
    if (made) choose_donations(made);
    exec_release();
    if (good) {
        COUNT(cache_hits, 1);
        *out = known;
        return NULL;
    }
    if (!made) return status_no_memory();
    status *s = compile_program(made, exec_get_precision());
    exec_acquire();
    if (!s && !streams && !(streams = hashmap_create())) s = status_no_memory();
    if (!s && !hashmap_insert(streams, pending.key.data, key_size(), hash, made)) s = status_no_memory();
    exec_release();
    if (s) {
        program_destroy(made);
        return s;
    }
    program_destroy(known);
    *out = made;
    return NULL;
}

/* ---- launching ---- */

static const number *node_number(const pending_node *n, const number_slot *slot) {
    int first = slot->arg == OFFSET_SLOT ? n->v->n_constants : n->v->first_number[slot->arg];
    return &AT(pending.numbers, number, n->first_number + first + slot->element);
}

static const number *pending_number(void *context, const number_slot *slot) {
    (void)context;
    return node_number(&AT(pending.nodes, pending_node, slot->node), slot);
}

static status *make_words(pjrt_buffer **out) {
    int64_t n = 0, total = 0;
    for (size_t i = 0; i < pending.nodes.n; i++) total += AT(pending.nodes, pending_node, i).v->random_count;
    uint64_t *words = mem_alloc(sizeof *words * (size_t)(total + 1));
    if (!words) return status_no_memory();
    for (size_t i = 0; i < pending.nodes.n; i++) {
        const pending_node *node = &AT(pending.nodes, pending_node, i);
        for (int j = 0; j < node->v->random_count; j++)
            words[n++] = random_word(node->seed, node->offset + 4 * (uint64_t)j);
    }
    pjrt_client *client;
    status *s = runtime_client(&client);
    if (!s) s = pjrt_buffer_from_host(client, pending.device, words, DTYPE_U64, 1, &n, out);
    mem_free(words);
    return s;
}

static status *make_inputs(const fused_program *p, pjrt_buffer **inputs, bool *donate) {
    for (size_t j = 0; j < p->n_externals; j++) {
        inputs[j] = AT(pending.externals, pjrt_buffer *, j);
        donate[j] = p->donate_to[j] >= 0 && pjrt_buffer_references(inputs[j]) == 1;
    }
    for (int k = 0; k < SLOT_CLASSES; k++) {
        if (p->request.class_parameter[k] < 0) continue;
        STATUS_TRY(make_number_vector(p->request.n_slots, p->request.slots, (slot_class)k, p->request.class_length[k],
                                      pending.device, pending_number, NULL, &inputs[p->request.class_parameter[k]]));
    }
    return p->request.random_parameter >= 0 ? make_words(&inputs[p->request.random_parameter]) : NULL;
}

static void store_value(int32_t value, pjrt_buffer *b, const base_type *t) {
    storage *owner = AT(pending.values, pending_value, value).owner;
    if (!owner) {
        pjrt_buffer_release(b);
        return;
    }
    AT(pending.values, pending_value, value).owner = NULL;
    owner->pending = -1;
    storage_set_base(owner, b, t);
}

static status *launch_program(const fused_program *p) {
    pjrt_buffer **inputs = mem_alloc(sizeof *inputs * (p->n_parameters + 1));
    pjrt_buffer **outputs = mem_alloc(sizeof *outputs * (p->n_outputs + 2));
    bool *donate = mem_alloc(p->n_parameters + 1);
    status *s = inputs && outputs && donate ? make_inputs(p, inputs, donate) : status_no_memory();
    if (!s && p->n_outputs > 0) {
        s = storage_name_holders(
            pjrt_execute(p->executable, pending.device, (int)p->n_parameters, inputs, donate, outputs));
        COUNT(launches, 1);
    }
    if (!s) {
        if (p->n_outputs > 0 && p->request.has_code) indices_add(pending.device, outputs[p->n_outputs]);
        exec_acquire();
        for (size_t o = 0; o < p->n_outputs; o++)
            store_value(p->outputs[o], outputs[o], &output_of(p->outputs[o])->type);
        exec_release();
    }
    for (size_t j = p->n_externals; inputs && j < p->n_parameters; j++) pjrt_buffer_release(inputs[j]);
    mem_free(inputs);
    mem_free(outputs);
    mem_free(donate);
    return s;
}

/* ---- when the program as a whole fails: every call by itself, so that only what depends on the fault is lost ---- */

typedef struct alone {
    const pending_node *node;
    pjrt_buffer **values;
} alone;

static const number *alone_number(void *context, const number_slot *slot) { return node_number(context, slot); }

static status *run_alone(const pending_node *n, pjrt_buffer **values) {
    variant *v = n->v;
    if (!v->executable) STATUS_TRY(variant_compile(n->e, v, exec_get_precision()));
    size_t n_outputs = (size_t)n->e->n_outputs;
    pjrt_buffer **inputs = mem_alloc(sizeof *inputs * ((size_t)v->n_parameters + n_outputs + 1));
    if (!inputs) return status_no_memory();
    pjrt_buffer **outputs = inputs + v->n_parameters;
    status *s = NULL;
    for (int i = 0; i < n->e->n_inputs && !s; i++) {
        int32_t operand = AT(pending.operands, int32_t, n->first_operand + i);
        inputs[i] = operand < 0 ? AT(pending.externals, pjrt_buffer *, ~operand) : values[operand];
        if (!inputs[i])
            s = status_new(STATUS_RUNTIME, "an operand of %s could not be computed", operator_name(n->e->op));
    }
    for (int k = 0; k < SLOT_CLASSES && !s; k++)
        if (v->class_parameter[k] >= 0)
            s = make_number_vector(v->n_slots, v->slots, (slot_class)k, v->class_length[k], pending.device,
                                   alone_number, (void *)n, &inputs[v->class_parameter[k]]);
    if (!s && v->random_parameter >= 0) {
        uint64_t words[64];
        int64_t count = v->random_count <= 64 ? v->random_count : 64;
        for (int64_t j = 0; j < count; j++) words[j] = random_word(n->seed, n->offset + 4 * (uint64_t)j);
        pjrt_client *client;
        s = runtime_client(&client);
        if (!s)
            s = pjrt_buffer_from_host(client, pending.device, words, DTYPE_U64, 1, &count,
                                      &inputs[v->random_parameter]);
    }
    if (!s)
        s = storage_name_holders(pjrt_execute(v->executable, pending.device, v->n_parameters, inputs, NULL, outputs));
    for (size_t k = 0; k < n_outputs && !s; k++) values[(size_t)n->first_value + k] = outputs[k];
    if (!s && v->has_code) indices_add(pending.device, outputs[n_outputs]);
    for (int i = n->e->n_inputs; i < v->n_parameters; i++) pjrt_buffer_release(inputs[i]);
    mem_free(inputs);
    return s;
}

/* What was written in place keeps the value it had before the program; what is new has none. */
static void lose_values(const pending_node *n, const char *why) {
    exec_acquire();
    for (int k = 0; k < n->e->n_outputs; k++) {
        const pending_value *v = &AT(pending.values, pending_value, n->first_value + k);
        storage *owner = v->owner;
        int32_t origin = v->origin;
        if (!owner) continue;
        fused_forget(owner);
        if (origin >= 0)
            storage_set_base(owner, pjrt_buffer_retain(AT(pending.externals, pjrt_buffer *, origin)),
                             &AT(pending.types, base_type, origin));
        else
            owner->lost = mem_strdup(why);
    }
    exec_release();
}

static status *run_each_alone(void) {
    pjrt_buffer **values = mem_alloc(sizeof *values * (pending.values.n + 1));
    if (!values) return status_no_memory();
    status *first = NULL;
    for (size_t i = 0; i < pending.nodes.n; i++) {
        const pending_node *n = &AT(pending.nodes, pending_node, i);
        status *s = run_alone(n, values);
        if (!s) continue;
        lose_values(n, status_message(s));
        if (first)
            status_free(s);
        else
            first = s;
    }
    exec_acquire();
    for (size_t i = 0; i < pending.values.n; i++)
        if (values[i]) store_value((int32_t)i, values[i], &output_of((int32_t)i)->type);
    exec_release();
    mem_free(values);
    return first;
}

/* ---- flush ---- */

/* Under the lock. */
static void reset(void) {
    for (size_t i = 0; i < pending.values.n; i++) {
        storage *owner = AT(pending.values, pending_value, i).owner;
        if (owner) owner->pending = -1;
    }
    for (size_t i = 0; i < pending.nodes.n; i++) entry_leave(AT(pending.nodes, pending_node, i).e);
    for (size_t j = 0; j < pending.externals.n; j++) pjrt_buffer_release(AT(pending.externals, pjrt_buffer *, j));
    pending.nodes.n = pending.operands.n = pending.values.n = pending.numbers.n = pending.externals.n =
        pending.types.n = pending.key.n = 0;
    pending.random_count = 0;
    pending.serial++;
    pending.busy = false;
    pthread_cond_broadcast(&idle);
}

static status *flush_now(void) {
    fused_program *p = NULL;
    status *s = find_program(&p);
    if (!s) s = launch_program(p);
    if (!s) return NULL;
    if (status_get_code(s) == STATUS_OUT_OF_MEMORY && !pending.nodes.n) return s;
    status *alone = run_each_alone();
    status_free(s);
    return alone;
}

static status *flush_if(bool (*due)(void)) {
    exec_acquire();
    fused_wait_idle();
    if (!due()) {
        exec_release();
        return NULL;
    }
    pending.busy = true;
    choose_limit();
    exec_release();
    status *s = flush_now();
    exec_acquire();
    reset();
    exec_release();
    return s;
}

static bool any_node(void) { return !fused_empty(); }

status *fused_flush(void) { return flush_if(any_node); }

/* Of all threads that see a full graph one flushes it; the others must not cut the next one short. */
status *fused_flush_full(void) { return flush_if(fused_full); }
