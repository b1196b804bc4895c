"""Products with matrices that a Gather selects, against onnxruntime, and near misses that keep the Gather."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.errors import InferenceError
from sessions import onnxruntime_session

RANDOM = np.random.default_rng(0)
Array = np.ndarray[Any, Any]
E, K, N = 5, 24, 20


def numbers(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def model_of(nodes: list[onnx.NodeProto], x: Array, i: Array, weights: Array, *outputs: str) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [f"x{axis}" for axis in range(x.ndim)]),
        helper.make_tensor_value_info("i", helper.np_dtype_to_tensor_dtype(i.dtype), [f"i{a}" for a in range(i.ndim)]),
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "gathered", inputs, results, [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(model: onnx.ModelProto, *feeds: dict[str, Array], gathers: bool = False, threads: int = 1) -> None:
    """``gathers``: whether a call of the kernel `gather` remains."""
    session = onnxruntime_session(model)
    compiled = hetero.compile(model, "CPU", {"INFERENCE_NUM_THREADS": threads, "PERF_COUNT": True})
    request = compiled.create_infer_request()
    for feed in feeds:
        for found, wanted in zip(request.infer(feed).values(), session.run(None, feed), strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    ran = {row.layer_type for row in request.profiling_info if row.status == "EXECUTED"}
    assert ("Gather" in ran) == gathers


def node(op_type: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), [output], **attributes)


INDICES = [(), (1,), (3,), (2, 3), (1, 1)]


@pytest.mark.spread(2)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("shape", INDICES)
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_right_operand(shape: tuple[int, ...], rows: int, dtype: type) -> None:
    i = RANDOM.integers(-E, E, shape).astype(dtype)
    for outer in (shape, (1,) * len(shape), ()):
        x = numbers(*outer, rows, K)
        nodes = [node("Gather", "w i", "g"), node("MatMul", "x g", "p"), node("Relu", "p", "y")]
        for threads in (1, 2):
            check(model_of(nodes, x, i, numbers(E, K, N), "y"), {"x": x, "i": i}, threads=threads)


@pytest.mark.parametrize("shape", INDICES)
def test_transposed_matrices(shape: tuple[int, ...]) -> None:
    i, x, rank = RANDOM.integers(-E, E, shape), numbers(*shape, 1, K), len(shape) + 2
    perm = [*range(rank - 2), rank - 1, rank - 2]
    nodes = [node("Gather", "w i", "g"), node("Transpose", "g", "t", perm=perm), node("MatMul", "x t", "y")]
    check(model_of(nodes, x, i, numbers(E, N, K), "y"), {"x": x, "i": i})


@pytest.mark.parametrize("shape", INDICES)
def test_left_operand_with_a_vector(shape: tuple[int, ...]) -> None:
    i = RANDOM.integers(-E, E, shape)
    nodes = [node("Gather", "w i", "g"), node("MatMul", "g x", "y")]
    for outer in (shape, (1,) * len(shape), ()):
        x = numbers(*outer, K, 1)
        check(model_of(nodes, x, i, numbers(E, N, K), "y"), {"x": x, "i": i})
    check(model_of(nodes, numbers(K), i, numbers(E, N, K), "y"), {"x": numbers(K), "i": i})


def test_sizes_that_change() -> None:
    feeds = [{"x": numbers(t, 2, 1, K), "i": RANDOM.integers(0, E, (t, 2))} for t in (1, 4, 2, 9, 0, 1)]
    nodes = [node("Gather", "w i", "g"), node("MatMul", "x g", "y")]
    check(model_of(nodes, feeds[0]["x"], feeds[0]["i"], numbers(E, K, N), "y"), *feeds)


@pytest.mark.parametrize("weights", [(1, K, N), (E, 1, N), (E, K, 1), (E, 1, 1), (E, 17, 33)])
def test_sizes_of_one(weights: tuple[int, int, int]) -> None:
    x, i = numbers(3, 2, weights[1]), RANDOM.integers(0, weights[0], 3)
    nodes = [node("Gather", "w i", "g"), node("MatMul", "x g", "y")]
    check(model_of(nodes, x, i, numbers(*weights), "y"), {"x": x, "i": i})


def test_matrices_with_nan_and_infinity() -> None:
    """Those that no index selects have no effect."""
    weights = numbers(4, K, N)
    weights[1], weights[2], weights[3, 0, 0] = np.nan, np.inf, np.nan
    x, i = numbers(2, 1, K), np.array([0, 3])
    nodes = [node("Gather", "w i", "g"), node("MatMul", "x g", "y")]
    check(model_of(nodes, x, i, weights, "y"), {"x": x, "i": i})


@pytest.mark.parametrize("outside", [E, -E - 1, 1 << 40])
@pytest.mark.parametrize("rows", [1, 0])
def test_indices_outside(outside: int, rows: int) -> None:
    x, i = numbers(2, rows, K), np.array([0, outside])
    nodes = [node("Gather", "w i", "g"), node("MatMul", "x g", "y")]
    compiled = hetero.compile(model_of(nodes, x, i, numbers(E, K, N), "y"), "CPU")
    with pytest.raises(InferenceError, match="index"):
        compiled({"x": x, "i": i})
    compiled({"x": x, "i": np.array([0, -E])})  # the request stays usable


def test_near_misses() -> None:
    x, i, weights = numbers(6, 1, 6), RANDOM.integers(0, 6, 6), numbers(6, 6, 6)
    gather, product = node("Gather", "w i", "g"), node("MatMul", "x g", "y")
    feed = {"x": x, "i": i}
    check(model_of([gather, product], x, i, weights, "y", "g"), feed, gathers=True)  # the matrices are an output
    twice = [gather, node("MatMul", "x g", "p"), node("MatMul", "p g", "y")]
    check(model_of(twice, x, i, weights, "y"), feed, gathers=True)  # two products read them
    for axis in (1, 2):
        check(model_of([node("Gather", "w i", "g", axis=axis), product], x, i, weights, "y"), feed, gathers=True)
    flat = [node("Gather", "w i", "g"), product]
    check(model_of(flat, x, i, numbers(6, 6), "y"), feed, gathers=True)  # rows, not matrices
    moved = [gather, node("Transpose", "g", "t", perm=[1, 0, 2]), node("MatMul", "x t", "y")]
    check(model_of(moved, x, i, weights, "y"), feed, gathers=True)
    wide = numbers(6, 6, 2)
    left = [gather, node("MatMul", "g x", "y")]
    check(model_of(left, wide, i, weights, "y"), {"x": wide, "i": i}, gathers=True)  # two columns
    own = [gather, node("Transpose", "g", "t", perm=[0, 2, 1]), node("MatMul", "g t", "p"), node("Add", "p x", "y")]
    check(model_of(own, x, i, weights, "y"), feed, gathers=True)  # both operands are the same matrices
