#include "ops/fault.h"

#include <pthread.h>
#include <string.h>

#include "base/hashmap.h"
#include "ops/ops.h"

enum { KIND_BITS = 3, TEXTS = 256, TEXT_SIZE = 512 };

typedef struct assertion {
    int32_t code;
    char text[TEXT_SIZE];
} assertion;

/* A text makes way for the next one of its place. */
static assertion assertions[TEXTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int32_t fault_code(fault_kind kind, const char *text) {
    return (int32_t)(hash_bytes(text, strlen(text)) & INT32_MAX & ~(uint64_t)KIND_BITS) | (int32_t)kind;
}

static assertion *place_of(int32_t code) { return &assertions[(code >> 2) % TEXTS]; }

/* How much of the text there is room for: whole characters of UTF-8. */
static size_t fitting(const char *text) {
    size_t n = strlen(text);
    if (n < TEXT_SIZE) return n;
    for (n = TEXT_SIZE - 1; n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80;) n--;
    return n;
}

void fault_remember(const char *text) {
    int32_t code = fault_code(FAULT_ASSERTION, text);
    assertion *place = place_of(code);
    size_t n = fitting(text);
    pthread_mutex_lock(&lock);
    place->code = code;
    memcpy(place->text, text, n);
    place->text[n] = '\0';
    pthread_mutex_unlock(&lock);
}

typedef struct search {
    int32_t code;
    fault_kind kind;
    const char *name;
} search;

static void look_at(const op_row *row, void *context) {
    search *s = context;
    if (fault_code(s->kind, row->name) == s->code) s->name = row->name;
}

#define NOTICED "It was noticed here, where the program waits for the device"
#define DEBUG_STOPS "; debug mode (TORCH_TPU_ENABLE_DEBUG_CHECKS=1) stops at the line that calls the operator"

status *fault_status(int32_t code) {
    search s = {code, (fault_kind)(code & KIND_BITS), "an operator"};
    if (s.kind == FAULT_ASSERTION) {
        pthread_mutex_lock(&lock);
        assertion kept = *place_of(code);
        pthread_mutex_unlock(&lock);
        return status_new(STATUS_RUNTIME, "%s (an assertion of the program. " NOTICED ")",
                          kept.code == code ? kept.text : "an assertion does not hold");
    }
    op_visit(look_at, &s);
    if (s.kind == FAULT_INDEX)
        return status_new(STATUS_INDEX,
                          "%s: an index is out of range. " NOTICED DEBUG_STOPS ", and names the index and the size",
                          s.name);
    return status_new(STATUS_RUNTIME, "%s: a value is out of range. " NOTICED DEBUG_STOPS, s.name);
}
