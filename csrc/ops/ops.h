/* Lowering of ATen operators: the table rows and what a lowering function sees of its call.
 *
 * A row names a functional operator ("aten::add.Tensor"); the in-place and out= forms are normalised to it before they
 * get here, so need no rows. A lowering reads its arguments by their position in the operator's schema, and sets its
 * results. Errors: hlo_fail on the builder; nothing needs checking in between. */
#ifndef OPS_OPS_H
#define OPS_OPS_H

#include "hlo/hlo.h"
#include "view/view.h"

typedef struct lowering lowering; /* one call being lowered */
typedef void (*lower_fn)(lowering *l);

/* What is done to tensor operands, and to numbers that stand beside tensors, before the lowering sees them. */
typedef enum {
    PROMOTE_NONE, /* operands keep their types */
    /* To PyTorch's result_type of all operands: tensors, 0-d CPU tensors, and Python numbers in argument 0 or 1 (so
     * that alpha does not count; OP_PROMOTE_NUMBERS makes every number count: clamp's bounds). */
    PROMOTE,
    PROMOTE_REAL, /* the same, then bool and integers become the default float (float32) */
    PROMOTE_TAIL, /* PROMOTE of all but argument 0 (where's condition, masked_fill's is argument 1: see PROMOTE_NONE) */
    PROMOTE_RESULT /* to the type of result 0 */
} op_promotion;

enum {
    /* Operands of F16, BF16 (and F8) are raised to F32 after promotion and results rounded back: the way PyTorch's CPU
     * kernels compute. Every row that is more than one StableHLO operation on floats wants it. */
    OP_OPMATH = 1,
    /* arg_number of this row gives only constants (a number decides the program's structure). */
    OP_CONSTANT_NUMBERS = 2,
    /* Uses random bits: takes the generator's state. */
    OP_RANDOM = 4,
    /* Result 0 has operand 0's dtype whatever the promotion (informative, for the metadata rule). */
    OP_COMPARE = 8,          /* result is bool */
    OP_PROMOTE_NUMBERS = 16, /* numbers beyond argument 1 take part in promotion */
    /* Numbers decide the result's size (arange): each call asks for its metadata, which belongs to the key in their
       place. */
    OP_SIZE_FROM_NUMBERS = 32,
    OP_ASSERTS = 64 /* its string is what check_assertion says */
};

/* How result metadata (sizes, strides, dtype) is known without PyTorch's meta kernel. */
typedef enum { META_ASK, META_ELEMENTWISE } op_meta;

typedef struct op_row {
    const char *name;
    op_promotion promote;
    int flags;
    /* Exactly one of these. unary and binary rows are data: operands are arguments 0 and 1. */
    lower_fn lower;
    hlo_unary_fn unary;
    hlo_binary_fn binary;
    op_meta meta;
    /* Arguments that the operator writes although its schema does not say so (native_batch_norm's running statistics):
     * results after the declared ones, in order, are written to these arguments when they are given. -1 ends; at
     * most 4. A zero-initialised row has none: entries are argument index + 1. */
    int8_t hidden_writes[4];
} op_row;

/* Each family's file defines one table ended by a row with name NULL; ops/registry.c lists the tables. */
const op_row *op_find(const char *name); /* exact: "aten::add.Tensor", "aten::relu" */
void op_visit(void (*visit)(const op_row *row, void *context), void *context);

/* ---- the call ---- */
hlo_builder *lower_builder(lowering *l);
const char *lower_name(const lowering *l);
int arg_count(const lowering *l);
bool arg_given(const lowering *l, int i); /* false: absent or None */
/* A tensor argument's value after promotion (a number in a tensor's place is a rank-0 value). NULL when None. */
hlo_value arg_tensor(lowering *l, int i);
dtype arg_tensor_dtype(const lowering *l, int i); /* before promotion; a number's own type (BOOL, I64, F64, C128) */
int arg_tensor_rank(const lowering *l, int i);    /* 0 for a number */
/* Values have no strides; but a few operators' results depend on whether the operand is_contiguous() (the
 * determinants). */
