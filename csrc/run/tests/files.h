/* Files of a test, in a directory of its own. */
#ifndef RUN_TESTS_FILES_H
#define RUN_TESTS_FILES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/tests/check.h"

static char directory[] = "/tmp/tpu_run_test_XXXXXX";

static inline void make_directory(void) {
    if (!mkdtemp(directory)) {
        printf("no directory for the test\n");
        exit(1);
    }
}

/* The path of a file in the directory; good until the call after the next. */
static inline const char *path_of(const char *name) {
    static char paths[2][256];
    static int next;
    next = !next;
    snprintf(paths[next], sizeof paths[next], "%s/%s", directory, name);
    return paths[next];
}

static inline void put_file(const char *name, const void *data, size_t size) {
    FILE *f = fopen(path_of(name), "wb");
    CHECK(f && fwrite(data, 1, size, f) == size);
    if (f) fclose(f);
}

static inline unsigned char *get_file(const char *name, size_t *size) {
    static unsigned char content[1 << 16];
    FILE *f = fopen(path_of(name), "rb");
    CHECK(f != NULL);
    *size = f ? fread(content, 1, sizeof content, f) : 0;
    if (f) fclose(f);
    return content;
}

static inline void remove_files(int n, const char *const *names) {
    for (int i = 0; i < n; i++) unlink(path_of(names[i]));
    CHECK_INT(rmdir(directory), 0);
}

#endif
