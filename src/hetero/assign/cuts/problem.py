"""`AssignmentProblem`: what every node costs on every device, and what it costs to bring a value to another."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ... import _assign
from ...partition import Graph

__all__ = ["AssignmentProblem", "Cost"]


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """What a labelling costs, in the unit of the problem (seconds)."""

    work: float
    transfers: float
    num_transfers: int

    @property
    def total(self) -> float:
        """Work and transfers together."""
        return self.work + self.transfers


class AssignmentProblem:
    """Nodes and devices, numbered from 0, and values, each made by one node and read by some.

    A labelling gives every node a device. It costs the work of each node on its device, and for each value one transfer
    to each device other than its producer's on which it is read, however many nodes read it there. A transfer of value
    i from device a to b costs ``latency[a, b] + size[i] * per_unit[a, b]``. Immutable; arrays are copied and checked.
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
        """The problem of these values.

        ``work``: float64 [num_devices, num_nodes], zero or more; infinite where a device does not take a node, or the
        node is pinned elsewhere. ``producer``: int [num_values], the node that makes each value. ``indptr``: int
        [num_values + 1] and ``readers``: value i is read by nodes ``readers[indptr[i]:indptr[i + 1]]``, none of them
        twice. ``size``: float64 [num_values]. ``latency``, ``per_unit``: float64 [num_devices, num_devices], their
        diagonals unused.

        Raises `PartitionError` for other shapes, costs that are negative or no numbers, and nodes that no device takes.
        """
        return cls._of(_assign.Costs(work, producer, indptr, readers, size, latency, per_unit))

    @classmethod
    def from_graph(
        cls, graph: Graph, work: ArrayLike, size: ArrayLike, latency: ArrayLike, per_unit: ArrayLike
    ) -> AssignmentProblem:
        """The problem in which each node makes one value, which its successors read. ``size``: float64 [num_nodes]."""
        producer = np.arange(graph.num_nodes, dtype=np.int32)
        return cls.from_values(work, producer, graph.indptr, graph.indices, size, latency, per_unit)

    @classmethod
    def _of(cls, costs: _assign.Costs) -> AssignmentProblem:
        problem = object.__new__(cls)
        problem._costs = costs
        return problem

    @property
    def num_nodes(self) -> int:
        """Nodes: the columns of ``work``."""
        return int(self.work.shape[1])

    @property
    def num_devices(self) -> int:
        """Devices: the rows of ``work``."""
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
        """[num_values + 1], read-only: where the readers of each value start."""
        return self._costs.indptr

    @property
    def readers(self) -> NDArray[np.int32]:
        """Read-only: the nodes that read each value."""
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
        """The same values with other costs, as in `from_values`."""
        given = (
            self.work if work is None else work,
            self.latency if latency is None else latency,
            self.per_unit if per_unit is None else per_unit,
        )
        return self._of(self._costs.with_costs(*given))

    def cost(self, device: ArrayLike) -> Cost:
        """What a labelling (int [num_nodes]) costs; infinite where a node is on a device that does not take it."""
        return Cost(*self._costs.energy(device))

    def move(self, device: ArrayLike, target: int) -> NDArray[np.int32]:
        """The least costly labelling in which every node keeps its device or goes to ``target``; of several the one
        that changes the fewest nodes. A node whose device does not take it goes.

        One minimum cut. Exact where only two devices play a part; else it never costs more than ``device``, and is
        exact where no value has several readers and no transfer costs more than a detour over ``target``.
        """
        return self._costs.move(device, target)[0]

    def __repr__(self) -> str:
        values = len(self._costs.producer)
        return f"<AssignmentProblem of {self.num_nodes} nodes, {values} values, {self.num_devices} devices>"
