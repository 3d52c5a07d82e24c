"""Graphs with one symbolic size as programs for a few fixed sizes: inputs are filled up, and what they are filled up
with reaches no element that the caller sees.

A *layout* says of every dimension which factors it is a product of, outermost first; the symbolic one is None. The
elements beyond the true size hold anything. An operator that mixes elements along such a dimension (a sum, a matrix
product, a softmax) sees neutral ones in their place; operators for which no rule is known here are refused, and the
graph is then compiled for each size by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from torch_tpu import _fx
from torch_tpu._decompose import decompositions
from torch_tpu._recorder import DEVICE, NoDecomposition, Recorder, row_name

Dim = tuple[int | None, ...]  # factors
Layout = tuple[Dim, ...]


class NotExact(Exception):
    """Filling up would change what the caller sees, or is not known not to."""


def choose(table: Sequence[int], size: int) -> int | None:
    """The smallest size of the table that holds `size`."""
    return min((n for n in table if n >= size), default=None)


def symbol_of(gm: torch.fx.GraphModule) -> Any:
    """The only symbol in the sizes of the graph's inputs. Raises NotExact where there are several."""
    found = set()
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            value = node.meta.get("val")
            sizes = value.size() if isinstance(value, torch.Tensor) else [value]
            for n in sizes:
                if isinstance(n, torch.SymInt):
                    found |= n.node.expr.free_symbols
    if len(found) != 1:
        raise NotExact(f"the inputs have {len(found)} symbolic sizes")
    return found.pop()


class Bucket:
    """The program of a graph for inputs of at most `bucket`."""

    def __init__(self, gm: torch.fx.GraphModule, symbol: Any, bucket: int, call_of: Callable[[Any], Any]):
        self.bucket = bucket
        self.places = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.layouts = [_layout_of(n.meta["val"], symbol) for n in self.places]
        tape = _fx.Tape()
        fake_mode = FakeTensorMode()
        recorder = Recorder(tape, _has_row(), decompositions(), fake_mode, lift_constants=True)
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch._C._DisableAutocast(), torch.no_grad():
            length = recorder.input(torch.empty((), dtype=torch.int64, device="meta"))
            examples = [self._example(n, layout) for n, layout in zip(self.places, self.layouts, strict=True)]
            arguments = [recorder.input(x) if isinstance(x, torch.Tensor) else x for x in examples]
            interpreter = _Interpreter(gm, recorder, symbol, bucket, length, self.layouts)
            with fake_mode:
                outputs = interpreter.run(arguments)
            self.outputs, self.size_outputs = interpreter.output_layouts, interpreter.size_outputs
            self._check_outputs()
            lengths = torch.empty((), dtype=torch.int64, device="meta")
            program = _fx.make_program(recorder, [length, *arguments], [lengths, *examples], outputs)
        program.graph = tape.graph
        self.call = call_of(program)

    def _example(self, node: torch.fx.Node, layout: Layout | None) -> Any:
        value = node.meta["val"]
        if layout is None:
            return self.bucket if isinstance(value, torch.SymInt) else value
        return torch.empty(_sizes(layout, self.bucket), dtype=value.dtype, device="meta")

    def _check_outputs(self) -> None:
        for layout in self.outputs:
            for dim in layout or ():
                if None in dim[1:]:
                    raise NotExact("an output has the symbolic size inside another dimension")

    def __call__(self, args: list[Any], size: int) -> list[Any]:
        length = torch.tensor(size, dtype=torch.int64).to("tpu")
        filled = [self._fill(x, layout) for x, layout in zip(args, self.layouts, strict=True)]
        args.clear()
        outputs = self.call([length, *filled])
        for k in self.size_outputs:
            outputs[k] = size
        return [self._cut(t, layout, size) for t, layout in zip(outputs, self.outputs, strict=True)]

    def _fill(self, x: Any, layout: Layout | None) -> Any:
        """The tensor with the bucket's sizes: what it was cut from, or a copy by way of the host, where no program is
        compiled for its size."""
        if layout is None or not any(None in dim for dim in layout):
            return x
        sizes = _sizes(layout, self.bucket)
        if tuple(x.size()) == sizes:
            return x
        strides = torch.empty(sizes, device="meta").stride()
        if x.untyped_storage().nbytes() == math.prod(sizes) * x.element_size() and x.stride() == strides:
            return x.as_strided(sizes, strides, 0)
        whole = torch.zeros(sizes, dtype=x.dtype)
        whole[tuple(slice(0, n) for n in x.size())] = x.detach().cpu()
        return whole.to(x.device)

    def _cut(self, t: Any, layout: Layout | None, size: int) -> Any:
        if layout is None or not isinstance(t, torch.Tensor):
            return t
        for d, dim in enumerate(layout):
            if None in dim:
                t = t.narrow(d, 0, size * math.prod(f for f in dim if f is not None))
        return t


