"""Reading and writing by index, mask and scatter."""

import pytest
import torch
from helpers import DEVICE, ON_CPU, both, child, gradients, up

X = torch.arange(24.0).view(4, 6)
ROWS, COLUMNS = torch.tensor([3, 0, 3]), torch.tensor([1, 5, -1])


def test_reads():
    for function in (
        lambda t, i, j: t[i], lambda t, i, j: t[:, j], lambda t, i, j: t[i, j], lambda t, i, j: t[i[:, None], j], lambda t, i, j: t[None, i, ..., 1:3],
        lambda t, i, j: t[..., j][1], lambda t, i, j: t[t[:, 0] > 5], lambda t, i, j: t[t > 7], lambda t, i, j: t[[0, 2]], lambda t, i, j: t.t()[j],
        lambda t, i, j: t.index_select(1, i), lambda t, i, j: t.gather(1, i.expand(4, 3)), lambda t, i, j: t.take(i), lambda t, i, j: t.take_along_dim(i.expand(4, 3), 1),
        lambda t, i, j: t.masked_select(t > 20), lambda t, i, j: (t > 20).nonzero(), lambda t, i, j: torch.where(t > 20), lambda t, i, j: t[i.int()],
        lambda t, i, j: t[1, i], lambda t, i, j: t[i][:, 2], lambda t, i, j: t[i.view(3, 1), 2:4],
    ):  # fmt: skip
        both(function, X, ROWS, COLUMNS)


def test_writes():
    def check(write):
        def program(t, i, j):
            write(t, i, j)
            return t.clone()

        both(program, X, ROWS, COLUMNS)

    def assign(index, value):
        return lambda t, i, j: t.__setitem__(index(t, i, j), value(t) if callable(value) else value)

    check(assign(lambda t, i, j: i, -1.0))
    check(assign(lambda t, i, j: (i, j), 9))
    check(assign(lambda t, i, j: (slice(None), j[:2]), lambda t: torch.full((4, 2), 7.0, device=t.device)))
    check(assign(lambda t, i, j: t > 12, 0.5))
    check(assign(lambda t, i, j: t < 3, lambda t: t[t < 3] * 2))
    check(assign(lambda t, i, j: (1, slice(2, 4)), lambda t: torch.tensor([5.0, 6.0])))
    check(assign(lambda t, i, j: ..., 3))
    check(lambda t, i, j: t.index_fill_(0, i, 2.0))
    check(lambda t, i, j: t.index_copy_(1, i[:2], torch.ones(4, 2, device=t.device)))
    check(lambda t, i, j: t.masked_scatter_(t > 12, -t.flatten()))
    check(lambda t, i, j: t.t()[2:].index_put_((i,), torch.tensor(1.5, device=t.device)))


def test_repeated_indices_accumulate():
    z, i, v = torch.zeros(5, 2), torch.tensor([3, 3, 0, 3]), torch.arange(8.0).view(4, 2) + 1
    both(lambda a, j, s: a.index_put_((j,), s, accumulate=True), z, i, v)
    both(lambda a, j, s: a.index_put_((j,), s[0, 0], accumulate=True), z, i, v)
    both(lambda a, j, s: a.index_add_(0, j, s, alpha=2), z, i, v)
    both(lambda a, j, s: a.scatter_add_(0, j[:, None].expand(4, 2), s), z, i, v)
    for reduce in ("sum", "prod", "amax", "amin", "mean"):
        both(lambda a, j, s: a.scatter_reduce(0, j[:, None].expand(4, 2), s, reduce), z + 1, i, v)
        if reduce != "sum":
            both(lambda a, j, s: a.index_reduce(0, j, s, reduce), z + 1, i, v)
    both(lambda j: torch.bincount(j), i)
    gradients(lambda a, s: a[up(i) if a.device.type != "cpu" else i] * s, z, v)


def test_scatter_into_permuted():
    def program(t):
        p = t.permute(0, 2, 1)
        v, i = p.topk(3, dim=2)
        z = torch.zeros_like(p)
        return z.scatter_(2, i, v), v, p.gather(2, i.flip(-1))

    both(program, torch.randperm(60).float().view(2, 6, 5))


def test_embedding():
    w, i = torch.randn(6, 4), torch.tensor([[2, 5, 5, 3], [0, 2, 5, 0]])
    for padding in (None, 2):

        def program(a, j):
            a.requires_grad_()
            e = torch.nn.functional.embedding(j, a, padding_idx=padding)
            (e * torch.arange(4.0, device=a.device)).sum().backward()
            return e.detach(), a.grad

        both(program, w, i)
    both(lambda a, j: torch.nn.functional.embedding_bag(j, a, mode="mean"), w, i)
    both(lambda j: torch.nn.functional.one_hot(j, 6), i)


def test_search():
    s = torch.tensor([1.0, 3.0, 5.0, 7.0])
    both(lambda a, v: torch.searchsorted(a, v), s, X)
    both(lambda a, v: torch.bucketize(v, a, right=True), s, X)
    both(lambda a: a.unique(return_inverse=True, return_counts=True), torch.tensor([3, 1, 3, 2, 1]))
    both(lambda a: torch.isin(a, a[:2]), torch.tensor([3, 1, 3, 2, 1]))
    both(lambda a: torch.histc(a, 4, 0, 24), X)


@pytest.mark.skipif(ON_CPU, reason="a mode of the device")
@pytest.mark.parametrize(
    "expression",
    [
        "t[i]",
        "t.index_select(0, i)",
        "t.gather(0, i.view(1, 1))",
        "F.embedding(i, t)",
        "t.index_put_((i,), t[0])",
        "F.nll_loss(t, i.expand(4))",
    ],
)
def test_debug_mode_checks_indices(expression):
    code = f"""
import torch, torch.nn.functional as F
t, i = torch.ones(4, 3, device="{DEVICE}"), torch.tensor([7], device="{DEVICE}")
try:
    ({expression}).sum().item()
except (IndexError, RuntimeError) as error:
    print("refused:", error)
print("afterwards", t.sum().item())
"""
    done = child(code, TORCH_TPU_ENABLE_DEBUG_CHECKS="1", TORCH_TPU_LAUNCH_BLOCKING="1")
    assert done.returncode == 0, done.stderr
    assert "refused:" in done.stdout and "7" in done.stdout and "afterwards 12.0" in done.stdout, (
        done.stdout + done.stderr
    )
