/* An optimised program as text, in the manner of XLA's own. */
#include <string.h>

#include "aot/module.h"

/* Field numbers of xla_data.proto. */
enum {
    SHAPE_TYPE = 2,
    SHAPE_DIMENSIONS = 3,
    SHAPE_TUPLE = 4,
    SHAPE_LAYOUT = 5,
    LAYOUT_ORDER = 1,
    LAYOUT_TILE = 6,
    LAYOUT_MEMORY_SPACE = 8,
    TILE_DIMENSIONS = 1,
    TYPE_TUPLE = 13,

    INSTRUCTION_DIMENSIONS = 14,
    INSTRUCTION_WINDOW = 15,
    INSTRUCTION_CONVOLUTION = 16,
    INSTRUCTION_SLICE = 17,
    INSTRUCTION_DYNAMIC_SLICE = 20,
    INSTRUCTION_PADDING = 21,
    INSTRUCTION_DOT = 30,
};

/* PrimitiveType of xla_data.proto; NULL: by number. */
static const char *const type_names[] = {
    [1] = "pred",        [2] = "s8",
    [3] = "s16",         [4] = "s32",
    [5] = "s64",         [6] = "u8",
    [7] = "u16",         [8] = "u32",
    [9] = "u64",         [10] = "f16",
    [11] = "f32",        [12] = "f64",
    [14] = "opaque",     [15] = "c64",
    [16] = "bf16",       [17] = "token",
    [18] = "c128",       [19] = "f8e5m2",
    [20] = "f8e4m3fn",   [21] = "s4",
    [22] = "u4",         [23] = "f8e4m3b11fnuz",
    [24] = "f8e5m2fnuz", [25] = "f8e4m3fnuz",
};

/* ---- pieces ---- */

static wire message_field(wire message, int number) {
    for (wire_field f; wire_next(&message, &f);)
        if (f.number == number && f.is_bytes) return f.bytes;
    return wire_of(NULL, 0);
}

static int64_t number_field(wire message, int number, int64_t otherwise) {
    for (wire_field f; wire_next(&message, &f);)
        if (f.number == number && !f.is_bytes) return (int64_t)f.value;
    return otherwise;
}

/* Repeated integers by commas; how many. */
static int put_numbers(strbuf *out, wire message, int number) {
    int n = 0;
    for (wire_field f; wire_next(&message, &f);) {
        if (f.number != number) continue;
        uint64_t value = f.value;
        if (!f.is_bytes) strbuf_printf(out, "%s%lld", n++ ? "," : "", (long long)value);
        while (f.is_bytes && wire_number(&f.bytes, &value))
            strbuf_printf(out, "%s%lld", n++ ? "," : "", (long long)value);
    }
    return n;
}

static bool has_field(wire message, int number) {
    for (wire_field f; wire_next(&message, &f);)
        if (f.number == number) return true;
    return false;
}

static void put_layout(strbuf *out, wire layout) {
    strbuf_puts(out, "{");
    put_numbers(out, layout, LAYOUT_ORDER);
    wire w = layout;
    int tiles = 0;
    for (wire_field f; wire_next(&w, &f);) {
        if (f.number != LAYOUT_TILE || !f.is_bytes) continue;
        strbuf_puts(out, tiles++ ? "(" : ":T(");
        put_numbers(out, f.bytes, TILE_DIMENSIONS);
        strbuf_puts(out, ")");
    }
    int64_t space = number_field(layout, LAYOUT_MEMORY_SPACE, 0);
    if (space) strbuf_printf(out, "%sS(%lld)", tiles ? "" : ":", (long long)space);
    strbuf_puts(out, "}");
}

static void put_shape(strbuf *out, wire shape) {
    int64_t type = number_field(shape, SHAPE_TYPE, 0);
    if (type == TYPE_TUPLE) {
        int n = 0;
        strbuf_puts(out, "(");
        for (wire_field f; wire_next(&shape, &f);) {
            if (f.number != SHAPE_TUPLE || !f.is_bytes) continue;
            if (n++) strbuf_puts(out, ", ");
            put_shape(out, f.bytes);
        }
        strbuf_puts(out, ")");
        return;
    }
    bool known = type > 0 && type < (int64_t)(sizeof type_names / sizeof *type_names) && type_names[type];
    if (known)
        strbuf_puts(out, type_names[type]);
    else
        strbuf_printf(out, "type%lld", (long long)type);
    strbuf_puts(out, "[");
    int rank = put_numbers(out, shape, SHAPE_DIMENSIONS);
    strbuf_puts(out, "]");
    if (rank) put_layout(out, message_field(shape, SHAPE_LAYOUT));
}

