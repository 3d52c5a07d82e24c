"""Decompositions of operators that have no lowering, as graphs of operators that have one.

Called once per call signature by the core (csrc/exec/exec.h, host_services.decompose).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from torch_tpu._recorder import DEVICE, NoDecomposition, Recorder

__all__ = ["NoDecomposition", "decompose", "decompositions", "find_operator"]


@functools.cache
def decompositions() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """Every decomposition known: PyTorch's, its reference implementations, and then ours, which win."""
    from torch._decomp import decomposition_table

    from torch_tpu import _decompositions

    for name in ("", ".fft", ".linalg", ".nn.functional", ".special"):  # importing them fills the table
        importlib.import_module("torch._refs" + name)

    found = {op: f for op, f in decomposition_table.items() if isinstance(op, torch._ops.OpOverload)}
    return {**found, **_decompositions.table}


@functools.cache
def find_operator(name: str) -> torch._ops.OpOverload:
    """The overload of a name as "aten::add.Tensor" or "aten::relu"."""
    namespace, _, rest = name.partition("::")
    packet_name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), packet_name)
    return getattr(packet, overload or "default")


def decompose(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The call of a functional operator as a `torch_tpu._C.Graph`.

    Tensors among the arguments are on device meta and stand for the graph's inputs, in the order of the schema, lists
    flattened; 0-d CPU tensors are numbers. Outputs are the operator's results, lists flattened, None where there is
    none. Raises NoDecomposition with the reason.
    """
    from torch_tpu import _C

    return record_call(_C.Graph(), _C.has_row, name, args, kwargs)


def record_call(
    graph: Any, has_row: Callable[[str], bool], name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """decompose() into a given graph."""
    op = find_operator(name)
    fake_mode = FakeTensorMode()
    recorder = Recorder(graph, has_row, decompositions(), fake_mode)
    recorder.skip_row = op

    def stand_in(x: Any) -> Any:
        if isinstance(x, torch.Tensor) and x.device.type == "meta":
            return recorder.input(x)
        if isinstance(x, torch.device):
            return DEVICE
        return x

    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch._C._DisableAutocast(), torch.no_grad():
        args, kwargs = pytree.tree_map(stand_in, (tuple(args), dict(kwargs)))
        with fake_mode:
            out = _run(recorder, op, args, kwargs)
    if recorder.written_inputs():
        raise NoDecomposition(name, "writes into its arguments")
    for leaf in pytree.tree_leaves(out, is_leaf=lambda x: x is None):
        if leaf is not None and not isinstance(leaf, torch.Tensor):
            raise NoDecomposition(name, f"gives a {type(leaf).__name__}, not a tensor")
        graph.output(None if leaf is None else recorder.read(leaf))
    return graph


def _run(recorder: Recorder, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return recorder.dispatch(op, args, kwargs)
    except NoDecomposition:
        raise
    except RecursionError as e:
        raise NoDecomposition(str(op), "decomposes without end") from e
