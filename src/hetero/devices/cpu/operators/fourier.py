"""Fourier transforms: DFT and STFT."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...._sizes import ask, whole
from ....errors import InferenceError
from ..registry import FLOATS, INDICES, Node, operator
from ..values import Context, Value
from .elementwise import _optional, _required, binary
from .movement import axis_of, strided

_MAX_LENGTH = 1 << 24


def _scalar(context: Context, value: Value | None) -> int | None:
    if value is None:
        return None
    if value.size != 1:
        raise InferenceError(f"expected a scalar, found shape {list(value.shape)}")
    return whole(context.known(value).reshape(()).item())


def _roots(length: int, numerators: NDArray[np.int64], inverse: bool) -> NDArray[np.float64]:
    """exp(-2 pi i k / length) for the numerators k, or its conjugate if ``inverse``: real and imaginary parts along the
    last axis."""
    angles = (2 if inverse else -2) * np.pi * (numerators / length)
    return np.stack([np.cos(angles), np.sin(angles)], -1)


def dft_tables(length: int, inverse: bool) -> tuple[NDArray[np.float64], ...]:
    """The tables of the kernel `dft` for a length (kernels/dft.c): the roots of unity; for a length with a large prime
    factor, the roots of a larger power of 2, the chirp and its spectrum (Bluestein)."""
    points = int(ask("dft_points", length))
    tables: tuple[NDArray[np.float64], ...] = (_roots(points, np.arange(points), inverse),)
    if points != length:
        steps = np.arange(length)
        chirp = _roots(2 * length, steps * steps % (2 * length), inverse)
        around = np.zeros(points, np.complex128)
        around[:length] = chirp[:, 0] - 1j * chirp[:, 1]
        around[points - length + 1 :] = around[length - 1 : 0 : -1]
        spectrum = (np.fft.ifft(around) if inverse else np.fft.fft(around) / points).view(np.float64)
        tables = (*tables, chirp, spectrum.reshape(points, 2))
    for table in tables:
        table.flags.writeable = False
    return tables


def _transformed(context: Context, x: Value, axis: int, length: int, onesided: bool, inverse: bool) -> Value:
    """The transform of ``x`` along ``axis``. The last axis of ``x`` holds real and imaginary parts, or only real
    ones."""
    size, parts, real = x.shape[axis], x.shape[-1], onesided and inverse
    if not 1 <= length <= _MAX_LENGTH:
        raise InferenceError(f"a length of {length} is outside 1..2**24")
    if parts not in (1, 2) or (onesided and parts != (2 if inverse else 1)):
        raise InferenceError(f"{parts} parts of numbers along the last axis of {list(x.shape)} do not fit")
    kept = length // 2 + 1 if onesided and not inverse else length
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 : x.rank - 1])
    shape = (*x.shape[:axis], kept, *x.shape[axis + 1 : x.rank - 1], 1 if real else 2)
    ints = [outer, size, inner, parts, length, kept, int(inverse), int(real)]
    points = ask("dft_points", length)
    rows = [points] if points == length else [points, length, points]
    made = functools.lru_cache(1)(dft_tables)
    tables = [
        context.table(lambda length, number=number: made(length, inverse)[number], [length], (count, 2))
        for number, count in enumerate(rows)
    ]
    return context.call("dft", [x, *tables], shape, x.dtype, ints)


@operator("DFT", dtypes=(FLOATS, INDICES, ("int64",)), attributes={
    "axis": None, "inverse": (0, 1), "onesided": (0, 1),
}, since=17)  # fmt: skip
def _dft(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, axis_input = _required(inputs[0]), _scalar(context, _optional(inputs, 2))
    axis = axis_of(node.get("axis", 1) if node.opset < 20 else -2 if axis_input is None else axis_input, x.rank)
    if axis == x.rank - 1:
        raise InferenceError("the last axis holds real and imaginary parts")
    onesided, inverse = bool(node.get("onesided", 0)), bool(node.get("inverse", 0))
    length = _scalar(context, _optional(inputs, 1))
    if length is None:
        length = 2 * (x.shape[axis] - 1) if onesided and inverse else x.shape[axis]
    return [_transformed(context, x, axis, length, onesided, inverse)]


@operator("STFT", dtypes=(FLOATS, INDICES, FLOATS, INDICES), attributes={"onesided": (0, 1)})
def _stft(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, window = _required(inputs[0]), _optional(inputs, 2)
    step, length = _scalar(context, inputs[1]), _scalar(context, _optional(inputs, 3))
    if x.rank not in (2, 3):
        found = list(x.shape)
        raise InferenceError(f"expected a signal [batch, length, parts] or [batch, length], found shape {found}")
    if window is not None and window.rank != 1:
        raise InferenceError(f"expected a window of one dimension, found shape {list(window.shape)}")
    if x.rank == 2:  # real numbers; ONNX requires the third dimension, onnxruntime does not
        x = context.reshaped(x, (*x.shape, 1))
    batch, size, parts = x.shape
    if length is None:
        length = size if window is None else window.size
    if step is None or not 1 <= step <= 1 << 40 or not 1 <= length <= size:
        raise InferenceError(f"frames of {length} every {step} do not fit a signal of {size}")
    frames = (size - length) // step + 1
    walk = (size * parts, step * parts, parts, 1)
    cut = strided(context, x, 0, (batch, frames, length, parts), walk)
    if window is not None:
        if window.size != length or window.dtype != x.dtype:
            raise InferenceError(f"a window {window.dtype}{list(window.shape)} does not fit frames of {length}")
        cut = binary(context, "mul", cut, context.reshaped(window, (length, 1)))
    return [_transformed(context, cut, 2, length, bool(node.get("onesided", 1)) and parts == 1, False)]
