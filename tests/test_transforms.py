"""torch.func over the device's operators."""

import torch
import torch.nn.functional as F
from helpers import both, up
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

X, W = torch.rand(4, 3), torch.rand(5, 3)


def test_vmap():
    both(lambda x, w: vmap(lambda v: (w @ v).tanh())(x), X, W)
    both(lambda x, w: vmap(torch.dot)(x, x + 1), X, W)
    both(lambda x, w: vmap(lambda v: v.softmax(0).cumsum(0), in_dims=1, out_dims=1)(x), X, W)
    both(lambda x, w: vmap(vmap(lambda a: a * 2 + a.sin()))(x), X, W)
    both(lambda x, w: vmap(lambda v: F.linear(v, w).sort()[0])(x), X, W)
    both(lambda x, w: vmap(lambda v: torch.where(v > 0.5, v, v[0]))(x), X, W)


def test_derivatives():
    function = lambda v: (v.sin() * v.flip(0)).cumsum(0)  # noqa: E731
    both(lambda x, w: jacrev(function)(x[0]), X, W)
    both(lambda x, w: jacfwd(function)(x[0]), X, W)
    both(lambda x, w: grad(lambda v: function(v).sum())(x[0]), X, W)
    both(lambda x, w: hessian(lambda v: (v * v).prod())(x[0]), X, W)
    both(lambda x, w: jvp(lambda v: (w @ v).exp(), (x[0],), (x[1],)), X, W)
    both(lambda x, w: vjp(lambda v: w @ v, x[0])[1](torch.ones(5, device=x.device))[0], X, W)
    both(lambda x, w: vmap(grad(lambda v: (w @ v).square().sum()))(x), X, W)


def test_forward_mode():
    import torch.autograd.forward_ad as forward

    def program(x, w):
        with forward.dual_level():
            dual = forward.make_dual(x, torch.ones_like(x))
            return forward.unpack_dual((dual @ w.t()).sigmoid()).tangent

    both(program, X, W)


def test_per_sample_gradients_of_a_module():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    parameters = {k: v.detach() for k, v in model.named_parameters()}

    def loss(p, x):
        return functional_call(model, p, (x,)).square().sum()

    want = vmap(grad(loss), in_dims=(None, 0))(parameters, X)
    got = vmap(grad(loss), in_dims=(None, 0))(up(parameters), up(X))
    for name in want:
        torch.testing.assert_close(got[name].cpu(), want[name], rtol=1e-4, atol=1e-5)


def test_random_under_vmap():
    draws = vmap(lambda v: v + torch.rand_like(v), randomness="different")(up(torch.zeros(4, 3)))
    assert len({tuple(r) for r in draws.tolist()}) == 4
    draws = vmap(lambda v: v + torch.rand(3, device=v.device), randomness="same")(up(torch.zeros(4, 3)))
    assert len({tuple(r) for r in draws.tolist()}) == 1
