"""DLPack for tensors of this device.

A tensor is exported as device kDLExtDev: other tensors of this device can share its storage. Its address is not
memory that other libraries may read; they get a copy by asking for the CPU (``numpy.from_dlpack(t, device="cpu")``,
``torch.from_dlpack(t, device="cpu")``).
"""

from __future__ import annotations

import functools

import torch


def install() -> None:
    """PyTorch's ``__dlpack_device__`` does not know devices that were renamed (torch 2.13 compares with
    "privateuse1")."""
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def __dlpack_device__(self: torch.Tensor):
        if type(self) is torch.Tensor and self.device.type == "tpu":
            return torch._C._torchDeviceToDLDevice(self.device)
        return original(self)

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
