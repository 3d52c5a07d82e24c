/* Gamma, zeta, error and Airy functions that StableHLO and CHLO lack, or define differently at their edges. */
#include "ops/formula.h"
#include "ops/special_coefficients.h"

#define POLYNOMIAL(x, table) math_polynomial(b, x, COUNT(table), table)
#define RATIO(x, table) DIV(POLYNOMIAL(x, table##_numerator), POLYNOMIAL(x, table##_denominator))

static bool real(hlo_builder *b, hlo_value x, const char *kernel) { return math_require(b, x, KIND_FLOAT, kernel); }

/* ---- loops over all elements: n values of one shape, until `active` (the first, bool) is false everywhere ---- */

enum { MAX_CARRIED = 8 };
typedef void (*iteration)(hlo_builder *b, const hlo_value *constants, const hlo_value *values, hlo_value *next);

static void iterate(hlo_builder *b, int n, const hlo_value *init, const hlo_value *constants, iteration step,
                    hlo_value *result) {
    hlo_type types[MAX_CARRIED];
    hlo_value a[MAX_CARRIED], next[MAX_CARRIED];
    int64_t dims[HLO_MAX_RANK];
    for (int i = 0; i < n; i++) result[i] = NULL;
    for (int i = 0; i < n; i++) {
        if (!init[i]) return;
        types[i] = (hlo_type){init[i]->dtype, init[i]->rank, init[i]->dims};
    }
    for (int d = 0; d < init[0]->rank; d++) dims[d] = d;
    hlo_region_begin(b, n, types, a);
    hlo_value more = a[0] ? hlo_reduce(b, HLO_REDUCE_OR, a[0], a[0]->rank, dims) : NULL;
    hlo_region *condition = hlo_region_end(b, 1, &more);
    hlo_region_begin(b, n, types, a);
    step(b, constants, a, next);
    for (int i = 1; i < n; i++) next[i] = IF(a[0], next[i], a[i]);
    next[0] = AND(a[0], next[0]);
    hlo_region *body = hlo_region_end(b, n, next);
    hlo_while(b, n, init, condition, body, result);
}

/* Two operands in one shape. */
static bool same_shape(hlo_builder *b, hlo_value *x, hlo_value *y) {
    if (!*x || !*y) return false;
    hlo_value zero =
        MUL(hlo_convert(b, hlo_ne(b, *x, *x), (*x)->dtype), hlo_convert(b, hlo_ne(b, *y, *y), (*y)->dtype));
    if (!zero) return false;
    *x = hlo_broadcast_to(b, *x, zero->rank, zero->dims);
    *y = hlo_broadcast_to(b, *y, zero->rank, zero->dims);
    return *x && *y;
}

static double machine_epsilon(hlo_value x) { return x->dtype == DTYPE_F64 ? 0x1p-53 : 0x1p-24; }

/* ---- Hurwitz zeta, polygamma ---- */

/* values: active, count, a, sum, last term. At least nine terms, and until a passes 9. */
static void zeta_step(hlo_builder *b, const hlo_value *constants, const hlo_value *v, hlo_value *next) {
    hlo_value count = ADDK(v[1], 1), a = ADDK(v[2], 1), term = hlo_power(b, a, NEG(constants[0]));
    hlo_value sum = ADD(v[3], term), wants = OR(LTK(count, 9), LEK(a, 9));
    next[0] = AND(wants, GEK(a, -1e6)); /* a pole's neighbourhood far below 0 would take as many steps */
    next[1] = count;
    next[2] = a;
    next[3] = sum;
    next[4] = term;
}

