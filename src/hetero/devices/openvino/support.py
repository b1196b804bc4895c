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

from ...errors import HeteroError, raise_out_of_memory
from ...model.bodies import BODY_ATTRIBUTES, Body, bodies_of
from ..handover import values_not_passing
from . import backend
from .differences import why_different
from .integers import inexact

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["originals", "read", "refusals", "wrong_results"]

_FIRST_WITHOUT_AXES, _FIRST_WITH_AXES_AS_INPUT = 13, 18  # opsets; see `_converts_otherwise`
_WITH_EMPTY_LISTS = ("Concat", "ConstantOfShape", "Reshape", "Resize", "Squeeze")
_WITH_PARAMETERS = frozenset((
    *("CastLike", "Clip", "Expand", "Gather", "GatherElements", "GatherND", "Pad", "ReduceL1", "ReduceL2", "ReduceMax"),
    *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Resize", "Slice", "Split", "Squeeze", "Tile"),
    *("Unsqueeze", "Upsample"),
))  # fmt: skip
"""Operators whose result may be their first operand as it is, so that OpenVINO may remove the node. It may find that
the others have no effect even if they are not constants of the model."""

_REMOVED = _WITH_PARAMETERS | frozenset((
    *("Add", "And", "Cast", "Concat", "DepthToSpace", "Div", "Dropout", "Einsum", "Flatten", "Identity", "Max", "Mean"),
    *("Min", "Mul", "Or", "Pow", "SpaceToDepth", "Sub", "Sum", "Transpose", "Where", "Xor"),
))  # fmt: skip
"""Those, and operators whose result may be any of their operands."""

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


def wrong_results(model: Model) -> dict[int, str]:
    """Node -> reason, for each node that OpenVINO accepts although its results may be wrong."""
    reasons = ((node, _computes_otherwise(model, node)) for node in range(model.num_nodes))
    return {node: why for node, why in reasons if why}


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


def _computes_otherwise(model: Model, node: int) -> str:
    """Why the results of a node, or of one in its bodies, may be wrong; empty if they are not. Holds for OpenVINO's CPU
    (2026.4)."""
    op_type = model.op_types[int(model.op_type_of[node])]
    rules = (_keeps_old_results, _rounds_up_windows, _converts_otherwise, _is_empty, why_different)
    why = next(filter(None, (rule(model, node, op_type) for rule in rules)), "")
    if why or op_type not in BODY_ATTRIBUTES:
        return why
    try:
        bodies = bodies_of(model, node)
    except HeteroError as error:  # OpenVINO does not read it either
        raise_out_of_memory(error)
        return ""
    if op_type != "If":
        why = _passes_values(bodies[0], int(model.nodes[node].attributes.get("num_scan_inputs", 0)))
        if why:
            return why
    inside = (_computes_otherwise(body.model, at) for body in bodies for at in range(body.model.num_nodes))
    return next(filter(None, inside), "")


def _keeps_old_results(model: Model, node: int, op_type: str) -> str:
    """OpenVINO does not write the scanned results of a Loop without iterations, or the results of Unique for an empty
    input, so they keep the elements and shapes of an earlier run."""
    inputs = model.node_inputs[node].tolist()
    if op_type == "Unique" and inputs:
        shape = model.type_of(inputs[0]).shape
        if shape is None or not all(isinstance(size, int) and size for size in shape):
            return "OpenVINO returns results of an earlier run if the input is empty"
    elif op_type == "Loop":
        is_scanned = len(model.node_outputs[node]) > len(inputs) - 2
        limits = [value for value in inputs[:2] if value >= 0]  # the number of iterations and the first condition
        if is_scanned and not all(model.is_constant[value] and (model.constant(value) > 0).all() for value in limits):
            return "OpenVINO returns scanned results of an earlier run if a Loop has no iterations"
    return ""


