/* Which plugin runs, its client, modes and counters. */
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/environment.h"
#include "exec/internal.h"

pthread_mutex_t exec_lock = PTHREAD_MUTEX_INITIALIZER;
_Atomic int exec_mode_now = MODE_STRICT, exec_precision_now = HLO_PRECISION_DEFAULT;
host_services exec_host;
exec_counts counts;

static pthread_mutex_t client_lock = PTHREAD_MUTEX_INITIALIZER;
static pjrt_client *_Atomic the_client;
static _Atomic bool forked_after_use;
static char *cpu_candidate, *tpu_candidate;
static void (*_Atomic program_sink)(const char *name, const char *mlir, size_t size);

void exec_set_host(const host_services *h) { exec_host = *h; }
void exec_set_mode(eager_mode m) {
    exec_mode_now = (int)m;
    /* What has gathered runs now; an error in it is kept with the values that it lost. */
    if (m != MODE_FUSED) status_free(fused_flush());
}
status *exec_flush(void) { return fused_flush(); }
void exec_hold(bool held) { fused_hold(held); }
bool exec_held(void) { return fused_held(); }
eager_mode exec_get_mode(void) { return (eager_mode)exec_mode_now; }
void exec_set_precision(hlo_precision p) { exec_precision_now = (int)p; }
hlo_precision exec_get_precision(void) { return (hlo_precision)exec_precision_now; }
void exec_set_program_sink(void (*sink)(const char *, const char *, size_t)) { program_sink = sink; }

/* ---- plugin choice ---- */

void runtime_set_plugin_candidates(const char *cpu_plugin, const char *libtpu) {
    pthread_mutex_lock(&client_lock);
    mem_free(cpu_candidate);
    mem_free(tpu_candidate);
    cpu_candidate = cpu_plugin ? mem_strdup(cpu_plugin) : NULL;
    tpu_candidate = libtpu ? mem_strdup(libtpu) : NULL;
    pthread_mutex_unlock(&client_lock);
}

static status *no_cpu_plugin(void) {
    return status_new(STATUS_NOT_FOUND,
                      "no XLA CPU plugin is installed: pip install 'torch_tpu[cpu]', or name a PJRT plugin in "
                      "TORCH_TPU_PJRT_PLUGIN");
}

static status *no_libtpu(void) {
    return status_new(STATUS_NOT_FOUND,
                      "libtpu is not installed: pip install 'torch_tpu[tpu]', or name it in TPU_LIBRARY_PATH");
}

/* TPU_LIBRARY_PATH, where it is a choice: importing JAX sets it to the installed libtpu, TPU or not. */
static const char *named_library(void) {
    const char *path = environment_text("TPU_LIBRARY_PATH");
    bool installed = path && tpu_candidate && strcmp(path, tpu_candidate) == 0;
    return installed && !pjrt_tpu_attached() ? NULL : path;
}

static status *choose(strbuf *path) {
    const char *named = environment_text("TORCH_TPU_PJRT_PLUGIN");
    bool require_tpu = environment_flag("TORCH_TPU_REQUIRE_TPU", false);
    if (named && strcmp(named, "cpu") == 0) {
        if (!cpu_candidate) return no_cpu_plugin();
        strbuf_puts(path, cpu_candidate);
    } else if (named && strcmp(named, "tpu") == 0) {
        const char *library = environment_text("TPU_LIBRARY_PATH");
        if (!library) library = tpu_candidate;
        if (!library) return no_libtpu();
        strbuf_puts(path, library);
    } else if (named) {
        strbuf_puts(path, named);
    } else if (named_library()) {
        strbuf_puts(path, named_library());
    } else if (pjrt_tpu_attached()) {
        if (!tpu_candidate) return no_libtpu();
        strbuf_puts(path, tpu_candidate);
    } else if (require_tpu) {
        return status_new(STATUS_NOT_FOUND, "TORCH_TPU_REQUIRE_TPU is set and no TPU is attached to this machine");
    } else {
        if (!cpu_candidate) return no_cpu_plugin();
        strbuf_puts(path, cpu_candidate);
    }
    return strbuf_failed(path) ? status_no_memory() : NULL;
}

status *runtime_choose_plugin(strbuf *path) {
    pthread_mutex_lock(&client_lock);
    status *s = choose(path);
    pthread_mutex_unlock(&client_lock);
    return s;
}

/* ---- client ---- */

static void after_fork_in_child(void) {
    if (the_client) forked_after_use = true;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }

static bool is_libtpu(const char *path) {
    const char *name = strrchr(path, '/');
    return strstr(name ? name : path, "libtpu") != NULL;
}

