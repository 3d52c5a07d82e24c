#include "torch/boxed_special.h"

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/ScalarOps.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/_embedding_bag_sparse_backward.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/_assert_async.h>
#include <ATen/ops/all.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/multi_margin_loss.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/pixel_unshuffle.h>
#include <ATen/ops/stack.h>

#include <iterator>
#include <limits>

#include "torch/boxed.h"

namespace torch_tpu {

namespace {

using torch::jit::Stack;

bool equal(const OperatorPlan &plan, Stack *stack) {
    at::Tensor a = value_of(plan, stack, 0).toTensor(), b = value_of(plan, stack, 1).toTensor();
    TORCH_CHECK(a.device() == b.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", a.device(), " and ",
                b.device(), "!");
    TORCH_CHECK(a.dtype() == b.dtype(), "Expected object of data type ", a.dtype(), " but got data type ", b.dtype(),
                " for argument 'other' in call to equal");
    return answer(plan, stack, a.sizes() == b.sizes() && (a.numel() == 0 || at::all(at::eq(a, b)).item<bool>()));
}

bool is_set_to(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor &a = value_of(plan, stack, 0).toTensor(), &b = value_of(plan, stack, 1).toTensor();
    return answer(plan, stack,
                  a.storage().is_alias_of(b.storage()) && a.storage_offset() == b.storage_offset() &&
                      a.sizes() == b.sizes() && a.strides() == b.strides());
}

// Which attention scaled_dot_product_attention takes: the fused operator where there is a row for it.
bool sdp_choice(const OperatorPlan &plan, Stack *stack) {
    static const bool fused = op_find("aten::_scaled_dot_product_fused_attention_overrideable") &&
                              op_find("aten::_scaled_dot_product_fused_attention_overrideable_backward");
    const at::Tensor &query = value_of(plan, stack, 0).toTensor();
    bool usable = fused && at::globalContext().userEnabledOverrideableSDP() && query.dim() == 4 &&
                  at::isFloatingType(query.scalar_type());
    return answer(plan, stack, static_cast<int64_t>(usable ? at::SDPBackend::overrideable : at::SDPBackend::math));
}

bool is_mask(const at::Tensor &t) {
    return t.defined() && (t.scalar_type() == at::kBool || t.scalar_type() == at::kByte);
}

std::vector<at::Tensor> index_list(const c10::IValue &value) {
    std::vector<at::Tensor> indices;
    for (const c10::IValue &element : value.toListRef())
        indices.push_back(element.isNone() ? at::Tensor() : element.toTensor());
    return indices;
}

void check_mask(const at::Tensor &self, const at::Tensor &mask, int64_t dim) {
    for (int64_t j = 0; j < mask.dim(); j++)
        TORCH_CHECK_INDEX(dim + j < self.dim() && mask.size(j) == self.size(dim + j), "The shape of the mask ",
                          mask.sizes(), " at index ", j, " does not match the shape of the indexed tensor ",
                          self.sizes(), " at index ", dim + j);
}

// A mask becomes the positions of its true elements, one index tensor a dimension: how many there are the host must
// know.
c10::List<std::optional<at::Tensor>> without_masks(const at::Tensor &self, const std::vector<at::Tensor> &indices) {
    c10::List<std::optional<at::Tensor>> expanded;
    for (const at::Tensor &index : indices) {
        if (!is_mask(index)) {
            expanded.push_back(index.defined() ? std::optional<at::Tensor>(index) : std::nullopt);
            continue;
        }
        check_mask(self, index, static_cast<int64_t>(expanded.size()));
        at::Tensor positions = at::nonzero(index);
        for (int64_t j = 0; j < index.dim(); j++) expanded.push_back(positions.select(1, j));
    }
    return expanded;
}

bool index_masks(const OperatorPlan &plan, Stack *stack) {
    c10::IValue &list = torch::jit::peek(*stack, 1, plan.stack_size);
    std::vector<at::Tensor> indices = index_list(list);
    if (std::any_of(indices.begin(), indices.end(), is_mask))
        list = without_masks(value_of(plan, stack, 0).toTensor(), indices);
    return false;
}

// x[mask] = number needs no positions: it is a select. The mask broadcast to self's shape; undefined: another case.
at::Tensor sole_mask(const at::Tensor &self, const std::vector<at::Tensor> &indices) {
    at::Tensor mask;
    int64_t before = 0;
    for (size_t i = 0; i < indices.size(); i++) {
        if (!indices[i].defined()) continue;
        if (mask.defined() || indices[i].scalar_type() != at::kBool) return {};
        mask = indices[i];
        before = static_cast<int64_t>(i);
    }
    if (!mask.defined()) return {};
    check_mask(self, mask, before);
    at::Tensor shaped = mask.to(self.device());
    for (int64_t j = before + mask.dim(); j < self.dim(); j++) shaped = shaped.unsqueeze(-1);
    return shaped;
}

bool index_put(const OperatorPlan &plan, Stack *stack) {
    at::Tensor self = value_of(plan, stack, 0).toTensor();
    at::Tensor value = value_of(plan, stack, 2).toTensor();
    bool accumulate = value_of(plan, stack, 3).toBool();
    bool in_place = plan.writes && !plan.is_out.back();
    if (value.numel() == 1 && !accumulate && (in_place || !plan.writes)) {
        at::Tensor mask = sole_mask(self, index_list(value_of(plan, stack, 1)));
        if (mask.defined()) {
            TORCH_CHECK(value.scalar_type() == self.scalar_type(),
                        "Index put requires the source and destination dtypes match, "
                        "got ",
                        self.scalar_type(), " for the destination and ", value.scalar_type(), " for the source.");
            at::Tensor number = value.reshape({});
            return answer(plan, stack,
                          in_place ? self.masked_fill_(mask, number) : at::masked_fill(self, mask, number));
        }
    }
    return index_masks(plan, stack);
}

// ---- numbers that are run-time inputs of the program are checked here, whether they are that or a constant ----

// Throws PyTorch's error where `type` cannot hold the number. A Scalar's conversion is what the CPU's kernels do.
void check_holds(at::ScalarType type, const at::Scalar &value) {
    if (at::isBarebonesUnsignedType(type) || type == at::kBool) return;
    AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND3(at::kHalf, at::kBFloat16, at::kComplexHalf, type, "fill",
                                           [&] { (void)value.to<scalar_t>(); });
}

// A number of self's dtype.
template <int number>
bool fits_self(const OperatorPlan &plan, Stack *stack) {
    check_holds(value_of(plan, stack, 0).toTensor().scalar_type(), value_of(plan, stack, number).toScalar());
    return false;
}

bool fits_floating(const OperatorPlan &plan, Stack *stack) {
    return value_of(plan, stack, 0).toTensor().is_floating_point() && fits_self<1>(plan, stack);
}

// Numbers of the dtype that they and self are promoted to.
template <int first, int last = first>
bool fits_result(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor &self = value_of(plan, stack, 0).toTensor();
    at::native::ResultTypeState state = at::native::update_result_type_state(self, {});
    for (int i = first; i <= last; i++)
        if (value_of(plan, stack, i).isScalar())
            state = at::native::update_result_type_state(value_of(plan, stack, i).toScalar(), state);
    const at::ScalarType type = at::native::result_type(state);
    for (int i = first; i <= last; i++)
        if (value_of(plan, stack, i).isScalar()) check_holds(type, value_of(plan, stack, i).toScalar());
    return false;
}

// The CPU raises float32's and float64's to a double.
bool fits_power(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor &self = value_of(plan, stack, 0).toTensor();
    const at::ScalarType type = at::result_type(self, value_of(plan, stack, 1).toScalar());
    return type == at::kFloat || type == at::kDouble ? false : fits_result<1>(plan, stack);
}

// alpha of add and sub.
bool fits_factor(const OperatorPlan &plan, Stack *stack) {
    const at::Scalar alpha = value_of(plan, stack, 2).toScalar();
    if (alpha.isIntegral(true) && alpha.toLong() == 1) return false;
    const at::Tensor &self = value_of(plan, stack, 0).toTensor();
    const c10::IValue &other = value_of(plan, stack, 1);
    check_holds(other.isTensor() ? at::result_type(self, other.toTensor()) : at::result_type(self, other.toScalar()),
                alpha);
    return false;
}

bool fits_logit(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor &self = value_of(plan, stack, 0).toTensor();
    const c10::IValue &eps = value_of(plan, stack, 1);
    const bool integral = at::isIntegralType(self.scalar_type(), true);
    if (eps.isDouble()) check_holds(integral ? at::kFloat : self.scalar_type(), eps.toDouble());
    return false;
}

// A whole number divided by the number 0; a tensor's zeros are looked for in debug mode.
bool divisor(const OperatorPlan &plan, Stack *stack) {
    const c10::IValue &other = value_of(plan, stack, 1);
    if (!value_of(plan, stack, 0).isTensor()) return false;
    const at::Tensor &self = value_of(plan, stack, 0).toTensor();
    if (self.numel() == 0 || !at::isIntegralType(self.scalar_type(), true)) return false;
    const bool divides = plan.name.compare(0, 10, "aten::div.") == 0;
    if (divides && value_of(plan, stack, 2).isNone()) return false;  // not rounded: a float quotient
    const bool is_number = other.isScalar() || (other.toTensor().device().is_cpu() && other.toTensor().dim() == 0);
    if (!is_number) return false;
    const at::Scalar number = other.isScalar() ? other.toScalar() : other.toTensor().item();
    TORCH_CHECK(!number.isIntegral(true) || number.toLong() != 0, "ZeroDivisionError");
    return false;
}

bool index_fill_number(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor &self = value_of(plan, stack, 0).toTensor();
    const at::Scalar value = value_of(plan, stack, 3).toScalar();
    TORCH_CHECK(self.is_complex() || !value.isComplex(),
                "index_fill_(): Converting complex Scalar to non-complex type is not supported");
    check_holds(self.scalar_type(), value);
    return false;
}

bool uniform_range(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor &self = value_of(plan, stack, 0).toTensor();
    if (self.is_complex() && self.numel() == 0) return false;
    const double from = value_of(plan, stack, 1).toDouble(), to = value_of(plan, stack, 2).toDouble();
    const at::ScalarType type = c10::toRealValueType(self.scalar_type());
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "check_uniform_bounds", [&] {
        const double least = std::numeric_limits<scalar_t>::lowest(), most = std::numeric_limits<scalar_t>::max();
        TORCH_CHECK(from >= least && from <= most, "from is out of bounds for ", self.dtype());
        TORCH_CHECK(to >= least && to <= most, "to is out of bounds for ", self.dtype());
        TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
        TORCH_CHECK(to - from <= most, "uniform_ expects to-from <= std::numeric_limits<", self.dtype(),
                    ">::max(), but found to=", to, " and from=", from, " which result in to-from to exceed the limit");
    });
    return false;
}

// random_'s greatest number is to - 1.
template <int to>
bool below(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor &self = value_of(plan, stack, 0).toTensor();
    const c10::IValue &end = value_of(plan, stack, to);
    const int64_t from = to == 2 ? value_of(plan, stack, 1).toInt() : 0;
    TORCH_CHECK(end.isNone() || from < end.toInt(), "random_ expects 'from' to be less than 'to', but got from=", from,
                " >= to=", end.toInt());
    TORCH_CHECK(!self.is_complex(), "check_random_bounds handles only integral, floating-point and boolean types");
    if (at::isBarebonesUnsignedType(self.scalar_type())) return false;
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, self.scalar_type(), "random_", [&] {
        // As doubles, which hold the ends of every dtype but int64's, and that any number of the arguments is in.
        const auto least = static_cast<double>(std::numeric_limits<scalar_t>::lowest());
        const auto most = static_cast<double>(std::numeric_limits<scalar_t>::max());
        auto inside = [&](int64_t n) { return static_cast<double>(n) >= least && static_cast<double>(n) <= most; };
        TORCH_CHECK(inside(from), "from is out of bounds for ", self.dtype());
        TORCH_CHECK(end.isNone() || inside(end.toInt() - 1), "to - 1 is out of bounds for ", self.dtype());
    });
    return false;
}

