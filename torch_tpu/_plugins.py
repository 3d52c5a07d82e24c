"""Which PJRT plugins are installed. Found by name on the import path, without importing them."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import NamedTuple


class Candidate(NamedTuple):
    module: str
    file: str


# XLA CPU plugins, the newest XLA first.
CPU = (
    Candidate("lammps_jax_pjrt_cpu", "pjrt_c_api_cpu_plugin.so"),
    Candidate("xla_plugins.xla_cpu_pjrt", "xla_cpu_pjrt.so"),
)
TPU = (Candidate("libtpu", "libtpu.so"),)


def find(candidates: tuple[Candidate, ...]) -> str | None:
    """The path of the first candidate that is installed."""
    for candidate in candidates:
        for directory in _directories(candidate.module):
            path = directory / candidate.file
            if path.exists():
                return str(path)
    return None


def _directories(module: str) -> list[pathlib.Path]:
    parent, _, name = module.rpartition(".")
    if parent:  # find_spec would import the parent package
        return [directory / name for directory in _directories(parent)]
    spec = importlib.util.find_spec(module)
    return [pathlib.Path(p) for p in (spec.submodule_search_locations or ())] if spec else []


def announce() -> None:
    """Tells the runtime what is there; it chooses when a client is first needed."""
    from torch_tpu import _C

    _C.set_plugin_candidates(find(CPU), find(TPU))
