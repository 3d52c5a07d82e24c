/* exec_call: key -> entry -> variant -> launch. */
#include <string.h>

#include "base/alloc.h"
#include "exec/internal.h"

static hashmap *entries; /* under the lock */
static pthread_cond_t built = PTHREAD_COND_INITIALIZER;

/* ---- programs by text ---- */

static pthread_mutex_t program_lock = PTHREAD_MUTEX_INITIALIZER;
static hashmap *programs;

status *program_get(const char *mlir, size_t size, const char *name, pjrt_executable **out) {
    uint64_t hash = hash_bytes(mlir, size);
    pthread_mutex_lock(&program_lock);
    if (!programs) programs = hashmap_create();
    pjrt_executable *known = programs ? hashmap_find(programs, mlir, size, hash) : NULL;
    if (known) pjrt_executable_retain(known);
    pthread_mutex_unlock(&program_lock);
    if (known) {
        *out = known;
        return NULL;
    }
    STATUS_TRY(runtime_compile(mlir, size, name, out));
    pthread_mutex_lock(&program_lock);
    if (programs && !hashmap_find(programs, mlir, size, hash) && hashmap_insert(programs, mlir, size, hash, *out))
        pjrt_executable_retain(*out);
    pthread_mutex_unlock(&program_lock);
    return NULL;
}

static bool release_program(const void *key, size_t size, void *value, void *context) {
    (void)key, (void)size, (void)context;
    pjrt_executable_release(value);
    return true;
}

void program_cache_clear(void) {
    pthread_mutex_lock(&program_lock);
    if (programs) {
        hashmap_visit(programs, release_program, NULL);
        hashmap_destroy(programs);
        programs = NULL;
    }
    pthread_mutex_unlock(&program_lock);
}

/* ---- entries; all of it under the lock ---- */

static size_t key_bytes(const scan *s) { return s->words * sizeof *s->key; }

static entry *find_entry(const scan *s) {
    if (!entries) return NULL;
    return hashmap_find(entries, s->key, key_bytes(s), hash_bytes(s->key, key_bytes(s)));
}

static bool insert_entry(const scan *s, entry *e) {
    if (!entries && !(entries = hashmap_create())) return false;
    if (!hashmap_insert(entries, s->key, key_bytes(s), hash_bytes(s->key, key_bytes(s)), e)) return false;
    COUNT(entries, 1);
    return true;
}

static void take_out_entry(const scan *s, entry *e) {
    uint64_t hash = hash_bytes(s->key, key_bytes(s));
    if (entries && hashmap_find(entries, s->key, key_bytes(s), hash) == e) {
        hashmap_remove(entries, s->key, key_bytes(s), hash);
        COUNT(entries, -1);
    }
}

static void leave_entry(entry *e) {
    e->users--;
    if (e->removed && e->users == 0) entry_destroy(e);
}

typedef struct sweep { entry **list; size_t n; operator_info *op; } sweep;

static bool collect(const void *key, size_t size, void *value, void *context) {
    (void)key, (void)size;
    sweep *w = context;
    entry *e = value;
    if (!w->op || e->op == w->op) {
        if (w->list) w->list[w->n] = e;
        w->n++;
    }
    return true;
}

static void remove_all(void) {
    sweep w = {NULL, 0, NULL};
    hashmap_visit(entries, collect, &w);
    w.list = mem_alloc(sizeof *w.list * (w.n + 1));
    if (!w.list) return;
    w.n = 0;
    hashmap_visit(entries, collect, &w);
    hashmap_destroy(entries);
    entries = NULL;
    for (size_t i = 0; i < w.n; i++) {
        w.list[i]->removed = true;
        if (w.list[i]->users == 0) entry_destroy(w.list[i]);
    }
    COUNT(entries, -(int64_t)w.n);
    mem_free(w.list);
}

void exec_cache_clear(void) {
    exec_acquire();
    if (entries) remove_all();
    exec_release();
    program_cache_clear();
}

void operator_destroy_graph(operator_info *op) {
    if (!op || op->interned) return;
    /* Entries are found by the operator's address, which may be given again: all of them go. */
    exec_acquire();
    if (entries) remove_all();
    exec_release();
    graph_destroy(op->graph);
    mem_free((char *)op->name);
    mem_free(op);
}

/* ---- building ---- */

