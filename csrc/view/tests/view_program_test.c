/* Reading and writing through views, compiled and run, against offset and strides applied element by element. */
#include "base/alloc.h"
#include "hlo/tests/program.h"
#include "random_views.h"

enum { VIEWS = 8, PROGRAMS = 8, MAX_COUNT = 1500 };

static array base, other, offsets;

static number conjugated(number v, const geometry *g) {
    if (g->conj) v.im = -v.im;
    if (g->neg) v = (number){-v.re, -v.im};
    return v;
}

/* What reading g, at another offset, must give; and what the base becomes when `other`'s elements are written there. */
static void check_view(const char *text, const geometry *g, int64_t offset, const array *read, const array *written) {
    static number expected[PROGRAM_ELEMENTS], replaced[PROGRAM_ELEMENTS];
    geometry at = *g;
    at.offset = offset;
    memcpy(replaced, base.v, sizeof(number) * (size_t)base.n);
    for (int64_t i = 0; i < geometry_count(g); i++) {
        int64_t e = element_of(&at, i);
        expected[i] = conjugated(base.v[e], g);
        replaced[e] = other.v[e];
    }
    check_dims(text, read, g->rank, g->sizes);
    check_dims(text, written, base.rank, base.dims);
    check_numbers(text, read, geometry_count(g), expected, 0);
    check_numbers(text, written, base.n, replaced, 0);
}

/* A random geometry of the base whose elements fit the test's arrays. */
static geometry random_view(const geometry *whole, int64_t n) {
    geometry g = *whole;
    for (int64_t changes = 1 + random_below(7); changes > 0; changes--) {
        geometry next = g;
        change_random(&next, n);
        if (geometry_count(&next) <= MAX_COUNT) g = next;
    }
    g.conj = dtype_is_complex(g.dtype) && random_below(2);
    g.neg = random_below(3) == 0;
    return g;
}

static bool same_structure(const geometry *g, int64_t offset) {
    geometry moved = *g;
    moved.offset = offset;
    strbuf mine, its;
    strbuf_init(&mine);
    strbuf_init(&its);
    bool same = view_offset_structure(g->dtype, base.rank, base.dims, g, &mine) &&
                view_offset_structure(g->dtype, base.rank, base.dims, &moved, &its) && mine.size == its.size &&
                (mine.size == 0 || memcmp(mine.data, its.data, mine.size) == 0);
    strbuf_free(&mine);
    strbuf_free(&its);
    return same;
}

static void add_view(program *p, hlo_value base_value, hlo_value other_value, const geometry *g, hlo_value offset) {
    program_result(p, view_read(p->b, base_value, g, offset));
    program_result(p, view_write(p->b, base_value, g, view_read(p->b, other_value, g, offset), offset));
}

/* Some views of one base in one program, each at its own offset and at a run-time offset of the same structure. */
static int test_random_views(dtype t) {
    geometry whole, views[VIEWS];
    int rank, shared = 0;
    int64_t dims[VIEW_MAX_RANK], n;
    do n = random_base(&rank, dims, &whole);
    while (n > MAX_COUNT);
    whole.dtype = t;
    array_init(&base, t, rank, dims);
    array_init(&other, t, rank, dims);
    array_init(&offsets, DTYPE_I64, 1, DIMS(VIEWS));
    for (int64_t i = 0; i < n; i++) {
        base.v[i] = (number){(long double)i, dtype_is_complex(t) ? (long double)(i + n) : 0};
        other.v[i] = (number){(long double)(-1 - i), dtype_is_complex(t) ? (long double)i : 0};
    }
    program p;
    program_begin(&p, "random_views");
    hlo_value base_value = program_input(&p, &base), other_value = program_input(&p, &other),
              offset_values = program_input(&p, &offsets);
    for (int k = 0; k < VIEWS; k++) {
        const geometry *g = &views[k];
        views[k] = random_view(&whole, n);
        offsets.v[k].re = g->offset;
        for (int attempt = 0; attempt < 20; attempt++) {
            int64_t moved = random_below(n);
            if (!same_structure(g, moved)) continue;
            offsets.v[k].re = moved;
            break;
        }
        shared += offsets.v[k].re != g->offset;
        hlo_value offset = hlo_reshape(p.b, hlo_slice_dim(p.b, offset_values, 0, k, k + 1, 1), 0, NULL);
        add_view(&p, base_value, other_value, g, NULL);
        add_view(&p, base_value, other_value, g, offset);
    }
    bool ran = program_run(&p);
    for (int k = 0; ran && k < VIEWS; k++) {
        const char *text = geometry_text(rank, dims, &views[k]);
        check_view(text, &views[k], views[k].offset, &p.outputs[4 * k], &p.outputs[4 * k + 1]);
        check_view(text, &views[k], (int64_t)offsets.v[k].re, &p.outputs[4 * k + 2], &p.outputs[4 * k + 3]);
    }
    program_end(&p);
    return shared;
}

