// Automatic mixed precision: PyTorch's own lists of operators, with bfloat16 as the lower precision.
#include <ATen/autocast_mode.h>

#include "torch/runtime.h"

namespace torch_tpu {

namespace {

// The lists of ATen/autocast_mode.h are written for a file that is in these namespaces.
using namespace at;
using namespace at::autocast;

void fill(torch::Library &m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
    AT_FORALL_LOWER_PRECISION_FP(LOWER)
#undef LOWER
#define FULL(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
    AT_FORALL_FP32(FULL)
    // bfloat16 has float32's range, so the loss is computed in float32 rather than refused.
    FULL(binary_cross_entropy)
#undef FULL
#define FULL_BY_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
    AT_FORALL_FP32_SET_OPT_DTYPE(FULL_BY_DTYPE)
#undef FULL_BY_DTYPE
    AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
    AT_FORALL_PROMOTE(WIDEST)
    WIDEST(cat)
    WIDEST(stack)
#undef WIDEST
}

}  // namespace

void register_autocast() {
    constexpr auto key = c10::DispatchKey::AutocastPrivateUse1;
    static auto *fallback = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
    fallback->fallback(torch::CppFunction::makeFallthrough());
    static auto *aten = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    fill(*aten);
    at::autocast::set_autocast_dtype(kDevice, at::kBFloat16);
}

}  // namespace torch_tpu
