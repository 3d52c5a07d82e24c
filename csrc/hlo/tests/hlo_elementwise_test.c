/* Elementwise operations, compiled and run: values against the C library's functions and against PyTorch's rules. */
#include <complex.h>
#undef I
#include <float.h>

#include "program.h"

static double tolerance_of(dtype t) {
    switch (dtype_real(t)) {
        case DTYPE_F64:
            return 1e-12;
        case DTYPE_F32:
            return 4e-6;
        case DTYPE_F16:
            return 4e-3;
        case DTYPE_BF16:
            return 3e-2;
        default:
            return 0.3;
    }
}

/* ---- unary functions of real numbers ---- */

static double sign_of(double x) { return isnan(x) ? x : (x > 0) - (x < 0); }
static double reciprocal_root(double x) { return 1 / sqrt(x); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double negative(double x) { return -x; }
static double itself(double x) { return x; }
static double zero(double x) { return isnan(x) ? 0 : 0 * (x != x); }
static double squared(double x) { return x * x; }
static double finite_of(double x) { return isfinite(x); }
static double infinite_of(double x) { return isinf(x) != 0; }
static double negative_infinite(double x) { return x == -INFINITY; }
static double positive_infinite(double x) { return x == INFINITY; }
static double nan_of(double x) { return isnan(x); }
/* psi(x) by its recurrence up to 20 and the asymptotic series (Abramowitz and Stegun, 6.3.5 and 6.3.18). */
static double psi(double x) {
    double sum = 0;
    for (; x < 20; x++) sum -= 1 / x;
    double s = 1 / (x * x);
    return sum + log(x) - 0.5 / x - s / 12 + s * s / 120 - s * s * s / 252;
}
/* exp(-|x|) I1(x): the series of I1 (Abramowitz and Stegun, 9.6.10). */
static double scaled_bessel(double x) {
    double term = x / 2, sum = term;
    for (int k = 1; k < 60; k++) sum += term *= x * x / 4 / k / (k + 1);
    return exp(-fabs(x)) * sum;
}
/* Inverse of erf by bisection. */
static double inverse_erf(double y) {
    double low = -6, high = 6;
    for (int i = 0; i < 200; i++) {
        double middle = (low + high) / 2;
        if (erf(middle) < y)
            low = middle;
        else
            high = middle;
    }
    return low;
}

typedef struct unary_case {
    const char *name;
    hlo_unary_fn function;
    double (*formula)(double);
    int n;
    double x[8];
} unary_case;

#define U(name, formula, ...)                                                                         \
    {                                                                                                 \
#name, hlo_##name, formula, sizeof((double[]){__VA_ARGS__}) / sizeof(double), { __VA_ARGS__ } \
    }
static const unary_case unary_cases[] = {
    U(abs, fabs, -2.5, 0, 3, -INFINITY, NAN),
    U(cbrt, cbrt, -8, 0, 3, 64),
    U(ceil, ceil, -1.5, -0.25, 0.25, 2),
    U(cosine, cos, -2, 0, 0.5, 3),
    U(exponential, exp, -3, 0, 1.5, -INFINITY, NAN),
    U(exponential_minus_one, expm1, -2, 0, 0.0078125, 1.5),
    U(floor, floor, -1.5, -0.25, 0.25, 2),
    U(imag, zero, -1.5, 2),
    U(is_finite, finite_of, 1, INFINITY, -INFINITY, NAN),
    U(log, log, 0.5, 1, 3, 0, -1, INFINITY),
    U(log_plus_one, log1p, -0.5, 0, 0.0078125, 3, -1),
    U(logistic, sigmoid, -4, 0, 0.5, 6),
    U(negate, negative, -1.5, 0, 2, INFINITY),
    U(real, itself, -1.5, 2),
    U(round_nearest_afz, round, -2.5, -1.5, 0.5, 1.25, 2.5),
    U(round_nearest_even, nearbyint, -2.5, -1.5, 0.5, 1.25, 2.5),
    U(rsqrt, reciprocal_root, 0.25, 1, 3, INFINITY, 0),
    U(sign, sign_of, -1.5, 0, 2, INFINITY, NAN),
    U(sine, sin, -2, 0, 0.5, 3),
    U(sqrt, sqrt, 0, 0.25, 2, -1),
    U(tan, tan, -1, 0, 0.5, 1.25),
    U(tanh, tanh, -2, 0, 0.5, 5),
    U(acos, acos, -1, -0.5, 0, 0.75, 1),
    U(acosh, acosh, 1, 1.5, 4),
    U(asin, asin, -1, -0.5, 0, 0.75, 1),
    U(asinh, asinh, -3, 0, 0.5, 4),
    U(atan, atan, -3, 0, 0.5, INFINITY),
    U(atanh, atanh, -0.5, 0, 0.75),
    U(bessel_i1e, scaled_bessel, -2, 0, 0.5, 4),
    U(conj, itself, -1.5, 2),
    U(cosh, cosh, -2, 0, 0.5, 3),
    U(digamma, psi, 0.5, 1, 2.5, 6),
    U(erf, erf, -1.5, 0, 0.25, 2),
    U(erf_inv, inverse_erf, -0.5, 0, 0.25, 0.75),
    U(erfc, erfc, -1.5, 0, 0.25, 2),
    U(is_inf, infinite_of, 1, INFINITY, -INFINITY, NAN),
    U(is_neg_inf, negative_infinite, 1, INFINITY, -INFINITY, NAN),
    U(is_pos_inf, positive_infinite, 1, INFINITY, -INFINITY, NAN),
    U(lgamma, lgamma, 0.5, 1, 2.5, 6),
    U(sinh, sinh, -2, 0, 0.5, 3),
    U(square, squared, -1.5, 0, 3),
    U(is_nan, nan_of, 1, INFINITY, NAN),
};
enum { UNARY_CASES = sizeof unary_cases / sizeof *unary_cases };

/* All in one program, over one input that holds every case's numbers in a row. */
static void test_unary(dtype t) {
    static array x;
    array_init(&x, t, 2, DIMS(UNARY_CASES, 8));
    for (int i = 0; i < UNARY_CASES; i++)
        for (int j = 0; j < 8; j++) x.v[8 * i + j].re = unary_cases[i].x[j < unary_cases[i].n ? j : 0];
    program p;
    program_begin(&p, "unary");
    hlo_value all = program_input(&p, &x);
    for (int i = 0; i < UNARY_CASES; i++)
        program_result(
            &p, unary_cases[i].function(p.b, hlo_slice(p.b, all, DIMS(i, 0), DIMS(i + 1, unary_cases[i].n), NULL)));
    bool ran = program_run(&p);
    for (int i = 0; ran && i < UNARY_CASES; i++) {
        number expected[8];
        for (int j = 0; j < unary_cases[i].n; j++)
            expected[j] = (number){.re = unary_cases[i].formula(unary_cases[i].x[j])};
        check_numbers(unary_cases[i].name, &p.outputs[i], unary_cases[i].n, expected, tolerance_of(t));
    }
    program_end(&p);
}

/* ---- unary functions of complex numbers ---- */

typedef double complex z;

static z complex_expm1(z x) { return cexp(x) - 1; }
static z complex_log1p(z x) { return clog(1 + x); }
static z complex_sigmoid(z x) { return 1 / (1 + cexp(-x)); }
static z complex_rsqrt(z x) { return 1 / csqrt(x); }
static z complex_sign(z x) { return x / cabs(x); }
static z complex_abs(z x) { return cabs(x); }
static z complex_real(z x) { return creal(x); }
static z complex_imag(z x) { return cimag(x); }
static z complex_negative(z x) { return -x; }
static z complex_square(z x) { return x * x; }

static const struct {
    const char *name;
    hlo_unary_fn function;
    z (*formula)(z);
} complex_cases[] = {
    {"abs", hlo_abs, complex_abs},
    {"cosine", hlo_cosine, ccos},
    {"exponential", hlo_exponential, cexp},
    {"exponential_minus_one", hlo_exponential_minus_one, complex_expm1},
    {"imag", hlo_imag, complex_imag},
    {"log", hlo_log, clog},
    {"log_plus_one", hlo_log_plus_one, complex_log1p},
    {"logistic", hlo_logistic, complex_sigmoid},
    {"negate", hlo_negate, complex_negative},
    {"real", hlo_real, complex_real},
    {"rsqrt", hlo_rsqrt, complex_rsqrt},
    {"sign", hlo_sign, complex_sign},
    {"sine", hlo_sine, csin},
    {"sqrt", hlo_sqrt, csqrt},
    {"tan", hlo_tan, ctan},
    {"tanh", hlo_tanh, ctanh},
    {"acos", hlo_acos, cacos},
    {"acosh", hlo_acosh, cacosh},
    {"asin", hlo_asin, casin},
    {"asinh", hlo_asinh, casinh},
    {"atan", hlo_atan, catan},
    {"atanh", hlo_atanh, catanh},
    {"conj", hlo_conj, conj},
    {"cosh", hlo_cosh, ccosh},
    {"sinh", hlo_sinh, csinh},
    {"square", hlo_square, complex_square},
};

static void test_complex(dtype t) {
    static const z points[] = {0.5 + 0.25 * _Complex_I, -1.5 + 0.75 * _Complex_I, 2 - 1.25 * _Complex_I};
    enum { N = sizeof complex_cases / sizeof *complex_cases };
    static array x;
    array_init(&x, t, 1, DIMS(3));
    for (int j = 0; j < 3; j++) x.v[j] = (number){creal(points[j]), cimag(points[j])};
    program p;
    program_begin(&p, "complex");
    hlo_value value = program_input(&p, &x);
    for (int i = 0; i < N; i++) program_result(&p, complex_cases[i].function(p.b, value));
    bool ran = program_run(&p);
    for (int i = 0; ran && i < N; i++) {
        number expected[3];
        for (int j = 0; j < 3; j++) {
            z y = complex_cases[i].formula(points[j]);
            expected[j] = (number){creal(y), cimag(y)};
        }
        check_numbers(complex_cases[i].name, &p.outputs[i], 3, expected, tolerance_of(t) * 4);
    }
    program_end(&p);
}

/* ---- integers ---- */

static int bits_set(uint64_t v) { return __builtin_popcountll(v); }

static void test_integers(dtype t) {
    int bits = dtype_bits(t);
    uint64_t mask = UINT64_MAX >> (64 - bits);
    int64_t raw[4] = {0, 1, 77, dtype_is_signed(t) ? -5 : (int64_t)(mask - 4)};
    static array x, y;
    array_init(&x, t, 1, DIMS(4));
    array_init(&y, t, 1, DIMS(4));
    for (int i = 0; i < 4; i++) {
        x.v[i].re = dtype_is_signed(t) ? (long double)raw[i] : (long double)((uint64_t)raw[i] & mask);
        y.v[i].re = i + 1;
    }
    program p;
    program_begin(&p, "integers");
    hlo_value a = program_input(&p, &x), c = program_input(&p, &y);
    hlo_value (*const unary[])(hlo_builder *, hlo_value) = {
        hlo_abs,    hlo_sign,   hlo_not,  hlo_popcnt, hlo_count_leading_zeros,
        hlo_negate, hlo_square, hlo_real, hlo_imag,   hlo_is_nan};
    hlo_value (*const both[])(hlo_builder *, hlo_value, hlo_value) = {hlo_add,
                                                                      hlo_subtract,
                                                                      hlo_multiply,
                                                                      hlo_divide,
                                                                      hlo_remainder,
                                                                      hlo_and,
                                                                      hlo_or,
                                                                      hlo_xor,
                                                                      hlo_maximum,
                                                                      hlo_minimum,
                                                                      hlo_shift_left,
                                                                      hlo_shift_right_logical,
                                                                      hlo_shift_right_arithmetic,
                                                                      hlo_power};
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++) program_result(&p, unary[i](p.b, a));
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) program_result(&p, both[i](p.b, a, c));
    if (program_run(&p))
        for (int i = 0; i < 4; i++) {
            __int128 v = (__int128)x.v[i].re, w = i + 1, power = v;
            for (int k = 1; k < w; k++) power = (__int128)((uint64_t)power * (uint64_t)v);
            uint64_t b = (uint64_t)v & mask;
            int64_t as_signed = (int64_t)(b << (64 - bits)) >> (64 - bits);
            __int128 expected[] = {v < 0 ? -v : v,
                                   (v > 0) - (v < 0),
                                   ~v,
                                   bits_set(b),
                                   b ? __builtin_clzll(b) - (64 - bits) : bits,
                                   -v,
                                   (__int128)((unsigned __int128)v * (unsigned __int128)v),
                                   v,
                                   0,
                                   0,
                                   v + w,
                                   v - w,
                                   (__int128)((unsigned __int128)v * (unsigned __int128)w),
                                   v / w,
                                   v % w,
                                   v & w,
                                   v | w,
                                   v ^ w,
                                   v > w ? v : w,
                                   v < w ? v : w,
                                   v * ((__int128)1 << w),
                                   b >> w,
                                   as_signed >> w,
                                   power};
            for (int k = 0; k < p.n_results; k++) {
                uint64_t wrapped = (uint64_t)expected[k] & mask;
                long double e =
                    dtype_is_signed(t) ? (long double)((int64_t)(wrapped << (64 - bits)) >> (64 - bits)) : wrapped;
                if (p.outputs[k].v[i].re == e) continue;
                check_failures++;
                printf("%s: integer operation %d of %Lg, %d is %Lg, expected %Lg\n", dtype_torch_name(t), k, x.v[i].re,
                       i + 1, p.outputs[k].v[i].re, e);
            }
        }
    program_end(&p);
}

