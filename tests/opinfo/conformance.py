"""Runs the checks of PyTorch's operator database over all operators, each in a process that may die or hang.

    python tests/opinfo/conformance.py [--checks float32,errors] [--only REGEX] [--out results.json] [--jobs 2]

Writes a JSON list of {operator, check, status, tried, failed, detail, cpu, seconds} and prints a summary. `cpu` names the operators that
ran PyTorch's CPU kernel. With an existing file only what is not in it runs; --again: all.
"""

import argparse
import faulthandler
import json
import multiprocessing
import os
import queue
import re
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

STATUSES = ("pass", "fail", "crash", "timeout")
START_LIMIT = 180  # seconds


def serve(pipe, log, all_samples, few):
    """A process that runs checks by name until it is told None."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    import database
    import suite
    import torch

    from torch_tpu import _C

    torch.set_num_threads(1)
    checks = suite.checks(all_samples, few)
    pipe.send("ready")
    for name, check in iter(pipe.recv, None):
        before = _C.cpu_fallbacks()
        try:
            entries, function = checks[check]
            outcome = function(entries()[name])
        except Exception:
            outcome = database.Outcome(1, 1, "the samples: " + traceback.format_exc(limit=-2).replace("\n", " ")[:300])
        ran_on_cpu = [op for op, n in _C.cpu_fallbacks().items() if n != before.get(op, 0)]
        pipe.send((*outcome, ran_on_cpu))


class Worker:
    def __init__(self, options, log):
        self.options, self.log, self.process = options, log, None

    def start(self):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        arguments = (theirs, self.log, self.options.all_samples, self.options.few)
        self.process = context.Process(target=serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        if not self.pipe.poll(START_LIMIT) or self.pipe.recv() != "ready":
            raise RuntimeError(f"a worker does not start, see {self.log}")

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.join()
            self.process = None

    def run(self, name, check):
        """status, tried, failed, detail, operators that ran on the CPU"""
        if not self.process:
            self.start()
        try:
            self.pipe.send((name, check))
            if self.pipe.poll(self.options.limit):
                tried, failed, detail, cpu = self.pipe.recv()
                return ("none" if not tried else "fail" if failed else "pass"), tried, failed, detail, cpu
            status, detail = "timeout", f"more than {self.options.limit:.0f} s"
        except (EOFError, OSError):
            self.process.join(10)
            status, detail = "crash", f"the process ended with {self.process.exitcode}"
        self.stop()
        return status, 1, 1, detail, []


def work(worker, items, done):
    while True:
        try:
            name, check = items.get_nowait()
        except queue.Empty:
            return worker.stop()
        begin = time.time()
        status, tried, failed, detail, cpu = worker.run(name, check)
        done(
            dict(
                operator=name, check=check, status=status, tried=tried, failed=failed, detail=detail, cpu=cpu,
                seconds=round(time.time() - begin, 2),
            )
        )  # fmt: skip


def summary(results):
    """A Markdown table, a row a check."""
    lines = [
        "| check | operators tried | pass | fail | crash or hang | samples pass |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for check in dict.fromkeys(r["check"] for r in results):
        tried = [r for r in results if r["check"] == check and r["status"] in STATUSES]
        count = {s: sum(r["status"] == s for r in tried) for s in STATUSES}
        samples, failed = sum(r["tried"] for r in tried), sum(r["failed"] for r in tried)
        if tried:
            lines.append(
                f"| {check} | {len(tried)} | {100 * count['pass'] / len(tried):.1f}% | {count['fail']} | "
                f"{count['crash'] + count['timeout']} | {100 * (1 - failed / samples):.1f}% of {samples} |"
            )
    return "\n".join(lines)


def record(results, path):
    """What docs/operators.md shows of the operators' results: dtypes passed, what failed and how, CPU kernels."""
    operators = {}
    for r in sorted(results, key=lambda r: r["operator"]):
        entry = operators.setdefault(r["operator"], dict(passed=[], failed={}, cpu=[]))
        if r["status"] == "pass":
            entry["passed"].append(r["check"])
        elif r["status"] in STATUSES:
            entry["failed"][r["check"]] = f"{r['failed']} of {r['tried']}, {r['detail'][:120]}"
        entry["cpu"] = sorted({*entry["cpu"], *r["cpu"]})
    path.write_text(json.dumps(dict(summary=summary(results), operators=operators), indent=0) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checks", help="names by commas; all")
    parser.add_argument("--only", default="", help="a regular expression that operators' names match")
    parser.add_argument("--out", type=Path, default=Path("build/conformance.json"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300, help="seconds for one check of one operator")
    parser.add_argument("--all-samples", type=int, default=1000, help="samples of the checks of float32")
    parser.add_argument("--few", type=int, default=3, help="samples of the other checks")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--summary", action="store_true", help="of what there is; run nothing")
    parser.add_argument("--record", type=Path, help="a file that tools/generate_docs.py reads")
    options = parser.parse_args()

    import suite

    checks = suite.checks()
    known = json.loads(options.out.read_text()) if options.out.exists() else []
    chosen = options.checks.split(",") if options.checks else list(checks)
    wanted = [(n, c) for c in chosen for n in checks[c][0]() if re.search(options.only, n)]
    results = {(r["operator"], r["check"]): r for r in known}
    items = queue.Queue()
    for key in wanted:
        if (options.again or key not in results) and not options.summary:
            items.put(key)
    total, lock, last = items.qsize(), threading.Lock(), time.time()
    options.out.parent.mkdir(parents=True, exist_ok=True)

    def done(result):
        nonlocal last
        with lock:
            results[result["operator"], result["check"]] = result
            if result["status"] not in ("pass", "none"):
                print(
                    f"{result['check']} {result['operator']} {result['status']}: {result['failed']}/{result['tried']} {result['detail']}",
                    flush=True,
                )
            if time.time() - last > 20:
                last = time.time()
                save()
                print(f"... {total - items.qsize()} of {total}", flush=True)

    def save():
        part = options.out.with_suffix(".part")
        part.write_text("[\n" + ",\n".join(json.dumps(r) for r in results.values()) + "\n]\n")
        part.replace(options.out)

    logs = [options.out.with_suffix(f".{i}.log") for i in range(options.jobs)]
    for log in logs:
        log.unlink(missing_ok=True)
    workers = [Worker(options, str(log)) for log in logs]
    threads = [threading.Thread(target=work, args=(w, items, done), daemon=True) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    save()
    order = {c: i for i, c in enumerate(checks)}
    ordered = sorted(results.values(), key=lambda r: order.get(r["check"], len(order)))
    print(summary(ordered))
    if options.record:
        record(ordered, options.record)


if __name__ == "__main__":
    main()
