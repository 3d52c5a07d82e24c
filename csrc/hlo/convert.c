/* Changes of the element type: by value, by bits, by precision. */
#include <string.h>

#include "hlo/internal.h"

static hlo_value convert_once(hlo_builder *b, hlo_value x, dtype t) {
    if (!hlo_ready(b, 1, &x) || x->dtype == t) return hlo_ready(b, 1, &x) ? x : NULL;
    return hlo_emit_one(b, "stablehlo.convert", 1, &x, t, x->rank, x->dims);
}

/* The integer type that PyTorch's CPU kernels truncate a float to before they cut it down to `t`: c10/util/TypeCast.h
 * for uint8; for the others the conversion instruction of the hardware, which has 32 and 64 bits. */
static dtype truncation_type(dtype t) {
    switch (t) {
        case DTYPE_I8:
        case DTYPE_I16:
        case DTYPE_U16:
            return DTYPE_I32;
        case DTYPE_U8:
        case DTYPE_U32:
            return DTYPE_I64;
        default:
            return t;
    }
}

static hlo_value float_to_int(hlo_builder *b, hlo_value x, dtype t) {
    if (t != DTYPE_U64) return convert_once(b, convert_once(b, x, truncation_type(t)), t);
    /* Negative numbers wrap; those of 2^63 and above fit. */
    hlo_value wrapped = convert_once(b, convert_once(b, x, DTYPE_I64), t);
    return hlo_select(b, hlo_lt(b, x, hlo_like(b, x, 0)), wrapped, convert_once(b, x, t));
}

/* PyTorch makes the types narrower than float from float. */
static hlo_value to_float(hlo_builder *b, hlo_value x, dtype t) {
    bool narrow = dtype_bits(t) < 32;
    if (narrow && dtype_bits(x->dtype) >= 16 && x->dtype != DTYPE_F32) x = convert_once(b, x, DTYPE_F32);
    return convert_once(b, x, t);
}

static hlo_value to_complex(hlo_builder *b, hlo_value x, dtype t) {
    if (dtype_is_complex(x->dtype)) return convert_once(b, x, t);
    hlo_value re = hlo_convert(b, x, dtype_real(t));
    return re ? hlo_complex(b, re, hlo_like(b, re, 0)) : NULL;
}

hlo_value hlo_convert(hlo_builder *b, hlo_value x, dtype t) {
    if (!hlo_ready(b, 1, &x)) return NULL;
    if (t <= DTYPE_INVALID || t >= DTYPE_COUNT)
        return hlo_fail(b, STATUS_INTERNAL, "stablehlo.convert: operand 0, %s, to no type", hlo_value_text(b, x));
    if (x->dtype == t) return x;
    hlo_value source = hlo_reshaped_from(x);
    if (source) return hlo_reshape(b, hlo_convert(b, source, t), x->rank, x->dims);
    if (t == DTYPE_BOOL) return hlo_ne(b, x, hlo_like(b, x, 0));
    if (dtype_is_complex(t)) return to_complex(b, x, t);
    if (dtype_is_complex(x->dtype)) return hlo_convert(b, hlo_real(b, x), t);
    if (dtype_is_float(t)) return to_float(b, x, t);
    return dtype_is_float(x->dtype) ? float_to_int(b, x, t) : convert_once(b, x, t);
}

/* ---- bits ---- */

/* Between types that StableHLO can bitcast: neither bool nor complex. */
static hlo_value bitcast(hlo_builder *b, hlo_value x, dtype t) {
    if (!hlo_ready(b, 1, &x) || x->dtype == t) return hlo_ready(b, 1, &x) ? x : NULL;
    int from = dtype_bits(x->dtype), to = dtype_bits(t), rank = x->rank;
    int64_t dims[HLO_MAX_RANK + 1];
    for (int d = 0; d < rank; d++) dims[d] = x->dims[d];
    if (from > to) {
        if (rank >= HLO_MAX_RANK)
            return hlo_fail(b, STATUS_NOT_IMPLEMENTED, "stablehlo.bitcast_convert: operand 0 has %d dimensions", rank);
        dims[rank++] = from / to;
    } else if (from < to) {
        if (rank == 0 || dims[rank - 1] != to / from)
            return hlo_fail(b, STATUS_RUNTIME,
                            "stablehlo.bitcast_convert: operand 0, %s, to %s: its last dimension must be %d",
                            hlo_value_text(b, x), dtype_hlo_name(t), to / from);
        rank--;
    }
    return hlo_emit_one(b, "stablehlo.bitcast_convert", 1, &x, t, rank, dims);
}

