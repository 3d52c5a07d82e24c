"""Writes docs/operators.md and docs/environment.md from what the package itself says.

    python tools/generate_docs.py [--check]

--check writes nothing, and fails when a file differs from what would be written.
"""

import argparse
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
        lines += [" ".join(f"`{name}`" for name, its, _ in rows if its == w), ""]
    return "\n".join(lines)


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
