"""What is given to shape inference in place of a model: its nodes, types, and the few constants that shapes depend on.

Constants of no more than a kilobyte stay, as shapes are computed from them; numbers with a fraction only in short
vectors (scales of `Resize`) and alone (limits of `Range`). All others are graph inputs of their type. Values have short
names: `_core/onnx/skeleton.h` says how, and `OnnxIndex.values_in_answer` finds them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from .._onnx import read_type, vector_lengths
from ..errors import ModelError, raise_out_of_memory
from .constants import Constants
from .file import ModelFile
from .types import Dim, ValueType, onnx_dtype_of
from .wire import encode_field, encode_number, encode_tensor_type, encode_value_info, varint

__all__ = ["hidden_length", "skeleton_of"]

_GRAPH = 7  # of ModelProto
_INITIALIZER, _VALUE_INFO = 5, 13  # of GraphProto

_CONSTANT_BYTES = 1024
_FRACTION_BYTES = 128
_FRACTIONS = (1, 10, 11, 16)  # float32, float16, float64, bfloat16

# Data propagation, which follows shapes computed by nodes, takes every vector of known length for a shape, and makes
# a dim for each element: gigabytes for a hostile length, time wasted on every bias. So long lengths are hidden.
_VECTOR = 256
_HIDDEN = "hetero hidden length "

_AS_INPUT, _AS_IT_IS, _LEFT_OUT = 0, 1, 2  # of OnnxIndex.skeleton
_EXTERNAL, _SPARSE = 3, 4  # constant_kind
_SHORT = "\x01"  # what short names begin with


def skeleton_of(
    file: ModelFile, constants: Constants, supplied: Mapping[int, ValueType], *, with_data: bool
) -> bytes | None:
    """An encoded ModelProto for inference; None if its names could be confused.

    ``supplied``: types that stand for what the file states of these values. ``with_data``: else all constants are
    inputs.
    """
    captured = np.unique(file.captures)
    keeps_name = np.zeros(len(file.value_producer), np.uint8)
    keeps_name[captured] = 1
    if any(file.index.value_name(value).startswith(_SHORT) for value in captured.tolist()):
        return None

    def name(value: int) -> str:
        return file.index.value_name(value) if keeps_name[value] else f"{_SHORT}{value:x}"

    kept = _kept(file) if with_data else np.zeros(len(file.constant_value), np.bool_)
    choice = np.where(kept, _AS_IT_IS, _AS_INPUT).astype(np.uint8)
    more: list[bytes] = []
    for number in np.flatnonzero(kept & (file.constant_kind == _EXTERNAL)).tolist():
        data = _small_data(constants, number)
        if data is None:
            choice[number] = _AS_INPUT
        else:
            choice[number] = _LEFT_OUT
            dims = b"".join(encode_number(1, dim) for dim in constants.dims(number))
            head = dims + encode_number(2, int(file.constant_dtype[number]))
            named = encode_field(8, name(int(file.constant_value[number])).encode())
            more.append(encode_field(_INITIALIZER, head + named + encode_field(9, data)))

    infos = (file.info_value >= 0).astype(np.uint8)
    for info, value, type_message in _other_infos(file, supplied):
        section = _VALUE_INFO if info < 0 else int(file.info_section[info])
        more.append(encode_field(section, encode_value_info(name(value), type_message)))
        if info >= 0:
            infos[info] = 0
    graph = file.index.skeleton(choice, infos, keeps_name, _VECTOR, _HIDDEN.encode())
    header = (file.data[start:end] for start, end in zip(file.header_start, file.header_end, strict=True))
    size = len(graph) + sum(map(len, more))
    return b"".join([*header, varint(_GRAPH << 3 | 2), varint(size), graph, *more])


def hidden_length(dim: Dim) -> Dim:
    """A dim of an inferred type, as it was in the model."""
    return int(dim.removeprefix(_HIDDEN)) if isinstance(dim, str) and dim.startswith(_HIDDEN) else dim


def _kept(file: ModelFile) -> NDArray[np.bool_]:
    """Constants that stay, by what they take in the file."""
    taken = file.constant_end - file.constant_start
    rank = np.diff(file.constant_dims_indptr)
    has_fractions = np.isin(file.constant_dtype, _FRACTIONS)
    small = np.where(has_fractions, (taken <= _FRACTION_BYTES) & (rank <= 1), taken <= _CONSTANT_BYTES)
    return np.asarray(small & (file.constant_kind != _SPARSE))


def _small_data(constants: Constants, number: int) -> bytes | None:
    """The data of a tensor that lie outside of the file, if they are few and can be had."""
    try:
        return bytes(constants.raw(number)) if constants.nbytes(number) <= _CONSTANT_BYTES else None
    except ModelError as error:
        raise_out_of_memory(error)
        return None  # its type is all that inference needs


def _other_infos(file: ModelFile, supplied: Mapping[int, ValueType]) -> Iterator[tuple[int, int, bytes]]:
    """Info of the file (-1: none), value, TypeProto: where a type is not written as the file states it."""
    lengths = vector_lengths(file.data, file.info_type_begin, file.info_type_end)
    stated = {value: known for value, known in supplied.items() if known.dtype is not None}
    about_stated = np.isin(file.info_value, list(stated)) if stated else np.zeros(len(lengths), np.bool_)
    for info in np.flatnonzero((file.info_value >= 0) & (about_stated | (lengths > _VECTOR))).tolist():
        value = int(file.info_value[info])
        if about_stated[info]:
            yield info, value, _hiding(stated[value])
        else:
            dtype, shape = read_type(file.data, int(file.info_type_begin[info]), int(file.info_type_end[info]))
            yield info, value, encode_tensor_type(dtype, _hide(shape))
    for value in stated.keys() - file.info_value[about_stated].tolist():
        yield -1, value, _hiding(stated[value])


def _hiding(stated: ValueType) -> bytes:
    assert stated.dtype is not None
    return encode_tensor_type(onnx_dtype_of(stated.dtype), _hide(stated.shape))


def _hide(shape: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int) or shape[0] <= _VECTOR:
        return shape
    return (f"{_HIDDEN}{shape[0]}",)
