/* Operations on shapes, contractions, regions, gather and the rest, compiled and run: values worked out by hand or by
 * the definition written as loops. */
#include <complex.h>

#include "program.h"

static array x23, x4, square; /* 0..5 of [2, 3]; 3, 1, 4, 1; 0..8 of [3, 3] */

static void init_inputs(void) {
    array_ramp(&x23, DTYPE_F32, 2, DIMS(2, 3), 0, 1);
    array_init(&x4, DTYPE_F32, 1, DIMS(4));
    for (int i = 0; i < 4; i++) x4.v[i].re = (double[]){3, 1, 4, 1}[i];
    array_ramp(&square, DTYPE_F32, 2, DIMS(3, 3), 0, 1);
}

/* One result: its dimensions and its numbers. */
#define EXPECT(p, k, rank, dims, ...)                                                            \
    do {                                                                                         \
        const double expected_[] = {__VA_ARGS__};                                                \
        check_dims(#k ": " #__VA_ARGS__, &(p).outputs[k], rank, dims);                           \
        check_reals((p).name, &(p).outputs[k], sizeof expected_ / sizeof *expected_, expected_); \
    } while (0)

static void test_shapes(void) {
    program p;
    program_begin(&p, "shapes");
    hlo_builder *b = p.b;
    hlo_value x = program_input(&p, &x23), v = program_input(&p, &x4), nine = hlo_scalar(b, DTYPE_F32, 9);
    program_result(&p, hlo_broadcast_in_dim(b, v, 2, DIMS(4, 2), DIMS(0)));
    program_result(&p, hlo_broadcast_to(b, nine, 2, DIMS(1, 2)));
    program_result(&p, hlo_reshape(b, x, 3, DIMS(3, 1, 2)));
    program_result(&p, hlo_transpose(b, x, DIMS(1, 0)));
    program_result(&p, hlo_slice(b, x, DIMS(0, 0), DIMS(2, 3), DIMS(1, 2)));
    program_result(&p, hlo_slice_dim(b, x, 1, 1, 3, 1));
    program_result(&p, hlo_pad(b, v, nine, DIMS(1), DIMS(-1), DIMS(1)));
    program_result(&p, hlo_concatenate(b, 2, (hlo_value[]){x, hlo_slice_dim(b, x, 1, 0, 1, 1)}, 1));
    program_result(&p, hlo_reverse(b, x, 1, DIMS(1)));
    program_result(&p, hlo_unsqueeze_dim(b, x, 2));
    program_result(&p, hlo_squeeze_dim(b, hlo_unsqueeze_dim(b, v, 0), 0));
    hlo_value one = hlo_constant_int(b, DTYPE_I32, 0, NULL, 1), five = hlo_constant_int(b, DTYPE_I32, 0, NULL, 5);
    program_result(&p, hlo_dynamic_slice(b, x, (hlo_value[]){one, five}, DIMS(1, 2)));
    program_result(
        &p, hlo_dynamic_update_slice(b, x, hlo_slice(b, x, DIMS(0, 0), DIMS(1, 2), NULL), (hlo_value[]){one, one}));
    CHECK(hlo_reshape(b, x, 2, DIMS(2, 3)) == x && hlo_broadcast_to(b, x, 2, DIMS(2, 3)) == x);
    if (program_run(&p)) {
        EXPECT(p, 0, 2, DIMS(4, 2), 3, 3, 1, 1, 4, 4, 1, 1);
        EXPECT(p, 1, 2, DIMS(1, 2), 9, 9);
        EXPECT(p, 2, 3, DIMS(3, 1, 2), 0, 1, 2, 3, 4, 5);
        EXPECT(p, 3, 2, DIMS(3, 2), 0, 3, 1, 4, 2, 5);
        EXPECT(p, 4, 2, DIMS(2, 2), 0, 2, 3, 5);
        EXPECT(p, 5, 2, DIMS(2, 2), 1, 2, 4, 5);
        EXPECT(p, 6, 1, DIMS(7), 9, 3, 9, 1, 9, 4, 9);
        EXPECT(p, 7, 2, DIMS(2, 4), 0, 1, 2, 0, 3, 4, 5, 3);
        EXPECT(p, 8, 2, DIMS(2, 3), 2, 1, 0, 5, 4, 3);
        EXPECT(p, 9, 3, DIMS(2, 3, 1), 0, 1, 2, 3, 4, 5);
        EXPECT(p, 10, 1, DIMS(4), 3, 1, 4, 1);
        EXPECT(p, 11, 2, DIMS(1, 2), 4, 5); /* the start is clamped */
        EXPECT(p, 12, 2, DIMS(2, 3), 0, 1, 2, 3, 0, 1);
    }
    program_end(&p);
}

/* ---- contraction ---- */

static void test_dot(void) {
    static array a, c;
    array_ramp(&a, DTYPE_BF16, 3, DIMS(2, 2, 3), 1, 1);
    array_ramp(&c, DTYPE_BF16, 3, DIMS(3, 2, 2), 1, 1);
    hlo_dot_dims batched = {
        .n_batch = 1, .n_contract = 1, .lhs_batch = {0}, .rhs_batch = {2}, .lhs_contract = {2}, .rhs_contract = {0}};
    hlo_dot_dims outer = {0}, inner = {.n_contract = 1};
    program p;
    program_begin(&p, "dot");
    hlo_value lhs = program_input(&p, &a), rhs = program_input(&p, &c), v = program_input(&p, &x4);
    program_result(&p, hlo_dot_general(p.b, lhs, rhs, &batched, DTYPE_F32));
    CHECK(hlo_get_precision(p.b) == HLO_PRECISION_DEFAULT);
    hlo_set_precision(p.b, HLO_PRECISION_HIGHEST);
    CHECK(hlo_get_precision(p.b) == HLO_PRECISION_HIGHEST);
    program_result(&p, hlo_dot_general(p.b, v, v, &outer, DTYPE_F32));
    hlo_set_precision(p.b, HLO_PRECISION_HIGH);
    program_result(&p, hlo_dot_general(p.b, v, v, &inner, DTYPE_F32));
    if (program_run(&p)) {
        double expected[8];
        for (int n = 0; n < 2; n++)
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 2; j++) {
                    double sum = 0;
                    for (int k = 0; k < 3; k++) sum += (1 + 6 * n + 3 * i + k) * (1 + 4 * k + 2 * j + n);
                    expected[4 * n + 2 * i + j] = sum;
                }
        check_dims("batched dot", &p.outputs[0], 3, DIMS(2, 2, 2));
        CHECK_INT(p.outputs[0].dtype, DTYPE_F32);
        check_reals("batched dot", &p.outputs[0], 8, expected);
        EXPECT(p, 1, 2, DIMS(4, 4), 9, 3, 12, 3, 3, 1, 4, 1, 12, 4, 16, 4, 3, 1, 4, 1);
        EXPECT(p, 2, 0, NULL, 27);
    }
    program_end(&p);
}

