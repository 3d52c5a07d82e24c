"""FX graphs become graphs of the core: views, writes into inputs, shared storages, constants."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torch_tpu import _C, _fx
from torch_tpu._recorder import NoDecomposition


def compiled(function, *args):
    """The function's ATen graph as one operator of the device, and its program."""
    gm = make_fx(function)(*[a.cpu() for a in args])
    program = _fx.convert(gm, args)
    operator = _C.graph_operator(program.graph, program.inputs, program.constants, program.results, program.outputs)
    return (lambda *a: operator(list(a))), program


def check(function, *args):
    want = [function(*[a.clone() for a in args])]
    on_device = [a.to("tpu") for a in args]
    call, program = compiled(function, *on_device)
    got = call(*on_device)
    want = want[0] if isinstance(want[0], (tuple, list)) else want
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.stride() == w.stride()
        torch.testing.assert_close(g.cpu(), w)
    return got, on_device, program


X = torch.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sin() @ x.t(),
        lambda x: (x.permute(1, 0) * 2)[1:, ::2],
        lambda x: (x * 2).view(2, 6).as_strided((3,), (4,), 1),
        lambda x: x.relu().unflatten(1, (2, 2)).sum(-1).expand(2, 3, 2),
        lambda x: torch.cat([x, x + 1]).split(2),
        lambda x: x.to(torch.int64).bitwise_and(3),
        lambda x: torch.view_as_complex(x.view(3, 2, 2) * 1.0).conj() * 2,
        lambda x: torch.where(x > 3, x, 0.5),
        lambda x: x + torch.arange(4, device=x.device),
    ],
)
def test_values(function):
    check(function, X)


def test_writes_into_a_view_are_seen_by_its_base():
    def f(x):
        y = x * 2
        y[:, 1].fill_(7)
        y.t()[0].add_(1)
        return y

    check(f, X)


def test_outputs_of_one_storage_share_it():
    (y, t, row), _, program = check(lambda x: [(y := x * 2), y.t(), y[1]], X)
    assert len(program.results) == 1
    y[1, 2] = 100
    assert t[2, 1].item() == row[2].item() == 100


def test_an_input_that_is_returned_is_the_input():
    got, (x,), program = check(lambda x: [x, x.t(), x + 1], X)
    assert got[0] is x
    assert got[1].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert len(program.results) == 1


def test_writes_into_inputs_reach_them():
    def f(cache, new):
        torch.ops.aten.copy_(cache[:, 1], new)
        return cache.sum()

    cache, new = torch.zeros(3, 4), torch.ones(3)
    got, (on_device, _), _ = check(f, cache, new)
    assert on_device.cpu()[:, 1].tolist() == [1, 1, 1]


def test_inputs_with_other_strides_and_offsets():
    call, _ = compiled(lambda x: x.exp(), X.to("tpu").t())
    base = torch.arange(20.0, device="tpu")
    x = base.as_strided((4, 3), (1, 4), 5)
    torch.testing.assert_close(call(x)[0].cpu(), x.cpu().exp())


def test_a_constant_tensor_is_an_input():
    table = torch.randn(100)
    got, _, program = check(lambda x: x + table.to(x.device)[:4], X)
    assert sum(c.numel() for c in program.constants) == 100


def test_other_sizes_are_refused():
    call, _ = compiled(lambda x: x + 1, X.to("tpu"))
    with pytest.raises(RuntimeError, match="sizes"):
        call(torch.ones(5, device="tpu"))


def test_an_operator_without_a_way_is_named_with_its_line():
    def f(x):
        return torch.ops.aten.nonzero.default(x)

    gm = torch.fx.symbolic_trace(f)
    with pytest.raises(NoDecomposition, match="nonzero"):
        _fx.convert(gm, [X.to("tpu")])
