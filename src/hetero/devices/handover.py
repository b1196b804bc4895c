"""Helpers for devices whose backends parse ONNX: passing models and values to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.types import dtype_of

if TYPE_CHECKING:
    import onnx

    from ..model.model import Model

__all__ = ["values_not_passing", "with_keys"]

# Operators whose outputs may have a type that occurs nowhere else in the model.
_TYPE_MAKERS = frozenset(("Cast", "CastLike", "QuantizeLinear", "BitCast", "DFT", "STFT"))


def with_keys(model: Model, encoded: bytes) -> bytes:
    """``encoded`` with the nodes of the main graph renamed to their keys, so that the backend's messages and counters
    contain the keys. Nodes are matched by their outputs."""
    names, text = model.file.index.arrays["node_name"], model.file.index.text
    if all(text(int(names[node])) == key for node, key in zip(model.file_nodes.tolist(), model.keys, strict=True)):
        return encoded
    import onnx

    keys = {}
    for index, key in enumerate(model.keys):
        for value in model.node_outputs[index].tolist():
            if value >= 0:
                keys[model.value_name(value)] = key
    proto: onnx.ModelProto = onnx.ModelProto.FromString(encoded)
    for node in proto.graph.node:
        node.name = next((keys[output] for output in node.output if output in keys), node.name)
    named: bytes = proto.SerializeToString()
    return named


def values_not_passing(model: Model, passes: Callable[[np.dtype[Any]], bool]) -> dict[int, tuple[str, np.dtype[Any]]]:
    """The nodes with an input or output that cannot be passed to a backend: node -> name of the value, dtype. Constants
    are not checked.

    Returns early if no declared type and no operator suggests such a value.
    """
    suspicious = any(name.rpartition("::")[2] in _TYPE_MAKERS for name in model.op_types)
    suspicious = suspicious or any(port.is_stated and port.dtype and not passes(port.dtype) for port in model.inputs)
    if not suspicious:
        numbers = np.unique(model.file.constant_dtype[model.file_constants]).tolist()
        dtypes = [dtype_of(number) for number in numbers]
        suspicious = any(dtype is None or not passes(dtype) for dtype in dtypes)
    not_passing: dict[int, tuple[str, np.dtype[Any]]] = {}
    if not suspicious:
        return not_passing
    for ragged in (model.node_inputs, model.node_outputs):
        for node in range(model.num_nodes):
            for value in ragged[node].tolist():
                if node in not_passing or value < 0 or model.is_constant[value]:
                    continue
                dtype = model.type_of(value).dtype
                if dtype is not None and not passes(dtype):
                    not_passing[node] = model.value_name(value), dtype
    return not_passing
