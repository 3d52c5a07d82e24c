// Result metadata from PyTorch's own meta kernels: the called operator runs on tensors of device meta that alias each
// other as the real ones do, so that shapes, types, overlaps and arguments are checked by PyTorch and in its words.
//
// PyTorch replaces most meta kernels by Python ones, which take 100 us and more and word their errors in their own way.
// The C++ metadata function of a structured operator is still reached as a backend without kernels reaches it: the
// default kernel computes the metadata and calls the out= form. A mode that does nothing in out= forms makes that
// enough.
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>

#include <algorithm>

#include "torch/boxed.h"
#include "torch/checks.h"

namespace torch_tpu {

namespace {

// Meta tensors for one call: one storage for each storage, one tensor for each tensor.
class Metas {
   public:
    at::Tensor of(const at::Tensor &t) {
        for (auto &[real, meta] : tensors_)
            if (real == t.unsafeGetTensorImpl()) return meta;
        at::Tensor meta = make(t);
        tensors_.emplace_back(t.unsafeGetTensorImpl(), meta);
        return meta;
    }

   private:
    c10::Storage storage_of(const at::Tensor &t) {
        const c10::StorageImpl *real = t.storage().unsafeGetStorageImpl();
        for (auto &[known, meta] : storages_)
            if (known == real) return meta;
        c10::Storage meta(c10::Storage::use_byte_size_t(), static_cast<size_t>(t.storage().nbytes()),
                          at::DataPtr(nullptr, at::Device(at::kMeta)), c10::GetAllocator(at::kMeta), true);
        storages_.emplace_back(real, meta);
        return meta;
    }

    // PyTorch gives kernels in Python a number in its place, which it reads; of one that is on this device only the
    // type counts.
    static at::Tensor wrapped_number(const at::Tensor &t) {
        if (t.device().is_cpu()) return t;
        at::Tensor host = at::ones({}, t.options().device(at::kCPU));
        host.unsafeGetTensorImpl()->set_wrapped_number(true);
        return host;
    }

    at::Tensor make(const at::Tensor &t) {
        if (t.unsafeGetTensorImpl()->is_wrapped_number()) return wrapped_number(t);
        if (!t.has_storage()) return tensor_to_meta(t);
        auto meta = at::detail::make_tensor<c10::TensorImpl>(storage_of(t), c10::DispatchKeySet(c10::DispatchKey::Meta),
                                                             t.dtype());
        meta.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
        if (t.is_conj()) meta._set_conj(true);
        if (t.is_neg()) meta._set_neg(true);
        return meta;
    }

    std::vector<std::pair<const c10::TensorImpl *, at::Tensor>> tensors_;
    std::vector<std::pair<const c10::StorageImpl *, c10::Storage>> storages_;
};

c10::IValue meta_value(Metas &metas, const c10::IValue &value, bool is_generator) {
    if (is_generator) return {};
    if (value.isDevice()) return at::Device(at::kMeta);
    return map_tensors(value, [&](const at::Tensor &t) { return metas.of(t); });
}

// A mode that PyTorch itself uses in tests of the dispatcher alone.
constexpr auto kMode = c10::DispatchKey::TESTING_ONLY_GenericMode;

class OutThatDoesNothing final : public c10::OperatorKernel {
   public:
    void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack) {
        const auto &arguments = op.schema().arguments();
        torch::jit::Stack outs;
        for (size_t i = 0; i < arguments.size(); i++)
            if (is_written(arguments[i]) && arguments[i].is_out())
                outs.push_back(torch::jit::peek(*stack, i, arguments.size()));
        if (outs.empty()) {
            op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kMode), stack);
            return;
        }
        torch::jit::drop(*stack, arguments.size());
        for (c10::IValue &out : outs) stack->push_back(std::move(out));
    }
};

void call_structured(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
    c10::impl::IncludeDispatchKeyGuard mode(kMode);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse2), stack);
}

std::vector<c10::IValue> meta_arguments(const OperatorPlan &plan, const c10::IValue *values) {
    Metas metas;
    std::vector<c10::IValue> arguments;
    for (int i = 0; i < plan.stack_size; i++) {
        arguments.push_back(meta_value(metas, values[i], i == plan.generator));
        // A factory's device argument may be absent; the default device is no concern of a meta kernel.
        if (i == plan.device && values[i].isNone()) arguments.back() = at::Device(at::kMeta);
    }
    return arguments;
}

// Operators beside the structured and elementwise ones whose out= tensors get the strides of the result: where they
// have no elements (of the right shape or not), or where they are resized.
struct OutStrides {
    const char *name;
    enum When { Empty, Resized } when;
    int first_results;  // how many of them
};

