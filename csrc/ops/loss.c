/* Losses and their gradients. `reduction`: 0 none, 1 mean, 2 sum. */
#include <math.h>

#include "ops/indexing.h"
#include "ops/ops.h"
#include "ops/reduction.h"

enum { REDUCTION_NONE, REDUCTION_MEAN, REDUCTION_SUM };

static hlo_value sum_all(hlo_builder *b, hlo_value x) {
    dim_set d = dims_all(x);
    return reduce_drop(b, HLO_REDUCE_ADD, x, &d);
}

static void set_loss(lowering *l, hlo_value loss, int reduction_argument) {
    hlo_builder *b = lower_builder(l);
    int64_t reduction = arg_int_or(l, reduction_argument, REDUCTION_MEAN);
    if (loss && reduction != REDUCTION_NONE) {
        double n = (double)hlo_element_count(loss);
        loss = sum_all(b, loss);
        if (reduction == REDUCTION_MEAN) loss = hlo_divide(b, loss, hlo_like(b, loss, n));
    }
    result_set(l, 0, loss);
}

/* g times the loss's derivative, over the number of elements of x for a mean. */
static void set_gradient(lowering *l, hlo_value g, hlo_value derivative, hlo_value x, int reduction_argument) {
    hlo_builder *b = lower_builder(l);
    hlo_value y = hlo_multiply(b, g, derivative);
    if (arg_int_or(l, reduction_argument, REDUCTION_MEAN) == REDUCTION_MEAN)
        y = hlo_divide(b, y, hlo_like(b, y, (double)hlo_element_count(x)));
    if (y) y = sum_to(b, y, result_rank(l, 0), result_dims(l, 0));
    result_set(l, 0, y);
}

static hlo_value times_number(hlo_builder *b, hlo_value x, double v) { return hlo_multiply(b, x, hlo_like(b, x, v)); }

/* ---- distances of two tensors ---- */

static void lower_mse(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value z = hlo_subtract(b, arg_tensor(l, 0), arg_tensor(l, 1));
    set_loss(l, hlo_multiply(b, z, z), 2);
}

static void lower_mse_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 1), z = hlo_subtract(b, x, arg_tensor(l, 2));
    set_gradient(l, arg_tensor(l, 0), times_number(b, z, 2), x, 3);
}

/* |z| < beta: z^2 / (2 beta), else |z| - beta / 2. huber_loss is beta times it. */
static void lower_smooth_l1(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value z = hlo_abs(b, hlo_subtract(b, arg_tensor(l, 0), arg_tensor(l, 1)));
    if (!z) return;
    hlo_value beta = arg_number_or(l, 3, z->dtype, 1);
    hlo_value near = hlo_divide(b, times_number(b, hlo_multiply(b, z, z), 0.5), beta);
    set_loss(l, hlo_select(b, hlo_lt(b, z, beta), near, hlo_subtract(b, z, times_number(b, beta, 0.5))), 2);
}

static void lower_huber(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value z = hlo_abs(b, hlo_subtract(b, arg_tensor(l, 0), arg_tensor(l, 1)));
    if (!z) return;
    hlo_value delta = arg_number_or(l, 3, z->dtype, 1);
    hlo_value far = hlo_multiply(b, delta, hlo_subtract(b, z, times_number(b, delta, 0.5)));
    set_loss(l, hlo_select(b, hlo_le(b, z, delta), times_number(b, hlo_multiply(b, z, z), 0.5), far), 2);
}

/* -1 or 1 beyond the bound; z / bound within. */
static hlo_value clipped_slope(hlo_builder *b, hlo_value z, hlo_value bound) {
    hlo_value one = hlo_like(b, z, 1), slope = hlo_divide(b, z, bound);
    slope = hlo_select(b, hlo_ge(b, z, bound), one, slope);
    return hlo_select(b, hlo_le(b, z, hlo_negate(b, bound)), hlo_negate(b, one), slope);
}

static void lower_smooth_l1_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 1), z = hlo_subtract(b, x, arg_tensor(l, 2));
    if (z) set_gradient(l, arg_tensor(l, 0), clipped_slope(b, z, arg_number(l, 4, z->dtype)), x, 3);
}

static void lower_huber_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 1), z = hlo_subtract(b, x, arg_tensor(l, 2));
    if (!z) return;
    hlo_value delta = arg_number(l, 4, z->dtype), low = hlo_negate(b, delta);
    set_gradient(l, arg_tensor(l, 0), hlo_minimum(b, hlo_maximum(b, z, low), delta), x, 3);
}

