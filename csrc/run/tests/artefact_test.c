/* An artefact of a program with state: read, refused where it is damaged, and run where a plugin is. */
#include "base/alloc.h"
#include "exec/exec.h"
#include "run/artefact.h"
#include "run/tests/files.h"

/* out = (x + total) * 2; total becomes x + total */
static const char program[] =
    "module @m {\n"
    "func.func public @main(%0: tensor<2xf32> {tf.aliasing_output = 0 : i32}, %1: tensor<2xf32>)"
    " -> (tensor<2xf32>, tensor<2xf32>) {\n"
    "%2 = stablehlo.add %0, %1 : tensor<2xf32>\n"
    "%3 = stablehlo.add %2, %2 : tensor<2xf32>\n"
    "func.return %2, %3 : tensor<2xf32>, tensor<2xf32>\n}\n}\n";

#define TYPE "\"dtype\": \"float32\", \"shape\": [2]"
static const char manifest[] =
    "{\"format\": \"torch_tpu.export\", \"format_version\": 1, \"versions\": {\"torch\": \"2.13\"},"
    " \"weights\": \"weights.safetensors\", \"programs\": [{\"file\": \"program.mlir\","
    " \"parameters\": [{\"state\": \"total\", " TYPE "}, {\"input\": \"x\", " TYPE
    "}],"
    " \"results\": [{\"state\": \"total\", " TYPE "}, {\"output\": \"out\", " TYPE "}]}]}";
static const char weights[] = "{\"total\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
enum { WEIGHTS = sizeof weights - 1 };

static void put_weights(void) {
    unsigned char file[8 + WEIGHTS + 8] = {WEIGHTS};
    static const float total[2] = {1, 2};
    memcpy(file + 8, weights, WEIGHTS);
    memcpy(file + 8 + WEIGHTS, total, 8);
    put_file("weights.safetensors", file, sizeof file);
}

static void reads(void) {
    artefact *a;
    if (!CHECK_OK(artefact_open(directory, &a))) return;
    CHECK_INT(artefact_program_count(a), 1);
    const artefact_program *p = artefact_program_at(a, 0);
    CHECK(p->n_parameters == 2 && p->n_results == 2);
    CHECK_INT(p->parameters[0].role, ROLE_STATE);
    CHECK_TEXT(p->parameters[1].name, "x");
    CHECK(p->results[1].role == ROLE_OUTPUT && p->results[1].dtype == DTYPE_F32 && p->results[1].dims[0] == 2);
    CHECK_TEXT(artefact_version(a, "torch"), "2.13");
    CHECK_TEXT(artefact_version(a, "stablehlo"), "unknown");
    artefact_close(a);
}

/* The manifest with the first `from` replaced. */
static status *open_with(const char *from, const char *to) {
    static char text[2000];
    const char *at = strstr(manifest, from);
    CHECK(at != NULL);
    if (!at) return NULL;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - manifest), manifest, to, at + strlen(from));
    put_file("manifest.json", text, strlen(text));
    artefact *a;
    status *s = artefact_open(directory, &a);
    artefact_close(a);
    return s;
}

static void refuses(void) {
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"torch_tpu.export", "other", "not the manifest"},
        {"\"format_version\": 1", "\"format_version\": 2", "format_version is 2, this program reads 1"},
        {"\"format_version\": 1", "\"a\": 1", "tells no format_version"},
        {"weights.safetensors", "../weights.safetensors", "no file of weights"},
        {"program.mlir", "/etc/passwd", "outside of the folder"},
        {"program.mlir", "..", "outside of the folder"},
        {"\"programs\": [", "\"programs\": [], \"x\": [", "lists no programs"},
        {"\"parameters\"", "\"x\"", "no list of parameters"},
        {"{\"state\": \"total\"", "{\"nothing\": 1", "parameter 0: no role"},
        {"{\"state\": \"total\"", "{\"state\": 1", "parameter 0: no name"},
        {"{\"state\": \"total\"", "{\"state\": \"sum\"", "state sum is not among the weights"},
        {"{\"state\": \"total\", \"dtype\": \"float32\"", "{\"state\": \"total\", \"dtype\": \"int32\"",
         "another type than among the weights"},
        {"{\"state\": \"total\"", "{\"random\": 2", "random words that are no uint64"},
        {"float32", "float31", "unknown dtype float31"},
        {"[2]", "[-2]", "an impossible shape"},
        {"[2]", "[9223372036854775807, 2]", "an impossible shape"},
        {"[2]", "[\"2\"]", "damaged"},
        {"[2]", "2", "no shape"},
        {"{\"output\": \"out\"", "{\"input\": \"y\"", "result 1: there is no input y"},
        {"{\"output\": \"out\", \"dtype\": \"float32\"", "{\"input\": \"x\", \"dtype\": \"int32\"",
         "result 1 is of another type than x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(open_with(cases[i].from, cases[i].to), STATUS_VALUE, cases[i].says);
    artefact *a;
    CHECK_FAILS(artefact_open("/nowhere", &a), STATUS_NOT_FOUND, "/nowhere/manifest.json");
    put_file("manifest.json", manifest, sizeof manifest - 1);
    unlink(path_of("weights.safetensors"));
    CHECK_FAILS(artefact_open(directory, &a), STATUS_NOT_FOUND, "weights.safetensors");
    put_weights();
}

