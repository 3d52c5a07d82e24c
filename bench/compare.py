"""What the device costs, beside PyTorch's CPU kernels and the published torch-tpu wheel, from one run.

    python bench/compare.py [--out build/bench] [--rounds 2] [--no-instructions] [--no-tpu-cost]

Prints tables; writes results.json and operators.svg. The wheel is measured where REFERENCE_PYTHON
(build/reference/bin/python, which `make reference` makes) is a Python that has it. Every implementation runs on the
same CPU plugin, wrapped by meter.c. Times of a machine wander: ratios within a run, launches, programs, instructions
and the TPU compiler's cost are what to compare.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

HERE = Path(__file__).parent
TOPOLOGY = "v5e:1x1"
TIME_LIMIT = 1800  # seconds for one process

# What an operator may cost at most, as a part of the wheel's cost; None: half way between it and the CPU's.
BARS = {"w[:, 1:33] + w[:, 31:63]": 1 / 6, "x.view(-1)": None, "w[3]": None, "torch.empty(4, 4)": None}
BAR = 1 / 3


def plugin():
    spec = importlib.util.find_spec("lammps_jax_pjrt_cpu")
    return Path(spec.origin).parent / "pjrt_c_api_cpu_plugin.so"


def build_meter(out):
    include = Path(importlib.util.find_spec("xla_plugins.xla_cpu_pjrt").submodule_search_locations[0]) / "include"
    meter = out / "meter.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", f"-I{include}", str(HERE / "meter.c"), "-o", str(meter), "-ldl"]
    subprocess.run(command, check=True)
    return meter


def reference_python():
    path = Path(os.environ.get("REFERENCE_PYTHON", "build/reference/bin/python")).absolute()  # not resolved: a link
    return path if path.exists() else None


def environment_of(implementation, meter, directory):
    """`ours` and `reference` run on the meter."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if implementation == "cpu":
        return environment
    environment |= {"METER": str(meter), "METER_PLUGIN": str(plugin()), "METER_DIRECTORY": str(directory)}
    environment["TORCH_TPU_CACHE_DIR"] = ""
    environment["TPU_LIBRARY_PATH" if implementation == "reference" else "TORCH_TPU_PJRT_PLUGIN"] = str(meter)
    if implementation == "reference":
        environment.pop("PYTHONPATH", None)
    return environment


def run(implementation, parts, meter, out, before=(), **more):
    directory = out / implementation
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    python = reference_python() if implementation == "reference" else sys.executable
    command = [*before, str(python), str(HERE.resolve() / "work.py"), implementation, *parts]
    environment = environment_of(implementation, meter.resolve(), directory.resolve()) | more
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIME_LIMIT, cwd=directory)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        lines.append(dict(part="process", error=f"exit status {done.returncode}: {done.stderr[-300:]}"))
    return lines


def best_of(rounds):
    """Lines of several rounds: of each kind the one that took the shortest time."""
    best = {}
    for line in (line for lines in rounds for line in lines):
        key = (line["part"], line.get("name"))
        known = best.get(key)
        better = (
            known is None
            or "error" in known
            or line.get("us", line.get("step_ms", 0)) < known.get("us", known.get("step_ms", 0))
        )
        if better and not ("error" in line and known):
            best[key] = line
    return list(best.values())


# ---- what does not wander ----


def instructions(meter, out):
    """Instructions of one call of each operator, plugin included: callgrind's, where valgrind is installed."""
    valgrind = shutil.which("valgrind")
    if not valgrind:
        return {}
    log = out / "callgrind"
    shutil.rmtree(log, ignore_errors=True)
    log.mkdir(parents=True)
    before = [valgrind, "--tool=callgrind", f"--callgrind-out-file={log.resolve()}/out", "--separate-threads=yes"]
    known = "--xla_cpu_max_isa=AVX2"  # valgrind ends the process at instructions that are newer than it
    flags = f"{os.environ.get('XLA_FLAGS', '')} {known}".strip()
    lines = run("ours", ["instructions"], meter, out, before, XLA_FLAGS=flags)
    calls = next((line["calls"] for line in lines if line["part"] == "instructions"), 0)
    counts = {}
    for path in log.glob("out.*-01"):  # of the thread that calls; the plugin's threads wait in loops
        text = path.read_text(errors="replace")
        name, total = (
            re.search(r"Trigger: Client Request: (.*)", text),
            re.search(r"^(?:summary|totals): (\d+)", text, re.M),
        )
        if name and total and calls:
            counts[name[1].strip()] = int(total[1]) / calls
    return counts


