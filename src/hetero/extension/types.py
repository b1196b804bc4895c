"""Infers the types of the outputs of custom operators, as far as they are known before a run.

ONNX's shape inference does not know custom operators, so the types of all later values would be unknown, but devices
need the element types of their inputs. This module states them before inference. First, one pass over the nodes
computes element types, from the definitions of custom operators and the schemas of ONNX operators. Then, if the shapes
of the model's inputs are fixed, it alternates between inference and shape rules: each rule is called once the shapes of
its inputs are known. The number of rounds is limited, because each runs inference once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ModelError, raise_out_of_memory
from ..model.types import ValueType, dtype_of
from .binding import BoundOp, bind
from .custom_op import CustomOp

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["with_custom_types"]

_MAX_ROUNDS = 4  # each runs inference once, which takes tens of ms in a child process

Find = Callable[[str, str, int | None], CustomOp | str]
_Dtype = np.dtype[Any] | None


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
    dtypes: dict[int, _Dtype] = {}

    def dtype(value: int) -> _Dtype:
        if value < 0:
            return None
        if value not in dtypes:
            dtypes[value] = model.type_of(value, infer=False).dtype
        return dtypes[value]

    stated: dict[int, ValueType] = {}
    for node in range(max(bound) + 1):
        inputs, outputs = model.node_inputs[node].tolist(), model.node_outputs[node].tolist()
        known = [dtype(value) for value in inputs]
        op = bound.get(node)
        results: Sequence[_Dtype]
        if op is not None:
            results = op.output_dtypes(known)
        else:
            attributes = model.nodes[node].attributes if rules[model.op_type_of[node]] is _cast else {}
            results = rules[model.op_type_of[node]](known, attributes, len(outputs))
        for value, one in zip(outputs, results, strict=False):
            if value >= 0 and one is not None and dtype(value) is None:
                dtypes[value] = one
                if op is not None:
                    stated[value] = ValueType(one, None)
    return stated


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


_Rule = Callable[[Sequence[_Dtype], Mapping[str, Any], int], Sequence[_Dtype]]


def _rule_of(name: str, opsets: Mapping[str, int]) -> _Rule:
    """The rule that computes the element types of an operator's results from those of its inputs."""
    domain, _, op_type = name.rpartition("::")
    if not domain and op_type == "Cast":
        return _cast
    return _schema_rule(domain, op_type, opsets.get(domain, 0))


def _cast(known: Sequence[_Dtype], attributes: Mapping[str, Any], num_outputs: int) -> list[_Dtype]:
    number = attributes.get("to")
    return [dtype_of(number) if isinstance(number, int) else None]


@functools.cache
def _schema_rule(domain: str, op_type: str, version: int) -> _Rule:
    import onnx.defs

    if not onnx.defs.has(op_type, version, domain):
        return lambda known, attributes, num_outputs: ()
    schema: Any = onnx.defs.get_schema(op_type, version, domain)
    variadic = schema.FormalParameterOption.Variadic

    def formal(parameters: Sequence[Any], at: int) -> Any:
        """The parameter at a position; None if there is none, or its types may differ."""
        if at < len(parameters):
            parameter = parameters[at]
        elif parameters and parameters[-1].option == variadic:
            parameter = parameters[-1]
        else:
            return None
        return parameter if parameter.is_homogeneous else None

    def rule(known: Sequence[_Dtype], attributes: Mapping[str, Any], num_outputs: int) -> list[_Dtype]:
        of_type: dict[str, _Dtype] = {}
        for at, dtype in enumerate(known):
            parameter = formal(schema.inputs, at)
            if parameter is not None and dtype is not None:
                of_type.setdefault(parameter.type_str, dtype)
        results: list[_Dtype] = []
        for at in range(num_outputs):
            parameter = formal(schema.outputs, at)
            text = "" if parameter is None else parameter.type_str
            results.append(of_type.get(text) or _written(text))
        return results

    return rule


@functools.cache
def _written(text: str) -> _Dtype:
    """The element type of ``tensor(int64)``; None for anything else."""
    import onnx

    if not text.startswith("tensor(") or not text.endswith(")"):
        return None
    name = text[len("tensor(") : -1].upper()
    return dtype_of(onnx.TensorProto.DataType.Value(name)) if name in onnx.TensorProto.DataType.keys() else None  # noqa: SIM118
