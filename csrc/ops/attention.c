/* Scaled dot-product attention, forward and backward, under the names that PyTorch's dispatch may choose, and the fused
 * layers of nn.MultiheadAttention's fast path. query [B, H, L, E], key [B, K, S, E], value [B, K, S, V]; H is a
 * multiple of K. Scores and weights are in the type PyTorch accumulates in; weights are rounded to the operands' type
 * before they meet the values. */
#include <math.h>

#include "ops/indexing.h"
#include "ops/lowering.h"
#include "ops/matmul.h"
#include "ops/reduction.h"

typedef struct {
    hlo_value q, k, v, bias; /* bias: as it meets scores by key head; bool (true: take part) or added; may be NULL */
    hlo_value scale;         /* rank 0 */
    bool causal;
    double dropout;
    int64_t batch, heads, kv_heads, length, source, width;
    dtype compute;
} attention;

/* Arguments: -1 where the operator has none. */
typedef struct {
    int q, bias, dropout, causal, scale;
} attention_form;

/* [.., H or 1, L, S] as it meets the scores: query heads that share a key head are a dimension of their own. */
static hlo_value bias_by_key_head(hlo_builder *b, hlo_value bias, int64_t kv_heads) {
    int at = bias ? bias->rank - 3 : -1; /* where the heads are */
    if (at < 0) return bias;
    if (at > 1)
        return hlo_fail(b, STATUS_RUNTIME, "attention expects a bias of at most 4 dimensions, got %d", bias->rank);
    int64_t dims[5];
    for (int i = 0; i < at; i++) dims[i] = bias->dims[i];
    dims[at] = bias->dims[at] == 1 ? 1 : kv_heads;
    dims[at + 1] = bias->dims[at] / dims[at];
    dims[at + 2] = bias->dims[at + 1];
    dims[at + 3] = bias->dims[at + 2];
    return hlo_reshape(b, bias, bias->rank + 1, dims);
}

static bool read_attention(lowering *l, const attention_form *f, attention *a) {
    hlo_builder *b = l->builder;
    *a = (attention){.q = arg_tensor(l, f->q), .k = arg_tensor(l, f->q + 1), .v = arg_tensor(l, f->q + 2)};
    if (!a->q || !a->k || !a->v) return false;
    if (a->q->rank != 4 || a->k->rank != 4 || a->v->rank != 4) {
        hlo_fail(b, STATUS_RUNTIME, "attention expects query, key and value of 4 dimensions");
        return false;
    }
    a->dropout = arg_float_or(l, f->dropout, 0);
    a->causal = arg_bool(l, f->causal);
    a->batch = a->q->dims[0], a->heads = a->q->dims[1], a->length = a->q->dims[2], a->width = a->q->dims[3];
    a->kv_heads = a->k->dims[1], a->source = a->k->dims[2];
    a->compute = dtype_opmath(a->q->dtype);
    a->scale = arg_number_or(l, f->scale, a->compute, 1 / sqrt((double)a->width));
    if (a->kv_heads == 0 || a->heads % a->kv_heads || a->v->dims[1] != a->kv_heads) {
        hlo_fail(b, STATUS_RUNTIME, "the number of heads of query must be a multiple of that of key and value");
        return false;
    }
    hlo_value bias = arg_tensor(l, f->bias);
    a->bias = bias_by_key_head(b, bias, a->kv_heads);
    return !bias || a->bias;
}

/* Query heads that share a key head are a dimension of their own, G = H / K: no key or value is repeated, and what is
 * done to the scores stays part of the product's kernel on a TPU, which a reshape between them would prevent. */
static hlo_value by_key_head(hlo_builder *b, const attention *a, hlo_value x) {
    int64_t group = a->heads / a->kv_heads;
    return x ? hlo_reshape(b, x, 5, (int64_t[]){a->batch, a->kv_heads, group, x->dims[2], x->dims[3]}) : NULL;
}
static hlo_value by_head(hlo_builder *b, const attention *a, hlo_value x) {
    return x ? hlo_reshape(b, x, 4, (int64_t[]){a->batch, a->heads, a->length, x->dims[4]}) : NULL;
}

