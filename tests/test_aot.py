"""Compiling for TPUs that are not attached: the programs, what the compiler says of them, and what goes wrong."""

import importlib.util
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import ON_CPU

from torch_tpu import _cli
from torch_tpu._trace import trace
from torch_tpu.tpu import aot

pytestmark = [
    pytest.mark.skipif(ON_CPU, reason="programs of the device"),
    pytest.mark.xdist_group("aot"),
    pytest.mark.timeout(600),
]
needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(256, 512, bias=False)
        self.second = torch.nn.Linear(512, 256, bias=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int32))

    def forward(self, x):
        self.calls += 1
        return self.second(self.first(x).relu())


def on_meta(dtype=torch.bfloat16):
    with torch.device("meta"):
        return Net().to(dtype), torch.empty(128, 256, dtype=dtype)


# ---- topologies ----


def test_a_topology_is_chips_and_devices():
    assert aot.check_topology("v5e:2x2") == {
        "generation": "v5e",
        "device_kind": "TPU v5 lite",
        "chips": 4,
        "devices": 4,
    }
    assert aot.check_topology("tpu7x:2x2x1") == {
        "generation": "tpu7x",
        "device_kind": "TPU7x",
        "chips": 4,
        "devices": 8,
    }


@pytest.mark.parametrize(
    "name, told",
    [("v5e:3x3", "8x16"), ("v6e:64x64", "16x16"), ("v7:1x1", "tpu7x"), ("", "v5e"), ("v5e:0x1", "1x1"), (None, "v4")],
)
def test_topologies_that_do_not_exist_name_those_that_do(name, told):
    net, x = on_meta()
    with pytest.raises(ValueError, match=told):
        aot.compile(net, (x,), topology=name)


def test_every_generation_cites_its_source():
    table = aot.topologies()
    assert [g["name"] for g in table] == ["v4", "v5e", "v5p", "v6e", "tpu7x"]
    assert all(g["source"].startswith("https://") and g["bf16_flops"] > 1e14 for g in table)


# ---- what is traced ----


def test_writes_are_donated_and_everything_else_is_a_result():
    net, x = on_meta()
    traced = trace(net, (x,), {})
    assert [g[1] for g in traced.inputs] == [(512, 256), (256, 512), (), (128, 256)]
    assert traced.results == [("bfloat16", (128, 256), (256, 1), 0, False, False), 2]


def test_nodes_know_their_line_and_gradients_that_of_their_forward():
    net, x = on_meta()
    line = Net.forward.__code__.co_firstlineno + 2
    traced = trace(net, (x,), {}, train=True, loss=lambda out: out.float().sum())
    products = [(s.line.rpartition(":")[2], s.backward) for s in traced.sources if s.operator == "aten::mm"]
    assert products.count((str(line), False)) >= 2 and products.count((str(line), True)) >= 3


def test_a_step_updates_parameters_and_optimizer_state_in_place():
    net, x = on_meta(torch.float32)
    traced = trace(
        net, (x,), {}, train=True, loss=lambda out: out.sum(), optimizer=lambda p: torch.optim.AdamW(p, fused=True)
    )
    written = [r for r in traced.results if isinstance(r, int)]
    assert len(traced.inputs) == 4 + 3 * 2  # step count and two moments a parameter
    assert written == [0, 1, 2, *range(4, 10)]


def test_a_traced_step_computes_what_pytorch_computes():
    """The traced graph, run on this device as one operator, against the same step on the CPU."""
    from torch_tpu import _C

    torch.manual_seed(0)
    net, x = Net(), torch.randn(4, 256)
    traced = trace(
        net, (x,), {}, train=True, loss=lambda out: out.square().mean(), optimizer=lambda p: torch.optim.SGD(p, lr=0.5)
    )
    outputs = [(1, k, None) for k, r in enumerate(traced.results) if not isinstance(r, int)]
    operator = _C.graph_operator(traced.graph, list(range(len(traced.inputs))), [], traced.results, outputs)
    arguments = [t.detach().to("tpu", copy=True) for t in (net.first.weight, net.second.weight, net.calls, x)]
    (loss,) = operator(list(arguments))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    want = net(x).square().mean()
    want.backward()
    optimizer.step()
    torch.testing.assert_close(loss.cpu(), want.detach())
    torch.testing.assert_close(arguments[0].cpu(), net.first.weight.detach())
    torch.testing.assert_close(arguments[1].cpu(), net.second.weight.detach())
    assert arguments[2].item() == 1


