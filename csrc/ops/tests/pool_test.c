/* Pooling: values, places and gradients, by the definition of a window. */
#include "ops/tests/calls.h"

enum { H = 5, W = 6 };

/* Stride 2, padding 1, a 3 x 3 window: places count through the plane; the first of equal maxima; NaN beats everything.
 */
static void test_max_places(void) {
    float x[H * W] = {0};
    x[1 * W + 1] = 2;
    x[1 * W + 2] = 2;
    x[4 * W + 5] = NAN;
    x[2 * W + 3] = 5;
    float values[3 * 3], grad[3 * 3], dx[H * W], expected_dx[H * W] = {0};
    int64_t places[3 * 3];
    for (int i = 0; i < 9; i++) grad[i] = (float)(i + 1);
    argument arguments[6] = {VALUE(0), INTS(2, 3, 3), INTS(2, 2, 2), INTS(2, 1, 1), INTS(2, 1, 1), INT(0)};
    harness_array input = FLOATS(3, DIMS(1, H, W), x);
    harness_array results[2] = {FLOATS(3, DIMS(1, 3, 3), values), {DTYPE_I64, 3, DIMS(1, 3, 3), places}};
    if (!CHECK_OK(harness_run("aten::max_pool2d_with_indices", 6, arguments, 1, &input, 2, results))) return;
    static const float expected[9] = {2, 2, 0, 2, 5, 5, 0, 0, NAN};
    static const int64_t expected_places[9] = {7, 7, 3, 7, 15, 15, 18, 19, 29};
    expected_dx[7] = 1 + 2 + 4;
    expected_dx[3] = 3;
    expected_dx[15] = 5 + 6;
    expected_dx[18] = 7;
    expected_dx[19] = 8;
    expected_dx[29] = 9;
    for (int i = 0; i < 9; i++) CHECK_INT(places[i], expected_places[i]);
    check_near(9, values, expected, 0, "maximum");
    argument backward[8] = {VALUE(0),      VALUE(1),      INTS(2, 3, 3), INTS(2, 2, 2),
                            INTS(2, 1, 1), INTS(2, 1, 1), INT(0),        VALUE(2)};
    harness_array given[3] = {FLOATS(3, DIMS(1, 3, 3), grad), input, results[1]}, result = FLOATS(3, DIMS(1, H, W), dx);
    if (CHECK_OK(harness_run("aten::max_pool2d_with_indices_backward", 8, backward, 3, given, 1, &result)))
        check_near(H * W, dx, expected_dx, 1e-6f, "gradient of the maximum");
}

/* A constant averages to itself where padding does not count, and to the share of real elements where it does. */
static void test_average_counts_padding(void) {
    float x[H * W], y[3 * 3];
    for (int i = 0; i < H * W; i++) x[i] = 6;
    harness_array input = FLOATS(3, DIMS(1, H, W), x), result = FLOATS(3, DIMS(1, 3, 3), y);
    static const float counted[9] = {24.f / 9, 4, 4, 4, 6, 6, 24.f / 9, 4, 4},
                       uncounted[9] = {6, 6, 6, 6, 6, 6, 6, 6, 6};
    for (int include = 0; include < 2; include++) {
        argument arguments[7] = {VALUE(0), INTS(2, 3, 3), INTS(2, 2, 2), INTS(2, 1, 1), INT(0), INT(include), NONE};
        if (CHECK_OK(harness_run("aten::avg_pool2d", 7, arguments, 1, &input, 1, &result)))
            check_near(9, y, include ? counted : uncounted, 1e-6f, "average");
    }
}

/* Windows of 5 elements in 3: [0, 2), [1, 4), [3, 5). */
static void test_adaptive_windows_overlap(void) {
    float x[5] = {1, 2, 4, 8, 16}, y[3], grad[3] = {6, 6, 6}, dx[5];
    argument arguments[2] = {VALUE(0), INTS(2, 1, 3)};
    harness_array input = FLOATS(3, DIMS(1, 1, 5), x), result = FLOATS(3, DIMS(1, 1, 3), y);
    if (CHECK_OK(harness_run("aten::_adaptive_avg_pool2d", 2, arguments, 1, &input, 1, &result)))
        check_near(3, y, (const float[]){1.5f, 14.f / 3, 12}, 1e-6f, "adaptive average");
    argument backward[2] = {VALUE(0), VALUE(1)};
    harness_array given[2] = {FLOATS(3, DIMS(1, 1, 3), grad), input}, dx_result = FLOATS(3, DIMS(1, 1, 5), dx);
    if (CHECK_OK(harness_run("aten::_adaptive_avg_pool2d_backward", 2, backward, 2, given, 1, &dx_result)))
        check_near(5, dx, (const float[]){3, 5, 2, 5, 3}, 1e-6f, "gradient of the adaptive average");
}

int main(void) {
    int code;
    if (!calls_begin(&code)) return code;
    test_max_places();
    test_average_counts_padding();
    test_adaptive_windows_overlap();
    return check_report();
}
