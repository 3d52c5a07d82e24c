/* Wrong operands are statuses that name the operation and the operand; no memory is one too; nothing leaks. */
#include "base/alloc.h"
#include "program.h"

static hlo_builder *b;
static hlo_value f, g, n, m, z, s, ix,
    flags; /* f32[2,3], f32[4], i32[2,3], f32[3,3], complex<f32>[2], f32[], i32[], i1[2,3] */
static hlo_value r[4];
static hlo_region *region;

static void begin(void) {
    b = hlo_create();
    f = hlo_parameter(b, DTYPE_F32, 2, DIMS(2, 3));
    g = hlo_parameter(b, DTYPE_F32, 1, DIMS(4));
    n = hlo_parameter(b, DTYPE_I32, 2, DIMS(2, 3));
    m = hlo_parameter(b, DTYPE_F32, 2, DIMS(3, 3));
    z = hlo_parameter(b, DTYPE_C64, 1, DIMS(2));
    s = hlo_parameter(b, DTYPE_F32, 0, NULL);
    ix = hlo_parameter(b, DTYPE_I32, 0, NULL);
    flags = hlo_parameter(b, DTYPE_BOOL, 2, DIMS(2, 3));
    memset(r, 0, sizeof r);
}

/* The error stays, what follows gives NULL, and the whole program becomes that status. */
static void end(status_code code, const char *text, hlo_value result, const char *what, int line) {
    const status *e = hlo_status(b);
    if (!e || result || status_get_code(e) != code || !strstr(status_message(e), text)) {
        check_failures++;
        printf("line %d: %s gave code %d, \"%s\"; expected code %d and \"%s\"\n", line, what,
               e ? (int)status_get_code(e) : -1, e ? status_message(e) : "no error", (int)code, text);
    }
    CHECK(hlo_add(b, f, f) == NULL && hlo_parameter(b, DTYPE_F32, 0, NULL) == NULL &&
          hlo_scalar(b, DTYPE_F32, 1) == NULL);
    strbuf out;
    strbuf_init(&out);
    CHECK_FAILS(hlo_finish(b, "refused", 1, &f, &out), code, text);
    CHECK_INT(out.size, 0);
    strbuf_free(&out);
    hlo_destroy(b);
}

