"""CPU kernels: the menu, single calls, and compiled programs."""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

def kernel_names() -> tuple[str, ...]: ...
def variants() -> tuple[str, ...]: ...
def variant() -> str: ...

@final
class Team:
    threads: int
    streams: int
    def __new__(cls, threads: int, streams: int = 1, processors: Sequence[Sequence[int]] | None = None) -> Team: ...

def call(
    name: str,
    inputs: Sequence[np.ndarray | None],
    output_specs: Sequence[tuple[Sequence[int], DTypeLike]],
    ints: Sequence[int] = (),
    floats: Sequence[float] = (),
    scratch_bytes: int = 0,
    variant: str | None = None,
    team: Team | None = None,
    memory: Callable[[int], NDArray[np.uint8]] | None = None,
) -> list[np.ndarray[Any, Any]]: ...
def arena_layout(
    first: NDArray[np.int64], last: NDArray[np.int64], size: NDArray[np.int64]
) -> tuple[NDArray[np.int64], int]: ...

@final
class Branch:
    program: Program
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    copies: tuple[tuple[int | np.ndarray[Any, Any], int], ...]
    def __init__(
        self,
        program: Program,
        inputs: Sequence[int],
        outputs: Sequence[int],
        copies: Sequence[tuple[int | np.ndarray[Any, Any], int]],
    ) -> None: ...

@final
class Program:
    constants: tuple[np.ndarray[Any, Any], ...]
    labels: tuple[object, ...]
    branches: tuple[Sequence[Branch] | None, ...]
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
    ) -> None: ...

@final
class Arena: ...

@final
class Workspace:
    def __init__(
        self, program: Program, timed: bool = False, arena: Arena | None = None, team: Team | None = None
    ) -> None: ...
    def run_again(self, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]] | None: ...
    def run(self, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]] | None: ...
    def repeat(
        self,
        bindings: Sequence[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int, int]],
        copies: Sequence[tuple[int, int]],
        counter: NDArray[np.int64],
        flag: int,
        trip: int,
        stop: int,
        seconds: float,
    ) -> tuple[int, bool]: ...
    def times(self) -> list[tuple[int, int]]: ...
