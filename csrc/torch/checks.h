// Checks of a call's arguments beside those that PyTorch's metadata functions make.
#pragma once

#include "torch/schema.h"

namespace torch_tpu {

// The functional operator's argument i; NULL: it has fewer.
inline const c10::IValue *argument_of(const OperatorPlan &plan, const c10::IValue *values, size_t i) {
    if (i >= plan.args.size()) return nullptr;
    return plan.args[i].source < 0 ? &plan.args[i].absent : &values[plan.args[i].source];
}

// NULL: not a tensor, or none given.
inline const at::Tensor *tensor_of(const c10::IValue *value) {
    return value && value->isTensor() && value->toTensor().defined() ? &value->toTensor() : nullptr;
}

// What PyTorch's CPU kernels check of shapes and dtypes and its metadata functions do not. Throws as they do.
void check_arguments(const OperatorPlan &plan, const c10::IValue *values);

// What debug mode checks before a launch, because a device cannot. IndexError for an index that is out of range; names
// the operator, the index and the size.
void check_indices(const OperatorPlan &plan, const c10::IValue *values);

}  // namespace torch_tpu
