// Tensors of device "tpu" as the core sees them, and the core's errors as PyTorch's exceptions.
#pragma once

#include <ATen/core/Tensor.h>

extern "C" {
#include "base/environment.h"
#include "exec/exec.h"
}

namespace torch_tpu {

constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;

// DTYPE_INVALID / ScalarType::Undefined for a type the other side lacks.
dtype dtype_from_torch(at::ScalarType t);
at::ScalarType dtype_to_torch(dtype t);

inline bool is_tpu(const at::Tensor &t) { return t.defined() && t.device().type() == kDevice; }
// The core's storage behind a tensor of this device (borrowed). Throws for a tensor without storage or of another
// device.
storage *storage_of(const at::Tensor &t);
storage *storage_of(const c10::Storage &s);
// Sizes, strides, offset, dtype, conj and neg bits. Throws for rank over VIEW_MAX_RANK and types the core lacks.
void tensor_geometry(const at::Tensor &t, geometry *g);
core_tensor tensor_to_core(const at::Tensor &t);
// A new tensor over `s`, which it takes.
at::Tensor tensor_from_core(storage *s, const geometry &g);
// Metadata of a geometry as a tensor of device meta (for PyTorch's meta kernels).
at::Tensor tensor_to_meta(const at::Tensor &t);

// The exception that a status stands for: RuntimeError, IndexError, TypeError, ValueError, NotImplementedError,
// torch.OutOfMemoryError. Frees the status.
[[noreturn]] void throw_status(status *s);
inline void check(status *s) {
    if (s) throw_status(s);
}
// A UserWarning at the user's line; TORCH_WARN would add the place in this library's sources.
void warn(const std::string &message);
// The reverse, for callbacks that the core calls: to be used inside catch (...) { return status_from_exception(); }
status *status_from_exception();

}  // namespace torch_tpu
