"""Moves a bias, an addend and an activation into the product or convolution before them.

Contract: the result is ``activation(product + bias + addend)``, added in this order. Results agree with
those of separate calls up to rounding.

Conditions:

- Each step is the only reader of the result before it, reads it once, is float32 and keeps the number of elements. The
  activation is the last step.
- A bias has one number per column or output channel, and size 1 along every other axis of the product's own result,
  which is not reshaped before the addition. No bias or addend precedes it.
- An addend has the shape in which the addition reads the result. No addend precedes it.
- Bias and addend are complete before the product runs.
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
_BIAS, _ADDEND = 2, 3


def absorb(graph: CallGraph) -> None:
    for position, call in graph:
        if call.kernel in _ACTIVATION and call.outputs[0].dtype == np.float32:
            _absorb_readers(graph, position, call)


def _absorb_readers(graph: CallGraph, position: int, call: Call) -> None:
    while call.ints[_ACTIVATION[call.kernel]] == 0:
        made = call.outputs[0]
        reader = graph.only_reader(made)
        if reader is None:
            return
        following = graph.call(reader)
        if following.outputs[0].dtype != np.float32 or following.outputs[0].size != made.size:
            return
        fused = None
        if following.kernel == "unary" and following.ints[0] in _SAME_TYPE_CODES:
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


def _with_operand(graph: CallGraph, position: int, call: Call, add: Call) -> Call | None:
    made = call.outputs[0]
    first, second = add.inputs
    assert first is not None
    assert second is not None
    mine, other = (first, second) if first.data is None and first.storage == made.storage else (second, first)
    if mine.shape != add.outputs[0].shape or not graph.is_made_before(other, position):
        return None
    inputs = list(call.inputs)
    if inputs[_ADDEND] is not None:
        return None  # the kernel adds the bias before the addend, which would change the order
    if inputs[_BIAS] is None and _is_bias(call, mine, other):
        inputs[_BIAS] = Value(other.dtype, (other.size,), _flat(other), other.storage, other.shared)
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


def _flat(value: Value) -> np.ndarray | None:
    return None if value.data is None else value.data.reshape(-1)


def _is_bias(call: Call, mine: Value, other: Value) -> bool:
    """Whether ``other`` has one number per column of the product, or per output channel of the convolution."""
    if mine.shape != call.outputs[0].shape:
        return False  # reshaped in between: the last axis need not be the product's
    padded = (1,) * (mine.rank - other.rank) + other.shape
    axis = 1 if call.kernel == "conv" else mine.rank - 1
    if call.kernel == "matmul" and mine.shape[axis : axis + 1] != (call.ints[1],):
        return False  # the result of a product with a vector has no axis of columns
    return all(size == (mine.shape[i] if i == axis else 1) for i, size in enumerate(padded))
