"""The model that all stages work on: arrays over the file's bytes, with views of nodes and weights on demand."""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import os
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from ..base.formatting import counted
from ..base.names import shortened
from ..base.notebook import html_table
from ..base.other_names import OtherNames
from ..base.plain import plain
from ..errors import did_you_mean, shown
from .constants import Constants, LentArrays
from .data_file import DataFile
from .extract import Selection, select, select_constants
from .file import ModelFile
from .inference import StatedTypes, ValueTypes
from .rows import Rows, read_only
from .save import save_model, write_model
from .types import PORT_COLUMNS, Dim, Holder, Port, Ragged, ValueType, holder_of, onnx_dtype_of, port_rows
from .views import Initializers, Nodes, NodeView
from .wire import encode_field
from .write import edited_parts, encode_lent_tensor, header_of, model_parts

if TYPE_CHECKING:
    import onnx

__all__ = ["Model", "NodeView", "Nodes"]

_INITIALIZER = 0  # constant_source of the index
_GRAPH_INPUT = 11  # info_section of the index: the field's number in GraphProto
_FIRST_IR_WITH_DEFAULTS = 4  # before, every initializer had to be listed as an input
_INITIALIZER_FIELD, _VALUE_INFO = 5, 13  # of GraphProto
_LARGEST_DIM = 2**63 - 1  # the maximum that ONNX can store
_MOST_OPS = 10  # operators in the table of a model
_LENT_BYTES = 4096  # size in B from which `with_nodes` shares weights instead of copying them
_LAYER_ANNOTATION = 1  # affinity_kind of onnxruntime's "layer_ann"


