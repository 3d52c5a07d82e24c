#include "torch/boxed.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

#include "torch/exclusions.h"
#include "torch/checks.h"
#include "torch/generator.h"
#include "torch/runtime.h"

namespace torch_tpu {

namespace {

class WithoutGil {
   public:
    WithoutGil() : state_(PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
    ~WithoutGil() {
        if (state_) PyEval_RestoreThread(state_);
    }
    WithoutGil(const WithoutGil &) = delete;
    WithoutGil &operator=(const WithoutGil &) = delete;

   private:
    PyThreadState *state_;
};

status *host_infer(call *c) {
    auto *frame = static_cast<Frame *>(c->host);
    try {
        frame->infer();
        return nullptr;
    } catch (...) {
        frame->error = std::current_exception();
        return status_from_exception();
    }
}

status *host_decompose(call *c, graph **out) {
    auto *frame = static_cast<Frame *>(c->host);
    try {
        *out = frame->decompose();
        return nullptr;
    } catch (...) {
        frame->error = std::current_exception();
        return status_from_exception();
    }
}

status *host_random(call *c, int uses) {
    auto *frame = static_cast<Frame *>(c->host);
    try {
        if (!frame) {  // a compiled graph: no generator argument
            generator_next(std::nullopt, c->device, 4 * static_cast<uint64_t>(uses), &c->seed, &c->offset);
            return nullptr;
        }
        GeneratorState state = next_state(frame->plan, frame->values, c->device, uses);
        c->seed = state.seed;
        c->offset = state.offset;
        return nullptr;
    } catch (...) {
        if (frame) frame->error = std::current_exception();
        return status_from_exception();
    }
}

void host_warn(const char *message) { warn(message); }

const host_services kHost = {host_infer, host_decompose, host_warn, host_random};

// Errors about the arguments, which PyTorch has words for.
bool is_users(status_code code) {
    return code == STATUS_RUNTIME || code == STATUS_TYPE || code == STATUS_VALUE || code == STATUS_INDEX;
}

// In debug mode. What is wrong with the arguments' shapes is said before what is wrong with their values.
void check_values(const OperatorPlan &plan, const c10::IValue *values) {
    try {
        check_indices(plan, values);
    } catch (const c10::IndexError &) {
        if (!plan.writes) Frame(plan, values).infer();
        throw;
    }
}

// True: done. False: this call cannot be a program, for the reason given.
bool launch(const OperatorPlan &plan, torch::jit::Stack *stack, std::string *reason) {
    if (exec_get_mode() == MODE_DEBUG) check_values(plan, torch::jit::last(*stack, plan.stack_size).data());
    for (bool again = false;; again = true) {
        Frame frame(plan, torch::jit::last(*stack, plan.stack_size).data());
        if (plan.random) check(host_random(&frame.c, 1));
        status *failed;
        {
            WithoutGil released;
            failed = exec_call(&frame.c);
        }
        if (!failed) {
            frame.finish(stack);
            return true;
        }
        if (frame.resized && !again) {
            status_free(failed);
            continue;
        }
        bool unsupported = frame.unsupported || (!frame.error && status_get_code(failed) == STATUS_NOT_IMPLEMENTED);
        if (unsupported) {
            *reason = frame.unsupported ? frame.reason : status_message(failed);
            status_free(failed);
            return false;
        }
        if (is_users(status_get_code(failed))) raise_as_on_cpu(plan, frame.values);
        if (!frame.error) throw_status(failed);
        status_free(failed);
        std::rethrow_exception(frame.error);
    }
}

class BoxedOperator final : public c10::OperatorKernel {
   public:
    void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack) {
        const OperatorPlan *plan = plan_.load(std::memory_order_acquire);
        if (!plan) plan_.store(plan = &plan_of(op), std::memory_order_release);
        run_operator(*plan, stack);
    }

