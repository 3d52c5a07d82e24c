/* Blocks that double in size, filled from the front. A request that would leave most of a fresh block unused gets a
 * block of its own, put behind the current one so that the rest of the current one is not lost. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { ALIGNMENT = 16, FIRST_BLOCK = 4096, LARGEST_BLOCK = 1 << 20 };

typedef struct block {
    struct block *next; /* older */
    size_t used, capacity;
    size_t dirty; /* bytes below this may be non-zero: only they are cleared when handed out */
    _Alignas(ALIGNMENT) unsigned char bytes[];
} block;

struct arena {
    block *current, *first;
    size_t next_capacity;
    int failed;
};

static block *block_create(size_t capacity) {
    block *b = mem_alloc(sizeof(block) + capacity);
    if (b) b->capacity = capacity;
    return b;
}

arena *arena_create(void) {
    arena *a = mem_alloc(sizeof(arena));
    if (!a) return NULL;
    a->current = a->first = block_create(FIRST_BLOCK);
    a->next_capacity = 2 * FIRST_BLOCK;
    if (a->first) return a;
    mem_free(a);
    return NULL;
}

/* Frees every block but the first. */
static void free_later_blocks(arena *a) {
    for (block *b = a->current; b;) {
        block *next = b->next;
        if (b != a->first) mem_free(b);
        b = next;
    }
}

void arena_destroy(arena *a) {
    if (!a) return;
    free_later_blocks(a);
    mem_free(a->first);
    mem_free(a);
}

void arena_reset(arena *a) {
    free_later_blocks(a);
    a->current = a->first;
    a->first->next = NULL;
    if (a->first->dirty < a->first->used) a->first->dirty = a->first->used;
    a->first->used = 0;
    a->next_capacity = 2 * FIRST_BLOCK;
    a->failed = 0;
}

static void *take(block *b, size_t size) {
    unsigned char *p = b->bytes + b->used;
    if (b->used < b->dirty) memset(p, 0, b->dirty - b->used < size ? b->dirty - b->used : size);
    b->used += size;
    return p;
}

void *arena_alloc(arena *a, size_t size) {
    if (size > SIZE_MAX / 2) { /* a negative count */
        a->failed = 1;
        return NULL;
    }
    size = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (size <= a->current->capacity - a->current->used) return take(a->current, size);
    int alone = size > a->next_capacity / 2;
    block *b = block_create(alone ? size : a->next_capacity);
    if (!b) {
        a->failed = 1;
        return NULL;
    }
    if (alone) {
        b->next = a->current->next;
        a->current->next = b;
    } else {
        b->next = a->current;
        a->current = b;
        if (a->next_capacity < LARGEST_BLOCK) a->next_capacity *= 2;
    }
    return take(b, size);
}

void *arena_copy(arena *a, const void *data, size_t size) {
    void *copy = arena_alloc(a, size);
    if (copy && size) memcpy(copy, data, size);
    return copy;
}

char *arena_printf(arena *a, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = NULL;
    if (length < 0)
        a->failed = 1;
    else
        text = arena_alloc(a, (size_t)length + 1);
    if (text) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}

int arena_failed(const arena *a) { return a->failed; }
