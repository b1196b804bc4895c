"""Elementwise operators, Gemm with its broadcast, and reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_reduce_max import ReduceMax_1 as UpstreamReduceMax_1

from .table import Corrections
from .widening import widening

__all__ = ["CORRECTIONS"]


def align(a: np.ndarray, b: np.ndarray, broadcast: int, axis: int | None) -> np.ndarray:
    """``b`` in a shape that NumPy broadcasts to ``a`` as opsets 1 to 6 would: at ``axis``, by default the trailing
    axes."""
    if not broadcast or b.ndim == 0 or b.size == 1:
        return b.reshape(()) if broadcast and b.size == 1 else b
    first = a.ndim - b.ndim if axis is None else axis % a.ndim
    return b.reshape(*b.shape, *(1,) * (a.ndim - first - b.ndim))


def _limited(name: str, compute: Callable[[np.ndarray, np.ndarray], Any]) -> type[OpRun]:
    # Opsets 1 to 6 broadcast only the second operand, only if `broadcast` is set, and from `axis` on. onnx.reference
    # supports only NumPy's broadcasting.
    class Limited(OpRun):
        def _run(self, a: np.ndarray, b: np.ndarray, axis: int | None = None, broadcast: int = 0) -> tuple[np.ndarray]:
            return (np.asarray(compute(a, align(a, b, broadcast, axis))),)

    Limited.__name__ = Limited.__qualname__ = f"{name}Until6"
    return Limited


def _refuse_zero(a: np.ndarray, b: np.ndarray) -> None:
    if np.any(np.broadcast_to(b == 0, np.broadcast_shapes(a.shape, b.shape))):
        raise ZeroDivisionError("an integer division by zero")


def _quotient(a: np.ndarray, b: np.ndarray) -> Any:
    if a.dtype.kind not in "iu":
        return a / b
    _refuse_zero(a, b)
    # Truncate without converting to floats. The smallest integer divided by -1 wraps to itself.
    quotient = np.floor_divide(a, b)
    return quotient + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def _power(a: np.ndarray, b: np.ndarray) -> Any:
    if a.dtype.kind not in "iu":
        power = np.power(a, b)
        # NumPy computes x ** 0.5 as a square root, which differs for -inf and -0.
        return np.where((b == 0.5) & ((a == 0) | (a == -np.inf)), np.abs(a), power).astype(a.dtype)
    if b.dtype.kind not in "iu":
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    negative = np.broadcast_to(b < 0, np.broadcast_shapes(a.shape, b.shape))
    if np.any(negative & (a == 0)):
        raise ZeroDivisionError("an integer division by zero")
    # Computed modulo 2**64 for any signs; the cast wraps.
    exponent = np.where(b < 0, 0, b).astype(np.uint64)
    whole = np.power(a.astype(np.uint64), exponent).astype(a.dtype)
    inverse = np.where(np.abs(a) == 1, np.where(b % 2 == 0, a * a, a), 0).astype(a.dtype)  # truncated
    return np.where(negative, inverse, whole)


class Div(OpRun):
    # onnx.reference returns 0 for integers divided by zero. onnxruntime and the CPU device fail.

    def _run(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.asarray(_quotient(a, b), a.dtype),)


class Mod(OpRun):
    # See Div.

    def _run(self, a: np.ndarray, b: np.ndarray, fmod: int = 0) -> tuple[np.ndarray, ...]:
        if a.dtype.kind in "iu":
            _refuse_zero(a, b)
        return (np.asarray(np.fmod(a, b) if fmod else np.mod(a, b), a.dtype),)


class Pow(OpRun):
    # onnx.reference fails for integers with negative exponents, while onnxruntime truncates the power. onnx.reference
    # also wraps powers of int8 by int32 in a different type than powers of int8 by int8. Zero to a negative power is a
    # division by zero.

    def _run(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.asarray(_power(a, b), a.dtype),)


class ReduceMean(OpRun):
    # For integers, onnx.reference divides the sum as float64, which rounds it, and casts NaN, the mean of no elements,
    # to an integer. Found by comparing with the CPU device.

    def mean(self, x: np.ndarray, axes: tuple[int, ...] | None, keepdims: int) -> tuple[np.ndarray, ...]:
        if x.dtype.kind not in "iu":
            wide = np.result_type(x.dtype, np.float32)
            return (np.asarray(np.mean(x, axis=axes, keepdims=bool(keepdims), dtype=wide)).astype(x.dtype),)
        total = np.asarray(x.sum(axis=axes, keepdims=bool(keepdims), dtype=x.dtype))
        count = x.size if axes is None else math.prod(x.shape[axis] for axis in axes)
        return (np.asarray(_quotient(total, np.array(count, x.dtype)), x.dtype),)


class ReduceMean_1(ReduceMean):
    def _run(self, x: np.ndarray, axes: Sequence[int] | None = None, keepdims: int = 1) -> tuple[np.ndarray, ...]:
        return self.mean(x, tuple(axes) if axes else None, keepdims)


class ReduceMean_18(ReduceMean):
    def _run(
        self, x: np.ndarray, axes: np.ndarray | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> tuple[np.ndarray, ...]:
        if axes is None or not axes.size:
            return (x,) if noop_with_empty_axes else self.mean(x, None, keepdims)
        return self.mean(x, tuple(map(int, axes)), keepdims)


class Clip_1(OpRun):
    # onnx.reference starts at opset 6. It replaces a missing bound by infinity; the specification uses the largest
    # finite number of the type.

    def _run(self, x: np.ndarray, max: float | None = None, min: float | None = None) -> tuple[np.ndarray, ...]:
        bounds = (None if bound is None else np.array(bound, x.dtype) for bound in (min, max))
        return (_clipped(x, *bounds),)


class Clip_11(OpRun):
    # See Clip_1.

    def _run(
        self, x: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None
    ) -> tuple[np.ndarray, ...]:
        return (_clipped(x, low, high),)


def _clipped(x: np.ndarray, low: np.ndarray | None, high: np.ndarray | None) -> np.ndarray:
    limits_of: Any = ml_dtypes.iinfo if x.dtype.kind in "iu" else ml_dtypes.finfo
    limits = limits_of(x.dtype)
    low = np.array(limits.min, x.dtype) if low is None else low.reshape(())
    high = np.array(limits.max, x.dtype) if high is None else high.reshape(())
    return np.asarray(np.minimum(np.maximum(x, low), high), x.dtype)


class PRelu_1(OpRun):
    # Opsets 1 to 6 have one slope per channel or one for all; onnx.reference broadcasts the slope to the last axis.

    def _run(self, x: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, ...]:
        if slope.ndim == 1 and slope.size > 1 and x.ndim > 1:
            slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
        return (np.where(x < 0, x * slope, x).astype(x.dtype),)


class PRelu_7(OpRun):
    # onnx.reference multiplies 0 by the slope, which may be infinite. If a slope does not broadcast, it uses it as one
    # per channel, so the result depends on sizes; onnxruntime rejects such a slope.

    def _run(self, x: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.where(x < 0, x * np.broadcast_to(slope, x.shape), x).astype(x.dtype),)


class Gemm_1(OpRun):
    # onnx.reference starts at opset 6, where it refuses to broadcast a third operand unless `broadcast` is set.

    def _run(
        self,
        a: np.ndarray,
        b: np.ndarray,
        c: np.ndarray,
        alpha: float = 1.0,
        beta: float = 1.0,
        broadcast: int = 0,
        transA: int = 0,
        transB: int = 0,
    ) -> tuple[np.ndarray, ...]:
        del broadcast  # it allows exactly NumPy's broadcasting
        return (_gemm(a, b, c, alpha, beta, transA, transB),)


class Gemm_7(OpRun):
    # onnx.reference multiplies integers by a float alpha, which rounds numbers that float64 cannot hold.

    def _run(
        self,
        a: np.ndarray,
        b: np.ndarray,
        c: np.ndarray | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        transA: int = 0,
        transB: int = 0,
    ) -> tuple[np.ndarray, ...]:
        return (_gemm(a, b, c, alpha, beta, transA, transB),)


class MatMul(OpRun):
    # See `_product`.

    def _run(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.asarray(_product(a, b), a.dtype),)


def _product(a: np.ndarray, b: np.ndarray) -> Any:
    """The matrix product. NumPy's BLAS may skip factors of 0 and so lose NaN * 0."""
    result = np.matmul(a, b)  # always computed: it rejects shapes that einsum would broadcast
    if a.dtype.itemsize < 4 or a.dtype.kind != "f" or (np.isfinite(a).all() and np.isfinite(b).all()):
        return result
    wide_a, wide_b = a if a.ndim > 1 else a[None], b if b.ndim > 1 else b[:, None]
    result = np.einsum("...ij,...jk->...ik", wide_a, wide_b)
    missing = (*((-2,) if a.ndim == 1 else ()), *((-1,) if b.ndim == 1 else ()))
    return np.squeeze(result, missing)


