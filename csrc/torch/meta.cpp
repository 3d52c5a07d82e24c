// Metadata of operators that only accelerators receive and for which PyTorch has no meta kernel.
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "torch/runtime.h"

namespace torch_tpu {

namespace {

// The workspace keeps the reset, input and new gates, the state, and the hidden part of the new gate.
std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor & /*input_gates*/, const at::Tensor & /*hidden_gates*/,
                                            const at::Tensor &hx, const std::optional<at::Tensor> & /*input_bias*/,
                                            const std::optional<at::Tensor> & /*hidden_bias*/) {
    return {at::empty_like(hx, at::MemoryFormat::Contiguous), hx.new_empty({hx.size(0), hx.size(1) * 5})};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor &grad_hy, const at::Tensor & /*workspace*/, bool has_bias) {
    const int64_t gates = grad_hy.size(1) * 3;
    auto bias = [&] { return has_bias ? grad_hy.new_empty({gates}) : at::Tensor(); };
    return {grad_hy.new_empty({grad_hy.size(0), gates}), grad_hy.new_empty({grad_hy.size(0), gates}),
            at::empty_like(grad_hy, at::MemoryFormat::Contiguous), bias(), bias()};
}

}  // namespace

void register_meta() {
    static auto *aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
    aten->impl("_thnn_fused_gru_cell", gru_cell);
    aten->impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

}  // namespace torch_tpu
