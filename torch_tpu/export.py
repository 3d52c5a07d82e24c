"""Programs of torch.export as files that run without Python: what `torch.tpu.export` writes and `tpu-run` reads.

An artefact is a folder:

- ``manifest.json``: what the programs take and give, and the versions (the keys are described in docs/export.md);
- ``program.mlir``, or one ``program_<i>.mlir`` for each listed size: StableHLO text;
- ``weights.safetensors``: parameters, buffers and constants, by their names in the module.
"""

from __future__ import annotations

import dataclasses
import json
import numbers
import os
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument

from torch_tpu import _arguments, _safetensors
from torch_tpu._arguments import Wanted
from torch_tpu._recorder import NoDecomposition

FORMAT = "torch_tpu.export"
FORMAT_VERSION = 1
STABLEHLO_VERSION = "1.13.0"  # the specification that csrc/hlo follows

_STATE = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer", InputKind.CONSTANT_TENSOR: "constant"}
_KINDS = {
    *_STATE,
    InputKind.USER_INPUT,
    OutputKind.USER_OUTPUT,
    OutputKind.BUFFER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
}


class ExportError(RuntimeError):
    """A program cannot become an artefact; the message says what to do."""


def export(
    model: ExportedProgram | torch.nn.Module,
    args: Sequence[Any] | str | os.PathLike[str] = (),
    path: str | os.PathLike[str] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    sizes: Sequence[int | Mapping[str, int]] | None = None,
) -> pathlib.Path:
    """Writes a program as a folder that ``tpu-run`` and any PJRT program can run: ``torch.tpu.export(program, path)``.

    model: what ``torch.export.export`` gave, or a module, which is exported with ``args``, ``kwargs`` and
    ``dynamic_shapes`` first: ``torch.tpu.export(module, args, path)``. Tensors may be on any device; ``.eval()`` the
    module first, unless its training behaviour is wanted. path: a new folder, or an artefact to write over.

    sizes: a program with dynamic dimensions becomes one program for each entry, since shapes are fixed in StableHLO.
    An entry maps the symbols that ``print(exported_program)`` shows ("s77") to sizes; where there is only one symbol,
    an entry is its size.

    Buffers that the program writes to are state: the program returns their new values, and who runs it passes them to
    the next call. Outputs that are no tensors are left out. ``torch.tpu.precision`` holds for matrix products.

    Returns the path. Raises ExportError for an operator without a lowering (named, with its line) and for dynamic
    dimensions without sizes, TypeError for an argument of another kind, ValueError for sizes outside the program's
    range, FileExistsError when the path is something else than an artefact.
    """
    if isinstance(args, (str, os.PathLike)):
        if path is not None:
            raise TypeError("torch.tpu.export: args must be a tuple of arguments, as (x,), not a second path")
        path, args = args, ()
    _arguments.check("torch.tpu.export", _WANTED, locals())
    if path is None:
        raise TypeError("torch.tpu.export(exported_program, path) or torch.tpu.export(module, args, path): no path")
    _check_sizes(sizes)
    if isinstance(model, torch.nn.Module):
        program = torch.export.export(model, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
    elif args or kwargs or dynamic_shapes:
        raise TypeError(
            "torch.tpu.export: args, kwargs and dynamic_shapes belong to a module; this is exported already"
        )
    else:
        program = model
    exporter = _Exporter(program)
    bindings = _bindings(exporter.program, sizes)
    lowered = [exporter.lower(binding) for binding in bindings]
    folder = _prepared_folder(pathlib.Path(path))  # now that nothing is left to refuse
    programs = []
    for i, (text, description) in enumerate(lowered):
        file = "program.mlir" if len(lowered) == 1 else f"program_{i}.mlir"
        (folder / file).write_text(text)
        programs.append({"file": file, **description})
    _safetensors.save(folder / "weights.safetensors", {s.name: s.tensor for s in exporter.states.values()})
    _write_manifest(folder, exporter, programs)
    return folder


_WANTED = {
    "model": Wanted("an ExportedProgram or a Module", (ExportedProgram, torch.nn.Module)),
    "args": Wanted("a tuple of arguments, as (x,), or the path", (tuple, list)),
    "path": Wanted("a path", (str, os.PathLike), optional=True),
    "kwargs": Wanted("a dict of arguments by name", (Mapping,), lambda d: all(isinstance(k, str) for k in d), True),
    "dynamic_shapes": Wanted(
        "a dict, tuple or list, as for torch.export.export",
        (dict, tuple, list, torch.export.ShapesCollection, torch.export.AdditionalInputs),
        optional=True,
    ),
    "sizes": Wanted("a list with an entry for each program, as [1, 32]", (list, tuple, range), optional=True),
}


def _check_sizes(sizes: Sequence[Any] | None) -> None:
    """Each entry is a size, or a dict from symbols to sizes."""
    for entry in sizes or ():
        for size in entry.values() if isinstance(entry, Mapping) else (entry,):
            if not isinstance(size, numbers.Integral) or isinstance(size, bool):
                raise TypeError(
                    f"torch.tpu.export: an entry of sizes must be a size, or a dict from symbols to sizes as"
                    f' {{"s77": 1}}, not {entry!r}'
                )


def _prepared_folder(folder: pathlib.Path) -> pathlib.Path:
    if folder.exists():
        manifest = folder / "manifest.json"
        if not folder.is_dir() or (any(folder.iterdir()) and not manifest.exists()):
            raise FileExistsError(f"{folder} is there and is no artefact: choose a new folder, or remove it")
        manifest.unlink(missing_ok=True)  # an artefact half written has none
        for old in folder.glob("program*.mlir"):
            old.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write_manifest(folder: pathlib.Path, exporter: _Exporter, programs: list[dict[str, Any]]) -> None:
    import torch_tpu

    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "versions": {"torch_tpu": torch_tpu.__version__, "torch": torch.__version__, "stablehlo": STABLEHLO_VERSION},
        "weights": "weights.safetensors",
        "state": [
            {"name": s.name, "kind": s.kind, "written": s.written, **_type_of(s.tensor)}
            for s in exporter.states.values()
        ],
        "programs": programs,
    }
    partial = folder / "manifest.json.partial"
    partial.write_text(_readable(manifest) + "\n")
    partial.replace(folder / "manifest.json")


