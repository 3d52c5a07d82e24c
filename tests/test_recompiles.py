"""Nothing recompiles in a steady state: numbers, positions, seeds and masks are inputs of a program, not part of it."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, ON_CPU, child_output, same
from torch import nn

pytestmark = pytest.mark.skipif(ON_CPU, reason="programs of the device")


def compiles(function, values, warm):
    """How many programs are compiled by function(v) for each of `values` after it ran for `warm`."""
    for v in warm:
        function(v)
    before = torch.tpu.diagnostics()["compiles"]
    for v in values:
        function(v)
    torch.tpu.synchronize()
    return torch.tpu.diagnostics()["compiles"] - before


NUMBERS = dict(
    mul=lambda x, v: x * v, add=lambda x, v: torch.add(x, x, alpha=v), addcdiv=lambda x, v: torch.addcdiv(x, x, x, value=v), clamp=lambda x, v: x.clamp(max=v), pow=lambda x, v: x**v,
    full=lambda x, v: torch.full((16,), v, device=DEVICE), lerp=lambda x, v: torch.lerp(x, x + 1, v), compare=lambda x, v: x > v, fill=lambda x, v: x.clone().fill_(v),
    dropout=lambda x, v: F.dropout(x, v % 1), leaky=lambda x, v: F.leaky_relu(x, v), where=lambda x, v: torch.where(x > 0.5, x, v), masked=lambda x, v: x.masked_fill(x > 0.5, v),
)  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    x = torch.rand(16, device=DEVICE)
    assert compiles(lambda v: NUMBERS[name](x, v), [0.3 + 0.01 * i for i in range(12)], [0.5, 0.5, 0.25, 0.75]) == 0
    same(x * 0.123, x.cpu() * 0.123)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_after_other_dtypes(name):
    """What one dtype needs as a constant (an integer's exponent) stays an input for the others."""
    for dtype in [torch.int64, torch.bool, torch.complex64]:
        other = torch.ones(16, device=DEVICE).to(dtype)
        for v in [2, 3, 0.5]:
            try:
                NUMBERS[name](other, v)
            except (RuntimeError, NotImplementedError):
                with pytest.raises((RuntimeError, NotImplementedError)):
                    NUMBERS[name](other.cpu(), v)
    test_numbers(name)


def test_positions():
    x, cache, want = torch.rand(16, 4, device=DEVICE), torch.zeros(1, 2, 16, 4, device=DEVICE), torch.zeros(1, 2, 16, 4)

    def write(i):
        cache.index_copy_(
            2, torch.tensor([i], device=DEVICE), x.index_select(0, torch.tensor([i], device=DEVICE)).expand(1, 2, 1, 4)
        )

    assert compiles(write, range(5, 16), range(5)) == 0
    for i in range(16):
        want[:, :, i] = x.cpu()[i]
    same(cache, want)


READS = dict(
    select=lambda x, t: x[t] * 2,
    two=lambda x, t: x[t] + x[23 - t],
    column=lambda x, t: torch.relu(x[:, t % 8]),
    slice=lambda x, t: x[t : t + 5, 2:4].exp(),
    element=lambda x, t: x[t, t % 8],
    strided=lambda x, t: torch.as_strided(x, (3, 2), (8, 2), 8 * t).sum(),
    transposed=lambda x, t: x.t()[:, t : t + 2].sigmoid(),
    split=lambda x, t: torch.cat([p.tanh() for p in x.split(4)]),
    bits=lambda x, t: x[t].view(torch.int32) + 1,
)
WRITES = dict(
    assign=lambda x, t: x[t].fill_(1.5),
    cache=lambda x, t: x.view(4, 6, 8)[:, t % 6].copy_(x[:4] + t),
    shift=lambda x, t: x[t].add_(x[(t + 1) % 24]),
    slice=lambda x, t: x[t : t + 3, 1:7].mul_(1.25),
    column=lambda x, t: x[:, t % 8].neg_(),
)


@pytest.mark.parametrize("fused", (False, True), ids=("strict", "fused"))
@pytest.mark.parametrize("name", [f"read {k}" for k in READS] + [f"write {k}" for k in WRITES])
def test_views_that_move(name, fused):
    """A view that starts elsewhere each time has two programs: of the first start, and of any other."""
    from torch_tpu._internal.execution_mode import EagerMode, set_eager_mode

    kind, key = name.split()
    function = (READS if kind == "read" else WRITES)[key]
    want = torch.randn(24, 8, generator=torch.Generator().manual_seed(0))
    x = want.to(DEVICE)
    warm = 10 if fused else 2
    with set_eager_mode(EagerMode.DEFER_AND_FUSE if fused else EagerMode.DEFER_NEVER):

        def step(t):
            got, expected = function(x, t), function(want, t)
            same(got, expected, f"{name} at {t}")
            same(x, want, f"{name} at {t}, the whole")

        assert compiles(step, range(warm, 19), range(warm)) <= (1 if fused else 0)


def test_masks_and_indices():
    x = torch.rand(16, device=DEVICE)
    masks = [torch.arange(16, device=DEVICE) < k for k in range(16)]
    assert compiles(lambda i: x.__setitem__(masks[i], float(i)), range(4, 16), range(4)) == 0


def test_seeds():
    assert compiles(lambda i: torch.manual_seed(i) and torch.rand(9, device=DEVICE), range(5, 12), range(4)) == 0
    assert compiles(lambda i: torch.randn(9, device=DEVICE), range(8), range(3)) == 0


def test_training_with_a_schedule():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 2)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)

    def step(i):
        optimizer.zero_grad()
        F.cross_entropy(
            model(torch.rand(5, 6, device=DEVICE)), torch.zeros(5, dtype=torch.long, device=DEVICE)
        ).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()

    assert compiles(step, range(8), range(5)) == 0


