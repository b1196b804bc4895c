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
from . import (  # noqa: F401  they register their operators
    batch_norm,
    einsum,
    elementwise,
    movement,
    network,
    quantized,
    recurrent,
    resize,
    sampling,
    selection,
    spatial,
)
from .fusion import fuse
from .registry import NodePlan, dtype_trouble
from .values import Call, Context, NeedsData, Packed, Value

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["Planner", "Segment"]

# Kernels whose output may be the memory of one of these inputs, if that has the output's size in bytes.
_ELEMENTWISE = ["add", "sub", "mul", "div", "mod", "fmod", "pow", "min", "max", "prelu", "and", "or", "xor", "equal"]
_ELEMENTWISE += ["less", "less_or_equal", "greater", "greater_or_equal", "shift_left", "shift_right"]
_ELEMENTWISE += ["bitwise_and", "bitwise_or", "bitwise_xor"]
_IN_PLACE = dict.fromkeys(_ELEMENTWISE, (0, 1)) | {"unary": (0,), "where": (1, 2), "batch_norm": (0,), "softmax": (0,)}
_IN_PLACE |= {"scatter_elements": (0,), "scatter_nd": (0,)}
# The same, but no other operand may be that memory: it is read at other places than those just written.
_IN_PLACE_ALONE = {"scatter_elements", "scatter_nd", "batch_norm"}


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

    ``transform``: fuse calls (see `fusion`).

    Not for two threads at once.
    """

    def __init__(self, model: Model, nodes: list[NodePlan], transform: bool = True) -> None:
        self.model = model
        self.nodes = nodes
        self._transform = transform
        self._packed: Packed = {}
        self._constants: dict[int, Value] = {}
        self.folded = self._fold()
        self._operands: dict[int, tuple[Value, Value]] = {}  # of convolutions: other weights and bias
        self._passing: frozenset[int] = frozenset()  # nodes that pass their first input on
        if transform:
            self._operands, self._passing = batch_norm.fold(nodes, model.output_ids, self._constant)

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
        trouble = dtype_trouble(plan.operator, inputs)
        if trouble:
            raise InferenceError(f"{plan}: {trouble}")
        context.node = i
        try:
            return plan.operator.lower(context, plan.node, inputs)
        except NeedsData:
            raise
        except HeteroError as error:
            raise InferenceError(f"{plan}: {error}") from error
        except Exception as error:
            shapes = ", ".join("absent" if v is None else f"{v.dtype}{list(v.shape)}" for v in inputs)
            raise InferenceError(f"{plan}: cannot be planned for inputs {shapes}: {error}") from error

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
        staged = [number for number in sorted(values) if number >= self.model.num_values]
        if staged:
            context.stages[start] = [values.pop(number) for number in staged]
        needs: tuple[int, ...] = ()
        stop = len(self.nodes)
        for i in range(start, len(self.nodes)):
            if i in self.folded:
                continue
            plan = self.nodes[i]
            inputs = [(values.get(value) or self._constant(value)) if value >= 0 else None for value in plan.inputs]
            if i in self._passing:
                assert inputs[0] is not None
                values[plan.outputs[0]] = inputs[0]
                continue
            if i in self._operands:
                inputs[1:] = self._operands[i]
            num_calls = len(context.calls)
            try:
                results = self._lower(context, i, inputs)
            except NeedsData as need:
                stage = context.stages.get(i, [])
                if any(value is need.value for value in stage):
                    # The node's own values: they get ids after the model's, and are handed on to its next lowering.
                    numbers = [self.model.num_values + position for position in range(len(stage))]
                    values.update(zip(numbers, stage, strict=True))
                    needs = tuple(n for n, value in zip(numbers, stage, strict=True) if value is need.value)
                else:
                    del context.calls[num_calls:]
                    needs = tuple(v for v, operand in zip(plan.inputs, inputs, strict=True) if operand is need.value)
                    if not needs:
                        raise InferenceError(
                            f"{plan}: waits for a value that is neither its input nor staged"
                        ) from need
                stop = i
                break
            values.update(
                (number, result) for number, result in zip(plan.outputs, results, strict=False) if number >= 0
            )
        return self._finish(context, values, given, needs, start, stop)

    def _finish(
        self,
        context: Context,
        values: dict[int, Value],
        given: dict[int, Value],
        needs: tuple[int, ...],
        start: int,
        stop: int,
    ) -> Segment:
        """Choose what the segment hands on, and lay out its memory."""
        if stop == len(self.nodes):
            wanted = list(dict.fromkeys(self.model.output_ids))
        else:
            read_later = {value for plan in self.nodes[stop:] for value in plan.inputs} | set(self.model.output_ids)
            wanted = [value for value in values if value in read_later or value >= self.model.num_values]
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
        calls = fuse(context.calls, storage_output) if self._transform else context.calls
        program, node_of = _assemble(
            calls,
            [given[n] for n in inputs],
            [values[n] for n in outputs],
            [self.nodes[call.node] for call in calls],
        )
        return Segment(program, tuple(inputs), tuple(outputs), known, aliases, needs, node_of, stop, tuple(wanted))


def _assemble(
    calls: Sequence[Call], inputs: Sequence[Value], outputs: Sequence[Value], labels: Sequence[NodePlan]
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
    """Give every storage that is no input and has no place yet an offset; returns the arena's size in bytes.

    A call that may work in place, on an operand nobody reads afterwards, gets that operand's memory for its result.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    size: dict[int, int] = {}
    for position, call in enumerate(calls):
        for value in call.outputs:
            first.setdefault(value.storage, position)
            last[value.storage] = position
            bytes_ = value.size * value.dtype.itemsize
            if bytes_ > size.get(value.storage, -1):
                size[value.storage] = bytes_
        for operand in call.inputs:
            if operand is not None and operand.data is None:
                last[operand.storage] = position
    outputs = {storage for storage, (kind, _) in place.items() if kind == 3}
    renamed: dict[int, int] = {}  # storage -> the one whose memory it continues
    for position, call in enumerate(calls):
        for at in _IN_PLACE.get(call.kernel, ()):
            operand, result = call.inputs[at], call.outputs[0]
            if operand is None or operand.data is not None or operand.storage not in first:
                continue  # a constant or an input of the program
            if call.kernel in _IN_PLACE_ALONE and any(
                other is not None and other.storage == operand.storage for other in call.inputs[at + 1 :]
            ):
                continue
            old, new = renamed.get(operand.storage, operand.storage), result.storage
            if (
                last[old] == position
                and size[old] == size[new] == operand.size * operand.dtype.itemsize
                and first[new] == position
                and old not in outputs
                and new not in renamed
            ):
                if new in outputs:  # the operand moves into the output's memory
                    outputs.add(old)
                    place[old] = place[new]
                renamed[new] = old
                last[old] = last[new]
                break
    placed = [storage for storage in first if storage not in place and storage not in renamed]
    offsets, end = _kernels.arena_layout(
        np.array([first[storage] for storage in placed], np.int64),
        np.array([last[storage] for storage in placed], np.int64),
        np.array([size[storage] for storage in placed], np.int64),
    )
    place.update(zip(placed, ((0, offset) for offset in offsets.tolist()), strict=True))
    for new, old in renamed.items():
        place[new] = place[old]
    return end
