/* Convolutions against their defining sums; gradients against the adjoint identity <y(x), g> = <x, dx(g)>. */
#include "ops/tests/calls.h"

enum { N = 2, GROUPS = 2, IN = 4, OUT = 6, H = 7, W = 6, KH = 3, KW = 2, MAX = 2048 };

typedef struct {
    int64_t stride[2], padding[2], dilation[2], output_padding[2], groups;
    bool transposed;
} conv;

static int64_t result_size(const conv *c, int i, int64_t in, int64_t kernel) {
    int64_t extent = c->dilation[i] * (kernel - 1) + 1;
    if (c->transposed) return (in - 1) * c->stride[i] - 2 * c->padding[i] + extent + c->output_padding[i];
    return (in + 2 * c->padding[i] - extent) / c->stride[i] + 1;
}

/* y[n, o, p] += x[n, i, q] w[..] over all pairs that the kernel joins: q = p s + k d - padding, or with p and q
 * exchanged. */
static void expected_convolution(const conv *c, const float *x, const float *w, const int64_t *size, float *y) {
    int64_t in = IN / c->groups, out = OUT / c->groups;
    for (int i = 0; i < N * OUT * size[0] * size[1]; i++) y[i] = 0;
    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < OUT; o++)
            for (int64_t i = 0; i < in; i++)
                for (int64_t a = 0; a < (c->transposed ? H : size[0]); a++)
                    for (int64_t e = 0; e < (c->transposed ? W : size[1]); e++)
                        for (int64_t k = 0; k < KH * KW; k++) {
                            int64_t channel = o / out * in + i;
                            int64_t row = a * c->stride[0] + k / KW * c->dilation[0] - c->padding[0];
                            int64_t column = e * c->stride[1] + k % KW * c->dilation[1] - c->padding[1];
                            int64_t high = c->transposed ? size[0] : H, wide = c->transposed ? size[1] : W;
                            if (row < 0 || column < 0 || row >= high || column >= wide) continue;
                            int64_t xi = c->transposed ? a * W + e : row * W + column,
                                    yi = c->transposed ? row * wide + column : a * size[1] + e;
                            float weight = c->transposed ? w[(channel * out + o % out) * KH * KW + k]
                                                         : w[(o * in + i) * KH * KW + k];
                            y[(n * OUT + o) * size[0] * size[1] + yi] += x[(n * IN + channel) * H * W + xi] * weight;
                        }
}

static double dot(int64_t n, const float *a, const float *b) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void test_convolution(const conv *c) {
    float x[MAX], w[MAX], y[MAX], expected[MAX], grad[MAX], dx[MAX], dw[MAX], db[OUT], bias_grad[OUT] = {0};
    int64_t x_dims[4] = {N, IN, H, W}, size[2] = {result_size(c, 0, H, KH), result_size(c, 1, W, KW)};
    int64_t w_dims[4] = {c->transposed ? IN : OUT, (c->transposed ? OUT : IN) / c->groups, KH, KW},
            y_dims[4] = {N, OUT, size[0], size[1]};
    int64_t x_count = N * IN * H * W, w_count = w_dims[0] * w_dims[1] * KH * KW, y_count = N * OUT * size[0] * size[1];
    if (!CHECK(x_count <= MAX && y_count <= MAX && w_count <= MAX)) return;
    fill((int)x_count, x, 1);
    fill((int)w_count, w, 2);
    fill((int)y_count, grad, 3);
    argument tail[6] = {INTS(2, c->stride[0], c->stride[1]),
                        INTS(2, c->padding[0], c->padding[1]),
                        INTS(2, c->dilation[0], c->dilation[1]),
                        INT(c->transposed),
                        INTS(2, c->output_padding[0], c->output_padding[1]),
                        INT(c->groups)};

    argument forward[9] = {VALUE(0), VALUE(1), NONE};
    memcpy(forward + 3, tail, sizeof tail);
    harness_array inputs[2] = {FLOATS(4, x_dims, x), FLOATS(4, w_dims, w)}, result = FLOATS(4, y_dims, y);
    if (!CHECK_OK(harness_run("aten::convolution", 9, forward, 2, inputs, 1, &result))) return;
    expected_convolution(c, x, w, size, expected);
    check_near((int)y_count, y, expected, 1e-5f, "convolution");

    argument backward[11] = {VALUE(0), VALUE(1), VALUE(2), NONE};
    memcpy(backward + 4, tail, sizeof tail);
    backward[10] = INTS(3, 1, 1, 1);
    harness_array given[3] = {FLOATS(4, y_dims, grad), inputs[0], inputs[1]};
    harness_array grads[3] = {FLOATS(4, x_dims, dx), FLOATS(4, w_dims, dw), FLOATS(1, DIMS(OUT), db)};
    if (!CHECK_OK(harness_run("aten::convolution_backward", 11, backward, 3, given, 3, grads))) return;
    double forward_product = dot(y_count, expected, grad);
    CHECK(fabs(dot(x_count, x, dx) - forward_product) < 1e-4 * (1 + fabs(forward_product)));
    CHECK(fabs(dot(w_count, w, dw) - forward_product) < 1e-4 * (1 + fabs(forward_product)));
    for (int64_t i = 0; i < y_count; i++) bias_grad[i / (size[0] * size[1]) % OUT] += grad[i];
    check_near(OUT, db, bias_grad, 1e-5f, "bias gradient");
}

int main(void) {
    int code;
    if (!calls_begin(&code)) return code;
    static const conv cases[] = {
        {{1, 1}, {0, 0}, {1, 1}, {0, 0}, 1, false},
        {{2, 1}, {1, 0}, {1, 2}, {0, 0}, 1, false},
        {{2, 3}, {2, 1}, {2, 1}, {0, 0}, GROUPS, false},
        {{1, 1}, {0, 0}, {1, 1}, {0, 0}, 1, true},
        {{2, 1}, {1, 0}, {1, 2}, {1, 0}, 1, true},
        {{1, 2}, {1, 1}, {2, 3}, {1, 2}, GROUPS, true}, /* output padding up to the dilation, beyond the stride */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) test_convolution(&cases[i]);
    return check_report();
}
