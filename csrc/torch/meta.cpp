// Metadata of operators that only accelerators receive and for which PyTorch has no meta kernel.
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "torch/runtime.h"

namespace torch_tpu {

namespace {

// The workspace keeps the reset, input and new gates, the state, and the hidden part of the new gate.
std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor & /*input_gates*/, const at::Tensor & /*hidden_gates*/,
                                            const at::Tensor &hx, const std::optional<at::Tensor> & /*input_bias*/,
                                            const std::optional<at::Tensor> & /*hidden_bias*/) {
    return {at::empty_like(hx, at::MemoryFormat::Contiguous), hx.new_empty({hx.size(0), hx.size(1) * 5})};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor &grad_hy, const at::Tensor & /*workspace*/, bool has_bias) {
    const int64_t gates = grad_hy.size(1) * 3;
    auto bias = [&] { return has_bias ? grad_hy.new_empty({gates}) : at::Tensor(); };
    return {grad_hy.new_empty({grad_hy.size(0), gates}), grad_hy.new_empty({grad_hy.size(0), gates}),
            at::empty_like(grad_hy, at::MemoryFormat::Contiguous), bias(), bias()};
}

// ---- the inference forms of attention modules ----

std::tuple<at::Tensor, at::Tensor> native_multi_head_attention(
    const at::Tensor &query, const at::Tensor &key, const at::Tensor & /*value*/, int64_t embed_dim, int64_t num_head,
    const at::Tensor & /*qkv_weight*/, const at::Tensor & /*qkv_bias*/, const at::Tensor & /*proj_weight*/,
    const at::Tensor & /*proj_bias*/, const std::optional<at::Tensor> & /*mask*/, bool need_weights,
    bool average_attn_weights, std::optional<int64_t> /*mask_type*/) {
    const int64_t batch = query.size(0), targets = query.size(1), sources = key.size(1);
    at::Tensor weights;
    if (need_weights)
        weights = average_attn_weights ? query.new_empty({batch, targets, sources})
                                       : query.new_empty({batch, num_head, targets, sources});
    return {query.new_empty({batch, targets, embed_dim}), weights};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> transform_bias_rescale_qkv(const at::Tensor &qkv,
                                                                          const at::Tensor & /*qkv_bias*/,
                                                                          int64_t num_heads) {
    TORCH_CHECK(qkv.dim() == 3 && num_heads > 0 && qkv.size(2) % (3 * num_heads) == 0,
                "_transform_bias_rescale_qkv: qkv must be (batch, length, 3 * embed_dim) with embed_dim divisible by ",
                num_heads, " heads, got ", qkv.sizes());
    auto part = [&] { return qkv.new_empty({qkv.size(0), num_heads, qkv.size(1), qkv.size(2) / (3 * num_heads)}); };
    return {part(), part(), part()};
}

// ---- batch normalisation in parts, for statistics gathered over devices ----

// Statistics are in the type that the CPU would sum in: float32 for halves.
at::Tensor channel_statistic(const at::Tensor &input) {
    const at::ScalarType type = input.scalar_type();
    return input.new_empty({input.size(1)}, input.options().dtype(at::isReducedFloatingType(type) ? at::kFloat : type));
}

std::tuple<at::Tensor, at::Tensor> batch_norm_stats(const at::Tensor &input, double /*eps*/) {
    return {channel_statistic(input), channel_statistic(input)};
}

std::tuple<at::Tensor, at::Tensor> batch_norm_update_stats(const at::Tensor &input,
                                                           const std::optional<at::Tensor> & /*running_mean*/,
                                                           const std::optional<at::Tensor> & /*running_var*/,
                                                           double /*momentum*/) {
    return {channel_statistic(input), channel_statistic(input)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward_reduce(
    const at::Tensor & /*grad_out*/, const at::Tensor &input, const at::Tensor &mean, const at::Tensor & /*invstd*/,
    const std::optional<at::Tensor> &weight, bool input_g, bool weight_g, bool bias_g) {
    const at::Tensor &like = weight && weight->defined() ? *weight : mean;
    auto parameter = [&](bool wanted) { return wanted ? like.new_empty({input.size(1)}) : at::Tensor(); };
    auto sum = [&] { return input_g ? at::empty_like(mean) : at::Tensor(); };
    return {sum(), sum(), parameter(weight_g), parameter(bias_g)};
}

template <typename Count>
std::tuple<at::Tensor, at::Tensor> batch_norm_gather_stats(const at::Tensor &input, const at::Tensor &mean,
                                                           const at::Tensor & /*invstd*/,
                                                           const std::optional<at::Tensor> & /*running_mean*/,
                                                           const std::optional<at::Tensor> & /*running_var*/,
                                                           double /*momentum*/, double /*eps*/, Count /*count*/) {
    return {mean.new_empty({input.size(1)}), mean.new_empty({input.size(1)})};
}

// ---- convolutions under the names of single kernels ----

template <bool depthwise>
at::Tensor convolution_forward(const at::Tensor &self, const at::Tensor &weight, c10::SymIntArrayRef /*kernel_size*/,
                               const std::optional<at::Tensor> &bias, c10::SymIntArrayRef stride,
                               c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation) {
    const c10::SymInt none[3] = {0, 0, 0};
    return at::convolution_symint(self, weight, bias, stride, padding, dilation, false, {none, stride.size()},
                                  depthwise ? self.sym_size(1) : c10::SymInt(1));
}

at::Tensor convolution_undilated(const at::Tensor &self, const at::Tensor &weight, c10::SymIntArrayRef kernel_size,
                                 const std::optional<at::Tensor> &bias, c10::SymIntArrayRef stride,
                                 c10::SymIntArrayRef padding) {
    const c10::SymInt ones[3] = {1, 1, 1};
    return convolution_forward<false>(self, weight, kernel_size, bias, stride, padding, {ones, stride.size()});
}

at::Tensor convolution_transposed(const at::Tensor &self, const at::Tensor &weight, c10::SymIntArrayRef /*kernel_size*/,
                                  const std::optional<at::Tensor> &bias, c10::SymIntArrayRef stride,
                                  c10::SymIntArrayRef padding, c10::SymIntArrayRef output_padding,
                                  c10::SymIntArrayRef dilation) {
    return at::convolution_symint(self, weight, bias, stride, padding, dilation, true, output_padding, 1);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> slow_conv2d_backward(const at::Tensor & /*grad_output*/,
                                                                    const at::Tensor &self, const at::Tensor &weight,
                                                                    c10::SymIntArrayRef /*kernel_size*/,
                                                                    c10::SymIntArrayRef /*stride*/,
                                                                    c10::SymIntArrayRef /*padding*/,
                                                                    std::array<bool, 3> wanted) {
    return {wanted[0] ? at::empty_like(self) : at::Tensor(), wanted[1] ? at::empty_like(weight) : at::Tensor(),
            wanted[2] ? self.new_empty({weight.size(0)}) : at::Tensor()};
}

// ---- others ----

// LAPACK's matrices lie column by column.
std::tuple<at::Tensor, at::Tensor> geqrf(const at::Tensor &self) {
    at::Tensor factored = at::empty_like(self.mT(), at::MemoryFormat::Contiguous).mT();
    at::DimVector tau(self.sizes().begin(), self.sizes().end() - 2);
    tau.push_back(std::min(self.size(-2), self.size(-1)));
    return {factored, self.new_empty(tau)};
}

std::tuple<at::Tensor, at::Tensor> histogram_of_count(const at::Tensor &self, int64_t bins,
                                                      std::optional<at::ArrayRef<double>> /*range*/,
                                                      const std::optional<at::Tensor> & /*weight*/, bool /*density*/) {
    TORCH_CHECK(bins > 0, "torch.histogram(): bins must be > 0, but got ", bins, " for dimension 0");
    return {self.new_empty({bins}), self.new_empty({bins + 1})};
}

std::tuple<at::Tensor, at::Tensor> histogram_of_edges(const at::Tensor &self, const at::Tensor &bins,
                                                      const std::optional<at::Tensor> & /*weight*/, bool /*density*/) {
    TORCH_CHECK(bins.numel() > 1, "torch.histogram(): bins must be > 0, but got ", bins.numel() - 1,
                " for dimension 0");
    return {self.new_empty({bins.numel() - 1}), at::empty_like(bins, at::MemoryFormat::Contiguous)};
}

// States are blank, label, blank, ..., blank. How long the longest target is only the values tell: room for the
// longest that there can be.
std::tuple<at::Tensor, at::Tensor> ctc_loss_tensor(const at::Tensor &log_probs, const at::Tensor &targets,
                                                   const at::Tensor & /*input_lengths*/,
                                                   const at::Tensor & /*target_lengths*/, int64_t /*blank*/,
                                                   bool /*zero_infinity*/) {
    const int64_t batch = log_probs.size(1), longest = targets.size(-1);
    return {log_probs.new_empty({batch}), log_probs.new_empty({batch, log_probs.size(0), 2 * longest + 1})};
}

// ---- by the position of an argument ----

// The results are what the operator writes.
void nothing_new(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
    torch::jit::drop(*stack, op.schema().arguments().size());
}

enum class As { Contiguous, Same, Mask, Single };
struct Result {
    int argument;  // the result is like this one; -1: there is no more
    As as;
};

at::Tensor like(const at::Tensor &t, As as) {
    switch (as) {
        case As::Contiguous:
            return at::empty_like(t, at::MemoryFormat::Contiguous);
        case As::Mask:
            return at::empty_like(t, t.options().dtype(at::kBool));
        case As::Single:
            return t.new_empty({1});
        case As::Same:
            break;
    }
    return at::empty_like(t);
}

class LikeArguments final : public c10::OperatorKernel {
   public:
    explicit LikeArguments(const std::array<Result, 3> &results) : results_(results) {}
    void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack) {
        const size_t n = op.schema().arguments().size();
        torch::jit::Stack results;
        for (const Result &r : results_)
            if (r.argument >= 0) results.emplace_back(like(torch::jit::peek(*stack, r.argument, n).toTensor(), r.as));
        torch::jit::drop(*stack, n);
        for (c10::IValue &result : results) stack->push_back(std::move(result));
    }

   private:
    std::array<Result, 3> results_;
};

constexpr Result kNone = {-1, As::Same};
struct Rule {
    const char *name;
    std::array<Result, 3> results;
};

constexpr Rule kRules[] = {
    {"_sample_dirichlet", {{{0, As::Contiguous}, kNone, kNone}}},
    {"_standard_gamma_grad", {{{0, As::Same}, kNone, kNone}}},
    {"_dirichlet_grad", {{{0, As::Contiguous}, kNone, kNone}}},
    {"binomial", {{{0, As::Contiguous}, kNone, kNone}}},
    {"_masked_softmax", {{{0, As::Contiguous}, kNone, kNone}}},
    {"_masked_softmax_backward", {{{0, As::Contiguous}, kNone, kNone}}},
    {"multi_margin_loss_backward", {{{1, As::Contiguous}, kNone, kNone}}},
    {"multilabel_margin_loss_backward", {{{1, As::Contiguous}, kNone, kNone}}},
    {"_add_relu.Scalar", {{{0, As::Same}, kNone, kNone}}},
    {"_logcumsumexp", {{{0, As::Contiguous}, kNone, kNone}}},
    {"glu_jvp", {{{0, As::Same}, kNone, kNone}}},
    {"glu_backward_jvp", {{{0, As::Same}, kNone, kNone}}},
    {"fractional_max_pool3d_backward", {{{1, As::Contiguous}, kNone, kNone}}},
    {"_ctc_loss_backward", {{{1, As::Contiguous}, kNone, kNone}}},
    {"_ctc_loss_backward.Tensor", {{{1, As::Contiguous}, kNone, kNone}}},
    {"batch_norm_elemt", {{{0, As::Same}, kNone, kNone}}},
    {"batch_norm_backward_elemt", {{{1, As::Same}, kNone, kNone}}},
    {"fake_quantize_per_tensor_affine_cachemask", {{{0, As::Same}, {0, As::Mask}, kNone}}},
    {"fake_quantize_per_channel_affine_cachemask", {{{0, As::Same}, {0, As::Mask}, kNone}}},
    {"_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", {{{0, As::Same}, {0, As::Mask}, kNone}}},
    {"_transformer_encoder_layer_fwd", {{{0, As::Same}, kNone, kNone}}},
    {"_fake_quantize_learnable_per_tensor_affine", {{{0, As::Same}, kNone, kNone}}},
    {"_fake_quantize_learnable_per_channel_affine", {{{0, As::Same}, kNone, kNone}}},
    {"_fake_quantize_learnable_per_tensor_affine_backward", {{{1, As::Same}, {2, As::Single}, {3, As::Single}}}},
    {"_fake_quantize_learnable_per_channel_affine_backward", {{{1, As::Same}, {2, As::Same}, {3, As::Same}}}},
};

constexpr const char *kWriters[] = {
    "_fused_sgd_",  "_fused_sgd_.tensor_lr",  "_fused_adagrad_", "_fused_adagrad_.tensor_lr",
    "_fused_adam_", "_fused_adam_.tensor_lr", "_fused_adamw_",   "_fused_adamw_.tensor_lr",
};

void register_convolutions(torch::Library &aten) {
    aten.impl("_conv_depthwise2d", convolution_forward<true>);
    aten.impl("conv_depthwise3d", convolution_forward<true>);
    aten.impl("slow_conv_dilated2d", convolution_forward<false>);
    aten.impl("slow_conv_dilated3d", convolution_forward<false>);
    aten.impl("_slow_conv2d_forward", convolution_undilated);
    aten.impl("slow_conv3d_forward", convolution_undilated);
    aten.impl("slow_conv_transpose3d", convolution_transposed);
    aten.impl("_slow_conv2d_backward.output_mask", slow_conv2d_backward);
}

}  // namespace

void register_meta() {
    static auto *aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
    aten->impl("_thnn_fused_gru_cell", gru_cell);
    aten->impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
    aten->impl("batch_norm_stats", batch_norm_stats);
    aten->impl("batch_norm_update_stats", batch_norm_update_stats);
    aten->impl("batch_norm_backward_reduce", batch_norm_backward_reduce);
    aten->impl("batch_norm_gather_stats", batch_norm_gather_stats<int64_t>);
    aten->impl("batch_norm_gather_stats_with_counts", batch_norm_gather_stats<const at::Tensor &>);
    aten->impl("_native_multi_head_attention", native_multi_head_attention);
    aten->impl("_transform_bias_rescale_qkv", transform_bias_rescale_qkv);
    aten->impl("geqrf", geqrf);
    aten->impl("histogram.bin_ct", histogram_of_count);
    aten->impl("histogram.bins_tensor", histogram_of_edges);
    aten->impl("_ctc_loss.Tensor", ctc_loss_tensor);
    register_convolutions(*aten);
    for (const char *name : kWriters) aten->impl(name, torch::CppFunction::makeFromBoxedFunction<&nothing_new>());
    for (const Rule &rule : kRules)
        aten->impl(rule.name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<LikeArguments>(rule.results)));
}

}  // namespace torch_tpu
