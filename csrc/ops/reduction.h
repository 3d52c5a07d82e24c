/* Reductions over sets of dimensions, in the forms that several families build on. */
#ifndef OPS_REDUCTION_H
#define OPS_REDUCTION_H

#include "ops/ops.h"

typedef struct {
    int n;
    int64_t dims[HLO_MAX_RANK]; /* sorted, unique */
} dim_set;

dim_set dims_all(hlo_value x);
dim_set dims_only(hlo_value x, int64_t dim);      /* empty for rank 0 */
dim_set dims_except(hlo_value x, int64_t dim);    /* all but one */
dim_set dims_range(int64_t first, int64_t limit); /* first .. limit - 1 */
double dims_count(hlo_value x, const dim_set *d); /* elements that one result element combines */

/* Without the dimensions; with no dimensions x itself. */
hlo_value reduce_drop(hlo_builder *b, hlo_reduction kind, hlo_value x, const dim_set *d);
/* The reduced dimensions stay with size 1, so that the result broadcasts against x. */
hlo_value reduce_keep(hlo_builder *b, hlo_reduction kind, hlo_value x, const dim_set *d);
hlo_value mean_keep(hlo_builder *b, hlo_value x, const dim_set *d);
/* Sums away what broadcasting to x's shape added to these dims. */
hlo_value sum_to(hlo_builder *b, hlo_value x, int rank, const int64_t *dims);
/* Vector p-norm over the dimensions, which are dropped: real for complex x; p may be 0 (count of non-zeros) or +-inf.
 */
hlo_value norm_drop(hlo_builder *b, hlo_value x, double p, const dim_set *d);
/* log sum exp; where the largest is infinite it is not subtracted. Dropped dimensions. */
hlo_value log_sum_exp_drop(hlo_builder *b, hlo_value x, const dim_set *d);
/* Along one dimension (rank 0 counts as one element). `safe`: a row of -inf gives zeros instead of NaN. */
hlo_value softmax_along(hlo_builder *b, hlo_value x, int64_t dim, bool safe);
hlo_value log_softmax_along(hlo_builder *b, hlo_value x, int64_t dim);
/* The largest (or smallest) element along dim, and where it stands: of equal ones the first, and the first NaN before
 * all. The dimension is dropped; rank 0: x and 0. The index is i32, or i64 for a huge dimension. */
void reduce_first(hlo_builder *b, hlo_value x, int64_t dim, bool largest, hlo_value results[2]);
/* Sets result k to v in the result's shape, so that keepdim need not be read. */
void set_reshaped(lowering *l, int k, hlo_value v);

#endif