/* log(1 + exp(-y x)) */
static void lower_soft_margin(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value z = hlo_negate(b, hlo_multiply(b, arg_tensor(l, 0), arg_tensor(l, 1)));
    set_loss(l, hlo_log_plus_one(b, hlo_exponential(b, z)), 2);
}

static void lower_soft_margin_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 1), y = arg_tensor(l, 2);
    hlo_value z = hlo_exponential(b, hlo_negate(b, hlo_multiply(b, x, y)));
    hlo_value slope = hlo_divide(b, hlo_multiply(b, hlo_negate(b, y), z), hlo_add(b, z, hlo_like(b, z, 1)));
    set_gradient(l, arg_tensor(l, 0), slope, x, 3);
}

/* ---- binary cross entropy ---- */

/* Logarithms are bounded by -100 (aten/src/ATen/native/Loss.cpp). */
static hlo_value bounded_log(hlo_builder *b, hlo_value logarithm) {
    return hlo_maximum(b, logarithm, hlo_like(b, logarithm, -100));
}

static void lower_binary_cross_entropy(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), y = arg_tensor(l, 1), one = hlo_like(b, y, 1);
    hlo_value off = hlo_multiply(b, hlo_subtract(b, y, one), bounded_log(b, hlo_log_plus_one(b, hlo_negate(b, x))));
    hlo_value loss = hlo_subtract(b, off, hlo_multiply(b, y, bounded_log(b, hlo_log(b, x))));
    if (arg_given(l, 2)) loss = hlo_multiply(b, loss, arg_tensor(l, 2));
    set_loss(l, loss, 3);
}

static void lower_binary_cross_entropy_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 1), product = hlo_multiply(b, hlo_subtract(b, hlo_like(b, x, 1), x), x);
    hlo_value slope = hlo_subtract(b, x, arg_tensor(l, 2));
    slope = hlo_divide(b, slope, hlo_maximum(b, product, hlo_like(b, product, 1e-12)));
    if (arg_given(l, 3)) slope = hlo_multiply(b, slope, arg_tensor(l, 3));
    set_gradient(l, arg_tensor(l, 0), slope, x, 4);
}

/* (1 - y) x - ((pos_weight - 1) y + 1) log sigmoid(x) */
static void lower_binary_cross_entropy_with_logits(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0), y = arg_tensor(l, 1), zero = hlo_like(b, x, 0);
    hlo_value tail = hlo_log_plus_one(b, hlo_exponential(b, hlo_negate(b, hlo_abs(b, x))));
    hlo_value log_sigmoid = hlo_subtract(b, hlo_minimum(b, x, zero), tail);
    if (arg_given(l, 3)) {
        hlo_value weight = arg_tensor(l, 3);
        weight = hlo_multiply(b, hlo_subtract(b, weight, hlo_like(b, weight, 1)), y);
        log_sigmoid = hlo_multiply(b, log_sigmoid, hlo_add(b, weight, hlo_like(b, weight, 1)));
    }
    hlo_value loss = hlo_subtract(b, hlo_multiply(b, hlo_subtract(b, hlo_like(b, y, 1), y), x), log_sigmoid);
    if (arg_given(l, 2)) loss = hlo_multiply(b, loss, arg_tensor(l, 2));
    set_loss(l, loss, 4);
}

/* ---- negative log likelihood: classes in dimension 1 of [N, C, ...], or 0 of [C] ---- */

typedef struct {
    int dim;          /* of the classes in x */
    hlo_value target; /* i32, with the class dimension of size 1; 0 where ignored */
    hlo_value used;   /* not ignore_index; likewise */
    hlo_value weight; /* of each target's class: 0 where ignored */
} class_targets;

static class_targets read_targets(lowering *l, hlo_value x, int target_argument, int weight_argument,
                                  int ignore_argument) {
    hlo_builder *b = lower_builder(l);
    class_targets t = {0};
    hlo_value target = arg_tensor(l, target_argument), weight = arg_tensor(l, weight_argument);
    if (!x || !target || x->rank == 0) return t;
    t.dim = x->rank == 1 ? 0 : 1;
    int64_t dims[HLO_MAX_RANK];
    for (int i = 0; i < x->rank; i++) dims[i] = i == t.dim ? 1 : x->dims[i];
    target = hlo_reshape(b, target, x->rank, dims);
    t.used =
        target ? hlo_ne(b, target, hlo_constant_int(b, target->dtype, 0, NULL, arg_int(l, ignore_argument))) : NULL;
    target = hlo_convert(b, target, DTYPE_I32);
    t.target = hlo_select(b, t.used, target, hlo_like(b, target, 0));
    hlo_value each = weight ? index_take(b, weight, 0, t.target) : hlo_constant_float(b, x->dtype, x->rank, dims, 1);
    t.weight = hlo_select(b, t.used, each, hlo_like(b, each, 0));
    return t;
}

