/* The folder: its manifest, its weights, its programs' texts. */
#include "run/artefact.h"

#include <string.h>

#include "base/alloc.h"
#include "run/internal.h"
#include "run/json.h"

static const char format_name[] = "torch_tpu.export";
enum { FORMAT_VERSION = 1, MAX_NAME = 4096 };

static const char *const parameter_roles[] = {"input", "state", "random"};
static const char *const result_roles[] = {"input", "state", "output"};
static const artefact_role role_values[2][3] = {{ROLE_INPUT, ROLE_STATE, ROLE_RANDOM},
                                                {ROLE_INPUT, ROLE_STATE, ROLE_OUTPUT}};

/* ---- one parameter or result ---- */

static status *read_type(const json *v, artefact_value *out) {
    const char *type = json_string(json_member(v, "dtype"));
    const json *shape = json_array(json_member(v, "shape"));
    for (int t = DTYPE_INVALID + 1; type && t < DTYPE_COUNT; t++)
        if (strcmp(type, dtype_torch_name((dtype)t)) == 0) out->dtype = (dtype)t;
    if (out->dtype == DTYPE_INVALID) return status_new(STATUS_VALUE, "unknown dtype %s", type ? type : "(missing)");
    if (!shape || shape->count > ARRAY_MAX_RANK) return status_new(STATUS_VALUE, "no shape, or one of too many sizes");
    for (const json *n = shape->first; n; n = n->next)
        if (!json_integer(n, &out->dims[out->rank++])) return status_new(STATUS_VALUE, "a shape that is damaged");
    host_array as = value_array(out, NULL);
    return as.bytes == SIZE_MAX ? status_new(STATUS_VALUE, "an impossible shape") : NULL;
}

static status *read_value(const json *v, bool is_result, artefact_value *out) {
    const char *const *names = is_result ? result_roles : parameter_roles;
    const json *found = NULL;
    for (int i = 0; !found && i < 3; i++) {
        found = json_member(v, names[i]);
        out->role = role_values[is_result][i];
    }
    if (!found) return status_new(STATUS_VALUE, "no role");
    out->name = out->role == ROLE_RANDOM ? "" : json_string(found);
    if (!out->name || strlen(out->name) > MAX_NAME) return status_new(STATUS_VALUE, "no name");
    STATUS_TRY(read_type(v, out));
    bool words = out->dtype == DTYPE_U64 && out->rank == 1;
    return out->role == ROLE_RANDOM && !words ? status_new(STATUS_VALUE, "random words that are no uint64[n]") : NULL;
}

static status *read_values(arena *mem, const json *list, bool is_result, int *n, const artefact_value **out) {
    list = json_array(list);
    const char *what = is_result ? "result" : "parameter";
    if (!list) return status_new(STATUS_VALUE, "no list of %ss", what);
    artefact_value *values = ARENA_NEW(mem, artefact_value, list->count);
    if (!values) return status_no_memory();
    *n = 0;
    *out = values;
    for (const json *v = list->first; v; v = v->next, ++*n)
        STATUS_TRY(status_prefix(read_value(v, is_result, &values[*n]), "%s %d", what, *n));
    return NULL;
}

/* ---- a program ---- */

/* Its state is among the weights, with the same type; what it writes to is a parameter of the same type. */
static status *check_parameter(const artefact *a, const artefact_program *p, int i) {
    const artefact_value *v = &p->parameters[i];
    if (v->role != ROLE_STATE) return NULL;
    const host_array *weight = safetensors_find(a->weights, v->name);
    if (!weight) return status_new(STATUS_VALUE, "state %s is not among the weights", v->name);
    if (value_fits(v, weight)) return NULL;
    return status_new(STATUS_VALUE, "state %s is of another type than among the weights", v->name);
}

static status *check_result(const artefact_program *p, int k) {
    const artefact_value *r = &p->results[k];
    if (r->role == ROLE_OUTPUT) return NULL;
    for (int i = 0; i < p->n_parameters; i++) {
        const artefact_value *v = &p->parameters[i];
        if (v->role != r->role || strcmp(v->name, r->name) != 0) continue;
        host_array as = value_array(r, NULL);
        return value_fits(v, &as) ? NULL : status_new(STATUS_VALUE, "result %d is of another type than %s", k, r->name);
    }
    /* state that the program writes without reading it */
    return r->role == ROLE_STATE ? NULL : status_new(STATUS_VALUE, "result %d: there is no input %s", k, r->name);
}

