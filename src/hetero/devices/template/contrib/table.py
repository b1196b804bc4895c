"""The table of definitions, and how a node is matched with one.

A definition is a function of NumPy arrays. Its positional parameters are the operator's inputs; one that is annotated
``Array | None`` may be absent. Its keyword parameters are attributes; one without a default is required. It returns the
outputs, of which a node may use only the first.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper

from ....errors import did_you_mean

__all__ = ["Array", "definition", "matched"]

Array = Any
"""A NumPy array. Its operators have no static types that would help here."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Definition:
    function: Callable[..., Any]
    accepted: Mapping[str, Collection[Any]]
    inputs: tuple[inspect.Parameter, ...]
    attributes: Mapping[str, inspect.Parameter]


_DEFINITIONS: dict[tuple[str, str], _Definition] = {}


def definition(
    name: str, domain: str = "com.microsoft", accepted: Mapping[str, Collection[Any]] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the definition of an operator. ``accepted``: attribute -> the values that are supported, if not all."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(function).parameters.values()
        keywords = {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY}
        inputs = tuple(each for each in parameters if each.kind is not each.KEYWORD_ONLY)
        _DEFINITIONS[domain, name] = _Definition(function, accepted or {}, inputs, keywords)
        return function

    return add


def matched(node: onnx.NodeProto) -> Callable[..., Sequence[Any]] | str | None:
    """A callable for ``node``: inputs (None for an absent input) -> outputs; or why its definition does not support it;
    or None if it has no definition."""
    known = _DEFINITIONS.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type))
    if known is None:
        return None
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    for name, value in attributes.items():
        if name not in known.attributes:
            return f"its definition has no attribute {name!r}{did_you_mean(name, known.attributes)}"
        if name in known.accepted and value not in known.accepted[name]:
            return f"{name} = {value!r} is not supported; its definition supports {sorted(known.accepted[name])}"
    for name, parameter in known.attributes.items():
        if parameter.default is parameter.empty and name not in attributes:
            return f"its attribute {name!r} is missing"
    variadic = any(each.kind is each.VAR_POSITIONAL for each in known.inputs)
    if len(node.input) > len(known.inputs) and not variadic:
        return f"expected at most {len(known.inputs)} inputs, found {len(node.input)}"
    for position, parameter in enumerate(known.inputs):
        if parameter.kind is parameter.VAR_POSITIONAL or parameter.annotation == "Array | None":
            continue
        if position >= len(node.input) or not node.input[position]:
            return f"its input {parameter.name!r} is missing"
    return functools.partial(_run, known.function, attributes, len(node.output))


def _run(function: Callable[..., Any], attributes: Mapping[str, Any], count: int, *inputs: Any) -> Sequence[Any]:
    with np.errstate(all="ignore"):
        made = function(*inputs, **attributes)
    outputs = made if isinstance(made, tuple) else (made,)
    if len(outputs) < count:
        raise ValueError(f"the definition has {len(outputs)} outputs, and the node {count}")
    return outputs[:count]
