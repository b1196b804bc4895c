"""Replaces attention, written as two products and a softmax, by one call of the kernel `attention`.

The pattern, over the last axis of ``(*batch, m, n)``::

    scores  = scale * (Q K') + addend + addend         scale: products with or divisions by known numbers, applied to
    scores  = Where(mask, scores, number)              Q, to K or to Q K'; every step is optional
    weights = softmax(scores)
    weights = Where(mask, weights, number)             optional; the mask may be IsNaN(weights)
    result  = weights V

Contract: the same result up to rounding. Copies that transpose Q, K or V are not made: the kernel reads their source
through strides. It writes the result through strides if the result is only read by a transposing copy.

Conditions, besides those stated at each function:

- All operands are float32 and not empty.
- Scores and weights keep the shape ``(*batch, m, n)`` from the first product to the second: no operand of a step adds
  axes or elements by broadcasting.
- Each line that the softmax normalizes is one row of that shape.
- Each value between the products is read once, by the next step, and not after the segment.
- The total factors of Q, of K, of Q K', and of all three together are moderate: see `matching.LARGEST_FACTOR`.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from .... import _kernels
from ..values import Call, Value
from .graph import CallGraph
from .matching import is_moderate, scalar, scaled
from .views import dense_steps, steps_through

__all__ = ["recognize"]

MIN_ROWS = 24
"""Rows of Q. With fewer, packing K and V costs more than keeping the scores in the cache saves."""

_ISNAN = _kernels.constant("UNARY_ISNAN")
_DEPTH = 8  # largest number of calls from the first product, included, to the softmax
_MAX_DIM = _kernels.constant("ATTENTION_MAX_DIM")


@dataclasses.dataclass(slots=True)
class _Matrices:
    """An operand of a product as a strided view of ``value``, times ``factor``.

    ``offset``, ``row``, ``column``, ``batch``: the first element, and the strides of rows, columns and batch axes, in
    elements. ``passed``: positions of the calls that the view bypasses."""

    value: Value
    factor: float
    offset: int
    row: int
    column: int
    batch: list[int]
    passed: list[int]


@dataclasses.dataclass(slots=True)
class _Scores:
    """The input of a softmax: ``factor * product + addends``, but ``number`` where ``mask`` is ``chosen`` (0 or 1).

    ``calls``: positions of all calls from the product on."""

    product: Call
    calls: list[int]
    factor: float = 1.0
    addends: list[Value] = dataclasses.field(default_factory=list)
    mask: Value | None = None
    chosen: int = 0
    number: float = 0.0


@dataclasses.dataclass(slots=True)
class _After:
    """The left operand of the second product: a softmax, with ``number`` in some places.

    ``calls``: positions of the calls between them. ``mask``, ``chosen``, ``number``: as in `_Scores`; if ``chosen`` is
    2, the number replaces NaN and there is no mask."""

    value: Value
    calls: list[int]
    mask: Value | None = None
    chosen: int = 0
    number: float = 0.0


def recognize(graph: CallGraph) -> None:
    for position, call in graph:
        if call.kernel == "softmax" and call.outputs[0].dtype == np.float32 and _is_over_rows(call):
            _around_softmax(graph, position, call)


def _is_over_rows(softmax: Call) -> bool:
    """Whether this is Softmax, not LogSoftmax, over each row along the last axis.

    A stride of 1 is not enough: if there are axes of size 1, or axes flattened before opset 13, lines of other lengths
    are dense too. So the lines must have the length of the last axis."""
    shape = softmax.outputs[0].shape
    return bool(shape) and softmax.ints[1:] == (shape[-1], 1, 0)


def _around_softmax(graph: CallGraph, position: int, softmax: Call) -> None:
    scores, weights = softmax.inputs[0], softmax.outputs[0]
    if scores is None or scores.rank < 2 or scores.shape[-2] < MIN_ROWS or weights.shape != scores.shape:
        return
    after = _after(graph, weights)
    reader = None if after is None else graph.only_reader(after.value)
    before = _scores(graph, scores, scores.shape, _DEPTH)
    if after is None or reader is None or before is None:
        return
    last = graph.call(reader)
    if not _is_plain_product(last) or last.inputs[0] is None or last.inputs[0].shape != weights.shape:
        return
    if last.inputs[0].data is not None or last.inputs[0].storage != after.value.storage:
        return
    batch, (m, n) = scores.shape[:-2], scores.shape[-2:]
    d, e = before.product.ints[2], last.ints[1]
    if not _is_batch(before.product, batch, m) or not _is_batch(last, batch, m) or not min(m, n, d, e, *batch):
        return
    if before.product.ints[1] != n or last.ints[2] != n or max(m, n, d, e) > _MAX_DIM:
        return
    queries = _matrices(graph, before.product, 0, batch, False)
    keys, values = _matrices(graph, before.product, 1, batch, True), _matrices(graph, last, 1, batch, True)
    masks = _masks(before, after, scores.shape)
    if queries is None or keys is None or values is None or masks is None or values.factor != 1.0:
        return
    total_factor = before.factor * queries.factor * keys.factor
    if not is_moderate(total_factor):
        return
    keys.row, keys.column = keys.column, keys.row  # the product reads K transposed
    removed = [*before.calls, *after.calls, position, reader]
    made, out_row, out_batch = _result(graph, last.outputs[0], (*batch, m, e), removed)
    bias, addend, mask, mask_after = (steps for _, steps in masks)
    ints = [m, n, d, e, before.chosen, after.chosen]
    ints += [queries.row, queries.column, keys.row, keys.column, values.row, values.column, out_row]
    ints += [*bias[-2:], addend[-2], *mask[-2:], *mask_after[-2:]]
    ints += [queries.offset, keys.offset, values.offset]
    ints += [len(batch), *batch, *queries.batch, *keys.batch, *values.batch, *out_batch]
    ints += [*bias[:-2], *addend[:-2], *mask[:-2], *mask_after[:-2]]
    floats = (total_factor, before.number, after.number)
    inputs = (queries.value, keys.value, values.value, *(value for value, _ in masks))
    end = max(removed)
    for at in removed:
        if at != end:
            graph.remove(at)
    graph.replace(end, Call("attention", inputs, (made,), tuple(ints), floats, softmax.node, softmax.label))
    for at in (*queries.passed, *keys.passed, *values.passed):
        graph.remove_unread(at)


def _is_plain_product(call: Call) -> bool:
    """Whether a call is a float32 matmul of two operands that are neither transposed nor packed, without bias, addend,
    activation or factor."""
    if call.kernel != "matmul" or call.outputs[0].dtype != np.float32:
        return False
    return call.ints[3:9] == (0,) * 6 and call.inputs[2:] == (None, None) and call.floats[0] == 1.0


def _is_batch(product: Call, batch: tuple[int, ...], m: int) -> bool:
    """Whether the product has exactly these batch axes and ``m`` rows per matrix. A product whose batch was folded into
    its rows has a different number of rows, unless the batch has one matrix."""
    dims = product.ints[10 : 10 + product.ints[9]]
    return product.ints[0] == m and (dims == batch or (not dims and math.prod(batch) == 1))


def _private_maker(graph: CallGraph, value: Value) -> tuple[int, Call] | None:
    position = graph.maker(value) if graph.is_private(value, 1) else None
    if position is None or graph.call(position).outputs[0].shape != value.shape:
        return None
    return position, graph.call(position)


def _scores(graph: CallGraph, value: Value | None, shape: tuple[int, ...], depth: int) -> _Scores | None:
    """Walk back from ``value`` to the first product; None if the calls do not form the pattern.

    From the product on, their order is: factors, up to two addends, one Where. Each result has ``shape`` and one
    reader, so no call is visited twice."""
    if value is None or value.shape != shape or depth == 0:
        return None
    maker = _private_maker(graph, value)
    if maker is None:
        return None
    position, call = maker
    pattern: _Scores | None
    if _is_plain_product(call):
        return _Scores(call, [position])
    times = scaled(call)
    if times is not None:
        pattern = _scores(graph, times[0], shape, depth - 1)
        if pattern is None or pattern.addends or pattern.mask is not None:
            return None
        pattern.factor *= times[1]
        if not is_moderate(pattern.factor):
            return None
    elif call.kernel == "add":
        first, second = call.inputs
        pattern, other = _scores(graph, first, shape, depth - 1), second
        if pattern is None:
            pattern, other = _scores(graph, second, shape, depth - 1), first
        if pattern is None or other is None or len(pattern.addends) == 2 or pattern.mask is not None:
            return None
        pattern.addends.append(other)
    elif call.kernel == "where":
        chosen = _chosen(call)
        pattern = None if chosen is None else _scores(graph, chosen[0], shape, depth - 1)
        if chosen is None or pattern is None or pattern.mask is not None:
            return None
        _, pattern.mask, pattern.chosen, pattern.number = chosen
    else:
        return None
    pattern.calls.append(position)
    return pattern


def _matrices(graph: CallGraph, product: Call, which: int, batch: tuple[int, ...], packed: bool) -> _Matrices | None:
    """Operand number ``which`` of a product as a view that bypasses factors and transposing copies; None if its batch
    strides do not correspond to axes of the operand. ``packed``: the kernel packs it, so rows or columns must be dense.

    A factor is bypassed if the total factor stays moderate. A copy is bypassed if each axis of the operand longer than
    1 is one axis of the copy with the same size and a step of 0 or more, and if no copy bypassed before starts at an
    offset. A bypassed call stays in the program if other calls read its result."""
    value = product.inputs[which]
    if value is None or value.rank < 2 or value.dtype != np.float32:
        return None
    ndim = product.ints[9]
    steps = product.ints[10 + (1 + which) * ndim : 10 + (2 + which) * ndim] if ndim else (0,) * len(batch)
    dense = dense_steps(value.shape)
    strides, offset, factor = list(dense), 0, 1.0
    at, passed = value, list[int]()
    while at.data is None:
        position = graph.maker(at)
        call = None if position is None else graph.call(position)
        if position is None or call is None or call.outputs[0].size != at.size:
            break
        times = scaled(call)
        if times is not None:
            source, number = times
            if not is_moderate(factor * number):
                break
            at, factor = Value(source.dtype, at.shape, None, source.storage, source.shared), factor * number
        elif call.kernel == "copy_strided" and call.inputs[0] is not None and offset == 0:
            through = steps_through(call, value.shape, strides)
            if through is None or (packed and 1 not in through[-2:]):
                break
            at, strides, offset = call.inputs[0], through, call.ints[0]
        else:
            break
        passed.append(position)
    along = []
    for size, step in zip(batch, steps, strict=True):
        axis = next((i for i in range(value.rank - 2) if dense[i] == step and value.shape[i] == size), None)
        if size == 1 or step == 0:
            along.append(0)
        elif axis is None:
            return None
        else:
            along.append(strides[axis])
    return _Matrices(at, factor, offset, strides[-2], strides[-1], along, passed)


def _broadcast_steps(shape: tuple[int, ...], full: tuple[int, ...]) -> list[int] | None:
    """The stride along each axis of ``full``, 0 along broadcast axes; None if ``shape`` does not broadcast to it."""
    if len(shape) > len(full):
        return None
    padded = (1,) * (len(full) - len(shape)) + shape
    if any(size not in (1, full_size) for size, full_size in zip(padded, full, strict=True)):
        return None
    return [0 if size == 1 else step for size, step in zip(padded, dense_steps(padded), strict=True)]


Mask = tuple[Value | None, list[int]]
"""An optional operand that broadcasts to the scores, and its stride along each axis of the scores."""


def _masks(before: _Scores, after: _After, shape: tuple[int, ...]) -> list[Mask] | None:
    """The kernel's operands bias, addend, mask of the scores, mask of the weights; None if one does not broadcast.

    The columns of the kernel's bias may repeat; those of its addend must be dense."""
    absent: Mask = (None, [0] * len(shape))
    addends: list[Mask] = []
    for value in before.addends:
        steps = _broadcast_steps(value.shape, shape)
        if steps is None:
            return None
        addends.append((value, steps))
    addends.sort(key=lambda mask: mask[1][-1])
    if len(addends) == 2 and addends[1][1][-1] != 1:
        return None
    masks = [*addends, absent, absent][:2]
    for mask in (before.mask, after.mask):
        steps = None if mask is None else _broadcast_steps(mask.shape, shape)
        if mask is not None and steps is None:
            return None
        masks.append(absent if steps is None else (mask, steps))
    return masks


