"""FX graphs (ATen level, as AOTAutograd and torch.export give them) as `torch_tpu._C.Graph`.

The FX graph is run once on fake tensors under the recorder (`_recorder.py`), so it may hold views, writes into its
inputs and operators without a lowering: the latter are decomposed on the way.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from torch_tpu import _control
from torch_tpu._decompose import decompositions
from torch_tpu._recorder import DEVICE, Geometry, NoDecomposition, Recorder, geometry_of, may_overlap
from torch_tpu._tape import Tape

# What becomes of a graph's output, for csrc/python/graph_call.cpp.
OUTPUT_NONE, OUTPUT_RESULT, OUTPUT_INPUT = range(3)


@dataclasses.dataclass
class Program:
    """A graph and how its results become what the FX graph returns."""

    graph: Any
    # Which arguments of the FX graph are inputs of `graph`, in its order; `constants` follow them.
    inputs: list[int]
    constants: list[torch.Tensor]
    # One a graph output: the geometry of a new tensor, or the index into `inputs` of the tensor it is written to.
    results: list[Geometry | int]
    # One an FX output: (OUTPUT_NONE, 0, None), (OUTPUT_RESULT, result, geometry), (OUTPUT_INPUT, index into inputs,
    # geometry or None for the input itself). The geometry's offset counts from the result's or the input's own.
    outputs: list[tuple[int, int, Geometry | None]]
    # FX outputs that are no tensors of this device: their position and the device or Python value.
    devices: dict[int, torch.device]
    values: dict[int, Any]
    # Linear algebra's outcomes, which are outputs after those of the FX graph: (name of the function, is a matrix).
    checks: list[tuple[str, bool]] = dataclasses.field(default_factory=list)
    # The calls that build `graph` (_tape.py); none where it was not recorded on a tape.
    steps: list[Any] = dataclasses.field(default_factory=list)


def convert(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Program:
    """The program of an FX graph for arguments like these (only their metadata is used).

    Raises NoDecomposition when an operator has neither a lowering nor a decomposition.
    """
    from torch_tpu import _C

    tape = Tape()
    program = record_graph(tape, _C.has_row, gm, example_inputs)
    return dataclasses.replace(program, graph=tape.graph, steps=tape.steps)


def record_graph(
    graph: Any, has_row: Callable[[str], bool], gm: torch.fx.GraphModule, example_inputs: Sequence[Any]
) -> Program:
    """convert() into a given graph."""
    fake_mode = FakeTensorMode()
    recorder = Recorder(graph, has_row, decompositions(), fake_mode, lift_constants=True)
    recorder.checks = []
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch._C._DisableAutocast(), torch.no_grad():
        given = [
            None if _control.is_token(n) else x
            for n, x in zip((n for n in gm.graph.nodes if n.op == "placeholder"), example_inputs, strict=True)
        ]
        arguments = [recorder.input(x) if isinstance(x, torch.Tensor) else x for x in given]
        with fake_mode:
            outputs = Interpreter(gm, recorder).run(arguments)
            outputs += [(info, None) for info, _, _ in recorder.checks]
        program = make_program(recorder, arguments, example_inputs, outputs)
        program.checks = [(name, is_matrix) for _, name, is_matrix in recorder.checks]
        return program


def record_values(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> tuple[Any, list[torch.Tensor], list[int]]:
    """A functional FX graph as a graph whose outputs are the values themselves, each in a row-major array of its own.

    Returns the graph, the constants that are inputs after those of `example_inputs` that are tensors, and which of the
    FX graph's outputs are tensors: the graph's outputs, in this order. Raises NoDecomposition as convert() does, and
    for a graph that writes into its inputs.
    """
    from torch_tpu import _C

    fake_mode = FakeTensorMode()
    recorder = Recorder(_C.Graph(), _C.has_row, decompositions(), fake_mode, lift_constants=True)
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch._C._DisableAutocast(), torch.no_grad():
        arguments = [recorder.input(x) if isinstance(x, torch.Tensor) else x for x in example_inputs]
        with fake_mode:
            outputs = [value for value, _ in Interpreter(gm, recorder).run(arguments)]
        if recorder.written_inputs():
            raise NoDecomposition("graph", "it writes into its inputs")
        kept = [k for k, value in enumerate(outputs) if isinstance(value, torch.Tensor)]
        for k in kept:
            recorder.graph.output(recorder.read(outputs[k]))
        return recorder.graph, recorder.constants, kept


class Interpreter:
    """Runs the nodes of an FX graph under a recorder."""

    def __init__(self, gm: torch.fx.GraphModule, recorder: Recorder):
        self.gm = gm
        self.recorder = recorder

    def run(self, arguments: Sequence[Any]) -> list[tuple[Any, torch.device | None]]:
        """The outputs, and for each the device that the FX graph has it on."""
        values: dict[torch.fx.Node, Any] = {}
        last_use = _last_uses(self.gm.graph)
        remaining = iter(arguments)
        for node in self.gm.graph.nodes:
            if node.op == "output":
                flat = pytree.tree_leaves(node.args[0], is_leaf=lambda x: x is None)
                return [(values[n] if isinstance(n, torch.fx.Node) else n, _device_of(n)) for n in flat]
            values[node] = self._value(node, values, remaining)
            for dead in last_use.get(node, ()):
                del values[dead]
        raise AssertionError("an FX graph without output")

    def _value(self, node: torch.fx.Node, values: dict[torch.fx.Node, Any], remaining: Any) -> Any:
        if node.op == "placeholder":
            return next(remaining)
        if node.op == "get_attr":
            return self._attribute(str(node.target))
        if node.op != "call_function" or not callable(node.target):
            raise NoDecomposition(node.name, f"an FX node of kind {node.op}")
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
        args, kwargs = pytree.tree_map(lambda x: DEVICE if isinstance(x, torch.device) else x, (args, kwargs))
        try:
            if isinstance(node.target, torch._ops.OpOverload):
                self.recorder.results_read = _results_read(node)
                return self.recorder.dispatch(node.target, args, kwargs)
            if isinstance(node.target, torch._ops.HigherOrderOperator):
                return _control.lower(self, node, args, kwargs)
            return node.target(*args, **kwargs)  # getitem, arithmetic of sizes
        except NoDecomposition as e:
            raise NoDecomposition(e.name, e.reason + _origin(node)) from e

    def _attribute(self, path: str) -> Any:
        value: Any = self.gm
        for part in path.split("."):
            value = getattr(value, part)
        return self.recorder.constant(value) if isinstance(value, torch.Tensor) else value


def _last_uses(graph: torch.fx.Graph) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    """The nodes that nobody reads after a node. Not inputs: what is written into them is an output."""
    seen: set[torch.fx.Node] = set()
    last: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in reversed(graph.nodes):
        for used in node.all_input_nodes:
            if used not in seen and used.op != "placeholder":
                last.setdefault(node, []).append(used)
            seen.add(used)
    return last


def _results_read(node: torch.fx.Node) -> set[int] | None:
    """Which results of an operator with several some node reads; None: it is not known."""
    if any(user.target is not operator.getitem for user in node.users):
        return None
    return {user.args[1] for user in node.users if user.users}  # type: ignore[misc]


def _device_of(node: Any) -> torch.device | None:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return value.device if isinstance(value, torch.Tensor) else None


def _origin(node: torch.fx.Node) -> str:
    """Where in the user's program an FX node comes from: its innermost line."""
    lines = [line.strip() for line in (node.stack_trace or "").splitlines() if line.strip(" ^~")]
    return "\n  from " + "\n    ".join(lines[-2:]) if lines else ""


