"""Saving and loading, both ways, with and without the package."""

import io
import pickle

import pytest
import torch
from helpers import DEVICE, ON_CPU, child_output, same, up


@pytest.fixture
def content():
    t = torch.arange(12.0, device=DEVICE).view(3, 4)
    return {
        "whole": t, "row": t[1], "column": t[:, 1:3], "half": t.bfloat16(), "complex": torch.complex(t, t), "flags": t > 3, "empty": t[:0], "scalar": t.sum(),
        "parameter": torch.nn.Parameter(t.clone()), "nested": [t.int(), {"x": t.long()}],
    }  # fmt: skip


def check(loaded, content, device):
    assert loaded["whole"].device.type == device
    for name in ("whole", "row", "column", "half", "complex", "flags", "empty", "scalar", "parameter"):
        assert torch.equal(loaded[name].cpu(), content[name].cpu()) and loaded[name].dtype == content[name].dtype, name
    assert torch.equal(loaded["nested"][0].cpu(), content["nested"][0].cpu())
    loaded["whole"].fill_(-1)
    assert loaded["row"].tolist() == [-1] * 4 and loaded["column"][0].tolist() == [-1, -1], (
        "views share what they shared"
    )


@pytest.mark.parametrize("location", [None, "cpu", DEVICE, f"{DEVICE}:0", torch.device(DEVICE)], ids=str)
@pytest.mark.parametrize("weights_only", [True, False])
def test_load_to(content, location, weights_only):
    if ON_CPU and location == "cpu:0":
        pytest.skip("not a place that checkpoints name")
    buffer = io.BytesIO()
    torch.save(content, buffer)
    buffer.seek(0)
    check(
        torch.load(buffer, map_location=location, weights_only=weights_only),
        content,
        "cpu" if location == "cpu" else DEVICE,
    )


def test_load_with_mapping_and_mmap(content, tmp_path):
    path = tmp_path / "content.pt"
    torch.save(content, path)
    check(
        torch.load(path, map_location={f"{DEVICE}:0": "cpu"}, weights_only=True)
        if not ON_CPU
        else torch.load(path, weights_only=True),
        content,
        "cpu",
    )
    check(torch.load(path, map_location=lambda storage, place: storage, weights_only=True), content, "cpu")
    check(torch.load(path, map_location=DEVICE, mmap=True, weights_only=True), content, DEVICE)


def test_cpu_checkpoint_onto_device(tmp_path):
    torch.save({"w": torch.arange(4.0)}, tmp_path / "w.pt")
    same(torch.load(tmp_path / "w.pt", map_location=DEVICE, weights_only=True)["w"], torch.arange(4.0))
    with torch.device(DEVICE):
        assert torch.load(tmp_path / "w.pt", weights_only=True)["w"].tolist() == [0, 1, 2, 3]


def test_legacy_format(content, tmp_path):
    torch.save(content["whole"], tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    same(torch.load(tmp_path / "old.pt", map_location=DEVICE, weights_only=True), content["whole"].cpu())


def test_pickle(content):
    same(pickle.loads(pickle.dumps(content["column"])), content["column"].cpu())
    model = torch.nn.Linear(2, 2).to(DEVICE)
    twin = pickle.loads(pickle.dumps(model))
    assert twin.weight.device.type == DEVICE and torch.equal(twin.weight, model.weight)


def test_checkpoint_opens_without_the_package(tmp_path):
    model = torch.nn.Linear(3, 2).to(DEVICE)
    torch.save({"w": model.state_dict(), "v": torch.arange(6, device=DEVICE)[2:]}, tmp_path / "m.pt")
    code = f"""
import torch
d = torch.load({str(tmp_path / "m.pt")!r}, map_location="cpu", weights_only=True)
print(d["v"].tolist(), d["w"]["weight"].device, type(d["w"]["weight"]).__name__)
"""
    assert child_output(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "[2, 3, 4, 5] cpu Tensor"


def test_optimizer_state(tmp_path):
    model = torch.nn.Linear(3, 2).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    model(torch.rand(4, 3, device=DEVICE)).sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "o.pt")
    for location in ("cpu", DEVICE):
        twin = torch.optim.AdamW(model.parameters(), 0.01)
        twin.load_state_dict(torch.load(tmp_path / "o.pt", map_location=location, weights_only=True))
        state = twin.state[model.weight]
        assert state["exp_avg"].device.type == DEVICE and torch.equal(
            state["exp_avg"], optimizer.state[model.weight]["exp_avg"]
        )


def test_safetensors(tmp_path):
    from safetensors.torch import load_file, load_model, save_file, save_model

    tensors = {"a": up(torch.rand(2, 3)), "b": up(torch.arange(4)), "c": up(torch.rand(2).bfloat16())}
    save_file(tensors, tmp_path / "x.safetensors")
    loaded = load_file(tmp_path / "x.safetensors")
    assert all(torch.equal(loaded[k], v.cpu()) for k, v in tensors.items())
    tied = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3, bias=False), "b": torch.nn.Linear(3, 3, bias=False)})
    tied["b"].weight = tied["a"].weight
    tied.to(DEVICE)
    save_model(tied, str(tmp_path / "tied.safetensors"))
    assert len(load_file(tmp_path / "tied.safetensors")) == 1
    want = tied["a"].weight.cpu().clone()
    with torch.no_grad():
        tied["a"].weight.zero_()
    load_model(tied, str(tmp_path / "tied.safetensors"))
    same(tied["b"].weight, want)


def test_sharing_with_a_shallow_copy():
    t = torch.arange(4.0, device=DEVICE)
    u = torch.tensor([], device=DEVICE).set_(t.untyped_storage(), 0, (2, 2), (2, 1))
    t.add_(1)
    same(u, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert t.untyped_storage().device.type == DEVICE and len(t.untyped_storage()) == 16
    same(
        torch.tensor(t.untyped_storage().cpu().tolist(), dtype=torch.uint8).view(torch.float32).to(DEVICE),
        torch.arange(1.0, 5),
    )


@pytest.mark.skipif(ON_CPU, reason="tensors of the device")
def test_a_tensor_for_another_process_is_copied_to_the_cpu_first():
    """docs/troubleshooting.md has the message."""
    from multiprocessing.reduction import ForkingPickler
    from pathlib import Path

    page = (Path(__file__).parents[1] / "docs" / "troubleshooting.md").read_text()
    x = torch.ones(3, device=DEVICE)
    for value in (x, [x], {"x": x}, torch.nn.Linear(2, 2).to(DEVICE)):
        with pytest.raises(RuntimeError) as caught:
            ForkingPickler.dumps(value)
        assert f"**`{caught.value}`**" in page
