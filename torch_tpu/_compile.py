"""The Dynamo backend "tpu": torch.compile's graphs as programs of this device.

Dynamo's FX graph goes through AOTAutograd (functional ATen, forward and backward split by the min-cut partitioner),
becomes a graph of the core (`_fx.py`), and is then called without Python. Importing this module imports no compiler:
`install` only puts hooks into torch.compile.
"""

from __future__ import annotations

import difflib
import functools
import logging
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_tpu import _frames

log = logging.getLogger(__name__)

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

# ---- the backend ----


def tpu_backend(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Dynamo backend: compiles an FX graph for tensors of device "tpu".

    mode: any of torch.compile's (there is one way to compile, so they do the same). options: "xla_..." flags, or none.
    """
    if mode is not None and mode not in _MODES:
        raise ValueError(f"torch.compile: no mode is called {mode!r}; modes are {', '.join(_MODES)}")
    from torch_tpu import _C, _recompiles, _warm

    _recompiles.note(gm)
    xla = xla_options(options)
    if torch._dynamo.config.repro_after is not None:
        from torch_tpu import _minifier  # noqa: F401  (what PyTorch writes then imports this package)
    if torch._dynamo.config.repro_after == "aot":
        return _watched_backend(xla, _table(options))(gm, example_inputs)
    with _warm.kept(_C.options_text(xla)):
        compiled = _aot_backend(xla, _table(options))(gm, example_inputs)
    # AOTAutograd's function takes arguments one by one, but copies the mark of those that take a list from ours, which
    # PyTorch's minifier believes.
    vars(compiled).pop("_boxed_call", None)
    return compiled


def _table(options: dict[str, Any] | None) -> tuple[int, ...]:
    """The sizes of option "buckets", sorted."""
    sizes = (options or {}).get("buckets", ())
    if not isinstance(sizes, (list, tuple)) or not all(isinstance(n, int) and n > 1 for n in sizes):
        raise ValueError(f"torch.compile: option buckets is a list of sizes greater than 1, not {sizes!r}")
    return tuple(sorted(set(sizes)))


def xla_options(options: dict[str, Any] | None) -> int:
    """The number of the set of XLA options that a graph is compiled with: the current ones, and those given over them.

    Raises ValueError for an option that neither the backend nor the plugin has, naming those that are near.
    """
    from torch_tpu.tpu import compiler

    for name in options or {}:
        if compiler.is_xla_option(name) or name in compiler.OPTIONS:
            continue
        near = difflib.get_close_matches(name, [*compiler.OPTIONS, *compiler.known_xla_options()], n=4)
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else "options are XLA's own (xla_...)" + "".join(f", {own}" for own in compiler.OPTIONS)
        )
        raise ValueError(f"torch.compile: backend 'tpu' has no option {name!r}; {hint}")
    _table(options)
    return compiler.options_number({k: v for k, v in (options or {}).items() if compiler.is_xla_option(k)})


@functools.cache
def _aot_backend(xla: int, buckets: tuple[int, ...]) -> Any:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler

    from torch_tpu._warm import CompiledGraph

    def serializable() -> Any:  # one each: aot_autograd changes that of the backward
        return SerializableAOTDispatchCompiler(
            CompiledGraph, functools.partial(_compile_for_cache, xla=xla, buckets=buckets)
        )

    return aot_autograd(
        fw_compiler=serializable(), bw_compiler=serializable(), inference_compiler=serializable(), **_aot_options()
    )


@functools.cache
def _watched_backend(xla: int, buckets: tuple[int, ...]) -> Any:
    """The same without the cache, and with PyTorch's minifier between AOTAutograd and us."""
    from torch._dynamo.backends.common import aot_autograd

    from torch_tpu import _minifier

    def compiler() -> Any:
        return _minifier.watched(lambda gm, inputs, **_: compile_graph(gm, inputs, xla, buckets))

    return aot_autograd(fw_compiler=compiler(), bw_compiler=compiler(), inference_compiler=compiler(), **_aot_options())


def _aot_options() -> dict[str, Any]:
    return dict(
        decompositions=_decompositions_for_tracing, partition_fn=_partition, keep_inference_input_mutations=True
    )


def _partition(joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    """The min-cut partition.

    Activation checkpointing recomputes all but random numbers: those of the forward are kept, since the state that a
    program drew them from does not exist outside it.
    """
    from functorch.compile import min_cut_rematerialization_partition
    from torch.utils.checkpoint import CheckpointPolicy

    for node in joint.graph.nodes:
        tags = node.target.tags if isinstance(node.target, torch._ops.OpOverload) else ()
        if torch.Tag.nondeterministic_seeded in tags and "recompute" in node.meta:
            for kept in (node, *(user for user in node.users if user.target is operator.getitem)):
                kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return min_cut_rematerialization_partition(joint, *args, **kwargs)


def _decompositions_for_tracing() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """What AOTAutograd replaces while it traces, so that the partitioner sees the parts.

    Core ATen's table where there is no lowering of the whole; the rest is decomposed when the graph is recorded.
    """
    from torch._decomp import core_aten_decompositions

    from torch_tpu import _C
    from torch_tpu._recorder import row_name

    table = core_aten_decompositions()
    return {op: f for op, f in table.items() if isinstance(op, torch._ops.OpOverload) and not _C.has_row(row_name(op))}


def compile_graph(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], xla: int = 0, buckets: tuple[int, ...] = ()
) -> Callable[[list[Any]], list[Any]]:
    """A function of one list of arguments (which it empties) that runs an ATen graph as one program.

    xla: the number of the set of XLA options to compile it with; 0: those that hold when it is called.
    buckets: sizes that a symbolic size is filled up to (_buckets.py); none: a program for each size.
    """
    if any(isinstance(x, torch.SymInt) or _has_symbols(x) for x in example_inputs):
        return _ShapePrograms(gm, xla, buckets)
    return _compile_static(gm, example_inputs, xla)


def _compile_for_cache(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], xla: int, buckets: tuple[int, ...]
) -> Any:
    """compile_graph() as AOTAutograd's cache wants it: the function, with what can be kept behind `__wrapped__`."""
    from torch_tpu import _C
    from torch_tpu._warm import CompiledGraph

    call = compile_graph(gm, example_inputs, xla, buckets)
    call.__wrapped__ = CompiledGraph(getattr(call, "program", None), _C.options_text(xla), call)  # type: ignore[attr-defined]
    return call


