/* The table of slices, the wire format, and the costs of a program with a loop, written here byte by byte. */
#include <string.h>

#include "base/tests/check.h"
#include "aot/module.h"
#include "aot/topology.h"

/* ---- slices ---- */

static void check_slice(const char *name, int chips, int devices) {
    aot_slice slice;
    status *s = aot_slice_find(name, &slice);
    if (s) fprintf(stderr, "%s: %s\n", name, status_message(s));
    CHECK(!s && slice.chips == chips && slice.devices == devices);
    status_free(s);
}

static void check_no_slice(const char *name, const char *named_in_message) {
    aot_slice slice;
    status *s = aot_slice_find(name, &slice);
    CHECK(s && status_get_code(s) == STATUS_VALUE && strstr(status_message(s), named_in_message));
    status_free(s);
}

static void test_slices(void) {
    check_slice("v5e:1x1", 1, 1);
    check_slice("v5e:16x16", 256, 256);
    check_slice("v6e:2x4", 8, 8);
    check_slice("v4:2x2x1", 4, 8);
    check_slice("v5p:16x16x24", 6144, 6144);
    check_slice("v5p:4x8x12", 384, 384);
    check_slice("tpu7x:16x16x16", 4096, 8192);
    check_no_slice("v6e:64x64", "16x16");   /* libtpu takes it */
    check_no_slice("v5p:24x24x24", "6144"); /* this too */
    check_no_slice("v5e:0x1", "1x1");       /* libtpu ends the process */
    check_no_slice("v5e:4x2", "2x4");
    check_no_slice("v5e:2x2x1", "2x2");
    check_no_slice("v4:8x4x4", "A <= B <= C");
    check_no_slice("", "v5e, v5p"); /* a v2 to libtpu */
    check_no_slice("v9:2x2", "v5e, v5p");
    check_no_slice("v5e", "generation:slice");
    check_no_slice("v5e:", "1x1");
    check_no_slice("v5e:1x1 2x2", "1x1");
    check_no_slice("v5e:99999x1", "1x1");
}

/* ---- writing messages ---- */

static void put_varint(strbuf *out, uint64_t value) {
    for (; value > 0x7f; value >>= 7) strbuf_append(out, &(unsigned char){(unsigned char)(value | 0x80)}, 1);
    strbuf_append(out, &(unsigned char){(unsigned char)value}, 1);
}

static void put_int(strbuf *out, int field, int64_t value) {
    put_varint(out, (uint64_t)field << 3);
    put_varint(out, (uint64_t)value);
}

static void put_bytes(strbuf *out, int field, const void *data, size_t size) {
    put_varint(out, (uint64_t)field << 3 | 2);
    put_varint(out, size);
    strbuf_append(out, data, size);
}

static void put_string(strbuf *out, int field, const char *text) { put_bytes(out, field, text, strlen(text)); }

/* Appends a message and empties it. */
static void put_message(strbuf *out, int field, strbuf *message) {
    put_bytes(out, field, message->data, message->size);
    strbuf_clear(message);
}

static void put_instruction(strbuf *computation, int64_t id, const char *name, const char *opcode, int n_operands,
                            const int64_t *operands, strbuf *rest) {
    strbuf i;
    strbuf_init(&i);
    put_string(&i, 1, name);
    put_string(&i, 2, opcode);
    put_int(&i, 35, id);
    for (int k = 0; k < n_operands; k++) put_int(&i, 36, operands[k]);
    if (rest) {
        strbuf_append(&i, rest->data, rest->size);
        strbuf_clear(rest);
    }
    put_message(computation, 2, &i);
    strbuf_free(&i);
}

static void put_constant(strbuf *computation, int64_t id, int value) {
    strbuf literal, rest;
    strbuf_init(&literal);
    strbuf_init(&rest);
    put_int(&literal, 4, value);
    put_message(&rest, 8, &literal);
    put_instruction(computation, id, "constant", "constant", 0, NULL, &rest);
    strbuf_free(&literal);
    strbuf_free(&rest);
}

