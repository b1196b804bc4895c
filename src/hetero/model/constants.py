"""Constants of a file as NumPy arrays: views of its bytes if alignment and type allow, otherwise decoded once."""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._onnx import read_fields, read_tensor, read_varints, unpack_bits
from ..base.files import mapping_of
from ..errors import ModelError, ModelTooLarge, file_error
from .external import ExternalFiles, Location, parse_location
from .file import ModelFile
from .types import ValueType, dtype_of, element_bits

__all__ = ["Constants", "LentArrays", "StoredTensor", "array_of", "raw_size", "release_pages"]

# ht_data_kind of _core/onnx/tensor.h
_RAW, _PACKED, _TYPED, _EXTERNAL, _SPARSE, _ATTRIBUTE = range(6)

# Fields of TensorProto
_FLOAT_DATA, _INT32_DATA, _INT64_DATA, _DOUBLE_DATA, _UINT64_DATA, _EXTERNAL_DATA = 4, 5, 7, 10, 11, 13
_STRING = 8
_BOOL = 9

# Bytes. Decoded arrays up to this size stay in memory; larger ones are kept only while they are in use.
_KEPT_BYTES = 1 << 16

# A small sparse tensor can describe an arbitrarily large dense one. If the dense form exceeds both limits (in B, and in
# B per stored byte, about one value in a thousand), it raises an error instead of being allocated.
_MAX_DENSE_BYTES = 32 << 20
_MAX_DENSE_PER_BYTE = 256


