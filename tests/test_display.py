"""Printing, conversion to Python values, assert_close."""

import math
import re

import pytest
import torch
from helpers import DEVICE, ON_CPU, up

TENSORS = [
    torch.arange(12.0).view(3, 4).t()[1:], torch.tensor([True, False]), torch.tensor([1.5, -2]).bfloat16(), torch.empty(0, 3), torch.tensor(2**40),
    torch.tensor([math.nan, math.inf, 1e-9]), torch.tensor([[1, 255]], dtype=torch.uint8), torch.arange(3000), torch.tensor([1 + 2j, -1j]), torch.tensor([1.0, 2.0]).double(),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(TENSORS)))
def test_repr(i):
    def clean(text):
        return re.sub(r"\s+", "", re.sub(r",?\s*device='[^']*'", "", text))

    shown = repr(up(TENSORS[i]))
    assert clean(shown) == clean(repr(TENSORS[i]))
    assert ON_CPU or f"device='{DEVICE}:0'" in shown
    assert clean(str(up(TENSORS[i]))) == clean(str(TENSORS[i]))


def test_repr_with_gradient():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    assert "requires_grad=True" in repr(x) and "grad_fn=<MulBackward0>" in repr(x * 2)
    assert "Parameter" in repr(torch.nn.Parameter(up(torch.ones(1))))


def test_python_values():
    for t in TENSORS[:-2]:
        got, want = up(t).tolist(), t.tolist()
        assert got == want or str(got) == str(want)
    assert len(up(torch.ones(3, 2))) == 3 and [r.tolist() for r in up(torch.ones(2, 1))] == [[1], [1]]
    assert 2 in up(torch.arange(3)) and hash(up(torch.ones(1))) is not None
    with pytest.raises(RuntimeError):
        bool(up(torch.ones(2)))


def test_assert_close():
    x = up(torch.rand(3, 2))
    torch.testing.assert_close(x, x.clone())
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(x, x + 1)
    if not ON_CPU:
        with pytest.raises(AssertionError, match="device"):
            torch.testing.assert_close(x, x.cpu())
        torch.testing.assert_close(x, x.cpu(), check_device=False)
    assert torch.allclose(x, x + 1e-9) and torch.equal(x, x.clone()) and not torch.equal(x, x + 1)
