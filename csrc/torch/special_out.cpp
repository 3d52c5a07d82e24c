// out= forms whose dtype, shape or way is not the functional operator's.
#include <ATen/native/Resize.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/range.h>

#include "torch/boxed_special.h"

namespace torch_tpu {

using torch::jit::Stack;

namespace {

at::Tensor out_of(const OperatorPlan &plan, Stack *stack) {
    return value_of(plan, stack, plan.stack_size - 1).toTensor();
}

// The numbers decide the result's size, and are no part of a program's key: out takes its size before the call.
bool size_range(const OperatorPlan &plan, Stack *stack, bool inclusive) {
    const at::Scalar start = value_of(plan, stack, 0).toScalar(), end = value_of(plan, stack, 1).toScalar();
    const at::Scalar step = value_of(plan, stack, 2).toScalar();
    const at::Tensor out = out_of(plan, stack);
    const at::TensorOptions meta = at::TensorOptions(at::kMeta).dtype(out.dtype());
    const at::Tensor sized = inclusive ? at::range(start, end, step, meta) : at::arange(start, end, step, meta);
    // An out= of the right number of elements keeps its shape, as on the CPU.
    if (out.numel() != sized.numel()) at::native::resize_output(out, sized.sizes());
    return false;
}

}  // namespace

bool dtype_of_out(const OperatorPlan &plan, Stack *stack) {
    auto dtype = plan.called.schema().argumentIndexWithName("dtype");
    const at::Tensor out = out_of(plan, stack);
    if (dtype && value_of(plan, stack, *dtype).isNone() && out.defined())
        torch::jit::peek(*stack, *dtype, plan.stack_size) = out.scalar_type();
    return false;
}

bool nansum(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor &self = value_of(plan, stack, 0).toTensor();
    const auto dtype = value_of(plan, stack, 3).toOptional<at::ScalarType>();
    TORCH_CHECK_NOT_IMPLEMENTED(!dtype || !self.is_floating_point() || !at::isIntegralType(*dtype, true),
                                "\"nansum_cpu\" not implemented for '", *dtype, "'");
    return false;
}

bool nansum_out(const OperatorPlan &plan, Stack *stack) {
    dtype_of_out(plan, stack);
    return nansum(plan, stack);
}

bool arange_out(const OperatorPlan &plan, Stack *stack) { return size_range(plan, stack, false); }
bool range_out(const OperatorPlan &plan, Stack *stack) { return size_range(plan, stack, true); }

// As on the CPU: resized without a word.
bool eye_out(const OperatorPlan &plan, Stack *stack) {
    const int64_t rows = value_of(plan, stack, 0).toInt(), columns = value_of(plan, stack, plan.stack_size - 2).toInt();
    if (rows >= 0 && columns >= 0) out_of(plan, stack).resize_({rows, columns});
    return false;
}

// As on the CPU: another number of elements is resized without a word, the right one keeps its shape.
bool spaced_out(const OperatorPlan &plan, Stack *stack) {
    const int64_t steps = value_of(plan, stack, 2).toInt();
    const at::Tensor out = out_of(plan, stack);
    if (steps < 0) return false;
    if (out.numel() != steps) out.resize_({steps});
    if (out.dim() == 1) return false;
    const at::Tensor line = at::empty({steps}, out.options());
    torch::jit::peek(*stack, plan.stack_size - 1, plan.stack_size) = line;
    plan.called.callBoxed(stack);
    torch::jit::pop(*stack);
    out.copy_(line.view(out.sizes()));
    torch::jit::push(*stack, out);
    return true;
}

bool linear_out(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor input = value_of(plan, stack, 0).toTensor(), weight = value_of(plan, stack, 1).toTensor();
    const auto bias = value_of(plan, stack, 2).toOptional<at::Tensor>();
    at::Tensor out = out_of(plan, stack);
    const bool has_bias = bias && bias->defined();
    if (has_bias && input.dim() == 2) {
        at::addmm_out(out, *bias, input, weight.t());
    } else {
        at::matmul_out(out, input, weight.t());
        if (has_bias) at::add_out(out, out, *bias);
    }
    return answer(plan, stack, out);
}

}  // namespace torch_tpu
