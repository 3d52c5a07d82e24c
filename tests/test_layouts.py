"""Results are laid out as the CPU lays them out."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE


def ones(x, *shape):
    return torch.ones(shape, device=x.device)


FUNCTIONS = dict(
    convolution=lambda x: F.conv2d(x, ones(x, 4, 8, 3, 3)),
    pointwise_convolution=lambda x: F.conv2d(x, ones(x, 4, 8, 1, 1)),
    depthwise_convolution=lambda x: F.conv2d(x, ones(x, 8, 1, 3, 3), groups=8),
    transposed_convolution=lambda x: F.conv_transpose2d(x, ones(x, 8, 4, 3, 3)),
    weight=lambda x: F.conv2d(x.contiguous(), ones(x, 4, 8, 3, 3).to(memory_format=torch.channels_last)),
    batch_norm=lambda x: F.batch_norm(x, None, None, training=True),
    batch_norm_of_running=lambda x: F.batch_norm(x, 0 * ones(x, 8), ones(x, 8)),
    instance_norm=F.instance_norm,
    layer_norm=lambda x: F.layer_norm(x, [8]),
    relu=F.relu,
    gelu=F.gelu,
    prelu=lambda x: F.prelu(x, ones(x, 8)),
    glu=lambda x: F.glu(x, 1),
    max_pool=lambda x: F.max_pool2d(x, 2),
    avg_pool=lambda x: F.avg_pool2d(x, 2),
    adaptive_avg_pool=lambda x: F.adaptive_avg_pool2d(x, 2),
    adaptive_max_pool=lambda x: F.adaptive_max_pool2d(x, 2),
    nearest=lambda x: F.interpolate(x, scale_factor=2),
    bilinear=lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    bicubic=lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    pad=lambda x: F.pad(x, (1, 1, 1, 1)),
    reflection_pad=lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    replication_pad=lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    pixel_shuffle=lambda x: F.pixel_shuffle(x, 2),
    pixel_unshuffle=lambda x: F.pixel_unshuffle(x, 2),
    channel_shuffle=lambda x: F.channel_shuffle(x, 2),
    cat=lambda x: torch.cat([x, x], 1),
    stack=lambda x: torch.stack([x, x]),
    softmax=lambda x: F.softmax(x, 1),
    log_softmax=lambda x: F.log_softmax(x, 1),
    where=lambda x: torch.where(x > 0, x, 0),
    cumsum=lambda x: x.cumsum(1),
    sum=lambda x: x.sum(0, keepdim=True),
    max=lambda x: x.max(1)[0],
    flip=lambda x: x.flip(1),
    roll=lambda x: x.roll(1, 1),
    index=lambda x: x[torch.tensor([0, 1], device=x.device)],
    index_select=lambda x: x.index_select(1, torch.tensor([0, 1], device=x.device)),
    gather=lambda x: x.gather(1, torch.zeros(2, 3, 8, 8, dtype=torch.long, device=x.device)),
    sort=lambda x: x.sort(1)[0],
    topk=lambda x: x.topk(2, 1)[0],
    tril=torch.tril,
    clone=torch.clone,
    matmul=lambda x: x @ x,
    repeat=lambda x: x.repeat(1, 2, 1, 1),
    masked_fill=lambda x: x.masked_fill(x > 0, 1.0),
    lerp=lambda x: torch.lerp(x, x, 0.5),
    transposed=lambda x: x.transpose(1, 2) + 1,
    permuted=lambda x: x.permute(3, 1, 0, 2) * 2,
)


@pytest.mark.parametrize("backward", (False, True), ids=("forward", "backward"))
@pytest.mark.parametrize("layout", ("channels_last", "permuted"))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_strides(name, layout, backward):
    data = torch.randn(2, 8, 8, 8, generator=torch.Generator().manual_seed(0))
    data = data.to(memory_format=torch.channels_last) if layout == "channels_last" else data.permute(0, 2, 3, 1)
    results = []
    for device in ("cpu", DEVICE):
        x = torch.empty_strided(data.shape, data.stride(), device=device).copy_(data).requires_grad_(backward)
        y = FUNCTIONS[name](x)
        results.append(torch.autograd.grad((y * y).sum(), x)[0] if backward else y)
    want, got = results
    assert (got.shape, got.stride()) == (want.shape, want.stride())


@pytest.mark.parametrize(
    "name", ("logical_and", "logical_or", "logical_xor", "floor_divide", "ldexp", "add", "eq", "atan2")
)
def test_strides_of_broadcast_operands(name):
    a = torch.arange(1.0, 51.0).reshape(5, 1, 10).permute(2, 1, 0)
    b = torch.arange(1.0, 51.0).reshape(5, 10).t()
    want, got = getattr(torch, name)(a, b), getattr(torch, name)(a.to(DEVICE), b.to(DEVICE))
    assert (got.shape, got.stride()) == (want.shape, want.stride())
    torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("name", ("logical_or", "floor_divide", "fmod", "xlogy", "div"))
def test_strides_of_out_tensors_that_are_resized(name):
    a, b = torch.arange(1.0, 25.0).reshape(2, 3, 4).permute(2, 0, 1), torch.ones(2, 3)
    want = getattr(torch, name)(a, b, out=torch.empty(0))
    got = getattr(torch, name)(a.to(DEVICE), b.to(DEVICE), out=torch.empty(0, device=DEVICE))
    assert (got.shape, got.stride()) == (want.shape, want.stride())
    torch.testing.assert_close(got.cpu(), want)


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="without MKL the CPU lays transforms out differently")
@pytest.mark.parametrize(
    "name", ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "rfftn", "irfftn", "fft", "rfft", "irfft")
)
def test_strides_of_transforms(name):
    """Dimensions that are not transformed come first, by falling strides of the operand, then the transformed ones."""
    transform = getattr(torch.fft, name)
    for shape in ((3, 8), (2, 3, 8), (4, 2, 3, 6)):
        for order in (range(len(shape)), reversed(range(len(shape))), (*range(1, len(shape)), 0)):
            data = torch.randn(shape, generator=torch.Generator().manual_seed(0)).permute(*order)
            if name.startswith("i"):
                data = data.to(torch.complex64)
            for dim in (0, -1) if name.endswith("t") else ((0,), (0, 1), (1, 0), (-1, 0), (-2, -1)):
                x = torch.empty_strided(data.shape, data.stride(), dtype=data.dtype, device=DEVICE).copy_(data)
                want, got = transform(data, dim=dim, norm="ortho"), transform(x, dim=dim, norm="ortho")
                assert (got.shape, got.stride()) == (want.shape, want.stride()), (shape, data.stride(), dim)
                torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:aten.*runs on the CPU")
def test_strides_of_a_result_with_gaps():
    a, b = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.ones(5, 2)
    want, got = torch.linalg.lstsq(a, b).solution, torch.linalg.lstsq(a.to(DEVICE), b.to(DEVICE)).solution
    assert (got.shape, got.stride()) == (want.shape, want.stride())
    torch.testing.assert_close(got.cpu(), want)
