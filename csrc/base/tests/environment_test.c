#include "base/environment.h"

#include <stdlib.h>
#include <string.h>

#include "base/tests/check.h"

#define NAME "TORCH_TPU_TEST_VARIABLE"

static int64_t count_of(const char *value) {
    setenv(NAME, value, 1);
    return environment_count(NAME, 7);
}

static bool flag_of(const char *value, bool otherwise) {
    setenv(NAME, value, 1);
    return environment_flag(NAME, otherwise);
}

int main(void) {
    unsetenv(NAME);
    CHECK(environment_text(NAME) == NULL);
    CHECK_INT(environment_count(NAME, 7), 7);
    CHECK(!environment_flag(NAME, false) && environment_flag(NAME, true));
    CHECK_INT(count_of("1"), 1);
    CHECK_INT(count_of("9223372036854775807"), INT64_MAX);
    static const char *const wrong[] = {"", "0", "-1", "abc", "1.5", "3x", "9223372036854775808", " "};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) CHECK_INT(count_of(wrong[i]), 7);
    CHECK(flag_of("1", false) && flag_of("TRUE", false) && flag_of("on", true));
    CHECK(!flag_of("0", true) && !flag_of("No", true) && !flag_of("off", false));
    CHECK(!flag_of("2", false) && flag_of("2", true) && !flag_of("", false) && flag_of("nonsense", true));
    setenv(NAME, "a b", 1);
    CHECK(strcmp(environment_text(NAME), "a b") == 0);
    return check_report();
}
