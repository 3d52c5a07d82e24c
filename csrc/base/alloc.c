/* The core's heap: malloc with a live count and a way to make one allocation fail. */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_long live_allocations;
static _Thread_local long allocations_until_failure; /* 0: none fails */

static int this_one_fails(void) {
    if (allocations_until_failure == 0) return 0;
    allocations_until_failure--;
    return allocations_until_failure == 0;
}

void *mem_alloc(size_t size) {
    if (this_one_fails()) return NULL;
    void *p = calloc(1, size ? size : 1);
    if (p) atomic_fetch_add_explicit(&live_allocations, 1, memory_order_relaxed);
    return p;
}

void *mem_realloc(void *p, size_t size) {
    if (!p) return mem_alloc(size);
    if (this_one_fails()) return NULL;
    return realloc(p, size ? size : 1);
}

char *mem_strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = mem_alloc(size);
    if (copy) memcpy(copy, text, size);
    return copy;
}

void mem_free(void *p) {
    if (!p) return;
    atomic_fetch_sub_explicit(&live_allocations, 1, memory_order_relaxed);
    free(p);
}

void mem_fail_after(long n) { allocations_until_failure = n > 0 ? n : 0; }

long mem_live_count(void) { return atomic_load_explicit(&live_allocations, memory_order_relaxed); }
