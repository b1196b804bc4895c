"""Moves a bias, an addend and an activation into the product or convolution before them. A convolution also takes what
follows its activation: a factor and an addend per channel, and a tensor to add.

Contract: the result is ``activation(product + bias + addend) * after_scale + after_shift + late``, computed in this
order. Results agree with those of separate calls up to rounding.

Conditions:

- Each step is the only reader of the result before it, reads it once, is float32 and keeps the number of elements.
- A bias has one number per column or output channel, and size 1 along every other axis of the product's own result,
  which is not reshaped before the addition. No bias or addend precedes it.
- An addend has the shape in which the addition reads the result. No addend precedes it.
- After the activation of a convolution: a factor, then a number to add, each like a bias or a constant of one element,
  then a tensor like an addend. Each may be absent.
- All these operands are complete before the product runs.
"""

from __future__ import annotations

import numpy as np

from .... import _kernels
from ..values import Call, Value
from .graph import CallGraph

__all__ = ["absorb"]

_ACTIVATION = {"conv": 2, "gemm": 8, "matmul": 8}  # position of the activation's code among the ints
_PARAMETERS = {"conv": 0, "gemm": 2, "matmul": 2}  # and of its two parameters among the floats
_SAME_TYPE_CODES = range(_kernels.constant("UNARY_RELU"), _kernels.constant("UNARY_SAME_TYPE_END"))
_BIAS, _ADDEND, _AFTER_SCALE, _AFTER_SHIFT, _LATE = 2, 3, 6, 7, 8


def absorb(graph: CallGraph) -> None:
    for position, call in graph:
        if call.kernel in _ACTIVATION and call.outputs[0].dtype == np.float32:
            _absorb_readers(graph, position, call)


def _absorb_readers(graph: CallGraph, position: int, call: Call) -> None:
    while True:
        made = call.outputs[0]
        reader = graph.only_reader(made)
        if reader is None:
            return
        following = graph.call(reader)
        if following.outputs[0].dtype != np.float32 or following.outputs[0].size != made.size:
            return
        fused = None
        if call.ints[_ACTIVATION[call.kernel]] != 0:
            if call.kernel == "conv" and following.kernel in ("mul", "add"):
                fused = _with_later(graph, position, call, following)
        elif following.kernel == "unary" and following.ints[0] in _SAME_TYPE_CODES:
            fused = _with_activation(call, following)
        elif following.kernel == "add":
            fused = _with_operand(graph, position, call, following)
        if fused is None:
            return
        call = graph.absorb(position, reader, fused)


def _with_activation(call: Call, unary: Call) -> Call:
    ints, floats = list(call.ints), list(call.floats)
    ints[_ACTIVATION[call.kernel]] = unary.ints[0]
    at = _PARAMETERS[call.kernel]
    floats[at : at + 2] = unary.floats
    return call.changed(ints=tuple(ints), floats=tuple(floats))


def _operands(graph: CallGraph, position: int, call: Call, step: Call) -> tuple[Value, Value] | None:
    """The operand of ``step`` that ``call`` computes and the other one, if the first has the shape of the result, and
    the other is complete before ``call``."""
    made = call.outputs[0]
    first, second = step.inputs
    assert first is not None
    assert second is not None
    mine, other = (first, second) if first.data is None and first.storage == made.storage else (second, first)
    fits = mine.shape == step.outputs[0].shape and graph.is_made_before(other, position)
    return (mine, other) if fits else None


def _with_operand(graph: CallGraph, position: int, call: Call, add: Call) -> Call | None:
    operands = _operands(graph, position, call, add)
    inputs = list(call.inputs)
    if operands is None or inputs[_ADDEND] is not None:
        return None  # the kernel adds the bias before the addend, which would change the order
    mine, other = operands
    if inputs[_BIAS] is None and _is_bias(call, mine, other):
        inputs[_BIAS] = _flat(other)
        if call.kernel == "conv":
            return call.changed(inputs=tuple(inputs))
        ints, floats = list(call.ints), list(call.floats)
        ints[6:8] = (0, 1)  # a number per column
        floats[1] = 1.0
        return call.changed(inputs=tuple(inputs), ints=tuple(ints), floats=tuple(floats))
    if other.shape == mine.shape:
        inputs[_ADDEND] = other
        return call.changed(inputs=tuple(inputs))
    return None


def _with_later(graph: CallGraph, position: int, conv: Call, step: Call) -> Call | None:
    """``step``: a multiplication or addition of what follows the activation."""
    operands = _operands(graph, position, conv, step)
    inputs = [*conv.inputs, *[None] * (_LATE + 1 - len(conv.inputs))]
    if operands is None or inputs[_LATE] is not None:
        return None
    mine, other = operands
    per_channel = _per_channel(conv, mine, other)
    if (
        per_channel is not None
        and inputs[_AFTER_SHIFT] is None
        and (step.kernel == "add" or inputs[_AFTER_SCALE] is None)
    ):
        inputs[_AFTER_SHIFT if step.kernel == "add" else _AFTER_SCALE] = per_channel
    elif step.kernel == "add" and other.shape == mine.shape:
        inputs[_LATE] = other
    else:
        return None
    return conv.changed(inputs=tuple(inputs))


def _per_channel(conv: Call, mine: Value, other: Value) -> Value | None:
    """``other`` as a number per output channel."""
    if _is_bias(conv, mine, other):
        return _flat(other)
    channels = conv.outputs[0].shape[1]
    if other.data is None or other.size != 1 or mine.shape != conv.outputs[0].shape or not isinstance(channels, int):
        return None
    return Value(other.dtype, (channels,), np.repeat(other.data.reshape(-1), channels))


def _flat(value: Value) -> Value:
    data = None if value.data is None else value.data.reshape(-1)
    return Value(value.dtype, (value.size,), data, value.storage, value.shared)


def _is_bias(call: Call, mine: Value, other: Value) -> bool:
    """Whether ``other`` has one number per column of the product, or per output channel of the convolution."""
    if mine.shape != call.outputs[0].shape:
        return False  # reshaped in between: the last axis need not be the product's
    padded = (1,) * (mine.rank - other.rank) + other.shape
    axis = 1 if call.kernel == "conv" else mine.rank - 1
    if call.kernel == "matmul" and mine.shape[axis : axis + 1] != (call.ints[1],):
        return False  # the result of a product with a vector has no axis of columns
    return all(size == (mine.shape[i] if i == axis else 1) for i, size in enumerate(padded))
