"""Convolutions of the CPU device beside onnxruntime: every way that the weights and shapes of a node lead to."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import hetero
from plain_convolution import naive
from sessions import onnxruntime_session

pytestmark = pytest.mark.spread(2)

FLOAT = onnx.TensorProto.FLOAT
CASES = {  # x, w, group, strides, dilations, pads
    "tiles of 4": ((2, 24, 30, 33), (40, 24, 3, 3), 1, (1, 1), (1, 1), (1, 1, 1, 1)),
    "tiles of 4, uneven pads": ((1, 16, 29, 18), (16, 16, 3, 3), 1, (1, 1), (1, 1), (0, 1, 2, 3)),
    "tiles of 2": ((1, 130, 7, 7), (140, 130, 3, 3), 1, (1, 1), (1, 1), (1, 1, 1, 1)),
    "tiles, grouped": ((1, 64, 20, 20), (64, 32, 3, 3), 2, (1, 1), (1, 1), (1, 1, 1, 1)),
    "3x3 with stride": ((1, 24, 30, 33), (40, 24, 3, 3), 1, (2, 2), (1, 1), (1, 1, 1, 1)),
    "3x3 dilated": ((1, 24, 30, 33), (40, 24, 3, 3), 1, (1, 1), (2, 2), (2, 2, 2, 2)),
    "tiles, dilated": ((2, 40, 30, 33), (48, 40, 3, 3), 1, (1, 1), (2, 3), (2, 1, 2, 4)),
    "phases, dilation 4": ((1, 64, 28, 28), (64, 64, 3, 3), 1, (1, 1), (4, 4), (4, 4, 4, 4)),
    "phases, sizes that dilations do not divide": ((2, 64, 27, 33), (48, 64, 3, 3), 1, (1, 1), (2, 3), (2, 3, 1, 4)),
    "phases, groups": ((1, 96, 26, 26), (96, 48, 3, 3), 2, (1, 1), (2, 1), (2, 1, 2, 1)),
    "dilated far into the padding": ((2, 40, 20, 21), (48, 40, 3, 3), 1, (1, 1), (15, 12), (15, 12, 15, 12)),
    "grouped, dilated far into the padding": ((1, 80, 20, 20), (96, 40, 3, 3), 2, (1, 1), (15, 15), (15, 15, 15, 15)),
    "stem": ((1, 3, 40, 61), (16, 3, 3, 3), 1, (2, 2), (1, 1), (1, 1, 1, 1)),
    "depthwise": ((1, 40, 28, 28), (40, 1, 3, 3), 40, (1, 1), (1, 1), (1, 1, 1, 1)),
    "depthwise, stride 2": ((1, 40, 28, 29), (40, 1, 5, 5), 40, (2, 2), (1, 1), (2, 2, 2, 2)),
    "depthwise, small planes": ((2, 40, 7, 7), (40, 1, 5, 5), 40, (1, 1), (1, 1), (2, 2, 2, 2)),
    "narrow groups": ((1, 32, 14, 14), (64, 4, 3, 3), 8, (1, 1), (1, 1), (1, 1, 1, 1)),
    "7x1": ((2, 24, 17, 17), (40, 24, 7, 1), 1, (1, 1), (1, 1), (3, 0, 3, 0)),
    "1x7": ((2, 24, 17, 17), (40, 24, 1, 7), 1, (1, 1), (1, 1), (0, 3, 0, 3)),
    "7x1, uneven pads": ((1, 24, 9, 17), (40, 24, 7, 1), 1, (1, 1), (1, 1), (6, 0, 0, 0)),
    "1x7, stride 2, dilated": ((1, 24, 17, 17), (40, 24, 1, 7), 1, (2, 2), (1, 2), (0, 6, 0, 6)),
    "one input channel": ((1, 1, 20, 20), (24, 1, 5, 5), 1, (1, 1), (1, 1), (2, 2, 2, 2)),
    "1-D": ((1, 16, 200), (24, 16, 3), 1, (1,), (1,), (1, 1)),
    "1-D, depthwise": ((1, 16, 200), (16, 1, 31), 16, (1,), (1,), (15, 15)),
    "3-D": ((1, 8, 6, 12, 12), (16, 8, 3, 3, 3), 1, (1, 1, 1), (1, 1, 1), (1, 1, 1, 1, 1, 1)),
    "3-D, tiles in a plane": ((2, 24, 1, 14, 14), (40, 24, 1, 3, 3), 1, (1, 1, 1), (1, 1, 1), (0, 1, 1, 0, 1, 1)),
    "3-D, dilated in a plane": (
        (2, 64, 1, 28, 28),
        (64, 64, 1, 3, 3),
        1,
        (1, 1, 1),
        (1, 2, 2),
        (0, 2, 2, 0, 2, 2),
    ),
    "3-D, planes": ((2, 24, 3, 14, 14), (40, 24, 1, 3, 3), 1, (1, 1, 1), (1, 1, 1), (0, 1, 1, 0, 1, 1)),
    "3-D, depthwise": ((1, 8, 6, 12, 12), (8, 1, 3, 3, 3), 8, (1, 1, 1), (1, 1, 1), (1, 1, 1, 1, 1, 1)),
}


def model_of(case: str, constant: bool) -> tuple[onnx.ModelProto, dict[str, np.ndarray[Any, Any]]]:
    """Conv, BatchNormalization, an addition and Relu; the weights are an input unless ``constant``."""
    x_shape, w_shape, group, strides, dilations, pads = CASES[case]
    rng = np.random.default_rng(0)
    maps = w_shape[0]
    arrays = {
        "x": rng.standard_normal(x_shape, np.float32),
        "w": rng.standard_normal(w_shape, np.float32) / np.sqrt(np.float32(np.prod(w_shape[1:]))),
        "b": rng.standard_normal(maps, np.float32),
        "scale": rng.uniform(0.5, 2, maps).astype(np.float32),
        "shift": rng.standard_normal(maps, np.float32),
        "mean": rng.standard_normal(maps, np.float32),
        "variance": rng.uniform(0.5, 2, maps).astype(np.float32),
        "z": rng.standard_normal((maps, *[1] * (len(x_shape) - 2)), np.float32),
    }
    given = ["x"] if constant else ["x", "w"]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], group=group, strides=strides, dilations=dilations, pads=pads),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"]),
        helper.make_node("Mul", ["n", "z"], ["m"]),
        helper.make_node("Add", ["n", "m"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        case,
        [helper.make_tensor_value_info(name, FLOAT, arrays[name].shape) for name in given],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in ("c", "y")],
        [numpy_helper.from_array(array, name) for name, array in arrays.items() if name not in given],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, {name: arrays[name] for name in given}


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_as_onnxruntime(case: str, constant: bool) -> None:
    model, inputs = model_of(case, constant)
    session = onnxruntime_session(model)
    expected = session.run(["c", "y"], inputs)
    core = hetero.Core()
    runs = []
    for config in [{"INFERENCE_NUM_THREADS": 1}, {"INFERENCE_NUM_THREADS": 3}, {"DISABLE_TRANSFORMATIONS": True}]:
        found = core.compile_model(core.read_model(model), "CPU", config)(inputs)
        for name, reference in zip(("c", "y"), expected, strict=True):
            np.testing.assert_allclose(found[name], reference, rtol=0, atol=1e-5 * np.abs(reference).max())
        runs.append(found)
    for name in ("c", "y"):
        np.testing.assert_array_equal(runs[0][name], runs[1][name])


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("weight", "variance"),
    [(1.0, 1.0), (np.inf, 1.0), (np.nan, 1.0), (3e38, 1e-4)],
    ids=["finite", "inf", "nan", "scaled"],
)
@pytest.mark.parametrize(
    ("size", "stride", "dilation"), [(20, 1, 15), (4, 2, 1), (5, 2, 1)], ids=["dilated", "4 pixels", "9 pixels"]
)
def test_products_of_padding_with_infinite_weights(
    size: int, stride: int, dilation: int, weight: float, variance: float, constant: bool
) -> None:
    """Padding counts as 0 in every product, so an infinite weight makes NaN even where it always meets padding. A
    weight that only becomes infinite when BatchNormalization is folded may do so too."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 40, size, size), np.float32), rng.standard_normal((48, 40, 3, 3), np.float32)
    w[5, 7, 0, 0] = weight
    geometry = ([stride] * 2, [dilation] * 2, [dilation] * 2, [dilation] * 2)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], strides=geometry[0], dilations=geometry[1], pads=[dilation] * 4),
        helper.make_node("BatchNormalization", ["c", "one", "zero", "zero", "variance"], ["y"], epsilon=0.0),
    ]
    arrays = {"one": np.ones(48), "zero": np.zeros(48), "variance": np.full(48, variance)}
    constants = {name: array.astype(np.float32) for name, array in arrays.items()} | ({"w": w} if constant else {})
    graph = helper.make_graph(
        nodes,
        "dilated",
        [
            helper.make_tensor_value_info(name, FLOAT, array.shape)
            for name, array in (("x", x), ("w", w))
            if name not in constants
        ],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = (naive(x, w, 1, *geometry) / np.sqrt(np.float64(np.float32(variance)))).astype(np.float32)
    with np.errstate(over="ignore"):
        found = hetero.Core().compile_model(model, "CPU")({"x": x} if constant else {"x": x, "w": w})["y"]
    if variance != 1:
        found[:, 5], expected[:, 5] = 0, 0
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 / np.sqrt(variance))