bool any_bits(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor &self = value_of(plan, stack, 0).toTensor();
    TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), plan.name, ": not implemented for '", self.scalar_type(), "'");
    return false;
}

// A distribution's parameter: which argument it is, and what it may be.
struct Parameter {
    int argument;
    bool (*good)(double);
    const char *words;
    bool asks_nothing_of_nothing;  // the CPU's kernel returns before it asks for the dtype
};

constexpr Parameter kProbability = {1, [](double p) { return p >= 0 && p <= 1; },
                                    "bernoulli_ expects p to be in [0, 1], but got p=", false};
constexpr Parameter kRate = {1, [](double lambda) { return lambda > 0; },
                             "exponential_ expects lambda > 0.0, but found lambda=", true};
constexpr Parameter kTrials = {1, [](double p) { return p > 0 && p < 1; },
                               "geometric_ expects p to be in (0, 1), but got p=", true};
constexpr Parameter kLogDeviation = {2, [](double std) { return std > 0; },
                                     "log_normal_ expects std > 0.0, but found std=", true};
constexpr Parameter kHalfWidth = {2, [](double sigma) { return sigma > 0; },
                                  "cauchy_ expects sigma > 0.0, but found sigma=", false};
constexpr Parameter kDeviation = {2, [](double std) { return std >= 0; }, "normal expects std >= 0.0, but found std ",
                                  true};

