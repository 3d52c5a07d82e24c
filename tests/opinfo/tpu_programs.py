"""Compiles the programs of every operator, for one sample each, with libtpu for a TPU slice that is not attached.

    python tests/opinfo/tpu_programs.py [--topology v5e:1x1] [--only REGEX] [--out build/conformance.json] [--programs DIRECTORY]

Adds rows of a check named as the topology to the results of conformance.py. A program that two operators share is compiled once, and
counts for the first.
"""

import argparse
import json
import os
import re
import select
import subprocess
import sys
import time
import warnings
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

ROOT = Path(__file__).parents[2]
COMPILER = Path(os.environ.get("TORCH_TPU_TEST_TOOLS", ROOT / "build" / "editable")) / "tpu_compile"
LIMIT = 120  # seconds a program


def write_programs(directory, only):
    """Runs a sample of each operator; the programs that it compiles are files in a directory of its name."""
    os.environ["TORCH_TPU_CACHE_DIR"] = ""  # else what is in the cache is not compiled
    import database
    import torch

    from torch_tpu import _C

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name, op in database.operators().items():
        dtype = next((t for t in database.DTYPES if t in op.dtypes), None)
        if not dtype or not re.search(only, name):
            continue
        # Written under another name first: a run that is cut short leaves no half of an operator.
        part = directory / f"{name}.part"
        part.mkdir(parents=True, exist_ok=True)
        _C.set_dump_directory(str(part))
        for sample in database.samples_of(op, dtype, 2)[:1]:
            arguments = database.arguments_of(sample)
            try:
                database.call(op, arguments)
            except Exception:
                continue  # not a sample for the CPU
            database.attempt(op, database.on_device(op, arguments))
        part.rename(directory / name)


def compile_programs(topology, files):
    """None for each file that compiles, else the reason."""
    import libtpu

    environment = os.environ | {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost"}
    results, waiting = {}, list(files)
    while waiting:
        command = [str(COMPILER), libtpu.get_library_path(), topology, *map(str, waiting[:200])]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        reason = "ended the compiler's process"
        last = None
        while True:
            if not select.select([process.stdout], [], [], LIMIT)[0]:
                reason = f"more than {LIMIT} s"
                break
            line = process.stdout.readline()
            if not line:
                break
            kind, _, rest = line.rstrip("\n").partition(" ")
            path, _, message = rest.partition(" ")
            if kind == "start":
                last = path
            elif kind in ("ok", "error"):
                results[path], last = (None if kind == "ok" else message[:300]), None
        process.kill()
        process.wait()
        if last:
            results[last] = reason
        rest = [f for f in waiting if str(f) not in results]
        if len(rest) == len(waiting):
            raise RuntimeError(f"{' '.join(command[:3])} does nothing, with exit status {process.returncode}")
        waiting = rest
        print(f"... {len(results)} of {len(files)} programs", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="v5e:1x1")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=Path("build/conformance.json"))
    parser.add_argument("--programs", type=Path, default=Path("build/programs"))
    parser.add_argument("--write-only", action="store_true", help="the programs; compile nothing")
    options = parser.parse_args()
    if not options.programs.exists() or options.write_only:
        write_programs(options.programs, options.only)
    if options.write_only:
        return
    folders = sorted(d for d in options.programs.iterdir() if re.search(options.only, d.name) and d.suffix != ".part")
    begin = time.time()
    results = compile_programs(options.topology, [f for d in folders for f in sorted(d.glob("*.mlir"))])
    rows = []
    for d in folders:
        reasons = [results[str(f)] for f in sorted(d.glob("*.mlir"))]
        failed = [r for r in reasons if r]
        row = dict(operator=d.name, check=options.topology, tried=len(reasons), failed=len(failed), cpu=[], seconds=0)
        row |= dict(status="none" if not reasons else "fail" if failed else "pass", detail=failed[0] if failed else "")
        rows.append(row)
        if failed:
            print(f"{d.name}: {failed[0]}")
    known = json.loads(options.out.read_text()) if options.out.exists() else []
    kept = [r for r in known if r["check"] != options.topology]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("[\n" + ",\n".join(json.dumps(r) for r in kept + rows) + "\n]\n")
    tried = [r for r in rows if r["tried"]]
    good = sum(r["status"] == "pass" for r in tried)
    print(f"{options.topology}: {good} of {len(tried)} operators with programs compile, {time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
