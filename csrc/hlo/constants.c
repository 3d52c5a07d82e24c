/* Constants: bit patterns where a decimal would not be exact. */
#include <math.h>
#include <string.h>

#include "hlo/internal.h"

/* ---- floating-point encodings ---- */

/* Types narrower than f32: how a real number becomes bits. The 8-bit ones: "FP8 Formats for Deep Learning" (arXiv
 * 2209.05433); FNUZ (finite, one NaN, unsigned zero): arXiv 2206.02915, as StableHLO has them. */
typedef struct {
    int exponent_bits, mantissa_bits, bias;
    uint32_t largest;  /* finite magnitude */
    uint32_t infinity; /* what an overflow becomes */
    uint32_t nan;
    bool unsigned_zero; /* -0 is NaN's pattern */
} small_float;

static const small_float small_floats[DTYPE_COUNT] = {
    [DTYPE_F8E4M3FN] = {4, 3, 7, 0x7E, 0x7F, 0x7F, false},    [DTYPE_F8E5M2] = {5, 2, 15, 0x7B, 0x7C, 0x7F, false},
    [DTYPE_F8E4M3FNUZ] = {4, 3, 8, 0x7F, 0x80, 0x80, true},   [DTYPE_F8E5M2FNUZ] = {5, 2, 16, 0x7F, 0x80, 0x80, true},
    [DTYPE_F16] = {5, 10, 15, 0x7BFF, 0x7C00, 0x7E00, false}, [DTYPE_BF16] = {8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0, false},
};

/* Rounds to nearest, ties to even. PyTorch makes these types from float: so does this. */
static uint32_t encode_small(const small_float *f, double value) {
    float v = (float)value;
    uint32_t sign = signbit(v) ? 1u << (f->exponent_bits + f->mantissa_bits) : 0;
    if (isnan(v)) return f->nan;
    if (v == 0) return f->unsigned_zero ? 0 : sign;
    uint32_t magnitude = f->infinity;
    if (isfinite(v)) {
        int exponent, smallest = 1 - f->bias;
        frexp(fabs((double)v), &exponent);
        exponent = exponent - 1 < smallest ? smallest : exponent - 1;
        /* In units of the last place; a carry moves into the exponent by itself, and so does a subnormal's. */
        double units = nearbyint(ldexp(fabs((double)v), f->mantissa_bits - exponent));
        double bits = units + ldexp(exponent - smallest, f->mantissa_bits);
        magnitude = bits > f->largest ? f->infinity : (uint32_t)bits;
    }
    if (f->unsigned_zero && (magnitude == 0 || magnitude == f->nan)) return magnitude;
    return magnitude | sign;
}

/* Hexadecimal digits stand for the bits, so that nothing depends on how decimals are read. */
static void print_real(strbuf *out, dtype t, double v) {
    bool plain = v == rint(v) && fabs(v) < 256 && dtype_bits(t) >= 16;
    if (plain) {
        strbuf_printf(out, "%.1f", v);
    } else if (t == DTYPE_F64) {
        uint64_t bits;
        memcpy(&bits, &v, sizeof bits);
        strbuf_printf(out, "0x%016llX", (unsigned long long)bits);
    } else if (t == DTYPE_F32) {
        float f = (float)v;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        strbuf_printf(out, "0x%08X", bits);
    } else {
        strbuf_printf(out, "0x%0*X", dtype_bits(t) / 4, encode_small(&small_floats[t], v));
    }
}

/* ---- numbers of any type ---- */

/* A constant's element, already of its type's kind. */
typedef struct {
    int64_t i; /* bool and integers; the bits of an unsigned one */
    double re, im;
} element;

static void print_element(strbuf *out, dtype t, element e) {
    if (t == DTYPE_BOOL) {
        strbuf_puts(out, e.i ? "true" : "false");
    } else if (dtype_is_int(t)) {
        int unused = 64 - dtype_bits(t);
        uint64_t bits = (uint64_t)e.i << unused;
        if (dtype_is_signed(t))
            strbuf_printf(out, "%lld", (long long)((int64_t)bits >> unused));
        else
            strbuf_printf(out, "%llu", (unsigned long long)(bits >> unused));
    } else if (dtype_is_complex(t)) {
        strbuf_puts(out, "(");
        print_real(out, dtype_real(t), e.re);
        strbuf_puts(out, ", ");
        print_real(out, dtype_real(t), e.im);
        strbuf_puts(out, ")");
    } else {
        print_real(out, t, e.re);
    }
}

/* PyTorch makes a float from an integer directly, not by way of double. */
static element element_of_int(dtype t, int64_t v) {
    if (t == DTYPE_BOOL) return (element){.i = v != 0};
    return (element){.i = v, .re = dtype_real(t) == DTYPE_F64 ? (double)v : (double)(float)v};
}

/* Out of range: the nearest; NaN: 0, as StableHLO's convert does on every platform known. */
static int64_t truncate_real(double v) {
    if (isnan(v)) return 0;
    if (v >= 0x1p63) return v < 0x1p64 ? (int64_t)(uint64_t)v : v == INFINITY ? INT64_MAX : -1;
    return v <= -0x1p63 ? INT64_MIN : (int64_t)v;
}

