/* Rows of loops: one element of an array, by a number that the program computes. They stand for no operator of PyTorch:
 * scan and map are made of them (torch_tpu/_control.py). */
#include "ops/ops.h"

enum { MAX_RANK = HLO_MAX_RANK };

/* Start indices: the given one, clamped by StableHLO, and zeros. */
static void start_at(lowering *l, hlo_value index, int rank, hlo_value *start) {
    hlo_builder *b = lower_builder(l);
    start[0] = hlo_convert(b, index, DTYPE_I64);
    for (int d = 1; d < rank; d++) start[d] = hlo_constant_int(b, DTYPE_I64, 0, NULL, 0);
}

/* (x, i) -> x[i] */
static void lower_dynamic_index(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), index = arg_tensor(l, 1), start[MAX_RANK];
    if (!x || !index) return;
    int64_t sizes[MAX_RANK] = {1};
    for (int d = 1; d < x->rank; d++) sizes[d] = x->dims[d];
    start_at(l, index, x->rank, start);
    result_set(l, 0, hlo_squeeze_dim(b, hlo_dynamic_slice(b, x, start, sizes), 0));
}

/* (x, i, y) -> x with y in the place of x[i] */
static void lower_dynamic_update(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), index = arg_tensor(l, 1), y = arg_tensor(l, 2), start[MAX_RANK];
    if (!x || !index || !y) return;
    start_at(l, index, x->rank, start);
    result_set(l, 0, hlo_dynamic_update_slice(b, x, hlo_unsqueeze_dim(b, y, 0), start));
}

const op_row ops_control[] = {
    {.name = "core::dynamic_index", .lower = lower_dynamic_index},
    {.name = "core::dynamic_update", .lower = lower_dynamic_update},
    {0},
};
