"""A strided copy of a strided copy is one strided copy: a Slice of a Slice, a Transpose that undoes another. Strides
through copies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ..values import Call
from .graph import CallGraph

__all__ = ["compose", "dense_steps", "join_copies", "steps_through"]


def join_copies(graph: CallGraph) -> None:
    """Let each copy of a copy read from the source of the first copy, which is removed if no other call reads it.

    Conditions: one call writes the whole source of the second copy; each axis of the second view moves along one axis
    of the first result and stays inside it (`compose`); the second copy does not repeat elements, because repeating is
    faster from adjacent elements."""
    for position, call in graph:
        if call.kernel != "copy_strided":
            continue
        (value,) = call.inputs
        assert value is not None, "a copy of known data was computed during planning"
        maker = graph.maker(value)
        before = None if maker is None else graph.call(maker)
        if maker is None or before is None or before.kernel != "copy_strided" or call.outputs[0].size > value.size:
            continue
        ints = compose(before.ints, call.ints)
        if ints is None:
            continue
        graph.replace(position, dataclasses.replace(call, inputs=before.inputs, ints=ints))
        if graph.is_unread(value, -1):
            graph.remove(maker)


def compose(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...] | None:
    """The parameters of copy_strided (offset, rank, counts, steps) that do what ``first`` and then ``second`` do; None
    if no single view does."""
    counts, steps = first[2 : 2 + first[1]], first[2 + first[1] :]
    dense = [1] * len(counts)
    for axis in range(len(counts) - 1, 0, -1):
        dense[axis - 1] = dense[axis] * counts[axis]
    if 0 in counts:
        return None
    begin = [second[0] // step % count for step, count in zip(dense, counts, strict=True)]
    low, high = list(begin), list(begin)  # the indices that the second view reads along each axis of the first result
    composed = []
    for count, step in zip(second[2 : 2 + second[1]], second[2 + second[1] :], strict=True):
        if count < 2 or step == 0:
            composed.append(0)
            continue
        # The axis it moves along: the outermost of those whose dense step divides its step.
        axes = [axis for axis, size in enumerate(counts) if size > 1 and step % dense[axis] == 0]
        if not axes:
            return None
        along = axes[0]
        times = step // dense[along]
        composed.append(times * steps[along])
        reach = times * (count - 1)
        low[along], high[along] = low[along] + min(reach, 0), high[along] + max(reach, 0)
    if any(start < 0 or stop >= count for start, stop, count in zip(low, high, counts, strict=True)):
        return None  # it crosses from one row into the next
    offset = first[0] + sum(at * step for at, step in zip(begin, steps, strict=True))
    return (offset, second[1], *second[2 : 2 + second[1]], *composed)


def steps_through(copy: Call, shape: tuple[int, ...], strides: Sequence[int]) -> list[int] | None:
    """Translate strides over the result of a copy to strides over its source.

    None unless each axis (``shape``, ``strides``) longer than 1 is one axis of the copy, of the same size and with a
    step of 0 or more."""
    rank = copy.ints[1]
    counts, steps = copy.ints[2 : 2 + rank], copy.ints[2 + rank :]
    place = {step: axis for axis, step in enumerate(dense_steps(counts)) if counts[axis] > 1}
    source_steps = []
    for size, stride in zip(shape, strides, strict=True):
        axis = place.get(stride, -1)
        if size == 1 or stride == 0:
            source_steps.append(0 if size > 1 else 1)
        elif axis < 0 or counts[axis] != size or steps[axis] < 0:
            return None
        else:
            source_steps.append(steps[axis])
    return source_steps


def dense_steps(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
