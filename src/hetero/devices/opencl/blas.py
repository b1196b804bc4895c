"""CLBlast: matrix products that are tuned for many GPUs, from Debian's package libclblast1 or from conda-forge."""

from __future__ import annotations

import ctypes
import ctypes.util
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import InferenceError
from . import backend

__all__ = ["Gemm", "is_installed"]

_ROW_MAJOR, _NO, _YES = 101, 111, 112
_SIZE = ctypes.c_size_t


@functools.cache
def _library() -> Any:
    """The library, or None if it is not installed."""
    for name in ("libclblast.so.1", ctypes.util.find_library("clblast")):
        if name:
            try:
                return ctypes.CDLL(name)
            except OSError:
                continue
    return None


def is_installed() -> bool:
    """Whether matrix products can use CLBlast."""
    return _library() is not None


@dataclasses.dataclass(frozen=True)
class Gemm:
    """C = A B for each of ``batches``, in float32. All sizes are at least 1; distances are in elements.

    ``transposed``: of A and of B. ``steps``: between the rows of A, B and C as stored. ``strides``: between batches.
    ``begins``: of the first elements.
    """

    m: int
    n: int
    k: int
    transposed: tuple[bool, bool]
    steps: tuple[int, int, int]
    batches: int
    strides: tuple[int, int, int]
    begins: tuple[int, int, int]

    def enqueue(self, queue: Any, buffers: Sequence[Any]) -> Any:
        """Start it. Returns its event."""
        arguments: list[Any] = [_ROW_MAJOR, *(_YES if each else _NO for each in self.transposed)]
        arguments += [_SIZE(self.m), _SIZE(self.n), _SIZE(self.k), ctypes.c_float(1.0)]
        for position, buffer in enumerate(buffers):
            if position == 2:
                arguments.append(ctypes.c_float(0.0))
            arguments += [ctypes.c_void_p(buffer.int_ptr), _SIZE(self.begins[position]), _SIZE(self.steps[position])]
            if self.batches > 1:
                arguments.append(_SIZE(self.strides[position]))
        if self.batches > 1:
            arguments.append(_SIZE(self.batches))
        queue_pointer, event = ctypes.c_void_p(queue.int_ptr), ctypes.c_void_p()
        library = _library()
        function = library.CLBlastSgemmStridedBatched if self.batches > 1 else library.CLBlastSgemm
        status = function(*arguments, ctypes.byref(queue_pointer), ctypes.byref(event))
        if status:
            raise InferenceError(f"CLBlast failed with status {status} for a product of {self.m} x {self.k} x {self.n}")
        return backend.load().Event.from_int_ptr(event.value, retain=False)


def lies_in_rows(row: int, column: int, num_rows: int, num_columns: int) -> tuple[bool, int] | None:
    """Whether a matrix with these distances between rows and columns is stored transposed, and the distance between the
    rows as stored. None if CLBlast cannot read it."""
    if column == 1 and row >= num_columns:
        return False, row
    if row == 1 and column >= num_rows:
        return True, column
    if num_rows == 1 and column == 1:
        return False, num_columns
    return None


FLOAT32 = np.dtype(np.float32)
