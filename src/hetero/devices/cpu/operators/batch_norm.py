"""Folds batch normalizations into the convolution before them, once per compiled model.

A `BatchNormalization` with known statistics that is the only reader of a `Conv` with known weights becomes a scale per
output channel of the weights, and a new bias; the node then returns its input. Packing multiplies the weights by the
scale, so no second copy of them is kept. Contract: the same results up to rounding.

Conditions:

- Weights, bias and statistics are known float32; the input is not known.
- Bias and statistics have one number per output channel.
- No other node, body of control flow or output of the model reads the convolution's result.
- The new bias is finite, and each channel's scale is at most `_LARGEST_SCALE` in magnitude.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Sequence

import numpy as np

from ..registry import NodePlan
from ..values import Value

__all__ = ["fold"]

_LARGEST_SCALE = 2.0**64
"""The largest scale of a channel. Its product with a weight below this magnitude does not overflow."""


def fold(
    nodes: Sequence[NodePlan], outputs: Collection[int], constant: Callable[[int], Value | None]
) -> tuple[dict[int, tuple[Value, Value]], frozenset[int]]:
    """({convolution: its new weights and bias}, normalizations that return their input), by node index.

    ``outputs``: ids of the model's outputs. ``constant``: returns the known value of an id, or None."""
    uses = collections.Counter(value for plan in nodes for value in plan.inputs)
    uses.update(outputs)
    maker = {plan.outputs[0]: i for i, plan in enumerate(nodes) if plan.node.op_type == "Conv" and plan.outputs}
    operands: dict[int, tuple[Value, Value]] = {}
    passing: set[int] = set()
    for i, plan in enumerate(nodes):
        if plan.node.op_type != "BatchNormalization" or len(plan.inputs) != 5:
            continue
        convolution = maker.get(plan.inputs[0])
        if convolution is None or uses[plan.inputs[0]] != 1:
            continue
        folded = _folded(nodes[convolution], plan, constant)
        if folded is not None:
            operands[convolution] = folded
            passing.add(i)
    return operands, frozenset(passing)


def _folded(
    convolution: NodePlan, normalization: NodePlan, constant: Callable[[int], Value | None]
) -> tuple[Value, Value] | None:
    weights = constant(convolution.inputs[1])
    has_bias = len(convolution.inputs) > 2 and convolution.inputs[2] >= 0
    bias = constant(convolution.inputs[2]) if has_bias else None
    statistics = [constant(value) for value in normalization.inputs[1:]]
    if weights is None or weights.data is None or (has_bias and bias is None) or constant(convolution.inputs[0]):
        return None
    channels = weights.shape[0] if weights.rank > 2 else -1
    arrays = [value.data for value in statistics if value is not None and value.data is not None]
    if len(arrays) != 4 or any(array.shape != (channels,) or array.dtype != np.float32 for array in arrays):
        return None
    if weights.dtype != np.float32 or (
        bias is not None and (bias.shape != (channels,) or bias.dtype != np.float32 or bias.data is None)
    ):
        return None
    gain, shift, mean, variance = (array.astype(np.float64) for array in arrays)
    with np.errstate(all="ignore"):
        scale = gain / np.sqrt(variance + normalization.node.get("epsilon", 1e-5))
        before = 0.0 if bias is None or bias.data is None else bias.data.astype(np.float64)
        after = ((before - mean) * scale + shift).astype(np.float32)
    if not (np.abs(scale) <= _LARGEST_SCALE).all() or not np.isfinite(after).all():
        return None  # the comparison also rejects NaN
    scaled = Value(weights.dtype, weights.shape, weights.data, shared=weights.shared, scale=scale.astype(np.float32))
    return scaled, Value(after.dtype, after.shape, after, shared=True)
