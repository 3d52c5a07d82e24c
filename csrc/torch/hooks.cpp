// What PyTorch's generic code asks an accelerator for, and pinned host memory.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "torch/generator.h"
#include "torch/runtime.h"

namespace torch_tpu {

namespace {

// Pinned memory is page-aligned host memory that the process knows by address: PJRT takes copies from any host memory,
// so there is nothing to register with a device, but DataLoader and is_pinned() must be able to tell.
class PinnedAllocator final : public at::HostAllocator {
   public:
    static PinnedAllocator &get() {
        static auto *allocator = new PinnedAllocator;
        return *allocator;
    }

    at::DataPtr allocate(size_t bytes) override {
        void *memory = nullptr;
        if (bytes > 0) {
            const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
            TORCH_CHECK(posix_memalign(&memory, page, bytes) == 0, "no memory for ", bytes, " pinned bytes");
            const std::lock_guard<std::mutex> lock(mutex_);
            sizes_.emplace(reinterpret_cast<uintptr_t>(memory), bytes);
            stats_.allocations.increase(1);
            stats_.allocated_bytes.increase(bytes);
        }
        return {memory, memory, &release, at::Device(at::kCPU)};
    }
    at::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void *dest, const void *src, std::size_t count) const override {
        default_copy_data(dest, src, count);
    }

    bool holds(const void *address) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto wanted = reinterpret_cast<uintptr_t>(address);
        auto next = sizes_.upper_bound(wanted);
        if (next == sizes_.begin()) return false;
        const auto &[start, bytes] = *std::prev(next);
        return wanted - start < bytes;
    }

    // Host memory has been read when a copy returns, so no event needs remembering; nothing is cached.
    bool record_event(void * /*p*/, void * /*context*/, c10::Stream /*stream*/) override { return true; }
    void empty_cache() override {}
    at::HostStats get_stats() override {
        const std::lock_guard<std::mutex> lock(mutex_);
        return stats_;
    }
    void reset_accumulated_stats() override {
        const std::lock_guard<std::mutex> lock(mutex_);
        stats_.allocations.reset_accumulated();
        stats_.allocated_bytes.reset_accumulated();
    }
    void reset_peak_stats() override {
        const std::lock_guard<std::mutex> lock(mutex_);
        stats_.allocations.reset_peak();
        stats_.allocated_bytes.reset_peak();
    }

   private:
    static void release(void *memory) {
        if (!memory) return;
        auto &self = get();
        {
            const std::lock_guard<std::mutex> lock(self.mutex_);
            auto found = self.sizes_.find(reinterpret_cast<uintptr_t>(memory));
            self.stats_.allocations.decrease(1);
            self.stats_.allocated_bytes.decrease(found->second);
            self.sizes_.erase(found);
        }
        std::free(memory);
    }

    std::mutex mutex_;
    std::map<uintptr_t, size_t> sizes_;
    at::HostStats stats_;
};

class Hooks final : public at::PrivateUse1HooksInterface {
   public:
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return runtime_device_count() > 0; }
    bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return runtime_initialized(); }
    void init() const override {}  // the client is made by the first use of the device, not by PyTorch's start-up

    c10::DeviceIndex deviceCount() const override { return guard().deviceCount(); }
    c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
    void setCurrentDevice(c10::DeviceIndex device) const override { guard().setDevice({kDevice, device}); }
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
        return guard().exchangeDevice({kDevice, device}).index();
    }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
        return device < 0 ? current_device() : exchangeDevice(device);
    }

    const at::Generator &getDefaultGenerator(c10::DeviceIndex device) const override {
        return generator_default(device);
    }
    at::Generator getNewGenerator(c10::DeviceIndex device) const override { return generator_new(device); }

    at::Device getDeviceFromPtr(void *data) const override {
        int64_t distance = 0;
        storage *s = storage_find(data, &distance);
        TORCH_CHECK(s, "the address is not one of a tensor on device tpu");
        return {kDevice, static_cast<c10::DeviceIndex>(storage_device(s))};
    }
    bool isPinnedPtr(const void *data) const override { return PinnedAllocator::get().holds(data); }
    at::Allocator *getPinnedMemoryAllocator() const override { return &PinnedAllocator::get(); }
    void resizePrivateUse1Bytes(const c10::Storage &s, size_t bytes) const override { storage_resize_bytes(s, bytes); }

   private:
    static const c10::impl::DeviceGuardImplInterface &guard() { return *c10::impl::getDeviceGuardImpl(kDevice); }
};

}  // namespace

void register_hooks() {
    at::setHostAllocator(kDevice, &PinnedAllocator::get());
    at::RegisterPrivateUse1HooksInterface(new Hooks);
}

}  // namespace torch_tpu
