"""Cuts of one topological order into stages of the minimum bottleneck: chains-on-chains partitioning with transfers.

Problem. ``order`` lists the nodes; stage s is an interval ``cuts[s] .. cuts[s + 1]`` of its positions, ``cuts`` int64
[num_stages + 1], from 0 to n, not descending. A stage takes as long as `StageCosts.times` says: work, launch, and one
transfer for each value that it reads and another stage (or the host) makes. The time of the slowest stage, the
*bottleneck*, is minimized. Stages may be empty; ``required`` names those that may not.

Estimate. What a stage receives depends on both of its ends and on which stage made each value. The search replaces that
by a sum of terms that depend on one end only. A used stage s after the used stage r takes

    charged[s, end] - charged[s, begin] + crossing(r, s, begin) + launch[s]

- ``charged`` [num_stages, n + 1] are prefix sums of the work and the transfers from and to the host. They never fall,
  so the ends that stage s can reach from one beginning within a bottleneck B are an interval, found by bisection.
- ``crossing(r, s, begin)`` is the cost of sending from r to s every value that is made before ``begin`` and read at or
  after it. Reads that are more than a *horizon* of charged time after ``begin`` do not count, since a stage of at most
  that time does not reach them.

On a chain the estimate is exact. Elsewhere it is neither a lower nor an upper bound.

Algorithm. Parametric search (A. Pinar, C. Aykanat, "Fast optimal load balancing algorithms for 1D partitioning",
J. Parallel Distrib. Comput. 64, 2004), then local search:
1. `_probe` answers whether cuts with an estimated bottleneck of at most B exist: stage by stage, it keeps the set of
   positions at which each stage can end if it is used. Positions that no stages within B can reach, transfers between
   stages neglected, are left out.
2. Bisection finds the least B (`_feasible_cuts`, `_bisect`).
3. Sweeps move one boundary at a time to the place where the slower of its two stages is fastest, by real times
   (`_refine`). This is exact for two stages.
4. If transfers matter, 2 and 3 run again with the mean work of a stage as the horizon.

Cost: O(reads * log reads) to set up. A probe takes O(stages * nodes * log nodes), and stages^2 instead of stages if
stages may be empty; mostly much less, because the windows of step 1 narrow. About 30 probes are needed.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .costs import StageCosts

__all__ = ["LARGE", "Capacity", "Line"]

LARGE = 10_000
"""Graphs with more nodes are searched to a coarser precision, because single nodes matter less."""

# Relative precision of the bottleneck at which bisection ends.
_PRECISION = 1e-9
_LARGE_PRECISION = 1e-5
_LARGE_FREE_PRECISION = 1e-6  # if transfers between stages are free
_LARGE_OPTIONAL_PRECISION = 0.01  # if stages may be empty, when a probe takes longer

_FIRST_HORIZON = 1.25  # times the minimum bottleneck without transfers
_NEAR = 0.01  # relative to that lower bound: a result this near is not searched again
_SIMILAR = 0.01  # stage times that differ by less, relatively: the boundary that fewer bytes cross wins

Capacity = Callable[[int, NDArray[np.int32]], NDArray[np.int64]]
"""(stage, order) -> int64 [n + 1]: for each position, the last position where the stage can end if it begins there."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Reads:
    """Every read of a value by a node, as positions of the order, ascending by ``reader``.

    ``producer``: int64, the node that makes the value, -1 for the host. ``previous``: int64, the node that read the
    same value before, or ``producer`` if this is the first read. ``reader``: int64. ``size``: float64, of the value.
    """

    producer: NDArray[np.int64]
    previous: NDArray[np.int64]
    reader: NDArray[np.int64]
    size: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        value: NDArray[np.int64],
        producer: NDArray[np.int64],
        reader: NDArray[np.int64],
        value_size: NDArray[np.float64],
    ) -> _Reads:
        """From reads in any order. ``value_size``: by value number."""
        by_value = np.lexsort((reader, value))
        value, producer, reader = value[by_value], producer[by_value], reader[by_value]
        previous = producer.copy()
        is_repeated = np.flatnonzero(value[1:] == value[:-1]) + 1
        previous[is_repeated] = reader[is_repeated - 1]
        by_reader = np.argsort(reader, kind="stable")
        return cls(producer[by_reader], previous[by_reader], reader[by_reader], value_size[value[by_reader]])

    def where(self, chosen: NDArray[np.bool_] | slice) -> _Reads:
        """The chosen reads."""
        return _Reads(self.producer[chosen], self.previous[chosen], self.reader[chosen], self.size[chosen])


