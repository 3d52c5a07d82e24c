/* Loops in the program. */
#include "ops/loop.h"

static void run_loop(hlo_builder *b, hlo_value steps, int n, hlo_value *state, int done, loop_body body,
                     const void *context) {
    hlo_type types[LOOP_MAX_VALUES + 1] = {{DTYPE_I32, 0, NULL}};
    hlo_value init[LOOP_MAX_VALUES + 1] = {hlo_constant_int(b, DTYPE_I32, 0, NULL, 0)};
    hlo_value arguments[LOOP_MAX_VALUES + 1], results[LOOP_MAX_VALUES + 1] = {NULL};
    bool ready = steps != NULL && n <= LOOP_MAX_VALUES;
    for (int i = 0; i < n; i++) {
        ready = ready && state[i];
        if (!ready) break;
        init[i + 1] = state[i];
        types[i + 1] = (hlo_type){state[i]->dtype, state[i]->rank, state[i]->dims};
    }
    if (ready) {
        hlo_region_begin(b, n + 1, types, arguments);
        hlo_value more = hlo_lt(b, arguments[0], steps);
        if (done >= 0) more = hlo_and(b, more, hlo_not(b, arguments[done + 1]));
        hlo_region *condition = hlo_region_end(b, 1, &more);
        hlo_region_begin(b, n + 1, types, arguments);
        body(b, context, arguments[0], arguments + 1);
        arguments[0] = hlo_add(b, arguments[0], hlo_constant_int(b, DTYPE_I32, 0, NULL, 1));
        hlo_region *step = hlo_region_end(b, n + 1, arguments);
        hlo_while(b, n + 1, init, condition, step, results);
    }
    for (int i = 0; i < n; i++) state[i] = results[i + 1];
}

void loop_steps(hlo_builder *b, hlo_value steps, int n, hlo_value *state, loop_body body, const void *context) {
    run_loop(b, steps, n, state, -1, body, context);
}

void loop_until(hlo_builder *b, hlo_value steps, int n, hlo_value *state, int done, loop_body body,
                const void *context) {
    run_loop(b, steps, n, state, done, body, context);
}
