# Types only. The docstrings are in src/_core/_assign.pyx, where help() finds them.

from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

@final
class Costs:
    work: NDArray[np.float64]
    producer: NDArray[np.int32]
    indptr: NDArray[np.int32]
    readers: NDArray[np.int32]
    size: NDArray[np.float64]
    latency: NDArray[np.float64]
    per_unit: NDArray[np.float64]
    def __new__(
        cls,
        work: ArrayLike,
        producer: ArrayLike,
        indptr: ArrayLike,
        readers: ArrayLike,
        size: ArrayLike,
        latency: ArrayLike,
        per_unit: ArrayLike,
    ) -> Costs: ...
    def with_costs(self, work: ArrayLike, latency: ArrayLike, per_unit: ArrayLike) -> Costs: ...
    def energy(self, label: ArrayLike) -> tuple[float, float, int]: ...
    def move(self, label: ArrayLike, target: int) -> tuple[NDArray[np.int32], int]: ...

def min_cut(
    tail: ArrayLike,
    head: ArrayLike,
    capacity: ArrayLike,
    back: ArrayLike,
    excess: ArrayLike,
    reduce: bool = True,
) -> tuple[int, NDArray[np.bool_], int]: ...

@final
class ValueArrays:
    def __new__(
        cls,
        num_nodes: int,
        producer: ArrayLike,
        size: ArrayLike,
        is_constant: ArrayLike,
        is_output: ArrayLike,
        read_value: ArrayLike,
        read_node: ArrayLike,
        own: ArrayLike,
    ) -> ValueArrays: ...
    def late_order(self) -> NDArray[np.int64]: ...
    def footprint(
        self,
        subgraph_of: ArrayLike,
        device_of: ArrayLike,
        latest: ArrayLike,
        num_devices: int,
        bytes_inside: ArrayLike | None,
        known: ArrayLike,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]: ...

@final
class Ranges:
    def __new__(cls, values: ValueArrays, step_of: ArrayLike) -> Ranges: ...
    def parts_from(self, begin: int, end: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
    def need(self, begin: int, end: int) -> float: ...
    def longest(self, begin: int, limit: float) -> int: ...