def _has_symbols(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and any(isinstance(n, torch.SymInt) for n in (*x.size(), *x.stride()))


def _compile_static(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], xla: int
) -> Callable[[list[Any]], list[Any]]:
    from torch_tpu import _fx
    from torch_tpu._recorder import NoDecomposition

    try:
        program = _fx.convert(gm, example_inputs)
    except NoDecomposition as e:
        _frames.warn(f"torch.compile: this graph runs operator by operator on device tpu, because {e}")
        return _run_nodes(gm)
    call = call_of(program, xla)
    call.program = program  # type: ignore[attr-defined]
    return call


def call_of(program: Any, xla: int) -> Callable[[list[Any]], list[Any]]:
    """The function of a program; takes its graph."""
    from torch.utils._python_dispatch import _disable_current_modes

    from torch_tpu import _C

    with _disable_current_modes():  # the constants are tensors, whatever AOTAutograd traces with
        compiled: Callable[[list[Any]], list[Any]] = _C.graph_operator(
            program.graph, program.inputs, program.constants, program.results, program.outputs, xla
        )
    if program.devices or program.values:
        compiled = _with_host_outputs(compiled, program.devices, program.values)
    return _with_checks(compiled, program.checks) if program.checks else compiled


def _with_checks(
    compiled: Callable[[list[Any]], list[Any]], checks: list[tuple[str, bool]]
) -> Callable[[list[Any]], list[Any]]:
    """Raises what linear algebra raises for a matrix that is singular, or has no such factor. Waits for the program."""

    @_boxed
    def run(args: list[Any]) -> list[Any]:
        outputs = compiled(args)
        infos = outputs[len(outputs) - len(checks) :]
        for info, (name, is_matrix) in zip(infos, checks, strict=True):
            torch.ops.aten._linalg_check_errors(info, name, is_matrix=is_matrix)
        return outputs[: len(outputs) - len(checks)]

    return run


