"""Tensors on their way to another process: the device's memory is this process's alone, so they do not get there."""

from __future__ import annotations

import threading
from multiprocessing import reduction
from typing import Any

import torch

_MESSAGE = (
    "a tensor of device tpu cannot be sent to another process, because its memory is this process's alone: send "
    'tensor.cpu(), and use .to("tpu") where it arrives (a DataLoader\'s data set gives CPU tensors when it has workers)'
)


def refuse(message: str) -> None:
    """What arrives in a tensor's place, where its sender could not be told: RuntimeError with this message."""
    raise RuntimeError(message)


def _sends_in_the_background() -> bool:
    """Whether this thread is a queue's own, whose errors nobody waits for: the receiver would wait for ever."""
    return threading.current_thread().name == "QueueFeederThread"


def install() -> None:
    """Puts a check of the device in front of the way that torch.multiprocessing sends storages."""
    table = reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    send = table.get(torch.UntypedStorage)
    if send is None:  # torch.multiprocessing is not there
        return

    def send_or_refuse(storage: torch.UntypedStorage) -> Any:
        if storage.device.type != "tpu":
            return send(storage)
        if _sends_in_the_background():
            return refuse, (_MESSAGE,)
        raise RuntimeError(_MESSAGE)

    reduction.register(torch.UntypedStorage, send_or_refuse)
