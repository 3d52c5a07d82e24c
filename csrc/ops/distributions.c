/* Random tensors: uniform bits shaped into PyTorch's distributions. The transformations are those of the CPU's
 * generator (aten/src/ATen/core/TransformationHelper.h), the bits are not. Samplers that reject are in rejection.c. */
#include "ops/formula.h"
#include "ops/lowering.h"
#include "ops/scan.h"

/* The type numbers of type t are drawn in. */
static dtype draw_type(dtype t) { return t == DTYPE_F64 || t == DTYPE_C128 ? DTYPE_F64 : DTYPE_F32; }

static hlo_value uniform(lowering *l, dtype t) {
    int rank = result_rank(l, 0);
    const int64_t *dims = result_dims(l, 0);
    if (!dtype_is_complex(t)) return random_uniform(l, dtype_is_float(t) ? t : DTYPE_F32, rank, dims);
    hlo_value re = random_uniform(l, draw_type(t), rank, dims);
    return hlo_complex(lower_builder(l), re, random_uniform(l, draw_type(t), rank, dims));
}

static hlo_value open_uniform(lowering *l, dtype t) {
    return random_open_uniform(l, t, result_rank(l, 0), result_dims(l, 0));
}

/* A complex normal number has variance 1: its parts have 1/2 each. */
static hlo_value normal(lowering *l, dtype t) {
    hlo_builder *b = lower_builder(l);
    int rank = result_rank(l, 0);
    const int64_t *dims = result_dims(l, 0);
    hlo_value re = random_normal(l, draw_type(t), rank, dims);
    if (!dtype_is_complex(t)) return re;
    return MULK(hlo_complex(b, re, random_normal(l, draw_type(t), rank, dims)), M_SQRT1_2);
}

static dtype compute_type(dtype t) { return dtype_is_complex(t) ? t : draw_type(t); }

/* ---- uniform and normal ---- */

static void lower_rand(lowering *l) { result_set(l, 0, uniform(l, result_dtype(l, 0))); }
static void lower_randn(lowering *l) { result_set(l, 0, normal(l, result_dtype(l, 0))); }

/* Between the numbers in arguments 1 and 2. */
static void lower_uniform(lowering *l) {
    hlo_builder *b = lower_builder(l);
    dtype t = result_dtype(l, 0);
    hlo_value from = arg_number(l, 1, t), to = arg_number(l, 2, t);
    result_set(l, 0, ADD(MUL(uniform(l, t), SUB(to, from)), from));
}

/* Mean and deviation are numbers or tensors. */
static hlo_value scaled_normal(lowering *l, int mean, int deviation) {
    hlo_builder *b = lower_builder(l);
    dtype t = compute_type(result_dtype(l, 0));
    return ADD(MUL(normal(l, t), arg_number_or(l, deviation, t, 1)), arg_number_or(l, mean, t, 0));
}
static void lower_normal(lowering *l) { result_set(l, 0, scaled_normal(l, 1, 2)); }
static void lower_normal_of_two(lowering *l) { result_set(l, 0, scaled_normal(l, 0, 1)); }
static void lower_log_normal(lowering *l) {
    result_set(l, 0, hlo_exponential(lower_builder(l), scaled_normal(l, 1, 2)));
}

/* ---- by inversion ---- */

static void lower_exponential(lowering *l) {
    hlo_builder *b = lower_builder(l);
    dtype t = draw_type(result_dtype(l, 0));
    result_set(l, 0, DIV(NEG(LOG(open_uniform(l, t))), arg_number(l, 1, t)));
}

static void lower_geometric(lowering *l) {
    hlo_builder *b = lower_builder(l);
    dtype t = draw_type(result_dtype(l, 0));
    hlo_value trials = hlo_ceil(b, DIV(LOG(open_uniform(l, t)), LOG1P(NEG(arg_number(l, 1, t)))));
    result_set(l, 0, MAX(trials, K(trials, 1)));
}