/* The definition: result[n, o, y, x] = sum of lhs[n, i, y * stride + ky * dilation - low, ...] kernel[o, i, ky, kx]. */
static void convolve(const array *lhs, const array *kernel, const hlo_convolution_dims *d, int64_t groups, array *out) {
    int64_t in = kernel->dims[1], per_group = out->dims[1] / groups;
    for (int64_t at = 0; at < out->n; at++) {
        int64_t x = at % out->dims[3], y = at / out->dims[3] % out->dims[2],
                o = at / out->dims[3] / out->dims[2] % out->dims[1];
        int64_t n = at / out->dims[3] / out->dims[2] / out->dims[1];
        long double sum = 0;
        for (int64_t k = 0; k < in * kernel->dims[2] * kernel->dims[3]; k++) {
            int64_t kx = k % kernel->dims[3], ky = k / kernel->dims[3] % kernel->dims[2],
                    i = k / kernel->dims[3] / kernel->dims[2];
            int64_t sy = y * d->stride[0] + ky * d->rhs_dilation[0] - d->low[0],
                    sx = x * d->stride[1] + kx * d->rhs_dilation[1] - d->low[1];
            if (sy < 0 || sx < 0 || sy % d->lhs_dilation[0] || sx % d->lhs_dilation[1]) continue;
            sy /= d->lhs_dilation[0];
            sx /= d->lhs_dilation[1];
            if (sy >= lhs->dims[2] || sx >= lhs->dims[3]) continue;
            int64_t channel = o / per_group * in + i;
            int64_t fy = d->reverse[0] ? kernel->dims[2] - 1 - ky : ky;
            sum += lhs->v[((n * lhs->dims[1] + channel) * lhs->dims[2] + sy) * lhs->dims[3] + sx].re *
                   kernel->v[((o * in + i) * kernel->dims[2] + fy) * kernel->dims[3] + kx].re;
        }
        out->v[at] = (number){.re = sum};
    }
}

