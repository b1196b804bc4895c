"""Types of values: element type and shape, as declared in the model or inferred."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._onnx import WireError, gather_rows, read_fields, read_type
from ..base.formatting import shape_text
from ..base.other_names import OtherNames

__all__ = [
    "PORT_COLUMNS",
    "Dim",
    "Holder",
    "Port",
    "Ragged",
    "ValueType",
    "dtype_of",
    "element_bits",
    "holder_of",
    "is_symbol",
    "onnx_dtype_of",
    "port_rows",
]

Dim = int | str | None
"""One dimension: a size, a symbol, or None if unknown."""

# onnx.TensorProto.DataType -> NumPy dtype. Types that NumPy lacks come from ml_dtypes, which is imported on first use.
_NUMPY = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "object",  # strings
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
}
_ML_DTYPES = {
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
    27: "float6_e2m3fn",
    28: "float6_e3m2fn",
}
# Bits per element in ONNX's storage, for types whose NumPy dtype has another size.
_PACKED_BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2, 27: 6, 28: 6}


@functools.cache
def dtype_of(onnx_dtype: int) -> np.dtype[Any] | None:
    """The NumPy dtype of an ``onnx.TensorProto.DataType`` number; None for 0 (undefined) and unknown numbers."""
    if onnx_dtype in _NUMPY:
        return np.dtype(_NUMPY[onnx_dtype])
    if onnx_dtype in _ML_DTYPES:
        import ml_dtypes

        scalar = getattr(ml_dtypes, _ML_DTYPES[onnx_dtype], None)
        return None if scalar is None else np.dtype(scalar)
    return None


@functools.cache
def onnx_dtype_of(dtype: np.dtype[Any]) -> int:
    """The ``onnx.TensorProto.DataType`` number of a NumPy dtype; 0 if ONNX has none."""
    for number in (*_NUMPY, *_ML_DTYPES):
        if dtype_of(number) == dtype:
            return number
    return 8 if dtype.kind in "US" else 0


def element_bits(onnx_dtype: int) -> int:
    """Bits per element in raw data. Raises ValueError for strings and for types unknown to NumPy and ml_dtypes."""
    packed = _PACKED_BITS.get(onnx_dtype)
    if packed is not None:
        return packed
    dtype = dtype_of(onnx_dtype)
    if dtype is None or dtype.hasobject:
        raise ValueError(f"elements of data_type {onnx_dtype} have no fixed size or require a newer ml_dtypes")
    return dtype.itemsize * 8


@dataclasses.dataclass(frozen=True, slots=True)
class ValueType:
    """The known type of a tensor. ``dtype``: None if unknown. ``shape``: None if the rank is unknown."""

    dtype: np.dtype[Any] | None
    shape: tuple[Dim, ...] | None

    @property
    def has_sizes(self) -> bool:
        """Whether the rank and all sizes are known."""
        return self.shape is not None and all(isinstance(dim, int) for dim in self.shape)


def is_symbol(text: str, known: Container[str | int | None] = ()) -> bool:
    """Whether a user may name a dimension ``text``: a symbol of the model, which can be any text, or a name that starts
    with a letter or an underscore. A number, a range such as ``1..4``, and None in quotes are not names."""
    return text in known or ((text[:1].isalpha() or text[:1] == "_") and text != "None")


class Holder(NamedTuple):
    """The contents of a value that is not a tensor. ``kinds``: ``"sequence"`` and ``"optional"``, from the outermost
    to the innermost; empty if unknown, as for maps. ``dtype``: the element type of the innermost tensors, or None."""

    kinds: tuple[str, ...] = ()
    dtype: np.dtype[Any] | None = None


_KIND_FIELDS = {4: "sequence", 9: "optional"}  # of TypeProto; field 1 of each is the element's type
_MAX_KINDS = 8


@functools.lru_cache(maxsize=256)  # models have few of these
def holder_of(message: bytes) -> Holder:
    """The contents of a sequence or optional with this TypeProto; empty for other types and malformed messages."""
    try:
        return _holder_of(message)
    except WireError:
        return Holder()


def _holder_of(message: bytes) -> Holder:
    kinds: list[str] = []
    begin, end = 0, len(message)
    while begin < end and len(kinds) <= _MAX_KINDS:
        fields = [
            (kind, span) for field, kind in _KIND_FIELDS.items() for span in read_fields(message, begin, end, field)
        ]
        if len(fields) != 1:
            break
        kind, (begin, end) = fields[0]
        kinds.append(kind)
        inner = read_fields(message, begin, end, 1)
        if len(inner) != 1:
            return Holder()
        begin, end = inner[0]
    number = read_type(message, begin, end)[0] if begin < end else 0
    return Holder(tuple(kinds), dtype_of(number)) if kinds and number > 0 else Holder()


class Port(OtherNames):
    """A named input or output of a model, compiled model or submodel. Immutable.

    ``dtype`` and ``shape``: None if unknown. ``is_tensor``: False for sequences (lists of arrays) and optionals (a
    list, an array or None). These have no dtype and shape; ``holder`` describes their elements. ``declared``: True if
    the model states dtype and shape. False if shape inference, which may be wrong, finds the missing part; it runs when
    the attribute is read. Ports with the same name and type are equal in both cases. ``default``: the value of an input
    that may be left out (`Model.with_inputs`), or None. ``misfits``: the devices whose result had another shape than
    the declared one, which is reported once.
    """

    __slots__ = ("_dtype", "_find", "_holder", "_is_tensor", "_shape", "declared", "default", "misfits", "name")

    other_names = types.MappingProxyType(
        {
            **dict.fromkeys(("any_name", "get_any_name", "names", "get_names", "friendly_name"), "port.name"),
            **dict.fromkeys(("element_type", "get_element_type", "type"), "port.dtype"),
            **dict.fromkeys(("partial_shape", "get_partial_shape", "get_shape"), "port.shape"),
            **dict.fromkeys(("index", "get_index"), "its place in model.inputs or model.outputs"),
            **dict.fromkeys(("node", "get_node", "target_inputs", "get_target_inputs"), "model.nodes"),
            **dict.fromkeys(("tensor", "get_tensor"), "port.dtype and port.shape; compiled(inputs) returns arrays"),
            **dict.fromkeys(("rt_info", "get_rt_info"), "model.metadata"),
        }
    )

    def __init__(
        self,
        name: str,
        dtype: np.dtype[Any] | None,
        shape: tuple[Dim, ...] | None,
        declared: bool = True,
        is_tensor: bool = True,
        find: Callable[[], tuple[np.dtype[Any] | None, tuple[Dim, ...] | None, bool, Holder]] | None = None,
        holder: Holder = Holder(),  # noqa: B008 - a constant
        default: NDArray[Any] | None = None,
    ) -> None:
        """``find``: called on first use of a missing part, returns dtype, shape, ``is_tensor`` and ``holder``."""
        self.name = name
        self.declared = declared
        self.default = default
        self.misfits: set[str] = set()
        self._dtype = dtype
        self._shape = shape
        self._is_tensor = is_tensor
        self._holder = holder
        self._find = find

    @property
    def is_stated(self) -> bool:
        """Whether the element type is known without inference."""
        return self._dtype is not None or self._find is None

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The element type; None if it is unknown or the value is not a tensor."""
        if self._dtype is None:
            self._look_up()
        return self._dtype

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """A size, a symbol or None per dimension; None if the rank is unknown."""
        if self._shape is None:
            self._look_up()
        return self._shape

    @property
    def is_tensor(self) -> bool:
        """False for sequences and optionals."""
        if self._dtype is None:
            self._look_up()
        return self._is_tensor

    @property
    def holder(self) -> Holder:
        """The contents of a sequence or optional; empty for tensors and unknown contents."""
        if self._dtype is None:
            self._look_up()
        return self._holder

    def _look_up(self) -> None:
        if self._find is not None:
            # Threads may do this at the same time, because the result is the same.
            self._dtype, self._shape, self._is_tensor, self._holder = self._find()
            self._find = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Port):
            return NotImplemented
        mine = (self.name, self.dtype, self.shape, self.is_tensor, self.holder)
        return mine == (other.name, other.dtype, other.shape, other.is_tensor, other.holder)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        if not self.is_tensor:
            kinds = [*self.holder.kinds, str(self.holder.dtype)] if self.holder.kinds else ["no tensor"]
            return f"Port({self.name!r}, {' of '.join(kinds)})"
        shape = "any shape" if self.shape is None else shape_text(self.shape)
        return f"Port({self.name!r}, {self.dtype or 'any dtype'} {shape}{'' if self.declared else ', inferred'})"


