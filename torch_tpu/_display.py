"""Printing tensors of this device: PyTorch's printer looks at elements one by one, so it gets a copy on the host."""

from __future__ import annotations

import functools

import torch
from torch import _tensor_str


def install() -> None:
    original = _tensor_str._tensor_str

    @functools.wraps(original)
    def on_host(self: torch.Tensor, indent: int) -> str:
        return original(self.cpu() if self.device.type == "tpu" else self, indent)

    _tensor_str._tensor_str = on_host