bool arg_is_contiguous(const lowering *l, int i);
bool arg_is_tensor(const lowering *l, int i); /* a device tensor, not a number */
/* Tensor lists: entries may be NULL (None). Promoted like the rest. */
int arg_tensors(lowering *l, int i, const hlo_value **values);
int64_t arg_int(lowering *l, int i); /* int, SymInt, bool, dtype code */
int64_t arg_int_or(lowering *l, int i, int64_t absent);
double arg_float(lowering *l, int i); /* a `float` or Scalar argument as a constant: makes it structural */
double arg_float_or(lowering *l, int i, double absent);
bool arg_bool(lowering *l, int i);                         /* false when absent */
dtype arg_dtype(lowering *l, int i);                       /* DTYPE_INVALID when None */
const char *arg_string(lowering *l, int i);                /* NULL when None */
int arg_ints(lowering *l, int i, const int64_t **values);  /* int[], bool[], SymInt[]; 0 when None */
int arg_floats(lowering *l, int i, const double **values); /* float[] or Scalar[] */
/* A number (Scalar, float, or 0-d CPU tensor) as a rank-0 value of type t. It is a constant at first and becomes a
 * run-time input by itself when calls differ in it. Inside a graph, the same. Absent: a poisoned value; test arg_given.
 */
hlo_value arg_number(lowering *l, int i, dtype t);
hlo_value arg_number_or(lowering *l, int i, dtype t, double absent);
/* Element j of a Scalar[] or float[] argument, likewise. */
hlo_value arg_number_at(lowering *l, int i, int j, dtype t);
int arg_number_count(lowering *l, int i);
/* As a constant that decides structure (exponent 2 of pow, norm's p): calls with other values get programs of their
 * own. */
bool arg_constant(lowering *l, int i, double *value); /* false when it has no constant value (complex, absent) */
/* The value while the number is a constant of the program, to choose a shorter form of the same computation. false once
 * calls have differed in it: then it is a run-time input and the general form is wanted. */
bool arg_fixed(lowering *l, int i, double *value);

/* Common type of operands after promotion, before opmath: what PyTorch calls the computation's result_type. */
dtype lower_common_dtype(const lowering *l);

/* ---- results ---- */
int result_count(const lowering *l);          /* declared results plus hidden writes */
bool result_wanted(const lowering *l, int k); /* false: nobody needs it (an output_mask, an absent hidden write) */
dtype result_dtype(const lowering *l, int k); /* as PyTorch's meta kernel said, or the written tensor's */
int result_rank(const lowering *l, int k);
const int64_t *result_dims(const lowering *l, int k);
/* The value may have another float or integer type (it is converted); another shape is an internal error, except that a
 * rank-compatible broadcast is expanded. */
void result_set(lowering *l, int k, hlo_value v);

/* ---- what the program says of the values that it was given ---- */
/* The program says afterwards that this operator was given an index outside [0, size), or [-size, size) where negative
 * ones count from the end. An index of *ignored is good (NULL: none). Inside loops and branches nothing is said. */
void check_index(lowering *l, hlo_value index, int64_t size, bool negative, const int64_t *ignored);
/* Likewise for integers that PyTorch answers with RuntimeError when they are outside [0, size). */
void check_value(lowering *l, hlo_value value, int64_t size, const int64_t *ignored);
/* The program says the text afterwards where the bool is false. */
void check_assertion(lowering *l, hlo_value holds, const char *text);

/* ---- random numbers ---- */
/* Uniform bits from this call's (seed, offset), a fresh stream for each use within the call. t is U8, U16, U32 or U64.
 */
hlo_value random_bits(lowering *l, dtype t, int rank, const int64_t *dims);
hlo_value random_uniform(lowering *l, dtype t, int rank,
                         const int64_t *dims); /* [0, 1): F32 from 24 bits, F64 from 53 */
/* Inside (0, 1), of F32 or F64: where a logarithm or an inverse distribution follows. */
hlo_value random_open_uniform(lowering *l, dtype t, int rank, const int64_t *dims);
hlo_value random_normal(lowering *l, dtype t, int rank, const int64_t *dims); /* mean 0, deviation 1 */

/* ---- helpers shared by families (ops/helpers.c) ---- */
int64_t dim_wrap(int64_t dim, int rank); /* PyTorch's negative dims; rank 0 counts as 1. Out of range: returns -1 */
/* dims list of a reduction: empty or None means all; writes wrapped, sorted, unique dims; returns the count. */
int arg_reduce_dims(lowering *l, int i, int rank, int64_t *dims);
hlo_value keep_dims(hlo_builder *b, hlo_value reduced, int rank, const int64_t *operand_dims, int n,
                    const int64_t *dims); /* re-inserts size-1 dims */
hlo_value mean_of(hlo_builder *b, hlo_value x, int n, const int64_t *dims);
/* Replays lowering of another row on given values, for operators that are compositions: "aten::add.Tensor". */

#endif
