/* Launches in the background, with the fake plugin: order, readiness, what an error does to what follows, lack of
 * memory and the way out of it, donation, buffers that go while launches wait, threads, fork. */
#define _GNU_SOURCE /* CPU_COUNT */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/tests/check.h"
#include "fake_plugin.h"
#include "pjrt/internal.h"

enum { LONG_CHAIN = 20000, THREADS = 4 };

static fake_plugin *fake;
static fake_plugin_reset_function *reset;
static pjrt_plugin *plugin;
static pjrt_client *client;
static pjrt_executable *add, *add_in_place; /* one input, one result */

static void setup(void) {
    reset();
    fake->n_results = 1;
    CHECK_OK(pjrt_client_create(plugin, 0, NULL, &client));
    CHECK_OK(pjrt_compile(client, "add", 3, NULL, &add));
    CHECK_OK(pjrt_compile(client, "add {tf.aliasing_output = 0}", 28, NULL, &add_in_place));
}

static void tear_down(void) {
    pjrt_executable_release(add);
    pjrt_executable_release(add_in_place);
    pjrt_client_destroy(client);
    CHECK_INT(fake->live_objects, 0);
    pjrt_counters now;
    pjrt_counters_read(&now);
    CHECK_INT(now.live_buffers, 0);
    CHECK_INT(now.live_bytes, 0);
}

static pjrt_buffer *zeros(void) {
    static const float values[6];
    pjrt_buffer *b = NULL;
    CHECK_OK(pjrt_buffer_from_host(client, 0, values, DTYPE_F32, 2, (int64_t[]){2, 3}, &b));
    return b;
}

static pjrt_buffer *plus_one(pjrt_buffer *b) {
    pjrt_buffer *out = NULL;
    CHECK_OK(pjrt_execute_soon(add, 0, 1, &b, NULL, &out));
    return out;
}

static float first_value(pjrt_buffer *b) {
    float read[6] = {-1};
    CHECK_OK(pjrt_buffer_to_host(b, read, sizeof read));
    return read[0];
}

/* A result whose launch does not end before `holds` is taken back; the launches that follow wait behind it. */
static pjrt_buffer *held(pjrt_buffer *b) {
    fake->holds = true;
    for (;;) {
        pjrt_buffer *out = plus_one(b);
        if (!pjrt_queue_passed(out->made)) return out;
        pjrt_buffer_release(out);
    }
}

static void let_go(void) { fake->holds = false; }

static void test_order(void) {
    setup();
    pjrt_buffer *b = zeros();
    for (int i = 0; i < LONG_CHAIN; i++) { /* more than the ring holds, round its end many times */
        pjrt_buffer *next = plus_one(b);
        pjrt_buffer_release(b);
        b = next;
    }
    CHECK(first_value(b) == LONG_CHAIN);
    pjrt_buffer_release(b);
    tear_down();
}

static void test_waiting(void) {
    setup();
    pjrt_counters before, now;
    pjrt_buffer *start = zeros(), *first = held(start);
    pjrt_counters_read(&before);
    pjrt_buffer *second = plus_one(first), *third = plus_one(second);
    CHECK(!pjrt_buffer_is_ready(first));
    CHECK(!pjrt_buffer_is_ready(third));
    pjrt_buffer_release(start); /* readers of these are still to come */
    pjrt_buffer_release(second);
    pjrt_counters_read(&now);
    CHECK_INT(now.live_buffers, before.live_buffers); /* two made, two gone: as of the release */
    CHECK_INT(now.executes - before.executes, 2);
    let_go();
    CHECK(first_value(third) == 3);
    CHECK(pjrt_buffer_is_ready(first));
    CHECK(first_value(first) == 1);
    pjrt_buffer_release(first);
    pjrt_buffer_release(third);
    tear_down();
}

