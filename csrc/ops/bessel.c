/* Bessel functions of orders 0 and 1: approximations of Cephes, as the CPU's kernels use them. */
#include "ops/bessel_coefficients.h"
#include "ops/formula.h"

#define POLYNOMIAL(x, table) math_polynomial(b, x, COUNT(table), table)
#define CHEBYSHEV(x, table) math_chebyshev(b, x, COUNT(table), table)
#define RATIO(x, table) DIV(POLYNOMIAL(x, table##_numerator), POLYNOMIAL(x, table##_denominator))

static bool real(hlo_builder *b, hlo_value x, const char *kernel) { return math_require(b, x, KIND_FLOAT, kernel); }

/* ---- J and Y: for x > 5 a modulated wave of phase x - (order / 2 + 1/4) pi ---- */

typedef struct {
    hlo_value cosine, sine, phase, scale;
} wave;

static wave make_wave(hlo_builder *b, hlo_value x, int order) {
    hlo_value inverse = DIVINTO(5, x), z = MUL(inverse, inverse);
    wave w = {.phase = ADDK(x, -(order + 0.5) * M_PI_2), .scale = DIVINTO(M_2_SQRTPI * M_SQRT1_2, SQRT(x))};
    w.cosine = order ? RATIO(z, bessel1_cosine) : RATIO(z, bessel0_cosine);
    w.sine = MUL(inverse, order ? RATIO(z, bessel1_sine) : RATIO(z, bessel0_sine));
    return w;
}

static hlo_value j_large(hlo_builder *b, hlo_value x, int order) {
    wave w = make_wave(b, x, order);
    return MUL(SUB(MUL(w.cosine, hlo_cosine(b, w.phase)), MUL(w.sine, hlo_sine(b, w.phase))), w.scale);
}
static hlo_value y_large(hlo_builder *b, hlo_value x, int order) {
    wave w = make_wave(b, x, order);
    return MUL(ADD(MUL(w.cosine, hlo_sine(b, w.phase)), MUL(w.sine, hlo_cosine(b, w.phase))), w.scale);
}

/* Small arguments: a rational function times the first two zeros. */
static hlo_value bessel_j0(hlo_builder *b, hlo_value x) {
    if (!real(b, x, "bessel_j0_cpu")) return NULL;
    x = ABS(x);
    hlo_value z = MUL(x, x);
    hlo_value zeros = MUL(ADDK(z, -5.78318596294678452118), ADDK(z, -30.4712623436620863991));
    hlo_value small = IF(LTK(x, 1e-5), SUBFROM(1, MULK(z, 0.25)), MUL(zeros, RATIO(z, bessel0_j)));
    return IF(LEK(x, 5), small, j_large(b, x, 0));
}

static hlo_value bessel_j1(hlo_builder *b, hlo_value signed_x) {
    if (!real(b, signed_x, "bessel_j1_cpu")) return NULL;
    hlo_value x = ABS(signed_x), z = MUL(x, x);
    hlo_value zeros = MUL(ADDK(z, -14.6819706421238932572), ADDK(z, -49.2184563216946036703));
    hlo_value j = IF(LEK(x, 5), MUL(MUL(x, zeros), RATIO(z, bessel1_j)), j_large(b, x, 1));
    return IF(LTK(signed_x, 0), NEG(j), j);
}

/* -inf at 0, NaN below. */
static hlo_value y_domain(hlo_builder *b, hlo_value x, hlo_value small, hlo_value large) {
    hlo_value y = IF(LEK(x, 5), small, large);
    return IF(EQK(x, 0), K(x, -INFINITY), IF(LTK(x, 0), K(x, NAN), y));
}

static hlo_value bessel_y0(hlo_builder *b, hlo_value x) {
    if (!real(b, x, "bessel_y0_cpu")) return NULL;
    hlo_value z = MUL(x, x);
    hlo_value small = ADD(RATIO(z, bessel0_y), MULK(MUL(LOG(x), bessel_j0(b, x)), M_2_PI));
    return y_domain(b, x, small, y_large(b, x, 0));
}

static hlo_value bessel_y1(hlo_builder *b, hlo_value x) {
    if (!real(b, x, "bessel_y1_cpu")) return NULL;
    hlo_value z = MUL(x, x), log_part = SUB(MUL(bessel_j1(b, x), LOG(x)), DIVINTO(1, x));
    hlo_value small = ADD(MUL(x, RATIO(z, bessel1_y)), MULK(log_part, M_2_PI));
    return y_domain(b, x, small, y_large(b, x, 1));
}

/* ---- I, scaled by exp(-|x|) ---- */

static hlo_value i0e(hlo_builder *b, hlo_value x) {
    if (!real(b, x, "i0e_cpu")) return NULL;
    x = ABS(x);
    hlo_value small = CHEBYSHEV(ADDK(MULK(x, 0.5), -2), modified_i0_small);
    hlo_value large = DIV(CHEBYSHEV(ADDK(DIVINTO(32, x), -2), modified_i0_large), SQRT(x));
    return IF(LEK(x, 8), small, large);
}

static hlo_value i1e(hlo_builder *b, hlo_value signed_x) {
    if (!real(b, signed_x, "i1e_cpu")) return NULL;
    hlo_value x = ABS(signed_x);
    hlo_value small = MUL(x, CHEBYSHEV(ADDK(MULK(x, 0.5), -2), modified_i1_small));
    hlo_value large = DIV(CHEBYSHEV(ADDK(DIVINTO(32, x), -2), modified_i1_large), SQRT(x));
    hlo_value i = IF(LEK(x, 8), small, large);
    return IF(LTK(signed_x, 0), NEG(i), i);
}

