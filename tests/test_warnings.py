"""Warnings point at the user's line, whatever lies between it and the place that warns."""

import re

import pytest
from helpers import ON_CPU, child

pytestmark = pytest.mark.skipif(ON_CPU, reason="warnings of the device")


def warned_lines(folder, text, **environment):
    """What a script's warnings point at, as (file, line)."""
    script = folder / "script.py"
    script.write_text(text)
    done = child(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')", **environment)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(\S+):(\d+): UserWarning", done.stderr, re.M)
    return [(name.replace(str(folder), ""), int(line)) for name, line in found]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_function(tmp_path, dynamic):
    text = f"""
import torch
def f(x):
    return torch.linalg.eigvals(x + 1)
def caller(g):
    return g(torch.ones(2, 2, device="tpu"))
caller(torch.compile(f, dynamic={dynamic}))
"""
    lines = [line for name, line in warned_lines(tmp_path, text) if name == "/script.py"]
    assert lines and lines[0] in (3, 6), lines  # the call, or the function that is being compiled


def test_frames_of_pytorch_and_of_generated_code_are_passed_over(tmp_path):
    text = """
import torch
from torch_tpu import _frames
exec(compile("def generated(f): f()", "<eval_with_key>.1", "exec"))
torch.utils._pytree.tree_map(lambda leaf: generated(lambda: _frames.warn(leaf)), ["one"])
generated(
    torch._dynamo.disable(lambda: _frames.warn("two"))
)
"""
    assert warned_lines(tmp_path, text) == [("/script.py", 5), ("/script.py", 7)]


def test_variables_that_mean_nothing(tmp_path):
    """The line that imports torch, past the import system's frames."""
    (tmp_path / "imported.py").write_text("import os\n\nimport torch\n")
    text = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\ndef f():\n    import imported\nf()\n"
    for name in ("TORCH_TPU_DEFER_AND_FUSE", "TORCH_TPU_LAUNCH_BLOCKING", "TORCH_TPU_ENABLE_DEBUG_CHECKS"):
        assert warned_lines(tmp_path, text, **{name: "maybe"}) == [("/imported.py", 3)], name