class Constants:
    """The constants of a file, by number. Threads may share an object."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        # An index into a memoryview gives a Python number, in a third of the time that an index into an array takes.
        self._kind, self._dtype = file.constant_kind.data, file.constant_dtype.data
        self._data_begin, self._data_end = file.constant_data_begin.data, file.constant_data_end.data
        self._dims_indptr, self._dims = file.constant_dims_indptr.data, file.constant_dims.data
        self.external = ExternalFiles(file.folder, file.follow_links, file.external_data)
        self._kept: dict[int, NDArray[Any]] = {}
        self._in_use: weakref.WeakValueDictionary[int, NDArray[Any]] = weakref.WeakValueDictionary()
        self._lenders: dict[int, tuple[Constants | LentArrays, int]] = {}

    def dims(self, number: int) -> tuple[int, ...]:
        return tuple(self._dims[self._dims_indptr[number] : self._dims_indptr[number + 1]])

    def dtype(self, number: int) -> np.dtype[Any] | None:
        """The element type; None if it is not known."""
        return dtype_of(self._dtype[number])

    def type_of(self, number: int) -> ValueType:
        """Element type and shape, without reading the data."""
        return ValueType(self.dtype(number), self.dims(number))

    def nbytes(self, number: int) -> int:
        """The size of the elements as raw data, in B."""
        return raw_size(self._dtype[number], self.dims(number))

    def borrow(self, number: int, lender: Constants | LentArrays, its_number: int) -> None:
        """Read a constant's data from another file, which must store it as raw data, or from an array. Must be called
        before the data is used."""
        self._lenders[number] = lender.origin(its_number)

    def origin(self, number: int) -> tuple[Constants | LentArrays, int]:
        """The object that holds a constant's data, and the number there. Constants that share data have the same."""
        return self._lenders.get(number, (self, number))

    def is_external(self, number: int) -> bool:
        return self._kind[number] == _EXTERNAL and number not in self._lenders

    def is_raw(self, number: int) -> bool:
        """Whether the model file, or the file that lends the constant, stores the elements as raw data."""
        return self._kind[number] in (_RAW, _PACKED) or number in self._lenders

    def is_plain(self, number: int) -> bool:
        """Whether the elements are stored as raw data, in NumPy's layout."""
        dtype = self._dtype[number]
        return (self.is_raw(number) or self.is_external(number)) and dtype != _STRING and element_bits(dtype) >= 8

    def raw(self, number: int) -> memoryview:
        """The raw data of a constant, not copied. The constant must be external or `is_raw`."""
        if number in self._lenders:
            lender, its_number = self._lenders[number]
            return lender.raw(its_number)
        if self.is_raw(number):
            return self._file.data[self._data_begin[number] : self._data_end[number]]
        try:
            return self.external.read(self.location(number), self.nbytes(number))
        except ValueError as error:
            raise self.error(number, error) from error

    def location(self, number: int) -> Location:
        """The location of an external constant's data. Its length is checked against dims and type."""
        file = self._file
        begin, until = int(file.constant_begin[number]), int(file.constant_until[number])
        try:
            location = self._location(begin, until)
            self.external.check_length(location, self.nbytes(number))
        except ValueError as error:
            raise self.error(number, error) from error
        return location

    def array(self, number: int) -> NDArray[Any]:
        """The constant as a read-only array. If the data cannot be read, raises `ModelError` with the tensor's name."""
        if number in self._lenders:
            lender, its_number = self._lenders[number]
            return lender.array(its_number)
        array = self._kept.get(number)
        if array is not None:
            return array
        if (found := self._in_use.get(number)) is not None:
            return found
        try:
            array = self._decode(number)
        except ModelError:
            raise
        except (ValueError, MemoryError) as error:
            raise self.error(number, error) from error
        array.flags.writeable = False
        # An external array is not kept, because it would keep its file open.
        if array.nbytes <= _KEPT_BYTES and self._kind[number] != _EXTERNAL:
            return self._kept.setdefault(number, array)
        return self._in_use.setdefault(number, array)

    def view(self, number: int) -> NDArray[Any]:
        """Like `array`, but large raw data are always a view of the file, even if the elements are not aligned."""
        if number in self._lenders:
            lender, its_number = self._lenders[number]
            return lender.view(its_number)
        if self._data_end[number] - self._data_begin[number] <= _KEPT_BYTES or not self.is_raw(number):
            return self.array(number)
        dtype = self._dtype[number]
        if element_bits(dtype) < 8 or dtype == _BOOL:
            return self.array(number)
        try:
            return _elements(self.raw(number), _numpy_dtype(dtype), self.dims(number))
        except ValueError as error:
            raise self.error(number, error) from error

    def error(self, number: int, error: Exception) -> ModelError:
        """A `ModelError` with the name of the constant and the message of ``error``."""
        file = self._file
        name = file.index.value_name(int(file.constant_value[number]))
        kind = "Constant node's value" if file.constant_source[number] == 2 else "initializer"
        if isinstance(error, UnicodeDecodeError):
            message = "a string is not UTF-8"
        elif isinstance(error, MemoryError):
            message = f"not enough memory for shape {list(self.dims(number))}"
            return ModelTooLarge(str(file.error(f"{kind} {name!r}: {message}")))
        else:
            message = str(error)
        return file_error(ModelError, str(file.error(f"{kind} {name!r}: {message}")), error)

    def _decode(self, number: int) -> NDArray[Any]:
        file, kind, dtype, dims = self._file, self._kind[number], self._dtype[number], self.dims(number)
        data = self._data_begin[number], self._data_end[number]
        message = int(file.constant_begin[number]), int(file.constant_until[number])
        if kind == _SPARSE:
            return self._decode_sparse(dtype, dims, *message)
        if kind == _ATTRIBUTE:
            return _decode_attribute(bytes(file.data[slice(*message)]), dtype, dims)
        return self._decode_tensor(dtype, dims, kind, data, message)

    def _decode_tensor(
        self, dtype: int, dims: tuple[int, ...], kind: int, data: tuple[int, int], message: tuple[int, int]
    ) -> NDArray[Any]:
        if kind == _EXTERNAL:
            return _from_raw(self.external.read(self._location(*message), raw_size(dtype, dims)), dtype, dims)
        if kind in (_RAW, _PACKED):
            return _from_raw(self._file.data[data[0] : data[1]], dtype, dims)
        return _from_typed(self._file.data, message, dtype, dims)

    def _location(self, begin: int, until: int) -> Location:
        data = self._file.data
        entries = []
        for entry in read_fields(data, begin, until, _EXTERNAL_DATA):
            # Protobuf: the last occurrence of a field counts; an absent string is empty.
            texts = [[(0, 0), *read_fields(data, *entry, part)][-1] for part in (1, 2)]
            key, value = (bytes(data[start:end]).decode() for start, end in texts)
            entries.append((key, value))
        return parse_location(entries)

    def _decode_sparse(self, dtype: int, dims: tuple[int, ...], begin: int, until: int) -> NDArray[Any]:
        data = self._file.data
        element = _numpy_dtype(dtype)
        parts = []
        for part in (1, 2):  # values, indices
            message = read_fields(data, begin, until, part)[0]
            part_dtype, part_dims, kind, *span = read_tensor(data, *message)
            parts.append(self._decode_tensor(part_dtype, part_dims, kind, (span[0], span[1]), message))
        values, indices = parts
        allowed = max(_MAX_DENSE_BYTES, _MAX_DENSE_PER_BYTE * (values.nbytes + indices.nbytes))
        if math.prod(dims) * element.itemsize > allowed:
            raise ValueError(
                f"the sparse tensor of shape {list(dims)} has {len(values)} values, and its dense form would exceed "
                f"the limit of {allowed} bytes"
            )
        if indices.ndim == 2:
            if indices.size and not ((indices >= 0) & (indices < np.array(dims, np.int64))).all():
                raise ValueError(f"an index of the sparse tensor is outside its shape {list(dims)}")
            indices = np.ravel_multi_index(tuple(indices.T), dims) if dims and len(indices) else np.zeros(0, np.int64)
        elif indices.size and not (indices.min() >= 0 and indices.max() < math.prod(dims)):
            raise ValueError(f"an index of the sparse tensor is outside its shape {list(dims)}")
        if len(indices) > 1 and not (indices[1:] > indices[:-1]).all():
            raise ValueError("the indices of the sparse tensor are not in ascending order")
        dense = np.full(math.prod(dims), "", element) if dtype == _STRING else np.zeros(math.prod(dims), element)
        if len(indices):
            dense[indices] = values
        return dense.reshape(dims)


