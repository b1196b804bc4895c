"""The properties of a DequantizeLinear or QuantizeLinear that are known before its node is lowered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..registry import NodePlan, find
from ..values import Context, Packed, Value

__all__ = ["MAX_SCALE", "MIN_SCALE", "Scheme", "is_plain", "lowered", "scheme_of", "table"]

MIN_SCALE, MAX_SCALE = 2.0**-64, 2.0**64
"""Scales with which products run in integers. Beyond them, float32 may overflow, or round subnormal numbers."""

_FLOAT = 1  # the attributes' number of float32


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Scheme:
    """A (De)QuantizeLinear between float32 and integers with known parameters. ``block``: 0 for none."""

    plan: NodePlan
    scale: Value
    zero: Value | None
    axis: int
    block: int

    @property
    def is_single(self) -> bool:
        """Whether the whole tensor has one scale."""
        return self.scale.size == 1

    def apply(self, context: Context, x: Value) -> Value:
        """The node's result. Results for constants are kept for all plans."""

        def make() -> Value:
            return self.plan.operator.lower(context, self.plan.node, [x, self.scale, self.zero])[0]

        if not x.shared:
            return make()
        node, zero = self.plan.node, ("", b"")
        if self.zero is not None:  # its type is that of integers that the node makes
            zero = (self.zero.dtype.name, _data(self.zero).tobytes())
        scheme = (_data(self.scale).tobytes(), *zero, self.axis, self.block, node.get("output_dtype", 0))
        return context.packed(x, (node.op_type, *scheme), make)

    def scales(self) -> NDArray[np.float64]:
        return _data(self.scale).reshape(-1).astype(np.float64)

    def zeros(self) -> NDArray[np.int64]:
        """The zero points: as many as scales, or one zero."""
        return np.zeros(1, np.int64) if self.zero is None else _data(self.zero).reshape(-1).astype(np.int64)

    def scales_are_moderate(self) -> bool:
        """Whether all scales are between `MIN_SCALE` and `MAX_SCALE`; false for NaN."""
        scales = self.scales()
        return bool(((scales >= MIN_SCALE) & (scales <= MAX_SCALE)).all())


def _data(value: Value) -> NDArray[np.generic]:
    assert value.data is not None, "parameters are constants"
    return value.data


def is_plain(plan: NodePlan) -> bool:
    """Whether the node is one of ONNX's operators with a kernel: no custom operator, function or control flow."""
    return plan.nested is None and find(plan.node.op_type, plan.node.opset) is plan.operator


def scheme_of(plan: NodePlan, constant: Callable[[int], Value | None]) -> Scheme | None:
    """The scheme of a DequantizeLinear or QuantizeLinear. None for other nodes, and unless scale and zero point are
    constants that fit each other, the scale is float32, and so is the other type."""
    if plan.node.op_type not in ("DequantizeLinear", "QuantizeLinear") or not is_plain(plan):
        return None
    attribute = "output_dtype" if plan.node.op_type == "DequantizeLinear" else "precision"
    if plan.node.get(attribute, 0) not in (0, _FLOAT) or len(plan.inputs) < 2 or -1 in plan.inputs[:2]:
        return None
    zero_id = plan.inputs[2] if len(plan.inputs) > 2 else -1
    scale, zero = constant(plan.inputs[1]), constant(zero_id) if zero_id >= 0 else None
    if scale is None or scale.dtype != np.float32 or scale.size == 0 or (zero_id >= 0 and zero is None):
        return None
    if zero is not None and zero.shape != scale.shape and not zero.size == scale.size == 1:
        return None
    return Scheme(plan, scale, zero, plan.node.get("axis", 1), plan.node.get("block_size", 0))


def lowered(context: Context, plan: NodePlan, inputs: Sequence[Value | None]) -> Sequence[Value]:
    """The results of a node that is now a part of another."""
    return plan.operator.lower(context, plan.node, inputs)


def table(dtype: np.dtype[Any], function: Callable[[Context, Value], Value]) -> NDArray[np.generic]:
    """The results of an elementwise function for all integers of a type of 8 or 16 bits, the smallest first."""
    limits = np.iinfo(dtype)
    everything = np.arange(limits.min, limits.max + 1, dtype=np.int64).astype(dtype)
    made = function(Context(Packed()), Value(everything.dtype, everything.shape, everything))
    return _data(made)
