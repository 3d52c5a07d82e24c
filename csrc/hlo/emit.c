/* One operation as text, in MLIR's generic form: "stablehlo.add"(%1, %2) <{attributes}> ({regions}) : (types) -> types.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "hlo/internal.h"

/* ---- types and values ---- */

hlo_type hlo_type_of(hlo_value v) { return (hlo_type){v->dtype, v->rank, v->dims}; }

bool hlo_same_type(const hlo_type *a, const hlo_type *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->dims, b->dims, sizeof(int64_t) * (size_t)a->rank) == 0);
}

void hlo_print_type(strbuf *out, const hlo_type *t) {
    strbuf_puts(out, "tensor<");
    for (int d = 0; d < t->rank; d++) strbuf_printf(out, "%lldx", (long long)t->dims[d]);
    strbuf_puts(out, dtype_hlo_name(t->dtype));
    strbuf_puts(out, ">");
}

void hlo_print_value(strbuf *out, hlo_value v) {
    if (v->part < 0)
        strbuf_printf(out, "%%%d", v->id);
    else
        strbuf_printf(out, "%%%d#%d", v->id, v->part);
}

const char *hlo_type_text(hlo_builder *b, const hlo_type *t) {
    strbuf s;
    strbuf_init(&s);
    strbuf_puts(&s, dtype_hlo_name(t->dtype));
    strbuf_puts(&s, "[");
    for (int d = 0; d < t->rank; d++) strbuf_printf(&s, "%s%lld", d ? "," : "", (long long)t->dims[d]);
    strbuf_puts(&s, "]");
    const char *text = strbuf_failed(&s) ? NULL : arena_copy(b->arena, strbuf_text(&s), s.size + 1);
    strbuf_free(&s);
    return text ? text : "a type";
}

const char *hlo_value_text(hlo_builder *b, hlo_value v) {
    hlo_type t = hlo_type_of(v);
    return hlo_type_text(b, &t);
}

/* A type that a program can hold: its byte count fits int64. */
static bool check_type(hlo_builder *b, const hlo_type *t) {
    if (t->dtype <= DTYPE_INVALID || t->dtype >= DTYPE_COUNT) {
        hlo_fail(b, STATUS_INTERNAL, "a value without an element type");
        return false;
    }
    if (t->rank < 0 || t->rank > HLO_MAX_RANK) {
        hlo_fail(b, STATUS_NOT_IMPLEMENTED, "a value of %d dimensions; at most %d are supported", t->rank,
                 HLO_MAX_RANK);
        return false;
    }
    int64_t bytes = (int64_t)dtype_bytes(t->dtype);
    bool overflow = false;
    for (int d = 0; d < t->rank; d++) {
        if (t->dims[d] < 0) {
            hlo_fail(b, STATUS_RUNTIME, "a value with the negative size %lld in dimension %d", (long long)t->dims[d],
                     d);
            return false;
        }
        overflow |= __builtin_mul_overflow(bytes, t->dims[d] ? t->dims[d] : 1, &bytes);
    }
    if (overflow) hlo_fail(b, STATUS_RUNTIME, "the value %s is too large", hlo_type_text(b, t));
    return !overflow;
}

hlo_value hlo_new_value(hlo_builder *b, const hlo_type *t, int32_t id, int32_t part, const hlo_region *scope) {
    if (!check_type(b, t)) return NULL;
    hlo_node *v = ARENA_NEW(b->arena, hlo_node, 1);
    int64_t *dims = arena_copy(b->arena, t->rank ? t->dims : NULL, sizeof(int64_t) * (size_t)t->rank);
    if (!v || !dims) return hlo_out_of_memory(b);
    v->info = (hlo_value_info){.dtype = t->dtype, .rank = t->rank, .dims = dims, .id = id, .part = part};
    v->scope = scope;
    v->reshaped = v->transposed = NULL;
    return &v->info;
}

bool hlo_ready(const hlo_builder *b, int n, const hlo_value *operands) {
    if (b->error) return false;
    for (int i = 0; i < n; i++)
        if (!operands[i]) return false;
    return true;
}

/* ---- attributes ---- */

static void attribute_name(hlo_builder *b, const char *name) {
    if (b->attributes.size) strbuf_puts(&b->attributes, ", ");
    strbuf_puts(&b->attributes, name);
    strbuf_puts(&b->attributes, " = ");
}

void hlo_attribute(hlo_builder *b, const char *name, const char *format, ...) {
    char text[160];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    attribute_name(b, name);
    strbuf_puts(&b->attributes, text);
}