/* (self, target, weight, reduction, ignore_index) -> output, total_weight */
static void lower_nll_loss(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 0);
    class_targets t = read_targets(l, x, 1, 2, 4);
    int64_t ignored = arg_int(l, 4);
    if (t.target) check_index(l, arg_tensor(l, 1), x->dims[t.dim], false, &ignored);
    hlo_value picked = index_gather(b, x, t.dim, t.target);
    hlo_value loss = hlo_multiply(b, hlo_negate(b, picked), t.weight);
    loss = hlo_select(b, t.used, loss, hlo_like(b, loss, 0));
    if (!loss) return;
    int64_t reduction = arg_int(l, 3);
    hlo_value total = sum_all(b, t.weight);
    if (reduction == REDUCTION_NONE) {
        set_reshaped(l, 0, loss);
        result_set(l, 1, x->rank == 1 ? total : hlo_like(b, total, 0)); /* unused: what the CPU leaves there */
        return;
    }
    loss = sum_all(b, loss);
    result_set(l, 0, reduction == REDUCTION_MEAN ? hlo_divide(b, loss, total) : loss);
    result_set(l, 1, total);
}

/* (grad_output, self, target, weight, reduction, ignore_index, total_weight): -weight g at the target's class, 0
 * elsewhere. */
static void lower_nll_loss_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    hlo_value x = arg_tensor(l, 1), g = arg_tensor(l, 0);
    class_targets t = read_targets(l, x, 2, 3, 5);
    if (!x || !g || !t.target) return;
    int64_t reduction = arg_int(l, 4);
    if (reduction == REDUCTION_NONE)
        g = hlo_reshape(b, g, t.target->rank, t.target->dims);
    else
        g = hlo_reshape(b, g, 0, NULL);
    hlo_value each = hlo_negate(b, hlo_multiply(b, t.weight, g));
    if (reduction == REDUCTION_MEAN) each = hlo_divide(b, each, arg_tensor(l, 6));
    hlo_value at = hlo_eq(b, index_iota(b, x->rank, x->dims, t.dim), t.target);
    at = hlo_and(b, at, t.used);
    result_set(l, 0, hlo_select(b, at, each, hlo_scalar(b, x->dtype, 0)));
}

/* ---- margins over classes: [N, C], or [C] taken as one row ---- */

static hlo_value as_matrix(hlo_builder *b, hlo_value x) {
    return x && x->rank < 2 ? hlo_reshape(b, x, 2, (int64_t[]){1, hlo_element_count(x)}) : x;
}

/* How much class i comes too near to the target's: margin - x[target] + x[i] where positive, 0 at the target. */
typedef struct {
    hlo_value excess, at_target, weight;
    double p;
    int64_t rows, classes;
} margins;

static margins read_margins(lowering *l, int first) {
    hlo_builder *b = lower_builder(l);
    margins m = {.p = arg_float_or(l, first + 2, 1)};
    hlo_value x = as_matrix(b, arg_tensor(l, first)), target = arg_tensor(l, first + 1),
              weight = arg_tensor(l, first + 4);
    if (!x || !target) return m;
    m.rows = x->dims[0];
    m.classes = x->dims[1];
    check_value(l, target, m.classes, NULL);
    target = hlo_reshape(b, hlo_convert(b, target, DTYPE_I32), 2, (int64_t[]){m.rows, 1});
    m.at_target = hlo_eq(b, index_iota(b, 2, x->dims, 1), target);
    hlo_value z = hlo_subtract(b, arg_number_or(l, first + 3, x->dtype, 1), index_gather(b, x, 1, target));
    z = hlo_add(b, z, x);
    hlo_value zero = hlo_scalar(b, x->dtype, 0);
    m.excess = hlo_select(b, hlo_or(b, m.at_target, hlo_not(b, hlo_gt(b, z, zero))), zero, z);
    if (weight) m.weight = index_take(b, weight, 0, target);
    return m;
}