/* x [B, K, G, L, n] y^T and x y of every head. */
static hlo_value heads_times_transpose(hlo_builder *b, hlo_value x, hlo_value y) { return contract(b, x, 4, y, 3, 2); }
static hlo_value heads_times(hlo_builder *b, hlo_value x, hlo_value y) { return contract(b, x, 4, y, 2, 2); }

/* x^T y, summed over the query heads of each key head. */
static hlo_value heads_transpose_times(hlo_builder *b, hlo_value x, hlo_value y) {
    hlo_dot_dims d = {.n_batch = 2,
                      .n_contract = 2,
                      .lhs_batch = {0, 1},
                      .rhs_batch = {0, 1},
                      .lhs_contract = {2, 3},
                      .rhs_contract = {2, 3}};
    return x && y ? hlo_dot_general(b, x, y, &d, dtype_opmath(x->dtype)) : NULL;
}

/* q k^T scale + bias [B, K, G, L, S], -inf where masked. */
static hlo_value scores(hlo_builder *b, const attention *a) {
    hlo_value s = hlo_multiply(b, heads_times_transpose(b, by_key_head(b, a, a->q), a->k), a->scale);
    if (!s) return NULL;
    hlo_value nothing = hlo_scalar(b, a->compute, -INFINITY);
    if (a->bias && a->bias->dtype == DTYPE_BOOL)
        s = hlo_select(b, a->bias, s, nothing);
    else if (a->bias)
        s = hlo_add(b, s, hlo_convert(b, a->bias, a->compute));
    if (!a->causal || !s) return s;
    int64_t dims[2] = {a->length, a->source};
    return hlo_select(b, hlo_ge(b, index_iota(b, 2, dims, 0), index_iota(b, 2, dims, 1)), s, nothing);
}

/* ---- dropout: the same bits again in the backward pass, from the generator's saved state (ui64[2]) ---- */

static hlo_value dropped(hlo_builder *b, const attention *a, hlo_value x, hlo_value state) {
    if (!x || !state || a->dropout <= 0) return x;
    hlo_value zero = hlo_like(b, x, 0);
    if (a->dropout >= 1) return zero;
    hlo_value next, bits;
    hlo_rng_bit_generator(b, state, DTYPE_U32, x->rank, x->dims, &next, &bits);
    hlo_value bound = hlo_constant_int(b, DTYPE_U32, 0, NULL, (int64_t)ldexp(a->dropout, 32));
    return hlo_select(b, hlo_ge(b, bits, bound), hlo_multiply(b, x, hlo_like(b, x, 1 / (1 - a->dropout))), zero);
}

static hlo_value new_state(lowering *l, const attention *a) {
    if (a->dropout <= 0 || !l->host) return NULL;
    return l->host->random_state(l->host->context);
}

/* Two words, in one result or in two. */
static void set_state(lowering *l, hlo_value state, int seed, int offset) {
    hlo_builder *b = l->builder;
    if (!state) state = hlo_constant_int(b, DTYPE_U64, 1, (int64_t[]){2}, 0);
    if (result_wanted(l, seed) && result_rank(l, seed) == 1) {
        result_set(l, seed, hlo_bitcast_convert(b, state, result_dtype(l, seed)));
        if (result_wanted(l, offset)) result_set(l, offset, hlo_scalar(b, result_dtype(l, offset), 0));
        return;
    }
    for (int i = 0; i < 2; i++) {
        int k = i ? offset : seed;
        if (!result_wanted(l, k)) continue;
        hlo_value word = hlo_reshape(b, hlo_slice_dim(b, state, 0, i, i + 1, 1), 0, NULL);
        result_set(l, k, hlo_bitcast_convert(b, word, result_dtype(l, k)));
    }
}

static hlo_value saved_state(lowering *l, const attention *a, int seed, int offset) {
    hlo_builder *b = l->builder;
    if (a->dropout <= 0) return NULL;
    hlo_value words[2] = {arg_tensor(l, seed), arg_tensor(l, offset)};
    if (words[0] && hlo_element_count(words[0]) == 2) return hlo_bitcast_convert(b, words[0], DTYPE_U64);
    for (int i = 0; i < 2; i++)
        words[i] = hlo_reshape(b, hlo_bitcast_convert(b, words[i], DTYPE_U64), 1, (int64_t[]){1});
    return hlo_concatenate(b, 2, words, 0);
}

