"""Graphviz texts of a plan: the device of each node, the subgraph of each node, or the subgraphs alone.

Names in the model are not trusted: they are escaped in the text and filtered before they are used in file names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.files import write_file
from ..base.formatting import byte_size, counted
from ..base.names import clean, file_stem, shortened
from ..base.palette import COLORS, tint
from ..errors import PropertyError
from ..plan import Plan, PlanRecord

if TYPE_CHECKING:
    from ..assign.affinity import Affinity
    from ..model.model import Model
    from ..partition import Partition

__all__ = ["affinity_dot", "quotient_dot", "subgraphs_dot", "write_affinity_dot", "write_subgraphs_dot"]

# Fill colors, used in turn for devices or subgraphs: light enough for black text.
_FILLS = tuple(tint(color, 0.45) for color in COLORS)
_MOST_LETTERS = 120  # the maximum length of a name in a label
_STYLE = """\
  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=10, color="#57606a", margin="0.16,0.07"];
  edge [fontname="Helvetica", fontsize=9, fontcolor="#57606a", color="#57606a", arrowsize=0.7];"""


def affinity_dot(plan: PlanRecord) -> str:
    """Graphviz text: one vertex per node of the model, colored by device. Raises `PropertyError` for a loaded plan that
    is not bound to a model."""
    model, affinity, _ = _bound(plan)
    devices = affinity.device_of.tolist()

    def label(node: int) -> tuple[str, int]:
        return plan.devices[devices[node]], devices[node]

    return "\n".join(_graph(model, f"affinity of {model.name}", label))


def subgraphs_dot(plan: PlanRecord) -> str:
    """Graphviz text: one vertex per node of the model, colored by subgraph and labeled with its device. Raises
    `PropertyError` for a loaded plan that is not bound to a model."""
    model, _, partition = _bound(plan)
    subgraph_of = partition.subgraph_of.tolist()

    def label(node: int) -> tuple[str, int]:
        subgraph = subgraph_of[node]
        return f"subgraph {subgraph + 1} on {plan.devices[int(partition.device_of[subgraph])]}", subgraph

    return "\n".join(_graph(model, f"subgraphs of {model.name}", label))


def quotient_dot(plan: PlanRecord) -> str:
    """Graphviz text: one vertex per subgraph, colored by device, and one edge per pair of subgraphs with boundary
    values between them, labeled with the number of values."""
    model, _, partition = _bound(plan)
    devices = partition.device_of.tolist()
    lines = ["digraph hetero {", f"  {_title(f'subgraphs of {model.name}')}", _STYLE]
    for subgraph, device in enumerate(devices):
        nodes = partition.nodes(subgraph)
        count = counted(len(nodes), "node")
        ends = [shortened(model.key_of(int(nodes[at])), 32) for at in ((0, -1) if len(nodes) > 1 else (0,))]
        label = _quoted("\n".join([f"subgraph {subgraph + 1} on {plan.devices[device]}", count, *ends]))
        lines.append(f'  s{subgraph} [label={label}, fillcolor="{_FILLS[device % len(_FILLS)]}"];')
    for (source, target), (values, size) in _crossings(plan).items():
        label_parts = [counted(values, "value")] if values > 1 else []
        label_parts += [byte_size(size)] if size is not None else []
        label = f" [label={_quoted('   ' + ', '.join(label_parts))}]" if label_parts else ""
        lines.append(f"  s{source} -> s{target}{label};")
    return "\n".join([*lines, "}", ""])


def _crossings(plan: PlanRecord) -> dict[tuple[int, int], tuple[int, int | None]]:
    """Pairs of subgraphs in ascending order, with the number of values from the first to the second and their size in
    B; None if a size is unknown."""
    crossings: dict[tuple[int, int], tuple[int, int | None]] = {}
    for value in plan.values:
        for reader in value.readers:
            pair = value.source - 1, reader - 1
            count, size = crossings.get(pair, (0, 0))
            crossings[pair] = count + 1, None if size is None or value.bytes is None else size + value.bytes
    return dict(sorted(crossings.items()))


def write_affinity_dot(plan: PlanRecord, folder: str | os.PathLike[str] = ".") -> Path:
    """Write ``hetero_affinity_<model>.dot`` and return its path. Raises `HeteroError` if it cannot be written."""
    return _write(folder, "hetero_affinity", plan, affinity_dot(plan))


def write_subgraphs_dot(plan: PlanRecord, folder: str | os.PathLike[str] = ".") -> Path:
    """Write ``hetero_subgraphs_<model>.dot`` and return its path. Raises `HeteroError` if it cannot be written."""
    return _write(folder, "hetero_subgraphs", plan, subgraphs_dot(plan))


def _bound(plan: PlanRecord) -> tuple[Model, Affinity, Partition]:
    if not isinstance(plan, Plan):
        raise PropertyError("cannot draw a loaded plan without its model: bind it with Core.plan(model, plan)")
    assignment = plan.assignment
    return assignment.model, assignment.affinity, assignment.partition


def _graph(model: Model, title: str, label: Callable[[int], tuple[str, int]]) -> Iterator[str]:
    yield "digraph hetero {"
    yield f"  {_title(title)}"
    yield _STYLE
    op_types, op_type_of = model.op_types, model.op_type_of.tolist()
    for node in range(model.num_nodes):
        text, number = label(node)
        lines = _quoted(f"{shortened(model.key_of(node), _MOST_LETTERS)}\n{op_types[op_type_of[node]]}\n{text}")
        yield f'  n{node} [label={lines}, fillcolor="{_FILLS[number % len(_FILLS)]}"];'
    for port, value in zip(model.inputs, model.input_ids, strict=True):
        name = _quoted(shortened(port.name, _MOST_LETTERS))
        yield f'  v{value} [label={name}, shape=ellipse, style="", fontsize=9];'
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
        name = _quoted(shortened(port.name, _MOST_LETTERS))
        yield f'  o{position} [label={name}, shape=ellipse, style="", fontsize=9];'
        if producer[value] >= 0:
            yield f"  n{producer[value]} -> o{position};"
    yield "}"
    yield ""


def _title(text: str) -> str:
    return (
        f'label={_quoted(shortened(text, _MOST_LETTERS))}; labelloc=t; rankdir=TB; fontname="Helvetica"; fontsize=12;'
    )


def _quoted(text: str) -> str:
    """``text`` as a Graphviz string. Escapes quotes, backslashes, and ampersands (which start entities). Keeps line
    breaks, and replaces other control characters by their Unicode pictures."""
    shown = "\n".join(map(clean, text.split("\n")))
    escaped = shown.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _write(folder: str | os.PathLike[str], prefix: str, plan: PlanRecord, text: str) -> Path:
    path = Path(folder) / f"{prefix}_{file_stem(plan.model_name)}.dot"
    write_file(path, [text.encode()])
    return path
