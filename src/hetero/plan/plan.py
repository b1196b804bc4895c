"""`Plan`: which node goes where and why, and how the model is cut, before anything is compiled."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..affinity import Affinity
from ..errors import HeteroError, PropertyError, memory_errors
from ..files import read_file, write_atomically
from ..memory.footprint import Footprint, footprint
from ..memory.values import values_of
from ..model.identity import graph_digest
from ..partition import Partition
from .decided import Decided
from .schema import (
    BoundaryValue,
    DeviceTotals,
    ModelIdentity,
    PlanFile,
    PlannedSubgraph,
    PlanWarning,
    PredictedLatency,
    PredictedPipeline,
)
from .traffic import Traffic, boundary_values, device_totals, traffic

if TYPE_CHECKING:
    from ..model.model import Model
    from .explain import Explanation, MissingOp
    from .what_if import Difference

__all__ = ["Bound", "Plan"]


class Bound(NamedTuple):
    """What a plan was made from. The model is the one that is compiled, in which calls may be inlined."""

    model: Model
    affinity: Affinity
    partition: Partition


class Plan:
    """Devices, affinities and subgraphs of one model, as data. Immutable.

    Made by `Core.plan`, or by `load` from a file, which may have been edited: `Core.plan` and `Core.compile_model`
    take it in place of a device string, check it against the model, and honour it. ``bound`` is what a plan was made
    from, and None for a loaded one, which `Core.plan` binds to a model; ``original`` the model it was made for, which
    is not the bound one if calls of functions were inlined. What follows from it by node key is worked out when asked
    for: a graph of a million nodes is planned without a million strings.

    ``devices``: the device list, by priority, without those that cannot be used here; ``skipped`` says why not.
    ``policy``: how the model is cut. ``latency``: what an inference is predicted to take, where nodes were assigned by
    cost. ``pipeline``: the stages, where the model is run as a pipeline. ``limits``: device -> bytes that it may take,
    for those that have a limit. ``pins``: as they were given. ``label``: what messages call the plan.
    """

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
        """``decided``, ``decide``: how nodes that are assigned by priority came to where they are, for questions about
        other assignments; None for plans that were loaded."""
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

    # ---- what it says

    @property
    def model_name(self) -> str:
        """The name of the graph."""
        return self.bound.model.name if self.bound else self._loaded.model.name

    @functools.cached_property
    def identity(self) -> ModelIdentity:
        """The model that it is for: its name, how many nodes it has, and the digest of its graph."""
        if self.bound is None:
            return self._loaded.model
        model = self.bound.model if self.original is None else self.original
        return ModelIdentity(model.name, model.num_nodes, graph_digest(model))

    @property
    def devices(self) -> tuple[str, ...]:
        """The device list, by priority, without those that cannot be used here."""
        return self.bound.affinity.devices if self.bound else self._loaded.devices

    @property
    def num_nodes(self) -> int:
        """Nodes of the model that is compiled, in which calls of functions may be inlined."""
        return self.bound.model.num_nodes if self.bound else len(self._loaded.affinity)

    @property
    def num_subgraphs(self) -> int:
        """How many subgraphs the model is cut into."""
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
        """The subgraphs, in an order in which they can run. Elsewhere they are numbered from 1 in this order."""
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
        """Node key -> why it is there, for the nodes that are pinned or not on the first device of the list."""
        if self.bound is None:
            return self._loaded.reasons
        model, affinity, _ = self.bound
        told = np.flatnonzero((affinity.device_of > 0) | (affinity.origin > 0))
        return {model.keys[node]: affinity.reason(node) for node in told.tolist()}

    @functools.cached_property
    @memory_errors()
    def values(self) -> tuple[BoundaryValue, ...]:
        """The tensors that pass between subgraphs, by the subgraph that makes them. Their types come from the model,
        which may run shape inference for them; `Model.with_types` fixes symbols to sizes."""
        if self.bound is None:
            return self._loaded.values
        return boundary_values(self.bound.model, self.traffic)

    @functools.cached_property
    @memory_errors()
    def totals(self) -> tuple[DeviceTotals, ...]:
        """What each device has, in the order of ``devices``."""
        if self.bound is None:
            return self._loaded.totals
        return device_totals(self.devices, self.bound.partition, self.traffic, self.values, self.footprint, self.limits)

    @functools.cached_property
    @memory_errors()
    def footprint(self) -> Footprint:
        """What each device needs, in the order of ``devices``. Raises `PropertyError` for a loaded plan that has not
        been bound to a model."""
        model, _, partition = self.require_bound()
        return footprint(values_of(model), partition.subgraph_of, partition.device_of, len(self.devices))

    @functools.cached_property
    @memory_errors()
    def warnings(self) -> tuple[PlanWarning, ...]:
        """What the plan's owner may not want: devices that are not used, tiny islands, pins that cost subgraphs."""
        if self.bound is None:
            return self._loaded.warnings
        from .warning import plan_warnings

        return plan_warnings(self)

    @functools.cached_property
    @memory_errors()
    def traffic(self) -> Traffic:
        """`values` as arrays. Raises `PropertyError` for a loaded plan that has not been bound to a model."""
        model, _, partition = self.require_bound()
        return traffic(model, partition.subgraph_of)

    # ---- questions

    def explain(self, node: str) -> Explanation:
        """Why a node is where it is, why it is cut from its neighbours, and what one more operator would change.

        ``node``: its key. Raises `ModelError`, with the nearest key, if there is none, and `PropertyError` for a
        loaded plan that is not bound: `Core.plan(model, plan)` binds it.
        """
        from .explain import explain

        return explain(self, node)

    def missing_ops(self, limit: int = 10) -> tuple[MissingOp, ...]:
        """The operators that would save the most subgraphs if one more device took them, the best first.

        Those that stand at most boundaries are tried, by cutting the model again for each; at most ``limit`` of them.
        Those that would save none are left out: one more operator often makes more subgraphs, not fewer.
        Raises `PropertyError` for a loaded plan that is not bound.
        """
        from .explain import missing_ops

        return missing_ops(self, limit)

    def what_if(
        self,
        *,
        device_supports: Mapping[str, Iterable[str]] | None = None,
        pins: Mapping[str, str] | None = None,
        without_pins: Iterable[str] = (),
    ) -> Difference:
        """How the plan would differ if devices took more operators, or with other pins.

        ``device_supports``: device -> operator types, as in `Model.op_types`, that it then takes. ``pins``: more pins;
        ``without_pins``: those of the plan to leave out. Nothing is compiled or asked again. Raises `PropertyError` for
        a device, operator or pin that there is none of, and for a loaded plan that is not bound. What was assigned by
        cost, or moved for want of memory, is assigned again: `InsufficientMemory` where nothing then fits.
        """
        from .what_if import what_if

        supports = {} if device_supports is None else device_supports
        return what_if(self, supports, {} if pins is None else pins, tuple(without_pins))

    # ---- as a file

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON, whole or not at all; a file of that name is replaced. The same plan gives the same
        bytes. Raises `HeteroError` if it cannot be written."""
        from .file import encode_lines

        try:
            write_atomically(path, encode_lines(self.to_file()))
        except OSError as error:
            raise HeteroError(f"cannot write plan {os.fsdecode(path)}: {error.strerror or error}") from error

    def to_json(self) -> bytes:
        """What `save` writes, on one line."""
        import msgspec

        return msgspec.json.encode(self.to_file())

    def to_file(self) -> PlanFile:
        """All that it says, as the types that the file is made of."""
        if self._file is not None:
            return self._file
        return PlanFile(
            format="hetero-plan",
            version=1,
            model=self.identity,
            devices=self.devices,
            affinity=self.affinity,
            policy=self.policy,
            pins=self.pins,
            subgraphs=self.subgraphs,
            totals=self.totals,
            warnings=self.warnings,
            values=self.values,
            latency=self.latency,
            pipeline=self.pipeline,
            reasons=self.reasons,
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan that `save` wrote, edited or not. Raises `HeteroError` saying what is wrong with the file, and
        where; what can only be told from the model is checked when it is put to use."""
        from .file import decode

        label = f"plan {os.fsdecode(path)}"
        try:
            data = read_file(path)
        except OSError as error:
            raise HeteroError(f"cannot read {label}: {error.strerror or error}") from error
        return cls(file=decode(data, label), label=label)

    @classmethod
    def from_json(cls, data: bytes | memoryview, label: str) -> Plan:
        """What `to_json` gave. ``label``: how messages call it."""
        from .file import decode

        return cls(file=decode(bytes(data), label), label=label)

    def settings(self) -> Sequence[Any]:
        """What of it matters to compiling, as JSON can hold it."""
        stages = None if self.pipeline is None else [stage.subgraphs for stage in self.pipeline.stages]
        return [self.devices, self.policy, dict(self.affinity), [part.nodes for part in self.subgraphs], stages]

    # ---- the rest

    def require_bound(self) -> Bound:
        """What it was made from. `PropertyError` for a loaded plan that has not been bound to a model."""
        if self.bound is None:
            raise PropertyError(
                f"{self.label} was loaded and has no model to look into: bind it with core.plan(model, plan)"
            )
        return self.bound

    @property
    def _loaded(self) -> PlanFile:
        assert self._file is not None
        return self._file

    def __str__(self) -> str:
        from .table import plan_table

        return plan_table(self)

    def _repr_svg_(self) -> str:
        """A picture of it, for notebooks."""
        from ..report.notebook import plan_svg

        return plan_svg(self)

    def __repr__(self) -> str:
        return f"<Plan of {self.model_name!r} on {', '.join(self.devices)}: {self.num_subgraphs} subgraphs>"
