/* .npy and safetensors files: what is written is read, and what is damaged is refused. The expected bytes are NumPy's
 * and the safetensors package's own. */
#include "base/alloc.h"
#include "run/array.h"
#include "run/tests/files.h"

static arena *mem;

/* np.save of np.array([[1, 2, 3], [4, 5, 6]], np.int16), written by NumPy 2.4. */
static const char numpy_header[] =
    "\x93NUMPY\x01\x00v\x00{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }"
    "                                                          \n";
enum { HEADER = 128 };

static size_t numpy_file(unsigned char *out, const char *descr, const char *order, const char *shape, const void *data,
                         size_t bytes) {
    int n = snprintf((char *)out + 10, 400, "{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n", descr, order, shape);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (unsigned char)n;
    out[9] = 0;
    memcpy(out + 10 + n, data, bytes);
    return 10 + (size_t)n + bytes;
}

static status *parse(const unsigned char *data, size_t size, dtype expected, host_array *out) {
    file_content content = {data, size};
    return npy_parse(&content, expected, mem, out);
}

static void npy_reads_numpy(void) {
    static const int16_t elements[6] = {1, 2, 3, 4, 5, 6};
    unsigned char file[HEADER + 12];
    host_array a;
    memcpy(file, numpy_header, HEADER);
    memcpy(file + HEADER, elements, 12);
    CHECK_INT(sizeof numpy_header - 1, HEADER);
    if (!CHECK_OK(parse(file, sizeof file, DTYPE_INVALID, &a))) return;
    CHECK(a.dtype == DTYPE_I16 && a.rank == 2 && a.dims[0] == 2 && a.dims[1] == 3 && a.bytes == 12);
    CHECK(memcmp(a.data, elements, 12) == 0);
    CHECK_OK(npy_write(path_of("a.npy"), &a));
    size_t size;
    const unsigned char *written = get_file("a.npy", &size);
    CHECK(size == sizeof file && memcmp(written, file, size) == 0);
}

static void npy_shapes_and_orders(void) {
    unsigned char file[600];
    static const int32_t columns[6] = {1, 4, 2, 5, 3, 6}; /* [[1, 2, 3], [4, 5, 6]] column by column */
    static const int32_t rows[6] = {1, 2, 3, 4, 5, 6};
    host_array a;
    size_t n = numpy_file(file, "'<i4'", "True", "(2, 3)", columns, 24);
    if (CHECK_OK(parse(file, n, DTYPE_INVALID, &a))) CHECK(memcmp(a.data, rows, 24) == 0);
    n = numpy_file(file, "'<i4'", "False", "()", columns, 4);
    if (CHECK_OK(parse(file, n, DTYPE_INVALID, &a))) CHECK(a.rank == 0 && a.bytes == 4);
    n = numpy_file(file, "'<i4'", "False", "(6,)", columns, 24);
    if (CHECK_OK(parse(file, n, DTYPE_INVALID, &a))) CHECK(a.rank == 1 && a.dims[0] == 6);
    n = numpy_file(file, "'<i4'", "True", "(3, 0)", columns, 0);
    if (CHECK_OK(parse(file, n, DTYPE_INVALID, &a))) CHECK(a.rank == 2 && a.bytes == 0);
    n = numpy_file(file, "'|V2'", "False", "(2,)", columns, 4);
    if (CHECK_OK(parse(file, n, DTYPE_BF16, &a))) CHECK_INT(a.dtype, DTYPE_BF16);
    CHECK_FAILS(parse(file, n, DTYPE_F32, &a), STATUS_TYPE, "no name for");
}

