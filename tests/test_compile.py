"""torch.compile on device "tpu": the backend, and being the default for tensors of the device."""

import copy
import warnings
from pathlib import Path

import pytest
import torch
import torch.utils.checkpoint
from helpers import MANY_SIZES, child_output, same
from torch import nn

from torch_tpu import _C


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", MANY_SIZES)
        yield


def launches():
    return _C.counters()["launches"]


def check_module(module, *inputs, training=True, backend=None, tolerance=1e-4):
    """Values, gradients and buffers are those of the module on the CPU."""
    device = copy.deepcopy(module).to("tpu")
    function = torch.compile(device, **({"backend": backend} if backend else {}), fullgraph=True)
    for _ in range(2):
        want = module(*inputs)
        got = function(*[x.to("tpu") for x in inputs])
        torch.testing.assert_close(got.cpu(), want, rtol=tolerance, atol=tolerance)
    if training:
        want.square().mean().backward()
        got.square().mean().backward()
        for (name, p), q in zip(module.named_parameters(), device.parameters(), strict=True):
            note = f"gradient of {name}: "
            close = {"rtol": tolerance, "atol": tolerance, "msg": lambda m, n=note: n + m}
            torch.testing.assert_close(q.grad.cpu(), p.grad, **close)
    for p, q in zip(module.buffers(), device.buffers(), strict=True):
        torch.testing.assert_close(q.cpu(), p, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("backend", [None, "tpu"])
def test_mlp(backend):
    check_module(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), torch.randn(3, 4), backend=backend)


def test_convolution_with_batch_norm():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    check_module(module, torch.randn(2, 3, 8, 8))


def test_transformer_layer():
    check_module(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), torch.randn(2, 5, 16))


def test_embedding_and_cross_entropy():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(11, 8)
            self.head = nn.Linear(8, 11)

        def forward(self, tokens):
            return nn.functional.cross_entropy(self.head(self.table(tokens)).flatten(0, 1), tokens.flatten())

    check_module(Model(), torch.arange(10).reshape(2, 5) % 7)


def test_one_launch_a_call():
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("tpu")
    x = torch.randn(3, 4, device="tpu")
    function = torch.compile(module)
    with torch.no_grad():
        function(x)
        before = launches()
        function(x)
    assert launches() - before == 1


def test_inference_mode_views_and_returned_inputs():
    def f(x):
        y = x * 2
        return y, y.t(), x, y[0]

    x = torch.randn(3, 4, device="tpu")
    with torch.inference_mode():
        y, t, same, row = torch.compile(f)(x)
    assert same is x
    torch.testing.assert_close(t.cpu(), x.cpu().t() * 2)
    torch.testing.assert_close(row.cpu(), x.cpu()[0] * 2)


def test_buffers_are_written_in_place():
    def step(cache, position, value):
        cache[:, position] = value
        return cache.sum()

    cache = torch.zeros(2, 4, device="tpu")
    address = cache.data_ptr()
    with torch.no_grad():
        total = torch.compile(step)(cache, 1, torch.ones(2, device="tpu"))
    assert total.item() == 2
    assert cache.cpu()[:, 1].tolist() == [1, 1]
    assert cache.data_ptr() == address


def test_optimizer_step():
    """Also where fused mode has been on before, which ends its programs with a hook of the optimizers."""
    from torch_tpu._internal.execution_mode import EagerMode, set_eager_mode

    with set_eager_mode(EagerMode.DEFER_AND_FUSE):
        pass
    results = []
    for device, wrap in (("cpu", lambda f: f), ("tpu", torch.compile)):
        torch.manual_seed(0)
        module = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
        step = wrap(optimizer.step)
        x = torch.ones(3, 4).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            module(x).square().mean().backward()
            step()
        results.append([p.detach().cpu() for p in module.parameters()])
    for cpu, tpu in zip(*results, strict=True):
        torch.testing.assert_close(tpu, cpu, rtol=1e-4, atol=1e-5)


