/* Assertions that appear in compiled graphs. */
#include "ops/ops.h"

/* A number is known when the program is built, so the assertion is decided then. */
static bool number_holds(lowering *l) {
    double value;
    if (!arg_constant(l, 0, &value) || value != 0) return true;
    hlo_fail(lower_builder(l), STATUS_RUNTIME, "%s", arg_string(l, 1));
    return false;
}

static void lower_assert_scalar(lowering *l) { number_holds(l); }

static void lower_functional_assert_scalar(lowering *l) {
    if (number_holds(l)) result_set(l, 0, arg_tensor(l, 2));
}

const op_row ops_assert[] = {
    {"aten::_assert_scalar", PROMOTE_NONE, .lower = lower_assert_scalar},
    {"aten::_functional_assert_scalar", PROMOTE_NONE, .lower = lower_functional_assert_scalar},
    {0},
};
