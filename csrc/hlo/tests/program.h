/* Programs for tests: build with the builder, run on the plugin that TORCH_TPU_TEST_PLUGIN names, compare numbers. */
#ifndef HLO_TESTS_PROGRAM_H
#define HLO_TESTS_PROGRAM_H

#include <math.h>
#include <stdlib.h>

#include "base/tests/check.h"
#include "hlo/hlo.h"
#include "pjrt/pjrt.h"

enum { PROGRAM_ELEMENTS = 4096, PROGRAM_INPUTS = 16, PROGRAM_RESULTS = 160 };

/* long double holds every 64-bit integer. */
typedef struct number {
    long double re, im;
} number;

typedef struct array {
    dtype dtype;
    int rank;
    int64_t dims[HLO_MAX_RANK];
    int64_t n;
    number v[PROGRAM_ELEMENTS];
} array;

/* ---- element types as bytes, written down from their formats' definitions ---- */

typedef struct float_format {
    int exponent_bits, mantissa_bits, bias;
    bool finite, unsigned_zero; /* no infinities; -0 is the only NaN */
} float_format;

static const float_format float_formats[DTYPE_COUNT] = {
    [DTYPE_F8E4M3FN] = {4, 3, 7, true, false},  [DTYPE_F8E5M2] = {5, 2, 15, false, false},
    [DTYPE_F8E4M3FNUZ] = {4, 3, 8, true, true}, [DTYPE_F8E5M2FNUZ] = {5, 2, 16, true, true},
    [DTYPE_F16] = {5, 10, 15, false, false},    [DTYPE_BF16] = {8, 7, 127, false, false},
};

static inline double decode_float(dtype t, uint32_t bits) {
    const float_format *f = &float_formats[t];
    int exponent = (int)(bits >> f->mantissa_bits & ((1u << f->exponent_bits) - 1));
    uint32_t mantissa = bits & ((1u << f->mantissa_bits) - 1);
    double sign = bits >> (f->exponent_bits + f->mantissa_bits) ? -1 : 1;
    int top = (1 << f->exponent_bits) - 1;
    if (f->unsigned_zero && sign < 0 && exponent == 0 && mantissa == 0) return NAN;
    if (!f->finite && exponent == top) return mantissa ? NAN : sign * INFINITY;
    if (f->finite && !f->unsigned_zero && exponent == top && mantissa == (1u << f->mantissa_bits) - 1) return NAN;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - f->bias - f->mantissa_bits);
    return sign * ldexp(mantissa + (1u << f->mantissa_bits), exponent - f->bias - f->mantissa_bits);
}

/* The pattern of a number that the type has. */
static inline uint32_t encode_float(dtype t, double v) {
    for (uint32_t bits = 0; bits >> dtype_bits(t) == 0; bits++) {
        double d = decode_float(t, bits);
        if ((d == v && !signbit(d) == !signbit(v)) || (isnan(d) && isnan(v))) return bits;
    }
    CHECK(!"the type has this number");
    return 0;
}

/* clang-format off */
#define PROGRAM_C_TYPES(X) \
    X(BOOL, uint8_t) X(U8, uint8_t) X(I8, int8_t) X(U16, uint16_t) X(I16, int16_t) X(U32, uint32_t) \
    X(I32, int32_t) X(U64, uint64_t) X(I64, int64_t) X(F32, float) X(F64, double)
/* clang-format on */

static inline void store_real(dtype t, long double v, unsigned char *p) {
    switch (t) {
#define X(name, type)                    \
    case DTYPE_##name: {                 \
        type typed = (type)v;            \
        memcpy(p, &typed, sizeof typed); \
        return;                          \
    }
        PROGRAM_C_TYPES(X)
#undef X
        default: {
            uint32_t bits = encode_float(t, (double)v);
            memcpy(p, &bits, dtype_bytes(t));
        }
    }
}

static inline long double load_real(dtype t, const unsigned char *p) {
    switch (t) {
#define X(name, type)                    \
    case DTYPE_##name: {                 \
        type typed;                      \
        memcpy(&typed, p, sizeof typed); \
        return typed;                    \
    }
        PROGRAM_C_TYPES(X)
#undef X
        default: {
            uint32_t bits = 0;
            memcpy(&bits, p, dtype_bytes(t));
            return decode_float(t, bits);
        }
    }
}

static inline void store_array(const array *a, unsigned char *p) {
    dtype part = dtype_real(a->dtype);
    for (int64_t i = 0; i < a->n; i++, p += dtype_bytes(a->dtype)) {
        store_real(part, a->v[i].re, p);
        if (dtype_is_complex(a->dtype)) store_real(part, a->v[i].im, p + dtype_bytes(part));
    }
}

static inline void load_array(array *a, const unsigned char *p) {
    dtype part = dtype_real(a->dtype);
    for (int64_t i = 0; i < a->n; i++, p += dtype_bytes(a->dtype)) {
        a->v[i] = (number){.re = load_real(part, p)};
        if (dtype_is_complex(a->dtype)) a->v[i].im = load_real(part, p + dtype_bytes(part));
    }
}

/* ---- the plugin ---- */

static pjrt_client *program_client;

/* CHECK_SKIPPED where no plugin is named; else 0, or 1 when it does not load. */
static inline int program_start(void) {
    const char *path = getenv("TORCH_TPU_TEST_PLUGIN");
    if (!path || !*path) {
        printf("skipped: TORCH_TPU_TEST_PLUGIN names no plugin\n");
        return CHECK_SKIPPED;
    }
    pjrt_plugin *plugin;
    return !CHECK_OK(pjrt_plugin_load(path, &plugin)) ||
           !CHECK_OK(pjrt_client_create(plugin, 0, NULL, &program_client));
}

/* ---- one program ---- */

