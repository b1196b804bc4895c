"""The columns of the report that describe the model: operators, tensors and attributes, as Netron shows them.

The model is not trusted: names are cleaned, and long texts and lists are shortened.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.defs
import onnx.numpy_helper
from numpy.typing import NDArray

from ..base.formatting import counted
from ..base.names import clean, shortened
from ..errors import ModelError
from ..model.model import Model
from ..model.types import Ragged, ValueType, dtype_of, element_bits, holder_of, onnx_dtype_of
from .numbers import Numbers

__all__ = ["model_columns", "type_text"]

_INVENTED = re.compile(r"unk__\d+")

_MOST_ELEMENTS = 8  # of a constant or a list whose elements are shown
_MOST_LETTERS = 200  # of a text that is an attribute or an element


def model_columns(model: Model, order: NDArray[np.int32]) -> dict[str, Any]:
    """``ops``, ``types``, ``tensors``, ``reads``, ``writes``, ``captures``, ``attributes`` and ``attributes_of`` of the
    nodes in this order."""
    reads, writes, captures = (
        each.take(order) for each in (model.node_inputs, model.node_outputs, model.node_captures)
    )
    # Tensors are numbered by their first use, so that neighbors have similar numbers, which compress well.
    used = np.concatenate([writes.values, reads.values, captures.values])
    at = np.concatenate([_rows(writes) * 3, _rows(reads) * 3 + 1, _rows(captures) * 3 + 2])
    used = used[np.argsort(at, kind="stable")]
    values, first = np.unique(used[used >= 0], return_index=True)
    values = values[np.argsort(first)]
    number_of = np.full(len(model.producer) + 1, -1, np.int64)  # the last stands for value -1, an absent one
    number_of[values] = np.arange(len(values))
    attribute_sets, attributes_of = _attributes(model, order)
    return {
        "ops": [_operator(model, name, domain) for name, domain in _operators(model)],
        **_tensors(model, values, number_of),
        "reads": _column(reads, number_of),
        "writes": _column(writes, number_of),
        "captures": _column(captures, number_of),
        "attributes": attribute_sets,
        "attributes_of": attributes_of,
    }


def type_text(dtype: str | None, shape: Sequence[int | str | None] | None) -> str:
    """``float32[1, 3, height, ?]``. Names that onnx's inference invents for unknown sizes are left out."""
    if dtype is None:
        return "type unknown"
    if shape is None:
        return f"{dtype} of unknown rank"
    sizes = ("?" if dim is None or _INVENTED.fullmatch(str(dim)) else shortened(str(dim), 40) for dim in shape)
    return f"{dtype}[{', '.join(sizes)}]"


def _rows(ragged: Ragged) -> NDArray[np.int64]:
    """The row of each value."""
    return np.repeat(np.arange(len(ragged)), np.diff(ragged.indptr))


def _column(ragged: Ragged, number_of: NDArray[np.int64]) -> dict[str, list[int]]:
    """The number of tensors of each node, and the tensors as differences from the node's number, which are short in
    JSON; null for an absent one."""
    numbers = number_of[ragged.values]
    steps = (numbers - _rows(ragged)).tolist()
    for absent in np.flatnonzero(numbers < 0).tolist():
        steps[absent] = None
    return {"count": np.diff(ragged.indptr).tolist(), "tensor": steps}


def _operators(model: Model) -> list[tuple[str, str]]:
    return list(zip(model.file.op_names, model.file.op_domains, strict=True))


def _operator(model: Model, name: str, domain: str) -> dict[str, Any]:
    """An operator with the names that its definition gives to inputs and outputs, if onnx knows it."""
    version = model.opsets.get(domain, 0)
    formal: dict[str, Any] = {"reads": [], "writes": []}
    if version and onnx.defs.has(name, version, domain):
        schema = onnx.defs.get_schema(name, version, domain)
        formal = {"reads": [one.name for one in schema.inputs], "writes": [one.name for one in schema.outputs]}
    return {"name": clean(name), "domain": clean(domain), "version": version, **formal}


# ---- tensors


