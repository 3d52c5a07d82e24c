/* exec_call: key -> entry -> variant -> launch. */
#include <string.h>

#include "base/alloc.h"
#include "exec/internal.h"

static hashmap *entries; /* under the lock */
static uint64_t removed; /* under the lock */
static pthread_cond_t built = PTHREAD_COND_INITIALIZER;

/* ---- entries; all of it under the lock ---- */

static size_t key_bytes(const scan *s) { return s->words * sizeof *s->key; }

static entry *find_entry(const scan *s) {
    if (!entries) return NULL;
    return hashmap_find(entries, s->key, key_bytes(s), hash_bytes(s->key, key_bytes(s)));
}

static bool insert_entry(const scan *s, entry *e) {
    if (!entries && !(entries = hashmap_create())) return false;
    if (!hashmap_insert(entries, s->key, key_bytes(s), hash_bytes(s->key, key_bytes(s)), e)) return false;
    e->keys++;
    COUNT(entries, 1);
    return true;
}

static void take_out_entry(const scan *s, entry *e) {
    uint64_t hash = hash_bytes(s->key, key_bytes(s));
    if (entries && hashmap_find(entries, s->key, key_bytes(s), hash) == e) {
        hashmap_remove(entries, s->key, key_bytes(s), hash);
        e->keys--;
        COUNT(entries, -1);
    }
}

static void mark_removed(entry *e) {
    e->removed = true;
    removed++;
}

uint64_t entries_removed(void) { return removed; }

void entry_leave(entry *e) {
    e->users--;
    if (e->removed && e->users == 0 && e->keys == 0) entry_destroy(e);
}

/* ---- families: keys that differ in nothing but where views start ----
 *
 * x[t] in a loop, a cache that is written at t, the pieces of a split: the first start of a family is a constant of its
 * program, which the compiler likes best. A program with the start as a run-time number serves all others; their keys
 * lead to the same entry. In fused mode a start is a part of a larger program, where a constant is worth more. */

#define STATIC_STARTS 1
#define STATIC_STARTS_FUSED 8
#define MOST_ALIASES 65536

typedef struct family {
    entry *e; /* with run-time offsets; NULL: none yet */
    int starts;
    bool impossible;
} family;

static hashmap *families; /* under the lock */
static int aliases;

/* The key with the offsets of views left out that have a program with a run-time offset, and what those programs depend
 * on put in. *mask: those tensors; none: no family. */
static status *family_key(const scan *s, strbuf *key, uint64_t *mask) {
    *mask = 0;
    strbuf_append(key, s->key, s->words * sizeof *s->key);
    for (int i = 0; i < s->n_tensors && i < SCAN_TENSORS; i++) {
        const core_tensor *t = s->tensors[i].tensor;
        const storage *st = t->storage;
        if (!storage_has_value(st) || storage_covered(st, &t->geometry)) continue;
        size_t before = key->size;
        if (!view_offset_structure(st->type.dtype, st->type.rank, st->type.dims, &t->geometry, key)) {
            if (!strbuf_failed(key)) key->size = before;
            continue;
        }
        *mask |= (uint64_t)1 << i;
    }
    if (strbuf_failed(key)) return status_no_memory();
    for (int i = 0; i < s->n_tensors && i < SCAN_TENSORS; i++)
        if (*mask >> i & 1) memset(key->data + s->tensors[i].word * sizeof *s->key, 0xff, sizeof *s->key);
    return NULL;
}

static family *find_family(const scan *s, uint64_t *mask) {
    *mask = 0;
    if (s->n_tensors == 0) return NULL;
    strbuf key;
    strbuf_init(&key);
    family *f = NULL;
    status *bad = family_key(s, &key, mask);
    status_free(bad);
    if (!bad && *mask && (families || (families = hashmap_create()))) {
        uint64_t hash = hash_bytes(key.data, key.size);
        f = hashmap_find(families, key.data, key.size, hash);
        if (!f && (f = mem_alloc(sizeof *f)) && !hashmap_insert(families, key.data, key.size, hash, f)) {
            mem_free(f);
            f = NULL;
        }
    }
    strbuf_free(&key);
    return f;
}