static void test_convolution(void) {
    static array lhs, kernel, expected;
    array_ramp(&lhs, DTYPE_F32, 4, DIMS(2, 4, 5, 6), -50, 0.5);
    array_ramp(&kernel, DTYPE_F32, 4, DIMS(6, 2, 3, 2), -4, 0.25);
    hlo_convolution_dims d;
    hlo_convolution_dims_init(&d, 2);
    d.stride[0] = 2;
    d.low[0] = d.high[1] = 1;
    d.low[1] = 2;
    d.rhs_dilation[1] = 2;
    d.lhs_dilation[0] = 2;
    d.reverse[0] = true;
    d.feature_groups = 2;
    hlo_convolution_dims permuted = d; /* NHWC, HWIO, NHWC */
    permuted.lhs_feature = permuted.out_feature = 3;
    permuted.rhs_input = 2;
    permuted.rhs_output = 3;
    program p;
    program_begin(&p, "convolution");
    hlo_value x = program_input(&p, &lhs), k = program_input(&p, &kernel);
    program_result(&p, hlo_convolution(p.b, x, k, &d, DTYPE_F32));
    hlo_value last = hlo_convolution(p.b, hlo_transpose(p.b, x, DIMS(0, 2, 3, 1)),
                                     hlo_transpose(p.b, k, DIMS(2, 3, 1, 0)), &permuted, DTYPE_F32);
    program_result(&p, hlo_transpose(p.b, last, DIMS(0, 3, 1, 2)));
    if (program_run(&p)) {
        array_init(&expected, DTYPE_F32, 4, DIMS(2, 6, 4, 7)); /* (9 + 1 - 3) / 2 + 1, 6 + 3 - 3 + 1 */
        convolve(&lhs, &kernel, &d, 2, &expected);
        for (int i = 0; i < 2; i++) {
            check_dims("convolution", &p.outputs[i], 4, expected.dims);
            check_numbers("convolution", &p.outputs[i], expected.n, expected.v, 1e-5);
        }
    }
    program_end(&p);
}

/* Batch groups: the batch's halves meet the halves of the output features. A kernel of one element sums features. */
static void test_batch_groups(void) {
    static array lhs, kernel;
    array_ramp(&lhs, DTYPE_F32, 3, DIMS(2, 1, 3), 1, 1);
    array_ramp(&kernel, DTYPE_F32, 3, DIMS(2, 1, 1), 10, 90);
    hlo_convolution_dims d;
    hlo_convolution_dims_init(&d, 1);
    d.batch_groups = 2;
    program p;
    program_begin(&p, "batch_groups");
    program_result(&p, hlo_convolution(p.b, program_input(&p, &lhs), program_input(&p, &kernel), &d, DTYPE_F32));
    hlo_convolution_dims_init(&d, 0);
    hlo_value matrix = hlo_reshape(p.b, hlo_constant_floats(p.b, DTYPE_F32, 2, (double[]){2, 3}), 2, DIMS(1, 2));
    program_result(&p, hlo_convolution(p.b, matrix, matrix, &d, DTYPE_F32));
    if (program_run(&p)) {
        EXPECT(p, 0, 3, DIMS(1, 2, 3), 10, 20, 30, 400, 500, 600);
        EXPECT(p, 1, 2, DIMS(1, 1), 13);
    }
    program_end(&p);
}

/* ---- reductions ---- */

static void test_reduce(void) {
    static array flags, ints, nans, numbers;
    array_ramp(&flags, DTYPE_BOOL, 2, DIMS(1, 2), 0, 1);
    array_ramp(&ints, DTYPE_U8, 1, DIMS(3), 5, 8);
    array_ramp(&nans, DTYPE_F32, 1, DIMS(3), 1, 1);
    array_init(&numbers, DTYPE_C64, 1, DIMS(2));
    nans.v[1].re = NAN;
    numbers.v[0] = (number){1, 2};
    numbers.v[1] = (number){3, -1};
    program p;
    program_begin(&p, "reduce");
    hlo_builder *b = p.b;
    hlo_value x = program_input(&p, &x23), f = program_input(&p, &flags), n = program_input(&p, &ints),
              nan = program_input(&p, &nans), z = program_input(&p, &numbers);
    program_result(&p, hlo_reduce(b, HLO_REDUCE_ADD, x, 1, DIMS(1)));
    program_result(&p, hlo_reduce(b, HLO_REDUCE_MULTIPLY, x, 1, DIMS(0)));
    program_result(&p, hlo_reduce(b, HLO_REDUCE_MAXIMUM, x, 2, DIMS(1, 0)));
    program_result(&p, hlo_reduce(b, HLO_REDUCE_MINIMUM, nan, 1, DIMS(0)));
    program_result(&p, hlo_reduce(b, HLO_REDUCE_AND, n, 1, DIMS(0)));
    program_result(&p, hlo_reduce(b, HLO_REDUCE_OR, n, 1, DIMS(0)));
    program_result(&p, hlo_reduce(b, HLO_REDUCE_XOR, n, 1, DIMS(0)));
    program_result(&p, hlo_reduce(b, HLO_REDUCE_ADD, f, 1, DIMS(1)));
    program_result(&p, hlo_reduce(b, HLO_REDUCE_MULTIPLY, f, 1, DIMS(1)));
    program_result(&p, hlo_reduce(b, HLO_REDUCE_MAXIMUM, f, 1, DIMS(1)));
    program_result(&p, hlo_reduce(b, HLO_REDUCE_MINIMUM, f, 1, DIMS(1)));
    program_result(&p, hlo_reduce(b, HLO_REDUCE_MULTIPLY, z, 1, DIMS(0)));
    program_result(&p, hlo_reduce(b, HLO_REDUCE_MINIMUM, hlo_slice_dim(b, x, 1, 0, 0, 1), 1, DIMS(1)));
    CHECK(hlo_reduce(b, HLO_REDUCE_ADD, x, 0, NULL) == x);
    if (program_run(&p)) {
        EXPECT(p, 0, 1, DIMS(2), 3, 12);
        EXPECT(p, 1, 1, DIMS(3), 0, 4, 10);
        EXPECT(p, 2, 0, NULL, 5);
        EXPECT(p, 3, 0, NULL, NAN);
        EXPECT(p, 4, 0, NULL, 5 & 13 & 21);
        EXPECT(p, 5, 0, NULL, 5 | 13 | 21);
        EXPECT(p, 6, 0, NULL, 5 ^ 13 ^ 21);
        EXPECT(p, 7, 1, DIMS(1), 1);
        EXPECT(p, 8, 1, DIMS(1), 0);
        EXPECT(p, 9, 1, DIMS(1), 1);
        EXPECT(p, 10, 1, DIMS(1), 0);
        check_numbers("complex product", &p.outputs[11], 1, &(number){5, 5}, 0);
        EXPECT(p, 12, 1, DIMS(2), INFINITY, INFINITY);
    }
    program_end(&p);
}

