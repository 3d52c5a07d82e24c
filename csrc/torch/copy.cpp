// Copies between host and device and within a device, in all dtypes, strides and broadcasts.
//
// The core takes and gives dense row-major host data. Here the dimensions are put in the memory order of the device
// tensor first, so that a transposed or channels_last tensor is one plain transfer, and a change of dtype happens on
// the side where the bytes that travel are fewer. Host memory has been read when a copy returns, whatever
// `non_blocking` says.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Scalar.h>

#include "torch/runtime.h"

namespace torch_tpu {

namespace {

// Below this many bytes a transfer costs what a launch costs, and a conversion on the device would be one launch more.
constexpr int64_t kSmallTransfer = 64 * 1024;

// The permutation that sorts t's dimensions into memory order where it has one, else none.
bool memory_order(const at::Tensor &t, std::vector<int64_t> *order) {
    geometry g;
    tensor_geometry(t, &g);
    int permutation[VIEW_MAX_RANK];
    if (!geometry_memory_order(&g, permutation)) return false;
    order->assign(permutation, permutation + g.rank);
    return true;
}

// Geometry without the lazy bits: what is stored rather than what it stands for.
geometry stored_geometry(const at::Tensor &t) {
    geometry g;
    tensor_geometry(t, &g);
    g.conj = g.neg = false;
    return g;
}

at::Tensor device_tensor_like(const at::Tensor &t, at::ScalarType type, c10::Device device) {
    return at::empty(t.sizes(), t.options().dtype(type).device(device).pinned_memory(std::nullopt),
                     t.suggest_memory_format());
}

// What t stands for, stored plainly.
at::Tensor resolved(const at::Tensor &t) { return t.resolve_conj().resolve_neg(); }

// src on the host, dst's sizes and dtype: writes dst's stored values.
void write_dense(const at::Tensor &dst, const at::Tensor &src) {
    at::Tensor target = dst, source = src;
    std::vector<int64_t> order;
    if (dst.dim() > 1 && memory_order(dst, &order)) {
        target = dst.permute(order);
        source = src.permute(order);
    }
    source = resolved(source).contiguous();
    // The lazy bits of the target are undone here: the stored value is the one that reads as source.
    if (dst.is_conj()) source = source.conj_physical();
    if (dst.is_neg()) source = source.neg();
    const geometry g = stored_geometry(target);
    check_not_forked();
    check(storage_write_host(storage_of(target), &g, source.const_data_ptr()));
}

// A dense host tensor of what src stands for, in src's memory order where it has one.
at::Tensor read_dense(const at::Tensor &src) {
    at::Tensor source = src;
    std::vector<int64_t> order;
    if (src.dim() > 1 && memory_order(src, &order)) source = src.permute(order);
    at::Tensor host = at::detail::empty_cpu(source.sizes(), src.scalar_type());
    const geometry g = stored_geometry(source);
    check_not_forked();
    check(storage_read_host(storage_of(source), &g, host.mutable_data_ptr()));
    if (!order.empty()) {
        std::vector<int64_t> inverse(order.size());
        for (size_t i = 0; i < order.size(); i++) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
        host = host.permute(inverse);
    }
    if (src.is_conj()) host = host.conj_physical();
    if (src.is_neg()) host = host.neg();
    return host;
}

argument tensor_argument(core_tensor *t) {
    argument a{};
    a.tag = ARG_VALUE;
    a.u.tensor = t;
    return a;
}

void check_writable(const at::Tensor &dst) { at::assert_no_internal_overlap(dst); }

at::Tensor copy_from(const at::Tensor &self, const at::Tensor &dst, bool /*non_blocking*/) {
    if (dst.numel() == 0 && self.numel() == 0) return dst;
    const auto broadcast = at::infer_size(dst.sizes(), self.sizes());  // raises PyTorch's own message
    TORCH_CHECK(at::IntArrayRef(broadcast) == dst.sizes(), "output with shape ", dst.sizes(),
                " doesn't match the broadcast shape ", at::IntArrayRef(broadcast));
    if (dst.numel() == 0) return dst;
    check_writable(dst);
    if (is_tpu(self) && is_tpu(dst)) {
        if (self.device() == dst.device()) {
            at::assert_no_partial_overlap(dst, self);
            copy_on_device(dst, self);
        } else {
            copy_from_host(dst, read_dense(self));
        }
    } else if (is_tpu(dst)) {
        copy_from_host(dst, self);
    } else {
        copy_to_host(dst, self);
    }
    return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor &self, const at::Tensor &dst) {
    dst.resize_(self.sizes());
    return copy_from(self, dst, false);
}

// PyTorch's, which takes the host's memory first: where the device had too little for self, that is the error to raise.
at::Tensor to_copy(const at::Tensor &self, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                   std::optional<at::Device> device, std::optional<bool> pin_memory, bool non_blocking,
                   std::optional<at::MemoryFormat> format) {
    if (device && device->is_cpu() && is_tpu(self)) {
        check_not_forked();
        check(storage_wait(storage_of(self)));
    }
    return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
}

at::Scalar local_scalar_dense(const at::Tensor &self) { return read_dense(self).item(); }

}  // namespace

void copy_on_device(const at::Tensor &dst, const at::Tensor &src) {
    static operator_info *copy = operator_intern("aten::copy");
    TORCH_CHECK_WITH(OutOfMemoryError, copy, "no memory for the operator's name");
    core_tensor source = tensor_to_core(src), target = tensor_to_core(dst);
    // aten::copy(Tensor self, Tensor src, bool non_blocking): self gives only its type, which the result has already.
    argument args[3] = {};
    args[1] = tensor_argument(&source);
    args[2].tag = ARG_INT;
    call_result result{};
    result.kind = RESULT_WRITE;
    result.target = &target;
    call c{};
    c.op = copy;
    c.n_args = 3;
    c.args = args;
    c.n_results = c.max_results = 1;
    c.results = &result;
    c.results_known = true;
    c.device = dst.get_device();
    check(exec_call(&c));
}

void copy_from_host(const at::Tensor &dst, const at::Tensor &src) {
    TORCH_CHECK_NOT_IMPLEMENTED(src.layout() == at::kStrided, "copying tensors of layout ", src.layout(),
                                " to device tpu is not supported; use .to_dense()");
    const bool broadcast = src.sizes() != dst.sizes();
    const auto travelling = static_cast<int64_t>(src.numel() * src.itemsize());
    const bool lighter = src.numel() * src.itemsize() < dst.numel() * dst.itemsize() &&
                         dtype_from_torch(src.scalar_type()) != DTYPE_INVALID;
    if (lighter && travelling > kSmallTransfer && (broadcast || src.itemsize() < dst.itemsize())) {
        const at::Tensor there = device_tensor_like(src, src.scalar_type(), dst.device());
        write_dense(there, src);
        copy_on_device(dst, there);
        return;
    }
    const at::Tensor converted = src.scalar_type() == dst.scalar_type() ? src : src.to(dst.scalar_type());
    write_dense(dst, broadcast ? converted.expand(dst.sizes()) : converted);
}

void copy_to_host(const at::Tensor &dst, const at::Tensor &src) {
    at::Tensor source = src;
    const auto bytes = static_cast<int64_t>(src.numel() * src.itemsize());
    if (dst.itemsize() < src.itemsize() && bytes > kSmallTransfer &&
        dtype_from_torch(dst.scalar_type()) != DTYPE_INVALID) {
        source = device_tensor_like(src, dst.scalar_type(), src.device());
        copy_on_device(source, src);
    }
    const bool plain = !source.is_conj() && !source.is_neg() && !dst.is_conj() && !dst.is_neg();
    if (plain && source.scalar_type() == dst.scalar_type() && source.sizes() == dst.sizes() && dst.is_contiguous()) {
        std::vector<int64_t> order;
        if (source.is_contiguous() || source.dim() < 2 || !memory_order(source, &order)) {
            const geometry g = stored_geometry(source);
            check_not_forked();
            check(storage_read_host(storage_of(source), &g, dst.mutable_data_ptr()));
            return;
        }
    }
    dst.copy_(read_dense(source));
}

void register_copies(torch::Library &aten) {
    aten.impl("_to_copy", &to_copy);
    aten.impl("_copy_from", &copy_from);
    aten.impl("_copy_from_and_resize", &copy_from_and_resize);
    aten.impl("_local_scalar_dense", &local_scalar_dense);
    // The lazy bits are honoured here. PyTorch's fallback for them would clone the tensor first, which is a copy again,
    // without end.
    for (const auto key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
        auto *lazy = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
        lazy->impl("_copy_from", torch::CppFunction::makeFallthrough());
    }
}

}  // namespace torch_tpu
