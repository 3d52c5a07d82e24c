// What a call of an ATen operator means for the core, worked out once an operator from its schema: the functional
// operator behind it, where each of that operator's arguments comes from, and which results are written where.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "torch/tensor.h"

namespace torch_tpu {

enum class ArgKind : uint8_t { Tensor, Tensors, Number, Numbers, Int, Ints, Dtype, String, Generator, Ignored };
ArgKind kind_of(const c10::Argument &argument);

// An argument of the functional operator.
struct ArgPlan {
    ArgKind kind;
    int source;          // the called operator's argument; -1: it has none, `absent` is used
    bool host_index;     // an index tensor, which PyTorch lets be on the CPU
    c10::IValue absent;  // the schema's default
};

// A result of the functional operator, or a list of them.
struct ResultPlan {
    int target;    // the called operator's argument that it is written to; -1: it is new
    int returned;  // the called operator's return that it becomes; -1: none
    bool list;
    bool is_tensor;  // else it is a number, which the core does not compute
};

// A return of the called operator that is one of its arguments (in-place, out=), or a result.
struct ReturnPlan {
    int argument;  // -1: a new result
    int result;    // index into results; -1: a number
};

enum class Way : uint8_t { Native, Decomposed, Composite, Cpu };
const char *way_name(Way way);

struct OperatorPlan;
// Does the whole call, or changes its arguments on the stack. True: done, the returns are on the stack.
using PrepareFunction = bool (*)(const OperatorPlan &plan, torch::jit::Stack *stack);

struct OperatorPlan {
    c10::OperatorHandle called;
    c10::OperatorHandle functional;  // the called operator itself where PyTorch has no functional form of it
    std::string name;                // the functional operator's
    operator_info *core = nullptr;
    const op_row *row = nullptr;
    std::vector<ArgPlan> args;
    std::vector<ResultPlan> results;
    std::vector<ReturnPlan> returns;
    std::vector<bool> is_out;        // per argument of the called operator: an out= argument
    std::vector<int> hidden_writes;  // of the called operator's arguments; -1: it has no such argument
    int stack_size = 0;
    int generator = -1;          // the argument that is a Generator
    int device = -1;             // the argument that is a Device
    bool random = false;         // a row that uses random bits
    bool dynamic_shape = false;  // its results' shapes depend on values: no static program computes it
    bool writes = false;
    // Has a structured kernel, whose C++ metadata function infer.cpp can run; its form that is not out=.
    std::optional<c10::OperatorHandle> structured;
    PrepareFunction prepare = nullptr;
    bool composite = false;  // PyTorch composes it of other operators
    mutable std::atomic<Way> way{Way::Cpu};

    explicit OperatorPlan(const c10::OperatorHandle &op) : called(op), functional(op) {}
    int new_lists() const;
};

// Made on first use; lives as long as the process.
const OperatorPlan &plan_of(const c10::OperatorHandle &op);
// The argument whose size in dimension 2 is this return, a number; -1: it is another number.
int shape_number_argument(const OperatorPlan &plan, int returned);
// "aten::add.Tensor"
std::string qualified_name(const c10::OperatorName &name);
bool is_written(const c10::Argument &argument);

}  // namespace torch_tpu
