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

// The results are what the operator writes.
void nothing_new(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
    torch::jit::drop(*stack, op.schema().arguments().size());
}

// One result like this argument.
template <size_t argument>
void like(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
    const size_t n = op.schema().arguments().size();
    at::Tensor result = at::empty_like(torch::jit::peek(*stack, argument, n).toTensor(), at::MemoryFormat::Contiguous);
    torch::jit::drop(*stack, n);
    torch::jit::push(*stack, std::move(result));
}

}  // namespace

void register_meta() {
    static auto *aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
    aten->impl("_thnn_fused_gru_cell", gru_cell);
    aten->impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
    for (const char *name : {"_fused_sgd_", "_fused_sgd_.tensor_lr", "_fused_adagrad_", "_fused_adagrad_.tensor_lr"})
        aten->impl(name, torch::CppFunction::makeFromBoxedFunction<&nothing_new>());
    for (const char *name : {"_sample_dirichlet", "_masked_softmax", "_masked_softmax_backward"})
        aten->impl(name, torch::CppFunction::makeFromBoxedFunction<&like<0>>());
    for (const char *name : {"multi_margin_loss_backward", "multilabel_margin_loss_backward"})
        aten->impl(name, torch::CppFunction::makeFromBoxedFunction<&like<1>>());
}

}  // namespace torch_tpu
