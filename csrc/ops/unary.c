/* Elementwise functions of one operand. What is a StableHLO operation of the same meaning is a row alone. */
#include "ops/formula.h"

/* ---- rounding: integers are whole already ---- */

#define ROUNDING(name, function, kernel)                                       \
    static hlo_value unary_##name(hlo_builder *b, hlo_value x) {               \
        if (math_is_integral(x) && x->dtype != DTYPE_BOOL) return x;           \
        return math_require(b, x, KIND_FLOAT, kernel) ? function(b, x) : NULL; \
    }
ROUNDING(ceil, hlo_ceil, "ceil")
ROUNDING(floor, hlo_floor, "floor")
ROUNDING(round, hlo_round_nearest_even, "round_vml_cpu")
ROUNDING(trunc, math_truncate, "trunc_vml_cpu")

static hlo_value unary_frac(hlo_builder *b, hlo_value x) {
    return math_require(b, x, KIND_FLOAT, "frac") ? SUB(x, math_truncate(b, x)) : NULL;
}

/* round(x, decimals): scaled by a power of ten, rounded half to even, scaled back (UnaryOpsKernel.cpp). */
static void lower_round_decimals(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    int64_t decimals = arg_int(l, 1);
    if (math_is_integral(x)) {
        if (decimals != 0) math_not_implemented(b, "round_cpu", x ? x->dtype : DTYPE_INVALID);
        result_set(l, 0, x);
        return;
    }
    double scale = pow(10, fabs((double)decimals));
    if (decimals >= 0)
        result_set(l, 0, DIV(hlo_round_nearest_even(b, MULK(x, scale)), K(x, scale)));
    else
        result_set(l, 0, MULK(hlo_round_nearest_even(b, DIV(x, K(x, scale))), scale));
}

/* ---- sign and magnitude ---- */

static hlo_value unary_abs(hlo_builder *b, hlo_value x) { return x && !dtype_is_signed(x->dtype) ? x : ABS(x); }

static hlo_value unary_neg(hlo_builder *b, hlo_value x) {
    if (!x || x->dtype != DTYPE_BOOL) return NEG(x);
    return hlo_fail(b, STATUS_RUNTIME,
                    "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
                    "mask, use the `~` or `logical_not()` operator instead.");
}

static hlo_value unary_sign(hlo_builder *b, hlo_value x) {
    if (math_is_complex(x)) return hlo_fail(b, STATUS_RUNTIME, "Unlike NumPy, torch.sign doesn't allow complex inputs");
    return math_sign(b, x);
}
static hlo_value unary_sgn(hlo_builder *b, hlo_value x) {
    return math_is_complex(x) ? hlo_sign(b, x) : math_sign(b, x);
}

static hlo_value unary_signbit(hlo_builder *b, hlo_value x) {
    return math_require(b, x, KIND_BOOL | KIND_INT | KIND_FLOAT, "signbit_cpu") ? math_sign_bit(b, x) : NULL;
}

/* ---- exponentials and logarithms ---- */

static hlo_value unary_exp2(hlo_builder *b, hlo_value x) { return math_power_of_two(b, x); }
/* Of complex numbers part by part: an infinite part divided by a complex number would make the other NaN. */
static hlo_value log_of_base(hlo_builder *b, hlo_value x, double log_base) {
    hlo_value y = LOG(x);
    if (!math_is_complex(y)) return DIV(y, K(y, log_base));
    hlo_value re = hlo_real(b, y), im = hlo_imag(b, y);
    return hlo_complex(b, DIV(re, K(re, log_base)), DIV(im, K(im, log_base)));
}
static hlo_value unary_log2(hlo_builder *b, hlo_value x) { return log_of_base(b, x, M_LN2); }
static hlo_value unary_log10(hlo_builder *b, hlo_value x) { return log_of_base(b, x, M_LN10); }
static hlo_value unary_reciprocal(hlo_builder *b, hlo_value x) { return DIVINTO(1, x); }
static hlo_value unary_square(hlo_builder *b, hlo_value x) { return MUL(x, x); }
static hlo_value unary_deg2rad(hlo_builder *b, hlo_value x) { return MULK(x, M_PI / 180); }
static hlo_value unary_rad2deg(hlo_builder *b, hlo_value x) { return MULK(x, 180 / M_PI); }

static hlo_value unary_sinc(hlo_builder *b, hlo_value x) {
    hlo_value angle = MULK(x, M_PI);
    return IF(EQK(x, 0), K(x, 1), DIV(hlo_sine(b, angle), angle));
}

/* As atan2(x / 2, 1/2): a CPU plugin (XLA of 2026) computes its own arctangent, which atan2(x, 1) is turned into,
 * wrongly for arrays of 64 elements and more. */
