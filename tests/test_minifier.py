"""PyTorch's reproducers and minifier with a program that does not compile here: `TORCHDYNAMO_REPRO_AFTER=aot`."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from helpers import ON_CPU, native_plugin

pytestmark = [
    pytest.mark.skipif(ON_CPU, reason="the backend of the device"),
    pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler"),
]

# Programs that have both a tanh and a product do not compile; alone, as eager has them, they do.
CODE = """
import torch
def f(x, y):
    a = (x @ y).relu() + 1
    return torch.tanh(a * 2).sum(0).exp() - y
g = torch.compile(f{options})
g(torch.ones(4, 4, device="tpu"), torch.ones(4, 4, device="tpu"))
"""
ERROR = "this plugin compiles no such program"


@pytest.fixture
def run(tmp_path):
    """Runs a script in the test's folder, on a plugin that rejects such programs; gives what it wrote to stderr."""
    plugin, real = native_plugin("rejecting_plugin", tmp_path)
    words = "stablehlo.tanh stablehlo.multiply"
    rejecting = dict(TORCH_TPU_PJRT_PLUGIN=plugin, REJECTED_PLUGIN=real, REJECTED_WORDS=words, TORCH_TPU_CACHE_DIR="")

    def run(script, *arguments, fails=False, **environment):
        command = [sys.executable, str(script), *arguments]
        environment = {**os.environ, **rejecting, **environment}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode != 0) == fails and (ERROR in done.stderr) >= fails, done.stderr
        return done.stderr

    return run


def operators(script):
    return re.findall(r"= torch\.ops\.aten\.(\w+)", script.read_text())


@pytest.mark.parametrize("options", ["", ', backend="tpu"'])
def test_a_reproducer_and_its_minimum(options, run, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(CODE.replace("{options}", options))
    run(script, fails=True, TORCHDYNAMO_REPRO_AFTER="aot", TORCHDYNAMO_REPRO_LEVEL="2")
    (launcher,) = tmp_path.glob("torch_compile_debug/*/minifier/minifier_launcher.py")
    assert operators(launcher) == ["mm", "relu", "add", "mul", "tanh", "sum", "exp", "sub"]
    run(launcher, "minify", "--no-isolate")
    smallest = tmp_path / "repro.py"
    assert operators(smallest) == ["mul", "tanh"]
    run(smallest, fails=True)
    run(smallest, REJECTED_WORDS="no program has these")


def test_a_reproducer_of_what_dynamo_traced(run, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(CODE.replace("{options}", ', backend="tpu"'))
    run(script, fails=True, TORCHDYNAMO_REPRO_AFTER="dynamo", TORCHDYNAMO_REPRO_LEVEL="1")
    run(tmp_path / "repro.py", fails=True)
    run(tmp_path / "repro.py", REJECTED_WORDS="no program has these")


@pytest.mark.parametrize("after", ["aot", "dynamo"])
def test_what_does_not_fail_is_as_before(after, run, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(CODE.replace("{options}", "") + "assert not torch._dynamo.utils.counters['graph_break']")
    run(script, REJECTED_WORDS="no program has these", TORCHDYNAMO_REPRO_AFTER=after)
