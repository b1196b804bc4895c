"""Plans for devices that run in parallel: an assignment and a cut with the minimum predicted latency.

`Scheduler` predicts when the subgraphs of a partition run, and cuts and assigns graphs so that devices work side by
side. `least_makespan` chooses among several assignments and cuts. Like the partitioner, this package knows no ONNX,
plugins or strings: nodes, devices and values are numbers, costs are seconds.
"""

from __future__ import annotations

from .scheduler import HAND_OVER_SECONDS, Room, ScheduledPartition, Scheduler, Timeline, is_worth
from .search import assignments, fewest_of_the_fastest, improved, least_makespan

__all__ = [
    "HAND_OVER_SECONDS",
    "Room",
    "ScheduledPartition",
    "Scheduler",
    "Timeline",
    "assignments",
    "fewest_of_the_fastest",
    "improved",
    "is_worth",
    "least_makespan",
]
