/* Random operators: ranges, and mean and variance against the distribution's own within five standard errors. */
#include "ops/tests/calls.h"

enum { N = 20000 };

#define FLOAT(v) ((argument){.tag = ARG_NUMBER, .u.number = {DTYPE_F64, true, {.f = {(v), 0}}}})

static float given[N], second_given[N], out[N];

static void check_moments(const char *name, int n_args, const argument *args, double mean, double variance) {
    harness_array inputs[2] = {FLOATS(1, DIMS(N), given), FLOATS(1, DIMS(N), second_given)},
                  result = FLOATS(1, DIMS(N), out);
    double sum = 0, squares = 0;
    if (!CHECK_OK(harness_run(name, n_args, args, 2, inputs, 1, &result))) return;
    for (int i = 0; i < N; i++) sum += (double)out[i];
    for (int i = 0; i < N; i++) squares += pow((double)out[i] - sum / N, 2);
    bool near = fabs(sum / N - mean) < 5 * sqrt(variance / N) && fabs(squares / N / variance - 1) < 0.15;
    if (near) return;
    check_failures++;
    printf("%s: mean %g, variance %g; expected %g and %g\n", name, sum / N, squares / N, mean, variance);
}

static void fill_both(float a, float b) {
    for (int i = 0; i < N; i++) given[i] = a, second_given[i] = b;
}

static void test_moments(void) {
    fill_both(0, 0);
    check_moments("aten::uniform", 3, (argument[]){VALUE(0), FLOAT(-1), FLOAT(3)}, 1, 16.0 / 12);
    check_moments("aten::normal_functional", 3, (argument[]){VALUE(0), FLOAT(2), FLOAT(3)}, 2, 9);
    check_moments("aten::exponential", 2, (argument[]){VALUE(0), FLOAT(2)}, 0.5, 0.25);
    check_moments("aten::geometric", 2, (argument[]){VALUE(0), FLOAT(0.25)}, 4, 12);
    check_moments("aten::bernoulli.p", 2, (argument[]){VALUE(0), FLOAT(0.3)}, 0.3, 0.21);
    check_moments("aten::random.from", 3, (argument[]){VALUE(0), INT(-2), INT(8)}, 2.5, 99.0 / 12);
    static const float rates[] = {0.5f, 9, 40};
    for (int k = 0; k < 3; k++) {
        fill_both(rates[k], 0);
        check_moments("aten::poisson", 1, (argument[]){VALUE(0)}, (double)rates[k], (double)rates[k]);
        check_moments("aten::_standard_gamma", 1, (argument[]){VALUE(0)}, (double)rates[k], (double)rates[k]);
    }
    static const float trials[][2] = {{10, 0.2f}, {200, 0.3f}, {200, 0.9f}};
    for (int k = 0; k < 3; k++) {
        double n = (double)trials[k][0], p = (double)trials[k][1];
        fill_both(trials[k][0], trials[k][1]);
        check_moments("aten::binomial", 2, (argument[]){VALUE(0), VALUE(1)}, n * p, n * p * (1 - p));
    }
}

static void test_permutation(void) {
    int64_t order[1000];
    bool seen[1000] = {false}, moved = false;
    harness_array result = {DTYPE_I64, 1, DIMS(1000), order};
    argument args[1] = {INT(1000)};
    if (!CHECK_OK(harness_run("aten::randperm", 1, args, 0, NULL, 1, &result))) return;
    for (int i = 0; i < 1000; i++) {
        if (!CHECK(order[i] >= 0 && order[i] < 1000 && !seen[order[i]])) return;
        seen[order[i]] = true;
        moved |= order[i] != i;
    }
    CHECK(moved);
}

/* Categories of no weight are never drawn; without replacement none is drawn twice. */
static void test_multinomial(void) {
    float weights[6] = {0, 1, 0, 3, 2, 0};
    int64_t drawn[300];
    harness_array input = FLOATS(1, DIMS(6), weights), many = {DTYPE_I64, 1, DIMS(300), drawn},
                  three = {DTYPE_I64, 1, DIMS(3), drawn};
    argument args[3] = {VALUE(0), INT(300), INT(1)};
    if (CHECK_OK(harness_run("aten::multinomial", 3, args, 1, &input, 1, &many)))
        for (int i = 0; i < 300; i++) CHECK(drawn[i] == 1 || drawn[i] == 3 || drawn[i] == 4);
    args[1] = INT(3);
    args[2] = INT(0);
    if (CHECK_OK(harness_run("aten::multinomial", 3, args, 1, &input, 1, &three)))
        CHECK_INT(drawn[0] + drawn[1] + drawn[2], 8);
}

int main(void) {
    int code;
    if (!calls_begin(&code)) return code;
    test_moments();
    test_permutation();
    test_multinomial();
    return check_report();
}