def _has_row() -> Callable[[str], bool]:
    from torch_tpu import _C

    has_row: Callable[[str], bool] = _C.has_row
    return has_row


def _sizes(layout: Layout, bucket: int) -> tuple[int, ...]:
    return tuple(math.prod(bucket if f is None else f for f in dim) for dim in layout)


def _layout_of(value: Any, symbol: Any) -> Layout | None:
    """Of a tensor whose sizes are numbers and the symbol itself; None for what is no tensor."""
    if not isinstance(value, torch.Tensor):
        return None
    dims: list[Dim] = []
    for n in value.size():
        if not isinstance(n, torch.SymInt):
            dims.append((int(n),))
        elif n.node.expr == symbol:
            dims.append((None,))
        else:
            raise NotExact(f"a size is {n}")
    return tuple(dims)


def _merged(dim: Dim) -> Dim:
    """Equal dimensions have equal factors: neighbours that are numbers are one."""
    factors: list[int | None] = []
    for f in dim:
        last = factors[-1] if factors else None
        if f is not None and last is not None:
            factors[-1] = last * f
        elif f != 1:
            factors.append(f)
    return tuple(factors) or (1,)


def _padded(layout: Layout) -> list[int]:
    return [d for d, dim in enumerate(layout) if None in dim]


class _Interpreter(_fx.Interpreter):
    def __init__(
        self,
        gm: torch.fx.GraphModule,
        recorder: Recorder,
        symbol: Any,
        bucket: int,
        length: torch.Tensor,
        inputs: Sequence[Layout | None],
    ):
        super().__init__(gm, recorder)
        self.symbol, self.bucket, self.length = symbol, bucket, length
        self.inputs = iter(inputs)
        self.layouts: dict[torch.fx.Node, Any] = {}
        self.output_layouts: list[Layout | None] = []
        self.size_outputs: list[int] = []  # outputs that are the size itself
        self.values: dict[torch.fx.Node, Any] = {}

    def _value(self, node: torch.fx.Node, values: dict[torch.fx.Node, Any], remaining: Any) -> Any:
        self.values = values
        if node.op == "placeholder":
            self.layouts[node] = next(self.inputs)
            return super()._value(node, values, remaining)
        if node.op == "get_attr":
            value = super()._value(node, values, remaining)
            self.layouts[node] = tuple((int(n),) for n in value.size()) if isinstance(value, torch.Tensor) else None
            return value
        if not isinstance(node.target, torch._ops.OpOverload):
            return self._other(node, values, remaining)
        given = [self.layouts.get(n) for n in node.all_input_nodes]
        symbolic = any(isinstance(n.meta.get("val"), (torch.SymInt, torch.SymFloat)) for n in node.all_input_nodes)
        if not symbolic and not any(layout and _padded(layout) for layout in given if _is_layout(layout)):
            value = super()._value(node, values, remaining)
            self.layouts[node] = pytree.tree_map(
                lambda t: tuple((int(n),) for n in t.size()) if isinstance(t, torch.Tensor) else None, value
            )
            return value
        name = row_name(node.target)
        if name in _RULES:
            return self._finish(node, *_RULES[name](self, node, values))
        if torch.Tag.pointwise in node.target.tags and torch.Tag.nondeterministic_seeded not in node.target.tags:
            return self._finish(node, *_pointwise(self, node, values))
        raise NotExact(f"{name} has no rule for filled-up tensors")

    def _finish(self, node: torch.fx.Node, value: Any, layout: Any) -> Any:
        leaves = value if isinstance(value, (tuple, list)) else [value]
        several = isinstance(value, (tuple, list))
        layouts = [tuple(map(_merged, of)) for of in (layout if several else [layout])]
        for t, of in zip(leaves, layouts, strict=True):
            if isinstance(t, torch.Tensor) and tuple(t.size()) != _sizes(of, self.bucket):
                raise NotExact(f"{node.target}: {tuple(t.size())} where {_sizes(of, self.bucket)} is expected")
        self.layouts[node] = layouts if several else layouts[0]
        return value

    def _other(self, node: torch.fx.Node, values: dict[torch.fx.Node, Any], remaining: Any) -> Any:
        value = super()._value(node, values, remaining)  # getitem, arithmetic of sizes
        source = self.layouts.get(node.args[0]) if node.args and isinstance(node.args[0], torch.fx.Node) else None
        self.layouts[node] = (
            source[node.args[1]] if isinstance(source, (list, tuple)) and not _is_layout(source) else None  # type: ignore[index]
        )
        if isinstance(value, torch.Tensor) and self.layouts[node] is None:
            raise NotExact(f"{node.target} of tensors")
        return value

    def run(self, arguments: Sequence[Any]) -> list[tuple[Any, torch.device | None]]:
        outputs = super().run(arguments)
        (last,) = [n for n in self.gm.graph.nodes if n.op == "output"]
        for n, (value, _) in zip(pytree.tree_leaves(last.args[0], is_leaf=lambda x: x is None), outputs, strict=True):
            if isinstance(value, int) and isinstance(n, torch.fx.Node):
                traced = n.meta["val"]
                if not isinstance(traced, torch.SymInt) or traced.node.expr != self.symbol:
                    raise NotExact("an output is computed from the size")
                self.size_outputs.append(len(self.output_layouts))
            self.output_layouts.append(self.layouts.get(n) if isinstance(n, torch.fx.Node) else None)
        return outputs

    # ---- for the rules ----

    def layout(self, node: Any) -> Layout:
        layout = self.layouts.get(node)
        if not _is_layout(layout):
            raise NotExact("a value without a layout")
        return layout  # type: ignore[return-value]

    def do(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self.recorder:
            return function(*args, **kwargs)

    def mask(self, layout: Layout, dims: Sequence[int]) -> torch.Tensor:
        """True where an element is the caller's, in these dimensions."""

        def build() -> torch.Tensor:
            valid = torch.arange(self.bucket, device=DEVICE) < self.length
            whole = None
            for d in dims:
                factors = layout[d]
                at = factors.index(None)
                sizes = [self.bucket if f is None else f for f in factors]
                one = valid.view([-1 if i == at else 1 for i in range(len(factors))]).expand(sizes).reshape(-1)
                one = one.view([-1 if i == d else 1 for i in range(len(layout))])
                whole = one if whole is None else whole & one
            assert whole is not None
            return whole

        return self.do(build)  # type: ignore[no-any-return]

    def neutral(self, x: torch.Tensor, layout: Layout, dims: Sequence[int], fill: float) -> torch.Tensor:
        """x with `fill` in the place of what it was filled up with along these dimensions."""
        dims = [d for d in dims if None in layout[d]]
        if not dims:
            return x
        mask = self.mask(layout, dims)
        return self.do(lambda: torch.where(mask, x, torch.full((), fill, dtype=x.dtype, device=DEVICE)))  # type: ignore[no-any-return]

    def arguments(self, node: torch.fx.Node) -> tuple[list[Any], dict[str, Any]]:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        args, kwargs = pytree.tree_map(lambda x: DEVICE if isinstance(x, torch.device) else x, (args, kwargs))
        return list(args), dict(kwargs)

    def plain(self, node: torch.fx.Node) -> Any:
        args, kwargs = self.arguments(node)
        return self.recorder.dispatch(node.target, args, kwargs)  # type: ignore[arg-type]

    def is_symbolic(self, n: Any) -> bool:
        return isinstance(n, torch.fx.Node) and isinstance(n.meta.get("val"), (torch.SymInt, torch.SymFloat))


def _is_layout(x: Any) -> bool:
    return isinstance(x, tuple) and all(
        isinstance(d, tuple) and all(f is None or isinstance(f, int) for f in d) for d in x
    )


# ---- rules: (interpreter, node, values) -> value, layout(s) ----


def _pointwise(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    if any(i.is_symbolic(n) for n in node.all_input_nodes):
        raise NotExact(f"{node.target} takes a size as a number")
    layouts = [i.layout(n) for n in node.all_input_nodes]
    rank = max(map(len, layouts))
    dims: list[Dim] = []
    for d in range(-rank, 0):
        seen = {layout[d] for layout in layouts if len(layout) >= -d and layout[d] != (1,)}
        if len(seen) > 1:
            raise NotExact(f"{node.target} of different layouts")
        dims.append(seen.pop() if seen else (1,))
    return i.plain(node), tuple(dims)


def _view(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    source = i.layout(node.args[0])
    factors = [f for dim in source for f in dim if f != 1]
    value = i.plain(node)
    dims: list[Dim] = []
    for size in value.size():
        dim: list[int | None] = []
        left = int(size)
        while left > 1:
            if not factors:
                raise NotExact("a view of another size")
            f = factors.pop(0)
            count = i.bucket if f is None else f
            if left % count == 0:
                dim.append(f)
                left //= count
            elif f is not None and f % left == 0:
                dim.append(left)
                factors.insert(0, f // left)
                left = 1
            else:
                raise NotExact("a view that splits the symbolic size")
        dims.append(tuple(dim) or (1,))
    symbolic = [isinstance(n, torch.SymInt) for n in node.meta["val"].size()]
    if factors or symbolic != [None in dim for dim in dims]:
        raise NotExact("a view whose dimensions are not known")
    return value, tuple(dims)


def _permute(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    x = i.layout(node.args[0])
    name = row_name(node.target)  # type: ignore[arg-type]
    order = list(range(len(x)))
    if name == "aten::permute":
        order = [int(d) % len(x) for d in node.args[1]]  # type: ignore[union-attr, arg-type]
    elif name == "aten::t":
        order.reverse()
    else:
        a, b = (int(d) % len(x) for d in node.args[1:3])  # type: ignore[arg-type]
        order[a], order[b] = order[b], order[a]
    return i.plain(node), tuple(x[d] for d in order)


def _unsqueeze(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    x = list(i.layout(node.args[0]))
    x.insert(int(node.args[1]) % (len(x) + 1), (1,))  # type: ignore[arg-type]
    return i.plain(node), tuple(x)


def _expand(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    x = i.layout(node.args[0])
    value = i.plain(node)
    sizes = node.meta["val"].size()
    x = ((1,),) * (len(sizes) - len(x)) + x
    dims: list[Dim] = []
    for dim, n in zip(x, sizes, strict=True):
        if dim != (1,):
            dims.append(dim)
        elif not isinstance(n, torch.SymInt):
            dims.append((int(n),))
        elif n.node.expr == i.symbol:
            dims.append((None,))
        else:
            raise NotExact(f"expanded to {n}")
    return value, tuple(dims)


def _same(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    return i.plain(node), i.layout(node.args[0])


def _slice(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    x = list(i.layout(node.args[0]))
    args, _ = i.arguments(node)
    d, start, end, step = (args[1:] + [0, None, None, 1][len(args) - 1 :])[:4]
    d %= len(x)
    n = node.meta["val"].size(d)
    plain = (start in (None, 0)) and step == 1
    if None not in x[d] and not isinstance(n, torch.SymInt):
        x[d] = (int(n),)
    elif plain and isinstance(n, torch.SymInt) and n.node.expr == i.symbol:
        x[d] = (None,)  # the first elements: of the whole, or of another tensor
    else:
        raise NotExact("a slice along the symbolic size")
    return i.plain(node), tuple(x)


def _select(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    x = list(i.layout(node.args[0]))
    d = int(node.args[1]) % len(x)  # type: ignore[arg-type]
    if None in x[d] and not (x[d] == (None,) and isinstance(node.args[2], int) and node.args[2] >= 0):
        raise NotExact("an element along the symbolic size, counted from its end")
    del x[d]
    return i.plain(node), tuple(x)


def _cat(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    layouts = [i.layout(n) for n in node.args[0]]  # type: ignore[union-attr]
    d = int(node.args[1] if len(node.args) > 1 else 0) % len(layouts[0])  # type: ignore[arg-type]
    rest = {layout[:d] + layout[d + 1 :] for layout in layouts}
    if len(rest) > 1 or any(None in layout[d] for layout in layouts):
        raise NotExact("a concatenation along the symbolic size")
    total = sum(math.prod(layout[d]) for layout in layouts)  # type: ignore[misc, arg-type]
    return i.plain(node), (*layouts[0][:d], (total,), *layouts[0][d + 1 :])


def _matmul(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    args, kwargs = i.arguments(node)
    first = len(node.args) - 2
    a, b = (i.layout(n) for n in node.args[first:])
    if a[-1] != b[-2] or a[:-2] != b[:-2]:
        raise NotExact("a matrix product of different layouts")
    args[first] = i.neutral(args[first], a, [len(a) - 1], 0)
    args[first + 1] = i.neutral(args[first + 1], b, [len(b) - 2], 0)
    return i.recorder.dispatch(node.target, args, kwargs), (*a[:-1], b[-1])  # type: ignore[arg-type]


def _embedding(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    table, index = (i.layout(n) for n in node.args[:2])
    if _padded(table):
        raise NotExact("a table of symbolic size")
    return i.plain(node), (*index, table[1])


def _reduce(fill: float, mean: bool = False) -> Callable[..., Any]:
    def rule(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
        args, kwargs = i.arguments(node)
        layout = i.layout(node.args[0])
        x = args[0]
        given = args[1] if len(args) > 1 and args[1] is not None and args[1] != [] else range(len(layout))
        dims = [int(d) % len(layout) for d in ([given] if isinstance(given, int) else given)] if layout else []
        keep = bool(args[2]) if len(args) > 2 else bool(kwargs.get("keepdim", False))
        out = tuple((1,) if d in dims else dim for d, dim in enumerate(layout) if keep or d not in dims)
        padded = [d for d in dims if None in layout[d]]
        if padded and math.isinf(fill) and not x.is_floating_point():
            raise NotExact("an extreme of integers along the symbolic size")
        args[0] = i.neutral(x, layout, padded, fill)
        if not (mean and padded):
            return i.recorder.dispatch(node.target, args, kwargs), out  # type: ignore[arg-type]
        known = math.prod(f for d in dims for f in layout[d] if f is not None)
        if len(padded) != 1 or kwargs.get("dtype") is not None or not x.is_floating_point():
            raise NotExact("a mean along several symbolic sizes")
        return i.do(lambda: (args[0].float().sum(dims, keepdim=keep) / (i.length * known)).to(x.dtype)), out

    return rule


def _softmax(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    args, kwargs = i.arguments(node)
    layout = i.layout(node.args[0])
    args[0] = i.neutral(args[0], layout, [int(args[1]) % len(layout)], -math.inf)
    return i.recorder.dispatch(node.target, args, kwargs), layout  # type: ignore[arg-type]


def _layer_norm(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    layout = i.layout(node.args[0])
    n = len(node.args[1])  # type: ignore[arg-type]
    if _padded(layout[len(layout) - n :]):
        raise NotExact("a layer norm over the symbolic size")
    statistics = (*layout[: len(layout) - n], *((1,),) * n)
    return i.plain(node), [layout, statistics, statistics]


def _nll_loss(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    """What the targets are filled up with is ignored by the loss, and not counted in its mean."""
    args, kwargs = i.arguments(node)
    layout, target = (i.layout(n) for n in node.args[:2])
    if len(layout) != 2 or args[3] == 0 or _padded(layout) != [0]:
        raise NotExact("a loss of each element")
    args[1] = i.neutral(args[1], target, [0], args[4])
    return i.recorder.dispatch(node.target, args, kwargs), [(), ()]  # type: ignore[arg-type]


def _fresh(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    layout = _layout_of(node.meta["val"], i.symbol)
    assert layout is not None
    return i.plain(node), layout


def _arange(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    args, _ = i.arguments(node)
    name = row_name(node.target)  # type: ignore[arg-type]
    bounds = args if name == "aten::arange" else args[:2] if name == "aten::arange.start" else args[:3]
    if len(bounds) > 1 and (bounds[0] != 0 or (len(bounds) > 2 and bounds[2] != 1)):
        raise NotExact("a range that does not begin at 0")
    return _fresh(i, node, values)


def _triangle(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    layout = i.layout(node.args[0])
    if any(None in dim and dim != (None,) for dim in layout[-2:]):
        raise NotExact("a triangle over merged dimensions")
    return i.plain(node), layout


def _prefix(i: _Interpreter, node: torch.fx.Node, values: Any) -> Any:
    """Elements depend on those before them only, and the filling comes last."""
    layout = i.layout(node.args[0])
    dim = layout[int(node.args[1]) % len(layout)] if layout else (1,)  # type: ignore[arg-type]
    if None in dim and dim != (None,):
        raise NotExact("a running sum over merged dimensions")
    return i.plain(node), layout


_RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("aten::view", "aten::_unsafe_view", "aten::reshape"), _view),
    **dict.fromkeys(("aten::permute", "aten::t", "aten::transpose.int"), _permute),
    "aten::unsqueeze": _unsqueeze,
    "aten::expand": _expand,
    **dict.fromkeys(("aten::clone", "aten::alias", "aten::detach", "aten::_to_copy"), _same),
    "aten::slice.Tensor": _slice,
    "aten::select.int": _select,
    "aten::cat": _cat,
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::addmm"), _matmul),
    "aten::embedding": _embedding,
    "aten::sum": _reduce(0.0),
    "aten::sum.dim_IntList": _reduce(0.0),
    "aten::mean": _reduce(0.0, mean=True),
    "aten::mean.dim": _reduce(0.0, mean=True),
    "aten::amax": _reduce(-math.inf),
    "aten::amin": _reduce(math.inf),
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax"), _softmax),
    "aten::native_layer_norm": _layer_norm,
    "aten::nll_loss_forward": _nll_loss,
    **dict.fromkeys(("aten::full", "aten::zeros", "aten::ones", "aten::new_zeros", "aten::new_full"), _fresh),
    **dict.fromkeys(("aten::arange", "aten::arange.start", "aten::arange.start_step"), _arange),
    **dict.fromkeys(("aten::tril", "aten::triu"), _triangle),
    **dict.fromkeys(("aten::cumsum", "aten::cumprod"), _prefix),
}

__all__ = ["Bucket", "NoDecomposition", "NotExact", "choose", "symbol_of"]
