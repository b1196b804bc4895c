"""DFT and STFT on the CPU, against `numpy.fft`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from hetero import Core, InferenceError
from single_node import model, run


def transform(x: np.ndarray, length: int | None, where: int | None, opset: int = 20, **attributes: Any) -> np.ndarray:
    feeds = {"x": x}
    inputs = ["x", "", ""]
    if length is not None:
        feeds["n"], inputs[1] = np.array([length]), "n"
    if where is not None:
        feeds["a"], inputs[2] = np.array([where]), "a"
    if opset < 20:  # the axis is an attribute
        inputs.pop()
    (y,) = run(model([helper.make_node("DFT", inputs, ["y"], name="dft", **attributes)], feeds, ["y"], opset), feeds)
    return y


@given(data=st.data())
def test_transforms(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    shape = [
        data.draw(st.integers(1, 3)),
        data.draw(st.sampled_from([1, 2, 5, 8, 16, 17])),
        data.draw(st.integers(1, 4)),
    ]
    kind = data.draw(st.sampled_from(["forward", "inverse", "onesided", "back to real"]))
    parts = data.draw(st.sampled_from([1, 2])) if kind in ("forward", "inverse") else 1 if kind == "onesided" else 2
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    x = rng.standard_normal((*shape, parts)).astype(dtype)
    length = data.draw(st.none() | st.sampled_from([1, 2, 4, 7, 8, 20, 61, 67, 90, 128, 201, 400]))
    if kind == "back to real" and length is None:
        length = 2 * max(shape[1] - 1, 1)
    z = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    if kind == "forward":
        wanted = np.fft.fft(z, length, axis=1)
    elif kind == "inverse":
        wanted = np.fft.ifft(z, length, axis=1)
    elif kind == "onesided":
        wanted = np.fft.rfft(z.real, length, axis=1)
    else:
        wanted = np.fft.irfft(z, length, axis=1)
    y = transform(x, length, 1, onesided=int(kind in ("onesided", "back to real")),
                  inverse=int(kind in ("inverse", "back to real")))  # fmt: skip
    assert y.dtype == dtype
    found = y[..., 0] + (1j * y[..., 1] if y.shape[-1] == 2 else 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.spread(2)
@pytest.mark.parametrize("length", [1, 2, 3, 5, 12, 61, 62, 67, 134, 400, 441, 509, 1000, 1024, 2003, 4096, 7919])
@pytest.mark.parametrize("lines", [1, 3, 9])
def test_lengths_of_all_kinds(length: int, lines: int) -> None:
    """Smooth ones, and primes beyond the largest factor, there and back, to the digits of float64."""
    rng = np.random.default_rng(length)
    z = rng.standard_normal((lines, length)) + 1j * rng.standard_normal((lines, length))
    x = np.stack([z.real, z.imag], -1)
    wanted = np.fft.fft(z, axis=1)
    y = transform(x, None, 1)
    error = np.abs(y[..., 0] + 1j * y[..., 1] - wanted).max()
    assert error < 4e-15 * length**0.5 * np.log2(length + 1) * 4
    back = transform(y, None, 1, inverse=1)
    assert np.abs(back - x).max() < 1e-14 * np.log2(length + 1)


def test_the_axis_of_older_opsets_is_an_attribute() -> None:
    x = np.random.default_rng(0).standard_normal((2, 4, 6, 1)).astype(np.float32)
    for axis in (1, 2, -2):
        y = transform(x, None, None, 17, axis=axis)
        np.testing.assert_allclose(
            y[..., 0] + 1j * y[..., 1], np.fft.fft(x[..., 0], axis=axis % 4), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(("length", "axis", "expected"), [
    (0, 1, "outside"), (-3, 1, "outside"), (1 << 40, 1, "outside"), (4, 2, "last axis"), (4, 9, "axis 9"),
])  # fmt: skip
def test_bad_parameters_name_the_node(length: int, axis: int, expected: str) -> None:
    with pytest.raises(InferenceError, match=f"'dft' .DFT.*{expected}"):
        transform(np.ones((1, 4, 1), np.float32), length, axis)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("windowed", [False, True])
def test_short_time(onesided: int, windowed: bool) -> None:
    rng = np.random.default_rng(0)
    x, window = rng.standard_normal((2, 50, 1)).astype(np.float32), np.hanning(16).astype(np.float32)
    feeds = {"x": x, "s": np.array(7), "w": window, "n": np.array(16)}
    inputs = ["x", "s", "w", ""] if windowed else ["x", "s", "", "n"]
    feeds.pop("n" if windowed else "w")
    (y,) = run(model([helper.make_node("STFT", inputs, ["y"], onesided=onesided)], feeds, ["y"], 17), feeds)
    frames = np.stack([x[:, at : at + 16, 0] for at in range(0, 35, 7)], axis=1)
    frames = frames * window if windowed else frames
    wanted = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", ["CPU", "TEMPLATE", "ORT"])
@pytest.mark.parametrize("shape", [(2, 50), (1, 16), (0, 20)])
def test_real_signals_without_a_dimension_of_parts(device: str, shape: tuple[int, int]) -> None:
    feeds = {"x": np.random.default_rng(0).standard_normal(shape, np.float32), "s": np.array(7)}
    feeds["w"] = np.hanning(16).astype(np.float32)
    net = model([helper.make_node("STFT", ["x", "s", "w"], ["y"])], feeds, ["y"], 17)
    y = Core().compile_model(net, device)(feeds)["y"]
    frames = [feeds["x"][:, at : at + 16] for at in range(0, shape[1] - 15, 7)]
    wanted = np.fft.rfft(np.stack(frames, axis=1) * feeds["w"])
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], wanted, rtol=1e-4, atol=1e-4)


def test_signals_of_other_ranks_name_the_node() -> None:
    feeds = {"x": np.ones((1, 2, 50, 1), np.float32), "s": np.array(2), "n": np.array(4)}
    node = helper.make_node("STFT", ["x", "s", "", "n"], ["y"], name="frames")
    with pytest.raises(InferenceError, match=r"'frames' .STFT.*or \[batch, length\], found shape \[1, 2, 50, 1\]"):
        run(model([node], feeds, ["y"], 17), feeds)


@pytest.mark.parametrize(("step", "length"), [(0, 4), (-1, 4), (1, 0), (1, 60), (1 << 60, 4)])
def test_frames_that_do_not_fit_name_the_node(step: int, length: int) -> None:
    feeds = {"x": np.ones((1, 50, 1), np.float32), "s": np.array(step), "n": np.array(length)}
    node = helper.make_node("STFT", ["x", "s", "", "n"], ["y"], name="frames")
    with pytest.raises(InferenceError, match="'frames' .STFT.*do not fit"):
        run(model([node], feeds, ["y"], 17), feeds)
