// Calls of a whole graph: what torch.compile's functions run. One C++ call from arguments to launch, without Python.
#include "python/graph_call.h"

#include <structmember.h>

#include <ATen/ops/empty_strided.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "torch/runtime.h"

extern "C" {
#include "python/graph.h"
}

namespace torch_tpu {

namespace {

enum class OutputKind { None, Result, Input };

// A graph output: a new tensor, or the input that its value is written to.
struct ResultPlan {
    int input;  // -1: new
    geometry fresh;
};

// A value that the call returns: None, a view of a result's storage, or an input or a view of it.
struct OutputPlan {
    OutputKind kind;
    int index;
    bool whole;  // the result or input itself
    geometry view;
};

struct InputPlan {
    int position;  // in the list of arguments
    at::ScalarType dtype;
    std::vector<int64_t> sizes;
};

// Tensors that somebody else keeps: counting their owners up and down takes the GIL, for each of them.
using TensorPointers = std::vector<const at::Tensor *>;

struct GraphOperator {
    operator_info *op = nullptr;
    std::vector<InputPlan> inputs;
    std::vector<at::Tensor> constants;
    std::vector<ResultPlan> results;
    std::vector<OutputPlan> outputs;
    size_t n_arguments = 0;  // the least that the list must hold

    GraphOperator() = default;
    GraphOperator(const GraphOperator &) = delete;
    GraphOperator &operator=(const GraphOperator &) = delete;
    ~GraphOperator() {
        if (op) operator_destroy_graph(op);
    }
    std::vector<at::Tensor> run(const TensorPointers &arguments) const;

