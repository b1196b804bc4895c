"""Local search over assignments within memory limits: groups of nodes move to another device, or swap devices.

Each step takes the first candidate that lowers the rank: the bytes above the limits, then the predicted seconds. Both
are those of the candidate's partition, as plans report them. Candidates are ordered by their work and transfers, which
need no partition; candidates that cost more than the best assignment that fits already by these are not partitioned.
With a quick cut, all of this is by quick partitions. In the end, the candidates that rank lowest are partitioned
thoroughly, and the lowest rank of all wins.
If no candidate lowers the rank, the search continues from the most promising candidate that did not (best-first
search), because the way to a better assignment often leads through slower ones and through ones that do not fit.

Groups are single nodes, whole subgraphs, halves, quarters, ... at either end of a subgraph, and the nodes that read the
same constant. Swaps are between two groups of different devices. They
help where a device has no room left.

Cost: O(nodes + reads) for each candidate that is priced, about `_PARTITIONED` times that for each that is partitioned.
`_MAX_WORK` bounds the total, so a large graph tries few candidates. Deterministic.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from .fit import Cut, Fit, cut_and_count
from .lifetimes import bytes_alone
from .order import late_order
from .values import Values

__all__ = ["Seconds", "all_assignments", "are_few", "improved"]

_MAX_WORK = 60_000_000  # nodes and reads, summed over what is priced and partitioned; 0.7 s for 100,000 nodes
_PRICED_SHARE = 4  # one part in so many of the work that is left may be spent on pricing the candidates of one step
_PARTITIONED = 20  # times the cost of pricing an assignment: partitioning it and counting its memory
_MAX_PARTITIONED = 1_500  # of small graphs, where the overhead of a call counts: 0.3 s
_THOROUGH = 10  # candidates that are partitioned thoroughly in the end; up to 20 ms each
_MAX_PRICED = 10_000  # likewise: 0.2 s
_EXCESS_WEIGHT = 1.0  # a tenth of a limit too much counts like a tenth more time where the search goes on

_SINGLE_NODES = 500  # graphs up to this size move single nodes
_MAX_SUBGRAPHS = 200  # those with the most bytes
_MAX_CONSTANTS = 50  # groups of nodes that read the same constant
_SWAPPED = 40  # groups that are swapped with each other, those with the most bytes
_MIN_GAIN = 1e-9  # relative

MAX_ASSIGNMENTS = 2_000
"""`all_assignments` gives up if more assignments have to be partitioned."""
_STEPS = 10
_MAX_NODES = 64

Seconds = Callable[[Fit], float]
"""The predicted seconds of an assignment."""

_Change = tuple[tuple[NDArray[np.intp], int], ...]
"""Groups of nodes, and the device that each moves to."""


def improved(
    values: Values,
    start: Fit,
    allowed: NDArray[np.bool_],
    limits: NDArray[np.float64],
    cut: Cut,
    price: Callable[[NDArray[np.int32]], float] | None = None,
    seconds: Seconds | None = None,
    quick_cut: Cut | None = None,
) -> Fit:
    """``start``, or an assignment of lower rank. Without ``price`` and ``seconds``, the search ends at the first
    assignment that fits.

    ``allowed``: bool [k, num_nodes]. ``limits``: float64 [k], bytes. ``price``: seconds of an assignment's work and
    transfers, which ``seconds`` never goes below. ``quick_cut``: partitions faster than ``cut``, perhaps into more
    subgraphs.
    """
    quick_start = start if quick_cut is None else cut_and_count(values, start.device_of, limits, quick_cut)
    search = _Search(values, quick_start, allowed, limits, quick_cut or cut, price, seconds)
    search.run()
    if quick_cut is None:
        return search.best
    promising = (device_of for _, _, device_of in heapq.nsmallest(_THOROUGH, search.tried))
    thorough = [cut_and_count(values, device_of, limits, cut) for device_of in promising]
    return min([start, *thorough, search.best], key=search.rank_of)


class _Search:
    def __init__(
        self,
        values: Values,
        start: Fit,
        allowed: NDArray[np.bool_],
        limits: NDArray[np.float64],
        cut: Cut,
        price: Callable[[NDArray[np.int32]], float] | None,
        seconds: Seconds | None,
    ) -> None:
        self._values = values
        self._allowed = allowed
        self._limits = limits
        self._cut = cut
        self._price = price
        self._seconds = seconds
        alone = bytes_alone(values, len(limits))
        self._bytes = alone.max(axis=0)
        self._possible = allowed & (alone <= limits[:, None])
        self._size = values.num_nodes + len(values.read_value) + 1
        self._work_left = _MAX_WORK
        self._partitions_left = _MAX_PARTITIONED
        self._priced_left = _MAX_PRICED
        self._tried: set[bytes] = {start.device_of.tobytes()}
        position = np.empty(values.num_nodes, np.int64)
        position[late_order(values)] = np.arange(values.num_nodes)
        self._position = position
        self._by_constant = _readers_of_constants(values)
        self.best = start
        self._rank = self.rank_of(start)
        self.tried: list[tuple[tuple[float, float], int, NDArray[np.int32]]] = []  # all candidates, with their ranks
        self._waiting: list[tuple[float, int, Fit]] = []  # a heap of candidates that were no improvement
        self._scale = self._rank[1] or 1.0

    @property
    def _is_done(self) -> bool:
        """Whether the budget is spent, or nothing is left to improve."""
        spent = self._work_left <= 0 or self._partitions_left <= 0 or self._priced_left <= 0
        return spent or (self.best.fits and self._seconds is None)

    def rank_of(self, fit: Fit) -> tuple[float, float]:
        return float(fit.excess.sum()), self._seconds(fit) if self._seconds is not None else 0.0

    def run(self) -> None:
        """Improve ``best`` until the budget is spent or every candidate in reach was tried."""
        current = self.best
        while not self._is_done:
            if self._expand(current):
                current = self.best
            elif self._waiting:
                current = heapq.heappop(self._waiting)[2]
            else:
                break

    def _expand(self, current: Fit) -> bool:
        """Try the neighbors of an assignment up to the first that ranks below the best, which becomes the best.
        Returns whether there was one within the budget."""
        groups = list(self._groups(current))
        return self._try(current, self._moves(current, groups)) or self._try(current, self._swaps(current, groups))

    def _try(self, current: Fit, changes: Iterator[_Change]) -> bool:
        for device_of in self._candidates(current, changes):
            if self._is_done:
                return False
            self._tried.add(device_of.tobytes())
            self._work_left -= _PARTITIONED * self._size
            self._partitions_left -= 1
            candidate = cut_and_count(self._values, device_of, self._limits, self._cut)
            rank = self.rank_of(candidate)
            self.tried.append((rank, len(self.tried), device_of))
            if _is_better(rank, self._rank):
                self.best, self._rank = candidate, rank
                return True
            over = float((candidate.excess / self._limits).sum())
            heapq.heappush(self._waiting, (rank[1] / self._scale + _EXCESS_WEIGHT * over, len(self._tried), candidate))
        return False

    def _candidates(self, current: Fit, changes: Iterator[_Change]) -> Iterator[NDArray[np.int32]]:
        """The assignments after each change that were not tried. With a price: by work and transfers, without those
        that cost more by these alone than the best assignment that fits."""
        excess, seconds = self._rank
        prices, priced = [], []
        keep = self._work_left - self._work_left // _PRICED_SHARE
        for change in changes:
            device_of = current.device_of.copy()
            for nodes, device in change:
                device_of[nodes] = device
            if device_of.tobytes() in self._tried:
                continue
            if self._price is None:
                yield device_of
                continue
            if self._work_left <= keep or self._priced_left <= 0:
                break
            self._work_left -= self._size
            self._priced_left -= 1
            price = self._price(device_of)
            if excess or price < seconds * (1 - _MIN_GAIN):
                prices.append(price)
                priced.append(device_of)
        for i in np.argsort(prices, kind="stable").tolist():
            if priced[i].tobytes() not in self._tried:  # two changes can lead to the same assignment
                yield priced[i]

    def _groups(self, current: Fit) -> Iterator[NDArray[np.intp]]:
        """Groups of nodes on one device."""
        partition = current.partition
        if self._values.num_nodes <= _SINGLE_NODES:
            yield from np.arange(self._values.num_nodes).reshape(-1, 1)
        order = np.lexsort((self._position, partition.subgraph_of))
        ends = np.cumsum(np.bincount(partition.subgraph_of, minlength=partition.num_subgraphs))
        heaviest = np.argsort(-np.bincount(partition.subgraph_of, self._bytes, partition.num_subgraphs), kind="stable")
        for subgraph in heaviest[:_MAX_SUBGRAPHS].tolist():
            nodes = order[ends[subgraph - 1] if subgraph else 0 : ends[subgraph]]
            yield nodes
            size = len(nodes) // 2
            while size > 1:
                yield nodes[:size]
                yield nodes[-size:]
                size //= 2
        device_of = current.device_of
        for readers in self._by_constant:
            for device in np.flatnonzero(np.bincount(device_of[readers])).tolist():
                group = readers[device_of[readers] == device]
                if len(group) > 1:
                    yield group

    def _moves(self, current: Fit, groups: list[NDArray[np.intp]]) -> Iterator[_Change]:
        device_of = current.device_of
        for group in groups:
            for device in np.flatnonzero(self._possible[:, group].all(axis=1)).tolist():
                if device != device_of[group[0]]:
                    yield ((group, device),)

    def _swaps(self, current: Fit, groups: list[NDArray[np.intp]]) -> Iterator[_Change]:
        device_of = current.device_of
        heaviest_first = sorted(groups, key=lambda group: -float(self._bytes[group].sum()))[:_SWAPPED]
        for first, second in itertools.combinations(heaviest_first, 2):
            here, there = int(device_of[first[0]]), int(device_of[second[0]])
            if here != there and self._possible[there, first].all() and self._possible[here, second].all():
                yield (first, there), (second, here)


def _is_better(rank: tuple[float, float], other: tuple[float, float]) -> bool:
    return rank[0] < other[0] or (rank[0] == other[0] and rank[1] < other[1] * (1 - _MIN_GAIN))


def _readers_of_constants(values: Values) -> list[NDArray[np.intp]]:
    """The nodes that read the same constant, for the largest constants that several nodes read."""
    is_constant = values.is_constant[values.read_value]
    value, node = values.read_value[is_constant], values.read_node[is_constant]  # ascending by value
    constants, begins, counts = np.unique(value, return_index=True, return_counts=True)
    shared = np.flatnonzero(counts > 1)
    largest = shared[np.argsort(-values.bytes[constants[shared]], kind="stable")][:_MAX_CONSTANTS]
    return [node[begins[i] : begins[i] + counts[i]].astype(np.intp) for i in largest.tolist()]


def are_few(allowed: NDArray[np.bool_]) -> bool:
    """Whether `all_assignments` can try each assignment. ``allowed``: bool [k, num_nodes]."""
    return bool(np.log(allowed.sum(axis=0)).sum() <= np.log(max(MAX_ASSIGNMENTS, 0.5)))


def all_assignments(
    values: Values,
    allowed: NDArray[np.bool_],
    limits: NDArray[np.float64],
    cut: Cut,
    seconds: Seconds | None = None,
) -> tuple[Fit | None, bool]:
    """The assignment that fits with the fewest predicted seconds (the first one without ``seconds``), None if none was
    found; and whether all assignments were tried.

    Depth-first, over nodes with the most bytes first. A branch ends where the constants of a device exceed its limit,
    because more nodes only add to them. Gives up after `MAX_ASSIGNMENTS` partitions, or `_STEPS` times as many steps,
    and does not begin for more than `_MAX_NODES` nodes.
    """
    n, k = values.num_nodes, len(limits)
    if n > _MAX_NODES:
        return None, False
    alone = bytes_alone(values, k)
    order = np.argsort(-alone.max(axis=0), kind="stable").tolist()
    possible = allowed & (alone <= limits[:, None])
    devices_of = [np.flatnonzero(possible[:, node]).tolist() for node in order]
    is_constant = values.is_constant[values.read_value]
    constants_of: list[list[int]] = [[] for _ in range(n)]
    for value, node in zip(
        values.read_value[is_constant].tolist(), values.read_node[is_constant].tolist(), strict=True
    ):
        constants_of[node].append(value)
    readers = np.zeros((k, len(values.producer)), np.int64)  # so far, of each constant on each device
    weights = np.zeros(k)
    device_of = np.zeros(n, np.int32)
    best: Fit | None = None
    least, left, steps_left = np.inf, MAX_ASSIGNMENTS, _STEPS * MAX_ASSIGNMENTS

    # An explicit stack of the devices left to try for each node: nothing recurses on the model.
    untried = [devices_of[0][::-1]] if n else []
    chosen: list[tuple[int, float]] = []  # device and added bytes of each placed node
    while untried:
        depth = len(untried) - 1
        node = order[depth]
        if len(chosen) > depth:
            device, added = chosen.pop()
            weights[device] -= added
            readers[device, constants_of[node]] -= 1
        if not untried[-1]:
            untried.pop()
            continue
        if not steps_left:
            return best, False
        steps_left -= 1
        device = untried[-1].pop()
        new = [value for value in constants_of[node] if not readers[device, value]]
        added = float(values.bytes[new].sum() + values.own[node])
        readers[device, constants_of[node]] += 1
        weights[device] += added
        chosen.append((device, added))
        device_of[node] = device
        if weights[device] > limits[device]:
            continue
        if depth + 1 < n:
            untried.append(devices_of[depth + 1][::-1])
            continue
        if not left:
            return best, False
        left -= 1
        candidate = cut_and_count(values, device_of.copy(), limits, cut)
        if candidate.fits:
            if seconds is None:
                return candidate, False
            if (taken := seconds(candidate)) < least:
                best, least = candidate, taken
    return best, True
