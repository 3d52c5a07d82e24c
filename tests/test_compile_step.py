"""torch.tpu.compiler.compile_step: a whole training step is one program, and trains as PyTorch on the CPU does."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from torch_tpu import _C
from torch_tpu._internal.execution_mode import EagerMode, get_eager_mode

compile_step = torch.tpu.compiler.compile_step


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))


def batches(n, device):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(16, 8, generator=generator).to(device), torch.randint(4, (16,), generator=generator).to(device))
        for _ in range(n)
    ]


def make_step(module, optimizer, schedule=None, accumulate=1, clip=None, compiled=False):
    """A step as people write it."""
    call = torch.compile(module) if compiled else module

    def step(inputs, targets):
        total = 0.0
        for x, y in zip(inputs.chunk(accumulate), targets.chunk(accumulate), strict=True):
            loss = nn.functional.cross_entropy(call(x), y) / accumulate
            loss.backward()
            total = total + loss.detach()
        if clip:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
        if schedule:
            schedule.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    return step


def train(device, wrap, make_optimizer, scheduled=False, steps=6, **options):
    module = model().to(device)
    optimizer = make_optimizer(module.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10) if scheduled else None
    step = wrap(make_step(module, optimizer, schedule, **options))
    losses, counts = [], []
    for x, y in batches(steps, device):
        before = _C.counters()
        losses.append(step(x, y))
        after = _C.counters()
        counts.append((after["launches"] - before["launches"], after["compiles"] - before["compiles"]))
    return [loss.item() for loss in losses], [p.detach().cpu() for p in module.parameters()], counts


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2),
    "adamw-capturable": lambda p: torch.optim.AdamW(p, 1e-2, capturable=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3),
}


def check(optimizer, cpu_optimizer=None, **options):
    want = train("cpu", lambda f: f, OPTIMIZERS[cpu_optimizer or optimizer], **{**options, "compiled": False})
    losses, parameters, counts = train("tpu", compile_step, OPTIMIZERS[optimizer], **options)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(want[0]), rtol=1e-4, atol=1e-5)
    for p, q in zip(parameters, want[1], strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
    assert [launches for launches, _ in counts] == [1] * len(counts)
    assert [compiles for _, compiles in counts[3:]] == [0] * len(counts[3:])


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "adamw-fused", "rmsprop"])
def test_a_step_is_one_launch(optimizer):
    check(optimizer)


def test_capturable_optimizer():
    check("adamw-capturable", cpu_optimizer="adamw")


def test_schedule_clipping_and_accumulation():
    check("adamw", scheduled=True, clip=0.5, accumulate=4)


def test_compiled_model_inside():
    check("adamw", compiled=True, clip=0.5, scheduled=True)


def test_parameters_and_state_are_donated(tmp_path):
    module = nn.Linear(64, 64).to("tpu")
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)

    def step(x):
        module(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step, x = compile_step(step), torch.ones(2, 64, device="tpu")
    for _ in range(2):
        step(x)
    torch.tpu.synchronize()
    _C.cache_clear()
    _C.set_dump_directory(str(tmp_path))
    try:
        step(x)
    finally:
        _C.set_dump_directory(None)
    (program,) = [p.read_text() for p in Path(tmp_path).iterdir() if "64x64" in p.read_text()]
    main = next(line for line in program.splitlines() if "@main" in line)
    matrices = [a for a in main.split("->")[0].split("%") if "64x64" in a]
    assert len(matrices) == 3  # the weight and the two moments
    assert all("tf.aliasing_output" in a for a in matrices)


def test_a_value_that_python_reads_splits_the_program():
    module = model().to("tpu")
    optimizer = torch.optim.SGD(module.parameters(), 0.1)

    @compile_step
    def step(x, y):
        loss = nn.functional.cross_entropy(module(x), y)
        loss.backward()
        number = loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return number

    (x, y), *_ = batches(1, "tpu")
    step(x, y)
    before = _C.counters()["launches"]
    assert isinstance(step(x, y), float)
    assert _C.counters()["launches"] - before == 2


def test_dropout_differs_from_step_to_step_and_repeats_with_the_seed():
    module = nn.Dropout(0.5).to("tpu")
    step = compile_step(lambda x: module(x))
    x = torch.ones(256, device="tpu")
    torch.manual_seed(3)
    first, second = step(x).cpu(), step(x).cpu()
    torch.manual_seed(3)
    assert torch.equal(step(x).cpu(), first)
    assert not torch.equal(first, second)


def test_the_mode_is_restored_and_errors_are_raised():
    x = torch.ones(3, device="tpu")

    @compile_step
    def outer(x):
        assert get_eager_mode() is EagerMode.DEFER_AND_FUSE
        return compile_step(lambda x: x + 1)(x) * 2

    before = _C.counters()["launches"]
    assert outer(x).tolist() == [4, 4, 4]
    assert _C.counters()["launches"] - before == 1
    with pytest.raises(RuntimeError, match="size"):
        compile_step(lambda x: (x * 2) @ torch.ones(4, device="tpu"))(x)
    assert get_eager_mode() is EagerMode.DEFER_NEVER
    assert not _C.is_held()
    assert (x + 1).tolist() == [2, 2, 2]
    with pytest.raises(TypeError, match="takes a function"):
        compile_step(3)


def test_large_steps_are_not_cut():
    def step(x):
        for i in range(1500):
            x = x + (i % 3)
        return x

    x = torch.zeros(2, device="tpu")
    wrapped = compile_step(step)
    wrapped(x)
    before = _C.counters()["launches"]
    assert wrapped(x).tolist() == [1500.0, 1500.0]
    assert _C.counters()["launches"] - before == 1


def test_options_reach_the_program():
    step = compile_step(lambda x: x * 3, options={"xla_cpu_enable_fast_math": True})
    assert step(torch.ones(2, device="tpu")).tolist() == [3, 3]
    assert _C.get_options() == 0


def test_a_copy_of_a_model_trains_on():
    """What a step leaves behind are ordinary tensors."""
    module = model().to("tpu")
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    step = compile_step(make_step(module, optimizer))
    (x, y), *_ = batches(1, "tpu")
    first = step(x, y).item()
    state = copy.deepcopy(optimizer.state_dict())
    saved = copy.deepcopy(module)
    assert step(x, y).item() < first
    assert not torch.equal(saved[0].weight, module[0].weight)
    assert state["state"][0]["step"].item() == 1