/* ---- attributes ---- */

static void put_list(strbuf *out, const char *name, wire message, int number) {
    if (!has_field(message, number)) return;
    strbuf_printf(out, ", %s={", name);
    put_numbers(out, message, number);
    strbuf_puts(out, "}");
}

static void put_slice(strbuf *out, wire message) {
    enum { START = 1, LIMIT = 2, STRIDE = 3 };
    int n = 0;
    for (wire_field f; wire_next(&message, &f);) {
        if (f.number != INSTRUCTION_SLICE || !f.is_bytes) continue;
        int64_t stride = number_field(f.bytes, STRIDE, 1);
        strbuf_printf(out, "%s[%lld:%lld", n++ ? ", " : ", slice={", (long long)number_field(f.bytes, START, 0),
                      (long long)number_field(f.bytes, LIMIT, 0));
        if (stride != 1) strbuf_printf(out, ":%lld", (long long)stride);
        strbuf_puts(out, "]");
    }
    if (n) strbuf_puts(out, "}");
}

static void put_padding(strbuf *out, wire padding) {
    enum { DIMENSION = 1, LOW = 1, HIGH = 2, INTERIOR = 3 };
    int n = 0;
    for (wire_field f; wire_next(&padding, &f);) {
        if (f.number != DIMENSION || !f.is_bytes) continue;
        strbuf_printf(out, "%s%lld_%lld", n++ ? "x" : ", padding=", (long long)number_field(f.bytes, LOW, 0),
                      (long long)number_field(f.bytes, HIGH, 0));
        int64_t interior = number_field(f.bytes, INTERIOR, 0);
        if (interior) strbuf_printf(out, "_%lld", (long long)interior);
    }
}

typedef struct window_part {
    const char *name;
    int number;
    int64_t usual;
} window_part;

static void put_window(strbuf *out, wire window) {
    enum { DIMENSION = 1 };
    static const window_part parts[] = {{"size", 1, 1},        {"stride", 2, 1},     {"pad_low", 3, 0},
                                        {"pad_high", 4, 0},    {"rhs_dilate", 5, 1}, {"lhs_dilate", 6, 1},
                                        {"rhs_reversal", 7, 0}};
    bool open = false;
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        strbuf values;
        strbuf_init(&values);
        bool usual = true;
        int n = 0;
        wire w = window;
        for (wire_field f; wire_next(&w, &f);) {
            if (f.number != DIMENSION || !f.is_bytes) continue;
            int64_t value = number_field(f.bytes, parts[p].number, 0);
            usual = usual && value == parts[p].usual;
            strbuf_printf(&values, "%s%lld", n++ ? "x" : "", (long long)value);
        }
        if (n && (!usual || p == 0)) {
            strbuf_printf(out, "%s%s=%s", open ? " " : ", window={", parts[p].name, strbuf_text(&values));
            open = true;
        }
        strbuf_free(&values);
    }
    if (open) strbuf_puts(out, "}");
}

static void put_dot(strbuf *out, wire dot) {
    put_list(out, "lhs_contracting_dims", dot, 1);
    put_list(out, "rhs_contracting_dims", dot, 2);
    put_list(out, "lhs_batch_dims", dot, 3);
    put_list(out, "rhs_batch_dims", dot, 4);
}

/* Which dimension of the operand, kernel and result is what: letters at their positions, as XLA prints it. */
static void put_side(strbuf *out, wire d, int first, char first_name, int second, char second_name, int spatial) {
    char letters[16];
    memset(letters, '?', sizeof letters);
    int rank = 2;
    int64_t at[2] = {number_field(d, first, 0), number_field(d, second, 0)};
    for (wire_field f; wire_next(&d, &f);) {
        if (f.number != spatial) continue;
        uint64_t value = f.value;
        do {
            if (f.is_bytes && !wire_number(&f.bytes, &value)) break;
            if (value < sizeof letters) letters[value] = (char)('0' + rank - 2);
            rank++;
        } while (f.is_bytes);
    }
    if (at[0] >= 0 && at[0] < (int64_t)sizeof letters) letters[at[0]] = first_name;
    if (at[1] >= 0 && at[1] < (int64_t)sizeof letters) letters[at[1]] = second_name;
    strbuf_append(out, letters, rank < (int)sizeof letters ? (size_t)rank : sizeof letters);
}

