/* Fourier transforms. PyTorch names the dimensions and how the result is scaled; StableHLO transforms the last three at
 * most, its inverse divided by the number of elements. */
#include <math.h>
#include <string.h>

#include "ops/indexing.h"
#include "ops/ops.h"

/* at::native::fft_norm_mode */
enum { SCALE_NONE, SCALE_ROOT, SCALE_COUNT };

typedef struct {
    int n;
    int64_t dims[HLO_MAX_RANK];
} dim_list;

static bool read_dims(lowering *l, int argument, int rank, dim_list *d) {
    const int64_t *given;
    d->n = arg_ints(l, argument, &given);
    for (int i = 0; i < d->n; i++) {
        d->dims[i] = dim_wrap(given[i], rank);
        if (d->dims[i] >= 0) continue;
        hlo_fail(lower_builder(l), STATUS_INDEX, "Dimension out of range");
        return false;
    }
    return true;
}

/* Moves these dimensions to the end (or, with `back`, from the end to where they belong). */
static hlo_value move_dims(hlo_builder *b, hlo_value x, int n, const int64_t *dims, bool back) {
    if (!x) return NULL;
    bool moved[HLO_MAX_RANK] = {false};
    int64_t order[HLO_MAX_RANK], inverse[HLO_MAX_RANK];
    int k = 0;
    for (int i = 0; i < n; i++) moved[dims[i]] = true;
    for (int i = 0; i < x->rank; i++)
        if (!moved[i]) order[k++] = i;
    for (int i = 0; i < n; i++) order[k++] = dims[i];
    for (int i = 0; i < x->rank; i++) inverse[order[i]] = i;
    return hlo_transpose(b, x, back ? inverse : order);
}

/* One operation over at most three dimensions; lengths are those of the real side. */
static hlo_value transform(hlo_builder *b, hlo_value x, hlo_fft_type type, int n, const int64_t *dims,
                           const int64_t *lengths) {
    return move_dims(b, hlo_fft(b, move_dims(b, x, n, dims, false), type, n, lengths), n, dims, true);
}

/* Complex to complex, unscaled forward, divided by the count backward, over any number of dimensions. */
static hlo_value complex_transform(hlo_builder *b, hlo_value x, bool forward, int n, const int64_t *dims) {
    for (int i = 0; i < n && x; i += 3) {
        int64_t lengths[3];
        int count = n - i < 3 ? n - i : 3;
        for (int k = 0; k < count; k++) lengths[k] = x->dims[dims[i + k]];
        x = transform(b, x, forward ? HLO_FFT : HLO_IFFT, count, dims + i, lengths);
    }
    return x;
}

/* `divided`: x is already divided by count. */
static hlo_value scale(hlo_builder *b, hlo_value x, int64_t mode, double count, bool divided) {
    double factor = mode == SCALE_ROOT ? 1 / sqrt(count) : mode == SCALE_COUNT ? 1 / count : 1;
    if (divided) factor *= count;
    return x && factor != 1 ? hlo_multiply(b, x, hlo_scalar(b, x->dtype, factor)) : x;
}

static double count_of(hlo_value x, const dim_list *d) {
    double count = 1;
    for (int i = 0; i < d->n && x; i++) count *= (double)x->dims[d->dims[i]];
    return count;
}

static void set_empty(lowering *l) {
    result_set(l, 0, index_zeros(lower_builder(l), result_dtype(l, 0), result_rank(l, 0), result_dims(l, 0)));
}

static void complex_to_complex(lowering *l, int64_t mode, bool forward) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = hlo_convert(b, arg_tensor(l, 0), result_dtype(l, 0));
    dim_list d = {0};
    if (!x || !read_dims(l, 1, x->rank, &d)) return;
    if (hlo_element_count(x) == 0)
        set_empty(l);
    else
        result_set(l, 0, scale(b, complex_transform(b, x, forward, d.n, d.dims), mode, count_of(x, &d), !forward));
}

static void real_to_complex(lowering *l, int64_t mode, bool onesided) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = hlo_convert(b, arg_tensor(l, 0), dtype_real(result_dtype(l, 0)));
    dim_list d = {0};
    if (!x || !read_dims(l, 1, x->rank, &d)) return;
    if (hlo_element_count(x) == 0 || d.n == 0) {
        if (d.n == 0)
            result_set(l, 0, x);
        else
            set_empty(l);
        return;
    }
    hlo_value y;
    if (onesided) {
        int64_t last = d.dims[d.n - 1], length = x->dims[last];
        y = complex_transform(b, transform(b, x, HLO_RFFT, 1, &last, &length), true, d.n - 1, d.dims);
    } else {
        y = complex_transform(b, hlo_convert(b, x, result_dtype(l, 0)), true, d.n, d.dims);
    }
    result_set(l, 0, scale(b, y, mode, count_of(x, &d), false));
}

/* The dimension cut or filled up with zeros to `size` elements. */
static hlo_value fit_dim(hlo_builder *b, hlo_value x, int64_t dim, int64_t size) {
    if (!x || x->dims[dim] == size) return x;
    int64_t low[HLO_MAX_RANK] = {0}, high[HLO_MAX_RANK] = {0};
    high[dim] = size - x->dims[dim];
    return hlo_pad(b, x, hlo_scalar(b, x->dtype, 0), low, high, NULL);
}

static void complex_to_real(lowering *l, int64_t mode, int64_t length) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = hlo_convert(b, arg_tensor(l, 0), dtype_complex(result_dtype(l, 0)));
    dim_list d = {0};
    if (!x || !read_dims(l, 1, x->rank, &d)) return;
    if (hlo_element_count(x) == 0 || d.n == 0) {
        set_empty(l);
        return;
    }
    int64_t last = d.dims[d.n - 1];
    x = fit_dim(b, complex_transform(b, x, false, d.n - 1, d.dims), last, length / 2 + 1);
    hlo_value y = transform(b, x, HLO_IRFFT, 1, &last, &length);
    result_set(l, 0, scale(b, y, mode, count_of(y, &d), true));
}

static void lower_c2c(lowering *l) { complex_to_complex(l, arg_int(l, 2), arg_bool(l, 3)); }
static void lower_r2c(lowering *l) { real_to_complex(l, arg_int(l, 2), arg_bool(l, 3)); }
static void lower_c2r(lowering *l) { complex_to_real(l, arg_int(l, 2), arg_int(l, 3)); }
static void lower_prims_c2c(lowering *l) { complex_to_complex(l, SCALE_NONE, arg_bool(l, 2)); }
static void lower_prims_r2c(lowering *l) { real_to_complex(l, SCALE_NONE, arg_bool(l, 2)); }
static void lower_prims_c2r(lowering *l) { complex_to_real(l, SCALE_NONE, arg_int(l, 2)); }

const op_row ops_fft[] = {
    {"aten::_fft_c2c", PROMOTE_NONE, .lower = lower_c2c},
    {"aten::_fft_r2c", PROMOTE_NONE, .lower = lower_r2c},
    {"aten::_fft_c2r", PROMOTE_NONE, .lower = lower_c2r},
    {"prims::fft_c2c", PROMOTE_NONE, .lower = lower_prims_c2c},
    {"prims::fft_r2c", PROMOTE_NONE, .lower = lower_prims_r2c},
    {"prims::fft_c2r", PROMOTE_NONE, .lower = lower_prims_c2r},
    {0},
};
