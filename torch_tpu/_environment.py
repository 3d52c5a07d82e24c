"""Every environment variable that TorchTPU reads, declared once.

``python -m torch_tpu._environment`` prints docs/environment.md.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from torch_tpu import _frames


class Variable(NamedTuple):
    name: str
    default: str  # what holds when it is unset, in words
    meaning: str
    kind: str = "text"  # or "flag", "count" (a whole number, at least 1), "options", "directory", "cache"


TABLE = (
    Variable(
        "TORCH_TPU_PJRT_PLUGIN",
        "libtpu with a TPU attached, else the XLA CPU plugin",
        "The PJRT plugin to load: `cpu`, `tpu`, or a path. Wins over every other choice, and loads"
        " the device beside another accelerator.",
    ),
    Variable("TPU_LIBRARY_PATH", "the installed libtpu", "The path of the TPU's PJRT plugin."),
    Variable("TORCH_TPU_REQUIRE_TPU", "0", "`1`: no TPU is an error; the CPU plugin does not stand in for it.", "flag"),
    Variable(
        "TORCH_TPU_DEVICES_PER_HOST",
        "1 on the CPU plugin, else what the plugin has",
        "Number of devices this process sees.",
        "count",
    ),
    Variable("TORCH_TPU_DEFER_AND_FUSE", "0", "`1`: fused eager mode.", "flag"),
    Variable("TORCH_TPU_LAUNCH_BLOCKING", "0", "`1`: debug eager mode: every operator is waited for.", "flag"),
    Variable(
        "TORCH_TPU_ENABLE_DEBUG_CHECKS", "0", "`1`: debug eager mode with its checks of indices and bounds.", "flag"
    ),
    Variable(
        "TORCH_TPU_INDEX_CHECKS",
        "1",
        "`0`: programs do not look for indices that are out of range; the device takes the nearest one, or drops it.",
        "flag",
    ),
    Variable(
        "TORCH_TPU_CPU_FALLBACK",
        "1",
        "`0`: an operator with neither a lowering nor a decomposition is an error instead of running on the CPU.",
        "flag",
    ),
    Variable(
        "TORCH_TPU_CACHE_DIR",
        "`torch_tpu` in `XDG_CACHE_HOME`, else `.cache/torch_tpu` in `HOME`",
        "The directory of compiled programs; set empty: none is kept on disk.",
        "cache",
    ),
    Variable(
        "TORCH_TPU_PROGRAMS",
        "8192",
        "Compiled programs that stay loaded in a process; beyond it the half goes whose last use is longest ago.",
        "count",
    ),
    Variable("TORCH_TPU_CACHE_SIZE_MB", "4096", "Size limit of that directory; the oldest use goes first.", "count"),
    Variable(
        "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT",
        "unset",
        "A second directory of compiled programs, which many hosts may share.",
        "cache",
    ),
    Variable(
        "TORCH_TPU_FUSED_NODES", "1024", "Fused mode: a program is launched when it has this many operators.", "count"
    ),
    Variable(
        "TORCH_TPU_LAUNCH_THREAD",
        "1",
        "`0`: every launch calls the plugin at once; no thread of ours does it when many operators follow each other.",
        "flag",
    ),
    Variable("XDG_CACHE_HOME", "`.cache` in `HOME`", "Where users' caches are."),
    Variable("HOME", "no cache on disk", "The user's directory."),
    Variable(
        "TORCH_TPU_DUMP_DIR",
        "unset",
        "A directory where the StableHLO of each compiled program is written.",
        "directory",
    ),
    Variable(
        "TORCH_TPU_INTERNAL_XLA_OPTIONS",
        "unset",
        "XLA options for every compilation: `name=value`, by commas.",
        "options",
    ),
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
    """Whether the variable is set to 1, true, yes or on."""
    return (text(name) or "").lower() in _SET


def check() -> set[str]:
    """Warns of each variable whose value means nothing and is ignored, and returns their names.

    The C core reads them by the same rules."""
    ignored = set()
    for variable in TABLE:
        value = text(variable.name)
        wrong = _wrong(variable.kind, value) if value else None
        if wrong:
            _frames.warn(f"{variable.name}={value} {wrong}: it is ignored")
            ignored.add(variable.name)
    return ignored


_SET = ("1", "true", "yes", "on")
_CLEAR = ("0", "false", "no", "off")


def _wrong(kind: str, value: str) -> str | None:
    if kind == "flag" and value.lower() not in _SET + _CLEAR:
        return "is neither 0 nor 1"
    if kind == "count" and not (value.isascii() and value.isdigit() and 0 < int(value) < 2**63):
        return "is not a whole number, at least 1"
    if kind == "options" and not all("=" in part.lstrip("-")[1:] for part in value.replace(",", " ").split()):
        return "is not a list of name=value by commas"
    if kind == "directory" and not _is_directory(value, os.W_OK | os.X_OK):
        return "is not a directory that can be made and written"
    if kind == "cache" and not _is_directory(value, os.R_OK | os.X_OK):  # one that is only read serves, too
        return "is not a directory that can be made or read"
    return None


def _is_directory(path: str, access: int) -> bool:
    """Makes the directory when it is not there."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        return False
    return os.access(path, access)


def markdown() -> str:
    lines = ["# Environment variables", "", "| name | unset means | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{v.name}` | {v.default} | {v.meaning} |" for v in TABLE]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
