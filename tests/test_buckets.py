"""torch.compile(options={"buckets": [...]}): many sizes run through few programs, with exact results."""

import logging
import warnings

import pytest
import torch
from helpers import MANY_SIZES
from torch import nn

from torch_tpu import _C

TABLE = [16, 32, 48, 64, 80, 96, 112, 128]


@pytest.fixture(autouse=True)
def fresh_dynamo(monkeypatch):
    monkeypatch.setenv("TORCH_TPU_CACHE_DIR", "")
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", MANY_SIZES)
        yield


class Model(nn.Module):
    """Causal attention written out, a position table, layer norms, and a mean over the length."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.table, self.positions = nn.Embedding(11, width), nn.Embedding(128, width)
        self.norm, self.qkv, self.head = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, 5)

    def forward(self, tokens):
        batch, length = tokens.shape
        x = self.table(tokens) + self.positions(torch.arange(length, device=tokens.device))
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1)
        mask = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()
        x = x + (scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
        return self.head(x), x.mean(1), x.square().sum(1).amax(-1)


def compiled(function, **options):
    return torch.compile(function, dynamic=False, fullgraph=True, options={"buckets": TABLE, **options})


def mark(x, dim):
    torch._dynamo.mark_dynamic(x, dim)
    return x


def check_lengths(function, on_device, make, lengths, dim, programs):
    call = compiled(on_device)
    with torch.no_grad():
        compiles = 0
        for n in lengths:
            x = make(n)
            y = mark(x.to("tpu"), dim)
            before = _C.counters()["compiles"]
            want, got = function(x), call(y)
            compiles += _C.counters()["compiles"] - before  # without the copies to the host
            for w, g in zip(*(v if isinstance(v, tuple) else (v,) for v in (want, got)), strict=True):
                assert g.shape == w.shape
                torch.testing.assert_close(g.cpu(), w, rtol=1e-4, atol=1e-5)
        assert compiles <= programs


def test_a_hundred_lengths_run_through_eight_programs(caplog):
    torch.manual_seed(0)
    cpu = Model()
    on_device = Model().to("tpu")
    on_device.load_state_dict(cpu.state_dict())
    with caplog.at_level(logging.WARNING):
        check_lengths(cpu, on_device, lambda n: torch.randint(11, (2, n)), range(20, 120), 1, 8)
    assert "one program a size" not in caplog.text


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.exp() / x.exp().sum(0)).cumsum(1),
        lambda x: x.softmax(0) @ x.t(),
        lambda x: x.t() @ x,
        lambda x: x.mean(0) + x.amax(0) - x.amin(0),
        lambda x: torch.log_softmax(x, 0).sum(),
        lambda x: torch.nn.functional.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)),
        lambda x: (x / x)[:, :2].unsqueeze(0).expand(3, -1, -1).transpose(0, 1).mean((0, 1)),
        lambda x: torch.cat([x, x * 2], 1)[0],
    ],
)
def test_what_mixes_elements_along_the_size_is_exact(function):
    check_lengths(function, function, lambda n: torch.randn(n, 4), (9, 17, 30, 31, 64), 0, 3)


def test_what_has_no_rule_is_compiled_for_each_size(caplog):
    with caplog.at_level(logging.WARNING):
        check_lengths(lambda x: x.sort(0)[0], lambda x: x.sort(0)[0], lambda n: torch.randn(n, 4), (5, 9, 17), 0, 9)
    assert "aten::sort has no rule" in caplog.text


def test_sizes_beyond_the_table_have_their_own_programs():
    function = lambda x: x.sum(0)  # noqa: E731
    check_lengths(function, function, lambda n: torch.randn(n, 3), (100, 130, 140), 0, 3)


def test_a_table_is_a_list_of_sizes():
    with pytest.raises(ValueError, match="buckets is a list of sizes"):
        torch.compile(lambda x: x, backend="tpu", options={"buckets": "many"})


def test_training_where_the_size_leads():
    torch.manual_seed(0)
    cpu = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    on_device = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to("tpu")
    on_device.load_state_dict(cpu.state_dict())
    call = compiled(on_device)
    for n in (9, 12, 15):
        x = torch.randn(n, 4)
        cpu(x).square().sum().backward()
        call(mark(x.to("tpu"), 0)).square().sum().backward()
    for p, q in zip(cpu.parameters(), on_device.parameters(), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-4, atol=1e-5)
