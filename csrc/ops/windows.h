/* Runs of neighbouring positions along one dimension, known when the program is built: what adaptive pooling, nearest
 * resizing and their gradients read. */
#ifndef OPS_WINDOWS_H
#define OPS_WINDOWS_H

#include "hlo/hlo.h"

typedef struct {
    int64_t size;            /* of the dimension they lie in */
    int64_t count, longest;  /* how many windows; the length of the longest, at least 1 */
    int64_t *start, *length; /* count entries; start + length <= size */
} axis_windows;

/* Storage for `count` windows in the builder's arena, to be filled by the caller, then windows_measure. false with no
 * memory. */
bool windows_init(hlo_builder *b, axis_windows *w, int64_t size, int64_t count);
void windows_measure(axis_windows *w); /* sets longest */
/* PyTorch's adaptive windows: window i is floor(i * size / count) up to ceil((i + 1) * size / count). */
bool windows_adaptive(hlo_builder *b, axis_windows *w, int64_t size, int64_t count);
/* For windows whose starts and ends never decrease: for each position the run of windows that hold it. */
bool windows_invert(hlo_builder *b, const axis_windows *w, axis_windows *inverse);
/* Window i is [i * longest, (i + 1) * longest), and they fill the dimension. */
bool windows_tile(const axis_windows *w);

/* x's elements along dim, window by window: [.., count, longest, ..], `fill` (a scalar) behind the end of a shorter
 * window. */
hlo_value windows_take(hlo_builder *b, hlo_value x, int dim, const axis_windows *w, hlo_value fill);
/* Whether windows are better read one by one (windows_slice) than taken all at once: they are few and overlap or differ
 * in length. */
enum { WINDOWS_MAX_SLICES = 64 };
bool windows_few(const axis_windows *w);
hlo_value windows_slice(hlo_builder *b, hlo_value x, int dim, const axis_windows *w, int64_t i);
/* The sum over each window: [.., count, ..]. */
hlo_value windows_sum(hlo_builder *b, hlo_value x, int dim, const axis_windows *w);
/* The lengths as a vector of type t, laid along dimension dim of a shape of this rank (the others 1). */
hlo_value windows_lengths(hlo_builder *b, const axis_windows *w, dtype t, int rank, int dim);

/* A vector laid along dimension dim of a shape of this rank (the others 1). */
hlo_value vector_along(hlo_builder *b, hlo_value vector, int rank, int dim);

#endif
