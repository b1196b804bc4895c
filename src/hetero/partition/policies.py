"""`partition_graph` and the table of its policies."""

from __future__ import annotations

import os

from numpy.typing import ArrayLike

from .. import _partition
from ..base.plain import plain
from ..errors import PartitionError, did_you_mean, shown
from .check import check_partition
from .graph import Graph
from .limits import MinNodes, fallen_back, largest_size
from .partition import Partition, TraceStep

__all__ = ["POLICIES", "has_quick_cut", "partition_graph"]

POLICIES = tuple(_partition.POLICY_NUMBER)
"""Names of the policies, the default first."""

_SMALL = 256
"""Nodes and edges of a graph that ``auto`` partitions thoroughly in 0.2 ms."""

_LARGE = 100_000
"""Nodes and edges from which on the search for fewer subgraphs takes less time than the rest of ``auto``; measured for
random graphs and blocks of 10,000 to 100,000 nodes."""

CHECK_ALWAYS = os.environ.get("HETERO_CHECK_PARTITION", "") not in ("", "0")
"""Debug switch, read once at import: ``HETERO_CHECK_PARTITION=1`` in the environment checks every partition."""


def partition_graph(
    graph: Graph,
    device: ArrayLike,
    policy: str = "auto",
    edge_weight: ArrayLike | None = None,
    trace: bool = False,
    *,
    thorough: bool = True,
    min_nodes: MinNodes | None = None,
    max_nodes: int | None = None,
    allowed: ArrayLike | None = None,
) -> Partition:
    """Divide ``graph`` into single-device subgraphs that are connected, convex and can run in order.

    ``device``: int [num_nodes], each node's device number, 0 to 254. The number is the device's priority, 0 first.
    ``policy``: one of `POLICIES`:

    - ``auto``: the best result in near-linear time. No two adjacent subgraphs can be merged, unless the searches
      exhaust their budget.
    - ``linear``: the fastest. Connected components of equal depth, in a few passes over the edges.
    - ``documented``: the documented loop, literally. For graphs of thousands of nodes.
    - ``depth_height``: more subgraphs, so that devices can work side by side. Connected components of equal device
      with equally many device changes before and after them, in a few passes over the edges.

    ``edge_weight``: a finite number of zero or more for each edge passed to `Graph`, for example the bytes it carries.
    Weights of duplicate edges add up. ``trace``: record the steps of policy ``documented``.
    ``thorough``: False skips the search of policy ``auto`` for fewer subgraphs than it finds first, which takes most of
    the time on graphs of up to thousands of nodes.

    ``min_nodes``: a number, or a mapping from device number to number. A smaller subgraph moves, whole, to the next
    device that supports all its nodes according to ``allowed`` (bool [num_nodes, num_devices]), and the graph is
    partitioned again. If no later device supports all its nodes, the subgraph stays. The final devices are
    ``p.device_of[p.subgraph_of]``. ``max_nodes``: larger subgraphs are split into connected parts, as few as
    contraction finds.

    Every policy is deterministic. Raises `PartitionError` if the device array or the weights do not fit the graph.
    """
    policy = plain(policy)
    if not isinstance(policy, str) or policy not in POLICIES:
        raise PartitionError(
            f"unknown policy {shown(policy)}{did_you_mean(policy, POLICIES)}: expected one of {', '.join(POLICIES)}"
        )
    if trace and policy != "documented":
        raise PartitionError(f"policy {policy!r} does not support trace=True: use policy='documented'")
    csr = graph._csr
    limit = None if max_nodes is None else largest_size(max_nodes)
    weight = None if edge_weight is None else csr.edge_weights(edge_weight)
    if min_nodes is not None:
        device = fallen_back(graph, device, policy, weight, min_nodes, allowed)
    elif allowed is not None:
        raise PartitionError("allowed has no effect without min_nodes: pass min_nodes too")
    subgraph_of, device_of, cut_edges, cut_weight, maximal = _partition.partition(csr, policy, device, weight, thorough)
    steps = _replayed(_partition.documented_steps(csr, device)) if trace else None
    if limit is not None:
        subgraph_of, device_of, cut_edges, cut_weight = _partition.limit(
            csr, device, weight, subgraph_of, limit, policy == "auto"
        )
    partition = Partition(graph, policy, subgraph_of, device_of, cut_edges, cut_weight, steps)
    if CHECK_ALWAYS:
        check_partition(graph, device, subgraph_of, maximal=maximal and limit is None, ordered=True)
    return partition


def has_quick_cut(graph: Graph, policy: str) -> bool:
    """Whether ``thorough=False`` saves time."""
    return policy == "auto" and _SMALL < graph.num_nodes + graph.num_edges < _LARGE


def _replayed(actions: list[tuple[str, int]]) -> tuple[TraceStep, ...]:
    """The steps, each with the candidate and the rejected nodes after it."""
    steps: list[TraceStep] = []
    grown: dict[int, tuple[int, ...]] = {}  # root -> its candidate in this round
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
