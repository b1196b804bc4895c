# Types only. The docstrings are in src/_core/_workspace.pyx, where help() finds them.

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from ._kernels import Team
from ._program import Program

@final
class Arena: ...

@final
class Room:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    used: int
    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None: ...

def claim(
    past: np.ndarray[Any, Any], axis: int, shape: tuple[int, ...], dtype: np.dtype[Any], added: int
) -> np.ndarray[Any, Any]: ...

@final
class StopFlag:
    def set(self) -> None: ...
    def set_after(self, questions: int) -> None: ...
    def clear(self) -> None: ...

@final
class Workspace:
    def __init__(
        self,
        program: Program,
        timed: bool = False,
        arena: Arena | None = None,
        team: Team | None = None,
        stop: StopFlag | None = None,
        appends: Sequence[tuple[int, int, int, int]] = (),
    ) -> None: ...
    def run_again(self, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]] | None: ...
    def run(
        self, inputs: Sequence[np.ndarray[Any, Any]], places: Sequence[np.ndarray[Any, Any]] | None = None
    ) -> list[np.ndarray[Any, Any]] | None: ...
    def fits(self, inputs: Sequence[np.ndarray[Any, Any]]) -> bool: ...
    def shape(self, tensor: int) -> tuple[int, ...]: ...
    @property
    def input_specs(self) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]: ...
    @property
    def output_specs(self) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]: ...
    def times(self) -> list[tuple[int, int]]: ...

@final
class Iterations:
    iteration: int
    def __init__(
        self,
        workspace: Workspace,
        reads: Sequence[int],
        results: Sequence[tuple[np.ndarray[Any, Any] | int, tuple[int, ...] | int | None]],
        dtypes: Sequence[np.dtype[Any]],
        is_loop: bool,
        num_carried: int,
        num_slices: int,
        num_values: int,
    ) -> None: ...
    def run(
        self,
        values: list[np.ndarray[Any, Any]],
        steps: Sequence[int],
        stacks: Sequence[Any],
        iteration: int,
        stop: int,
    ) -> bool: ...

def iterate(
    run: Callable[[list[Any]], Sequence[Any]],
    values: list[Any],
    is_loop: bool,
    num_carried: int,
    num_slices: int,
    steps: Sequence[int],
    stacks: Sequence[Any],
    iteration: int,
    stop: int,
    cancellation: Any,
) -> None: ...

@final
class Route:
    done: int
    values: list[Any] | None
    def __init__(
        self,
        steps: tuple[
            tuple[
                Workspace,
                tuple[int, ...],
                tuple[int, ...],
                tuple[tuple[int, np.ndarray[Any, Any]], ...],
                tuple[tuple[int, int, tuple[int, ...] | int], ...],
                tuple[Any, ...] | None,
                tuple[int, ...],
            ],
            ...,
        ],
        num_slots: int,
        outputs: tuple[int, ...] | None,
        cancellation: Any,
    ) -> None: ...
    def run(self, inputs: Sequence[Any], host: Callable[[int, list[Any]], Sequence[Any]]) -> list[Any] | None: ...

@final
class BoundSteps:
    def __init__(
        self,
        workspaces: Sequence[Workspace],
        devices: Sequence[int],
        reads: Sequence[Sequence[int]],
        fills: Sequence[Sequence[int]],
        waits_for: Sequence[int],
        followers: Sequence[Sequence[int]],
        outputs: Sequence[int],
        values: Mapping[int, np.ndarray[Any, Any]],
        team: Team,
    ) -> None: ...
    def run(self, slots: Sequence[Any]) -> list[np.ndarray[Any, Any]] | None: ...
    def least_seconds(self) -> list[float]: ...

def physical_memory() -> int: ...
