/* Everything of this room against the fake plugin: what it is given, and that each of its errors, each missing function
 * and each failed allocation is told to the caller and leaks nothing. FAKE_PLUGIN is its path. */
#include <dlfcn.h>

#include "base/alloc.h"
#include "base/tests/check.h"
#include "fake_plugin.h"
#include "pjrt/internal.h"

static fake_plugin *fake;
static fake_plugin_reset_function *reset;
static pjrt_plugin *plugin;
static const float six[6] = {1, 2, 3, 4, 5, 6};
static const int64_t dims[2] = {2, 3};
static const char program[] = "module", aliasing[] = "module {tf.aliasing_output = 0}";

/* ---- one run through every function ---- */

static status *use_buffers(pjrt_client *c, pjrt_buffer *b) {
    float read[6];
    pjrt_buffer *copy = NULL;
    void *pointer;
    STATUS_TRY(pjrt_buffer_wait(b));
    STATUS_TRY(pjrt_buffer_to_host(b, read, sizeof read));
    if (memcmp(read, six, sizeof six) != 0) return status_new(STATUS_INTERNAL, "other numbers came back");
    STATUS_TRY(pjrt_buffer_unsafe_pointer(b, &pointer));
    STATUS_TRY(pjrt_buffer_copy_to_device(b, pjrt_client_device_count(c) - 1, &copy));
    status *s = pjrt_buffer_to_host(copy, read, sizeof read);
    pjrt_buffer_release(copy);
    return s;
}

static status *use_program(pjrt_executable *e, pjrt_buffer *input) {
    pjrt_buffer *inputs[] = {input, input}, *outputs[2];
    pjrt_cost cost;
    STATUS_TRY(pjrt_executable_cost(e, &cost));
    STATUS_TRY(pjrt_execute(e, 0, 2, inputs, NULL, outputs));
    status *s = use_buffers(e->client, outputs[1]);
    pjrt_buffer_release(outputs[0]);
    pjrt_buffer_release(outputs[1]);
    return s;
}

static status *use_programs(pjrt_client *c, pjrt_buffer *input, strbuf *serialized) {
    pjrt_executable *e = NULL;
    STATUS_TRY(pjrt_compile(c, program, sizeof program - 1, NULL, &e));
    status *s = use_program(e, input);
    if (!s) s = pjrt_executable_serialize(e, serialized);
    pjrt_executable_release(e);
    e = NULL;
    if (!s) s = pjrt_executable_deserialize(c, serialized->data, serialized->size, &e);
    if (!s) s = use_program(e, input);
    pjrt_executable_release(e);
    return s;
}

static status *use_topology(strbuf *serialized) {
    pjrt_topology *t = NULL;
    pjrt_cost cost;
    STATUS_TRY(pjrt_topology_create(plugin, "v5e:2x2", &t));
    pjrt_compiled wanted = {.cost = &cost, .serialized = serialized};
    status *s = pjrt_compile_for_topology(t, program, sizeof program - 1, NULL, &wanted);
    pjrt_topology_destroy(t);
    return s;
}

static status *use_everything(void) {
    const pjrt_option options[] = {{.name = "count", .number = 3}, {.name = "mode", .is_string = true, .text = "fast"}};
    pjrt_client *c = NULL;
    pjrt_buffer *input = NULL;
    pjrt_memory_stats stats;
    strbuf serialized;
    strbuf_init(&serialized);
    status *s = pjrt_client_create(plugin, 2, options, &c);
    if (!s) s = pjrt_device_memory_stats(c, 0, &stats);
    if (!s) s = pjrt_buffer_from_host(c, 0, six, DTYPE_F32, 2, dims, &input);
    if (!s) s = use_programs(c, input, &serialized);
    strbuf_clear(&serialized);
    if (!s) s = use_topology(&serialized);
    pjrt_buffer_release(input);
    pjrt_client_destroy(c);
    strbuf_free(&serialized);
    return s;
}

/* ---- failures ---- */

