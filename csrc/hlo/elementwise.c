/* Operations applied to each element: which element types each takes, and what comes out. */
#include "hlo/internal.h"

/* Kinds of element types, as StableHLO's constraints group them. */
enum { B = 1, S = 2, U = 4, I = S | U, F = 8, C = 16 };

static int kind_of(dtype t) {
    switch (dtype_get_kind(t)) {
        case DTYPE_KIND_BOOL:
            return B;
        case DTYPE_KIND_INT:
            return dtype_is_signed(t) ? S : U;
        case DTYPE_KIND_FLOAT:
            return F;
        case DTYPE_KIND_COMPLEX:
            return C;
    }
    return 0;
}

typedef enum { RESULT_SAME, RESULT_REAL, RESULT_COMPLEX, RESULT_BOOL } result_rule;

typedef struct {
    const char *name;
    int kinds;
    result_rule result;
} elementwise_row;

/* StableHLO specification, "Ops"; CHLO: stablehlo/dialect/ChloOps.td. Not all that they permit: XLA refuses the cube
 * root of complex numbers, and its CPU compiler dies of their remainder. */
#define ROW(dialect, name, kinds, ...) [ROW_##name] = {dialect "." #name, kinds, __VA_ARGS__}
#define X(name) ROW_##name,
enum { HLO_UNARY_TABLE(X) HLO_CHLO_UNARY_TABLE(X) HLO_BINARY_TABLE(X) HLO_CHLO_BINARY_TABLE(X) ROW_COUNT };
#undef X
static const elementwise_row rows[ROW_COUNT] = {
    ROW("stablehlo", abs, S | F | C, RESULT_REAL),
    ROW("stablehlo", cbrt, F),
    ROW("stablehlo", ceil, F),
    ROW("stablehlo", cosine, F | C),
    ROW("stablehlo", count_leading_zeros, I),
    ROW("stablehlo", exponential, F | C),
    ROW("stablehlo", exponential_minus_one, F | C),
    ROW("stablehlo", floor, F),
    ROW("stablehlo", imag, C, RESULT_REAL),
    ROW("stablehlo", is_finite, F, RESULT_BOOL),
    ROW("stablehlo", log, F | C),
    ROW("stablehlo", log_plus_one, F | C),
    ROW("stablehlo", logistic, F | C),
    ROW("stablehlo", negate, I | F | C),
    ROW("stablehlo", not, B | I),
    ROW("stablehlo", popcnt, I),
    ROW("stablehlo", real, C, RESULT_REAL),
    ROW("stablehlo", round_nearest_afz, F),
    ROW("stablehlo", round_nearest_even, F),
    ROW("stablehlo", rsqrt, F | C),
    ROW("stablehlo", sign, S | F | C),
    ROW("stablehlo", sine, F | C),
    ROW("stablehlo", sqrt, F | C),
    ROW("stablehlo", tan, F | C),
    ROW("stablehlo", tanh, F | C),
    ROW("chlo", acos, F | C),
    ROW("chlo", acosh, F | C),
    ROW("chlo", asin, F | C),
    ROW("chlo", asinh, F | C),
    ROW("chlo", atan, F | C),
    ROW("chlo", atanh, F | C),
    ROW("chlo", bessel_i1e, F),
    ROW("chlo", conj, C),
    ROW("chlo", cosh, F | C),
    ROW("chlo", digamma, F),
    ROW("chlo", erf, F),
    ROW("chlo", erf_inv, F),
    ROW("chlo", erfc, F),
    ROW("chlo", is_inf, F, RESULT_BOOL),
    ROW("chlo", is_neg_inf, F, RESULT_BOOL),
    ROW("chlo", is_pos_inf, F, RESULT_BOOL),
    ROW("chlo", lgamma, F),
    ROW("chlo", sinh, F | C),
    ROW("chlo", square, I | F | C),
    ROW("stablehlo", add, B | I | F | C),
    ROW("stablehlo", and, B | I),
    ROW("stablehlo", atan2, F | C),
    ROW("stablehlo", complex, F, RESULT_COMPLEX),
    ROW("stablehlo", divide, I | F | C),
    ROW("stablehlo", maximum, B | I | F),
    ROW("stablehlo", minimum, B | I | F),
    ROW("stablehlo", multiply, B | I | F | C),
    ROW("stablehlo", or, B | I),
    ROW("stablehlo", power, I | F | C),
    ROW("stablehlo", remainder, I | F),
    ROW("stablehlo", shift_left, I),
    ROW("stablehlo", shift_right_arithmetic, I),
    ROW("stablehlo", shift_right_logical, I),
    ROW("stablehlo", subtract, I | F | C),
    ROW("stablehlo", xor, B | I),
    ROW("chlo", next_after, F),
    ROW("chlo", polygamma, F),
    ROW("chlo", zeta, F),
};

