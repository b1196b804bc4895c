"""Operators over spatial axes on the CPU, against onnxruntime: ConvTranspose, Col2Im, MaxPool with places, ..."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from hetero import Core, InferenceError, _kernels
from single_node import assert_as_onnxruntime, model, run


def f(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


@given(data=st.data())
def test_conv_transpose(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    rank, group = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))

    def each(low: int, high: int, count: int = 1) -> list[int]:
        return [data.draw(st.integers(low, high)) for _ in range(rank * count)]

    depth, maps, kernel = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 2, 3, 16, 35])), each(1, 4)
    strides, dilations = each(1, 3), each(1, 3)
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": group}
    kind = data.draw(st.sampled_from(["pads", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    spatial = each(1, data.draw(st.sampled_from([2, 5, 18])) if rank < 3 else 5)
    if kind == "pads":
        attributes["output_padding"] = [data.draw(st.integers(0, stride - 1)) for stride in strides]
        attributes["pads"] = each(0, 1, 2)
        sizes = [
            strides[i] * (spatial[i] - 1) + attributes["output_padding"][i] + dilations[i] * (kernel[i] - 1) + 1
            - attributes["pads"][i] - attributes["pads"][i + rank] for i in range(rank)
        ]  # fmt: skip
        if min(sizes) < 1:
            attributes["pads"] = [0] * (2 * rank)
    else:
        attributes["auto_pad"] = kind
        if kind != "VALID":  # onnxruntime takes smaller kernels for negative pads
            kernel = [max(k, -(-s // d) + 1) for k, s, d in zip(kernel, strides, dilations, strict=True)]
    arrays = [f(rng, 2, group * depth, *spatial), f(rng, group * depth, maps, *kernel)]
    if data.draw(st.booleans()):
        arrays.append(f(rng, group * maps))
    constants = data.draw(st.booleans())
    assert_as_onnxruntime("ConvTranspose", arrays, atol=1e-5, constants=constants, **attributes)


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER"])
def test_conv_transpose_to_a_shape(auto_pad: str) -> None:
    rng = np.random.default_rng(0)
    arrays = [f(rng, 1, 2, 4, 5), f(rng, 2, 3, 3, 3)]
    assert_as_onnxruntime("ConvTranspose", arrays, atol=1e-5, output_shape=[8, 10], strides=[2, 2], auto_pad=auto_pad)


def test_conv_transpose_with_constant_weights_is_planned_once_for_all_shapes() -> None:
    rng = np.random.default_rng(0)
    weights = f(rng, 4, 3, 2, 2)
    proto = model([helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])],
                  {"x": f(rng, 1, 4, 5, 6)}, ["y"], 17)  # fmt: skip
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    for size in (3, 7):
        x = f(rng, 1, 4, size, size)
        wanted = np.einsum("nchw,cmij->nmhiwj", x, weights).reshape(1, 3, 2 * size, 2 * size)
        np.testing.assert_allclose(run(proto, {"x": x})[0], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"strides": [0, 1]}, "strides"),
        ({"strides": [1 << 40, 1]}, "strides"),
        ({"dilations": [1, -1]}, "dilations"),
        ({"pads": [-1, 0, 0, 0]}, "pads"),
        ({"pads": [3, 3, 3, 3]}, "leave no output"),
        ({"group": 0}, "group 0"),
        ({"group": 3}, "group 3"),
        ({"output_shape": [-4, 2]}, "output_shape"),
        ({"output_padding": [-1, 0]}, "output_padding"),
        ({"kernel_shape": [3, 3]}, "kernel_shape"),
        ({"strides": [1 << 30, 1 << 30]}, r"2\*\*40"),
    ],
)
def test_bad_transposed_convolutions_name_the_node(attributes: dict[str, Any], expected: str) -> None:
    rng = np.random.default_rng(0)
    feeds = {"x": f(rng, 1, 2, 3, 3), "w": f(rng, 2, 2, 2, 2)}
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], name="up", **attributes)
    proto = helper.make_model(
        helper.make_graph(
            [node],
            "graph",
            [helper.make_tensor_value_info(name, 1, [f"{name}{axis}" for axis in range(4)]) for name in feeds],
            [helper.make_tensor_value_info("y", 1, None)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    with pytest.raises(InferenceError, match=f"'up' .ConvTranspose.*{expected}"):
        run(proto, feeds)


@given(data=st.data())
def test_col2im(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    block = [data.draw(st.integers(1, 3)) for _ in range(2)]
    strides = [data.draw(st.integers(1, 3)) for _ in range(2)]
    dilations = [data.draw(st.integers(1, 2)) for _ in range(2)]
    pads = [data.draw(st.integers(0, 2)) for _ in range(4)]
    image = [data.draw(st.integers(5, 8)) for _ in range(2)]
    windows = [(image[i] + pads[i] + pads[i + 2] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in (0, 1)]
    x = f(rng, 2, 3 * math.prod(block), math.prod(windows))
    assert_as_onnxruntime("Col2Im", [x, np.array(image), np.array(block)], opset=18, atol=1e-5,
                          strides=strides, pads=pads, dilations=dilations)  # fmt: skip


@given(data=st.data())
def test_max_pool_with_places(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    rank = data.draw(st.integers(1, 3))
    kernel = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    shape = (2, 3, *(5, 6, 7)[:rank])
    x = rng.permutation(math.prod(shape)).reshape(shape).astype(np.float32)
    assert_as_onnxruntime(
        "MaxPool", [x], 2,
        kernel_shape=kernel,
        strides=[data.draw(st.integers(1, 3)) for _ in range(rank)],
        dilations=[data.draw(st.integers(1, 2)) for _ in range(rank)],
        pads=[data.draw(st.integers(0, size - 1)) for size in kernel * 2],
        storage_order=data.draw(st.sampled_from([0, 1])),
        ceil_mode=data.draw(st.sampled_from([0, 1])),
    )  # fmt: skip


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("auto_pad", ["VALID", "SAME_UPPER", "SAME_LOWER"])
def test_ceil_mode_with_auto_pad(op: str, auto_pad: str) -> None:
    """The last window of the first axis is partial with VALID."""
    x = f(np.random.default_rng(0), 1, 2, 8, 7)
    assert_as_onnxruntime(op, [x], opset=18, kernel_shape=[3, 3], strides=[2, 2], auto_pad=auto_pad, ceil_mode=1)


@given(data=st.data())
def test_ceil_mode_with_a_window_larger_than_the_padded_image(data: st.DataObject) -> None:
    """By less than a stride, so that there is one window."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    op, rank = data.draw(st.sampled_from(["MaxPool", "AveragePool", "LpPool"])), data.draw(st.integers(1, 3))
    dtype: Any = data.draw(st.sampled_from([np.float32, np.float64])) if op == "MaxPool" else np.float32
    pads = [data.draw(st.integers(0, 1)) for _ in range(2 * rank)]
    strides = [data.draw(st.integers(2, 4)) for _ in range(rank)]
    image = [data.draw(st.integers(1, 4)) for _ in range(rank)]
    kernel = [
        max(2, size + pads[at] + pads[at + rank] + data.draw(st.integers(0, strides[at] - 1)))
        for at, size in enumerate(image)
    ]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": 1}
    if op == "AveragePool":
        attributes["count_include_pad"] = data.draw(st.integers(0, 1))
    outputs = data.draw(st.integers(1, 2)) if op == "MaxPool" else 1
    x = f(rng, 2, data.draw(st.sampled_from([1, 3, 17])), *image, dtype=dtype)
    assert_as_onnxruntime(op, [x], outputs, opset=22, **attributes)


