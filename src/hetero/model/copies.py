"""Copies of nodes for single readers, such as a DequantizeLinear for each of the nodes that read its result.

The key of the node and that of the reader, joined by a slash, are the key of the copy and the name of its result. The
other readers read the node itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .types import onnx_dtype_of
from .wire import encode_tensor_type, encode_value_info
from .write import header_of

if TYPE_CHECKING:
    import onnx

    from .model import Model

__all__ = ["copies_named", "copy_key", "may_copy", "with_copies"]

_LONGEST = 10_000  # characters of a copy's key; finding the node and the reader in it takes quadratic time


def copy_key(model: Model, node: int, reader: int) -> str:
    """The key of the copy of a node for a reader, and the name of its result."""
    return f"{model.key_of(node)}/{model.key_of(reader)}"


def may_copy(model: Model, node: int, reader: int) -> bool:
    """Whether `with_copies` can give a reader its own copy of a node: the node has one result, nested graphs of the
    reader do not read it, and the name of the copy is free and not too long."""
    made = model.node_outputs[node]
    if len(made) != 1 or made[0] < 0 or made[0] not in model.node_inputs[reader] or len(model.node_captures[node]):
        return False
    name = copy_key(model, node, reader)
    if len(name) > _LONGEST:
        return False
    is_free = model.file.keys.entry_of(name) < 0 and model.file.index.value_id(name) < 0
    return is_free and made[0] not in model.node_captures[reader]


def with_copies(model: Model, reads: Iterable[tuple[int, int]]) -> tuple[Model, NDArray[np.int32]]:
    """The model with a copy of a node for each of these pairs of a node and a reader, for which `may_copy` is true; and
    int32[num_nodes], the node of ``model`` that each of its nodes is or copies."""
    import onnx

    pairs = sorted(set(reads))
    protos: dict[int, onnx.NodeProto] = {}
    copies: dict[int, list[onnx.NodeProto]] = {}
    infos = []
    for node, reader in pairs:
        for one in (node, reader):
            if one not in protos:
                protos[one] = onnx.NodeProto()
                protos[one].CopyFrom(model.nodes[one].proto())
        value, name = int(model.node_outputs[node][0]), copy_key(model, node, reader)
        copy = onnx.NodeProto()
        copy.CopyFrom(model.nodes[node].proto())
        copy.name = copy.output[0] = name
        copies.setdefault(node, []).append(copy)
        old = model.value_name(value)
        protos[reader].input[:] = [name if read == old else read for read in protos[reader].input]
        kind = model.type_of(value, infer=False)
        if kind.dtype is not None:
            infos.append(encode_value_info(name, encode_tensor_type(onnx_dtype_of(kind.dtype), kind.shape)))
    # A reader may also be copied for its own readers: its copies then read the same copies as the reader itself.
    for node, made in copies.items():
        for copy in made:
            copy.input[:] = protos[node].input
    replaced = {
        node: [one.SerializeToString() for one in (proto, *copies.get(node, ()))] for node, proto in protos.items()
    }
    result = model.with_nodes(header_of(model), replaced, infos)
    count = np.ones(model.num_nodes, np.int64)
    count[list(copies)] = [1 + len(made) for made in copies.values()]
    source = np.repeat(np.arange(model.num_nodes, dtype=np.int32), count)
    if model.stated_affinity is not None:
        result = result.with_affinity(model.stated_affinity)
    return result, source


def copies_named(model: Model, keys: Iterable[str]) -> list[tuple[int, int]]:
    """The node and the reader of each key that names a copy. Other keys are left out."""
    found = (_copy_named(model, key) for key in keys)
    return [pair for pair in found if pair is not None]


def _copy_named(model: Model, key: str) -> tuple[int, int] | None:
    end = key.find("/", 1) if len(key) <= _LONGEST else -1
    while end > 0:
        node, reader = model.find_key(key[:end]), model.find_key(key[end + 1 :])
        if node is not None and reader is not None and may_copy(model, node, reader):
            return node, reader
        end = key.find("/", end + 1)
    return None
