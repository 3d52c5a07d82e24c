// Views that libtorch gives no kernel for every device. All of them are arithmetic on sizes and strides, which
// libtorch's own functions do; the core reads and writes through the geometry that results.
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>

#include "torch/runtime.h"

namespace torch_tpu {

namespace {

void record_stream(at::Tensor & /*self*/, at::Stream /*stream*/) {
}  // memory is released in the device's one order of work

bool plain(const at::Tensor &t) {
    return t.layout() == at::kStrided && (t.device().type() == kDevice || t.device().is_cpu()) && t.has_storage() &&
           !t.unsafeGetTensorImpl()->is_python_dispatch() && !t.is_mkldnn() && !t.is_quantized();
}

// `parameter.data = tensor` and Module.to keep the tensor's identity by replacing its fields, which libtorch allows
// between the device kinds whose tensors are plain TensorImpls (CPU and CUDA, say). Tensors of this device are plain
// ones too.
bool has_compatible_shallow_copy_type(const at::Tensor &self, const at::Tensor &from) {
    if (plain(self) && plain(from)) return true;
    return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

}  // namespace

void register_views(torch::Library &aten) {
    aten.impl("as_strided", &at::native::as_strided_tensorimpl);
    aten.impl("view", static_cast<at::Tensor (*)(const at::Tensor &, at::IntArrayRef)>(&at::native::view));
    aten.impl("_reshape_alias", static_cast<at::Tensor (*)(const at::Tensor &, at::IntArrayRef, at::IntArrayRef)>(
                                    &at::native::_reshape_alias));
    aten.impl("unfold", &at::native::unfold);
    aten.impl("view_as_real", &at::native::view_as_real);
    aten.impl("view_as_complex", &at::native::view_as_complex);
    aten.impl("is_set_to", &at::native::is_set_to);
    aten.impl("record_stream", &record_stream);
    aten.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
    static auto *autograd =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
    autograd->impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

}  // namespace torch_tpu
