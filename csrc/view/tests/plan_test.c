/* Plans, proved by enumerating indices: for random geometries, every element that the plan reads is the one that offset
 * and strides name, and a write changes exactly those. */
#include <stdio.h>

#include "base/alloc.h"
#include "random_views.h"

static int failures;

#define CHECK(condition, ...)                                               \
    do {                                                                    \
        if (!(condition)) {                                                 \
            failures++;                                                     \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                   \
            fputc('\n', stderr);                                            \
        }                                                                   \
    } while (0)

/* ---- the property ---- */

static void check_read(const view_plan *plan, const geometry *g, const int64_t *base, int64_t n_base,
                       const char *text) {
    int64_t *value = run_plan(plan, base, n_base, g->offset);
    int64_t n = geometry_count(g), wrong = 0;
    for (int64_t i = 0; i < n; i++)
        if (value[i] != base[element_of(g, i)]) wrong++;
    CHECK(wrong == 0, "%lld of %lld elements read wrongly: %s", (long long)wrong, (long long)n, text);
    free(value);
}

static void check_write(const view_plan *plan, const geometry *g, const int64_t *base, int64_t n_base,
                        const char *text) {
    int64_t n = geometry_count(g), wrong = 0;
    int64_t *value = malloc(sizeof(int64_t) * (size_t)n), *expected = malloc(sizeof(int64_t) * (size_t)n_base);
    memcpy(expected, base, sizeof(int64_t) * (size_t)n_base);
    for (int64_t i = 0; i < n; i++) value[i] = 1000000 + element_of(g, i); /* the same for the copies of one element */
    for (int64_t i = 0; i < n; i++) expected[element_of(g, i)] = value[i];
    int64_t *written = run_write(plan->first, base, value, n, g->offset);
    for (int64_t i = 0; i < n_base; i++)
        if (written[i] != expected[i]) wrong++;
    CHECK(wrong == 0, "%lld of %lld elements of the base wrong after a write: %s", (long long)wrong, (long long)n_base,
          text);
    free(value);
    free(expected);
    free(written);
}

/* Another offset with the same structure runs through the same plan. */
static int check_other_offset(arena *a, int rank, const int64_t *dims, const geometry *g, const int64_t *base,
                              int64_t n_base) {
    geometry other = *g;
    other.offset = random_below(n_base);
    strbuf mine, its;
    strbuf_init(&mine);
    strbuf_init(&its);
    bool ok = view_offset_structure(DTYPE_F32, rank, dims, g, &mine) &&
              view_offset_structure(DTYPE_F32, rank, dims, &other, &its) && mine.size == its.size &&
              (mine.size == 0 || memcmp(mine.data, its.data, mine.size) == 0);
    if (ok) {
        view_plan *plan = view_plan_create_dynamic(a, rank, dims, g);
        check_read(plan, &other, base, n_base, geometry_text(rank, dims, &other));
        check_write(plan, &other, base, n_base, geometry_text(rank, dims, &other));
    }
    strbuf_free(&mine);
    strbuf_free(&its);
    return ok && other.offset != g->offset;
}

/* Dimensions of stride 0 aside, each dimension steps over all the inner ones. */
static bool is_nested(const geometry *g) {
    geometry moving = {.dtype = g->dtype};
    for (int d = 0; d < g->rank; d++)
        if (g->strides[d] > 0) insert_dim(&moving, moving.rank, g->sizes[d], g->strides[d]);
    return !geometry_may_overlap(&moving);
}

static void test_random_views(int rounds) {
    int64_t base[10000];
    int gathers = 0, shared = 0, plans = 0;
    for (int64_t i = 0; i < 10000; i++) base[i] = i;
    for (int round = 0; round < rounds; round++) {
        int rank;
        int64_t dims[VIEW_MAX_RANK];
        geometry g;
        int64_t n_base = random_base(&rank, dims, &g);
        for (int64_t changes = random_below(8); changes > 0; changes--) {
            change_random(&g, n_base);
            arena *a = arena_create();
            view_plan *plan = view_plan_create(a, rank, dims, &g, false);
            const char *text = geometry_text(rank, dims, &g);
            plans++;
            gathers += plan->gathers;
            CHECK(!plan->gathers || !is_nested(&g), "a gather for nested dimensions: %s", text);
            check_read(plan, &g, base, n_base, text);
            check_write(plan, &g, base, n_base, text);
            view_plan *gather = view_plan_create(a, rank, dims, &g, true);
            check_read(gather, &g, base, n_base, text);
            check_write(gather, &g, base, n_base, text);
            shared += check_other_offset(a, rank, dims, &g, base, n_base);
            arena_destroy(a);
        }
    }
    printf("%d plans, %d with a gather, %d shared between offsets\n", plans, gathers, shared);
    CHECK(shared > plans / 20, "few offsets share a program: %d of %d", shared, plans);
}

/* ---- what common views become ---- */

typedef struct expectation {
    const char *what;
    int base_rank;
    int64_t base[4];
    geometry g;
    const char *description;
} expectation;

#define GEOMETRY(r, o, ...) \
    { .dtype = DTYPE_F32, .rank = (r), .offset = (o), __VA_ARGS__ }
