"""Resize on the CPU, against onnxruntime; tests/helpers/operator_cases.py has the modes of every opset."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import hetero
from hetero import Core, InferenceError, _kernels
from sessions import onnxruntime_session
from single_node import assert_as_onnxruntime, model, run

pytestmark = pytest.mark.spread(2)

Array = np.ndarray[Any, Any]

_NONE = np.array([], np.float32)


def _has_rounded_tie(size: int, length: int) -> bool:
    """Whether a place, with or without half pixels, lies amid two elements, but not with the scale as a float32."""
    exact = Fraction(length, size)
    if Fraction(float(np.float32(length / size))) == exact:
        return False
    asymmetric = any((y / exact).denominator == 2 for y in range(length))
    return asymmetric or any((Fraction(2 * y + 1, 2) / exact).denominator == 1 for y in range(length))


@given(data=st.data())
def test_images(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    shape = [data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)), *(data.draw(st.integers(2, 9)) for _ in "hw")]
    mode = data.draw(st.sampled_from(["nearest", "linear", "cubic"]))
    coordinates = data.draw(
        st.sampled_from(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"])
    )
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = data.draw(st.sampled_from(["floor", "ceil", "round_prefer_ceil"]))
    if mode == "cubic":
        attributes["exclude_outside"] = data.draw(st.sampled_from([0, 1]))
    sizes = np.array([*shape[:2], *(data.draw(st.integers(1, 20)) for _ in "hw")])
    if attributes.get("nearest_mode") == "round_prefer_ceil" and coordinates != "align_corners":
        # Which side a tie falls to that the rounded scale makes none, ONNX leaves open; onnxruntime itself differs.
        assume(not any(map(_has_rounded_tie, shape[2:], sizes[2:].tolist())))
    dtype = data.draw(st.sampled_from([np.float32, np.int32, np.uint8])) if mode == "nearest" else np.float32
    x = (rng.random(shape) * (1 if dtype == np.float32 else 100)).astype(dtype)
    # Cubic weights that exclude what lies outside are divided by their sum, which may be small.
    atol = 1e-5 if mode == "cubic" else 2e-6
    assert_as_onnxruntime("Resize", [x, None, None, sizes], opset=19, atol=atol, **attributes)


@pytest.mark.parametrize("size", range(3, 25))
@pytest.mark.parametrize("coordinates", ["half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners"])
def test_places_that_are_whole_numbers_but_for_rounding(size: int, coordinates: str) -> None:
    x = np.arange(size, dtype=np.float32).reshape(1, size)
    for length in (size // 3, size * 2 // 3, size * 11 // 3, size * 13 // 3):
        sizes = np.array([1, length])
        attributes = {"coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
        assert_as_onnxruntime("Resize", [x, None, None, sizes], opset=19, mode="nearest", **attributes)


@pytest.mark.parametrize("outside", [0, 1])
@pytest.mark.parametrize("device", ["CPU", "TEMPLATE"])
def test_one_element_by_pytorchs_half_pixels(device: str, outside: int) -> None:
    """The place of a single element is 0, not amid the first and one before it."""
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
    attributes = {"coordinate_transformation_mode": "pytorch_half_pixel", "exclude_outside": outside}
    feeds = {"x": x, "scales": np.array([1, 1, 0.6, 0.5], np.float32)}
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="cubic", **attributes)]
    result = Core().compile_model(model(nodes, feeds, ["y"], 19), device).create_infer_request().infer(feeds)
    np.testing.assert_allclose(next(iter(result.values())), [[[[1.0]]]], rtol=1e-6)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("outside", [0, 1])
@pytest.mark.parametrize("scale", [0.25, 0.4, 0.75, 2.0])
def test_antialias(mode: str, outside: int, scale: float) -> None:
    x = np.random.default_rng(1).random((1, 2, 20, 16), np.float32)
    scales = np.array([1, 1, scale, scale], np.float32)
    assert_as_onnxruntime("Resize", [x, _NONE, scales], opset=18, mode=mode, antialias=1, exclude_outside=outside)


@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor"])
def test_half_pixels_as_tensorflow_has_them(rounding: str) -> None:
    x = np.random.default_rng(1).random((1, 2, 5, 6), np.float32)
    scales = np.array([1, 1, 0.6, 1.7], np.float32)
    attributes = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": rounding}
    assert_as_onnxruntime("Resize", [x, _NONE, scales], opset=11, **attributes)


def test_lengths_are_products_in_float32() -> None:
    x = np.random.default_rng(1).random((1, 1, 10, 3), np.float32)
    scales = np.array([1, 1, 0.7, 1 / 3], np.float32)  # 0.7f * 10 is 6.9999998 in double precision
    assert_as_onnxruntime("Resize", [x, _NONE, scales], opset=13, mode="linear")


def test_channels_last_and_volumes() -> None:
    rng = np.random.default_rng(1)
    for shape, sizes in (((1, 6, 7, 3), (1, 12, 5, 3)), ((1, 2, 4, 5, 6), (1, 2, 7, 5, 3)), ((4, 7), (3, 12))):
        assert_as_onnxruntime("Resize", [rng.random(shape, np.float32), None, None, np.array(sizes)], mode="linear")


def test_scales_that_depend_on_data() -> None:
    x = np.random.default_rng(1).random((1, 1, 4, 4), np.float32)
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Mul", ["base", "base"], ["scales"]),
        helper.make_node("Resize", ["e", "", "scales"], ["y"], mode="linear"),
    ]
    feeds = {"x": x, "base": np.array([1, 1, 1.5, 0.8], np.float32)}
    proto = model(nodes, feeds, ["y"], 17)
    session = onnxruntime_session(proto)
    for factor in (1.5, 1.1):
        feeds["base"][2] = factor
        np.testing.assert_allclose(run(proto, feeds)[0], session.run(None, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("scales", "sizes", "expected"),
    [
        ([1, 1, 0, 1], None, "positive"),
        ([1, 1, -2, 1], None, "positive"),
        ([1, 1, np.nan, 1], None, "positive"),
        ([1, 1, np.inf, 1], None, "positive"),
        ([1, 1, 1e30, 1], None, r"2\*\*30"),
        ([1, 1, 1], None, "3 scales for 4 axes"),
        (None, [1, 1, -1, 4], "do not fit"),
        (None, [1, 1, 1 << 62, 4], "do not fit"),
        (None, [1 << 20, 1 << 20, 1 << 20, 1 << 20], r"2\*\*40"),
        (None, [1, 1, 4], "do not fit"),
    ],
)
def test_bad_targets_name_the_node(scales: list[float] | None, sizes: list[int] | None, expected: str) -> None:
    feeds = {"x": np.ones((1, 1, 2, 2), np.float32)}
    feeds |= {"s": np.array(scales, np.float32)} if scales is not None else {"n": np.array(sizes)}
    inputs = ["x", "", "s"] if scales is not None else ["x", "", "", "n"]
    with pytest.raises(InferenceError, match=f"'grow' .Resize.*{expected}"):
        run(model([helper.make_node("Resize", inputs, ["y"], name="grow")], feeds, ["y"], 17), feeds)


def test_an_empty_image_cannot_grow() -> None:
    feeds = {"x": np.ones((1, 1, 0, 2), np.float32), "n": np.array([1, 1, 3, 3])}
    node = helper.make_node("Resize", ["x", "", "", "n"], ["y"], name="grow", mode="linear")
    with pytest.raises(InferenceError, match=r"grow.*empty axis"):
        run(model([node], feeds, ["y"], 17), feeds)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("policy", ["stretch", "not_larger"])
def test_a_batch_of_no_images_is_resized_to_sizes(mode: str, policy: str) -> None:
    feeds = {"x": np.ones((0, 2, 3, 4), np.float32), "n": np.array([0, 2, 6, 5])}
    attributes: dict[str, Any] = {"mode": mode}
    if policy != "stretch":
        feeds["n"] = np.array([6, 8])
        attributes |= {"axes": [2, 3], "keep_aspect_ratio_policy": policy}
    (found,) = run(
        model([helper.make_node("Resize", ["x", "", "", "n"], ["y"], **attributes)], feeds, ["y"], 18), feeds
    )
    assert found.shape == ((0, 2, 6, 5) if policy == "stretch" else (0, 2, 6, 8))
    shrunk = {"x": np.ones((2, 3, 4), np.float32), "n": np.array([2, 0, 4])}
    node = helper.make_node("Resize", ["x", "", "", "n"], ["y"], mode="nearest")
    assert run(model([node], shrunk, ["y"], 18), shrunk)[0].shape == (2, 0, 4)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [({"mode": "linear"}, "int64"), ({"mode": "other"}, "mode"), ({"nearest_mode": "other"}, "nearest_mode")],
)
def test_what_is_refused(attributes: dict[str, Any], expected: str) -> None:
    feeds = {"x": np.ones((1, 1, 2, 2), np.int64), "n": np.array([1, 1, 3, 3])}
    proto = model([helper.make_node("Resize", ["x", "", "", "n"], ["y"], **attributes)], feeds, ["y"], 17)
    core = Core()
    (reasons,) = core.query_model(core.read_model(proto), "CPU").reasons.values()
    assert expected in reasons["CPU"]


def resized(x: Array, scales: list[float], device: str, opset: int = 19, **attributes: Any) -> Array:
    feeds = {"x": x, "s": np.array(scales, np.float32)}
    inputs = ["x", "s"] if opset == 10 else ["x", "r", "s"] if "r" in attributes else ["x", "", "s"]
    if region := attributes.pop("r", None):
        feeds["r"] = np.array(region, np.float32)
    proto = model([helper.make_node("Resize", inputs, ["y"], **attributes)], feeds, ["y"], opset)
    (made,) = Core().compile_model(proto, device)(feeds).values()
    return np.array(made)


INTEGERS = ["uint8", "int8", "uint16", "int16", "int32", "uint32"]
WIDE_ENOUGH = dict.fromkeys(("float16", "bfloat16"), np.float32) | dict.fromkeys(INTEGERS, np.float64)


@pytest.mark.parametrize("dtype", [*INTEGERS, "float16", "bfloat16"])
@pytest.mark.parametrize("scales", [[1, 1, 2, 2], [1, 1, 0.6, 1.7], [1, 2, 1, 1], [1, 1, 1, 1], [1, 1, 0.25, 3]])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_other_types_are_rounded_once(dtype: str, scales: list[float], mode: str) -> None:
    """Halves to even, and saturated, as onnx.reference does (onnxruntime truncates; cubic results may overshoot)."""
    rng = np.random.default_rng(len(dtype))
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        x = rng.choice(np.array([limits.min, limits.max, 0, 1, 7, limits.max - 1], kind), (2, 3, 5, 6))
    else:
        x = rng.standard_normal((2, 3, 5, 6)).astype(kind)
    for coordinates in ("half_pixel", "align_corners", "pytorch_half_pixel"):
        attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
        found = resized(x, scales, "CPU", **attributes)
        assert found.dtype == kind
        wide = resized(x.astype(WIDE_ENOUGH[dtype]), scales, "CPU", **attributes)
        if kind.kind not in "iu":
            np.testing.assert_array_equal(found, wide.astype(kind))
            continue
        expected = np.clip(np.rint(wide), limits.min, limits.max)
        apart = np.abs(found.astype(np.float64) - expected)
        tie = np.abs(np.abs(wide - np.trunc(wide)) - 0.5) < np.maximum(1e-5, np.abs(wide) * 1e-6)
        assert apart[~tie].max(initial=0) == 0
        assert apart.max(initial=0) <= 1
        if kind.itemsize <= 2:
            template = resized(x, scales, "TEMPLATE", **attributes).astype(np.float64)
            near = np.abs(np.abs(wide - np.trunc(wide)) - 0.5) < 3e-6 * (int(limits.max) - int(limits.min))
            assert np.abs(found - template)[~near].max(initial=0) == 0


def test_bytes_by_two_are_exact() -> None:
    """Weights of 1/4 and 3/4 round nowhere, so halves go to the even number."""
    x = np.arange(256, dtype=np.uint8)[:, None] * np.ones((1, 4), np.uint8)
    for device in ("CPU", "TEMPLATE"):
        found = resized(x, [2, 2], device, mode="linear")
        places = np.clip((np.arange(512) + 0.5) / 2 - 0.5, 0, 255)
        np.testing.assert_array_equal(found, np.rint(places)[:, None] * np.ones((1, 8)))


def test_a_region_of_bytes() -> None:
    x = np.arange(0, 250, 10, dtype=np.uint8).reshape(1, 1, 5, 5)
    attributes = {
        "mode": "linear",
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 300.0,
    }
    region = [0, 0, -0.25, 0, 1, 1, 1, 1.5]
    found = resized(x, [1, 1, 1.5, 1.5], "CPU", r=region, **attributes)
    np.testing.assert_array_equal(found, resized(x, [1, 1, 1.5, 1.5], "TEMPLATE", r=region, **attributes))
    assert (found == 255).any()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16"])
def test_before_opset_11(dtype: str) -> None:
    x = np.arange(20).reshape(1, 1, 4, 5).astype(dtype)
    found = resized(x, [1, 1, 2, 1.5], "CPU", opset=10, mode="linear")
    expected = resized(x.astype(np.float32), [1, 1, 2, 1.5], "CPU", opset=10, mode="linear")
    np.testing.assert_array_equal(found, np.rint(expected) if dtype != "float16" else expected.astype(np.float16))


# ---- kernels


@pytest.mark.parametrize("variant", _kernels.variants())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("inner", [1, 2, 37])
@pytest.mark.parametrize("taps", [1, 2, 3, 4, 7])
def test_resample(variant: str, dtype: Any, inner: int, taps: int) -> None:
    rng = np.random.default_rng(taps)
    outer, size, length = 3, 11, 23
    x = rng.standard_normal((outer, size, inner)).astype(dtype)
    start = rng.integers(0, size - taps + 1, length).astype(np.int32)
    weight = rng.standard_normal((taps, length)).astype(dtype)
    wanted = sum(weight[t][:, None] * x[:, start + t] for t in range(taps))
    ints = [outer, size, inner, length, taps]
    (found,) = _kernels.call("resample", [x, start, weight], [((outer, length, inner), dtype)], ints, variant=variant)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", _kernels.variants())
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64", "bool"])
@pytest.mark.parametrize("inner", [1, 3, 17])
def test_pick(variant: str, dtype: str, inner: int) -> None:
    rng = np.random.default_rng(inner)
    x = rng.integers(0, 2, (2, 9, inner)).astype(dtype)
    start = rng.integers(0, 9, 40).astype(np.int32)
    (found,) = _kernels.call("pick", [x, start], [((2, 40, inner), x.dtype)], [2, 9, inner, 40], variant=variant)
    np.testing.assert_array_equal(found, x[:, start])
    for columns in (np.arange(2 * inner) // 2, rng.integers(0, inner, 7)):
        specs = [((2, 40, len(columns)), x.dtype)]
        operands = [x, np.sort(start), columns.astype(np.int32)]
        (found,) = _kernels.call("pick", operands, specs, [2, 9, inner, 40], variant=variant)
        np.testing.assert_array_equal(found, x[:, np.sort(start)][:, :, columns])


@pytest.mark.parametrize("start", [-1, 9, 8])
def test_windows_outside_the_axis(start: int) -> None:
    x, weight = np.ones((1, 9, 1), np.float32), np.ones((2, 1), np.float32)
    with pytest.raises(InferenceError, match="index"):
        _kernels.call("resample", [x, np.array([start], np.int32), weight], [((1, 1, 1), np.float32)], [1, 9, 1, 1, 2])


@pytest.mark.parametrize(
    ("size", "scale", "length"),
    [(320, 0.7, 224), (100, 0.29, 29), (49, 1 / 49, 1), (20, 1.15, 23), (640, 0.6, 384), (7, 1 / 7, 1), (10, 1.1, 11)],
)
def test_lengths_are_onnxruntimes(size: int, scale: float, length: int) -> None:
    """Its product is of float32: 0.7 x 320 is 224, where onnx's shape inference says 223 (224 - 4e-6 in float64)."""
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "scales"], ["y"])],
        "resize",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [size])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([scale], np.float32), "scales")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)
    x = np.arange(size, dtype=np.float32)
    session = onnxruntime_session(model)
    (wanted,) = session.run(None, {"x": x})
    assert wanted.shape == (length,)
    assert np.array_equal(hetero.compile(model, "CPU")(x)[0], wanted)
    inferred = onnx.shape_inference.infer_shapes(model)
    declared = inferred.graph.output[0].type.tensor_type.shape.dim[0].dim_value
    if declared == length:
        assert hetero.compile(inferred, "CPU")(x)[0].shape == (length,)
    else:
        with pytest.warns(RuntimeWarning, match=f"declared float32 .{declared}., found float32 .{length}."):
            assert hetero.compile(inferred, "CPU")(x)[0].shape == (length,)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("by_size", [False, True])
