"""Writes a model as ONNX bytes: ranges of its file, with new messages only where the graph was cut.

Nothing is parsed, and weights are copied only when the ranges are joined. Constant nodes come first, then the other
nodes in topological order, initializers, graph inputs, graph outputs and value infos.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .._onnx import read_fields
from ..errors import ModelError, raise_out_of_memory
from .data_file import DataFile
from .nested import NestedTensors
from .rows import Rows
from .types import ValueType, onnx_dtype_of
from .wire import encode_field, encode_number, encode_string_entry, encode_tensor_type, encode_value_info, varint

__all__ = ["edited_parts", "encode_lent_tensor", "header_of", "model_parts", "with_graph"]

Part = bytes | memoryview

# Fields of GraphProto
_NODE, _NAME, _INITIALIZER, _INPUT, _OUTPUT, _VALUE_INFO, _SPARSE_INITIALIZER = 1, 2, 5, 11, 12, 13, 15
_GRAPH, _OPSET = 7, 8  # of ModelProto
_DOC_STRING, _METADATA = 12, 16  # of TensorProto
_MAX_MESSAGE = 2**31 - 1  # bytes of one protobuf message

_JOINED = 1 << 16  # size in B of the parts into which rewritten nodes are joined

# Fields of a TensorProto whose data is lent: external, at a location that does not exist and is never read.
_LENT = encode_field(13, encode_string_entry("location", "lent")) + encode_number(14, 1)

# constant_source of the index
_FROM_INITIALIZER, _FROM_SPARSE, _FROM_NODE = 0, 1, 2


class _Types(Protocol):
    """The part of `ValueTypes` that the writer uses. Values are ids of the file."""

    @property
    def supplied(self) -> Mapping[int, ValueType]: ...
    def message_of(self, value: int) -> bytes: ...


def model_parts(
    model: Rows,
    types: _Types,
    max_constant_bytes: int | None = None,
    data_file: DataFile | None = None,
    lent: Iterable[int] = (),
    with_keys: bool = False,
) -> list[Part]:
    """The parts of an encoded ModelProto.

    ``max_constant_bytes``: constants with a larger encoding become graph inputs of their type. ``data_file``: receives
    tensors of at least its minimum size; it is complete on return. Other external data are embedded. ``lent``: the
    file's numbers of constants whose data are omitted; they become external tensors at a location that does not exist.
    ``with_keys``: name the nodes by their keys.

    Raises `ModelError` if data cannot be read, or if the result would exceed protobuf's 2 GiB.
    """
    file = model.file
    writer = _Writer(model, types, max_constant_bytes, data_file, None, lent, with_keys)
    if model.is_whole_file and file.index.in_order and model.stated_affinity is None and not writer.changes_anything:
        return [file.data]
    graph = list(writer.graph())
    header = b"".join(writer.header())
    size = len(header) + sum(map(len, graph))
    if size > _MAX_MESSAGE:
        raise file.error(
            f"the model with its weights takes {size} bytes, but an ONNX file can have at most {_MAX_MESSAGE}: "
            "save it with the weights in a separate file"
        )
    return with_graph(header, graph)


def edited_parts(
    model: Rows,
    types: _Types,
    header: bytes,
    replaced: Mapping[int, Sequence[bytes]],
    fields: Sequence[bytes],
    lent: Iterable[int],
) -> list[Part]:
    """The parts of an encoded ModelProto with some nodes replaced.

    ``header``: the encoded ModelProto without its graph; see `header_of`. ``replaced``: node -> encoded NodeProtos.
    ``fields``: encoded fields of the graph to add. ``lent``: the file's numbers of initializers whose data are
    omitted, for `Constants.borrow`. External data stay external. Stated affinities are omitted.
    """
    graph = list(_Writer(model, types, None, None, replaced, lent).graph())
    graph += fields
    return with_graph(header, graph)


def encode_lent_tensor(name: str, onnx_dtype: int, dims: Sequence[int]) -> bytes:
    """A TensorProto whose data are lent by `Constants.borrow`."""
    head = b"".join(encode_number(1, dim) for dim in dims) + encode_number(2, onnx_dtype)
    return head + encode_field(8, name.encode()) + _LENT


def header_of(model: Rows) -> bytes:
    """The encoded ModelProto without its graph: versions, operator sets, functions, metadata."""
    file = model.file
    return b"".join(_ranges(file.data, file.header_start, file.header_end))


def with_graph(header: bytes, graph: Sequence[Part]) -> list[Part]:
    """The parts of a ModelProto. ``header``: see `header_of`. ``graph``: the parts of its GraphProto.

    The graph precedes the operator sets, as in files that protobuf writes: OpenVINO rejects a model in memory that has
    several operator sets before its graph."""
    at = len(header)
    opsets = read_fields(header, 0, at, _OPSET)
    if opsets:
        begin, end = opsets[0]
        start = encode_field(_OPSET, header[begin:end])
        if header[end - len(start) : end] == start:  # otherwise the length is encoded in an unusual way
            at = end - len(start)
    head = varint(_GRAPH << 3 | 2) + varint(sum(map(len, graph)))
    return [part for part in (header[:at], head, *graph, header[at:]) if part]


def _ranges(data: memoryview, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterator[memoryview]:
    """Slices of ``data``. Adjacent ranges are merged."""
    if not len(starts):
        return
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    for start, end in zip(
        starts[np.concatenate(([0], breaks))].tolist(), ends[np.concatenate((breaks - 1, [-1]))].tolist(), strict=True
    ):
        yield data[start:end]


class _Writer:
    """The fields of one model's ModelProto and GraphProto."""

    def __init__(
        self,
        model: Rows,
        types: _Types,
        max_constant_bytes: int | None,
        data_file: DataFile | None,
        replaced: Mapping[int, Sequence[bytes]] | None = None,
        lent: Iterable[int] = (),
        with_keys: bool = False,
    ) -> None:
        """``replaced``, ``lent``: see `edited_parts`. ``with_keys``: see `model_parts`."""
        self._model = model
        self._replaced = replaced
        self._types = types
        self._file = file = model.file
        used = np.sort(model.file_constants)
        kept = np.ones(len(used), np.bool_)
        if max_constant_bytes is not None:
            kept = file.constant_end[used] - file.constant_start[used] <= max_constant_bytes
        self._moved: dict[int, tuple[bytes, Part]] = dict.fromkeys(lent, (_LENT, b""))
        moves = kept if replaced is None else np.zeros(len(used), np.bool_)
        for i in np.flatnonzero((file.constant_kind[used] == 3) & moves).tolist():
            number = int(used[i])
            if number in self._moved:
                continue
            try:
                if max_constant_bytes is None:
                    self._moved[number] = self._move_external(number, data_file)
                elif model.constants.nbytes(number) <= max_constant_bytes:
                    self._moved[number] = _inside(model.constants.raw(number))
                else:
                    kept[i] = False
            except ModelError as error:
                raise_out_of_memory(error)
                if max_constant_bytes is None:
                    raise
                kept[i] = False  # a skeleton needs only its type
        if data_file is not None:
            large = file.constant_data_end[used] - file.constant_data_begin[used] >= data_file.at_least
            for number in used[large & (file.constant_kind[used] <= 1)].tolist():
                self._moved[number] = data_file.place(model.constants.raw(number)), b""
        self._constants = used[kept]
        self._as_inputs = used[~kept]
        # A part looks up only its own values, so that many parts of a large model take linear time.
        supplied = types.supplied
        here = (
            supplied
            if model.is_whole_file or not supplied
            else filter(supplied.__contains__, model.file_values.tolist())
        )
        self._supplied = {value: supplied[value] for value in here if supplied[value].dtype is not None}
        as_it_is = max_constant_bytes is not None or replaced is not None
        self._nested = None if as_it_is else NestedTensors(model, data_file)
        self._names: dict[int, str] = {}  # node -> its new name
        if with_keys:
            names, text = file.index.arrays["node_name"], file.index.text
            for node, (file_node, key) in enumerate(zip(model.file_nodes.tolist(), model.keys, strict=True)):
                if text(int(names[file_node])) != key:
                    self._names[node] = key
        self.changes_anything = bool(
            self._names
            or len(self._as_inputs)
            or self._moved
            or self._supplied
            or (self._nested is not None and self._nested.any)
        )

    def header(self) -> Iterator[Part]:
        """The fields of the ModelProto other than the graph."""
        file = self._file
        parts = list(_ranges(file.data, file.header_start, file.header_end))
        if self._nested is None or not self._nested.functions:
            yield from parts
            return
        import onnx

        header = onnx.ModelProto.FromString(b"".join(parts))
        for number, function in self._nested.functions.items():
            header.functions[number].CopyFrom(function)
        yield header.SerializeToString()

    def graph(self) -> Iterator[Part]:
        file, model = self._file, self._model
        yield from self._constants_from(_FROM_NODE)
        yield from self._nodes()
        yield encode_field(_NAME, (model.name or "graph").encode())
        yield from self._constants_from(_FROM_INITIALIZER)
        yield from self._constants_from(_FROM_SPARSE)
        if model.is_whole_file:
            yield from self._infos(_INPUT)
            yield from self._constant_inputs(set(file.info_value[file.info_section == _INPUT].tolist()))
            yield from self._infos(_OUTPUT)
            yield from self._infos(_VALUE_INFO)
            yield from self._supplied_infos(set(file.info_value.tolist()))
            yield from _ranges(file.data, file.rest_start, file.rest_end)
            return
        boundary = [model.file_value(value) for value in (*model.input_ids, *model.output_ids)]
        for field, values in (
            (_INPUT, boundary[: len(model.input_ids)]),
            (_OUTPUT, boundary[len(model.input_ids) :]),
        ):
            for value in values:
                yield encode_field(
                    field, encode_value_info(file.index.value_name(value), self._types.message_of(value))
                )
            if field == _INPUT:
                yield from self._constant_inputs(set())
        inside = np.ones(model.num_values, np.bool_)
        inside[[*model.input_ids, *model.output_ids]] = False
        declared = file.value_info[model.file_values[inside]]
        declared = np.sort(declared[declared >= 0])
        declared = declared[file.info_section[declared] == _VALUE_INFO]
        if self._supplied:
            declared = declared[~np.isin(file.info_value[declared], list(self._supplied))]
        yield from _ranges(file.data, file.info_start[declared], file.info_end[declared])
        yield from self._supplied_infos(set(boundary))

    def _infos(self, section: int) -> Iterator[Part]:
        """The graph inputs, outputs or value infos of the whole file."""
        file = self._file
        chosen = file.info_section == section
        as_it_is = np.ones(len(chosen), np.bool_)
        if self._supplied:
            as_it_is = ~np.isin(file.info_value, list(self._supplied))
        changed = np.flatnonzero(chosen)
        if section == _VALUE_INFO or as_it_is[chosen].all():  # the order of inputs and outputs matters
            infos = np.flatnonzero(chosen & as_it_is)
            yield from _ranges(file.data, file.info_start[infos], file.info_end[infos])
            changed = np.flatnonzero(chosen & ~as_it_is)
        for info in changed.tolist():
            value = int(file.info_value[info])
            if as_it_is[info]:
                yield file.data[int(file.info_start[info]) : int(file.info_end[info])]
                continue
            message = _type_message(self._supplied[value])
            yield encode_field(section, encode_value_info(file.index.value_name(value), message))

    def _supplied_infos(self, listed: set[int]) -> Iterator[Part]:
        """Value infos for types that the user supplied. ``listed``: values of the file that already have one."""
        for value, stated in self._supplied.items():
            if value not in listed:
                info = encode_value_info(self._file.index.value_name(value), _type_message(stated))
                yield encode_field(_VALUE_INFO, info)

    def _nodes(self) -> Iterator[Part]:
        file, nodes = self._file, self._model.file_nodes
        if self._replaced is not None:
            at = 0
            for node in sorted(self._replaced):
                yield from _ranges(file.data, file.node_start[nodes[at:node]], file.node_end[nodes[at:node]])
                yield from (encode_field(_NODE, body) for body in self._replaced[node])
                at = node + 1
            yield from _ranges(file.data, file.node_start[nodes[at:]], file.node_end[nodes[at:]])
            return
        affinity = self._model.stated_affinity
        changed = {} if self._nested is None else self._nested.nodes
        if affinity is None and not self._names:
            starts, ends = file.node_start[nodes], file.node_end[nodes]
            at = 0
            for index in np.flatnonzero(np.isin(nodes, list(changed))).tolist() if changed else ():
                yield from _ranges(file.data, starts[at:index], ends[at:index])
                yield encode_field(_NODE, changed[int(nodes[index])].SerializeToString())
                at = index + 1
            yield from _ranges(file.data, starts[at:], ends[at:])
            return
        joined = bytearray()
        for index, node in enumerate(nodes.tolist()):
            if affinity is None:
                pieces = [changed[node].SerializeToString() if node in changed else self._body(node)]
            else:
                pieces = list(self._without_affinity(node))
                device = affinity.get(self._model.key_of(index))
                if device is not None:
                    pieces.append(encode_field(9, encode_string_entry("affinity", device)))
            if index in self._names:  # the last of several names holds
                pieces.append(encode_field(3, self._names[index].encode()))
            joined += varint(_NODE << 3 | 2) + varint(sum(map(len, pieces)))
            for piece in pieces:
                joined += piece
            if len(joined) >= _JOINED:
                yield bytes(joined)
                joined.clear()
        yield bytes(joined)

    def _body(self, node: int) -> Part:
        file = self._file
        return file.data[int(file.node_start[node] + file.node_header[node]) : int(file.node_end[node])]

    def _without_affinity(self, node: int) -> Iterator[Part]:
        """A node's body without the affinities stated in it."""
        file = self._file
        if self._nested is not None and node in self._nested.nodes:
            changed = self._nested.nodes[node]
            kept = [entry for entry in changed.metadata_props if entry.key not in ("affinity", "layer_ann")]
            del changed.metadata_props[:]
            changed.metadata_props.extend(kept)
            yield changed.SerializeToString()
            return
        at, end = int(file.node_start[node] + file.node_header[node]), int(file.node_end[node])
        # The nodes may have been sorted, but the entries of each node are in file order.
        for entry in self._affinities_of.get(node, ()):
            yield file.data[at : int(file.affinity_start[entry])]
            at = int(file.affinity_end[entry])
        yield file.data[at:end]

    @functools.cached_property
    def _affinities_of(self) -> Mapping[int, list[int]]:
        """Node of the file -> numbers of its affinity entries."""
        affinities: dict[int, list[int]] = {}
        for entry, node in enumerate(self._file.affinity_node.tolist()):
            affinities.setdefault(node, []).append(entry)
        return affinities

    def _constants_from(self, source: int) -> Iterator[Part]:
        file = self._file
        chosen = self._constants[file.constant_source[self._constants] == source]
        if self._moved:
            chosen = chosen[~np.isin(chosen, list(self._moved))]
        yield from _ranges(file.data, file.constant_start[chosen], file.constant_end[chosen])
        if source == _FROM_INITIALIZER:
            for number, (place, raw) in self._moved.items():
                yield from self._initializer(number, place, raw)

    def _move_external(self, number: int, data_file: DataFile | None) -> tuple[bytes, Part]:
        constants = self._model.constants
        if constants.is_raw(number):  # borrowed
            raw = constants.raw(number)
            if data_file is None or len(raw) < data_file.at_least:
                return _inside(raw)
            return data_file.place(raw), b""
        location, size = constants.location(number), constants.nbytes(number)
        if data_file is not None and size >= data_file.at_least:
            return data_file.place(location, size), b""
        return _inside(constants.raw(number))

    def _initializer(self, number: int, place: bytes, raw: Part) -> Iterator[Part]:
        """An initializer with data from outside the file, also for a Constant node. ``place``: the fields that describe
        the data. ``raw``: the data, or empty."""
        file = self._file
        name = file.index.value_name(int(file.constant_value[number])).encode()
        head = b"".join(encode_number(1, dim) for dim in self._model.constants.dims(number))
        head += encode_number(2, int(file.constant_dtype[number])) + encode_field(8, name)
        for field in (_DOC_STRING, _METADATA):
            span = int(file.constant_begin[number]), int(file.constant_until[number])
            for begin, end in read_fields(file.data, *span, field):
                head += encode_field(field, bytes(file.data[begin:end]))
        head += place
        yield varint(_INITIALIZER << 3 | 2) + varint(len(head) + len(raw)) + head
        yield raw

    def _constant_inputs(self, listed: set[int]) -> Iterator[Part]:
        """Graph inputs for omitted constants, and for all initializers if the IR version is below 4, which requires it.
        ``listed``: values of the file that are already inputs."""
        file = self._file
        numbers = self._as_inputs.tolist()
        if file.ir_version < 4:
            numbers += self._constants[file.constant_source[self._constants] != _FROM_NODE].tolist()
            numbers += [number for number in self._moved if file.constant_source[number] == _FROM_NODE]
        for number in numbers:
            value = int(file.constant_value[number])
            if value in listed:
                continue
            stated = encode_tensor_type(int(file.constant_dtype[number]), self._model.constants.dims(number))
            yield encode_field(_INPUT, encode_value_info(file.index.value_name(value), stated))


def _type_message(stated: ValueType) -> bytes:
    assert stated.dtype is not None
    return encode_tensor_type(onnx_dtype_of(stated.dtype), stated.shape)


def _inside(raw: memoryview) -> tuple[bytes, memoryview]:
    return varint(9 << 3 | 2) + varint(len(raw)), raw
