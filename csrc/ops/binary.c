/* Elementwise arithmetic of two and more operands. */
#include <string.h>

#include "ops/formula.h"

/* ---- add, sub, rsub: with a multiple of the second operand ---- */

/* The rules of alpha (aten/src/ATen/native/BinaryOps.h, alpha_check). */
static bool alpha_fits(lowering *l, dtype common) {
    dtype t = arg_given(l, 2) ? arg_tensor_dtype(l, 2) : DTYPE_INVALID;
    hlo_builder *b = lower_builder(l);
    if (t == DTYPE_BOOL && common != DTYPE_BOOL)
        hlo_fail(b, STATUS_RUNTIME, "Boolean alpha only supported for Boolean results.");
    else if (dtype_is_complex(t) && !dtype_is_complex(common))
        hlo_fail(b, STATUS_RUNTIME, "For non-complex input tensors, argument alpha must not be a complex number.");
    else if (dtype_is_float(t) && !dtype_is_float(common) && !dtype_is_complex(common))
        hlo_fail(b, STATUS_RUNTIME, "For integral input tensors, argument alpha must not be a floating point number.");
    return !hlo_status(b);
}

/* alpha * y; the multiplication by 1 is left to the compiler, as alpha may be a run-time input. */
static hlo_value scaled_operand(lowering *l, hlo_value y) {
    if (!y || !alpha_fits(l, lower_common_dtype(l))) return NULL;
    return arg_given(l, 2) ? hlo_multiply(lower_builder(l), y, arg_number(l, 2, y->dtype)) : y;
}

static void lower_add(lowering *l) {
    result_set(l, 0, hlo_add(lower_builder(l), arg_tensor(l, 0), scaled_operand(l, arg_tensor(l, 1))));
}

static bool subtraction_is_defined(lowering *l) {
    dtype x = arg_tensor_dtype(l, 0), y = arg_tensor_dtype(l, 1);
    if (x == DTYPE_BOOL && y == DTYPE_BOOL)
        hlo_fail(lower_builder(l), STATUS_RUNTIME,
                 "Subtraction, the `-` operator, with two bool tensors is not supported. "
                 "Use the `^` or `logical_xor()` operator instead.");
    else if (x == DTYPE_BOOL || y == DTYPE_BOOL)
        hlo_fail(lower_builder(l), STATUS_RUNTIME,
                 "Subtraction, the `-` operator, with a bool tensor is not supported. If you are "
                 "trying to invert a mask, use the `~` or `logical_not()` operator instead.");
    return !hlo_status(lower_builder(l));
}

static void lower_sub(lowering *l) {
    if (!subtraction_is_defined(l)) return;
    result_set(l, 0, hlo_subtract(lower_builder(l), arg_tensor(l, 0), scaled_operand(l, arg_tensor(l, 1))));
}

static void lower_rsub(lowering *l) {
    if (!subtraction_is_defined(l)) return;
    result_set(l, 0, hlo_subtract(lower_builder(l), arg_tensor(l, 1), scaled_operand(l, arg_tensor(l, 0))));
}

static void lower_add_relu(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value sum = ADD(arg_tensor(l, 0), scaled_operand(l, arg_tensor(l, 1)));
    result_set(l, 0, MAX(sum, K(sum, 0)));
}

/* ---- division and remainders ---- */

static void lower_div_mode(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), y = arg_tensor(l, 1);
    if (!x || !y) return;
    const char *mode = arg_string(l, 2);
    if (!mode) {
        dtype t = dtype_opmath(result_dtype(l, 0));
        result_set(l, 0, DIV(hlo_convert(b, x, t), hlo_convert(b, y, t)));
    } else if (!strcmp(mode, "floor")) {
        if (math_require(b, x, KIND_BOOL | KIND_INT | KIND_FLOAT, "div_floor"))
            result_set(l, 0, math_floor_divide(b, x, y));
    } else if (!strcmp(mode, "trunc")) {
        /* The CPU's kernel rounds the quotient to its type before it cuts the fraction off. */
        if (math_require(b, x, KIND_BOOL | KIND_INT | KIND_FLOAT, "div_trunc")) {
            hlo_value quotient = hlo_convert(b, DIV(x, y), lower_common_dtype(l));
            result_set(l, 0, math_truncate(b, hlo_convert(b, quotient, x->dtype)));
        }
    } else {
        hlo_fail(b, STATUS_RUNTIME, "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '%s'",
                 mode);
    }
}

