// Tensors of this device as the core sees them, and statuses as PyTorch's exceptions.
#include "torch/tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <array>
#include <new>
#include <typeinfo>

#include "torch/runtime.h"

namespace torch_tpu {

namespace {

struct dtype_pair {
    dtype core;
    at::ScalarType torch;
};

constexpr dtype_pair kDtypes[] = {
    {DTYPE_BOOL, at::kBool},
    {DTYPE_U8, at::kByte},
    {DTYPE_I8, at::kChar},
    {DTYPE_U16, at::kUInt16},
    {DTYPE_I16, at::kShort},
    {DTYPE_U32, at::kUInt32},
    {DTYPE_I32, at::kInt},
    {DTYPE_U64, at::kUInt64},
    {DTYPE_I64, at::kLong},
    {DTYPE_F8E4M3FN, at::kFloat8_e4m3fn},
    {DTYPE_F8E5M2, at::kFloat8_e5m2},
    {DTYPE_F8E4M3FNUZ, at::kFloat8_e4m3fnuz},
    {DTYPE_F8E5M2FNUZ, at::kFloat8_e5m2fnuz},
    {DTYPE_F16, at::kHalf},
    {DTYPE_BF16, at::kBFloat16},
    {DTYPE_F32, at::kFloat},
    {DTYPE_F64, at::kDouble},
    {DTYPE_C64, at::kComplexFloat},
    {DTYPE_C128, at::kComplexDouble},
};
static_assert(std::size(kDtypes) == DTYPE_COUNT - 1, "a type of the core lacks its torch type");

constexpr auto kFromTorch = [] {
    std::array<dtype, static_cast<size_t>(at::ScalarType::NumOptions)> table{};
    for (auto &entry : table) entry = DTYPE_INVALID;
    for (const auto &pair : kDtypes) table[static_cast<size_t>(pair.torch)] = pair.core;
    return table;
}();
constexpr auto kToTorch = [] {
    std::array<at::ScalarType, DTYPE_COUNT> table{};
    for (auto &entry : table) entry = at::ScalarType::Undefined;
    for (const auto &pair : kDtypes) table[pair.core] = pair.torch;
    return table;
}();

// A tensor that an exchange format made over a storage of ours counts its offset from an address inside the storage.
struct foreign_view {
    storage *owner;
    int64_t distance;  // bytes from the start of owner
};

foreign_view find_foreign(const c10::Storage &s) {
    foreign_view v{nullptr, 0};
    v.owner = storage_find(s.data_ptr().get(), &v.distance);
    return v;
}

}  // namespace

dtype dtype_from_torch(at::ScalarType t) {
    const auto i = static_cast<size_t>(t);
    return i < kFromTorch.size() ? kFromTorch[i] : DTYPE_INVALID;
}

at::ScalarType dtype_to_torch(dtype t) { return kToTorch[static_cast<size_t>(t)]; }

storage *storage_of(const c10::Storage &s) {
    TORCH_CHECK(s, "the tensor has no storage");
    TORCH_CHECK(s.device_type() == kDevice, "expected a storage of device tpu, got one of ", s.device());
    if (storage *own = storage_from_data_ptr(s.data_ptr())) return own;
    storage *owner = find_foreign(s).owner;
    TORCH_CHECK(owner, "the tensor's memory is not allocated by torch_tpu, or was released");
    return owner;
}

storage *storage_of(const at::Tensor &t) {
    TORCH_CHECK(t.defined(), "expected a tensor of device tpu, got an undefined one");
    TORCH_CHECK(is_tpu(t), "expected a tensor of device tpu, got one of ", t.device());
    TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == at::kStrided, "tensors of layout ", t.layout(),
                                " are not supported on device tpu; use .to_dense()");
    TORCH_CHECK(t.has_storage(), "the tensor has no storage");
    return storage_of(t.storage());
}

void tensor_geometry(const at::Tensor &t, geometry *g) {
    const int64_t rank = t.dim();
    TORCH_CHECK_NOT_IMPLEMENTED(rank <= VIEW_MAX_RANK, "tensors of ", rank,
                                " dimensions are not supported on device tpu (at most ", VIEW_MAX_RANK, ")");
    g->dtype = dtype_from_torch(t.scalar_type());
    TORCH_CHECK_TYPE(g->dtype != DTYPE_INVALID, "dtype ", t.scalar_type(),
                     " is not supported on device tpu; convert the tensor to another dtype");
    g->rank = static_cast<int>(rank);
    g->conj = t.is_conj();
    g->neg = t.is_neg();
    g->offset = t.storage_offset();
    const auto sizes = t.sizes(), strides = t.strides();
    for (int64_t i = 0; i < rank; i++) {
        g->sizes[i] = sizes[i];
        g->strides[i] = strides[i];
    }
    const auto &s = t.storage();
    if (s && !storage_from_data_ptr(s.data_ptr())) {
        const int64_t item = static_cast<int64_t>(t.itemsize());
        const int64_t distance = find_foreign(s).distance;
        TORCH_CHECK(distance % item == 0, "the tensor's memory is not aligned to its elements");
        g->offset += distance / item;
    }
}

