/* Constants arrive as they were given: every type, rounding, infinities, NaN, extremes. */
#include "program.h"

/* The nearest number of the type, ties to the even pattern; beyond the last one's rounding interval infinity or NaN. */
static double nearest(dtype t, double v) {
    if (isnan(v) || v == 0) return v;
    double best = NAN, distance = INFINITY, largest = 0;
    for (uint32_t bits = 0; bits >> dtype_bits(t) == 0; bits++) {
        double d = decode_float(t, bits);
        if (!isfinite(d)) continue;
        if (fabs(d) > largest) largest = fabs(d);
        if (fabs(d - v) > distance || (fabs(d - v) == distance && bits % 2)) continue;
        best = d;
        distance = fabs(d - v);
    }
    int exponent;
    frexp(largest, &exponent);
    double limit = largest + ldexp(1, exponent - 2 - float_formats[t].mantissa_bits);
    bool last_is_even = encode_float(t, largest) % 2 == 0;
    if (last_is_even ? fabs(v) <= limit : fabs(v) < limit) return best;
    return float_formats[t].finite ? NAN : copysign(INFINITY, v);
}

static void test_floats(dtype t) {
    static const double values[] = {0,     -0.0,    1,     -1,     0.1,    -0.3,     3.14159,   448,
                                    464,   465,     479,   481,    239,    249,      57344,     61439,
                                    61441, 65504,   65519, 65521,  1e-3,   1e-5,     3e-8,      2.9802322387695312e-08,
                                    1e-7,  9.2e-41, 1e39,  3.4e38, -1e300, INFINITY, -INFINITY, NAN};
    enum { N = sizeof values / sizeof *values };
    program p;
    program_begin(&p, "floats");
    program_result(&p, hlo_constant_floats(p.b, t, N, values));
    for (int i = 0; i < N; i++) program_result(&p, hlo_scalar(p.b, t, values[i]));
    if (program_run(&p)) {
        number expected[N];
        for (int i = 0; i < N; i++) {
            float f = (float)values[i];
            double e = t == DTYPE_F64 ? values[i] : t == DTYPE_F32 ? f : nearest(t, f);
            expected[i] = (number){.re = e};
            check_numbers("scalar", &p.outputs[1 + i], 1, &expected[i], 0);
        }
        check_numbers("list", &p.outputs[0], N, expected, 0);
        CHECK(float_formats[t].unsigned_zero || signbit(p.outputs[0].v[1].re));
    }
    program_end(&p);
}

static void test_integers(dtype t) {
    static const int64_t values[] = {0, 1, -1, 127, 128, 255, 256, -32769, INT64_MAX, INT64_MIN};
    enum { N = sizeof values / sizeof *values };
    int unused = 64 - dtype_bits(t);
    number expected[N];
    for (int i = 0; i < N; i++) {
        uint64_t bits = (uint64_t)values[i] << unused;
        expected[i].re = dtype_is_signed(t) ? (long double)((int64_t)bits >> unused) : (long double)(bits >> unused);
        expected[i].im = 0;
    }
    program p;
    program_begin(&p, "integers");
    program_result(&p, hlo_constant_ints(p.b, t, N, values));
    program_result(&p, hlo_constant_int(p.b, t, 2, DIMS(1, 2), -1));
    program_result(&p, hlo_scalar(p.b, t, 100.75));
    program_result(&p, hlo_constant_floats(p.b, t, 2, (double[]){NAN, -0.5}));
    program_result(&p, hlo_min_value(p.b, t));
    program_result(&p, hlo_max_value(p.b, t));
    if (program_run(&p)) {
        check_numbers("list", &p.outputs[0], N, expected, 0);
        check_numbers("splat", &p.outputs[1], 2, (number[]){expected[2], expected[2]}, 0);
        check_reals("truncated", &p.outputs[2], 1, (double[]){100});
        check_reals("NaN and -0.5", &p.outputs[3], 2, (double[]){0, 0});
        int bits = dtype_bits(t), sign = dtype_is_signed(t);
        check_numbers("smallest", &p.outputs[4], 1, &(number){sign ? -ldexpl(1, bits - 1) : 0, 0}, 0);
        check_numbers("largest", &p.outputs[5], 1, &(number){ldexpl(1, bits - sign) - 1, 0}, 0);
    }
    program_end(&p);
}

static void test_bool_and_complex(void) {
    program p;
    program_begin(&p, "bool_and_complex");
    program_result(&p, hlo_constant_ints(p.b, DTYPE_BOOL, 3, (int64_t[]){0, 1, -7}));
    program_result(&p, hlo_constant_floats(p.b, DTYPE_BOOL, 3, (double[]){0, 0.5, NAN}));
    program_result(&p, hlo_min_value(p.b, DTYPE_BOOL));
    program_result(&p, hlo_max_value(p.b, DTYPE_BOOL));
    program_result(&p, hlo_constant_complex(p.b, DTYPE_C64, 1, DIMS(2), 0.1, NAN));
    program_result(&p, hlo_constant_complex(p.b, DTYPE_C128, 0, NULL, -INFINITY, 1e-300));
    program_result(&p, hlo_constant_int(p.b, DTYPE_C64, 0, NULL, -3));
    program_result(&p, hlo_scalar(p.b, DTYPE_C128, 0.1));
    program_result(&p, hlo_constant_floats(p.b, DTYPE_C64, 2, (double[]){1, 2}));
    if (program_run(&p)) {
        check_reals("bool list", &p.outputs[0], 3, (double[]){0, 1, 1});
        check_reals("bool of floats", &p.outputs[1], 3, (double[]){0, 1, 1});
        check_reals("smallest bool", &p.outputs[2], 1, (double[]){0});
        check_reals("largest bool", &p.outputs[3], 1, (double[]){1});
        check_numbers("complex64", &p.outputs[4], 2, (number[]){{(double)0.1f, NAN}, {(double)0.1f, NAN}}, 0);
        check_numbers("complex128", &p.outputs[5], 1, &(number){-INFINITY, 1e-300}, 0);
        check_numbers("complex of int", &p.outputs[6], 1, &(number){-3, 0}, 0);
        check_numbers("complex scalar", &p.outputs[7], 1, &(number){0.1, 0}, 0);
        check_reals("complex list", &p.outputs[8], 2, (double[]){1, 2});
    }
    program_end(&p);
}

