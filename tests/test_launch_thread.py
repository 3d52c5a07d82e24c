"""Many small operators in a row are launched by a thread of ours: nothing but the time that they take is different."""

import os

import pytest
from helpers import ON_CPU, child_output

pytestmark = [
    pytest.mark.skipif(ON_CPU, reason="launches of the device"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is no such thread with one CPU"),
]

THREADS = """
import os, torch
def names():
    return [open(f"/proc/self/task/{t}/comm").read().strip() for t in os.listdir("/proc/self/task")]
x = torch.ones(4, device="tpu")
for _ in range(20):
    for _ in range(500): y = x + x
    torch.tpu.synchronize()
print(names().count("tpu-launches"), y.tolist())
"""


@pytest.mark.parametrize("on", ["1", "0"])
def test_the_thread_and_its_switch(on):
    assert child_output(THREADS, TORCH_TPU_LAUNCH_THREAD=on) == f"{on} [2.0, 2.0, 2.0, 2.0]"


MANY = """
import threading, torch
N = 3000
shared = torch.arange(16.0, device="tpu")
failed = []
def work(k):
    own, others = torch.zeros(16, device="tpu"), []
    for i in range(N):
        own.add_(shared, alpha=k)      # reads what all read, in place
        view = own[4:8]
        if i % 500 == 0: others.append((i, view + 1, view.clone()))
        if i % 701 == 0 and own[1].item() != k * (i + 1): failed.append((k, i))
    wanted = torch.arange(16.0) * k
    if not torch.equal(own.cpu(), wanted * N): failed.append((k, own.cpu()))
    for i, more, copy in others:
        if not torch.equal(copy.cpu(), wanted[4:8] * (i + 1)) or not torch.equal(more.cpu(), copy.cpu() + 1): failed.append((k, i))
threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2, 3, 4)]
for t in threads: t.start()
for t in threads: t.join()
print(failed)
"""


def test_threads_issue_at_once():
    assert child_output(MANY) == "[]"


MEMORY = """
import gc, torch
from torch_tpu._internal.execution_mode import EagerMode, set_eager_mode
before = torch.tpu.memory_allocated()
kept = [torch.zeros(1024, device="tpu")]
for i in range(3000):
    kept.append(kept[-1] + 1)
    if len(kept) > 50: del kept[:25]
    assert torch.tpu.memory_allocated() - before == len(kept) * 4096, i
peak = torch.tpu.max_memory_allocated()
torch.tpu.synchronize()
assert torch.tpu.memory_allocated() - before == len(kept) * 4096 and torch.tpu.max_memory_allocated() == peak
assert kept[-1][0].item() == 3000
with set_eager_mode(EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING):
    x = kept[-1]
    for _ in range(1000): x = x + 1
assert x[0].item() == 4000
print("exact")
"""


def test_memory_is_counted_as_of_the_line():
    assert child_output(MEMORY) == "exact"


FORK = """
import os, torch
x = torch.zeros(8, device="tpu")
for k in range(200):
    for _ in range(20): x.add_(1.0)
    if k % 20: continue
    pid = os.fork()
    if pid == 0:
        try:
            x.cpu()
        except RuntimeError as error:
            os._exit(7 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print(x.tolist())
for _ in range(1000): x = x + 1  # the interpreter ends while launches wait
"""


def test_fork_and_exit_between_launches():
    assert child_output(FORK, timeout=120) == str([4000.0] * 8)


INTERRUPTED = """
import os, signal, threading, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell may have switched off
x = torch.zeros(8, device="tpu")
def issue():
    global x
    while True: x = x + 1
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    issue()
except KeyboardInterrupt:
    print("interrupted", (x[0] > 0).item(), (x + 1).sub(x).tolist() == [1.0] * 8)
"""


def test_interrupt():
    assert child_output(INTERRUPTED).split() == ["interrupted", "True", "True"]