/* for (i = 2; i < 12; i++) body of 1000 cycles; then a fusion of 300 cycles that says where it comes from. */
static void put_program(strbuf *module, const char *direction) {
    strbuf c, rest, metadata;
    strbuf_init(&c);
    strbuf_init(&rest);
    strbuf_init(&metadata);
    put_string(&c, 1, "condition");
    put_int(&c, 5, 1);
    put_int(&c, 6, 12);
    put_instruction(&c, 10, "p", "parameter", 0, NULL, NULL);
    put_int(&rest, 13, 0);
    put_instruction(&c, 11, "i", "get-tuple-element", 1, (int64_t[]){10}, &rest);
    put_constant(&c, 13, 12);
    put_string(&rest, 63, direction);
    put_instruction(&c, 12, "less", "compare", 2, (int64_t[]){11, 13}, &rest);
    put_message(module, 3, &c);

    put_string(&c, 1, "body");
    put_int(&c, 5, 2);
    put_int(&c, 6, 20);
    put_string(&rest, 43, "{\"window_config\":{\"estimated_cycles\":\"1000\"}}");
    put_instruction(&c, 20, "work", "fusion", 0, NULL, &rest);
    put_message(module, 3, &c);

    put_string(&c, 1, "main");
    put_int(&c, 5, 3);
    put_int(&c, 6, 33);
    put_constant(&c, 30, 2);
    put_instruction(&c, 31, "init", "tuple", 1, (int64_t[]){30}, NULL);
    put_int(&rest, 38, 2);
    put_int(&rest, 38, 1);
    put_instruction(&c, 32, "loop", "while", 1, (int64_t[]){31}, &rest);
    put_string(&metadata, 3, "-");
    put_int(&metadata, 4, 77);
    put_message(&rest, 7, &metadata);
    put_string(&rest, 43, "{\"estimated_cycles\":\"300\"}");
    put_instruction(&c, 33, "end", "add", 1, (int64_t[]){32}, &rest);
    put_message(module, 3, &c);
    put_string(module, 1, "program");
    put_int(module, 6, 3);
    strbuf_free(&c);
    strbuf_free(&rest);
    strbuf_free(&metadata);
}

/* ---- reading them ---- */

static void test_costs(const char *direction, int64_t runs) {
    strbuf bytes, text;
    strbuf_init(&bytes);
    strbuf_init(&text);
    put_program(&bytes, direction);
    arena *a = arena_create();
    aot_module m;
    aot_costs costs;
    status *s = aot_module_read(a, bytes.data, bytes.size, false, &m);
    if (!s) s = aot_costs_find(a, &m, &costs);
    CHECK(!s);
    if (!s) {
        CHECK(costs.n == 2 && costs.loops == 1);
        CHECK(costs.unknown_loops == (runs < 0));
        CHECK(strcmp(costs.lines[0].instruction->name, "work") == 0 && costs.lines[0].runs == (runs < 0 ? 1 : runs));
        CHECK(costs.cycles == 300 + 1000 * (double)(runs < 0 ? 1 : runs));
        CHECK(costs.extra_cycles == 1000 * (double)(runs < 0 ? 0 : runs - 1));
        CHECK(costs.lines[1].place->source_line == 77 && strcmp(costs.lines[1].place->source_file, "-") == 0);
        aot_module_print(&m, &text);
        CHECK(strstr(strbuf_text(&text), "ENTRY %main") != NULL);
        CHECK(strstr(strbuf_text(&text), "while(%init), body=%body, condition=%condition") != NULL);
        CHECK(strstr(strbuf_text(&text), "estimated_cycles=1000") != NULL);
    }
    status_free(s);
    /* Every shorter message is an error or a smaller program, never a crash. */
    for (size_t size = 0; size < bytes.size; size++) {
        s = aot_module_read(a, bytes.data, size, false, &m);
        if (!s) s = aot_costs_find(a, &m, &costs);
        status_free(s);
    }
    arena_destroy(a);
    strbuf_free(&bytes);
    strbuf_free(&text);
}

static void test_wire(void) {
    static const unsigned char overlong[] = {0x0a, 0x7f, 1, 2}, group[] = {0x0b}, endless[] = {0xff, 0xff, 0xff};
    const struct {
        const unsigned char *data;
        size_t size;
    } bad[] = {{overlong, sizeof overlong}, {group, sizeof group}, {endless, sizeof endless}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wire w = wire_of(bad[i].data, bad[i].size);
        wire_field f;
        CHECK(!wire_next(&w, &f) && w.damaged);
    }
}

int main(void) {
    test_slices();
    test_wire();
    test_costs("LT", 10);
    test_costs("LE", 11);
    test_costs("NE", -1);
    return check_report();
}
