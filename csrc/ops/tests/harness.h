/* Runs one operator: its row lowered to a program, compiled and executed by the plugin that TORCH_TPU_TEST_PLUGIN
 * names. */
#ifndef OPS_TESTS_HARNESS_H
#define OPS_TESTS_HARNESS_H

#include <stdlib.h>

#include "base/strbuf.h"
#include "ops/lowering.h"
#include "pjrt/pjrt.h"

enum { HARNESS_MAX_VALUES = 64 };

typedef struct {
    dtype dtype; /* of a result DTYPE_INVALID: not wanted */
    int rank;
    const int64_t *dims;
    void *data; /* dense, row-major */
} harness_array;

static pjrt_client *harness_client;

/* false: no plugin is named, so nothing can run. */
static inline bool harness_open(status **error) {
    const char *path = getenv("TORCH_TPU_TEST_PLUGIN");
    pjrt_plugin *plugin;
    *error = NULL;
    if (!path || !*path) return false;
    if (!harness_client) *error = pjrt_plugin_load(path, &plugin);
    if (!harness_client && !*error) *error = pjrt_client_create(plugin, 0, NULL, &harness_client);
    return true;
}

static inline size_t harness_bytes(const harness_array *a) {
    size_t n = dtype_bytes(a->dtype);
    for (int i = 0; i < a->rank; i++) n *= (size_t)a->dims[i];
    return n;
}

/* A stream of its own for every use, as the graph's lowering gives: uses are 2^40 counter values apart. */
typedef struct {
    hlo_builder *builder;
    hlo_value state;
    int64_t uses;
} harness_generator;
static inline hlo_value harness_random_state(void *context) {
    harness_generator *g = context;
    const int64_t offset[2] = {0, g->uses++ << 40};
    return hlo_add(g->builder, g->state, hlo_constant_ints(g->builder, DTYPE_U64, 2, offset));
}
static inline hlo_value harness_runtime_number(void *context, int arg, int element, const number *n, dtype t) {
    (void)context, (void)arg, (void)element, (void)n, (void)t;
    return NULL;
}
static inline void harness_number_used(void *context, int arg, bool structural) {
    (void)context, (void)arg, (void)structural;
}

/* The values that an argument stands for: ARG_VALUE's u.value counts the inputs. */
static inline hlo_value *harness_values(hlo_builder *b, const argument *a, const hlo_value *inputs) {
    hlo_value *v = ARENA_NEW(hlo_arena(b), hlo_value, a->count + 1);
    if (a->tag == ARG_VALUE) v[0] = inputs[a->u.value];
    for (int j = 0; a->tag == ARG_VALUES && j < a->count; j++)
        if (a->u.list[j].tag == ARG_VALUE) v[j] = inputs[a->u.list[j].u.value];
    return v;
}

/* The program's text: parameters are the inputs, then the random state (ui64[2]) of a row that wants it. */
static inline status *harness_lower(const char *name, int n_args, const argument *args, int n_inputs,
                                    const harness_array *inputs, int n_results, const harness_array *results,
                                    strbuf *text) {
    const op_row *row = op_find(name);
    if (!row) return status_new(STATUS_NOT_FOUND, "%s has no row", name);
    hlo_builder *b = hlo_create();
    if (!b) return status_no_memory();
    hlo_value parameters[HARNESS_MAX_VALUES] = {NULL}, values[HARNESS_MAX_VALUES] = {NULL}, wanted[HARNESS_MAX_VALUES];
    harness_generator generator = {.builder = b};
    hlo_value *of_args[HARNESS_MAX_VALUES];
    tensor_type types[HARNESS_MAX_VALUES];
    for (int i = 0; i < n_inputs; i++)
        parameters[i] = hlo_parameter(b, inputs[i].dtype, inputs[i].rank, inputs[i].dims);
    if (row->flags & OP_RANDOM) generator.state = hlo_parameter(b, DTYPE_U64, 1, (int64_t[]){2});
    for (int i = 0; i < n_args; i++) of_args[i] = harness_values(b, &args[i], parameters);
    for (int k = 0; k < n_results; k++) types[k] = (tensor_type){results[k].dtype, results[k].rank, results[k].dims};
    lowering_host host = {harness_runtime_number, harness_number_used, harness_random_state, &generator};
    lowering l = {.builder = b,
                  .row = row,
                  .n_args = n_args,
                  .args = args,
                  .values = of_args,
                  .n_results = n_results,
                  .result_types = types,
                  .results = values,
                  .host = &host};
    lowering_run(&l);
    int n = 0;
    for (int k = 0; k < n_results; k++)
        if (results[k].dtype != DTYPE_INVALID) wanted[n++] = values[k];
    status *error = hlo_finish(b, "test", n, wanted, text);
    hlo_destroy(b);
    return error;
}

static inline status *harness_execute(const strbuf *text, bool random, int n_inputs, const harness_array *inputs,
                                      int n_results, harness_array *results) {
    const char *const flag = "xla_cpu_enable_fast_min_max", *const off = "false";
    pjrt_compile_options options = {.n_flags = 1, .flag_names = &flag, .flag_values = &off};
    pjrt_executable *executable = NULL;
    pjrt_buffer *in[HARNESS_MAX_VALUES] = {NULL}, *out[HARNESS_MAX_VALUES] = {NULL};
    const uint64_t seed[2] = {1, 2};
    int n = 0, wanted = 0;
    status *error = pjrt_compile(harness_client, strbuf_text(text), text->size, &options, &executable);
    for (; n < n_inputs && !error; n++)
        error = pjrt_buffer_from_host(harness_client, 0, inputs[n].data, inputs[n].dtype, inputs[n].rank,
                                      inputs[n].dims, &in[n]);
    if (random && !error)
        error = pjrt_buffer_from_host(harness_client, 0, seed, DTYPE_U64, 1, (int64_t[]){2}, &in[n++]);
    if (!error) error = pjrt_execute(executable, 0, n, in, NULL, out);
    for (int k = 0; k < n_results; k++) {
        if (results[k].dtype == DTYPE_INVALID) continue;
        if (!error) error = pjrt_buffer_to_host(out[wanted], results[k].data, harness_bytes(&results[k]));
        pjrt_buffer_release(out[wanted++]);
    }
    for (int i = 0; i < n; i++) pjrt_buffer_release(in[i]);
    if (executable) pjrt_executable_release(executable);
    return error;
}

/* Runs the operator; fills the data of every wanted result. */
static inline status *harness_run(const char *name, int n_args, const argument *args, int n_inputs,
                                  const harness_array *inputs, int n_results, harness_array *results) {
    strbuf text;
    strbuf_init(&text);
    status *error = harness_lower(name, n_args, args, n_inputs, inputs, n_results, results, &text);
    if (!error)
        error = harness_execute(&text, (op_find(name)->flags & OP_RANDOM) != 0, n_inputs, inputs, n_results, results);
    strbuf_free(&text);
    return error;
}

#endif
