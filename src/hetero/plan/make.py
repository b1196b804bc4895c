"""Making plans: from what the devices say, and from a plan that was loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..affinity import assign
from ..partition import partition_graph
from .bind import PlacedModel, affinity_of_plan
from .plan import Bound, Plan

if TYPE_CHECKING:
    from ..calls import SettledModel
    from ..plugin import Support

__all__ = ["bind_plan", "make_plan"]


def make_plan(
    settled: SettledModel,
    pins: Mapping[str, str] | None = None,
    policy: str = "auto",
    skipped: Mapping[str, str] | None = None,
) -> Plan:
    """Assign and partition. ``skipped``: devices that were asked for and cannot be used, with the reason. Raises what
    `assign` and `partition_graph` raise."""
    model = settled.model
    affinity = assign(model, settled.devices, settled.supports, pins, settled.enclosing)
    partition = partition_graph(model.graph, affinity.device_of, policy=policy)
    bound = Bound(model, affinity, partition)
    return Plan(bound=bound, original=settled.original, policy=policy, pins=pins, skipped=skipped)


def bind_plan(
    plan: Plan,
    placed: PlacedModel,
    devices: Sequence[str],
    supports: Sequence[Support],
    skipped: Mapping[str, str] | None = None,
) -> Plan:
    """A plan of a model from one that states devices and subgraphs. ``devices``: those of the plan that can be used
    here; ``supports``: what they say about ``placed.model``. Raises what `affinity_of_plan` raises."""
    affinity, is_as_planned = affinity_of_plan(placed, plan, devices, supports)
    same_numbers = tuple(devices) == plan.devices
    if is_as_planned and same_numbers:
        partition = placed.partition
    else:
        partition = partition_graph(placed.model.graph, affinity.device_of, policy=plan.policy)
    bound = Bound(placed.model, affinity, partition)
    return Plan(bound=bound, original=placed.original, policy=plan.policy, pins=plan.pins, skipped=skipped)