/* ---- binary functions ---- */

static double add(double x, double y) { return x + y; }
static double subtract(double x, double y) { return x - y; }
static double multiply(double x, double y) { return x * y; }
static double divide(double x, double y) { return x / y; }
static double larger(double x, double y) { return isnan(x) || isnan(y) ? NAN : x > y ? x : y; }
static double smaller(double x, double y) { return isnan(x) || isnan(y) ? NAN : x < y ? x : y; }
static double equal(double x, double y) { return x == y; }
static double unequal(double x, double y) { return x != y; }
static double at_least(double x, double y) { return x >= y; }
static double more(double x, double y) { return x > y; }
static double at_most(double x, double y) { return x <= y; }
static double less(double x, double y) { return x < y; }

static void test_binary(dtype t) {
    static const struct {
        const char *name;
        hlo_binary_fn function;
        double (*formula)(double, double);
    } cases[] = {{"add", hlo_add, add},
                 {"subtract", hlo_subtract, subtract},
                 {"multiply", hlo_multiply, multiply},
                 {"divide", hlo_divide, divide},
                 {"maximum", hlo_maximum, larger},
                 {"minimum", hlo_minimum, smaller},
                 {"power", hlo_power, pow},
                 {"remainder", hlo_remainder, fmod},
                 {"atan2", hlo_atan2, atan2},
                 {"eq", hlo_eq, equal},
                 {"ne", hlo_ne, unequal},
                 {"ge", hlo_ge, at_least},
                 {"gt", hlo_gt, more},
                 {"le", hlo_le, at_most},
                 {"lt", hlo_lt, less}};
    enum { N = sizeof cases / sizeof *cases };
    static const double left[] = {-2.5, 0, 3, 5, NAN, 1, INFINITY}, right[] = {2, 1.5, 3, -0.75, 1, NAN, 2};
    static array x, y;
    array_init(&x, t, 1, DIMS(7));
    array_init(&y, t, 1, DIMS(7));
    for (int j = 0; j < 7; j++) {
        x.v[j].re = left[j];
        y.v[j].re = right[j];
    }
    program p;
    program_begin(&p, "binary");
    hlo_value a = program_input(&p, &x), c = program_input(&p, &y);
    for (int i = 0; i < N; i++) program_result(&p, cases[i].function(p.b, a, c));
    bool ran = program_run(&p);
    for (int i = 0; ran && i < N; i++) {
        number expected[7];
        for (int j = 0; j < 7; j++) expected[j] = (number){.re = cases[i].formula(left[j], right[j])};
        check_numbers(cases[i].name, &p.outputs[i], 7, expected, tolerance_of(t));
    }
    program_end(&p);
}

