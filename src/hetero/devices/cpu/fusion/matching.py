"""Pattern matching on the call graph, shared by the passes that recognize decomposed operators."""

from __future__ import annotations

import math

import numpy as np

from ..values import Call, Value
from .graph import CallGraph

__all__ = [
    "LARGEST_FACTOR",
    "is_moderate",
    "is_same",
    "maker_of",
    "other_operand",
    "reader_of",
    "scalar",
    "scalar_operand",
    "scaled",
]

LARGEST_FACTOR = 2.0**24
"""The largest total factor of an operand that a kernel may apply after a product instead. A larger factor, or one below
the reciprocal, may keep that product from overflowing, so it stays where it is. So do 0 and NaN. The factors of several
calls are multiplied before they are compared."""


def is_same(first: Value | None, second: Value | None) -> bool:
    """Whether two values that are not known share their storage and their shape."""
    return (
        first is not None
        and second is not None
        and first.data is None
        and second.data is None
        and first.storage == second.storage
        and first.shape == second.shape
    )


def reader_of(graph: CallGraph, value: Value, kernel: str) -> tuple[int, Call] | None:
    """The only call that reads ``value``, which it reads once, if it is a call of ``kernel``."""
    position = graph.only_reader(value)
    if position is None or graph.call(position).kernel != kernel:
        return None
    return position, graph.call(position)


def maker_of(graph: CallGraph, value: Value, kernels: tuple[str, ...], readers: int = 1) -> tuple[int, Call] | None:
    """The call that computes ``value`` in this shape, if it is one of ``kernels`` and ``value`` is read exactly
    ``readers`` times, never after the segment."""
    position = graph.maker(value)
    if position is None or not graph.is_private(value, readers):
        return None
    call = graph.call(position)
    return (position, call) if call.kernel in kernels and call.outputs[0].shape == value.shape else None


def other_operand(call: Call, value: Value) -> Value | None:
    """The other operand of a binary call; None if ``value`` is neither operand or both."""
    first, second = call.inputs
    mine = [is_same(operand, value) for operand in (first, second)]
    if mine == [True, False]:
        return second
    return first if mine == [False, True] else None


def scalar(value: Value | None) -> float | None:
    """The number, if ``value`` is one known float32 number."""
    if value is None or value.data is None or value.size != 1 or value.data.dtype != np.float32:
        return None
    return float(value.data.reshape(()))


def scalar_operand(call: Call, value: Value, number: float) -> bool:
    """Whether the other operand is this number, and the result has the shape of ``value``. A number that float32 cannot
    represent may be off by a relative 1e-6; exporters round it in several ways."""
    operand = scalar(other_operand(call, value))
    tolerance = 0.0 if float(np.float32(number)) == number else 1e-6
    return (
        operand is not None
        and math.isclose(operand, number, rel_tol=tolerance)
        and call.outputs[0].shape == value.shape
    )


def is_moderate(factor: float) -> bool:
    """See `LARGEST_FACTOR`."""
    return 1 / LARGEST_FACTOR <= abs(factor) <= LARGEST_FACTOR


def scaled(call: Call) -> tuple[Value, float] | None:
    """The value and the factor, if a call multiplies a value by a known number or divides it by one.

    The number is a float32 of one element that adds no axes, and is moderate."""
    if call.kernel not in ("mul", "div"):
        return None
    first, second = call.inputs
    for value, other in ((first, second), (second, first)):
        number = scalar(other)
        if number is None or value is None or value.data is not None or value.shape != call.outputs[0].shape:
            continue
        if not is_moderate(number):
            continue
        if call.kernel == "mul":
            return value, number
        if value is first:
            return value, 1 / number
    return None
