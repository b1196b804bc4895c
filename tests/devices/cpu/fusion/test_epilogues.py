"""What joins a product or a convolution: bias, normalization, addend and activation."""

from __future__ import annotations

import numpy as np
import pytest

import hetero
from fusion_nets import SHAPE, Net, array, calls, check


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "Tanh"])
def test_products_take_bias_addend_and_activation(activation):
    net = Net(SHAPE)
    product = net("Add", net("MatMul", "x", array(24, 24, scale=0.2)), array(24))
    check(net.model(net(activation, net("Add", product, "x"))), SHAPE, 1)


def test_only_what_is_there_can_be_added():
    """The second product is made after the first: so the first is the addend of the second."""
    net = Net(SHAPE)
    first, second = (net("MatMul", "x", array(24, 24, scale=0.2)) for _ in range(2))
    check(net.model(net("Add", first, second)), SHAPE, 2)


def test_a_product_added_to_itself():
    net = Net(SHAPE)
    product = net("MatMul", "x", array(24, 24, scale=0.2))
    check(net.model(net("Add", product, product)), SHAPE, 2)


@pytest.mark.parametrize("shape", [(5, 1), (2, 1, 1), (1, 5, 24), (1,), (2, 5, 24)])
def test_operands_that_are_no_bias(shape):
    net = Net(SHAPE)
    summed = net("Add", net("MatMul", "x", array(24, 24, scale=0.2)), array(*shape))
    check(net.model(summed), SHAPE, 1 if shape == SHAPE else 2)


@pytest.mark.parametrize("shape", [(4, 6), (3, 4, 6), (1, 6)])
def test_one_number_for_each_row_of_a_product_with_a_vector_is_no_bias(shape):
    """The result of such a product has no columns: its last axis has the rows."""
    net = Net(shape)
    summed = net("Add", net("MatMul", "x", array(6)), array(shape[-2]))
    x = array(*shape)
    vector, added = net.weights.values()
    found = hetero.Core().compile_model(net.model(summed), "CPU")({"x": x})[0]
    np.testing.assert_allclose(found, x @ vector + added, rtol=1e-5, atol=1e-5)


def test_a_result_that_is_reshaped_before_the_addition_has_no_bias():
    """A Reshape spreads the numbers of one channel or column over several."""
    image = (2, 6, 8, 8)
    net = Net(image)
    made = net("Conv", "x", array(6, 6, 3, 3, scale=0.3), pads=[1, 1, 1, 1])
    check(net.model(net("Add", net("Reshape", made, np.array([4, 6, 4, 8])), array(6, 1, 1))), image, 2)
    net = Net((8, 12))
    made = net("Gemm", "x", array(12, 6), transB=0)
    check(net.model(net("Add", net("Reshape", made, np.array([6, 8])), array(8))), (8, 12), 2)


def test_a_product_that_is_broadcast_stays():
    net = Net((1, 24))
    check(net.model(net("Add", net("MatMul", "x", array(24, 24, scale=0.2)), array(7, 24))), (1, 24), 2)


def test_two_addends_of_one_product():
    net = Net(SHAPE)
    product = net("MatMul", "x", array(24, 24, scale=0.2))
    check(net.model(net("Add", net("Add", net("Add", product, "x"), "x"), array(24))), SHAPE, 3)


IMAGE = (2, 6, 9, 9)


