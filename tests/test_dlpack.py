"""DLPack shares memory with who can read it, or refuses politely."""

import numpy
import pytest
import torch
from helpers import DEVICE, ON_CPU, same

POLITE = (BufferError, RuntimeError, TypeError, NotImplementedError, ValueError)


def test_device_is_told():
    kind, index = torch.ones(2, device=DEVICE).__dlpack_device__()
    assert index == 0 and (ON_CPU or int(kind) != 0)


def test_round_trip_shares():
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    try:
        y = torch.from_dlpack(x)
    except POLITE:
        return
    assert y.device == x.device
    x.add_(1)
    same(y, x.cpu())


def test_numpy_shares_or_is_refused():
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    try:
        a = numpy.from_dlpack(x)
    except POLITE:
        return
    assert a.tolist() == x.tolist()


def test_from_the_host():
    a = numpy.arange(4.0)
    t = torch.from_dlpack(a)
    same(t.to(DEVICE), torch.arange(4.0, dtype=torch.float64))


@pytest.mark.skipif(ON_CPU, reason="two devices")
def test_to_the_host():
    x = torch.arange(4.0, device=DEVICE)
    try:
        y = torch.from_dlpack(x, device="cpu", copy=True)
    except POLITE:
        return
    assert y.device.type == "cpu" and y.tolist() == [0, 1, 2, 3]
