/* Graphs: building, canonical keys, errors, the text that lowering emits, and failures of every allocation. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/tests/check.h"
#include "graph/graph.h"

static const op_row row_add = {.name = "test::add", .binary = hlo_add, .promote = PROMOTE};
static void lower_scale(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (x) result_set(l, 0, hlo_multiply(lower_builder(l), x, arg_number(l, 1, x->dtype)));
}
static const op_row row_scale = {.name = "test::scale", .lower = lower_scale};
static void lower_bits(lowering *l) {
    result_set(l, 0, random_bits(l, DTYPE_U32, result_rank(l, 0), result_dims(l, 0)));
}
static const op_row row_bits = {.name = "test::bits", .lower = lower_bits, .flags = OP_RANDOM};
static void lower_nothing(lowering *l) { (void)l; }
static const op_row row_nothing = {.name = "test::nothing", .lower = lower_nothing};

static const int64_t dims[2] = {4, 6};

/* out = base[1:3, :] + base[1:3, :], scaled by `factor` */
static graph *example(double factor) {
    graph *g = graph_create();
    if (!g) return NULL;
    int32_t base = graph_input(g, DTYPE_F32, 2, dims);
    geometry view = {.dtype = DTYPE_F32, .rank = 2, .offset = 6, .sizes = {2, 6}, .strides = {6, 1}};
    int32_t x = graph_read(g, base, &view);
    argument args[2] = {{.tag = ARG_VALUE, .u.value = x}, {.tag = ARG_VALUE, .u.value = x}};
    tensor_type t = {DTYPE_F32, 2, view.sizes};
    int32_t sum = graph_call(g, &row_add, 2, args, 1, &t);
    argument scale[2] = {{.tag = ARG_VALUE, .u.value = sum},
                         {.tag = ARG_NUMBER, .u.number = {.dtype = DTYPE_F64, .wrapped = true, .v.f = {factor}}}};
    int32_t scaled = graph_call(g, &row_scale, 2, scale, 1, &t);
    graph_output(g, graph_write(g, base, &view, scaled));
    graph_output(g, scaled);
    return g;
}

static void key_of(double factor, strbuf *out) {
    graph *g = example(factor);
    strbuf_init(out);
    graph_key(g, out);
    graph_destroy(g);
}

static void test_keys(void) {
    strbuf a, b, c;
    key_of(2, &a);
    key_of(2, &b);
    key_of(3, &c);
    CHECK(a.size == b.size && memcmp(a.data, b.data, a.size) == 0);
    CHECK(a.size != c.size || memcmp(a.data, c.data, a.size) != 0);
    strbuf_free(&a);
    strbuf_free(&b);
    strbuf_free(&c);
}

static void test_types(void) {
    graph *g = example(2);
    CHECK(graph_status(g) == NULL);
    CHECK_INT(graph_node_count(g), 4);
    CHECK_INT(graph_input_count(g), 1);
    CHECK_INT(graph_output_count(g), 2);
    tensor_type written = graph_output_type(g, 0), scaled = graph_output_type(g, 1);
    CHECK(written.rank == 2 && written.dims[0] == 4 && written.dims[1] == 6);
    CHECK(scaled.rank == 2 && scaled.dims[0] == 2 && scaled.dtype == DTYPE_F32);
    strbuf text;
    strbuf_init(&text);
    graph_print(g, &text);
    CHECK(strstr(strbuf_text(&text), "test::add(%1, %1)") != NULL);
    CHECK(strstr(strbuf_text(&text), "= write %0 <- %3") != NULL);
    strbuf_free(&text);
    graph_destroy(g);
}

static void test_errors(void) {
    graph *g = graph_create();
    geometry view = {.dtype = DTYPE_F32, .rank = 0};
    CHECK_INT(graph_read(g, 3, &view), -1);
    CHECK(graph_status(g) != NULL && strstr(status_message(graph_status(g)), "no value 3"));
    strbuf text;
    strbuf_init(&text);
    lower_request r;
    lower_request_init(&r, HLO_PRECISION_DEFAULT);
    CHECK_FAILS(graph_lower(g, "p", &r, NULL, &text), STATUS_INTERNAL, "no value 3");
    graph_destroy(g);
    /* A lowering that sets no result is found out, and the operator named. */
    g = graph_create();
    tensor_type t = {DTYPE_F32, 2, dims};
    graph_output(g, graph_call(g, &row_nothing, 0, NULL, 1, &t));
    CHECK_FAILS(graph_lower(g, "p", &r, NULL, &text), STATUS_INTERNAL, "test::nothing");
    graph_destroy(g);
    strbuf_free(&text);
    lower_request_free(&r);
}

/* Numbers become a parameter of their own where asked; donation is printed; sub-graphs are spliced in. */
static void test_lowering(void) {
    graph *g = example(2), *outer = graph_create();
    int32_t x = graph_input(outer, DTYPE_F32, 2, dims);
    int32_t first = graph_call_graph(outer, g, 1, &x);
    graph_set_dynamic(outer, 0, 1 << 1);
    graph_output(outer, first);
    strbuf text;
    strbuf_init(&text);
    lower_request r;
    lower_request_init(&r, HLO_PRECISION_DEFAULT);
    int32_t donate = 0;
    if (CHECK_OK(graph_lower(outer, "p", &r, &donate, &text))) {
        CHECK_INT(r.n_slots, 1);
        CHECK_INT(r.class_parameter[SLOT_F32], 1);
        CHECK_INT(r.random_parameter, -1);
        CHECK_INT(r.slots[0].node, 0);
        CHECK_INT(r.slots[0].arg, 1);
        CHECK(strstr(strbuf_text(&text), "tf.aliasing_output = 0") != NULL);
    }
    lower_request_free(&r);
    strbuf_free(&text);
    graph_destroy(outer);
    graph_destroy(g);
}

