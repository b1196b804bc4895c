"""Constraints of profile devices on operators, and the nodes that violate them.

All nodes of an operator are checked at once with arrays. Only nodes that may violate a constraint are checked one by
one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import onnx.defs

    from ..model.model import Model, NodeView
    from ..model.types import ValueType

__all__ = ["OpConstraints", "refusals"]

_SET = "set with shapes={...} or --shape"


@dataclasses.dataclass(frozen=True, slots=True)
class OpConstraints:
    """The conditions under which a profile device supports an operator. None: no condition.

    ``static``: whether all sizes must be known. ``max_size``: axis (negative: from the end) -> the largest size.
    ``align``: axis -> a number of which the size must be a multiple. Both apply to values that have the axis and are
    not made from constants.
    ``attributes``: attribute name -> the allowed values (int, float, str, or a tuple of these).
    """

    dtypes: tuple[np.dtype[Any], ...] | None = None
    max_rank: int | None = None
    min_opset: int | None = None
    max_opset: int | None = None
    static: bool = False
    max_size: Mapping[int, int] = dataclasses.field(default_factory=dict)
    align: Mapping[int, int] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)

    @property
    def limits_types(self) -> bool:
        """Whether it has a condition on the types or shapes of values."""
        return self.dtypes is not None or self.max_rank is not None or self.static or bool(self.max_size or self.align)


def refusals(
    model: Model, ops: Mapping[str, OpConstraints], is_fixed: NDArray[np.bool_]
) -> dict[int, tuple[str, str | None]]:
    """The nodes that violate the constraints of their operators. Node -> operator, and the required and the actual
    property as text, or None if ``ops`` does not contain the operator. ``ops``: operators as in `Model.op_types`.
    ``is_fixed``: bool[num_values], the values to which limits on sizes do not apply."""
    refused: dict[int, tuple[str, str | None]] = {}
    for number, name in enumerate(model.op_types):
        nodes = np.flatnonzero(model.op_type_of == number)
        constraints = ops.get(name)
        if constraints is None:
            refused.update(dict.fromkeys(nodes.tolist(), (name, None)))
        elif constraints != OpConstraints():
            for node in _doubtful(model, nodes, constraints).tolist():
                violation = _violation(model, model.nodes[node], constraints, is_fixed)
                if violation:
                    refused[node] = name, violation
    return refused


def _violation(model: Model, node: NodeView, constraints: OpConstraints, is_fixed: NDArray[np.bool_]) -> str | None:
    """The required and the actual property of a node that violates ``constraints``; None if it does not. ``is_fixed``:
    see `refusals`."""
    if constraints.min_opset is not None and node.opset < constraints.min_opset:
        return f"opset {constraints.min_opset} or later, found {node.opset}"
    if constraints.max_opset is not None and node.opset > constraints.max_opset:
        return f"opset {constraints.max_opset} or earlier, found {node.opset}"
    schema = _schema(node.domain, node.op_type, node.opset)
    if constraints.attributes:
        attributes = node.attributes
        for name, allowed in constraints.attributes.items():
            actual = _attribute(name, attributes, schema, allowed)
            if actual is None and name == "kernel_shape":
                actual = _shape_of_weights(model, node)
            if actual not in allowed:
                required = " or ".join(map(str, allowed))
                return f"{name} = {required}, found {'none' if actual is None else actual}"
    if not constraints.limits_types:
        return None
    for name in _data_values(node, schema):
        value = model.value_id(name)
        if not model.read_count[value]:
            continue  # an unused output, such as the mask of Dropout
        kind = model.type_of(value)
        if constraints.dtypes is not None and kind.dtype not in constraints.dtypes:
            required = " or ".join(dtype.name for dtype in constraints.dtypes)
            return f"{required}, found {'unknown type' if kind.dtype is None else kind.dtype.name} in {name!r}"
        if constraints.max_rank is not None and (kind.shape is None or len(kind.shape) > constraints.max_rank):
            rank = "unknown rank" if kind.shape is None else f"rank {len(kind.shape)}"
            return f"at most rank {constraints.max_rank}, found {rank} in {name!r}"
        misfit = _misfit(kind, constraints, bool(is_fixed[value]))
        if misfit and not kind.has_sizes:
            # Inference runs only here: no other rule needs a size that the file leaves open.
            misfit = _misfit(model.with_inner_sizes().type_of(value), constraints, bool(is_fixed[value]))
        if misfit:
            return f"{misfit} in {name!r}"
    return None


def _is_unfit(kind: ValueType, constraints: OpConstraints, is_constant: bool) -> bool:
    """Whether a value violates the constraints on types and shapes."""
    return (
        (constraints.dtypes is not None and kind.dtype not in constraints.dtypes)
        or (constraints.max_rank is not None and (kind.shape is None or len(kind.shape) > constraints.max_rank))
        or _misfit(kind, constraints, is_constant) is not None
    )


def _misfit(kind: ValueType, constraints: OpConstraints, is_constant: bool) -> str | None:
    """The required and the actual size of a value that violates the constraints on shapes; None if it does not."""
    if is_constant or not (constraints.static or constraints.max_size or constraints.align):
        return None
    if constraints.static and not kind.has_sizes:
        return f"known sizes ({_SET}), found unknown ones"
    for limits, required in ((constraints.max_size, "at most"), (constraints.align, "a multiple of")):
        for axis, number in limits.items():
            if kind.shape is None:
                return f"a size of {required} {number} along axis {axis}, found an unknown rank"
            if not -len(kind.shape) <= axis < len(kind.shape):
                continue
            size = kind.shape[axis]
            fits = isinstance(size, int) and (size <= number if limits is constraints.max_size else size % number == 0)
            if not fits:
                if not isinstance(size, int):
                    return f"a known size ({_SET}) of {required} {number} along axis {axis}, found an unknown one"
                return f"a size of {required} {number} along axis {axis}, found {size}"
    return None


def _unfit(model: Model, values: NDArray[np.int32], constraints: OpConstraints) -> NDArray[np.bool_]:
    """bool [len(values)]: True for values that violate the constraints. Each distinct type is checked once."""
    kinds, kind_of = model.kinds_of(values)
    return np.array([_is_unfit(kind, constraints, is_constant=False) for kind in kinds], np.bool_)[kind_of]


def _doubtful(model: Model, nodes: NDArray[np.intp], constraints: OpConstraints) -> NDArray[np.intp]:
    """The subset of ``nodes``, all with one operator, that `_violation` must check. The others do not violate any
    constraint."""
    if not len(nodes) or constraints.attributes:
        return nodes
    first = model.nodes[int(nodes[0])]
    if (constraints.min_opset or 0) > first.opset or (constraints.max_opset or first.opset) < first.opset:
        return nodes
    if not constraints.limits_types:
        return nodes[:0]
    schema = _schema(first.domain, first.op_type, first.opset)
    doubtful = np.zeros(len(nodes), np.bool_)
    for rows, is_data in zip((model.node_inputs, model.node_outputs), _data_positions(schema), strict=True):
        selected = rows.take(nodes.astype(np.int32))
        lengths = np.diff(selected.indptr)
        position = np.arange(len(selected.values)) - np.repeat(selected.indptr[:-1], lengths)
        checked = selected.values >= 0
        if is_data is not None:
            checked &= is_data[np.minimum(position, len(is_data) - 1)]
        checked[checked] = model.read_count[selected.values[checked]] > 0
        values, inverse = np.unique(selected.values[checked], return_inverse=True)
        owner = np.repeat(np.arange(len(nodes)), lengths)[checked]
        doubtful[owner[_unfit(model, values, constraints)[inverse]]] = True
    return nodes[doubtful]


def _data_positions(
    schema: onnx.defs.OpSchema | None,
) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """Which inputs and which outputs are data (see `_data_values`), by position. None: all."""
    if schema is None:
        return None, None
    data_types = {side[0].type_str for side in (schema.inputs, schema.outputs) if side}
    inputs, outputs = (
        np.array([parameter.type_str in data_types for parameter in side] or [False])
        for side in (schema.inputs, schema.outputs)
    )
    return inputs, outputs


def _attribute(
    name: str, stated: Mapping[str, Any], schema: onnx.defs.OpSchema | None, allowed: tuple[Any, ...]
) -> Any:
    """An attribute's value: from the node, else the schema's default, else the default in the operator's text."""
    if name in stated:
        return _plain(stated[name])
    if schema is not None and name in schema.attributes:
        import onnx.helper

        default = schema.attributes[name].default_value
        if default.type:
            return _plain(onnx.helper.get_attribute_value(default))
    implied = {"strides": 1, "dilations": 1, "pads": 0}.get(name)
    length = next((len(item) for item in allowed if isinstance(item, tuple)), 0)
    return None if implied is None else (implied,) * length


