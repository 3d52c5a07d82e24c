/* Finding the chain of steps for a geometry.
 *
 * Only dimensions of size over 1 and stride over 0 move through memory ("moving"); the rest come back at the end as a
 * reshape or a broadcast. The base is a list of axes, each counting steps of its own stride. Then
 *
 *  1. each moving dimension belongs to the axis whose stride divides its own; axes are merged with their neighbour only
 *     where a moving dimension crosses the border between them or fits no axis alone (view(-1), diagonal);
 *  2. an axis with several moving dimensions is split into rows of the outermost one's length until each axis has at
 *     most one (view(a, b) of one dimension). Rows that do not line up with the axis are first cut out as a window;
 *  3. one slice takes the elements, a transpose orders the dimensions.
 *
 * Axes that need neither stay as they are, so the minor dimensions, whose change costs a relayout on a TPU, are
 * touched last. Dimensions that interleave or overlap (unfold with a step below its size) need a gather. */
#include "view/plan.h"

#include <string.h>

typedef struct moving_dim {
    int dim; /* of the geometry */
    int64_t size, stride;
} moving_dim;

typedef struct axis {
    int64_t size, stride;     /* stride in base elements; only step 1 uses it */
    int64_t start;            /* of the geometry's first element, in this axis's steps */
    int64_t divisor, modulus; /* where start comes from, see view_step */
    int n_moving;
    moving_dim moving[VIEW_MAX_RANK]; /* stride in this axis's steps, largest first */
} axis;

typedef struct planner {
    arena *memory;
    view_plan *plan;
    view_step *last;
    int rank; /* of the value so far */
    const int64_t *dims;
    const geometry *g;
    int n_moving;
    moving_dim moving[VIEW_MAX_RANK]; /* in the geometry's order */
    int n_axes;
    axis *axes;
} planner;

/* More axes than a base has dimensions or the builder accepts end in a gather; real programs have fewer than ten. */
#define MAX_AXES VIEW_MAX_RANK

/* ---- steps ---- */

static bool same_dims(int rank, const int64_t *a, const int64_t *b) {
    return rank == 0 || memcmp(a, b, sizeof(int64_t) * (size_t)rank) == 0;
}

static view_step *add_step(planner *p, view_step_kind kind, int rank, const int64_t *dims) {
    view_step *s = ARENA_NEW(p->memory, view_step, 1);
    int64_t *own = arena_copy(p->memory, dims, sizeof(int64_t) * (size_t)rank);
    if (!s || !own) return NULL;
    *s = (view_step){.kind = kind, .operand_rank = p->rank, .operand_dims = p->dims, .rank = rank, .dims = own};
    if (p->last)
        p->last->next = s;
    else
        p->plan->first = s;
    p->last = s;
    p->plan->n_steps++;
    p->rank = rank;
    p->dims = own;
    return s;
}

/* Reshapes in a row are one. */
static void add_reshape(planner *p, int rank, const int64_t *dims) {
    if (rank == p->rank && same_dims(rank, dims, p->dims)) return;
    if (p->last && p->last->kind == VIEW_STEP_RESHAPE) {
        int64_t *own = arena_copy(p->memory, dims, sizeof(int64_t) * (size_t)rank);
        if (!own) return;
        p->last->rank = p->rank = rank;
        p->last->dims = p->dims = own;
        return;
    }
    add_step(p, VIEW_STEP_RESHAPE, rank, dims);
}

static view_step *add_slice(planner *p, const int64_t *counts) {
    int n = p->rank;
    view_step *s = add_step(p, VIEW_STEP_SLICE, n, counts);
    int64_t *numbers = ARENA_NEW(p->memory, int64_t, 4 * n);
    if (!s || !numbers) return NULL;
    s->start = numbers;
    s->step = numbers + n;
    s->divisor = numbers + 2 * n;
    s->modulus = numbers + 3 * n;
    for (int i = 0; i < n; i++) s->step[i] = s->modulus[i] = 1;
    return s;
}

bool view_step_has_stride(const view_step *s) {
    if (s->kind != VIEW_STEP_SLICE) return false;
    for (int i = 0; i < s->rank; i++)
        if (s->step[i] > 1) return true;
    return false;
}

