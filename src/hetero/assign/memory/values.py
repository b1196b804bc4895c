"""What memory sees of a model: values with sizes, who makes them and who reads them, as arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...model.types import ValueType, element_bits, onnx_dtype_of

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["Values", "bytes_of_type", "reads_of", "values_of"]

_STRING = 8  # onnx.TensorProto.STRING
_LARGEST = 2**62  # more than there is anywhere, and sums of very many stay finite
_WITH_GRAPHS = ("If", "Loop", "Scan", "SequenceMap")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Values:
    """The values of a graph of ``num_nodes`` nodes that are numbered in topological order.

    ``producer``: int32 [v], the node that makes each value, -1 for inputs of the model and constants. ``bytes``:
    float64 [v], 0 where the size is not known (whole numbers, exact below 2**53). ``known``, ``is_constant``,
    ``is_output``: bool [v]. ``read_value``, ``read_node``: int32 [r], every value that a node reads and the node, each
    pair once, ordered by value and node. ``own``: float64 [num_nodes], constants inside of a node, such as those of
    nested graphs. All read-only.
    """

    num_nodes: int
    producer: NDArray[np.int32]
    bytes: NDArray[np.float64]
    known: NDArray[np.bool_]
    is_constant: NDArray[np.bool_]
    is_output: NDArray[np.bool_]
    read_value: NDArray[np.int32]
    read_node: NDArray[np.int32]
    own: NDArray[np.float64]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self)[1:]:
            getattr(self, field.name).setflags(write=False)

    @classmethod
    def from_arrays(
        cls,
        num_nodes: int,
        producer: ArrayLike,
        size: ArrayLike,
        read_value: ArrayLike,
        read_node: ArrayLike,
        is_constant: ArrayLike | None = None,
        is_output: ArrayLike | None = None,
        own: ArrayLike | None = None,
    ) -> Values:
        """From arrays as above; reads in any order, and pairs may repeat. A ``size`` that is not finite is unknown."""
        made = np.array(producer, np.int32)
        sizes = np.array(size, np.float64)
        pairs = np.unique(np.array(read_value, np.int64) * num_nodes + np.array(read_node, np.int64))
        known = np.isfinite(sizes)
        return cls(
            num_nodes,
            made,
            np.where(known, sizes, 0.0),
            known,
            np.zeros(len(made), np.bool_) if is_constant is None else np.array(is_constant, np.bool_),
            np.zeros(len(made), np.bool_) if is_output is None else np.array(is_output, np.bool_),
            (pairs // num_nodes).astype(np.int32) if num_nodes else np.zeros(0, np.int32),
            (pairs % num_nodes).astype(np.int32) if num_nodes else np.zeros(0, np.int32),
            np.zeros(num_nodes) if own is None else np.array(own, np.float64),
        )

    def renumbered(self, order: NDArray[np.integer]) -> Values:
        """The same values, with ``order[i]`` as node i. ``order``: int [num_nodes], a topological order."""
        number = np.empty(self.num_nodes + 1, np.int32)
        number[order] = np.arange(self.num_nodes)
        number[-1] = -1  # of what no node makes
        return Values.from_arrays(
            self.num_nodes,
            number[self.producer],
            np.where(self.known, self.bytes, np.inf),
            self.read_value,
            number[self.read_node],
            self.is_constant,
            self.is_output,
            self.own[order],
        )


def values_of(model: Model, sizes: Mapping[str, int] | None = None) -> Values:
    """The values of a model. ``sizes``: symbolic dim -> size. O(values + reads); may run shape inference, once.

    Constants take their raw bytes; strings among them, and nodes with nested graphs, which may hold constants, what
    they take in the file.
    """
    kinds, kind_of = model.type_table()
    given = dict(sizes or {})
    per_kind = np.array([bytes_of_type(kind, given) for kind in kinds] or [0.0])
    size = per_kind[kind_of]
    file = model.file
    strings = np.flatnonzero(model.is_constant & ~np.isfinite(size))
    numbers = file.value_constant[model.file_values[strings]]
    size[strings] = file.constant_end[numbers] - file.constant_start[numbers]
    is_output = np.zeros(model.num_values, np.bool_)
    is_output[list(model.output_ids)] = True
    nested = np.array([name in _WITH_GRAPHS for name in model.op_types] or [False], np.bool_)[model.op_type_of]
    at = model.file_nodes
    own = np.where(nested, file.node_end[at] - file.node_start[at], 0)
    value, node = reads_of(model)
    return Values.from_arrays(model.num_nodes, model.producer, size, value, node, model.is_constant, is_output, own)


def bytes_of_type(kind: ValueType, sizes: Mapping[str, int] | None = None) -> float:
    """Bytes of a tensor's elements as raw data; infinite where its element type, or a size, is not known."""
    if kind.dtype is None or kind.shape is None or onnx_dtype_of(kind.dtype) in (0, _STRING):
        return np.inf
    count = 1
    for dim in kind.shape:
        size = (sizes or {}).get(dim) if isinstance(dim, str) else dim
        if not isinstance(size, int) or size < 0:
            return np.inf
        count *= size
    return float(min((count * element_bits(onnx_dtype_of(kind.dtype)) + 7) // 8, _LARGEST))


def reads_of(model: Model) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Every value that a node reads, and the node, as two arrays; what nested graphs capture is read by their node."""
    values: list[NDArray[Any]] = []
    nodes = []
    for rows in (model.node_inputs, model.node_captures):
        values.append(rows.values)
        nodes.append(np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(rows.indptr)))
    value, node = np.concatenate(values), np.concatenate(nodes)
    given = value >= 0
    return value[given], node[given]