/* The synchronous launch takes values that are not made yet, and gives away none that another has yet to read. */
static void test_donation(void) {
    setup();
    pjrt_buffer *start = zeros(), *first = held(start), *copy = plus_one(first), *given = NULL, *again = NULL;
    CHECK_OK(pjrt_execute_soon(add_in_place, 0, 1, &first, (const bool[]){true}, &given));
    let_go();
    CHECK_OK(pjrt_execute(add_in_place, 0, 1, &given, (const bool[]){true}, &again));
    CHECK(first_value(copy) == 2);
    CHECK(first_value(again) == 3);
    pjrt_buffer *all[] = {start, first, copy, given, again};
    for (int i = 0; i < 5; i++) pjrt_buffer_release(all[i]);
    start = zeros();
    first = held(start);
    copy = plus_one(start);
    let_go();
    CHECK_OK(pjrt_execute(add_in_place, 0, 1, &start, (const bool[]){true}, &given));
    CHECK(first_value(copy) == 1);
    CHECK(first_value(given) == 1);
    pjrt_buffer *rest[] = {start, first, copy, given};
    for (int i = 0; i < 4; i++) pjrt_buffer_release(rest[i]);
    tear_down();
}

/* What a launch that the plugin rejects should have made is an error, and what is made of that; the rest goes on. */
static void test_rejected(void) {
    setup();
    pjrt_buffer *start = zeros(), *first = held(start), *second = plus_one(first), *third = plus_one(second), *out;
    fake->rejects = true;
    let_go();
    CHECK_FAILS(pjrt_buffer_wait(third), STATUS_RUNTIME, "rejected");
    fake->rejects = false;
    CHECK(pjrt_buffer_is_ready(second) && pjrt_buffer_failed(second));
    CHECK_FAILS(pjrt_buffer_wait(second), STATUS_RUNTIME, "rejected");
    CHECK_FAILS(pjrt_execute(add, 0, 1, &third, NULL, &out), STATUS_RUNTIME, "rejected");
    float read[6];
    CHECK_FAILS(pjrt_buffer_to_host(third, read, sizeof read), STATUS_RUNTIME, "rejected");
    void *pointer;
    CHECK_FAILS(pjrt_buffer_unsafe_pointer(third, &pointer), STATUS_RUNTIME, "rejected");
    CHECK_FAILS(pjrt_buffer_copy_to_device(third, 0, &out), STATUS_RUNTIME, "rejected");
    pjrt_buffer *next = plus_one(start);
    CHECK(first_value(next) == 1);
    pjrt_buffer *all[] = {start, first, second, third, next};
    for (int i = 0; i < 5; i++) pjrt_buffer_release(all[i]);
    tear_down();
}

static void test_no_memory(void) {
    setup();
    pjrt_buffer *start = zeros(), *first = held(start), *second = plus_one(first), *third = plus_one(second), *out;
    fake->no_memory = true;
    let_go();
    for (int i = 0; i < 2; i++) {
        CHECK_FAILS(pjrt_buffer_wait(third), STATUS_OUT_OF_MEMORY, "an operator that was issued earlier: no memory");
        CHECK_FAILS(pjrt_execute_soon(add, 0, 1, &start, NULL, &out), STATUS_OUT_OF_MEMORY, "issued earlier");
        CHECK_FAILS(pjrt_queue_finish(), STATUS_OUT_OF_MEMORY, "issued earlier");
        CHECK(!pjrt_buffer_is_ready(second));
        CHECK(first_value(start) == 0); /* needs nothing that waits */
    }
    fake->no_memory = false;
    CHECK(first_value(third) == 3);
    CHECK(first_value(second) == 2);
    pjrt_buffer *all[] = {start, first, second, third};
    for (int i = 0; i < 4; i++) pjrt_buffer_release(all[i]);

    /* What no one wants any more holds nothing up. */
    start = zeros();
    first = held(start);
    second = plus_one(start);
    pjrt_buffer_release(first);
    pjrt_buffer_release(second);
    fake->no_memory = true;
    let_go();
    CHECK_OK(pjrt_queue_finish());
    fake->no_memory = false;
    pjrt_buffer_release(start);
    tear_down();
}

