"""Decompositions of our own, for operators where PyTorch has none or one that does not suit a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

table: dict[torch._ops.OpOverload, Callable[..., Any]] = {}


def register(*ops: torch._ops.OpOverload) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(f: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:
            table[op] = f
        return f

    return add


@register(torch.ops.aten._embedding_bag_backward.default)
def embedding_bag_backward(
    grad: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    offset2bag: torch.Tensor,
    bag_size: torch.Tensor,
    maximum_indices: torch.Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: torch.Tensor | None,
    padding_idx: int = -1,
) -> Any:
    if sparse:
        return NotImplemented
    if offset2bag.numel() == 0 and indices.numel() != 0:  # the forward may leave it out
        positions = torch.arange(indices.numel(), device=indices.device, dtype=offsets.dtype)
        offset2bag = torch.searchsorted(offsets, positions, right=True).to(indices.dtype) - 1
    return torch.ops.aten._embedding_bag_dense_backward(
        grad,
        indices,
        offset2bag,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )


# ---- what nn.MultiheadAttention and nn.TransformerEncoderLayer call in inference. Their formulas are those of the
# modules (A. Vaswani et al., Attention Is All You Need, 2017). A mask says what not to attend to; as on the CPU, one of
# numbers is taken as whether they differ from zero. ----


def split_heads(x: torch.Tensor, num_heads: int) -> torch.Tensor:
    batch, length, width = x.shape
    return x.reshape(batch, length, num_heads, width // num_heads).transpose(1, 2)


@register(torch.ops.aten._transform_bias_rescale_qkv.default)
def transform_bias_rescale_qkv(qkv: torch.Tensor, qkv_bias: torch.Tensor, num_heads: int) -> tuple[torch.Tensor, ...]:
    q, k, v = (split_heads(x, num_heads) for x in (qkv + qkv_bias).chunk(3, dim=-1))
    return (q / q.shape[-1] ** 0.5).contiguous(), k.contiguous(), v.contiguous()


@register(torch.ops.aten._native_multi_head_attention.default)
def native_multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    projections = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (split_heads(torch.nn.functional.linear(x, w, b), num_head) for x, w, b in projections)
    scores = (q / q.shape[-1] ** 0.5) @ k.transpose(-2, -1)
    if mask is None:
        weights = torch.softmax(scores, -1)
    else:
        weights = torch.ops.aten._masked_softmax(scores, mask.to(torch.bool), 3, mask_type)
    joined = (weights @ v).transpose(1, 2).reshape(query.shape[0], query.shape[1], embed_dim)
    out = torch.nn.functional.linear(joined, proj_weight, proj_bias)
    if not need_weights:
        return out, None
    return out, weights.mean(1) if average_attn_weights else weights


@register(torch.ops.aten._transformer_encoder_layer_fwd.default)
def transformer_encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    functional = torch.nn.functional

    def attend(x: torch.Tensor) -> torch.Tensor:
        projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return native_multi_head_attention(
            x, x, x, embed_dim, num_heads, *projections, mask, need_weights=False, mask_type=mask_type
        )[0]

    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (embed_dim,), weight, bias, eps)

    first, second = (norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2)
    if norm_first:
        x = src + attend(norm(src, *first))
        return x + feed_forward(norm(x, *second))
    x = norm(src + attend(src), *first)
    return norm(x + feed_forward(x), *second)
