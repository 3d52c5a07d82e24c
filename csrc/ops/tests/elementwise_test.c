/* Elementwise operators against the C library, at the places where definitions differ; errors in PyTorch's words; lists
 * of tensors; an Adam step by its formula. */
#include "ops/tests/calls.h"

enum { N = 96 }; /* more than one vector of any device */

#define FLOAT(v) ((argument){.tag = ARG_NUMBER, .u.number = {DTYPE_F64, true, {.f = {(v), 0}}}})
#define WHOLE(v) ((argument){.tag = ARG_NUMBER, .u.number = {DTYPE_I64, true, {.i = (v)}}})

static void check_same(int n, const float *actual, const float *expected, float tolerance, const char *what) {
    for (int i = 0; i < n; i++) {
        float a = actual[i], e = expected[i];
        if (a == e || (isnan(a) && isnan(e)) || fabsf(a - e) <= tolerance * (1 + fabsf(e))) continue;
        check_failures++;
        printf("%s: element %d is %.9g, expected %.9g\n", what, i, (double)a, (double)e);
        return;
    }
}

/* ---- one operand ---- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double relu(double x) { return x < 0 ? 0 : x; }
static double silu(double x) { return x * sigmoid(x); }
static double mish(double x) { return x * tanh(log1p(exp(x))); }
static double sign(double x) { return (x > 0) - (x < 0); }
static double reciprocal(double x) { return 1 / x; }
static double reciprocal_root(double x) { return 1 / sqrt(x); }
static double fraction(double x) { return x - trunc(x); }
static double hardswish(double x) { return x * fmin(fmax(x + 3, 0), 6) / 6; }

static const struct {
    const char *name;
    double (*function)(double);
    float tolerance;
} unary[] = {
    {"aten::abs", fabs},
    {"aten::ceil", ceil},
    {"aten::floor", floor},
    {"aten::trunc", trunc},
    {"aten::round", rint},
    {"aten::sign", sign},
    {"aten::frac", fraction, 1e-6f},
    {"aten::exp", exp, 1e-6f},
    {"aten::exp2", exp2, 1e-6f},
    {"aten::expm1", expm1, 1e-6f},
    {"aten::log", log, 1e-6f},
    {"aten::log1p", log1p, 1e-6f},
    {"aten::log2", log2, 1e-6f},
    {"aten::log10", log10, 1e-6f},
    {"aten::sqrt", sqrt, 1e-6f},
    {"aten::rsqrt", reciprocal_root, 1e-6f},
    {"aten::reciprocal", reciprocal, 1e-6f},
    {"aten::sin", sin, 1e-6f},
    {"aten::cos", cos, 1e-6f},
    {"aten::tan", tan, 1e-5f},
    {"aten::asin", asin, 1e-6f},
    {"aten::acos", acos, 1e-6f},
    {"aten::atan", atan, 1e-6f},
    {"aten::sinh", sinh, 1e-6f},
    {"aten::cosh", cosh, 1e-6f},
    {"aten::tanh", tanh, 1e-6f},
    {"aten::asinh", asinh, 1e-6f},
    {"aten::acosh", acosh, 1e-6f},
    {"aten::atanh", atanh, 1e-6f},
    {"aten::erf", erf, 1e-6f},
    {"aten::erfc", erfc, 1e-6f},
    {"aten::lgamma", lgamma, 1e-5f},
    {"aten::sigmoid", sigmoid, 1e-6f},
    {"aten::relu", relu},
    {"aten::silu", silu, 1e-6f},
    {"aten::mish", mish, 1e-6f},
    {"aten::hardswish", hardswish, 1e-6f},
    {"aten::special_bessel_j0", j0, 1e-5f},
    {"aten::special_bessel_j1", j1, 1e-5f},
    {"aten::special_bessel_y0", y0, 1e-5f},
    {"aten::special_bessel_y1", y1, 1e-5f},
};

static void test_unary(void) {
    float x[N], y[N], expected[N];
    for (int i = 0; i < N - 8; i++) x[i] = (float)(i - (N - 8) / 2) * 0.23f;
    memcpy(x + N - 8, (const float[]){-0.0f, 0.5f, 1.5f, -2.5f, INFINITY, NAN, 1, -1}, 8 * sizeof(float));
    for (size_t k = 0; k < sizeof unary / sizeof unary[0]; k++) {
        harness_array input = FLOATS(1, DIMS(N), x), result = FLOATS(1, DIMS(N), y);
        argument args[1] = {VALUE(0)};
        for (int i = 0; i < N; i++) expected[i] = (float)unary[k].function((double)x[i]);
        if (strstr(unary[k].name, "bessel")) expected[N - 4] = NAN; /* the wave's phase has no value at infinity */
        if (strstr(unary[k].name, "::frac") || strstr(unary[k].name, "::mish"))
            expected[N - 4] = unary[k].name[6] == 'm' ? INFINITY : NAN;
        if (strstr(unary[k].name, "y0") || strstr(unary[k].name, "y1"))
            for (int i = 0; i < N; i++) expected[i] = x[i] < 0 ? NAN : x[i] == 0 ? -INFINITY : expected[i];
        if (strstr(unary[k].name, "::sign") && isnan(x[N - 3])) expected[N - 3] = 0;
        if (CHECK_OK(harness_run(unary[k].name, 1, args, 1, &input, 1, &result)))
            check_same(N, y, expected, unary[k].tolerance, unary[k].name);
    }
}

