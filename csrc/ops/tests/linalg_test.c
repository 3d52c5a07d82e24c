/* Reductions, normalisation, matrix products, attention, losses and factorisations: small cases against their
 * definitions. */
#include "ops/tests/calls.h"

static argument number_of(double v) {
    return (argument){.tag = ARG_NUMBER, .u.number = {.dtype = DTYPE_F64, .wrapped = true, .v.f = {v}}};
}

/* The first NaN is the largest; of equal elements the first counts. */
static void test_first_extreme(void) {
    float x[2 * 4] = {1, NAN, 3, NAN, 5, 7, 7, 2}, y[2], expected[2] = {NAN, 7};
    int64_t index[2];
    harness_array input = FLOATS(2, DIMS(2, 4), x),
                  results[2] = {FLOATS(1, DIMS(2), y), {DTYPE_I64, 1, DIMS(2), index}};
    argument arguments[3] = {VALUE(0), INT(1), INT(0)};
    if (!CHECK_OK(harness_run("aten::max.dim", 3, arguments, 1, &input, 2, results))) return;
    check_near(2, y, expected, 0, "largest");
    CHECK_INT(index[0], 1);
    CHECK_INT(index[1], 1);
}

/* Rows of the result have mean 0 and variance 1; the statistics are the rows' own. */
static void test_layer_norm(void) {
    enum { ROWS = 3, WIDTH = 5 };
    float x[ROWS * WIDTH], y[ROWS * WIDTH], mean[ROWS], inverse[ROWS], expected[ROWS * WIDTH], expected_mean[ROWS];
    fill(ROWS * WIDTH, x, 7);
    for (int r = 0; r < ROWS; r++) {
        double m = 0, v = 0;
        for (int i = 0; i < WIDTH; i++) m += (double)x[r * WIDTH + i] / WIDTH;
        for (int i = 0; i < WIDTH; i++) v += ((double)x[r * WIDTH + i] - m) * ((double)x[r * WIDTH + i] - m) / WIDTH;
        for (int i = 0; i < WIDTH; i++)
            expected[r * WIDTH + i] = (float)(((double)x[r * WIDTH + i] - m) / sqrt(v + 1e-5));
        expected_mean[r] = (float)m;
    }
    harness_array input = FLOATS(2, DIMS(ROWS, WIDTH), x);
    harness_array results[3] = {FLOATS(2, DIMS(ROWS, WIDTH), y), FLOATS(2, DIMS(ROWS, 1), mean),
                                FLOATS(2, DIMS(ROWS, 1), inverse)};
    argument arguments[5] = {VALUE(0), INTS(1, WIDTH), NONE, NONE, number_of(1e-5)};
    if (!CHECK_OK(harness_run("aten::native_layer_norm", 5, arguments, 1, &input, 3, results))) return;
    check_near(ROWS * WIDTH, y, expected, 1e-5f, "layer norm");
    check_near(ROWS, mean, expected_mean, 1e-6f, "mean");
}

/* beta = 0 ignores what self holds. */
static void test_beta_zero(void) {
    float self[4] = {NAN, NAN, INFINITY, NAN}, a[4] = {1, 2, 3, 4}, c[4] = {5, 6, 7, 8}, y[4],
          expected[4] = {38, 44, 86, 100};
    harness_array inputs[3] = {FLOATS(2, DIMS(2, 2), self), FLOATS(2, DIMS(2, 2), a), FLOATS(2, DIMS(2, 2), c)};
    harness_array result = FLOATS(2, DIMS(2, 2), y);
    argument arguments[5] = {VALUE(0), VALUE(1), VALUE(2), number_of(0), number_of(2)};
    if (CHECK_OK(harness_run("aten::addmm", 5, arguments, 3, inputs, 1, &result)))
        check_near(4, y, expected, 1e-6f, "addmm");
}