/* Functions whose failure changes nothing for the caller: the object is gone all the same, or there is another way. */
static bool may_fail_unnoticed(const char *function) {
    static const char *const harmless[] = {"_Destroy", "_IsOnCpu", "_GetMemoryLayout", "ExternalReferenceCount",
                                           "_UnsafePointer"};
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strstr(function, harmless[i])) return true;
    return false;
}

static void check_nothing_held(long allocations, const char *after) {
    pjrt_counters counters;
    pjrt_counters_read(&counters);
    if (mem_live_count() != allocations || fake->live_objects || counters.live_buffers || counters.live_bytes) {
        check_failures++;
        printf("after %s: %ld allocations, %ld objects of the plugin, %lld buffers, %lld bytes are left\n", after,
               mem_live_count() - allocations, fake->live_objects, (long long)counters.live_buffers,
               (long long)counters.live_bytes);
    }
}

static void test_plugin_errors(bool on_cpu, int n_devices) {
    long before = mem_live_count(), n = 1;
    for (;; n++) {
        reset();
        fake->on_cpu = on_cpu;
        fake->n_devices = n_devices;
        fake->fail_call = n;
        status *s = use_everything();
        const char *function = fake->failed_function;
        if (!function) { /* fewer calls than n were made: the run without a failure */
            CHECK_OK(s);
            break;
        }
        if (!s)
            CHECK(may_fail_unnoticed(function));
        else
            CHECK_FAILS(s, STATUS_RUNTIME, function);
        check_nothing_held(before, function);
    }
    CHECK(n > 50);
}

static void test_no_memory(void) {
    long before = mem_live_count();
    for (long n = 1;; n++) {
        reset();
        mem_fail_after(n);
        status *s = use_everything();
        mem_fail_after(0);
        check_nothing_held(before, "a failed allocation");
        if (!s) {
            CHECK(n > 15);
            return;
        }
        CHECK_FAILS(s, STATUS_OUT_OF_MEMORY, "out of host memory");
    }
}

/* A table with a hole anywhere, or one that ends anywhere, is used as far as it goes. */
static void test_missing_functions(void) {
    long before = mem_live_count();
    size_t first = offsetof(PJRT_Api, PJRT_Error_Destroy), slot = sizeof(void (*)(void));
    for (size_t at = first; at < PJRT_Api_STRUCT_SIZE; at += slot) {
        reset();
        memset((char *)fake->api + at, 0, slot);
        status *s = use_everything();
        if (s) CHECK_FAILS(s, STATUS_NOT_IMPLEMENTED, "the PJRT plugin has no PJRT_");
        CHECK_INT(mem_live_count(), before);
        reset();
        fake->api->struct_size = at;
        s = use_everything();
        CHECK(s || at > offsetof(PJRT_Api, PJRT_Compile)); /* what came later can be done without */
        if (s) CHECK_FAILS(s, STATUS_NOT_IMPLEMENTED, "the PJRT plugin has no PJRT_");
        CHECK_INT(mem_live_count(), before);
    }
    reset();
    pjrt_counters_reset_peak();
}

static void test_error_codes(void) {
    static const struct {
        PJRT_Error_Code code;
        status_code expected;
    } rows[] = {
        {PJRT_Error_Code_RESOURCE_EXHAUSTED, STATUS_OUT_OF_MEMORY},
        {PJRT_Error_Code_UNIMPLEMENTED, STATUS_NOT_IMPLEMENTED},
        {PJRT_Error_Code_INVALID_ARGUMENT, STATUS_RUNTIME},
        {PJRT_Error_Code_UNAVAILABLE, STATUS_RUNTIME},
    };
    pjrt_client *c;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reset();
        fake->fail_call = 1;
        fake->fail_code = rows[i].code;
        CHECK_FAILS(pjrt_client_create(plugin, 0, NULL, &c), rows[i].expected, "failed on demand (PJRT_Client_Create)");
        CHECK(c == NULL);
    }
}

/* ---- what is asked and told ---- */

static pjrt_client *new_client(int n_devices) {
    reset();
    fake->n_devices = n_devices;
    pjrt_client *c = NULL;
    CHECK_OK(pjrt_client_create(plugin, 0, NULL, &c));
    return c;
}

