/* Distributions sampled by rejection: gamma, Dirichlet, Poisson, binomial. One loop draws for all elements at once
 * until each has accepted a draw. */
#include "ops/formula.h"
#include "ops/lowering.h"

/* A stream of draws inside a loop: the generator's state is one of the loop's values. */
typedef struct {
    hlo_builder *b;
    hlo_value state;
    dtype type;
    int rank;
    const int64_t *dims;
} stream;

/* Uniform in (0, 1), as random_open_uniform. */
static hlo_value draw_uniform(stream *s) {
    hlo_builder *b = s->b;
    dtype word = s->type == DTYPE_F64 ? DTYPE_U64 : DTYPE_U32;
    int width = s->type == DTYPE_F64 ? 52 : 23;
    hlo_value bits;
    if (!s->state) return NULL;
    hlo_rng_bit_generator(b, s->state, word, s->rank, s->dims, &s->state, &bits);
    if (!bits) return NULL;
    bits = hlo_shift_right_logical(b, bits, hlo_constant_int(b, word, 0, NULL, dtype_bits(word) - width));
    return MULK(ADDK(hlo_convert(b, bits, s->type), 0.5), ldexp(1, -width));
}

static hlo_value draw_normal(stream *s) {
    hlo_builder *b = s->b;
    return MULK(hlo_erf_inv(b, ADDK(MULK(draw_uniform(s), 2), -1)), M_SQRT2);
}

/* One trial for every element. values: what the sampler carries (values[0] is the sample); accepted: bool. The trial
 * writes the new values; those of elements that are done already are dropped. */
enum { MAX_CARRIED = 2 };
typedef void (*trial)(stream *s, const hlo_value *parameters, hlo_value *values, hlo_value *accepted);

static hlo_value all_true(hlo_builder *b, hlo_value x) {
    if (!x) return NULL;
    int64_t dims[HLO_MAX_RANK];
    for (int d = 0; d < x->rank; d++) dims[d] = d;
    return hlo_reduce(b, HLO_REDUCE_AND, x, x->rank, dims);
}

/* Loop values: state, done, values... */
static hlo_value sample(lowering *l, trial one, const hlo_value *parameters, hlo_value skip, int n,
                        const hlo_value *start) {
    hlo_builder *b = lower_builder(l);
    hlo_value init[MAX_CARRIED + 2] = {l->host ? l->host->random_state(l->host->context) : NULL, skip},
                                 a[MAX_CARRIED + 2];
    hlo_value next[MAX_CARRIED + 2], result[MAX_CARRIED + 2];
    hlo_type types[MAX_CARRIED + 2];
    for (int i = 0; i < n; i++) init[2 + i] = start[i];
    for (int i = 0; i < n + 2; i++) {
        if (!init[i]) return hlo_fail(b, STATUS_INTERNAL, "random bits asked for without a generator");
        types[i] = (hlo_type){init[i]->dtype, init[i]->rank, init[i]->dims};
    }
    hlo_region_begin(b, n + 2, types, a);
    hlo_value more = NOT(all_true(b, a[1]));
    hlo_region *condition = hlo_region_end(b, 1, &more);
    hlo_region_begin(b, n + 2, types, a);
    stream s = {b, a[0], start[0]->dtype, start[0]->rank, start[0]->dims};
    hlo_value values[MAX_CARRIED], accepted;
    for (int i = 0; i < n; i++) values[i] = a[2 + i];
    one(&s, parameters, values, &accepted);
    next[0] = s.state;
    next[1] = OR(a[1], accepted);
    for (int i = 0; i < n; i++) next[2 + i] = IF(a[1], a[2 + i], values[i]);
    hlo_region *body = hlo_region_end(b, n + 2, next);
    hlo_while(b, n + 2, init, condition, body, result);
    return result[2];
}

/* The operand in the type it is sampled in. */
static hlo_value parameter(lowering *l, int i) {
    hlo_value x = arg_tensor(l, i);
    return x ? hlo_convert(lower_builder(l), x, x->dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32) : NULL;
}

/* ---- gamma: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000 ---- */

