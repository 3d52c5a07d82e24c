// The strides of results where the CPU's kernels and PyTorch's meta kernels differ.
#include <ATen/Context.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "torch/boxed_frame.h"

namespace torch_tpu {

namespace {

// Results that the CPU's kernels lay out as these arguments suggest and the meta kernels do not.
struct Layout {
    const char *name;
    int first, second;  // arguments; -1: none
    enum { Suggested, Contiguous } rule;
};

constexpr Layout kLayouts[] = {
    {"aten::convolution", 0, 1, Layout::Suggested},
    {"aten::convolution_overrideable", 0, 1, Layout::Suggested},
    {"aten::convolution_backward", 1, 2, Layout::Suggested},
    {"aten::convolution_backward_overrideable", 1, 2, Layout::Suggested},
    {"aten::reflection_pad2d", 0, -1, Layout::Suggested},
    {"aten::reflection_pad2d_backward", 1, -1, Layout::Suggested},
    {"aten::replication_pad2d", 0, -1, Layout::Suggested},
    {"aten::replication_pad2d_backward", 1, -1, Layout::Suggested},
    {"aten::pixel_shuffle", 0, -1, Layout::Suggested},
    {"aten::pixel_unshuffle", 0, -1, Layout::Suggested},
    {"aten::channel_shuffle", 0, -1, Layout::Suggested},
    {"aten::native_channel_shuffle", 0, -1, Layout::Suggested},
    {"aten::native_group_norm_backward", 1, -1, Layout::Suggested},
    {"aten::native_batch_norm", 0, -1, Layout::Suggested},
    {"aten::_native_batch_norm_legit", 0, -1, Layout::Suggested},
    {"aten::_native_batch_norm_legit.no_stats", 0, -1, Layout::Suggested},
    {"aten::_native_batch_norm_legit_functional", 0, -1, Layout::Suggested},
    {"aten::_native_batch_norm_legit_no_training", 0, -1, Layout::Suggested},
    {"aten::_batch_norm_with_update", 0, -1, Layout::Suggested},
    {"aten::_batch_norm_no_update", 0, -1, Layout::Suggested},
    {"aten::native_batch_norm_backward", 1, -1, Layout::Suggested},
    {"aten::roll", 0, -1, Layout::Suggested},
    {"aten::max_unpool2d", 0, -1, Layout::Suggested},
    {"aten::glu_backward", 1, -1, Layout::Contiguous},
};

const Layout *layout_of(const std::string &name) {
    for (const Layout &layout : kLayouts)
        if (name == layout.name) return &layout;
    return nullptr;
}

// ---- elementwise operators whose meta kernels are Python's, which order dimensions in their own way ----

bool is_iterated(const OperatorPlan &plan) {
    if (plan.structured) return false;
    return plan.name == "aten::floor_divide" || plan.name == "aten::native_dropout_backward" ||
           plan.name == "aten::ldexp.Tensor" || (plan.row && plan.row->meta == META_ELEMENTWISE);
}

// As TensorIterator, which the CPU's kernels use, lays the result out.
at::Tensor iterated(const OperatorPlan &plan, const c10::IValue *values, const at::Tensor &inferred) {
    at::TensorIteratorConfig config;
    config.check_all_same_dtype(false).declare_static_dtype_and_device(inferred.scalar_type(), at::kMeta);
    config.add_owned_output(at::Tensor());
    int operands = 0;
    for (int i = 0; i < plan.stack_size; i++) {
        if (!values[i].isTensor() || plan.is_out[i]) continue;
        at::Tensor meta = tensor_to_meta(values[i].toTensor());
        if (operands++ && plan.name == "aten::ldexp.Tensor")  // whose powers are a tensor of their own
            meta = at::empty_like(meta, at::MemoryFormat::Contiguous);
        config.add_owned_const_input(meta);
    }
    if (!operands) return inferred;
    const at::Tensor result = config.build().output();
    return result.sizes() == inferred.sizes() ? result : inferred;
}

// ---- Fourier transforms: with MKL the CPU's result has the dimensions that are not transformed first, by falling
// strides of the operand, and then the transformed ones in the order of the calls to MKL. (PyTorch's meta kernels take
// a meta tensor for one of CUDA.) ----

using Sizes = std::vector<int64_t>;

Sizes contiguous_in_order(const Sizes &sizes, const Sizes &order) {
    Sizes strides(sizes.size());
    int64_t next = 1;
    for (auto d = order.rbegin(); d != order.rend(); ++d) {
        strides[*d] = next;
        next *= std::max<int64_t>(sizes[*d], 1);
    }
    return strides;
}

void sort_by_stride(Sizes::iterator first, Sizes::iterator last, const Sizes &strides) {
    std::sort(first, last, [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
}

// transformed: the last dimension stays the last where `last_is_halved`.
Sizes transform_strides(const Sizes &strides, const Sizes &sizes, Sizes transformed, bool last_is_halved) {
    sort_by_stride(transformed.begin(), transformed.end() - last_is_halved, strides);
    Sizes order;
    for (int64_t d = 0; d < static_cast<int64_t>(sizes.size()); d++)
        if (std::find(transformed.begin(), transformed.end(), d) == transformed.end()) order.push_back(d);
    sort_by_stride(order.begin(), order.end(), strides);
    order.insert(order.end(), transformed.begin(), transformed.end());
    return contiguous_in_order(sizes, order);
}

at::Tensor transform_laid_out(const c10::IValue *values, const std::string &name, const at::Tensor &inferred) {
    const at::Tensor &operand = values[0].toTensor();
    Sizes dims = values[1].toIntVector(), strides = operand.strides().vec();
    if (dims.empty() || !at::hasMKL()) return inferred;
    for (int64_t &d : dims) d = d < 0 ? d + operand.dim() : d;
    const bool to_real = name == "aten::_fft_c2r", from_real = name == "aten::_fft_r2c";
    if (to_real && dims.size() > 1) {  // all but the last are transformed on their own first
        strides = transform_strides(strides, operand.sizes().vec(), {dims.begin(), dims.end() - 1}, false);
        dims = {dims.back()};
    }
    const Sizes sizes = inferred.sizes().vec();
    return at::empty_strided(sizes, transform_strides(strides, sizes, dims, to_real || from_real), inferred.options());
}

// The CPU keeps no statistics of a batch that were not computed: in evaluation these results are empty.
bool is_unused_statistic(const std::string &name, const c10::IValue *values, int k) {
    if (k < 1 || k > 2) return false;
    if (name == "aten::_native_batch_norm_legit_no_training" || name == "aten::_batch_norm_no_update") return true;
    const bool has_training = name == "aten::native_batch_norm" || name == "aten::_native_batch_norm_legit" ||
                              name == "aten::_native_batch_norm_legit_functional";
    return has_training && !values[5].toBool();
}

}  // namespace

at::Tensor Frame::laid_out(const at::Tensor &inferred, int k, bool is_out) const {
    if (!inferred.defined()) return inferred;
    // Eigenvectors lie column by column, as LAPACK gives them.
    if (k == 1 && plan.name == "aten::linalg_eig")
        return at::empty_like(inferred.mT(), at::MemoryFormat::Contiguous).mT();
    if (!is_out && is_unused_statistic(plan.name, values, k)) return inferred.new_empty({0});
    // Without a batch there is one loss, as a number; the meta kernel says a vector.
    if (k == 0 && plan.name == "aten::multilabel_margin_loss_forward" && values[0].toTensor().dim() < 2)
        return inferred.new_empty({});
    if (inferred.dim() > 1 && is_iterated(plan)) return iterated(plan, values, inferred);
    if (plan.name.compare(0, 11, "aten::_fft_") == 0) return transform_laid_out(values, plan.name, inferred);
    const Layout *layout = layout_of(plan.name);
    if (!layout || inferred.dim() < 4) return inferred;
    if (layout->rule == Layout::Contiguous) return at::empty_like(inferred, at::MemoryFormat::Contiguous);
    const bool convolution = layout->second >= 0;
    if (convolution ? inferred.scalar_type() == at::kDouble : k > 0) return inferred;
    const at::MemoryFormat wanted =
        inferred.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
    for (int i : {layout->first, layout->second})
        if (i >= 0 && values[i].isTensor() && values[i].toTensor().suggest_memory_format() == wanted)
            return at::empty_like(inferred, wanted);
    return convolution ? inferred : at::empty_like(inferred, at::MemoryFormat::Contiguous);
}

}  // namespace torch_tpu
