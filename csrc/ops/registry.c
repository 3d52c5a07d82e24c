/* The operator tables in one index by name, built at the first look-up and never changed after. */
#include <pthread.h>
#include <string.h>

#include "base/hashmap.h"
#include "ops/ops.h"
#include "ops/tables.h"

#define X(table) extern const op_row table[];
OPS_TABLES(X)
#undef X

static const op_row *const tables[] = {
#define X(table) table,
    OPS_TABLES(X)
#undef X
};
enum { TABLES = sizeof(tables) / sizeof(tables[0]) };

/* Open addressing in fixed room, several times what there are rows (a test holds that): no allocation that could fail.
 */
enum { SLOTS = 1 << 13 };
static const op_row *slots[SLOTS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The place of this name, or the empty one where it belongs. */
static size_t find_slot(const char *name) {
    size_t i = (size_t)hash_bytes(name, strlen(name)) % SLOTS;
    while (slots[i] && strcmp(slots[i]->name, name)) i = (i + 1) % SLOTS;
    return i;
}

static void build_index(void) {
    for (int t = 0; t < TABLES; t++) {
        for (const op_row *row = tables[t]; row->name; row++) {
            size_t i = find_slot(row->name);
            if (!slots[i]) slots[i] = row; /* the first of two rows of one name counts */
        }
    }
}

const op_row *op_find(const char *name) {
    if (!name) return NULL;
    pthread_once(&once, build_index);
    return slots[find_slot(name)];
}

void op_visit(void (*visit)(const op_row *row, void *context), void *context) {
    for (int t = 0; t < TABLES; t++)
        for (const op_row *row = tables[t]; row->name; row++) visit(row, context);
}
