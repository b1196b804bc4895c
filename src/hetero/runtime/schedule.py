"""Stage 5, run: the submodels of a partitioned model, in order, over one table of values.

`compile_model` creates the schedule once. Every boundary value has a slot, and each step lists the slots it reads, the
slots it writes, and the slots that no later step reads. An inference is a loop over the steps in the calling thread,
without look-ups by name. Steps pass values on without copies, except from one memory to another (`moves`).

If some steps on different devices are independent, the loop measures the time of each step. It runs steps in parallel
(`runtime/parallel.py`) if this saves more than the overhead of threads.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from .._kernels import Team
from .._workspace import BoundSteps
from ..errors import HeteroError, InferenceError, inference_error
from ..plugin.cancellation import Cancellation
from ..plugin.executor import StreamExecutor
from ..plugin.profile import Profile, ProfileRow, Span, Transfer
from ..plugin.request import AppendingRunner, RepeatingRunner, Runner
from .chains import Chain, Link, find_chains
from .moves import Mover, Placement, Program, Step
from .parallel import ParallelRun, StepGraph, bound_steps, saved_by_parallel

__all__ = ["Schedule", "ScheduleRunner", "Step", "nbytes"]

# The number of runs before the first decision for or against parallel steps, and between two decisions. The first run
# of a request is not typical, because it plans for the input shapes.
_FIRST_LOOK, _LOOK_EVERY = 2, 64

# After so many parallel runs, and every so many runs in which they do not fit, steps are bound to run without Python.
_RUNS_BEFORE_BOUND = 2

_MOST_PROGRAMS = 8  # kept for different sets of outputs that stay on their devices

# After so many runs, the schedule looks for chains: runners bind values in the first runs with the same sizes. A chain
# that breaks means that sizes have changed; if that happens often, chains save nothing.
_RUNS_BEFORE_CHAINS = 4
_MOST_BROKEN_CHAINS = 8

_NO_PLACE = np.empty(0, np.uint8)

# The position of a task, its `Runner.run` or `Mover.run`, and its slots: read, written, and not read later.
_RunnableTask = tuple[int, Callable[[Sequence[Any]], Sequence[Any]], tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Steps in an order in which they can run. Slots 0, 1, … hold the model's inputs; the next slots hold
    ``constants``.

    ``executor_of``: device -> the executor for its steps, used for parallel steps. ``devices``: the device list of the
    plan, for profiles.
    """

    num_slots: int
    constants: tuple[np.ndarray, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    executor_of: Callable[[str], StreamExecutor]
    devices: tuple[str, ...] = ()

    @functools.cached_property
    def is_wide(self) -> bool:
        """Whether steps on different devices can run in parallel."""
        steps = [(step.compiled.device, step.inputs, step.outputs) for step in self.steps]
        return StepGraph.of(steps, self.outputs).is_wide

    @functools.cached_property
    def team(self) -> Team:
        """A thread for each device with steps, for steps that run without Python."""
        return Team(len({step.compiled.device for step in self.steps}))

    @functools.cached_property
    def placement(self) -> Placement:
        """The memory of each value."""
        return Placement(self.steps, self.outputs, self.num_slots)

    def graph(self, program: Program) -> StepGraph:
        """The dependencies between the tasks of ``program``. Copies run on the device that they are for."""
        tasks = [(self.steps[task.step].compiled.device, task.reads, task.fills) for task in program.tasks]
        return StepGraph.of(tasks, program.outputs)

    @functools.cached_property
    def boundary(self) -> tuple[tuple[str, int, int, tuple[int, ...]], ...]:
        """For each value that passes between steps: its name, its slot, the step that computes it, and its readers."""
        readers: dict[int, list[int]] = {}
        for position, step in enumerate(self.steps):
            for slot in dict.fromkeys(step.inputs):
                readers.setdefault(slot, []).append(position)
        return tuple(
            (port.name, slot, position, tuple(readers[slot]))
            for position, step in enumerate(self.steps)
            for port, slot in zip(step.compiled.outputs, step.outputs, strict=True)
            if slot in readers
        )

    def filled(self, inputs: Sequence[Any], num_slots: int | None = None) -> list[Any]:
        """All slots at the start of an inference. ``num_slots``: their number, with those of copies."""
        slots: list[Any] = [*inputs, *self.constants]
        slots += [None] * ((self.num_slots if num_slots is None else num_slots) - len(slots))
        return slots

    def transfers(self, slot_bytes: Mapping[int, int]) -> list[Transfer]:
        """The boundary values of a run, from the sizes of the slots in B."""
        return [
            Transfer(
                name,
                self.steps[made].number,
                tuple(self.steps[reader].number for reader in readers),
                slot_bytes.get(slot, 0),
            )
            for name, slot, made, readers in self.boundary
        ]

    def miscounted(self, position: int, results: Sequence[Any]) -> InferenceError:
        """The error for a step that returned too many or too few results."""
        step = self.steps[position]
        return InferenceError(
            f"{step.compiled.device} returned {len(results)} results for subgraph {step.number}, "
            f"expected {len(step.outputs)}"
        )

    def fail(self, position: int, error: Exception) -> NoReturn:
        """Raise ``error``, with the subgraph and its device added."""
        device, number = self.steps[position].compiled.device, self.steps[position].number
        if isinstance(error, HeteroError):
            error.add_note(f"in subgraph {number} on {device}")
            raise error
        text = f"{device} failed in subgraph {number}: {type(error).__name__}: {error}"
        raise inference_error(text, error) from error


class ScheduleRunner:
    """Runs one inference at a time through a schedule; see `hetero.plugin.request.Runner`."""

    def __init__(self, schedule: Schedule, timed: bool = False, overlaps: bool | None = None) -> None:
        """``timed``: record the time span of each step, for `profile`. ``overlaps``: whether steps on different devices
        run in parallel; None: as soon as their measured times show that this saves time. Times measured later
        can change True, not False."""
        self._schedule = schedule
        self._timed = timed
        self._spans: list[Span | None] = [None] * len(schedule.steps)
        self._slot_bytes: dict[int, int] = {}
        self._runners: list[Runner] = [step.compiled.new_runner() for step in schedule.steps]
        for runner, positions in zip(self._runners, schedule.placement.kept, strict=True):
            if positions:
                runner.keep_on_device(positions)  # type: ignore[attr-defined]
        _share_scratch(schedule, self._runners, overlaps is not False and schedule.is_wide)
        # The checks of a protocol take longer than a small submodel.
        self._run_into = [getattr(runner, "run_into", None) for runner in self._runners]
        flags = [getattr(runner, "cancellation", None) for runner in self._runners]
        self.cancellation = Cancellation(flag for flag in flags if flag is not None)
        self._overlaps = overlaps
        self._num_prepared = sum(hasattr(runner, "prepared") for runner in self._runners)
        self._until_chains = _RUNS_BEFORE_CHAINS
        self._num_broken = 0
        self._programs: dict[frozenset[int], Program] = {}
        self.keep_on_device(())
        self._alone = _as_alone(schedule, self._runners)

    def append_to_states(self, states: Sequence[tuple[int, int]]) -> None:
        """See `AppendingRunner`. Each step gets the states whose input it reads and whose output it computes."""
        outputs = self._schedule.outputs
        for step, runner in zip(self._schedule.steps, self._runners, strict=True):
            own = [
                (step.inputs.index(source), step.outputs.index(outputs[result]))
                for source, result in states
                if source in step.inputs and outputs[result] in step.outputs
            ]
            if own and isinstance(runner, AppendingRunner):
                runner.append_to_states(own)

    def keep_on_device(self, positions: Sequence[int]) -> None:
        """From now on, return the outputs at ``positions`` in the form in which their device keeps them: as a
        `RemoteTensor` if hetero moves values in its memory, else as an array."""
        schedule, kept = self._schedule, frozenset(positions)
        if kept not in self._programs:
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.clear()
            self._programs[kept] = schedule.placement.program(kept)
        self._program = program = self._programs[kept]
        self._graph = None if self._overlaps is False or not schedule.is_wide else schedule.graph(program)
        self._movers = {
            at: Mover(task, schedule.steps[task.step].number, self._timed)
            for at, task in enumerate(program.tasks)
            if task.copies
        }
        self._tasks: list[_RunnableTask] = [
            (
                at,
                self._movers[at].run if task.copies else self._runners[task.step].run,
                task.reads,
                task.fills,
                task.free,
            )
            for at, task in enumerate(program.tasks)
        ]
        self._unchained = self._tasks
        self._chains: dict[int, Chain] = {}  # in place of tasks: number of the first -> chain
        self._may_chain = self._num_prepared > 1 and self._graph is None and not self._timed
        # The minimum time of each task before the last decision, and since then. Other load only adds to the minimum.
        self._seconds = [math.inf] * len(program.tasks)
        self._least_since = [math.inf] * len(program.tasks)
        self._until_look = _FIRST_LOOK
        self._in_parallel = self._overlaps is True
        self._bound: BoundSteps | None = None
        self._until_bound = _RUNS_BEFORE_BOUND

    def run_again(self, inputs: Sequence[Any]) -> list[np.ndarray] | None:
        """See `RepeatingRunner`. Only for schedules with one step, whose runner supports it."""
        if self._alone is None:
            return None
        runner, reads, gives = self._alone
        try:
            results = runner.run_again([inputs[at] for at in reads])
        except HeteroError as error:
            step = self._schedule.steps[0]
            error.add_note(f"in subgraph {step.number} on {step.compiled.device}")
            raise
        return None if results is None else [results[at] for at in gives]

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        if self._may_chain:
            self._look_for_chains()
        return self._run(inputs)

    def _run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        program = self._program
        slots = self._schedule.filled(inputs, program.num_slots)
        if self._graph is not None:
            self._run_wide(self._graph, slots)
        elif self._timed:
            self._run_tasks(slots)
        else:
            self._run_in_order(slots)
        return [slots[slot] for slot in program.outputs]

    def run_into(self, inputs: Sequence[np.ndarray], places: Sequence[Any]) -> Sequence[np.ndarray]:
        """See `PlacingRunner`. A place goes to the step that computes its output, if the runner of the step accepts
        places, or to the copy of the output. An output that is listed twice has one place."""
        place_of = {slot: place for slot, place in zip(self._program.outputs, places, strict=True) if place.nbytes}
        if self._may_chain:
            self._look_for_chains()
        before = self._tasks
        self._tasks = [self._placed(task, place_of) for task in before]
        try:
            return self._run(inputs)
        finally:
            self._tasks = before

    def _placed(self, task: _RunnableTask, place_of: Mapping[int, Any]) -> _RunnableTask:
        position, _, reads, fills, free = task
        if place_of.keys().isdisjoint(fills):
            return task
        mover = self._movers.get(position)
        if mover is not None:
            return position, lambda values: mover.run_into(values, place_of), reads, fills, free
        run_into = self._run_into[self._program.tasks[position].step]
        if run_into is None:
            return task
        places = [place_of.get(slot, _NO_PLACE) for slot in fills]
        return position, lambda inputs: run_into(inputs, places), reads, fills, free

    def _run_in_order(self, slots: list[Any]) -> None:
        """Run each task in one loop, because for small submodels a call would take as long as the kernels."""
        cancellation = self.cancellation
        position = 0
        try:
            for position, run, reads, fills, free in self._tasks:
                if cancellation.requested:
                    cancellation.check()
                results = run([slots[slot] for slot in reads])
                if len(results) != len(fills):
                    raise self._schedule.miscounted(self._program.tasks[position].step, results)
                for slot, result in zip(fills, results):  # noqa: B905
                    slots[slot] = result
                for slot in free:
                    slots[slot] = None
        except Exception as error:
            if position in self._chains:
                position = self._chains[position].at
            self._schedule.fail(self._program.tasks[position].step, error)

    def _look_for_chains(self) -> None:
        """Before a run: replace tasks by chains, or chains that are broken by their tasks."""
        if self._chains:
            if any(chain.is_broken for chain in self._chains.values()):
                self._tasks, self._chains = self._unchained, {}
                self._num_broken += 1
                self._until_chains = _RUNS_BEFORE_CHAINS
                self._may_chain = self._num_broken < _MOST_BROKEN_CHAINS
            return
        self._until_chains -= 1
        if self._until_chains >= 0:
            return
        self._until_chains = 16 * _RUNS_BEFORE_CHAINS  # if there are none yet
        # Runners that write to given places are not in chains, because then not all their runs pass through the chain.
        links = [
            None
            if task.copies or self._run_into[task.step] is not None
            else Link(self._runners[task.step], task.reads, task.fills, task.free)
            for task in self._program.tasks
        ]
        chains = find_chains(links)
        moved = [chain.share_memory() for chain in chains]
        if any(moved):
            self._until_chains = 0  # this run binds the results where they are now
            return
        self._chains = {chain.begin: chain for chain in chains}
        tasks: list[_RunnableTask] = []
        skipped = 0
        for task in self._unchained:
            if skipped:
                skipped -= 1
            elif task[0] in self._chains:
                chain = self._chains[task[0]]
                tasks.append((task[0], chain.run, chain.reads, chain.fills, chain.free))
                skipped = chain.num_tasks - 1
            else:
                tasks.append(task)
        self._tasks = tasks

    def _run_wide(self, graph: StepGraph, slots: list[Any]) -> None:
        """Run tasks of which some are independent."""
        if not self._in_parallel:
            self._run_tasks(slots)
        elif not self._run_bound(graph, slots):
            ParallelRun(graph, slots, self._seconds, self._run_task, self._schedule.executor_of).run()
        self._until_look -= 1
        if self._until_look == 0:
            self._until_look = _LOOK_EVERY
            if self._bound is not None:
                self._least_since = list(map(min, self._least_since, self._bound.least_seconds()))
            self._seconds, self._least_since = self._least_since, [math.inf] * len(self._least_since)
            self._in_parallel = saved_by_parallel(graph, self._seconds)

    def _run_bound(self, graph: StepGraph, slots: list[Any]) -> bool:
        """Run all tasks without Python between them, if they can run so. Whether they have run."""
        if self._timed or self._tasks is not self._unchained:
            return False
        if self._bound is not None:
            self.cancellation.check()
            results = self._bound.run(slots)
            if results:
                for slot, result in zip(self._program.outputs, results, strict=True):
                    slots[slot] = result
                return True
            if results is not None:  # another request uses the threads
                return False
        self._until_bound -= 1
        if self._until_bound < 0:
            self._until_bound = _RUNS_BEFORE_BOUND
            tasks = self._program.tasks
            runners = [None if task.copies else self._runners[task.step] for task in tasks]
            reads, fills = [task.reads for task in tasks], [task.fills for task in tasks]
            bound = bound_steps(graph, runners, reads, fills, self._program.outputs, lambda: self._schedule.team)
            self._bound = bound or self._bound  # what fits no longer may fit again
        return False

    def _run_tasks(self, slots: list[Any]) -> None:
        """Run all tasks one after the other, and measure each."""
        for position, _, _, _, free in self._tasks:
            self._run_task(position, slots)
            for slot in free:
                slots[slot] = None

    def _run_task(self, position: int, slots: list[Any]) -> None:
        """Run and measure one task. The caller clears the slots that no later task reads."""
        _, run, reads, fills, _ = self._tasks[position]
        number = self._program.tasks[position].step
        start = time.perf_counter()
        try:
            self.cancellation.check()
            results = run([slots[slot] for slot in reads])
            if len(results) != len(fills):
                raise self._schedule.miscounted(number, results)
        except Exception as error:
            self._schedule.fail(number, error)
        for slot, result in zip(fills, results, strict=True):
            slots[slot] = result
        end = time.perf_counter()
        self._least_since[position] = min(end - start, self._least_since[position])
        if self._timed and position not in self._movers:
            self._note(number, start, end, results)

    def _note(self, position: int, start: float, end: float, results: Sequence[Any]) -> None:
        """Record when and where a step ran, and the sizes of its results."""
        step, thread = self._schedule.steps[position], threading.current_thread().name
        self._spans[position] = Span(step.number, step.compiled.device, thread, round(start * 1e9), round(end * 1e9))
        self._slot_bytes.update((slot, nbytes(result)) for slot, result in zip(step.outputs, results, strict=True))

    def profile(self) -> Sequence[ProfileRow]:
        rows = [
            dataclasses.replace(row, subgraph=step.number)
            for step, runner in zip(self._schedule.steps, self._runners, strict=True)
            for row in runner.profile()
        ]
        if not self._timed:
            return rows
        spans = [span for span in self._spans if span is not None]
        moves = [move for mover in self._movers.values() for move in mover.moves]
        transfers = self._schedule.transfers(self._slot_bytes)
        return Profile(rows, spans, transfers, moves, self._schedule.devices)


def _share_scratch(schedule: Schedule, runners: Sequence[Runner], overlaps: bool) -> None:
    """Let steps that never run in parallel share memory for intermediate values: all steps if none overlap, else
    those of each device, which runs one at a time."""
    first: dict[tuple[type, str], Runner] = {}
    for step, runner in zip(schedule.steps, runners, strict=True):
        share = getattr(runner, "share_scratch", None)
        if share is not None:
            before = first.setdefault((type(runner), step.compiled.device if overlaps else ""), runner)
            if before is not runner:
                share(before)


def nbytes(result: Any) -> int:
    """The size of a result in B: of a sequence, the sum of its arrays; of strings, the size of the references."""
    return sum(map(nbytes, result)) if isinstance(result, list) else getattr(result, "nbytes", 0)


def _as_alone(
    schedule: Schedule, runners: Sequence[Runner]
) -> tuple[RepeatingRunner, Sequence[int], Sequence[int]] | None:
    """If the schedule is a single step: its runner, the positions of the inputs it reads, and the positions of the
    outputs among its results. Otherwise None."""
    if len(runners) != 1 or schedule.constants or not isinstance(runners[0], RepeatingRunner):
        return None
    if schedule.placement.kept[0]:
        return None  # its results are tensors, which must be copied
    (step,) = schedule.steps
    if len(set(schedule.outputs)) < len(schedule.outputs) or not set(schedule.outputs) <= set(step.outputs):
        return None
    if not set(range(schedule.num_slots)) - set(step.outputs) <= set(step.inputs):
        return None  # the step's runner cannot check an input that it does not read
    return runners[0], step.inputs, [step.outputs.index(slot) for slot in schedule.outputs]
