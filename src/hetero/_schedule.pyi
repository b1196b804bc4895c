from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._assign import Costs
from ._graph import Csr

@final
class Room:
    own: NDArray[np.float64]
    bytes: NDArray[np.float64]
    def __new__(
        cls, node: ArrayLike, constant: ArrayLike, size: ArrayLike, own: ArrayLike, bytes_of_device: ArrayLike
    ) -> Room: ...

@final
class Machine:
    costs: Costs
    def __new__(
        cls,
        csr: Csr,
        costs: Costs,
        launch: ArrayLike,
        lane: ArrayLike,
        shares: ArrayLike,
        slowdown: float,
        hand_over: float,
    ) -> Machine: ...
    def run(
        self, label: ArrayLike, device_of: ArrayLike, renumber: bool
    ) -> tuple[
        NDArray[np.int32],
        NDArray[np.int32],
        NDArray[np.float64],
        NDArray[np.float64],
        float,
        NDArray[np.float64],
        NDArray[np.float64],
        float,
    ]: ...
    def runs(self, device: ArrayLike) -> tuple[NDArray[np.int32], int]: ...
    def assign(self, room: Room | None = None) -> NDArray[np.int32]: ...
    def bound(self) -> float: ...

def simulate(
    seconds: ArrayLike, lane: ArrayLike, indptr: ArrayLike, followers: ArrayLike, hand_over: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]: ...