def _shape_of_weights(model: Model, node: NodeView) -> tuple[int | str | None, ...] | None:
    """The size of a convolution's kernel without the attribute; None if it is not known, and for other operators."""
    place = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}.get(node.op_type)
    if place is None or len(node.inputs) <= place or not node.inputs[place]:
        return None
    shape = model.type_of(model.value_id(node.inputs[place])).shape
    return None if shape is None else shape[2:]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(_plain(item) for item in value)
    return value


def _data_values(node: NodeView, schema: onnx.defs.OpSchema | None) -> list[str]:
    """The names of a node's data inputs and outputs; `hetero.devices.profile` defines them."""
    values: dict[str, None] = {}
    data_types: set[str] | None = None
    if schema is not None:
        data_types = {side[0].type_str for side in (schema.inputs, schema.outputs) if side}
    for names, parameters in ((node.inputs, schema and schema.inputs), (node.outputs, schema and schema.outputs)):
        for position, name in enumerate(names):
            # The last parameter may be variadic, and then applies to all further values.
            kind = parameters[min(position, len(parameters) - 1)].type_str if parameters else None
            if name and (data_types is None or kind in data_types):
                values[name] = None
    return list(values)


@functools.cache
def _schema(domain: str, op_type: str, opset: int) -> onnx.defs.OpSchema | None:
    import onnx.defs

    return onnx.defs.get_schema(op_type, opset, domain) if onnx.defs.has(op_type, opset, domain) else None
