/* Calls on storages against a real plugin: views, writes through views, numbers that vary, donation, threads, errors.
 * Expected values are computed here. TORCH_TPU_TEST_PLUGIN names the plugin; without it the test is skipped. */
#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/tests/check.h"
#include "exec/internal.h"

static const op_row row_add = {.name = "test::add", .binary = hlo_add, .promote = PROMOTE};
static void lower_scale(lowering *l) {
    hlo_value x = arg_tensor(l, 0);
    if (x) result_set(l, 0, hlo_multiply(lower_builder(l), x, arg_number(l, 1, x->dtype)));
}
static const op_row row_scale = {.name = "test::scale", .lower = lower_scale};
static void lower_power(lowering *l) {
    hlo_builder *b = lower_builder(l);
    double n;
    hlo_value x = arg_tensor(l, 0), y = x;
    if (!arg_constant(l, 1, &n)) return;
    for (int i = 1; i < (int)n; i++) y = hlo_multiply(b, y, x);
    result_set(l, 0, y);
}
static const op_row row_power = {.name = "test::power", .lower = lower_power};
static void lower_wrong(lowering *l) { hlo_fail(lower_builder(l), STATUS_RUNTIME, "this operator always fails"); }
static const op_row row_wrong = {.name = "test::wrong", .lower = lower_wrong};
static void lower_bits(lowering *l) {
    result_set(l, 0, random_bits(l, DTYPE_U32, result_rank(l, 0), result_dims(l, 0)));
}
static const op_row row_bits = {.name = "test::bits", .lower = lower_bits, .flags = OP_RANDOM};

static core_tensor tensor(int rank, const int64_t *sizes, dtype t) {
    core_tensor x;
    geometry_contiguous(&x.geometry, t, rank, sizes);
    x.storage = storage_create(geometry_count(&x.geometry) * (int64_t)dtype_bytes(t), 0);
    CHECK(x.storage != NULL);
    return x;
}

static core_tensor floats(int64_t rows, int64_t columns, float first, float step) {
    int64_t sizes[2] = {rows, columns};
    core_tensor x = tensor(2, sizes, DTYPE_F32);
    float *data = malloc(sizeof(float) * (size_t)(rows * columns));
    for (int64_t i = 0; i < rows * columns; i++) data[i] = first + step * (float)i;
    CHECK_OK(storage_write_host(x.storage, &x.geometry, data));
    free(data);
    return x;
}

static void view(const core_tensor *x, core_tensor *out, int64_t r0, int64_t rows, int64_t c0, int64_t columns) {
    out->storage = x->storage;
    geometry_copy(&out->geometry, &x->geometry);
    out->geometry.sizes[0] = rows;
    out->geometry.sizes[1] = columns;
    out->geometry.offset = r0 * x->geometry.strides[0] + c0 * x->geometry.strides[1];
}

static call_result new_result(const geometry *like) {
    call_result r = {.kind = RESULT_NEW};
    geometry_contiguous(&r.geometry, like->dtype, like->rank, like->sizes);
    return r;
}

static status *run(const op_row *row, int n, argument *args, call_result *r, uint64_t offset) {
    call c = {.op = operator_of_row(row),
              .n_args = n,
              .args = args,
              .n_results = 1,
              .results = r,
              .max_results = 1,
              .results_known = true,
              .seed = 7,
              .offset = offset};
    return exec_call(&c);
}

static argument value(core_tensor *x) { return (argument){.tag = ARG_VALUE, .u.tensor = x}; }
static argument python_float(double v) {
    return (argument){.tag = ARG_NUMBER, .u.number = {.dtype = DTYPE_F64, .wrapped = true, .v.f = {v}}};
}

static int64_t compiles(void) {
    exec_counters c;
    exec_counters_read(&c);
    return c.compiles;
}

/* x[1:3, 0:2] + x[0:2, 2:4] over x = 0, 1, 2, ... of 4 by 4. */
static void test_views(void) {
    core_tensor x = floats(4, 4, 0, 1), a, b;
    view(&x, &a, 1, 2, 0, 2);
    view(&x, &b, 0, 2, 2, 2);
    argument args[2] = {value(&a), value(&b)};
    call_result r = new_result(&a.geometry);
    if (CHECK_OK(run(&row_add, 2, args, &r, 0))) {
        float out[4], expected[4] = {4 + 2, 5 + 3, 8 + 6, 9 + 7};
        CHECK_OK(storage_read_host(r.storage, &r.geometry, out));
        for (int i = 0; i < 4; i++) CHECK(out[i] == expected[i]);
        storage_destroy(r.storage);
    }
    storage_destroy(x.storage);
}

