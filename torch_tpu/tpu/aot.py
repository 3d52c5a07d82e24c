"""``torch.tpu.aot``: compiling for TPUs that are not attached, and what the compiler says of the program.

libtpu's own compiler does the work, in a process of its own: no TPU is needed, only ``pip install libtpu``.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import numbers
import os
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torch_tpu import _arguments, _target
from torch_tpu._arguments import Wanted
from torch_tpu._trace import ControlFlow, NoDecomposition, OptimizerFactory, Source, Traced, trace, trace_compiled

__all__ = ["AheadOfTimeError", "Compiled", "DoesNotFit", "Memory", "Operation", "compile", "topologies"]

TIME_LIMIT = 1800.0  # seconds


class AheadOfTimeError(RuntimeError):
    """There is no such program, or the compiler refused it, ended its process, or took too long; then the message ends
    with its last words."""


class DoesNotFit(torch.OutOfMemoryError):
    """The compiler found no way to run the program within the chip's memory. Sizes in bytes."""

    def __init__(self, message: str, needed: int, hbm: int):
        super().__init__(message)
        self.needed = needed
        self.hbm = hbm


@dataclasses.dataclass(frozen=True)
class Memory:
    """What a program needs of a device's HBM, in bytes, as the compiler assigned it."""

    arguments: int
    outputs: int
    aliased: int  # of the outputs, those that take the memory of donated arguments
    temporaries: int
    code: int
    hbm: int  # that a device has for programs

    @property
    def peak(self) -> int:
        """Arguments, outputs that need memory of their own, temporaries and code, all at once."""
        return self.arguments + self.outputs - self.aliased + self.temporaries + self.code

    @property
    def free(self) -> int:
        """What is left of HBM; negative: by how much it is exceeded."""
        return self.hbm - self.peak

    @property
    def fits(self) -> bool:
        return self.free >= 0


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation of the optimised program, by the compiler's estimate of its cycles."""

    name: str  # in the optimised HLO
    opcode: str
    operator: str  # the PyTorch operator it comes from; a fusion has that of its root
    line: str  # "model.py:12"; "" where unknown
    backward: bool  # it computes the gradient of that line
    runs: int  # more than one inside loops
    seconds: float  # all runs
    share: float  # of the sum over all operations


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What libtpu's compiler made of a program for one device of a topology."""

    topology: str
    device_kind: str  # "TPU v5 lite"
    compiler: str
    chips: int
    devices: int  # two a chip on v4 and tpu7x
    memory: Memory
    flops: float
    bytes_accessed: float
    seconds: float  # the compiler's estimate (XLA cost analysis), loop bodies multiplied by their trip counts
    cycle_seconds: float  # the sum of its finer estimates for each operation; transfers beside computation left out
    peak_flops: float  # a device, bfloat16
    hbm_bytes_per_s: float  # a device
    loops_of_unknown_count: int  # their bodies are counted once
    operations: tuple[Operation, ...]  # the costliest, dearest first
    stablehlo: str = dataclasses.field(repr=False)
    optimized_hlo: str = dataclasses.field(repr=False)
    executable: bytes = dataclasses.field(repr=False)  # PJRT's serialised executable
    cache_entry: str  # its file in the disk cache, "" when it was not stored
    source: str  # of the chip's figures

    @property
    def mfu(self) -> float:
        """Model flops utilisation that `seconds` implies: the share of the device's peak."""
        return self.flops / (self.seconds * self.peak_flops) if self.seconds > 0 else 0.0

    @property
    def bandwidth_utilization(self) -> float:
        """Bytes accessed in `seconds`, as a share of HBM's bandwidth (over 1 where data stays on the chip)."""
        return self.bytes_accessed / (self.seconds * self.hbm_bytes_per_s) if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Everything but the texts and the executable, for JSON."""
        skipped = ("stablehlo", "optimized_hlo", "executable")
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in skipped}
        plain["memory"] = {
            **dataclasses.asdict(self.memory),
            "peak": self.memory.peak,
            "free": self.memory.free,
            "fits": self.memory.fits,
        }
        plain["operations"] = [dataclasses.asdict(op) for op in self.operations]
        return {**plain, "mfu": self.mfu, "bandwidth_utilization": self.bandwidth_utilization}

    def __str__(self) -> str:
        m = self.memory
        verdict = f"fits, {size_text(m.free)} free" if m.fits else f"does not fit: {size_text(-m.free)} too much"
        lines = [
            f"{self.topology} ({self.device_kind}), one of {self.devices} devices",
            f"  time    {time_text(self.seconds)} by the compiler's cost analysis, MFU {self.mfu:.1%};"
            f" {time_text(self.cycle_seconds)} by its cycles",
            f"  work    {self.flops / 1e9:,.1f} Gflop, {size_text(self.bytes_accessed)} accessed",
            f"  memory  {size_text(m.peak)} of {size_text(m.hbm)} ({verdict}): arguments {size_text(m.arguments)},"
            f" outputs {size_text(m.outputs)} of which {size_text(m.aliased)} in place,"
            f" temporaries {size_text(m.temporaries)}, code {size_text(m.code)}",
        ]
        if self.loops_of_unknown_count:
            lines.append(f"  {self.loops_of_unknown_count} loops of unknown length are counted as running once")
        for op in self.operations:
            where = f"{op.operator or op.opcode}{' (gradient)' if op.backward else ''}"
            lines.append(f"  {op.share:6.1%}  {time_text(op.seconds):>9}  {where:40} {op.line}")
        return "\n".join(lines)


# ---- the interface ----


def topologies() -> list[dict[str, Any]]:
    """The TPU generations that can be compiled for: name, slices, devices a chip, HBM, peaks a chip, and the source."""
    return [dict(generation) for generation in _table()]


def compile(  # noqa: A001
    f: Callable[..., Any],
    example_args: Sequence[Any] = (),
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    topology: str = "v5e:1x1",
    train: bool = False,
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: OptimizerFactory | None = None,
    store: bool = False,
    options: Mapping[str, Any] | None = None,
    costliest: int = 10,
    time_limit: float = TIME_LIMIT,
    plugin: str | None = None,
) -> Compiled:
    """Compiles one call of a function or module for one device of a TPU topology, with no TPU.

    f: a module, whose parameters and buffers become arguments of the program, or a function of tensors. Tensors may be
    on any device, ``meta`` included: nothing but their sizes and dtypes is used. What is written in place (buffers, KV
    caches) is donated. topology: "v5e:2x2"; ``topologies()`` lists them. The program is that of one device: with more
    than one, each is taken to run the same program on a batch of its own, with nothing between them.

    train: also ``backward()``, and a step of the optimizer, in the same program. The loss is what the module returns or
    its ``.loss``, or what `loss` makes of it. optimizer: makes one from parameters,
    ``lambda p: torch.optim.AdamW(p, fused=True)``; its state is an argument of the program, and donated as the
    parameters are. With none, the gradients are outputs. Without train nothing is differentiated.

    store: the program is the one that ``torch.compile(f)`` runs without gradients, and its executable goes into the
    disk cache (TORCH_TPU_CACHE_DIR, TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT) under the key that a machine with such
    devices, the same libtpu and the same options computes: there the first call finds it. Lines are not known then.

    options: XLA options, ``{"xla_...": value}``. costliest: how many operations are listed. time_limit: seconds that
    the compiler may take. plugin: libtpu's path, instead of TPU_LIBRARY_PATH or the installed one.

    Raises TypeError and ValueError for arguments that make no sense (a topology that does not exist: naming those that
    do), DoesNotFit (an OutOfMemoryError) when the compiler cannot place the program in memory, AheadOfTimeError when it
    fails otherwise and for what no program of the device expresses (with the line), and what tracing raises.
    """
    _arguments.check("aot.compile", _WANTED, locals())
    _check_combinations(f, train, loss, optimizer, store)
    kind = check_topology(topology)["device_kind"]
    with _target.compiling_for("tpu", kind), torch.no_grad() if not train else torch.enable_grad():
        traced = _traced(f, example_args, example_kwargs or {}, train, loss, optimizer, store)
    return compile_traced(
        traced, topology, store=store, options=options, costliest=costliest, time_limit=time_limit, plugin=plugin
    )


def _traced(
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    train: bool,
    loss: Callable[[Any], torch.Tensor] | None,
    optimizer: OptimizerFactory | None,
    store: bool,
) -> Traced:
    try:
        if store:
            return trace_compiled(f, args, kwargs)
        try:
            return trace(f, args, kwargs, train=train, loss=loss, optimizer=optimizer)
        except ControlFlow as e:
            if train:
                raise AheadOfTimeError(
                    f"aot.compile: {e.name} is not supported with train=True: choose between values with torch.where"
                ) from e
        return trace_compiled(f, args, kwargs)
    except NoDecomposition as e:
        raise AheadOfTimeError(f"aot.compile: {e}") from e


_WANTED = {
    "f": Wanted("a function or a module", (Callable,)),
    "example_args": Wanted("a tuple of arguments, as (x,)", (tuple, list)),
    "example_kwargs": Wanted(
        "a dict of arguments by name", (Mapping,), lambda d: all(isinstance(k, str) for k in d), True
    ),
    "train": Wanted("True or False", (bool,)),
    "loss": Wanted("a function of what the module returns", (Callable,), optional=True),
    "optimizer": Wanted(
        "a function that makes one from parameters, as lambda p: torch.optim.AdamW(p, fused=True)",
        (Callable,),
        optional=True,
    ),
    "store": Wanted("True or False", (bool,)),
    "options": Wanted(
        "a dict of XLA options, from names to bool, int, float or str",
        (Mapping,),
        lambda d: all(isinstance(k, str) and k and isinstance(v, (bool, int, float, str)) for k, v in d.items()),
        True,
    ),
    "costliest": Wanted("a number of operations, at least 0", (numbers.Integral,), lambda n: n >= 0),
    "time_limit": Wanted("a positive number of seconds", (numbers.Real,), lambda n: n > 0),
    "plugin": Wanted("a path", (str, os.PathLike), optional=True),
}


def _check_combinations(f: Any, train: bool, loss: Any, optimizer: Any, store: bool) -> None:
    if not train and (loss is not None or optimizer is not None):
        raise ValueError("aot.compile: loss= and optimizer= are for train=True")
    if train and not isinstance(f, torch.nn.Module) and (loss is not None or optimizer is not None):
        raise ValueError("aot.compile: loss= and optimizer= are for modules; a function does these steps itself")
    if store and train:
        raise ValueError("aot.compile: store=True is for programs of torch.compile, without train=True")


def check_topology(name: str) -> dict[str, Any]:
    """{"generation", "device_kind", "chips", "devices"} of a topology. ValueError for one that does not exist."""
    done = subprocess.run([_compiler(), "check", str(name)], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise _error(done.stderr, str(name))
    return dict(json.loads(done.stdout))


# ---- compiling a trace ----


def compile_traced(
    traced: Traced,
    topology: str,
    *,
    store: bool = False,
    options: Mapping[str, Any] | None = None,
    costliest: int = 10,
    time_limit: float = TIME_LIMIT,
    plugin: str | None = None,
) -> Compiled:
    from torch_tpu import _C

    precision = _C.get_precision()
    text, lines = _C.program_text(traced.graph, traced.inputs, traced.results, precision)
    return compile_text(
        text,
        topology,
        lines=_Lines(lines, traced.sources),
        store=store,
        options=options,
        costliest=costliest,
        time_limit=time_limit,
        plugin=plugin,
    )


class _Lines:
    """From a line of the program's text, which the compiler gives as an operation's place, to PyTorch's."""

    def __init__(self, lines: Sequence[tuple[int, int]] = (), sources: Sequence[Source] = ()):
        self.starts = [line for line, _ in lines]
        self.nodes = [node for _, node in lines]
        self.sources = sources

    def source(self, file: str, line: int) -> Source:
        import bisect

        at = bisect.bisect_right(self.starts, line) - 1
        if file != "-" or at < 0 or self.nodes[at] >= len(self.sources):
            return Source("", f"{file}:{line}" if line and file not in ("", "-") else "", False)
        return self.sources[self.nodes[at]]


