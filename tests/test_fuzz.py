"""Random programs of views, in-place writes, arithmetic and reductions do on the device what they do on the CPU."""

import os

import torch
from helpers import DEVICE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "500"))
SHAPE = (4, 6)

# A program is a list of steps (name, number, number, number): every list of numbers is a valid program, since each step takes what it
# needs modulo what it has. Values stay small integers, so that float32 is exact and any difference is an error.
VIEWS = dict(
    transpose=lambda t, a, b, c: t.transpose(a % t.dim(), b % t.dim()) if t.dim() else t,
    select=lambda t, a, b, c: t.select(a % t.dim(), b % t.shape[a % t.dim()]) if t.dim() > 1 and t.shape[a % t.dim()] else t,
    slice=lambda t, a, b, c: t[(slice(None),) * (a % t.dim()) + (slice(b % 3, None, c % 3 + 1),)] if t.dim() else t,
    narrow=lambda t, a, b, c: t.narrow(a % t.dim(), b % t.shape[a % t.dim()], 1 + c % (t.shape[a % t.dim()] - b % t.shape[a % t.dim()])) if t.dim() and t.shape[a % t.dim()] else t,
    unsqueeze=lambda t, a, b, c: t.unsqueeze(a % (t.dim() + 1)) if t.dim() < 4 else t,
    squeeze=lambda t, a, b, c: t.squeeze(),
    diagonal=lambda t, a, b, c: t.diagonal(a % 3 - 1, 0, 1) if t.dim() >= 2 else t,
    flatten=lambda t, a, b, c: t.view(-1) if t.is_contiguous() else t,
    as_strided=lambda t, a, b, c: t.as_strided((2, 2), (a % 3 + 1, b % 2 + 3), t.storage_offset()) if t.numel() >= 12 and t.is_contiguous() else t,
    detach=lambda t, a, b, c: t.detach(),
    unfold=lambda t, a, b, c: t.unfold(-1, 2, 2) if t.dim() and t.dim() < 3 and t.shape[-1] >= 2 else t,
)  # fmt: skip
VALUES = dict(
    add=lambda t, u, a: t + u, subtract=lambda t, u, a: t - u, minimum=lambda t, u, a: torch.minimum(t, u), multiply=lambda t, u, a: (t * u) % 7, number=lambda t, u, a: t + a % 5,
    where=lambda t, u, a: torch.where(t > u, t, u), negate=lambda t, u, a: -t, clamp=lambda t, u, a: t.clamp(-(a % 4), a % 6), flip=lambda t, u, a: t.flip(0) if t.dim() else t,
    contiguous=lambda t, u, a: t.contiguous(), sum=lambda t, u, a: t.sum(a % t.dim(), keepdim=True) if t.dim() else t.sum(), amax=lambda t, u, a: t.amax(a % t.dim(), keepdim=True) if t.numel() and t.dim() else t,
    cumsum=lambda t, u, a: t.cumsum(a % t.dim()) % 11 if t.dim() else t, cat=lambda t, u, a: torch.cat([t, t], 0)[: t.shape[0]] if t.dim() else t, integers=lambda t, u, a: t.long() // 2, roll=lambda t, u, a: t.roll(a % 3, 0) if t.dim() else t,
    sort=lambda t, u, a: t.sort(-1)[0] if t.dim() else t, mask=lambda t, u, a: t.masked_fill(t > a % 5, -1),
)  # fmt: skip
WRITES = dict(
    add_=lambda t, u, a: t.add_(u), multiply_=lambda t, u, a: t.mul_(a % 3), fill_=lambda t, u, a: t.fill_(a % 9), copy_=lambda t, u, a: t.copy_(u), zero_=lambda t, u, a: t.zero_(),
    set_=lambda t, u, a: t.__setitem__(0, a % 8) if t.dim() and t.shape[0] else None, masked_=lambda t, u, a: t.masked_fill_(t > a % 5, 2), negate_=lambda t, u, a: t.neg_(),
    slice_=lambda t, u, a: t[..., ::2].add_(1) if t.dim() else None, remainder_=lambda t, u, a: t.remainder_(5), number_=lambda t, u, a: t.sub_(a % 4, alpha=2), clamp_=lambda t, u, a: t.clamp_(-3, a % 6),
)  # fmt: skip

STEP = st.tuples(st.sampled_from([*VIEWS, *VALUES, *WRITES]), st.integers(0, 7), st.integers(0, 7), st.integers(0, 7))


def run(steps, device, dtype):
    """All tensors of the program at its end, as CPU tensors, and the number of the step that PyTorch refused, if one was."""
    tensors = [torch.arange(24, dtype=dtype).view(SHAPE).to(device) % 10, torch.ones(SHAPE, dtype=dtype, device=device)]
    refused = []
    for i, (name, a, b, c) in enumerate(steps):
        t, u = tensors[-1 - a % min(3, len(tensors))], tensors[-1 - b % len(tensors)]
        if name not in VIEWS and not (
            t.dim() >= u.dim() and all(x in (1, y) for x, y in zip(reversed(u.shape), reversed(t.shape), strict=False))
        ):
            u = torch.full((), 2, dtype=dtype, device=device)
        try:
            if name in VIEWS:
                tensors.append(VIEWS[name](t, a, b, c))
            elif name in WRITES:
                WRITES[name](t, u, c)
            else:
                result = VALUES[name](t, u, c)
                tensors.append(result.to(dtype))
        except (RuntimeError, IndexError) as error:
            refused.append((i, type(error).__name__))
    return (
        [t.cpu() for t in tensors],
        [(tuple(t.shape), t.stride() if t._is_view() else None) for t in tensors],
        refused,
    )


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 500,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(
    st.lists(STEP, min_size=1, max_size=10),
    st.sampled_from([torch.float32, torch.float32, torch.int64, torch.bfloat16]),
)
def test_random_programs(steps, dtype):
    want, shapes, refusals = run(steps, "cpu", dtype)
    got, our_shapes, our_refusals = run(steps, DEVICE, dtype)
    assert our_refusals == refusals and our_shapes == shapes
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        assert torch.equal(g, w), f"tensor {i} of {steps} in {dtype}:\n{g}\n{w}"
