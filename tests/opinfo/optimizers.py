"""PyTorch's optimizer database: ten steps of every optimizer, one by one, foreach, fused and capturable, are the CPU's."""

import copy
import functools

import torch
from database import Tally, compare
from helpers import DEVICE
from torch.testing._internal.common_optimizers import optim_db

STEPS = 10
DEVICES_OWN = {"capturable", "foreach", "fused"}  # the CPU's run is the plain one


@functools.cache
def optimizers():
    """Entries by name; SparseAdam takes sparse gradients only."""
    return {o.optim_cls.__name__: o for o in optim_db if not o.only_supports_sparse_grads}


def numbers(value):
    """Tensors among the options as Python numbers."""
    if isinstance(value, torch.Tensor):
        return value.item()
    return tuple(map(numbers, value)) if isinstance(value, tuple) else value


def ways(info, options):
    """The same options for every way that the optimizer takes its steps."""
    for way in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        if set(way) & set(info.supported_impls):
            yield options | way
    if not {"foreach", "fused"} & set(info.supported_impls):
        yield options


def run(info, options, device):
    torch.manual_seed(0)
    shapes = [(4, 3), (2, 5)] if info.optim_cls.__name__ == "Muon" else [(4, 3), (5,), ()]
    parameters = [torch.nn.Parameter(torch.rand(s).to(device)) for s in shapes]
    targets = [torch.rand(s).to(device) for s in shapes]
    options = {k: copy.deepcopy(v) for k, v in options.items()}
    optimizer = info.optim_cls(parameters, **options)

    def closure():
        optimizer.zero_grad()
        loss = sum((p - t).square().sum() for p, t in zip(parameters, targets, strict=True))
        loss.backward()
        return loss

    losses = []
    for _ in range(STEPS):
        if info.step_requires_closure:
            losses.append(optimizer.step(closure).detach())
        else:
            losses.append(closure().detach())
            optimizer.step()
    state = [optimizer.state[p] for p in parameters if p in optimizer.state]
    return [p.detach() for p in parameters], losses, [s[k] for s in state for k in sorted(s) if k != "step"]


def one(info, options):
    plain = {k: numbers(v) for k, v in options.items() if k not in DEVICES_OWN}
    plain |= {"foreach": False} if "foreach" in info.supported_impls else {}
    want = run(info, plain, "cpu")
    got = run(info, options, DEVICE)
    compare(got[:2], want[:2], True, 1e-4, 1e-5)
    # State that the CPU keeps as Python numbers, capturable keeps as tensors.
    pairs = [
        p for p in zip(got[2], want[2], strict=True) if isinstance(p[1], torch.Tensor) and p[0].device.type == DEVICE
    ]
    compare([g for g, _ in pairs], [w for _, w in pairs], True, 1e-4, 1e-5)


def check(info):
    tally = Tally()
    # The database knows the options that capture wants for "cuda" only.
    configurations = {c.desc: c for c in [*info.optim_inputs_func("cpu"), *info.optim_inputs_func("cuda")]}
    for configuration in configurations.values():
        for options in ways(info, configuration.kwargs):
            tally.check(one, info, options)
    return tally.outcome()


def checks():
    return {"optimizers": check}