bool view_step_is_partial(const view_step *s) {
    if (s->kind == VIEW_STEP_GATHER) return true;
    return s->kind == VIEW_STEP_SLICE && !same_dims(s->rank, s->dims, s->operand_dims);
}

/* ---- 1: axes of the base, merged where needed ---- */

static void merge_axes(planner *p, int outer) {
    axis *a = &p->axes[outer], *inner = &p->axes[outer + 1];
    a->size *= inner->size;
    a->stride = inner->stride;
    memmove(inner, inner + 1, sizeof(axis) * (size_t)(p->n_axes - outer - 2));
    p->n_axes--;
}

static void insert_moving(axis *a, moving_dim m) {
    int at = a->n_moving++;
    for (; at > 0 && a->moving[at - 1].stride < m.stride; at--) a->moving[at] = a->moving[at - 1];
    a->moving[at] = m;
}

static int64_t span_of(const moving_dim *m, int n) {
    int64_t span = 0;
    for (int i = 0; i < n; i++) span += (m[i].size - 1) * m[i].stride;
    return span;
}

/* Gives every moving dimension its axis. Returns the outer one of two axes to merge, or -1 when all fit. */
static int assign_axes(planner *p) {
    for (int i = 0; i < p->n_axes; i++) {
        axis *a = &p->axes[i];
        a->n_moving = 0;
        a->divisor = a->stride;
        a->modulus = a->size;
        a->start = p->g->offset / a->stride % a->size;
    }
    for (int m = 0; m < p->n_moving; m++) {
        int at = 0;
        while (at < p->n_axes - 1 && (p->axes[at].stride > p->moving[m].stride || p->axes[at].size == 1)) at++;
        axis *a = &p->axes[at];
        if (p->moving[m].stride % a->stride != 0) return at; /* the innermost stride is 1: there is an inner one */
        moving_dim own = p->moving[m];
        own.stride /= a->stride;
        insert_moving(a, own);
    }
    for (int i = p->n_axes - 1; i > 0; i--) {
        axis *a = &p->axes[i];
        if (a->start + span_of(a->moving, a->n_moving) >= a->size) return i - 1;
    }
    return -1;
}

static bool make_axes(planner *p, int base_rank, const int64_t *base_dims) {
    p->axes = ARENA_NEW(p->memory, axis, base_rank + p->n_moving + 1);
    if (!p->axes) return false;
    int64_t stride = 1;
    p->n_axes = base_rank;
    for (int d = base_rank - 1; d >= 0; d--) {
        p->axes[d].size = base_dims[d];
        p->axes[d].stride = stride;
        stride *= base_dims[d];
    }
    for (int outer; p->n_axes > 0 && (outer = assign_axes(p)) >= 0;) merge_axes(p, outer);
    return true;
}

static void reshape_to_axes(planner *p) {
    int64_t dims[MAX_AXES];
    for (int i = 0; i < p->n_axes; i++) dims[i] = p->axes[i].size;
    add_reshape(p, p->n_axes, dims);
}

/* ---- 2: splitting an axis into rows ---- */

typedef enum { ROWS_ALIGNED, ROWS_WINDOW, ROWS_WINDOW_AT_END, ROWS_PADDED, ROWS_IMPOSSIBLE } rows_kind;

/* How the axis can be seen as rows of the outermost moving dimension's step. */
static rows_kind choose_rows(const axis *a) {
    int64_t row = a->moving[0].stride, window = a->moving[0].size * row;
    int64_t rest = span_of(a->moving + 1, a->n_moving - 1);
    if (rest >= row) return ROWS_IMPOSSIBLE;
    if (a->size % row == 0 && a->start % row + rest < row) return ROWS_ALIGNED;
    if (a->start + window <= a->size) return ROWS_WINDOW;
    /* The last row reaches the end at most, so it fits a window that ends there. */
    return window <= a->size ? ROWS_WINDOW_AT_END : ROWS_PADDED;
}

