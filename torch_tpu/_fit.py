"""Whether a Transformers model fits on a TPU, and what a step of it takes: ``torch-tpu fit``."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from torch_tpu.tpu import aot

DEFAULT_SEQ = 1024
MOST_BATCH = 65536
Progress = Callable[[str], None]


class FitError(ValueError):
    """The model cannot be made, or the question makes no sense; the message says why."""


@dataclasses.dataclass
class Attempt:
    """One compilation: what came out, or how much memory was wanted."""

    batch: int
    compiled: aot.Compiled | None
    needed: int  # bytes
    hbm: int

    @property
    def fits(self) -> bool:
        return self.compiled is not None and self.compiled.memory.fits


@dataclasses.dataclass
class Report:
    model: str
    parameters: int
    parameter_bytes: int
    topology: str
    chips: int
    devices: int
    batch: int  # a device
    inputs: str
    tokens: int  # an example; 0: has none
    train: bool
    optimizer: str
    dtype: str
    attempt: Attempt
    largest: Attempt | None  # None: not looked for
    compilations: int
    assumptions: list[str]

    @property
    def fits(self) -> bool:
        return self.attempt.fits

    def shares(self) -> list[tuple[str, float]]:
        """Operators by their share of the compiler's cycles."""
        sums: dict[str, float] = {}
        for op in self.attempt.compiled.operations if self.attempt.compiled else ():
            name = (op.operator or op.opcode) + (" (gradient)" if op.backward else "")
            sums[name] = sums.get(name, 0.0) + op.share
        return sorted(sums.items(), key=lambda item: -item[1])

    def to_dict(self) -> dict[str, Any]:
        plain = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("attempt", "largest")
        }
        compiled = self.attempt.compiled.to_dict() if self.attempt.compiled else None
        if compiled is not None:
            compiled["operations"] = compiled["operations"][:10]
        return {
            **plain,
            "fits": self.fits,
            "needed_bytes": self.attempt.needed,
            "hbm_bytes": self.attempt.hbm,
            "largest_batch": self.largest.batch if self.largest else None,
            "dominates": dict(self.shares()[:10]),
            "compiled": compiled,
        }


def fit(
    model: str,
    *,
    topology: str = "v5e:1x1",
    batch: int = 1,
    seq: int | None = None,
    train: bool = False,
    dtype: str = "bfloat16",
    optimizer: str = "adamw",
    fields: Sequence[str] = (),
    search: bool = True,
    time_limit: float = aot.TIME_LIMIT,
    progress: Progress = lambda text: None,
) -> Report:
    """The report on a model: a config.json, a folder with one, or a model type. fields: "name=value" of the config."""
    place = aot.check_topology(topology)
    config = _config(model, fields)
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise FitError(f"dtype {dtype!r} is no floating-point type of PyTorch, as bfloat16 or float32")
    asked = _asked(fields)
    with _reasons(f"no model of {dtype} can be made of {type(config).__name__}{asked}"):
        module = _module(config, kind).train(train)
        example = _Example(module, config, kind, seq, train)
    progress(f"{type(module).__name__} is made, on meta")
    runs: dict[int, Attempt] = {}

    def attempt(n: int) -> Attempt:
        if n not in runs:
            progress(f"compiling for {topology}: batch {n}, {example.text}")
            with _reasons(f"{type(module).__name__}{asked} does not run with batch {n}, {example.text}"):
                inputs = example.inputs(n)
                runs[n] = _attempt(module, inputs, topology, train, optimizer, time_limit)
            word = "fits" if runs[n].fits else "does not fit"
            progress(f"  batch {n} {word}: {aot.size_text(runs[n].needed)} of {aot.size_text(runs[n].hbm)}")
        return runs[n]

    first = attempt(batch)
    largest = _largest(attempt, first, runs) if search else None
    parameters = list({id(p): p for p in module.parameters()}.values())
    return Report(
        model=_name(model, config),
        parameters=sum(p.numel() for p in parameters),
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
        topology=topology,
        chips=place["chips"],
        devices=place["devices"],
        batch=batch,
        inputs=example.text,
        tokens=example.tokens,
        train=train,
        optimizer=optimizer if train else "",
        dtype=dtype,
        attempt=first,
        largest=largest,
        compilations=len(runs),
        assumptions=_assumptions(place, train, optimizer),
    )


