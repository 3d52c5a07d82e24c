/* dot_general and convolution. */
#include <string.h>

#include "hlo/internal.h"

static void precision_attribute(hlo_builder *b) {
    static const char *const names[] = {"DEFAULT", "HIGH", "HIGHEST"};
    const char *p = names[b->precision];
    hlo_attribute(b, "precision_config", "[#stablehlo<precision %s>, #stablehlo<precision %s>]", p, p);
}

/* ---- dot_general ---- */

static bool check_dot_sizes(hlo_builder *b, const char *what, hlo_value lhs, hlo_value rhs, int n, const int64_t *l,
                            const int64_t *r) {
    for (int i = 0; i < n; i++)
        if (lhs->dims[l[i]] != rhs->dims[r[i]]) {
            hlo_fail(b, STATUS_RUNTIME,
                     "stablehlo.dot_general: %s dimension %lld of operand 0, %s, and %lld of operand 1, %s, differ",
                     what, (long long)l[i], hlo_value_text(b, lhs), (long long)r[i], hlo_value_text(b, rhs));
            return false;
        }
    return true;
}

static bool check_dot_dims(hlo_builder *b, const char *what, hlo_value x, int n_batch, const int64_t *batch,
                           int n_contract, const int64_t *contract) {
    int64_t all[16];
    if (n_batch < 0 || n_batch > 8 || n_contract < 0 || n_contract > 8) {
        hlo_fail(b, STATUS_INTERNAL, "stablehlo.dot_general: %d batch and %d contracting dimensions", n_batch,
                 n_contract);
        return false;
    }
    memcpy(all, batch, sizeof(int64_t) * (size_t)n_batch);
    memcpy(all + n_batch, contract, sizeof(int64_t) * (size_t)n_contract);
    return hlo_check_dims(b, "stablehlo.dot_general", what, x->rank, n_batch + n_contract, all);
}

static bool listed(int64_t dim, int n, const int64_t *dims) {
    for (int i = 0; i < n; i++)
        if (dims[i] == dim) return true;
    return false;
}

/* Appends the dimensions that are neither batch nor contracted. */
static int append_free_dims(int rank, int64_t *dims, hlo_value x, int n_batch, const int64_t *batch, int n_contract,
                            const int64_t *contract) {
    for (int d = 0; d < x->rank && rank <= HLO_MAX_RANK; d++)
        if (!listed(d, n_batch, batch) && !listed(d, n_contract, contract)) dims[rank++] = x->dims[d];
    return rank;
}

hlo_value hlo_dot_general(hlo_builder *b, hlo_value lhs, hlo_value rhs, const hlo_dot_dims *d, dtype result) {
    const char *name = "stablehlo.dot_general";
    hlo_value operands[2] = {lhs, rhs};
    if (!hlo_ready(b, 2, operands) || !hlo_check_dtype(b, name, 1, rhs, lhs->dtype) ||
        !check_dot_dims(b, "dimensions of operand 0", lhs, d->n_batch, d->lhs_batch, d->n_contract, d->lhs_contract) ||
        !check_dot_dims(b, "dimensions of operand 1", rhs, d->n_batch, d->rhs_batch, d->n_contract, d->rhs_contract) ||
        !check_dot_sizes(b, "batch", lhs, rhs, d->n_batch, d->lhs_batch, d->rhs_batch) ||
        !check_dot_sizes(b, "contracting", lhs, rhs, d->n_contract, d->lhs_contract, d->rhs_contract))
        return NULL;
    int64_t dims[HLO_MAX_RANK + 1];
    int rank = 0;
    for (int i = 0; i < d->n_batch; i++) dims[rank++] = lhs->dims[d->lhs_batch[i]];
    rank = append_free_dims(rank, dims, lhs, d->n_batch, d->lhs_batch, d->n_contract, d->lhs_contract);
    rank = append_free_dims(rank, dims, rhs, d->n_batch, d->rhs_batch, d->n_contract, d->rhs_contract);
    hlo_attribute(b, "dot_dimension_numbers", "#stablehlo.dot<");
    hlo_append_list(&b->attributes, "", "lhs_batching_dimensions", d->n_batch, d->lhs_batch);
    hlo_append_list(&b->attributes, ", ", "rhs_batching_dimensions", d->n_batch, d->rhs_batch);
    hlo_append_list(&b->attributes, ", ", "lhs_contracting_dimensions", d->n_contract, d->lhs_contract);
    hlo_append_list(&b->attributes, ", ", "rhs_contracting_dimensions", d->n_contract, d->rhs_contract);
    strbuf_puts(&b->attributes, ">");
    precision_attribute(b);
    return hlo_emit_one(b, name, 2, operands, result, rank, dims);
}

