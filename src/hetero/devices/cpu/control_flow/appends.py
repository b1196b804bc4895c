"""Rewrites carried values of a Loop to which the body only appends as scanned outputs.

If a body computes ``w = Concat(v, item)`` from a carried ``v`` and passes ``w`` on, every iteration has a longer ``v``,
so it is planned again and copies all of ``v``. Without that node, ``item`` is a scanned output, all iterations are
alike, and the items are joined once, after the last iteration.

Conditions: the Concat has two inputs and is the only reader of ``v`` in the body, which it reads once; nothing but the
body's output reads ``w``, once. Items must fit ``v`` in type and shape (`check_append`); otherwise the Loop fails, as
the Concat would.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....errors import InferenceError
from ..operators.movement import axis_of
from ..registry import Append

if TYPE_CHECKING:
    from ..registry import NestedGraph

__all__ = ["check_append", "joined", "without_appends"]


def without_appends(body: NestedGraph) -> tuple[NestedGraph, tuple[Append, ...]]:
    """A Loop's body without the carried values to which it only appends. The items follow its other outputs."""
    num_carried = len(body.inputs) - 2
    reads: dict[int, int] = {}
    makers: dict[int, int] = {}
    for position, plan in enumerate(body.nodes):
        for value in plan.inputs:
            reads[value] = reads.get(value, 0) + 1
        for value in plan.outputs:
            makers[value] = position
    for value in body.results:
        reads[value] = reads.get(value, 0) + 1
    appends, items, gone = [], [], set()
    for at in range(num_carried):
        value, result = body.inputs[2 + at], body.results[1 + at]
        maker = body.nodes[makers[result]] if result in makers else None
        if maker is None or maker.node.op_type != "Concat" or len(maker.inputs) != 2 or value not in maker.inputs:
            continue
        if reads[value] != 1 or reads[result] != 1:
            continue
        in_front = maker.inputs[1] == value
        appends.append(Append(at, maker.node.get("axis", 1), in_front))
        items.append(maker.inputs[0 if in_front else 1])
        gone.add(makers[result])
    if not appends:
        return body, ()
    appended = [(body.outputs[1 + append.carried][0], None) for append in appends]
    rest = body.without_carried([append.carried for append in appends])
    return dataclasses.replace(
        rest,
        nodes=[plan for position, plan in enumerate(body.nodes) if position not in gone],
        results=(*rest.results, *items),
        outputs=(*rest.outputs, *appended),
    ), tuple(appends)


def check_append(append: Append, initial: NDArray[Any], shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    """The axis along which an item of this type is appended. Raises `InferenceError` if it does not fit ``initial``."""
    axis, wanted = axis_of(append.axis, initial.ndim), initial.shape
    fits = len(shape) == initial.ndim and (*shape[:axis], *shape[axis + 1 :]) == (*wanted[:axis], *wanted[axis + 1 :])
    if not fits or dtype != initial.dtype:
        types = f"{initial.dtype}{list(initial.shape)}, {dtype}{list(shape)}"
        raise InferenceError(f"carried value {append.carried}: cannot join {types} along axis {axis}")
    return axis


def joined(append: Append, initial: NDArray[Any], pieces: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """``initial`` with the items of all iterations. ``pieces``: see `run._Items.pieces`."""
    if not pieces:
        return initial
    axis = axis_of(append.axis, initial.ndim)
    items = [_in_a_row(rows[::-1] if append.in_front else rows, axis) for rows in pieces]
    return np.concatenate([*reversed(items), initial] if append.in_front else [initial, *items], axis)


def _in_a_row(rows: NDArray[Any], axis: int) -> NDArray[Any]:
    """The rows of an array, joined along their ``axis``."""
    shape = list(rows.shape[1:])
    shape[axis] *= len(rows)
    return (np.moveaxis(rows, 0, axis) if axis else rows).reshape(shape)
