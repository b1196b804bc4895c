# Types only. The docstrings are in src/_core/_partition.pyx, where help() finds them.

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._graph import Csr

RULES: dict[int, str]
ACTIONS: dict[int, str]
POLICY_NUMBER: dict[str, int]

def device_numbers(csr: Csr, device: ArrayLike) -> NDArray[np.uint8]: ...
def partition(
    csr: Csr, policy: str, device: ArrayLike, weight: NDArray[np.float64] | None, thorough: bool = True
) -> tuple[NDArray[np.int32], NDArray[np.int32], int, float, bool]: ...
def lower_bound(csr: Csr, device: ArrayLike) -> int: ...
def documented_steps(csr: Csr, device: ArrayLike) -> list[tuple[str, int]]: ...
def limit(
    csr: Csr, device: ArrayLike, weight: NDArray[np.float64] | None, label: ArrayLike, max_nodes: int, across: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32], int, float]: ...
def fall_back(
    device: NDArray[np.uint8],
    label: ArrayLike,
    count: int,
    min_nodes: NDArray[np.int64],
    allowed: NDArray[np.uint8],
) -> bool: ...
def members(label: ArrayLike, count: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]: ...
def check(
    csr: Csr, device: ArrayLike, label: ArrayLike, maximal: bool, ordered: bool
) -> tuple[str, int, int, NDArray[np.int32]] | None: ...
