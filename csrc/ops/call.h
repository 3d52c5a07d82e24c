/* The plain form of an operator call's arguments: what the bridge fills, the graph stores and a lowering reads. */
#ifndef OPS_CALL_H
#define OPS_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

typedef enum {
    ARG_NONE,
    ARG_VALUE,  /* tensor: .value is a graph value (in a graph) or .tensor (in a call) */
    ARG_NUMBER, /* Scalar, float, or 0-d CPU tensor */
    ARG_INT,    /* int, SymInt, bool, memory format, layout: structural */
    ARG_DTYPE,  /* .dtype */
    ARG_STRING,
    ARG_INTS,    /* int[], SymInt[], bool[] */
    ARG_NUMBERS, /* float[], Scalar[] */
    ARG_VALUES   /* Tensor[], Tensor?[]: entries are ARG_VALUE, ARG_NUMBER or ARG_NONE */
} arg_tag;

typedef struct number {
    dtype dtype;  /* BOOL, I64, F64, C128 for Python numbers; the tensor's own for a 0-d CPU tensor */
    bool wrapped; /* a Python number or wrapped tensor: promotes by category only */
    union {
        int64_t i;
        double f[2];
    } v; /* i for BOOL and integers, f for the rest */
} number;

typedef struct argument {
    arg_tag tag;
    int32_t count; /* of the list tags */
    union {
        int32_t value;
        void *tensor; /* exec: core_tensor * */
        number number;
        int64_t i;
        dtype dtype;
        const char *string;
        const int64_t *ints;
        const struct number *numbers; /* C++ wants the tag: the member above hides the name */
        const struct argument *list;
    } u;
} argument;

typedef struct tensor_type {
    dtype dtype;
    int rank;
    const int64_t *dims;
} tensor_type;

#endif