#define REFUSED(code, text, ...)                                    \
    do {                                                            \
        begin();                                                    \
        hlo_value refused_ = (__VA_ARGS__);                         \
        end(STATUS_##code, text, refused_, #__VA_ARGS__, __LINE__); \
    } while (0)

static hlo_region *region_of(hlo_binary_fn function, dtype t) {
    hlo_type scalar = {t, 0, NULL};
    hlo_value a[2];
    hlo_region_begin(b, 2, (hlo_type[]){scalar, scalar}, a);
    hlo_value v = function(b, a[0], a[1]);
    return hlo_region_end(b, 1, &v);
}

static hlo_region *region_without_arguments(hlo_value result) {
    hlo_region_begin(b, 0, NULL, NULL);
    return hlo_region_end(b, result != NULL, &result);
}

static void test_elementwise(void) {
#define X(name) REFUSED(TYPE, #name ": operand 0, i1[2,3]", hlo_##name(b, flags));
    /* clang-format off */
    X(abs) X(cbrt) X(ceil) X(cosine) X(count_leading_zeros) X(exponential) X(exponential_minus_one) X(floor)
    X(is_finite) X(log) X(log_plus_one) X(logistic) X(negate) X(popcnt) X(round_nearest_afz)
    X(round_nearest_even) X(rsqrt) X(sign) X(sine) X(sqrt) X(tan) X(tanh) X(acos) X(acosh) X(asin) X(asinh)
    X(atan) X(atanh) X(bessel_i1e) X(cosh) X(digamma) X(erf) X(erf_inv) X(erfc) X(is_inf) X(is_neg_inf)
    X(is_pos_inf) X(lgamma) X(sinh)
    /* clang-format on */
#undef X
                    REFUSED(TYPE, "stablehlo.not: operand 0, f32[2,3]", hlo_not(b, f));
    REFUSED(TYPE, "chlo.erf: operand 0, complex<f32>[2]", hlo_erf(b, z));
#define X(name) REFUSED(TYPE, #name ": operand 1 is i32[2,3], expected f32", hlo_##name(b, f, n));
    /* clang-format off */
    X(add) X(atan2) X(complex) X(divide) X(maximum) X(minimum) X(multiply) X(power) X(remainder) X(subtract)
    X(next_after) X(polygamma) X(zeta)
    /* clang-format on */
#undef X
#define X(name) REFUSED(TYPE, #name ": operand 0, f32[2,3]", hlo_##name(b, f, f));
        /* clang-format off */
    X(and) X(or) X(xor) X(shift_left) X(shift_right_arithmetic) X(shift_right_logical)
    /* clang-format on */
#undef X
            REFUSED(RUNTIME, "stablehlo.add: the size of operand 1, f32[4], in dimension 0 must match the size 3",
                    hlo_add(b, f, g));
    REFUSED(TYPE, "compare: operand 1", hlo_eq(b, f, n));
    REFUSED(TYPE, "compare: operand 0, complex<f32>[2]", hlo_lt(b, z, z));
    REFUSED(TYPE, "select: operand 0", hlo_select(b, f, f, f));
    REFUSED(TYPE, "select: operand 2", hlo_select(b, flags, f, n));
    REFUSED(RUNTIME, "select: the size of operand 1", hlo_select(b, flags, g, s));
    REFUSED(TYPE, "clamp: operand 0", hlo_clamp(b, ix, f, s));
    REFUSED(TYPE, "clamp: operand 2", hlo_clamp(b, s, f, ix));
    REFUSED(TYPE, "clamp: operand 1", hlo_clamp(b, z, z, z));
    REFUSED(INTERNAL, "convert: operand 0", hlo_convert(b, f, DTYPE_INVALID));
    REFUSED(RUNTIME, "bitcast_convert: operand 0, f32[2,3], to f64", hlo_bitcast_convert(b, f, DTYPE_F64));
    REFUSED(RUNTIME, "bitcast_convert: operand 0, f32[2,3]", hlo_bitcast_convert(b, f, DTYPE_C64));
    REFUSED(TYPE, "reduce_precision: operand 0, i32[2,3]", hlo_reduce_precision(b, n, 8, 7));
    REFUSED(VALUE, "reduce_precision: 0 exponent bits", hlo_reduce_precision(b, f, 0, 7));
}

static void test_shape(void) {
    REFUSED(RUNTIME, "broadcast_in_dim: dimension 1 of operand 0, f32[2,3], cannot become 4",
            hlo_broadcast_in_dim(b, f, 2, DIMS(2, 4), DIMS(0, 1)));
    REFUSED(INDEX, "broadcast dimensions hold 2", hlo_broadcast_in_dim(b, f, 2, DIMS(2, 3), DIMS(0, 2)));
    REFUSED(RUNTIME, "broadcast dimensions hold 0 twice", hlo_broadcast_in_dim(b, f, 2, DIMS(2, 3), DIMS(0, 0)));
    REFUSED(RUNTIME, "to only 1 dimensions", hlo_broadcast_to(b, f, 1, DIMS(3)));
    REFUSED(RUNTIME, "reshape: operand 0, f32[2,3], cannot become f32[4]", hlo_reshape(b, f, 1, DIMS(4)));
    REFUSED(RUNTIME, "reshape", hlo_reshape(b, f, 3, DIMS(INT64_MAX, INT64_MAX, 2)));
    REFUSED(NOT_IMPLEMENTED, "reshape: a result of 65 dimensions", hlo_reshape(b, f, 65, f->dims));
    REFUSED(RUNTIME, "transpose: the permutation's entries hold 1 twice", hlo_transpose(b, f, DIMS(1, 1)));
    REFUSED(INDEX, "slice: [1:4:1] in dimension 1 of operand 0", hlo_slice_dim(b, f, 1, 1, 4, 1));
    REFUSED(INDEX, "slice: [1:2:0] in dimension 1", hlo_slice_dim(b, f, 1, 1, 2, 0));
    REFUSED(INDEX, "slice: dimension 2 of operand 0", hlo_slice_dim(b, f, 2, 0, 1, 1));
    REFUSED(TYPE, "pad: operand 1", hlo_pad(b, f, ix, DIMS(0, 0), DIMS(0, 0), NULL));
    REFUSED(RUNTIME, "pad: operand 1, f32[4], must be a scalar", hlo_pad(b, f, g, DIMS(0, 0), DIMS(0, 0), NULL));
    REFUSED(RUNTIME, "pad: (-3, 0, 0) in dimension 0", hlo_pad(b, f, s, DIMS(-3, 0), DIMS(0, 0), NULL));
    REFUSED(RUNTIME, "concatenate: operand 1, f32[3,3]", hlo_concatenate(b, 2, (hlo_value[]){f, m}, 1));
    REFUSED(TYPE, "concatenate: operand 1", hlo_concatenate(b, 2, (hlo_value[]){f, n}, 0));
    REFUSED(INDEX, "concatenate: dimension -1", hlo_concatenate(b, 2, (hlo_value[]){f, f}, -1));
    REFUSED(INTERNAL, "concatenate: no operands", hlo_concatenate(b, 0, NULL, 0));
    REFUSED(INDEX, "reverse: dimensions hold 5", hlo_reverse(b, f, 1, DIMS(5)));
    REFUSED(RUNTIME, "squeeze: dimension 1 of operand 0, f32[2,3], is not 1", hlo_squeeze_dim(b, f, 1));
    REFUSED(INDEX, "unsqueeze: dimension 3", hlo_unsqueeze_dim(b, f, 3));
    REFUSED(TYPE, "dynamic_slice: operand 2", hlo_dynamic_slice(b, f, (hlo_value[]){ix, s}, DIMS(1, 1)));
    REFUSED(INDEX, "dynamic_slice: 4 elements of dimension 1",
            hlo_dynamic_slice(b, f, (hlo_value[]){ix, ix}, DIMS(1, 4)));
    REFUSED(TYPE, "dynamic_update_slice: operand 1", hlo_dynamic_update_slice(b, f, n, (hlo_value[]){ix, ix}));
    REFUSED(RUNTIME, "dynamic_update_slice: operand 1, f32[4]",
            hlo_dynamic_update_slice(b, f, g, (hlo_value[]){ix, ix}));
    REFUSED(INDEX, "dynamic_update_slice: 3 elements of dimension 0",
            hlo_dynamic_update_slice(b, f, m, (hlo_value[]){ix, ix}));
    REFUSED(INDEX, "iota: dimension 1", hlo_iota(b, DTYPE_I32, 1, DIMS(3), 1));
    REFUSED(TYPE, "complex64 has no smallest", hlo_min_value(b, DTYPE_C64));
    REFUSED(RUNTIME, "the negative size -1 in dimension 0", hlo_constant_int(b, DTYPE_I32, 1, DIMS(-1), 0));
    REFUSED(RUNTIME, "is too large", hlo_constant_int(b, DTYPE_I32, 2, DIMS((int64_t)1 << 40, (int64_t)1 << 40), 0));
    REFUSED(NOT_IMPLEMENTED, "a value of 65 dimensions", hlo_constant_int(b, DTYPE_I32, 65, DIMS(1), 0));
    REFUSED(INTERNAL, "without an element type", hlo_parameter(b, DTYPE_INVALID, 0, NULL));
}

static void test_contraction(void) {
    hlo_dot_dims d = {.n_contract = 1, .lhs_contract = {1}, .rhs_contract = {0}}, wrong = d, twice = d;
    wrong.lhs_contract[0] = 0;
    twice.n_batch = 1;
    twice.lhs_batch[0] = 1;
    REFUSED(TYPE, "dot_general: operand 1", hlo_dot_general(b, f, n, &d, DTYPE_F32));
    REFUSED(RUNTIME,
            "dot_general: contracting dimension 0 of operand 0, f32[2,3], and 0 of operand 1, f32[3,3], differ",
            hlo_dot_general(b, f, m, &wrong, DTYPE_F32));
    REFUSED(RUNTIME, "dot_general: dimensions of operand 0 hold 1 twice", hlo_dot_general(b, f, m, &twice, DTYPE_F32));
    REFUSED(INDEX, "dot_general: dimensions of operand 0 hold 1", hlo_dot_general(b, g, m, &d, DTYPE_F32));
    hlo_convolution_dims c, strided, grouped, misplaced;
    hlo_convolution_dims_init(&c, 0);
    strided = grouped = misplaced = c;
    grouped.feature_groups = 2;
    misplaced.lhs_feature = 0;
    hlo_convolution_dims_init(&strided, 1);
    strided.stride[0] = 0;
    REFUSED(RUNTIME, "convolution: operand 1, f32[4], must have 2 dimensions", hlo_convolution(b, f, g, &c, DTYPE_F32));
    REFUSED(TYPE, "convolution: operand 1", hlo_convolution(b, f, n, &c, DTYPE_F32));
    REFUSED(RUNTIME, "do not fit 2 feature groups", hlo_convolution(b, f, m, &grouped, DTYPE_F32));
    REFUSED(INTERNAL, "convolution: dimensions 0 and 0 of operand 0", hlo_convolution(b, f, m, &misplaced, DTYPE_F32));
    REFUSED(RUNTIME, "convolution: stride 0",
            hlo_convolution(b, hlo_unsqueeze_dim(b, f, 2), hlo_unsqueeze_dim(b, m, 2), &strided, DTYPE_F32));
    hlo_convolution_dims_init(&c, 6);
    c.spatial = 7;
    REFUSED(NOT_IMPLEMENTED, "convolution: 7 spatial", hlo_convolution(b, f, m, &c, DTYPE_F32));
}

static void test_regions(void) {
    hlo_window w, dilated;
    hlo_window_init(&w, 2);
    dilated = w;
    dilated.window_dilation[1] = 2;
    REFUSED(TYPE, "stablehlo.and: operand 0, f32[]", hlo_reduce(b, HLO_REDUCE_AND, f, 1, DIMS(0)));
    REFUSED(INDEX, "reduce: dimensions hold 2", hlo_reduce(b, HLO_REDUCE_ADD, f, 1, DIMS(2)));
    REFUSED(TYPE, "has no smallest", hlo_reduce(b, HLO_REDUCE_MAXIMUM, z, 1, DIMS(0)));
    REFUSED(INTERNAL, "reduce: argument 0 of the body is i32[], expected f32[]",
            (region = region_of(hlo_add, DTYPE_I32), hlo_reduce_region(b, 1, &f, &s, 1, DIMS(0), region, r), r[0]));
    REFUSED(INTERNAL, "reduce: result 0 of the body is i1[], expected f32[]",
            (region = region_of(hlo_lt, DTYPE_F32), hlo_reduce_region(b, 1, &f, &s, 1, DIMS(0), region, r), r[0]));
    REFUSED(RUNTIME, "reduce: the initial value 0, i32[]",
            (region = region_of(hlo_add, DTYPE_F32), hlo_reduce_region(b, 1, &f, &ix, 1, DIMS(0), region, r), r[0]));
    REFUSED(RUNTIME, "reduce: operand 1, f32[4], has not the shape",
            (region = region_of(hlo_add, DTYPE_F32),
             hlo_reduce_region(b, 2, (hlo_value[]){f, g}, (hlo_value[]){s, s}, 1, DIMS(0), region, r), r[0]));
    REFUSED(RUNTIME, "reduce_window: window 0", (w.window[0] = 0, hlo_reduce_window(b, HLO_REDUCE_ADD, f, &w)));
    w.window[0] = 1;
    REFUSED(RUNTIME, "select_and_scatter: operand 1, f32[3,3], must be f32[2,3]",
            hlo_select_and_scatter(b, f, m, s, &w, region_of(hlo_ge, DTYPE_F32), region_of(hlo_add, DTYPE_F32)));
    REFUSED(NOT_IMPLEMENTED, "select_and_scatter: a dilated window",
            hlo_select_and_scatter(b, f, f, s, &dilated, region_of(hlo_ge, DTYPE_F32), region_of(hlo_add, DTYPE_F32)));
    REFUSED(INTERNAL, "select_and_scatter: result 0 of the select region",
            hlo_select_and_scatter(b, f, f, s, &w, region_of(hlo_add, DTYPE_F32), region_of(hlo_add, DTYPE_F32)));
    REFUSED(INDEX, "sort: dimension 2 of operand 0",
            (hlo_sort(b, 1, &f, 2, true, region_of(hlo_lt, DTYPE_F32), r), r[0]));
    REFUSED(INTERNAL, "sort: the comparator has 2 arguments, expected 4",
            (hlo_sort(b, 2, (hlo_value[]){f, n}, 0, true, region_of(hlo_lt, DTYPE_F32), r), r[0]));
    REFUSED(RUNTIME, "top_k: the 4 largest of the last dimension of operand 0, f32[2,3]",
            (hlo_top_k(b, f, 4, &r[0], &r[1]), r[0]));
    REFUSED(TYPE, "top_k: operand 0, complex", (hlo_top_k(b, z, 1, &r[0], &r[1]), r[0]));
    REFUSED(INTERNAL, "while: the condition has 0 arguments, expected 1",
            (hlo_while(b, 1, &s, region_without_arguments(hlo_lt(b, s, s)), region_without_arguments(s), r), r[0]));
    REFUSED(TYPE, "case: operand 0, f32[]",
            (region = region_without_arguments(s), hlo_case(b, s, 1, &region, 1, r), r[0]));
    REFUSED(INTERNAL, "case: branch 0 has 1 results, expected 2",
            (region = region_without_arguments(s), hlo_case(b, ix, 1, &region, 2, r), r[0]));
    REFUSED(INTERNAL, "case: no branches", (hlo_case(b, ix, 0, NULL, 0, r), r[0]));
}

/* Values stay in their regions. */
static void test_scopes(void) {
    hlo_type scalar = {DTYPE_F32, 0, NULL};
    begin();
    hlo_value a[2], sum;
    hlo_region_begin(b, 2, (hlo_type[]){scalar, scalar}, a);
    sum = hlo_add(b, a[0], s); /* s is from outside */
    region = hlo_region_end(b, 1, &sum);
    hlo_reduce_region(b, 1, &f, &s, 1, DIMS(0), region, r);
    end(STATUS_INTERNAL, "reduce: region 0 uses a value from outside", r[0], "capture", __LINE__);
    begin();
    region_of(hlo_add, DTYPE_F32);
    hlo_region_begin(b, 2, (hlo_type[]){scalar, scalar}, a);
    region = hlo_region_end(b, 1, a);
    end(STATUS_INTERNAL, "operand 0 is a value of a region that has ended", hlo_negate(b, a[0]), "escape", __LINE__);
    begin();
    hlo_region_begin(b, 1, &scalar, a);
    strbuf out;
    strbuf_init(&out);
    CHECK_FAILS(hlo_finish(b, "open", 1, &f, &out), STATUS_INTERNAL, "a region was not ended");
    hlo_destroy(b);
    begin();
    CHECK(hlo_region_end(b, 0, NULL) == NULL);
    end(STATUS_INTERNAL, "an end without a begin", NULL, "hlo_region_end", __LINE__);
    begin();
    CHECK_FAILS(hlo_finish(b, "nothing", 1, r, &out), STATUS_INTERNAL, "result 0 has no value");
    hlo_destroy(b);
    strbuf_free(&out);
}

static void test_indices(void) {
    hlo_gather_dims d = {.n_offset = 1,
                         .n_collapsed = 1,
                         .n_start_map = 1,
                         .offset_dims = {1},
                         .index_vector_dim = 1,
                         .slice_sizes = {1, 3}};
    hlo_gather_dims large = d, many = d, batch = d;
    large.slice_sizes[1] = 4;
    many.n_offset = 2;
    many.offset_dims[1] = 2;
    batch.n_operand_batch = 1;
    batch.operand_batch_dims[0] = 1;
#define INDICES hlo_constant_ints(b, DTYPE_I32, 2, DIMS(0, 1))
    REFUSED(TYPE, "gather: operand 1, f32[4], must hold integers", hlo_gather(b, f, g, &d));
    REFUSED(INTERNAL, "gather: operand 1, i32[2,3], must hold vectors of 1 indices", hlo_gather(b, f, n, &d));
    REFUSED(INDEX, "gather: a slice of 4 in dimension 1 of operand 0", hlo_gather(b, f, INDICES, &large));
    REFUSED(INTERNAL, "gather: 2 offset dimensions", hlo_gather(b, f, INDICES, &many));
    REFUSED(RUNTIME, "gather: batching dimension 1 of operand 0, f32[2,3], and 0 of operand 1, i32[2], differ",
            hlo_gather(b, f, INDICES, &batch));
    hlo_scatter_dims rows = {
        .n_window = 1, .n_inserted = 1, .n_scatter_map = 1, .update_window_dims = {1}, .index_vector_dim = 1};
#define SCATTER(operand, indices, update, t) \
    (hlo_scatter(b, 1, &operand, indices, &update, &rows, region_of(hlo_add, t), r), r[0])
    REFUSED(RUNTIME, "scatter: operand 2, the update f32[3,3], does not fit", SCATTER(f, INDICES, m, DTYPE_F32));
    REFUSED(TYPE, "scatter: operand 2 is i32[2,3]", SCATTER(f, INDICES, n, DTYPE_F32));
    REFUSED(TYPE, "scatter: operand 1, f32[4]", SCATTER(f, g, f, DTYPE_F32));
    REFUSED(INTERNAL, "scatter: argument 0 of the body", SCATTER(f, INDICES, f, DTYPE_F64));
}

static void test_rest(void) {
    hlo_type type = {DTYPE_F32, 0, NULL};
    REFUSED(RUNTIME, "cholesky: operand 0, f32[2,3], must be square", hlo_cholesky(b, f, true));
    REFUSED(TYPE, "cholesky: operand 0, i32[2,3]", hlo_cholesky(b, n, true));
    REFUSED(RUNTIME, "triangular_solve: operand 1, f32[2,3]", hlo_triangular_solve(b, m, f, true, true, false, 0));
    REFUSED(RUNTIME, "triangular_solve", hlo_triangular_solve(b, m, m, true, true, false, 3));
    REFUSED(TYPE, "fft: operand 0, f32[4]", hlo_fft(b, g, HLO_FFT, 1, DIMS(4)));
    REFUSED(TYPE, "fft: operand 0, complex", hlo_fft(b, z, HLO_RFFT, 1, DIMS(2)));
    REFUSED(RUNTIME, "fft: dimension 0 of operand 0, f32[4], must be 5", hlo_fft(b, g, HLO_RFFT, 1, DIMS(5)));
    REFUSED(RUNTIME, "fft: 2 dimensions", hlo_fft(b, g, HLO_RFFT, 2, DIMS(1, 4)));
    REFUSED(TYPE, "rng_bit_generator: operand 0, f32[4]",
            (hlo_rng_bit_generator(b, g, DTYPE_U32, 0, NULL, &r[0], &r[1]), r[0]));
    REFUSED(
        TYPE, "rng_bit_generator: bits of type i32",
        (hlo_rng_bit_generator(b, hlo_parameter(b, DTYPE_U64, 1, DIMS(2)), DTYPE_I32, 0, NULL, &r[0], &r[1]), r[0]));
    REFUSED(INTERNAL, "donation of parameter 99", (hlo_parameter_donate(b, 99, 0), NULL));
    REFUSED(VALUE, "aten::thing: bad thing 7",
            (hlo_set_context(b, "aten::thing"), hlo_fail(b, STATUS_VALUE, "bad thing %d", 7)));
    begin();
    hlo_custom_call(b, "with \"quotes\"", "{a = 1 : i64}", true, 1, &f, 1, &type, r);
    strbuf out;
    strbuf_init(&out);
    CHECK_OK(hlo_finish(b, "custom call", 1, r, &out));
    CHECK(NULL != strstr(strbuf_text(&out),
                         "call_target_name = \"with \\22quotes\\22\", has_side_effect = true, backend_config = {a = 1 "
                         ": i64}, api_version = 4 : i32"));
    strbuf_free(&out);
    hlo_destroy(b);
}

/* Donations that the program cannot honour. */
static void test_donations(void) {
    strbuf out;
    strbuf_init(&out);
    begin();
    hlo_parameter_donate(b, 0, 1);
    CHECK_FAILS(hlo_finish(b, "few", 1, &f, &out), STATUS_INTERNAL, "parameter 0 is donated to result 1 of 1");
    hlo_destroy(b);
    begin();
    hlo_parameter_donate(b, 0, 0);
    CHECK_FAILS(hlo_finish(b, "other", 1, &g, &out), STATUS_INTERNAL,
                "parameter 0 (f32[2,3]) is donated to result 0 (f32[4])");
    hlo_destroy(b);
    begin();
    hlo_parameter(b, DTYPE_F32, 2, DIMS(2, 3));
    hlo_parameter_donate(b, 0, 0);
    hlo_parameter_donate(b, 8, 0);
    CHECK_FAILS(hlo_finish(b, "twice", 1, &f, &out), STATUS_INTERNAL, "two parameters are donated to result 0");
    hlo_parameter_donate(b, 8, -1);
    hlo_destroy(b);
    strbuf_free(&out);
}

/* NULL operands give NULL and no error of their own. */
static void test_null_operands(void) {
    begin();
#define X(name) CHECK(hlo_##name(b, NULL) == NULL);
    HLO_UNARY_TABLE(X)
    HLO_CHLO_UNARY_TABLE(X)
#undef X
#define X(name) CHECK(hlo_##name(b, f, NULL) == NULL && hlo_##name(b, NULL, f) == NULL);
    HLO_BINARY_TABLE(X)
    HLO_CHLO_BINARY_TABLE(X)
    /* clang-format off */
    X(eq) X(ne) X(ge) X(gt) X(le) X(lt)
    /* clang-format on */
#undef X
        hlo_window w;
    hlo_window_init(&w, 2);
    hlo_dot_dims d = {0};
    hlo_convolution_dims c;
    hlo_convolution_dims_init(&c, 0);
    hlo_gather_dims gather = {0};
    hlo_scatter_dims scatter = {0};
    hlo_value none = NULL;
    hlo_value values[] = {hlo_select(b, flags, f, NULL),
                          hlo_clamp(b, NULL, f, s),
                          hlo_convert(b, NULL, DTYPE_F32),
                          hlo_bitcast_convert(b, NULL, DTYPE_F32),
                          hlo_reduce_precision(b, NULL, 8, 7),
                          hlo_is_nan(b, NULL),
                          hlo_like(b, NULL, 0),
                          hlo_broadcast_in_dim(b, NULL, 0, NULL, NULL),
                          hlo_broadcast_to(b, NULL, 0, NULL),
                          hlo_reshape(b, NULL, 0, NULL),
                          hlo_transpose(b, NULL, NULL),
                          hlo_slice(b, NULL, NULL, NULL, NULL),
                          hlo_slice_dim(b, NULL, 0, 0, 1, 1),
                          hlo_pad(b, f, NULL, NULL, NULL, NULL),
                          hlo_concatenate(b, 1, &none, 0),
                          hlo_reverse(b, NULL, 0, NULL),
                          hlo_squeeze_dim(b, NULL, 0),
                          hlo_unsqueeze_dim(b, NULL, 0),
                          hlo_dynamic_slice(b, g, &none, DIMS(1)),
                          hlo_dynamic_update_slice(b, g, g, &none),
                          hlo_dot_general(b, f, NULL, &d, DTYPE_F32),
                          hlo_convolution(b, NULL, f, &c, DTYPE_F32),
                          hlo_reduce(b, HLO_REDUCE_ADD, NULL, 0, NULL),
                          hlo_reduce_window(b, HLO_REDUCE_ADD, NULL, &w),
                          hlo_select_and_scatter(b, f, f, s, &w, NULL, NULL),
                          hlo_gather(b, f, NULL, &gather),
                          hlo_cholesky(b, NULL, true),
                          hlo_triangular_solve(b, m, NULL, true, true, true, 0),
                          hlo_fft(b, NULL, HLO_FFT, 0, NULL)};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) CHECK(values[i] == NULL);
#define NONE(call) (r[0] = r[1] = f, call, CHECK(r[0] == NULL))
    NONE(hlo_reduce_region(b, 1, &f, &s, 0, NULL, NULL, r));
    NONE(hlo_reduce_window_region(b, 1, &f, &none, &w, NULL, r));
    NONE(hlo_sort(b, 1, &f, 0, true, NULL, r));
    NONE(hlo_top_k(b, NULL, 1, &r[0], &r[1]));
    NONE(hlo_scatter(b, 1, &f, NULL, &f, &scatter, NULL, r));
    NONE(hlo_while(b, 1, &f, NULL, NULL, r));
    NONE(hlo_case(b, NULL, 0, NULL, 1, r));
    NONE(hlo_case(b, ix, 1, (hlo_region *[]){NULL}, 1, r));
    NONE(hlo_rng_bit_generator(b, NULL, DTYPE_U32, 0, NULL, &r[0], &r[1]));
    NONE(hlo_optimization_barrier(b, 1, &none, r));
    NONE(hlo_custom_call(b, "x", NULL, false, 1, &none, 1, &(hlo_type){DTYPE_F32, 0, NULL}, r));
    hlo_type scalar = {DTYPE_F32, 0, NULL};
    hlo_region_begin(b, 1, &scalar, r);
    CHECK(hlo_region_end(b, 1, &none) == NULL);
    CHECK(hlo_element_count(NULL) == 0 && !hlo_same_shape(NULL, f) && !hlo_same_shape(f, NULL));
    CHECK(hlo_status(b) == NULL);
    hlo_destroy(b);
}

