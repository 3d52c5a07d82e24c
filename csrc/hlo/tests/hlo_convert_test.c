/* Conversions by value, by bits and by precision, compiled and run: values against PyTorch's rules, bits against
 * memory. */
#include "program.h"

/* PyTorch: float to small integers wraps, to bool is "not zero"; complex to real drops the imaginary part. */
static void test_convert_float(dtype from) {
    static const double x[] = {0, -1.5, 300, -300, 0.5, NAN};
    static const struct {
        dtype to;
        double expected[5];
    } cases[] = {{DTYPE_BOOL, {0, 1, 1, 1, 1}},
                 {DTYPE_U8, {0, 255, 44, 212, 0}},
                 {DTYPE_I8, {0, -1, 44, -44, 0}},
                 {DTYPE_I16, {0, -1, 300, -300, 0}},
                 {DTYPE_U16, {0, 65535, 300, 65236, 0}},
                 {DTYPE_I32, {0, -1, 300, -300, 0}},
                 {DTYPE_U32, {0, 4294967295, 300, 4294966996, 0}},
                 {DTYPE_I64, {0, -1, 300, -300, 0}},
                 {DTYPE_F16, {0, -1.5, 300, -300, 0.5}},
                 {DTYPE_BF16, {0, -1.5, 300, -300, 0.5}},
                 {DTYPE_F8E5M2, {0, -1.5, 320, -320, 0.5}},
                 {DTYPE_F32, {0, -1.5, 300, -300, 0.5}},
                 {DTYPE_F64, {0, -1.5, 300, -300, 0.5}},
                 {DTYPE_C64, {0, -1.5, 300, -300, 0.5}},
                 {DTYPE_C128, {0, -1.5, 300, -300, 0.5}}};
    enum { N = sizeof cases / sizeof *cases };
    static array a;
    array_init(&a, from, 1, DIMS(6));
    for (int i = 0; i < 6; i++) a.v[i].re = x[i];
    program p;
    program_begin(&p, "convert_float");
    hlo_value v = program_input(&p, &a), numbers = hlo_slice_dim(p.b, v, 0, 0, 5, 1);
    for (int i = 0; i < N; i++) program_result(&p, hlo_convert(p.b, numbers, cases[i].to));
    program_result(&p, hlo_convert(p.b, numbers, DTYPE_U64));
    program_result(&p, hlo_convert(p.b, v, DTYPE_BOOL));
    if (program_run(&p)) {
        for (int i = 0; i < N; i++) check_reals("convert", &p.outputs[i], 5, cases[i].expected);
        check_numbers("convert to uint64", &p.outputs[N], 5,
                      (number[]){{0, 0}, {0x1p64L - 1, 0}, {300, 0}, {0x1p64L - 300, 0}, {0, 0}}, 0);
        check_reals("convert NaN to bool", &p.outputs[N + 1], 6, (double[]){0, 1, 1, 1, 1, 1});
    }
    program_end(&p);
}

static void test_convert_others(void) {
    static array flags, ints, complexes;
    array_ramp(&flags, DTYPE_BOOL, 1, DIMS(2), 0, 1);
    array_init(&ints, DTYPE_I64, 1, DIMS(3));
    array_init(&complexes, DTYPE_C64, 1, DIMS(3));
    for (int i = 0; i < 3; i++) {
        ints.v[i].re = (long double[]){-1, 65537, 0x1p53L + 1}[i];
        complexes.v[i] = ((number[]){{-1.5, 2}, {0, 3}, {0, 0}})[i];
    }
    program p;
    program_begin(&p, "convert_others");
    hlo_value f = program_input(&p, &flags), n = program_input(&p, &ints), c = program_input(&p, &complexes);
    program_result(&p, hlo_convert(p.b, f, DTYPE_F32));
    program_result(&p, hlo_convert(p.b, f, DTYPE_C64));
    program_result(&p, hlo_convert(p.b, n, DTYPE_U8));
    program_result(&p, hlo_convert(p.b, n, DTYPE_BOOL));
    program_result(&p, hlo_convert(p.b, n, DTYPE_F64));
    program_result(&p, hlo_convert(p.b, c, DTYPE_F32));
    program_result(&p, hlo_convert(p.b, c, DTYPE_I8));
    program_result(&p, hlo_convert(p.b, c, DTYPE_BOOL));
    program_result(&p, hlo_convert(p.b, c, DTYPE_C128));
    program_result(&p, hlo_convert(p.b, n, DTYPE_F16));
    if (program_run(&p)) {
        check_reals("bool to float", &p.outputs[0], 2, (double[]){0, 1});
        check_reals("bool to complex", &p.outputs[1], 2, (double[]){0, 1});
        check_reals("int64 to uint8", &p.outputs[2], 3, (double[]){255, 1, 1});
        check_reals("int64 to bool", &p.outputs[3], 3, (double[]){1, 1, 1});
        check_reals("int64 to double", &p.outputs[4], 3, (double[]){-1, 65537, 0x1p53});
        check_reals("complex to float", &p.outputs[5], 3, (double[]){-1.5, 0, 0});
        check_reals("complex to int8", &p.outputs[6], 3, (double[]){-1, 0, 0});
        check_reals("complex to bool", &p.outputs[7], 3, (double[]){1, 1, 0});
        check_numbers("complex64 to complex128", &p.outputs[8], 3, complexes.v, 0);
        check_reals("int64 to half", &p.outputs[9], 3, (double[]){-1, INFINITY, INFINITY});
    }
    hlo_value same = hlo_convert(p.b, f, DTYPE_BOOL);
    CHECK(same == f);
    program_end(&p);
}