static status *create_client(pjrt_client **out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    strbuf path;
    strbuf_init(&path);
    status *s = choose(&path);
    pjrt_plugin *plugin = NULL;
    if (!s)
        s = status_prefix(pjrt_plugin_load(strbuf_text(&path), &plugin),
                          "the PJRT plugin cannot be loaded (TORCH_TPU_PJRT_PLUGIN takes cpu, tpu or a path, and "
                          "TPU_LIBRARY_PATH a path; unset, an installed one is chosen)");
    if (!s) s = pjrt_client_create(plugin, 0, NULL, out);
    if (s && !pjrt_tpu_attached() && is_libtpu(strbuf_text(&path)))
        s = status_prefix(s,
                          "no TPU is attached to this machine, and libtpu needs one (TORCH_TPU_PJRT_PLUGIN=cpu, or "
                          "neither it nor TPU_LIBRARY_PATH, takes the XLA CPU plugin; torch_tpu.tpu.aot compiles for "
                          "TPUs without one)");
    strbuf_free(&path);
    return s;
}

status *runtime_client(pjrt_client **out) {
    if (forked_after_use)
        return status_new(STATUS_RUNTIME,
                          "device tpu was used before this process was forked, and cannot be used in the child: start "
                          "workers with the 'spawn' or 'forkserver' method, or use the device only after forking");
    *out = the_client;
    if (*out) return NULL;
    pthread_mutex_lock(&client_lock);
    status *s = NULL;
    if (!the_client) {
        pjrt_client *made = NULL;
        s = create_client(&made);
        if (!s) the_client = made;
    }
    *out = the_client;
    pthread_mutex_unlock(&client_lock);
    return s;
}

bool runtime_initialized(void) { return the_client != NULL && !forked_after_use; }

const char *runtime_platform(void) {
    pjrt_client *c = the_client;
    return c ? pjrt_client_platform(c) : "";
}

static int count_files(const char *directory, const char *prefix) {
    DIR *d = opendir(directory);
    if (!d) return 0;
    int n = 0;
    size_t length = strlen(prefix);
    for (struct dirent *e; (e = readdir(d));) {
        const char *rest = e->d_name + length;
        if (strncmp(e->d_name, prefix, length) == 0 && *rest && strspn(rest, "0123456789") == strlen(rest)) n++;
    }
    closedir(d);
    return n;
}

/* The CPU plugin offers several devices of its own accord; a machine is one unless TORCH_TPU_DEVICES_PER_HOST says
 * otherwise. */
static int cpu_device_limit(void) {
    int64_t n = environment_count("TORCH_TPU_DEVICES_PER_HOST", 1);
    return n < INT_MAX ? (int)n : INT_MAX;
}

int runtime_device_count(void) {
    pjrt_client *c = the_client;
    if (c) {
        int n = pjrt_client_device_count(c);
        int limit = cpu_device_limit();
        return strcmp(pjrt_client_platform(c), "cpu") == 0 && n > limit ? limit : n;
    }
    strbuf path;
    strbuf_init(&path);
    status *s = runtime_choose_plugin(&path);
    strbuf_free(&path);
    if (s) {
        status_free(s);
        return 0;
    }
    if (!environment_text("TORCH_TPU_PJRT_PLUGIN") && pjrt_tpu_attached()) {
        int n = count_files("/dev", "accel") + count_files("/dev/vfio", "");
        return n ? n : 1;
    }
    return cpu_device_limit();
}

/* ---- compiling ---- */

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#define MAX_FLAGS 64

/* "name=value" between separators into the arrays; the text is cut in place. */
static int parse_flags(char *text, const char *separators, const char **names, const char **values, int n) {
    for (char *save = NULL, *item = text ? strtok_r(text, separators, &save) : NULL; item && n < MAX_FLAGS;
         item = strtok_r(NULL, separators, &save)) {
        while (*item == '-') item++;
        char *equals = strchr(item, '=');
        if (!equals || equals == item) continue;
        *equals = 0;
        names[n] = item;
        values[n++] = equals + 1;
    }
    return n;
}

static status *find_or_compile(pjrt_client *client, const char *mlir, size_t size, const pjrt_compile_options *options,
                               pjrt_executable **out) {
    strbuf serialized_options, stored;
    strbuf_init(&serialized_options);
    strbuf_init(&stored);
    pjrt_compile_options_serialize(options, &serialized_options);
    status *s = NULL;
    bool found = disk_find(mlir, size, &serialized_options, &stored);
    if (found) {
        s = pjrt_executable_deserialize(client, stored.data, stored.size, out);
        if (s) found = false; /* the plugin does not take it: compile, and write it again */
        status_free(s);
        s = NULL;
    }
    if (found) {
        COUNT(disk_hits, 1);
    } else {
        int64_t start = now_ns();
        s = pjrt_compile(client, mlir, size, options, out);
        COUNT(compiles, 1);
        COUNT(compile_ns, now_ns() - start);
        if (!s) disk_store(mlir, size, &serialized_options, *out);
    }
    strbuf_free(&serialized_options);
    strbuf_free(&stored);
    return s;
}

