"""Sparse tensors of layouts COO and CSR: made, converted, computed with and trained with as on the CPU."""

import copy
import io

import pytest
import torch
from helpers import DEVICE, ON_CPU

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:.*runs on the CPU", "ignore:Sparse CSR tensor support", "ignore:Sparse invariant"
    ),
]


def coo(device, dtype=torch.float32, size=(4, 5)):
    """Not in order, and with duplicates."""
    indices = torch.tensor([[3, 0, 3, 1, 0], [2, 4, 2, 0, 1]], device=device)
    return torch.sparse_coo_tensor(
        indices, torch.tensor([3, 1, -2, 5, 7], device=device).to(dtype), size, check_invariants=True
    )


def csr(device):
    crow, col = torch.tensor([0, 2, 2, 3, 5], device=device), torch.tensor([1, 4, 3, 0, 2], device=device)
    return torch.sparse_csr_tensor(
        crow, col, torch.tensor([1.0, 2, 3, 4, 5], device=device), (4, 5), check_invariants=True
    )


def same_sparse(got, want):
    assert got.device.type == DEVICE and got.layout == want.layout
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if want.layout == torch.sparse_coo:
        assert got.is_coalesced() == want.is_coalesced()
        if not want.is_coalesced():  # how elements are stored until they are added up is each device's own affair
            got, want = got.coalesce(), want.coalesce()
        pairs = [(got._indices(), want._indices()), (got._values(), want._values())]
    elif want.layout == torch.sparse_csr:
        pairs = [(getattr(got, n)(), getattr(want, n)()) for n in ("crow_indices", "col_indices", "values")]
    else:
        pairs = [(got, want)]
    for g, w in pairs:
        assert g.device.type == DEVICE
        torch.testing.assert_close(g.detach().cpu(), w.detach())


