"""In-place and out= forms, with contiguous and strided operands and results."""

import pytest
import torch
from helpers import DEVICE, both, same, up

A, B = torch.rand(3, 4) + 0.5, torch.rand(3, 4) + 0.5

UNARY = [
    "abs",
    "neg",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "sin",
    "tanh",
    "sigmoid",
    "relu",
    "floor",
    "round",
    "reciprocal",
    "erf",
    "square",
]
BINARY = ["add", "sub", "mul", "div", "pow", "remainder", "fmod", "atan2", "maximum", "logaddexp", "hypot"]


@pytest.mark.parametrize("name", UNARY)
def test_unary_inplace_and_out(name):
    inplace, function = getattr(torch.Tensor, name + "_", None), getattr(torch, name)
    if inplace:
        both(lambda t: inplace(t.t()[1:]), A, note=f"{name}_")
    if name != "relu":
        both(lambda t: function(t.t(), out=torch.zeros(3, 4, device=t.device).t()), A, note=f"{name}.out")


@pytest.mark.parametrize("name", BINARY)
def test_binary_inplace_and_out(name):
    inplace, function = getattr(torch.Tensor, name + "_", None), getattr(torch, name)
    if inplace:
        both(lambda s, t: inplace(s.t(), t.t()), A, B, note=f"{name}_")
        both(lambda s, t: inplace(s[:, ::2], t[:, 1::2]), A, B, note=f"{name}_ strided")
    both(lambda s, t: function(s, t, out=torch.empty(0, device=s.device)), A, B, note=f"{name}.out")


def test_inplace_returns_self():
    t = up(A)
    assert t.add_(1) is t and t.copy_(B) is t and t.zero_() is t and t.clamp_(min=0) is t
    out = torch.empty(3, 4, device=DEVICE)
    assert torch.add(t, t, out=out) is out


def test_overlap_of_input_and_output():
    both(lambda t: t[1:].copy_(t[:-1].clone()), torch.arange(9.0))
    both(lambda t: t.mul_(t), A)
    with pytest.raises(RuntimeError):
        t = torch.arange(9.0, device=DEVICE)
        t[1:].add_(t[:-1])
    with pytest.raises(RuntimeError):
        t.view(3, 3).add_(t.view(3, 3).t())


def test_ternary_inplace_strided():
    c = torch.rand(4, 3) + 1
    both(lambda x, y, z: x.t().addcdiv_(y.t(), z, value=0.5), A, B, c)
    both(lambda x, y, z: x.t().addcmul_(y.t(), z), A, B, c)
    both(lambda x, y, z: x.lerp_(y, 0.25), A, B, c)


def test_out_of_products_and_reductions():
    both(lambda s, t: torch.mm(s, t.t(), out=torch.empty(3, 3, device=s.device)), A, B)
    both(lambda s: torch.sum(s, 1, out=torch.empty(0, device=s.device)), A)
    both(lambda s: torch.cumsum(s, 1, out=torch.empty(4, 3, device=s.device).t()), A)
    both(
        lambda s: list(
            torch.sort(s, out=(torch.empty(0, device=s.device), torch.empty(0, dtype=torch.long, device=s.device)))
        ),
        A,
    )
    both(
        lambda s: list(
            torch.max(s, 1, out=(torch.empty(3, device=s.device), torch.empty(3, dtype=torch.long, device=s.device)))
        ),
        A,
    )
    both(lambda s, t: torch.cat([s, t], out=torch.empty(0, device=s.device)), A, B)


def test_out_keeps_dtype_rules():
    out = torch.empty(3, 4, dtype=torch.float64, device=DEVICE)
    torch.add(up(A), up(B), out=out)
    same(out, (A + B).double(), rtol=1e-6, atol=1e-6)
    with pytest.raises(RuntimeError):
        torch.add(up(A), up(B), out=torch.empty(3, 4, dtype=torch.int32, device=DEVICE))


def test_inplace_keeps_dtype():
    def program(t):
        t *= 0.5
        t += 1
        return t

    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        both(program, A.to(dtype))
    with pytest.raises(RuntimeError):
        up(torch.arange(3)).mul_(0.5)


def test_fills():
    both(lambda t: t.fill_(2), A)
    both(lambda t: t.t()[1].fill_(torch.tensor(3.0)), A)
    both(lambda t: t.fill_diagonal_(9), A)
    both(lambda t: t.masked_fill_(t > 1, -1), A)
    both(lambda t: t.clamp_(0.6, 1.2), A)
    both(lambda t: t.tril_(), A)


