"""Stage 3: a graph and a device per node become single-device subgraphs that can run in order.

`Graph` in, `Partition` out; `partition_graph` chooses, `check_partition` verifies. This room knows no ONNX, no plugin
and no string but the names of its policies.
"""

from __future__ import annotations

from .check import check_partition
from .closure import TransitiveClosure
from .graph import Graph
from .partition import Partition, TraceStep
from .policies import POLICIES, partition_graph

__all__ = ["POLICIES", "Graph", "Partition", "TraceStep", "TransitiveClosure", "check_partition", "partition_graph"]
