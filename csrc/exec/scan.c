/* The key of a call, straight from its arguments: no graph, no heap for usual calls.
 *
 * A key is a sequence of 64-bit words: the operator, precision and structural arguments, then each argument and each
 * declared result. A storage is described (its base's type) where it is met first; later only by its index, so that
 * which arguments are the same tensor belongs to the key. Numbers enter with their dtype; with their values only where
 * they decide structure. */
#include <string.h>

#include "base/alloc.h"
#include "exec/internal.h"

static uint64_t scan_serial; /* under the lock */

void scan_init(scan *s) {
    s->n_storages = 0;
    s->storage_capacity = (int)(sizeof s->inline_storages / sizeof *s->inline_storages);
    s->storages = s->inline_storages;
    s->key = s->inline_key;
    s->capacity = sizeof s->inline_key / sizeof *s->inline_key;
    s->words = 0;
    s->failed = false;
    s->has_base = NULL;
    s->types = NULL;
    s->retype_storage = NULL;
}

void scan_free(scan *s) {
    if (s->storages != s->inline_storages) mem_free(s->storages);
    if (s->key != s->inline_key) mem_free(s->key);
    mem_free(s->has_base);
    mem_free(s->types);
}

/* Room for n more words, or NULL. */
static uint64_t *reserve(scan *s, size_t n) {
    if (s->words + n > s->capacity) {
        size_t wanted = s->capacity * 2;
        while (wanted < s->words + n) wanted *= 2;
        bool inline_now = s->key == s->inline_key;
        uint64_t *grown = mem_realloc(inline_now ? NULL : s->key, wanted * sizeof *grown);
        if (!grown) {
            s->failed = true;
            return NULL;
        }
        if (inline_now) memcpy(grown, s->inline_key, s->words * sizeof *grown);
        s->key = grown;
        s->capacity = wanted;
    }
    return s->key + s->words;
}

static bool add_storage(scan *s, storage *st) {
    if (s->n_storages == s->storage_capacity) {
        int wanted = s->storage_capacity * 2;
        bool inline_now = s->storages == s->inline_storages;
        storage **grown = mem_realloc(inline_now ? NULL : s->storages, sizeof *grown * (size_t)wanted);
        if (!grown) {
            s->failed = true;
            return false;
        }
        if (inline_now) memcpy(grown, s->inline_storages, sizeof s->inline_storages);
        s->storages = grown;
        s->storage_capacity = wanted;
    }
    st->visit = scan_serial;
    st->visit_index = s->n_storages;
    s->storages[s->n_storages++] = st;
    return true;
}

static void scan_tensor(scan *s, const core_tensor *t, uint64_t tag) {
    storage *st = t->storage;
    const geometry *g = &t->geometry;
    bool first = st->visit != scan_serial;
    if (first && !add_storage(s, st)) return;
    if (st->lost) s->lost = st;
    if (st->raw && g->dtype != st->type.dtype && st->bytes % (int64_t)dtype_bytes(g->dtype) == 0) {
        s->retype_storage = st;
        s->retype_dtype = g->dtype;
    }
    uint64_t *w = reserve(s, 2 + 2 * (size_t)g->rank + (first ? 2 + STORAGE_MAX_RANK : 0));
    if (!w) return;
    uint64_t *start = w;
    if (s->n_tensors < SCAN_TENSORS) {
        s->tensors[s->n_tensors].tensor = t;
        s->tensors[s->n_tensors].word = s->words + 1;
    }
    s->n_tensors++;
    *w++ = tag | (uint64_t)g->dtype << 8 | (uint64_t)g->rank << 16 | (uint64_t)g->conj << 24 | (uint64_t)g->neg << 25 |
           (uint64_t)(uint32_t)st->visit_index << 32;
    *w++ = (uint64_t)g->offset;
    for (int i = 0; i < g->rank; i++) {
        *w++ = (uint64_t)g->sizes[i];
        *w++ = (uint64_t)g->strides[i];
    }
    if (first) {
        *w++ = (uint64_t)st->bytes;
        *w++ = storage_has_value(st) ? (uint64_t)st->type.dtype << 8 | (uint64_t)st->type.rank : ~(uint64_t)0;
        if (storage_has_value(st))
            for (int i = 0; i < st->type.rank; i++) *w++ = (uint64_t)st->type.dims[i];
    }
    s->words += (size_t)(w - start);
}

static void scan_number(scan *s, const number *n, bool value) {
    uint64_t *w = reserve(s, 3);
    if (!w) return;
    w[0] = ARG_NUMBER | (uint64_t)n->dtype << 8 | (uint64_t)n->wrapped << 16 | (uint64_t)value << 17;
    s->words++;
    if (!value) return;
    bool floating = dtype_is_float(n->dtype) || dtype_is_complex(n->dtype);
    w[1] = (uint64_t)n->v.i;
    w[2] = 0;
    if (floating) memcpy(&w[1], n->v.f, sizeof(double));
    if (dtype_is_complex(n->dtype)) memcpy(&w[2], n->v.f + 1, sizeof(double));
    s->words += 2;
}

static void scan_text(scan *s, const char *text) {
    size_t length = strlen(text), n = 1 + (length + 7) / 8;
    uint64_t *w = reserve(s, n);
    if (!w) return;
    memset(w, 0, n * sizeof *w);
    w[0] = ARG_STRING | (uint64_t)length << 8;
    memcpy(w + 1, text, length);
    s->words += n;
}

static void scan_word(scan *s, uint64_t v) {
    uint64_t *w = reserve(s, 1);
    if (!w) return;
    *w = v;
    s->words++;
}

