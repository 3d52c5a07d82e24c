/* Operations on the bits of integers. */
#include "ops/formula.h"

#define BITWISE(name, function, kernel)                                                     \
    static hlo_value bitwise_##name(hlo_builder *b, hlo_value x, hlo_value y) {             \
        return math_require(b, x, KIND_BOOL | KIND_INT, kernel) ? function(b, x, y) : NULL; \
    }
BITWISE(and, hlo_and, "bitwise_and_cpu")
BITWISE(or, hlo_or, "bitwise_or_cpu")
BITWISE(xor, hlo_xor, "bitwise_xor_cpu")

static hlo_value bitwise_not(hlo_builder *b, hlo_value x) {
    return math_require(b, x, KIND_BOOL | KIND_INT, "bitwise_not_cpu") ? hlo_not(b, x) : NULL;
}

/* Out-of-range amounts, negative ones among them, shift every bit out; StableHLO leaves them to the implementation. */
static hlo_value out_of_range(hlo_builder *b, hlo_value amount) {
    int bits = dtype_bits(amount->dtype);
    hlo_value high = GEK(amount, bits);
    return dtype_is_signed(amount->dtype) ? OR(LTK(amount, 0), high) : high;
}

static hlo_value shift_left(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!math_require(b, x, KIND_INT, "lshift_cpu") || !y) return NULL;
    hlo_value out = out_of_range(b, y);
    return IF(out, K(x, 0), hlo_shift_left(b, x, IF(out, K(y, 0), y)));
}

static hlo_value shift_right(hlo_builder *b, hlo_value x, hlo_value y) {
    if (!math_require(b, x, KIND_INT, "rshift_cpu") || !y) return NULL;
    hlo_value out = out_of_range(b, y);
    if (!dtype_is_signed(x->dtype)) return IF(out, K(x, 0), hlo_shift_right_logical(b, x, IF(out, K(y, 0), y)));
    return hlo_shift_right_arithmetic(b, x, IF(out, K(y, dtype_bits(x->dtype) - 1), y));
}

#define BITWISE_ROWS(name, function)                                             \
    {"aten::bitwise_" name ".Tensor", PROMOTE, .binary = function},              \
        {"aten::bitwise_" name ".Scalar", PROMOTE, .binary = function},          \
        {"aten::bitwise_" name ".Scalar_Tensor", PROMOTE, .binary = function}, { \
        "prims::bitwise_" name, PROMOTE, .binary = function                      \
    }
#define SHIFT_ROWS(name, function)                                       \
    {"aten::" name ".Tensor", PROMOTE, .binary = function},              \
        {"aten::" name ".Tensor_Scalar", PROMOTE, .binary = function}, { \
        "aten::" name ".Scalar_Tensor", PROMOTE, .binary = function      \
    }

const op_row ops_bitwise[] = {BITWISE_ROWS("and", bitwise_and),
                              BITWISE_ROWS("or", bitwise_or),
                              BITWISE_ROWS("xor", bitwise_xor),
                              {"aten::bitwise_not", PROMOTE, .unary = bitwise_not},
                              {"prims::bitwise_not", PROMOTE, .unary = bitwise_not},
                              SHIFT_ROWS("bitwise_left_shift", shift_left),
                              SHIFT_ROWS("bitwise_right_shift", shift_right),
                              {"aten::__lshift__.Tensor", PROMOTE, .binary = shift_left},
                              {"aten::__lshift__.Scalar", PROMOTE, .binary = shift_left},
                              {"aten::__rshift__.Tensor", PROMOTE, .binary = shift_right},
                              {"aten::__rshift__.Scalar", PROMOTE, .binary = shift_right},
                              {"prims::shift_left", PROMOTE, .binary = shift_left},
                              {"prims::shift_right_arithmetic", PROMOTE, .binary = shift_right},
                              {NULL}};