def _boxed(f: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    f._boxed_call = True  # type: ignore[attr-defined]
    return f


def _run_nodes(gm: torch.fx.GraphModule) -> Callable[[list[Any]], list[Any]]:
    @_boxed
    def run(args: list[Any]) -> list[Any]:
        taken = list(args)
        args.clear()
        return torch.fx.Interpreter(gm).run(*taken)

    return run


def _with_host_outputs(
    compiled: Callable[[list[Any]], list[Any]], devices: dict[int, torch.device], values: dict[int, Any]
) -> Callable[[list[Any]], list[Any]]:
    """Outputs that the traced function has on another device, or that are Python values."""

    @_boxed
    def run(args: list[Any]) -> list[Any]:
        outputs = compiled(args)
        for position, device in devices.items():
            outputs[position] = outputs[position].to(device)
        for position, value in values.items():
            outputs[position] = value
        return outputs

    return run


class _ShapePrograms:
    """An FX graph with symbolic sizes: a program for each set of sizes that it is called with."""

    def __init__(self, gm: torch.fx.GraphModule, xla: int, buckets: tuple[int, ...] = ()):
        self._boxed_call = True  # of the instance: functools.wraps copies those
        self.gm = gm
        self.xla = xla
        self.programs: dict[tuple[Any, ...], Callable[[list[Any]], list[Any]]] = {}
        self.table = buckets
        self.buckets: dict[int, Any] = {}
        self.place: tuple[int, int | None] | None = None  # an argument, and its dimension, that is the symbolic size

    def __call__(self, args: list[Any]) -> list[Any]:
        if self.table:
            bucket, size = self._bucket(args)
            if bucket is not None:
                return bucket(args, size)  # type: ignore[no-any-return]
        key = tuple((x.size(), x.stride()) if isinstance(x, torch.Tensor) else x for x in args)
        program = self.programs.get(key)
        if program is None:
            log.debug("compiling %s for sizes %s", self.gm.__class__.__name__, key)
            program = self.programs[key] = _compile_static(self.gm, args, self.xla)
        return program(args)

    def _bucket(self, args: list[Any]) -> tuple[Any, int]:
        """The program of the smallest bucket that holds these arguments, and their size; None where there is none."""
        from torch_tpu import _buckets
        from torch_tpu._recorder import NoDecomposition

        try:
            if self.place is None:
                self.place = _symbolic_place(self.gm)
            position, dim = self.place
            size = int(args[position] if dim is None else args[position].size(dim))
            chosen = _buckets.choose(self.table, size)
            if chosen is None:
                return None, size
            if chosen not in self.buckets:
                symbol = _buckets.symbol_of(self.gm)
                self.buckets[chosen] = _buckets.Bucket(self.gm, symbol, chosen, lambda p: call_of(p, self.xla))
            return self.buckets[chosen], size
        except (_buckets.NotExact, NoDecomposition) as e:
            log.warning("torch.compile: one program a size instead of one a bucket, because %s", e)
            self.table = ()
            return None, 0


def _symbolic_place(gm: torch.fx.GraphModule) -> tuple[int, int | None]:
    from torch_tpu import _buckets

    symbol = _buckets.symbol_of(gm)
    for position, node in enumerate(n for n in gm.graph.nodes if n.op == "placeholder"):
        value = node.meta["val"]
        if isinstance(value, torch.SymInt) and value.node.expr == symbol:
            return position, None
        for d, n in enumerate(value.size() if isinstance(value, torch.Tensor) else ()):
            if isinstance(n, torch.SymInt) and n.node.expr == symbol:
                return position, d
    raise _buckets.NotExact("no input has the symbolic size itself")


# ---- being torch.compile's default for this device ----


def install() -> None:
    """Makes "tpu" what torch.compile uses for graphs with tensors of this device, where the caller names no backend.

    Inductor stays the default for the rest. Idempotent; imports nothing.
    """
    wrapper: Any = torch._TorchCompileInductorWrapper
    if getattr(wrapper, "_torch_tpu", False):
        return
    wrapper._torch_tpu = True
    _send_device_graphs_here(wrapper)
    _accept_own_options(wrapper)
    torch.compile = _prepared(torch.compile)


def _send_device_graphs_here(wrapper: Any) -> None:
    inductor = wrapper.__call__

    @functools.wraps(inductor)
    def call(self: Any, model_: Any, inputs_: Any, **kwargs: Any) -> Any:
        if uses_device(model_, inputs_):
            return tpu_backend(model_, inputs_, options=getattr(self, "_tpu_options", None))
        return inductor(self, model_, inputs_, **kwargs)

    wrapper.__call__ = call


def _accept_own_options(wrapper: Any) -> None:
    """Options of ours go past Inductor, which refuses what it does not know. They are checked at once."""
    apply, equal = wrapper.apply_options, wrapper.__eq__

    @functools.wraps(apply)
    def apply_options(self: Any, options: dict[str, Any] | None) -> None:
        from torch_tpu.tpu import compiler

        own = {k: v for k, v in (options or {}).items() if compiler.is_xla_option(k) or k in compiler.OPTIONS}
        if own:
            xla_options(own)
            self._tpu_options = {**getattr(self, "_tpu_options", {}), **own}
        rest = {k: v for k, v in (options or {}).items() if k not in own}
        apply(self, rest)

    def same(self: Any, other: Any) -> bool:  # Dynamo compiles again for another backend
        return bool(equal(self, other)) and getattr(self, "_tpu_options", None) == getattr(other, "_tpu_options", None)

    wrapper.apply_options = apply_options
    wrapper.__eq__ = same


def uses_device(gm: Any, example_inputs: Sequence[Any]) -> bool:
    """Whether a Dynamo graph has tensors of this device: among its inputs, its attributes, or made inside it."""
    if any(isinstance(x, torch.Tensor) and x.device.type == "tpu" for x in example_inputs):
        return True
    if not isinstance(gm, torch.fx.GraphModule):
        return False
    if any(t.device.type == "tpu" for t in (*gm.parameters(), *gm.buffers())):
        return True
    for node in gm.graph.nodes:
        value = node.meta.get("example_value", node.meta.get("val"))
        if isinstance(value, torch.Tensor) and value.device.type == "tpu":
            return True
    return False


def _prepared(compile_: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile that makes the device known to Dynamo first and never guesses dynamic sizes for it."""

    @functools.wraps(compile_)
    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:  # noqa: A001
        if model is None:
            return lambda f: torch.compile(f, *args, **kwargs)
        prepare_dynamo()
        if kwargs.get("backend") == "tpu":
            xla_options(kwargs.get("options"))
        if kwargs.get("dynamic") is None and _is_for_device(model, kwargs.get("backend")):
            kwargs["dynamic"] = False
        return compile_(model, *args, **kwargs)

    return compile


def _is_for_device(model: Any, backend: Any) -> bool:
    if backend is not None and backend != "inductor":
        return backend == "tpu" or backend is tpu_backend
    module = getattr(model, "__self__", model)
    if not isinstance(module, torch.nn.Module):
        return False
    return any(t.device.type == "tpu" for t in (*module.parameters(), *module.buffers()))


@functools.cache
def prepare_dynamo() -> None:
    """Registers the backend and the device interface, over those that PyTorch has for a device of this name."""
    from torch._dynamo import device_interface, trace_rules
    from torch._dynamo.backends import registry

    from torch_tpu._dynamo_device import DeviceInterface

    if "tpu" not in registry._COMPILER_FNS:
        registry.register_backend(tpu_backend, name="tpu")
    trace_rules.add("torch_tpu.tpu.random")  # generators are not traced into: a graph breaks there
    device_interface.get_interface_for_device("cpu")  # fills the table, which would later write over ours
    device_interface.register_interface_for_device("tpu", DeviceInterface)
    pallas = sys.modules.get("torch_tpu.pallas")
    if pallas is not None:  # operators defined before Dynamo was loaded
        pallas.prepare_dynamo()
