/* Sorting and searching in PyTorch's order: NaN greatest, -0 equal to 0, stable. */
#ifndef OPS_SORTING_H
#define OPS_SORTING_H

#include "hlo/hlo.h"

#define SORT_MAX_VALUES 4

/* Sorts n arrays of one shape along dim by the first of them. */
void sort_by_first(hlo_builder *b, int n, const hlo_value *x, int dim, bool descending, hlo_value *results);
/* Sorted values and where each stood (i32). */
void sort_with_indices(hlo_builder *b, hlo_value x, int dim, bool descending, hlo_value *values, hlo_value *indices);
/* For every query the first position in `sorted` (1-d, or with the query's leading dimensions) whose element is not
 * less (right: is greater) than it, as i32. `order`: sorted[order[i]] is ascending, or NULL. */
hlo_value search_sorted(hlo_builder *b, hlo_value sorted, hlo_value order, hlo_value query, bool right);

#endif
