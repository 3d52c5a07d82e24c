"""``torch.tpu``: what ``torch.cuda`` is for CUDA devices, for device "tpu".

A name means what the same name means in ``torch.cuda``. Asking about devices creates no client; using one does.
"""

# ruff: noqa: F401 (the names of this module are its interface)
from __future__ import annotations

import importlib.util
import pathlib
import sys
from typing import Any

import torch

from torch_tpu import _C
from torch_tpu._internal.execution_mode import EagerMode, EagerModeProperty, set_eager_mode

from . import devices, memory, random, settings, streams
from .devices import (
    _device_index,
    _exchange_device,
    _lazy_init,
    _maybe_exchange_device,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    plugin_path,
    set_device,
    synchronize,
)
from .memory import (
    _hbm_usage_summary,
    empty_cache,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
)
from .random import (
    _get_generator,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .settings import (
    CacheStats,
    Precision,
    _get_cache_stats,
    diagnostics,
    get_amp_supported_dtype,
    get_precision,
    is_bf16_supported,
    precision,
    set_precision,
)
from .streams import (
    Event,
    Stream,
    StreamContext,
    TpuEvent,
    TpuStream,
    TpuStreamContext,
    current_stream,
    default_stream,
    ipc_collect,
    is_current_stream_capturing,
    set_stream,
    stream,
)

is_initialized = _C.is_initialized
_is_in_bad_fork = _C.is_in_bad_fork
has_half = True


def export(model: Any, args: Any = (), path: Any = None, **options: Any) -> pathlib.Path:
    """``torch.tpu.export(exported_program, path)``: see torch_tpu.export.export."""
    from torch_tpu.export import export as write

    return write(model, args, path, **options)


class _TpuModule(EagerModeProperty):
    """The module's variables that are computed when read."""

    @property
    def _initialized(self) -> bool:
        # torch.utils.checkpoint saves and restores random state only where this is true.
        return _C.is_initialized()

    @property
    def default_generators(self) -> tuple[torch.Generator, ...]:
        return random.default_generators()

    @property
    def allow_excess_precision(self) -> bool:
        return settings.allow_excess_precision()

    @allow_excess_precision.setter
    def allow_excess_precision(self, allow: bool) -> None:
        settings.set_allow_excess_precision(allow)


sys.modules[__name__].__class__ = _TpuModule


def _add_lazily(name: str) -> None:
    """A submodule whose code runs when something of it is first used: it may need what importing torch must not
    load."""
    full = f"{__name__}.{name}"
    spec = importlib.util.find_spec(full)
    if spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    globals()[name] = module


for _name in ("aot", "compiler", "pallas"):
    _add_lazily(_name)

_NOT_OURS = ("Any", "annotations", "importlib", "pathlib", "sys", "torch")
__all__ = [name for name in globals() if not name.startswith("_") and name not in _NOT_OURS]
