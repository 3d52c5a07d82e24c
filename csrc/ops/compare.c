/* Comparisons and logic: operands in their common type, the result bool. */
#include "ops/formula.h"

#define ORDERED(name)                                                                                            \
    static hlo_value compare_##name(hlo_builder *b, hlo_value x, hlo_value y) {                                  \
        return math_require(b, x, KIND_BOOL | KIND_INT | KIND_FLOAT, #name "_cpu") ? hlo_##name(b, x, y) : NULL; \
    }
ORDERED(lt)
ORDERED(le)
ORDERED(gt)
ORDERED(ge)

#define LOGICAL(name, function)                                                           \
    static hlo_value logical_##name(hlo_builder *b, hlo_value x, hlo_value y) {           \
        return function(b, hlo_convert(b, x, DTYPE_BOOL), hlo_convert(b, y, DTYPE_BOOL)); \
    }
LOGICAL(and, hlo_and)
LOGICAL(or, hlo_or)
LOGICAL(xor, hlo_xor)

#define COMPARE_ROWS(name, function)                                                                    \
    {"aten::" name ".Tensor", PROMOTE, OP_COMPARE, .binary = function, .meta = META_ELEMENTWISE},       \
        {"aten::" name ".Scalar", PROMOTE, OP_COMPARE, .binary = function, .meta = META_ELEMENTWISE}, { \
        "prims::" name, PROMOTE, OP_COMPARE, .binary = function                                         \
    }
#define LOGICAL_ROW(name, function) \
    { "aten::logical_" name, PROMOTE_NONE, OP_COMPARE, .binary = function, .meta = META_ELEMENTWISE }

const op_row ops_compare[] = {COMPARE_ROWS("eq", hlo_eq),      COMPARE_ROWS("ne", hlo_ne),
                              COMPARE_ROWS("lt", compare_lt),  COMPARE_ROWS("le", compare_le),
                              COMPARE_ROWS("gt", compare_gt),  COMPARE_ROWS("ge", compare_ge),
                              LOGICAL_ROW("and", logical_and), LOGICAL_ROW("or", logical_or),
                              LOGICAL_ROW("xor", logical_xor), {NULL}};