/* ---- another dtype ---- */

static const dtype byte_types[] = {DTYPE_BOOL, DTYPE_U8,  DTYPE_I8,  DTYPE_I16, DTYPE_F16,
                                   DTYPE_F32,  DTYPE_I64, DTYPE_F64, DTYPE_C64, DTYPE_C128};
enum { BYTE_TYPES = sizeof byte_types / sizeof *byte_types, BYTES = 96 };

static void array_of_bytes(array *a, dtype t, int rank, const int64_t *dims, const unsigned char *bytes) {
    array_init(a, t, rank, dims);
    load_array(a, bytes);
}

static void check_bytes(const char *what, dtype from, dtype to, const array *a, size_t size,
                        const unsigned char *expected) {
    static unsigned char bytes[4096];
    store_array(a, bytes);
    if ((size_t)a->n * dtype_bytes(a->dtype) == size && memcmp(bytes, expected, size) == 0) return;
    check_failures++;
    printf("%s %s as %s: wrong bytes\n", what, dtype_torch_name(from), dtype_torch_name(to));
}

/* Every second element of type `to`, from the second on, of a base of `from`. */
static void add_retyped(program *p, hlo_value base_value, hlo_value other_value, dtype to, int64_t base_bytes) {
    int64_t elements = base_bytes / (int64_t)dtype_bytes(to);
    geometry g = {.dtype = to, .rank = 1, .offset = 1, .sizes = {elements / 2}, .strides = {2}};
    add_view(p, base_value, other_value, &g, NULL);
    dtype t;
    int rank;
    int64_t dims[HLO_MAX_RANK];
    view_write_type(base_value->dtype, base_value->rank, base_value->dims, &g, &t, &rank, dims);
    hlo_value written = p->results[p->n_results - 1];
    if (CHECK(written != NULL)) {
        CHECK_INT(written->dtype, t);
        CHECK_INT(written->rank, rank);
        for (int d = 0; d < rank; d++) CHECK_INT(written->dims[d], dims[d]);
    }
}

static void check_retyped(dtype from, dtype to, const array *read, const array *written, int64_t base_bytes,
                          const unsigned char *bytes, const unsigned char *replacement) {
    unsigned char expected[BYTES], replaced[BYTES];
    size_t size = dtype_bytes(to), n = (size_t)base_bytes / size / 2;
    memcpy(replaced, bytes, sizeof replaced);
    for (size_t i = 0; i < n; i++) {
        memcpy(expected + i * size, bytes + (2 * i + 1) * size, size);
        memcpy(replaced + (2 * i + 1) * size, replacement + (2 * i + 1) * size, size);
    }
    check_bytes("reading", from, to, read, n * size, expected);
    check_bytes("writing", from, to, written, (size_t)base_bytes, replaced);
}

/* A base that holds `base_bytes` bytes, last dimension `last`, as all types that its values allow. */
static void test_retypes(dtype from, int64_t base_bytes, int64_t last, bool bools) {
    unsigned char bytes[BYTES], replacement[BYTES];
    for (int i = 0; i < BYTES; i++) {
        bytes[i] = (unsigned char)(bools ? i % 3 == 0 : random_below(100)); /* no NaN in any type */
        replacement[i] = (unsigned char)(bools ? i % 2 : random_below(100));
    }
    int64_t n = base_bytes / (int64_t)dtype_bytes(from);
    array_of_bytes(&base, from, 2, DIMS(n / last, last), bytes);
    array_of_bytes(&other, from, 2, DIMS(n / last, last), replacement);
    program p;
    program_begin(&p, "retypes");
    hlo_value base_value = program_input(&p, &base), other_value = program_input(&p, &other);
    for (int i = 0; i < BYTE_TYPES; i++)
        if (bools || byte_types[i] != DTYPE_BOOL) add_retyped(&p, base_value, other_value, byte_types[i], base_bytes);
    bool ran = program_run(&p);
    for (int i = 0, k = 0; ran && i < BYTE_TYPES; i++) {
        if (!bools && byte_types[i] == DTYPE_BOOL) continue;
        check_retyped(from, byte_types[i], &p.outputs[k], &p.outputs[k + 1], base_bytes, bytes, replacement);
        k += 2;
    }
    program_end(&p);
}

