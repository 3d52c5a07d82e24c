/* Random numbers from a counter-based generator: the bits depend on (seed, offset) and the place in the call alone. */
#include <math.h>

#include "ops/lowering.h"

hlo_value random_bits(lowering *l, dtype t, int rank, const int64_t *dims) {
    hlo_value state = l->host ? l->host->random_state(l->host->context) : NULL;
    if (!state) return hlo_fail(l->builder, STATUS_INTERNAL, "random bits asked for without a generator");
    hlo_value next, bits;
    hlo_rng_bit_generator(l->builder, state, t, rank, dims, &next, &bits);
    return bits;
}

/* Integer bits over the type's significand width, as the CPU's uniform distribution: 24 bits for float32, 53 for
 * float64, 11 for float16, 8 for bfloat16 (aten/src/ATen/core/TransformationHelper.h), so that 1 is never reached. */
hlo_value random_uniform(lowering *l, dtype t, int rank, const int64_t *dims) {
    int width = t == DTYPE_F64 ? 53 : t == DTYPE_F16 ? 11 : t == DTYPE_BF16 ? 8 : 24;
    dtype word = t == DTYPE_F64 ? DTYPE_U64 : DTYPE_U32;
    int shift = dtype_bits(word) - width;
    hlo_builder *b = l->builder;
    hlo_value bits = random_bits(l, word, rank, dims);
    if (!bits) return NULL;
    bits = hlo_shift_right_logical(b, bits, hlo_constant_int(b, word, 0, NULL, shift));
    dtype wide = t == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    hlo_value unit = hlo_multiply(b, hlo_convert(b, bits, wide), hlo_scalar(b, wide, ldexp(1, -width)));
    return hlo_convert(b, unit, t);
}

/* (k + 1/2) steps of 2^-23 (float64: 2^-52), k an integer of as many bits: no rounding comes near 0 or 1. */
hlo_value random_open_uniform(lowering *l, dtype t, int rank, const int64_t *dims) {
    const bool wide = t == DTYPE_F64;
    const int width = wide ? 52 : 23;
    dtype word = wide ? DTYPE_U64 : DTYPE_U32, compute = wide ? DTYPE_F64 : DTYPE_F32;
    hlo_builder *b = l->builder;
    hlo_value bits = random_bits(l, word, rank, dims);
    if (!bits) return NULL;
    bits = hlo_shift_right_logical(b, bits, hlo_constant_int(b, word, 0, NULL, dtype_bits(word) - width));
    hlo_value middle = hlo_add(b, hlo_convert(b, bits, compute), hlo_scalar(b, compute, 0.5));
    return hlo_multiply(b, middle, hlo_scalar(b, compute, ldexp(1, -width)));
}

/* Inverse of the normal distribution function: sqrt(2) * erfinv(2 u - 1). */
hlo_value random_normal(lowering *l, dtype t, int rank, const int64_t *dims) {
    dtype wide = t == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    hlo_builder *b = l->builder;
    hlo_value u = random_open_uniform(l, wide, rank, dims);
    hlo_value centred = hlo_subtract(b, hlo_multiply(b, u, hlo_scalar(b, wide, 2)), hlo_scalar(b, wide, 1));
    return hlo_convert(b, hlo_multiply(b, hlo_erf_inv(b, centred), hlo_scalar(b, wide, sqrt(2))), t);
}
