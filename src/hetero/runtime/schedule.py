"""Stage 5, run: the submodels of a cut model, in order, over one table of values.

A schedule is made once at compile: every boundary value has a slot, each step names the slots it reads and fills and
those nobody reads after it. Running one inference is then a loop over steps in the calling thread, with no look-up by
name and no copy between steps.

Where steps on different devices do not wait for each other, the loop takes the time of each step, and runs steps
at the same time (`runtime/parallel.py`) once that is known to be worth the handing over.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import HeteroError, InferenceError
from .cancellation import Cancellation
from .executor import StreamExecutor
from .parallel import ParallelRun, StepGraph, saved_by_parallel
from .profile import ProfileRow
from .request import Runner

if TYPE_CHECKING:
    from ..plugin import CompiledModel

__all__ = ["Schedule", "ScheduleRunner", "Step"]

# Runs between two looks at whether it is worth running steps at the same time.
_LOOK_EVERY = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One submodel: what runs it, the slots it reads and fills, and the slots free after it."""

    compiled: CompiledModel
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    last_read: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Steps in an order in which they can run. Slots 0, 1, … hold the model's inputs, the next ones ``constants``.

    ``executor_of``: device -> the threads for its steps, where those run beside others.
    """

    num_slots: int
    constants: tuple[np.ndarray, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    executor_of: Callable[[str], StreamExecutor]

    @functools.cached_property
    def graph(self) -> StepGraph | None:
        """Which steps wait for which; None if there is but one order, or one device."""
        graph = StepGraph.of([(step.compiled.device, step.inputs, step.outputs) for step in self.steps], self.outputs)
        return graph if graph.is_wide else None


class ScheduleRunner:
    """Runs one inference at a time through a schedule; see `hetero.runtime.request.Runner`."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._runners: list[Runner] = [step.compiled.create_runner() for step in schedule.steps]
        flags = [getattr(runner, "cancellation", None) for runner in self._runners]
        self.cancellation = Cancellation(flag for flag in flags if flag is not None)
        self._graph = schedule.graph
        self._seconds = [0.0] * len(schedule.steps)  # of each step, when it last ran
        self._until_look = 1
        self._in_parallel = False

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        schedule = self._schedule
        slots: list[Any] = [*inputs, *schedule.constants]
        slots += [None] * (schedule.num_slots - len(slots))
        if self._graph is None:
            for position in range(len(schedule.steps)):
                self._run_step(position, slots)
                for slot in schedule.steps[position].last_read:
                    slots[slot] = None
        else:
            self._run_wide(self._graph, slots)
        return [slots[slot] for slot in schedule.outputs]

    def _run_wide(self, graph: StepGraph, slots: list[Any]) -> None:
        """Steps of which some do not wait for each other."""
        if self._in_parallel:
            ParallelRun(graph, slots, self._seconds, self._run_timed, self._schedule.executor_of).run()
        else:
            for position, step in enumerate(self._schedule.steps):
                self._run_timed(position, slots)
                for slot in step.last_read:
                    slots[slot] = None
        self._until_look -= 1
        if self._until_look == 0:
            self._until_look = _LOOK_EVERY
            self._in_parallel = saved_by_parallel(graph, self._seconds)

    def _run_timed(self, position: int, slots: list[Any]) -> None:
        start = time.perf_counter()
        self._run_step(position, slots)
        self._seconds[position] = time.perf_counter() - start

    def _run_step(self, position: int, slots: list[Any]) -> None:
        step, runner = self._schedule.steps[position], self._runners[position]
        if self.cancellation.requested:
            self.cancellation.check()
        try:
            results = runner.run([slots[slot] for slot in step.inputs])
        except HeteroError as error:
            error.add_note(f"in subgraph {position + 1} on {step.compiled.device}")
            raise
        except Exception as error:
            raise InferenceError(
                f"{step.compiled.device} failed in subgraph {position + 1}: {type(error).__name__}: {error}"
            ) from error
        if len(results) != len(step.outputs):
            raise InferenceError(
                f"{step.compiled.device} gave {len(results)} results for subgraph {position + 1}, "
                f"expected {len(step.outputs)}"
            )
        for slot, result in zip(step.outputs, results, strict=True):
            slots[slot] = result

    def profile(self) -> Sequence[ProfileRow]:
        return [
            dataclasses.replace(row, subgraph=position + 1)
            for position, runner in enumerate(self._runners)
            for row in runner.profile()
        ]
