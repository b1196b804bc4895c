"""`AssignmentProblem`: the cost of each node on each device, and of each transfer of a value between devices."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ... import _assign
from ...partition import Graph

__all__ = ["AssignmentProblem", "Cost"]


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a labeling, in the unit of the problem (seconds)."""

    work: float
    transfers: float
    num_transfers: int

    @property
    def total(self) -> float:
        """The sum of work and transfers."""
        return self.work + self.transfers


class AssignmentProblem:
    """Costs of assigning nodes to devices, both numbered from 0. One node makes each value, and any number read it.

    A labeling gives each node a device. It costs the work of each node on its device, and for each value one transfer
    to each other device where nodes read it, however many do. A transfer of value i from device a to b costs
    ``latency[a, b] + size[i] * per_unit[a, b]``. Immutable; arrays are copied and checked.
    """

    __slots__ = ("_costs",)

    _costs: _assign.Costs

    def __init__(self) -> None:
        raise TypeError("use AssignmentProblem.from_values or AssignmentProblem.from_graph")

    @classmethod
    def from_values(
        cls,
        work: ArrayLike,
        producer: ArrayLike,
        indptr: ArrayLike,
        readers: ArrayLike,
        size: ArrayLike,
        latency: ArrayLike,
        per_unit: ArrayLike,
    ) -> AssignmentProblem:
        """A problem from arrays.

        ``work``: float64 [num_devices, num_nodes], not negative; infinite if a device does not support a node, or the
        node is pinned to another. ``producer``: int [num_values], the node that makes each value. ``indptr``: int
        [num_values + 1] and ``readers``: int [num_reads]: nodes ``readers[indptr[i]:indptr[i + 1]]`` read value i, each
        listed once. ``size``: float64 [num_values]. ``latency``, ``per_unit``: float64 [num_devices, num_devices], with
        unused diagonals.

        Raises `PartitionError` for wrong shapes, costs that are negative or NaN, and nodes that no device supports.
        """
        return cls._of(_assign.Costs(work, producer, indptr, readers, size, latency, per_unit))

    @classmethod
    def from_graph(
        cls, graph: Graph, work: ArrayLike, size: ArrayLike, latency: ArrayLike, per_unit: ArrayLike
    ) -> AssignmentProblem:
        """A problem in which each node makes one value, read by its successors. ``size``: float64 [num_nodes]."""
        producer = np.arange(graph.num_nodes, dtype=np.int32)
        return cls.from_values(work, producer, graph.indptr, graph.indices, size, latency, per_unit)

    @classmethod
    def _of(cls, costs: _assign.Costs) -> AssignmentProblem:
        problem = object.__new__(cls)
        problem._costs = costs
        return problem

    @property
    def num_nodes(self) -> int:
        """The number of nodes, the columns of ``work``."""
        return int(self.work.shape[1])

    @property
    def num_devices(self) -> int:
        """The number of devices, the rows of ``work``."""
        return int(self.work.shape[0])

    @property
    def work(self) -> NDArray[np.float64]:
        """[num_devices, num_nodes], read-only."""
        return self._costs.work

    @property
    def producer(self) -> NDArray[np.int32]:
        """[num_values], read-only: the node that makes each value."""
        return self._costs.producer

    @property
    def indptr(self) -> NDArray[np.int32]:
        """[num_values + 1], read-only: where the readers of each value begin in ``readers``."""
        return self._costs.indptr

    @property
    def readers(self) -> NDArray[np.int32]:
        """[num_reads], read-only: the nodes that read each value."""
        return self._costs.readers

    @property
    def size(self) -> NDArray[np.float64]:
        """[num_values], read-only."""
        return self._costs.size

    @property
    def latency(self) -> NDArray[np.float64]:
        """[num_devices, num_devices], read-only."""
        return self._costs.latency

    @property
    def per_unit(self) -> NDArray[np.float64]:
        """[num_devices, num_devices], read-only."""
        return self._costs.per_unit

    def with_costs(
        self, work: ArrayLike | None = None, latency: ArrayLike | None = None, per_unit: ArrayLike | None = None
    ) -> AssignmentProblem:
        """The same values with other costs, as in `from_values`. None keeps a cost."""
        costs = (
            self.work if work is None else work,
            self.latency if latency is None else latency,
            self.per_unit if per_unit is None else per_unit,
        )
        return self._of(self._costs.with_costs(*costs))

    def cost(self, device: ArrayLike) -> Cost:
        """The cost of a labeling, int [num_nodes]; infinite if a node is on a device that does not support it."""
        return Cost(*self._costs.energy(device))

    def move(self, device: ArrayLike, target: int) -> NDArray[np.int32]:
        """The cheapest labeling in which each node keeps its device or moves to ``target`` (an expansion move).

        Among equally cheap ones, the labeling that changes the fewest nodes. A node whose device does not support it
        moves if ``target`` does. One minimum cut. Exact if only two devices are involved. Otherwise the result never
        costs more than ``device``, and is exact if each value has one reader and no transfer costs more than a detour
        over ``target``.
        """
        return self._costs.move(device, target)[0]

    def __repr__(self) -> str:
        values = len(self._costs.producer)
        return f"<AssignmentProblem of {self.num_nodes} nodes, {values} values, {self.num_devices} devices>"
