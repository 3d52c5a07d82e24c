/* Calls on storages: key -> cached executable, else lower and compile -> launch. The one path of every mode. */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#include "graph/graph.h"
#include "pjrt/pjrt.h"

/* ---- storage: owns one base value ---- */
typedef struct storage storage;
storage *storage_create(int64_t bytes, int device); /* no base value yet: reads as zeros */
void storage_destroy(storage *s);
int64_t storage_bytes(const storage *s);
int storage_device(const storage *s);
void *storage_address(const storage *s); /* unique reserved address range, never dereferenced; NULL for 0 bytes */
/* The storage whose range holds the address, and how far behind its start; NULL: none. Looks at every storage. */
storage *storage_find(const void *address, int64_t *distance);
status *storage_resize(storage *s, int64_t bytes); /* keeps the common prefix */
/* Host copies. data is dense row-major of g's sizes and dtype. */
status *storage_write_host(storage *s, const geometry *g, const void *data);
status *storage_read_host(storage *s, const geometry *g, void *data);
status *storage_wait(storage *s);
bool storage_has_value(const storage *s);

typedef struct core_tensor {
    storage *storage;
    geometry geometry;
} core_tensor;

/* ---- a call ---- */
typedef enum { RESULT_NEW, RESULT_WRITE, RESULT_UNWANTED } result_kind;
typedef struct call_result {
    result_kind kind;
    core_tensor *target; /* RESULT_WRITE: where the value goes */
    geometry geometry;   /* RESULT_NEW: what PyTorch's metadata says; filled by infer, or by the caller */
    storage *storage;    /* RESULT_NEW: on return, owned by the caller */
} call_result;

typedef struct operator_info operator_info; /* interned: a row, a graph, or something to decompose */

typedef struct call {
    operator_info *op;
    int n_args;
    argument *args; /* ARG_VALUE's u.tensor is a core_tensor * */
    int n_results;
    call_result *results;
    int max_results;    /* room in results (lists of unknown length) */
    bool results_known; /* RESULT_NEW geometries are filled in already */
    int device;
    uint64_t seed, offset; /* generator state, for OP_RANDOM */
    int options;           /* set of compile options; exec_call fills it in */
    void *host;            /* the bridge's own view of the call, for host_services */
} call;

/* The core calls up through this only; re-entrant; called with no lock held. */
typedef struct host_services {
    status *(*infer)(call *c);                  /* fills kind and geometry of every RESULT_NEW */
    status *(*decompose)(call *c, graph **out); /* a graph whose inputs are the call's tensors, flattened, in order */
    void (*warn)(const char *message);
    /* Fills c->seed and c->offset and advances the generator by 4 * uses. Asked only for operators without a row
     * (decomposed ones and graphs) that turn out to use random bits; for rows with OP_RANDOM the caller of exec_call
     * has filled them. */
    status *(*random)(call *c, int uses);
} host_services;
void exec_set_host(const host_services *h);

typedef enum { WAY_NATIVE, WAY_DECOMPOSED, WAY_CPU, WAY_GRAPH } op_way;
void operator_count_cpu_fallback(operator_info *op); /* the bridge ran it on the CPU */
/* Every operator called so far, with how often it was called natively, decomposed, or on the CPU. */
typedef struct operator_use {
    const char *name;
    op_way way;
    int64_t calls;
} operator_use;
int operator_uses(operator_use *out, int capacity); /* the number there are; fills at most capacity */
operator_info *operator_intern(
    const char *functional_name);               /* the same name gives the same pointer; NULL with no memory */
operator_info *operator_from_graph(graph *g);   /* takes the graph; for torch.compile */
void operator_destroy_graph(operator_info *op); /* of operator_from_graph: drops its cache entries */
/* Of operator_from_graph: compiled with this set of options, not with the current one; 0: with the current one. */
void operator_set_options(operator_info *op, int options);
const char *operator_name(const operator_info *op);
const op_row *operator_row(const operator_info *op); /* NULL: no native lowering */

status *exec_call(call *c);
/* A call of operator_from_graph whose tensors lie dense at the start of storages, given in the order of the graph's
 * inputs, with the types of those inputs: made without a key if one like it was made before, with results_known. c's
 * arguments and the targets of its results are not looked at. *done false: exec_call has to make it. */
status *exec_call_repeat(call *c, int n, storage *const *inputs, bool *done);

/* ---- runtime ---- */
typedef enum { MODE_STRICT, MODE_DEBUG, MODE_FUSED } eager_mode;
void exec_set_mode(eager_mode m);
eager_mode exec_get_mode(void);
/* Fused mode: runs what has gathered (the end of an optimizer step). A no-op in the other modes. */
status *exec_flush(void);
/* Fused mode: while held, calls gather without a limit of their number, and nothing flushes but a value that is needed.
 */
void exec_hold(bool held);
bool exec_held(void);
void exec_set_precision(hlo_precision p);
hlo_precision exec_get_precision(void);
/* XLA options of compilations, as a numbered set: part of every key. `lines` is "name=value\n..." in sorted order;
 * equal texts have equal numbers, "" is 0. */
status *exec_options_intern(const char *lines, int *out);
const char *exec_options_text(int options);
/* For every call from now on. Fused mode: runs what has gathered first; its error is returned, the options are set. */
status *exec_set_options(int options);
int exec_get_options(void);
/* Compiles an empty program with them: the plugin's own judgement. */
status *exec_check_options(int options);
/* Compiles a program's text and drops it: whether the plugin takes it. */
status *exec_compile_text(const char *mlir, size_t size, int options);
const char *runtime_platform(void);        /* "cpu", "tpu"; "" before the client exists */
status *runtime_client(pjrt_client **out); /* creates it on first use */
bool runtime_initialized(void);
int runtime_device_count(void); /* never creates a client, never fails */
status *runtime_synchronize(int device);
status *runtime_choose_plugin(strbuf *path); /* which plugin would be loaded, by the rules of docs/environment.md */
void runtime_set_plugin_candidates(const char *cpu_plugin,
                                   const char *libtpu); /* what Python found installed; may be NULL */

typedef struct exec_counters {
    int64_t calls, cache_requests, cache_hits, disk_hits, compiles, compile_ns, launches, decomposed, cpu_fallbacks,
        promotions, entries, bytes_live, bytes_peak, storages;
} exec_counters;
void exec_counters_read(exec_counters *out);
void exec_reset_peak(void); /* bytes_peak becomes bytes_live */
void exec_cache_clear(void);
/* Called with the text of each program compiled, when set (TORCH_TPU_DUMP_DIR, tests). */
void exec_set_program_sink(void (*sink)(const char *name, const char *mlir, size_t size));

#endif