/* Without host memory the call fails, and nothing was launched. */
static void test_no_host_memory(void) {
    setup();
    pjrt_buffer *start = zeros(), *first = held(start), *out = NULL;
    mem_fail_after(1);
    CHECK_FAILS(pjrt_execute_soon(add, 0, 1, &start, NULL, &out), STATUS_OUT_OF_MEMORY, "out of host memory");
    mem_fail_after(0);
    CHECK(out == NULL);
    CHECK_FAILS(pjrt_execute_soon(add, 5, 1, &start, NULL, &out), STATUS_NOT_FOUND, "no device 5");
    let_go();
    pjrt_buffer_release(first);
    pjrt_buffer_release(start);
    tear_down();
}

/* A program may be let go while its launches wait. */
static void test_program_goes(void) {
    setup();
    pjrt_executable *mine = NULL;
    CHECK_OK(pjrt_compile(client, "add", 3, NULL, &mine));
    pjrt_buffer *start = zeros(), *first = held(start), *second = NULL;
    CHECK_OK(pjrt_execute_soon(mine, 0, 1, &first, NULL, &second));
    let_go();
    pjrt_executable_release(mine);
    CHECK(first_value(second) == 2);
    pjrt_buffer *all[] = {start, first, second};
    for (int i = 0; i < 3; i++) pjrt_buffer_release(all[i]);
    tear_down();
}

static void *chain(void *start) {
    pjrt_buffer *b = pjrt_buffer_retain(start);
    for (int i = 0; i < 2000; i++) {
        pjrt_buffer *next = NULL, *unused = NULL;
        if (pjrt_execute_soon(add, 0, 1, &b, NULL, &next) || pjrt_execute_soon(add, 0, 1, &b, NULL, &unused))
            return NULL;
        pjrt_buffer_release(unused);
        if (i % 7 == 0) status_free(pjrt_buffer_wait(next));
        pjrt_buffer_release(b);
        b = next;
    }
    return b;
}

static void test_threads(void) {
    setup();
    pjrt_buffer *start = zeros();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK_INT(pthread_create(&threads[i], NULL, chain, start), 0);
    for (int i = 0; i < THREADS; i++) {
        void *end = NULL;
        pthread_join(threads[i], &end);
        if (CHECK(end != NULL)) CHECK(first_value(end) == 2000);
        pjrt_buffer_release(end);
    }
    pjrt_buffer_release(start);
    tear_down();
}

/* A fork waits for what was launched; the child has the values and no thread, and ends well. */
static void test_fork(void) {
    setup();
    pjrt_buffer *start = zeros(), *b = held(start), *last = plus_one(b);
    let_go();
    pid_t child = fork();
    if (child == 0) {
        pjrt_buffer *next = NULL;
        bool right = pjrt_buffer_is_ready(last);
        for (int i = 0; i < 100 && right; i++) {
            right = !pjrt_execute_soon(add, 0, 1, &last, NULL, &next) && pjrt_queue_passed(next->made);
            if (right) pjrt_buffer_release(next);
        }
        exit(right && first_value(last) == 2 ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    pjrt_buffer *next = plus_one(last);
    CHECK(first_value(next) == 3);
    pjrt_buffer *all[] = {start, b, last, next};
    for (int i = 0; i < 4; i++) pjrt_buffer_release(all[i]);
    tear_down();
}

int main(void) {
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0 || CPU_COUNT(&mine) < 2)
        return CHECK_SKIPPED; /* launches at once */
    setenv("TORCH_TPU_LAUNCH_THREAD", "1", 1);
    void *library = dlopen(FAKE_PLUGIN, RTLD_LAZY);
    if (!CHECK(library != NULL)) return check_report();
    reset = (fake_plugin_reset_function *)dlsym(library, "fake_plugin_reset");
    fake = ((fake_plugin_state_function *)dlsym(library, "fake_plugin_state"))();
    if (!CHECK_OK(pjrt_plugin_load(FAKE_PLUGIN, &plugin))) return check_report();
    test_order();
    test_waiting();
    test_donation();
    test_rejected();
    test_no_memory();
    test_no_host_memory();
    test_program_goes();
    test_threads();
    test_fork();
    return check_report();
}
