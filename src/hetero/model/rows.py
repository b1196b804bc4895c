"""The structure of a model or of a part of it: rows of its file's arrays, with their own numbering."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._onnx import edges
from ..base.names import first_few
from ..base.plain import plain
from ..errors import ModelError, did_you_mean, shown
from .constants import Constants
from .file import ModelFile
from .types import Ragged

if TYPE_CHECKING:
    from ..partition.graph import Graph

__all__ = ["Rows", "read_only"]

_Ids = NDArray[np.int32]
_T = TypeVar("_T", bound=np.generic)

_FROM_NODE = 2  # constant_source of a Constant node
_MAX_KEYS_TO_COMPARE = 20_000  # above this, errors suggest no similar key, because difflib's cost is quadratic


class Rows:
    """Numbered nodes and values of a graph, and their names. `Model` describes the arrays.

    ``_nodes`` and ``_values``: the file's numbers of the nodes and values of a part, ascending; None if it has all.
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
    name: str

    def __init__(self, file: ModelFile, constants: Constants) -> None:
        """All nodes and values of a file."""
        self.file = file
        self.constants = constants
        self.name = file.index.graph_name
        self._nodes: _Ids | None = None
        self._values: _Ids | None = None
        self._stated_affinity: Mapping[str, str] | None = None
        self.node_inputs = Ragged(file.input_indptr, file.inputs)
        self.node_outputs = Ragged(file.output_indptr, file.outputs)
        self.node_captures = Ragged(file.capture_indptr, file.captures)
        self.producer = file.value_producer
        self.is_constant = read_only(file.value_constant >= 0)
        self.op_types = file.op_types
        self.op_type_of = file.node_op
        inputs = file.info_value[file.info_section == 11]
        self.input_ids = tuple(inputs[~self.is_constant[inputs]].tolist())
        self.output_ids = tuple(file.info_value[file.info_section == 12].tolist())

    # ---- nodes

    @property
    def num_nodes(self) -> int:
        """The number of nodes, without ``Constant`` nodes."""
        return len(self.op_type_of)

    def key_of(self, node: int) -> str:
        """The key of a node: its name if it is unique in the file, otherwise the name of its first output."""
        return self.file.keys.key_of(self.file_node(node))

    def find_key(self, key: str) -> int | None:
        """The node with this key, or None."""
        node = self.file.keys.entry_of(plain(key))
        if self._nodes is not None and node >= 0:
            at = int(np.searchsorted(self._nodes, node))
            node = at if at < len(self._nodes) and self._nodes[at] == node else -1
        return node if 0 <= node < self.num_nodes else None

    def index_of(self, key: str) -> int:
        """The node with this key. If there is none, raises `ModelError` with the most similar key."""
        node = self.find_key(key)
        if node is None:
            raise self._unknown_key(key)
        return node

    def is_key(self, key: str) -> bool:
        """Whether a key refers to a node or a Constant node, or may refer to a node in a call (``call/node``)."""
        if self.find_key(key) is not None or key in self.constant_keys:
            return True
        functions = self.file.functions
        end = key.rfind("/") if functions else -1
        while end > 0:
            call = self.find_key(key[:end])
            if call is not None:
                domain, _, op_type = self.op_types[self.op_type_of[call]].rpartition("::")
                return (domain, op_type) in functions
            end = key.rfind("/", 0, end)
        return False

    @functools.cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys of all nodes."""
        key_of = self.file.keys.key_of
        return tuple(key_of(node) for node in self.file_nodes.tolist())

    @functools.cached_property
    def constant_keys(self) -> frozenset[str]:
        """The keys of Constant nodes, which are not nodes of the graph."""
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

    @property
    def stated_affinity(self) -> Mapping[str, str] | None:
        """The affinities from `Model.with_affinity`; None if the file's own affinities apply."""
        return self._stated_affinity

    @property
    def opsets(self) -> Mapping[str, int]:
        """Operator domain -> imported version; "" is ONNX's own domain."""
        return self.file.opsets

    # ---- values

    @property
    def num_values(self) -> int:
        """The number of values: inputs, constants and outputs of nodes."""
        return len(self.producer)

    def value_name(self, value: int) -> str:
        """The name of a value."""
        return self.file.index.value_name(self.file_value(value))

    def value_names(self, values: NDArray[np.int32]) -> Iterator[str]:
        """The names of several values."""
        return map(self.file.index.value_name, self.file_values[values].tolist())

    def value_id(self, name: str) -> int:
        """The value with this name. Raises `ModelError` if the graph has none."""
        value = self.find_value(name) if isinstance(name, str) else None
        if value is None:
            raise self.file.error(f"the graph has no value {shown(name)}{self._similar_value(name)}")
        return value

    def find_value(self, name: str) -> int | None:
        """The value with this name, or None."""
        value = self.file.index.value_id(plain(name))
        if self._values is not None and value >= 0:
            at = int(np.searchsorted(self._values, value))
            value = at if at < len(self._values) and self._values[at] == value else -1
        return None if value < 0 else value

    @functools.cached_property
    def read_count(self) -> NDArray[np.int64]:
        """int64[num_values]: the number of reads of each value, including captures and outputs of the graph."""
        outputs = np.array(self.output_ids, np.int32)
        read = np.concatenate((self.node_inputs.values, self.node_captures.values, outputs))
        return read_only(np.bincount(read[read >= 0], minlength=self.num_values))

    # ---- numbers in the file

    @property
    def is_whole_file(self) -> bool:
        """Whether this is a complete file; False for results of `Model.extract` and `Model.with_outputs`."""
        return self._nodes is None

    def file_node(self, node: int) -> int:
        """The file's number of a node."""
        if not 0 <= node < self.num_nodes:
            raise IndexError(f"node {node} is not in 0..{self.num_nodes - 1}")
        return int(node) if self._nodes is None else int(self._nodes[node])

    def file_value(self, value: int) -> int:
        """The file's number of a value."""
        if not 0 <= value < len(self.producer):
            raise IndexError(f"value {value} is not in 0..{self.num_values - 1}")
        return int(value if self._values is None else self._values[value])

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
        """The file's numbers of the constants; for a whole file, unused constants are included."""
        if self._values is None:
            return np.arange(len(self.file.constant_value), dtype=np.int32)
        return self.file.value_constant[self._values[self.is_constant]]

    def _similar_value(self, name: str) -> str:
        node = self.find_key(name) if isinstance(name, str) else None
        if node is not None:
            made = self.node_outputs[node]
            return f": it is a node, which makes {first_few([self.value_name(value) for value in made[made >= 0]], 3)}"
        if self.num_values > _MAX_KEYS_TO_COMPARE:
            return ""
        return did_you_mean(name, map(self.value_name, range(self.num_values)))

    def _unknown_key(self, key: str) -> ModelError:
        guess = did_you_mean(key, self.keys) if self.num_nodes <= _MAX_KEYS_TO_COMPARE else ""
        return self.file.error(f"the model has no node {key!r}{guess}")


def read_only(array: NDArray[_T]) -> NDArray[_T]:
    array.flags.writeable = False
    return array
