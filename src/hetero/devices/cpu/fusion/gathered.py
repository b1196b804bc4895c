"""Products with matrices that a Gather selects, such as the weights of experts, read them where they are.

Contract: the same products. The kernel gets the indices, and the Gather does not copy the matrices.

Conditions:

- The Gather selects along axis 0 of a constant float32 tensor of three axes, none of them empty.
- The product alone reads its result, in any shape with the same last two axes, or with both exchanged by one copy that
  the product alone reads.
- The result is the product's right operand, or its left operand if the right one is a vector that is not packed: the
  vector is then multiplied by the transposed matrices.
- The product transposes neither operand and has no epilogue yet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..operators.movement import strides_of
from ..operators.network import batch_steps, packed_b
from ..values import Call, Context, Value
from .graph import CallGraph

__all__ = ["multiply_in_place"]

_BATCH = 10  # where the batch's dims begin among the ints of `matmul`, in kernels/gemm.c


def multiply_in_place(graph: CallGraph, context: Context) -> None:
    for position, call in graph:
        if call.kernel != "matmul" or any(call.ints[3:9]) or any(value is not None for value in call.inputs[2:]):
            continue
        left, right = call.inputs[:2]
        assert left is not None
        assert right is not None
        m, n, k, count = call.ints[0], call.ints[1], call.ints[2], call.ints[_BATCH - 1]
        batch = call.ints[_BATCH : _BATCH + count]
        left_steps, right_steps = call.ints[_BATCH + count : _BATCH + 2 * count], call.ints[_BATCH + 2 * count :]
        made = _selected(graph, right, (k, n))
        steps: Sequence[int] = ()
        if made is not None:
            steps = batch_steps(right.shape[:-2], batch, 1) if count else ()
            a, a_steps, rows, columns = left, left_steps, m, n
        elif n == 1 and left.rank >= 2 and right.data is None:
            m = left.shape[-2]
            made = _selected(graph, left, (m, k), as_rows=True)
            if not count:  # the batch was folded into the rows, or there is none
                batch, right_steps = (math.prod(left.shape[:-2]),), (0,)
                steps = (1,)
            else:
                steps = batch_steps(left.shape[:-2], batch, 1)
            a, a_steps, rows, columns = right, right_steps, 1, m
        if made is None:
            continue
        data, indices, trans, positions = made
        packed = packed_b(context, data, data.shape[0], k, columns, trans)
        ints = (rows, columns, k, 0, 0, 1, 0, 0, 0, len(batch), *batch, *a_steps, *steps)
        for other in positions:
            graph.remove(other)
        graph.replace(position, call.changed(inputs=(a, packed, None, None, indices), ints=ints))


def _selected(
    graph: CallGraph, value: Value, matrix: tuple[int, int], as_rows: bool = False
) -> tuple[Value, Value, bool, list[int]] | None:
    """The constant tensor and the indices from which a Gather makes ``value``, matrices of this shape; whether they are
    to be transposed; and the positions of the calls that make it. ``as_rows``: for the left operand, whose rows become
    the columns of a right one."""
    at = graph.maker(value)
    if at is None or graph.only_reader(value) is None or value.rank < 2 or value.shape[-2:] != matrix:
        return None
    made, trans, positions = graph.call(at), as_rows, [at]
    if made.kernel == "copy_strided" and not as_rows:
        source = made.inputs[0]
        assert source is not None
        maker = graph.maker(source) if graph.only_reader(source) == at else None
        if maker is None or not _exchanges(made, source):
            return None
        made, trans, matrix = graph.call(maker), True, matrix[::-1]
        positions.append(maker)
    if made.kernel != "gather" or made.ints[0] != 0:
        return None
    data, indices = made.inputs[:2]
    assert data is not None
    assert indices is not None
    if data.data is None or not data.shared or data.dtype != np.float32 or data.rank != 3 or not data.size:
        return None
    return (data, indices, trans, positions) if data.shape[1:] == matrix else None


def _exchanges(copy: Call, source: Value) -> bool:
    """Whether a strided copy exchanges the last two axes of ``source``, which it reads in this shape."""
    if source.rank < 2:
        return False
    shape, steps = list(source.shape), list(strides_of(source.shape))
    shape[-2:], steps[-2:] = shape[:-3:-1], steps[:-3:-1]
    return list(copy.ints) == [0, source.rank, *shape, *steps]
