"""From a model and the shapes of its inputs to a `Program`.

Nodes are lowered in order. What is known is computed at once: constants once per compiled model, shapes and what
follows from them once per plan. The rest becomes kernel calls. Where the shape of a result depends on data (a Reshape
to a computed shape), the plan is cut: a `Segment` ends there, and the rest is planned when the data are known.

Memory: every storage lives from the call that fills it to the last that reads it; storages that do not live at the
same time share the arena: in the order of the calls, each takes the smallest free block that holds it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ... import _kernels
from ...errors import HeteroError, InferenceError
from . import elementwise, movement, network  # noqa: F401  they register their operators
from .registry import Node, dtype_trouble, find
from .values import Call, Context, NeedsData, Packed, Value

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["NodePlan", "Planner", "Segment"]

_ALIGNMENT = 64


@dataclasses.dataclass(frozen=True, slots=True)
class NodePlan:
    """What planning needs of a node, parsed once."""

    node: Node
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    label: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A part of a plan that runs without a stop.

    ``program`` takes the arrays of ``inputs`` (value ids) and gives those of ``outputs``. ``known``: values that need
    no program. ``aliases``: values that are another one under a new shape. ``needs``: values whose data the rest of
    the plan waits for; empty for the last segment. ``handed_on``: all that the rest may read. ``node_of``: the node of
    each call of the program. ``next_node``: where planning goes on.
    """

    program: _kernels.Program
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    known: Mapping[int, NDArray[Any]]
    aliases: Mapping[int, tuple[int, tuple[int, ...]]]
    needs: tuple[int, ...]
    node_of: tuple[int, ...]
    next_node: int
    handed_on: tuple[int, ...]
    keep_alive: list[Segment] = dataclasses.field(default_factory=list)


