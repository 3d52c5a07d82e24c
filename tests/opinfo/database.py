"""Checks of one operator of PyTorch's database: on the device it does what it does on the CPU.

A check takes an operator's entry and gives an Outcome: how many samples were tried, how many failed, and how the first did.
"""

import contextlib
import functools
import warnings
from typing import NamedTuple

import deviations
import torch
import torch.utils._pytree as pytree
from helpers import DEVICE
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import DecorateInfo, SampleInput

from torch_tpu._internal import execution_mode

DEBUG = execution_mode.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING

# rtol and atol at least; the database's own for an accelerator where they are wider.
TOLERANCE = {
    torch.float32: 1e-3,
    torch.complex64: 1e-3,
    torch.float64: 1e-6,
    torch.complex128: 1e-6,
    torch.bfloat16: 3e-2,
    torch.float16: 1e-2,
}
SPARSE = ("to_sparse", "sparse.", "_sparse")  # sparse layouts are judged apart


FACTORIES = ("arange", "linspace", "logspace")  # a few of their samples name no device


class Outcome(NamedTuple):
    tried: int
    failed: int
    detail: str


@functools.cache
def operators():
    """Entries by their full name, without those of sparse layouts."""
    return {name: op for name, op in all_operators().items() if not name.startswith(SPARSE)}


@functools.cache
def all_operators():
    return {op.full_name: op for op in reversed(op_db)}


def tolerance(op, dtype):
    """rtol, atol"""
    if dtype not in TOLERANCE:
        return 0, 0
    known = [(TOLERANCE[dtype], TOLERANCE[dtype]), deviations.TOLERANCES.get(op.full_name, (0, 0))]
    for info in op.decorators:
        if isinstance(info, DecorateInfo) and info.device_type in (None, "cuda"):
            known += [
                (d.d[dtype].rtol, d.d[dtype].atol)
                for d in info.decorators
                if isinstance(d, toleranceOverride) and dtype in d.d
            ]
    return tuple(map(max, zip(*known, strict=True)))


# ---- samples ----


def spread(items, n):
    """n of the items, first to last."""
    return items if len(items) <= n else [items[int(i * len(items) / n)] for i in range(n)]


def moved(value, whole=False):
    """The same argument on the device, with the same strides. `whole` keeps what lies around a view in its storage."""
    if isinstance(value, torch.device) or value == "cpu" and isinstance(value, str):
        return torch.device(DEVICE)
    if not isinstance(value, torch.Tensor):
        return value
    t = value.detach()
    plain = t.layout != torch.strided or t.is_conj() or t.is_neg()
    if not plain and (whole or t.stride() != t.to(memory_format=torch.preserve_format).clone().stride()):
        n = t.untyped_storage().nbytes() // t.element_size()
        t = t.as_strided((n,), (1,), 0).to(DEVICE).as_strided(t.size(), t.stride(), t.storage_offset())
    else:
        t = t.to(DEVICE)
    return t.requires_grad_(value.requires_grad)


def copied(value):
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def arguments_of(sample):
    return sample.input, tuple(sample.args), dict(sample.kwargs)


def on_device(op, arguments):
    if op.name == "tensor_split":  # its indices live on the CPU by definition
        return moved(arguments[0]), arguments[1], arguments[2]
    if op.name in FACTORIES and not tensors_of(arguments):
        arguments = (*arguments[:2], {"device": "cpu"} | arguments[2])
    return pytree.tree_map(lambda v: moved(v, op.name.startswith("as_strided")), arguments)


def call(function, arguments):
    return function(arguments[0], *arguments[1], **arguments[2])


def samples_of(op, dtype, n, **options):
    torch.manual_seed(0)
    return spread(list(op.sample_inputs("cpu", dtype, **options)), n)


# ---- comparison ----


def filled(t):
    """NaN as a number, so that two of them are equal."""
    return t.nan_to_num() if t.is_floating_point() else t


def equal(a, b):
    if isinstance(a, torch.Tensor) and a.layout != torch.strided:
        return a.layout == b.layout and equal(a.to_dense(), b.to_dense())
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.is_complex():
            a, b = (torch.view_as_real(t.to(torch.complex64).resolve_conj()) for t in (a, b))
        return a.shape == b.shape and torch.equal(filled(a), filled(b))
    return a == b


def tensors_of(values):
    return [t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor)]