/* ---- forward ---- */

/* log sum exp of the scores [B, H, L]; some operators' result has more rows, or none. */
static void set_log_sum_exp(lowering *l, const attention *a, int k, hlo_value s) {
    hlo_builder *b = l->builder;
    if (!s || !result_wanted(l, k)) return;
    dim_set last = dims_range(4, 5);
    hlo_value v = log_sum_exp_drop(b, s, &last);
    v = v ? hlo_reshape(b, v, 3, (int64_t[]){a->batch, a->heads, a->length}) : NULL;
    const int64_t *dims = result_dims(l, k);
    if (v && result_rank(l, k) == 3 && dims[2] > v->dims[2]) {
        int64_t low[3] = {0, 0, 0}, high[3] = {0, 0, dims[2] - v->dims[2]};
        v = hlo_pad(b, v, hlo_scalar(b, v->dtype, 0), low, high, NULL);
    } else if (v && result_rank(l, k) == 3 && dims[2] < v->dims[2]) {
        v = hlo_slice_dim(b, v, 2, 0, dims[2], 1);
    }
    set_reshaped(l, k, v);
}

/* Results that only say how another device's kernel was run. */
static void set_empty(lowering *l, int k) {
    if (result_wanted(l, k))
        result_set(l, k, index_zeros(l->builder, result_dtype(l, k), result_rank(l, k), result_dims(l, k)));
}

/* Where the bias lets a row have a key at all [.., L, 1]. */
static hlo_value has_key(hlo_builder *b, hlo_value bias) {
    if (bias->rank == 0) return NULL;
    dim_set last = dims_range(bias->rank - 1, bias->rank);
    if (bias->dtype == DTYPE_BOOL) return reduce_keep(b, HLO_REDUCE_OR, bias, &last);
    hlo_value most = reduce_keep(b, HLO_REDUCE_MAXIMUM, bias, &last);
    return most ? hlo_ne(b, most, hlo_like(b, most, -INFINITY)) : NULL;
}

/* Rows without a key have no weights. A causal row has one key at least; of a mask, asking the mask leaves the softmax
 * a form that the TPU compiler makes one kernel of with the product before it. */
static hlo_value weights_of(lowering *l, const attention *a, hlo_value s, hlo_value state) {
    hlo_builder *b = l->builder;
    hlo_value p = softmax_along(b, s, 4, a->bias && a->causal);
    hlo_value some = a->bias && !a->causal ? has_key(b, a->bias) : NULL;
    if (some && p) p = hlo_select(b, some, p, hlo_like(b, p, 0));
    return hlo_convert(b, dropped(b, a, p, state), a->v->dtype);
}

static void lower_attention(lowering *l, const attention_form *f, int seed, int offset) {
    attention a;
    if (!read_attention(l, f, &a)) return;
    hlo_value state = new_state(l, &a), s = scores(l->builder, &a);
    result_set(l, 0, by_head(l->builder, &a, heads_times(l->builder, weights_of(l, &a, s, state), a.v)));
    set_log_sum_exp(l, &a, 1, s);
    if (seed >= 0) set_state(l, state, seed, offset);
    for (int k = 2; k < result_count(l); k++)
        if (k != seed && k != offset) set_empty(l, k);
}

/* ---- backward: P = softmax(S), O = drop(P) V; dS = P (dP - sum(P dP)) ---- */

typedef struct {
    int log_sum_exp, seed, offset;
} attention_saved;

