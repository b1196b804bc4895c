"""Pads that become the padding of a convolution, and those that stay."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import hetero
from fusion_nets import Net, array, check

pytestmark = pytest.mark.spread(2)

IMAGE = (2, 6, 9, 11)


def padded(shape, outer, weights, pad_inputs=(), mode="constant", **attributes):
    """A net of a Pad and a Conv, and the names of their results."""
    net = Net(shape)
    image = net("Pad", "x", np.array(outer), *pad_inputs, mode=mode)
    return net, image, net("Conv", image, weights, **attributes)


@pytest.mark.parametrize("pads", [[0, 0, 1, 2, 0, 0, 3, 0], [0, 0, 0, 0, 0, 0, 1, 1], [0, 0, 5, 5, 0, 0, 5, 5]])
@pytest.mark.parametrize("own", [{}, {"pads": [1, 0, 2, 1]}, {"strides": [2, 3]}, {"dilations": [2, 2]}])
@pytest.mark.parametrize("weights", [(6, 6, 3, 3), (6, 1, 3, 3), (4, 6, 1, 1), (6, 3, 1, 3)])
def test_pads_of_an_image(pads, own, weights):
    net, _, result = padded(IMAGE, pads, array(*weights, scale=0.3), group=6 // weights[1], **own)
    check(net.model(net("Relu", result)), IMAGE, 1)


@pytest.mark.parametrize(("shape", "rank"), [((2, 6, 20), 1), ((1, 6, 4, 9, 8), 3)])
def test_other_ranks(shape, rank):
    pads = [0, 0, *[1] * rank, 0, 0, *[2] * rank]
    net, _, result = padded(shape, pads, array(6, 6, *[3] * rank, scale=0.2))
    check(net.model(result), shape, 1)


@pytest.mark.parametrize("kernel", [(1, 3, 3), (3, 3, 3)])
def test_depth(kernel):
    """A kernel of depth 1 uses Winograd's filtering, which does not pad depth."""
    shape = (1, 40, 1, 14, 14)
    net, _, result = padded(shape, [0, 0, 1, 1, 1, 0, 0, 1, 1, 1], array(48, 40, *kernel, scale=0.1))
    inputs = {"x": array(*shape)}
    fused = hetero.compile(net.model(result), "CPU")(inputs)
    plain = hetero.compile(net.model(result), "CPU", {"DISABLE_TRANSFORMATIONS": True})(inputs)
    np.testing.assert_allclose(fused[result], plain[result], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("pads", "inputs", "mode"),
    [
        ([0, 0, 1, 1, 0, 0, 1, 1], [np.float32(0.5)], "constant"),
        ([0, 0, 1, 1, 0, 0, 1, 1], [], "edge"),
        ([0, 0, 1, 1, 0, 0, 1, 1], [], "reflect"),
        ([0, 0, -1, 1, 0, 0, 1, 1], [], "constant"),
        ([0, 0, 1, 1, 0, 0, -1, 1], [], "constant"),
        ([0, 1, 1, 1, 0, -1, 1, 1], [], "constant"),
        ([1, 0, 1, 1, 0, 0, 1, 1], [], "constant"),
        ([0, 0, 1, 1, 1, 0, 1, 1], [], "constant"),
    ],
)
def test_other_pads_stay(pads, inputs, mode):
    net, _, result = padded(IMAGE, pads, array(5, 6, 3, 3, scale=0.3), inputs, mode)
    check(net.model(result), IMAGE, 2)


def test_a_pad_that_others_read_stays():
    net, image, result = padded(IMAGE, [0, 0, 1, 1, 0, 0, 1, 1], array(5, 6, 3, 3, scale=0.3))
    check(net.model(result, image), IMAGE, 2)
    net, image, result = padded(IMAGE, [0, 0, 1, 1, 0, 0, 1, 1], array(5, 6, 3, 3, scale=0.3))
    check(net.model(net("Mul", result, net("Conv", image, array(5, 6, 3, 3, scale=0.3)))), IMAGE, 4)


def test_a_zero_of_known_value_and_an_input():
    """The value decides, so it must be known."""
    weights = array(5, 6, 3, 3, scale=0.3)
    net, _, result = padded(IMAGE, [0, 0, 1, 1, 0, 0, 1, 1], weights, [np.float32(0)])
    check(net.model(result), IMAGE, 1)
    net, _, result = padded(IMAGE, [0, 0, 1, 1, 0, 0, 1, 1], weights, ["v"])
    model = net.model(result)
    model.graph.input.append(helper.make_tensor_value_info("v", TensorProto.FLOAT, []))
    x = array(*IMAGE)
    compiled = hetero.compile(model, "CPU")
    zeros = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    for value in (0.0, 2.0):
        whole = np.where(np.pad(np.ones_like(x), [(0, 0), (0, 0), (1, 1), (1, 1)]) > 0, zeros, np.float32(value))
        windows = np.lib.stride_tricks.sliding_window_view(whole, (3, 3), axis=(2, 3))
        expected = np.einsum("ncyxij,mcij->nmyx", windows, weights)
        np.testing.assert_allclose(compiled({"x": x, "v": np.float32(value)})[result], expected, rtol=1e-4, atol=1e-5)


def test_changing_sizes():
    net, _, result = padded(("n", 6, "h", "w"), [0, 0, 1, 0, 0, 0, 1, 2], array(5, 6, 3, 3, scale=0.3), strides=[2, 2])
    compiled = hetero.compile(net.model(result), "CPU")
    for shape in [(1, 6, 9, 9), (2, 6, 9, 11), (1, 6, 1, 1), (3, 6, 20, 2), (0, 6, 5, 5)]:
        x = array(*shape)
        alone = hetero.compile(net.model(result), "CPU", {"DISABLE_TRANSFORMATIONS": True})({"x": x})[result]
        np.testing.assert_allclose(compiled({"x": x})[result], alone, rtol=1e-5, atol=1e-5)