def compile_text(
    stablehlo: str,
    topology: str,
    *,
    lines: _Lines | None = None,
    store: bool = False,
    options: Mapping[str, Any] | None = None,
    costliest: int = 10,
    time_limit: float = TIME_LIMIT,
    plugin: str | None = None,
) -> Compiled:
    """Compiles a StableHLO program's text. The arguments are those of compile()."""
    settings = [*_environment_options(), *sorted(f"{k}={_flag_text(v)}" for k, v in (options or {}).items())]
    flags = [part for setting in settings for part in ("--flag", setting)]
    with tempfile.TemporaryDirectory(prefix="torch_tpu_aot_") as folder:
        directory = pathlib.Path(folder)
        (directory / "program.mlir").write_text(stablehlo)
        command = [_compiler(), "compile", plugin or _libtpu(), topology, str(directory / "program.mlir"), folder]
        _run(
            [*command, "--costliest", str(min(costliest, 2**31 - 1)), *flags, *(["--store"] if store else [])],
            directory,
            time_limit,
            topology,
        )
        result = json.loads((directory / "result.json").read_text())
        return _compiled(
            result,
            lines or _Lines(),
            stablehlo,
            (directory / "optimized.hlo.txt").read_text(),
            (directory / "executable.bin").read_bytes(),
        )


