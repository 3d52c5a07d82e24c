/* The fake plugin, a shared library. FAKE_PJRT in the environment makes GetPjrtApi misbehave: "null", "major", "short".
 */
#include "fake_plugin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- objects ---- */

/* Everything given out is one of these, in a list, so that what a test had to leak can still be freed. */
typedef struct object {
    struct object *previous, *next;
} object;

struct PJRT_Error {
    object base;
    PJRT_Error_Code code;
    const char *message;
};
struct PJRT_Event {
    object base;
    bool failed;
};
struct PJRT_Client {
    object base;
};
struct PJRT_DeviceDescription {
    int id;
};
struct PJRT_Device {
    struct PJRT_DeviceDescription description;
};
struct PJRT_Buffer {
    object base;
    PJRT_Buffer_Type type;
    int64_t dims[8];
    size_t rank, size;
    bool deleted, failed;
    char data[];
};
struct PJRT_Executable {
    object base;
};
struct PJRT_LoadedExecutable {
    object base;
    bool adds;
};
struct PJRT_SerializedExecutable {
    object base;
};
struct PJRT_TopologyDescription {
    object base;
};

static fake_plugin state;
static pthread_t owner;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list and the counts */
static object objects = {&objects, &objects};
static PJRT_Device devices[FAKE_MAX_DEVICES];
static PJRT_Device *const device_list[FAKE_MAX_DEVICES] = {&devices[0], &devices[1], &devices[2], &devices[3]};

static void *new_object(size_t size) {
    object *o = calloc(1, size);
    pthread_mutex_lock(&lock);
    o->next = &objects;
    o->previous = objects.previous;
    o->previous->next = o->next->previous = o;
    state.live_objects++;
    pthread_mutex_unlock(&lock);
    return o;
}

static void free_object(void *p) {
    object *o = p;
    if (!o) return;
    pthread_mutex_lock(&lock);
    o->previous->next = o->next;
    o->next->previous = o->previous;
    state.live_objects--;
    pthread_mutex_unlock(&lock);
    free(o);
}

/* ---- failing on demand ---- */

static PJRT_Error *new_error(PJRT_Error_Code code, const char *message) {
    PJRT_Error *e = new_object(sizeof *e);
    e->code = code;
    e->message = message;
    return e;
}

static PJRT_Error *enter(const char *function, size_t size, size_t expected) {
    if (size != expected) return new_error(PJRT_Error_Code_INVALID_ARGUMENT, "wrong struct_size");
    pthread_mutex_lock(&lock);
    state.calls++;
    bool fails = state.fail_call > 0 && --state.fail_call == 0;
    if (fails) state.failed_function = function;
    pthread_mutex_unlock(&lock);
    if (!fails) return NULL;
    return new_error(state.fail_code, "failed on demand");
}

