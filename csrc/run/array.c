/* Types of arrays, and files as bytes. */
#include "run/array.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool array_count_bytes(host_array *a) {
    size_t bytes = dtype_bytes(a->dtype);
    bool overflow = false;
    for (int d = 0; d < a->rank; d++)
        overflow = overflow || a->dims[d] < 0 || __builtin_mul_overflow(bytes, (size_t)a->dims[d], &bytes);
    a->bytes = bytes;
    return !overflow && bytes <= INT64_MAX;
}

void array_print_type(strbuf *out, dtype t, int rank, const int64_t *dims) {
    strbuf_puts(out, dtype_torch_name(t));
    strbuf_puts(out, "[");
    for (int d = 0; d < rank; d++) strbuf_printf(out, d ? ", %" PRId64 : "%" PRId64, dims[d]);
    strbuf_puts(out, "]");
}

static status *file_error(const char *path) {
    return status_new(errno == ENOENT ? STATUS_NOT_FOUND : STATUS_RUNTIME, "%s: %s", path, strerror(errno));
}

static status *map_file(int fd, const char *path, file_content *out) {
    struct stat info;
    if (fstat(fd, &info) < 0) return file_error(path);
    if (!S_ISREG(info.st_mode)) return status_new(STATUS_VALUE, "%s: not a file", path);
    out->size = (size_t)info.st_size;
    out->data = (const unsigned char *)"";
    if (!out->size) return NULL; /* nothing can be mapped */
    void *data = mmap(NULL, out->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return file_error(path);
    out->data = data;
    return NULL;
}

status *file_open(const char *path, file_content *out) {
    *out = (file_content){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return file_error(path);
    status *s = map_file(fd, path, out);
    close(fd);
    return s;
}

void file_close(file_content *f) {
    if (f->size) munmap((void *)f->data, f->size);
    *f = (file_content){0};
}

status *file_create(const char *path, FILE **out) {
    *out = fopen(path, "wb");
    return *out ? NULL : file_error(path);
}

status *file_finish(FILE *f, const char *path) {
    bool failed = ferror(f);
    failed = fclose(f) != 0 || failed;
    return failed ? file_error(path) : NULL;
}