static hlo_value unary_atan(hlo_builder *b, hlo_value x) {
    return math_is_floating(x) ? hlo_atan2(b, MULK(x, 0.5), K(x, 0.5)) : hlo_atan(b, x);
}

/* ---- real functions: complex operands are refused as the CPU's kernels do ---- */

#define REAL_ONLY(name, function, kernel)                                      \
    static hlo_value unary_##name(hlo_builder *b, hlo_value x) {               \
        return math_require(b, x, KIND_FLOAT, kernel) ? function(b, x) : NULL; \
    }
REAL_ONLY(erf, hlo_erf, "erf_vml_cpu")
REAL_ONLY(erfc, hlo_erfc, "erfc_vml_cpu")
REAL_ONLY(erfinv, hlo_erf_inv, "erfinv_vml_cpu")
REAL_ONLY(lgamma, hlo_lgamma, "lgamma_vml_cpu")
REAL_ONLY(digamma, math_digamma, "digamma")
REAL_ONLY(cbrt, hlo_cbrt, "cbrt")

/* ---- classes of numbers ---- */

static hlo_value constant_false(hlo_builder *b, hlo_value x) { return hlo_convert(b, K(x, 0), DTYPE_BOOL); }

static hlo_value unary_isnan(hlo_builder *b, hlo_value x) {
    if (math_is_complex(x)) return OR(hlo_is_nan(b, hlo_real(b, x)), hlo_is_nan(b, hlo_imag(b, x)));
    return math_is_floating(x) ? hlo_is_nan(b, x) : constant_false(b, x);
}

static hlo_value real_isinf(hlo_builder *b, hlo_value x) { return EQK(ABS(x), INFINITY); }

static hlo_value unary_isinf(hlo_builder *b, hlo_value x) {
    if (math_is_complex(x)) return OR(real_isinf(b, hlo_real(b, x)), real_isinf(b, hlo_imag(b, x)));
    return math_is_floating(x) ? real_isinf(b, x) : constant_false(b, x);
}

static hlo_value unary_isfinite(hlo_builder *b, hlo_value x) {
    if (math_is_complex(x)) return AND(hlo_is_finite(b, hlo_real(b, x)), hlo_is_finite(b, hlo_imag(b, x)));
    return math_is_floating(x) ? hlo_is_finite(b, x) : NOT(constant_false(b, x));
}

static hlo_value unary_isposinf(hlo_builder *b, hlo_value x) {
    if (math_is_complex(x)) return hlo_fail(b, STATUS_RUNTIME, "isposinf does not support complex inputs.");
    return math_is_floating(x) ? EQK(x, INFINITY) : constant_false(b, x);
}

static hlo_value unary_isneginf(hlo_builder *b, hlo_value x) {
    if (math_is_complex(x)) return hlo_fail(b, STATUS_RUNTIME, "isneginf does not support complex inputs.");
    return math_is_floating(x) ? EQK(x, -INFINITY) : constant_false(b, x);
}

static hlo_value unary_logical_not(hlo_builder *b, hlo_value x) { return NOT(hlo_convert(b, x, DTYPE_BOOL)); }

/* ---- nan_to_num ---- */

static double largest_finite(dtype t) {
    switch (t) {
        case DTYPE_F16:
            return 65504;
        case DTYPE_BF16:
            return 0x1.FEp127;
        case DTYPE_F8E4M3FN:
            return 448;
        case DTYPE_F8E5M2:
            return 57344;
        case DTYPE_F8E4M3FNUZ:
            return 240;
        case DTYPE_F8E5M2FNUZ:
            return 57344;
        case DTYPE_F32:
            return 0x1.FFFFFEp127;
        default:
            return 0x1.FFFFFFFFFFFFFp1023;
    }
}

static hlo_value replace_nonfinite(lowering *l, hlo_value x) {
    hlo_builder *b = lower_builder(l);
    if (!x) return NULL;
    double largest = largest_finite(x->dtype);
    hlo_value nan = arg_number_or(l, 1, x->dtype, 0);
    hlo_value high = arg_number_or(l, 2, x->dtype, largest), low = arg_number_or(l, 3, x->dtype, -largest);
    hlo_value r = IF(hlo_is_nan(b, x), nan, x);
    r = IF(EQK(x, INFINITY), high, r);
    return IF(EQK(x, -INFINITY), low, r);
}

static void lower_nan_to_num(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (math_is_integral(x))
        result_set(l, 0, x);
    else if (!math_is_complex(x))
        result_set(l, 0, replace_nonfinite(l, x));
    else
        result_set(l, 0, hlo_complex(b, replace_nonfinite(l, hlo_real(b, x)), replace_nonfinite(l, hlo_imag(b, x))));
}