static status *rename_error(status *s, const call *c) {
    const char *name = c->op->name;
    if (!s || strncmp(status_message(s), name, strlen(name)) == 0) return s;
    status_code code = status_get_code(s);
    /* PyTorch's own messages (from its meta kernels) stand as they are; ours name the operator. */
    return code == STATUS_INTERNAL || code == STATUS_OUT_OF_MEMORY ? status_prefix(s, "%s", name) : s;
}

/* The result of a build joins the cache under the key as it is now: the build may have taught which numbers are structural. */
static status *finish_entry(entry *e, scan *s, call *c, hlo_precision precision, uint64_t structural) {
    take_out_entry(s, e);
    c->op->structural_args |= structural;
    scan_call(s, c, precision);
    e->building = false;
    if (s->failed) return status_no_memory();
    entry *other = find_entry(s);
    if (other) e->removed = true; /* another thread was faster, or this one's key already had an owner */
    else if (!insert_entry(s, e)) return status_no_memory();
    return NULL;
}

static status *build_entry(scan *s, call *c, hlo_precision precision, bool *again) {
    entry *e = mem_alloc(sizeof *e);
    if (!e || !scan_snapshot(s)) {
        mem_free(e);
        return status_no_memory();
    }
    e->building = true;
    e->builder = pthread_self();
    e->op = c->op;
    e->users = 1;
    if (!insert_entry(s, e)) {
        entry_destroy(e);
        return status_no_memory();
    }
    uint64_t dynamic = c->op->promoted_args & ~c->op->structural_args;
    exec_release();
    variant *v = NULL;
    uint64_t structural = 0;
    status *result = entry_plan(e, c, s);
    if (!result) result = entry_compile(e, c, s, precision, dynamic, &v, &structural);
    if (!result && (structural & dynamic)) {
        /* A number that decides structure cannot be a run-time input: once more, as a constant. */
        variant_destroy(v);
        v = NULL;
        result = entry_compile(e, c, s, precision, dynamic & ~structural, &v, &structural);
    }
    exec_acquire();
    e->variants = v;
    if (!result) result = finish_entry(e, s, c, precision, structural);
    else take_out_entry(s, e);
    e->building = false;
    if (result) e->removed = true;
    leave_entry(e);
    pthread_cond_broadcast(&built);
    *again = true;
    return rename_error(result, c);
}

/* Another value of some number: from now on that number is a run-time input. */
static status *build_variant(entry *e, scan *s, call *c, hlo_precision precision) {
    uint64_t structural = c->op->structural_args, dynamic = e->variants->dynamic_args;
    uint64_t different = variant_difference(e->variants, c, structural);
    dynamic |= different;
    c->op->promoted_args |= different;
    COUNT(promotions, 1);
    if (!scan_snapshot(s)) return status_no_memory();
    e->building = true;
    e->builder = pthread_self();
    e->users++;
    exec_release();
    variant *v = NULL;
    uint64_t learned = 0;
    status *result = entry_compile(e, c, s, precision, dynamic & ~structural, &v, &learned);
    exec_acquire();
    c->op->structural_args |= learned;
    if (v) {
        v->next = e->variants;
        e->variants = v;
    }
    e->building = false;
    leave_entry(e);
    pthread_cond_broadcast(&built);
    return rename_error(result, c);
}

/* ---- launching ---- */

typedef struct launch {
    entry *e;
    variant *v;
    pjrt_buffer **inputs, **outputs;
    bool *donate;
    storage **fresh; /* per result: storage of RESULT_NEW */
    storage **targets; /* per output: storage it is written to */
    int n_made; /* inputs that are ours beyond the storages': vectors of numbers */
} launch;

typedef struct gather { const variant *v; slot_class cls; double *f64; float *f32; int64_t *i64; } gather;

static const number *number_at(const call *c, int arg, int element) {
    const argument *a = &c->args[arg];
    return a->tag == ARG_NUMBERS ? &a->u.numbers[element] : &a->u.number;
}

static void put_slot(const call *c, const number_slot *slot, void *data, int position) {
    const number *n = number_at(c, slot->arg, slot->element);
    bool floating = dtype_is_float(n->dtype) || dtype_is_complex(n->dtype);
    double value = floating ? n->v.f[slot->imaginary ? 1 : 0] : 0;
    switch (slot->cls) {
    case SLOT_F32: ((float *)data)[position] = floating ? (float)value : (float)n->v.i; break;
    case SLOT_F64: ((double *)data)[position] = floating ? value : (double)n->v.i; break;
    default: ((int64_t *)data)[position] = floating ? (int64_t)value : n->v.i; break;
    }
}