def _readable(value: Any, indent: str = "") -> str:
    """JSON with a line for each element of a list of objects."""
    inner = indent + "  "
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(inner + _readable(v, inner) for v in value) + f"\n{indent}]"
    if isinstance(value, dict) and any(isinstance(v, list) and v and isinstance(v[0], dict) for v in value.values()):
        items = (f"{inner}{json.dumps(k)}: {_readable(v, inner)}" for k, v in value.items())
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    return json.dumps(value)


def _type_of(t: torch.Tensor) -> dict[str, Any]:
    return {"dtype": str(t.dtype).removeprefix("torch."), "shape": [int(n) for n in t.size()]}


# ---- sizes ----


def _bindings(program: ExportedProgram, sizes: Sequence[int | Mapping[str, int]] | None) -> list[dict[Any, int]]:
    """One map from symbols to sizes for each program that is wanted."""
    ranges = {symbol: r for symbol, r in program.range_constraints.items() if symbol in _symbols(program)}
    shown = ", ".join(f"{s} in [{r.lower}, {r.upper}]" for s, r in ranges.items())
    if not ranges:
        if sizes is not None:
            raise ValueError("torch.tpu.export: sizes are given and the program has no dynamic dimension")
        return [{}]
    if not sizes:
        raise ExportError(
            f"the program has dynamic dimensions ({shown}), and StableHLO's shapes are fixed here: list the sizes that "
            f"are wanted, each becomes a program: torch.tpu.export(program, path, sizes=[...])"
        )
    by_name = {str(symbol): symbol for symbol in ranges}
    bindings = []
    for entry in sizes:
        if not isinstance(entry, Mapping):
            if len(ranges) > 1:
                raise ValueError(f"torch.tpu.export: the size {entry} is for one symbol, the program has more: {shown}")
            entry = {next(iter(by_name)): entry}
        if set(entry) != set(by_name):
            raise ValueError(f"torch.tpu.export: sizes for {', '.join(map(str, entry))}, the program has {shown}")
        for name, size in entry.items():
            allowed = ranges[by_name[name]]
            if not allowed.lower <= int(size) <= allowed.upper:
                raise ValueError(f"torch.tpu.export: {name} = {size} is outside of what was exported: {shown}")
        bindings.append({by_name[name]: int(size) for name, size in entry.items()})
    return bindings


def _symbols(program: ExportedProgram) -> set[Any]:
    found: set[Any] = set()
    for node in program.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        if isinstance(value, torch.Tensor):
            for n in (*value.size(), *value.stride()):
                if isinstance(n, torch.SymInt):
                    found |= n.node.expr.free_symbols
    return found


def _bound(value: torch.Tensor, binding: dict[Any, int]) -> torch.Tensor:
    """A tensor without memory, of the sizes that an exported argument has for a binding."""

    def number(n: int | torch.SymInt) -> int:
        return int(n.node.expr.subs(binding)) if isinstance(n, torch.SymInt) else n

    return torch.empty_strided(
        [number(n) for n in value.size()], [number(n) for n in value.stride()], dtype=value.dtype, device="meta"
    )


# ---- lowering ----


@dataclasses.dataclass
class _State:
    name: str
    kind: str
    tensor: torch.Tensor
    written: bool = False


@dataclasses.dataclass
class _Argument:
    """What a placeholder of the exported graph gets. Only the metadata of a tensor is used."""

    value: Any
    role: dict[str, str] | None = None  # {"input": name} or {"state": name}


