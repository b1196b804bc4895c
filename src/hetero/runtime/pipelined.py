"""Runs the stages of a pipeline in parallel: each stage works on a different request, in its device's threads.

Each stage has an executor. When a stage is done with a request, it passes the request to the next stage. Runners belong
to stages, not to requests. A stage has as many runners as it runs requests in parallel, so the memory for
activations does not grow with the number of requests in flight. Two queues are bounded:

- A stage starts a request only if few requests wait for the next stage (`_Stage.reserve`). Values therefore do not
  accumulate in front of a slow stage.
- If a limit is set, `submit` raises `QueueFull` when too many requests wait for the first stage.

Values move between memories as in a schedule (`moves`): the copies that a stage needs run in its thread. A value that
stays on a device must survive the next run there, so only devices in whose memory hetero moves values keep results.

An error ends only the request in which it occurs. `infer` runs the stages in the calling thread, with idle runners or
new ones.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import QueueFull, inference_error
from ..plugin.cancellation import Cancellation
from ..plugin.executor import ExecutorManager, StreamExecutor
from ..plugin.profile import Move, Profile, ProfileRow, Span
from ..plugin.request import AsyncRun, Runner
from .moves import Mover, Task
from .schedule import Schedule, Step, nbytes

__all__ = ["Pipeline", "PipelineRunner", "requests_to_fill"]

_LOOK_SECONDS = 0.05  # how often a stage that waits for room checks for cancellation

_MOST_ROUTES = 8  # kept for different sets of outputs that stay on their devices


def requests_to_fill(streams: Sequence[int]) -> int:
    """The number of requests in flight that keeps all stages busy: the running requests, plus as many waiting for each
    stage after the first. ``streams``: the number of requests that each stage runs in parallel."""
    return sum(streams) + sum(streams[1:])


class Pipeline:
    """The stages of one compiled model, one per step of ``schedule``. Requests use it as their executor."""

    def __init__(
        self, schedule: Schedule, executors: ExecutorManager, streams: Sequence[int], queue_limit: int, timed: bool
    ) -> None:
        """``streams``: the number of requests that each stage runs in parallel. ``queue_limit``: the number of
        requests that may wait for the first stage, 0 for no limit. ``timed``: collect counters."""
        self._schedule = schedule
        self.timed = timed
        placement = schedule.placement
        moving = [
            () if memory is None else kept for memory, kept in zip(placement.memories, placement.kept, strict=True)
        ]
        self._stages = [
            _Stage(step, executors, count, kept)
            for step, count, kept in zip(schedule.steps, streams, moving, strict=True)
        ]
        self._route_of = functools.lru_cache(_MOST_ROUTES)(functools.partial(_Route, schedule))
        self._queue_limit = queue_limit
        _alive.add(self)

    # ---- as an executor

    def submit(self, work: AsyncRun) -> None:
        """Run ``work`` through all stages. Raises `QueueFull` if too many requests wait, and `RuntimeError` if no
        thread can start."""
        first = self._stages[0]
        if not first.enter(self._queue_limit):
            raise QueueFull(
                f"{self._queue_limit} requests wait for the first stage, as many as QUEUE_LIMIT allows: wait for "
                "results before starting more, or use map(), which does this"
            )
        transit = _Transit(self, work)
        work.carrier = transit
        try:
            first.executor().submit(transit)
        except RuntimeError:
            first.leave()
            raise

    def withdraw(self, work: AsyncRun) -> bool:
        """Remove work that waits for a stage. Returns False if a stage runs it or is about to."""
        transit: _Transit | None = work.carrier
        if transit is None:
            return False
        stage = self._stages[transit.position]
        if not stage.executor().withdraw(transit):
            return False
        stage.leave()
        return True

    def serves_here(self) -> bool:
        """Whether the calling thread belongs to one of the stages."""
        return any(stage.serves_here() for stage in self._stages)

    # ---- for runs

    @property
    def num_stages(self) -> int:
        """The number of stages."""
        return len(self._stages)

    def flow(self, inputs: Sequence[Any], kept: frozenset[int] = frozenset()) -> Flow:
        """The values of a new inference. ``kept``: positions of outputs that stay where they are computed."""
        return Flow(self._schedule, self._route_of(kept), inputs)

    def run_stage(self, position: int, flow: Flow, cancellation: Cancellation) -> None:
        """Run a stage on the values of ``flow``, in the calling thread. Errors name the stage and the device.
        ``cancellation`` also stops the stage."""
        stage = self._stages[position]
        try:
            cancellation.check()
            runner = stage.runner()
            flag = getattr(runner, "cancellation", None)
            if flag is not None:
                cancellation.lend(flag)
            try:
                for task in flow.route.stages[position]:
                    self._run_task(task, flow, runner)
            finally:
                if flag is not None:
                    cancellation.take_back()
                stage.idle.append(runner)
        except Exception as error:
            self._schedule.fail(position, error)

    def _run_task(self, task: Task, flow: Flow, runner: Runner) -> None:
        """Run a stage, or the copies that it needs."""
        slots, number = flow.slots, self._schedule.steps[task.step].number
        begin = time.perf_counter_ns() if self.timed else 0
        values = [slots[slot] for slot in task.reads]
        if task.copies:
            mover = Mover(task, number, self.timed)
            results: Sequence[Any] = mover.run(values)
            flow.moves += mover.moves
        else:
            results = runner.run(values)
        if len(results) != len(task.fills):
            raise self._schedule.miscounted(task.step, results)
        for slot, result in zip(task.fills, results, strict=True):
            slots[slot] = result
        if self.timed and not task.copies:
            flow.rows += [dataclasses.replace(row, subgraph=task.step + 1) for row in runner.profile()]
            device, thread = self._schedule.steps[task.step].compiled.device, threading.current_thread().name
            flow.note(Span(task.step + 1, device, thread, begin, time.perf_counter_ns()), task.fills)
        for slot in task.free:
            slots[slot] = None

    def stage(self, position: int) -> _Stage:
        """A stage by number, from 0."""
        return self._stages[position]

    def reset_after_fork(self) -> None:
        """Reset all stages in a child process, which does not have the threads that ran stages or held locks."""
        for stage in self._stages:
            stage.reset()


class _Route:
    """The tasks of each stage, for inferences whose outputs at ``kept`` stay where they are computed."""

    def __init__(self, schedule: Schedule, kept: frozenset[int]) -> None:
        self.program = schedule.placement.program(kept)
        self.stages: list[list[Task]] = [[] for _ in schedule.steps]
        for task in self.program.tasks:
            self.stages[task.step].append(task)


class Flow:
    """The values and the counters of one inference."""

    __slots__ = ("_bytes", "_schedule", "moves", "route", "rows", "slots", "spans")

    def __init__(self, schedule: Schedule, route: _Route, inputs: Sequence[Any]) -> None:
        self._schedule = schedule
        self.route = route
        self.slots = schedule.filled(inputs, route.program.num_slots)
        self.moves: list[Move] = []
        self.rows: list[ProfileRow] = []
        self.spans: list[Span] = []
        self._bytes: dict[int, int] = {}

    @property
    def results(self) -> list[Any]:
        """The model's outputs."""
        return [self.slots[slot] for slot in self.route.program.outputs]

    def note(self, span: Span, slots: Sequence[int]) -> None:
        """Record the time span of a stage, and the sizes of the ``slots`` it wrote."""
        self.spans.append(span)
        self._bytes.update((slot, nbytes(self.slots[slot])) for slot in slots)

    @property
    def profile(self) -> Profile:
        """The counters; empty if none were collected."""
        if not self.spans:
            return Profile()
        transfers = self._schedule.transfers(self._bytes)
        return Profile(self.rows, self.spans, transfers, self.moves, self._schedule.devices)