static status *make_vector(const call *c, const variant *v, slot_class cls, pjrt_buffer **out) {
    static const dtype types[SLOT_CLASSES] = {DTYPE_F32, DTYPE_F64, DTYPE_I64};
    int64_t length = v->class_length[cls];
    char small[512], *data = small;
    size_t size = (size_t)length * dtype_bytes(types[cls]);
    if (size > sizeof small && !(data = mem_alloc(size))) return status_no_memory();
    memset(data, 0, size);
    int position = 0;
    for (int i = 0; i < v->n_slots; i++)
        if (v->slots[i].cls == cls) put_slot(c, &v->slots[i], data, position++);
    pjrt_client *client;
    status *s = runtime_client(&client);
    if (!s) s = pjrt_buffer_from_host(client, c->device, data, types[cls], 1, &length, out);
    if (data != small) mem_free(data);
    return s;
}

static status *make_words(call *c, const variant *v, const entry *e, pjrt_buffer **out) {
    if (e->way != WAY_NATIVE) {
        if (!exec_host.random) return status_new(STATUS_INTERNAL, "random bits asked for, and no generator");
        STATUS_TRY(exec_host.random(c, v->random_count));
    }
    int64_t n = v->random_count;
    uint64_t small[32], *words = small;
    if (n > 32 && !(words = mem_alloc(sizeof *words * (size_t)n))) return status_no_memory();
    for (int64_t j = 0; j < n; j++) words[j] = random_word(c->seed, c->offset + 4 * (uint64_t)j);
    pjrt_client *client;
    status *s = runtime_client(&client);
    if (!s) s = pjrt_buffer_from_host(client, c->device, words, DTYPE_U64, 1, &n, out);
    if (words != small) mem_free(words);
    return s;
}

static status *make_extra_inputs(launch *l, call *c) {
    variant *v = l->v;
    for (int cls = 0; cls < SLOT_CLASSES; cls++)
        if (v->class_parameter[cls] >= 0) STATUS_TRY(make_vector(c, v, (slot_class)cls, &l->inputs[v->class_parameter[cls]]));
    if (v->random_parameter >= 0) STATUS_TRY(make_words(c, v, l->e, &l->inputs[v->random_parameter]));
    return NULL;
}

/* Under the lock: what the launch needs of the storages. */
static void collect_inputs(launch *l, const scan *s) {
    entry *e = l->e;
    for (int i = 0; i < e->n_inputs; i++) {
        storage *st = s->storages[e->inputs[i].storage];
        l->inputs[i] = pjrt_buffer_retain(st->base);
        /* Two references: the storage's and the one just taken. */
        l->donate[i] = e->inputs[i].donate_to >= 0 && pjrt_buffer_references(st->base) == 2;
    }
    for (int o = 0; o < e->n_outputs; o++)
        l->targets[o] = e->outputs[o].storage >= 0 ? s->storages[e->outputs[o].storage] : NULL;
}

static void give_results(const entry *e, call *c) {
    c->n_results = e->n_results;
    for (int k = 0; k < e->n_results; k++) {
        c->results[k].kind = e->results[k].kind;
        c->results[k].storage = NULL;
        if (e->results[k].kind == RESULT_NEW && !c->results_known) geometry_copy(&c->results[k].geometry, &e->results[k].geometry);
    }
}

static status *make_storages(const entry *e, call *c) {
    for (int k = 0; k < e->n_results; k++) {
        if (e->results[k].kind != RESULT_NEW) continue;
        const geometry *g = &e->results[k].geometry;
        c->results[k].storage = storage_create(geometry_extent(g) * (int64_t)dtype_bytes(g->dtype), c->device);
        if (!c->results[k].storage) return status_no_memory();
    }
    return NULL;
}

static void drop_storages(call *c) {
    for (int k = 0; k < c->n_results; k++) {
        if (c->results[k].kind != RESULT_NEW) continue;
        storage_destroy(c->results[k].storage);
        c->results[k].storage = NULL;
    }
}

static void store_outputs(launch *l, call *c) {
    exec_acquire();
    for (int o = 0; o < l->e->n_outputs; o++) {
        const entry_output *out = &l->e->outputs[o];
        storage *st = out->result >= 0 ? c->results[out->result].storage : l->targets[o];
        storage_set_base(st, l->outputs[o], &out->type);
    }
    exec_release();
}