/* Largest number and its place, in one reduction. */
static void test_reduce_region(void) {
    program p;
    program_begin(&p, "reduce_region");
    hlo_builder *b = p.b;
    hlo_value x = program_input(&p, &x4);
    hlo_value inputs[2] = {x, hlo_iota(b, DTYPE_I32, 1, x->dims, 0)};
    hlo_value init[2] = {hlo_min_value(b, DTYPE_F32), hlo_constant_int(b, DTYPE_I32, 0, NULL, 0)}, a[4], r[2];
    hlo_type f = {DTYPE_F32, 0, NULL}, i = {DTYPE_I32, 0, NULL};
    hlo_region_begin(b, 4, (hlo_type[]){f, i, f, i}, a);
    hlo_value take = hlo_ge(b, a[0], a[2]);
    r[0] = hlo_select(b, take, a[0], a[2]);
    r[1] = hlo_select(b, take, a[1], a[3]);
    hlo_region *body = hlo_region_end(b, 2, r);
    hlo_reduce_region(b, 2, inputs, init, 1, DIMS(0), body, r);
    program_result(&p, r[0]);
    program_result(&p, r[1]);
    if (program_run(&p)) {
        EXPECT(p, 0, 0, NULL, 4);
        EXPECT(p, 1, 0, NULL, 2);
    }
    program_end(&p);
}

static hlo_region *binary_region(hlo_builder *b, dtype t, hlo_binary_fn function) {
    hlo_type scalar = {t, 0, NULL};
    hlo_value a[2];
    hlo_region_begin(b, 2, (hlo_type[]){scalar, scalar}, a);
    hlo_value r = function(b, a[0], a[1]);
    return hlo_region_end(b, 1, &r);
}

static void test_windows(void) {
    program p;
    program_begin(&p, "windows");
    hlo_builder *b = p.b;
    hlo_value x = program_input(&p, &x4), m = program_input(&p, &square);
    hlo_window w;
    hlo_window_init(&w, 1);
    w.window[0] = 4;
    w.low[0] = 3;
    program_result(&p, hlo_reduce_window(b, HLO_REDUCE_ADD, x, &w)); /* cumulative sums */
    hlo_window_init(&w, 2);
    w.window[0] = w.window[1] = w.window_dilation[1] = 2;
    program_result(&p, hlo_reduce_window(b, HLO_REDUCE_MAXIMUM, m, &w));
    hlo_window_init(&w, 1);
    w.window[0] = 2;
    w.stride[0] = 3;
    w.base_dilation[0] = 2;
    hlo_value zero = hlo_scalar(b, DTYPE_F32, 0), r;
    hlo_reduce_window_region(b, 1, &x, &zero, &w, binary_region(b, DTYPE_F32, hlo_add), &r);
    program_result(&p, r);
    hlo_window_init(&w, 1);
    w.window[0] = w.stride[0] = 2;
    hlo_value source = hlo_constant_floats(b, DTYPE_F32, 2, (double[]){10, 20});
    program_result(&p, hlo_select_and_scatter(b, x, source, zero, &w, binary_region(b, DTYPE_F32, hlo_ge),
                                              binary_region(b, DTYPE_F32, hlo_add)));
    hlo_window_init(&w, 0);
    program_result(&p, hlo_reduce_window(b, HLO_REDUCE_ADD, zero, &w));
    if (program_run(&p)) {
        EXPECT(p, 0, 1, DIMS(4), 3, 4, 8, 9);
        EXPECT(p, 1, 2, DIMS(2, 1), 5, 8);
        EXPECT(p, 2, 1, DIMS(2), 3, 4); /* 3 0 1 0 4 0 1: places 0-1 and 3-4 */
        EXPECT(p, 3, 1, DIMS(4), 10, 0, 20, 0);
        EXPECT(p, 4, 0, NULL, 0);
    }
    program_end(&p);
}