static bool free_family(const void *key, size_t size, void *value, void *context) {
    (void)key, (void)size, (void)context;
    mem_free(value);
    return true;
}

static void forget_families(void) {
    if (!families) return;
    hashmap_visit(families, free_family, NULL);
    hashmap_destroy(families);
    families = NULL;
    aliases = 0;
}

/* An entry of the key's family that serves it too, or NULL. *mask: what an entry that is built now leaves to run time.
 */
static status *find_relative(const scan *s, const call *c, entry **out, uint64_t *mask) {
    *out = NULL;
    family *f = find_family(s, mask);
    int constant = exec_mode_now == MODE_FUSED ? STATIC_STARTS_FUSED : STATIC_STARTS;
    if (!f || f->impossible || (!f->e && f->starts++ < constant)) *mask = 0;
    if (!f || !f->e) return NULL;
    STATUS_TRY(call_check_extents(c));
    *out = f->e;
    if (aliases < MOST_ALIASES && insert_entry(s, f->e)) aliases++;
    return NULL;
}

static void join_family(const scan *s, entry *e, bool good) {
    uint64_t mask;
    family *f = e->offset_mask ? find_family(s, &mask) : NULL;
    if (!f) return;
    if (good && mask == e->offset_mask && !e->removed)
        f->e = e;
    else
        f->impossible = true;
}

static bool release_unused(const void *key, size_t size, void *value, void *context) {
    (void)key, (void)size;
    entry *e = value;
    if (e->building || e->users) return true;
    for (variant *v = e->variants; v; v = v->next) {
        if (!v->executable || pjrt_executable_last_use(v->executable) >= *(const uint64_t *)context) continue;
        pjrt_executable_release(v->executable);
        v->executable = NULL;
    }
    return true;
}

void entries_release_programs(uint64_t before) {
    if (entries) hashmap_visit(entries, release_unused, &before);
}

typedef struct sweep {
    entry **list;
    size_t n;
    operator_info *op;
} sweep;

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
    forget_families();
    for (size_t i = 0; i < w.n; i++) {
        entry *e = w.list[i];
        mark_removed(e);
        if (--e->keys == 0 && e->users == 0) entry_destroy(e);
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
    repeat_forget(op);
    graph_destroy(op->graph);
    mem_free((char *)op->name);
    mem_free(op);
}

/* ---- building ---- */

static status *rename_error(status *s, const call *c) {
    const char *name = c->op->name;
    if (!s || strncmp(status_message(s), name, strlen(name)) == 0) return s;
    status_code code = status_get_code(s);
    if (code == STATUS_TYPE && strstr(status_message(s), "stablehlo.")) {
        /* Dtypes that there is no way for: the CPU's kernel may have one, or has PyTorch's words for why not. */
        status *no_way = status_new(STATUS_NOT_IMPLEMENTED, "%s: %s", name, status_message(s));
        status_free(s);
        return no_way;
    }
    /* PyTorch's own messages (from its meta kernels) stand as they are; ours name the operator. */
    return code == STATUS_INTERNAL || code == STATUS_OUT_OF_MEMORY ? status_prefix(s, "%s", name) : s;
}

/* The result of a build joins the cache under the key as it is now: the build may have taught which numbers are
 * structural. */
static status *finish_entry(entry *e, scan *s, call *c, hlo_precision precision, uint64_t structural) {
    take_out_entry(s, e);
    s->numbers->structural_args |= structural;
    scan_call(s, c, precision);
    e->building = false;
    if (s->failed) return status_no_memory();
    entry *other = find_entry(s);
    if (other)
        mark_removed(e); /* another thread was faster, or this one's key already had an owner */
    else if (!insert_entry(s, e))
        return status_no_memory();
    return NULL;
}

