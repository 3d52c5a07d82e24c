/* Activation functions and their derivatives, as the CPU's kernels compute them
 * (aten/src/ATen/native/cpu/Activation.cpp). In a backward operator x is the forward's operand unless it says result.
 */
#include <string.h>

#include "ops/formula.h"

#define NUMBER(i) arg_number(l, i, x ? x->dtype : DTYPE_F32)

static hlo_value operand(lowering *l, int i, int kinds, const char *kernel) {
    hlo_value x = arg_tensor(l, i);
    return math_require(lower_builder(l), x, kinds, kernel) ? x : NULL;
}

/* ---- piecewise linear ---- */

static hlo_value relu(hlo_builder *b, hlo_value x) {
    if (x && x->dtype == DTYPE_BOOL) return hlo_fail(b, STATUS_RUNTIME, "Boolean inputs not supported for relu");
    return math_require(b, x, KIND_INT | KIND_FLOAT, "clamp_min_scalar_cpu") ? MAX(x, K(x, 0)) : NULL;
}

static hlo_value relu6(hlo_builder *b, hlo_value x) { return hlo_clamp(b, K(x, 0), x, K(x, 6)); }

static void lower_hardtanh(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = operand(l, 0, KIND_INT | KIND_FLOAT, "hardtanh");
    result_set(l, 0, MIN(MAX(x, NUMBER(1)), NUMBER(2)));
}

static void lower_hardtanh_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = arg_tensor(l, 1);
    result_set(l, 0, IF(OR(LE(x, NUMBER(2)), GE(x, NUMBER(3))), K(g, 0), g));
}

static void lower_threshold(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = operand(l, 0, KIND_INT | KIND_FLOAT, "threshold_cpu");
    result_set(l, 0, IF(LE(x, NUMBER(1)), NUMBER(2), x));
}

static void lower_threshold_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = operand(l, 1, KIND_INT | KIND_FLOAT, "threshold_cpu");
    result_set(l, 0, IF(LE(x, NUMBER(2)), K(g, 0), g));
}

static void lower_leaky_relu(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = operand(l, 0, KIND_FLOAT, "leaky_relu_cpu");
    result_set(l, 0, IF(GTK(x, 0), x, MUL(x, NUMBER(1))));
}

/* The same from the operand or the result: with a positive slope they have one sign. */
static void lower_leaky_relu_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = arg_tensor(l, 1);
    result_set(l, 0, IF(GTK(x, 0), g, MUL(g, NUMBER(2))));
}

static hlo_value prelu(hlo_builder *b, hlo_value x, hlo_value weight) { return IF(GTK(x, 0), x, MUL(weight, x)); }

static void lower_prelu_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = arg_tensor(l, 1), weight = arg_tensor(l, 2);
    hlo_value positive = GTK(x, 0);
    result_set(l, 0, IF(positive, g, MUL(weight, g)));
    result_set(l, 1, IF(positive, K(g, 0), MUL(x, g)));
}

/* Noise is the slope that each negative element got; 1 for the others. Outside training all have the mean slope. */
static void lower_rrelu(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = operand(l, 0, KIND_FLOAT, "rrelu_with_noise_out_cpu"), noise = arg_tensor(l, 1);
    if (!x) return;
    hlo_value lower = NUMBER(2), upper = NUMBER(3), negative = LEK(x, 0);
    if (!arg_bool(l, 4)) {
        result_set(l, 0, IF(GTK(x, 0), x, MUL(x, MULK(ADD(lower, upper), 0.5))));
        result_set(l, 1, noise);
        return;
    }
    hlo_value slope = ADD(lower, MUL(SUB(upper, lower), random_uniform(l, x->dtype, x->rank, x->dims)));
    result_set(l, 0, IF(negative, MUL(x, slope), x));
    result_set(l, 1, IF(negative, slope, K(x, 1)));
}

