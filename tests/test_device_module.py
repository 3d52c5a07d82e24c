"""torch.tpu: devices, streams, events, random numbers, memory, modes; and what PyTorch itself asks of a device."""

import gc
import warnings

import pytest
import torch
from helpers import DEVICE, MANY_SIZES, ON_CPU, child_output, same

pytestmark = pytest.mark.skipif(ON_CPU, reason="names of the device")
tpu = getattr(torch, "tpu", None)

NAMES = [
    "EagerMode",
    "Event",
    "Precision",
    "Stream",
    "allow_excess_precision",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "eager_mode",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "initial_seed",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "precision",
    "set_device",
    "set_eager_mode",
    "set_rng_state",
    "set_stream",
    "stream",
    "synchronize",
    "empty_cache",
    "memory_allocated",
    "memory_reserved",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_stats",
    "memory_summary",
    "mem_get_info",
    "is_bf16_supported",
    "get_device_capability",
    "seed",
    "seed_all",
    "get_rng_state_all",
    "set_rng_state_all",
    "reset_peak_memory_stats",
    "_is_in_bad_fork",
    "_get_generator",
    "_lazy_init",
    "_exchange_device",
    "_maybe_exchange_device",
    "_initialized",
    "_hbm_usage_summary",
    "_get_cache_stats",
]


def test_every_name_is_there():
    assert [n for n in NAMES if not hasattr(tpu, n)] == []


def test_devices():
    assert tpu.is_available() and tpu.device_count() >= 1 and tpu.current_device() == 0
    torch.ones(1, device=DEVICE)
    assert tpu.is_initialized()
    tpu.set_device(0)
    tpu.set_device("tpu:0")
    with tpu.device(0), torch.device("tpu"):
        assert torch.ones(1).device == torch.device("tpu", 0)
    with tpu.device_of(torch.ones(1, device=DEVICE)):
        assert tpu.current_device() == 0
    assert (
        isinstance(tpu.get_device_name(), str)
        and tpu.get_device_name()
        and tpu.get_device_name(0) == tpu.get_device_name("tpu:0")
    )
    assert tpu.get_device_properties(0).name
    for bad in (99, "tpu:99"):
        with pytest.raises((RuntimeError, AssertionError, ValueError)):
            tpu.set_device(bad)
    with pytest.raises(RuntimeError):
        torch.ones(1, device="tpu:99")
    with pytest.raises((RuntimeError, ValueError)):
        tpu.get_device_name("cpu")


def test_accelerator():
    assert torch.accelerator.current_accelerator().type == "tpu" and torch.accelerator.is_available()
    assert torch.accelerator.device_count() == tpu.device_count() and torch.accelerator.current_device_index() == 0
    torch.accelerator.synchronize()
    torch.accelerator.set_device_index(0)
    assert torch.accelerator.current_stream().device.type == "tpu"
    assert torch.get_device_module("tpu") is tpu and torch.get_device_module() is tpu
    assert torch._C._get_privateuse1_backend_name() == "tpu"


def test_streams_and_events():
    stream = tpu.Stream()
    assert tpu.default_stream() == tpu.current_stream()
    with tpu.stream(stream):
        x = torch.ones(100, device=DEVICE) * 2
    stream.synchronize()
    assert stream.query() in (True, False)
    tpu.current_stream().wait_stream(stream)
    start, end = tpu.Event(enable_timing=True), tpu.Event(enable_timing=True)
    start.record()
    for _ in range(3):
        x = x + 1
    end.record()
    end.synchronize()
    assert end.query() and start.elapsed_time(end) >= 0
    end.wait()
    stream.wait_event(end)
    event = stream.record_event()
    event.synchronize()
    same(x, torch.full((100,), 5.0))
    with tpu.stream(None):
        assert tpu.current_stream() == tpu.default_stream()
    tpu.set_stream(tpu.default_stream())
    assert isinstance(torch.Stream(device="tpu"), torch.Stream)
    x.record_stream(stream)


def test_random_state():
    tpu.manual_seed(11)
    assert tpu.initial_seed() == 11
    state = tpu.get_rng_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8
    a = torch.rand(4, device=DEVICE)
    tpu.set_rng_state(state)
    assert torch.equal(torch.rand(4, device=DEVICE), a)
    tpu.manual_seed_all(11)
    assert torch.equal(torch.rand(4, device=DEVICE), a)
    tpu.set_rng_state_all(tpu.get_rng_state_all())
    tpu.set_rng_state(state, "tpu:0")
    tpu.seed()
    tpu.seed_all()
    assert len(tpu.default_generators) >= 1 and tpu.default_generators[0].device.type == "tpu"
    torch.manual_seed(12)
    assert tpu.initial_seed() == 12