/* What a slice does to axis i, which has `size` steps afterwards. */
static void cut_axis(view_step *s, int i, axis *a, rows_kind rows, int64_t size) {
    bool single = a->n_moving <= 1;
    if (!single && rows == ROWS_ALIGNED) return;
    int64_t start = rows == ROWS_WINDOW_AT_END ? a->size - size : a->start;
    s->start[i] = start;
    if (single && a->n_moving) {
        s->step[i] = a->moving[0].stride;
        a->moving[0].stride = 1;
    }
    /* A whole axis starts at 0, and a window at the end where it must, whatever the offset. */
    if (s->dims[i] < s->operand_dims[i] && rows != ROWS_WINDOW_AT_END) {
        s->divisor[i] = a->divisor;
        s->modulus[i] = a->modulus;
    }
    a->size = size;
    a->start -= start;
    a->divisor = 0;
    a->modulus = 1;
}

/* Takes the elements of the axes with at most one moving dimension, and the windows of those whose rows do not line up.
 */
static void cut_axes(planner *p, const rows_kind *rows) {
    int64_t counts[MAX_AXES], padded[MAX_AXES];
    bool whole = true, pads = false;
    for (int i = 0; i < p->n_axes; i++) {
        const axis *a = &p->axes[i];
        if (a->n_moving <= 1) {
            counts[i] = padded[i] = a->n_moving ? a->moving[0].size : 1;
        } else if (rows[i] == ROWS_ALIGNED) {
            counts[i] = padded[i] = a->size;
        } else {
            padded[i] = a->moving[0].size * a->moving[0].stride;
            counts[i] = rows[i] == ROWS_PADDED ? a->size - a->start : padded[i];
            if (rows[i] != ROWS_WINDOW) p->plan->offset_fixed = true;
        }
        if (counts[i] != a->size) whole = false;
        if (counts[i] != padded[i]) pads = true;
    }
    view_step *s = whole ? NULL : add_slice(p, counts);
    if (s)
        for (int i = 0; i < p->n_axes; i++) cut_axis(s, i, &p->axes[i], rows[i], padded[i]);
    if (!pads) return;
    for (int i = 0; i < p->n_axes; i++) p->axes[i].size = padded[i];
    add_step(p, VIEW_STEP_PAD, p->rank, padded);
}

/* Axis i becomes rows (the outermost moving dimension) and columns (the others). */
static void split_axis(planner *p, int i) {
    memmove(&p->axes[i + 1], &p->axes[i], sizeof(axis) * (size_t)(p->n_axes - i));
    p->n_axes++;
    axis *rows = &p->axes[i], *columns = &p->axes[i + 1];
    int64_t row = rows->moving[0].stride;
    rows->size /= row;
    rows->start /= row;
    rows->divisor *= row;
    rows->modulus = rows->divisor ? rows->size : 1;
    rows->n_moving = 1;
    rows->moving[0].stride = 1;
    columns->size = row;
    columns->start %= row;
    columns->modulus = columns->divisor ? row : 1;
    columns->n_moving--;
    memmove(columns->moving, columns->moving + 1, sizeof(moving_dim) * (size_t)columns->n_moving);
}

/* One round: every axis with several moving dimensions loses its outermost. 0: none is left; -1: impossible. */
static int split_round(planner *p) {
    rows_kind rows[MAX_AXES];
    bool several = false, windows = false;
    int splits = 0;
    for (int i = 0; i < p->n_axes; i++) {
        rows[i] = ROWS_ALIGNED;
        if (p->axes[i].n_moving <= 1) continue;
        several = true;
        splits++;
        rows[i] = choose_rows(&p->axes[i]);
        if (rows[i] == ROWS_IMPOSSIBLE) return -1;
        if (rows[i] != ROWS_ALIGNED) windows = true;
    }
    if (!several) return 0;
    if (p->n_axes + splits > MAX_AXES) return -1;
    if (windows) cut_axes(p, rows);
    for (int i = p->n_axes - 1; i >= 0; i--)
        if (p->axes[i].n_moving > 1) split_axis(p, i);
    reshape_to_axes(p);
    return 1;
}

/* ---- 3: order, sizes of 1, broadcast ---- */

