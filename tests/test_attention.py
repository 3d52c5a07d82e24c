"""Attention as one operator, which programs for a TPU keep whole, against PyTorch's on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, ON_CPU

OPERATOR = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
BATCH, HEADS, LENGTH, SOURCE, WIDTH = 2, 4, 6, 10, 8


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def masked(*shape):
    """A float mask whose first row has no key."""
    mask = random(*shape, seed=5)
    mask[random(*shape, seed=6) > 0.5] = float("-inf")
    mask[..., 0, :] = float("-inf")
    return mask


BIASES = {
    "none": None,
    "bool": random(LENGTH, SOURCE, seed=4) > 0,
    "matrix": masked(LENGTH, SOURCE),
    "heads": masked(HEADS, LENGTH, SOURCE),
    "batch": masked(BATCH, 1, LENGTH, SOURCE),
    "whole": masked(BATCH, HEADS, LENGTH, SOURCE),
}


@pytest.mark.skipif(ON_CPU, reason="an operator that only accelerators have")
@pytest.mark.parametrize("kv_heads", (4, 2, 1))
@pytest.mark.parametrize("bias", [*BIASES, "causal"])
def test_forward_and_backward(bias, kv_heads):
    causal, mask = bias == "causal", BIASES.get(bias)
    leaves = [
        random(BATCH, HEADS, LENGTH, WIDTH, seed=1),
        random(BATCH, kv_heads, SOURCE, WIDTH, seed=2),
        random(BATCH, kv_heads, SOURCE, WIDTH, seed=3),
    ]
    gradient = random(BATCH, HEADS, LENGTH, WIDTH, seed=7)
    with_bias = mask is not None and mask.is_floating_point()
    host = [t.clone().requires_grad_() for t in (*leaves, *([mask] if with_bias else []))]
    want = F.scaled_dot_product_attention(
        *host[:3], attn_mask=host[3] if with_bias else mask, is_causal=causal, scale=0.3, enable_gqa=True
    )
    wanted = torch.autograd.grad(want, host, gradient)

    device = [t.to(DEVICE).requires_grad_() for t in (*leaves, *([mask] if with_bias else []))]
    on_device = device[3] if with_bias else None if mask is None else mask.to(DEVICE)
    out, total, *_ = OPERATOR(*device[:3], on_device, 0.0, causal, scale=0.3)
    torch.testing.assert_close(out.detach().cpu(), want.detach(), rtol=1e-5, atol=1e-5)

    scores = leaves[0] @ leaves[1].repeat_interleave(HEADS // kv_heads, 1).mT * 0.3
    if causal:
        scores = scores.masked_fill(torch.ones(LENGTH, SOURCE).triu(1) > 0, float("-inf"))
    if mask is not None:
        scores = scores + mask if with_bias else scores.masked_fill(~mask, float("-inf"))
    torch.testing.assert_close(total.detach().cpu(), scores.logsumexp(-1), rtol=1e-5, atol=1e-5)

    for got, right in zip(torch.autograd.grad(out, device, gradient.to(DEVICE)), wanted, strict=True):
        torch.testing.assert_close(got.cpu(), right, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(ON_CPU, reason="an operator that only accelerators have")
def test_a_bias_of_too_many_dimensions():
    q, bias = torch.ones(1, 2, 3, 4, device=DEVICE), torch.zeros(1, 1, 1, 3, 3, device=DEVICE)
    with pytest.raises(RuntimeError):
        OPERATOR(q, q, q, bias)
    torch.testing.assert_close(OPERATOR(q, q, q, bias[0])[0].cpu(), torch.ones(1, 2, 3, 4))


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
def test_softmax_of_rows_without_a_key(dtype):
    x = random(6, 5, seed=8)
    x[0] = x[1, 2:] = x[2, 0] = float("-inf")
    x[2, 1] = x[3, 0] = float("nan")
    x[4, 1] = float("inf")
    x[5] = torch.finfo(torch.float32).min
    x = x.to(dtype)
    want = torch.ops.aten._safe_softmax(x, -1)
    got = torch.ops.aten._safe_softmax(x.to(DEVICE), -1).cpu()
    torch.testing.assert_close(got, want, equal_nan=True)
    assert not want[0].any()
