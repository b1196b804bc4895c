# Types only. The docstrings are in src/_core/_program.pyx, where help() finds them.

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

ARENA: int
CONSTANT: int
INPUT: int
OUTPUT: int
LATE: int

def arena_layout(
    first: NDArray[np.int64], last: NDArray[np.int64], size: NDArray[np.int64]
) -> tuple[NDArray[np.int64], int]: ...

@final
class Sizes:
    open_axes: tuple[tuple[bool, ...], ...]
    tables: tuple[tuple[Callable[..., NDArray[Any]], Sequence[int], int], ...]
    reads_elements: bool
    def __init__(
        self,
        steps: NDArray[np.int32],
        num_registers: int,
        constants: Sequence[tuple[int, int | float]],
        open_axes: Sequence[Sequence[bool]],
        buffers: Sequence[tuple[int, int, int]],
        places: Sequence[tuple[int, int, int]],
        outputs: Sequence[int],
        tables: Sequence[tuple[Callable[..., NDArray[Any]], Sequence[int], int]],
        num_tensors: int,
        reads_elements: bool,
    ) -> None: ...

@final
class Program:
    sizes: Sizes | None
    first_call: int
    end_call: int
    constants: tuple[np.ndarray[Any, Any], ...]
    labels: tuple[object, ...]
    num_inputs: int
    num_outputs: int
    num_calls: int
    arena_bytes: int
    input_specs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    output_specs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    def __init__(
        self,
        tensors: Sequence[tuple[DTypeLike, Sequence[int], int, int]],
        calls: Sequence[tuple[Any, ...]],
        constants: Sequence[np.ndarray[Any, Any]],
        inputs: Sequence[tuple[Sequence[int], DTypeLike]],
        outputs: Sequence[tuple[Sequence[int], DTypeLike]],
        arena_bytes: int,
        sizes: Sizes | None = None,
        first_call: int = 0,
        end_call: int | None = None,
    ) -> None: ...