/* zeta(2, 1) = pi^2 / 6, zeta(3, 2) = zeta(3) - 1; polygamma(1, 1) = pi^2 / 6, polygamma(2, 1) = -2 zeta(3). */
static void test_chlo_binary(void) {
    const double zeta3 = 1.2020569031595942854, pi = 3.14159265358979323846;
    static array x, y;
    array_ramp(&x, DTYPE_F32, 1, DIMS(2), 1, 1);
    array_init(&y, DTYPE_F32, 1, DIMS(2));
    y.v[0].re = y.v[1].re = 1;
    program p;
    program_begin(&p, "chlo_binary");
    hlo_value a = program_input(&p, &x), c = program_input(&p, &y);
    program_result(&p, hlo_next_after(p.b, c, a));
    program_result(&p, hlo_polygamma(p.b, a, c));
    program_result(&p, hlo_zeta(p.b, hlo_add(p.b, a, c), a));
    if (program_run(&p)) {
        check_reals("next_after", &p.outputs[0], 2, (double[]){1, 1 + (double)FLT_EPSILON});
        check_numbers("polygamma", &p.outputs[1], 2, (number[]){{pi * pi / 6, 0}, {-2 * zeta3, 0}}, 1e-5);
        check_numbers("zeta", &p.outputs[2], 2, (number[]){{pi * pi / 6, 0}, {zeta3 - 1, 0}}, 1e-5);
    }
    program_end(&p);
}

