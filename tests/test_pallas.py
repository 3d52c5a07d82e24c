"""JAX functions and Pallas kernels as operators: what PyTorch computes on the CPU is expected."""

import functools
import sys

import pytest
import torch
import torch.nn.functional as F
from helpers import ON_CPU, child_output, up

pytestmark = pytest.mark.skipif(ON_CPU, reason="operators of the device")
jax = pytest.importorskip("jax")

import jax.numpy as jnp

from torch_tpu import _target
from torch_tpu.pallas import custom_jax_kernel, get_pallas_mesh, jax_op


def modes():
    from torch_tpu._internal.execution_mode import EagerMode

    return [EagerMode.DEFER_NEVER, EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING, EagerMode.DEFER_AND_FUSE]


@jax_op("test::affine")
def affine(x, weights, scale=1.0):
    """x @ w * scale + b"""
    return {"out": x @ weights["w"] * scale + weights["b"], "norm": jnp.linalg.norm(x)}


def affine_in_torch(x, weights, scale=1.0):
    return {"out": x @ weights["w"] * scale + weights["b"], "norm": torch.linalg.norm(x)}


def example():
    return torch.randn(3, 4), {"w": torch.randn(4, 2), "b": torch.randn(2)}


def leaves(out):
    return [out["out"], out["norm"]]


# ---- one operator in every mode ----


@pytest.mark.parametrize("mode", modes(), ids=lambda m: m.name)
def test_values_and_structure(mode):
    x, weights = example()
    want = affine_in_torch(x, weights, 3.0)
    with torch.tpu.set_eager_mode(mode):
        got = affine(up(x), up(weights), scale=3.0)
        assert list(got) == ["norm", "out"] or list(got) == ["out", "norm"]
        for g, w in zip(leaves(got), leaves(want), strict=True):
            assert g.device.type == "tpu"
            torch.testing.assert_close(g.cpu(), w)


def gradients(function, x, weights, place):
    x, w, b = (place(t).requires_grad_() for t in (x, weights["w"], weights["b"]))
    out = function(x, {"w": w, "b": b}, 2.0)
    loss = (out["out"] ** 2).sum() + out["norm"]
    return [loss.detach(), *torch.autograd.grad(loss, (x, w, b))]


@pytest.mark.parametrize("mode", modes(), ids=lambda m: m.name)
def test_gradients(mode):
    x, weights = example()
    want = gradients(affine_in_torch, x, weights, lambda t: t.clone())
    with torch.tpu.set_eager_mode(mode):
        got = gradients(affine, x, weights, lambda t: t.to("tpu"))
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g.cpu(), w)


def test_compiled_into_one_program_with_what_is_around_it():
    x, weights = example()

    def f(function, x, weights):
        return function(x.relu(), weights, 2.0)["out"].sin() + 1

    compiled = torch.compile(functools.partial(f, affine), fullgraph=True)
    x_up, weights_up = up(x), up(weights)
    with torch.no_grad():
        compiled(x_up, weights_up)
        before = torch.tpu.diagnostics()["launches"]
        got = compiled(x_up, weights_up)
        assert torch.tpu.diagnostics()["launches"] - before == 1
    torch.testing.assert_close(got.cpu(), f(affine_in_torch, x, weights))


def test_gradients_of_a_compiled_function():
    x, weights = example()
    want = gradients(affine_in_torch, x, weights, lambda t: t.clone())

    @torch.compile(fullgraph=True)
    def loss(x, w, b):
        out = affine(x, {"w": w, "b": b}, 2.0)
        return (out["out"] ** 2).sum() + out["norm"]

    inputs = [up(t).requires_grad_() for t in (x, weights["w"], weights["b"])]
    value = loss(*inputs)
    got = [value.detach(), *torch.autograd.grad(value, inputs)]
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g.cpu(), w)


def test_a_second_call_compiles_nothing():
    x = torch.ones(5, device="tpu")
    double = jax_op("test::double", lambda x: x * 2)
    double(x)
    before = torch.tpu.diagnostics()
    assert double(x + 1).cpu().tolist() == [4] * 5
    after = torch.tpu.diagnostics()
    assert after["launches"] - before["launches"] == 2 and after["compiles"] - before["compiles"] <= 1  # x + 1


