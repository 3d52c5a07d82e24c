/* Loaded programs: compiling, launching, writing and reading them. */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "base/alloc.h"
#include "pjrt/internal.h"

/* ---- use ---- */

static _Atomic uint64_t uses;

static uint64_t next_use(void) { return atomic_fetch_add_explicit(&uses, 1, memory_order_relaxed); }

uint64_t pjrt_executable_last_use(const pjrt_executable *e) {
    return atomic_load_explicit(&e->use, memory_order_relaxed);
}

/* ---- loading ---- */

static void destroy_executable(const PJRT_Api *api, PJRT_Executable *executable) {
    PJRT_Executable_Destroy_Args args = PJRT_ARGS(PJRT_Executable_Destroy, .executable = executable);
    if (executable) status_free(PJRT_CALL(api, PJRT_Executable_Destroy, &args));
}

static void destroy_loaded(const PJRT_Api *api, PJRT_LoadedExecutable *loaded) {
    PJRT_LoadedExecutable_Destroy_Args args = PJRT_ARGS(PJRT_LoadedExecutable_Destroy, .executable = loaded);
    if (loaded) status_free(PJRT_CALL(api, PJRT_LoadedExecutable_Destroy, &args));
}

/* Types and sizes of the results, so that a launch need not ask for them buffer by buffer. */
static status *read_results(const PJRT_Api *api, pjrt_executable *e) {
    PJRT_Executable_OutputElementTypes_Args types =
        PJRT_ARGS(PJRT_Executable_OutputElementTypes, .executable = e->executable);
    STATUS_TRY(PJRT_CALL(api, PJRT_Executable_OutputElementTypes, &types));
    PJRT_Executable_OutputDimensions_Args dims =
        PJRT_ARGS(PJRT_Executable_OutputDimensions, .executable = e->executable);
    STATUS_TRY(PJRT_CALL(api, PJRT_Executable_OutputDimensions, &dims));
    if (types.num_output_types != (size_t)e->n_results || dims.num_outputs != (size_t)e->n_results)
        return status_new(STATUS_INTERNAL, "the PJRT plugin contradicts itself: %d results, %zu types, %zu shapes",
                          e->n_results, types.num_output_types, dims.num_outputs);
    const int64_t *next = dims.dims;
    for (int i = 0; i < e->n_results; i++) {
        pjrt_result_info *r = &e->results[i];
        r->type = pjrt_type_to_dtype(types.output_types[i]);
        r->rank = (int)dims.dim_sizes[i];
        if (!pjrt_dense_bytes(r->type, r->rank, next, &r->bytes))
            return status_new(STATUS_INTERNAL, "the PJRT plugin tells impossible dimensions of a result");
        next += r->rank;
        e->result_bytes += r->bytes;
    }
    return NULL;
}

/* Wraps what the plugin loaded; consumes it, also on failure. */
static status *adopt(pjrt_client *c, PJRT_LoadedExecutable *loaded, bool may_donate, pjrt_executable **out) {
    const PJRT_Api *api = c->api;
    pjrt_executable *e = NULL;
    PJRT_LoadedExecutable_GetExecutable_Args get =
        PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable, .loaded_executable = loaded);
    status *s = PJRT_CALL(api, PJRT_LoadedExecutable_GetExecutable, &get);
    PJRT_Executable_NumOutputs_Args count = PJRT_ARGS(PJRT_Executable_NumOutputs, .executable = get.executable);
    if (!s) s = PJRT_CALL(api, PJRT_Executable_NumOutputs, &count);
    if (!s && !(e = mem_alloc(sizeof *e + count.num_outputs * sizeof *e->results))) s = status_no_memory();
    if (s) {
        destroy_executable(api, get.executable);
        destroy_loaded(api, loaded);
        return s;
    }
    atomic_init(&e->references, 1);
    atomic_init(&e->use, next_use());
    e->n_results = (int)count.num_outputs;
    e->may_donate = may_donate;
    e->client = c;
    e->loaded = loaded;
    e->executable = get.executable;
    s = read_results(api, e);
    if (s) {
        pjrt_executable_release(e);
        return s;
    }
    *out = e;
    return NULL;
}

PJRT_Program pjrt_program_mlir(const char *mlir, size_t size) {
    return (PJRT_Program){.struct_size = PJRT_Program_STRUCT_SIZE,
                          .code = (char *)mlir, /* in and out in the struct; the compiler only reads it */
                          .code_size = size,
                          .format = "mlir",
                          .format_size = 4};
}