static status *read_program(artefact *a, const json *v, artefact_program *out) {
    out->file = json_string(json_member(v, "file"));
    if (!out->file || !*out->file || strchr(out->file, '/') || *out->file == '.')
        return status_new(STATUS_VALUE, "no file name, or one outside of the folder");
    STATUS_TRY(read_values(a->arena, json_member(v, "parameters"), false, &out->n_parameters, &out->parameters));
    STATUS_TRY(read_values(a->arena, json_member(v, "results"), true, &out->n_results, &out->results));
    for (int i = 0; i < out->n_parameters; i++) STATUS_TRY(check_parameter(a, out, i));
    for (int k = 0; k < out->n_results; k++) STATUS_TRY(check_result(out, k));
    return NULL;
}

static status *read_programs(artefact *a) {
    const json *list = json_array(json_member(a->manifest, "programs"));
    if (!list || !list->count) return status_new(STATUS_VALUE, "it lists no programs");
    a->programs = ARENA_NEW(a->arena, artefact_program, list->count);
    if (!a->programs) return status_no_memory();
    for (const json *v = list->first; v; v = v->next, a->n_programs++)
        STATUS_TRY(status_prefix(read_program(a, v, &a->programs[a->n_programs]), "program %d", a->n_programs));
    return NULL;
}

/* ---- the folder ---- */

char *artefact_path(const artefact *a, arena *mem, const char *file) {
    return arena_printf(mem, "%s/%s", a->folder, file);
}

static status *read_weights(artefact *a) {
    const char *file = json_string(json_member(a->manifest, "weights"));
    if (!file || strchr(file, '/')) return status_new(STATUS_VALUE, "it names no file of weights");
    const char *path = artefact_path(a, a->arena, file);
    return path ? safetensors_open(path, &a->weights) : status_no_memory();
}

static status *read_manifest(artefact *a) {
    const char *name = json_string(json_member(a->manifest, "format"));
    int64_t version;
    if (!name || strcmp(name, format_name) != 0) return status_new(STATUS_VALUE, "not the manifest of an artefact");
    if (!json_integer(json_member(a->manifest, "format_version"), &version))
        return status_new(STATUS_VALUE, "it tells no format_version");
    if (version != FORMAT_VERSION)
        return status_new(STATUS_VALUE, "its format_version is %lld, this program reads %d", (long long)version,
                          FORMAT_VERSION);
    STATUS_TRY(read_weights(a));
    return read_programs(a);
}

static status *open_folder(artefact *a, const char *folder) {
    file_content content;
    a->folder = arena_copy(a->arena, folder, strlen(folder) + 1);
    const char *path = a->folder ? artefact_path(a, a->arena, "manifest.json") : NULL;
    if (!path) return status_no_memory();
    STATUS_TRY(status_prefix(file_open(path, &content), "no artefact"));
    status *s = json_parse(a->arena, (const char *)content.data, content.size, &a->manifest);
    file_close(&content); /* parsed text lives in the arena */
    if (!s) s = read_manifest(a);
    return status_prefix(s, "%s", path);
}

status *artefact_open(const char *folder, artefact **out) {
    *out = NULL;
    artefact *a = mem_alloc(sizeof *a);
    if (a) a->arena = arena_create();
    status *s = a && a->arena ? open_folder(a, folder) : status_no_memory();
    if (s) {
        artefact_close(a);
        return s;
    }
    *out = a;
    return NULL;
}

void artefact_close(artefact *a) {
    if (!a) return;
    safetensors_close(a->weights);
    if (a->arena) arena_destroy(a->arena);
    mem_free(a);
}

int artefact_program_count(const artefact *a) { return a->n_programs; }
const artefact_program *artefact_program_at(const artefact *a, int i) { return &a->programs[i]; }

const char *artefact_version(const artefact *a, const char *of) {
    const char *version = json_string(json_member(json_member(a->manifest, "versions"), of));
    return version ? version : "unknown";
}

/* ---- values ---- */

host_array value_array(const artefact_value *v, const void *data) {
    host_array array = {.dtype = v->dtype, .rank = v->rank, .data = data};
    memcpy(array.dims, v->dims, sizeof array.dims);
    if (!array_count_bytes(&array)) array.bytes = SIZE_MAX;
    return array;
}

bool value_fits(const artefact_value *v, const host_array *array) {
    return v->dtype == array->dtype && v->rank == array->rank &&
           memcmp(v->dims, array->dims, sizeof(int64_t) * (size_t)v->rank) == 0;
}
