"""Runs independent steps of one inference on different devices in parallel.

A device runs one step of an inference at a time; of its ready steps, the first. The calling thread runs steps too. A
device's executor gets a step only while another step runs, and only if one of both is long enough to be worth the
overhead. A thread that finishes a step continues with one that has become ready, so a chain stays in one thread.
`src/_core/schedule/simulate.c` predicts such runs.

A step passed to an executor is an offer: the first idle thread runs it, so no step waits for a thread that is busy with
another request.

Between two steps in two threads lie 60 to 130 µs of Python and of waking up. If every step is a program of kernels that
uses one thread (`bound_steps`), they run without Python by the same rules, in a team of threads that spin for a moment.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .. import _schedule
from .._kernels import Team
from .._workspace import BoundSteps, Workspace
from ..assign.schedule import HAND_OVER_SECONDS, is_worth
from ..plugin.executor import StreamExecutor

__all__ = ["ParallelRun", "ProgramRunner", "StepGraph", "bound_steps", "saved_by_parallel"]

_ALIGNMENT = 64  # bytes; a cache line


@dataclasses.dataclass(frozen=True, slots=True)
class StepGraph:
    """Steps by number, in an order in which they can run.

    ``followers``: for each step, the steps that wait for it. ``waits_for``: for each step, the number of steps it waits
    for. ``reads``: for each step, the distinct slots it reads. ``readers``: for each slot, the number of steps that
    read it, plus 1 if the slot is a result. ``is_wide``: whether steps on different devices can run in parallel.
    """

    devices: tuple[str, ...]
    followers: tuple[tuple[int, ...], ...]
    waits_for: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    readers: tuple[int, ...]
    is_wide: bool

    @classmethod
    def of(cls, steps: Sequence[tuple[str, Sequence[int], Sequence[int]]], kept: Sequence[int]) -> StepGraph:
        """``steps``: device, slots read, slots written. ``kept``: the slots of the results."""
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
        # If each step waits for the previous one, only one order is possible.
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
    """Whether an inference is clearly faster with parallel steps. ``seconds``: the time of each step; infinite if it
    did not run."""
    alone = sum(seconds)
    if not math.isfinite(alone):
        return False
    lanes = {device: number for number, device in enumerate(dict.fromkeys(graph.devices))}
    indptr = [0, *itertools.accumulate(map(len, graph.followers))]
    followers = np.fromiter(itertools.chain.from_iterable(graph.followers), np.int32, indptr[-1])
    lane = [lanes[device] for device in graph.devices]
    _, _, together = _schedule.simulate(seconds, lane, indptr, followers, HAND_OVER_SECONDS)
    return is_worth(alone, together)


@runtime_checkable
class ProgramRunner(Protocol):
    """A runner whose runs may be those of one program."""

    def program(self) -> Workspace | None:
        """The workspace whose run is all that a run with the sizes of the last one does; None if there is more to do.
        Runners of one device may share memory for intermediate values, those of two devices must not."""
        ...


def bound_steps(
    graph: StepGraph,
    runners: Sequence[Any],
    reads: Sequence[Sequence[int]],
    fills: Sequence[Sequence[int]],
    outputs: Sequence[int],
    team: Callable[[], Team],
) -> BoundSteps | None:
    """The steps as programs that run without Python, for inputs of the sizes of the last run; None if they cannot.

    ``runners``: for each step, its runner, or None if the step only copies. ``reads``, ``fills``: the slots of each
    step, in the order of its runner's inputs and results. ``team``: returns one with a thread for each device.
    """
    programs = []
    for runner in runners:
        program = runner.program() if isinstance(runner, ProgramRunner) else None
        if program is None:
            return None
        programs.append(program)
    number = {device: number for number, device in enumerate(dict.fromkeys(graph.devices))}
    devices = [number[device] for device in graph.devices]
    specs = {
        slot: spec
        for program, slots in zip(programs, fills, strict=True)
        for slot, spec in zip(slots, program.output_specs, strict=True)
        if slot not in outputs
    }
    values = _memory(graph, reads, fills, specs)
    try:
        return BoundSteps(programs, devices, reads, fills, graph.waits_for, graph.followers, outputs, values, team())
    except ValueError:
        return None


def _memory(
    graph: StepGraph,
    reads: Sequence[Sequence[int]],
    fills: Sequence[Sequence[int]],
    specs: Mapping[int, tuple[tuple[int, ...], np.dtype[Any]]],
) -> dict[int, np.ndarray]:
    """Slot -> an array of its type. A value gets the memory of an earlier one if its step can only run after all that
    make or read that one."""
    before = [0] * len(graph.followers)  # for each step, the bits of those that end before it begins
    users = [0] * len(graph.readers)  # for each slot, the bits of the steps that fill or read it
    for number, followers in enumerate(graph.followers):
        for follower in followers:
            before[follower] |= before[number] | 1 << number
        for slot in (*reads[number], *fills[number]):
            users[slot] |= 1 << number
    blocks: list[int] = []  # bytes
    free: list[tuple[int, int, int]] = []  # bytes, block, the bits of the steps that must have ended
    block_of: dict[int, int] = {}
    for number, slots in enumerate(fills):
        for slot in slots:
            if slot not in specs:
                continue
            shape, dtype = specs[slot]
            size = -(-math.prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
            fitting = [entry for entry in free if entry[0] >= size and not entry[2] & ~before[number]]
            if fitting:
                taken = min(fitting)
                free.remove(taken)
                block_of[slot] = taken[1]
            else:
                block_of[slot] = len(blocks)
                blocks.append(size)
            free.append((blocks[block_of[slot]], block_of[slot], users[slot]))
    begins = [*itertools.accumulate(blocks, initial=0)]
    memory = np.empty(begins[-1] + _ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    return {slot: np.ndarray(*specs[slot], memory, first + begins[block]) for slot, block in block_of.items()}


class ParallelRun:
    """One inference. ``run_step(number, slots)`` runs a step. ``seconds``: the known time of each step."""

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
        self._caller_waits = False
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run all steps. Raises the first error, after all running steps have ended."""
        with self._lock:
            try:
                while True:
                    number = self._take(None)
                    if number is not None:
                        self._step(number)
                    elif self._busy:
                        self._caller_waits = True
                        self._changed.wait()
                        self._caller_waits = False
                    else:
                        break
            except BaseException as error:  # Ctrl-C during the wait
                self._error = self._error or error
                while self._busy:
                    self._changed.wait()
        if self._error is not None:
            raise self._error
        assert self._left == 0

    def _take(self, device: str | None) -> int | None:
        """A ready step that can run now, of ``device`` or of any device.

        The others have to be started by another thread. If the calling thread waits, it is woken for the first one; no
        second thread wakes for that step. The rest are offered to their devices, except short ones that the calling
        thread runs sooner than another thread wakes up.
        """
        if self._error is not None:
            return None
        taken = None
        left_to_caller = None  # a device
        caller_is_free = self._caller_waits
        for number in self._ready:
            where = self._graph.devices[number]
            if where in self._busy or where == left_to_caller:
                continue
            if taken is None and device in (None, where):
                taken = number
                self._busy.add(where)
                if device is None:
                    caller_is_free = self._seconds[number] < HAND_OVER_SECONDS
            elif self._caller_waits and left_to_caller is None:
                left_to_caller = where
                self._changed.notify()
            elif where not in self._offered and (not caller_is_free or self._seconds[number] >= HAND_OVER_SECONDS):
                self._offered.add(where)
                try:
                    self._executor_of(where).submit(_Offer(self, where))
                except RuntimeError:  # no thread available: the current thread runs the step
                    self._offered.discard(where)
        if taken is not None:
            self._ready.remove(taken)
        return taken

    def _step(self, number: int) -> None:
        """Run a step that `_take` returned. The caller holds the lock; it is released while the step runs."""
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

    def help(self, device: str) -> None:
        """Run ready steps of a device in its executor's thread."""
        with self._lock:
            self._offered.discard(device)
            while (number := self._take(device)) is not None:
                self._step(number)
            if not self._busy:
                self._changed.notify()  # the end, an error, or offers that no thread has accepted


class _Offer:
    """Steps of one device, offered to its executor."""

    def __init__(self, run: ParallelRun, device: str) -> None:
        self._parallel_run = run
        self._device = device

    def run(self) -> None:
        self._parallel_run.help(self._device)

    def abandon(self, why: str) -> None:
        pass  # the thread that waits for the inference runs the steps

    def interrupt(self) -> None:
        pass  # the request receives the interrupt
