"""Assignment by cost within memory limits.

Finds the assignment with the minimum predicted latency among those of these candidates that fit:
- the cheapest assignment without limits, and the assignment by priority, each reduced to the limits
  (`hetero.assign.memory.fit`);
- the cheapest assignments if bytes of weights have a price on overfull devices: Lagrangian relaxation, with the price
  found by bisection. They move the nodes that gain least per byte, and make few cuts;
- the results of a local search (`hetero.assign.memory.moves`) from the fastest two of these.
If there are few assignments, each is tried instead of the local search.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .cuts import AssignmentProblem, LatencyAssignment, Prediction, assign_by_cost, predict
from .memory.fit import Fit, cut_and_count, fit
from .memory.footprint import footprint
from .memory.moves import all_assignments, are_few, improved
from .memory.values import Values, values_of
from .within_memory import cuts_of, limits_array, require_fit, rescued

if TYPE_CHECKING:
    from ..model.model import Model
    from .affinity import Affinity
    from .with_readers import WithReaders

__all__ = ["LimitedAssignment", "least_latency_within"]

_GOOD_ENOUGH = 0.01  # share of the latency that limits may cost without a further search
_NUM_STARTS = 2  # assignments that a local search improves
_PRICED_NODES = 400_000  # total nodes of all assignments with a price
_MOST_PRICES = 12
_FEWEST_PRICES = 4


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LimitedAssignment:
    """``best``: the best assignment that fits, with the lower bound without limits. ``by_priority``: the prediction
    for the assignment by priority within the limits, None if it does not fit. ``fitted``: the memory needs of
    ``best``.
    """

    best: LatencyAssignment
    by_priority: Prediction | None
    fitted: Fit


def least_latency_within(
    model: Model,
    affinity: Affinity,
    problem: AssignmentProblem,
    launches: NDArray[np.float64],
    least: LatencyAssignment,
    allowed: NDArray[np.bool_],
    limits: Mapping[str, int],
    policy: str,
    readers: WithReaders,
) -> LimitedAssignment:
    """The best assignment that fits. ``affinity``: by priority. ``least``: the best without limits, returned if it
    fits. ``allowed``: bool [k, num_nodes]. ``readers``: as for `fit_affinity`. Raises `InsufficientMemory` if no
    assignment is found that fits."""
    values, max_bytes = values_of(model, units=affinity.units), limits_array(affinity.devices, limits)

    cut, quick_cut = cuts_of(model.graph, policy)
    work = problem.work[: len(max_bytes), : model.num_nodes]
    earlier = np.arange(len(max_bytes))[:, None] < affinity.device_of
    by_priority = fit(values, affinity.device_of, allowed & ~earlier, max_bytes, cut)
    candidates = [by_priority]
    needs = footprint(values, least.partition.subgraph_of, least.partition.device_of, len(max_bytes))
    excess = np.maximum(needs.total - max_bytes, 0.0)

    def seconds(candidate: Fit) -> float:
        return predict(problem, candidate.partition, launches).total

    def is_good_enough() -> bool:
        fast_enough = least.prediction.total * (1 + _GOOD_ENOUGH)
        return any(candidate.fits and seconds(candidate) <= fast_enough for candidate in candidates)

    if not excess.any():
        candidates.append(Fit(least.device_of, least.partition, needs, excess))
    elif not is_good_enough():
        candidates.append(fit(values, least.device_of, allowed, max_bytes, cut, work))
    if excess.any() and not is_good_enough():
        candidates += _priced(values, problem, least.device_of, allowed, max_bytes, excess, cut)
    if not any(candidate.fits for candidate in candidates):
        closest, tried_all = rescued(values, candidates, allowed, max_bytes, cut, quick_cut)
        require_fit(model, affinity.devices, values, allowed, max_bytes, closest, tried_all)
        candidates.append(closest)
    first = predict(problem, by_priority.partition, launches) if by_priority.fits else None
    if not excess.any():
        return LimitedAssignment(least, first, candidates[-1])
    fastest = sorted((candidate for candidate in candidates if candidate.fits), key=seconds)
    if not is_good_enough() and are_few(allowed):
        best, _ = all_assignments(values, allowed, max_bytes, cut, seconds)
        fastest = sorted([*fastest, *([] if best is None else [best])], key=seconds)
    elif not is_good_enough():
        host = np.argmin(problem.work[:, model.num_nodes :], axis=0).astype(np.int32)

        def price(device_of: NDArray[np.int32]) -> float:
            return problem.cost(np.concatenate([device_of, host])).total

        starts = list({candidate.device_of.tobytes(): candidate for candidate in fastest}.values())[:_NUM_STARTS]
        reached = [improved(values, start, allowed, max_bytes, cut, price, seconds, quick_cut) for start in starts]
        fastest = sorted([*fastest, *reached], key=seconds)
    together = cut_and_count(values, readers.place(fastest[0].device_of), max_bytes, cut)
    fitted = together if together.fits else fastest[0]
    prediction = predict(problem, fitted.partition, launches)
    assignment = LatencyAssignment(
        fitted.device_of, fitted.partition, prediction, min(least.lower_bound, prediction.total)
    )
    return LimitedAssignment(assignment, first, fitted)


def _priced(
    values: Values,
    problem: AssignmentProblem,
    start: NDArray[np.int32],
    allowed: NDArray[np.bool_],
    max_bytes: NDArray[np.float64],
    excess: NDArray[np.float64],
    cut: object,
) -> list[Fit]:
    """The cheapest assignments for several prices of bytes on overfull devices, reduced to the limits."""
    assert callable(cut)
    n, count = values.num_nodes, len(max_bytes)
    share = np.append(_weights_of_nodes(values), 0.0)
    work = problem.work
    finite = np.where(np.isfinite(work), work, 0.0)
    if not share.any() or not finite.any():
        return []
    # Start at the price at which all weights cost as much as all work; multiply or divide by ten, then bisect.
    price = float(finite.max(axis=0).sum() / share.sum())
    low, high = 0.0, np.inf
    too_much, enough = start, None
    candidates = []
    tried: set[bytes] = {start.tobytes()}  # several prices often lead to the same assignment
    for _ in range(max(_FEWEST_PRICES, min(_MOST_PRICES, _PRICED_NODES // max(1, n)))):
        priced = work.copy()
        priced[np.flatnonzero(excess)] += price * share
        labels = assign_by_cost(problem.with_costs(work=priced), None, bound=False).device_of[:n].copy()
        partition = cut(labels)
        needs = footprint(values, partition.subgraph_of, partition.device_of, count)
        over = np.maximum(needs.total - max_bytes, 0.0)
        if over.any():
            low, too_much = price, labels
            if labels.tobytes() not in tried:
                candidates.append(fit(values, labels, allowed, max_bytes, cut, work[:count, :n]))
        else:
            high, enough = price, labels
            candidates.append(Fit(labels, partition, needs, over))
        tried.add(labels.tobytes())
        price = price * 10 if np.isinf(high) else (low + high) / 2 if low else price / 10
    if enough is not None:  # the remaining memory holds some of the nodes that moved at the last price
        candidates.append(fit(values, too_much, allowed, max_bytes, cut, work[:count, :n], too_much == enough))
    return candidates


def _weights_of_nodes(values: Values) -> NDArray[np.float64]:
    """float64 [num_nodes]: bytes of the constants that a node reads, divided evenly among their readers."""
    constant = values.is_constant[values.read_value]
    value, node = values.read_value[constant], values.read_node[constant]
    readers = np.bincount(value, minlength=len(values.producer))
    return np.asarray(values.own + np.bincount(node, values.bytes[value] / readers[value], values.num_nodes))