def test_dropout_masks_differ_between_calls_and_scale():
    function = torch.compile(lambda x: nn.functional.dropout(x, 0.5))
    x = torch.ones(1000, device="tpu")
    first, second = function(x).cpu(), function(x).cpu()
    assert set(first.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(first, second)
    assert 0.4 < (first == 0).float().mean() < 0.6


def test_manual_seed_repeats_dropout():
    function = torch.compile(lambda x: nn.functional.dropout(x, 0.5))
    x = torch.ones(64, device="tpu")
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        results.append(function(x).cpu())
    assert torch.equal(*results)


def test_checkpointing_keeps_the_dropout_mask():
    def block(w):
        return nn.functional.dropout(w.sin(), 0.3).exp()

    w = torch.ones(1000, device="tpu", requires_grad=True)
    y = torch.compile(lambda w: torch.utils.checkpoint.checkpoint(block, w, use_reentrant=False) * 1)(w)
    y.sum().backward()
    assert torch.equal((y == 1).cpu(), (w.grad == 0).cpu())


def test_tensors_of_the_cpu_in_a_graph():
    x = torch.ones(4, device="tpu")
    assert torch.compile(lambda x, s: x * s)(x, torch.tensor(0.5)).cpu().tolist() == [0.5] * 4
    assert torch.compile(lambda x: x + torch.arange(4).to(x.device))(x).cpu().tolist() == [1, 2, 3, 4]
    host = torch.compile(lambda x: (x * 2).cpu())(x)
    assert host.device.type == "cpu"
    assert host.tolist() == [2] * 4


def test_tensors_made_inside_of_python_numbers():
    x = torch.arange(4.0)
    for f in (
        lambda x: x + torch.tensor(0.5, device=x.device),
        lambda x: x[[0, 2]],
        lambda x: x[torch.tensor([1, 3], device=x.device)],
    ):
        torch.testing.assert_close(torch.compile(f)(x.to("tpu")).cpu(), f(x))


def test_function_transforms():
    def f(x):
        return torch.func.vmap(torch.func.grad(lambda v: (v**3).sum()))(x)

    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.compile(f)(x.to("tpu")).cpu(), 3 * x**2)


def test_autocast():
    module = nn.Linear(8, 8).to("tpu")

    def f(x):
        with torch.autocast("tpu", dtype=torch.bfloat16):
            return module(x)

    assert torch.compile(f)(torch.ones(2, 8, device="tpu")).dtype == torch.bfloat16


def test_graph_breaks():
    def f(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    x = torch.linspace(0, 1, 5)
    torch.testing.assert_close(torch.compile(f)(x.to("tpu")).cpu(), f(x))


def test_dynamic_sizes():
    function = torch.compile(lambda x: (x * 2).sum(0), dynamic=True)
    for n in (3, 5, 7):
        x = torch.randn(n, 4)
        torch.testing.assert_close(function(x.to("tpu")).cpu(), (x * 2).sum(0))


def test_results_that_nothing_reads_are_not_computed():
    """The values stay: of a maximum pool without its places, with NaN, infinities and padding; of a sort, of others."""
    x = torch.randn(2, 3, 9, 8)
    x[0, 0, 2, 3], x[0, 1], x[1, 2, 5] = torch.nan, -torch.inf, torch.inf

    def pooled(x):
        return nn.functional.max_pool2d(x, 3, 2, 1), nn.functional.max_pool2d(x, 2, ceil_mode=True)

    def parts(x):
        a, b = x.double().nan_to_num(posinf=9.0, neginf=-9.0), x.flatten(2).nan_to_num(posinf=9.0, neginf=-9.0)
        return torch.sort(a, -1)[1], torch.topk(b, 3)[0], torch.aminmax(b)[1], torch.var_mean(b, 1)[0], b.median(-1)[0]

    for f in (pooled, parts):
        for got, want in zip(torch.compile(f)(x.to("tpu")), f(x), strict=True):
            torch.testing.assert_close(got.cpu(), want, equal_nan=True)
        with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
            for got, want in zip(f(x.to("tpu")), f(x), strict=True):
                torch.testing.assert_close(got.cpu(), want, equal_nan=True)


def test_views_whose_schemas_do_not_say_so():
    def parts(x):
        a, b, c = torch.unsafe_split(x + 1, 2, 1)
        d, e = torch.unsafe_split_with_sizes(x, [1, 4], -1)
        return [a, b[0] * 2, c, d.exp(), e, torch.ops.aten._unsafe_view(x, [25, 5])[3], *torch.unsafe_chunk(x, 3), x]

    x = torch.randn(5, 5, 5)
    for got, want in zip(torch.compile(parts)(x.to("tpu")), parts(x), strict=True):
        torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "pool",
    [
        lambda x: nn.functional.max_pool2d(x, 3, 2, 1),
        lambda x: nn.functional.max_pool2d(x, (2, 3), (3, 1), (1, 0), ceil_mode=True),
        lambda x: nn.functional.max_pool2d(x, 2, dilation=2),
        lambda x: nn.functional.max_pool1d(x[0], 4, 3, 2),
        lambda x: nn.functional.max_pool3d(x, (1, 2, 2), 1),
    ],
)
def test_a_maximum_pool_and_its_gradient_in_one_program(pool, dtype):
    """The program finds the maxima again: of equal ones the first, of NaNs the last, as where places are kept."""
    x = torch.randint(-2, 3, (2, 3, 9, 8), generator=torch.Generator().manual_seed(0)).to(dtype)
    x[0, 0, 2:4, 3:6], x[0, 1], x[1, 2, 5] = torch.nan, -torch.inf, torch.inf
    weight = torch.arange(1.0, 9.0).to(dtype)

    def gradient(x):
        x = x.clone().requires_grad_()
        y = pool(x)
        y.backward((weight[: y.size(-1)].to(y.device)).expand_as(y))
        return x.grad

    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
        got = gradient(x.to("tpu")).cpu()
    torch.testing.assert_close(got, gradient(x))


