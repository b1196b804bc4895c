"""Conv, MatMul and Gemm of quantized operands run in integers.

Contract: the sums are exact int32, and the result is round(sum * (x_scale * w_scale / y_scale)) + y_zero, in float32
(`requantize.h`). A bias of integers is part of the sum; a bias of floats, divided by y_scale, is added before rounding.
The float32 nodes round each operand, product and sum, so a result near the midpoint of two integers can differ by one.

Conditions, those on types and shapes checked when the node is lowered:

- Both operands are int8 or uint8, or the right one constant int4 or uint4, and come from DequantizeLinear. The left
  one (the image) has one scale. The right one (the weights) has one scale, or one per column or output channel, and no
  blocks.
- The only reader of the result is a QuantizeLinear with one scale, to int8 or uint8, and the result is no output of the
  model. Between the two may be Relu, or Clip with constant bounds: a table limits the integers. It changes nothing if
  the tool chose the range of the type accordingly. A MatMul needs no QuantizeLinear: its sums are scaled to float32.
- All scales are within `MIN_SCALE` and `MAX_SCALE`, and no factor of the sums is above `MAX_SCALE`: neither x_scale *
  w_scale nor that divided by y_scale. An infinite factor would make NaN of a sum of 0.
- A bias comes from DequantizeLinear of constant int32, without a zero point, with one scale or one per output. Its
  scale is the product of the other two, within a relative `_BIAS_TOLERANCE`. Or it is a constant of float32 that is
  finite, also divided by y_scale. It has one number per column or channel.
- No sum can overflow int32 (`_largest`, `_bias_limit`).
- Gemm: alpha and beta are 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....model.types import dtype_of
from ..operators.elementwise import binary, cast
from ..operators.movement import axis_of, transposed
from ..operators.quantized import _in_bytes, _integer_convolution, _integer_product, _Requantization
from ..registry import Node, NodePlan
from ..values import Context, Value
from .schemes import MAX_SCALE, Scheme, lowered
from .tables import BYTES, Transfer, looked_up

__all__ = ["Product", "may_lack_target"]

_BIAS_TOLERANCE = 1e-6
"""Relative, on the scale of a bias: several units in the last place of float32, in which tools compute the product."""

_F32 = np.dtype(np.float32)
_INT32 = np.dtype(np.int32)


def may_lack_target(plan: NodePlan) -> bool:
    return plan.node.op_type == "MatMul"


class Product:
    """The lowering of ``plan``. ``sources``: the schemes of its operands, None for a bias that is absent or a constant
    of floats. ``activations``: the nodes between it and ``target``, of one variable operand each, which ``constant``
    completes. ``target``: None for a result in float32."""

    def __init__(
        self,
        plan: NodePlan,
        sources: Sequence[Scheme | None],
        activations: Sequence[NodePlan],
        target: Scheme | None,
        constant: Callable[[int], Value | None],
    ) -> None:
        self._plan = plan
        self._sources = sources
        self._activations = activations
        self._target = target
        self._constant = constant
        self._limits = Transfer(self._limited) if activations else None

    def lower(self, context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
        made = self._integers(context, inputs)
        if made is None:
            return [self._floats(context, inputs)]
        return [made if self._limits is None else looked_up(context, made, self._limits)]

    def _floats(self, context: Context, inputs: Sequence[Value | None]) -> Value:
        operands = [
            x if x is None or source is None else source.apply(context, x)
            for x, source in zip(inputs, self._sources, strict=True)
        ]
        (made,) = lowered(context, self._plan, operands)
        made = self._activated(context, made)
        return made if self._target is None else self._target.apply(context, made)

    def _activated(self, context: Context, x: Value) -> Value:
        for plan in self._activations:
            rest = [None if value < 0 else self._constant(value) for value in plan.inputs[1:]]
            (x,) = lowered(context, plan, [x, *rest])
        return x

    def _limited(self, context: Context, x: Value) -> Value:
        """The activations for integers of ``target``, whose own float32 numbers they limit. A limit between two of
        these is rounded as QuantizeLinear rounds it, because rounding never reverses the order of two numbers."""
        target = self._target
        assert target is not None
        numbers = context.call(
            "dequantize", [x, context.reshaped(target.scale, ()), _scalar(context, target.zero)], x.shape, _F32
        )
        return target.apply(context, self._activated(context, numbers))

    def _integers(self, context: Context, inputs: Sequence[Value | None]) -> Value | None:
        """The product in integers; None if a condition does not hold."""
        x, w = inputs[0], inputs[1]
        bias = inputs[2] if len(inputs) > 2 else None
        left, right = self._sources[0], self._sources[1]
        assert x is not None
        assert w is not None
        assert left is not None
        assert right is not None
        target = self._target
        if w.dtype.name in ("int4", "uint4") and w.data is not None:
            stored = w
            w = context.packed(w, "bytes", lambda: _in_bytes(context, stored))
            right = dataclasses.replace(right, zero=None if right.zero is None else _in_bytes(context, right.zero))
        if x.dtype not in BYTES or w.dtype not in BYTES or x.size == 0 or w.size == 0:
            return None
        if self._limits is not None:
            assert target is not None
            made = _result_type(target)
            if made not in BYTES:
                return None
        kind = self._plan.node.op_type
        get = self._plan.node.get
        if kind == "Conv":
            axis = 0
            if w.rank < 3 or x.rank != w.rank:
                return None
            depth, outputs = math.prod(w.shape[1:]), w.shape[0]
        else:
            if kind == "Gemm":
                if x.rank != 2 or w.rank != 2 or get("alpha", 1.0) != 1.0 or get("beta", 1.0) != 1.0:
                    return None
                axis = 0 if get("transB", 0) else 1
            else:
                axis = w.rank - 1
            if not x.rank or w.rank < 2:
                return None
            outputs = w.shape[axis]
            depth = w.shape[1 - axis] if kind == "Gemm" else w.shape[-2]
        scales = right.scales()
        if not right.is_single and (
            right.block or right.scale.rank != 1 or axis_of(right.axis, w.rank) != axis or right.scale.size != outputs
        ):
            return None
        if not left.is_single or not left.scales_are_moderate() or not right.scales_are_moderate():
            return None
        for operand, scheme in ((x, left), (w, right)):
            if scheme.zero is not None and scheme.zero.dtype != operand.dtype:
                return None
        sums = left.scales() * scales
        if sums.max() > MAX_SCALE:
            return None
        requantization = None
        if target is not None:
            made = _result_type(target)
            if made not in BYTES or not target.is_single or not target.scales_are_moderate():
                return None
            quotients = sums / target.scales()
            if quotients.max() > MAX_SCALE:
                return None
            multiplier = quotients.astype(np.float32)
            factors = context.constant(multiplier if multiplier.size > 1 else multiplier.reshape(()))
            zero = context.constant(np.array(int(target.zeros()[0]), made))
            requantization = _Requantization(factors, zero)
        largest = depth * _largest(x.dtype, left) * _largest(w.dtype, right)
        if bias is not None:
            # Only a Gemm broadcasts a bias of another shape than a vector.
            if bias.size != outputs or not (bias.rank == 1 or (kind == "Gemm" and bias.shape == (1, outputs))):
                return None
            if self._sources[2] is None:
                offset = None if target is None else _offset(bias, target)
                if offset is None:
                    return None
                bias = context.constant(offset)
            else:
                size = _bias_limit(bias, self._sources[2], sums)
                if size is None:
                    return None
                largest = largest + size
                bias = context.reshaped(bias, (outputs,))
        if not largest < 2**31:
            return None
        zeros = [None if s.zero is None else s.zero for s in (left, right)]
        zeros[0] = None if zeros[0] is None else context.reshaped(zeros[0], ())
        if right.is_single and zeros[1] is not None:
            zeros[1] = context.reshaped(zeros[1], ())
        if kind == "Conv":
            return _integer_convolution(context, self._plan.node, x, w, zeros[0], zeros[1], bias, requantization)
        if kind == "Gemm":
            if get("transA", 0):
                x = transposed(context, x, (1, 0))
            if get("transB", 0):
                stored = w
                w = context.packed(w, "transposed", lambda: transposed(context, stored, (1, 0)))
        product = _integer_product(context, x, w, zeros[0], zeros[1], requantization, bias)
        if requantization is not None:
            return product
        factors = context.constant(sums.astype(np.float32) if sums.size > 1 else sums.astype(np.float32).reshape(()))
        return binary(context, "mul", cast(context, product, _F32), factors)


def _scalar(context: Context, value: Value | None) -> Value | None:
    return None if value is None else context.reshaped(value, ())


def _result_type(target: Scheme) -> np.dtype[Any]:
    """The type that a QuantizeLinear returns."""
    if target.zero is not None:
        return target.zero.dtype
    return dtype_of(target.plan.node.get("output_dtype", 0) or 2) or np.dtype(np.uint8)


def _largest(dtype: np.dtype[Any], scheme: Scheme) -> int:
    """The largest magnitude of an integer of this type minus its zero point."""
    limits, zeros = np.iinfo(dtype), scheme.zeros()
    return int(max(limits.max - zeros.min(), zeros.max() - limits.min))


def _bias_limit(bias: Value, scheme: Scheme, sums: NDArray[np.float64]) -> int | None:
    """The largest magnitude in a bias of integers that can be added to the sums; None if it cannot be."""
    if bias.dtype != _INT32 or bias.data is None or scheme.zeros().any():
        return None
    scales = scheme.scales()
    if scales.size not in (1, bias.size) or scheme.block:
        return None
    if scales.size > 1 and (bias.rank != 1 or scheme.scale.rank != 1):
        return None
    if not (np.abs(scales - sums) <= _BIAS_TOLERANCE * sums).all():  # also rejects NaN
        return None
    return int(np.abs(bias.data.astype(np.int64)).max(initial=0))


def _offset(bias: Value, target: Scheme) -> NDArray[np.float32] | None:
    """A constant bias of floats in units of the result; None if it has another type or is not finite."""
    if bias.dtype != _F32 or bias.data is None:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        offset = (bias.data.reshape(-1) / target.scales()).astype(np.float32)
    return offset if np.isfinite(offset).all() else None
