"""Views of nodes and initializers, created on access, so that large models need no object per node."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from .._onnx import attribute_forms, attribute_groups, read_attributes
from ..base.formatting import counted
from ..base.other_names import OtherNames
from ..base.plain import plain
from ..errors import ModelError, raise_out_of_memory
from .constants import StoredTensor
from .nested import embed, external_attributes
from .rows import Rows
from .types import Ragged

if TYPE_CHECKING:
    import onnx

__all__ = ["Initializer", "Initializers", "NodeView", "Nodes"]

# constant_source of the index
_FROM_SPARSE, _FROM_NODE = 1, 2


_ATTRIBUTE_FIELD = 5  # NodeProto.attribute


class NodeView(OtherNames):
    """One node, read from the file on access. Views of the same node of the same model are equal."""

    __slots__ = ("_attributes", "_model", "_proto", "_stored", "index")

    other_names = types.MappingProxyType(
        {
            **dict.fromkeys(
                ("friendly_name", "get_friendly_name", "get_name"), "node.name, or node.key, which is unique"
            ),
            **dict.fromkeys(("get_type_name", "get_type_info", "type_info"), "node.op_type and node.domain"),
            "get_attributes": "node.attributes",
            **dict.fromkeys(("rt_info", "get_rt_info"), "model.affinity for the devices of nodes"),
            **dict.fromkeys(
                ("set_rt_info", "set_friendly_name", "set_attribute", "set_argument", "set_arguments"),
                "model.with_affinity for devices; to change the graph, edit model.to_proto()",
            ),
            **dict.fromkeys(
                ("input", "input_value", "input_values", "get_input_tensor", "get_input_size"), "node.inputs"
            ),
            **dict.fromkeys(("output", "get_output_tensor", "get_output_size"), "node.outputs"),
            **dict.fromkeys(
                (
                    *("shape", "get_input_shape", "get_input_partial_shape", "get_output_shape"),
                    *("get_output_partial_shape", "get_element_type", "get_input_element_type"),
                    "get_output_element_type",
                ),
                "model.type_of(model.value_id(name)) for a name of node.inputs or node.outputs",
            ),
        }
    )

    def __init__(self, model: Rows, index: int) -> None:
        self._model = model
        self.index = index
        self._proto: onnx.NodeProto | None = None
        self._attributes: dict[str, Any] | None = None
        self._stored: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """The node's name if it is unique, otherwise the name of its first output."""
        return self._model.key_of(self.index)

    @property
    def name(self) -> str:
        """The node's name, which may be empty or not unique."""
        file = self._model.file
        return file.index.text(int(file.index.arrays["node_name"][self._model.file_node(self.index)]))

    @property
    def op_type(self) -> str:
        """The operator, without its domain."""
        return self._model.file.op_names[self._op]

    @property
    def domain(self) -> str:
        """The operator's domain; "" for ONNX's own domain."""
        return self._model.file.op_domains[self._op]

    @property
    def opset(self) -> int:
        """The imported version of the operator's domain."""
        return self._model.opsets[self.domain]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs; "" for an absent optional input."""
        return self._names(self._model.node_inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs; "" for an absent optional output."""
        return self._names(self._model.node_outputs)

    @property
    def captures(self) -> tuple[str, ...]:
        """The names of outer values that the node's nested graphs read, each once."""
        return self._names(self._model.node_captures)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Name -> value, as `onnx.helper.get_attribute_value` returns it: numbers, bytes, lists, TensorProto, ..."""
        if self._attributes is None:
            attributes = self._read()
            if attributes is None or any(isinstance(value, range) for value in attributes.values()):
                attributes = {}
                for attribute in self.proto().attribute:
                    if attribute.name in attributes:
                        raise self._error(f"attribute {attribute.name!r} is given twice")
                    attributes[attribute.name] = _attribute_value(attribute)
            self._attributes = attributes
        return types.MappingProxyType(self._attributes)

    @property
    def stored_attributes(self) -> Mapping[str, Any]:
        """Like `attributes`, but a tensor may be a `StoredTensor`, so that most nodes with tensors need no protobuf.
        `array_of` reads both."""
        if self._stored is None:
            attributes = self._read() if self._attributes is None else None
            if attributes is None:
                return self.attributes
            for name, value in attributes.items():
                if isinstance(value, range):
                    tensor = StoredTensor.of(self._model.file.data, value)
                    if tensor is None:
                        return self.attributes
                    attributes[name] = tensor
            self._stored = attributes
        return types.MappingProxyType(self._stored)

    def _read(self) -> dict[str, Any] | None:
        """Numbers, strings, lists of these, and the ranges of tensors in the file; None if an attribute is something
        else, or malformed, which is left to protobuf."""
        file = self._model.file
        begin, end = file.node_range(self._model.file_node(self.index))
        return read_attributes(file.data, begin, end, _ATTRIBUTE_FIELD)

    def proto(self) -> onnx.NodeProto:
        """The parsed NodeProto, with the external data of tensors that are attributes. Do not change it."""
        if self._proto is None:
            import onnx

            try:
                proto = onnx.NodeProto.FromString(self._body())
            except Exception as error:  # protobuf's DecodeError; naming it would require importing protobuf
                raise_out_of_memory(error)
                raise self._error(f"cannot be parsed: {error}") from error
            for tensor in external_attributes(proto):
                try:
                    embed(tensor, self._model.constants.external)
                except ValueError as error:
                    raise self._error(f"tensor {tensor.name!r}: {error}") from error
            self._proto = proto
        return self._proto

    def _body(self) -> bytes:
        return bytes(self._model.file.node_body(self._model.file_node(self.index)))

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
    """The nodes of a model in topological order, as views created on access: by position, slice or key."""

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'node')} of {self._model.name!r}>"

    __slots__ = ("_model",)

    def __init__(self, model: Rows) -> None:
        self._model = model

    def __len__(self) -> int:
        return self._model.num_nodes

    @property
    def attribute_groups(self) -> NDArray[np.int32]:
        """int32[num_nodes]: nodes with the same number have equal attributes; see `_onnx.attribute_groups`."""
        return attribute_groups(*self._ranges, _ATTRIBUTE_FIELD)

    @property
    def attribute_forms(self) -> tuple[NDArray[np.int32], list[tuple[int, list[tuple[str, int]] | None]]]:
        """int32[num_nodes]: nodes with the same number have the same operator, and attributes of the same names and
        types; and by this number, the operator and the (name, AttributeProto.type) pairs; see
        `_onnx.attribute_forms`."""
        return attribute_forms(*self._ranges, self._model.op_type_of, _ATTRIBUTE_FIELD)

    @property
    def _ranges(self) -> tuple[memoryview, NDArray[np.int64], NDArray[np.int64]]:
        """The file's bytes, and where the nodes begin, without their names, inputs and outputs, and end."""
        file, rows = self._model.file, self._model.file_nodes
        return file.data, file.node_start[rows] + file.node_header[rows], file.node_end[rows]

    @overload
    def __getitem__(self, index: int | str) -> NodeView: ...
    @overload
    def __getitem__(self, index: slice) -> list[NodeView]: ...
    def __getitem__(self, index: int | str | slice) -> NodeView | list[NodeView]:
        if isinstance(index, str):
            return NodeView(self._model, self._model.index_of(index))
        if isinstance(index, slice):
            return [NodeView(self._model, i) for i in range(*index.indices(len(self)))]
        try:
            return NodeView(self._model, range(len(self))[index])
        except IndexError:
            raise IndexError(f"no node {index}: the model has {counted(len(self), 'node')}") from None

    def __iter__(self) -> Iterator[NodeView]:
        return (NodeView(self._model, i) for i in range(len(self)))


