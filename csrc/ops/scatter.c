/* scatter in all its forms, and the indexed reductions scatter_reduce and index_reduce. */
#include <string.h>

#include "ops/indexing.h"
#include "ops/ops.h"

typedef enum { REDUCE_SUM, REDUCE_PRODUCT, REDUCE_MEAN, REDUCE_MAXIMUM, REDUCE_MINIMUM } reduction;

static bool reduction_named(lowering *l, const char *name, reduction *r) {
    static const struct {
        const char *name;
        reduction reduction;
    } table[] = {
        {"sum", REDUCE_SUM},   {"add", REDUCE_SUM},      {"prod", REDUCE_PRODUCT}, {"multiply", REDUCE_PRODUCT},
        {"mean", REDUCE_MEAN}, {"amax", REDUCE_MAXIMUM}, {"amin", REDUCE_MINIMUM},
    };
    for (size_t i = 0; name && i < sizeof table / sizeof *table; i++) {
        if (strcmp(name, table[i].name)) continue;
        *r = table[i].reduction;
        return true;
    }
    hlo_fail(lower_builder(l), STATUS_RUNTIME, "reduce argument must be either sum, prod, mean, amax or amin, got %s",
             name ? name : "None");
    return false;
}

static index_combine combine_of(reduction r) {
    switch (r) {
        case REDUCE_PRODUCT:
            return INDEX_MULTIPLY;
        case REDUCE_MAXIMUM:
            return INDEX_MAXIMUM;
        case REDUCE_MINIMUM:
            return INDEX_MINIMUM;
        default:
            return INDEX_ADD;
    }
}

static hlo_value identity_of(hlo_builder *b, reduction r, dtype t) {
    switch (r) {
        case REDUCE_PRODUCT:
            return hlo_scalar(b, t, 1);
        case REDUCE_MAXIMUM:
            return hlo_min_value(b, t);
        case REDUCE_MINIMUM:
            return hlo_max_value(b, t);
        default:
            return hlo_scalar(b, t, 0);
    }
}

/* One way to combine a source into x: elements (scatter) or whole slices (index_*). */
typedef struct {
    hlo_value x, index, source;
    int dim;
    bool slices;
} placement;

static hlo_value put(hlo_builder *b, const placement *p, hlo_value x, hlo_value source, index_combine combine) {
    return p->slices ? index_put_slices(b, x, p->dim, p->index, source, combine)
                     : index_scatter(b, x, p->dim, p->index, source, combine);
}

/* x / count as the mean: integers round down. */
static hlo_value divide_by_count(hlo_builder *b, hlo_value sum, hlo_value count) {
    if (!sum || !count) return NULL;
    hlo_value quotient = hlo_divide(b, sum, count);
    if (!dtype_is_int(sum->dtype) || !dtype_is_signed(sum->dtype)) return quotient;
    hlo_value zero = hlo_like(b, sum, 0);
    hlo_value inexact = hlo_ne(b, hlo_multiply(b, quotient, count), sum);
    return hlo_subtract(b, quotient, hlo_convert(b, hlo_and(b, inexact, hlo_lt(b, sum, zero)), sum->dtype));
}

static hlo_value reduce_into(hlo_builder *b, const placement *p, reduction r, bool include_self) {
    hlo_value x = p->x;
    if (!x || !p->index || !p->source) return NULL;
    if (!include_self) {
        hlo_value neutral = hlo_broadcast_to(b, identity_of(b, r, x->dtype), p->source->rank, p->source->dims);
        x = put(b, p, x, neutral, INDEX_SET);
    }
    hlo_value y = put(b, p, x, p->source, combine_of(r));
    if (r != REDUCE_MEAN || !y) return y;
    hlo_value count = hlo_like(b, p->x, include_self ? 1 : 0);
    count = put(b, p, count, hlo_like(b, p->source, 1), INDEX_ADD);
    if (!include_self) count = hlo_maximum(b, count, hlo_like(b, p->x, 1));
    return divide_by_count(b, y, count);
}

/* ---- scatter(self, dim, index, src or value) ---- */

