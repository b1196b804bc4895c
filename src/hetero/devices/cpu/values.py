"""Values with known shapes, on which lowerings work, and the context that turns them into kernel calls.

A plan may be made for sizes that are symbols (`hetero._sizes`). The sizes in shapes and ints are then `Size` objects
where they depend on the call, and tensors that follow from sizes alone are `Late`: they are computed in C when a call
comes with new sizes (`_sizes.SizeTrace`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import _kernels
from ..._sizes import whole
from ...errors import InferenceError
from ...model.constants import release_pages
from .pages import Pages

__all__ = [
    "MAX_BYTES",
    "MAX_DIMS",
    "Call",
    "Context",
    "Late",
    "NeedsData",
    "NeedsHost",
    "Packed",
    "Value",
    "checked_shape",
    "is_opaque",
    "type_of",
]

MAX_BYTES = _kernels.constant("MAX_BYTES")
"""Bytes of a tensor, at most; planning rejects larger ones."""

MAX_DIMS = _kernels.constant("MAX_DIMS")
"""Dimensions of a tensor, at most."""


@dataclasses.dataclass(slots=True, eq=False)
class Late:
    """The facts that planning knows about a tensor that depends on sizes alone.

    ``seen``: its data for the sizes for which the plan is made. ``elements``: the same as an object array of ints,
    `Size` and `Real`; None if it has not been needed. ``number``: its tensor in the trace; -1 while it has no memory.
    ``base``: another late value with the same elements in another shape, or None. ``source``: a constant whose first
    elements these are, or None; the tensor then lies in the memory of the constant.
    """

    seen: NDArray[Any]
    elements: NDArray[Any] | None = None
    number: int = -1
    base: Value | None = None
    source: Value | None = None


@dataclasses.dataclass(slots=True, eq=False)
class Value:
    """A tensor at planning time: dtype, shape, and its data if they are known already.

    ``storage``: the number of the memory that holds it at run time; values that are reshapes of each other share one.
    -1 if the data are known. ``shared``: the data are a constant of the compiled model, the same in all its plans.
    ``scale``: only for the weights of a convolution, a factor per output channel that the weights do not include yet.
    ``late``: set if it follows from sizes alone; ``data`` is then None.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data: NDArray[Any] | None = None
    storage: int = -1
    shared: bool = False
    scale: NDArray[Any] | None = None
    late: Late | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def scale_key(self) -> bytes | None:
        """A digest of the scale for the key of a packed constant. It is the same in every process."""
        if self.scale is None:
            return None
        import hashlib  # late: loads OpenSSL, 3 ms and 3 MB

        return hashlib.sha256(self.scale.tobytes()).digest()[:16]


@dataclasses.dataclass(slots=True)
class Call:
    """One kernel call of a plan. ``inputs``: None for absent ones. ``node``: index of the node that it counts for."""

    kernel: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    ints: tuple[int, ...]
    floats: tuple[float, ...]
    node: int
    label: object = None  # its text names the call in errors; None: the node does

    def changed(
        self,
        inputs: tuple[Value | None, ...] | None = None,
        outputs: tuple[Value, ...] | None = None,
        ints: tuple[int, ...] | None = None,
        floats: tuple[float, ...] | None = None,
    ) -> Call:
        """A copy with other operands or parameters. Five times as fast as `dataclasses.replace`."""
        return Call(
            self.kernel,
            self.inputs if inputs is None else inputs,
            self.outputs if outputs is None else outputs,
            self.ints if ints is None else ints,
            self.floats if floats is None else floats,
            self.node,
            self.label,
        )

    branches: tuple[list[Call], ...] = ()
    """Only of the kernel ``branch``: the calls that run if its first operand is false, and those that run if it is
    true. All values from outside that they read are among its other operands."""


def in_order(calls: Iterable[Call]) -> Iterator[Call]:
    """All calls, each followed by the calls of its branches."""
    for call in calls:
        yield call
        for branch in call.branches:
            yield from in_order(branch)


PACKING_VERSION = _kernels.constant("PACKING_VERSION")
"""The version of all packed layouts together. If an exported model has another version, its import packs the constants
again."""


_OBJECT = np.dtype(object)


_SMALLEST = {"float16": 2.0**-9}
"""By type: if the largest weight is smaller, weights of a 32nd of its size are no longer normal numbers."""