static void test_complex_binary(void) {
    static array x, y;
    array_init(&x, DTYPE_C64, 1, DIMS(1));
    array_init(&y, DTYPE_C64, 1, DIMS(1));
    z u = 0.5 + 0.25 * _Complex_I, v = -1.5 + 2 * _Complex_I,
      expected[] = {u + v, u - v, u * v, u / v, cpow(u, v), u, 0, 1};
    x.v[0] = (number){creal(u), cimag(u)};
    y.v[0] = (number){creal(v), cimag(v)};
    program p;
    program_begin(&p, "complex_binary");
    hlo_value a = program_input(&p, &x), c = program_input(&p, &y);
    hlo_value (*const functions[])(hlo_builder *, hlo_value, hlo_value) = {hlo_add, hlo_subtract, hlo_multiply,
                                                                           hlo_divide, hlo_power};
    for (int i = 0; i < 5; i++) program_result(&p, functions[i](p.b, a, c));
    program_result(&p, hlo_complex(p.b, hlo_real(p.b, a), hlo_imag(p.b, a)));
    program_result(&p, hlo_eq(p.b, a, c));
    program_result(&p, hlo_ne(p.b, a, c));
    bool ran = program_run(&p);
    for (int i = 0; ran && i < p.n_results; i++)
        check_numbers("complex binary", &p.outputs[i], 1, &(number){creal(expected[i]), cimag(expected[i])}, 1e-5);
    program_end(&p);
}