static bool read_placement(lowering *l, placement *p, bool scalar) {
    hlo_builder *b = lower_builder(l);
    *p = (placement){.x = arg_tensor(l, 0)};
    hlo_value index = arg_tensor(l, 2);
    if (!p->x || !index) return false;
    int64_t d = dim_wrap(arg_int(l, 1), p->x->rank);
    if (d < 0) {
        hlo_fail(b, STATUS_INDEX, "Dimension out of range");
        return false;
    }
    p->dim = (int)d;
    check_index(l, index, p->x->rank ? p->x->dims[p->dim] : 1, false, NULL);
    p->index = index_normalize(b, index, p->x->rank ? p->x->dims[p->dim] : 1);
    if (p->x->rank && index->rank == 0) p->index = hlo_reshape(b, p->index, 1, (int64_t[]){1});
    hlo_value source = scalar ? arg_number(l, 3, p->x->dtype) : hlo_convert(b, arg_tensor(l, 3), p->x->dtype);
    if (source && p->index && source->rank == 0) source = hlo_broadcast_to(b, source, p->index->rank, p->index->dims);
    p->source = source;
    return source && p->index;
}

static void set_scatter(lowering *l, bool scalar, reduction r, bool combine, bool include_self) {
    hlo_builder *b = lower_builder(l);
    placement p;
    if (!read_placement(l, &p, scalar)) return;
    result_set(l, 0, combine ? reduce_into(b, &p, r, include_self) : put(b, &p, p.x, p.source, INDEX_SET));
}

static void lower_scatter_src(lowering *l) { set_scatter(l, false, REDUCE_SUM, false, true); }
static void lower_scatter_value(lowering *l) { set_scatter(l, true, REDUCE_SUM, false, true); }
static void lower_scatter_add(lowering *l) { set_scatter(l, false, REDUCE_SUM, true, true); }

static void lower_scatter_reduce(lowering *l) {
    reduction r;
    if (reduction_named(l, arg_string(l, 4), &r)) set_scatter(l, false, r, true, true);
}

static void lower_scatter_value_reduce(lowering *l) {
    reduction r;
    if (reduction_named(l, arg_string(l, 4), &r)) set_scatter(l, true, r, true, true);
}

static void lower_scatter_reduce_two(lowering *l) {
    reduction r;
    bool include_self = !arg_given(l, 5) || arg_bool(l, 5);
    if (reduction_named(l, arg_string(l, 4), &r)) set_scatter(l, false, r, true, include_self);
}

/* index_reduce(self, dim, index, source, reduce, include_self) */
static void lower_index_reduce(lowering *l) {
    hlo_builder *b = lower_builder(l);
    reduction r;
    placement p;
    hlo_value source = arg_tensor(l, 3);
    if (!source || !reduction_named(l, arg_string(l, 4), &r) || !read_placement(l, &p, false)) return;
    int64_t one = 1, count = hlo_element_count(p.index), dims[HLO_MAX_RANK];
    if (p.x->rank == 0) p.x = hlo_reshape(b, p.x, 1, &one);
    p.index = hlo_reshape(b, p.index, 1, &count);
    if (!p.x || !p.index) return;
    memcpy(dims, p.x->dims, sizeof(int64_t) * (size_t)p.x->rank);
    dims[p.dim] = count;
    p.source = hlo_reshape(b, hlo_convert(b, source, p.x->dtype), p.x->rank, dims);
    p.slices = true;
    hlo_value y = reduce_into(b, &p, r, !arg_given(l, 5) || arg_bool(l, 5));
    result_set(l, 0, hlo_reshape(b, y, result_rank(l, 0), result_dims(l, 0)));
}

const op_row ops_scatter[] = {
    {"aten::scatter.src", PROMOTE_NONE, .lower = lower_scatter_src},
    {"aten::scatter.value", PROMOTE_NONE, .lower = lower_scatter_value},
    {"aten::scatter.reduce", PROMOTE_NONE, OP_OPMATH, .lower = lower_scatter_reduce},
    {"aten::scatter.value_reduce", PROMOTE_NONE, OP_OPMATH, .lower = lower_scatter_value_reduce},
    {"aten::scatter_add", PROMOTE_NONE, OP_OPMATH, .lower = lower_scatter_add},
    {"aten::scatter_reduce.two", PROMOTE_NONE, OP_OPMATH, .lower = lower_scatter_reduce_two},
    {"aten::index_reduce", PROMOTE_NONE, OP_OPMATH, .lower = lower_index_reduce},
    {0},
};
