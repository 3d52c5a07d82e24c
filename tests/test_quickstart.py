"""The quick start runs and its checks hold, and each program that it compiles compiles for a TPU as well."""

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import DEVICE, ON_CPU

ROOT = Path(__file__).parents[1]
COMPILER = Path(os.environ.get("TORCH_TPU_TEST_TOOLS", ROOT / "build" / "editable")) / "tpu_compile"
TOPOLOGY = "v5e:1x1"
PARTS = [pytest.param(p, marks=pytest.mark.xdist_group(p)) for p in ("encoder", "gpt", "resnet")]
ran = {}


@pytest.fixture
def part(request, tmp_path_factory):
    """What running one part of the quick start printed and wrote; each part runs once."""
    name = request.param
    if name not in ran:
        pytest.importorskip("transformers")
        folder = tmp_path_factory.mktemp(name)
        (folder / "programs").mkdir()
        quick = [] if os.environ.get("TEST_SLOW") == "1" else ["--quick"]
        command = [
            sys.executable,
            str(ROOT / "examples" / "quickstart.py"),
            "--device",
            DEVICE,
            *quick,
            "--only",
            name,
            "--out",
            str(folder),
        ]
        done = subprocess.run(
            command,
            env={
                **os.environ,
                "TORCH_TPU_DUMP_DIR": str(folder / "programs"),
                "TORCH_TPU_CACHE_DIR": str(folder / "cache"),
            },
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        ran[name] = (name, folder, done)
    return ran[name]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", PARTS, indirect=True)
def test_checks_hold(part):
    name, folder, done = part
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "What ran" in done.stdout and "FAILED" not in done.stdout
    if name == "gpt":
        assert (folder / "loss.png").stat().st_size > 5000 and (folder / "sample.txt").read_text()
        assert torch.load(folder / "gpt.pt", map_location="cpu", weights_only=True)["model"]


def compile_for_tpu(files):
    """Lines of the compiler, one file after another, each in a process that may end: libtpu aborts on what it dislikes."""
    libtpu = Path(importlib.util.find_spec("libtpu").origin).parent / "libtpu.so"
    failures, left = [], list(files)
    while left:
        done = subprocess.run(
            [str(COMPILER), str(libtpu), TOPOLOGY, *map(str, left)],
            env={**os.environ, "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"},  # no TPU is used: nothing to be guarded by its lock
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        lines = done.stdout.splitlines()
        failures += [line for line in lines if line.startswith("error ")]
        started = sum(line.startswith("start ") for line in lines)
        finished = sum(line.startswith(("ok ", "error ")) for line in lines)
        assert started or finished, f"exit status {done.returncode}: {done.stderr[-1000:]}"
        if started > finished:
            failures.append(f"ended the process: {left[started - 1]}: {done.stderr[-500:]}")
        left = left[started:]
    return failures


@pytest.mark.skipif(ON_CPU, reason="programs of the device")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", PARTS, indirect=True)
def test_programs_compile_for_a_tpu(part):
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip("libtpu is not installed")
    assert COMPILER.exists(), f"{COMPILER} is not built: make test builds it"
    _, folder, _ = part
    distinct = {hashlib.sha256(p.read_bytes()).digest(): p for p in sorted((folder / "programs").iterdir())}
    assert len(distinct) > 20
    failures = compile_for_tpu(distinct.values())
    assert not failures, f"{len(failures)} of {len(distinct)}:\n" + "\n".join(f[:400] for f in failures[:10])
