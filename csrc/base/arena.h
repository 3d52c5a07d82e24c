/* Memory that lives as long as one graph or one program: allocate many, free at once. Not thread-safe. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

typedef struct arena arena;

arena *arena_create(void); /* NULL with no memory */
void arena_destroy(arena *a);
void arena_reset(arena *a); /* frees everything allocated, keeps the first block */
/* 16-byte aligned, zeroed. NULL with no memory (and arena_failed becomes true). size 0 gives a valid pointer. */
void *arena_alloc(arena *a, size_t size);
void *arena_copy(arena *a, const void *data, size_t size);
char *arena_printf(arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
int arena_failed(const arena *a);
#define ARENA_NEW(a, type, n) ((type *)arena_alloc((a), sizeof(type) * (size_t)(n)))

#endif
