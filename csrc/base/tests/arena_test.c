/* Memory freed at once. */
#include "base/arena.h"

#include <stdint.h>

#include "base/alloc.h"
#include "check.h"

static int all_zero(const unsigned char *p, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (p[i]) return 0;
    return 1;
}

/* Sizes from nothing to far more than a block: aligned, zeroed, apart from each other, also after a reset. */
static void test_allocating(void) {
    static const size_t sizes[] = {0, 1, 15, 16, 17, 1000, 4096, 5000, 100, 100000, 8, 3000000, 24};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    arena *a = arena_create();
    for (int round = 0; round < 3; round++) {
        unsigned char *p[COUNT];
        for (int i = 0; i < COUNT; i++) {
            p[i] = arena_alloc(a, sizes[i]);
            CHECK(p[i] != NULL);
            CHECK_INT((uintptr_t)p[i] % 16, 0);
            CHECK(all_zero(p[i], sizes[i]));
            memset(p[i], i + 1, sizes[i]);
        }
        for (int i = 0; i < COUNT; i++)
            for (size_t j = 0; j < sizes[i]; j++)
                if (p[i][j] != i + 1) {
                    CHECK_INT(p[i][j], i + 1);
                    break;
                }
        arena_reset(a);
    }
    CHECK(!arena_failed(a));
    arena_destroy(a);
    arena_destroy(NULL);
}

/* A reset frees all but one block, and what is then handed out again is zero. */
static void test_reset(void) {
    arena *a = arena_create();
    long empty = mem_live_count();
    unsigned char *first = arena_alloc(a, 64);
    memset(first, 9, 64);
    for (int i = 0; i < 1000; i++) memset(arena_alloc(a, 500), 9, 500);
    CHECK(mem_live_count() > empty);
    arena_reset(a);
    CHECK_INT(mem_live_count(), empty);
    unsigned char *again = arena_alloc(a, 2000);
    CHECK(again == first);
    CHECK(all_zero(again, 2000));
    arena_destroy(a);
}

static void test_helpers(void) {
    arena *a = arena_create();
    CHECK_TEXT(arena_printf(a, "%s=%d", "x", 3), "x=3");
    CHECK_TEXT(arena_copy(a, "copy", 5), "copy");
    CHECK(arena_copy(a, NULL, 0) != NULL);
    int64_t *numbers = ARENA_NEW(a, int64_t, 10);
    CHECK_INT(numbers[9], 0);
    arena_destroy(a);
}

static void test_no_memory(void) {
    for (long n = 1; n <= 2; n++) {
        mem_fail_after(n);
        CHECK(arena_create() == NULL);
    }
    mem_fail_after(0);
    arena *a = arena_create();
    mem_fail_after(1);
    CHECK(arena_alloc(a, 100000) == NULL);
    CHECK(arena_failed(a));
    CHECK(arena_alloc(a, 100) != NULL); /* the failure is remembered, what fits still works */
    CHECK(arena_failed(a));
    arena_reset(a);
    CHECK(!arena_failed(a));
    CHECK(ARENA_NEW(a, int, -1) == NULL); /* a negative count is no allocation */
    CHECK(arena_failed(a));
    arena_reset(a);
    arena_alloc(a, 4000);
    mem_fail_after(1);
    CHECK(arena_printf(a, "%500d", 1) == NULL);
    mem_fail_after(1);
    CHECK(arena_copy(a, "x", 1000000) == NULL);
    mem_fail_after(0);
    arena_destroy(a);
}

int main(void) {
    long before = mem_live_count();
    test_allocating();
    test_reset();
    test_helpers();
    test_no_memory();
    CHECK_INT(mem_live_count(), before);
    return check_report();
}