static dtype result_type(result_rule rule, dtype t) {
    switch (rule) {
        case RESULT_SAME:
            return t;
        case RESULT_REAL:
            return dtype_real(t);
        case RESULT_COMPLEX:
            return dtype_complex(t);
        case RESULT_BOOL:
            return DTYPE_BOOL;
    }
    return t;
}

static bool check_kind(hlo_builder *b, const elementwise_row *row, int index, hlo_value x) {
    if (kind_of(x->dtype) & row->kinds) return true;
    hlo_fail(b, STATUS_TYPE, "%s: operand %d, %s, is of a type that it does not take", row->name, index,
             hlo_value_text(b, x));
    return false;
}

/* ---- unary ---- */

static hlo_value emit_unary(hlo_builder *b, int row, hlo_value x) {
    const elementwise_row *r = &rows[row];
    if (!hlo_ready(b, 1, &x) || !check_kind(b, r, 0, x)) return NULL;
    return hlo_emit_one(b, r->name, 1, &x, result_type(r->result, x->dtype), x->rank, x->dims);
}

/* XLA expands CHLO operations into polynomials that 8-bit types have not the precision for; some it refuses there. */
static hlo_value unary_in_f32(hlo_builder *b, int row, hlo_value x) {
    hlo_value y = emit_unary(b, row, hlo_convert(b, x, DTYPE_F32));
    return rows[row].result == RESULT_SAME ? hlo_convert(b, y, x->dtype) : y;
}

/* Meanings that are clear where StableHLO leaves the operation out. */
static hlo_value unary(hlo_builder *b, int row, hlo_value x) {
    if (!hlo_ready(b, 1, &x)) return NULL;
    int kind = kind_of(x->dtype);
    if (row == ROW_abs && kind == U) return x;
    if (row == ROW_sign && kind == U) return hlo_minimum(b, x, hlo_like(b, x, 1));
    if ((row == ROW_real || row == ROW_conj) && kind != C) return x;
    if (row == ROW_imag && kind != C) return hlo_like(b, x, 0);
    if (row == ROW_square) return hlo_multiply(b, x, x);
    bool from_chlo = row >= ROW_acos && row <= ROW_square;
    if (from_chlo && kind == F && dtype_bits(x->dtype) == 8) return unary_in_f32(b, row, x);
    return emit_unary(b, row, x);
}

#define X(name) \
    hlo_value hlo_##name(hlo_builder *b, hlo_value x) { return unary(b, ROW_##name, x); }
HLO_UNARY_TABLE(X)
HLO_CHLO_UNARY_TABLE(X)
#undef X

/* ---- binary ---- */

/* PyTorch's broadcasting: shapes align at the right, sizes of 1 stretch. */
static bool broadcast_shape(hlo_builder *b, const char *operation, int n, const hlo_value *x, int *rank,
                            int64_t *dims) {
    *rank = 0;
    for (int i = 0; i < n; i++)
        if (x[i]->rank > *rank) *rank = x[i]->rank;
    for (int d = 0; d < *rank; d++) dims[d] = 1;
    for (int i = 0; i < n; i++)
        for (int d = 0; d < x[i]->rank; d++) {
            int64_t size = x[i]->dims[d], *to = &dims[*rank - x[i]->rank + d];
            if (size == 1 || size == *to) continue;
            if (*to != 1) {
                hlo_fail(b, STATUS_RUNTIME,
                         "%s: the size of operand %d, %s, in dimension %d must match the size %lld of the others",
                         operation, i, hlo_value_text(b, x[i]), d, (long long)*to);
                return false;
            }
            *to = size;
        }
    return true;
}

/* Operands in their common shape; one that `may_be_scalar` stays without dimensions. */
static bool broadcast(hlo_builder *b, const char *operation, int n, hlo_value *x, unsigned may_be_scalar) {
    int rank;
    int64_t dims[HLO_MAX_RANK];
    if (!broadcast_shape(b, operation, n, x, &rank, dims)) return false;
    for (int i = 0; i < n; i++)
        if (!(may_be_scalar >> i & 1 && x[i]->rank == 0)) x[i] = hlo_broadcast_to(b, x[i], rank, dims);
    return hlo_ready(b, n, x);
}