static void lower_cauchy(lowering *l) {
    hlo_builder *b = lower_builder(l);
    dtype t = draw_type(result_dtype(l, 0));
    hlo_value slope = hlo_tan(b, MULK(ADDK(open_uniform(l, t), -0.5), M_PI));
    result_set(l, 0, ADD(arg_number(l, 1, t), MUL(arg_number(l, 2, t), slope)));
}

/* ---- bernoulli, dropout ---- */

/* true with probability p (a value, or a number), of result 0's shape. */
static hlo_value coin(lowering *l, hlo_value p) {
    if (!p) return NULL;
    dtype t = draw_type(p->dtype);
    return hlo_lt(lower_builder(l), random_uniform(l, t, result_rank(l, 0), result_dims(l, 0)),
                  hlo_convert(lower_builder(l), p, t));
}

static void lower_bernoulli(lowering *l) { result_set(l, 0, coin(l, arg_tensor(l, 0))); }
static void lower_bernoulli_p(lowering *l) { result_set(l, 0, coin(l, arg_number(l, 1, DTYPE_F32))); }
static void lower_bernoulli_tensor(lowering *l) { result_set(l, 0, coin(l, arg_tensor(l, 1))); }

/* (input, p, train) -> (output, mask): what is kept grows by 1 / (1 - p); with p = 1 nothing is. */
static void lower_native_dropout(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    if (arg_given(l, 2) && !arg_bool(l, 2)) {
        result_set(l, 0, x);
        result_set(l, 1, hlo_constant_int(b, DTYPE_BOOL, 0, NULL, 1));
        return;
    }
    dtype t = draw_type(x->dtype);
    hlo_value keep = SUBFROM(1, arg_number(l, 1, t)), mask = coin(l, keep);
    hlo_value scale = IF(EQK(keep, 0), K(keep, 0), DIVINTO(1, keep));
    result_set(l, 0, MUL(MUL(x, hlo_convert(b, mask, x->dtype)), hlo_convert(b, scale, x->dtype)));
    result_set(l, 1, mask);
}

/* The older form: p is the probability to keep. */
static void lower_fused_dropout(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    if (!x) return;
    hlo_value keep = arg_number(l, 1, x->dtype), mask = coin(l, keep);
    result_set(l, 0, DIV(MUL(x, hlo_convert(b, mask, x->dtype)), keep));
    result_set(l, 1, mask);
}

static void lower_native_dropout_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0);
    if (g) result_set(l, 0, MUL(MUL(g, hlo_convert(b, arg_tensor(l, 1), g->dtype)), arg_number(l, 2, g->dtype)));
}

/* ---- whole numbers ---- */

/* low + bits modulo range; range 0 stands for 2^64. */
static void whole_numbers(lowering *l, int64_t low, uint64_t range) {
    hlo_builder *b = lower_builder(l);
    dtype word = range == 0 || range >= UINT64_C(1) << 32 ? DTYPE_U64 : DTYPE_U32;
    hlo_value bits = random_bits(l, word, result_rank(l, 0), result_dims(l, 0));
    if (range != 0) bits = hlo_remainder(b, bits, hlo_constant_int(b, word, 0, NULL, (int64_t)range));
    bits = hlo_convert(b, bits, DTYPE_I64);
    result_set(l, 0, hlo_add(b, bits, hlo_constant_int(b, DTYPE_I64, 0, NULL, low)));
}

static void whole_numbers_below(lowering *l, int64_t low, int64_t high) {
    if (low >= high)
        hlo_fail(lower_builder(l), STATUS_RUNTIME,
                 "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld", (long long)low,
                 (long long)high);
    else
        whole_numbers(l, low, (uint64_t)high - (uint64_t)low);
}

