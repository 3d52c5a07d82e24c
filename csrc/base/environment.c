#include "base/environment.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

const char *environment_text(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static bool is_one_of(const char *value, const char *const *words) {
    while (*words && strcasecmp(value, *words) != 0) words++;
    return *words != NULL;
}

bool environment_flag(const char *name, bool otherwise) {
    static const char *const set[] = {"1", "true", "yes", "on", NULL};
    static const char *const clear[] = {"0", "false", "no", "off", NULL};
    const char *value = environment_text(name);
    if (!value) return otherwise;
    return is_one_of(value, otherwise ? clear : set) ? !otherwise : otherwise;
}

int64_t environment_count(const char *name, int64_t otherwise) {
    const char *value = environment_text(name);
    if (!value) return otherwise;
    char *end;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    return errno == 0 && value[0] >= '0' && value[0] <= '9' && *end == 0 && n >= 1 ? n : otherwise;
}
