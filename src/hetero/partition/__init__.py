"""Stage 3, partition: divides a graph with a device per node into single-device subgraphs that can run in order.

`partition_graph` turns a `Graph` into a `Partition`, and `check_partition` verifies it. This package works on integer
arrays only: it does not depend on ONNX, plugins or device names.
"""

from __future__ import annotations

from .check import check_partition
from .closure import TransitiveClosure
from .graph import Graph
from .partition import Partition, TraceStep
from .policies import POLICIES, has_quick_cut, partition_graph

__all__ = [
    "POLICIES",
    "Graph",
    "Partition",
    "TraceStep",
    "TransitiveClosure",
    "check_partition",
    "has_quick_cut",
    "partition_graph",
]
