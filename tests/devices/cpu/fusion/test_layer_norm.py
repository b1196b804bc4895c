"""Layer normalization: decomposed by exporters, with an addition before it, and scales of every shape."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import hetero
from fusion_nets import SHAPE, Net, array, check, layer_norm


@pytest.mark.parametrize("square_by_mul", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_decomposed_layer_normalization_is_one_call(square_by_mul, bias):
    net = Net(SHAPE)
    check(net.model(layer_norm(net, "x", square_by_mul, bias)), SHAPE, 1)


def test_root_mean_square_normalization_is_one_call():
    net = Net(SHAPE)
    root = net("Sqrt", net("Add", net("ReduceMean", net("Pow", "x", 2.0), np.array([-1]), keepdims=1), 1e-6))
    check(net.model(net("Mul", net("Div", "x", root), array(24))), SHAPE, 1)


def test_a_power_of_a_half_normalizes_too():
    net = Net(SHAPE)
    variance = net("Add", net("ReduceMean", net("Mul", "x", "x"), np.array([-1]), keepdims=1), 1e-6)
    check(net.model(net("Mul", net("Div", "x", net("Pow", variance, 0.5)), array(24))), SHAPE, 1)


def test_a_power_of_a_half_is_no_square_root():
    net = Net((4,))
    model = net.model(net("Pow", "x", 0.5))
    found = hetero.Core().compile_model(model, "CPU")({"x": np.array([4, 0.0, -0.0, -np.inf], np.float32)})[0]
    assert found.tolist() == [2, 0, 0, np.inf]
    assert not np.signbit(found).any()


def test_a_power_of_almost_two_is_no_square():
    net = Net((4, 24))
    exponent = float(np.nextafter(np.float32(2), np.float32(3)))  # NaN for negative numbers
    variance = net("Add", net("ReduceMean", net("Pow", "x", exponent), np.array([-1]), keepdims=1), 1e-6)
    model = net.model(net("Mul", net("Div", "x", net("Sqrt", variance)), array(24)))
    assert np.isnan(hetero.Core().compile_model(model, "CPU")({"x": array(4, 24) - 10})[0]).all()


def test_the_mean_of_other_axes_is_another_normalization():
    net = Net((2, 24, 24))
    centered = net("Sub", "x", net("ReduceMean", "x", np.array([1]), keepdims=1))
    root = net("Sqrt", net("Add", net("ReduceMean", net("Pow", centered, 2.0), np.array([1]), keepdims=1), 1e-5))
    check(net.model(net("Mul", net("Div", centered, root), array(24))), (2, 24, 24), 8)


def test_an_addition_before_layer_normalization_joins_it():
    net = Net(SHAPE)
    total = net("Add", net("Sin", "x"), "x")
    normal = net("LayerNormalization", total, array(24), array(24))
    check(net.model(normal), SHAPE, 2)
    check(net.model(normal, total), SHAPE, 2)  # the sum is a result of the same call
    after = net("Cos", total)
    check(net.model(normal, after), SHAPE, 3)


def test_a_sum_that_is_read_before_the_normalization_stays():
    net = Net(SHAPE)
    total = net("Add", net("Sin", "x"), "x")
    early = net("Cos", total)
    normal = net("LayerNormalization", total, array(24), array(24))
    check(net.model(early, normal), SHAPE, 4)


@pytest.mark.parametrize("at", ["scale", "bias", "both"])
def test_a_sum_that_is_its_own_scale_or_bias(at):
    net = Net((24,))
    total = net("Add", net("Sin", "x"), "x")
    scale, bias = (total if at in (name, "both") else array(24) for name in ("scale", "bias"))
    check(net.model(net("LayerNormalization", total, scale, bias)), (24,), 3)


@pytest.mark.parametrize("known", [False, True])
def test_a_value_added_to_itself_before_layer_normalization(known):
    net = Net(SHAPE)
    total = net("Add", "x", array(*SHAPE) if known else "x")
    check(net.model(net("LayerNormalization", total, array(24), array(24))), SHAPE, 1)


@pytest.mark.parametrize(
    ("shape", "axis", "scale", "bias", "num_calls"),
    [
        ((4, 4), -1, (4, 1), (4,), 3),
        ((4, 4), -1, (4,), (4, 1), 2),
        ((4, 4), 0, (4, 1), (1, 4), 3),
        ((2, 3, 6), -1, (2, 3, 1), (), 3),
        ((3, 2, 6), 1, (3, 2, 6), (2, 1), 3),
        ((12, 3, 4), 1, (12, 1, 1), (4,), 3),
        ((5, 3, 4), 1, (5, 1, 1), (1, 3, 4), 3),
        ((1, 3, 4), -2, (1, 3, 4), (3, 4), 1),
        ((5, 1), -1, (5, 1), (1,), 3),
        ((4, 1, 4), -2, (4,), (1, 4), 1),
    ],
)
def test_scale_and_bias_of_layer_normalization_broadcast(shape, axis, scale, bias, num_calls):
    """As many elements as a row do not make a row; NumPy's rules do."""
    net = Net(shape)
    check(net.model(net("LayerNormalization", "x", array(*scale), array(*bias), axis=axis)), shape, num_calls)


