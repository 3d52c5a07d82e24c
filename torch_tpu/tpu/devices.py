"""Devices: which there are, which is current, what they are."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from torch_tpu import _C


def _device_index(device: Any, optional: bool = True) -> int:
    """The index that an int, a string, a torch.device or None (the current device) names."""
    if device is None:
        if not optional:
            raise ValueError("expected a device, got None")
        return _C.get_device()
    if isinstance(device, bool) or not isinstance(device, (int, str, torch.device, _DeviceContext)):
        raise TypeError(f"expected an int, str or torch.device, got {device!r}")
    if isinstance(device, _DeviceContext):
        return device.idx
    if isinstance(device, int):
        return _C.get_device() if device == -1 else device
    named = torch.device(device)
    if named.type != "tpu":
        raise ValueError(f"expected a tpu device, got {named}")
    return _C.get_device() if named.index is None else named.index


class _DeviceContext:
    idx: int


class device(_DeviceContext):
    """Makes a device current inside a ``with`` block. A negative index and None change nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None or device == -1 else _device_index(device)
        self.previous = -1

    def __enter__(self) -> None:
        self.previous = _C.exchange_device(self.idx)

    def __exit__(self, *exception: object) -> None:
        _C.exchange_device(self.previous)


class device_of(device):
    """Makes the device of a tensor or storage current inside a ``with`` block; objects of other devices change
    nothing."""

    def __init__(self, obj: Any) -> None:
        where = getattr(obj, "device", None)
        super().__init__(where if where is not None and where.type == "tpu" else None)


def device_count() -> int:
    """Number of devices. Creates no client."""
    return _C.device_count()


def is_available() -> bool:
    """Whether there is a device, a TPU or the CPU plugin that stands in for it. Creates no client."""
    return _C.device_count() > 0


def current_device() -> int:
    """Index of this thread's current device."""
    return _C.get_device()


def set_device(device: Any) -> None:
    """Makes a device current in this thread. A negative index changes nothing."""
    _C.set_device(_device_index(device))


def _exchange_device(device: int) -> int:
    return _C.exchange_device(device)


def _maybe_exchange_device(device: int) -> int:
    return _C.exchange_device(device)


def synchronize(device: Any = None) -> None:
    """Waits for everything launched on a device. Errors of what is waited for are raised here."""
    _C.synchronize(_device_index(device))


def init() -> None:
    """Creates the client, which the first use of a device does anyway."""
    _C.initialize()


def _lazy_init() -> None:
    """What PyTorch calls before it asks anything of the device: Dynamo asks for the current stream even for a function
    on the CPU, so this creates no client. RuntimeError in the fork of a process that had used the device."""
    _C.lazy_init()


class _TpuDeviceProperties(NamedTuple):
    name: str
    platform: str
    platform_version: str
    description: str
    total_memory: int  # bytes
    multi_processor_count: int


def get_device_name(device: Any = None) -> str:
    """What really runs: "TPU v5 lite", or "cpu" on the CPU plugin."""
    return _C.device_kind(_checked(device))


def plugin_path() -> str:
    """Path of the PJRT plugin that is loaded, or would be on first use. RuntimeError where none is found."""
    return _C.plugin_path()


def get_device_properties(device: Any = None) -> _TpuDeviceProperties:
    """Name, platform, plugin version, the plugin's description, and memory of a device."""
    index = _checked(device)
    return _TpuDeviceProperties(
        name=_C.device_kind(index),
        platform=_C.platform(),
        platform_version=_C.platform_version(),
        description=_C.device_description(index),
        total_memory=torch._C._accelerator_getMemoryInfo(index)[1],
        multi_processor_count=1,
    )


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(generation of the TPU, 0): (5, 0) for a v5e; (0, 0) where the plugin names none."""
    digits = [c for c in get_device_name(device) if c.isdigit()]
    return (int(digits[0]), 0) if digits and _C.platform() == "tpu" else (0, 0)


def get_arch_list() -> list[str]:
    """Programs are compiled for the device that is there, so no list of architectures is built in."""
    return []


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether copies between two devices need no host."""
    return _checked(device) == _checked(peer_device)


def _checked(device: Any) -> int:
    index = _device_index(device)
    if not 0 <= index < _C.device_count():
        raise AssertionError(f"Invalid device id: there are {_C.device_count()} devices, got {device!r}")
    return index
