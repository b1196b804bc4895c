"""Writes src/hetero/devices/operator_forms.txt: the inputs, outputs and attributes of ONNX's operators, from the
schemas of the installed onnx. Run it after an update of onnx. It is a file because importing onnx takes longer than
compiling many models."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import onnx
import onnx.defs

from hetero.devices.operator_forms import IGNORED_ATTRIBUTES, TABLE, letter_of

_Option = onnx.defs.OpSchema.FormalParameterOption


def text() -> str:
    """The table: a line with the newest version of each domain, and one line for each form of an operator."""
    schemas = sorted(
        onnx.defs.get_all_schemas_with_history(), key=lambda one: (one.domain, one.name, one.since_version)
    )
    newest: dict[str, int] = {}
    for schema in schemas:
        newest[schema.domain] = max(schema.since_version, newest.get(schema.domain, 0))
    newest[""] = onnx.defs.onnx_opset_version()
    lines = [f"{domain}:: {version}" for domain, version in newest.items()]
    for (domain, name), versions in itertools.groupby(schemas, lambda schema: (schema.domain, schema.name)):
        previous = ""
        for schema in versions:
            form = _form(schema)
            if form != previous:
                lines.append(f"{f'{domain}::' * bool(domain)}{name} {schema.since_version} {form}")
            previous = form
    return "\n".join(lines) + "\n"


def _form(schema: Any) -> str:
    if schema.deprecated:
        return "deprecated"
    attributes = [
        f"{name}:{letter_of(attribute.type.value)}{'!' * attribute.required}"
        for name, attribute in sorted(schema.attributes.items())
        if name not in IGNORED_ATTRIBUTES
    ]
    return " ".join([*_parameters(schema.inputs), ">", *_parameters(schema.outputs), ">", *attributes]).rstrip()


def _parameters(parameters: Sequence[Any]) -> list[str]:
    marks = {_Option.Single: "", _Option.Optional: "?", _Option.Variadic: "*{}"}
    return [parameter.name.strip(".") + marks[parameter.option].format(parameter.min_arity) for parameter in parameters]


if __name__ == "__main__":
    TABLE.write_text(text())
    print(TABLE)
