"""Assignments within memory limits: nodes that do not fit on a device move on to another that supports them.

Problem. Given are devices 0 .. k - 1 with limits in bytes, the nodes that each may have, and an assignment
``device_of`` int32 [num_nodes]. Change the assignment so that no device needs more than its limit. The need of a device
is known only for a partition (`footprint`), so each assignment is partitioned and counted. Deciding whether one fits is
NP-hard (bin packing).

Algorithm. A greedy heuristic, similar to next-fit bin packing:
1. If the given assignment fits, keep it.
2. Number the nodes in an order in which most values are used soon (`late_order`), and fill the devices one after the
   other (`filling`). Filling estimates needs without a partition.
3. Partition the result and count. If a device exceeds its limit, lower its target by the excess and fill again.
4. If that does not lead to a fit, or the lower target moves no further node, fill in the next of a few ways (`_WAYS`).

It can fail although an assignment fits. `prove_infeasible` proves for some problems that none does.

Cost: O(devices * (nodes + reads)) and one partition for each round; at most `_MAX_ROUNDS` rounds for each way. By cost,
filling repeats up to 2 * devices times in each round.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...partition import Partition
from .filling import Filling
from .footprint import Footprint, footprint
from .lifetimes import bytes_alone
from .order import late_order
from .values import Values

__all__ = ["Cut", "Fit", "InfeasibilityProof", "cut_and_count", "fit", "prove_infeasible"]

_MAX_ROUNDS = 5
_WAYS = ((0.1, False), (0.0, False), (0.0, True))
"""Ways to fill, tried in this order: the part of a device's bytes that may stay empty for a better cut, and whether the
nodes that only devices with a limit may have are kept before others."""
_MAX_DEVICES = 10
"""`prove_infeasible` tries all subsets of the devices with a limit, up to this number of devices."""

Cut = Callable[[NDArray[np.int32]], Partition]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """An assignment, its partition, and the memory that it needs.

    ``device_of``: int32 [num_nodes], read-only. ``excess``: float64 [k], bytes above each device's limit, 0 if the
    limit holds.
    """

    device_of: NDArray[np.int32]
    partition: Partition
    needs: Footprint
    excess: NDArray[np.float64]

    @property
    def fits(self) -> bool:
        return not self.excess.any()


@dataclasses.dataclass(frozen=True, slots=True)
class InfeasibilityProof:
    """A reason why no assignment fits: only ``devices`` can have ``bytes`` bytes, and their limits add up to ``limit``.

    Without ``node``, the bytes are constants. With ``node``, they are all values that this node reads and makes, and
    ``limit`` is the largest limit of the devices.
    """

    devices: tuple[int, ...]
    bytes: float
    limit: float
    node: int | None = None


def fit(
    values: Values,
    device_of: NDArray[np.int32],
    allowed: NDArray[np.bool_],
    limits: NDArray[np.float64],
    cut: Cut,
    work: NDArray[np.float64] | None = None,
    kept_first: NDArray[np.bool_] | None = None,
) -> Fit:
    """``device_of`` itself if it fits; otherwise the first assignment found that fits, or the minimum excess found.

    ``device_of``: int32 [num_nodes], made read-only. ``allowed``: bool [k, num_nodes], which device may have which
    node. ``limits``: float64 [k], bytes, infinite without a limit. ``cut``: partitions an assignment. ``work``: float64
    [k, num_nodes], costs: a node moves on to the device where it costs least; None: to the next device by number.
    ``kept_first``: bool [num_nodes], nodes that devices keep before others. Deterministic.
    """
    best = cut_and_count(values, device_of, limits, cut)
    if best.fits:
        return best
    order = late_order(values)
    in_order = values.renumbered(order)
    start, allowed_in_order = device_of[order], allowed[:, order]
    work_in_order = None if work is None else work[:, order]
    kept_in_order = np.zeros(len(order), np.bool_) if kept_first is None else kept_first[order]
    is_scarce = ~allowed_in_order[np.isinf(limits)].any(axis=0)
    for slack, keep_scarce in _WAYS:
        kept = kept_in_order | is_scarce if keep_scarce else kept_in_order
        filling = Filling(in_order, allowed_in_order, limits, work_in_order, slack, kept)
        target = limits.copy()
        before = start
        for _ in range(_MAX_ROUNDS):
            filled = filling.fill(start, target)
            if np.array_equal(filled, before):
                break  # the lower target moved no further node
            before = filled
            candidate_device_of = np.empty_like(device_of)
            candidate_device_of[order] = filled
            candidate = cut_and_count(values, candidate_device_of, limits, cut)
            if candidate.excess.sum() < best.excess.sum():
                best = candidate
            if candidate.fits:
                return candidate
            is_over = candidate.excess > 0
            if not filling.can_move(filled)[is_over].any():
                break
            target = np.where(is_over, np.minimum(target, filling.estimate) - candidate.excess, target)
    return best


def cut_and_count(values: Values, device_of: NDArray[np.int32], limits: NDArray[np.float64], cut: Cut) -> Fit:
    partition = cut(device_of)
    needs = footprint(values, partition.subgraph_of, partition.device_of, len(limits))
    device_of.setflags(write=False)
    return Fit(device_of, partition, needs, np.maximum(needs.total - limits, 0.0))


def prove_infeasible(
    values: Values, allowed: NDArray[np.bool_], limits: NDArray[np.float64]
) -> InfeasibilityProof | None:
    """A proof that no assignment fits, or None, which proves nothing.

    Two kinds are tried: a node that needs more on its own than any of its devices may have; and a set of devices whose
    limits together are less than the constants of the nodes that only these devices may have.
    """
    alone = bytes_alone(values, len(limits))
    homeless = np.flatnonzero(~(allowed & (alone <= limits[:, None])).any(axis=0))
    if len(homeless):
        node = int(homeless[0])
        devices = tuple(np.flatnonzero(allowed[:, node]).tolist())
        largest = max(devices, key=lambda device: float(limits[device]))
        return InfeasibilityProof(devices, float(alone[largest, node]), float(limits[largest]), node)
    limited = np.flatnonzero(np.isfinite(limits)).tolist()
    if len(limited) > _MAX_DEVICES:
        return None
    is_constant = values.is_constant[values.read_value]
    constant, reader = values.read_value[is_constant], values.read_node[is_constant]
    for count in range(1, len(limited) + 1):
        for devices in itertools.combinations(limited, count):
            is_other = np.ones(len(limits), np.bool_)
            is_other[list(devices)] = False
            only_here: NDArray[np.bool_] = np.logical_not(allowed[is_other].any(axis=0))
            constants = np.unique(constant[only_here[reader]])
            total = float(values.bytes[constants].sum() + values.own[only_here].sum())
            limit = float(limits[list(devices)].sum())
            if total > limit:
                return InfeasibilityProof(devices, total, limit)
    return None
