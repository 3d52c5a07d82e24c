"""Attention of programs for a TPU: JAX's flash attention kernel in place of the matrix products, where it applies.

The kernel (jax.experimental.pallas.ops.tpu.flash_attention) keeps no scores in memory. Its softmax statistics become
the log-sum-exp that PyTorch's operator gives, and come back from it in the backward.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_tpu import _frames, _target

if TYPE_CHECKING:
    from torch_tpu import _jax

_NAME = "aten::_scaled_dot_product_fused_attention_overrideable"
OPERATORS = (_NAME, _NAME + "_backward")
_ALIGNMENT = 128  # of lengths: the kernel's smallest block
_BLOCKS = (512, 256, 128)


def function_for(
    name: str, bound: Sequence[Any], statistics: bool = True
) -> tuple[_jax.Lowered, list[torch.Tensor]] | None:
    """The kernel for a call of one of OPERATORS (arguments in the schema's order) and its operands, or None where the
    matrix products serve better: no TPU, no JAX, a mask, dropout, or a length that is no multiple of 128.

    statistics: whether the log-sum-exp is of use; without it, the forward's function gives the attention alone.
    """
    if name == _NAME:
        q, k, v, bias, dropout, causal, _, scale = bound
        operands = [q, k, v]
    else:
        gradient, q, k, v, bias, _, out, log_sum_exp, _, _, _, _, dropout, causal, _, _, scale = bound
        operands = [gradient, q, k, v, out, log_sum_exp]
    if bias is not None or dropout > 0 or not _fits(q, k, v):
        return None
    target = _target.current()
    if target.platform != "tpu" or not _has_jax():
        return None
    scale = float(scale) if scale is not None else 1 / math.sqrt(q.size(-1))
    types = tuple((str(t.dtype).removeprefix("torch."), tuple(int(n) for n in t.size())) for t in operands)
    return _lower(name == _NAME, types, bool(causal), scale, target, statistics), operands


def _fits(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
    alike = q.dtype == k.dtype == v.dtype and q.dtype in (torch.bfloat16, torch.float32) and q.dim() == 4
    return (
        alike
        and q.size(-1) == v.size(-1)
        and k.size(1) > 0
        and q.size(1) % k.size(1) == 0
        and min(q.size(0), q.size(2), k.size(2)) > 0
        and q.size(2) % _ALIGNMENT == 0
        and k.size(2) % _ALIGNMENT == 0
    )


@functools.cache
def _has_jax() -> bool:
    if importlib.util.find_spec("jax") is None:
        return False
    try:
        from jax.experimental.pallas.ops.tpu import flash_attention

        from torch_tpu import _jax

        _jax.check_version()
        known = all(hasattr(flash_attention, f) for f in ("_flash_attention", "_flash_attention_bwd", "BlockSizes"))
    except (ImportError, RuntimeError) as e:
        _frames.warn(f"attention is computed by matrix products, since JAX's kernel cannot be used: {e}")
        return False
    if not known:
        _frames.warn("attention is computed by matrix products: this JAX has another flash attention")
    return known


@functools.lru_cache(maxsize=256)
def _lower(
    forward: bool, types: tuple[Any, ...], causal: bool, scale: float, target: _target.Target, statistics: bool
) -> _jax.Lowered:
    from torch_tpu import _jax

    q, k = types[:2] if forward else types[1:3]
    make = functools.partial(_forward, statistics=statistics) if forward else _backward
    function = make(causal, scale, _block_sizes(q[1][2], k[1][2]), q[1][1] // k[1][1])
    return _jax.lower(
        "attention" if forward else "attention_backward", function, [(d, list(s)) for d, s in types], target
    )


def _block_sizes(length: int, source: int) -> Any:
    from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes

    q = next(n for n in _BLOCKS if length % n == 0)
    k = next(n for n in _BLOCKS if source % n == 0)
    return BlockSizes(
        block_q=q, block_k_major=k, block_k=k, block_b=1, block_q_major_dkv=q, block_k_major_dkv=k, block_k_dkv=k,
        block_q_dkv=q, block_k_major_dq=k, block_k_dq=k, block_q_dq=q,
    )  # fmt: skip


def _forward(causal: bool, scale: float, blocks: Any, group: int, statistics: bool = True) -> Callable[..., list[Any]]:
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu import flash_attention

    def forward(q: Any, k: Any, v: Any) -> list[Any]:
        k, v = (jnp.repeat(x, group, axis=1) if group > 1 else x for x in (k, v))
        results = flash_attention._flash_attention(q, k, v, None, None, statistics, causal, scale, blocks, False)
        if not statistics:
            return [results]
        out, total, largest = results
        return [out, largest + jnp.log(total)]

    return forward


def _backward(causal: bool, scale: float, blocks: Any, group: int) -> Callable[..., list[Any]]:
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu import flash_attention

    def backward(gradient: Any, q: Any, k: Any, v: Any, out: Any, log_sum_exp: Any) -> list[Any]:
        repeated = (jnp.repeat(x, group, axis=1) if group > 1 else x for x in (k, v))
        # exp(s - m) / l is the softmax for m, the largest score, and l, the sum: also for the log-sum-exp and 1.
        residuals = (q, *repeated, None, None, out, jnp.ones_like(log_sum_exp), log_sum_exp)
        dq, dk, dv, _, _ = flash_attention._flash_attention_bwd(
            False, causal, scale, blocks, False, residuals, gradient
        )
        if group > 1:
            shape = (k.shape[0], k.shape[1], group, *k.shape[2:])
            dk, dv = (x.reshape(shape).astype(jnp.float32).sum(2).astype(x.dtype) for x in (dk, dv))
        return [dq, dk, dv]

    return backward