static void test_bool(void) {
    static array x, y;
    array_init(&x, DTYPE_BOOL, 1, DIMS(4));
    array_init(&y, DTYPE_BOOL, 1, DIMS(4));
    for (int i = 0; i < 4; i++) {
        x.v[i].re = i / 2;
        y.v[i].re = i % 2;
    }
    program p;
    program_begin(&p, "bool");
    hlo_value a = program_input(&p, &x), c = program_input(&p, &y);
    hlo_value (*const functions[])(hlo_builder *, hlo_value, hlo_value) = {
        hlo_and, hlo_or, hlo_xor, hlo_add, hlo_multiply, hlo_maximum, hlo_minimum, hlo_eq, hlo_lt};
    for (int i = 0; i < 9; i++) program_result(&p, functions[i](p.b, a, c));
    program_result(&p, hlo_not(p.b, a));
    static const double expected[][4] = {{0, 0, 0, 1}, {0, 1, 1, 1}, {0, 1, 1, 0}, {0, 1, 1, 1}, {0, 0, 0, 1},
                                         {0, 1, 1, 1}, {0, 0, 0, 1}, {1, 0, 0, 1}, {0, 1, 0, 0}, {1, 1, 0, 0}};
    bool ran = program_run(&p);
    for (int i = 0; ran && i < p.n_results; i++) check_reals("bool", &p.outputs[i], 4, expected[i]);
    program_end(&p);
}

