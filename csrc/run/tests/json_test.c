/* JSON documents and what they must not be: RFC 8259. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/tests/check.h"
#include "run/json.h"

static arena *mem;

static const json *parsed(const char *text) {
    const json *v = NULL;
    return CHECK_OK(json_parse(mem, text, strlen(text), &v)) ? v : NULL;
}

static status *parse(const char *text) {
    const json *v;
    return json_parse(mem, text, strlen(text), &v);
}

static void values(void) {
    int64_t n;
    const json *v = parsed(" {\"a\" : [1, -2, 1.5e2, true, false, null], \"b\":{}, \"c\":\"x\", \"\":[] } ");
    const json *a = json_member(v, "a");
    CHECK_INT(v->count, 4);
    CHECK_INT(json_array(a)->count, 6);
    CHECK(json_integer(a->first, &n) && n == 1);
    CHECK(json_integer(a->first->next, &n) && n == -2);
    const json *real = a->first->next->next;
    CHECK(!json_integer(real, &n) && real->number == 150.0);
    CHECK(real->next->kind == JSON_BOOL && real->next->boolean);
    CHECK(real->next->next->kind == JSON_BOOL && !real->next->next->boolean);
    CHECK_INT(real->next->next->next->kind, JSON_NULL);
    CHECK_INT(json_member(v, "b")->count, 0);
    CHECK_TEXT(json_string(json_member(v, "c")), "x");
    CHECK(json_member(v, "") != NULL && json_member(v, "d") == NULL && json_member(NULL, "a") == NULL);
    CHECK(json_string(a) == NULL && json_array(json_member(v, "c")) == NULL && json_member(a, "a") == NULL);
}

static void integers(void) {
    int64_t n;
    CHECK(json_integer(parsed("9223372036854775807"), &n) && n == INT64_MAX);
    CHECK(json_integer(parsed("-9223372036854775808"), &n) && n == INT64_MIN);
    CHECK(!json_integer(parsed("9223372036854775808"), &n));
    CHECK(!json_integer(parsed("1e3"), &n) && !json_integer(parsed("1.0"), &n));
    CHECK(json_integer(parsed("-0"), &n) && n == 0);
}

static void strings(void) {
    CHECK_TEXT(json_string(parsed("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"")), "\"\\/\b\f\n\r\t");
    CHECK_TEXT(json_string(parsed("\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"")), "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    CHECK_TEXT(json_string(parsed("\"\xc3\xa9\"")), "\xc3\xa9");
    CHECK_TEXT(json_string(parsed("\"\"")), "");
}

static void errors(void) {
    static const char *const wrong[] = {
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "[1 2]",
        "tru",
        "nulll",
        "\"a",
        "\"\\",
        "\"\\x\"",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "\"\\u12\"",
        "\"\\ud83d\"",
        "\"\\ude00\"",
        "1 1",
        "}",
        "[}",
        "\"\\ud83d\\u0041\"",
        "\"\\u0000\"",
        "\"\n\"",
        "NaN",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        status *s = parse(wrong[i]);
        if (!s) printf("accepted: %s\n", wrong[i]);
        CHECK(s && status_get_code(s) == STATUS_VALUE);
        status_free(s);
    }
    CHECK_FAILS(parse("{\n \"a\": x}"), STATUS_VALUE, "line 2, column 7");
    CHECK_FAILS(parse("[\"\\u0000\"]"), STATUS_VALUE, "NUL");
}

static void depth(void) {
    char text[300];
    for (int n = 60; n <= 70; n += 10) {
        memset(text, '[', (size_t)n);
        memset(text + n, ']', (size_t)n);
        text[2 * n] = 0;
        status *s = parse(text);
        CHECK((s == NULL) == (n <= 64));
        status_free(s);
    }
    char *deep = malloc(1000000);
    memset(deep, '[', 1000000);
    const json *v;
    CHECK_FAILS(json_parse(mem, deep, 1000000, &v), STATUS_VALUE, "nested too deeply");
    free(deep);
}

/* Every prefix and every changed byte of a document is parsed or refused, and nothing else happens. */
static void damage(void) {
    static const char text[] = "{\"k\": [1, -2.5e3, \"\\u00e9\\n\", {\"x\": null}], \"t\": true}";
    size_t n = sizeof text - 1;
    char *copy = malloc(n); /* no byte behind its end, for the sanitizer */
    const json *v;
    for (size_t i = 0; i < n; i++) {
        char *prefix = malloc(i + !i);
        memcpy(prefix, text, i);
        status *s = json_parse(mem, prefix, i, &v);
        CHECK(s != NULL);
        status_free(s);
        free(prefix);
        for (int c = 0; c < 256; c++) {
            memcpy(copy, text, n);
            copy[i] = (char)c;
            status_free(json_parse(mem, copy, n, &v));
        }
        arena_reset(mem);
    }
    free(copy);
}

static void no_memory(void) {
    char big[20000];
    size_t n = 0;
    for (big[n++] = '['; n < sizeof big - 8; n += 4) memcpy(big + n, "\"a\",", 4);
    memcpy(big + n, "1]", 2);
    for (long at = 1; at < 4; at++) {
        arena *a = arena_create();
        const json *v;
        mem_fail_after(at);
        status *s = json_parse(a, big, n + 2, &v);
        mem_fail_after(0);
        CHECK(!s || status_get_code(s) == STATUS_OUT_OF_MEMORY);
        status_free(s);
        arena_destroy(a);
    }
}

int main(void) {
    mem = arena_create();
    values();
    integers();
    strings();
    errors();
    depth();
    damage();
    no_memory();
    arena_destroy(mem);
    return check_report();
}
