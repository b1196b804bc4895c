"""Infers the types of the outputs of custom operators, as far as they are known before a run.

ONNX's shape inference does not know custom operators, so the types of all later values would be unknown, but devices
need the element types of their inputs. This module states them before inference. First, one pass over the nodes
computes element types, from the definitions of custom operators and the schemas of ONNX operators. Then, if the shapes
of the model's inputs are fixed, it alternates between inference and shape rules: each rule is called once the shapes of
its inputs are known. The number of rounds is limited, because each runs inference once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ModelError, raise_out_of_memory
from ..model.element_types import Rule, result_types, rule_of
from ..model.types import ValueType
from .binding import BoundOp, bind
from .custom_op import CustomOp

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["with_custom_types"]

_MAX_ROUNDS = 4  # each runs inference once, which takes tens of ms in a child process

Find = Callable[[str, str, int | None], CustomOp | str]


def with_custom_types(model: Model, find: Find) -> Model:
    """The model with the types of the outputs of custom operators added, unless it already declares them. Returns the
    same object if there is nothing to add.

    ``find``: returns the custom operator of a domain and name for a version of the domain, or the reason why there is
    none. Ignores nodes in nested graphs.
    """
    bound = _bound_nodes(model, find)
    if not bound:
        return model
    stated = _by_element_type(model, bound)
    model = _stating(model, stated)
    if not any(op.op.shape_rule is not None for op in bound.values()):
        return model
    if not all(_static(model.type_of(value).shape) is not None for value in model.input_ids):
        return model
    for _ in range(_MAX_ROUNDS):
        stated = _by_shape_rules(model, bound)
        if not stated:
            break
        model = _stating(model, stated)
    return model


def _bound_nodes(model: Model, find: Find) -> dict[int, BoundOp]:
    """The nodes of custom operators, in order."""
    functions = set(model.functions)
    ops: dict[int, CustomOp] = {}
    for number, name in enumerate(model.op_types):
        domain, custom, op_type = name.rpartition("::")
        if custom and (domain, op_type) not in functions:
            known = find(domain, op_type, model.opsets.get(domain))
            if isinstance(known, CustomOp):
                ops[number] = known
    bound = {}
    for node in np.flatnonzero(np.isin(model.op_type_of, list(ops))).tolist():
        op = ops[int(model.op_type_of[node])]
        fitted = bind(op, model.nodes[node].attributes, len(model.node_inputs[node]), len(model.node_outputs[node]))
        if isinstance(fitted, BoundOp):
            bound[node] = fitted
    return bound


def _by_element_type(model: Model, bound: Mapping[int, BoundOp]) -> dict[int, ValueType]:
    """The element types of the results of custom operators, without inference."""
    rules = [_rule_of(name, model.opsets) for name in model.op_types]

    def rule_of_node(node: int) -> Rule | None:
        op = bound.get(node)
        return rules[model.op_type_of[node]] if op is None else lambda view, known: op.output_dtypes(known)

    def dtype(value: int) -> np.dtype[Any] | None:
        return model.type_of(value, infer=False).dtype

    found = result_types(model, range(max(bound) + 1), rule_of_node, dtype)
    return {value: ValueType(one, None) for value, one in found.items() if int(model.producer[value]) in bound}


def _rule_of(name: str, opsets: Mapping[str, int]) -> Rule | None:
    domain, _, op_type = name.rpartition("::")
    return rule_of(domain, op_type, opsets.get(domain, 0))


def _by_shape_rules(model: Model, bound: Mapping[int, BoundOp]) -> dict[int, ValueType]:
    """The types of the results of custom operators, extended by their shape rules."""
    stated: dict[int, ValueType] = {}
    for node, op in bound.items():
        outputs = model.node_outputs[node].tolist()
        if op.op.shape_rule is None or all(
            value < 0 or _static(model.type_of(value).shape) is not None for value in outputs
        ):
            continue
        shapes: list[tuple[int, ...] | None] = []
        for value in model.node_inputs[node].tolist():
            shape = None if value < 0 else _static(stated.get(value, model.type_of(value)).shape)
            if value >= 0 and shape is None:
                break
            shapes.append(shape)
        else:
            try:
                output_shapes = op.output_shapes(shapes)
            except ValueError:
                continue  # reported when the node is compiled
            for value, new in zip(outputs, output_shapes, strict=False):
                if value >= 0 and _static(model.type_of(value).shape) is None:
                    stated[value] = ValueType(None, new)
    return stated


def _stating(model: Model, stated: Mapping[int, ValueType]) -> Model:
    """The model with these types. Omits types that contradict the model, because the run reports them."""
    if not stated:
        return model
    named = {model.value_name(value): known for value, known in stated.items()}
    try:
        return model.with_types(named)
    except ModelError as error:
        raise_out_of_memory(error)
        for name, known in named.items():
            try:
                model = model.with_types({name: known})
            except ModelError as error:
                raise_out_of_memory(error)
                continue
        return model


def _static(shape: Sequence[Any] | None) -> tuple[int, ...] | None:
    """The shape if all its sizes are known, otherwise None."""
    return None if shape is None or not all(isinstance(dim, int) for dim in shape) else tuple(shape)