/* x[1:3, 1:3] <- y + y: only those elements change; a storage without a value reads as zeros. */
static void test_write_through_view(void) {
    core_tensor x = floats(4, 4, 0, 1), y = floats(2, 2, 100, 1), target;
    view(&x, &target, 1, 2, 1, 2);
    argument args[2] = {value(&y), value(&y)};
    call_result r = {.kind = RESULT_WRITE, .target = &target};
    CHECK_OK(run(&row_add, 2, args, &r, 0));
    float out[16];
    CHECK_OK(storage_read_host(x.storage, &x.geometry, out));
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            bool inside = i >= 1 && i < 3 && j >= 1 && j < 3;
            CHECK(out[4 * i + j] == (inside ? 2 * (float)(100 + 2 * (i - 1) + j - 1) : (float)(4 * i + j)));
        }
    int64_t sizes[2] = {4, 4};
    core_tensor blank = tensor(2, sizes, DTYPE_F32), part;
    view(&blank, &part, 0, 2, 0, 2);
    r.target = &part;
    CHECK_OK(run(&row_add, 2, args, &r, 0));
    CHECK_OK(storage_read_host(blank.storage, &blank.geometry, out));
    for (int i = 0; i < 16; i++) CHECK((out[i] != 0) == (i / 4 < 2 && i % 4 < 2));
    storage_destroy(x.storage);
    storage_destroy(y.storage);
    storage_destroy(blank.storage);
}

/* A thousand factors: one program for the first, one for all others. A structural number compiles for each value. */
static void test_numbers(void) {
    core_tensor x = floats(2, 3, 1, 1);
    int64_t before = compiles();
    for (int i = 0; i < 1000; i++) {
        argument args[2] = {value(&x), python_float(0.5 * i)};
        call_result r = new_result(&x.geometry);
        if (!CHECK_OK(run(&row_scale, 2, args, &r, 0))) break;
        float out[6];
        if (i % 100 == 1) {
            CHECK_OK(storage_read_host(r.storage, &r.geometry, out));
            for (int k = 0; k < 6; k++) CHECK(out[k] == (float)(k + 1) * 0.5f * (float)i);
        }
        storage_destroy(r.storage);
    }
    CHECK_INT(compiles() - before, 2);
    before = compiles();
    for (int i = 0; i < 6; i++) {
        int n = 1 + i % 3;
        argument args[2] = {value(&x), python_float(n)};
        call_result r = new_result(&x.geometry);
        if (!CHECK_OK(run(&row_power, 2, args, &r, 0))) break;
        float out[6];
        CHECK_OK(storage_read_host(r.storage, &r.geometry, out));
        CHECK(out[1] == (n == 1 ? 2 : n == 2 ? 4 : 8));
        storage_destroy(r.storage);
    }
    CHECK_INT(compiles() - before, 3);
    storage_destroy(x.storage);
}

/* Random bits follow from seed and offset. */
static void test_random(void) {
    int64_t sizes[1] = {64};
    geometry g;
    geometry_contiguous(&g, DTYPE_U32, 1, sizes);
    uint32_t first[64], again[64], other[64], *into[3] = {first, again, other};
    uint64_t offsets[3] = {0, 0, 4};
    for (int i = 0; i < 3; i++) {
        call_result r = new_result(&g);
        if (!CHECK_OK(run(&row_bits, 0, NULL, &r, offsets[i]))) return;
        CHECK_OK(storage_read_host(r.storage, &r.geometry, into[i]));
        storage_destroy(r.storage);
    }
    CHECK(memcmp(first, again, sizeof first) == 0);
    CHECK(memcmp(first, other, sizeof first) != 0);
}

/* Large in-place additions: the base is donated, and a storage that shares the old value keeps it. */
static void test_in_place(void) {
    core_tensor x = floats(256, 256, 0, 1);
    argument args[2] = {value(&x), value(&x)};
    call_result r = {.kind = RESULT_WRITE, .target = &x};
    for (int i = 0; i < 3; i++) CHECK_OK(run(&row_add, 2, args, &r, 0));
    float *out = malloc(sizeof(float) * 65536);
    CHECK_OK(storage_read_host(x.storage, &x.geometry, out));
    for (int i = 0; i < 65536; i += 1111) CHECK(out[i] == 8 * (float)i);
    free(out);
    storage_destroy(x.storage);
}