/* ---- sort, control ---- */

static void test_sort(void) {
    program p;
    program_begin(&p, "sort");
    hlo_builder *b = p.b;
    hlo_value x = program_input(&p, &x4), m = program_input(&p, &square);
    hlo_value inputs[2] = {x, hlo_iota(b, DTYPE_I32, 1, x->dims, 0)}, a[4], r[2], values, indices;
    hlo_type f = {DTYPE_F32, 0, NULL}, i = {DTYPE_I32, 0, NULL};
    hlo_region_begin(b, 4, (hlo_type[]){f, f, i, i}, a);
    hlo_value before = hlo_lt(b, a[0], a[1]);
    hlo_sort(b, 2, inputs, 0, true, hlo_region_end(b, 1, &before), r);
    program_result(&p, r[0]);
    program_result(&p, r[1]);
    hlo_sort(b, 1, &m, 0, false, binary_region(b, DTYPE_F32, hlo_gt), &r[0]);
    program_result(&p, r[0]);
    hlo_top_k(b, m, 2, &values, &indices);
    program_result(&p, values);
    program_result(&p, indices);
    if (program_run(&p)) {
        EXPECT(p, 0, 1, DIMS(4), 1, 1, 3, 4);
        EXPECT(p, 1, 1, DIMS(4), 1, 3, 0, 2);
        EXPECT(p, 2, 2, DIMS(3, 3), 6, 7, 8, 3, 4, 5, 0, 1, 2);
        EXPECT(p, 3, 2, DIMS(3, 2), 2, 1, 5, 4, 8, 7);
        EXPECT(p, 4, 2, DIMS(3, 2), 2, 1, 2, 1, 2, 1);
    }
    program_end(&p);
}

/* Powers of 3 up to a limit from outside; a case inside a while; branches that use values from outside. */
static void test_control(void) {
    program p;
    program_begin(&p, "control");
    hlo_builder *b = p.b;
    hlo_value x = program_input(&p, &x4), a[2], r[2];
    hlo_value limit = hlo_scalar(b, DTYPE_F32, 100), three = hlo_scalar(b, DTYPE_F32, 3);
    hlo_value init[2] = {hlo_constant_int(b, DTYPE_I32, 0, NULL, 0), hlo_scalar(b, DTYPE_F32, 1)};
    hlo_type types[2] = {{DTYPE_I32, 0, NULL}, {DTYPE_F32, 0, NULL}};
    hlo_region_begin(b, 2, types, a);
    hlo_value go_on = hlo_lt(b, a[1], limit);
    hlo_region *condition = hlo_region_end(b, 1, &go_on), *branches[2];
    hlo_region_begin(b, 2, types, a);
    hlo_region_begin(b, 0, NULL, NULL);
    hlo_value product = hlo_multiply(b, a[1], three);
    branches[0] = hlo_region_end(b, 1, &product);
    hlo_region_begin(b, 0, NULL, NULL);
    branches[1] = hlo_region_end(b, 1, &limit);
    hlo_case(b, hlo_convert(b, hlo_gt(b, a[1], hlo_scalar(b, DTYPE_F32, 50)), DTYPE_I32), 2, branches, 1, &r[1]);
    r[0] = hlo_add(b, a[0], hlo_constant_int(b, DTYPE_I32, 0, NULL, 1));
    hlo_region *body = hlo_region_end(b, 2, r);
    hlo_while(b, 2, init, condition, body, r);
    program_result(&p, r[0]);
    program_result(&p, r[1]);
    hlo_region_begin(b, 0, NULL, NULL);
    branches[0] = hlo_region_end(b, 2, (hlo_value[]){x, three});
    hlo_region_begin(b, 0, NULL, NULL);
    hlo_value twice = hlo_add(b, x, x), late = program_input(&p, &x23); /* a parameter made here is one of @main */
    hlo_value sum = hlo_reduce(b, HLO_REDUCE_ADD, late, 2, DIMS(0, 1));
    branches[1] = hlo_region_end(b, 2, (hlo_value[]){twice, sum});
    hlo_case(b, hlo_constant_int(b, DTYPE_I32, 0, NULL, 9), 2, branches, 2, r); /* the last branch takes the rest */
    program_result(&p, r[0]);
    program_result(&p, r[1]);
    program_result(&p, late);
    if (program_run(&p)) {
        EXPECT(p, 0, 0, NULL, 5);
        EXPECT(p, 1, 0, NULL, 100);
        EXPECT(p, 2, 1, DIMS(4), 6, 2, 8, 2);
        EXPECT(p, 3, 0, NULL, 15);
        EXPECT(p, 4, 2, DIMS(2, 3), 0, 1, 2, 3, 4, 5);
    }
    program_end(&p);
}

