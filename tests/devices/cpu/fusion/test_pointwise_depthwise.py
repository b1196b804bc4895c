"""1x1 convolutions that join the depthwise convolution of their result, and those that stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from fusion_nets import Net, array, calls, check
from hetero.devices.cpu.fusion import pointwise_depthwise

IMAGE = (2, 6, 15, 17)
MAPS = 20


@pytest.fixture(autouse=True)
def _small_images_join_too(monkeypatch, request):
    if "true_size" not in request.fixturenames:
        monkeypatch.setattr(pointwise_depthwise, "_LEAST_ELEMENTS", 0)


@pytest.fixture
def true_size():
    """Small images stay apart, as outside these tests."""


def block(
    shape: Any = IMAGE,
    pointwise: Any = (MAPS, IMAGE[1], 1, 1),
    depthwise: Any = (MAPS, 1, 3, 3),
    biases: bool = True,
    first: dict[str, Any] | None = None,
    **attributes: Any,
) -> tuple[Net, str, str, str]:
    """A 1x1 convolution, its activation, and a depthwise convolution."""
    net = Net(shape)
    attributes = {"group": depthwise[0], "pads": [1, 1, 1, 1], **attributes}
    bias = [array(pointwise[0])] if biases else []
    expanded = net("Conv", "x", array(*pointwise, scale=0.4), *bias, **(first or {}))
    active = net("Relu", expanded)
    result = net("Conv", active, array(*depthwise, scale=0.4), *([array(depthwise[0])] if biases else []), **attributes)
    return net, expanded, active, result


@pytest.mark.parametrize("strides", [[1, 1], [2, 2], [1, 3]])
@pytest.mark.parametrize(
    ("kernel", "pads"),
    [((3, 3), [1, 1, 1, 1]), ((5, 5), [2, 2, 2, 2]), ((3, 3), [0, 0, 0, 0]), ((4, 5), [3, 2, 0, 1]), ((1, 1), [0] * 4)],
)
def test_blocks(strides, kernel, pads):
    net, *_, result = block(depthwise=(MAPS, 1, *kernel), strides=strides, pads=pads)
    last = net("Sigmoid", result)
    # A depthwise convolution with one tap and no strides becomes a product.
    if kernel == (1, 1) and strides == [1, 1]:
        check(net.model(last), IMAGE, 2)
    else:
        check(net.model(last), IMAGE, 1)


@pytest.mark.parametrize("shape", [(1, 1, 30, 12), (1, 128, 12, 12), (3, 8, 1, 12), (1, 24, 64, 70), (1, 128, 6, 1213)])
def test_sizes(shape):
    net, *_, result = block(shape, (MAPS, shape[1], 1, 1), biases=False)
    check(net.model(result), shape, 1)


@pytest.mark.parametrize(
    "options",
    [
        {"shape": (2, 6, 15, 11)},  # columns
        {"shape": (2, 129, 15, 17), "pointwise": (MAPS, 129, 1, 1)},
        {"pointwise": (15, 6, 1, 1), "depthwise": (15, 1, 3, 3)},
        {"pointwise": (MAPS, 6, 3, 1)},
        {"first": {"strides": [1, 2]}, "shape": (2, 6, 15, 33)},
        {"first": {"pads": [1, 0, 0, 0]}},
        {"first": {"pads": [0, 0, 0, 2]}},
        {"pointwise": (MAPS, 3, 1, 1), "first": {"group": 2}},
        {"depthwise": (2 * MAPS, 1, 3, 3), "group": MAPS},
        {"depthwise": (MAPS, 2, 3, 3), "group": MAPS // 2},
        {"depthwise": (MAPS, MAPS, 3, 3), "group": 1},
        {"dilations": [2, 1]},
        {"pads": [3, 1, 1, 1]},
        {"pads": [0, 1, 3, 1]},  # the last row of windows lies in the padding
        {"shape": (1, 6, 42, 40), "depthwise": (MAPS, 1, 33, 32)},  # a large kernel
        {"shape": (1, 2, 1, 30000), "pointwise": (MAPS, 2, 1, 1)},  # long rows
        {"shape": (1, 128, 6, 1214), "pointwise": (MAPS, 128, 1, 1)},  # more in memory than 2 ** 20 elements
        {"strides": [1, 1 << 16]},
        {"strides": [1 << 21, 1 << 21]},
    ],
)
def test_near_misses(options):
    shape = options.pop("shape", IMAGE)
    net, *_, result = block(shape, **options)
    check(net.model(result), shape, 2)


def test_results_that_are_read_elsewhere():
    for number, extra in ((0, 1), (1, 0)):
        net, expanded, active, result = block()
        check(net.model((expanded, active)[number], result), IMAGE, 2 + extra)
    net, _, active, result = block()
    check(net.model(net("Add", result, active)), IMAGE, 2)  # the sum is an addend of the depthwise convolution
    net, _, active, result = block(pads=[1, 1, 1, 1])
    check(net.model(net("Add", result, array(*IMAGE[:1], MAPS, *IMAGE[2:]))), IMAGE, 2)


def test_a_reshape_between():
    net = Net(IMAGE)
    expanded = net("Conv", "x", array(MAPS, IMAGE[1], 1, 1))
    other = net("Reshape", expanded, np.array([IMAGE[0], MAPS, IMAGE[3], IMAGE[2]]))
    check(net.model(net("Conv", other, array(MAPS, 1, 3, 3), group=MAPS, pads=[1] * 4)), IMAGE, 2)


def test_weights_that_are_results():
    """Weights that the model computes are packed by the convolution itself, so they do not join."""
    net = Net(IMAGE)
    weights = net("Mul", array(MAPS, IMAGE[1], 1, 1), net("ReduceMean", "x", keepdims=0))
    result = net("Conv", net("Conv", "x", weights), array(MAPS, 1, 3, 3), group=MAPS)
    check(net.model(result), IMAGE, 4)
    net = Net(IMAGE)
    weights = net("Mul", array(MAPS, 1, 3, 3), net("ReduceMean", "x", keepdims=0))
    expanded = net("Conv", "x", array(MAPS, IMAGE[1], 1, 1))
    check(net.model(net("Conv", expanded, weights, group=MAPS)), IMAGE, 3)


@pytest.mark.parametrize("opset", [11, 22])
def test_changing_sizes(opset):
    rng = np.random.default_rng(0)
    tensors = {"w": (MAPS, 6, 1, 1), "v": (MAPS, 1, 3, 3)}
    weights = [numpy_helper.from_array(rng.standard_normal(s, np.float32), n) for n, s in tensors.items()]
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["a"]),
            helper.make_node("Conv", ["a", "v"], ["y"], group=MAPS, pads=[1] * 4, strides=[2, 2]),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6, "H", "W"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", MAPS, None, None])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    fused = hetero.compile(model, "CPU")
    plain = hetero.compile(model, "CPU", {"DISABLE_TRANSFORMATIONS": True})
    for shape in ((1, 20, 20), (2, 9, 31), (1, 1, 1), (1, 5, 11), (1, 5, 12), (0, 8, 16), (1, 200, 300), (3, 20, 20)):
        inputs = {"x": rng.standard_normal((shape[0], 6, *shape[1:]), np.float32)}
        np.testing.assert_allclose(fused(inputs)["y"], plain(inputs)["y"], rtol=1e-5, atol=1e-5)
    assert calls(fused, {"x": np.zeros((1, 6, 20, 20), np.float32)}) == 1


@pytest.mark.usefixtures("true_size")
def test_a_small_image_stays():
    """16 * 96 * 256 elements fill the L2 cache, one row less does not."""
    for rows, count in ((96, 1), (95, 2)):
        shape = (1, 4, rows, 256)
        net, *_, result = block(shape, (16, 4, 1, 1), (16, 1, 3, 3))
        check(net.model(result), shape, count)
