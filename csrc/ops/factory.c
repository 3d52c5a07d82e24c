/* Tensors made of numbers and of positions. Their shape and type are the result's. */
#include <string.h>

#include "ops/formula.h"
#include "ops/indexing.h"

static hlo_value splat(lowering *l, double v) {
    return hlo_broadcast_to(lower_builder(l), hlo_scalar(lower_builder(l), result_dtype(l, 0), v), result_rank(l, 0),
                            result_dims(l, 0));
}

static void lower_zeros(lowering *l) { result_set(l, 0, splat(l, 0)); }
static void lower_ones(lowering *l) { result_set(l, 0, splat(l, 1)); }
/* full, full_like and prims of that kind: the value is argument 1; scalar_tensor's is argument 0. */
static void lower_full(lowering *l) { result_set(l, 0, arg_number(l, 1, result_dtype(l, 0))); }
static void lower_new_full(lowering *l) { result_set(l, 0, arg_number(l, 2, result_dtype(l, 0))); }
static void lower_scalar_tensor(lowering *l) { result_set(l, 0, arg_number(l, 0, result_dtype(l, 0))); }

/* ---- sequences ---- */

static int64_t length(lowering *l) { return result_rank(l, 0) == 1 ? result_dims(l, 0)[0] : 0; }

static hlo_value positions(lowering *l, dtype t) { return hlo_iota(lower_builder(l), t, 1, result_dims(l, 0), 0); }

/* start + step * i; floats in double precision, as the CPU's kernel does (RangeFactoriesKernel.cpp). */
static void arithmetic_sequence(lowering *l, int start, int step) {
    hlo_builder *b = lower_builder(l);
    dtype t = result_dtype(l, 0), wide = dtype_is_int(t) ? t : DTYPE_F64;
    if (result_rank(l, 0) != 1) {
        hlo_fail(b, STATUS_INTERNAL, "a sequence of rank %d", result_rank(l, 0));
        return;
    }
    double first, increment;
    bool small = !dtype_is_int(t) && t != DTYPE_F64 && (start < 0 || arg_fixed(l, start, &first)) &&
                 (step < 0 || arg_fixed(l, step, &increment));
    if (small) {
        if (start < 0) first = 0;
        if (step < 0) increment = 1;
        double last = first + increment * (double)length(l);
        bool whole = first == floor(first) && increment == floor(increment);
        /* Whole numbers that float32 holds exactly need no double precision, which devices may lack. */
        if (whole && fabs(first) < 0x1p24 && fabs(last) < 0x1p24 && fabs(increment) < 0x1p24) wide = DTYPE_F32;
    }
    hlo_value i = positions(l, wide);
    if (step >= 0) i = MUL(i, arg_number_or(l, step, wide, 1));
    if (start >= 0) i = ADD(arg_number_or(l, start, wide, 0), i);
    result_set(l, 0, i);
}

static void lower_arange(lowering *l) { arithmetic_sequence(l, -1, -1); }
static void lower_arange_start(lowering *l) { arithmetic_sequence(l, 0, -1); }
static void lower_arange_start_step(lowering *l) { arithmetic_sequence(l, 0, 2); }
static void lower_prims_iota(lowering *l) { arithmetic_sequence(l, 1, 2); }

/* An end of a sequence of integers is one itself, as on the CPU. */
static hlo_value sequence_end(lowering *l, int arg, dtype t) {
    hlo_builder *b = lower_builder(l);
    hlo_value end = arg_number(l, arg, t);
    dtype result = result_dtype(l, 0);
    bool fractions = dtype_is_float(result) || dtype_is_complex(result);
    return fractions ? end : hlo_convert(b, hlo_convert(b, end, DTYPE_I64), t);
}

/* From the nearer end, so that both ends come out exactly. */
static hlo_value linear_steps(lowering *l, dtype t) {
    hlo_builder *b = lower_builder(l);
    int64_t n = length(l);
    if (n <= 1) return arg_number(l, 0, t);
    hlo_value start = sequence_end(l, 0, t), end = sequence_end(l, 1, t);
    /* Complex numbers have no order, but their places have. */
    hlo_value place = positions(l, dtype_is_complex(t) ? DTYPE_I32 : t), i = hlo_convert(b, place, t);
    hlo_value step = DIV(SUB(end, start), hlo_scalar(b, t, (double)(n - 1)));
    hlo_value from_end = SUB(end, MUL(step, SUBFROM((double)(n - 1), i)));
    return IF(LTK(place, (double)(n / 2)), ADD(start, MUL(step, i)), from_end);
}

static dtype step_dtype(dtype t) { return dtype_is_float(t) || dtype_is_complex(t) ? dtype_opmath(t) : DTYPE_F64; }

static void lower_linspace(lowering *l) { result_set(l, 0, linear_steps(l, step_dtype(result_dtype(l, 0)))); }

