"""A plan: which node goes where and why, and how the model is cut, before anything is compiled.

Made by `Core.plan` from stage 2 and stage 3; saved as JSON, edited by hand, loaded, and handed to
`Core.compile_model` in place of a device string. A loaded plan pins each node to the device it names; the cut is made
again from that, and is the same as long as the devices are.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from .affinity import Affinity, assign
from .errors import HeteroError, PropertyError, did_you_mean
from .files import write_atomically
from .partition import Partition, partition_graph
from .plugin import Support

if TYPE_CHECKING:
    from .model.model import Model

__all__ = ["FORMAT_VERSION", "Plan", "PlannedSubgraph", "make_plan"]

FORMAT_VERSION: Literal[1] = 1


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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON, whole or not at all. The order of keys is stable."""
        import msgspec

        file = _PlanFile(
            "hetero-plan",
            FORMAT_VERSION,
            self.model_name,
            self.devices,
            self.policy,
            dict(self.affinity),
            self.subgraphs,
            dict(self.reasons),
        )
        target = Path(path)
        try:
            write_atomically(target, msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n")
        except OSError as error:
            raise HeteroError(f"cannot write plan {target}: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan that `save` wrote, edited or not. Raises `HeteroError` saying what is wrong with the file."""
        import msgspec

        try:
            file = msgspec.json.decode(Path(path).read_bytes(), type=_PlanFile)
        except OSError as error:
            raise HeteroError(f"cannot read plan {os.fspath(path)}: {error.strerror or error}") from error
        except msgspec.MsgspecError as error:
            raise HeteroError(f"plan {os.fspath(path)}: {error}") from error
        for key, device in file.affinity.items():
            if device not in file.devices:
                raise PropertyError(
                    f"plan {os.fspath(path)}: node {key!r} is on {device!r}, which is not in its devices: "
                    f"{', '.join(file.devices)}{did_you_mean(device, file.devices)}"
                )
        return cls(
            model_name=file.model,
            devices=file.devices,
            policy=file.policy,
            affinity=file.affinity,
            subgraphs=file.subgraphs,
            reasons=file.reasons,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _PlanFile:
    """The schema of the file; msgspec checks it on reading and names the place of what does not fit."""

    format: Literal["hetero-plan"]
    version: Literal[1]
    model: str
    devices: tuple[str, ...]
    policy: str
    affinity: Mapping[str, str]
    subgraphs: tuple[PlannedSubgraph, ...]
    reasons: Mapping[str, str]


def make_plan(
    model: Model,
    devices: Sequence[str],
    supports: Sequence[Support],
    pins: Mapping[str, str] | None = None,
    policy: str = "linear",
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
