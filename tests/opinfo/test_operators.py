"""PyTorch's own operator database, on the device and on the CPU.

By default float32 and two samples an operator. CONFORMANCE=full: five dtypes, eight samples, and gradients.
"""

import os

import deviations
import pytest
import torch
import torch.utils._pytree as pytree
from helpers import DEVICE
from torch.testing._internal.common_methods_invocations import op_db

FULL = os.environ.get("CONFORMANCE") == "full"
DTYPES = [torch.float32, torch.int64, torch.bfloat16, torch.complex64, torch.bool] if FULL else [torch.float32]
SAMPLES = 8 if FULL else 2
TOLERANCE = {torch.float32: (1e-3, 1e-3), torch.complex64: (1e-3, 1e-3), torch.bfloat16: (3e-2, 3e-2)}


def cases():
    for op in op_db:
        if op.full_name.startswith(("to_sparse", "sparse.", "_sparse")):  # sparse layouts are no part of this device
            continue
        for dtype in DTYPES:
            if dtype in op.dtypes:
                kind = str(dtype).removeprefix("torch.")
                reason = deviations.KNOWN.get((op.full_name, kind)) or deviations.KNOWN.get((op.full_name, "*"))
                marks = [pytest.mark.xfail(reason=reason)] if reason else []
                yield pytest.param(op, dtype, id=f"{op.full_name}-{kind}", marks=marks)


def moved(value, whole):
    """The same argument on the device. `whole` keeps what lies around a partial view, which as_strided reads."""
    if isinstance(value, torch.device) or value == "cpu" and isinstance(value, str):
        return torch.device(DEVICE)
    if not isinstance(value, torch.Tensor):
        return value
    t = value.detach()
    if whole:
        n = t.untyped_storage().nbytes() // t.element_size()
        t = t.as_strided((n,), (1,), 0).to(DEVICE).as_strided(t.size(), t.stride(), t.storage_offset())
    else:
        t = t.to(DEVICE)
    return t.requires_grad_(value.requires_grad)


def spread(items):
    return items if len(items) <= SAMPLES else [items[int(i * len(items) / SAMPLES)] for i in range(SAMPLES)]


def filled(t):
    """NaN as a number, so that two of them are equal."""
    return t.nan_to_num() if t.is_floating_point() else t


def equal(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.is_complex():
            a, b = (torch.view_as_real(t.to(torch.complex64).resolve_conj()) for t in (a, b))
        return a.shape == b.shape and torch.equal(filled(a), filled(b))
    return a == b


def compare(got, want, values, rtol, atol):
    got, want = pytree.tree_leaves(got), pytree.tree_leaves(want)
    assert len(got) == len(want), f"{len(got)} results, not {len(want)}"
    for g, w in zip(got, want, strict=True):
        if isinstance(w, torch.Tensor):
            assert g.device.type == DEVICE, f"the result is on {g.device}"
            assert g.dtype == w.dtype and g.shape == w.shape, (
                f"{g.dtype} {tuple(g.shape)}, on the CPU {w.dtype} {tuple(w.shape)}"
            )
            if values:
                exact = not (w.is_floating_point() or w.is_complex())
                torch.testing.assert_close(
                    g.detach().cpu(), w.detach(), rtol=0 if exact else rtol, atol=0 if exact else atol, equal_nan=True
                )
        elif values:
            assert g == w or isinstance(w, float) and abs(g - w) <= atol, f"{g} for {w}"


def differentiate(result, arguments):
    outputs = [
        t
        for t in pytree.tree_leaves(result)
        if isinstance(t, torch.Tensor) and t.requires_grad and t.is_floating_point()
    ]
    inputs = [t for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor) and t.requires_grad]
    return torch.autograd.grad([t.sum() for t in outputs], inputs, allow_unused=True) if outputs and inputs else []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "dtype"), list(cases()))
def test_operator(op, dtype):
    gradients = FULL and op.supports_autograd and dtype.is_floating_point
    rtol, atol = deviations.TOLERANCES.get(op.full_name) or TOLERANCE.get(dtype, (0, 0))
    tried = 0
    torch.manual_seed(0)
    for sample in spread(list(op.sample_inputs("cpu", dtype, requires_grad=gradients))):
        arguments = (sample.input, sample.args, sample.kwargs)
        device_arguments = pytree.tree_map(lambda v: moved(v, op.name.startswith("as_strided")), arguments)
        if op.name == "tensor_split":  # its indices live on the CPU by definition
            device_arguments = (device_arguments[0], sample.args, sample.kwargs)
        again = pytree.tree_map(
            lambda v: v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v,
            arguments,
        )
        try:
            want = op(arguments[0], *arguments[1], **arguments[2])
        except Exception:
            continue  # not a sample for the CPU
        repeated = op(again[0], *again[1], **again[2])
        values = op.full_name not in deviations.VALUES_DIFFER and all(
            map(equal, pytree.tree_leaves(want), pytree.tree_leaves(repeated))
        )
        got = op(device_arguments[0], *device_arguments[1], **device_arguments[2])
        # What the database itself compares: eigenvectors without their sign, for one.
        process = sample.output_process_fn_grad
        compare(process(got), process(want), values, rtol, atol)
        if gradients and values:
            try:
                want = differentiate(want, arguments)
            except Exception:
                continue  # no gradient on the CPU
            compare(
                [g for g in differentiate(got, device_arguments) if g is not None],
                [g for g in want if g is not None],
                True,
                3 * rtol,
                3 * atol,
            )
        tried += 1
    if not tried:
        pytest.skip("no sample runs on the CPU")


def test_deviations_name_operators():
    names = {op.full_name for op in op_db}
    assert {name for name, _ in deviations.KNOWN} | deviations.TOLERANCES.keys() <= names
    assert all(reason for reason in deviations.KNOWN.values())