/* ---- two operands ---- */

static double modulo(double x, double y) {
    double r = fmod(x, y);
    return r != 0 && (y < 0) != (r < 0) ? r + y : r;
}
static double floor_quotient(double x, double y) { return y == 0 ? x / y : floor(x / y); }
static double larger(double x, double y) { return isnan(x) || isnan(y) ? NAN : fmax(x, y); }
static double times_log(double x, double y) { return isnan(y) ? NAN : x == 0 ? 0 : x * log(y); }

static const struct {
    const char *name;
    double (*function)(double, double);
    float tolerance;
} binary[] = {
    {"aten::fmod.Tensor", fmod, 1e-6f},
    {"aten::remainder.Tensor", modulo, 1e-6f},
    {"aten::floor_divide", floor_quotient, 1e-6f},
    {"aten::maximum", larger},
    {"aten::fmax", fmax},
    {"aten::fmin", fmin},
    {"aten::pow.Tensor_Tensor", pow, 1e-5f},
    {"aten::atan2", atan2, 1e-6f},
    {"aten::hypot", hypot, 1e-6f},
    {"aten::copysign.Tensor", copysign},
    {"aten::xlogy.Tensor", times_log, 1e-6f},
};

static void test_binary(void) {
    static const float special[] = {0, 1, -1, 2.5f, -2.5f, 3, -7, INFINITY, NAN};
    enum { S = sizeof special / sizeof special[0] };
    float x[S * S], y[S * S], out[S * S], expected[S * S];
    for (int i = 0; i < S * S; i++) x[i] = special[i / S], y[i] = special[i % S];
    for (size_t k = 0; k < sizeof binary / sizeof binary[0]; k++) {
        harness_array inputs[2] = {FLOATS(1, DIMS(S * S), x), FLOATS(1, DIMS(S * S), y)},
                      result = FLOATS(1, DIMS(S * S), out);
        argument args[2] = {VALUE(0), VALUE(1)};
        for (int i = 0; i < S * S; i++) expected[i] = (float)binary[k].function((double)x[i], (double)y[i]);
        /* A finite number over infinity has, by fmod, the remainder x, from which the quotient is (x - x) / inf. */
        for (int i = 0; i < S * S && strstr(binary[k].name, "floor"); i++)
            if (isinf(y[i]) && isfinite(x[i]))
                expected[i] = x[i] < 0 ? -1 : 0;
            else if (isinf(x[i]) && y[i] != 0)
                expected[i] = NAN;
        if (CHECK_OK(harness_run(binary[k].name, 2, args, 2, inputs, 1, &result)))
            check_same(S * S, out, expected, binary[k].tolerance, binary[k].name);
    }
}