class _Exporter:
    """One exported program; `states` collects what its programs need besides their inputs, by storage and view."""

    def __init__(self, program: ExportedProgram):
        from torch_tpu._compile import _decompositions_for_tracing

        with warnings.catch_warnings():
            # PyTorch copies the program's tree specifications, and warns of the class that it keeps their leaves in.
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
            self.program = program.run_decompositions(_decompositions_for_tracing())
        self.states: dict[Any, _State] = {}
        signature = self.program.graph_signature
        for spec in (*signature.input_specs, *signature.output_specs):
            if spec.kind not in _KINDS:
                raise ExportError(f"a program with a {spec.kind.name.lower()} cannot be exported")

    def _state(self, name: str, kind: str, tensor: torch.Tensor) -> _State:
        """The state of a tensor: one for all names of tied weights."""
        if tensor.is_meta or isinstance(tensor, FakeTensor):
            raise ExportError(f"{kind} {name} has no values to write: it is on device meta, or was traced as a fake")
        if tensor.layout != torch.strided:
            raise ExportError(f"{kind} {name} is {tensor.layout}; only dense tensors can be exported")
        key: tuple[Any, ...] = (tensor.data_ptr(), tensor.dtype, tensor.size(), tensor.stride())
        if tensor.numel() == 0:
            key = (name,)  # empty tensors share nothing
        if key not in self.states:
            taken = {s.name for s in self.states.values()}
            while name in taken:
                name += "_"
            self.states[key] = _State(name, kind, tensor)
        return self.states[key]

    def _state_of(self, spec: Any) -> _State:
        is_constant = spec.kind is InputKind.CONSTANT_TENSOR or spec.persistent is False
        tensors = self.program.constants if is_constant else self.program.state_dict
        return self._state(spec.target, _STATE[spec.kind], tensors[spec.target])

    def _arguments(self, binding: dict[Any, int]) -> list[_Argument]:
        """What the graph's placeholders get, in order."""
        arguments = []
        nodes = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        for node, spec in zip(nodes, self.program.graph_signature.input_specs, strict=True):
            if isinstance(spec.arg, ConstantArgument):
                arguments.append(_Argument(spec.arg.value))
            elif not isinstance(spec.arg, TensorArgument):
                raise ExportError(
                    f"the input {spec.arg.name} is a {type(spec.arg).__name__}: an exported program takes tensors, and "
                    f"numbers that were constant in torch.export"
                )
            elif spec.kind is InputKind.USER_INPUT:
                arguments.append(_Argument(_bound(node.meta["val"], binding), {"input": spec.arg.name}))
            elif node.users:
                state = self._state_of(spec)
                arguments.append(_Argument(state.tensor, {"state": state.name}))
            else:
                arguments.append(_Argument(None))
        return arguments

    def lower(self, binding: dict[Any, int]) -> tuple[str, dict[str, Any]]:
        """StableHLO text, and what the manifest says of it."""
        from torch_tpu import _C, _fx

        arguments = self._arguments(binding)
        try:
            graph, constants, kept = _fx.record_values(self.program.graph_module, [a.value for a in arguments])
        except NoDecomposition as e:
            raise ExportError(str(e)) from e
        parameters: list[dict[str, Any]] = [a.role for a in arguments if a.role]
        parameters += [{"state": self._state(f"constant_{i}", "constant", t).name} for i, t in enumerate(constants)]
        roles = self._result_roles()
        results = [roles[k] for k in kept]
        text, words = graph.lower("main", _C.get_precision(), _donations(parameters, results))
        described = [{**role, **_described(graph.input_type(i))} for i, role in enumerate(parameters)]
        if words:
            described.append({"random": words, "dtype": "uint64", "shape": [words]})
        return text, {
            "parameters": described,
            "results": [{**role, **_described(graph.output_type(k))} for k, role in enumerate(results)],
        }

    def _result_roles(self) -> list[dict[str, str]]:
        """What each output of the exported graph is."""
        inputs = {s.target: s for s in self.program.graph_signature.input_specs if s.target is not None}
        names = iter(_output_names(self.program))
        roles = []
        for spec in self.program.graph_signature.output_specs:
            if spec.kind is OutputKind.USER_OUTPUT:
                roles.append({"output": next(names)})
            elif spec.kind is OutputKind.USER_INPUT_MUTATION:
                roles.append({"input": spec.target})
            else:
                state = self._state_of(inputs[spec.target])
                state.written = True
                roles.append({"state": state.name})
        return roles


def _described(type_: tuple[str, tuple[int, ...]]) -> dict[str, Any]:
    return {"dtype": type_[0], "shape": list(type_[1])}


def _donations(parameters: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[int]:
    """State that is written gives its memory to its new value."""
    targets = {role["state"]: k for k, role in enumerate(results) if "state" in role}
    uses = [role.get("state") for role in parameters]
    return [targets.get(name, -1) if name is not None and uses.count(name) == 1 else -1 for name in uses]


def _output_names(program: ExportedProgram) -> list[str]:
    """Names from the structure that the module returns: "logits", "output_1", "cache.0.key"; "output" for a tensor."""
    spec = program.call_spec.out_spec
    assert spec is not None
    numbered = [f"output_{i}" for i in range(spec.num_leaves)]
    try:
        paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(numbered, spec))
    except ValueError:  # a class whose registration names no keys
        return numbered
    names = []
    for path, _ in paths:
        parts = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path]
        if not parts or parts[0].isdigit():
            parts[:1] = ["_".join(["output", *parts[:1]])]
        names.append(".".join(parts))
    return names
