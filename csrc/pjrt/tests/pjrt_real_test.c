/* This room against a real plugin, the XLA CPU one: TORCH_TPU_TEST_PLUGIN is its path; without it the test is skipped.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/tests/check.h"
#include "pjrt/pjrt.h"

static pjrt_plugin *plugin;
static pjrt_client *client;

static pjrt_buffer *from_floats(int device, int rank, const int64_t *dims, const float *data) {
    pjrt_buffer *b = NULL;
    CHECK_OK(pjrt_buffer_from_host(client, device, data, DTYPE_F32, rank, dims, &b));
    return b;
}

static pjrt_executable *compile(const char *text, const pjrt_compile_options *o) {
    pjrt_executable *e = NULL;
    CHECK_OK(pjrt_compile(client, text, strlen(text), o, &e));
    return e;
}

static void check_floats(pjrt_buffer *b, int n, const float *expected) {
    float read[16];
    if (!CHECK_OK(pjrt_buffer_to_host(b, read, (size_t)n * sizeof *read))) return;
    for (int i = 0; i < n; i++) CHECK(read[i] == expected[i] || (isnan(read[i]) && isnan(expected[i])));
}

/* ---- tests ---- */

static void test_client(void) {
    CHECK(strlen(pjrt_client_platform(client)) > 0);
    CHECK(pjrt_client_device_count(client) > 0);
    CHECK(strlen(pjrt_device_kind(client, 0)) > 0);
    CHECK(strlen(pjrt_device_description(client, 0)) > 0);
    pjrt_memory_stats stats;
    CHECK_OK(pjrt_device_memory_stats(client, 0, &stats));
    CHECK(stats.bytes_in_use >= -1);
    pjrt_client *none;
    const pjrt_option wrong = {.name = "no_such_option", .number = 1};
    status_free(pjrt_client_create(plugin, 1, &wrong, &none)); /* some plugins ignore it; none may die of it */
    pjrt_client_destroy(none);
}

/* Bytes of every type and of several shapes come back as they went. */
static void test_round_trips(void) {
    static const struct {
        int rank;
        int64_t dims[3];
        int64_t count;
    } shapes[] = {{0, {0}, 1}, {1, {5}, 5}, {2, {2, 3}, 6}, {3, {2, 1, 4}, 8}, {1, {0}, 0}, {3, {2, 0, 3}, 0}};
    unsigned char data[16 * 8], read[16 * 8];
    for (size_t i = 0; i < sizeof data; i++) data[i] = i % 2; /* also valid as booleans */
    for (int t = 1; t < DTYPE_COUNT; t++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            pjrt_buffer *b = NULL;
            size_t size = (size_t)shapes[i].count * dtype_bytes((dtype)t);
            if (!CHECK_OK(pjrt_buffer_from_host(client, 0, data, (dtype)t, shapes[i].rank, shapes[i].dims, &b)))
                continue;
            CHECK_INT(pjrt_buffer_bytes(b), size);
            CHECK_INT(pjrt_buffer_dtype(b), t);
            memset(read, 0xff, sizeof read);
            CHECK_OK(pjrt_buffer_to_host(b, read, size));
            CHECK(memcmp(read, data, size) == 0);
            CHECK(size == sizeof read || read[size] == 0xff);
            CHECK_OK(pjrt_buffer_wait(b));
            CHECK(pjrt_buffer_is_ready(b));
            pjrt_buffer_release(b);
        }
    }
}

/* The host memory may be changed as soon as the copy returns. */
static void test_host_memory_is_free(void) {
    enum { COUNT = 1 << 20 };
    float *data = calloc(COUNT, sizeof *data), *read = calloc(COUNT, sizeof *read);
    pjrt_buffer *b = from_floats(0, 1, (int64_t[]){COUNT}, data);
    for (int i = 0; i < COUNT; i++) data[i] = 7;
    CHECK_OK(pjrt_buffer_to_host(b, read, COUNT * sizeof *read));
    int changed = 0;
    for (int i = 0; i < COUNT; i++) changed += read[i] != 0;
    CHECK_INT(changed, 0);
    pjrt_buffer_release(b);
    free(data);
    free(read);
}

static const char maximum[] =
    "module { func.func public @main(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<3x2xf32>) "
    "{\n"
    "  %0 = stablehlo.maximum %a, %b : tensor<2x3xf32>\n"
    "  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\n"
    "  return %0, %1 : tensor<2x3xf32>, tensor<3x2xf32> } }";

