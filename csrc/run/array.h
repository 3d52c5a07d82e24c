/* Arrays in host memory, and the files that hold them. */
#ifndef RUN_ARRAY_H
#define RUN_ARRAY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/status.h"
#include "base/strbuf.h"

enum { ARRAY_MAX_RANK = 32 };

typedef struct host_array {
    dtype dtype;
    int rank;
    int64_t dims[ARRAY_MAX_RANK];
    const void *data; /* row-major, dense; borrowed */
    size_t bytes;
} host_array;

/* Sets bytes from type and dims; false where a dim is negative or the size does not fit. */
bool array_count_bytes(host_array *a);
void array_print_type(strbuf *out, dtype t, int rank, const int64_t *dims); /* "float32[2, 3]" */

/* ---- files ---- */
typedef struct file_content {
    const unsigned char *data;
    size_t size;
} file_content;
/* Maps a file for reading. An error names the path. */
status *file_open(const char *path, file_content *out);
void file_close(file_content *f);
/* Opens for writing; file_finish reports what failed since and closes. */
status *file_create(const char *path, FILE **out);
status *file_finish(FILE *f, const char *path);

/* ---- .npy (NumPy, "NEP 1: a simple file format for NumPy arrays", versions 1 to 3) ---- */
/* out->data points into the content, or into the arena where the file is in Fortran order. A bfloat16 array, which
 * NumPy calls '|V2', is read as `expected` where that has its size. */
status *npy_parse(const file_content *f, dtype expected, arena *a, host_array *out);
status *npy_write(const char *path, const host_array *array); /* bfloat16 as '|V2' */

/* ---- safetensors (https://github.com/huggingface/safetensors, "Format") ---- */
typedef struct safetensors safetensors;
status *safetensors_open(const char *path, safetensors **out);
void safetensors_close(safetensors *s); /* NULL is fine */
int safetensors_count(const safetensors *s);
const char *safetensors_name(const safetensors *s, int i);                  /* in the order of names */
const host_array *safetensors_find(const safetensors *s, const char *name); /* NULL: not there */
status *safetensors_write(const char *path, int n, const char *const *names, const host_array *arrays);

#endif
