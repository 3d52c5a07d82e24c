/* The counted heap, and failures on demand. */
#include "base/alloc.h"

#include <pthread.h>

#include "check.h"

static void test_counting(void) {
    long before = mem_live_count();
    unsigned char *p = mem_alloc(1000);
    CHECK_INT(mem_live_count(), before + 1);
    for (int i = 0; i < 1000; i++) CHECK_INT(p[i], 0);
    memset(p, 7, 1000);
    p = mem_realloc(p, 100000);
    CHECK_INT(mem_live_count(), before + 1);
    CHECK_INT(p[999], 7);
    mem_free(p);
    CHECK_INT(mem_live_count(), before);
    mem_free(NULL);
    CHECK_INT(mem_live_count(), before);
    p = mem_realloc(NULL, 10); /* an allocation */
    CHECK_INT(mem_live_count(), before + 1);
    mem_free(p);
    p = mem_alloc(0);
    CHECK(p != NULL);
    mem_free(p);
    char *text = mem_strdup("text");
    CHECK_TEXT(text, "text");
    mem_free(text);
    CHECK_INT(mem_live_count(), before);
}

static void test_failures(void) {
    long before = mem_live_count();
    mem_fail_after(1);
    CHECK(mem_alloc(1) == NULL);
    mem_fail_after(1);
    CHECK(mem_strdup("x") == NULL);
    mem_fail_after(2);
    char *p = mem_alloc(4);
    CHECK(p != NULL);
    p[0] = 'a';
    CHECK(mem_realloc(p, 8) == NULL); /* and p is still there */
    CHECK_INT(p[0], 'a');
    char *q = mem_alloc(1); /* only one fails */
    CHECK(q != NULL);
    mem_free(p);
    mem_free(q);
    mem_fail_after(1);
    mem_fail_after(0);
    p = mem_alloc(1);
    CHECK(p != NULL);
    mem_free(p);
    CHECK_INT(mem_live_count(), before);
}

static void *allocate(void *nothing) {
    (void)nothing;
    for (int i = 0; i < 10000; i++) mem_free(mem_alloc(16));
    return mem_alloc(1);
}

/* A failure asked for on one thread happens on that thread; counting is exact with several. */
static void test_threads(void) {
    long before = mem_live_count();
    mem_fail_after(1);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, allocate, NULL);
    void *got[4];
    for (int i = 0; i < 4; i++) pthread_join(threads[i], &got[i]);
    CHECK_INT(mem_live_count(), before + 4);
    for (int i = 0; i < 4; i++) {
        CHECK(got[i] != NULL);
        mem_free(got[i]);
    }
    CHECK(mem_alloc(1) == NULL);
    CHECK_INT(mem_live_count(), before);
}

int main(void) {
    test_counting();
    test_failures();
    test_threads();
    return check_report();
}
