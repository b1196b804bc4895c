"""Sequences and optionals: a sequence is a list of arrays, an empty optional is None."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

from .table import Corrections

__all__ = ["CORRECTIONS"]

UpstreamIdentity: Any = load_op("", "Identity", None)


class _GivesNone(OpRun):
    """An empty optional is None, as OptionalGetElement and OptionalHasElement of onnx.reference expect. Its check of
    results rejects None."""

    def _check_and_fix_outputs(self, res: tuple[Any, ...]) -> tuple[Any, ...]:
        return res


class Identity(_GivesNone, UpstreamIdentity):  # type: ignore[misc]
    pass


class Optional(_GivesNone):
    # onnx.reference wraps the value in a list, so an optional sequence becomes a sequence of sequences. Backend suite,
    # test_if_opt.

    def _run(self, x: Any = None, type: Any = None) -> tuple[Any]:
        del type
        return (x,)


def _one_type(elements: Iterable[np.ndarray]) -> None:
    """onnx.reference accepts sequences of several types, which ONNX does not have."""
    types = {str(element.dtype) for element in elements}
    if len(types) > 1:
        raise ValueError(f"expected elements of one type, found {sorted(types)}")


class SequenceConstruct(OpRun):
    def _run(self, *elements: np.ndarray) -> tuple[list[np.ndarray]]:
        _one_type(elements)
        return (list(elements),)


class SequenceInsert(OpRun):
    # onnx.reference uses the position modulo the length: a position at the end inserts in front, and an empty sequence
    # divides by zero. According to the specification.

    def _run(self, sequence: list[Any], tensor: np.ndarray, position: np.ndarray | None = None) -> tuple[list[Any]]:
        size = len(sequence)
        index = size if position is None else int(position.reshape(-1)[0])
        if not -size <= index <= size:
            raise IndexError(f"expected a position from {-size} to {size}, found {index}")
        _one_type([*sequence, tensor])
        index += size if index < 0 else 0
        return ([*sequence[:index], tensor, *sequence[index:]],)


class SplitToSequence(OpRun):
    # onnx.reference also accepts parts that are negative or that leave elements out.

    def _run(
        self, x: np.ndarray, split: np.ndarray | None = None, axis: int = 0, keepdims: int = 1
    ) -> tuple[list[Any]]:
        if not -x.ndim <= axis < x.ndim:
            raise IndexError(f"axis {axis} is outside the {x.ndim} dimensions of x")
        size = x.shape[axis]
        if split is None:
            parts = [1] * size
        elif split.ndim == 0:
            part = int(split)
            if part < 1:
                raise ValueError(f"expected parts of at least one element, found split {part}")
            parts = [min(part, size - start) for start in range(0, size, part)]
        else:
            parts = [int(part) for part in split]
            if min(parts, default=0) < 0 or sum(parts) != size:
                raise ValueError(f"split {parts} does not fit an axis of {size} elements")
        pieces = np.split(x, np.cumsum(parts)[:-1], axis) if parts else []
        return ([piece.squeeze(axis) for piece in pieces] if split is None and not keepdims else pieces,)


CORRECTIONS: Corrections = (
    ("", "Identity", 16, None, Identity),
    ("", "Optional", 15, None, Optional),
    ("", "SequenceConstruct", 11, None, SequenceConstruct),
    ("", "SequenceInsert", 11, None, SequenceInsert),
    ("", "SplitToSequence", 11, None, SplitToSequence),
)
