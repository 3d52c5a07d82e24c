#include "aot/module.h"

#include <stdlib.h>
#include <string.h>

/* Field numbers of hlo.proto and xla_data.proto. */
enum {
    CONFIGURED_MODULE = 1,

    MODULE_NAME = 1,
    MODULE_COMPUTATION = 3,
    MODULE_ENTRY_ID = 6,
    MODULE_STACK_FRAMES = 17,

    COMPUTATION_NAME = 1,
    COMPUTATION_INSTRUCTION = 2,
    COMPUTATION_ID = 5,
    COMPUTATION_ROOT_ID = 6,

    INSTRUCTION_NAME = 1,
    INSTRUCTION_OPCODE = 2,
    INSTRUCTION_SHAPE = 3,
    INSTRUCTION_METADATA = 7,
    INSTRUCTION_LITERAL = 8,
    INSTRUCTION_PARAMETER = 9,
    INSTRUCTION_FUSION_KIND = 11,
    INSTRUCTION_TUPLE_INDEX = 13,
    INSTRUCTION_CUSTOM_CALL_TARGET = 28,
    INSTRUCTION_ID = 35,
    INSTRUCTION_OPERANDS = 36,
    INSTRUCTION_CALLED = 38,
    INSTRUCTION_BACKEND_CONFIG = 43,
    INSTRUCTION_DIRECTION = 63,

    METADATA_OP_NAME = 2,
    METADATA_SOURCE_FILE = 3,
    METADATA_SOURCE_LINE = 4,
    METADATA_STACK_FRAME = 15,

    LITERAL_S32 = 4,
    LITERAL_S64 = 5,
    LITERAL_U32 = 6,
    LITERAL_U64 = 7,

    FRAMES_FILE_NAME = 1,
    FRAMES_LOCATION = 3,
    FRAMES_FRAME = 4,
    LOCATION_FILE = 1,
    LOCATION_LINE = 3,
    FRAME_LOCATION = 1,
};

static const char *text_of(arena *a, const wire *w) {
    char *copy = arena_alloc(a, wire_size(w) + 1);
    if (!copy) return "";
    if (wire_size(w)) memcpy(copy, w->at, wire_size(w));
    return copy;
}

/* The n-th (from 1) field of this number; false where there are fewer. */
static bool nth_field(wire message, int number, uint64_t n, wire_field *out) {
    while (n && wire_next(&message, out))
        if (out->number == number && --n == 0) return true;
    return false;
}

static uint64_t number_field(wire message, int number) {
    wire_field f;
    return nth_field(message, number, 1, &f) ? f.value : 0;
}

/* ---- numbers ---- */

/* Repeated integers, packed or not, of every field of that number. */
static const int64_t *read_numbers(arena *a, wire message, int number, int *count) {
    int n = 0;
    for (int pass = 0;; pass++) {
        int64_t *out = pass ? ARENA_NEW(a, int64_t, n + 1) : NULL;
        if (pass && !out) n = 0;
        if (pass && !n) break;
        int i = 0;
        wire w = message;
        for (wire_field f; wire_next(&w, &f);) {
            if (f.number != number) continue;
            uint64_t value = f.value;
            if (!f.is_bytes) {
                if (out) out[i] = (int64_t)value;
                i++;
                continue;
            }
            while (wire_number(&f.bytes, &value)) {
                if (out) out[i] = (int64_t)value;
                i++;
            }
        }
        n = i;
        *count = n;
        if (out) return out;
    }
    *count = 0;
    return NULL;
}

/* A scalar integer constant. */
static void read_literal(wire literal, aot_instruction *out) {
    for (wire_field f; wire_next(&literal, &f);) {
        if (f.number < LITERAL_S32 || f.number > LITERAL_U64) continue;
        uint64_t value = f.value;
        int n = 1;
        if (f.is_bytes) {
            n = 0;
            for (uint64_t next; wire_number(&f.bytes, &next); n++) value = next;
        }
        out->has_integer = n == 1;
        out->integer = f.number == LITERAL_S32 ? (int64_t)(int32_t)value : (int64_t)value;
        return;
    }
}

/* "key":"123" or "key":123 within JSON; -1 where it is not. */
static int64_t number_after(const char *json, const char *key) {
    const char *at = strstr(json, key);
    if (!at) return -1;
    at += strlen(key);
    while (*at == '"' || *at == ':' || *at == ' ') at++;
    return *at >= '0' && *at <= '9' ? strtoll(at, NULL, 10) : -1;
}

static void read_backend(arena *a, const wire *config, aot_instruction *out) {
    const char *json = text_of(a, config);
    out->cycles = number_after(json, "\"estimated_cycles\"");
    const char *trips = strstr(json, "\"known_trip_count\"");
    if (trips) out->trip_count = number_after(trips, "\"n\"");
}

/* ---- instructions ---- */

static void read_frame(arena *a, const wire *frames, uint64_t frame, aot_instruction *out) {
    wire_field f;
    if (!frame || !nth_field(*frames, FRAMES_FRAME, frame, &f)) return;
    if (!nth_field(*frames, FRAMES_LOCATION, number_field(f.bytes, FRAME_LOCATION), &f)) return;
    wire location = f.bytes;
    out->source_line = (int)number_field(location, LOCATION_LINE);
    if (nth_field(*frames, FRAMES_FILE_NAME, number_field(location, LOCATION_FILE), &f))
        out->source_file = text_of(a, &f.bytes);
}

