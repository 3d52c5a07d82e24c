"""Elementwise arithmetic and reductions: promotion, broadcasting, integers, NaN, numbers and 0-d tensors, empty tensors."""

import math
import operator

import pytest
import torch
from helpers import DEVICE, both, same, up

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
NUMBERS = [torch.bool, *INTEGERS, torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("left", NUMBERS, ids=str)
def test_promotion_of_pairs(left):
    a = torch.tensor([1, 0, 1]).to(left)
    for right in (torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float32):
        b = torch.tensor([1, 1, 0]).to(right)
        both(lambda s, t: s + t, a, b, note=f"{left} + {right}")
        both(lambda s, t: s * t[0], a, b, note=f"{left} * 0-d {right}")


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_python_numbers(dtype):
    x = torch.tensor([1, 0, 3]).to(dtype)
    for function in (
        lambda t: t * 2,
        lambda t: 3 - t.to(torch.int32),
        lambda t: t * 0.5,
        lambda t: t + True,
        lambda t: t / 2,
        lambda t: t > 0.5,
    ):
        both(function, x, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic(dtype):
    limits = torch.iinfo(dtype)
    a = torch.tensor([limits.max, limits.min, 7, limits.max // 3 + 1], dtype=dtype)
    b = torch.tensor([3, 5, 2, 7], dtype=dtype)
    signed = (
        []
        if dtype == torch.uint8
        else [lambda s, t: s % -3, lambda s, t: s // -t, lambda s, t: torch.div(s, -t, rounding_mode="trunc")]
    )
    for function in (
        operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, torch.fmod,
        lambda s, t: s // 3, lambda s, t: s % 3, lambda s, t: torch.div(s, t, rounding_mode="trunc"),
        lambda s, t: s & t, lambda s, t: s | t, lambda s, t: s ^ t, lambda s, t: ~s, lambda s, t: s << 1, lambda s, t: s >> 2,
        lambda s, t: s.sum(), lambda s, t: s.abs(), lambda s, t: -s, lambda s, t: torch.maximum(s, t), *signed,
    ):  # fmt: skip
        both(function, a, b)


def test_wide_integers_stay_exact():
    a = torch.tensor([2**53 + 1, -(2**62) + 3, 2**31, 50331653])
    for function in (
        lambda t: t + 1,
        lambda t: t % 29,
        lambda t: t // 7,
        lambda t: t.sum(),
        lambda t: t * 3,
        lambda t: t.max(),
        lambda t: t.cumsum(0),
        lambda t: t == t + 1,
    ):
        both(function, a)


def test_bool_arithmetic():
    m = torch.tensor([True, False, True])
    for function in (
        lambda t: t * 2, lambda t: t + t, lambda t: t * t, lambda t: t.sum(), lambda t: ~t, lambda t: t.any() & t.all(), lambda t: t ^ (t > 0),
        lambda t: t.float().mean(), lambda t: t.cumsum(0), lambda t: sum(t[i] for i in range(3)), lambda t: t.logical_not(), lambda t: t.prod(),
    ):  # fmt: skip
        both(function, m)
    with pytest.raises(RuntimeError):
        up(m) - up(m)


def test_broadcasting():
    a, b, c = torch.rand(2, 1, 4), torch.rand(3, 1), torch.rand(4)
    both(lambda x, y, z: x + y * z, a, b, c)
    both(lambda x, y, z: torch.where(x > y, z, x), a, b, c)
    both(lambda x, y, z: torch.addcmul(x, y, z), a, b, c)
    both(lambda x, y, z: x.new_zeros(2, 3, 4).add_(z), a, b, c)
    both(lambda x, y, z: list(torch.broadcast_tensors(x, y)), a, b, c)


def test_cpu_scalars_mix():
    host, x = torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.arange(1.0, 7.0)
    for i in range(4):
        same(up(x) / host[i], x / host[i])
        same(host[i] * up(x), host[i] * x)
        same(up(x).add_(host[i]), x + host[i])
        same(torch.where(up(x) > 2, up(x), host[i]), torch.where(x > 2, x, host[i]))
    same(torch.tensor(2) * up(x), 2 * x)
    same(up(torch.arange(3)) * torch.tensor(2.5), torch.arange(3) * torch.tensor(2.5))
    assert (up(x)[0] + torch.tensor(1.0)).device.type == DEVICE


def test_zero_dimensional():
    a, b = torch.tensor(3.0), torch.tensor(2)
    for function in (
        operator.add,
        operator.mul,
        operator.pow,
        torch.maximum,
        lambda s, t: s.sum(),
        lambda s, t: s.view(1),
        lambda s, t: s.expand(3) * t,
    ):
        both(function, a, b)
    d = up(a)
    assert d.item() == 3.0 and float(d) == 3.0 and int(up(b)) == 2 and bool(d > 2) and d.tolist() == 3.0
    assert list(range(5))[up(b)] == 2
    assert f"{d:.1f}" == "3.0" and math.floor(up(torch.tensor(2.5))) == 2


def test_empty_tensors():
    for function in (
        lambda t: t + 1, lambda t: t.sum(), lambda t: t.sum(0), lambda t: t.prod(1), lambda t: t.t() @ t, lambda t: t @ t.t(), lambda t: torch.cat([t, t]),
        lambda t: t.exp(), lambda t: t.any(), lambda t: t.all(), lambda t: t.mean(), lambda t: t.sort()[0], lambda t: t.cumsum(0), lambda t: t.clone().zero_(),
        lambda t: t.nonzero(), lambda t: t[t > 0], lambda t: t.reshape(3, 0), lambda t: t.softmax(-1), lambda t: torch.nn.functional.linear(t.t(), t.t()),
    ):  # fmt: skip
        both(function, torch.empty(2, 0))
    with pytest.raises((RuntimeError, IndexError)):
        torch.empty(2, 0, device=DEVICE).max(1)


def test_nan_and_infinity():
    a = torch.tensor([math.nan, 1.0, math.inf, -3.0, -0.0])
    b = torch.tensor([0.0, math.nan, 2.0, -math.inf, 0.0])
    for function in (
        torch.maximum,
        torch.minimum,
        torch.fmax,
        torch.fmin,
        operator.lt,
        operator.eq,
        torch.atan2,
        torch.copysign,
    ):
        both(function, a, b)
    for function in (
        lambda t: t.clamp(-1, 2), lambda t: t.clamp(min=0), torch.max, torch.amin, torch.amax, torch.relu, torch.isnan, torch.isinf, torch.isfinite, torch.sign,
        lambda t: t.max(0), lambda t: t.min(0), lambda t: torch.nan_to_num(t, 7.0), lambda t: t.sum(), lambda t: t == t, torch.nn.functional.hardtanh,
        lambda t: t.argmax(), lambda t: t.nansum(), lambda t: t.sort()[0], lambda t: t.signbit(), lambda t: torch.nn.functional.softmax(t[3:], 0),
    ):  # fmt: skip
        both(function, a)


def test_division_and_remainder_signs():
    a, b = torch.tensor([7.0, -7.0, 7.0, -7.0, 5.5]), torch.tensor([3.0, 3.0, -3.0, -3.0, 0.5])
    for function in (
        torch.remainder,
        torch.fmod,
        operator.floordiv,
        lambda s, t: torch.div(s, t, rounding_mode="trunc"),
        torch.true_divide,
    ):
        both(function, a, b)
    both(lambda s: s / 0, a)


def test_clamp_bounds_of_other_dtypes():
    both(lambda t: t.clamp(min=0.3), torch.tensor([0, 1, -4]))
    both(lambda t: t.clamp(-2.5, 1.5), torch.tensor(0))
    both(lambda t, m: t.clamp(max=m), torch.tensor([1, 5]), torch.tensor([0.5, 9.0]))
    both(lambda t: t.clamp(3, 1), torch.arange(5.0))


def test_double_precision_is_kept():
    both(lambda t: t + 1, torch.tensor([1e-10, 1.0], dtype=torch.float64), rtol=0, atol=0)
    both(lambda t: t.exp().log(), torch.linspace(0.1, 2, 5, dtype=torch.float64), rtol=1e-14, atol=1e-14)
    both(lambda t: t @ t.t(), torch.rand(4, 4, dtype=torch.float64), rtol=1e-14, atol=1e-14)
    both(lambda t: t * (1 + 1e-12j), torch.tensor([1e-10 + 1j]).to(torch.complex128), rtol=1e-15, atol=0)


def test_complex_arithmetic():
    z, w = torch.tensor([1 + 2j, -0.5j, 3.0]), torch.tensor([2 - 1j, 1 + 1j, 0.5])
    for function in (
        operator.add, operator.mul, operator.truediv, lambda s, t: s.abs(), lambda s, t: s.angle(), lambda s, t: s.conj() + t, lambda s, t: s.exp(),
        lambda s, t: s.sum(), lambda s, t: (s.view(1, 3) @ t.view(3, 1)), lambda s, t: s == t, lambda s, t: s.pow(2), lambda s, t: s * 2j, lambda s, t: torch.vdot(s, t),
        lambda s, t: s.sqrt(), lambda s, t: s.tanh(), lambda s, t: s.real * t.imag, lambda s, t: s.conj().resolve_conj().imag.clone(),
    ):  # fmt: skip
        both(function, z, w)


X = torch.linspace(-2, 2, 24).view(2, 3, 4)


@pytest.mark.parametrize(
    "name",
    [
        "sum",
        "mean",
        "amax",
        "amin",
        "prod",
        "std",
        "var",
        "norm",
        "logsumexp",
        "argmax",
        "all",
        "any",
        "count_nonzero",
        "median",
    ],
)
def test_reductions(name):
    function = getattr(torch, name)
    if name not in ("logsumexp",):
        both(lambda t: function(t), X, note=name)
    if name not in ("amax", "amin"):
        both(
            lambda t: function(t, 1) if name != "norm" else t.norm(2, 1),
            X.permute(2, 0, 1),
            note=f"{name} of a permuted tensor",
        )
    if name in ("sum", "mean", "amax", "std", "logsumexp"):
        both(lambda t: function(t, (0, 2), keepdim=True), X, note=f"{name} over two")


def test_scans_and_sorting():
    for function in (
        lambda t: t.cumsum(1), lambda t: t.cumprod(2), lambda t: t.cummax(1), lambda t: t.logcumsumexp(0), lambda t: t.sort(1, descending=True), lambda t: t.topk(2, 2),
        lambda t: t.argsort(2), lambda t: t.kthvalue(2, 1), lambda t: t.flip(0, 2), lambda t: t.roll((1, 2), (0, 2)), lambda t: t.diff(dim=1), lambda t: t.msort(),
    ):  # fmt: skip
        both(function, torch.randperm(24).float().view(2, 3, 4))
    both(lambda t: t.sort(stable=True), torch.tensor([3, 1, 3, 1, 2]))


def test_low_precision_sums():
    for dtype in (torch.float16, torch.bfloat16):
        a, b = torch.randn(8, 16).to(dtype), torch.randn(16, 8).to(dtype)
        both(lambda x, y: x @ y, a, b, rtol=3e-2, atol=3e-2)
        assert abs(torch.full((4096,), 0.25, dtype=dtype, device=DEVICE).sum().item() - 1024) < 8
        both(lambda x: x.softmax(-1), a, rtol=2e-2, atol=1e-2)


def test_products():
    m, v = torch.rand(3, 4), torch.rand(4)
    both(lambda a, b: a @ b, m, v)
    both(lambda a, b: a.t() @ a, m, v)
    both(lambda a, b: b @ b, m, v)
    both(lambda a, b: torch.einsum("ij,j->i", a, b), m, v)
    both(lambda a, b: torch.bmm(a.expand(2, 3, 4), a.t().expand(2, 4, 3)), m, v)
    both(lambda a, b: torch.addmm(torch.full((3, 3), math.nan, device=a.device), a, a.t(), beta=0), m, v)
    both(
        lambda a, b: torch.baddbmm(a[:, :3].expand(2, 3, 3), a.expand(2, 3, 4), a.t().expand(2, 4, 3), alpha=0.5), m, v
    )
    both(lambda a, b: torch.tensordot(a, a, dims=([1], [1])), m, v)
    both(lambda a, b: a.int() @ a.t().int(), m * 9, v)
    both(lambda a, b: torch.outer(b, b), m, v)


def test_cat_and_stack():
    x = torch.arange(24.0).view(2, 3, 4)
    both(lambda t: torch.stack((-t[..., 1::2], t[..., ::2]), -1).flatten(-2), x)
    both(lambda t: torch.cat([t[:, :1, -1:], t[:, -1:, :1]], -1), x)
    both(lambda a, b: torch.cat([a, b], 1), torch.ones(2, 3, dtype=torch.int64), torch.rand(2, 1))
    both(lambda a, b: torch.cat([a, b]), torch.empty(0), torch.tensor([1, 2]))
    both(lambda a: torch.cat([a, a.double()]), torch.rand(2))
    both(lambda a: torch.hstack([a, a]) + torch.vstack([a, a]).sum(), torch.rand(2, 2))


@pytest.mark.parametrize("given", [{}, dict(range=(1.0, 1.0)), dict(range=(0.0, 2.0))], ids=str)
def test_histogram_of_nothing_and_of_one_value(given):
    for x in (torch.empty(0), torch.ones(3), torch.tensor([0.25, 1.0, 2.0])):
        both(lambda t: tuple(torch.histogram(t, 3, **given)), x, note=f"{x.tolist()}")
