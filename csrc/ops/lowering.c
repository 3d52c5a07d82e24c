/* Runs one row on one call: promotes operands, calls the lowering, checks the results; and the accessors for arguments.
 */
#include "ops/lowering.h"

#include <math.h>
#include <string.h>

#include "ops/fault.h"

/* ---- promotion: at::native::ResultTypeState, TensorIterator's rule (aten/src/ATen/native/TypeProperties.cpp) ---- */

typedef struct {
    dtype dim, zero, wrapped;
} promotion_state;

static dtype promote_known(dtype a, dtype b) {
    if (a == DTYPE_INVALID) return b;
    if (b == DTYPE_INVALID) return a;
    return dtype_promote(a, b);
}

static dtype combine_categories(dtype higher, dtype lower) {
    if (dtype_is_complex(higher)) return higher;
    if (dtype_is_float(higher)) {
        if (dtype_is_complex(lower)) return dtype_complex(higher);
        return higher;
    }
    if (higher == DTYPE_BOOL || dtype_is_float(lower) || dtype_is_complex(lower)) return promote_known(higher, lower);
    return higher != DTYPE_INVALID ? higher : lower;
}

/* The default float type is not passed down: a float64 result of operands that have no float64 tells that it is
 * float64. */
static dtype default_float(const lowering *l) {
    return l->n_results > 0 && dtype_real(l->result_types[0].dtype) == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

static void promotion_add(const lowering *l, promotion_state *s, dtype t, int rank, bool wrapped) {
    if (wrapped) {
        if (dtype_is_complex(t))
            t = dtype_complex(default_float(l));
        else if (dtype_is_float(t))
            t = default_float(l);
        s->wrapped = promote_known(s->wrapped, t);
    } else if (rank > 0) {
        s->dim = promote_known(s->dim, t);
    } else {
        s->zero = promote_known(s->zero, t);
    }
}

static bool number_takes_part(const lowering *l, int i, const number *n) {
    return !n->wrapped || i <= 1 || (l->row->flags & OP_PROMOTE_NUMBERS);
}

static void promotion_add_argument(const lowering *l, promotion_state *s, int i) {
    const argument *a = &l->args[i];
    if (a->tag == ARG_VALUE && l->values[i][0]) {
        promotion_add(l, s, l->values[i][0]->dtype, l->values[i][0]->rank, false);
    } else if (a->tag == ARG_NUMBER && number_takes_part(l, i, &a->u.number)) {
        promotion_add(l, s, a->u.number.dtype, 0, a->u.number.wrapped);
    } else if (a->tag == ARG_VALUES) {
        for (int j = 0; j < a->count; j++) {
            const argument *e = &a->u.list[j];
            if (l->values[i][j])
                promotion_add(l, s, l->values[i][j]->dtype, l->values[i][j]->rank, false);
            else if (e->tag == ARG_NUMBER)
                promotion_add(l, s, e->u.number.dtype, 0, e->u.number.wrapped);
        }
    }
}

static dtype common_dtype(const lowering *l) {
    op_promotion rule = l->row->promote;
    if (rule == PROMOTE_NONE) return DTYPE_INVALID;
    if (rule == PROMOTE_RESULT) return l->n_results > 0 ? l->result_types[0].dtype : DTYPE_INVALID;
    promotion_state s = {DTYPE_INVALID, DTYPE_INVALID, DTYPE_INVALID};
    for (int i = rule == PROMOTE_TAIL ? 1 : 0; i < l->n_args; i++) promotion_add_argument(l, &s, i);
    dtype t = combine_categories(s.dim, combine_categories(s.zero, s.wrapped));
    if (rule == PROMOTE_REAL && (t == DTYPE_BOOL || dtype_is_int(t))) t = default_float(l);
    return t;
}

static hlo_value promote_value(const lowering *l, int i, hlo_value v) {
    if (!v) return NULL;
    bool promotes = l->row->promote != PROMOTE_NONE && !(l->row->promote == PROMOTE_TAIL && i == 0);
    if (promotes && l->compute != DTYPE_INVALID) return hlo_convert(l->builder, v, l->compute);
    if (l->row->flags & OP_OPMATH) return hlo_convert(l->builder, v, dtype_opmath(v->dtype));
    return v;
}

static bool promote_operands(lowering *l) {
    arena *a = hlo_arena(l->builder);
    l->promoted = ARENA_NEW(a, hlo_value *, l->n_args + 1);
    if (!l->promoted) return false;
    for (int i = 0; i < l->n_args; i++) {
        int n = l->args[i].tag == ARG_VALUE ? 1 : l->args[i].tag == ARG_VALUES ? l->args[i].count : 0;
        if (!n) continue;
        l->promoted[i] = ARENA_NEW(a, hlo_value, n);
        if (!l->promoted[i]) return false;
        for (int j = 0; j < n; j++) {
            hlo_value v = l->values[i][j];
            if (!v && l->args[i].tag == ARG_VALUES && l->args[i].u.list[j].tag == ARG_NUMBER) {
                const number *num = &l->args[i].u.list[j].u.number;
                v = hlo_constant_float(l->builder, num->dtype, 0, NULL,
                                       dtype_is_float(num->dtype) || dtype_is_complex(num->dtype) ? num->v.f[0] : 0);
                if (!dtype_is_float(num->dtype) && !dtype_is_complex(num->dtype))
                    v = hlo_constant_int(l->builder, num->dtype, 0, NULL, num->v.i);
            }
            l->promoted[i][j] = promote_value(l, i, v);
        }
    }
    return true;
}

static void check_results(lowering *l) {
    for (int k = 0; k < l->n_results; k++) {
        if (l->result_types[k].dtype == DTYPE_INVALID || l->results[k] || hlo_status(l->builder)) continue;
        hlo_fail(l->builder, STATUS_INTERNAL, "the lowering set no result %d", k);
    }
}

void lowering_run(lowering *l) {
    hlo_set_context(l->builder, l->row->name);
    l->common = common_dtype(l);
    l->compute = (l->row->flags & OP_OPMATH) && l->common != DTYPE_INVALID ? dtype_opmath(l->common) : l->common;
    if (!promote_operands(l)) {
        hlo_fail(l->builder, STATUS_OUT_OF_MEMORY, "out of host memory");
        return;
    }
    if (l->row->unary)
        result_set(l, 0, l->row->unary(l->builder, arg_tensor(l, 0)));
    else if (l->row->binary)
        result_set(l, 0, l->row->binary(l->builder, arg_tensor(l, 0), arg_tensor(l, 1)));
    else if (l->row->lower)
        l->row->lower(l);
    else
        hlo_fail(l->builder, STATUS_INTERNAL, "the row has no lowering");
    check_results(l);
    hlo_set_context(l->builder, NULL);
}

/* ---- the call ---- */

hlo_builder *lower_builder(lowering *l) { return l->builder; }
const char *lower_name(const lowering *l) { return l->row->name; }
int arg_count(const lowering *l) { return l->n_args; }
dtype lower_common_dtype(const lowering *l) { return l->common; }

bool arg_given(const lowering *l, int i) { return i >= 0 && i < l->n_args && l->args[i].tag != ARG_NONE; }

static const argument *arg_at(lowering *l, int i, arg_tag tag, const char *what) {
    if (i < 0 || i >= l->n_args || l->args[i].tag == ARG_NONE) {
        hlo_fail(l->builder, STATUS_INTERNAL, "argument %d (%s) is missing", i, what);
        return NULL;
    }
    if (l->args[i].tag != tag) {
        hlo_fail(l->builder, STATUS_INTERNAL, "argument %d is no %s (tag %d)", i, what, (int)l->args[i].tag);
        return NULL;
    }
    return &l->args[i];
}

static hlo_value number_constant(hlo_builder *b, const number *n, dtype t) {
    if (dtype_is_complex(n->dtype)) {
        if (dtype_is_complex(t)) return hlo_constant_complex(b, t, 0, NULL, n->v.f[0], n->v.f[1]);
        return hlo_constant_float(b, t, 0, NULL, n->v.f[0]);
    }
    if (dtype_is_float(n->dtype)) {
        if (t == DTYPE_BOOL) return hlo_constant_int(b, t, 0, NULL, n->v.f[0] != 0);
        if (dtype_is_int(t)) return hlo_constant_int(b, t, 0, NULL, (int64_t)n->v.f[0]);
        return hlo_constant_float(b, t, 0, NULL, n->v.f[0]);
    }
    if (t == DTYPE_BOOL) return hlo_constant_int(b, t, 0, NULL, n->v.i != 0);
    if (dtype_is_int(t)) return hlo_constant_int(b, t, 0, NULL, n->v.i);
    return hlo_constant_float(b, t, 0, NULL, (double)n->v.i);
}

static hlo_value number_value(lowering *l, int i, int element, const number *n, dtype t) {
    if (!(l->row->flags & OP_CONSTANT_NUMBERS) && l->host) {
        l->host->number_used(l->host->context, i, false);
        hlo_value v = l->host->runtime_number(l->host->context, i, element, n, t);
        if (v) return v;
    } else if (l->host) {
        l->host->number_used(l->host->context, i, true);
    }
    return number_constant(l->builder, n, t);
}

hlo_value arg_tensor(lowering *l, int i) {
    if (i < 0 || i >= l->n_args) return NULL;
    const argument *a = &l->args[i];
    if (a->tag == ARG_VALUE) return l->promoted[i][0];
    if (a->tag == ARG_NUMBER) {
        dtype t = a->u.number.dtype;
        bool promotes = l->row->promote != PROMOTE_NONE && !(l->row->promote == PROMOTE_TAIL && i == 0);
        if (promotes && l->compute != DTYPE_INVALID)
            t = l->compute;
        else if (l->row->flags & OP_OPMATH)
            t = dtype_opmath(t);
        return number_value(l, i, 0, &a->u.number, t);
    }
    if (a->tag == ARG_NONE) return NULL;
    return hlo_fail(l->builder, STATUS_INTERNAL, "argument %d is no tensor (tag %d)", i, (int)a->tag);
}

dtype arg_tensor_dtype(const lowering *l, int i) {
    if (i < 0 || i >= l->n_args) return DTYPE_INVALID;
    const argument *a = &l->args[i];
    if (a->tag == ARG_NUMBER) return a->u.number.dtype;
    return a->tag == ARG_VALUE && l->values[i][0] ? l->values[i][0]->dtype : DTYPE_INVALID;
}

int arg_tensor_rank(const lowering *l, int i) {
    return arg_is_tensor(l, i) && l->values[i][0] ? l->values[i][0]->rank : 0;
}

bool arg_is_contiguous(const lowering *l, int i) {
    return !l->host || !l->host->is_contiguous || l->host->is_contiguous(l->host->context, i);
}

bool arg_is_tensor(const lowering *l, int i) { return i >= 0 && i < l->n_args && l->args[i].tag == ARG_VALUE; }

int arg_tensors(lowering *l, int i, const hlo_value **values) {
    *values = NULL;
    if (!arg_given(l, i)) return 0;
    const argument *a = arg_at(l, i, ARG_VALUES, "tensor list");
    if (!a) return 0;
    *values = l->promoted[i];
    return a->count;
}

int64_t arg_int(lowering *l, int i) {
    if (arg_given(l, i)) {
        if (l->args[i].tag == ARG_DTYPE) return (int64_t)l->args[i].u.dtype;
        if (l->args[i].tag == ARG_NUMBER) return (int64_t)arg_float(l, i);
    }
    const argument *a = arg_at(l, i, ARG_INT, "int");
    return a ? a->u.i : 0;
}

int64_t arg_int_or(lowering *l, int i, int64_t absent) { return arg_given(l, i) ? arg_int(l, i) : absent; }

bool arg_constant(lowering *l, int i, double *value) {
    *value = 0;
    if (!arg_given(l, i)) return false;
    const argument *a = &l->args[i];
    if (a->tag == ARG_INT) {
        *value = (double)a->u.i;
        return true;
    }
    if (a->tag != ARG_NUMBER || dtype_is_complex(a->u.number.dtype)) return false;
    if (l->host) l->host->number_used(l->host->context, i, true);
    *value = dtype_is_float(a->u.number.dtype) ? a->u.number.v.f[0] : (double)a->u.number.v.i;
    return true;
}

bool arg_fixed(lowering *l, int i, double *value) {
    *value = 0;
    if (!l->host || !l->host->is_fixed || !arg_given(l, i) || l->args[i].tag != ARG_NUMBER)
        return arg_constant(l, i, value);
    const number *n = &l->args[i].u.number;
    if (dtype_is_complex(n->dtype) || !l->host->is_fixed(l->host->context, i)) return false;
    *value = dtype_is_float(n->dtype) ? n->v.f[0] : (double)n->v.i;
    return true;
}

double arg_float(lowering *l, int i) {
    double v = 0;
    if (!arg_constant(l, i, &v)) hlo_fail(l->builder, STATUS_INTERNAL, "argument %d is no real number", i);
    return v;
}

double arg_float_or(lowering *l, int i, double absent) { return arg_given(l, i) ? arg_float(l, i) : absent; }

bool arg_bool(lowering *l, int i) { return arg_given(l, i) && arg_int(l, i) != 0; }

dtype arg_dtype(lowering *l, int i) {
    if (!arg_given(l, i)) return DTYPE_INVALID;
    const argument *a = arg_at(l, i, ARG_DTYPE, "dtype");
    return a ? a->u.dtype : DTYPE_INVALID;
}

const char *arg_string(lowering *l, int i) {
    if (!arg_given(l, i)) return NULL;
    const argument *a = arg_at(l, i, ARG_STRING, "string");
    return a ? a->u.string : NULL;
}

int arg_ints(lowering *l, int i, const int64_t **values) {
    *values = NULL;
    if (!arg_given(l, i)) return 0;
    if (l->args[i].tag == ARG_INT) {
        *values = &l->args[i].u.i;
        return 1;
    }
    const argument *a = arg_at(l, i, ARG_INTS, "int list");
    if (!a) return 0;
    *values = a->u.ints;
    return a->count;
}

int arg_floats(lowering *l, int i, const double **values) {
    *values = NULL;
    if (!arg_given(l, i)) return 0;
    const argument *a = arg_at(l, i, ARG_NUMBERS, "number list");
    if (!a) return 0;
    if (l->host) l->host->number_used(l->host->context, i, true);
    double *v = ARENA_NEW(hlo_arena(l->builder), double, a->count + 1);
    if (!v) return 0;
    for (int j = 0; j < a->count; j++) {
        const number *n = &a->u.numbers[j];
        v[j] = dtype_is_float(n->dtype) || dtype_is_complex(n->dtype) ? n->v.f[0] : (double)n->v.i;
    }
    *values = v;
    return a->count;
}

hlo_value arg_number(lowering *l, int i, dtype t) {
    if (arg_given(l, i) && l->args[i].tag == ARG_VALUE) {
        hlo_value v = hlo_convert(l->builder, l->values[i][0], t);
        return v && v->rank > 0 && hlo_element_count(v) == 1 ? hlo_reshape(l->builder, v, 0, NULL) : v;
    }
    if (arg_given(l, i) && l->args[i].tag == ARG_INT) return hlo_constant_int(l->builder, t, 0, NULL, l->args[i].u.i);
    const argument *a = arg_at(l, i, ARG_NUMBER, "number");
    return a ? number_value(l, i, 0, &a->u.number, t) : NULL;
}

hlo_value arg_number_or(lowering *l, int i, dtype t, double absent) {
    return arg_given(l, i) ? arg_number(l, i, t) : hlo_scalar(l->builder, t, absent);
}

int arg_number_count(lowering *l, int i) {
    return arg_given(l, i) && l->args[i].tag == ARG_NUMBERS ? l->args[i].count : 0;
}

hlo_value arg_number_at(lowering *l, int i, int j, dtype t) {
    const argument *a = arg_at(l, i, ARG_NUMBERS, "number list");
    if (!a) return NULL;
    if (j < 0 || j >= a->count) return hlo_fail(l->builder, STATUS_INTERNAL, "argument %d has no element %d", i, j);
    return number_value(l, i, j, &a->u.numbers[j], t);
}

/* ---- what the program says of the values that it was given ---- */

/* What has no elements takes none from anywhere. */
static bool is_empty(const lowering *l, int k) {
    for (int i = 0; i < result_rank(l, k); i++)
        if (result_dims(l, k)[i] == 0) return true;
    return false;
}

static bool codes_are_wanted(const lowering *l) {
    const lowering_host *host = l->host;
    return host && host->code_seen && host->wants_codes(host->context);
}

static void say(lowering *l, hlo_value bad, int32_t code) {
    hlo_builder *b = l->builder;
    int64_t all[HLO_MAX_RANK];
    for (int i = 0; bad && i < bad->rank; i++) all[i] = i;
    hlo_value any = bad && bad->rank ? hlo_reduce(b, HLO_REDUCE_OR, bad, bad->rank, all) : bad;
    hlo_value said =
        hlo_select(b, any, hlo_constant_int(b, DTYPE_I32, 0, NULL, code), hlo_constant_int(b, DTYPE_I32, 0, NULL, 0));
    if (said) l->host->code_seen(l->host->context, said);
}

static void check_range(lowering *l, fault_kind kind, hlo_value v, int64_t size, bool negative,
                        const int64_t *ignored) {
    hlo_builder *b = l->builder;
    if (!codes_are_wanted(l) || !v || !dtype_is_int(v->dtype) || hlo_element_count(v) == 0 || is_empty(l, 0)) return;
    if (dtype_bytes(v->dtype) < 4 && size <= INT32_MAX) v = hlo_convert(b, v, DTYPE_I32);
    if (!v) return;
    /* Fused with what uses the indices, the check made a TPU's compiler choose a slower form of the rest. */
    hlo_optimization_barrier(b, 1, &v, &v);
    if (!v) return;
    hlo_value bad = hlo_ge(b, v, hlo_constant_int(b, v->dtype, 0, NULL, size));
    if (dtype_is_signed(v->dtype))
        bad = hlo_or(b, bad, hlo_lt(b, v, hlo_constant_int(b, v->dtype, 0, NULL, negative ? -size : 0)));
    if (ignored) bad = hlo_and(b, bad, hlo_ne(b, v, hlo_constant_int(b, v->dtype, 0, NULL, *ignored)));
    say(l, bad, fault_code(kind, l->row->name));
}

void check_index(lowering *l, hlo_value index, int64_t size, bool negative, const int64_t *ignored) {
    check_range(l, FAULT_INDEX, index, size, negative, ignored);
}

void check_value(lowering *l, hlo_value value, int64_t size, const int64_t *ignored) {
    check_range(l, FAULT_VALUE, value, size, false, ignored);
}

void check_assertion(lowering *l, hlo_value holds, const char *text) {
    if (!codes_are_wanted(l) || !holds) return;
    say(l, hlo_not(l->builder, holds), fault_code(FAULT_ASSERTION, text));
}

/* ---- results ---- */

int result_count(const lowering *l) { return l->n_results; }
bool result_wanted(const lowering *l, int k) {
    return k >= 0 && k < l->n_results && l->result_types[k].dtype != DTYPE_INVALID;
}
dtype result_dtype(const lowering *l, int k) { return k < l->n_results ? l->result_types[k].dtype : DTYPE_INVALID; }
int result_rank(const lowering *l, int k) { return k < l->n_results ? l->result_types[k].rank : 0; }
const int64_t *result_dims(const lowering *l, int k) { return k < l->n_results ? l->result_types[k].dims : NULL; }

void result_set(lowering *l, int k, hlo_value v) {
    if (!v || !result_wanted(l, k)) return;
    const tensor_type *t = &l->result_types[k];
    v = hlo_convert(l->builder, v, t->dtype);
    if (v) v = hlo_broadcast_to(l->builder, v, t->rank, t->dims);
    l->results[k] = v;
}
