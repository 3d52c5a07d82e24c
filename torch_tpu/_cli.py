"""The console command ``torch-tpu``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "topologies":
        return _topologies(options)
    return _fit(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torch-tpu", description="Tools of TorchTPU.")
    commands = parser.add_subparsers(dest="command", required=True)
    fit = commands.add_parser(
        "fit",
        help="whether a model fits on a TPU, and what a step takes, with no TPU",
        description="Compiles a Transformers model for a TPU with libtpu's own compiler, on this machine, and shows"
        " whether it fits, what a step takes, the largest batch that fits, and what dominates. No weights are loaded.",
    )
    fit.add_argument("model", help="config.json, a folder with one, or a model type of Transformers (llama, bert, vit)")
    fit.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change a field of the config")
    fit.add_argument("--topology", default="v5e:1x1", help="generation:slice, as v6e:2x2 (default %(default)s)")
    fit.add_argument("--batch", type=_positive, default=1, help="examples a device (default %(default)s)")
    fit.add_argument("--seq", type=_positive, default=None, help="tokens an example (default: 1024, or what there is)")
    what = fit.add_mutually_exclusive_group()
    what.add_argument("--train", action="store_true", help="forward, backward and a step of the optimizer")
    what.add_argument("--infer", action="store_true", help="forward of the whole sequence (the default)")
    fit.add_argument("--dtype", default="bfloat16", help="of parameters and computation (default %(default)s)")
    fit.add_argument("--optimizer", default="adamw", choices=("adamw", "sgd", "none"), help="with --train")
    fit.add_argument("--no-search", action="store_true", help="do not look for the largest batch")
    fit.add_argument("--time-limit", type=_seconds, default=1800.0, help="seconds for one compilation")
    fit.add_argument("--json", action="store_true", help="print JSON on stdout")
    listing = commands.add_parser("topologies", help="the TPUs that programs can be compiled for")
    listing.add_argument("--json", action="store_true", help="print JSON on stdout")
    return parser


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive whole number")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return value


def _fit(options: argparse.Namespace) -> int:
    from torch_tpu import _fit

    try:
        report = _fit.fit(
            options.model,
            topology=options.topology,
            batch=options.batch,
            seq=options.seq,
            train=options.train,
            dtype=options.dtype,
            optimizer=options.optimizer,
            fields=options.set,
            search=not options.no_search,
            time_limit=options.time_limit,
            progress=lambda text: print(text, file=sys.stderr, flush=True),
        )
    except (_fit.FitError, ValueError, RuntimeError, FileNotFoundError, ImportError) as e:
        print(f"torch-tpu fit: {e}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(report.to_dict(), indent=1))
    else:
        _fit.show(report)
    return 0 if report.fits else 1


def _topologies(options: argparse.Namespace) -> int:
    from torch_tpu.tpu import aot

    table = aot.topologies()
    if options.json:
        print(json.dumps(table, indent=1))
        return 0
    for g in table:
        peaks = [f"{g['bf16_flops'] / 1e12:g} Tflop/s bf16"]
        peaks += [f"{g['int8_ops'] / 1e12:g} Top/s int8"] if g["int8_ops"] else []
        peaks += [f"{g['fp8_flops'] / 1e12:g} Tflop/s fp8"] if g["fp8_flops"] else []
        print(
            f"{g['name']}: a chip has {aot.size_text(g['hbm_bytes'])} HBM at {g['hbm_bytes_per_s'] / 1e9:g} GB/s, "
            f"{', '.join(peaks)}, {g['devices_per_chip']} device{'s' if g['devices_per_chip'] > 1 else ''}"
        )
        print(f"  slices {g['slices']}\n  {g['source']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
