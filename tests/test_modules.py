"""Modules on the device: moving, ties, copies, state dictionaries."""

import copy
import gc
import weakref

import pytest
import torch
from helpers import DEVICE, ON_CPU, same, up
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, ids):
        return self.head(self.embedding(ids)) * self.scale


def test_moving_keeps_identity_and_ties():
    model = Tied()
    before = dict(model.named_parameters())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert model.to(DEVICE) is model
    after = dict(model.named_parameters())
    assert before.keys() == after.keys() and all(before[k] is after[k] for k in before)
    assert model.head.weight is model.embedding.weight and len(list(model.parameters())) == 1
    assert model.scale.device.type == DEVICE and model.scratch.device.type == DEVICE
    model(torch.tensor([1, 2], device=DEVICE)).sum().backward()
    old = model.head.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(model.embedding.weight, old)
    assert torch.equal(model.embedding.weight, model.head.weight)


def test_moving_there_and_back():
    model = nn.Linear(3, 2)
    weight, values = model.weight, model.weight.detach().clone()
    model.weight.grad = torch.ones(2, 3)
    model.to(DEVICE)
    assert (
        weight is model.weight
        and weight.device.type == DEVICE
        and weight.grad.device.type == DEVICE
        and weight.is_leaf
        and weight.requires_grad
    )
    model.to("cpu")
    assert (
        weight is model.weight
        and weight.device.type == "cpu"
        and weight.grad.device.type == "cpu"
        and torch.equal(weight, values)
    )


def test_moving_to_a_dtype():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(DEVICE, torch.bfloat16)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16} and model[
        1
    ].num_batches_tracked.dtype == torch.int64
    assert model.float()[0].weight.dtype == torch.float32 and model.double().half()[0].weight.device.type == DEVICE


def test_moving_leaves_other_moves_alone():
    before = torch.__future__.get_swap_module_params_on_conversion()
    nn.Linear(2, 2).to(DEVICE)
    assert torch.__future__.get_swap_module_params_on_conversion() == before
    model = nn.Linear(2, 2)
    reference = weakref.ref(model.weight)
    model.to(torch.float64)
    assert reference() is model.weight


def test_views_of_a_parameter_survive_a_move():
    model = nn.Linear(3, 2)
    view = model.weight[0]
    try:
        model.to(DEVICE)
    except RuntimeError:
        return  # refusing is as good as keeping; a broken tensor is not
    assert view.shape == (3,) and model.weight.device.type == DEVICE


def test_frozen_and_shared_parameters():
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    model.to(DEVICE)
    assert model[1].weight is model[0].weight and not model[0].bias.requires_grad and model[1].bias.requires_grad


def test_meta_and_to_empty():
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    model.to_empty(device=DEVICE)
    assert model.weight.device.type == DEVICE
    model.load_state_dict({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
    same(model.weight, torch.ones(2, 3))
    model = nn.Linear(3, 2, device="meta")
    model.load_state_dict(
        {"weight": torch.ones(2, 3, device=DEVICE), "bias": torch.zeros(2, device=DEVICE)}, assign=True
    )
    assert model.weight.device.type == DEVICE


def test_deepcopy():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(DEVICE)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[0].weight.zero_()
    assert model[0].weight.cpu().abs().sum() > 0 and twin[0].weight.device.type == DEVICE
    base = torch.arange(12.0, device=DEVICE).view(3, 4)
    a, b = copy.deepcopy([base, base.t()])
    a.add_(100)
    assert torch.equal(b.cpu(), a.cpu().t())
    same(base, torch.arange(12.0).view(3, 4))
    same(copy.copy(base), torch.arange(12.0).view(3, 4))
    tied = copy.deepcopy(Tied().to(DEVICE))
    assert tied.head.weight is tied.embedding.weight
    x = up(torch.rand(3)).requires_grad_()
    x.sum().backward()
    same(copy.deepcopy(x).grad, torch.ones(3))


def test_state_dict():
    model, twin = (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)) for _ in range(2))
    model.to(DEVICE)
    model(torch.rand(5, 3, device=DEVICE))
    state = model.state_dict()
    assert all(v.device.type == DEVICE for v in state.values())
    twin.load_state_dict(state)
    assert all(torch.equal(v, state[k].cpu()) for k, v in twin.state_dict().items())
    twin.to(DEVICE).load_state_dict({k: v.cpu() for k, v in state.items()})
    with pytest.raises(RuntimeError, match="size mismatch"):
        twin[0].load_state_dict({"weight": torch.ones(2, 2), "bias": torch.ones(4)})