/* The value has the moving dimensions in the geometry's order, with ones anywhere: makes it the geometry's shape. */
static void add_finish(planner *p) {
    const geometry *g = p->g;
    bool expands = false;
    for (int d = 0; d < g->rank; d++)
        if (g->sizes[d] > 1 && g->strides[d] == 0) expands = true;
    if (!expands) {
        add_reshape(p, g->rank, g->sizes);
        return;
    }
    int64_t dims[VIEW_MAX_RANK];
    for (int m = 0; m < p->n_moving; m++) dims[m] = p->moving[m].size;
    add_reshape(p, p->n_moving, dims);
    view_step *s = add_step(p, VIEW_STEP_BROADCAST, g->rank, g->sizes);
    if (!s) return;
    s->map = ARENA_NEW(p->memory, int, p->n_moving);
    for (int m = 0; s->map && m < p->n_moving; m++) s->map[m] = p->moving[m].dim;
}

/* Orders the axes as the geometry has them; those without a moving dimension have size 1 and go last. */
static void add_order(planner *p) {
    int map[MAX_AXES], n = 0, previous = -1;
    bool sorted = true;
    for (int m = 0; m < p->n_moving; m++)
        for (int i = 0; i < p->n_axes; i++) {
            if (!p->axes[i].n_moving || p->axes[i].moving[0].dim != p->moving[m].dim) continue;
            if (i < previous) sorted = false;
            previous = i;
            map[n++] = i;
        }
    if (sorted) return;
    for (int i = 0; i < p->n_axes; i++)
        if (!p->axes[i].n_moving) map[n++] = i;
    int64_t dims[MAX_AXES];
    for (int i = 0; i < n; i++) dims[i] = p->dims[map[i]];
    view_step *s = add_step(p, VIEW_STEP_TRANSPOSE, n, dims);
    if (s) s->map = arena_copy(p->memory, map, sizeof(int) * (size_t)n);
}

static void add_gather(planner *p) {
    int64_t count = 1, dims[VIEW_MAX_RANK];
    for (int d = 0; d < p->rank; d++) count *= p->dims[d];
    add_reshape(p, 1, &count);
    for (int m = 0; m < p->n_moving; m++) dims[m] = p->moving[m].size;
    view_step *s = add_step(p, VIEW_STEP_GATHER, p->n_moving, dims);
    if (!s) return;
    s->offset = p->g->offset;
    s->step = ARENA_NEW(p->memory, int64_t, p->n_moving);
    for (int m = 0; s->step && m < p->n_moving; m++) s->step[m] = p->moving[m].stride;
    p->plan->gathers = true;
}

static bool start_plan(planner *p, arena *a, int base_rank, const int64_t *base_dims, const geometry *g) {
    *p = (planner){.memory = a, .rank = base_rank, .g = g};
    p->plan = ARENA_NEW(a, view_plan, 1);
    p->dims = arena_copy(a, base_dims, sizeof(int64_t) * (size_t)base_rank);
    for (int d = 0; d < g->rank; d++)
        if (g->sizes[d] > 1 && g->strides[d] > 0)
            p->moving[p->n_moving++] = (moving_dim){d, g->sizes[d], g->strides[d]};
    return p->plan && p->dims;
}

view_plan *view_plan_create(arena *a, int base_rank, const int64_t *base_dims, const geometry *g, bool gather) {
    planner p;
    if (!start_plan(&p, a, base_rank, base_dims, g)) return NULL;
    if (!gather) {
        if (!make_axes(&p, base_rank, base_dims)) return NULL;
        reshape_to_axes(&p);
        int more;
        while ((more = split_round(&p)) > 0) {
        }
        if (more < 0) return view_plan_create(a, base_rank, base_dims, g, true);
        const rows_kind single[MAX_AXES] = {ROWS_ALIGNED};
        cut_axes(&p, single);
        add_order(&p);
    } else {
        add_gather(&p);
    }
    add_finish(&p);
    return arena_failed(a) ? NULL : p.plan;
}

view_plan *view_plan_create_dynamic(arena *a, int base_rank, const int64_t *base_dims, const geometry *g) {
    view_plan *plan = view_plan_create(a, base_rank, base_dims, g, false);
    return plan && plan->offset_fixed ? view_plan_create(a, base_rank, base_dims, g, true) : plan;
}