/* A double rounds to half by way of float, as in PyTorch: 1 + 2^-11 + 2^-30 becomes 1 + 2^-11, a tie, and then 1. */
static void test_double_rounding(void) {
    static array x;
    array_ramp(&x, DTYPE_F64, 1, DIMS(1), 1 + 0x1p-11 + 0x1p-30, 0);
    program p;
    program_begin(&p, "double_rounding");
    program_result(&p, hlo_convert(p.b, program_input(&p, &x), DTYPE_F16));
    if (program_run(&p)) check_reals("double to half", &p.outputs[0], 1, (double[]){1});
    program_end(&p);
}

/* ---- bits ---- */

static const dtype bit_types[] = {DTYPE_BOOL, DTYPE_U8,  DTYPE_F8E5M2FNUZ, DTYPE_I16, DTYPE_BF16,
                                  DTYPE_F32,  DTYPE_I64, DTYPE_F64,        DTYPE_C64, DTYPE_C128};
enum { BIT_TYPES = sizeof bit_types / sizeof *bit_types };

static hlo_value build_bitcast(hlo_builder *b, hlo_value x, dtype to) {
    int64_t from_bytes = (int64_t)dtype_bytes(x->dtype), to_bytes = (int64_t)dtype_bytes(to), n = x->dims[0];
    int64_t merged = to_bytes > from_bytes ? to_bytes / from_bytes : 1,
            split = from_bytes > to_bytes ? from_bytes / to_bytes : 1;
    if (merged > 1) x = hlo_reshape(b, x, 2, DIMS(n / merged, merged));
    hlo_value y = hlo_bitcast_convert(b, x, to);
    if (!CHECK(y != NULL)) return NULL;
    CHECK_INT(y->rank, split > 1 ? 2 : 1);
    CHECK_INT(y->dims[0], n / merged);
    if (split > 1) CHECK_INT(y->dims[1], split);
    return y;
}

/* 32 bytes of every type as every other: the bytes stay. */
static void test_bitcast(dtype from, bool bools) {
    unsigned char bytes[32], read[32];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(bools ? i % 3 == 0 : i + 1);
    static array x;
    array_init(&x, from, 1, DIMS((int64_t)(sizeof bytes / dtype_bytes(from))));
    load_array(&x, bytes);
    program p;
    program_begin(&p, "bitcast");
    hlo_value v = program_input(&p, &x);
    for (int i = 0; i < BIT_TYPES; i++)
        if (bools || bit_types[i] != DTYPE_BOOL) program_result(&p, build_bitcast(p.b, v, bit_types[i]));
    bool ran = program_run(&p);
    for (int i = 0; ran && i < p.n_results; i++) {
        store_array(&p.outputs[i], read);
        if (memcmp(read, bytes, sizeof bytes) == 0) continue;
        check_failures++;
        printf("bitcast of %s to %s changes bytes\n", dtype_torch_name(from), dtype_torch_name(p.outputs[i].dtype));
    }
    program_end(&p);
}

static void test_bitcasts(void) {
    for (int i = 0; i < BIT_TYPES; i++) {
        test_bitcast(bit_types[i], true);
        if (bit_types[i] != DTYPE_BOOL) test_bitcast(bit_types[i], false);
    }
}

static void test_reduce_precision(void) {
    static array x;
    array_ramp(&x, DTYPE_F32, 1, DIMS(2), 1 + 0x1p-9, 70000);
    program p;
    program_begin(&p, "reduce_precision");
    hlo_value v = program_input(&p, &x);
    program_result(&p, hlo_reduce_precision(p.b, v, 8, 7));
    program_result(&p, hlo_reduce_precision(p.b, v, 5, 10));
    if (program_run(&p)) {
        check_reals("bfloat16's", &p.outputs[0], 2, (double[]){1, 70144});
        check_reals("half's", &p.outputs[1], 2, (double[]){1 + 0x1p-9, INFINITY});
    }
    program_end(&p);
}

int main(void) {
    int rc = program_start();
    if (rc) return rc;
    static const dtype floats[] = {DTYPE_F64, DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (int i = 0; i < 4; i++) test_convert_float(floats[i]);
    test_convert_others();
    test_double_rounding();
    test_bitcasts();
    test_reduce_precision();
    return check_report();
}
