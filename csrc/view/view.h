/* Strided geometry <-> structural operations.
 *
 * A storage owns one base value of a type (dtype, base dims in memory order, contiguous). A tensor is a geometry over
 * it. view_read emits the shortest chain that produces the tensor's logical value from the base: nothing, reshape,
 * slice, transpose, broadcast; a gather over an iota only when no chain exists. view_write is its inverse: the base
 * with the geometry's elements replaced. */
#ifndef VIEW_VIEW_H
#define VIEW_VIEW_H

#include "base/dtype.h"
#include "base/status.h"
#include "hlo/hlo.h"

#define VIEW_MAX_RANK HLO_MAX_RANK

typedef struct {
    dtype dtype;
    int rank;
    bool conj, neg; /* PyTorch's lazy conjugate and negative bits */
    int64_t offset; /* in elements of dtype, >= 0 */
    int64_t sizes[VIEW_MAX_RANK];
    int64_t strides[VIEW_MAX_RANK]; /* in elements, >= 0 */
} geometry;

/* Copies the used part of the arrays only: a geometry is a kilobyte otherwise. */
static inline void geometry_copy(geometry *to, const geometry *from) {
    to->dtype = from->dtype;
    to->rank = from->rank;
    to->conj = from->conj;
    to->neg = from->neg;
    to->offset = from->offset;
    for (int i = 0; i < from->rank; i++) {
        to->sizes[i] = from->sizes[i];
        to->strides[i] = from->strides[i];
    }
}
void geometry_contiguous(geometry *g, dtype t, int rank, const int64_t *sizes);
int64_t geometry_count(const geometry *g);      /* elements */
bool geometry_is_contiguous(const geometry *g); /* row-major, any offset; sizes of 1 ignore their stride */
/* One past the largest element the geometry touches, in elements; 0 for an empty one. */
int64_t geometry_extent(const geometry *g);
/* Two indices that differ may be one element: a size over 1 with stride 0, or strides that interleave. A false result
 * is certain. */
bool geometry_may_overlap(const geometry *g);
/* If the geometry is dense and does not overlap (offset aside), writes the permutation that sorts it into memory order
 * (outermost first: memory dim i is geometry dim permutation[i]) and returns true. */
bool geometry_memory_order(const geometry *g, int *permutation);
/* The base type a fresh storage gets that holds exactly this geometry: sizes in memory order when dense with offset 0,
 * else one flat dimension of the extent. */
void geometry_base_dims(const geometry *g, int *rank, int64_t *dims);

/* base: type (base dtype, base dims). When base and geometry have different dtypes the base is reinterpreted (bitcast
 * of its bytes; offset counts in g->dtype). Reading past the base is a STATUS_INDEX error recorded in the builder. The
 * result has g's sizes and dtype, conj and neg applied. dynamic_offset: NULL, or an i64 scalar used in place of
 * g->offset (g->offset then only says which structure to use; the caller guarantees that view_offset_structure gives
 * the same bytes for both). */
hlo_value view_read(hlo_builder *b, hlo_value base, const geometry *g, hlo_value dynamic_offset);
/* value: g's sizes (broadcast and converted to g->dtype if needed, conj/neg undone). Result: of the type that
 * view_write_type says. */
hlo_value view_write(hlo_builder *b, hlo_value base, const geometry *g, hlo_value value, hlo_value dynamic_offset);
/* The type of view_write's result: the base's when the dtypes are equal or the base's bytes are no whole number of
 * elements of g->dtype, else flat. */
void view_write_type(dtype base_dtype, int base_rank, const int64_t *base_dims, const geometry *g, dtype *result_dtype,
                     int *result_rank, int64_t *result_dims);
/* Appends what two geometries that differ in their offset must agree in to share one program with a dynamic_offset.
 * false: this geometry has no such program (empty, out of range, no memory). */
bool view_offset_structure(dtype base_dtype, int base_rank, const int64_t *base_dims, const geometry *g, strbuf *out);
/* A base of `bytes` bytes as a flat value of dtype t (bitcast). */
hlo_value view_retype(hlo_builder *b, hlo_value base, dtype t);

/* What view_read would emit, for tests and diagnostics: "reshape", "slice", ..., joined by "+"; "gather" marks the last
 * resort. */
const char *view_describe(int base_rank, const int64_t *base_dims, const geometry *g);

#endif
