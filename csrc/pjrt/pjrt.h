/* A client of the PJRT C API that loads any plugin. PJRT's structs come from pjrt_c_api.h (PJRT 0.81); what a newer
 * plugin has besides is used only after checking struct_size, and every function pointer is checked before it is
 * called. All functions may be called from any thread; none holds a lock of ours while the plugin works. */
#ifndef PJRT_PJRT_H
#define PJRT_PJRT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"
#include "base/strbuf.h"

typedef struct pjrt_plugin pjrt_plugin;         /* a loaded shared library; never unloaded */
typedef struct pjrt_client pjrt_client;         /* left to the process at exit */
typedef struct pjrt_buffer pjrt_buffer;         /* reference-counted device array */
typedef struct pjrt_executable pjrt_executable; /* reference-counted, loaded */
typedef struct pjrt_topology pjrt_topology;

/* ---- plugin ---- */
/* Loads and initialises; the same path gives the same plugin. An error says whether the file is missing, is no shared
 * library, has no GetPjrtApi, or speaks another major version. Sets TPU_SKIP_MDS_QUERY=1 and
 * TPU_WORKER_HOSTNAMES=localhost first when no TPU is attached and they are unset, so that libtpu does not wait for a
 * metadata server. */
status *pjrt_plugin_load(const char *path, pjrt_plugin **out);
const char *pjrt_plugin_path(const pjrt_plugin *p);
void pjrt_plugin_version(const pjrt_plugin *p, int *major, int *minor);
bool pjrt_tpu_attached(void); /* accelerator device files or PCI ids; never asks a server, never loads anything */

/* ---- client ---- */
typedef struct {
    const char *name;
    bool is_string;
    const char *text;
    int64_t number;
} pjrt_option;
status *pjrt_client_create(pjrt_plugin *p, int n_options, const pjrt_option *options, pjrt_client **out);
void pjrt_client_destroy(pjrt_client *c);               /* for tests: the runtime leaves its client alone */
const char *pjrt_client_platform(const pjrt_client *c); /* "cpu", "tpu" */
const char *pjrt_client_platform_version(const pjrt_client *c);
int pjrt_client_device_count(const pjrt_client *c);             /* addressable */
const char *pjrt_device_kind(const pjrt_client *c, int device); /* "cpu", "TPU v5 lite" */
const char *pjrt_device_description(const pjrt_client *c, int device);
typedef struct {
    int64_t bytes_in_use, peak_bytes_in_use, bytes_limit; /* -1: unknown */
} pjrt_memory_stats;
status *pjrt_device_memory_stats(const pjrt_client *c, int device, pjrt_memory_stats *out);

/* ---- buffer ---- */
/* Copies from host memory, row-major dense; the host memory may be reused on return. */
status *pjrt_buffer_from_host(pjrt_client *c, int device, const void *data, dtype t, int rank, const int64_t *dims,
                              pjrt_buffer **out);
/* Copies to host memory, row-major dense, `size` bytes; returns when done. Errors of the computation that made it
 * surface here. */
status *pjrt_buffer_to_host(pjrt_buffer *b, void *data, size_t size);
status *pjrt_buffer_wait(pjrt_buffer *b); /* until it is ready, or its error */
bool pjrt_buffer_is_ready(pjrt_buffer *b);
bool pjrt_buffer_failed(pjrt_buffer *b); /* known to have no value; doesn't wait */
status *pjrt_buffer_copy_to_device(pjrt_buffer *b, int device, pjrt_buffer **out);
pjrt_buffer *pjrt_buffer_retain(pjrt_buffer *b);
void pjrt_buffer_release(pjrt_buffer *b); /* NULL is fine */
int pjrt_buffer_references(const pjrt_buffer *b);
int64_t pjrt_buffer_bytes(const pjrt_buffer *b); /* logical: elements times size */
dtype pjrt_buffer_dtype(const pjrt_buffer *b);
/* The device address where the plugin tells it (a CPU plugin: host memory), else NULL. */
status *pjrt_buffer_unsafe_pointer(pjrt_buffer *b, void **out);

