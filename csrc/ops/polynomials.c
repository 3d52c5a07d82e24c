/* Orthogonal polynomials: three-term recurrences, with a trigonometric form where PyTorch uses one. */
#include "ops/formula.h"

typedef enum { CHEBYSHEV, HERMITE_H, HERMITE_HE, LAGUERRE, LEGENDRE } recurrence;
/* Chebyshev kinds differ in their second member and in their trigonometric form. */
typedef enum { KIND_NONE, KIND_T, KIND_U, KIND_V, KIND_W } chebyshev_kind;

typedef struct {
    recurrence rule;
    chebyshev_kind kind;
    bool shifted;            /* of 2x - 1 instead of x */
    double slope, intercept; /* P1 = slope x + intercept */
    int trigonometric_from;  /* degrees above this use the trigonometric form inside (-1, 1) */
} family;

/* P_m+1 from q = P_m and p = P_m-1. */
static hlo_value next_member(hlo_builder *b, const family *f, hlo_value x, hlo_value m, hlo_value q, hlo_value p) {
    switch (f->rule) {
        case CHEBYSHEV:
            return SUB(MUL(MULK(x, 2), q), p);
        case HERMITE_H:
            return SUB(MUL(MULK(x, 2), q), MUL(MULK(m, 2), p));
        case HERMITE_HE:
            return SUB(MUL(x, q), MUL(m, p));
        case LAGUERRE:
            return DIV(SUB(MUL(ADD(MULK(m, 2), SUBFROM(1, x)), q), MUL(m, p)), ADDK(m, 1));
        case LEGENDRE:
            return DIV(SUB(MUL(MUL(ADDK(MULK(m, 2), 1), x), q), MUL(m, p)), ADDK(m, 1));
    }
    return NULL;
}

/* Values of the loop: m (a scalar), q, p. Elements stop at their own degree, or at NaN. */
static hlo_value by_recurrence(hlo_builder *b, const family *f, hlo_value x, hlo_value n) {
    hlo_value first = ADDK(MULK(x, f->slope), f->intercept), init[3] = {hlo_scalar(b, x->dtype, 1), first, K(x, 1)},
              a[3], next[3], result[3];
    hlo_type types[3];
    int64_t dims[HLO_MAX_RANK];
    if (!first || !n) return NULL;
    for (int i = 0; i < 3; i++) types[i] = (hlo_type){init[i]->dtype, init[i]->rank, init[i]->dims};
    for (int d = 0; d < first->rank; d++) dims[d] = d;
    hlo_region_begin(b, 3, types, a);
    hlo_value more = hlo_reduce(b, HLO_REDUCE_OR, AND(LT(a[0], n), NOT(hlo_is_nan(b, a[1]))), first->rank, dims);
    hlo_region *condition = hlo_region_end(b, 1, &more);
    hlo_region_begin(b, 3, types, a);
    hlo_value active = AND(LT(a[0], n), NOT(hlo_is_nan(b, a[1])));
    next[0] = ADDK(a[0], 1);
    next[1] = IF(active, next_member(b, f, x, a[0], a[1], a[2]), a[1]);
    next[2] = IF(active, a[1], a[2]);
    hlo_region *body = hlo_region_end(b, 3, next);
    hlo_while(b, 3, init, condition, body, result);
    return result[1];
}

static hlo_value by_angle(hlo_builder *b, chebyshev_kind kind, hlo_value x, hlo_value n) {
    hlo_value angle = hlo_acos(b, x), half = MULK(angle, 0.5);
    switch (kind) {
        case KIND_T:
            return hlo_cosine(b, MUL(n, angle));
        case KIND_U:
            return DIV(hlo_sine(b, MUL(ADDK(n, 1), angle)), hlo_sine(b, angle));
        case KIND_V:
            return DIV(hlo_cosine(b, MUL(ADDK(n, 0.5), angle)), hlo_cosine(b, half));
        default:
            return DIV(hlo_sine(b, MUL(ADDK(n, 0.5), angle)), hlo_sine(b, half));
    }
}

/* Values at 1 and, with the degree's sign, at -1. */
static hlo_value at_ends(hlo_builder *b, const family *f, hlo_value x, hlo_value n) {
    hlo_value odd = EQK(hlo_remainder(b, n, K(n, 2)), 1), positive = GTK(x, 0), one = K(n, 1), high = one, low = one;
    if (f->kind == KIND_U) high = low = ADDK(n, 1);
    if (f->kind == KIND_V) low = ADDK(MULK(n, 2), 1);
    if (f->kind == KIND_W) high = ADDK(MULK(n, 2), 1);
    return IF(positive, high, IF(odd, NEG(low), low));
}

