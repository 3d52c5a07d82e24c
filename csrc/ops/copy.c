/* Copies, conversions and filling: the value is written as the result's type and shape by result_set. */
#include "ops/formula.h"

static void lower_identity(lowering *l) { result_set(l, 0, arg_tensor(l, 0)); }
static void lower_copy(lowering *l) { result_set(l, 0, arg_tensor(l, 1)); }

static void lower_fill(lowering *l) { result_set(l, 0, arg_number(l, 1, result_dtype(l, 0))); }

static void lower_zero(lowering *l) { result_set(l, 0, hlo_scalar(lower_builder(l), result_dtype(l, 0), 0)); }

const op_row ops_copy[] = {{"aten::copy", PROMOTE_NONE, .lower = lower_copy},
                           {"aten::_to_copy", PROMOTE_NONE, .lower = lower_identity},
                           {"aten::clone", PROMOTE_NONE, .lower = lower_identity},
                           {"aten::contiguous", PROMOTE_NONE, .lower = lower_identity},
                           {"prims::clone", PROMOTE_NONE, .lower = lower_identity},
                           {"prims::copy_strided", PROMOTE_NONE, .lower = lower_identity},
                           {"prims::convert_element_type", PROMOTE_NONE, .lower = lower_identity},
                           {"aten::fill.Scalar", PROMOTE_NONE, .lower = lower_fill},
                           {"aten::fill.Tensor", PROMOTE_NONE, .lower = lower_fill},
                           {"prims::fill", PROMOTE_NONE, .lower = lower_fill},
                           {"aten::zero", PROMOTE_NONE, .lower = lower_zero},
                           {NULL}};
