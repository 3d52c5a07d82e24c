// Whether scaled_dot_product_attention stays one operator (which becomes JAX's flash attention kernel in programs for a
// TPU, torch_tpu/_flash.py) or is taken apart into matrix products.
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>

#include <cstring>

#include "torch/runtime.h"

namespace torch_tpu {

namespace {

thread_local bool ahead_of_time = false;

constexpr int64_t kAlignment = 128;  // the kernel's smallest block

bool aligned(const at::Tensor &t) {
    const auto size = t.sym_size(2).maybe_as_int();
    return size && *size > 0 && *size % kAlignment == 0;
}

bool kernel_fits(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v) {
    const auto type = q.scalar_type();
    return q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && (type == at::kBFloat16 || type == at::kFloat) &&
           k.scalar_type() == type && v.scalar_type() == type && q.sym_size(3) == v.sym_size(3) && aligned(q) &&
           aligned(k);
}

int64_t choose(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const std::optional<at::Tensor> &mask,
               double dropout, bool /*is_causal*/, std::optional<double> /*scale*/, bool /*enable_gqa*/) {
    const bool for_tpu = ahead_of_time || std::strcmp(runtime_platform(), "tpu") == 0;
    const bool one =
        for_tpu && at::globalContext().userEnabledOverrideableSDP() && !mask && dropout == 0 && kernel_fits(q, k, v);
    return static_cast<int64_t>(one ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

}  // namespace

bool attention_set_ahead(bool ahead) {
    const bool before = ahead_of_time;
    ahead_of_time = ahead;
    return before;
}

}  // namespace torch_tpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_tpu::choose)
}
