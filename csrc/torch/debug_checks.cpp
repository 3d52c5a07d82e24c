// Debug mode: indices are read back and checked before an operator that would clamp or drop bad ones is launched.
#include "torch/checks.h"

#include <ATen/ops/aminmax.h>

#include "torch/boxed.h"

#include <cstring>

namespace torch_tpu {

namespace {

constexpr int kFlat = -1;  // the index counts the elements of the whole operand

// Arguments by their position in the functional operator. `dim` is an argument where dim_is_argument, else a dimension.
struct IndexUse {
    const char *name;
    int index, dim;
    bool dim_is_argument;
    bool negative;  // counts from the end
};

constexpr IndexUse kUses[] = {
    {"aten::gather", 2, 1, true, false},
    {"aten::index_select", 2, 1, true, false},
    {"aten::index_add", 2, 1, true, false},
    {"aten::index_copy", 2, 1, true, false},
    {"aten::index_fill.int_Scalar", 2, 1, true, true},
    {"aten::index_fill.int_Tensor", 2, 1, true, true},
    {"aten::index_reduce", 2, 1, true, false},
    {"aten::scatter.src", 2, 1, true, false},
    {"aten::scatter.value", 2, 1, true, false},
    {"aten::scatter.reduce", 2, 1, true, false},
    {"aten::scatter.value_reduce", 2, 1, true, false},
    {"aten::scatter_add", 2, 1, true, false},
    {"aten::scatter_reduce.two", 2, 1, true, false},
    {"aten::embedding", 1, 0, false, false},
    {"aten::take", 1, kFlat, false, true},
    {"aten::put", 1, kFlat, false, true},
};

void check_range(const OperatorPlan &plan, const at::Tensor &index, int64_t dim, int64_t size, bool negative) {
    if (index.numel() == 0 || !at::isIntegralType(index.scalar_type(), false)) return;
    auto [low, high] = at::aminmax(index.cpu());
    const int64_t least = low.item<int64_t>(), greatest = high.item<int64_t>();
    const int64_t bad = least < (negative ? -size : 0) ? least : greatest;
    const bool good = least >= (negative ? -size : 0) && greatest < size;
    TORCH_CHECK_INDEX(good, plan.name, ": index ", bad, " is out of bounds for ",
                      dim == kFlat ? std::string("a tensor") : "dimension " + std::to_string(dim), " with size ", size);
}

void check_use(const OperatorPlan &plan, const c10::IValue *values, const IndexUse &use) {
    const at::Tensor *operand = tensor_of(argument_of(plan, values, 0));
    const at::Tensor *index = tensor_of(argument_of(plan, values, use.index));
    if (!operand || !index) return;
    int64_t dim = use.dim_is_argument ? argument_of(plan, values, use.dim)->toInt() : use.dim;
    if (dim < 0 && use.dim_is_argument) dim += std::max<int64_t>(operand->dim(), 1);
    const int64_t size = dim == kFlat ? operand->numel() : dim < operand->dim() ? operand->size(dim) : 1;
    check_range(plan, *index, dim, size, use.negative);
}

// x[i, :, mask]: an index takes one dimension, a mask as many as it has.
void check_list(const OperatorPlan &plan, const c10::IValue *values) {
    const at::Tensor *operand = tensor_of(argument_of(plan, values, 0));
    const c10::IValue *list = argument_of(plan, values, 1);
    if (!operand || !list || !list->isList()) return;
    int64_t dim = 0;
    for (const c10::IValue &entry : list->toListRef()) {
        const at::Tensor *index = tensor_of(&entry);
        const bool mask = index && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
        if (index && !mask && dim < operand->dim()) check_range(plan, *index, dim, operand->size(dim), true);
        dim += mask ? index->dim() : 1;
    }
}

void check_classes(const OperatorPlan &plan, const c10::IValue *values) {
    const at::Tensor *operand = tensor_of(argument_of(plan, values, 0));
    const at::Tensor *target = tensor_of(argument_of(plan, values, 1));
    if (!operand || !target || operand->dim() == 0) return;
    const int64_t dim = operand->dim() == 1 ? 0 : 1, ignored = argument_of(plan, values, 4)->toInt();
    at::Tensor counted = target->cpu();
    check_range(plan, counted.masked_select(counted.ne(ignored)), dim, operand->size(dim), false);
}

// Operators whose values have to be in a domain: the CPU's kernel knows it, and is tried beside the device.
constexpr const char *kDomains[] = {
    "aten::multinomial",
    "aten::bernoulli",
    "aten::bernoulli.Tensor",
    "aten::bernoulli_.Tensor",
    "aten::binary_cross_entropy",
    "aten::binary_cross_entropy_backward",
    "aten::masked_scatter",
    "aten::normal.float_Tensor",
    "aten::normal.Tensor_Tensor",
    "aten::poisson",
    "aten::binomial",
    "aten::multi_margin_loss",
    "aten::multilabel_margin_loss_forward",
    "aten::_linalg_svd",
    "aten::_linalg_eigh",
    "aten::max_unpool2d",
    "aten::max_unpool3d",
    "aten::_ctc_loss",
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
};

// Those that the CPU refuses for a divisor of zero when all operands are integers.
constexpr const char *kDivisions[] = {
    "aten::floor_divide",     "aten::floor_divide.Scalar", "aten::div.Tensor_mode",         "aten::div.Scalar_mode",
    "aten::remainder.Tensor", "aten::remainder.Scalar",    "aten::remainder.Scalar_Tensor", "aten::fmod.Tensor",
    "aten::fmod.Scalar",
};

bool is_integral(const c10::IValue *value) {
    if (value->isTensor()) return at::isIntegralType(value->toTensor().scalar_type(), true);
    return value->isInt() || value->isBool();
}

void check_divisor(const OperatorPlan &plan, const c10::IValue *values) {
    if (is_integral(argument_of(plan, values, 0)) && is_integral(argument_of(plan, values, 1)))
        raise_as_on_cpu(plan, values);
}

}  // namespace

void check_indices(const OperatorPlan &plan, const c10::IValue *values) {
    const char *name = plan.name.c_str();
    for (const IndexUse &use : kUses)
        if (std::strcmp(name, use.name) == 0) return check_use(plan, values, use);
    for (const char *listed :
         {"aten::index.Tensor", "aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index.Tensor"})
        if (std::strcmp(name, listed) == 0) return check_list(plan, values);
    for (const char *domain : kDomains)
        if (std::strcmp(name, domain) == 0) return raise_as_on_cpu(plan, values);
    for (const char *division : kDivisions)
        if (std::strcmp(name, division) == 0) return check_divisor(plan, values);
    for (const char *loss : {"aten::nll_loss_forward", "aten::nll_loss2d_forward"})
        if (std::strcmp(name, loss) == 0) return check_classes(plan, values);
}

}  // namespace torch_tpu