constexpr OutStrides kOutStrides[] = {
    {"aten::cholesky_inverse", OutStrides::Empty, 1},
    {"aten::floor_divide", OutStrides::Resized, 1},
    {"aten::geqrf", OutStrides::Empty, 1},
    {"aten::linalg_eig", OutStrides::Empty, 2},
    {"aten::linalg_eigvals", OutStrides::Empty, 1},
    {"aten::linalg_householder_product", OutStrides::Empty, 1},
    {"aten::linalg_solve_triangular", OutStrides::Resized, 1},
    {"aten::ormqr", OutStrides::Empty, 1},
    {"aten::triangular_solve", OutStrides::Empty, 2},
};

bool out_has_strides(const OperatorPlan &plan, int k, bool was_empty, bool resized) {
    for (const OutStrides &o : kOutStrides)
        if (plan.name == o.name && (o.when == OutStrides::Empty ? was_empty : resized)) return k < o.first_results;
    return resized && (plan.structured || (plan.row && plan.row->meta == META_ELEMENTWISE));
}

// PyTorch's metadata of an LSTM cell needs biases: hidden and cell state, and the gates for the backward.
torch::jit::Stack lstm_cell(const std::vector<c10::IValue> &arguments) {
    auto like = [&](int i) { return at::empty_like(arguments[i].toTensor(), at::MemoryFormat::Contiguous); };
    return {like(2), like(2), like(0)};
}

bool is_shared(const at::Tensor &target, const at::Tensor &t) {
    const at::MemOverlapStatus status = at::get_overlap_status(target, t);
    return status == at::MemOverlapStatus::Full || status == at::MemOverlapStatus::Partial;
}

}  // namespace

void Frame::set_geometry(int k, const at::Tensor &inferred) {
    TORCH_CHECK(k < c.max_results, plan.name, ": more results than room for them");
    call_result *r = &c.results[k];
    r->target = nullptr;
    r->storage = nullptr;
    r->kind = inferred.defined() ? RESULT_NEW : RESULT_UNWANTED;
    if (!inferred.defined()) return;
    dtype type = dtype_from_torch(inferred.scalar_type());
    TORCH_CHECK_TYPE(type != DTYPE_INVALID, plan.name, ": device tpu has no dtype ", inferred.scalar_type());
    TORCH_CHECK_NOT_IMPLEMENTED(inferred.dim() <= VIEW_MAX_RANK, plan.name, ": a result has ", inferred.dim(),
                                " dimensions");
    at::IntArrayRef sizes = inferred.sizes(), strides = inferred.strides();
    geometry_contiguous(&r->geometry, type, static_cast<int>(sizes.size()), sizes.data());
    r->geometry.conj = r->geometry.neg = false;
    if (inferred.is_non_overlapping_and_dense())
        for (size_t i = 0; i < strides.size(); i++) r->geometry.strides[i] = strides[i];
}

// What TensorIterator demands of a tensor that is written; an out= tensor takes the result's shape.
void Frame::check_written(int k, const at::Tensor &target, const at::Tensor &inferred, bool is_out) {
    const bool elementwise = plan.row && plan.row->meta == META_ELEMENTWISE;
    bool shares = false;
    if (is_out && !elementwise && target.scalar_type() != inferred.scalar_type()) raise_as_on_cpu(plan, values);
    TORCH_CHECK(at::canCast(inferred.scalar_type(), target.scalar_type()), "result type ", inferred.scalar_type(),
                " can't be cast to the desired output type ", target.scalar_type());
    for (const ArgPlan &planned : plan.args)
        if (planned.source >= 0)
            each_tensor(values[planned.source], [&](const at::Tensor &t) {
                if (!is_tpu(t)) return;
                if (elementwise) at::assert_no_partial_overlap(target, t);
                shares = shares || is_shared(target, t);
            });
    const bool fits = target.sizes() == inferred.sizes(), was_empty = target.numel() == 0;
    // Which operators refuse such operands, and what cannot grow in place, only their kernels know.
    if (is_out && shares && !(elementwise && fits)) raise_as_on_cpu(plan, values);
    const bool restrided = is_out && inferred.is_non_overlapping_and_dense() &&
                           out_has_strides(plan, k, was_empty, !fits) &&
                           !(fits && target.strides() == inferred.strides());
    if (fits && !restrided) return at::assert_no_internal_overlap(target);
    TORCH_CHECK(is_out, "output with shape ", target.sizes(), " doesn't match the broadcast shape ", inferred.sizes());
    if (meta_warned) {
        target.resize_(inferred.sizes());
    } else {
        at::native::resize_output(target, inferred.sizes());
    }
    if (restrided) target.as_strided_(inferred.sizes(), inferred.strides());
    resized = true;
}