@pytest.mark.parametrize("auto_pad", ["VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kernel", [(7, 1), (1, 7), (4, 1), (1, 4), (5, 5)])
@pytest.mark.parametrize("group", [1, 2, 24])
def test_auto_pad(auto_pad: str, kernel: tuple[int, int], group: int) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1, 24, 17, 16), np.float32)
    weights = rng.standard_normal((48 if group < 24 else 24, 24 // group, *kernel), np.float32)
    for strides in [(1, 1), (2, 1), (1, 2)]:
        node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad=auto_pad, group=group, strides=strides)
        graph = helper.make_graph(
            [node],
            "auto_pad",
            [helper.make_tensor_value_info("x", FLOAT, x.shape)],
            [helper.make_tensor_value_info("y", FLOAT, None)],
            [numpy_helper.from_array(weights, "w")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        session = onnxruntime_session(model)
        (wanted,) = session.run(None, {"x": x})
        found = hetero.Core().compile_model(model, "CPU")({"x": x})["y"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("maps", [20, 32, 40])
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5)])
def test_weights_that_convolutions_of_different_groups_share(maps: int, kernel: tuple[int, int]) -> None:
    """How weights are packed depends on the groups: 20 maps in panels of 16 are 2 panels, in two groups of 10 too."""
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((maps, 8, *kernel), np.float32)
    feeds = {f"x{group}": rng.standard_normal((1, 8 * group, 12, 12), np.float32) for group in (1, 4, 2)}
    nodes = [
        helper.make_node("Conv", [name, "w"], [f"y{name}"], group=array.shape[1] // 8) for name, array in feeds.items()
    ]
    graph = helper.make_graph(
        nodes,
        "shared",
        [helper.make_tensor_value_info(name, FLOAT, array.shape) for name, array in feeds.items()],
        [helper.make_tensor_value_info(node.output[0], FLOAT, None) for node in nodes],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime_session(model)
    compiled = hetero.Core().compile_model(model, "CPU")
    for found, wanted in zip(compiled(feeds).arrays(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "pads"),
    [
        ((1, 0, 1, 0), (40, 0, 1, 1), (0, 0, 2, 2)),
        ((2, 0, 5, 20), (16, 0, 3, 3), (1, 1, 1, 1)),
        ((2, 0, 30), (4, 0, 5), (0, 0)),
        ((1, 8, 0, 4), (8, 8, 3, 3), (2, 1, 2, 1)),
        ((1, 8, 0, 4), (8, 1, 3, 3), (2, 1, 2, 1)),
    ],
)
def test_no_channels_and_empty_images(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], pads: tuple[int, ...], constant: bool
) -> None:
    """Sums of nothing: the bias everywhere."""
    arrays = {"x": np.zeros(x_shape, np.float32), "w": np.ones(w_shape, np.float32)}
    arrays["b"] = np.arange(w_shape[0], dtype=np.float32)
    given = ["x"] if constant else ["x", "w", "b"]
    group = max(1, x_shape[1] // max(1, w_shape[1]))
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=pads, group=group)],
        "empty",
        [helper.make_tensor_value_info(name, FLOAT, [None] * arrays[name].ndim) for name in given],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(arrays[name], name) for name in arrays if name not in given],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = hetero.Core().compile_model(model, "CPU")({name: arrays[name] for name in given})["y"]
    assert found.size
    assert np.array_equal(found, np.broadcast_to(arrays["b"].reshape(-1, *[1] * (len(x_shape) - 2)), found.shape))


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((2, 6, 20, 30), {}),
        ((2, 6, 900), {"dilations": [3]}),
        ((1, 6, 20, 30), {"strides": [2, 1]}),
        ((1, 6, 20, 30), {"pads": [0, 1, 0, 1]}),
        ((1, 6, 20, 30), {"auto_pad": "SAME_UPPER"}),
        ((1, 6, 1, 3), {}),
        ((0, 6, 20, 30), {}),
    ],
)
def test_a_depthwise_kernel_of_one_element(
    shape: tuple[int, ...], attributes: dict[str, Any], biased: bool, constant: bool
) -> None:
    """Scales each channel, unless it moves or drops pixels."""
    rng = np.random.default_rng(5)
    feeds = {"x": rng.standard_normal(shape, np.float32)}
    feeds["w"] = rng.standard_normal((6, 1, *[1] * (len(shape) - 2)), np.float32)
    if biased:
        feeds["b"] = rng.standard_normal(6, np.float32)
    feeds["x"][..., :1, :1] = np.inf
    node = helper.make_node("Conv", list(feeds), ["y"], group=6, **attributes)
    known = set(feeds) - {"x"} if constant else set()
    inputs = [helper.make_tensor_value_info(name, 1, feeds[name].shape) for name in feeds if name not in known]
    initializers = [onnx.numpy_helper.from_array(feeds[name], name) for name in known]
    graph = helper.make_graph([node], "scale", inputs, [helper.make_tensor_value_info("y", 1, None)], initializers)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    given = {name: feeds[name] for name in feeds if name not in known}
    expected = onnxruntime_session(proto).run(None, given)[0]
    np.testing.assert_allclose(hetero.compile(proto, "CPU")(given)["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 6, 5, 7), (1, 6, 1, 3), (2, 6, 20, 30)])
def test_a_depthwise_kernel_of_one_element_has_the_same_bits_in_plans_for_many_sizes(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(6)
    arrays = {name: rng.standard_normal(dims, np.float32) for name, dims in (("w", (6, 1, 1, 1)), ("b", (6,)))}
    x = rng.standard_normal(shape, np.float32)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], group=6)

    def compiled(dims: list[Any]) -> hetero.CompiledModel:
        inputs = [helper.make_tensor_value_info("x", FLOAT, dims)]
        initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
        graph = helper.make_graph(
            [node], "scale", inputs, [helper.make_tensor_value_info("y", FLOAT, None)], initializers
        )
        return hetero.compile(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "CPU"
        )

    many = compiled(["n", 6, "h", "w"])
    for height in (11, 12, 13):
        many({"x": np.zeros((3, 6, height, 9), np.float32)})
    assert np.array_equal(many({"x": x})["y"], compiled(list(shape))({"x": x})["y"])
