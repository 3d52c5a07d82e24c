/* tpu-run: runs an exported program with no Python and no libtorch. Also the smallest example of the C library. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "exec/exec.h"
#include "run/artefact.h"

static const char usage[] =
    "usage: tpu-run ARTEFACT [options]\n"
    "\n"
    "Runs a program that torch.tpu.export wrote, through any PJRT plugin.\n"
    "\n"
    "  --plugin PATH      the PJRT plugin (a shared library); unset: TORCH_TPU_PJRT_PLUGIN, TPU_LIBRARY_PATH\n"
    "  --input NAME=FILE  an input from a .npy file\n"
    "  --input FILE       inputs from a .safetensors file, by name\n"
    "  --zeros            inputs that are not given are zeros (to measure time)\n"
    "  --output NAME=FILE writes an output to a .npy file; without NAME= the only one\n"
    "  --output FILE      writes all outputs to a .safetensors file\n"
    "  --program N        which program, where there are several sizes; unset: the one that the inputs fit\n"
    "  --device N         the device's number; unset: 0\n"
    "  --repeat N         calls the program N times; outputs are the last call's\n"
    "  --seed N           of random numbers; unset: 0\n"
    "  --save-state FILE  writes the state after the last call to a .safetensors file\n"
    "  --list             prints what the program takes and gives, and runs nothing\n"
    "  --quiet            prints no values and no times\n"
    "  --help, --version\n"
    "\n"
    "State that a program writes (a cache, running means) is what its next call reads. Exit status: 0, 1 for an\n"
    "error, 2 for a wrong command line.\n";

enum { MAX_FILES = 1024, SHOWN_VALUES = 8 };

typedef struct {
    const char *folder;
    int n_inputs, n_outputs;
    char *inputs[MAX_FILES], *outputs[MAX_FILES];
    const char *save_state;
    long program, device, repeat;
    uint64_t seed;
    bool zeros, list, quiet;
} command;

/* ---- the command line ---- */

static bool read_number(const char *name, const char *text, long least, long *out) {
    char *end;
    errno = 0;
    *out = strtol(text, &end, 10);
    if (*text && !*end && !errno && *out >= least) return true;
    fprintf(stderr, "tpu-run: --%s %s: expected a whole number from %ld\n", name, text, least);
    return false;
}

static bool add_file(const char *name, char **files, int *n, char *text) {
    if (*n < MAX_FILES) {
        files[(*n)++] = text;
        return true;
    }
    fprintf(stderr, "tpu-run: more than %d times --%s: use a .safetensors file\n", MAX_FILES, name);
    return false;
}

enum { PLUGIN, INPUT, ZEROS, OUTPUT, PROGRAM, DEVICE, REPEAT, SEED, SAVE_STATE, LIST, QUIET, HELP, VERSION };
static const struct option options[] = {{"plugin", required_argument, NULL, PLUGIN},
                                        {"input", required_argument, NULL, INPUT},
                                        {"zeros", no_argument, NULL, ZEROS},
                                        {"output", required_argument, NULL, OUTPUT},
                                        {"program", required_argument, NULL, PROGRAM},
                                        {"device", required_argument, NULL, DEVICE},
                                        {"repeat", required_argument, NULL, REPEAT},
                                        {"seed", required_argument, NULL, SEED},
                                        {"save-state", required_argument, NULL, SAVE_STATE},
                                        {"list", no_argument, NULL, LIST},
                                        {"quiet", no_argument, NULL, QUIET},
                                        {"help", no_argument, NULL, HELP},
                                        {"version", no_argument, NULL, VERSION},
                                        {0}};

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool add_input(command *c, char *text) {
    if (strchr(text, '=') || ends_with(text, ".safetensors")) return add_file("input", c->inputs, &c->n_inputs, text);
    fprintf(stderr, "tpu-run: --input %s: expected NAME=FILE.npy or FILE.safetensors\n", text);
    return false;
}

