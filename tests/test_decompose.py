"""Operators without a lowering become graphs of operators that have one, and compute what PyTorch's CPU kernels do."""

import pytest
import torch
import torch.utils._pytree as pytree

from torch_tpu import _C
from torch_tpu._decompose import NoDecomposition, decompose, find_operator
from torch_tpu._fx import OUTPUT_RESULT
from torch_tpu._recorder import contiguous_strides, dtype_name, functional_overload, may_overlap


def metas(value):
    return pytree.tree_map(lambda x: x.to("meta") if isinstance(x, torch.Tensor) else x, value)


def run(graph, tensors):
    """The graph's outputs for tensors of the device."""
    results, outputs = [], []
    types = [graph.output_type(k) for k in range(graph.n_outputs)]
    for dtype, dims in types:
        results.append((dtype, dims, contiguous_strides(dims), 0, False, False))
        outputs.append((OUTPUT_RESULT, len(outputs), None))
    operator = _C.graph_operator(graph, list(range(len(tensors))), [], results, outputs)
    return operator([t.to("tpu") for t in tensors])


def check(name, *args, **kwargs):
    graph = decompose(name, metas(args), metas(kwargs))
    want = pytree.tree_leaves(find_operator(name)(*args, **kwargs))
    got = run(graph, [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)])
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g.cpu(), w.contiguous(), rtol=1e-5, atol=1e-5)


X = torch.linspace(-2, 2, 12).reshape(3, 4)


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("aten::addcmul", (X, X, X), {"value": 2.0}),
        ("aten::logaddexp", (X, X.flip(0)), {}),
        ("aten::logaddexp", (X.t(), X.t().flip(0)), {}),
        ("aten::huber_loss", (X, X * 3), {}),
        ("aten::_foreach_add.Scalar", ([X, X * 2], 2.0), {}),
        ("aten::_euclidean_dist", (X, X + 1), {}),
        ("aten::cumsum", (X, 1), {"dtype": torch.float64}),
        ("aten::native_layer_norm", (X, [4], torch.arange(4.0), None, 1e-5), {}),
        ("aten::lerp.Scalar", (X, X * 2, 0.3), {}),
    ],
)
def test_values(name, args, kwargs):
    check(name, *args, **kwargs)


def test_inputs_are_the_tensors_in_order_of_the_schema_without_none():
    graph = decompose("aten::native_layer_norm", (X.to("meta"), [4], None, torch.ones(4, device="meta"), 1e-5), {})
    assert graph.n_inputs == 2
    assert graph.n_outputs == 3


def test_result_types_are_the_operators_own():
    graph = decompose("aten::logit", (torch.ones(3, device="meta", dtype=torch.int64),), {})
    assert graph.output_type(0) == ("float32", (3,))


def test_data_dependent_shapes_have_no_decomposition():
    with pytest.raises(NoDecomposition, match="aten::masked_select") as e:
        decompose("aten::masked_select", (X.to("meta"), X.to("meta") > 0), {})
    assert e.value.name == "aten::masked_select"


@pytest.mark.parametrize(
    ("op", "functional"),
    [
        (torch.ops.aten.add_.Tensor, torch.ops.aten.add.Tensor),
        (torch.ops.aten.add.out, torch.ops.aten.add.Tensor),
        (torch.ops.aten.__iand__.Tensor, torch.ops.aten.__and__.Tensor),
        (torch.ops.aten.uniform_.default, torch.ops.aten.uniform.default),
        (torch.ops.aten._native_batch_norm_legit.default, torch.ops.aten._native_batch_norm_legit_functional.default),
        (torch.ops.aten._foreach_add_.Scalar, torch.ops.aten._foreach_add.Scalar),
    ],
)
def test_functional_overload(op, functional):
    assert functional_overload(op) is functional


@pytest.mark.parametrize(
    ("sizes", "strides", "overlaps"),
    [
        ((2, 3), (3, 1), False),
        ((2, 3), (1, 2), False),
        ((2, 3), (0, 1), True),
        ((3, 3), (1, 1), True),
        ((), (), False),
        ((1, 4), (0, 2), False),
        ((2, 2), (3, 5), False),
    ],
)
def test_may_overlap(sizes, strides, overlaps):
    assert may_overlap(sizes, strides) is overlaps
    assert dtype_name(torch.float8_e5m2) == "float8_e5m2"


# ---- torch_tpu._C.Graph ----


def test_graph_rejects_what_is_not_there():
    graph = _C.Graph()
    x = graph.input("float32", [2, 3])
    with pytest.raises(NotImplementedError, match="aten::nothing"):
        graph.call("aten::nothing", [], [])
    with pytest.raises(TypeError, match="dtype"):
        graph.input("float13", [2])
    with pytest.raises(ValueError, match="tag"):
        graph.call("aten::relu", [(99, x)], [("float32", [2, 3])])
    with pytest.raises(TypeError):
        graph.call("aten::relu", [x], [("float32", [2, 3])])
    with pytest.raises(ValueError, match="stride"):
        graph.read(x, ("float32", (2, 3), (3,), 0, False, False))
    with pytest.raises(RuntimeError, match="no value 7"):
        graph.read(7, ("float32", (2, 3), (3, 1), 0, False, False))


def test_equal_graphs_have_equal_keys():
    def build(number):
        graph = _C.Graph()
        x = graph.input("float32", [4])
        (y,) = graph.call("aten::add.Tensor", [(1, x), (2, number), (2, 1)], [("float32", [4])])
        graph.output(y)
        return graph

    assert build(2.0).key() == build(2.0).key()
    assert build(2.0).key() != build(2).key()
    assert "aten::add.Tensor" in str(build(2.0))
    assert "stablehlo.add" in build(2.0).stablehlo()


def test_calling_a_graph_copies_its_nodes():
    inner = _C.Graph()
    a = inner.input("float32", [4])
    (b,) = inner.call("aten::relu", [(1, a)], [("float32", [4])])
    inner.output(b)
    inner.output(None)
    outer = _C.Graph()
    x = outer.input("float32", [4])
    y, absent = outer.call_graph(inner, [x])
    del inner
    outer.output(outer.call("aten::neg", [(1, y)], [("float32", [4])])[0])
    assert absent is None
    (got,) = run(outer, [torch.tensor([-1.0, 2.0, -3.0, 4.0])])
    assert got.tolist() == [0.0, -2.0, 0.0, -4.0]
