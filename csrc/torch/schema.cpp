#include "torch/schema.h"
#include "torch/boxed_special.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace torch_tpu {

namespace {

// Functional operators that cannot be found by their arguments: the names differ for historical reasons.
const std::pair<const char *, const char *> kRenamed[] = {
    {"aten::adaptive_avg_pool2d.out", "aten::_adaptive_avg_pool2d"},
    {"aten::adaptive_avg_pool3d.out", "aten::_adaptive_avg_pool3d"},
    {"aten::adaptive_avg_pool3d_backward.grad_input", "aten::_adaptive_avg_pool3d_backward"},
    {"aten::__irshift__.Scalar", "aten::__rshift__.Scalar"},
    {"aten::__irshift__.Tensor", "aten::__rshift__.Tensor"},
    {"aten::__ilshift__.Scalar", "aten::__lshift__.Scalar"},
    {"aten::__ilshift__.Tensor", "aten::__lshift__.Tensor"},
};

// Arguments through which PyTorch lets index tensors of the CPU reach any device.
bool takes_host_indices(const std::string &name, const c10::Argument &argument) {
    static const char *const operators[] = {"aten::index.", "aten::index_put", "aten::_index_put_impl",
                                            "aten::_unsafe_index"};
    return argument.name() == "indices" &&
           std::any_of(std::begin(operators), std::end(operators),
                       [&](const char *prefix) { return name.compare(0, std::strlen(prefix), prefix) == 0; });
}

ArgKind kind_of_type(const c10::Type &type) {
    switch (type.kind()) {
        case c10::TypeKind::TensorType:
            return ArgKind::Tensor;
        case c10::TypeKind::NumberType:
        case c10::TypeKind::FloatType:
        case c10::TypeKind::SymFloatType:
        case c10::TypeKind::ComplexType:
            return ArgKind::Number;
        case c10::TypeKind::IntType:
        case c10::TypeKind::SymIntType:
        case c10::TypeKind::BoolType:
        case c10::TypeKind::SymBoolType:
        case c10::TypeKind::LayoutType:
        case c10::TypeKind::MemoryFormatType:
            return ArgKind::Int;
        case c10::TypeKind::ScalarTypeType:
            return ArgKind::Dtype;
        case c10::TypeKind::StringType:
            return ArgKind::String;
        case c10::TypeKind::GeneratorType:
            return ArgKind::Generator;
        case c10::TypeKind::OptionalType:
            return kind_of_type(*type.containedType(0));
        case c10::TypeKind::ListType:
            switch (kind_of_type(*type.containedType(0))) {
                case ArgKind::Tensor:
                    return ArgKind::Tensors;
                case ArgKind::Number:
                    return ArgKind::Numbers;
                case ArgKind::Int:
                    return ArgKind::Ints;
                default:
                    return ArgKind::Ignored;
            }
        default:
            return ArgKind::Ignored;
    }
}

bool is_tensors(ArgKind kind) { return kind == ArgKind::Tensor || kind == ArgKind::Tensors; }

// The overloads of every operator name. Operators may be defined at any time; `refresh` sees the new ones.
class Overloads {
   public:
    const std::vector<c10::OperatorHandle> &of(const std::string &name) {
        if (known_.empty()) refresh();
        static const std::vector<c10::OperatorHandle> none;
        auto found = known_.find(name);
        return found == known_.end() ? none : found->second;
    }

    void refresh() {
        known_.clear();
        auto &dispatcher = c10::Dispatcher::singleton();
        for (const c10::OperatorName &name : dispatcher.getAllOpNames())
            if (auto op = dispatcher.findSchema(name)) known_[name.name].push_back(*op);
    }