core_tensor tensor_to_core(const at::Tensor &t) {
    check_not_forked();
    core_tensor c;
    c.storage = storage_of(t);
    tensor_geometry(t, &c.geometry);
    return c;
}

at::Tensor tensor_from_core(storage *s, const geometry &g) {
    const auto type = c10::scalarTypeToTypeMeta(dtype_to_torch(g.dtype));
    auto tensor = at::detail::make_tensor<c10::TensorImpl>(storage_wrap(s),
                                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(at::IntArrayRef(g.sizes, static_cast<size_t>(g.rank)),
                                                        at::IntArrayRef(g.strides, static_cast<size_t>(g.rank)),
                                                        g.offset);
    if (g.conj) tensor._set_conj(true);
    if (g.neg) tensor._set_neg(true);
    return tensor;
}

at::Tensor tensor_to_meta(const at::Tensor &t) {
    const auto nbytes = static_cast<int64_t>(at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.itemsize(),
                                                                              static_cast<size_t>(t.storage_offset())));
    c10::Storage s(c10::Storage::use_byte_size_t(), nbytes, at::DataPtr(nullptr, at::Device(at::kMeta)),
                   c10::GetAllocator(at::kMeta), true);
    auto meta =
        at::detail::make_tensor<c10::TensorImpl>(std::move(s), c10::DispatchKeySet(c10::DispatchKey::Meta), t.dtype());
    meta.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
    if (t.is_conj()) meta._set_conj(true);
    if (t.is_neg()) meta._set_neg(true);
    return meta;
}

void warn(const std::string &message) {
    // Without a file Python's handler adds no place in C++; libtorch's own, which torch.ops calls run under, needs one.
    const c10::WarningHandler &handler = *c10::WarningUtils::get_warning_handler();
    const char *file = typeid(handler) == typeid(c10::WarningHandler) ? "torch_tpu" : nullptr;
    c10::warn(c10::Warning(c10::UserWarning(), {"", file, 0}, message, false));
}

void throw_status(status *s) {
    const std::string message = status_message(s);
    const status_code code = status_get_code(s);
    status_free(s);
    switch (code) {
        case STATUS_INDEX:
            TORCH_CHECK_INDEX(false, message);
        case STATUS_TYPE:
            TORCH_CHECK_TYPE(false, message);
        case STATUS_VALUE:
            TORCH_CHECK_VALUE(false, message);
        case STATUS_NOT_IMPLEMENTED:
            TORCH_CHECK_NOT_IMPLEMENTED(false, message);
        case STATUS_OUT_OF_MEMORY:
            TORCH_CHECK_WITH(OutOfMemoryError, false, message);
        case STATUS_INTERNAL:
            TORCH_CHECK(false, "torch_tpu internal error: ", message);
        case STATUS_RUNTIME:
        case STATUS_NOT_FOUND:
            break;
    }
    TORCH_CHECK(false, message);
}

status *status_from_exception() {
    // The classes of c10's exceptions, most derived first; what_without_backtrace keeps the message that a user reads.
    try {
        throw;
    } catch (const c10::IndexError &e) {
        return status_new(STATUS_INDEX, "%s", e.what_without_backtrace());
    } catch (const c10::TypeError &e) {
        return status_new(STATUS_TYPE, "%s", e.what_without_backtrace());
    } catch (const c10::ValueError &e) {
        return status_new(STATUS_VALUE, "%s", e.what_without_backtrace());
    } catch (const c10::NotImplementedError &e) {
        return status_new(STATUS_NOT_IMPLEMENTED, "%s", e.what_without_backtrace());
    } catch (const c10::OutOfMemoryError &e) {
        return status_new(STATUS_OUT_OF_MEMORY, "%s", e.what_without_backtrace());
    } catch (const c10::Error &e) {
        return status_new(STATUS_RUNTIME, "%s", e.what_without_backtrace());
    } catch (const std::bad_alloc &) {
        return status_no_memory();
    } catch (const std::exception &e) {
        return status_new(STATUS_RUNTIME, "%s", e.what());
    } catch (...) {
        return status_new(STATUS_INTERNAL, "an exception of unknown type");
    }
}

}  // namespace torch_tpu