static void npy_refuses(void) {
    static const struct {
        const char *descr, *order, *shape, *says;
        status_code code;
    } cases[] = {
        {"'>f4'", "False", "(1,)", "big-endian", STATUS_TYPE},
        {"'<U3'", "False", "(1,)", "'<U3' are not supported", STATUS_TYPE},
        {"''", "False", "(1,)", "damaged", STATUS_VALUE},
        {"[('a', '<f4')]", "False", "(1,)", "structured", STATUS_TYPE},
        {"'<f4'", "Maybe", "(1,)", "damaged", STATUS_VALUE},
        {"'<f4'", "False", "(2,)", "holds 4 bytes of elements, its shape wants 8", STATUS_VALUE},
        {"'<f4'", "False", "(-1,)", "damaged", STATUS_VALUE},
        {"'<f4'", "False", "(1", "damaged", STATUS_VALUE},
        {"'<f4'", "False", "(9223372036854775807, 4)", "too large", STATUS_VALUE},
        {"'<f4'", "False", "(99999999999999999999,)", "damaged", STATUS_VALUE},
        {"'<f4'", "False", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)", "damaged",
         STATUS_VALUE},
    };
    unsigned char file[600];
    host_array a;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = numpy_file(file, cases[i].descr, cases[i].order, cases[i].shape, "abcd", 4);
        CHECK_FAILS(parse(file, n, DTYPE_INVALID, &a), cases[i].code, cases[i].says);
    }
    CHECK_FAILS(parse((const unsigned char *)"\x93NUMPX", 6, DTYPE_INVALID, &a), STATUS_VALUE, "not a .npy file");
    memcpy(file, "\x93NUMPY\x04\x00\x00\x00\x00\x00", 12);
    CHECK_FAILS(parse(file, 12, DTYPE_INVALID, &a), STATUS_VALUE, "version 4");
    memcpy(file, "\x93NUMPY\x02\x00\xff\xff\xff\xff", 12);
    CHECK_FAILS(parse(file, 12, DTYPE_INVALID, &a), STATUS_VALUE, "ends within its header");
}

/* {"b": I32 [2], "a": F32 [1, 2]}, as the safetensors package writes it (aligned, by width and name). */
static const char header[] =
    "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
    "\"b\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[8,16]}}";

static size_t container(unsigned char *out, const char *text, size_t bytes) {
    size_t n = strlen(text);
    memset(out, 0, 8 + n + bytes);
    out[0] = (unsigned char)n;
    out[1] = (unsigned char)(n >> 8);
    memcpy(out + 8, text, n);
    for (size_t i = 0; i < bytes; i++) out[8 + n + i] = (unsigned char)i;
    return 8 + n + bytes;
}

static void safetensors_round_trip(void) {
    unsigned char file[600];
    safetensors *s;
    put_file("a.safetensors", file, container(file, header, 16));
    if (!CHECK_OK(safetensors_open(path_of("a.safetensors"), &s))) return;
    CHECK_INT(safetensors_count(s), 2);
    CHECK_TEXT(safetensors_name(s, 0), "a");
    const host_array *a = safetensors_find(s, "a"), *b = safetensors_find(s, "b");
    CHECK(a && a->dtype == DTYPE_F32 && a->rank == 2 && a->dims[1] == 2 && *(const unsigned char *)a->data == 0);
    CHECK(b && b->dtype == DTYPE_I32 && b->rank == 1 && b->bytes == 8 && *(const unsigned char *)b->data == 8);
    CHECK(!safetensors_find(s, "c") && !safetensors_find(s, "__metadata__"));
    const char *names[] = {"x\"\\\n", "b"};
    host_array arrays[] = {*a, *b};
    CHECK_OK(safetensors_write(path_of("b.safetensors"), 2, names, arrays));
    safetensors *again;
    if (CHECK_OK(safetensors_open(path_of("b.safetensors"), &again))) {
        const host_array *x = safetensors_find(again, "x\"\\\n");
        CHECK(x && x->dtype == DTYPE_F32 && x->bytes == 8 && memcmp(x->data, a->data, 8) == 0);
    }
    safetensors_close(again);
    safetensors_close(s);
}

