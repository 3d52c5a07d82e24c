/* Sets of XLA options that users give: interned texts of "name=value" lines, so that a key holds one number for a set.
 * Number 0 is the empty set. */
#include <string.h>

#include "base/alloc.h"
#include "exec/internal.h"

enum { MAX_SETS = 4096 };

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *sets[MAX_SETS] = {""};
static int n_sets = 1;
_Atomic int exec_options_now = 0;

status *exec_options_intern(const char *lines, int *out) {
    status *s = NULL;
    pthread_mutex_lock(&table_lock);
    int i = 0;
    while (i < n_sets && strcmp(sets[i], lines) != 0) i++;
    if (i == MAX_SETS) {
        s = status_new(STATUS_RUNTIME, "more than %d different sets of compiler options in one process", MAX_SETS - 1);
    } else if (i == n_sets) {
        sets[i] = mem_strdup(lines);
        if (sets[i])
            n_sets++;
        else
            s = status_no_memory();
    }
    pthread_mutex_unlock(&table_lock);
    *out = s ? 0 : i;
    return s;
}

const char *exec_options_text(int options) {
    pthread_mutex_lock(&table_lock);
    const char *text = options > 0 && options < n_sets ? sets[options] : "";
    pthread_mutex_unlock(&table_lock);
    return text; /* never freed */
}

status *exec_set_options(int options) {
    if (options == exec_options_now) return NULL;
    status *s = fused_flush(); /* what has gathered was called with the options before */
    exec_options_now = options;
    return s;
}

int exec_get_options(void) { return exec_options_now; }

void operator_set_options(operator_info *op, int options) { op->options = options; }
