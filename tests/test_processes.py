"""Import, fork, threads, interpreter exit: the process around the device."""

import importlib.util
import os
import threading

import pytest
import torch
from helpers import DEVICE, ON_CPU, child, child_output, same

from torch_tpu import _C

pytestmark = pytest.mark.skipif(ON_CPU, reason="the process around the device")


def test_autoload_and_use():
    assert (
        child_output(
            "import torch; x = torch.ones(2, 3, device='tpu'); print(x.device, x.sum().item(), torch.accelerator.current_accelerator())"
        )
        == "tpu:0 6.0 tpu"
    )


def test_import_creates_nothing_and_says_nothing():
    code = """
import sys, torch
print(torch.tpu.is_initialized(), "torch._dynamo" in sys.modules, "torch._inductor" in sys.modules)
torch.tpu.is_available(), torch.tpu.device_count(), torch.tpu.current_device(), torch.accelerator.device_count()
torch.manual_seed(0)
print(torch.tpu.is_initialized())
torch.ones(1, device="tpu")
torch.ones(1, device="tpu").item()
print(torch.tpu.is_initialized())
"""
    done = child(code)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.split() == ["False", "False", "False", "False", "True"]


def test_import_time():
    code = "import time, torch; print(time.process_time())"  # of the processor: other processes do not count

    def best(**environment):
        return min(float(child_output(code, **environment)) for _ in range(3))

    assert best() - best(TORCH_DEVICE_BACKEND_AUTOLOAD="0") < 0.3


