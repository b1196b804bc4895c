"""Filling devices one after the other: each keeps nodes up to a target of bytes, and the rest moves on.

Problem. ``device_of`` int32 [num_nodes] assigns nodes, numbered in topological order, to devices 0 .. k - 1. Some
devices have a target: the bytes that their nodes may need. Move nodes off the devices that exceed their target. A node
moves on to the next device by number that may have it, or, if costs are known, to the cheapest where it has not been.

Rule. The nodes of a device, its *members*, are considered in ascending order.
- Members that cannot move on, and members to keep first, are *fixed*. A member that is too large for the device on its
  own moves on.
- If nothing is fixed, the device keeps a contiguous range of its members (`_keep_range`): the longest prefix that fits,
  or a range that begins later if it is more than twice as long. Its need is exact (`RangeMemory`).
- Otherwise the device keeps the fixed members and the longest prefix of the others that fits (`_keep_prefix`). Its need
  is an estimate (`_prefix_needs`).
So one cut arises where the device became full. With ``slack``, the cut may be where fewer bytes cross it, as long as
only that part of the kept bytes is given up.

A partition may need more than filling takes into account; `fit` then lowers the target.

Cost: O(nodes + reads) for each device in a sweep. By number one sweep is enough; by cost at most 2 k are made.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...base.grouped import group_max, group_min
from .lifetimes import alive_at, bytes_alone, bytes_crossing, values_of_part
from .ranges import RangeMemory
from .values import Values

__all__ = ["Filling"]

_NUM_STARTS = 16
"""Places where a range may begin after the first member: so many long runs, and so many evenly spread ones."""


class Filling:
    """One way to fill devices.

    ``values``: with nodes in topological order. ``allowed``: bool [k, num_nodes]. ``limits``: float64 [k], bytes,
    infinite without a limit. ``work``: float64 [k, num_nodes], the cost of each node on each device; None: nodes move
    on by number. ``slack``: the part of the kept bytes that may be given up for a better cut. ``kept_first``: bool
    [num_nodes], nodes that their device keeps before others.
    """

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
        self._possible = allowed & (bytes_alone(values, len(limits)) <= limits[:, None])
        self._kept_first = kept_first
        self.estimate = np.full(len(limits), np.inf)
        """float64 [k]: bytes that the nodes kept by each device need, as estimated when it was filled last."""
        self._last_use = group_max(values.read_node, values.read_value, len(values.producer), -1)
        np.maximum(self._last_use, values.producer, out=self._last_use)
        self._last_use[values.is_output] = values.num_nodes
        is_constant = values.is_constant[values.read_value]
        self._constant_reads = values.read_value[is_constant], values.read_node[is_constant]
        self._other_reads = values.read_value[~is_constant], values.read_node[~is_constant]

    def fill(self, device_of: NDArray[np.int32], target: NDArray[np.float64]) -> NDArray[np.int32]:
        """int32 [num_nodes]: the devices after filling. ``target``: float64 [k], bytes, infinite without a target."""
        device_of = device_of.copy()
        count, n = self._possible.shape
        visited = np.zeros((count, n), np.bool_)
        visited[device_of, np.arange(n)] = True
        # By number, nodes only move to later devices. By cost, they may move to a device that was filled before.
        sweeps = 1 if self._work is None else 2 * count
        for _ in range(sweeps):
            any_moved = False
            for device in np.flatnonzero(np.isfinite(target)).tolist():
                members = np.flatnonzero(device_of == device)
                moving = self._moving_on(members, device, visited, float(target[device]))
                if len(moving):
                    destination = self._destination(moving, device, visited)
                    device_of[moving] = destination
                    visited[destination, moving] = True
                    any_moved = True
            if not any_moved:
                break
        return device_of

    def can_move(self, device_of: NDArray[np.int32]) -> NDArray[np.bool_]:
        """bool [k]: whether any node of the device can move on."""
        visited = np.zeros(self._possible.shape, np.bool_)
        visited[device_of, np.arange(len(device_of))] = True
        return np.array(
            [
                bool((self._destination(np.flatnonzero(device_of == device), device, visited) >= 0).any())
                for device in range(len(visited))
            ]
        )

    def _destination(self, nodes: NDArray[np.intp], device: int, visited: NDArray[np.bool_]) -> NDArray[np.int32]:
        """int32: the device that each node would move on to; -1 if there is none."""
        destination = np.full(len(nodes), -1, np.int32)
        if self._work is None:
            for later in range(len(visited) - 1, device, -1):
                destination[self._possible[later, nodes]] = later
            return destination
        is_option = self._possible[:, nodes] & ~visited[:, nodes]
        cheapest = np.argmin(np.where(is_option, self._work[:, nodes], np.inf), axis=0)
        # If all options cost infinity, argmin may name a device that is no option.
        has_option = is_option[cheapest, np.arange(len(nodes))]
        destination[has_option] = cheapest[has_option]
        return destination

    def _moving_on(
        self, members: NDArray[np.intp], device: int, visited: NDArray[np.bool_], target: float
    ) -> NDArray[np.intp]:
        """The members that move on, ascending. Sets the device's estimate if it keeps any by choice."""
        is_movable = self._destination(members, device, visited) >= 0
        if is_movable.all() and not self._kept_first[members].any():
            if not len(members):
                return members
            moving, self.estimate[device] = self._keep_range(members, device, target)
            return moving
        is_too_large = is_movable & ~self._possible[device, members]
        too_large: NDArray[np.intp] = members[is_too_large]
        members, is_movable = members[~is_too_large], is_movable[~is_too_large]
        if not is_movable.any():
            return too_large
        is_fixed = ~is_movable
        if self._kept_first[members].any():
            with_kept_first = is_fixed | self._kept_first[members]
            needs, _ = self._prefix_needs(members, device, with_kept_first)
            if needs[0] <= target:
                is_fixed = with_kept_first
        rest, self.estimate[device] = self._keep_prefix(members, device, is_fixed, target)
        return np.sort(np.concatenate([too_large, rest]))

    def _keep_range(self, members: NDArray[np.intp], device: int, target: float) -> tuple[NDArray[np.intp], float]:
        """Keep a range of ``members``: those that move on, and the bytes that the range needs.

        A range that does not begin at the first member helps if early members are too large, or hold too many bytes
        alive.
        """
        part = values_of_part(self._values, members, device)
        ranges = RangeMemory(part)
        begin, end = 0, ranges.longest(0, target)
        if 2 * end < len(members):
            for start in self._starts(part, target):
                reached = ranges.longest(start, target)
                if reached - start > (2 * end if begin == 0 else end - begin):
                    begin, end = ranges.reach_back(reached, target), reached
        if begin == end:
            return members, 0.0
        needs = ranges.needs_from(begin, end)
        if self._slack and end < len(members):
            ends = begin + 1 + np.flatnonzero(needs >= (1 - self._slack) * needs[-1])
            end = _last_minimum(ends, bytes_crossing(part, begin)[ends])
        return np.concatenate([members[:begin], members[end:]]), float(needs[end - begin - 1])

    @staticmethod
    def _starts(part: Values, target: float) -> list[int]:
        """Where ranges may begin: at the longest runs of nodes that fit, alone and with everything alive at that time,
        and at evenly spread nodes."""
        n = part.num_nodes
        blocked = np.flatnonzero((bytes_alone(part, 1)[0] > target) | (alive_at(part) > target))
        edges = np.concatenate([[-1], blocked, [n]])
        longest = np.argsort(-np.diff(edges), kind="stable")[:_NUM_STARTS]
        starts = np.unique(np.concatenate([edges[longest] + 1, np.arange(1, _NUM_STARTS) * n // _NUM_STARTS]))
        return [start for start in starts.tolist() if 0 < start < n]

    def _keep_prefix(
        self, members: NDArray[np.intp], device: int, is_fixed: NDArray[np.bool_], target: float
    ) -> tuple[NDArray[np.intp], float]:
        """Keep the fixed members and the longest prefix that fits: those that move on, and the estimated bytes that the
        kept ones need."""
        needs, crossing = self._prefix_needs(members, device, is_fixed)
        if needs[-1] <= target:
            return members[:0], float(needs[-1])
        fitting = np.flatnonzero(needs <= target)
        length = int(fitting[-1]) if len(fitting) else 0
        if self._slack and length:
            lengths = fitting[needs[fitting] >= (1 - self._slack) * needs[length]]
            length = _last_minimum(lengths, crossing[lengths])
        rest: NDArray[np.intp] = members[length:][~is_fixed[length:]]
        return rest, float(needs[length])

    def _prefix_needs(
        self, members: NDArray[np.intp], device: int, is_fixed: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """float64 [m + 1] each, for t = 0 .. m: the estimated bytes that the first t members and the fixed ones need,
        and the bytes of the values that are alive between the first t members and the rest.

        A received value counts from its first reader to its last, although a subgraph holds its inputs while it runs.
        So the estimate is exact if no member is fixed and members make all values that they read, except constants.
        """
        values, m = self._values, len(members)
        index = np.full(values.num_nodes, -1)
        index[members] = np.arange(m)

        # A constant counts from its first reader on, or always if a fixed member reads it.
        value, node = self._constant_reads
        is_inside = index[node] >= 0
        value, reader = value[is_inside], index[node[is_inside]]
        first_reader = group_min(np.where(is_fixed[reader], -1, reader), value, len(values.producer), m)
        is_read = np.flatnonzero(first_reader < m)
        weights = np.bincount(first_reader[is_read] + 1, values.bytes[is_read], m + 1).astype(np.float64)
        own = values.own[members]
        weights[0] += own[is_fixed].sum()
        weights[1:] += np.where(is_fixed, 0.0, own)
        weights = np.cumsum(weights)

        alive, crossing = self._alive(members, device, index, np.ones(m, np.bool_))
        peak = np.zeros(m + 1)
        peak[1:] = np.maximum.accumulate(alive)
        if is_fixed.any():
            # While later fixed members run, the values that cross from the prefix may all be alive.
            alive_of_fixed, _ = self._alive(members, device, index, is_fixed)
            peak_of_later = np.append(np.maximum.accumulate(alive_of_fixed[::-1])[::-1], 0.0)
            peak = np.maximum(peak, crossing + peak_of_later)
        return weights + peak, crossing

    def _alive(
        self, members: NDArray[np.intp], device: int, index: NDArray[np.intp], chosen: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bytes of the values that the ``chosen`` members make or read, constants aside: those alive at each of the m
        members (float64 [m]), and those alive between the first t members and the rest (float64 [m + 1]).

        ``index``: intp [num_nodes], the place of each node among ``members``, -1 for others. ``chosen``: bool [m].
        """
        values, m = self._values, len(members)
        is_chosen = np.zeros(values.num_nodes, np.bool_)
        is_chosen[members[chosen]] = True
        is_made = (values.producer >= 0) & is_chosen[values.producer]
        made = np.flatnonzero(is_made)
        value, node = self._other_reads
        is_arriving = is_chosen[node] & ~is_made[value]
        value, reader = value[is_arriving], index[node[is_arriving]]
        first_reader = group_min(reader, value, len(values.producer), m)
        last_reader = group_max(reader, value, len(values.producer), -1)
        received = np.flatnonzero(last_reader >= 0)
        # A value made here lives up to the last member before its last use, which may be on another device.
        last_of_made = np.searchsorted(members, self._last_use[made], side="right") - 1
        first = np.concatenate([index[values.producer[made]], first_reader[received]])
        last = np.concatenate([last_of_made, last_reader[received]])
        is_left = np.zeros(len(values.producer), np.bool_)
        is_left[self._other_reads[0][index[self._other_reads[1]] < 0]] = True
        size_of_made = np.where(is_left, values.bytes, values.on(device).bytes)[made]
        size = np.concatenate([size_of_made, values.bytes[received]])
        begins = np.bincount(first, size, m + 1).astype(np.float64)
        ends = np.bincount(last + 1, size, m + 1).astype(np.float64)
        alive = np.cumsum(begins - ends)[:m]
        crossing = np.zeros(m + 1)
        crossing[1:] = np.cumsum(begins[:m]) - np.cumsum(ends)[1:]
        return alive, np.maximum(crossing, 0.0)


def _last_minimum(options: NDArray[np.intp], cost: NDArray[np.float64]) -> int:
    """The last of the cheapest options."""
    return int(options[len(options) - 1 - int(np.argmin(cost[::-1]))])
