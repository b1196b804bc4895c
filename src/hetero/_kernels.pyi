# Types only. The docstrings are in src/_core/_kernels.pyx, where help() finds them.

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

__pyx_capi__: dict[str, object]  # what the other compiled modules call

def kernel_names() -> tuple[str, ...]: ...
def in_place(name: str) -> tuple[tuple[int, ...], bool]: ...
def bytewise_operand(name: str) -> int: ...
def constant(name: str) -> int: ...
def variants(*kernels: str) -> tuple[str, ...]: ...
def variant() -> str: ...
def has_tiles() -> bool: ...
def range_of(array: np.ndarray[Any, Any]) -> tuple[int, int]: ...
def apart(results: Sequence[Any], inputs: Sequence[object]) -> list[Any] | None: ...

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
    scratch_bytes: int | None = None,
    variant: str | None = None,
    team: Team | None = None,
    memory: Callable[[int], NDArray[np.uint8]] | None = None,
) -> list[np.ndarray[Any, Any]]: ...