static status *wait_for_results(const launch *l, const call *c) {
    for (int o = 0; o < l->e->n_outputs; o++) {
        const entry_output *out = &l->e->outputs[o];
        storage *st = out->result >= 0 ? c->results[out->result].storage : l->targets[o];
        STATUS_TRY(status_prefix(storage_wait(st), "%s", c->op->name));
    }
    return NULL;
}

static status *run(launch *l, call *c) {
    STATUS_TRY(make_storages(l->e, c));
    if (l->e->n_outputs == 0) return NULL;
    STATUS_TRY(make_extra_inputs(l, c));
    STATUS_TRY(pjrt_execute(l->v->executable, c->device, l->v->n_parameters, l->inputs, l->donate, l->outputs));
    COUNT(launches, 1);
    store_outputs(l, c);
    return exec_mode_now == MODE_DEBUG ? wait_for_results(l, c) : NULL;
}

/* Room for a launch: on the stack for usual calls. */
#define SMALL_LAUNCH 48

static status *launch_variant(entry *e, variant *v, const scan *s, call *c) {
    struct { pjrt_buffer *inputs[SMALL_LAUNCH], *outputs[SMALL_LAUNCH]; storage *targets[SMALL_LAUNCH]; bool donate[SMALL_LAUNCH]; } small;
    launch l = {.e = e, .v = v, .inputs = small.inputs, .outputs = small.outputs, .targets = small.targets, .donate = small.donate};
    void *heap = NULL;
    if (v->n_parameters > SMALL_LAUNCH || e->n_outputs > SMALL_LAUNCH) {
        size_t n = (size_t)(v->n_parameters > e->n_outputs ? v->n_parameters : e->n_outputs);
        heap = mem_alloc(n * (3 * sizeof(void *) + sizeof(bool)));
        if (!heap) {
            leave_entry(e);
            exec_release();
            return status_no_memory();
        }
        l.inputs = heap;
        l.outputs = l.inputs + n;
        l.targets = (storage **)(l.outputs + n);
        l.donate = (bool *)(l.targets + n);
    }
    for (int i = e->n_inputs; i < v->n_parameters; i++) {
        l.inputs[i] = NULL;
        l.donate[i] = false;
    }
    collect_inputs(&l, s);
    exec_release();
    give_results(e, c);
    status *result = run(&l, c);
    if (result) drop_storages(c);
    for (int i = 0; i < v->n_parameters; i++) pjrt_buffer_release(l.inputs[i]);
    mem_free(heap);
    exec_acquire();
    leave_entry(e);
    exec_release();
    return rename_error(result, c);
}

static void count_way(const entry *e) { atomic_fetch_add_explicit(&e->op->calls[e->way], 1, memory_order_relaxed); }

/* One round: the lock is held at the start and not at the end. *again: the cache has changed, look once more. */
static status *round_of_call(scan *s, call *c, hlo_precision precision, bool *again, bool *built_now) {
    *again = false;
    scan_call(s, c, precision);
    if (s->failed) {
        exec_release();
        return status_no_memory();
    }
    if (s->retype_storage) {
        exec_release();
        *again = true;
        return storage_retype(s->retype_storage, s->retype_dtype);
    }
    entry *e = find_entry(s);
    status *result = NULL;
    if (!e) {
        *built_now = true;
        result = build_entry(s, c, precision, again);
        exec_release();
        return result;
    }
    variant *v = e->variants;
    while (v && !variant_matches(v, c, c->op->structural_args)) v = v->next;
    if (v) {
        e->users++;
        count_way(e);
        if (!*built_now) COUNT(cache_hits, 1);
        return launch_variant(e, v, s, c);
    }
    *again = true;
    if (e->building && pthread_equal(e->builder, pthread_self())) {
        result = status_new(STATUS_INTERNAL, "%s: building it calls itself", c->op->name);
    } else if (e->building) {
        pthread_cond_wait(&built, &exec_lock);
    } else {
        give_results(e, c);
        *built_now = true;
        result = build_variant(e, s, c, precision);
    }
    exec_release();
    return result;
}

status *exec_call(call *c) {
    scan s;
    scan_init(&s);
    hlo_precision precision = exec_get_precision();
    COUNT(calls, 1);
    COUNT(cache_requests, 1);
    s.declared_results = c->n_results;
    bool again = true, built_now = false;
    status *result = NULL;
    while (again && !result) {
        c->n_results = s.declared_results;
        exec_acquire();
        result = round_of_call(&s, c, precision, &again, &built_now);
    }
    scan_free(&s);
    return result;
}
