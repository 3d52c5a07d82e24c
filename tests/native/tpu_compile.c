/* Compiles StableHLO files for a TPU topology that is not attached.
 *
 *     tpu_compile PLUGIN TOPOLOGY FILE...
 *
 * Prints "ok FILE" or "error FILE MESSAGE", a line a file, before it turns to the next one: a plugin may end the
 * process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/pjrt.h"

static char *read_file(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long end = ftell(f);
    rewind(f);
    char *text = end >= 0 ? malloc((size_t)end + 1) : NULL;
    if (text) {
        *size = fread(text, 1, (size_t)end, f);
        text[*size] = 0;
    }
    fclose(f);
    return text;
}

static int fail(status *s, const char *what) {
    fprintf(stderr, "%s: %s\n", what, status_message(s));
    status_free(s);
    return 2;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s PLUGIN TOPOLOGY FILE...\n", argv[0]);
        return 2;
    }
    pjrt_plugin *plugin;
    pjrt_topology *topology;
    status *s = pjrt_plugin_load(argv[1], &plugin);
    if (s) return fail(s, argv[1]);
    s = pjrt_topology_create(plugin, argv[2], &topology);
    if (s) return fail(s, argv[2]);
    int errors = 0;
    for (int i = 3; i < argc; i++) {
        size_t size = 0;
        char *text = read_file(argv[i], &size);
        if (!text) {
            printf("error %s cannot be read\n", argv[i]);
            errors++;
            continue;
        }
        printf("start %s\n", argv[i]);
        fflush(stdout);
        pjrt_compile_options options = {0};
        s = pjrt_compile_for_topology(topology, text, size, &options, NULL);
        if (s) {
            printf("error %s %s\n", argv[i], status_message(s));
            status_free(s);
            errors++;
        } else {
            printf("ok %s\n", argv[i]);
        }
        fflush(stdout);
        free(text);
    }
    pjrt_topology_destroy(topology);
    return errors != 0;
}
