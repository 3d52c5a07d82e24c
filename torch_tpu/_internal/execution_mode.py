"""How eager operators run.

``DEFER_NEVER`` (strict, the default) launches each operator at once and does not wait.
``DEFER_NEVER_AND_LAUNCH_BLOCKING`` (debug) waits for each and checks what a device cannot. ``DEFER_AND_FUSE`` (fused)
gathers operators and compiles them together.

The mode is the process's: ``execution_mode.eager_mode = EagerMode.DEFER_AND_FUSE``, or for a block ``with
set_eager_mode(mode):``.
"""

from __future__ import annotations

import enum
import sys
import types

import torch

from torch_tpu import _C, _environment


class EagerMode(enum.Enum):
    DEFER_NEVER = 0
    DEFER_NEVER_AND_LAUNCH_BLOCKING = 1
    DEFER_AND_FUSE = 2


def get_eager_mode() -> EagerMode:
    return EagerMode(_C.get_eager_mode())


_step_hook = None


def _step_ended(*_: object) -> None:
    if not torch.compiler.is_compiling() and not _C.is_held():
        _C.flush()


def _flush_after_optimizer_steps() -> None:
    """A training step is what fused mode compiles as one program: it ends with the optimizer."""
    global _step_hook
    if _step_hook is None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        _step_hook = register_optimizer_step_post_hook(_step_ended)


class set_eager_mode:
    """Sets the mode at once; as a context manager it restores the previous one on leaving."""

    def __init__(self, mode: EagerMode) -> None:
        if not isinstance(mode, EagerMode):
            raise TypeError(f"expected an EagerMode, got {mode!r}")
        self.previous = get_eager_mode()
        if mode is EagerMode.DEFER_AND_FUSE:
            _flush_after_optimizer_steps()
        _C.set_eager_mode(mode.value)

    def __enter__(self) -> set_eager_mode:
        return self

    def __exit__(self, *exception: object) -> None:
        _C.set_eager_mode(self.previous.value)


def set_from_environment() -> None:
    if _environment.flag("TORCH_TPU_DEFER_AND_FUSE"):
        set_eager_mode(EagerMode.DEFER_AND_FUSE)
    if _environment.flag("TORCH_TPU_LAUNCH_BLOCKING") or _environment.flag("TORCH_TPU_ENABLE_DEBUG_CHECKS"):
        set_eager_mode(EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING)


class EagerModeProperty(types.ModuleType):
    """A module with ``eager_mode`` as a variable that can be read and assigned."""

    @property
    def eager_mode(self) -> EagerMode:
        return get_eager_mode()

    @eager_mode.setter
    def eager_mode(self, mode: EagerMode) -> None:
        set_eager_mode(mode)


sys.modules[__name__].__class__ = EagerModeProperty
