"""The skeleton of a model for shape inference: nodes, types, and the constants on which shapes may depend.

Constants of up to 1 KiB stay, because shapes can be computed from them. Of floating-point constants, only scalars
(limits of `Range`) and short vectors (scales of `Resize`) stay. All other constants become graph inputs of their type.
Values get short names (`_core/onnx/skeleton.h`); `OnnxIndex.values_in_answer` maps them back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .._onnx import read_type, vector_lengths
from ..errors import ModelError, raise_out_of_memory
from .constants import Constants
from .file import ModelFile
from .types import Dim, ValueType, onnx_dtype_of
from .wire import encode_field, encode_number, encode_tensor_type, encode_value_info, varint

__all__ = ["SPARSE", "has_negative_sizes", "hidden_length", "hide", "other_infos", "skeleton_of"]

_GRAPH, _OPSET, _FUNCTION = 7, 8, 25  # of ModelProto
_INITIALIZER, _INPUT, _VALUE_INFO = 5, 11, 13  # of GraphProto

_CONSTANT_BYTES = 1024  # the maximum size of a constant that stays, in B
_MOST_FLOATS = 16  # elements of a vector that stays: roi of Resize, two for each of up to eight axes
_FLOATS = (1, 10, 11, 16)  # float32, float16, float64, bfloat16

# Data propagation, which follows shapes computed by nodes, treats every vector of known length as a shape and creates a
# dim per element. This takes time for every bias, and gigabytes for a hostile length. Longer lengths are therefore
# replaced by symbols.
_VECTOR = 256
_HIDDEN = "hetero hidden length "

_AS_INPUT, _AS_IT_IS, _LEFT_OUT = 0, 1, 2  # of OnnxIndex.skeleton
_EXTERNAL, SPARSE = 3, 4  # constant_kind
_SHORT = "\x01"  # prefix of short names
_NEGATIVE_SIZE = re.compile(
    rb"\x08[\x80-\xff]{9}\x01"
)  # dim_value of TensorShapeProto.Dimension; also matches other data


def skeleton_of(
    file: ModelFile,
    constants: Constants,
    supplied: Mapping[int, ValueType],
    *,
    with_data: bool,
    functions: Sequence[bytes] = (),
) -> bytes | None:
    """An encoded ModelProto for inference; None if a name of the model could be mistaken for a short name.

    ``supplied``: types that replace those in the file. ``with_data``: False makes all constants inputs. ``functions``:
    encoded FunctionProtos to add.
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

    # onnx ignores the data of a constant if its info has no shape, and then takes a step of Slice for 1. Before IR
    # version 4, constants must be inputs.
    has_data = np.zeros(len(file.value_producer) + 1, np.bool_)  # the last one is for names of no value, which are -1
    has_data[file.constant_value[kept]] = True
    is_needed = ~has_data[file.info_value] | ((file.info_section == _INPUT) & (file.ir_version < 4))
    infos = ((file.info_value >= 0) & is_needed).astype(np.uint8)
    for info, value, type_message in other_infos(file, supplied):
        section = _VALUE_INFO if info < 0 else int(file.info_section[info])
        more.append(encode_field(section, encode_value_info(name(value), type_message)))
        if info >= 0:
            infos[info] = 0
    graph = file.index.skeleton(choice, infos, keeps_name, _VECTOR, _HIDDEN.encode())
    if has_negative_sizes(graph):
        graph = _without_negative_sizes(graph)
    header = (file.data[start:end] for start, end in zip(file.header_start, file.header_end, strict=True))
    size = len(graph) + sum(map(len, more))
    # The file may import ONNX's domain as "ai.onnx", which the nodes of the skeleton name "", or may omit an import.
    opsets = (
        encode_field(_OPSET, encode_field(1, domain.encode()) + encode_number(2, version))
        for domain, version in file.opsets.items()
    )
    described = (encode_field(_FUNCTION, function) for function in functions)
    return b"".join([*header, *opsets, *described, varint(_GRAPH << 3 | 2), varint(size), graph, *more])


