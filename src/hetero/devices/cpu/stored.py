"""Exports and imports models of the CPU device.

The payload holds the model and small results of its folded nodes (those that depend only on constants). With
``CACHE_MODE`` OPTIMIZE_SPEED, it also holds the large results and the packed weights. All arrays can be memory-mapped.
An import parses the nodes; plans are made when shapes occur. Plans are not exported: kernels trust the parameters of
their calls, so the file would have to be trusted too, and planning takes less time than reading the weights.

By default, packed weights are left out. Making them takes about 0.6 ms per MB. An import checks each byte that it
stores, which takes 0.2 ms per MB from the page cache and 1 ms or more from a disk that reads 1 GB/s.

Packed weights are only used by the hetero version and instruction set that packed them. Otherwise the import packs the
weights, which are in the payload too. On the same instruction set, an imported model gives bitwise the same results.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec
from numpy.typing import NDArray

from ... import _kernels
from ...artifact.model import read_payload_model, write_payload_model
from ...artifact.payload import ArrayRef, PayloadReader, PayloadWriter
from ...errors import Corrupt, HeteroError
from ...model.model import Model
from ...model.types import Port
from .hosted import Ends
from .planner import Planner
from .registry import NodePlan
from .values import MAX_BYTES, PACKING_VERSION, Packed, Value

__all__ = ["PAYLOAD_VERSION", "StoredModel", "read_stored", "version_descriptor", "write_stored"]

PAYLOAD_VERSION = "1"
_MIN_BYTES = 1024  # smaller packed constants are not stored; the import packs them again
_SMALL_BYTES = 4096  # results of folded nodes up to this size are always stored
_MAX_LEVELS = 64  # of nested bodies, and of nested tuples in a layout
_GUESSED_SIZE = 8  # for a dimension without a size in the model
_Struct = msgspec.Struct


class _Folded(_Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes that depend only on constants (by index), and those of their results that other nodes read (by name)."""

    nodes: list[int]
    values: dict[str, ArrayRef]


class _Source(_Struct, frozen=True, forbid_unknown_fields=True):
    """The constant from which a packed one was made. ``name``: in the model, or in the body that ``way`` leads to
    (node and graph for every level). ``packed``: instead, the number of another packed constant, if not -1."""

    way: list[tuple[int, int]] = msgspec.field(default_factory=list)
    name: str = ""
    packed: int = -1


class _PackedArray(_Struct, frozen=True, forbid_unknown_fields=True):
    source: _Source
    layout: Any
    array: ArrayRef


class _Payload(_Struct, frozen=True, forbid_unknown_fields=True):
    settings: dict[str, Any]
    folded: _Folded
    packed: list[_PackedArray]


@dataclasses.dataclass(frozen=True, slots=True)
class StoredModel:
    """The contents of a payload. ``settings``: the properties of the exported model that its results depend on."""

    model: Model
    settings: Mapping[str, Any]
    _payload: _Payload
    _reader: PayloadReader

    def planner(self, nodes: list[NodePlan], transform: bool, packed: Packed, ends: Ends | None = None) -> Planner:
        """A planner of the model with the stored folded values. Adds the stored packed constants to ``packed``."""
        model, folded = self.model, frozenset(self._payload.folded.nodes)
        values = self._payload.folded.values
        if transform == bool(self.settings.get("DISABLE_TRANSFORMATIONS", False)):
            folded, values = frozenset(), {}  # rewriting QDQ models moves results from node to node
        constants: dict[int, Value] = {}
        for name, ref in values.items():
            array = self._reader.array(ref)
            constants[model.value_id(name)] = Value(array.dtype, array.shape, array, shared=True)
        if folded and not 0 <= min(folded) <= max(folded) < len(nodes):
            raise Corrupt(f"folded nodes {min(folded)} to {max(folded)}: the model has {len(nodes)} nodes")
        parts = {} if ends is None else ends.parts
        planner = Planner(model, nodes, transform, constants=constants, packed=packed, folded=folded, **parts)
        _check_folded(planner, folded, constants)
        if {**self._reader.version, **version_descriptor()} == self._reader.version:
            self._add_packed(planner, packed)
        return planner

    def _add_packed(self, planner: Planner, packed: Packed) -> None:
        arrays: list[NDArray[Any]] = []
        for entry in self._payload.packed:
            source = _source_of(entry.source, planner, arrays)
            array = self._reader.array(entry.array)
            packed[id(source), _as_layout(entry.layout)] = (source, array)
            arrays.append(array)


