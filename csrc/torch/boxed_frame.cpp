#include "torch/boxed_frame.h"

#include <ATen/ops/to_native.h>

#include <algorithm>

#include "torch/generator.h"
#include "torch/runtime.h"

namespace torch_tpu {

namespace {

void set_number(number *n, const c10::Scalar &s, dtype t) {
    n->dtype = t;
    if (s.isComplex()) {
        n->v.f[0] = s.toComplexDouble().real();
        n->v.f[1] = s.toComplexDouble().imag();
    } else if (s.isFloatingPoint()) {
        n->v.f[0] = s.toDouble();
        n->v.f[1] = 0;
    } else {
        n->v.i = s.isBoolean() ? s.toBool() : s.isUnsigned() ? static_cast<int64_t>(s.toUInt64()) : s.toLong();
    }
}

int64_t int_of(const c10::IValue &v) {
    return v.isBool() ? v.toBool() : v.isSymInt() ? v.toSymInt().guard_int(__FILE__, __LINE__) : v.toInt();
}

// A Python number: it promotes by category only.
void fill_number(number *n, const c10::IValue &v) {
    n->wrapped = true;
    if (v.isDouble()) {
        n->dtype = DTYPE_F64;
        n->v.f[0] = v.toDouble();
        n->v.f[1] = 0;
    } else if (v.isInt() || v.isSymInt()) {
        n->dtype = DTYPE_I64;
        n->v.i = int_of(v);
    } else {
        c10::Scalar s = v.toScalar();
        set_number(n, s,
                   s.isComplex()         ? DTYPE_C128
                   : s.isFloatingPoint() ? DTYPE_F64
                   : s.isBoolean()       ? DTYPE_BOOL
                                         : DTYPE_I64);
    }
}

}  // namespace

at::Device device_of_call(const OperatorPlan &plan, const c10::IValue *values) {
    for (int i = 0; i < plan.stack_size; i++) {
        if (values[i].isTensor()) {
            const at::Tensor &t = values[i].toTensor();
            if (is_tpu(t)) return t.device();
        } else if (values[i].isList()) {
            std::optional<at::Device> found;
            each_tensor(values[i], [&](const at::Tensor &t) {
                if (!found && is_tpu(t)) found = t.device();
            });
            if (found) return *found;
        }
    }
    std::optional<at::Device> asked;
    if (plan.device >= 0 && values[plan.device].isDevice()) asked = values[plan.device].toDevice();
    return {kDevice, asked && asked->has_index() ? asked->index() : current_device()};
}

GeneratorState next_state(const OperatorPlan &plan, const c10::IValue *values, int device, int uses) {
    constexpr uint64_t step = 4;  // Philox makes four words of each
    std::optional<at::Generator> generator;
    if (plan.generator >= 0 && values[plan.generator].isGenerator()) generator = values[plan.generator].toGenerator();
    GeneratorState state;
    generator_next(generator, device, step * static_cast<uint64_t>(uses), &state.seed, &state.offset);
    return state;
}

Frame::Frame(const OperatorPlan &p, const c10::IValue *v) : plan(p), values(v), device_(device_of_call(p, v)) {
    c.op = plan.core;
    c.device = device_.index();
    c.host = this;
    c.n_args = static_cast<int>(plan.args.size());
    c.args = memory_.array<argument>(plan.args.size());
    for (size_t i = 0; i < plan.args.size(); i++) {
        const ArgPlan &planned = plan.args[i];
        fill_argument(&c.args[i], planned.source < 0 ? planned.absent : values[planned.source], planned);
    }
    fill_results();
}

void Frame::fill_argument(argument *a, const c10::IValue &v, const ArgPlan &planned) {
    a->tag = ARG_NONE;
    a->count = 0;
    if (v.isNone()) return;
    if (v.isTensor()) return fill_tensor(a, v.toTensor(), planned);
    switch (planned.kind) {
        case ArgKind::Tensor:
        case ArgKind::Number:
            a->tag = ARG_NUMBER;
            return fill_number(&a->u.number, v);
        case ArgKind::Int:
            a->tag = ARG_INT;
            a->u.i = int_of(v);
            return;
        case ArgKind::Dtype: {
            auto type = static_cast<at::ScalarType>(v.toInt());
            a->tag = ARG_DTYPE;
            a->u.dtype = dtype_from_torch(type);
            TORCH_CHECK_TYPE(a->u.dtype != DTYPE_INVALID, plan.name, ": device tpu has no dtype ", type);
            return;
        }
        case ArgKind::String:
            a->tag = ARG_STRING;
            a->u.string = v.toStringRef().c_str();
            return;
        case ArgKind::Ints:
        case ArgKind::Numbers:
        case ArgKind::Tensors:
            return fill_list(a, v, planned);
        case ArgKind::Generator:  // its state is in the call
        case ArgKind::Ignored:
            return;
    }
}

void Frame::wrong_device(const at::Tensor &t, const ArgPlan &planned) const {
    const auto &schema = plan.functional.schema();
    const std::string &argument = schema.arguments()[&planned - plan.args.data()].name();
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but got ", argument, " is on ", t.device(),
                ", different from other tensors on ", device_, " (when checking argument in method ", schema.name(),
                ")");
}