@pytest.mark.parametrize(("size", "ceil_mode"), [(1, 1), (2, 0)])
def test_a_window_that_does_not_fit_names_the_node(size: int, ceil_mode: int) -> None:
    """By a stride or more, or without ceil_mode."""
    x = f(np.random.default_rng(0), 1, 2, size, 3)
    node = helper.make_node("MaxPool", ["x"], ["y"], "pool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=ceil_mode)
    with pytest.raises(
        InferenceError, match=rf"'pool'.*a window of 3 does not fit spatial axis 0 with a size of {size}$"
    ):
        run(model([node], {"x": x}, ["y"], 17), {"x": x})


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [0, 1, 0, 0]])
def test_one_window_of_the_whole_plane(op: str, pads: list[int]) -> None:
    x = f(np.random.default_rng(0), 2, 3, 7, 5)
    x[1, 2, 3, 4] = np.nan if op == "AveragePool" else np.inf  # onnxruntime's MaxPool passes over NaN
    assert_as_onnxruntime(op, [x], kernel_shape=[7, 5], pads=pads)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_max_pool_of_bytes(dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 100, (1, 2, 7, 7)).astype(dtype)
    assert_as_onnxruntime("MaxPool", [x], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])


def test_unpooling_undoes_pooling() -> None:
    x = np.random.default_rng(0).permutation(96).reshape(1, 2, 6, 8).astype(np.float32)
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p", "i"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("MaxUnpool", ["p", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    (y,) = run(model(nodes, {"x": x}, ["y"], 17), {"x": x})
    assert y.shape == x.shape
    kept = y != 0
    assert kept.sum() in (23, 24)  # one of them may be 0 itself
    np.testing.assert_array_equal(y[kept], x[kept])


