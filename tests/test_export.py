"""Exported programs: what `tpu-run`, without Python and PyTorch, computes from them is what PyTorch computes on the CPU."""

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from helpers import MANY_SIZES, ON_CPU
from torch import nn

from torch_tpu.export import ExportError

RUN = shutil.which("tpu-run") or str(Path(sys.executable).with_name("tpu-run"))
pytestmark = [
    pytest.mark.skipif(ON_CPU, reason="programs of the device"),
    pytest.mark.skipif(not Path(RUN).exists(), reason="tpu-run is not installed"),
]


def run(artefact, *arguments, check=True):
    done = subprocess.run(
        [RUN, str(artefact), "--plugin", torch.tpu.plugin_path(), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done


def outputs(artefact, folder, inputs, *arguments):
    """What one call of tpu-run gives for named tensors."""
    safetensors.torch.save_file(inputs, folder / "inputs.safetensors")
    run(artefact, "--input", folder / "inputs.safetensors", "--output", folder / "out.safetensors", *arguments)
    return safetensors.torch.load_file(folder / "out.safetensors")


def manifest(artefact):
    return json.loads((artefact / "manifest.json").read_text())


def roles(values, role):
    return [v[role] for v in values if role in v]


# ---- models ----


def test_mlp_through_npy(tmp_path):
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4), nn.Softmax(-1))
    x = torch.randn(5, 16)
    artefact = torch.tpu.export(torch.export.export(model, (x,)), tmp_path / "mlp")
    np.save(tmp_path / "x.npy", x.numpy())
    done = run(artefact, "--input", f"input={tmp_path / 'x.npy'}", "--output", tmp_path / "y.npy", "--repeat", 3)
    torch.testing.assert_close(torch.from_numpy(np.load(tmp_path / "y.npy")), model(x).detach())
    assert "3 calls: first" in done.stdout and "output: float32[5, 4] = " in done.stdout


def test_convolutions_with_batch_norm(tmp_path):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3, bias=False),
        nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
    )  # fmt: skip
    model(torch.randn(8, 3, 12, 12))  # running statistics that are not those of a new module
    model.eval()
    x = torch.randn(2, 3, 12, 12)
    artefact = torch.tpu.export(model, (x,), tmp_path / "net")
    torch.testing.assert_close(outputs(artefact, tmp_path, {"input": x})["output"], model(x).detach())
    assert "1.num_batches_tracked" not in [s["name"] for s in manifest(artefact)["state"]]  # nothing reads it


def test_transformer_from_a_configuration(tmp_path):
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(64, (2, 9))
    program = torch.export.export(model, (), {"input_ids": ids, "use_cache": False}, strict=False)
    artefact = torch.tpu.export(program, tmp_path / "llama")
    got = outputs(artefact, tmp_path, {"input_ids": ids})
    torch.testing.assert_close(got["logits"], model(ids).logits.detach(), rtol=1e-4, atol=1e-5)
    states = [s["name"] for s in manifest(artefact)["state"]]
    assert ("lm_head.weight" in states) != ("model.embed_tokens.weight" in states)  # tied: written once


# ---- state, sizes, structure ----


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("steps", torch.tensor(0), persistent=False)

    def forward(self, x):
        self.seen.add_(x)
        self.steps += 1
        return {"total": self.seen * 2, "pair": (x + 1, self.steps)}


def test_buffers_that_are_written_are_state_of_the_next_call(tmp_path):
    x = torch.tensor([1.0, 2.0, 3.0])
    artefact = torch.tpu.export(Counter(), (x,), tmp_path / "counter")
    got = outputs(artefact, tmp_path, {"x": x}, "--repeat", 4, "--save-state", tmp_path / "state.safetensors")
    assert got["total"].tolist() == [8, 16, 24] and got["pair.0"].tolist() == [2, 3, 4] and got["pair.1"].item() == 4
    state = safetensors.torch.load_file(tmp_path / "state.safetensors")
    assert state["seen"].tolist() == [4, 8, 12] and state["steps"].item() == 4
    assert "tf.aliasing_output" in (artefact / "program.mlir").read_text()  # updated where it is


def test_an_input_that_is_written_is_given_back(tmp_path):
    class Fill(nn.Module):
        def forward(self, x):
            x.mul_(2)
            return x.sum()

    x = torch.tensor([1.0, 2.0])
    artefact = torch.tpu.export(Fill(), (x.clone(),), tmp_path / "fill")
    got = outputs(artefact, tmp_path, {"x": x})
    assert got["x"].tolist() == [2, 4] and got["output"].item() == 6


