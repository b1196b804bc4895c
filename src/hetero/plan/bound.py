"""`BoundPlan`: the data of a plan that is bound to a model, without its questions."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..assign.assignment import Assignment
from ..assign.memory.footprint import Footprint, footprint
from ..assign.memory.values import values_of
from ..assign.predictions import PredictedLatency, PredictedPipeline
from ..assign.request import AssignmentRules
from ..assign.within_memory import how_to_set_sizes
from ..errors import memory_errors
from ..model.identity import graph_digest
from .record import PlanRecord
from .schema import BoundaryValue, DeviceTotals, ModelIdentity, PlannedSubgraph
from .traffic import Boundary, Traffic, boundary_of, device_totals, traffic

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["BoundPlan"]


class BoundPlan(PlanRecord):
    """The data of a plan. `Plan` adds the questions.

    ``assignment``: the device of each node, the partition and the predictions. ``rules``: how nodes were assigned.
    ``skipped``: the unusable devices of the list -> reason.
    """

    label = "the plan"

    def __init__(
        self,
        assignment: Assignment,
        rules: AssignmentRules,
        pins: Mapping[str, str],
        skipped: Mapping[str, str],
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """``limits``: defaults to those of ``rules``."""
        self.assignment = assignment
        self.rules = rules
        self.policy = rules.policy
        self.pins = dict(pins)
        self.skipped = dict(skipped)
        self.limits = dict(rules.limits if limits is None else limits)

    @property
    def original(self) -> Model:
        """The model before calls of functions were inlined and nodes copied."""
        return self.assignment.original

    @property
    def latency(self) -> PredictedLatency | None:
        return self.assignment.latency

    @property
    def pipeline(self) -> PredictedPipeline | None:
        return self.assignment.pipeline

    @functools.cached_property
    def identity(self) -> ModelIdentity:
        return ModelIdentity(self.original.name, self.original.num_nodes, graph_digest(self.original))

    @property
    def model_name(self) -> str:
        return self.assignment.model.name

    @property
    def devices(self) -> tuple[str, ...]:
        return self.assignment.affinity.devices

    @property
    def num_nodes(self) -> int:
        return self.assignment.model.num_nodes

    @property
    def num_subgraphs(self) -> int:
        return self.assignment.partition.num_subgraphs

    @property
    def lower_bound(self) -> int:
        return self.assignment.partition.lower_bound

    @functools.cached_property
    @memory_errors()
    def affinity(self) -> Mapping[str, str]:
        affinity = self.assignment.affinity
        devices = map(affinity.devices.__getitem__, affinity.device_of.tolist())
        return dict(zip(self.assignment.model.keys, devices, strict=True))

    @functools.cached_property
    @memory_errors()
    def subgraphs(self) -> tuple[PlannedSubgraph, ...]:
        partition, keys = self.assignment.partition, self.assignment.model.keys
        nodes = np.argsort(partition.subgraph_of, kind="stable").tolist()
        ordered = tuple(map(keys.__getitem__, nodes))
        ends = np.cumsum(np.bincount(partition.subgraph_of, minlength=partition.num_subgraphs)).tolist()
        rows = zip(self.subgraph_devices, itertools.pairwise([0, *ends]), strict=True)
        return tuple(PlannedSubgraph(device, ordered[begin:end]) for device, (begin, end) in rows)

    @functools.cached_property
    @memory_errors()
    def reasons(self) -> Mapping[str, str]:
        affinity, keys = self.assignment.affinity, self.assignment.model.keys
        nodes = np.flatnonzero((affinity.device_of > 0) | (affinity.origin > 0))
        return {keys[node]: affinity.reason(node) for node in nodes.tolist()}

    @property
    def notes(self) -> Mapping[str, str]:
        model = self.assignment.model
        return {model.key_of(node): note for node, note in self.assignment.affinity.notes().items()}

    @functools.cached_property
    @memory_errors()
    def values(self) -> tuple[BoundaryValue, ...]:
        return self.boundary.values(self.assignment.model.value_names(self.traffic.value))

    @functools.cached_property
    @memory_errors()
    def boundary(self) -> Boundary:
        """`values` as columns. Their types come from the model, which may run shape inference; `Model.with_types`
        replaces symbols by sizes."""
        return boundary_of(self.assignment.sized_model, self.traffic)

    @property
    def subgraph_devices(self) -> Sequence[str]:
        return list(map(self.devices.__getitem__, self.assignment.partition.device_of.tolist()))

    def ends_of(self, subgraph: int) -> tuple[int, str, str]:
        nodes = self.assignment.partition.nodes(subgraph)
        key_of = self.assignment.model.key_of
        return len(nodes), key_of(int(nodes[0])), key_of(int(nodes[-1]))

    @functools.cached_property
    @memory_errors()
    def totals(self) -> tuple[DeviceTotals, ...]:
        partition = self.assignment.partition
        return device_totals(self.devices, partition, self.boundary, self.footprint, self.limits)

    @property
    def unknown_sizes(self) -> str:
        unknown = int(self.footprint.unknown.sum())
        return how_to_set_sizes(self.assignment.model, unknown) if unknown else ""

    @functools.cached_property
    @memory_errors()
    def footprint(self) -> Footprint:
        """The memory that each device needs, in the order of ``devices``."""
        return self.footprint_of(self.assignment.model)

    def footprint_of(self, model: Model) -> Footprint:
        """The same for a model of the same nodes with other sizes."""
        partition = self.assignment.partition
        values = values_of(model, units=self.assignment.affinity.units)
        return footprint(values, partition.subgraph_of, partition.device_of, len(self.devices), self.overlap_times)

    @property
    def overlap_times(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """When each subgraph begins and ends, in seconds; None if they run one after the other."""
        latency = self.latency
        return (latency.begin_s, latency.end_s) if latency is not None and latency.overlaps else None

    @functools.cached_property
    @memory_errors()
    def traffic(self) -> Traffic:
        """Between which subgraphs values pass, without their types."""
        return traffic(self.assignment.model, self.assignment.partition.subgraph_of)