   private:
    std::atomic<const OperatorPlan *> plan_{nullptr};
};

class BoxedFallback final : public c10::OperatorKernel {
   public:
    void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack) {
        if (const char *reason = exclusion_reason(op))
            TORCH_CHECK_NOT_IMPLEMENTED(false, "operator ", qualified_name(op.operator_name()),
                                        " is not available on device tpu (", reason, ")");
        run_operator(plan_of(op), stack);
    }
};

class OtherTensorsFallback final : public c10::OperatorKernel {
   public:
    explicit OtherTensorsFallback(const char *reason) : reason_(reason) {}
    void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *) {
        TORCH_CHECK_NOT_IMPLEMENTED(false, "operator ", qualified_name(op.operator_name()), ": ", reason_);
    }

   private:
    const char *reason_;
};

constexpr const char *kNoNested =
    "nested tensors of layout torch.strided are not supported on device tpu; use layout=torch.jagged, or "
    ".to_padded_tensor()";
constexpr const char *kNoQuantized =
    "tensors of quantized dtypes are not supported on device tpu; keep them on the CPU, or use .dequantize() (integer "
    "tensors with scales of their own, as torchao has them, are)";

bool is_view(const c10::FunctionSchema &schema) {
    return std::any_of(schema.returns().begin(), schema.returns().end(),
                       [](const c10::Argument &r) { return r.alias_info() && !r.alias_info()->isWrite(); });
}

bool takes_tensors(const c10::FunctionSchema &schema) {
    return std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument &a) {
        ArgKind kind = kind_of(a);
        return (kind == ArgKind::Tensor || kind == ArgKind::Tensors) && !is_written(a);
    });
}

bool takes_written_tensors(const c10::FunctionSchema &schema) {
    return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                       [](const c10::Argument &a) { return is_written(a) && !a.is_out(); });
}

bool has_options(const c10::FunctionSchema &schema) {
    return schema.argumentIndexWithName("device").has_value() && schema.argumentIndexWithName("layout").has_value();
}

bool matches(const std::string &name, const char *pattern) {
    size_t size = std::strlen(pattern);
    return pattern[size - 1] == '*' ? name.compare(0, size - 1, pattern, size - 1) == 0 : name == pattern;
}

struct Registered {
    std::vector<c10::RegistrationHandleRAII> handles;
    std::vector<std::string> names;
};

Registered &registered() {
    static auto *all = new Registered;  // the dispatcher may outlive static destruction
    return *all;
}

void register_all() {
    auto &dispatcher = c10::Dispatcher::singleton();
    Registered &all = registered();
    for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
        auto op = dispatcher.findSchema(name);
        const bool ours = name.name.compare(0, 6, "aten::") == 0 || name.name.compare(0, 7, "prims::") == 0;
        if (!op || !ours || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) || exclusion_reason(*op))
            continue;
        all.handles.push_back(
            dispatcher.registerImpl(name, c10::DispatchKey::PrivateUse1,
                                    c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedOperator>()),
                                    std::nullopt, nullptr, "torch_tpu"));
        all.names.push_back(qualified_name(name));
    }
    constexpr std::pair<c10::DispatchKey, const char *> kOthers[] = {
        {c10::DispatchKey::NestedTensorPrivateUse1, kNoNested},
        {c10::DispatchKey::QuantizedPrivateUse1, kNoQuantized},
    };
    for (auto [key, reason] : kOthers)
        all.handles.push_back(dispatcher.registerFallback(
            key, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<OtherTensorsFallback>(reason)),
            "torch_tpu"));
    all.handles.push_back(dispatcher.registerFallback(
        c10::DispatchKey::PrivateUse1, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedFallback>()),
        "torch_tpu"));
}

}  // namespace

const char *exclusion_reason(const c10::OperatorHandle &op) {
    const auto &schema = op.schema();
    const std::string name = qualified_name(op.operator_name());
    // Of integers, so nothing for autograd to follow; PyTorch's composition asks no accelerator's values.
    if (name == "aten::one_hot") return nullptr;
    if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
        return "composed, with autograd through it";
    if (is_view(schema)) return "view";
    for (const Exclusion &exclusion : kExclusions)
        if (matches(name, exclusion.name)) return exclusion.reason;
    if (!op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) return nullptr;
    if (name.compare(0, 7, "prims::") == 0 && !op_find(name.c_str())) return "composed";
    if (has_options(schema)) return "factory: composed of empty and a fill";
    if (!takes_tensors(schema) && !takes_written_tensors(schema)) return "factory: composed of empty and a fill";
    return nullptr;
}