def test_functions_of_the_cpu_are_left_to_their_default():
    used = []

    def note(self, model, inputs, **kwargs):
        used.append(self.compiler_name)
        return model.forward

    wrapper = torch._TorchCompileInductorWrapper
    ours = wrapper.__call__
    inductor = ours.__wrapped__
    assert inductor is not ours
    from unittest import mock

    from torch_tpu import _compile

    assert not _compile.uses_device(torch.fx.symbolic_trace(lambda x: x + 1), [torch.ones(2)])
    with mock.patch.object(wrapper, "__call__", note):
        torch.compile(lambda x: x + 1)(torch.ones(2))
    assert used == ["inductor"]


def test_backend_is_listed():
    assert "tpu" in torch._dynamo.list_backends()


def test_unknown_mode_and_option_are_refused():
    x = torch.ones(2, device="tpu")
    with pytest.raises(Exception, match="no mode is called 'fastest'"):
        torch.compile(lambda x: x + 1, backend="tpu", mode="fastest")(x)
    with pytest.raises(Exception, match="no option 'speed'"):
        torch.compile(lambda x: x + 1, backend="tpu", options={"speed": 11})(x)


def test_data_dependent_operators_run_operator_by_operator_with_a_warning():
    gm = torch.fx.symbolic_trace(lambda x: (torch.ops.aten.nonzero.default(x),))
    from torch_tpu import _compile

    with pytest.warns(UserWarning, match="nonzero"):
        function = _compile.compile_graph(gm, [torch.ones(3, device="tpu")])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that of nonzero itself
        (got,) = function([torch.tensor([1.0, 0.0, 2.0], device="tpu")])
    assert got.cpu().tolist() == [[0], [2]]


def test_import_brings_no_dynamo():
    code = "import torch, torch_tpu, sys; torch.ones(1, device='tpu'); print('torch._dynamo' in sys.modules)"
    assert child_output(code) == "False"


# ---- compiler options ----

FLAG = "xla_cpu_enable_fast_math"


@pytest.fixture
def no_disk(monkeypatch):
    """Programs come from the compiler, so that compilations can be counted."""
    monkeypatch.setenv("TORCH_TPU_CACHE_DIR", "")
    _C.cache_clear()


def compiles_of(function):
    before = _C.counters()["compiles"]
    function()
    return _C.counters()["compiles"] - before


@pytest.mark.parametrize("backend", [None, "tpu"])
def test_options_belong_to_the_key_of_a_program(backend, no_disk):
    chosen = {"backend": backend} if backend else {}
    x = torch.randn(3, 5, device="tpu")

    def f(x):
        return (x.sin() * 3.25).cos()

    plain = torch.compile(f, **chosen)
    with_option = torch.compile(f, options={FLAG: True}, **chosen)
    with torch.no_grad():
        assert compiles_of(lambda: plain(x)) == 1
        assert compiles_of(lambda: with_option(x)) == 1
        assert compiles_of(lambda: (plain(x), with_option(x))) == 0
        torch.testing.assert_close(with_option(x), plain(x))