/* (self, target, p, margin, weight, reduction) */
static void lower_multi_margin(lowering *l) {
    hlo_builder *b = lower_builder(l);
    margins m = read_margins(l, 0);
    hlo_value z = m.p == 1 ? m.excess : hlo_multiply(b, m.excess, m.excess);
    if (m.weight) z = hlo_multiply(b, z, m.weight);
    dim_set d = dims_only(z, 1);
    z = reduce_drop(b, HLO_REDUCE_ADD, z, &d);
    z = hlo_divide(b, z, hlo_like(b, z, (double)m.classes));
    if (z && arg_int_or(l, 5, REDUCTION_MEAN) == REDUCTION_NONE)
        set_reshaped(l, 0, z);
    else
        set_loss(l, z, 5);
}

/* grad_output as a column, or a scalar, over n for a mean. */
static hlo_value row_gradient(lowering *l, int reduction_argument, int64_t rows, double n) {
    hlo_builder *b = lower_builder(l);
    hlo_value g = arg_tensor(l, 0);
    if (!g) return NULL;
    int64_t reduction = arg_int_or(l, reduction_argument, REDUCTION_MEAN);
    if (reduction == REDUCTION_NONE)
        g = hlo_reshape(b, g, 2, (int64_t[]){rows, 1});
    else
        g = hlo_reshape(b, g, 0, NULL);
    return hlo_divide(b, g, hlo_like(b, g, reduction == REDUCTION_MEAN ? n * (double)rows : n));
}

/* (grad_output, self, target, p, margin, weight, reduction) */
static void lower_multi_margin_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    margins m = read_margins(l, 1);
    hlo_value zero = hlo_like(b, m.excess, 0), slope = times_number(b, m.excess, 2);
    if (m.p == 1) slope = hlo_select(b, hlo_gt(b, m.excess, zero), hlo_like(b, m.excess, 1), zero);
    if (m.weight) slope = hlo_multiply(b, slope, m.weight);
    dim_set d = dims_only(slope, 1);
    hlo_value sum = reduce_keep(b, HLO_REDUCE_ADD, slope, &d);
    slope = hlo_select(b, m.at_target, hlo_negate(b, sum), slope);
    set_reshaped(l, 0, hlo_multiply(b, slope, row_gradient(l, 6, m.rows, (double)m.classes)));
}

/* Targets of a row are its class numbers up to the first negative one. */
typedef struct {
    hlo_value x, target, valid, is_target;
} label_sets;

static label_sets read_labels(lowering *l, int first) {
    hlo_builder *b = lower_builder(l);
    label_sets s = {.x = as_matrix(b, arg_tensor(l, first)), .target = as_matrix(b, arg_tensor(l, first + 1))};
    if (!s.x || !s.target) return s;
    int64_t rows = s.x->dims[0], classes = s.x->dims[1], three[3] = {rows, classes, classes}, end = -1;
    check_value(l, s.target, classes, &end);
    s.target = hlo_convert(b, s.target, DTYPE_I32);
    hlo_value zero = hlo_like(b, s.target, 0), position = index_iota(b, 2, s.x->dims, 1);
    hlo_value stop = hlo_select(b, hlo_lt(b, s.target, zero), position, hlo_like(b, position, (double)classes));
    dim_set last = dims_range(1, 2);
    s.valid = hlo_lt(b, position, reduce_keep(b, HLO_REDUCE_MINIMUM, stop, &last));
    s.target = hlo_select(b, s.valid, s.target, zero);
    /* [row, which target, class] */
    hlo_value hit = hlo_eq(b, hlo_unsqueeze_dim(b, s.target, 2), index_iota(b, 3, three, 2));
    hit = hlo_and(b, hit, hlo_unsqueeze_dim(b, s.valid, 2));
    dim_set which = dims_range(1, 2);
    s.is_target = reduce_drop(b, HLO_REDUCE_OR, hit, &which);
    return s;
}

/* [row, which target, class]: 1 - x[target] + x[class] where positive, for classes that are no targets; 0 elsewhere. */
static hlo_value label_excess(hlo_builder *b, const label_sets *s) {
    hlo_value own = index_gather(b, s->x, 1, s->target);
    hlo_value z = hlo_subtract(b, hlo_like(b, own, 1), own);
    z = hlo_add(b, hlo_unsqueeze_dim(b, z, 2), hlo_unsqueeze_dim(b, s->x, 1));
    hlo_value counts = hlo_and(b, hlo_unsqueeze_dim(b, s->valid, 2), hlo_not(b, hlo_unsqueeze_dim(b, s->is_target, 1)));
    hlo_value zero = hlo_like(b, z, 0);
    return hlo_select(b, hlo_and(b, counts, hlo_gt(b, z, zero)), z, zero);
}

