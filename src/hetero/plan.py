"""A plan: which node goes where and why, and how the model is cut, before anything is compiled.

Made by `Core.plan` from stage 2 and stage 3; saved as JSON, edited by hand, loaded, and handed to
`Core.compile_model` in place of a device string. A loaded plan pins each node to the device it names; the cut is made
again from that, and is the same as long as the devices are.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .affinity import Affinity, assign
from .errors import HeteroError, PropertyError
from .files import write_atomically
from .partition import Partition, partition_graph
from .plugin import Support

if TYPE_CHECKING:
    from .model.model import Model

__all__ = ["FORMAT_VERSION", "Plan", "PlannedSubgraph", "make_plan"]

FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedSubgraph:
    """One subgraph of a plan: its device and its nodes' keys, in topological order."""

    device: str
    nodes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Devices, affinities and subgraphs of one model, as data.

    ``affinity``: node key -> device, for every node. ``subgraphs``: in an order in which they can run.
    ``reasons``: node key -> why it is there, for the nodes that are not on the first device of the list.
    ``bound``: what the plan was made from; None for a loaded one.
    """

    model_name: str
    devices: tuple[str, ...]
    policy: str
    affinity: Mapping[str, str]
    subgraphs: tuple[PlannedSubgraph, ...]
    reasons: Mapping[str, str]
    bound: tuple[Model, Affinity, Partition] | None = dataclasses.field(default=None, repr=False)

    @property
    def num_subgraphs(self) -> int:
        return len(self.subgraphs)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON data; keys and order are stable."""
        return {
            "format": "hetero-plan",
            "version": FORMAT_VERSION,
            "model": self.model_name,
            "devices": list(self.devices),
            "policy": self.policy,
            "affinity": dict(self.affinity),
            "subgraphs": [{"device": part.device, "nodes": list(part.nodes)} for part in self.subgraphs],
            "reasons": dict(self.reasons),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON, whole or not at all (temporary file in the same folder, fsync, rename)."""
        target = Path(path)
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n"
        try:
            write_atomically(target, text.encode())
        except OSError as error:
            raise HeteroError(f"cannot write plan {target}: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan that `save` wrote, edited or not. Raises `HeteroError` saying what is wrong with the file."""
        try:
            data = json.loads(Path(path).read_bytes())
        except OSError as error:
            raise HeteroError(f"cannot read plan {os.fspath(path)}: {error.strerror or error}") from error
        except ValueError as error:
            raise HeteroError(f"plan {os.fspath(path)} is no JSON: {error}") from error
        try:
            return _from_json(data)
        except PropertyError as error:
            raise PropertyError(f"plan {os.fspath(path)}: {error}") from error


def make_plan(
    model: Model,
    devices: Sequence[str],
    supports: Sequence[Support],
    pins: Mapping[str, str] | None = None,
    policy: str = "auto",
) -> Plan:
    """Assign and partition. Raises what `assign` and `partition_graph` raise."""
    affinity = assign(model, devices, supports, pins)
    partition = partition_graph(model.graph, affinity.device_of, policy=policy)
    return Plan(
        model_name=model.name,
        devices=affinity.devices,
        policy=policy,
        affinity={model.key_of(i): devices[number] for i, number in enumerate(affinity.device_of.tolist())},
        subgraphs=tuple(
            PlannedSubgraph(
                devices[int(partition.device_of[i])],
                tuple(model.key_of(node) for node in partition.nodes(i).tolist()),
            )
            for i in range(partition.num_subgraphs)
        ),
        reasons={
            model.key_of(i): affinity.reason(i)
            for i in np.flatnonzero((affinity.device_of > 0) | (affinity.origin > 0)).tolist()
        },
        bound=(model, affinity, partition),
    )


def _from_json(data: Any) -> Plan:
    fields = _expect(data, dict, "the file")
    if fields.get("format") != "hetero-plan" or fields.get("version") != FORMAT_VERSION:
        raise PropertyError(
            f'expected "format": "hetero-plan" and "version": {FORMAT_VERSION}, found '
            f"{fields.get('format')!r} and {fields.get('version')!r}"
        )
    devices = tuple(_strings(fields.get("devices"), "devices"))
    affinity = _expect(fields.get("affinity"), dict, '"affinity"')
    for key, device in affinity.items():
        if device not in devices:
            raise PropertyError(f"node {key!r} is on {device!r}, which is not in devices: {', '.join(devices)}")
    parts = []
    for i, part in enumerate(_expect(fields.get("subgraphs", []), list, '"subgraphs"')):
        entry = _expect(part, dict, f"subgraph {i}")
        device = _expect(entry.get("device"), str, f'"device" of subgraph {i}')
        parts.append(PlannedSubgraph(device, tuple(_strings(entry.get("nodes"), f"nodes of subgraph {i}"))))
    return Plan(
        model_name=_expect(fields.get("model", ""), str, '"model"'),
        devices=devices,
        policy=_expect(fields.get("policy", "auto"), str, '"policy"'),
        affinity=affinity,
        subgraphs=tuple(parts),
        reasons=_expect(fields.get("reasons", {}), dict, '"reasons"'),
    )


def _strings(value: Any, what: str) -> list[str]:
    return [_expect(entry, str, f"an entry of {what}") for entry in _expect(value, list, f'"{what}"')]


def _expect(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        raise PropertyError(f"expected {what} to be {kind.__name__}, found {value!r:.80}")
    return value
