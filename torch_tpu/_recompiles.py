"""Why torch.compile compiled a function again: what `torch.tpu.compiler.recompiles` gives."""

from __future__ import annotations

import collections
from typing import NamedTuple

import torch


class Recompile(NamedTuple):
    """One more compilation of a function of torch.compile.

    function: its name and place, "name (file:line)". reason: the guard that failed, as Dynamo says it. compilations:
    how many the function has now, this one included.
    """

    function: str
    reason: str
    compilations: int


# The latest; a process that recompiles for ever does not grow by it.
_latest: collections.deque[Recompile] = collections.deque(maxlen=1000)
_count = 0
_noted: torch._guards.CompileId | None = None  # the object: torch._dynamo.reset makes numbers begin anew


def note(gm: torch.fx.GraphModule) -> None:
    """To be called by a Dynamo backend with its graph: takes down the compilation that is in progress, if it is not the
    first of its function. Several graphs of one compilation count once."""
    global _count, _noted
    compilation = torch._guards.CompileContext.current_compile_id()
    if compilation is None or not compilation.frame_compile_id or compilation is _noted:
        return
    _noted = compilation
    _count += 1
    reason = torch._dynamo.utils.get_metrics_context()._metrics.get("recompile_reason") or "Dynamo names none"
    reason = " ".join(reason.partition("\n")[0].split())
    _latest.append(Recompile(_function_of(gm), reason, compilation.frame_compile_id + 1))


def _function_of(gm: torch.fx.GraphModule) -> str:
    end = getattr(gm, "compile_subgraph_reason", None)  # why the graph ended, and where
    if end is None or not end.user_stack:
        return "a compiled function"
    outermost = end.user_stack[0]
    return f"{outermost.name} ({outermost.filename}:{outermost.lineno})"


def latest() -> list[Recompile]:
    return list(_latest)


def count() -> int:
    return _count