def test_the_meta_function_knows_shapes_without_running():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        x = torch.empty(3, 4, device="tpu")
        weights = {"w": torch.empty(4, 2, device="tpu"), "b": torch.empty(2, device="tpu")}
        out = affine(x, weights)
    assert out["out"].shape == (3, 2) and out["norm"].shape == () and out["out"].fake_mode is mode


def test_torch_library_knows_it():
    x, weights = example()
    affine(up(x), up(weights))  # makes the call known under its key
    tensors = [up(x).requires_grad_(), up(weights["w"]), up(weights["b"])]
    for residuals in (False, True):
        arguments = (tensors if residuals else [t.detach() for t in tensors], list(affine._calls)[-1], residuals)
        tests = ("test_schema", "test_faketensor")
        assert set(torch.library.opcheck(torch.ops.test.affine.default, arguments, test_utils=tests).values()) == {
            "SUCCESS"
        }
    assert affine.__doc__ == "x @ w * scale + b"


def test_dtypes_and_views():
    total = jax_op("test::total", lambda x: (x.sum(0), x[::2].astype(jnp.int32)))
    x = torch.arange(24.0).reshape(4, 6).t()
    summed, cast = total(x.to("tpu")[:, 1:].bfloat16())
    assert summed.dtype == torch.bfloat16 and cast.dtype == torch.int32
    torch.testing.assert_close(summed.cpu(), x[:, 1:].bfloat16().sum(0))
    assert torch.equal(cast.cpu(), x[::2, 1:].int())


def test_a_given_backward():
    clipped = jax_op("test::clipped", lambda x: jnp.clip(x, -1, 1))

    @clipped.register_backward
    def straight_through(arguments, results, cotangents):
        assert arguments[0].shape == results.shape
        return [cotangents * 10]

    x = torch.tensor([-3.0, 0.5, 3.0], device="tpu", requires_grad=True)
    out = clipped(x)
    out.sum().backward()
    assert out.tolist() == [-1, 0.5, 1] and x.grad.tolist() == [10, 10, 10]


def test_integer_inputs_have_no_gradient():
    take = jax_op("test::take", lambda table, i: jnp.take(table, i, axis=0))
    table = torch.randn(5, 3)
    i = torch.tensor([4, 0, 4], dtype=torch.int32)
    on_device = table.to("tpu").requires_grad_()
    take(on_device, i.to("tpu")).sum().backward()
    assert on_device.grad.cpu()[:, 0].tolist() == [1, 0, 0, 0, 2]


def test_donated_arguments_are_empty_afterwards():
    bump = jax_op("test::bump", lambda x: x + 1, donate_argnums=0)
    x = torch.ones(1000, device="tpu")
    assert bump(x)[0].item() == 2
    assert x.untyped_storage().nbytes() == 0


def test_names():
    @custom_jax_kernel
    def halve(x):
        return x / 2

    assert halve(torch.ones(2, device="tpu")).tolist() == [0.5, 0.5] and halve.namespace == "jax"
    again = custom_jax_kernel(lambda x: x / 4, "halve")  # takes the name over
    assert again(torch.ones(2, device="tpu")).tolist() == [0.25, 0.25]
    with pytest.raises(ValueError, match="no operator's name"):
        jax_op("a::b::c", lambda x: x)
    with pytest.raises(ValueError, match="aten::add already"):
        jax_op("aten::add", lambda x: x)
    with pytest.raises(TypeError, match="expected a function"):
        jax_op("test::nothing", 3)


def test_what_cannot_be():
    x = torch.ones(3, device="tpu")
    with pytest.raises(TypeError, match=r"tensor 0 is int64.*jax_enable_x64"):
        jax_op("test::wide", lambda x: x + 1)(x.long())
    with pytest.raises(TypeError, match="without a tensor"):
        jax_op("test::empty", lambda x: x)(3)
    with pytest.raises(RuntimeError, match="call back|side effects"):
        jax_op("test::talk", lambda x: (jax.debug.print("{}", x), x)[1])(x)
    with pytest.raises(TypeError, match="add got incompatible shapes"):
        jax_op("test::wrong", lambda x, y: x + y)(x, torch.ones(2, device="tpu"))
    with pytest.raises(NotImplementedError, match="mesh of 4 devices"):
        jax_op("test::mesh", lambda x: x, mesh=jax.sharding.AbstractMesh((4,), ("x",)))
    with pytest.raises(NotImplementedError, match="'CPU' backend"):
        jax_op("test::host", lambda x: x)(torch.ones(3))


