// Checks that PyTorch's CPU kernels make and its metadata functions leave out. The result depends on nothing but what a
// program's key holds, so a program that is in the cache has passed them.
#include <ATen/ops/result_type.h>

#include <cstring>

#include "torch/checks.h"

namespace torch_tpu {

namespace {

using Operands = const at::Tensor *const *;  // the operator's first tensors by argument; NULL: that one is none

void index_put(const OperatorPlan & /*plan*/, Operands t) {
    TORCH_CHECK(t[0]->scalar_type() == t[2]->scalar_type(),
                "Index put requires the source and destination dtypes match, got ", t[0]->scalar_type(),
                " for the destination and ", t[2]->scalar_type(), " for the source.");
}

template <int source>
void same_dtype(const OperatorPlan &plan, Operands t) {
    TORCH_CHECK(t[0]->scalar_type() == t[source]->scalar_type(), plan.name,
                ": self and source expected to have the same dtype, but got (self) ", t[0]->scalar_type(),
                " and (source) ", t[source]->scalar_type());
}

void vector_index(const OperatorPlan & /*plan*/, Operands t) {
    TORCH_CHECK_INDEX(t[2]->dim() <= 1, "index_select(): Index is supposed to be a vector");
    TORCH_CHECK(t[2]->scalar_type() == at::kLong || t[2]->scalar_type() == at::kInt,
                "index_select(): Expected dtype int32 or int64 for index");
}

void vector_of_boundaries(const OperatorPlan & /*plan*/, Operands t) {
    TORCH_CHECK(t[1]->dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", t[1]->dim(), ")");
}

template <int probabilities>
void floating(const OperatorPlan &plan, Operands t) {
    TORCH_CHECK_NOT_IMPLEMENTED(t[probabilities]->is_floating_point(), plan.name, ": not implemented for '",
                                t[probabilities]->scalar_type(), "'");
}

void floating_result(const OperatorPlan &plan, Operands t) {
    const bool in_place = plan.writes && !plan.is_out.back();
    TORCH_CHECK(!in_place || !at::isIntegralType(t[0]->scalar_type(), true), "result type Float can't be cast to ",
                "the desired output type ", t[0]->scalar_type());
}

void no_integers(const OperatorPlan & /*plan*/, Operands t) {
    TORCH_CHECK(!at::isIntegralType(t[0]->scalar_type(), true),
                "std and var only support floating point and complex dtypes");
}

template <int spatial>
void averaged(const OperatorPlan &plan, Operands t) {
    for (int64_t i = spatial == 3 ? 1 : t[0]->dim() - spatial; i < t[0]->dim(); i++)
        TORCH_CHECK(t[0]->dim() < spatial || t[0]->size(i) > 0, plan.name,
                    ": Expected input to have non-zero size for non-batch dimensions, but input has sizes ",
                    t[0]->sizes(), " with dimension ", i, " being empty");
    if (t[0]->numel() > 0) floating<0>(plan, t);
}

void class_targets(const OperatorPlan &plan, Operands t) {
    floating<0>(plan, t);
    TORCH_CHECK(t[1]->scalar_type() == at::kLong, plan.name, ": expected targets of type Long but found ",
                t[1]->scalar_type());
}

void class_indices(const OperatorPlan &plan, Operands t) {
    TORCH_CHECK(t[1]->scalar_type() == at::kLong || t[1]->scalar_type() == at::kByte, plan.name,
                ": expected targets of type Long or Byte but found ", t[1]->scalar_type());
    floating<0>(plan, t);
}

void floating_difference(const OperatorPlan &plan, Operands t) {
    const at::ScalarType type = at::result_type(*t[0], *t[1]);
    TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(type), plan.name, ": not implemented for '", type, "'");
}

void sample_weights(const OperatorPlan & /*plan*/, Operands t) {
    TORCH_CHECK(t[0]->scalar_type() == t[6]->scalar_type(), "embedding_bag: expected per_sample_weights to have the ",
                "dtype of weight, ", t[0]->scalar_type(), ", but got ", t[6]->scalar_type());
}

void segment_lengths(const OperatorPlan &plan, Operands t) {
    TORCH_CHECK_NOT_IMPLEMENTED(t[2]->scalar_type() == at::kLong || t[2]->scalar_type() == at::kInt, plan.name,
                                ": not implemented for lengths of type '", t[2]->scalar_type(), "'");
}

struct Check {
    const char *name;
    int needed;  // the last tensor that the check reads
    void (*check)(const OperatorPlan &plan, Operands operands);
};

constexpr Check kChecks[] = {
    {"aten::index_put", 2, index_put},
    {"aten::_index_put_impl", 2, index_put},
    {"aten::_unsafe_index_put", 2, index_put},
    {"aten::index_copy", 3, same_dtype<3>},
    {"aten::put", 2, same_dtype<2>},
    {"aten::index_select", 2, vector_index},
    {"aten::bucketize.Tensor", 1, vector_of_boundaries},
    {"aten::bernoulli", 0, floating<0>},
    {"aten::bernoulli.Tensor", 1, floating<1>},
    {"aten::poisson", 0, floating<0>},
    {"aten::_adaptive_avg_pool2d", 0, averaged<2>},
    {"aten::_adaptive_avg_pool3d", 0, averaged<3>},
    {"aten::adaptive_max_pool2d", 0, floating<0>},
    {"aten::adaptive_max_pool3d", 0, floating<0>},
    {"aten::multi_margin_loss", 1, class_targets},
    {"aten::multilabel_margin_loss_forward", 1, class_targets},
    {"aten::nll_loss_forward", 1, class_indices},
    {"aten::nll_loss2d_forward", 1, class_indices},
    {"aten::mse_loss", 1, floating_difference},
    {"aten::huber_loss", 1, floating_difference},
    {"aten::smooth_l1_loss", 1, floating_difference},
    {"aten::_embedding_bag", 6, sample_weights},
    {"aten::_embedding_bag_forward_only", 6, sample_weights},
    {"aten::segment_reduce", 2, segment_lengths},
    {"aten::logit", 0, floating_result},
    {"aten::ldexp.Tensor", 0, floating_result},
    {"aten::var.correction", 0, no_integers},
    {"aten::std.correction", 0, no_integers},
    {"aten::var_mean.correction", 0, no_integers},
    {"aten::std_mean.correction", 0, no_integers},
};

}  // namespace

void check_arguments(const OperatorPlan &plan, const c10::IValue *values) {
    constexpr int kMost = 7;
    for (const Check &check : kChecks) {
        if (std::strcmp(plan.name.c_str(), check.name) != 0) continue;
        const at::Tensor *operands[kMost] = {};
        for (int i = 0; i <= check.needed; i++) operands[i] = tensor_of(argument_of(plan, values, i));
        if (operands[0] && operands[check.needed]) check.check(plan, operands);
    }
}

}  // namespace torch_tpu
