/* Compile options, held against bytes written out by hand from the protocol buffer definition. */
#include "base/alloc.h"
#include "base/tests/check.h"
#include "pjrt/internal.h"

static void check_bytes(const pjrt_compile_options *o, const void *expected, size_t size) {
    strbuf s;
    strbuf_init(&s);
    pjrt_compile_options_serialize(o, &s);
    CHECK(!strbuf_failed(&s));
    CHECK_INT(s.size, size);
    CHECK(s.size == size && memcmp(s.data, expected, size) == 0);
    strbuf_free(&s);
}

#define CHECK_BYTES(options, bytes) check_bytes((options), (bytes), sizeof(bytes) - 1)

/* device_ordinal -1 is ten bytes, as every negative int64 in this format. */
#define ORDINAL "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"

static void test_build_options(void) {
    CHECK_BYTES(&(pjrt_compile_options){0}, "\x1a\x0f" ORDINAL "\x20\x01\x28\x01");
    CHECK_BYTES(&((pjrt_compile_options){.num_replicas = 2, .num_partitions = 300, .use_spmd = true}),
                "\x1a\x12" ORDINAL "\x20\x02\x28\xac\x02\x30\x01");
}

static void test_flags(void) {
    const char *const names[] = {"ab", "c", "d", "e"}, *const values[] = {"false", "TRUE", "3", ""};
    CHECK_BYTES(&((pjrt_compile_options){.n_flags = 4, .flag_names = names, .flag_values = values}),
                "\x1a\x0f" ORDINAL
                "\x20\x01\x28\x01"
                "\x3a\x08\x0a\x02"
                "ab"
                "\x12\x02\x10\x00" /* a boolean */
                "\x3a\x07\x0a\x01"
                "c"
                "\x12\x02\x10\x01"
                "\x3a\x08\x0a\x01"
                "d"
                "\x12\x03\x0a\x01"
                "3" /* anything else is a string */
                "\x3a\x07\x0a\x01"
                "e"
                "\x12\x02\x0a\x00");
}

static void test_long_values(void) {
    char value[300];
    memset(value, 'v', 299);
    value[299] = '\0';
    const char *const names[] = {"n"}, *const values[] = {value};
    strbuf s;
    strbuf_init(&s);
    pjrt_compile_options_serialize(&(pjrt_compile_options){.n_flags = 1, .flag_names = names, .flag_values = values},
                                   &s);
    /* 17 bytes of build options; entry: tag, length 308; key 3; value: tag, length 302; string: tag, length 299. */
    CHECK_INT(s.size, 17 + 3 + 3 + 3 + 3 + 299);
    CHECK(memcmp(s.data + 17, "\x3a\xb4\x02\x0a\x01n\x12\xae\x02\x0a\xab\x02vvv", 15) == 0);
    strbuf_free(&s);
}

static void test_portable(void) {
    strbuf s;
    strbuf_init(&s);
    pjrt_compile_options_make_portable(&s);
    CHECK_INT(s.size, 2);
    CHECK(memcmp(s.data, "\x20\x01", 2) == 0);
    strbuf_free(&s);
}

/* An allocation that fails anywhere is told, and never gives shorter options that look whole. */
static void test_no_memory(void) {
    const char *const names[] = {"a_flag"}, *const values[] = {"1"};
    const pjrt_compile_options o = {.n_flags = 1, .flag_names = names, .flag_values = values};
    long before = mem_live_count();
    bool failed = true;
    for (long n = 1; failed; n++) {
        strbuf s;
        strbuf_init(&s);
        mem_fail_after(n);
        pjrt_compile_options_serialize(&o, &s);
        mem_fail_after(0);
        failed = strbuf_failed(&s);
        if (!failed) CHECK_INT(n, 5); /* build options, result, entry, value; and the run with none failing */
        strbuf_free(&s);
        CHECK_INT(mem_live_count(), before);
    }
}

int main(void) {
    test_build_options();
    test_flags();
    test_long_values();
    test_portable();
    test_no_memory();
    return check_report();
}