def make_program(
    recorder: Recorder,
    arguments: list[Any],
    example_inputs: Sequence[Any],
    outputs: list[tuple[Any, torch.device | None]],
) -> Program:
    inputs = [i for i, x in enumerate(arguments) if isinstance(x, torch.Tensor)]
    overlapping = {k for k, i in enumerate(inputs) if may_overlap(example_inputs[i].size(), example_inputs[i].stride())}
    program = Program(recorder.graph, inputs, recorder.constants, [], [], {}, {})
    shared = _storage_uses(recorder, outputs)
    bases: dict[int, int] = {}  # storage -> result that holds all of it
    for position, (value, device) in enumerate(outputs):
        if not isinstance(value, torch.Tensor):
            program.outputs.append((OUTPUT_NONE, 0, None))
            if value is not None:
                program.values[position] = value
            continue
        if device is not None and device.type != DEVICE.type:
            program.devices[position] = device
        source = recorder.storage(value).source
        if source is not None and source < len(inputs) and source not in overlapping:
            same = geometry_of(value) == geometry_of(arguments[inputs[source]])
            program.outputs.append((OUTPUT_INPUT, source, None if same else geometry_of(value)))
        else:
            program.outputs.append(_new_result(recorder, program, value, shared, bases))
    for source, target in recorder.written_inputs():
        recorder.graph.output(recorder.read(target))
        program.results.append(source)
    return program


def _storage_uses(recorder: Recorder, outputs: list[tuple[Any, torch.device | None]]) -> dict[int, int]:
    """How many different tensors of each storage are among the outputs."""
    seen: dict[int, set[Geometry]] = {}
    for value, _ in outputs:
        if isinstance(value, torch.Tensor):
            seen.setdefault(value.untyped_storage()._cdata, set()).add(geometry_of(value))
    return {storage: len(geometries) for storage, geometries in seen.items()}


def _new_result(
    recorder: Recorder, program: Program, value: torch.Tensor, shared: dict[int, int], bases: dict[int, int]
) -> tuple[int, int, Geometry | None]:
    """The result for an output: all of its storage when other outputs are views of it, else just this tensor."""
    storage = value.untyped_storage()._cdata
    geometry = geometry_of(value)
    whole = value
    if shared[storage] > 1 or geometry[4] or geometry[5] or may_overlap(value.size(), value.stride()):
        whole = recorder.storage(value).owner
        whole = whole.as_strided((whole.untyped_storage().nbytes() // whole.element_size(),), (1,), 0)
    if storage not in bases:
        bases[storage] = len(program.results)
        recorder.graph.output(recorder.read(whole))
        of_whole = geometry_of(whole)
        program.results.append((*of_whole[:3], 0, *of_whole[4:]))
    if whole is value:
        geometry = (*geometry[:3], 0, *geometry[4:])
    return (OUTPUT_RESULT, bases[storage], geometry)
