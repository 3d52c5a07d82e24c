/* What the pooling operators share. */
#ifndef OPS_POOL_H
#define OPS_POOL_H

#include "ops/ops.h"

/* Window i of an axis starts at i * stride - padding and has `kernel` elements, `dilation` apart. */
typedef struct {
    int64_t size, count, kernel, stride, padding, dilation;
} pool_axis;

int pool_spatial(const lowering *l); /* 1, 2 or 3, as the operator's name says */
/* kernel_size, stride (empty: kernel_size), padding[, dilation] from argument `first` on. input, output: spatial sizes.
 */
void pool_axes(lowering *l, int first, bool has_dilation, const int64_t *input, const int64_t *output, pool_axis *axes);

/* Planes flattened: [everything before, spatial elements] of the pooled side and of the other. */
typedef struct {
    int64_t small[2], large[2];
} pool_plane;
/* small: a value of the pooled side; large_dims: all dimensions of the other side. */
bool pool_plane_init(lowering *l, pool_plane *p, hlo_value small, const int64_t *large_dims);

#endif