static void put_convolution(strbuf *out, wire d) {
    strbuf_puts(out, ", dim_labels=");
    put_side(out, d, 7, 'b', 8, 'f', 11);
    strbuf_puts(out, "_");
    put_side(out, d, 3, 'i', 4, 'o', 6);
    strbuf_puts(out, "->");
    put_side(out, d, 9, 'b', 10, 'f', 12);
}

static void put_called(strbuf *out, const aot_module *m, const aot_instruction *i) {
    static const char *const loop[] = {"body", "condition"};
    bool is_loop = strcmp(i->opcode, "while") == 0;
    for (int k = 0; k < i->n_called; k++) {
        const aot_computation *c = aot_computation_find(m, i->called[k]);
        if (!c) continue;
        strbuf_printf(out, ", %s=%%%s", is_loop && k < 2 ? loop[k] : i->fusion_kind ? "calls" : "to_apply", c->name);
    }
}

static void put_attributes(strbuf *out, const aot_module *m, const aot_instruction *i) {
    if (i->fusion_kind) strbuf_printf(out, ", kind=%s", i->fusion_kind);
    put_called(out, m, i);
    if (strcmp(i->opcode, "get-tuple-element") == 0) strbuf_printf(out, ", index=%lld", (long long)i->tuple_index);
    if (i->direction && *i->direction) strbuf_printf(out, ", direction=%s", i->direction);
    if (i->custom_call_target && *i->custom_call_target)
        strbuf_printf(out, ", custom_call_target=\"%s\"", i->custom_call_target);
    put_list(out, "dimensions", i->raw, INSTRUCTION_DIMENSIONS);
    put_list(out, "dynamic_slice_sizes", i->raw, INSTRUCTION_DYNAMIC_SLICE);
    put_slice(out, i->raw);
    if (has_field(i->raw, INSTRUCTION_PADDING)) put_padding(out, message_field(i->raw, INSTRUCTION_PADDING));
    put_window(out, message_field(i->raw, INSTRUCTION_WINDOW));
    if (has_field(i->raw, INSTRUCTION_DOT)) put_dot(out, message_field(i->raw, INSTRUCTION_DOT));
    if (has_field(i->raw, INSTRUCTION_CONVOLUTION))
        put_convolution(out, message_field(i->raw, INSTRUCTION_CONVOLUTION));
    if (i->cycles >= 0) strbuf_printf(out, ", estimated_cycles=%lld", (long long)i->cycles);
    if (*i->op_name || i->source_line) {
        strbuf_puts(out, ", metadata={");
        if (*i->op_name) strbuf_printf(out, "op_name=\"%s\"%s", i->op_name, i->source_line ? " " : "");
        if (i->source_line) strbuf_printf(out, "source_file=\"%s\" source_line=%d", i->source_file, i->source_line);
        strbuf_puts(out, "}");
    }
}

/* ---- the module ---- */

static void put_instruction(strbuf *out, const aot_module *m, const aot_computation *c, const aot_instruction *i) {
    strbuf_printf(out, "  %s%%%s = ", i->id == c->root ? "ROOT " : "", i->name);
    put_shape(out, i->shape);
    strbuf_printf(out, " %s(", i->opcode);
    if (strcmp(i->opcode, "parameter") == 0) strbuf_printf(out, "%lld", (long long)i->parameter_number);
    if (i->has_integer) strbuf_printf(out, "%lld", (long long)i->integer);
    for (int k = 0; k < i->n_operands; k++) {
        const aot_instruction *o = aot_instruction_find(c, i->operands[k]);
        strbuf_printf(out, "%s%%%s", k ? ", " : "", o ? o->name : "?");
    }
    strbuf_puts(out, ")");
    put_attributes(out, m, i);
    strbuf_puts(out, "\n");
}

void aot_module_print(const aot_module *m, strbuf *out) {
    strbuf_printf(out, "HloModule %s, is_scheduled=true\n", m->name);
    for (int k = 0; k < m->n; k++) {
        const aot_computation *c = &m->computations[k];
        strbuf_printf(out, "\n%s%%%s {\n", c->id == m->entry ? "ENTRY " : "", c->name);
        for (int j = 0; j < c->n; j++) put_instruction(out, m, c, &c->instructions[j]);
        strbuf_puts(out, "}\n");
    }
}
