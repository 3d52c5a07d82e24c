/* Protocol buffers' wire format, read only: https://protobuf.dev/programming-guides/encoding. Nothing is copied; a
 * damaged message ends early and says so. */
#ifndef AOT_WIRE_H
#define AOT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct wire {
    const uint8_t *at, *end;
    bool damaged;
} wire;

typedef struct wire_field {
    int number;
    bool is_bytes;
    uint64_t value; /* varint, fixed32 or fixed64 */
    wire bytes;     /* string, message or packed numbers */
} wire_field;

wire wire_of(const void *data, size_t size);
/* The next field; false at the end or where the message is damaged. */
bool wire_next(wire *w, wire_field *out);
/* The next varint of packed numbers. */
bool wire_number(wire *w, uint64_t *out);
static inline size_t wire_size(const wire *w) { return (size_t)(w->end - w->at); }

#endif