/* ---- particular cases ---- */

static void test_particular(void) {
    array_ramp(&base, DTYPE_F32, 1, DIMS(6), 0, 1);
    geometry empty = {.dtype = DTYPE_I64, .rank = 2, .sizes = {0, 3}, .strides = {3, 1}};
    geometry expanded = {.dtype = DTYPE_F32, .rank = 2, .offset = 1, .sizes = {3, 2}, .strides = {0, 1}};
    geometry row = {.dtype = DTYPE_F32, .rank = 1, .offset = 2, .sizes = {3}, .strides = {1}};
    geometry overlapping = {.dtype = DTYPE_F32, .rank = 2, .sizes = {3, 2}, .strides = {1, 1}};
    geometry negative = row;
    negative.neg = true;
    program p;
    program_begin(&p, "particular");
    hlo_builder *b = p.b;
    hlo_value x = program_input(&p, &base);
    program_result(&p, view_read(b, x, &empty, NULL));
    empty.dtype = DTYPE_F32;
    program_result(&p, view_write(b, x, &empty, hlo_scalar(b, DTYPE_F32, 9), NULL));
    program_result(&p, view_write(b, x, &expanded, hlo_constant_floats(b, DTYPE_F32, 2, (double[]){8, 9}), NULL));
    program_result(
        &p, view_write(b, x, &row, hlo_constant_int(b, DTYPE_I32, 0, NULL, 7), NULL)); /* converted and broadcast */
    program_result(&p, view_write(b, x, &negative, hlo_scalar(b, DTYPE_F32, 7), NULL));
    program_result(&p, view_read(b, x, &overlapping, NULL));
    program_result(&p, view_retype(b, x, DTYPE_U8));
    program_result(&p, view_retype(b, hlo_slice_dim(b, x, 0, 0, 1, 1), DTYPE_I64)); /* too few bytes for one */
    if (program_run(&p)) {
        check_dims("empty", &p.outputs[0], 2, DIMS(0, 3));
        CHECK_INT(p.outputs[0].dtype, DTYPE_I64);
        check_reals("nothing written", &p.outputs[1], 6, (double[]){0, 1, 2, 3, 4, 5});
        check_reals("through an expansion", &p.outputs[2], 6, (double[]){0, 8, 9, 3, 4, 5});
        check_reals("converted", &p.outputs[3], 6, (double[]){0, 1, 7, 7, 7, 5});
        check_reals("negative bit", &p.outputs[4], 6, (double[]){0, 1, -7, -7, -7, 5});
        check_reals("overlapping", &p.outputs[5], 6, (double[]){0, 1, 1, 2, 2, 3});
        CHECK_INT(p.outputs[6].n, 24);
        CHECK_INT(p.outputs[6].v[7].re, 0x3f); /* 1.0 is 00 00 80 3f */
        check_dims("too few bytes", &p.outputs[7], 1, DIMS(0));
    }
    program_end(&p);
}

/* A full cover writes without reading the base: the value's shape is all that changes. */
static void test_full_cover(void) {
    hlo_builder *b = hlo_create();
    hlo_value x = hlo_parameter(b, DTYPE_F32, 2, DIMS(3, 4)), v = hlo_parameter(b, DTYPE_F32, 2, DIMS(3, 4));
    geometry g;
    geometry_contiguous(&g, DTYPE_F32, 2, DIMS(3, 4));
    CHECK(view_read(b, x, &g, NULL) == x && view_write(b, x, &g, v, NULL) == v);
    hlo_destroy(b);
}

