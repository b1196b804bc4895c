"""`partition_graph` and the table of its policies."""

from __future__ import annotations

import os

from numpy.typing import ArrayLike

from .. import _partition
from ..errors import PartitionError, did_you_mean, shown
from .check import check_partition
from .graph import Graph
from .limits import MinNodes, fallen_back, largest_size
from .partition import Partition, TraceStep

__all__ = ["POLICIES", "partition_graph"]

POLICIES = tuple(_partition.POLICY_NUMBER)
"""Names of the policies, the default first."""

CHECK_ALWAYS = os.environ.get("HETERO_CHECK_PARTITION", "") not in ("", "0")
"""Debug switch, read once at import: with ``HETERO_CHECK_PARTITION=1`` in the environment every partition is verified
before it is returned."""


def partition_graph(
    graph: Graph,
    device: ArrayLike,
    policy: str = "auto",
    edge_weight: ArrayLike | None = None,
    trace: bool = False,
    *,
    min_nodes: MinNodes | None = None,
    max_nodes: int | None = None,
    allowed: ArrayLike | None = None,
) -> Partition:
    """Cut ``graph`` into subgraphs of one device each that are connected, convex and can run in order.

    ``device``: int [num_nodes], each node's device number, 0 to 254; the number is the device's priority, 0 first.
    ``policy``: one of `POLICIES`:

    - ``auto``: the best result that near-linear time allows; unless its searches use up their steps, no two adjacent
      subgraphs can be merged;
    - ``linear``: the fastest: connected components of equal depth, in a few passes over the edges;
    - ``greedy``: the documented loop, largest candidate first, with early rejection;
    - ``documented``: the documented loop, literally; for graphs of thousands of nodes.

    ``edge_weight``: a finite number of zero or more for each edge as it was given to `Graph`, for example the bytes it
    carries; weights of an edge given twice add up. ``trace``: keep the steps of policy ``documented``.

    ``min_nodes``: a subgraph of fewer nodes falls, whole, to the next device that ``allowed`` (bool [num_nodes,
    num_devices]) lets take all its nodes, and the graph is cut again; where no later device may, it stays. A number, or
    one per device number. The devices nodes end on are ``p.device_of[p.subgraph_of]``. ``max_nodes``: subgraphs of
    more nodes are cut up into connected pieces, as few as contraction finds.

    Every policy is deterministic. Raises `PartitionError` for a device array or weights that do not fit the graph.
    """
    if not isinstance(policy, str) or policy not in POLICIES:
        raise PartitionError(
            f"unknown policy {shown(policy)}{did_you_mean(policy, POLICIES)}: expected one of {', '.join(POLICIES)}"
        )
    if trace and policy != "documented":
        raise PartitionError(f"policy {policy!r} takes no traceable steps: trace=True needs policy='documented'")
    csr = graph._csr
    limit = None if max_nodes is None else largest_size(max_nodes)
    weight = None if edge_weight is None else csr.edge_weights(edge_weight)
    if min_nodes is not None:
        device = fallen_back(graph, device, policy, weight, min_nodes, allowed)
    elif allowed is not None:
        raise PartitionError("allowed tells who may take what falls below min_nodes: give min_nodes too")
    subgraph_of, device_of, cut_edges, cut_weight, maximal = _partition.partition(csr, policy, device, weight)
    steps = _replayed(_partition.documented_steps(csr, device)) if trace else None
    if limit is not None:
        subgraph_of, device_of, cut_edges, cut_weight = _partition.limit(
            csr, device, weight, subgraph_of, limit, policy == "auto"
        )
    partition = Partition(graph, policy, subgraph_of, device_of, cut_edges, cut_weight, steps)
    if CHECK_ALWAYS:
        check_partition(graph, device, subgraph_of, maximal=maximal and limit is None, ordered=True)
    return partition


def _replayed(actions: list[tuple[str, int]]) -> tuple[TraceStep, ...]:
    """The steps with the candidate and the rejected list after each."""
    steps: list[TraceStep] = []
    grown: dict[int, tuple[int, ...]] = {}  # root -> its candidate, of this round
    candidate: list[int] = []
    rejected: list[int] = []
    root = -1
    for action, node in actions:
        match action:
            case "root":
                root, candidate, rejected = node, [node], []
            case "merge":
                candidate.append(node)
            case "fail":
                rejected.append(node)
            case "rollback":
                candidate.pop()
                rejected.append(node)
            case "choose":
                steps.append(TraceStep(action, node, grown[node], ()))
                grown.clear()
                continue
        grown[root] = tuple(sorted(candidate))
        steps.append(TraceStep(action, node, grown[root], tuple(sorted(rejected))))
    return tuple(steps)
