"""Wrong input gives PyTorch's exception, and leaves the process and every tensor usable."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, ON_CPU, child, same, up

ERRORS = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)


def operands():
    return dict(
        v=torch.ones(3),
        w=torch.ones(4),
        m=torch.ones(2, 3),
        i=torch.tensor([0]),
        image=torch.ones(1, 3, 4, 4),
        kernel=torch.ones(2, 2, 3, 3),
        b=torch.tensor([True]),
        z=torch.ones(2) * 1j,
    )


WRONG = dict(
    add=lambda o: o["v"] + o["w"],
    matmul=lambda o: o["m"] @ o["m"],
    vector_product=lambda o: o["v"] @ o["w"],
    matrix_vector=lambda o: torch.mv(o["m"], o["w"]),
    cat=lambda o: torch.cat([o["m"], o["v"]]),
    stack=lambda o: torch.stack([o["v"], o["v"][:2]]),
    view=lambda o: o["v"].view(2, 2),
    view_strided=lambda o: o["m"].t().view(6),
    linear=lambda o: F.linear(o["m"], torch.ones(5, 4, device=o["m"].device)),
    bmm=lambda o: torch.bmm(o["m"][None], o["m"][None]),
    conv=lambda o: F.conv2d(o["image"], o["kernel"]),
    kernel_too_large=lambda o: F.conv2d(o["image"], torch.ones(1, 3, 7, 7, device=o["m"].device)),
    pool=lambda o: F.max_pool2d(o["image"], 9),
    copy=lambda o: o["v"].copy_(torch.ones(5)),
    dimension=lambda o: o["m"].sum(5),
    transpose=lambda o: o["m"].transpose(0, 3),
    select=lambda o: o["m"].select(0, 9),
    item_index=lambda o: o["m"][5],
    index_dimension=lambda o: o["m"].index_select(2, o["i"]),
    index_dtype=lambda o: o["m"].index_select(0, o["v"]),
    index_mask=lambda o: o["m"][torch.ones(5, dtype=torch.bool, device=o["m"].device)],
    gather=lambda o: o["m"].gather(0, o["i"]),
    too_many_indices=lambda o: o["v"][0, 0],
    bit_operation=lambda o: o["b"] ^ 1.5,
    float_bits=lambda o: o["v"] & o["v"],
    layer_norm=lambda o: F.layer_norm(o["m"], (4,)),
    batch_norm=lambda o: F.batch_norm(o["m"], torch.ones(5, device=o["m"].device), torch.ones(5, device=o["m"].device)),
    group_norm=lambda o: F.group_norm(o["image"], 2),
    expand=lambda o: o["m"].expand(5, 3),
    reshape=lambda o: o["m"].reshape(4, -1),
    squeeze_to_number=lambda o: o["m"].item(),
    dtype_mix=lambda o: o["m"] @ o["m"].t().double(),
    integer_mean=lambda o: o["i"].mean(),
    complex_order=lambda o: o["z"] < o["z"],
    complex_to_real_store=lambda o: o["v"].to(torch.int64).copy_(o["v"]).mul_(0.5),
    cross_entropy=lambda o: F.cross_entropy(o["m"], torch.zeros(3, dtype=torch.long, device=o["m"].device)),
    embedding=lambda o: F.embedding(o["v"], o["m"]),
    topk=lambda o: o["v"].topk(9),
    out_dtype=lambda o: torch.add(o["v"], o["v"], out=torch.empty(3, dtype=torch.long, device=o["v"].device)),
    split=lambda o: o["v"].split([1, 1]),
    roll=lambda o: o["v"].roll(1, 4),
    einsum=lambda o: torch.einsum("ij,jk->ik", o["m"], o["m"]),
    normal=lambda o: torch.normal(0.0, -1.0, (2,), device=o["v"].device),
    dropout=lambda o: F.dropout(o["v"], 1.5),
    multinomial=lambda o: torch.multinomial(o["v"], 5),
    requires_grad_of_integers=lambda o: o["i"].requires_grad_(),
    backward_of_matrix=lambda o: (o["m"].requires_grad_() * 2).backward(),
    negative_size=lambda o: torch.ones(-1, device=o["v"].device),
    arange=lambda o: torch.arange(3, 0, 1, device=o["v"].device),
    attention=lambda o: F.scaled_dot_product_attention(o["image"], o["image"][..., :2], o["image"]),
    matmul_out_dtype=lambda o: torch.mm(o["m"], o["m"].t(), out=o["m"].new_empty(2, 2, dtype=torch.float64)),
    sort_out_dtype=lambda o: torch.sort(o["v"], out=(o["v"].clone(), o["i"].int())),
    softmax_of_integers=lambda o: o["i"].softmax(0),
    sort_of_complex=lambda o: o["z"].sort(),
    error_function_of_complex=lambda o: o["z"].erf(),
    fill_beyond_dtype=lambda o: o["i"].to(torch.uint8).fill_(300),
    logit_written=lambda o: o["i"].logit_(),
    full_of_complex=lambda o: torch.full((2,), 1j, dtype=torch.float32, device=o["v"].device),
    full_beyond_dtype=lambda o: torch.full((2,), 1e300, device=o["v"].device),
    element_of_complex=lambda o: o["v"].__setitem__(0, 1j),
    index_fill_of_complex=lambda o: o["v"].index_fill(0, o["i"], 1j),
    scatter_of_complex=lambda o: o["v"].scatter(0, o["i"], 1j),
    clamp_beyond_dtype=lambda o: o["v"].half().clamp_(-1, 1e6),
    clamp_integers_beyond_dtype=lambda o: o["i"].to(torch.int8).clamp(max=300),
    power_beyond_dtype=lambda o: o["i"].to(torch.int8).pow(300),
    add_beyond_dtype=lambda o: o["v"].add(o["v"], alpha=1e300),
    subtract_beyond_dtype=lambda o: o["v"].half().subtract(1, alpha=1e6),
    hardshrink_beyond_dtype=lambda o: F.hardshrink(o["v"], 1e300),
    logit_beyond_dtype=lambda o: o["v"].logit(1e300),
    bucketize=lambda o: torch.bucketize(o["v"], o["m"]),
    index_of_two_dimensions=lambda o: o["v"].index_select(0, o["i"].expand(2, 2)),
    index_of_two_dimensions_into_matrix=lambda o: o["m"].index_select(0, o["i"].expand(2, 2)),
    index_of_bytes=lambda o: o["v"].index_select(0, o["i"].to(torch.uint8)),
    assertion=lambda o: torch._assert_async(o["v"].sum() > 100),
    assertion_message=lambda o: torch._assert_async(o["v"].sum() > 100, "too small"),
    index_put_dtype=lambda o: o["v"].index_put_((o["i"],), o["i"]),
    index_put_dtype_of_new=lambda o: o["v"].index_put((o["i"],), o["v"][:1].double()),
    index_copy_dtype=lambda o: o["v"].index_copy(0, o["i"], o["i"]),
    put_dtype=lambda o: o["v"].put_(o["i"], o["i"]),
    bernoulli_of_integers=lambda o: torch.bernoulli(o["i"]),
    bernoulli_of_integer_probabilities=lambda o: o["v"].bernoulli_(torch.ones_like(o["v"], dtype=torch.int64)),
    bernoulli_probability=lambda o: o["v"].bernoulli_(1.5),
    poisson_of_integers=lambda o: torch.poisson(o["i"]),
    exponential_rate=lambda o: o["v"].exponential_(-1),
    uniform_beyond_dtype=lambda o: o["v"].half().uniform_(0, 1e6),
    random_beyond_dtype=lambda o: o["i"].to(torch.int8).random_(300),
    random_from_beyond_dtype=lambda o: o["i"].to(torch.int8).random_(-300, 3),
    random_half_beyond_dtype=lambda o: o["v"].half().random_(0, 2**24),
    random_half_from_beyond_dtype=lambda o: o["v"].half().random_(2**20, 2**24),
    random_of_complex=lambda o: o["z"].random_(),
    random_complex_beyond=lambda o: o["z"].random_(0, 5),
    random_nothing=lambda o: o["v"][:0].random_(5, 2),
    randint_of_nothing=lambda o: torch.randint(0, 0, (0,), device=o["v"].device),
    uniform_of_complex=lambda o: o["z"].uniform_(5, 2),
    uniform_integers_of_nothing=lambda o: o["i"][:0].uniform_(),
    cauchy_integers_of_nothing=lambda o: o["i"][:0].cauchy_(),
    histogram_without_bins=lambda o: torch.histogram(o["v"], 0),
    histogram_of_one_edge=lambda o: torch.histogram(o["v"], o["v"][:1]),
    histogram_range=lambda o: torch.histogram(o["v"], 5, range=(5.0, 1.0)),
    histogram_infinite=lambda o: torch.histogram(o["v"], 5, range=(0.0, float("inf"))),
    histc_infinite=lambda o: torch.histc(o["v"], 5, min=0, max=float("inf")),
    histc_beyond_dtype=lambda o: torch.histc(o["i"].to(torch.uint8), 5, min=-1, max=2),
    ldexp_of_integers=lambda o: o["i"].ldexp_(o["i"]),
    out_that_would_grow=lambda o: torch.add(o["v"][:1], o["v"], out=o["v"][:1]),
    out_operand_that_would_grow=lambda o: torch.add(o["i"], torch.ones_like(o["w"]).long(), out=o["i"]),
    logical_operand_that_would_grow=lambda o: torch.logical_and(o["b"], torch.ones_like(o["w"]), out=o["b"]),
    floor_divide_by_zero=lambda o: o["i"] // 0,
    remainder_by_zero=lambda o: o["i"].remainder_(0),
    truncated_by_zero=lambda o: torch.div(o["i"], 0, rounding_mode="trunc"),
    variance_of_integers=lambda o: o["i"].var(),
    nested=lambda o: torch._nested_tensor_from_mask(o["image"][0], o["m"] > 5),
    nested_mask=lambda o: torch._nested_tensor_from_mask(o["image"][0], torch.eye(3, 4, device=o["v"].device) > 0),
    mixed_addmm=lambda o: torch.addmm(o["v"], o["m"].double(), torch.eye(3, device=o["m"].device)),
)


@pytest.mark.parametrize("name", WRONG)
def test_same_exception_as_the_cpu(name):
    host, device = operands(), up(operands())
    with pytest.raises(ERRORS) as want:
        WRONG[name](host)
    with pytest.raises(ERRORS) as got:
        WRONG[name](device)
        torch.accelerator.synchronize()
    assert got.type is want.type, f"{got.type.__name__} for {want.type.__name__}: {got.value}"
    assert str(got.value).strip() and "Traceback" not in str(got.value)
    for key, value in operands().items():
        same(device[key].detach(), value, f"{key} after {name}")
    same(device["v"] + device["v"], host["v"].detach() * 2)


OUTSIDE = dict(
    bernoulli=lambda d: torch.bernoulli(torch.tensor([0.5, -1.0], device=d)),
    multinomial=lambda d: torch.multinomial(torch.tensor([0.5, -1.0], device=d), 1),
    normal=lambda d: torch.normal(torch.zeros(2, device=d), torch.tensor([1.0, -1.0], device=d)),
    cross_entropy=lambda d: F.binary_cross_entropy(torch.tensor([0.5, 2.0], device=d), torch.ones(2, device=d)),
    masked_scatter=lambda d: torch.ones(4, device=d).masked_scatter(
        torch.ones(4, dtype=torch.bool, device=d), torch.ones(2, device=d)
    ),
    singular_values=lambda d: torch.linalg.svdvals(torch.full((2, 2), float("nan"), device=d)),
    eigenvalues=lambda d: torch.linalg.eigh(torch.full((3, 3), float("nan"), device=d)),
    one_hot=lambda d: F.one_hot(torch.tensor([0, -1], device=d), 3),
    floor_divide=lambda d: torch.tensor([1, 2], device=d) // torch.tensor([1, 0], device=d),
    floor_divide_number=lambda d: torch.tensor([1, 2], device=d) // 0,
    floor_divide_written=lambda d: torch.tensor([1, 2], device=d).floor_divide_(torch.tensor([1, 0], device=d)),
    remainder=lambda d: torch.tensor([1, 2], device=d) % torch.tensor([0, 1], device=d),
    remainder_of_number=lambda d: 5 % torch.tensor([0, 1], device=d),
    fmod=lambda d: torch.fmod(torch.tensor([1, 2], device=d), torch.tensor(0, device=d)),
    truncated=lambda d: torch.div(torch.tensor([1], device=d), torch.tensor([0], device=d), rounding_mode="trunc"),
)


@pytest.mark.skipif(ON_CPU, reason="modes of the device")
@pytest.mark.parametrize("name", OUTSIDE)
def test_debug_mode_checks_values(name):
    from torch_tpu._internal.execution_mode import EagerMode, set_eager_mode

    with pytest.raises(ERRORS) as want:
        OUTSIDE[name]("cpu")
    with set_eager_mode(EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING), pytest.raises(ERRORS) as got:
        OUTSIDE[name](DEVICE)
    # A class that is out of range is RuntimeError in one_hot's own words, IndexError in the scatter below it.
    assert got.type is want.type or name == "one_hot", f"{got.type.__name__} for {want.type.__name__}: {got.value}"


@pytest.mark.skipif(ON_CPU, reason="modes of the device")
def test_debug_mode_names_wrong_shapes_first():
    from torch_tpu._internal.execution_mode import EagerMode, set_eager_mode

    x, index = torch.ones(2, 3, device=DEVICE), torch.full((2, 4, 1), 9, device=DEVICE)
    with set_eager_mode(EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING):
        with pytest.raises(RuntimeError, match="same number of dimensions"):
            torch.gather(x, 1, index)
        with pytest.raises(IndexError, match="index 9 is out of bounds"):
            torch.gather(x, 1, index[0].T)


OVERLAPS = dict(
    shifted=lambda x: x[1:].add_(x[:-1]),
    out=lambda x: torch.exp(x[:3], out=x[2:5]),
    transposed=lambda x: x[:4].view(2, 2).t().mul_(x[1:5].view(2, 2)),
    columns=lambda x: x.view(2, 3)[0, :2].add_(x.view(2, 3)[0, 1:]),
    itself=lambda x: x.add_(x),
    apart=lambda x: x[::2].add_(x[1::2]),
    halves=lambda x: torch.add(x[:3], x[3:], out=x[3:]),
    copied=lambda x: x[1:].copy_(x[:-1]),
    assigned=lambda x: x.__setitem__(slice(1, None), x[:-1]),
    copied_onto_itself=lambda x: x.copy_(x),
    copied_apart=lambda x: x[:3].copy_(x[3:]),
    where=lambda x: torch.where(x[1:] > 2, x[1:], x[:-1], out=x[1:]),
    cat=lambda x: torch.cat([x[:2], x[2:4]], out=x[:4]),
    cat_apart=lambda x: torch.cat([x[:1], x[1:3]], out=x[3:]),
    gather=lambda x: torch.gather(x[1:4], 0, torch.tensor([0, 1, 2], device=x.device), out=x[:3]),
    index_select=lambda x: torch.index_select(x, 0, torch.tensor([1], device=x.device), out=x[:1]),
    cumsum=lambda x: torch.cumsum(x[1:], 0, out=x[:-1]),
    cumsum_itself=lambda x: torch.cumsum(x, 0, out=x),
    softmax_itself=lambda x: torch.softmax(x, 0, out=x),
    scatter=lambda x: x[:3].scatter_(0, torch.tensor([0, 1, 2], device=x.device), x[1:4]),
)


@pytest.mark.parametrize("name", OVERLAPS)
def test_operands_that_share_a_part_with_the_result(name):
    """Refused as on the CPU, each time, where they are not the very elements that are written."""
    outcomes = []
    for device in ("cpu", DEVICE):
        x = torch.arange(6.0, device=device)
        for _ in range(2):
            try:
                OVERLAPS[name](x)
                outcomes.append(x.tolist())
            except RuntimeError as error:
                outcomes.append(str(error)[:60])
    assert outcomes[:2] == outcomes[2:]


def positions(*values):
    return torch.tensor(values, device=DEVICE)


BAD_INDICES = dict(
    embedding=lambda x: F.embedding(positions(0, 9), x),
    gather=lambda x: x.gather(1, positions(9)[None]),
    gather_negative=lambda x: x.gather(1, positions(-1)[None]),
    index_select=lambda x: x.index_select(0, positions(3)),
    index=lambda x: x[positions(3)],
    index_negative=lambda x: x[positions(-4)],
    index_second=lambda x: x[positions(0), positions(4)],
    index_put=lambda x: x.clone().index_put_((positions(5),), torch.ones(1, device=DEVICE)),
    index_put_accumulate=lambda x: x.clone().index_put_((positions(5),), torch.ones(1, device=DEVICE), accumulate=True),
    scatter=lambda x: x.scatter(0, positions(7)[None], 1.0),
    scatter_source=lambda x: x.scatter(0, positions(7)[None], x),
    scatter_add=lambda x: x.scatter_add(0, positions(7)[None], x),
    scatter_reduce=lambda x: x.scatter_reduce(0, positions(7)[None], x, "amax"),
    index_add=lambda x: x.index_add(0, positions(3), x[:1]),
    index_copy=lambda x: x.index_copy(0, positions(-1), x[:1]),
    index_fill=lambda x: x.index_fill(0, positions(-4), 1.0),
    take=lambda x: x.take(positions(12)),
    put=lambda x: x.clone().put_(positions(12), torch.ones(1, device=DEVICE)),
    cross_entropy=lambda x: F.cross_entropy(x, positions(0, 1, 4)),
    cross_entropy_negative=lambda x: F.cross_entropy(x, positions(0, 1, -3)),
)
# RuntimeError on the CPU.
BAD_VALUES = dict(
    embedding_bag=lambda x: F.embedding_bag(positions(0, 5), x, positions(0)),
    first_offset=lambda x: F.embedding_bag(positions(0, 1, 2), x, positions(1, 2), mode="sum"),
    last_offset=lambda x: F.embedding_bag(positions(0, 1, 2), x, positions(0, 9), mode="max"),
    decreasing_offsets=lambda x: F.embedding_bag(positions(0, 1, 2), x, positions(0, 2, 1)),
    multi_margin=lambda x: F.multi_margin_loss(x, positions(0, 1, 4)),
    multi_margin_negative=lambda x: F.multi_margin_loss(x, positions(0, 1, -1)),
    multilabel_margin=lambda x: F.multilabel_margin_loss(x[0], positions(0, 4, -1, 0)),
    multilabel_margin_negative=lambda x: F.multilabel_margin_loss(x[0], positions(0, -2, -1, 0)),
    max_unpool=lambda x: F.max_unpool2d(x[None, None, :1, :1], positions(4).view(1, 1, 1, 1), 2),
    max_unpool3d=lambda x: F.max_unpool3d(x[None, None, None, :1, :1], positions(-1).view(1, 1, 1, 1, 1), 2),
    segment_lengths=lambda x: torch.segment_reduce(x, "sum", lengths=positions(2, 2)),
    segment_length_negative=lambda x: torch.segment_reduce(x, "sum", lengths=positions(4, -1)),
    masked_scatter=lambda x: x.masked_scatter(x > 3, x[0]),
    one_hot=lambda x: F.one_hot(positions(0, 3), 3),
    one_hot_negative=lambda x: F.one_hot(positions(0, -1), 3),
)
GOOD_INDICES = dict(
    offsets=lambda x: F.embedding_bag(positions(0, 1, 2), x, positions(0, 1, 1, 3)),
    multilabel_margin=lambda x: F.multilabel_margin_loss(x[0], positions(0, 3, -1, 0)),
    one_hot=lambda x: F.one_hot(positions(0, 2), 3),
    segment_lengths=lambda x: torch.segment_reduce(x, "sum", lengths=positions(2, 1)),
    masked_scatter=lambda x: x.masked_scatter(x > 7, x[0]),
    index=lambda x: x[positions(-3, 2)],
    ignored=lambda x: F.cross_entropy(x, positions(0, 1, -100)),
    index_fill=lambda x: x.index_fill(0, positions(-3), 1.0),
    embedding=lambda x: F.embedding(positions(0, 2), x),
    padding=lambda x: F.embedding_bag(positions(0, 2), x, positions(0), padding_idx=2),
    take=lambda x: x.take(positions(-12, 11)),
    nothing=lambda x: x[:0][positions()[:0].long()],
    nothing_added=lambda x: x.index_add(0, positions()[:0].long(), x[:0]),
    nothing_reduced=lambda x: x.index_reduce(0, positions()[:0].long(), x[:0], "amax"),
    nothing_added_in_place=lambda x: x.clone().index_add_(0, positions()[:0].long(), x[:0]),
    asserted=lambda x: (torch._assert_async(x.sum() == 66), x)[1],
    nothing_of_something=lambda x: x[:, :0][positions(7)],
    decomposed=lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bicubic"),
    outside_the_image=lambda x: F.grid_sample(x[None, None], x.view(1, 3, 2, 2) - 6, align_corners=False),
)


@pytest.mark.skipif(ON_CPU, reason="modes of the device")
@pytest.mark.parametrize("mode", ["DEFER_NEVER", "DEFER_AND_FUSE", "compiled"])
def test_indices_out_of_range(mode):
    """IndexError with the operator's name where the host waits; later reads and other tensors are not concerned."""
    from torch_tpu._internal.execution_mode import EagerMode, set_eager_mode

    x = torch.arange(12.0, device=DEVICE).reshape(3, 4)
    waits = (lambda y: y.sum().item(), lambda y: y.cpu(), lambda y: torch.tpu.synchronize())
    if mode == "compiled":
        waits = waits[:1]
    with set_eager_mode(EagerMode.DEFER_NEVER if mode == "compiled" else EagerMode[mode]):
        # PyTorch's decomposition of multilabel_margin_loss gathers with the -1 that ends a row's classes.
        for name, function in (BAD_INDICES | BAD_VALUES).items():
            if mode == "compiled" and name.startswith("multilabel"):
                continue
            error, said = (RuntimeError, "a value") if name in BAD_VALUES else (IndexError, "an index")
            if mode == "compiled" and name.startswith("multi_margin"):  # decomposed: its gather is what says it
                error, said = (IndexError, "an index")
            called = torch.compile(function) if mode == "compiled" else function
            for wait in waits:
                y = called(x)
                with pytest.raises(error, match=rf"^aten::\w+[.\w]*: {said} is out of range"):
                    wait(y)
                assert x.sum().item() == 66, name
                y.cpu()
        for name, function in GOOD_INDICES.items():
            if mode == "compiled" and name.startswith("multilabel"):
                continue
            y = function(x)
            for wait in waits:
                wait(y)
            torch.tpu.synchronize()
    torch._dynamo.reset()


