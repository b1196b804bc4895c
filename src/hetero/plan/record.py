"""`PlanRecord`: the data of a plan, whether it is bound to a model or loaded from a file."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

from ..assign.predictions import PredictedLatency, PredictedPipeline
from ..base.collection import MANY_NODES, collection_paused
from ..base.files import write_file
from ..base.formatting import counted
from .schema import BoundaryValue, DeviceTotals, ModelIdentity, PlanFile, PlannedSubgraph, PlanWarning
from .traffic import Boundary

__all__ = ["PlanRecord"]


class PlanRecord(abc.ABC):
    """Devices, affinities and subgraphs of one model, as data. Immutable. A `Plan` or a `LoadedPlan`.

    ``policy``: the partition policy. ``pins``: as the user passed them. ``limits``: device -> memory limit in bytes.
    ``label``: the plan's name in messages.
    """

    policy: str
    pins: Mapping[str, str]
    limits: Mapping[str, int]
    label: str

    @property
    @abc.abstractmethod
    def identity(self) -> ModelIdentity:
        """The model of the plan: its name, its number of nodes, and the digest of its graph."""

    @property
    @abc.abstractmethod
    def devices(self) -> tuple[str, ...]:
        """The usable devices of the list, by priority."""

    @property
    @abc.abstractmethod
    def num_nodes(self) -> int:
        """The number of nodes of the compiled model, in which calls of functions may be inlined."""

    @property
    @abc.abstractmethod
    def num_subgraphs(self) -> int:
        """The number of subgraphs."""

    @property
    @abc.abstractmethod
    def lower_bound(self) -> int | None:
        """A number of subgraphs that no valid partition with these devices per node is below. If it equals
        `num_subgraphs`, the plan has the fewest subgraphs possible. None for a plan file without it."""

    @property
    @abc.abstractmethod
    def affinity(self) -> Mapping[str, str]:
        """Node key -> device, for every node."""

    @property
    @abc.abstractmethod
    def subgraphs(self) -> tuple[PlannedSubgraph, ...]:
        """The subgraphs, in an order in which they can run. Messages and files number them from 1 in this order."""

    @property
    @abc.abstractmethod
    def reasons(self) -> Mapping[str, str]:
        """Node key -> reason, for the nodes that are pinned or not on the first device of the list."""

    @property
    def notes(self) -> Mapping[str, str]:
        """Node key -> how its device runs the node, for devices that say so, such as CONTROL_FLOW. Empty for a loaded
        plan, whose `reasons` contain these texts."""
        return {}

    @property
    @abc.abstractmethod
    def values(self) -> tuple[BoundaryValue, ...]:
        """The tensors that pass between subgraphs, ordered by the subgraph that makes them."""

    @property
    @abc.abstractmethod
    def totals(self) -> tuple[DeviceTotals, ...]:
        """Totals of each device, in the order of ``devices``."""

    @property
    @abc.abstractmethod
    def warnings(self) -> tuple[PlanWarning, ...]:
        """Possible problems: unused devices, tiny islands, pins that cost subgraphs or time."""

    @property
    def unknown_sizes(self) -> str:
        """How to set the sizes of the model if values have unknown sizes; empty otherwise, and for a loaded plan."""
        return ""

    @property
    @abc.abstractmethod
    def latency(self) -> PredictedLatency | None:
        """The predicted latency, if nodes were assigned by cost."""

    @property
    @abc.abstractmethod
    def pipeline(self) -> PredictedPipeline | None:
        """The stages, if the plan is a pipeline."""

    @property
    def model_name(self) -> str:
        """The name of the graph."""
        return self.identity.name

    # ---- as columns, for large plans

    @property
    @abc.abstractmethod
    def boundary(self) -> Boundary:
        """`values` as columns."""

    @property
    @abc.abstractmethod
    def subgraph_devices(self) -> Sequence[str]:
        """The device of each subgraph."""

    @abc.abstractmethod
    def ends_of(self, subgraph: int) -> tuple[int, str, str]:
        """The number of nodes of a subgraph, counted from 0, and the keys of the first and the last."""

    # ---- as a file

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON, atomically; an existing file is replaced. Equal plans give identical bytes. Raises
        `HeteroError` if the file cannot be written."""
        from .file import encode_lines

        write_file(path, encode_lines(self.to_file()), "plan ")

    def to_json(self) -> bytes:
        """The JSON of `save`, on one line."""
        import msgspec

        return msgspec.json.encode(self.to_file())

    def to_file(self) -> PlanFile:
        """The contents, as the types of the file."""
        with collection_paused(self.num_nodes >= MANY_NODES):
            return PlanFile(
                format="hetero-plan",
                version=1,
                model=self.identity,
                devices=self.devices,
                affinity=self.affinity,
                policy=self.policy,
                pins=self.pins,
                subgraphs=self.subgraphs,
                lower_bound=self.lower_bound,
                totals=self.totals,
                warnings=self.warnings,
                values=self.values,
                latency=self.latency,
                pipeline=self.pipeline,
                reasons=self.reasons,
            )

    def settings(self) -> Sequence[Any]:
        """The parts that affect compiling, as JSON types."""
        stages = None if self.pipeline is None else [stage.subgraphs for stage in self.pipeline.stages]
        return [self.devices, self.policy, dict(self.affinity), [part.nodes for part in self.subgraphs], stages]

    # ---- as a value

    def __eq__(self, other: object) -> bool:
        """Whether both have the same contents, bound to a model or not."""
        if not isinstance(other, PlanRecord):
            return NotImplemented
        return self is other or (hash(self) == hash(other) and self.to_json() == other.to_json())

    def __hash__(self) -> int:
        return hash((self.identity.digest, self.devices, self.num_subgraphs))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __repr__(self) -> str:
        subgraphs = counted(self.num_subgraphs, "subgraph")
        return f"<{type(self).__name__} of {self.model_name!r} on {', '.join(self.devices)}: {subgraphs}>"
