// Operators of which a part is the host's: boolean masks among indices, and questions answered with a number.
#pragma once

#include "torch/schema.h"

namespace torch_tpu {

// NULL for the usual operator.
PrepareFunction special_for(const OperatorPlan &plan);
// A program reads all lists before it writes; PyTorch's composition goes from tensor to tensor, each as the last one
// left it. So that does what writes a tensor which is in the lists at another place too.
bool foreach_shared(const OperatorPlan &plan, torch::jit::Stack *stack);

}  // namespace torch_tpu
