"""The best cuts of one topological order into stages.

With the order given, a stage is an interval of positions. What it takes is its work, by prefix sums, and what it reads
from before. For the search, all that crosses its beginning counts as read that it could read: what is read so late that
the work up to there is more than the bottleneck in question (the *horizon*) is not. Then a stage takes
``W(end) - W(begin) + T(begin)``, and

1. whether a bottleneck B is possible is asked stage by stage: the positions at which a stage can end are, for each
   position at which it can begin, all up to the last one within B (a binary search in W);
2. the least possible B is found by bisection, in which positions that no B so far can use are left out;
3. boundaries are moved one at a time to where the slower of the two stages beside it is least, by what stages really
   read, which is exact for two stages; and where transfers matter, 2 is done once more, with the work that stages have
   now as the horizon.

On chains what crosses a boundary is what the next stage reads, so 2 is the exact optimum.

Cost: O(nodes + values) to set up, and for each of some thirty B's at most O(stages * nodes * log nodes), mostly far
less, as the windows of step 2 narrow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .costs import StageCosts

__all__ = ["LARGE", "Capacity", "Line"]

_PRECISION = 1e-9  # of the least bottleneck, relative
LARGE = 10_000
"""Nodes from which on a thousandth is close enough."""
_FIRST_HORIZON = 1.25  # of the least bottleneck if transfers were free
_NEAR = _COARSE = 0.01
_LIKE = 0.01  # stages that differ by less are alike: the boundary of fewer bytes is taken

Capacity = Callable[[int, NDArray[np.int32]], NDArray[np.int64]]
"""Of a stage and an order, int64 [n + 1]: for each position, the last at which the stage can end if it begins there."""


class Line:
    """A graph's nodes in one topological order, ``order`` (int32 [num_nodes]), to be cut into stages."""

    def __init__(self, costs: StageCosts, order: NDArray[np.int32], capacity: Capacity | None = None) -> None:
        n, k = len(order), costs.num_stages
        self.costs = costs
        self.order = order
        position = np.empty(n + 1, np.int64)
        position[order] = np.arange(n)
        position[n] = -1  # the host, as what makes inputs
        made, read = position[costs.producer[costs.value]], position[costs.reader]
        to_host = costs.reader == n
        # Results go to the host from whatever stage makes them.
        given = np.unique(costs.value[to_host & (made >= 0)])
        out_at, out_size = position[costs.producer[given]], costs.size[given]
        out_count, out_bytes = _sums(out_at, out_size, n)
        inside = ~to_host & (made < read)
        self._readings(costs.value[inside], made[inside], read[inside])
        from_host = self._made < 0
        first = from_host & (self._before < 0)
        in_count, in_bytes = _sums(self._read[first], self._size[first], n)
        work = costs.work[:, order]
        forbidden = ~np.isfinite(work)
        finite = np.where(forbidden, 0.0, work)
        h = costs.host
        own = finite + (costs.latency[:k, h, None] * out_count + costs.per_unit[:k, h, None] * out_bytes)
        received = costs.latency[h, :k, None] * in_count + costs.per_unit[h, :k, None] * in_bytes
        # A node that a stage may not have takes so long that no interval over it is ever chosen.
        crossing_count, crossing_bytes = self._crossing(n)
        most = float(costs.latency.max() * crossing_count.max() + costs.per_unit.max() * crossing_bytes.max())
        self.never = 8 * (float((own + received).sum(axis=1).max()) + most + float(costs.launch.max()) + 1e-9)
        own[forbidden] = self.never
        self._own = _prefix(own)
        self._charged = _prefix(own + received)
        self.crossing = crossing_bytes
        self._is_free = not (costs.latency[:k, :k].any() or costs.per_unit[:k, :k].any())
        self._crossings: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        self._precision = _PRECISION if n <= LARGE else 1e-6 if self._is_free else 1e-5
        self._sweeps = min(64, max(4, 600_000 // (n + 1)))
        self._capacity = None
        if capacity is not None:
            self._capacity = [np.asarray(capacity(s, order), np.int64) for s in range(k)]

    def _readings(self, value: NDArray[np.int64], made: NDArray[np.int64], read: NDArray[np.int64]) -> None:
        """Each reading of a value: where it is made, where it was read before (or made), and where it is read, by the
        latter."""
        by_value = np.lexsort((read, value))
        value, made, read = value[by_value], made[by_value], read[by_value]
        same = np.zeros(len(value), np.bool_)
        same[1:] = value[1:] == value[:-1]
        before = np.where(same, np.append(-1, read[:-1])[: len(read)], made)
        self._last = np.flatnonzero(~np.append(same[1:], False)) if len(value) else np.empty(0, np.intp)
        ends = made[self._last], read[self._last], self.costs.size[value[self._last]]
        self._spans = ends
        order = np.argsort(read, kind="stable")
        self._made, self._before, self._read = made[order], before[order], read[order]
        self._size = self.costs.size[value[order]]

    def _crossing(self, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """float64 [n + 1] each: values that are made before a position and read at or after it, and their bytes."""
        made, last, size = self._spans
        kept = made >= 0
        made, last, size = made[kept], last[kept], size[kept]
        count = np.bincount(made + 1, minlength=n + 2) - np.bincount(last + 1, minlength=n + 2)
        total = np.bincount(made + 1, size, n + 2) - np.bincount(last + 1, size, n + 2)
        return np.cumsum(count)[: n + 1].astype(np.float64), np.maximum(np.cumsum(total)[: n + 1], 0.0)

    def _cross(self, source: int, stage: int, begin: int, end: int) -> NDArray[np.float64]:
        """Per position from ``begin`` up to ``end``, what it takes to bring all that crosses it from one stage to
        another. ``source`` -1: there is none before, so nothing crosses."""
        if source < 0:
            return np.zeros(end - begin)
        latency, per_unit = self.costs.latency[source, stage], self.costs.per_unit[source, stage]
        count, total = self._crossings[stage]
        cross: NDArray[np.float64] = latency * count[begin:end] + per_unit * total[begin:end]
        return cross

    def _look_ahead(self, horizon: float) -> None:
        """Have `_cross` count what a stage can read that takes no longer than ``horizon``."""
        n, k = len(self.order), self.costs.num_stages
        self._crossings = []
        if self._is_free:
            nothing = np.zeros(n + 1)
            self._crossings = [(nothing, nothing)] * k
            return
        inside = self._made >= 0
        before, read, size = self._before[inside], self._read[inside], self._size[inside]
        ends = np.bincount(read + 1, minlength=n + 2), np.bincount(read + 1, size, n + 2)
        for s in range(k):
            row = self._charged[s]
            if s and np.array_equal(row, self._charged[s - 1]):
                self._crossings.append(self._crossings[-1])
                continue
            since = np.searchsorted(row, row - horizon - self._slack(s), "left")[read]
            begin = np.maximum(before + 1, since)
            count = np.cumsum(np.bincount(begin, minlength=n + 2) - ends[0])[: n + 1].astype(np.float64)
            total = np.cumsum(np.bincount(begin, size, n + 2) - ends[1])[: n + 1]
            self._crossings.append((count, np.maximum(total, 0.0)))

    # ---- the least bottleneck

    def best(self, required: NDArray[np.bool_], below: float = np.inf) -> NDArray[np.int64] | None:
        """Positions int64 [num_stages + 1] at which stages begin, and n; None if there are no such stages, or if the
        search knows none whose slowest is less than ``below``.

        ``required``: bool [num_stages], stages that must not be empty; others may.
        """
        if below < self.never:
            self._look_ahead(below)
            if self._possible(below, required) is None:
                return None
        least = self._least_without_transfers()
        if least >= self.never / 4:
            return None
        low, step, horizon = least, max(least, 1e-12) * 1e-3, min(least * _FIRST_HORIZON, below)
        high, cuts = low * (1 + self._precision), None
        self._look_ahead(horizon)
        while cuts is None:
            if high > horizon:
                low, horizon = least, 2 * high
                self._look_ahead(horizon)
            cuts = self._possible(high, required)
            if cuts is None:
                low = high
                if high > self.never / 4:
                    return None
                high, step = high + step, 4 * step
        best = self._improved(self._bisected(cuts, low, high, required))
        slowest = self._rank(best)[0]
        if not self._is_free and slowest > least * (1 + _NEAR) and (required.all() or len(self.order) <= LARGE):
            self._look_ahead(float(self.costs.times(self.stage_of(best)).work.sum()) / self.costs.num_stages)
            found = self._possible(slowest, required)
            if found is not None:
                closest = max(least, slowest / 2) if len(self.order) > LARGE else least
                again = self._improved(self._bisected(found, closest, slowest, required))
                best = min(best, again, key=self._rank)
        return best

    def _bisected(
        self, cuts: NDArray[np.int64], low: float, high: float, required: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """The best cuts as the search counts, whose bottleneck is between ``low`` and ``high``, that of ``cuts``."""
        high = min(high, self._slowest(cuts))
        precision = self._precision if required.all() or len(self.order) <= LARGE else _COARSE
        while high - low > precision * high:
            middle = (low + high) / 2
            found = self._possible(middle, required)
            if found is None:
                low = middle
            else:
                cuts, high = found, min(middle, self._slowest(found))
        return cuts

    def _slowest(self, cuts: NDArray[np.int64]) -> float:
        """The slowest stage as the search counts."""
        slowest, source = 0.0, -1
        for stage, (begin, end) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)):
            if end > begin:
                row = self._charged[stage]
                cross = float(self._cross(source, stage, begin, begin + 1)[0])
                slowest = max(slowest, row[end] - row[begin] + cross + self.costs.launch[stage])
                source = stage
        return float(slowest)

    def _least_without_transfers(self) -> float:
        """The least bottleneck if nothing that crosses a boundary had a cost: none is less."""
        n = len(self.order)
        low, high = 0.0, float(self._charged[:, n].min()) + float(self.costs.launch.max()) + 1e-12
        while self._latest(high)[-1] < n:
            if high > self.never:
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
        """Per stage, and after the last: the last position at which it could begin."""
        at = [0]
        for s in range(self.costs.num_stages):
            row = self._charged[s]
            end = at[s]
            room = bottleneck - self.costs.launch[s]
            if room >= 0:
                end = max(end, int(np.searchsorted(row, row[at[s]] + room + self._slack(s), "right")) - 1)
            at.append(end)
        return at

    def _earliest(self, bottleneck: float) -> list[int]:
        """Per stage, and after the last: the first position at which it could begin."""
        at = [len(self.order)]
        for s in reversed(range(self.costs.num_stages)):
            row = self._charged[s]
            begin = at[0]
            room = bottleneck - self.costs.launch[s]
            if room >= 0:
                begin = min(begin, int(np.searchsorted(row, row[at[0]] - room - self._slack(s), "left")))
            at.insert(0, begin)
        return at

    def _slack(self, stage: int) -> float:
        """What sums may be wrong by."""
        return float(self._charged[stage, -1]) * 1e-15

    def _possible(self, bottleneck: float, required: NDArray[np.bool_]) -> NDArray[np.int64] | None:
        """Cuts of which no stage takes longer, as the search counts; None if there are none."""
        k, n = self.costs.num_stages, len(self.order)
        latest, earliest = self._latest(bottleneck), self._earliest(bottleneck)
        if latest[-1] < n or any(low > high for low, high in zip(earliest, latest, strict=True)) or earliest[0] > 0:
            return None
        earliest[0] = latest[0] = 0
        # Per stage that was used last (-1: none), the positions at which it can have ended, from `begins` on.
        reached: dict[int, NDArray[np.bool_]] = {-1: np.ones(1, np.bool_)}
        begins = {-1: 0}
        ends: dict[tuple[int, int], NDArray[np.int64]] = {}
        for s in range(k):
            row = self._charged[s]
            after = np.arange(earliest[s + 1], latest[s + 1] + 1)
            found = np.zeros(len(after), np.bool_)
            for source, ended in reached.items():
                if required[source + 1 : s].any():
                    continue
                begin = begins[source]
                limit = row[begin : begin + len(ended)] - self._cross(source, s, begin, begin + len(ended))
                end = np.searchsorted(row, limit + (bottleneck - self.costs.launch[s]), "right") - 1
                if self._capacity is not None:
                    end = np.minimum(end, self._capacity[s][begin : begin + len(ended)])
                end[~ended] = -1
                ends[source, s] = end
                furthest = np.maximum.accumulate(end)
                before = np.minimum(after - 1 - begin, len(ended) - 1)
                found |= (before >= 0) & (furthest[np.maximum(before, 0)] >= after)
            if found.any():
                reached[s], begins[s] = found, earliest[s + 1]
        return self._traced(n, k, required, reached, begins, ends)

    def _traced(
        self,
        n: int,
        k: int,
        required: NDArray[np.bool_],
        reached: dict[int, NDArray[np.bool_]],
        begins: dict[int, int],
        ends: dict[tuple[int, int], NDArray[np.int64]],
    ) -> NDArray[np.int64] | None:
        """The cuts that lead to the end, from what `_possible` found; where there is a choice, the boundary that the
        fewest bytes cross."""
        cuts = np.full(k + 1, n, np.int64)
        at, stage = n, -1
        for s in reversed(range(k)):
            if s in reached and 0 <= n - begins[s] < len(reached[s]) and reached[s][n - begins[s]]:
                stage = s
                break
            if required[s]:
                return None
        if stage < 0:
            return cuts if n == 0 else None
        while stage >= 0:
            best: tuple[float, int, int] | None = None
            for source in range(stage - 1, -2, -1):
                end = ends.get((source, stage))
                if end is None:
                    continue
                begin = begins[source]
                options = np.flatnonzero(end[: max(0, at - begin)] >= at)
                if len(options):
                    across = self.crossing[begin + options]
                    least = int(np.argmin(across))
                    if best is None or across[least] < best[0]:
                        best = float(across[least]), begin + int(options[least]), source
            assert best is not None
            _, begin, source = best
            cuts[source + 1 : stage + 1] = begin
            at, stage = begin, source
        return cuts

    # ---- as stages really read

    def stage_of(self, cuts: NDArray[np.int64]) -> NDArray[np.int32]:
        """int32 [num_nodes]: the stage of each node."""
        stage = np.empty(len(self.order), np.int32)
        stage[self.order] = np.repeat(np.arange(self.costs.num_stages, dtype=np.int32), np.diff(cuts))
        return stage

    def _improved(self, cuts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Step 3."""
        best, least = cuts, self._rank(cuts)
        for _ in range(self._sweeps):
            moved = self._swept(best, 0.0)
            rank = self._rank(moved)
            if not rank < least:
                break
            best, least = moved, rank
        lighter = self._swept(best, least[0])
        return lighter if self._rank(lighter)[0] <= least[0] * (1 + _PRECISION) else best

    def _rank(self, cuts: NDArray[np.int64]) -> tuple[float, ...]:
        """Less is better: the slowest stage, then the next one, ..."""
        total = np.sort(self.costs.times(self.stage_of(cuts)).total)[::-1]
        return tuple((total * (1 - 1e-12)).tolist())

    def _swept(self, cuts: NDArray[np.int64], allowance: float) -> NDArray[np.int64]:
        """Each boundary moved once. ``allowance``: what a stage may take if fewer bytes cross its boundary then, and it
        is hardly slower."""
        cuts = cuts.copy()
        used = np.flatnonzero(np.diff(cuts) > 0).tolist()
        for before, after in itertools.pairwise(used):
            begin, end = int(cuts[before]), int(cuts[after + 1])
            cuts[before + 1 : after + 1] = self._boundary(before, after, begin, end, cuts, allowance)
        return cuts

    def _boundary(self, one: int, other: int, begin: int, end: int, cuts: NDArray[np.int64], allowance: float) -> int:
        """The position between two neighbouring stages at which the slower of the two is least."""
        now = int(cuts[other])
        if end - begin < 3:
            return now
        costs = self.costs
        low, high = np.searchsorted(self._read, (begin, end))
        made, before, read = (array[low:high] for array in (self._made, self._before, self._read))
        size = self._size[low:high]
        source = np.searchsorted(cuts, made, "right") - 1
        source = np.where(made < 0, costs.host, np.where(made >= begin, one, source))
        width = end - begin
        # The first of the two, ending at begin + 1 .. end - 1: what is read for the first time since `begin`.
        fresh = before < begin
        seconds = costs.latency[source, one] + size * costs.per_unit[source, one]
        arriving = np.bincount(read[fresh] - begin, seconds[fresh], width)
        first = self._own[one, begin + 1 : end] - self._own[one, begin] + np.cumsum(arriving)[: width - 1]
        # The second, beginning there: what was made, or read before, ahead of it.
        seconds = costs.latency[source, other] + size * costs.per_unit[source, other]
        since = np.maximum(before + 1, begin) - begin
        steps = np.bincount(since, seconds, width + 1) - np.bincount(read + 1 - begin, seconds, width + 1)
        second = self._own[other, end] - self._own[other, begin + 1 : end] + np.cumsum(steps)[1:width]
        slower = np.maximum(first + costs.launch[one], second + costs.launch[other])
        if self._capacity is not None:
            at = np.arange(begin + 1, end)
            fits = (at <= self._capacity[one][begin]) & (self._capacity[other][at] >= end)
            slower[~fits] = np.inf
        least = float(slower.min())
        if not least < self.never / 2:
            return now
        most = max(least * (1 + _PRECISION), min(least * (1 + _LIKE), allowance))
        alike = np.flatnonzero(slower <= most)
        across = self.crossing[begin + 1 : end][alike]
        alike = alike[across == across.min()]
        return begin + 1 + int(alike[np.argmin(slower[alike])])


def _prefix(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """[k, n + 1]: sums of all before each position."""
    sums = np.zeros((rows.shape[0], rows.shape[1] + 1))
    np.cumsum(rows, axis=1, out=sums[:, 1:])
    return sums


def _sums(at: NDArray[np.int64], size: NDArray[np.float64], n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How many there are at each position, and the sum of their sizes."""
    return np.bincount(at, minlength=n).astype(np.float64), np.bincount(at, size, n).astype(np.float64)
