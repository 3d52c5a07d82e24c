/* What the files of this room share: the structs behind pjrt.h's names, and how a PJRT function is called. */
#ifndef PJRT_INTERNAL_H
#define PJRT_INTERNAL_H

#include <stdatomic.h>
#include <stddef.h>

#include <pjrt_c_api.h>

#include "base/arena.h"
#include "pjrt/pjrt.h"

/* ---- calling the plugin ---- */
/* Whether the plugin has a function: its table may be shorter than ours, and any entry may be NULL. */
#define PJRT_HAS(api, function) \
    ((api)->struct_size >= offsetof(PJRT_Api, function) + sizeof((api)->function) && (api)->function)

/* A zeroed argument struct of a function, with its size set and the given fields. */
#define PJRT_ARGS(function, ...) \
    (function##_Args) { .struct_size = function##_Args_STRUCT_SIZE, __VA_ARGS__ }

/* Calls and gives a status. Written as an expression so that it fits into STATUS_TRY. */
#define PJRT_CALL(api, function, args)                                                   \
    (PJRT_HAS(api, function) ? pjrt_status_take((api), (api)->function(args), #function) \
                             : pjrt_status_missing(#function))

status *pjrt_status_from_error(const PJRT_Api *api, PJRT_Error *error, const char *function); /* destroys the error */
status *pjrt_status_missing(const char *function);
static inline status *pjrt_status_take(const PJRT_Api *api, PJRT_Error *error, const char *function) {
    return error ? pjrt_status_from_error(api, error, function) : NULL;
}

/* Waits for an event, destroys it and gives its error. NULL is ready. */
status *pjrt_event_finish(const PJRT_Api *api, PJRT_Event *event);
void pjrt_event_destroy(const PJRT_Api *api, PJRT_Event *event);

/* ---- element types ---- */
PJRT_Buffer_Type pjrt_type_from_dtype(dtype t);
dtype pjrt_type_to_dtype(PJRT_Buffer_Type type); /* DTYPE_INVALID for tokens and types that PyTorch has not */
/* Elements times size; false when it exceeds int64 or a dimension is negative. */
bool pjrt_dense_bytes(dtype t, int rank, const int64_t *dims, int64_t *out);

/* ---- structs ---- */
struct pjrt_plugin {
    const PJRT_Api *api; /* NULL while another thread loads it */
    char *path;
    struct pjrt_plugin *next;
};

typedef struct {
    PJRT_Device *device;
    const char *kind, *description;
} pjrt_device;

struct pjrt_client {
    const PJRT_Api *api;
    PJRT_Client *client;
    arena *memory; /* of everything below and of this struct's strings */
    const char *platform, *platform_version;
    int n_devices;
    pjrt_device *devices; /* addressable */
};

struct pjrt_buffer {
    atomic_int references;
    dtype type;
    int rank;
    bool booked;   /* counted as memory that is in use: it exists, no result has got it, and someone has it */
    int64_t bytes; /* logical */
    /* Tickets (queue.c) of the launch that makes it and of the last one that reads it; 0: none waits. */
    uint64_t made, used;
    PJRT_Buffer *buffer; /* NULL until it is made, and where its launch failed */
    status *error;       /* why it failed */
    pjrt_client *client;
    pjrt_buffer *next_dead; /* in queue.c */
};

typedef struct {
    dtype type;
    int rank;
    int64_t bytes;
} pjrt_result_info;

struct pjrt_executable {
    atomic_int references;
    _Atomic uint64_t use; /* when it was made or last launched, by a count of all of these */
    int n_results;
    bool may_donate;      /* the program aliases some input to a result */
    int64_t result_bytes; /* of all results */
    uint64_t used;        /* ticket of its last launch (queue.c) */
    pjrt_client *client;
    PJRT_LoadedExecutable *loaded;
    PJRT_Executable *executable;
    pjrt_result_info results[];
};

status *pjrt_client_device(const pjrt_client *c, int device, PJRT_Device **out); /* checks the index */

/* A buffer struct without a device array, with one reference; NULL with no memory. */
pjrt_buffer *pjrt_buffer_new(pjrt_client *c, dtype type, int rank, int64_t bytes);
void pjrt_buffer_destroy(pjrt_buffer *b); /* no one has it, and nothing reads it */
void pjrt_buffer_book(pjrt_buffer *b);
void pjrt_buffer_unbook(pjrt_buffer *b);
status *pjrt_buffer_error(const pjrt_buffer *b); /* a copy of its error */
status *pjrt_buffer_settle(pjrt_buffer *b);      /* until its launch was made, or its error */

/* ---- launching ---- */
enum { FEW = 64 }; /* arguments for which a launch allocates nothing but the result buffers */

/* The arrays that PJRT wants. `fixed`: the indices of the inputs that keep their memory. */
typedef struct {
    PJRT_Buffer **inputs, **results;
    int64_t *fixed;
    void *allocated; /* NULL: they are in here */
    PJRT_Buffer *few_inputs[FEW], *few_results[FEW];
    int64_t few_fixed[FEW];
} launch_arrays;
bool launch_arrays_init(launch_arrays *a, int n_inputs, int n_results); /* false: no memory */
void launch_arrays_free(launch_arrays *a);

/* The plugin's execute call. */
status *pjrt_launch(pjrt_executable *e, PJRT_Device *device, int n_inputs, size_t n_fixed, const launch_arrays *a);
/* Result structs are made before the launch, which cannot be taken back, so that lack of memory is found in time. */
status *pjrt_results_create(pjrt_executable *e, pjrt_buffer **outputs);
void pjrt_results_release(pjrt_executable *e, pjrt_buffer **outputs);
/* Books what a launch gives and takes. */
void pjrt_launched(pjrt_executable *e, int n_inputs, pjrt_buffer *const *inputs, const bool *donate,
                   pjrt_buffer *const *outputs);

/* ---- the queue of launches ---- */
bool pjrt_queue_passed(uint64_t ticket);   /* all launches up to this one were made */
status *pjrt_queue_reach(uint64_t ticket); /* makes them; an error is lack of memory, and nothing is lost */
void pjrt_queue_drop(pjrt_buffer *b);      /* destroys it when nothing in the ring reads it any more */

/* Host memory for large arrays; its pages have been written before, often. NULL: there is none. */
typedef struct host_block host_block;
struct host_block {
    size_t size; /* whole pages */
    void *memory;
    const PJRT_Api *api; /* of the plugin that has it */
};
host_block *host_block_take(size_t bytes);
void host_block_give(host_block *b);

/* Shared by loaded executables and those compiled for a topology. */
status *pjrt_cost_read(const PJRT_Api *api, PJRT_Executable *executable, pjrt_cost *out);
status *pjrt_executable_bytes(const PJRT_Api *api, PJRT_Executable *executable, strbuf *out);

/* The options of a program that any one device may run (CompileOptionsProto.compile_portable_executable). */
void pjrt_compile_options_make_portable(strbuf *serialized);
/* PJRT_Program for MLIR text or bytecode, borrowed. */
PJRT_Program pjrt_program_mlir(const char *mlir, size_t size);

/* pjrt_tpu_attached below a directory other than "/", for tests. */
bool pjrt_tpu_attached_below(const char *root);

/* ---- counters ---- */
int64_t pjrt_clock_ns(void);
void pjrt_count_compile(int64_t ns);
void pjrt_count_execute(void);
void pjrt_count_host_to_device(int64_t bytes);
void pjrt_count_device_to_host(int64_t bytes);
void pjrt_count_buffer(int64_t bytes);      /* a buffer came to life */
void pjrt_count_buffer_gone(int64_t bytes); /* it died, or its memory was given to a result */

#endif