/* ---- frexp ---- */

/* x = mantissa * 2^exponent with 0.5 <= |mantissa| < 1; 0, inf and nan are their own mantissa with exponent 0. Only
 * bits are used: floating-point operations may take subnormal numbers for zero. A subnormal number's leading one is
 * shifted to its place; its exponent is that of the smallest normal number less the shift. */
static void frexp_values(hlo_builder *b, hlo_value x, hlo_value *mantissa, hlo_value *exponent) {
    *mantissa = *exponent = NULL;
    if (!math_require(b, x, KIND_FLOAT, "frexp_cpu")) return;
    if (x->dtype != DTYPE_F64) x = hlo_convert(b, x, DTYPE_F32);
    bool wide = x->dtype == DTYPE_F64;
    dtype word = wide ? DTYPE_I64 : DTYPE_I32;
    int fraction_bits = wide ? 52 : 23, exponent_bits = wide ? 11 : 8, bias = wide ? 1022 : 126;
    int64_t sign_bit = wide ? INT64_MIN : INT32_MIN, fraction_ones = ((int64_t)1 << fraction_bits) - 1;
    hlo_value bits = hlo_bitcast_convert(b, x, word);
    hlo_value fraction_mask = hlo_constant_int(b, word, 0, NULL, fraction_ones);
    hlo_value sign = AND(bits, hlo_constant_int(b, word, 0, NULL, sign_bit)), fraction = AND(bits, fraction_mask);
    hlo_value field =
        AND(hlo_shift_right_logical(b, bits, K(bits, fraction_bits)), K(bits, (double)((1 << exponent_bits) - 1)));
    hlo_value subnormal = EQK(field, 0),
              plain = OR(AND(subnormal, EQK(fraction, 0)), EQK(field, (1 << exponent_bits) - 1));
    hlo_value shift = ADDK(hlo_count_leading_zeros(b, IF(plain, K(fraction, 1), fraction)), -exponent_bits);
    fraction = IF(AND(subnormal, NOT(plain)),
                  AND(hlo_shift_left(b, fraction, IF(subnormal, shift, K(shift, 0))), fraction_mask), fraction);
    hlo_value e = IF(subnormal, SUBFROM(1 - bias, shift), ADDK(field, -bias));
    hlo_value half = hlo_constant_int(b, word, 0, NULL, (int64_t)bias << fraction_bits);
    *exponent = IF(plain, K(e, 0), e);
    *mantissa = hlo_bitcast_convert(b, IF(plain, bits, OR(OR(sign, fraction), half)), x->dtype);
}

static void lower_frexp(lowering *l) {
    hlo_value mantissa, exponent;
    frexp_values(lower_builder(l), arg_tensor(l, 0), &mantissa, &exponent);
    result_set(l, 0, mantissa);
    result_set(l, 1, exponent);
}

/* ---- logit ---- */

static void lower_logit(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!math_require(b, x, KIND_FLOAT, "logit_cpu")) return;
    if (arg_given(l, 1)) {
        hlo_value eps = arg_number(l, 1, x->dtype), high = SUB(hlo_scalar(b, x->dtype, 1), eps);
        x = IF(LT(x, eps), eps, IF(GT(x, high), high, x));
    }
    result_set(l, 0, LOG(DIV(x, SUBFROM(1, x))));
}

#define BOTH_UNARY(aten, prims, rule, function) ROW_UNARY(aten, rule, 0, function), PRIM_UNARY(prims, rule, 0, function)
/* Whose out= is of bool, which PyTorch's own metadata checks. */
#define BOOL_ONLY(name, function) \
    { "aten::" name, PROMOTE_NONE, OP_COMPARE, .unary = function }
#define TEST_UNARY(name, function) \
    { "aten::" name, PROMOTE_NONE, OP_COMPARE, .unary = function, .meta = META_ELEMENTWISE }

