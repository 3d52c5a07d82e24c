"""Tensors made on the device: values, dtype, shape, layout."""

import pytest
import torch
from helpers import DEVICE, both, same, up

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_constant_factories(dtype):
    for make in (torch.zeros, torch.ones):
        same(make(2, 3, dtype=dtype, device=DEVICE), make(2, 3, dtype=dtype), make.__name__)
    same(torch.full((2, 3), 1, dtype=dtype, device=DEVICE), torch.full((2, 3), 1, dtype=dtype))
    assert torch.empty(2, 3, dtype=dtype, device=DEVICE).dtype == dtype


def test_default_dtypes():
    for make in (
        lambda d: torch.ones(2, device=d),
        lambda d: torch.full((2,), 3, device=d),
        lambda d: torch.full((2,), 2.5, device=d),
        lambda d: torch.full((2,), True, device=d),
        lambda d: torch.tensor([1, 2], device=d),
        lambda d: torch.tensor([1.5, 2], device=d),
        lambda d: torch.tensor([True], device=d),
        lambda d: torch.tensor(3j, device=d),
        lambda d: torch.scalar_tensor(4, device=d),
    ):
        same(make(DEVICE), make("cpu"))


def test_ranges():
    for make in (
        lambda d: torch.arange(7, device=d),
        lambda d: torch.arange(1, 10, 3, device=d),
        lambda d: torch.arange(5, -3, -2, device=d),
        lambda d: torch.arange(0.0, 1.0, 0.25, device=d),
        lambda d: torch.arange(0, device=d),
        lambda d: torch.linspace(-1, 1, 5, device=d),
        lambda d: torch.logspace(0, 2, 3, device=d),
        lambda d: torch.linspace(1 + 2j, 3 - 1j, 6, device=d, dtype=torch.complex64),
        lambda d: torch.linspace(
            torch.tensor(2j, device=d), torch.tensor(3.0, device=d), 1, dtype=torch.complex64, device=d
        ),
        lambda d: torch.logspace(0.5j, 1, 5, device=d, dtype=torch.complex64),
        lambda d: torch.linspace(0.5, 2.7, 5, device=d, dtype=torch.int64),
        lambda d: torch.logspace(-2.5, torch.tensor(4.3, device=d), 4, device=d, dtype=torch.int32),
        lambda d: torch.eye(3, 4, device=d),
        lambda d: torch.tril_indices(3, 3, device=d),
        lambda d: torch.triu_indices(3, 4, device=d),
    ):
        same(make(DEVICE), make("cpu"))


def test_like_and_new():
    x = torch.arange(24.0).view(2, 3, 4).permute(2, 0, 1)
    for make in (
        torch.zeros_like,
        torch.ones_like,
        lambda t: torch.full_like(t, 7),
        lambda t: torch.zeros_like(t, dtype=torch.int32),
        lambda t: torch.ones_like(t, memory_format=torch.contiguous_format),
        lambda t: t.new_zeros(3, 2),
        lambda t: t.new_ones((2,), dtype=torch.int64),
        lambda t: t.new_full((2, 2), 5),
        lambda t: t.new_tensor([1, 2]),
    ):
        same(make(up(x)), make(x), stride=True)
    assert torch.empty_like(up(x)).stride() == torch.empty_like(x).stride()
    assert torch.rand_like(up(x)).shape == x.shape


def test_empty_with_strides():
    t = torch.empty_strided((3, 2), (1, 4), device=DEVICE)
    assert (
        t.stride() == (1, 4)
        and t.untyped_storage().nbytes() == torch.empty_strided((3, 2), (1, 4)).untyped_storage().nbytes()
    )
    t.fill_(2)
    same(t, torch.full((3, 2), 2.0))
    assert (
        torch.empty_permuted((2, 3, 4), (2, 0, 1), device=DEVICE).stride()
        == torch.empty_permuted((2, 3, 4), (2, 0, 1)).stride()
    )


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1)], ids=str)
def test_unusual_shapes(shape):
    for make in (torch.zeros, torch.ones):
        same(make(shape, device=DEVICE), make(shape))
    assert torch.rand(shape, device=DEVICE).shape == shape


def test_device_spellings():
    for device in (DEVICE, f"{DEVICE}:0", torch.device(DEVICE), torch.device(DEVICE, 0)):
        assert torch.ones(1, device=device).device.type == DEVICE
    with torch.device(DEVICE):
        assert torch.ones(1).device.type == DEVICE and torch.tensor([1, 2]).device.type == DEVICE
    assert torch.ones(1).device.type == "cpu"


def test_default_device():
    torch.set_default_device(DEVICE)
    try:
        made = [torch.zeros(2), torch.arange(3), torch.nn.Linear(2, 2).weight]
    finally:
        torch.set_default_device(None)
    assert all(t.device.type == DEVICE for t in made)


def test_from_python_and_numpy():
    import numpy

    same(torch.tensor([[1, 2], [3, 4]], device=DEVICE), torch.tensor([[1, 2], [3, 4]]))
    same(
        torch.as_tensor(numpy.arange(6.0).reshape(2, 3), device=DEVICE),
        torch.arange(6.0, dtype=torch.float64).view(2, 3),
    )
    t = torch.ones(2, device=DEVICE)
    assert torch.as_tensor(t, device=DEVICE) is t


def test_meshgrid_and_combinations():
    both(lambda a, b: list(torch.meshgrid(a, b, indexing="ij")), torch.arange(3), torch.arange(2))
    both(torch.cartesian_prod, torch.arange(3), torch.arange(2))
    both(torch.combinations, torch.arange(4))
    both(torch.block_diag, torch.ones(2, 2), torch.full((1, 2), 3.0))
    both(torch.complex, torch.ones(3), torch.arange(3.0))
    both(torch.polar, torch.ones(3), torch.arange(3.0))
