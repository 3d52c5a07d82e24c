"""PyTorch's operator and module databases through torch.compile: float32, compared with the CPU.

python tests/opinfo/compiled.py [--every N] [--first K] [--only REGEX] [--modules] [--samples N] [--least SHARE]

Prints what failed, what ran operator by operator instead of as one program, and the share that passed.
"""

import argparse
import collections
import os
import re
import signal
import sys
import warnings

sys.path[:0] = [os.path.dirname(__file__), os.path.dirname(os.path.dirname(__file__))]

import database
import deviations
import torch
import torch.utils._pytree as pytree

LIMIT_S = 120


def check_operator(op, n):
    """How many samples were tried."""
    dtype = torch.float32
    rtol, atol = database.tolerance(op, dtype)
    tried = 0
    for sample in database.samples_of(op, dtype, n):
        arguments = database.arguments_of(sample)
        try:
            want = database.call(op, pytree.tree_map(database.copied, arguments))
        except Exception:
            continue  # not a sample for the CPU
        values = not database.is_random(op, arguments, want)
        torch._dynamo.reset()
        on_device = database.on_device(op, arguments)
        got = torch.compile(lambda *a, **k: op(*a, **k))(on_device[0], *on_device[1], **on_device[2])
        process = sample.output_process_fn_grad
        want = database.untied(op, arguments, process(want))
        got = database.untied(op, on_device, process(got))
        database.compare(got, want, values, rtol, atol)
        tried += 1
    return tried


def check_module(info, n):
    tried = 0
    samples = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=False)
    for sample in database.spread(samples, n):
        if sample.forward_input is None:
            continue
        made, given = sample.constructor_input, sample.forward_input
        torch.manual_seed(0)
        module = info.module_cls(*made.args, **made.kwargs).eval()
        try:
            want = module(*given.args, **given.kwargs)
        except Exception:
            continue
        args, kwargs = pytree.tree_map(database.moved, (given.args, given.kwargs))
        torch._dynamo.reset()
        got = torch.compile(module.to("tpu"))(*args, **kwargs)
        database.compare(got, want, True, 1e-3, 1e-3)
        tried += 1
    return tried


def cases(modules):
    if not modules:
        return {
            name: (check_operator, op)
            for name, op in database.operators().items()
            if torch.float32 in op.dtypes
            and not deviations.KNOWN.get((name, "float32"), deviations.KNOWN.get((name, "*")))
        }
    from torch.testing._internal.common_modules import module_db

    return {info.name: (check_module, info) for info in module_db if torch.float32 in info.dtypes}


def expire(*_):
    raise TimeoutError(f"more than {LIMIT_S} s")


def judge(check, entry, n):
    """(verdict, why)"""
    signal.alarm(LIMIT_S)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tried = check(entry, n)
    except Exception as e:
        return "failed", f"{type(e).__name__}: {' '.join(str(e).split())[:400]}"
    finally:
        signal.alarm(0)
    alone = [str(w.message) for w in caught if "operator by operator" in str(w.message)]
    return ("no sample", "") if not tried else ("by operator", alone[0][:300]) if alone else ("passed", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--only", default=".")
    parser.add_argument("--modules", action="store_true")
    parser.add_argument("--least", type=float, default=98, help="per cent that must pass")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, expire)
    names = [n for n in cases(arguments.modules) if re.search(arguments.only, n)][arguments.first :: arguments.every]
    verdicts = collections.Counter()
    for name in names:
        check, entry = cases(arguments.modules)[name]
        verdict, why = judge(check, entry, arguments.samples)
        verdicts[verdict] += 1
        if verdict not in ("passed", "no sample"):
            print(f"{name}: {verdict}: {why}", flush=True)
    tried = sum(verdicts.values()) - verdicts["no sample"]
    share = 100 * (verdicts["passed"] + verdicts["by operator"]) / max(tried, 1)
    print(f"{tried} tried, {share:.1f}% right, {verdicts['by operator']} of them operator by operator")
    sys.exit(share < arguments.least)


if __name__ == "__main__":
    main()
