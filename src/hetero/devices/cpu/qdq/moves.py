"""Operators that move or select elements run on the integers.

Contract: the bits of the float32 nodes. If the scales or zero points before and after the operator differ, a table
converts the integers (`tables.Transfer`).

Conditions:

- Each operand whose elements are moved (`_DATA`) comes from a DequantizeLinear with one scale, and the operator's only
  reader is one QuantizeLinear with one scale, for each of its results. No result is an output of the model.
- The integers have 8 bits. 16 bits need equal scales and zero points, that is, a table that changes nothing.
- MaxPool, ReduceMax and ReduceMin: the table does not decrease, and the scale is finite: 0 times an infinity is NaN,
  which has no place in the order of the integers. There are elements, and every window of a pool has
  some: pads are 0, or smaller than the kernel, which is then not dilated. MaxPool has no indices.
- Pad: opset 11 or later, and its value is a constant or absent. The value is quantized.
- Resize: mode nearest, without values outside of the image.
- Gather also without a QuantizeLinear if its data are a constant: an embedding stays in 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..registry import Node, NodePlan, dtype_trouble
from ..values import Context, Value
from .schemes import Scheme, lowered
from .tables import Transfer, looked_up

__all__ = ["Move", "data_of"]

_FIRST = (
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split", "Expand", "Tile",
    "Gather", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth", "Pad", "Resize",
)  # fmt: skip
_SELECTING = ("MaxPool", "ReduceMax", "ReduceMin")
_GROWING = ("Expand", "Tile", "Resize", "Pad", "Concat", "Where")  # the table comes before them
_DATA = dict.fromkeys((*_FIRST, *_SELECTING), (0,)) | {"Where": (1, 2)}


def data_of(plan: NodePlan) -> tuple[int, ...]:
    """The positions of the operands whose elements the node moves; none if it is not a move."""
    op = plan.node.op_type
    if op == "Concat":
        return tuple(range(len(plan.inputs)))
    if op == "Pad" and plan.node.opset < 11:
        return ()
    if op == "Resize" and (
        plan.node.get("mode", b"nearest") != b"nearest"
        or plan.node.get("coordinate_transformation_mode", b"") == b"tf_crop_and_resize"
    ):
        return ()
    if op == "MaxPool" and not _fills_windows(plan):
        return ()
    return _DATA.get(op, ())


def _fills_windows(plan: NodePlan) -> bool:
    if len(plan.outputs) > 1 and any(value >= 0 for value in plan.outputs[1:]):
        return False
    get = plan.node.get
    pads, kernel = get("pads", ()), get("kernel_shape", ())
    if not any(pads) and get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID"):
        return True
    rank = len(kernel)
    return all(d == 1 for d in get("dilations", ())) and all(pad < kernel[i % rank] for i, pad in enumerate(pads))


class Move:
    """The lowering of the operator ``plan``. ``sources``: by position, the schemes of the operands that are moved.
    ``targets``: per result; None for a result in float32."""

    def __init__(
        self,
        plan: NodePlan,
        sources: Mapping[int, Scheme],
        targets: Sequence[Scheme | None],
    ) -> None:
        self._plan = plan
        self._sources = sources
        self._targets = targets
        self._is_growing = plan.node.op_type in _GROWING
        self._transfers = {
            (position, number): Transfer(_pair(source, target))
            for position, source in sources.items()
            for number, target in enumerate(targets)
            if target is not None
        }

    def lower(self, context: Context, node: Node, inputs: Sequence[Value | None]) -> Sequence[Value]:
        return self._moved(context, inputs) if self._is_supported(inputs) else self._floats(context, inputs)

    def _is_supported(self, inputs: Sequence[Value | None]) -> bool:
        selects = self._plan.node.op_type in _SELECTING
        for position in self._sources:
            x = inputs[position]
            assert x is not None
            if x.dtype.kind not in "iu" or x.dtype.itemsize > 2 or (selects and 0 in x.shape):
                return False
            if selects and not np.isfinite(self._sources[position].scales()).all():
                return False
            for number in range(len(self._targets)):
                transfer = self._transfers.get((position, number))
                if transfer is None:
                    continue
                if not transfer.is_supported(x.dtype) or (selects and not transfer.is_monotone(x.dtype)):
                    return False
        return dtype_trouble(self._plan.operator, inputs) is None

    def _moved(self, context: Context, inputs: Sequence[Value | None]) -> list[Value]:
        operands = list(inputs)
        if self._is_growing:
            for position in self._sources:
                x = inputs[position]
                assert x is not None
                operands[position] = looked_up(context, x, self._transfers[position, 0])
            if self._plan.node.op_type == "Pad":
                operands = self._with_value(context, operands)
            return list(lowered(context, self._plan, operands))
        made = []
        (position,) = self._sources
        for number, result in enumerate(lowered(context, self._plan, operands)):
            if self._targets[number] is None:
                made.append(self._sources[position].apply(context, result))
            else:
                made.append(looked_up(context, result, self._transfers[position, number]))
        return made

    def _with_value(self, context: Context, operands: list[Value | None]) -> list[Value | None]:
        operands = operands + [None] * (3 - len(operands))
        value = operands[2] or context.scalar(0, np.dtype(np.float32))
        target = self._targets[0]
        assert target is not None
        operands[2] = target.apply(context, context.reshaped(value, ()))
        return operands

    def _floats(self, context: Context, inputs: Sequence[Value | None]) -> list[Value]:
        operands = list(inputs)
        for position, source in self._sources.items():
            x = inputs[position]
            assert x is not None
            operands[position] = source.apply(context, x)
        results = lowered(context, self._plan, operands)
        return [
            result if target is None else target.apply(context, result)
            for result, target in zip(results, self._targets, strict=True)
        ]


def _pair(source: Scheme, target: Scheme) -> Callable[[Context, Value], Value]:
    return lambda context, x: target.apply(context, source.apply(context, x))
