"""Memory of devices: what tensors hold, as PyTorch's allocator statistics, and what the plugin itself says.

Nothing is cached: a device array is freed with its last reference, so reserved memory is allocated memory.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from torch_tpu import _C

from .devices import _device_index


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """Counts and bytes by pool and kind, under torch.cuda.memory_stats' names."""
    return torch.accelerator.memory.memory_stats(_device_index(device))


def memory_allocated(device: Any = None) -> int:
    """Bytes of the live tensors' storages."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device: Any = None) -> int:
    """The most that memory_allocated was since the start or reset_peak_memory_stats."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: Any = None) -> int:
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device: Any = None) -> int:
    return memory_stats(device)["reserved_bytes.all.peak"]


memory_cached = memory_reserved
max_memory_cached = max_memory_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    torch.accelerator.memory.reset_peak_memory_stats(_device_index(device))


reset_max_memory_allocated = reset_peak_memory_stats
reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    torch.accelerator.memory.reset_accumulated_memory_stats(_device_index(device))


def empty_cache() -> None:
    """Frees what is kept for later use: nothing is, so there is nothing to do."""


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of a device: the plugin's numbers, else the host's, where arrays are host memory."""
    return torch._C._accelerator_getMemoryInfo(_device_index(device))


_ROWS = (
    ("Allocated memory", "allocated_bytes", True),
    ("Active memory", "active_bytes", True),
    ("Reserved memory", "reserved_bytes", True),
    ("Allocations", "allocation", False),
)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """memory_stats as a table for reading."""
    index = _device_index(device)
    stats = memory_stats(index)
    pools = ("all",) if abbreviated else ("all", "large_pool", "small_pool")
    lines = [
        f"torch.tpu memory summary, device {index}",
        f"{'':<28}{'current':>14}{'peak':>14}{'allocated':>14}{'freed':>14}",
    ]
    for title, key, is_bytes in _ROWS:
        for pool in pools:
            values = [stats[f"{key}.{pool}.{kind}"] for kind in ("current", "peak", "allocated", "freed")]
            label = title if pool == "all" else f"  from {pool.replace('_', ' ')}"
            lines.append(f"{label:<28}" + "".join(f"{_bytes(v) if is_bytes else v:>14}" for v in values))
    lines.append(f"Out of memory: {stats['num_ooms']}")
    return "\n".join(lines)


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _hbm_usage_summary(device: Any = None) -> str:
    """One line: the tensors' bytes, and the plugin's own use, peak and limit where it tells them."""
    index = _device_index(device)
    plugin = _C.device_memory(index)
    told = ", ".join(f"{name} {_bytes(value)}" for name, value in plugin.items() if value >= 0)
    return f"tpu:{index}: tensors {_bytes(memory_allocated(index))}, peak {_bytes(max_memory_allocated(index))}" + (
        f"; plugin: {told}" if told else ""
    )