# ---- what the compiler says ----


@needs_libtpu
def test_inference_program():
    net, x = on_meta()
    made = aot.compile(net, (x,), topology="v5e:2x2")
    weights, batch = 2 * 256 * 512 * 2, 128 * 256 * 2
    assert (made.device_kind, made.chips, made.devices) == ("TPU v5 lite", 4, 4)
    assert weights + batch <= made.memory.arguments < weights + batch + 8192
    assert batch <= made.memory.outputs < batch + 8192 and made.memory.fits
    assert 2 * 2 * 128 * 256 * 512 <= made.flops < 2.2 * 2 * 128 * 256 * 512
    assert 0 < made.seconds < 1e-3 and 0 < made.mfu < 1
    assert "stablehlo.dot_general" in made.stablehlo and "ENTRY" in made.optimized_hlo and len(made.executable) > 10000
    assert made.operations[0].operator == "aten::mm" and "test_aot.py" in made.operations[0].line
    assert json.loads(json.dumps(made.to_dict()))["memory"]["peak"] == made.memory.peak
    assert "TPU v5 lite" in str(made)


@needs_libtpu
def test_training_step_reuses_its_parameters_memory():
    net, x = on_meta()
    made = aot.compile(
        net,
        (x,),
        topology="v6e:1x1",
        train=True,
        loss=lambda out: out.float().square().mean(),
        optimizer=lambda p: torch.optim.AdamW(p, fused=True),
    )
    assert made.memory.aliased >= 3 * 2 * 256 * 512 * 2
    assert any(op.backward for op in made.operations)


@needs_libtpu
def test_a_loop_counts_as_often_as_it_runs():
    text = """module @m { func.func public @main(%x: tensor<512x512xbf16>) -> tensor<512x512xbf16> {
 %c = stablehlo.constant dense<0> : tensor<i32>
 %r:2 = stablehlo.while(%i = %c, %a = %x) : tensor<i32>, tensor<512x512xbf16>
 cond { %n = stablehlo.constant dense<TRIPS> : tensor<i32>
  %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %p : tensor<i1> }
 do { %one = stablehlo.constant dense<1> : tensor<i32>
  %j = stablehlo.add %i, %one : tensor<i32>
  %d = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<512x512xbf16>, tensor<512x512xbf16>) -> tensor<512x512xbf16>
  stablehlo.return %j, %d : tensor<i32>, tensor<512x512xbf16> }
 func.return %r#1 : tensor<512x512xbf16> } }"""
    few = aot.compile_text(text.replace("TRIPS", "100"), "v5e:1x1")
    many = aot.compile_text(text.replace("TRIPS", "1000"), "v5e:1x1")
    assert few.operations[0].runs == 100 and many.operations[0].runs == 1000
    assert 8 < many.seconds / few.seconds < 10.5


@needs_libtpu
def test_what_does_not_fit_says_by_how_much():
    with torch.device("meta"):
        net, x = (
            torch.nn.Linear(65536, 262144, bias=False).to(torch.bfloat16),
            torch.empty(8, 65536, dtype=torch.bfloat16),
        )
    with pytest.raises(aot.DoesNotFit, match="(?i)hbm") as caught:
        aot.compile(net, (x,), topology="v5e:1x1")
    assert isinstance(caught.value, torch.OutOfMemoryError)
    assert caught.value.needed >= 32 << 30 and 15 << 30 < caught.value.hbm < 16 << 30


# ---- a compiler that fails ----


