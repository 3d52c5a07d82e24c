"""Control flow in FX graphs: PyTorch's higher-order operators as the `case` and `while` nodes of csrc/graph/graph.h.

Their functions are FX graphs of their own. Each becomes a graph whose inputs are the operator's tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_tpu._recorder import (
    ARG_NUMBER,
    ARG_VALUE,
    NoDecomposition,
    Recorder,
    contiguous_strides,
    dtype_name,
    may_overlap,
)

if TYPE_CHECKING:
    from torch_tpu._fx import Interpreter

Ids = list[int]
Type = tuple[str, tuple[int, ...]]
INDEX: Type = ("int64", ())


def lower(interpreter: Interpreter, node: torch.fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The results of a node that calls a higher-order operator."""
    operator = node.target
    assert isinstance(operator, torch._ops.HigherOrderOperator)
    rule = _RULES.get(operator.name())
    if rule is None:
        raise NoDecomposition(operator.name(), "a higher-order operator without a lowering")
    return rule(interpreter, node, *args, **kwargs)


# ---- functions as graphs ----


class _Function:
    """An FX graph recorded as a graph; numbers among its arguments are part of it."""

    def __init__(self, interpreter: Interpreter, gm: Any, arguments: Sequence[Any]):
        if not isinstance(gm, torch.fx.GraphModule):
            raise NoDecomposition("control flow", f"over a {type(gm).__name__}, not a traced function")
        outer = interpreter.recorder
        self.graph = outer.graph.__class__()
        recorder = Recorder(self.graph, outer.has_row, outer.decompositions, outer.fake_mode)
        stand_ins = [recorder.input(x) if isinstance(x, torch.Tensor) else x for x in arguments]
        values = [v for v, _ in interpreter.__class__(gm, recorder).run(stand_ins)]
        if recorder.written_inputs():
            raise NoDecomposition("control flow", "over a function that writes into its arguments")
        self.types: list[Type | None] = []
        for v in values:
            if v is not None and not isinstance(v, torch.Tensor):
                raise NoDecomposition("control flow", f"over a function that gives a {type(v).__name__}, not a tensor")
            self.graph.output(None if v is None else recorder.read(v))
            self.types.append(None if v is None else (dtype_name(v.dtype), tuple(v.size())))


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [v for v in values if isinstance(v, torch.Tensor)]


def _type_of(t: torch.Tensor) -> Type:
    return (dtype_name(t.dtype), tuple(t.size()))


