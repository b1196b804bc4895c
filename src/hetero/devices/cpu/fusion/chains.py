"""Runs of elementwise calls become one call of the kernel `chain`, which works tile by tile.

Contract: the same kernels on the same elements, so the same bits. A run is a connected set of elementwise calls whose
results have one shape; its operands are broadcast to that. The run takes the
place of its last call, so until then only its own calls may read its results, and only under the shape in which they
were made. Results that other calls read are written out; the others never reach memory.

Left alone: results that the first cache holds anyway; calls that can fail, so that an error names its node; powers
whose exponent is not one known number, because their kernel tells exponents apart by how they are broadcast.

Cost: a look at each call and its readers; joining two runs moves the shorter one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from .... import _kernels
from ....model.types import onnx_dtype_of
from ..values import Call, Value
from .graph import CallGraph

__all__ = ["MIN_BYTES", "fuse_elementwise"]

MIN_BYTES = 1 << 13
"""Of a result. A smaller one stays in the first cache between two calls."""

_TILE_BYTES = 3 << 13  # of all that a tile touches: three quarters of a first cache of 32 KiB
_MIN_TILE, _MAX_TILE = 512, 8192  # elements, whole lines of any type
_MAX_CALLS, _MAX_OPERANDS, _MAX_RESULTS = 64, _kernels.constant("CHAIN_OPERANDS"), 16
_STEP_BYTES, _SLOT_BYTES, _LINE = (_kernels.constant(f"CHAIN_{name}") for name in ("STEP_BYTES", "SLOT_BYTES", "LINE"))

_KERNELS = {"unary", "cast", "where", "add", "sub", "mul", "min", "max", "prelu", "equal", "less", "less_or_equal"}
_KERNELS |= {"greater", "greater_or_equal", "and", "or", "xor", "bitwise_and", "bitwise_or", "bitwise_xor"}
_KERNELS |= {"shift_left", "shift_right"}
_FLOAT_KERNELS = {"div", "fmod"}  # of integers they can fail
# Codes of src/_core/kernels/vector_tape.h. Those of binary operations are without their form, which is added.
_LOAD, _STORE = _kernels.constant("VECTOR_LOAD"), _kernels.constant("VECTOR_STORE")
_ACC_ROW, _ROW_ACC, _ACC_ACC = (_kernels.constant(f"VECTOR_{form}") for form in ("ACC_ROW", "ROW_ACC", "ACC_ACC"))
_VECTOR_BINARY = {
    name: _kernels.constant("VECTOR_BINARY")
    + _kernels.constant("VECTOR_FORMS") * _kernels.constant(f"VECTOR_{name.upper()}")
    for name in ("add", "sub", "mul", "div", "min", "max", "prelu")
}
# Codes of the unary operations that are functions of a vector.
_VECTOR_UNARY = (
    *range(_kernels.constant("UNARY_RELU"), _kernels.constant("UNARY_COS") + 1),
    _kernels.constant("UNARY_SHRINK"),
)
# Kernels that may write their result over one of these operands, if it has as many bytes an element.
_IN_PLACE = {"unary": (0,), "cast": (), "where": (1, 2)}

Key = tuple[int, tuple[int, ...]]


@dataclasses.dataclass(slots=True, eq=False)
class _Run:
    """``calls``: positions. ``made``: storages of their results. ``taken``: operands from outside, by `_key`."""

    shape: tuple[int, ...]
    calls: list[int]
    made: set[int]
    taken: dict[Key, Value]


def fuse_elementwise(graph: CallGraph) -> None:
    run_of: dict[int, _Run] = {}  # storage -> the run that makes it
    runs: list[_Run] = []
    for position, call in graph:
        if not _is_elementwise(graph, position, call):
            continue
        run = _Run(call.outputs[0].shape, [position], {call.outputs[0].storage}, {})
        for value in call.inputs:
            assert value is not None
            run.taken[_key(value)] = value
        for value in call.inputs:
            other = run_of.get(value.storage) if value is not None and value.data is None else None
            if other is not None and other is not run:
                run = _joined(graph, other, run, position) or run
        for storage in run.made:
            run_of[storage] = run
        runs.append(run)
    for run in dict.fromkeys(runs):
        if len(run.calls) > 1 and run_of[next(iter(run.made))] is run:
            _replace(graph, run)


def _key(value: Value) -> Key:
    return (value.storage if value.data is None else ~id(value.data), value.shape)


def _is_elementwise(graph: CallGraph, position: int, call: Call) -> bool:
    made = call.outputs[0]
    if call.kernel not in _KERNELS:
        kind = made.dtype.kind
        exponent = call.inputs[1] if call.kernel == "pow" else None
        known = exponent is not None and exponent.data is not None and exponent.size == 1
        if kind != "f" or not (call.kernel in _FLOAT_KERNELS or known):
            return False
    return made.size * made.dtype.itemsize >= MIN_BYTES and graph.maker(made) == position


def _joined(graph: CallGraph, before: _Run, run: _Run, position: int) -> _Run | None:
    """Both as one run that ends at ``position``; None where that changes what others see, or a limit is passed."""
    if before.shape != run.shape or len(before.calls) + len(run.calls) > _MAX_CALLS:
        return None
    taken = before.taken | {
        key: value for key, value in run.taken.items() if value.data is not None or value.storage not in before.made
    }
    if len(taken) > _MAX_OPERANDS or any(value.data is None and value.storage in run.made for value in taken.values()):
        return None
    if any(storage in before.made and shape != run.shape for storage, shape in run.taken):
        return None  # read under another shape, which needs all of it
    mine = {*before.calls, *run.calls}
    for earlier in before.calls:
        readers = graph.reader_positions(graph.call(earlier).outputs[0])
        if any(reader < position and reader not in mine for reader in readers):
            return None
    return _Run(run.shape, sorted(mine), before.made | run.made, taken)


def _replace(graph: CallGraph, run: _Run) -> None:
    calls = [graph.call(position) for position in run.calls]
    mine = set(run.calls)
    results = [
        call.outputs[0]
        for call in calls
        if graph.is_kept(call.outputs[0]) or not mine.issuperset(graph.reader_positions(call.outputs[0]) or (-1,))
    ]
    if len(results) > _MAX_RESULTS:
        return
    operands = list(run.taken.values())
    slots = _Slots(operands, results, _in_memory(calls, results))
    slots.assign(calls)
    steps = _steps(calls, slots)
    elements = [*(value for value in operands if value.shape == run.shape), *results]
    bytes_ = sum(value.dtype.itemsize for value in elements) + sum(dtype.itemsize for dtype in slots.registers)
    tile = min(_MAX_TILE, max(_MIN_TILE, _TILE_BYTES // bytes_ // _LINE * _LINE))
    ints = [tile, len(slots.registers), len(steps), *(onnx_dtype_of(dtype) for dtype in slots.registers)]
    for step, _ in steps:
        ints += step
    floats = tuple(number for _, pair in steps for number in pair)
    scratch = _STEP_BYTES * len(steps) + _lines(_SLOT_BYTES * (len(operands) + len(results) + len(slots.registers)))
    scratch += sum(_lines(tile * dtype.itemsize) + _LINE for dtype in slots.registers)
    main = next((call for call in calls if call.kernel == "unary"), calls[-1])
    for position in run.calls[:-1]:
        graph.remove(position)
    graph.replace(
        run.calls[-1],
        Call("chain", tuple(operands), tuple(results), tuple(ints), floats, scratch, main.node, main.label),
    )


def _is_vector(call: Call) -> bool:
    """Whether the kernel has an operation for this on its accumulator."""
    if call.outputs[0].dtype != np.float32:
        return False
    return call.kernel in _VECTOR_BINARY or (call.kernel == "unary" and call.ints[0] in _VECTOR_UNARY)


def _in_memory(calls: Sequence[Call], results: Sequence[Value]) -> set[Key]:
    """What of the values made here is stored: all but those that only the next operation reads."""
    stored = {_key(value) for value in results}
    for before, call in zip([None, *calls], calls, strict=False):
        for value in call.inputs:
            assert value is not None
            follows = before is not None and _key(before.outputs[0]) == _key(value)
            if not (follows and _is_vector(call) and before is not None and _is_vector(before)):
                stored.add(_key(value))
    return stored


def _steps(calls: Sequence[Call], slots: _Slots) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    """The kernel's steps: seven integers and two numbers each."""
    steps: list[tuple[tuple[int, ...], tuple[float, ...]]] = []

    def operation(code: int, value: Value | None = None, parameters: tuple[float, ...] = (0.0, 0.0)) -> None:
        steps.append(((-1, code, 0 if value is None else slots.of[_key(value)], 0, 0, 0, 0), parameters))

    held: Key | None = None  # what the accumulator holds
    for call in calls:
        made = call.outputs[0]
        operands = [value for value in call.inputs if value is not None]
        if not _is_vector(call):
            places = ([slots.of[_key(value)] for value in operands] + [0, 0])[:3]
            is_unary = call.kernel == "unary"
            numbers = (_kernel_number(call.kernel), len(operands), *places, slots.of[_key(made)])
            steps.append(((*numbers, call.ints[0] if is_unary else 0), call.floats if is_unary else (0.0, 0.0)))
            held = None
            continue
        keys = [_key(value) for value in operands]
        if held not in keys:
            operation(_LOAD, operands[0])
            held = keys[0]
        if call.kernel == "unary":
            operation(call.ints[0], None, call.floats)
        else:
            code = _VECTOR_BINARY[call.kernel]
            if keys[0] == keys[1]:
                operation(code + _ACC_ACC)
            elif keys[0] == held:
                operation(code + _ACC_ROW, operands[1])
            else:
                operation(code + _ROW_ACC, operands[0])
        held = _key(made)
        if held in slots.of:
            operation(_STORE, made)
    return steps