def _after(graph: CallGraph, weights: Value) -> _After | None:
    """Walk forward from the result of a softmax to the left operand of the second product.

    It is the softmax itself, or a Where of the softmax and a known number. Only this Where reads the softmax, once, or
    IsNaN and this Where read it, once each. Only this Where reads the result of IsNaN."""
    reader = graph.only_reader(weights)
    if reader is not None:
        call = graph.call(reader)
        if call.kernel != "where":
            return _After(weights, [])
        chosen = _chosen(call)
        if chosen is None or chosen[0].storage != weights.storage or chosen[0].shape != weights.shape:
            return None
        return _After(call.outputs[0], [reader], *chosen[1:])
    if not graph.is_private(weights, 2):
        return None
    first, second = sorted(graph.reader_positions(weights))
    test, call = graph.call(first), graph.call(second)
    if test.kernel != "unary" or test.ints[0] != _ISNAN or call.kernel != "where":
        return None
    chosen = _chosen(call)
    if chosen is None or graph.only_reader(test.outputs[0]) != second or chosen[0].shape != weights.shape:
        return None
    value, mask, when, number = chosen
    if value.storage != weights.storage or mask.storage != test.outputs[0].storage or when != 1:
        return None
    return _After(call.outputs[0], [first, second], None, 2, number)


