"""Finds the nodes that OpenVINO supports, by its ``read_model`` and ``query_model``.

``read_model`` converts each ONNX node to OpenVINO operations. If it fails, the nodes named in the error are not
supported, and the other nodes are read again; if the error names no node, the group is halved. ``query_model`` then
returns the names of supported operations. A node is supported if all operations that it was converted to are supported.
An operation belongs to the node whose output it computes, or else to the node of an operation that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import raise_out_of_memory
from ..handover import values_not_passing
from . import backend
from .differences import wrong_results
from .integers import inexact

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["originals", "read", "refusals"]

_MAX_IN_MEMORY = 1 << 30  # in B; larger models are read from a file


def read(core: Any, model: Model) -> Any:
    """The model as an OpenVINO model."""
    import os
    import tempfile

    if sum(model.constants.nbytes(n) for n in _sized_constants(model)) <= _MAX_IN_MEMORY:
        return core.read_model(model.to_bytes(with_keys=True))
    with tempfile.TemporaryDirectory(prefix="hetero-") as folder:
        path = os.path.join(folder, "model.onnx")
        model.save(path)
        return core.read_model(path)  # maps the weights, which stay valid after the file is removed


def originals(model: Model, read_model: Any) -> dict[str, str]:
    """Name of an operation -> key of its node."""
    makers = {name: node.key for node in model.nodes for name in node.outputs if name}
    keys: dict[str, str] = {}
    for operation in reversed(read_model.get_ordered_ops()):
        names = {name for output in operation.outputs() for name in output.get_names()}
        key = next((makers[name] for name in sorted(names) if name in makers), None)
        if key is None:
            readers = (target.get_node() for output in operation.outputs() for target in output.get_target_inputs())
            key = next((keys[name] for name in (r.get_friendly_name() for r in readers) if name in keys), None)
        if key is not None and operation.get_type_name() not in ("Result", "Parameter"):
            keys[operation.get_friendly_name()] = key
    return keys


def refusals(core: Any, model: Model, device: str, config: Mapping[str, Any]) -> dict[int, str]:
    """Node -> reason, for each node that is not supported."""
    reasons: dict[int, str] = {}
    for node, (name, dtype) in values_not_passing(model, backend.passes).items():
        reasons[node] = f"{name!r} has dtype {dtype}, which cannot be passed to OpenVINO"
    for node in range(model.num_nodes):
        why = _not_a_parameter(model, node)
        if why:
            reasons.setdefault(node, why)
    reasons = {**inexact(model)[0], **wrong_results(model), **reasons}
    pending = [[node for node in range(model.num_nodes) if node not in reasons]]
    while pending:
        group = pending.pop()
        if not group:
            continue
        part = model if len(group) == model.num_nodes else model.extract(np.array(group, np.int32))
        try:
            converted = read(core, part)
            supported = core.query_model(converted, device, dict(config))
        except Exception as error:
            raise_out_of_memory(error)
            named = _named(part, error)
            if named:
                reasons.update((group[node], why) for node, why in named.items())
                pending.append([node for at, node in enumerate(group) if at not in named])
            elif len(group) == 1:
                reasons[group[0]] = backend.error_text(error)
            else:
                pending += [group[: len(group) // 2], group[len(group) // 2 :]]
            continue
        numbers = {key: node for node, key in zip(group, part.keys, strict=True)}
        kinds = {op.get_friendly_name(): op.get_type_name() for op in converted.get_ops()}
        for name, key in originals(part, converted).items():
            if name not in supported:
                reasons[numbers[key]] = f"OpenVINO's device {device} does not support {kinds[name]}"
    return reasons


def _not_a_parameter(model: Model, node: int) -> str:
    """Why an input of a node cannot be an input of an OpenVINO model; empty if all can."""
    for value in (*model.node_inputs[node].tolist(), *model.node_captures[node].tolist()):
        if value < 0 or model.is_constant[value]:
            continue
        name = model.value_name(value)
        if not model.has_type(value):
            return f"the type of its input {name!r} is unknown"
        if not model.is_tensor(value):
            return f"its input {name!r} is a sequence or an optional"
        if model.type_of(value).shape is None:
            return f"the rank of its input {name!r} is unknown, which OpenVINO does not support"
    return ""


def _sized_constants(model: Model) -> list[int]:
    numbers = model.file_constants
    return [n for n in numbers.tolist() if model.constants.is_plain(n)]


def _named(model: Model, error: Exception) -> dict[int, str]:
    """Node -> reason, for each node that an error names."""
    operators = backend.unknown_operators(error)
    reasons = {}
    for node, op in enumerate(model.op_type_of.tolist()):
        name = model.op_types[op].replace("::", ".")
        if name in operators:
            reasons[node] = f"OpenVINO has no conversion rule for {name}"
    if not reasons:
        for name in backend.failed_nodes(error):
            at = model.find_key(name)
            if at is not None:
                reasons[at] = backend.error_text(error)
    return reasons
