/* Checks for test programs: a failed one is printed with its place and counted, and the program goes on. main ends with
 * `return check_report();`, 0 when nothing failed. A test that cannot run here returns CHECK_SKIPPED. */
#ifndef BASE_TESTS_CHECK_H
#define BASE_TESTS_CHECK_H

#include <stdio.h>
#include <string.h>

#include "base/status.h"

enum { CHECK_SKIPPED = 77 }; /* what CTest and Automake take for "skipped" */

static int check_failures;

#define CHECK(condition) check_true((condition), #condition, __FILE__, __LINE__)
#define CHECK_INT(actual, expected) check_int((long long)(actual), (long long)(expected), #actual, __FILE__, __LINE__)
#define CHECK_TEXT(actual, expected) check_text((actual), (expected), #actual, __FILE__, __LINE__)
/* The call succeeds. Gives whether it did, to guard what needs its results. */
#define CHECK_OK(call) check_ok((call), #call, __FILE__, __LINE__)
/* The call fails with this code, and its message contains the text. */
#define CHECK_FAILS(call, code, text) check_fails((call), (code), (text), #call, __FILE__, __LINE__)

static inline int check_true(int condition, const char *what, const char *file, int line) {
    if (condition) return 1;
    check_failures++;
    printf("%s:%d: %s is false\n", file, line, what);
    return 0;
}

static inline void check_int(long long actual, long long expected, const char *what, const char *file, int line) {
    if (actual == expected) return;
    check_failures++;
    printf("%s:%d: %s is %lld, expected %lld\n", file, line, what, actual, expected);
}

static inline void check_text(const char *actual, const char *expected, const char *what, const char *file, int line) {
    if (actual && strcmp(actual, expected) == 0) return;
    check_failures++;
    printf("%s:%d: %s is \"%s\", expected \"%s\"\n", file, line, what, actual ? actual : "(null)", expected);
}

static inline int check_ok(status *s, const char *what, const char *file, int line) {
    if (!s) return 1;
    check_failures++;
    printf("%s:%d: %s failed: %s\n", file, line, what, status_message(s));
    status_free(s);
    return 0;
}

static inline void check_fails(status *s, status_code code, const char *text, const char *what, const char *file,
                               int line) {
    if (!s) {
        check_failures++;
        printf("%s:%d: %s succeeded\n", file, line, what);
        return;
    }
    if (status_get_code(s) != code || !strstr(status_message(s), text)) {
        check_failures++;
        printf("%s:%d: %s gave code %d, \"%s\"; expected code %d and \"%s\"\n", file, line, what,
               (int)status_get_code(s), status_message(s), (int)code, text);
    }
    status_free(s);
}

static inline int check_report(void) {
    if (check_failures) printf("%d checks failed\n", check_failures);
    return check_failures != 0;
}

#endif