/* Two random nodes, one in a sub-graph: one parameter of two words. */
static void test_random(void) {
    int64_t n = 8;
    tensor_type t = {DTYPE_U32, 1, &n};
    graph *inner = graph_create(), *g = graph_create();
    graph_output(inner, graph_call(inner, &row_bits, 0, NULL, 1, &t));
    graph_output(g, graph_call(g, &row_bits, 0, NULL, 1, &t));
    graph_output(g, graph_call_graph(g, inner, 0, NULL));
    CHECK_INT(graph_random_count(g), 2);
    strbuf text;
    strbuf_init(&text);
    lower_request r;
    lower_request_init(&r, HLO_PRECISION_DEFAULT);
    if (CHECK_OK(graph_lower(g, "p", &r, NULL, &text))) {
        CHECK_INT(r.random_parameter, 0);
        CHECK(strstr(strbuf_text(&text), "tensor<2xui64>") != NULL);
    }
    lower_request_free(&r);
    strbuf_free(&text);
    graph_destroy(g);
    graph_destroy(inner);
}

static void lower_pick(lowering *l) {
    check_index(l, arg_tensor(l, 0), 5, true, NULL);
    result_set(l, 0, arg_tensor(l, 0));
}
static const op_row row_pick = {.name = "test::pick", .lower = lower_pick};

static const int64_t three = 3;
static const tensor_type picked = {DTYPE_I64, 1, &three};

static int32_t pick(graph *g, int32_t from) {
    argument a = {.tag = ARG_VALUE, .u.value = from};
    return graph_call(g, &row_pick, 1, &a, 1, &picked);
}

/* The code of the indices is a result more where it is asked for, one for all operators of the program, those in
 * branches and loops too; nothing is said of the condition of a loop. */
static void test_indices(void) {
    graph *g = graph_create(), *inner = graph_create(), *branches = graph_create();
    graph_output(inner, pick(inner, graph_input(inner, DTYPE_I64, 1, &three)));
    int32_t x = graph_input(g, DTYPE_I64, 1, &three);
    int32_t first = pick(g, x);
    graph_output(g, graph_call_graph(g, inner, 1, &first));
    int32_t which = graph_input(branches, DTYPE_I32, 0, NULL), y = graph_input(branches, DTYPE_I64, 1, &three);
    graph *both[2] = {inner, inner};
    /* Branches that look at no index have no code. */
    graph *same = graph_create(), *plain = graph_create(), *neither[2] = {same, same};
    graph_output(same, graph_input(same, DTYPE_I64, 1, &three));
    int32_t choice = graph_input(plain, DTYPE_I32, 0, NULL), z = graph_input(plain, DTYPE_I64, 1, &three);
    graph_output(plain, graph_call_case(plain, choice, 2, neither, 1, &z));
    graph_output(branches, graph_call_case(branches, which, 2, both, 1, &y));
    for (int asked = 0; asked < 2; asked++) {
        strbuf text;
        strbuf_init(&text);
        lower_request r;
        lower_request_init(&r, HLO_PRECISION_DEFAULT);
        r.check_indices = asked;
        if (CHECK_OK(graph_lower(g, "p", &r, NULL, &text))) {
            CHECK_INT(r.has_code, asked);
            CHECK((strstr(strbuf_text(&text), "-> (tensor<3xi64>, tensor<i32>)") != NULL) == asked);
            CHECK((strstr(strbuf_text(&text), "maximum") != NULL) == asked);
        }
        strbuf_clear(&text);
        if (CHECK_OK(graph_lower(branches, "p", &r, NULL, &text))) CHECK_INT(r.has_code, asked);
        strbuf_clear(&text);
        if (CHECK_OK(graph_lower(plain, "p", &r, NULL, &text))) CHECK(!r.has_code);
        lower_request_free(&r);
        strbuf_free(&text);
    }
    graph_destroy(branches);
    graph_destroy(plain);
    graph_destroy(same);
    graph_destroy(g);
    graph_destroy(inner);
}

/* Each allocation of building and lowering fails once: an error, no crash, nothing leaked. */
static void test_no_memory(void) {
    long live = mem_live_count();
    for (long n = 1; n < 400; n++) {
        mem_fail_after(n);
        graph *g = example(2);
        strbuf text;
        strbuf_init(&text);
        lower_request r;
        lower_request_init(&r, HLO_PRECISION_DEFAULT);
        status *s = g ? graph_lower(g, "p", &r, NULL, &text) : status_no_memory();
        mem_fail_after(0);
        if (s) CHECK(status_get_code(s) == STATUS_OUT_OF_MEMORY || status_get_code(s) == STATUS_INTERNAL);
        status_free(s);
        lower_request_free(&r);
        strbuf_free(&text);
        graph_destroy(g);
    }
    CHECK_INT(mem_live_count(), live);
}

int main(void) {
    test_keys();
    test_types();
    test_errors();
    test_lowering();
    test_random();
    test_indices();
    test_no_memory();
    return check_report();
}
