/* _foreach_* operators: each is an operator of single tensors, lowered once for every element of the lists. */
#include <string.h>

#include "ops/elementwise.h"
#include "ops/lowering.h"

/* (name after "_foreach_", the operator of one element). Argument i of that operator is argument i of the foreach one:
 * its j-th element where that is a list. */
/* clang-format off */
#define FOREACH_UNARY(X) \
    X("abs", "abs") X("acos", "acos") X("asin", "asin") X("atan", "atan") X("ceil", "ceil") X("cos", "cos") \
    X("cosh", "cosh") X("erf", "erf") X("erfc", "erfc") X("exp", "exp") X("expm1", "expm1") X("floor", "floor") \
    X("frac", "frac") X("lgamma", "lgamma") X("log", "log") X("log10", "log10") X("log1p", "log1p") \
    X("log2", "log2") X("neg", "neg") X("reciprocal", "reciprocal") X("round", "round") X("rsqrt", "rsqrt") \
    X("sigmoid", "sigmoid") X("sign", "sign") X("sin", "sin") X("sinh", "sinh") X("sqrt", "sqrt") \
    X("tan", "tan") X("tanh", "tanh") X("trunc", "trunc") X("clone", "clone") X("zero", "zero") \
    X("copy", "copy") X("max", "max") X("mm", "mm")
#define FOREACH_BINARY(X) \
    X("add.List", "add.Tensor") X("add.Scalar", "add.Scalar") X("add.ScalarList", "add.Scalar") \
    X("add.Tensor", "add.Tensor") X("sub.List", "sub.Tensor") X("sub.Scalar", "sub.Scalar") \
    X("sub.ScalarList", "sub.Scalar") X("mul.List", "mul.Tensor") X("mul.Scalar", "mul.Scalar") \
    X("mul.ScalarList", "mul.Scalar") X("mul.Tensor", "mul.Tensor") X("div.List", "div.Tensor") \
    X("div.Scalar", "div.Scalar") X("div.ScalarList", "div.Scalar") X("div.Tensor", "div.Tensor") \
    X("clamp_max.List", "clamp_max.Tensor") X("clamp_max.Scalar", "clamp_max") \
    X("clamp_max.ScalarList", "clamp_max") X("clamp_min.List", "clamp_min.Tensor") \
    X("clamp_min.Scalar", "clamp_min") X("clamp_min.ScalarList", "clamp_min") X("maximum.List", "maximum") \
    X("maximum.Scalar", "clamp_min") X("maximum.ScalarList", "clamp_min") X("minimum.List", "minimum") \
    X("minimum.Scalar", "clamp_max") X("minimum.ScalarList", "clamp_max") X("pow.List", "pow.Tensor_Tensor") \
    X("pow.Scalar", "pow.Tensor_Scalar") X("pow.ScalarList", "pow.Tensor_Scalar") \
    X("pow.ScalarAndTensor", "pow.Scalar")
#define FOREACH_TERNARY(X) \
    X("addcdiv.Scalar", "addcdiv") X("addcdiv.ScalarList", "addcdiv") X("addcmul.Scalar", "addcmul") \
    X("addcmul.ScalarList", "addcmul") X("lerp.List", "lerp.Tensor") X("lerp.Scalar", "lerp.Scalar") \
    X("lerp.ScalarList", "lerp.Scalar")
/* clang-format on */
#define FOREACH_TABLE(X) FOREACH_UNARY(X) FOREACH_BINARY(X) FOREACH_TERNARY(X)

static const struct {
    const char *foreach, *element;
} pairs[] = {
#define X(foreach, element) {"aten::_foreach_" foreach, "aten::" element},
    FOREACH_TABLE(X)
#undef X
};

enum { MAX_ARGUMENTS = 8 };

/* What the host is told about numbers: their place in the outer call. */
typedef struct {
    lowering *outer;
    int element;
    int outer_arg[MAX_ARGUMENTS];
} element_context;

static int outer_element(const element_context *c, int arg) {
    return c->outer->args[c->outer_arg[arg]].tag == ARG_NUMBERS ? c->element : 0;
}
/* A number that stands in a list of tensors is a constant. */
static bool in_tensor_list(const element_context *c, int arg) {
    return c->outer->args[c->outer_arg[arg]].tag == ARG_VALUES;
}

static hlo_value element_runtime_number(void *context, int arg, int element, const number *n, dtype t) {
    (void)element;
    const element_context *c = context;
    if (in_tensor_list(c, arg)) return NULL;
    return c->outer->host->runtime_number(c->outer->host->context, c->outer_arg[arg], outer_element(c, arg), n, t);
}
static void element_number_used(void *context, int arg, bool structural) {
    const element_context *c = context;
    c->outer->host->number_used(c->outer->host->context, c->outer_arg[arg], structural || in_tensor_list(c, arg));
}
static hlo_value element_random_state(void *context) {
    const element_context *c = context;
    return c->outer->host->random_state(c->outer->host->context);
}