/* ---- no memory ---- */

/* Something of everything that allocates; long enough to fill several blocks. */
static void build_all(void) {
    hlo_type scalar = {DTYPE_F32, 0, NULL};
    f = hlo_parameter(b, DTYPE_F32, 2, DIMS(2, 3));
    hlo_parameter_donate(b, 0, 0);
    hlo_value x = f, many[64], pair[2], results[2];
    for (int i = 0; i < 40; i++) x = hlo_add(b, hlo_select(b, hlo_lt(b, x, f), hlo_scalar(b, DTYPE_F32, 0.1), x), f);
    for (int i = 0; i < 64; i++) many[i] = x;
    x = hlo_slice(b, hlo_concatenate(b, 64, many, 0), DIMS(0, 0), DIMS(2, 3), NULL);
    x = hlo_broadcast_to(b, hlo_reduce(b, HLO_REDUCE_ADD, x, 1, DIMS(0)), 2, DIMS(2, 3));
    hlo_sort(b, 1, &x, 1, true, region_of(hlo_lt, DTYPE_F32), &x);
    hlo_top_k(b, x, 3, &pair[0], &pair[1]);
    hlo_region_begin(b, 1, &scalar, results);
    hlo_value small = hlo_lt(b, results[0], hlo_scalar(b, DTYPE_F32, 10));
    hlo_region *condition = hlo_region_end(b, 1, &small);
    hlo_region_begin(b, 1, &scalar, results);
    results[0] = hlo_add(b, results[0], hlo_scalar(b, DTYPE_F32, 3));
    hlo_region *body = hlo_region_end(b, 1, results);
    hlo_value zero = hlo_scalar(b, DTYPE_F32, 0), last;
    hlo_while(b, 1, &zero, condition, body, &last);
    region = region_without_arguments(last);
    hlo_case(b, hlo_constant_int(b, DTYPE_I32, 0, NULL, 0), 1, &region, 1, &last);
    hlo_optimization_barrier(b, 1, &last, &last);
    hlo_scatter_dims rows = {
        .n_window = 1, .n_inserted = 1, .n_scatter_map = 1, .update_window_dims = {1}, .index_vector_dim = 1};
    hlo_value indices = hlo_constant_ints(b, DTYPE_I32, 2, DIMS(0, 1));
    hlo_scatter(b, 1, &x, indices, &f, &rows, region_of(hlo_add, DTYPE_F32), &x);
    r[0] = x;
    r[1] = last;
    r[2] = pair[1];
}

static void test_no_memory(void) {
    int succeeded = 0, failed = 0;
    for (long k = 1; succeeded < 3 && k < 1000; k++) {
        long live = mem_live_count();
        strbuf out;
        strbuf_init(&out);
        mem_fail_after(k);
        b = hlo_create();
        if (b) hlo_set_context(b, "aten::all");
        if (b) build_all();
        status *e = b ? hlo_finish(b, "all", 3, r, &out) : status_no_memory();
        mem_fail_after(0);
        if (e) {
            failed++;
            CHECK_INT(status_get_code(e), STATUS_OUT_OF_MEMORY);
        } else {
            succeeded++;
        }
        status_free(e);
        hlo_destroy(b);
        strbuf_free(&out);
        CHECK_INT(mem_live_count(), live);
    }
    CHECK_INT(succeeded, 3);
    CHECK(failed > 10);
}

int main(void) {
    long live = mem_live_count();
    test_elementwise();
    test_shape();
    test_contraction();
    test_regions();
    test_scopes();
    test_indices();
    test_rest();
    test_donations();
    test_null_operands();
    test_no_memory();
    CHECK_INT(mem_live_count(), live);
    return check_report();
}
