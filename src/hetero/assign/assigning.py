"""Stages 2 and 3 for a model and a request: query the devices, assign every node, and cut."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import InsufficientMemory, UnsupportedModel
from ..partition import Partition, partition_graph
from .affinity import Affinity, assign
from .assignment import Assignment
from .calls import ResolvedModel, resolve_calls
from .constraints import assign_within_constraints, resolve_groups
from .copies import copies_apart, is_better, reads_to_copy
from .pipeline import PipelineError
from .request import AssignmentRules, Objective, Request
from .with_readers import WithReaders

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["assign_and_cut", "assign_model", "resolve_model"]


def resolve_model(model: Model, request: Request) -> ResolvedModel:
    """The answers of the devices about the model, with calls of functions resolved. A single device ignores affinities
    in the model."""
    asked = model if request.cuts else model.with_affinity({})
    return resolve_calls(asked, request.names, request.supports, request.pins)


def assign_model(model: Model, request: Request) -> Assignment:
    """Stages 2 and 3: assign every node, and cut the model. Raises the errors of `resolve_calls`, `assign` and
    `assign_and_cut`."""
    resolved = resolve_model(model, request)
    first = _by_priority(resolved, request)
    try:
        assignment = assign_and_cut(resolved.original, resolved.model, first, request.rules)
    except (UnsupportedModel, PipelineError):  # as two devices that run a node only with its unit, and share it
        copied = _with_copies(resolved, request, first, None)
        if copied is None:
            raise
        return copied
    copied = _with_copies(resolved, request, first, assignment.partition)
    return copied if copied is not None and is_better(copied, assignment) else assignment


def _with_copies(
    resolved: ResolvedModel, request: Request, first: Affinity, partition: Partition | None
) -> Assignment | None:
    """The assignment in which readers have their own nodes as `reads_to_copy` says; None if it does not name any, or
    finds no assignment then. Copies in the subgraph of their node are left out again unless that makes it worse."""
    reads = list(reads_to_copy(resolved.model, first, partition)) if any(first.units) else []
    if not reads:
        return None

    def assigned(reads: Sequence[tuple[int, int]]) -> Assignment | None:
        try:
            copied = resolved.with_copies(reads, request.supports)
            return assign_and_cut(copied.original, copied.model, _by_priority(copied, request), request.rules)
        except (InsufficientMemory, UnsupportedModel, PipelineError):
            return None

    every = assigned(reads)
    apart = [] if every is None else copies_apart(resolved.model, reads, every)
    if every is None or not 0 < len(apart) < len(reads):
        return every
    fewer = assigned(apart)
    return every if fewer is None or is_better(every, fewer) else fewer


def _by_priority(resolved: ResolvedModel, request: Request) -> Affinity:
    affinity = assign(resolved.model, resolved.devices, resolved.supports, request.pins, resolved.enclosing)
    if not request.rules.together:
        return affinity
    groups = resolve_groups(resolved.model, request.rules.together, resolved.enclosing)
    return dataclasses.replace(affinity, groups=groups)


def assign_and_cut(original: Model, model: Model, affinity: Affinity, rules: AssignmentRules) -> Assignment:
    """Cut the model; before that, move the nodes that ``affinity`` placed by priority, as the rules and the constraints
    require.

    Raises the errors of `partition_graph`, `assign_for_latency`, `assign_to_overlap`, `assign_stages` and
    `assign_within_constraints`, and `InsufficientMemory` if no assignment is found within the memory limits.
    """
    solve = functools.partial(_unconstrained, original, model, rules)
    return assign_within_constraints(model, affinity, rules, solve)


def _unconstrained(original: Model, model: Model, rules: AssignmentRules, affinity: Affinity) -> Assignment:
    """`assign_and_cut` without `hetero.assign.constraints`."""
    readers = WithReaders.of(model, affinity)
    affinity = readers.first(affinity)
    if rules.objective is Objective.COST:
        from .by_cost import assign_for_latency

        return assign_for_latency(original, model, affinity, rules, readers)
    if rules.objective in (Objective.OVERLAP, Objective.OVERLAP_BY_PRIORITY):
        from .by_makespan import assign_to_overlap

        return assign_to_overlap(original, model, affinity, rules, readers)
    if rules.objective is Objective.THROUGHPUT:
        from .by_stage import assign_stages

        return assign_stages(original, model, affinity, rules, readers)
    if rules.limits:
        from .within_memory import fit_affinity

        affinity, partition = fit_affinity(model, affinity, rules.limits, readers, rules.policy)
        return Assignment(original, model, affinity, partition)
    return Assignment(original, model, affinity, partition_graph(model.graph, affinity.device_of, policy=rules.policy))
