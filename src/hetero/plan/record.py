"""The data of a plan, without its questions and files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..assign.affinity import Affinity
from ..assign.memory.footprint import Footprint, footprint
from ..assign.memory.values import values_of
from ..assign.predictions import PredictedLatency, PredictedPipeline
from ..errors import PropertyError, memory_errors
from ..model.identity import graph_digest
from ..partition import Partition
from .decided import Decided
from .schema import BoundaryValue, DeviceTotals, ModelIdentity, PlanFile, PlannedSubgraph
from .traffic import Traffic, boundary_values, device_totals, traffic

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["Bound", "PlanRecord"]


class Bound(NamedTuple):
    """The model, affinity and partition of a plan. Calls may be inlined in this model, which is the one compiled."""

    model: Model
    affinity: Affinity
    partition: Partition


class PlanRecord:
    """The data of a plan. `Plan` adds questions and files."""

    def __init__(
        self,
        *,
        bound: Bound | None = None,
        original: Model | None = None,
        file: PlanFile | None = None,
        policy: str = "auto",
        pins: Mapping[str, str] | None = None,
        skipped: Mapping[str, str] | None = None,
        latency: PredictedLatency | None = None,
        pipeline: PredictedPipeline | None = None,
        limits: Mapping[str, int] | None = None,
        decided: Decided | None = None,
        decide: Callable[[Affinity], Decided] | None = None,
        label: str = "the plan",
    ) -> None:
        """``decided``: the results of stages 2 and 3; ``decide``: computes them for another affinity, for `what_if`.
        Both are None for loaded plans."""
        assert (bound is None) != (file is None)
        self.bound = bound
        self.original = original
        self.label = label
        self.skipped = dict(skipped or {})
        self.policy = policy if file is None else file.policy
        self.latency = latency if file is None else file.latency
        self.pipeline = pipeline if file is None else file.pipeline
        self.limits: Mapping[str, int] = dict(limits or {})
        if file is not None:
            self.limits = {one.device: one.limit_bytes for one in file.totals if one.limit_bytes is not None}
        self.pins: Mapping[str, str] = dict(pins or {}) if file is None else file.pins
        self.decided = decided
        self.decide = decide
        self._file = file

    @property
    def model_name(self) -> str:
        """The name of the graph."""
        return self.bound.model.name if self.bound else self._loaded.model.name

    @functools.cached_property
    def identity(self) -> ModelIdentity:
        """The model of the plan: its name, its number of nodes, and the digest of its graph."""
        if self.bound is None:
            return self._loaded.model
        model = self.bound.model if self.original is None else self.original
        return ModelIdentity(model.name, model.num_nodes, graph_digest(model))

    @property
    def devices(self) -> tuple[str, ...]:
        """The usable devices of the list, by priority."""
        return self.bound.affinity.devices if self.bound else self._loaded.devices

    @property
    def num_nodes(self) -> int:
        """The number of nodes of the compiled model, in which calls of functions may be inlined."""
        return self.bound.model.num_nodes if self.bound else len(self._loaded.affinity)

    @property
    def num_subgraphs(self) -> int:
        """The number of subgraphs."""
        return self.bound.partition.num_subgraphs if self.bound else len(self._loaded.subgraphs)

    @functools.cached_property
    @memory_errors()
    def affinity(self) -> Mapping[str, str]:
        """Node key -> device, for every node."""
        if self.bound is None:
            return self._loaded.affinity
        model, affinity, _ = self.bound
        return dict(zip(model.keys, map(affinity.devices.__getitem__, affinity.device_of.tolist()), strict=True))

    @functools.cached_property
    @memory_errors()
    def subgraphs(self) -> tuple[PlannedSubgraph, ...]:
        """The subgraphs, in an order in which they can run. Messages and files number them from 1 in this order."""
        if self.bound is None:
            return self._loaded.subgraphs
        model, affinity, partition = self.bound
        keys = model.keys
        return tuple(
            PlannedSubgraph(affinity.devices[device], tuple(keys[node] for node in partition.nodes(i).tolist()))
            for i, device in enumerate(partition.device_of.tolist())
        )

    @functools.cached_property
    @memory_errors()
    def reasons(self) -> Mapping[str, str]:
        """Node key -> reason, for the nodes that are pinned or not on the first device of the list."""
        if self.bound is None:
            return self._loaded.reasons
        model, affinity, _ = self.bound
        told = np.flatnonzero((affinity.device_of > 0) | (affinity.origin > 0))
        return {model.keys[node]: affinity.reason(node) for node in told.tolist()}

    @functools.cached_property
    @memory_errors()
    def values(self) -> tuple[BoundaryValue, ...]:
        """The tensors that pass between subgraphs, ordered by the subgraph that makes them. Their types come from the
        model, which may run shape inference; `Model.with_types` replaces symbols by sizes."""
        if self.bound is None:
            return self._loaded.values
        return boundary_values(self.bound.model, self.traffic)

    @functools.cached_property
    @memory_errors()
    def totals(self) -> tuple[DeviceTotals, ...]:
        """Totals of each device, in the order of ``devices``."""
        if self.bound is None:
            return self._loaded.totals
        return device_totals(self.devices, self.bound.partition, self.traffic, self.values, self.footprint, self.limits)

    @functools.cached_property
    @memory_errors()
    def footprint(self) -> Footprint:
        """The memory that each device needs, in the order of ``devices``. Raises `PropertyError` for a loaded plan that
        is not bound to a model."""
        model, _, partition = self.require_bound()
        return footprint(values_of(model), partition.subgraph_of, partition.device_of, len(self.devices))

    @functools.cached_property
    @memory_errors()
    def traffic(self) -> Traffic:
        """`values` as arrays. Raises `PropertyError` for a loaded plan that is not bound to a model."""
        model, _, partition = self.require_bound()
        return traffic(model, partition.subgraph_of)

    def require_bound(self) -> Bound:
        """``bound``. Raises `PropertyError` for a loaded plan that is not bound to a model."""
        if self.bound is None:
            raise PropertyError(f"{self.label} was loaded and has no model; bind it with core.plan(model, plan)")
        return self.bound

    @property
    def _loaded(self) -> PlanFile:
        assert self._file is not None
        return self._file
