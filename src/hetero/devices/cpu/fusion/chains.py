"""Chains: a connected set of elementwise calls becomes one call of the kernel `chain`, which works tile by tile.

Contract: the same kernels on the same elements, so the same bits.

Algorithm. A *run* is a connected set of elementwise calls whose results have one shape. Calls are visited in order;
each starts a run of its own, which is joined with the runs that compute its operands (`_joined`). A run of two or more
calls is then translated into a program for the kernel, which takes the place of the run's last call.

Conditions for a run:

- All results have the same shape. Operands from outside broadcast to it.
- Until the run's last call, only calls of the run read its results, and only in the shape in which they were computed.
- It has at most `_MAX_CALLS` calls, `_MAX_OPERANDS` operands and `_MAX_RESULTS` results.
- Each result has at least `MIN_BYTES`: a smaller one stays in the L1 cache between two calls anyway.
- No call can fail, so that an error names its node: integer divisions are left out.
- A conversion from or to small integers has one scale and one zero point.
- The exponent of a power is one known number, because the kernel `pow` distinguishes exponents by how they broadcast.

Results that other calls read are written to memory; the others exist only within a tile.

The program. kernels/chain.c defines it; `_KernelStep` and `_VectorStep` are its two kinds of steps. Steps refer to
tensors by *slot*: first the operands from outside, then the results, then the registers, which are temporary tensors of
one tile. A float32 operation that the kernel has as a vector operation (kernels/vector_tape.h) works on an accumulator:
it is loaded from a slot unless the step before left the operand there, and stored only if a later step, other than the
next vector operation, or a call outside reads it. So do conversions from and to bytes whose scale and zero point are
known. A quantization that only the next call reads, a dequantization with the same parameters, leaves the float in the
accumulator. The known parameters of a conversion belong to its step and are not operands.

Slots are assigned in one backward pass over the calls (`_Slots`): linear-scan register allocation, in which a result's
own memory serves as a register until the call that computes the result.

Cost: linear in the calls and their readers, times at most `_MAX_CALLS` for joining.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from .... import _kernels
from ...._sizes import is_symbolic
from ....model.types import onnx_dtype_of
from ..values import Call, Value
from .graph import CallGraph

__all__ = ["MIN_BYTES", "fuse_elementwise", "may_join"]

MIN_BYTES = 1 << 13
"""Bytes of a result, at least. A smaller one stays in the L1 cache between two calls."""

_TILE_BYTES = 3 << 13  # bytes of all operands, results and registers of a tile: three quarters of an L1 cache of 32 KiB
_MIN_TILE, _MAX_TILE = 512, 8192  # elements; multiples of a cache line for every type
_MAX_CALLS, _MAX_OPERANDS, _MAX_RESULTS = 64, _kernels.constant("CHAIN_OPERANDS"), 16
_LINE = _kernels.constant("CHAIN_LINE")

_KERNELS = {"unary", "cast", "where", "add", "sub", "mul", "min", "max", "prelu", "equal", "less", "less_or_equal"}
_KERNELS |= {"greater", "greater_or_equal", "and", "or", "xor", "bitwise_and", "bitwise_or", "bitwise_xor"}
_KERNELS |= {"shift_left", "shift_right"}
_FLOAT_KERNELS = {"div", "fmod"}  # for integers they can fail
_BYTES = (np.int8, np.uint8)
# Vector operations: HT_VECTOR_* in kernels/constants.h. The code of a binary operation is that of its name plus a form,
# which says which operand is the accumulator and which a row in memory.
_LOAD, _STORE = _kernels.constant("VECTOR_LOAD"), _kernels.constant("VECTOR_STORE")
_ACC_ROW, _ROW_ACC, _ACC_ACC = (_kernels.constant(f"VECTOR_{form}") for form in ("ACC_ROW", "ROW_ACC", "ACC_ACC"))
_VECTOR_BINARY = {
    name: _kernels.constant("VECTOR_BINARY")
    + _kernels.constant("VECTOR_FORMS") * _kernels.constant(f"VECTOR_{name.upper()}")
    for name in ("add", "sub", "mul", "div", "min", "max", "prelu")
}
_DEQUANTIZE, _QUANTIZE, _REQUANTIZE = (
    _kernels.constant(f"VECTOR_{name}") for name in ("DEQUANTIZE", "QUANTIZE", "REQUANTIZE")
)
_VECTOR_CONVERSIONS = {"dequantize": _DEQUANTIZE, "quantize": _QUANTIZE}
# Unary operations that the kernel also has as vector operations, by code.
_VECTOR_UNARY = range(_kernels.constant("UNARY_RELU"), _kernels.constant("UNARY_VECTOR_END"))

Key = tuple[int, tuple[int, ...]]
"""Identifies a value in a chain: its storage (for a known value, ~id of its data, which is negative) and its shape."""


class _KernelStep(NamedTuple):
    """The ints of a step that calls a kernel, in the order of kernels/chain.c. Operands and result are slots."""

    kernel: int  # its number in _kernels.kernel_names()
    operand_count: int  # 1 to 3; operands beyond are 0
    operand0: int
    operand1: int
    operand2: int
    result: int
    unary_code: int  # of the kernel `unary`, else 0


class _VectorStep(NamedTuple):
    """The ints of a step that applies a vector operation to the accumulator, in the order of kernels/chain.c."""

    marker: int  # -1: not a kernel
    code: int  # HT_VECTOR_*, or the code of a unary operation
    row: int  # the slot of the row, 0 if the operation has none
    unused0: int = 0
    unused1: int = 0
    unused2: int = 0
    unused3: int = 0


_Step = tuple[_KernelStep | _VectorStep, tuple[float, ...]]
"""A step's ints, and the two parameters of a unary operation (else 0)."""