class Model(OtherNames, Rows):
    """An ONNX model, or a part of one: immutable arrays over the bytes of its file.

    Nodes are numbered 0..n-1 in topological order (the order in the file, if it is topological). ONNX ``Constant``
    nodes count as constants, like initializers, and not as nodes. A node with nested graphs is one node. Values, which
    are the names in the main graph, are numbered too.

    ``node_inputs``, ``node_outputs``, ``node_captures``: `Ragged` arrays of value ids per node, with -1 for an absent
    optional value. Captures are the outer values that nested graphs read. ``producer``: int32[num_values], the node
    that computes a value, -1 for none. ``is_constant``: bool[num_values]. ``op_types``: distinct operators ("Relu",
    "domain::Op"); ``op_type_of``: int32[n], indices into ``op_types``. ``input_ids``, ``output_ids``: the inputs and
    outputs of the graph, without inputs that have an initializer. All arrays are read-only.

    `read_model`, `extract`, `with_affinity` and `with_types` create models. Threads may share a model.
    """

    _defaults: Mapping[str, NDArray[Any]] = types.MappingProxyType({})
    """The values of the inputs that may be left out."""

    _listed_defaults: tuple[str, ...] | None = None
    """The names in `default_inputs`, and maybe others, if the file does not list them among its inputs any more."""

    other_names = types.MappingProxyType(
        {
            "reshape": "core.compile_model(model, device, shapes=…)",
            "get_ops": "model.nodes",
            "get_ordered_ops": "model.nodes",
            **dict.fromkeys(("parameters", "get_parameters"), "model.inputs"),
            **dict.fromkeys(("results", "get_results", "result", "get_result"), "model.outputs"),
            "input": "model.inputs",
            "output": "model.outputs",
            **dict.fromkeys(("friendly_name", "get_friendly_name", "graph_name", "get_name"), "model.name"),
            "get_modelmeta": "model.metadata, model.producer_name and model.opsets",
            **dict.fromkeys(
                ("rt_info", "get_rt_info", "has_rt_info"), "model.metadata, or model.affinity for the devices of nodes"
            ),
            "validate_nodes_and_infer_types": "model.outputs: types are inferred when they are read",
            "evaluate": "core.compile_model(model, 'TEMPLATE')",
            "get_output_shape": "model.outputs[i].shape",
            "get_output_element_type": "model.outputs[i].dtype",
            "add_outputs": "model.with_outputs(names)",
            **dict.fromkeys(("is_dynamic", "dynamic"), "the shapes of model.inputs"),
            **dict.fromkeys(("SerializeToString", "serialize"), "model.to_bytes(), or model.save(path)"),
            **dict.fromkeys(
                ("variables", "get_variables"), "compiled.create_stateful_request for a model whose states are inputs"
            ),
            "clone": "the model itself, which never changes",
            **dict.fromkeys(
                (
                    *("add_parameters", "remove_parameter", "replace_parameter", "add_results", "remove_result"),
                    *("add_sinks", "remove_sink", "add_variables", "remove_variable", "set_friendly_name"),
                ),
                "model.with_inputs and model.with_outputs, or edit model.to_proto() and read it with core.read_model",
            ),
            "set_rt_info": "model.with_affinity for the devices of nodes",
            **dict.fromkeys(("get_parameter_index", "get_result_index"), "model.inputs and model.outputs"),
            **dict.fromkeys(("get_output_op", "get_output_size", "get_output_partial_shape"), "model.outputs"),
            **dict.fromkeys(
                ("sinks", "get_sinks", "get_sink_index", "get_variable_by_id"),
                "compiled.create_stateful_request for a model whose states are inputs",
            ),
        }
    )

    def __init__(self, file: ModelFile) -> None:
        """The model of a complete file. Use `read_model` to create it."""
        constants = Constants(file)
        super().__init__(file, constants)
        self._types = ValueTypes(file, constants)

    def __copy__(self) -> Self:
        model = object.__new__(type(self))
        model.__dict__.update(self.__dict__)
        return model

    def __deepcopy__(self, memo: object) -> Self:
        return self  # it never changes

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a Model cannot be pickled: pickle {'its path' if self.path else 'model.to_bytes()'} instead")

    @property
    def nodes(self) -> Nodes:
        """Views of the nodes, created on access."""
        return Nodes(self)

    # ---- values

    @property
    def initializers(self) -> Initializers:
        """Name -> view of each initializer, including sparse ones, in the file's order. A part has only those it
        reads."""
        return Initializers(self)

    def constant(self, value: int, *, aligned: bool = True) -> NDArray[Any]:
        """A constant's data, read-only. It is a view of the file if its type and alignment allow this.

        ``aligned``: False returns a view even if the elements are not aligned, as is common in protobuf files. NumPy
        supports such arrays, but is slower.
        """
        number = self._constant_number(value)
        return self.constants.array(number) if aligned else self.constants.view(number)

    def constant_type(self, value: int) -> ValueType:
        """A constant's element type and shape, without reading its data."""
        return self.constants.type_of(self._constant_number(value))

    def constant_dtype(self, value: int) -> np.dtype[Any] | None:
        """A constant's element type; None if it is not known."""
        return self.constants.dtype(self._constant_number(value))

    def constant_origin(self, value: int) -> tuple[object, int]:
        """An object and a number that identify a constant's data. Constants that share data have the same."""
        return self.constants.origin(self._constant_number(value))

    def type_of(self, value: int, *, infer: bool = True) -> ValueType:
        """The known type of a value: the constant's own type, the declared or supplied type, or the inferred type.

        Inference runs once for the whole file. Unknown parts of the type are None. ``infer``: False does not run
        inference, but uses its earlier results.
        """
        return self._types.type_of(self.file_value(value), infer)

    def type_table(self) -> tuple[tuple[ValueType, ...], NDArray[np.int32]]:
        """`type_of` all values: the distinct types, and int32[num_values] with the index of each value's type. Computed
        once for the file and the supplied types."""
        kinds, kind_of = self._types.table()
        return kinds, kind_of if self._values is None else kind_of[self._values]

    def kinds_of(self, values: NDArray[np.int32]) -> tuple[tuple[ValueType, ...], NDArray[np.int32]]:
        """`type_of` many values: the distinct types, and the index of each value's type."""
        return self._types.kinds_of(values if self._values is None else self._values[values])

    def is_tensor(self, value: int, *, infer: bool = True) -> bool:
        """Whether a value may be a tensor: False only for values known to be sequences, maps or optionals."""
        return self._types.is_tensor(self.file_value(value), infer)

    def known_type_of(self, value: int, *, shape: bool = False) -> ValueType:
        """`type_of`, for callers that require the type. If the element type is unknown, or with ``shape`` the rank,
        raises `ModelError` with the value and the node that computes it."""
        known = self.type_of(value)
        if known.dtype is not None and (known.shape is not None or not shape):
            return known
        missing = "element type" if known.dtype is None else "rank"
        node = int(self.producer[value])
        source = "which is an input of the model" if node < 0 else f"which {self._describe(node)} computes"
        name = self.value_name(value)
        raise self.file.error(
            f"the {missing} of value {name!r}, {source}, is not declared and cannot be inferred: "
            f"supply it with model.with_types({{{name!r}: (dtype, shape)}})"
        )

    def type_message(self, value: int) -> bytes:
        """The known type of a value as an encoded TypeProto, also for sequences and optionals; empty if unknown."""
        return self._types.message_of(self.file_value(value))

    def has_type(self, value: int) -> bool:
        """Whether the type can be declared in a file: the element type is known, or the value is not a tensor."""
        return self._types.is_known(self.file_value(value))

    def body_inputs(self, node: int) -> Sequence[ValueType]:
        """The types of the inputs of the body of a Loop or Scan in any iteration, without symbols. Empty if they are
        unknown."""
        return self._types.body_inputs(self.file_node(node))

    def with_types(self, stated: Mapping[str, ValueType | tuple[Any, Any]]) -> Model:
        """The same model with additional types: name of a value -> type.

        A type is a `ValueType`, or a pair of a NumPy dtype and a shape. A shape consists of sizes, symbols and None, or
        is None if the rank is unknown. The types add to those in the file and in earlier calls. They may replace a
        symbol or an unknown dimension by a size or a symbol. Inference uses them, and they are saved with the model.
        Raises `ModelError` for an unknown value, or for a type that contradicts the known type.
        """
        if not isinstance(stated, Mapping):
            raise TypeError(f"expected a mapping from names of values to types, got {type(stated).__name__}")
        model = self._copy()
        model._types = self._types.with_supplied(
            {self.file_value(self.value_id(plain(name))): _value_type(self, name, one) for name, one in stated.items()}
        )
        return model

    def states_more_than(self, other: Model) -> bool:
        """Whether this model has types from `with_types` that ``other``, a model of the same file, does not have."""
        return any(other._types.supplied.get(value) != stated for value, stated in self._types.supplied.items())

    def with_inferred_types(self) -> Model:
        """The same model with the results of shape inference, if it ran, as stated types. They are saved with the
        model, so readers need not infer them."""
        if not self._types.has_inferred:
            return self
        model = self._copy()
        model._types = self._types.with_inferred()
        return model

    def with_inner_sizes(self) -> Model:
        """A copy for planning that has inferred sizes for values inside the model whose size the file leaves out, or
        gives as a symbol that no input has, such as onnxruntime's ``unk__0``. Returns this object if no size is open.
        Inference runs once for the file, when a type is first read. The types of this model do not change."""
        types_ = self._types.with_inner_sizes()
        if types_ is self._types:
            return self
        model = self._copy()
        model._types = types_
        return model

    @functools.cached_property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs of the model, in the graph's order."""
        return tuple(self._port(value) for value in self.input_ids)

    @functools.cached_property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs of the model, in the graph's order."""
        return tuple(self._port(value) for value in self.output_ids)

    # ---- the file around the graph

    @property
    def path(self) -> str | None:
        """The path of the file, None for bytes."""
        return self.file.path

    @property
    def stored_bytes(self) -> int:
        """The size of the file and of the model's external data, in B."""
        constants = self.constants
        external = [number for number in self.file_constants.tolist() if constants.is_external(number)]
        return len(self.file.data) + sum(constants.nbytes(number) for number in external if constants.is_plain(number))

    @property
    def ir_version(self) -> int:
        """The version of the ONNX file format, as stated in the file."""
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
        """The author's version of the model."""
        return self.file.model_version

    @property
    def doc_string(self) -> str:
        """The documentation string in the file."""
        return self.file.header_text(6)

    # ---- affinity

    @functools.cached_property
    def affinity(self) -> Mapping[str, str]:
        """Node key -> device, from `with_affinity` or else from the file: a node's ``metadata_props["affinity"]``, or
        onnxruntime's ``layer_ann`` if it is missing."""
        stated = self._stated_affinity
        if stated is not None:
            if self._nodes is not None:
                stated = {key: device for key, device in stated.items() if self.is_key(key)}
            return types.MappingProxyType(dict(stated))
        file = self.file
        affinity: dict[str, str] = {}
        for annotation in (True, False):  # "affinity" replaces "layer_ann"
            chosen = (file.affinity_kind == _LAYER_ANNOTATION) == annotation
            if self._nodes is not None:
                chosen &= np.isin(file.affinity_node, self._nodes)
            for entry in np.flatnonzero(chosen).tolist():
                device = file.index.text(int(file.affinity_value[entry]))
                if device:
                    affinity[file.keys.key_of(int(file.affinity_node[entry]))] = device
        return types.MappingProxyType(affinity)

    def with_affinity(self, affinity: Mapping[str, str]) -> Model:
        """The same model with these affinities: node key -> device. Other nodes have no affinity.

        Keys of Constant nodes are accepted and ignored. Keys of nodes in function calls (``call/node``) apply if the
        call is inlined, and are not saved. Raises `ModelError` for an unknown key.
        """
        if not isinstance(affinity, Mapping):
            raise TypeError(f"expected a mapping from node keys to devices, got {type(affinity).__name__}")
        stated: dict[str, str] = {}
        for key, device in affinity.items():
            if not isinstance(device, str) or not device:
                raise self.file.error(f"affinity of {shown(key)}: expected the name of a device, found {shown(device)}")
            key, device = plain(key), plain(device)
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
        """A model of only these nodes, over the same bytes. Weights are not copied.

        ``nodes``: indices, in any order. Its inputs are the outer values that the nodes read or their nested graphs
        capture, without constants, in the order of first use. Its outputs are the values that other nodes of this model
        read and the outputs of the graph, in the order of computation. Constants are shared, and functions are
        included.
        """
        (part,) = self.extract_all([nodes], [self.name if name is None else name])
        return part

    def extract_all(self, parts: Iterable[Iterable[int] | NDArray[Any]], names: Sequence[str]) -> list[Model]:
        """`extract` many sets of nodes in one call, which takes a tenth of the time for many small sets."""
        groups = [np.array(nodes if isinstance(nodes, np.ndarray) else list(nodes), ndmin=1) for nodes in parts]
        for nodes in groups:
            if nodes.size == 0 or nodes.ndim != 1 or nodes.dtype.kind not in "iu":
                raise self.file.error(f"extract: expected at least one node index, found {nodes!r}")
        if not groups:
            return []
        sizes = [len(nodes) for nodes in groups]
        every, part_of = np.concatenate(groups), np.repeat(np.arange(len(groups)), sizes)
        if every.min() < 0 or every.max() >= self.num_nodes:
            last = self.num_nodes - 1
            raise self.file.error(f"extract: expected nodes 0..{last}, found {every.min()}..{every.max()}")
        pairs = np.unique(part_of * self.num_nodes + every.astype(np.int64))
        start = np.searchsorted(pairs, np.arange(len(groups) + 1) * self.num_nodes)
        selections = select(self, (pairs % self.num_nodes).astype(np.int32), start)
        return [self._part(selection, name) for selection, name in zip(selections, names, strict=True)]

    def extract_constants(self, values: Iterable[int], name: str | None = None) -> Model:
        """A model without nodes or inputs, whose outputs are these constants."""
        chosen = list(values)
        for value in chosen:
            self._constant_number(value)
        return self._part(select_constants(chosen), self.name if name is None else name)

    def with_outputs(self, names: Iterable[str], *, keep: bool = True) -> Model:
        """The same model with these values as additional outputs. Values that are already outputs, and constants, are
        omitted. Raises `ModelError` for an unknown value.

        ``keep``: False drops all other outputs, and the nodes that only they need. The inputs stay. The outputs then
        have the order of ``names``, which must not be empty, and of constants only those that are outputs are accepted.
        """
        chosen = list(dict.fromkeys(map(self.value_id, self._listed(names, "with_outputs"))))
        known = set(self.output_ids)
        more = [value for value in chosen if value not in known and not self.is_constant[value]]
        if keep:
            return self._of_nodes(np.arange(self.num_nodes, dtype=np.int32), (*self.output_ids, *more))
        for value in chosen:
            if value not in known and self.is_constant[value]:
                raise self.file.error(f"{self.value_name(value)!r} is a constant, which cannot become an output")
        if not chosen:
            raise self.file.error("with_outputs: expected at least one value")
        return self._of_nodes(self._needed(chosen), tuple(chosen))

    @property
    def default_inputs(self) -> tuple[str, ...]:
        """The inputs that have a default: initializers that are also inputs of the graph, from IR version 4 on. They
        count as constants unless `with_inputs` makes them inputs."""
        names, file = self._listed_defaults, self.file
        if names is None and file.ir_version >= _FIRST_IR_WITH_DEFAULTS:
            listed = file.info_value[file.info_section == _GRAPH_INPUT].tolist()
            names = tuple(file.index.value_name(value) for value in listed if file.value_constant[value] >= 0)
        return tuple(name for name in names or () if self._is_constant_here(name))

    def with_inputs(self, names: Iterable[str]) -> Model:
        """The same model with these `default_inputs` as inputs, which may be given to an inference or left out. They
        are no longer constants, so devices can compute less in advance. An exported model requires them.

        Raises `ModelError` for a name that is not one of `default_inputs`.
        """
        chosen, known = list(dict.fromkeys(self._listed(names, "with_inputs"))), self.default_inputs
        for name in chosen:
            if name not in known:
                listed = ", ".join(known) or "none"
                raise self.file.error(
                    f"no input {name!r} with a default{did_you_mean(name, known)}; inputs with a default: {listed}"
                )
        if not chosen:
            return self
        values = [self.value_id(name) for name in chosen]
        opened = self._copy()
        opened.is_constant = self.is_constant.copy()
        opened.is_constant[values] = False
        listed_at = {int(value): at for at, value in enumerate(self.file.info_value.tolist())}
        inputs = sorted((*self.input_ids, *values), key=lambda value: listed_at.get(self.file_value(value), 0))
        opened.input_ids = tuple(inputs)
        part = opened._of_nodes(np.arange(self.num_nodes, dtype=np.int32), self.output_ids)
        # Read again with the stated types only, because types were inferred with the defaults as constants.
        model = part._rebuilt(header_of(part), {}, (), {}, part._types.stated())
        defaults = {name: self.constant(value) for name, value in zip(chosen, values, strict=True)}
        model._defaults = types.MappingProxyType({**self._defaults, **defaults})
        model._listed_defaults = known
        return model if self._stated_affinity is None else model.with_affinity(self.affinity)

    def _listed(self, names: Any, method: str) -> Iterable[str]:
        """``names``. Raises `ModelError` if it is one name, or not iterable."""
        if isinstance(names, str) or not isinstance(names, Iterable):
            write = f"; write [{shown(names)}]" if isinstance(names, str) else ""
            raise self.file.error(f"{method}: expected a list of names, found {shown(names)}{write}")
        return names

    def _is_constant_here(self, name: str) -> bool:
        value = self.find_value(name)
        return value is not None and bool(self.is_constant[value])

    def _needed(self, values: Iterable[int]) -> NDArray[np.int32]:
        """The nodes that compute these values, and the nodes that those read."""
        needed = np.zeros(self.num_nodes, np.bool_)
        stack = list(values)
        while stack:
            node = int(self.producer[stack.pop()])
            if node >= 0 and not needed[node]:
                needed[node] = True
                for read in (self.node_inputs, self.node_captures):
                    stack.extend(value for value in read[node].tolist() if value >= 0)
        return np.flatnonzero(needed).astype(np.int32)

    def _of_nodes(self, nodes: NDArray[np.int32], output_ids: tuple[int, ...]) -> Model:
        """A model of these nodes, ascending, with all inputs. The nodes must compute the outputs and what they read."""
        inputs, outputs, captures = (
            ragged.take(nodes) for ragged in (self.node_inputs, self.node_outputs, self.node_captures)
        )
        read = [ragged.values for ragged in (inputs, outputs, captures)]
        kept = np.unique(np.concatenate([*read, np.array([*self.input_ids, *output_ids], np.int32)]))
        kept = kept[kept >= 0].astype(np.int32)
        new_id = np.full(self.num_values + 1, -1, np.int32)  # the last entry is for absent values, -1
        new_id[kept] = np.arange(len(kept), dtype=np.int32)
        new_node = np.full(self.num_nodes + 1, -1, np.int32)
        new_node[nodes] = np.arange(len(nodes), dtype=np.int32)
        ops, op_type_of = np.unique(self.op_type_of[nodes], return_inverse=True)
        selection = Selection(
            parent_nodes=nodes,
            parent_values=kept,
            inputs=Ragged(inputs.indptr, new_id[inputs.values]),
            outputs=Ragged(outputs.indptr, new_id[outputs.values]),
            captures=Ragged(captures.indptr, new_id[captures.values]),
            producer=new_node[self.producer[kept]],
            is_constant=self.is_constant[kept],
            input_ids=tuple(new_id[list(self.input_ids)].tolist()),
            output_ids=tuple(new_id[list(output_ids)].tolist()),
            op_types=tuple(self.op_types[op] for op in ops.tolist()),
            op_type_of=op_type_of.reshape(-1).astype(np.int32),
        )
        return self._part(selection, self.name)

    def to_bytes(self, max_constant_bytes: int | None = None, *, with_keys: bool = False) -> bytes:
        """The model as an encoded ModelProto, joined from ranges of the file. External data are included.

        ``max_constant_bytes``: return a skeleton in which constants with a larger encoding are graph inputs.
        ``with_keys``: name the nodes of the main graph by their keys, which a backend's messages and counters then
        contain. Raises `ModelError` if external data cannot be read, or if the result would exceed 2 GiB.
        """
        return b"".join(model_parts(self, self._types, max_constant_bytes, with_keys=with_keys))

    def to_bytes_lending(self, at_least: int, *, with_keys: bool = False) -> tuple[bytes, dict[str, NDArray[Any]]]:
        """The model and its larger weights, for a backend that reads weights from memory. This avoids a copy.

        The encoded ModelProto contains only the name, type and dimensions of tensors of at least ``at_least`` bytes
        whose types have the same layout in NumPy and ONNX. Their external data refer to a location that does not exist.
        The mapping from name to array contains them as read-only views of the file, even if they are not aligned (see
        `constant`). ``with_keys``: as for `to_bytes`.

        Raises `ModelError` if data cannot be read, or if the rest would exceed 2 GiB.
        """
        constants, lent = self.constants, {}
        for number in self.file_constants.tolist():
            if constants.is_plain(number) and constants.nbytes(number) >= at_least:
                lent[number] = self.file.index.value_name(int(self.file.constant_value[number]))
        parts = model_parts(self, self._types, lent=lent, with_keys=with_keys)
        return b"".join(parts), {name: constants.view(number) for number, name in lent.items()}

    def to_proto(self) -> onnx.ModelProto:
        """The model as an independent ModelProto."""
        import onnx

        proto: onnx.ModelProto = onnx.ModelProto.FromString(self.to_bytes())
        return proto

    def save(self, path: str | os.PathLike[str], *, external_above: int | None = None) -> None:
        """Write an ONNX file atomically. Weights are copied from file to file.

        ``external_above``: store tensors of at least this many bytes in a second file, ``<name>.1.data``, in the same
        folder. By default, weights of up to 128 MiB are stored in the model file; if they are larger, tensors of 1 KiB
        or more are external. The page "Reading, saving and splitting models" of the
        documentation describes the layout.

        Raises `ModelError` if external data cannot be read, or if the model file would exceed 2 GiB. If writing fails,
        raises `OSError`, leaves no files behind, and does not change an existing model.
        """
        save_model(self, self._types, path, external_above)

    def write(self, path: str | os.PathLike[str], data_file: DataFile | None = None) -> None:
        """`save` to paths that do not exist, as one of many files. ``data_file``: filled with the external data. The
        caller must call `hetero.base.files.sync_files`."""
        write_model(self, self._types, path, data_file, is_new=True)

    def with_nodes(self, header: bytes, replaced: Mapping[int, Sequence[bytes]], infos: Sequence[bytes]) -> Model:
        """The model with some nodes replaced, without the affinities of `with_affinity`.

        ``header``: the encoded ModelProto without the graph; see `header_of`. ``replaced``: node -> encoded NodeProtos.
        ``infos``: encoded ValueInfoProtos to add. Larger weights are shared instead of copied.
        """
        return self._rebuilt(header, replaced, [encode_field(_VALUE_INFO, info) for info in infos], {})

    def with_folded(self, nodes: Iterable[int], results: Mapping[str, NDArray[Any]]) -> Model:
        """The model without these nodes, and with their results as constants, without the affinities of
        `with_affinity`.

        ``results``: name of a value -> array, which is not copied and must not change. It must have the same layout in
        NumPy and ONNX. Results that are left out must not be read by other nodes.
        """
        fields = [
            encode_field(_INITIALIZER_FIELD, encode_lent_tensor(name, onnx_dtype_of(array.dtype), array.shape))
            for name, array in results.items()
        ]
        return self._rebuilt(header_of(self), dict.fromkeys(nodes, ()), fields, results)

    def _rebuilt(
        self,
        header: bytes,
        replaced: Mapping[int, Sequence[bytes]],
        fields: Sequence[bytes],
        arrays: Mapping[str, NDArray[Any]],
        types_: StatedTypes | None = None,
    ) -> Model:
        """See `with_nodes`. ``fields``: fields to add to the graph. ``arrays``: the data of new initializers.
        ``types_``: of the inputs and outputs; by default, all known types."""
        file, constants = self.file, self.constants
        lent = {
            file.index.value_name(int(file.constant_value[number])): number
            for number in self.file_constants[file.constant_source[self.file_constants] == _INITIALIZER].tolist()
            if constants.is_raw(number) and constants.nbytes(number) >= _LENT_BYTES
        }
        data = memoryview(b"".join(edited_parts(self, types_ or self._types, header, replaced, fields, lent.values())))
        model = Model(
            ModelFile(
                data,
                label=file.label,
                path=file.path,
                folder=file.folder,
                follow_links=file.follow_links,
                external_data=file.external_data,
            )
        )
        for name, number in lent.items():
            borrower = model.file.value_constant[model.file.index.value_id(name)]
            model.constants.borrow(int(borrower), constants, number)
        model._defaults, model._listed_defaults = self._defaults, self._listed_defaults
        lender = LentArrays(list(arrays.values()))
        for number, (name, array) in enumerate(arrays.items()):
            array.flags.writeable = False
            model.constants.borrow(int(model.file.value_constant[model.file.index.value_id(name)]), lender, number)
        return model

    def _constant_number(self, value: int) -> int:
        number = int(self.file.value_constant[self.file_value(value)])
        if number < 0:
            raise self.file.error(f"value {self.value_name(value)!r} is not a constant")
        return number

    def _port(self, value: int) -> Port:
        types_, number, name = self._types, self.file_value(value), self.value_name(value)
        if types_.is_declared(number):
            stated = types_.type_of(number)
            return Port(name, stated.dtype, stated.shape, default=self._defaults.get(name))

        def find() -> tuple[np.dtype[Any] | None, tuple[Dim, ...] | None, bool, Holder]:
            known = types_.type_of(number)
            is_tensor = types_.is_tensor(number)
            return known.dtype, known.shape, is_tensor, Holder() if is_tensor else holder_of(types_.message_of(number))

        default = self._defaults.get(name)
        return Port(name, types_.stated_dtype(number), None, declared=False, find=find, default=default)

    def describe_nodes(self) -> str:
        """A text for messages: ``of 'name' (node 'a')``, or the number of nodes with the first and the last node."""
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
        """A copy that the caller may change, without cached properties that depend on the changes."""
        model = copy.copy(self)
        for name in ("affinity", "inputs", "outputs"):
            model.__dict__.pop(name, None)
        return model

    def _part(self, selection: Selection, name: str) -> Model:
        part = object.__new__(Model)
        part.file, part.constants, part.name = self.file, self.constants, name
        part._types, part._stated_affinity, part._defaults = self._types, self._stated_affinity, self._defaults
        part._listed_defaults = self._listed_defaults
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
        return f"<Model {self.name!r} of {self.file.label}: {counted(self.num_nodes, 'node')}>"

    def _repr_html_(self) -> str:
        """Inputs, outputs and the most frequent operators, for notebooks."""
        counts = np.bincount(self.op_type_of, minlength=len(self.op_types))
        order = np.argsort(-counts, kind="stable").tolist()
        ops = ", ".join(f"{self.op_types[i]} × {counts[i]:,}" for i in order[:_MOST_OPS] if counts[i])
        title = f"Model {shortened(self.name, 80)} of {self.file.label}: {counted(self.num_nodes, 'node')}"
        rows = itertools.chain(port_rows(self.inputs, self.outputs), [("operators", ops, None, None)])
        return html_table(title, PORT_COLUMNS, rows, len(self.inputs) + len(self.outputs) + 1)