static hlo_value binary_floor_divide(hlo_builder *b, hlo_value x, hlo_value y) {
    return math_require(b, x, KIND_BOOL | KIND_INT | KIND_FLOAT, "div_floor") ? math_floor_divide(b, x, y) : NULL;
}
static hlo_value binary_remainder(hlo_builder *b, hlo_value x, hlo_value y) {
    return math_require(b, x, KIND_INT | KIND_FLOAT, "remainder_cpu") ? math_modulo(b, x, y) : NULL;
}
static hlo_value binary_fmod(hlo_builder *b, hlo_value x, hlo_value y) {
    return math_require(b, x, KIND_INT | KIND_FLOAT, "fmod_cpu") ? hlo_remainder(b, x, y) : NULL;
}
/* prims::div keeps its operands' type: of integers it is the quotient towards zero. */
static hlo_value binary_prims_div(hlo_builder *b, hlo_value x, hlo_value y) { return DIV(x, y); }

/* ---- powers ---- */

/* The exponents that the CPU kernel computes without pow (PowKernel.cpp), and small whole ones. */
static hlo_value constant_power(hlo_builder *b, hlo_value x, double e) {
    bool integral = math_is_integral(x);
    if (e == 0) return K(x, 1);
    if (e == 1) return x;
    if (e == 2) return MUL(x, x);
    if (e == 3) return MUL(MUL(x, x), x);
    if (!integral && e == 0.5) return SQRT(x);
    if (!integral && e == -0.5) return hlo_rsqrt(b, x);
    if (!integral && e == -1) return DIVINTO(1, x);
    if (!integral && e == -2) return DIVINTO(1, MUL(x, x));
    return hlo_power(b, x, K(x, e));
}

static void lower_pow_scalar_exponent(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    double e;
    if (!x) return;
    /* Whole numbers to a negative power are an error, which needs the value. */
    if (!(math_is_integral(x) ? arg_constant(l, 1, &e) : arg_fixed(l, 1, &e))) {
        result_set(l, 0, hlo_power(b, x, arg_tensor(l, 1)));
    } else if (math_is_integral(x) && e < 0) {
        hlo_fail(b, STATUS_RUNTIME, "Integers to negative integer powers are not allowed.");
    } else if (x->dtype == DTYPE_BOOL) {
        result_set(l, 0, e == 0 ? K(x, 1) : x);
    } else {
        result_set(l, 0, constant_power(b, x, e));
    }
}

static hlo_value binary_pow(hlo_builder *b, hlo_value x, hlo_value y) {
    if (x && x->dtype == DTYPE_BOOL) return OR(x, NOT(y));
    return hlo_power(b, x, y);
}

/* self * 2^other, the power taken in the common floating type. */
static hlo_value binary_ldexp(hlo_builder *b, hlo_value x, hlo_value y) { return MUL(x, math_power_of_two(b, y)); }

/* ---- extrema: maximum and minimum propagate NaN, fmax and fmin prefer the number ---- */

static hlo_value binary_maximum(hlo_builder *b, hlo_value x, hlo_value y) {
    return math_require(b, x, KIND_BOOL | KIND_INT | KIND_FLOAT, "maximum_cpu") ? MAX(x, y) : NULL;
}
static hlo_value binary_clamp_min(hlo_builder *b, hlo_value x, hlo_value y) {
    return math_require(b, x, KIND_INT | KIND_FLOAT, "clamp_min") ? MAX(x, y) : NULL;
}
static hlo_value binary_clamp_max(hlo_builder *b, hlo_value x, hlo_value y) {
    return math_require(b, x, KIND_INT | KIND_FLOAT, "clamp_max") ? MIN(x, y) : NULL;
}
static hlo_value binary_minimum(hlo_builder *b, hlo_value x, hlo_value y) {
    return math_require(b, x, KIND_BOOL | KIND_INT | KIND_FLOAT, "minimum_cpu") ? MIN(x, y) : NULL;
}