static const char *const flag_names[] = {"xla_cpu_enable_fast_min_max"}, *const flag_values[] = {"false"};
static const pjrt_compile_options exact = {.n_flags = 1, .flag_names = flag_names, .flag_values = flag_values};

/* max(NaN, x) and max(x, NaN) are NaN once the flag is off: it arrives. */
static void run_maximum(pjrt_executable *e, int device) {
    const int64_t dims[2] = {2, 3};
    pjrt_buffer *inputs[2] = {from_floats(device, 2, dims, (float[]){NAN, 1, 2, 3, 4, 5}),
                              from_floats(device, 2, dims, (float[]){1, NAN, 1, 9, 9, -9})};
    pjrt_buffer *outputs[2];
    CHECK_INT(pjrt_executable_result_count(e), 2);
    if (CHECK_OK(pjrt_execute(e, device, 2, inputs, NULL, outputs))) {
        CHECK_INT(pjrt_buffer_bytes(outputs[0]), 24);
        CHECK_INT(pjrt_buffer_dtype(outputs[1]), DTYPE_F32);
        check_floats(outputs[0], 6, (float[]){NAN, NAN, 2, 9, 9, 5});
        check_floats(outputs[1], 6, (float[]){NAN, 9, NAN, 9, 2, 5});
        for (int i = 0; i < 2; i++) pjrt_buffer_release(outputs[i]);
    }
    for (int i = 0; i < 2; i++) pjrt_buffer_release(inputs[i]);
}

static void test_flag(void) {
    pjrt_executable *e = compile(maximum, &exact);
    if (e) run_maximum(e, 0);
    pjrt_executable_release(e);
    const char *const wrong[] = {"xla_no_such_flag"};
    CHECK_FAILS(
        pjrt_compile(client, maximum, strlen(maximum),
                     &(pjrt_compile_options){.n_flags = 1, .flag_names = wrong, .flag_values = flag_values}, &e),
        STATUS_RUNTIME, "xla_no_such_flag");
}

static void test_every_device(void) {
    pjrt_executable *e = compile(maximum, &exact);
    for (int d = 0; e && d < pjrt_client_device_count(client); d++) run_maximum(e, d);
    pjrt_executable_release(e);
    if (pjrt_client_device_count(client) < 2) return;
    pjrt_buffer *b = from_floats(0, 1, (int64_t[]){3}, (float[]){1, 2, 3}), *copy = NULL;
    if (CHECK_OK(pjrt_buffer_copy_to_device(b, 1, &copy))) check_floats(copy, 3, (float[]){1, 2, 3});
    pjrt_buffer_release(copy);
    pjrt_buffer_release(b);
}

static void test_serialization(void) {
    pjrt_executable *e = compile(maximum, &exact), *again = NULL;
    strbuf bytes;
    strbuf_init(&bytes);
    CHECK_OK(pjrt_executable_serialize(e, &bytes));
    CHECK(bytes.size > 0);
    if (CHECK_OK(pjrt_executable_deserialize(client, bytes.data, bytes.size, &again))) run_maximum(again, 0);
    pjrt_executable_release(again);
    pjrt_executable *none = e;
    status *s = pjrt_executable_deserialize(client, "rubbish", 7, &none);
    CHECK(s != NULL && none == NULL);
    status_free(s);
    strbuf_free(&bytes);
    pjrt_executable_release(e);
}

static const char add_into_first[] =
    "module { func.func public @main(%a: tensor<3xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<3xf32>) -> "
    "tensor<3xf32> {\n"
    "  %0 = stablehlo.add %a, %b : tensor<3xf32>\n"
    "  return %0 : tensor<3xf32> } }";