def test_options_of_a_block_reach_eager_operators_and_nest(no_disk):
    x = torch.randn(7, 3, device="tpu")
    assert compiles_of(lambda: torch.atan2(x, x)) >= 1
    with torch.tpu.compiler.custom_compiler_options({FLAG: "true"}):
        outer = _C.get_options()
        assert _C.options_text(outer) == f"{FLAG}=true\n"
        assert compiles_of(lambda: torch.atan2(x, x)) >= 1
        assert compiles_of(lambda: torch.atan2(x, x)) == 0
        with torch.tpu.compiler.custom_compiler_options({"xla_cpu_multi_thread_eigen": False, FLAG: False}):
            assert _C.options_text(_C.get_options()) == f"{FLAG}=false\nxla_cpu_multi_thread_eigen=false\n"
        assert _C.get_options() == outer
    assert _C.get_options() == 0
    assert compiles_of(lambda: torch.atan2(x, x)) == 0


def test_options_belong_to_the_key_on_disk(tmp_path):
    code = f"""
import torch
x = torch.ones(3, 3, device="tpu")
with torch.tpu.compiler.custom_compiler_options({{"{FLAG}": OPTION}}): x.expm1().cpu()
c = torch.tpu.diagnostics()
print(c["disk_hits"] > 0, c["compiles"])
"""
    seen = [
        child_output(code.replace("OPTION", option), TORCH_TPU_CACHE_DIR=str(tmp_path))
        for option in ("True", "True", "False")
    ]
    assert seen[0].startswith("False")
    assert seen[1] == "True 0"
    assert seen[2] == "True 1"  # another value of the option compiles again


def test_options_of_a_backward_graph_are_those_of_its_forward(no_disk):
    x = torch.randn(4, 4, device="tpu", requires_grad=True)
    function = torch.compile(lambda x: x.sin().exp().sum(), options={FLAG: True})
    loss = function(x)
    backward = compiles_of(loss.backward)
    loss = torch.compile(lambda x: x.sin().exp().sum())(x)
    assert backward >= 1
    assert compiles_of(loss.backward) >= 1


def test_options_that_do_not_exist_are_refused_with_those_that_are_near():
    with (
        pytest.raises(ValueError, match="no option xla_cpu_enable_fast_meth; did you mean xla_cpu_enable_fast_math"),
        torch.tpu.compiler.custom_compiler_options({"xla_cpu_enable_fast_meth": True}),
    ):
        pass
    assert _C.get_options() == 0
    with pytest.raises(ValueError, match="did you mean .*xla_cpu_enable_fast_math"):
        torch.compile(lambda x: x, backend="tpu", options={"cpu_enable_fast_math": True})
    with pytest.raises(ValueError, match="no option xla_nonsense"):
        torch.compile(lambda x: x, options={"xla_nonsense": 1})
    with pytest.raises(TypeError, match="a value is a bool, an int"):
        torch.compile(lambda x: x, options={FLAG: [1]})
    with pytest.raises(ValueError, match="refuses these compiler options"):
        torch.compile(lambda x: x, options={FLAG: "perhaps"})


# ---- programs that do not compile ----


def test_a_failed_compilation_keeps_a_reproducer(tmp_path, monkeypatch):
    """Without XLA's passes its CPU compiler has no code for a Cholesky factor."""
    monkeypatch.setenv("TORCH_TPU_DUMP_DIR", str(tmp_path))
    function = torch.compile(torch.linalg.cholesky_ex, options={"xla_disable_all_hlo_passes": True})
    with pytest.raises(RuntimeError, match="kept in") as failure:
        function(torch.eye(3, device="tpu"))
    folder = str(failure.value).rsplit("kept in ", 1)[1].split()[0]
    assert folder.startswith(str(tmp_path))
    assert "stablehlo" in (Path(folder) / "program.mlir").read_text()
    assert "xla_disable_all_hlo_passes=true" in (Path(folder) / "options.txt").read_text()
    with pytest.raises(RuntimeError):
        torch.tpu.compiler.replay(folder)


