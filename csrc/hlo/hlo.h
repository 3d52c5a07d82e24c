/* StableHLO programs, built operation by operation.
 *
 * Every function infers its result's type and appends the operation's text. The first mistake is kept in the builder
 * (hlo_status) and makes the value NULL; NULL operands give NULL results, so a lowering needs no checks between steps:
 * the error surfaces once, at hlo_finish. Types and operations: the StableHLO specification
 * (openxla/stablehlo, docs/spec.md, v1.13); the CHLO dialect for the mathematical functions it lacks. */
#ifndef HLO_HLO_H
#define HLO_HLO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/status.h"
#include "base/strbuf.h"

#define HLO_MAX_RANK 64

typedef struct hlo_builder hlo_builder;

typedef struct hlo_value_info {
    dtype dtype;
    int rank;
    const int64_t *dims; /* owned by the builder's arena */
    int32_t id, part;    /* printed as %id, or %id#part for an operation of several results (part -1: only one) */
} hlo_value_info;
typedef const hlo_value_info *hlo_value;

typedef enum { HLO_PRECISION_DEFAULT, HLO_PRECISION_HIGH, HLO_PRECISION_HIGHEST } hlo_precision;

/* ---- builder ---- */
hlo_builder *hlo_create(void); /* NULL with no memory */
void hlo_destroy(hlo_builder *b);
arena *hlo_arena(hlo_builder *b);
/* The first error (borrowed), or NULL. */
const status *hlo_status(const hlo_builder *b);
/* Records an error unless one is recorded already; returns NULL for `return hlo_fail(...)`. */
hlo_value hlo_fail(hlo_builder *b, status_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Prefix of errors recorded from now on ("aten::add.Tensor"), or NULL. */
void hlo_set_context(hlo_builder *b, const char *name);
/* Precision of dot_general and convolution built from now on. */
void hlo_set_precision(hlo_builder *b, hlo_precision precision);
hlo_precision hlo_get_precision(const hlo_builder *b); /* to restore it */
/* A parameter of @main. alias_output >= 0 prints tf.aliasing_output (donation to that result). */
hlo_value hlo_parameter(hlo_builder *b, dtype t, int rank, const int64_t *dims);
void hlo_parameter_donate(hlo_builder *b, int parameter, int output);
/* The line of the module's text, from 1, that the next operation of @main will be printed on: what compilers call the
 * source line of an operation. */
int hlo_next_line(hlo_builder *b);
/* Ends @main with these results and appends the whole module's text to out. `name` is the module's symbol. */
status *hlo_finish(hlo_builder *b, const char *name, int n, const hlo_value *results, strbuf *out);

/* ---- inspection ---- */
int64_t hlo_element_count(hlo_value v); /* 0 for NULL */
bool hlo_same_shape(hlo_value a, hlo_value b);

/* ---- constants ---- */
/* A scalar or, with rank > 0, a splat. Integers wrap to the type; bool is v != 0; complex has a zero imaginary part. */
hlo_value hlo_constant_int(hlo_builder *b, dtype t, int rank, const int64_t *dims, int64_t v);
hlo_value hlo_constant_float(hlo_builder *b, dtype t, int rank, const int64_t *dims,
                             double v); /* inf and nan are fine */
hlo_value hlo_constant_complex(hlo_builder *b, dtype t, int rank, const int64_t *dims, double re, double im);
hlo_value hlo_constant_ints(hlo_builder *b, dtype t, int64_t n, const int64_t *v);  /* rank 1 */
hlo_value hlo_constant_floats(hlo_builder *b, dtype t, int64_t n, const double *v); /* rank 1 */
hlo_value hlo_scalar(hlo_builder *b, dtype t, double v);                            /* rank 0, any type */
hlo_value hlo_like(hlo_builder *b, hlo_value shape_of, double v);                   /* splat of the same type */
hlo_value hlo_min_value(hlo_builder *b, dtype t); /* rank 0: -inf, or the smallest integer, or false */
hlo_value hlo_max_value(hlo_builder *b, dtype t); /* rank 0: +inf, or the largest integer, or true */
hlo_value hlo_iota(hlo_builder *b, dtype t, int rank, const int64_t *dims, int dimension);

/* ---- elementwise: operation name is what StableHLO (or CHLO, the second list) calls it ---- */
/* clang-format off */
#define HLO_UNARY_TABLE(X) \
    X(abs) X(cbrt) X(ceil) X(cosine) X(count_leading_zeros) X(exponential) X(exponential_minus_one) X(floor) \
    X(imag) X(is_finite) X(log) X(log_plus_one) X(logistic) X(negate) X(not) X(popcnt) X(real) \
    X(round_nearest_afz) X(round_nearest_even) X(rsqrt) X(sign) X(sine) X(sqrt) X(tan) X(tanh)
#define HLO_CHLO_UNARY_TABLE(X) \
    X(acos) X(acosh) X(asin) X(asinh) X(atan) X(atanh) X(bessel_i1e) X(conj) X(cosh) X(digamma) X(erf) \
    X(erf_inv) X(erfc) X(is_inf) X(is_neg_inf) X(is_pos_inf) X(lgamma) X(sinh) X(square)
#define HLO_BINARY_TABLE(X) \
    X(add) X(and) X(atan2) X(complex) X(divide) X(maximum) X(minimum) X(multiply) X(or) X(power) X(remainder) \
    X(shift_left) X(shift_right_arithmetic) X(shift_right_logical) X(subtract) X(xor)
/* clang-format on */
#define HLO_CHLO_BINARY_TABLE(X) X(next_after) X(polygamma) X(zeta)
#define X(name) hlo_value hlo_##name(hlo_builder *b, hlo_value x);
HLO_UNARY_TABLE(X)
HLO_CHLO_UNARY_TABLE(X)
#undef X
/* Binary operations, compare, select and clamp broadcast their operands against each other as PyTorch does (align
 * right, 1 stretches); element types must be equal. */
#define X(name) hlo_value hlo_##name(hlo_builder *b, hlo_value x, hlo_value y);
HLO_BINARY_TABLE(X)
HLO_CHLO_BINARY_TABLE(X)
#undef X
typedef hlo_value (*hlo_unary_fn)(hlo_builder *, hlo_value);
typedef hlo_value (*hlo_binary_fn)(hlo_builder *, hlo_value, hlo_value);

typedef enum { HLO_EQ, HLO_NE, HLO_GE, HLO_GT, HLO_LE, HLO_LT } hlo_direction;
hlo_value hlo_compare(hlo_builder *b, hlo_direction d, hlo_value x, hlo_value y); /* bool; complex: EQ and NE only */
#define X(name, D) hlo_value hlo_##name(hlo_builder *b, hlo_value x, hlo_value y);
/* clang-format off */
X(eq, EQ) X(ne, NE) X(ge, GE) X(gt, GT) X(le, LE) X(lt, LT)
/* clang-format on */
#undef X
    hlo_value hlo_select(hlo_builder *b, hlo_value predicate, hlo_value on_true, hlo_value on_false);
hlo_value hlo_clamp(hlo_builder *b, hlo_value low, hlo_value x, hlo_value high);
/* PyTorch's conversions: to bool is x != 0 (NaN is true); from bool gives 0 or 1; float to integer truncates; complex
 * to real drops the imaginary part; real to complex adds a zero one. The same type gives x back. */
hlo_value hlo_convert(hlo_builder *b, hlo_value x, dtype t);
/* Same bits, other type. Sizes differ: the last dimension is split off or merged, as StableHLO's bitcast_convert. */
hlo_value hlo_bitcast_convert(hlo_builder *b, hlo_value x, dtype t);
/* dtype conversions and reduce_precision to `t`'s precision while staying in x's type. */
hlo_value hlo_reduce_precision(hlo_builder *b, hlo_value x, int exponent_bits, int mantissa_bits);
hlo_value hlo_is_nan(hlo_builder *b, hlo_value x); /* x != x; false for integers */

/* ---- shape ---- */
hlo_value hlo_broadcast_in_dim(hlo_builder *b, hlo_value x, int rank, const int64_t *dims, const int64_t *map);
/* As PyTorch's expand: align right, stretch 1. The same shape gives x back. */
hlo_value hlo_broadcast_to(hlo_builder *b, hlo_value x, int rank, const int64_t *dims);
hlo_value hlo_reshape(hlo_builder *b, hlo_value x, int rank, const int64_t *dims); /* the same shape gives x back */
/* What v is a reshape of, and what matrix v is the transpose of; NULL: it is neither. Operations that know better than
 * to work on the merged dimensions look for them. */
hlo_value hlo_reshaped_from(hlo_value v);
hlo_value hlo_transposed_from(hlo_value v);
/* What the lowering that made v says of it, for lowerings that take it; NULL: nothing. */
void hlo_set_note(hlo_value v, const void *note);
const void *hlo_note(hlo_value v);
hlo_value hlo_transpose(hlo_builder *b, hlo_value x,
                        const int64_t *permutation); /* result dim i is operand dim permutation[i] */
hlo_value hlo_slice(hlo_builder *b, hlo_value x, const int64_t *start, const int64_t *limit,
                    const int64_t *stride); /* stride NULL: ones */
hlo_value hlo_slice_dim(hlo_builder *b, hlo_value x, int dim, int64_t start, int64_t limit, int64_t stride);
hlo_value hlo_pad(hlo_builder *b, hlo_value x, hlo_value padding_value, const int64_t *low, const int64_t *high,
                  const int64_t *interior); /* interior NULL: zeros */
hlo_value hlo_concatenate(hlo_builder *b, int n, const hlo_value *x, int dim);
hlo_value hlo_reverse(hlo_builder *b, hlo_value x, int n, const int64_t *dims);
hlo_value hlo_squeeze_dim(hlo_builder *b, hlo_value x, int dim);   /* dim of size 1 */
hlo_value hlo_unsqueeze_dim(hlo_builder *b, hlo_value x, int dim); /* before `dim`; dim == rank: at the end */
hlo_value hlo_dynamic_slice(hlo_builder *b, hlo_value x, const hlo_value *start /* rank scalars */,
                            const int64_t *sizes);
hlo_value hlo_dynamic_update_slice(hlo_builder *b, hlo_value x, hlo_value update, const hlo_value *start);

/* ---- contraction ---- */
typedef struct {
    int n_batch, n_contract;
    int64_t lhs_batch[8], rhs_batch[8], lhs_contract[8], rhs_contract[8];
} hlo_dot_dims;
/* Result: batch, then the rest of lhs, then the rest of rhs. `result` may be wider than the operands (F32 for BF16). */
hlo_value hlo_dot_general(hlo_builder *b, hlo_value lhs, hlo_value rhs, const hlo_dot_dims *d, dtype result);
typedef struct {
    int spatial; /* operand [N, C, spatial...], kernel [O, I, spatial...], result [N, O, spatial...] unless permuted
                    below */
    int64_t stride[6], low[6], high[6], lhs_dilation[6], rhs_dilation[6];
    bool reverse[6];
    int64_t feature_groups, batch_groups;
    /* Which dimension of the operand holds batch and feature (the spatial ones are the rest, in order), and so on. */
    int lhs_batch, lhs_feature, rhs_input, rhs_output, out_batch, out_feature;
} hlo_convolution_dims;
void hlo_convolution_dims_init(hlo_convolution_dims *d, int spatial); /* NCHW, OIHW, NCHW; ones; no padding */
hlo_value hlo_convolution(hlo_builder *b, hlo_value lhs, hlo_value rhs, const hlo_convolution_dims *d, dtype result);

/* ---- regions ---- */
/* Opens a region with these block arguments; operations built until hlo_region_end go into it. Regions may use values
 * from outside only inside while and case. Returned string is passed to the operation that owns the region. */
typedef struct hlo_region hlo_region;
typedef struct {
    dtype dtype;
    int rank;
    const int64_t *dims;
} hlo_type;
void hlo_region_begin(hlo_builder *b, int n, const hlo_type *types, hlo_value *arguments);
hlo_region *hlo_region_end(hlo_builder *b, int n, const hlo_value *results);

typedef enum {
    HLO_REDUCE_ADD,
    HLO_REDUCE_MULTIPLY,
    HLO_REDUCE_MAXIMUM,
    HLO_REDUCE_MINIMUM,
    HLO_REDUCE_AND,
    HLO_REDUCE_OR,
    HLO_REDUCE_XOR
} hlo_reduction;
/* Removes the dimensions. MAXIMUM and MINIMUM propagate NaN. For bool: ADD is or, MULTIPLY is and. */
hlo_value hlo_reduce(hlo_builder *b, hlo_reduction kind, hlo_value x, int n, const int64_t *dims);
hlo_value hlo_reduction_identity(hlo_builder *b, hlo_reduction kind, dtype t); /* rank 0 */
/* Body region: arguments (acc 0..n-1, element 0..n-1), results n. */
void hlo_reduce_region(hlo_builder *b, int n, const hlo_value *x, const hlo_value *init, int n_dims,
                       const int64_t *dims, hlo_region *body, hlo_value *results);
typedef struct {
    int64_t window[HLO_MAX_RANK], stride[HLO_MAX_RANK], base_dilation[HLO_MAX_RANK], window_dilation[HLO_MAX_RANK],
        low[HLO_MAX_RANK], high[HLO_MAX_RANK];
} hlo_window;
void hlo_window_init(hlo_window *w, int rank); /* ones, no padding */
hlo_value hlo_reduce_window(hlo_builder *b, hlo_reduction kind, hlo_value x, const hlo_window *w);
void hlo_reduce_window_region(hlo_builder *b, int n, const hlo_value *x, const hlo_value *init, const hlo_window *w,
                              hlo_region *body, hlo_value *results);
/* select: (current, next) -> bool; scatter: (a, b) -> a. Window dilation must be one. */
hlo_value hlo_select_and_scatter(hlo_builder *b, hlo_value operand, hlo_value source, hlo_value init,
                                 const hlo_window *w, hlo_region *select, hlo_region *scatter);
/* Comparator: for operand i arguments (2i: left, 2i+1: right), one bool result "left before right". */
void hlo_sort(hlo_builder *b, int n, const hlo_value *x, int dim, bool stable, hlo_region *comparator,
              hlo_value *results);
void hlo_top_k(hlo_builder *b, hlo_value x, int64_t k, hlo_value *values,
               hlo_value *indices /* i32 */); /* last dim, largest first */

typedef struct {
    int n_offset, n_collapsed, n_operand_batch, n_start_map;
    int64_t offset_dims[HLO_MAX_RANK], collapsed_dims[HLO_MAX_RANK], operand_batch_dims[HLO_MAX_RANK],
        indices_batch_dims[HLO_MAX_RANK], start_index_map[HLO_MAX_RANK];
    int64_t index_vector_dim;
    int64_t slice_sizes[HLO_MAX_RANK]; /* one an operand dimension */
    bool indices_are_sorted;
} hlo_gather_dims;
hlo_value hlo_gather(hlo_builder *b, hlo_value operand, hlo_value indices, const hlo_gather_dims *d);
typedef struct {
    int n_window, n_inserted, n_input_batch, n_scatter_map;
    int64_t update_window_dims[HLO_MAX_RANK], inserted_window_dims[HLO_MAX_RANK], input_batch_dims[HLO_MAX_RANK],
        indices_batch_dims[HLO_MAX_RANK], scatter_dims_to_operand[HLO_MAX_RANK];
    int64_t index_vector_dim;
    bool indices_are_sorted, unique_indices;
} hlo_scatter_dims;
/* Body: (current 0..n-1, update 0..n-1) -> n. Out-of-range updates are dropped. Give no value as two operands: XLA's
 * CPU compiler then writes the first one's result to both (seen in jaxlib 0.10.2; equal values that it finds by itself
 * count too). */
void hlo_scatter(hlo_builder *b, int n, const hlo_value *operands, hlo_value indices, const hlo_value *updates,
                 const hlo_scatter_dims *d, hlo_region *body, hlo_value *results);

/* Condition: n arguments -> one bool scalar. Body: n arguments -> n results of the same types. */
void hlo_while(hlo_builder *b, int n, const hlo_value *init, hlo_region *condition, hlo_region *body,
               hlo_value *results);
/* branches have no arguments and n results of equal types; index i32 scalar, clamped as StableHLO does. */
void hlo_case(hlo_builder *b, hlo_value index, int branches, hlo_region **regions, int n, hlo_value *results);

/* ---- the rest ---- */
hlo_value hlo_cholesky(hlo_builder *b, hlo_value x, bool lower);
hlo_value hlo_triangular_solve(hlo_builder *b, hlo_value a, hlo_value x, bool left, bool lower, bool unit_diagonal,
                               int transpose /* 0 none, 1 transpose, 2 adjoint */);
typedef enum { HLO_FFT, HLO_IFFT, HLO_RFFT, HLO_IRFFT } hlo_fft_type;
hlo_value hlo_fft(hlo_builder *b, hlo_value x, hlo_fft_type type, int n,
                  const int64_t *lengths); /* over the last n <= 3 dims */
/* state ui64[2] (THREE_FRY: key, counter). Fills `bits` (an unsigned type) and the next state. */
void hlo_rng_bit_generator(hlo_builder *b, hlo_value state, dtype t, int rank, const int64_t *dims,
                           hlo_value *next_state, hlo_value *bits);
void hlo_optimization_barrier(hlo_builder *b, int n, const hlo_value *x, hlo_value *results);
/* Calls a function that is not built here. `text` holds it under the symbol `name`, private, with all that it calls; it
 * becomes part of the module once for a name. Both are borrowed until hlo_finish. */
void hlo_call_function(hlo_builder *b, const char *name, const char *text, int n, const hlo_value *operands,
                       int n_results, const hlo_type *types, hlo_value *results);
/* backend_config: text of an MLIR dictionary attribute ("{a = 1 : i64}"), or NULL. */
void hlo_custom_call(hlo_builder *b, const char *target, const char *backend_config, bool has_side_effect, int n,
                     const hlo_value *operands, int n_results, const hlo_type *types, hlo_value *results);
/* all_reduce, all_gather, ... come with csrc/dist. */

#endif