def fake_compiler(tmp_path, monkeypatch, body):
    path = tmp_path / "compiler"
    path.write_text(
        f'#!/bin/sh\n[ $1 = check ] && {{ echo \'{{"generation": "v5e", "chips": 1, "devices": 1}}\'; exit; }}\n{body}\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(aot, "_compiler", lambda: str(path))
    monkeypatch.setattr(aot, "_libtpu", lambda: "libtpu.so")


def test_a_process_that_ends_is_an_exception_with_its_last_words(tmp_path, monkeypatch):
    fake_compiler(tmp_path, monkeypatch, "echo 'Check failed: 1 == 2' >&2; kill -ABRT $$")
    with pytest.raises(aot.AheadOfTimeError, match=r"signal 6(.|\n)*Check failed: 1 == 2"):
        aot.compile_text("module {}", "v5e:1x1")


def test_a_process_that_hangs_is_ended(tmp_path, monkeypatch):
    fake_compiler(tmp_path, monkeypatch, "echo $$ > " + str(tmp_path / "pid") + "; echo waiting >&2; exec sleep 1000")
    with pytest.raises(aot.AheadOfTimeError, match=r"more than 1 s(.|\n)*waiting"):
        aot.compile_text("module {}", "v5e:1x1", time_limit=1)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@needs_libtpu
def test_a_program_that_the_compiler_refuses(tmp_path):
    with pytest.raises(aot.AheadOfTimeError, match="v5e:1x1"):
        aot.compile_text("module { this is no program }", "v5e:1x1")


@needs_libtpu
def test_an_option_that_does_not_exist():
    net, x = on_meta()
    with pytest.raises(aot.AheadOfTimeError, match="xla_no_such_option"):
        aot.compile(net, (x,), options={"xla_no_such_option": True})


@pytest.mark.parametrize(
    "arguments, error, told",
    [
        ({"f": 3}, TypeError, "f must be a function or a module, not int"),
        (
            {"example_args": torch.zeros(3)},
            TypeError,
            r"example_args must be a tuple of arguments, as \(x,\), not Tensor",
        ),
        ({"example_args": "x"}, TypeError, "example_args must be .* not str"),
        ({"example_args": None}, TypeError, "example_args must be"),
        ({"example_kwargs": [1]}, TypeError, "example_kwargs must be None or a dict"),
        ({"example_kwargs": {3: 1}}, ValueError, "example_kwargs must be"),
        ({"train": "yes"}, TypeError, "train must be True or False, not str"),
        ({"loss": 3, "train": True}, TypeError, "loss must be None or a function"),
        ({"loss": lambda out: out.sum()}, ValueError, "train=True"),
        ({"train": True}, ValueError, "gives no loss"),
        (
            {"train": True, "optimizer": torch.optim.SGD([torch.zeros(1)], lr=0.1)},
            TypeError,
            "optimizer must be .* makes one from parameters",
        ),
        ({"train": True, "optimizer": lambda p: 3}, TypeError, "optimizer= gave no torch.optim.Optimizer but a int"),
        ({"store": 1}, TypeError, "store must be True or False"),
        ({"store": True, "train": True}, ValueError, "store=True"),
        ({"options": "xla_a=1"}, TypeError, "options must be None or a dict"),
        ({"options": {"xla_a": [1]}}, ValueError, "options must be .* bool, int, float or str"),
        ({"options": {3: 1}}, ValueError, "options must be"),
        ({"costliest": "5"}, TypeError, "costliest must be a number of operations"),
        ({"costliest": True}, TypeError, "costliest must be"),
        ({"costliest": -1}, ValueError, "costliest must be .* not -1"),
        ({"time_limit": "a"}, TypeError, "time_limit must be a positive number of seconds, not str"),
        ({"time_limit": None}, TypeError, "time_limit must be"),
        ({"time_limit": 0}, ValueError, "time_limit must be .* not 0"),
        ({"time_limit": float("nan")}, ValueError, "time_limit must be"),
        ({"plugin": 3}, TypeError, "plugin must be None or a path"),
    ],
)
def test_arguments_that_make_no_sense(arguments, error, told):
    net, x = on_meta()
    with pytest.raises(error, match="aot.compile.*" + told):
        aot.compile(**{"f": net, "example_args": (x,), **arguments})


# ---- what no program expresses ----


def branch(x):
    return x if x.sum() > 0 else -x


def number(x):
    return x * x.sum().item()


def listed(x):
    return x + len(x[0].tolist())


def masked(x):
    return x[x > 0]


def positions(x):
    return torch.nonzero(x)


def eigenvalues(x):
    return torch.linalg.eigvals(x)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(
    "function, instead",
    [
        (branch, "value is read in Python(.|\n)*torch.where"),
        (number, "value is read in Python"),
        (listed, "value is read in Python"),
        (masked, "size of the result depends on values(.|\n)*torch.where"),
        (positions, "size of the result depends on values"),
        (eigenvalues, "neither a lowering"),
    ],
)
def test_what_no_program_expresses_is_named_with_its_line(function, instead, train):
    line = function.__code__.co_firstlineno + 1
    code = Path(__file__).read_text().splitlines()[line - 1].strip()
    with pytest.raises(aot.AheadOfTimeError) as caught:
        aot.compile(function, (torch.zeros(4, 4),), train=train)
    assert re.search(rf"{instead}(.|\n)*test_aot.py:{line}\n *{re.escape(code)}", str(caught.value))
    assert ("torch.cond" in str(caught.value)) == (not train and "Python" in instead)


def test_a_line_of_code_without_a_file():
    space = {}
    exec("def f(x):\n    return x if x.sum() > 0 else -x", space)
    with pytest.raises(aot.AheadOfTimeError, match="from <string>:2"):
        aot.compile(space["f"], (torch.zeros(4),))


def test_stored_programs_say_the_same_of_an_operator_without_a_lowering():
    with pytest.raises(aot.AheadOfTimeError, match=r"linalg_eig(.|\n)*test_aot.py(.|\n)*return torch.linalg.eigvals"):
        aot.compile(eigenvalues, (torch.zeros(4, 4),), store=True)


class Conditional(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.linear(x), lambda x: x.relu(), (x,))


@needs_libtpu
def test_a_conditional_is_one_program():
    made = aot.compile(Conditional(), (torch.zeros(8, 8),))
    assert "stablehlo.case" in made.stablehlo and made.memory.fits


def test_a_conditional_in_a_training_step_is_refused():
    with pytest.raises(aot.AheadOfTimeError, match="cond is not supported with train=True.*torch.where"):
        aot.compile(Conditional(), (torch.zeros(8, 8),), train=True, loss=lambda out: out.sum())


# ---- the disk cache ----

AS_TPU = Path(os.environ.get("TORCH_TPU_TEST_TOOLS", Path(__file__).parents[1] / "build" / "editable")) / "libas_tpu.so"
PROGRAM = """
import sys, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(24, 48), torch.nn.LayerNorm(48)
        self.second = torch.nn.Linear(48, 8, bias=False)
        self.register_buffer("scale", torch.full((8,), 2.0))
    def forward(self, x, y=None):
        h = torch.nn.functional.gelu(self.norm(self.first(x))).view(2, 3, 48)
        return (self.second(h) * self.scale + (0 if y is None else y)).softmax(-1), h[:, 0]
torch.manual_seed(0)
net, x, y = Net().eval(), torch.randn(6, 24), torch.randn(8)
"""
STORE = (
    PROGRAM
    + """
made = torch.tpu.aot.compile(net.to("meta"), (x,), {"y": y}, topology="v5e:1x1", store=True)
print(made.cache_entry)
"""
)
USE = (
    PROGRAM
    + """
want = net(x, y)
on_device = Net().eval().to("tpu")
on_device.load_state_dict(net.state_dict())
x, y = x.to("tpu"), y.to("tpu")
before = torch.tpu.diagnostics()
with torch.no_grad():
    got = torch.compile(on_device)(x, y=y)
after = torch.tpu.diagnostics()
for g, w in zip(got, want):
    torch.testing.assert_close(g.cpu(), w)
print(torch.tpu.get_device_name(), after["compiles"] - before["compiles"], after["disk_hits"] - before["disk_hits"])
"""
)


def test_a_machine_with_the_device_finds_the_stored_program(tmp_path):
    """One process has no device and compiles ahead of time; another is told that it has one: the keys are equal."""
    from torch_tpu import _plugins

    if not AS_TPU.exists():
        pytest.skip(f"{AS_TPU} is not built")
    environment = {
        **os.environ,
        "AS_TPU_PLUGIN": _plugins.find(_plugins.CPU),
        "TORCH_TPU_CACHE_DIR": str(tmp_path / "cache"),
        "TPU_LIBRARY_PATH": str(AS_TPU),
    }
    environment.pop("TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT", None)

    def run(text, **more):
        command = [sys.executable, "-c", text]
        done = subprocess.run(
            command, env={**environment, **more}, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip().splitlines()[-1]

    entry = run(STORE, TORCH_TPU_PJRT_PLUGIN="cpu")
    assert Path(entry).parent == tmp_path / "cache" and Path(entry).stat().st_size > 1000
    assert run(USE, TORCH_TPU_PJRT_PLUGIN=str(AS_TPU)) == "TPU v5 lite 0 1"


# ---- torch-tpu fit ----

TINY = [
    word
    for field in (
        "num_hidden_layers=1",
        "hidden_size=128",
        "intermediate_size=256",
        "num_attention_heads=2",
        "num_key_value_heads=1",
        "vocab_size=512",
    )
    for word in ("--set", field)
]


@needs_libtpu
def test_fit_of_a_model_type(capsys):
    pytest.importorskip("transformers")
    arguments = [
        "fit",
        "llama",
        *TINY,
        "--topology",
        "v5e:2x2",
        "--batch",
        "2",
        "--seq",
        "128",
        "--no-search",
        "--json",
    ]
    assert _cli.main(arguments) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["fits"] and report["batch"] == 2 and report["devices"] == 4 and report["largest_batch"] is None
    assert report["compiled"]["seconds"] > 0 and report["dominates"]
    assert "holds the whole model" in report["assumptions"][0]
    assert "compiling for v5e:2x2: batch 2" in err


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["lama"], "did you mean .*llama"),
        (["llama", "--set", "hiden_size=3"], "near are .*hidden_size"),
        (["llama", *TINY, "--seq", "999999"], "max_position_embeddings"),
        (["llama", "--dtype", "int8"], "no floating-point type"),
        (["llama", "--topology", "v5e:5x5"], "16x16"),
        (["vit", "--seq", "8"], "takes images"),
    ],
)
def test_fit_says_what_is_wrong(arguments, told, capsys):
    pytest.importorskip("transformers")
    assert _cli.main(["fit", *arguments]) == 2
    assert re.search(told, capsys.readouterr().err)