def test_mesh_of_one_process():
    assert get_pallas_mesh("x").shape == {"x": 1} and get_pallas_mesh(("a", "b"), (1, 1)).axis_names == ("a", "b")
    with pytest.raises(ValueError, match="of 1 processes"):
        get_pallas_mesh("x", (4,))


def test_jax_is_imported_late_and_opens_no_device():
    code = """
import sys, torch
from torch.tpu import pallas
f = pallas.jax_op("test::f", lambda x: x * 2)
assert "jax" not in sys.modules
x = torch.ones(3, device="tpu", requires_grad=True)
f(x).sum().backward()
torch.compile(lambda x: f(x) + 1)(x)
from jax._src import xla_bridge
print(x.grad.tolist(), xla_bridge.backends_are_initialized())
"""
    assert child_output(code).splitlines()[-1] == "[2.0, 2.0, 2.0] False"


# ---- JAX's own kernels ----


def attention(q, k, v, causal=False):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def close(got, want, tolerance=2e-5):
    torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention(causal):
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

    flash = jax_op("test::flash", flash_attention)
    q, k, v = (torch.randn(1, 2, 256, 32) * 0.5 for _ in range(3))
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    want = attention(*leaves, causal)
    weight = torch.randn_like(want)
    on_device = [t.to("tpu").requires_grad_() for t in (q, k, v)]
    got = flash(*on_device, causal=causal, sm_scale=32**-0.5)
    close(got, want)
    for g, w in zip(
        torch.autograd.grad(got, on_device, weight.to("tpu")), torch.autograd.grad(want, leaves, weight), strict=True
    ):
        close(g, w, 1e-4)


def test_splash_attention():
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

    mask = splash_attention_mask.MultiHeadMask([splash_attention_mask.CausalMask((128, 128)) for _ in range(2)])

    @jax_op("test::splash")
    def splash(q, k, v):
        kernel = splash_attention_kernel.make_splash_mha_single_device(mask)
        return jax.vmap(kernel)(q, k, v)

    q, k, v = (torch.randn(1, 2, 128, 128) * 0.5 for _ in range(3))
    close(splash(*(t.to("tpu") for t in (q * 128**-0.5, k, v))), attention(q, k, v, True))


def test_paged_attention():
    from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

    heads, pages, size, width = 2, 8, 16, 128
    q = torch.randn(2, heads, width)
    k, v = torch.randn(heads, pages, size, width), torch.randn(heads, pages, size, width)
    lengths, table = (
        torch.tensor([20, 37], dtype=torch.int32),
        torch.tensor([[3, 1, 0, 0], [5, 2, 7, 0]], dtype=torch.int32),
    )
    paged = jax_op("test::paged", functools.partial(paged_attention, pages_per_compute_block=4))
    got = paged(*(t.to("tpu") for t in (q, k, v, lengths, table)))
    for b, n in enumerate(lengths.tolist()):
        keys, values = (t[:, table[b].long()].reshape(heads, -1, width)[:, :n] for t in (k, v))
        want = torch.softmax(q[b, :, None] @ keys.mT, -1) @ values
        close(got[b], want[:, 0], 2e-2)  # the kernel multiplies bfloat16


def test_megablox():
    from jax.experimental.pallas.ops.tpu.megablox import gmm

    grouped = jax_op("test::gmm", lambda a, b, sizes: gmm(a, b, sizes, jnp.float32))
    a, b = torch.randn(256, 128), torch.randn(3, 128, 128)
    sizes = torch.tensor([100, 0, 156], dtype=torch.int32)
    want = torch.cat([part @ b[i] for i, part in enumerate(a.split(sizes.tolist()))])
    close(grouped(a.to("tpu"), b.to("tpu"), sizes.to("tpu")), want, 1e-3)


def test_a_kernel_for_a_tpu_is_a_custom_call():
    from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

    from torch_tpu import _jax

    types = [("bfloat16", [1, 2, 256, 128])] * 3
    function = _jax.flat(functools.partial(flash_attention, causal=True))
    made = _jax.lower("flash", function, types, _target.Target("tpu", "TPU v5 lite"))
    assert "tpu_custom_call" in made.text and made.results == [("bfloat16", [1, 2, 256, 128])]
    assert "tpu_custom_call" not in _jax.lower("flash", function, types, _target.Target("cpu", "cpu")).text
    assert "jax" in sys.modules


# ---- scaled_dot_product_attention of programs for a TPU ----