/* Causal attention of one head: the first row sees the first value alone; a row that is masked whole is zero. */
static void test_attention(void) {
    enum { LENGTH = 3, WIDTH = 2 };
    float q[LENGTH * WIDTH], k[LENGTH * WIDTH], v[LENGTH * WIDTH], y[LENGTH * WIDTH], zeros[WIDTH] = {0}, total[LENGTH];
    float bias[LENGTH * LENGTH] = {0};
    for (int j = 0; j < LENGTH; j++) bias[2 * LENGTH + j] = -INFINITY;
    fill(LENGTH * WIDTH, q, 1);
    fill(LENGTH * WIDTH, k, 2);
    fill(LENGTH * WIDTH, v, 3);
    const int64_t *dims = DIMS(1, 1, LENGTH, WIDTH);
    harness_array inputs[4] = {FLOATS(4, dims, q), FLOATS(4, dims, k), FLOATS(4, dims, v),
                               FLOATS(2, DIMS(LENGTH, LENGTH), bias)};
    harness_array results[2] = {FLOATS(4, dims, y), FLOATS(3, DIMS(1, 1, LENGTH), total)};
    argument arguments[7] = {VALUE(0), VALUE(1), VALUE(2), number_of(0), INT(1), VALUE(3), NONE};
    if (!CHECK_OK(
            harness_run("aten::_scaled_dot_product_flash_attention_for_cpu", 7, arguments, 4, inputs, 2, results)))
        return;
    check_near(WIDTH, y, v, 1e-6f, "the first row of causal attention");
    check_near(WIDTH, y + 2 * WIDTH, zeros, 0, "a row that is masked whole");
    CHECK(isinf(total[2]) && total[2] < 0);
}

/* Two frames, one label: the paths are (label, label), (blank, label) and (label, blank). */
static void test_ctc(void) {
    float p[2 * 1 * 2] = {0.6f, 0.4f, 0.3f, 0.7f}, logs[4], loss, alpha[2 * 3];
    int64_t target = 1;
    for (int i = 0; i < 4; i++) logs[i] = logf(p[i]);
    float expected = -logf(0.4f * 0.7f + 0.6f * 0.7f + 0.4f * 0.3f);
    harness_array inputs[2] = {FLOATS(3, DIMS(2, 1, 2), logs), {DTYPE_I64, 2, DIMS(1, 1), &target}};
    harness_array results[2] = {FLOATS(1, DIMS(1), &loss), FLOATS(3, DIMS(1, 2, 3), alpha)};
    argument arguments[6] = {VALUE(0), VALUE(1), INTS(1, 2), INTS(1, 1), INT(0), INT(0)};
    if (CHECK_OK(harness_run("aten::_ctc_loss", 6, arguments, 2, inputs, 2, results)))
        check_near(1, &loss, &expected, 1e-5f, "ctc");
}

/* ---- factorisations: the factors multiply back to the matrix, and have the shape they should ---- */

enum { N = 5 };

static void product(const float *x, const float *y, float *z) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < N; k++) sum += (double)x[i * N + k] * (double)y[k * N + j];
            z[i * N + j] = (float)sum;
        }
}

static void check_identity(const float *x, const float *y, const char *what) { /* x^T y */
    float transposed[N * N], z[N * N], one[N * N] = {0};
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) transposed[i * N + j] = x[j * N + i];
    for (int i = 0; i < N; i++) one[i * N + i] = 1;
    product(transposed, y, z);
    check_near(N * N, z, one, 1e-5f, what);
}

static void test_qr(void) {
    float a[N * N], q[N * N], r[N * N], back[N * N];
    fill(N * N, a, 11);
    harness_array input = FLOATS(2, DIMS(N, N), a), results[2] = {FLOATS(2, DIMS(N, N), q), FLOATS(2, DIMS(N, N), r)};
    argument arguments[2] = {VALUE(0), TEXT("reduced")};
    if (!CHECK_OK(harness_run("aten::linalg_qr", 2, arguments, 1, &input, 2, results))) return;
    product(q, r, back);
    check_near(N * N, back, a, 1e-5f, "Q R");
    check_identity(q, q, "Q^T Q");
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++) CHECK(r[i * N + j] == 0);
}

