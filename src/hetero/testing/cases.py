"""The small models of the contract suite, with their results computed by NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["ContractCase", "make_model", "standard_cases"]

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ContractCase:
    """A model, its inputs, and the expected results.

    ``feeds``: one mapping from input name to array per inference; one request runs them in order. Shapes may differ
    where the model's inputs have symbolic dimensions. ``expected``: computes the results by name from such a mapping.
    """

    name: str
    model: onnx.ModelProto
    feeds: Sequence[Arrays]
    expected: Callable[[Arrays], Arrays]


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Mapping[str, Sequence[int | str] | None],
    constants: Arrays | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A float32 model."""
    graph = helper.make_graph(
        list(nodes),
        "contract",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def standard_cases() -> tuple[ContractCase, ...]:
    """The default of `PluginContract.cases`: ten float32 models of up to four nodes."""
    return (
        _chain(),
        _diamond(),
        _matmul(),
        _convolution(),
        _dynamic_shapes(),
        _scalar(),
        _zero_size(),
        _constant_result(),
        _parameter_result(),
        _value_used_twice(),
    )


def _random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _relu(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x, 0))


def _node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, list(inputs), list(outputs), name=f"{op_type}_{outputs[0]}", **attributes)


def _chain() -> ContractCase:
    model = make_model(
        [_node("Relu", "x", "a"), _node("Add", ["a", "x"], "b"), _node("Mul", ["b", "c"], "y")],
        {"x": [2, 3]},
        {"y": [2, 3]},
        {"c": _random(1, 3)},
    )
    constant = _random(1, 3)
    return ContractCase(
        "chain",
        model,
        [{"x": _random(seed, 2, 3)} for seed in range(3)],
        lambda feed: {"y": (_relu(feed["x"]) + feed["x"]) * constant},
    )


def _diamond() -> ContractCase:
    model = make_model(
        [
            _node("Relu", "x", "a"),
            _node("Add", ["a", "z"], "b"),
            _node("Mul", ["a", "z"], "c"),
            _node("Add", ["b", "c"], "y"),
        ],
        {"x": [4], "z": [4]},
        {"y": [4], "c": [4]},
    )

    def expected(feed: Arrays) -> Arrays:
        a = _relu(feed["x"])
        return {"y": a + feed["z"] + a * feed["z"], "c": a * feed["z"]}

    return ContractCase("diamond", model, [{"x": _random(s, 4), "z": _random(s + 9, 4)} for s in range(2)], expected)


def _matmul() -> ContractCase:
    w, b = _random(2, 5, 7), _random(3, 7)
    model = make_model(
        [_node("MatMul", ["x", "w"], "a"), _node("Add", ["a", "b"], "y")],
        {"x": [3, 5]},
        {"y": [3, 7]},
        {"w": w, "b": b},
    )
    return ContractCase("matmul", model, [{"x": _random(4, 3, 5)}], lambda feed: {"y": feed["x"] @ w + b})


def _convolution() -> ContractCase:
    w = _random(5, 4, 3, 1, 1)
    model = make_model(
        [_node("Conv", ["x", "w"], "a"), _node("Relu", "a", "b"), _node("MaxPool", "b", "y", kernel_shape=[2, 2])],
        {"x": [1, 3, 4, 4]},
        {"y": [1, 4, 3, 3]},
        {"w": w},
    )

    def expected(feed: Arrays) -> Arrays:
        a = _relu(np.einsum("oc,nchw->nohw", w[:, :, 0, 0], feed["x"]))
        windows = np.lib.stride_tricks.sliding_window_view(a, (2, 2), (2, 3))
        return {"y": windows.max(axis=(4, 5))}

    return ContractCase("convolution", model, [{"x": _random(6, 1, 3, 4, 4)}], expected)


def _dynamic_shapes() -> ContractCase:
    model = make_model(
        [_node("Relu", "x", "a"), _node("Add", ["a", "c"], "y")],
        {"x": ["rows", 3]},
        {"y": ["rows", 3]},
        {"c": _random(7, 3)},
    )
    constant = _random(7, 3)
    return ContractCase(
        "dynamic_shapes",
        model,
        [{"x": _random(rows, rows, 3)} for rows in (2, 5, 1, 0, 5)],
        lambda feed: {"y": _relu(feed["x"]) + constant},
    )


def _scalar() -> ContractCase:
    model = make_model([_node("Relu", "x", "a"), _node("Add", ["a", "x"], "y")], {"x": []}, {"y": []})
    feeds = [{"x": np.array(value, np.float32)} for value in (1.5, -2.0)]
    return ContractCase("scalar", model, feeds, lambda feed: {"y": np.asarray(_relu(feed["x"]) + feed["x"])})


def _zero_size() -> ContractCase:
    model = make_model([_node("Relu", "x", "a"), _node("Add", ["a", "x"], "y")], {"x": [0, 3]}, {"y": [0, 3]})
    return ContractCase("zero_size", model, [{"x": np.zeros((0, 3), np.float32)}], lambda feed: {"y": feed["x"]})


def _constant_result() -> ContractCase:
    constant = _random(8, 2)
    model = make_model([_node("Relu", "x", "y")], {"x": [2]}, {"y": [2], "c": [2]}, {"c": constant})
    return ContractCase(
        "constant_result", model, [{"x": _random(9, 2)}], lambda feed: {"y": _relu(feed["x"]), "c": constant}
    )


def _parameter_result() -> ContractCase:
    model = make_model([_node("Relu", "x", "y")], {"x": [2], "z": [3]}, {"y": [2], "z": [3]})
    return ContractCase(
        "parameter_result",
        model,
        [{"x": _random(9, 2), "z": _random(10, 3)}],
        lambda feed: {"y": _relu(feed["x"]), "z": feed["z"]},
    )


def _value_used_twice() -> ContractCase:
    """A value that is a result and is read on, by in-place candidates."""
    model = make_model(
        [_node("Relu", "x", "a"), _node("Relu", "a", "b"), _node("Add", ["b", "a"], "y")],
        {"x": [2, 3]},
        {"a": [2, 3], "y": [2, 3]},
    )
    return ContractCase(
        "value_used_twice",
        model,
        [{"x": _random(seed, 2, 3)} for seed in (11, 12)],
        lambda feed: {"a": _relu(feed["x"]), "y": 2 * _relu(feed["x"])},
    )