/* Euler-Maclaurin: the terms of the sum up to a, then the integral and Bernoulli corrections (Cephes zeta.c). */
static hlo_value zeta(hlo_builder *b, hlo_value x, hlo_value q) {
    static const double divisors[] = {12,
                                      -720,
                                      30240,
                                      -1209600,
                                      47900160,
                                      -1.8924375803183791606e9,
                                      7.47242496e10,
                                      -2.950130727918164224e12,
                                      1.1646782814350067249e14,
                                      -4.5979787224074726105e15,
                                      1.8152105401943546773e17,
                                      -7.1661652561756670113e18};
    if (!real(b, x, "zeta_cpu") || !same_shape(b, &x, &q)) return NULL;
    hlo_value one = K(x, 1), zero = K(x, 0), first = hlo_power(b, q, NEG(x));
    hlo_value active = AND(hlo_is_finite(b, q), GTK(x, 1));
    hlo_value init[5] = {active, zero, q, first, zero}, v[5];
    iterate(b, 5, init, &x, zeta_step, v);
    hlo_value w = v[2], term = v[4], sum = v[3];
    sum = ADD(sum, SUB(DIV(MUL(term, w), SUB(x, one)), MULK(term, 0.5)));
    hlo_value rising = one, power = term;
    for (int k = 0, i = 0; i < COUNT(divisors); i++, k += 2) {
        rising = MUL(rising, ADDK(x, k));
        power = DIV(power, w);
        hlo_value correction = MULK(MUL(rising, power), 1 / divisors[i]);
        sum = ADD(sum, IF(hlo_is_finite(b, correction), correction, zero));
        rising = MUL(rising, ADDK(x, k + 1));
        power = DIV(power, w);
    }
    hlo_value whole_q = EQ(q, hlo_floor(b, q)), whole_x = EQ(x, hlo_floor(b, x));
    sum = IF(EQK(q, INFINITY), zero, sum);
    sum = IF(LEK(q, 0), IF(whole_q, K(x, INFINITY), IF(whole_x, sum, K(x, NAN))), sum);
    sum = IF(LTK(x, 1), K(x, NAN), IF(EQK(x, 1), K(x, INFINITY), sum));
    return IF(OR(hlo_is_nan(b, x), hlo_is_nan(b, q)), K(x, NAN), sum);
}

/* Reflection below 1/2, then six terms of the sum and the asymptotic series. */
static hlo_value trigamma(hlo_builder *b, hlo_value x) {
    hlo_value reflects = LTK(x, 0.5), sine = hlo_sine(b, MULK(x, M_PI));
    hlo_value mirror = DIVINTO(M_PI * M_PI, MUL(sine, sine)), y = IF(reflects, SUBFROM(1, x), x), sum = K(x, 0);
    for (int i = 0; i < 6; i++) {
        sum = ADD(sum, DIVINTO(1, MUL(y, y)));
        y = ADDK(y, 1);
    }
    hlo_value z = DIVINTO(1, MUL(y, y));
    hlo_value series = MUL(z, SUBFROM(1.0 / 6, MUL(z, SUBFROM(1.0 / 30, MULK(z, 1.0 / 42)))));
    sum = ADD(sum, DIV(ADD(ADDK(DIVINTO(0.5, y), 1), series), y));
    return IF(reflects, SUB(mirror, sum), sum);
}

static void lower_polygamma(lowering *l) {
    hlo_builder *b = lower_builder(l);
    int64_t n = arg_int(l, 0);
    hlo_value x = arg_tensor(l, 1);
    if (n < 0) hlo_fail(b, STATUS_RUNTIME, "polygamma(n, x) does not support negative n.");
    if (!real(b, x, "polygamma")) return;
    if (n == 0)
        result_set(l, 0, math_digamma(b, x));
    else if (n == 1)
        result_set(l, 0, trigamma(b, x));
    else
        result_set(l, 0, MULK(zeta(b, K(x, (double)n + 1), x), (n % 2 ? 1 : -1) * tgamma((double)n + 1)));
}