static status *build_entry(scan *s, call *c, hlo_precision precision, uint64_t offset_mask) {
    entry *e = mem_alloc(sizeof *e);
    if (!e || !scan_snapshot(s)) {
        mem_free(e);
        return status_no_memory();
    }
    e->building = true;
    e->builder = pthread_self();
    e->op = c->op;
    e->users = 1;
    e->offset_mask = offset_mask;
    if (!insert_entry(s, e)) {
        entry_destroy(e);
        return status_no_memory();
    }
    const learned_numbers *known = s->numbers;
    uint64_t dynamic = known->promoted_args & ~known->structural_args & ~known->fixed_args;
    exec_release();
    variant *v = NULL;
    uint64_t structural = 0;
    status *result = entry_plan(e, c, s);
    bool compile = exec_mode_now != MODE_FUSED;
    if (!result) result = entry_make_variant(e, c, s, precision, dynamic, compile, &v, &structural);
    if (!result && (structural & dynamic)) {
        /* A number that decides structure cannot be a run-time input: once more, as a constant. */
        variant_destroy(v);
        v = NULL;
        result = entry_make_variant(e, c, s, precision, dynamic & ~structural, compile, &v, &structural);
    }
    exec_acquire();
    e->variants = v;
    if (!result)
        result = finish_entry(e, s, c, precision, structural);
    else
        take_out_entry(s, e);
    e->building = false;
    if (result) mark_removed(e);
    join_family(s, e, !result);
    if (result && offset_mask) {
        /* Not with run-time offsets, then; the call is looked at once more. */
        status_free(result);
        result = NULL;
    }
    entry_leave(e);
    pthread_cond_broadcast(&built);
    return rename_error(result, c);
}

/* Another value of some number: from now on that number is a run-time input. */
static status *build_variant(entry *e, scan *s, call *c, hlo_precision precision) {
    uint64_t structural = s->numbers->structural_args, dynamic = e->variants->dynamic_args;
    uint64_t different = variant_difference(e->variants, c, structural);
    dynamic |= different;
    s->numbers->promoted_args |= different;
    COUNT(promotions, 1);
    if (!scan_snapshot(s)) return status_no_memory();
    e->building = true;
    e->builder = pthread_self();
    e->users++;
    exec_release();
    variant *v = NULL;
    uint64_t learned = 0;
    status *result =
        entry_make_variant(e, c, s, precision, dynamic & ~structural, exec_mode_now != MODE_FUSED, &v, &learned);
    exec_acquire();
    s->numbers->structural_args |= learned;
    if (v) {
        v->next = e->variants;
        e->variants = v;
    }
    e->building = false;
    entry_leave(e);
    pthread_cond_broadcast(&built);
    return rename_error(result, c);
}

/* ---- launching ---- */

typedef struct launch {
    entry *e;
    variant *v;
    pjrt_buffer **inputs, **outputs;
    bool *donate;
    storage **fresh;   /* per result: storage of RESULT_NEW */
    storage **targets; /* per output: storage it is written to */
    int n_made;        /* inputs that are ours beyond the storages': vectors of numbers */
} launch;

static void put_slot(const number *n, const number_slot *slot, void *data, int position) {
    bool floating = dtype_is_float(n->dtype) || dtype_is_complex(n->dtype);
    double value = floating ? n->v.f[slot->imaginary ? 1 : 0] : 0;
    switch (slot->cls) {
        case SLOT_F32:
            ((float *)data)[position] = floating ? (float)value : (float)n->v.i;
            break;
        case SLOT_F64:
            ((double *)data)[position] = floating ? value : (double)n->v.i;
            break;
        default:
            ((int64_t *)data)[position] = floating ? (int64_t)value : n->v.i;
            break;
    }
}