class ReduceMax_1(UpstreamReduceMax_1):
    # In onnx.reference, the largest of no booleans is -inf as a boolean, which is true. Found by comparing with the CPU
    # device.

    def _run(self, x: np.ndarray, axes: Sequence[int] | None = None, keepdims: int = 1) -> tuple[np.ndarray, ...]:
        if x.dtype == np.bool_:
            return (np.asarray(x.any(axis=tuple(axes) if axes else None, keepdims=bool(keepdims))),)
        result: tuple[np.ndarray, ...] = super()._run(x, axes, keepdims)  # type: ignore[no-untyped-call]
        return result


def _gemm(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None, alpha: float, beta: float, trans_a: int, trans_b: int
) -> np.ndarray:
    factors: tuple[Any, Any] = (alpha, beta)
    if a.dtype.kind in "iu" and alpha == int(alpha) and beta == int(beta):
        factors = (np.array(int(alpha)).astype(a.dtype), np.array(int(beta)).astype(a.dtype))
    result = factors[0] * _product(a.T if trans_a else a, b.T if trans_b else b)
    if c is not None and beta != 0:  # C is not read if beta is 0
        result = result + factors[1] * c
    return np.asarray(result, a.dtype)


class Softsign(OpRun):
    # onnx.reference writes into a NumPy scalar and so fails for 0-d input. Compared with onnxruntime.

    def _run(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.asarray(x / (1 + np.abs(x)), x.dtype),)