/* The largest number that random_() gives: of floats the largest up to which all whole numbers are exact. */
static int64_t largest_whole(dtype t) {
    switch (t) {
        case DTYPE_BOOL:
            return 1;
        case DTYPE_F64:
            return INT64_C(1) << 53;
        case DTYPE_F16:
            return INT64_C(1) << 11;
        case DTYPE_BF16:
            return INT64_C(1) << 8;
        case DTYPE_F32:
            return INT64_C(1) << 24;
        case DTYPE_U64:
            return INT64_MAX;
        default: {
            int bits = dtype_bits(t) - (dtype_is_signed(t) ? 1 : 0);
            return bits >= 63 ? INT64_MAX : (INT64_C(1) << bits) - 1;
        }
    }
}

static void lower_random(lowering *l) { whole_numbers(l, 0, (uint64_t)largest_whole(result_dtype(l, 0)) + 1); }
static void lower_random_to(lowering *l) { whole_numbers_below(l, 0, arg_int(l, 1)); }
static void lower_random_from(lowering *l) {
    int64_t low = arg_int(l, 1);
    if (arg_given(l, 2))
        whole_numbers_below(l, low, arg_int(l, 2));
    else
        whole_numbers(l, low, (uint64_t)largest_whole(result_dtype(l, 0)) - (uint64_t)low + 1);
}

static void lower_randint(lowering *l) { whole_numbers_below(l, 0, arg_int(l, 0)); }
static void lower_randint_low(lowering *l) { whole_numbers_below(l, arg_int(l, 0), arg_int(l, 1)); }
static void lower_randint_like(lowering *l) { whole_numbers_below(l, 0, arg_int(l, 1)); }
static void lower_randint_like_low(lowering *l) { whole_numbers_below(l, arg_int(l, 1), arg_int(l, 2)); }

static void lower_randint_like_tensor(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value bits = random_bits(l, DTYPE_U64, result_rank(l, 0), result_dims(l, 0));
    result_set(l, 0, hlo_remainder(b, bits, arg_number(l, 1, DTYPE_U64)));
}

/* Positions sorted by random keys. */
static void lower_randperm(lowering *l) {
    hlo_builder *b = lower_builder(l);
    const int64_t *dims = result_dims(l, 0);
    if (result_rank(l, 0) != 1) return;
    hlo_value columns[2] = {random_bits(l, DTYPE_U64, 1, dims), hlo_iota(b, DTYPE_I64, 1, dims, 0)}, sorted[2], a[4];
    const hlo_type types[4] = {{DTYPE_U64, 0, NULL}, {DTYPE_U64, 0, NULL}, {DTYPE_I64, 0, NULL}, {DTYPE_I64, 0, NULL}};
    hlo_region_begin(b, 4, types, a);
    hlo_value before = LT(a[0], a[1]);
    hlo_sort(b, 2, columns, 0, true, hlo_region_end(b, 1, &before), sorted);
    result_set(l, 0, sorted[1]);
}

/* ---- multinomial ---- */

/* Without replacement: the categories that arrive first in a race of exponential clocks of rates p (Efraimidis and
 * Spirakis, "Weighted random sampling with a reservoir", 2006). */
static hlo_value race(lowering *l, hlo_value p, int64_t samples) {
    hlo_builder *b = lower_builder(l);
    hlo_value u = random_open_uniform(l, DTYPE_F32, p->rank, p->dims), times, order;
    hlo_top_k(b, DIV(p, NEG(LOG(u))), samples, &times, &order);
    return order;
}

/* With replacement: the first category whose cumulative weight exceeds a uniform part of the total. */
static hlo_value lottery(lowering *l, hlo_value p) {
    hlo_builder *b = lower_builder(l);
    int last = p->rank - 1;
    int64_t categories = p->dims[last];
    hlo_value cumulative = scan_reduction(b, HLO_REDUCE_ADD, p, last);
    hlo_value total = hlo_slice_dim(b, cumulative, last, categories - 1, categories, 1);
    hlo_value part = MUL(random_uniform(l, DTYPE_F32, result_rank(l, 0), result_dims(l, 0)), total);
    const int64_t dim[1] = {last + 1}, along[1] = {last};
    hlo_value passed = LE(hlo_unsqueeze_dim(b, cumulative, last), hlo_unsqueeze_dim(b, part, last + 1));
    hlo_value index = hlo_reduce(b, HLO_REDUCE_ADD, hlo_convert(b, passed, DTYPE_I32), 1, dim);
    /* A part rounded up to the total stays within the last category of a positive weight. */
    hlo_value limit = hlo_reduce(b, HLO_REDUCE_ADD, hlo_convert(b, LT(cumulative, total), DTYPE_I32), 1, along);
    return MIN(index, hlo_unsqueeze_dim(b, limit, last));
}