/* log of the multivariate gamma function: sum of lgamma(x - i / 2), i < p, and p (p - 1) / 4 log pi. */
static void lower_mvlgamma(lowering *l) {
    hlo_builder *b = lower_builder(l);
    int64_t p = arg_int(l, 1);
    hlo_value x = arg_tensor(l, 0);
    if (p < 1) hlo_fail(b, STATUS_RUNTIME, "p has to be greater than or equal to 1");
    if (!real(b, x, "mvlgamma")) return;
    hlo_value sum = K(x, (double)(p * (p - 1)) / 4 * log(M_PI));
    for (int64_t i = 0; i < p; i++) sum = ADD(sum, hlo_lgamma(b, ADDK(x, -0.5 * (double)i)));
    result_set(l, 0, sum);
}

/* ---- regularised incomplete gamma functions: the power series of P where x < a + 1, the continued fraction of Q
 * elsewhere (DLMF 8.11.4 and 8.9.2) ---- */

/* values: active, count, denominator, term, sum */
static void series_step(hlo_builder *b, const hlo_value *constants, const hlo_value *v, hlo_value *next) {
    hlo_value x = constants[0], r = ADDK(v[2], 1), term = MUL(v[3], DIV(x, r)), sum = ADD(v[4], term),
              count = ADDK(v[1], 1);
    next[0] = AND(GT(term, MULK(sum, machine_epsilon(x))), LTK(count, 2000));
    next[1] = count;
    next[2] = r;
    next[3] = term;
    next[4] = sum;
}

/* Lentz's method; values: active, count, c, d, fraction */
static void fraction_step(hlo_builder *b, const hlo_value *constants, const hlo_value *v, hlo_value *next) {
    hlo_value x = constants[0], a = constants[1], count = ADDK(v[1], 1);
    hlo_value an = MUL(count, SUB(a, count)), bn = ADD(SUB(ADDK(x, 1), a), MULK(count, 2));
    hlo_value d = ADD(MUL(an, v[3]), bn), c = ADD(bn, DIV(an, v[2])),
              tiny = K(x, x->dtype == DTYPE_F64 ? 1e-300 : 1e-30);
    d = DIVINTO(1, IF(LT(ABS(d), tiny), tiny, d));
    c = IF(LT(ABS(c), tiny), tiny, c);
    hlo_value factor = MUL(c, d);
    next[0] = AND(GT(ABS(ADDK(factor, -1)), K(x, machine_epsilon(x))), LTK(count, 2000));
    next[1] = count;
    next[2] = c;
    next[3] = d;
    next[4] = MUL(v[4], factor);
}

/* P and Q of (a, x); which: whether P is wanted. */
static hlo_value incomplete_gamma(hlo_builder *b, hlo_value a, hlo_value x, bool lower) {
    if (!real(b, a, lower ? "igamma" : "igammac") || !same_shape(b, &a, &x)) return NULL;
    hlo_value zero = K(x, 0), one = K(x, 1);
    hlo_value regular = AND(AND(GTK(a, 0), GTK(x, 0)), AND(hlo_is_finite(b, a), hlo_is_finite(b, x)));
    hlo_value safe_a = IF(regular, a, one), safe_x = IF(regular, x, one), by_series = LT(safe_x, ADDK(safe_a, 1));
    hlo_value front = EXP(SUB(SUB(MUL(safe_a, LOG(safe_x)), safe_x), hlo_lgamma(b, safe_a)));
    hlo_value constants[2] = {safe_x, safe_a}, series[5], fraction[5];
    hlo_value series_init[5] = {AND(regular, by_series), zero, safe_a, one, one};
    iterate(b, 5, series_init, constants, series_step, series);
    hlo_value b0 = SUB(ADDK(safe_x, 1), safe_a), d0 = DIVINTO(1, b0);
    hlo_value fraction_init[5] = {AND(regular, NOT(by_series)), zero, K(x, x->dtype == DTYPE_F64 ? 1e300 : 1e30), d0,
                                  d0};
    iterate(b, 5, fraction_init, constants, fraction_step, fraction);
    hlo_value p = MUL(front, DIV(series[4], safe_a)), q = MUL(front, fraction[4]);
    hlo_value inside = lower ? IF(by_series, p, SUB(one, q)) : IF(by_series, SUB(one, p), q);
    /* The edges: x = 0 or a = inf give P = 0, a = 0 or x = inf give P = 1; both at once, or a negative one, NaN. */
    hlo_value none = OR(EQK(x, 0), EQK(a, INFINITY)), all = OR(EQK(a, 0), EQK(x, INFINITY));
    hlo_value edge = IF(none, K(x, lower ? 0 : 1), IF(all, K(x, lower ? 1 : 0), K(x, NAN)));
    edge = IF(OR(AND(none, all), OR(LTK(a, 0), LTK(x, 0))), K(x, NAN), edge);
    edge = IF(OR(hlo_is_nan(b, a), hlo_is_nan(b, x)), K(x, NAN), edge);
    return IF(regular, inside, edge);
}
static hlo_value igamma(hlo_builder *b, hlo_value a, hlo_value x) { return incomplete_gamma(b, a, x, true); }
static hlo_value igammac(hlo_builder *b, hlo_value a, hlo_value x) { return incomplete_gamma(b, a, x, false); }