# ---- warm start ----

WARM = """
import torch
from torch import nn

torch.manual_seed(0)
module = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).to("tpu")
function, x = torch.compile(module), torch.randn(2, 5, 16).to("tpu")
function(x).square().mean().backward()
torch.tpu.synchronize()
total = sum(p.grad.abs().sum().item() for p in module.parameters())
before = torch.tpu.diagnostics()["compiles"]
from torch._dynamo.utils import counters
print(before, counters["aot_autograd"]["autograd_cache_hit"], f"{total:.4f}")
"""


CHECKED = """
import torch
function = torch.compile(torch.linalg.cholesky)
x = torch.eye(3, device="tpu") * 4
print(function(x).diagonal().tolist())
try:
    function(-x)
except torch.linalg.LinAlgError:
    print("refused")
"""


def test_a_second_process_checks_as_the_first(tmp_path):
    """Graphs with effects are called with tokens, which a graph from PyTorch's cache is not."""
    places = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "traced"), "TORCH_TPU_CACHE_DIR": str(tmp_path / "programs")}
    for _ in range(2):
        assert child_output(CHECKED, timeout=300, **places).splitlines() == ["[2.0, 2.0, 2.0]", "refused"]


def test_a_second_process_traces_and_compiles_nothing(tmp_path):
    places = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "traced"), "TORCH_TPU_CACHE_DIR": str(tmp_path / "programs")}
    cold, warm = (child_output(WARM, timeout=300, **places).split() for _ in range(2))
    assert int(cold[0]) > 0
    assert cold[1] == "0"
    assert warm == ["0", "1", cold[2]]


def test_other_options_are_traced_apart(tmp_path):
    places = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "traced"), "TORCH_TPU_CACHE_DIR": str(tmp_path / "programs")}
    code = """
import torch
x = torch.ones(3, device="tpu")
print(torch.compile(lambda x: x.sin() + 1, options=OPTIONS)(x).sum().item() > 0)
from torch._dynamo.utils import counters
print(counters["aot_autograd"]["autograd_cache_hit"])
"""
    hits = [
        child_output(code.replace("OPTIONS", options), **places).split()[1]
        for options in ("None", "{'xla_cpu_enable_fast_math': True}", "None")
    ]
    assert hits == ["0", "0", "1"]


# ---- what user code does ----


def device_and_cpu(function, *args):
    """The same function on the CPU, and compiled on the device."""
    want = function(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args])
    got = torch.compile(function)(*[a.to("tpu") if isinstance(a, torch.Tensor) else a for a in args])
    return got, want


def test_custom_operators_made_of_ours():
    @torch.library.custom_op("tpu_test::scaled_sine", mutates_args=())
    def scaled_sine(x: torch.Tensor, scale: float) -> torch.Tensor:
        return x.sin() * scale

    @scaled_sine.register_fake
    def _(x, scale):
        return torch.empty_like(x)

    scaled_sine.register_autograd(
        lambda ctx, grad: (grad * ctx.x.cos() * ctx.scale, None),
        setup_context=lambda ctx, inputs, output: (setattr(ctx, "x", inputs[0]), setattr(ctx, "scale", inputs[1])),
    )

    @torch.library.custom_op("tpu_test::add_into", mutates_args=("x",))
    def add_into(x: torch.Tensor, y: torch.Tensor) -> None:
        x += y

    def f(x):
        y = scaled_sine(x, 2.0) + 1
        add_into(y, x)
        return y

    x = torch.randn(3, 4)
    with torch.no_grad():
        got, want = device_and_cpu(f, x)
        torch.testing.assert_close(got.cpu(), want)
    y = x.to("tpu").requires_grad_()
    torch.compile(lambda y: scaled_sine(y, 2.0), fullgraph=True)(y).sum().backward()
    torch.testing.assert_close(y.grad.cpu(), x.cos() * 2)


def test_nested_compiled_functions_are_one_program():
    inner = torch.compile(lambda x: x.sin())
    x = torch.randn(3, device="tpu")
    outer = torch.compile(lambda x: inner(x) + 1, fullgraph=True)
    outer(x)
    before = launches()
    torch.testing.assert_close(outer(x).cpu(), x.cpu().sin() + 1)
    assert launches() - before == 1


