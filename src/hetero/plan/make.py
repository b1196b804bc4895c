"""Makes plans from the answers of devices, and from a loaded plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..assign.affinity import Affinity, assign
from ..base.warn import warn
from ..partition import partition_graph
from .bind import PlacedModel, affinity_of_plan, stages_of_plan
from .decided import Decided
from .plan import Plan
from .record import Bound
from .warning import unknown_sizes

if TYPE_CHECKING:
    from ..assign.by_cost import CostAffinity
    from ..assign.by_stage import StagedAffinity
    from ..assign.calls import ResolvedModel
    from ..plugin.contract import Support

__all__ = ["bind_plan", "make_plan"]


def make_plan(
    resolved: ResolvedModel,
    pins: Mapping[str, str] | None = None,
    policy: str = "auto",
    skipped: Mapping[str, str] | None = None,
    by_cost: Callable[[ResolvedModel, Affinity], CostAffinity | StagedAffinity] | None = None,
    limits: Mapping[str, int] | None = None,
) -> Plan:
    """Assign and partition. ``skipped``: unusable devices of the list, with the reason. ``by_cost``: reassigns the
    nodes that were assigned by priority, and partitions them. ``limits``: device -> memory limit in bytes. Raises the
    errors of `assign` and `partition_graph`, and `InsufficientMemory` if no assignment is found that fits."""
    model = resolved.model

    def decide(affinity: Affinity) -> Decided:
        if by_cost is None and limits:
            from ..assign.within_memory import fit_affinity

            return Decided(*fit_affinity(model, affinity, limits, policy))
        if by_cost is None:
            return Decided(affinity, partition_graph(model.graph, affinity.device_of, policy=policy))
        found = by_cost(resolved, affinity)
        costs = None if found.latency is None else found
        return Decided(found.affinity, found.partition, found.latency, found.pipeline, costs)

    decided = decide(assign(model, resolved.devices, resolved.supports, pins, resolved.enclosing))
    plan = Plan(
        bound=Bound(model, decided.affinity, decided.partition),
        original=resolved.original,
        policy=policy,
        pins=pins,
        skipped=skipped,
        latency=decided.latency,
        pipeline=decided.pipeline,
        limits=limits,
        decided=decided,
        decide=decide,
    )
    _warn_of_unknown_sizes(plan)
    return plan


def bind_plan(
    plan: Plan,
    placed: PlacedModel,
    devices: Sequence[str],
    supports: Sequence[Support],
    skipped: Mapping[str, str] | None = None,
    limits: Mapping[str, int] | None = None,
) -> Plan:
    """A bound plan from a loaded one. ``devices``: the usable devices of the plan; ``supports``: their answers about
    ``placed.model``. ``limits``: device -> memory limit in bytes. Raises the errors of `affinity_of_plan`, and
    `InsufficientMemory` if the plan exceeds a limit: the plan is not changed to fit."""
    affinity, is_as_planned = affinity_of_plan(placed, plan, devices, supports)
    same_numbers = tuple(devices) == plan.devices
    latency = plan.latency if is_as_planned and same_numbers else None
    pipeline = None
    if is_as_planned and same_numbers:
        partition = placed.partition
        pipeline = stages_of_plan(plan, partition)
    else:
        partition = partition_graph(placed.model.graph, affinity.device_of, policy=plan.policy)
    if limits:
        from ..assign.within_memory import check_limits

        check_limits(placed.model, devices, partition, limits)
    bound = Bound(placed.model, affinity, partition)
    made = Plan(
        bound=bound,
        original=placed.original,
        policy=plan.policy,
        pins=plan.pins,
        skipped=skipped,
        latency=latency,
        pipeline=pipeline,
        limits=limits,
    )
    _warn_of_unknown_sizes(made)
    return made


def _warn_of_unknown_sizes(plan: Plan) -> None:
    """Warn that limits may not hold. Callers that compile do not see `Plan.warnings`."""
    if plan.limits:
        for found in unknown_sizes(plan):
            warn(found.message)