@pytest.mark.parametrize("name", BAD_VALUES)
def test_bad_values_in_debug_mode(name):
    """As on the CPU: at the call."""
    context = contextlib.nullcontext()
    if not ON_CPU:
        from torch_tpu._internal.execution_mode import EagerMode, set_eager_mode

        context = set_eager_mode(EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING)
    x = torch.arange(12.0, device=DEVICE).reshape(3, 4)
    with context, pytest.raises(RuntimeError):
        BAD_VALUES[name](x)


@pytest.mark.parametrize(
    "call",
    [
        lambda device: F.multi_margin_loss(
            torch.ones(3, device=device), torch.tensor(1, device=device), reduction="none"
        ),
        lambda device: F.adaptive_avg_pool2d(torch.ones(1, 1, 0, 4, device=device), 2),
        lambda device: F.pixel_unshuffle(torch.ones(2, 0, 3, device=device), 3),
        lambda device: F.pixel_unshuffle(torch.ones(2, 0, 4, device=device), 3),
        lambda device: F.adaptive_avg_pool3d(torch.ones(2, 0, 4, 4, 4, device=device), 2),
        lambda device: F.adaptive_avg_pool2d(torch.ones(1, 0, 3, 4, device=device), 2),
        lambda device: F.adaptive_avg_pool2d(torch.ones(1, 4, 4, device=device, dtype=torch.long), 2),
        lambda device: F.interpolate(torch.ones(0, 3, 4, 4, device=device, dtype=torch.uint8), size=2, mode="area"),
        lambda device: torch.ones(0, device=device, dtype=torch.long).normal_(),
        lambda device: torch.ones(0, device=device, dtype=torch.long).log_normal_(),
        lambda device: torch.ones(0, device=device, dtype=torch.bool).exponential_(),
        lambda device: torch.ones(0, device=device, dtype=torch.bool).geometric_(0.5),
        lambda device: torch.tensor([1, 2], device=device).div(0, rounding_mode=None),
        lambda device: torch.ops.aten.div.Scalar_mode(torch.tensor([1, 2], device=device), 0, rounding_mode=None),
        lambda device: torch.ops.aten.div.Scalar_mode(torch.tensor([1, 2], device=device), 0, rounding_mode="floor"),
        lambda device: torch.tensor([1, 2], device=device).remainder(0.0),
        lambda device: F.adaptive_max_pool3d(torch.ones(1, 4, 4, 4, device=device, dtype=torch.long), 2),
    ],
)
def test_shapes_that_the_metadata_does_not_know(call):
    outcomes = []
    for device in ("cpu", DEVICE):
        try:
            outcomes.append(call(device).shape)
        except (RuntimeError, NotImplementedError) as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]