def test_memory():
    gc.collect()
    tpu.synchronize()
    tpu.reset_peak_memory_stats()
    before = tpu.memory_allocated()
    x = torch.ones(1 << 18, device=DEVICE) + 1
    tpu.synchronize()
    assert tpu.memory_allocated() - before >= 1 << 20 and tpu.max_memory_allocated() >= tpu.memory_allocated()
    del x
    gc.collect()
    tpu.synchronize()
    assert tpu.memory_allocated() - before < 1 << 20
    assert tpu.max_memory_allocated() - before >= 1 << 20
    tpu.reset_peak_memory_stats()
    assert tpu.max_memory_allocated() - before < 1 << 20
    free, total = tpu.mem_get_info()
    assert 0 <= free <= total and isinstance(tpu.memory_stats(), dict) and isinstance(tpu.memory_summary(), str)
    tpu.empty_cache()
    assert torch.accelerator.memory_allocated() == tpu.memory_allocated()
    assert (
        torch.accelerator.max_memory_allocated() >= torch.accelerator.memory_allocated()
        and torch.accelerator.memory_stats()
    )
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    tpu._hbm_usage_summary()


def test_cache_statistics():
    x = torch.ones(5, device=DEVICE)
    (x * 2 + 1).cpu()
    before = tpu._get_cache_stats()
    requests, hits = before.num_cache_reqs, before.num_cache_hits
    (x * 2 + 1).cpu()
    after = tpu._get_cache_stats()
    assert after.num_cache_reqs - requests == after.num_cache_hits - hits == 2


def test_modes():
    assert tpu.eager_mode == tpu.EagerMode.DEFER_NEVER
    with tpu.set_eager_mode(tpu.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING):
        assert tpu.eager_mode == tpu.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING
        same(torch.ones(3, device=DEVICE) + 1, torch.full((3,), 2.0))
    assert tpu.eager_mode == tpu.EagerMode.DEFER_NEVER
    from torch_tpu._internal import execution_mode, sync

    assert (
        execution_mode.EagerMode is tpu.EagerMode or execution_mode.EagerMode.DEFER_NEVER == tpu.EagerMode.DEFER_NEVER
    )
    sync.synchronize()


def test_precision():
    a = torch.rand(32, 32, device=DEVICE)
    for mode in (tpu.Precision.DEFAULT, tpu.Precision.HIGH, tpu.Precision.HIGHEST):
        with tpu.precision(mode):
            torch.testing.assert_close((a @ a).cpu(), a.cpu() @ a.cpu(), rtol=1e-2, atol=1e-2)
    assert tpu.allow_excess_precision in (True, False)


def test_debug_from_environment():
    code = "import torch; print(torch.tpu.eager_mode)"
    assert "DEFER_NEVER_AND_LAUNCH_BLOCKING" in child_output(code, TORCH_TPU_LAUNCH_BLOCKING="1")


def test_package_names():
    from torch_tpu import api

    assert api.tpu_device() == torch.device("tpu", 0)
    import torch_tpu._loader

    torch_tpu._loader.load()
    torch_tpu._loader.load()
    assert torch.ones(1, device=DEVICE).is_tpu and not torch.ones(1).is_tpu


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", MANY_SIZES)
        x = torch.rand(3, 3, device=DEVICE, requires_grad=True)
        torch.nn.functional.layer_norm(x @ x, (3,)).sum().backward()
        tpu.synchronize()


def test_cpu_fallback_is_counted_and_can_be_refused():
    code = """
import torch, warnings
x = torch.tensor([[2.0, 1.0], [1.0, 3.0]], device="tpu")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    try:
        a = torch.linalg.eigvals(x); b = torch.linalg.eigvals(x)
        print("ran", a.device.type)
    except (RuntimeError, NotImplementedError) as error:
        print("refused", "eigh" in str(error) or "eig" in str(error))
print(sum("CPU" in str(w.message) for w in seen))
"""
    assert child_output(code).split() == ["ran", "tpu", "1"]
    assert child_output(code, TORCH_TPU_CPU_FALLBACK="0").split() == ["refused", "True", "0"]