static void read_metadata(arena *a, wire metadata, const wire *frames, aot_instruction *out) {
    for (wire_field f; wire_next(&metadata, &f);) {
        if (f.number == METADATA_OP_NAME) out->op_name = text_of(a, &f.bytes);
        if (f.number == METADATA_SOURCE_FILE) out->source_file = text_of(a, &f.bytes);
        if (f.number == METADATA_SOURCE_LINE) out->source_line = (int)f.value;
        if (f.number == METADATA_STACK_FRAME) read_frame(a, frames, f.value, out);
    }
}

static bool read_instruction(arena *a, wire message, const wire *frames, aot_instruction *out) {
    *out = (aot_instruction){
        .name = "", .opcode = "", .op_name = "", .source_file = "", .cycles = -1, .trip_count = -1, .raw = message};
    for (wire_field f; wire_next(&message, &f);) {
        switch (f.number) {
            case INSTRUCTION_NAME:
                out->name = text_of(a, &f.bytes);
                break;
            case INSTRUCTION_OPCODE:
                out->opcode = text_of(a, &f.bytes);
                break;
            case INSTRUCTION_SHAPE:
                out->shape = f.bytes;
                break;
            case INSTRUCTION_METADATA:
                read_metadata(a, f.bytes, frames, out);
                break;
            case INSTRUCTION_LITERAL:
                read_literal(f.bytes, out);
                break;
            case INSTRUCTION_PARAMETER:
                out->parameter_number = (int64_t)f.value;
                break;
            case INSTRUCTION_FUSION_KIND:
                out->fusion_kind = text_of(a, &f.bytes);
                break;
            case INSTRUCTION_TUPLE_INDEX:
                out->tuple_index = (int64_t)f.value;
                break;
            case INSTRUCTION_CUSTOM_CALL_TARGET:
                out->custom_call_target = text_of(a, &f.bytes);
                break;
            case INSTRUCTION_ID:
                out->id = (int64_t)f.value;
                break;
            case INSTRUCTION_BACKEND_CONFIG:
                read_backend(a, &f.bytes, out);
                break;
            case INSTRUCTION_DIRECTION:
                out->direction = text_of(a, &f.bytes);
                break;
            default:
                break;
        }
    }
    out->operands = read_numbers(a, out->raw, INSTRUCTION_OPERANDS, &out->n_operands);
    out->called = read_numbers(a, out->raw, INSTRUCTION_CALLED, &out->n_called);
    return !message.damaged;
}

static int count_fields(wire message, int number) {
    int n = 0;
    for (wire_field f; wire_next(&message, &f);) n += f.number == number;
    return n;
}

static bool read_computation(arena *a, wire message, const wire *frames, aot_computation *out) {
    *out = (aot_computation){.name = ""};
    out->instructions = ARENA_NEW(a, aot_instruction, count_fields(message, COMPUTATION_INSTRUCTION));
    if (!out->instructions) return false;
    for (wire_field f; wire_next(&message, &f);) {
        if (f.number == COMPUTATION_NAME) out->name = text_of(a, &f.bytes);
        if (f.number == COMPUTATION_ID) out->id = (int64_t)f.value;
        if (f.number == COMPUTATION_ROOT_ID) out->root = (int64_t)f.value;
        if (f.number == COMPUTATION_INSTRUCTION && f.is_bytes &&
            !read_instruction(a, f.bytes, frames, &out->instructions[out->n++]))
            return false;
    }
    return !message.damaged;
}

static bool read_module(arena *a, wire message, aot_module *out) {
    wire_field frames = {.bytes = wire_of(NULL, 0)};
    nth_field(message, MODULE_STACK_FRAMES, 1, &frames);
    *out = (aot_module){.name = ""};
    out->computations = ARENA_NEW(a, aot_computation, count_fields(message, MODULE_COMPUTATION));
    if (!out->computations) return false;
    for (wire_field f; wire_next(&message, &f);) {
        if (f.number == MODULE_NAME) out->name = text_of(a, &f.bytes);
        if (f.number == MODULE_ENTRY_ID) out->entry = (int64_t)f.value;
        if (f.number == MODULE_COMPUTATION && f.is_bytes &&
            !read_computation(a, f.bytes, &frames.bytes, &out->computations[out->n++]))
            return false;
    }
    return !message.damaged;
}

status *aot_module_read(arena *a, const void *data, size_t size, bool with_config, aot_module *out) {
    wire message = wire_of(data, size);
    wire_field module;
    if (with_config) {
        if (!nth_field(message, CONFIGURED_MODULE, 1, &module))
            return status_new(STATUS_RUNTIME, "the optimised program has no module in it");
        message = module.bytes;
    }
    bool good = read_module(a, message, out);
    if (arena_failed(a)) return status_no_memory();
    if (!good || !aot_computation_find(out, out->entry))
        return status_new(STATUS_RUNTIME, "the optimised program (%zu bytes) is no HloModuleProto", size);
    return NULL;
}

const aot_computation *aot_computation_find(const aot_module *m, int64_t id) {
    for (int i = 0; i < m->n; i++)
        if (m->computations[i].id == id) return &m->computations[i];
    return NULL;
}

const aot_instruction *aot_instruction_find(const aot_computation *c, int64_t id) {
    for (int i = 0; i < c->n; i++)
        if (c->instructions[i].id == id) return &c->instructions[i];
    return NULL;
}
