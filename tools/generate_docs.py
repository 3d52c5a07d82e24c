"""Writes docs/operators.md and docs/environment.md from what the package itself says.

    python tools/generate_docs.py [--check]

--check writes nothing, and fails when a file differs from what would be written.
"""

import argparse
import fnmatch
import json
import sys
from pathlib import Path

import torch

from torch_tpu import _C, _decompose, _environment

DOCS = Path(__file__).parents[1] / "docs"

WAYS = {
    "native": "a lowering to StableHLO of its own",
    "decomposed": "expressed by other operators, by PyTorch's decompositions, once per call signature",
    "view": "new geometry over the same storage: no program runs",
    "CPU": "neither: PyTorch's CPU kernel runs on copies, with a warning that names the operator",
}


# Why an operator is PyTorch's CPU kernel here: by the first pattern that fits its name.
SIZE = "the size of the result depends on values"
LAPACK = "a LAPACK factorisation that StableHLO has no operation for"
QUANTISED = "quantised dtypes: tensors of this device have none"
SPARSE = "sparse layouts"
OTHERS = "another device's operator: nothing calls it here"
HOST = "answered on the host: no values are computed"
CPU_REASONS = {
    **dict.fromkeys(["nonzero", "masked_select", "*unique*", "bincount", "_jagged_to_padded*"], SIZE),
    **dict.fromkeys(["_padded_dense_to_jagged*", "to_padded_tensor", "_histogramdd_*"], SIZE),
    **dict.fromkeys(["linalg_eig*", "_linalg_eigvals", "*ldl*", "linalg_lstsq", "cholesky"], LAPACK),
    **dict.fromkeys(["*quantize*", "q_*", "qscheme", "int_repr", "*int4pack*", "*dyn_quant*"], QUANTISED),
    **dict.fromkeys(["*sparse*", "_coalesce", "_nnz", "_dim[IV]", "hspmm", "_sp*", "*semi_structured"], SPARSE),
    **dict.fromkeys(["_to_dense", "to_mkldnn", "*compressed*"], SPARSE),
    **dict.fromkeys(["*_mps*", "mps_*", "lstm_mps*", "*cudnn*", "*miopen*", "_triton*", "_flash_attention*"], OTHERS),
    **dict.fromkeys(["_efficient_attention*", "_scaled_grouped*", "_scaled_mm*", "_mixed_dtypes*"], OTHERS),
    **dict.fromkeys(["_empty_*affine*", "_scaled_dot*", "*philox*"], OTHERS),
    **dict.fromkeys(["equal", "is_set_to", "_local_scalar*", "_copy_from*", "_fused_sdp*", "_make_dep*"], HOST),
    **dict.fromkeys(["from_file", "*_assert_async*", "_nested_tensor_from_mask*"], HOST),
    "hash_tensor*": "a checksum of the bits in memory",
    "*": "not written yet",
}


def cpu_reason(name):
    short = name.partition("::")[2].partition(".")[0]
    return next(reason for pattern, reason in CPU_REASONS.items() if fnmatch.fnmatchcase(short, pattern))


def leaf_operators():
    """The functional aten and prims operators that PyTorch itself does not express by others, by name."""
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace not in ("aten", "prims"):
            continue
        try:
            op = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
        except (AttributeError, RuntimeError):
            continue  # names of operators without a schema, and TorchScript's own
        if op._schema.is_mutable or torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
            continue
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1") or _C.has_row(name):
            yield name, op


def way(name, op):
    if any(a.alias_info is not None for a in op._schema.arguments):
        return "view"
    if _C.has_row(name):
        return "native"
    composite = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    if op in _decompose.decompositions() or any(
        torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in composite
    ):
        return "decomposed"
    return "CPU"


def operators():
    rows = [(name, way(name, op), torch.Tag.core in op.tags) for name, op in leaf_operators()]
    lines = [
        "# Operators",
        "",
        f"Written by `make docs`, for PyTorch {torch.__version__.partition('+')[0]}.",
        "In-place and `out=` forms go the way of the operator they are forms of; operators that PyTorch itself",
        "composes of others need none.",
        "",
        "| way | operators | what it means |",
        "| --- | ---: | --- |",
    ]
    lines += [f"| {w} | {sum(r[1] == w for r in rows)} | {meaning} |" for w, meaning in WAYS.items()]
    core = [r for r in rows if r[2]]
    lines += [
        "",
        f"Of the {len(core)} operators of Core ATen: "
        + ", ".join(f"{sum(r[1] == w for r in core)} {w}" for w in WAYS)
        + ".",
        "",
    ]
    for w in WAYS:
        lines += [f"## {w[0].upper()}{w[1:]}", ""]
        names = [name for name, its, _ in rows if its == w]
        if w == "CPU":
            lines += ["| reason | operators |", "| --- | --- |"]
            reasons = {name: cpu_reason(name) for name in names}
            for reason in dict.fromkeys(CPU_REASONS.values()):
                listed = " ".join(f"`{n}`" for n in names if reasons[n] == reason)
                lines += [f"| {reason} | {listed} |"] if listed else []
        else:
            lines += [" ".join(f"`{name}`" for name in names)]
        lines += [""]
    return "\n".join(lines + conformance())


RESULTS = Path(__file__).parents[1] / "tests" / "opinfo" / "results.json"


def conformance():
    """What `make conformance` found, by entry of PyTorch's operator database."""
    recorded = json.loads(RESULTS.read_text())
    lines = [
        "## PyTorch's operator database",
        "",
        "What `make conformance` found, against PyTorch on the CPU. What is meant by each check: tests/opinfo. Where a",
        "deviation is right, its reason is in tests/opinfo/deviations.py.",
        "",
        recorded["summary"],
        "",
        "| entry | way | passed | not passed, or by the CPU's kernel, and why |",
        "| --- | --- | --- | --- |",
    ]
    for name, entry in sorted(recorded["operators"].items()):
        notes = [f"{check}: {detail}" for check, detail in entry["failed"].items()]
        notes += [f"`{op}`: {cpu_reason(op)}" for op in entry["cpu"]]
        text = "; ".join(notes).replace("|", "\\|").replace("\n", " ")
        lines.append(f"| `{name}` | {'CPU' if entry['cpu'] else 'device'} | {', '.join(entry['passed'])} | {text} |")
    return [*lines, ""]


def environment():
    return _environment.markdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for name, write in (("operators.md", operators), ("environment.md", environment)):
        path, text = DOCS / name, write()
        if check and (not path.exists() or path.read_text() != text):
            stale.append(name)
        elif not check:
            path.write_text(text)
    if stale:
        sys.exit(f"out of date, run make docs: {', '.join(stale)}")


if __name__ == "__main__":
    main()
