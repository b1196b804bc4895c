"""Assignments within limits of memory: what does not fit on a device goes on to another that takes it.

Devices are filled one after the other, in topological order (`late_order`): a device keeps the longest beginning of its
nodes that fits beside those that can be nowhere else, and hands on the rest, so that one cut arises where it became
full; near the limit the place is chosen where the fewest bytes cross. Where large values at the beginning would leave
most of a device empty, it keeps a later range (`RangeMemory` counts both). How much a beginning needs beside nodes that
stay is bounded by one pass over its reads. What a device really needs only the cut graph tells, so each result is cut
and counted, and where it is too much, filled again to less. O(devices * reads) a round.
Filling is a rule, no search: where memory is scarce it may find nothing although there is something. `prove_infeasible`
tells where there is nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...base.grouped import group_max, group_min
from ...partition import Partition
from .footprint import Footprint, footprint
from .order import late_order
from .ranges import RangeMemory
from .values import Values

__all__ = ["Fit", "InfeasibilityProof", "fit", "prove_infeasible"]

_ROUNDS = 5  # in which a device is filled to less, since the cut graph needs more than its nodes in a row
_WAYS = ((0.1, False), (0.0, False), (0.0, True))
"""Ways to fill, tried in this order: the part of a device's memory that may stay empty for a better cut, and whether
nodes that no device without a limit takes are kept before others."""
_MOST_STARTS = 16  # places tried where a device's range begins after its first node
_MOST_DEVICES = 10  # whose subsets `prove_infeasible` looks at

Cut = Callable[[NDArray[np.int32]], Partition]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """An assignment, its cut and what it needs. ``device_of``: int32 [num_nodes], read-only. ``excess``: float64 [k],
    bytes above each device's limit, 0 where it holds."""

    device_of: NDArray[np.int32]
    partition: Partition
    needs: Footprint
    excess: NDArray[np.float64]

    @property
    def fits(self) -> bool:
        return not self.excess.any()


@dataclasses.dataclass(frozen=True, slots=True)
class InfeasibilityProof:
    """Why no assignment can fit: constants (or with ``node`` all that this node touches) of ``bytes``, which only
    ``devices`` can have, that together have ``limit``."""

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
    """The assignment itself where it fits, else the first that filling finds, else the one with the least excess.

    ``device_of``: int32 [num_nodes]. ``allowed``: bool [k, num_nodes], which device may have which node. ``limits``:
    float64 [k], infinite for none. ``cut``: partitions the graph. ``work``: float64 [k, num_nodes]: nodes go on to the
    device where they cost least; without it, to the next one by number. ``kept_first``: bool [num_nodes], nodes that
    devices keep before others. Deterministic.
    """
    best = _cut_and_count(values, device_of, limits, cut)
    if best.fits:
        return best
    order = late_order(values)
    in_order = values.renumbered(order)
    start, possible = device_of[order], allowed[:, order]
    kept_anyway = np.zeros(len(order), np.bool_) if kept_first is None else kept_first[order]
    scarce = ~possible[np.isinf(limits)].any(axis=0)
    for slack, scarce_first in _WAYS:
        kept = kept_anyway | scarce if scarce_first else kept_anyway
        filling = _Filling(in_order, possible, limits, None if work is None else work[:, order], slack, kept)
        target = limits.copy()
        for _ in range(_ROUNDS):
            filled = filling.fill(start, target)
            assigned = np.empty_like(device_of)
            assigned[order] = filled
            found = _cut_and_count(values, assigned, limits, cut)
            if found.excess.sum() < best.excess.sum():
                best = found
            if found.fits:
                return found
            over = found.excess > 0
            if not filling.has_choice(filled)[over].any():
                break
            target = np.where(over, np.minimum(target, filling.estimate) - found.excess, target)
    return best


def _cut_and_count(values: Values, device_of: NDArray[np.int32], limits: NDArray[np.float64], cut: Cut) -> Fit:
    partition = cut(device_of)
    needs = footprint(values, partition.subgraph_of, partition.device_of, len(limits))
    device_of.setflags(write=False)
    return Fit(device_of, partition, needs, np.maximum(needs.total - limits, 0.0))