def version_descriptor() -> dict[str, str]:
    """The inputs of packing, except the model."""
    from ...base.version import __version__

    return {
        "payload": PAYLOAD_VERSION,
        "packing": str(PACKING_VERSION),
        "hetero": __version__,
        "architecture": f"{platform.machine()}-{_kernels.variant()}",
    }


def write_stored(
    writer: PayloadWriter, planner: Planner, inputs: Sequence[Port], settings: Mapping[str, Any], derived: bool
) -> None:
    """Write the payload of a model. ``derived``: with packed weights and large results of folded nodes. If nothing is
    packed yet, the model is then planned first, to pack its weights: for its stated shapes, with `_GUESSED_SIZE` for
    dimensions without a size."""
    if derived and not planner.packed and _may_pack(planner):
        _plan_once(planner, inputs)
    writer.version.update(version_descriptor())
    write_payload_model(writer, planner.model)
    folded = _folded_of(writer, planner, MAX_BYTES if derived else _SMALL_BYTES)
    writer.add_json("cpu.json", _Payload(dict(settings), folded, _packed_of(writer, planner) if derived else []))


def read_stored(reader: PayloadReader) -> StoredModel:
    """Read the payload that `write_stored` wrote. Raises `Corrupt` if it is not valid."""
    payload = reader.read_json("cpu.json", _Payload)
    return StoredModel(read_payload_model(reader), payload.settings, payload, reader)


def _may_pack(planner: Planner) -> bool:
    """Whether the model or one of its bodies may have constants."""
    return bool(planner.folded) or bool(planner.model.is_constant.any()) or any(plan.nested for plan in planner.nodes)


def _plan_once(planner: Planner, inputs: Sequence[Port]) -> None:
    if planner.input_ids != tuple(planner.model.input_ids):
        return  # the shapes of what hosted nodes compute are not stated
    shapes, dtypes = [], []
    for port in inputs:
        if port.shape is None or port.dtype is None:
            return
        shapes.append(tuple(dim if isinstance(dim, int) else _GUESSED_SIZE for dim in port.shape))
        dtypes.append(port.dtype)
    try:
        planner.first(shapes, dtypes)
    except HeteroError:  # the guessed sizes do not fit the model; the import packs its weights
        return


# ---- folded nodes


def _folded_of(writer: PayloadWriter, planner: Planner, max_bytes: int) -> _Folded:
    """The folded nodes that an import need not compute, because results of up to ``max_bytes`` replace them."""
    known = planner.stored_constants()
    read = {v for i, plan in enumerate(planner.nodes) if i not in planner.folded for v in plan.inputs}
    read.update(planner.output_ids)
    replaced: list[int] = []
    stored: set[int] = set()
    for i in sorted(planner.folded, reverse=True):  # the readers of a result come before the node that computes it
        results = {value for value in planner.nodes[i].outputs if value in read and value >= 0}
        # The planner drops large results that only folded nodes read; an import computes them again, if it needs them.
        if all(value in known and _data_of(known[value]).nbytes <= max_bytes for value in results):
            replaced.append(i)
            stored |= results
        else:
            read.update(planner.nodes[i].inputs)
    values = {planner.model.value_name(value): writer.add_array(_data_of(known[value])) for value in sorted(stored)}
    return _Folded(replaced[::-1], values)