def _assumptions(place: dict[str, Any], train: bool, optimizer: str) -> list[str]:
    said = []
    if place["devices"] > 1:
        said.append(
            f"each of the {place['devices']} devices holds the whole model and runs a batch of its own"
            + (" (data parallel); the exchange of gradients is not counted" if train else "")
        )
    if train and optimizer != "none":
        said.append(f"{optimizer}'s state has the parameters' dtype")
    said.append("time is the compiler's estimate for the device; input pipelines and launches are not in it")
    return said


# ---- what is wrong, in a line ----


@contextlib.contextmanager
def _reasons(what: str) -> Iterator[None]:
    """Whatever libraries raise inside, of configurations and models that users describe, is a FitError of one line."""
    log = logging.getLogger("torch._subclasses.fake_tensor")  # prints the stack of what it raises
    silent, log.disabled = log.disabled, True
    try:
        yield
    except (FitError, aot.AheadOfTimeError, FileNotFoundError):
        raise
    except Exception as e:
        raise FitError(f"{what}: {_reason(e)}") from e
    finally:
        log.disabled = silent


def _asked(fields: Sequence[str]) -> str:
    return " with " + ", ".join(fields) if fields else ""


def _reason(e: BaseException) -> str:
    if type(e).__name__.startswith("StrictDataclass") and e.__cause__ is not None:
        e = e.__cause__  # what huggingface_hub's checks of a configuration found
    text = " ".join(str(e).partition("Exception raised from")[0].split())  # the rest is a stack of C++
    if len(text) > _MOST_REASON:
        text = text[: _MOST_REASON - 4] + " ..."
    return text if text and not isinstance(e, (LookupError, AttributeError)) else f"{type(e).__name__}: {text}"


_MOST_REASON = 400


# ---- the model ----


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as e:
        raise ImportError("torch-tpu fit needs transformers: pip install transformers") from e
    return transformers


def _config(model: str, fields: Sequence[str]) -> Any:
    transformers = _transformers()
    asked = _asked(fields)
    if os.path.exists(model):
        with _reasons(f"{model} is no configuration of Transformers"):
            config = transformers.AutoConfig.from_pretrained(model, local_files_only=True)
        with _reasons(f"{model}{asked}"):
            for name, value in _values(config, fields).items():
                setattr(config, name, value)
            if hasattr(config, "validate"):
                config.validate()
        _check_sizes(config, model)
        return config
    kinds = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    if model not in kinds:
        near = difflib.get_close_matches(model, list(kinds), n=5)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise FitError(f"{model!r} is neither a file or folder nor a model type of Transformers{hint}")
    with _reasons(f"{model}{asked}"):
        config = kinds[model](**_values(kinds[model](), fields))  # sizes that follow from others follow
    _check_sizes(config, model)
    return config


_SIZE = re.compile(r"(^|_)(num|n|d)_|(^|_)(size|dim|layer|head|position|embedding|channel|expert)s?$")
# Without these there is no model. A zero elsewhere can mean that a part is left out.
_NEEDED = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "image_size",
    "patch_size",
    "num_channels",
)


def _check_sizes(config: Any, where: str) -> None:
    """FitError for a size that is negative, or zero where there is no model then. Transformers takes them, and makes
    models without layers of them. What is the configuration's default means something else."""
    try:
        usual = vars(type(config)())
    except Exception:  # some are made of others only
        usual = {}
    names = dict(getattr(config, "attribute_map", None) or {})
    needed = {*_NEEDED, *(names[name] for name in _NEEDED if name in names)}
    for name, value in vars(config).items():
        if hasattr(value, "to_dict"):  # that of a part, as text_config
            _check_sizes(value, f"{where}: {name}")
        if not _SIZE.search(name) or "window" in name or (name in usual and value == usual[name]):
            continue  # a window of -1 is none
        for n in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(n, (int, float)) and (n < 0 or (n == 0 and name in needed)):
                raise FitError(f"{where}: {name} must be {'positive' if name in needed else 'at least 0'}, not {value}")