class _Ends(NamedTuple):
    """Where a stage can end if it is used: at position ``first + i`` if ``possible[i]``."""

    first: int
    possible: NDArray[np.bool_]


class Line:
    """A graph's nodes in one topological order, ``order`` (int32 [num_nodes]), to be cut into stages."""

    def __init__(self, costs: StageCosts, order: NDArray[np.int32], capacity: Capacity | None = None) -> None:
        n, k, host = len(order), costs.num_stages, costs.host
        self.costs = costs
        self.order = order
        position = np.empty(n + 1, np.int64)
        position[order] = np.arange(n)
        position[n] = -1  # the host makes the model's inputs
        producer, reader = position[costs.producer[costs.value]], position[costs.reader]
        is_result = costs.reader == n
        internal = ~is_result & (producer < reader)
        self._reads = _Reads.of(costs.value[internal], producer[internal], reader[internal], costs.size)
        self._stage_reads = self._reads.where(self._reads.producer >= 0)

        # Results go to the host from the node that makes them; inputs arrive at the first node that reads them.
        results = np.unique(costs.value[is_result & (producer >= 0)])
        out_count, out_bytes = _per_position(position[costs.producer[results]], costs.size[results], n)
        inputs = self._reads.where((self._reads.producer < 0) & (self._reads.previous < 0))
        in_count, in_bytes = _per_position(inputs.reader, inputs.size, n)
        sent = costs.latency[:k, host, None] * out_count + costs.per_unit[:k, host, None] * out_bytes
        received = costs.latency[host, :k, None] * in_count + costs.per_unit[host, :k, None] * in_bytes

        work = costs.work[:, order]
        is_forbidden = ~np.isfinite(work)
        own = np.where(is_forbidden, 0.0, work) + sent
        num_crossing, self._bytes_across = _spread(self._stage_reads, self._stage_reads.previous + 1, n)
        max_crossing = float(costs.latency.max() * num_crossing.max() + costs.per_unit.max() * self._bytes_across.max())
        # More than any stages take. It is the work of a node on a stage that may not have it.
        self._never = 8 * (float((own + received).sum(axis=1).max()) + max_crossing + float(costs.launch.max()) + 1e-9)
        own[is_forbidden] = self._never
        self._own = _prefix_sums(own)
        self._charged = _prefix_sums(own + received)

        self._is_free = not (costs.latency[:k, :k].any() or costs.per_unit[:k, :k].any())
        # Per stage: how many values, and how many bytes of them, cross each position and are read within the horizon.
        self._in_horizon: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        self._precision = _PRECISION if n <= LARGE else _LARGE_FREE_PRECISION if self._is_free else _LARGE_PRECISION
        self._max_sweeps = min(64, max(4, 600_000 // (n + 1)))
        self._capacity = None
        if capacity is not None:
            self._capacity = [np.asarray(capacity(s, order), np.int64) for s in range(k)]

    def stage_of(self, cuts: NDArray[np.int64]) -> NDArray[np.int32]:
        """int32 [num_nodes]: the stage of each node."""
        stage = np.empty(len(self.order), np.int32)
        stage[self.order] = np.repeat(np.arange(self.costs.num_stages, dtype=np.int32), np.diff(cuts))
        return stage

    def best_cuts(self, required: NDArray[np.bool_], below: float = np.inf) -> NDArray[np.int64] | None:
        """The best cuts found: int64 [num_stages + 1], the position where each stage begins, and n.

        ``required``: bool [num_stages], stages that must not be empty. None if no such cuts were found, or none with an
        estimated bottleneck of at most ``below``.
        """
        if below < self._never:
            self._set_horizon(below)
            if self._probe(below, required) is None:
                return None
        lower_bound = self.bottleneck_without_transfers()
        if lower_bound >= self._never / 4:
            return None
        feasible = self._feasible_cuts(lower_bound, required, below)
        if feasible is None:
            return None
        cuts = self._refine(self._bisect(*feasible, required))
        slowest = self._rank(cuts)[0]
        n = len(self.order)
        if self._is_free or slowest <= lower_bound * (1 + _NEAR) or (n > LARGE and not required.all()):
            return cuts
        self._set_horizon(float(self.costs.times(self.stage_of(cuts)).work.sum()) / self.costs.num_stages)
        cuts_within = self._probe(slowest, required)
        if cuts_within is None:
            return cuts
        low = max(lower_bound, slowest / 2) if n > LARGE else lower_bound
        return min(cuts, self._refine(self._bisect(cuts_within, low, slowest, required)), key=self._rank)

    # ---- The search, by the estimate.

    def _feasible_cuts(
        self, lower_bound: float, required: NDArray[np.bool_], below: float
    ) -> tuple[NDArray[np.int64], float, float] | None:
        """Returns cuts, a bottleneck for which no cuts were found, and a bottleneck that these cuts meet; None if there
        are no cuts.

        Raises the bottleneck in growing steps, and the horizon with it.
        """
        low, high = lower_bound, lower_bound * (1 + self._precision)
        step, horizon = max(lower_bound, 1e-12) * 1e-3, min(lower_bound * _FIRST_HORIZON, below)
        self._set_horizon(horizon)
        while True:
            if high > horizon:  # earlier answers do not hold for the new horizon
                low, horizon = lower_bound, 2 * high
                self._set_horizon(horizon)
            cuts = self._probe(high, required)
            if cuts is not None:
                return cuts, low, high
            low = high
            if high > self._never / 4:
                return None
            high, step = high + step, 4 * step

    def _bisect(
        self, cuts: NDArray[np.int64], low: float, high: float, required: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """The cuts of the least estimated bottleneck from ``low`` to ``high``; ``cuts`` keep ``high``."""
        high = min(high, self._estimated_bottleneck(cuts))
        is_coarse = len(self.order) > LARGE and not required.all()
        precision = _LARGE_OPTIONAL_PRECISION if is_coarse else self._precision
        while high - low > precision * high:
            middle = (low + high) / 2
            cuts_within = self._probe(middle, required)
            if cuts_within is None:
                low = middle
            else:
                cuts, high = cuts_within, min(middle, self._estimated_bottleneck(cuts_within))
        return cuts

    def _probe(self, bottleneck: float, required: NDArray[np.bool_]) -> NDArray[np.int64] | None:
        """Cuts whose estimated bottleneck is at most ``bottleneck``; None if there are none."""
        earliest, latest = self._earliest(bottleneck), self._latest(bottleneck)
        if any(first > last for first, last in zip(earliest, latest, strict=True)):
            return None
        # By the stage that was used last (-1 for none), and by the stages used last and now: `_trace` has the meaning.
        ends = {-1: _Ends(0, np.ones(1, np.bool_))}
        reach: dict[tuple[int, int], NDArray[np.int64]] = {}
        nearest = -1  # the last required stage before this one, which no stage skips
        for stage in range(self.costs.num_stages):
            row = self._charged[stage]
            candidates = np.arange(earliest[stage + 1], latest[stage + 1] + 1)
            can_end = np.zeros(len(candidates), np.bool_)
            for source in range(nearest, stage):
                if source not in ends:
                    continue
                first, possible = ends[source]
                count = len(possible)
                limit = row[first : first + count] - self._crossing(source, stage, first, first + count)
                reached = np.searchsorted(row, limit + (bottleneck - self.costs.launch[stage]), "right") - 1
                if self._capacity is not None:
                    reached = np.minimum(reached, self._capacity[stage][first : first + count])
                reached[~possible] = -1
                reach[source, stage] = reached
                # The stage can end at a position if it can begin somewhere before it and reach it.
                furthest = np.maximum.accumulate(reached)
                last_begin = np.minimum(candidates - 1 - first, count - 1)
                can_end |= (last_begin >= 0) & (furthest[np.maximum(last_begin, 0)] >= candidates)
            if can_end.any():
                ends[stage] = _Ends(earliest[stage + 1], can_end)
            if required[stage]:
                nearest = stage
        return self._trace(required, ends, reach)

    def _trace(
        self,
        required: NDArray[np.bool_],
        ends: dict[int, _Ends],
        reach: dict[tuple[int, int], NDArray[np.int64]],
    ) -> NDArray[np.int64] | None:
        """Cuts from the tables of `_probe`, from the last stage backwards. Of several boundaries, the one that the
        fewest bytes cross is taken.

        ``ends``: by stage. ``reach[source, stage]``: for each position of ``ends[source]``, the last position where
        ``stage`` can end if it begins there and ``source`` is the used stage before it; -1 if it cannot begin there.
        """
        n, k = len(self.order), self.costs.num_stages
        stage = k - 1
        while stage >= 0 and not (stage in ends and _can_end_at(ends[stage], n)):
            if required[stage]:
                return None
            stage -= 1
        cuts = np.full(k + 1, n, np.int64)
        if stage < 0:
            return cuts if n == 0 else None
        end = n
        while stage >= 0:
            best: tuple[float, int, int] | None = None
            for source in range(stage - 1, -2, -1):
                reached = reach.get((source, stage))
                if reached is None:
                    continue
                first = ends[source].first
                begins = first + np.flatnonzero(reached[: max(0, end - first)] >= end)
                if len(begins):
                    crossed = self._bytes_across[begins]
                    fewest = int(np.argmin(crossed))
                    if best is None or crossed[fewest] < best[0]:
                        best = float(crossed[fewest]), int(begins[fewest]), source
            assert best is not None
            _, begin, source = best
            cuts[source + 1 : stage + 1] = begin
            end, stage = begin, source
        return cuts

    def _estimated_bottleneck(self, cuts: NDArray[np.int64]) -> float:
        """The estimated time of the slowest stage."""
        slowest, source = 0.0, -1
        for stage, (begin, end) in enumerate(itertools.pairwise(cuts.tolist())):
            if end > begin:
                row = self._charged[stage]
                crossing = float(self._crossing(source, stage, begin, begin + 1)[0])
                slowest = max(slowest, row[end] - row[begin] + crossing + self.costs.launch[stage])
                source = stage
        return float(slowest)

    def _crossing(self, source: int, stage: int, begin: int, end: int) -> NDArray[np.float64]:
        """float64 [end - begin]: seconds to send from ``source`` to ``stage`` what crosses each position from ``begin``
        on, within the horizon. ``source`` -1: there is no stage before, so nothing crosses."""
        if source < 0:
            return np.zeros(end - begin)
        latency, per_unit = self.costs.latency[source, stage], self.costs.per_unit[source, stage]
        count, size = self._in_horizon[stage]
        seconds: NDArray[np.float64] = latency * count[begin:end] + per_unit * size[begin:end]
        return seconds

    def _set_horizon(self, horizon: float) -> None:
        """From now on, `_crossing` counts reads up to ``horizon`` seconds of charged time after a position."""
        n, k = len(self.order), self.costs.num_stages
        if self._is_free:
            nothing = np.zeros(n + 1)
            self._in_horizon = [(nothing, nothing)] * k
            return
        reads = self._stage_reads
        self._in_horizon = []
        for stage in range(k):
            row = self._charged[stage]
            if stage and np.array_equal(row, self._charged[stage - 1]):
                self._in_horizon.append(self._in_horizon[-1])
                continue
            in_sight = np.searchsorted(row, row - horizon - self._rounding(stage), "left")[reads.reader]
            self._in_horizon.append(_spread(reads, np.maximum(reads.previous + 1, in_sight), n))

    # ---- Bounds without transfers between stages.

    def bottleneck_without_transfers(self) -> float:
        """The minimum bottleneck if transfers between stages were free, a lower bound; infinite if there is none."""
        n = len(self.order)
        low, high = 0.0, float(self._charged[:, n].min()) + float(self.costs.launch.max()) + 1e-12
        while self._latest(high)[-1] < n:
            if high > self._never:
                return np.inf
            high *= 2
        while high - low > self._precision * high / 4:
            middle = (low + high) / 2
            if self._latest(middle)[-1] < n:
                low = middle
            else:
                high = middle
        return low

    def _latest(self, bottleneck: float) -> list[int]:
        """[num_stages + 1]: the last position where each stage could begin, and where the last stage could end."""
        begins = [0]
        for stage in range(self.costs.num_stages):
            row, begin = self._charged[stage], begins[-1]
            room = bottleneck - self.costs.launch[stage]
            end = begin
            if room >= 0:
                end = max(begin, int(np.searchsorted(row, row[begin] + room + self._rounding(stage), "right")) - 1)
            begins.append(end)
        return begins

    def _earliest(self, bottleneck: float) -> list[int]:
        """[num_stages + 1]: the first position where each stage could begin, and n."""
        begins = [len(self.order)]
        for stage in reversed(range(self.costs.num_stages)):
            row, end = self._charged[stage], begins[-1]
            room = bottleneck - self.costs.launch[stage]
            begin = end
            if room >= 0:
                begin = min(end, int(np.searchsorted(row, row[end] - room - self._rounding(stage), "left")))
            begins.append(begin)
        return begins[::-1]

    def _rounding(self, stage: int) -> float:
        """The rounding error that differences of prefix sums can have."""
        return float(self._charged[stage, -1]) * 1e-15

    # ---- Local search, by real times.

    def _refine(self, cuts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sweep over the boundaries while this helps; then once more to send fewer bytes at the same bottleneck."""
        best_rank = self._rank(cuts)
        for _ in range(self._max_sweeps):
            swept = self._sweep(cuts, 0.0)
            rank = self._rank(swept)
            if not rank < best_rank:
                break
            cuts, best_rank = swept, rank
        lighter = self._sweep(cuts, best_rank[0])
        return lighter if self._rank(lighter)[0] <= best_rank[0] * (1 + _PRECISION) else cuts

    def _rank(self, cuts: NDArray[np.int64]) -> tuple[float, ...]:
        """The stages' times, the slowest first; lower is better.

        Just below the real times, so that a limit taken from them is not exceeded by rounding.
        """
        slowest_first = np.sort(self.costs.times(self.stage_of(cuts)).total)[::-1]
        return tuple((slowest_first * (1 - 1e-12)).tolist())

    def _sweep(self, cuts: NDArray[np.int64], allowance: float) -> NDArray[np.int64]:
        """Move each boundary between used stages once, from the first to the last; `_best_boundary` has the rule."""
        cuts = cuts.copy()
        used = np.flatnonzero(np.diff(cuts) > 0).tolist()
        for left, right in itertools.pairwise(used):
            cuts[left + 1 : right + 1] = self._best_boundary(left, right, cuts, allowance)
        return cuts

    def _best_boundary(self, left: int, right: int, cuts: NDArray[np.int64], allowance: float) -> int:
        """The boundary between two adjacent used stages at which the slower of the two is fastest.

        Of boundaries that are equally good, the one that the fewest bytes cross is taken. If both stages take at most
        ``allowance`` seconds there, up to `_SIMILAR` more than the minimum time counts as equally good.
        """
        begin, end = int(cuts[left]), int(cuts[right + 1])
        current = int(cuts[right])
        if end - begin < 3:
            return current
        slower = self._slower_beside(left, right, cuts)
        if self._capacity is not None:
            inner = np.arange(begin + 1, end)
            fits = (inner <= self._capacity[left][begin]) & (self._capacity[right][inner] >= end)
            slower[~fits] = np.inf
        least = float(slower.min())
        if not least < self._never / 2:
            return current
        acceptable = max(least * (1 + _PRECISION), min(least * (1 + _SIMILAR), allowance))
        options = np.flatnonzero(slower <= acceptable)
        crossed = self._bytes_across[begin + 1 : end][options]
        options = options[crossed == crossed.min()]
        return begin + 1 + int(options[np.argmin(slower[options])])

    def _slower_beside(self, left: int, right: int, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64: for each boundary strictly inside the two stages, seconds of the slower one; the other cuts stay."""
        costs = self.costs
        begin, end = int(cuts[left]), int(cuts[right + 1])
        width = end - begin
        reads = self._reads.where(slice(*np.searchsorted(self._reads.reader, (begin, end))))
        source = np.searchsorted(cuts, reads.producer, "right") - 1
        source = np.where(reads.producer < 0, costs.host, np.where(reads.producer >= begin, left, source))

        # Left stage, begin .. boundary: it receives each value at the first read since `begin`.
        is_first = reads.previous < begin
        seconds = costs.latency[source, left] + reads.size * costs.per_unit[source, left]
        arriving = np.bincount(reads.reader[is_first] - begin, seconds[is_first], width)
        left_time = self._own[left, begin + 1 : end] - self._own[left, begin] + np.cumsum(arriving)[: width - 1]

        # Right stage, boundary .. end: it receives a value if the boundary is after `previous` and not after `reader`.
        seconds = costs.latency[source, right] + reads.size * costs.per_unit[source, right]
        first_boundary = np.maximum(reads.previous + 1, begin) - begin
        change = np.bincount(first_boundary, seconds, width + 1)
        change -= np.bincount(reads.reader + 1 - begin, seconds, width + 1)
        right_time = self._own[right, end] - self._own[right, begin + 1 : end] + np.cumsum(change)[1:width]
        slower: NDArray[np.float64] = np.maximum(left_time + costs.launch[left], right_time + costs.launch[right])
        return slower


def _can_end_at(ends: _Ends, position: int) -> bool:
    index = position - ends.first
    return 0 <= index < len(ends.possible) and bool(ends.possible[index])


def _prefix_sums(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """[k, n + 1]: for each row and position, the sum of the entries before the position."""
    sums = np.zeros((rows.shape[0], rows.shape[1] + 1))
    np.cumsum(rows, axis=1, out=sums[:, 1:])
    return sums


def _per_position(
    position: NDArray[np.int64], size: NDArray[np.float64], n: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """float64 [n] each: how many entries each position has, and the sum of their sizes."""
    return np.bincount(position, minlength=n).astype(np.float64), np.bincount(position, size, n).astype(np.float64)


def _spread(reads: _Reads, first: NDArray[np.int64], n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """float64 [n + 1] each: how many reads count at each position, and their bytes, if read i counts at the positions
    ``first[i] .. reader[i]``, both included."""
    after = reads.reader + 1
    count = np.bincount(first, minlength=n + 2) - np.bincount(after, minlength=n + 2)
    size = np.bincount(first, reads.size, n + 2) - np.bincount(after, reads.size, n + 2)
    return np.cumsum(count)[: n + 1].astype(np.float64), np.maximum(np.cumsum(size)[: n + 1], 0.0)
