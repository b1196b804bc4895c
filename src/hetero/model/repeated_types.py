"""Shape inference of graphs whose nodes repeat: onnx infers one node of each kind.

Nodes are alike if they have the same operator, attributes and number of outputs, and their inputs and outputs have the
same types. Large graphs consist of few kinds, so this takes a tenth of the time of inference of the whole graph.
"""

from __future__ import annotations

import array
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .._onnx import AlikeNodes, attribute_groups
from ..errors import raise_out_of_memory
from .isolation import infer_types
from .rows import Rows
from .skeleton import SPARSE, has_negative_sizes, hide, other_infos
from .types import ValueType
from .wire import encode_field, encode_number, encode_tensor_type, encode_value_info

if TYPE_CHECKING:
    import onnx

    from .constants import Constants
    from .file import ModelFile

__all__ = ["infer_repeated"]

_LEAST_NODES = 4096  # of graphs for which it is tried
_NODES_PER_KIND = 100
"""The least average number of nodes of a kind. Inferring a single node takes up to 100 µs, and inferring a whole graph
5 µs per node. An attempt that fails therefore adds at most a fifth to the time."""

_ATTRIBUTE = 5  # of NodeProto
_NODE, _INPUT, _VALUE_INFO = 1, 11, 13  # of GraphProto
_IR_VERSION, _GRAPH, _OPSET = 1, 7, 8  # of ModelProto
_UNKNOWN = "\0"


class _NotRepeated(Exception):
    """The graph must be inferred as a whole."""


def infer_repeated(
    file: ModelFile, constants: Constants, supplied: Mapping[int, ValueType]
) -> tuple[NDArray[np.int32], list[bytes]] | None:
    """The number of the inferred type of each value, and encoded TypeProtos by number. Empty messages: unknown.

    ``file``: has only operators that `isolation.is_harmless` allows, whose types follow from the types of their inputs.
    ``supplied``: as in `skeleton_of`. None if the graph must be inferred as a whole: if it is small, if its nodes do
    not repeat, or if inference names unknown sizes, since it has a name for each value.
    """
    if len(file.node_op) < _LEAST_NODES or not _is_plain(file):
        return None
    try:
        inference = _Inference(file, constants, supplied)
        inference.run()
    except Exception as error:  # of onnx too: inference of the whole graph decides what follows
        raise_out_of_memory(error)
        return None
    return np.frombuffer(inference.numbers, np.int32), inference.types


def _is_plain(file: ModelFile) -> bool:
    """Whether no value is described twice, and no nested graph reads values of the graph."""
    described = file.info_value[file.info_value >= 0]
    return (
        not len(file.captures)
        and not (file.value_constant[described] >= 0).any()
        and len(np.unique(described)) == len(described)
        and not (file.constant_kind == SPARSE).any()
    )