def _environment_options() -> list[str]:
    """Those of TORCH_TPU_INTERNAL_XLA_OPTIONS, which every compilation has."""
    from torch_tpu import _environment

    text = _environment.text("TORCH_TPU_INTERNAL_XLA_OPTIONS") or ""
    return [item.lstrip("-") for item in re.split("[, ]+", text) if "=" in item]


def _flag_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _run(command: list[str], directory: pathlib.Path, time_limit: float, topology: str) -> None:
    """Runs the compiler's process. Its words go to a file: a pipe could fill up."""
    words = directory / "words.txt"
    with words.open("w") as out:
        # No TPU is used: nothing is there for libtpu's lock to guard.
        environment = {**os.environ, "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
        try:
            status = child.wait(time_limit)
        except subprocess.TimeoutExpired:
            raise AheadOfTimeError(
                f"compiling for {topology} took more than {time_limit:g} s and was ended; its last words: "
                f"{_last_words(words.read_text(errors='replace'))}"
            ) from None
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    if status:
        text = words.read_text(errors="replace")
        if status > 0 and "\nerror: " in text:
            raise _error(text, topology)
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        raise AheadOfTimeError(f"the compiler's process for {topology} {how}; its last words: {_last_words(text)}")


def _last_words(text: str, most: int = 1500) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("Failed to find host bounds")]
    return ("\n".join(lines[-12:])[-most:]) or "none"