/* A donated buffer is dead; one that the program could have taken and that was not given lives on, unchanged. */
static void test_donation(void) {
    pjrt_executable *e = compile(add_into_first, NULL);
    const bool donate[2] = {true, false};
    pjrt_buffer *inputs[2] = {from_floats(0, 1, (int64_t[]){3}, (float[]){1, 2, 3}),
                              from_floats(0, 1, (int64_t[]){3}, (float[]){10, 20, 30})};
    pjrt_buffer *outputs[1];
    float read[3];
    if (e && CHECK_OK(pjrt_execute(e, 0, 2, inputs, NULL, outputs))) {
        check_floats(outputs[0], 3, (float[]){11, 22, 33});
        check_floats(inputs[0], 3, (float[]){1, 2, 3});
        pjrt_buffer_release(outputs[0]);
    }
    if (e && CHECK_OK(pjrt_execute(e, 0, 2, inputs, donate, outputs))) {
        check_floats(outputs[0], 3, (float[]){11, 22, 33});
        status *s = pjrt_buffer_to_host(inputs[0], read, sizeof read);
        CHECK(s != NULL);
        status_free(s);
        check_floats(inputs[1], 3, (float[]){10, 20, 30});
        pjrt_buffer_release(outputs[0]);
        s = pjrt_execute(e, 0, 2, inputs, NULL, outputs);
        CHECK(s != NULL); /* a dead input */
        status_free(s);
    }
    for (int i = 0; i < 2; i++) pjrt_buffer_release(inputs[i]);
    pjrt_executable_release(e);
}

static void test_pointer(void) {
    pjrt_buffer *b = from_floats(0, 1, (int64_t[]){3}, (float[]){1, 2, 3});
    void *pointer = NULL;
    CHECK_OK(pjrt_buffer_wait(b));
    CHECK_OK(pjrt_buffer_unsafe_pointer(b, &pointer));
    if (strcmp(pjrt_client_platform(client), "cpu") == 0 && CHECK(pointer != NULL)) CHECK(((float *)pointer)[2] == 3);
    pjrt_buffer_release(b);
}

/* Wrong programs and wrong arguments are errors that say something, and the next program works. */
static void test_bad_input(void) {
    pjrt_executable *e = NULL;
    pjrt_buffer *b = from_floats(0, 1, (int64_t[]){3}, (float[]){1, 2, 3}), *outputs[2];
    const char *const texts[] = {
        "", "this is no program", "module { func.func public @main() -> tensor<3xf32> { } }",
        "module { func.func public @main(%a: tensor<3xf32>, %b: tensor<4xf32>) -> tensor<3xf32> {\n"
        "  %0 = stablehlo.add %a, %b : tensor<3xf32>\n  return %0 : tensor<3xf32> } }"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        status *s = pjrt_compile(client, texts[i], strlen(texts[i]), NULL, &e);
        CHECK(s != NULL && strlen(status_message(s)) > 20);
        status_free(s);
    }
    e = compile(maximum, &exact);
    for (int n = 0; n < 3; n += 2) { /* too few; of a wrong shape */
        status *s = pjrt_execute(e, 0, n, (pjrt_buffer *[]){b, b}, NULL, outputs);
        CHECK(s != NULL && status_get_code(s) == STATUS_RUNTIME);
        status_free(s);
    }
    if (e) run_maximum(e, 0);
    pjrt_executable_release(e);
    pjrt_buffer_release(b);
}

static void test_cost(void) {
    pjrt_executable *e = compile(maximum, NULL);
    pjrt_cost cost;
    CHECK_OK(pjrt_executable_cost(e, &cost));
    CHECK(cost.argument_bytes == -1 || cost.argument_bytes == 48);
    CHECK(cost.flops == -1 || cost.flops >= 6);
    CHECK(cost.optimal_seconds == -1 || (cost.optimal_seconds >= 0 && cost.optimal_seconds < 1));
    pjrt_executable_release(e);
}

static void *run_often(void *executable) {
    for (int i = 0; i < 200; i++) run_maximum(executable, 0);
    return NULL;
}

static void test_threads(void) {
    pjrt_executable *e = compile(maximum, &exact);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run_often, e);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    pjrt_executable_release(e);
}

int main(void) {
    const char *path = getenv("TORCH_TPU_TEST_PLUGIN");
    if (!path || !*path) {
        printf("skipped: TORCH_TPU_TEST_PLUGIN names no plugin\n");
        return CHECK_SKIPPED;
    }
    if (!CHECK_OK(pjrt_plugin_load(path, &plugin))) return check_report();
    long before = mem_live_count();
    if (!CHECK_OK(pjrt_client_create(plugin, 0, NULL, &client))) return check_report();
    test_client();
    test_round_trips();
    test_host_memory_is_free();
    test_flag();
    test_every_device();
    test_serialization();
    test_donation();
    test_pointer();
    test_bad_input();
    test_cost();
    test_threads();
    pjrt_client_destroy(client);
    pjrt_counters counters;
    pjrt_counters_read(&counters);
    CHECK_INT(counters.live_buffers, 0);
    CHECK_INT(counters.live_bytes, 0);
    CHECK_INT(mem_live_count(), before);
    return check_report();
}
