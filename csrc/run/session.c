/* A compiled program with its state on a device, and its calls. */
#include <string.h>

#include "base/alloc.h"
#include "exec/internal.h"
#include "run/internal.h"

struct session {
    const artefact_program *program;
    pjrt_client *client;
    int device;
    pjrt_executable *executable;
    pjrt_buffer **arguments; /* one a parameter; of state they are owned, the rest lasts for a call */
    pjrt_buffer **results;
    bool *donate;    /* a parameter's memory goes to its new value */
    int *new_value;  /* the result that is a parameter's new value, or -1 */
    uint64_t offset; /* of the random numbers */
};

/* ---- making one ---- */

static int find_new_value(const artefact_program *p, int parameter) {
    const artefact_value *v = &p->parameters[parameter];
    for (int k = 0; v->role == ROLE_STATE && k < p->n_results; k++)
        if (p->results[k].role == ROLE_STATE && strcmp(p->results[k].name, v->name) == 0) return k;
    return -1;
}

/* A state that is two parameters must keep its memory until both are read. */
static bool is_shared(const artefact_program *p, int parameter) {
    for (int i = 0; i < p->n_parameters; i++)
        if (i != parameter && p->parameters[i].role == ROLE_STATE &&
            strcmp(p->parameters[i].name, p->parameters[parameter].name) == 0)
            return true;
    return false;
}

static status *allocate(session *s) {
    size_t n = (size_t)s->program->n_parameters, results = (size_t)s->program->n_results;
    s->arguments = mem_alloc((n + 1) * sizeof *s->arguments);
    s->results = mem_alloc((results + 1) * sizeof *s->results);
    s->donate = mem_alloc((n + 1) * sizeof *s->donate);
    s->new_value = mem_alloc((n + 1) * sizeof *s->new_value);
    return s->arguments && s->results && s->donate && s->new_value ? NULL : status_no_memory();
}

static status *compile(session *s, const artefact *a) {
    file_content text;
    char *path = artefact_path(a, a->arena, s->program->file);
    if (!path) return status_no_memory();
    STATUS_TRY(file_open(path, &text));
    status *error = runtime_compile((const char *)text.data, text.size, s->program->file, 0, &s->executable);
    file_close(&text);
    if (error) return status_prefix(error, "StableHLO %s", artefact_version(a, "stablehlo"));
    int n = pjrt_executable_result_count(s->executable);
    if (n == s->program->n_results) return NULL;
    return status_new(STATUS_VALUE, "%s gives %d results, the manifest tells %d", path, n, s->program->n_results);
}

/* A state that is two parameters is one buffer. */
static status *place_state(session *s, const artefact *a) {
    const artefact_program *p = s->program;
    for (int i = 0; i < p->n_parameters; i++) {
        const artefact_value *v = &p->parameters[i];
        s->new_value[i] = find_new_value(p, i);
        s->donate[i] = s->new_value[i] >= 0 && !is_shared(p, i);
        if (v->role != ROLE_STATE) continue;
        pjrt_buffer *placed = session_state(s, v->name);
        if (placed) {
            s->arguments[i] = pjrt_buffer_retain(placed);
            continue;
        }
        const host_array *weight = safetensors_find(a->weights, v->name);
        STATUS_TRY(status_prefix(pjrt_buffer_from_host(s->client, s->device, weight->data, weight->dtype, weight->rank,
                                                       weight->dims, &s->arguments[i]),
                                 "state %s", v->name));
    }
    return NULL;
}

status *session_create(const artefact *a, int program, int device, session **out) {
    *out = NULL;
    session *s = mem_alloc(sizeof *s);
    if (!s) return status_no_memory();
    s->program = &a->programs[program];
    s->device = device;
    status *error = runtime_client(&s->client);
    if (!error) error = allocate(s);
    if (!error) error = compile(s, a);
    if (!error) error = place_state(s, a);
    if (error) {
        session_destroy(s);
        return error;
    }
    *out = s;
    return NULL;
}

void session_destroy(session *s) {
    if (!s) return;
    for (int i = 0; s->arguments && i < s->program->n_parameters; i++)
        if (s->program->parameters[i].role == ROLE_STATE) pjrt_buffer_release(s->arguments[i]);
    if (s->executable) pjrt_executable_release(s->executable);
    mem_free(s->arguments);
    mem_free(s->results);
    mem_free(s->donate);
    mem_free(s->new_value);
    mem_free(s);
}

pjrt_buffer *session_state(const session *s, const char *name) {
    const artefact_program *p = s->program;
    for (int i = 0; i < p->n_parameters; i++)
        if (p->parameters[i].role == ROLE_STATE && s->arguments[i] && strcmp(p->parameters[i].name, name) == 0)
            return s->arguments[i];
    return NULL;
}

/* ---- a call ---- */

static status *make_words(session *s, int64_t n, uint64_t seed, pjrt_buffer **out) {
    uint64_t *words = mem_alloc(sizeof *words * (size_t)(n ? n : 1));
    if (!words) return status_no_memory();
    for (int64_t j = 0; j < n; j++, s->offset += 4) words[j] = random_word(seed, s->offset);
    status *error = pjrt_buffer_from_host(s->client, s->device, words, DTYPE_U64, 1, &n, out);
    mem_free(words);
    return error;
}

/* The buffers of a call that are no state; `random` is to be released after it. */
static status *bind(session *s, pjrt_buffer *const *inputs, uint64_t seed, pjrt_buffer **random) {
    const artefact_program *p = s->program;
    for (int i = 0; i < p->n_parameters; i++) {
        if (p->parameters[i].role == ROLE_INPUT) s->arguments[i] = *inputs++;
        if (p->parameters[i].role != ROLE_RANDOM) continue;
        pjrt_buffer_release(*random);
        *random = NULL;
        STATUS_TRY(make_words(s, p->parameters[i].dims[0], seed, random));
        s->arguments[i] = *random;
    }
    return NULL;
}

static void take_results(session *s, pjrt_buffer **outputs) {
    const artefact_program *p = s->program;
    for (int i = 0; i < p->n_parameters; i++) {
        if (s->new_value[i] < 0) continue;
        pjrt_buffer_release(s->arguments[i]);
        s->arguments[i] = pjrt_buffer_retain(s->results[s->new_value[i]]);
    }
    for (int k = 0; k < p->n_results; k++) {
        if (p->results[k].role == ROLE_STATE)
            pjrt_buffer_release(s->results[k]);
        else
            *outputs++ = s->results[k];
    }
}

status *session_run(session *s, pjrt_buffer *const *inputs, uint64_t seed, pjrt_buffer **outputs) {
    pjrt_buffer *random = NULL;
    status *error = bind(s, inputs, seed, &random);
    if (!error)
        error = pjrt_execute(s->executable, s->device, s->program->n_parameters, s->arguments, s->donate, s->results);
    if (!error) take_results(s, outputs);
    pjrt_buffer_release(random);
    return error;
}