static void lower_rrelu_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = arg_tensor(l, 1), noise = arg_tensor(l, 2);
    hlo_value lower = NUMBER(3), upper = NUMBER(4), slope = MULK(ADD(lower, upper), 0.5);
    hlo_value fixed = IF(GTK(x, 0), g, MUL(g, slope));
    if (!arg_bool(l, 5))
        result_set(l, 0, fixed);
    else
        result_set(l, 0, IF(GTK(SUB(upper, lower), 1e-6), MUL(g, noise), fixed));
}

static void lower_hardshrink(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = operand(l, 0, KIND_FLOAT, "hardshrink_cpu"), lambda = NUMBER(1);
    result_set(l, 0, IF(AND(GE(x, NEG(lambda)), LE(x, lambda)), K(x, 0), x));
}

/* Zero inside [-lambda, lambda] written as x * 0, so that NaN stays. */
static void lower_softshrink(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = operand(l, 0, KIND_FLOAT, "softshrink_cpu"), lambda = NUMBER(1);
    result_set(l, 0, IF(GT(x, lambda), SUB(x, lambda), IF(LT(x, NEG(lambda)), ADD(x, lambda), MULK(x, 0))));
}

/* Of hardshrink and softshrink. */
static void lower_shrink_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = operand(l, 1, KIND_FLOAT, "shrink_backward_cpu"), lambda = NUMBER(2);
    result_set(l, 0, IF(AND(GE(x, NEG(lambda)), LE(x, lambda)), K(g, 0), g));
}

static hlo_value ramp(hlo_builder *b, hlo_value x) { return MIN(MAX(ADDK(x, 3), K(x, 0)), K(x, 6)); }

static hlo_value hardsigmoid(hlo_builder *b, hlo_value x) {
    return math_require(b, x, KIND_FLOAT, "hardsigmoid_cpu") ? MULK(ramp(b, x), 1.0 / 6) : NULL;
}
static hlo_value hardsigmoid_backward(hlo_builder *b, hlo_value g, hlo_value x) {
    return IF(AND(GTK(x, -3), LTK(x, 3)), MULK(g, 1.0 / 6), K(g, 0));
}
static hlo_value hardswish(hlo_builder *b, hlo_value x) {
    return math_require(b, x, KIND_FLOAT, "hardswish_cpu") ? MULK(MUL(x, ramp(b, x)), 1.0 / 6) : NULL;
}
static hlo_value hardswish_backward(hlo_builder *b, hlo_value g, hlo_value x) {
    hlo_value middle = MUL(g, ADDK(MULK(x, 1.0 / 3), 0.5));
    return IF(LEK(x, -3), K(g, 0), IF(LTK(x, 3), middle, g));
}

/* ---- exponential ---- */

static hlo_value elu(hlo_builder *b, hlo_value x, hlo_value negative, hlo_value positive, hlo_value input_scale) {
    return IF(LEK(x, 0), MUL(EXPM1(MUL(x, input_scale)), negative), MUL(x, positive));
}

static void lower_elu(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = operand(l, 0, KIND_FLOAT, "elu_cpu"), scale = NUMBER(2);
    result_set(l, 0, elu(b, x, MUL(NUMBER(1), scale), scale, NUMBER(3)));
}

static void lower_celu(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = operand(l, 0, KIND_FLOAT, "elu_cpu"), alpha = NUMBER(1);
    result_set(l, 0, elu(b, x, alpha, K(alpha, 1), DIVINTO(1, alpha)));
}

/* alpha and scale of Klambauer et al., "Self-Normalizing Neural Networks", 2017. */
static hlo_value selu(hlo_builder *b, hlo_value x) {
    const double alpha = 1.6732632423543772848170429916717, scale = 1.0507009873554804934193349852946;
    if (!math_require(b, x, KIND_FLOAT, "elu_cpu")) return NULL;
    return elu(b, x, K(x, alpha * scale), K(x, scale), K(x, 1));
}

static void lower_elu_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = arg_tensor(l, 5);
    hlo_value alpha = NUMBER(1), scale = NUMBER(2), input_scale = NUMBER(3), negative = MUL(alpha, scale);
    hlo_value slope =
        arg_bool(l, 4) ? MUL(input_scale, ADD(x, negative)) : MUL(MUL(input_scale, negative), EXP(MUL(x, input_scale)));
    result_set(l, 0, MUL(g, IF(LEK(x, 0), slope, scale)));
}

