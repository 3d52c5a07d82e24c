/* What the files of the exec room share. */
#ifndef EXEC_INTERNAL_H
#define EXEC_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/hashmap.h"
#include "exec/exec.h"

/* ---- one lock for storages and the cache; never held while the plugin, Python or the compiler works ---- */
extern pthread_mutex_t exec_lock;
static inline void exec_acquire(void) { pthread_mutex_lock(&exec_lock); }
static inline void exec_release(void) { pthread_mutex_unlock(&exec_lock); }

/* ---- storage ---- */
#define STORAGE_MAX_RANK 8 /* a base of more dimensions is kept flat */

typedef struct base_type {
    dtype dtype;
    int rank;
    int64_t dims[STORAGE_MAX_RANK];
} base_type;

struct storage {
    int64_t bytes;
    int device;
    void *address;
    int address_class;
    pjrt_buffer *base; /* NULL: reads as zeros */
    base_type type;    /* of base */
    int32_t pending;   /* fused mode: number of the value that will be its base; -1: none */
    int32_t external;  /* fused mode: its base's number among the pending graph's inputs, if external_serial is the
                          graph's */
    uint64_t external_serial;
    uint64_t indices; /* indices_serial when its base was set */
    char *lost;       /* why its value could not be computed: reading it is this error */
    bool writing; /* a launch is on its way whose result will be its base, and which may have been given the old one:
                     others wait for storage_settle */
    bool raw;     /* bytes whose type is not known yet: the first typed use retypes the base once */
    /* While a key is built, under the lock: number of that scan and the storage's index in it. */
    uint64_t visit;
    int32_t visit_index;
    storage *next, *previous; /* all storages */
};

/* Dims beyond STORAGE_MAX_RANK become one flat dimension. */
void base_type_init(base_type *t, dtype d, int rank, const int64_t *dims);
bool base_type_equal(const base_type *a, const base_type *b);
int64_t base_type_bytes(const base_type *t);
/* Out of the device's memory: who holds most of it is added to the message. Other statuses stay as they are. No lock
 * held. */
status *storage_name_holders(status *s);
/* Returns when no launch writes the storage. Under the lock, which is given up meanwhile: true then. */
bool storage_settle(storage *s);
void storage_settled(void); /* under the lock: `writing` was cleared somewhere */
/* Takes the buffer; the old one is released. Under the lock. */
void storage_set_base(storage *s, pjrt_buffer *b, const base_type *t);
/* Gives a raw storage's base the type t; a no-op where it has it. No lock held. */
status *storage_retype(storage *s, dtype t);

/* ---- operators ---- */

/* What builds taught about an operator's numbers, as masks of arguments. Kept per dtypes of the arguments: a lowering
 * may want an exponent's value for integers that is a mere input for floating-point numbers. */
typedef struct learned_numbers {
    uint64_t dtypes;          /* operator_numbers' hash; 0: none yet */
    uint64_t structural_args; /* numbers whose values belong to the key */
    uint64_t promoted_args;   /* numbers that were seen to vary: run-time inputs from the first compile on */
    _Atomic uint64_t
        fixed_args; /* numbers that are better constants while they do not vary: promoted call by call only */
    struct learned_numbers *next;
} learned_numbers;

struct operator_info {
    const char *name;
    const op_row *row;
    graph *graph;             /* operator_from_graph: owned */
    struct repeat *repeat;    /* operator_from_graph: its last call that can be repeated; NULL: none yet */
    int options;              /* operator_from_graph: its set of compile options; 0: the current one */
    bool constant_numbers;    /* every number's value belongs to the key */
    learned_numbers numbers;  /* of the dtypes that came first */
    struct growth *growth;    /* the last calls that were built; NULL: none yet */
    _Atomic int64_t calls[4]; /* per op_way */
    bool interned;
    operator_info *next;
};
/* What is known of the numbers of calls with the dtypes of this one. Under the lock; NULL with no memory. */
learned_numbers *operator_numbers(operator_info *op, const call *c);
operator_info *operator_of_row(const op_row *row); /* for the core's own rows */
extern const op_row row_assign;                    /* core::assign(x): x, converted */
extern const op_row row_resize;                    /* core::resize(x): flat x cut or filled up with zeros */
extern const op_row row_zeros;                     /* core::zeros() */

/* ---- programs: compiled text, shared by every entry that lowers to it ---- */
/* Compiles the text for the runtime's client, or finds it compiled already. Reference-counted; the table of programs
 * has one more. */
status *program_get(const char *mlir, size_t size, const char *name, int options, pjrt_executable **out);
void program_cache_clear(void);
/* Where there are more programs than TORCH_TPU_PROGRAMS, the half of them goes whose last use is longest ago; a call
 * that needs one of those gets it from the disk, or compiles it. No lock held. */