class _Inference:
    """``numbers``: the number of the type of each value; 0: not looked up, 1: unknown. ``types``: TypeProtos by
    number."""

    def __init__(self, file: ModelFile, constants: Constants, supplied: Mapping[int, ValueType]) -> None:
        self._file = file
        self._constants = constants
        self.types: list[bytes] = [b"", b""]
        self._number_of = {b"": 1}
        self._symbols: list[frozenset[str]] = [frozenset(), frozenset()]  # by number of the type
        numbers = np.zeros(len(file.value_producer), np.int32)
        infos = np.flatnonzero(file.info_value >= 0)
        spans = file.info_type_begin[infos].tolist(), file.info_type_end[infos].tolist()
        for value, begin, end in zip(file.info_value[infos].tolist(), *spans, strict=True):
            numbers[value] = self._number(bytes(file.data[begin:end]))
        for _, value, message in other_infos(file, supplied):
            numbers[value] = self._number(message)
        self.numbers = array.array("i", numbers.tobytes())
        rows = Rows(file, constants)
        self._inputs, self._outputs = rows.node_inputs, rows.node_outputs
        self._head = encode_number(_IR_VERSION, file.ir_version) + b"".join(
            encode_field(_OPSET, encode_field(1, domain.encode()) + encode_number(2, version))
            for domain, version in file.opsets.items()
        )

    def run(self) -> None:
        """Find the type of each value. Raises `_NotRepeated`."""
        file = self._file
        num_nodes = len(file.node_op)
        alike = AlikeNodes(
            np.ones(len(file.op_types), np.uint8),
            file.node_op,
            self._groups(),
            (self._inputs.indptr, self._inputs.values),
            (self._outputs.indptr, self._outputs.values),
            (file.value_constant >= 0).view(np.uint8),
            self.numbers,
            self._look_up,
        )
        kinds, node = 0, -1
        while (node := alike.first_unlike(node + 1)) < num_nodes:
            kinds += 1
            if kinds * _NODES_PER_KIND > num_nodes:
                raise _NotRepeated
            alike.add(node, self._infer(node))

    def _groups(self) -> NDArray[np.int32]:
        """int32[num_nodes]: equal for nodes with equal attributes and equal types that are stated for the outputs."""
        file = self._file
        starts = file.node_start + file.node_header
        attributes = attribute_groups(file.data, starts, file.node_end, _ATTRIBUTE)
        values = self._outputs.values
        stated = np.zeros(len(values), np.bool_)
        stated[values >= 0] = np.frombuffer(self.numbers, np.int32)[values[values >= 0]] > 1
        number_of: dict[tuple[int, ...], int] = {}
        groups = attributes.copy()
        for node in np.unique(np.searchsorted(self._outputs.indptr, np.flatnonzero(stated), "right") - 1).tolist():
            outputs = self._outputs[node].tolist()
            key = (int(attributes[node]), *(self.numbers[value] if value >= 0 else 0 for value in outputs))
            groups[node] = -1 - number_of.setdefault(key, len(number_of))
        return groups

    def _number(self, message: bytes) -> int:
        number = self._number_of.get(message)
        if number is None:
            import onnx

            if has_negative_sizes(message):
                raise _NotRepeated
            number = self._number_of[message] = len(self.types)
            self.types.append(message)
            self._symbols.append(frozenset(_symbols_in(onnx.TypeProto.FromString(message))))
        return number

    def _look_up(self, constant: int) -> None:
        number = int(self._file.value_constant[constant])
        dtype, dims = int(self._file.constant_dtype[number]), self._constants.dims(number)
        self.numbers[constant] = self._number(encode_tensor_type(dtype, hide(dims)))

    def _infer(self, node: int) -> list[int]:
        """The numbers of the types of a node's outputs, which are also recorded; 0: unknown."""
        import onnx

        file = self._file
        start = int(file.node_start[node] + file.node_header[node])
        encoded = bytes(file.data[start : int(file.node_end[node])])
        operator = int(file.node_op[node])
        if file.op_domains[operator] == "":
            proto = onnx.NodeProto.FromString(encoded)
            if proto.domain:  # such as "ai.onnx"
                proto.ClearField("domain")
                encoded = bytes(proto.SerializeToString())
        inputs = {value for value in self._inputs[node].tolist() if value >= 0}
        outputs = self._outputs[node].tolist()
        graph = [encode_field(_NODE, encoded)]
        symbols: set[str] = set()
        for section, values in ((_INPUT, inputs), (_VALUE_INFO, {value for value in outputs if value >= 0})):
            for value in values:
                if not self.numbers[value] and file.value_constant[value] >= 0:
                    self._look_up(value)
                message = self.types[self.numbers[value]]
                symbols |= self._symbols[self.numbers[value]]
                if message:
                    graph.append(encode_field(section, encode_value_info(file.index.value_name(value), message)))
        answer = infer_types(self._head + encode_field(_GRAPH, b"".join(graph)), harmless=True)
        assert answer is not None
        found = {info.name: info.type for info in onnx.ModelProto.FromString(answer).graph.value_info}
        results = []
        for value in outputs:
            type_ = found.get(file.index.value_name(value)) if value >= 0 else None
            number = 0 if type_ is None else self._number(type_.SerializeToString())
            if not symbols.issuperset(self._symbols[number]):
                raise _NotRepeated
            results.append(number)
            if number:
                self.numbers[value] = number
        return results


def _symbols_in(type_: onnx.TypeProto) -> Iterator[str]:
    """The symbols of a type; one that no type has for a size that is unknown, or if it is not a tensor."""
    if type_.WhichOneof("value") != "tensor_type":
        yield _UNKNOWN
    for dim in type_.tensor_type.shape.dim:
        kind = dim.WhichOneof("value")
        if kind != "dim_value":
            yield dim.dim_param if kind else _UNKNOWN
