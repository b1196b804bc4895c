"""Small integers: quantization, products and convolutions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op
from onnx.reference.ops._quant_utils import reshape_input

from .table import Corrections, since

__all__ = ["CORRECTIONS"]

Array = np.ndarray[Any, Any]
UpstreamQuantizeLinear: Any = load_op("", "QuantizeLinear", 25)
UpstreamDequantizeLinear: Any = load_op("", "DequantizeLinear", 25)


def _is_integer(dtype: Any) -> bool:
    return dtype.kind in "iu" or dtype.name in ("int2", "uint2", "int4", "uint4")


def _dtype_of(number: int | None, default: np.dtype[Any]) -> np.dtype[Any]:
    """The element type that an attribute states; ``default`` if the attribute is absent or 0."""
    return tensor_dtype_to_np_dtype(number) if number else default


def _spread(operand: Array, x: Array, attributes: Mapping[str, Any]) -> Array:
    """A scale or zero point reshaped to broadcast to ``x``, according to the attributes ``axis`` and ``block_size``."""
    return np.asarray(reshape_input(operand, x.shape, attributes.get("axis", 1), attributes.get("block_size", 0)))


def _saturated(value: Array, zero: Any, dtype: Any) -> Array:
    """round(value) + zero in ``dtype``, halves to even; NaN gives the smallest integer."""
    limits: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    shifted = np.rint(value.astype(np.float64)) + np.asarray(zero).astype(np.float64)
    inside = np.clip(np.where(np.isnan(shifted), limits.min, shifted), limits.min, limits.max)
    return np.asarray(inside.astype(np.int32), np.int32).astype(dtype)


class QuantizeLinear(UpstreamQuantizeLinear):  # type: ignore[misc]
    # onnx.reference casts the quotient to int32 before it saturates, so a large quotient becomes the smallest integer.
    # It divides in a type that NumPy chooses; the specification divides in the type of the scale.

    def _run(self, x: Array, y_scale: Array, zero_point: Array | None = None, **attributes: Any) -> tuple[Array, ...]:
        stated = _dtype_of(
            attributes.get("output_dtype"), np.dtype(np.uint8) if zero_point is None else zero_point.dtype
        )
        made = stated if zero_point is None else zero_point.dtype
        if not _is_integer(made) or y_scale.dtype.kind in "iu":
            results: tuple[Array, ...] = super()._run(x, y_scale, zero_point, **attributes)
            return results
        if stated != made:
            raise ValueError(f"expected a zero point of {stated}, found {made}")
        dtype = _dtype_of(attributes.get("precision"), y_scale.dtype)
        quotient = x.astype(dtype) / _spread(y_scale, x, attributes).astype(dtype)
        zero = 0 if zero_point is None else _spread(zero_point, x, attributes)
        return (_saturated(np.asarray(quotient), zero, made),)


class DequantizeLinear(UpstreamDequantizeLinear):  # type: ignore[misc]
    # onnx.reference rounds int32 to float32 before it subtracts the zero point.

    def _run(self, x: Array, x_scale: Array, x_zero_point: Array | None = None, **attributes: Any) -> tuple[Array, ...]:
        if x.dtype.kind not in "iu" or (x_zero_point is not None and x_zero_point.dtype != x.dtype):
            results: tuple[Array, ...] = super()._run(x, x_scale, x_zero_point, **attributes)
            return results
        wide = x.astype(np.int64)
        if x_zero_point is not None:
            wide = wide - _spread(x_zero_point, x, attributes).astype(np.int64)
        product = wide.astype(np.float32) * _spread(x_scale, x, attributes).astype(np.float32)
        return (np.asarray(product).astype(_dtype_of(attributes.get("output_dtype"), x_scale.dtype)),)


class DynamicQuantizeLinear(OpRun):
    # onnx.reference fails if x is empty. If x contains only zeros, it returns the scale 1 / 255, onnxruntime 1 (the
    # specification's formula divides by zero). NaN in x makes the scale NaN; a zero point of NaN becomes 255.

    def _run(self, x: Array) -> tuple[Array, ...]:
        high = np.maximum(np.float32(0), x.max(initial=0)).astype(np.float32)
        low = np.minimum(np.float32(0), x.min(initial=0)).astype(np.float32)
        scale = np.float32(1) if high == low else np.float32((high - low) / np.float32(255))
        start = -low / scale
        zero = np.array(255 if np.isnan(start) else np.rint(np.clip(start, 0, 255)), np.uint8)
        return (_saturated(np.asarray(x / scale), zero, np.dtype(np.uint8)), np.array(scale), zero)


def _less_zero(x: Array, zero: Array | None, shape: Sequence[int] = ()) -> Array:
    """x - zero as int64. A zero point with more than one element is reshaped to ``shape`` first."""
    if zero is None:
        return x.astype(np.int64)
    return np.asarray(x.astype(np.int64) - zero.astype(np.int64).reshape(() if zero.size == 1 else shape))


def _wrapped(sums: Array) -> Array:
    return sums.astype(np.int32)  # modulo 2**32


def _product(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
    rows = () if a_zero is None else (-1, 1) if a_zero.ndim == 1 else a_zero.shape
    columns = () if b_zero is None else b_zero.shape
    return _wrapped(np.asarray(np.matmul(_less_zero(a, a_zero, rows), _less_zero(b, b_zero, columns))))


class MatMulInteger(OpRun):
    # A vector holds one zero point per row of A; onnx.reference applies it per column.

    def _run(
        self, a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None
    ) -> tuple[Array, ...]:
        return (_product(a, b, a_zero_point, b_zero_point),)


class QLinearMatMul(OpRun):
    # See MatMulInteger; the same applies to scales. onnx.reference adds the zero point before it rounds, so an odd zero
    # point changes how halves are rounded; the specification and onnxruntime round first.

    def _run(
        self,
        a: Array,
        a_scale: Array,
        a_zero_point: Array,
        b: Array,
        b_scale: Array,
        b_zero_point: Array,
        y_scale: Array,
        y_zero_point: Array,
    ) -> tuple[Array, ...]:
        sums = _product(a, b, a_zero_point, b_zero_point)
        per_row = [v.reshape(()) if v.size == 1 else v.reshape(-1, 1) if v.ndim == 1 else v for v in (a_scale, y_scale)]
        scale = per_row[0] * (b_scale.reshape(()) if b_scale.size == 1 else b_scale) / per_row[1]
        zero = y_zero_point.reshape(()) if y_zero_point.size == 1 else y_zero_point
        zero = zero.reshape(-1, 1) if zero.ndim == 1 else zero
        return (_requantized(sums, scale, zero),)


def _requantized(sums: Array, scale: Array, zero: Array) -> Array:
    """saturate(round(sums * scale) + zero), halves to even, in float32 as onnxruntime computes it."""
    made = _saturated(np.asarray(sums.astype(np.float32) * scale.astype(np.float32)), zero, zero.dtype)
    if made.shape != sums.shape:
        raise ValueError(
            f"scales {list(scale.shape)} and zero point {list(zero.shape)} do not broadcast to {list(sums.shape)}"
        )
    return made


class _Convolution(OpRun):
    def sums(
        self,
        x: Array,
        w: Array,
        auto_pad: str | None = None,
        dilations: Sequence[int] | None = None,
        group: int = 1,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Array:
        """The sums of products, exact modulo 2**32. ``x``, ``w``: int64, with their zero points subtracted."""
        rank, kernel = x.ndim - 2, w.shape[2:]
        if kernel_shape is not None and tuple(kernel_shape) != kernel:
            raise ValueError(f"kernel_shape is {list(kernel_shape)}, the weights have {list(kernel)}")
        if x.shape[1] != w.shape[1] * group or w.shape[0] % group:
            raise ValueError(f"weights {list(w.shape)} and group {group} do not fit {x.shape[1]} channels")
        strides, dilations = strides or [1] * rank, dilations or [1] * rank
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        ends = [(0, 0)] * rank
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            for axis, (size, stride) in enumerate(zip(x.shape[2:], strides, strict=True)):
                total = max((-(-size // stride) - 1) * stride + reach[axis] - size, 0)
                small, large = total // 2, total - total // 2
                ends[axis] = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        elif auto_pad in (None, "", "NOTSET") and pads:
            ends = [(pads[axis], pads[axis + rank]) for axis in range(rank)]
        x = np.pad(x, [(0, 0), (0, 0), *ends])
        sizes = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
        if min(sizes, default=1) < 1:
            raise ValueError(f"a window of {reach} does not fit an input of {list(x.shape[2:])} with its pads")
        batch, maps = x.shape[0], w.shape[0]
        windows = x.reshape(batch, group, w.shape[1], *x.shape[2:])
        filters = w.reshape(group, maps // group, w.shape[1], *kernel)
        total_sums = np.zeros((batch, group, maps // group, *sizes), np.int64)
        for offset in itertools.product(*map(range, kernel)):
            places = tuple(
                slice(o * d, o * d + (n - 1) * s + 1, s)
                for o, d, n, s in zip(offset, dilations, sizes, strides, strict=True)
            )
            taps = windows[(slice(None),) * 3 + places].reshape(batch, group, w.shape[1], math.prod(sizes))
            total_sums += np.matmul(filters[(slice(None),) * 3 + offset], taps).reshape(total_sums.shape)
        return _wrapped(total_sums.reshape(batch, maps, *sizes))


class ConvInteger(_Convolution):
    # onnx.reference supports a zero point per channel only for two spatial axes. Compared with sums in NumPy.

    def _run(
        self,
        x: Array,
        w: Array,
        x_zero_point: Array | None = None,
        w_zero_point: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array, ...]:
        per_map = (-1, *(1,) * (w.ndim - 1))
        return (self.sums(_less_zero(x, x_zero_point), _less_zero(w, w_zero_point, per_map), **attributes),)


class QLinearConv(_Convolution):
    # See ConvInteger and QLinearMatMul. onnx.reference also adds the bias to sums in float32.

    def _run(
        self,
        x: Array,
        x_scale: Array,
        x_zero_point: Array,
        w: Array,
        w_scale: Array,
        w_zero_point: Array,
        y_scale: Array,
        y_zero_point: Array,
        bias: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array, ...]:
        per_map = (-1, *(1,) * (w.ndim - 1))
        sums = self.sums(_less_zero(x, x_zero_point), _less_zero(w, w_zero_point, per_map), **attributes)
        if bias is not None:
            sums = _wrapped(sums + bias.astype(np.int64).reshape(per_map[:-1]))
        scale = np.asarray(x_scale.reshape(()) * w_scale / y_scale.reshape(()))
        return (_requantized(sums, scale.reshape(() if scale.size == 1 else per_map[:-1]), y_zero_point.reshape(())),)


CORRECTIONS: Corrections = (
    *since(10, QuantizeLinear, DequantizeLinear, MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv),
    *since(11, DynamicQuantizeLinear),
)