LOSS_DTYPES = dict(
    margin=lambda x, target, w: F.multi_margin_loss(x, target),
    multilabel=lambda x, target, w: F.multilabel_margin_loss(x, target.expand(3, 3).clone()),
    nll=lambda x, target, w: F.nll_loss(x, target),
    mse=lambda x, target, w: F.mse_loss(x, w),
    huber=lambda x, target, w: F.huber_loss(x, w),
    smooth_l1=lambda x, target, w: F.smooth_l1_loss(x, w),
    bag=lambda x, target, w: F.embedding_bag(target.long(), w, target.long(), mode="sum", per_sample_weights=x[0]),
    segments=lambda x, target, w: torch.segment_reduce(w, "sum", lengths=x[0] * 0 + 1),
)


@pytest.mark.parametrize("name", LOSS_DTYPES)
def test_dtypes_that_the_cpu_has_no_kernel_for(name):
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.int8, torch.complex64):
        for target in (torch.int64, torch.int32):
            outcomes = []
            for device in ("cpu", DEVICE):
                x = torch.ones(3, 3, device=device).to(dtype)
                arguments = x, torch.arange(3, device=device).to(target), torch.eye(3, device=device)
                if dtype is not torch.float32 and name in ("mse", "huber", "smooth_l1"):
                    arguments = *arguments[:2], x
                try:
                    outcomes.append(LOSS_DTYPES[name](*arguments).cpu())
                except (RuntimeError, NotImplementedError) as error:
                    outcomes.append(type(error))
            if isinstance(outcomes[0], torch.Tensor):
                torch.testing.assert_close(outcomes[1], outcomes[0], msg=lambda m: f"{dtype}, {target}: {m}")
            else:
                assert outcomes[0] == outcomes[1], f"{dtype}, {target}"