   private:
    std::unordered_map<std::string, std::vector<c10::OperatorHandle>> known_;
};

std::mutex plans_mutex;  // guards the two below; recursive use is impossible, plans are built from schemas alone
Overloads overloads;
std::unordered_map<std::string, std::unique_ptr<OperatorPlan>> plans;

bool writes_anything(const c10::FunctionSchema &schema) {
    return std::any_of(schema.arguments().begin(), schema.arguments().end(), is_written);
}

bool is_factory_option(const c10::Argument &argument) {
    static const char *const names[] = {"dtype", "layout", "device", "pin_memory", "memory_format"};
    return std::any_of(std::begin(names), std::end(names), [&](const char *name) { return argument.name() == name; });
}

// The functional operator takes what the called one takes, except the out= arguments; it may have factory options
// besides.
bool same_inputs(const c10::FunctionSchema &functional, const c10::FunctionSchema &called) {
    if (writes_anything(functional)) return false;
    size_t at = 0;
    const auto &wanted = called.arguments();
    for (const c10::Argument &argument : functional.arguments()) {
        while (at < wanted.size() && wanted[at].is_out()) at++;
        if (at < wanted.size() && argument.name() == wanted[at].name() &&
            *argument.real_type() == *wanted[at].real_type()) {
            at++;
        } else if (!is_factory_option(argument)) {
            return false;
        }
    }
    while (at < wanted.size() && wanted[at].is_out()) at++;
    return at == wanted.size();
}

// add_ -> add, normal_ -> normal_functional, native_batch_norm's legit form -> its functional, mul_out -> mul.
std::vector<std::string> functional_names(const std::string &name) {
    std::vector<std::string> names = {name, name + "_functional"};
    if (!name.empty() && name.back() == '_') {
        std::string base = name.substr(0, name.size() - 1);
        names.insert(names.begin(), {base, base + "_functional"});
    }
    if (name.size() > 4 && name.compare(name.size() - 4, 4, "_out") == 0)
        names.push_back(name.substr(0, name.size() - 4));
    return names;
}

c10::OperatorHandle find_functional(const c10::OperatorHandle &op) {
    const std::string full = qualified_name(op.operator_name());
    for (auto [from, to] : kRenamed) {
        if (full != from) continue;
        std::string target = to;
        size_t dot = target.find('.');
        if (auto found = c10::Dispatcher::singleton().findSchema(
                {target.substr(0, dot), dot == std::string::npos ? "" : target.substr(dot + 1)}))
            return *found;
    }
    if (!writes_anything(op.schema())) return op;
    for (const std::string &name : functional_names(op.operator_name().name))
        for (const c10::OperatorHandle &candidate : overloads.of(name))
            if (same_inputs(candidate.schema(), op.schema())) return candidate;
    return op;
}

// An overload that has numbers where the other has tensors shares its row: add.Scalar is add.Tensor.
bool is_scalar_form(const c10::FunctionSchema &scalar, const c10::FunctionSchema &tensor) {
    const auto &left = scalar.arguments(), &right = tensor.arguments();
    if (left.size() != right.size() || scalar.returns().size() != tensor.returns().size()) return false;
    for (size_t i = 0; i < left.size(); i++) {
        ArgKind x = kind_of(left[i]), y = kind_of(right[i]);
        if (left[i].name() != right[i].name() || (x != y && !(x == ArgKind::Number && y == ArgKind::Tensor)))
            return false;
    }
    for (size_t i = 0; i < scalar.returns().size(); i++)
        if (kind_of(scalar.returns()[i]) != kind_of(tensor.returns()[i])) return false;
    return true;
}

c10::OperatorHandle find_with_row(const c10::OperatorHandle &functional) {
    if (op_find(qualified_name(functional.operator_name()).c_str())) return functional;
    for (const c10::OperatorHandle &candidate : overloads.of(functional.operator_name().name))
        if (op_find(qualified_name(candidate.operator_name()).c_str()) && !writes_anything(candidate.schema()) &&
            is_scalar_form(functional.schema(), candidate.schema()))
            return candidate;
    return functional;
}

int argument_named(const c10::FunctionSchema &schema, const std::string &name) {
    auto index = schema.argumentIndexWithName(name);
    return index ? *index : -1;
}

void plan_arguments(OperatorPlan &plan) {
    const auto &called = plan.called.schema();
    for (const c10::Argument &argument : plan.functional.schema().arguments()) {
        int source = argument_named(called, argument.name());
        plan.args.push_back({kind_of(argument), source, takes_host_indices(plan.name, argument),
                             source < 0 && argument.default_value() ? *argument.default_value() : c10::IValue()});
    }
    for (size_t i = 0; i < called.arguments().size(); i++) {
        const c10::Argument &argument = called.arguments()[i];
        plan.is_out.push_back(is_written(argument) && argument.is_out());
        ArgKind kind = kind_of(argument);
        if (kind == ArgKind::Generator) plan.generator = static_cast<int>(i);
        if (argument.name() == "device") plan.device = static_cast<int>(i);
    }
    plan.stack_size = static_cast<int>(called.arguments().size());
}

// The functional operator's results are the called one's new returns, in order, then its out= arguments, then the
// others that it writes, in order.
void plan_results(OperatorPlan &plan) {
    const auto &schema = plan.called.schema();
    std::vector<int> written;
    for (size_t i = 0; i < schema.arguments().size(); i++)
        if (is_written(schema.arguments()[i])) written.push_back(static_cast<int>(i));
    std::stable_partition(written.begin(), written.end(), [&](int i) { return schema.arguments()[i].is_out(); });
    plan.writes = !written.empty();
    for (size_t k = 0; k < schema.returns().size(); k++) {
        const c10::Argument &value = schema.returns()[k];
        ReturnPlan planned = {-1, -1};
        for (int i : written)
            if (value.alias_info() && *value.alias_info() == *schema.arguments()[i].alias_info()) planned.argument = i;
        if (planned.argument < 0) {
            planned.result = static_cast<int>(plan.results.size());
            ArgKind kind = kind_of(value);
            plan.results.push_back({-1, static_cast<int>(k), kind == ArgKind::Tensors, is_tensors(kind)});
        }
        plan.returns.push_back(planned);
    }
    for (int i : written) {
        ArgKind kind = kind_of(schema.arguments()[i]);
        plan.results.push_back({i, -1, kind == ArgKind::Tensors, true});
    }
}

void plan_hidden_writes(OperatorPlan &plan) {
    if (!plan.row) return;
    for (int8_t entry : plan.row->hidden_writes) {
        if (entry <= 0 || entry > static_cast<int>(plan.args.size())) break;
        plan.hidden_writes.push_back(plan.args[entry - 1].source);
    }
}

// Results whose number follows from nothing but the arguments' metadata, and that are tensors (or numbers known from
// shapes).
bool is_static(const OperatorPlan &plan) {
    if (plan.dynamic_shape || (plan.new_lists() > 0 && plan.results.size() > 1)) return false;
    return std::all_of(plan.results.begin(), plan.results.end(), [&](const ResultPlan &r) {
        return r.is_tensor || shape_number_argument(plan, r.returned) >= 0;
    });
}

std::optional<c10::OperatorHandle> find_structured(const OperatorPlan &plan) {
    bool is_out = std::find(plan.is_out.begin(), plan.is_out.end(), true) != plan.is_out.end();
    c10::OperatorHandle op = is_out ? find_functional(plan.called) : plan.called;
    const std::string &name = op.operator_name().name;
    const bool copies_view = name.size() > 5 && name.compare(name.size() - 5, 5, "_copy") == 0;
    if (copies_view || !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional))
        return std::nullopt;
    return op;
}

