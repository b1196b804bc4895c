"""A model as ONNX bytes: ranges of its file joined, with new messages only where the graph was cut.

Nothing is parsed and weights are not copied before the bytes are joined. Chosen nodes come first, in topological
order, Constant nodes before all others; then initializers, graph inputs, outputs and value infos.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from .._onnx import read_type, vector_lengths
from ..errors import ModelError
from .types import Dim
from .wire import encode_field, encode_number, encode_string_entry, encode_tensor_type, encode_value_info, varint

if TYPE_CHECKING:
    from .model import Model

__all__ = ["hidden_length", "model_parts"]

Part = bytes | memoryview

# Fields of GraphProto
_NODE, _NAME, _INITIALIZER, _INPUT, _OUTPUT, _VALUE_INFO, _SPARSE_INITIALIZER = 1, 2, 5, 11, 12, 13, 15
_GRAPH = 7  # of ModelProto
_MAX_MESSAGE = 2**31 - 1  # bytes of one protobuf message

# constant_source of the index
_HIDDEN = "hetero hidden length "  # in place of the length of a long vector

_FROM_INITIALIZER, _FROM_SPARSE, _FROM_NODE = 0, 1, 2


def model_parts(model: Model, max_constant_bytes: int | None = None, max_vector: int | None = None) -> list[Part]:
    """The pieces of a ModelProto.

    With ``max_constant_bytes``, constants encoded in more bytes than that become graph inputs of their type. External
    data is embedded. With ``max_vector`` (for a whole file only), longer lengths of vectors are stated as symbols, to
    be read by `hidden_length`. `ModelError` if data cannot be had, or the whole would pass protobuf's 2 GiB.
    """
    file = model.file
    writer = _Writer(model, max_constant_bytes, max_vector)
    if model.is_whole_file and file.index.in_order and model.stated_affinity is None and not writer.changes_anything:
        return [file.data]
    graph = list(writer.graph())
    size = sum(map(len, graph))
    header = list(_ranges(file.data, file.header_start, file.header_end))
    if size + sum(map(len, header)) > _MAX_MESSAGE:
        raise file.error(
            f"the model takes {size} bytes with its weights inside, and one ONNX file holds at most {_MAX_MESSAGE}"
        )
    return [*header, varint(_GRAPH << 3 | 2) + varint(size), *graph]


def hidden_length(dim: Dim) -> Dim:
    """A dim of a model written with ``max_vector``, as it was before."""
    return int(dim.removeprefix(_HIDDEN)) if isinstance(dim, str) and dim.startswith(_HIDDEN) else dim


def _ranges(data: memoryview, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterator[memoryview]:
    """Slices of ``data``, those that touch joined into one."""
    if not len(starts):
        return
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    for start, end in zip(
        starts[np.concatenate(([0], breaks))].tolist(), ends[np.concatenate((breaks - 1, [-1]))].tolist(), strict=True
    ):
        yield data[start:end]


class _Writer:
    """The fields of one model's GraphProto."""

    def __init__(self, model: Model, max_constant_bytes: int | None, max_vector: int | None) -> None:
        self._model = model
        self._file = file = model.file
        used = np.sort(model.file_constants)
        kept = np.ones(len(used), np.bool_)
        if max_constant_bytes is not None:
            kept = file.constant_end[used] - file.constant_start[used] <= max_constant_bytes
        external = file.constant_kind[used] == 3
        self._embedded: dict[int, Part] = {}
        for i in np.flatnonzero(external & kept).tolist():
            number = int(used[i])
            if max_constant_bytes is None:
                self._embedded[number] = model.constants.raw(number)
                continue
            try:
                kept[i] = model.constants.nbytes(number) <= max_constant_bytes
                if kept[i]:
                    self._embedded[number] = model.constants.raw(number)
            except ModelError:
                kept[i] = False  # its type is all that a skeleton needs
        self._constants = used[kept]
        self._as_inputs = used[~kept]
        self._max_vector = max_vector
        self._lengths = np.full(len(file.info_value), -1, np.int64)
        if max_vector is not None:
            self._lengths = vector_lengths(file.data, file.info_type_begin, file.info_type_end)
            self._lengths[self._lengths <= max_vector] = -1
        self.changes_anything = bool(len(self._as_inputs) or self._embedded or (self._lengths >= 0).any())

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
            yield from _ranges(file.data, file.rest_start, file.rest_end)
            return
        for field, values in ((_INPUT, model.input_ids), (_OUTPUT, model.output_ids)):
            for value in values:
                info = encode_value_info(model.value_name(value), model.type_message(value))
                yield encode_field(field, info)
            if field == _INPUT:
                yield from self._constant_inputs(set())
        inside = np.ones(model.num_values, np.bool_)
        inside[[*model.input_ids, *model.output_ids]] = False
        declared = file.value_info[model.file_values[inside]]
        declared = np.sort(declared[declared >= 0])
        declared = declared[file.info_section[declared] == _VALUE_INFO]
        yield from _ranges(file.data, file.info_start[declared], file.info_end[declared])

    def _infos(self, section: int) -> Iterator[Part]:
        """The graph inputs, outputs or value infos of the whole file."""
        file = self._file
        chosen = file.info_section == section
        infos = np.flatnonzero(chosen & (self._lengths < 0))
        yield from _ranges(file.data, file.info_start[infos], file.info_end[infos])
        for info in np.flatnonzero(chosen & (self._lengths >= 0)).tolist():
            value = int(file.info_value[info])
            if value < 0:
                continue  # about nothing in the graph
            dtype, _ = read_type(file.data, int(file.info_type_begin[info]), int(file.info_type_end[info]))
            hidden = encode_tensor_type(dtype, (f"{_HIDDEN}{self._lengths[info]}",))
            yield encode_field(section, encode_value_info(file.index.value_name(value), hidden))

    def _nodes(self) -> Iterator[Part]:
        file, nodes = self._file, self._model.file_nodes
        affinity = self._model.stated_affinity
        if affinity is None:
            yield from _ranges(file.data, file.node_start[nodes], file.node_end[nodes])
            return
        for index, node in enumerate(nodes.tolist()):
            pieces = list(self._without_affinity(node))
            device = affinity.get(self._model.key_of(index))
            if device is not None:
                pieces.append(encode_field(9, encode_string_entry("affinity", device)))
            yield varint(_NODE << 3 | 2) + varint(sum(map(len, pieces)))
            yield from pieces

    def _without_affinity(self, node: int) -> Iterator[Part]:
        """A node's body but for the affinities stated in it."""
        file = self._file
        at, end = int(file.node_start[node] + file.node_header[node]), int(file.node_end[node])
        # Sorting may have mixed up the nodes, but entries of one node stay in file order.
        for entry in np.flatnonzero(file.affinity_node == node).tolist() if len(file.affinity_node) else ():
            yield file.data[at : int(file.affinity_start[entry])]
            at = int(file.affinity_end[entry])
        yield file.data[at:end]

    def _constants_from(self, source: int) -> Iterator[Part]:
        file = self._file
        chosen = self._constants[file.constant_source[self._constants] == source]
        if self._embedded:
            chosen = chosen[~np.isin(chosen, list(self._embedded))]
        yield from _ranges(file.data, file.constant_start[chosen], file.constant_end[chosen])
        if source == _FROM_INITIALIZER:
            for number, raw in self._embedded.items():
                yield from self._embed(number, raw)

    def _embed(self, number: int, raw: Part) -> Iterator[Part]:
        """An initializer with external data put into raw_data; also in place of a Constant node."""
        file = self._file
        name = file.index.value_name(int(file.constant_value[number])).encode()
        head = b"".join(encode_number(1, dim) for dim in self._model.constants.dims(number))
        head += encode_number(2, int(file.constant_dtype[number])) + encode_field(8, name)
        head += varint(9 << 3 | 2) + varint(len(raw))
        yield varint(_INITIALIZER << 3 | 2) + varint(len(head) + len(raw)) + head
        yield raw

    def _constant_inputs(self, listed: set[int]) -> Iterator[Part]:
        """Graph inputs for constants left out, and before IR version 4, which demands it, for all initializers.
        ``listed``: values of the file that are inputs already."""
        file = self._file
        numbers = self._as_inputs.tolist()
        if file.ir_version < 4:
            numbers += self._constants[file.constant_source[self._constants] != _FROM_NODE].tolist()
            numbers += [number for number in self._embedded if file.constant_source[number] == _FROM_NODE]
        for number in numbers:
            value = int(file.constant_value[number])
            if value in listed:
                continue
            shape: tuple[Dim, ...] = self._model.constants.dims(number)
            if self._max_vector is not None and len(shape) == 1 and cast("int", shape[0]) > self._max_vector:
                shape = (f"{_HIDDEN}{shape[0]}",)
            stated = encode_tensor_type(int(file.constant_dtype[number]), shape)
            yield encode_field(_INPUT, encode_value_info(file.index.value_name(value), stated))
