"""The least costly labelling: exact for two devices; for more, expansion moves and a lower bound.

Two devices: one minimum cut. More: Boykov, Veksler and Zabih's expansion moves, from the best of some starts, device by
device until none helps. How far that can be from the least cost is told by Lagrangian relaxation: for each device
alone, which nodes would it best take, where a price per node makes the answers agree? Each answer is a minimum cut,
their sum a lower bound at any prices; subgradient steps raise it.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .problem import AssignmentProblem

__all__ = ["CostAssignment", "assign_by_cost"]

_MOST_ROUNDS = 10
# Steps that raise the bound: so many times the nodes together, within limits.
_BOUND_WORK = 2_000_000
_BOUND_STEPS = (4, 40)
_CLOSE_ENOUGH = 1e-3


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CostAssignment:
    """A labelling. ``device_of``: int32 [num_nodes], read-only. No labelling costs less than ``lower_bound``."""

    device_of: NDArray[np.int32]
    cost: float
    lower_bound: float

    @property
    def gap(self) -> float:
        """By how much the cost can exceed the least one, relative to it; 0 where it is the least."""
        if self.cost <= self.lower_bound:
            return 0.0
        return self.cost / self.lower_bound - 1 if self.lower_bound > 0 else np.inf


def assign_by_cost(problem: AssignmentProblem, start: ArrayLike | None = None, *, bound: bool = True) -> CostAssignment:
    """The least costly labelling where nodes that have a choice have it between two devices; else a good one.

    ``start``: int [num_nodes], a labelling to improve upon, for more than two devices. ``bound``: without it, the bound
    is the trivial one there. Deterministic. Can be interrupted by Ctrl-C.
    """
    possible = np.isfinite(problem.work)
    cheapest = np.argmin(problem.work, axis=0).astype(np.int32)
    devices = np.flatnonzero(possible[:, possible.sum(axis=0) > 1].any(axis=1)).tolist()
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
    device_of, cost = starts[int(np.argmin(costs))], min(costs)
    device_of, cost = _expand(problem, device_of, cost, devices)
    return _result(device_of, cost, _lower_bound(problem, device_of, cost, devices, bound))


def _result(device_of: NDArray[np.int32], cost: float, lower_bound: float) -> CostAssignment:
    device_of.setflags(write=False)
    return CostAssignment(device_of, cost, min(cost, lower_bound))


def _expand(
    problem: AssignmentProblem, device_of: NDArray[np.int32], cost: float, devices: list[int]
) -> tuple[NDArray[np.int32], float]:
    in_vain = 0
    for _ in range(_MOST_ROUNDS):
        for device in devices:
            moved = problem.move(device_of, device)
            moved_cost = problem.cost(moved).total
            if moved_cost < cost:
                device_of, cost, in_vain = moved, moved_cost, 0
            else:
                in_vain += 1
            if in_vain == len(devices):
                return device_of, cost
    return device_of, cost


def _lower_bound(
    problem: AssignmentProblem, device_of: NDArray[np.int32], cost: float, devices: list[int], tighten: bool
) -> float:
    """A cost that no labelling goes below."""
    work = problem.work
    best = float(work.min(axis=0).sum())
    if not tighten or not np.isfinite(cost):
        return best
    parts = [_PartOfDevice(problem, device) for device in range(problem.num_devices) if np.isfinite(work[device]).any()]
    two = np.partition(work, 1, axis=0)[:2]
    price = -np.where(np.isfinite(two[1]), two.sum(axis=0) / 2, two[0])
    least, most = _BOUND_STEPS
    pace = 1.0
    for _ in range(min(most, max(least, _BOUND_WORK // max(1, problem.num_nodes)))):
        bound, takers = -float(price.sum()), np.zeros(problem.num_nodes)
        for part in parts:
            value, taken = part.solve(price)
            bound += value
            takers += taken
        if bound > best:
            best = bound
        else:
            pace *= 0.7
        disagreement = takers - 1
        norm = float(disagreement @ disagreement)
        if norm == 0 or best >= cost * (1 - _CLOSE_ENOUGH):
            break
        price = price + pace * (cost - bound) / norm * disagreement
    # Sums of this many numbers are known to so many digits.
    return min(cost, best - 1e-12 * abs(cost))


class _PartOfDevice:
    """Which nodes one device would take, given a price for each: a problem of two labels, the others and the device.

    Half of what each transfer costs is charged to the device that it leaves, half to the one where it arrives, and of
    the others the cheapest counts: over all devices no more than the transfer costs.
    """

    def __init__(self, problem: AssignmentProblem, device: int) -> None:
        self._problem = problem
        self._work = problem.work[device]
        used = np.isfinite(problem.work).any(axis=1)
        others = [other for other in np.flatnonzero(used).tolist() if other != device]
        self._latency, self._per_unit = (
            np.array([[0, link[others, device].min()], [link[device, others].min(), 0]]) / 2
            for link in (problem.latency, problem.per_unit)
        )
        possible = np.isfinite(problem.work)
        self._must = possible[device] & (possible.sum(axis=0) == 1)

    def solve(self, price: NDArray[np.float64]) -> tuple[float, NDArray[np.int32]]:
        """The least cost of what the device takes, price included, and a 1 for each node taken."""
        taking = self._work + price  # infinite where it cannot
        constant = float(np.minimum(taking, 0).sum() + taking[self._must & (taking > 0)].sum())
        work = np.stack([np.maximum(-taking, 0), np.maximum(taking, 0)])
        work[0, self._must], work[1, self._must] = np.inf, 0
        two = self._problem.with_costs(work, self._latency, self._per_unit)
        taken = two.move(np.zeros(len(price), np.int32), 1)
        return constant + two.cost(taken).total, taken