def test_equal_calls_hit():
    x = torch.rand(3, 5, device=DEVICE)
    assert compiles(lambda _: x.t().exp() @ x, range(5), [0]) == 0
    assert compiles(lambda _: torch.rand(3, 5, device=DEVICE).t().exp() @ x, range(5), [0]) == 0


def test_different_programs_do_not_share():
    x = torch.arange(12.0, device=DEVICE)
    h = torch.arange(12.0)
    for shape in ((3, 4), (4, 3), (2, 6)):
        for dim in (0, 1):
            same(x.view(shape).sum(dim), h.view(shape).sum(dim))
            same(x.view(shape).flip(dim), h.view(shape).flip(dim))
            same(x.view(shape).t().cumsum(dim), h.view(shape).t().cumsum(dim))
    same(x * x, h * h)
    same(x * (x + 0), h * h)
    same(x[1:7] + x[1:7], h[1:7] * 2)
    same(x[1:7] + x[2:8], h[1:7] + h[2:8])


GROWING = """
import warnings, torch
from torch_tpu._internal.execution_mode import EagerMode, set_eager_mode
warnings.simplefilter("always")
with set_eager_mode(EagerMode[MODE]), warnings.catch_warnings(record=True) as caught:
    model = torch.nn.Sequential(*[torch.nn.Linear(8 + 3 * i, 11 + 3 * i) for i in range(20)]).to("tpu")  # all sizes differ
    model(torch.ones(2, 8, device="tpu")).sum().backward()
    for n in list(range(1, 20)) * 3:
        torch.ones(n, 4, device="tpu") * 2
    few = len(caught)
    cache = torch.zeros(2, 0, 8, device="tpu")
    for t in range(40):
        cache = torch.cat([cache, torch.ones(2, 1, 8, device="tpu")], 1)  # here
        (cache * 2).sum()
    for n in torch.randperm(60).tolist():
        torch.ones(n, 3, device="tpu") + 1
print(few, *((w.lineno, "cat" in str(w.message), "buckets" in str(w.message)) for w in caught))
"""


@pytest.mark.parametrize("mode", ["DEFER_NEVER", "DEFER_AND_FUSE"])
def test_a_size_that_grows_is_said_once(mode):
    lines = GROWING.splitlines()
    place = next(i for i, line in enumerate(lines, 1) if line.endswith("# here"))
    assert child_output(GROWING.replace("MODE", repr(mode))) == f"0 ({place}, True, True)"