static element element_of_real(dtype t, double re, double im) {
    if (t == DTYPE_BOOL) return (element){.i = re != 0 || im != 0};
    return (element){.i = dtype_is_int(t) ? truncate_real(re) : 0, .re = re, .im = im};
}

/* ---- emission ---- */

static hlo_value emit_constant(hlo_builder *b, dtype t, int rank, const int64_t *dims) {
    return hlo_emit_one(b, "stablehlo.constant", 0, NULL, t, rank, dims);
}

static hlo_value splat(hlo_builder *b, dtype t, int rank, const int64_t *dims, element e) {
    if (!hlo_ready(b, 0, NULL)) return NULL;
    hlo_type type = {t, rank, dims};
    /* A scratch value checks the type before it is printed. */
    if (!hlo_new_value(b, &type, 0, -1, b->region)) return NULL;
    bool empty = false;
    for (int d = 0; d < rank; d++) empty |= dims[d] == 0;
    strbuf_puts(&b->attributes, "value = dense<");
    if (!empty) print_element(&b->attributes, t, e);
    strbuf_puts(&b->attributes, "> : ");
    hlo_print_type(&b->attributes, &type);
    return emit_constant(b, t, rank, dims);
}

hlo_value hlo_constant_int(hlo_builder *b, dtype t, int rank, const int64_t *dims, int64_t v) {
    return splat(b, t, rank, dims, element_of_int(t, v));
}

hlo_value hlo_constant_float(hlo_builder *b, dtype t, int rank, const int64_t *dims, double v) {
    return splat(b, t, rank, dims, element_of_real(t, v, 0));
}

hlo_value hlo_constant_complex(hlo_builder *b, dtype t, int rank, const int64_t *dims, double re, double im) {
    return splat(b, t, rank, dims, element_of_real(t, re, im));
}

static hlo_value list(hlo_builder *b, dtype t, int64_t n, const int64_t *ints, const double *reals) {
    if (!hlo_ready(b, 0, NULL)) return NULL;
    hlo_type type = {t, 1, &n};
    if (!hlo_new_value(b, &type, 0, -1, b->region)) return NULL;
    strbuf_puts(&b->attributes, n ? "value = dense<[" : "value = dense<");
    for (int64_t i = 0; i < n; i++) {
        if (i) strbuf_puts(&b->attributes, ", ");
        print_element(&b->attributes, t, ints ? element_of_int(t, ints[i]) : element_of_real(t, reals[i], 0));
    }
    strbuf_puts(&b->attributes, n ? "]> : " : "> : ");
    hlo_print_type(&b->attributes, &type);
    return emit_constant(b, t, 1, &n);
}

hlo_value hlo_constant_ints(hlo_builder *b, dtype t, int64_t n, const int64_t *v) { return list(b, t, n, v, NULL); }
hlo_value hlo_constant_floats(hlo_builder *b, dtype t, int64_t n, const double *v) { return list(b, t, n, NULL, v); }

hlo_value hlo_scalar(hlo_builder *b, dtype t, double v) { return hlo_constant_float(b, t, 0, NULL, v); }

hlo_value hlo_like(hlo_builder *b, hlo_value shape_of, double v) {
    if (!hlo_ready(b, 1, &shape_of)) return NULL;
    return hlo_constant_float(b, shape_of->dtype, shape_of->rank, shape_of->dims, v);
}

/* The finite 8-bit types have no infinity: their largest number stands for it. */
static double largest_real(dtype t) {
    if (t == DTYPE_F8E4M3FN) return 448;
    if (t == DTYPE_F8E4M3FNUZ) return 240;
    if (t == DTYPE_F8E5M2FNUZ) return 57344;
    return INFINITY;
}

static hlo_value extreme(hlo_builder *b, dtype t, bool low) {
    if (dtype_is_complex(t))
        return hlo_fail(b, STATUS_TYPE, "%s has no smallest or largest value", dtype_torch_name(t));
    if (dtype_is_float(t)) return hlo_scalar(b, t, low ? -largest_real(t) : largest_real(t));
    if (!dtype_is_int(t)) return hlo_constant_int(b, t, 0, NULL, !low);
    int64_t top = (int64_t)(UINT64_MAX >> (64 - dtype_bits(t) + dtype_is_signed(t)));
    if (low) return hlo_constant_int(b, t, 0, NULL, dtype_is_signed(t) ? -top - 1 : 0);
    return hlo_constant_int(b, t, 0, NULL, top);
}

hlo_value hlo_min_value(hlo_builder *b, dtype t) { return extreme(b, t, true); }
hlo_value hlo_max_value(hlo_builder *b, dtype t) { return extreme(b, t, false); }

hlo_value hlo_iota(hlo_builder *b, dtype t, int rank, const int64_t *dims, int dimension) {
    if (!hlo_ready(b, 0, NULL)) return NULL;
    if (dimension < 0 || dimension >= rank)
        return hlo_fail(b, STATUS_INDEX, "iota: dimension %d of a value of %d dimensions", dimension, rank);
    if (t == DTYPE_BOOL) return hlo_convert(b, hlo_iota(b, DTYPE_I32, rank, dims, dimension), t);
    hlo_attribute_int(b, "iota_dimension", dimension);
    return hlo_emit_one(b, "stablehlo.iota", 0, NULL, t, rank, dims);
}