template <const Parameter &p>
bool parameter(const OperatorPlan &plan, Stack *stack) {
    const double value = value_of(plan, stack, p.argument).toDouble();
    TORCH_CHECK(p.good(value), p.words, value);
    const at::Tensor self = value_of(plan, stack, 0).toTensor();
    const bool skipped = p.asks_nothing_of_nothing && plan.writes && self.numel() == 0;
    return skipped && answer(plan, stack, self);
}

// With sparse=True: how many rows the gradient has depends on padding_idx, which metadata functions cannot know.
bool bag_sparse_backward(const OperatorPlan &plan, Stack *stack) {
    auto tensor = [&](int i) { return value_of(plan, stack, i).toTensor(); };
    if (!value_of(plan, stack, 9).toBool()) return false;
    const at::Tensor indices = tensor(1), offsets = tensor(2);
    at::Tensor bags = tensor(3);
    if (bags.numel() == 0 && indices.numel() != 0)  // the forward may leave it out
        bags = at::searchsorted(offsets, at::arange(indices.numel(), offsets.options()), false, true)
                   .sub(1)
                   .to(indices.scalar_type());
    return answer(plan, stack,
                  at::_embedding_bag_sparse_backward(
                      tensor(0), indices, offsets, bags, tensor(4), value_of(plan, stack, 6).toInt(),
                      value_of(plan, stack, 7).toBool(), value_of(plan, stack, 8).toInt(),
                      value_of(plan, stack, 10).toOptional<at::Tensor>(), value_of(plan, stack, 11).toInt()));
}

