#include "ops/fault.h"

#include <stdio.h>
#include <string.h>

#include "base/tests/check.h"

static void test_operators(void) {
    int32_t index = fault_code(FAULT_INDEX, "aten::take"), value = fault_code(FAULT_VALUE, "aten::take");
    CHECK(index > 0 && value > 0 && index != value && index != fault_code(FAULT_INDEX, "aten::put"));
    status *s = fault_status(index);
    CHECK_INT(status_get_code(s), STATUS_INDEX);
    CHECK(strstr(status_message(s), "aten::take: an index") == status_message(s));
    status_free(s);
    s = fault_status(value);
    CHECK_INT(status_get_code(s), STATUS_RUNTIME);
    CHECK(strstr(status_message(s), "aten::take: a value") == status_message(s));
    status_free(s);
    s = fault_status(fault_code(FAULT_INDEX, "test::no such operator"));
    CHECK(strstr(status_message(s), "an operator: an index") == status_message(s));
    status_free(s);
}

static void check_begins(int32_t code, const char *text) {
    status *s = fault_status(code);
    CHECK_INT(status_get_code(s), STATUS_RUNTIME);
    CHECK(strncmp(status_message(s), text, strlen(text)) == 0);
    status_free(s);
}

/* More texts than there is room for: each is its own, or forgotten, never another's. Long ones end with a character. */
static void test_assertions(void) {
    char text[2048];
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "text %d", i);
        fault_remember(text);
        check_begins(fault_code(FAULT_ASSERTION, text), text);
    }
    int known = 0;
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "text %d", i);
        status *s = fault_status(fault_code(FAULT_ASSERTION, text));
        bool own = strncmp(status_message(s), text, strlen(text)) == 0;
        CHECK(own || strncmp(status_message(s), "an assertion does not hold", 26) == 0);
        known += own;
        status_free(s);
    }
    CHECK(known > 100);
    text[0] = 'x';
    for (size_t i = 1; i + 2 < sizeof text; i += 2) memcpy(text + i, "\xc3\xa9", 3);
    fault_remember(text);
    status *s = fault_status(fault_code(FAULT_ASSERTION, text));
    const char *end = strstr(status_message(s), " (an assertion");
    CHECK(end && (end - status_message(s)) % 2 == 1 && end - status_message(s) > 400);
    status_free(s);
}

int main(void) {
    test_operators();
    test_assertions();
    return check_report();
}
