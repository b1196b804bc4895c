"""Plans for devices that work at the same time: an assignment and a cut with the least predicted latency.

`Scheduler` predicts when the subgraphs of a partition run, and cuts and assigns graphs so that devices work side by
side. `least_makespan` chooses among several assignments and cuts. Like the partitioner, this package knows no ONNX,
plugins or strings: nodes, devices and values are numbers, costs are seconds.
"""

from __future__ import annotations

from .scheduler import ScheduledPartition, Scheduler, Timeline
from .search import LEAST_SECONDS, LEAST_SHARE, least_makespan

__all__ = ["LEAST_SECONDS", "LEAST_SHARE", "ScheduledPartition", "Scheduler", "Timeline", "least_makespan"]
