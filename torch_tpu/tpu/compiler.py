"""torch.tpu.compiler: how programs are compiled."""

from __future__ import annotations

import contextlib
import difflib
import functools
import mmap
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from torch_tpu import _recompiles
from torch_tpu._recompiles import Recompile

P = ParamSpec("P")
R = TypeVar("R")

# Options of torch.compile(options=...) of the backend "tpu" beside the "xla_..." ones: name -> what it does.
OPTIONS: dict[str, str] = {
    "buckets": "sizes that a dynamic size is filled up to, so that they share programs, where that is exact",
}


# ---- XLA's options ----


def is_xla_option(name: str) -> bool:
    return name.startswith("xla_")


@contextlib.contextmanager
def custom_compiler_options(options: Mapping[str, Any]) -> Iterator[None]:
    """Programs compiled inside the ``with`` block are compiled with these XLA options: {"xla_...": value}.

    Values are bool, int, float or str. Blocks nest, and the inner one wins. The options are the process's, for eager
    operators and ``torch.compile`` alike, and belong to the keys of the caches: a program that was compiled with
    others is compiled again. A graph of ``torch.compile`` keeps the options that held when it was compiled.

    Raises ValueError for an option that the plugin does not know, with those that are near.
    """
    from torch_tpu import _C

    before = _C.get_options()
    _C.set_options(options_number(options, before))
    try:
        yield
    finally:
        _C.set_options(before)


def options_number(options: Mapping[str, Any], base: int | None = None) -> int:
    """The number of a set of XLA options over those of another set (the current one, when None), checked."""
    from torch_tpu import _C

    if not isinstance(options, Mapping):
        raise TypeError(f"compiler options are a dict, not {type(options).__name__}")
    text = _C.options_text(_C.get_options() if base is None else base)
    merged = dict(line.split("=", 1) for line in text.splitlines())
    merged.update((name, _value_text(name, value)) for name, value in options.items())
    number: int = _C.options_intern("".join(f"{name}={merged[name]}\n" for name in sorted(merged)))
    if number:
        _check(number)
    return number


def _value_text(name: Any, value: Any) -> str:
    if not isinstance(name, str) or not is_xla_option(name) or not re.fullmatch(r"\w+", name):
        raise ValueError(f"{name!r} is no XLA option: their names are xla_...{_near(str(name))}")
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (int, float, str)):
        raise TypeError(f"option {name}: a value is a bool, an int, a float or a str, not {type(value).__name__}")
    text = str(value)
    if not text or "\n" in text:
        raise ValueError(f"option {name} cannot have the value {text!r}")
    return text


@functools.cache
def _check(number: int) -> None:
    """Raises for a set that the plugin refuses. It says so when it compiles, so an empty program is compiled."""
    from torch_tpu import _C

    try:
        _C.check_options(number)
    except RuntimeError as e:
        refused = re.search(r"No such compile option: '?(\w+)", str(e))
        reason = f"there is no option {refused[1]}{_near(refused[1])}" if refused else str(e)
        raise ValueError(f"the plugin {_C.plugin_path()} refuses these compiler options: {reason}") from None


def _near(name: str) -> str:
    near = difflib.get_close_matches(name, known_xla_options(), n=4)
    return f"; did you mean {' or '.join(near)}?" if near else ""


@functools.cache
def known_xla_options() -> tuple[str, ...]:
    """Names that look like XLA options in the plugin's file: plugins do not list what they take."""
    from torch_tpu import _C

    with Path(_C.plugin_path()).open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as text:
        matches = re.finditer(rb"xla_[a-z0-9_]{3,80}\0", text)  # a literal beginning: the search is fast
        found = {m[0][:-1].decode() for m in matches if m.start() and text[m.start() - 1] == 0}
    return tuple(sorted(found))


# ---- a training step as one program ----


def compile_step(
    function: Callable[P, R] | None = None, *, options: Mapping[str, Any] | None = None
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes everything that one call of `function` does on the device one program: forward, ``loss.backward()``,
    gradient clipping, ``optimizer.step()``, ``zero_grad``, the schedule's next learning rate.

    The function is plain PyTorch, and its Python runs at every call: what it computes on the device gathers (fused
    eager mode) and is launched once, at its end. A call that does the same operators as one before finds its program;
    numbers that vary (the learning rate, the step count) are inputs of it. Parameters, optimizer state and whatever
    else is overwritten are donated: their memory is used again. Gradients that live on after the call are results of
    the program, so drop them inside (``zero_grad(set_to_none=True)`` after ``optimizer.step()``). A value that Python
    reads inside the function (``loss.item()``, ``if loss > 3``, GradScaler's check) splits it there: return the loss
    instead. Functions of ``torch.compile`` called inside become parts of the program.

    options: XLA options for the program, as in custom_compiler_options.
    """
    if function is None:
        return lambda f: compile_step(f, options=options)  # type: ignore[return-value]
    if not callable(function):
        raise TypeError(f"compile_step takes a function, not {type(function).__name__}")

    @functools.wraps(function)
    def step(*args: P.args, **kwargs: P.kwargs) -> R:
        with custom_compiler_options(options) if options else contextlib.nullcontext(), _one_program():
            return function(*args, **kwargs)

    return step


@contextlib.contextmanager
def _one_program() -> Iterator[None]:
    """Fused mode from an empty graph to a launch at the end. Inside another one, a part of that."""
    from torch_tpu import _C
    from torch_tpu._internal.execution_mode import EagerMode, set_eager_mode

    if _C.is_held():
        yield
        return
    with set_eager_mode(EagerMode.DEFER_AND_FUSE):
        _C.flush()
        _C.hold(True)
        try:
            yield
            _C.flush()
        finally:
            _C.hold(False)


# ---- what was compiled again ----


def recompiles() -> list[Recompile]:
    """The functions that torch.compile compiled again since the process began, oldest first, at most the last 1000.

    Each has function, "name (file:line)"; reason, the guard that failed, as Dynamo says it; and compilations, how many
    the function has now. ``TORCH_LOGS=recompiles`` prints the same as it happens.
    """
    return _recompiles.latest()


# ---- programs that failed to compile ----


def replay(folder: str) -> None:
    """Compiles again what is kept in a folder that the message of a compile error named; raises as it did."""
    from torch_tpu import _C

    path = Path(folder)
    lines = sorted(set((path / "options.txt").read_text().splitlines()))
    _C.compile_program((path / "program.mlir").read_text(), _C.options_intern("".join(f"{x}\n" for x in lines)))