def config_file(folder, text):
    (folder / "config.json").write_text(text)
    return str(folder / "config.json")


@pytest.mark.parametrize(
    "settings, told",
    [
        (["num_hidden_layers=abc"], "num_hidden_layers=abc: .*expected int, got str"),
        (["num_hidden_layers=2.5"], "num_hidden_layers.*expected int, got float"),
        (["num_attention_heads=7"], "num_attention_heads=7: .*not a multiple of the number of attention heads"),
        (["hidden_act=nonsense"], "hidden_act=nonsense: .*nonsense"),
        (["vocab_size=1e400"], "vocab_size=1e400: .*inf"),
        (["hidden_size={[]: 1}"], "hidden_size"),
        (["hidden_size"], "no field 'hidden_size' .--set name=value."),
        (["__class__=3"], "no field '__class__'"),
        (["to_dict=3"], "no field 'to_dict'"),
        (["num_hidden_layers=-1"], "num_hidden_layers must be positive, not -1"),
        (["num_hidden_layers=0"], "num_hidden_layers must be positive, not 0"),
        (["hidden_size=-64"], "hidden_size must be positive"),
    ],
)
@pytest.mark.parametrize("from_file", [False, True])
def test_fit_names_the_setting_that_is_wrong_in_one_line(settings, told, from_file, tmp_path, capsys):
    pytest.importorskip("transformers")
    model = config_file(tmp_path, '{"model_type": "llama"}') if from_file else "llama"
    arguments = ["fit", model, "--no-search", *(word for s in settings for word in ("--set", s))]
    assert _cli.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search("^torch-tpu fit: .*" + told, line)