static bool read_option(command *c, int option, char *text) {
    long number;
    switch (option) {
        case PLUGIN:
            return setenv("TORCH_TPU_PJRT_PLUGIN", text, 1) == 0; /* the runtime's choice */
        case INPUT:
            return add_input(c, text);
        case OUTPUT:
            return add_file("output", c->outputs, &c->n_outputs, text);
        case PROGRAM:
            return read_number("program", text, 0, &c->program);
        case DEVICE:
            return read_number("device", text, 0, &c->device);
        case REPEAT:
            return read_number("repeat", text, 1, &c->repeat);
        case SEED:
            if (!read_number("seed", text, 0, &number)) return false;
            c->seed = (uint64_t)number;
            return true;
        case SAVE_STATE:
            c->save_state = text;
            return true;
        case ZEROS:
            return c->zeros = true;
        case LIST:
            return c->list = true;
        case QUIET:
            return c->quiet = true;
        default:
            return false;
    }
}

/* -1: go on; else the exit status. */
static int read_command(command *c, int argc, char **argv) {
    *c = (command){.program = -1, .repeat = 1};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) >= 0;) {
        if (option == HELP || option == VERSION) {
            fputs(option == HELP ? usage : "tpu-run " TORCH_TPU_VERSION "\n", stdout);
            return 0;
        }
        if (!read_option(c, option, optarg)) {
            fputs("tpu-run --help says more\n", stderr);
            return 2;
        }
    }
    if (optind + 1 != argc) {
        fputs(usage, stderr);
        return 2;
    }
    c->folder = argv[optind];
    return -1;
}

/* ---- inputs ---- */

typedef struct {
    const char *name;
    host_array array;
} named_array;

typedef struct {
    arena *arena;
    named_array *arrays;
    int n, capacity;
    file_content *files;
    safetensors **containers;
} input_set;

static status *add_array(input_set *set, const char *name, const host_array *array) {
    for (int i = 0; i < set->n; i++)
        if (strcmp(set->arrays[i].name, name) == 0) return status_new(STATUS_VALUE, "input %s is given twice", name);
    if (set->n == set->capacity) {
        set->capacity = set->capacity ? 2 * set->capacity : 16;
        named_array *grown = mem_realloc(set->arrays, sizeof *grown * (size_t)set->capacity);
        if (!grown) return status_no_memory();
        set->arrays = grown;
    }
    set->arrays[set->n++] = (named_array){name, *array};
    return NULL;
}

static dtype wanted_dtype(const artefact *a, const char *name) {
    const artefact_program *p = artefact_program_at(a, 0);
    for (int i = 0; i < p->n_parameters; i++)
        if (p->parameters[i].role == ROLE_INPUT && strcmp(p->parameters[i].name, name) == 0)
            return p->parameters[i].dtype;
    return DTYPE_INVALID;
}

static status *read_input(input_set *set, const artefact *a, char *text, int slot) {
    char *equals = strchr(text, '=');
    if (equals && !ends_with(text, ".safetensors")) {
        host_array array;
        *equals = 0;
        STATUS_TRY(status_prefix(file_open(equals + 1, &set->files[slot]), "input %s", text));
        STATUS_TRY(status_prefix(npy_parse(&set->files[slot], wanted_dtype(a, text), set->arena, &array),
                                 "input %s: %s", text, equals + 1));
        return add_array(set, text, &array);
    }
    STATUS_TRY(safetensors_open(text, &set->containers[slot]));
    const safetensors *s = set->containers[slot];
    for (int i = 0; i < safetensors_count(s); i++)
        STATUS_TRY(add_array(set, safetensors_name(s, i), safetensors_find(s, safetensors_name(s, i))));
    return NULL;
}

static status *read_inputs(input_set *set, const artefact *a, command *c) {
    set->arena = arena_create();
    if (!set->arena) return status_no_memory();
    set->files = ARENA_NEW(set->arena, file_content, c->n_inputs);
    set->containers = ARENA_NEW(set->arena, safetensors *, c->n_inputs);
    if (!set->files || !set->containers) return status_no_memory();
    for (int i = 0; i < c->n_inputs; i++) STATUS_TRY(read_input(set, a, c->inputs[i], i));
    return NULL;
}

