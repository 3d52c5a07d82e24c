"""The directory of compiled programs: whatever lies there, results are right and nothing hangs."""

import os
import pathlib

import pytest
from helpers import ON_CPU, child

pytestmark = pytest.mark.skipif(ON_CPU, reason="the cache of compiled programs")

CODE = """
import torch
values = [(torch.arange(float(n), device="tpu") * 2).sum().item() for n in range(1, 21)]
print(values == [float(n * (n - 1)) for n in range(1, 21)], torch.tpu.diagnostics()["compiles"])
"""


def run(directory, warning=""):
    """The number of programs that had to be compiled."""
    done = child(CODE, TORCH_TPU_CACHE_DIR=str(directory), timeout=60)
    assert done.returncode == 0 and warning in done.stderr, done.stderr
    assert done.stderr.count("\n") == bool(warning), done.stderr
    right, compiles = done.stdout.split()
    assert right == "True"
    return int(compiles)


def replace_by_fifo(entry: pathlib.Path):
    entry.unlink()
    os.mkfifo(entry)


def replace_by_directory(entry: pathlib.Path):
    entry.unlink()
    entry.mkdir()


def replace_by_dangling_link(entry: pathlib.Path):
    entry.unlink()
    entry.symlink_to("nowhere")


def flip(at):
    def damage(entry: pathlib.Path):
        data = bytearray(entry.read_bytes())
        data[at] ^= 0x10
        entry.write_bytes(data)

    return damage


def exchange(entry: pathlib.Path):
    """A whole, undamaged entry of another program."""
    others = sorted(p for p in entry.parent.glob("*.xla") if p != entry)
    entry.write_bytes(others[0].read_bytes())


DAMAGE = {
    "emptied": lambda entry: entry.write_bytes(b""),
    "truncated": lambda entry: entry.write_bytes(entry.read_bytes()[:-7]),
    "header cut": lambda entry: entry.write_bytes(entry.read_bytes()[:20]),
    "longer": lambda entry: entry.write_bytes(entry.read_bytes() + b"x"),
    "header flipped": flip(9),
    "first byte flipped": flip(0),
    "last byte flipped": flip(-1),
    "noise": lambda entry: entry.write_bytes(os.urandom(4096)),
    "another program": exchange,
    "unreadable": lambda entry: entry.chmod(0),
    "fifo": replace_by_fifo,
    "directory": replace_by_directory,
    "dangling link": replace_by_dangling_link,
}


def test_damaged_entries(tmp_path):
    assert run(tmp_path) > 2 * len(DAMAGE) and run(tmp_path) == 0
    entries = sorted(tmp_path.glob("*.xla"))[: len(DAMAGE)]
    for damage, entry in zip(DAMAGE.values(), entries, strict=True):
        damage(entry)
    readable = sum(entry.lstat().st_mode & 0o777 == 0 and os.access(entry, os.R_OK) for entry in entries)
    assert run(tmp_path) == len(DAMAGE) - readable  # the superuser reads what nobody may


def test_directory_that_cannot_be():
    assert run("/dev/null/below", "TORCH_TPU_CACHE_DIR=/dev/null/below is not a directory") > 0


# ---- programs that stay loaded ----

MANY_SHAPES = """
import threading, torch
from torch_tpu import _C
from torch_tpu._internal.execution_mode import EagerMode, set_eager_mode

def used(x):  # in every round: the last ones to go
    return (x * 3).sum()

def rounds(n):
    x = torch.arange(5.0, device="tpu")
    return [used(x).item() + (torch.arange(float(i), device="tpu") - 1).exp().shape[0] for i in range(1, n)]

def maps():
    return sum(1 for _ in open("/proc/self/maps"))

want = [30.0 + i for i in range(1, 60)]
with set_eager_mode(EagerMode[MODE]):
    assert rounds(60) == want
    x = torch.arange(5.0, device="tpu")
    before, most = _C.counters()["compiles"], maps()
    used(x).item()
    # A fused program is of what came before, too: it is the last round's.
    assert MODE == "DEFER_AND_FUSE" or _C.counters()["compiles"] == before, "what is used all the time was given up"
    results = []
    threads = [threading.Thread(target=lambda: results.append(rounds(60))) for _ in range(3)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert results == [want] * 3
    function = torch.compile(lambda x: (x + 1).tanh())
    first = function(x)
    assert rounds(60) == want
    assert torch.equal(function(x), first)
torch.tpu.synchronize()
print(maps() - most)
"""


@pytest.mark.parametrize("mode", ["DEFER_NEVER", "DEFER_AND_FUSE", "DEFER_NEVER_AND_LAUNCH_BLOCKING"])
def test_programs_beyond_the_limit_are_given_up(mode, tmp_path):
    code = MANY_SHAPES.replace("MODE", repr(mode))
    done = child(code, TORCH_TPU_PROGRAMS="16", TORCH_TPU_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 400  # of Linux' 65,530 maps of a process; a program takes three and more
