/* What the process did with devices, for torch.tpu's statistics. Relaxed atomics: each number is right by itself. */
#include <time.h>

#include "pjrt/internal.h"

static atomic_int_least64_t compiles, compile_ns, executes;
static atomic_int_least64_t host_to_device, device_to_host, host_to_device_bytes, device_to_host_bytes;
static atomic_int_least64_t live_buffers, live_bytes, peak_bytes;

static int64_t add(atomic_int_least64_t *counter, int64_t n) {
    return atomic_fetch_add_explicit(counter, n, memory_order_relaxed) + n;
}

static int64_t load(atomic_int_least64_t *counter) { return atomic_load_explicit(counter, memory_order_relaxed); }

int64_t pjrt_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void pjrt_count_compile(int64_t ns) {
    add(&compiles, 1);
    add(&compile_ns, ns);
}

void pjrt_count_execute(void) { add(&executes, 1); }

void pjrt_count_host_to_device(int64_t bytes) {
    add(&host_to_device, 1);
    add(&host_to_device_bytes, bytes);
}

void pjrt_count_device_to_host(int64_t bytes) {
    add(&device_to_host, 1);
    add(&device_to_host_bytes, bytes);
}

void pjrt_count_buffer(int64_t bytes) {
    add(&live_buffers, 1);
    int64_t now = add(&live_bytes, bytes), peak = load(&peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak_explicit(&peak_bytes, &peak, now, memory_order_relaxed,
                                                                memory_order_relaxed)) {
    }
}

void pjrt_count_buffer_gone(int64_t bytes) {
    add(&live_buffers, -1);
    add(&live_bytes, -bytes);
}

void pjrt_counters_read(pjrt_counters *out) {
    *out = (pjrt_counters){
        .compiles = load(&compiles),
        .compile_ns = load(&compile_ns),
        .executes = load(&executes),
        .host_to_device = load(&host_to_device),
        .device_to_host = load(&device_to_host),
        .host_to_device_bytes = load(&host_to_device_bytes),
        .device_to_host_bytes = load(&device_to_host_bytes),
        .live_buffers = load(&live_buffers),
        .live_bytes = load(&live_bytes),
        .peak_bytes = load(&peak_bytes),
    };
}

void pjrt_counters_reset_peak(void) { atomic_store_explicit(&peak_bytes, load(&live_bytes), memory_order_relaxed); }