Way first_way(const OperatorPlan &plan) {
    if (is_static(plan)) return plan.row ? Way::Native : Way::Decomposed;
    return plan.composite ? Way::Composite : Way::Cpu;
}

std::unique_ptr<OperatorPlan> make_plan(const c10::OperatorHandle &op) {
    auto plan = std::make_unique<OperatorPlan>(op);
    plan->functional = find_with_row(find_functional(op));
    plan->name = qualified_name(plan->functional.operator_name());
    plan->core = operator_intern(plan->name.c_str());
    TORCH_CHECK(plan->core, "out of host memory for operator ", plan->name);
    plan->row = operator_row(plan->core);
    plan_arguments(*plan);
    plan_results(*plan);
    plan_hidden_writes(*plan);
    plan->dynamic_shape = op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
    plan->random = plan->row && (plan->row->flags & OP_RANDOM);
    plan->composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
                      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    plan->prepare = special_for(*plan);
    if (plan->prepare && plan->row) plan->dynamic_shape = false;  // of masks only, which prepare takes away
    plan->structured = find_structured(*plan);
    plan->way = first_way(*plan);
    return plan;
}

}  // namespace

std::string qualified_name(const c10::OperatorName &name) {
    return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

bool is_written(const c10::Argument &argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

ArgKind kind_of(const c10::Argument &argument) { return kind_of_type(*argument.real_type()); }

const char *way_name(Way way) {
    switch (way) {
        case Way::Native:
            return "native";
        case Way::Decomposed:
            return "decomposed";
        case Way::Composite:
            return "composite";
        case Way::Cpu:
            return "cpu";
    }
    return "unknown";
}

int OperatorPlan::new_lists() const {
    return static_cast<int>(
        std::count_if(results.begin(), results.end(), [](const ResultPlan &r) { return r.list && r.target < 0; }));
}

int shape_number_argument(const OperatorPlan &plan, int returned) {
    // Attention returns the lengths of its sequences: size 2 of query and key.
    const std::string &name = plan.called.schema().returns()[returned].name();
    const char *source = name == "max_q" ? "query" : name == "max_k" ? "key" : "";
    return argument_named(plan.called.schema(), source);
}

const OperatorPlan &plan_of(const c10::OperatorHandle &op) {
    std::lock_guard<std::mutex> lock(plans_mutex);
    std::string name = qualified_name(op.operator_name());
    auto found = plans.find(name);
    if (found != plans.end()) return *found->second;
    if (overloads.of(op.operator_name().name).empty()) overloads.refresh();
    return *plans.emplace(name, make_plan(op)).first->second;
}

}  // namespace torch_tpu
