"""JAX functions as StableHLO text. The only module that imports JAX; it never lets JAX open a device.

JAX's public way of lowering asks the default backend for its devices, which would take the TPU from this process. So
the jaxpr is lowered by the function underneath, with a stand-in where JAX wants a client.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax._src import config, sharding_impls
from jax._src.interpreters import mlir
from jaxlib.mlir import ir

from torch_tpu._target import Target

Types = list[tuple[str, list[int]]]  # (dtype, sizes) of each array

_lock = threading.RLock()  # JAX's configuration of a thread is changed while a function is traced


class _NoClient:
    """What lowering rules see in place of a client: no platform of any device, so that they assume the oldest."""

    runtime_type = "none"

    def __init__(self, platform: str):
        self.platform = platform


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A function in StableHLO: `text` holds private functions, of which `name` is the one to call."""

    name: str
    text: str
    results: Types


def check_version() -> None:
    wanted = {"num_const_args", "in_avals", "ordered_effects", "platforms", "backend", "axis_context", "donated_args",
              "lowering_parameters"}  # fmt: skip
    missing = wanted - set(inspect.signature(mlir.lower_jaxpr_to_module).parameters)
    if missing or not hasattr(config, "pallas_tpu_interpret_mode_context_manager"):
        raise RuntimeError(f"JAX {jax.__version__} lowers functions in another way than JAX 0.10, which is supported")


@contextlib.contextmanager
def _tracing_for(target: Target) -> Iterator[None]:
    """Kernels see the target's kind of device; off a TPU, Pallas interprets them."""
    check_version()
    on_tpu = target.platform == "tpu"
    kind = target.device_kind if on_tpu else "TPU v5 lite"  # what an interpreted kernel chooses its blocks for
    device = jax.sharding.AbstractDevice(device_kind=kind, num_cores=1, platform="tpu")
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
    interpret = config.pallas_tpu_interpret_mode_context_manager
    with _lock, jax.sharding.use_abstract_mesh(mesh):
        before = interpret.swap_local(None if on_tpu else True)
        try:
            yield
        finally:
            interpret.set_local(before)


def arguments(types: Types) -> list[jax.ShapeDtypeStruct]:
    """Raises TypeError for 64-bit types where JAX has them switched off: it would read the wrong memory."""
    made = []
    for i, (dtype, sizes) in enumerate(types):
        if jax.dtypes.canonicalize_dtype(dtype) != jnp.dtype(dtype):
            raise TypeError(
                f"tensor {i} is {dtype}, and JAX has 64-bit types switched off: convert it, or set "
                f'jax.config.update("jax_enable_x64", True)'
            )
        made.append(jax.ShapeDtypeStruct(tuple(sizes), jnp.dtype(dtype)))
    return made


def result_types(avals: Sequence[Any]) -> Types:
    return [(str(a.dtype), [int(n) for n in a.shape]) for a in avals]


def lower(name: str, function: Callable[..., Any], types: Types, target: Target) -> Lowered:
    """A function of arrays that returns a list of arrays. Raises RuntimeError for one that calls back to the host."""
    with _tracing_for(target):
        jaxpr = jax.make_jaxpr(function)(*arguments(types))
        if jaxpr.effects:
            raise RuntimeError(f"{name}: JAX functions with side effects ({jaxpr.effects}) cannot be operators")
        made = mlir.lower_jaxpr_to_module(
            name, jaxpr, num_const_args=0, in_avals=jaxpr.in_avals, ordered_effects=[], platforms=(target.platform,),
            backend=_NoClient(target.platform if target.platform == "cpu" else "none"),
            axis_context=sharding_impls.ShardingContext(1, None, None), donated_args=[False] * len(jaxpr.in_avals),
            lowering_parameters=mlir.LoweringParameters(hoist_constants_as_args=False),
        )  # fmt: skip
    if made.host_callbacks:
        raise RuntimeError(f"{name}: JAX functions that call back to the host cannot be operators")
    symbol, text = _private_functions(name, made.module)
    return Lowered(symbol, text, result_types(jaxpr.out_avals))