/* A complex number as its two parts, in a new last dimension. */
static hlo_value parts_of(hlo_builder *b, hlo_value x) {
    hlo_value parts[2] = {hlo_unsqueeze_dim(b, hlo_real(b, x), x->rank), hlo_unsqueeze_dim(b, hlo_imag(b, x), x->rank)};
    return hlo_concatenate(b, 2, parts, x->rank);
}

static hlo_value of_parts(hlo_builder *b, hlo_value x) {
    if (!x) return NULL;
    int last = x->rank - 1;
    if (last < 0 || x->dims[last] != 2)
        return hlo_fail(b, STATUS_RUNTIME,
                        "stablehlo.bitcast_convert: operand 0, %s, is no pair of real and imaginary parts",
                        hlo_value_text(b, x));
    hlo_value re = hlo_squeeze_dim(b, hlo_slice_dim(b, x, last, 0, 1, 1), last);
    hlo_value im = hlo_squeeze_dim(b, hlo_slice_dim(b, x, last, 1, 2, 1), last);
    return hlo_complex(b, re, im);
}

/* Complex to real: the dimensions of the parts and of what each splits into become one. */
static hlo_value complex_to_real(hlo_builder *b, hlo_value x, dtype t) {
    hlo_value parts = bitcast(b, parts_of(b, x), t);
    if (!parts || parts->rank <= x->rank + 1) return parts;
    int64_t dims[HLO_MAX_RANK];
    memcpy(dims, x->dims, sizeof(int64_t) * (size_t)x->rank);
    dims[x->rank] = dtype_bits(x->dtype) / dtype_bits(t);
    return hlo_reshape(b, parts, x->rank + 1, dims);
}

/* Real to complex: a last dimension of more than two elements splits into two parts first. */
static hlo_value real_to_complex(hlo_builder *b, hlo_value x, dtype t) {
    int64_t part = dtype_bits(dtype_real(t)) / dtype_bits(x->dtype), dims[HLO_MAX_RANK + 1];
    if (part > 1 && x->rank > 0 && x->dims[x->rank - 1] == 2 * part) {
        memcpy(dims, x->dims, sizeof(int64_t) * (size_t)x->rank);
        dims[x->rank - 1] = 2;
        dims[x->rank] = part;
        x = hlo_reshape(b, x, x->rank + 1, dims);
    }
    return of_parts(b, bitcast(b, x, dtype_real(t)));
}

hlo_value hlo_bitcast_convert(hlo_builder *b, hlo_value x, dtype t) {
    if (!hlo_ready(b, 1, &x) || x->dtype == t) return hlo_ready(b, 1, &x) ? x : NULL;
    /* A bool is a byte in PyTorch and a bit in StableHLO. */
    if (x->dtype == DTYPE_BOOL) return hlo_bitcast_convert(b, hlo_convert(b, x, DTYPE_U8), t);
    if (t == DTYPE_BOOL) return hlo_convert(b, hlo_bitcast_convert(b, x, DTYPE_U8), t);
    bool from_complex = dtype_is_complex(x->dtype), to_complex = dtype_is_complex(t);
    if (from_complex && to_complex) return of_parts(b, bitcast(b, parts_of(b, x), dtype_real(t)));
    if (from_complex) return complex_to_real(b, x, t);
    if (to_complex) return real_to_complex(b, x, t);
    return bitcast(b, x, t);
}

/* ---- precision ---- */

hlo_value hlo_reduce_precision(hlo_builder *b, hlo_value x, int exponent_bits, int mantissa_bits) {
    if (!hlo_ready(b, 1, &x)) return NULL;
    if (!dtype_is_float(x->dtype))
        return hlo_fail(b, STATUS_TYPE, "stablehlo.reduce_precision: operand 0, %s, is no float", hlo_value_text(b, x));
    if (exponent_bits < 1 || mantissa_bits < 0)
        return hlo_fail(b, STATUS_VALUE, "stablehlo.reduce_precision: %d exponent bits and %d mantissa bits",
                        exponent_bits, mantissa_bits);
    hlo_attribute(b, "exponent_bits", "%d : i32", exponent_bits);
    hlo_attribute(b, "mantissa_bits", "%d : i32", mantissa_bits);
    return hlo_emit_one(b, "stablehlo.reduce_precision", 1, &x, x->dtype, x->rank, x->dims);
}
