"""What the tests share: the device under test, and comparison with the CPU."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import torch

DEVICE = os.environ.get("TEST_DEVICE", "tpu")
ON_CPU = DEVICE == "cpu"
# Said once in a process, at whichever test is the one too many.
MANY_SIZES = ".*programs so far differ in one size"


def up(value):
    """A copy on the device of a tensor, or of all tensors in a list, tuple or dict."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(DEVICE, copy=True).requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {k: up(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(up(v) for v in value)
    return value


def same(got, want, note="", rtol=None, atol=None, stride=False):
    """`got`, on the device, equals `want`, on the CPU: device, dtype, shape and values, in lists and tuples too."""
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want), f"{note}: {len(got)} results, not {len(want)}"
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            same(g, w, f"{note}[{i}]", rtol, atol, stride)
        return
    if not isinstance(want, torch.Tensor):
        assert got == want, f"{note}: {got!r} for {want!r}"
        return
    assert got.device.type == DEVICE, f"{note}: the result is on {got.device}"
    assert got.dtype == want.dtype, f"{note}: dtype {got.dtype}, on the CPU {want.dtype}"
    assert got.shape == want.shape, f"{note}: shape {tuple(got.shape)}, on the CPU {tuple(want.shape)}"
    if stride:
        assert got.stride() == want.stride(), f"{note}: strides {got.stride()}, on the CPU {want.stride()}"
    torch.testing.assert_close(
        got.detach().cpu(), want.detach(), rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{note}: {m}"
    )


def both(function, *tensors, note="", **tolerance):
    """Runs `function` on CPU copies and on device copies of `tensors`; the results, and what it did to its arguments, are the same."""
    cpu = [t.clone() if isinstance(t, torch.Tensor) else t for t in tensors]
    device = [up(t) for t in tensors]
    want = function(*cpu)
    got = function(*device)
    note = note or getattr(function, "__name__", "")
    same(got, want, note, **tolerance)
    for i, (g, w) in enumerate(zip(device, cpu, strict=True)):
        if isinstance(w, torch.Tensor):
            same(g, w, f"{note}: argument {i} afterwards", **tolerance)


def gradients(function, *tensors, note="", **tolerance):
    """Values and gradients of `function` with respect to all floating-point arguments are the CPU's."""
    results = []
    for place in (lambda t: t.detach().clone(), lambda t: up(t.detach())):
        inputs = [place(t) for t in tensors]
        leaves = [t.requires_grad_() for t in inputs if t.is_floating_point() or t.is_complex()]
        out = function(*inputs)
        weight = place(torch.linspace(0.5, 1.5, out.numel()).view(out.shape)).to(out.dtype)
        results.append([out, *torch.autograd.grad(out, leaves, weight)])
    same(results[1], results[0], note or getattr(function, "__name__", ""), **tolerance)


def child(code, timeout=120, **environment):
    """Runs Python code in a fresh process."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def child_output(code, **options):
    """The standard output of code in a fresh process that must succeed."""
    done = child(code, **options)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def native_plugin(name, folder):
    """The path of tests/native/NAME.c, a PJRT plugin that stands before another, and that of the other."""
    from torch_tpu import _plugins

    headers = pathlib.Path(
        importlib.util.find_spec("xla_plugins").submodule_search_locations[0], "xla_cpu_pjrt/include"
    )
    source, plugin = pathlib.Path(__file__).parent / f"native/{name}.c", folder / f"{name}.so"
    command = ["cc", "-shared", "-fPIC", "-O1", f"-I{headers}", str(source), "-o", str(plugin), "-ldl"]
    subprocess.run(command, check=True)
    return str(plugin), str(_plugins.find(_plugins.CPU))
