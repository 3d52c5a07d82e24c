/* A PJRT plugin that runs on the CPU plugin named in AS_TPU_PLUGIN and says that it is a TPU v5e, attached or not: for
 * tests of what must be the same on a machine that has the device and on one that has not. */
#include <dlfcn.h>
#include <pjrt_c_api.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static const char platform[] = "tpu", version[] = "pretended", kind[] = "TPU v5 lite";
static PJRT_Api table;
static const PJRT_Api *real;
static int topology, device; /* their addresses stand for them */

static PJRT_Error *client_platform(PJRT_Client_PlatformName_Args *args) {
    args->platform_name = platform;
    args->platform_name_size = sizeof platform - 1;
    return NULL;
}

static PJRT_Error *client_version(PJRT_Client_PlatformVersion_Args *args) {
    args->platform_version = version;
    args->platform_version_size = sizeof version - 1;
    return NULL;
}

static PJRT_Error *device_kind(PJRT_DeviceDescription_Kind_Args *args) {
    args->device_kind = kind;
    args->device_kind_size = sizeof kind - 1;
    return NULL;
}

static PJRT_Error *device_attributes(PJRT_DeviceDescription_Attributes_Args *args) {
    if ((void *)args->device_description != &device) return real->PJRT_DeviceDescription_Attributes(args);
    args->num_attributes = 0;
    args->attributes = NULL;
    return NULL;
}

static PJRT_Error *topology_create(PJRT_TopologyDescription_Create_Args *args) {
    args->topology = (void *)&topology;
    return NULL;
}

static PJRT_Error *topology_destroy(PJRT_TopologyDescription_Destroy_Args *args) {
    (void)args;
    return NULL;
}

static PJRT_Error *topology_platform(PJRT_TopologyDescription_PlatformName_Args *args) {
    args->platform_name = platform;
    args->platform_name_size = sizeof platform - 1;
    return NULL;
}

static PJRT_Error *topology_version(PJRT_TopologyDescription_PlatformVersion_Args *args) {
    args->platform_version = version;
    args->platform_version_size = sizeof version - 1;
    return NULL;
}

static PJRT_Error *topology_devices(PJRT_TopologyDescription_GetDeviceDescriptions_Args *args) {
    static PJRT_DeviceDescription *const list[] = {(void *)&device};
    args->descriptions = list;
    args->num_descriptions = 1;
    return NULL;
}

static PJRT_Error *compile(PJRT_Compile_Args *args) {
    PJRT_Client_Create_Args create = {.struct_size = PJRT_Client_Create_Args_STRUCT_SIZE};
    PJRT_Error *error = real->PJRT_Client_Create(&create);
    if (error) return error;
    PJRT_Client_Compile_Args inner = {.struct_size = PJRT_Client_Compile_Args_STRUCT_SIZE,
                                      .client = create.client,
                                      .program = args->program,
                                      .compile_options = args->compile_options,
                                      .compile_options_size = args->compile_options_size};
    if ((error = real->PJRT_Client_Compile(&inner))) return error;
    PJRT_LoadedExecutable_GetExecutable_Args get = {.struct_size = PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE,
                                                    .loaded_executable = inner.executable};
    error = real->PJRT_LoadedExecutable_GetExecutable(&get);
    args->executable = get.executable;
    return error;
}

EXPORT const PJRT_Api *GetPjrtApi(void) {
    const char *path = getenv("AS_TPU_PLUGIN");
    void *library = path ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL,
         *symbol = library ? dlsym(library, "GetPjrtApi") : NULL;
    if (!symbol) return NULL;
    const PJRT_Api *(*get)(void);
    memcpy(&get, &symbol, sizeof get);
    real = get();
    memcpy(&table, real, real->struct_size < sizeof table ? real->struct_size : sizeof table);
    table.struct_size = real->struct_size < sizeof table ? real->struct_size : sizeof table;
    table.PJRT_Client_PlatformName = client_platform;
    table.PJRT_Client_PlatformVersion = client_version;
    table.PJRT_DeviceDescription_Kind = device_kind;
    table.PJRT_DeviceDescription_Attributes = device_attributes;
    table.PJRT_TopologyDescription_Create = topology_create;
    table.PJRT_TopologyDescription_Destroy = topology_destroy;
    table.PJRT_TopologyDescription_PlatformName = topology_platform;
    table.PJRT_TopologyDescription_PlatformVersion = topology_version;
    table.PJRT_TopologyDescription_GetDeviceDescriptions = topology_devices;
    table.PJRT_Compile = compile;
    return &table;
}
