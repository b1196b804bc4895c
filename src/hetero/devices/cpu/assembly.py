"""Programs from the calls of a segment: places for storages, numbers for tensors, and how both follow from sizes.

The planner's header names the forms of a tensor, from a `Value` to a tensor number. For sizes that are symbols, the
tensors and calls of the trace come first in a program, because its steps refer to them by number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import _kernels, _program
from ..._sizes import hint, is_symbolic
from ...model.constants import release_pages
from .memory import Buffers, Parts, assign_buffers, place_in_arena
from .registry import NodePlan
from .tracing import Tracing
from .values import Call, Late, Packed, Value, in_order

__all__ = ["assemble"]


def _aligned(value: Value, packed: Packed) -> NDArray[Any]:
    """The data of a constant at an address that kernels can read; copied at most once per compiled model."""
    data = value.data
    assert data is not None
    if data.flags.aligned:
        return data
    if not value.shared:
        return data.copy()
    key = (id(data), "aligned")
    if key not in packed:
        packed[key] = (data, data.copy())
        release_pages(data)
    return packed[key][1]


def assemble(
    calls: Sequence[Call],
    parts: Parts,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    aliases: Sequence[Value],
    nodes: Sequence[NodePlan],
    packed: Packed,
    tracing: Tracing | None,
) -> tuple[_program.Program, tuple[int, ...], Mapping[int, int]]:
    """Place the storages, number the tensors, and make the program; returns it, the node of each call outside of
    branches, and the tensor of each value, by id. ``aliases``: values whose shapes the program must know, if they
    depend on sizes."""
    place: dict[int, tuple[int, int]] = {}  # storage -> (kind, number)
    for position, value in enumerate(inputs):
        place[value.storage] = (_program.INPUT, position)
    for position, value in enumerate(outputs):
        place[value.storage] = (_program.OUTPUT, position)
    table = _Tensors(packed, place)
    if tracing is None:
        arena_bytes = place_in_arena([*in_order(calls)], place, parts)
        entries = table.entries(calls, nodes)
        program = _program.Program(
            table.tensors,
            entries,
            table.constants,
            _types(inputs),
            _types(outputs),
            arena_bytes,
            end_call=len(calls),
        )
        return program, tuple(call.node for call in calls), table.number

    buffers = assign_buffers([*in_order(calls)], place, parts)
    trace = tracing.trace
    for call in in_order(calls):
        for operand in call.inputs:
            if operand is not None and operand.late is not None and operand.storage not in place:
                tracing.number_of(operand)
    for number, value in enumerate(tracing.tensors):  # the first tensors are those of the trace
        if value.data is not None:
            table.number_of(value)
            continue
        owner = number if number < len(inputs) else _owner(value.late)
        kind = _program.INPUT if number < len(inputs) else _program.LATE
        table.number[id(value)] = table.add(value, (kind, owner))
        place.setdefault(value.storage, (_program.LATE, owner))
    table.buffers = buffers
    table.offsets, arena_bytes = buffers.layout()
    entries = table.entries(calls, nodes, tracing.late_calls)
    output_tensors = [table.number_of(value) for value in outputs]
    for value in aliases:
        if any(map(is_symbolic, value.shape)):
            table.number_of(value)
    for number in range(len(tracing.tensors), len(table.values)):
        trace.store_shape(number, table.values[number].shape)
        kind, owner = table.tensors[number][2:]
        if kind == _program.LATE:
            trace.share(number, owner)
    first_call, position = len(tracing.late_calls), 0
    for number, (call, entry) in enumerate(zip(_listed(calls, tracing.late_calls), entries, strict=True)):
        for at, parameter in enumerate(call.ints if number >= first_call else ()):
            if is_symbolic(parameter):
                trace.store_int(position + at, parameter)
        position += len(entry[3])
    places = []
    for number, (buffer, begin) in table.buffer_of.items():
        if is_symbolic(begin):
            trace.store_begin(number, begin)
        places.append((number, buffer, hint(begin)))
    for number, size in enumerate(buffers.bytes):
        if is_symbolic(size):
            trace.store_bytes(number, size)
    steps, constants = trace.steps()
    sizes = _program.Sizes(
        steps,
        trace.num_registers,
        constants,
        [tuple(map(is_symbolic, value.shape)) for value in inputs],
        list(zip(buffers.first, buffers.last, map(hint, buffers.bytes), strict=True)),
        places,
        output_tensors,
        [(entry.function, entry.registers, entry.number) for entry in tracing.tables],
        len(table.tensors),
        any(value.late is not None for value in inputs),
    )
    program = _program.Program(
        table.tensors,
        entries,
        table.constants,
        _types(inputs),
        _types(outputs),
        arena_bytes,
        sizes,
        first_call,
        first_call + len(calls),
    )
    return program, tuple(call.node for call in calls), table.number


def _types(values: Sequence[Value]) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    return [(tuple(map(hint, value.shape)), value.dtype) for value in values]


def _owner(late: Late | None) -> int:
    """The number of the late tensor in whose memory a late tensor lies."""
    assert late is not None
    while late.base is not None and late.base.late is not None:
        late = late.base.late
    return late.number


class _Tensors:
    """The tensor table of a program. ``place``: storage -> (kind, number). For a program with many sizes, ``buffers``
    and ``offsets`` give the places in the arena."""

    def __init__(self, packed: Packed, place: Mapping[int, tuple[int, int]]) -> None:
        self._packed = packed
        self._place = place
        self._constant_number: dict[int, int] = {}
        self.constants: list[NDArray[Any]] = []
        self.tensors: list[tuple[Any, ...]] = []
        self.values: list[Value] = []
        self.number: dict[int, int] = {}  # id of a value (~id of an unaligned one) -> its tensor
        self.buffers: Buffers | None = None
        self.offsets: Sequence[int] = ()
        self.buffer_of: dict[int, tuple[int, int]] = {}  # tensor -> its buffer, and where it begins

    def add(self, value: Value, place: tuple[int, int]) -> int:
        self.values.append(value)
        self.tensors.append((value.dtype, tuple(map(hint, value.shape)), *place))
        return len(self.tensors) - 1

    def number_of(self, value: Value | None, bytewise: bool = False) -> int:
        """``bytewise``: whether the kernel reads the operand bytewise. A constant then stays in the file, even if its
        elements are not aligned; other kernels that read it get a tensor of their own, with a copy."""
        if value is None:
            return -1
        unaligned = bytewise and value.data is not None and not value.data.flags.aligned
        key = ~id(value) if unaligned else id(value)
        if key not in self.number:
            self.number[key] = self.add(value, self._place_of(value, unaligned))
        return self.number[key]

    def _place_of(self, value: Value, unaligned: bool) -> tuple[int, int]:
        if value.data is not None:
            key = ~id(value.data) if unaligned else id(value.data)
            if key not in self._constant_number:
                self._constant_number[key] = len(self.constants)
                self.constants.append(value.data if unaligned else _aligned(value, self._packed))
            return (_program.CONSTANT, self._constant_number[key])
        if value.storage in self._place:
            return self._place[value.storage]
        assert self.buffers is not None
        buffer, begin = self.buffers.of[value.storage]
        self.buffer_of[len(self.tensors)] = (buffer, begin)
        return (_program.ARENA, self.offsets[buffer] + hint(begin))

    def _operands_of(self, call: Call) -> list[int]:
        bytewise = _kernels.bytewise_operand(call.kernel)
        return [self.number_of(value, at == bytewise) for at, value in enumerate(call.inputs)]

    def entries(
        self, calls: Sequence[Call], nodes: Sequence[NodePlan], late_calls: Sequence[Call] = ()
    ) -> list[tuple[Any, ...]]:
        """The calls of the program, in the order of `_listed`."""
        entries = []
        end = len(late_calls) + len(calls)
        for number, call in enumerate(_listed(calls, late_calls)):
            ints = tuple(map(hint, call.ints))
            if call.branches:
                middle = end + len(call.branches[0])
                ints = (end, middle, middle + len(call.branches[1]))
                end = ints[2]
            label = call.label
            if label is None:  # late calls are never named
                label = call.kernel if number < len(late_calls) else nodes[call.node]
            outputs = [self.number_of(value) for value in call.outputs]
            entries.append((call.kernel, self._operands_of(call), outputs, ints, call.floats, label))
        return entries


def _listed(calls: Sequence[Call], late_calls: Sequence[Call]) -> list[Call]:
    """The calls in the order of the program: late calls, ``calls``, and then the calls of branches, those of a call's
    first branch before those of its second."""
    listed = [*late_calls, *calls]
    for call in listed:  # which grows
        for branch in call.branches:
            listed += branch
    return listed
