/* Safetensors files: 8 bytes of header length, a JSON object from names to types and places, then the elements. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "run/array.h"
#include "run/json.h"

static const struct {
    const char *name;
    dtype dtype;
} types[] = {
    {"BOOL", DTYPE_BOOL},
    {"U8", DTYPE_U8},
    {"I8", DTYPE_I8},
    {"U16", DTYPE_U16},
    {"I16", DTYPE_I16},
    {"U32", DTYPE_U32},
    {"I32", DTYPE_I32},
    {"U64", DTYPE_U64},
    {"I64", DTYPE_I64},
    {"F8_E4M3", DTYPE_F8E4M3FN},
    {"F8_E5M2", DTYPE_F8E5M2},
    {"F8_E4M3FNUZ", DTYPE_F8E4M3FNUZ},
    {"F8_E5M2FNUZ", DTYPE_F8E5M2FNUZ},
    {"F16", DTYPE_F16},
    {"BF16", DTYPE_BF16},
    {"F32", DTYPE_F32},
    {"F64", DTYPE_F64},
    {"C64", DTYPE_C64},
    {"C128", DTYPE_C128},
};
enum { N_TYPES = sizeof types / sizeof *types, LENGTH_BYTES = 8, ALIGNMENT = 8 };

typedef struct {
    const char *name;
    host_array array;
} entry;

struct safetensors {
    file_content file;
    arena *arena;
    entry *entries; /* in the order of names */
    int n;
};

static int by_name(const void *a, const void *b) { return strcmp(((const entry *)a)->name, ((const entry *)b)->name); }

/* Two integers at the head of an array. */
static bool read_pair(const json *v, int64_t out[2]) {
    v = json_array(v);
    return v && v->count == 2 && json_integer(v->first, &out[0]) && json_integer(v->first->next, &out[1]);
}

static status *read_shape(const json *v, host_array *out) {
    v = json_array(v);
    if (!v) return status_new(STATUS_VALUE, "it has no shape");
    if (v->count > ARRAY_MAX_RANK)
        return status_new(STATUS_VALUE, "it has %d dimensions, at most %d are supported", v->count, ARRAY_MAX_RANK);
    for (const json *n = v->first; n; n = n->next)
        if (!json_integer(n, &out->dims[out->rank++])) return status_new(STATUS_VALUE, "its shape is damaged");
    return NULL;
}

static status *read_entry(const json *v, const unsigned char *elements, size_t size, host_array *out) {
    const char *type = json_string(json_member(v, "dtype"));
    int64_t place[2];
    for (int i = 0; type && i < N_TYPES; i++)
        if (strcmp(types[i].name, type) == 0) out->dtype = types[i].dtype;
    if (out->dtype == DTYPE_INVALID)
        return status_new(STATUS_TYPE, "its dtype %s is not supported", type ? type : "(missing)");
    STATUS_TRY(read_shape(json_member(v, "shape"), out));
    if (!read_pair(json_member(v, "data_offsets"), place) || place[0] < 0 || place[1] < place[0] ||
        (uint64_t)place[1] > size)
        return status_new(STATUS_VALUE, "its data_offsets lie outside of the file");
    if (!array_count_bytes(out) || out->bytes != (uint64_t)(place[1] - place[0]))
        return status_new(STATUS_VALUE, "its data_offsets do not fit its shape");
    out->data = elements + place[0];
    return NULL;
}

static status *read_entries(safetensors *s, const json *header, const unsigned char *elements, size_t size) {
    if (header->kind != JSON_OBJECT) return status_new(STATUS_VALUE, "its header is no JSON object");
    s->entries = ARENA_NEW(s->arena, entry, header->count);
    if (!s->entries) return status_no_memory();
    for (const json *v = header->first; v; v = v->next) {
        if (strcmp(v->key, "__metadata__") == 0) continue;
        entry *e = &s->entries[s->n++];
        e->name = v->key;
        STATUS_TRY(status_prefix(read_entry(v, elements, size, &e->array), "tensor %s", v->key));
    }
    qsort(s->entries, (size_t)s->n, sizeof(entry), by_name);
    for (int i = 1; i < s->n; i++)
        if (strcmp(s->entries[i - 1].name, s->entries[i].name) == 0)
            return status_new(STATUS_VALUE, "tensor %s is there twice", s->entries[i].name);
    return NULL;
}