@pytest.mark.parametrize("group", [1, 2, 6])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", [None, "Relu", "HardSigmoid", "LeakyRelu"])
def test_convolutions_take_normalization_addend_and_activation(group, bias, activation):
    net = Net(IMAGE)
    operands = [array(6, 6 // group, 3, 3, scale=0.3), *([array(6)] if bias else [])]
    made = net("Conv", "x", *operands, pads=[1, 1, 1, 1], group=group)
    made = net("BatchNormalization", made, array(6), array(6), array(6), np.abs(array(6)) + 0.1)
    made = net("Add", "x", made)
    if activation:
        made = net(activation, made)
    check(net.model(made), IMAGE, 1, tolerance=1e-4)


def test_a_normalization_whose_input_is_read_elsewhere_stays():
    net = Net(IMAGE)
    convolution = net("Conv", "x", array(6, 6, 1, 1))
    normal = net("BatchNormalization", convolution, array(6), array(6), array(6), np.abs(array(6)) + 0.1)
    check(net.model(normal, convolution), IMAGE, 3, tolerance=1e-4)  # a product and a sum


def test_a_normalization_that_divides_by_nothing_stays():
    net = Net(IMAGE)
    convolution = net("Conv", "x", array(6, 6, 1, 1))
    variance = np.full(6, -1e-5, np.float32)
    model = net.model(net("BatchNormalization", convolution, array(6), array(6), array(6), variance, epsilon=0.0))
    compiled = hetero.Core().compile_model(model, "CPU")
    inputs = {"x": array(*IMAGE)}
    assert calls(compiled, inputs) == 2
    assert np.isnan(compiled(inputs)[0]).all()


def test_a_scale_that_may_overflow_the_weights_stays():
    net = Net(IMAGE)
    convolution = net("Conv", "x", array(6, 6, 1, 1, scale=1e19))
    gain = np.full(6, 1e20, np.float32)
    model = net.model(net("BatchNormalization", convolution, gain, *(np.zeros(6, np.float32),) * 2, gain / gain))
    inputs = {"x": array(*IMAGE, scale=1e-19)}
    compiled = hetero.Core().compile_model(model, "CPU")
    assert calls(compiled, inputs) == 3
    assert np.isfinite(compiled(inputs)[0]).all()


def test_not_a_number_passes_through_fused_activations():
    net = Net(SHAPE)
    model = net.model(net("Relu", net("MatMul", "x", array(24, 24))))
    x = array(*SHAPE)
    x[0, 0, 0] = np.nan
    y = hetero.Core().compile_model(model, "CPU")({"x": x})[0]
    assert np.isnan(y[0, 0]).all()
    assert not np.isnan(y[0, 1:]).any()


@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_what_joins_a_gemm_without_its_bias(beta):
    """With beta = 0 the bias is not read, and later addends are not multiplied by beta."""
    net = Net(["N", 8])
    bias = np.full(6, np.nan, np.float32) if beta == 0 else array(6)
    product = net("Gemm", "x", array(8, 6), bias, beta=beta)
    check(net.model(net("Relu", net("Add", product, array(6)))), (5, 8), 1 if beta == 0 else 3)


def activated(net, image=IMAGE, activation="Relu", group=1, channels=6):
    """A convolution with a bias and an activation."""
    weights = array(channels, image[1] // group, 3, 3, scale=0.3)
    return net(activation, net("Conv", "x", weights, array(channels), pads=[1, 1, 1, 1], group=group))


@pytest.mark.parametrize("group", [1, 2, 6])
@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "LeakyRelu"])
def test_convolutions_take_what_follows_their_activation(group, activation):
    net = Net(IMAGE)
    made = activated(net, activation=activation, group=group)
    made = net("BatchNormalization", made, array(6), array(6), array(6), np.abs(array(6)) + 0.1)
    check(net.model(net("Add", "x", made)), IMAGE, 1, tolerance=1e-4)


@pytest.mark.parametrize(
    "steps",
    [
        [("Add", "x")],
        [("Mul", (6, 1, 1))],
        [("Add", (1, 6, 1, 1))],
        [("Mul", ()), ("Add", (1,))],
        [("Mul", (1, 1, 1, 1)), ("Add", "x")],
        [("Add", (6, 1, 1)), ("Add", "x")],
    ],
)
def test_parts_of_what_follows_an_activation(steps):
    net = Net(IMAGE)
    made = activated(net)
    for op, operand in steps:
        made = net(op, made, operand if operand == "x" else array(*operand).reshape(operand))
    check(net.model(made), IMAGE, 1, tolerance=1e-4)


@pytest.mark.parametrize(
    "steps",
    [
        [("Mul", (6, 9, 1))],
        [("Mul", (9,))],
        [("Mul", (2, 1, 1, 1))],
        [("Mul", "x")],
        [("Mul", (6, 1, 1)), ("Mul", (6, 1, 1))],
        [("Add", (6, 1, 1)), ("Mul", (6, 1, 1))],
        [("Add", (6, 1, 1)), ("Add", (6, 1, 1))],
        [("Add", "x"), ("Add", "x")],
        [("Add", "x"), ("Add", (6, 1, 1))],
        [("Sub", (6, 1, 1))],
        [("Add", (2, 6, 9, 9)), ("Mul", ())],
    ],
)
def test_what_does_not_follow_an_activation_in_the_convolution(steps):
    net = Net(IMAGE)
    made = activated(net)
    for op, operand in steps:
        made = net(op, made, operand if operand == "x" else array(*operand).reshape(operand))
    check(net.model(made), IMAGE, 2, tolerance=1e-4)


def test_what_follows_an_activation_that_is_read_elsewhere_stays():
    for keeps in (True, False):
        net = Net(IMAGE)
        made = activated(net)
        followed = net("Mul", made, array(6, 1, 1))
        net_model = net.model(followed, made) if keeps else net.model(net("Add", followed, made))
        check(net_model, IMAGE, 2 if keeps else 3, tolerance=1e-4)


def test_an_activation_that_is_broadcast_or_reshaped_stays():
    net = Net(IMAGE)
    check(net.model(net("Mul", activated(net), array(3, 1, 6, 1, 1))), IMAGE, 2, tolerance=1e-4)
    net = Net(IMAGE)
    reshaped = net("Reshape", activated(net), np.array([3, 6, 6, 9]))
    check(net.model(net("Mul", reshaped, array(6, 1, 1))), IMAGE, 2, tolerance=1e-4)


def test_one_channel_and_one_pixel():
    for image, channels in (((1, 6, 1, 1), 6), ((2, 3, 4, 4), 1), ((1, 3, 1, 1), 1)):
        net = Net(image)
        made = activated(net, image, channels=channels)
        made = net("Add", net("Mul", made, array(channels, 1, 1)), array(channels, 1, 1))
        check(net.model(made), image, 1, tolerance=1e-4)


def test_only_what_is_there_can_follow_an_activation():
    """The second convolution is made after the first: so the first is what is added to the second."""
    net = Net(IMAGE)
    check(net.model(net("Add", activated(net), activated(net))), IMAGE, 2, tolerance=1e-4)


def test_an_activation_of_each_size_is_followed_by_the_same():
    net = Net(["N", 6, "H", "W"])
    made = net("Add", net("Mul", activated(net), array(6, 1, 1)), "x")
    model = net.model(made)
    for image in ((1, 6, 5, 7), (2, 6, 1, 1), (3, 6, 17, 2), (1, 6, 5, 7)):
        check(model, image, 1, tolerance=1e-4)