@pytest.mark.parametrize(
    "text, told",
    [
        ('{"model_type": "llama", "hidden_size": "x"}', "'hidden_size' expected int, got str"),
        ('{"model_type": "llama", "num_attention_heads": 7}', "not a multiple of the number of attention heads"),
        ('{"model_type": "llama", "num_hidden_layers": -1}', "num_hidden_layers must be positive, not -1"),
        ('{"model_type": "gpt2", "n_layer": 0}', "n_layer must be positive, not 0"),
        ('{"model_type": "clip", "vision_config": {"patch_size": 0}}', "vision_config: patch_size must be positive"),
        ('{"model_type": "lama"}', "lama"),
        ('{"hidden_size": 64}', "model_type"),
        ('{"hidden_size":', "not a valid JSON"),
        ("[1, 2]", "no configuration of Transformers"),
        ("", "no configuration of Transformers"),
    ],
)
def test_fit_says_in_one_line_what_is_wrong_with_a_configuration(text, told, tmp_path, capsys):
    pytest.importorskip("transformers")
    assert _cli.main(["fit", config_file(tmp_path, text), "--no-search"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"torch-tpu fit: {tmp_path}") and re.search(told, line)


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--set", "num_key_value_heads=3"], "num_key_value_heads=3 does not run with batch 1, sequence 8: .*size of"),
        (["--set", "head_dim=3"], "head_dim=3 does not run"),
        (["--batch", "99999999999999999999"], "does not run with batch 99999999999999999999"),
        (["--dtype", "float8_e4m3fn"], "no model of float8_e4m3fn"),
    ],
)
def test_a_model_that_does_not_run_is_told_in_the_last_line(arguments, told, capsys):
    pytest.importorskip("transformers")
    assert _cli.main(["fit", "llama", *TINY, "--seq", "8", "--no-search", *arguments]) == 2
    *progress, line = capsys.readouterr().err.splitlines()
    assert re.search("^torch-tpu fit: .*" + told, line)
    assert all(text.startswith(("LlamaForCausalLM", "compiling")) for text in progress)


