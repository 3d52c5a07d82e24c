/* Arguments of calls, written short, and float arrays to compare. */
#ifndef OPS_TESTS_CALLS_H
#define OPS_TESTS_CALLS_H

#include <math.h>

#include "base/tests/check.h"
#include "ops/tests/harness.h"

#define NONE ((argument){.tag = ARG_NONE})
#define VALUE(i) ((argument){.tag = ARG_VALUE, .u.value = (i)})
#define INT(v) ((argument){.tag = ARG_INT, .u.i = (v)})
#define TEXT(v) ((argument){.tag = ARG_STRING, .u.string = (v)})
#define INTS(n, ...) ((argument){.tag = ARG_INTS, .count = (n), .u.ints = (const int64_t[]){__VA_ARGS__}})
#define DIMS(...) ((const int64_t[]){__VA_ARGS__})
#define FLOATS(rank_, dims_, data_) \
    ((harness_array){.dtype = DTYPE_F32, .rank = (rank_), .dims = (dims_), .data = (data_)})

/* A deterministic spread of values in (-1, 1). */
static inline void fill(int n, float *x, unsigned seed) {
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
    }
}

static inline void check_near(int n, const float *actual, const float *expected, float tolerance, const char *what) {
    for (int i = 0; i < n; i++) {
        if (fabsf(actual[i] - expected[i]) <= tolerance * (1 + fabsf(expected[i])) ||
            (isnan(actual[i]) && isnan(expected[i])))
            continue;
        check_failures++;
        printf("%s: element %d is %g, expected %g\n", what, i, (double)actual[i], (double)expected[i]);
        return;
    }
}

/* Starts a test program: false, with the code main returns, when it cannot run. */
static inline bool calls_begin(int *code) {
    status *error;
    *code = CHECK_SKIPPED;
    if (!harness_open(&error)) return false;
    *code = 1;
    return CHECK_OK(error);
}

#endif
