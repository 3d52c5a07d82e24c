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

/* (self, message, dep_token) -> dep_token: what a compiled program asserts of a value of its own. */
static void lower_functional_assert(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    const char *text = arg_string(l, 1);
    if (!x || !text) return;
    if (hlo_element_count(x) != 1)
        hlo_fail(b, STATUS_RUNTIME, "Boolean value of Tensor with %s is ambiguous",
                 hlo_element_count(x) ? "more than one value" : "no values");
    check_assertion(l, hlo_ne(b, x, hlo_like(b, x, 0)), text);
    result_set(l, 0, arg_tensor(l, 2));
}

const op_row ops_assert[] = {
    {"aten::_functional_assert_async.msg", PROMOTE_NONE, OP_ASSERTS, .lower = lower_functional_assert},
    {"aten::_assert_scalar", PROMOTE_NONE, .lower = lower_assert_scalar},
    {"aten::_functional_assert_scalar", PROMOTE_NONE, .lower = lower_functional_assert_scalar},
    {0},
};
