/* Batches of matrices [B, m, n], and the factorisations that linear algebra is built of. */
#ifndef OPS_LINALG_H
#define OPS_LINALG_H

#include "hlo/hlo.h"

hlo_value matrix_batch(hlo_builder *b, hlo_value x);   /* [..., m, n] as [B, m, n] */
hlo_value matrix_rows(hlo_builder *b, hlo_value x);    /* i32 [1, m, 1]: each element's row */
hlo_value matrix_columns(hlo_builder *b, hlo_value x); /* i32 [1, 1, n] */
hlo_value matrix_identity(hlo_builder *b, dtype t, int64_t batch, int64_t m, int64_t n);
/* Zero above (below, if !lower) the diagonal. */
hlo_value matrix_triangle(hlo_builder *b, hlo_value x, bool lower);
hlo_value matrix_diagonal(hlo_builder *b, hlo_value x); /* [B, min(m, n)] */
/* Column (row) k, an i32 scalar, as [B, m, 1] ([B, 1, n]). */
hlo_value matrix_column(hlo_builder *b, hlo_value x, hlo_value k);
hlo_value matrix_row(hlo_builder *b, hlo_value x, hlo_value k);
/* Sum over dim of the elements where mask; the dimension stays with size 1. */
hlo_value matrix_pick(hlo_builder *b, hlo_value mask, hlo_value x, int dim);
/* Matrix product at the highest precision. */
hlo_value matrix_product_exact(hlo_builder *b, hlo_value x, hlo_value y);
hlo_value conjugate(hlo_builder *b, hlo_value x);   /* x itself if real */
hlo_value real_part(hlo_builder *b, hlo_value x);   /* x itself if real */
hlo_value square_size(hlo_builder *b, hlo_value x); /* |x|^2, real */
/* Leading dimensions, all but the last two, expanded to those that x and y both have. */
hlo_value matrix_expand_batch(hlo_builder *b, hlo_value x, hlo_value y);

/* The Householder form of LAPACK's geqrf: R in the upper triangle, reflectors below it; tau [B, min(m, n)]. */
void householder_factor(hlo_builder *b, hlo_value a, hlo_value *factored, hlo_value *tau);
/* Q c, or Q^H c, where Q is the product of all reflectors. */
hlo_value householder_apply(hlo_builder *b, hlo_value factored, hlo_value tau, hlo_value c, bool adjoint);

#endif
