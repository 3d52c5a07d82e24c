// The one boxed function behind nearly every operator of this device, and its registration.
#pragma once

#include <Python.h>

#include <map>
#include <string>

#include "torch/boxed_frame.h"

// Registers the boxed function with PyTorch's dispatcher, and adds operator_way, registered_operators and cpu_fallbacks
// to the module. After every other registration of the bridge: what has a kernel already is left alone. 0, or -1 with
// an exception set.
int python_boxed_init(PyObject *module);

namespace torch_tpu {

// The called operator on the stack, on this device.
void run_operator(const OperatorPlan &plan, torch::jit::Stack *stack);

// PyTorch's own composition, which calls operators that come here again. false: it has none, or is at work already (a
// second entry of the same one means a circle).
bool compose(const OperatorPlan &plan, torch::jit::Stack *stack);

// PyTorch's CPU kernel on copies; what it writes is copied back. reason: why it has to be, for the warning.
void run_on_cpu(const OperatorPlan &plan, torch::jit::Stack *stack, const std::string &reason);
// An operator that failed on this device, or may have to: PyTorch's CPU kernel, tried on copies of the operands (where
// they are small), throws what it throws there. Returns where it throws nothing or cannot be asked.
void raise_as_on_cpu(const OperatorPlan &plan, const c10::IValue *values);
// What infer.cpp needs of the dispatcher.
void register_structured_metas();
// How often each operator ran on the CPU.
std::map<std::string, int64_t> cpu_fallbacks();

// Why the boxed function is not registered for an operator; NULL: it is.
const char *exclusion_reason(const c10::OperatorHandle &op);

}  // namespace torch_tpu