static void test_lu(void) {
    float a[N * N], p[N * N], l[N * N], u[N * N], lu[N * N], back[N * N];
    fill(N * N, a, 12);
    harness_array input = FLOATS(2, DIMS(N, N), a);
    harness_array results[3] = {FLOATS(2, DIMS(N, N), p), FLOATS(2, DIMS(N, N), l), FLOATS(2, DIMS(N, N), u)};
    argument arguments[2] = {VALUE(0), INT(1)};
    if (!CHECK_OK(harness_run("aten::linalg_lu", 2, arguments, 1, &input, 3, results))) return;
    product(l, u, lu);
    product(p, lu, back);
    check_near(N * N, back, a, 1e-5f, "P L U");
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++) CHECK(fabsf(l[i * N + j]) <= 1);
}

static void test_singular_values(void) {
    float a[N * N], u[N * N], s[N], vh[N * N], scaled[N * N], back[N * N];
    fill(N * N, a, 13);
    for (int j = 0; j < N; j++) a[4 * N + j] = a[j] + a[N + j]; /* one singular value is zero */
    harness_array input = FLOATS(2, DIMS(N, N), a);
    harness_array results[3] = {FLOATS(2, DIMS(N, N), u), FLOATS(1, DIMS(N), s), FLOATS(2, DIMS(N, N), vh)};
    argument arguments[4] = {VALUE(0), INT(1), INT(1), NONE};
    if (!CHECK_OK(harness_run("aten::_linalg_svd", 4, arguments, 1, &input, 3, results))) return;
    for (int i = 0; i < N * N; i++) scaled[i] = u[i] * s[i % N];
    product(scaled, vh, back);
    check_near(N * N, back, a, 1e-5f, "U S Vh");
    check_identity(u, u, "U^T U");
    for (int i = 1; i < N; i++) CHECK(s[i] <= s[i - 1] && s[i] >= 0);
    CHECK(s[N - 1] < 1e-5f);
}

/* The second difference matrix has eigenvalues 2 - 2 cos(pi k / (n + 1)). */
static void test_eigenvalues(void) {
    float a[N * N] = {0}, w[N], v[N * N], expected[N];
    for (int i = 0; i < N; i++) {
        a[i * N + i] = 2;
        if (i) a[i * N + i - 1] = -1; /* the lower triangle alone is read */
        expected[i] = (float)(2 - 2 * cos(M_PI * (i + 1) / (N + 1)));
    }
    harness_array input = FLOATS(2, DIMS(N, N), a), results[2] = {FLOATS(1, DIMS(N), w), FLOATS(2, DIMS(N, N), v)};
    argument arguments[3] = {VALUE(0), TEXT("L"), INT(1)};
    if (!CHECK_OK(harness_run("aten::_linalg_eigh", 3, arguments, 1, &input, 2, results))) return;
    check_near(N, w, expected, 1e-5f, "eigenvalues");
    check_identity(v, v, "V^T V");
}

/* info is the order of the leading minor that is not positive. */
static void test_cholesky_info(void) {
    float a[9] = {4, 0, 0, 2, 5, 0, 0, 2, -1}, factor[9];
    int32_t info;
    harness_array input = FLOATS(2, DIMS(3, 3), a),
                  results[2] = {FLOATS(2, DIMS(3, 3), factor), {DTYPE_I32, 0, NULL, &info}};
    argument arguments[3] = {VALUE(0), INT(0), INT(0)};
    if (CHECK_OK(harness_run("aten::linalg_cholesky_ex", 3, arguments, 1, &input, 2, results))) CHECK_INT(info, 3);
}

int main(void) {
    int code;
    if (!calls_begin(&code)) return code;
    test_first_extreme();
    test_layer_norm();
    test_beta_zero();
    test_attention();
    test_ctc();
    test_qr();
    test_lu();
    test_singular_values();
    test_eigenvalues();
    test_cholesky_info();
    return check_report();
}