static hlo_value prefer_numbers(hlo_builder *b, hlo_value x, hlo_value y, hlo_value extremum) {
    if (!math_is_floating(x)) return extremum;
    return IF(hlo_is_nan(b, x), y, IF(hlo_is_nan(b, y), x, extremum));
}
static hlo_value binary_fmax(hlo_builder *b, hlo_value x, hlo_value y) {
    return prefer_numbers(b, x, y, binary_maximum(b, x, y));
}
static hlo_value binary_fmin(hlo_builder *b, hlo_value x, hlo_value y) {
    return prefer_numbers(b, x, y, binary_minimum(b, x, y));
}

/* The upper bound is applied last, so it wins where the bounds cross. */
static void lower_clamp(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!math_require(b, x, KIND_BOOL | KIND_INT | KIND_FLOAT, "clamp_cpu")) return;
    if (!arg_given(l, 1) && !arg_given(l, 2)) {
        hlo_fail(b, STATUS_RUNTIME, "torch.clamp: At least one of 'min' or 'max' must not be None");
        return;
    }
    if (arg_given(l, 1)) x = MAX(x, arg_tensor(l, 1));
    if (arg_given(l, 2)) x = MIN(x, arg_tensor(l, 2));
    result_set(l, 0, x);
}

/* ---- geometry, logarithms ---- */

static hlo_value binary_hypot(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!math_require(b, x, KIND_FLOAT, "hypot_cpu")) return NULL;
    hlo_value ax = ABS(x), ay = ABS(y), high = MAX(ax, ay), low = MIN(ax, ay);
    hlo_value ratio = DIV(low, high);
    hlo_value length = IF(EQK(high, 0), high, MUL(high, SQRT(ADDK(MUL(ratio, ratio), 1))));
    return IF(OR(EQK(ax, INFINITY), EQK(ay, INFINITY)), K(length, INFINITY), length);
}

/* log(exp(x) + exp(y)) around the larger operand; complex numbers are ordered by their real part (LogAddExp.h). */
static hlo_value binary_logaddexp(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!x || !y) return NULL;
    bool is_complex = dtype_is_complex(x->dtype);
    hlo_value rx = is_complex ? hlo_real(b, x) : x, ry = is_complex ? hlo_real(b, y) : y;
    hlo_value first = GE(rx, ry);
    hlo_value high = is_complex ? IF(first, x, y) : MAX(x, y), low = IF(first, y, x);
    hlo_value same = AND(EQ(x, y), EQK(ABS(rx), INFINITY));
    hlo_value difference = is_complex ? SUB(low, high) : NEG(ABS(SUB(x, y)));
    return IF(same, x, ADD(high, LOG1P(EXP(difference))));
}

static hlo_value binary_logaddexp2(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!math_require(b, x, KIND_FLOAT, "logaddexp2_cpu")) return NULL;
    hlo_value power = math_power_of_two(b, NEG(ABS(SUB(x, y))));
    return IF(AND(EQ(x, y), EQK(ABS(x), INFINITY)), x, ADD(MAX(x, y), MULK(LOG1P(power), 1 / M_LN2)));
}

static hlo_value zero_times_anything(hlo_builder *b, hlo_value x, hlo_value y, hlo_value product) {
    return IF(hlo_is_nan(b, y), y, IF(EQK(x, 0), K(product, 0), product));
}
static hlo_value binary_xlogy(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!math_require(b, x, KIND_FLOAT, "xlogy_cpu")) return NULL;
    return zero_times_anything(b, x, y, MUL(x, LOG(y)));
}
static hlo_value binary_xlog1py(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!math_require(b, x, KIND_FLOAT, "xlog1py_cpu")) return NULL;
    return zero_times_anything(b, x, y, MUL(x, LOG1P(y)));
}

static hlo_value binary_atan2(hlo_builder *b, hlo_value x, hlo_value y) {
    return math_require(b, x, KIND_FLOAT, "atan2_cpu") ? hlo_atan2(b, x, y) : NULL;
}
static hlo_value binary_nextafter(hlo_builder *b, hlo_value x, hlo_value y) {
    return math_require(b, x, KIND_FLOAT, "nextafter_cpu") ? hlo_next_after(b, x, y) : NULL;
}
static hlo_value binary_copysign(hlo_builder *b, hlo_value x, hlo_value y) {
    return math_require(b, x, KIND_FLOAT, "copysign_cpu") ? math_copy_sign(b, x, y) : NULL;
}

