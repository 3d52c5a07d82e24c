"""Autocast to bfloat16, and activation checkpointing."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, ON_CPU, same, up
from torch import nn
from torch.utils.checkpoint import checkpoint


def test_autocast_dtypes():
    x, w = up(torch.rand(4, 4)), up(torch.rand(4, 4))
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert torch.is_autocast_enabled(DEVICE) and torch.get_autocast_dtype(DEVICE) == torch.bfloat16
        assert (x @ w).dtype == F.linear(x, w).dtype == torch.bmm(x[None], w[None]).dtype == torch.bfloat16
        assert F.conv2d(x.view(1, 1, 4, 4), w.view(1, 1, 4, 4)).dtype == torch.bfloat16
        assert (
            ON_CPU
            or F.softmax(x.bfloat16(), 0).dtype == F.cross_entropy(x.bfloat16(), w.softmax(0)).dtype == torch.float32
        )
        assert (x + w).dtype == torch.float32
        with torch.autocast(DEVICE, enabled=False):
            assert (x @ w).dtype == torch.float32
    assert not torch.is_autocast_enabled(DEVICE)
    same((x @ w), x.cpu() @ w.cpu())


def test_autocast_training():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), torch.rand(6, 8)
    results = []
    for device in ("cpu", DEVICE):
        model.to(device).zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(x.to(device)).square().mean()
        loss.backward()
        results.append([loss.detach().float(), *[p.grad.clone() for p in model.parameters()]])
    same(results[1], results[0], rtol=5e-2, atol=5e-3)


def test_custom_function_under_autocast():
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=DEVICE, cast_inputs=torch.float32)
        def forward(ctx, a):
            assert a.dtype == torch.float32
            return a * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type=DEVICE)
        def backward(ctx, g):
            return g * 2

    x = up(torch.ones(2)).requires_grad_()
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        Product.apply(x.bfloat16()).sum().backward()
    same(x.grad, torch.full((2,), 2.0))


@pytest.mark.skipif(ON_CPU, reason="names of the device")
def test_supported_dtypes():
    assert torch.bfloat16 in torch.get_device_module(DEVICE).get_amp_supported_dtype()
    assert torch.amp.is_autocast_available(DEVICE)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_with_dropout(reentrant):
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh(), nn.Dropout(0.5)).to(DEVICE)
    x = up(torch.rand(16, 8)).requires_grad_()
    results = []
    for wrapped in (False, True):
        torch.manual_seed(3)
        x.grad = None
        model.zero_grad()
        y = checkpoint(model, x, use_reentrant=reentrant) if wrapped else model(x)
        y.square().sum().backward()
        results.append([y.detach().cpu(), x.grad.cpu(), model[0].weight.grad.cpu()])
    for plain, kept in zip(*results, strict=True):
        torch.testing.assert_close(kept, plain)


def test_checkpoint_saves_and_restores_state_around_other_draws():
    torch.manual_seed(3)
    x = torch.ones(64, device=DEVICE, requires_grad=True)
    y = checkpoint(lambda t: F.dropout(t, 0.5) * t, x, use_reentrant=False)
    torch.rand(100, device=DEVICE)
    y.sum().backward()
    assert torch.equal(x.grad, 2 * y.detach())


def test_checkpoint_under_autocast():
    model = nn.Linear(4, 4).to(DEVICE)
    seen = []

    def block(t):
        out = model(t)
        seen.append(out.dtype)
        return out

    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        y = checkpoint(block, up(torch.rand(2, 4)).requires_grad_(), use_reentrant=False)
    y.float().sum().backward()
    assert set(seen) == {torch.bfloat16}
