"""`Values`: a model's values as arrays, with their sizes, producers and readers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ... import _assign
from ...base.grouped import distinct
from ...model.types import ValueType, element_bits, onnx_dtype_of

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = [
    "DEQUANTIZING",
    "QUANTIZING",
    "Values",
    "bytes_of_type",
    "nodes_of",
    "passes_inside",
    "reads_of",
    "sized",
    "values_of",
]

_STRING = 8  # onnx.TensorProto.STRING
_MAX_BYTES = 2**62  # larger sizes are clipped: more than any device has, and sums of many stay finite
DEQUANTIZING = ("DequantizeLinear", "com.microsoft::DequantizeLinear")
QUANTIZING = ("QuantizeLinear", "com.microsoft::QuantizeLinear")
_OPS_WITH_GRAPHS = ("If", "Loop", "Scan", "SequenceMap")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Values:
    """The values of a graph whose ``num_nodes`` nodes are numbered in topological order.

    ``producer``: int32 [num_values], the node that makes each value, -1 for inputs of the model and constants.
    ``bytes``: float64 [num_values], whole numbers, 0 if the size is unknown. ``known``: bool [num_values], whether the
    size is known. ``is_constant``, ``is_output``: bool [num_values]. ``read_value``, ``read_node``: int32 [num_reads],
    each value that a node reads and that node, each pair once, ordered by value and node. ``own``: float64 [num_nodes],
    bytes of constants inside a node, such as those of nested graphs. All arrays are read-only.

    ``bytes_inside``: float64 [k, num_values], the bytes of each value on each of k devices if all that read it are in
    the subgraph that makes it: less than ``bytes`` if it only passes inside units of the device (`Support.units`).
    None: ``bytes`` on every device.
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
    bytes_inside: NDArray[np.float64] | None = None
    _arrays: _assign.ValueArrays | None = dataclasses.field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self)[1:-1]:
            if (array := getattr(self, field.name)) is not None:
                array.setflags(write=False)

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
        bytes_inside: NDArray[np.float64] | None = None,
    ) -> Values:
        """From arrays as above; reads may repeat and be in any order. ``size``: bytes, not finite if unknown."""
        producers = np.array(producer, np.int32)
        sizes = np.array(size, np.float64)
        pairs = distinct(np.array(read_value, np.int64) * num_nodes + np.array(read_node, np.int64))
        known = np.isfinite(sizes)
        return cls(
            num_nodes,
            producers,
            np.where(known, sizes, 0.0),
            known,
            np.zeros(len(producers), np.bool_) if is_constant is None else np.array(is_constant, np.bool_),
            np.zeros(len(producers), np.bool_) if is_output is None else np.array(is_output, np.bool_),
            (pairs // num_nodes).astype(np.int32) if num_nodes else np.zeros(0, np.int32),
            (pairs % num_nodes).astype(np.int32) if num_nodes else np.zeros(0, np.int32),
            np.zeros(num_nodes) if own is None else np.array(own, np.float64),
            bytes_inside,
        )

    @property
    def arrays(self) -> _assign.ValueArrays:
        """A checked copy for the compiled modules, without ``bytes_inside``. Made on first use."""
        arrays = self._arrays
        if arrays is None:
            arrays = _assign.ValueArrays(
                *(self.num_nodes, self.producer, self.bytes, self.is_constant, self.is_output),
                *(self.read_value, self.read_node, self.own),
            )
            object.__setattr__(self, "_arrays", arrays)
        return arrays

    def on(self, device: int) -> Values:
        """The values with ``bytes`` of one device, for values that are read only in the subgraph that makes them."""
        if self.bytes_inside is None:
            return self
        return dataclasses.replace(self, bytes=self.bytes_inside[device], bytes_inside=None)

    def renumbered(self, order: NDArray[np.integer]) -> Values:
        """The same values, with ``order[i]`` as node i. ``order``: int [num_nodes], a topological order."""
        number = np.empty(self.num_nodes + 1, np.int32)
        number[order] = np.arange(self.num_nodes)
        number[-1] = -1  # producer -1 selects the last entry
        return Values.from_arrays(
            self.num_nodes,
            number[self.producer],
            np.where(self.known, self.bytes, np.inf),
            self.read_value,
            number[self.read_node],
            self.is_constant,
            self.is_output,
            self.own[order],
            self.bytes_inside,
        )


def values_of(
    model: Model, sizes: Mapping[str, int] | None = None, units: Sequence[Sequence[NDArray[np.int32]]] = ()
) -> Values:
    """The values of a model. ``sizes``: symbolic dim -> size. ``units``: of each device's answer (`Support.units`).
    O(values + reads + members of units). May run shape inference once, and once more for sizes that the file leaves
    open (`sized`).

    Constants count with their raw bytes, and with their quantized bytes if only a QuantizeLinear reads them. Constants
    of strings, and nodes with nested graphs, which may hold constants, count with their bytes in the file.
    """
    kinds, kind_of = sized(model, units).type_table()
    bytes_per_kind = np.array([bytes_of_type(kind, sizes) for kind in kinds] or [0.0])
    size = bytes_per_kind[kind_of]
    file = model.file
    strings = np.flatnonzero(model.is_constant & ~np.isfinite(size))
    numbers = file.value_constant[model.file_values[strings]]
    size[strings] = file.constant_end[numbers] - file.constant_start[numbers]
    is_output = np.zeros(model.num_values, np.bool_)
    is_output[list(model.output_ids)] = True
    _count_quantized(model, size, is_output)
    has_graphs = np.array([name in _OPS_WITH_GRAPHS for name in model.op_types] or [False], np.bool_)[model.op_type_of]
    row = model.file_nodes
    own = np.where(has_graphs, file.node_end[row] - file.node_start[row], 0)
    value, node = reads_of(model)
    values = Values.from_arrays(model.num_nodes, model.producer, size, value, node, model.is_constant, is_output, own)
    if not any(units):
        return values
    held = _bytes_held(model, values)
    inside = [np.where(passes_inside(values, of_device), held, values.bytes) for of_device in units]
    return dataclasses.replace(values, bytes_inside=np.array(inside))


def sized(model: Model, units: Sequence[Sequence[NDArray[np.int32]]] = ()) -> Model:
    """`Model.with_inner_sizes`, for memory and costs, if the sizes of all inputs are known or a device has units.
    Otherwise the same model, because most of its sizes would stay unknown."""
    if any(units) or all(model.type_of(value).has_sizes for value in model.input_ids):
        return model.with_inner_sizes()
    return model


def _count_quantized(model: Model, size: NDArray[np.float64], is_output: NDArray[np.bool_]) -> None:
    """Change the bytes of constants that only a QuantizeLinear with constant inputs reads to those of its result, and
    those of the result to 0: devices hold only the result, which they compute when they compile the model."""
    nodes = nodes_of(model, QUANTIZING)
    first = model.node_inputs.values[model.node_inputs.indptr[nodes]]
    for node in nodes[(first >= 0) & model.is_constant[first]].tolist():
        read, made = model.node_inputs[node], model.node_outputs[node]
        if len(made) != 1 or made[0] < 0 or not model.is_constant[read[read >= 0]].all():
            continue
        source, result = int(read[0]), int(made[0])
        if model.read_count[source] == 1 and not is_output[result] and size[result] < size[source]:
            size[source], size[result] = size[result], 0.0


def nodes_of(model: Model, names: Sequence[str]) -> NDArray[np.intp]:
    """The nodes with one of these operators that have an input and an output."""
    numbers = [number for number, name in enumerate(model.op_types) if name in names]
    nodes = np.flatnonzero(np.isin(model.op_type_of, numbers)) if numbers else np.zeros(0, np.intp)
    inputs, outputs = model.node_inputs, model.node_outputs
    return nodes[(np.diff(inputs.indptr)[nodes] > 0) & (np.diff(outputs.indptr)[nodes] > 0)]


def _bytes_held(model: Model, values: Values) -> NDArray[np.float64]:
    """float64 [num_values]: what a device holds of values inside units. The result of a DequantizeLinear is held in the
    quantized type; if the node reads a constant, that is counted already. Other values are never stored."""
    held = np.zeros(len(values.producer))
    nodes = nodes_of(model, DEQUANTIZING)
    inputs, outputs = model.node_inputs, model.node_outputs
    source, result = inputs.values[inputs.indptr[nodes]], outputs.values[outputs.indptr[nodes]]
    stored = (source >= 0) & (result >= 0) & ~values.is_constant[source]
    held[result[stored]] = np.minimum(values.bytes[source[stored]], values.bytes[result[stored]])
    return held


def passes_inside(values: Values, units: Sequence[NDArray[np.int32]]) -> NDArray[np.bool_]:
    """bool [num_values]: whether each node that reads the value is in a unit with the node that makes it."""
    num_units, n = len(units), values.num_nodes
    if not num_units:
        return np.zeros(len(values.producer), np.bool_)
    unit = np.repeat(np.arange(num_units), [len(nodes) for nodes in units])
    pairs = np.unique(np.concatenate(units).astype(np.int64) * num_units + unit)  # by node
    first = np.searchsorted(pairs, np.arange(n + 1) * num_units)
    maker = values.producer[values.read_value]
    count = np.where(maker >= 0, np.diff(first)[maker], 0)
    read = np.repeat(np.arange(len(maker)), count)  # once for each unit of the maker
    nth = np.arange(len(read)) - np.repeat(np.cumsum(count) - count, count)
    wanted = values.read_node[read].astype(np.int64) * num_units + pairs[first[maker[read]] + nth] % num_units
    shares = np.zeros(len(maker), np.bool_)
    shares[read[pairs[np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)] == wanted]] = True
    passes = np.zeros(len(values.producer), np.bool_)
    passes[values.read_value] = True
    passes[values.read_value[~shares]] = False
    return passes & ~values.is_output


def bytes_of_type(kind: ValueType, sizes: Mapping[str, int] | None = None) -> float:
    """Bytes of a tensor's elements as raw data; infinite if its element type or a dim is unknown."""
    if kind.dtype is None or kind.shape is None or onnx_dtype_of(kind.dtype) in (0, _STRING):
        return np.inf
    count = 1
    for dim in kind.shape:
        size = (sizes or {}).get(dim) if isinstance(dim, str) else dim
        if not isinstance(size, int) or size < 0:
            return np.inf
        count *= size
    return float(min((count * element_bits(onnx_dtype_of(kind.dtype)) + 7) // 8, _MAX_BYTES))


def reads_of(model: Model) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """int32 [num_reads] each: every value that a node, or a graph nested in it, reads, and the node."""
    values: list[NDArray[Any]] = []
    nodes = []
    for rows in (model.node_inputs, model.node_captures):
        values.append(rows.values)
        nodes.append(np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(rows.indptr)))
    value, node = np.concatenate(values), np.concatenate(nodes)
    is_present = value >= 0  # optional inputs that are left out are -1
    return value[is_present], node[is_present]