def _data_of(value: Value) -> NDArray[Any]:
    assert value.data is not None, "made of constants"
    return value.data


def _check_folded(planner: Planner, folded: frozenset[int], constants: Mapping[int, Value]) -> None:
    """Raise `Corrupt` unless ``constants`` are exactly results of folded nodes, among them all that others read.

    The planner's nodes count, which may compute what other nodes of the model do (see `qdq`)."""
    model, nodes = planner.model, planner.nodes
    made = {value for i in folded for value in nodes[i].outputs}
    if any(value not in made for value in constants):
        raise Corrupt("a stored value is not the result of a folded node")
    missing = made - constants.keys() - {-1}
    left = [plan for i, plan in enumerate(nodes) if i not in folded and i not in planner.replaced]
    read = set(model.output_ids).union(*(plan.inputs for plan in left))
    if missing & read:
        raise Corrupt(f"value {model.value_name(min(missing & read))!r} of a folded node is not stored")


# ---- packed constants


def _packed_of(writer: PayloadWriter, planner: Planner) -> list[_PackedArray]:
    sources: dict[int, _Source] = {}
    for path, owner in planner.descendants():
        for number, value in list(owner.stored_constants().items()):
            if value.data is not None and id(value.data) not in sources:
                sources[id(value.data)] = _Source(
                    [(node, int(graph)) for node, graph in path], owner.model.value_name(number)
                )
    entries: list[_PackedArray] = []
    for (key, layout), (_, array) in list(planner.packed.items()):
        source = sources.get(key)
        if source is None or array.nbytes < _MIN_BYTES or layout == "aligned" or not _is_portable(layout):
            continue
        sources[id(array)] = _Source(packed=len(entries))
        entries.append(_PackedArray(source, _as_json(layout), writer.add_array(array)))
    return entries


def _source_of(source: _Source, planner: Planner, packed: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The constant that was packed. Raises `Corrupt` if the model does not have it."""
    if source.packed >= 0:
        if source.packed >= len(packed):
            raise Corrupt(f"packed constant {source.packed} does not come before the one made from it")
        return packed[source.packed]
    if len(source.way) > _MAX_LEVELS:
        raise Corrupt(f"a constant is in a body at level {len(source.way)}; at most {_MAX_LEVELS} are supported")
    for node, graph in source.way:
        nested = planner.nodes[node].nested if 0 <= node < len(planner.nodes) else None
        if nested is None or not 0 <= graph < len(nested.graphs):
            raise Corrupt(f"node {node} has no body {graph}")
        planner = planner.child(node, graph)[0]
    value = planner.model.find_value(source.name)
    constant = None if value is None else planner.constant(value)
    if constant is None or constant.data is None:
        raise Corrupt(f"{source.name!r} is not a constant of the model")
    return constant.data


def _is_portable(layout: Hashable) -> bool:
    """Whether a layout means the same in another process. Large numbers may be addresses."""
    if isinstance(layout, tuple):
        return all(map(_is_portable, layout))
    if isinstance(layout, int):
        return abs(layout) < 1 << 31
    return layout is None or isinstance(layout, (str, bytes))


def _as_json(layout: Hashable) -> Any:
    if isinstance(layout, tuple):
        return [_as_json(item) for item in layout]
    return {"bytes": layout.hex()} if isinstance(layout, bytes) else layout


def _as_layout(stored: Any, level: int = 0) -> Hashable:
    if isinstance(stored, list) and level < _MAX_LEVELS:
        return tuple(_as_layout(item, level + 1) for item in stored)
    if isinstance(stored, dict) and stored.keys() == {"bytes"} and isinstance(stored["bytes"], str):
        return bytes.fromhex(stored["bytes"])
    if stored is None or isinstance(stored, (str, int)):
        return stored
    raise Corrupt(f"{stored!r} is not a layout of packed constants")
