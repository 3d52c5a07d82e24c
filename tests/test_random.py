"""Random numbers: distributions, repeatability, generators and their state."""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, ON_CPU

N = 20000
MODULE = torch if ON_CPU else torch.get_device_module(DEVICE)


def empty():
    return torch.empty(N, device=DEVICE)


@pytest.mark.parametrize(
    ("make", "mean", "deviation"),
    [
        (lambda: torch.rand(N, device=DEVICE), 0.5, math.sqrt(1 / 12)),
        (lambda: torch.randn(N, device=DEVICE), 0, 1),
        (lambda: torch.randint(2, 8, (N,), device=DEVICE).float(), 4.5, math.sqrt(35 / 12)),
        (lambda: empty().uniform_(-1, 3), 1, 4 * math.sqrt(1 / 12)),
        (lambda: empty().normal_(2, 3), 2, 3),
        (lambda: empty().exponential_(2), 0.5, 0.5),
        (lambda: empty().geometric_(0.25), 4, math.sqrt(12)),
        (lambda: empty().log_normal_(0, 0.5), math.exp(0.125), math.sqrt((math.exp(0.25) - 1) * math.exp(0.25))),
        (lambda: empty().bernoulli_(0.3), 0.3, math.sqrt(0.21)),
        (lambda: torch.bernoulli(torch.full((N,), 0.8, device=DEVICE)), 0.8, 0.4),
        (lambda: torch.normal(torch.full((N,), 1.0, device=DEVICE), 2.0), 1, 2),
        (lambda: torch.poisson(torch.full((N,), 3.0, device=DEVICE)), 3, math.sqrt(3)),
        (lambda: empty().random_(0, 10), 4.5, math.sqrt(99 / 12)),
    ],
    ids=[
        "rand",
        "randn",
        "randint",
        "uniform",
        "normal",
        "exponential",
        "geometric",
        "log_normal",
        "bernoulli_p",
        "bernoulli",
        "normal_tensor",
        "poisson",
        "random",
    ],
)
def test_moments(make, mean, deviation):
    sample = make().cpu().double()
    assert abs(sample.mean() - mean) < 5 * deviation / math.sqrt(N)
    assert abs(sample.std() - deviation) < 0.06 * deviation


def test_range_and_distribution():
    u = torch.rand(N, device=DEVICE).cpu()
    assert u.min() >= 0 and u.max() < 1
    counts = torch.histc(u, 10, 0, 1)
    assert ((counts - N / 10) ** 2 / (N / 10)).sum() < 40  # chi-squared, 9 degrees of freedom
    z = torch.randn(N, device=DEVICE).cpu()
    for limit in (0.5, 1, 2):
        assert abs((z < limit).double().mean() - 0.5 * (1 + math.erf(limit / math.sqrt(2)))) < 0.02
    assert abs(torch.corrcoef(torch.stack([z[:-1], z[1:]]))[0, 1]) < 0.04


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_dtypes(dtype):
    u = torch.rand(2000, dtype=dtype, device=DEVICE).cpu()
    assert u.dtype == dtype and u.min() >= 0 and u.max() < 1 and abs(u.double().mean() - 0.5) < 0.05


def test_repeatability():
    torch.manual_seed(7)
    a = [torch.rand(5, device=DEVICE), torch.randn(5, device=DEVICE)]
    torch.manual_seed(7)
    b = [torch.rand(5, device=DEVICE), torch.randn(5, device=DEVICE)]
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert not torch.equal(torch.rand(5, device=DEVICE), a[0])
    torch.manual_seed(8)
    assert not torch.equal(torch.rand(5, device=DEVICE), a[0])


def test_generator_argument():
    g = torch.Generator(device=DEVICE)
    assert g.device.type == DEVICE
    g.manual_seed(3)
    assert g.initial_seed() == 3
    default = MODULE.get_rng_state()
    a = torch.randn(4, device=DEVICE, generator=g)
    assert torch.equal(MODULE.get_rng_state(), default), "a generator of its own moved the default one"
    g.manual_seed(3)
    assert torch.equal(torch.randn(4, device=DEVICE, generator=g), a)
    state = g.get_state()
    b = torch.rand(4, device=DEVICE, generator=g)
    h = torch.Generator(device=DEVICE)
    h.set_state(state)
    assert torch.equal(torch.rand(4, device=DEVICE, generator=h), b)
    assert state.device.type == "cpu" and state.dtype == torch.uint8
    assert g.seed() != 3


@pytest.mark.skipif(ON_CPU, reason="states of accelerators")
def test_graph_safe_state():
    g = torch.Generator(device=DEVICE).manual_seed(5)
    torch.rand(3, device=DEVICE, generator=g)
    clone = g.clone_state()
    kept = g.graphsafe_get_state()
    want = torch.rand(3, device=DEVICE, generator=g)
    assert torch.equal(torch.rand(3, device=DEVICE, generator=clone), want)
    g.graphsafe_set_state(kept)
    with pytest.raises(RuntimeError):
        torch.rand(3, device=DEVICE, generator=torch.Generator())