typedef struct program {
    hlo_builder *b;
    const char *name;
    int n_inputs, n_results;
    const array *inputs[PROGRAM_INPUTS];
    hlo_value results[PROGRAM_RESULTS];
    array *outputs; /* after program_run */
} program;

static inline void program_begin(program *p, const char *name) { *p = (program){.b = hlo_create(), .name = name}; }

/* The array must outlive the run. */
static inline hlo_value program_input(program *p, const array *a) {
    p->inputs[p->n_inputs++] = a;
    return hlo_parameter(p->b, a->dtype, a->rank, a->dims);
}

static inline void program_result(program *p, hlo_value v) { p->results[p->n_results++] = v; }

static inline void program_read(program *p, pjrt_buffer **buffers) {
    static unsigned char bytes[PROGRAM_ELEMENTS * 16];
    for (int i = 0; i < p->n_results; i++) {
        array *a = &p->outputs[i];
        hlo_value v = p->results[i];
        a->dtype = v->dtype;
        a->rank = v->rank;
        memcpy(a->dims, v->dims, sizeof(int64_t) * (size_t)v->rank);
        a->n = hlo_element_count(v);
        CHECK_INT(pjrt_buffer_bytes(buffers[i]), a->n * (int64_t)dtype_bytes(a->dtype));
        CHECK_INT(pjrt_buffer_dtype(buffers[i]), a->dtype);
        if (a->n <= PROGRAM_ELEMENTS &&
            CHECK_OK(pjrt_buffer_to_host(buffers[i], bytes, (size_t)a->n * dtype_bytes(a->dtype))))
            load_array(a, bytes);
        pjrt_buffer_release(buffers[i]);
    }
}

static inline bool program_execute(program *p, pjrt_executable *e) {
    static unsigned char bytes[PROGRAM_ELEMENTS * 16];
    pjrt_buffer *inputs[PROGRAM_INPUTS] = {NULL}, *outputs[PROGRAM_RESULTS];
    for (int i = 0; i < p->n_inputs; i++) {
        const array *a = p->inputs[i];
        store_array(a, bytes);
        CHECK_OK(pjrt_buffer_from_host(program_client, 0, bytes, a->dtype, a->rank, a->dims, &inputs[i]));
    }
    bool ok = CHECK_OK(pjrt_execute(e, 0, p->n_inputs, inputs, NULL, outputs));
    if (ok) program_read(p, outputs);
    for (int i = 0; i < p->n_inputs; i++) pjrt_buffer_release(inputs[i]);
    return ok;
}

/* Compiles and runs; outputs are filled. false after a failed check. */
static inline bool program_run(program *p) {
    static const char *const names[] = {"xla_cpu_enable_fast_min_max"}, *const values[] = {"false"};
    pjrt_compile_options options = {.n_flags = 1, .flag_names = names, .flag_values = values};
    strbuf text;
    strbuf_init(&text);
    pjrt_executable *e = NULL;
    p->outputs = calloc((size_t)p->n_results + 1, sizeof *p->outputs);
    bool ok = CHECK_OK(hlo_finish(p->b, p->name, p->n_results, p->results, &text)) &&
              CHECK_OK(pjrt_compile(program_client, text.data, text.size, &options, &e)) && program_execute(p, e);
    if (!ok) printf("%s\n%s\n", p->name, strbuf_text(&text));
    pjrt_executable_release(e);
    strbuf_free(&text);
    return ok;
}

static inline void program_end(program *p) {
    hlo_destroy(p->b);
    free(p->outputs);
}

/* ---- comparing ---- */

static inline bool close_to(long double actual, long double expected, double tolerance) {
    if (isnan(expected)) return isnan(actual);
    if (actual == expected) return true;
    return fabsl(actual - expected) <= tolerance * (fabsl(expected) > 1 ? fabsl(expected) : 1);
}

/* Relative tolerance above 1, absolute below. */
static inline void check_numbers(const char *what, const array *a, int64_t n, const number *expected,
                                 double tolerance) {
    if (a->n != n) {
        check_failures++;
        printf("%s: %lld elements, expected %lld\n", what, (long long)a->n, (long long)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (close_to(a->v[i].re, expected[i].re, tolerance) && close_to(a->v[i].im, expected[i].im, tolerance))
            continue;
        check_failures++;
        printf("%s (%s): element %lld is (%.17Lg, %.17Lg), expected (%.17Lg, %.17Lg)\n", what,
               dtype_torch_name(a->dtype), (long long)i, a->v[i].re, a->v[i].im, expected[i].re, expected[i].im);
    }
}

/* Real numbers, exactly. */
static inline void check_reals(const char *what, const array *a, int64_t n, const double *expected) {
    static number numbers[PROGRAM_ELEMENTS];
    for (int64_t i = 0; i < n; i++) numbers[i] = (number){.re = expected[i]};
    check_numbers(what, a, n, numbers, 0);
}

static inline void check_dims(const char *what, const array *a, int rank, const int64_t *dims) {
    bool same = a->rank == rank && (rank == 0 || memcmp(a->dims, dims, sizeof(int64_t) * (size_t)rank) == 0);
    if (same) return;
    check_failures++;
    printf("%s: wrong dimensions\n", what);
}

static inline void array_init(array *a, dtype t, int rank, const int64_t *dims) {
    *a = (array){.dtype = t, .rank = rank, .n = 1};
    for (int d = 0; d < rank; d++) a->n *= a->dims[d] = dims[d];
}

/* Elements first, first + step, ... */
static inline void array_ramp(array *a, dtype t, int rank, const int64_t *dims, double first, double step) {
    array_init(a, t, rank, dims);
    for (int64_t i = 0; i < a->n; i++) a->v[i].re = first + step * (double)i;
}

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

#endif