/* The flags of a compilation, and the texts that they lie in. */
typedef struct flag_list {
    const char *names[MAX_FLAGS], *values[MAX_FLAGS];
    char *environment, *set;
    pjrt_compile_options options;
} flag_list;

/* Of two values for one name XLA takes the later one. */
static void flags_init(flag_list *f, const pjrt_client *client, int options) {
    int n = 0;
    if (strcmp(pjrt_client_platform(client), "cpu") == 0) {
        /* The fast form drops NaN (docs/architecture.md). */
        f->names[n] = "xla_cpu_enable_fast_min_max";
        f->values[n++] = "false";
    }
    const char *user = environment_text("TORCH_TPU_INTERNAL_XLA_OPTIONS");
    f->environment = user ? mem_strdup(user) : NULL;
    f->set = options ? mem_strdup(exec_options_text(options)) : NULL;
    n = parse_flags(f->environment, ", ", f->names, f->values, n);
    n = parse_flags(f->set, "\n", f->names, f->values, n);
    f->options = (pjrt_compile_options){.n_flags = n, .flag_names = f->names, .flag_values = f->values};
}

static void flags_free(flag_list *f) {
    mem_free(f->environment);
    mem_free(f->set);
}

status *runtime_compile(const char *mlir, size_t size, const char *name, int options, pjrt_executable **out) {
    pjrt_client *client;
    STATUS_TRY(runtime_client(&client));
    void (*sink)(const char *, const char *, size_t) = program_sink;
    if (sink) sink(name, mlir, size);
    flag_list flags;
    flags_init(&flags, client, options);
    status *s = find_or_compile(client, mlir, size, &flags.options, out);
    s = reproducer_keep(s, mlir, size, &flags.options);
    flags_free(&flags);
    return status_prefix(s, "%s: compiling failed", name);
}

status *exec_check_options(int options) {
    static const char empty[] = "module @options { func.func public @main() { return } }";
    return exec_compile_text(empty, sizeof empty - 1, options);
}

status *exec_compile_text(const char *mlir, size_t size, int options) {
    pjrt_client *client;
    STATUS_TRY(runtime_client(&client));
    flag_list flags;
    flags_init(&flags, client, options);
    pjrt_executable *made = NULL;
    status *s = pjrt_compile(client, mlir, size, &flags.options, &made);
    if (!s) pjrt_executable_release(made);
    flags_free(&flags);
    return s;
}

/* ---- waiting ---- */

extern storage *storage_list;

status *runtime_synchronize(int device) {
    if (!runtime_initialized()) return NULL;
    STATUS_TRY(fused_flush());
    exec_acquire();
    for (storage *s = storage_list; s;) s = storage_settle(s) ? storage_list : s->next; /* the list may be another */
    size_t n = 0;
    for (storage *s = storage_list; s; s = s->next) n += s->base && s->device == device;
    pjrt_buffer **waiting = mem_alloc(sizeof *waiting * (n + 1));
    if (!waiting) {
        exec_release();
        return status_no_memory();
    }
    n = 0;
    for (storage *s = storage_list; s; s = s->next)
        if (s->base && s->device == device) waiting[n++] = pjrt_buffer_retain(s->base);
    exec_release();
    status *first = pjrt_queue_finish(); /* also what no tensor waits for */
    for (size_t i = 0; i < n; i++) {
        status *s = pjrt_buffer_wait(waiting[i]);
        pjrt_buffer_release(waiting[i]);
        if (first)
            status_free(s);
        else
            first = s;
    }
    mem_free(waiting);
    return first ? storage_name_holders(first) : indices_check(device, UINT64_MAX);
}

void exec_counters_read(exec_counters *out) {
#define READ(field) out->field = atomic_load_explicit(&counts.field, memory_order_relaxed);
    READ(calls)
    READ(cache_requests)
    READ(cache_hits)
    READ(disk_hits)
    READ(compiles)
    READ(compile_ns)
    READ(launches)
    READ(decomposed) READ(cpu_fallbacks) READ(promotions) READ(entries) READ(bytes_live) READ(bytes_peak) READ(storages)
#undef READ
}

void exec_reset_peak(void) { counts.bytes_peak = (int64_t)counts.bytes_live; }
