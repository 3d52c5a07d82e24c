// The allocator that libtorch asks for memory of this device: storages of the core behind DataPtrs, and their books.
//
// A DataPtr's data is the storage's reserved address range, which is never dereferenced; its context is the storage.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>
#include <unistd.h>

#include <array>
#include <mutex>

#include "torch/runtime.h"

namespace torch_tpu {

namespace {

using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kMaxDevices = 128;             // DeviceIndex is one signed byte
constexpr size_t kLargePool = size_t{1} << 20;  // torch.accelerator.memory_stats: pools split at 1 MiB

// What the storages that DataPtrs own add up to on each device. Leaked: tensors outlive static destructors.
class Books {
   public:
    static Books &get() {
        static Books *books = new Books;
        return *books;
    }

    void open(storage *s) {
        const std::lock_guard<std::mutex> lock(mutex_);
        enter(s);
    }

    void close(storage *s) {
        const std::lock_guard<std::mutex> lock(mutex_);
        leave(s);
    }

    // The storage's size and address change while its books are closed.
    status *resize(storage *s, int64_t bytes) {
        close(s);
        status *failed = storage_resize(s, bytes);
        open(s);
        return failed;
    }

    DeviceStats stats(c10::DeviceIndex device) {
        const std::lock_guard<std::mutex> lock(mutex_);
        DeviceStats d = of(device);
        // Nothing is kept beyond what is allocated.
        d.active = d.segment = d.allocation;
        d.active_bytes = d.reserved_bytes = d.requested_bytes = d.allocated_bytes;
        return d;
    }

    template <typename Change>
    void change(c10::DeviceIndex device, Change change) {
        const std::lock_guard<std::mutex> lock(mutex_);
        DeviceStats &d = of(device);
        for (auto *stat : {&d.allocation, &d.allocated_bytes})
            for (auto &pool : *stat) change(pool);
    }

    void count_out_of_memory(c10::DeviceIndex device) {
        const std::lock_guard<std::mutex> lock(mutex_);
        of(device).num_ooms++;
    }

   private:
    DeviceStats &of(c10::DeviceIndex device) {
        TORCH_CHECK(device >= 0, "invalid device index ", static_cast<int>(device));
        return devices_[static_cast<size_t>(device)];
    }

    void enter(storage *s) {
        const auto bytes = static_cast<size_t>(storage_bytes(s));
        DeviceStats &d = devices_[static_cast<size_t>(storage_device(s))];
        each_pool(bytes, [&](size_t pool) {
            d.allocation[pool].increase(1);
            d.allocated_bytes[pool].increase(bytes);
        });
        d.num_device_alloc++;
    }

    void leave(storage *s) {
        const auto bytes = static_cast<size_t>(storage_bytes(s));
        DeviceStats &d = devices_[static_cast<size_t>(storage_device(s))];
        each_pool(bytes, [&](size_t pool) {
            d.allocation[pool].decrease(1);
            d.allocated_bytes[pool].decrease(bytes);
        });
        d.num_device_free++;
    }

    template <typename Visit>
    static void each_pool(size_t bytes, Visit visit) {
        visit(static_cast<size_t>(StatType::AGGREGATE));
        visit(static_cast<size_t>(bytes < kLargePool ? StatType::SMALL_POOL : StatType::LARGE_POOL));
    }

    std::mutex mutex_;
    std::array<DeviceStats, kMaxDevices> devices_;
};

void release_storage(void *context) {
    // The parent's client does not work in a forked child: its buffers are left to the process.
    if (!context || in_bad_fork()) return;
    auto *s = static_cast<storage *>(context);
    Books::get().close(s);
    storage_destroy(s);
}

// What the host has, for plugins that keep their arrays in host memory and name no limit.
std::pair<size_t, size_t> host_memory() {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return {static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * page, static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page};
}

class DeviceAllocator final : public c10::DeviceAllocator {
   public:
    at::DataPtr allocate(size_t bytes) override {
        check_not_forked();
        const c10::DeviceIndex device = current_device();
        storage *s = storage_create(static_cast<int64_t>(bytes), device);
        if (!s) Books::get().count_out_of_memory(device);
        TORCH_CHECK_WITH(OutOfMemoryError, s, "no memory for a storage of ", bytes,
                         " bytes on device tpu:", static_cast<int>(device));
        return storage_to_data_ptr(s);
    }

