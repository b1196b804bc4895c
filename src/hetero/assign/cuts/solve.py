"""The cheapest labeling: exact for two devices; for more, expansion moves and a lower bound.

Two devices: one minimum cut. More: alpha-expansion (Y. Boykov, O. Veksler, R. Zabih, "Fast approximate energy
minimization via graph cuts", IEEE PAMI 23, 2001) from the best of several starts, device by device, until no move
helps.

The lower bound is a Lagrangian relaxation of the constraint that each node has exactly one device. With a price per
node, each device chooses its best nodes on its own, by a minimum cut (`_DeviceSubproblem`). The sum of the minima, less
the prices, is a lower bound for any prices; subgradient steps raise it.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .problem import AssignmentProblem

__all__ = ["CostAssignment", "assign_by_cost"]

_MAX_ROUNDS = 10  # of expansion moves over all devices
# Subgradient steps: _BOUND_WORK / nodes, within the limits of _BOUND_STEPS; none once the gap is below _CLOSE_ENOUGH.
_BOUND_WORK = 2_000_000
_BOUND_STEPS = (4, 40)
_CLOSE_ENOUGH = 1e-3  # relative
_ROUNDING = 1e-12  # relative rounding error of the sums in the bound


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CostAssignment:
    """A labeling, ``device_of``: int32 [num_nodes], read-only. No labeling costs less than ``lower_bound``."""

    device_of: NDArray[np.int32]
    cost: float
    lower_bound: float

    @property
    def gap(self) -> float:
        """The excess of the cost over the lower bound, relative to the bound: 0 if the cost is the minimum."""
        if self.cost <= self.lower_bound:
            return 0.0
        return self.cost / self.lower_bound - 1 if self.lower_bound > 0 else np.inf


def assign_by_cost(problem: AssignmentProblem, start: ArrayLike | None = None, *, bound: bool = True) -> CostAssignment:
    """The cheapest labeling if all nodes with a choice have the same two devices to choose from; else a good one.

    ``start``: int [num_nodes], a labeling to improve on; used for more than two devices. ``bound``: False skips the
    search for a tight lower bound, for more than two devices. Deterministic. Can be interrupted by Ctrl-C.
    """
    possible = np.isfinite(problem.work)
    cheapest = np.argmin(problem.work, axis=0).astype(np.int32)
    has_choice = possible.sum(axis=0) > 1
    devices = np.flatnonzero(possible[:, has_choice].any(axis=1)).tolist()
    if len(devices) <= 2:
        device_of = cheapest
        if devices:
            first, second = devices
            device_of = np.where(possible[first], first, cheapest).astype(np.int32)
            device_of = problem.move(device_of, second)
        cost = problem.cost(device_of).total
        return _result(device_of, cost, cost)
    starts = [cheapest] if start is None else [np.asarray(start, np.int32), cheapest]
    starts += [np.where(possible[device], device, cheapest).astype(np.int32) for device in devices]
    costs = [problem.cost(labels).total for labels in starts]
    device_of, cost = _expand(problem, starts[int(np.argmin(costs))], min(costs), devices)
    return _result(device_of, cost, _lower_bound(problem, cost, bound))


def _result(device_of: NDArray[np.int32], cost: float, lower_bound: float) -> CostAssignment:
    device_of.setflags(write=False)
    return CostAssignment(device_of, cost, min(cost, lower_bound))


def _expand(
    problem: AssignmentProblem, device_of: NDArray[np.int32], cost: float, devices: list[int]
) -> tuple[NDArray[np.int32], float]:
    """Expansion moves to each of ``devices`` in turn, until none of them helps; the labeling and its cost."""
    failures = 0  # devices since the last move that helped
    for _ in range(_MAX_ROUNDS):
        for device in devices:
            moved = problem.move(device_of, device)
            moved_cost = problem.cost(moved).total
            if moved_cost < cost:
                device_of, cost, failures = moved, moved_cost, 0
            else:
                failures += 1
            if failures == len(devices):
                return device_of, cost
    return device_of, cost


def _lower_bound(problem: AssignmentProblem, cost: float, tighten: bool) -> float:
    """A cost that no labeling goes below. ``cost``: of the best labeling known, which sets the step size."""
    work = problem.work
    best_bound = float(work.min(axis=0).sum())
    if not tighten or not np.isfinite(cost):
        return best_bound
    used_devices = np.flatnonzero(np.isfinite(work).any(axis=1)).tolist()
    subproblems = [_DeviceSubproblem(problem, device) for device in used_devices]
    # Start halfway between the two cheapest devices, where a node is about to change hands.
    cheapest_two = np.partition(work, 1, axis=0)[:2]
    price = -np.where(np.isfinite(cheapest_two[1]), cheapest_two.sum(axis=0) / 2, cheapest_two[0])
    min_steps, max_steps = _BOUND_STEPS
    step_factor = 1.0
    for _ in range(min(max_steps, max(min_steps, _BOUND_WORK // max(1, problem.num_nodes)))):
        bound, num_takers = -float(price.sum()), np.zeros(problem.num_nodes)
        for subproblem in subproblems:
            minimum, is_taken = subproblem.solve(price)
            bound += minimum
            num_takers += is_taken
        if bound > best_bound:
            best_bound = bound
        else:
            step_factor *= 0.7
        subgradient = num_takers - 1
        squared_norm = float(subgradient @ subgradient)
        if squared_norm == 0 or best_bound >= cost * (1 - _CLOSE_ENOUGH):
            break
        price = price + step_factor * (cost - bound) / squared_norm * subgradient
    return min(cost, best_bound - _ROUNDING * abs(cost))


class _DeviceSubproblem:
    """The nodes that one device would take at a price for each: a problem of two labels, 0 for elsewhere, 1 for here.

    Half of each transfer is charged to the device that sends it and half to the device that receives it, at the
    cheapest of the links to and from other devices. So all devices together pay no more than the transfer costs.
    """

    def __init__(self, problem: AssignmentProblem, device: int) -> None:
        self._problem = problem
        self._work = problem.work[device]
        possible = np.isfinite(problem.work)
        others = [other for other in np.flatnonzero(possible.any(axis=1)).tolist() if other != device]
        self._latency, self._per_unit = (
            np.array([[0, link[others, device].min()], [link[device, others].min(), 0]]) / 2
            for link in (problem.latency, problem.per_unit)
        )
        self._is_only_here = possible[device] & (possible.sum(axis=0) == 1)

    def solve(self, price: NDArray[np.float64]) -> tuple[float, NDArray[np.int32]]:
        """The minimum of work, prices and transfers, and int32 [num_nodes], 1 for each node taken."""
        cost = self._work + price  # of taking a node; infinite if the device does not support it
        # Work must not be negative: a node with a negative cost pays for staying elsewhere instead.
        constant = float(np.minimum(cost, 0).sum() + cost[self._is_only_here & (cost > 0)].sum())
        work = np.stack([np.maximum(-cost, 0), np.maximum(cost, 0)])
        work[0, self._is_only_here], work[1, self._is_only_here] = np.inf, 0
        two_labels = self._problem.with_costs(work, self._latency, self._per_unit)
        is_taken = two_labels.move(np.zeros(len(price), np.int32), 1)
        return constant + two_labels.cost(is_taken).total, is_taken
