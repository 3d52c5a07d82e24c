"""Every optimizer and scheduler of PyTorch takes the CPU's steps."""

import copy

import pytest
import torch
from helpers import DEVICE, ON_CPU, same, up
from torch import nn

OPTIMIZERS = dict(
    SGD=dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    Adam=dict(lr=0.05, amsgrad=True),
    AdamW=dict(lr=0.05),
    Adamax=dict(lr=0.05),
    NAdam=dict(lr=0.05),
    RAdam=dict(lr=0.05),
    Adagrad=dict(lr=0.1),
    Adadelta=dict(lr=1.0),
    RMSprop=dict(lr=0.01, momentum=0.5, centered=True),
    Rprop=dict(lr=0.05),
    ASGD=dict(lr=0.05),
    LBFGS=dict(lr=0.5, max_iter=3),
    Muon=dict(lr=0.02),
    Adafactor=dict(lr=0.05),
)  # fmt: skip
FORMS = [{}, {"foreach": False}, {"foreach": True}]


def train(name, options, device, steps=4):
    torch.manual_seed(0)
    matrices_only = name == "Muon"
    model = nn.Linear(4, 3, bias=not matrices_only)
    x, y = torch.rand(6, 4), torch.rand(6, 3)
    model.to(device)
    x, y = x.to(device), y.to(device)
    optimizer = getattr(torch.optim, name)(model.parameters(), **OPTIMIZERS[name], **options)

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(steps)]
    return model, losses


def test_all_are_covered():
    public = {
        n
        for n in dir(torch.optim)
        if isinstance(getattr(torch.optim, n), type) and issubclass(getattr(torch.optim, n), torch.optim.Optimizer)
    }
    assert public - {"Optimizer", "SparseAdam"} <= OPTIMIZERS.keys(), "SparseAdam takes sparse gradients only"


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_the_cpus(name):
    if not hasattr(torch.optim, name):
        pytest.skip("newer than this PyTorch")
    forms = FORMS if name in ("SGD", "Adam", "AdamW", "RMSprop") else FORMS[:1]
    want, losses = train(name, {}, "cpu")
    for form in forms:
        got, ours = train(name, form, DEVICE)
        for (key, p), q in zip(got.named_parameters(), want.parameters(), strict=True):
            same(
                p,
                q,
                f"{name} {form} {key}",
                rtol=2e-3 if name in ("LBFGS", "Muon") else 1e-4,
                atol=2e-3 if name == "Muon" else 1e-5,
            )
        assert ours == pytest.approx(losses, rel=1e-3)


@pytest.mark.skipif(ON_CPU, reason="of accelerators")
def test_capturable():
    want, _ = train("AdamW", {}, "cpu")
    torch.manual_seed(0)
    got, _ = train("AdamW", {"capturable": True}, DEVICE)
    same(got.weight, want.weight, rtol=1e-4, atol=1e-5)


def test_fused():
    want, _ = train("Adam", {}, "cpu")
    try:
        got, _ = train("Adam", {"fused": True}, DEVICE)
    except RuntimeError as error:
        assert "fused" in str(error)
        return
    same(got.weight, want.weight, rtol=1e-4, atol=1e-5)


def test_strided_parameters():
    w, x = torch.randn(3, 4), torch.randn(5, 4)
    for make in (
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, 0.1),
        lambda p: torch.optim.RMSprop(p, 0.1),
    ):
        ends = []
        for device in ("cpu", DEVICE):
            p = nn.Parameter(w.clone().to(device).t())
            optimizer = make([p])
            for _ in range(3):
                optimizer.zero_grad()
                ((x.to(device) @ p) ** 2).mean().backward()
                optimizer.step()
            ends.append(p)
        same(ends[1], ends[0], rtol=2e-3, atol=1e-4)


SCHEDULERS = dict(
    StepLR=lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
    CosineAnnealingLR=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
    LambdaLR=lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda i: 0.5**i),
    OneCycleLR=lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=8),
    LinearLR=lambda o: torch.optim.lr_scheduler.LinearLR(o, total_iters=4),
    ExponentialLR=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    CyclicLR=lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    Warm=lambda o: torch.optim.lr_scheduler.SequentialLR(
        o, [torch.optim.lr_scheduler.ConstantLR(o, 0.1, 2), torch.optim.lr_scheduler.StepLR(o, 1)], [2]
    ),
)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers(name):
    start, ends = torch.rand(4), []
    for device in ("cpu", DEVICE):
        p = nn.Parameter(start.clone().to(device))
        optimizer = torch.optim.SGD([p], 0.1, momentum=0.5)
        scheduler = SCHEDULERS[name](optimizer)
        for _ in range(5):
            p.grad = p.detach() * 2
            optimizer.step()
            scheduler.step()
        ends.append(p)
    same(ends[1], ends[0])


def test_plateau_scheduler():
    p = nn.Parameter(torch.ones(1, device=DEVICE))
    optimizer = torch.optim.SGD([p], 1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for _ in range(3):
        scheduler.step(torch.ones((), device=DEVICE))
    assert optimizer.param_groups[0]["lr"] < 1


def test_clipping():
    grads = [torch.rand(3, 2) * 5, torch.rand(4)]
    ends = []
    for device in ("cpu", DEVICE):
        parameters = [nn.Parameter(torch.zeros_like(g).to(device)) for g in grads]
        for p, g in zip(parameters, grads, strict=True):
            p.grad = g.clone().to(device)
        norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        nn.utils.clip_grad_value_(parameters, 0.25)
        ends.append([norm, *[p.grad for p in parameters]])
    same(ends[1], ends[0])
    parameters[0].grad = up(torch.tensor([[float("nan"), 1], [1, 1], [1, 1]]))
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)


def test_averaging_and_groups():
    torch.manual_seed(0)
    model = nn.Linear(2, 2).to(DEVICE)
    average = torch.optim.swa_utils.AveragedModel(model)
    before = copy.deepcopy(model.weight.detach())
    optimizer = torch.optim.SGD([{"params": [model.weight], "lr": 0.5}, {"params": [model.bias]}], 0.1)
    average.update_parameters(model)
    model(torch.ones(1, 2, device=DEVICE)).sum().backward()
    optimizer.step()
    average.update_parameters(model)
    same(average.module.weight, (before - 0.25).cpu())
    same(model.bias.detach() - 0, (model.bias.detach()).cpu())
    optimizer.zero_grad()
    assert model.weight.grad is None


def test_gradient_scaler():
    scaler = torch.amp.GradScaler(DEVICE, init_scale=8.0, enabled=True)
    p = nn.Parameter(torch.ones(2, device=DEVICE))
    optimizer = torch.optim.SGD([p], 0.5)
    scaler.scale((p * 2).sum()).backward()
    same(p.grad, torch.full((2,), 16.0))
    scaler.step(optimizer)
    scaler.update()
    same(p, torch.zeros(2))