def test_dynamic_batch_is_a_program_for_each_size(tmp_path):
    model = nn.Linear(4, 2)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (torch.randn(3, 4),), dynamic_shapes=({0: batch},))
    with pytest.raises(ExportError, match=r"dynamic dimensions .* in \[1, 64\].*sizes=\["):
        torch.tpu.export(program, tmp_path / "net")
    with pytest.raises(ValueError, match="65 is outside"):
        torch.tpu.export(program, tmp_path / "net", sizes=[65])
    artefact = torch.tpu.export(program, tmp_path / "net", sizes=[1, 8])
    for n in (1, 8):
        x = torch.randn(n, 4)
        torch.testing.assert_close(outputs(artefact, tmp_path, {"input": x})["output"], model(x).detach())
    safetensors.torch.save_file({"input": torch.randn(5, 4)}, tmp_path / "five.safetensors")
    done = run(artefact, "--input", tmp_path / "five.safetensors", check=False)
    assert done.returncode == 1
    assert "none of the 2 programs fits" in done.stderr and done.stderr.count("float32[5, 4]") == 2
    assert run(artefact, "--input", tmp_path / "five.npy", check=False).returncode == 2


def test_dropout_in_training_draws_from_the_seed(tmp_path):
    x = torch.ones(1000)
    artefact = torch.tpu.export(nn.Dropout(0.25).train(), (x,), tmp_path / "dropout")
    first, again, other = (
        outputs(artefact, tmp_path, {"input": x}, "--seed", seed)["output"].tolist() for seed in (1, 1, 2)
    )
    assert first == again != other
    assert 650 < sum(v != 0 for v in first) < 850


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.bool, torch.complex64]
)
def test_dtypes(tmp_path, dtype):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("row", torch.tensor([1, 0, 3]).to(dtype))

        def forward(self, x):
            return torch.where(x == self.row, self.row, x)

    x = torch.tensor([[1, 2, 3], [0, 0, 1]]).to(dtype)
    artefact = torch.tpu.export(Twice(), (x,), tmp_path / "twice")
    assert torch.equal(outputs(artefact, tmp_path, {"x": x})["output"], Twice()(x))


def test_weights_of_a_model_on_the_device(tmp_path):
    model = nn.Linear(3, 2)
    x = torch.randn(2, 3)
    want = model(x).detach()
    artefact = torch.tpu.export(model.to("tpu"), (x.to("tpu"),), tmp_path / "net")
    torch.testing.assert_close(outputs(artefact, tmp_path, {"input": x})["output"], want)


def test_an_artefact_is_written_over_and_nothing_else(tmp_path):
    torch.tpu.export(nn.Linear(3, 2), (torch.randn(1, 3),), tmp_path / "net")
    torch.tpu.export(nn.Linear(5, 2), (torch.randn(1, 5),), tmp_path / "net")
    assert manifest(tmp_path / "net")["programs"][0]["parameters"][-1] == {
        "input": "input", "dtype": "float32", "shape": [1, 5],
    }  # fmt: skip
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="no artefact"):
        torch.tpu.export(nn.Linear(3, 2), (torch.randn(1, 3),), tmp_path / "other")


# ---- what cannot be ----


@pytest.fixture(scope="module")
def programs():
    batch = ({0: torch.export.Dim("batch", max=8)},)
    return {
        "module": nn.Linear(3, 2),
        "fixed": torch.export.export(nn.Linear(3, 2), (torch.randn(1, 3),)),
        "dynamic": torch.export.export(nn.Linear(3, 2), (torch.randn(4, 3),), dynamic_shapes=batch),
    }


x = torch.zeros(1, 3)


@pytest.mark.parametrize(
    ("model", "arguments", "options", "error", "told"),
    [
        ("fixed", (), {}, TypeError, "no path"),
        ("fixed", ("net", "other"), {}, TypeError, "args must be a tuple of arguments, as .x,., not a second path"),
        ("fixed", (3,), {}, TypeError, "args must be a tuple of arguments, .* or the path, not int"),
        ("fixed", (b"net",), {}, TypeError, "args must be .* not bytes"),
        ("fixed", ((), 3), {}, TypeError, "path must be .* a path, not int"),
        ("fixed", ((x,), "net"), {}, TypeError, "exported already"),
        ("fixed", ("net",), {"kwargs": {"input": x}}, TypeError, "exported already"),
        (lambda x: x, ((x,), "net"), {}, TypeError, "model must be an ExportedProgram or a Module, not function"),
        ("module", (x, "net"), {}, TypeError, "args must be .* not Tensor"),
        ("module", (None, "net"), {}, TypeError, "args must be .* not NoneType"),
        ("module", ((x,), "net"), {"kwargs": 3}, TypeError, "kwargs must be None or a dict of arguments by name, not int"),
        ("module", ((), "net"), {"kwargs": {3: x}}, ValueError, "kwargs must be"),
        ("module", ((x,), "net"), {"dynamic_shapes": 3}, TypeError, "dynamic_shapes must be None or a dict, tuple or list"),
        ("fixed", ("net",), {"sizes": [1]}, ValueError, "no dynamic dimension"),
        ("dynamic", ("net",), {"sizes": 3}, TypeError, "sizes must be None or a list .*, not int"),
        ("dynamic", ("net",), {"sizes": "12"}, TypeError, "sizes must be .* not str"),
        ("dynamic", ("net",), {"sizes": {"s77": 1}}, TypeError, "sizes must be .* not dict"),
        ("dynamic", ("net",), {"sizes": [1.5]}, TypeError, "an entry of sizes must be a size, .* not 1.5"),
        ("dynamic", ("net",), {"sizes": [True]}, TypeError, "an entry of sizes must be"),
        ("dynamic", ("net",), {"sizes": [{"s77": "x"}]}, TypeError, "an entry of sizes must be"),
        ("dynamic", ("net",), {"sizes": [9]}, ValueError, "= 9 is outside of what was exported"),
        ("dynamic", ("net",), {"sizes": [{"height": 1}]}, ValueError, "sizes for height, the program has"),
    ],
)  # fmt: skip
def test_calls_that_make_no_sense(programs, tmp_path, monkeypatch, model, arguments, options, error, told):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match="(?s)torch.tpu.export.*" + told):
        torch.tpu.export(programs.get(model, model), *arguments, **options)
    assert list(tmp_path.iterdir()) == []


