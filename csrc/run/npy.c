/* NumPy's array files. The header is a Python dictionary literal of three known keys. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "run/array.h"

static const struct {
    const char *descr; /* behind the byte order */
    dtype dtype;
} types[] = {
    {"b1", DTYPE_BOOL}, {"u1", DTYPE_U8},  {"i1", DTYPE_I8},  {"u2", DTYPE_U16},   {"i2", DTYPE_I16},
    {"u4", DTYPE_U32},  {"i4", DTYPE_I32}, {"u8", DTYPE_U64}, {"i8", DTYPE_I64},   {"f2", DTYPE_F16},
    {"f4", DTYPE_F32},  {"f8", DTYPE_F64}, {"c8", DTYPE_C64}, {"c16", DTYPE_C128},
};
enum { N_TYPES = sizeof types / sizeof *types };

static const unsigned char magic[] = "\x93NUMPY";
enum { MAGIC = 6, ALIGNMENT = 64 };

typedef struct {
    const char *at, *end;
} reader;

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n')) r->at++;
}

static bool take(reader *r, const char *word) {
    skip_space(r);
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

static bool take_quoted(reader *r, char *out, size_t size) {
    skip_space(r);
    if (r->at >= r->end || (*r->at != '\'' && *r->at != '"')) return false;
    char quote = *r->at++;
    size_t n = 0;
    while (r->at < r->end && *r->at != quote && n + 1 < size) out[n++] = *r->at++;
    out[n] = 0;
    return r->at < r->end && *r->at++ == quote;
}

static bool take_dim(reader *r, int64_t *out) {
    skip_space(r);
    const char *first = r->at;
    *out = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, *r->at - '0', out)) return false;
    return r->at > first;
}

static bool take_shape(reader *r, host_array *out) {
    if (!take(r, "(")) return false;
    out->rank = 0;
    while (!take(r, ")")) {
        if (out->rank == ARRAY_MAX_RANK || !take_dim(r, &out->dims[out->rank++])) return false;
        if (take(r, ",")) continue;
        return take(r, ")");
    }
    return true;
}

static status *find_type(const char *descr, dtype expected, dtype *out) {
    if (strcmp(descr, "|V2") == 0 || strcmp(descr, "<V2") == 0) {
        *out = DTYPE_BF16;
        return expected == DTYPE_BF16
                   ? NULL
                   : status_new(STATUS_TYPE, "elements of type '%s', which NumPy has no name for", descr);
    }
    if (*descr == '>') return status_new(STATUS_TYPE, "big-endian elements ('%s'): save it as little-endian", descr);
    for (int i = 0; *descr && i < N_TYPES; i++) {
        if (strcmp(descr + 1, types[i].descr) != 0) continue;
        *out = types[i].dtype;
        return NULL;
    }
    return status_new(STATUS_TYPE, "elements of type '%s' are not supported", descr);
}

static status *parse_header(const char *text, size_t size, dtype expected, host_array *out, bool *fortran) {
    reader r = {text, text + size};
    char key[32], descr[32] = "";
    bool has_order = false, has_shape = false, ok = take(&r, "{");
    while (ok && !take(&r, "}")) {
        ok = take_quoted(&r, key, sizeof key) && take(&r, ":");
        if (!ok) break;
        if (strcmp(key, "descr") == 0) {
            ok = take_quoted(&r, descr, sizeof descr);
            if (!ok) return status_new(STATUS_TYPE, "a structured array; only plain element types are supported");
        } else if (strcmp(key, "fortran_order") == 0) {
            *fortran = take(&r, "True");
            ok = has_order = *fortran || take(&r, "False");
        } else if (strcmp(key, "shape") == 0) {
            ok = has_shape = take_shape(&r, out);
        } else {
            ok = false;
        }
        if (ok && !take(&r, ",")) {
            ok = take(&r, "}");
            break;
        }
    }
    if (!ok || !has_order || !has_shape || !*descr) return status_new(STATUS_VALUE, "its header is damaged");
    return find_type(descr, expected, &out->dtype);
}