SHARED = dict(
    twice=lambda a, b: torch._foreach_add_([a, a], 1),
    parts=lambda a, b: torch._foreach_mul_([a, a[:1]], 3),
    same_place=lambda a, b: torch._foreach_add_([a, b], [a, b]),
    twice_with_itself=lambda a, b: torch._foreach_add_([a, a], [a, a]),
    crossed=lambda a, b: torch._foreach_sub_([a, b], [b, a], alpha=2),
    later_operand=lambda a, b: torch._foreach_addcmul_([a, b], [b, b], [b, a], value=0.5),
    neighbours=lambda a, b: torch._foreach_mul_([a[:1], a[1:]], [2.0, 3.0]),
    copied=lambda a, b: torch._foreach_copy_([a, b], [b, a]),
    unary=lambda a, b: torch._foreach_exp_([a, a, b]),
    zeroed=lambda a, b: torch._foreach_zero_([a, a]),
)


@pytest.mark.parametrize("name", SHARED)
def test_foreach_of_lists_that_share_memory(name):
    """From tensor to tensor, each as the last one left it."""

    def program(a, b):
        SHARED[name](a, b)
        return a, b

    both(program, torch.tensor([1.0, 2.0]), torch.tensor([0.5, -1.5]))


def test_foreach_forms():
    tensors = [torch.rand(3), torch.rand(2, 2), torch.tensor(2.0)]

    def program(*ts):
        ts = list(ts)
        torch._foreach_add_(ts, 1.5)
        torch._foreach_mul_(ts, [2.0, 3.0, 4.0])
        torch._foreach_addcdiv_(ts, torch._foreach_sqrt(ts), torch._foreach_add(ts, 1), value=0.1)
        torch._foreach_lerp_(ts, torch._foreach_neg(ts), 0.25)
        return [*ts, *torch._foreach_norm(ts), *torch._foreach_maximum(ts, 1.0)]

    both(program, *tensors)


def test_copy_between_all_layouts():
    def program(s, t):
        s.copy_(t.t())
        s[:, 1:3].copy_(t.t()[:, :2])
        s[0].copy_(t[0, 0])
        return s.clone()

    both(program, torch.zeros(3, 4), torch.arange(12.0).view(4, 3))
    both(program, torch.zeros(3, 4, dtype=torch.int32), torch.arange(12.0).view(4, 3) + 0.7)


def test_out_of_an_operator_that_also_writes_its_operands():
    """The out= arguments are the operator's results; running statistics are written beside them."""

    def run(x, weight, mean, variance):
        out = [torch.empty(0, device=x.device) for _ in range(3)]
        torch.ops.aten._native_batch_norm_legit.out(
            x, weight, weight, mean, variance, True, 0.1, 1e-5, out=out[0], save_mean=out[1], save_invstd=out[2]
        )
        return [*out, mean, variance]

    torch.manual_seed(0)
    operands = (torch.randn(5, 3, 4), torch.rand(3), torch.zeros(3), torch.ones(3))
    same(run(*up([*operands])), run(*operands), rtol=1e-4, atol=1e-5)


def test_statistics_of_a_batch_in_evaluation_are_empty():
    x, weight, mean, variance = torch.randn(5, 3, 4), torch.rand(3), torch.zeros(3), torch.ones(3)
    for function in (torch.ops.aten.native_batch_norm, torch.ops.aten._native_batch_norm_legit):
        want = function(x, weight, weight, mean, variance, False, 0.1, 1e-5)
        same(function(*up([x, weight, weight, mean, variance]), False, 0.1, 1e-5), want, rtol=1e-4, atol=1e-5)


def test_threads_write_rows_of_one_tensor():
    """A launch makes the whole storage anew; another thread's write is not lost, nor given a buffer that is gone."""
    import threading

    for width, turns in ((16, 100), (1 << 20, 6)):
        rows, failed = torch.zeros(6, width, device=DEVICE), []

        def work(k, rows=rows, turns=turns, failed=failed):
            try:
                for _ in range(turns):
                    rows[k].add_(1)
                    rows[k].copy_(rows[k].cpu())
                rows[k].mul_(k)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not failed
        want = (turns * torch.arange(6.0)).unsqueeze(1).expand(6, width)
        assert torch.equal(rows.cpu(), want)