def test_weights_without_values(tmp_path):
    with torch.device("meta"):
        empty = nn.Linear(3, 2)
    with pytest.raises(ExportError, match="has no values"):
        torch.tpu.export(empty, (torch.randn(1, 3, device="meta"),), tmp_path / "net")


def test_a_call_that_fails_leaves_the_artefact_that_is_there(programs, tmp_path):
    torch.tpu.export(programs["fixed"], tmp_path / "net")
    before = {p.name: p.read_bytes() for p in (tmp_path / "net").iterdir()}
    with pytest.raises(ExportError):
        torch.tpu.export(programs["dynamic"], tmp_path / "net")
    assert {p.name: p.read_bytes() for p in (tmp_path / "net").iterdir()} == before


def test_nothing_warns(programs, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", MANY_SIZES)
        torch.tpu.export(programs["fixed"], tmp_path / "fixed")
        torch.tpu.export(programs["dynamic"], tmp_path / "dynamic", sizes=[np.int64(1), 8])


def test_an_operator_without_a_lowering_is_named_with_its_line(tmp_path):
    class Nonzero(nn.Module):
        def forward(self, x):
            return torch.nonzero(x)

    with pytest.raises(ExportError, match="(?s)nonzero.*return torch.nonzero"):
        torch.tpu.export(Nonzero(), (torch.ones(3),), tmp_path / "net")


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    folder = tmp_path_factory.mktemp("linear")
    torch.tpu.export(nn.Linear(3, 2), (torch.randn(1, 3),), folder / "net")
    return folder / "net"


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((1, 4), np.float32), "input is float32[1, 4], the program takes float32[1, 3]"),
        (np.zeros((1, 3), np.int64), "input is int64[1, 3], the program takes float32[1, 3]"),
        (np.zeros((1, 3), ">f4"), "big-endian"),
        (np.zeros(3, [("a", "<f4")]), "structured array"),
    ],
)
def test_inputs_that_do_not_fit(linear, tmp_path, array, says):
    np.save(tmp_path / "x.npy", array)
    done = run(linear, "--input", f"input={tmp_path / 'x.npy'}", check=False)
    assert done.returncode == 1 and says in done.stderr


def test_fortran_order(linear, tmp_path):
    class Flip(nn.Module):
        def forward(self, x):
            return x.transpose(0, 2) + 0

    x = np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))
    artefact = torch.tpu.export(Flip(), (torch.from_numpy(x),), tmp_path / "flip")
    np.save(tmp_path / "x.npy", x)
    run(artefact, "--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / "y.npy")
    assert np.array_equal(np.load(tmp_path / "y.npy"), x.transpose(2, 1, 0))


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--input", "input=/nowhere.npy"], 1, "/nowhere.npy: No such file"),
        ([], 1, "input input is missing"),
        (["--zeros", "--output", "other=x.npy"], 1, "no output other"),
        (["--zeros", "--device", "99"], 1, "there is no device 99"),
        (["--zeros", "--program", "1"], 1, "there is no program 1"),
        (["--zeros", "--plugin", "/nowhere.so"], 1, "/nowhere.so"),
        (["--repeat", "0"], 2, "expected a whole number from 1"),
        (["--repeat", "9" * 20], 2, "expected a whole number from 1"),
        (["--frobnicate"], 2, "unrecognized option"),
    ],
)
def test_command_lines_that_make_no_sense(linear, tmp_path, arguments, status, says):
    done = run(linear, *arguments, check=False)
    assert done.returncode == status and says in done.stderr


def test_zeros_and_list(linear):
    assert "output: float32[1, 2] = " in run(linear, "--zeros").stdout
    listed = run(linear, "--list").stdout
    assert "input   input: float32[1, 3]" in listed and "output  output: float32[1, 2]" in listed
