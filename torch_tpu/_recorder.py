"""Records what a function does to fake tensors as a graph of operators that have a lowering.

The recorder stands between PyTorch's decompositions and `torch_tpu._C.Graph` (csrc/graph/graph.h). Each storage that
the recorded function touches owns one base value; a tensor is a geometry over it. So views need no nodes, and writing
in place becomes a new base value, whatever aliases it: the same rule as for real storages of the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from torch_tpu import _flash

DEVICE = torch.device("tpu", 0)

# csrc/ops/call.h, arg_tag
ARG_VALUE, ARG_NUMBER, ARG_INT, ARG_DTYPE, ARG_STRING, ARG_INTS, ARG_NUMBERS, ARG_VALUES = range(1, 9)

_MEMORY_FORMATS = {  # c10::MemoryFormat
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}
# Constants of at most so many elements are built from numbers in the graph; larger ones become inputs.
_INLINE_ELEMENTS = 64

Geometry = tuple[str, tuple[int, ...], tuple[int, ...], int, bool, bool]


class NoDecomposition(RuntimeError):
    """An operator cannot be expressed by operators that have a lowering."""

    def __init__(self, name: str, reason: str):
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


def row_name(op: torch._ops.OpOverload) -> str:
    """The name that csrc/ops uses: "aten::add.Tensor", "aten::relu"."""
    return op._schema.name + ("." + op._schema.overload_name if op._schema.overload_name else "")


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def geometry_of(t: torch.Tensor) -> Geometry:
    """(dtype, sizes, strides, offset, conj, neg), as csrc/view/view.h has it."""
    return (dtype_name(t.dtype), tuple(t.size()), tuple(t.stride()), int(t.storage_offset()), t.is_conj(), t.is_neg())


def contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(sizes):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def may_overlap(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Two indices may name one element (view.h, geometry_may_overlap)."""
    reach = 1
    for stride, size in sorted((s, n) for s, n in zip(strides, sizes, strict=True) if n != 1):
        if stride < reach:
            return True
        reach = stride * (size - 1) + reach
    return False


def shares_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


