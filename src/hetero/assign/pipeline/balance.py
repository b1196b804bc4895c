"""`balance_stages`: stages of a pipeline that minimize the bottleneck, the time of the slowest stage.

1. For each of a few topological orders (`orders`), find the best cuts into intervals (`line`). This is exact on chains.
   If devices are good at different nodes, the order matters most, and a relaxation suggests it (`relaxed`).
2. From the best of these, move nodes of the slowest stage one by one (`moves`). This reaches stages that are not
   intervals of any of the orders. Large graphs skip it, because single nodes hardly matter there.
3. Try with fewer stages, down to one, if the lower bound leaves room, and use as many of them as do not slow down the
   slowest.

So all stages are used unless the bottleneck is lower without some, or a stage cannot have any node. The problem is
NP-hard in general (without edges it is multiprocessor scheduling), so the result includes a lower bound.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...partition import Graph
from ..cuts import AssignmentProblem
from .costs import StageCosts, StageTimes
from .errors import NoRoom, TooManyStages
from .line import LARGE, Capacity, Line
from .moves import moved_nodes
from .orders import other_orders, own_orders, stage_ranges
from .relaxed import Relaxation, are_proportional, share_bound

__all__ = ["StageAssignment", "balance_stages"]

# Gaps to the lower bound, relative.
_CLOSE = 0.02  # below this, no other order is tried, and no single nodes are moved
_NEAR = 1e-3  # below this, large graphs are not tried with fewer stages

_MIN_GAIN = 0.01  # relative gain that another order must bring: costs are no more precise than that
_EQUAL = 1e-9  # bottlenecks that differ by less, relatively, are equal


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StageAssignment:
    """Stages, their times, and a lower bound on the time of the slowest.

    ``stage_of``: int32 [num_nodes], read-only, not descending along edges. ``lower_bound``: seconds. ``with_all``: if
    some stages are empty, seconds of the slowest stage with all stages used, infinite if such stages were not found;
    None if all stages are used.
    """

    stage_of: NDArray[np.int32]
    times: StageTimes
    lower_bound: float
    with_all: float | None = None

    @property
    def gap(self) -> float:
        """The excess of the slowest stage over the lower bound, relative to the bound; infinite if the bound is 0."""
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

    ``capacity``: a function of a stage and a topological order that returns int64 [num_nodes + 1], not descending: for
    each position, the last position where the stage can end if it begins there (as its device's memory allows).
    Deterministic. Raises `TooManyStages` if there are fewer nodes than stages, `PipelineError` if a node cannot be in
    any stage, and `NoRoom` if no stages within ``capacity`` were found.
    """
    costs = StageCosts(graph, problem, launch, num_stages)
    k, n = costs.num_stages, graph.num_nodes
    if n < k:
        raise TooManyStages(f"{k} stages need at least {k} nodes, found {n}")
    lines, all_used, bound = _best_of_orders(costs, capacity)
    if all_used is not None and capacity is None and n <= LARGE and all_used.slowest > bound * (1 + _CLOSE):
        all_used = _Stages.of(costs, moved_nodes(costs, all_used.stage_of))
    fewer = None
    if all_used is None or all_used.slowest > bound * (1 + (_EQUAL if n <= LARGE else _NEAR)):
        fewer = _with_fewer(costs, lines, all_used, capacity)
    stages = all_used if fewer is None else fewer
    if stages is None:
        raise NoRoom(f"no {k} stages in this order were found that fit in the memory of their devices")
    with_all = None if fewer is None else np.inf if all_used is None else all_used.slowest
    stages.stage_of.setflags(write=False)
    return StageAssignment(stages.stage_of, stages.times, min(bound, stages.slowest), with_all)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Stages:
    stage_of: NDArray[np.int32]
    times: StageTimes
    slowest: float

    @classmethod
    def of(cls, costs: StageCosts, stage_of: NDArray[np.int32]) -> _Stages:
        times = costs.times(stage_of)
        return cls(stage_of, times, times.slowest)

    @property
    def uses_all(self) -> bool:
        """Whether each stage has a node."""
        return bool(np.bincount(self.stage_of, minlength=len(self.times.work)).all())


