"""Steps of one inference at the same time, where they do not wait for each other and lie on different devices.

A device runs one step of an inference at a time. The calling thread runs steps like any other; a device's executor is
handed work only while something else runs, and if the step is long enough to pay for the handing over. Who finishes a
step goes on with one that has become ready, so a chain stays in one thread.

Handed-over work is an offer: whoever is free first takes the step, so nothing waits for a thread that is busy with
another request.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..plugin.executor import StreamExecutor

__all__ = ["ParallelRun", "StepGraph", "saved_by_parallel"]

# To wake a thread and to be woken by it. Steps shorter than this are not handed over.
HAND_OVER_SECONDS = 50e-6

# What running at the same time must save to be done: of the time one after the other, and at least.
_LEAST_SHARE, _LEAST_SECONDS = 0.05, 100e-6


@dataclasses.dataclass(frozen=True, slots=True)
class StepGraph:
    """Steps by number, in an order in which they can run.

    ``followers``: steps that wait for each; ``waits_for``: for how many each waits. ``reads``: slots that each reads,
    once each; ``readers``: how many steps read each slot, with one more for those that are results.
    """

    devices: tuple[str, ...]
    followers: tuple[tuple[int, ...], ...]
    waits_for: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    readers: tuple[int, ...]
    is_wide: bool

    @classmethod
    def of(cls, steps: Sequence[tuple[str, Sequence[int], Sequence[int]]], kept: Sequence[int]) -> StepGraph:
        """``steps``: device, slots read, slots filled. ``kept``: slots of the results."""
        maker: dict[int, int] = {}
        followers: list[list[int]] = [[] for _ in steps]
        waits_for = []
        for number, (_, reads, fills) in enumerate(steps):
            before = sorted({maker[slot] for slot in reads if slot in maker})
            waits_for.append(len(before))
            for step in before:
                followers[step].append(number)
            maker.update(dict.fromkeys(fills, number))
        readers = [0] * (1 + max((slot for _, reads, fills in steps for slot in (*reads, *fills)), default=-1))
        for _, reads, _ in steps:
            for slot in set(reads):
                readers[slot] += 1
        for slot in kept:
            if slot < len(readers):
                readers[slot] += 1
        # There is but one order if each step waits for the one before it.
        one_order = all(number + 1 in followers[number] for number in range(len(steps) - 1))
        return cls(
            tuple(device for device, _, _ in steps),
            tuple(map(tuple, followers)),
            tuple(waits_for),
            tuple(tuple(dict.fromkeys(reads)) for _, reads, _ in steps),
            tuple(readers),
            not one_order and len({device for device, _, _ in steps}) > 1,
        )


def saved_by_parallel(graph: StepGraph, seconds: Sequence[float]) -> bool:
    """Whether an inference would be clearly faster with steps at the same time. ``seconds``: that each step takes."""
    finished = [0.0] * len(seconds)  # when the steps before it are done
    free: dict[str, float] = {}
    for number, device in enumerate(graph.devices):
        begin = max(finished[number], free.get(device, 0.0))
        if begin > finished[number] or graph.waits_for[number] > 1:
            begin += HAND_OVER_SECONDS
        end = free[device] = begin + seconds[number]
        for follower in graph.followers[number]:
            finished[follower] = max(finished[follower], end)
    alone, together = sum(seconds), max(free.values(), default=0.0)
    return alone - together >= max(_LEAST_SECONDS, _LEAST_SHARE * alone)


class ParallelRun:
    """One inference. ``run_step(number, slots)`` runs a step; ``seconds``: what each is known to take."""

    def __init__(
        self,
        graph: StepGraph,
        slots: list[Any],
        seconds: Sequence[float],
        run_step: Callable[[int, list[Any]], None],
        executor_of: Callable[[str], StreamExecutor],
    ) -> None:
        self._graph = graph
        self._slots = slots
        self._seconds = seconds
        self._run_step = run_step
        self._executor_of = executor_of
        self._waits_for = list(graph.waits_for)
        self._readers = list(graph.readers)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._ready = [number for number, count in enumerate(self._waits_for) if count == 0]
        self._busy: set[str] = set()
        self._offered: set[str] = set()
        self._left = len(self._waits_for)
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run all steps; raises the first error, when no step runs any longer."""
        with self._lock:
            try:
                while True:
                    number = self._take(None)
                    if number is not None:
                        self._step(number)
                    elif self._busy:
                        self._changed.wait()
                    else:
                        break
            except BaseException as error:  # Ctrl-C, while waiting
                self._error = self._error or error
                while self._busy:
                    self._changed.wait()
        if self._error is not None:
            raise self._error
        assert self._left == 0

    def _take(self, device: str | None) -> int | None:
        """A ready step that can run now, of one device or of any. The others that can are offered to their devices."""
        if self._error is not None:
            return None
        taken = None
        for number in self._ready:
            where = self._graph.devices[number]
            if where in self._busy:
                continue
            if taken is None and device in (None, where):
                taken = number
                self._busy.add(where)
            elif where not in self._offered and self._seconds[number] >= HAND_OVER_SECONDS:
                self._offered.add(where)
                try:
                    self._executor_of(where).submit(_Offer(self, where))
                except RuntimeError:  # no more threads: this one will do it
                    self._offered.discard(where)
        if taken is not None:
            self._ready.remove(taken)
        return taken

    def _step(self, number: int) -> None:
        """Run a step that was taken; called with the lock, which is let go meanwhile."""
        error: BaseException | None = None
        self._lock.release()
        try:
            self._run_step(number, self._slots)
        except BaseException as raised:
            error = raised
        finally:
            self._lock.acquire()
        self._busy.discard(self._graph.devices[number])
        if error is not None:
            self._error = self._error or error
        else:
            self._left -= 1
            for slot in self._graph.reads[number]:
                self._readers[slot] -= 1
                if self._readers[slot] == 0:
                    self._slots[slot] = None
            for follower in self._graph.followers[number]:
                self._waits_for[follower] -= 1
                if self._waits_for[follower] == 0:
                    self._ready.append(follower)
            self._ready.sort()
        self._changed.notify_all()

    def help(self, device: str) -> None:
        """Run steps of a device in the thread of its executor while there are any."""
        with self._lock:
            self._offered.discard(device)
            while (number := self._take(device)) is not None:
                self._step(number)


class _Offer:
    """Steps of one device, offered to its executor."""

    def __init__(self, run: ParallelRun, device: str) -> None:
        self._parallel_run = run
        self._device = device

    def run(self) -> None:
        self._parallel_run.help(self._device)

    def abandon(self, why: str) -> None:
        pass  # the thread that waits for the inference does it

    def interrupt(self) -> None:
        pass  # its request is asked
