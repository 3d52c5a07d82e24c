/* Fourier transforms against the defining sum, resizing of straight lines, and fused recurrent cells against their
 * formulas. */
#include <complex.h>

#include "ops/tests/calls.h"

enum { ROWS = 2, LENGTH = 6 };

/* Both directions and the three scalings: none, 1 / sqrt n, 1 / n. */
static void test_fourier(void) {
    float x[ROWS * LENGTH * 2], y[ROWS * LENGTH * 2], expected[ROWS * LENGTH * 2];
    fill(ROWS * LENGTH * 2, x, 1);
    harness_array input = {DTYPE_C64, 2, DIMS(ROWS, LENGTH), x}, result = {DTYPE_C64, 2, DIMS(ROWS, LENGTH), y};
    for (int forward = 0; forward < 2; forward++) {
        for (int mode = 0; mode < 3; mode++) {
            double factor = mode == 1 ? 1 / sqrt(LENGTH) : mode == 2 ? 1.0 / LENGTH : 1;
            for (int r = 0; r < ROWS; r++) {
                for (int k = 0; k < LENGTH; k++) {
                    double complex sum = 0;
                    for (int j = 0; j < LENGTH; j++)
                        sum += ((double)x[2 * (r * LENGTH + j)] + I * (double)x[2 * (r * LENGTH + j) + 1]) *
                               cexp((forward ? -2 : 2) * M_PI * I * j * k / LENGTH);
                    expected[2 * (r * LENGTH + k)] = (float)(creal(sum) * factor);
                    expected[2 * (r * LENGTH + k) + 1] = (float)(cimag(sum) * factor);
                }
            }
            argument arguments[4] = {VALUE(0), INTS(1, 1), INT(mode), INT(forward)};
            if (CHECK_OK(harness_run("aten::_fft_c2c", 4, arguments, 1, &input, 1, &result)))
                check_near(ROWS * LENGTH * 2, y, expected, 1e-5f, "Fourier transform");
        }
    }
}

/* A straight line resized linearly with aligned corners is the same line; so is a short axis (a matrix) and a long one
 * (taps). */
static void test_resized_line(void) {
    enum { LONG = 1500, RESULT = 1700 };
    static float x[LONG], y[RESULT], expected[RESULT];
    int64_t in[2] = {5, LONG}, out[2] = {9, RESULT};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < in[k]; i++) x[i] = (float)i;
        for (int o = 0; o < out[k]; o++) expected[o] = (float)o * (float)(in[k] - 1) / (float)(out[k] - 1);
        argument arguments[4] = {VALUE(0), INTS(1, out[k]), INT(1), NONE};
        harness_array input = FLOATS(3, DIMS(1, 1, in[k]), x), result = FLOATS(3, DIMS(1, 1, out[k]), y);
        if (CHECK_OK(harness_run("aten::upsample_linear1d", 4, arguments, 1, &input, 1, &result)))
            check_near((int)out[k], y, expected, 1e-4f, "resized line");
    }
}

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

static void test_lstm_cell(void) {
    enum { HIDDEN = 3 };
    float in[4 * HIDDEN], hidden[4 * HIDDEN], cx[HIDDEN], hy[HIDDEN], cy[HIDDEN], kept[4 * HIDDEN], expected_hy[HIDDEN],
        expected_cy[HIDDEN];
    fill(4 * HIDDEN, in, 1);
    fill(4 * HIDDEN, hidden, 2);
    fill(HIDDEN, cx, 3);
    for (int i = 0; i < HIDDEN; i++) {
        float gate[4];
        for (int k = 0; k < 4; k++) gate[k] = in[k * HIDDEN + i] + hidden[k * HIDDEN + i];
        expected_cy[i] = sigmoid(gate[1]) * cx[i] + sigmoid(gate[0]) * tanhf(gate[2]);
        expected_hy[i] = sigmoid(gate[3]) * tanhf(expected_cy[i]);
    }
    const int64_t gates[2] = {1, 4 * HIDDEN}, state[2] = {1, HIDDEN};
    argument arguments[5] = {VALUE(0), VALUE(1), VALUE(2), NONE, NONE};
    harness_array inputs[3] = {FLOATS(2, gates, in), FLOATS(2, gates, hidden), FLOATS(2, state, cx)};
    harness_array results[3] = {FLOATS(2, state, hy), FLOATS(2, state, cy), FLOATS(2, gates, kept)};
    if (!CHECK_OK(harness_run("aten::_thnn_fused_lstm_cell", 5, arguments, 3, inputs, 3, results))) return;
    check_near(HIDDEN, hy, expected_hy, 1e-6f, "hidden state");
    check_near(HIDDEN, cy, expected_cy, 1e-6f, "cell state");
}

int main(void) {
    int code;
    if (!calls_begin(&code)) return code;
    test_fourier();
    test_resized_line();
    test_lstm_cell();
    return check_report();
}