void programs_make_room(void);
/* Programs last used before that (pjrt_executable_last_use) are given up by those that nobody is working with. Under
 * the lock. */
void entries_release_programs(uint64_t before);
void fused_release_programs(uint64_t before);

/* A call that was built anew: warns, once, of an operator that is built again and again for another size. No lock held.
 */
void growth_note(const call *c);

/* ---- the scan of a call: its storages in order of first use, and its key ---- */
#define SCAN_TENSORS 16
typedef struct scan {
    int n_storages, storage_capacity;
    storage **storages;
    uint64_t *key;
    size_t words, capacity;
    bool failed;
    int declared_results; /* the call's n_results before anything was inferred; set by the caller of scan_call */
    /* Copied under the lock on a miss, for work without it: which storages have a base, and its type. */
    bool *has_base;
    base_type *types;
    storage *retype_storage; /* a raw storage met with this type first: retype, then scan again */
    dtype retype_dtype;
    storage *lost; /* its value could not be computed */
    learned_numbers *numbers;
    /* Tensors of the call in order of arguments and written results: where their offsets stand in the key. */
    int n_tensors;
    struct {
        const core_tensor *tensor;
        size_t word;
    } tensors[SCAN_TENSORS]; /* the first ones */
    storage *inline_storages[32];
    uint64_t inline_key[256];
} scan;
void scan_init(scan *s);
void scan_free(scan *s);
void scan_call(scan *s, const call *c, hlo_precision precision); /* under the lock */
/* Marks the storages as a scan does; false where one is met twice. Under the lock. */
bool scan_distinct(int n, storage *const *storages);
bool scan_snapshot(scan *s);                                /* under the lock; false with no memory */
int scan_index(const scan *s, const storage *wanted);       /* without the lock */
const core_tensor *call_tensor(const call *c, int ordinal); /* in the same order; NULL: there is none */

/* ---- entries: what is known about one key ---- */
typedef struct entry_output {
    int result;  /* RESULT_NEW: index into the call's results, else -1 */
    int storage; /* RESULT_WRITE: index into the scan's storages, else -1 */
    base_type type;
} entry_output;

typedef struct entry_input {
    int storage;
    int donate_to; /* output index or -1 */
} entry_input;

typedef struct variant {
    struct variant *next;
    uint64_t dynamic_args;
    number *constants; /* of the call's numbers that are not dynamic, in order of arguments and elements */
    int n_constants;
    number_slot *slots;
    int n_slots;
    int class_parameter[SLOT_CLASSES];
    int64_t class_length[SLOT_CLASSES];
    int random_parameter, random_count;
    int n_parameters;
    bool has_code;               /* the program's last result is one for its indices */
    int16_t first_number[64];    /* per argument: where its numbers stand among `constants` */
    graph *graph;                /* of the call: inputs and outputs are the entry's */
    pjrt_executable *executable; /* NULL until it is launched alone */
    uint64_t serial;             /* never given twice: names the variant in keys of fused programs */
} variant;

typedef struct entry {
    bool building, removed;
    int users; /* threads that work with it without the lock */
    pthread_t builder;
    op_way way;
    int keys;             /* under which the cache has it */
    uint64_t offset_mask; /* tensors, by their order in the call, whose views start at a run-time offset */
    int options;          /* set of compile options */
    int n_results;
    call_result *results; /* kind and, for RESULT_NEW, geometry */
    int n_inputs, n_outputs;
    entry_input *inputs;
    entry_output *outputs;
    graph *sub; /* decomposition */
    variant *variants;
    operator_info *op;
} entry;
void entry_destroy(entry *e);
status *call_check_extents(const call *c); /* every tensor lies in its storage */
bool storage_covered(const storage *s, const geometry *g);
/* Infers the results and decomposes what has no row. No lock held; the scan has a snapshot. */
status *entry_plan(entry *e, call *c, const scan *s);
/* Builds and lowers a variant, and compiles it if asked. *structural: arguments that turned out to be structural. */
status *entry_make_variant(entry *e, call *c, const scan *s, hlo_precision precision, uint64_t dynamic_args,
                           bool compile, variant **out, uint64_t *structural);
/* Compiles a variant that is not yet. No lock held. */
status *variant_compile(const entry *e, variant *v, hlo_precision precision);
/* The program of a variant: what it compiles. */
status *variant_text(const entry *e, const variant *v, lower_request *request, strbuf *text);
void variant_destroy(variant *v);

