"""Tensors with external data in the attributes of nodes and in functions, which the index does not list.

They are rare, so only the nodes and functions that `find_locations` finds are parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import raise_out_of_memory
from .constants import raw_size
from .data_file import DataFile
from .external import ExternalFiles, Location, parse_location
from .rows import Rows

if TYPE_CHECKING:
    import onnx

__all__ = ["NestedTensors", "embed", "external_attributes"]

_EXTERNAL = 1  # TensorProto.DataLocation


class NestedTensors:
    """Nodes (of the file) and functions whose external data were embedded or moved to a data file. Usually empty."""

    def __init__(self, model: Rows, data_file: DataFile | None) -> None:
        self._model = model
        self._data_file = data_file
        file = model.file
        nodes, functions = file.external_candidates
        self.nodes: Mapping[int, onnx.NodeProto] = {}
        self.functions: Mapping[int, onnx.FunctionProto] = {}
        if not (nodes or functions):
            return
        import onnx

        selected = np.intersect1d(np.array(nodes, np.int32), model.file_nodes).tolist()
        changed_nodes, changed_functions = {}, {}
        for number in selected:
            where = file.describe_node(number)
            node = self._parse(onnx.NodeProto, file.node_body(number), where)
            if self._place_all([node], where):
                changed_nodes[number] = node
        for number in functions:
            where = f"function {'::'.join(file.functions[number])}"
            body = file.data[int(file.function_begin[number]) : int(file.function_end[number])]
            function = self._parse(onnx.FunctionProto, body, where)
            if self._place_all(function.node, where):
                changed_functions[number] = function
        self.nodes, self.functions = changed_nodes, changed_functions

    @property
    def any(self) -> bool:
        return bool(self.nodes or self.functions)

    def _parse(self, kind: Any, body: memoryview, where: str) -> Any:
        try:
            return kind.FromString(bytes(body))
        except Exception as error:  # protobuf's DecodeError; naming it would require importing protobuf
            raise_out_of_memory(error)
            raise self._model.file.error(f"{where}: cannot be parsed: {error}") from error

    def _place_all(self, nodes: Any, where: str) -> bool:
        """Embed or move the external data of all tensors in these nodes. Returns whether there were any."""
        any_external = False
        for tensor in _tensors(nodes):
            if tensor.data_location == _EXTERNAL:
                any_external = True
                try:
                    self._place(tensor)
                except ValueError as error:
                    raise self._model.file.error(f"{where}: tensor {tensor.name!r}: {error}") from error
        return any_external

    def _place(self, tensor: onnx.TensorProto) -> None:
        location, size = _location(tensor)
        if self._data_file is None or size < self._data_file.at_least:
            embed(tensor, self._model.constants.external)
            return
        del tensor.external_data[:]
        tensor.ClearField("data_location")
        tensor.MergeFromString(self._data_file.place(location, size))


def embed(tensor: onnx.TensorProto, external: ExternalFiles) -> None:
    """Read a tensor's external data into it. Raises ValueError if they cannot be read."""
    location, size = _location(tensor)
    tensor.raw_data = bytes(external.read(location, size))
    del tensor.external_data[:]
    tensor.ClearField("data_location")


def external_attributes(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    """The tensors with external data in the attributes of a node, without those in its nested graphs."""
    for attribute in node.attribute:
        tensors = [attribute.t, *attribute.tensors]
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            tensors += (sparse.values, sparse.indices)
        yield from (tensor for tensor in tensors if tensor.data_location == _EXTERNAL)


def _location(tensor: onnx.TensorProto) -> tuple[Location, int]:
    """The location and the size in B of a tensor's data. Raises ValueError if they are invalid."""
    location = parse_location([(entry.key, entry.value) for entry in tensor.external_data])
    dims = tuple(tensor.dims)
    if any(dim < 0 for dim in dims):
        raise ValueError(f"shape {list(dims)} has a negative dim")
    size = raw_size(tensor.data_type, dims)
    ExternalFiles.check_length(location, size)
    return location, size


def _tensors(nodes: Any) -> Iterator[onnx.TensorProto]:
    """All tensors in the attributes of nodes, including nested graphs."""
    pending = list(nodes)
    while pending:
        for attribute in pending.pop().attribute:
            yield attribute.t
            yield from attribute.tensors
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            for graph in (attribute.g, *attribute.graphs):
                yield from graph.initializer
                for sparse in graph.sparse_initializer:
                    yield from (sparse.values, sparse.indices)
                pending += graph.node