def has_negative_sizes(encoded: bytes) -> bool:
    """Whether an encoded message may have negative sizes."""
    return _NEGATIVE_SIZE.search(encoded) is not None


def _without_negative_sizes(encoded: bytes) -> bytes:
    """A GraphProto in which all negative sizes, also those of nested graphs, are unknown sizes, which exporters mean by
    them. onnx would compute with them as with other sizes."""
    import onnx

    whole = onnx.GraphProto.FromString(encoded)
    graphs = [whole]
    for graph in graphs:  # grows
        types = [info.type for info in (*graph.input, *graph.output, *graph.value_info)]
        for each in types:  # grows
            types += [
                inner.elem_type for inner in (each.sequence_type, each.optional_type) if inner.HasField("elem_type")
            ]
            for dim in each.tensor_type.shape.dim:
                if dim.dim_value < 0:
                    dim.Clear()
        for attribute in (attribute for node in graph.node for attribute in node.attribute):
            graphs += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
    return bytes(whole.SerializeToString())


def hidden_length(dim: Dim) -> Dim:
    """A dim of an inferred type, with a hidden length restored."""
    return int(dim.removeprefix(_HIDDEN)) if isinstance(dim, str) and dim.startswith(_HIDDEN) else dim


def _kept(file: ModelFile) -> NDArray[np.bool_]:
    """Which constants stay, judged by their size in the file, which includes the names of Constant nodes."""
    size = file.constant_end - file.constant_start
    rank = np.diff(file.constant_dims_indptr)
    length = np.where(rank == 0, 1, _MOST_FLOATS + 1)
    length[rank == 1] = file.constant_dims[file.constant_dims_indptr[:-1][rank == 1]]
    is_float = np.isin(file.constant_dtype, _FLOATS)
    small = (size <= _CONSTANT_BYTES) & (~is_float | (length <= _MOST_FLOATS))
    return np.asarray(small & (file.constant_kind != SPARSE))


def _small_data(constants: Constants, number: int) -> bytes | None:
    """The data of an external tensor; None if they are large or cannot be read."""
    try:
        return bytes(constants.raw(number)) if constants.nbytes(number) <= _CONSTANT_BYTES else None
    except ModelError as error:
        raise_out_of_memory(error)
        return None  # inference can do with the type alone


def other_infos(file: ModelFile, supplied: Mapping[int, ValueType]) -> Iterator[tuple[int, int, bytes]]:
    """Types that differ from those in the file: number of the info in the file (or -1), value, TypeProto."""
    lengths = vector_lengths(file.data, file.info_type_begin, file.info_type_end)
    stated = {value: known for value, known in supplied.items() if known.dtype is not None}
    about_stated = np.isin(file.info_value, list(stated)) if stated else np.zeros(len(lengths), np.bool_)
    for info in np.flatnonzero((file.info_value >= 0) & (about_stated | (lengths > _VECTOR))).tolist():
        value = int(file.info_value[info])
        if about_stated[info]:
            yield info, value, _hiding(stated[value])
        else:
            dtype, shape = read_type(file.data, int(file.info_type_begin[info]), int(file.info_type_end[info]))
            yield info, value, encode_tensor_type(dtype, hide(shape))
    for value in stated.keys() - file.info_value[about_stated].tolist():
        yield -1, value, _hiding(stated[value])


def _hiding(stated: ValueType) -> bytes:
    """A TypeProto with a long length hidden."""
    assert stated.dtype is not None
    return encode_tensor_type(onnx_dtype_of(stated.dtype), hide(stated.shape))


def hide(shape: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    """The shape with a long length hidden; see `hidden_length`."""
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int) or shape[0] <= _VECTOR:
        return shape
    return (f"{_HIDDEN}{shape[0]}",)
