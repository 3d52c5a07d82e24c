"""Waiting for the device."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from torch_tpu import _C


def synchronize(tensors: torch.Tensor | Iterable[torch.Tensor] | None = None, wait: bool = True) -> None:
    """Launches what is pending and, with `wait`, waits for it: on the devices of `tensors`, else on the current device.

    Errors of the computations that are waited for are raised here.
    """
    if not wait:
        return  # every operator has been launched already, or is launched when a value is needed
    if tensors is None:
        _C.synchronize(-1)
        return
    listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    for index in {tensor.device.index for tensor in listed if tensor.device.type == "tpu"}:
        _C.synchronize(index)