def _tensors(model: Model, values: NDArray[np.integer[Any]], number_of: NDArray[np.int64]) -> dict[str, Any]:
    kinds, kind_of = model.type_table()
    types = Numbers[tuple[str, int]]()
    known = [types[_kind_text(kind), _num_bytes(kind)] for kind in kinds]
    is_small = [0 <= _size(kind) <= _MOST_ELEMENTS for kind in kinds]
    type_of = []
    for value, kind in zip(values.tolist(), kind_of[values].tolist(), strict=True):
        number = known[kind]
        if kinds[kind].dtype is None and (holder := holder_of(model.type_message(value))).kinds:
            element = "unknown type" if holder.dtype is None else _dtype_name(holder.dtype)
            number = types[" of ".join([*holder.kinds, element]), -1]
        type_of.append(number)
    constants = np.flatnonzero(model.is_constant[values])
    contents = [
        _contents(model, value) if is_small[kind] else ""
        for value, kind in zip(values[constants].tolist(), kind_of[values[constants]].tolist(), strict=True)
    ]
    return {
        "types": list(types),
        "tensors": {
            "name": [clean(model.value_name(value)) for value in values.tolist()],
            "type": type_of,
            "constant": constants.tolist(),
            "contents": contents,
            "outputs": number_of[list(model.output_ids)].tolist(),
        },
    }


def _kind_text(kind: ValueType) -> str:
    return type_text(None if kind.dtype is None else _dtype_name(kind.dtype), kind.shape)


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return "string" if dtype.hasobject else dtype.name


def _size(kind: ValueType) -> int:
    """The number of elements, -1 if it is unknown."""
    if kind.shape is None or not kind.has_sizes:
        return -1
    return math.prod(dim for dim in kind.shape if isinstance(dim, int))


def _num_bytes(kind: ValueType) -> int:
    """In ONNX's storage; -1 if it is unknown."""
    size = _size(kind)
    if kind.dtype is None or kind.dtype.hasobject or size < 0:
        return -1
    return (size * element_bits(onnx_dtype_of(kind.dtype)) + 7) // 8


def _contents(model: Model, value: int) -> str:
    """The elements of a small constant; empty if they cannot be read."""
    try:
        array = model.constant(value, aligned=False)
    except ModelError:  # for example, a missing file of weights
        return ""
    return _list_text(array.ravel().tolist()) if array.ndim else _text(array.item())


# ---- attributes


def _attributes(model: Model, order: NDArray[np.int32]) -> tuple[list[tuple[str, ...]], list[int]]:
    """The distinct sets of attributes, as names and values in turn, and the number of each node's set; -1 for none."""
    sets = Numbers[tuple[str, ...]]()
    number_of: dict[int, int] = {}  # by group of nodes with equal attributes
    numbers = np.full(model.num_nodes, -1)
    for node, group in enumerate(model.nodes.attribute_groups.tolist()):
        if group not in number_of:
            try:
                attributes = model.nodes[node].attributes
            except ModelError as error:  # its text names the node
                numbers[node] = sets["unreadable", _text(str(error).encode("utf-8", "replace"))]
                continue
            texts = ((shortened(name, 80), _text(value)) for name, value in attributes.items())
            number_of[group] = sets[tuple(itertools.chain.from_iterable(texts))] if attributes else -1
        numbers[node] = number_of[group]
    return list(sets), numbers[order].tolist()


def _text(value: Any) -> str:
    """A value of an attribute, or an element of a constant."""
    if isinstance(value, bytes):
        return shortened(value[: 4 * _MOST_LETTERS].decode("utf-8", "replace"), _MOST_LETTERS)
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, list):
        return _list_text(value)
    if isinstance(value, onnx.TensorProto):
        return type_text(_onnx_name(value.data_type), tuple(value.dims)) + _tensor_contents(value)
    if isinstance(value, onnx.GraphProto):
        counts = Counter(node.op_type for node in value.node).most_common(_MOST_ELEMENTS)
        listed = ", ".join(f"{shortened(op, 40)} {count:,}" for op, count in counts)
        return f"graph of {counted(len(value.node), 'node')}" + (f": {listed}" if listed else "")
    if isinstance(value, onnx.SparseTensorProto):
        return f"sparse {type_text(_onnx_name(value.values.data_type), tuple(value.dims))}"
    return shortened(" ".join(str(value)[: 4 * _MOST_LETTERS].split()), _MOST_LETTERS)


def _list_text(values: list[Any]) -> str:
    listed = [_text(value) for value in values[:_MOST_ELEMENTS]]
    if len(values) > len(listed):
        listed.append(f"… ({len(values):,} in all)")
    return f"[{', '.join(listed)}]"


def _onnx_name(number: int) -> str | None:
    dtype = dtype_of(number)
    return None if dtype is None else _dtype_name(dtype)


def _tensor_contents(tensor: onnx.TensorProto) -> str:
    """`` = `` and the elements of a small tensor whose data are in the file; otherwise empty."""
    if math.prod(tensor.dims) > _MOST_ELEMENTS or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return ""
    try:
        array = onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError):  # the data do not match the type, or onnx does not know it
        return ""
    return f" = {_list_text(array.ravel().tolist()) if array.ndim else _text(array.item())}"
