"""Warm start of torch.compile: PyTorch's AOTAutograd cache keeps traced and partitioned graphs, with ours inside.

A second process that compiles the same function takes them from there, and their programs from the cache on disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._inductor.output_code import OutputCode

from torch_tpu._fx import Program

Call = Callable[[list[Any]], list[Any]]


@dataclasses.dataclass(repr=False)  # it would be all of the steps
class CompiledGraph(OutputCode):
    """A graph's program, or None where there is no single one, and the XLA options that it was compiled with."""

    program: Program | None
    xla_lines: str
    call: Call | None = None

    def __post_init__(self) -> None:
        self._boxed_call = True  # of the instance: functools.wraps copies those

    def __call__(self, inputs: Sequence[Any]) -> Any:
        assert self.call is not None
        return self.call(inputs)  # type: ignore[arg-type]

    def prepare_for_serialization(self) -> None:
        if self.program is None:
            raise BypassAOTAutogradCache("it runs operator by operator, or has dynamic sizes")
        if self.program.checks:
            raise BypassAOTAutogradCache("it has effects, and what the cache gives back is called without their tokens")
        self.program = dataclasses.replace(self.program, graph=None)
        self.call = None

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        from torch_tpu import _C, _compile, _tape

        if self.call is None:
            assert self.program is not None
            self.program.graph = _tape.replay(self.program.steps)
            self.call = _compile.call_of(self.program, _C.options_intern(self.xla_lines))

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """There are no Triton kernels in it."""


@contextlib.contextmanager
def kept(xla_lines: str) -> Iterator[None]:
    """What AOTAutograd compiles here is looked for in its cache, and kept there, by our version and options too."""
    import torch._functorch.config

    tag = f"{torch.compiler.config.cache_key_tag} torch_tpu {_version()} {xla_lines}"
    with (
        torch.compiler.config.patch(cache_key_tag=tag),  # type: ignore[attr-defined]
        # The backward graph is saved with the forward one, so it is traced with it.
        torch._functorch.config.patch(  # type: ignore[attr-defined]
            bundled_autograd_cache=True, force_non_lazy_backward_lowering=True
        ),
    ):
        yield


@functools.cache
def _version() -> str:
    """What decides which graph is recorded: the version and the files that record it."""
    import torch_tpu

    folder = Path(__file__).parent
    names = ("_compile", "_control", "_decompose", "_decompositions", "_fx", "_recorder", "_tape", "_warm")
    files = [*(folder / f"{name}.py" for name in names), *sorted(folder.glob("_C*.so"))]
    stamps = [f"{f.name}:{f.stat().st_size}:{f.stat().st_mtime_ns}" for f in files]
    return f"{torch_tpu.__version__} {' '.join(stamps)}"
