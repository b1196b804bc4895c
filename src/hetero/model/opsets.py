"""Compares the meaning of an operator in two versions of its domain."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx.defs

__all__ = ["same_meaning"]

# Opset 7 changed how operators broadcast, PRelu's without a change in its signature.
_SINCE_BROADCASTING = 7


@functools.cache
def same_meaning(domain: str, op_type: str, version: int, other: int) -> bool:
    """Whether a node written for ``version`` of its domain is valid in a model that imports version ``other``.

    True if both versions use the same definition of the operator, or if ``other`` is newer and compatible: the same
    attributes with the same defaults, the same inputs and outputs, and at least the same types. For operators without a
    known schema, True only if the versions are equal.
    """
    if version == other:
        return True
    import onnx.defs

    if not (onnx.defs.has(op_type, version, domain) and onnx.defs.has(op_type, other, domain)):
        return False
    old, new = (onnx.defs.get_schema(op_type, number, domain) for number in (version, other))
    if old.since_version == new.since_version:
        return True
    return other > version >= (1 if domain else _SINCE_BROADCASTING) and not new.deprecated and _widens(old, new)


def _widens(old: onnx.defs.OpSchema, new: onnx.defs.OpSchema) -> bool:
    if old.attributes.keys() != new.attributes.keys():
        return False
    for name, attribute in old.attributes.items():
        later = new.attributes[name]
        same_default = attribute.default_value.SerializeToString() == later.default_value.SerializeToString()
        if attribute.type != later.type or attribute.required != later.required or not same_default:
            return False
    option = type(old).FormalParameterOption
    for before, after in ((old.inputs, new.inputs), (old.outputs, new.outputs)):
        if len(before) != len(after):
            return False
        for parameter, later_parameter in zip(before, after, strict=True):
            # A required parameter may have become optional, but not vice versa.
            made_optional = parameter.option == option.Single and later_parameter.option == option.Optional
            if parameter.option != later_parameter.option and not made_optional:
                return False
            if not set(parameter.types) <= set(later_parameter.types):
                return False
    return True