void hlo_attribute_ints(hlo_builder *b, const char *name, int n, const int64_t *v) {
    attribute_name(b, name);
    strbuf_puts(&b->attributes, "array<i64");
    for (int i = 0; i < n; i++) strbuf_printf(&b->attributes, "%s %lld", i ? "," : ":", (long long)v[i]);
    strbuf_puts(&b->attributes, ">");
}

void hlo_attribute_bools(hlo_builder *b, const char *name, int n, const bool *v) {
    attribute_name(b, name);
    strbuf_puts(&b->attributes, "array<i1");
    for (int i = 0; i < n; i++) strbuf_printf(&b->attributes, "%s %s", i ? "," : ":", v[i] ? "true" : "false");
    strbuf_puts(&b->attributes, ">");
}

void hlo_attribute_int(hlo_builder *b, const char *name, int64_t v) {
    hlo_attribute(b, name, "%lld : i64", (long long)v);
}

void hlo_attribute_bool(hlo_builder *b, const char *name, bool v) {
    hlo_attribute(b, name, "%s", v ? "true" : "false");
}

void hlo_attribute_padding(hlo_builder *b, int n, const int64_t *low, const int64_t *high) {
    strbuf *out = &b->attributes;
    attribute_name(b, "padding");
    strbuf_puts(out, n ? "dense<[" : "dense<");
    for (int i = 0; i < n; i++)
        strbuf_printf(out, "%s[%lld, %lld]", i ? ", " : "", (long long)low[i], (long long)high[i]);
    strbuf_printf(out, "%s> : tensor<%dx2xi64>", n ? "]" : "", n);
}

void hlo_append_list(strbuf *out, const char *separator, const char *name, int n, const int64_t *v) {
    strbuf_printf(out, "%s%s = [", separator, name);
    for (int i = 0; i < n; i++) strbuf_printf(out, "%s%lld", i ? ", " : "", (long long)v[i]);
    strbuf_puts(out, "]");
}

/* ---- emission ---- */

/* The value is visible here: its region is open. Regions between it and here capture it. */
static bool use(hlo_builder *b, const char *operation, int index, hlo_value v) {
    const hlo_region *scope = ((const hlo_node *)v)->scope;
    hlo_region *r = b->region;
    for (; r && r != scope; r = r->parent)
        ;
    if (!r) {
        hlo_fail(b, STATUS_INTERNAL, "%s: operand %d is a value of a region that has ended", operation, index);
        return false;
    }
    for (r = b->region; r != scope; r = r->parent) r->captures = true;
    return true;
}

static bool check_operation(hlo_builder *b, const hlo_operation *o) {
    for (int i = 0; i < o->n_operands; i++)
        if (!use(b, o->name, i, o->operands[i])) return false;
    for (int i = 0; i < o->n_regions; i++) {
        const hlo_region *r = o->regions[i];
        if (r->parent != b->region) {
            hlo_fail(b, STATUS_INTERNAL, "%s: region %d was built elsewhere", o->name, i);
            return false;
        }
        if (r->captures && !o->may_capture) {
            hlo_fail(b, STATUS_INTERNAL, "%s: region %d uses a value from outside", o->name, i);
            return false;
        }
    }
    return true;
}

static void print_operation(hlo_builder *b, const hlo_operation *o, int32_t id) {
    strbuf *out = &b->region->text;
    if (o->n_results == 1) strbuf_printf(out, "%%%d = ", id);
    if (o->n_results > 1) strbuf_printf(out, "%%%d:%d = ", id, o->n_results);
    strbuf_printf(out, "\"%s\"(", o->name);
    for (int i = 0; i < o->n_operands; i++) {
        if (i) strbuf_puts(out, ", ");
        hlo_print_value(out, o->operands[i]);
    }
    strbuf_puts(out, ")");
    if (b->attributes.size) {
        strbuf_puts(out, " <{");
        strbuf_append(out, b->attributes.data, b->attributes.size);
        strbuf_puts(out, "}>");
    }
    for (int i = 0; i < o->n_regions; i++) {
        strbuf_puts(out, i ? ", " : " (");
        strbuf_append(out, o->regions[i]->text.data, o->regions[i]->text.size);
    }
    strbuf_puts(out, o->n_regions ? ") : (" : " : (");
    for (int i = 0; i < o->n_operands; i++) {
        hlo_type t = hlo_type_of(o->operands[i]);
        if (i) strbuf_puts(out, ", ");
        hlo_print_type(out, &t);
    }
    strbuf_puts(out, ") -> (");
    for (int i = 0; i < o->n_results; i++) {
        if (i) strbuf_puts(out, ", ");
        hlo_print_type(out, &o->types[i]);
    }
    strbuf_puts(out, ")\n");
}

