"""Control flow in compiled graphs is StableHLO's own, and gives what PyTorch gives on the CPU."""

import warnings
from pathlib import Path

import pytest
import torch
from helpers import MANY_SIZES, same, up
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from torch_tpu import _C


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", MANY_SIZES)
        yield


def check(function, *args, grad=False, tolerance=1e-5):
    """One launch a call; values, and with `grad` gradients, are the CPU's."""
    compiled = torch.compile(function, fullgraph=True)
    results = []
    for place, call in ((lambda t: t, function), (up, compiled)):
        inputs = [place(a.detach()).requires_grad_(grad and a.is_floating_point()) for a in args]
        out = call(*inputs)
        leaves = out if isinstance(out, (tuple, list)) else (out,)
        values = [t.detach().cpu() for t in leaves]
        if grad:
            floating = [t for t in inputs if t.requires_grad]
            given = torch.autograd.grad(sum(t.square().sum() for t in leaves), floating, allow_unused=True)
            values += [None if g is None else g.cpu() for g in given]
        results.append(values)
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    if not grad:
        on_device = [up(a) for a in args]
        compiled(*on_device)
        before = _C.counters()["launches"]
        compiled(*on_device)
        assert _C.counters()["launches"] - before <= 1


def program_text(tmp_path, function, *args):
    _C.cache_clear()
    _C.set_dump_directory(str(tmp_path))
    try:
        torch.compile(function)(*[up(a) for a in args])
    finally:
        _C.set_dump_directory(None)
    return "".join(p.read_text() for p in Path(tmp_path).iterdir())


# ---- cond ----


def choose(pred, x):
    return torch.cond(pred, lambda x: x.sin() * 2, lambda x: x.cos() - 1, (x,))


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("grad", [False, True])
def test_cond(value, grad):
    check(choose, torch.tensor(value), torch.randn(3, 4), grad=grad)


def test_cond_is_a_case(tmp_path):
    assert "stablehlo.case" in program_text(tmp_path, choose, torch.tensor(True), torch.randn(2, 3, 5))


def test_cond_on_a_computed_predicate_with_several_results_and_views():
    def f(x, y):
        return torch.cond(
            x.sum() > 0,
            lambda x, y: (x @ y, x.flip(0), y[0] + 1),
            lambda x, y: (x - y, x * 3, y[1] * 2),
            (x, y),
        )

    for sign in (1, -1):
        check(f, sign * torch.rand(3, 3), torch.randn(3, 3), grad=True)


def test_nested_cond():
    def f(x):
        inner = lambda x: torch.cond(x[0] > 1, lambda x: x * 10, lambda x: x * 100, (x,))  # noqa: E731
        return torch.cond(x.sum() > 0, inner, lambda x: -x, (x,))

    for x in ([2.0, 1.0], [0.5, 1.0], [-1.0, 0.0]):
        check(f, torch.tensor(x))


# ---- while_loop ----


def test_while_loop():
    def collatz(n):
        return while_loop(
            lambda n, steps: n > 1,
            lambda n, steps: (torch.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1),
            (n, torch.zeros_like(n)),
        )

    check(collatz, torch.tensor(27))


def test_while_loop_with_captured_tensors_is_a_while(tmp_path):
    def power(x, n):
        body = lambda i, y: (i + 1, y @ x)  # noqa: E731
        return while_loop(lambda i, y: i < n, body, (torch.zeros_like(n), torch.eye(3, device=x.device)))[1]

    x = torch.randn(3, 3) / 2
    check(power, x, torch.tensor(5))
    assert "stablehlo.while" in program_text(tmp_path, power, x, torch.tensor(4))


def test_a_loop_that_never_runs():
    check(lambda x: while_loop(lambda x: x.sum() < 0, lambda x: (x * 2,), (x,))[0], torch.ones(3))


# ---- scan, map, associative_scan ----


def recurrence(h, xs, w):
    return scan(lambda h, x: ((n := torch.tanh(h @ w + x)), n * 2), h, xs)


@pytest.mark.parametrize("grad", [False, True])
def test_scan(grad):
    check(recurrence, torch.randn(2, 4), torch.randn(6, 2, 4), torch.randn(4, 4) / 2, grad=grad, tolerance=1e-4)


def test_scan_is_a_loop_over_dynamic_slices(tmp_path):
    text = program_text(tmp_path, recurrence, torch.randn(2, 4), torch.randn(7, 2, 4), torch.randn(4, 4))
    assert "stablehlo.while" in text
    assert text.count("stablehlo.dot_general") == 1


def test_scan_backwards_over_another_dimension():
    def f(c, x):
        return scan(lambda c, x: (c + x, c * x), c, x, dim=1, reverse=True)

    check(f, torch.randn(3), torch.randn(3, 5))


@pytest.mark.parametrize("grad", [False, True])
def test_map(grad):
    def f(x, y):
        return torch_map(lambda a, y: a.sin() @ y, x, y)

    check(f, torch.randn(5, 3, 4), torch.randn(4, 2), grad=grad, tolerance=1e-4)


@pytest.mark.parametrize("n", [1, 2, 7, 16])
def test_associative_scan(n):
    def f(x, y):
        combine = lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])  # noqa: E731
        return associative_scan(combine, (x, y), dim=0, combine_mode="generic")

    check(f, torch.rand(n, 3), torch.randn(n, 3))


def test_random_numbers_in_a_loop_differ_from_turn_to_turn():
    def f(x):
        return torch_map(lambda row: torch.nn.functional.dropout(row, 0.5), x)

    x = torch.ones(4, 64, device="tpu")
    with torch.no_grad():
        masks = torch.compile(f)(x).cpu()
    assert set(masks.unique().tolist()) == {0.0, 2.0}
    assert len({tuple(row.tolist()) for row in masks}) == 4


def chosen(flag, x, i):
    return torch.cond(flag, lambda x, i: x.index_select(0, i), lambda x, i: x[:1] * 2, (x, i))


def nested(flag, x, i):
    inner = lambda x, i: torch.cond(x.sum() > 0, lambda x, i: x.index_select(0, i) + 0, lambda x, i: x[:1] + 1, (x, i))
    return torch.cond(flag, inner, lambda x, i: x[:1] * 2, (x, i))


def turns(flag, x, i):
    start = torch.zeros((), dtype=torch.int64, device=x.device), torch.zeros((), device=x.device)
    body = lambda n, total: (n + 1, total + x.index_select(0, i + n).sum())
    return while_loop(lambda n, total: n < 3, body, start)[1]


def test_indices_inside_are_checked():
    """In the branch that is taken and in every turn; the program can go on."""
    x = torch.arange(12.0).view(3, 4)
    good, late, bad = ([0], "ok"), ([1], "in the last turn"), ([7], "at once")
    for function, flag, (index, _), raises in (
        (chosen, True, good, False), (chosen, True, bad, True), (chosen, False, bad, False), (nested, True, late, False),
        (nested, True, bad, True), (turns, True, good, False), (turns, True, late, True), (turns, True, bad, True),
    ):  # fmt: skip
        arguments = [torch.tensor(flag), x, torch.tensor(index)]
        compiled = torch.compile(function, fullgraph=True)
        if raises:
            with pytest.raises(IndexError, match="index_select: an index is out of range"):
                compiled(*map(up, arguments))
                torch.tpu.synchronize()
        else:
            same(compiled(*map(up, arguments)), function(*arguments))
            torch.tpu.synchronize()
