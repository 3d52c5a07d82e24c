/* Complex numbers: making them and taking them apart. (The views of their parts are in shape.c.) */
#include "ops/formula.h"

static hlo_value conjugate(hlo_builder *b, hlo_value x) { return math_is_complex(x) ? hlo_conj(b, x) : x; }

/* Of a real number: pi for a negative one, NaN for NaN, else 0. */
static hlo_value angle(hlo_builder *b, hlo_value x) {
    if (math_is_complex(x)) return hlo_atan2(b, hlo_imag(b, x), hlo_real(b, x));
    hlo_value a = IF(LTK(x, 0), K(x, M_PI), K(x, 0));
    return IF(hlo_is_nan(b, x), x, a);
}

/* StableHLO has complex numbers of f32 and f64 only, PyTorch also of float16: those are computed as f32. */
static hlo_value part(hlo_builder *b, hlo_value x) {
    return x && x->dtype != DTYPE_F64 ? hlo_convert(b, x, DTYPE_F32) : x;
}

static hlo_value from_parts(hlo_builder *b, hlo_value re, hlo_value im) {
    return hlo_complex(b, part(b, re), part(b, im));
}

static hlo_value polar(hlo_builder *b, hlo_value length, hlo_value angle) {
    length = part(b, length);
    angle = part(b, angle);
    return hlo_complex(b, MUL(length, hlo_cosine(b, angle)), MUL(length, hlo_sine(b, angle)));
}

static hlo_value real_part(hlo_builder *b, hlo_value x) { return math_is_complex(x) ? hlo_real(b, x) : x; }
static hlo_value imaginary_part(hlo_builder *b, hlo_value x) {
    if (math_is_complex(x)) return hlo_imag(b, x);
    return hlo_fail(b, STATUS_RUNTIME, "imag is not implemented for tensors with non-complex dtypes.");
}

const op_row ops_complex[] = {{"aten::angle", PROMOTE_REAL, .unary = angle},
                              {"aten::_conj_physical", PROMOTE_NONE, .unary = conjugate},
                              {"aten::conj_physical", PROMOTE_NONE, .unary = conjugate, .meta = META_ELEMENTWISE},
                              {"prims::conj_physical", PROMOTE_NONE, .unary = conjugate},
                              {"aten::complex", PROMOTE_NONE, .binary = from_parts},
                              {"aten::polar", PROMOTE_NONE, .binary = polar},
                              {"aten::real", PROMOTE_NONE, .unary = real_part},
                              {"aten::imag", PROMOTE_NONE, .unary = imaginary_part},
                              {NULL}};
