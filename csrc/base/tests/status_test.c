/* Errors as values. */
#include "base/status.h"

#include "base/alloc.h"
#include "check.h"

static status *fail_if(int condition) {
    return condition ? status_new(STATUS_INDEX, "index %d is out of range", 7) : NULL;
}

static status *try_two(int first, int second) {
    STATUS_TRY(fail_if(first));
    STATUS_TRY(fail_if(second));
    return NULL;
}

static void test_messages(void) {
    status *s = status_new(STATUS_TYPE, "expected %s, got %s", "int", "str");
    CHECK_INT(status_get_code(s), STATUS_TYPE);
    CHECK_TEXT(status_message(s), "expected int, got str");
    s = status_prefix(s, "argument %d of %s", 2, "aten::add");
    CHECK_TEXT(status_message(s), "argument 2 of aten::add: expected int, got str");
    CHECK_INT(status_get_code(s), STATUS_TYPE);
    status_free(s);
    CHECK(status_prefix(NULL, "nothing") == NULL);
    status_free(NULL);
    s = status_new(STATUS_RUNTIME, "%s", "");
    CHECK_TEXT(status_message(s), "");
    status_free(s);
    char longer[5000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    s = status_new(STATUS_VALUE, "%s", longer);
    CHECK_TEXT(status_message(s), longer);
    status_free(s);
}

static void test_try(void) {
    CHECK_OK(try_two(0, 0));
    CHECK_FAILS(try_two(1, 0), STATUS_INDEX, "index 7 is out of range");
    CHECK_FAILS(try_two(0, 1), STATUS_INDEX, "index 7");
}

/* Without memory there is still a status, the prefix is dropped rather than the cause, and nothing leaks. */
static void test_no_memory(void) {
    mem_fail_after(1);
    status *s = status_new(STATUS_INDEX, "lost");
    CHECK(s != NULL);
    CHECK_INT(status_get_code(s), STATUS_OUT_OF_MEMORY);
    CHECK(s == status_no_memory());
    mem_fail_after(1);
    s = status_prefix(s, "where");
    CHECK_TEXT(status_message(s), "out of host memory");
    s = status_prefix(s, "where");
    CHECK_TEXT(status_message(s), "where: out of host memory");
    status_free(s);
    status_free(status_no_memory());
    s = status_new(STATUS_VALUE, "cause");
    mem_fail_after(1);
    s = status_prefix(s, "where");
    CHECK_TEXT(status_message(s), "cause");
    status_free(s);
}

int main(void) {
    long before = mem_live_count();
    test_messages();
    test_try();
    test_no_memory();
    CHECK_INT(mem_live_count(), before);
    return check_report();
}
