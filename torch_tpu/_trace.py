"""A whole function, as plain eager PyTorch runs it (autograd, optimizer, writes in place), recorded as one graph.

No device and no memory is used: every tensor is fake. What `torch.compile` records, `_fx.py` converts; this is for
programs that end in ``backward()`` and ``optimizer.step()`` and for modules whose parameters are on ``meta``.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend
from torch.nn.utils.stateless import _reparametrize_module

from torch_tpu import _frames
from torch_tpu._decompose import decompositions
from torch_tpu._recorder import DEVICE, Geometry, NoDecomposition, Recorder, contiguous_strides, geometry_of, row_name

OptimizerFactory = Callable[[Any], torch.optim.Optimizer]


@dataclasses.dataclass
class Source:
    """Where a node of a graph comes from."""

    operator: str  # "aten::linear"
    line: str  # "model.py:12", "" where unknown
    backward: bool


@dataclasses.dataclass
class Traced:
    graph: Any
    inputs: list[Geometry]
    results: list[Geometry | int]  # of a new tensor, or the input that is written
    sources: list[Source]  # one a node
    output_bytes: int


class ControlFlow(NoDecomposition):
    """The function calls a higher-order operator, as torch.cond, whose functions only Dynamo traces."""


class _Stepper(Recorder):
    """A recorder that knows from which line each node comes. A backward node has the line of its forward."""

    supports_higher_order_operators = True  # so that dispatch() gets them

    def __init__(self, fake_mode: FakeTensorMode, train: bool):
        from torch_tpu import _C

        super().__init__(_C.Graph(), _C.has_row, decompositions(), fake_mode, lift_constants=True)
        self.train = train
        self.sources: list[Source] = []
        self.inputs: list[torch.Tensor] = []
        self._lines: dict[int, str] = {}  # number of an autograd node -> line
        self._operator = ""
        self._known: dict[int, torch.Tensor] = {}
        self._attention = _C.has_row("aten::_scaled_dot_product_fused_attention_overrideable")

    def stand_in(self, t: torch.Tensor) -> torch.Tensor:
        """The fake input for a tensor; the same tensor gives the same one."""
        found = self._known.get(id(t))
        if found is None:
            found = self.input(t.detach())
            self.inputs.append(t)
            self._known[id(t)] = found
        return found

    def dispatch(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(op, torch._ops.HigherOrderOperator):
            raise ControlFlow(op.name(), "a higher-order operator, which only Dynamo traces")
        if op is torch.ops.aten._fused_sdp_choice.default:
            return int((SDPBackend.OVERRIDEABLE if self._attention else SDPBackend.MATH).value)
        outermost = not self._operator
        if outermost:
            self._operator = op._schema.name
        try:
            return super().dispatch(op, args, kwargs)
        except NoDecomposition as e:
            if not outermost:
                raise
            raise _unrecordable(op, e, self._line()[0], self.train) from e
        finally:
            missing = self.graph.n_nodes - len(self.sources)
            if missing > 0:
                line, backward = self._line()
                self.sources += [Source(self._operator, line, backward)] * missing
            if outermost:
                self._operator = ""

    def _line(self) -> tuple[str, bool]:
        node = torch._C._current_autograd_node()
        if node is not None:
            return self._lines.get(node._sequence_nr(), ""), True
        line = _frames.user_line()
        if torch.is_grad_enabled() and line:
            self._lines[torch.autograd._get_sequence_nr() - 1] = line
        return line, False


def _unrecordable(op: torch._ops.OpOverload, error: NoDecomposition, line: str, train: bool) -> NoDecomposition:
    """The same error with the user's line, and with what to write there instead."""
    name, reason = error.name, error.reason
    if torch.Tag.data_dependent_output in op.tags:
        name = row_name(op)
        reason = (
            "a tensor's value is read in Python (if, while, .item(), .tolist(), int()), and there is none before the"
            f" program runs: choose with torch.where{'' if train else ' or torch.cond'}"
        )
    elif torch.Tag.dynamic_output_shape in op.tags:
        name = row_name(op)
        reason = (
            "the size of the result depends on values, and a program's sizes are fixed: keep the size, with a mask and"
            " torch.where"
        )
    where = f"\n  from {line}\n    {_frames.line_text(line)}" if line else ""
    return NoDecomposition(name, reason + where.rstrip())


# ---- what is traced ----


def trace(
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    train: bool = False,
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: OptimizerFactory | None = None,
) -> Traced:
    """The graph of one call. See torch_tpu.tpu.aot.compile for the meaning of the arguments."""
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    recorder = _Stepper(fake_mode, train)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(train))
        fakes = _module_state(recorder, f, train)
        call_args, call_kwargs = pytree.tree_map_only(torch.Tensor, recorder.stand_in, (tuple(args), dict(kwargs)))
        stack.enter_context(fake_mode)
        stack.enter_context(torch.device(DEVICE))
        if fakes:
            stack.enter_context(_reparametrize_module(f, fakes))  # type: ignore[arg-type]
        stepping = _prepare_optimizer(recorder, fakes, optimizer) if train and optimizer else None
        stack.enter_context(recorder)
        out = f(*call_args, **call_kwargs)
        if train and isinstance(f, torch.nn.Module):
            out = _backward(out, loss)
            if stepping is not None:
                stepping.step()
        results = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
        gradients = [] if stepping else [p.grad for p in _parameters(fakes) if p.grad is not None]
    return _finish(recorder, [*results, *gradients])


