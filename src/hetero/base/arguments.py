"""Errors for calls of the public API with wrong arguments, which say how to write the call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from ..errors import shown

__all__ = ["explain_arguments"]

# Keyword of OpenVINO or onnxruntime -> the parameter of hetero for the same.
_ELSEWHERE = {
    **dict.fromkeys(("device_name", "providers"), "device"),
    **dict.fromkeys(("model", "model_path", "path_or_bytes", "model_stream"), "source"),
    "weights": "external_data",
    **dict.fromkeys(("sess_options", "provider_options", "properties"), "config"),
}

_P = ParamSpec("_P")
_R = TypeVar("_R")


def explain_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Adds to the TypeError for arguments that do not fit the parameters what to write instead: a mapping if they are
    properties, otherwise the parameters."""

    @functools.wraps(function)
    def call(*args: _P.args, **keywords: _P.kwargs) -> _R:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # raised in the function
                raise
            raise TypeError(f"{error}; {_advice(function, args, keywords)}") from None

    return call


def _advice(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    properties = {name: value for name, value in keywords.items() if name.isupper()}
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        properties = {}  # the function accepts them
    positional = sum(one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters)
    if len(args) > positional and isinstance(args[-2], str) and args[-2].isupper():  # as in f("CPU", "NAME", 1)
        properties = {args[-2]: args[-1]}
    if properties and not signature.parameters.keys().isdisjoint(("config", "values")):
        return f"pass properties as a mapping: {shown(properties)}"
    plain = [one.replace(annotation=one.empty) for one in parameters if one.name != "self"]
    renamed = [
        f"{name} is {_ELSEWHERE[name]} here; "
        for name in keywords
        if name not in signature.parameters and _ELSEWHERE.get(name) in signature.parameters
    ]
    return f"{''.join(renamed)}expected {signature.replace(parameters=plain, return_annotation=signature.empty)}"
