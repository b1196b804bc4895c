"""The model that all stages after reading work on: arrays over the file's bytes, and views on demand."""

from __future__ import annotations

import copy
import functools
import operator
import os
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import shown
from .constants import Constants
from .data_file import DataFile
from .extract import Selection, select, select_constants
from .file import ModelFile
from .inference import ValueTypes
from .rows import Rows, read_only
from .save import save_model, write_model
from .types import Dim, Holder, Port, ValueType, holder_of, onnx_dtype_of
from .views import Initializers, Nodes, NodeView
from .write import edited_parts, model_parts

if TYPE_CHECKING:
    import onnx

__all__ = ["Model", "NodeView", "Nodes"]

_INITIALIZER = 0  # constant_source of the index
_LARGEST_DIM = 2**63 - 1  # what ONNX can store
_LENT_BYTES = 4096  # weights from this size on are lent to a model with other nodes rather than copied
_LAYER_ANNOTATION = 1  # affinity_kind of onnxruntime's "layer_ann"


class Model(Rows):
    """An ONNX model, or a part of one: immutable arrays over the bytes of its file.

    Nodes are numbered 0..n-1 in topological order (the file's, if it is one). ONNX ``Constant`` nodes are no nodes but
    constants, as initializers are; a node with nested graphs is one node. Values, the names of the main graph, are
    numbered too.

    ``node_inputs``, ``node_outputs``, ``node_captures``: `Ragged` over nodes, of value ids; -1 for an absent optional
    one; captures are what nested graphs read from outside. ``producer``: int32[num_values], the node that makes a
    value, -1 for none. ``is_constant``: bool[num_values]. ``op_types``: distinct operators ("Relu", "domain::Op");
    ``op_type_of``: int32[n] into them. ``input_ids``, ``output_ids``: values that the graph takes and gives; inputs
    that have an initializer do not count. All arrays are read-only.

    Made by `read_model`, `extract`, `with_affinity` and `with_types`. Safe to share between threads.
    """

    def __init__(self, file: ModelFile) -> None:
        """The whole of a file; `read_model` is the way to it."""
        constants = Constants(file)
        super().__init__(file, constants)
        self._types = ValueTypes(file, constants)

    @property
    def nodes(self) -> Nodes:
        """Views of the nodes, made when indexed."""
        return Nodes(self)

    # ---- values

    @property
    def initializers(self) -> Initializers:
        """Name -> view of each initializer (sparse ones too), in the file's order; of a part, those it reads."""
        return Initializers(self)

    def constant(self, value: int, *, aligned: bool = True) -> NDArray[Any]:
        """A constant's data, read-only; a view of the file where its type and alignment allow.

        ``aligned``: False gives a view even where elements do not lie at multiples of their size, as protobuf puts
        them; NumPy takes such arrays, only slower.
        """
        number = self._constant_number(value)
        return self.constants.array(number) if aligned else self.constants.view(number)

    def constant_type(self, value: int) -> ValueType:
        """A constant's element type and shape, without touching its data."""
        return self.constants.type_of(self._constant_number(value))

    def type_of(self, value: int, *, infer: bool = True) -> ValueType:
        """What is known of a value's type: a constant's own, else as declared or supplied, else as inferred over the
        whole file, once. Never fails for want of knowledge: unknown parts are None.

        ``infer``: False if inference is not to be run for that; what it found earlier counts.
        """
        return self._types.type_of(self.file_value(value), infer)

    def type_table(self) -> tuple[tuple[ValueType, ...], NDArray[np.int32]]:
        """`type_of` all values: the distinct types, and int32[num_values], which of them each value has. Worked out
        once for the file and the types supplied."""
        kinds, kind_of = self._types.table()
        return kinds, kind_of if self._values is None else kind_of[self._values]

    def is_tensor(self, value: int, *, infer: bool = True) -> bool:
        """Whether a value is a tensor, as far as is known; False for sequences, maps and optionals."""
        return self._types.is_tensor(self.file_value(value), infer)

    def known_type_of(self, value: int, *, shape: bool = False) -> ValueType:
        """`type_of` for those who cannot go on without: `ModelError` names the value, and who makes it, if its
        element type is unknown, or with ``shape`` its rank."""
        found = self.type_of(value)
        if found.dtype is not None and (found.shape is not None or not shape):
            return found
        missing = "element type" if found.dtype is None else "rank"
        node = int(self.producer[value])
        maker = "which is an input of the model" if node < 0 else f"made by {self._describe(node)}"
        name = self.value_name(value)
        raise self.file.error(
            f"the {missing} of value {name!r}, {maker}, is not stated and cannot be inferred: "
            f"supply it with model.with_types({{{name!r}: (dtype, shape)}})"
        )

    def type_message(self, value: int) -> bytes:
        """What is known of a value's type, as an encoded TypeProto, for sequences and optionals too; empty if nothing
        is."""
        return self._types.message_of(self.file_value(value))

    def has_type(self, value: int) -> bool:
        """Whether enough is known of a value to declare it in a file: its element type, or that it is no tensor."""
        return self._types.is_known(self.file_value(value))

    def with_types(self, stated: Mapping[str, ValueType | tuple[Any, Any]]) -> Model:
        """The same model with types that its file does not state, by the name of the value.

        Each is a `ValueType`, or a pair of a NumPy dtype and a shape (None: of unknown rank) of sizes, symbols and
        None. They add to what the file, or an earlier call, states, may put a size or a symbol where it has a symbol
        or nothing, serve inference, and are saved with the model. `ModelError` names a value that the model does not
        have, or of which something else is known.
        """
        if not isinstance(stated, Mapping):
            raise TypeError(f"expected a mapping from names of values to types, got {type(stated).__name__}")
        model = self._copy()
        model._types = self._types.with_supplied(
            {self.file_value(self.value_id(name)): _value_type(self, name, one) for name, one in stated.items()}
        )
        return model

    def states_more_than(self, other: Model) -> bool:
        """Whether this model was given types (`with_types`) that ``other``, a model of the same file, does not have."""
        return any(other._types.supplied.get(value) != given for value, given in self._types.supplied.items())

    def with_inferred_types(self) -> Model:
        """The same model with what shape inference found as stated types, if it ran: they are saved with the model,
        and who reads it spares the inference."""
        if not self._types.has_inferred:
            return self
        model = self._copy()
        model._types = self._types.with_inferred()
        return model

    @functools.cached_property
    def inputs(self) -> tuple[Port, ...]:
        """What the model takes, in the graph's order."""
        return tuple(self._port(value) for value in self.input_ids)

    @functools.cached_property
    def outputs(self) -> tuple[Port, ...]:
        """What the model gives, in the graph's order."""
        return tuple(self._port(value) for value in self.output_ids)

    # ---- the file around the graph

    @property
    def path(self) -> str | None:
        """The file, None for bytes."""
        return self.file.path

    @property
    def ir_version(self) -> int:
        """The version of ONNX's file format that the file states."""
        return self.file.ir_version

    @property
    def functions(self) -> tuple[tuple[str, str], ...]:
        """(domain, name) of each model-local function."""
        return self.file.functions

    @property
    def metadata(self) -> Mapping[str, str]:
        """The file's ``metadata_props``."""
        return self.file.metadata

    @property
    def producer_name(self) -> str:
        """The tool that wrote the file."""
        return self.file.header_text(2)

    @property
    def producer_version(self) -> str:
        """The version of the tool that wrote the file."""
        return self.file.header_text(3)

    @property
    def domain(self) -> str:
        """The model's own namespace, such as ``org.example``."""
        return self.file.header_text(4)

    @property
    def model_version(self) -> int:
        """The version that the author gave to the model."""
        return self.file.model_version

    @property
    def doc_string(self) -> str:
        """The documentation that the file carries."""
        return self.file.header_text(6)

    # ---- affinity

    @functools.cached_property
    def affinity(self) -> Mapping[str, str]:
        """Node key -> device, as stated by `with_affinity`, else in the file: a node's ``metadata_props["affinity"]``,
        or onnxruntime's ``layer_ann`` where that is missing."""
        stated = self._stated_affinity
        if stated is not None:
            if self._nodes is not None:
                stated = {key: device for key, device in stated.items() if self.is_key(key)}
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
        accepted and mean nothing. Keys of nodes inside of calls (``call/node``) hold once the call is inlined, and are
        not saved. `ModelError` names an unknown key."""
        if not isinstance(affinity, Mapping):
            raise TypeError(f"expected a mapping from node keys to devices, got {type(affinity).__name__}")
        stated: dict[str, str] = {}
        for key, device in affinity.items():
            if not isinstance(device, str) or not device:
                raise self.file.error(f"affinity of {shown(key)}: expected the name of a device, found {shown(device)}")
            entry = self.file.keys.entry_of(key)
            if entry >= len(self.file.node_op) and key in self.constant_keys:
                continue
            if not self.is_key(key):
                raise self._unknown_key(key)
            stated[key] = device
        model = self._copy()
        model._stated_affinity = types.MappingProxyType(stated)
        return model

    # ---- parts, and back to bytes

    def extract(self, nodes: Iterable[int] | NDArray[Any], name: str | None = None) -> Model:
        """The model that these nodes make by themselves, over the same bytes: no weights are copied.

        ``nodes``: indices, in any order. Inputs are the values that the nodes read, or their nested graphs capture,
        from outside and that are no constants, in the order of first use; outputs are what other nodes of this model
        read or the graph gives, in the order of production. Constants are cloned. Functions come along.
        """
        (part,) = self.extract_all([nodes], [self.name if name is None else name])
        return part

    def extract_all(self, parts: Iterable[Iterable[int] | NDArray[Any]], names: Sequence[str]) -> list[Model]:
        """`extract` of many sets of nodes, all at one time, which for many small ones takes a tenth as long."""
        groups = [np.array(nodes if isinstance(nodes, np.ndarray) else list(nodes), ndmin=1) for nodes in parts]
        for nodes in groups:
            if nodes.size == 0 or nodes.ndim != 1 or nodes.dtype.kind not in "iu":
                raise self.file.error(f"extract needs indices of nodes, at least one, found {nodes!r}")
        if not groups:
            return []
        sizes = [len(nodes) for nodes in groups]
        every, part_of = np.concatenate(groups), np.repeat(np.arange(len(groups)), sizes)
        if every.min() < 0 or every.max() >= self.num_nodes:
            raise self.file.error(f"extract needs nodes 0..{self.num_nodes - 1}, found {every.min()}..{every.max()}")
        pairs = np.unique(part_of * self.num_nodes + every.astype(np.int64))
        start = np.searchsorted(pairs, np.arange(len(groups) + 1) * self.num_nodes)
        selections = select(self, (pairs % self.num_nodes).astype(np.int32), start)
        return [self._part(selection, name) for selection, name in zip(selections, names, strict=True)]

    def extract_constants(self, values: Iterable[int], name: str | None = None) -> Model:
        """A model without nodes or inputs, whose outputs are these constants: for outputs that nothing computes."""
        chosen = list(values)
        for value in chosen:
            self._constant_number(value)
        return self._part(select_constants(chosen), self.name if name is None else name)

    def with_outputs(self, names: Iterable[str]) -> Model:
        """The same model that also gives these values, after its own outputs; those that it gives already, and
        constants, are left out. `ModelError` names a value that it does not have."""
        known = set(self.output_ids)
        more = [value for value in dict.fromkeys(map(self.value_id, names)) if not self.is_constant[value]]
        outputs = (*self.output_ids, *(value for value in more if value not in known))
        everything = Selection(
            parent_nodes=np.arange(self.num_nodes, dtype=np.int32),
            parent_values=np.arange(self.num_values, dtype=np.int32),
            inputs=self.node_inputs,
            outputs=self.node_outputs,
            captures=self.node_captures,
            producer=self.producer,
            is_constant=self.is_constant,
            input_ids=self.input_ids,
            output_ids=outputs,
            op_types=self.op_types,
            op_type_of=self.op_type_of,
        )
        return self._part(everything, self.name)

    def to_bytes(self, max_constant_bytes: int | None = None) -> bytes:
        """The model as an encoded ModelProto, by joining ranges of the file; external data is put inside.

        With ``max_constant_bytes``: a skeleton in which constants encoded in more bytes than that are graph inputs.
        `ModelError` if external data cannot be read, or the result would pass 2 GiB.
        """
        return b"".join(model_parts(self, self._types, max_constant_bytes))

    def to_bytes_lending(self, at_least: int) -> tuple[bytes, dict[str, NDArray[Any]]]:
        """The model for a backend that takes weights from memory, which spares copying them into the bytes.

        Tensors of ``at_least`` bytes and more, of types that NumPy stores as ONNX does, are in the encoded ModelProto
        by name, type and dims only, with external data at a place that does not exist. They come beside it, by name:
        read-only, and views of the file even where that puts elements at odd addresses (`constant`).

        `ModelError` if data cannot be read, or the rest would pass 2 GiB.
        """
        constants, lent = self.constants, {}
        for number in self.file_constants.tolist():
            if constants.is_plain(number) and constants.nbytes(number) >= at_least:
                lent[number] = self.file.index.value_name(int(self.file.constant_value[number]))
        parts = model_parts(self, self._types, lent=lent)
        return b"".join(parts), {name: constants.view(number) for number, name in lent.items()}

    def to_proto(self) -> onnx.ModelProto:
        """The model as a ModelProto of its own."""
        import onnx

        proto: onnx.ModelProto = onnx.ModelProto.FromString(self.to_bytes())
        return proto

    def save(self, path: str | os.PathLike[str], *, external_above: int | None = None) -> None:
        """Writes an ONNX file, which is complete or not there at all; weights are copied from file to file.

        ``external_above``: tensors of at least so many bytes go to a file beside it, ``<name>.1.data``. By default
        all is in one file unless the weights take more than 128 MiB; then tensors of 1 KiB and more lie outside. See
        docs/reading.md for the layout and for what happens to files of that name.

        `ModelError` if external data cannot be read, or the model file would pass 2 GiB; `OSError` from writing, in
        which case nothing is left behind and an older model of that name is as it was.
        """
        save_model(self, self._types, path, external_above)

    def write(self, path: str | os.PathLike[str], data_file: DataFile | None = None) -> None:
        """`save` under names that the caller knows to be free, with ``data_file``, which is filled, in two files. For
        one of many files: the caller calls `hetero.base.files.sync_files`."""
        write_model(self, self._types, path, data_file, is_new=True)

    def with_nodes(self, header: bytes, replaced: Mapping[int, Sequence[bytes]], infos: Sequence[bytes]) -> Model:
        """The model with other nodes in place of some; affinities stated by `with_affinity` are left out.

        ``header``: all of the encoded ModelProto but the graph; see `header_of`. ``replaced``: node -> encoded
        NodeProtos. ``infos``: encoded ValueInfoProtos to add. Larger weights are not copied but borrowed.
        """
        file, constants = self.file, self.constants
        lent = {
            file.index.value_name(int(file.constant_value[number])): number
            for number in self.file_constants[file.constant_source[self.file_constants] == _INITIALIZER].tolist()
            if constants.is_raw(number) and constants.nbytes(number) >= _LENT_BYTES
        }
        data = memoryview(b"".join(edited_parts(self, self._types, header, replaced, infos, lent.values())))
        model = Model(
            ModelFile(data, label=file.label, path=file.path, folder=file.folder, follow_links=file.follow_links)
        )
        for name, number in lent.items():
            borrower = model.file.value_constant[model.file.index.value_id(name)]
            model.constants.borrow(int(borrower), constants, number)
        return model

    def _constant_number(self, value: int) -> int:
        number = int(self.file.value_constant[self.file_value(value)])
        if number < 0:
            raise self.file.error(f"value {self.value_name(value)!r} is no constant")
        return number

    def _port(self, value: int) -> Port:
        types_, number, name = self._types, self.file_value(value), self.value_name(value)
        if types_.is_declared(number):
            stated = types_.type_of(number)
            return Port(name, stated.dtype, stated.shape)

        def find() -> tuple[np.dtype[Any] | None, tuple[Dim, ...] | None, bool, Holder]:
            known = types_.type_of(number)
            is_tensor = types_.is_tensor(number)
            return known.dtype, known.shape, is_tensor, Holder() if is_tensor else holder_of(types_.message_of(number))

        return Port(name, types_.stated_dtype(number), None, declared=False, find=find)

    def describe_nodes(self) -> str:
        """For messages: ``of 'name' (node 'a')``, or with the number of nodes, the first and the last."""
        name, count = repr(self.name), self.num_nodes
        if count == 0:
            return f"of {name} (no nodes)"
        first = repr(self.key_of(0))
        if count == 1:
            return f"of {name} (node {first})"
        return f"of {name} ({count} nodes, {first} to {self.key_of(count - 1)!r})"

    def _describe(self, node: int) -> str:
        return self.file.describe_node(self.file_node(node))

    def _copy(self) -> Model:
        """A copy to be changed, without what was worked out on demand from what may change."""
        model = copy.copy(self)
        for name in ("affinity", "inputs", "outputs"):
            model.__dict__.pop(name, None)
        return model

    def _part(self, selection: Selection, name: str) -> Model:
        part = object.__new__(Model)
        part.file, part.constants, part.name = self.file, self.constants, name
        part._types, part._stated_affinity = self._types, self._stated_affinity
        part._nodes = read_only(self.file_nodes[selection.parent_nodes])
        part._values = read_only(self.file_values[selection.parent_values])
        part.node_inputs, part.node_outputs = selection.inputs, selection.outputs
        part.node_captures = selection.captures
        part.producer = read_only(selection.producer)
        part.is_constant = read_only(selection.is_constant)
        part.op_types, part.op_type_of = selection.op_types, read_only(selection.op_type_of)
        part.input_ids, part.output_ids = selection.input_ids, selection.output_ids
        return part

    def __repr__(self) -> str:
        return f"<Model {self.name!r} of {self.file.label}: {self.num_nodes} nodes>"


def _value_type(model: Model, name: str, stated: ValueType | tuple[Any, Any]) -> ValueType:
    """What a caller of `Model.with_types` gave for a value, checked for sense."""
    import ml_dtypes  # noqa: F401  which makes its names known to NumPy

    try:
        dtype, shape = (stated.dtype, stated.shape) if isinstance(stated, ValueType) else stated
        dims = None if shape is None else tuple(_dim(dim) for dim in shape)
        found = ValueType(None if dtype is None else np.dtype(dtype), dims)
    except (TypeError, ValueError) as error:
        raise model.file.error(
            f"type of value {name!r}: expected a dtype and a shape, found {shown(stated)}"
        ) from error
    if found.dtype is not None and not onnx_dtype_of(found.dtype):
        raise model.file.error(f"type of value {name!r}: ONNX has no dtype {found.dtype}")
    if any(isinstance(dim, int) and dim < 0 for dim in found.shape or ()):
        raise model.file.error(f"type of value {name!r}: a dim of shape {shown(list(found.shape or ()))} is negative")
    if any(isinstance(dim, int) and dim > _LARGEST_DIM for dim in found.shape or ()):
        raise model.file.error(f"type of value {name!r}: a dim of its shape is more than {_LARGEST_DIM}")
    return found


def _dim(dim: Any) -> Dim:
    return dim if dim is None or isinstance(dim, str) else operator.index(dim)
