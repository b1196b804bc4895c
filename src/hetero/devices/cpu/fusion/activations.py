"""Recognizes activations that exporters write as several nodes: GELU (both forms), SiLU, HardSwish, Mish.

Contract: the same function of the same value, up to rounding, if no intermediate result overflows.

Conditions for every pattern:

- Each constant is one known float32 number and adds no axes: the expected number, or within a relative 1e-6 of it if
  float32 cannot represent it.
- Each step has the shape of x. Every read of x reads the same storage in the same shape. The data of x are not known.
- Each intermediate result is read only within the pattern, as often as the pattern reads it, and not after the segment.

Patterns:

- GELU: ``x / 2 * (1 + erf(x / sqrt(2)))``, or with ``tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))`` in place of
  the erf. The operands of products and sums may be in any order; the factor 1/2 may apply to x or to the whole.
- SiLU: ``x * sigmoid(x)``; HardSwish: ``x * hard_sigmoid(x)``, or ``x * clip(x + 3, 0, 6) / 6``; Mish:
  ``x * tanh(softplus(x))``.
"""

from __future__ import annotations

import math

from .... import _kernels
from ..values import Call, Value
from .graph import CallGraph
from .matching import is_same, maker_of, other_operand, reader_of, scalar_operand

__all__ = ["recognize"]

_CLIP, _SIGMOID, _HARD_SIGMOID, _HARD_SWISH, _SWISH, _TANH, _GELU_ERF, _GELU_TANH, _SOFTPLUS, _MISH, _ERF = (
    _kernels.constant(f"UNARY_{name}")
    for name in (
        *("CLIP", "SIGMOID", "HARD_SIGMOID", "HARD_SWISH", "SWISH", "TANH"),
        *("GELU_ERF", "GELU_TANH", "SOFTPLUS", "MISH", "ERF"),
    )
)


def recognize(graph: CallGraph) -> None:
    for position, call in graph:
        if call.kernel != "unary":
            continue
        if call.ints[0] in (_ERF, _TANH) and _gelu(graph, position, call):
            continue
        if call.ints[0] in (_SIGMOID, _HARD_SIGMOID, _TANH):
            _gated(graph, position, call)
        elif call.ints[0] == _CLIP:
            _clipped_swish(graph, position, call)


def _unary(code: int, x: Value, last: Call, p0: float = 0.0, p1: float = 0.0) -> Call:
    return Call("unary", (x,), last.outputs, (code,), (p0, p1), last.node)


def _replace(graph: CallGraph, removed: list[int], last: int, call: Call) -> None:
    for position in removed:
        graph.remove(position)
    graph.replace(last, call)


def _gelu(graph: CallGraph, position: int, call: Call) -> bool:
    argument = call.inputs[0]
    assert argument is not None
    match = _erf_argument(graph, argument) if call.ints[0] == _ERF else _tanh_argument(graph, argument)
    if match is None:
        return False
    x, removed = match
    plus = reader_of(graph, call.outputs[0], "add")
    if plus is None or not scalar_operand(plus[1], call.outputs[0], 1.0):
        return False
    removed += [position, plus[0]]
    gate = plus[1].outputs[0]
    times = reader_of(graph, gate, "mul")
    other = None if times is None else other_operand(times[1], gate)
    if times is None or other is None or times[1].outputs[0].shape != gate.shape:
        return False
    last = times
    if is_same(other, x):  # x * (1 + ...), then the half
        half = reader_of(graph, times[1].outputs[0], "mul")
        if half is None or not scalar_operand(half[1], times[1].outputs[0], 0.5):
            return False
        removed.append(times[0])
        last = half
    else:
        half = maker_of(graph, other, ("mul",))
        if half is None or not scalar_operand(half[1], x, 0.5):
            return False
        removed.append(half[0])
    code = _GELU_ERF if call.ints[0] == _ERF else _GELU_TANH
    _replace(graph, removed, last[0], _unary(code, x, last[1]))
    return True


def _erf_argument(graph: CallGraph, argument: Value) -> tuple[Value, list[int]] | None:
    """If the argument is ``x / sqrt(2)``: x, and the positions of the calls that compute the argument."""
    scaled = maker_of(graph, argument, ("div", "mul"))
    if scaled is None:
        return None
    for x in scaled[1].inputs if scaled[1].kernel == "mul" else scaled[1].inputs[:1]:
        factor = math.sqrt(2) if scaled[1].kernel == "div" else math.sqrt(0.5)
        if x is not None and x.data is None and scalar_operand(scaled[1], x, factor):
            return x, [scaled[0]]
    return None