#define FAKE(function) static PJRT_Error *fake_##function(function##_Args *args)
#define ENTER(function)                                                                        \
    do {                                                                                       \
        PJRT_Error *error_ = enter(#function, args->struct_size, function##_Args_STRUCT_SIZE); \
        if (error_) return error_;                                                             \
    } while (0)

/* A function that frees what one field names; it frees even when it then fails, as the real ones do. */
#define FAKE_DESTROY(function, field) \
    FAKE(function) {                  \
        free_object(args->field);     \
        ENTER(function);              \
        return NULL;                  \
    }

/* ---- errors, events ---- */

static void fake_PJRT_Error_Destroy(PJRT_Error_Destroy_Args *args) { free_object(args->error); }

static void fake_PJRT_Error_Message(PJRT_Error_Message_Args *args) {
    args->message = args->error->message;
    args->message_size = strlen(args->message);
}

static PJRT_Error *fake_PJRT_Error_GetCode(PJRT_Error_GetCode_Args *args) {
    args->code = args->error->code;
    return NULL;
}

static PJRT_Event *new_event(bool failed) {
    PJRT_Event *e = new_object(sizeof *e);
    e->failed = failed;
    return e;
}

FAKE_DESTROY(PJRT_Event_Destroy, event)

FAKE(PJRT_Event_IsReady) {
    ENTER(PJRT_Event_IsReady);
    args->is_ready = true;
    return NULL;
}

FAKE(PJRT_Event_Await) {
    ENTER(PJRT_Event_Await);
    return args->event->failed ? new_error(PJRT_Error_Code_INTERNAL, "the computation failed") : NULL;
}

/* ---- client, devices ---- */

FAKE(PJRT_Plugin_Initialize) {
    ENTER(PJRT_Plugin_Initialize);
    state.initialized++;
    return NULL;
}

static void note_option(const PJRT_NamedValue *v) {
    size_t used = strlen(state.option_text), room = sizeof state.option_text - used;
    if (v->name_size + 24 > room) return;
    char *text = state.option_text + used;
    memcpy(text, v->name, v->name_size);
    text[v->name_size] = '=';
    text += v->name_size + 1;
    if (v->type == PJRT_NamedValue_kString) {
        memcpy(text, v->string_value, v->value_size);
        text[v->value_size] = ' ';
    } else {
        text[0] = (char)('0' + v->int64_value % 10);
        text[1] = ' ';
    }
}

FAKE(PJRT_Client_Create) {
    ENTER(PJRT_Client_Create);
    state.n_options = args->num_options;
    state.option_text[0] = '\0';
    for (size_t i = 0; i < args->num_options; i++) note_option(&args->create_options[i]);
    args->client = new_object(sizeof *args->client);
    return NULL;
}

FAKE_DESTROY(PJRT_Client_Destroy, client)

FAKE(PJRT_Client_PlatformName) {
    ENTER(PJRT_Client_PlatformName);
    args->platform_name = "fake platform";
    args->platform_name_size = 4; /* not NUL-terminated */
    return NULL;
}

FAKE(PJRT_Client_PlatformVersion) {
    ENTER(PJRT_Client_PlatformVersion);
    args->platform_version = "1.2";
    args->platform_version_size = 3;
    return NULL;
}

FAKE(PJRT_Client_AddressableDevices) {
    ENTER(PJRT_Client_AddressableDevices);
    args->addressable_devices = device_list;
    args->num_addressable_devices = (size_t)state.n_devices;
    return NULL;
}

FAKE(PJRT_Device_GetDescription) {
    ENTER(PJRT_Device_GetDescription);
    args->device_description = &args->device->description;
    return NULL;
}

FAKE(PJRT_DeviceDescription_Kind) {
    ENTER(PJRT_DeviceDescription_Kind);
    args->device_kind = "fake chip";
    args->device_kind_size = 9;
    return NULL;
}

FAKE(PJRT_DeviceDescription_ToString) {
    ENTER(PJRT_DeviceDescription_ToString);
    static const char *const names[] = {"Fake0", "Fake1", "Fake2", "Fake3"};
    args->to_string = names[args->device_description->id];
    args->to_string_size = 5;
    return NULL;
}

FAKE(PJRT_Device_MemoryStats) {
    ENTER(PJRT_Device_MemoryStats);
    args->bytes_in_use = 100;
    args->bytes_limit = 1000;
    args->bytes_limit_is_set = true;
    return NULL;
}

/* ---- buffers ---- */

static size_t type_size(PJRT_Buffer_Type type) { return type == PJRT_Buffer_Type_F32 ? 4 : 1; }

static PJRT_Buffer *new_buffer(PJRT_Buffer_Type type, const int64_t *dims, size_t rank, const void *data) {
    size_t size = type_size(type);
    for (size_t i = 0; i < rank; i++) size *= (size_t)dims[i];
    PJRT_Buffer *b = new_object(sizeof *b + size);
    b->type = type;
    b->rank = rank;
    b->size = size;
    if (rank) memcpy(b->dims, dims, rank * sizeof *dims);
    if (size) memcpy(b->data, data, size);
    return b;
}

FAKE(PJRT_Client_BufferFromHostBuffer) {
    ENTER(PJRT_Client_BufferFromHostBuffer);
    args->buffer = new_buffer(args->type, args->dims, args->num_dims, args->data);
    args->done_with_host_buffer = new_event(false);
    return NULL;
}

FAKE_DESTROY(PJRT_Buffer_Destroy, buffer)

FAKE(PJRT_Buffer_ReadyEvent) {
    ENTER(PJRT_Buffer_ReadyEvent);
    args->event = new_event(args->buffer->deleted || args->buffer->failed);
    return NULL;
}

FAKE(PJRT_Buffer_ToHostBuffer) {
    ENTER(PJRT_Buffer_ToHostBuffer);
    state.host_copies++;
    state.host_layout_size = args->host_layout ? args->host_layout->tiled.minor_to_major_size : 0;
    for (size_t i = 0; i < state.host_layout_size; i++)
        state.host_layout[i] = args->host_layout->tiled.minor_to_major[i];
    memcpy(args->dst, args->src->data, args->src->size);
    args->event = new_event(args->src->deleted || args->src->failed);
    return NULL;
}

FAKE(PJRT_Buffer_IsOnCpu) {
    ENTER(PJRT_Buffer_IsOnCpu);
    args->is_on_cpu = state.on_cpu;
    return NULL;
}

FAKE(PJRT_Buffer_GetMemoryLayout) {
    ENTER(PJRT_Buffer_GetMemoryLayout);
    static const int64_t rows[] = {1, 0}, columns[] = {0, 1};
    args->layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
    args->layout.tiled.minor_to_major = state.column_major ? columns : rows;
    args->layout.tiled.minor_to_major_size = 2;
    return NULL;
}

FAKE(PJRT_Buffer_IncreaseExternalReferenceCount) {
    ENTER(PJRT_Buffer_IncreaseExternalReferenceCount);
    state.in_place_holds++;
    return NULL;
}

FAKE(PJRT_Buffer_DecreaseExternalReferenceCount) {
    ENTER(PJRT_Buffer_DecreaseExternalReferenceCount);
    return NULL;
}

FAKE(PJRT_Buffer_UnsafePointer) {
    ENTER(PJRT_Buffer_UnsafePointer);
    args->buffer_pointer = (uintptr_t)args->buffer->data;
    return NULL;
}

FAKE(PJRT_Buffer_CopyToDevice) {
    ENTER(PJRT_Buffer_CopyToDevice);
    args->dst_buffer = new_buffer(args->buffer->type, args->buffer->dims, args->buffer->rank, args->buffer->data);
    return NULL;
}

/* ---- programs ---- */

FAKE(PJRT_Client_Compile) {
    ENTER(PJRT_Client_Compile);
    state.compile_options_size = args->compile_options_size;
    if (args->compile_options_size <= sizeof state.compile_options)
        memcpy(state.compile_options, args->compile_options, args->compile_options_size);
    if (args->program->code_size == 0) return new_error(PJRT_Error_Code_INVALID_ARGUMENT, "an empty program");
    args->executable = new_object(sizeof *args->executable);
    args->executable->adds = args->program->code_size >= 3 && memcmp(args->program->code, "add", 3) == 0;
    return NULL;
}

FAKE_DESTROY(PJRT_LoadedExecutable_Destroy, executable)
FAKE_DESTROY(PJRT_Executable_Destroy, executable)

FAKE(PJRT_LoadedExecutable_GetExecutable) {
    ENTER(PJRT_LoadedExecutable_GetExecutable);
    args->executable = new_object(sizeof *args->executable);
    return NULL;
}

FAKE(PJRT_Executable_NumOutputs) {
    ENTER(PJRT_Executable_NumOutputs);
    args->num_outputs = (size_t)state.n_results;
    return NULL;
}

FAKE(PJRT_Executable_OutputElementTypes) {
    ENTER(PJRT_Executable_OutputElementTypes);
    static PJRT_Buffer_Type types[FAKE_MAX_LIST];
    for (int i = 0; i < FAKE_MAX_LIST; i++) types[i] = PJRT_Buffer_Type_F32;
    args->output_types = types;
    args->num_output_types = (size_t)state.n_results;
    return NULL;
}

FAKE(PJRT_Executable_OutputDimensions) {
    ENTER(PJRT_Executable_OutputDimensions);
    static int64_t dims[2 * FAKE_MAX_LIST];
    static size_t ranks[FAKE_MAX_LIST];
    for (int i = 0; i < FAKE_MAX_LIST; i++) {
        dims[2 * i] = state.impossible_results ? -1 : 2;
        dims[2 * i + 1] = 3;
        ranks[i] = 2;
    }
    args->num_outputs = (size_t)state.n_results;
    args->dims = dims;
    args->dim_sizes = ranks;
    return NULL;
}

static bool is_fixed(const PJRT_ExecuteOptions *options, size_t input) {
    for (size_t i = 0; i < options->num_non_donatable_input_indices; i++)
        if (options->non_donatable_input_indices[i] == (int64_t)input) return true;
    return false;
}

FAKE(PJRT_LoadedExecutable_Execute) {
    ENTER(PJRT_LoadedExecutable_Execute);
    while (state.holds && !pthread_equal(pthread_self(), owner)) usleep(100);
    if (state.no_memory) return new_error(PJRT_Error_Code_RESOURCE_EXHAUSTED, "no memory for it");
    if (state.rejects) return new_error(PJRT_Error_Code_INTERNAL, "rejected");
    const PJRT_ExecuteOptions *options = args->options;
    state.n_arguments = args->num_args;
    state.launched_on = args->execute_device ? args->execute_device->description.id : -1;
    state.n_fixed = options->num_non_donatable_input_indices;
    for (size_t i = 0; i < state.n_fixed && i < FAKE_MAX_LIST; i++)
        state.fixed[i] = options->non_donatable_input_indices[i];
    PJRT_Buffer *const *inputs = args->argument_lists[0];
    for (int i = 0; i < state.n_results; i++) {
        float values[6] = {0};
        if (args->num_args) memcpy(values, inputs[0]->data, sizeof values);
        for (int k = 0; k < 6; k++) values[k] += args->executable->adds;
        PJRT_Buffer *result = new_buffer(PJRT_Buffer_Type_F32, (int64_t[]){2, 3}, 2, values);
        result->failed = state.computation_fails;
        for (size_t k = 0; k < args->num_args; k++) result->failed |= inputs[k]->deleted || inputs[k]->failed;
        args->output_lists[0][i] = result;
    }
    for (size_t i = 0; state.n_fixed && i < args->num_args; i++)
        if (!is_fixed(options, i)) inputs[i]->deleted = true;
    return NULL;
}

static void delete_serialized(PJRT_SerializedExecutable *serialized) { free_object(serialized); }

FAKE(PJRT_Executable_Serialize) {
    ENTER(PJRT_Executable_Serialize);
    args->serialized_bytes = "a\0program";
    args->serialized_bytes_size = 9;
    args->serialized_executable = new_object(sizeof *args->serialized_executable);
    args->serialized_executable_deleter = delete_serialized;
    return NULL;
}

FAKE(PJRT_Executable_DeserializeAndLoad) {
    ENTER(PJRT_Executable_DeserializeAndLoad);
    if (args->serialized_executable_size != 9 || memcmp(args->serialized_executable, "a\0program", 9) != 0)
        return new_error(PJRT_Error_Code_INVALID_ARGUMENT, "no program of this plugin");
    args->loaded_executable = new_object(sizeof *args->loaded_executable);
    return NULL;
}

FAKE(PJRT_Executable_GetCostAnalysis) {
    ENTER(PJRT_Executable_GetCostAnalysis);
    static PJRT_NamedValue properties[4] = {
        {.name = "flops", .name_size = 5, .type = PJRT_NamedValue_kFloat, .float_value = 12},
        {.name = "bytes accessed", .name_size = 14, .type = PJRT_NamedValue_kInt64, .int64_value = 72},
        {.name = "optimal_seconds", .name_size = 15, .type = PJRT_NamedValue_kFloat},
        {.name = "flops of others", .name_size = 15, .type = PJRT_NamedValue_kFloat, .float_value = 99},
    };
    properties[2].float_value = state.optimal_seconds;
    args->properties = properties;
    args->num_properties = 4;
    return NULL;
}

FAKE(PJRT_Executable_GetCompiledMemoryStats) {
    ENTER(PJRT_Executable_GetCompiledMemoryStats);
    args->argument_size_in_bytes = 48;
    args->output_size_in_bytes = 24;
    args->temp_size_in_bytes = 7;
    args->alias_size_in_bytes = 5;
    args->generated_code_size_in_bytes = 3;
    return NULL;
}

FAKE(PJRT_TopologyDescription_Create) {
    ENTER(PJRT_TopologyDescription_Create);
    args->topology = new_object(sizeof *args->topology);
    return NULL;
}

FAKE_DESTROY(PJRT_TopologyDescription_Destroy, topology)

FAKE(PJRT_Compile) {
    ENTER(PJRT_Compile);
    args->executable = new_object(sizeof *args->executable);
    return NULL;
}

/* ---- the table ---- */

#define ENTRY(function) .function = fake_##function

static const PJRT_Api table = {
    .struct_size = PJRT_Api_STRUCT_SIZE,
    .pjrt_api_version = {.struct_size = PJRT_Api_Version_STRUCT_SIZE,
                         .major_version = PJRT_API_MAJOR,
                         .minor_version = 7},
    ENTRY(PJRT_Error_Destroy),
    ENTRY(PJRT_Error_Message),
    ENTRY(PJRT_Error_GetCode),
    ENTRY(PJRT_Plugin_Initialize),
    ENTRY(PJRT_Event_Destroy),
    ENTRY(PJRT_Event_IsReady),
    ENTRY(PJRT_Event_Await),
    ENTRY(PJRT_Client_Create),
    ENTRY(PJRT_Client_Destroy),
    ENTRY(PJRT_Client_PlatformName),
    ENTRY(PJRT_Client_PlatformVersion),
    ENTRY(PJRT_Client_AddressableDevices),
    ENTRY(PJRT_Device_GetDescription),
    ENTRY(PJRT_DeviceDescription_Kind),
    ENTRY(PJRT_DeviceDescription_ToString),
    ENTRY(PJRT_Device_MemoryStats),
    ENTRY(PJRT_Client_BufferFromHostBuffer),
    ENTRY(PJRT_Buffer_Destroy),
    ENTRY(PJRT_Buffer_ReadyEvent),
    ENTRY(PJRT_Buffer_ToHostBuffer),
    ENTRY(PJRT_Buffer_IsOnCpu),
    ENTRY(PJRT_Buffer_GetMemoryLayout),
    ENTRY(PJRT_Buffer_IncreaseExternalReferenceCount),
    ENTRY(PJRT_Buffer_DecreaseExternalReferenceCount),
    ENTRY(PJRT_Buffer_UnsafePointer),
    ENTRY(PJRT_Buffer_CopyToDevice),
    ENTRY(PJRT_Client_Compile),
    ENTRY(PJRT_LoadedExecutable_Destroy),
    ENTRY(PJRT_Executable_Destroy),
    ENTRY(PJRT_LoadedExecutable_GetExecutable),
    ENTRY(PJRT_Executable_NumOutputs),
    ENTRY(PJRT_Executable_OutputElementTypes),
    ENTRY(PJRT_Executable_OutputDimensions),
    ENTRY(PJRT_LoadedExecutable_Execute),
    ENTRY(PJRT_Executable_Serialize),
    ENTRY(PJRT_Executable_DeserializeAndLoad),
    ENTRY(PJRT_Executable_GetCostAnalysis),
    ENTRY(PJRT_Executable_GetCompiledMemoryStats),
    ENTRY(PJRT_TopologyDescription_Create),
    ENTRY(PJRT_TopologyDescription_Destroy),
    ENTRY(PJRT_Compile),
};

static PJRT_Api api;

EXPORT void fake_plugin_reset(void) {
    while (objects.next != &objects) free_object(objects.next);
    long initialized = state.initialized;
    state = (fake_plugin){
        .api = &api, .fail_code = PJRT_Error_Code_INTERNAL, .n_devices = 1, .n_results = 2, .initialized = initialized};
    owner = pthread_self();
    for (int i = 0; i < FAKE_MAX_DEVICES; i++) devices[i].description.id = i;
    api = table;
}

EXPORT fake_plugin *fake_plugin_state(void) { return &state; }

EXPORT const PJRT_Api *GetPjrtApi(void) {
    const char *mood = getenv("FAKE_PJRT");
    if (!state.api) fake_plugin_reset();
    if (!mood) return &api;
    if (strcmp(mood, "null") == 0) return NULL;
    static PJRT_Api wrong;
    wrong = table;
    if (strcmp(mood, "major") == 0) wrong.pjrt_api_version.major_version = PJRT_API_MAJOR + 1;
    if (strcmp(mood, "short") == 0) wrong.struct_size = 16;
    return &wrong;
}