def cost_of(report):
    return dict(tpu_ms=report.seconds * 1e3, peak_mb=(report.memory.peak - report.memory.code) / 1e6)


def tpu_cost(runs, steps):
    """The TPU compiler's estimate for what ran: ms a step, and the memory that its largest program needs."""
    from torch_tpu.tpu import aot

    total, peak = 0.0, 0.0
    for line in runs.read_text().splitlines():
        number, launches = line.split()
        cost = cost_of(aot.compile_text((runs.parent / f"{number}.mlir").read_text(), TOPOLOGY))
        total += cost["tpu_ms"] * int(launches) / steps
        peak = max(peak, cost["peak_mb"])
    return dict(tpu_ms=total, peak_mb=peak)


def jax_cost():
    from gpt_jax import text

    from torch_tpu.tpu import aot

    return dict(part="training", name="the step as one program", launches=1, programs=1) | cost_of(
        aot.compile_text(text(), TOPOLOGY)
    )


# ---- starting ----


def starts(meter, out):
    """The first result of a process with an empty cache, and of the next one."""
    cache = out / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    return [run("ours", ["start"], meter, out / "start", TORCH_TPU_CACHE_DIR=str(cache.resolve())) for _ in range(2)]


# ---- tables ----


def table(title, columns, rows):
    shown = Table(title=title)
    for i, column in enumerate(columns):
        shown.add_column(column, justify="right" if i else "left")
    for row in rows:
        shown.add_row(*(f"{v:.4g}" if isinstance(v, float) else "-" if v is None else escape(str(v)) for v in row))
    Console(width=140).print(shown)


def value(results, implementation, part, name, field):
    for line in results.get(implementation, []):
        if (line["part"], line.get("name")) == (part, name):
            return line.get(field, line.get("error"))
    return None


def bar_of(name, reference, cpu):
    """Microseconds that the operator may cost; None without a reference."""
    if not isinstance(reference, float):
        return None
    part = BARS.get(name, BAR)
    return (reference + cpu) / 2 if part is None else reference * part


def operator_rows(results, counts):
    for line in results["ours"]:
        if line["part"] != "operators" or "us" not in line:
            continue
        name = line["name"]
        cpu, reference = (value(results, i, "operators", name, "us") for i in ("cpu", "reference"))
        bar = bar_of(name, reference, cpu)
        ratio = line["us"] / reference if bar else None
        met = None if bar is None else "yes" if line["us"] <= bar else "no"
        done = [line["done_us"], value(results, "reference", "operators", name, "done_us")]
        count = round(counts[name]) if name in counts else None
        yield [name, line["us"], cpu, reference, ratio, bar, met, *done, count]


def training_rows(results):
    for implementation, lines in results.items():
        for line in lines:
            if line["part"] == "training":
                fields = (
                    "step_ms",
                    "first_step_s",
                    "launches",
                    "programs",
                    "programs_later",
                    "tpu_ms",
                    "peak_mb",
                    "loss",
                )
                yield [f"{implementation}, {line.get('name', line.get('error'))}", *(line.get(f) for f in fields)]