/* Whether the module says of any parameter that its memory may go to a result (the attributes that XLA's importer
 * reads). */
static bool says_donation(const char *mlir, size_t size) {
    static const char aliasing[] = "aliasing_output", donor[] = "buffer_donor";
    return memmem(mlir, size, aliasing, sizeof aliasing - 1) || memmem(mlir, size, donor, sizeof donor - 1);
}

status *pjrt_compile(pjrt_client *c, const char *mlir, size_t size, const pjrt_compile_options *o,
                     pjrt_executable **out) {
    static const pjrt_compile_options defaults;
    *out = NULL;
    if (!o) o = &defaults;
    strbuf options;
    strbuf_init(&options);
    pjrt_compile_options_serialize(o, &options);
    if (c->n_devices > 1 && o->num_replicas <= 1 && o->num_partitions <= 1)
        pjrt_compile_options_make_portable(&options);
    if (strbuf_failed(&options)) {
        strbuf_free(&options);
        return status_no_memory();
    }
    PJRT_Program program = pjrt_program_mlir(mlir, size);
    PJRT_Client_Compile_Args args = PJRT_ARGS(PJRT_Client_Compile, .client = c->client, .program = &program,
                                              .compile_options = options.data, .compile_options_size = options.size);
    int64_t start = pjrt_clock_ns();
    status *s = PJRT_CALL(c->api, PJRT_Client_Compile, &args);
    pjrt_count_compile(pjrt_clock_ns() - start);
    strbuf_free(&options);
    return s ? s : adopt(c, args.executable, says_donation(mlir, size), out);
}

pjrt_executable *pjrt_executable_retain(pjrt_executable *e) {
    atomic_fetch_add_explicit(&e->references, 1, memory_order_relaxed);
    return e;
}

void pjrt_executable_release(pjrt_executable *e) {
    if (!e || atomic_fetch_sub_explicit(&e->references, 1, memory_order_acq_rel) != 1) return;
    status *stuck = pjrt_queue_reach(e->used);
    status_free(stuck);
    if (stuck) return; /* a launch that waits for memory still needs it */
    destroy_executable(e->client->api, e->executable);
    destroy_loaded(e->client->api, e->loaded);
    mem_free(e);
}

int pjrt_executable_result_count(const pjrt_executable *e) { return e->n_results; }

status *pjrt_executable_cost(pjrt_executable *e, pjrt_cost *out) {
    return pjrt_cost_read(e->client->api, e->executable, out);
}

/* ---- writing and reading ---- */

status *pjrt_executable_bytes(const PJRT_Api *api, PJRT_Executable *executable, strbuf *out) {
    PJRT_Executable_Serialize_Args args = PJRT_ARGS(PJRT_Executable_Serialize, .executable = executable);
    STATUS_TRY(PJRT_CALL(api, PJRT_Executable_Serialize, &args));
    strbuf_append(out, args.serialized_bytes, args.serialized_bytes_size);
    if (args.serialized_executable_deleter) args.serialized_executable_deleter(args.serialized_executable);
    return strbuf_failed(out) ? status_no_memory() : NULL;
}

status *pjrt_executable_serialize(pjrt_executable *e, strbuf *out) {
    return pjrt_executable_bytes(e->client->api, e->executable, out);
}

status *pjrt_executable_deserialize(pjrt_client *c, const void *data, size_t size, pjrt_executable **out) {
    *out = NULL;
    PJRT_Executable_DeserializeAndLoad_Args args =
        PJRT_ARGS(PJRT_Executable_DeserializeAndLoad, .client = c->client, .serialized_executable = data,
                  .serialized_executable_size = size);
    STATUS_TRY(PJRT_CALL(c->api, PJRT_Executable_DeserializeAndLoad, &args));
    return adopt(c, args.loaded_executable, true, out); /* its text is gone: it may donate */
}

/* ---- launching ---- */

bool launch_arrays_init(launch_arrays *a, int n_inputs, int n_results) {
    size_t inputs = (size_t)n_inputs, results = (size_t)n_results;
    a->inputs = a->few_inputs;
    a->results = a->few_results;
    a->fixed = a->few_fixed;
    a->allocated = NULL;
    if (n_inputs <= FEW && n_results <= FEW) return true;
    a->allocated = mem_alloc((inputs + results) * sizeof(PJRT_Buffer *) + inputs * sizeof(int64_t));
    if (!a->allocated) return false;
    a->fixed = a->allocated;
    a->inputs = (PJRT_Buffer **)(a->fixed + inputs);
    a->results = a->inputs + inputs;
    return true;
}