static hlo_value binary_heaviside(hlo_builder *b, hlo_value x, hlo_value values) {
    if (math_is_complex(x)) return hlo_fail(b, STATUS_RUNTIME, "heaviside is not yet implemented for complex tensors.");
    return x ? IF(EQK(x, 0), values, hlo_convert(b, GTK(x, 0), x->dtype)) : NULL;
}

/* ---- gcd, lcm: Euclid's algorithm on all elements until every remainder is zero ---- */

static hlo_value any_nonzero(hlo_builder *b, hlo_value x) {
    if (!x) return NULL;
    int64_t dims[HLO_MAX_RANK];
    for (int d = 0; d < x->rank; d++) dims[d] = d;
    return hlo_reduce(b, HLO_REDUCE_OR, NEK(x, 0), x->rank, dims);
}

static hlo_value binary_gcd(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!math_require(b, x, KIND_INT, "gcd_cpu") || !y) return NULL;
    hlo_value pair[2] = {ADD(x, MUL(y, K(y, 0))), ADD(y, MUL(x, K(x, 0)))}; /* broadcast to each other */
    if (!pair[0] || !pair[1]) return NULL;
    hlo_type types[2] = {{pair[0]->dtype, pair[0]->rank, pair[0]->dims},
                         {pair[1]->dtype, pair[1]->rank, pair[1]->dims}};
    hlo_value a[2], next[2], result[2];
    hlo_region_begin(b, 2, types, a);
    hlo_value more = any_nonzero(b, a[1]);
    hlo_region *condition = hlo_region_end(b, 1, &more);
    hlo_region_begin(b, 2, types, a);
    hlo_value done = EQK(a[1], 0);
    next[0] = IF(done, a[0], a[1]);
    next[1] = IF(done, a[1], hlo_remainder(b, a[0], IF(done, K(a[1], 1), a[1])));
    hlo_region *body = hlo_region_end(b, 2, next);
    hlo_while(b, 2, pair, condition, body, result);
    return result[0] && dtype_is_signed(result[0]->dtype) ? ABS(result[0]) : result[0];
}

static hlo_value binary_lcm(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!math_require(b, x, KIND_INT, "lcm_cpu")) return NULL;
    hlo_value g = binary_gcd(b, x, y), zero = EQK(g, 0);
    hlo_value multiple = MUL(DIV(x, IF(zero, K(g, 1), g)), y);
    if (multiple && dtype_is_signed(multiple->dtype)) multiple = ABS(multiple);
    return IF(zero, K(g, 0), multiple);
}

/* ---- three operands ---- */

static void lower_where(lowering *l) {
    hlo_builder *b = lower_builder(l);
    result_set(l, 0, IF(hlo_convert(b, arg_tensor(l, 0), DTYPE_BOOL), arg_tensor(l, 1), arg_tensor(l, 2)));
}

/* From the nearer end, so that both ends come out exactly (aten/src/ATen/native/Lerp.h). */
static void lower_lerp(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value start = arg_tensor(l, 0), end = arg_tensor(l, 1);
    if (!start) return;
    hlo_value weight = arg_is_tensor(l, 2) ? arg_tensor(l, 2) : arg_number(l, 2, start->dtype);
    hlo_value difference = SUB(end, start), small = LTK(ABS(weight), 0.5);
    result_set(l, 0, IF(small, ADD(start, MUL(weight, difference)), SUB(end, MUL(difference, SUBFROM(1, weight)))));
}

static void lower_addcmul(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (x) result_set(l, 0, ADD(x, MUL(MUL(arg_number_or(l, 3, x->dtype, 1), arg_tensor(l, 1)), arg_tensor(l, 2))));
}

