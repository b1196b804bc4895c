"""Lets a product read its transposed right operand where it lies, without a copy that transposes it.

A decoder transposes all keys of its cache in each step (`attention` replaces products of many rows only).

Conditions: the right operand is a `copy_strided` that only this product reads; its source has each matrix as dense rows
of the other orientation, so it starts at offset 0, rows have a step of 1 and columns a step of k, the length of a sum;
each batch stride of the product is the step of one batch axis. The same result up to rounding: the kernel may add in
another order."""

from __future__ import annotations

import dataclasses

from .graph import CallGraph
from .views import dense_steps, steps_through

__all__ = ["absorb_transposes"]


def absorb_transposes(graph: CallGraph) -> None:
    for position, call in graph:
        # Neither transposed nor packed already.
        if call.kernel != "matmul" or call.ints[4] or call.ints[5]:
            continue
        right = call.inputs[1]
        maker = None if right is None or right.rank < 2 else graph.maker(right)
        if right is None or maker is None or not graph.is_private(right, 1):
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
        if batch is None:
            continue
        ints = (*call.ints[:4], 1, *call.ints[5 : len(call.ints) - len(batch)], *batch)
        graph.replace(position, dataclasses.replace(call, inputs=(call.inputs[0], copy.inputs[0], *call.inputs[2:]),
                                                    ints=ints))  # fmt: skip
        graph.remove(maker)


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