static void lower_softplus(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = operand(l, 0, KIND_FLOAT, "softplus_cpu"), beta = NUMBER(1), scaled = MUL(x, beta);
    result_set(l, 0, IF(GT(scaled, NUMBER(2)), x, DIV(LOG1P(EXP(scaled)), beta)));
}

static void lower_softplus_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = operand(l, 1, KIND_FLOAT, "softplus_backward_cpu");
    hlo_value scaled = MUL(x, NUMBER(2));
    result_set(l, 0, IF(GT(scaled, NUMBER(3)), g, MUL(g, hlo_logistic(b, scaled))));
}

static hlo_value silu(hlo_builder *b, hlo_value x) {
    return math_require(b, x, KIND_FLOAT | KIND_COMPLEX, "silu_cpu") ? MUL(x, hlo_logistic(b, x)) : NULL;
}
static hlo_value silu_backward(hlo_builder *b, hlo_value g, hlo_value x) {
    hlo_value s = hlo_logistic(b, x);
    return MUL(MUL(g, s), ADDK(MUL(x, SUBFROM(1, s)), 1));
}

static hlo_value mish(hlo_builder *b, hlo_value x) {
    return math_require(b, x, KIND_FLOAT, "mish_cpu") ? MUL(x, hlo_tanh(b, LOG1P(EXP(x)))) : NULL;
}
static hlo_value mish_backward(hlo_builder *b, hlo_value g, hlo_value x) {
    hlo_value s = hlo_logistic(b, x), t = hlo_tanh(b, LOG1P(EXP(x)));
    return MUL(g, ADD(t, MUL(MUL(x, s), SUBFROM(1, MUL(t, t)))));
}

/* result = min(x, 0) - log1p(z), z = exp(-|x|), which the CPU's operator also hands to its backward. */
static void lower_log_sigmoid(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = operand(l, 0, KIND_FLOAT, "log_sigmoid_cpu"), z = EXP(NEG(ABS(x)));
    result_set(l, 0, SUB(MIN(x, K(x, 0)), LOG1P(z)));
    if (x && result_wanted(l, 1)) {
        bool keeps = result_rank(l, 1) == x->rank;
        for (int d = 0; keeps && d < x->rank; d++) keeps = result_dims(l, 1)[d] == x->dims[d];
        result_set(l, 1, keeps ? z : hlo_constant_float(b, x->dtype, result_rank(l, 1), result_dims(l, 1), 0));
    }
}

static void lower_log_sigmoid_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 1);
    result_set(l, 0, MUL(arg_tensor(l, 0), hlo_logistic(b, NEG(x))));
}

/* ---- gelu ---- */

static const double gelu_cubic = 0.044715;

static hlo_value gelu_tanh(hlo_builder *b, hlo_value x) {
    hlo_value cube = MUL(MUL(x, x), x);
    return hlo_tanh(b, MULK(ADD(x, MULK(cube, gelu_cubic)), M_SQRT2 * M_2_SQRTPI * 0.5));
}

static bool gelu_is_tanh(lowering *l, int i) {
    const char *how = arg_string(l, i);
    if (how && !strcmp(how, "tanh")) return true;
    if (how && strcmp(how, "none"))
        hlo_fail(lower_builder(l), STATUS_RUNTIME, "approximate argument must be either none or tanh.");
    return false;
}

static void lower_gelu(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = operand(l, 0, KIND_FLOAT, "GeluKernelImpl");
    hlo_value s = gelu_is_tanh(l, 1) ? gelu_tanh(b, x) : hlo_erf(b, MULK(x, M_SQRT1_2));
    result_set(l, 0, MUL(MULK(x, 0.5), ADDK(s, 1)));
}