static void lower_addcdiv(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (math_is_integral(arg_tensor(l, 1)) && math_is_integral(arg_tensor(l, 2))) {
        hlo_fail(b, STATUS_RUNTIME,
                 "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform "
                 "a true division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input "
                 "+ value * torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value "
                 "* tensor1 / tensor2) for float inputs.");
        return;
    }
    if (x) result_set(l, 0, ADD(x, DIV(MUL(arg_number_or(l, 3, x->dtype, 1), arg_tensor(l, 1)), arg_tensor(l, 2))));
}

/* ---- masks ---- */

static void lower_masked_fill(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    hlo_value mask = hlo_convert(b, arg_tensor(l, 1), DTYPE_BOOL);
    result_set(l, 0, IF(mask, arg_number(l, 2, x->dtype), x));
}

static void lower_masked_scale(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (x) result_set(l, 0, MUL(MUL(x, hlo_convert(b, arg_tensor(l, 1), x->dtype)), arg_number(l, 2, x->dtype)));
}

#define TENSOR_AND_NUMBER(name, rule, function) \
    ROW_BINARY(name ".Tensor", rule, 0, function), ROW_BINARY(name ".Scalar", rule, 0, function)
#define THREE_FORMS(name, rule, function) \
    TENSOR_AND_NUMBER(name, rule, function), ROW_BINARY(name ".Scalar_Tensor", rule, 0, function)
#define ASK_BINARY(name, rule, function) \
    { "aten::" name, rule, OP_OPMATH, .binary = function }

