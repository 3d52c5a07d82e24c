/* Mathematical functions that StableHLO has no operation for. */
#include "ops/formula.h"

hlo_value math_plus(hlo_builder *b, hlo_value x, double v) { return ADD(x, K(x, v)); }
hlo_value math_times(hlo_builder *b, hlo_value x, double v) { return MUL(x, K(x, v)); }
hlo_value math_minus_from(hlo_builder *b, double v, hlo_value x) { return SUB(K(x, v), x); }
hlo_value math_divide_into(hlo_builder *b, double v, hlo_value x) { return DIV(K(x, v), x); }
hlo_value math_compare(hlo_builder *b, hlo_direction d, hlo_value x, double v) { return hlo_compare(b, d, x, K(x, v)); }

bool math_is_integral(hlo_value x) { return x && (dtype_is_int(x->dtype) || x->dtype == DTYPE_BOOL); }
bool math_is_floating(hlo_value x) { return x && dtype_is_float(x->dtype); }
bool math_is_complex(hlo_value x) { return x && dtype_is_complex(x->dtype); }

static const char *scalar_type_name(dtype t) {
    static const char *const names[DTYPE_COUNT] = {[DTYPE_BOOL] = "Bool",
                                                   [DTYPE_U8] = "Byte",
                                                   [DTYPE_I8] = "Char",
                                                   [DTYPE_U16] = "UInt16",
                                                   [DTYPE_I16] = "Short",
                                                   [DTYPE_U32] = "UInt32",
                                                   [DTYPE_I32] = "Int",
                                                   [DTYPE_U64] = "UInt64",
                                                   [DTYPE_I64] = "Long",
                                                   [DTYPE_F8E4M3FN] = "Float8_e4m3fn",
                                                   [DTYPE_F8E5M2] = "Float8_e5m2",
                                                   [DTYPE_F8E4M3FNUZ] = "Float8_e4m3fnuz",
                                                   [DTYPE_F8E5M2FNUZ] = "Float8_e5m2fnuz",
                                                   [DTYPE_F16] = "Half",
                                                   [DTYPE_BF16] = "BFloat16",
                                                   [DTYPE_F32] = "Float",
                                                   [DTYPE_F64] = "Double",
                                                   [DTYPE_C64] = "ComplexFloat",
                                                   [DTYPE_C128] = "ComplexDouble"};
    return t < DTYPE_COUNT && names[t] ? names[t] : "Undefined";
}

hlo_value math_not_implemented(hlo_builder *b, const char *kernel, dtype t) {
    return hlo_fail(b, STATUS_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", kernel, scalar_type_name(t));
}

bool math_require(hlo_builder *b, hlo_value x, int kinds, const char *kernel) {
    if (!x) return false;
    static const int kind_bit[] = {[DTYPE_KIND_BOOL] = KIND_BOOL,
                                   [DTYPE_KIND_INT] = KIND_INT,
                                   [DTYPE_KIND_FLOAT] = KIND_FLOAT,
                                   [DTYPE_KIND_COMPLEX] = KIND_COMPLEX};
    if (kind_bit[dtype_get_kind(x->dtype)] & kinds) return true;
    math_not_implemented(b, kernel, x->dtype);
    return false;
}

hlo_value math_truncate(hlo_builder *b, hlo_value x) {
    if (!math_is_floating(x)) return x;
    return IF(LTK(x, 0), hlo_ceil(b, x), hlo_floor(b, x));
}

hlo_value math_sign_bit(hlo_builder *b, hlo_value x) {
    if (!x) return NULL;
    if (!dtype_is_float(x->dtype)) return dtype_is_signed(x->dtype) ? LTK(x, 0) : hlo_convert(b, K(x, 0), DTYPE_BOOL);
    int bits = dtype_bits(x->dtype);
    dtype word = bits == 8 ? DTYPE_I8 : bits == 16 ? DTYPE_I16 : bits == 32 ? DTYPE_I32 : DTYPE_I64;
    return LTK(hlo_bitcast_convert(b, x, word), 0);
}

hlo_value math_copy_sign(hlo_builder *b, hlo_value magnitude, hlo_value sign) {
    hlo_value m = ABS(magnitude);
    return IF(math_sign_bit(b, sign), NEG(m), m);
}

hlo_value math_sign(hlo_builder *b, hlo_value x) {
    if (!x || x->dtype == DTYPE_BOOL) return x;
    return SUB(hlo_convert(b, GTK(x, 0), x->dtype), hlo_convert(b, LTK(x, 0), x->dtype));
}

hlo_value math_power_of_two(hlo_builder *b, hlo_value exponent) { return hlo_power(b, K(exponent, 2), exponent); }

/* The remainder's sign is the dividend's; where the divisor's differs, one divisor more. */
hlo_value math_modulo(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!x || !y) return NULL;
    hlo_value r = hlo_remainder(b, x, y);
    if (!dtype_is_signed(x->dtype)) return r;
    hlo_value differs = hlo_ne(b, LTK(r, 0), LTK(y, 0));
    return IF(AND(NEK(r, 0), differs), ADD(r, y), r);
}

static hlo_value floor_divide_integers(hlo_builder *b, hlo_value x, hlo_value y) {
    hlo_value q = DIV(x, y);
    if (!dtype_is_signed(x->dtype)) return q;
    hlo_value r = hlo_remainder(b, x, y);
    hlo_value differs = hlo_ne(b, LTK(r, 0), LTK(y, 0));
    return IF(AND(NEK(r, 0), differs), ADDK(q, -1), q);
}

hlo_value math_floor_divide(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!x || !y) return NULL;
    if (math_is_integral(x)) return floor_divide_integers(b, x, y);
    hlo_value plain = DIV(x, y);
    hlo_value r = hlo_remainder(b, x, y);
    hlo_value q = DIV(SUB(x, r), y);
    hlo_value differs = hlo_ne(b, LTK(r, 0), LTK(y, 0));
    q = IF(AND(NEK(r, 0), differs), ADDK(q, -1), q);
    hlo_value down = hlo_floor(b, q);
    down = IF(GTK(SUB(q, down), 0.5), ADDK(down, 1), down);
    hlo_value rounded = IF(NEK(q, 0), down, math_copy_sign(b, K(q, 0), plain));
    return IF(EQK(y, 0), plain, rounded);
}

/* digamma(+-0) = -+inf. */
hlo_value math_digamma(hlo_builder *b, hlo_value x) {
    hlo_value pole = math_copy_sign(b, K(x, INFINITY), NEG(x));
    return IF(EQK(x, 0), pole, hlo_digamma(b, x));
}

hlo_value math_polynomial(hlo_builder *b, hlo_value x, int n, const double *c) {
    hlo_value sum = K(x, c[0]);
    for (int i = 1; i < n; i++) sum = ADDK(MUL(sum, x), c[i]);
    return sum;
}

hlo_value math_chebyshev(hlo_builder *b, hlo_value x, int n, const double *c) {
    hlo_value b0 = K(x, c[0]), b1 = K(x, 0), b2 = b1;
    for (int i = 1; i < n; i++) {
        b2 = b1;
        b1 = b0;
        b0 = ADDK(SUB(MUL(x, b1), b2), c[i]);
    }
    return MULK(SUB(b0, b2), 0.5);
}