def plot(rows, path):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    names = [row[0] for row in rows]
    for k, (label, column) in enumerate((("this device", 1), ("PyTorch on the CPU", 2), ("torch-tpu wheel", 3))):
        times = [row[column] if isinstance(row[column], float) else 0 for row in rows]
        if any(times):
            axes.barh([i + 0.27 * k for i in range(len(rows))], times, height=0.25, label=label)
    axes.set_yticks([i + 0.27 for i in range(len(rows))], names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("microseconds to issue one operator, on the same CPU plugin")
    axes.legend()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--no-instructions", action="store_true")
    parser.add_argument("--no-tpu-cost", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    meter = build_meter(options.out)
    implementations = ["ours", "cpu", *(["reference"] if reference_python() else [])]
    rounds = {name: [] for name in implementations}
    for i in range(options.rounds):  # in turns: what else the machine does falls on all of them
        for name in implementations:
            print(f"... round {i + 1}: {name}", flush=True)
            rounds[name].append(run(name, ["operators", "chain", "copies", "training"], meter, options.out))
    results = {name: best_of(r) for name, r in rounds.items()}
    print("... memory", flush=True)
    results["ours"] += run("ours", ["compiled", "memory"], meter, options.out / "memory")
    print("... first results", flush=True)
    results["first process"], results["second process"] = starts(meter, options.out)
    if not options.no_tpu_cost:
        for line in results["ours"]:
            if line["part"] == "training" and "name" in line:
                print(f"... TPU cost: {line['name']}", flush=True)
                line |= tpu_cost(options.out / "ours" / f"{line['name']}.runs", line["steps"])
        results["jax"] = [jax_cost()]
    counts = {}
    if not options.no_instructions:
        print("... instructions", flush=True)
        counts = instructions(meter, options.out)

    rows = list(operator_rows(results, counts))
    columns = ("operator", "us", "CPU us", "wheel us", "of the wheel", "bar us", "met")
    columns += ("us until done", "wheel us until done", "instructions")
    table("issuing one operator", columns, rows)
    rows_of = [(i, line) for i, lines in results.items() for line in lines if "error" not in line]
    chains = [(f"{i}, {line['name']}", line["us"]) for i, line in rows_of if line["part"] == "chain"]
    table("a chain of 76 operators and a value read", ("", "us an operator"), chains)
    ways = ("memcpy", "to_device", "to_host")
    copied = [(i, *map(line.get, ways)) for i, line in rows_of if line["part"] == "copies"]
    table("copies of 256 MB, GB/s", ("", "on the host", "to the device", "to the host"), copied)
    columns = (
        "a GPT's training step",
        "ms",
        "first step, s",
        "launches",
        "programs",
        "compiled later",
        f"ms on {TOPOLOGY}",
        f"peak MB on {TOPOLOGY}",
        "loss",
    )
    table("forward, backward, AdamW", columns, training_rows(results))
    called = [
        (f"{line['parameters']} parameters: {line['name']}", line["execute_us"], line["issue_us"], line["above_us"])
        for _, line in rows_of
        if line["part"] == "compiled"
    ]
    table(
        "calling a compiled function",
        ("", "us in the plugin's execute", "us to issue", "us until done, above execute"),
        called,
    )
    names = [line["name"] for i, line in rows_of if i == "first process" and line["part"] == "start"]
    cells = [(p, f) for f in ("seconds", "compiled") for p in ("first process", "second process")]
    starting = [(name, *(value(results, p, "start", name, f) for p, f in cells)) for name in names]
    columns = ("first result of a process", "cold, s", "second process, s", "compiled", "compiled by the second")
    table("starting", columns, starting)
    kept = [(line["name"], line["early_mb"], line["late_mb"]) for _, line in rows_of if line["part"] == "memory"]
    table("resident memory, MB", ("10,000 training steps", "after 500", "after 10,000"), kept)
    for name, lines in results.items():
        for line in lines:
            if "error" in line:
                print(f"{name}, {line['part']}: {line['error']}")
    if "reference" not in results:
        print("The wheel was not measured: `make reference` makes its environment.")
    (options.out / "results.json").write_text(json.dumps(dict(results=results, instructions=counts), indent=1) + "\n")
    plot(rows, options.out / "operators.svg")
    print(f"written: {options.out}/results.json, {options.out}/operators.svg")


if __name__ == "__main__":
    main()