/* Integers: quotients and remainders of every sign, a division by zero that does no harm, shifts out of range. */
static void test_integers(void) {
    int32_t x[6] = {7, -7, 7, -7, 5, INT32_MIN}, y[6] = {3, 3, -3, -3, 0, -1}, out[6];
    harness_array inputs[2] = {{DTYPE_I32, 1, DIMS(6), x}, {DTYPE_I32, 1, DIMS(6), y}},
                  result = {DTYPE_I32, 1, DIMS(6), out};
    argument args[3] = {VALUE(0), VALUE(1), TEXT("floor")};
    static const int32_t quotient[4] = {2, -3, -3, 2}, remainder[4] = {1, 2, -2, -1};
    if (CHECK_OK(harness_run("aten::div.Tensor_mode", 3, args, 2, inputs, 1, &result)))
        for (int i = 0; i < 4; i++) CHECK_INT(out[i], quotient[i]);
    if (CHECK_OK(harness_run("aten::remainder.Tensor", 2, args, 2, inputs, 1, &result)))
        for (int i = 0; i < 4; i++) CHECK_INT(out[i], remainder[i]);
    int32_t amount[6] = {0, 1, 31, 32, -1, 4};
    inputs[1].data = amount;
    static const int32_t left[6] = {7, -14, INT32_MIN, 0, 0, 0}, right[6] = {7, -4, 0, -1, 0, -134217728};
    if (CHECK_OK(harness_run("aten::bitwise_left_shift.Tensor", 2, args, 2, inputs, 1, &result)))
        for (int i = 0; i < 6; i++) CHECK_INT(out[i], left[i]);
    if (CHECK_OK(harness_run("aten::bitwise_right_shift.Tensor", 2, args, 2, inputs, 1, &result)))
        for (int i = 0; i < 6; i++) CHECK_INT(out[i], right[i]);
}

/* alpha multiplies the second operand; a Python number does not raise an integer tensor's width, a float number its
 * kind. */
static void test_numbers(void) {
    int8_t x[3] = {1, -2, 100}, sum[3];
    float out[3];
    harness_array input = {DTYPE_I8, 1, DIMS(3), x}, result = {DTYPE_I8, 1, DIMS(3), sum},
                  floats = FLOATS(1, DIMS(3), out);
    argument args[3] = {VALUE(0), WHOLE(20), WHOLE(2)};
    if (CHECK_OK(harness_run("aten::add.Scalar", 3, args, 1, &input, 1, &result))) {
        CHECK_INT(sum[0], 41);
        CHECK_INT(sum[2], -116); /* 140 wraps */
    }
    args[1] = FLOAT(0.5);
    args[2] = WHOLE(1);
    if (CHECK_OK(harness_run("aten::add.Scalar", 3, args, 1, &input, 1, &floats)))
        check_same(3, out, (const float[]){1.5f, -1.5f, 100.5f}, 0, "int8 + 0.5");
    args[1] = WHOLE(2);
    args[2] = FLOAT(0.5);
    CHECK_FAILS(harness_run("aten::add.Scalar", 3, args, 1, &input, 1, &result), STATUS_RUNTIME,
                "For integral input tensors, argument alpha must not be a floating point number.");
}

static void test_refusals(void) {
    float x[2] = {1, 2}, y[2];
    uint8_t mask[2] = {0, 1};
    harness_array inputs[2] = {FLOATS(1, DIMS(2), x), FLOATS(1, DIMS(2), x)}, result = FLOATS(1, DIMS(2), y);
    harness_array bools[2] = {{DTYPE_BOOL, 1, DIMS(2), mask}, {DTYPE_BOOL, 1, DIMS(2), mask}};
    argument args[3] = {VALUE(0), VALUE(1), WHOLE(1)};
    CHECK_FAILS(harness_run("aten::bitwise_and.Tensor", 2, args, 2, inputs, 1, &result), STATUS_NOT_IMPLEMENTED,
                "\"bitwise_and_cpu\" not implemented for 'Float'");
    CHECK_FAILS(harness_run("aten::sub.Tensor", 3, args, 2, bools, 1, &result), STATUS_RUNTIME,
                "with two bool tensors is not supported");
    CHECK_FAILS(harness_run("aten::neg", 1, args, 1, bools, 1, &result), STATUS_RUNTIME,
                "on a bool tensor is not supported");
}

