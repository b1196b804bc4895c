"""Nodes that contradict the definitions of their operators, such as a scale of 0 or an unknown attribute. Their results
would mean nothing, so devices refuse them even if their backends accept them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import HeteroError, raise_out_of_memory
from ..model.bodies import BODY_ATTRIBUTES, bodies_of
from ..model.functions import FunctionLibrary, inline_calls
from .operator_forms import malformed_nodes

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["contradictions"]

_OF_ONNX = (
    "Bernoulli",
    "DeformConv",
    "MaxRoiPool",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "RegexFullMatch",
    "SimplifiedLayerNormalization",
    "StringNormalizer",
    "StringSplit",
    "TfIdfVectorizer",
)


def contradictions(model: Model, infer: bool = False) -> dict[int, str]:
    """Node -> reason. Checks the inputs, outputs and attributes that nodes have, and more of quantized operators, those
    of onnxruntime and ai.onnx.ml, and some of ONNX's own operators, as the CPU device does.

    ``infer``: whether to infer element types, for devices whose backends do not check them; not those in the bodies of
    If, Loop and Scan. A call of a model-local function has the reason of a node in the function."""
    return {**_in_calls(model, infer), **_in_bodies(model), **_of_nodes(model, infer)}


def _of_nodes(model: Model, infer: bool) -> dict[int, str]:
    malformed = malformed_nodes(model)
    kinds = [kind for kind, name in enumerate(model.op_types) if _is_checked(name)]
    if not kinds:
        return malformed
    from .cpu import registry  # with all kernels: only if a model needs it

    return {**registry.contradictions(model, kinds, infer), **malformed}


def _in_bodies(model: Model) -> dict[int, str]:
    found: dict[int, str] = {}
    kinds = [kind for kind, name in enumerate(model.op_types) if name in BODY_ATTRIBUTES]
    for index in np.flatnonzero(np.isin(model.op_type_of, kinds)).tolist() if kinds else ():
        try:
            bodies = bodies_of(model, index, infer=False)
        except HeteroError as error:  # the device rejects the node itself
            raise_out_of_memory(error)
            continue
        for body in bodies:
            for at, reason in contradictions(body.model).items():
                inner = body.model.nodes[at]
                found[index] = f"its {body.attribute}: node {inner.key!r} ({inner.op_type}): {reason}"
    return found


def _in_calls(model: Model, infer: bool) -> dict[int, str]:
    """Inlines one of the calls with equal attributes, and the others only if it finds something there: operands rarely
    matter, and inlining thousands of calls would take seconds."""
    functions = set(model.functions)
    kinds = [kind for kind, name in enumerate(model.op_types) if name.rpartition("::")[::2] in functions]
    alike: dict[Any, list[int]] = {}
    for call in np.flatnonzero(np.isin(model.op_type_of, kinds)).tolist() if kinds else ():
        attributes = (attribute.SerializeToString() for attribute in model.nodes[call].proto().attribute)
        alike.setdefault((model.op_type_of[call], *attributes), []).append(call)
    suspects = _in_inlined(model, [calls[0] for calls in alike.values()], infer)
    return _in_inlined(model, [call for calls in alike.values() if calls[0] in suspects for call in calls], infer)


def _in_inlined(model: Model, calls: list[int], infer: bool) -> dict[int, str]:
    if not calls:
        return {}
    calls = sorted(calls)
    try:
        inlined = inline_calls(model.extract(calls), range(len(calls)), FunctionLibrary(model.file))
    except HeteroError as error:  # invalid or too large, which the planner reports if it inlines them
        raise_out_of_memory(error)
        return {}
    if len(inlined.kept_whole) == len(calls):
        return {}
    found: dict[int, str] = {}
    for at, reason in contradictions(inlined.model, infer).items():
        inner = inlined.model.nodes[at]
        found.setdefault(calls[inlined.source[at]], f"its node {inner.key!r} ({inner.op_type}): {reason}")
    return found


def _is_checked(name: str) -> bool:
    if name.startswith(("ai.onnx.ml::", "com.microsoft::")) or name in _OF_ONNX:
        return True
    return "Linear" in name or name.endswith("Integer")