    // The context is not the data, so no caller may take one for the other (copy-on-write storages ask).
    bool is_simple_data_ptr(const at::DataPtr & /*p*/) const override { return false; }

    void copy_data(void *dest, const void *src, std::size_t count) const override {
        int64_t to = 0, from = 0;
        storage *target = storage_find(dest, &to), *source = storage_find(src, &from);
        TORCH_CHECK(count == 0 || (target && source), "the memory to copy is not of device tpu");
        if (count == 0) return;
        std::vector<uint8_t> bytes(count);
        geometry g{};
        const auto size = static_cast<int64_t>(count);
        geometry_contiguous(&g, DTYPE_U8, 1, &size);
        g.offset = from;
        check(storage_read_host(source, &g, bytes.data()));
        g.offset = to;
        check(storage_write_host(target, &g, bytes.data()));
    }

    bool initialized() override { return true; }
    void emptyCache(c10::MempoolId_t /*pool*/) override {
    }  // PJRT frees an array with its last reference: nothing is kept
    void recordStream(const at::DataPtr & /*p*/, c10::Stream /*stream*/) override {}  // a device has one order of work

    DeviceStats getDeviceStats(c10::DeviceIndex device) override {
        return Books::get().stats(checked_device_index(device));
    }
    void resetAccumulatedStats(c10::DeviceIndex device) override {
        Books::get().change(checked_device_index(device), [](auto &stat) { stat.reset_accumulated(); });
    }
    void resetPeakStats(c10::DeviceIndex device) override {
        Books::get().change(checked_device_index(device), [](auto &stat) { stat.reset_peak(); });
    }

    // (free, total) bytes.
    std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
        check_not_forked();
        device = checked_device_index(device);
        pjrt_client *client = nullptr;
        check(runtime_client(&client));
        pjrt_memory_stats m{-1, -1, -1};
        if (status *unknown = pjrt_device_memory_stats(client, device, &m)) {
            // Not every plugin keeps these; the host's numbers stand in where the arrays are host memory.
            status_free(unknown);
            m.bytes_limit = -1;
        }
        if (m.bytes_limit <= 0) return host_memory();
        const int64_t used = std::max<int64_t>(m.bytes_in_use, 0);
        return {static_cast<size_t>(std::max<int64_t>(m.bytes_limit - used, 0)), static_cast<size_t>(m.bytes_limit)};
    }
};

}  // namespace

at::DataPtr storage_to_data_ptr(storage *s) {
    const at::Device device(kDevice, static_cast<c10::DeviceIndex>(storage_device(s)));
    Books::get().open(s);
    return {storage_address(s), s, &release_storage, device};
}

storage *storage_from_data_ptr(const at::DataPtr &p) {
    return p.get_deleter() == &release_storage ? static_cast<storage *>(p.get_context()) : nullptr;
}

c10::Allocator *allocator_get() {
    static auto *allocator = new DeviceAllocator;
    return allocator;
}

c10::Storage storage_wrap(storage *s) {
    const auto bytes = static_cast<size_t>(storage_bytes(s));
    return {c10::Storage::use_byte_size_t(), bytes, storage_to_data_ptr(s), allocator_get(), /*resizable=*/true};
}

void storage_resize_bytes(const c10::Storage &target, size_t bytes) {
    check_not_forked();
    storage *s = storage_from_data_ptr(target.data_ptr());
    TORCH_CHECK(s, "cannot resize a storage whose memory is shared with another library");
    check(Books::get().resize(s, static_cast<int64_t>(bytes)));
    auto *impl = target.unsafeGetStorageImpl();
    const at::Device device = impl->device();
    // The same storage at another address: the context moves over instead of being released.
    impl->_mutable_data_ptr_no_checks().release_context();
    impl->set_data_ptr_noswap({storage_address(s), s, &release_storage, device});
    impl->set_nbytes(bytes);
}

void register_allocator() { c10::SetAllocator(kDevice, allocator_get()); }

}  // namespace torch_tpu