class Mean(OpRun):
    # onnx.reference adds into the first operand and fails if another operand broadcasts it to a larger shape.

    def _run(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        total = operands[0]
        for operand in operands[1:]:
            total = total + operand
        return (np.asarray(total / len(operands)).astype(operands[0].dtype),)


def _old_reduction(name: str, compute: Callable[..., Any]) -> type[OpRun]:
    # See `_new_reduction`; here the axes are an attribute.
    class Reduction(OpRun):
        def _run(self, x: np.ndarray, axes: Sequence[int] | None = None, keepdims: int = 1) -> tuple[np.ndarray]:
            return (_reduce(compute, x, tuple(axes) if axes else None, keepdims),)

    Reduction.__name__ = Reduction.__qualname__ = f"{name}Until17"
    return Reduction


def _new_reduction(name: str, compute: Callable[..., Any]) -> type[OpRun]:
    # In onnx.reference, ReduceLogSum and ReduceLogSumExp fail for integers (the logarithm is written into an integer
    # array) and for 0-d input; ReduceSumSquare returns int64 for int32. All add half precision in half precision, which
    # may lose a tenth of a sum. Compared with onnxruntime over dtypes, and with the CPU device.
    class Reduction(OpRun):
        def _run(
            self, x: np.ndarray, axes: np.ndarray | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0
        ) -> tuple[np.ndarray]:
            has_axes = axes is not None and axes.size
            if not has_axes and noop_with_empty_axes:
                return (_reduce(compute, x, (), 1),)
            return (_reduce(compute, x, tuple(map(int, axes)) if has_axes and axes is not None else None, keepdims),)

    Reduction.__name__ = Reduction.__qualname__ = f"{name}Since18"
    return Reduction


def _reduce(compute: Callable[..., Any], x: np.ndarray, axes: tuple[int, ...] | None, keepdims: int) -> np.ndarray:
    exact = x.dtype.kind in "iu"
    wide = x if exact else x.astype(np.result_type(x.dtype, np.float32))
    return np.asarray(compute(wide, axes, bool(keepdims))).astype(x.dtype)


def _log_sum(x: np.ndarray, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    return np.log(x.sum(axis=axes, keepdims=keepdims))


def _log_sum_exp(x: np.ndarray, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    wide = x.astype(np.result_type(x.dtype, np.float32))
    if x.size == 0:
        return np.log(np.exp(wide).sum(axis=axes, keepdims=keepdims))
    largest = wide.max(axis=axes, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0)
    total = np.log(np.exp(wide - largest).sum(axis=axes, keepdims=True)) + largest
    if keepdims:
        return total
    return np.squeeze(total, axis=axes)


def _sum_square(x: np.ndarray, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    return np.square(x).sum(axis=axes, keepdims=keepdims)


def _norm_1(x: np.ndarray, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    return np.abs(x).sum(axis=axes, keepdims=keepdims)


def _norm_2(x: np.ndarray, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    return np.sqrt(_sum_square(x, axes, keepdims))


def _sum(x: np.ndarray, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    return x.sum(axis=axes, keepdims=keepdims)


def _product_of(x: np.ndarray, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    return x.prod(axis=axes, keepdims=keepdims)


_REDUCTIONS = (
    ("ReduceL1", _norm_1),
    ("ReduceL2", _norm_2),
    ("ReduceLogSum", _log_sum),
    ("ReduceLogSumExp", _log_sum_exp),
    ("ReduceProd", _product_of),
    ("ReduceSumSquare", _sum_square),
)
_BROADCASTS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("Add", np.add),
    ("Sub", np.subtract),
    ("Mul", np.multiply),
    ("Div", _quotient),
    ("Pow", _power),
    ("And", np.logical_and),
    ("Or", np.logical_or),
    ("Xor", np.logical_xor),
    ("Equal", np.equal),
    ("Less", np.less),
    ("Greater", np.greater),
)

CORRECTIONS: Corrections = (
    *(("", name, 1, 6, _limited(name, compute)) for name, compute in _BROADCASTS),
    *(("", name, 1, 17, _old_reduction(name, compute)) for name, compute in _REDUCTIONS),
    *(("", name, 18, None, _new_reduction(name, compute)) for name, compute in _REDUCTIONS),
    ("", "ReduceSum", 1, 12, _old_reduction("ReduceSum", _sum)),
    ("", "ReduceSum", 13, None, _new_reduction("ReduceSum", _sum)),
    ("", "CumSum", 11, None, widening("CumSum")),
    ("", "Clip", 1, 10, Clip_1),
    ("", "Clip", 11, None, Clip_11),
    ("", "Div", 7, None, Div),
    ("", "Mod", 10, None, Mod),
    ("", "Pow", 7, None, Pow),
    ("", "ReduceMax", 1, 17, ReduceMax_1),
    ("", "ReduceMean", 1, 17, ReduceMean_1),
    ("", "ReduceMean", 18, None, ReduceMean_18),
    ("", "PRelu", 1, 6, PRelu_1),
    ("", "PRelu", 7, None, PRelu_7),
    ("", "Gemm", 1, 6, Gemm_1),
    ("", "Gemm", 7, None, Gemm_7),
    ("", "Softsign", 1, None, Softsign),
    ("", "Mean", 8, None, Mean),
    ("", "MatMul", 1, None, MatMul),
)