/* (self, target, reduction) -> output, is_target */
static void lower_multilabel_margin(lowering *l) {
    hlo_builder *b = lower_builder(l);
    label_sets s = read_labels(l, 0);
    hlo_value z = label_excess(b, &s);
    if (!z) return;
    dim_set pairs = dims_range(1, 3);
    z = reduce_drop(b, HLO_REDUCE_ADD, z, &pairs);
    z = hlo_divide(b, z, hlo_like(b, z, (double)s.x->dims[1]));
    set_reshaped(l, 1, s.is_target);
    if (arg_int(l, 2) == REDUCTION_NONE)
        set_reshaped(l, 0, z);
    else
        set_loss(l, z, 2);
}

/* (grad_output, self, target, reduction, is_target) */
static void lower_multilabel_margin_backward(lowering *l) {
    hlo_builder *b = lower_builder(l);
    label_sets s = read_labels(l, 1);
    hlo_value z = label_excess(b, &s);
    if (!z) return;
    hlo_value one = hlo_convert(b, hlo_gt(b, z, hlo_like(b, z, 0)), s.x->dtype);
    dim_set targets = dims_range(1, 2), classes = dims_range(2, 3);
    hlo_value pushed = reduce_drop(b, HLO_REDUCE_ADD, one, &targets); /* [row, class] */
    hlo_value pulled = reduce_keep(b, HLO_REDUCE_ADD, one, &classes); /* [row, which target, 1] */
    hlo_value at = hlo_eq(b, hlo_unsqueeze_dim(b, s.target, 2), index_iota(b, 3, z->dims, 2));
    pulled = hlo_select(b, at, pulled, hlo_scalar(b, s.x->dtype, 0));
    hlo_value slope = hlo_subtract(b, pushed, reduce_drop(b, HLO_REDUCE_ADD, pulled, &targets));
    set_reshaped(l, 0, hlo_multiply(b, slope, row_gradient(l, 3, s.x->dims[0], (double)s.x->dims[1])));
}

const op_row ops_loss[] = {
    {"aten::mse_loss", PROMOTE, OP_OPMATH, .lower = lower_mse},
    {"aten::mse_loss_backward", PROMOTE, OP_OPMATH, .lower = lower_mse_backward},
    {"aten::smooth_l1_loss", PROMOTE, OP_OPMATH, .lower = lower_smooth_l1},
    {"aten::smooth_l1_loss_backward", PROMOTE, OP_OPMATH, .lower = lower_smooth_l1_backward},
    {"aten::huber_loss", PROMOTE, OP_OPMATH, .lower = lower_huber},
    {"aten::huber_loss_backward", PROMOTE, OP_OPMATH, .lower = lower_huber_backward},
    {"aten::soft_margin_loss", PROMOTE, OP_OPMATH, .lower = lower_soft_margin},
    {"aten::soft_margin_loss_backward", PROMOTE, OP_OPMATH, .lower = lower_soft_margin_backward},
    {"aten::binary_cross_entropy", PROMOTE, OP_OPMATH, .lower = lower_binary_cross_entropy},
    {"aten::binary_cross_entropy_backward", PROMOTE, OP_OPMATH, .lower = lower_binary_cross_entropy_backward},
    {"aten::binary_cross_entropy_with_logits", PROMOTE, OP_OPMATH, .lower = lower_binary_cross_entropy_with_logits},
    {"aten::nll_loss_forward", PROMOTE_NONE, OP_OPMATH, .lower = lower_nll_loss},
    {"aten::nll_loss_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_nll_loss_backward},
    {"aten::nll_loss2d_forward", PROMOTE_NONE, OP_OPMATH, .lower = lower_nll_loss},
    {"aten::nll_loss2d_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_nll_loss_backward},
    {"aten::multi_margin_loss", PROMOTE_NONE, OP_OPMATH, .lower = lower_multi_margin},
    {"aten::multi_margin_loss_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_multi_margin_backward},
    {"aten::multilabel_margin_loss_forward", PROMOTE_NONE, OP_OPMATH, .lower = lower_multilabel_margin},
    {"aten::multilabel_margin_loss_backward", PROMOTE_NONE, OP_OPMATH, .lower = lower_multilabel_margin_backward},
    {0},
};
