/* Compiling for devices that are not there: a topology names them, and its compiler needs no client. */
#include <string.h>

#include "base/alloc.h"
#include "pjrt/internal.h"

struct pjrt_topology {
    const PJRT_Api *api;
    PJRT_TopologyDescription *topology;
};

status *pjrt_topology_create(pjrt_plugin *p, const char *name, pjrt_topology **out) {
    *out = NULL;
    pjrt_topology *t = mem_alloc(sizeof *t);
    if (!t) return status_no_memory();
    PJRT_TopologyDescription_Create_Args args =
        PJRT_ARGS(PJRT_TopologyDescription_Create, .topology_name = name, .topology_name_size = strlen(name));
    status *s = PJRT_CALL(p->api, PJRT_TopologyDescription_Create, &args);
    if (s) {
        mem_free(t);
        return status_prefix(s, "topology %s", name);
    }
    t->api = p->api;
    t->topology = args.topology;
    *out = t;
    return NULL;
}

void pjrt_topology_destroy(pjrt_topology *t) {
    if (!t) return;
    PJRT_TopologyDescription_Destroy_Args args = PJRT_ARGS(PJRT_TopologyDescription_Destroy, .topology = t->topology);
    status_free(PJRT_CALL(t->api, PJRT_TopologyDescription_Destroy, &args));
    mem_free(t);
}

static status *compile(pjrt_topology *t, const char *mlir, size_t size, const strbuf *options, PJRT_Executable **out) {
    PJRT_Program program = pjrt_program_mlir(mlir, size);
    PJRT_Compile_Args args = PJRT_ARGS(PJRT_Compile, .topology = t->topology, .program = &program,
                                       .compile_options = options->data, .compile_options_size = options->size);
    int64_t start = pjrt_clock_ns();
    status *s = PJRT_CALL(t->api, PJRT_Compile, &args);
    pjrt_count_compile(pjrt_clock_ns() - start);
    *out = args.executable;
    return s;
}

status *pjrt_compile_for_topology(pjrt_topology *t, const char *mlir, size_t size, const pjrt_compile_options *o,
                                  pjrt_cost *cost, strbuf *serialized) {
    static const pjrt_compile_options defaults;
    strbuf options;
    strbuf_init(&options);
    pjrt_compile_options_serialize(o ? o : &defaults, &options);
    PJRT_Executable *executable = NULL;
    status *s = strbuf_failed(&options) ? status_no_memory() : compile(t, mlir, size, &options, &executable);
    strbuf_free(&options);
    if (s) return s;
    if (cost) s = pjrt_cost_read(t->api, executable, cost);
    if (!s && serialized) s = pjrt_executable_bytes(t->api, executable, serialized);
    PJRT_Executable_Destroy_Args args = PJRT_ARGS(PJRT_Executable_Destroy, .executable = executable);
    status_free(PJRT_CALL(t->api, PJRT_Executable_Destroy, &args));
    return s;
}