static hlo_value orthogonal(hlo_builder *b, const family *f, hlo_value x, hlo_value n) {
    if (!math_require(b, x, KIND_FLOAT, "polynomial_cpu") || !n) return NULL;
    hlo_value zero = ADD(MULK(hlo_convert(b, NE(x, x), x->dtype), 0), MULK(hlo_convert(b, NE(n, n), n->dtype), 0));
    if (!zero) return NULL;
    x = hlo_broadcast_to(b, x, zero->rank, zero->dims);
    n = hlo_broadcast_to(b, n, zero->rank, zero->dims);
    n = IF(hlo_is_finite(b, n), math_truncate(b, n), K(n, -1));
    hlo_value degree = n;
    if (f->shifted) x = ADDK(MULK(x, 2), -1);
    hlo_value closed = NULL, value = NULL;
    bool has_ends = f->kind != KIND_NONE || f->rule == LEGENDRE,
         is_hermite = f->rule == HERMITE_H || f->rule == HERMITE_HE;
    if (has_ends) closed = EQK(ABS(x), 1);
    if (f->kind != KIND_NONE) {
        hlo_value inside = AND(GTK(n, f->trigonometric_from), LTK(ABS(x), 1));
        hlo_value trigonometric = by_angle(b, f->kind, x, n);
        degree = IF(OR(closed, inside), zero, n);
        value = IF(inside, trigonometric, by_recurrence(b, f, x, degree));
    } else if (is_hermite) {
        hlo_value too_high = GTK(n, x && x->dtype == DTYPE_F64 ? 512 : 128);
        value = IF(too_high, K(x, NAN), by_recurrence(b, f, x, IF(too_high, zero, n)));
    } else {
        value = by_recurrence(b, f, x, closed ? IF(closed, zero, n) : n);
    }
    if (closed) value = IF(closed, at_ends(b, f, x, n), value);
    value = IF(EQK(n, 0), K(value, 1), value);
    return IF(LTK(n, 0), zero, value);
}

#define FAMILIES(X)                                                      \
    X(chebyshev_polynomial_t, CHEBYSHEV, KIND_T, false, 1, 0, 6)         \
    X(chebyshev_polynomial_u, CHEBYSHEV, KIND_U, false, 2, 0, 8)         \
    X(chebyshev_polynomial_v, CHEBYSHEV, KIND_V, false, 2, -1, 8)        \
    X(chebyshev_polynomial_w, CHEBYSHEV, KIND_W, false, 2, 1, 8)         \
    X(shifted_chebyshev_polynomial_t, CHEBYSHEV, KIND_T, true, 1, 0, 6)  \
    X(shifted_chebyshev_polynomial_u, CHEBYSHEV, KIND_U, true, 2, 0, 6)  \
    X(shifted_chebyshev_polynomial_v, CHEBYSHEV, KIND_V, true, 2, -1, 6) \
    X(shifted_chebyshev_polynomial_w, CHEBYSHEV, KIND_W, true, 2, 1, 4)  \
    X(hermite_polynomial_h, HERMITE_H, KIND_NONE, false, 2, 0, 0)        \
    X(hermite_polynomial_he, HERMITE_HE, KIND_NONE, false, 1, 0, 0)      \
    X(laguerre_polynomial_l, LAGUERRE, KIND_NONE, false, -1, 1, 0)       \
    X(legendre_polynomial_p, LEGENDRE, KIND_NONE, false, 1, 0, 0)

#define X(name, ...)                                                  \
    static hlo_value name(hlo_builder *b, hlo_value x, hlo_value n) { \
        static const family f = {__VA_ARGS__};                        \
        return orthogonal(b, &f, x, n);                               \
    }
FAMILIES(X)
#undef X

const op_row ops_polynomials[] = {
#define X(name, ...)                                                     \
    ROW_BINARY("special_" #name, PROMOTE_REAL, 0, name),                 \
        ROW_BINARY("special_" #name ".x_scalar", PROMOTE_REAL, 0, name), \
        ROW_BINARY("special_" #name ".n_scalar", PROMOTE_REAL, 0, name),
    FAMILIES(X)
#undef X
        {NULL}};
