"""Two Graphviz files that show a plan: the device of each node, and the subgraph of each node.

Names come from the model and are not trusted: they are escaped in the text and never become part of a file name
unfiltered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import HeteroError, PropertyError
from ..files import write_atomically

if TYPE_CHECKING:
    from ..affinity import Affinity
    from ..model.model import Model
    from ..partition import Partition
    from ..plan import Plan

__all__ = ["affinity_dot", "subgraphs_dot", "write_affinity_dot", "write_subgraphs_dot"]

# Fill colours, one per device or subgraph in turn: light enough for black text.
_COLOURS = (
    "#a6cee3", "#fdbf6f", "#b2df8a", "#cab2d6", "#fb9a99", "#ffff99", "#8dd3c7", "#d9d9d9", "#fccde5", "#bebada",
)  # fmt: skip


def affinity_dot(plan: Plan) -> str:
    """Graphviz text: one vertex per node of the model, coloured by device."""
    model, affinity, _ = _bound(plan)
    devices = affinity.device_of.tolist()

    def label(node: int) -> tuple[str, int]:
        return plan.devices[devices[node]], devices[node]

    return "\n".join(_graph(model, f"affinity of {model.name}", label))


def subgraphs_dot(plan: Plan) -> str:
    """Graphviz text: one vertex per node of the model, coloured by subgraph and labelled with its device."""
    model, _, partition = _bound(plan)
    subgraph_of = partition.subgraph_of.tolist()

    def label(node: int) -> tuple[str, int]:
        subgraph = subgraph_of[node]
        return f"subgraph {subgraph + 1} on {plan.devices[int(partition.device_of[subgraph])]}", subgraph

    return "\n".join(_graph(model, f"subgraphs of {model.name}", label))


def write_affinity_dot(plan: Plan, folder: str | os.PathLike[str] = ".") -> Path:
    """Write ``hetero_affinity_<model>.dot`` and return its path. Raises `HeteroError` if it cannot be written."""
    return _write(folder, "hetero_affinity", plan, affinity_dot(plan))


def write_subgraphs_dot(plan: Plan, folder: str | os.PathLike[str] = ".") -> Path:
    """Write ``hetero_subgraphs_<model>.dot`` and return its path. Raises `HeteroError` if it cannot be written."""
    return _write(folder, "hetero_subgraphs", plan, subgraphs_dot(plan))


def _bound(plan: Plan) -> tuple[Model, Affinity, Partition]:
    if plan.bound is None:
        raise PropertyError("a loaded plan has no model; plan the model again to draw it")
    return plan.bound


def _graph(model: Model, title: str, label: Callable[[int], tuple[str, int]]) -> Iterator[str]:
    yield "digraph hetero {"
    yield f"  label={_quoted(title)}; labelloc=t; rankdir=TB;"
    yield '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=10];'
    op_types, op_type_of = model.op_types, model.op_type_of.tolist()
    for node in range(model.num_nodes):
        text, number = label(node)
        lines = _quoted(f"{model.key_of(node)}\n{op_types[op_type_of[node]]}\n{text}")
        yield f'  n{node} [label={lines}, fillcolor="{_COLOURS[number % len(_COLOURS)]}"];'
    for port, value in zip(model.inputs, model.input_ids, strict=True):
        yield f'  v{value} [label={_quoted(port.name)}, shape=ellipse, style="", fontsize=9];'
    producer = model.producer.tolist()
    model_inputs = set(model.input_ids)
    for node in range(model.num_nodes):
        reads = [*model.node_inputs[node].tolist(), *model.node_captures[node].tolist()]
        for value in dict.fromkeys(reads):
            if value < 0:
                continue
            if producer[value] >= 0:
                yield f"  n{producer[value]} -> n{node};"
            elif value in model_inputs:
                yield f"  v{value} -> n{node};"
    for position, (port, value) in enumerate(zip(model.outputs, model.output_ids, strict=True)):
        yield f'  o{position} [label={_quoted(port.name)}, shape=ellipse, style="", fontsize=9];'
        if producer[value] >= 0:
            yield f"  n{producer[value]} -> o{position};"
    yield "}"
    yield ""


def _quoted(text: str) -> str:
    """``text`` as a Graphviz string: quotes and backslashes escaped, control characters shown as blanks."""
    visible = "".join(c if c == "\n" or c.isprintable() else " " for c in text)
    escaped = visible.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _write(folder: str | os.PathLike[str], prefix: str, plan: Plan, text: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", plan.model_name)[:100] or "model"
    path = Path(folder) / f"{prefix}_{name}.dot"
    try:
        write_atomically(path, [text.encode()])
    except OSError as error:
        raise HeteroError(f"cannot write {path}: {error.strerror or error}") from error
    return path
