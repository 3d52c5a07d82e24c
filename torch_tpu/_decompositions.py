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
