"""Lets a product read its transposed right operand where it lies, without a copy that transposes or scales it.

A decoder transposes all keys of its cache in each step, and often multiplies them by a number (`attention` replaces
products of many rows only).

Conditions: the right operand is a `copy_strided` that only this product reads; its source has each matrix as dense rows
of the other orientation, so it starts at offset 0, rows have a step of 1 and columns a step of k, the length of a sum;
each batch stride of the product is the step of one batch axis. Calls that scale the operand by known numbers, before or
after it is transposed, become a factor of the product if nothing else reads their results and the product of the
numbers and of the product's own factor is moderate (`matching.LARGEST_FACTOR`). The same result up to rounding: the
kernel may add in another order, and multiplies the sums."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..values import Value
from .graph import CallGraph
from .matching import is_moderate, scaled
from .views import dense_steps, steps_through

__all__ = ["absorb_transposes"]


def absorb_transposes(graph: CallGraph) -> None:
    for position, call in graph:
        # Neither transposed nor packed already.
        if call.kernel != "matmul" or call.ints[4] or call.ints[5]:
            continue
        right = call.inputs[1]
        if right is None or right.rank < 2:
            continue
        turned, factor, absorbed = _unscaled(graph, right, call.floats[0])
        maker = graph.maker(turned) if graph.is_private(turned, 1) else None
        if maker is None:
            continue
        copy = graph.call(maker)
        if copy.kernel != "copy_strided" or copy.ints[0] != 0 or copy.outputs[0].size != right.size:
            continue
        columns, k = call.ints[1:3]
        steps = steps_through(copy, right.shape, dense_steps(right.shape))
        if right.shape[-2:] != (k, columns) or steps is None:
            continue
        if (k != 1 and steps[-2] != 1) or (columns != 1 and steps[-1] != k):
            continue
        batch = _batch_steps(call.ints, right.shape[:-2], steps[:-2])
        source = copy.inputs[0]
        if batch is None or source is None:
            continue
        source, factor, more = _unscaled(graph, source, factor)
        ints = (*call.ints[:4], 1, *call.ints[5 : len(call.ints) - len(batch)], *batch)
        inputs = (call.inputs[0], source, *call.inputs[2:])
        graph.replace(position, dataclasses.replace(call, inputs=inputs, ints=ints, floats=(factor, *call.floats[1:])))
        for at in (*absorbed, maker, *more):
            graph.remove(at)


def _unscaled(graph: CallGraph, value: Value, factor: float) -> tuple[Value, float, list[int]]:
    """A value, times ``factor``, as a value that no call scales, of the same shape, and its factor; and the positions
    of the calls that scale it."""
    absorbed: list[int] = []
    while value.dtype == np.float32 and graph.is_private(value, 1):
        position = graph.maker(value)
        times = None if position is None else scaled(graph.call(position))
        if position is None or times is None or not is_moderate(factor * times[1]):
            break
        source, number = times
        value, factor = Value(source.dtype, value.shape, None, source.storage, source.shared), factor * number
        absorbed.append(position)
    return value, factor, absorbed


def _batch_steps(ints: tuple[int, ...], axes: tuple[int, ...], steps: list[int]) -> list[int] | None:
    """The batch strides of the right operand over the source of its copy. ``ints``: the product's. ``axes``, ``steps``:
    the sizes of the copy's batch axes and their steps over its source."""
    rank = ints[9]
    dims, strides = ints[10 : 10 + rank], ints[10 + 2 * rank : 10 + 3 * rank]
    dense = dense_steps((*axes, ints[1] * ints[2]))
    moved = []
    for size, stride in zip(dims, strides, strict=True):
        axis = next((i for i, count in enumerate(axes) if dense[i] == stride and count == size), None)
        if size == 1 or stride == 0:
            moved.append(0)
        elif axis is None:
            return None
        else:
            moved.append(steps[axis])
    return moved