def test_one_hot_counts_the_classes():
    assert F.one_hot(positions(2, 0)).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert F.one_hot(positions(1).view(1, 1, 1), 2).tolist() == [[[[0, 1]]]]
    columns = F.one_hot(torch.arange(6, device=DEVICE).view(2, 3).t(), 7)
    assert columns.stride() == (14, 7, 1) and columns.view(-1, 7).argmax(1).tolist() == [0, 3, 1, 4, 2, 5]
    for values, classes, message in (((-1,), -1, "non-negative"), ((), -1, "infer"), ((0,), 0, "smaller")):
        with pytest.raises(RuntimeError, match=message):
            F.one_hot(positions(*values).long(), classes)
    with pytest.raises(RuntimeError, match="index tensor of type Long|only applicable to index"):
        F.one_hot(positions(1).int(), 2)


@pytest.mark.skipif(ON_CPU, reason="modes of the device")
def test_indices_out_of_range_long_before():
    x = torch.arange(12.0, device=DEVICE).reshape(3, 4)
    x.take(positions(99))
    for _ in range(600):
        x.take(positions(1))
    with pytest.raises(IndexError, match="aten::take"):
        torch.accelerator.synchronize()
    torch.accelerator.synchronize()


@pytest.mark.skipif(ON_CPU, reason="environment of the device")
def test_index_checks_can_be_turned_off():
    code = "import torch; print(torch.arange(3., device='tpu').take(torch.tensor([7], device='tpu')).item())"
    done = child(code, TORCH_TPU_INDEX_CHECKS="0")
    assert done.stdout == "2.0\n" and not done.stderr, done.stderr
    assert "IndexError: aten::take" in child(code).stderr