// PyTorch's metadata says that a number's result has one dimension; its kernel says none.
bool isin_number(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor &elements = value_of(plan, stack, 1).toTensor();
    const at::Tensor number = c10::scalar_to_tensor(value_of(plan, stack, 0).toScalar());
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return answer(plan, stack,
                  at::isin(number.to(elements.device()), elements, value_of(plan, stack, 2).toBool(),
                           value_of(plan, stack, 3).toBool()));
}

// Nothing is added: PyTorch's metadata function would look at the first slice of the source, which it may not have.
bool index_add_nothing(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor self = value_of(plan, stack, 0).toTensor();
    if (value_of(plan, stack, 2).toTensor().numel() != 0 || plan.is_out.back()) return false;
    return answer(plan, stack, plan.writes ? self : self.clone(at::MemoryFormat::Contiguous));
}

// The number of classes is asked of the values where it is not given; the rest is a program's.
bool one_hot(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor self = value_of(plan, stack, 0).toTensor();
    const int64_t classes = value_of(plan, stack, 1).toInt();
    if (self.scalar_type() != at::kLong || self.numel() == 0 || classes < -1) return compose(plan, stack);
    if (!self.is_contiguous()) torch::jit::peek(*stack, 0, plan.stack_size) = self.contiguous();
    if (classes != -1) {
        TORCH_CHECK(classes > 0, "Class values must be smaller than num_classes.");
        return false;
    }
    auto [least, greatest] = at::aminmax(self);
    const at::Tensor ends = at::stack({least, greatest}).cpu();
    TORCH_CHECK(ends[0].item<int64_t>() >= 0, "Class values must be non-negative.");
    torch::jit::peek(*stack, 1, plan.stack_size) = ends[1].item<int64_t>() + 1;
    return false;
}