def _values(config: Any, fields: Sequence[str]) -> dict[str, Any]:
    """The fields "name=value"; FitError for a name that the config has not."""
    values: dict[str, Any] = {}
    for field in fields:
        name, equals, text = field.partition("=")
        if not equals or not _is_field(config, name):
            near = difflib.get_close_matches(name, [n for n in vars(config) if not n.startswith("_")], n=5)
            hint = f"; near are {', '.join(near)}" if near else ""
            raise FitError(f"{type(config).__name__} has no field {name!r} (--set name=value){hint}")
        try:
            values[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # those that it documents
            values[name] = text
    return values


def _is_field(config: Any, name: str) -> bool:
    if name.startswith("_"):
        return False
    return name in vars(config) or not callable(getattr(config, name, _is_field))


def _name(model: str, config: Any) -> str:
    return str(getattr(config, "name_or_path", "") or getattr(config, "_name_or_path", "") or model)


_KINDS = ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM", "AutoModelForImageClassification",
          "AutoModel")  # fmt: skip


def _module(config: Any, dtype: torch.dtype) -> torch.nn.Module:
    transformers = _transformers()
    if hasattr(config, "use_cache"):
        config.use_cache = False
    named = [getattr(transformers, name, None) for name in getattr(config, "architectures", None) or ()]
    makers = [c._from_config for c in named if c is not None]
    for name in _KINDS:
        auto = getattr(transformers, name)
        if type(config) in auto._model_mapping:
            makers.append(auto.from_config)
    if not makers:
        raise FitError(f"Transformers has no model for {type(config).__name__}")
    with torch.device("meta"):
        module = makers[0](config, dtype=dtype)
    return module.to(dtype)


class _Example:
    """Inputs of a model, on meta."""

    def __init__(self, module: torch.nn.Module, config: Any, dtype: torch.dtype, seq: int | None, train: bool):
        import inspect

        self.dtype = dtype
        self.train = train
        self.names = set(inspect.signature(module.forward).parameters)
        self.image = "pixel_values" in self.names and "input_ids" not in self.names
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        longest = getattr(text, "max_position_embeddings", None) or 0
        self.encoder_decoder = bool(getattr(config, "is_encoder_decoder", False))
        self.tokens = 0
        if self.image:
            size = getattr(config, "image_size", None) or 224
            self.size = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
            self.channels = getattr(config, "num_channels", 3)
            self.text = f"images {self.channels}x{self.size[0]}x{self.size[1]}"
            if seq is not None:
                raise FitError("--seq is for models of text; this one takes images")
        elif "input_ids" in self.names:
            self.tokens = seq or min(DEFAULT_SEQ, longest or DEFAULT_SEQ)
            if 0 < longest < self.tokens:
                raise FitError(f"--seq {self.tokens}: the model has {longest} positions (max_position_embeddings)")
            self.text = f"sequence {self.tokens}"
        else:
            raise FitError(
                f"{type(module).__name__} takes neither input_ids nor pixel_values, but {sorted(self.names)}"
            )
        if train and "labels" not in self.names:
            raise FitError(f"{type(module).__name__} computes no loss (it takes no labels): --infer only")

    def inputs(self, batch: int) -> dict[str, Any]:
        ids = {"dtype": torch.int64, "device": "meta"}
        if self.image:
            made: dict[str, Any] = {
                "pixel_values": torch.empty(batch, self.channels, *self.size, dtype=self.dtype, device="meta")
            }
            if self.train:
                made["labels"] = torch.empty(batch, **ids)  # type: ignore[call-overload]
            return made
        shape = (batch, self.tokens)
        made = {"input_ids": torch.empty(shape, **ids)}  # type: ignore[call-overload]
        if self.train:
            made["labels"] = torch.empty(shape, **ids)  # type: ignore[call-overload]
        elif self.encoder_decoder:
            made["decoder_input_ids"] = torch.empty(shape, **ids)  # type: ignore[call-overload]
        if "use_cache" in self.names:
            made["use_cache"] = False
        if not self.train and "logits_to_keep" in self.names:
            made["logits_to_keep"] = 1  # as generation's first step
        return made


# ---- compiling ----