@dataclasses.dataclass(slots=True, eq=False)
class _Run:
    """``calls``: positions, ascending. ``results``: storages of their results. ``operands``: what they read from
    outside."""

    shape: tuple[int, ...]
    calls: list[int]
    results: set[int]
    operands: dict[Key, Value]


def fuse_elementwise(graph: CallGraph) -> None:
    run_of: dict[int, _Run] = {}  # storage -> the run that computes it
    runs: list[_Run] = []
    for position, call in graph:
        if not _is_elementwise(graph, position, call):
            continue
        run = _Run(call.outputs[0].shape, [position], {call.outputs[0].storage}, {})
        for value in _rows(call):
            run.operands[_key(value)] = value
        for value in _rows(call):
            other = run_of.get(value.storage) if value.data is None else None
            if other is not None and other is not run:
                run = _joined(graph, other, run, position) or run
        for storage in run.results:
            run_of[storage] = run
        runs.append(run)
    for run in dict.fromkeys(runs):
        if len(run.calls) > 1 and run_of[next(iter(run.results))] is run:
            _replace(graph, run)


def _key(value: Value) -> Key:
    return (value.storage if value.data is None else ~id(value.data), value.shape)


def may_join(call: Call) -> bool:
    """Whether a call is an elementwise operation that a chain can run."""
    if call.kernel in _VECTOR_CONVERSIONS:
        return not call.ints and None not in call.inputs  # one scale, one zero point
    if call.kernel not in _KERNELS:
        kind = call.outputs[0].dtype.kind
        exponent = call.inputs[1] if call.kernel == "pow" else None
        known = exponent is not None and exponent.data is not None and exponent.size == 1
        return kind == "f" and (call.kernel in _FLOAT_KERNELS or known)
    return True


def _is_elementwise(graph: CallGraph, position: int, call: Call) -> bool:
    if not may_join(call):
        return False
    result = call.outputs[0]
    # Sizes that are symbols count as large. The results have the same bits either way.
    is_large = is_symbolic(result.size) or result.size * result.dtype.itemsize >= MIN_BYTES
    return is_large and graph.maker(result) == position


def _joined(graph: CallGraph, before: _Run, run: _Run, position: int) -> _Run | None:
    """Both runs as one that ends at ``position``; None if the conditions in the header do not hold for it."""
    if before.shape != run.shape or len(before.calls) + len(run.calls) > _MAX_CALLS:
        return None
    operands = before.operands | {
        key: value
        for key, value in run.operands.items()
        if value.data is not None or value.storage not in before.results
    }
    if len(operands) > _MAX_OPERANDS:
        return None
    if any(value.data is None and value.storage in run.results for value in operands.values()):
        return None  # each run reads the other
    if any(storage in before.results and shape != run.shape for storage, shape in run.operands):
        return None  # read in another shape, so it must be complete before
    calls = {*before.calls, *run.calls}
    for earlier in before.calls:
        readers = graph.reader_positions(graph.call(earlier).outputs[0])
        if any(reader < position and reader not in calls for reader in readers):
            return None  # another call reads a result before the chain has run
    return _Run(run.shape, sorted(calls), before.results | run.results, operands)