@functools.cache
def functional_overload(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The operator without mutation that computes what an in-place or out= operator writes."""
    schema = op._schema
    namespace, name = schema.name.split("::")
    wanted = [a for a in schema.arguments if not (a.kwarg_only and a.alias_info is not None and a.alias_info.is_write)]
    signature = [(a.name, str(a.real_type)) for a in wanted]
    names = [name, name + "_functional"]
    if name.endswith("_") and not name.endswith("__"):
        names = [name[:-1], name[:-1] + "_functional"]
    elif name.startswith("__i") and name.endswith("__"):
        names = ["__" + name[3:]]
    for candidate in names:
        packet = getattr(getattr(torch.ops, namespace), candidate, None)
        for overload in packet.overloads() if packet is not None else ():
            other = getattr(packet, overload)
            if other._schema.is_mutable:
                continue
            if [(a.name, str(a.real_type)) for a in other._schema.arguments] == signature:
                return other
    return None


def bind(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments in the schema's order, defaults filled in."""
    bound = []
    for i, a in enumerate(op._schema.arguments):
        if i < len(args):
            bound.append(args[i])
        elif a.name in kwargs:
            bound.append(kwargs[a.name])
        else:
            bound.append(a.default_value if a.has_default_value() else None)
    return bound


# Operators that are StableHLO functions, by name: a function of their arguments gives the text (_jax.py, Lowered).
FUNCTIONS: dict[str, Callable[..., Any]] = {}


class _Storage:
    """What the recorder knows of a storage: a base value, or the value of one geometry that covers all of it."""

    def __init__(
        self,
        owner: torch.Tensor,
        constant: torch.Tensor | None = None,
        source: int | None = None,
        later: Callable[[], int] | None = None,
    ):
        self.owner = owner  # keeps the storage's address its own
        self.base: int | None = None
        self.values: dict[Geometry, int] = {}
        self.constant = constant
        self.later = later  # makes the value when it is first read
        self.source = source  # which input of the graph it is
        self.written = False


# Nothing but shapes and names: no node.
_IGNORED = {
    "aten::_assert_scalar",
    "aten::_assert_tensor_metadata",
    "aten::_functional_assert_scalar",
    "aten::sym_constrain_range",
    "aten::sym_constrain_range_for_size",
    "aten::_functional_sym_constrain_range",
    "aten::record_stream",
}
# Said by the program after it has run.
_ASSERTIONS = {"aten::_assert_async", "aten::_assert_async.msg", "aten::_functional_assert_async.msg"}
# A fresh tensor with the operand's value.
_COPIES = {"aten::clone", "aten::lift_fresh_copy", "aten::lift_fresh", "aten::lift", "aten::contiguous", "prims::clone"}
# Views by what they do, though their schemas do not say so.
_HIDDEN_VIEWS = {"aten::unsafe_split.Tensor", "aten::unsafe_split_with_sizes", "aten::_unsafe_view"}
_EMPTY = {
    "aten::empty.memory_format",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::empty_permuted",
    "aten::new_empty",
    "aten::new_empty_strided",
    "prims::empty_strided",
    "prims::empty_permuted",
    "aten::empty.names",
}


class Recorder(TorchDispatchMode):
    """Under this mode (with `fake_mode` below it) every operator goes into `graph`.

    An operator becomes a node when it has a row; else it is replaced by, in this order, a decomposition from
    `decompositions` or its composite kernel. `lift_constants` says that large constants may become inputs of the graph
    (they are then found in `constants`).
    """

    def __init__(
        self,
        graph: Any,
        has_row: Callable[[str], bool],
        decompositions: dict[torch._ops.OpOverload, Callable[..., Any]],
        fake_mode: FakeTensorMode,
        lift_constants: bool = False,
    ):
        super().__init__()
        self.graph = graph
        self.has_row = has_row
        self.decompositions = decompositions
        self.fake_mode = fake_mode
        self.lift_constants = lift_constants
        self.constants: list[torch.Tensor] = []
        # Where a list: what is looked at when the program has run, as (info, name of the function, is a matrix).
        self.checks: list[tuple[torch.Tensor, str, bool]] | None = None
        self.skip_row: torch._ops.OpOverload | None = None  # the operator that is being replaced has no use for its row
        self.results_read: set[int] | None = None  # which of the next operator's results are of use; None: all may be
        self._storages: dict[int, _Storage] = {}
        self._types: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._n_inputs = 0
        self._replacing: list[str] = []

    # ---- values ----

    def input(self, like: torch.Tensor) -> torch.Tensor:
        """A fake tensor of this device for the graph's next input, with the sizes and strides of `like`."""
        sizes, strides = tuple(like.size()), tuple(like.stride())
        if may_overlap(sizes, strides):
            strides = contiguous_strides(sizes)
        with self.fake_mode:
            t = torch.empty_strided(sizes, strides, dtype=like.dtype, device=DEVICE)
        self._track_input(t)
        return t

    def _track_input(self, t: torch.Tensor) -> None:
        storage = _Storage(t, source=self._n_inputs)
        self._n_inputs += 1
        storage.values[geometry_of(t)] = self.typed(
            self.graph.input(dtype_name(t.dtype), list(t.size())), dtype_name(t.dtype), t.size()
        )
        self._storages[t.untyped_storage()._cdata] = storage

    def constant(self, t: torch.Tensor) -> torch.Tensor:
        """A fake tensor that stands for a real one: a number, or an input of the graph."""
        with self.fake_mode:
            fake = torch.empty_strided(t.size(), contiguous_strides(t.size()), dtype=t.dtype, device=DEVICE)
        self._storages[fake.untyped_storage()._cdata] = _Storage(fake, constant=t)
        return fake

    def typed(self, value: int, dtype: str, sizes: Sequence[int]) -> int:
        self._types[value] = (dtype, tuple(sizes))
        return value

    def storage(self, t: torch.Tensor) -> _Storage:
        found = self._storages.get(t.untyped_storage()._cdata)
        if found is None:
            found = self._storages[t.untyped_storage()._cdata] = _Storage(t, constant=self._constant_of(t))
        return found

    def _constant_of(self, t: torch.Tensor) -> torch.Tensor:
        constant = t.constant if isinstance(t, FakeTensor) else t
        if constant is None:
            raise NoDecomposition(self._where(), "uses a tensor that is neither an argument nor a constant")
        return constant

    def define(self, t: torch.Tensor, value: int) -> None:
        """`t`, new, has this value."""
        storage = self._storages[t.untyped_storage()._cdata] = _Storage(t)
        storage.values[geometry_of(t)] = value

    def read(self, t: torch.Tensor) -> int:
        storage = self.storage(t)
        geometry = geometry_of(t)
        if geometry not in storage.values:
            storage.values[geometry] = self.typed(
                self.graph.read(self._base(storage), geometry), geometry[0], geometry[1]
            )
        return storage.values[geometry]

    def read_as(self, t: torch.Tensor, dtype: torch.dtype) -> int:
        value = self.read(t)
        return value if t.dtype == dtype else self._fresh(value, dtype, t.size())

    def _fresh(self, value: int, dtype: torch.dtype, sizes: Sequence[int]) -> int:
        geometry = (dtype_name(dtype), tuple(sizes), contiguous_strides(sizes), 0, False, False)
        return self.typed(self.graph.write(None, geometry, value), geometry[0], sizes)

    def _base(self, storage: _Storage) -> int:
        if storage.base is not None:
            return storage.base
        if not storage.values:
            owner = storage.owner
            if storage.later is not None:
                storage.values[geometry_of(owner)] = storage.later()
            elif storage.constant is not None:
                storage.values[geometry_of(owner)] = self._constant(storage.constant)
            else:  # uninitialised memory reads as zeros
                count = owner.untyped_storage().nbytes() // owner.element_size()
                storage.base = self.full([count], 0, owner.dtype)
                return storage.base
        geometry, value = next(iter(storage.values.items()))
        if geometry[2:] == (contiguous_strides(geometry[1]), 0, False, False):
            storage.base = value
        else:
            storage.base = self.graph.write(None, geometry, value)
        return storage.base

    def write(self, t: torch.Tensor, value: int) -> None:
        """Puts a value (broadcast and converted to t's type) into `t`, and so into all that share its storage."""
        storage = self.storage(t)
        geometry = geometry_of(t)
        storage.written = True
        covers = t.numel() * t.element_size() == t.untyped_storage().nbytes() and not may_overlap(t.size(), t.stride())
        if covers and self._types.get(value) == geometry[:2] and not t.is_conj() and not t.is_neg():
            storage.base = None
            storage.values = {geometry: value}
        elif covers:
            storage.base = None
            storage.values = {geometry: self._fresh(value, t.dtype, t.size())}
        else:
            storage.base = self.graph.write(self._base(storage), geometry, value)
            storage.values = {}

    def full(self, sizes: Sequence[int], number: Any, dtype: torch.dtype) -> int:
        args = [(ARG_INTS, list(sizes)), (ARG_NUMBER, number), (ARG_DTYPE, dtype_name(dtype)), None, None, None]
        (value,) = self.graph.call("aten::full", args, [(dtype_name(dtype), list(sizes))])
        return self.typed(value, dtype_name(dtype), sizes)

    def _constant(self, t: torch.Tensor) -> int:
        """A constant tensor: a number, a few numbers, or an input."""
        if t.numel() == 0:
            return self.full(t.size(), 0, t.dtype)
        if t.numel() == 1 and t.device.type == "cpu":
            return self.full(t.size(), _numbers_of(t)[0], t.dtype)
        if self.lift_constants:
            self.constants.append(t)
            self._n_inputs += 1
            return self.typed(self.graph.input(dtype_name(t.dtype), list(t.size())), dtype_name(t.dtype), t.size())
        if t.numel() > _INLINE_ELEMENTS:
            raise NoDecomposition(self._where(), f"uses a constant tensor of {t.numel()} elements")
        parts = [(ARG_VALUE, self.full([1], n, t.dtype)) for n in _numbers_of(t)]
        dtype = dtype_name(t.dtype)
        (flat,) = self.graph.call("aten::cat", [(ARG_VALUES, parts), (ARG_INT, 0)], [(dtype, [t.numel()])])
        flat_geometry = (dtype, tuple(t.size()), contiguous_strides(t.size()), 0, False, False)
        return self.typed(self.graph.read(flat, flat_geometry), dtype, t.size())

    def written_inputs(self) -> list[tuple[int, torch.Tensor]]:
        """Inputs that were written into: (which, the tensor)."""
        found = [(s.source, s.owner) for s in self._storages.values() if s.source is not None and s.written]
        return sorted(found, key=lambda pair: pair[0])

    # ---- arguments ----

    def _number(self, v: Any) -> tuple[Any, ...]:
        if isinstance(v, torch.Tensor):  # a 0-d CPU tensor: a number with a dtype of its own
            return (ARG_NUMBER, _numbers_of(v)[0], dtype_name(v.dtype))
        return (ARG_NUMBER, _plain(v))

    def _encode_tensor(self, t: Any) -> tuple[Any, ...] | None:
        if t is None:
            return None
        if not isinstance(t, torch.Tensor):
            return self._number(t)
        if t.dim() == 0 and t.device.type == "cpu":
            constant = self.storage(t).constant
            if constant is not None and constant.dim() == 0:
                return self._number(constant)
        return (ARG_VALUE, self.read(t))

    def _encode(self, v: Any, kind: str) -> tuple[Any, ...] | None:
        if v is None or isinstance(v, (torch.device, torch.Generator)):
            return None
        if isinstance(v, torch.dtype):
            return (ARG_DTYPE, dtype_name(v))
        if isinstance(v, torch.memory_format):
            return (ARG_INT, _MEMORY_FORMATS[v])
        if isinstance(v, torch.layout):
            return None
        if isinstance(v, str):
            return (ARG_STRING, v)
        if isinstance(v, torch.Tensor):
            return self._encode_tensor(v)
        if isinstance(v, (list, tuple)):
            if "Tensor" in kind:
                return (ARG_VALUES, [self._encode_tensor(e) for e in v])
            if "float" in kind or "number" in kind or "Scalar" in kind:
                return (ARG_NUMBERS, [_plain(e) for e in v])
            return (ARG_INTS, [int(e) for e in v])
        if "Tensor" in kind or "number" in kind or "Scalar" in kind or "float" in kind:
            return self._number(v)
        return (ARG_INT, int(v))

    # ---- operators ----

    def _where(self) -> str:
        return self._replacing[0] if self._replacing else "graph"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001
        return self.dispatch(func, args, kwargs or {})

    def dispatch(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        name = row_name(op)
        read, self.results_read = self.results_read, None  # not what an operator within this one is asked for
        if name in _IGNORED:
            return None
        if name in _ASSERTIONS:
            return self._assert(*args)
        if name == "aten::_linalg_check_errors" and self.checks is not None:
            self.checks.append((args[0], args[1], kwargs["is_matrix"]))
            return None
        if op.namespace == "prim" or name.startswith("aten::sym_"):  # questions about a tensor, not operators
            return self._fake(op, args, kwargs)
        if name in _EMPTY:
            return self._empty(op, args, kwargs)
        if name in FUNCTIONS:
            return self._function(op, args, kwargs, FUNCTIONS[name](*bind(op, args, kwargs)))
        if name in _flash.OPERATORS:
            out = self._attention_kernel(op, name, args, kwargs, read)
            if out is not None:
                return out
        if op._schema.is_mutable:
            return self._mutate(op, name, args, kwargs)
        if name in ("aten::lift_fresh", "aten::lift", "aten::lift_fresh_copy") and args[0].device.type == "cpu":
            return self._fake(op, args, kwargs)  # keeps the constant
        if name in _COPIES:
            return self._copy(op, args, kwargs)
        if name in ("aten::_to_copy", "prims::device_put", "prims::convert_element_type"):
            return self._convert(op, args, kwargs)
        if op.is_view:
            viewed = self._view(op, args, kwargs)
            if viewed is not None:
                return viewed
        if self.has_row(name) and op is not self.skip_row:
            return self._node(op, name, args, kwargs)
        return self._replace(op, name, args, kwargs)

    def _fake(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            with self.fake_mode:
                return op(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as e:
            raise NoDecomposition(self._where(), f"{row_name(op)}: the result depends on the data") from e
        except UnsupportedOperatorException as e:
            raise NoDecomposition(self._where(), f"{row_name(op)}: no meta kernel") from e

    def _assert(
        self,
        condition: torch.Tensor,
        text: str = "Expected Tensor with single nonzero value, but got zero",
        token: torch.Tensor | None = None,
    ) -> torch.Tensor | None:
        operand = (ARG_VALUE, self.read(condition))
        type_of = (dtype_name(condition.dtype), list(condition.size()))
        self.graph.call("aten::_functional_assert_async.msg", [operand, (ARG_STRING, text), operand], [type_of])
        return token

    def _empty(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        t = self._fake(op, args, kwargs)
        self._storages[t.untyped_storage()._cdata] = _Storage(t)
        return t

    def _copy(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        out = self._fake(op, args, kwargs)
        if out.untyped_storage()._cdata != args[0].untyped_storage()._cdata:
            self.define(out, self.read(args[0]))
        return out

    def _convert(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        out = self._fake(op, args, kwargs)
        if out.untyped_storage()._cdata != args[0].untyped_storage()._cdata:
            self.define(out, self.read_as(args[0], out.dtype))
        return out

    def _view(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result when it is one geometry more over a known storage."""
        out = self._fake(op, args, kwargs)
        known = pytree.tree_leaves((args, kwargs))
        for t in known:
            if isinstance(t, torch.Tensor):
                self.storage(t)
        same = {t.untyped_storage()._cdata for t in known if isinstance(t, torch.Tensor)}
        results = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
        return out if all(t.untyped_storage()._cdata in same for t in results) else None

    def _node(self, op: torch._ops.OpOverload, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        out = self._fake(op, args, kwargs)
        if name in _HIDDEN_VIEWS and all(shares_storage(t, args[0]) for t in pytree.tree_leaves(out)):
            return out
        bound = bind(op, args, kwargs)
        encoded = [self._encode(v, str(a.real_type)) for v, a in zip(bound, op._schema.arguments, strict=True)]
        leaves = pytree.tree_leaves(out, is_leaf=lambda x: x is None)
        types = [(dtype_name(t.dtype), list(t.size())) if isinstance(t, torch.Tensor) else None for t in leaves]
        for t, value in zip(leaves, self.graph.call(name, encoded, types), strict=True):
            if isinstance(t, torch.Tensor):
                self.define(t, self.typed(value, dtype_name(t.dtype), t.size()))
        return out

    def _function(
        self,
        op: torch._ops.OpOverload,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        function: Any,
        operands: Sequence[torch.Tensor] | None = None,
    ) -> Any:
        """A function of the operator's tensors, or of some of them, that gives the first of its results."""
        out = self._fake(op, args, kwargs)
        if operands is None:
            operands = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        values = self.graph.call_function(
            function.name, function.text, [self.read(t) for t in operands], function.results
        )
        for k, t in enumerate(out):
            if k < len(values):
                self.define(t, self.typed(values[k], dtype_name(t.dtype), t.size()))
            elif isinstance(t, torch.Tensor):  # nothing reads it
                self.define(t, self.full(t.size(), 0, t.dtype))
        return out

    def _attention_kernel(
        self, op: torch._ops.OpOverload, name: str, args: Sequence[Any], kwargs: dict[str, Any], read: set[int] | None
    ) -> Any:
        """The results of a kernel in the operator's place, or None where there is none.

        Without autograd nothing reads the log-sum-exp as a rule, and the kernel writes much less to memory without it:
        the kernel with it is called where it is read after all.
        """
        bound = bind(op, args, kwargs)
        statistics = 1 in read if read is not None else torch.is_grad_enabled()
        kernel = _flash.function_for(name, bound, statistics)
        if kernel is None:
            return None
        function, operands = kernel
        out = self._function(op, args, kwargs, function, operands)
        if len(function.results) == 1 and name == _flash.OPERATORS[0]:
            values = [self.read(t) for t in operands]

            def log_sum_exp() -> int:
                full, _ = _flash.function_for(name, bound)  # type: ignore[misc]
                value = self.graph.call_function(full.name, full.text, values, full.results)[1]
                return self.typed(value, dtype_name(out[1].dtype), out[1].size())

            self._storages[out[1].untyped_storage()._cdata] = _Storage(out[1], later=log_sum_exp)
        return out

    def _mutate(self, op: torch._ops.OpOverload, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        bound = bind(op, args, kwargs)
        arguments = op._schema.arguments
        written = [v for v, a in zip(bound, arguments, strict=True) if a.alias_info and a.alias_info.is_write]
        if name in ("aten::copy_", "prims::copy_to"):
            self._write_value(args[0], args[1])
            return args[0]
        functional = functional_overload(op)
        if functional is None or not (self.has_row(row_name(functional)) or self._replaceable(functional)):
            if self._replaceable(op):
                return self._replace(op, name, args, kwargs)
            raise NoDecomposition(self._where(), f"{name}: no operator without mutation stands for it")
        positional, keywords = [], {}
        names = {a.name for a in functional._schema.arguments}
        for v, a in zip(bound, op._schema.arguments, strict=True):
            if a.name not in names:
                continue
            if a.kwarg_only:
                keywords[a.name] = v
            else:
                positional.append(v)
        with self:
            out = functional(*positional, **keywords)
        targets = pytree.tree_leaves(written, is_leaf=lambda x: x is None)
        sources = pytree.tree_leaves(out, is_leaf=lambda x: x is None)
        for target, source in zip(targets, sources[len(sources) - len(targets) :], strict=True):
            if target is not None:
                self._write_value(target, source)
        fresh = sum(r.alias_info is None for r in op._schema.returns)
        returned = sources[:fresh] if fresh else [v for v in written if v is not None]
        if not op._schema.returns:
            return None
        return returned[0] if len(op._schema.returns) == 1 else tuple(returned)

    def _write_value(self, target: torch.Tensor, source: Any) -> None:
        if not isinstance(source, torch.Tensor):
            self.write(target, self.full([], source, target.dtype))
            return
        if target.size() != source.size() and target.numel() == 0:  # out= with nothing in it yet
            with self.fake_mode:
                torch.ops.aten.resize_.default(target, source.size())
        value = self.read(source)
        if target.size() != source.size():
            with self.fake_mode:
                value = self.read(source.expand(target.size()))
        self.write(target, value)

    # ---- operators without a row ----

    def _replaceable(self, op: torch._ops.OpOverload) -> bool:
        return op in self.decompositions or _composite_key(op) is not None or hasattr(op, "impl_aten")

    def _replace(self, op: torch._ops.OpOverload, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self._replacing.count(name) >= 2:  # structured operators' kernels call the out= form, which comes back here
            raise NoDecomposition(self._replacing[0], f"{name} has neither a lowering nor a decomposition")
        self._replacing.append(name)
        try:
            decomposition = self.decompositions.get(op)
            if decomposition is not None:
                with self:
                    out = decomposition(*args, **kwargs)
                if out is not NotImplemented:
                    return self._retype(op, args, kwargs, out)
            if hasattr(op, "impl_aten"):  # a prim: the ATen operator it stands for
                with self:
                    return op.impl_aten(*args, **kwargs)
            key = _composite_key(op)
            if key is not None:
                with self:
                    return op._op_dk(key, *args, **kwargs)
        finally:
            self._replacing.pop()
        where = self._where() if self._replacing else name
        raise NoDecomposition(where, f"{name} has neither a lowering nor a decomposition")

    def _retype(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
        """Decompositions whose result type differs from the operator's own are corrected to it."""
        if op._schema.is_mutable:
            return out
        try:
            expected = self._fake(op, args, kwargs)
        except NoDecomposition:
            return out
        wanted = pytree.tree_leaves(expected, is_leaf=lambda x: x is None)
        given, spec = pytree.tree_flatten(out, is_leaf=lambda x: x is None)
        if len(wanted) != len(given):
            return out
        for i, (w, t) in enumerate(zip(wanted, given, strict=True)):
            if not isinstance(w, torch.Tensor) or not isinstance(t, torch.Tensor):
                continue
            if w.size() != t.size():
                raise NoDecomposition(
                    self._where(), f"{row_name(op)} decomposes to sizes {tuple(t.size())}, not {tuple(w.size())}"
                )
            if w.dtype != t.dtype or w.stride() != t.stride() and not op.is_view:
                self.define(w, self.read_as(t, w.dtype))
                given[i] = w
        return pytree.tree_unflatten(given, spec)


def _numbers_of(t: torch.Tensor) -> list[Any]:
    """The elements of a constant, which is a tensor with values, whatever is being traced."""
    if isinstance(t, FakeTensor):
        return t.flatten().tolist()
    with _disable_current_modes():
        return t.flatten().tolist()


def _plain(v: Any) -> Any:
    """A Python number for a symbolic one."""
    if isinstance(v, torch.SymInt):
        return int(v)
    if isinstance(v, torch.SymFloat):
        return float(v)
    if isinstance(v, torch.SymBool):
        return bool(v)
    return v


@functools.cache
def _composite_key(op: torch._ops.OpOverload) -> Any:
    """The alias key of a kernel made of other operators."""
    name = row_name(op)
    for key in (
        torch._C.DispatchKey.CompositeImplicitAutograd,
        torch._C.DispatchKey.CompositeExplicitAutograd,
        torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional,
    ):
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
            return key
    return None
