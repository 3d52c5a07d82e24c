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

/* ---- what it says of itself ---- */

static status *first_device(pjrt_topology *t, pjrt_topology_info *out, PJRT_DeviceDescription **device) {
    PJRT_TopologyDescription_GetDeviceDescriptions_Args args =
        PJRT_ARGS(PJRT_TopologyDescription_GetDeviceDescriptions, .topology = t->topology);
    STATUS_TRY(PJRT_CALL(t->api, PJRT_TopologyDescription_GetDeviceDescriptions, &args));
    if (!args.num_descriptions) return status_new(STATUS_RUNTIME, "the PJRT plugin's topology has no devices");
    out->devices = (int)args.num_descriptions;
    *device = args.descriptions[0];
    return NULL;
}

static status *read_device(pjrt_topology *t, PJRT_DeviceDescription *device, pjrt_topology_info *out) {
    PJRT_DeviceDescription_Kind_Args kind = PJRT_ARGS(PJRT_DeviceDescription_Kind, .device_description = device);
    STATUS_TRY(PJRT_CALL(t->api, PJRT_DeviceDescription_Kind, &kind));
    strbuf_append(&out->kind, kind.device_kind, kind.device_kind_size);
    PJRT_DeviceDescription_Attributes_Args list =
        PJRT_ARGS(PJRT_DeviceDescription_Attributes, .device_description = device);
    STATUS_TRY(PJRT_CALL(t->api, PJRT_DeviceDescription_Attributes, &list));
    static const char memory[] = "device_memory_bytes_limit";
    for (size_t i = 0; i < list.num_attributes; i++) {
        const PJRT_NamedValue *v = &list.attributes[i];
        if (v->name_size == sizeof memory - 1 && memcmp(v->name, memory, v->name_size) == 0 &&
            v->type == PJRT_NamedValue_kInt64)
            out->memory_bytes = v->int64_value;
    }
    return NULL;
}

static status *describe(pjrt_topology *t, pjrt_topology_info *out) {
    PJRT_TopologyDescription_PlatformName_Args name =
        PJRT_ARGS(PJRT_TopologyDescription_PlatformName, .topology = t->topology);
    STATUS_TRY(PJRT_CALL(t->api, PJRT_TopologyDescription_PlatformName, &name));
    strbuf_append(&out->platform, name.platform_name, name.platform_name_size);
    PJRT_TopologyDescription_PlatformVersion_Args version =
        PJRT_ARGS(PJRT_TopologyDescription_PlatformVersion, .topology = t->topology);
    STATUS_TRY(PJRT_CALL(t->api, PJRT_TopologyDescription_PlatformVersion, &version));
    strbuf_append(&out->version, version.platform_version, version.platform_version_size);
    PJRT_DeviceDescription *device = NULL;
    STATUS_TRY(first_device(t, out, &device));
    STATUS_TRY(read_device(t, device, out));
    bool failed = strbuf_failed(&out->platform) || strbuf_failed(&out->version) || strbuf_failed(&out->kind);
    return failed ? status_no_memory() : NULL;
}

void pjrt_topology_info_free(pjrt_topology_info *info) {
    strbuf_free(&info->platform);
    strbuf_free(&info->version);
    strbuf_free(&info->kind);
}

status *pjrt_topology_describe(pjrt_topology *t, pjrt_topology_info *out) {
    *out = (pjrt_topology_info){.memory_bytes = -1};
    status *s = describe(t, out);
    if (s) pjrt_topology_info_free(out);
    return s;
}

/* ---- compiling ---- */

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

/* Asked twice: first for the size. */
static status *read_optimized(const PJRT_Api *api, PJRT_Executable *executable, strbuf *out, bool *with_config) {
    PJRT_Program program = {.struct_size = PJRT_Program_STRUCT_SIZE};
    PJRT_Executable_OptimizedProgram_Args args =
        PJRT_ARGS(PJRT_Executable_OptimizedProgram, .executable = executable, .program = &program);
    STATUS_TRY(PJRT_CALL(api, PJRT_Executable_OptimizedProgram, &args));
    program.code = mem_alloc(program.code_size + 1);
    if (!program.code) return status_no_memory();
    status *s = PJRT_CALL(api, PJRT_Executable_OptimizedProgram, &args);
    static const char configured[] = "hlo_with_config";
    if (with_config)
        *with_config = !s && program.format_size == sizeof configured - 1 &&
                       memcmp(program.format, configured, program.format_size) == 0;
    if (!s) strbuf_append(out, program.code, program.code_size);
    mem_free(program.code);
    return s ? s : strbuf_failed(out) ? status_no_memory() : NULL;
}

static status *read_wanted(const PJRT_Api *api, PJRT_Executable *executable, const pjrt_compiled *wanted) {
    if (wanted->cost) STATUS_TRY(pjrt_cost_read(api, executable, wanted->cost));
    if (wanted->serialized) STATUS_TRY(pjrt_executable_bytes(api, executable, wanted->serialized));
    if (wanted->optimized) STATUS_TRY(read_optimized(api, executable, wanted->optimized, wanted->with_config));
    return NULL;
}

static int count_devices(pjrt_topology *t) {
    pjrt_topology_info info = {0};
    PJRT_DeviceDescription *device;
    status *s = first_device(t, &info, &device);
    status_free(s); /* a plugin that does not tell: one */
    return s ? 1 : info.devices;
}

status *pjrt_compile_for_topology(pjrt_topology *t, const char *mlir, size_t size, const pjrt_compile_options *o,
                                  const pjrt_compiled *wanted) {
    static const pjrt_compile_options defaults;
    strbuf options;
    strbuf_init(&options);
    if (!o) o = &defaults;
    pjrt_compile_options_serialize(o, &options);
    if (o->num_replicas <= 1 && o->num_partitions <= 1 && count_devices(t) > 1)
        pjrt_compile_options_make_portable(&options);
    PJRT_Executable *executable = NULL;
    status *s = strbuf_failed(&options) ? status_no_memory() : compile(t, mlir, size, &options, &executable);
    strbuf_free(&options);
    if (s) return s;
    if (wanted) s = read_wanted(t->api, executable, wanted);
    PJRT_Executable_Destroy_Args args = PJRT_ARGS(PJRT_Executable_Destroy, .executable = executable);
    status_free(PJRT_CALL(t->api, PJRT_Executable_Destroy, &args));
    return s;
}