def test_hooks_of_modules_and_tensors_run():
    seen = []
    module = nn.Linear(4, 4).to("tpu")
    module.register_forward_hook(lambda m, args, out: out * 2)
    module.weight.register_hook(lambda grad: seen.append(grad.shape) or grad * 3)
    x = torch.ones(2, 4, device="tpu")
    out = torch.compile(module)(x)
    torch.testing.assert_close(out.cpu(), nn.functional.linear(x.cpu(), module.weight.cpu(), module.bias.cpu()) * 2)
    out.sum().backward()
    assert seen == [(4, 4)]
    assert module.weight.grad.cpu().tolist() == [[12.0] * 4] * 4


def test_inputs_without_gradient_have_none():
    def f(x, y, z):
        return (x * y.detach()).sum() + z.shape[0]

    x, y, z = (torch.ones(3, device="tpu", requires_grad=True) for _ in range(3))
    torch.compile(f)(x, y, z).backward()
    assert x.grad.tolist() == [1, 1, 1]
    assert y.grad is None
    assert z.grad is None


def test_outputs_that_alias_inputs_and_each_other():
    def f(x):
        x.add_(1)
        y = x.view(-1)
        return x, y, y[2:], x

    x = torch.zeros(2, 2, device="tpu")
    with torch.no_grad():
        a, b, c, d = torch.compile(f)(x)
    assert a is x
    assert d is x
    x[1, 1] = 5
    assert b.tolist() == [1, 1, 1, 5]
    assert c.tolist() == [1, 5]


def test_training_under_autocast():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
    device = copy.deepcopy(module).to("tpu")
    compiled = torch.compile(device)
    x = torch.randn(4, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        module(x).float().square().mean().backward()
    with torch.autocast("tpu", dtype=torch.bfloat16):
        compiled(x.to("tpu")).float().square().mean().backward()
    for p, q in zip(module.parameters(), device.parameters(), strict=True):
        assert q.grad.dtype == torch.float32
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=0.1, atol=0.02)


def test_checkpointing_recomputes_and_matches():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16), nn.Tanh())
    device = copy.deepcopy(block).to("tpu")
    x = torch.randn(8, 16)

    def run(module, x):
        return torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False).square().sum()

    run(block, x).backward()
    torch.compile(run)(device, x.to("tpu")).backward()
    for p, q in zip(block.parameters(), device.parameters(), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-4, atol=1e-5)


def test_batch_norm_buffers_and_caches_are_donated(tmp_path):
    def step(cache, value):
        cache[:, 3] = value

    cache = torch.zeros(64, 512, device="tpu")
    _C.cache_clear()
    _C.set_dump_directory(str(tmp_path))
    try:
        with torch.no_grad():
            torch.compile(step)(cache, torch.ones(64, device="tpu"))
    finally:
        _C.set_dump_directory(None)
    assert any("64x512xf32> {tf.aliasing_output" in p.read_text() for p in Path(tmp_path).iterdir())
    assert cache.cpu()[:, 3].sum().item() == 64


def test_a_factor_that_does_not_exist_is_an_error_in_compiled_code_too():
    function = torch.compile(torch.linalg.cholesky)
    x = torch.eye(3, device="tpu") * 4
    assert function(x).diagonal().tolist() == [2, 2, 2]
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        function(-x)


CONSTANTS = dict(
    factor=lambda x: x * torch.tensor(2.0),
    integer=lambda x: x + torch.tensor(2),
    where=lambda x: torch.where(x > 0, x, torch.tensor(0.0)),
    maximum=lambda x: torch.maximum(x, torch.tensor(0.0)),
    moved=lambda x: x * torch.tensor(2.0).to(x.device),
    item=lambda x: x * torch.tensor(3).item(),
    vector=lambda x: x + torch.tensor([1.0, 2.0, 3.0]).to(x.device),
    one=lambda x: x * torch.tensor([4.0]).to(x.device),
)


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_made_inside(name):
    x = torch.tensor([1.0, -2.0, 3.0])
    same(torch.compile(CONSTANTS[name], fullgraph=name != "item")(x.to("tpu")), CONSTANTS[name](x), name)


