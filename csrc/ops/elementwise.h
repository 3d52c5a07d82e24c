/* Mathematical functions that StableHLO has no operation for, shared by the elementwise families. */
#ifndef OPS_ELEMENTWISE_H
#define OPS_ELEMENTWISE_H

#include <math.h>
#include <stddef.h>

#include "ops/ops.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* x with a constant: x + v, x * v, v - x, v / x, x compared with v. */
hlo_value math_plus(hlo_builder *b, hlo_value x, double v);
hlo_value math_times(hlo_builder *b, hlo_value x, double v);
hlo_value math_minus_from(hlo_builder *b, double v, hlo_value x);
hlo_value math_divide_into(hlo_builder *b, double v, hlo_value x);
hlo_value math_compare(hlo_builder *b, hlo_direction d, hlo_value x, double v);

bool math_is_integral(hlo_value x); /* integers and bool */
bool math_is_floating(hlo_value x); /* real floats */
bool math_is_complex(hlo_value x);

hlo_value math_truncate(hlo_builder *b, hlo_value x);
hlo_value math_sign_bit(hlo_builder *b, hlo_value x); /* bool; floats by their bit, so of -0 and NaN too */
hlo_value math_copy_sign(hlo_builder *b, hlo_value magnitude, hlo_value sign);
hlo_value math_sign(hlo_builder *b, hlo_value x); /* PyTorch's: 0 for NaN, +0 for -0 */
hlo_value math_power_of_two(hlo_builder *b, hlo_value exponent);
/* Python's % and //, with the CPU kernel's rounding of nearly exact quotients
 * (aten/src/ATen/native/cpu/BinaryOpsKernel.cpp). */
hlo_value math_modulo(hlo_builder *b, hlo_value x, hlo_value y);
hlo_value math_floor_divide(hlo_builder *b, hlo_value x, hlo_value y);
hlo_value math_digamma(hlo_builder *b, hlo_value x);

/* c[0] x^(n-1) + ... + c[n-1] */
hlo_value math_polynomial(hlo_builder *b, hlo_value x, int n, const double *c);
/* Sum of a Chebyshev series as Cephes writes one: c[n-1]/2 + c[n-2] T1(x/2) + ... */
hlo_value math_chebyshev(hlo_builder *b, hlo_value x, int n, const double *c);

/* NotImplementedError in PyTorch's words: "kernel" not implemented for 'Float'. */
hlo_value math_not_implemented(hlo_builder *b, const char *kernel, dtype t);
/* Whether x has one of these kinds; else the error above is recorded. */
enum { KIND_BOOL = 1, KIND_INT = 2, KIND_FLOAT = 4, KIND_COMPLEX = 8 };
bool math_require(hlo_builder *b, hlo_value x, int kinds, const char *kernel);

/* Rows. `name` without namespace. */
#define ROW_UNARY(name, rule, extra, function) \
    { "aten::" name, rule, OP_OPMATH | (extra), .unary = function, .meta = META_ELEMENTWISE }
#define ROW_BINARY(name, rule, extra, function) \
    { "aten::" name, rule, OP_OPMATH | (extra), .binary = function, .meta = META_ELEMENTWISE }
#define ROW_LOWER(name, rule, extra, function) \
    { "aten::" name, rule, OP_OPMATH | (extra), .lower = function }
#define PRIM_UNARY(name, rule, extra, function) \
    { "prims::" name, rule, OP_OPMATH | (extra), .unary = function }
#define PRIM_BINARY(name, rule, extra, function) \
    { "prims::" name, rule, OP_OPMATH | (extra), .binary = function }
#define PRIM_LOWER(name, rule, extra, function) \
    { "prims::" name, rule, OP_OPMATH | (extra), .lower = function }

#endif