static void check_refused(geometry g, bool write, status_code code, const char *text) {
    hlo_builder *b = hlo_create();
    hlo_value x = hlo_parameter(b, DTYPE_F32, 1, DIMS(6)), v = hlo_parameter(b, DTYPE_F32, 1, DIMS(5));
    CHECK((write ? view_write(b, x, &g, v, NULL) : view_read(b, x, &g, NULL)) == NULL);
    const status *e = hlo_status(b);
    CHECK(e && status_get_code(e) == code && strstr(status_message(e), text));
    if (e && !strstr(status_message(e), text)) printf("\"%s\", expected \"%s\"\n", status_message(e), text);
    hlo_destroy(b);
}

static void test_refusals(void) {
    geometry g = {.dtype = DTYPE_F32, .rank = 1, .sizes = {7}, .strides = {1}};
    for (int write = 0; write < 2; write++) {
        check_refused(g, write, STATUS_INDEX, "reaches element 7 of a storage that holds 6 elements of float32");
        g.offset = -1;
        check_refused(g, write, STATUS_INDEX, "negative storage offset -1");
        g.offset = 0;
        g.strides[0] = -1;
        check_refused(g, write, STATUS_INDEX, "negative size or stride in dimension 0");
        g.strides[0] = INT64_MAX;
        check_refused(g, write, STATUS_INDEX, "reaches element");
        g.strides[0] = 1;
    }
    g.sizes[0] = 4;
    check_refused(g, true, STATUS_RUNTIME, "dimension 0 of operand 0, f32[5], cannot become 4");
    hlo_builder *b = hlo_create();
    hlo_value x = hlo_parameter(b, DTYPE_F32, 1, DIMS(6));
    CHECK(!view_read(b, NULL, &g, NULL) && !view_write(b, x, &g, NULL, NULL) && !view_write(b, NULL, &g, x, NULL) &&
          !view_retype(b, NULL, DTYPE_U8));
    CHECK(hlo_status(b) == NULL);
    hlo_destroy(b);
}

static void test_no_memory(void) {
    geometry g = {.dtype = DTYPE_I16, .rank = 2, .offset = 1, .sizes = {3, 4}, .strides = {8, 2}};
    int succeeded = 0;
    for (long k = 1; succeeded < 3 && k < 200; k++) {
        long live = mem_live_count();
        strbuf text;
        strbuf_init(&text);
        mem_fail_after(k);
        hlo_builder *b = hlo_create();
        hlo_value x = b ? hlo_parameter(b, DTYPE_F32, 1, DIMS(25)) : NULL, results[2] = {NULL, NULL};
        if (b) results[0] = view_read(b, x, &g, NULL);
        if (b) results[1] = view_write(b, x, &g, results[0], NULL);
        status *e = b ? hlo_finish(b, "no_memory", 2, results, &text) : status_no_memory();
        mem_fail_after(0);
        if (e)
            CHECK_INT(status_get_code(e), STATUS_OUT_OF_MEMORY);
        else
            succeeded++;
        status_free(e);
        hlo_destroy(b);
        strbuf_free(&text);
        CHECK_INT(mem_live_count(), live);
    }
    CHECK_INT(succeeded, 3);
}

int main(void) {
    test_full_cover();
    test_refusals();
    test_no_memory();
    int rc = program_start();
    if (rc) return check_failures ? 1 : rc;
    test_particular();
    int shared = 0;
    for (int i = 0; i < PROGRAMS; i++)
        shared += test_random_views(i % 3 == 2 ? DTYPE_C64 : i % 3 == 1 ? DTYPE_I16 : DTYPE_F32);
    CHECK(shared > VIEWS * PROGRAMS / 5);
    for (int i = 0; i < BYTE_TYPES; i++)
        if (byte_types[i] != DTYPE_BOOL) test_retypes(byte_types[i], BYTES, 6, false);
    static const dtype from_or_to_bool[] = {DTYPE_BOOL, DTYPE_I16, DTYPE_C64};
    for (int i = 0; i < 3; i++) test_retypes(from_or_to_bool[i], BYTES, 4, true);
    test_retypes(DTYPE_U8, 91, 7, false); /* bytes that fill no whole element stay as they are */
    test_retypes(DTYPE_I16, 90, 5, false);
    return check_report();
}