/* Position in a row-major array to position in the column-major file. */
static status *to_row_major(host_array *array, arena *a) {
    size_t item = dtype_bytes(array->dtype), n = array->bytes / item;
    unsigned char *to = arena_alloc(a, array->bytes);
    const unsigned char *from = array->data;
    if (!to) return status_no_memory();
    int64_t index[ARRAY_MAX_RANK] = {0};
    for (size_t i = 0; i < n; i++) {
        size_t position = 0;
        for (int d = array->rank - 1; d >= 0; d--) position = position * (size_t)array->dims[d] + (size_t)index[d];
        memcpy(to + i * item, from + position * item, item);
        for (int d = array->rank - 1; d >= 0 && ++index[d] == array->dims[d]; d--) index[d] = 0;
    }
    array->data = to;
    return NULL;
}

/* The length of the header's text and where it begins. */
static status *find_header(const file_content *f, size_t *start, size_t *length) {
    if (f->size < MAGIC + 4 || memcmp(f->data, magic, MAGIC) != 0) return status_new(STATUS_VALUE, "not a .npy file");
    int major = f->data[MAGIC];
    if (major < 1 || major > 3) return status_new(STATUS_VALUE, "version %d of the .npy format is not known", major);
    size_t digits = major == 1 ? 2 : 4;
    *start = MAGIC + 2 + digits;
    *length = 0;
    if (f->size >= *start)
        for (size_t i = 0; i < digits; i++) *length |= (size_t)f->data[MAGIC + 2 + i] << 8 * i;
    if (f->size < *start || *length > f->size - *start) return status_new(STATUS_VALUE, "it ends within its header");
    return NULL;
}

status *npy_parse(const file_content *f, dtype expected, arena *a, host_array *out) {
    size_t start = 0, length = 0;
    bool fortran = false;
    memset(out, 0, sizeof *out);
    STATUS_TRY(find_header(f, &start, &length));
    STATUS_TRY(parse_header((const char *)f->data + start, length, expected, out, &fortran));
    size_t available = f->size - start - length;
    if (!array_count_bytes(out)) return status_new(STATUS_VALUE, "its shape is too large");
    if (out->bytes != available)
        return status_new(STATUS_VALUE, "it holds %zu bytes of elements, its shape wants %zu", available, out->bytes);
    out->data = f->data + start + length;
    return fortran && out->rank > 1 ? to_row_major(out, a) : NULL;
}

static const char *descr_of(dtype t) {
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].dtype == t) return types[i].descr;
    return dtype_bytes(t) == 1 ? "V1" : "V2";
}

status *npy_write(const char *path, const host_array *array) {
    strbuf header;
    strbuf_init(&header);
    const char *descr = descr_of(array->dtype);
    bool plain = dtype_bytes(array->dtype) == 1 || *descr == 'V';
    strbuf_printf(&header, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", plain ? '|' : '<', descr);
    for (int d = 0; d < array->rank; d++) strbuf_printf(&header, d ? ", %" PRId64 : "%" PRId64, array->dims[d]);
    strbuf_puts(&header, array->rank == 1 ? ",), }" : "), }");
    while ((MAGIC + 4 + header.size + 1) % ALIGNMENT) strbuf_puts(&header, " ");
    strbuf_puts(&header, "\n");
    FILE *file = NULL;
    status *s = strbuf_failed(&header) ? status_no_memory() : file_create(path, &file);
    if (!s) {
        unsigned char prefix[4] = {1, 0, (unsigned char)header.size, (unsigned char)(header.size >> 8)};
        fwrite(magic, 1, MAGIC, file);
        fwrite(prefix, 1, sizeof prefix, file);
        fwrite(header.data, 1, header.size, file);
        fwrite(array->data, 1, array->bytes, file);
        s = file_finish(file, path);
    }
    strbuf_free(&header);
    return s;
}