static void lower_attention_backward(lowering *l, const attention_form *f, const attention_saved *saved) {
    hlo_builder *b = l->builder;
    attention a;
    if (!read_attention(l, f, &a)) return;
    hlo_value g = by_key_head(b, &a, arg_tensor(l, 0)), total = arg_tensor(l, saved->log_sum_exp), s = scores(b, &a);
    if (!g || !total || !s) return;
    hlo_value state = saved_state(l, &a, saved->seed, saved->offset);
    if (total->dims[total->rank - 1] > a.length) total = hlo_slice_dim(b, total, total->rank - 1, 0, a.length, 1);
    int64_t dims[5] = {a.batch, a.kv_heads, a.heads / a.kv_heads, a.length, 1};
    total = hlo_convert(b, hlo_reshape(b, total, 5, dims), a.compute);
    /* A row that is masked whole has no weight at all. */
    total = hlo_select(b, hlo_eq(b, total, hlo_like(b, total, -INFINITY)), hlo_like(b, total, 0), total);
    hlo_value p = hlo_exponential(b, hlo_subtract(b, s, total));
    hlo_value weight = hlo_convert(b, dropped(b, &a, p, state), a.v->dtype);
    result_set(l, 2, heads_transpose_times(b, weight, g));
    hlo_value dp = dropped(b, &a, heads_times_transpose(b, g, a.v), state);
    dim_set last = dims_range(4, 5);
    hlo_value sum = reduce_keep(b, HLO_REDUCE_ADD, hlo_multiply(b, p, dp), &last);
    hlo_value ds = hlo_multiply(b, p, hlo_subtract(b, dp, sum));
    if (result_wanted(l, 3) && a.bias)
        result_set(l, 3, sum_to(b, by_head(b, &a, ds), result_rank(l, 3), result_dims(l, 3)));
    else
        set_empty(l, 3);
    ds = hlo_convert(b, hlo_multiply(b, ds, a.scale), a.q->dtype);
    result_set(l, 0, by_head(b, &a, heads_times(b, ds, a.k)));
    result_set(l, 1, heads_transpose_times(b, ds, by_key_head(b, &a, a.q)));
}

static void lower_overrideable(lowering *l) { lower_attention(l, &(attention_form){0, 3, 4, 5, 7}, 6, 7); }
static void lower_overrideable_backward(lowering *l) {
    lower_attention_backward(l, &(attention_form){1, 4, 12, 13, 16}, &(attention_saved){7, 14, 15});
}
static void lower_flash(lowering *l) { lower_attention(l, &(attention_form){0, -1, 3, 4, 6}, 6, 7); }
static void lower_flash_backward(lowering *l) {
    lower_attention_backward(l, &(attention_form){1, -1, 10, 11, 14}, &(attention_saved){5, 12, 13});
}
static void lower_flash_cpu(lowering *l) { lower_attention(l, &(attention_form){0, 5, 3, 4, 6}, -1, -1); }
static void lower_flash_cpu_backward(lowering *l) {
    lower_attention_backward(l, &(attention_form){1, 8, 6, 7, 9}, &(attention_saved){5, -1, -1});
}
static void lower_efficient(lowering *l) { lower_attention(l, &(attention_form){0, 3, 5, 6, 7}, 2, 3); }
static void lower_efficient_backward(lowering *l) {
    lower_attention_backward(l, &(attention_form){1, 4, 9, 11, 12}, &(attention_saved){6, 7, 8});
}

const op_row ops_attention[] = {
    {"aten::_scaled_dot_product_fused_attention_overrideable", PROMOTE_NONE, OP_RANDOM, .lower = lower_overrideable},
    {"aten::_scaled_dot_product_fused_attention_overrideable_backward", PROMOTE_NONE,
     .lower = lower_overrideable_backward},
    {"aten::_scaled_dot_product_flash_attention", PROMOTE_NONE, OP_RANDOM, .lower = lower_flash},
    {"aten::_scaled_dot_product_flash_attention_backward", PROMOTE_NONE, .lower = lower_flash_backward},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", PROMOTE_NONE, OP_RANDOM, .lower = lower_flash_cpu},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", PROMOTE_NONE, .lower = lower_flash_cpu_backward},
    {"aten::_scaled_dot_product_efficient_attention", PROMOTE_NONE, OP_RANDOM, .lower = lower_efficient},
    {"aten::_scaled_dot_product_efficient_attention_backward", PROMOTE_NONE, .lower = lower_efficient_backward},
    {0},
};