static void gamma_trial(stream *s, const hlo_value *parameters, hlo_value *values, hlo_value *accepted) {
    hlo_builder *b = s->b;
    hlo_value d = parameters[0], c = parameters[1];
    hlo_value x = draw_normal(s), y = ADDK(MUL(c, x), 1), v = MUL(MUL(y, y), y);
    hlo_value bound = ADD(MULK(MUL(x, x), 0.5), MUL(d, ADD(SUBFROM(1, v), LOG(v))));
    *accepted = AND(GTK(y, 0), LT(LOG(draw_uniform(s)), bound));
    values[0] = MUL(d, v);
}

/* A shape below 1 is sampled one higher and scaled down by u^(1 / shape). */
static hlo_value gamma_sample(lowering *l, hlo_value shape) {
    hlo_builder *b = lower_builder(l);
    if (!shape) return NULL;
    hlo_value small = LTK(shape, 1), d = ADDK(IF(small, ADDK(shape, 1), shape), -1.0 / 3);
    hlo_value parameters[2] = {d, hlo_rsqrt(b, MULK(d, 9))}, start[1] = {K(shape, 0)};
    hlo_value invalid = NOT(AND(hlo_is_finite(b, shape), GTK(shape, 0)));
    hlo_value g = sample(l, gamma_trial, parameters, invalid, 1, start);
    hlo_value u = random_open_uniform(l, shape->dtype, shape->rank, shape->dims);
    g = MUL(g, IF(small, hlo_power(b, u, DIVINTO(1, shape)), K(shape, 1)));
    hlo_value smallest = K(g, shape->dtype == DTYPE_F64 ? 0x1p-1022 : 0x1p-126);
    return IF(hlo_is_nan(b, shape), shape, MAX(g, smallest));
}

static void lower_standard_gamma(lowering *l) { result_set(l, 0, gamma_sample(l, parameter(l, 0))); }

static void lower_dirichlet(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = gamma_sample(l, parameter(l, 0));
    if (!g || g->rank == 0) return;
    const int64_t last[1] = {g->rank - 1};
    hlo_value sum = hlo_unsqueeze_dim(b, hlo_reduce(b, HLO_REDUCE_ADD, g, 1, last), g->rank - 1);
    result_set(l, 0, DIV(g, sum));
}

/* ---- Poisson: products of uniforms for a small rate; Hoermann, "The transformed rejection method for generating
 * Poisson random variables", 1993 (PTRS) for one from 10 on ---- */

static void poisson_trial(stream *s, const hlo_value *parameters, hlo_value *values, hlo_value *accepted) {
    hlo_builder *b = s->b;
    hlo_value rate = parameters[0], small = LTK(rate, 10), count = values[0], product = values[1];
    hlo_value u = draw_uniform(s), v = draw_uniform(s);
    hlo_value next_product = MUL(product, u), stop = LE(next_product, EXP(NEG(rate)));
    hlo_value large = MAX(rate, K(rate, 10)), root = SQRT(large);
    hlo_value bb = ADDK(MULK(root, 2.53), 0.931), aa = ADDK(MULK(bb, 0.02483), -0.059);
    hlo_value inverse_alpha = ADDK(DIVINTO(1.1328, ADDK(bb, -3.4)), 1.1239);
    hlo_value vr = SUBFROM(0.9277, DIVINTO(3.6224, ADDK(bb, -2)));
    hlo_value centred = ADDK(u, -0.5), us = SUBFROM(0.5, ABS(centred));
    hlo_value k = hlo_floor(b, ADDK(ADD(MUL(ADD(DIV(MULK(aa, 2), us), bb), centred), large), 0.43));
    hlo_value quick = AND(GEK(us, 0.07), LE(v, vr));
    hlo_value possible = AND(GEK(k, 0), NOT(AND(LTK(us, 0.013), GT(v, us))));
    hlo_value left = SUB(ADD(LOG(v), LOG(inverse_alpha)), LOG(ADD(DIV(aa, MUL(us, us)), bb)));
    hlo_value right = SUB(SUB(MUL(k, LOG(large)), large), hlo_lgamma(b, ADDK(MAX(k, K(k, 0)), 1)));
    hlo_value taken = OR(quick, AND(possible, LE(left, right)));
    *accepted = IF(small, stop, taken);
    values[0] = IF(small, IF(stop, count, ADDK(count, 1)), k);
    values[1] = next_product;
}

static void lower_poisson(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value rate = parameter(l, 0);
    if (!rate) return;
    hlo_value start[2] = {K(rate, 0), K(rate, 1)};
    hlo_value invalid = NOT(AND(hlo_is_finite(b, rate), GEK(rate, 0)));
    result_set(l, 0, sample(l, poisson_trial, &rate, invalid, 2, start));
}