static hlo_value i0(hlo_builder *b, hlo_value x) { return MUL(i0e(b, x), EXP(ABS(x))); }
static hlo_value i1(hlo_builder *b, hlo_value x) { return MUL(i1e(b, x), EXP(ABS(x))); }

/* ---- K: inf at 0, NaN below. small is the function, large is scaled by exp(x) ---- */

static hlo_value k_domain(hlo_builder *b, hlo_value x, hlo_value k) {
    return IF(EQK(x, 0), K(x, INFINITY), IF(LTK(x, 0), K(x, NAN), k));
}
static hlo_value k0_small(hlo_builder *b, hlo_value x) {
    return SUB(CHEBYSHEV(ADDK(MUL(x, x), -2), modified_k0_small), MUL(LOG(MULK(x, 0.5)), i0(b, x)));
}
static hlo_value k0_large(hlo_builder *b, hlo_value x) {
    return DIV(CHEBYSHEV(ADDK(DIVINTO(8, x), -2), modified_k0_large), SQRT(x));
}
static hlo_value k1_small(hlo_builder *b, hlo_value x) {
    return ADD(MUL(LOG(MULK(x, 0.5)), i1(b, x)), DIV(CHEBYSHEV(ADDK(MUL(x, x), -2), modified_k1_small), x));
}
static hlo_value k1_large(hlo_builder *b, hlo_value x) {
    return DIV(CHEBYSHEV(ADDK(DIVINTO(8, x), -2), modified_k1_large), SQRT(x));
}

static hlo_value k0(hlo_builder *b, hlo_value x) {
    if (!real(b, x, "modified_bessel_k0_cpu")) return NULL;
    return k_domain(b, x, IF(LEK(x, 2), k0_small(b, x), MUL(k0_large(b, x), EXP(NEG(x)))));
}
static hlo_value k1(hlo_builder *b, hlo_value x) {
    if (!real(b, x, "modified_bessel_k1_cpu")) return NULL;
    return k_domain(b, x, IF(LEK(x, 2), k1_small(b, x), MUL(k1_large(b, x), EXP(NEG(x)))));
}
static hlo_value k0e(hlo_builder *b, hlo_value x) {
    if (!real(b, x, "scaled_modified_bessel_k0_cpu")) return NULL;
    return k_domain(b, x, IF(LEK(x, 2), MUL(k0_small(b, x), EXP(x)), k0_large(b, x)));
}
static hlo_value k1e(hlo_builder *b, hlo_value x) {
    if (!real(b, x, "scaled_modified_bessel_k1_cpu")) return NULL;
    return k_domain(b, x, IF(LEK(x, 2), MUL(k1_small(b, x), EXP(x)), k1_large(b, x)));
}

/* sin(x) / x, by its series near 0. */
static hlo_value spherical_j0(hlo_builder *b, hlo_value x) {
    static const double series[] = {
        1 / 6227020800.0, -1 / 39916800.0, 1 / 362880.0, -1 / 5040.0, 1 / 120.0, -1 / 6.0, 1};
    if (!real(b, x, "spherical_bessel_j0_cpu")) return NULL;
    hlo_value j = IF(LTK(ABS(x), 0.5), POLYNOMIAL(MUL(x, x), series), DIV(hlo_sine(b, x), x));
    return IF(EQK(ABS(x), INFINITY), K(x, 0), j);
}

#define SPECIAL(name, function) ROW_UNARY("special_" name, PROMOTE_REAL, 0, function)

const op_row ops_bessel[] = {SPECIAL("bessel_j0", bessel_j0),
                             SPECIAL("bessel_j1", bessel_j1),
                             SPECIAL("bessel_y0", bessel_y0),
                             SPECIAL("bessel_y1", bessel_y1),
                             ROW_UNARY("i0", PROMOTE_REAL, 0, i0),
                             SPECIAL("i0e", i0e),
                             SPECIAL("i1", i1),
                             SPECIAL("i1e", i1e),
                             SPECIAL("modified_bessel_i0", i0),
                             SPECIAL("modified_bessel_i1", i1),
                             SPECIAL("modified_bessel_k0", k0),
                             SPECIAL("modified_bessel_k1", k1),
                             SPECIAL("scaled_modified_bessel_k0", k0e),
                             SPECIAL("scaled_modified_bessel_k1", k1e),
                             SPECIAL("spherical_bessel_j0", spherical_j0),
                             PRIM_UNARY("bessel_i0", PROMOTE_REAL, 0, i0),
                             PRIM_UNARY("bessel_i0e", PROMOTE_REAL, 0, i0e),
                             PRIM_UNARY("bessel_i1", PROMOTE_REAL, 0, i1),
                             PRIM_UNARY("bessel_i1e", PROMOTE_REAL, 0, i1e),
                             PRIM_UNARY("bessel_j0", PROMOTE_REAL, 0, bessel_j0),
                             PRIM_UNARY("bessel_j1", PROMOTE_REAL, 0, bessel_j1),
                             PRIM_UNARY("spherical_bessel_j0", PROMOTE_REAL, 0, spherical_j0),
                             {NULL}};