/* ---- convolution ---- */

void hlo_convolution_dims_init(hlo_convolution_dims *d, int spatial) {
    *d = (hlo_convolution_dims){
        .spatial = spatial, .feature_groups = 1, .batch_groups = 1, .lhs_feature = 1, .rhs_input = 1, .out_feature = 1};
    for (int i = 0; i < 6; i++) d->stride[i] = d->lhs_dilation[i] = d->rhs_dilation[i] = 1;
}

/* Which dimensions hold the spatial sizes: all but these two, in order. */
static bool spatial_dims(hlo_builder *b, const char *what, int rank, int first, int second, int *spatial) {
    if (first < 0 || second < 0 || first >= rank || second >= rank || first == second) {
        hlo_fail(b, STATUS_INTERNAL, "stablehlo.convolution: dimensions %d and %d of %s, of %d dimensions", first,
                 second, what, rank);
        return false;
    }
    for (int d = 0, n = 0; d < rank; d++)
        if (d != first && d != second) spatial[n++] = d;
    return true;
}

static void append_layout(strbuf *out, int rank, int first, const char *first_name, int second,
                          const char *second_name) {
    int spatial = 0;
    strbuf_puts(out, "[");
    for (int d = 0; d < rank; d++) {
        if (d) strbuf_puts(out, ", ");
        if (d == first)
            strbuf_puts(out, first_name);
        else if (d == second)
            strbuf_puts(out, second_name);
        else
            strbuf_printf(out, "%d", spatial++);
    }
    strbuf_puts(out, "]");
}

static int64_t dilated(int64_t size, int64_t dilation) { return size > 0 ? (size - 1) * dilation + 1 : 0; }

static bool check_groups(hlo_builder *b, const hlo_convolution_dims *d, hlo_value lhs, hlo_value rhs) {
    int64_t features = lhs->dims[d->lhs_feature], inputs = rhs->dims[d->rhs_input], outputs = rhs->dims[d->rhs_output];
    if (d->feature_groups < 1 || d->batch_groups < 1 || (d->feature_groups > 1 && d->batch_groups > 1)) {
        hlo_fail(b, STATUS_INTERNAL, "stablehlo.convolution: %lld feature groups and %lld batch groups",
                 (long long)d->feature_groups, (long long)d->batch_groups);
        return false;
    }
    if (features == inputs * d->feature_groups && outputs % d->feature_groups == 0 && outputs % d->batch_groups == 0 &&
        lhs->dims[d->lhs_batch] % d->batch_groups == 0)
        return true;
    hlo_fail(b, STATUS_RUNTIME,
             "stablehlo.convolution: operand 0, %s, and the kernel, operand 1, %s, do not fit %lld feature groups and "
             "%lld batch groups",
             hlo_value_text(b, lhs), hlo_value_text(b, rhs), (long long)d->feature_groups, (long long)d->batch_groups);
    return false;
}

