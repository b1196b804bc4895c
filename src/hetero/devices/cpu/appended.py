"""States that grow in place: a program writes the new rows of a cache behind the old ones, instead of copying all.

A decoder's step computes ``present = Concat(past, new)`` along the axis of tokens. If ``past`` is a state that becomes
``present`` after the step, both can lie in one *room*: memory whose axis of tokens is longer than the state. The old
rows are there already, so the program only writes the new ones (kernel `append`).

Conditions for a plan (`append_in_place`):

- The plan is one segment, and ``past`` is one of its inputs. The Concat has two operands, the first is ``past``, and no
  other call reads ``past``.
- The result of the Concat is an output of the plan as it is. Every other call that reads it does so by strides over
  whole blocks of tokens: a product that reads it as its right operand, or a strided copy.

Such a program has the whole room as its output, and reads of ``past`` only the shape.

Conditions for a run (`_workspace.claim`): rows behind the state's own are unused. A room counts the rows in use, and
this number only grows, so rows that a state holds are never written again: forks, snapshots and earlier states keep
their values. If another inference has used the rows behind a state, also one that failed, or if the room is full, the
state is copied into a new room.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from ..._sizes import are_same
from .fusion.views import dense_steps
from .values import Call, Value

__all__ = ["Append", "Appended", "append_in_place"]

ROWS = 256
"""A room has a multiple of so many rows, so every `ROWS` steps the state is copied. A step reads the whole state, so
these copies add less than 1 % to its time, for any length."""


class Append(NamedTuple):
    """A state in a segment: input number ``past`` and output number ``present`` of its program, the axis of tokens, and
    the tensor of the program that has the shape of the new rows."""

    past: int
    present: int
    axis: int
    new: int


@dataclasses.dataclass(frozen=True, slots=True)
class Appended:
    """A state in a plan: the Concat's axis, the rows that it appends, and the memory that replaces its result."""

    axis: int
    new: Value
    room: Value


def append_in_place(calls: Sequence[Call], past: Value, present: Value) -> tuple[list[Call], Appended] | None:
    """The calls without the Concat of ``past`` and new rows; None if they do not meet the conditions above.

    ``past``: an input of the program, but not one of its outputs. ``present``: an output."""
    readers = [call for call in calls for value in call.inputs if value is not None and value.storage == past.storage]
    makers = [call for call in calls for value in call.outputs if value.storage == present.storage]
    if len(readers) != 1 or len(makers) != 1 or readers[0] is not makers[0] or past.storage < 0:
        return None
    (concat,) = makers
    if concat.kernel != "concat" or len(concat.inputs) != 2 or not _is_like(concat.outputs[0], present):
        return None
    old, new = concat.inputs
    if old is None or new is None or not _is_like(old, past) or new.storage == past.storage:
        return None
    axis = concat.ints[0]
    length = -(-present.shape[axis] // ROWS) * ROWS
    room = Value(present.dtype, (*present.shape[:axis], length, *present.shape[axis + 1 :]), None, present.storage)
    changed: list[Call] = []
    for call in calls:
        if call is concat:
            changed.append(dataclasses.replace(call, kernel="append", inputs=(new,), outputs=(room,),
                                               ints=(axis, past.shape[axis])))  # fmt: skip
            continue
        if any(value is not None and value.storage == present.storage for value in call.inputs):
            reader = _over_room(call, present, room, axis)
            if reader is None:
                return None
            call = reader
        changed.append(call)
    return changed, Appended(axis, new, room)


def _is_like(value: Value, other: Value) -> bool:
    """Whether two values are the same memory in the same shape."""
    return (
        value.data is None
        and value.storage == other.storage
        and value.dtype == other.dtype
        and value.rank == other.rank
        and all(map(are_same, value.shape, other.shape))
    )


def _over_room(call: Call, present: Value, room: Value, axis: int) -> Call | None:
    """A call that reads ``present`` as one that reads ``room``; None if it cannot."""
    own = [value is not None and value.storage == present.storage for value in call.inputs]
    block, steps = math.prod(present.shape[axis:]), dense_steps(present.shape)
    outer = dict(zip(range(axis), zip(steps, dense_steps(room.shape), strict=False), strict=False))

    def moved(step: int) -> int | None:
        """A step over whole blocks, which stays right in the room whatever axes it stands for."""
        return next((to for of, to in outer.values() if are_same(step, of)), 0 if are_same(step, 0) else None)

    if call.kernel == "copy_strided":
        rank = call.ints[1]
        if not are_same(call.ints[0], 0):
            return None
        changed: list[int] = []
        for count, step in zip(call.ints[2 : 2 + rank], call.ints[2 + rank :], strict=True):
            if are_same(count, 1) or are_same(step, 0):
                changed.append(0)
                continue
            along = [at for at, of in enumerate(steps) if are_same(step, of) and are_same(count, present.shape[at])]
            if not along:
                return None
            changed.append(outer[along[0]][1] if along[0] in outer else step)
        return dataclasses.replace(call, inputs=(room,), ints=(*call.ints[: 2 + rank], *changed))
    if call.kernel == "matmul" and own[1] and sum(own) == 1 and len(call.inputs) < 5 and not call.ints[5]:
        rank = call.ints[9]
        if not are_same(call.ints[1] * call.ints[2], block):
            return None
        batch = [moved(step) for step in call.ints[10 + 2 * rank :]]
        if None in batch:
            return None
        inputs = (call.inputs[0], room, *call.inputs[2:])
        return dataclasses.replace(call, inputs=inputs, ints=(*call.ints[: 10 + 2 * rank], *batch))  # type: ignore[arg-type]
    return None