def densified(got, want):
    """Sparse tensors of one layout as dense ones."""
    if want.layout == torch.strided:
        return got, want
    assert got.layout == want.layout, f"layout {got.layout}, on the CPU {want.layout}"
    if want.layout == torch.sparse_coo:
        counts = [(t.sparse_dim(), t.dense_dim(), t.is_coalesced()) for t in (got, want)]
        assert counts[0] == counts[1], f"(sparse_dim, dense_dim, is_coalesced) is {counts[0]}, on the CPU {counts[1]}"
    return got.detach().to_dense(), want.detach().to_dense()


def compare(got, want, values, rtol, atol, strides=False):
    got, want = pytree.tree_leaves(got), pytree.tree_leaves(want)
    assert len(got) == len(want), f"{len(got)} results, not {len(want)}"
    for g, w in zip(got, want, strict=True):
        if isinstance(w, torch.Tensor):
            g, w = densified(g, w)
            assert g.device.type == DEVICE, f"the result is on {g.device}"
            assert g.dtype == w.dtype and g.shape == w.shape, (
                f"{g.dtype} {tuple(g.shape)}, on the CPU {w.dtype} {tuple(w.shape)}"
            )
            dense = torch.empty_like(w).stride() == w.stride()  # a result here has no gaps
            if strides and dense and not w.is_contiguous():
                assert g.stride() == w.stride(), f"strides {g.stride()} of {tuple(g.shape)}, on the CPU {w.stride()}"
            if values:
                exact = w.dtype not in TOLERANCE
                relative, absolute = (
                    (0, 0) if exact else (rtol or 1e-3, atol or 1e-3)
                )  # of floats that come of integers
                torch.testing.assert_close(g.detach().cpu(), w.detach(), rtol=relative, atol=absolute, equal_nan=True)
        elif values:
            assert g == w or isinstance(w, (float, complex)) and abs(g - w) <= max(atol, 1e-6), f"{g} for {w}"


def differentiate(result, arguments):
    outputs = [t for t in tensors_of(result) if t.requires_grad and t.is_floating_point()]
    inputs = [t for t in tensors_of(arguments) if t.requires_grad]
    return torch.autograd.grad([t.sum() for t in outputs], inputs, allow_unused=True) if outputs and inputs else []


def attempt(function, arguments):
    """What a call gives, and the exception that it raises."""
    try:
        result = call(function, arguments)
        for t in tensors_of(result):  # the device may still be at work
            t.detach().cpu()
    except Exception as e:
        return None, e
    return result, None


def same_error(got, want, name=""):
    if name in deviations.INDEX_ERRORS and "is out of bounds" in str(want):
        want = IndexError(*want.args)
    assert got is not None, f"no {type(want).__name__}: {str(want)[:80]}"
    assert type(got) is type(want), (
        f"{type(got).__name__}: {str(got)[:80]}; on the CPU {type(want).__name__}: {str(want)[:80]}"
    )


class Tally:
    def __init__(self):
        self.tried, self.failed, self.detail = 0, 0, ""

    def check(self, function, *arguments):
        self.tried += 1
        try:
            function(*arguments)
        except Exception as e:
            self.failed += 1
            self.detail = self.detail or f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"

    def outcome(self):
        return Outcome(self.tried, self.failed, self.detail)


# ---- the checks ----


def is_random(op, arguments, want):
    """Another call on the CPU gives something else."""
    listed = deviations.RANDOM_SAMPLES.get(op.full_name)
    if listed and listed(**arguments[2]):
        return True
    again = pytree.tree_map(copied_as_is, arguments)
    leaves = pytree.tree_leaves(want), pytree.tree_leaves(call(op, again))
    return op.full_name in deviations.VALUES_DIFFER or not all(map(equal, *leaves))


def untied(op, arguments, result):
    """An unstable sort may return any of equal elements' indices: what they index, then, not the indices."""
    if op.name not in deviations.TIES:
        return result
    indices = result[-1] if isinstance(result, (tuple, list)) else result
    operand, dim = arguments[0], deviations.TIES[op.name](*arguments[1], **arguments[2])
    whole = indices if indices.dim() == operand.dim() else indices.unsqueeze(dim)
    values = operand.gather(dim, whole) if operand.dim() else operand
    return (*result[:-1], values) if isinstance(result, (tuple, list)) else values


def exact(op, dtype, arguments, want):
    """What an operator gives in float32 that the CPU rounds at every step, and the device once."""
    if op.full_name not in deviations.ROUNDED_OFTEN or dtype not in (torch.bfloat16, torch.float16):
        return want
    wider = pytree.tree_map(
        lambda v: v.float() if isinstance(v, torch.Tensor) and v.dtype == dtype else v,
        arguments,
    )
    return pytree.tree_map(
        lambda w, narrow: w.to(narrow.dtype) if isinstance(w, torch.Tensor) else w, call(op, wider), want
    )


