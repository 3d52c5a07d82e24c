/* Open addressing with linear probing. A slot holds the hash beside the entry, so a miss reads no key; removing shifts
 * the followers back instead of leaving tombstones, so a map that is filled and emptied for ever stays fast. */
#include "base/hashmap.h"

#include <string.h>

#include "base/alloc.h"

typedef struct {
    void *value;
    size_t size;
    unsigned char key[];
} entry;

typedef struct {
    uint64_t hash;
    entry *entry; /* NULL: the slot is free */
} slot;

struct hashmap {
    slot *slots;
    size_t capacity; /* a power of two */
    size_t count;
};

enum { FIRST_CAPACITY = 16 };

hashmap *hashmap_create(void) {
    hashmap *m = mem_alloc(sizeof(hashmap));
    if (!m) return NULL;
    m->capacity = FIRST_CAPACITY;
    m->slots = mem_alloc(m->capacity * sizeof(slot));
    if (m->slots) return m;
    mem_free(m);
    return NULL;
}

void hashmap_destroy(hashmap *m) {
    if (!m) return;
    for (size_t i = 0; i < m->capacity; i++) mem_free(m->slots[i].entry);
    mem_free(m->slots);
    mem_free(m);
}

/* Where the key is, or the free slot where it would go: there is always a free one. */
static slot *locate(const hashmap *m, const void *key, size_t size, uint64_t hash) {
    for (size_t i = hash & (m->capacity - 1);; i = (i + 1) & (m->capacity - 1)) {
        slot *s = &m->slots[i];
        if (!s->entry) return s;
        if (s->hash == hash && s->entry->size == size && (size == 0 || memcmp(s->entry->key, key, size) == 0)) return s;
    }
}

void *hashmap_find(const hashmap *m, const void *key, size_t size, uint64_t hash) {
    const slot *s = locate(m, key, size, hash);
    return s->entry ? s->entry->value : NULL;
}

static bool grow(hashmap *m) {
    size_t capacity = m->capacity * 2;
    slot *slots = mem_alloc(capacity * sizeof(slot));
    if (!slots) return false;
    for (size_t i = 0; i < m->capacity; i++) {
        if (!m->slots[i].entry) continue;
        size_t j = m->slots[i].hash & (capacity - 1);
        while (slots[j].entry) j = (j + 1) & (capacity - 1);
        slots[j] = m->slots[i];
    }
    mem_free(m->slots);
    m->slots = slots;
    m->capacity = capacity;
    return true;
}

bool hashmap_insert(hashmap *m, const void *key, size_t size, uint64_t hash, void *value) {
    slot *s = locate(m, key, size, hash);
    if (s->entry) {
        s->entry->value = value;
        return true;
    }
    entry *e = mem_alloc(sizeof(entry) + size);
    if (!e) return false;
    if ((m->count + 1) * 4 > m->capacity * 3) {
        if (!grow(m)) {
            mem_free(e);
            return false;
        }
        s = locate(m, key, size, hash);
    }
    e->value = value;
    e->size = size;
    if (size) memcpy(e->key, key, size);
    *s = (slot){hash, e};
    m->count++;
    return true;
}

static void remove_at(hashmap *m, size_t hole) {
    mem_free(m->slots[hole].entry);
    m->count--;
    /* Pull back each follower whose home does not lie between the hole and itself, or a search for it would stop at the
     * hole. */
    size_t mask = m->capacity - 1;
    for (size_t i = (hole + 1) & mask; m->slots[i].entry; i = (i + 1) & mask) {
        size_t home = m->slots[i].hash & mask;
        if (((i - home) & mask) < ((i - hole) & mask)) continue;
        m->slots[hole] = m->slots[i];
        hole = i;
    }
    m->slots[hole] = (slot){0, NULL};
}

void *hashmap_remove(hashmap *m, const void *key, size_t size, uint64_t hash) {
    slot *s = locate(m, key, size, hash);
    if (!s->entry) return NULL;
    void *value = s->entry->value;
    remove_at(m, (size_t)(s - m->slots));
    return value;
}

void hashmap_keep(hashmap *m, bool (*stays)(void *value, void *context), void *context) {
    for (size_t i = 0; i < m->capacity; i++) /* another may come into the place of one that goes */
        while (m->slots[i].entry && !stays(m->slots[i].entry->value, context)) remove_at(m, i);
}

size_t hashmap_count(const hashmap *m) { return m->count; }

void hashmap_visit(const hashmap *m, bool (*visit)(const void *key, size_t size, void *value, void *context),
                   void *context) {
    for (size_t i = 0; i < m->capacity; i++) {
        const entry *e = m->slots[i].entry;
        if (e && !visit(e->key, e->size, e->value, context)) return;
    }
}