static void lower_logspace(lowering *l) {
    hlo_builder *b = lower_builder(l);
    dtype t = step_dtype(result_dtype(l, 0));
    hlo_value exponents = linear_steps(l, t);
    result_set(l, 0, hlo_power(b, hlo_scalar(b, t, arg_float_or(l, 3, 10)), exponents));
}

/* ---- triangles ---- */

/* column - row of each element of the last two dimensions, as i32. */
static hlo_value column_less_row(hlo_builder *b, int rank, const int64_t *dims) {
    return SUB(hlo_iota(b, DTYPE_I32, rank, dims, rank - 1), hlo_iota(b, DTYPE_I32, rank, dims, rank - 2));
}

static void lower_eye(lowering *l) {
    if (result_rank(l, 0) == 2)
        result_set(l, 0,
                   math_compare(lower_builder(l), HLO_EQ, column_less_row(lower_builder(l), 2, result_dims(l, 0)), 0));
}

static double clamp_diagonal(int64_t diagonal) {
    return diagonal > INT32_MAX ? INT32_MAX : diagonal < -INT32_MAX ? -INT32_MAX : (double)diagonal;
}

static void triangle(lowering *l, hlo_direction keep) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    if (x->rank < 2) {
        hlo_fail(b, STATUS_RUNTIME, "%s: input tensor must have at least 2 dimensions",
                 keep == HLO_LE ? "tril" : "triu");
        return;
    }
    hlo_value kept = math_compare(b, keep, column_less_row(b, x->rank, x->dims), clamp_diagonal(arg_int_or(l, 1, 0)));
    result_set(l, 0, IF(kept, x, K(x, 0)));
}
static void lower_tril(lowering *l) { triangle(l, HLO_LE); }
static void lower_triu(lowering *l) { triangle(l, HLO_GE); }

/* Coordinates of a triangle's elements, row by row. starts[r] elements stand before row r; element k is in the last row
 * that starts at or before k. */
static void triangle_indices(lowering *l, bool lower) {
    hlo_builder *b = lower_builder(l);
    int64_t rows = arg_int(l, 0), columns = arg_int(l, 1), offset = arg_int_or(l, 2, 0);
    int64_t count = result_rank(l, 0) == 2 ? result_dims(l, 0)[1] : 0;
    if (count == 0) {
        result_set(l, 0, splat(l, 0));
        return;
    }
    int64_t *starts = ARENA_NEW(hlo_arena(b), int64_t, rows), *firsts = ARENA_NEW(hlo_arena(b), int64_t, rows);
    if (!starts || !firsts) return;
    int64_t before = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t diagonal = r + offset, limit = diagonal + 1;
        int64_t width = lower ? limit : columns - (diagonal > 0 ? diagonal : 0);
        width = width < 0 ? 0 : width > columns ? columns : width;
        starts[r] = before;
        firsts[r] = lower ? 0 : columns - width;
        before += width;
    }
    const int64_t grid[2] = {count, rows}, across[1] = {0}, along[1] = {1};
    hlo_value element = hlo_iota(b, DTYPE_I64, 2, grid, 0);
    hlo_value start = hlo_broadcast_in_dim(b, hlo_constant_ints(b, DTYPE_I64, rows, starts), 2, grid, along);
    hlo_value row = ADDK(hlo_reduce(b, HLO_REDUCE_ADD, hlo_convert(b, LE(start, element), DTYPE_I64), 1, along), -1);
    hlo_value row_start = index_take(b, hlo_constant_ints(b, DTYPE_I64, rows, starts), 0, row);
    hlo_value row_first = index_take(b, hlo_constant_ints(b, DTYPE_I64, rows, firsts), 0, row);
    const int64_t line[1] = {count};
    hlo_value column = ADD(row_first, SUB(hlo_iota(b, DTYPE_I64, 1, line, 0), row_start));
    hlo_value both[2] = {hlo_unsqueeze_dim(b, row, (int)across[0]), hlo_unsqueeze_dim(b, column, (int)across[0])};
    result_set(l, 0, hlo_concatenate(b, 2, both, 0));
}
static void lower_tril_indices(lowering *l) { triangle_indices(l, true); }
static void lower_triu_indices(lowering *l) { triangle_indices(l, false); }

/* ---- windows of signal processing: functions of the position over a period ---- */

/* 2 pi i / (n - 1), or over n for a periodic window. */
static hlo_value window_angle(lowering *l, dtype t, double *period) {
    bool periodic = !arg_given(l, 1) || arg_bool(l, 1);
    *period = (double)(length(l) - (periodic ? 0 : 1));
    return hlo_multiply(lower_builder(l), positions(l, t),
                        hlo_scalar(lower_builder(l), t, *period > 0 ? 2 * M_PI / *period : 0));
}

