"""Copies between devices and dtypes: offsets, strides, ownership, layout."""

import numpy
import pytest
import torch
from helpers import DEVICE, ON_CPU, both, same, up

KINDS = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


@pytest.mark.parametrize("dtype", [*KINDS, torch.complex64, torch.complex128], ids=str)
def test_round_trip(dtype):
    x = torch.tensor([[0, 1, 100], [7, 3, 2]]).to(dtype)
    assert torch.equal(up(x).cpu(), x)
    assert torch.equal(up(x.t()).cpu(), x.t()) and up(x.t()).stride() == x.t().stride()
    assert torch.equal(up(x)[:, 1].cpu(), x[:, 1])


@pytest.mark.parametrize("source", KINDS, ids=str)
def test_casts(source):
    x = torch.tensor([0.0, 1.0, 5.3, 2.7, 100.9]).to(source)
    for target in KINDS:
        same(up(x).to(target), x.to(target), f"{source} to {target}")
    same(up(x).cpu().to(torch.float32).to(DEVICE), x.float())


def test_cast_and_move_at_once():
    x = torch.arange(12).view(3, 4)
    same(x[1:].to(DEVICE, torch.float32), x[1:].float())
    assert torch.equal(up(x)[1, 2:].to("cpu", torch.int16), x[1, 2:].short())
    assert torch.equal(up(x).t().to("cpu", torch.float64), x.t().double())


def test_offset_views():
    h = torch.arange(12)
    d = up(h)
    same(up(h[5:9]), h[5:9])
    same(d[5:9].float(), h[5:9].float())
    assert torch.equal(d[7:].cpu(), h[7:])
    out = torch.zeros(6, device=DEVICE)
    out[2:5] = d[6:9]
    same(out, torch.tensor([0.0, 0, 6, 7, 8, 0]))


def test_upload_into_part_and_download_into_gaps():
    d = torch.zeros(4, 6, device=DEVICE)
    d[1:3, ::2] = torch.arange(6.0).view(2, 3)
    want = torch.zeros(4, 6)
    want[1:3, ::2] = torch.arange(6.0).view(2, 3)
    same(d, want)
    source, parent = torch.arange(27.0, device=DEVICE).add_(1)[::3], torch.full((27,), -1.0)
    parent[::3].copy_(source)
    want = torch.full((27,), -1.0)
    want[::3] = torch.arange(1.0, 28.0, 3)
    assert torch.equal(parent, want)


def test_host_memory_is_read_before_return():
    for blocking in (False, True):
        host = torch.arange(10000.0)
        d = host.to(DEVICE, non_blocking=not blocking, copy=True)
        host.fill_(-1)
        same(d, torch.arange(10000.0))


@pytest.mark.skipif(ON_CPU, reason="the CPU's own memory")
def test_device_memory_is_copied():
    d = torch.arange(6.0, device=DEVICE)
    host = d.cpu()
    d.zero_()
    assert torch.equal(host, torch.arange(6.0))
    host.fill_(9)
    same(d, torch.zeros(6))


def test_device_to_device():
    d = torch.arange(6.0, device=DEVICE).view(2, 3)
    c = d.clone()
    d.zero_()
    same(c, torch.arange(6.0).view(2, 3))
    assert d.to(DEVICE) is d and d.to(DEVICE, copy=True) is not d and d.contiguous() is d
    e = torch.empty(3, 2, device=DEVICE).t()
    e.copy_(c)
    same(e, torch.arange(6.0).view(2, 3))


def test_numpy_geometries():
    a = numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)
    for view in (a.T, a[:, 1], a[..., ::2], a.transpose(1, 2, 0)):
        same(torch.from_numpy(view).to(DEVICE), torch.from_numpy(numpy.ascontiguousarray(view)))
    assert numpy.array_equal(up(torch.from_numpy(a)).cpu().numpy(), a)
    if not ON_CPU:
        with pytest.raises(TypeError, match="cpu"):
            up(torch.ones(2)).numpy()


def test_channels_last():
    x = torch.arange(48.0).view(2, 3, 2, 4).to(memory_format=torch.channels_last)
    d = up(x)
    assert d.stride() == x.stride() and d.is_contiguous(memory_format=torch.channels_last)
    same(d + 1, x + 1, stride=True)
    same(torch.cat([d, d + 1], 1), torch.cat([x, x + 1], 1))
    same(d.contiguous(), x.contiguous(), stride=True)
    assert d.cpu().stride() == x.stride()
    weight = torch.rand(2, 3, 1, 1)
    both(lambda a, w: torch.nn.functional.conv2d(a, w), x, weight)
    both(lambda a: torch.nn.functional.max_pool2d(a, 2), x)
    same(up(x.contiguous()).to(memory_format=torch.channels_last), x, stride=True)
    volume = torch.rand(1, 2, 2, 3, 2).to(memory_format=torch.channels_last_3d)
    same(up(volume), volume, stride=True)


def test_pinned_memory():
    if ON_CPU:
        pytest.skip("the CPU needs none")
    p = torch.arange(6.0).pin_memory()
    assert p.is_pinned() and not torch.ones(3).is_pinned() and p.device.type == "cpu"
    same(p.to(DEVICE, non_blocking=True), torch.arange(6.0))
    assert torch.ones(2, pin_memory=True).is_pinned()


def test_empty_and_zero_dimensional():
    assert up(torch.empty(0, 3)).cpu().shape == (0, 3)
    assert up(torch.tensor(5)).cpu() == 5
    same(up(torch.rand(2, 3))[:0].clone(), torch.rand(2, 3)[:0])


def test_tensor_and_module_shortcuts():
    if ON_CPU:
        pytest.skip("names of the device")
    x = torch.arange(3.0)
    same(x.tpu(), x)
    assert x.tpu().is_tpu and not x.is_tpu
    assert next(torch.nn.Linear(2, 2).tpu().parameters()).is_tpu
    assert torch.equal(x.to("tpu").to("cpu"), x)


def test_lazy_bits_survive_moves():
    z = torch.tensor([1 + 2j, 3 - 1j])
    same(up(z.conj()).resolve_conj(), z.conj().resolve_conj())
    assert torch.equal(up(z).conj().cpu().resolve_conj(), z.conj().resolve_conj())
    assert torch.equal(up(z).conj().imag.cpu().resolve_neg(), z.conj().imag.resolve_neg())


def test_large_copies_are_of_the_moment():
    """Memory of large arrays is used again when its array is gone, and never before."""
    for i in range(20):
        host = torch.full((1 << 21,), float(i))
        there = host.to(DEVICE)
        host.fill_(-1)
        twice, kept = there * 2, there[5:9]
        del there
        assert (twice.cpu() == 2 * i).all() and kept.tolist() == [i] * 4
    x = torch.arange(3 << 20, dtype=torch.float32)
    weight = torch.nn.Parameter(x.to(DEVICE))
    optimizer = torch.optim.SGD([weight], 0.5)
    for _ in range(3):
        weight.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert torch.equal(weight.detach().cpu(), x - 1.5)
    batches = [torch.full((1 << 20,), i) for i in range(8)]
    assert [int(t.sum()) for t in [b.to(DEVICE) for b in batches]] == [i << 20 for i in range(8)]