   private:
    TensorPointers on_device(const TensorPointers &arguments, at::Device device, std::vector<at::Tensor> &moved) const;
    at::Tensor output(const OutputPlan &plan, const TensorPointers &arguments,
                      const std::vector<at::Tensor> &fresh) const;
    bool repeat(call *c, const TensorPointers &tensors) const;
    void call_anew(call *c, const TensorPointers &tensors) const;
};

at::Device device_of(const TensorPointers &tensors) {
    for (const at::Tensor *t : tensors)
        if (is_tpu(*t)) return t->device();
    return at::Device(kDevice, current_device());
}

void check_input(const InputPlan &plan, const at::Tensor &t) {
    TORCH_CHECK(t.scalar_type() == plan.dtype && t.sizes() == at::IntArrayRef(plan.sizes), "compiled for argument ",
                plan.position, " of type ", plan.dtype, " and sizes ", at::IntArrayRef(plan.sizes), ", called with ",
                t.scalar_type(), " and ", t.sizes());
}

// Shares the storage of `t`. Not a view to autograd: compiled functions have their own.
at::Tensor share(const at::Tensor &t, const geometry &view, int64_t offset) {
    auto type = c10::scalarTypeToTypeMeta(dtype_to_torch(view.dtype));
    auto shared = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(t.storage()),
                                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
    const auto rank = static_cast<size_t>(view.rank);
    shared.unsafeGetTensorImpl()->set_sizes_and_strides(at::IntArrayRef(view.sizes, rank),
                                                        at::IntArrayRef(view.strides, rank), offset + view.offset);
    if (view.conj) shared._set_conj(true);
    if (view.neg) shared._set_neg(true);
    return shared;
}

// Where a geometry counts in another type than the tensor's, the offset does too.
int64_t offset_in(const at::Tensor &t, dtype type) {
    const auto bytes = t.storage_offset() * static_cast<int64_t>(t.itemsize());
    const auto item = static_cast<int64_t>(dtype_bytes(type));
    TORCH_CHECK(bytes % item == 0, "the tensor's memory is not aligned to the elements of its view");
    return bytes / item;
}

// The tensors of other devices are brought over, into `moved`.
TensorPointers GraphOperator::on_device(const TensorPointers &arguments, at::Device device,
                                        std::vector<at::Tensor> &moved) const {
    TensorPointers tensors(arguments);
    tensors.reserve(arguments.size() + constants.size());
    for (const at::Tensor &t : constants) tensors.push_back(&t);
    size_t elsewhere = 0;
    for (const at::Tensor *t : tensors) elsewhere += t->device() != device;
    if (!elsewhere) return tensors;
    moved.reserve(elsewhere);
    for (const at::Tensor *&t : tensors) {
        if (t->device() == device) continue;
        moved.push_back(t->to(device));
        t = &moved.back();
    }
    return tensors;
}

at::Tensor GraphOperator::output(const OutputPlan &plan, const TensorPointers &arguments,
                                 const std::vector<at::Tensor> &fresh) const {
    const auto index = static_cast<size_t>(plan.index);
    switch (plan.kind) {
        case OutputKind::None:
            return {};
        case OutputKind::Result:
            return plan.whole ? fresh[index] : share(fresh[index], plan.view, 0);
        case OutputKind::Input:
            break;
    }
    const at::Tensor &t = *arguments[index];
    return plan.whole ? t : share(t, plan.view, offset_in(t, plan.view.dtype));
}

// The storage that the tensor lies dense at the start of, if that is one of ours.
storage *dense_storage(const at::Tensor &t) {
    const c10::TensorImpl *impl = t.unsafeGetTensorImpl();
    if (!impl->is_contiguous() || impl->is_conj() || impl->is_neg() || !impl->has_storage()) return nullptr;
    return impl->storage_offset() == 0 ? storage_from_data_ptr(impl->unsafe_storage().data_ptr()) : nullptr;
}

// Whether the core made the call without a key: it is like the one before it.
bool GraphOperator::repeat(call *c, const TensorPointers &tensors) const {
    const size_t n = tensors.size();
    c10::SmallVector<storage *, 64> storages(n);
    for (size_t i = 0; i < n; i++)
        if (!(storages[i] = dense_storage(*tensors[i]))) return false;
    bool done;
    check(exec_call_repeat(c, static_cast<int>(n), storages.data(), &done));
    return done;
}

void GraphOperator::call_anew(call *c, const TensorPointers &tensors) const {
    const size_t n = tensors.size();
    std::unique_ptr<core_tensor[]> core(new core_tensor[n + 1]);
    std::unique_ptr<argument[]> args(new argument[n + 1]);
    for (size_t i = 0; i < n; i++) {
        core[i].storage = storage_of(*tensors[i]);
        tensor_geometry(*tensors[i], &core[i].geometry);
        args[i].tag = ARG_VALUE;
        args[i].count = 0;
        args[i].u.tensor = &core[i];
    }
    for (size_t k = 0; k < results.size(); k++)
        if (results[k].input >= 0) c->results[k].target = &core[results[k].input];
    c->n_args = static_cast<int>(n);
    c->args = args.get();
    check(exec_call(c));
}

std::vector<at::Tensor> GraphOperator::run(const TensorPointers &arguments) const {
    check_not_forked();
    const at::Device device = device_of(arguments);
    for (size_t i = 0; i < inputs.size(); i++) check_input(inputs[i], *arguments[i]);
    std::vector<at::Tensor> moved;
    const TensorPointers tensors = on_device(arguments, device, moved);
    const size_t n_results = results.size();
    std::unique_ptr<call_result[]> made(new call_result[n_results + 1]);
    for (size_t k = 0; k < n_results; k++) {
        const ResultPlan &plan = results[k];
        made[k].storage = nullptr;
        made[k].kind = plan.input < 0 ? RESULT_NEW : RESULT_WRITE;
        made[k].target = nullptr;
        if (plan.input < 0) geometry_copy(&made[k].geometry, &plan.fresh);
    }
    call c{};
    c.op = op;
    c.n_results = c.max_results = static_cast<int>(n_results);
    c.results = made.get();
    c.results_known = true;
    c.device = device.index();
    if (!repeat(&c, tensors)) call_anew(&c, tensors);
    std::vector<at::Tensor> fresh(n_results);
    for (size_t k = 0; k < n_results; k++) {
        if (results[k].input < 0) fresh[k] = tensor_from_core(made[k].storage, results[k].fresh);
    }
    for (size_t k = 0; k < n_results; k++) {
        if (results[k].input < 0) continue;
        const auto i = static_cast<size_t>(results[k].input);
        if (tensors[i] != arguments[i]) arguments[i]->copy_(*tensors[i]);
    }
    std::vector<at::Tensor> returned;
    returned.reserve(outputs.size());
    for (const OutputPlan &plan : outputs) returned.push_back(output(plan, arguments, fresh));
    return returned;
}

// ---- from Python ----

struct PyDecRef {
    void operator()(PyObject *o) const { Py_DECREF(o); }
};
using PyOwned = std::unique_ptr<PyObject, PyDecRef>;

PyOwned sequence(PyObject *o, const char *message) {
    PyOwned items(PySequence_Fast(o, message));
    if (!items) throw python_error();
    return items;
}

long long_of(PyObject *o) {
    long value = PyLong_AsLong(o);
    if (value == -1 && PyErr_Occurred()) throw python_error();
    return value;
}

geometry geometry_from(PyObject *o) {
    geometry g;
    if (python_geometry(o, &g) < 0) throw python_error();
    return g;
}

const at::Tensor &tensor_from(PyObject *o) {
    TORCH_CHECK_TYPE(THPVariable_Check(o), "expected a tensor, got ", Py_TYPE(o)->tp_name);
    return THPVariable_Unpack(o);
}

void plan_inputs(GraphOperator &made, const graph *g, PyObject *positions) {
    PyOwned items = sequence(positions, "inputs is no list");
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(items.get());
    for (Py_ssize_t i = 0; i < n; i++) {
        const long position = long_of(PySequence_Fast_GET_ITEM(items.get(), i));
        TORCH_CHECK_VALUE(position >= 0 && i < graph_input_count(g), "graph_operator: there is no input ", i);
        const tensor_type t = graph_value_type(g, graph_input_at(g, static_cast<int>(i)));
        made.inputs.push_back({static_cast<int>(position), dtype_to_torch(t.dtype), {t.dims, t.dims + t.rank}});
        made.n_arguments = std::max(made.n_arguments, static_cast<size_t>(position) + 1);
    }
}

void plan_results(GraphOperator &made, PyObject *results) {
    PyOwned items = sequence(results, "results is no list");
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); k++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items.get(), k);
        ResultPlan plan{-1, {}};
        if (PyLong_Check(item)) {
            plan.input = static_cast<int>(long_of(item));
            TORCH_CHECK_VALUE(plan.input >= 0 && static_cast<size_t>(plan.input) < made.inputs.size(),
                              "graph_operator: result ", k, " is written to an input that there is not");
        } else {
            plan.fresh = geometry_from(item);
        }
        made.results.push_back(plan);
    }
}

