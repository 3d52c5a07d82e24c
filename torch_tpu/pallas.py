"""``torch.tpu.pallas``: JAX functions, Pallas kernels among them, as PyTorch operators.

A function is traced by JAX for the sizes it is called with, and becomes part of the program that PyTorch's operators
around it become. JAX is imported when an operator is first called, and never opens a device. On the CPU plugin Pallas
kernels are interpreted.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree

from torch_tpu import _recorder, _target

if TYPE_CHECKING:
    from torch_tpu import _jax

__all__ = ["JaxOp", "custom_jax_kernel", "get_pallas_mesh", "jax_op"]

_operators: dict[str, JaxOp] = {}


def jax_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    donate_argnums: int | Sequence[int] | None = None,
    mesh: Any = None,
    input_partition_specs: Any = None,
    output_partition_specs: Any = None,
) -> Any:
    """A JAX function as an operator of device "tpu"; without `fn`, a decorator.

    name: "namespace::name" (or a name, in namespace "jax"), by which torch.library knows it; defining it again replaces
    it. fn: takes and returns pytrees of arrays. In a call, tensors become arrays and everything else is a constant of
    the trace: another constant, or another size, is another program. Gradients are ``jax.vjp``'s (so ``jax.custom_vjp``
    holds), or given by ``JaxOp.register_backward``; gradients of gradients are not defined.

    donate_argnums: positional tensors that are given up: their memory is free after the call, and they are empty.
    mesh, input_partition_specs, output_partition_specs: of one device, where they say nothing; an error for more.

    64-bit tensors need ``jax_enable_x64``, else TypeError. Functions that call back to the host are refused.
    """
    if fn is None:
        return functools.partial(
            jax_op, name, donate_argnums=donate_argnums, mesh=mesh, input_partition_specs=input_partition_specs,
            output_partition_specs=output_partition_specs,
        )  # fmt: skip
    if not callable(fn):
        raise TypeError(f"jax_op: expected a function, got {type(fn).__name__}")
    devices = getattr(mesh, "size", 1)
    if devices != 1:
        raise NotImplementedError(
            f"jax_op({name!r}): a mesh of {devices} devices; a process runs programs of one device, so shard the "
            f"tensors with torch.distributed and give the operator what is local"
        )
    donated = (donate_argnums,) if isinstance(donate_argnums, int) else tuple(donate_argnums or ())
    return JaxOp(name, fn, donated)


def custom_jax_kernel(fn: Callable[..., Any] | str, /, name: str | None = None, **options: Any) -> Any:
    """jax_op by another name: ``@custom_jax_kernel``, ``@custom_jax_kernel("name")``, ``custom_jax_kernel(fn, name)``.

    Without a name, the operator has the function's.
    """
    if isinstance(fn, str):
        return jax_op(fn, **options)
    return jax_op(name or getattr(fn, "__name__", "kernel").strip("<>"), fn, **options)


def get_pallas_mesh(
    axis_names: Sequence[str] | str, mesh_shape: Sequence[int] | None = None, process_group: Any = None
) -> Any:
    """A JAX mesh of the processes of a group (of one, where torch.distributed is not initialised), without devices.

    mesh_shape: its sizes; unset: all processes along the first axis. Raises ValueError where they do not fit the group.
    """
    import jax

    names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
    size = 1
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        size = torch.distributed.get_world_size(process_group)
    shape = tuple(mesh_shape) if mesh_shape is not None else (size, *[1] * (len(names) - 1))
    if len(shape) != len(names) or math.prod(shape) != size:
        raise ValueError(f"get_pallas_mesh: a mesh {shape} over axes {names} of {size} processes")
    return jax.sharding.AbstractMesh(shape, names)


@dataclasses.dataclass(frozen=True)
class _Call:
    """Everything of a call but its tensors."""

    structure: pytree.TreeSpec
    constants: tuple[Any, ...]  # one a leaf; _TENSOR for a tensor
    key: str

    def rebuild(self, arrays: Sequence[Any]) -> tuple[Any, Any]:
        given = iter(arrays)
        leaves = [next(given) if c is _TENSOR else c for c in self.constants]
        return pytree.tree_unflatten(leaves, self.structure)


class _Tensor:
    def __repr__(self) -> str:
        return "tensor"


_TENSOR = _Tensor()


@dataclasses.dataclass(frozen=True)
class _Program:
    """A lowered function, and the operator of this device that runs it alone."""

    function: _jax.Lowered
    run: Callable[[list[torch.Tensor]], list[torch.Tensor]]


class JaxOp:
    """A JAX function as an operator; call it with tensors and constants. Made by `jax_op`."""

    def __init__(self, name: str, fn: Callable[..., Any], donated: tuple[int, ...] = ()):
        namespace, _, short = name.rpartition("::")
        self.namespace, self.name = namespace or "jax", short
        if not (self.namespace.isidentifier() and short.isidentifier()):
            raise ValueError(f"jax_op: {name!r} is no operator's name: expected 'namespace::name'")
        self.__name__ = short
        self.__doc__ = fn.__doc__
        self.fn = fn
        self.donated = donated
        self._calls: dict[str, _Call] = {}
        self._made: dict[Any, Any] = {}
        self._structure: Any = None  # of what the last call returned: Dynamo reads it just after the call
        self._places: Any = None
        self._define()
        self._entry = self._make_entry()

    # ---- calling ----

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        results = self._entry(*args, **kwargs)
        if torch.compiler.is_compiling():
            return pytree.tree_map(results.__getitem__, self._places)
        for i in self.donated:
            if not isinstance(args[i], torch.Tensor):
                raise TypeError(f"{self.name}: donated argument {i} is no tensor")
            args[i].untyped_storage().resize_(0)
        return self._structured(results)

    def register_backward(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the gradient, a JAX function: backward(arguments, results, cotangents) -> a gradient an argument.

        arguments: the tuple that the operator is called with; results and cotangents: as the function returns them.
        """
        from torch_tpu import _jax

        self.fn = _jax.with_backward(self.fn, backward)
        self._made.clear()
        return backward

    def _make_entry(self) -> Callable[..., Any]:
        def jax_operator(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
            leaves, structure = pytree.tree_flatten((args, kwargs))
            tensors = [t for t in leaves if isinstance(t, torch.Tensor)]
            if not tensors:
                raise TypeError(f"{self.name}: called without a tensor")
            call = self._remember(structure, tuple(_TENSOR if isinstance(x, torch.Tensor) else x for x in leaves))
            differentiate = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
            results = self._forward(tensors, call.key, differentiate)
            self._structure, self._places, n = self._returned(call, _types(tensors))
            return tuple(results[:n])

        _allow_in_graph(jax_operator)
        return jax_operator

    def _remember(self, structure: pytree.TreeSpec, constants: tuple[Any, ...]) -> _Call:
        key = hashlib.sha256(repr((structure, constants)).encode()).hexdigest()[:32]
        if key not in self._calls:
            self._calls[key] = _Call(structure, constants, key)
        return self._calls[key]

    def _structured(self, results: Sequence[torch.Tensor]) -> Any:
        from torch_tpu import _jax

        return _jax.unflatten(self._structure, results)

    def _returned(self, call: _Call, types: _jax.Types) -> tuple[Any, Any, int]:
        """The structure of what is returned, the same with numbers for tensors, and how many those are."""
        from torch_tpu import _jax

        shape = self._shape(call, types)
        return shape.structure, _jax.unflatten(shape.structure, range(len(shape.types))), len(shape.types)

    # ---- what JAX says, kept for types and target ----

    def _kept(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _function(self, call: _Call) -> Callable[..., Any]:
        def function(*arrays: Any) -> Any:
            args, kwargs = call.rebuild(arrays)
            return self.fn(*args, **kwargs)

        return function

    def _shape(self, call: _Call, types: _jax.Types) -> _jax.Shape:
        from torch_tpu import _jax

        target = _target.current()
        key = ("shape", call.key, str(types), target)
        return self._kept(key, lambda: _jax.shape_of(self._function(call), types, target))

    def _derivative(self, call: _Call, types: _jax.Types) -> _jax.Derivative:
        from torch_tpu import _jax

        target = _target.current()
        key = ("derivative", call.key, str(types), target)
        return self._kept(key, lambda: _jax.derivative(self._function(call), types, target))

    def _lower(self, what: str, call: _Call, types: _jax.Types, arguments: _jax.Types) -> _jax.Lowered:
        """`what` of the function for `types`, called with `arguments`."""
        from torch_tpu import _jax

        target = _target.current()

        def make() -> _jax.Lowered:
            if what == "forward":
                function = _jax.flat(self._function(call))
            else:
                derivative = self._derivative(call, types)
                function = derivative.forward if what == "residuals" else derivative.backward
            return _jax.lower(f"{self.name}_{what}", function, arguments, target)

        return self._kept((what, call.key, str(types), target), make)

    # ---- torch.library ----

    def _define(self) -> None:
        qualified = f"{self.namespace}::{self.name}"
        if qualified in _operators:
            _operators[qualified]._forget()
        elif hasattr(getattr(torch.ops, self.namespace), self.name):
            raise ValueError(f"jax_op: torch.library has an operator {qualified} already")
        self.library = torch.library.Library(self.namespace, "FRAGMENT")
        self.library.define(f"{self.name}(Tensor[] tensors, str call, bool residuals) -> Tensor[]")
        self.library.define(f"{self.name}_backward(Tensor[] tensors, str call, str types) -> Tensor[]")
        for suffix, lowered in (("", self._lower_forward), ("_backward", self._lower_backward)):
            _recorder.FUNCTIONS[qualified + suffix] = lowered
            self.library.impl(self.name + suffix, functools.partial(self._run, lowered), "PrivateUse1")
            torch.library.register_fake(qualified + suffix, functools.partial(_fake, lowered), lib=self.library)
        torch.library.register_autograd(
            qualified, self._differentiate, setup_context=self._save_for_backward, lib=self.library
        )
        operators = getattr(torch.ops, self.namespace)  # only now: defining replaces what was there
        self._forward = getattr(operators, self.name).default
        self._backward = getattr(operators, self.name + "_backward").default
        _operators[qualified] = self

    def _forget(self) -> None:
        for suffix in ("", "_backward"):
            del _recorder.FUNCTIONS[f"{self.namespace}::{self.name}{suffix}"]
        self.library._destroy()

    def _lower_forward(self, tensors: Sequence[torch.Tensor], key: str, residuals: bool) -> _jax.Lowered:
        types = _types(tensors)
        return self._lower("residuals" if residuals else "forward", self._calls[key], types, types)

    def _lower_backward(self, tensors: Sequence[torch.Tensor], key: str, types: str) -> _jax.Lowered:
        return self._lower("backward", self._calls[key], _parsed(types), _types(tensors))

    def _run(self, lowered: Callable[..., _jax.Lowered], tensors: list[torch.Tensor], *rest: Any) -> list[torch.Tensor]:
        """Strict and fused eager: a graph of the one function."""
        function = lowered(tensors, *rest)
        program = self._kept(("program", function.name), lambda: _program(function, tensors))
        return program.run(list(tensors))

    def _save_for_backward(self, ctx: Any, inputs: Any, output: list[torch.Tensor]) -> None:
        tensors, key, residuals = inputs
        ctx.key, ctx.types = key, _types(tensors)
        if not residuals:
            return
        derivative = self._derivative(self._calls[key], ctx.types)
        ctx.save_for_backward(
            *(tensors[s] if s >= 0 else output[derivative.n_results - 1 - s] for s in derivative.saved)
        )

    def _differentiate(self, ctx: Any, grads: list[torch.Tensor]) -> tuple[Any, ...]:
        derivative = self._derivative(self._calls[ctx.key], ctx.types)
        cotangents = [grads[k] for k in derivative.outputs]
        made = iter(self._backward([*ctx.saved_tensors, *cotangents], ctx.key, str(ctx.types)))
        return [next(made) if i in derivative.inputs else None for i in range(len(ctx.types))], None, None


def _types(tensors: Sequence[torch.Tensor]) -> _jax.Types:
    return [(_recorder.dtype_name(t.dtype), [int(n) for n in t.size()]) for t in tensors]


def _parsed(types: str) -> _jax.Types:
    import ast

    return ast.literal_eval(types)


def _fake(lowered: Callable[..., _jax.Lowered], tensors: list[torch.Tensor], *rest: Any) -> list[torch.Tensor]:
    results = lowered(tensors, *rest).results
    return [torch.empty(sizes, dtype=getattr(torch, dtype), device=tensors[0].device) for dtype, sizes in results]


def _program(function: _jax.Lowered, tensors: Sequence[torch.Tensor]) -> _Program:
    from torch_tpu import _C, _fx

    graph = _C.Graph()
    inputs = [graph.input(_recorder.dtype_name(t.dtype), list(t.size())) for t in tensors]
    results = []
    for value in graph.call_function(function.name, function.text, inputs, function.results):
        graph.output(value)
    for dtype, sizes in function.results:
        results.append((dtype, tuple(sizes), _recorder.contiguous_strides(sizes), 0, False, False))
    outputs = [(_fx.OUTPUT_RESULT, k, None) for k in range(len(results))]
    return _Program(function, _C.graph_operator(graph, list(range(len(inputs))), [], results, outputs))


# ---- torch.compile ----

_waiting: list[Callable[..., Any]] = []  # entries that Dynamo must not trace into, until it is loaded


def _allow_in_graph(entry: Callable[..., Any]) -> None:
    if "torch._dynamo" in sys.modules:
        torch.compiler.allow_in_graph(entry)
    else:
        _waiting.append(entry)


def prepare_dynamo() -> None:
    """Tells Dynamo of the operators defined before it was loaded."""
    while _waiting:
        torch.compiler.allow_in_graph(_waiting.pop())