def _chosen(where: Call) -> tuple[Value, Value, int, float] | None:
    """If a Where chooses between a value and a known number: the value, the condition, for which condition (0 or 1) the
    number is taken, and the number. None if both are known, or if the result has another shape than the value."""
    condition, yes, no = where.inputs
    numbers = scalar(yes), scalar(no)
    chosen = 0 if numbers[0] is None else 1
    value, number = (no, numbers[0]) if chosen else (yes, numbers[1])
    if condition is None or value is None or number is None or value.data is not None:
        return None
    return (value, condition, chosen, number) if value.shape == where.outputs[0].shape else None


def _result(graph: CallGraph, value: Value, shape: tuple[int, ...], removed: list[int]) -> tuple[Value, int, list[int]]:
    """The value to write the result to, and its strides of rows and batch axes.

    If the only reader is a strided copy that takes each element once, starts at offset 0 and keeps the columns dense,
    the result is written in that copy's layout, and the copy is added to ``removed``."""
    dense = dense_steps(shape)
    reader = graph.only_reader(value)
    copy = None if reader is None else graph.call(reader)
    if reader is not None and copy is not None and copy.kernel == "copy_strided" and copy.ints[0] == 0:
        rank = copy.ints[1]
        counts, steps = copy.ints[2 : 2 + rank], copy.ints[2 + rank :]
        to = dense_steps(counts)
        places = {
            step: (count, to[axis]) for axis, (count, step) in enumerate(zip(counts, steps, strict=True)) if count > 1
        }
        strides = [
            0 if size == 1 else places[step][1] if places.get(step, (0, 0))[0] == size else -1
            for size, step in zip(shape, dense, strict=True)
        ]
        whole = math.prod(counts) == math.prod(shape) and sum(size > 1 for size in shape) == len(places)
        if whole and -1 not in strides and (shape[-1] == 1 or strides[-1] == 1):
            removed.append(reader)
            return copy.outputs[0], strides[-2], strides[:-2]
    return value, dense[-2], dense[:-2]