static pjrt_buffer *new_buffer(pjrt_client *c) {
    pjrt_buffer *b = NULL;
    CHECK_OK(pjrt_buffer_from_host(c, 0, six, DTYPE_F32, 2, dims, &b));
    return b;
}

static pjrt_executable *new_program(pjrt_client *c, const char *text) {
    pjrt_executable *e = NULL;
    CHECK_OK(pjrt_compile(c, text, strlen(text), NULL, &e));
    return e;
}

static void test_client(void) {
    CHECK_OK(use_everything());
    CHECK_INT(fake->n_options, 2);
    CHECK_TEXT(fake->option_text, "count=3 mode=fast ");
    pjrt_client *c = new_client(2);
    CHECK_INT(fake->n_options, 0);
    CHECK_TEXT(pjrt_client_platform(c), "fake");
    CHECK_TEXT(pjrt_client_platform_version(c), "1.2");
    CHECK_INT(pjrt_client_device_count(c), 2);
    CHECK_TEXT(pjrt_device_kind(c, 0), "fake chip");
    CHECK_TEXT(pjrt_device_description(c, 1), "Fake1");
    CHECK_TEXT(pjrt_device_kind(c, 2), "");
    CHECK_TEXT(pjrt_device_description(c, -1), "");
    pjrt_memory_stats stats;
    CHECK_OK(pjrt_device_memory_stats(c, 1, &stats));
    CHECK_INT(stats.bytes_in_use, 100);
    CHECK_INT(stats.peak_bytes_in_use, -1);
    CHECK_INT(stats.bytes_limit, 1000);
    CHECK_FAILS(pjrt_device_memory_stats(c, 2, &stats), STATUS_NOT_FOUND, "no device 2: fake has 2");
    fake->fail_call = 1;
    fake->fail_code = PJRT_Error_Code_UNIMPLEMENTED;
    CHECK_OK(pjrt_device_memory_stats(c, 0, &stats));
    CHECK_INT(stats.bytes_in_use, -1);
    pjrt_client_destroy(c);
    pjrt_client_destroy(NULL);
}

static void test_buffers(void) {
    pjrt_client *c = new_client(1);
    pjrt_buffer *b = new_buffer(c), *none = b;
    CHECK_INT(pjrt_buffer_bytes(b), 24);
    CHECK_INT(pjrt_buffer_dtype(b), DTYPE_F32);
    CHECK_INT(pjrt_buffer_references(b), 1);
    CHECK(pjrt_buffer_retain(b) == b);
    CHECK_INT(pjrt_buffer_references(b), 2);
    pjrt_buffer_release(b);
    CHECK(pjrt_buffer_is_ready(b));
    float read[6];
    CHECK_FAILS(pjrt_buffer_to_host(b, read, 20), STATUS_INTERNAL, "20 bytes from a buffer of 24");
    CHECK_FAILS(pjrt_buffer_copy_to_device(b, 1, &none), STATUS_NOT_FOUND, "no device 1");
    CHECK(none == NULL);
    CHECK_FAILS(pjrt_buffer_from_host(c, 3, six, DTYPE_F32, 2, dims, &none), STATUS_NOT_FOUND, "no device 3");
    CHECK_FAILS(pjrt_buffer_from_host(c, 0, six, DTYPE_INVALID, 2, dims, &none), STATUS_TYPE, "dtype");
    CHECK_FAILS(pjrt_buffer_from_host(c, 0, six, DTYPE_F32, -1, dims, &none), STATUS_VALUE, "-1 dimensions");
    CHECK_FAILS(pjrt_buffer_from_host(c, 0, six, DTYPE_F32, 65, dims, &none), STATUS_VALUE, "65 dimensions");
    CHECK_FAILS(pjrt_buffer_from_host(c, 0, NULL, DTYPE_F32, 2, dims, &none), STATUS_VALUE, "no host memory");
    CHECK_FAILS(pjrt_buffer_from_host(c, 0, six, DTYPE_F32, 2, (int64_t[]){2, -3}, &none), STATUS_VALUE, "negative");
    CHECK_FAILS(pjrt_buffer_from_host(c, 0, six, DTYPE_F32, 2, (int64_t[]){INT64_MAX / 2, 3}, &none), STATUS_VALUE,
                "too large");
    CHECK_OK(pjrt_buffer_from_host(c, 0, NULL, DTYPE_F32, 2, (int64_t[]){0, 3}, &none)); /* empty */
    CHECK_OK(pjrt_buffer_to_host(none, NULL, 0));
    pjrt_buffer_release(none);
    CHECK_OK(pjrt_buffer_from_host(c, 0, six, DTYPE_U8, 0, NULL, &none)); /* a scalar */
    CHECK_INT(pjrt_buffer_bytes(none), 1);
    pjrt_buffer_release(none);
    pjrt_buffer_release(NULL);
    void *pointer;
    fake->fail_call = 1;
    fake->fail_code = PJRT_Error_Code_UNIMPLEMENTED;
    CHECK_OK(pjrt_buffer_unsafe_pointer(b, &pointer));
    CHECK(pointer == NULL);
    pjrt_buffer_release(b);
    pjrt_client_destroy(c);
}

