"""Sequences and optionals: a sequence is a list of arrays, an empty optional is None."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from .table import Corrections

__all__ = ["CORRECTIONS"]


class Optional(OpRun):
    # onnx.reference wraps the value in a list, so an optional sequence becomes a sequence of sequences. Backend suite,
    # test_if_opt. An empty optional is None, as its OptionalGetElement and OptionalHasElement expect.

    def _run(self, x: Any = None, type: Any = None) -> tuple[Any]:
        del type
        return (x,)

    def _check_and_fix_outputs(self, res: tuple[Any, ...]) -> tuple[Any, ...]:
        return res


class SequenceInsert(OpRun):
    # onnx.reference uses the position modulo the length: a position at the end inserts in front, and an empty sequence
    # divides by zero. According to the specification.

    def _run(self, sequence: list[Any], tensor: np.ndarray, position: np.ndarray | None = None) -> tuple[list[Any]]:
        size = len(sequence)
        index = size if position is None else int(position.reshape(-1)[0])
        if not -size <= index <= size:
            raise IndexError(f"expected a position from {-size} to {size}, found {index}")
        index += size if index < 0 else 0
        return ([*sequence[:index], tensor, *sequence[index:]],)


CORRECTIONS: Corrections = (
    ("", "Optional", 15, None, Optional),
    ("", "SequenceInsert", 11, None, SequenceInsert),
)
