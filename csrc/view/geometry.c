/* What can be said of a geometry by itself: counts, extent, density, memory order. */
#include "view/view.h"

void geometry_contiguous(geometry *g, dtype t, int rank, const int64_t *sizes) {
    *g = (geometry){.dtype = t, .rank = rank};
    int64_t stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        g->sizes[d] = sizes[d];
        g->strides[d] = stride;
        /* PyTorch counts an empty dimension as one here, so that the strides of the others stay distinct. */
        stride *= sizes[d] > 1 ? sizes[d] : 1;
    }
}

int64_t geometry_count(const geometry *g) {
    int64_t count = 1;
    for (int d = 0; d < g->rank; d++) count *= g->sizes[d];
    return count;
}

bool geometry_is_contiguous(const geometry *g) {
    if (geometry_count(g) == 0) return true;
    int64_t stride = 1;
    for (int d = g->rank - 1; d >= 0; d--) {
        if (g->sizes[d] == 1) continue;
        if (g->strides[d] != stride) return false;
        stride *= g->sizes[d];
    }
    return true;
}

int64_t geometry_extent(const geometry *g) {
    int64_t last = g->offset;
    for (int d = 0; d < g->rank; d++)
        if (g->sizes[d] == 0) return 0;
    /* as_strided takes any numbers: an extent beyond int64 is larger than every base. */
    for (int d = 0; d < g->rank; d++) {
        int64_t span;
        if (__builtin_mul_overflow(g->sizes[d] - 1, g->strides[d], &span) || __builtin_add_overflow(last, span, &last))
            return INT64_MAX;
    }
    return last == INT64_MAX ? last : last + 1;
}

/* Dimensions of size over 1, outermost in memory first; the order of equal strides is kept. Returns how many. */
static int dims_by_stride(const geometry *g, int *order) {
    int n = 0;
    for (int d = 0; d < g->rank; d++) {
        if (g->sizes[d] <= 1) continue;
        int at = n++;
        for (; at > 0 && g->strides[order[at - 1]] < g->strides[d]; at--) order[at] = order[at - 1];
        order[at] = d;
    }
    return n;
}

bool geometry_may_overlap(const geometry *g) {
    if (geometry_count(g) == 0) return false;
    int order[VIEW_MAX_RANK];
    int64_t inner_span = 0;
    for (int i = dims_by_stride(g, order) - 1; i >= 0; i--) {
        int d = order[i];
        /* All inner dimensions together stay within one step of this one, or nothing is certain. */
        if (g->strides[d] <= inner_span) return true;
        inner_span += (g->sizes[d] - 1) * g->strides[d];
    }
    return false;
}

bool geometry_memory_order(const geometry *g, int *permutation) {
    if (geometry_count(g) == 0) {
        for (int d = 0; d < g->rank; d++) permutation[d] = d;
        return true;
    }
    int n = dims_by_stride(g, permutation);
    int64_t stride = 1;
    for (int i = n - 1; i >= 0; i--) {
        if (g->strides[permutation[i]] != stride) return false;
        stride *= g->sizes[permutation[i]];
    }
    /* A dimension of size 1 lies anywhere: it follows its left neighbour, so that row-major gives the identity. */
    for (int d = 0; d < g->rank; d++) {
        if (g->sizes[d] != 1) continue;
        int at = 0;
        for (int i = 0; i < n; i++)
            if (permutation[i] == d - 1) at = i + 1;
        for (int i = n++; i > at; i--) permutation[i] = permutation[i - 1];
        permutation[at] = d;
    }
    return true;
}

void geometry_base_dims(const geometry *g, int *rank, int64_t *dims) {
    int permutation[VIEW_MAX_RANK];
    if (g->offset == 0 && geometry_memory_order(g, permutation)) {
        *rank = g->rank;
        for (int i = 0; i < g->rank; i++) dims[i] = g->sizes[permutation[i]];
        return;
    }
    *rank = 1;
    dims[0] = geometry_extent(g);
}
