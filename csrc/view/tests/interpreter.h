/* Runs a plan on arrays of integers: what read.c and write.c must emit, said a second time without StableHLO. */
#ifndef VIEW_TESTS_INTERPRETER_H
#define VIEW_TESTS_INTERPRETER_H

#include <stdlib.h>
#include <string.h>

#include "view/plan.h"

#define PADDING (-7)

static inline int64_t count_of(int rank, const int64_t *dims) {
    int64_t n = 1;
    for (int d = 0; d < rank; d++) n *= dims[d];
    return n;
}

/* The multi-index of flat position `at`. */
static inline void unravel(int64_t at, int rank, const int64_t *dims, int64_t *index) {
    for (int d = rank - 1; d >= 0; d--) {
        index[d] = at % dims[d];
        at /= dims[d];
    }
}

static inline int64_t ravel(int rank, const int64_t *dims, const int64_t *index) {
    int64_t at = 0;
    for (int d = 0; d < rank; d++) at = at * dims[d] + index[d];
    return at;
}

/* Which element of the operand the result element at flat position `at` is; -1: padding. */
static inline int64_t source_of(const view_step *s, int64_t at, int64_t offset) {
    int64_t index[VIEW_MAX_RANK], from[VIEW_MAX_RANK];
    if (s->kind == VIEW_STEP_RESHAPE) return at;
    unravel(at, s->rank, s->dims, index);
    switch (s->kind) {
        case VIEW_STEP_SLICE:
            for (int d = 0; d < s->rank; d++) {
                int64_t start = s->divisor[d] ? offset / s->divisor[d] % s->modulus[d] : s->start[d];
                from[d] = start + index[d] * s->step[d];
                if (from[d] >= s->operand_dims[d]) return INT64_MIN;
            }
            break;
        case VIEW_STEP_PAD:
            for (int d = 0; d < s->rank; d++) {
                if (index[d] >= s->operand_dims[d]) return -1;
                from[d] = index[d];
            }
            break;
        case VIEW_STEP_TRANSPOSE:
            for (int d = 0; d < s->rank; d++) from[s->map[d]] = index[d];
            break;
        case VIEW_STEP_BROADCAST:
            for (int d = 0; d < s->operand_rank; d++) from[d] = index[s->map[d]];
            break;
        default: {
            int64_t sum = offset;
            for (int d = 0; d < s->rank; d++) sum += index[d] * s->step[d];
            return sum;
        }
    }
    return ravel(s->operand_rank, s->operand_dims, from);
}

/* The step's result on `operand`, a new array. */
static inline int64_t *run_step(const view_step *s, const int64_t *operand, int64_t offset) {
    int64_t n = count_of(s->rank, s->dims), n_operand = count_of(s->operand_rank, s->operand_dims);
    int64_t *result = malloc(sizeof(int64_t) * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) {
        int64_t from = source_of(s, i, offset);
        result[i] = from == -1 ? PADDING : from < 0 || from >= n_operand ? INT64_MIN : operand[from];
    }
    return result;
}

/* Reading: the plan's value. */
static inline int64_t *run_plan(const view_plan *plan, const int64_t *base, int64_t n_base, int64_t offset) {
    int64_t *value = malloc(sizeof(int64_t) * (size_t)(n_base + 1));
    memcpy(value, base, sizeof(int64_t) * (size_t)n_base);
    for (const view_step *s = plan->first; s; s = s->next) {
        int64_t *next = run_step(s, value, offset);
        free(value);
        value = next;
    }
    return value;
}

/* Writing: what the step's operand becomes when its result becomes `value`. old: the operand before, read only by
 * partial steps; others must be filled by the value alone. */
static inline int64_t *undo_step_on(const view_step *s, const int64_t *old, const int64_t *value, int64_t offset) {
    int64_t n = count_of(s->rank, s->dims), n_operand = count_of(s->operand_rank, s->operand_dims);
    int64_t *operand = malloc(sizeof(int64_t) * (size_t)(n_operand + 1));
    for (int64_t i = 0; i < n_operand; i++) operand[i] = view_step_is_partial(s) ? old[i] : INT64_MIN;
    for (int64_t i = 0; i < n; i++) {
        int64_t from = source_of(s, i, offset);
        if (from >= 0) operand[from] = value[i];
    }
    return operand;
}

/* The base after writing `value` from the k-th step on. Takes neither array. */
static inline int64_t *run_write(const view_step *s, const int64_t *old, const int64_t *value, int64_t n_value,
                                 int64_t offset) {
    if (!s) {
        int64_t *copy = malloc(sizeof(int64_t) * (size_t)(n_value + 1));
        memcpy(copy, value, sizeof(int64_t) * (size_t)n_value);
        return copy;
    }
    int64_t *old_result = run_step(s, old, offset);
    int64_t *new_result = run_write(s->next, old_result, value, n_value, offset);
    int64_t *operand = undo_step_on(s, old, new_result, offset);
    free(old_result);
    free(new_result);
    return operand;
}

#endif