status *make_number_vector(int n_slots, const number_slot *slots, slot_class cls, int64_t length, int device,
                           slot_source source, void *context, pjrt_buffer **out) {
    static const dtype types[SLOT_CLASSES] = {DTYPE_F32, DTYPE_F64, DTYPE_I64};
    char small[512], *data = small;
    size_t size = (size_t)length * dtype_bytes(types[cls]);
    if (size > sizeof small && !(data = mem_alloc(size))) return status_no_memory();
    memset(data, 0, size);
    int position = 0;
    for (int i = 0; i < n_slots; i++)
        if (slots[i].cls == cls) put_slot(source(context, &slots[i]), &slots[i], data, position++);
    pjrt_client *client;
    status *s = runtime_client(&client);
    if (!s) s = pjrt_buffer_from_host(client, device, data, types[cls], 1, &length, out);
    if (data != small) mem_free(data);
    return s;
}

typedef struct call_numbers {
    const call *c;
    number offset;
} call_numbers;

static const number *call_number(void *context, const number_slot *slot) {
    call_numbers *source = context;
    if (slot->arg == OFFSET_SLOT) {
        source->offset = (number){.dtype = DTYPE_I64, .v.i = call_tensor(source->c, slot->element)->geometry.offset};
        return &source->offset;
    }
    const argument *a = &source->c->args[slot->arg];
    return a->tag == ARG_NUMBERS ? &a->u.numbers[slot->element] : &a->u.number;
}

static status *make_words(const call *c, const variant *v, pjrt_buffer **out) {
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
    call_numbers source = {.c = c};
    for (int cls = 0; cls < SLOT_CLASSES; cls++)
        if (v->class_parameter[cls] >= 0)
            STATUS_TRY(make_number_vector(v->n_slots, v->slots, (slot_class)cls, v->class_length[cls], c->device,
                                          call_number, &source, &l->inputs[v->class_parameter[cls]]));
    if (v->random_parameter >= 0) STATUS_TRY(make_words(c, v, &l->inputs[v->random_parameter]));
    return NULL;
}

/* Under the lock: what the launch needs of the storages. */
static void collect_inputs(launch *l, storage *const *storages) {
    entry *e = l->e;
    for (int i = 0; i < e->n_inputs; i++) {
        storage *st = storages[e->inputs[i].storage];
        l->inputs[i] = pjrt_buffer_retain(st->base);
        /* Two references: the storage's and the one just taken. */
        l->donate[i] = e->inputs[i].donate_to >= 0 && pjrt_buffer_references(st->base) == 2;
    }
    for (int o = 0; o < e->n_outputs; o++)
        l->targets[o] = e->outputs[o].storage >= 0 ? storages[e->outputs[o].storage] : NULL;
}

void entry_give_results(const entry *e, call *c) {
    c->n_results = e->n_results;
    for (int k = 0; k < e->n_results; k++) {
        c->results[k].kind = e->results[k].kind;
        c->results[k].storage = NULL;
        if (e->results[k].kind == RESULT_NEW && !c->results_known)
            geometry_copy(&c->results[k].geometry, &e->results[k].geometry);
    }
}

/* Under the lock. */
static status *make_storages(const entry *e, call *c) {
    for (int k = 0; k < e->n_results; k++) {
        if (e->results[k].kind != RESULT_NEW) continue;
        const geometry *g = &e->results[k].geometry;
        c->results[k].storage = storage_create_locked(geometry_extent(g) * (int64_t)dtype_bytes(g->dtype), c->device);
        if (!c->results[k].storage) return status_no_memory();
    }
    return NULL;
}

/* Under the lock. */
static void drop_storages(call *c) {
    for (int k = 0; k < c->n_results; k++) {
        if (c->results[k].kind != RESULT_NEW) continue;
        if (c->results[k].storage) storage_destroy_locked(c->results[k].storage);
        c->results[k].storage = NULL;
    }
}

/* Under the lock: others wait with storages that this launch writes until it is done, for its results are made from
 * what is in them now. */
static void mark_targets(launch *l, bool writing) {
    bool any = false;
    for (int o = 0; o < l->e->n_outputs; o++)
        if (l->targets[o]) {
            l->targets[o]->writing = writing;
            any = true;
        }
    if (any && !writing) storage_settled();
}

