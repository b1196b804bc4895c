"""Moves of quantized elements that may not run on the integers."""

from __future__ import annotations

import gc
import io
import tracemalloc
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from hetero import Core
from single_node import model

CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "ReduceMax": ((0, 3), {"axes": [0], "keepdims": 0}),
    "MaxPool": ((1, 1, 1, 1), {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1]}),
}


@pytest.mark.parametrize("op", CASES)
def test_the_largest_of_no_element(op: str) -> None:
    """It is -inf, which QuantizeLinear makes the least integer; a table would convert the least one of the input."""
    shape, attributes = CASES[op]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "fine", "zero"], ["a"]),
        helper.make_node(op, ["a"], ["b"], **attributes),
        helper.make_node("QuantizeLinear", ["b", "coarse", "zero"], ["y"]),
    ]
    x = np.full(shape, 200, np.uint8)
    proto = model(nodes, {"x": x}, ["y"], 17)
    for name, value in (("fine", np.float32(0.1)), ("coarse", np.float32(1)), ("zero", np.uint8(128))):
        proto.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    found = Core().compile_model(Core().read_model(proto), "CPU")({"x": x})["y"]
    assert found.dtype == np.uint8
    assert found.size
    assert not found.any()


@pytest.mark.parametrize(("op", "attributes"), [("ReduceMax", {"axes": [3]}), ("MaxPool", {"kernel_shape": [1, 2]})])
def test_an_infinite_scale_makes_nan(op: str, attributes: dict[str, Any]) -> None:
    """0 times an infinite scale is NaN, which the largest of integers would not be."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "infinite"], ["a"]),
        helper.make_node(op, ["a"], ["b"], **attributes),
        helper.make_node("QuantizeLinear", ["b", "one", "zero"], ["y"]),
    ]
    x = np.int8([-1, 1, 0, 2, 2, 0]).reshape(1, 1, 1, 6)
    proto = model(nodes, {"x": x}, ["y"], 17)
    for name, value in (("infinite", np.float32(np.inf)), ("one", np.float32(1)), ("zero", np.int8(3))):
        proto.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    found, plain = (
        Core().compile_model(Core().read_model(proto), "CPU", {"DISABLE_TRANSFORMATIONS": disabled})({"x": x})["y"]
        for disabled in (False, True)
    )
    np.testing.assert_array_equal(found, plain)


@pytest.mark.parametrize("change", [{}, {"DISABLE_TRANSFORMATIONS": True}])
@pytest.mark.parametrize("before", [{}, {"DISABLE_TRANSFORMATIONS": True}])
def test_export_of_a_move_of_a_constant(before: dict[str, bool], change: dict[str, bool]) -> None:
    """The move computes the result of the QuantizeLinear after it, which is stored instead of its own."""
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "one"], ["a"]),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[2]),
        helper.make_node("QuantizeLinear", ["b", "one", "zero"], ["c"]),
        helper.make_node("Add", ["c", "x"], ["y"]),
    ]
    x = np.uint8([[[1, 2]]])
    proto = model(nodes, {"x": x}, ["y"], 17)
    for name, value in (("w", np.uint8([[[1, 5, 3]]])), ("one", np.float32(1)), ("zero", np.uint8(0))):
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    file = io.BytesIO()
    Core().compile_model(Core().read_model(proto), "CPU", before).export_model(file)
    found = Core().import_model(file.getvalue(), "CPU", change)({"x": x})["y"]
    np.testing.assert_array_equal(found, np.uint8([[[6, 7]]]))


def test_one_constant_is_quantized_to_two_types() -> None:
    """Both results come from the same float32 numbers, by zero points with the same bytes."""
    nodes = []
    for zero in ("signed", "unsigned"):
        nodes += [
            helper.make_node("DequantizeLinear", ["w", "half"], [f"{zero} a"]),
            helper.make_node("Concat", [f"{zero} a"], [f"{zero} b"], axis=0),
            helper.make_node("QuantizeLinear", [f"{zero} b", "two", zero], [f"{zero} y"]),
        ]
    proto = model(nodes, {}, ["signed y", "unsigned y"], 21)
    constants = {"w": np.int16([-300, 0, 300, 1000]), "half": np.float32(0.5), "two": np.float32(2)}
    for name, value in (constants | {"signed": np.int8(0), "unsigned": np.uint8(0)}).items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    found = Core().compile_model(Core().read_model(proto), "CPU")({})
    np.testing.assert_array_equal(found["signed y"], np.int8([-75, 0, 75, 127]), strict=True)
    np.testing.assert_array_equal(found["unsigned y"], np.uint8([0, 0, 75, 250]), strict=True)


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_moves_of_16_bits_keep_no_tables(factor: float) -> None:
    """A table of 65,536 numbers only shows whether a move changes them."""
    count, nodes = 40, []
    for i in range(count):
        nodes += [
            helper.make_node("DequantizeLinear", [f"x{i}", "fine", "zero"], [f"a{i}"]),
            helper.make_node("Transpose", [f"a{i}"], [f"b{i}"]),
            helper.make_node("QuantizeLinear", [f"b{i}", "coarse", "zero"], [f"x{i + 1}"]),
        ]
    x = np.uint16([[0, 1, 2], [40_000, 65_534, 65_535]])
    proto = model(nodes, {"x0": x}, [f"x{count}"], 21)
    for name, value in (("fine", np.float32(0.1)), ("coarse", np.float32(0.1 * factor)), ("zero", np.uint16(32_768))):
        proto.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    compiled = Core().compile_model(Core().read_model(proto), "CPU")
    gc.collect()
    tracemalloc.start()
    try:
        (found,) = compiled({"x0": x}).values()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < count * 32_768
    expected = x.astype(np.int64) - 32_768
    for _ in range(count):
        expected = np.rint(expected / factor).astype(np.int64)
    np.testing.assert_array_equal(found, expected + 32_768)
