/* Growing byte strings. */
#include "base/strbuf.h"

#include "base/alloc.h"
#include "check.h"

static void test_building(void) {
    strbuf s;
    strbuf_init(&s);
    CHECK_TEXT(strbuf_text(&s), "");
    CHECK(s.data == NULL);
    strbuf_append(&s, NULL, 0);
    strbuf_puts(&s, "");
    CHECK(s.data == NULL);
    strbuf_printf(&s, "%d-%s", 12, "ab");
    strbuf_puts(&s, "cd");
    strbuf_append(&s, "e\0f", 3);
    CHECK_INT(s.size, 10);
    CHECK(memcmp(s.data, "12-abcde\0f", 11) == 0); /* and the NUL after it */
    strbuf_clear(&s);
    CHECK_INT(s.size, 0);
    CHECK_TEXT(strbuf_text(&s), "");
    CHECK(s.capacity > 0);
    strbuf_free(&s);
    CHECK(s.data == NULL);
}

/* Every length around the places where it grows, by both ways of appending. */
static void test_growth(void) {
    for (int n = 0; n < 300; n++) {
        strbuf a, b;
        strbuf_init(&a);
        strbuf_init(&b);
        for (int i = 0; i < n; i++) strbuf_append(&a, "x", 1);
        for (int i = 0; i < n; i++) strbuf_printf(&b, "%c", 'x');
        strbuf_printf(&a, "%*d", n, 5);
        char expected[700];
        memset(expected, 'x', (size_t)n);
        snprintf(expected + n, sizeof expected - (size_t)n, "%*d", n, 5);
        CHECK_TEXT(strbuf_text(&a), expected);
        CHECK_INT(a.size, strlen(expected));
        CHECK_INT(b.size, n);
        CHECK(!strbuf_failed(&a) && a.size < a.capacity);
        strbuf_free(&a);
        strbuf_free(&b);
    }
}

/* What fails stays failed and keeps what it had; clearing starts anew. */
static void test_no_memory(void) {
    strbuf s;
    strbuf_init(&s);
    mem_fail_after(1);
    strbuf_puts(&s, "lost");
    CHECK(strbuf_failed(&s));
    CHECK_TEXT(strbuf_text(&s), "");
    strbuf_puts(&s, "more");
    CHECK_INT(s.size, 0);
    strbuf_clear(&s);
    strbuf_puts(&s, "kept");
    char longer[200];
    memset(longer, 'y', 199);
    longer[199] = '\0';
    mem_fail_after(1);
    strbuf_printf(&s, "%s", longer);
    CHECK(strbuf_failed(&s));
    CHECK_TEXT(strbuf_text(&s), "kept");
    strbuf_printf(&s, "%d", 1);
    CHECK_TEXT(strbuf_text(&s), "kept");
    strbuf_free(&s);
    strbuf_init(&s);
    strbuf_append(&s, "x", (size_t)-10); /* more than there is */
    CHECK(strbuf_failed(&s));
    strbuf_free(&s);
}

int main(void) {
    long before = mem_live_count();
    test_building();
    test_growth();
    test_no_memory();
    CHECK_INT(mem_live_count(), before);
    return check_report();
}