def _error(text: str, topology: str) -> Exception:
    """The exception for the process's "error: NAME message"."""
    name, _, message = text[text.rindex("error: ") + len("error: ") :].strip().partition(" ")
    if name == "ValueError":
        return ValueError(message)
    # XLA: "Used 20.13G of 15.75G hbm", "required for HLO temporaries (64.00G) exceeds available HBM (15.75G)".
    size = r"([\d.]+[BKMGT]?)"
    used = re.search(rf"[Uu]sed {size} of {size} hbm|\({size}\) exceeds available HBM \({size}\)", message)
    if used:
        needed, hbm = (_bytes_of(part) for part in used.groups() if part)
        return DoesNotFit(f"the program does not fit into the HBM of {topology}: {message}", needed, hbm)
    return AheadOfTimeError(f"compiling for {topology} failed: {message}")


def _bytes_of(text: str) -> int:
    unit = "BKMGT".find(text[-1])
    return int(float(text.rstrip("BKMGT")) * 1024 ** max(unit, 0))


def _compiled(result: Mapping[str, Any], lines: _Lines, stablehlo: str, optimized: str, executable: bytes) -> Compiled:
    def number(name: str) -> float:
        return result[name] or 0.0

    operations = []
    for op in result["operations"]:
        place = lines.source(op["source_file"], op["source_line"])
        operations.append(
            Operation(
                op["name"],
                op["opcode"],
                place.operator or op["op_name"],
                place.line,
                place.backward,
                op["runs"],
                op["seconds"],
                op["share"],
            )
        )
    memory = Memory(
        int(number("argument_bytes")),
        int(number("output_bytes")),
        int(number("alias_bytes")),
        int(number("temp_bytes")),
        int(number("code_bytes")),
        int(number("hbm_bytes")),
    )
    return Compiled(
        topology=result["topology"],
        device_kind=result["device_kind"],
        compiler=result["compiler"],
        chips=result["chips"],
        devices=result["devices"],
        memory=memory,
        flops=number("flops"),
        bytes_accessed=number("bytes_accessed"),
        seconds=number("optimal_seconds"),
        cycle_seconds=number("cycle_seconds"),
        peak_flops=number("peak_flops"),
        hbm_bytes_per_s=number("hbm_bytes_per_s"),
        loops_of_unknown_count=result["loops_of_unknown_count"],
        operations=tuple(operations),
        stablehlo=stablehlo,
        optimized_hlo=optimized,
        executable=executable,
        cache_entry=result["cache_entry"],
        source=result["source"],
    )


# ---- what is installed ----


@functools.cache
def _compiler() -> str:
    from torch_tpu import _C

    path = pathlib.Path(_C.__file__).parent / "_aot_compile"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: this installation of torch_tpu is incomplete; install it again")
    return str(path)


def _libtpu() -> str:
    from torch_tpu import _environment, _plugins

    path = _environment.text("TPU_LIBRARY_PATH") or _plugins.find(_plugins.TPU)
    if path is None:
        raise FileNotFoundError(
            f"compiling for TPUs needs libtpu (no TPU): pip install libtpu, or name it in TPU_LIBRARY_PATH"
            f" (looked for {importlib.util.find_spec('libtpu') and 'libtpu.so in it' or 'the package libtpu'})"
        )
    return path


@functools.cache
def _table() -> list[dict[str, Any]]:
    done = subprocess.run([_compiler(), "topologies"], capture_output=True, text=True, timeout=60, check=True)
    return list(json.loads(done.stdout))


# ---- words ----


def size_text(n: float) -> str:
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n:.0f} B"


def time_text(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"