def _best_of_orders(costs: StageCosts, capacity: Capacity | None) -> tuple[list[Line], _Stages | None, float]:
    """The orders, the best stages with all stages used, None if there are none, and a lower bound.

    The order of the best stages comes first. For graphs of more than ``LARGE`` nodes, it is the only one.
    """
    every = np.ones(costs.num_stages, np.bool_)
    first, last = stage_ranges(costs.graph, costs.allowed)
    bound = costs.lower_bound()
    relaxation: Relaxation | None = None
    best_line: Line | None = None
    best: _Stages | None = None
    others: list[Line] = []
    tried = set()

    def is_close() -> bool:
        return best is not None and best.slowest <= bound * (1 + _CLOSE)

    def candidates() -> Iterator[NDArray[np.int32]]:
        """The orders to try. The relaxation is only computed if it can help: it balances work, so it does not if all
        orders balance equally well, or if the graph's own order would reach the bound without transfers."""
        nonlocal bound, relaxation
        yield from own_orders(costs.graph, first, last)
        share, weights = share_bound(costs)
        bound = max(bound, share)
        if is_close():
            return
        assert best_line is not None
        if not are_proportional(costs) and best_line.bottleneck_without_transfers() > bound * (1 + _CLOSE):
            relaxation = Relaxation.of(costs, first, last, weights)
            bound = max(bound, relaxation.lower_bound)
            yield from relaxation.orders(costs.graph)
        yield from other_orders(costs.graph, first, last, costs.work.argmin(axis=0))

    for order in candidates():
        if (data := order.tobytes()) in tried:
            continue
        tried.add(data)
        line = Line(costs, order, capacity)
        below = np.inf if best is None else best.slowest * (1 - _MIN_GAIN)
        stages = _stages_on(costs, line, every, below)
        if stages is not None and (best is None or stages.slowest < below):
            if best_line is not None:
                others.append(best_line)
            best_line, best = line, stages
        elif best_line is None:
            best_line = line
        else:
            others.append(line)
        if costs.graph.num_nodes > LARGE:
            others.clear()
        if is_close():
            break
    assert best_line is not None
    if relaxation is not None and capacity is None and not is_close():
        relaxed = _Stages.of(costs, relaxation.stage_of.astype(np.int32))
        if relaxed.uses_all and relaxed.slowest < (np.inf if best is None else best.slowest):
            best = relaxed
    return [best_line, *others], best, bound


def _stages_on(costs: StageCosts, line: Line, required: NDArray[np.bool_], below: float = np.inf) -> _Stages | None:
    """The best stages on one order; see `Line.best_cuts`."""
    cuts = line.best_cuts(required, below)
    return None if cuts is None else _Stages.of(costs, line.stage_of(cuts))


def _with_fewer(
    costs: StageCosts, lines: list[Line], all_used: _Stages | None, capacity: Capacity | None
) -> _Stages | None:
    """The best stages if some may be empty, with as many used as do not slow down the slowest.

    None if they are not faster than ``all_used``. ``lines``: the orders to try. The best order with all stages, which
    comes first, is not always the best with fewer.
    """
    n, required = costs.graph.num_nodes, np.zeros(costs.num_stages, np.bool_)
    line, best = lines[0], _stages_on(costs, lines[0], required)
    for other in lines[1:]:
        below = np.inf if best is None else best.slowest * (1 - _MIN_GAIN)
        stages = _stages_on(costs, other, required, below)
        if stages is not None and stages.slowest < below:
            line, best = other, stages
    if best is None:
        return None
    if capacity is None and len(best.stage_of) <= LARGE:
        best = _Stages.of(costs, moved_nodes(costs, best.stage_of))
    for stage in range(costs.num_stages):
        if costs.work[stage].sum() < best.slowest and (capacity is None or capacity(stage, line.order)[0] >= n):
            alone = _Stages.of(costs, np.full(n, stage, np.int32))
            best = alone if alone.slowest < best.slowest * (1 - _EQUAL) else best
    if all_used is not None and not best.slowest < all_used.slowest * (1 - _EQUAL):
        return None
    for stage in range(costs.num_stages):
        required[:] = np.bincount(best.stage_of, minlength=costs.num_stages) > 0
        if not required[stage]:
            required[stage] = True
            with_stage = _stages_on(costs, line, required)
            if with_stage is not None and with_stage.slowest <= best.slowest * (1 + _EQUAL):
                best = with_stage
    return best
