"""Types by inference over the skeleton are those that onnx infers over the whole model."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper
import onnx.shape_inference
import pytest

from hetero.model.model import Model
from hetero.model.read import read_model

Make = Callable[..., onnx.ModelProto]
DATA = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
MODELS = sorted(path.relative_to(DATA).as_posix() for path in DATA.glob("*/*.onnx"))
MODELS += sorted(path.relative_to(DATA).as_posix() for path in DATA.glob("*/*/model.onnx"))


def shape_of(model: Model, name: str) -> tuple[int | str | None, ...] | None:
    return model.type_of(model.value_id(name)).shape


@pytest.mark.parametrize("part", range(6))
def test_agrees_with_inference_of_the_whole(part: int) -> None:
    compared = 0
    for path in MODELS[part::6]:
        proto = onnx.load(DATA / path)
        try:
            inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
        except Exception:  # what onnx cannot infer says nothing about us
            continue
        model = read_model(DATA / path)
        for info in [*inferred.value_info, *inferred.output]:
            value = model.value_id(info.name)
            if value < 0 or not info.type.tensor_type.HasField("shape"):
                continue
            dims = [
                dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in info.type.tensor_type.shape.dim
            ]
            found = model.type_of(value).shape
            assert found is not None, (path, info.name)
            known = [dim if isinstance(dim, int) else None for dim in found]
            assert known == [dim if isinstance(dim, int) else None for dim in dims], (path, info.name)
            compared += 1
    assert compared > 50


@pytest.fixture
def branches(make_model: Make) -> Callable[[str], Model]:
    """x -> Relu -> <captured> -> Concat with itself -> wide; y = If of the two, whose branches capture <captured>."""

    def make(captured: str) -> Model:
        def branch(op: str) -> onnx.GraphProto:
            made = oh.make_node("Concat", [captured, "wide"], [op], axis=0)
            return oh.make_graph([made], op, [], [oh.make_empty_tensor_value_info(op)])

        nodes = [
            oh.make_node("Relu", ["x"], [captured]),
            oh.make_node("Concat", [captured, captured], ["wide"], axis=0),
            oh.make_node("If", ["condition"], ["chosen"], then_branch=branch("a"), else_branch=branch("b")),
            oh.make_node("Concat", ["chosen", "x"], ["y"], axis=0),
        ]
        inputs = [oh.make_tensor_value_info("x", 1, [3, "n"]), oh.make_tensor_value_info("condition", 9, [])]
        return read_model(make_model(nodes, inputs, [oh.make_empty_tensor_value_info("y")]))

    return make


def test_what_nested_graphs_capture_keeps_its_name(branches: Callable[[str], Model]) -> None:
    model = branches("captured")
    names = ("captured", "wide", "chosen", "y")
    assert {name: shape_of(model, name) for name in names} == {
        "captured": (3, "n"),
        "wide": (6, "n"),
        "chosen": (9, "n"),
        "y": (12, "n"),
    }


def test_a_captured_name_that_looks_like_a_short_one(branches: Callable[[str], Model]) -> None:
    model = branches("\x013")
    assert shape_of(model, "wide") is None


@pytest.mark.parametrize("ir_version", [3, 8])
def test_constants_that_shapes_depend_on(make_model: Make, ir_version: int) -> None:
    constants = {
        "scales": np.array([1, 1, 2, 3], np.float32),
        "shape": np.array([0, -1], np.int64),
        "limit": np.array(5, np.float32),
        "step": np.array(0.5, np.float32),
        "start": np.array(0, np.float32),
        "weight": np.ones((480, 4), np.float32),
        "bias": np.ones(4, np.float32),
    }
    nodes = [
        oh.make_node("Resize", ["x", "", "scales"], ["resized"]),
        oh.make_node("Reshape", ["resized", "shape"], ["flat"]),
        oh.make_node("Gemm", ["flat", "weight", "bias"], ["y"]),
        oh.make_node("Range", ["start", "limit", "step"], ["numbers"]),
        oh.make_node("Constant", [], ["sizes"], value_ints=[7, 2]),
        oh.make_node("Expand", ["limit", "sizes"], ["expanded"]),
    ]
    proto = make_model(
        nodes,
        [oh.make_tensor_value_info("x", 1, [5, 2, 4, 10])],
        [oh.make_empty_tensor_value_info("y")],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    proto.ir_version = ir_version
    model = read_model(proto)
    assert shape_of(model, "resized") == (5, 2, 8, 30)
    assert shape_of(model, "y") == (5, 4)
    assert shape_of(model, "numbers") == (10,)
    assert shape_of(model, "expanded") == (7, 2)


@pytest.mark.parametrize("place", ["input", "output", "value_info"])
@pytest.mark.parametrize("ir_version", [3, 8])
def test_a_constant_whose_declared_type_has_no_shape(ir_version: int, place: str) -> None:
    """onnx ignores the data of such a step, and finds no elements between 7 and -1000."""
    bounds = {"starts": 7, "ends": -1000, "axes": 2, "steps": -1}
    inputs = [oh.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3, 17])]
    if ir_version < 4:
        inputs += [oh.make_tensor_value_info(name, onnx.TensorProto.INT64, [1]) for name in bounds]
    graph = oh.make_graph(
        [oh.make_node("Slice", ["x", *bounds], ["y"])],
        "g",
        inputs,
        [oh.make_empty_tensor_value_info("y")],
        [onnx.numpy_helper.from_array(np.array([value]), name) for name, value in bounds.items()],
    )
    if ir_version >= 4 or place != "input":
        getattr(graph, place).append(oh.make_tensor_value_info("steps", onnx.TensorProto.INT64, None))
    model = read_model(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 12)], ir_version=ir_version))
    assert shape_of(model, "y") == (2, 3, 8)
    assert shape_of(model, "steps") == (1,)


@pytest.mark.parametrize("rank", [4, 16, 17])
def test_short_vectors_of_floats_stay_whatever_their_names(make_model: Make, rank: int) -> None:
    """Exporters give the scales of a Resize long names; a vector of 17 elements could be a bias."""
    name = "/layers/layers.0/" * 12 + "scales"
    scales = oh.make_tensor("", 1, [rank], [2.0] * rank)
    nodes = [
        oh.make_node("Constant", [], [name], name, value=scales),
        oh.make_node("Resize", ["x", "", name], ["y"]),
    ]
    inputs = [oh.make_tensor_value_info("x", 1, [1] * rank)]
    found = shape_of(read_model(make_model(nodes, inputs, [oh.make_empty_tensor_value_info("y")])), "y")
    assert found is not None
    assert (found == (2,) * rank) == (rank <= 16)