def is_opaque(value: Value) -> bool:
    """Whether kernels know nothing of a value: strings, sequences, optionals and maps, which only hosted operators
    read. The runner keeps them."""
    return value.dtype == _OBJECT and value.data is None


def type_of(value: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The dtype and shape of an array; object and () for all that `is_opaque`."""
    if isinstance(value, np.ndarray) and value.dtype != _OBJECT:
        return value.dtype, value.shape
    return _OBJECT, ()


class NeedsData(Exception):
    """Raised by a lowering that needs the data of ``value``, which are only known when the program runs."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class NeedsHost(Exception):
    """Raised for a node that has no kernel calls and runs between two segments of a plan."""


class Packed(dict[tuple[int, Hashable], tuple[NDArray[Any], NDArray[Any]]]):
    """(id of a constant, layout) -> the constant and its packed form. ``storage``: the type in which packed float32
    weights are kept; None for float32. ``pages``: memory for packed forms.

    A layout is a string, number, bytes or None, or a tuple of these. It states everything that the packed form depends
    on, because both are exported (`stored.py`). If a layout's meaning changes, raise HT_PACKING_VERSION in
    kernels/constants.h.
    """

    def __init__(self, storage: np.dtype[Any] | None = None) -> None:
        super().__init__()
        self.storage = storage
        self.pages = Pages()


class Context:
    """Collects the calls of a plan. A call whose inputs are all known runs immediately, with the same kernel.

    ``packed``: constants in kernels' own layouts, computed once per compiled model and shared by all its plans.
    ``node``: the index of the node that is being lowered. ``stages``: see `staged`.
    ``has_fixed_sizes``: whether all plans of the segment are for these sizes. Only then may the layout of a packed
    constant depend on a size: plans for other sizes share packed constants, and a size gives the same bits in each.

    This class is for sizes that are known. `hetero.devices.cpu.tracing.Tracing` extends it to symbols.
    """

    def __init__(self, packed: Packed, has_fixed_sizes: bool = False) -> None:
        self.has_fixed_sizes = has_fixed_sizes
        self.calls: list[Call] = []
        self.node = -1
        self.num_storages = 0
        self.stages: dict[int, list[Value]] = {}
        self._packed = packed
        self._packing = False

    def call(
        self,
        kernel: str,
        inputs: Sequence[Value | None],
        shape: Sequence[int],
        dtype: np.dtype[Any],
        ints: Sequence[int] = (),
        floats: Sequence[float] = (),
        *,
        lasting: bool = False,
    ) -> Value:
        """Add a call of one output and return the output. The kernel's file documents ``ints`` and ``floats``.

        ``lasting``: the output is what ``make`` returns to `packed`, so it is kept as long as the compiled model."""
        return self.call_many(kernel, inputs, [(shape, dtype)], ints, floats, lasting=lasting)[0]

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
        """As `call`, for any number of outputs. ``fold``: False for a call that runs every time, even if all its inputs
        are known."""
        made = [Value(dtype, checked_shape(shape, dtype)) for shape, dtype in outputs]
        known = fold and all(value is None or value.data is not None for value in inputs)
        if known:
            arrays = [None if value is None else value.data for value in inputs]
            specs = [(value.shape, value.dtype) for value in made]
            memory = self._packed.pages.take if lasting and self._packing else None
            results = _kernels.call(kernel, arrays, specs, ints, floats, memory=memory)
            for value, array in zip(made, results, strict=True):
                array.flags.writeable = False
                value.data = array
            return made
        for value in made:
            value.storage = self.new_storage()
        self.calls.append(Call(kernel, tuple(inputs), tuple(made), tuple(ints), tuple(floats), self.node))
        return made

    def constant(self, array: NDArray[Any]) -> Value:
        return Value(array.dtype, array.shape, array)

    def integers(self, numbers: Sequence[int], shape: Sequence[int] | None = None) -> Value:
        """A vector of int64, or an array of ``shape``, of numbers that may depend on sizes."""
        array = np.array(numbers, np.int64)
        return self.constant(array if shape is None else array.reshape(shape))

    def table(self, function: Callable[..., NDArray[Any]], arguments: Sequence[int], shape: Sequence[int]) -> Value:
        """The array ``function(*arguments)`` of ``shape``. If the arguments depend on sizes, the function is called
        again for new sizes."""
        return self.constant(function(*arguments))

    def counting(self, count: int) -> Value:
        """The integers from 0 to ``count`` - 1, as int64."""
        dtype = np.dtype(np.int64)
        return self.call("range", [self.scalar(0, dtype), self.scalar(1, dtype)], (count,), dtype)

    def scalar(self, number: float, dtype: np.dtype[Any]) -> Value:
        return self.constant(np.array(number, dtype))

    def packed(self, source: Value, layout: Hashable, make: Callable[[], Value]) -> Value:
        """A constant in another layout or type: the result of ``make``, which is called once per compiled model and
        ``layout``."""
        if not source.shared:
            return make()
        key = (id(source.data), layout)
        if key not in self._packed:
            outer, self._packing = self._packing, True
            try:
                data = make().data
            finally:
                self._packing = outer
            assert data is not None
            assert source.data is not None
            self._packed[key] = (source.data, data)  # keeping the source keeps its id valid
            release_pages(source.data)
        array = self._packed[key][1]
        return Value(array.dtype, array.shape, array, shared=True)

    @property
    def halves(self) -> bool:
        """Whether packed weights are kept in 16-bit floats."""
        return self._packed.storage is not None

    def stored(self, source: Value, layout: Hashable, make: Callable[[], Value]) -> Value:
        """As `packed` for float32 weights, kept in the type of `Packed.storage`. Weights too large for it stay
        float32, and so do weights that are all so small that they would lose digits."""
        storage = self._packed.storage
        if storage is None or not source.shared:
            return self.packed(source, layout, make)

        def halves() -> Value:
            made = make()
            half = self.call("cast", [made], made.shape, storage, lasting=True)
            assert made.data is not None, "made of constants"
            assert half.data is not None
            overflows = np.isinf(half.data).any() and not np.isinf(made.data).any()
            largest = max(made.data.max(), -made.data.min()) if made.size else 0.0
            return made if overflows or 0 < largest < _SMALLEST.get(storage.name, 0.0) else half

        return self.packed(source, (layout, storage.name), halves)

    def widened(self, value: Value) -> Value:
        """A packed constant as float32. If it is kept in another type, a call converts it in every run."""
        if value.dtype == np.float32:
            return value
        made = Value(np.dtype(np.float32), value.shape, storage=self.new_storage())
        self.calls.append(Call("cast", (value,), (made,), (), (), self.node))
        return made

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """The same elements in another shape, without a copy."""
        shape = checked_shape(shape, value.dtype)
        data = None if value.data is None else value.data.reshape(shape)
        return Value(value.dtype, shape, data, value.storage)

    def staged(self, make: Callable[[], Sequence[Value]]) -> Sequence[Value]:
        """The values of ``make``, called once per node. Use it at most once per node.

        If the lowering then needs data of these values, the plan is cut and the node is lowered again; this call then
        returns the values from before the cut."""
        if self.node not in self.stages:
            self.stages[self.node] = list(make())
        return self.stages[self.node]

    def known(self, value: Value) -> NDArray[Any]:
        """The data of a value; those of a late value are an object array that may contain `Size` and `Real`. If they
        are not known yet, raises `NeedsData`: the plan is cut before this node."""
        if value.data is None:
            raise NeedsData(value)
        return value.data

    def is_known(self, value: Value) -> bool:
        """Whether `known` gives the data of a value."""
        return value.data is not None

    def new_storage(self) -> int:
        self.num_storages += 1
        return self.num_storages - 1


def checked_shape(sizes: Sequence[int], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """``sizes`` as a shape. Raises `InferenceError` for shapes that kernels do not support: more than `MAX_DIMS`
    dimensions, or more than `MAX_BYTES`.

    For an empty tensor, the product of the other dimensions is limited too, because kernels compute it."""
    shape = tuple(map(whole, sizes))
    if len(shape) > MAX_DIMS or any(size < 0 for size in shape):
        raise InferenceError(
            f"an output would have shape {list(shape)}; expected at most {MAX_DIMS} dimensions, none negative"
        )
    if (math.prod(shape) or math.prod(filter(None, shape))) * dtype.itemsize > MAX_BYTES:
        raise InferenceError(f"an output of shape {list(shape)} would need more than 2**40 bytes")
    return shape
