/* Map from byte strings to pointers. The hash only finds the bucket: whole keys are compared. Keys are copied. */
#ifndef BASE_HASHMAP_H
#define BASE_HASHMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hashmap hashmap;

uint64_t hash_bytes(const void *data, size_t size); /* 64-bit, good avalanche, unaligned-safe */
void hash_bytes128(const void *data, size_t size, uint64_t out[2]);

hashmap *hashmap_create(void);
void hashmap_destroy(hashmap *m); /* values are the caller's */
void *hashmap_find(const hashmap *m, const void *key, size_t size, uint64_t hash);
/* Replaces an existing value. false with no memory, the map unchanged. */
bool hashmap_insert(hashmap *m, const void *key, size_t size, uint64_t hash, void *value);
void *hashmap_remove(hashmap *m, const void *key, size_t size, uint64_t hash); /* the value removed, or NULL */
/* Removes the values that do not stay; they are the caller's from then on. One that stays may be asked about twice. */
void hashmap_keep(hashmap *m, bool (*stays)(void *value, void *context), void *context);
size_t hashmap_count(const hashmap *m);
/* Calls visit on every entry until it returns false. */
void hashmap_visit(const hashmap *m, bool (*visit)(const void *key, size_t size, void *value, void *context),
                   void *context);

#endif
