/* A growing byte string. */
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

void strbuf_init(strbuf *s) { *s = (strbuf){0}; }

void strbuf_free(strbuf *s) {
    mem_free(s->data);
    strbuf_init(s);
}

void strbuf_clear(strbuf *s) {
    s->size = 0;
    s->failed = false;
    if (s->data) s->data[0] = '\0';
}

/* Makes room for `extra` bytes and the NUL after them. */
static bool reserve(strbuf *s, size_t extra) {
    if (s->failed) return false;
    if (extra < s->capacity - s->size) return true; /* capacity is 0 or more than size, for the NUL */
    size_t needed = s->size + extra + 1;
    if (needed <= extra || needed > SIZE_MAX / 2) {
        s->failed = true;
        return false;
    }
    size_t capacity = s->capacity ? s->capacity : 64;
    while (capacity < needed) capacity *= 2;
    char *data = mem_realloc(s->data, capacity);
    if (!data) {
        s->failed = true;
        return false;
    }
    s->data = data;
    s->capacity = capacity;
    return true;
}

void strbuf_append(strbuf *s, const void *data, size_t size) {
    if (size == 0 || !reserve(s, size)) return;
    memcpy(s->data + s->size, data, size);
    s->size += size;
    s->data[s->size] = '\0';
}

void strbuf_puts(strbuf *s, const char *text) { strbuf_append(s, text, strlen(text)); }

void strbuf_printf(strbuf *s, const char *format, ...) {
    if (s->failed) return;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t room = s->capacity - s->size;
    int length = vsnprintf(room ? s->data + s->size : NULL, room, format, args);
    if (length < 0) {
        s->failed = true;
    } else if ((size_t)length < room) {
        s->size += (size_t)length;
    } else if (reserve(s, (size_t)length)) {
        vsnprintf(s->data + s->size, (size_t)length + 1, format, again);
        s->size += (size_t)length;
    }
    if (s->data) s->data[s->size] = '\0'; /* a print that did not fit has overwritten the end */
    va_end(again);
    va_end(args);
}

const char *strbuf_text(const strbuf *s) { return s->data ? s->data : ""; }

bool strbuf_failed(const strbuf *s) { return s->failed; }
