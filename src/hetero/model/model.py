"""The model that all stages after reading work on: arrays over the file's bytes, and views of nodes on demand."""

from __future__ import annotations

import copy
import functools
import os
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from .._onnx import edges
from ..errors import ModelError, did_you_mean
from ..files import write_atomically
from .constants import Constants
from .extract import Selection, select
from .file import ModelFile
from .inference import ValueTypes
from .types import Port, Ragged, ValueType
from .write import model_parts

if TYPE_CHECKING:
    import onnx

    from ..partition.graph import Graph

__all__ = ["Model", "NodeView", "Nodes"]

_Ids = NDArray[np.int32]
_T = TypeVar("_T", bound=np.generic)

_FROM_NODE = 2  # constant_source of a Constant node
_LAYER_ANNOTATION = 1  # affinity_kind of onnxruntime's "layer_ann"
_MOST_KEYS_TO_GUESS_FROM = 20_000


class NodeView:
    """One node, read from the file when asked. Equal to another view of the same node of the same model."""

    __slots__ = ("_attributes", "_model", "_proto", "index")

    def __init__(self, model: Model, index: int) -> None:
        self._model = model
        self.index = index
        self._proto: onnx.NodeProto | None = None
        self._attributes: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """What the node is called by: its name if unique, else its first output."""
        return self._model.key_of(self.index)

    @property
    def name(self) -> str:
        """The node's name, which may be empty or shared."""
        file = self._model.file
        return file.index.text(int(file.index.arrays["node_name"][self._model.file_node(self.index)]))

    @property
    def op_type(self) -> str:
        """The operator, without its domain."""
        return self._model.file.op_names[self._op]

    @property
    def domain(self) -> str:
        """The operator's domain; "" for ONNX's own."""
        return self._model.file.op_domains[self._op]

    @property
    def opset(self) -> int:
        """The version that the model imports of the operator's domain."""
        return self._model.opsets[self.domain]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values read; "" for an optional one left out."""
        return self._names(self._model.node_inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the values made; "" for an optional one left out."""
        return self._names(self._model.node_outputs)

    @property
    def captures(self) -> tuple[str, ...]:
        """Names that the node's nested graphs read from outside, each once."""
        return self._names(self._model.node_captures)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Name -> value, as `onnx.helper.get_attribute_value` gives it: numbers, bytes, lists, TensorProto, ..."""
        if self._attributes is None:
            attributes: dict[str, Any] = {}
            for attribute in self.proto().attribute:
                if attribute.name in attributes:
                    raise self._error(f"attribute {attribute.name!r} is given twice")
                attributes[attribute.name] = _attribute_value(attribute)
            self._attributes = attributes
        return types.MappingProxyType(self._attributes)

    def proto(self) -> onnx.NodeProto:
        """The parsed NodeProto. Not to be changed."""
        if self._proto is None:
            import onnx

            file = self._model.file
            try:
                self._proto = onnx.NodeProto.FromString(bytes(file.node_body(self._model.file_node(self.index))))
            except Exception as error:  # protobuf's DecodeError, which needs protobuf to be named
                raise self._error(f"cannot be parsed: {error}") from error
        return self._proto

    @property
    def _op(self) -> int:
        return int(self._model.file.node_op[self._model.file_node(self.index)])

    def _names(self, ragged: Ragged) -> tuple[str, ...]:
        name = self._model.value_name
        return tuple(name(value) if value >= 0 else "" for value in ragged[self.index].tolist())

    def _error(self, message: str) -> ModelError:
        return self._model.file.error(f"{self._model.file.describe_node(self._model.file_node(self.index))}: {message}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeView) and (self._model, self.index) == (other._model, other.index)

    def __hash__(self) -> int:
        return hash((self._model, self.index))

    def __repr__(self) -> str:
        return f"<node {self.index} {self.key!r}: {', '.join(self.outputs)} = {self.op_type}({', '.join(self.inputs)})>"


class Nodes(Sequence[NodeView]):
    """The nodes of a model in topological order, as views made on demand."""

    __slots__ = ("_model",)

    def __init__(self, model: Model) -> None:
        self._model = model

    def __len__(self) -> int:
        return self._model.num_nodes

    @overload
    def __getitem__(self, index: int) -> NodeView: ...
    @overload
    def __getitem__(self, index: slice) -> list[NodeView]: ...
    def __getitem__(self, index: int | slice) -> NodeView | list[NodeView]:
        if isinstance(index, slice):
            return [NodeView(self._model, i) for i in range(*index.indices(len(self)))]
        return NodeView(self._model, range(len(self))[index])

    def __iter__(self) -> Iterator[NodeView]:
        return (NodeView(self._model, i) for i in range(len(self)))


class Model:
    """An ONNX model, or a part of one: immutable arrays over the bytes of its file.

    Nodes are numbered 0..n-1 in topological order (the file's, if it is one). ONNX ``Constant`` nodes are no nodes but
    constants, as initializers are; a node with nested graphs is one node. Values, the names of the main graph, are
    numbered too.

    ``node_inputs``, ``node_outputs``, ``node_captures``: `Ragged` over nodes, of value ids; -1 for an absent optional
    one; captures are what nested graphs read from outside. ``producer``: int32[num_values], the node that makes a
    value, -1 for none. ``is_constant``: bool[num_values]. ``op_types``: distinct operators ("Relu", "domain::Op");
    ``op_type_of``: int32[n] into them. ``input_ids``, ``output_ids``: values that the graph takes and gives; inputs
    that have an initializer do not count. All arrays are read-only.

    Made by `read_model`, `extract` and `with_affinity`. Safe to share between threads.
    """

    node_inputs: Ragged
    node_outputs: Ragged
    node_captures: Ragged
    producer: _Ids
    is_constant: NDArray[np.bool_]
    op_types: tuple[str, ...]
    op_type_of: _Ids
    input_ids: tuple[int, ...]
    output_ids: tuple[int, ...]

    def __init__(self, file: ModelFile) -> None:
        """The whole of a file; `read_model` is the way to it."""
        self.file = file
        self.constants = Constants(file)
        self.name = file.index.graph_name
        self._types = ValueTypes(file, self.constants)
        self._whole: Model | None = None
        self._nodes: _Ids | None = None
        self._values: _Ids | None = None
        self._stated_affinity: Mapping[str, str] | None = None
        self.node_inputs = Ragged(file.input_indptr, file.inputs)
        self.node_outputs = Ragged(file.output_indptr, file.outputs)
        self.node_captures = Ragged(file.capture_indptr, file.captures)
        self.producer = file.value_producer
        self.is_constant = _read_only(file.value_constant >= 0)
        self.op_types = file.op_types
        self.op_type_of = file.node_op
        inputs = file.info_value[file.info_section == 11]
        self.input_ids = tuple(inputs[~self.is_constant[inputs]].tolist())
        self.output_ids = tuple(file.info_value[file.info_section == 12].tolist())

    # ---- nodes

    @property
    def num_nodes(self) -> int:
        return len(self.op_type_of)

    @property
    def nodes(self) -> Nodes:
        """Views of the nodes, made when indexed."""
        return Nodes(self)

    def key_of(self, node: int) -> str:
        """The key of a node: its name if that is unique in the file, else the name of its first output."""
        return self.file.keys.key_of(self.file_node(node))

    def find_key(self, key: str) -> int | None:
        """The node of a key, or None if there is no such node."""
        node = self.file.keys.entry_of(key)
        if self._nodes is not None and node >= 0:
            at = int(np.searchsorted(self._nodes, node))
            node = at if at < len(self._nodes) and self._nodes[at] == node else -1
        return node if 0 <= node < self.num_nodes else None

    def index_of(self, key: str) -> int:
        """The node of a key. `ModelError`, with the nearest key, if there is none."""
        node = self.find_key(key)
        if node is None:
            raise self._unknown_key(key)
        return node

    @functools.cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys of all nodes."""
        key_of = self.file.keys.key_of
        return tuple(key_of(node) for node in self.file_nodes.tolist())

    @functools.cached_property
    def constant_keys(self) -> frozenset[str]:
        """The keys of Constant nodes: known, but of no node here."""
        file = self.file
        from_nodes = self.file_constants[file.constant_source[self.file_constants] == _FROM_NODE]
        return frozenset(file.keys.key_of(len(file.node_op) + number) for number in from_nodes.tolist())

    @functools.cached_property
    def graph(self) -> Graph:
        """The data flow between nodes, captures included, each edge once."""
        from ..partition.graph import Graph

        src, dst = edges(
            self.node_inputs.indptr,
            self.node_inputs.values,
            self.node_captures.indptr,
            self.node_captures.values,
            self.producer,
        )
        return Graph.from_edges(src, dst, self.num_nodes)

    # ---- values

    @property
    def num_values(self) -> int:
        return len(self.producer)

    def value_name(self, value: int) -> str:
        return self.file.index.value_name(self._file_value(value))

    def value_id(self, name: str) -> int:
        """The value of a name. `ModelError` if the graph has none."""
        value = self.file.index.value_id(name)
        if self._values is not None and value >= 0:
            at = int(np.searchsorted(self._values, value))
            value = at if at < len(self._values) and self._values[at] == value else -1
        if value < 0:
            raise self.file.error(f"there is no value {name!r} in the graph")
        return value

    def constant(self, value: int) -> NDArray[Any]:
        """A constant's data, read-only; a view of the file where its type and alignment allow."""
        return self.constants.array(self._constant_number(value))

    def constant_type(self, value: int) -> ValueType:
        """A constant's element type and shape, without touching its data."""
        return self.constants.type_of(self._constant_number(value))

    def type_of(self, value: int) -> ValueType:
        """What is known of a value's type: a constant's own, else as declared, else as inferred over the whole file,
        once. Never fails for want of knowledge: unknown parts are None."""
        return self._types.type_of(self._whole or self, self._file_value(value))

    def type_message(self, value: int) -> bytes:
        """`type_of` as an encoded TypeProto, of any kind (sequences too); empty if nothing is known."""
        return self._types.message_of(self._whole or self, self._file_value(value))

    @functools.cached_property
    def inputs(self) -> tuple[Port, ...]:
        """What the model takes, in the graph's order."""
        return tuple(self._port(value) for value in self.input_ids)

    @functools.cached_property
    def outputs(self) -> tuple[Port, ...]:
        """What the model gives, in the graph's order."""
        return tuple(self._port(value) for value in self.output_ids)

    @functools.cached_property
    def read_count(self) -> NDArray[np.int64]:
        """int64[num_values]: how often nodes read a value, captures and the graph's outputs included."""
        outputs = np.array(self.output_ids, np.int32)
        read = np.concatenate((self.node_inputs.values, self.node_captures.values, outputs))
        return _read_only(np.bincount(read[read >= 0], minlength=self.num_values))

    # ---- the file around the graph

    @property
    def path(self) -> str | None:
        """The file, None for bytes."""
        return self.file.path

    @property
    def ir_version(self) -> int:
        return self.file.ir_version

    @property
    def opsets(self) -> Mapping[str, int]:
        """Operator domain -> version; "" is ONNX's own."""
        return self.file.opsets

    @property
    def functions(self) -> tuple[tuple[str, str], ...]:
        """(domain, name) of each model-local function."""
        return self.file.functions

    # ---- affinity

    @functools.cached_property
    def affinity(self) -> Mapping[str, str]:
        """Node key -> device, as stated by `with_affinity`, else in the file: a node's ``metadata_props["affinity"]``,
        or onnxruntime's ``layer_ann`` where that is missing."""
        stated = self._stated_affinity
        if stated is not None:
            if self._nodes is not None:
                kept = set(self.keys)
                stated = {key: device for key, device in stated.items() if key in kept}
            return types.MappingProxyType(dict(stated))
        file = self.file
        found: dict[str, str] = {}
        for annotation in (True, False):  # what comes later wins
            chosen = (file.affinity_kind == _LAYER_ANNOTATION) == annotation
            if self._nodes is not None:
                chosen &= np.isin(file.affinity_node, self._nodes)
            for entry in np.flatnonzero(chosen).tolist():
                device = file.index.text(int(file.affinity_value[entry]))
                if device:
                    found[file.keys.key_of(int(file.affinity_node[entry]))] = device
        return types.MappingProxyType(found)

    def with_affinity(self, affinity: Mapping[str, str]) -> Model:
        """The same model with these devices for these node keys, and none for others. Keys of Constant nodes are
        accepted and mean nothing. `ModelError` names an unknown key."""
        stated: dict[str, str] = {}
        for key, device in affinity.items():
            if not isinstance(device, str) or not device:
                raise self.file.error(f"affinity of {key!r}: expected the name of a device, found {device!r}")
            entry = self.file.keys.entry_of(key)
            if entry >= len(self.file.node_op) and key in self.constant_keys:
                continue
            self.index_of(key)
            stated[key] = device
        model = copy.copy(self)
        model._whole = self._whole or self
        model.__dict__.pop("affinity", None)
        model._stated_affinity = types.MappingProxyType(stated)
        return model

    @property
    def stated_affinity(self) -> Mapping[str, str] | None:
        """What `with_affinity` said, None if it was not called: the file's own affinities hold."""
        return self._stated_affinity

    # ---- parts, and back to bytes

    def extract(self, nodes: Iterable[int] | NDArray[Any], name: str | None = None) -> Model:
        """The model that these nodes make by themselves, over the same bytes: no weights are copied.

        ``nodes``: indices, in any order. Inputs are the values that the nodes read, or their nested graphs capture,
        from outside and that are no constants, in the order of first use; outputs are what other nodes of this model
        read or the graph gives, in the order of production. Constants are cloned. Functions come along.
        """
        chosen = np.array(nodes if isinstance(nodes, np.ndarray) else list(nodes), ndmin=1)
        if chosen.size == 0 or chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise self.file.error(f"extract needs indices of nodes, at least one, found {nodes!r}")
        chosen = np.unique(chosen)
        if chosen[0] < 0 or chosen[-1] >= self.num_nodes:
            raise self.file.error(f"extract needs nodes 0..{self.num_nodes - 1}, found {chosen[0]}..{chosen[-1]}")
        return self._part(select(self, chosen.astype(np.int32)), self.name if name is None else name)

    def to_bytes(self, max_constant_bytes: int | None = None) -> bytes:
        """The model as an encoded ModelProto, by joining ranges of the file; external data is put inside.

        With ``max_constant_bytes``: a skeleton in which constants encoded in more bytes than that are graph inputs.
        `ModelError` if external data cannot be read, or the result would pass 2 GiB.
        """
        return b"".join(model_parts(self, max_constant_bytes))

    def to_proto(self) -> onnx.ModelProto:
        """The model as a ModelProto of its own."""
        import onnx

        proto: onnx.ModelProto = onnx.ModelProto.FromString(self.to_bytes())
        return proto

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `to_bytes` to a file, which is complete or not there at all."""
        write_atomically(path, model_parts(self))

    # ---- the place of a part in its file

    @property
    def is_whole_file(self) -> bool:
        return self._nodes is None

    def file_node(self, node: int) -> int:
        """The file's number of a node."""
        if not 0 <= node < self.num_nodes:
            raise IndexError(f"node {node} is not in 0..{self.num_nodes - 1}")
        return int(node) if self._nodes is None else int(self._nodes[node])

    @property
    def file_nodes(self) -> _Ids:
        """int32[num_nodes]: the file's numbers of all nodes, ascending."""
        return np.arange(self.num_nodes, dtype=np.int32) if self._nodes is None else self._nodes

    @property
    def file_values(self) -> _Ids:
        """int32[num_values]: the file's numbers of all values, ascending."""
        return np.arange(self.num_values, dtype=np.int32) if self._values is None else self._values

    @property
    def file_constants(self) -> _Ids:
        """The file's numbers of the constants here; of a whole file also of those that nobody reads."""
        if self._values is None:
            return np.arange(len(self.file.constant_value), dtype=np.int32)
        return self.file.value_constant[self._values[self.is_constant]]

    def _file_value(self, value: int) -> int:
        if not 0 <= value < self.num_values:
            raise IndexError(f"value {value} is not in 0..{self.num_values - 1}")
        return int(value) if self._values is None else int(self._values[value])

    def _constant_number(self, value: int) -> int:
        number = int(self.file.value_constant[self._file_value(value)])
        if number < 0:
            raise self.file.error(f"value {self.value_name(value)!r} is no constant")
        return number

    def _port(self, value: int) -> Port:
        known = self.type_of(value)
        return Port(self.value_name(value), known.dtype, known.shape, self._types.is_declared(self._file_value(value)))

    def _part(self, selection: Selection, name: str) -> Model:
        part = object.__new__(Model)
        part.file, part.constants, part.name = self.file, self.constants, name
        part._types, part._whole, part._stated_affinity = self._types, self._whole or self, self._stated_affinity
        part._nodes = _read_only(self.file_nodes[selection.parent_nodes])
        part._values = _read_only(self.file_values[selection.parent_values])
        part.node_inputs, part.node_outputs = selection.inputs, selection.outputs
        part.node_captures = selection.captures
        part.producer = _read_only(selection.producer)
        part.is_constant = _read_only(selection.is_constant)
        ops, op_type_of = np.unique(self.op_type_of[selection.parent_nodes], return_inverse=True)
        part.op_types = tuple(self.op_types[op] for op in ops.tolist())
        part.op_type_of = _read_only(op_type_of.astype(np.int32))
        part.input_ids, part.output_ids = selection.input_ids, selection.output_ids
        return part

    def _unknown_key(self, key: str) -> ModelError:
        # difflib is quadratic, so no guess among very many keys.
        guess = did_you_mean(key, self.keys) if self.num_nodes <= _MOST_KEYS_TO_GUESS_FROM else ""
        return self.file.error(f"there is no node {key!r}{guess}")

    def __repr__(self) -> str:
        return f"<Model {self.name!r} of {self.file.label}: {self.num_nodes} nodes>"


def _read_only(array: NDArray[_T]) -> NDArray[_T]:
    array.flags.writeable = False
    return array


def _attribute_value(attribute: onnx.AttributeProto) -> Any:
    import onnx.helper

    if attribute.type == onnx.AttributeProto.UNDEFINED:  # files of the first IR versions state no types
        fields = [field.name for field, _ in attribute.ListFields() if field.name not in ("name", "doc_string")]
        if not fields:
            return None
        value = getattr(attribute, fields[0])
        return list(value) if fields[0] in ("floats", "ints", "strings", "tensors", "graphs") else value
    return onnx.helper.get_attribute_value(attribute)