PORT_COLUMNS = ("", "name", "dtype", "shape")


def port_rows(inputs: Iterable[Port], outputs: Iterable[Port]) -> Iterator[tuple[str, str, str | None, str | None]]:
    """Rows with `PORT_COLUMNS` for a table. A type that would have to be inferred is left out."""
    for kind, ports in (("input", inputs), ("output", outputs)):
        for port in ports:
            dtype = str(port.dtype or "") if port.declared else None
            yield kind, port.name, dtype, shape_text(port.shape) if port.declared else None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Rows of unequal length (CSR): row i is ``values[indptr[i]:indptr[i + 1]]``.

    ``indptr``: int32[n + 1], ascending from 0. ``values``: int32[indptr[n]]. Both are read-only.
    """

    indptr: NDArray[np.int32]
    values: NDArray[np.int32]

    def __post_init__(self) -> None:
        self.indptr.flags.writeable = False
        self.values.flags.writeable = False

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        """A view of one row. Raises IndexError unless 0 <= row < n."""
        if not 0 <= row < len(self.indptr) - 1:
            raise IndexError(f"row {row} is not in 0..{len(self.indptr) - 2}")
        return self.values[self.indptr[row] : self.indptr[row + 1]]

    def take(self, rows: NDArray[np.int32]) -> Ragged:
        """A copy of these rows, in this order."""
        return Ragged(*gather_rows(self.indptr, self.values, rows))