@pytest.mark.parametrize(("causal", "heads"), [(False, 2), (True, 1)])
def test_the_kernel_in_place_of_attention(causal, heads):
    """What takes the place of PyTorch's operator and of its backward, interpreted."""
    from torch_tpu import _flash

    scale, group = 0.2, 2 // heads
    blocks = _flash._block_sizes(256, 128)
    forward = jax_op("test::attention", lambda *a: _flash._forward(causal, scale, blocks, group)(*a))
    backward = jax_op("test::attention_gradient", lambda *a: _flash._backward(causal, scale, blocks, group)(*a))
    q, k, v = torch.randn(1, 2, 256, 32), torch.randn(1, heads, 128, 32), torch.randn(1, heads, 128, 32)
    inputs = [t.requires_grad_() for t in (q, k, v)]
    want = F.scaled_dot_product_attention(*inputs, is_causal=causal, scale=scale, enable_gqa=True)
    weight = torch.randn_like(want)
    gradients = torch.autograd.grad(want, inputs, weight)
    on_device = [t.detach().to("tpu") for t in inputs]
    out, log_sum_exp = forward(*on_device)
    close(out, want)
    scores = q @ k.repeat_interleave(group, 1).mT * scale
    if causal:
        scores = scores.masked_fill(torch.ones(256, 128, dtype=torch.bool).triu(1), -torch.inf)
    close(log_sum_exp, scores.logsumexp(-1))
    alone = jax_op("test::attention_alone", lambda *a: _flash._forward(causal, scale, blocks, group, False)(*a)[0])
    close(alone(*on_device), want)
    for g, w in zip(backward(weight.to("tpu"), *on_device, out, log_sum_exp), gradients, strict=True):
        close(g, w, 1e-4)


def program_for(target, f, *tensors, train=False):
    from torch_tpu import _C, _trace

    with _target.compiling_for(*target), torch.set_grad_enabled(train):
        traced = _trace.trace(f, tensors, {}, train=train)
    return _C.program_text(traced.graph, traced.inputs, traced.results, _C.get_precision())[0]


TPU = _target.Target("tpu", "TPU v5 lite")


def test_attention_of_programs_for_a_tpu_is_the_kernel():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def shaped(length, dtype=torch.bfloat16):
        return [torch.empty(2, 4, length, 64, dtype=dtype, device="meta") for _ in range(3)]

    def kernels(f, *tensors, target=TPU):
        return program_for(target, f, *tensors).count("tpu_custom_call")

    def masked(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(256, 256, device=q.device).bool())

    def by_products(q, k, v):
        with sdpa_kernel(SDPBackend.MATH):
            return attention(q, k, v)

    assert kernels(attention, *shaped(256)) == 1
    assert kernels(attention, *shaped(256), target=("cpu", "cpu")) == 0
    assert kernels(attention, *shaped(100)) == kernels(attention, *shaped(256, torch.float16)) == 0
    assert kernels(masked, *shaped(256)) == kernels(by_products, *shaped(256)) == 0


def test_a_maximum_pool_computes_places_where_something_reads_them():
    image = torch.empty(1, 2, 8, 8, device="meta")
    assert "compare" not in program_for(TPU, lambda x: F.max_pool2d(x, 3, 2, 1), image)
    assert "compare" in program_for(TPU, lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), image)


def test_the_kernel_writes_its_statistics_where_something_reads_them():
    fused = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    tensors = [torch.empty(2, 4, 256, 64, dtype=torch.bfloat16, device="meta") for _ in range(3)]
    statistics = "tensor<2x4x256x128xf32>"  # of the kernel, a lane wide each
    assert statistics not in program_for(TPU, attention, *tensors)
    both = program_for(TPU, lambda q, k, v: fused(q, k, v)[:2], *tensors)
    assert statistics in both
    assert both.count("tpu_custom_call") == 2  # known too late for one
    only = program_for(TPU, lambda q, k, v: fused(q, k, v)[1].exp(), *tensors)
    assert statistics in only


def test_a_training_step_for_a_tpu_has_the_kernels_of_the_backward():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(64, device="meta"))

        def forward(self, q, k):
            return F.scaled_dot_product_attention(q * self.w, k, k, is_causal=True, enable_gqa=True).sum()

    q, k = torch.empty(1, 4, 256, 64, device="meta"), torch.empty(1, 2, 256, 64, device="meta")
    assert program_for(TPU, Block(), q, k, train=True).count("tpu_custom_call") == 3
