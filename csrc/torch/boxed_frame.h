// One call on its way from PyTorch's stack to the core and back.
#pragma once

#include <array>
#include <exception>
#include <memory>

#include "torch/schema.h"

namespace torch_tpu {

// Memory for the plain arrays of one call: inside the frame for the usual call, from the heap beyond.
class CallMemory {
   public:
    template <typename T>
    T *array(size_t n) {
        static_assert(std::is_trivially_destructible_v<T>);
        return static_cast<T *>(raw(n * sizeof(T)));
    }

   private:
    void *raw(size_t size) {
        size = (size + 15) & ~size_t{15};
        if (size > sizeof(inside_) - used_) return (more_.emplace_back(new unsigned char[size])).get();
        void *p = inside_ + used_;
        used_ += size;
        return p;
    }

    size_t used_ = 0;
    std::vector<std::unique_ptr<unsigned char[]>> more_;
    alignas(16) unsigned char inside_[10 * 1024];
};

struct GeneratorState {
    uint64_t seed = 0, offset = 0;
};
// The next `uses` states of the call's generator: its argument, or the device's default one.
GeneratorState next_state(const OperatorPlan &plan, const c10::IValue *values, int device, int uses);

class Frame {
   public:
    // values: the called operator's arguments, which outlive the frame.
    Frame(const OperatorPlan &plan, const c10::IValue *values);

    // The host services, for the core's call to this frame.
    void infer();
    graph *decompose();
    // Pops the arguments and pushes the returns.
    void finish(torch::jit::Stack *stack);

    call c{};
    const OperatorPlan &plan;
    const c10::IValue *values;
    std::exception_ptr error;  // what a host service threw
    bool resized = false;      // an out= tensor got its shape: the call must be made anew
    bool meta_warned = false;  // of the out= tensor's shape
    bool unsupported = false;  // neither a meta kernel nor a decomposition: another way has to be taken
    std::string reason;

   private:
    void fill_argument(argument *a, const c10::IValue &v, const ArgPlan &planned);
    void fill_tensor(argument *a, const at::Tensor &t, const ArgPlan &planned);
    void fill_list(argument *a, const c10::IValue &v, const ArgPlan &planned);
    void fill_results();
    void add_result(result_kind kind, const at::Tensor *target);
    [[noreturn]] void wrong_device(const at::Tensor &t, const ArgPlan &planned) const;
    void infer_from(const std::vector<c10::IValue> &arguments, const torch::jit::Stack &returned);
    void infer_functional(const c10::OperatorHandle &op, bool structured);
    void infer_structured();
    void infer_usual();
    void check_written(int k, const at::Tensor &target, const at::Tensor &inferred, bool is_out);
    at::Tensor laid_out(const at::Tensor &inferred, int k, bool is_out) const;
    void set_geometry(int k, const at::Tensor &inferred);
    size_t list_room() const;

    CallMemory memory_;
    at::Device device_;
    std::vector<at::Tensor> kept_;  // tensors of the CPU brought to the device for this call
};

// Device of the call: its first tensor's of this device, else its device argument, else the current one.
at::Device device_of_call(const OperatorPlan &plan, const c10::IValue *values);
// Visits every defined tensor of a value: itself, or its elements.
template <typename Visit>
void each_tensor(const c10::IValue &value, Visit visit) {
    if (value.isTensor()) {
        if (value.toTensor().defined()) visit(value.toTensor());
    } else if (value.isList()) {
        for (const c10::IValue &element : value.toListRef())
            if (element.isTensor() && element.toTensor().defined()) visit(element.toTensor());
    }
}
// The same value with each of its tensors replaced.
template <typename Replace>
c10::IValue map_tensors(const c10::IValue &value, Replace replace) {
    if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(replace(value.toTensor())) : value;
    if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const c10::IValue &element : value.toListRef())
            list.push_back(element.toTensor().defined() ? replace(element.toTensor()) : at::Tensor());
        return list;
    }
    if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> list;
        for (const c10::IValue &element : value.toListRef())
            list.push_back(element.isTensor() && element.toTensor().defined()
                               ? std::optional(replace(element.toTensor()))
                               : std::nullopt);
        return list;
    }
    return value;
}

}  // namespace torch_tpu
