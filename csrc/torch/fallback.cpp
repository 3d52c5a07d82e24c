// Operators with neither a row nor a decomposition run PyTorch's CPU kernel on copies, with one warning each.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/resize_native.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>

#include "torch/boxed.h"

namespace torch_tpu {

namespace {

struct Silence final : c10::WarningHandler {
    void process(const c10::Warning &) override {}
} silence;

std::mutex counts_mutex;
std::map<std::string, int64_t> counts;

bool forbidden() { return !environment_flag("TORCH_TPU_CPU_FALLBACK", true); }

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
        warn(c10::str(name, " runs on the CPU (", reason, "): its tensors are copied there and back. ",
                      "TORCH_TPU_CPU_FALLBACK=0 makes this an error."));
}

// PyTorch's words for an operator without a metadata rule are advice for its developers.
std::string in_short(const std::string &name, const std::string &reason) {
    if (reason.find("no fake impl or Meta kernel") != std::string::npos) return "PyTorch has no metadata rule for it";
    std::string text = reason.substr(0, reason.find('\n'));
    return text.compare(0, name.size() + 1, name + ":") == 0 ? text.substr(text.find_first_not_of(' ', name.size() + 1))
                                                             : text;
}

// Copies of a call's arguments on the host. Those that lie in one storage do so there, too.
class HostCopies {
   public:
    HostCopies(const c10::IValue *values, int n) {
        for (int i = 0; i < n; i++)
            each_tensor(values[i], [&](const at::Tensor &t) {
                if (is_tpu(t) && t.has_storage()) seen_.push_back(t);
            });
    }

    at::Tensor of(const at::Tensor &t) {
        if (!is_tpu(t)) return t;
        for (auto &[device, host] : copies_)
            if (device.is_same(t)) return host;
        at::Tensor host = is_shared(t) ? in_whole(t) : t.to(at::kCPU);
        // _sparse_mm_reduce_impl keeps what its backward needs where this is so.
        if (t.requires_grad()) host.set_requires_grad(true);
        if (t.unsafeGetTensorImpl()->is_wrapped_number()) host.unsafeGetTensorImpl()->set_wrapped_number(true);
        copies_.emplace_back(t, host);
        return host;
    }

   private:
    static bool same_place(const at::Tensor &a, const at::Tensor &b) {
        return a.storage().is_alias_of(b.storage()) && a.scalar_type() == b.scalar_type();
    }

    bool is_shared(const at::Tensor &t) const {
        return t.has_storage() && !t.is_conj() && !t.is_neg() &&
               std::any_of(seen_.begin(), seen_.end(),
                           [&](const at::Tensor &other) { return !other.is_same(t) && same_place(other, t); });
    }

    // t as a view of a copy of all its storage.
    at::Tensor in_whole(const at::Tensor &t) {
        for (auto &[device, host] : wholes_)
            if (same_place(device, t)) return host.as_strided(t.sizes(), t.strides(), t.storage_offset());
        const auto elements = static_cast<int64_t>(t.storage().nbytes() / t.itemsize());
        wholes_.emplace_back(t, t.as_strided({elements}, {1}, 0).to(at::kCPU));
        return wholes_.back().second.as_strided(t.sizes(), t.strides(), t.storage_offset());
    }