// PyTorch's metadata says that the loss of one sample with a number as its class has one dimension; its kernel says
// none.
bool multi_margin_number(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor target = value_of(plan, stack, 1).toTensor();
    if (target.dim() != 0 || value_of(plan, stack, 5).toInt() != at::Reduction::None) return false;
    const at::Tensor self = value_of(plan, stack, 0).toTensor();
    const c10::IValue weight = value_of(plan, stack, 4);
    return answer(
        plan, stack,
        at::multi_margin_loss(self, target.view(1), value_of(plan, stack, 2).toScalar(),
                              value_of(plan, stack, 3).toScalar(), weight.toOptional<at::Tensor>(), at::Reduction::None)
            .view(at::IntArrayRef{}));
}

// Of nothing the CPU's kernel gives the shape that it got, and metadata the shape of an unshuffled image.
bool pixel_unshuffle_nothing(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor self = value_of(plan, stack, 0).toTensor();
    if (self.numel() != 0) return false;
    const at::Tensor host = at::empty(self.sizes(), self.options().device(at::kCPU));
    return answer(plan, stack, at::pixel_unshuffle(host, value_of(plan, stack, 1).toInt()).to(self.device()));
}

bool assert_async(const OperatorPlan &plan, Stack *stack) {
    const at::Tensor condition = value_of(plan, stack, 0).toTensor().cpu();
    if (plan.stack_size > 1)
        at::_assert_async(condition, value_of(plan, stack, 1).toStringRef());
    else
        at::_assert_async(condition);
    torch::jit::drop(*stack, plan.stack_size);
    return true;
}

struct Special {
    const char *name;  // as called, or a prefix ended by *
    PrepareFunction prepare;
};