bool same_view(const geometry &a, const geometry &b) {
    bool same = a.dtype == b.dtype && a.rank == b.rank && a.conj == b.conj && a.neg == b.neg && a.offset == b.offset;
    for (int d = 0; same && d < a.rank; d++) same = a.sizes[d] == b.sizes[d] && a.strides[d] == b.strides[d];
    return same;
}

OutputPlan plan_output(const GraphOperator &made, PyObject *item) {
    int kind, index;
    PyObject *view;
    if (!PyArg_ParseTuple(item, "iiO;an output is (kind, index, geometry or None)", &kind, &index, &view))
        throw python_error();
    TORCH_CHECK_VALUE(kind >= 0 && kind <= 2, "graph_operator: there is no output kind ", kind);
    OutputPlan plan{static_cast<OutputKind>(kind), index, view == Py_None, {}};
    if (!plan.whole) plan.view = geometry_from(view);
    const auto position = static_cast<size_t>(index);
    if (plan.kind == OutputKind::Result) {
        TORCH_CHECK_VALUE(index >= 0 && position < made.results.size() && made.results[position].input < 0,
                          "graph_operator: result ", index, " is no new tensor");
        plan.whole = plan.whole || same_view(plan.view, made.results[position].fresh);
    }
    if (plan.kind == OutputKind::Input)
        TORCH_CHECK_VALUE(index >= 0 && position < made.inputs.size(), "graph_operator: there is no input ", index);
    return plan;
}

void plan_outputs(GraphOperator &made, PyObject *outputs) {
    PyOwned items = sequence(outputs, "outputs is no list");
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); k++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items.get(), k);
        TORCH_CHECK_TYPE(PyTuple_Check(item), "an output is (kind, index, geometry or None)");
        made.outputs.push_back(plan_output(made, item));
    }
}

void plan_constants(GraphOperator &made, PyObject *constants) {
    PyOwned items = sequence(constants, "constants is no list");
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); i++)
        made.constants.push_back(tensor_from(PySequence_Fast_GET_ITEM(items.get(), i)).detach());
}

struct GraphOperatorObject {
    PyObject_HEAD;
    GraphOperator *made;
    PyObject *attributes;  // __dict__: wrappers made by functools.wraps copy what is in it
};

PyTypeObject *graph_operator_type;

PyObject *graph_operator(PyObject *, PyObject *args) {
    HANDLE_TH_ERRORS
    PyObject *graph_object, *inputs, *constants, *results, *outputs;
    int options = 0;
    if (!PyArg_ParseTuple(args, "OOOOO|i", &graph_object, &inputs, &constants, &results, &outputs, &options))
        return nullptr;
    std::unique_ptr<graph, decltype(&graph_destroy)> g(python_graph_take(graph_object), graph_destroy);
    if (!g) return nullptr;
    auto made = std::make_unique<GraphOperator>();
    plan_inputs(*made, g.get(), inputs);
    plan_constants(*made, constants);
    plan_results(*made, results);
    plan_outputs(*made, outputs);
    TORCH_CHECK_VALUE(made->inputs.size() + made->constants.size() == static_cast<size_t>(graph_input_count(g.get())) &&
                          made->results.size() == static_cast<size_t>(graph_output_count(g.get())),
                      "graph_operator: inputs and results do not fit the graph");
    made->op = operator_from_graph(g.get());
    (void)g.release();  // taken, also on failure
    TORCH_CHECK(made->op, "out of host memory");
    operator_set_options(made->op, options);
    auto *self = reinterpret_cast<GraphOperatorObject *>(graph_operator_type->tp_alloc(graph_operator_type, 0));
    if (!self) return nullptr;
    self->made = made.release();
    auto *object = reinterpret_cast<PyObject *>(self);
    // AOTAutograd asks by this name whether arguments come as one list.
    if (PyObject_SetAttrString(object, "_boxed_call", Py_True) < 0) Py_CLEAR(object);
    return object;
    END_HANDLE_TH_ERRORS
}