def _value_type(model: Model, name: str, stated: ValueType | tuple[Any, Any]) -> ValueType:
    """The validated type of a value, from an argument of `Model.with_types`."""
    import ml_dtypes  # noqa: F401  registers its names in NumPy

    try:
        dtype, shape = (stated.dtype, stated.shape) if isinstance(stated, ValueType) else stated
        dims = None if shape is None else tuple(_dim(dim) for dim in shape)
        value_type = ValueType(None if dtype is None else np.dtype(dtype), dims)
    except (TypeError, ValueError) as error:
        raise model.file.error(
            f"type of value {name!r}: expected a dtype and a shape, found {shown(stated)}"
        ) from error
    if value_type.dtype is not None and not onnx_dtype_of(value_type.dtype):
        raise model.file.error(f"type of value {name!r}: ONNX has no dtype {value_type.dtype}")
    if any(isinstance(dim, int) and dim < 0 for dim in dims or ()):
        raise model.file.error(f"type of value {name!r}: shape {shown(list(dims or ()))} has a negative dim")
    if any(isinstance(dim, int) and dim > _LARGEST_DIM for dim in dims or ()):
        raise model.file.error(f"type of value {name!r}: its shape has a dim larger than {_LARGEST_DIM}")
    return value_type


def _dim(dim: Any) -> Dim:
    return dim if dim is None or isinstance(dim, str) else operator.index(dim)