class Planner:
    """Plans one model for any shapes. Holds what all plans share: parsed nodes, folded and packed constants.

    Not for two threads at once.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._packed: Packed = {}
        self._constants: dict[int, Value] = {}
        self.nodes = [self._parse(i) for i in range(model.num_nodes)]
        self.folded = self._fold()

    def _parse(self, i: int) -> NodePlan:
        view = self.model.nodes[i]
        outputs = tuple(self.model.node_outputs[i].tolist())
        node = Node(view.op_type, view.opset, view.attributes, len(outputs), tuple(value >= 0 for value in outputs))
        return NodePlan(node, tuple(self.model.node_inputs[i].tolist()), outputs, f"node {view.key!r} ({view.op_type})")

    def _fold(self) -> frozenset[int]:
        """Compute the nodes that depend on constants alone, once. Their indices."""
        folded = set()
        for i, plan in enumerate(self.nodes):
            inputs = [self._constant(value) if value >= 0 else None for value in plan.inputs]
            if any(value >= 0 and operand is None for value, operand in zip(plan.inputs, inputs, strict=True)):
                continue
            context = Context(self._packed)
            for value, result in zip(plan.outputs, self._lower(context, i, inputs), strict=False):
                if value >= 0:
                    self._constants[value] = Value(result.dtype, result.shape, result.data, shared=True)
            folded.add(i)
        return frozenset(folded)

    def _constant(self, value: int) -> Value | None:
        if value not in self._constants and self.model.is_constant[value]:
            array = self.model.constant(value)
            self._constants[value] = Value(array.dtype, array.shape, array, shared=True)
        return self._constants.get(value)

    def _lower(self, context: Context, i: int, inputs: Sequence[Value | None]) -> Sequence[Value]:
        plan = self.nodes[i]
        entry = find(plan.node.op_type, plan.node.opset)
        assert entry is not None, "query_model refused it"
        trouble = dtype_trouble(entry, inputs)
        if trouble:
            raise InferenceError(f"{plan.label}: {trouble}")
        context.node = i
        try:
            return entry.lower(context, plan.node, inputs)
        except NeedsData:
            raise
        except HeteroError as error:
            raise InferenceError(f"{plan.label}: {error}") from error
        except (ValueError, TypeError, IndexError, OverflowError, MemoryError) as error:
            shapes = ", ".join("absent" if v is None else f"{v.dtype}{list(v.shape)}" for v in inputs)
            raise InferenceError(f"{plan.label}: cannot be planned for inputs {shapes}: {error}") from error

    def first(self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype[Any]]) -> Segment:
        """The first segment for these inputs."""
        given = {
            value: Value(dtype, shape) for value, shape, dtype in zip(self.model.input_ids, shapes, dtypes, strict=True)
        }
        return self._segment(0, given)

    def following(self, segment: Segment, arrays: Mapping[int, NDArray[Any]]) -> Segment:
        """The segment after one that waits for data. ``arrays``: all values made or known so far."""
        given = {}
        for value, array in arrays.items():
            data = array if value in segment.needs or value in segment.known else None
            given[value] = Value(array.dtype, array.shape, data)
        return self._segment(segment.next_node, given)

    def _segment(self, start: int, given: dict[int, Value]) -> Segment:
        context = Context(self._packed)
        values: dict[int, Value] = dict(given)
        for value in given.values():
            if value.data is None:
                value.storage = context.new_storage()
        num_given = context.num_storages
        needs: tuple[int, ...] = ()
        stop = len(self.nodes)
        for i in range(start, len(self.nodes)):
            if i in self.folded:
                continue
            plan = self.nodes[i]
            inputs = [(values.get(value) or self._constant(value)) if value >= 0 else None for value in plan.inputs]
            num_calls = len(context.calls)
            try:
                results = self._lower(context, i, inputs)
            except NeedsData as need:
                del context.calls[num_calls:]
                needs = tuple(v for v, operand in zip(plan.inputs, inputs, strict=True) if operand is need.value)
                if not needs:
                    raise InferenceError(f"{plan.label}: needs data of a value it made itself") from need
                stop = i
                break
            values.update(
                (number, result) for number, result in zip(plan.outputs, results, strict=False) if number >= 0
            )
        return self._finish(context, values, given, num_given, needs, start, stop)

    def _finish(
        self,
        context: Context,
        values: dict[int, Value],
        given: dict[int, Value],
        num_given: int,
        needs: tuple[int, ...],
        start: int,
        stop: int,
    ) -> Segment:
        """Choose what the segment hands on, and lay out its memory."""
        if stop == len(self.nodes):
            wanted = list(dict.fromkeys(self.model.output_ids))
        else:
            read_later = {value for plan in self.nodes[stop:] for value in plan.inputs} | set(self.model.output_ids)
            wanted = [value for value in values if value in read_later]
        known, outputs, aliases = {}, [], {}
        storage_output: dict[int, int] = {}
        given_storage = {value.storage: number for number, value in given.items() if value.data is None}
        for number in wanted:
            value = values.get(number) or self._constant(number)
            assert value is not None, "checked when the model was read"
            if value.data is not None:
                known[number] = value.data
            elif value.storage in given_storage:
                aliases[number] = (given_storage[value.storage], value.shape)
            elif value.storage in storage_output:
                aliases[number] = (storage_output[value.storage], value.shape)
            else:
                storage_output[value.storage] = number
                outputs.append(number)
        inputs = [number for number, value in given.items() if value.data is None]
        program, node_of = _assemble(
            context.calls,
            [(values[n] if n in values else given[n]) for n in inputs],
            [values[n] for n in outputs],
            [self.nodes[call.node].label for call in context.calls],
        )
        return Segment(program, tuple(inputs), tuple(outputs), known, aliases, needs, node_of, stop, tuple(wanted))


def _assemble(
    calls: Sequence[Call], inputs: Sequence[Value], outputs: Sequence[Value], labels: Sequence[str]
) -> tuple[_kernels.Program, tuple[int, ...]]:
    """Lay out memory and number the tensors of a program."""
    place: dict[int, tuple[int, int]] = {}  # storage -> (kind of place, number)
    for position, value in enumerate(inputs):
        place[value.storage] = (2, position)
    for position, value in enumerate(outputs):
        place[value.storage] = (3, position)
    arena_bytes = _place_in_arena(calls, place)

    constants: list[NDArray[Any]] = []
    constant_number: dict[int, int] = {}
    tensors: list[tuple[Any, ...]] = []
    tensor_number: dict[int, int] = {}

    def number_of(value: Value | None) -> int:
        if value is None:
            return -1
        if id(value) not in tensor_number:
            if value.data is not None:
                if id(value.data) not in constant_number:
                    constant_number[id(value.data)] = len(constants)
                    constants.append(value.data)
                where = (1, constant_number[id(value.data)])
            else:
                where = place[value.storage]
            tensor_number[id(value)] = len(tensors)
            tensors.append((value.dtype, value.shape, *where))
        return tensor_number[id(value)]

    entries = [
        (
            call.kernel,
            [number_of(value) for value in call.inputs],
            [number_of(value) for value in call.outputs],
            call.ints,
            call.floats,
            call.scratch_bytes,
            label,
        )
        for call, label in zip(calls, labels, strict=True)
    ]
    program = _kernels.Program(
        tensors,
        entries,
        constants,
        [(value.shape, value.dtype) for value in inputs],
        [(value.shape, value.dtype) for value in outputs],
        arena_bytes,
    )
    return program, tuple(call.node for call in calls)


def _place_in_arena(calls: Sequence[Call], place: dict[int, tuple[int, int]]) -> int:
    """Give every storage that is neither input nor output an offset; returns the arena's size in bytes."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    size: dict[int, int] = {}
    for position, call in enumerate(calls):
        for value in (*call.inputs, *call.outputs):
            if value is not None and value.data is None and value.storage not in place:
                first.setdefault(value.storage, position)
                last[value.storage] = position
                size[value.storage] = max(size.get(value.storage, 0), value.size * value.dtype.itemsize)
    end = 0
    free: list[tuple[int, int]] = []  # (offset, bytes), by offset
    by_last: dict[int, list[int]] = {}
    for storage, position in last.items():
        by_last.setdefault(position, []).append(storage)
    offset_of: dict[int, tuple[int, int]] = {}
    started: dict[int, list[int]] = {}
    for storage, position in first.items():
        started.setdefault(position, []).append(storage)
    for position in range(len(calls)):
        for storage in started.get(position, ()):
            wanted = -(-max(size[storage], 1) // _ALIGNMENT) * _ALIGNMENT
            fits = [(length, at) for at, (_, length) in enumerate(free) if length >= wanted]
            if fits:
                _, at = min(fits)
                offset, length = free[at]
                if length > wanted:
                    free[at] = (offset + wanted, length - wanted)
                else:
                    del free[at]
            elif free and free[-1][0] + free[-1][1] == end:
                offset = free.pop()[0]
                end = offset + wanted
            else:
                offset, end = end, end + wanted
            offset_of[storage] = (offset, wanted)
            place[storage] = (0, offset)
        for storage in by_last.get(position, ()):
            free.append(offset_of[storage])
        if position in by_last:
            free = _merged(sorted(free))
    return end


def _merged(blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for offset, length in blocks:
        if merged and merged[-1][0] + merged[-1][1] == offset:
            merged[-1] = (merged[-1][0], merged[-1][1] + length)
        else:
            merged.append((offset, length))
    return merged
