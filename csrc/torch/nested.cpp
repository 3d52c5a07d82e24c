// Nested tensors as far as nn.TransformerEncoder makes them of its own accord: in evaluation, a batch with a key
// padding mask is one, and the positions that were padded come out as zeros. Here the sequences stay where they were,
// in the padded tensor, and only their lengths are kept beside it: shapes, and with them programs, do not depend on a
// mask's values. Any other operator on such a tensor is an error that says so.
#include <ATen/NestedTensorImpl.h>
#include <ATen/ops/_nested_tensor_from_mask.h>
#include <ATen/ops/_nested_tensor_from_mask_left_aligned.h>
#include <ATen/ops/_transformer_encoder_layer_fwd.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "torch/runtime.h"

namespace torch_tpu {

namespace {

using at::native::NestedTensorImpl;

// A CPU tensor of t's sizes, for PyTorch's own checks and counts; the last dimension of three matters to neither.
at::Tensor host_stand_in(const at::Tensor &t) {
    std::vector<int64_t> sizes = t.sizes().vec();
    if (sizes.size() == 3) sizes[2] = 1;
    return at::zeros({}, t.options().device(at::kCPU)).expand(sizes);
}

bool left_aligned(const at::Tensor &t, const at::Tensor &mask) {
    return at::_nested_tensor_from_mask_left_aligned(host_stand_in(t), mask.cpu());
}

const NestedTensorImpl &implementation(const at::Tensor &t) {
    return *static_cast<const NestedTensorImpl *>(t.unsafeGetTensorImpl());
}

// The sequences' lengths, on the host.
at::Tensor lengths(const at::Tensor &nested) { return implementation(nested).get_nested_sizes().select(1, 0); }

// padded: contiguous [batch, longest, features], which only the result has.
at::Tensor nest(const at::Tensor &padded, const at::Tensor &lengths) {
    const int64_t batch = padded.size(0), longest = padded.size(1), features = padded.size(2);
    const auto whole = at::TensorOptions().dtype(at::kLong);
    auto pairs = [&](const at::Tensor &first, int64_t second) {
        return at::stack({first, at::full({batch}, second, whole)}, 1);
    };
    const at::Tensor offsets = at::arange(0, batch * longest * features, longest * features, whole);
    return at::detail::make_tensor<NestedTensorImpl>(padded.view({-1}), pairs(lengths, features),
                                                     pairs(at::full({batch}, features, whole), 1), offsets);
}

at::Tensor padded(const at::Tensor &nested) {
    const NestedTensorImpl &impl = implementation(nested);
    const int64_t batch = impl.get_nested_sizes().size(0), features = impl.get_nested_sizes()[0][1].item<int64_t>();
    return impl.get_unsafe_storage_as_tensor().view({batch, -1, features});
}

// [batch, longest], true where there is an element.
at::Tensor present(const at::Tensor &nested, const at::Tensor &padded) {
    const at::Tensor places = at::arange(padded.size(1), at::TensorOptions().dtype(at::kLong));
    return places.lt(lengths(nested).unsqueeze(1)).to(padded.device());
}

at::Tensor from_mask(const at::Tensor &t, const at::Tensor &mask, bool mask_check) {
    const at::Tensor host = at::_nested_tensor_from_mask(host_stand_in(t), mask.cpu(), mask_check);
    TORCH_CHECK_NOT_IMPLEMENTED(t.numel() > 0, "aten::_nested_tensor_from_mask: an empty batch of shape ", t.sizes(),
                                " is not supported on device tpu; pass enable_nested_tensor=False");
    return nest(t.clone(at::MemoryFormat::Contiguous), lengths(host));
}

at::Tensor encoder_layer(const at::Tensor &src, int64_t embed_dim, int64_t num_heads, const at::Tensor &qkv_weight,
                         const at::Tensor &qkv_bias, const at::Tensor &proj_weight, const at::Tensor &proj_bias,
                         bool use_gelu, bool norm_first, double eps, const at::Tensor &norm_weight_1,
                         const at::Tensor &norm_bias_1, const at::Tensor &norm_weight_2, const at::Tensor &norm_bias_2,
                         const at::Tensor &ffn_weight_1, const at::Tensor &ffn_bias_1, const at::Tensor &ffn_weight_2,
                         const at::Tensor &ffn_bias_2, const std::optional<at::Tensor> &mask,
                         std::optional<int64_t> /*mask_type*/) {
    TORCH_CHECK(!mask || !mask->defined(), "NestedTensor with mask is not supported right now");
    constexpr int64_t kKeyPadding = 1;
    const at::Tensor dense = padded(src);
    const at::Tensor result = at::_transformer_encoder_layer_fwd(
        dense, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps,
        norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2,
        present(src, dense).logical_not(), kKeyPadding);
    return nest(result.contiguous(), lengths(src));
}

at::Tensor to_padded(const at::Tensor &self, double padding, at::OptionalIntArrayRef output_size) {
    const at::Tensor dense = padded(self);
    const int64_t longest = lengths(self).max().item<int64_t>();
    TORCH_CHECK(longest > 0, "to_padded_tensor: at least one constituent tensor should have non-zero numel");
    at::Tensor result = at::where(present(self, dense).unsqueeze(-1), dense, at::Scalar(padding));
    if (!output_size) return result.narrow(1, 0, longest);
    TORCH_CHECK(output_size->size() == 3, "Length of output_size does not match NestedTensor dims. Broadcasting is ",
                "not supported.");
    const at::IntArrayRef wanted = *output_size;
    TORCH_CHECK(wanted[0] >= dense.size(0) && wanted[1] >= longest && wanted[2] >= dense.size(2),
                "Value in output_size is less than NestedTensor padded size. Truncation is not supported.");
    result = result.narrow(1, 0, std::min(wanted[1], dense.size(1)));
    if (result.sizes() == wanted) return result;
    return at::constant_pad_nd(
        result, {0, wanted[2] - result.size(2), 0, wanted[1] - result.size(1), 0, wanted[0] - result.size(0)}, padding);
}

}  // namespace

void register_nested(torch::Library &aten) {
    aten.impl("_nested_tensor_from_mask_left_aligned", &left_aligned);
    aten.impl("_nested_tensor_from_mask", &from_mask);
    static auto *nested =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::NestedTensorPrivateUse1, __FILE__, __LINE__);
    nested->impl("_transformer_encoder_layer_fwd", &encoder_layer);
    nested->impl("to_padded_tensor", &to_padded);
}

}  // namespace torch_tpu