/* ---- gather and scatter ---- */

static void test_gather(void) {
    program p;
    program_begin(&p, "gather");
    hlo_builder *b = p.b;
    hlo_value m = program_input(&p, &square), rows = hlo_constant_ints(b, DTYPE_I32, 2, (int64_t[]){2, 0});
    hlo_gather_dims d = {.n_offset = 1,
                         .n_collapsed = 1,
                         .n_start_map = 1,
                         .offset_dims = {1},
                         .index_vector_dim = 1,
                         .slice_sizes = {1, 3}};
    program_result(&p, hlo_gather(b, m, rows, &d));
    hlo_gather_dims points = {.n_collapsed = 2,
                              .n_start_map = 2,
                              .collapsed_dims = {0, 1},
                              .start_index_map = {0, 1},
                              .index_vector_dim = 1,
                              .slice_sizes = {1, 1}};
    hlo_value pairs = hlo_reshape(b, hlo_constant_ints(b, DTYPE_I64, 4, (int64_t[]){1, 2, 0, 1}), 2, DIMS(2, 2));
    program_result(&p, hlo_gather(b, m, pairs, &points));
    hlo_gather_dims batched = {.n_collapsed = 1,
                               .n_operand_batch = 1,
                               .n_start_map = 1,
                               .collapsed_dims = {1},
                               .operand_batch_dims = {0},
                               .indices_batch_dims = {0},
                               .start_index_map = {1},
                               .index_vector_dim = 2,
                               .slice_sizes = {1, 1}};
    hlo_value columns =
        hlo_reshape(b, hlo_constant_ints(b, DTYPE_I32, 6, (int64_t[]){0, 1, 2, 2, 1, 0}), 2, DIMS(3, 2));
    program_result(&p, hlo_gather(b, m, columns, &batched));
    if (program_run(&p)) {
        EXPECT(p, 0, 2, DIMS(2, 3), 6, 7, 8, 0, 1, 2);
        EXPECT(p, 1, 1, DIMS(2), 5, 1);
        EXPECT(p, 2, 2, DIMS(3, 2), 0, 1, 5, 5, 7, 6);
    }
    program_end(&p);
}

static void test_scatter(void) {
    program p;
    program_begin(&p, "scatter");
    hlo_builder *b = p.b;
    hlo_value m = program_input(&p, &square), x = program_input(&p, &x4), r, both[2];
    hlo_scatter_dims rows = {
        .n_window = 1, .n_inserted = 1, .n_scatter_map = 1, .update_window_dims = {1}, .index_vector_dim = 1};
    hlo_value indices = hlo_constant_ints(b, DTYPE_I32, 3, (int64_t[]){1, 1, 7}); /* twice the same, and one outside */
    hlo_value updates = hlo_broadcast_to(b, hlo_scalar(b, DTYPE_F32, 10), 2, DIMS(3, 3));
    hlo_scatter(b, 1, &m, indices, &updates, &rows, binary_region(b, DTYPE_F32, hlo_add), &r);
    program_result(&p, r);
    hlo_scatter_dims elements = {
        .n_inserted = 1, .n_scatter_map = 1, .index_vector_dim = 1, .unique_indices = true, .indices_are_sorted = true};
    hlo_value places = hlo_constant_ints(b, DTYPE_I32, 2, (int64_t[]){0, 3}), operands[2] = {x, hlo_add(b, x, x)},
              a[4]; /* XLA on CPUs mixes up one operand given twice */
    hlo_value ones[2] = {hlo_constant_floats(b, DTYPE_F32, 2, (double[]){1, 2}),
                         hlo_constant_floats(b, DTYPE_F32, 2, (double[]){5, 6})};
    hlo_type f = {DTYPE_F32, 0, NULL};
    hlo_region_begin(b, 4, (hlo_type[]){f, f, f, f}, a);
    both[0] = a[2];
    both[1] = hlo_multiply(b, a[1], a[3]);
    hlo_region *body = hlo_region_end(b, 2, both);
    hlo_scatter(b, 2, operands, places, ones, &elements, body, both);
    program_result(&p, both[0]);
    program_result(&p, both[1]);
    if (program_run(&p)) {
        EXPECT(p, 0, 2, DIMS(3, 3), 0, 1, 2, 23, 24, 25, 6, 7, 8);
        EXPECT(p, 1, 1, DIMS(4), 1, 1, 4, 2);
        EXPECT(p, 2, 1, DIMS(4), 30, 2, 8, 12);
    }
    program_end(&p);
}