@pytest.mark.skipif(ON_CPU, reason="two devices")
def test_device_mixes():
    x, y = torch.ones(2, 3), torch.ones(2, 3, device=DEVICE)
    for function in (
        lambda: x + y, lambda: y * x, lambda: x @ y.t(), lambda: torch.cat([x, y]), lambda: torch.where(y > 0, x, y), lambda: y.add_(x), lambda: F.linear(y, x), lambda: torch.stack([y, x]),
        lambda: torch.add(y, y, out=torch.empty(2, 3)), lambda: y.scatter_(0, torch.zeros(1, 3, dtype=torch.long), y), lambda: torch.mm(x, y.t()), lambda: F.embedding(torch.tensor([0]), y),
        lambda: torch.nn.Linear(3, 2)(y), lambda: F.mse_loss(y, x),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="(?i)device|cpu"):
            function()
    y[torch.tensor([0])]
    y[torch.tensor([True, False])]
    same(y.copy_(x), x)


def run(code, **environment):
    done = child(code, **environment)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


TRY = """
import torch
try:
    torch.ones(2, device="tpu")
    print("made")
except Exception as error:
    print(type(error).__name__, error)
print(torch.ones(2).sum().item())
try:
    torch.ones(2, device="tpu")
except Exception as error:
    print("again", type(error).__name__)
"""


