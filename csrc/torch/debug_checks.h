// What debug mode checks before a launch, because a device cannot.
#pragma once

#include "torch/schema.h"

namespace torch_tpu {

// IndexError for an index that is out of range; names the operator, the index and the size.
void check_indices(const OperatorPlan &plan, const c10::IValue *values);

}  // namespace torch_tpu