static void free_inputs(input_set *set, int n_files) {
    for (int i = 0; set->files && i < n_files; i++) file_close(&set->files[i]);
    for (int i = 0; set->containers && i < n_files; i++) safetensors_close(set->containers[i]);
    mem_free(set->arrays);
    if (set->arena) arena_destroy(set->arena);
}

static const host_array *find_array(const input_set *set, const char *name) {
    for (int i = 0; i < set->n; i++)
        if (strcmp(set->arrays[i].name, name) == 0) return &set->arrays[i].array;
    return NULL;
}

/* ---- which program ---- */

static bool same_type(const artefact_value *v, const host_array *array) {
    return v->dtype == array->dtype && v->rank == array->rank &&
           memcmp(v->dims, array->dims, sizeof(int64_t) * (size_t)v->rank) == 0;
}

static status *wrong_type(const artefact_value *v, const host_array *array) {
    strbuf text;
    strbuf_init(&text);
    array_print_type(&text, array->dtype, array->rank, array->dims);
    strbuf_puts(&text, ", the program takes ");
    array_print_type(&text, v->dtype, v->rank, v->dims);
    status *s = status_new(STATUS_VALUE, "input %s is %s", v->name, strbuf_text(&text));
    strbuf_free(&text);
    return s;
}

static status *check_inputs(const artefact_program *p, const input_set *set, bool zeros) {
    int used = 0;
    for (int i = 0; i < p->n_parameters; i++) {
        const artefact_value *v = &p->parameters[i];
        if (v->role != ROLE_INPUT) continue;
        const host_array *array = find_array(set, v->name);
        if (!array && !zeros)
            return status_new(STATUS_VALUE, "input %s is missing: --input %s=FILE.npy (--list shows all)", v->name,
                              v->name);
        if (array && !same_type(v, array)) return wrong_type(v, array);
        used += array != NULL;
    }
    for (int i = 0; used < set->n && i < set->n; i++) {
        bool known = false;
        for (int j = 0; j < p->n_parameters; j++)
            known |= p->parameters[j].role == ROLE_INPUT && strcmp(p->parameters[j].name, set->arrays[i].name) == 0;
        if (!known)
            return status_new(STATUS_VALUE, "the program has no input %s (--list shows all)", set->arrays[i].name);
    }
    return NULL;
}

static status *choose_program(const artefact *a, const input_set *set, const command *c, int *out) {
    int n = artefact_program_count(a);
    if (c->program >= n) return status_new(STATUS_INDEX, "there is no program %ld: the artefact has %d", c->program, n);
    if (c->program >= 0 || n == 1) {
        *out = c->program >= 0 ? (int)c->program : 0;
        return check_inputs(artefact_program_at(a, *out), set, c->zeros);
    }
    strbuf why;
    strbuf_init(&why);
    bool found = false;
    for (int i = 0; i < n && !found; i++) {
        status *s = check_inputs(artefact_program_at(a, i), set, c->zeros);
        found = !s;
        *out = i;
        if (s) strbuf_printf(&why, "\n  program %d: %s", i, status_message(s));
        status_free(s);
    }
    status *s = found ? NULL : status_new(STATUS_VALUE, "none of the %d programs fits:%s", n, strbuf_text(&why));
    strbuf_free(&why);
    return s;
}

/* ---- outputs ---- */

typedef struct {
    const char *name;
    host_array array;
    void *memory;
} output;

static double element(const host_array *a, size_t i) {
    const unsigned char *at = (const unsigned char *)a->data + i * dtype_bytes(a->dtype);
    union {
        uint32_t u;
        float f;
    } bits = {0};
    double wide;
    int64_t whole = 0;
    uint16_t half;
    switch (a->dtype) {
        case DTYPE_F32:
            memcpy(&bits.f, at, 4);
            return bits.f;
        case DTYPE_BF16:
            memcpy(&half, at, 2);
            bits.u = (uint32_t)half << 16;
            return bits.f;
        case DTYPE_F64:
            memcpy(&wide, at, 8);
            return wide;
        case DTYPE_I8:
        case DTYPE_I16:
        case DTYPE_I32:
        case DTYPE_I64: { /* little-endian, sign-extended */
            size_t n = dtype_bytes(a->dtype);
            memcpy(&whole, at, n);
            return (double)((int64_t)((uint64_t)whole << (64 - 8 * n)) >> (64 - 8 * n));
        }
        case DTYPE_BOOL:
        case DTYPE_U8:
        case DTYPE_U16:
        case DTYPE_U32:
        case DTYPE_U64:
            memcpy(&whole, at, dtype_bytes(a->dtype));
            return (double)(uint64_t)whole;
        default:
            return NAN;
    }
}

