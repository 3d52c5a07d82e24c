/* What several families of lowerings need. */
#include <string.h>

#include "ops/lowering.h"

int64_t dim_wrap(int64_t dim, int rank) {
    int64_t n = rank == 0 ? 1 : rank;
    if (dim < -n || dim >= n) return -1;
    return dim < 0 ? dim + n : dim;
}

int arg_reduce_dims(lowering *l, int i, int rank, int64_t *dims) {
    const int64_t *given;
    int n = arg_ints(l, i, &given);
    bool chosen[HLO_MAX_RANK] = {false};
    for (int k = 0; k < n; k++) {
        int64_t d = dim_wrap(given[k], rank);
        if (d < 0) {
            hlo_fail(l->builder, STATUS_INDEX,
                     "Dimension out of range (expected to be in range of [%d, %d], but got %lld)", rank ? -rank : -1,
                     rank ? rank - 1 : 0, (long long)given[k]);
            return 0;
        }
        chosen[d] = true;
    }
    int count = 0;
    for (int d = 0; d < rank; d++)
        if (n == 0 || chosen[d]) dims[count++] = d;
    return count;
}

hlo_value keep_dims(hlo_builder *b, hlo_value reduced, int rank, const int64_t *operand_dims, int n,
                    const int64_t *dims) {
    int64_t shape[HLO_MAX_RANK];
    memcpy(shape, operand_dims, sizeof(int64_t) * (size_t)rank);
    for (int k = 0; k < n; k++) shape[dims[k]] = 1;
    return hlo_reshape(b, reduced, rank, shape);
}

hlo_value mean_of(hlo_builder *b, hlo_value x, int n, const int64_t *dims) {
    if (!x) return NULL;
    double count = 1;
    for (int k = 0; k < n; k++) count *= (double)x->dims[dims[k]];
    hlo_value sum = hlo_reduce(b, HLO_REDUCE_ADD, x, n, dims);
    return sum ? hlo_divide(b, sum, hlo_scalar(b, sum->dtype, count)) : NULL;
}