class PipelineRunner:
    """Runs all stages one after the other in the calling thread; see `hetero.plugin.request.Runner`."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.cancellation = Cancellation()
        self._profile = Profile()
        self._kept: frozenset[int] = frozenset()

    def keep_on_device(self, positions: Sequence[int]) -> None:
        """See `ScheduleRunner.keep_on_device`."""
        self._kept = frozenset(positions)

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        flow = self._pipeline.flow(inputs, self._kept)
        for position in range(self._pipeline.num_stages):
            self._pipeline.run_stage(position, flow, self.cancellation)
        self._profile = flow.profile
        return flow.results

    def profile(self) -> Profile:
        return self._profile


class _Stage:
    """One stage: its executor, its runners, and the number of requests that wait for it or are about to."""

    def __init__(self, step: Step, executors: ExecutorManager, streams: int, kept: Sequence[int]) -> None:
        """``kept``: the positions of the results that stay in the memory of the device."""
        self._step = step
        self._kept = kept
        self._manager = executors
        self._streams = streams
        self._executor: StreamExecutor | None = None
        self.reset()

    def reset(self) -> None:
        """Set the initial state."""
        self._changed = threading.Condition()
        self._waiting = 0
        self.idle: collections.deque[Runner] = collections.deque()

    def executor(self) -> StreamExecutor:
        """The executor, leased on first use."""
        if self._executor is None:
            compiled = self._step.compiled
            with self._changed:
                if self._executor is None:
                    self._executor = self._manager.lease(
                        self, f"{compiled.device} stage", self._streams, compiled.stream_processors()
                    )
        return self._executor

    def serves_here(self) -> bool:
        return self._executor is not None and self._executor.serves_here()

    def runner(self) -> Runner:
        """An idle runner, or a new one. The caller returns it to ``idle``."""
        try:
            return self.idle.pop()
        except IndexError:
            runner = self._step.compiled.new_runner()
            if self._kept:
                runner.keep_on_device(self._kept)  # type: ignore[attr-defined]
            return runner

    def enter(self, limit: int) -> bool:
        """Count one more waiting request, unless ``limit`` are waiting already (0: no limit)."""
        with self._changed:
            if limit and self._waiting >= limit:
                return False
            self._waiting += 1
            return True

    def reserve(self, cancellation: Cancellation) -> None:
        """Wait until fewer than twice as many requests wait as the stage runs at the same time, then `enter`. Raises
        `Cancelled` if the request is cancelled during the wait."""
        with self._changed:
            while self._waiting >= 2 * self._streams:
                cancellation.check()
                self._changed.wait(_LOOK_SECONDS)
            self._waiting += 1

    def leave(self) -> None:
        """Count one waiting request less."""
        with self._changed:
            self._waiting -= 1
            self._changed.notify()


class _Transit:
    """One inference on its way through the stages, as work for their executors."""

    __slots__ = ("_flow", "_pipeline", "_run", "position")

    def __init__(self, pipeline: Pipeline, run: AsyncRun) -> None:
        self._pipeline = pipeline
        self._run = run
        self._flow: Flow | None = None
        self.position = 0

    def run(self) -> None:
        pipeline, run, position = self._pipeline, self._run, self.position
        following = pipeline.stage(position + 1) if position + 1 < pipeline.num_stages else None
        is_reserved = False
        try:
            try:
                arrays, cancellation = run.under_way()
                if following is not None:
                    following.reserve(cancellation)
                    is_reserved = True
            finally:
                pipeline.stage(position).leave()
            if self._flow is None:
                self._flow = pipeline.flow(arrays, run.kept)
            pipeline.run_stage(position, self._flow, cancellation)
            if following is not None:
                self.position += 1
                following.executor().submit(self)
                return
        except BaseException as error:  # `wait` raises it
            if is_reserved and following is not None:
                following.leave()
            if isinstance(error, RuntimeError):
                failure = inference_error(f"no thread for stage {position + 2}: {error}", error)
                failure.__cause__ = error
                error = failure
            run.settle(None, error)
            return
        run.complete(self._flow.results, self._flow.profile)

    def abandon(self, why: str) -> None:
        self._run.abandon(why)

    def interrupt(self) -> None:
        self._run.interrupt()


_alive: weakref.WeakSet[Pipeline] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for pipeline in list(_alive):
        pipeline.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
