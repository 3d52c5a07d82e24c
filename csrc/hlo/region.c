/* Regions: blocks of operations that belong to one. */
#include "hlo/internal.h"

static hlo_type *copy_types(hlo_builder *b, int n, const hlo_type *types) {
    hlo_type *copy = arena_copy(b->arena, types, sizeof(hlo_type) * (size_t)n);
    for (int i = 0; copy && i < n; i++) {
        copy[i].dims = arena_copy(b->arena, types[i].dims, sizeof(int64_t) * (size_t)types[i].rank);
        if (!copy[i].dims) return NULL;
    }
    return copy;
}

static hlo_region *region_create(hlo_builder *b, int n, const hlo_type *types) {
    hlo_region *r = ARENA_NEW(b->arena, hlo_region, 1);
    hlo_type *copy = r ? copy_types(b, n, types) : NULL;
    if (!copy) return hlo_out_of_memory(b);
    strbuf_init(&r->text);
    r->parent = b->region;
    r->created_before = b->last_created;
    b->last_created = r;
    r->n_arguments = n;
    r->argument_types = copy;
    return r;
}

static void print_head(hlo_region *r, const hlo_value *arguments) {
    strbuf_puts(&r->text, "{\n");
    if (r->n_arguments == 0) return;
    strbuf_puts(&r->text, "^bb0(");
    for (int i = 0; i < r->n_arguments; i++) {
        if (i) strbuf_puts(&r->text, ", ");
        hlo_print_value(&r->text, arguments[i]);
        strbuf_puts(&r->text, ": ");
        hlo_print_type(&r->text, &r->argument_types[i]);
    }
    strbuf_puts(&r->text, "):\n");
}

void hlo_region_begin(hlo_builder *b, int n, const hlo_type *types, hlo_value *arguments) {
    for (int i = 0; i < n; i++) arguments[i] = NULL;
    hlo_region *r = b->error ? NULL : region_create(b, n, types);
    if (!r) {
        b->lost_regions++;
        return;
    }
    b->region = r;
    for (int i = 0; i < n && !b->error; i++) arguments[i] = hlo_new_value(b, &types[i], b->next_id++, -1, r);
    if (!b->error) print_head(r, arguments);
}

static void print_end(hlo_region *r, const hlo_value *results) {
    strbuf_puts(&r->text, "\"stablehlo.return\"(");
    for (int i = 0; i < r->n_results; i++) {
        if (i) strbuf_puts(&r->text, ", ");
        hlo_print_value(&r->text, results[i]);
    }
    strbuf_puts(&r->text, ") : (");
    for (int i = 0; i < r->n_results; i++) {
        if (i) strbuf_puts(&r->text, ", ");
        hlo_print_type(&r->text, &r->result_types[i]);
    }
    strbuf_puts(&r->text, ") -> ()\n}");
}

/* The region's results must be visible in it; one from outside makes it capture. */
static bool results_visible(hlo_builder *b, hlo_region *r, int n, const hlo_value *results) {
    for (int i = 0; i < n; i++) {
        const hlo_region *scope = ((const hlo_node *)results[i])->scope, *open = r;
        while (open && open != scope) open = open->parent;
        if (!open) {
            hlo_fail(b, STATUS_INTERNAL, "region: result %d is a value of a region that has ended", i);
            return false;
        }
        for (hlo_region *s = r; s != scope; s = s->parent) s->captures = true;
    }
    return true;
}

hlo_region *hlo_region_end(hlo_builder *b, int n, const hlo_value *results) {
    if (b->lost_regions) {
        b->lost_regions--;
        return NULL;
    }
    hlo_region *r = b->region;
    if (!r->parent) return hlo_fail(b, STATUS_INTERNAL, "region: an end without a begin"), NULL;
    b->region = r->parent;
    if (!hlo_ready(b, n, results) || !results_visible(b, r, n, results)) return NULL;
    hlo_type *types = ARENA_NEW(b->arena, hlo_type, n);
    if (!types) return hlo_out_of_memory(b);
    for (int i = 0; i < n; i++) types[i] = hlo_type_of(results[i]);
    r->n_results = n;
    r->result_types = types;
    print_end(r, results);
    if (strbuf_failed(&r->text)) return hlo_out_of_memory(b);
    return r;
}