void launch_arrays_free(launch_arrays *a) { mem_free(a->allocated); }

void pjrt_results_release(pjrt_executable *e, pjrt_buffer **outputs) {
    for (int i = 0; i < e->n_results; i++) {
        pjrt_buffer_release(outputs[i]);
        outputs[i] = NULL;
    }
}

status *pjrt_results_create(pjrt_executable *e, pjrt_buffer **outputs) {
    for (int i = 0; i < e->n_results; i++) {
        const pjrt_result_info *r = &e->results[i];
        outputs[i] = pjrt_buffer_new(e->client, r->type, r->rank, r->bytes);
        if (outputs[i]) continue;
        while (i-- > 0) {
            pjrt_buffer_release(outputs[i]);
            outputs[i] = NULL;
        }
        return status_no_memory();
    }
    return NULL;
}

status *pjrt_launch(pjrt_executable *e, PJRT_Device *device, int n_inputs, size_t n_fixed, const launch_arrays *a) {
    PJRT_ExecuteOptions options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE};
    if (e->may_donate) { /* otherwise nothing can be donated, and the list would only cost time */
        options.num_non_donatable_input_indices = n_fixed;
        options.non_donatable_input_indices = a->fixed;
    }
    PJRT_Buffer *const *argument_list = a->inputs;
    PJRT_LoadedExecutable_Execute_Args args = PJRT_ARGS(
        PJRT_LoadedExecutable_Execute, .executable = e->loaded, .options = &options, .argument_lists = &argument_list,
        .num_devices = 1, .num_args = (size_t)n_inputs, .output_lists = (PJRT_Buffer * *const *)&a->results,
        /* With one device there is nothing to choose, and not every plugin takes a choice. */
        .execute_device = e->client->n_devices > 1 ? device : NULL);
    return PJRT_CALL(e->client->api, PJRT_LoadedExecutable_Execute, &args);
}

void pjrt_launched(pjrt_executable *e, int n_inputs, pjrt_buffer *const *inputs, const bool *donate,
                   pjrt_buffer *const *outputs) {
    for (int i = 0; donate && i < n_inputs; i++)
        if (donate[i]) pjrt_buffer_unbook(inputs[i]);
    for (int i = 0; i < e->n_results; i++) pjrt_buffer_book(outputs[i]);
    atomic_store_explicit(&e->use, next_use(), memory_order_relaxed);
    pjrt_count_execute();
}

/* The inputs, once they are made; one that is given away must have been read by all others, too. */
static status *take_inputs(int n_inputs, pjrt_buffer *const *inputs, const bool *donate, launch_arrays *a,
                           size_t *n_fixed) {
    *n_fixed = 0;
    for (int i = 0; i < n_inputs; i++) {
        bool given = donate && donate[i];
        STATUS_TRY(pjrt_buffer_settle(inputs[i]));
        if (given) STATUS_TRY(pjrt_queue_reach(inputs[i]->used));
        if (!given) a->fixed[(*n_fixed)++] = i;
        a->inputs[i] = inputs[i]->buffer;
    }
    return NULL;
}

status *pjrt_execute(pjrt_executable *e, int device, int n_inputs, pjrt_buffer *const *inputs, const bool *donate,
                     pjrt_buffer **outputs) {
    launch_arrays a;
    PJRT_Device *target = NULL;
    size_t n_fixed;
    STATUS_TRY(pjrt_client_device(e->client, device, &target));
    if (!launch_arrays_init(&a, n_inputs, e->n_results)) return status_no_memory();
    status *s = take_inputs(n_inputs, inputs, donate, &a, &n_fixed);
    if (!s) s = pjrt_results_create(e, outputs);
    if (!s) {
        s = pjrt_launch(e, target, n_inputs, n_fixed, &a);
        if (s) pjrt_results_release(e, outputs);
    }
    for (int i = 0; !s && i < e->n_results; i++) outputs[i]->buffer = a.results[i];
    launch_arrays_free(&a);
    if (!s) pjrt_launched(e, n_inputs, inputs, donate, outputs);
    return s;
}