def narrowed(op, got, want):
    """Saved statistics, of half precision on the CPU, from float32 to that."""
    if op.full_name not in deviations.SAVED_STATISTICS or want[0].dtype not in (torch.bfloat16, torch.float16):
        return got
    assert all(t.dtype == torch.float32 for t in got[1:3]), f"statistics of {[t.dtype for t in got]}"
    return (got[0], *(t.to(w.dtype) for t, w in zip(got[1:3], want[1:3], strict=True)), *got[3:])


def values(op, dtype, n, gradients=False):
    """Results, and with `gradients` the gradients of all floating-point arguments."""
    rtol, atol = tolerance(op, dtype)
    tally = Tally()

    def one(sample, arguments, device_arguments, want):
        compared = not is_random(op, arguments, want)
        want = untied(op, arguments, exact(op, dtype, arguments, want))
        got = untied(op, device_arguments, call(op, device_arguments))
        # What the database itself compares: eigenvectors without their sign, for one.
        got, want = map(sample.output_process_fn_grad, (got, want))
        compare(narrowed(op, got, want), want, compared, rtol, atol)
        if gradients and compared:
            try:
                slopes = differentiate(want, arguments)
            except Exception:
                return  # no gradient on the CPU
            got = differentiate(got, device_arguments)
            assert [g is None for g in got] == [w is None for w in slopes], "not the same arguments have gradients"
            compare([g for g in got if g is not None], [w for w in slopes if w is not None], True, 3 * rtol, 3 * atol)

    for sample in samples_of(op, dtype, n, requires_grad=gradients and op.supports_autograd):
        arguments = arguments_of(sample)
        device_arguments = on_device(op, arguments)
        try:
            want = call(op, arguments)
        except Exception:
            continue  # not a sample for the CPU
        tally.check(one, sample, arguments, device_arguments, want)
    return tally.outcome()


def errors(op, debug=False):
    """The database's wrong arguments raise the CPU's exception; in debug mode those with wrong values too."""
    with execution_mode.set_eager_mode(DEBUG if debug else execution_mode.get_eager_mode()):
        return errors_in_this_mode(op)


def errors_in_this_mode(op):
    tally = Tally()
    if op.error_inputs_func is None:
        return tally.outcome()
    torch.manual_seed(0)
    for error in op.error_inputs("cpu"):
        arguments = arguments_of(error.sample_input)
        _, want = attempt(op, pytree.tree_map(copied, arguments))
        if want is None:
            continue
        try:
            device_arguments = on_device(op, arguments)
        except type(want):
            continue  # 65 dimensions are refused before the call
        tally.check(lambda: same_error(attempt(op, device_arguments)[1], want, op.full_name))
    return tally.outcome()


def same_call(op, sample, function, arguments, rtol, atol, strides=False):
    """`function` gives and raises the same, and does the same to its first argument."""
    arguments = pytree.tree_map(copied_as_is, arguments)
    device_arguments = on_device(op, arguments)
    want, error = attempt(function, arguments)
    got, raised = attempt(function, device_arguments)
    if isinstance(error, RuntimeError) and op.full_name in deviations.ANY_LAYOUT:
        want, error = attempt(function, pytree.tree_map(contiguous, arguments))
    if error is not None:
        return same_error(raised, error)
    if raised is not None:
        raise raised
    strides = strides and not any(t._is_view() for t in tensors_of(want))
    process = sample.output_process_fn_grad
    compare(process(got), process(want), True, rtol, atol, strides)
    if isinstance(arguments[0], torch.Tensor) and arguments[0].layout == torch.strided:
        compare(device_arguments[0], arguments[0], True, rtol, atol)
    return None


