"""Makes plans: for a model and a request, and from a plan that was made before."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..assign.assigning import assign_model
from ..assign.assignment import Assignment
from ..assign.constraints import check_constraints, with_whole_units
from ..assign.request import AssignmentRules, Objective, Request
from ..base.collection import MANY_NODES, collection_paused
from ..base.formatting import byte_size
from ..base.warn import warn
from ..errors import InsufficientMemory
from ..partition import partition_graph
from .bind import affinity_of_plan, place_plan, stages_of_plan, with_nested_calls_inlined
from .plan import Plan
from .warning import repeated_devices, unknown_sizes

if TYPE_CHECKING:
    from ..model.model import Model
    from .record import PlanRecord

__all__ = ["bind_plan", "check_limits", "make_plan"]


def make_plan(model: Model, request: Request) -> Plan:
    """Assign and partition. Raises the errors of `assign_model`."""
    with collection_paused(model.num_nodes >= MANY_NODES):
        assignment = assign_model(model, request)
    left = _limits_beside_bodies(assignment, request)
    if left != request.rules.limits:
        within = dataclasses.replace(request, rules=dataclasses.replace(request.rules, limits=left))
        assignment = assign_model(model, within)
    plan = Plan(assignment, request.rules, request.pins, request.skipped)
    if left != request.rules.limits:
        check_limits(plan, request)  # other nodes may have bodies there
    _warn_of_unknown_sizes(plan)
    if request.rules.objective is Objective.PRIORITY:
        for warning in repeated_devices(plan.assignment, request.rules.limits):
            warn(warning.message)
    return plan


def bind_plan(model: Model, plan: PlanRecord, request: Request) -> Plan:
    """A plan of this model from a loaded plan, or from a plan for another `Model` object.

    Nodes of devices that are not available move to the first device that supports them. Raises the errors of
    `place_plan` and `affinity_of_plan`, `InsufficientMemory` if the plan exceeds a limit of the request, and
    `PropertyError` if it breaks a constraint: the plan is not changed to fit.
    """
    placed = place_plan(model, plan)
    if not request.cuts:  # such as a plan for MULTI, which has nothing to choose
        return make_plan(model, request)
    supports = request.supports(placed.model)
    inlined = with_nested_calls_inlined(placed, plan, request.names, supports)
    if inlined is not placed:
        placed, supports = inlined, request.supports(inlined.model)
    affinity, is_as_planned = affinity_of_plan(placed, plan, request.names, supports)
    latency = pipeline = None
    if is_as_planned and request.names == plan.devices:
        partition = placed.partition
        latency, pipeline = plan.latency, stages_of_plan(plan, partition)
        is_cut_anew = placed.is_cut_anew
    else:
        is_cut_anew = True
        partition = partition_graph(placed.model.graph, affinity.device_of, policy=plan.policy)
    assignment = Assignment(placed.original, placed.model, affinity, partition, latency, pipeline)
    if is_cut_anew and latency is None and pipeline is None:
        assignment = with_whole_units(assignment, dataclasses.replace(request.rules, objective=Objective.PRIORITY))
    bound = Plan(assignment, AssignmentRules(plan.policy), plan.pins, request.skipped, request.rules.limits)
    check_limits(bound, request)
    check_constraints(assignment, request.rules, plan.label)
    _warn_of_unknown_sizes(bound)
    return bound


def check_limits(plan: Plan, request: Request) -> None:
    """Raise `InsufficientMemory` if a plan needs more than the request allows."""
    if request.rules.limits:
        from ..assign.within_memory import check_limits

        assignment = plan.assignment
        limits = _limits_beside_bodies(assignment, request)
        partition, units = assignment.partition, assignment.affinity.units
        check_limits(assignment.model, plan.devices, partition, limits, plan.overlap_times, units)


def _limits_beside_bodies(assignment: Assignment, request: Request) -> Mapping[str, int]:
    """The limits, minus the memory of nested graphs that CONTROL_FLOW runs on the other devices of the list.

    Without such nested graphs, these are the limits of the request. Raises `InsufficientMemory` if no memory is left.
    """
    limits = request.rules.limits
    if not limits:
        return limits
    taken: collections.Counter[str] = collections.Counter()
    for number, name in enumerate(assignment.affinity.devices):
        nodes = np.flatnonzero(assignment.affinity.device_of == number).tolist()
        device = next(device for device in request.devices if device.name == name)
        if nodes:
            taken.update(device.plugin.inner_bytes(assignment.model, nodes, device.config))
    excess = {name: taken[name] - limit for name, limit in limits.items() if taken[name] >= limit}
    if excess:
        listed = "; ".join(
            f"{name} would need {byte_size(taken[name])} of {byte_size(limits[name])}" for name in excess
        )
        raise InsufficientMemory(
            f"model {assignment.model.name!r} does not fit: for nested graphs alone, {listed}; raise the limit, or run "
            "the nodes with nested graphs whole, without CONTROL_FLOW",
            excess,
        )
    return {name: limit - taken[name] for name, limit in limits.items()}


def _warn_of_unknown_sizes(plan: Plan) -> None:
    """Warn that limits may not hold. Callers that compile do not see `Plan.warnings`."""
    if plan.limits:
        for warning in unknown_sizes(plan):
            warn(warning.message, about=f"sizes unknown to {warning.device}")