def test_assertions_of_the_program():
    """Of what a compiled function asserts the host hears where it waits; messages and their absence as in eager."""

    @torch.compile
    def asserting(x):
        torch._assert_async(x.sum() > 0, "the sum has to be positive")
        torch._assert_async(x[0].isfinite())
        return x * 2

    x = torch.ones(3, device="tpu")
    assert asserting(x).tolist() == [2, 2, 2]
    y = asserting(-x)
    with pytest.raises(RuntimeError, match="^the sum has to be positive"):
        y.tolist()
    assert y.tolist() == [-2, -2, -2]
    asserting(x.log() / 0)
    with pytest.raises(RuntimeError, match="^(the sum has to be positive|Expected Tensor with single nonzero value)"):
        torch.tpu.synchronize()
    assert asserting(x).tolist() == [2, 2, 2]
    torch._dynamo.reset()


def test_why_a_function_was_compiled_again():
    torch._dynamo.reset()

    @torch.compile
    def scaled(x, n):
        return (x * n).sum()

    def reasons():
        return [r for r in torch.tpu.compiler.recompiles() if r.function.startswith("scaled (" + __file__)]

    counted = torch.tpu.diagnostics()["recompiles"]
    for _ in range(3):
        scaled(torch.ones(4, device="tpu"), 2)
    assert not reasons() and torch.tpu.diagnostics()["recompiles"] == counted
    scaled(torch.ones(5, device="tpu"), 2)
    scaled(torch.ones(5, device="tpu"), 3)
    size, number = reasons()
    assert "size mismatch at index 0. expected 4, actual 5" in size.reason and size.compilations == 2
    assert "n == 2" in number.reason and number.compilations == 3
    assert torch.tpu.diagnostics()["recompiles"] == counted + 2


def test_calls_that_are_like_the_one_before_and_calls_that_are_not():
    """What a call needs no key for: its tensors are the ones of the call before, or others of the same kind."""
    torch._dynamo.reset()

    def f(x, w, total):
        total.add_(x @ w)
        return total * 2, x + 1

    compiled = torch.compile(f)

    def numbers(*shape, device):
        return torch.arange(float(torch.Size(shape).numel()), device=device).view(shape)

    def twice(x):
        return x, x

    kinds = [
        lambda n: (n(4, 4), n(4, 4)),
        lambda n: (n(4, 4) + 1, n(4, 4) - 1),  # of values that are still to be computed, in fused mode
        lambda n: (n(4, 4).t(), n(4, 4)),  # not dense in order
        lambda n: n(4, 8).split(4, 1),  # parts of a storage
        lambda n: (n(5, 4)[:4], n(5, 4)[1:]),
        lambda n: (n(4, 4), n(4, 4) * 3),
        lambda n: twice(n(4, 4)),  # the same twice
        lambda n: (n(4, 4) - 2, n(4, 4)),
    ]
    for mode in (torch.tpu.EagerMode.DEFER_NEVER, torch.tpu.EagerMode.DEFER_AND_FUSE, torch.tpu.EagerMode.DEFER_NEVER):
        with torch.tpu.set_eager_mode(mode):
            for i, kind in enumerate(kinds * 2):
                ours, theirs = (
                    (*kind(lambda *shape, device=device: numbers(*shape, device=device)), numbers(4, 4, device=device))
                    for device in ("tpu", "cpu")
                )
                same(compiled(*ours), f(*theirs), f"{mode}, {i}")
                same(ours, theirs, f"{mode}, {i}: arguments afterwards")


def test_a_call_like_the_one_before_with_other_options_and_precision():
    torch._dynamo.reset()
    compiled, x = torch.compile(lambda x: x @ x + 1), torch.rand(8, 8, device="tpu")
    compiled(x), compiled(x)
    before = _C.counters()
    with torch.tpu.precision(torch.tpu.Precision.HIGHEST):
        same(compiled(x), x.cpu() @ x.cpu() + 1)
    with torch.tpu.compiler.custom_compiler_options({"xla_cpu_enable_fast_math": False}):
        same(compiled(x), x.cpu() @ x.cpu() + 1)
    _C.cache_clear()
    same(compiled(x), x.cpu() @ x.cpu() + 1)
    same(compiled(x), x.cpu() @ x.cpu() + 1)
    after = _C.counters()
    assert after["launches"] - before["launches"] == 4 and after["cache_hits"] - before["cache_hits"] < 4