def copied_as_is(value):
    """A copy with the same strides, gaps included."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_conj() or value.is_neg():
        return copied(value)
    t = value.detach()
    n = t.untyped_storage().nbytes() // t.element_size()
    whole = t.as_strided((n,), (1,), 0).clone()
    return whole.as_strided(t.size(), t.stride(), t.storage_offset()).requires_grad_(value.requires_grad)


def contiguous(value):
    """A contiguous copy."""
    whole = isinstance(value, torch.Tensor)
    return value.detach().contiguous().requires_grad_(value.requires_grad) if whole else value


def deterministic_samples(op, dtype, n, **options):
    for sample in samples_of(op, dtype, n, **options):
        want, error = attempt(op, pytree.tree_map(copied_as_is, arguments_of(sample)))
        if error is None and not is_random(op, arguments_of(sample), want):
            yield sample


SPARSE_LAYOUTS = (torch.sparse_coo, torch.sparse_csr)


def to_layout(value, layout):
    # Of tensors without elements the CPU's kernels divide by zero, which ends the process.
    changes = isinstance(value, torch.Tensor) and value.dim() > 1 and value.numel()
    return value.detach().to_sparse(layout=layout) if changes else value


def sparse_samples(op, dtype, n):
    """Arguments with sparse tensors: the database's own, and the first argument of others, and all of them, made sparse.
    What the CPU takes of them counts."""
    samples = samples_of(op, dtype, 1000 if op.full_name.startswith(SPARSE) else n)
    yield from samples
    for layout in SPARSE_LAYOUTS:
        torch.manual_seed(0)
        with contextlib.suppress(Exception):  # there are none, or they cannot be made
            yield from spread(list(op.sample_inputs_sparse(layout, "cpu", dtype)), n)
        for sample in samples:
            for whole in (False, True):
                try:
                    yield sparse_sample(sample, layout, whole)
                except (RuntimeError, ValueError):  # of 3 dimensions with a batch of other numbers of elements
                    continue


def sparse_sample(sample, layout, whole):
    arguments = arguments_of(sample)
    n = len(arguments) if whole else 1
    first, args, kwargs = (*pytree.tree_map(lambda v: to_layout(v, layout), arguments[:n]), *arguments[n:])
    return SampleInput(first, args=args, kwargs=kwargs)


def sparse(op, n):
    """Tensors of layouts COO and CSR, where PyTorch has a kernel for them on the CPU."""
    rtol, atol = tolerance(op, torch.float32)
    tally = Tally()

    def one(sample, device_arguments, want):
        compare(call(op, device_arguments), want, not is_random(op, arguments_of(sample), want), rtol, atol)

    if torch.float32 in op.dtypes:
        for sample in sparse_samples(op, torch.float32, n):
            arguments = arguments_of(sample)
            layouts = {t.layout for t in tensors_of(arguments)}
            want, error = attempt(op, arguments)
            if error is None and {*layouts, *(t.layout for t in tensors_of(want))} & set(SPARSE_LAYOUTS):
                tally.check(one, sample, on_device(op, arguments), want)
    return tally.outcome()


def variants(op, dtype, n):
    """Method, operator and in-place forms, and the aliases."""
    rtol, atol = tolerance(op, dtype)
    tally = Tally()
    forms = [op.method_variant, op.operator_variant, op.inplace_variant, op.inplace_operator_variant]
    for alias in op.aliases:
        forms += [alias.op, alias.method_variant, alias.inplace_variant]
    forms = [f for f in dict.fromkeys(forms) if f is not None]
    for sample in deterministic_samples(op, dtype, n):
        for form in forms:
            tally.check(same_call, op, sample, form, arguments_of(sample), rtol, atol)
    return tally.outcome()


def permuted(value):
    """The same values laid out in the reverse order of dimensions."""
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or value.layout != torch.strided:
        return value
    order = list(reversed(range(value.dim())))
    return value.detach().permute(order).contiguous().permute(order).requires_grad_(value.requires_grad)


def channels_last(value):
    if not isinstance(value, torch.Tensor) or value.dim() not in (4, 5) or value.layout != torch.strided:
        return value
    form = torch.channels_last if value.dim() == 4 else torch.channels_last_3d
    return value.detach().contiguous(memory_format=form).requires_grad_(value.requires_grad)


def spaced(value):
    return noncontiguous_like(value) if isinstance(value, torch.Tensor) and value.layout == torch.strided else value


def layouts(op, dtype, n):
    """Arguments with gaps, in another order of dimensions, in channels_last, with requires_grad: values and strides."""
    rtol, atol = tolerance(op, dtype)
    tally = Tally()
    if op.name.startswith("as_strided"):  # reads beside its operand
        return tally.outcome()
    for sample in deterministic_samples(op, dtype, n, requires_grad=op.supports_autograd and dtype.is_floating_point):
        arguments = arguments_of(sample)
        for layout in (lambda v: v, spaced, permuted, channels_last):
            laid_out = pytree.tree_map(layout, arguments)
            before, after = ([(t.stride(), t.storage_offset()) for t in tensors_of(a)] for a in (arguments, laid_out))
            if layout is spaced or before != after or layout(None) is None and layout(arguments) is arguments:
                tally.check(same_call, op, sample, op, laid_out, rtol, atol, True)
    return tally.outcome()


def outs_of(want):
    """Buffers for out=: what each is, and the tensors."""
    many = list(want) if isinstance(want, (tuple, list)) else [want]
    if not all(isinstance(t, torch.Tensor) for t in many):
        return
    integral = not (many[0].is_floating_point() or many[0].is_complex())
    yield "right", [torch.full_like(t, 1, memory_format=torch.contiguous_format) for t in many]
    yield "empty", [t.new_empty(0) for t in many]
    yield "another shape", [t.new_ones((1, *t.shape, 2)) for t in many]
    yield "with gaps", [noncontiguous_like(torch.ones_like(t)) if t.dim() else torch.ones_like(t) for t in many]
    yield "of another dtype", [torch.ones_like(t, dtype=torch.float64 if integral else torch.int64) for t in many]
    yield "on another device", None


def out_call(op, arguments, outs):
    """Exception type, number of warnings about resizing."""
    target = outs[0] if len(outs) == 1 else tuple(outs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        returned, error = attempt(lambda *a, **k: op(*a, **k, out=target), arguments)
    return returned, error, sum("resize" in str(w.message) for w in caught)


def out_forms(op, dtype, n):
    """out= tensors of the right and of wrong shapes, strides, dtypes and devices, and the warnings about them."""
    rtol, atol = tolerance(op, dtype)
    tally = Tally()
    if not op.supports_out:
        return tally.outcome()

    def one(sample, kind, outs, arguments):
        if outs is None:  # on the CPU, for a call on the device
            _, raised, _ = out_call(op, on_device(op, arguments), [torch.ones_like(t) for t in tensors_of(want)])
            assert isinstance(raised, RuntimeError), f"out= on the CPU: {raised!r}"
            return
        device_outs = [moved(t) for t in outs]
        expected, error, warned = out_call(op, pytree.tree_map(copied_as_is, arguments), outs)
        returned, raised, warned_too = out_call(op, on_device(op, arguments), device_outs)
        if error is not None:
            same_error(raised, error)
            return
        if raised is not None:
            raise raised
        if returned is not None:
            assert all(map(lambda a, b: a is b, tensors_of(returned), device_outs)), "does not return its out="
        silent = op.full_name in deviations.OUT_WITHOUT_WARNING
        assert warned == warned_too or silent, f"out= {kind}: {warned_too} warnings, on the CPU {warned}"
        process = sample.output_process_fn_grad
        # A few of the CPU's kernels write wrongly into tensors with gaps.
        if expected is None:  # a list of tensors is written, and nothing returned
            compare(device_outs, outs, True, rtol, atol)
        else:
            compare(process(returned), process(want if kind == "with gaps" else expected), True, rtol, atol)
        got, wanted = ([t.stride() for t in many] for many in (device_outs, outs))
        assert got == wanted, f"out= {kind}: strides {got}, on the CPU {wanted}"

    for sample in deterministic_samples(op, dtype, n):
        arguments = arguments_of(sample)
        want, _ = attempt(op, pytree.tree_map(copied_as_is, arguments))
        for kind, outs in outs_of(want):
            if outs is None and op.full_name in deviations.OUT_IN_PYTHON:
                continue
            tally.check(one, sample, kind, outs, arguments)
    return tally.outcome()


DTYPES = (
    *(torch.float32, torch.bfloat16, torch.float16, torch.float64),
    *(torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64),
)


def of_dtype(op, dtype, n, gradients=False):
    skipped = dtype not in op.dtypes or gradients and not op.supports_autograd
    return Outcome(0, 0, "") if skipped else values(op, dtype, n, gradients)


def of_first_dtype(check, op, n):
    """Forms and layouts are not a matter of the dtype."""
    dtype = next((t for t in DTYPES if t in op.dtypes), None)
    return check(op, dtype, n) if dtype else Outcome(0, 0, "")


def checks(all_samples=1000, few=3):
    """Every check of an operator, by name, in the order of the summary."""
    table = {"float32": lambda op: of_dtype(op, torch.float32, all_samples)}
    table["float32 gradients"] = lambda op: of_dtype(op, torch.float32, all_samples, True)
    for dtype in DTYPES[1:]:
        table[str(dtype).removeprefix("torch.")] = lambda op, dtype=dtype: of_dtype(op, dtype, few)
    table["errors"] = errors
    table["errors in debug mode"] = lambda op: errors(op, debug=True)
    table["variants"] = lambda op: of_first_dtype(variants, op, few)
    table["out="] = lambda op: of_first_dtype(out_forms, op, few)
    table["layouts"] = lambda op: of_first_dtype(layouts, op, few)
    return table
