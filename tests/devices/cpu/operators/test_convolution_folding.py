"""Linear nodes that are folded into convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import hetero
from fusion_nets import Net, array, calls, check

IMAGE = (2, 6, 9, 8)


def conv(net: Net, x: str, kernel: int, pad: int | None = None, group: int = 1, **attributes: Any) -> str:
    pads = [kernel // 2 if pad is None else pad] * 4
    return net(
        "Conv", x, array(6, 6 // group, kernel, kernel, scale=0.3), array(6), pads=pads, group=group, **attributes
    )


def norm(net: Net, x: str, **attributes: Any) -> str:
    return net("BatchNormalization", x, array(6), array(6), array(6), np.abs(array(6)) + 0.1, **attributes)


@pytest.mark.parametrize("group", [1, 2, 6])
@pytest.mark.parametrize("largest_first", [False, True])
def test_branches_become_one_convolution(group: int, largest_first: bool) -> None:
    """As in RepVGG and MobileOne: convolutions with normalizations, a normalization of the input, constants."""
    net = Net(IMAGE)
    parts = [conv(net, "x", 3, group=group), norm(net, conv(net, "x", 3, group=group)), conv(net, "x", 1, group=group)]
    parts = parts if largest_first else parts[::-1]
    total = net("Add", parts[0], np.float32(0.0))
    total = net("Add", net("Add", norm(net, "x"), total), net("Add", parts[1], parts[2]))
    check(net.model(net("Relu", net("Add", total, array(6, 1, 1)))), IMAGE, 1)


@pytest.mark.parametrize("strides", [[1, 1], [2, 2], [1, 2]])
def test_strided_branches(strides: list[int]) -> None:
    net = Net(IMAGE)
    check(net.model(net("Add", conv(net, "x", 1, strides=strides), conv(net, "x", 5, strides=strides))), IMAGE, 1)


@pytest.mark.parametrize("before", [[0, 0], [2, 1], [1, 2]])
def test_the_small_kernel_lies_anywhere_in_the_large_one(before: list[int]) -> None:
    net = Net(IMAGE)
    large = net("Conv", "x", array(6, 6, 3, 4), pads=[*before, *(2 - before[0], 3 - before[1])])
    small = net("Conv", "x", array(6, 6, 1, 2), pads=[0, 0, 0, 1])
    check(net.model(net("Add", small, large)), IMAGE, 1)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1), (6, 1, 1), (1, 6, 1, 1)])
@pytest.mark.parametrize("op_type", ["Add", "Mul"])
def test_constants_per_channel(op_type: str, shape: tuple[int, ...]) -> None:
    net = Net(IMAGE)
    made = net(op_type, array(*shape), norm(net, conv(net, "x", 3)))
    check(net.model(net("Add", net("Mul", norm(net, made), array(6, 1, 1)), conv(net, "x", 1))), IMAGE, 1)


@pytest.mark.parametrize("op_type", ["Add", "Mul"])
@pytest.mark.parametrize("shape", [(9, 1), (8,), (1, 1, 1, 8), (2, 6, 1, 1), (1, 1, 1, 1, 1), (1, 1, 6, 1, 1)])
def test_constants_of_other_shapes_stay(op_type: str, shape: tuple[int, ...]) -> None:
    net = Net(IMAGE)
    check(net.model(net(op_type, conv(net, "x", 3), array(*shape))), IMAGE, 2)


@pytest.mark.parametrize("op_type", ["Add", "Mul"])
def test_constants_per_image_stay(op_type: str) -> None:
    """Before opset 7, `axis` aligns a constant at another axis than the last one."""
    net = Net((6, 6, 9, 8))
    model = net.model(net(op_type, conv(net, "x", 3), array(6, 1, 1), broadcast=1, axis=0))
    model.opset_import[0].version = 6
    x = {"x": array(6, 6, 9, 8)}
    found, plain = (
        next(iter(hetero.compile(model, "CPU", {"DISABLE_TRANSFORMATIONS": disabled})(x).values()))
        for disabled in (False, True)
    )
    np.testing.assert_allclose(found, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("factor", [0.0, -1.0, 1e-30, 1e30, np.inf, np.nan])
def test_extreme_factors(factor: float) -> None:
    """Those that the weights cannot hold stay beside them."""
    net = Net(IMAGE)
    model = net.model(net("Mul", conv(net, "x", 3), np.full((6, 1, 1), factor, np.float32)))
    x = {"x": array(*IMAGE)}
    found, plain = (
        next(iter(hetero.compile(model, "CPU", {"DISABLE_TRANSFORMATIONS": disabled})(x).values()))
        for disabled in (False, True)
    )
    np.testing.assert_allclose(found, plain, rtol=1e-4, atol=1e-5 * min(abs(factor), 1e30))


@pytest.mark.parametrize(("weight", "factor", "x"), [(1e25, 1e18, 1e-20), (1e-30, 1e-18, 1e20), (1e-10, 1e-18, 1e20)])
@pytest.mark.parametrize("branches", [1, 2])
def test_products_of_weights_and_factors_stay_normal(weight: float, factor: float, x: float, branches: int) -> None:
    net = Net(IMAGE)
    parts = []
    for _ in range(branches):
        made = net("Conv", "x", np.full((6, 6, 3, 3), weight, np.float32), pads=[1] * 4)
        parts.append(net("Mul", made, np.full((6, 1, 1), factor, np.float32)))
    model, feeds = net.model(parts[0] if branches == 1 else net("Add", *parts)), {"x": np.full(IMAGE, x, np.float32)}
    found, plain = (
        next(iter(hetero.compile(model, "CPU", {"DISABLE_TRANSFORMATIONS": disabled})(feeds).values()))
        for disabled in (False, True)
    )
    np.testing.assert_allclose(found, plain, rtol=1e-4)


def test_more_outputs_than_inputs() -> None:
    net = Net(IMAGE)
    parts = [net("Conv", "x", array(12, 3, 1, 1), group=2) for _ in range(2)]
    check(net.model(net("Add", *parts)), IMAGE, 1)


def test_opposite_branches_cancel() -> None:
    net = Net(IMAGE)
    weights = array(6, 6, 3, 3)
    parts = [net("Conv", "x", sign * weights, pads=[1] * 4) for sign in (1, -1)]
    check(net.model(net("Add", *parts)), IMAGE, 1)


ALIKE: dict[str, tuple[int, Any]] = {
    "dilations": (2, lambda net: conv(net, "x", 3, pad=2, dilations=[2, 2])),
    "another input": (3, lambda net: conv(net, net("Sin", "x"), 3)),
    "auto_pad": (2, lambda net: net("Conv", "x", array(6, 6, 3, 3), auto_pad="SAME_UPPER")),
    "groups": (2, lambda net: conv(net, "x", 3, group=2)),
    "a product of the input": (3, lambda net: net("Mul", "x", array(6, 1, 1))),
    "a kernel that sticks out": (2, lambda net: net("Conv", "x", array(6, 6, 1, 5), pads=[0, 2, 0, 2])),
    "one output, broadcast": (3, lambda net: net("Conv", "x", array(1, 6, 3, 3), pads=[1] * 4)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_near_misses_stay(name: str) -> None:
    num_calls, build = ALIKE[name]
    net = Net(IMAGE)
    check(net.model(net("Add", conv(net, "x", 3), build(net))), IMAGE, num_calls)


@pytest.mark.parametrize("weight", [np.inf, np.nan, 3e38])
def test_weights_without_a_finite_sum_stay(weight: float) -> None:
    net = Net(IMAGE)
    parts = [net("Conv", "x", np.full((6, 6, 3, 3), weight, np.float32), pads=[1] * 4) for _ in range(2)]
    model, x = net.model(net("Add", *parts)), {"x": np.full(IMAGE, 1e-3, np.float32)}
    fused = hetero.compile(model, "CPU")
    assert calls(fused, x) == 2
    plain = hetero.compile(model, "CPU", {"DISABLE_TRANSFORMATIONS": True})
    np.testing.assert_allclose(*(next(iter(compiled(x).values())) for compiled in (fused, plain)), rtol=1e-5)


def test_statistics_of_the_batch_stay() -> None:
    """A BatchNormalization in training mode is no linear function, neither as a branch nor after a convolution."""
    for after in (False, True):
        net = Net(IMAGE)
        made = conv(net, "x", 3)
        normed = norm(net, made if after else "x", training_mode=1)
        model, x = net.model(normed if after else net("Add", made, normed)), array(*IMAGE)
        (want,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(next(iter(hetero.compile(model, "CPU")({"x": x}).values())), want, atol=1e-4)


def test_results_that_others_read_stay() -> None:
    net = Net(IMAGE)
    first, second = conv(net, "x", 3), conv(net, "x", 3)
    check(net.model(net("Add", first, second), first), IMAGE, 2)
    net = Net(IMAGE)
    only = conv(net, "x", 3)
    check(net.model(net("Add", only, only)), IMAGE, 2)


@pytest.mark.parametrize("hint", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("taps", [(6, 1, 1), (6, 3, 3), (7, 1, 1)])
def test_scaled_weights_in_each_precision(taps: tuple[int, ...], hint: str) -> None:
    """Packed weights are multiplied in place, several rows of a panel at a time."""
    net = Net((1, taps[0], 9, 8))
    made = net("Conv", "x", array(18, *taps, scale=0.3), array(18))
    made = net("BatchNormalization", made, array(18), array(18), array(18), np.abs(array(18)) + 0.1)
    model, x = net.model(made), array(1, taps[0], 9, 8)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    core = hetero.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": hint})
    (found,) = compiled(x).values()
    assert np.abs(found - expected).max() <= (1e-5 if hint == "f32" else 2e-2) * np.abs(expected).max()
