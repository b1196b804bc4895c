"""GridSample, AffineGrid, RoiAlign, NonMaxSuppression, Det and Unique on the CPU, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from hetero import InferenceError
from single_node import assert_as_onnxruntime, model, run


@given(data=st.data())
def test_grid_sample(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    rank = data.draw(st.integers(2, 3))
    mode = data.draw(st.sampled_from(["nearest", "linear", "cubic"] if rank == 2 else ["nearest", "linear"]))
    spatial = [data.draw(st.integers(2, 6)) for _ in range(rank)]
    x = rng.standard_normal((2, data.draw(st.integers(1, 9)), *spatial)).astype(np.float32)
    grid = (rng.random((2, *[4] * rank, rank)) * 4 - 2).astype(np.float32)
    assert_as_onnxruntime(
        "GridSample", [x, grid], opset=20, atol=1e-4,
        mode=mode,
        padding_mode=data.draw(st.sampled_from(["zeros", "border", "reflection"])),
        align_corners=data.draw(st.sampled_from([0, 1])),
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_a_grid_of_no_numbers_reads_nothing_outside(mode: str, padding: str) -> None:
    places = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e9, 0], np.float32)
    grid = np.stack(np.meshgrid(places, places), axis=-1)[None]
    feeds = {"x": np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4), "g": grid}
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding)
    (y,) = run(model([node], feeds, ["y"], 20), feeds)
    assert np.isfinite(y).all()
    assert np.abs(y).max() < 30


@pytest.mark.parametrize("channels", [1, 3, 4, 9])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_an_element_of_weight_zero_counts_as_zero(channels: int, bad: float) -> None:
    """Four channels are computed at a time, and again if a result is NaN."""
    x = np.ones((1, channels, 3, 4), np.float32)
    x[0, channels // 2, 1, 2] = bad
    rows, columns = np.linspace(-1, 1, 3), np.linspace(-1, 1, 4)  # the elements themselves
    grid = np.stack(np.meshgrid(columns, rows), axis=-1)[None].astype(np.float32)
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode="linear", align_corners=1)
    (y,) = run(model([node], {"x": x, "g": grid}, ["y"], 20), {"x": x, "g": grid})
    near = np.zeros_like(x, bool)
    near[0, channels // 2] = True
    np.testing.assert_allclose(y[~near], 1, rtol=1e-6)
    assert not np.isfinite(y[0, channels // 2, 1, 2])
    assert np.isfinite(y[0, channels // 2, 0]).all()


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 3, 4, 5), (2, 3, 1, 1)])
def test_affine_grid(aligned: int, size: tuple[int, ...]) -> None:
    theta = np.random.default_rng(0).standard_normal((2, len(size) - 2, len(size) - 1)).astype(np.float32)
    assert_as_onnxruntime("AffineGrid", [theta, np.array(size)], opset=20, align_corners=aligned)


@given(data=st.data())
def test_roi_align(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.standard_normal((2, 3, 9, 8)).astype(np.float32)
    corners = rng.random((5, 2, 2)) * 12 - 2
    rois = np.concatenate([corners.min(1), corners.max(1)], axis=1).astype(np.float32)
    attributes: dict[str, Any] = {
        "mode": data.draw(st.sampled_from(["avg", "max"])),
        "output_height": data.draw(st.integers(1, 4)),
        "output_width": data.draw(st.integers(1, 4)),
        "sampling_ratio": data.draw(st.integers(0, 3)),
        "spatial_scale": data.draw(st.sampled_from([1.0, 0.5])),
    }
    opset = data.draw(st.sampled_from([10, 16]))
    if opset == 16:
        attributes["coordinate_transformation_mode"] = data.draw(st.sampled_from(["half_pixel", "output_half_pixel"]))
    assert_as_onnxruntime("RoiAlign", [x, rois, rng.integers(0, 2, 5)], opset=opset, atol=1e-5, **attributes)


@pytest.mark.parametrize(
    ("roi", "image", "expected"),
    [
        ([0, 0, 4, 4], 1, "index"),
        ([0, 0, 4, 4], -1, "index"),
        ([np.nan, 0, 4, 4], 0, "operand"),
        ([0, 0, np.inf, 4], 0, "operand"),
        ([-1e30, 0, 1e30, 4], 0, "operand"),
        ([0, 0, 1e8, 1e8], 0, "operand"),
    ],
)
def test_bad_regions_name_the_node(roi: list[float], image: int, expected: str) -> None:
    feeds = {"x": np.ones((1, 1, 5, 5), np.float32), "r": np.array([roi], np.float32), "i": np.array([image])}
    node = helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], name="regions")
    with pytest.raises(InferenceError, match=f"regions.*{expected}"):
        run(model([node], feeds, ["y"], 16), feeds)


@given(data=st.data())
def test_non_max_suppression(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    batches, classes, count = (data.draw(st.integers(1, high)) for high in (2, 3, 30))
    boxes = rng.random((batches, count, 4)).astype(np.float32)
    scores = rng.random((batches, classes, count)).astype(np.float32)
    arrays: list[np.ndarray | None] = [boxes, scores]
    arrays.append(np.array([data.draw(st.integers(0, 12))]))
    if data.draw(st.booleans()):
        arrays.append(np.array([data.draw(st.sampled_from([0.0, 0.2, 0.5, 1.0]))], np.float32))
        if data.draw(st.booleans()):
            arrays.append(np.array([0.4], np.float32))
    assert_as_onnxruntime("NonMaxSuppression", arrays, center_point_box=data.draw(st.sampled_from([0, 1])))


def test_suppression_with_constant_bounds_and_equal_scores() -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 1], [0, 10, 1, 11], [0, 0, 0, 0]]], np.float32)
    feeds = {"b": boxes, "s": np.full((1, 1, 4), 0.5, np.float32)}
    nodes = [
        helper.make_node("Constant", [], ["m"], value_int=3),
        helper.make_node("Constant", [], ["t"], value_float=0.5),
        helper.make_node("NonMaxSuppression", ["b", "s", "m", "t"], ["y"]),
    ]
    (y,) = run(model(nodes, feeds, ["y"], 17), feeds)
    assert y.tolist() == [[0, 0, 0], [0, 0, 2], [0, 0, 3]]


def test_scores_that_are_no_numbers_are_left_out() -> None:
    feeds = {
        "b": np.array([[[0, 0, 1, 1], [5, 5, 6, 6]]], np.float32),
        "s": np.array([[[np.nan, 0.5]]], np.float32),
        "m": np.array([9]),
    }
    (y,) = run(model([helper.make_node("NonMaxSuppression", ["b", "s", "m"], ["y"])], feeds, ["y"], 17), feeds)
    assert y.tolist() == [[0, 0, 1]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [0, 1, 2, 5, 20])
def test_determinants(dtype: str, size: int) -> None:
    x = np.random.default_rng(size).standard_normal((3, 2, size, size)).astype(dtype)
    (y,) = run(model([helper.make_node("Det", ["x"], ["y"])], {"x": x}, ["y"], 17), {"x": x})
    np.testing.assert_allclose(y, np.linalg.det(x.astype(np.float64)), rtol=1e-5)
    singular = np.ones((size, size), dtype)
    (y,) = run(model([helper.make_node("Det", ["x"], ["y"])], {"x": singular}, ["y"], 17), {"x": singular})
    assert y == (1 if size < 2 else 0)


@given(data=st.data())
def test_unique(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    dtype = data.draw(st.sampled_from(["float32", "int64", "int8"]))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 3, shape).astype(dtype)
    attributes = {"sorted": data.draw(st.sampled_from([0, 1]))} | ({} if axis is None else {"axis": axis})
    assert_as_onnxruntime("Unique", [x], 4, **attributes)


def test_unique_of_bool_nan_and_nothing() -> None:
    for x, wanted in (
        (np.array([True, False, True]), np.array([False, True])),
        (np.array([np.nan, 1, np.nan, -np.inf], np.float32), np.array([-np.inf, 1, np.nan], np.float32)),
        (np.zeros(0, np.float32), np.zeros(0, np.float32)),
    ):
        (y,) = run(model([helper.make_node("Unique", ["x"], ["y"])], {"x": x}, ["y"], 17), {"x": x})
        np.testing.assert_array_equal(y, wanted)
