/* A growing byte string. An allocation failure is sticky: later appends do nothing and strbuf_failed tells. */
#ifndef BASE_STRBUF_H
#define BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct strbuf {
    char *data; /* NUL-terminated when size > 0; NULL when nothing was appended */
    size_t size, capacity;
    bool failed;
} strbuf;

void strbuf_init(strbuf *s);
void strbuf_free(strbuf *s);
void strbuf_clear(strbuf *s); /* keeps the memory */
void strbuf_append(strbuf *s, const void *data, size_t size);
void strbuf_puts(strbuf *s, const char *text);
void strbuf_printf(strbuf *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *strbuf_text(const strbuf *s); /* never NULL */
bool strbuf_failed(const strbuf *s);

#endif