static void test_extremes(void) {
    static const struct {
        dtype t;
        double largest;
    } cases[] = {{DTYPE_F32, INFINITY}, {DTYPE_BF16, INFINITY},  {DTYPE_F64, INFINITY},    {DTYPE_F8E5M2, INFINITY},
                 {DTYPE_F8E4M3FN, 448}, {DTYPE_F8E4M3FNUZ, 240}, {DTYPE_F8E5M2FNUZ, 57344}};
    program p;
    program_begin(&p, "extremes");
    for (int i = 0; i < 7; i++) {
        program_result(&p, hlo_min_value(p.b, cases[i].t));
        program_result(&p, hlo_max_value(p.b, cases[i].t));
    }
    bool ran = program_run(&p);
    for (int i = 0; ran && i < 7; i++) {
        check_reals("smallest", &p.outputs[2 * i], 1, &(double){-cases[i].largest});
        check_reals("largest", &p.outputs[2 * i + 1], 1, &cases[i].largest);
    }
    program_end(&p);
}

/* Exact where double would round first: 2^53 + 2^29 + 1 is nearest to 2^53 + 2^30 in float, not to 2^53. */
static void test_int_to_float(void) {
    program p;
    program_begin(&p, "int_to_float");
    program_result(&p, hlo_constant_int(p.b, DTYPE_F32, 0, NULL, ((int64_t)1 << 53) + ((int64_t)1 << 29) + 1));
    if (program_run(&p)) check_reals("float of int64", &p.outputs[0], 1, (double[]){0x1p53 + 0x1p30});
    program_end(&p);
}

static void test_shapes(void) {
    static const double rows[] = {0, 0, 0, 1, 1, 1}, columns[] = {0, 1, 2, 0, 1, 2};
    program p;
    program_begin(&p, "shapes");
    program_result(&p, hlo_constant_float(p.b, DTYPE_F32, 2, DIMS(2, 0), 7));
    program_result(&p, hlo_constant_ints(p.b, DTYPE_I64, 0, NULL));
    program_result(&p, hlo_constant_complex(p.b, DTYPE_C64, 1, DIMS(0), 1, 2));
    program_result(&p, hlo_like(p.b, p.results[0], 3));
    program_result(&p, hlo_iota(p.b, DTYPE_F32, 2, DIMS(2, 3), 0));
    program_result(&p, hlo_iota(p.b, DTYPE_C64, 2, DIMS(2, 3), 1));
    program_result(&p, hlo_iota(p.b, DTYPE_BOOL, 2, DIMS(2, 3), 0));
    program_result(&p, hlo_iota(p.b, DTYPE_F8E4M3FN, 2, DIMS(2, 3), 1));
    program_result(&p, hlo_like(p.b, p.results[4], 2.5));
    if (program_run(&p)) {
        check_dims("empty", &p.outputs[0], 2, DIMS(2, 0));
        check_dims("empty list", &p.outputs[1], 1, DIMS(0));
        check_dims("empty like", &p.outputs[3], 2, DIMS(2, 0));
        check_reals("iota of rows", &p.outputs[4], 6, rows);
        check_reals("iota of columns", &p.outputs[5], 6, columns);
        check_reals("bool iota", &p.outputs[6], 6, rows);
        check_reals("8-bit iota", &p.outputs[7], 6, columns);
        check_reals("like", &p.outputs[8], 6, (double[]){2.5, 2.5, 2.5, 2.5, 2.5, 2.5});
    }
    program_end(&p);
}

int main(void) {
    int rc = program_start();
    if (rc) return rc;
    static const dtype floats[] = {DTYPE_F64,      DTYPE_F32,    DTYPE_F16,        DTYPE_BF16,
                                   DTYPE_F8E4M3FN, DTYPE_F8E5M2, DTYPE_F8E4M3FNUZ, DTYPE_F8E5M2FNUZ};
    for (int i = 0; i < 8; i++) test_floats(floats[i]);
    static const dtype ints[] = {DTYPE_U8, DTYPE_I8, DTYPE_U16, DTYPE_I16, DTYPE_U32, DTYPE_I32, DTYPE_U64, DTYPE_I64};
    for (int i = 0; i < 8; i++) test_integers(ints[i]);
    test_bool_and_complex();
    test_extremes();
    test_int_to_float();
    test_shapes();
    return check_report();
}