/* ---- error functions and the normal distribution ---- */

/* exp(x^2) erfc(x); from 6 on by Laplace's continued fraction x + (1/2)/(x + 1/(x + (3/2)/(x + ...))). */
static hlo_value erfcx_value(hlo_builder *b, hlo_value x) {
    hlo_value direct = MUL(EXP(MUL(x, x)), hlo_erfc(b, x)), tail = x;
    for (int k = 12; k >= 1; k--) tail = ADD(x, DIVINTO(0.5 * k, tail));
    return IF(GEK(x, 6), DIVINTO(M_2_SQRTPI * 0.5, tail), direct);
}
static hlo_value erfcx(hlo_builder *b, hlo_value x) { return real(b, x, "special_erfcx") ? erfcx_value(b, x) : NULL; }

static hlo_value log_ndtr(hlo_builder *b, hlo_value x) {
    if (!real(b, x, "log_ndtr_cpu")) return NULL;
    hlo_value t = MULK(x, M_SQRT1_2);
    hlo_value far = SUB(LOG(MULK(erfcx_value(b, NEG(t)), 0.5)), MUL(t, t));
    return IF(LTK(x, -1), far, LOG1P(MULK(hlo_erfc(b, t), -0.5)));
}

/* Inverse of the normal distribution function: a rational function in the middle, others of sqrt(-2 log y) in the
 * tails. */
static hlo_value ndtri(hlo_builder *b, hlo_value p) {
    const double edge = 0.13533528323661269189; /* exp(-2) */
    if (!real(b, p, "ndtri_cpu")) return NULL;
    hlo_value upper = GTK(p, 1 - edge), y = IF(upper, SUBFROM(1, p), p);
    hlo_value centred = ADDK(y, -0.5), square = MUL(centred, centred);
    hlo_value middle =
        MULK(ADD(centred, MUL(centred, MUL(square, RATIO(square, ndtri_centre)))), 2.50662827463100050242);
    hlo_value x = SQRT(MULK(LOG(y), -2)), z = DIVINTO(1, x);
    hlo_value correction = MUL(z, IF(LTK(x, 8), RATIO(z, ndtri_tail), RATIO(z, ndtri_far)));
    hlo_value tail = SUB(SUB(x, DIV(LOG(x), x)), correction);
    hlo_value result = IF(GTK(y, edge), middle, IF(upper, tail, NEG(tail)));
    result = IF(EQK(p, 0), K(p, -INFINITY), IF(EQK(p, 1), K(p, INFINITY), result));
    return IF(OR(LTK(p, 0), GTK(p, 1)), K(p, NAN), result);
}