static bool has_elements(dtype t) { return dtype_bits(t) >= 8 && !dtype_is_complex(t) && t != DTYPE_F16; }

static void print_output(const output *o) {
    strbuf text;
    strbuf_init(&text);
    array_print_type(&text, o->array.dtype, o->array.rank, o->array.dims);
    size_t n = o->array.bytes / dtype_bytes(o->array.dtype), shown = n < SHOWN_VALUES ? n : SHOWN_VALUES;
    printf("%s: %s", o->name, strbuf_text(&text));
    for (size_t i = 0; i < shown && has_elements(o->array.dtype) && !isnan(element(&o->array, i)); i++)
        printf(i ? ", %.6g" : " = %.6g", element(&o->array, i));
    puts(n > shown ? ", ..." : "");
    strbuf_free(&text);
}

static status *fetch(const char *name, const artefact_value *v, pjrt_buffer *buffer, output *out) {
    out->name = name;
    out->array = (host_array){.dtype = v->dtype, .rank = v->rank};
    memcpy(out->array.dims, v->dims, sizeof v->dims);
    int64_t held = pjrt_buffer_bytes(buffer);
    if (!array_count_bytes(&out->array) || held < 0 || (size_t)held != out->array.bytes ||
        pjrt_buffer_dtype(buffer) != v->dtype)
        return status_new(STATUS_VALUE, "%s is of another type than the manifest tells", name);
    out->memory = mem_alloc(out->array.bytes ? out->array.bytes : 1);
    if (!out->memory) return status_no_memory();
    out->array.data = out->memory;
    return status_prefix(pjrt_buffer_to_host(buffer, out->memory, out->array.bytes), "%s", name);
}

static void free_outputs(int n, output *outputs) {
    for (int i = 0; outputs && i < n; i++) mem_free(outputs[i].memory);
    mem_free(outputs);
}

static status *write_all(const char *path, int n, const output *outputs) {
    const char **names = mem_alloc(sizeof *names * (size_t)(n + 1));
    host_array *arrays = mem_alloc(sizeof *arrays * (size_t)(n + 1));
    for (int i = 0; names && arrays && i < n; i++) {
        names[i] = outputs[i].name;
        arrays[i] = outputs[i].array;
    }
    status *s = names && arrays ? safetensors_write(path, n, names, arrays) : status_no_memory();
    mem_free(names);
    mem_free(arrays);
    return s;
}

static status *write_output(char *text, int n, const output *outputs) {
    char *equals = strchr(text, '=');
    const char *path = equals ? equals + 1 : text;
    if (!equals && ends_with(path, ".safetensors")) return write_all(path, n, outputs);
    if (!equals && n != 1)
        return status_new(STATUS_VALUE, "--output %s: there are %d outputs: NAME=FILE.npy, or FILE.safetensors", path,
                          n);
    if (equals) *equals = 0;
    for (int i = 0; i < n; i++)
        if (!equals || strcmp(outputs[i].name, text) == 0) return npy_write(path, &outputs[i].array);
    return status_new(STATUS_VALUE, "--output: the program has no output %s (--list shows all)", text);
}

static int count_outputs(const artefact_program *p) {
    int n = 0;
    for (int k = 0; k < p->n_results; k++) n += p->results[k].role != ROLE_STATE;
    return n;
}