    std::vector<at::Tensor> seen_;
    std::vector<std::pair<at::Tensor, at::Tensor>> copies_, wholes_;
};

c10::IValue to_host(HostCopies &copies, const c10::IValue &value) {
    if (value.isDevice()) return value.toDevice().type() == kDevice ? at::Device(at::kCPU) : value.toDevice();
    return map_tensors(value, [&](const at::Tensor &t) { return copies.of(t); });
}

// A CPU generator that depends on nothing but the state of this device's.
at::Generator host_generator(GeneratorState state) {
    return at::make_generator<at::CPUGeneratorImpl>(state.seed ^ (state.offset * 0x9E3779B97F4A7C15ull));
}

// The sizes and strides of `host`, gaps between elements included; elements that share a place get their own.
void resize_like(const at::Tensor &t, const at::Tensor &host) {
    const auto strides = host.strides();
    const bool empty = host.numel() == 0;
    if (empty || std::find(strides.begin(), strides.end(), 0) != strides.end()) {
        t.resize_(host.sizes());
        if (empty) t.as_strided_(host.sizes(), strides);
        return;
    }
    int64_t last = 0;
    for (int64_t d = 0; d < host.dim(); d++) last += (host.size(d) - 1) * strides[d];
    t.resize_({last + 1});
    t.as_strided_(host.sizes(), strides);
}

at::Tensor to_device(const at::Tensor &host, at::Device device) {
    if (host.layout() != at::kStrided) return host.to(device);
    if (host.is_non_overlapping_and_dense()) return host.to(device);
    at::Tensor t = at::empty({0}, host.options().device(device));
    resize_like(t, host);
    return t.copy_(host);
}

// Whatever the number of elements.
void become_compressed(const at::Tensor &t, const at::Tensor &source) {
    const auto *from = at::sparse_csr::get_sparse_csr_impl(source);
    at::sparse_csr::get_sparse_csr_impl(t)->set_member_tensors(from->compressed_indices(), from->plain_indices(),
                                                               from->values().to(t.scalar_type()), source.sizes());
}

void write_back(const c10::IValue &target, const c10::IValue &host) {
    std::vector<at::Tensor> sources;
    each_tensor(host, [&](const at::Tensor &t) { sources.push_back(t); });
    size_t i = 0;
    each_tensor(target, [&](const at::Tensor &t) {
        const at::Tensor &source = sources[i++];
        if (!is_tpu(t)) return;
        if (at::sparse_csr::is_sparse_compressed(t)) return become_compressed(t, source.to(t.device()));
        if (t.layout() == at::kStrided && t.sizes() != source.sizes()) resize_like(t, source);
        t.copy_(source);
    });
}

std::vector<c10::IValue> host_arguments(const OperatorPlan &plan, const c10::IValue *values) {
    HostCopies copies(values, plan.stack_size);
    std::vector<c10::IValue> host;
    for (int i = 0; i < plan.stack_size; i++) host.push_back(to_host(copies, values[i]));
    return host;
}

bool has_cpu_kernel(const c10::OperatorHandle &op) {
    constexpr c10::DispatchKey kKeys[] = {c10::DispatchKey::CPU, c10::DispatchKey::SparseCPU,
                                          c10::DispatchKey::SparseCsrCPU};
    return std::any_of(std::begin(kKeys), std::end(kKeys),
                       [&](c10::DispatchKey key) { return op.hasComputedKernelForDispatchKey(key); });
}

constexpr int64_t kMostBytesAsked = int64_t{64} << 20;

bool is_small(const OperatorPlan &plan, const c10::IValue *values) {
    int64_t bytes = 0;
    for (int i = 0; i < plan.stack_size; i++)
        each_tensor(values[i], [&](const at::Tensor &t) { bytes += static_cast<int64_t>(t.nbytes()); });
    return bytes <= kMostBytesAsked;
}

}  // namespace

void raise_as_on_cpu(const OperatorPlan &plan, const c10::IValue *values) {
    if (!plan.called.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU) || !is_small(plan, values)) return;
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    torch::jit::Stack stack;
    try {
        stack = host_arguments(plan, values);
    } catch (const std::exception &) {
        return;  // the operands cannot be read: what the caller knows is the better error
    }
    if (plan.generator >= 0) stack[plan.generator] = host_generator({});
    c10::WarningUtils::WarningHandlerGuard quiet(&silence);
    plan.called.callBoxed(&stack);
}

std::map<std::string, int64_t> cpu_fallbacks() {
    std::lock_guard<std::mutex> lock(counts_mutex);
    return counts;
}

void run_on_cpu(const OperatorPlan &plan, torch::jit::Stack *stack, const std::string &reason) {
    const std::string name = qualified_name(plan.called.operator_name());
    TORCH_CHECK_NOT_IMPLEMENTED(has_cpu_kernel(plan.called), "operator ", name,
                                " is not available on device tpu: ", reason, ", and PyTorch has no CPU kernel for it");
    TORCH_CHECK_NOT_IMPLEMENTED(
        !forbidden(), "operator ", name, " is not available on device tpu: ", reason,
        ". PyTorch's CPU kernel could run it, which TORCH_TPU_CPU_FALLBACK=0 forbids; unset it, or move "
        "the operands with .cpu()");
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    std::vector<c10::IValue> arguments(torch::jit::last(*stack, plan.stack_size).vec());
    at::Device device = device_of_call(plan, arguments.data());
    for (int i = 0; i < plan.stack_size; i++)
        if (plan.is_out[i])
            each_tensor(arguments[i], [&](const at::Tensor &t) {
                TORCH_CHECK(t.device() == device,
                            "Expected all tensors to be on the same device, but found at least two "
                            "devices, ",
                            device, " and ", t.device(), "!");
            });
    std::vector<c10::IValue> host = host_arguments(plan, arguments.data());
    if (plan.generator >= 0)
        host[plan.generator] = host_generator(next_state(plan, arguments.data(), device.index(), 1));
    torch::jit::Stack returned = host;
    plan.called.callBoxed(&returned);
    count(name, in_short(plan.name, reason));  // one that fails on the CPU too did not run there
    operator_count_cpu_fallback(plan.core);
    const auto &schema = plan.called.schema();
    for (int i = 0; i < plan.stack_size; i++)
        if (is_written(schema.arguments()[i]) || is_hidden_write(name, schema.arguments()[i].name()))
            write_back(arguments[i], host[i]);
    torch::jit::drop(*stack, plan.stack_size);
    for (size_t k = 0; k < returned.size(); k++) {
        int alias = plan.returns[k].argument;
        stack->push_back(alias >= 0 ? arguments[alias] : map_tensors(returned[k], [&](const at::Tensor &t) {
            return to_device(t, device);
        }));
    }
}

}  // namespace torch_tpu