/* Argument `from` of the outer call for element j: a value stands in `slot`. */
static bool element_argument(lowering *l, int from, int j, argument *a, hlo_value *slot, hlo_value **values) {
    const argument *list = &l->args[from];
    *a = *list;
    *values = slot;
    *slot = NULL;
    if (list->tag == ARG_VALUE) {
        *slot = l->values[from][0];
    } else if (list->tag == ARG_VALUES) {
        if (j >= list->count) return false;
        *a = list->u.list[j];
        *slot = l->values[from][j];
        if (*slot) a->tag = ARG_VALUE;
    } else if (list->tag == ARG_NUMBERS) {
        if (j >= list->count) return false;
        *a = (argument){.tag = ARG_NUMBER, .u.number = list->u.numbers[j]};
    }
    return true;
}

/* Lowers `row` with the arguments of the outer call that outer_arg names (-1: None), for element j. */
static void lower_element(lowering *l, const op_row *row, int n_args, const int *outer_arg, int j) {
    argument args[MAX_ARGUMENTS];
    hlo_value slots[MAX_ARGUMENTS], *values[MAX_ARGUMENTS];
    element_context context = {.outer = l, .element = j};
    lowering_host host = {element_runtime_number, element_number_used, element_random_state, &context};
    for (int i = 0; i < n_args; i++) {
        context.outer_arg[i] = outer_arg[i];
        args[i] = (argument){.tag = ARG_NONE};
        values[i] = &slots[i];
        if (outer_arg[i] >= 0 && !element_argument(l, outer_arg[i], j, &args[i], &slots[i], &values[i])) {
            hlo_fail(l->builder, STATUS_RUNTIME, "Tensor list must have same number of elements as scalar list.");
            return;
        }
    }
    lowering element = {.builder = l->builder,
                        .row = row,
                        .n_args = n_args,
                        .args = args,
                        .values = values,
                        .n_results = 1,
                        .result_types = &l->result_types[j],
                        .results = &l->results[j],
                        .host = l->host ? &host : NULL};
    lowering_run(&element);
    hlo_set_context(l->builder, l->row->name);
}

static const op_row *element_row(lowering *l, const char *name) {
    const op_row *row = op_find(name);
    if (!row) hlo_fail(l->builder, STATUS_INTERNAL, "there is no row %s", name);
    return row;
}

static void lower_foreach(lowering *l) {
    const char *name = NULL;
    for (int i = 0; i < COUNT(pairs) && !name; i++)
        if (!strcmp(pairs[i].foreach, l->row->name)) name = pairs[i].element;
    const op_row *row = name ? element_row(l, name) : NULL;
    if (!row) return;
    int outer_arg[MAX_ARGUMENTS], n = l->n_args < MAX_ARGUMENTS ? l->n_args : MAX_ARGUMENTS;
    for (int i = 0; i < n; i++) outer_arg[i] = i;
    for (int j = 0; j < l->n_results; j++)
        if (result_wanted(l, j)) lower_element(l, row, n, outer_arg, j);
}

/* The scalars of addcdiv.Tensor and addcmul.Tensor are one vector: element j is cut out of it. */
static void lower_foreach_vector(lowering *l) {
    hlo_value vector = arg_tensor(l, 3);
    hlo_value *whole = l->values[3];
    if (!vector || vector->rank == 0 || !whole) {
        lower_foreach(l);
        return;
    }
    const op_row *row = element_row(l, strstr(l->row->name, "addcdiv") ? "aten::addcdiv" : "aten::addcmul");
    if (!row) return;
    static const int outer_arg[] = {0, 1, 2, 3};
    for (int j = 0; j < l->n_results; j++) {
        if (!result_wanted(l, j)) continue;
        hlo_value scalar = hlo_reshape(l->builder, hlo_slice_dim(l->builder, vector, 0, j, j + 1, 1), 0, NULL);
        if (!scalar) return;
        l->values[3] = &scalar;
        lower_element(l, row, 4, outer_arg, j);
    }
    l->values[3] = whole;
}

/* (tensors, ord, dtype) -> (self, ord, dim, keepdim, dtype) */
static void lower_foreach_reduction(lowering *l, const char *name) {
    const op_row *row = element_row(l, name);
    if (!row) return;
    const int outer_arg[] = {0, l->n_args > 1 ? 1 : -1, -1, -1, l->n_args > 2 ? 2 : -1};
    for (int j = 0; j < l->n_results; j++)
        if (result_wanted(l, j)) lower_element(l, row, COUNT(outer_arg), outer_arg, j);
}
static void lower_foreach_norm(lowering *l) { lower_foreach_reduction(l, "aten::linalg_vector_norm"); }
static void lower_foreach_powsum(lowering *l) { lower_foreach_reduction(l, "aten::linalg__powsum"); }

const op_row ops_foreach[] = {{"aten::_foreach_addcdiv.Tensor", PROMOTE_NONE, .lower = lower_foreach_vector},
                              {"aten::_foreach_addcmul.Tensor", PROMOTE_NONE, .lower = lower_foreach_vector},
                              {"aten::_foreach_norm.Scalar", PROMOTE_NONE, .lower = lower_foreach_norm},
                              {"aten::_foreach_powsum.Scalar", PROMOTE_NONE, .lower = lower_foreach_powsum},
#define X(foreach, element) {"aten::_foreach_" foreach, PROMOTE_NONE, .lower = lower_foreach},
                              FOREACH_TABLE(X)
#undef X
                                  {NULL}};