def test_a_region_of_images_and_channels(mode: str, by_size: bool) -> None:
    """TEMPLATE interpolates by matrices. onnxruntime ignores the region of an axis whose length stays."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 4, 5, 4), np.float32)
    roi = np.array([0.25, -0.3, 0.1, 0.0, 0.75, 0.6, 1.4, 1.0], np.float32)
    attributes = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    # 5 * 1.5 is 7.5: the formula takes the length, 7. One of 4 is 1: the middle of the region.
    target = {"sizes": np.array([3, 6, 7, 1])} if by_size else {"scales": np.array([1, 1.5, 1.5, 0.3], np.float32)}
    names = ["x", "roi", *(["", "sizes"] if by_size else ["scales"])]
    feeds = {"x": x, "roi": roi, **target}
    graph = helper.make_graph(
        [helper.make_node("Resize", names, ["y"], **attributes)],
        "cropped",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None] * 4)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(feeds[name], name) for name in names[1:] if name],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    core = Core()
    found, wanted = (core.compile_model(model, device)({"x": x})["y"] for device in ("CPU", "TEMPLATE"))
    assert found.shape == (3, 6, 7, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    if mode == "nearest":
        places = [0.25 * 2 + 1 * 0.5 * 2 / 2, -0.3 * 3 + 4 * 0.9 * 3 / 5, 0.1 * 4 + 2 * 1.3 * 4 / 6, 0.5 * 3]
        image, channel, row, column = (int(np.ceil(place - 0.5)) for place in places)
        assert found[1, 4, 2, 0] == x[image, channel, row, column]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("shape", [(1, 1, 5), (1, 1, 5, 3)])
def test_elements_of_weight_0_do_not_matter(mode: str, bad: float, shape: tuple[int, ...]) -> None:
    """With corners aligned, every second output is an element of the input, whatever lies beside it."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x[0, 0, 2] = bad
    sizes = np.array([1, 1, 9, *shape[3:]])
    node = helper.make_node(
        "Resize", ["x", "", "", "s"], ["y"], mode=mode, coordinate_transformation_mode="align_corners"
    )
    found = run(model([node], {"x": x, "s": sizes}, ["y"], 17), {"x": x, "s": sizes})[0]
    np.testing.assert_array_equal(found[:, :, [0, 2, 6, 8]], x[:, :, [0, 1, 3, 4]])
    assert not np.isfinite(found[:, :, 3:6]).any()


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE"])
@pytest.mark.parametrize(
    ("policy", "shape", "sizes", "expected"),
    [
        ("not_smaller", (6, 3), [7, 1], (7, 4)),
        ("not_larger", (6, 27), [7, 99], (7, 32)),
    ],
)
def test_lengths_that_keep_the_ratio_round_halves_up(
    device: str, policy: str, shape: tuple[int, ...], sizes: list[int], expected: tuple[int, ...]
) -> None:
    """7 / 6 of 3 is 3.5; in float32, it is less."""
    feeds = {"x": np.zeros(shape, np.float32), "n": np.array(sizes, np.int64)}
    attributes: dict[str, Any] = {"mode": "nearest", "keep_aspect_ratio_policy": policy}
    proto = model([helper.make_node("Resize", ["x", "", "", "n"], ["y"], **attributes)], feeds, ["y"], 18)
    (made,) = Core().compile_model(proto, device)(feeds).values()
    assert made.shape == expected


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE"])
@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [("uint8", -2.0, 0), ("uint8", 1e9, 255), ("int8", -2.7, -2), ("int64", 3e38, 2**63 - 1), ("float32", -2.5, -2.5)],
)
def test_values_beyond_the_region_are_saturated(device: str, dtype: str, value: float, expected: float) -> None:
    x = np.arange(1, 5).astype(dtype)
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "tf_crop_and_resize"}
    made = resized(x, [1.0], device, r=[0.0, 2.0], extrapolation_value=value, **attributes)
    np.testing.assert_array_equal(made, np.array([1, 3, expected, expected], dtype))