#define SIZES(...) .sizes = {__VA_ARGS__}
#define STRIDES(...) .strides = {__VA_ARGS__}

static const expectation expectations[] = {
    {"x", 2, {3, 4}, GEOMETRY(2, 0, SIZES(3, 4), STRIDES(4, 1)), "identity"},
    {"scalar", 0, {0}, GEOMETRY(0, 0, SIZES(0), STRIDES(0)), "identity"},
    {"x.t()", 2, {3, 4}, GEOMETRY(2, 0, SIZES(4, 3), STRIDES(1, 4)), "transpose"},
    {"x[1]", 2, {3, 4}, GEOMETRY(1, 4, SIZES(4), STRIDES(1)), "slice+reshape"},
    {"x[:, 1:3]", 2, {3, 4}, GEOMETRY(2, 1, SIZES(3, 2), STRIDES(4, 1)), "slice"},
    {"x[::2, ::3]", 2, {4, 6}, GEOMETRY(2, 0, SIZES(2, 2), STRIDES(12, 3)), "slice"},
    {"x[:, 1].t()", 3, {3, 4, 5}, GEOMETRY(2, 5, SIZES(5, 3), STRIDES(1, 20)), "slice+transpose+reshape"},
    {"x.view(-1)", 2, {3, 4}, GEOMETRY(1, 0, SIZES(12), STRIDES(1)), "reshape"},
    {"x.view(3, 4)", 1, {12}, GEOMETRY(2, 0, SIZES(3, 4), STRIDES(4, 1)), "reshape"},
    {"x.unsqueeze(1)", 2, {3, 4}, GEOMETRY(3, 0, SIZES(3, 1, 4), STRIDES(4, 4, 1)), "reshape"},
    {"x.expand(5, 3)", 1, {3}, GEOMETRY(2, 0, SIZES(5, 3), STRIDES(0, 1)), "broadcast"},
    {"x.view(B, T, H, D).transpose(1, 2)",
     3,
     {2, 3, 8},
     GEOMETRY(4, 0, SIZES(2, 2, 3, 4), STRIDES(24, 4, 8, 1)),
     "reshape+transpose"},
    {"the second of q, k, v",
     3,
     {2, 3, 12},
     GEOMETRY(4, 4, SIZES(2, 2, 3, 2), STRIDES(36, 2, 12, 1)),
     "reshape+slice+transpose"},
    {"q of unequal q, k, v", 2, {3, 7}, GEOMETRY(3, 0, SIZES(3, 2, 2), STRIDES(7, 2, 1)), "slice+reshape"},
    {"channels_last over NHWC", 4, {2, 4, 5, 3}, GEOMETRY(4, 0, SIZES(2, 3, 4, 5), STRIDES(60, 1, 15, 3)), "transpose"},
    {"x.diagonal()", 2, {4, 4}, GEOMETRY(1, 0, SIZES(4), STRIDES(5)), "reshape+slice"},
    {"unfold without overlap", 1, {12}, GEOMETRY(2, 0, SIZES(3, 3), STRIDES(4, 1)), "reshape+slice"},
    {"rows that do not divide the base", 1, {25}, GEOMETRY(2, 0, SIZES(3, 4), STRIDES(8, 2)), "slice+reshape+slice"},
    {"rows that reach past the base", 1, {7}, GEOMETRY(2, 0, SIZES(2, 2), STRIDES(5, 1)), "pad+reshape+slice"},
    {"unfold with overlap", 1, {6}, GEOMETRY(2, 0, SIZES(4, 3), STRIDES(1, 1)), "gather"},
    {"nothing", 1, {6}, GEOMETRY(1, 0, SIZES(0), STRIDES(1)), "zeros"},
    {"too much", 1, {6}, GEOMETRY(1, 0, SIZES(7), STRIDES(1)), "out of range"},
};

static void test_descriptions(void) {
    for (size_t i = 0; i < sizeof expectations / sizeof *expectations; i++) {
        const expectation *e = &expectations[i];
        const char *is = view_describe(e->base_rank, e->base, &e->g);
        CHECK(strcmp(is, e->description) == 0, "%s is %s, expected %s", e->what, is, e->description);
    }
}

/* Every allocation of planning fails once: no plan, nothing leaks, no crash. */
static void test_no_memory(void) {
    int64_t dims[] = {25};
    geometry g = GEOMETRY(2, 1, SIZES(3, 4), STRIDES(8, 2));
    for (long n = 1; n < 20; n++) {
        long live = mem_live_count();
        mem_fail_after(n);
        arena *a = arena_create();
        view_plan *plan = a ? view_plan_create(a, 1, dims, &g, false) : NULL;
        mem_fail_after(0);
        if (plan) CHECK(plan->n_steps == 3, "%d steps", plan->n_steps);
        if (a) arena_destroy(a);
        CHECK(mem_live_count() == live, "%ld allocations leaked", mem_live_count() - live);
    }
}

int main(void) {
    test_descriptions();
    test_no_memory();
    test_random_views(6000);
    return failures != 0;
}