/* ---- the rest ---- */

/* [[4, 2], [2, 5]] = L L' with L = [[2, 0], [1, 2]]. */
static void test_linear_algebra(void) {
    program p;
    program_begin(&p, "linear_algebra");
    hlo_builder *b = p.b;
    hlo_value m = hlo_reshape(b, hlo_constant_floats(b, DTYPE_F32, 4, (double[]){4, 2, 2, 5}), 2, DIMS(2, 2));
    hlo_value lower = hlo_reshape(b, hlo_constant_floats(b, DTYPE_F32, 4, (double[]){2, 0, 1, 2}), 2, DIMS(2, 2));
    hlo_value right = hlo_reshape(b, hlo_constant_floats(b, DTYPE_F32, 2, (double[]){2, 5}), 2, DIMS(2, 1));
    /* The other triangle of a Cholesky factor is unspecified. */
    hlo_value is_lower = hlo_ge(b, hlo_iota(b, DTYPE_I32, 2, DIMS(2, 2), 0), hlo_iota(b, DTYPE_I32, 2, DIMS(2, 2), 1));
    program_result(&p, hlo_select(b, is_lower, hlo_cholesky(b, m, true), hlo_scalar(b, DTYPE_F32, 0)));
    program_result(&p, hlo_triangular_solve(b, lower, right, true, true, false, 0));
    program_result(&p, hlo_triangular_solve(b, lower, right, true, true, false, 1));
    program_result(&p, hlo_triangular_solve(b, lower, hlo_transpose(b, right, DIMS(1, 0)), false, true, true, 2));
    if (program_run(&p)) {
        EXPECT(p, 0, 2, DIMS(2, 2), 2, 0, 1, 2);
        EXPECT(p, 1, 2, DIMS(2, 1), 1, 2);
        EXPECT(p, 2, 2, DIMS(2, 1), -0.25, 2.5);
        EXPECT(p, 3, 2, DIMS(1, 2), 2, 3); /* x [[1, 1], [0, 1]] = [2, 5] */
    }
    program_end(&p);
}

static void test_fft(void) {
    static array x;
    array_init(&x, DTYPE_C64, 2, DIMS(2, 4));
    for (int i = 0; i < 8; i++) x.v[i] = (number){i * i % 5, i % 3};
    program p;
    program_begin(&p, "fft");
    hlo_builder *b = p.b;
    hlo_value z = program_input(&p, &x), r = program_input(&p, &x4);
    hlo_value transformed = hlo_fft(b, z, HLO_FFT, 1, DIMS(4)), half = hlo_fft(b, r, HLO_RFFT, 1, DIMS(4));
    program_result(&p, transformed);
    program_result(&p, hlo_fft(b, transformed, HLO_IFFT, 1, DIMS(4)));
    program_result(&p, half);
    program_result(&p, hlo_fft(b, half, HLO_IRFFT, 1, DIMS(4)));
    program_result(&p, hlo_fft(b, hlo_fft(b, z, HLO_FFT, 2, DIMS(2, 4)), HLO_IFFT, 2, DIMS(2, 4)));
    if (program_run(&p)) {
        number expected[8];
        for (int row = 0; row < 2; row++)
            for (int k = 0; k < 4; k++) {
                double complex sum = 0;
                for (int j = 0; j < 4; j++) {
                    const number *v = &x.v[4 * row + j];
                    sum += ((double)v->re + (double)v->im * _Complex_I) * cexp(-2 * M_PI * j * k / 4 * _Complex_I);
                }
                expected[4 * row + k] = (number){creal(sum), cimag(sum)};
            }
        check_numbers("fft", &p.outputs[0], 8, expected, 1e-5);
        check_numbers("ifft of fft", &p.outputs[1], 8, x.v, 1e-5);
        check_numbers("rfft", &p.outputs[2], 3, (number[]){{9, 0}, {-1, 0}, {5, 0}}, 1e-5); /* of 3, 1, 4, 1 */
        check_numbers("irfft of rfft", &p.outputs[3], 4, x4.v, 1e-5);
        check_numbers("two dimensions", &p.outputs[4], 8, x.v, 1e-5);
    }
    program_end(&p);
}

