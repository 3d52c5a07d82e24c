/* Notices an operator of which program after program differs in one size alone: a cache that grows by an element, or
 * batches padded to their own lengths. Every size is a program, so the user is told once, with what to do instead. */
#include <string.h>

#include "base/alloc.h"
#include "exec/internal.h"

enum { MOST_SIZES = 48, RECENT = 4, MANY = 24, MANY_VECTORS = 64 /* a model's parameters may have many lengths */ };

/* Ranks and sizes of a call's tensors in order, and how many calls before it differed in one size. */
typedef struct shapes {
    int n, count;
    int64_t sizes[MOST_SIZES];
} shapes;

struct growth {
    shapes recent[RECENT]; /* of so many places where the operator is called */
    int next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool said;

static bool add_tensor(shapes *s, const core_tensor *t) {
    const geometry *g = &t->geometry;
    if (s->n + 1 + g->rank > MOST_SIZES) return false;
    s->sizes[s->n++] = -1 - g->rank;
    for (int i = 0; i < g->rank; i++) s->sizes[s->n++] = g->sizes[i];
    return true;
}

static bool shapes_of(shapes *s, const call *c) {
    s->n = 0;
    s->count = 1;
    for (int i = 0; i < c->n_args; i++) {
        const argument *a = &c->args[i];
        if (a->tag == ARG_VALUE && !add_tensor(s, a->u.tensor)) return false;
        for (int j = 0; a->tag == ARG_VALUES && j < a->count; j++)
            if (a->u.list[j].tag == ARG_VALUE && !add_tensor(s, a->u.list[j].u.tensor)) return false;
    }
    return s->n > 0;
}

/* The new ones are the old ones with one size, wherever it occurs, changed to another. */
static bool one_size_differs(const shapes *old, const shapes *new) {
    int64_t before = -1, after = -1;
    if (old->n != new->n) return false;
    for (int i = 0; i < old->n; i++) {
        if (old->sizes[i] == new->sizes[i]) continue;
        if (old->sizes[i] < 0 || new->sizes[i] < 0) return false;
        if (before >= 0 && (old->sizes[i] != before || new->sizes[i] != after)) return false;
        before = old->sizes[i];
        after = new->sizes[i];
    }
    return before >= 0;
}

/* How many shapes there were in a row that differ in one size, with this one. */
static int note(struct growth *g, shapes *s) {
    for (int i = 0; i < RECENT; i++)
        if (one_size_differs(&g->recent[i], s)) {
            s->count = g->recent[i].count + 1;
            g->recent[i] = *s;
            return s->count;
        }
    g->recent[g->next] = *s;
    g->next = (g->next + 1) % RECENT;
    return 1;
}

static int many(const shapes *s) {
    for (int i = 0; i < s->n; i++)
        if (s->sizes[i] < -2) return MANY;
    return MANY_VECTORS;
}

static void print_shapes(strbuf *out, const shapes *s) {
    for (int i = 0; i < s->n;) {
        strbuf_printf(out, i ? ", [" : "[");
        for (int64_t rank = -1 - s->sizes[i++], d = 0; d < rank; d++)
            strbuf_printf(out, d ? ", %lld" : "%lld", (long long)s->sizes[i++]);
        strbuf_printf(out, "]");
    }
}

static void say(const call *c, const shapes *s) {
    strbuf text;
    strbuf_init(&text);
    strbuf_printf(&text, "%s: %d programs so far differ in one size alone (now ", c->op->name, s->count);
    print_shapes(&text, s);
    strbuf_printf(&text,
                  "), and every further size is one more. Keep sizes: pad to a few lengths, as torch.compile with "
                  "options={\"buckets\": [...]} does by itself, or write into a cache of a fixed size. "
                  "(This is said once.)");
    if (!strbuf_failed(&text) && exec_host.warn) exec_host.warn(strbuf_text(&text));
    strbuf_free(&text);
}

void growth_note(const call *c) {
    shapes s;
    if (c->op->graph || !shapes_of(&s, c)) return;
    pthread_mutex_lock(&lock);
    if (!c->op->growth && !said && (c->op->growth = mem_alloc(sizeof *c->op->growth)))
        memset(c->op->growth, 0, sizeof *c->op->growth);
    bool due = !said && c->op->growth && note(c->op->growth, &s) == many(&s);
    said = said || due;
    pthread_mutex_unlock(&lock);
    if (due) say(c, &s);
}