const op_row ops_binary[] = {{"aten::add.Tensor", PROMOTE, OP_OPMATH, .lower = lower_add, .meta = META_ELEMENTWISE},
                             {"aten::add.Scalar", PROMOTE, OP_OPMATH, .lower = lower_add, .meta = META_ELEMENTWISE},
                             {"aten::sub.Tensor", PROMOTE, OP_OPMATH, .lower = lower_sub, .meta = META_ELEMENTWISE},
                             {"aten::sub.Scalar", PROMOTE, OP_OPMATH, .lower = lower_sub, .meta = META_ELEMENTWISE},
                             {"aten::rsub.Tensor", PROMOTE, OP_OPMATH, .lower = lower_rsub, .meta = META_ELEMENTWISE},
                             {"aten::rsub.Scalar", PROMOTE, OP_OPMATH, .lower = lower_rsub, .meta = META_ELEMENTWISE},
                             ROW_LOWER("_add_relu.Tensor", PROMOTE, 0, lower_add_relu),
                             ROW_LOWER("_add_relu.Scalar", PROMOTE, 0, lower_add_relu),
                             TENSOR_AND_NUMBER("mul", PROMOTE, hlo_multiply),
                             TENSOR_AND_NUMBER("div", PROMOTE_REAL, hlo_divide),
                             TENSOR_AND_NUMBER("true_divide", PROMOTE_REAL, hlo_divide),
                             ROW_LOWER("div.Tensor_mode", PROMOTE, 0, lower_div_mode),
                             ROW_LOWER("div.Scalar_mode", PROMOTE, 0, lower_div_mode),
                             ASK_BINARY("floor_divide", PROMOTE, binary_floor_divide),
                             ASK_BINARY("floor_divide.Scalar", PROMOTE, binary_floor_divide),
                             THREE_FORMS("remainder", PROMOTE, binary_remainder),
                             TENSOR_AND_NUMBER("fmod", PROMOTE, binary_fmod),
                             PRIM_BINARY("add", PROMOTE, 0, hlo_add),
                             PRIM_BINARY("sub", PROMOTE, 0, hlo_subtract),
                             PRIM_BINARY("mul", PROMOTE, 0, hlo_multiply),
                             PRIM_BINARY("div", PROMOTE, 0, binary_prims_div),
                             PRIM_BINARY("remainder", PROMOTE, 0, binary_remainder),
                             PRIM_BINARY("fmod", PROMOTE, 0, binary_fmod),
                             /* powers */
                             ASK_BINARY("pow.Tensor_Tensor", PROMOTE, binary_pow),
                             ASK_BINARY("pow.Scalar", PROMOTE, binary_pow),
                             ROW_LOWER("pow.Tensor_Scalar", PROMOTE, 0, lower_pow_scalar_exponent),
                             PRIM_BINARY("pow", PROMOTE, 0, binary_pow),
                             ASK_BINARY("ldexp.Tensor", PROMOTE_REAL, binary_ldexp),
                             /* extrema */
                             ASK_BINARY("maximum", PROMOTE, binary_maximum),
                             ASK_BINARY("minimum", PROMOTE, binary_minimum),
                             ASK_BINARY("fmax", PROMOTE, binary_fmax),
                             ASK_BINARY("fmin", PROMOTE, binary_fmin),
                             PRIM_BINARY("maximum", PROMOTE, 0, binary_maximum),
                             PRIM_BINARY("minimum", PROMOTE, 0, binary_minimum),
                             PRIM_BINARY("fmax", PROMOTE, 0, binary_fmax),
                             PRIM_BINARY("fmin", PROMOTE, 0, binary_fmin),
                             ROW_LOWER("clamp", PROMOTE, OP_PROMOTE_NUMBERS, lower_clamp),
                             ROW_LOWER("clamp.Tensor", PROMOTE, OP_PROMOTE_NUMBERS, lower_clamp),
                             ASK_BINARY("clamp_min", PROMOTE, binary_clamp_min),
                             ASK_BINARY("clamp_min.Tensor", PROMOTE, binary_clamp_min),
                             ASK_BINARY("clamp_max", PROMOTE, binary_clamp_max),
                             ASK_BINARY("clamp_max.Tensor", PROMOTE, binary_clamp_max),
                             /* geometry, logarithms */
                             ASK_BINARY("hypot", PROMOTE, binary_hypot),
                             PRIM_BINARY("hypot", PROMOTE, 0, binary_hypot),
                             ASK_BINARY("atan2", PROMOTE_REAL, binary_atan2),
                             PRIM_BINARY("atan2", PROMOTE_REAL, 0, binary_atan2),
                             {"aten::nextafter", PROMOTE, .binary = binary_nextafter},
                             {"prims::nextafter", PROMOTE, .binary = binary_nextafter},
                             {"aten::copysign.Tensor", PROMOTE_REAL, .binary = binary_copysign},
                             {"aten::copysign.Scalar", PROMOTE_REAL, .binary = binary_copysign},
                             {"aten::heaviside", PROMOTE, .binary = binary_heaviside},
                             ASK_BINARY("logaddexp", PROMOTE, binary_logaddexp),
                             ASK_BINARY("logaddexp2", PROMOTE, binary_logaddexp2),
                             ASK_BINARY("xlogy.Tensor", PROMOTE_REAL, binary_xlogy),
                             ASK_BINARY("xlogy.Scalar_Self", PROMOTE_REAL, binary_xlogy),
                             ASK_BINARY("xlogy.Scalar_Other", PROMOTE_REAL, binary_xlogy),
                             ASK_BINARY("special_xlog1py", PROMOTE_REAL, binary_xlog1py),
                             ASK_BINARY("special_xlog1py.self_scalar", PROMOTE_REAL, binary_xlog1py),
                             ASK_BINARY("special_xlog1py.other_scalar", PROMOTE_REAL, binary_xlog1py),
                             ASK_BINARY("gcd", PROMOTE, binary_gcd),
                             PRIM_BINARY("gcd", PROMOTE, 0, binary_gcd),
                             ASK_BINARY("lcm", PROMOTE, binary_lcm),
                             /* three operands */
                             {"aten::where.self", PROMOTE_TAIL, OP_PROMOTE_NUMBERS, .lower = lower_where},
                             {"prims::where", PROMOTE_TAIL, OP_PROMOTE_NUMBERS, .lower = lower_where},
                             ROW_LOWER("lerp.Scalar", PROMOTE, 0, lower_lerp),
                             ROW_LOWER("lerp.Tensor", PROMOTE, 0, lower_lerp),
                             ROW_LOWER("addcmul", PROMOTE, 0, lower_addcmul),
                             ROW_LOWER("addcdiv", PROMOTE, 0, lower_addcdiv),
                             /* masks */
                             {"aten::masked_fill.Scalar", PROMOTE_NONE, .lower = lower_masked_fill},
                             {"aten::masked_fill.Tensor", PROMOTE_NONE, .lower = lower_masked_fill},
                             ROW_LOWER("_masked_scale", PROMOTE_NONE, 0, lower_masked_scale),
                             {NULL}};