@pytest.mark.skipif(ON_CPU, reason="plugins of the device")
def test_missing_plugin():
    out = run(TRY, TORCH_TPU_PJRT_PLUGIN="/nowhere/plugin.so")
    assert "RuntimeError" in out and "/nowhere/plugin.so" in out and "2.0" in out and "again RuntimeError" in out


@pytest.mark.skipif(ON_CPU, reason="plugins of the device")
def test_plugin_that_is_none(tmp_path):
    text = tmp_path / "plugin.so"
    text.write_text("not a library")
    out = run(TRY, TORCH_TPU_PJRT_PLUGIN=str(text))
    assert "RuntimeError" in out and "plugin.so" in out and "2.0" in out
    import _ctypes

    out = run(TRY, TORCH_TPU_PJRT_PLUGIN=_ctypes.__file__)
    assert "RuntimeError" in out and "GetPjrtApi" in out and "2.0" in out


@pytest.mark.skipif(ON_CPU, reason="plugins of the device")
def test_tpu_required():
    out = run(TRY, TORCH_TPU_REQUIRE_TPU="1", TORCH_TPU_PJRT_PLUGIN="", TPU_LIBRARY_PATH="")
    assert "RuntimeError" in out and "TPU" in out and "2.0" in out


@pytest.mark.skipif(ON_CPU, reason="memory of the device")
def test_impossible_allocation():
    with pytest.raises(RuntimeError):
        torch.zeros(1 << 50, device=DEVICE).sum().item()
    same(torch.ones(2, device=DEVICE) + 1, torch.full((2,), 2.0))