static void lower_gelu_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = operand(l, 1, KIND_FLOAT, "GeluBackwardKernelImpl");
    if (gelu_is_tanh(l, 2)) {
        hlo_value t = gelu_tanh(b, x);
        hlo_value inner = MULK(ADDK(MULK(MUL(x, x), 3 * gelu_cubic), 1), M_SQRT2 * M_2_SQRTPI * 0.5);
        hlo_value right = MUL(MUL(MULK(x, 0.5), SUBFROM(1, MUL(t, t))), inner);
        result_set(l, 0, MUL(g, ADD(MULK(ADDK(t, 1), 0.5), right)));
        return;
    }
    hlo_value cdf = MULK(ADDK(hlo_erf(b, MULK(x, M_SQRT1_2)), 1), 0.5);
    hlo_value pdf = MULK(EXP(MULK(MUL(x, x), -0.5)), M_2_SQRTPI * M_SQRT1_2 * 0.5);
    result_set(l, 0, MUL(g, ADD(cdf, MUL(x, pdf))));
}

/* ---- derivatives in terms of the result ---- */

static hlo_value conjugate(hlo_builder *b, hlo_value x) { return math_is_complex(x) ? hlo_conj(b, x) : x; }

static hlo_value sigmoid_backward(hlo_builder *b, hlo_value g, hlo_value result) {
    return MUL(g, conjugate(b, MUL(SUBFROM(1, result), result)));
}
static hlo_value tanh_backward(hlo_builder *b, hlo_value g, hlo_value result) {
    return MUL(g, conjugate(b, SUBFROM(1, MUL(result, result))));
}

static void lower_logit_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0), x = arg_tensor(l, 1);
    hlo_value slope = DIV(g, MUL(x, SUBFROM(1, x)));
    hlo_value low = arg_given(l, 2) ? NUMBER(2) : K(x, 0), high = SUBFROM(1, low);
    hlo_value outside = K(g, arg_given(l, 2) ? 0 : NAN);
    result_set(l, 0, IF(OR(LT(x, low), GT(x, high)), outside, slope));
}

/* ---- glu: a * sigmoid(b) for the halves a, b of a dimension ---- */

typedef struct {
    hlo_value first, second;
    int dim;
} halves;

static halves split(lowering *l, hlo_value x, int64_t dim) {
    halves h = {NULL, NULL, 0};
    if (!x) return h;
    int64_t d = dim_wrap(dim, x->rank);
    if (x->rank == 0 || d < 0) {
        hlo_fail(lower_builder(l), x->rank ? STATUS_INDEX : STATUS_RUNTIME,
                 x->rank ? "Dimension out of range" : "glu does not support 0-dimensional tensors");
        return h;
    }
    int64_t n = x->dims[d];
    if (n % 2) {
        hlo_fail(lower_builder(l), STATUS_RUNTIME, "Halving dimension must be even, but dimension %lld is size %lld",
                 (long long)d, (long long)n);
        return h;
    }
    h.dim = (int)d;
    h.first = hlo_slice_dim(lower_builder(l), x, h.dim, 0, n / 2, 1);
    h.second = hlo_slice_dim(lower_builder(l), x, h.dim, n / 2, n, 1);
    return h;
}

static hlo_value join(hlo_builder *b, hlo_value first, hlo_value second, int dim) {
    hlo_value parts[2] = {first, second};
    return hlo_concatenate(b, 2, parts, dim);
}

static void lower_glu(lowering *l) {
    hlo_builder *b = lower_builder(l);
    halves x = split(l, operand(l, 0, KIND_FLOAT, "glu_cpu"), arg_int(l, 1));
    result_set(l, 0, MUL(x.first, hlo_logistic(b, x.second)));
}

static void lower_glu_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0);
    halves x = split(l, arg_tensor(l, 1), arg_int(l, 2));
    hlo_value s = hlo_logistic(b, x.second), slope = MUL(s, SUBFROM(1, s));
    result_set(l, 0, join(b, MUL(g, s), MUL(MUL(g, slope), x.first), x.dim));
}