class LentArrays:
    """Arrays from which a file's constants can be borrowed."""

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self._arrays = arrays
        self._in_use: weakref.WeakValueDictionary[int, NDArray[Any]] = weakref.WeakValueDictionary()

    def origin(self, number: int) -> tuple[Constants | LentArrays, int]:
        return self, number

    def array(self, number: int) -> NDArray[Any]:
        """The array, or a copy if its elements are not aligned."""
        array = self._arrays[number]
        if array.flags.aligned:
            return array
        aligned = self._in_use.get(number)
        if aligned is None:
            aligned = array.copy()
            aligned.flags.writeable = False
            aligned = self._in_use.setdefault(number, aligned)
        return aligned

    def view(self, number: int) -> NDArray[Any]:
        return self._arrays[number]

    def raw(self, number: int) -> memoryview:
        return self._arrays[number].reshape(-1).view(np.uint8).data


class StoredTensor:
    """A TensorProto in an attribute, as its bytes in the file, so that no protobuf message is made for it. Its elements
    are stored as raw data. ``data_type``: as in TensorProto."""

    __slots__ = ("_data", "_dims", "data_type")

    def __init__(self, data: memoryview, data_type: int, dims: tuple[int, ...]) -> None:
        self._data = data
        self._dims = dims
        self.data_type = data_type

    @classmethod
    def of(cls, file: memoryview, message: range) -> StoredTensor | None:
        """The tensor in these bytes of the file; None if it is malformed or stored otherwise than as raw data."""
        try:
            data_type, dims, kind, begin, end = read_tensor(file, message.start, message.stop)
        except ValueError:
            return None
        return cls(file[begin:end], data_type, dims) if kind == _RAW else None

    def numpy(self) -> NDArray[Any]:
        """A copy of the elements. Raises ValueError if NumPy has no such type."""
        return _from_raw(self._data, self.data_type, self._dims).copy()


def array_of(tensor: Any) -> NDArray[Any]:
    """The elements of a tensor in a node's attribute, a `StoredTensor` or a TensorProto. Raises `ModelError` if it is
    malformed, or has external data, which `NodeView` has read for the nodes of a model."""
    if isinstance(tensor, StoredTensor):
        return tensor.numpy()
    from onnx import numpy_helper

    try:
        if tensor.data_location == tensor.EXTERNAL:  # onnx would read a file of the current folder
            raise ValueError("its data are external")
        if any(dim < 0 for dim in tensor.dims):  # NumPy would replace one of them
            raise ValueError(f"shape {list(tensor.dims)} has a negative dim")
        return numpy_helper.to_array(tensor)
    except KeyError as error:
        raise ModelError(f"tensor {tensor.name!r} in an attribute: data_type {error} is unknown") from error
    except (TypeError, ValueError) as error:
        raise ModelError(f"tensor {tensor.name!r} in an attribute: {error}") from error