def _results(interpreter: Interpreter, node: torch.fx.Node, ids: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Fake tensors for these values, with the strides that the trace saw where they are dense."""
    recorder = interpreter.recorder
    traced = node.meta.get("val")
    seen = list(traced) if isinstance(traced, (tuple, list)) and len(traced) == len(types) else [None] * len(types)
    results: list[Any] = []
    for value, of, like in zip(ids, types, seen, strict=True):
        if of is None:
            results.append(None)
            continue
        strides = contiguous_strides(of[1])
        if isinstance(like, torch.Tensor) and tuple(like.size()) == of[1] and not may_overlap(of[1], like.stride()):
            strides = tuple(like.stride())
        with recorder.fake_mode:
            t = torch.empty_strided(of[1], strides, dtype=getattr(torch, of[0]), device="tpu")
        recorder.define(t, recorder.typed(value, *of))
        results.append(t)
    return results


# ---- cond, while_loop ----


def _cond(interpreter: Interpreter, node: torch.fx.Node, pred: Any, true: Any, false: Any, operands: Any) -> Any:
    if not isinstance(pred, torch.Tensor):
        return _inline(interpreter, true if pred else false, operands)
    recorder = interpreter.recorder
    branches = [_Function(interpreter, f, operands) for f in (false, true)]
    types = branches[1].types
    if branches[0].types != types:
        raise NoDecomposition("cond", f"branches give {types} and {branches[0].types}")
    with recorder.fake_mode:
        index = recorder.read(pred.reshape(()))
    ids = [recorder.read(t) for t in _tensors(operands)]
    made = recorder.graph.call_case(index, [b.graph for b in branches], ids)
    return _results(interpreter, node, made, types)


def _while_loop(
    interpreter: Interpreter, node: torch.fx.Node, condition: Any, body: Any, carried: Any, additional: Any
) -> Any:
    recorder = interpreter.recorder
    if len(_tensors(carried)) != len(carried):
        raise NoDecomposition("while_loop", "carries a number, whose value only the device would know; carry a tensor")
    operands = [*carried, *additional]
    functions = [_Function(interpreter, f, operands) for f in (condition, body)]
    if functions[0].types != [("bool", ())]:
        functions[0].graph = _as_bool_scalar(recorder, functions[0], operands)
    made = recorder.graph.call_while([f.graph for f in functions], [recorder.read(t) for t in _tensors(operands)])
    return _results(interpreter, node, made, functions[1].types)


def _as_bool_scalar(recorder: Recorder, condition: _Function, operands: Sequence[Any]) -> Any:
    """The condition's graph with its one value as a bool of rank 0."""
    graph = recorder.graph.__class__()
    inputs = [graph.input(*_type_of(t)) for t in _tensors(operands)]
    (value,) = graph.call_graph(condition.graph, inputs)
    flat = graph.read(value, (condition.types[0][0], (), (), 0, False, False))  # type: ignore[index]
    graph.output(graph.write(None, ("bool", (), (), 0, False, False), flat))
    return graph


# ---- scan, map ----


def _scan(interpreter: Interpreter, node: torch.fx.Node, combine: Any, init: Any, xs: Any, additional: Any) -> Any:
    recorder = interpreter.recorder
    length = int(xs[0].size(0)) if xs else 0
    if length == 0:
        raise NoDecomposition("scan", "over nothing")
    with recorder.fake_mode:
        first = [x[0] for x in xs]
    step = _Function(interpreter, combine, [*init, *first, *additional])
    loop = _Loop(recorder, step, length, list(init), list(xs), _tensors(additional))
    return _results(interpreter, node, loop.results, loop.types)


def _map(interpreter: Interpreter, node: torch.fx.Node, f: Any, xs: Any, additional: Any) -> Any:
    return _scan(interpreter, node, f, [], xs, additional)


class _Loop:
    """`step` over the leading dimension of xs: (carry, x[i], ...) -> (carry, y[i])."""

    def __init__(
        self,
        recorder: Recorder,
        step: _Function,
        length: int,
        init: list[torch.Tensor],
        xs: list[torch.Tensor],
        additional: list[torch.Tensor],
    ):
        n = len(init)
        self.step, self.length, self.n_init, self.xs = step, length, n, xs
        stacked = [None if t is None else (t[0], (length, *t[1])) for t in step.types[n:]]
        self.types = [*step.types[:n], *stacked]
        self.kept = [t for t in stacked if t is not None]
        types = [INDEX, *map(_type_of, init), *self.kept, *map(_type_of, xs), *map(_type_of, additional)]
        empty = [recorder.full(list(t[1]), 0, getattr(torch, t[0])) for t in self.kept]
        start = recorder.full([], 0, torch.int64)
        ids = [start, *map(recorder.read, init), *empty, *map(recorder.read, [*xs, *additional])]
        new_graph = recorder.graph.__class__
        made = recorder.graph.call_while([self._condition(new_graph(), types), self._body(new_graph(), types)], ids)
        outputs = iter(made[1 + n :])
        self.results = [*made[1 : 1 + n], *(None if t is None else next(outputs) for t in stacked)]

    def _condition(self, graph: Any, types: Sequence[Type]) -> Any:
        index = [graph.input(*t) for t in types][0]
        (more,) = graph.call("aten::lt.Scalar", [(ARG_VALUE, index), (ARG_NUMBER, self.length)], [("bool", ())])
        graph.output(more)
        return graph

    def _body(self, graph: Any, types: Sequence[Type]) -> Any:
        inputs = [graph.input(*t) for t in types]
        index, rest = inputs[0], inputs[1:]
        carry, rest = rest[: self.n_init], rest[self.n_init :]
        stacks, rest = rest[: len(self.kept)], rest[len(self.kept) :]
        slices = [
            graph.call(
                "core::dynamic_index",
                [(ARG_VALUE, x), (ARG_VALUE, index)],
                [(dtype_name(like.dtype), tuple(like.size()[1:]))],
            )[0]
            for x, like in zip(rest, self.xs, strict=False)
        ]
        made = graph.call_graph(self.step.graph, [*carry, *slices, *rest[len(self.xs) :]])
        values = [v for v in made[self.n_init :] if v is not None]
        stacks = [
            graph.call("core::dynamic_update", [(ARG_VALUE, s), (ARG_VALUE, index), (ARG_VALUE, v)], [t])[0]
            for s, v, t in zip(stacks, values, self.kept, strict=True)
        ]
        one = (ARG_NUMBER, 1)
        (index,) = graph.call("aten::add.Tensor", [(ARG_VALUE, index), one, one], [INDEX])
        for value in (index, *made[: self.n_init], *stacks):
            graph.output(value)
        return graph


# ---- operators that only wrap a function ----


def _inline(interpreter: Interpreter, gm: Any, operands: Sequence[Any]) -> list[Any]:
    return [v for v, _ in interpreter.__class__(gm, interpreter.recorder).run(list(operands))]


def _invoke_subgraph(
    interpreter: Interpreter, node: torch.fx.Node, gm: Any, identifier: Any, *operands: Any
) -> list[Any]:
    return _inline(interpreter, gm, operands)


def is_token(node: torch.fx.Node) -> bool:
    """Whether an input only orders effects: AOTAutograd passes None for it."""
    users = [u for u in node.users if isinstance(u.target, torch._ops.HigherOrderOperator)]
    return bool(users) and all(u.target.name() == "with_effects" and u.args[0] is node for u in users)  # type: ignore[union-attr]


def _with_effects(interpreter: Interpreter, node: torch.fx.Node, token: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    result = interpreter.recorder.dispatch(op, args, kwargs)
    return (token, *result) if isinstance(result, tuple) else (token, result)


def _auto_functionalized(interpreter: Interpreter, node: torch.fx.Node, op: Any, **kwargs: Any) -> Any:
    from torch._higher_order_ops import auto_functionalize

    dense = {
        "auto_functionalized": auto_functionalize.auto_functionalized_dense,
        "auto_functionalized_v2": auto_functionalize.auto_functionalized_v2_dense,
    }
    with interpreter.recorder:
        return dense[str(node.target)](op, **kwargs)  # type: ignore[operator]


_RULES: dict[str, Callable[..., Any]] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
    "invoke_subgraph": _invoke_subgraph,
    "with_effects": _with_effects,
    "auto_functionalized": _auto_functionalized,
    "auto_functionalized_v2": _auto_functionalized,
}
