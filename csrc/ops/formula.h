/* Short names for formulas. A function that uses them has the builder in `b`; K stands for a constant. */
#ifndef OPS_FORMULA_H
#define OPS_FORMULA_H

#include "ops/elementwise.h"

#define ADD(x, y) hlo_add(b, x, y)
#define SUB(x, y) hlo_subtract(b, x, y)
#define MUL(x, y) hlo_multiply(b, x, y)
#define DIV(x, y) hlo_divide(b, x, y)
#define MAX(x, y) hlo_maximum(b, x, y)
#define MIN(x, y) hlo_minimum(b, x, y)
#define NEG(x) hlo_negate(b, x)
#define ABS(x) hlo_abs(b, x)
#define EXP(x) hlo_exponential(b, x)
#define LOG(x) hlo_log(b, x)
#define LOG1P(x) hlo_log_plus_one(b, x)
#define EXPM1(x) hlo_exponential_minus_one(b, x)
#define SQRT(x) hlo_sqrt(b, x)
#define IF(p, x, y) hlo_select(b, p, x, y)
#define AND(x, y) hlo_and(b, x, y)
#define OR(x, y) hlo_or(b, x, y)
#define NOT(x) hlo_not(b, x)
#define EQ(x, y) hlo_eq(b, x, y)
#define NE(x, y) hlo_ne(b, x, y)
#define LT(x, y) hlo_lt(b, x, y)
#define LE(x, y) hlo_le(b, x, y)
#define GT(x, y) hlo_gt(b, x, y)
#define GE(x, y) hlo_ge(b, x, y)
#define K(shape_of, v) hlo_like(b, shape_of, v)
#define ADDK(x, v) math_plus(b, x, v)
#define MULK(x, v) math_times(b, x, v)
#define SUBFROM(v, x) math_minus_from(b, v, x)
#define DIVINTO(v, x) math_divide_into(b, v, x)
#define EQK(x, v) math_compare(b, HLO_EQ, x, v)
#define NEK(x, v) math_compare(b, HLO_NE, x, v)
#define LTK(x, v) math_compare(b, HLO_LT, x, v)
#define LEK(x, v) math_compare(b, HLO_LE, x, v)
#define GTK(x, v) math_compare(b, HLO_GT, x, v)
#define GEK(x, v) math_compare(b, HLO_GE, x, v)

#endif
