"""PyTorch's module database: forward, backward and buffers of every module are the CPU's."""

import copy
import functools

import deviations
import torch
from database import Tally, attempt, compare, copied, equal, moved, tensors_of
from helpers import DEVICE
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves, tree_map


@functools.cache
def modules():
    """Entries by their name."""
    return {info.name: info for info in module_db}


def forward_and_backward(module, inputs):
    """Results, gradients of arguments and parameters, and the parameters and buffers afterwards, or the exception."""
    result, error = attempt(lambda _, *args, **kwargs: module(*args, **kwargs), (None, inputs.args, inputs.kwargs))
    if error is not None:
        return None, error
    outputs = [t for t in tensors_of(result) if t.requires_grad]
    leaves = [t for t in tensors_of((inputs.args, inputs.kwargs)) if t.requires_grad] + list(module.parameters())
    gradients = torch.autograd.grad([t.sum() for t in outputs], leaves, allow_unused=True) if outputs else []
    return [result, gradients, list(module.state_dict().values())], None


class On:
    """A module's arguments, each through `place`."""

    def __init__(self, inputs, place):
        self.args = tree_map(place, tuple(inputs.args))
        self.kwargs = tree_map(place, dict(inputs.kwargs))


def widened(value):
    narrow = isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.detach().float().requires_grad_(value.requires_grad) if narrow else copied(value)


def compare_narrow(got, want, wide, tolerance, spread):
    """The CPU adds up and rounds in the narrow type where the device does so in float32: what differs by more than the
    tolerance may be no further from float32's result than the CPU's is, or with `spread` within deviations.ROUNDING of it."""
    leaves = [[t for t in tree_leaves(part) if isinstance(t, torch.Tensor)] for part in (got, want, wide)]
    assert len({len(part) for part in leaves}) == 1, f"{[len(part) for part in leaves]} tensors"
    for g, w, exact in zip(*leaves, strict=True):
        try:
            compare([g], [w], True, tolerance, tolerance)
        except AssertionError:
            if g.dtype != w.dtype or g.shape != w.shape or not exact.is_floating_point():
                raise
            exact = exact.detach().float()
            errors = [t.detach().cpu().float() - exact for t in (g, w)]
            ours, theirs = (e.abs().max().item() for e in errors)
            allowed = deviations.ROUNDING * exact.abs().max() if spread else 0
            assert ours <= theirs or errors[0].square().mean().sqrt() <= allowed, (
                f"{ours:.3g} from float32's result, the CPU's {theirs:.3g}"
            )


def one(module, inputs, dtype, tolerance, spread):
    torch.manual_seed(0)
    want, error = forward_and_backward(copy.deepcopy(module), On(inputs, copied))
    if error is not None:
        return
    torch.manual_seed(1)
    again, _ = forward_and_backward(copy.deepcopy(module), On(inputs, copied))
    values = all(map(equal, tree_leaves(want), tree_leaves(again)))
    got, error = forward_and_backward(copy.deepcopy(module).to(DEVICE), On(inputs, moved))
    if error is not None:
        raise error
    if not values or dtype == torch.float32:
        compare(got, want, values, tolerance, tolerance)
    else:
        torch.manual_seed(0)
        wide, error = forward_and_backward(copy.deepcopy(module).float(), On(inputs, widened))
        if error is not None:
            raise error
        compare_narrow(got, want, wide, tolerance, spread)


def check(info, dtype):
    tally = Tally()
    tolerance = {torch.float32: 1e-3}.get(dtype, 4e-2)
    spread = info.name in deviations.ROUNDED_MODULES
    for training in (True, False) if info.train_and_eval_differ else (True,):
        torch.manual_seed(0)
        options = dict(device="cpu", dtype=dtype, requires_grad=True, training=training)
        for inputs in info.module_inputs_func(info, **options):
            torch.manual_seed(0)
            arguments = inputs.constructor_input
            # A few entries name the device and dtype themselves.
            placed = {"device": "cpu", "dtype": dtype} | arguments.kwargs
            try:
                module = info.module_cls(*arguments.args, **placed)
            except TypeError:
                module = info.module_cls(*arguments.args, **arguments.kwargs)
            module = module.to(dtype).train(training)
            if inputs.forward_input is not None:
                tally.check(one, module, inputs.forward_input, dtype, tolerance, spread)
    return tally.outcome()


def checks():
    return {
        "modules float32": functools.partial(check, dtype=torch.float32),
        "modules bfloat16": functools.partial(check, dtype=torch.bfloat16),
    }