def _module_state(recorder: _Stepper, f: Any, train: bool) -> dict[str, torch.Tensor]:
    """Fake parameters and buffers by name; tied ones are one tensor."""
    if not isinstance(f, torch.nn.Module):
        return {}
    fakes: dict[str, torch.Tensor] = {}
    for name, t in (*f.named_parameters(remove_duplicate=False), *f.named_buffers(remove_duplicate=False)):
        fakes[name] = recorder.stand_in(t)
        if train and t.requires_grad:
            fakes[name].requires_grad_(True)
    return fakes


def _parameters(fakes: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    return list({id(t): t for t in fakes.values() if t.requires_grad}.values())


def _backward(out: Any, loss: Callable[[Any], torch.Tensor] | None) -> torch.Tensor:
    value = loss(out) if loss is not None else getattr(out, "loss", None)
    if value is None:
        value = out
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        raise ValueError(
            "aot.compile(train=True): the module gives no loss (a tensor of one element, or an object with .loss): pass"
            " loss=, a function of what it returns"
        )
    value.backward()
    return value.detach()


# ---- what torch.compile makes of a function ----


class _Captured(BaseException):
    """Ends Dynamo's work where its graph would be compiled."""

    def __init__(self, program: Any, arguments: Sequence[Any]):
        super().__init__()
        self.program = program
        self.arguments = arguments


def _capture(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
    from torch_tpu import _C, _fx

    raise _Captured(_fx.record_graph(_C.Graph(), _C.has_row, gm, example_inputs), example_inputs)


def trace_compiled(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Traced:
    """The graph that ``torch.compile(f)`` runs for such arguments, without gradients, on a machine that has the device.

    Raises what ``torch.compile(f, fullgraph=True)`` raises where the function is not one graph, and NoDecomposition.
    """
    from torch._dynamo.backends.common import aot_autograd

    from torch_tpu import _compile

    _compile.prepare_dynamo()
    backend = aot_autograd(
        fw_compiler=_capture,
        inference_compiler=_capture,
        decompositions=_compile._decompositions_for_tracing,
        keep_inference_input_mutations=True,
    )
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    known: dict[int, torch.Tensor] = {}

    def fake(t: torch.Tensor) -> torch.Tensor:
        if id(t) not in known:
            with fake_mode:
                made = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=DEVICE)
            known[id(t)] = torch.nn.Parameter(made, t.requires_grad) if isinstance(t, torch.nn.Parameter) else made
        return known[id(t)]

    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if isinstance(f, torch.nn.Module):
            named = (*f.named_parameters(remove_duplicate=False), *f.named_buffers(remove_duplicate=False))
            stack.enter_context(_reparametrize_module(f, {name: fake(t) for name, t in named}))
        call_args, call_kwargs = pytree.tree_map_only(torch.Tensor, fake, (tuple(args), dict(kwargs)))
        stack.enter_context(fake_mode)
        torch._dynamo.reset()
        try:
            torch.compile(f, backend=backend, fullgraph=True, dynamic=False)(*call_args, **call_kwargs)
        except _Captured as captured:
            program, arguments = captured.program, captured.arguments
        except torch._dynamo.exc.BackendCompilerFailed as e:
            if isinstance(e.inner_exception, NoDecomposition):
                raise e.inner_exception from e
            raise
        else:
            raise RuntimeError("the function has no operators for the device: there is nothing to compile")
        finally:
            torch._dynamo.reset()
    inputs = [geometry_of(arguments[i]) for i in program.inputs]
    return Traced(program.graph, inputs + [geometry_of(t) for t in program.constants], program.results, [], 0)


# ---- optimizers ----


def _prepare_optimizer(
    recorder: _Stepper, fakes: Mapping[str, torch.Tensor], optimizer: OptimizerFactory
) -> torch.optim.Optimizer:
    """An optimizer over the fake parameters, with its state as inputs of the graph."""
    made = optimizer(_parameters(fakes))
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"aot.compile: optimizer= gave no torch.optim.Optimizer but a {type(made).__name__}")
    for group in made.param_groups:
        if group.get("capturable") is False and not group.get("fused"):
            group["capturable"] = True  # its step count is a tensor of the device, an input as any other
        for p in group["params"]:
            p.grad = torch.zeros_like(p)
    made.step()
    for state in made.state.values():
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                state[key] = recorder.stand_in(value)
    made.zero_grad(set_to_none=True)
    return made


# ---- the graph's ends ----


def _finish(recorder: _Stepper, outputs: Sequence[torch.Tensor]) -> Traced:
    inputs = [geometry_of(t) for t in _input_tensors(recorder)]
    results: list[Geometry | int] = []
    n_bytes = 0
    for t in outputs:
        source = recorder.storage(t).source
        if source is not None and source < len(recorder.inputs):
            continue  # an input, perhaps written: it is there already
        recorder.graph.output(recorder.read(t))
        name, sizes, *_ = geometry_of(t)
        results.append((name, sizes, contiguous_strides(sizes), 0, False, False))
        n_bytes += t.numel() * t.element_size()
    for source, target in recorder.written_inputs():
        recorder.graph.output(recorder.read(target))
        results.append(source)
    sources = recorder.sources + [Source("", "", False)] * (recorder.graph.n_nodes - len(recorder.sources))
    return Traced(recorder.graph, inputs, results, sources, n_bytes)


def _input_tensors(recorder: _Stepper) -> Iterator[torch.Tensor]:
    """One for each input of the graph, in its order."""
    by_source = {s.source: s.owner for s in recorder._storages.values() if s.source is not None}
    constants = iter(recorder.constants)
    for i in range(recorder.graph.n_inputs):
        yield by_source[i] if i in by_source else next(constants)


__all__ = ["ControlFlow", "NoDecomposition", "Source", "Traced", "trace", "trace_compiled"]
