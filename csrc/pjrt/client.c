/* A client and its devices. Their names are read once, when the client is made. */
#include <string.h>

#include "base/alloc.h"
#include "pjrt/internal.h"

/* ---- creation ---- */

static status *create_client(const PJRT_Api *api, int n_options, const pjrt_option *options, PJRT_Client **out) {
    PJRT_NamedValue *values = NULL;
    if (n_options > 0 && !(values = mem_alloc((size_t)n_options * sizeof *values))) return status_no_memory();
    for (int i = 0; i < n_options; i++) {
        const pjrt_option *o = &options[i];
        values[i] = (PJRT_NamedValue){
            .struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = o->name, .name_size = strlen(o->name)};
        values[i].type = o->is_string ? PJRT_NamedValue_kString : PJRT_NamedValue_kInt64;
        values[i].value_size = o->is_string ? strlen(o->text) : 1;
        if (o->is_string)
            values[i].string_value = o->text;
        else
            values[i].int64_value = o->number;
    }
    PJRT_Client_Create_Args args =
        PJRT_ARGS(PJRT_Client_Create, .create_options = values, .num_options = (size_t)n_options);
    status *s = PJRT_CALL(api, PJRT_Client_Create, &args);
    mem_free(values);
    *out = args.client;
    return s;
}

/* A NUL-terminated copy in the client's arena. */
static status *keep_text(pjrt_client *c, const char *text, size_t size, const char **out) {
    char *copy = arena_alloc(c->memory, size + 1);
    if (!copy) return status_no_memory();
    if (size) memcpy(copy, text, size);
    *out = copy;
    return NULL;
}

static status *read_platform(pjrt_client *c) {
    PJRT_Client_PlatformName_Args name = PJRT_ARGS(PJRT_Client_PlatformName, .client = c->client);
    STATUS_TRY(PJRT_CALL(c->api, PJRT_Client_PlatformName, &name));
    STATUS_TRY(keep_text(c, name.platform_name, name.platform_name_size, &c->platform));
    PJRT_Client_PlatformVersion_Args version = PJRT_ARGS(PJRT_Client_PlatformVersion, .client = c->client);
    STATUS_TRY(PJRT_CALL(c->api, PJRT_Client_PlatformVersion, &version));
    return keep_text(c, version.platform_version, version.platform_version_size, &c->platform_version);
}

static status *read_device(pjrt_client *c, PJRT_Device *device, pjrt_device *out) {
    out->device = device;
    PJRT_Device_GetDescription_Args get = PJRT_ARGS(PJRT_Device_GetDescription, .device = device);
    STATUS_TRY(PJRT_CALL(c->api, PJRT_Device_GetDescription, &get));
    PJRT_DeviceDescription_Kind_Args kind =
        PJRT_ARGS(PJRT_DeviceDescription_Kind, .device_description = get.device_description);
    STATUS_TRY(PJRT_CALL(c->api, PJRT_DeviceDescription_Kind, &kind));
    STATUS_TRY(keep_text(c, kind.device_kind, kind.device_kind_size, &out->kind));
    PJRT_DeviceDescription_ToString_Args text =
        PJRT_ARGS(PJRT_DeviceDescription_ToString, .device_description = get.device_description);
    STATUS_TRY(PJRT_CALL(c->api, PJRT_DeviceDescription_ToString, &text));
    return keep_text(c, text.to_string, text.to_string_size, &out->description);
}

static status *read_devices(pjrt_client *c) {
    PJRT_Client_AddressableDevices_Args args = PJRT_ARGS(PJRT_Client_AddressableDevices, .client = c->client);
    STATUS_TRY(PJRT_CALL(c->api, PJRT_Client_AddressableDevices, &args));
    c->devices = ARENA_NEW(c->memory, pjrt_device, args.num_addressable_devices);
    if (!c->devices) return status_no_memory();
    for (size_t i = 0; i < args.num_addressable_devices; i++)
        STATUS_TRY(read_device(c, args.addressable_devices[i], &c->devices[i]));
    c->n_devices = (int)args.num_addressable_devices;
    return NULL;
}

status *pjrt_client_create(pjrt_plugin *p, int n_options, const pjrt_option *options, pjrt_client **out) {
    *out = NULL;
    arena *memory = arena_create();
    pjrt_client *c = memory ? ARENA_NEW(memory, pjrt_client, 1) : NULL;
    if (!c) return status_no_memory();
    c->memory = memory;
    c->api = p->api;
    status *s = create_client(c->api, n_options, options, &c->client);
    if (!s) s = read_platform(c);
    if (!s) s = read_devices(c);
    if (s)
        pjrt_client_destroy(c);
    else
        *out = c;
    return s;
}

void pjrt_client_destroy(pjrt_client *c) {
    if (!c) return;
    status_free(pjrt_queue_finish());
    PJRT_Client_Destroy_Args args = PJRT_ARGS(PJRT_Client_Destroy, .client = c->client);
    if (c->client) status_free(PJRT_CALL(c->api, PJRT_Client_Destroy, &args));
    arena_destroy(c->memory);
}

/* ---- questions ---- */

const char *pjrt_client_platform(const pjrt_client *c) { return c->platform; }
const char *pjrt_client_platform_version(const pjrt_client *c) { return c->platform_version; }
int pjrt_client_device_count(const pjrt_client *c) { return c->n_devices; }

static bool is_device(const pjrt_client *c, int device) { return device >= 0 && device < c->n_devices; }

const char *pjrt_device_kind(const pjrt_client *c, int device) {
    return is_device(c, device) ? c->devices[device].kind : "";
}

const char *pjrt_device_description(const pjrt_client *c, int device) {
    return is_device(c, device) ? c->devices[device].description : "";
}

status *pjrt_client_device(const pjrt_client *c, int device, PJRT_Device **out) {
    if (!is_device(c, device))
        return status_new(STATUS_NOT_FOUND, "no device %d: %s has %d", device, c->platform, c->n_devices);
    *out = c->devices[device].device;
    return NULL;
}

status *pjrt_device_memory_stats(const pjrt_client *c, int device, pjrt_memory_stats *out) {
    *out = (pjrt_memory_stats){-1, -1, -1};
    PJRT_Device_MemoryStats_Args args = PJRT_ARGS(PJRT_Device_MemoryStats, );
    STATUS_TRY(pjrt_client_device(c, device, &args.device));
    if (!PJRT_HAS(c->api, PJRT_Device_MemoryStats)) return NULL;
    status *s = PJRT_CALL(c->api, PJRT_Device_MemoryStats, &args);
    if (s && status_get_code(s) == STATUS_NOT_IMPLEMENTED) { /* a CPU plugin keeps no such books */
        status_free(s);
        return NULL;
    }
    if (s) return s;
    out->bytes_in_use = args.bytes_in_use;
    if (args.peak_bytes_in_use_is_set) out->peak_bytes_in_use = args.peak_bytes_in_use;
    if (args.bytes_limit_is_set) out->bytes_limit = args.bytes_limit;
    return NULL;
}