/* Under the lock. */
static void store_outputs(launch *l, call *c) {
    for (int o = 0; o < l->e->n_outputs; o++) {
        const entry_output *out = &l->e->outputs[o];
        storage *st = out->result >= 0 ? c->results[out->result].storage : l->targets[o];
        storage_set_base(st, l->outputs[o], &out->type);
    }
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
    if (l->e->n_outputs == 0) return NULL;
    STATUS_TRY(make_extra_inputs(l, c));
    STATUS_TRY(storage_name_holders(
        pjrt_execute_soon(l->v->executable, c->device, l->v->n_parameters, l->inputs, l->donate, l->outputs)));
    COUNT(launches, 1);
    return NULL;
}

/* Room for a launch: on the stack for usual calls. */
#define SMALL_LAUNCH 48

status *launch_variant(entry *e, variant *v, storage *const *storages, call *c) {
    struct {
        pjrt_buffer *inputs[SMALL_LAUNCH], *outputs[SMALL_LAUNCH];
        storage *targets[SMALL_LAUNCH];
        bool donate[SMALL_LAUNCH];
    } small;
    launch l = {.e = e,
                .v = v,
                .inputs = small.inputs,
                .outputs = small.outputs,
                .targets = small.targets,
                .donate = small.donate};
    void *heap = NULL;
    int n_outputs = e->n_outputs + v->has_code;
    if (v->n_parameters > SMALL_LAUNCH || n_outputs > SMALL_LAUNCH) {
        size_t n = (size_t)(v->n_parameters > n_outputs ? v->n_parameters : n_outputs);
        heap = mem_alloc(n * (3 * sizeof(void *) + sizeof(bool)));
        if (!heap) {
            entry_leave(e);
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
    collect_inputs(&l, storages);
    entry_give_results(e, c);
    status *result = make_storages(e, c);
    mark_targets(&l, true);
    exec_release();
    if (!result) result = run(&l, c);
    if (!result && v->has_code) indices_add(c->device, l.outputs[e->n_outputs]);
    for (int i = 0; i < v->n_parameters; i++) pjrt_buffer_release(l.inputs[i]);
    exec_acquire();
    mark_targets(&l, false);
    if (result)
        drop_storages(c);
    else
        store_outputs(&l, c);
    bool wait = !result && exec_mode_now == MODE_DEBUG;
    if (!wait) entry_leave(e);
    exec_release();
    if (wait) {
        result = wait_for_results(&l, c);
        exec_acquire();
        if (result) drop_storages(c);
        entry_leave(e);
        exec_release();
    }
    mem_free(heap);
    return rename_error(result, c);
}

static void count_way(const entry *e) { atomic_fetch_add_explicit(&e->op->calls[e->way], 1, memory_order_relaxed); }

/* A variant that has run only in fused programs runs alone. Under the lock, which is let go meanwhile. */
static status *compile_variant(entry *e, variant *v, hlo_precision precision) {
    e->building = true;
    e->builder = pthread_self();
    e->users++;
    exec_release();
    status *result = variant_compile(e, v, precision);
    exec_acquire();
    e->building = false;
    entry_leave(e);
    pthread_cond_broadcast(&built);
    return result;
}

typedef struct attempt {
    hlo_precision precision;
    bool again;        /* something was done first: look once more */
    bool built;        /* this call was not found in the cache */
    bool random_given; /* seed and offset are filled in */
} attempt;

static bool waits_for_values(const scan *s) {
    for (int i = 0; i < s->n_storages; i++)
        if (fused_pending(s->storages[i])) return true;
    return false;
}

/* What a call with a matching variant still needs before it can run: true if something was done (without the lock). */
static bool prepare(attempt *t, entry *e, variant *v, const scan *s, call *c, status **result) {
    bool fused = exec_mode_now == MODE_FUSED;
    if (v->random_parameter >= 0 && e->way != WAY_NATIVE && !t->random_given) {
        int uses = v->random_count;
        exec_release();
        *result = exec_host.random ? exec_host.random(c, uses)
                                   : status_new(STATUS_INTERNAL, "random bits asked for, and no generator");
        exec_acquire();
        t->random_given = true;
        return true;
    }
    if (fused && fused_is_busy()) {
        fused_wait_idle();
        return true;
    }
    if (fused && fused_full()) {
        exec_release();
        *result = fused_flush_full();
        exec_acquire();
        return true;
    }
    if (fused ? fused_other_options(c->options) : waits_for_values(s)) {
        exec_release();
        *result = fused_flush();
        exec_acquire();
        return true;
    }
    if (!fused && !v->executable && e->n_outputs > 0) {
        t->built = true;
        *result = rename_error(compile_variant(e, v, t->precision), c);
        return true;
    }
    return false;
}

static status *record_variant(entry *e, variant *v, const scan *s, call *c) {
    status *result = fused_record(e, v, s, c);
    bool full = fused_full();
    exec_release();
    if (!result && full) result = fused_flush_full();
    if (result) {
        exec_acquire();
        drop_storages(c);
        exec_release();
    }
    return result;
}

/* No entry, or no variant for these numbers. */
static status *build(attempt *t, entry *e, scan *s, call *c, uint64_t offset_mask) {
    t->again = true;
    if (e && e->building && pthread_equal(e->builder, pthread_self()))
        return status_new(STATUS_INTERNAL, "%s: building it calls itself", c->op->name);
    if (e && e->building) {
        pthread_cond_wait(&built, &exec_lock);
        return NULL;
    }
    t->built = true;
    if (!e) return build_entry(s, c, t->precision, offset_mask);
    entry_give_results(e, c);
    return build_variant(e, s, c, t->precision);
}

/* One round: the lock is held at the start and not at the end. */
static status *attempt_call(attempt *t, scan *s, call *c) {
    t->again = false;
    scan_call(s, c, t->precision);
    status *result = s->failed ? status_no_memory() : s->lost ? status_new(STATUS_RUNTIME, "%s", s->lost->lost) : NULL;
    if (result) {
        exec_release();
        return result;
    }
    if (s->retype_storage) {
        exec_release();
        t->again = true;
        return storage_retype(s->retype_storage, s->retype_dtype);
    }
    for (int i = 0; i < s->n_storages; i++)
        if (storage_settle(s->storages[i])) {
            t->again = true;
            exec_release();
            return NULL;
        }
    entry *e = find_entry(s);
    uint64_t offset_mask = 0;
    if (!e) result = find_relative(s, c, &e, &offset_mask);
    if (result) {
        exec_release();
        return result;
    }
    variant *v = e ? e->variants : NULL;
    while (v && !variant_matches(v, c, s->numbers->structural_args)) v = v->next;
    if (!v || (e->building && !v->executable && exec_mode_now != MODE_FUSED)) {
        result = build(t, e, s, c, offset_mask);
        exec_release();
        if (!e && !result) growth_note(c);
        return result;
    }
    if (prepare(t, e, v, s, c, &result)) {
        t->again = true;
        exec_release();
        return result;
    }
    count_way(e);
    if (!t->built) COUNT(cache_hits, 1);
    if (exec_mode_now == MODE_FUSED) return record_variant(e, v, s, c);
    if (c->op->graph) repeat_note(c, s, e, v, t->precision);
    e->users++;
    return launch_variant(e, v, s->storages, c);
}

status *exec_call(call *c) {
    scan s;
    scan_init(&s);
    attempt t = {.precision = exec_get_precision(), .again = true};
    COUNT(calls, 1);
    COUNT(cache_requests, 1);
    c->options = c->op->options ? c->op->options : exec_options_now;
    status *result = NULL;
    if (c->op->row && (c->op->row->flags & OP_SIZE_FROM_NUMBERS) && !c->results_known) {
        result = exec_host.infer ? exec_host.infer(c) : status_new(STATUS_INTERNAL, "no one to infer results");
        c->results_known = true;
    }
    s.declared_results = c->n_results;
    programs_make_room();
    while (t.again && !result) {
        c->n_results = s.declared_results;
        exec_acquire();
        result = attempt_call(&t, &s, c);
    }
    scan_free(&s);
    return result;
}
