/* Matrix products with PyTorch's accumulation: half types sum in float32 and are rounded once. */
#ifndef OPS_MATMUL_H
#define OPS_MATMUL_H

#include "hlo/hlo.h"

/* Contracts x's dimension cx with y's cy; the first n_batch dimensions are batches. Half operands give a float32
 * result. */
hlo_value contract(hlo_builder *b, hlo_value x, int cx, hlo_value y, int cy, int n_batch);
/* x y over the last two dimensions; equal leading ones. */
hlo_value matrix_product(hlo_builder *b, hlo_value x, hlo_value y);
/* The last two dimensions swapped; and conjugated. */
hlo_value matrix_transpose(hlo_builder *b, hlo_value x);
hlo_value matrix_adjoint(hlo_builder *b, hlo_value x);

#endif