def test_import_changes_nothing_global():
    code = """
import signal, warnings, torch
print(torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, len(warnings.filters), signal.getsignal(signal.SIGSEGV), signal.getsignal(signal.SIGINT),
      torch.get_default_dtype(), torch.get_default_device(), torch.__future__.get_swap_module_params_on_conversion(), torch.__future__.get_overwrite_module_params_on_conversion(),
      torch.get_num_threads(), torch.is_autocast_enabled("cpu"))
"""
    assert child_output(code) == child_output(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


def test_import_orders():
    use = "; import torch; print(float(torch.ones(2, device='tpu').sum()))"
    for first in (
        "import torch_tpu",
        "import torch, torch_tpu",
        "import torch_tpu, torch_tpu, torch",
        "import numpy, torch_tpu._loader; torch_tpu._loader.load()",
    ):
        assert child_output(first + use) == "2.0"
    assert child_output("import torch_tpu" + use, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "2.0"


def test_compile_of_cpu_functions_is_left_alone():
    code = """
import torch
f = torch.compile(lambda x: x * 2 + 1, backend="eager")
print(f(torch.ones(2)).tolist(), torch.tpu.is_initialized())
"""
    assert child_output(code) == "[3.0, 3.0] False"


def test_fork_before_use():
    code = """
import os, torch
pid = os.fork()
if pid == 0:
    print("child", torch.ones(2, device="tpu").sum().item(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print("parent", torch.ones(3, device="tpu").sum().item())
"""
    assert child_output(code).split() == ["child", "2.0", "parent", "3.0"]


def test_fork_after_use_is_a_clear_error():
    code = """
import os, sys, torch
x = torch.ones(2, device="tpu").cpu()
pid = os.fork()
if pid == 0:
    try:
        torch.ones(2, device="tpu").sum().item()
        print("ran")
    except RuntimeError as error:
        print("refused", "fork" in str(error) and "spawn" in str(error), torch.tpu._is_in_bad_fork(), (x + 1).sum().item(), flush=True)
    os._exit(0)
_, status = os.waitpid(pid, 0)
print(status, torch.ones(3, device="tpu").sum().item())
"""
    assert child_output(code, timeout=60).split() == ["refused", "True", "True", "4.0", "0", "3.0"]


def test_spawned_workers():
    code = """
import torch, torch.multiprocessing as mp
def work(i, q): q.put((i, torch.full((2,), float(i), device="tpu").sum().item()))
if __name__ == "__main__":
    torch.ones(1, device="tpu")
    c = mp.get_context("spawn"); q = c.Queue()
    ps = [c.Process(target=work, args=(i, q)) for i in range(2)]
    [p.start() for p in ps]; print(sorted(q.get() for _ in ps)); [p.join() for p in ps]
"""
    import subprocess
    import sys
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(code)
        script.flush()
        done = subprocess.run([sys.executable, script.name], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "[(0, 0.0), (1, 2.0)]", done.stderr


def test_exit_with_live_work():
    code = """
import threading, torch
x = torch.rand(5, 48, device="tpu")
kept = [*torch.unbind(x, 0)[2:4], x[2:], x.t(), torch.nn.Linear(3, 3).to("tpu"), torch.ones(3, device="tpu", requires_grad=True).exp()]
kept[-1].sum().backward()
y = x
for _ in range(50):
    y = y @ x.t() @ x * 0.01
def spin():
    z = torch.ones(4, device="tpu")
    for _ in range(20):
        z = z + 1
    idle.set()
    threading.Event().wait()
idle = threading.Event()
threading.Thread(target=spin, daemon=True).start()
idle.wait()  # a daemon thread inside an operator ends a process badly on every device
print("end")
"""
    done = child(code, timeout=60)
    assert done.returncode == 0 and done.stdout.strip() == "end", (done.returncode, done.stderr[-400:])


def test_exit_while_a_backward_is_tidied_up():
    """autograd's thread of the device ends its task after backward() has returned: the interpreter waits for it."""
    code = """
import os, time, torch
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the thread that is woken runs before the one that wakes it
class Slow:
    def __call__(self): pass
    def __del__(self): time.sleep(0.3)
x = torch.ones(3, device="tpu", requires_grad=True)
x.register_hook(lambda g: torch.autograd.Variable._execution_engine.queue_callback(Slow()))
(x * 2).sum().backward()
print("end")
"""
    done = child(code, timeout=60)
    assert done.returncode == 0 and done.stdout == "end\n", (done.returncode, done.stderr[-400:])


def test_exit_by_exception():
    done = child("import torch; x = torch.ones(3, device='tpu'); raise SystemExit(3)")
    assert done.returncode == 3 and done.stderr == ""


def test_threads():
    errors, results = [], {}

    def work(i):
        try:
            x = torch.full((8,), float(i), device=DEVICE)
            for _ in range(20):
                x = x * 1.0 + 1
            results[i] = x
        except Exception as error:  # reported by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors
    for i in range(8):
        same(results[i], torch.full((8,), float(i + 20)))


def test_one_thread_compiles_what_many_want():
    barrier, results = threading.Barrier(4), []
    x = torch.rand(7, 11, device=DEVICE)

    def work():
        barrier.wait()
        results.append((x.sinh() + x.cosh()).cpu())

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for r in results:
        torch.testing.assert_close(r, x.cpu().sinh() + x.cpu().cosh())


def test_no_metadata_server_is_asked():
    code = "import time, torch; t = time.perf_counter(); torch.tpu.is_available(); torch.ones(1, device='tpu').item(); print(time.perf_counter() - t < 20)"
    assert child_output(code, TPU_SKIP_MDS_QUERY="") == "True"


def test_memory_does_not_grow():
    code = """
import gc, os, torch
def rss(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
m = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).to("tpu")
o = torch.optim.Adam(m.parameters(), 1e-3)
def steps(n):
    for _ in range(n):
        o.zero_grad(); m(torch.rand(32, 64).to("tpu")).pow(2).mean().backward(); o.step()
    torch.tpu.synchronize()
steps(40); gc.collect(); a = rss(); steps(160); b = rss()
for _ in range(60):
    t = torch.zeros(2 * 2**20, device="tpu") + 1
torch.tpu.synchronize(); del t; gc.collect()
print(b - a < 48, rss() - b < 400, b - a, rss() - b)
"""
    assert child_output(code).split()[:2] == ["True", "True"]


def test_no_tpu_where_one_is_required_is_said():
    done = child("import torch; torch.ones(2, device='tpu')", TORCH_TPU_REQUIRE_TPU="1")
    assert done.returncode == 1 and "TORCH_TPU_REQUIRE_TPU is set and no TPU is attached" in done.stderr, done.stderr


@pytest.mark.skipif(_C.tpu_attached(), reason="a TPU is attached")
def test_libtpu_without_a_tpu_is_said():
    done = child("import torch; torch.ones(2, device='tpu')", TORCH_TPU_PJRT_PLUGIN="tpu", TPU_LIBRARY_PATH="")
    assert done.returncode == 1, done.stdout
    installed = importlib.util.find_spec("libtpu") is not None
    said = "no TPU is attached to this machine, and libtpu needs one" if installed else "libtpu is not installed"
    assert said in done.stderr, done.stderr


def test_a_plugin_of_no_such_name_is_said():
    done = child("import torch; torch.ones(2, device='tpu')", TORCH_TPU_PJRT_PLUGIN="gpu")
    assert done.returncode == 1 and "TORCH_TPU_PJRT_PLUGIN takes cpu, tpu or a path" in done.stderr, done.stderr


def test_environment_that_means_nothing_is_named():
    wrong = {
        "TORCH_TPU_DEVICES_PER_HOST": ("abc", "-1", " 2", "1.5", "9" * 20),
        "TORCH_TPU_FUSED_NODES": ("abc", "-1", "3x", "1e3"),
        "TORCH_TPU_PROGRAMS": ("abc", "0", "-5"),
        "TORCH_TPU_CACHE_SIZE_MB": ("abc", "-1", " 7"),
        "TORCH_TPU_REQUIRE_TPU": ("2", "maybe"),
        "TORCH_TPU_CPU_FALLBACK": ("2", "never"),
        "TORCH_TPU_DEFER_AND_FUSE": ("2",),
        "TORCH_TPU_LAUNCH_BLOCKING": ("-1",),
        "TORCH_TPU_ENABLE_DEBUG_CHECKS": ("all",),
        "TORCH_TPU_INTERNAL_XLA_OPTIONS": ("nonsense", "=1", "-,--="),
        "TORCH_TPU_DUMP_DIR": ("/proc/x", "/dev/null"),
        "TORCH_TPU_CACHE_DIR": ("/dev/null", "/proc/x/y"),
        "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT": ("/dev/null/x", "/proc/x"),
    }
    code = "import torch; print(torch.ones(2, device='tpu').sum().item(), torch.tpu.device_count())"
    for i in range(5):
        environment = {name: values[i] for name, values in wrong.items() if i < len(values)}
        done = child(code, **environment)
        assert done.stdout == "2.0 1\n", done.stderr
        for name, value in environment.items():
            assert f"<string>:1: UserWarning: {name}={value} " in done.stderr, (name, value, done.stderr)
        assert done.stderr.count("UserWarning") == len(environment), done.stderr


def test_environment_is_not_changed():
    before = dict(os.environ)
    torch.ones(1, device=DEVICE)
    changed = {k for k in os.environ.keys() | before.keys() if os.environ.get(k) != before.get(k)}
    assert changed == set()