def _tanh_argument(graph: CallGraph, argument: Value) -> tuple[Value, list[int]] | None:
    """If the argument is ``sqrt(2 / pi) * (x + 0.044715 * x**3)``: x, and the positions of the calls that compute the
    argument."""
    scaled = maker_of(graph, argument, ("mul",))
    if scaled is None:
        return None
    for total in scaled[1].inputs:
        if total is None or total.data is not None or not scalar_operand(scaled[1], total, math.sqrt(2 / math.pi)):
            continue
        plus = maker_of(graph, total, ("add",))
        for x, term in () if plus is None else (plus[1].inputs, plus[1].inputs[::-1]):
            if x is None or term is None or x.data is not None or x.shape != total.shape:
                continue
            cubed = _cubic_term(graph, x, term)
            if cubed is not None:
                assert plus is not None
                return x, [scaled[0], plus[0], *cubed]
    return None


def _cubic_term(graph: CallGraph, x: Value, term: Value) -> list[int] | None:
    """The positions of the calls that compute ``term``, if it is ``0.044715 * x**3``."""
    scaled = maker_of(graph, term, ("mul",)) if term.data is None else None
    if scaled is None:
        return None
    for cube in scaled[1].inputs:
        if cube is None or cube.data is not None or not scalar_operand(scaled[1], cube, 0.044715):
            continue
        power = maker_of(graph, cube, ("pow",))
        if power is not None and is_same(power[1].inputs[0], x) and scalar_operand(power[1], x, 3.0):
            return [scaled[0], power[0]]
        product = maker_of(graph, cube, ("mul",))
        square = None if product is None else other_operand(product[1], x)
        if product is None or square is None or square.data is not None:
            continue
        twice = maker_of(graph, square, ("mul",))
        if twice is not None and all(is_same(operand, x) for operand in twice[1].inputs):
            return [scaled[0], product[0], twice[0]]
    return None


def _gated(graph: CallGraph, position: int, call: Call) -> None:
    """Replace ``x * gate(x)``; ``call`` computes the gate or, for Mish, its tanh."""
    x, gate = call.inputs[0], call.outputs[0]
    assert x is not None
    removed = [position]
    code, p0, p1 = _SWISH, 1.0, 0.0
    if call.ints[0] == _HARD_SIGMOID:
        code, (p0, p1) = _HARD_SWISH, call.floats
    elif call.ints[0] == _TANH:
        softplus = maker_of(graph, x, ("unary",))
        if softplus is None or softplus[1].ints[0] != _SOFTPLUS:
            return
        removed.append(softplus[0])
        code, p0, x = _MISH, 0.0, softplus[1].inputs[0]
        assert x is not None
    times = reader_of(graph, gate, "mul")
    if times is not None and is_same(other_operand(times[1], gate), x):
        _replace(graph, removed, times[0], _unary(code, x, times[1], p0, p1))


def _clipped_swish(graph: CallGraph, position: int, call: Call) -> None:
    """Replace ``x * clip(x + 3, 0, 6) / 6``; the division may come before or after the product."""
    shifted, gate = call.inputs[0], call.outputs[0]
    assert shifted is not None
    plus = maker_of(graph, shifted, ("add",)) if call.floats == (0.0, 6.0) else None
    if plus is None:
        return
    for x in plus[1].inputs:
        if x is None or x.data is not None or not scalar_operand(plus[1], x, 3.0):
            continue
        removed = [plus[0], position]
        first = _sixth(graph, gate)
        if first is not None:
            removed.append(first[0])
            gate = first[1].outputs[0]
        times = reader_of(graph, gate, "mul")
        if times is None or not is_same(other_operand(times[1], gate), x):
            return
        last = times
        if first is None:
            second = _sixth(graph, times[1].outputs[0])
            if second is None:
                return
            removed.append(times[0])
            last = second
        _replace(graph, removed, last[0], _unary(_HARD_SWISH, x, last[1], 1 / 6, 0.5))
        return


def _sixth(graph: CallGraph, value: Value) -> tuple[int, Call] | None:
    """The only reader of ``value``, if it divides by 6 or multiplies by 1/6."""
    division = reader_of(graph, value, "div")
    if division is not None and is_same(division[1].inputs[0], value) and scalar_operand(division[1], value, 6.0):
        return division
    product = reader_of(graph, value, "mul")
    return product if product is not None and scalar_operand(product[1], value, 1 / 6) else None
