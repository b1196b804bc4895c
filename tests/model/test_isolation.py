"""Shape inference in a child process: the same answers, and an end to those that would have none."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as onh
import onnx.shape_inference
import pytest

from hetero.model import isolation
from hetero.model.isolation import _HARMLESS, infer_types, is_harmless
from hetero.model.read import read_model

Make = Callable[..., onnx.ModelProto]


def vector_of(length: int, *more: onnx.NodeProto) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """v: a vector of that many zeros."""
    tensors = [onh.from_array(np.array([number], np.int64), name) for number, name in ((0, "zero"), (length, "s"))]
    return [oh.make_node("Expand", ["zero", "s"], ["v"]), *more], tensors


def test_a_child_answers_as_onnx_does(make_model: Make) -> None:
    nodes = [
        oh.make_node("Shape", ["x"], ["s"]),
        oh.make_node("Concat", ["s", "s"], ["t"], axis=0),
        oh.make_node("Expand", ["x", "t"], ["y"]),
    ]
    model = make_model(nodes, outputs=[oh.make_tensor_value_info("y", 1, None)])
    answer = infer_types(model.SerializeToString(), harmless=False)
    assert answer is not None
    assert onnx.ModelProto.FromString(answer) == onnx.shape_inference.infer_shapes(model, data_prop=True)


@pytest.mark.parametrize("op", ["ConstantOfShape", "Cast"])
@pytest.mark.parametrize("length", [10**7, 2**40, 2**62])
def test_what_would_have_no_end_is_unknown(make_model: Make, op: str, length: int) -> None:
    attributes = {"to": 6} if op == "Cast" else {}
    nodes, tensors = vector_of(length, oh.make_node(op, ["v"], ["y"], **attributes))
    model = make_model(nodes, outputs=[oh.make_tensor_value_info("y", 1, None)], initializers=tensors)
    start = time.monotonic()
    read = read_model(model)
    assert read.type_of(read.value_id("y")).shape is None
    assert read.type_of(read.value_id("zero")).shape == (1,)
    assert time.monotonic() - start < 30


def test_ranks_beyond_numpy_are_unknown(make_model: Make) -> None:
    nodes, tensors = vector_of(65, oh.make_node("ConstantOfShape", ["v"], ["y"]))
    model = read_model(make_model(nodes, outputs=[oh.make_tensor_value_info("y", 1, None)], initializers=tensors))
    assert model.type_of(model.value_id("y")).shape is None
    assert model.type_of(model.value_id("v")).shape == (65,)


def test_what_counts_as_harmless() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    assert known >= _HARMLESS
    for schema in onnx.defs.get_all_schemas():
        if schema.name in _HARMLESS and not schema.domain:
            kinds = {attribute.type for attribute in schema.attributes.values()}
            assert not kinds & {onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS}
    assert is_harmless(["Relu", "Conv"], False, 1000, 100)
    assert not is_harmless(["Relu", "ConstantOfShape"], False, 1, 10)
    assert is_harmless(["d::ConstantOfShape"], False, 1, 10)  # onnx knows nothing of that domain
    domains = {schema.domain for schema in onnx.defs.get_all_schemas_with_history()} - {""}
    assert domains
    for domain in domains:
        assert not is_harmless([f"{domain}::Relu"], False, 1, 10)
    assert not is_harmless(["Relu"], True, 1, 10)
    assert not is_harmless(["Relu"], False, 100_000, 100_000)


def test_harmless_operators_need_no_child(make_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", None)
    nodes = [oh.make_node("Relu", ["x"], ["h"]), oh.make_node("Neg", ["h"], ["y"])]
    model = read_model(make_model(nodes))
    assert model.type_of(model.value_id("h")).shape == (2,)


def test_without_a_python_to_start_types_are_unknown(make_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    isolation._onnx_library.cache_clear()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    try:
        model = read_model(
            make_model([oh.make_node("Shape", ["x"], ["y"])], outputs=[oh.make_tensor_value_info("y", 7, None)])
        )
        assert model.type_of(model.value_id("y")).shape is None
    finally:
        isolation._onnx_library.cache_clear()
