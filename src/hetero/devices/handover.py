"""What devices over backends that parse ONNX share: how models and values are handed to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.types import dtype_of

if TYPE_CHECKING:
    import onnx

    from ..model.model import Model

__all__ = ["values_not_passing", "with_keys"]

# What makes values of types that a model shows nowhere else.
_TYPE_MAKERS = frozenset(("Cast", "CastLike", "QuantizeLinear", "BitCast", "DFT", "STFT"))


def with_keys(model: Model, encoded: bytes) -> bytes:
    """``encoded``, in which each node of the main graph has its key for a name, so that messages and counters of the
    backend name it. Nodes are told by their outputs."""
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
    """Nodes with a value, not a constant, that a backend cannot be handed or hand back: node -> name, dtype.

    A model that shows no such type, and has no operator that makes one, is not looked through.
    """
    suspicious = any(name.rpartition("::")[2] in _TYPE_MAKERS for name in model.op_types)
    suspicious = suspicious or any(port.is_stated and port.dtype and not passes(port.dtype) for port in model.inputs)
    if not suspicious:
        numbers = np.unique(model.file.constant_dtype[model.file_constants]).tolist()
        dtypes = [dtype_of(number) for number in numbers]
        suspicious = any(dtype is None or not passes(dtype) for dtype in dtypes)
    found: dict[int, tuple[str, np.dtype[Any]]] = {}
    if not suspicious:
        return found
    for ragged in (model.node_inputs, model.node_outputs):
        for node in range(model.num_nodes):
            for value in ragged[node].tolist():
                if node in found or value < 0 or model.is_constant[value]:
                    continue
                dtype = model.type_of(value).dtype
                if dtype is not None and not passes(dtype):
                    found[node] = model.value_name(value), dtype
    return found