static bool convolution_result(hlo_builder *b, hlo_value lhs, hlo_value rhs, const hlo_convolution_dims *d,
                               int64_t *dims) {
    int rank = d->spatial + 2, l[8], r[8], o[8];
    if (!spatial_dims(b, "operand 0", rank, d->lhs_batch, d->lhs_feature, l) ||
        !spatial_dims(b, "operand 1", rank, d->rhs_output, d->rhs_input, r) ||
        !spatial_dims(b, "the result", rank, d->out_batch, d->out_feature, o) || !check_groups(b, d, lhs, rhs))
        return false;
    dims[d->out_batch] = lhs->dims[d->lhs_batch] / d->batch_groups;
    dims[d->out_feature] = rhs->dims[d->rhs_output];
    for (int i = 0; i < d->spatial; i++) {
        int64_t size = dilated(lhs->dims[l[i]], d->lhs_dilation[i]) + d->low[i] + d->high[i];
        int64_t window = dilated(rhs->dims[r[i]], d->rhs_dilation[i]);
        if (d->stride[i] < 1 || d->lhs_dilation[i] < 1 || d->rhs_dilation[i] < 1 || size < 0) {
            hlo_fail(
                b, STATUS_RUNTIME,
                "stablehlo.convolution: stride %lld, dilations %lld and %lld, padded size %lld in spatial dimension %d",
                (long long)d->stride[i], (long long)d->lhs_dilation[i], (long long)d->rhs_dilation[i], (long long)size,
                i);
            return false;
        }
        dims[o[i]] = window > size ? 0 : (size - window) / d->stride[i] + 1;
    }
    return true;
}

static void convolution_attributes(hlo_builder *b, const hlo_convolution_dims *d) {
    int rank = d->spatial + 2;
    hlo_attribute_ints(b, "window_strides", d->spatial, d->stride);
    hlo_attribute_padding(b, d->spatial, d->low, d->high);
    hlo_attribute_ints(b, "lhs_dilation", d->spatial, d->lhs_dilation);
    hlo_attribute_ints(b, "rhs_dilation", d->spatial, d->rhs_dilation);
    hlo_attribute_bools(b, "window_reversal", d->spatial, d->reverse);
    hlo_attribute(b, "dimension_numbers", "#stablehlo.conv<");
    append_layout(&b->attributes, rank, d->lhs_batch, "b", d->lhs_feature, "f");
    strbuf_puts(&b->attributes, "x");
    append_layout(&b->attributes, rank, d->rhs_output, "o", d->rhs_input, "i");
    strbuf_puts(&b->attributes, "->");
    append_layout(&b->attributes, rank, d->out_batch, "b", d->out_feature, "f");
    strbuf_puts(&b->attributes, ">");
    hlo_attribute_int(b, "feature_group_count", d->feature_groups);
    hlo_attribute_int(b, "batch_group_count", d->batch_groups);
    precision_attribute(b);
}

hlo_value hlo_convolution(hlo_builder *b, hlo_value lhs, hlo_value rhs, const hlo_convolution_dims *d, dtype result) {
    const char *name = "stablehlo.convolution";
    hlo_value operands[2] = {lhs, rhs};
    if (!hlo_ready(b, 2, operands) || !hlo_check_dtype(b, name, 1, rhs, lhs->dtype)) return NULL;
    if (d->spatial < 0 || d->spatial > 6)
        return hlo_fail(b, STATUS_NOT_IMPLEMENTED, "%s: %d spatial dimensions", name, d->spatial);
    for (int i = 0; i < 2; i++)
        if (operands[i]->rank != d->spatial + 2)
            return hlo_fail(b, STATUS_RUNTIME, "%s: operand %d, %s, must have %d dimensions", name, i,
                            hlo_value_text(b, operands[i]), d->spatial + 2);
    int64_t dims[8];
    if (!convolution_result(b, lhs, rhs, d, dims)) return NULL;
    convolution_attributes(b, d);
    return hlo_emit_one(b, name, 2, operands, result, d->spatial + 2, dims);
}
