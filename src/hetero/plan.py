"""A plan: which node goes where and why, and how the model is cut, before anything is compiled.

Made by `Core.plan` from stage 2 and stage 3; saved as JSON, edited by hand, loaded, and handed to
`Core.compile_model` in place of a device string. A loaded plan pins each node to the device it names; the cut is made
again from that, and is the same as long as the devices are.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from .affinity import Affinity, assign
from .errors import HeteroError, PropertyError, did_you_mean
from .files import write_atomically
from .partition import Partition, partition_graph

if TYPE_CHECKING:
    from .calls import SettledModel
    from .model.model import Model

__all__ = ["FORMAT_VERSION", "Plan", "PlannedSubgraph", "make_plan"]

FORMAT_VERSION: Literal[1] = 1


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedSubgraph:
    """One subgraph of a plan: its device and its nodes' keys, in topological order."""

    device: str
    nodes: tuple[str, ...]


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


class Plan:
    """Devices, affinities and subgraphs of one model, as data. Immutable.

    ``bound`` is what a plan was made from, and None for a loaded one; ``original`` the model it was made for, which is
    not the bound one if calls of functions were inlined. What follows from it by node key is worked out
    when asked for: a graph of a million nodes is planned without a million strings.
    """

    def __init__(
        self,
        bound: tuple[Model, Affinity, Partition] | None,
        file: _PlanFile | None,
        policy: str,
        original: Model | None = None,
    ) -> None:
        assert (bound is None) != (file is None)
        self.bound = bound
        self.original = original
        self.policy = policy
        self._file = file

    @property
    def model_name(self) -> str:
        return self.bound[0].name if self.bound else self._loaded.model

    @property
    def devices(self) -> tuple[str, ...]:
        """The device list, by priority."""
        return self.bound[1].devices if self.bound else self._loaded.devices

    @property
    def num_subgraphs(self) -> int:
        return self.bound[2].num_subgraphs if self.bound else len(self._loaded.subgraphs)

    @functools.cached_property
    def affinity(self) -> Mapping[str, str]:
        """Node key -> device, for every node."""
        if self.bound is None:
            return self._loaded.affinity
        model, affinity, _ = self.bound
        return {key: affinity.devices[i] for key, i in zip(model.keys, affinity.device_of.tolist(), strict=True)}

    @functools.cached_property
    def subgraphs(self) -> tuple[PlannedSubgraph, ...]:
        """The subgraphs, in an order in which they can run."""
        if self.bound is None:
            return self._loaded.subgraphs
        model, affinity, partition = self.bound
        return tuple(
            PlannedSubgraph(affinity.devices[device], tuple(model.keys[node] for node in partition.nodes(i).tolist()))
            for i, device in enumerate(partition.device_of.tolist())
        )

    @functools.cached_property
    def reasons(self) -> Mapping[str, str]:
        """Node key -> why it is there, for the nodes that are pinned or not on the first device of the list."""
        if self.bound is None:
            return self._loaded.reasons
        model, affinity, _ = self.bound
        told = np.flatnonzero((affinity.device_of > 0) | (affinity.origin > 0))
        return {model.keys[node]: affinity.reason(node) for node in told.tolist()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON, whole or not at all. The order of keys is stable."""
        import msgspec

        try:
            write_atomically(path, [msgspec.json.format(self.to_json(), indent=1), b"\n"])
        except OSError as error:
            raise HeteroError(f"cannot write plan {os.fspath(path)}: {error.strerror or error}") from error

    def to_json(self) -> bytes:
        """What `save` writes, on one line."""
        import msgspec

        file = _PlanFile(
            "hetero-plan",
            FORMAT_VERSION,
            self.model_name,
            self.devices,
            self.policy,
            self.affinity,
            self.subgraphs,
            self.reasons,
        )
        return msgspec.json.encode(file)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan that `save` wrote, edited or not. Raises `HeteroError` saying what is wrong with the file."""
        try:
            with open(path, "rb") as stream:
                data = stream.read()
        except OSError as error:
            raise HeteroError(f"cannot read plan {os.fspath(path)}: {error.strerror or error}") from error
        return cls.from_json(data, f"plan {os.fspath(path)}")

    @classmethod
    def from_json(cls, data: bytes | memoryview, label: str) -> Plan:
        """What `to_json` gave. ``label``: how messages call it."""
        import msgspec

        try:
            file = msgspec.json.decode(data, type=_PlanFile)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise HeteroError(f"{label}: {error}") from error
        for key, device in file.affinity.items():
            if device not in file.devices:
                raise PropertyError(
                    f"{label}: node {key!r} is on {device!r}, which is not in its devices: "
                    f"{', '.join(file.devices)}{did_you_mean(device, file.devices)}"
                )
        return cls(None, file, file.policy)

    @property
    def _loaded(self) -> _PlanFile:
        assert self._file is not None
        return self._file

    def __repr__(self) -> str:
        return f"<Plan of {self.model_name!r} on {', '.join(self.devices)}: {self.num_subgraphs} subgraphs>"


def make_plan(settled: SettledModel, pins: Mapping[str, str] | None = None, policy: str = "auto") -> Plan:
    """Assign and partition. Raises what `assign` and `partition_graph` raise."""
    model = settled.model
    affinity = assign(model, settled.devices, settled.supports, pins, settled.enclosing)
    partition = partition_graph(model.graph, affinity.device_of, policy=policy)
    return Plan((model, affinity, partition), None, policy, settled.original)