static void safetensors_refuses(void) {
    static const struct {
        const char *header, *says;
    } cases[] = {
        {"[]", "no JSON object"},
        {"{", "its header: line 1"},
        {"{\"a\":1}", "dtype (missing)"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,8]}}", "dtype F4 is not supported"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", "no shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "data_offsets lie outside"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,17]}}", "data_offsets lie outside"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", "data_offsets lie outside"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", "data_offsets lie outside"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", "do not fit its shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", "do not fit its shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}",
         "do not fit its shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,8]}}", "shape is damaged"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "there twice"},
    };
    unsigned char file[600];
    safetensors *s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_file("a.safetensors", file, container(file, cases[i].header, 16));
        CHECK_FAILS(safetensors_open(path_of("a.safetensors"), &s),
                    strstr(cases[i].says, "dtype") ? STATUS_TYPE : STATUS_VALUE, cases[i].says);
    }
    put_file("a.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    CHECK_FAILS(safetensors_open(path_of("a.safetensors"), &s), STATUS_VALUE, "ends within its header");
    put_file("a.safetensors", "abc", 3);
    CHECK_FAILS(safetensors_open(path_of("a.safetensors"), &s), STATUS_VALUE, "not a safetensors file");
    CHECK_FAILS(safetensors_open(path_of("none"), &s), STATUS_NOT_FOUND, "No such file");
    CHECK_FAILS(safetensors_open(directory, &s), STATUS_VALUE, "not a file");
}

/* Prefixes and changed bytes: read or refused, and all elements of what is read lie in the file. */
static unsigned long checksum;

static void read_all(const host_array *a) {
    for (size_t i = 0; i < a->bytes; i++) checksum += ((const unsigned char *)a->data)[i];
}

static void damage_npy(void) {
    unsigned char file[600];
    size_t n = numpy_file(file, "'<i4'", "True", "(2, 3)", "abcdefghijklmnopqrstuvwx", 24);
    host_array a;
    for (size_t i = 0; i < n; i++) {
        for (int c = -1; c < 256; c++) { /* -1: a prefix */
            size_t size = c < 0 ? i : n;
            unsigned char *copy = malloc(size + !size);
            memcpy(copy, file, size);
            if (c >= 0) copy[i] = (unsigned char)c;
            status *s = parse(copy, size, DTYPE_F32, &a);
            if (!s) read_all(&a);
            CHECK(c >= 0 || s != NULL);
            status_free(s);
            free(copy);
        }
        arena_reset(mem);
    }
}

static void damage_safetensors(void) {
    unsigned char file[600];
    size_t n = container(file, header, 16);
    for (size_t i = 0; i < n - 16; i++) {
        for (int c = -1; c < 256; c += c < 0 ? 1 : 61) {
            unsigned char copy[600];
            memcpy(copy, file, n);
            if (c >= 0) copy[i] = (unsigned char)c;
            put_file("a.safetensors", copy, c < 0 ? i : n);
            safetensors *s;
            status *error = safetensors_open(path_of("a.safetensors"), &s);
            CHECK(c >= 0 || error != NULL);
            for (int k = 0; !error && k < safetensors_count(s); k++)
                read_all(safetensors_find(s, safetensors_name(s, k)));
            status_free(error);
            safetensors_close(s);
        }
    }
}

static void no_memory(void) {
    unsigned char file[600];
    put_file("a.safetensors", file, container(file, header, 16));
    long live = mem_live_count();
    for (long at = 1; at < 8; at++) {
        safetensors *s;
        mem_fail_after(at);
        status *error = safetensors_open(path_of("a.safetensors"), &s);
        mem_fail_after(0);
        CHECK(!error || status_get_code(error) == STATUS_OUT_OF_MEMORY);
        status_free(error);
        safetensors_close(s);
    }
    CHECK_INT(mem_live_count(), live);
}

int main(void) {
    static const char *const files[] = {"a.npy", "a.safetensors", "b.safetensors"};
    mem = arena_create();
    make_directory();
    npy_reads_numpy();
    npy_shapes_and_orders();
    npy_refuses();
    safetensors_round_trip();
    safetensors_refuses();
    damage_npy();
    damage_safetensors();
    no_memory();
    remove_files(3, files);
    arena_destroy(mem);
    return check_report();
}
