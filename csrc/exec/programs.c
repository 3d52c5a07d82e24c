/* Compiled programs by their text, and how many of them stay loaded. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/environment.h"
#include "exec/internal.h"

/* The CPU plugin maps each of a program's pieces by itself, three to eight of the 65,530 maps that Linux gives a
 * process (vm.max_map_count); a process out of maps is ended by the first thread that cannot start. */
#define MOST_PROGRAMS 8192

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* inside exec_lock where both are held */
static hashmap *programs;
static size_t most; /* 0: not read from the environment yet */
static atomic_bool full;

static pjrt_executable *find_program(const strbuf *key, uint64_t hash) {
    pthread_mutex_lock(&lock);
    if (!programs) programs = hashmap_create();
    pjrt_executable *known = programs ? hashmap_find(programs, key->data, key->size, hash) : NULL;
    if (known) pjrt_executable_retain(known);
    pthread_mutex_unlock(&lock);
    return known;
}

static void keep_program(const strbuf *key, uint64_t hash, pjrt_executable *made) {
    pthread_mutex_lock(&lock);
    if (!most) most = (size_t)environment_count("TORCH_TPU_PROGRAMS", MOST_PROGRAMS);
    bool known = programs && hashmap_find(programs, key->data, key->size, hash);
    if (programs && !known && hashmap_insert(programs, key->data, key->size, hash, made)) pjrt_executable_retain(made);
    if (programs && hashmap_count(programs) > most) atomic_store_explicit(&full, true, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

status *program_get(const char *mlir, size_t size, const char *name, int options, pjrt_executable **out) {
    strbuf key;
    strbuf_init(&key);
    strbuf_append(&key, &options, sizeof options);
    strbuf_append(&key, mlir, size);
    if (strbuf_failed(&key)) {
        strbuf_free(&key);
        return status_no_memory();
    }
    uint64_t hash = hash_bytes(key.data, key.size);
    *out = find_program(&key, hash);
    status *s = *out ? NULL : runtime_compile(mlir, size, name, options, out);
    if (!s) keep_program(&key, hash, *out);
    strbuf_free(&key);
    return s;
}

static bool release_program(const void *key, size_t size, void *value, void *context) {
    (void)key, (void)size, (void)context;
    pjrt_executable_release(value);
    return true;
}

void program_cache_clear(void) {
    pthread_mutex_lock(&lock);
    if (programs) {
        hashmap_visit(programs, release_program, NULL);
        hashmap_destroy(programs);
        programs = NULL;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- room ---- */

typedef struct times {
    uint64_t *list;
    size_t n;
} times;

static bool note_time(const void *key, size_t size, void *value, void *context) {
    (void)key, (void)size;
    times *t = context;
    t->list[t->n++] = pjrt_executable_last_use(value);
    return true;
}

static int by_time(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* When the program was used that has as many before it as after. false: too few programs, or no memory. */
static bool middle_use(uint64_t *out) {
    times t = {NULL, 0};
    if (programs && hashmap_count(programs) > most) t.list = mem_alloc(sizeof *t.list * hashmap_count(programs));
    if (!t.list) return false;
    hashmap_visit(programs, note_time, &t);
    qsort(t.list, t.n, sizeof *t.list, by_time);
    *out = t.list[t.n / 2];
    mem_free(t.list);
    return true;
}

static bool is_used(void *value, void *before) {
    bool used = pjrt_executable_last_use(value) >= *(const uint64_t *)before;
    if (!used) pjrt_executable_release(value);
    return used;
}

void programs_make_room(void) {
    if (!atomic_load_explicit(&full, memory_order_relaxed)) return;
    uint64_t before;
    exec_acquire();
    pthread_mutex_lock(&lock);
    atomic_store_explicit(&full, false, memory_order_relaxed);
    bool some = middle_use(&before);
    if (some) hashmap_keep(programs, is_used, &before);
    pthread_mutex_unlock(&lock);
    if (some) {
        entries_release_programs(before);
        fused_release_programs(before);
    }
    exec_release();
}
