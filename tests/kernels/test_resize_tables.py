"""resize_nearest, resize_filter and resize_outside against naive NumPy twins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hetero import InferenceError, _kernels

pytestmark = pytest.mark.spread(2)

VARIANTS = _kernels.variants("resize_nearest", "resize_filter", "resize_outside")
COORDINATES = ("HALF_PIXEL", "HALF_PIXEL_SYMMETRIC", "PYTORCH_HALF_PIXEL", "ALIGN_CORNERS", "ASYMMETRIC")
COORDINATES += ("TF_HALF_PIXEL", "TF_CROP")
ROUNDINGS = ("PREFER_FLOOR", "PREFER_CEIL", "FLOOR", "CEIL")

AXIS = st.fixed_dictionaries({
    "mode": st.sampled_from(COORDINATES),
    "size": st.integers(1, 40) | st.just(4001),
    "length": st.integers(0, 40) | st.just(3000),
    "scale": st.just(0.0) | st.floats(0.0625, 8, width=32),
    "region": st.just((0.0, 1.0)) | st.tuples(st.floats(-2, 2), st.floats(-2, 2)),
})  # fmt: skip


def code(name: str) -> int:
    return _kernels.constant(f"RESIZE_{name}")


def places(
    mode: str, size: int, length: int, scale: float, region: tuple[float, float], number: type[np.floating[Any]]
) -> NDArray[Any]:
    """The position of each element of the result, computed in type ``number``."""
    if length == 0:
        return np.empty(0, number)
    y, s, n = np.arange(length, dtype=number), number(scale), number(size)
    half, one = number(0.5), number(1)
    match mode:
        case "ALIGN_CORNERS":
            resized = number(length) if abs(scale * size - length) <= 1e-6 * length else s * n
            return np.asarray(y * (n - one) / (resized - one) if resized != one else np.zeros_like(y))
        case "ASYMMETRIC":
            return np.asarray(y / s)
        case "TF_HALF_PIXEL":
            return np.asarray((y + half) / s)
        case "TF_CROP" if length > 1:
            start, end = number(region[0]), number(region[1])
            return np.asarray(start * (n - one) + y * (end - start) * (n - one) / number(length - 1))
        case "TF_CROP":
            return np.full_like(y, half * (number(region[0]) + number(region[1])) * (n - one))
        case "PYTORCH_HALF_PIXEL" if length <= 1:
            return np.zeros_like(y)
        case "HALF_PIXEL_SYMMETRIC":
            centered = n / number(2) * (one - number(length) / (s * n))
            return (float(centered) + (y + half).astype(np.float64) / float(s) - 0.5).astype(number)
        case _:
            return np.asarray((y + half) / s - half)


def ratio(axis: dict[str, Any]) -> float:
    return float(axis["scale"] or axis["length"] / axis["size"])


def call(kernel: str, axis: dict[str, Any], specs: Any, ints: list[int], floats: Any = (), **options: Any) -> Any:
    scale = int(np.float32(axis["scale"]).view(np.uint32))
    ints = [axis["size"], scale, code(axis["mode"]), *ints]
    return _kernels.call(kernel, [], specs, ints, (*axis["region"], *floats), **options)


@given(axis=AXIS, rounding=st.sampled_from(ROUNDINGS), variant=st.sampled_from(VARIANTS))
def test_nearest(axis: dict[str, Any], rounding: str, variant: str) -> None:
    size, length = axis["size"], axis["length"]
    (found,) = call("resize_nearest", axis, [((length,), "int32")], [code(rounding)], variant=variant)
    at = places(axis["mode"], size, length, ratio(axis), axis["region"], np.float32)
    half = np.float32(0.5)
    rounded = {
        "PREFER_FLOOR": np.ceil(at - half),
        "PREFER_CEIL": np.floor(at + half),
        "FLOOR": np.floor(at),
        "CEIL": np.ceil(at),
    }
    np.testing.assert_array_equal(found, rounded[rounding].clip(0, size - 1).astype(np.int32))


@given(axis=AXIS, precise=st.booleans(), variant=st.sampled_from(VARIANTS))
def test_outside(axis: dict[str, Any], precise: bool, variant: str) -> None:
    size, length = axis["size"], axis["length"]
    (found,) = call("resize_outside", axis, [((length,), "bool")], [int(precise)], variant=variant)
    at = places(axis["mode"], size, length, ratio(axis), axis["region"], np.float64 if precise else np.float32)
    np.testing.assert_array_equal(found, (at < 0) | (at > size - 1))


def filters(axis: dict[str, Any], cubic: bool, shrink: float, exclude: bool, a: float) -> tuple[Any, Any]:
    """The first position, and the weights of all positions of the axis: [length, size]."""
    size, length = axis["size"], axis["length"]
    support = (2 if cubic else 1) / shrink
    taps = 2 * math.ceil(support)
    at = places(axis["mode"], size, length, ratio(axis), axis["region"], np.float64).clip(-support - 1, size + support)
    first = np.floor(at).astype(np.int64) - (taps // 2 - 1)
    weights = np.zeros((length, size))
    for j in range(length):
        made = []
        for number in range(first[j], first[j] + taps):
            d = abs(number - at[j]) * shrink
            value = max(1.0 - d, 0.0)
            if cubic:
                near = ((a + 2) * d - (a + 3)) * d * d + 1
                value = near if d <= 1 else ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0
            made.append(0.0 if exclude and not 0 <= number < size else value)
        total = sum(made)
        for number, value in zip(range(first[j], first[j] + taps), made, strict=True):
            weights[j, min(max(number, 0), size - 1)] += value / (total or 1)
    return first.clip(0, size - min(taps, size)), weights


@given(
    axis=AXIS,
    cubic=st.booleans(),
    antialias=st.booleans(),
    exclude=st.booleans(),
    a=st.sampled_from([-0.75, -0.5, 0.3]),
    dtype=st.sampled_from(["float32", "float64"]),
    variant=st.sampled_from(VARIANTS),
)
def test_filter(
    axis: dict[str, Any], cubic: bool, antialias: bool, exclude: bool, a: float, dtype: str, variant: str
) -> None:
    size, length = axis["size"], min(axis["length"], 60)
    axis = {**axis, "size": min(size, 400), "length": length}
    size = axis["size"]
    shrink = min(ratio(axis), 1.0) if antialias and length else 1.0
    taps = 2 * math.ceil((2 if cubic else 1) / shrink)
    window = min(taps, size)
    specs = [((length,), "int32"), ((window, length), dtype)]
    ints = [int(cubic), int(antialias), int(exclude), taps]
    starts, weights = call("resize_filter", axis, specs, ints, [a], variant=variant)
    wanted_starts, wanted = filters(axis, cubic, shrink, exclude, a)
    np.testing.assert_array_equal(starts, wanted_starts)
    found = np.zeros((length, size), dtype)
    for j in range(length):
        found[j, starts[j] : starts[j] + window] = weights[:, j]
    np.testing.assert_array_equal(found, wanted.astype(dtype))


def test_places_far_outside_are_clipped() -> None:
    """Scales near the ends of float32: positions overflow to infinity, or exceed the integers of int32."""
    for scale in (float(np.float32(1e-45)), 1e-30, 3e38):
        axis = {"mode": "ASYMMETRIC", "size": 7, "length": 3, "scale": scale, "region": (0.0, 1.0)}
        (found,) = call("resize_nearest", axis, [((3,), "int32")], [code("FLOOR")])
        assert found.tolist() == ([0, 6, 6] if scale < 1 else [0, 0, 0])
        starts, weights = call("resize_filter", axis, [((3,), "int32"), ((2, 3), "float32")], [0, 0, 0, 2], [-0.75])
        assert starts.tolist() == ([0, 5, 5] if scale < 1 else [0, 0, 0])
        np.testing.assert_array_equal(weights.sum(0), [1, 1, 1])


@pytest.mark.parametrize(
    ("size", "taps", "rows"), [(0, 2, 2), (7, 3, 3), (7, 2, 3), (1 << 31, 2, 2), (7, 0, 0), (7, 1 << 40, 7)]
)
def test_what_does_not_fit(size: int, taps: int, rows: int) -> None:
    axis = {"mode": "HALF_PIXEL", "size": size, "length": 4, "scale": 0.0, "region": (0.0, 1.0)}
    with pytest.raises((InferenceError, ValueError)):
        call("resize_filter", axis, [((4,), "int32"), ((rows, 4), "float32")], [0, 0, 0, taps], [-0.75])