def test_unpooling_of_constants() -> None:
    x, places = np.array([[[[5, 6], [7, 8]]]], np.float32), np.array([[[[0, 3], [8, 15]]]])
    node = helper.make_node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    unpooled = model([node], {"x": x, "i": places}, ["y"], 17)
    del unpooled.graph.input[:]
    unpooled.graph.initializer.extend([numpy_helper.from_array(x, "x"), numpy_helper.from_array(places, "i")])
    (y,) = run(unpooled, {})
    expected = np.zeros(16, np.float32)
    expected[[0, 3, 8, 15]] = [5, 6, 7, 8]
    np.testing.assert_array_equal(y, expected.reshape(1, 1, 4, 4))


@pytest.mark.parametrize("place", [16, -17, 1 << 60])
def test_unpooling_to_nowhere_names_the_node(place: int) -> None:
    feeds = {"x": np.ones((1, 1, 2, 2), np.float32), "i": np.array([[[[0, 1], [2, place]]]])}
    node = helper.make_node("MaxUnpool", ["x", "i"], ["y"], name="un", kernel_shape=[2, 2], strides=[2, 2])
    with pytest.raises(InferenceError, match="un.*index"):
        run(model([node], feeds, ["y"], 17), feeds)


def test_unpooling_to_a_shape_is_refused() -> None:
    feeds = {"x": np.ones((1, 1, 2, 2), np.float32), "i": np.zeros((1, 1, 2, 2), np.int64), "s": np.array([1, 1, 5, 5])}
    node = helper.make_node("MaxUnpool", ["x", "i", "s"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    core = Core()
    (reasons,) = core.query_model(core.read_model(model([node], feeds, ["y"], 17)), "CPU").reasons.values()
    assert "output_shape" in reasons["CPU"]


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pools(p: int) -> None:
    x = f(np.random.default_rng(0), 2, 3, 7, 8)
    assert_as_onnxruntime("LpPool", [x], opset=18, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], p=p)
    assert_as_onnxruntime("GlobalLpPool", [x], p=p)


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_normalization(opset: int, groups: int) -> None:
    rng = np.random.default_rng(0)
    count = groups if opset == 18 else 6
    arrays = [f(rng, 2, 6, 5, 7) + 3, f(rng, count), f(rng, count)]
    assert_as_onnxruntime("GroupNormalization", arrays, opset=opset, atol=1e-5, num_groups=groups, epsilon=1e-3)


# ---- kernels


@pytest.mark.spread(2)
@pytest.mark.parametrize("variant", _kernels.variants())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("taps", "windows", "strides", "pad", "dilation", "out"),
    [
        *[((2, 3, 4), (3, 4, 5), (stride,) * 3, (1, 0, 2), (1, 2, 1), (7, 11, 13)) for stride in (1, 2, 3)],
        ((1, 3, 3), (1, 4, 40), (1, 1, 1), (0, 1, 1), (1, 1, 1), (1, 4, 40)),
        ((1, 2, 2), (1, 3, 35), (1, 2, 2), (0, 0, 0), (1, 1, 1), (1, 6, 70)),
        ((1, 2, 2), (1, 3, 100), (1, 2, 2), (0, 0, 0), (1, 1, 1), (1, 7, 203)),
        ((1, 4, 4), (1, 3, 80), (1, 2, 2), (0, 1, 1), (1, 1, 1), (1, 6, 160)),
        ((1, 1, 7), (1, 1, 33), (1, 1, 4), (0, 0, 2), (1, 1, 3), (1, 1, 150)),
        ((1, 1, 3), (1, 1, 9), (1, 1, 16), (0, 0, 1), (1, 1, 5), (1, 1, 145)),
        ((1, 2, 3), (1, 2, 9), (1, 17, 17), (0, 0, 1), (1, 1, 5), (1, 20, 150)),  # one phase too many
        ((1, 1, 32), (1, 1, 6), (1, 1, 5), (0, 0, 3), (1, 1, 2), (1, 1, 90)),
        ((1, 1, 33), (1, 1, 6), (1, 1, 5), (0, 0, 3), (1, 1, 2), (1, 1, 90)),  # one tap too many
        ((3, 11, 1), (2, 2, 5), (1, 1, 1), (0, 0, 0), (1, 1, 1), (4, 12, 5)),
        ((1, 3, 3), (1, 3, 3), (1, 1, 1), (0, 9, 9), (1, 1, 1), (1, 2, 2)),  # all in the padding
        ((1, 2, 2), (1, 3, 0), (1, 1, 1), (0, 0, 0), (1, 1, 1), (1, 3, 5)),
        ((1, 2, 2), (1, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), (1, 3, 0)),
    ],
)
def test_col2im_against_a_loop(
    variant: str,
    dtype: Any,
    taps: tuple[int, ...],
    windows: tuple[int, ...],
    strides: tuple[int, ...],
    pad: tuple[int, ...],
    dilation: tuple[int, ...],
    out: tuple[int, ...],
) -> None:
    """The same bits: sums start with the bias and run in the order of the taps."""
    rng = np.random.default_rng(math.prod(taps))
    for channels in (1, 9):
        columns = f(rng, 2, channels, *taps, *windows, dtype=dtype)
        columns[rng.random(columns.shape) < 0.02] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 3e38])
        for bias in (None, f(rng, channels, dtype=dtype), np.full(channels, -0.0, dtype)):
            wanted = np.zeros((2, channels, *out), dtype)
            if bias is not None:
                wanted[:] = bias[:, None, None, None]
            with np.errstate(invalid="ignore", over="ignore"):
                for t in np.ndindex(*taps):
                    for w in np.ndindex(*windows):
                        at = [w[i] * strides[i] - pad[i] + t[i] * dilation[i] for i in range(3)]
                        if all(0 <= a < size for a, size in zip(at, out, strict=True)):
                            wanted[:, :, at[0], at[1], at[2]] += columns[:, :, *t, *w]
            ints = [*taps, *windows, *strides, *pad, *dilation]
            (found,) = _kernels.call("col2im", [columns, bias], [(wanted.shape, dtype)], ints, variant=variant)
            np.testing.assert_array_equal(found, wanted)
            signs = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(found)[signs], np.signbit(wanted)[signs])


