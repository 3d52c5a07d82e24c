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

// What the row in csrc/ops/attention.c takes; of the rest PyTorch's composition knows what to broadcast and to refuse.
bool row_fits(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, bool grouped) {
    const auto type = q.scalar_type();
    if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4 || !at::isFloatingType(type) || k.scalar_type() != type ||
        v.scalar_type() != type || k.sym_sizes() != v.sym_sizes() || q.sym_size(0) != k.sym_size(0) ||
        q.sym_size(3) != k.sym_size(3))
        return false;
    const c10::SymInt heads = q.sym_size(1), shared = k.sym_size(1);
    return heads == shared || (grouped && shared > 0 && heads % shared == 0);
}

int64_t choose(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const std::optional<at::Tensor> &mask,
               double dropout, bool /*is_causal*/, std::optional<double> /*scale*/, bool enable_gqa) {
    const bool for_tpu = ahead_of_time || std::strcmp(runtime_platform(), "tpu") == 0;
    const bool usable_mask = !mask || (mask->dim() >= 2 && mask->dim() <= 4);
    const bool one = for_tpu && at::globalContext().userEnabledOverrideableSDP() && usable_mask && dropout == 0 &&
                     row_fits(q, k, v, enable_gqa);
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