// arguments: the meta tensors after the call (written ones have their new shapes); returned: what the call returned.
void Frame::infer_from(const std::vector<c10::IValue> &arguments, const torch::jit::Stack &returned) {
    int k = 0;
    for (const ResultPlan &r : plan.results) {
        if (r.target >= 0) {
            std::vector<at::Tensor> metas;
            each_tensor(arguments[r.target], [&](const at::Tensor &meta) { metas.push_back(meta); });
            size_t i = 0;
            each_tensor(values[r.target], [&](const at::Tensor &target) {
                const at::Tensor &meta = metas[i++];
                const bool is_out = plan.is_out[r.target];
                check_written(k, target, is_out ? laid_out(meta, k, true) : meta, is_out);
            });
            k += r.list ? static_cast<int>(i) : 1;
        } else if (r.list) {
            for (const c10::IValue &element : returned[r.returned].toListRef()) set_geometry(k++, element.toTensor());
            c.n_results = k;
        } else if (r.is_tensor) {
            const c10::IValue &value = returned[r.returned];
            set_geometry(k++, value.isTensor() ? laid_out(value.toTensor(), r.returned, false) : at::Tensor());
        } else {
            k++;
        }
    }
}

// The functional operator on the same arguments, for an in-place or out= form.
void Frame::infer_functional(const c10::OperatorHandle &op, bool structured) {
    std::vector<c10::IValue> called = meta_arguments(plan, values);
    torch::jit::Stack stack;
    for (const c10::Argument &argument : op.schema().arguments()) {
        auto source = plan.called.schema().argumentIndexWithName(argument.name());
        // The out= forms of factories have the dtype in their out.
        const bool from_out = !source && argument.name() == "dtype" && called.back().isTensor();
        stack.push_back(source                     ? called[*source]
                        : from_out                 ? c10::IValue(called.back().toTensor().scalar_type())
                        : argument.default_value() ? *argument.default_value()
                                                   : c10::IValue());
    }
    structured ? call_structured(op, &stack) : op.callBoxed(&stack);
    // Its results, laid out as the called operator's: new ones as returns, the others as written arguments.
    torch::jit::Stack returned(plan.returns.size());
    for (size_t k = 0; k < plan.results.size() && k < stack.size(); k++) {
        const ResultPlan &r = plan.results[k];
        (r.target >= 0 ? called[r.target] : returned[r.returned]) = stack[k];
    }
    infer_from(called, returned);
}

void Frame::infer_structured() {
    if (plan.structured->operator_name() != plan.called.operator_name())
        return infer_functional(*plan.structured, true);
    std::vector<c10::IValue> arguments = meta_arguments(plan, values);
    torch::jit::Stack stack = arguments;
    call_structured(plan.called, &stack);
    infer_from(arguments, stack);
}

void Frame::infer_usual() {
    std::vector<c10::IValue> arguments = meta_arguments(plan, values);
    torch::jit::Stack stack = arguments;
    // out= tensors hide the dtypes of the results proper.
    const bool has_out = std::find(plan.is_out.begin(), plan.is_out.end(), true) != plan.is_out.end();
    try {
        plan.called.callBoxed(&stack);
        meta_warned = has_out;
    } catch (const c10::NotImplementedError &e) {
        if (plan.functional.operator_name() != plan.called.operator_name())
            return infer_functional(plan.functional, false);
        unsupported = true;
        reason = e.what_without_backtrace();
        throw;
    }
    if (has_out && plan.functional.operator_name() != plan.called.operator_name())
        return infer_functional(plan.functional, false);
    infer_from(arguments, stack);
}

void Frame::infer() {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    check_arguments(plan, values);
    if (plan.name == "aten::_thnn_fused_lstm_cell" && !plan.writes) {
        const std::vector<c10::IValue> arguments = meta_arguments(plan, values);
        infer_from(arguments, lstm_cell(arguments));
    } else if (plan.structured) {
        infer_structured();
    } else {
        infer_usual();
    }
    TORCH_CHECK(!resized, plan.name, ": an out= tensor got another shape");
}

void register_structured_metas() {
    static auto *handle = new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().registerFallback(
        kMode, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<OutThatDoesNothing>()), "torch_tpu"));
    (void)handle;
}

}  // namespace torch_tpu
