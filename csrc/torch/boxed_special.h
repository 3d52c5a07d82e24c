// Operators of which a part is the host's: boolean masks among indices, and questions answered with a number.
#pragma once

#include "torch/schema.h"

namespace torch_tpu {

template <typename T>
bool answer(const OperatorPlan &plan, torch::jit::Stack *stack, T value) {
    torch::jit::drop(*stack, plan.stack_size);
    torch::jit::push(*stack, std::move(value));
    return true;
}

inline const c10::IValue &value_of(const OperatorPlan &plan, torch::jit::Stack *stack, int i) {
    return torch::jit::peek(*stack, i, plan.stack_size);
}

// NULL for the usual operator.
PrepareFunction special_for(const OperatorPlan &plan);
// A program reads all lists before it writes; PyTorch's composition goes from tensor to tensor, each as the last one
// left it. So that does what writes a tensor which is in the lists at another place too.
bool foreach_shared(const OperatorPlan &plan, torch::jit::Stack *stack);

// ---- out= forms (special_out.cpp) ----
// Reductions compute in the dtype of out=.
bool dtype_of_out(const OperatorPlan &plan, torch::jit::Stack *stack);
// The CPU has no kernel for sums of floating-point numbers in an integer type that leave out NaN.
bool nansum(const OperatorPlan &plan, torch::jit::Stack *stack);
bool nansum_out(const OperatorPlan &plan, torch::jit::Stack *stack);
bool arange_out(const OperatorPlan &plan, torch::jit::Stack *stack);
bool range_out(const OperatorPlan &plan, torch::jit::Stack *stack);
bool eye_out(const OperatorPlan &plan, torch::jit::Stack *stack);
bool spaced_out(const OperatorPlan &plan, torch::jit::Stack *stack);
bool linear_out(const OperatorPlan &plan, torch::jit::Stack *stack);

}  // namespace torch_tpu