class _Filling:
    """Fills devices to their limits, in the order of the nodes' numbers."""

    def __init__(
        self,
        values: Values,
        allowed: NDArray[np.bool_],
        limits: NDArray[np.float64],
        work: NDArray[np.float64] | None,
        slack: float,
        kept_first: NDArray[np.bool_],
    ) -> None:
        self._values = values
        self._work = work
        self._slack = slack
        self._alone = alone = bytes_alone(values)
        self._possible = allowed & (alone <= limits[:, None])
        self._kept_first = kept_first
        self.estimate = np.full(len(limits), np.inf)
        """Bytes that each device was taken to need when it was filled last."""
        self._last_use = group_max(values.read_node, values.read_value, len(values.producer), -1)
        np.maximum(self._last_use, values.producer, out=self._last_use)
        self._last_use[values.is_output] = values.num_nodes
        is_constant = values.is_constant[values.read_value]
        self._constant_reads = values.read_value[is_constant], values.read_node[is_constant]
        self._other_reads = values.read_value[~is_constant], values.read_node[~is_constant]

    def fill(self, device_of: NDArray[np.int32], target: NDArray[np.float64]) -> NDArray[np.int32]:
        """int32 [num_nodes]: the devices after each with a limit was filled to its ``target``."""
        device_of = device_of.copy()
        count, n = self._possible.shape
        tried = np.zeros((count, n), np.bool_)
        tried[device_of, np.arange(n)] = True
        # By priority nodes only go on, so one sweep is all; by cost they may come to a device that was filled before.
        sweeps = 1 if self._work is None else 2 * count
        for _ in range(sweeps):
            moved = False
            for device in np.flatnonzero(np.isfinite(target)).tolist():
                members = np.flatnonzero(device_of == device)
                leaving = self._leaving(members, device, tried, float(target[device]))
                if len(leaving):
                    after = self._next(leaving, device, tried)
                    device_of[leaving] = after
                    tried[after, leaving] = True
                    moved = True
            if not moved:
                break
        return device_of

    def has_choice(self, device_of: NDArray[np.int32]) -> NDArray[np.bool_]:
        """bool [k]: whether a node of the device could go on."""
        tried = np.zeros(self._possible.shape, np.bool_)
        tried[device_of, np.arange(len(device_of))] = True
        return np.array(
            [
                bool((self._next(np.flatnonzero(device_of == device), device, tried) >= 0).any())
                for device in range(len(tried))
            ]
        )

    def _next(self, nodes: NDArray[np.intp], device: int, tried: NDArray[np.bool_]) -> NDArray[np.int32]:
        """int32: where each node goes on to, -1 where there is nothing left."""
        after = np.full(len(nodes), -1, np.int32)
        if self._work is None:
            for other in range(len(tried) - 1, device, -1):
                after[self._possible[other, nodes]] = other
            return after
        left = self._possible[:, nodes] & ~tried[:, nodes]
        cheapest = np.argmin(np.where(left, self._work[:, nodes], np.inf), axis=0)
        some = left.any(axis=0)
        after[some] = cheapest[some]
        # An infinite cost where the node is possible does not occur, but must not send it where it is not.
        after[some & ~left[cheapest, np.arange(len(nodes))]] = -1
        return after

    def _leaving(
        self, members: NDArray[np.intp], device: int, tried: NDArray[np.bool_], limit: float
    ) -> NDArray[np.intp]:
        """The nodes that go on, ascending."""
        movable = self._next(members, device, tried) >= 0
        if movable.all() and not self._kept_first[members].any():
            if not len(members):
                return members
            going, self.estimate[device] = self._outside_window(members, limit)
            return going
        too_large = movable & ~self._possible[device, members]
        leaving: NDArray[np.intp] = members[too_large]
        members, movable = members[~too_large], movable[~too_large]
        if not len(members) or not movable.any():
            return leaving
        stays = ~movable
        if self._kept_first[members].any():
            kept = stays | self._kept_first[members]
            needs, _ = self._needs(members, kept)
            if needs[0] <= limit:
                stays = kept
        rest, self.estimate[device] = self._not_kept(members, stays, limit)
        together: NDArray[np.intp] = np.union1d(leaving, rest)
        return together

    def _outside_window(self, members: NDArray[np.intp], limit: float) -> tuple[NDArray[np.intp], float]:
        """What goes on if all of ``members`` may, and a range of them is kept; and what that needs.

        It is the longest beginning, unless one that begins later, after nodes that are too large or among which too
        much is alive, has more than twice as many nodes.
        """
        part = _part_of(self._values, members)
        ranges = RangeMemory(part)
        begin, end = 0, ranges.longest(0, limit)
        if 2 * end < len(members):
            for later in self._starts(part, limit):
                reached = ranges.longest(later, limit)
                if reached - later > (2 * end if begin == 0 else end - begin):
                    begin, end = ranges.reach_back(reached, limit), reached
        needs = ranges.needs_from(begin, end)
        if self._slack and end > begin and end < len(members):
            near = np.flatnonzero(needs >= (1 - self._slack) * needs[-1]) + 1
            crossing = _crossing(part, begin)[begin + near]
            end = begin + int(near[len(near) - 1 - np.argmin(crossing[::-1])])
        return np.concatenate([members[:begin], members[end:]]), float(needs[end - begin - 1]) if end > begin else 0.0

    @staticmethod
    def _starts(part: Values, limit: float) -> list[int]:
        """Where ranges may begin: with the longest stretches of nodes that fit alone, and beside what else is alive;
        and here and there."""
        n = part.num_nodes
        whole = _alive_at(part)
        blocked = np.flatnonzero((bytes_alone(part) > limit) | (whole > limit))
        edges = np.concatenate([[-1], blocked, [n]])
        lengths = np.diff(edges)
        longest = np.argsort(-lengths, kind="stable")[:_MOST_STARTS]
        starts = np.unique(np.concatenate([edges[longest] + 1, np.arange(1, _MOST_STARTS) * n // _MOST_STARTS]))
        return [start for start in starts.tolist() if 0 < start < n]

    def _not_kept(
        self, members: NDArray[np.intp], stays: NDArray[np.bool_], limit: float
    ) -> tuple[NDArray[np.intp], float]:
        """What goes on of ``members`` if the longest beginning is kept that fits, beside those that stay; and what
        those that are kept are taken to need."""
        needs, crossing = self._needs(members, stays)
        if needs[-1] <= limit:
            return members[:0], float(needs[-1])
        fitting = np.flatnonzero(needs <= limit)
        keep = int(fitting[-1]) if len(fitting) else 0
        if self._slack and keep:
            near = fitting[needs[fitting] >= (1 - self._slack) * needs[keep]]
            keep = int(near[len(near) - 1 - np.argmin(crossing[near][::-1])])
        rest: NDArray[np.intp] = members[keep:][~stays[keep:]]
        return rest, float(needs[keep])

    def _needs(
        self, members: NDArray[np.intp], stays: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """float64 [m + 1] each: bytes that the first t of ``members`` and those that stay need at most, and bytes that
        are alive between the first t and the rest. Exact if none stays and what is read is not held for others."""
        values, m = self._values, len(members)
        place = np.full(values.num_nodes, -1)
        place[members] = np.arange(m)

        # Constants count from the first reader on, or always.
        value, node = self._constant_reads
        here = place[node] >= 0
        value, at = value[here], place[node[here]]
        first = group_min(np.where(stays[at], -1, at), value, len(values.producer), m)
        read = np.flatnonzero(first < m)
        weights = np.bincount(first[read] + 1, values.bytes[read], m + 1).astype(np.float64)
        own = values.own[members]
        weights[0] += own[stays].sum()
        weights[1:] += np.where(stays, 0.0, own)
        weights = np.cumsum(weights)

        alive, crossing = self._alive(members, place, np.ones(m, np.bool_))
        needs = np.zeros(m + 1)
        needs[1:] = np.maximum.accumulate(alive)
        if stays.any():
            staying, _ = self._alive(members, place, stays)
            later = np.append(np.maximum.accumulate(staying[::-1])[::-1], 0.0)
            needs = np.maximum(needs, crossing + later)
        return weights + needs, crossing

    def _alive(
        self, members: NDArray[np.intp], place: NDArray[np.intp], counts: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bytes, no constants, that are alive at each of ``members`` (float64 [m]), and between the first t and the
        rest (float64 [m + 1]), of what those members made and read that count."""
        values, m = self._values, len(members)
        counted = np.zeros(values.num_nodes, np.bool_)
        counted[members[counts]] = True
        is_made = (values.producer >= 0) & counted[values.producer]
        made = np.flatnonzero(is_made)
        value, node = self._other_reads
        arriving = counted[node] & ~is_made[value]
        value, at = value[arriving], place[node[arriving]]
        first, last = group_min(at, value, len(values.producer), m), group_max(at, value, len(values.producer), -1)
        received = np.flatnonzero(last >= 0)
        begin = np.concatenate([place[values.producer[made]], first[received]])
        end = np.concatenate([np.searchsorted(members, self._last_use[made], side="right") - 1, last[received]])
        size = values.bytes[np.concatenate([made, received])]
        begins = np.bincount(begin, size, m + 1).astype(np.float64)
        ends = np.bincount(end + 1, size, m + 1).astype(np.float64)
        alive = np.cumsum(begins - ends)[:m]
        crossing = np.zeros(m + 1)
        crossing[1:] = np.cumsum(begins[:m]) - np.cumsum(ends)[1:]
        return alive, np.maximum(crossing, 0.0)


def _part_of(values: Values, members: NDArray[np.intp]) -> Values:
    """The values that these nodes (ascending) read and make, the nodes numbered anew; what others read of them are
    outputs, what others make inputs."""
    number = np.full(values.num_nodes + 1, -1)
    number[members] = np.arange(len(members))
    reader = number[values.read_node]
    read_elsewhere = np.zeros(len(values.producer), np.bool_)
    read_elsewhere[values.read_value[reader < 0]] = True
    here = reader >= 0
    return Values(
        len(members),
        number[values.producer].astype(np.int32),  # of none it is the last, which is no member
        values.bytes,
        values.known,
        values.is_constant,
        values.is_output | read_elsewhere,
        values.read_value[here],
        reader[here].astype(np.int32),
        values.own[members],
    )


def _alive_at(values: Values) -> NDArray[np.float64]:
    """float64 [num_nodes]: bytes, no constants, that are alive while each node runs, inputs from their first reader."""
    n = values.num_nodes
    first, last = _lifetimes(values)
    lives = np.flatnonzero((first < n) & ~values.is_constant)
    change = np.bincount(first[lives], values.bytes[lives], n + 1).astype(np.float64)
    change -= np.bincount(np.minimum(last[lives], n - 1) + 1, values.bytes[lives], n + 1)
    return np.cumsum(change)[:n]


def _crossing(values: Values, begin: int) -> NDArray[np.float64]:
    """float64 [num_nodes + 1]: bytes made from ``begin`` on and before each node that are read there or later."""
    n = values.num_nodes
    _, last = _lifetimes(values)
    made = np.flatnonzero(values.producer >= begin)
    change = np.bincount(values.producer[made] + 1, values.bytes[made], n + 2).astype(np.float64)
    change -= np.bincount(np.minimum(last[made], n) + 1, values.bytes[made], n + 2)
    return np.cumsum(change)[: n + 1]


def _lifetimes(values: Values) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """intp [v] each: the node that makes a value, or else is the first to read it (num_nodes for none), and the last
    that reads it (num_nodes for outputs)."""
    n = values.num_nodes
    first = group_min(values.read_node, values.read_value, len(values.producer), n)
    last = group_max(values.read_node, values.read_value, len(values.producer), -1)
    made = values.producer >= 0
    first[made] = values.producer[made]
    np.maximum(last, values.producer, out=last)
    last[values.is_output & made] = n
    return first, last


def bytes_alone(values: Values) -> NDArray[np.float64]:
    """float64 [num_nodes]: what a node reads and makes; its device needs at least that."""
    total = values.own + np.bincount(values.read_node, values.bytes[values.read_value], values.num_nodes)
    made = values.producer >= 0
    return np.asarray(total + np.bincount(values.producer[made], values.bytes[made], values.num_nodes))


def prove_infeasible(
    values: Values, allowed: NDArray[np.bool_], limits: NDArray[np.float64]
) -> InfeasibilityProof | None:
    """A reason why no assignment can fit, if one of these is: a node that touches more than each of its devices may
    have; or constants of nodes that only some devices may have, which have less in all. None proves nothing."""
    alone = bytes_alone(values)
    homeless = np.flatnonzero(~(allowed & (alone <= limits[:, None])).any(axis=0))
    if len(homeless):
        node = int(homeless[0])
        devices = tuple(np.flatnonzero(allowed[:, node]).tolist())
        return InfeasibilityProof(devices, float(alone[node]), float(limits[list(devices)].max(initial=0.0)), node)
    limited = np.flatnonzero(np.isfinite(limits)).tolist()
    if len(limited) > _MOST_DEVICES:
        return None
    constant = values.is_constant[values.read_value]
    value, node_of = values.read_value[constant], values.read_node[constant]
    for size in range(1, len(limited) + 1):
        for devices in itertools.combinations(limited, size):
            others = np.ones(len(limits), np.bool_)
            others[list(devices)] = False
            only: NDArray[np.bool_] = np.logical_not(allowed[others].any(axis=0))
            read = np.unique(value[only[node_of]])
            total = float(values.bytes[read].sum() + values.own[only].sum())
            limit = float(limits[list(devices)].sum())
            if total > limit:
                return InfeasibilityProof(devices, total, limit)
    return None
