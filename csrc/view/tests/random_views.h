/* Random geometries, made as PyTorch's views make them: slices, selects, splits, merges, transposes, diagonals,
 * unfolds, expands and as_strided of a contiguous base. */
#ifndef VIEW_TESTS_RANDOM_VIEWS_H
#define VIEW_TESTS_RANDOM_VIEWS_H

#include <stdio.h>

#include "interpreter.h"

static uint64_t random_state = 0x9E3779B97F4A7C15u;

/* xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016). */
static inline int64_t random_below(int64_t n) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (int64_t)((random_state * 2685821657736338717u) >> 33) % n;
}

static inline const char *geometry_text(int base_rank, const int64_t *base, const geometry *g) {
    static char text[2048];
    int n = snprintf(text, sizeof text, "base [");
    for (int d = 0; d < base_rank; d++) n += snprintf(text + n, sizeof text - (size_t)n, "%lld ", (long long)base[d]);
    n += snprintf(text + n, sizeof text - (size_t)n, "] offset %lld (size, stride)", (long long)g->offset);
    for (int d = 0; d < g->rank; d++)
        n += snprintf(text + n, sizeof text - (size_t)n, " (%lld, %lld)", (long long)g->sizes[d],
                      (long long)g->strides[d]);
    snprintf(text + n, sizeof text - (size_t)n, ": %s", view_describe(base_rank, base, g));
    return text;
}

static inline int64_t element_of(const geometry *g, int64_t at) {
    int64_t index[VIEW_MAX_RANK], element = g->offset;
    unravel(at, g->rank, g->sizes, index);
    for (int d = 0; d < g->rank; d++) element += index[d] * g->strides[d];
    return element;
}

static inline void remove_dim(geometry *g, int d) {
    for (int i = d; i + 1 < g->rank; i++) {
        g->sizes[i] = g->sizes[i + 1];
        g->strides[i] = g->strides[i + 1];
    }
    g->rank--;
}

static inline void insert_dim(geometry *g, int d, int64_t size, int64_t stride) {
    for (int i = g->rank++; i > d; i--) {
        g->sizes[i] = g->sizes[i - 1];
        g->strides[i] = g->strides[i - 1];
    }
    g->sizes[d] = size;
    g->strides[d] = stride;
}

static inline void slice_random(geometry *g, int d) {
    int64_t start = random_below(g->sizes[d]), step = random_below(3) ? 1 : 1 + random_below(3);
    int64_t left = g->sizes[d] - start, length = 1 + random_below(left);
    g->offset += start * g->strides[d];
    g->sizes[d] = (length + step - 1) / step;
    g->strides[d] *= step;
}

static inline void split_random(geometry *g, int d) {
    int64_t outer = 1 + random_below(g->sizes[d]);
    if (g->sizes[d] % outer) return;
    int64_t inner = g->sizes[d] / outer, stride = g->strides[d];
    g->sizes[d] = outer;
    g->strides[d] = stride * inner;
    insert_dim(g, d + 1, inner, stride);
}

static inline void merge_random(geometry *g, int d) {
    if (d + 1 >= g->rank || g->strides[d] != g->strides[d + 1] * g->sizes[d + 1]) return;
    g->sizes[d + 1] *= g->sizes[d];
    remove_dim(g, d);
}

static inline void swap_dims(geometry *g, int d, int e) {
    int64_t size = g->sizes[d], stride = g->strides[d];
    g->sizes[d] = g->sizes[e];
    g->strides[d] = g->strides[e];
    g->sizes[e] = size;
    g->strides[e] = stride;
}

static inline void diagonal_random(geometry *g, int d) {
    if (d + 1 >= g->rank) return;
    int64_t size = g->sizes[d] < g->sizes[d + 1] ? g->sizes[d] : g->sizes[d + 1];
    g->sizes[d + 1] = size;
    g->strides[d + 1] += g->strides[d];
    remove_dim(g, d);
}

static inline void unfold_random(geometry *g, int d) {
    int64_t size = 1 + random_below(g->sizes[d]), step = 1 + random_below(4), stride = g->strides[d];
    g->sizes[d] = (g->sizes[d] - size) / step + 1;
    g->strides[d] = stride * step;
    insert_dim(g, g->rank, size, stride);
}

static inline void as_strided_random(geometry *g, int64_t base_count) {
    geometry wanted = {.dtype = g->dtype, .rank = (int)random_below(4), .offset = random_below(base_count)};
    for (int d = 0; d < wanted.rank; d++) {
        wanted.sizes[d] = 1 + random_below(4);
        wanted.strides[d] = random_below(8);
    }
    if (geometry_extent(&wanted) <= base_count) *g = wanted;
}

static inline void change_random(geometry *g, int64_t base_count) {
    int kind = (int)random_below(12);
    if (kind == 11) {
        as_strided_random(g, base_count);
        return;
    }
    if (kind == 0 && g->rank < 7) insert_dim(g, (int)random_below(g->rank + 1), 1 + random_below(2), 0);
    if (g->rank == 0) return;
    int d = (int)random_below(g->rank);
    if (kind >= 1 && kind <= 3) slice_random(g, d);
    if (kind == 4 && random_below(3) == 0) {
        g->offset += random_below(g->sizes[d]) * g->strides[d];
        remove_dim(g, d);
    }
    if (kind == 5 || kind == 6) swap_dims(g, d, (int)random_below(g->rank));
    if (kind == 7 && g->rank < 7) split_random(g, d);
    if (kind == 8) merge_random(g, d);
    if (kind == 9) diagonal_random(g, d);
    if (kind == 10 && g->rank < 6) unfold_random(g, d);
}

static inline int64_t random_base(int *rank, int64_t *dims, geometry *g) {
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 6, 8, 12};
    int64_t shape[4];
    *rank = (int)random_below(5);
    for (int d = 0; d < *rank; d++) dims[d] = shape[d] = sizes[random_below(*rank > 2 ? 6 : 8)];
    geometry_contiguous(g, DTYPE_F32, *rank, shape);
    return count_of(*rank, dims);
}

#endif