static hlo_value entr(hlo_builder *b, hlo_value x) {
    if (!real(b, x, "entr_cpu")) return NULL;
    hlo_value e = IF(GTK(x, 0), NEG(MUL(x, LOG(x))), IF(EQK(x, 0), K(x, 0), K(x, -INFINITY)));
    return IF(hlo_is_nan(b, x), x, e);
}

/* ---- Airy function Ai: power series in the middle, wave and exponential outside ---- */

static hlo_value airy_series(hlo_builder *b, hlo_value x) {
    hlo_value z = MUL(MUL(x, x), x), m = K(x, 1), n = x, f = m, g = x;
    for (int k = 1; k < 3 * 16; k += 3) {
        m = MULK(MUL(m, z), 1.0 / ((k + 1.0) * (k + 2)));
        n = MULK(MUL(n, z), 1.0 / ((k + 2.0) * (k + 3)));
        f = ADD(f, m);
        g = ADD(g, n);
    }
    return SUB(MULK(f, 0.355028053887817239260), MULK(g, 0.258819403792806798405));
}

static hlo_value airy_ai(hlo_builder *b, hlo_value x) {
    const double sqrt_inverse_pi = M_2_SQRTPI * 0.5;
    if (!real(b, x, "airy_ai_cpu")) return NULL;
    hlo_value size = ABS(x), root = SQRT(size), quartic = SQRT(root), t = MULK(MUL(size, root), 2.0 / 3),
              z = DIVINTO(1, t);
    hlo_value square = MUL(z, z), phase = ADDK(t, M_PI_4);
    hlo_value sine_part = ADDK(MUL(square, RATIO(square, airy_cosine)), 1),
              cosine_part = MUL(z, RATIO(square, airy_sine));
    hlo_value wave = SUB(MUL(hlo_sine(b, phase), sine_part), MUL(hlo_cosine(b, phase), cosine_part));
    hlo_value negative = MULK(DIV(wave, quartic), sqrt_inverse_pi);
    hlo_value positive = DIV(MULK(RATIO(z, airy_positive), sqrt_inverse_pi / 2), MUL(quartic, EXP(t)));
    hlo_value middle = airy_series(b, x);
    hlo_value ai = IF(LTK(x, -2.09), negative, IF(GEK(x, 2.09), IF(GTK(x, 103.892), K(x, 0), positive), middle));
    return IF(EQK(size, INFINITY), K(x, NAN), ai);
}

#define SPECIAL_UNARY(name, function) ROW_UNARY("special_" name, PROMOTE_REAL, 0, function)

const op_row ops_special[] = {SPECIAL_UNARY("erfcx", erfcx),
                              SPECIAL_UNARY("log_ndtr", log_ndtr),
                              SPECIAL_UNARY("ndtri", ndtri),
                              SPECIAL_UNARY("entr", entr),
                              SPECIAL_UNARY("airy_ai", airy_ai),
                              PRIM_UNARY("erfcx", PROMOTE_REAL, 0, erfcx),
                              PRIM_UNARY("ndtri", PROMOTE_REAL, 0, ndtri),
                              ROW_LOWER("polygamma", PROMOTE_REAL, 0, lower_polygamma),
                              ROW_LOWER("mvlgamma", PROMOTE_REAL, 0, lower_mvlgamma),
                              ROW_BINARY("igamma", PROMOTE, 0, igamma),
                              ROW_BINARY("igammac", PROMOTE, 0, igammac),
                              PRIM_BINARY("igamma", PROMOTE, 0, igamma),
                              PRIM_BINARY("igammac", PROMOTE, 0, igammac),
                              ROW_BINARY("special_zeta", PROMOTE_REAL, 0, zeta),
                              ROW_BINARY("special_zeta.self_scalar", PROMOTE_REAL, 0, zeta),
                              ROW_BINARY("special_zeta.other_scalar", PROMOTE_REAL, 0, zeta),
                              PRIM_BINARY("zeta", PROMOTE_REAL, 0, zeta),
                              {NULL}};