// Objects that were taken out of a list. Made and destroyed with the GIL.
struct Taken {
    std::vector<PyObject *> objects;
    ~Taken() {
        for (PyObject *o : objects) Py_DECREF(o);
    }
};

// The tensors that the graph reads, in its order. The list is emptied: who calls keeps nothing alive through it.
TensorPointers take_arguments(const GraphOperator &made, PyObject *list, Taken &taken) {
    TORCH_CHECK_TYPE(PyList_Check(list), "a compiled graph is called with one list, not ", Py_TYPE(list)->tp_name);
    const auto n = static_cast<size_t>(PyList_GET_SIZE(list));
    TORCH_CHECK(n >= made.n_arguments, "a compiled graph of ", made.n_arguments, " arguments is called with ", n);
    TensorPointers arguments;
    arguments.reserve(made.inputs.size());
    for (const InputPlan &plan : made.inputs) arguments.push_back(&tensor_from(PyList_GET_ITEM(list, plan.position)));
    taken.objects.reserve(n);
    for (size_t i = 0; i < n; i++) taken.objects.push_back(Py_NewRef(PyList_GET_ITEM(list, i)));
    if (PyList_SetSlice(list, 0, PyList_GET_SIZE(list), nullptr) < 0) throw python_error();
    return arguments;
}

PyObject *wrap_outputs(std::vector<at::Tensor> &returned) {
    PyOwned list(PyList_New(static_cast<Py_ssize_t>(returned.size())));
    if (!list) throw python_error();
    for (size_t k = 0; k < returned.size(); k++) {
        PyObject *item = returned[k].defined() ? THPVariable_Wrap(std::move(returned[k])) : Py_NewRef(Py_None);
        if (!item) throw python_error();
        PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(k), item);
    }
    return list.release();
}

PyObject *call_operator(PyObject *self, PyObject *args, PyObject *) {
    HANDLE_TH_ERRORS
    PyObject *list;
    if (!PyArg_ParseTuple(args, "O", &list)) return nullptr;
    const GraphOperator &made = *reinterpret_cast<GraphOperatorObject *>(self)->made;
    std::vector<at::Tensor> returned;
    {
        Taken taken;
        const TensorPointers arguments = take_arguments(made, list, taken);
        pybind11::gil_scoped_release released;
        returned = made.run(arguments);
    }
    return wrap_outputs(returned);
    END_HANDLE_TH_ERRORS
}

void dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    delete reinterpret_cast<GraphOperatorObject *>(self)->made;
    Py_XDECREF(reinterpret_cast<GraphOperatorObject *>(self)->attributes);
    type->tp_free(self);
    Py_DECREF(type);
}

PyMemberDef kMembers[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(GraphOperatorObject, attributes), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef kProperties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot kSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void *>(dealloc)},
    {Py_tp_call, reinterpret_cast<void *>(call_operator)},
    {Py_tp_getset, kProperties},
    {Py_tp_members, kMembers},
    {Py_tp_doc, const_cast<char *>("A compiled graph: called with a list of tensors, returns a list.")},
    {0, nullptr},
};

PyType_Spec kSpec = {"torch_tpu._C.GraphOperator", sizeof(GraphOperatorObject), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, kSlots};

PyMethodDef kFunctions[] = {
    {"graph_operator", graph_operator, METH_VARARGS,
     "graph_operator(graph, inputs, constants, results, outputs, options=0) -> GraphOperator\n\nThe first arguments "
     "are "
     "the fields of torch_tpu._fx.Program. Takes the graph. options: number of its set of XLA options; 0: the current "
     "one."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

}  // namespace torch_tpu

int python_graph_call_init(PyObject *module) {
    using namespace torch_tpu;
    graph_operator_type = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&kSpec));
    if (!graph_operator_type) return -1;
    if (PyModule_AddObjectRef(module, "GraphOperator", reinterpret_cast<PyObject *>(graph_operator_type)) < 0)
        return -1;
    if (python_program_init(module) < 0) return -1;
    return PyModule_AddFunctions(module, kFunctions);
}
