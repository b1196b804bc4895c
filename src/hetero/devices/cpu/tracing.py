"""Plans for sizes that are symbols: the tensors and calls that follow from sizes alone.

`Tracing` is the `Context` of a segment whose sizes are symbols. It records in a `SizeTrace` how late tensors are
computed. Shapes and arithmetic on a few integers stay symbolic. Everything else runs as kernel calls when a call comes
with new sizes, before the calls of the program."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import _kernels
from ..._sizes import Size, SizeTrace, UnfitForSymbols, are_same, hint, is_symbolic
from .values import Call, Context, Late, NeedsData, Packed, Value, checked_shape

__all__ = ["Table", "Tracing", "is_readable"]

MAX_ELEMENTS = 256
"""Elements of a tensor that planning reads one by one. A plan that needs more of them is cut."""

MAX_LATE_BYTES = 1 << 20
"""Bytes of a late tensor when the plan is made, at most. Larger ones are computed in every run, because late tensors
keep their memory."""

MAX_KEPT_BYTES = 1 << 24
"""Bytes of a late tensor, at most: a plan does not hold for sizes that give more."""

_INT64, _INT32 = np.dtype(np.int64), np.dtype(np.int32)


def is_readable(data: NDArray[Any]) -> bool:
    """Whether the elements of a tensor can become symbols: there are few, and ``sizes.c`` reads their type."""
    return data.size <= MAX_ELEMENTS and data.dtype.name not in ("float16", "bfloat16", "uint64")


@dataclasses.dataclass(slots=True, eq=False)
class Table:
    """A late tensor that Python computes: ``function(*arguments)``, with the arguments in these registers."""

    function: Callable[..., NDArray[Any]]
    registers: tuple[int, ...]
    number: int


class Tracing(Context):
    """Collects the calls of a segment whose sizes are symbols. ``trace``: records the steps. ``tensors``: the inputs of
    the segment, then the late tensors and the constants that some lie in, by number. ``late_calls``: the calls that
    compute late tensors."""

    def __init__(self, packed: Packed) -> None:
        super().__init__(packed)
        self.trace = SizeTrace()
        self.tensors: list[Value] = []
        self.late_calls: list[Call] = []
        self.tables: list[Table] = []
        self._num_ints = 0
        self._constants: dict[int, int] = {}  # id of the data of a constant that late tensors lie in -> its tensor

    def add_input(self, value: Value, axes: Sequence[bool], data: NDArray[Any] | None) -> None:
        """Add an input of the segment, whose sizes along ``axes`` become symbols. ``data``: its data, if the plan may
        depend on them."""
        number = len(self.tensors)
        self.tensors.append(value)
        value.shape = tuple(
            self.trace.dim(number, axis, size) if symbolic else size
            for axis, (size, symbolic) in enumerate(zip(value.shape, axes, strict=True))
        )
        if data is not None:
            value.late = Late(data, number=number)

    def known(self, value: Value) -> NDArray[Any]:
        late = value.late
        if late is None:
            return super().known(value)
        if late.elements is None:
            if not is_readable(late.seen):
                raise NeedsData(value)
            for size in value.shape:
                int(size)  # as many elements as seen
            number = self.number_of(value)
            late.elements = np.empty(late.seen.shape, object)
            flat = late.elements.reshape(-1)
            for at, element in enumerate(late.seen.reshape(-1).tolist()):
                flat[at] = self.trace.element(number, at, element)
        return late.elements

    def is_known(self, value: Value) -> bool:
        return super().is_known(value) or (value.late is not None and is_readable(value.late.seen))

    def integers(self, numbers: Sequence[int], shape: Sequence[int] | None = None) -> Value:
        if not any(map(is_symbolic, numbers)):
            return super().integers(numbers, shape)
        shape = (len(numbers),) if shape is None else shape
        elements = np.empty(len(numbers), object)
        elements[:] = numbers
        seen = np.array([hint(number) for number in numbers], np.int64).reshape(shape)
        late = Late(seen, elements.reshape(shape))
        return Value(_INT64, tuple(shape), storage=self.new_storage(), late=late)

    def table(self, function: Callable[..., NDArray[Any]], arguments: Sequence[int], shape: Sequence[int]) -> Value:
        if not any(map(is_symbolic, arguments)):
            return super().table(function, arguments, shape)
        seen = function(*map(hint, arguments))
        assert seen.shape == tuple(map(hint, shape))
        value = Value(seen.dtype, tuple(shape), storage=self.new_storage(), late=Late(seen, number=len(self.tensors)))
        registers = tuple(self.trace.number(argument) for argument in arguments)
        self._add_tensor(value)
        self.trace.table(len(self.tables))
        self.tables.append(Table(function, registers, len(self.tensors) - 1))
        return value

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        made = super().reshaped(value, shape)
        if value.late is not None:
            elements = value.late.elements
            if any(map(is_symbolic, made.shape)):  # `known` then records how many elements there are
                elements = None
            sizes = tuple(map(hint, made.shape))
            elements = None if elements is None else elements.reshape(sizes)
            made.late = Late(value.late.seen.reshape(sizes), elements, base=value)
        return made

    def packed(self, source: Value, layout: Hashable, make: Callable[[], Value]) -> Value:
        return super().packed(source, _plain(layout), make)

    def number_of(self, value: Value) -> int:
        """The number of a late value's tensor, which gets memory now if it has none."""
        late = value.late
        assert late is not None
        if late.number >= 0:
            return late.number
        base = -1 if late.base is None else self.number_of(late.base)
        if late.source is not None:
            base = self._number_of_constant(late.source)
        late.number = len(self.tensors)
        self._add_tensor(value)
        if base >= 0:
            self.trace.share(late.number, base)
            return late.number
        assert late.elements is not None, "a late value has elements, a base, or a call that computes it"
        self.trace.allocate(late.number)
        for at, element in enumerate(late.elements.reshape(-1)):
            self.trace.store_element(late.number, at, element)
        return late.number

    def _number_of_constant(self, value: Value) -> int:
        number = self._constants.setdefault(id(value.data), len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(value)
        return number

    def _add_tensor(self, value: Value) -> None:
        self.trace.store_shape(len(self.tensors), value.shape)
        self.tensors.append(value)

    def call_many(
        self,
        kernel: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[tuple[Sequence[int], np.dtype[Any]]],
        ints: Sequence[int] = (),
        floats: Sequence[float] = (),
        *,
        lasting: bool = False,
        fold: bool = True,
    ) -> list[Value]:
        floats = tuple(map(float, floats))  # symbols become numbers now, while that can be recorded
        present = [value for value in inputs if value is not None]
        if fold and all(value.data is not None or value.late is not None for value in present):
            sizes = (size for shape, _ in outputs for size in shape)
            if any(value.late is not None for value in present) or any(map(is_symbolic, (*ints, *sizes))):
                if self._packing:
                    raise UnfitForSymbols("a packed constant depends on sizes")
                made = [Value(dtype, checked_shape(shape, dtype)) for shape, dtype in outputs]
                if self._compute_late(kernel, inputs, made, ints, floats):
                    return made
                fold = False
        return super().call_many(kernel, inputs, outputs, ints, floats, lasting=lasting, fold=fold)

    def _compute_late(
        self,
        kernel: str,
        inputs: Sequence[Value | None],
        made: Sequence[Value],
        ints: Sequence[int],
        floats: Sequence[float],
    ) -> bool:
        """Compute ``made`` from known and late values: symbolically if possible, else by a call before the program.
        Returns False, and leaves ``made`` as it is, if the results are too large to be kept."""
        source = self._source_of(kernel, inputs, ints)
        if source is not None and made[0].size <= source.size:
            assert source.data is not None
            sizes = tuple(map(hint, made[0].shape))
            seen = source.data.reshape(-1)[: math.prod(sizes)].reshape(sizes)
            made[0].storage = self.new_storage()
            made[0].late = Late(seen, source=source)
            return True
        num_bytes = sum(value.size * value.dtype.itemsize for value in made)
        if hint(num_bytes) > MAX_LATE_BYTES or num_bytes > MAX_KEPT_BYTES:
            return False
        elements = _symbolic(kernel, inputs, made, ints)
        plain = tuple(map(hint, ints))
        specs = [(tuple(map(hint, value.shape)), value.dtype) for value in made]
        arrays = [None if value is None else value.data if value.late is None else value.late.seen for value in inputs]
        results = _kernels.call(kernel, arrays, specs, plain, floats)
        for value, array in zip(made, results, strict=True):
            array.flags.writeable = False
            value.storage = self.new_storage()
            value.late = Late(array)
        if elements is not None:
            (value,) = made
            assert value.late is not None
            value.late.elements = elements
            assert [hint(element) for element in elements.reshape(-1)] == value.late.seen.reshape(-1).tolist()
            return True
        for operand in inputs:
            if operand is not None and operand.late is not None:
                self.number_of(operand)
        for value in made:
            assert value.late is not None
            value.late.number = len(self.tensors)
            self._add_tensor(value)
            self.trace.allocate(value.late.number)
        for at, number in enumerate(ints):
            if is_symbolic(number):
                self.trace.store_int(self._num_ints + at, number)
        self._num_ints += len(ints)
        self.trace.call(len(self.late_calls))
        self.late_calls.append(Call(kernel, tuple(inputs), tuple(made), tuple(ints), tuple(floats), self.node))
        return True

    def _source_of(self, kernel: str, inputs: Sequence[Value | None], ints: Sequence[Any]) -> Value | None:
        """A constant whose first elements are the result of a call; None if there is none. The call is a slice from the
        beginning of a constant, or a gather by such a slice along the first axis, as of the positions of a text."""
        if kernel == "copy_strided" and _is_leading(ints):
            return _constant_of(inputs[0])
        if kernel != "gather" or tuple(ints) != (0,):
            return None
        table, chosen = inputs[0], _constant_of(inputs[1])
        if table is None or table.data is None or chosen is None or chosen.data is None or table.rank == 0:
            return None
        indices = chosen.data.reshape(-1).astype(np.int64)
        rows = len(table.data)
        if table.data.flags.aligned and len(indices) <= rows and np.array_equal(indices, np.arange(len(indices))):
            return table
        if len(indices) * (table.data.nbytes // max(rows, 1)) > MAX_LATE_BYTES:
            return None
        if not np.all((-rows <= indices) & (indices < rows)):
            return None
        import hashlib  # late: loads OpenSSL

        shape, places = (len(indices), *table.shape[1:]), self.constant(indices)

        def make() -> Value:
            return self.call("gather", [table, places], shape, table.dtype, ints, lasting=True)

        return self.packed(table, ("gathered", hashlib.sha256(indices.tobytes()).digest()[:16]), make)


def _is_leading(ints: Sequence[Any]) -> bool:
    """Whether the parameters of copy_strided select the first elements, in their order."""
    offset, rank = ints[:2]
    dense = 1
    for count, step in zip(reversed(ints[2 : 2 + rank]), reversed(ints[2 + rank :]), strict=True):
        if is_symbolic(count) or count != 1:
            if not are_same(step, dense):
                return False
            dense *= count
    return are_same(offset, 0)


def _constant_of(value: Value | None) -> Value | None:
    """The constant whose first elements a value has; None if there is none."""
    while value is not None and value.data is None:
        late = value.late
        if late is None:
            return None
        value = late.source if late.base is None else late.base
    return value


def _plain(layout: Hashable) -> Hashable:
    """A layout without symbols: the plan holds only for these numbers, because packed constants are shared by plans."""
    if isinstance(layout, tuple):
        return tuple(map(_plain, layout))
    return int(layout) if type(layout) is Size else layout


def _elements_of(value: Value | None) -> NDArray[Any] | None:
    """The elements of a small integer operand that are at hand: those of a constant, or symbols made before."""
    if value is None or value.dtype not in (_INT64, _INT32):
        return None
    if value.late is not None:
        return value.late.elements
    return value.data.astype(object) if value.data is not None and value.data.size <= MAX_ELEMENTS else None


def _symbolic(
    kernel: str, inputs: Sequence[Value | None], made: Sequence[Value], ints: Sequence[Any]
) -> NDArray[Any] | None:
    """The result of a call on symbols, for the kernels that occur in arithmetic on shapes; None if it has to be
    computed by the kernel. Only moves of elements, and arithmetic on int64: sums and products wrap alike in any order,
    and the comparisons of a division check that its operands have at most 64 bits."""
    if kernel not in _MOVES and kernel not in _ARITHMETIC:
        return None
    if len(made) != 1 or any(isinstance(size, Size) for size in made[0].shape) or any(map(is_symbolic, ints)):
        return None
    operands = [_elements_of(value) for value in inputs]
    shape = made[0].shape
    if kernel == "gather":  # the indices are constants
        data, places = operands[0], inputs[1]
        if data is None or places is None or places.data is None:
            return None
        index = np.take(np.arange(data.size).reshape(data.shape), places.data, axis=ints[0])
        return data.reshape(-1)[index.reshape(-1)].reshape(shape)
    if any(operand is None for operand in operands):
        return None
    if kernel == "concat":
        return np.concatenate(operands, axis=ints[0])  # type: ignore[arg-type]
    first = operands[0]
    assert first is not None
    if kernel == "copy_strided":
        rank = ints[1]
        index = np.full(ints[2 : 2 + rank], ints[0], np.int64)
        for axis, (count, step) in enumerate(zip(ints[2 : 2 + rank], ints[2 + rank :], strict=True)):
            index += (np.arange(count) * step).reshape([-1 if at == axis else 1 for at in range(rank)])
        return first.reshape(-1)[index.reshape(-1)].reshape(shape)
    if kernel == "cast":
        return first if made[0].dtype == _INT64 else None
    if any(value is not None and value.dtype != _INT64 for value in inputs):
        return None
    second = operands[1]
    assert second is not None
    try:
        pairs = np.broadcast_arrays(first, second)
        result = np.empty(shape, object)
        flat = result.reshape(-1)
        for at, (a, b) in enumerate(zip(pairs[0].reshape(-1), pairs[1].reshape(-1), strict=True)):
            number = _ARITHMETIC[kernel](a, b)
            if number is None or not -(1 << 63) <= hint(number) < 1 << 63:
                return None
            flat[at] = number
    except ZeroDivisionError:
        return None
    return result


def _quotient(a: Any, b: Any) -> Any:
    """a // b if neither is negative; otherwise None, because the kernel rounds toward zero."""
    return a // b if a >= 0 and b > 0 else None


_MOVES = {"gather", "concat", "copy_strided", "cast"}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _quotient,
    "min": lambda a, b: b if b < a else a,
    "max": lambda a, b: b if b > a else a,
}