static status *give_outputs(const artefact_program *p, pjrt_buffer **buffers, const command *c) {
    int n = 0;
    output *outputs = mem_alloc(sizeof *outputs * (size_t)(count_outputs(p) + 1));
    if (!outputs) return status_no_memory();
    status *s = NULL;
    for (int k = 0; !s && k < p->n_results; k++) {
        if (p->results[k].role == ROLE_STATE) continue;
        s = fetch(p->results[k].name, &p->results[k], buffers[n], &outputs[n]);
        n++;
    }
    for (int i = 0; !s && !c->quiet && i < n; i++) print_output(&outputs[i]);
    for (int i = 0; !s && i < c->n_outputs; i++) s = write_output(c->outputs[i], n, outputs);
    free_outputs(n, outputs);
    return s;
}

static status *save_state(const artefact_program *p, const session *on, const char *path) {
    int n = 0;
    output *states = mem_alloc(sizeof *states * (size_t)(p->n_parameters + 1));
    if (!states) return status_no_memory();
    status *s = NULL;
    for (int i = 0; !s && i < p->n_parameters; i++) {
        const artefact_value *v = &p->parameters[i];
        bool known = v->role != ROLE_STATE;
        for (int j = 0; j < n; j++) known |= strcmp(states[j].name, v->name) == 0;
        if (known) continue;
        s = fetch(v->name, v, session_state(on, v->name), &states[n]);
        n++;
    }
    if (!s) s = write_all(path, n, states);
    free_outputs(n, states);
    return s;
}

/* ---- running ---- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static status *place_input(const artefact_value *v, const host_array *array, pjrt_client *client, int device,
                           pjrt_buffer **out) {
    if (array) return pjrt_buffer_from_host(client, device, array->data, v->dtype, v->rank, v->dims, out);
    host_array zeros = {.dtype = v->dtype, .rank = v->rank};
    memcpy(zeros.dims, v->dims, sizeof v->dims);
    if (!array_count_bytes(&zeros)) return status_new(STATUS_VALUE, "an impossible shape");
    void *memory = mem_alloc(zeros.bytes ? zeros.bytes : 1);
    if (!memory) return status_no_memory();
    status *s = pjrt_buffer_from_host(client, device, memory, v->dtype, v->rank, v->dims, out);
    mem_free(memory);
    return s;
}

static void release(int n, pjrt_buffer **buffers) {
    for (int i = 0; i < n; i++) {
        pjrt_buffer_release(buffers[i]);
        buffers[i] = NULL;
    }
}

/* One call, from launch until all outputs are there. */
static status *time_call(session *s, pjrt_buffer **inputs, uint64_t seed, int n, pjrt_buffer **outputs,
                         double *seconds) {
    double start = now();
    STATUS_TRY(session_run(s, inputs, seed, outputs));
    status *first = NULL;
    for (int i = 0; i < n; i++) {
        status *error = pjrt_buffer_wait(outputs[i]);
        if (first)
            status_free(error);
        else
            first = error;
    }
    *seconds = now() - start;
    return first;
}

static status *repeat_calls(session *s, const command *c, pjrt_buffer **inputs, int n, pjrt_buffer **outputs) {
    double first = 0, total = 0, least = INFINITY;
    for (long i = 0; i < c->repeat; i++) {
        double seconds;
        release(n, outputs);
        STATUS_TRY(time_call(s, inputs, c->seed, n, outputs, &seconds));
        if (i == 0) first = seconds;
        if (i == 0 && c->repeat > 1) continue; /* the first call warms up */
        total += seconds;
        if (seconds < least) least = seconds;
    }
    if (c->quiet) return NULL;
    if (c->repeat == 1)
        printf("1 call: %.3f ms\n", first * 1e3);
    else
        printf("%ld calls: first %.3f ms, then %.3f ms on average, %.3f ms at least\n", c->repeat, first * 1e3,
               total / (double)(c->repeat - 1) * 1e3, least * 1e3);
    return NULL;
}