/* ---- lists of tensors ---- */

static void test_foreach(void) {
    float a[2] = {1, 2}, c[3] = {3, 4, 5}, first[2], second[3];
    const argument list[2] = {VALUE(0), VALUE(1)};
    const number numbers[2] = {{DTYPE_F64, true, {.f = {0.5, 0}}}, {DTYPE_F64, true, {.f = {-1, 0}}}};
    argument tensors = {.tag = ARG_VALUES, .count = 2, .u.list = list};
    argument args[4] = {tensors, tensors, tensors, {.tag = ARG_NUMBERS, .count = 2, .u.numbers = numbers}};
    harness_array inputs[2] = {FLOATS(1, DIMS(2), a), FLOATS(1, DIMS(3), c)};
    harness_array results[2] = {FLOATS(1, DIMS(2), first), FLOATS(1, DIMS(3), second)};
    if (!CHECK_OK(harness_run("aten::_foreach_addcmul.ScalarList", 4, args, 2, inputs, 2, results))) return;
    check_same(2, first, (const float[]){1.5f, 4}, 1e-6f, "x + x * x / 2");
    check_same(3, second, (const float[]){-6, -12, -20}, 1e-6f, "x - x * x");
}

static void test_adam(void) {
    float param[2] = {1, -2}, grad[2] = {0.5f, 4}, m[2] = {0.1f, 0}, v[2] = {0.01f, 0}, t[1] = {3};
    float new_param[2], new_grad[2], new_m[2], new_v[2], expected[2];
    const argument lists[5] = {VALUE(0), VALUE(1), VALUE(2), VALUE(3), VALUE(4)};
#define LIST(i) ((argument){.tag = ARG_VALUES, .count = 1, .u.list = &lists[i]})
    argument args[15] = {LIST(0),     LIST(1),     LIST(2),    LIST(3),      {.tag = ARG_VALUES},
                         LIST(4),     FLOAT(0.01), FLOAT(0.9), FLOAT(0.999), FLOAT(0),
                         FLOAT(1e-8), INT(0),      INT(0),     NONE,         NONE};
    harness_array inputs[5] = {FLOATS(1, DIMS(2), param), FLOATS(1, DIMS(2), grad), FLOATS(1, DIMS(2), m),
                               FLOATS(1, DIMS(2), v), FLOATS(0, NULL, t)};
    harness_array results[4] = {FLOATS(1, DIMS(2), new_param), FLOATS(1, DIMS(2), new_grad), FLOATS(1, DIMS(2), new_m),
                                FLOATS(1, DIMS(2), new_v)};
    if (!CHECK_OK(harness_run("aten::_fused_adam", 15, args, 5, inputs, 4, results))) return;
    for (int i = 0; i < 2; i++) {
        double mean = 0.9 * (double)m[i] + 0.1 * (double)grad[i],
               square = 0.999 * (double)v[i] + 0.001 * (double)grad[i] * (double)grad[i];
        double step = mean / (1 - pow(0.9, 3)) / (sqrt(square / (1 - pow(0.999, 3))) + 1e-8);
        expected[i] = (float)((double)param[i] - 0.01 * step);
    }
    check_same(2, new_param, expected, 1e-6f, "Adam");
}

int main(void) {
    int code;
    if (!calls_begin(&code)) return code;
    test_unary();
    test_binary();
    test_integers();
    test_numbers();
    test_refusals();
    test_foreach();
    test_adam();
    return check_report();
}
