"""Views of nodes and initializers, made when asked for: a model of a million nodes holds none of them."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, raise_out_of_memory
from .rows import Rows
from .types import Ragged

if TYPE_CHECKING:
    import onnx

__all__ = ["Initializer", "Initializers", "NodeView", "Nodes"]

# constant_source of the index
_FROM_SPARSE, _FROM_NODE = 1, 2


_ATTRIBUTE_TAG = b"\x2a"  # of NodeProto.attribute; elsewhere such a byte may be part of a name


class NodeView:
    """One node, read from the file when asked. Equal to another view of the same node of the same model."""

    __slots__ = ("_attributes", "_model", "_proto", "index")

    def __init__(self, model: Rows, index: int) -> None:
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
            # Most nodes have none, which their bytes tell sooner than protobuf does.
            has_some = self._proto is not None or _ATTRIBUTE_TAG in self._body()
            for attribute in self.proto().attribute if has_some else ():
                if attribute.name in attributes:
                    raise self._error(f"attribute {attribute.name!r} is given twice")
                attributes[attribute.name] = _attribute_value(attribute)
            self._attributes = attributes
        return types.MappingProxyType(self._attributes)

    def proto(self) -> onnx.NodeProto:
        """The parsed NodeProto. Not to be changed."""
        if self._proto is None:
            import onnx

            try:
                self._proto = onnx.NodeProto.FromString(self._body())
            except Exception as error:  # protobuf's DecodeError, which needs protobuf to be named
                raise_out_of_memory(error)
                raise self._error(f"cannot be parsed: {error}") from error
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
    """The nodes of a model in topological order, as views made on demand."""

    __slots__ = ("_model",)

    def __init__(self, model: Rows) -> None:
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


class Initializer:
    """One initializer, read from the file when asked."""

    __slots__ = ("_model", "name", "value")

    def __init__(self, model: Rows, name: str, value: int) -> None:
        self._model = model
        self.name = name
        self.value = value

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The element type; None where it needs a newer ml_dtypes."""
        return self._model.constants.type_of(self._number).dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its dimensions."""
        return self._model.constants.dims(self._number)

    @property
    def nbytes(self) -> int:
        """Bytes as ONNX stores the elements, types below a byte packed; ValueError for strings."""
        return self._model.constants.nbytes(self._number)

    @property
    def is_sparse(self) -> bool:
        """Whether the file has it in ``sparse_initializer``; `numpy` makes it dense."""
        return bool(self._model.file.constant_source[self._number] == _FROM_SPARSE)

    @property
    def external_path(self) -> str | None:
        """The file that holds the data, relative to the model's folder; None if they are in the model file.
        `ModelError` if the tensor does not say so properly."""
        constants = self._model.constants
        return constants.location(self._number)[0] if constants.is_external(self._number) else None

    def numpy(self) -> NDArray[Any]:
        """The data, read-only; a view of the mapped file where type and alignment allow. `ModelError` if they cannot
        be had."""
        return self._model.constants.array(self._number)

    @property
    def _number(self) -> int:
        return int(self._model.file.value_constant[self._model.file_value(self.value)])

    def __repr__(self) -> str:
        return f"<initializer {self.name!r}: {self.dtype} {list(self.shape)}>"


class Initializers(Mapping[str, Initializer]):
    """The initializers of a model by name, in the file's order, as views made on demand. Constant nodes are not among
    them."""

    __slots__ = ("_model",)

    def __init__(self, model: Rows) -> None:
        self._model = model

    def __getitem__(self, name: str) -> Initializer:
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
        found: NDArray[np.int32] = numbers[self._model.file.constant_source[numbers] != _FROM_NODE]
        return found

    def __repr__(self) -> str:
        return f"<{len(self)} initializers of {self._model.name!r}>"


# The field of an AttributeProto that its type names: of one value, of many.
_ONE = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 11: "sparse_tensor", 13: "tp"}
_MANY = {6: "floats", 7: "ints", 8: "strings", 9: "tensors", 10: "graphs", 12: "sparse_tensors", 14: "type_protos"}


def _attribute_value(attribute: onnx.AttributeProto) -> Any:
    """As `onnx.helper.get_attribute_value`, which asks for one type after another."""
    if not attribute.ref_attr_name:
        kind = attribute.type
        if kind in _MANY:
            return list(getattr(attribute, _MANY[kind]))
        if kind in _ONE:
            return getattr(attribute, _ONE[kind])
    import onnx.helper

    if attribute.type == onnx.AttributeProto.UNDEFINED:  # files of the first IR versions state no types
        fields = [field.name for field, _ in attribute.ListFields() if field.name not in ("name", "doc_string")]
        if not fields:
            return None
        value = getattr(attribute, fields[0])
        return list(value) if fields[0] in ("floats", "ints", "strings", "tensors", "graphs") else value
    return onnx.helper.get_attribute_value(attribute)
