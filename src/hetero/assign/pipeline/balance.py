"""`balance_stages`: the stages of a pipeline whose slowest one is least.

1. For each of a few topological orders (`orders`), the best intervals (`line`): exact on chains.
2. From the best of these, nodes of the slowest stage are moved one by one (`moves`), which reaches
   stages that are intervals of none of the orders; not in large graphs, in which single nodes do not matter.

All stages are used unless that makes the slowest one slower, or a device takes no node that could be its. In general,
finding the least bottleneck is NP-hard (it is bin packing, where no edges are), so the result comes with a lower bound.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...partition import Graph
from ..cuts import AssignmentProblem
from .costs import StageCosts, StageTimes
from .errors import NoRoom, TooManyStages
from .line import LARGE, Capacity, Line
from .moves import moved_nodes
from .orders import orders, stage_ranges

__all__ = ["StageAssignment", "balance_stages"]

_CLOSE = 0.02  # to the lower bound: no other order is tried, and no single nodes are moved
_LEAST_GAIN = (
    0.01  # of another order: costs are not known better, and who exported the model chose an order for a reason
)
_NEAR = 1e-3  # to the lower bound: in large graphs, fewer stages are not tried
_EQUAL = 1e-9


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StageAssignment:
    """A stage per node, what the stages take, and what no others can go below.

    ``stage_of``: int32 [num_nodes], read-only, rising or level along edges. ``with_all``: the slowest stage if all
    stages were used, where that is known to be slower or impossible (infinite); None where all are used.
    """

    stage_of: NDArray[np.int32]
    times: StageTimes
    lower_bound: float
    with_all: float | None = None

    @property
    def gap(self) -> float:
        """By how much the slowest stage can exceed the least possible, relative to it."""
        slowest = self.times.slowest
        if slowest <= self.lower_bound:
            return 0.0
        return slowest / self.lower_bound - 1 if self.lower_bound > 0 else np.inf


def balance_stages(
    graph: Graph,
    problem: AssignmentProblem,
    launch: ArrayLike,
    num_stages: int | None = None,
    *,
    capacity: Capacity | None = None,
) -> StageAssignment:
    """Stages, one for each of the first ``num_stages`` devices of ``problem``, in that order; see `StageCosts`.

    ``capacity``: of a stage and a topological order, int64 [num_nodes + 1], not falling: for each position the last one
    at which the stage can end if it begins there (what its device's memory allows). Deterministic. Raises
    `TooManyStages` if there are fewer nodes than stages, `PipelineError` if there are no such stages, and `NoRoom` if
    none are found within ``capacity``.
    """
    costs = StageCosts(graph, problem, launch, num_stages)
    k, n = costs.num_stages, graph.num_nodes
    if n < k:
        raise TooManyStages(f"{k} stages are more than the graph has nodes, {n}: each stage needs one")
    first, last = stage_ranges(graph, costs.allowed)
    bound = costs.lower_bound()
    best: _Found | None = None
    every = np.ones(k, np.bool_)
    line = None
    for order in orders(graph, first, last):
        tried = Line(costs, order, capacity)
        found = _of_line(costs, tried, every, np.inf if best is None else best.slowest * (1 - _LEAST_GAIN))
        if line is None or (found is not None and (best is None or found.slowest < best.slowest * (1 - _LEAST_GAIN))):
            line, best = tried, found if found is not None else best
        if best is not None and best.slowest <= bound * (1 + _CLOSE):
            break
    assert line is not None
    if best is not None and capacity is None and n <= LARGE and best.slowest > bound * (1 + _CLOSE):
        best = _Found.of(costs, moved_nodes(costs, best.stage_of))
    fewer = None
    if best is None or best.slowest > bound * (1 + (_EQUAL if n <= LARGE else _NEAR)):
        fewer = _with_fewer(costs, line, best, capacity)
    if fewer is None:
        if best is None:
            raise NoRoom(f"no {k} stages in this order were found that fit into the memory of their devices")
        return _assignment(best, bound, None)
    return _assignment(fewer, bound, np.inf if best is None else best.slowest)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Found:
    stage_of: NDArray[np.int32]
    times: StageTimes
    slowest: float

    @classmethod
    def of(cls, costs: StageCosts, stage_of: NDArray[np.int32]) -> _Found:
        times = costs.times(stage_of)
        return cls(stage_of, times, times.slowest)


def _of_line(costs: StageCosts, line: Line, required: NDArray[np.bool_], below: float = np.inf) -> _Found | None:
    cuts = line.best_cuts(required, below)
    return None if cuts is None else _Found.of(costs, line.stage_of(cuts))


def _with_fewer(costs: StageCosts, line: Line, best: _Found | None, capacity: Capacity | None) -> _Found | None:
    """The best if stages may be empty, with as many used as do not make it slower; None if all should be used."""
    required = np.zeros(costs.num_stages, np.bool_)
    found = _of_line(costs, line, required)
    if found is None:
        return None
    if capacity is None and len(found.stage_of) <= LARGE:
        found = _Found.of(costs, moved_nodes(costs, found.stage_of))
    if best is not None and not found.slowest < best.slowest * (1 - _EQUAL):
        return None
    for stage in range(costs.num_stages):
        required[:] = np.bincount(found.stage_of, minlength=costs.num_stages) > 0
        if not required[stage]:
            required[stage] = True
            more = _of_line(costs, line, required)
            if more is not None and more.slowest <= found.slowest * (1 + _EQUAL):
                found = more
    return found


def _assignment(found: _Found, bound: float, with_all: float | None) -> StageAssignment:
    found.stage_of.setflags(write=False)
    return StageAssignment(found.stage_of, found.times, min(bound, found.slowest), with_all)
