/* A builder's life: its first error, parameters, and the module it becomes. */
#include <string.h>

#include "base/alloc.h"
#include "hlo/internal.h"

hlo_builder *hlo_create(void) {
    hlo_builder *b = mem_alloc(sizeof(hlo_builder));
    if (!b) return NULL;
    b->arena = arena_create();
    b->region = b->arena ? ARENA_NEW(b->arena, hlo_region, 1) : NULL;
    if (!b->region) {
        hlo_destroy(b);
        return NULL;
    }
    b->last_created = b->region;
    strbuf_init(&b->region->text);
    strbuf_init(&b->attributes);
    return b;
}

void hlo_destroy(hlo_builder *b) {
    if (!b) return;
    for (hlo_region *r = b->last_created; r; r = r->created_before) strbuf_free(&r->text);
    strbuf_free(&b->attributes);
    status_free(b->error);
    arena_destroy(b->arena);
    mem_free(b);
}

arena *hlo_arena(hlo_builder *b) { return b->arena; }
const status *hlo_status(const hlo_builder *b) { return b->error; }
void hlo_set_context(hlo_builder *b, const char *name) { b->context = name; }
void hlo_set_precision(hlo_builder *b, hlo_precision precision) { b->precision = precision; }
hlo_precision hlo_get_precision(const hlo_builder *b) { return b->precision; }

hlo_value hlo_fail(hlo_builder *b, status_code code, const char *format, ...) {
    if (b->error) return NULL;
    va_list args;
    va_start(args, format);
    b->error = status_newv(code, format, args);
    va_end(args);
    if (b->context) b->error = status_prefix(b->error, "%s", b->context);
    return NULL;
}

void *hlo_out_of_memory(hlo_builder *b) {
    if (!b->error) b->error = status_no_memory();
    return NULL;
}

hlo_value hlo_parameter(hlo_builder *b, dtype t, int rank, const int64_t *dims) {
    if (!hlo_ready(b, 0, NULL)) return NULL;
    const hlo_region *body = b->region;
    while (body->parent) body = body->parent;
    hlo_type type = {t, rank, dims};
    hlo_parameter_info *p = ARENA_NEW(b->arena, hlo_parameter_info, 1);
    if (!p) return hlo_out_of_memory(b);
    p->output = -1;
    p->value = hlo_new_value(b, &type, b->next_id++, -1, body);
    if (!p->value) return NULL;
    if (b->last_parameter)
        b->last_parameter->next = p;
    else
        b->parameters = p;
    b->last_parameter = p;
    b->n_parameters++;
    return p->value;
}

void hlo_parameter_donate(hlo_builder *b, int parameter, int output) {
    if (!hlo_ready(b, 0, NULL)) return;
    hlo_parameter_info *p = b->parameters;
    for (int i = 0; p && i < parameter; i++) p = p->next;
    if (parameter < 0 || !p) {
        hlo_fail(b, STATUS_INTERNAL, "donation of parameter %d of %d", parameter, b->n_parameters);
        return;
    }
    p->output = output < 0 ? -1 : output;
}

/* ---- the module ---- */

enum { HEADER_LINES = 2 }; /* "module ... {" and "func.func ... {" */

int hlo_next_line(hlo_builder *b) {
    const hlo_region *body = b->region;
    while (body->parent) body = body->parent;
    for (; b->counted < body->text.size; b->counted++) b->lines += body->text.data[b->counted] == '\n';
    return HEADER_LINES + b->lines + 1;
}

static bool check_donations(hlo_builder *b, int n, const hlo_value *results) {
    int i = 0;
    for (const hlo_parameter_info *p = b->parameters; p; p = p->next, i++) {
        if (p->output < 0) continue;
        if (p->output >= n) {
            hlo_fail(b, STATUS_INTERNAL, "parameter %d is donated to result %d of %d", i, p->output, n);
            return false;
        }
        hlo_value result = results[p->output];
        if (p->value->dtype != result->dtype || !hlo_same_shape(p->value, result)) {
            hlo_fail(b, STATUS_INTERNAL, "parameter %d (%s) is donated to result %d (%s) of another type", i,
                     hlo_value_text(b, p->value), p->output, hlo_value_text(b, result));
            return false;
        }
        for (const hlo_parameter_info *q = b->parameters; q != p; q = q->next)
            if (q->output == p->output) {
                hlo_fail(b, STATUS_INTERNAL, "two parameters are donated to result %d", p->output);
                return false;
            }
    }
    return true;
}

static bool check_results(hlo_builder *b, int n, const hlo_value *results) {
    if (b->error) return false;
    if (b->region->parent || b->lost_regions) {
        hlo_fail(b, STATUS_INTERNAL, "a region was not ended");
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (!results[i]) {
            hlo_fail(b, STATUS_INTERNAL, "result %d has no value", i);
            return false;
        }
        if (((const hlo_node *)results[i])->scope != b->region) {
            hlo_fail(b, STATUS_INTERNAL, "result %d is a value of a region that has ended", i);
            return false;
        }
    }
    return check_donations(b, n, results);
}

static void print_types(strbuf *out, int n, const hlo_value *values) {
    for (int i = 0; i < n; i++) {
        hlo_type t = hlo_type_of(values[i]);
        if (i) strbuf_puts(out, ", ");
        hlo_print_type(out, &t);
    }
}

static void print_parameters(const hlo_builder *b, strbuf *out) {
    for (const hlo_parameter_info *p = b->parameters; p; p = p->next) {
        hlo_type t = hlo_type_of(p->value);
        if (p != b->parameters) strbuf_puts(out, ", ");
        hlo_print_value(out, p->value);
        strbuf_puts(out, ": ");
        hlo_print_type(out, &t);
        if (p->output >= 0) strbuf_printf(out, " {tf.aliasing_output = %d : i32}", p->output);
    }
}

/* A symbol without quotes: letters, digits and underscores. */
static void print_symbol(strbuf *out, const char *name) {
    for (const char *c = name; *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        strbuf_append(out, plain ? c : "_", 1);
    }
}

status *hlo_finish(hlo_builder *b, const char *name, int n, const hlo_value *results, strbuf *out) {
    if (!check_results(b, n, results)) {
        if (b->error == status_no_memory()) return status_no_memory();
        return status_new(status_get_code(b->error), "%s", status_message(b->error));
    }
    strbuf_puts(out, "module @m_");
    print_symbol(out, name);
    strbuf_puts(out, " {\nfunc.func public @main(");
    print_parameters(b, out);
    strbuf_puts(out, ") -> (");
    print_types(out, n, results);
    strbuf_puts(out, ") {\n");
    strbuf_append(out, b->region->text.data, b->region->text.size);
    strbuf_puts(out, "func.return");
    for (int i = 0; i < n; i++) {
        strbuf_puts(out, i ? ", " : " ");
        hlo_print_value(out, results[i]);
    }
    if (n) strbuf_puts(out, " : ");
    print_types(out, n, results);
    strbuf_puts(out, "\n}\n");
    for (const hlo_function *f = b->functions; f; f = f->next) strbuf_puts(out, f->text);
    strbuf_puts(out, "}\n");
    return strbuf_failed(out) ? status_no_memory() : NULL;
}

/* ---- inspection ---- */

int64_t hlo_element_count(hlo_value v) {
    if (!v) return 0;
    int64_t count = 1;
    for (int d = 0; d < v->rank; d++) count *= v->dims[d];
    return count;
}

bool hlo_same_shape(hlo_value a, hlo_value b) {
    return a && b && a->rank == b->rank && memcmp(a->dims, b->dims, sizeof(int64_t) * (size_t)a->rank) == 0;
}
