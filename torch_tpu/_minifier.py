"""PyTorch's minifier and reproducers (`TORCHDYNAMO_REPRO_AFTER`) with graphs of this device.

They were made for Inductor, whose inner compiler the scripts that they write call. Importing this module sends graphs
with tensors of device "tpu" from there to our own, and makes the scripts import it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.repro import after_aot, after_dynamo
from torch._inductor import compile_fx

from torch_tpu import _C, _compile
from torch_tpu._warm import CompiledGraph

# The minifier's own names: it compares accuracy for a compiler of this name only.
_NAME = "inductor"


def watched(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler of ATen graphs that writes a reproducer, or minifies, when it fails or what it made does.

    As `TORCHDYNAMO_REPRO_LEVEL` says: 1 writes the graph, 2 a script that minifies it, 3 writes that before it runs, 4
    when the results are not eager's.
    """
    return after_aot.wrap_compiler_debug(compiler, _NAME)  # type: ignore[arg-type]


def _send_device_graphs_here() -> None:
    inner = compile_fx._compile_fx_inner

    @functools.wraps(inner)
    def compile_inner(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Any:
        if not _compile.uses_device(gm, example_inputs):
            return inner(gm, example_inputs, **options)
        xla = _compile.xla_options(None)
        call = _compile.compile_graph(gm, example_inputs, xla)
        # The minifier goes on with the list that it gives.
        return CompiledGraph(None, _C.options_text(xla), lambda inputs: call(list(inputs)))

    compile_fx._compile_fx_inner = compile_inner  # type: ignore[assignment]


def _add_to_scripts() -> None:
    line = f"import {__name__}"
    for module in (after_aot, after_dynamo):
        module.extra_imports = f"{module.extra_imports}\n{line}"  # type: ignore[attr-defined]


_send_device_graphs_here()
_add_to_scripts()