void Frame::fill_tensor(argument *a, const at::Tensor &t, const ArgPlan &planned) {
    if (!t.defined()) return;
    const at::Tensor *source = &t;
    if (t.device() != device_) {
        bool scalar = t.device().is_cpu() && t.dim() == 0;
        if (!scalar && !(planned.host_index && t.device().is_cpu())) wrong_device(t, planned);
        if (scalar && plan.row && !planned.host_index) {
            a->tag = ARG_NUMBER;
            a->u.number.wrapped = t.unsafeGetTensorImpl()->is_wrapped_number();
            dtype type = dtype_from_torch(t.scalar_type());
            TORCH_CHECK_TYPE(type != DTYPE_INVALID, plan.name, ": device tpu has no dtype ", t.scalar_type());
            return set_number(&a->u.number, t.item(), type);
        }
        source = &kept_.emplace_back(t.to(device_));
    }
    core_tensor *core = memory_.array<core_tensor>(1);
    core->storage = storage_of(*source);
    tensor_geometry(*source, &core->geometry);
    a->tag = ARG_VALUE;
    a->u.tensor = core;
}

void Frame::fill_list(argument *a, const c10::IValue &v, const ArgPlan &planned) {
    c10::ArrayRef<c10::IValue> elements = v.toListRef();
    a->count = static_cast<int32_t>(elements.size());
    if (planned.kind == ArgKind::Ints) {
        int64_t *ints = memory_.array<int64_t>(elements.size());
        for (size_t i = 0; i < elements.size(); i++) ints[i] = int_of(elements[i]);
        a->tag = ARG_INTS;
        a->u.ints = ints;
    } else if (planned.kind == ArgKind::Numbers) {
        number *numbers = memory_.array<number>(elements.size());
        for (size_t i = 0; i < elements.size(); i++) fill_number(&numbers[i], elements[i]);
        a->tag = ARG_NUMBERS;
        a->u.numbers = numbers;
    } else {
        argument *list = memory_.array<argument>(elements.size());
        a->tag = ARG_VALUES;
        a->u.list = list;
        for (size_t i = 0; i < elements.size(); i++) {
            list[i].tag = ARG_NONE;
            list[i].count = 0;
            if (elements[i].isTensor()) fill_tensor(&list[i], elements[i].toTensor(), planned);
        }
    }
}

// A list of new results is as long as the list it comes from (_foreach_*), or as a dimension (unbind_copy).
size_t Frame::list_room() const {
    size_t room = 0;
    for (int i = 0; i < plan.stack_size; i++)
        each_tensor(values[i], [&](const at::Tensor &t) {
            room++;
            for (int64_t size : t.sizes()) room = std::max(room, static_cast<size_t>(size));
        });
    return room + 1;
}

void Frame::add_result(result_kind kind, const at::Tensor *target) {
    call_result *r = &c.results[c.n_results++];
    r->kind = kind;
    r->target = nullptr;
    r->storage = nullptr;
    if (!target) return;
    TORCH_CHECK(target->device() == device_,
                "Expected all tensors to be on the same device, but found at least two devices, ", device_, " and ",
                target->device(), "!");
    r->target = memory_.array<core_tensor>(1);
    r->target->storage = storage_of(*target);
    tensor_geometry(*target, &r->target->geometry);
}

void Frame::fill_results() {
    size_t room = plan.results.size() + plan.hidden_writes.size();
    for (const ResultPlan &r : plan.results)
        if (r.list) room += r.target < 0 ? list_room() : values[r.target].toListRef().size();
    c.results = memory_.array<call_result>(room);
    c.max_results = static_cast<int>(room);
    for (const ResultPlan &r : plan.results) {
        if (!r.is_tensor) {
            add_result(RESULT_UNWANTED, nullptr);
        } else if (r.target >= 0) {
            each_tensor(values[r.target], [&](const at::Tensor &t) { add_result(RESULT_WRITE, &t); });
            if (values[r.target].isNone() || (values[r.target].isTensor() && !values[r.target].toTensor().defined()))
                add_result(RESULT_UNWANTED, nullptr);
        } else if (!r.list) {
            add_result(RESULT_NEW, nullptr);
        }
    }
    for (int i : plan.hidden_writes) {
        bool given = i >= 0 && values[i].isTensor() && values[i].toTensor().defined();
        add_result(given ? RESULT_WRITE : RESULT_UNWANTED, given ? &values[i].toTensor() : nullptr);
    }
}

void Frame::finish(torch::jit::Stack *stack) {
    auto take = [](call_result &r) {
        return r.kind == RESULT_NEW ? tensor_from_core(r.storage, r.geometry) : at::Tensor();
    };
    std::vector<c10::IValue> returns(plan.returns.size());
    int next = 0;
    for (const ResultPlan &r : plan.results) {
        if (r.target >= 0) {
            next += r.list ? static_cast<int>(values[r.target].toListRef().size()) : 1;
        } else if (!r.is_tensor) {
            returns[r.returned] = values[shape_number_argument(plan, r.returned)].toTensor().size(2);
            next++;
        } else if (r.list) {
            c10::List<at::Tensor> list;
            for (; next < c.n_results; next++) list.push_back(take(c.results[next]));
            returns[r.returned] = std::move(list);
        } else {
            returns[r.returned] = take(c.results[next++]);
        }
    }
    for (size_t k = 0; k < returns.size(); k++)
        if (plan.returns[k].argument >= 0) returns[k] = values[plan.returns[k].argument];
    torch::jit::drop(*stack, plan.stack_size);
    for (c10::IValue &value : returns) stack->push_back(std::move(value));
}

}  // namespace torch_tpu