@pytest.mark.skipif(ON_CPU, reason="operators of the device")
def test_unsupported_operators_say_which():
    x = torch.ones(2, 2, device=DEVICE)
    library = torch.library.Library("suite", "DEF")
    library.define("nothing(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="suite::nothing"):
        torch.ops.suite.nothing(x)
    same(x + 1, torch.full((2, 2), 2.0))


def test_error_in_the_middle_of_a_graph():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = (x * 2).exp()
    with pytest.raises(RuntimeError):
        y @ torch.ones(4, device=DEVICE)
    y.sum().backward()
    same(x.grad, 2 * torch.full((3,), 2.0).exp())


@pytest.mark.skipif(ON_CPU, reason="what the device does not have")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_other_kinds_of_tensors_say_what_to_use():
    x = torch.ones(4)
    with pytest.raises(NotImplementedError, match="quantized dtypes are not supported"):
        torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).to(DEVICE)
    with pytest.raises(NotImplementedError, match="layout=torch.jagged"):
        torch.nested.nested_tensor([x, x]).to(DEVICE)
    jagged = torch.nested.nested_tensor([x.to(DEVICE), x[:2].to(DEVICE)], layout=torch.jagged)
    assert [t.tolist() for t in (jagged * 2).unbind()] == [[2.0] * 4, [2.0] * 2]
