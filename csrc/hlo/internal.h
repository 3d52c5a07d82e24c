/* What the files of this room share: values with their scope, the emission of one operation, its attributes. */
#ifndef HLO_INTERNAL_H
#define HLO_INTERNAL_H

#include "hlo/hlo.h"

/* A region under construction or finished; the first is the body of @main. */
struct hlo_region {
    hlo_region *parent;
    hlo_region *created_before; /* all regions of a builder, so that they can be freed */
    strbuf text;
    bool captures; /* it uses a value from outside */
    int n_arguments, n_results;
    const hlo_type *argument_types, *result_types;
};

typedef struct hlo_node {
    hlo_value_info info; /* first: an hlo_value is a pointer to it */
    const hlo_region *scope;
    hlo_value reshaped, transposed; /* what it is a reshape or a matrix's transpose of, or NULL */
    const void *note;               /* hlo_set_note */
} hlo_node;

typedef struct hlo_parameter_info {
    hlo_value value;
    int output; /* it is donated to, or -1 */
    struct hlo_parameter_info *next;
} hlo_parameter_info;

/* A function from outside that the module calls. */
typedef struct hlo_function {
    const char *name, *text;
    const struct hlo_function *next;
} hlo_function;

struct hlo_builder {
    arena *arena;
    status *error;
    const char *context;
    hlo_precision precision;
    int32_t next_id;
    hlo_region *region, *last_created;
    int lost_regions; /* opened after an error or without memory: their ends must be matched too */
    hlo_parameter_info *parameters, *last_parameter;
    int n_parameters;
    const hlo_function *functions;
    strbuf attributes; /* of the operation about to be emitted */
    int lines;         /* of @main's text, as far as they were counted: */
    size_t counted;
};

/* ---- types and values ---- */
hlo_type hlo_type_of(hlo_value v);
bool hlo_same_type(const hlo_type *a, const hlo_type *b);
void hlo_print_type(strbuf *out, const hlo_type *t);
void hlo_print_value(strbuf *out, hlo_value v);
/* "f32[2,3]" for messages; lives as long as the builder. */
const char *hlo_type_text(hlo_builder *b, const hlo_type *t);
const char *hlo_value_text(hlo_builder *b, hlo_value v);
/* A new value in the current region. */
hlo_value hlo_new_value(hlo_builder *b, const hlo_type *t, int32_t id, int32_t part, const hlo_region *scope);
/* True when there is no earlier error and no operand is NULL. Every builder function begins with it. */
bool hlo_ready(const hlo_builder *b, int n, const hlo_value *operands);
void *hlo_out_of_memory(hlo_builder *b); /* NULL */

/* ---- attributes of the next operation, in order ---- */
void hlo_attribute(hlo_builder *b, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
void hlo_attribute_ints(hlo_builder *b, const char *name, int n, const int64_t *v); /* array<i64: ...> */
void hlo_attribute_bools(hlo_builder *b, const char *name, int n, const bool *v);
void hlo_attribute_int(hlo_builder *b, const char *name, int64_t v); /* v : i64 */
void hlo_attribute_bool(hlo_builder *b, const char *name, bool v);
void hlo_attribute_padding(hlo_builder *b, int n, const int64_t *low, const int64_t *high); /* padding = dense<...> */
/* name = [1, 2], as within #stablehlo.gather<...>; `separator` goes before it. */
void hlo_append_list(strbuf *out, const char *separator, const char *name, int n, const int64_t *v);

/* ---- emission ---- */
typedef struct hlo_operation {
    const char *name; /* with its dialect: "stablehlo.add" */
    int n_operands;
    const hlo_value *operands;
    int n_regions;
    hlo_region *const *regions;
    bool may_capture; /* its regions may use values from outside */
    int n_results;
    const hlo_type *types;
} hlo_operation;
/* The operation with the attributes collected so far. results are NULL after an error. */
void hlo_emit(hlo_builder *b, const hlo_operation *o, hlo_value *results);
hlo_value hlo_emit_one(hlo_builder *b, const char *name, int n, const hlo_value *operands, dtype t, int rank,
                       const int64_t *dims);

/* ---- checks; they record an error that begins with the operation's name ---- */
bool hlo_check_dim(hlo_builder *b, const char *operation, hlo_value x, int64_t dim); /* 0 <= dim < rank */
/* Dimensions in range and no two equal. */
bool hlo_check_dims(hlo_builder *b, const char *operation, const char *what, int rank, int n, const int64_t *dims);
/* operand `index` has the dtype */
bool hlo_check_dtype(hlo_builder *b, const char *operation, int index, hlo_value x, dtype t);
/* The region's block arguments and results are these types. */
bool hlo_check_region(hlo_builder *b, const char *operation, const char *what, const hlo_region *r, int n_arguments,
                      const hlo_type *arguments, int n_results, const hlo_type *results);

/* The operation of a reduction, on two values of one type. */
hlo_value hlo_combine(hlo_builder *b, hlo_reduction kind, hlo_value x, hlo_value y);

#endif