_OPTIMIZERS: dict[str, aot.OptimizerFactory | None] = {
    "adamw": lambda p: torch.optim.AdamW(p, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "none": None,
}


def _attempt(
    module: torch.nn.Module, inputs: dict[str, Any], topology: str, train: bool, optimizer: str, time_limit: float
) -> Attempt:
    batch = next(v.shape[0] for v in inputs.values() if isinstance(v, torch.Tensor))
    try:
        compiled = aot.compile(
            module,
            (),
            inputs,
            topology=topology,
            train=train,
            optimizer=_OPTIMIZERS[optimizer] if train else None,
            costliest=1_000_000,
            time_limit=time_limit,
        )
    except aot.DoesNotFit as e:
        return Attempt(batch, None, e.needed, e.hbm)
    return Attempt(batch, compiled, compiled.memory.peak, compiled.memory.hbm)


def _largest(attempt: Callable[[int], Attempt], first: Attempt, runs: dict[int, Attempt]) -> Attempt | None:
    """The largest batch that fits. Memory grows about linearly with the batch: each try is where the line through the
    nearest two known ones meets HBM, kept inside what is known."""
    if not first.fits:
        if first.batch == 1 or not attempt(1).fits:
            return Attempt(0, None, first.needed, first.hbm)
    elif first.batch < MOST_BATCH:
        attempt(first.batch * 2)
    while True:
        fitting = max(n for n, a in runs.items() if a.fits)
        failing = min((n for n, a in runs.items() if not a.fits), default=0)
        if failing == fitting + 1 or fitting >= MOST_BATCH:
            return runs[fitting]
        guess = _guess(sorted(runs.values(), key=lambda a: a.batch), first.hbm)
        high = failing - 1 if failing else min(fitting * 8, MOST_BATCH)
        attempt(min(max(guess, fitting + 1), high))


def _guess(known: Iterable[Attempt], hbm: int) -> int:
    ordered = [a for a in known if a.needed > 0]
    below = [a for a in ordered if a.fits][-2:]
    above = [a for a in ordered if not a.fits][:1]
    pair = (below + above)[-2:]
    if len(pair) < 2 or pair[1].needed <= pair[0].needed:
        return 2 * max((a.batch for a in below), default=1)
    slope = (pair[1].needed - pair[0].needed) / (pair[1].batch - pair[0].batch)
    return int(pair[0].batch + (hbm - pair[0].needed) / slope)


# ---- showing ----


def rows(report: Report) -> list[tuple[str, str]]:
    """The report as (what, value)."""
    a, c = report.attempt, report.attempt.compiled
    what = f"training step, {report.optimizer}" if report.train else "forward"
    out = [
        ("model", f"{report.model}: {report.parameters / 1e6:,.1f} M parameters"),
        ("program", f"{what}, batch {report.batch} a device, {report.inputs}, {report.dtype}"),
        ("TPU", f"{report.topology}: {report.chips} chip{'s' * (report.chips > 1)}, {report.devices} device"
                f"{'s' * (report.devices > 1)}"),
    ]  # fmt: skip
    over = a.needed - a.hbm
    verdict = "[green]fits[/green]" if a.fits else "[red]does not fit[/red]"
    how = f"{aot.size_text(-over)} free" if over <= 0 else f"{aot.size_text(over)} too much"
    out.append(("memory", f"{verdict}: {aot.size_text(a.needed)} of {aot.size_text(a.hbm)}, {how}"))
    if c is not None:
        m = c.memory
        out.append(("", f"arguments {aot.size_text(m.arguments)}, outputs {aot.size_text(m.outputs - m.aliased)} more, "
                        f"temporaries {aot.size_text(m.temporaries)}, code {aot.size_text(m.code)}"))  # fmt: skip
        rate = report.batch * (report.tokens or 1) * report.devices / c.seconds if c.seconds else 0.0
        unit = "tokens/s" if report.tokens else "images/s"
        out.append(("step", f"{aot.time_text(c.seconds)}, MFU {c.mfu:.1%} ({aot.time_text(c.cycle_seconds)} by cycles),"
                            f" {rate:,.0f} {unit} on all devices"))  # fmt: skip
        out.append(("work", f"{c.flops / 1e12:,.2f} Tflop, {aot.size_text(c.bytes_accessed)} accessed"))
        out.append(("dominates", ", ".join(f"{name} {share:.0%}" for name, share in report.shares()[:5])))
    if report.largest is not None:
        n = report.largest.batch
        text = f"{n} a device ({aot.size_text(report.largest.needed)})" if n else "none: not even 1"
        out.append(("largest batch", text))
    out.append(("assumed", "; ".join(report.assumptions)))
    return out


def show(report: Report) -> None:
    """Prints the report: a table where rich is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        for name, value in rows(report):
            for tag in ("green", "red"):
                value = value.replace(f"[{tag}]", "").replace(f"[/{tag}]", "")
            print(f"{name:14}{value}")
        return
    table = Table(show_header=False, title="torch-tpu fit")
    for name, value in rows(report):
        table.add_row(name, value)
    Console().print(table)
