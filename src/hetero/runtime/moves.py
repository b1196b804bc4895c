"""Where the values of a schedule are, and which moves between memories a run needs.

A value that a device with its own memory computes stays there (`RemoteContext.moves_values`). Each other memory that
reads it, or the host, gets its own slot for a copy. The slot is filled once, before the first step that reads it there.
If all readers share the memory, there is no copy. All of this is decided when a request is created; at run time, moves
are tasks among the steps. Only model inputs can be anywhere: a move passes on an input that is already in its target.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import HeteroError, inference_error
from ..plugin.profile import HOST, Move
from ..plugin.remote import PortMemories, RemoteContext, RemoteTensor, can_stay, moving_memory

if TYPE_CHECKING:
    from ..model.types import Port
    from ..plugin.contract import CompiledModel

__all__ = ["Mover", "Placement", "Program", "Step", "Task"]


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One submodel: its compiled model, the slots it reads and writes, the slots that no later step reads, and the
    number of its subgraph in the plan, from 1."""

    compiled: CompiledModel
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    last_read: tuple[int, ...]
    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Copy:
    """One copy: the slots it reads and fills, and the memory of the copy; None: the host's. ``name``: of the value."""

    name: str
    source: int
    target: int
    memory: RemoteContext | None
    from_device: str
    to_device: str


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A step, or the copies that it needs. ``step``: the position of the step in the schedule; of copies of outputs,
    the last step. ``reads``, ``fills``, ``free``: the slots that it reads and writes, and that no later task reads."""

    step: int
    copies: tuple[_Copy, ...]
    reads: tuple[int, ...]
    fills: tuple[int, ...]
    free: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """The tasks of a run, in order. ``outputs``: the slot of each output of the model."""

    num_slots: int
    tasks: tuple[Task, ...]
    outputs: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Placement:
    """The memory of each value of a schedule. ``steps``, ``outputs``, ``num_slots``: as in `Schedule`."""

    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    num_slots: int

    @functools.cached_property
    def memories(self) -> tuple[RemoteContext | None, ...]:
        """For each step, the memory into and out of which hetero moves its values; None: there is no such memory."""
        return tuple(moving_memory(step.compiled.memory_space) for step in self.steps)

    @functools.cached_property
    def kept(self) -> tuple[tuple[int, ...], ...]:
        """For each step, the positions of the results that stay in its memory. If hetero moves values there, all that
        can; otherwise those whose readers all have its `memory_space`."""
        spaces = [step.compiled.memory_space for step in self.steps]
        readers: dict[int, list[object]] = {slot: [None] for slot in self.outputs}
        for step, space in zip(self.steps, spaces, strict=True):
            for slot in step.inputs:
                readers.setdefault(slot, []).append(space)
        kept: list[tuple[int, ...]] = []
        for step, space, memory in zip(self.steps, spaces, self.memories, strict=True):
            if memory is not None:
                kept.append(tuple(at for at, port in enumerate(step.compiled.outputs) if can_stay(port, memory)))
            else:
                kept.append(
                    tuple(
                        at
                        for at, slot in enumerate(step.outputs)
                        if space is not None and slot in readers and all(reader is space for reader in readers[slot])
                    )
                )
        return tuple(kept)

    @functools.cached_property
    def memory_of(self) -> Mapping[int, RemoteContext]:
        """Slot -> the memory in which a step computes and keeps the value."""
        return {
            step.outputs[position]: memory
            for step, memory, kept in zip(self.steps, self.memories, self.kept, strict=True)
            if memory is not None
            for position in kept
        }

    @functools.cached_property
    def maker_of(self) -> Mapping[int, tuple[Step, Port]]:
        """Slot -> the step that computes the value, and its port there."""
        return {
            slot: (step, port)
            for step in self.steps
            for slot, port in zip(step.outputs, step.compiled.outputs, strict=True)
        }

    @functools.cached_property
    def ports(self) -> PortMemories:
        """The memories in which steps read the model's inputs, the first reader's first, and compute its outputs."""
        inputs: dict[int, dict[int, RemoteContext]] = {}
        for step, memory in zip(self.steps, self.memories, strict=True):
            if memory is None:
                continue
            for slot, port in zip(step.inputs, step.compiled.inputs, strict=True):
                if slot not in self.maker_of and can_stay(port, memory):
                    inputs.setdefault(slot, {})[id(memory)] = memory
        outputs = {at: self.memory_of[slot] for at, slot in enumerate(self.outputs) if slot in self.memory_of}
        return PortMemories({slot: tuple(of_slot.values()) for slot, of_slot in inputs.items()}, outputs)

    def program(self, kept: frozenset[int] = frozenset()) -> Program:
        """The tasks of a run. ``kept``: positions of outputs that stay where they are computed."""
        if all(memory is None for memory in self.memories):
            tasks = [Task(at, (), step.inputs, step.outputs, step.last_read) for at, step in enumerate(self.steps)]
            return Program(self.num_slots, tuple(tasks), self.outputs)
        return _Copies(self).program(kept)


class _Copies:
    """Builds a program: the slots of the copies made so far."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._num_slots = placement.num_slots
        self._slot_of: dict[tuple[int, int], int] = {}  # slot and id of the memory -> slot of its copy there

    def program(self, kept: frozenset[int]) -> Program:
        placement = self._placement
        tasks: list[Task] = []
        for at, (step, memory) in enumerate(zip(placement.steps, placement.memories, strict=True)):
            copies: list[_Copy] = []
            reads = tuple(
                self._there(
                    slot,
                    port,
                    memory if memory is not None and self._goes_to(memory, slot, port) else None,
                    step,
                    copies,
                )
                for slot, port in zip(step.inputs, step.compiled.inputs, strict=True)
            )
            if copies:
                tasks.append(_copying(at, copies))
            tasks.append(Task(at, (), reads, step.outputs))
        copies = []
        outputs = tuple(
            slot if position in kept else self._there(slot, None, None, placement.steps[-1], copies)
            for position, slot in enumerate(placement.outputs)
        )
        if copies:
            tasks.append(_copying(len(placement.steps) - 1, copies))
        return Program(self._num_slots, _with_free_slots(tasks, outputs), outputs)

    def _goes_to(self, memory: RemoteContext, slot: int, port: Port) -> bool:
        """Whether a step that reads the slot as ``port`` can get it in its own memory. The type that the maker states
        decides, so that all readers agree."""
        maker = self._placement.maker_of.get(slot)
        return can_stay(port if maker is None else maker[1], memory)

    def _there(
        self, slot: int, port: Port | None, memory: RemoteContext | None, step: Step, copies: list[_Copy]
    ) -> int:
        """The slot that has the value in ``memory``, for ``step``; adds to ``copies`` what fills it."""
        placement = self._placement
        origin = placement.memory_of.get(slot)
        if origin is memory and slot not in placement.ports.inputs:
            return slot
        source = slot
        if memory is not None and origin is not None:  # between two devices, through the host
            source = self._there(slot, port, None, step, copies)
        key = slot, id(memory)
        if key not in self._slot_of:
            maker = placement.maker_of.get(slot)
            named = maker[1] if maker is not None else port
            from_device = maker[0].compiled.device if maker is not None and source in placement.memory_of else HOST
            to_device = HOST if memory is None else step.compiled.device
            name = "" if named is None else named.name
            copies.append(_Copy(name, source, self._num_slots, memory, from_device, to_device))
            self._slot_of[key] = self._num_slots
            self._num_slots += 1
        return self._slot_of[key]