@given(data=st.data())
def test_channels_in_the_lanes_give_the_same_bits_as_col2im(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))

    def three(low: int, high: int) -> list[int]:
        return [data.draw(st.integers(low, high)) for _ in range(3)]

    batch, group, channels = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 3)), data.draw(st.integers(1, 35))
    taps, windows, strides, pads, dilations, out = (
        three(1, 4),
        three(0, 4),
        three(1, 3),
        three(0, 3),
        three(1, 3),
        three(1, 9),
    )
    columns = f(rng, batch, group * channels, math.prod(taps), math.prod(windows))
    columns[rng.random(columns.shape) < 0.02] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 3e38])
    bias = f(rng, group * channels) if data.draw(st.booleans()) else None
    ints = [*taps, *windows, *strides, *pads, *dilations]
    lanes = columns.reshape(batch, group, channels, *columns.shape[2:]).transpose(0, 1, 4, 3, 2)
    spec = [((batch, group * channels, *out), np.float32)]
    for variant in _kernels.variants():
        (wanted,) = _kernels.call("col2im", [columns, bias], spec, ints, variant=variant)
        (found,) = _kernels.call("col2im_lanes", [lanes, bias], spec, [*ints, group], variant=variant)
        np.testing.assert_array_equal(found, wanted)
        signs = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found)[signs], np.signbit(wanted)[signs])


@pytest.mark.parametrize("variant", _kernels.variants())
@pytest.mark.parametrize("inner", [1, 5, 64])
def test_group_norm_in_every_variant(variant: str, inner: int) -> None:
    rng = np.random.default_rng(inner)
    x, scale, bias = f(rng, 2, 6, inner), f(rng, 6), f(rng, 6)
    rows = x.reshape(2, 3, -1).astype(np.float64)
    normal = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    wanted = normal.reshape(x.shape) * scale[:, None] + bias[:, None]
    (found,) = _kernels.call(
        "group_norm", [x, scale, bias], [(x.shape, x.dtype)], [2, 6, inner, 3], [1e-5], variant=variant
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 100])
def test_instance_normalization(size: int) -> None:
    """Equal elements become exactly the bias: no cancellation where the variance is 0."""
    rng = np.random.default_rng(size)
    x, scale, bias = f(rng, 2, 3, size) * 100, f(rng, 3), f(rng, 3)
    x[1] = 12345.678
    rows = x.astype(np.float64)
    normal = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5) if size else rows
    node = helper.make_node("InstanceNormalization", ["x", "scale", "bias"], ["y"])
    feeds = {"x": x, "scale": scale, "bias": bias}
    (found,) = run(model([node], feeds, ["y"], 17), feeds)
    np.testing.assert_allclose(found, normal * scale[:, None] + bias[:, None], rtol=1e-4, atol=1e-5)
    assert np.array_equal(found[1], np.broadcast_to(bias[:, None], (3, size)))
