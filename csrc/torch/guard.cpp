// Devices, streams and events. A device has one order of work, so every stream is that order under a name of its own:
// switching streams or waiting for one another needs nothing. Queries neither throw nor create a client (PyTorch asks
// from noexcept code).
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <map>

#include "torch/runtime.h"

namespace torch_tpu {

namespace {

thread_local c10::DeviceIndex t_device = 0;
thread_local std::map<c10::DeviceIndex, c10::StreamId> t_streams;  // absent: the default stream, 0
std::atomic<c10::StreamId> next_stream{1};
std::atomic<bool> bad_fork{false};

c10::DeviceIndex device_count() noexcept {
    return static_cast<c10::DeviceIndex>(std::min(runtime_device_count(), 127));
}

void wait_for_device(c10::DeviceIndex device) {
    check_not_forked();
    if (runtime_initialized()) check(runtime_synchronize(device));
}

struct Event {
    c10::DeviceIndex device = -1;
    bool timed = false;
    bool done = false;  // the work before it is known to have ended
    std::chrono::steady_clock::time_point time;
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
   public:
    c10::DeviceType type() const override { return kDevice; }

    c10::Device exchangeDevice(c10::Device d) const override {
        const c10::Device before = getDevice();
        setDevice(d);
        return before;
    }
    c10::Device getDevice() const override { return {kDevice, t_device}; }
    void setDevice(c10::Device d) const override {
        TORCH_CHECK(d.type() == kDevice, "expected a device of type tpu, got ", d);
        note_worker_thread();  // autograd's threads begin by setting their device
        if (d.index() != t_device) t_device = checked_device_index(d.index());
    }
    void uncheckedSetDevice(c10::Device d) const noexcept override {
        if (d.index() >= 0) t_device = d.index();
    }
    c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }
    c10::DeviceCapability getDeviceCapability(c10::Device /*d*/) const override { return {}; }

    c10::Stream getStream(c10::Device d) const override {
        const c10::DeviceIndex device = d.has_index() ? d.index() : t_device;
        auto found = t_streams.find(device);
        return make_stream(device, found == t_streams.end() ? 0 : found->second);
    }
    c10::Stream getDefaultStream(c10::Device d) const override {
        return make_stream(d.has_index() ? d.index() : t_device, 0);
    }
    c10::Stream getStreamFromGlobalPool(c10::Device d, bool /*high_priority*/) const override {
        return getNewStream(d, 0);
    }
    c10::Stream getNewStream(c10::Device d, int /*priority*/) const override {
        return make_stream(d.has_index() ? d.index() : t_device, next_stream.fetch_add(1));
    }
    c10::Stream exchangeStream(c10::Stream s) const override {
        const c10::Stream before = getStream(s.device());
        t_streams[s.device_index()] = s.id();
        return before;
    }
    void *getStreamNativeHandle(const c10::Stream s) const override { return reinterpret_cast<void *>(s.id()); }
    bool queryStream(const c10::Stream &s) const override {
        synchronizeStream(s);
        return true;
    }
    void synchronizeStream(const c10::Stream &s) const override { wait_for_device(s.device_index()); }
    void synchronizeDevice(const c10::DeviceIndex device) const override {
        wait_for_device(device < 0 ? t_device : device);
    }

    // BACKEND_DEFAULT asks for timing. A timed event waits for the work before it, so that the difference of two such
    // events is the time the work between them took; the others mark a place in the order and cost nothing.
    void record(void **event, const c10::Stream &s, const c10::DeviceIndex device,
                const c10::EventFlag flag) const override {
        TORCH_CHECK(device == -1 || device == s.device_index(), "the event belongs to device ",
                    static_cast<int>(device), " and cannot be recorded on a stream of device ",
                    static_cast<int>(s.device_index()));
        if (!*event) *event = new Event;
        auto *e = static_cast<Event *>(*event);
        e->device = s.device_index();
        e->timed = flag == c10::EventFlag::BACKEND_DEFAULT;
        if (e->timed) wait_for_device(e->device);
        e->done = e->timed;
        e->time = std::chrono::steady_clock::now();
    }
    void destroyEvent(void *event, const c10::DeviceIndex /*device*/) const noexcept override {
        delete static_cast<Event *>(event);
    }
    void block(void * /*event*/, const c10::Stream & /*stream*/) const override {}  // already in order
    bool queryEvent(void *event) const override {
        synchronizeEvent(event);
        return true;
    }
    void synchronizeEvent(void *event) const override {
        auto *e = static_cast<Event *>(event);
        if (!e || e->done) return;
        wait_for_device(e->device);
        e->done = true;
    }
    double elapsedTime(void *start, void *end, const c10::DeviceIndex /*device*/) const override {
        TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
        const auto *a = static_cast<Event *>(start), *b = static_cast<Event *>(end);
        TORCH_CHECK(a->timed && b->timed, "Both events must be created with argument 'enable_timing=True'.");
        return std::chrono::duration<double, std::milli>(b->time - a->time).count();
    }

   private:
    static c10::Stream make_stream(c10::DeviceIndex device, c10::StreamId id) {
        return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, device), id);
    }
};

void mark_fork() {
    if (runtime_initialized()) bad_fork = true;
}

}  // namespace

c10::DeviceIndex current_device() noexcept { return t_device; }

c10::DeviceIndex checked_device_index(c10::DeviceIndex index) {
    if (index == -1) return t_device;
    const int count = device_count();
    if (count == 0) {  // why there is none is the better error
        pjrt_client *none = nullptr;
        check(runtime_client(&none));
    }
    TORCH_CHECK(index >= 0 && index < count, "invalid device ordinal tpu:", static_cast<int>(index), ": there ",
                count == 1 ? "is 1 device" : c10::str("are ", count, " devices"));
    return index;
}

bool in_bad_fork() noexcept { return bad_fork; }

void check_not_forked() {
    TORCH_CHECK(!bad_fork,
                "Cannot use device tpu in a forked subprocess after the parent process used it. To use tpu with "
                "multiprocessing, use the 'spawn' start method, or use the device only after the fork.");
}

void register_guard() {
    c10::impl::registerDeviceGuard(kDevice, new Guard);
    pthread_atfork(nullptr, nullptr, mark_fork);
}

}  // namespace torch_tpu
