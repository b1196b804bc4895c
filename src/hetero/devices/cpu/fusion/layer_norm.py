"""Layer normalization: recognized when written as several nodes, and fused with an addition before it.

`recognize` replaces ``(x - mean) / sqrt(mean((x - mean)**2) + epsilon) * scale + bias`` over the last axis, and the
root-mean-square form ``x / sqrt(mean(x**2) + epsilon) * scale + bias``, by one call; the bias is optional. Contract:
the same result up to rounding; the variance is summed in another order. Conditions:

- x is float32 and not empty. The result has the shape of x: epsilon, scale and bias add no axes.
- Both means are over the last axis alone and keep it with size 1.
- Scale and bias are known, with the size of the last axis along it and 1 along all others. Epsilon is one known number.
- Each intermediate result is read only within the pattern, as often as the pattern reads it, and not after the segment.

`add_before` replaces ``layer_norm(a + b)`` by one call, which also writes the sum if other calls read it. Contract: the
same sum and the same normalization. Conditions:

- a and b have the shape of their sum. They may be the same value, and one may be known.
- The normalization reads the sum exactly once, so not as its scale or bias too.
- No call before the normalization reads the sum.
"""

from __future__ import annotations

import dataclasses

from .... import _kernels
from ..values import Call, Value
from .graph import CallGraph
from .matching import is_same, maker_of, other_operand, reader_of, scalar, scalar_operand

__all__ = ["add_before", "recognize"]

_SQRT, _MEAN = _kernels.constant("UNARY_SQRT"), _kernels.constant("REDUCE_MEAN")


def recognize(graph: CallGraph) -> None:
    for position, call in graph:
        if _is_root(call):
            _around_root(graph, position, call)


def _is_root(call: Call) -> bool:
    """Whether a call is a square root or a power of 0.5. These differ only for -0 and -inf, which a mean of squares
    plus a finite epsilon never is."""
    if call.kernel == "pow":
        return call.inputs[0] is not None and scalar_operand(call, call.inputs[0], 0.5)
    return call.kernel == "unary" and call.ints[0] == _SQRT


def _around_root(graph: CallGraph, position: int, root: Call) -> None:
    assert root.inputs[0] is not None
    plus = maker_of(graph, root.inputs[0], ("add",))
    if plus is None:
        return
    variance = next((v for v in plus[1].inputs if v is not None and v.data is None), None)
    epsilon = None if variance is None else scalar(other_operand(plus[1], variance))
    mean = None if variance is None else maker_of(graph, variance, ("reduce",))
    if variance is None or epsilon is None or mean is None:
        return
    squares = mean[1].inputs[0]
    assert squares is not None
    division = reader_of(graph, root.outputs[0], "div")
    if division is None or not is_same(division[1].inputs[1], root.outputs[0]) or not _is_mean_of_rows(mean[1]):
        return
    power = maker_of(graph, squares, ("pow", "mul"))
    base = None if power is None else power[1].inputs[0]
    if power is None or base is None or not _is_square(power[1]) or not is_same(division[1].inputs[0], base):
        return
    removed = [position, plus[0], mean[0], power[0], division[0]]
    reads = 2 if power[1].kernel == "pow" else 3
    centering = maker_of(graph, base, ("sub",), reads)
    x, root_mean_square = base, True
    if centering is not None:
        middle = centering[1].inputs[1]
        first = None if middle is None or middle.data is not None else maker_of(graph, middle, ("reduce",))
        if first is not None and _is_mean_of_rows(first[1]) and is_same(first[1].inputs[0], centering[1].inputs[0]):
            removed += [centering[0], first[0]]
            assert centering[1].inputs[0] is not None
            x, root_mean_square = centering[1].inputs[0], False
    _with_scale_and_bias(graph, x, epsilon, root_mean_square, removed, division[1])


def _with_scale_and_bias(
    graph: CallGraph, x: Value, epsilon: float, root_mean_square: bool, removed: list[int], division: Call
) -> None:
    normal = division.outputs[0]
    times = reader_of(graph, normal, "mul")
    scale = None if times is None else _row(other_operand(times[1], normal), x)
    if times is None or scale is None:
        return
    last, bias = times, None
    plus = reader_of(graph, times[1].outputs[0], "add")
    if plus is not None:
        bias = _row(other_operand(plus[1], times[1].outputs[0]), x)
        if bias is not None:
            removed.append(times[0])
            last = plus
    if last[1].outputs[0].shape != x.shape:
        return
    for position in removed:
        graph.remove(position)
    width = x.shape[-1]
    ints = (x.size // width, width, int(root_mean_square))
    graph.replace(last[0], Call("layer_norm", (x, scale, bias), last[1].outputs, ints, (epsilon,), last[1].node))


def _is_mean_of_rows(reduce: Call) -> bool:
    """Whether a call is a mean over the last axis alone, which it keeps, of an input that is not empty."""
    x = reduce.inputs[0]
    assert x is not None
    marks = (0,) * (x.rank - 1) + (1,)
    kept = (*x.shape[:-1], 1)
    return x.size > 0 and reduce.ints == (_MEAN, x.rank, *marks) and reduce.outputs[0].shape == kept


def _is_square(call: Call) -> bool:
    base = call.inputs[0]
    assert base is not None
    if call.kernel == "mul":
        return is_same(base, call.inputs[1])
    return scalar_operand(call, base, 2.0) and is_same(call.inputs[0], base)


def _row(value: Value | None, x: Value) -> Value | None:
    """``value`` as a vector, if it is known and has the size of the last axis of ``x`` along its own last axis and 1
    along all others."""
    if value is None or value.data is None or value.size != x.shape[-1] or value.shape[-1:] != x.shape[-1:]:
        return None
    return Value(value.dtype, (value.size,), value.data.reshape(-1), value.storage, value.shared)


def add_before(graph: CallGraph) -> None:
    for position, call in graph:
        if call.kernel != "layer_norm" or len(call.inputs) != 3:
            continue
        x = call.inputs[0]
        assert x is not None
        maker = graph.maker(x)
        addition = None if maker is None else graph.call(maker)
        if maker is None or addition is None or addition.kernel != "add":
            continue
        first, second = addition.inputs
        assert first is not None
        assert second is not None
        made = addition.outputs[0]
        readers = graph.reader_positions(x)
        if not first.shape == second.shape == made.shape or min(readers) < position or readers.count(position) > 1:
            continue
        graph.remove(maker)
        outputs = call.outputs if graph.is_unread(made, position) else (*call.outputs, made)
        ints = (*call.ints, 0)[:3]
        graph.replace(
            position, dataclasses.replace(call, inputs=(first, *call.inputs[1:], second), outputs=outputs, ints=ints)
        )
