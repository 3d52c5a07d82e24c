// Making tensors and changing what they stand on: empty, set_, resize_.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/set_native.h>
#include <c10/core/DeviceGuard.h>

#include "torch/runtime.h"

namespace torch_tpu {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::ScalarType checked_dtype(std::optional<at::ScalarType> requested) {
    const at::ScalarType type = c10::dtype_or_default(requested);
    TORCH_CHECK_TYPE(dtype_from_torch(type) != DTYPE_INVALID, "dtype ", type, " is not supported on device tpu");
    return type;
}

c10::Device checked_device(std::optional<at::Layout> layout, std::optional<at::Device> device,
                           std::optional<bool> pin) {
    const auto wanted = c10::device_or_default(device);
    TORCH_CHECK(wanted.type() == kDevice, "expected device tpu, got ", wanted);
    TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == at::kStrided, "tensors of layout ", *layout,
                                " are not supported on device tpu");
    TORCH_CHECK(!c10::pinned_memory_or_default(pin), "Only dense CPU tensors can be pinned");
    return {kDevice, checked_device_index(wanted.index())};
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
    const c10::DeviceGuard guard(checked_device(layout, device, pin));
    return at::detail::empty_generic(size, allocator_get(), kKeys, checked_dtype(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pin) {
    const c10::DeviceGuard guard(checked_device(layout, device, pin));
    return at::detail::empty_strided_generic(size, stride, allocator_get(), kKeys, checked_dtype(type));
}

// A tensor of zeros without memory, which forward-mode derivatives use.
at::Tensor zero_tensor(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                       std::optional<at::Device> device, std::optional<bool> pin) {
    const c10::Device place = checked_device(layout, device, pin);
    const c10::DeviceGuard guard(place);
    at::native::ZeroTensorAllocator nothing(place);
    return at::detail::empty_generic(size, &nothing, kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                     checked_dtype(type), std::nullopt);
}

c10::Storage empty_storage(c10::Device device) {
    const c10::DeviceGuard guard(device);
    return {c10::Storage::use_byte_size_t(), 0, allocator_get(), /*resizable=*/true};
}

// The sizes (and strides, else contiguous ones) of self, whose storage grows where it is too small. A size of no
// elements leaves the storage alone, as PyTorch's CPU does.
void set_sizes(at::TensorImpl *self, at::IntArrayRef size, at::OptionalIntArrayRef stride) {
    if (self->sizes() == size && (!stride || self->strides() == *stride)) return;
    const size_t item = self->itemsize();
    const auto offset = static_cast<size_t>(self->storage_offset());
    size_t bytes = 0;
    if (stride) {
        self->set_sizes_and_strides(size, *stride);
        bytes = at::detail::computeStorageNbytes(size, *stride, item, offset);
    } else {
        self->set_sizes_contiguous(size);
        bytes = at::detail::computeStorageNbytesContiguous(size, item, offset);
    }
    if (self->numel() == 0) return;
    const c10::Storage &s = self->unsafe_storage();
    if (!s) self->set_storage_keep_dtype(empty_storage(self->device()));
    if (bytes > self->unsafe_storage().nbytes()) storage_resize_bytes(self->unsafe_storage(), bytes);
}

const at::Tensor &resize_(const at::Tensor &self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
    at::TensorImpl *impl = self.unsafeGetTensorImpl();
    set_sizes(impl, size, std::nullopt);
    if (format) {
        TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
        impl->empty_tensor_restride(*format);
    }
    return self;
}

at::Tensor &set_storage(at::Tensor &self, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
    at::native::checkSetStorage(self, std::move(source), offset, size, stride);
    self.unsafeGetTensorImpl()->set_storage_offset(offset);
    set_sizes(self.unsafeGetTensorImpl(), size, stride.data() ? at::OptionalIntArrayRef(stride) : std::nullopt);
    return self;
}

at::Tensor &set_nothing(at::Tensor &self) { return set_storage(self, empty_storage(self.device()), 0, {0}, {}); }

}  // namespace

void register_factories(torch::Library &aten) {
    aten.impl("empty.memory_format", &empty);
    aten.impl("empty_strided", &empty_strided);
    aten.impl("_efficientzerotensor", &zero_tensor);
    aten.impl("resize_", &resize_);
    aten.impl("set_", &set_nothing);
    aten.impl("set_.source_Storage", static_cast<at::Tensor &(*)(at::Tensor &, at::Storage)>(&at::native::set_));
    aten.impl("set_.source_Storage_storage_offset", &set_storage);
    aten.impl("set_.source_Tensor", &at::native::set_tensor_);
}

}  // namespace torch_tpu