static void lower_multinomial(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value p = hlo_convert(b, arg_tensor(l, 0), DTYPE_F32);
    if (!p || p->rank < 1 || p->dims[p->rank - 1] == 0) {
        if (p) hlo_fail(b, STATUS_RUNTIME, "prob_dist must be 1 or 2 dim with at least one category");
        return;
    }
    int64_t samples = arg_int(l, 1);
    if (!dtype_is_float(arg_tensor_dtype(l, 0)))
        hlo_fail(b, STATUS_RUNTIME, "multinomial only supports floating-point dtypes for input");
    else if (p->dims[p->rank - 1] > 1 << 24)
        hlo_fail(b, STATUS_RUNTIME, "number of categories cannot exceed 2^24");
    else if (samples <= 0)
        hlo_fail(b, STATUS_RUNTIME, "cannot sample n_sample <= 0 samples");
    else if (arg_bool(l, 2))
        result_set(l, 0, lottery(l, p));
    else if (samples <= p->dims[p->rank - 1])
        result_set(l, 0, race(l, p, samples));
    else
        hlo_fail(b, STATUS_RUNTIME, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
}

#define RANDOM(name, function) \
    { "aten::" name, PROMOTE_NONE, OP_RANDOM, .lower = function }
#define GENERATOR_TOO(name, function) RANDOM(name, function), RANDOM(name ".generator", function)

const op_row ops_distributions[] = {
    GENERATOR_TOO("rand", lower_rand),
    GENERATOR_TOO("rand_like", lower_rand),
    GENERATOR_TOO("randn", lower_randn),
    GENERATOR_TOO("randn_like", lower_randn),
    RANDOM("uniform", lower_uniform),
    RANDOM("normal_functional", lower_normal),
    RANDOM("normal.Tensor_float", lower_normal_of_two),
    RANDOM("normal.float_Tensor", lower_normal_of_two),
    RANDOM("normal.Tensor_Tensor", lower_normal_of_two),
    RANDOM("normal.float_float", lower_normal_of_two),
    RANDOM("log_normal", lower_log_normal),
    RANDOM("exponential", lower_exponential),
    RANDOM("geometric", lower_geometric),
    RANDOM("cauchy", lower_cauchy),
    RANDOM("bernoulli", lower_bernoulli),
    RANDOM("bernoulli.p", lower_bernoulli_p),
    RANDOM("bernoulli.Tensor", lower_bernoulli_tensor),
    {"aten::native_dropout", PROMOTE_NONE, OP_OPMATH | OP_RANDOM, .lower = lower_native_dropout},
    {"aten::_fused_dropout", PROMOTE_NONE, OP_OPMATH | OP_RANDOM, .lower = lower_fused_dropout},
    {"aten::native_dropout_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_native_dropout_backward},
    RANDOM("random", lower_random),
    RANDOM("random.to", lower_random_to),
    RANDOM("random.from", lower_random_from),
    GENERATOR_TOO("randint", lower_randint),
    RANDOM("randint.low", lower_randint_low),
    RANDOM("randint.low_generator", lower_randint_low),
    GENERATOR_TOO("randint_like", lower_randint_like),
    RANDOM("randint_like.low_dtype", lower_randint_like_low),
    RANDOM("randint_like.low_generator_dtype", lower_randint_like_low),
    RANDOM("randint_like.Tensor", lower_randint_like_tensor),
    RANDOM("randint_like.Tensor_generator", lower_randint_like_tensor),
    GENERATOR_TOO("randperm", lower_randperm),
    RANDOM("multinomial", lower_multinomial),
    {NULL}};
