/* _aot_compile: the process in which libtpu compiles.
 *
 *     _aot_compile topologies                     the table, as JSON
 *     _aot_compile check TOPOLOGY                 whether there is such a slice
 *     _aot_compile compile PLUGIN TOPOLOGY PROGRAM DIRECTORY [--store] [--costliest N] [--flag NAME=VALUE]...
 *
 * On failure the last line of stderr is "error: CODE MESSAGE" (a Python exception's name), and the exit status is 1. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "aot/compile.h"
#include "aot/topology.h"

enum { MAX_FLAGS = 256 };

static const char *exception_of(status_code code) {
    switch (code) {
        case STATUS_VALUE:
            return "ValueError";
        case STATUS_OUT_OF_MEMORY:
            return "OutOfMemoryError";
        case STATUS_NOT_IMPLEMENTED:
            return "NotImplementedError";
        default:
            return "RuntimeError";
    }
}

static int finish(status *s) {
    if (!s) return 0;
    fprintf(stderr, "\nerror: %s %s\n", exception_of(status_get_code(s)), status_message(s));
    status_free(s);
    return 1;
}

static int usage(void) {
    fprintf(stderr,
            "usage: _aot_compile topologies | check TOPOLOGY | compile PLUGIN TOPOLOGY PROGRAM DIRECTORY "
            "[--store] [--costliest N] [--flag NAME=VALUE]...\n");
    return 2;
}

static int print_topologies(void) {
    strbuf json;
    strbuf_init(&json);
    aot_topologies_print(&json);
    fputs(strbuf_text(&json), stdout);
    strbuf_free(&json);
    return fflush(stdout) ? 1 : 0;
}

static int check(const char *name) {
    aot_slice slice;
    status *s = aot_slice_find(name, &slice);
    if (!s)
        printf("{\"generation\": \"%s\", \"device_kind\": \"%s\", \"chips\": %d, \"devices\": %d}\n",
               slice.generation->name, slice.generation->device_kind, slice.chips, slice.devices);
    return finish(s);
}

static int compile(int n, char **arguments) {
    const char *names[MAX_FLAGS], *values[MAX_FLAGS];
    aot_request r = {.plugin = arguments[0],
                     .topology = arguments[1],
                     .program = arguments[2],
                     .directory = arguments[3],
                     .costliest = 10,
                     .options = {.flag_names = names, .flag_values = values}};
    for (int i = 4; i < n; i++) {
        char *equals = i + 1 < n ? strchr(arguments[i + 1], '=') : NULL;
        if (strcmp(arguments[i], "--store") == 0) {
            r.store = true;
        } else if (strcmp(arguments[i], "--costliest") == 0 && i + 1 < n) {
            r.costliest = atoi(arguments[++i]);
        } else if (strcmp(arguments[i], "--flag") == 0 && equals && r.options.n_flags < MAX_FLAGS) {
            *equals = 0;
            names[r.options.n_flags] = arguments[++i];
            values[r.options.n_flags++] = equals + 1;
        } else {
            return usage();
        }
    }
    return finish(aot_compile(&r));
}

int main(int n, char **arguments) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody waits for a compilation whose caller has ended */
    if (n == 2 && strcmp(arguments[1], "topologies") == 0) return print_topologies();
    if (n == 3 && strcmp(arguments[1], "check") == 0) return check(arguments[2]);
    if (n >= 6 && strcmp(arguments[1], "compile") == 0) return compile(n - 2, arguments + 2);
    return usage();
}