/* ---- executable ---- */
typedef struct {
    int num_replicas, num_partitions; /* 0: 1 */
    bool use_spmd;
    int n_flags; /* XLA flags as option overrides: {"xla_cpu_enable_fast_min_max", "false"} */
    const char *const *flag_names, *const *flag_values;
} pjrt_compile_options;
void pjrt_compile_options_serialize(const pjrt_compile_options *o, strbuf *out); /* CompileOptionsProto's wire format */
status *pjrt_compile(pjrt_client *c, const char *mlir, size_t size, const pjrt_compile_options *o,
                     pjrt_executable **out);
pjrt_executable *pjrt_executable_retain(pjrt_executable *e);
void pjrt_executable_release(pjrt_executable *e);
/* When it was made or last launched: a count of such events, never the same for two of them. */
uint64_t pjrt_executable_last_use(const pjrt_executable *e);
int pjrt_executable_result_count(const pjrt_executable *e);
/* Launches on one device and returns without waiting. Inputs are borrowed; donate[i] says the caller gives buffer i up
 * (the program must alias it): after a successful launch the buffer is dead and the caller only releases it. outputs
 * get new references. */
status *pjrt_execute(pjrt_executable *e, int device, int n_inputs, pjrt_buffer *const *inputs,
                     const bool *donate /* NULL: none */, pjrt_buffer **outputs);
/* The same, and the plugin may be called later, by a thread of this library, where launches follow each other quickly.
 * An error of the launch is then the results': it surfaces where their values are wanted. Lack of memory surfaces at
 * the next launch or value; nothing is lost by it, and the launch is tried again. */
status *pjrt_execute_soon(pjrt_executable *e, int device, int n_inputs, pjrt_buffer *const *inputs, const bool *donate,
                          pjrt_buffer **outputs);
status *pjrt_queue_finish(void); /* until the plugin was called for all of these; an error is lack of memory */
status *pjrt_executable_serialize(pjrt_executable *e, strbuf *out);
status *pjrt_executable_deserialize(pjrt_client *c, const void *data, size_t size, pjrt_executable **out);
typedef struct {
    double optimal_seconds, flops, bytes_accessed;
    int64_t argument_bytes, output_bytes, temp_bytes, alias_bytes, code_bytes; /* -1: unknown */
} pjrt_cost;
status *pjrt_executable_cost(pjrt_executable *e, pjrt_cost *out);

/* ---- compiling for a topology that is not attached ---- */
status *pjrt_topology_create(pjrt_plugin *p, const char *name, pjrt_topology **out);
void pjrt_topology_destroy(pjrt_topology *t);
typedef struct {
    int devices;
    int64_t memory_bytes;           /* of a device, as far as programs may use it; -1: unknown */
    strbuf platform, version, kind; /* as a client with such devices tells them */
} pjrt_topology_info;
status *pjrt_topology_describe(pjrt_topology *t, pjrt_topology_info *out); /* on success, pjrt_topology_info_free it */
void pjrt_topology_info_free(pjrt_topology_info *info);
/* What of a compiled program is wanted; each may be NULL. */
typedef struct {
    pjrt_cost *cost;
    strbuf *serialized;
    strbuf *optimized; /* HloModuleProto, or HloModuleProtoWithConfig */
    bool *with_config; /* which of the two */
} pjrt_compiled;
/* On a topology of several devices the program is one that any of them may run, as pjrt_compile's. */
status *pjrt_compile_for_topology(pjrt_topology *t, const char *mlir, size_t size, const pjrt_compile_options *o,
                                  const pjrt_compiled *wanted);

/* ---- counters, all atomic ---- */
typedef struct {
    int64_t compiles, compile_ns, executes, host_to_device, device_to_host, host_to_device_bytes, device_to_host_bytes,
        live_buffers, live_bytes, peak_bytes;
} pjrt_counters;
void pjrt_counters_read(pjrt_counters *out);
void pjrt_counters_reset_peak(void);

#endif
