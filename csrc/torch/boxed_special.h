// Operators of which a part is the host's: boolean masks among indices, and questions answered with a number.
#pragma once

#include "torch/schema.h"

namespace torch_tpu {

// NULL for the usual operator.
PrepareFunction special_for(const OperatorPlan &plan);

}  // namespace torch_tpu