class _Slots:
    """Where each value of a run is: operands, results, registers, in this order.

    Values are placed from the last call to the first: so a result's memory is free for others until the call that
    makes it, and a value can be given the place of what is made from it.
    """

    def __init__(self, operands: Sequence[Value], results: Sequence[Value], stored: Collection[Key]) -> None:
        values = [*operands, *results]
        self.of: dict[Key, int] = {_key(value): slot for slot, value in enumerate(values)}
        self.registers: list[np.dtype[Any]] = []
        self._first_register = len(values)
        self._stored = stored
        self._free: list[tuple[int, np.dtype[Any]]] = []

    def assign(self, calls: Sequence[Call]) -> None:
        for call in reversed(calls):
            made = call.outputs[0]
            slot = self.of.get(_key(made))
            waiting = {
                _key(value): value
                for value in call.inputs
                if value is not None and _key(value) in self._stored and _key(value) not in self.of
            }
            places = _IN_PLACE.get(call.kernel, (0, 1))
            heir = None
            for key, value in waiting.items():
                reads = [at for at, operand in enumerate(call.inputs) if operand is not None and _key(operand) == key]
                if slot is not None and value.dtype == made.dtype and set(reads) <= set(places):
                    heir = key
                    self.of[key] = slot
                    break
            for key, value in waiting.items():
                if key != heir:
                    self.of[key] = self._take(value.dtype)
            if heir is None and slot is not None:
                self._free.append((slot, made.dtype))

    def _take(self, dtype: np.dtype[Any]) -> int:
        for at in range(len(self._free) - 1, -1, -1):
            if self._free[at][1] == dtype:
                return self._free.pop(at)[0]
        self.registers.append(dtype)
        return self._first_register + len(self.registers) - 1


def _lines(bytes_: int) -> int:
    return -(-bytes_ // _LINE) * _LINE


@functools.cache
def _kernel_number(name: str) -> int:
    return _kernels.kernel_names().index(name)