dense = torch.arange(20.0).reshape(4, 5)
FUNCTIONS = dict(
    coalesce=lambda d: coo(d).coalesce(),
    coalesce_integers=lambda d: coo(d, torch.int64).coalesce(),
    coalesce_bool=lambda d: coo(d, torch.bool).coalesce(),
    coalesce_half=lambda d: coo(d, torch.bfloat16).coalesce(),
    coalesce_nothing=lambda d: torch.sparse_coo_tensor(size=(3, 0), device=d).coalesce(),
    hybrid=lambda d: torch.sparse_coo_tensor(torch.tensor([[2, 0, 2]], device=d), torch.arange(6.0, device=d).view(3, 2)).coalesce(),
    to_dense=lambda d: coo(d).to_dense(),
    to_sparse=lambda d: (dense % 3).to(d).to_sparse(),
    to_sparse_dim=lambda d: (dense % 3).to(d).to_sparse(1),
    to_csr=lambda d: (dense % 3).to(d).to_sparse_csr(),
    coo_to_csr=lambda d: coo(d).to_sparse_csr(),
    csr_to_coo=lambda d: csr(d).to_sparse_coo(),
    csr_to_dense=lambda d: csr(d).to_dense(),
    sum=lambda d: torch.sparse.sum(coo(d)),
    sum_dim=lambda d: torch.sparse.sum(coo(d), 0),
    add=lambda d: coo(d) + coo(d),
    add_coalesced=lambda d: coo(d).coalesce() + coo(d).transpose(0, 1).transpose(0, 1).coalesce() * 2,
    add_alpha=lambda d: torch.add(coo(d), coo(d), alpha=3),
    add_to_dense=lambda d: dense.to(d) + coo(d),
    add_promotes=lambda d: torch.add(coo(d, torch.int32), coo(d)),
    sub=lambda d: coo(d) - coo(d),
    times_number=lambda d: coo(d) * 3,
    times_dense=lambda d: coo(d) * dense.to(d),
    times_sparse=lambda d: coo(d).coalesce() * coo(d).coalesce(),
    divided=lambda d: coo(d) / 2,
    negated=lambda d: -coo(d),
    sine=lambda d: coo(d).coalesce().sin(),
    transposed=lambda d: coo(d).t().coalesce(),
    mm=lambda d: coo(d) @ dense.t().to(d),
    csr_mm=lambda d: csr(d) @ dense.t().to(d),
    mv=lambda d: coo(d) @ torch.arange(5.0, device=d),
    csr_mv=lambda d: csr(d) @ torch.arange(5.0, device=d),
    sparse_mm=lambda d: torch.sparse.mm(coo(d), coo(d).t()),
    addmm=lambda d: torch.addmm(torch.ones(4, 4, device=d), coo(d), dense.t().to(d), beta=2, alpha=3),
    sampled=lambda d: torch.sparse.sampled_addmm(csr(d), dense[:, :3].to(d), dense[:3].to(d), beta=0.5, alpha=2),
    bmm=lambda d: torch.bmm(torch.stack([coo(d), coo(d)]), torch.ones(2, 5, 3, device=d)),
    softmax=lambda d: torch.sparse.softmax(coo(d), 1),
    mask=lambda d: dense.to(d).sparse_mask(coo(d).coalesce()),
    cat=lambda d: torch.cat([coo(d), coo(d)]),
    clone=lambda d: coo(d).clone(),
    zeros_like=lambda d: torch.zeros_like(coo(d)),
    select=lambda d: coo(d)[3],
    index_select=lambda d: coo(d).index_select(0, torch.tensor([3, 1], device=d)),
    norm=lambda d: coo(d).coalesce().norm(),
    in_place=lambda d: coo(d).coalesce().mul_(2).add_(coo(d)),
    into_dense=lambda d: torch.zeros(4, 5, device=d).add_(coo(d), alpha=2),
    to_double=lambda d: coo(d).to(torch.float64),
    add_bool_alpha=lambda d: torch.add(dense.bool().to(d), coo(d, torch.bool), alpha=2),
    csr_add=lambda d: csr(d) + dense.remainder(3).to(d).to_sparse_csr(),
    csr_in_place=lambda d: csr(d).add_(dense.remainder(3).to(d).to_sparse_csr(), alpha=2),
    csr_times=lambda d: csr(d) * dense.remainder(3).to(d).to_sparse_csr(),
    csr_times_dense=lambda d: csr(d) * dense.to(d),
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_on_the_cpu(name):
    same_sparse(FUNCTIONS[name](DEVICE), FUNCTIONS[name]("cpu"))


@pytest.mark.skipif(ON_CPU, reason="modes of the device")
@pytest.mark.parametrize("mode", ["DEFER_NEVER_AND_LAUNCH_BLOCKING", "DEFER_AND_FUSE"])
def test_in_other_modes(mode):
    from torch_tpu._internal.execution_mode import EagerMode, set_eager_mode

    for name in ("coalesce", "add_to_dense", "mm", "csr_mm", "sampled", "to_sparse", "mask"):
        with set_eager_mode(EagerMode[mode]):
            got = FUNCTIONS[name](DEVICE)
        same_sparse(got, FUNCTIONS[name]("cpu"))


def test_there_and_back():
    for make in (coo, csr):
        moved = make("cpu").to(DEVICE)
        same_sparse(moved, make("cpu"))
        back = moved.cpu()
        assert back.device.type == "cpu" and torch.equal(back.to_dense(), make("cpu").to_dense())


def test_what_is_printed_saved_and_copied():
    for make in (coo, csr):
        x = make(DEVICE)
        assert "layout=torch.sparse" in repr(x) and f"device='{DEVICE}" in repr(x) or ON_CPU
        file = io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        for again in (torch.load(file), copy.deepcopy(x)):
            same_sparse(again, make("cpu"))


def test_gradients():
    results = []
    for device in ("cpu", DEVICE):
        values = torch.tensor([3.0, 1, -2, 5, 7], device=device, requires_grad=True)
        matrix = torch.sparse_coo_tensor(coo(device)._indices(), values, (4, 5))
        weight = dense.t().to(device).detach().requires_grad_()
        (torch.sparse.mm(matrix, weight).sin().sum() + (matrix.to_dense() ** 2).sum()).backward()
        results.append((values.grad.cpu(), weight.grad.cpu()))
    for got, want in zip(*results[::-1], strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_gradients_of_reductions(reduce):
    results = []
    for device in ("cpu", DEVICE):
        matrix = csr(device).requires_grad_()
        weight = dense.t().to(device).detach().requires_grad_()
        result = torch.sparse.mm(matrix, weight, reduce)
        (result * torch.arange(16.0, device=device).view(4, 4)).sum().backward()
        results.append([result.detach(), matrix.grad.to_dense(), weight.grad])
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_leave_padding_out(mode):
    results = []
    for device in ("cpu", DEVICE):
        weight = torch.arange(40.0, device=device).view(10, 4).requires_grad_()
        ids, starts = torch.tensor([1, 2, 4, 9, 1], device=device), torch.tensor([0, 2], device=device)
        options = dict(mode=mode, sparse=True, padding_idx=1)
        torch.nn.functional.embedding_bag(ids, weight, starts, **options).square().sum().backward()
        results.append(weight.grad)
    same_sparse(results[1], results[0])


@pytest.mark.skipif(ON_CPU, reason="two devices")
def test_operands_of_two_devices():
    for call in (
        lambda a, b: a * b, lambda a, b: b * a, lambda a, b: a + b, lambda a, b: a @ b.t(), lambda a, b: a.to_sparse_csr() + b.to_sparse_csr(),
        lambda a, b: torch.ones(4, 5, device=DEVICE) + b.to_sparse_csr(), lambda a, b: torch.sparse.mm(b, torch.ones(5, 2, device=DEVICE)),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            call(coo(DEVICE).coalesce(), coo("cpu").coalesce())


def train(device, optimizer, **options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.EmbeddingBag(20, 4, sparse=True, mode="sum")) if options.pop("bag", False) else (
        torch.nn.Sequential(torch.nn.Embedding(20, 4, sparse=True))
    )  # fmt: skip
    model.to(device)
    steps = optimizer(model.parameters(), **options)
    losses = []
    for i in range(5):
        ids = torch.tensor([[1, 5, 5], [i, 2 * i, 19]], device=device)
        steps.zero_grad()
        loss = (model(ids) - 1).square().sum()
        loss.backward()
        assert model[0].weight.grad.layout == torch.sparse_coo
        steps.step()
        losses.append(loss.item())
    return losses, model[0].weight.detach().cpu()


@pytest.mark.parametrize(
    "optimizer, options",
    [
        (torch.optim.SparseAdam, dict(lr=0.1)),
        (torch.optim.SGD, dict(lr=0.1)),
        (torch.optim.SGD, dict(lr=0.1, momentum=0.9, foreach=False)),
        (torch.optim.Adagrad, dict(lr=0.1, foreach=False)),
        (torch.optim.SparseAdam, dict(lr=0.1, bag=True)),
    ],
    ids=str,
)
def test_embeddings_with_sparse_gradients(optimizer, options):
    (want, weights), (got, ours) = train("cpu", optimizer, **options), train(DEVICE, optimizer, **options)
    assert got == pytest.approx(want, rel=1e-4)
    torch.testing.assert_close(ours, weights, rtol=1e-4, atol=1e-5)


WRONG = dict(
    sizes=lambda d: coo(d) + coo(d, size=(5, 5)),
    dense_last=lambda d: coo(d) + dense.to(d),
    product=lambda d: coo(d) @ dense.to(d),
    product_dtype=lambda d: coo(d) @ dense.t().double().to(d),
    index=lambda d: torch.sparse_coo_tensor(torch.tensor([[9]], device=d), torch.ones(1, device=d), (3,), check_invariants=True),
    columns=lambda d: torch.sparse_csr_tensor([0, 1], [7], torch.ones(1), (1, 3), device=d, check_invariants=True),
    no_kernel=lambda d: coo(d).cumsum(0),
    exponential=lambda d: coo(d).exp(),
)  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name):
    with pytest.raises(Exception) as want:
        WRONG[name]("cpu")
    with pytest.raises(Exception) as got:
        WRONG[name](DEVICE)
    assert got.type is want.type, f"{got.value!r}, on the CPU {want.value!r}"
    same_sparse(coo(DEVICE).coalesce(), coo("cpu").coalesce())
