"""Conv, pools and LRN of OPENCL, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.devices.opencl.operators import convolution
from opencl import check, model_of, refusals, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

node = helper.make_node


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


# The shapes of the weights, with attributes: direct, by columns, and as one product.
CONVOLUTIONS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((8, 6, 1, 1), {}),
    ((8, 6, 1, 1), {"strides": [2, 2]}),
    ((8, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((5, 6, 3, 2), {"pads": [0, 2, 1, 0], "strides": [2, 1], "dilations": [1, 3]}),
    ((8, 3, 3, 3), {"group": 2}),
    ((8, 3, 1, 1), {"group": 2}),
    ((12, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    ((8, 6, 5, 5), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    ((8, 6, 4, 4), {"auto_pad": "SAME_LOWER"}),
    ((8, 6, 2, 2), {"auto_pad": "VALID"}),
    ((2, 6, 7, 9), {}),
)


def test_convolutions(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs: dict[str, np.ndarray] = {"x": normal(2, 6, 7, 9), "bias": normal(64)}
    nodes = []
    for at, (shape, attributes) in enumerate(CONVOLUTIONS):
        inputs |= {f"w{at}": normal(*shape), f"b{at}": normal(shape[0])}
        nodes += [
            node("Conv", ["x", f"w{at}"], [f"y{at}"], **attributes),
            node("Conv", ["x", f"w{at}", f"b{at}"], [f"z{at}"], **attributes),
        ]
    del inputs["bias"]
    model = model_of(nodes, inputs)
    check(core, model, inputs, 1e-4, 1e-4)
    monkeypatch.setattr(convolution, "_COLUMN_BYTES", 4000)  # columns in several parts
    monkeypatch.setattr(convolution, "_SHALLOW", 1)
    check(core, model, inputs, 1e-4, 1e-4)


def test_convolutions_of_one_dimension_and_float16(core: hetero.Core) -> None:
    inputs = {"x": normal(2, 6, 11), "w": normal(8, 6, 3), "e": normal(0, 6, 11)}
    nodes = [
        node("Conv", ["x", "w"], ["y"], pads=[2, 1], strides=[2]),
        node("MaxPool", ["x"], ["m"], kernel_shape=[3], pads=[1, 1]),
        node("Conv", ["e", "w"], ["z"]),
    ]
    check(core, model_of(nodes, inputs), inputs, 1e-4, 1e-4)
    half = {name: array.astype(np.float16) for name, array in inputs.items()}
    check(core, model_of(nodes, half), half, 2e-2, 2e-2, reference="TEMPLATE")


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("group", [1, 2])
def test_padding_is_multiplied(core: hetero.Core, odd: float, group: int) -> None:
    """A weight that is not finite makes a NaN of padding, as elsewhere."""
    x, w = normal(1, 2, 1, 2), normal(2, 2 // group, 3, 3)
    w[0, 0, 0, 0] = odd
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], group=group)]
    check(core, model_of(nodes, {"x": x, "w": w}), {"x": x, "w": w})
    found = core.compile_model(model_of(nodes, {"x": x, "w": w}), "OPENCL")([x, w])[0]
    assert np.isnan(found[0, 0]).all()
    assert np.isfinite(found[0, 1]).all()


def test_pools(core: hetero.Core) -> None:
    x = normal(2, 3, 7, 9)
    attributes: tuple[dict[str, Any], ...] = (
        {"kernel_shape": [2, 2]},
        {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 2, 1]},
        {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"kernel_shape": [2, 4], "auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"kernel_shape": [7, 9]},
    )
    nodes = []
    for at, each in enumerate(attributes):
        nodes += [
            node("MaxPool", ["x"], [f"m{at}"], **each),
            node("AveragePool", ["x"], [f"a{at}"], **each),
            node("AveragePool", ["x"], [f"i{at}"], count_include_pad=1, **each),
        ]
    nodes += [
        node("MaxPool", ["x"], ["dilated"], kernel_shape=[2, 3], dilations=[2, 3], pads=[1, 2, 1, 1]),
        node("MaxPool", ["x"], ["ceil"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("MaxPool", ["x"], ["ceil_pad"], kernel_shape=[2, 2], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1),
        node("GlobalAveragePool", ["x"], ["global"]),
        node("GlobalMaxPool", ["x"], ["global_max"]),
        node("LRN", ["x"], ["lrn"], size=3, alpha=0.5, beta=0.6, bias=2.0),
        node("LRN", ["x"], ["wide"], size=9, alpha=1.0),
    ]
    check(core, model_of(nodes, {"x": x}), {"x": x}, 1e-5, 1e-5)
    even = model_of([node("LRN", ["x"], ["y"], size=4)], {"x": x})
    check(core, even, {"x": x}, 1e-5, 1e-5, reference="TEMPLATE")


def test_refusals(core: hetero.Core) -> None:
    inputs = {"x": normal(1, 2, 5, 5, 5), "y": normal(1, 2, 5, 5), "w": normal(2, 2, 3, 3, 3)}
    nodes = [
        node("Conv", ["x", "w"], ["a"], "three"),
        node("MaxPool", ["y"], ["b", "c"], "indices", kernel_shape=[2, 2]),
        node("AveragePool", ["y"], ["d"], "ceil", kernel_shape=[2, 2], ceil_mode=1),
        node("MaxPool", ["y"], ["e"], "pads", kernel_shape=[2, 2], pads=[2, 0, 0, 0]),
        node("ConvTranspose", ["y", "y"], ["f"], "transposed"),
    ]
    found = refusals(core, model_of(nodes, inputs))
    assert found["three"] == "it supports one or two spatial dimensions, found rank 5"
    assert found["indices"] == "its output of indices is not supported"
    assert "ceil_mode" in found["ceil"]
    assert "window can lie outside" in found["pads"]
    assert found["transposed"] == "the operator ConvTranspose is not supported"
