"""Registers the device with PyTorch, once. Creates no client, imports no Dynamo, prints nothing."""

from __future__ import annotations

import atexit
import sys
import threading

import torch

from torch_tpu import _environment

_lock = threading.Lock()
_loaded = False


def load() -> None:
    """Makes ``torch.device("tpu")`` work in this process. Calling it again does nothing.

    Raises RuntimeError when another out-of-tree backend has taken PyTorch's one place for such devices.
    """
    global _loaded
    with _lock:
        if not _loaded:
            _register()
            _loaded = True


def autoload() -> None:
    """load(), except beside another accelerator: that stays PyTorch's accelerator unless a TPU is attached or
    TORCH_TPU_PJRT_PLUGIN asks for this device."""
    if _environment.text("TORCH_TPU_PJRT_PLUGIN") or not _other_accelerator():
        load()
        return
    from torch_tpu import _C

    if torch._C._get_privateuse1_backend_name() == "privateuseone" and _C.tpu_attached():
        load()


def _other_accelerator() -> bool:
    if torch._C._get_privateuse1_backend_name() not in ("privateuseone", "tpu"):
        return True
    if torch.version.cuda or torch.version.hip:
        return torch.cuda.device_count() > 0  # asks NVML, so that a fork later still works
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator is not None and accelerator.type != "tpu"


def _register() -> None:
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", "tpu"):
        raise RuntimeError(
            f"device tpu cannot be registered: PyTorch has room for one such backend, and {taken!r} is there"
        )
    from torch_tpu import _C, _compile, _display, _dlpack, _plugins, _processes

    _plugins.announce()
    torch.utils.rename_privateuse1_backend("tpu")
    _C._register()
    from torch_tpu import tpu

    torch._register_device_module("tpu", tpu)
    for name in [name for name in sys.modules if name.startswith("torch_tpu.tpu.")]:
        sys.modules["torch." + name.removeprefix("torch_tpu.")] = sys.modules[name]
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    _dlpack.install()
    _display.install()
    _compile.install()
    _processes.install()
    atexit.register(_C.settle_autograd_threads)
    _apply_environment()


def _apply_environment() -> None:
    from torch_tpu import _C
    from torch_tpu._internal import execution_mode

    execution_mode.set_from_environment()
    ignored = _environment.check()
    directory = _environment.text("TORCH_TPU_DUMP_DIR")
    if directory and "TORCH_TPU_DUMP_DIR" not in ignored:
        _C.set_dump_directory(directory)