def release_pages(array: NDArray[Any]) -> None:
    """Release the memory of an array that is a view of a mapped file. The system reads it again on the next access.
    Ignores other arrays."""
    mapped = mapping_of(array)
    if mapped is None or not hasattr(mapped, "madvise"):
        return
    begin = array.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
    first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE  # only pages that lie entirely within the array
    last = (begin + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        mapped.madvise(mmap.MADV_DONTNEED, first, last - first)


def raw_size(dtype: int, dims: Sequence[int]) -> int:
    """The size of the raw data in B. Raises ValueError for strings."""
    return (math.prod(dims) * element_bits(dtype) + 7) // 8


def _numpy_dtype(dtype: int) -> np.dtype[Any]:
    element = dtype_of(dtype)
    if element is None:
        raise ValueError(f"data_type {dtype} requires a newer ml_dtypes")
    return element


def _elements(data: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """A view of bytes, which need not be aligned. Raises ValueError if there are more or fewer than the shape has."""
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{len(data)} bytes are stored for {dtype} of shape {list(shape)}")
    return np.ndarray(shape, dtype, data)


def _unpacked(packed: NDArray[np.uint8], bits: int, element: np.dtype[Any], dims: tuple[int, ...]) -> NDArray[Any]:
    """Elements of less than a byte, each in a byte of its own."""
    array = unpack_bits(packed, bits, math.prod(dims))
    if element.name == "int4":  # with the sign in all high bits, the bytes are the same numbers as int8
        array ^= 8
        array -= 8
    return array.view(element).reshape(dims)


def _from_raw(data: memoryview, dtype: int, dims: tuple[int, ...]) -> NDArray[Any]:
    """Elements stored little-endian (the order of all supported hosts); sub-byte types are packed from the low bits."""
    element = _numpy_dtype(dtype)
    bits = element_bits(dtype)
    if bits < 8:
        packed = np.frombuffer(data, np.uint8)
        array = _unpacked(packed, bits, element, dims)
        release_pages(packed)
        return array
    array = _elements(data, element, dims)
    if not array.flags.aligned:
        array = array.copy()
    if dtype == _BOOL and array.size and array.view(np.uint8).max() > 1:
        array = array.view(np.uint8) != 0  # NumPy requires bytes of 0 and 1
    return array


def _from_typed(data: memoryview, message: tuple[int, int], dtype: int, dims: tuple[int, ...]) -> NDArray[Any]:
    """Elements of typed fields such as int32_data: one number per element, or per raw byte for sub-byte types."""
    element = _numpy_dtype(dtype)
    if dtype == _STRING:
        strings = [bytes(data[begin:end]).decode() for begin, end in read_fields(data, *message, 6)]
        return _objects(strings, dims)
    if element.kind in "fc" and element.itemsize >= 4 and dtype < 16:
        import onnx

        tensor = onnx.TensorProto.FromString(bytes(data[message[0] : message[1]]))
        doubles = element.name in ("float64", "complex128")
        numbers = np.array(tensor.double_data if doubles else tensor.float_data, "f8" if doubles else "f4")
        return numbers.view(element).reshape(dims)
    field = _INT64_DATA if dtype == 7 else _UINT64_DATA if dtype in (12, 13) else _INT32_DATA
    integers = read_varints(data, *message, field)
    bits = element_bits(dtype)
    if bits in (2, 4):
        packed = integers.astype(np.uint8)
        return _unpacked(packed, bits, element, dims)
    if dtype == _BOOL:
        integers = (integers & 0xFFFFFFFF != 0).astype(np.int64)  # the field has 32 bits; protobuf drops the others
    if bits == 6:
        integers &= 0x3F
    # For every type, the low bits are the bits of the element.
    array: NDArray[Any] = integers.astype(np.dtype(f"u{element.itemsize}")).view(element).reshape(dims)
    return array


def _decode_attribute(message: bytes, dtype: int, dims: tuple[int, ...]) -> NDArray[Any]:
    """The value of a Constant node's attribute, such as value_float or value_ints."""
    import onnx

    attribute = onnx.AttributeProto.FromString(message)
    if dtype == _STRING:
        return _objects([text.decode() for text in (attribute.strings if dims else [attribute.s])], dims)
    scalar, several = (attribute.f, attribute.floats) if dtype == 1 else (attribute.i, attribute.ints)
    return np.array(several if dims else scalar, _numpy_dtype(dtype)).reshape(dims)


def _objects(strings: list[str], dims: tuple[int, ...]) -> NDArray[Any]:
    array = np.empty(len(strings), object)
    array[:] = strings
    return array.reshape(dims)
