"""Streams and events. A device has one order of work: every stream is that order under a name of its own."""

from __future__ import annotations

from typing import Any

import torch

from torch_tpu import _C

from .devices import _device_index


class TpuStream(torch.Stream):
    """A stream of a device. Work is done in the order of launching whatever stream it was launched on.

    Args:
        device: where; the current device by default.
        priority: accepted and without effect.
    """

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> TpuStream:
        if {"stream_id", "device_index", "device_type"} <= kwargs.keys():
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device=torch.device("tpu", _device_index(device)), priority=priority, **kwargs)

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Records an event, a new one by default, and returns it."""
        recorded: Any = TpuEvent() if event is None else event
        recorded.record(self)
        return recorded

    @property
    def tpu_stream(self) -> int:
        return self.stream_id

    def __repr__(self) -> str:
        return f"<torch.tpu.Stream device={self.device} id={self.stream_id}>"


class _EventType(type):
    """torch.Event's methods take events of exactly that type, so TpuEvent makes those instead of a subclass's."""

    def __call__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
        device: Any = None,
    ) -> torch.Event:
        if interprocess or external:
            raise NotImplementedError("events of device tpu cannot be shared with other processes or libraries")
        where = torch.device("tpu", _device_index(device))
        return torch.Event(device=where, enable_timing=enable_timing, blocking=blocking)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "tpu"


class TpuEvent(metaclass=_EventType):
    """A place in a device's order of work; ``TpuEvent(enable_timing=False, blocking=False, device=None)`` makes one.

    With ``enable_timing``, recording waits for the work before it, so that the time between two events is the time that
    the work between them took.
    """


Stream = TpuStream
Event = TpuEvent


def _wrap(stream: torch.Stream) -> TpuStream:
    return TpuStream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: Any = None) -> TpuStream:
    return _wrap(torch._C._accelerator_getStream(_device_index(device)))


def default_stream(device: Any = None) -> TpuStream:
    where = torch.device("tpu", _device_index(device))
    some = TpuStream(where)
    return TpuStream(stream_id=0, device_index=where.index, device_type=some.device_type)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes a stream, and its device, current in this thread. None changes nothing."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


class TpuStreamContext:
    """Makes a stream current inside a ``with`` block. None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.device = _C.get_device()
            self.previous_there = current_stream(self.stream.device)
            set_stream(self.stream)

    def __exit__(self, *exception: object) -> None:
        if self.stream is not None:
            set_stream(self.previous_there)
            _C.set_device(self.device)


StreamContext = TpuStreamContext


def stream(stream: torch.Stream | None) -> TpuStreamContext:
    return TpuStreamContext(stream)


def is_current_stream_capturing() -> bool:
    """Whether work is being recorded instead of run: never."""
    return False


def ipc_collect() -> None:
    """Releases memory shared with other processes: there is none."""