static void lower_glu_jvp(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value result = arg_tensor(l, 0);
    int64_t dim = arg_int(l, 3);
    halves x = split(l, arg_tensor(l, 1), dim), dx = split(l, arg_tensor(l, 2), dim);
    hlo_value s = hlo_logistic(b, x.second);
    result_set(l, 0, ADD(MUL(dx.first, s), MUL(result, MUL(SUBFROM(1, s), dx.second))));
}

static void lower_glu_backward_jvp(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 1), dg = arg_tensor(l, 3);
    int64_t dim = arg_int(l, 5);
    halves x = split(l, arg_tensor(l, 2), dim), dx = split(l, arg_tensor(l, 4), dim);
    hlo_value s = hlo_logistic(b, x.second), s1 = MUL(s, SUBFROM(1, s)), s2 = MUL(s1, SUBFROM(1, MULK(s, 2)));
    hlo_value first = ADD(MUL(dg, s), MUL(MUL(g, s1), dx.second));
    hlo_value second = ADD(MUL(s1, ADD(MUL(dg, x.first), MUL(g, dx.first))), MUL(MUL(MUL(g, x.first), s2), dx.second));
    result_set(l, 0, join(b, first, second, x.dim));
}

#define UNARY(name, function) ROW_UNARY(name, PROMOTE, 0, function)
#define BINARY(name, function) \
    { "aten::" name, PROMOTE, OP_OPMATH, .binary = function }
#define LOWER(name, function) \
    { "aten::" name, PROMOTE_NONE, OP_OPMATH, .lower = function }

const op_row ops_activation[] = {
    UNARY("relu", relu),
    UNARY("relu6", relu6),
    LOWER("hardtanh", lower_hardtanh),
    {"aten::hardtanh_backward", PROMOTE, OP_OPMATH, .lower = lower_hardtanh_backward},
    LOWER("threshold", lower_threshold),
    {"aten::threshold_backward", PROMOTE, OP_OPMATH, .lower = lower_threshold_backward},
    LOWER("leaky_relu", lower_leaky_relu),
    LOWER("leaky_relu_backward", lower_leaky_relu_backward),
    BINARY("_prelu_kernel", prelu),
    LOWER("_prelu_kernel_backward", lower_prelu_backward),
    {"aten::rrelu_with_noise", PROMOTE_NONE, OP_OPMATH | OP_RANDOM, .lower = lower_rrelu},
    {"aten::rrelu_with_noise_functional", PROMOTE_NONE, OP_OPMATH | OP_RANDOM, .lower = lower_rrelu},
    LOWER("rrelu_with_noise_backward", lower_rrelu_backward),
    LOWER("hardshrink", lower_hardshrink),
    LOWER("hardshrink_backward", lower_shrink_backward),
    LOWER("softshrink", lower_softshrink),
    LOWER("softshrink_backward", lower_shrink_backward),
    UNARY("hardsigmoid", hardsigmoid),
    BINARY("hardsigmoid_backward", hardsigmoid_backward),
    UNARY("hardswish", hardswish),
    BINARY("hardswish_backward", hardswish_backward),
    LOWER("elu", lower_elu),
    LOWER("celu", lower_celu),
    UNARY("selu", selu),
    LOWER("elu_backward", lower_elu_backward),
    LOWER("softplus", lower_softplus),
    LOWER("softplus_backward", lower_softplus_backward),
    UNARY("silu", silu),
    BINARY("silu_backward", silu_backward),
    UNARY("mish", mish),
    BINARY("mish_backward", mish_backward),
    LOWER("log_sigmoid_forward", lower_log_sigmoid),
    LOWER("log_sigmoid_backward", lower_log_sigmoid_backward),
    LOWER("gelu", lower_gelu),
    LOWER("gelu_backward", lower_gelu_backward),
    BINARY("sigmoid_backward", sigmoid_backward),
    BINARY("tanh_backward", tanh_backward),
    LOWER("logit_backward", lower_logit_backward),
    LOWER("glu", lower_glu),
    LOWER("glu_backward", lower_glu_backward),
    LOWER("glu_jvp", lower_glu_jvp),
    LOWER("glu_backward_jvp", lower_glu_backward_jvp),
    {NULL}};