/* ---- broadcasting, select, clamp ---- */

static void test_broadcasting(void) {
    static array column, row, flags, scalar;
    array_ramp(&column, DTYPE_F32, 2, DIMS(2, 1), 10, 10);
    array_ramp(&row, DTYPE_F32, 1, DIMS(3), 1, 1);
    array_ramp(&flags, DTYPE_BOOL, 2, DIMS(2, 1), 0, 1);
    array_ramp(&scalar, DTYPE_F32, 0, NULL, 12, 0);
    program p;
    program_begin(&p, "broadcasting");
    hlo_value c = program_input(&p, &column), r = program_input(&p, &row), f = program_input(&p, &flags),
              s = program_input(&p, &scalar);
    hlo_value yes = hlo_constant_int(p.b, DTYPE_BOOL, 0, NULL, 1);
    program_result(&p, hlo_add(p.b, c, r));
    program_result(&p, hlo_subtract(p.b, s, r));
    program_result(&p, hlo_lt(p.b, c, s));
    program_result(&p, hlo_select(p.b, f, r, c));
    program_result(&p, hlo_select(p.b, yes, r, s));
    program_result(&p, hlo_clamp(p.b, s, hlo_add(p.b, c, r), hlo_scalar(p.b, DTYPE_F32, 22)));
    program_result(&p, hlo_clamp(p.b, r, c, s));
    if (program_run(&p)) {
        check_dims("add", &p.outputs[0], 2, DIMS(2, 3));
        check_reals("add", &p.outputs[0], 6, (double[]){11, 12, 13, 21, 22, 23});
        check_reals("subtract", &p.outputs[1], 3, (double[]){11, 10, 9});
        check_reals("lt", &p.outputs[2], 2, (double[]){1, 0});
        check_reals("select", &p.outputs[3], 6, (double[]){10, 10, 10, 1, 2, 3});
        check_reals("select with a scalar", &p.outputs[4], 3, (double[]){1, 2, 3});
        check_reals("clamp to scalars", &p.outputs[5], 6, (double[]){12, 12, 13, 21, 22, 22});
        check_reals("clamp, all broadcast", &p.outputs[6], 6, (double[]){10, 10, 10, 12, 12, 12});
    }
    program_end(&p);
}

int main(void) {
    int rc = program_start();
    if (rc) return rc;
    static const dtype floats[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16, DTYPE_F8E5M2};
    for (int i = 0; i < 4; i++) {
        test_unary(floats[i]);
        if (dtype_bits(floats[i]) >= 32) test_binary(floats[i]);
    }
    static const dtype ints[] = {DTYPE_U8, DTYPE_I8, DTYPE_U16, DTYPE_I16, DTYPE_U32, DTYPE_I32, DTYPE_U64, DTYPE_I64};
    for (int i = 0; i < 8; i++) test_integers(ints[i]);
    test_complex(DTYPE_C64);
    test_complex(DTYPE_C128);
    test_chlo_binary();
    test_complex_binary();
    test_bool();
    test_broadcasting();
    return check_report();
}
