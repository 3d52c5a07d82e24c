"""Every environment variable that TorchTPU reads, declared once.

``python -m torch_tpu._environment`` prints docs/environment.md.
"""

from __future__ import annotations

import os
import warnings
from typing import NamedTuple


class Variable(NamedTuple):
    name: str
    default: str  # what holds when it is unset, in words
    meaning: str


TABLE = (
    Variable(
        "TORCH_TPU_PJRT_PLUGIN",
        "libtpu with a TPU attached, else the XLA CPU plugin",
        "The PJRT plugin to load: `cpu`, `tpu`, or a path. Wins over every other choice, and loads"
        " the device beside another accelerator.",
    ),
    Variable("TPU_LIBRARY_PATH", "the installed libtpu", "The path of the TPU's PJRT plugin."),
    Variable("TORCH_TPU_REQUIRE_TPU", "0", "`1`: no TPU is an error; the CPU plugin does not stand in for it."),
    Variable(
        "TORCH_TPU_DEVICES_PER_HOST",
        "1 on the CPU plugin, else what the plugin has",
        "Number of devices this process sees.",
    ),
    Variable("TORCH_TPU_DEFER_AND_FUSE", "0", "`1`: fused eager mode."),
    Variable("TORCH_TPU_LAUNCH_BLOCKING", "0", "`1`: debug eager mode: every operator is waited for."),
    Variable("TORCH_TPU_ENABLE_DEBUG_CHECKS", "0", "`1`: debug eager mode with its checks of indices and bounds."),
    Variable(
        "TORCH_TPU_CPU_FALLBACK",
        "1",
        "`0`: an operator with neither a lowering nor a decomposition is an error instead of running on the CPU.",
    ),
    Variable(
        "TORCH_TPU_CACHE_DIR",
        "`torch_tpu` in `XDG_CACHE_HOME`, else `.cache/torch_tpu` in `HOME`",
        "The directory of compiled programs; set empty: none is kept on disk.",
    ),
    Variable("TORCH_TPU_CACHE_SIZE_MB", "4096", "Size limit of that directory; the oldest use goes first."),
    Variable(
        "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT",
        "unset",
        "A second directory of compiled programs, which many hosts may share.",
    ),
    Variable("TORCH_TPU_FUSED_NODES", "1024", "Fused mode: a program is launched when it has this many operators."),
    Variable("XDG_CACHE_HOME", "`.cache` in `HOME`", "Where users' caches are."),
    Variable("HOME", "no cache on disk", "The user's directory."),
    Variable("TORCH_TPU_DUMP_DIR", "unset", "A directory where the StableHLO of each compiled program is written."),
    Variable("TORCH_TPU_INTERNAL_XLA_OPTIONS", "unset", "XLA options for every compilation: `name=value`, by commas."),
    Variable("XLA_FLAGS", "unset", "Read by XLA itself when the plugin is loaded."),
    Variable("TORCH_DEVICE_BACKEND_AUTOLOAD", "1", "PyTorch's: `0`: `import torch` loads no backend."),
    Variable("TORCH_SHOW_CPP_STACKTRACES", "0", "PyTorch's: `1`: errors show the C++ stack."),
)

_names = frozenset(variable.name for variable in TABLE)


def text(name: str) -> str | None:
    """The variable's value; None when unset or empty."""
    if name not in _names:
        raise KeyError(f"{name} is not in the table of environment variables")
    return os.environ.get(name) or None


def flag(name: str) -> bool:
    """Whether the variable is set to 1, true, yes or on. Another word than these and their opposites warns."""
    value = (text(name) or "0").lower()
    if value not in ("0", "false", "no", "off", "1", "true", "yes", "on"):
        warnings.warn(f"{name}={value} is neither 0 nor 1 and is taken as 0", stacklevel=2)
    return value in ("1", "true", "yes", "on")


def markdown() -> str:
    lines = ["# Environment variables", "", "| name | unset means | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{v.name}` | {v.default} | {v.meaning} |" for v in TABLE]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