class Initializer:
    """One initializer, read from the file on access."""

    __slots__ = ("_model", "name", "value")

    def __init__(self, model: Rows, name: str, value: int) -> None:
        self._model = model
        self.name = name
        self.value = value

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The element type; None if it requires a newer ml_dtypes."""
        return self._model.constants.type_of(self._number).dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self._model.constants.dims(self._number)

    @property
    def nbytes(self) -> int:
        """The size of the elements in ONNX's storage, in B. Raises ValueError for strings."""
        return self._model.constants.nbytes(self._number)

    @property
    def is_sparse(self) -> bool:
        """Whether the file stores it in ``sparse_initializer``. `numpy` returns a dense array."""
        return bool(self._model.file.constant_source[self._number] == _FROM_SPARSE)

    @property
    def external_path(self) -> str | None:
        """The file with the data, relative to the model's folder; None if the data are in the model file. Raises
        `ModelError` if the tensor's external_data are invalid."""
        constants = self._model.constants
        return constants.location(self._number)[0] if constants.is_external(self._number) else None

    def numpy(self) -> NDArray[Any]:
        """The data, read-only. A view of the mapped file if type and alignment allow this. Raises `ModelError` if the
        data cannot be read."""
        return self._model.constants.array(self._number)

    @property
    def _number(self) -> int:
        return int(self._model.file.value_constant[self._model.file_value(self.value)])

    def __repr__(self) -> str:
        return f"<initializer {self.name!r}: {self.dtype} {list(self.shape)}>"


class Initializers(Mapping[str, Initializer]):
    """The initializers of a model by name, in the file's order, as views created on access. Does not include Constant
    nodes."""

    __slots__ = ("_model",)

    def __init__(self, model: Rows) -> None:
        self._model = model

    def __getitem__(self, name: str) -> Initializer:
        name = plain(name)
        value = self._model.find_value(name) if isinstance(name, str) else None
        if value is None or not self._model.is_constant[value]:
            raise KeyError(name)
        view = Initializer(self._model, name, value)
        if self._model.file.constant_source[view._number] == _FROM_NODE:
            raise KeyError(name)
        return view

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[str]:
        file = self._model.file
        return (file.index.value_name(value) for value in file.constant_value[self._numbers].tolist())

    @property
    def _numbers(self) -> NDArray[np.int32]:
        numbers = np.sort(self._model.file_constants)
        initializers: NDArray[np.int32] = numbers[self._model.file.constant_source[numbers] != _FROM_NODE]
        return initializers

    def __repr__(self) -> str:
        return f"<{len(self)} initializers of {self._model.name!r}>"


# AttributeProto.type -> the field with the value, for single values and for lists.
_ONE = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 11: "sparse_tensor", 13: "tp"}
_MANY = {6: "floats", 7: "ints", 8: "strings", 9: "tensors", 10: "graphs", 12: "sparse_tensors", 14: "type_protos"}


def _attribute_value(attribute: onnx.AttributeProto) -> Any:
    """Like `onnx.helper.get_attribute_value`, but faster, because that function compares one type after the other."""
    if not attribute.ref_attr_name:
        kind = attribute.type
        if kind in _MANY:
            return list(getattr(attribute, _MANY[kind]))
        if kind in _ONE:
            return getattr(attribute, _ONE[kind])
    import onnx.helper

    if attribute.type == onnx.AttributeProto.UNDEFINED:  # the first IR versions have no types
        fields = [field.name for field, _ in attribute.ListFields() if field.name not in ("name", "doc_string")]
        if not fields:
            return None
        value = getattr(attribute, fields[0])
        return list(value) if fields[0] in ("floats", "ints", "strings", "tensors", "graphs") else value
    return onnx.helper.get_attribute_value(attribute)