def _private_functions(name: str, module: ir.Module) -> tuple[str, str]:
    """The module's functions under names that hold a digest of the module, and the name of @main among them."""
    digest = hashlib.sha256(_text(module.operation).encode()).hexdigest()[:32]
    prefix = "jax_" + "".join(c if c.isalnum() else "_" for c in name) + "_" + digest
    with module.context, ir.Location.unknown():
        operations = list(module.body.operations)
        others = sorted({op.operation.name for op in operations if op.operation.name != "func.func"})
        if others:
            raise RuntimeError(f"{name}: a JAX function that needs {', '.join(others)} cannot be an operator")
        for op in operations:
            old = ir.StringAttr(op.operation.attributes["sym_name"]).value
            new = f"{prefix}_{old}"
            ir.SymbolTable.replace_all_symbol_uses(old, new, module.operation)
            ir.SymbolTable.set_symbol_name(op.operation, new)
            ir.SymbolTable.set_visibility(op.operation, "private")
        return f"{prefix}_main", "".join(_text(op.operation) + "\n" for op in operations)


def _text(operation: ir.Operation) -> str:
    """The generic form, which parsers of other versions read too."""
    return str(operation.get_asm(enable_debug_info=False, print_generic_op_form=True, use_local_scope=True))


# ---- the functions of an operator ----


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a function gives for arguments of certain types."""

    types: Types  # of its results
    structure: Any  # jax.tree.structure of what it returns


def shape_of(function: Callable[..., Any], types: Types, target: Target) -> Shape:
    """Traces the function without making anything."""
    with _tracing_for(target):
        out = jax.eval_shape(function, *arguments(types))
    leaves, structure = jax.tree.flatten(out)
    return Shape(result_types(leaves), structure)


def unflatten(structure: Any, leaves: Sequence[Any]) -> Any:
    return jax.tree.unflatten(structure, leaves)


def flat(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    return lambda *arrays: jax.tree.leaves(function(*arrays))


def is_differentiable(dtype: str) -> bool:
    return bool(jnp.issubdtype(jnp.dtype(dtype), jnp.inexact))


@dataclasses.dataclass(frozen=True)
class Derivative:
    """jax.vjp of a function. `forward` gives the results, then what the backward needs besides the arguments; `saved`
    says of each thing that it needs whether it is an argument (its number) or the n-th of those (-1 - n)."""

    forward: Callable[..., list[Any]]
    backward: Callable[..., list[Any]]  # (*what it needs, *cotangents of differentiable results) -> gradients
    saved: list[int]
    inputs: list[int]  # the arguments that have gradients
    outputs: list[int]  # the results that have cotangents
    n_results: int


def derivative(function: Callable[..., Any], types: Types, target: Target) -> Derivative:
    inputs = [i for i, (dtype, _) in enumerate(types) if is_differentiable(dtype)]
    found: dict[str, Any] = {}

    def with_residuals(*arrays: Any) -> list[Any]:
        def of_inputs(*some: Any) -> tuple[Any, ...]:
            every = list(arrays)
            for i, array in zip(inputs, some, strict=True):
                every[i] = array
            return tuple(jax.tree.leaves(function(*every)))

        results, vjp = jax.vjp(of_inputs, *(arrays[i] for i in inputs))
        residuals, found["structure"] = jax.tree.flatten(vjp)
        found["results"] = [(r.shape, r.dtype) for r in results]
        return [*results, *residuals]

    with _tracing_for(target):
        jaxpr = jax.make_jaxpr(with_residuals)(*arguments(types)).jaxpr
    results = found["results"]
    n = len(results)
    positions = {id(v): i for i, v in enumerate(jaxpr.invars)}
    saved: list[int] = []
    kept: list[int] = []
    for k, v in enumerate(jaxpr.outvars[n:]):
        if id(v) in positions:
            saved.append(positions[id(v)])
        else:
            saved.append(-1 - len(kept))
            kept.append(n + k)
    outputs = [k for k, (_, dtype) in enumerate(results) if jnp.issubdtype(dtype, jnp.inexact)]

    def forward(*arrays: Any) -> list[Any]:
        made = with_residuals(*arrays)
        return [*made[:n], *(made[k] for k in kept)]

    def backward(*arrays: Any) -> list[Any]:
        vjp = jax.tree.unflatten(found["structure"], arrays[: len(saved)])
        given = iter(arrays[len(saved) :])
        cotangents = tuple(
            next(given) if k in outputs else jnp.zeros(shape, jax.dtypes.float0) for k, (shape, _) in enumerate(results)
        )
        return list(vjp(cotangents))

    return Derivative(forward, backward, saved, inputs, outputs, n)


def with_backward(function: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its own rule: backward(arguments, results, cotangents) -> a gradient (or None) an argument."""
    wrapped = jax.custom_vjp(function)

    def forward(*arrays: Any) -> tuple[Any, Any]:
        out = function(*arrays)
        return out, (arrays, out)

    wrapped.defvjp(forward, lambda kept, cotangents: tuple(backward(kept[0], kept[1], cotangents)))
    return wrapped