static hlo_value binary(hlo_builder *b, int row, hlo_value x, hlo_value y) {
    const elementwise_row *r = &rows[row];
    hlo_value operands[2] = {x, y};
    if (!hlo_ready(b, 2, operands) || !check_kind(b, r, 0, x) || !hlo_check_dtype(b, r->name, 1, y, x->dtype))
        return NULL;
    if (r->result == RESULT_COMPLEX && x->dtype != DTYPE_F32 && x->dtype != DTYPE_F64)
        return hlo_fail(b, STATUS_TYPE, "%s: operand 0, %s, is neither f32 nor f64", r->name, hlo_value_text(b, x));
    if (!broadcast(b, r->name, 2, operands, 0)) return NULL;
    return hlo_emit_one(b, r->name, 2, operands, result_type(r->result, x->dtype), operands[0]->rank,
                        operands[0]->dims);
}

#define X(name) \
    hlo_value hlo_##name(hlo_builder *b, hlo_value x, hlo_value y) { return binary(b, ROW_##name, x, y); }
HLO_BINARY_TABLE(X)
HLO_CHLO_BINARY_TABLE(X)
#undef X

hlo_value hlo_compare(hlo_builder *b, hlo_direction d, hlo_value x, hlo_value y) {
    static const char *const names[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
    hlo_value operands[2] = {x, y};
    if (!hlo_ready(b, 2, operands) || !hlo_check_dtype(b, "stablehlo.compare", 1, y, x->dtype)) return NULL;
    if (dtype_is_complex(x->dtype) && d != HLO_EQ && d != HLO_NE)
        return hlo_fail(b, STATUS_TYPE, "stablehlo.compare: operand 0, %s: complex numbers have no order",
                        hlo_value_text(b, x));
    if (!broadcast(b, "stablehlo.compare", 2, operands, 0)) return NULL;
    hlo_attribute(b, "comparison_direction", "#stablehlo<comparison_direction %s>", names[d]);
    return hlo_emit_one(b, "stablehlo.compare", 2, operands, DTYPE_BOOL, operands[0]->rank, operands[0]->dims);
}

#define X(name, D) \
    hlo_value hlo_##name(hlo_builder *b, hlo_value x, hlo_value y) { return hlo_compare(b, HLO_##D, x, y); }
/* clang-format off */
X(eq, EQ) X(ne, NE) X(ge, GE) X(gt, GT) X(le, LE) X(lt, LT)
/* clang-format on */
#undef X

    hlo_value hlo_select(hlo_builder *b, hlo_value predicate, hlo_value on_true, hlo_value on_false) {
    hlo_value operands[3] = {predicate, on_true, on_false};
    const char *name = "stablehlo.select";
    if (!hlo_ready(b, 3, operands) || !hlo_check_dtype(b, name, 0, predicate, DTYPE_BOOL) ||
        !hlo_check_dtype(b, name, 2, on_false, on_true->dtype) || !broadcast(b, name, 3, operands, 1))
        return NULL;
    return hlo_emit_one(b, name, 3, operands, on_true->dtype, operands[1]->rank, operands[1]->dims);
}

hlo_value hlo_clamp(hlo_builder *b, hlo_value low, hlo_value x, hlo_value high) {
    hlo_value operands[3] = {low, x, high};
    const char *name = "stablehlo.clamp";
    if (!hlo_ready(b, 3, operands) || !hlo_check_dtype(b, name, 0, low, x->dtype) ||
        !hlo_check_dtype(b, name, 2, high, x->dtype))
        return NULL;
    if (dtype_is_complex(x->dtype))
        return hlo_fail(b, STATUS_TYPE, "%s: operand 1, %s: complex numbers have no order", name, hlo_value_text(b, x));
    /* Limits may be scalars only both together with, or both without, dimensions: both scalars, or both broadcast. */
    unsigned scalars = low->rank == 0 && high->rank == 0 ? 1 | 4 : 0;
    if (!broadcast(b, name, 3, operands, scalars)) return NULL;
    return hlo_emit_one(b, name, 3, operands, x->dtype, operands[1]->rank, operands[1]->dims);
}

hlo_value hlo_is_nan(hlo_builder *b, hlo_value x) {
    if (!hlo_ready(b, 1, &x)) return NULL;
    if (dtype_is_float(x->dtype) || dtype_is_complex(x->dtype)) return hlo_ne(b, x, x);
    return hlo_constant_int(b, DTYPE_BOOL, x->rank, x->dims, 0);
}
