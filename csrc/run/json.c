/* A recursive descent over RFC 8259's grammar. */
#include "run/json.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64 };

typedef struct {
    arena *arena;
    const char *start, *at, *end;
    int depth;
} reader;

static status *fail(const reader *r, const char *what) {
    long line = 1, column = 1;
    for (const char *c = r->start; c < r->at; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    return status_new(STATUS_VALUE, "line %ld, column %ld: %s", line, column, what);
}

static int peek(const reader *r) { return r->at < r->end ? (unsigned char)*r->at : -1; }

static void skip_space(reader *r) {
    while (r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at) r->at++;
}

static bool take(reader *r, char c) {
    skip_space(r);
    if (peek(r) != c) return false;
    r->at++;
    return true;
}

static bool take_word(reader *r, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

/* ---- strings ---- */

static int hex_digit(int c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool take_hex4(reader *r, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        int digit = hex_digit(peek(r));
        if (digit < 0) return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

static size_t put_utf8(char *out, uint32_t c) {
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < 0x800) return out[0] = (char)(0xc0 | c >> 6), out[1] = (char)(0x80 | (c & 0x3f)), 2;
    size_t n = c < 0x10000 ? 3 : 4;
    out[0] = (char)(n == 3 ? 0xe0 | c >> 12 : 0xf0 | c >> 18);
    for (size_t i = 1; i < n; i++) out[i] = (char)(0x80 | (c >> 6 * (n - 1 - i) & 0x3f));
    return n;
}

/* What follows "\u"; pairs of surrogates make one character. */
static status *read_code_point(reader *r, uint32_t *out) {
    uint32_t low;
    if (!take_hex4(r, out)) return fail(r, "\\u wants four hexadecimal digits");
    if (*out == 0) return fail(r, "a string with a NUL character");
    if (*out >= 0xdc00 && *out < 0xe000) return fail(r, "half a surrogate pair");
    if (*out < 0xd800 || *out >= 0xdc00) return NULL;
    if (!take_word(r, "\\u") || !take_hex4(r, &low) || low < 0xdc00 || low >= 0xe000)
        return fail(r, "half a surrogate pair");
    *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    return NULL;
}

static status *read_escape(reader *r, char *out, size_t *n) {
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    int c = peek(r);
    const char *found = c > 0 ? strchr(names, c) : NULL;
    if (found) {
        r->at++;
        *out = meant[found - names];
        *n = 1;
        return NULL;
    }
    uint32_t code;
    if (c != 'u') return fail(r, "an unknown escape in a string");
    r->at++;
    STATUS_TRY(read_code_point(r, &code));
    *n = put_utf8(out, code);
    return NULL;
}

/* Decoded text is never longer than its source. */
static status *read_string(reader *r, const char **out) {
    if (!take(r, '"')) return fail(r, "expected a string");
    const char *end = r->at;
    while (end < r->end && *end != '"') end += *end == '\\' && end + 1 < r->end ? 2 : 1;
    if (end >= r->end) return fail(r, "a string without end");
    char *text = ARENA_NEW(r->arena, char, end - r->at + 1);
    if (!text) return status_no_memory();
    size_t length = 0;
    while (r->at < end) {
        size_t n = 1;
        if ((unsigned char)*r->at < 0x20) return fail(r, "a control character in a string");
        if (*r->at == '\\') {
            r->at++;
            STATUS_TRY(read_escape(r, text + length, &n));
        } else {
            text[length] = *r->at++;
        }
        length += n;
    }
    r->at++;
    *out = text;
    return NULL;
}

/* ---- numbers ---- */

static bool skip_digits(reader *r) {
    const char *first = r->at;
    while (peek(r) >= '0' && peek(r) <= '9') r->at++;
    return r->at > first;
}

static status *read_number(reader *r, json *v) {
    const char *first = r->at;
    bool whole = true;
    if (peek(r) == '-') r->at++;
    bool zero = peek(r) == '0';
    const char *digits = r->at;
    if (!skip_digits(r) || (zero && r->at - digits > 1)) return fail(r, "expected a value");
    if (peek(r) == '.') {
        r->at++;
        whole = false;
        if (!skip_digits(r)) return fail(r, "a number without digits behind its point");
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        r->at++;
        whole = false;
        if (peek(r) == '+' || peek(r) == '-') r->at++;
        if (!skip_digits(r)) return fail(r, "a number without an exponent");
    }
    char text[64];
    size_t n = (size_t)(r->at - first);
    if (n >= sizeof text) return fail(r, "a number of more than 63 characters");
    memcpy(text, first, n);
    text[n] = 0;
    v->kind = JSON_NUMBER;
    v->number = strtod(text, NULL);
    v->is_integer = whole;
    bool negative = *text == '-';
    for (const char *c = text + negative; whole && *c; c++)
        v->is_integer = v->is_integer && !__builtin_mul_overflow(v->integer, 10, &v->integer) &&
                        !__builtin_add_overflow(v->integer, negative ? '0' - *c : *c - '0', &v->integer);
    return NULL;
}

/* ---- values ---- */

static status *read_value(reader *r, json *v);

/* The elements of an array or the members of an object, behind its opening bracket. */
static status *read_items(reader *r, json *v, char close) {
    const json **link = &v->first;
    if (++r->depth > MAX_DEPTH) return fail(r, "nested too deeply");
    if (!take(r, close)) {
        do {
            json *item = ARENA_NEW(r->arena, json, 1);
            if (!item) return status_no_memory();
            skip_space(r);
            if (v->kind == JSON_OBJECT) {
                STATUS_TRY(read_string(r, &item->key));
                if (!take(r, ':')) return fail(r, "expected ':'");
            }
            STATUS_TRY(read_value(r, item));
            *link = item;
            link = &item->next;
            v->count++;
        } while (take(r, ','));
        if (!take(r, close)) return fail(r, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    r->depth--;
    return NULL;
}

static status *read_value(reader *r, json *v) {
    skip_space(r);
    switch (peek(r)) {
        case '{':
        case '[':
            v->kind = *r->at++ == '{' ? JSON_OBJECT : JSON_ARRAY;
            return read_items(r, v, v->kind == JSON_OBJECT ? '}' : ']');
        case '"':
            v->kind = JSON_STRING;
            return read_string(r, &v->string);
        default:
            break;
    }
    if (take_word(r, "null")) return NULL; /* kind JSON_NULL */
    v->boolean = take_word(r, "true");
    if (v->boolean || take_word(r, "false")) {
        v->kind = JSON_BOOL;
        return NULL;
    }
    return read_number(r, v);
}

status *json_parse(arena *a, const char *text, size_t size, const json **out) {
    reader r = {.arena = a, .start = text, .at = text, .end = text + size};
    json *v = ARENA_NEW(a, json, 1);
    if (!v) return status_no_memory();
    STATUS_TRY(read_value(&r, v));
    skip_space(&r);
    if (r.at != r.end) return fail(&r, "something behind the end of the value");
    *out = v;
    return NULL;
}

const json *json_member(const json *object, const char *key) {
    if (!object || object->kind != JSON_OBJECT) return NULL;
    const json *v = object->first;
    while (v && strcmp(v->key, key) != 0) v = v->next;
    return v;
}

const char *json_string(const json *v) { return v && v->kind == JSON_STRING ? v->string : NULL; }
const json *json_array(const json *v) { return v && v->kind == JSON_ARRAY ? v : NULL; }

bool json_integer(const json *v, int64_t *out) {
    if (!v || v->kind != JSON_NUMBER || !v->is_integer) return false;
    *out = v->integer;
    return true;
}