/* Bits differ from one another and from the next draw's; the same state gives the same bits. */
static void test_random_bits(void) {
    static array state;
    array_ramp(&state, DTYPE_U64, 1, DIMS(2), 1234, 7);
    program p;
    program_begin(&p, "random_bits");
    hlo_builder *b = p.b;
    hlo_value s = program_input(&p, &state), next, bits, again, ignored, later;
    hlo_rng_bit_generator(b, s, DTYPE_U32, 2, DIMS(8, 8), &next, &bits);
    hlo_rng_bit_generator(b, s, DTYPE_U32, 2, DIMS(8, 8), &ignored, &again);
    hlo_rng_bit_generator(b, next, DTYPE_U32, 2, DIMS(8, 8), &ignored, &later);
    program_result(&p, next);
    program_result(&p, bits);
    program_result(&p, again);
    program_result(&p, later);
    static const dtype types[] = {DTYPE_U8, DTYPE_U16, DTYPE_U64};
    for (int i = 0; i < 3; i++) {
        hlo_rng_bit_generator(b, s, types[i], 1, DIMS(5), &ignored, &bits);
        program_result(&p, bits);
    }
    if (program_run(&p)) {
        const array *o = p.outputs;
        int equal_neighbours = 0, equal_later = 0, high = 0;
        for (int i = 0; i < 64; i++) {
            CHECK(o[1].v[i].re == o[2].v[i].re);
            equal_neighbours += i > 0 && o[1].v[i].re == o[1].v[i - 1].re;
            equal_later += o[1].v[i].re == o[3].v[i].re;
            high += o[1].v[i].re >= 0x1p31;
        }
        CHECK_INT(equal_neighbours, 0);
        CHECK_INT(equal_later, 0);
        CHECK(high > 10 && high < 54);
        CHECK(o[0].v[0].re == state.v[0].re && o[0].v[1].re != state.v[1].re); /* the key stays, the counter moves */
    }
    program_end(&p);
}

static void test_barrier(void) {
    program p;
    program_begin(&p, "barrier");
    hlo_value x = program_input(&p, &x4), m = program_input(&p, &x23), r[2];
    hlo_optimization_barrier(p.b, 2, (hlo_value[]){x, m}, r);
    program_result(&p, r[0]);
    program_result(&p, r[1]);
    if (program_run(&p)) {
        EXPECT(p, 0, 1, DIMS(4), 3, 1, 4, 1);
        EXPECT(p, 1, 2, DIMS(2, 3), 0, 1, 2, 3, 4, 5);
    }
    program_end(&p);
}

/* XLA's CPU client knows its own top-k by this name. */
static void test_custom_call(void) {
    program p;
    program_begin(&p, "custom_call");
    hlo_value x = program_input(&p, &x4), r[1];
    hlo_type type = {DTYPE_F32, 1, DIMS(4)};
    hlo_custom_call(p.b, "Sharding", NULL, false, 1, &x, 1, &type, r);
    program_result(&p, r[0]);
    if (program_run(&p)) EXPECT(p, 0, 1, DIMS(4), 3, 1, 4, 1);
    program_end(&p);
}

/* A donated parameter's memory takes the result. */
static void test_donation(void) {
    program p;
    program_begin(&p, "donation");
    hlo_value x = program_input(&p, &x4), m = program_input(&p, &x23);
    hlo_parameter_donate(p.b, 0, 1);
    program_result(&p, hlo_negate(p.b, m));
    program_result(&p, hlo_negate(p.b, x));
    if (program_run(&p)) EXPECT(p, 1, 1, DIMS(4), -3, -1, -4, -1);
    strbuf text;
    strbuf_init(&text);
    CHECK_OK(hlo_finish(p.b, "a::name with \"quotes\"", 2, p.results, &text));
    CHECK(strstr(strbuf_text(&text), "{tf.aliasing_output = 1 : i32}") != NULL);
    strbuf_free(&text);
    program_end(&p);
}

/* No parameters, no results. */
static void test_empty(void) {
    program p;
    program_begin(&p, "empty");
    CHECK(program_run(&p));
    program_end(&p);
}

int main(void) {
    int rc = program_start();
    if (rc) return rc;
    init_inputs();
    test_shapes();
    test_dot();
    test_convolution();
    test_batch_groups();
    test_reduce();
    test_reduce_region();
    test_windows();
    test_sort();
    test_control();
    test_gather();
    test_scatter();
    test_linear_algebra();
    test_fft();
    test_random_bits();
    test_barrier();
    test_custom_call();
    test_donation();
    test_empty();
    return check_report();
}