const Special kSpecials[] = {
    {"aten::equal", equal},
    {"aten::is_set_to", is_set_to},
    {"aten::_fused_sdp_choice", sdp_choice},
    {"aten::fill_.Scalar", fits_self<1>},
    {"aten::scatter.value*", fits_self<3>},
    {"aten::scatter_.value*", fits_self<3>},
    {"aten::hardshrink", fits_floating},
    {"aten::hardshrink.out", fits_floating},
    {"aten::index_fill.int_Scalar*", index_fill_number},
    {"aten::index_fill_.int_Scalar", index_fill_number},
    {"aten::clamp", fits_result<1, 2>},
    {"aten::clamp_", fits_result<1, 2>},
    {"aten::clamp.out", fits_result<1, 2>},
    {"aten::clamp_min", fits_result<1>},
    {"aten::clamp_min_", fits_result<1>},
    {"aten::clamp_min.out", fits_result<1>},
    {"aten::clamp_max", fits_result<1>},
    {"aten::clamp_max_", fits_result<1>},
    {"aten::clamp_max.out", fits_result<1>},
    {"aten::pow.Tensor_Scalar*", fits_power},
    {"aten::pow_.Scalar", fits_power},
    {"aten::add.Tensor", fits_factor},
    {"aten::add_.Tensor", fits_factor},
    {"aten::add.out", fits_factor},
    {"aten::sub.Tensor", fits_factor},
    {"aten::sub_.Tensor", fits_factor},
    {"aten::sub.out", fits_factor},
    {"aten::sub.Scalar", fits_factor},
    {"aten::sub_.Scalar", fits_factor},
    {"aten::add.Scalar", fits_factor},
    {"aten::add_.Scalar", fits_factor},
    {"aten::random_.to", below<1>},
    {"aten::random_.from", below<2>},
    {"aten::random_", any_bits},
    {"aten::remainder*", divisor},
    {"aten::fmod*", divisor},
    {"aten::floor_divide*", divisor},
    {"aten::div.Tensor_mode", divisor},
    {"aten::div_.Tensor_mode", divisor},
    {"aten::div.out_mode", divisor},
    {"aten::div.Scalar_mode*", divisor},
    {"aten::div_.Scalar_mode", divisor},
    {"aten::logit", fits_logit},
    {"aten::logit_", fits_logit},
    {"aten::logit.out", fits_logit},
    {"aten::bernoulli.p", parameter<kProbability>},
    {"aten::bernoulli_.float", parameter<kProbability>},
    {"aten::_embedding_bag_backward", bag_sparse_backward},
    {"aten::exponential_", parameter<kRate>},
    {"aten::geometric_", parameter<kTrials>},
    {"aten::log_normal_", parameter<kLogDeviation>},
    {"aten::cauchy_", parameter<kHalfWidth>},
    {"aten::normal_", parameter<kDeviation>},
    {"aten::uniform_", uniform_range},
    {"aten::arange.start_out", arange_out},
    {"aten::isin.Scalar_Tensor", isin_number},
    {"aten::eye.out", eye_out},
    {"aten::eye.m_out", eye_out},
    {"aten::linspace.out", spaced_out},
    {"aten::linspace.Tensor_Tensor_out", spaced_out},
    {"aten::linspace.Tensor_Scalar_out", spaced_out},
    {"aten::linspace.Scalar_Tensor_out", spaced_out},
    {"aten::logspace.out", spaced_out},
    {"aten::logspace.Tensor_Tensor_out", spaced_out},
    {"aten::logspace.Tensor_Scalar_out", spaced_out},
    {"aten::logspace.Scalar_Tensor_out", spaced_out},
    {"aten::range.out", range_out},
    {"aten::sum.IntList_out", dtype_of_out},
    {"aten::nansum.out", nansum_out},
    {"aten::nansum", nansum},
    {"aten::mean.out", dtype_of_out},
    {"aten::linear.out", linear_out},
    {"aten::prod.int_out", dtype_of_out},
    {"aten::cumsum.out", dtype_of_out},
    {"aten::cumprod.out", dtype_of_out},
    {"aten::_assert_async*", assert_async},
    {"aten::one_hot", one_hot},
    {"aten::pixel_unshuffle", pixel_unshuffle_nothing},
    {"aten::multi_margin_loss", multi_margin_number},
    {"aten::_foreach_*", foreach_shared},
    {"aten::index_add", index_add_nothing},
    {"aten::index_add_", index_add_nothing},
    {"aten::index_reduce", index_add_nothing},
    {"aten::index_reduce_", index_add_nothing},
    {"aten::index.*", index_masks},
    {"aten::_unsafe_index.*", index_masks},
    {"aten::index_put*", index_put},
    {"aten::_index_put_impl*", index_put},
    {"aten::_unsafe_index_put*", index_put},
};

bool matches(const std::string &name, const std::string &pattern) {
    return pattern.back() == '*' ? name.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0
                                 : name == pattern;
}

}  // namespace

PrepareFunction special_for(const OperatorPlan &plan) {
    const std::string name = qualified_name(plan.called.operator_name());
    for (const Special &special : kSpecials)
        if (matches(name, special.name)) return special.prepare;
    return nullptr;
}

}  // namespace torch_tpu