/* Numbers of a call in order of arguments and elements; returns false when visit does. */
typedef bool (*number_visitor)(void *context, int arg, int element, const number *n);
bool call_visit_numbers(const call *c, number_visitor visit, void *context);
/* The numbers of a call beyond its key: args in `skip` (a mask) do not count. */
bool variant_matches(const variant *v, const call *c, uint64_t structural);
uint64_t variant_difference(const variant *v, const call *c,
                            uint64_t structural); /* args that differ from v's constants */

/* Entries that were removed from the cache so far. Under the lock. */
uint64_t entries_removed(void);
/* Launches on these storages, in the order of the key's. Under the lock, which is let go; one user of the entry goes.
 */
status *launch_variant(entry *e, variant *v, storage *const *storages, call *c);

/* ---- calls of graphs that are like the one before ---- */
struct repeat;
/* Remembers a call that is about to be launched, if it can be repeated without its key. Under the lock. */
void repeat_note(const call *c, const scan *s, entry *e, variant *v, hlo_precision precision);
void repeat_forget(operator_info *op);

void entry_leave(entry *e); /* under the lock: one user less; the last one of a removed entry destroys it */
/* Result kinds and geometries into the call. */
void entry_give_results(const entry *e, call *c);
storage *storage_create_locked(int64_t bytes, int device);
void storage_destroy_locked(storage *s);

/* ---- fused mode: calls gather and run as one program ---- */
/* Under the lock, on an entry's variant that matches the call: records it; the results' storages await their values. */
status *fused_record(entry *e, variant *v, const scan *s, call *c);
/* Runs what has gathered. No lock held. Returns the first error; values that were lost stay marked with it. */
status *fused_flush(void);
status *fused_flush_full(void);       /* only if the limit is reached */
bool fused_pending(const storage *s); /* its value has still to be computed */
void fused_forget(storage *s);        /* under the lock: the storage's pending value has lost its owner */
bool fused_is_busy(void);             /* under the lock: a flush is on its way */
void fused_wait_idle(void);           /* under the lock */
bool fused_empty(void);
bool fused_full(void); /* under the lock: the limit is reached */
void fused_hold(bool held);
bool fused_held(void);
bool fused_other_options(int options); /* under the lock: what has gathered compiles with others */

/* A buffer with the run-time numbers of one class. */
typedef const number *(*slot_source)(void *context, const number_slot *slot);
status *make_number_vector(int n_slots, const number_slot *slots, slot_class cls, int64_t length, int device,
                           slot_source source, void *context, pjrt_buffer **out);

/* ---- indices ---- */
bool indices_are_checked(void);
void indices_add(int device, pjrt_buffer *code); /* takes the last result of a program that has one for its indices */
uint64_t indices_serial(void);                   /* of the last one added. Under the lock */
/* Reads what the device's programs have said up to that serial number, without waiting for what was launched later.
 * IndexError, once for each time. No lock held. */
status *indices_check(int device, uint64_t last);

/* ---- random words ---- */
uint64_t random_word(uint64_t seed,
                     uint64_t offset); /* the state of the operator at this offset of a generator's stream */

/* ---- programs on disk ---- */
bool disk_local_directory(strbuf *out); /* false: there is none */
void disk_make_directories(const char *path);
bool disk_find(const char *mlir, size_t size, const strbuf *options, strbuf *out); /* the serialised executable */
void disk_store(const char *mlir, size_t size, const strbuf *options, pjrt_executable *executable);
/* What of a plugin and its devices belongs to a program's key. */
void disk_put_identity(strbuf *out, const char *plugin, const char *platform, const char *version, const char *kind);
/* A serialised executable for a plugin of that identity; `path` gets the entry's. false: no cache is on. */
bool disk_store_bytes(const strbuf *identity, const char *mlir, size_t size, const strbuf *options,
                      const strbuf *contents, strbuf *path);

/* Writes what failed to compile into a directory and adds its name to the message. Takes the status; NULL stays NULL.
 */
status *reproducer_keep(status *error, const char *mlir, size_t size, const pjrt_compile_options *options);

/* ---- runtime ---- */
extern _Atomic int exec_mode_now, exec_precision_now, exec_options_now;
extern host_services exec_host;
typedef struct exec_counts {
    _Atomic int64_t calls, cache_requests, cache_hits, disk_hits, compiles, compile_ns, launches, decomposed,
        cpu_fallbacks, promotions, entries, bytes_live, bytes_peak, storages;
} exec_counts;
extern exec_counts counts;
#define COUNT(field, n) atomic_fetch_add_explicit(&counts.field, (n), memory_order_relaxed)
status *runtime_compile(const char *mlir, size_t size, const char *name, int options, pjrt_executable **out);

#endif
