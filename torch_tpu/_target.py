"""What programs are being made for: the device of this process, or one that is not attached."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

# What PJRT calls the devices of a generation.
DEVICE_KINDS = {"v4": "TPU v4", "v5e": "TPU v5 lite", "v5p": "TPU v5", "v6e": "TPU v6 lite", "tpu7x": "TPU7x"}


class Target(NamedTuple):
    platform: str  # "tpu" or "cpu", as PJRT calls it
    device_kind: str  # "TPU v5 lite"


_other: Target | None = None  # for all threads: autograd's record the backward


def current() -> Target:
    """The target now. Outside `compiling_for`, that is the runtime's device, whose client this creates."""
    if _other is not None:
        return _other
    from torch_tpu import _C, tpu

    tpu.init()
    return Target(_C.platform(), tpu.get_device_properties(0).name)


@contextlib.contextmanager
def compiling_for(platform: str, device_kind: str) -> Iterator[None]:
    """Programs recorded within are for this kind of device."""
    from torch_tpu import _C

    global _other
    outer, _other = _other, Target(platform, device_kind)
    before = _C.set_ahead(platform == "tpu")
    try:
        yield
    finally:
        _C.set_ahead(before)
        _other = outer
