// Operators with neither a row nor a decomposition run PyTorch's CPU kernel on copies, with one warning each.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/resize_native.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "torch/boxed.h"

namespace torch_tpu {

namespace {

std::mutex counts_mutex;
std::map<std::string, int64_t> counts;

bool forbidden() {
    const char *value = std::getenv("TORCH_TPU_CPU_FALLBACK");
    return value && std::strcmp(value, "0") == 0;
}

// Written although the schema does not say so.
bool is_hidden_write(const std::string &op, const std::string &argument) {
    return (argument == "running_mean" || argument == "running_var") &&
           op.find("native_batch_norm") != std::string::npos;
}

void count(const std::string &name, const std::string &reason) {
    bool first;
    {
        std::lock_guard<std::mutex> lock(counts_mutex);
        first = ++counts[name] == 1;
    }
    if (first)
        TORCH_WARN(name, " runs on the CPU (", reason, "): its tensors are copied there and back. ",
                   "TORCH_TPU_CPU_FALLBACK=0 makes this an error.");
}

class HostCopies {
   public:
    at::Tensor of(const at::Tensor &t) {
        if (!is_tpu(t)) return t;
        for (auto &[device, host] : copies_)
            if (device.is_same(t)) return host;
        at::Tensor host = t.to(at::kCPU);
        if (t.unsafeGetTensorImpl()->is_wrapped_number()) host.unsafeGetTensorImpl()->set_wrapped_number(true);
        copies_.emplace_back(t, host);
        return host;
    }

   private:
    std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

c10::IValue to_host(HostCopies &copies, const c10::IValue &value) {
    if (value.isDevice()) return value.toDevice().type() == kDevice ? at::Device(at::kCPU) : value.toDevice();
    return map_tensors(value, [&](const at::Tensor &t) { return copies.of(t); });
}

// A CPU generator that depends on nothing but the state of this device's.
at::Generator host_generator(GeneratorState state) {
    return at::make_generator<at::CPUGeneratorImpl>(state.seed ^ (state.offset * 0x9E3779B97F4A7C15ull));
}

void write_back(const c10::IValue &target, const c10::IValue &host) {
    std::vector<at::Tensor> sources;
    each_tensor(host, [&](const at::Tensor &t) { sources.push_back(t); });
    size_t i = 0;
    each_tensor(target, [&](const at::Tensor &t) {
        const at::Tensor &source = sources[i++];
        if (!is_tpu(t)) return;
        if (t.sizes() != source.sizes()) t.resize_(source.sizes());
        t.copy_(source);
    });
}

}  // namespace

std::map<std::string, int64_t> cpu_fallbacks() {
    std::lock_guard<std::mutex> lock(counts_mutex);
    return counts;
}

void run_on_cpu(const OperatorPlan &plan, torch::jit::Stack *stack, const std::string &reason) {
    const std::string name = qualified_name(plan.called.operator_name());
    TORCH_CHECK_NOT_IMPLEMENTED(plan.called.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), "operator ", name,
                                " is not available on device tpu: ", reason, ", and PyTorch has no CPU kernel for it");
    TORCH_CHECK_NOT_IMPLEMENTED(
        !forbidden(), "operator ", name, " is not available on device tpu: ", reason,
        ". PyTorch's CPU kernel could run it, which TORCH_TPU_CPU_FALLBACK=0 forbids; unset it, or move "
        "the operands with .cpu()");
    count(name, reason);
    operator_count_cpu_fallback(plan.core);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    std::vector<c10::IValue> arguments(torch::jit::last(*stack, plan.stack_size).vec()), host;
    at::Device device = device_of_call(plan, arguments.data());
    HostCopies copies;
    for (const c10::IValue &argument : arguments) host.push_back(to_host(copies, argument));
    if (plan.generator >= 0)
        host[plan.generator] = host_generator(next_state(plan, arguments.data(), device.index(), 1));
    torch::jit::Stack returned = host;
    plan.called.callBoxed(&returned);
    for (const c10::IValue &value : returned)
        each_tensor(value, [&](const at::Tensor &t) {
            TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == at::kStrided, "operator ", name, " gives a tensor of layout ",
                                        t.layout(), ", and device tpu has dense tensors only; call .cpu() first");
        });
    const auto &schema = plan.called.schema();
    for (int i = 0; i < plan.stack_size; i++)
        if (is_written(schema.arguments()[i]) || is_hidden_write(name, schema.arguments()[i].name()))
            write_back(arguments[i], host[i]);
    torch::jit::drop(*stack, plan.stack_size);
    for (size_t k = 0; k < returned.size(); k++) {
        int alias = plan.returns[k].argument;
        stack->push_back(alias >= 0 ? arguments[alias]
                                    : map_tensors(returned[k], [&](const at::Tensor &t) { return t.to(device); }));
    }
}

}  // namespace torch_tpu