def test_fork_rng():
    options = dict(devices=[]) if ON_CPU else dict(devices=[0], device_type=DEVICE)
    with torch.random.fork_rng(**options):
        a = torch.rand(4, device=DEVICE)
    assert torch.equal(torch.rand(4, device=DEVICE), a)


def test_permutations_and_multinomial():
    assert torch.equal(torch.randperm(50, device=DEVICE).sort()[0].cpu(), torch.arange(50))
    assert not torch.equal(torch.randperm(50, device=DEVICE).cpu(), torch.arange(50))
    p = torch.tensor([[0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]], device=DEVICE)
    s = torch.multinomial(p, 400, replacement=True).cpu()
    assert set(s[0].tolist()) == {1, 2} and set(s[1].tolist()) == {3}
    assert 140 < int((s[0] == 1).sum()) < 260
    w = torch.multinomial(torch.ones(5, 20, device=DEVICE), 20).cpu()
    assert torch.equal(w.sort(1)[0], torch.arange(20).expand(5, 20))


def test_dropout():
    x, m = torch.ones(2000, device=DEVICE), torch.nn.Dropout(0.25)
    masks = [m(x).cpu() for _ in range(4)]
    assert len({tuple(k[:64].tolist()) for k in masks}) == 4
    for k in masks:
        assert set(k.tolist()) == {0.0, torch.tensor(1 / 0.75).item()} and 1400 < int((k > 0).sum()) < 1600
    x = torch.ones(200, device=DEVICE, requires_grad=True)
    y = F.dropout(x, 0.5)
    y.sum().backward()
    assert torch.equal(x.grad, y)
    assert torch.equal(m.eval()(x), x)
    assert torch.equal(F.dropout(x, 1.0), torch.zeros_like(x))
    channels = F.dropout2d(torch.ones(4, 8, 3, 3, device=DEVICE), 0.5).cpu().flatten(2)
    assert (channels == channels[..., :1]).all()


def test_probabilities_change_without_repeating_masks():
    x = torch.ones(4000, device=DEVICE)
    for p in (0.1, 0.4, 0.7, 0.9):
        assert abs((F.dropout(x, p) > 0).float().mean().item() - (1 - p)) < 0.04


def test_initialisers():
    w = torch.empty(200, 100, device=DEVICE)
    torch.nn.init.xavier_uniform_(w)
    assert w.abs().max() <= math.sqrt(6 / 300) and abs(w.mean().item()) < 0.003
    torch.nn.init.kaiming_normal_(w)
    assert abs(w.std().item() / math.sqrt(2 / 100) - 1) < 0.05
    torch.nn.init.trunc_normal_(w, std=0.5, a=-1, b=1)
    assert w.abs().max() <= 1
    q = torch.nn.init.orthogonal_(torch.empty(6, 6, device=DEVICE)).cpu()
    torch.testing.assert_close(q @ q.t(), torch.eye(6), rtol=1e-4, atol=1e-5)


def test_distributions():
    from torch import distributions as D

    one = torch.tensor(1.0, device=DEVICE)
    for distribution, mean in (
        (D.Normal(one, one), 1), (D.Categorical(logits=torch.zeros(4, device=DEVICE)), 1.5), (D.Bernoulli(one / 4), 0.25), (D.Gamma(one * 2, one), 2), (D.Beta(one, one), 0.5),
    ):  # fmt: skip
        sample = distribution.sample((4000,))
        assert sample.device.type == DEVICE and abs(sample.float().mean().item() - mean) < 0.1, distribution
        assert torch.isfinite(distribution.log_prob(sample)).all()


@pytest.mark.parametrize("name", ["randn", "exponential", "cauchy", "log_normal", "gamma"])
def test_ends_of_the_unit_interval_are_never_reached(name):
    """A uniform number that rounds to 0 or 1 is an infinity or a zero here: about one in 2^24 where it can happen."""
    for _ in range(3):
        x = torch.empty(1 << 24, device=DEVICE)
        if name == "randn":
            x = torch.randn_like(x)
        elif name == "gamma":
            x = torch._standard_gamma(torch.full((1 << 20,), 3.0, device=DEVICE))
        else:
            getattr(x, name + "_")()
        assert torch.isfinite(x).all().item()
        assert name not in ("exponential", "gamma") or (x > 0).all().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
@pytest.mark.parametrize("name", ["geometric_", "log_normal_", "cauchy_", "normal_", "exponential_", "bernoulli_"])
def test_parameters_out_of_range(name, dtype):
    """Also those of a place where other values came before, which make the parameter a program's input."""

    def raised(device):
        x = torch.zeros(3, dtype=dtype, device=device)
        for p in (0.5, 0.25, 0.75, 0.125, -1.0, 0.0, float("nan"), 0.5):
            try:
                getattr(x, name)(*((p,) if name in ("geometric_", "exponential_", "bernoulli_") else (0, p)))
                yield None
            except Exception as error:
                yield type(error)

    assert list(raised(DEVICE)) == list(raised("cpu"))