/* An array in host memory and in the host's order is read in place, any other by the plugin and in the host's order. */
static void test_reading(void) {
    static const struct {
        bool on_cpu, column_major;
        int by_plugin;
    } rows[] = {{false, false, 1}, {true, true, 1}, {true, false, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pjrt_client *c = new_client(1);
        pjrt_buffer *b = new_buffer(c);
        float read[6] = {0};
        fake->on_cpu = rows[i].on_cpu;
        fake->column_major = rows[i].column_major;
        CHECK_OK(pjrt_buffer_to_host(b, read, sizeof read));
        CHECK(memcmp(read, six, sizeof six) == 0);
        CHECK_INT(fake->host_copies, rows[i].by_plugin);
        CHECK_INT(fake->in_place_holds, !rows[i].by_plugin);
        CHECK_INT(fake->host_layout_size, rows[i].by_plugin * 2);
        if (rows[i].by_plugin) CHECK(fake->host_layout[0] == 1 && fake->host_layout[1] == 0);
        pjrt_buffer_release(b);
        pjrt_client_destroy(c);
    }
}

static void test_donation(void) {
    pjrt_client *c = new_client(1);
    pjrt_buffer *inputs[3] = {new_buffer(c), new_buffer(c), new_buffer(c)}, *outputs[2];
    const bool donate[3] = {false, true, false};
    pjrt_counters before, counters;
    pjrt_counters_read(&before);
    pjrt_executable *plain = new_program(c, program), *alias = new_program(c, aliasing);
    CHECK_INT(pjrt_executable_result_count(plain), 2);
    CHECK_OK(pjrt_execute(plain, 0, 3, inputs, NULL, outputs));
    CHECK_INT(fake->n_fixed, 0); /* a program that aliases nothing needs no list */
    CHECK_INT(fake->n_arguments, 3);
    CHECK_INT(fake->launched_on, -1);
    for (int i = 0; i < 2; i++) pjrt_buffer_release(outputs[i]);
    CHECK_OK(pjrt_execute(alias, 0, 3, inputs, NULL, outputs));
    CHECK_INT(fake->n_fixed, 3);
    for (int i = 0; i < 2; i++) pjrt_buffer_release(outputs[i]);
    CHECK_OK(pjrt_execute(alias, 0, 3, inputs, donate, outputs));
    CHECK_INT(fake->n_fixed, 2);
    CHECK(fake->fixed[0] == 0 && fake->fixed[1] == 2);
    pjrt_counters_read(&counters);
    CHECK_INT(counters.live_buffers, 4); /* two inputs that stay, two results */
    CHECK_INT(counters.live_bytes, 4 * 24);
    CHECK_INT(counters.executes - before.executes, 3);
    CHECK_FAILS(pjrt_buffer_wait(inputs[1]), STATUS_RUNTIME, "the computation failed"); /* a buffer that is no more */
    for (int i = 0; i < 3; i++) pjrt_buffer_release(inputs[i]);
    for (int i = 0; i < 2; i++) pjrt_buffer_release(outputs[i]);
    pjrt_counters_read(&counters);
    CHECK_INT(counters.live_buffers, 0);
    CHECK_INT(counters.live_bytes, 0);
    pjrt_executable_release(plain);
    pjrt_executable_release(alias);
    pjrt_client_destroy(c);
}

/* More arguments and results than fit on the stack. */
static void test_many_arguments(int n_inputs, int n_results) {
    pjrt_client *c = new_client(1);
    fake->n_results = n_results;
    pjrt_executable *e = new_program(c, aliasing);
    pjrt_buffer *input = new_buffer(c), *inputs[FAKE_MAX_LIST], *outputs[FAKE_MAX_LIST];
    for (int i = 0; i < n_inputs; i++) inputs[i] = input;
    CHECK_OK(pjrt_execute(e, 0, n_inputs, inputs, NULL, outputs));
    CHECK_INT(fake->n_arguments, n_inputs);
    CHECK_INT(fake->n_fixed, n_inputs);
    for (int i = 0; i < n_inputs; i++) CHECK_INT(fake->fixed[i], i);
    float read[6];
    for (int i = 0; i < n_results; i++) {
        CHECK_OK(pjrt_buffer_to_host(outputs[i], read, sizeof read));
        CHECK(n_inputs == 0 || memcmp(read, six, sizeof six) == 0);
        pjrt_buffer_release(outputs[i]);
    }
    long before = mem_live_count();
    for (long n = 1; n <= n_results; n++) {
        mem_fail_after(n);
        CHECK_FAILS(pjrt_execute(e, 0, n_inputs, inputs, NULL, outputs), STATUS_OUT_OF_MEMORY, "out of host memory");
    }
    mem_fail_after(0);
    CHECK_INT(mem_live_count(), before);
    pjrt_buffer_release(input);
    pjrt_executable_release(e);
    pjrt_client_destroy(c);
}

/* With several devices the launch names one, and the program is compiled for any of them. */
static void test_devices(void) {
    pjrt_client *c = new_client(3);
    pjrt_executable *e = new_program(c, program);
    CHECK(fake->compile_options_size > 2 &&
          memcmp(fake->compile_options + fake->compile_options_size - 2, "\x20\x01", 2) == 0);
    pjrt_buffer *outputs[2];
    CHECK_OK(pjrt_execute(e, 2, 0, NULL, NULL, outputs));
    CHECK_INT(fake->launched_on, 2);
    for (int i = 0; i < 2; i++) pjrt_buffer_release(outputs[i]);
    CHECK_FAILS(pjrt_execute(e, 3, 0, NULL, NULL, outputs), STATUS_NOT_FOUND, "no device 3");
    pjrt_executable *partitioned = NULL;
    CHECK_OK(pjrt_compile(c, program, 6, &(pjrt_compile_options){.num_partitions = 3}, &partitioned));
    CHECK(memcmp(fake->compile_options + fake->compile_options_size - 2, "\x20\x01", 2) != 0);
    CHECK(pjrt_executable_retain(partitioned) == partitioned);
    pjrt_executable_release(partitioned);
    pjrt_executable_release(partitioned);
    pjrt_executable_release(NULL);
    pjrt_executable_release(e);
    pjrt_client_destroy(c);
}

/* A computation that fails after it was launched: whoever reads a result is told. */
static void test_late_errors(void) {
    for (int on_cpu = 0; on_cpu < 2; on_cpu++) {
        pjrt_client *c = new_client(1);
        pjrt_executable *e = new_program(c, program);
        fake->computation_fails = true;
        fake->on_cpu = on_cpu;
        pjrt_buffer *outputs[2];
        float read[6];
        CHECK_OK(pjrt_execute(e, 0, 0, NULL, NULL, outputs));
        CHECK(pjrt_buffer_is_ready(outputs[0]));
        CHECK_FAILS(pjrt_buffer_wait(outputs[0]), STATUS_RUNTIME, "the computation failed");
        CHECK_FAILS(pjrt_buffer_to_host(outputs[0], read, sizeof read), STATUS_RUNTIME, "the computation failed");
        fake->fail_call = 1;
        CHECK(pjrt_buffer_is_ready(outputs[1])); /* what cannot be asked is not waited for */
        fake->fail_call = 2;
        CHECK(pjrt_buffer_is_ready(outputs[1]));
        for (int i = 0; i < 2; i++) pjrt_buffer_release(outputs[i]);
        pjrt_executable_release(e);
        pjrt_client_destroy(c);
        CHECK_INT(fake->live_objects, 0);
    }
}

static void test_programs(void) {
    pjrt_client *c = new_client(1);
    pjrt_executable *e = (pjrt_executable *)c;
    CHECK_FAILS(pjrt_compile(c, "", 0, NULL, &e), STATUS_RUNTIME, "an empty program");
    CHECK(e == NULL);
    CHECK_FAILS(pjrt_executable_deserialize(c, "rubbish", 7, &e), STATUS_RUNTIME, "no program of this plugin");
    fake->impossible_results = true;
    CHECK_FAILS(pjrt_compile(c, program, 6, NULL, &e), STATUS_INTERNAL, "impossible dimensions");
    fake->impossible_results = false;
    e = new_program(c, program);
    pjrt_cost cost;
    fake->optimal_seconds = 0.25F;
    CHECK_OK(pjrt_executable_cost(e, &cost));
    CHECK(cost.optimal_seconds == 0.25 && cost.flops == 12 && cost.bytes_accessed == 72);
    CHECK_INT(cost.argument_bytes, 48);
    CHECK_INT(cost.output_bytes, 24);
    CHECK_INT(cost.temp_bytes, 7);
    CHECK_INT(cost.alias_bytes, 5);
    CHECK_INT(cost.code_bytes, 3);
    fake->optimal_seconds = -2.75F; /* three operations without a figure, and a quarter of a second */
    CHECK_OK(pjrt_executable_cost(e, &cost));
    CHECK(cost.optimal_seconds == 0.25);
    fake->fail_code = PJRT_Error_Code_UNIMPLEMENTED;
    fake->fail_call = 1;
    CHECK_OK(pjrt_executable_cost(e, &cost));
    CHECK(cost.flops == -1 && cost.optimal_seconds == -1 && cost.argument_bytes == 48);
    pjrt_executable_release(e);
    pjrt_client_destroy(c);
}

static void test_counters(void) {
    pjrt_counters before, after;
    pjrt_counters_read(&before);
    CHECK_OK(use_everything());
    pjrt_counters_reset_peak();
    pjrt_counters_read(&after);
    CHECK_INT(after.peak_bytes, 0);
    CHECK_INT(after.compiles - before.compiles, 2);
    CHECK(after.compile_ns >= before.compile_ns);
    CHECK_INT(after.executes - before.executes, 2);
    CHECK_INT(after.host_to_device - before.host_to_device, 1);
    CHECK_INT(after.host_to_device_bytes - before.host_to_device_bytes, 24);
    CHECK_INT(after.device_to_host - before.device_to_host, 4);
    CHECK_INT(after.device_to_host_bytes - before.device_to_host_bytes, 4 * 24);
    CHECK_OK(use_everything());
    pjrt_counters_read(&after);
    CHECK_INT(after.peak_bytes, 4 * 24); /* the input, two results, a copy */
    CHECK_INT(after.live_bytes, 0);
}

int main(void) {
    void *library = dlopen(FAKE_PLUGIN, RTLD_LAZY);
    if (!CHECK(library != NULL)) return check_report();
    reset = (fake_plugin_reset_function *)dlsym(library, "fake_plugin_reset");
    fake_plugin_state_function *get_state = (fake_plugin_state_function *)dlsym(library, "fake_plugin_state");
    fake = get_state();
    reset();
    if (!CHECK_OK(pjrt_plugin_load(FAKE_PLUGIN, &plugin))) return check_report();
    test_client();
    test_buffers();
    test_reading();
    test_donation();
    test_many_arguments(64, 64);
    test_many_arguments(65, 1);
    test_many_arguments(0, 65);
    test_many_arguments(200, 200);
    test_devices();
    test_late_errors();
    test_programs();
    test_error_codes();
    test_counters();
    test_no_memory();
    test_plugin_errors(false, 1);
    test_plugin_errors(true, 1);
    test_plugin_errors(true, 2);
    test_missing_functions();
    return check_report();
}
