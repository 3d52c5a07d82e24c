"""How programs compute, and what has been computed."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import NamedTuple

import torch

from torch_tpu import _C, _recompiles


class Precision(enum.Enum):
    """Of float32 matrix products and convolutions on a TPU's matrix unit: one, three or six passes of bfloat16. CPUs
    compute in float32 whatever is set."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


def get_precision() -> Precision:
    return Precision(_C.get_precision())


def set_precision(mode: Precision) -> None:
    if not isinstance(mode, Precision):
        raise TypeError(f"expected a Precision, got {mode!r}")
    _C.set_precision(mode.value)


@contextlib.contextmanager
def precision(mode: Precision) -> Iterator[None]:
    """Sets the precision inside a ``with`` block."""
    before = get_precision()
    set_precision(mode)
    try:
        yield
    finally:
        set_precision(before)


_allow_excess = False


def allow_excess_precision() -> bool:
    return _allow_excess


def set_allow_excess_precision(allow: bool) -> None:
    """A permission for compilers to keep more precision than the program says. Programs round where PyTorch rounds,
    and make no use of the permission."""
    global _allow_excess
    if not isinstance(allow, bool):
        raise TypeError(f"expected a bool, got {allow!r}")
    _allow_excess = allow


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that torch.autocast("tpu") takes; bfloat16 is its default."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


class CacheStats(NamedTuple):
    """Requests to the cache of compiled programs, and how many of them found theirs."""

    num_cache_reqs: int
    num_cache_hits: int


def _get_cache_stats() -> CacheStats:
    counters = _C.counters()
    return CacheStats(counters["cache_requests"], counters["cache_hits"])


def diagnostics() -> dict[str, int]:
    """Counts since the process began: operator calls, cache requests and hits, compilations and their nanoseconds,
    launches, operators decomposed and run on the CPU, transfers, live bytes, and functions that torch.compile compiled
    again (torch.tpu.compiler.recompiles tells which, and why)."""
    return {**_C.counters(), "recompiles": _recompiles.count()}