def _copying(step: int, copies: Sequence[_Copy]) -> Task:
    fills = tuple(copy.target for copy in copies)
    reads = tuple(dict.fromkeys(copy.source for copy in copies if copy.source not in fills))
    return Task(step, tuple(copies), reads, fills)


def _with_free_slots(tasks: Sequence[Task], outputs: Sequence[int]) -> tuple[Task, ...]:
    """``tasks``, each with the slots that no later task reads."""
    done: list[Task] = []
    read_later = set(outputs)
    for task in reversed(tasks):
        # A copy can be read only by another copy of the same task.
        candidates = (*task.reads, *task.fills) if task.copies else task.reads
        done.append(
            dataclasses.replace(task, free=tuple(slot for slot in dict.fromkeys(candidates) if slot not in read_later))
        )
        read_later.update(task.reads)
    return tuple(reversed(done))


class Mover:
    """Runs the copies of one task. ``subgraph``: the number of the subgraph that needs them."""

    def __init__(self, task: Task, subgraph: int, timed: bool) -> None:
        self._task = task
        self._subgraph = subgraph
        self._timed = timed
        self.moves: list[Move] = []  # of the last run, if timed

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The copies, in the order of `Task.fills`."""
        return self.run_into(values, {})

    def run_into(self, values: Sequence[Any], places: Mapping[int, NDArray[np.uint8]]) -> list[Any]:
        """`run`. ``places``: slot -> memory of this machine for its copy; it may be too small."""
        task = self._task
        slots = dict(zip(task.reads, values, strict=True))
        self.moves = []
        for copy in task.copies:
            value = slots[copy.source]
            begin = time.perf_counter_ns() if self._timed else 0
            try:
                slots[copy.target] = moved = _moved(value, copy.memory, places.get(copy.target))
            except HeteroError:
                raise
            except Exception as error:
                text = f"{copy.name!r} could not be copied from {copy.from_device} to {copy.to_device}"
                raise inference_error(f"{text}: {type(error).__name__}: {error}", error) from error
            if self._timed and moved is not value:
                end, size = time.perf_counter_ns(), int(moved.nbytes)
                self.moves.append(Move(copy.name, copy.from_device, copy.to_device, size, begin, end, self._subgraph))
        return [slots[slot] for slot in task.fills]


def _moved(value: Any, memory: RemoteContext | None, place: NDArray[np.uint8] | None) -> Any:
    """``value`` in ``memory``, or as an array of this machine; ``value`` itself if it is already there."""
    if isinstance(value, RemoteTensor):
        if value.context is memory and memory is not None:
            return value
        if memory is None and place is not None and place.nbytes == value.nbytes:
            array = place.view(value.dtype).reshape(value.shape)
            value.read_into(array)
            return array
        value = value.numpy()
    return memory.upload(value) if memory is not None and isinstance(value, np.ndarray) else value
