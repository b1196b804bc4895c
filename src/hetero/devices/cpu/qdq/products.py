"""Conv, MatMul and Gemm of quantized operands run in integers.

Contract: the sums are exact int32, and the result is round(sum * (x_scale * w_scale / y_scale)) + y_zero, in float32
(`requantize.h`). A bias of integers is part of the sum; a bias of floats, divided by y_scale, is added before rounding.
The float32 nodes round each operand, product and sum, so a result near the midpoint of two integers can differ by one.

A left operand of 16 bits is split into 256 * high + low. Each half gives exact int32 sums. They are scaled to float32
and added, and the remaining nodes up to QuantizeLinear run in float32. This is as accurate as float32 nodes, and the
weights take a quarter of the memory.

Conditions, those on types and shapes checked when the node is lowered:

- Both operands are int8 or uint8, or the right one constant int4 or uint4, and come from DequantizeLinear. The left
  one (the image) has one scale. The right one (the weights) has one scale, or one per column or output channel, and no
  blocks. If the left one is int16 or uint16, the right one is a constant of at least `_MIN_WEIGHTS` elements.
- Only a QuantizeLinear with one scale reads the result, which is not an output of the model. If the left operand has 8
  bits, so has the result of QuantizeLinear. Between the two may be Relu, or Clip with constant bounds: a table limits
  the integers. It changes nothing if the tool chose the range of the type accordingly. A MatMul needs no
  QuantizeLinear: its sums are scaled to float32.
- All scales are within `MIN_SCALE` and `MAX_SCALE`, and no factor of the sums is above `MAX_SCALE`: neither x_scale *
  w_scale nor that divided by y_scale. An infinite factor would make NaN of a sum of 0. x_scale * w_scale is a normal
  number of float32.
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

_MIN_FACTOR = float(np.finfo(np.float32).smallest_normal)
_MIN_WEIGHTS = 1 << 15
"""With fewer, two results of int32 cost more time and memory than weights in float32."""

_WORDS = (np.dtype(np.int16), np.dtype(np.uint16))
_MAX_BYTE = 255

_F32, _INT32, _BYTE = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.uint8)


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
        operands = self._operands(context, inputs)
        if operands is not None and operands.x.dtype in BYTES:
            made = self._integers(context, operands)
            if made is not None:
                return [made if self._limits is None else looked_up(context, made, self._limits)]
        made = None if operands is None else self._by_halves(context, operands)
        if made is None:
            made = self._floats(context, inputs)
        made = self._activated(context, made)
        return [made if self._target is None else self._target.apply(context, made)]

    def _floats(self, context: Context, inputs: Sequence[Value | None]) -> Value:
        operands = [
            x if x is None or source is None else source.apply(context, x)
            for x, source in zip(inputs, self._sources, strict=True)
        ]
        return lowered(context, self._plan, operands)[0]

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

    def _operands(self, context: Context, inputs: Sequence[Value | None]) -> _Operands | None:
        """The operands of sums of integers; None if a condition that all of these have in common does not hold."""
        x, w = inputs[0], inputs[1]
        left, right = self._sources[0], self._sources[1]
        assert x is not None
        assert w is not None
        assert left is not None
        assert right is not None
        if w.dtype.name in ("int4", "uint4") and w.data is not None:
            stored = w
            w = context.packed(w, "bytes", lambda: _in_bytes(context, stored))
            right = dataclasses.replace(right, zero=None if right.zero is None else _in_bytes(context, right.zero))
        if w.dtype not in BYTES or x.size == 0 or w.size == 0:
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
        if not right.is_single and (
            right.block or right.scale.rank != 1 or axis_of(right.axis, w.rank) != axis or right.scale.size != outputs
        ):
            return None
        if not left.is_single or not left.scales_are_moderate() or not right.scales_are_moderate():
            return None
        for operand, scheme in ((x, left), (w, right)):
            if scheme.zero is not None and scheme.zero.dtype != operand.dtype:
                return None
        factors = left.scales() * right.scales()
        if factors.max() > MAX_SCALE or factors.min() < _MIN_FACTOR:
            return None
        bias = inputs[2] if len(inputs) > 2 else None
        # Only a Gemm broadcasts a bias of another shape than a vector.
        if bias is not None and (
            bias.size != outputs or not (bias.rank == 1 or (kind == "Gemm" and bias.shape == (1, outputs)))
        ):
            return None
        return _Operands(x, w, bias, left, right, outputs, depth, factors)

    def _integers(self, context: Context, o: _Operands) -> Value | None:
        """The product of bytes in integers; None if a condition does not hold."""
        target, bias = self._target, o.bias
        requantization = None
        if target is not None:
            made = _result_type(target)
            if made not in BYTES or not target.is_single or not target.scales_are_moderate():
                return None
            quotients = o.factors / target.scales()
            if quotients.max() > MAX_SCALE:
                return None
            zero = context.constant(np.array(int(target.zeros()[0]), made))
            requantization = _Requantization(_factor(context, quotients), zero)
        largest = o.depth * _largest(o.x.dtype, o.left) * _largest(o.w.dtype, o.right)
        if bias is not None:
            scheme = self._sources[2]
            if scheme is None:
                offset = None if target is None else _offset(bias, target)
                if offset is None:
                    return None
                bias = context.constant(offset)
            else:
                size = _bias_limit(bias, scheme, o.factors)
                if size is None:
                    return None
                largest = largest + size
                bias = context.reshaped(bias, (o.outputs,))
        if not largest < 2**31:
            return None
        product = self._sums(context, o, o.x, _scalar(context, o.left.zero), bias, requantization)
        if target is not None:
            return product
        return binary(context, "mul", cast(context, product, _F32), _factor(context, o.factors))

    def _by_halves(self, context: Context, o: _Operands) -> Value | None:
        """The product of a 16-bit x in float32, from the exact sums of its high and of its low bytes."""
        largest = o.depth * _MAX_BYTE * _largest(o.w.dtype, o.right)
        if o.x.dtype not in _WORDS or o.w.data is None or o.w.size < _MIN_WEIGHTS or not largest < 2**31:
            return None
        halves = context.call_many("split_bytes", [o.x], [(o.x.shape, _BYTE)] * 2)
        zero = int(o.left.zeros()[0]) - np.iinfo(o.x.dtype).min
        columns = (o.outputs, *(1,) * (o.w.rank - 2)) if self._plan.node.op_type == "Conv" else (o.outputs,)
        numbers = []
        for half, part, weight in zip(halves, divmod(zero, 256), (256, 1), strict=True):
            sums = cast(context, self._sums(context, o, half, context.scalar(part, _BYTE), None, None), _F32)
            factor = _factor(context, weight * o.factors)
            factor = factor if factor.size == 1 else context.reshaped(factor, columns)
            numbers.append(binary(context, "mul", sums, factor))
        made = binary(context, "add", numbers[0], numbers[1])
        if o.bias is None:
            return made
        bias = o.bias if self._sources[2] is None else self._sources[2].apply(context, o.bias)
        return binary(context, "add", made, context.reshaped(bias, columns))

    def _sums(
        self,
        context: Context,
        o: _Operands,
        x: Value,
        x_zero: Value | None,
        bias: Value | None,
        requantization: _Requantization | None,
    ) -> Value:
        """The product of ``x`` and the weights: int32, or bytes with ``requantization``."""
        node, w = self._plan.node, o.w
        w_zero = _scalar(context, o.right.zero) if o.right.is_single else o.right.zero
        if node.op_type == "Conv":
            return _integer_convolution(context, node, x, w, x_zero, w_zero, bias, requantization)
        if node.op_type == "Gemm":
            if node.get("transA", 0):
                x = transposed(context, x, (1, 0))
            if node.get("transB", 0):
                w = context.packed(o.w, "transposed", lambda: transposed(context, o.w, (1, 0)))
        return _integer_product(context, x, w, x_zero, w_zero, requantization, bias)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Operands:
    """``outputs``: columns or output channels. ``depth``: products in each sum. ``factors``: what the sums are scaled
    by, one or one for each output."""

    x: Value
    w: Value
    bias: Value | None
    left: Scheme
    right: Scheme
    outputs: int
    depth: int
    factors: NDArray[np.float64]


def _factor(context: Context, factors: NDArray[np.float64]) -> Value:
    made = factors.astype(np.float32)
    return context.constant(made if made.size > 1 else made.reshape(()))


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
