"""Sequences and optionals, which run in Python: a sequence is a list of arrays, an empty optional is None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import InferenceError
from ....model.types import dtype_of
from ..registry import ANY, ANYTHING, INDICES, NOT_TENSOR, STRING, Node, hosted

Run = Callable[..., Sequence[Any]]
_TENSORS = (*ANY, *STRING)


def _index(position: NDArray[Any], count: int, most: int) -> int:
    """A position in a sequence of ``count`` elements, from -count to ``most``."""
    if position.size != 1:
        raise InferenceError(f"expected one position, found shape {list(position.shape)}")
    at = int(position.reshape(-1)[0])
    if not -count <= at <= most:
        raise InferenceError(f"expected a position from {-count} to {most}, found {at}")
    return at + count if at < 0 else at


@hosted("SequenceConstruct", dtypes=_TENSORS)
def _construct(node: Node) -> Run:
    def run(*items: Any) -> Sequence[Any]:
        if len({item.dtype for item in items}) > 1:
            raise InferenceError(f"expected elements of one type, found {sorted({str(item.dtype) for item in items})}")
        return [list(items)]

    return run


@hosted("SequenceEmpty", attributes={"dtype": None})
def _empty(node: Node) -> Run:
    if dtype_of(node.get("dtype", 1)) is None:
        raise InferenceError(f"attribute dtype is {node.get('dtype', 1)}, which is not an element type")
    return lambda: [[]]


@hosted("SequenceAt", dtypes=(NOT_TENSOR, INDICES))
def _at(node: Node) -> Run:
    return lambda sequence, position: [sequence[_index(position, len(sequence), len(sequence) - 1)]]


@hosted("SequenceInsert", dtypes=(NOT_TENSOR, _TENSORS, INDICES))
def _insert(node: Node) -> Run:
    def run(sequence: list[Any], item: Any, position: Any = None) -> Sequence[Any]:
        if sequence and sequence[0].dtype != item.dtype:
            raise InferenceError(f"expected an element of {sequence[0].dtype}, found {item.dtype}")
        count = len(sequence)
        at = count if position is None else _index(position, count, count)
        return [[*sequence[:at], item, *sequence[at:]]]

    return run


@hosted("SequenceErase", dtypes=(NOT_TENSOR, INDICES))
def _erase(node: Node) -> Run:
    def run(sequence: list[Any], position: Any = None) -> Sequence[Any]:
        count = len(sequence)
        if not count:
            raise InferenceError("cannot erase an element of an empty sequence")
        at = count - 1 if position is None else _index(position, count, count - 1)
        return [[*sequence[:at], *sequence[at + 1 :]]]

    return run


@hosted("SequenceLength", dtypes=NOT_TENSOR, result="int64")
def _length(node: Node) -> Run:
    return lambda sequence: [np.array(len(sequence), np.int64)]


@hosted("ConcatFromSequence", dtypes=NOT_TENSOR, attributes={"axis": None, "new_axis": (0, 1)})
def _concat(node: Node) -> Run:
    if "axis" not in node.attributes:
        raise InferenceError("attribute axis is missing")
    axis, new_axis = node.get("axis", 0), node.get("new_axis", 0)

    def run(sequence: list[Any]) -> Sequence[Any]:
        if not sequence:
            raise InferenceError("cannot concatenate an empty sequence")
        return [np.stack(sequence, axis) if new_axis else np.concatenate(sequence, axis)]

    return run


@hosted("SplitToSequence", dtypes=(_TENSORS, INDICES), attributes={"axis": None, "keepdims": (0, 1)})
def _split(node: Node) -> Run:
    axis, keep = node.get("axis", 0), node.get("keepdims", 1)

    def run(x: NDArray[Any], split: NDArray[Any] | None = None) -> Sequence[Any]:
        if not -x.ndim <= axis < x.ndim:
            raise InferenceError(f"axis {axis} is outside the {x.ndim} dimensions of x")
        size = x.shape[axis]
        if split is None:
            parts = np.split(x, size, axis) if size else []
            return [parts if keep else [np.squeeze(part, axis) for part in parts]]
        if split.ndim == 0:
            step = int(split)
            if step < 1:
                raise InferenceError(f"expected parts of at least one element, found split {step}")
            ends = list(range(step, size, step))
        else:
            lengths = split.astype(np.int64)
            if (lengths < 0).any() or lengths.sum() != size:
                raise InferenceError(f"split {lengths.tolist()[:8]} does not fit an axis of {size} elements")
            ends = np.cumsum(lengths)[:-1].tolist()
            if not len(lengths):
                return [[]]
        return [np.split(x, ends, axis)]

    return run


# ---- optionals


@hosted("Optional", attributes={"type": None})
def _optional(node: Node) -> Run:
    return lambda value=None: [value]


@hosted("OptionalGetElement")
def _get_element(node: Node) -> Run:
    def run(value: Any) -> Sequence[Any]:
        if value is None:
            raise InferenceError("the optional is empty")
        return [value]

    return run


@hosted("OptionalHasElement", result="bool")
def _has_element(node: Node) -> Run:
    return lambda value=None: [np.array(value is not None)]


@hosted("Identity", dtypes=ANYTHING, result=0)
def _identity(node: Node) -> Run:
    return lambda value: [value]