static status *run_program(const artefact_program *p, session *s, pjrt_client *client, const input_set *set,
                           const command *c) {
    int n_inputs = 0, n_outputs = count_outputs(p);
    pjrt_buffer **inputs = mem_alloc(sizeof *inputs * (size_t)(p->n_parameters + 1));
    pjrt_buffer **outputs = mem_alloc(sizeof *outputs * (size_t)(n_outputs + 1));
    status *error = inputs && outputs ? NULL : status_no_memory();
    for (int i = 0; !error && i < p->n_parameters; i++) {
        const artefact_value *v = &p->parameters[i];
        if (v->role != ROLE_INPUT) continue;
        error = status_prefix(place_input(v, find_array(set, v->name), client, (int)c->device, &inputs[n_inputs]),
                              "input %s", v->name);
        n_inputs += !error;
    }
    if (!error) error = repeat_calls(s, c, inputs, n_outputs, outputs);
    if (!error) error = give_outputs(p, outputs, c);
    if (!error && c->save_state) error = save_state(p, s, c->save_state);
    if (inputs) release(n_inputs, inputs);
    if (outputs) release(n_outputs, outputs);
    mem_free(inputs);
    mem_free(outputs);
    return error;
}

static status *open_client(const command *c, pjrt_client **out) {
    STATUS_TRY(status_prefix(runtime_client(out), "--plugin PATH or TORCH_TPU_PJRT_PLUGIN names a PJRT plugin"));
    int n = pjrt_client_device_count(*out);
    if (c->device >= n) return status_new(STATUS_INDEX, "there is no device %ld: the plugin has %d", c->device, n);
    if (!c->quiet) printf("%s\n", pjrt_device_description(*out, (int)c->device));
    return NULL;
}

static status *compile_and_run(const artefact *a, int program, const input_set *set, const command *c) {
    pjrt_client *client;
    session *s;
    STATUS_TRY(open_client(c, &client));
    double start = now();
    STATUS_TRY(session_create(a, program, (int)c->device, &s));
    if (!c->quiet) printf("ready in %.3f s\n", now() - start);
    status *error = run_program(artefact_program_at(a, program), s, client, set, c);
    session_destroy(s);
    return error;
}

/* ---- --list ---- */

static void list_values(const char *title, int n, const artefact_value *values, artefact_role role) {
    for (int i = 0; i < n; i++) {
        if (values[i].role != role) continue;
        strbuf text;
        strbuf_init(&text);
        array_print_type(&text, values[i].dtype, values[i].rank, values[i].dims);
        printf("  %-7s %s: %s\n", title, values[i].name, strbuf_text(&text));
        strbuf_free(&text);
    }
}

static void list_programs(const artefact *a) {
    printf("torch_tpu %s, torch %s, StableHLO %s\n", artefact_version(a, "torch_tpu"), artefact_version(a, "torch"),
           artefact_version(a, "stablehlo"));
    for (int i = 0; i < artefact_program_count(a); i++) {
        const artefact_program *p = artefact_program_at(a, i);
        int states = 0;
        for (int j = 0; j < p->n_parameters; j++) states += p->parameters[j].role == ROLE_STATE;
        printf("program %d (%s): %d of state\n", i, p->file, states);
        list_values("input", p->n_parameters, p->parameters, ROLE_INPUT);
        list_values("output", p->n_results, p->results, ROLE_OUTPUT);
        list_values("written", p->n_results, p->results, ROLE_INPUT);
        list_values("state", p->n_results, p->results, ROLE_STATE);
    }
}

/* ---- all of it ---- */

static status *run(const artefact *a, command *c) {
    input_set set = {0};
    int program = 0;
    status *s = read_inputs(&set, a, c);
    if (!s) s = choose_program(a, &set, c, &program);
    if (!s) s = compile_and_run(a, program, &set, c);
    free_inputs(&set, c->n_inputs);
    return s;
}

int main(int argc, char **argv) {
    command c;
    artefact *a = NULL;
    int code = read_command(&c, argc, argv);
    if (code >= 0) return code;
    status *s = artefact_open(c.folder, &a);
    if (!s && c.list)
        list_programs(a);
    else if (!s)
        s = run(a, &c);
    artefact_close(a);
    if (s) fprintf(stderr, "tpu-run: %s\n", status_message(s));
    code = s != NULL;
    status_free(s);
    return code;
}