@pytest.mark.parametrize(
    ("x", "scales", "attributes"),
    [
        ((4, 1, 7, 7), [1, 1, 1, 1.5], {"coordinate_transformation_mode": "half_pixel_symmetric", "mode": "cubic"}),
        ((5, 6), [1, 0.2], {"coordinate_transformation_mode": "pytorch_half_pixel", "antialias": 1, "mode": "linear"}),
        ((5, 6), [1, 0.2], {"coordinate_transformation_mode": "pytorch_half_pixel", "antialias": 1, "mode": "cubic"}),
        (
            (2, 9),
            [1, 0.6],
            {
                "coordinate_transformation_mode": "tf_crop_and_resize",
                "antialias": 1,
                "mode": "linear",
                "r": [0, 0.1, 1, 1.3],
                "extrapolation_value": -2.0,
            },
        ),
    ],
)
def test_template_interpolates_where_the_reference_differs(
    x: tuple[int, ...], scales: list[float], attributes: dict[str, Any]
) -> None:
    """onnx.reference reads a neighbor if a coordinate is an integer up to rounding, and other elements if the length or
    the coordinate of one element is special, with antialias."""
    data = np.random.default_rng(1).standard_normal(x).astype(np.float32)
    expected, found = (resized(data, scales, device, **attributes) for device in ("ORT", "TEMPLATE"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(resized(data, scales, "CPU", **attributes), expected, rtol=0, atol=1e-5)
