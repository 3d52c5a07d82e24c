"""Views share storage: reading them, and writing through them, on either side."""

import numpy
import pytest
import torch
from helpers import DEVICE, both, same, up

VIEWS = dict(
    slice=lambda t: t[1:3],
    step=lambda t: t[::2, 1::2],
    transpose=lambda t: t.t(),
    view=lambda t: t.view(2, 12),
    narrow=lambda t: t.narrow(1, 2, 3),
    diagonal=lambda t: t.diagonal(1),
    select=lambda t: t.select(1, 4),
    select_negative=lambda t: t[-1, -2:],
    unsqueeze=lambda t: t.unsqueeze(0)[:, 1],
    squeeze=lambda t: t[1:2].squeeze(0),
    split=lambda t: t.split(2, 1)[1],
    chunk=lambda t: t.chunk(2)[1],
    unbind=lambda t: t.unbind(0)[3],
    as_strided=lambda t: t.as_strided((2, 3), (6, 2), 3),
    permute=lambda t: t.view(2, 2, 6).permute(2, 0, 1)[4],
    movedim=lambda t: t.view(2, 2, 6).movedim(0, 2)[1],
    unflatten=lambda t: t.unflatten(1, (2, 3))[:, 1],
    flatten=lambda t: t.view(2, 2, 6).flatten(1)[1],
    chain=lambda t: t.t()[1:4].view_as(t.t()[1:4]).transpose(0, 1)[2],
    detach=lambda t: t.detach()[0],
    swapaxes=lambda t: t.swapaxes(0, 1)[2:4, ::3],
    unfold=lambda t: t.view(-1).unfold(0, 4, 4)[1],
    tensor_split=lambda t: t.tensor_split((1, 4), 1)[1],
    real_of_pair=lambda t: torch.view_as_complex(t.view(4, 3, 2)).real,
)  # fmt: skip


def base():
    return torch.arange(24.0).view(4, 6)


@pytest.mark.parametrize("name", VIEWS)
def test_read(name):
    both(lambda t: VIEWS[name](t) * 2, base())
    want = VIEWS[name](base())
    got = VIEWS[name](up(base()))
    assert (got.stride(), got.storage_offset()) == (want.stride(), want.storage_offset())


@pytest.mark.parametrize("name", VIEWS)
def test_write_reaches_base_and_base_reaches_view(name):
    def program(t):
        view = VIEWS[name](t)
        view.add_(1)
        t.mul_(2)
        view.copy_(torch.full(view.shape, 5.0, device=t.device))
        t[0].sub_(3)
        return view.clone()

    both(program, base())


def test_two_views_of_one_storage_see_each_other():
    def program(t):
        rows, columns = t[1:3], t[:, 2:4]
        rows.fill_(-1)
        columns.mul_(10)
        return rows.clone(), columns.clone(), t.t()[2].clone()

    both(program, base())


def test_expanded_reads_and_refuses_overlapping_writes():
    both(lambda t: t[:, :1].expand(4, 5) + t[0, :5], base())
    with pytest.raises(RuntimeError):
        up(base())[:, :1].expand(4, 5).add_(1)


def test_views_of_views_of_strided_storage():
    def program(t):
        v = t.view(2, 3, 4).permute(2, 0, 1)[1:, :, ::2].transpose(0, 2)
        v[0] += 100
        v.select(1, 1).zero_()
        return v.clone()

    both(program, torch.arange(24.0))


def test_view_dtype():
    x = torch.arange(8, dtype=torch.int32)
    both(lambda t: t.view(torch.float32).view(torch.int32), x)
    both(lambda t: t.view(torch.int16), x)
    both(lambda t: t.view(torch.uint8)[4:8], x)
    both(lambda t: t.view(torch.int64), x)

    def write(t):
        t.view(torch.int16)[::2] = 7
        return t.clone()

    both(write, x)


def test_complex_views():
    z = torch.tensor([1 + 2j, 3 - 4j, -1j])
    both(lambda t: torch.view_as_real(t), z)
    both(lambda t: (t.real.clone(), t.imag.clone()), z)
    both(lambda t: t.conj() * t, z)
    both(lambda t: t.conj().imag + 0, z)
    both(lambda t: t.mH.clone(), z.view(1, 3))
    both(lambda t: torch.view_as_complex(t) * 1j, torch.arange(6.0).view(3, 2))

    def write(t):
        t.real.fill_(9)
        t.conj().imag.mul_(2)
        return t.clone()

    both(write, z)


def test_set_data_and_resize():
    def program(t):
        t.data = t.data[:4].clone()
        t.data = t.data[1:]
        return t * 2

    both(lambda t: program(t.clone()), torch.arange(10.0))

    def resize(t):
        u = t.clone().resize_(2, 3)
        v = t.clone()
        v.resize_(2)
        w = torch.empty(0, device=t.device).set_(t.untyped_storage(), 2, (3,), (2,))
        return u.clone(), v.clone(), w.clone()

    both(resize, torch.arange(10.0))
    t = torch.arange(4.0, device=DEVICE)
    t.untyped_storage().resize_(32)
    same(t, torch.arange(4.0))
    t.resize_(6)
    same(t[:4], torch.arange(4.0))


def test_storage_identity():
    t = torch.zeros(4, 6, device=DEVICE)
    assert t.data_ptr() and t[1].data_ptr() - t.data_ptr() == 6 * 4
    assert t[1:].untyped_storage().data_ptr() == t.untyped_storage().data_ptr()
    assert t.t()._is_view() and t.t()._base is t
    assert torch.zeros(2, device=DEVICE).data_ptr() != t.data_ptr()
    assert torch.zeros(0, device=DEVICE).data_ptr() == 0


def test_moving_positions():
    both(lambda t: torch.stack([t[i] * i for i in range(4)]), base())

    def fill(t):
        for i in range(4):
            t[i, i + 1] = float(i)
            t[:, i] += 1
        return t.clone()

    both(fill, base())


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16, torch.uint8, torch.bool], ids=str)
def test_small_writes_spill_nowhere(dtype):
    def program(t):
        t[1].zero_()
        t[3].fill_(1)
        t[4:6].mul_(t[1])
        t[7:] = t[:1]
        return t.clone()

    both(program, torch.ones(8).to(dtype))


def test_against_numpy_geometry():
    """Random basic indexing of a 3-d array is NumPy's."""
    generator = numpy.random.default_rng(0)
    array = numpy.arange(60, dtype=numpy.float32).reshape(3, 4, 5)
    tensor = torch.tensor(array, device=DEVICE)
    for _ in range(12):
        index = tuple(
            int(generator.integers(0, n))
            if generator.random() < 0.3
            else slice(int(generator.integers(0, n)), n, int(generator.integers(1, 3)))
            for n in array.shape
        )
        assert numpy.array_equal(tensor[index].cpu().numpy(), array[index]), index
