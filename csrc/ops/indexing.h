/* Gathers and scatters along dimensions, in the forms that PyTorch's indexing operators share. */
#ifndef OPS_INDEXING_H
#define OPS_INDEXING_H

#include "hlo/hlo.h"

typedef enum { INDEX_SET, INDEX_ADD, INDEX_MULTIPLY, INDEX_MAXIMUM, INDEX_MINIMUM, INDEX_OR } index_combine;

/* Zeros (false) of this type and shape. */
hlo_value index_zeros(hlo_builder *b, dtype t, int rank, const int64_t *dims);
/* Integer indices into a dimension of `size` elements as i32 (i64 for a huge one), negative ones counted from the end.
 */
hlo_value index_normalize(hlo_builder *b, hlo_value index, int64_t size);
/* x.dims[:dim] + index.dims + x.dims[dim + 1:]; index of any rank, normalised. */
hlo_value index_take(hlo_builder *b, hlo_value x, int dim, hlo_value index);
/* torch.gather: index has x's rank, the result its shape; sizes besides `dim` may be smaller than x's. */
hlo_value index_gather(hlo_builder *b, hlo_value x, int dim, hlo_value index);
/* The reverse of index_gather: src[i..] is combined into x at index[i..] along dim. src is cut to index's shape, or a
 * scalar. Of two updates of one element with INDEX_SET the later one stays. */
hlo_value index_scatter(hlo_builder *b, hlo_value x, int dim, hlo_value index, hlo_value src, index_combine combine);
/* The reverse of index_take: slices src[.., i.., ..] are combined into x's slice index[i..] of dim. */
hlo_value index_put_slices(hlo_builder *b, hlo_value x, int dim, hlo_value index, hlo_value src, index_combine combine);

/* NumPy's advanced indexing: entry d indexes dimension d, NULL takes it whole; entries beyond `count` count as NULL. */
typedef struct {
    int rank; /* of the operand */
    int n_indexed, indexed[HLO_MAX_RANK];
    int n_rest, rest[HLO_MAX_RANK];
    int index_rank; /* of the broadcast index */
    int64_t index_dims[HLO_MAX_RANK];
    int position;      /* where the index dimensions stand in the result */
    hlo_value vectors; /* [index_dims..., n_indexed] */
    int result_rank;
    int64_t result_dims[HLO_MAX_RANK];
} advanced_index;
/* false when the builder failed. At least one entry must be given. */
bool advanced_index_init(hlo_builder *b, advanced_index *a, hlo_value x, int count, const hlo_value *entries);
hlo_value advanced_index_read(hlo_builder *b, const advanced_index *a, hlo_value x);
/* values broadcast to the result's shape. */
hlo_value advanced_index_write(hlo_builder *b, const advanced_index *a, hlo_value x, hlo_value values,
                               index_combine combine);

/* iota along one dimension of a shape, as i32. */
hlo_value index_iota(hlo_builder *b, int rank, const int64_t *dims, int dim);
/* Body region of a reduction or scatter of one value: combine(current, update). */
hlo_region *index_region(hlo_builder *b, dtype t, index_combine combine);
/* x with the elements start, start + step, ... of dim replaced by src (same rank; size of dim: how many). */
hlo_value index_replace_strided(hlo_builder *b, hlo_value x, hlo_value src, int dim, int64_t start, int64_t step);
/* src spread out to `size` elements of dim: at start, start + step, ...; `fill` (a scalar) elsewhere. */
hlo_value index_spread(hlo_builder *b, hlo_value src, hlo_value fill, int dim, int64_t size, int64_t start,
                       int64_t step);

#endif