def test_scale_of_layer_normalization_for_several_sizes():
    """For 12 rows the scale has as many elements as a row."""
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y"], axis=1)
    ports = [helper.make_tensor_value_info(name, 1, ["N", *rest]) for name, rest in (("x", (3, 4)), ("scale", (1, 1)))]
    graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info("y", 1, ["N", 3, 4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled, reference = hetero.Core().compile_model(model, "CPU"), ReferenceEvaluator(model)
    for n in (5, 12, 1, 12, 0):
        inputs = {"x": array(n, 3, 4), "scale": array(n, 1, 1)}
        assert np.allclose(compiled(inputs)[0], reference.run(None, inputs)[0], atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("scale", [(4,), (3, 1), (2, 1, 1)])
@pytest.mark.parametrize("stash", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_mean_and_deviation_of_layer_normalization(dtype, scale, stash):
    """Far from zero, where the mean of the squares would cancel."""
    offset = 3 if dtype == np.float16 else 1000
    inputs = {"x": (array(2, 3, 4) + offset).astype(dtype), "scale": array(*scale).astype(dtype)}
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y", "mean", "inverse"], axis=-1, stash_type=stash)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ports = [helper.make_tensor_value_info(name, element, value.shape) for name, value in inputs.items()]
    types = {"y": element, "mean": stash, "inverse": stash}
    graph = helper.make_graph(
        [node], "g", ports, [helper.make_tensor_value_info(*item, None) for item in types.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    y, mean, inverse = hetero.Core().compile_model(model, "CPU")(inputs).values()
    wide = inputs["x"].astype(np.float64)
    stashed = helper.tensor_dtype_to_np_dtype(stash)
    assert (y.dtype, mean.dtype, inverse.dtype) == (dtype, stashed, stashed)
    wanted = 1 / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    assert np.allclose(mean, wide.mean(-1, keepdims=True), rtol=1e-3 if stashed == np.float16 else 1e-6)
    assert np.allclose(inverse, wanted, rtol=1e-3)
    normal = (wide - wide.mean(-1, keepdims=True)) * wanted * inputs["scale"].astype(np.float64)
    assert np.allclose(y, normal, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("shape", [(3,), (5, 4), (2, 2, 4), (1, 1, 2, 4)])
@pytest.mark.parametrize("op_type", ["LayerNormalization", "RMSNormalization"])
def test_scales_that_do_not_fit_are_refused(op_type, shape):
    """The scale broadcasts to the input, not the input to the scale."""
    net = Net((2, 4))
    model = net.model(net(op_type, "x", array(*shape)))
    model.opset_import[0].version = 23
    with pytest.raises(hetero.InferenceError, match="do not broadcast|does not fit"):
        hetero.Core().compile_model(model, "CPU")({"x": array(2, 4)})