@pytest.mark.parametrize("arguments", [["--time-limit", "-1"], ["--time-limit", "soon"], ["--batch", "0"], ["--set"]])
def test_options_without_a_meaning(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        _cli.main(["fit", "llama", *arguments])
    assert caught.value.code == 2 and arguments[0] in capsys.readouterr().err.splitlines()[-1]


def test_usual_sizes_of_configurations_are_taken():
    transformers = pytest.importorskip("transformers")
    from torch_tpu import _fit

    checked = 0
    for name in ("llama", "gpt2", "t5", "bert", "vit", "clip", "deberta", "deberta-v2", "gemma4", "qwen3_moe", "swin"):
        kinds = transformers.models.auto.configuration_auto.CONFIG_MAPPING
        if name in kinds:
            _fit._check_sizes(kinds[name](), name)
            checked += 1
    assert checked > 5


def test_the_largest_batch_is_found_in_few_steps():
    from torch_tpu import _fit

    tried = []

    def attempt(n):
        if n not in runs:
            tried.append(n)
            needed = 1000 + 37 * n + (5 if n % 2 else 0)
            fits = needed <= 9000
            runs[n] = _fit.Attempt(n, made if fits else None, needed, 9000)
        return runs[n]

    made = type("made", (), {"memory": type("memory", (), {"fits": True})})
    for first in (1, 7, 216, 217, 400):
        runs = {}
        tried.clear()
        largest = _fit._largest(attempt, attempt(first), runs)
        assert largest.batch == 216 and len(tried) <= 8


def test_the_command_lists_topologies():
    command = [sys.executable, "-m", "torch_tpu._cli", "topologies"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True, cwd=Path(__file__).parents[1]
    )
    assert "v5e: a chip has 16.00 GiB HBM at 819 GB/s, 197 Tflop/s bf16" in done.stdout
