"""``hetero inspect``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from ..options import json_option, model_argument, new_command
from ..planning import Planning, link_option

__all__ = ["command"]

_MOST_DEFAULTS = 20  # inputs with a default that are listed: some exporters make every weight one


@new_command("inspect model.onnx")
@model_argument("FILE")
@link_option
@click.option(
    "--verify", is_flag=True, help="For a .hetero file: check every byte by SHA-256, including large weights."
)
@json_option
def command(model: str, follow_links: bool, verify: bool, as_json: bool) -> None:
    """Show the contents of a model, .onnx or .hetero, without running it.

    Code in the file is not executed. The checksums of an exported model are verified.
    """
    from ..session import Session
    from ..text import print_json

    session = Session(model, Planning(follow_links=follow_links))
    summary = _artifact(model, verify) if session.is_artifact or model.endswith(".hetero") else _onnx(session)
    if as_json:
        print_json(summary)
    else:
        _print(summary)


def _ports(ports: Iterable[Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": port.name,
            "dtype": None if port.dtype is None else "string" if port.dtype.hasobject else port.dtype.name,
            "shape": None if port.shape is None else list(port.shape),
        }
        for port in ports
    ]


def _onnx(session: Any) -> dict[str, Any]:
    """The contents of an ONNX file, from the index over its bytes."""
    import os

    import numpy as np

    from ...errors import ModelError
    from ...model.types import Port

    model = session.model
    constants, numbers = model.constants, model.file_constants.tolist()
    outside: dict[str, int] = {}
    stored = parameters = 0
    for number in numbers:
        parameters += int(np.prod(constants.dims(number), dtype=object))
        try:
            size = constants.nbytes(number)
            stored += size
            if constants.is_external(number):
                path = constants.location(number)[0]
                outside[path] = outside.get(path, 0) + size
        except (ValueError, ModelError):
            continue  # strings, and tensors without a stated location
    counts = np.bincount(model.op_type_of, minlength=len(model.op_types)).tolist()
    operators = sorted(zip(model.op_types, counts, strict=True), key=lambda entry: (-entry[1], entry[0]))
    types = {name: model.type_of(model.value_id(name)) for name in model.default_inputs}
    defaults = [Port(name, known.dtype, known.shape) for name, known in types.items()]
    affinity: dict[str, int] = {}
    for device in model.affinity.values():
        affinity[device] = affinity.get(device, 0) + 1
    return {
        "kind": "onnx",
        "path": session.path,
        "bytes": os.path.getsize(session.path),
        "name": model.name,
        "producer": " ".join(filter(None, (model.producer_name, model.producer_version))),
        "ir_version": model.ir_version,
        "opsets": dict(model.opsets),
        "inputs": _ports(model.inputs),
        "default_inputs": _ports(defaults),
        "outputs": _ports(model.outputs),
        "nodes": model.num_nodes,
        "operators": dict(operators),
        "functions": [f"{domain}::{name}" if domain else name for domain, name in model.functions],
        "initializers": len(model.initializers),
        "constants": len(numbers) - len(model.initializers),
        "nested": _nested_weights(model),
        "parameters": parameters,
        "weight_bytes": stored,
        "external_data": outside,
        "affinities": affinity,
        "metadata": dict(model.metadata),
    }


_WITH_GRAPHS = ("If", "Loop", "Scan", "SequenceMap")


def _nested_weights(model: Any) -> dict[str, int]:
    """The constants in graphs inside nodes, such as the branches of If: their number, elements and bytes."""
    numbers = [number for number, op in enumerate(model.op_types) if op in _WITH_GRAPHS]
    found = {"graphs": 0, "constants": 0, "parameters": 0, "weight_bytes": 0}
    if not numbers:
        return found
    import numpy as np
    import onnx

    from ...errors import ModelError
    from ...model.types import element_bits

    graphs: list[Any] = []

    def look(attributes: Any) -> None:
        graphs.extend(value for value in attributes if isinstance(value, onnx.GraphProto))

    for node in np.flatnonzero(np.isin(model.op_type_of, numbers)).tolist():
        look(model.nodes[node].attributes.values())
    while graphs:
        graph = graphs.pop()
        found["graphs"] += 1
        tensors = list(graph.initializer)
        for node in graph.node:
            for attribute in node.attribute:
                look([attribute.g, *attribute.graphs] if attribute.type == attribute.GRAPH else attribute.graphs)
                if node.op_type == "Constant" and attribute.HasField("t"):
                    tensors.append(attribute.t)
        for tensor in tensors:
            elements = int(np.prod(tensor.dims, dtype=object))
            found["constants"] += 1
            found["parameters"] += elements
            with contextlib.suppress(ValueError, ModelError):  # strings
                found["weight_bytes"] += (elements * element_bits(tensor.data_type) + 7) // 8
    return found


def _artifact(path: str, verify: bool) -> dict[str, Any]:
    """The contents of an exported file, from its manifest. Checks the manifest and all entries that it lists."""
    import os

    from ...artifact.payload import PayloadReader
    from ...artifact.reader import open_artifact

    artifact = open_artifact(path)
    if verify:
        artifact.verify()
    root, manifest = PayloadReader(artifact), artifact.manifest
    sizes = [record.size for record in manifest.entries]
    weights = sum(record.size for record in manifest.entries if record.name.startswith("weights/"))
    return {
        "kind": "hetero",
        "path": path,
        "bytes": os.path.getsize(path),
        "name": root.name,
        "device": root.device,
        "format_version": manifest.version,
        "library": manifest.library,
        "inputs": _ports(root.inputs),
        "outputs": _ports(root.outputs),
        "submodels": [
            {
                "device": submodel.device,
                "name": submodel.name,
                "plugin": submodel.plugin.module,
                "distribution": submodel.plugin.distribution or "hetero",
                "version": dict(submodel.version),
                "parts": list(submodel.parts),
                "bytes": sum(sizes[entry] for entry in set(submodel.files.values())),
            }
            for submodel in manifest.submodels
        ],
        "entries": len(sizes),
        "weight_bytes": weights,
        "verified": "sha256" if verify else "sha256 of small entries, crc32 of large ones",
    }


def _print(summary: Mapping[str, Any]) -> None:
    from ...base.formatting import byte_size, counted, shape_text
    from ..text import print_line, print_table, shorten

    print_line(f"{summary['path']}: {byte_size(summary['bytes'])}, {shorten(summary['name']) or 'without a name'}")
    if summary["kind"] == "onnx":
        opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in summary["opsets"].items())
        print_line(f"ONNX IR {summary['ir_version']}, operators of {opsets}")
        if summary["producer"]:
            print_line(f"made by {shorten(summary['producer'], 200)}")
        weights = counted(summary["initializers"], "initializer")
        if summary["constants"]:
            weights += f" and {counted(summary['constants'], 'Constant node')}"
        print_line(
            f"{counted(summary['nodes'], 'node')}, {weights} with {counted(summary['parameters'], 'parameter')}, "
            f"{byte_size(summary['weight_bytes'])}"
        )
        if (nested := summary["nested"])["constants"]:
            print_line(
                f"{counted(nested['graphs'], 'graph')} inside nodes with {counted(nested['constants'], 'constant')}, "
                f"{counted(nested['parameters'], 'parameter')}, {byte_size(nested['weight_bytes'])}"
            )
    else:
        print_line(
            f"compiled for {summary['device']} by hetero {summary['library']}, format {summary['format_version']}, "
            f"{counted(summary['entries'], 'entry').replace('entrys', 'entries')}, "
            f"{byte_size(summary['weight_bytes'])} of weights; intact ({summary['verified']})"
        )
    for title, key in (("Inputs", "inputs"), ("Inputs with a default", "default_inputs"), ("Outputs", "outputs")):
        ports = summary.get(key, ())
        rows = [
            (shorten(port["name"]), port["dtype"] or "?", shape_text(port["shape"], compact=True))
            for port in ports[: _MOST_DEFAULTS if key == "default_inputs" else None]
        ]
        if len(rows) < len(ports):
            rows.append((f"and {len(ports) - len(rows):,} more", "", ""))
        if rows or key != "default_inputs":
            print_table(title, (key[:-1].split("_")[-1], "dtype", "shape"), rows)
    if summary["kind"] == "onnx":
        _print_onnx(summary)
        return
    print_table(
        "Submodels",
        (">number", "device", "name", ">own bytes", "parts", "version"),
        [
            (
                number,
                part["device"],
                shorten(part["name"]),
                byte_size(part["bytes"]),
                _numbers(part["parts"]),
                shorten(", ".join(f"{key} {value}" for key, value in part["version"].items()), 100),
            )
            for number, part in enumerate(summary["submodels"])
        ],
    )


def _print_onnx(summary: Mapping[str, Any]) -> None:
    from ...base.formatting import byte_size
    from ..text import print_table, shorten

    rows = [(shorten(name), f"{count:,}") for name, count in summary["operators"].items()]
    print_table("Operators", ("operator", ">nodes"), rows)
    for title, key, columns in (
        ("External data", "external_data", ("file", ">bytes")),
        ("Affinities in the file", "affinities", ("device", ">nodes")),
        ("Metadata", "metadata", ("key", "value")),
    ):
        if summary[key]:
            shown = [
                (shorten(name), byte_size(value) if key == "external_data" else shorten(str(value)))
                for name, value in summary[key].items()
            ]
            print_table(title, columns, shown)


def _numbers(parts: Sequence[int]) -> str:
    if len(parts) > 2 and list(parts) == list(range(parts[0], parts[-1] + 1)):
        return f"{parts[0]}–{parts[-1]}"
    return ", ".join(map(str, parts))