static void test_resize_and_retype(void) {
    int64_t sizes[1] = {16};
    core_tensor bytes = tensor(1, sizes, DTYPE_U8), x;
    float data[4] = {1, 2, 3, 4}, out[8];
    CHECK_OK(storage_write_host(bytes.storage, &bytes.geometry, data));
    int64_t four = 4, eight = 8;
    geometry_contiguous(&x.geometry, DTYPE_F32, 1, &four);
    x.storage = bytes.storage;
    argument args[2] = {value(&x), value(&x)};
    call_result r = new_result(&x.geometry);
    if (CHECK_OK(run(&row_add, 2, args, &r, 0))) {
        CHECK_OK(storage_read_host(r.storage, &r.geometry, out));
        for (int i = 0; i < 4; i++) CHECK(out[i] == 2 * data[i]);
        CHECK_OK(storage_resize(r.storage, 32));
        geometry_contiguous(&r.geometry, DTYPE_F32, 1, &eight);
        CHECK_OK(storage_read_host(r.storage, &r.geometry, out));
        for (int i = 0; i < 8; i++) CHECK(out[i] == (i < 4 ? 2 * data[i] : 0));
        storage_destroy(r.storage);
    }
    storage_destroy(bytes.storage);
}

/* Storages of 4 TiB take the whole region; when they are gone, small ones live where they were. */
static void test_addresses(void) {
    enum { MOST = 64, SMALL = 100 };
    storage *large[MOST], *small[SMALL];
    int n = 0;
    CHECK(storage_create(((int64_t)1 << 42) + 1, 0) == NULL);
    while (n < MOST && (large[n] = storage_create((int64_t)1 << 42, 0))) n++;
    CHECK(n > 0 && n < MOST);
    int64_t distance = 0;
    CHECK(storage_find((char *)storage_address(large[0]) + 7, &distance) == large[0] && distance == 7);
    for (int i = 0; i < n; i++) storage_destroy(large[i]);
    for (int i = 0; i < SMALL; i++) {
        small[i] = storage_create((int64_t)1 << (20 + i % 20), 0);
        CHECK(small[i] != NULL);
    }
    for (int i = 0; i < SMALL; i++) {
        char *last = (char *)storage_address(small[i]) + storage_bytes(small[i]) - 1;
        CHECK(storage_find(storage_address(small[i]), &distance) == small[i]);
        CHECK(storage_find(last, &distance) == small[i]);
    }
    for (int i = 0; i < SMALL; i++) storage_destroy(small[i]);
}

static void test_errors(void) {
    core_tensor x = floats(2, 2, 0, 1), beyond;
    view(&x, &beyond, 1, 2, 1, 2);
    argument args[2] = {value(&x), value(&x)};
    call_result r = new_result(&x.geometry);
    CHECK_FAILS(run(&row_wrong, 2, args, &r, 0), STATUS_RUNTIME, "always fails");
    CHECK_FAILS(run(&row_wrong, 2, args, &r, 0), STATUS_RUNTIME, "test::wrong");
    args[0] = value(&beyond);
    CHECK_FAILS(run(&row_add, 2, args, &r, 0), STATUS_RUNTIME, "storage");
    args[0] = value(&x);
    if (CHECK_OK(run(&row_add, 2, args, &r, 0))) storage_destroy(r.storage);
    storage_destroy(x.storage);
}

/* Every allocation of a first call fails once: an error each time, and the call works afterwards. */
static void test_no_memory(void) {
    core_tensor x = floats(3, 5, 0, 1);
    argument args[2] = {value(&x), value(&x)};
    bool done = false;
    for (long n = 1; !done && n < 2000; n++) {
        call_result r = new_result(&x.geometry);
        exec_cache_clear();
        mem_fail_after(n);
        status *s = run(&row_add, 2, args, &r, 0);
        mem_fail_after(0);
        done = s == NULL && n > 20;
        if (!s)
            storage_destroy(r.storage);
        else
            CHECK(status_get_code(s) == STATUS_OUT_OF_MEMORY);
        status_free(s);
        call_result again = new_result(&x.geometry);
        if (CHECK_OK(run(&row_add, 2, args, &again, 0))) storage_destroy(again.storage);
        if (n > 40) n += 7;
    }
    CHECK(done);
    storage_destroy(x.storage);
}

static void *add_many(void *context) {
    core_tensor *x = context;
    for (int i = 0; i < 500; i++) {
        argument args[2] = {value(x), python_float(i % 7)};
        call_result r = new_result(&x->geometry);
        if (CHECK_OK(run(&row_scale, 2, args, &r, 0))) storage_destroy(r.storage);
    }
    return NULL;
}

/* Eight threads, 500 calls each, want the same programs: each is compiled once. */
static void test_threads(int64_t programs) {
    core_tensor x = floats(3, 7, 0, 1);
    exec_cache_clear();
    int64_t before = compiles();
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, add_many, &x);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    CHECK(compiles() - before <= programs);
    CHECK_OK(runtime_synchronize(0));
    storage_destroy(x.storage);
}

static int64_t launches(void) {
    exec_counters c;
    exec_counters_read(&c);
    return c.launches;
}

