"""Gradients, hooks, modes, and the thread that runs backward."""

import threading

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, both, gradients, same, up

X, Y, W = torch.rand(3, 4) + 0.5, torch.rand(3, 4) + 0.5, torch.rand(5, 4)

FUNCTIONS = dict(
    arithmetic=lambda x, y: (x * y - y / x).pow(2),
    transcendental=lambda x, y: x.exp().log1p() * y.sin() + x.erf() + y.sqrt().tanh(),
    activations=lambda x, y: F.gelu(x) + F.silu(y) + F.softplus(x) + F.leaky_relu(y - 1) + F.elu(x - 1) + F.hardswish(y) + F.mish(x),
    product=lambda x, y: x @ y.t(),
    reduction=lambda x, y: x.mean(1) + y.var(1) + x.logsumexp(1) + y.amax(1) + x.norm(dim=1),
    softmax=lambda x, y: x.softmax(1) + y.log_softmax(0),
    views=lambda x, y: x.t()[1:].reshape(-1) + y[:, ::2].flatten().repeat(2)[:9],
    indexing=lambda x, y: x[[0, 2, 0]] + y.gather(1, torch.zeros(3, 4, dtype=torch.long, device=x.device)),
    norms=lambda x, y: F.layer_norm(x, (4,), y[0], y[1]) + F.normalize(y, dim=1),
    selection=lambda x, y: torch.where(x > y, x, y * 2) + x.clamp(0.6, 1.2) + torch.maximum(x, y),
    broadcasting=lambda x, y: x[:, :1] * y + x[0],
    concatenation=lambda x, y: torch.cat([x, y.exp()], 1)[:, 2:6] + torch.stack([x, y]).sum(0),
    cumulative=lambda x, y: x.cumsum(1) * y.cumprod(0),
    sorting=lambda x, y: x.sort(1)[0] + y.topk(4, 1)[0],
    padding=lambda x, y: F.pad(x, (1, 1)) [:, :4] + F.pad(y[None], (1, 0), mode="replicate")[0, :, :4],
    complex=lambda x, y: torch.view_as_real(torch.complex(x, y) * 1j).sum(-1),
    loss=lambda x, y: F.mse_loss(x, y) + F.smooth_l1_loss(x, y) + F.binary_cross_entropy(x.sigmoid(), y.sigmoid()) + F.kl_div(x.log_softmax(1), y.softmax(1)),
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    gradients(FUNCTIONS[name], X, Y, note=name, rtol=1e-4, atol=1e-5)


def test_linear_with_strided_activation():
    x, w, g = torch.randn(2, 4, 3), torch.randn(5, 4), torch.randn(3, 2, 5)

    def program(a, b, c):
        a.requires_grad_(), b.requires_grad_()
        y = F.linear(a.permute(2, 0, 1), b)
        y.transpose(0, 1).backward(c.transpose(0, 1))
        return y.detach(), a.grad, b.grad

    results = [program(*[t.clone() for t in (x, w, g)]), program(*[up(t) for t in (x, w, g)])]
    same(results[1], results[0], rtol=1e-4, atol=1e-5)


def test_inplace_with_gradients():
    def program(x):
        y = x * 2
        y[1:] += x[:-1]
        y.t()[0].mul_(3)
        y.relu_()
        return (y + 1) * x

    gradients(program, X)


def test_accumulation_and_retained_graph():
    x = up(X).requires_grad_()
    loss = (x * x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    same(x.grad, 4 * X)
    x.grad = None
    (x.sum() * 3).backward()
    same(x.grad, torch.full_like(X, 3))


def test_second_derivatives():
    def program(x):
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return torch.autograd.grad(g.pow(2).sum(), x)[0]

    results = [program(t.requires_grad_()) for t in (X.clone(), up(X))]
    same(results[1], results[0])


def test_modes():
    x = up(X).requires_grad_()
    with torch.no_grad():
        assert not (x * 2).requires_grad
        x.add_(1)
    same(x.detach(), X + 1)
    with torch.inference_mode():
        y = x * 2
    assert y.is_inference()
    with pytest.raises(RuntimeError):
        x.add_(1)
    with torch.set_grad_enabled(False):
        assert not (x + 1).requires_grad


def test_hooks_and_versions():
    x = up(X).requires_grad_()
    seen = []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.device.type) or g * 10)
    x.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
    y.sum().backward()
    assert seen == [DEVICE, "accumulated"]
    same(x.grad, torch.full_like(X, 20))
    z = x.exp()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_custom_function():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2 + ctx.saved_tensors[0] * 0

    gradients(Double.apply, X)


def test_backward_from_threads():
    results = {}

    def work(i):
        x = up(X + i).requires_grad_()
        (x.pow(2).sum() * i).backward()
        results[i] = x.grad

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for i in range(1, 5):
        same(results[i], 2 * i * (X + i))


def test_empty_backward():
    for function in (torch.true_divide, torch.sub, torch.mul, lambda a, b: torch.cat([a, b]), lambda a, b: a @ b.T):
        a, b = (torch.empty(2, 0, device=DEVICE, requires_grad=True) for _ in range(2))
        function(a, b).sum().backward()
        assert a.grad.shape == (2, 0) and a.grad.device.type == DEVICE


def test_gradcheck():
    x, w = (
        torch.rand(2, 3, dtype=torch.float64, device=DEVICE, requires_grad=True),
        torch.rand(2, 3, dtype=torch.float64, device=DEVICE, requires_grad=True),
    )
    assert torch.autograd.gradcheck(lambda a, b: F.linear(a.tanh(), b).sigmoid(), (x, w))


def test_gradients_across_devices():
    x = X.clone().requires_grad_()
    (x.to(DEVICE) * 2).cpu().sum().backward()
    assert x.grad.device.type == "cpu" and torch.equal(x.grad, torch.full_like(X, 2))


def test_saved_tensor_hooks():
    with torch.autograd.graph.save_on_cpu():
        x = up(X).requires_grad_()
        y = (x * x).exp()
    y.sum().backward()
    same(x.grad, 2 * X * (X * X).exp())


def test_layers_by_functional():
    image, kernel = torch.rand(2, 3, 6, 6), torch.rand(4, 3, 3, 3)
    gradients(lambda x, w: F.conv2d(x, w, stride=2, padding=1), image, kernel, rtol=1e-4, atol=1e-4)
    gradients(
        lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1)[:, :2].contiguous(), stride=2),
        image,
        kernel,
        rtol=1e-4,
        atol=1e-4,
    )
    gradients(lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2) + F.adaptive_avg_pool2d(x, 3), image)
    gradients(lambda x: F.batch_norm(x, None, None, training=True), image, rtol=1e-4, atol=1e-5)
    gradients(lambda x: F.group_norm(x, 3), image, rtol=1e-4, atol=1e-5)
    gradients(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), image)
    q = torch.rand(2, 2, 5, 4)
    gradients(lambda a: F.scaled_dot_product_attention(a, a.flip(2), a * 2, is_causal=True), q, rtol=1e-4, atol=1e-5)


def test_cross_entropy():
    x, y = torch.randn(5, 7), torch.tensor([0, 6, 3, -100, 2])

    def program(a, b):
        a.requires_grad_()
        loss = F.cross_entropy(a, b, label_smoothing=0.1)
        loss.backward()
        return loss.detach(), a.grad

    results = [program(x.clone(), y), program(up(x), up(y))]
    same(results[1], results[0])


def test_detach_shares():
    both(lambda t: t.detach().add_(1), X)