def test_batch_norm_statistics():
    x = torch.rand(6, 3, 4, 4)
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(1)
        model = nn.BatchNorm2d(3).to(device)
        for i in range(3):
            model(x.to(device) * (i + 1))
        results.append(
            [model.running_mean, model.running_var, model.num_batches_tracked, model.eval()(x.to(device)).detach()]
        )
    same(results[1], results[0])


def test_hooks_and_parametrisations():
    model = nn.Linear(3, 3).to(DEVICE)
    seen = []
    model.register_forward_hook(lambda m, a, out: seen.append(out.device.type))
    model.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].device.type))
    model(torch.rand(2, 3, device=DEVICE, requires_grad=True)).sum().backward()
    assert seen == [DEVICE, DEVICE]
    torch.nn.utils.parametrizations.weight_norm(model)
    torch.nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3).to(DEVICE))(torch.rand(2, 3, device=DEVICE))
    assert model(torch.rand(2, 3, device=DEVICE)).shape == (2, 3)


@pytest.mark.skipif(ON_CPU, reason="memory of the device")
def test_memory_is_given_back():
    module = torch.get_device_module(DEVICE)
    gc.collect()
    module.synchronize()
    before = module.memory_allocated()
    model = nn.Linear(256, 256).to(DEVICE)
    model(torch.rand(4, 256, device=DEVICE)).sum().backward()
    module.synchronize()
    assert module.memory_allocated() - before >= 2 * 256 * 256 * 4
    del model
    gc.collect()
    module.synchronize()
    assert module.memory_allocated() - before < 256 * 256 * 4


@pytest.mark.filterwarnings(
    "ignore:Converting mask:UserWarning", "ignore:The PyTorch API of nested tensors:UserWarning"
)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masked", ["", "padding", "causal", "both"])
def test_attention_modules_in_inference(batch_first, norm_first, masked):
    """Without gradients these modules call operators of their own, which no other module does."""
    torch.manual_seed(0)
    x = torch.randn(2, 5, 16) if batch_first else torch.randn(5, 2, 16)
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[0, 3:] = True
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    padding, causal = (
        padding if masked in ("padding", "both") else None,
        causal if masked in ("causal", "both") else None,
    )
    layer = nn.TransformerEncoderLayer(
        16, 2, 32, batch_first=batch_first, norm_first=norm_first, activation="gelu" if norm_first else "relu"
    )
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first and batch_first)
    attention = nn.MultiheadAttention(16, 4, batch_first=batch_first)
    on_cpu = 0 if ON_CPU else torch.tpu.diagnostics()["cpu_fallbacks"]
    with torch.no_grad():
        modules = [m.eval() for m in (encoder, layer, attention)]
        for one in (False, True):
            want = [modules[0](x, src_key_padding_mask=padding, mask=causal), modules[1](x, src_mask=causal)]
            want += modules[2](x, x, x, key_padding_mask=padding, attn_mask=causal, average_attn_weights=one)
            x_, padding_, causal_ = up([x, padding, causal])
            on_device = [copy.deepcopy(m).to(DEVICE) for m in modules]
            got = [on_device[0](x_, src_key_padding_mask=padding_, mask=causal_), on_device[1](x_, src_mask=causal_)]
            got += on_device[2](x_, x_, x_, key_padding_mask=padding_, attn_mask=causal_, average_attn_weights=one)
            assert ON_CPU or torch.tpu.diagnostics()["cpu_fallbacks"] == on_cpu
            same(got, want, "encoder, layer and attention", rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("mask_check", [True, False])
def test_encoder_zeroes_what_is_padded(mask_check):
    """In evaluation, without gradients. Masks whose padding is not at the end are another path, unless nobody checks."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, mask_check=mask_check).eval()
    on_device = copy.deepcopy(encoder).to(DEVICE)
    x = torch.randn(4, 6, 8)
    padded = [torch.arange(6) >= torch.tensor(n)[:, None] for n in ([6, 3, 1, 0], [2, 2, 2, 2], [6, 6, 6, 6])]
    padded.append(padded[0].flip(1))
    padded.append(torch.ones(4, 6, dtype=torch.bool))
    programs = []
    for mask in padded:
        outcomes = []
        for module, device in ((encoder, "cpu"), (on_device, DEVICE)):
            try:
                with torch.inference_mode():
                    outcomes.append(module(x.to(device), src_key_padding_mask=mask.to(device)).cpu())
            except RuntimeError as error:
                outcomes.append(str(error))
        if isinstance(outcomes[0], str):
            assert outcomes[1] == outcomes[0]
        else:
            torch.testing.assert_close(outcomes[1], outcomes[0], rtol=1e-4, atol=1e-5, equal_nan=True)
        programs.append(0 if ON_CPU else torch.tpu.diagnostics()["entries"])
    assert programs[1] == programs[0] or ON_CPU  # lengths are no part of a program