static status *read_file(safetensors *s) {
    const unsigned char *data = s->file.data;
    const json *header;
    uint64_t length = 0;
    if (s->file.size < LENGTH_BYTES) return status_new(STATUS_VALUE, "not a safetensors file");
    for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)data[i] << 8 * i;
    if (length > s->file.size - LENGTH_BYTES)
        return status_new(STATUS_VALUE, "not a safetensors file, or it ends within its header");
    STATUS_TRY(
        status_prefix(json_parse(s->arena, (const char *)data + LENGTH_BYTES, (size_t)length, &header), "its header"));
    return read_entries(s, header, data + LENGTH_BYTES + length, s->file.size - LENGTH_BYTES - (size_t)length);
}

status *safetensors_open(const char *path, safetensors **out) {
    *out = NULL;
    safetensors *s = mem_alloc(sizeof *s);
    if (s) s->arena = arena_create();
    status *error = s && s->arena ? file_open(path, &s->file) : status_no_memory();
    if (!error) error = status_prefix(read_file(s), "%s", path);
    if (error) {
        safetensors_close(s);
        return error;
    }
    *out = s;
    return NULL;
}

void safetensors_close(safetensors *s) {
    if (!s) return;
    file_close(&s->file);
    if (s->arena) arena_destroy(s->arena);
    mem_free(s);
}

int safetensors_count(const safetensors *s) { return s->n; }
const char *safetensors_name(const safetensors *s, int i) { return s->entries[i].name; }

const host_array *safetensors_find(const safetensors *s, const char *name) {
    entry wanted = {.name = name};
    const entry *found = s->n ? bsearch(&wanted, s->entries, (size_t)s->n, sizeof(entry), by_name) : NULL;
    return found ? &found->array : NULL;
}

static void put_quoted(strbuf *out, const char *text) {
    strbuf_puts(out, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\' || *c < 0x20)
            strbuf_printf(out, "\\u%04x", *c);
        else
            strbuf_append(out, c, 1);
    }
    strbuf_puts(out, "\"");
}

static const char *type_name(dtype t) {
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].dtype == t) return types[i].name;
    return "";
}

static void put_header(strbuf *out, int n, const char *const *names, const host_array *arrays) {
    size_t offset = 0;
    strbuf_puts(out, "{");
    for (int i = 0; i < n; i++) {
        strbuf_puts(out, i ? "," : "");
        put_quoted(out, names[i]);
        strbuf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", type_name(arrays[i].dtype));
        for (int d = 0; d < arrays[i].rank; d++) strbuf_printf(out, d ? ",%" PRId64 : "%" PRId64, arrays[i].dims[d]);
        strbuf_printf(out, "],\"data_offsets\":[%zu,%zu]}", offset, offset + arrays[i].bytes);
        offset += arrays[i].bytes;
    }
    strbuf_puts(out, "}");
    while (out->size % ALIGNMENT && !strbuf_failed(out)) strbuf_puts(out, " ");
}

status *safetensors_write(const char *path, int n, const char *const *names, const host_array *arrays) {
    strbuf header;
    strbuf_init(&header);
    put_header(&header, n, names, arrays);
    FILE *file = NULL;
    status *s = strbuf_failed(&header) ? status_no_memory() : file_create(path, &file);
    if (!s) {
        unsigned char length[LENGTH_BYTES];
        for (int i = 0; i < LENGTH_BYTES; i++) length[i] = (unsigned char)((uint64_t)header.size >> 8 * i);
        fwrite(length, 1, sizeof length, file);
        fwrite(header.data, 1, header.size, file);
        for (int i = 0; i < n; i++) fwrite(arrays[i].data, 1, arrays[i].bytes, file);
        s = file_finish(file, path);
    }
    strbuf_free(&header);
    return s;
}