/* ---- binomial: waiting times for few expected successes; Hoermann, "The generation of binomial random variates", 1993
 * (BTRS) for ten and more. Probabilities above 1/2 count the failures instead ---- */

static void binomial_trial(stream *s, const hlo_value *parameters, hlo_value *values, hlo_value *accepted) {
    hlo_builder *b = s->b;
    hlo_value n = parameters[0], q = parameters[1], few = LTK(MUL(n, q), 10), count = values[0], waited = values[1];
    hlo_value u = draw_uniform(s), v = draw_uniform(s);
    hlo_value next_waited = ADD(waited, hlo_ceil(b, DIV(LOG(u), LOG1P(NEG(q))))), stop = GT(next_waited, n);
    hlo_value deviation = SQRT(MAX(MUL(MUL(n, q), SUBFROM(1, q)), K(n, 1)));
    hlo_value bb = ADDK(MULK(deviation, 2.53), 1.15);
    hlo_value aa = ADDK(ADD(MULK(bb, 0.0248), MULK(q, 0.01)), -0.0873);
    hlo_value alpha = MUL(ADDK(DIVINTO(5.1, bb), 2.83), deviation), vr = SUBFROM(0.92, DIVINTO(4.2, bb));
    hlo_value mode = hlo_floor(b, MUL(ADDK(n, 1), q)), odds = DIV(q, SUBFROM(1, q));
    hlo_value centred = ADDK(u, -0.5), us = SUBFROM(0.5, ABS(centred));
    hlo_value k = hlo_floor(b, ADDK(ADD(MUL(ADD(DIV(MULK(aa, 2), us), bb), centred), MUL(n, q)), 0.5));
    hlo_value possible = AND(GEK(k, 0), LE(k, n)), kk = MIN(MAX(k, K(k, 0)), n);
    hlo_value left = LOG(DIV(MUL(v, alpha), ADD(DIV(aa, MUL(us, us)), bb)));
    hlo_value choose_mode = ADD(hlo_lgamma(b, ADDK(mode, 1)), hlo_lgamma(b, ADDK(SUB(n, mode), 1)));
    hlo_value choose_k = ADD(hlo_lgamma(b, ADDK(kk, 1)), hlo_lgamma(b, ADDK(SUB(n, kk), 1)));
    hlo_value right = ADD(SUB(choose_mode, choose_k), MUL(SUB(kk, mode), LOG(odds)));
    hlo_value taken = AND(possible, OR(AND(GEK(us, 0.07), LE(v, vr)), LE(left, right)));
    *accepted = IF(few, stop, taken);
    values[0] = IF(few, IF(stop, count, ADDK(count, 1)), k);
    values[1] = next_waited;
}

static void lower_binomial(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value n = parameter(l, 0), p = parameter(l, 1);
    if (!n || !p) return;
    dtype t = p->dtype;
    n = hlo_broadcast_to(b, hlo_convert(b, n, t), result_rank(l, 0), result_dims(l, 0));
    p = hlo_broadcast_to(b, p, result_rank(l, 0), result_dims(l, 0));
    hlo_value flipped = GTK(p, 0.5), parameters[2] = {n, IF(flipped, SUBFROM(1, p), p)};
    hlo_value trivial = NOT(AND(hlo_is_finite(b, n), AND(GTK(parameters[1], 0), GTK(n, 0))));
    if (!n) return;
    hlo_value start[2] = {K(n, 0), K(n, 0)};
    hlo_value count = sample(l, binomial_trial, parameters, trivial, 2, start);
    count = IF(flipped, SUB(n, count), count);
    result_set(l, 0, IF(hlo_is_nan(b, p), p, count));
}

const op_row ops_rejection[] = {{"aten::_standard_gamma", PROMOTE_NONE, OP_RANDOM, .lower = lower_standard_gamma},
                                {"aten::_sample_dirichlet", PROMOTE_NONE, OP_RANDOM, .lower = lower_dirichlet},
                                {"aten::poisson", PROMOTE_NONE, OP_RANDOM, .lower = lower_poisson},
                                {"aten::binomial", PROMOTE_NONE, OP_RANDOM, .lower = lower_binomial},
                                {NULL}};