static void cosine_window(lowering *l, double a0, double a1, double a2) {
    hlo_builder *b = lower_builder(l);
    dtype t = dtype_opmath(result_dtype(l, 0));
    double period;
    hlo_value angle = window_angle(l, t, &period);
    if (length(l) <= 1) {
        result_set(l, 0, splat(l, 1));
        return;
    }
    hlo_value w = SUBFROM(a0, MULK(hlo_cosine(b, angle), a1));
    if (a2 != 0) w = ADD(w, MULK(hlo_cosine(b, MULK(angle, 2)), a2));
    result_set(l, 0, w);
}
static void lower_hann(lowering *l) { cosine_window(l, 0.5, 0.5, 0); }
static void lower_blackman(lowering *l) { cosine_window(l, 0.42, 0.5, 0.08); }
static void lower_hamming(lowering *l) { cosine_window(l, 0.54, 0.46, 0); }
static void lower_hamming_alpha(lowering *l) { cosine_window(l, arg_float(l, 2), 0.46, 0); }
static void lower_hamming_alpha_beta(lowering *l) { cosine_window(l, arg_float(l, 2), arg_float(l, 3), 0); }

static void lower_bartlett(lowering *l) {
    hlo_builder *b = lower_builder(l);
    dtype t = dtype_opmath(result_dtype(l, 0));
    double period;
    hlo_value angle = window_angle(l, t, &period);
    if (length(l) <= 1) {
        result_set(l, 0, splat(l, 1));
        return;
    }
    hlo_value ratio = MULK(angle, 1 / M_PI);
    result_set(l, 0, IF(LEK(ratio, 1), ratio, SUBFROM(2, ratio)));
}

#define FACTORY(name, function) \
    { "aten::" name, PROMOTE_NONE, .lower = function }
#define SEQUENCE(name, function) \
    { "aten::" name, PROMOTE_NONE, OP_SIZE_FROM_NUMBERS, .lower = function }
#define PRIM(name, function) \
    { "prims::" name, PROMOTE_NONE, .lower = function }

const op_row ops_factory[] = {FACTORY("zeros", lower_zeros),
                              FACTORY("zeros_like", lower_zeros),
                              FACTORY("new_zeros", lower_zeros),
                              FACTORY("_efficientzerotensor", lower_zeros),
                              FACTORY("ones", lower_ones),
                              FACTORY("ones_like", lower_ones),
                              FACTORY("new_ones", lower_ones),
                              FACTORY("full", lower_full),
                              FACTORY("full_like", lower_full),
                              FACTORY("new_full", lower_new_full),
                              FACTORY("scalar_tensor", lower_scalar_tensor),
                              /* Memory that nobody has written reads as zeros. */
                              FACTORY("empty.memory_format", lower_zeros),
                              FACTORY("empty_strided", lower_zeros),
                              FACTORY("empty_permuted", lower_zeros),
                              FACTORY("empty_like", lower_zeros),
                              FACTORY("new_empty", lower_zeros),
                              FACTORY("new_empty_strided", lower_zeros),
                              PRIM("empty", lower_zeros),
                              PRIM("empty_strided", lower_zeros),
                              PRIM("empty_permuted", lower_zeros),
                              PRIM("full", lower_full),
                              PRIM("full_like", lower_full),
                              PRIM("scalar_tensor", lower_scalar_tensor),
                              SEQUENCE("arange", lower_arange),
                              SEQUENCE("arange.start", lower_arange_start),
                              SEQUENCE("arange.start_step", lower_arange_start_step),
                              SEQUENCE("range", lower_arange_start),
                              SEQUENCE("range.step", lower_arange_start_step),
                              PRIM("iota", lower_prims_iota),
                              FACTORY("linspace", lower_linspace),
                              FACTORY("linspace.Tensor_Tensor", lower_linspace),
                              FACTORY("linspace.Tensor_Scalar", lower_linspace),
                              FACTORY("linspace.Scalar_Tensor", lower_linspace),
                              FACTORY("logspace", lower_logspace),
                              FACTORY("logspace.Tensor_Tensor", lower_logspace),
                              FACTORY("logspace.Tensor_Scalar", lower_logspace),
                              FACTORY("logspace.Scalar_Tensor", lower_logspace),
                              FACTORY("eye", lower_eye),
                              FACTORY("eye.m", lower_eye),
                              FACTORY("tril", lower_tril),
                              FACTORY("triu", lower_triu),
                              FACTORY("tril_indices", lower_tril_indices),
                              FACTORY("triu_indices", lower_triu_indices),
                              FACTORY("hann_window", lower_hann),
                              FACTORY("hann_window.periodic", lower_hann),
                              FACTORY("hamming_window", lower_hamming),
                              FACTORY("hamming_window.periodic", lower_hamming),
                              FACTORY("hamming_window.periodic_alpha", lower_hamming_alpha),
                              FACTORY("hamming_window.periodic_alpha_beta", lower_hamming_alpha_beta),
                              FACTORY("blackman_window", lower_blackman),
                              FACTORY("blackman_window.periodic", lower_blackman),
                              FACTORY("bartlett_window", lower_bartlett),
                              FACTORY("bartlett_window.periodic", lower_bartlett),
                              {NULL}};