/* state <- state + x * factor, five times a round: one launch a round, no compile after the third although the factor
 * changes. */
static void test_fused_rounds(void) {
    core_tensor x = floats(64, 64, 1, 0), state = floats(64, 64, 0, 0);
    double expected = 0;
    int64_t compiled = 0, launched = 0;
    for (int i = 0; i < 8; i++) {
        if (i == 3) compiled = compiles(), launched = launches();
        for (int k = 0; k < 5; k++) {
            double factor = 0.25 * (i + 1) * (k + 1);
            argument args[2] = {value(&x), python_float(factor)};
            call_result scaled = new_result(&x.geometry);
            if (!CHECK_OK(run(&row_scale, 2, args, &scaled, 0))) return;
            core_tensor t = {scaled.storage, {0}};
            geometry_copy(&t.geometry, &scaled.geometry);
            argument sum[2] = {value(&state), value(&t)};
            call_result r = {.kind = RESULT_WRITE, .target = &state};
            CHECK_OK(run(&row_add, 2, sum, &r, 0));
            storage_destroy(scaled.storage);
            expected += factor;
        }
        CHECK_OK(exec_flush());
    }
    CHECK_INT(compiles() - compiled, 0);
    CHECK_INT(launches() - launched, 5);
    float out[64 * 64];
    CHECK_OK(storage_read_host(state.storage, &state.geometry, out));
    for (int i = 0; i < 64 * 64; i += 100) CHECK(out[i] == (float)expected);
    storage_destroy(x.storage);
    storage_destroy(state.storage);
}

/* A loop that nothing cuts: the limit does, at whole rounds. */
static void test_fused_limit(void) {
    core_tensor x = floats(4, 4, 1, 0), state = floats(4, 4, 0, 0);
    int64_t compiled = 0;
    for (int i = 0; i < 200; i++) {
        if (i == 120) compiled = compiles();
        argument args[2] = {value(&state), value(&x)};
        call_result r = {.kind = RESULT_WRITE, .target = &state};
        CHECK_OK(run(&row_add, 2, args, &r, 0));
        argument power[2] = {value(&x), python_float(2)};
        CHECK_OK(run(&row_power, 2, power, &(call_result){.kind = RESULT_WRITE, .target = &x}, 0));
        CHECK_OK(run(&row_power, 2, power, &(call_result){.kind = RESULT_WRITE, .target = &x}, 0));
    }
    CHECK_INT(compiles() - compiled, 0);
    float out[16];
    CHECK_OK(storage_read_host(state.storage, &state.geometry, out));
    CHECK(out[7] == 200);
    storage_destroy(x.storage);
    storage_destroy(state.storage);
}

/* The values of a call whose program does not compile are lost, and reading them says why; all others are there. */
static void test_fused_fault(void) {
    core_tensor x = floats(2, 2, 1, 1);
    argument args[2] = {value(&x), value(&x)};
    call_result good = new_result(&x.geometry), bad = new_result(&x.geometry);
    CHECK_OK(run(&row_add, 2, args, &good, 0));
    CHECK_FAILS(run(&row_wrong, 2, args, &bad, 0), STATUS_RUNTIME, "always fails");
    float out[4];
    CHECK_OK(storage_read_host(good.storage, &good.geometry, out));
    CHECK(out[3] == 8);
    storage_destroy(good.storage);
    storage_destroy(x.storage);
}

static void test_fused(void) {
    setenv("TORCH_TPU_FUSED_NODES", "50", 1);
    exec_set_mode(MODE_FUSED);
    test_views();
    test_write_through_view();
    test_random();
    test_in_place();
    test_resize_and_retype();
    test_fused_rounds();
    test_fused_limit();
    test_fused_fault();
    /* 80 streams of 50 calls. Another thread's result may be alive when one ends: the m-th program gives the last 2^m
     * values, so it is the seventh at most that serves all. The first streams may hold calls with a constant. */
    test_threads(8);
    exec_set_mode(MODE_STRICT);
}

int main(void) {
    const char *plugin = getenv("TORCH_TPU_TEST_PLUGIN");
    if (!plugin) return CHECK_SKIPPED;
    setenv("TORCH_TPU_PJRT_PLUGIN", plugin, 1);
    setenv("TORCH_TPU_CACHE_DIR", "", 1); /* compiles are counted */
    test_views();
    test_write_through_view();
    test_numbers();
    test_random();
    test_in_place();
    test_resize_and_retype();
    test_addresses();
    test_errors();
    test_no_memory();
    test_threads(2);
    test_fused();
    exec_counters c;
    exec_counters_read(&c);
    CHECK_INT(c.storages, 0);
    CHECK_INT(c.bytes_live, 0);
    return check_report();
}
