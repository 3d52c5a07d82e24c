"""The documentation says what the package does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import ON_CPU

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(ON_CPU, reason="documentation of the device")
def test_generated_pages_are_current():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_docs.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_variable_that_the_code_reads_is_declared():
    page = (ROOT / "docs" / "environment.md").read_text()
    names = set()
    for path in [*(ROOT / "csrc").rglob("*.c"), *(ROOT / "csrc").rglob("*.cpp"), *(ROOT / "torch_tpu").rglob("*.py")]:
        if "tests" not in path.parts:
            names |= set(re.findall(r'getenv\("([A-Z_0-9]+)"\)|environ(?:\.get\(|\[)"([A-Z_0-9]+)"', path.read_text()))
    names = {a or b for a, b in names} - {"HOME", "XDG_CACHE_HOME"}  # the user's own
    assert {n for n in names if f"`{n}`" not in page} == set()


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.skipif(ON_CPU, reason="programs of the device")
def test_first_program_of_the_readme():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, block + done.stderr


@pytest.mark.skipif(ON_CPU, reason="programs of the device")
def test_lines_in_the_page_on_compiling_ahead_of_time_are_those_of_its_example():
    from torch_tpu._trace import trace

    page = (ROOT / "docs" / "aot.md").read_text()
    first, second = re.findall(r"```python\n.*?```\n+(?:.*?)```\n(v\d.*?)```", page, re.S)
    example = re.findall(r"```python\n(.*?)^print", page, re.S | re.M)[0]
    space = {}
    exec(compile(example, "model.py", "exec"), space)
    loss = lambda out: out.float().square().mean()
    for shown, options in ((first, {}), (second, {"train": True, "loss": loss})):
        traced = trace(space["model"], (space["x"],), {}, **options)
        known = {(s.operator, s.backward, s.line) for s in traced.sources}
        rows = re.findall(r"(aten::\w+)( \(gradient\))? +(model.py:\d+)", shown)
        assert len(rows) == 5 and {(name, bool(gradient), line) for name, gradient, line in rows} <= known


@pytest.mark.skipif(ON_CPU, reason="operators of the device")
def test_core_operators_are_native():
    from torch_tpu import _C

    missing = []
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace == "aten":
            op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
            if op is not None and torch.Tag.core in op.tags and not op._schema.is_mutable:
                if any(a.alias_info for a in op._schema.arguments) or not any(
                    isinstance(a.type, torch._C.TensorType) or "Tensor" in str(a.type) for a in op._schema.arguments
                ):
                    continue  # views and factories run no program, or a constant's
                if not _C.has_row(name) and not torch._C._dispatch_has_kernel_for_dispatch_key(
                    name, "CompositeImplicitAutograd"
                ):
                    missing.append(name)
    # Sizes that depend on values, and what moves data only: no StableHLO program expresses these.
    allowed = {
        "aten::_local_scalar_dense", "aten::clone", "aten::copy", "aten::_to_copy", "aten::nonzero", "aten::masked_select", "aten::empty_like", "aten::resize",
        "aten::sym_is_contiguous", "aten::sym_numel", "aten::sym_size.int", "aten::sym_storage_offset", "aten::sym_stride.int", "aten::_assert_async.msg",
    }  # fmt: skip
    assert [m for m in missing if m not in allowed] == []
