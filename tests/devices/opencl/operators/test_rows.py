"""Reductions, Softmax and LayerNormalization of OPENCL, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from onnx import helper

import hetero
from opencl import check, model_of, refusals, shared_by_items, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

node = helper.make_node
X = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)


@pytest.fixture(params=[1, 32], ids=["processor", "gpu"])
def items(request: pytest.FixtureRequest) -> Iterator[None]:
    """A row for each work-item, as on processors, and a work-group for each row, as on GPUs."""
    with shared_by_items(request.param):
        yield


@pytest.mark.usefixtures("items")
def test_reductions(core: hetero.Core) -> None:
    axes = {"last": [-1], "first": [0], "middle": [1, 2], "apart": [0, 2], "all": [0, 1, 2, 3]}
    constants = {name: np.array(entries) for name, entries in axes.items()}
    nodes = [node("ReduceMean", ["x", name], [f"mean_{name}"], keepdims=at % 2) for at, name in enumerate(axes)]
    nodes += [
        node("ReduceMean", ["x"], ["mean"]),
        node("ReduceMax", ["x", "middle"], ["max"]),
        node("ReduceMin", ["x", "apart"], ["min"], keepdims=0),
        node("ReduceSum", ["x", "last"], ["sum"]),
        node("ReduceProd", ["x", "first"], ["prod"]),
        node("ReduceL1", ["x", "last"], ["l1"]),
        node("ReduceL2", ["x", "middle"], ["l2"]),
        node("ReduceSumSquare", ["x", "last"], ["squares"]),
        node("ReduceSum", ["x"], ["same"], noop_with_empty_axes=1),
    ]
    check(core, model_of(nodes, {"x": X}, constants, opset=18), {"x": X}, 1e-5, 1e-5)


def test_reductions_over_no_axes(core: hetero.Core) -> None:
    """Each element by itself: its square, or its absolute value."""
    names = ("Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare")
    for x in (X, np.float32(-2.5), np.zeros((0, 3), np.float32), np.float32([[np.nan, -np.inf, -0.0]])):
        nodes = [node(f"Reduce{name}", ["x", "none"], [name], noop_with_empty_axes=1) for name in names]
        nodes += [node(f"Reduce{name}", ["x"], [f"{name}_0"], noop_with_empty_axes=1, keepdims=0) for name in names]
        check(core, model_of(nodes, {"x": x}, {"none": np.zeros(0, np.int64)}), {"x": x}, reference="CPU")


def test_reductions_of_other_types_and_sizes(core: hetero.Core) -> None:
    inputs = {
        "i": np.arange(-6, 6).reshape(3, 4), "l": np.arange(6, dtype=np.int32).reshape(2, 3), "one": X[:1, :1, :1, :1],
        "h": X.astype(np.float16), "none": np.zeros((2, 0, 3), np.float32), "nan": np.float32([[1, np.nan, 2]]),
        "long": np.full((1, 300_000), 0.1, np.float32),
    }  # fmt: skip
    constants = {"axis": np.array([1])}
    nodes = [
        node(op, [name, "axis"], [f"{op}_{name}"]) for op in ("ReduceSum", "ReduceMax", "ReduceMin") for name in "il"
    ]
    nodes += [node("ReduceSum", [name, "axis"], [f"sum_{name}"]) for name in ("one", "none", "long")]
    nodes += [node("ReduceMax", [name, "axis"], [f"max_{name}"]) for name in ("nan", "one")]
    nodes.append(node("ReduceMean", ["h", "axis"], ["mean"]))
    nodes.append(node("ReduceMax", ["none", "axis"], ["lowest"]))
    check(core, model_of(nodes, inputs, constants), inputs, 2e-3, 1e-3, reference="TEMPLATE")
    request = core.compile_model(core.read_model(model_of(nodes, inputs, constants)), "OPENCL")
    np.testing.assert_allclose(request(inputs)["sum_long"], 30_000, 1e-4)  # one by one: 6e-4


def test_reductions_with_axes_as_attributes(core: hetero.Core) -> None:
    nodes = [node("ReduceMean", ["x"], ["a"], axes=[1, -1]), node("ReduceSum", ["x"], ["b"], axes=[2], keepdims=0)]
    nodes.append(node("ReduceMax", ["x"], ["c"]))
    check(core, model_of(nodes, {"x": X}, opset=11), {"x": X}, 1e-5, 1e-5)


@pytest.mark.usefixtures("items")
def test_softmax(core: hetero.Core) -> None:
    inputs = {"x": X, "big": np.float32([[1000, 999, -1000], [-np.inf, 0, 1]]), "one": X[..., :1], "no": X[:, :0]}
    nodes = [node("Softmax", ["x"], [f"x{axis}"], axis=axis) for axis in (-1, 0, 2)]
    nodes += [node("Softmax", [name], [name + "s"]) for name in ("big", "one", "no")]
    nodes += [node("LogSoftmax", ["x"], ["log"], axis=1), node("LogSoftmax", ["big"], ["big_log"])]
    check(core, model_of(nodes, inputs), inputs, 1e-5, 1e-6)


def test_softmax_of_old_opsets_sees_a_matrix(core: hetero.Core) -> None:
    nodes = [node("Softmax", ["x"], [f"x{axis}"], axis=axis) for axis in (0, 1, 2, 3)]
    nodes += [node("Softmax", ["x"], ["default"]), node("LogSoftmax", ["x"], ["log"], axis=2)]
    check(core, model_of(nodes, {"x": X}, opset=11), {"x": X})


@pytest.mark.usefixtures("items")
def test_layer_normalization(core: hetero.Core) -> None:
    rng = np.random.default_rng(3)
    inputs = {"x": X, "far": X + np.float32(100)}
    constants = {
        "s5": rng.uniform(0.5, 2, 5).astype(np.float32), "b5": rng.uniform(-1, 1, 5).astype(np.float32),
        "s45": rng.uniform(0.5, 2, (4, 5)).astype(np.float32), "one": np.float32([[1.5]]),
    }  # fmt: skip
    nodes = [
        node("LayerNormalization", ["x", "s5", "b5"], ["a"]),
        node("LayerNormalization", ["x", "s5"], ["b"], epsilon=0.1),
        node("LayerNormalization", ["x", "s45", "b5"], ["c"], axis=2),
        node("LayerNormalization", ["far", "one", "one"], ["d"]),
        node("LayerNormalization", ["x", "s45", "b5"], ["e"]),  # another scale for each row
        node("LayerNormalization", ["x", "s45"], ["f"]),
    ]
    check(core, model_of(nodes, inputs, constants), inputs, 1e-4, 1e-4, reference="TEMPLATE")


def test_float16(core: hetero.Core) -> None:
    x, scale = X.astype(np.float16), np.linspace(0.5, 2, 5).astype(np.float16)
    nodes = [
        node("Softmax", ["x"], ["a"], axis=1),
        node("LayerNormalization", ["x", "scale"], ["b"]),
        node("GlobalAveragePool", ["x"], ["c"]),
    ]
    check(core, model_of(nodes, {"x": x}, {"scale": scale}), {"x": x}, 2e-3, 2e-3, reference="TEMPLATE")


def test_refusals(core: hetero.Core) -> None:
    scale = np.ones(5, np.float32)
    nodes = [
        node("LayerNormalization", ["x", "scale"], ["a", "mean"], "outputs"),
        node("LayerNormalization", ["x", "scale"], ["b"], "stash", stash_type=10),
    ]
    found = refusals(core, model_of(nodes, {"x": X}, {"scale": scale}))
    assert found["outputs"] == "only its first output is supported"
    assert "stash_type" in found["stash"]