static void scan_argument(scan *s, const argument *a, bool value) {
    switch (a->tag) {
        case ARG_VALUE:
            scan_tensor(s, a->u.tensor, ARG_VALUE);
            break;
        case ARG_NUMBER:
            scan_number(s, &a->u.number, value);
            break;
        case ARG_STRING:
            scan_text(s, a->u.string);
            break;
        case ARG_NONE:
            scan_word(s, ARG_NONE);
            break;
        case ARG_INT:
            scan_word(s, ARG_INT);
            scan_word(s, (uint64_t)a->u.i);
            break;
        case ARG_DTYPE:
            scan_word(s, ARG_DTYPE | (uint64_t)a->u.dtype << 8);
            break;
        case ARG_INTS: {
            uint64_t *w = reserve(s, 1 + (size_t)a->count);
            if (!w) return;
            *w++ = ARG_INTS | (uint64_t)(uint32_t)a->count << 32;
            memcpy(w, a->u.ints, sizeof(int64_t) * (size_t)a->count);
            s->words += 1 + (size_t)a->count;
            break;
        }
        case ARG_NUMBERS:
            scan_word(s, ARG_NUMBERS | (uint64_t)(uint32_t)a->count << 32);
            for (int i = 0; i < a->count; i++) scan_number(s, &a->u.numbers[i], value);
            break;
        case ARG_VALUES:
            scan_word(s, ARG_VALUES | (uint64_t)(uint32_t)a->count << 32);
            for (int i = 0; i < a->count; i++) scan_argument(s, &a->u.list[i], true);
            break;
    }
}

void scan_call(scan *s, const call *c, hlo_precision precision) {
    scan_serial++;
    s->words = 0;
    s->n_storages = 0;
    s->n_tensors = 0;
    s->retype_storage = NULL;
    s->lost = NULL;
    s->numbers = operator_numbers(c->op, c);
    uint64_t *w = reserve(s, 5);
    if (!s->numbers) s->failed = true;
    if (!w || !s->numbers) return;
    uint64_t structural = s->numbers->structural_args;
    w[0] = (uint64_t)(uintptr_t)c->op;
    w[1] = (uint64_t)precision | (uint64_t)(uint32_t)c->device << 8 | (uint64_t)c->results_known << 40 |
           (uint64_t)(exec_mode_now == MODE_FUSED) << 41;
    w[2] = structural;
    w[3] = (uint64_t)(uint32_t)c->n_args | (uint64_t)(uint32_t)s->declared_results << 32;
    w[4] = (uint64_t)(uint32_t)c->options;
    s->words = 5;
    for (int i = 0; i < c->n_args; i++) scan_argument(s, &c->args[i], i >= 64 || (structural >> i & 1));
    /* What infer adds to the declared results follows from the key, so is no part of it. */
    for (int k = 0; k < s->declared_results; k++) {
        const call_result *r = &c->results[k];
        if (r->kind == RESULT_WRITE) {
            scan_tensor(s, r->target, 0x40 | RESULT_WRITE);
        } else if (c->results_known && r->kind == RESULT_NEW) {
            uint64_t *v = reserve(s, 1 + 2 * (size_t)r->geometry.rank);
            if (!v) return;
            *v++ = 0x40 | RESULT_NEW | (uint64_t)r->geometry.dtype << 8 | (uint64_t)r->geometry.rank << 16;
            for (int i = 0; i < r->geometry.rank; i++) {
                *v++ = (uint64_t)r->geometry.sizes[i];
                *v++ = (uint64_t)r->geometry.strides[i];
            }
            s->words += 1 + 2 * (size_t)r->geometry.rank;
        } else {
            scan_word(s, 0x40 | RESULT_NEW);
        }
    }
}

bool scan_distinct(int n, storage *const *storages) {
    scan_serial++;
    for (int i = 0; i < n; i++) {
        if (storages[i]->visit == scan_serial) return false;
        storages[i]->visit = scan_serial;
    }
    return true;
}

bool scan_snapshot(scan *s) {
    mem_free(s->has_base);
    mem_free(s->types);
    s->has_base = mem_alloc(sizeof(bool) * (size_t)(s->n_storages + 1));
    s->types = mem_alloc(sizeof(base_type) * (size_t)(s->n_storages + 1));
    if (!s->has_base || !s->types) return false;
    for (int i = 0; i < s->n_storages; i++) {
        s->has_base[i] = storage_has_value(s->storages[i]);
        if (s->has_base[i]) s->types[i] = s->storages[i]->type;
    }
    return true;
}

int scan_index(const scan *s, const storage *wanted) {
    for (int i = 0; i < s->n_storages; i++)
        if (s->storages[i] == wanted) return i;
    return -1;
}

static const core_tensor *argument_tensor(const argument *a, int *left) {
    if (a->tag == ARG_VALUE) return (*left)-- == 0 ? a->u.tensor : NULL;
    const core_tensor *found = NULL;
    if (a->tag == ARG_VALUES)
        for (int j = 0; j < a->count && !found; j++) found = argument_tensor(&a->u.list[j], left);
    return found;
}

const core_tensor *call_tensor(const call *c, int ordinal) {
    int left = ordinal;
    for (int i = 0; i < c->n_args; i++) {
        const core_tensor *found = argument_tensor(&c->args[i], &left);
        if (found) return found;
    }
    for (int k = 0; k < c->n_results; k++)
        if (c->results[k].kind == RESULT_WRITE && left-- == 0) return c->results[k].target;
    return NULL;
}