def _replace(graph: CallGraph, run: _Run) -> None:
    calls = _with_shared_values([graph.call(position) for position in run.calls])
    positions = set(run.calls)
    results = [
        call.outputs[0]
        for call in calls
        if graph.is_kept(call.outputs[0]) or not positions.issuperset(graph.reader_positions(call.outputs[0]) or (-1,))
    ]
    if len(results) > _MAX_RESULTS:
        return
    operands = list(run.operands.values())
    slots = _Slots(operands, results, _stored_values(calls, results))
    slots.assign(calls)
    steps = _steps(calls, slots)
    elements = [*(value for value in operands if value.shape == run.shape), *results]
    bytes_ = sum(value.dtype.itemsize for value in elements) + sum(dtype.itemsize for dtype in slots.registers)
    tile = min(_MAX_TILE, max(_MIN_TILE, _TILE_BYTES // bytes_ // _LINE * _LINE))
    ints = [tile, len(slots.registers), len(steps), *(onnx_dtype_of(dtype) for dtype in slots.registers)]
    for step, _ in steps:
        ints += step
    floats = tuple(number for _, pair in steps for number in pair)
    main = next((call for call in calls if call.kernel == "unary"), calls[-1])
    for position in run.calls[:-1]:
        graph.remove(position)
    graph.replace(
        run.calls[-1],
        Call("chain", tuple(operands), tuple(results), tuple(ints), floats, main.node, main.label),
    )


def _with_shared_values(calls: Sequence[Call]) -> list[Call]:
    """The calls of a run, such that a call that reads a result of another has that result as its operand.

    It may read it as a reshape of the same shape, and symbols of sizes that are always equal can be different keys."""
    made = {call.outputs[0].storage: call.outputs[0] for call in calls}

    def shared(value: Value | None) -> Value | None:
        return value if value is None or value.data is not None else made.get(value.storage, value)

    return [dataclasses.replace(call, inputs=tuple(map(shared, call.inputs))) for call in calls]


class _Conversion(NamedTuple):
    """A vector operation between bytes and float32. ``parameters``: scale and zero point."""

    code: int
    parameters: tuple[float, float]


def _conversion(call: Call) -> _Conversion | None:
    """A conversion from or to bytes by known parameters; None for other calls."""
    if call.kernel not in _VECTOR_CONVERSIONS:
        return None
    x, scale, zero = call.inputs
    integers = x if call.kernel == "dequantize" else call.outputs[0]
    assert integers is not None
    if integers.dtype not in _BYTES or scale is None or scale.data is None or zero is None or zero.data is None:
        return None
    code = _VECTOR_CONVERSIONS[call.kernel] + (integers.dtype == np.int8)
    return _Conversion(code, (float(scale.data.reshape(())), float(zero.data.reshape(()))))


def _rows(call: Call) -> list[Value]:
    """The operands of a call that have a slot: all but the parameters of a `_conversion`."""
    operands = [value for value in call.inputs if value is not None]
    return operands[:1] if _conversion(call) is not None else operands


def _is_vector(call: Call) -> bool:
    """Whether the kernel has a vector operation for this call."""
    if _conversion(call) is not None:
        return True
    if call.outputs[0].dtype != np.float32:
        return False
    return call.kernel in _VECTOR_BINARY or (call.kernel == "unary" and call.ints[0] in _VECTOR_UNARY)


def _passes_on(before: Call, call: Call) -> bool:
    """Whether ``call`` can take the result of ``before``, the call before it, from the accumulator."""
    if not (_is_vector(before) and _is_vector(call)):
        return False
    if before.outputs[0].dtype == np.float32:
        return True
    quantized, dequantized = _conversion(before), _conversion(call)
    if quantized is None or dequantized is None or quantized.parameters != dequantized.parameters:
        return False
    return dequantized.code - _DEQUANTIZE == quantized.code - _QUANTIZE  # both signed, or both unsigned


def _stored_values(calls: Sequence[Call], results: Sequence[Value]) -> set[Key]:
    """The values that need a slot: all but those that only the next call reads, from the accumulator."""
    stored = {_key(value) for value in results}
    for before, call in zip([None, *calls], calls, strict=False):
        for value in _rows(call):
            follows = before is not None and _key(before.outputs[0]) == _key(value)
            if not (follows and before is not None and _passes_on(before, call)):
                stored.add(_key(value))
    return stored


def _steps(calls: Sequence[Call], slots: _Slots) -> list[_Step]:
    """The steps of the kernel's program."""
    steps: list[_Step] = []

    def vector(code: int, row: Value | None = None, parameters: tuple[float, ...] = (0.0, 0.0)) -> None:
        steps.append((_VectorStep(-1, code, 0 if row is None else slots.of[_key(row)]), parameters))

    accumulator: Key | None = None  # the value that it holds; None after a kernel step, which leaves it undefined
    for call in calls:
        result = call.outputs[0]
        operands = _rows(call)
        if not _is_vector(call):
            first, second, third = ([slots.of[_key(value)] for value in operands] + [0, 0])[:3]
            is_unary = call.kernel == "unary"
            kernel, code = _kernel_number(call.kernel), call.ints[0] if is_unary else 0
            step = _KernelStep(kernel, len(operands), first, second, third, slots.of[_key(result)], code)
            steps.append((step, call.floats if is_unary else (0.0, 0.0)))
            accumulator = None
            continue
        keys = [_key(value) for value in operands]
        conversion = _conversion(call)
        if call.kernel == "dequantize" and conversion is not None:
            if accumulator != keys[0]:  # else a requantization left the result
                vector(conversion.code, operands[0], conversion.parameters)
        else:
            if accumulator not in keys:
                vector(_LOAD, operands[0])
                accumulator = keys[0]
            if conversion is not None:
                if _key(result) in slots.of:  # the accumulator keeps the operand
                    vector(conversion.code, result, conversion.parameters)
                    continue
                vector(conversion.code - _QUANTIZE + _REQUANTIZE, None, conversion.parameters)
            elif call.kernel == "unary":
                vector(call.ints[0], None, call.floats)
            else:
                code = _VECTOR_BINARY[call.kernel]
                if keys[0] == keys[1]:
                    vector(code + _ACC_ACC)
                elif keys[0] == accumulator:
                    vector(code + _ACC_ROW, operands[1])
                else:
                    vector(code + _ROW_ACC, operands[0])
        accumulator = _key(result)
        if accumulator in slots.of:
            vector(_STORE, result)
    return steps


class _Slots:
    """The slot of each stored value. Slots are numbered through operands, results, registers, in this order.

    Values are placed from the last call to the first, each when its last reader is met. A result's slot is therefore
    free for other values before the call that computes the result, and an operand can get the slot of the result that
    is computed from it, if the kernel works in place.
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
            result = call.outputs[0]
            slot = self.of.get(_key(result))
            unplaced = {
                _key(value): value
                for value in _rows(call)
                if _key(value) in self._stored and _key(value) not in self.of
            }
            in_place = set(_overwritable(call.kernel))
            shares_slot = None  # the operand that gets the result's slot
            for key, value in unplaced.items():
                reads = {at for at, operand in enumerate(_rows(call)) if _key(operand) == key}
                if slot is not None and value.dtype == result.dtype and reads <= in_place:
                    shares_slot = key
                    self.of[key] = slot
                    break
            for key, value in unplaced.items():
                if key != shares_slot:
                    self.of[key] = self._take(value.dtype)
            if shares_slot is None and slot is not None:
                self._free.append((slot, result.dtype))

    def _take(self, dtype: np.dtype[Any]) -> int:
        """A free slot of this type, or a new register."""
        for at in range(len(self._free) - 1, -1, -1):
            if self._free[at][1] == dtype:
                return self._free.pop(at)[0]
        self.registers.append(dtype)
        return self._first_register + len(self.registers) - 1


@functools.cache
def _overwritable(kernel: str) -> tuple[int, ...]:
    """The operands whose slot may be the result's slot, if the element type is the same."""
    return _kernels.in_place(kernel)[0]


@functools.cache
def _kernel_number(name: str) -> int:
    return _kernels.kernel_names().index(name)