const op_row ops_unary[] = {
    /* rounding */
    BOTH_UNARY("ceil", "ceil", PROMOTE, unary_ceil),
    BOTH_UNARY("floor", "floor", PROMOTE, unary_floor),
    BOTH_UNARY("round", "round", PROMOTE, unary_round),
    BOTH_UNARY("trunc", "trunc", PROMOTE, unary_trunc),
    ROW_LOWER("round.decimals", PROMOTE, 0, lower_round_decimals),
    ROW_UNARY("frac", PROMOTE, 0, unary_frac),
    /* sign and magnitude */
    {"aten::abs", PROMOTE, .unary = unary_abs},
    {"prims::abs", PROMOTE, .unary = unary_abs},
    {"aten::neg", PROMOTE, .unary = unary_neg, .meta = META_ELEMENTWISE},
    {"prims::neg", PROMOTE, .unary = unary_neg},
    {"aten::sign", PROMOTE, .unary = unary_sign, .meta = META_ELEMENTWISE},
    {"prims::sign", PROMOTE, .unary = unary_sign},
    {"aten::sgn", PROMOTE, .unary = unary_sgn, .meta = META_ELEMENTWISE},
    BOOL_ONLY("signbit", unary_signbit),
    {"prims::signbit", PROMOTE_NONE, OP_COMPARE, .unary = unary_signbit},
    /* powers, exponentials, logarithms */
    BOTH_UNARY("exp", "exp", PROMOTE_REAL, hlo_exponential),
    BOTH_UNARY("exp2", "exp2", PROMOTE_REAL, unary_exp2),
    BOTH_UNARY("expm1", "expm1", PROMOTE_REAL, hlo_exponential_minus_one),
    BOTH_UNARY("log", "log", PROMOTE_REAL, hlo_log),
    BOTH_UNARY("log1p", "log1p", PROMOTE_REAL, hlo_log_plus_one),
    BOTH_UNARY("log2", "log2", PROMOTE_REAL, unary_log2),
    BOTH_UNARY("log10", "log10", PROMOTE_REAL, unary_log10),
    BOTH_UNARY("sqrt", "sqrt", PROMOTE_REAL, hlo_sqrt),
    BOTH_UNARY("rsqrt", "rsqrt", PROMOTE_REAL, hlo_rsqrt),
    BOTH_UNARY("reciprocal", "reciprocal", PROMOTE_REAL, unary_reciprocal),
    ROW_UNARY("square", PROMOTE, 0, unary_square),
    PRIM_UNARY("cbrt", PROMOTE_REAL, 0, unary_cbrt),
    /* trigonometric, hyperbolic */
    BOTH_UNARY("sin", "sin", PROMOTE_REAL, hlo_sine),
    BOTH_UNARY("cos", "cos", PROMOTE_REAL, hlo_cosine),
    BOTH_UNARY("tan", "tan", PROMOTE_REAL, hlo_tan),
    BOTH_UNARY("asin", "asin", PROMOTE_REAL, hlo_asin),
    BOTH_UNARY("acos", "acos", PROMOTE_REAL, hlo_acos),
    BOTH_UNARY("atan", "atan", PROMOTE_REAL, unary_atan),
    BOTH_UNARY("sinh", "sinh", PROMOTE_REAL, hlo_sinh),
    BOTH_UNARY("cosh", "cosh", PROMOTE_REAL, hlo_cosh),
    BOTH_UNARY("tanh", "tanh", PROMOTE_REAL, hlo_tanh),
    BOTH_UNARY("asinh", "asinh", PROMOTE_REAL, hlo_asinh),
    BOTH_UNARY("acosh", "acosh", PROMOTE_REAL, hlo_acosh),
    BOTH_UNARY("atanh", "atanh", PROMOTE_REAL, hlo_atanh),
    ROW_UNARY("deg2rad", PROMOTE_REAL, 0, unary_deg2rad),
    ROW_UNARY("rad2deg", PROMOTE_REAL, 0, unary_rad2deg),
    ROW_UNARY("sinc", PROMOTE_REAL, 0, unary_sinc),
    /* error and gamma functions, logistic */
    BOTH_UNARY("erf", "erf", PROMOTE_REAL, unary_erf),
    BOTH_UNARY("erfc", "erfc", PROMOTE_REAL, unary_erfc),
    BOTH_UNARY("erfinv", "erf_inv", PROMOTE_REAL, unary_erfinv),
    BOTH_UNARY("lgamma", "lgamma", PROMOTE_REAL, unary_lgamma),
    BOTH_UNARY("digamma", "digamma", PROMOTE_REAL, unary_digamma),
    ROW_UNARY("sigmoid", PROMOTE_REAL, 0, hlo_logistic),
    {"aten::logit", PROMOTE_REAL, OP_OPMATH, .lower = lower_logit},
    /* classes of numbers */
    TEST_UNARY("isnan", unary_isnan),
    TEST_UNARY("isinf", unary_isinf),
    TEST_UNARY("isfinite", unary_isfinite),
    {"prims::isfinite", PROMOTE_NONE, OP_COMPARE, .unary = unary_isfinite},
    BOOL_ONLY("isposinf", unary_isposinf),
    BOOL_ONLY("isneginf", unary_isneginf),
    TEST_UNARY("logical_not", unary_logical_not),
    {"aten::nan_to_num", PROMOTE_NONE, .lower = lower_nan_to_num},
    {"aten::frexp.Tensor", PROMOTE_NONE, .lower = lower_frexp},
    {"prims::frexp", PROMOTE_NONE, .lower = lower_frexp},
    {NULL}};