static void damage(void) {
    size_t n = sizeof manifest - 1;
    char copy[sizeof manifest];
    for (size_t i = 0; i < n; i++)
        for (int c = -1; c < 256; c += c < 0 ? 1 : 83) {
            memcpy(copy, manifest, n);
            if (c >= 0) copy[i] = (char)c;
            put_file("manifest.json", copy, c < 0 ? i : n);
            artefact *a;
            status *s = artefact_open(directory, &a);
            CHECK(c >= 0 || s != NULL);
            status_free(s);
            artefact_close(a);
        }
    put_file("manifest.json", manifest, n);
}

static void no_memory(void) {
    long live = mem_live_count();
    for (long at = 1; at < 12; at++) {
        artefact *a;
        mem_fail_after(at);
        status *s = artefact_open(directory, &a);
        mem_fail_after(0);
        CHECK(!s || status_get_code(s) == STATUS_OUT_OF_MEMORY);
        status_free(s);
        artefact_close(a);
    }
    CHECK_INT(mem_live_count(), live);
}

/* ---- with a plugin ---- */

static void check_pair(pjrt_buffer *b, float first, float second) {
    float got[2] = {0, 0};
    CHECK_OK(pjrt_buffer_to_host(b, got, sizeof got));
    CHECK(got[0] == first && got[1] == second);
}

static void calls(void) {
    static const float x[2] = {10, 20};
    static const int64_t dims[1] = {2};
    artefact *a;
    session *s;
    pjrt_client *client;
    pjrt_buffer *input, *output;
    if (!CHECK_OK(artefact_open(directory, &a)) || !CHECK_OK(runtime_client(&client)) ||
        !CHECK_OK(session_create(a, 0, 0, &s)))
        return;
    CHECK_OK(pjrt_buffer_from_host(client, 0, x, DTYPE_F32, 1, dims, &input));
    for (int i = 1; i <= 3; i++) {
        if (!CHECK_OK(session_run(s, &input, 0, &output))) break;
        check_pair(output, 2.0f * (1 + 10 * i), 2.0f * (2 + 20 * i));
        check_pair(session_state(s, "total"), 1.0f + 10 * i, 2.0f + 20 * i);
        pjrt_buffer_release(output);
    }
    CHECK(session_state(s, "x") == NULL);
    session_destroy(s);
    pjrt_buffer_release(input);
    artefact_close(a);
}

/* A manifest that does not fit its program: an error of the plugin or of ours. */
static void calls_that_do_not_fit(void) {
    static const struct {
        const char *from, *to;
    } cases[] = {
        {", {\"output\": \"out\", " TYPE "}", ""},
        {", {\"input\": \"x\", " TYPE "}", ""},
        {"{\"input\": \"x\", " TYPE "}", "{\"input\": \"x\", \"dtype\": \"float32\", \"shape\": [3]}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        artefact *a;
        session *s = NULL;
        pjrt_client *client;
        pjrt_buffer *input = NULL, *outputs[2] = {0};
        static const float zeros[3];
        const int64_t dims[1] = {3};
        status_free(open_with(cases[i].from, cases[i].to));
        if (!CHECK_OK(artefact_open(directory, &a)) || !CHECK_OK(runtime_client(&client))) return;
        CHECK_OK(pjrt_buffer_from_host(client, 0, zeros, DTYPE_F32, 1, dims, &input));
        status *error = session_create(a, 0, 0, &s);
        if (!error) error = session_run(s, &input, 0, outputs);
        CHECK(error != NULL);
        status_free(error);
        session_destroy(s);
        pjrt_buffer_release(input);
        artefact_close(a);
    }
    put_file("manifest.json", manifest, sizeof manifest - 1);
    put_file("program.mlir", program, sizeof program - 20);
    artefact *a;
    session *s;
    if (CHECK_OK(artefact_open(directory, &a)))
        CHECK_FAILS(session_create(a, 0, 0, &s), STATUS_RUNTIME, "program.mlir: compiling failed");
    artefact_close(a);
}

int main(void) {
    static const char *const files[] = {"manifest.json", "program.mlir", "weights.safetensors"};
    make_directory();
    put_file("manifest.json", manifest, sizeof manifest - 1);
    put_file("program.mlir", program, sizeof program - 1);
    put_weights();
    reads();
    refuses();
    damage();
    no_memory();
    const char *plugin = getenv("TORCH_TPU_TEST_PLUGIN");
    if (plugin) {
        setenv("TORCH_TPU_PJRT_PLUGIN", plugin, 1);
        setenv("TORCH_TPU_CACHE_DIR", "", 1);
        calls();
        calls_that_do_not_fit();
    }
    remove_files(3, files);
    return check_report();
}