bool compose(const OperatorPlan &plan, torch::jit::Stack *stack) {
    thread_local std::vector<const operator_info *> composing;
    if (!plan.composite || std::find(composing.begin(), composing.end(), plan.core) != composing.end()) return false;
    composing.push_back(plan.core);
    struct Leave {
        ~Leave() { composing.pop_back(); }
    } leave;
    // A backend that registers nothing reaches the composition.
    plan.called.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::PrivateUse2), stack);
    return true;
}

void run_operator(const OperatorPlan &plan, torch::jit::Stack *stack) {
    check_not_forked();
    if (plan.prepare && plan.prepare(plan, stack)) return;
    Way way = plan.way.load(std::memory_order_relaxed);
    std::string reason;
    if (way == Way::Native || way == Way::Decomposed) {
        if (launch(plan, stack, &reason)) return;
        way = Way::Composite;
    }
    if (way == Way::Composite && compose(plan, stack)) return;
    if (reason.empty())
        reason = plan.dynamic_shape ? "the shape of its result depends on values" : "it has no lowering";
    run_on_cpu(plan, stack, reason);
}

}  // namespace torch_tpu

namespace {

PyObject *operator_way(PyObject *, PyObject *argument) {
    const char *text = PyUnicode_AsUTF8(argument);
    if (!text) return nullptr;
    std::string name = text;
    size_t dot = name.find('.');
    auto op = c10::Dispatcher::singleton().findSchema(
        {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    if (!op) return PyErr_Format(PyExc_ValueError, "no operator is named '%s'", text);
    if (const char *reason = torch_tpu::exclusion_reason(*op)) return PyUnicode_FromFormat("excluded: %s", reason);
    return PyUnicode_FromString(torch_tpu::way_name(torch_tpu::plan_of(*op).way));
}

PyObject *registered_operators(PyObject *, PyObject *) {
    const auto &names = torch_tpu::registered().names;
    PyObject *list = PyList_New(static_cast<Py_ssize_t>(names.size()));
    for (size_t i = 0; list && i < names.size(); i++) {
        PyObject *name = PyUnicode_FromString(names[i].c_str());
        if (!name)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), name);
    }
    return list;
}

PyObject *cpu_fallbacks(PyObject *, PyObject *) {
    PyObject *dict = PyDict_New();
    for (const auto &[name, count] : torch_tpu::cpu_fallbacks()) {
        PyObject *number = dict ? PyLong_FromLongLong(count) : nullptr;
        if (!number || PyDict_SetItemString(dict, name.c_str(), number) < 0) Py_CLEAR(dict);
        Py_XDECREF(number);
    }
    return dict;
}

PyMethodDef kMethods[] = {
    {"operator_way", operator_way, METH_O,
     "operator_way(name) -> str\n\nHow an operator ('aten::add.Tensor') runs: native, decomposed, composite, cpu, or "
     "'excluded: "
     "reason'."},
    {"registered_operators", registered_operators, METH_NOARGS,
     "registered_operators() -> list[str]\n\nOperators that the boxed function is registered for."},
    {"cpu_fallbacks", cpu_fallbacks, METH_NOARGS,
     "cpu_fallbacks() -> dict[str, int]\n\nHow often each operator ran PyTorch's CPU kernel."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int python_boxed_init(PyObject *module) {
    if (PyModule_AddFunctions(module, kMethods) < 0) return -1;
    try {
        exec_set_host(&torch_tpu::kHost);
        torch_tpu::register_all();
        torch_tpu::register_structured_metas();
        return 0;
    } catch (const std::exception &e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
        return -1;
    }
}
