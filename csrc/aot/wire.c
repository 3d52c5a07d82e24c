#include "aot/wire.h"

#include <string.h>

enum { VARINT = 0, FIXED64 = 1, LENGTH_DELIMITED = 2, FIXED32 = 5 };

wire wire_of(const void *data, size_t size) {
    const uint8_t *start = data;
    return (wire){start, size ? start + size : start, false};
}

bool wire_number(wire *w, uint64_t *out) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && w->at < w->end; shift += 7) {
        uint8_t byte = *w->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        *out = value;
        return true;
    }
    w->damaged = w->damaged || w->at != w->end || value != 0;
    return false;
}

static bool fixed(wire *w, size_t size, uint64_t *out) {
    if (wire_size(w) < size) return false;
    *out = 0;
    memcpy(out, w->at, size); /* little endian, as every machine that runs this */
    w->at += size;
    return true;
}

static bool delimited(wire *w, wire *out) {
    uint64_t size;
    if (!wire_number(w, &size) || size > wire_size(w)) return false;
    *out = wire_of(w->at, (size_t)size);
    w->at += size;
    return true;
}

bool wire_next(wire *w, wire_field *out) {
    uint64_t tag;
    if (w->at == w->end || w->damaged) return false;
    bool good = wire_number(w, &tag);
    if (good) {
        *out = (wire_field){.number = (int)(tag >> 3), .is_bytes = (tag & 7) == LENGTH_DELIMITED};
        switch (tag & 7) {
            case VARINT:
                good = wire_number(w, &out->value);
                break;
            case FIXED64:
                good = fixed(w, 8, &out->value);
                break;
            case FIXED32:
                good = fixed(w, 4, &out->value);
                break;
            case LENGTH_DELIMITED:
                good = delimited(w, &out->bytes);
                break;
            default:
                good = false; /* groups are not written any more */
        }
    }
    if (!good) {
        w->damaged = true;
        w->at = w->end;
    }
    return good;
}
