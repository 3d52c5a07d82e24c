// Graphs made by torch_tpu._decompose from PyTorch's decompositions, for operators without a row.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "torch/boxed_frame.h"

extern "C" {
#include "python/graph.h"
}

namespace torch_tpu {

namespace {

namespace py = pybind11;

// A wrapped number is an input like any other here; PyTorch would turn it into a Python number where it goes.
at::Tensor stand_in(const at::Tensor &t) {
    at::Tensor meta = tensor_to_meta(t);
    if (meta.dim() == 0) meta.unsafeGetTensorImpl()->set_wrapped_number(false);
    return meta;
}

py::object list_of(const c10::IValue &value, const c10::IValue &metas) {
    py::list list;
    for (const c10::IValue &element : (value.isList() ? metas : value).toListRef())
        list.append(element.isTensor() && element.toTensor().defined() ? py::cast(element.toTensor()) : py::none());
    return list;
}

// As a Python caller writes it: dtypes, layouts and memory formats are ints on the stack.
py::object python_value(const c10::IValue &value, const c10::Argument &argument) {
    if (value.isNone()) return py::none();
    if (value.isTensor()) return value.toTensor().defined() ? py::cast(stand_in(value.toTensor())) : py::none();
    if (kind_of(argument) == ArgKind::Tensors) {
        return list_of(value, map_tensors(value, stand_in));
    }
    c10::TypePtr type = argument.real_type();
    if (type->kind() == c10::TypeKind::OptionalType) type = type->containedType(0);
    if (value.isInt()) switch (type->kind()) {
            case c10::TypeKind::ScalarTypeType:
                return py::cast(static_cast<at::ScalarType>(value.toInt()));
            case c10::TypeKind::LayoutType:
                return py::cast(static_cast<at::Layout>(value.toInt()));
            case c10::TypeKind::MemoryFormatType:
                return py::cast(static_cast<at::MemoryFormat>(value.toInt()));
            default:
                break;
        }
    if (value.isDevice()) return py::cast(at::Device(at::kMeta));
    if (value.isGenerator()) return py::none();
    return torch::jit::toPyObject(value);
}

}  // namespace

graph *Frame::decompose() {
    py::gil_scoped_acquire gil;
    try {
        py::module_ module = py::module_::import("torch_tpu._decompose");
        py::list arguments;
        py::dict named;
        const auto &schema = plan.functional.schema().arguments();
        for (size_t i = 0; i < plan.args.size(); i++) {
            const ArgPlan &planned = plan.args[i];
            py::object value = python_value(planned.source < 0 ? planned.absent : values[planned.source], schema[i]);
            if (schema[i].kwarg_only()) {
                named[py::str(schema[i].name())] = value;
            } else {
                arguments.append(value);
            }
        }
        try {
            py::object made = module.attr("decompose")(plan.name, py::tuple(arguments), named);
            graph *g = python_graph_take(made.ptr());
            if (!g) throw py::error_already_set();
            return g;
        } catch (py::error_already_set &e) {
            // The meta kernel took these arguments, so whatever fails now is the decomposition, not the caller.
            unsupported = e.matches(PyExc_Exception);
            const char *what = e.matches(module.attr("NoDecomposition")) ? "" : "its decomposition failed: ";
            reason = what + py::str(e.value()).cast<std::string>();
            throw;
        }
    } catch (py::error_already_set &e) {
        // As PyTorch's own exception, which may be destroyed without the GIL.
        e.restore();
        python_error persisted;
        persisted.persist();
        throw persisted;
    }
}

}  // namespace torch_tpu
