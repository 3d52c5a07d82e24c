"""What Dynamo asks of the device "tpu": the interface that torch.tpu already has."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo import device_interface

from torch_tpu import tpu


class DeviceInterface(device_interface.DeviceInterface):
    """Answers from `torch.tpu`."""

    Event = torch.Event  # type: ignore[assignment]
    Stream = torch.Stream  # type: ignore[assignment]

    class device:  # noqa: N801
        def __new__(cls, device: Any) -> Any:
            return tpu.device(device)

    class Worker:
        @staticmethod
        def set_device(device: int) -> None:
            tpu.set_device(device)

        @staticmethod
        def current_device() -> int:
            return tpu.current_device()

        @staticmethod
        def get_device_properties(device: Any = None) -> Any:
            return tpu.get_device_properties(device)

    @staticmethod
    def current_device() -> int:
        return tpu.current_device()

    @staticmethod
    def set_device(device: Any) -> None:
        tpu.set_device(device)

    @staticmethod
    def exchange_device(device: int) -> int:
        return tpu._exchange_device(device)

    @staticmethod
    def maybe_exchange_device(device: int) -> int:
        return tpu._maybe_exchange_device(device)

    @staticmethod
    def device_count() -> int:
        return tpu.device_count()

    @staticmethod
    def is_available() -> bool:
        return tpu.is_available()

    @staticmethod
    def stream(stream: torch.Stream) -> Any:
        return tpu.stream(stream)

    @staticmethod
    def current_stream() -> torch.Stream:
        return tpu.current_stream()

    @staticmethod
    def set_stream(stream: torch.Stream) -> None:
        tpu.set_stream(stream)

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return 0  # one stream a device

    @staticmethod
    def synchronize(device: Any = None) -> None:
        tpu.synchronize(device)

    @staticmethod
    def get_compute_capability(device: Any = None) -> str:
        return tpu.get_device_name(device)

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True

    @classmethod
    def is_dtype_supported(cls, dtype: torch.dtype, including_emulation: bool = False) -> bool:
        return dtype != torch.complex32

    @staticmethod
    def memory_allocated(device: Any = None) -> int:
        return tpu.memory_allocated(device)