static bool make_results(hlo_builder *b, const hlo_operation *o, int32_t id, hlo_value *results) {
    for (int i = 0; i < o->n_results; i++) {
        results[i] = hlo_new_value(b, &o->types[i], id, o->n_results == 1 ? -1 : i, b->region);
        if (!results[i]) return false;
    }
    return true;
}

void hlo_emit(hlo_builder *b, const hlo_operation *o, hlo_value *results) {
    bool ok = hlo_ready(b, o->n_operands, o->operands);
    for (int i = 0; i < o->n_regions; i++) ok = ok && o->regions[i];
    /* results may be the array of operands: those are printed before it is filled */
    hlo_value *made = ok ? ARENA_NEW(b->arena, hlo_value, o->n_results) : NULL;
    if (ok && !made) hlo_out_of_memory(b);
    int32_t id = b->next_id;
    ok = made && check_operation(b, o) && make_results(b, o, id, made);
    if (ok) {
        b->next_id++;
        print_operation(b, o, id);
        if (strbuf_failed(&b->region->text) || strbuf_failed(&b->attributes)) hlo_out_of_memory(b);
    }
    strbuf_clear(&b->attributes);
    for (int i = 0; i < o->n_results; i++) results[i] = ok && !b->error ? made[i] : NULL;
}

hlo_value hlo_emit_one(hlo_builder *b, const char *name, int n, const hlo_value *operands, dtype t, int rank,
                       const int64_t *dims) {
    hlo_type type = {t, rank, dims};
    hlo_operation o = {.name = name, .n_operands = n, .operands = operands, .n_results = 1, .types = &type};
    hlo_value result = NULL;
    hlo_emit(b, &o, &result);
    return result;
}

/* ---- checks ---- */

bool hlo_check_dim(hlo_builder *b, const char *operation, hlo_value x, int64_t dim) {
    if (dim >= 0 && dim < x->rank) return true;
    hlo_fail(b, STATUS_INDEX, "%s: dimension %lld of operand 0, %s", operation, (long long)dim, hlo_value_text(b, x));
    return false;
}

bool hlo_check_dims(hlo_builder *b, const char *operation, const char *what, int rank, int n, const int64_t *dims) {
    uint64_t seen = 0;
    if (n < 0 || n > rank) {
        hlo_fail(b, STATUS_INTERNAL, "%s: %d %s of a value of %d dimensions", operation, n, what, rank);
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (dims[i] < 0 || dims[i] >= rank) {
            hlo_fail(b, STATUS_INDEX, "%s: %s hold %lld, of a value of %d dimensions", operation, what,
                     (long long)dims[i], rank);
            return false;
        }
        if (seen >> dims[i] & 1) {
            hlo_fail(b, STATUS_RUNTIME, "%s: %s hold %lld twice", operation, what, (long long)dims[i]);
            return false;
        }
        seen |= (uint64_t)1 << dims[i];
    }
    return true;
}

bool hlo_check_dtype(hlo_builder *b, const char *operation, int index, hlo_value x, dtype t) {
    if (x->dtype == t) return true;
    hlo_fail(b, STATUS_TYPE, "%s: operand %d is %s, expected %s elements", operation, index, hlo_value_text(b, x),
             dtype_hlo_name(t));
    return false;
}

static bool check_types(hlo_builder *b, const char *operation, const char *what, const char *kind, int n,
                        const hlo_type *is, int n_expected, const hlo_type *expected) {
    if (n != n_expected) {
        hlo_fail(b, STATUS_INTERNAL, "%s: the %s has %d %ss, expected %d", operation, what, n, kind, n_expected);
        return false;
    }
    for (int i = 0; i < n; i++)
        if (!hlo_same_type(&is[i], &expected[i])) {
            hlo_fail(b, STATUS_INTERNAL, "%s: %s %d of the %s is %s, expected %s", operation, kind, i, what,
                     hlo_type_text(b, &is[i]), hlo_type_text(b, &expected[i]));
            return false;
        }
    return true;
}

bool hlo_check_region(hlo_builder *b, const char *operation, const char *what, const hlo_region *r, int n_arguments,
                      const hlo_type *arguments, int n_results, const hlo_type *results) {
    return r &&
           check_types(b, operation, what, "argument", r->n_arguments, r->argument_types, n_arguments, arguments) &&
           check_types(b, operation, what, "result", r->n_results, r->result_types, n_results, results);
}
