"""Which integers OpenVINO's CPU device (2026.4) computes exactly.

It converts 64-bit integers to 32 bits by dropping the high bits, and computes many operators of integers in float32.
hetero therefore checks in each inference that integers that matter are small, and supports a node only if its results
are then exact. `inexact` bounds the integers of a model for this purpose.

A value that depends on shapes and small constants alone counts as small: it is a size, a position, or a product of
sizes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...errors import HeteroError, ModelError, raise_out_of_memory
from ...model.bodies import BODY_ATTRIBUTES, bodies_of
from ...model.constants import array_of

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["SMALL", "inexact", "limits_of"]

SMALL = 1 << 23
"""The largest absolute value of a small integer. The sum of two is exact in float32."""

_LIMITS = (SMALL, 1 << 15, 1 << 10, 1 << 7)
_LARGEST = (1 << 31) - 1  # of int32; its negative, so that the absolute value exists
_CONVERTED = {"float64": "float32", "uint32": "int32", "uint64": "int32"}
_CHECKED = ("int32", "int64")
_BITS = {"bool": 1, "int8": 7, "uint8": 8, "int16": 15, "uint16": 16}

_IN_FLOAT = frozenset((
    *("ArgMax", "ArgMin", "Clip", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "MaxPool", "Mod"),
    *("ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Resize", "ReverseSequence", "TopK", "Upsample"),
))  # fmt: skip
"""Operators of integers that it computes in float32."""

_WRONG = frozenset((
    *("Gemm", "MatMul", "PRelu", "Pow", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"),
    "ReduceSumSquare",
))  # fmt: skip
"""Operators whose results are wrong for some small integers."""

_SATURATING = frozenset(("Abs", "Add", "BitShift", "Div", "Einsum", "Mul", "Neg", "Sub", "Sum"))
"""Operators whose results may exceed 8 or 16 bits. OpenVINO saturates them; ONNX keeps the low bits."""

_ADDING = frozenset(("Add", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Sub", "Sum"))
_UNBOUNDED = frozenset(("BitCast", "BitShift", "ConvInteger", "Einsum", "MatMulInteger", "ReduceProd"))
_INDICES = frozenset(("ArgMax", "ArgMin", "NonZero", "Shape", "Size"))
_SUMS = ("ReduceProd", "ReduceSum")
_CLAMPED = {"Slice": 1, "Loop": 0}
"""Operator -> the first of the inputs where constants beyond 32 bits mean the same as the largest integer."""


def inexact(model: Model, limit: int = SMALL) -> tuple[dict[int, str], dict[int, int]]:
    """Node -> reason, for each node whose results may be wrong although the integers that the model receives are at
    most ``limit``; and input -> the largest absolute value for which the other nodes are exact."""
    bounds = _Bounds(model, limit)
    reasons = {node: why for node in range(model.num_nodes) if (why := bounds.visit(node))}
    return reasons, bounds.limits()


def limits_of(model: Model) -> tuple[dict[int, str], dict[int, int]]:
    """As `inexact`, with the largest limit for which all nodes are exact. A part of a model may receive sizes that the
    whole model computes from shapes."""
    for limit in _LIMITS:
        reasons, limits = inexact(model, limit)
        if not reasons:
            return reasons, limits
    return inexact(model)


class _Bounds:
    """The largest absolute value of each integer of a model, found node by node."""

    def __init__(self, model: Model, limit: int) -> None:
        self._model = model
        self._limit = limit
        self._bounds: dict[int, float] = {}
        self._of_shapes: set[int] = set()  # values that depend on shapes and constants alone
        self._of_constants: set[int] = set()  # values that depend on constants alone
        self._decisive: set[int] = set()  # values whose bounds were used

    def limits(self) -> dict[int, int]:
        model = self._model
        for node in reversed(range(model.num_nodes)):
            if not self._decisive.isdisjoint(model.node_outputs[node].tolist()):
                self._decisive.update(self._read(node))
        limits = {value: _LARGEST for value in model.input_ids if self.dtype(value) == "int64"}
        decisive = (v for v in model.input_ids if v in self._decisive and self.dtype(v) in _CHECKED)
        return limits | dict.fromkeys(decisive, self._limit)

    def visit(self, node: int) -> str:
        """Why the results of a node may be wrong; empty if they are not. Its operands have been visited."""
        model = self._model
        op_type = model.op_types[int(model.op_type_of[node])]
        read = self._read(node)
        written = [value for value in model.node_outputs[node].tolist() if value >= 0]
        for value in (*read, *written):
            name = self.dtype(value)
            if name in _CONVERTED:
                return f"OpenVINO computes {name} in {_CONVERTED[name]}: {model.value_name(value)!r}"
        self._note_origin(op_type, read, written)
        first = self.dtype(read[0]) if read else ""
        if op_type in _WRONG and "int" in first:
            return f"OpenVINO rounds or saturates {op_type} of integers"
        if first in _BITS and (op_type in _SATURATING or self._accumulates(node, op_type)):
            return f"OpenVINO saturates {op_type} of {first}"
        clamped = model.node_inputs[node].tolist()[_CLAMPED[op_type] :] if op_type in _CLAMPED else ()
        integers = [v for v in read if self.is_integer(v) and not (v in clamped and model.is_constant[v])]
        largest = max(map(self.bound, integers), default=SMALL)
        if largest > _LARGEST:
            return "OpenVINO computes int64 in int32, which cannot hold a constant of this node"
        try:
            bound = self._result(node, op_type, integers, written, largest)
        except ModelError as error:  # an attribute
            return str(error)
        has_bodies = op_type in BODY_ATTRIBUTES
        is_rounded = first in _CHECKED and (op_type in _IN_FLOAT or "bool" in map(self.dtype, written))
        if has_bodies or is_rounded or (bound > largest and "int64" in map(self.dtype, written)):
            self._decisive.update(integers)
        if has_bodies:
            why = self._in_bodies(node)
            if why or largest > SMALL:
                return why or f"OpenVINO computes integers in the bodies of {op_type} in int32 or float32"
        elif is_rounded and max(largest, bound if op_type in _SUMS else 0) > SMALL:
            return f"OpenVINO computes {op_type} of integers in float32, which rounds large integers"
        elif bound > _LARGEST and "int64" in map(self.dtype, written):
            return "OpenVINO computes int64 in int32, which may not hold the result"
        self._bounds.update((v, min(bound, _LARGEST)) for v in written if self.dtype(v) in _CHECKED)
        return ""

    def dtype(self, value: int) -> str:
        dtype = self._model.type_of(value).dtype
        return "" if dtype is None else dtype.name

    def is_integer(self, value: int) -> bool:
        return self.dtype(value) in _CHECKED or self.dtype(value) in _BITS

    def bound(self, value: int) -> float:
        if value not in self._bounds:
            name, largest = self.dtype(value), self._limit
            if name in _BITS:
                largest = 1 << _BITS[name]
            elif self._model.is_constant[value]:
                array = self._model.constant(value, aligned=False)
                largest = max(abs(int(array.min())), abs(int(array.max()))) if array.size else 0
            self._bounds[value] = largest
        return self._bounds[value]

    def _read(self, node: int) -> list[int]:
        inputs, captures = (part[node].tolist() for part in (self._model.node_inputs, self._model.node_captures))
        return [value for value in (*inputs, *captures) if value >= 0]

    def _note_origin(self, op_type: str, read: list[int], written: list[int]) -> None:
        variable = {v for v in read if not self._model.is_constant[v] and v not in self._of_constants}
        is_position = op_type == "Cast" and not variable and not self._model.is_constant[read[0]]
        if op_type in ("Shape", "Size") or is_position or (variable and variable <= self._of_shapes):
            self._of_shapes.update(written)
        elif read and not variable:
            self._of_constants.update(written)

    def _accumulates(self, node: int, op_type: str) -> bool:
        """Whether the node scatters sums or products."""
        if op_type not in ("ScatterElements", "ScatterND"):
            return False
        return self._model.nodes[node].attributes.get("reduction") in (b"add", b"mul")

    def _result(self, node: int, op_type: str, integers: list[int], written: list[int], largest: float) -> float:
        """A bound on the absolute values of the integers that a node returns. ``largest``: the bound on operands."""
        model = self._model
        bound = largest
        data = int(model.node_inputs[node][0]) if len(model.node_inputs[node]) else -1
        if op_type == "ConstantOfShape":
            value = model.nodes[node].attributes.get("value")
            array = np.zeros(1) if value is None or not self.is_integer(written[0]) else array_of(value)
            return float(np.abs(array.astype(np.float64)).max(initial=0))
        if op_type in ("Cast", "CastLike"):
            bound = self.bound(data) if self.is_integer(data) else math.inf
        elif op_type in _INDICES:
            return SMALL
        elif op_type in ("TopK", "Unique"):  # numbers and their indices
            bound = max(largest, SMALL)
        elif data not in integers:
            return bound
        elif op_type in _ADDING:
            bound = sum(map(self.bound, integers)) + 1
        elif op_type == "Mul":
            bound = math.prod(map(self.bound, integers))
        elif op_type in ("CumSum", "ReduceSum"):
            sizes = model.type_of(data).shape or ("",)
            numbers = [size for size in sizes if isinstance(size, int)]
            bound = self.bound(data) * (math.prod(numbers) if len(numbers) == len(sizes) else SMALL)
        elif op_type in _UNBOUNDED or self._accumulates(node, op_type):
            bound = math.inf
        return SMALL if bound > SMALL >= largest and self._of_shapes.issuperset(written) else bound

    def _in_bodies(self, node: int) -> str:
        """Why results may be wrong in the bodies of a node, or are not small."""
        try:
            bodies = bodies_of(self._model, node)
        except HeteroError as error:  # OpenVINO does not read it either
            raise_out_of_memory(error)
            return ""
        for body in bodies:
            inside = _Bounds(body.model, SMALL)
            why = next(filter(None, map(inside.visit, range(body.model.num_nodes))), "")
            if why:
                return why
            for value in body.model.output_ids:
                if inside.dtype(value) in _CHECKED and inside.bound(value) > SMALL:
                    return f"OpenVINO may round or truncate {body.model.value_name(value)!r} in a body"
        return ""
