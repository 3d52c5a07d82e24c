/* Prefix combinations along a dimension. */
#ifndef OPS_SCAN_H
#define OPS_SCAN_H

#include "hlo/hlo.h"

/* out[k] = combine of left[k] and right[k], elementwise over arrays of one shape; must be associative. */
typedef void (*scan_combine)(hlo_builder *b, int n, const hlo_value *left, const hlo_value *right, hlo_value *out);
#define SCAN_MAX_VALUES 4

/* Inclusive scan of n values of one shape along dim in a logarithmic number of steps. */
void scan_associative(hlo_builder *b, int n, const hlo_value *x, int dim, scan_combine combine, hlo_value *results);
/* Inclusive sum, product, maximum or minimum along dim. */
hlo_value scan_reduction(hlo_builder *b, hlo_reduction kind, hlo_value x, int dim);
/* For a flat mask: how many true elements stand before each element, as i32. */
hlo_value scan_count_before(hlo_builder *b, hlo_value flat_mask);

#endif