def _rounds_up_windows(model: Model, node: int, op_type: str) -> str:
    """With ceil_mode, OpenVINO's MaxPool adds a window that lies in the padding alone, its average counts padding
    beyond the pads, and its LpPool scales partial windows."""
    if op_type not in ("MaxPool", "AveragePool", "LpPool"):
        return ""
    attributes = model.nodes[node].attributes
    if not attributes.get("ceil_mode", 0):
        return ""
    if op_type == "MaxPool":
        kernel = attributes.get("kernel_shape") or []
        ones = [1] * len(kernel)
        strides, dilations = (attributes.get(name) or ones for name in ("strides", "dilations"))
        ends = (attributes.get("pads") or [0] * 2 * len(kernel))[len(kernel) :]
        windows = zip(kernel, strides, dilations, ends, strict=False)  # OpenVINO rejects attributes of wrong lengths
        is_same = all(stride + end <= (size - 1) * step + 1 for size, stride, step, end in windows)
    else:
        is_same = op_type == "AveragePool" and not attributes.get("count_include_pad", 0)
    return "" if is_same else f"OpenVINO computes {op_type} with these attributes and ceil_mode in another way"


def _converts_otherwise(model: Model, node: int, op_type: str) -> str:
    """OpenVINO ignores the attribute axes of some reductions in opsets 13 to 17 and storage_order, and does not remove
    the axis that a vector adds in a MatMulInteger."""
    inputs = [value for value in model.node_inputs[node].tolist() if value >= 0]
    if op_type in ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp"):
        opset = model.opsets.get("", 0)
        if _FIRST_WITHOUT_AXES <= opset < _FIRST_WITH_AXES_AS_INPUT and model.nodes[node].attributes.get("axes"):
            return f"OpenVINO ignores the attribute axes of {op_type} in opset {opset}"
    elif op_type == "MaxPool":
        if len(model.node_outputs[node]) > 1 and model.nodes[node].attributes.get("storage_order", 0):
            return "OpenVINO ignores storage_order"
    elif op_type == "MatMulInteger":
        shapes = [model.type_of(value).shape for value in inputs[:2]]
        if any(shape is None or len(shape) < 2 for shape in shapes):
            return "OpenVINO does not remove the axis that a vector adds"
    return ""


def _is_empty(model: Model, node: int, op_type: str) -> str:
    """OpenVINO reads an empty constant as one number, unless it is a list of axes or sizes, and computes some results
    without elements in another shape, ends the inference or ends the process."""
    if op_type in _WITH_EMPTY_LISTS:
        return ""
    inputs = model.node_inputs[node].tolist()
    for value in (*(inputs[:1] if op_type.startswith("Reduce") else inputs), *model.node_outputs[node].tolist()):
        if value >= 0 and 0 in (model.type_of(value).shape or ()):
            return f"OpenVINO may compute tensors without elements incorrectly, such as {model.value_name(value)!r}"
    return ""


def _passes_values(body: Body, num_scanned: int) -> str:
    """OpenVINO copies the states of a Loop or Scan one after the other. If a new state is the memory of another input
    of the body, that input may have its next value by then: two states that are exchanged become equal. A scanned
    input that is returned as it is has another rank, and OpenVINO crashes at some results that are returned twice.

    ``num_scanned``: the number of scanned inputs of a Scan, 0 for a Loop."""
    model = body.model
    if len(set(body.results)) < len(body.results):
        return "OpenVINO may end the process if a body returns a value twice"
    own = model.input_ids[: len(model.input_ids) - len(body.captures)]
    is_loop = not num_scanned
    passable = list(own)[2:] if is_loop else list(own)  # not the iteration number and the condition
    states = passable[: len(passable) - num_scanned]
    results = [model.output_ids[place] for place in body.results][is_loop:]
    source = {value: value for value in passable}  # value -> the input that it may be
    variable = set(model.input_ids)  # values that depend on inputs
    for node in range(model.num_nodes):
        inputs = [value for value in model.node_inputs[node].tolist() if value in variable]
        if not inputs and variable.isdisjoint(model.node_captures[node].tolist()):
            continue
        outputs = model.node_outputs[node].tolist()
        variable.update(value for value in outputs if value >= 0)
        op_type = model.op_types[int(model.op_type_of[node])]
        if op_type in _WITH_PARAMETERS:
            inputs = model.node_inputs[node].tolist()[:1]
        elif op_type == "Where":
            inputs = model.node_inputs[node].tolist()[1:]
        operands = variable.intersection(inputs)
        if op_type in _REMOVED and len(operands) == 1:
            source.update((value, source[of]) for of in operands if of in source for value in outputs if value >= 0)
    for at, result in enumerate(results):
        passed = source.get(result)
        if passed is None or (at < len(states) and passed == states[at]) or (at >= len(states) and passed in states):
            continue
        return f"OpenVINO may return wrong values if a body passes on its input {model.value_name(passed)!r}"
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
