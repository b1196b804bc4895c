"""Counters of one inference: a row per node, as the documented table prints them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

__all__ = ["EXECUTED", "NOT_RUN", "OPTIMIZED_OUT", "ProfileRow", "format_profile", "total_us"]

EXECUTED = "EXECUTED"
NOT_RUN = "NOT_RUN"
OPTIMIZED_OUT = "OPTIMIZED_OUT"


@dataclasses.dataclass(frozen=True, slots=True)
class ProfileRow:
    """One node of one inference. Times in microseconds; ``subgraph`` counts from 1, 0 outside HETERO."""

    node: str
    status: str
    layer_type: str
    exec_type: str
    real_us: float
    cpu_us: float
    subgraph: int = 0

    def __str__(self) -> str:
        prefix = f"subgraph{self.subgraph}: " if self.subgraph else ""
        return (
            f"{prefix}{self.node}:{self.status} layerType: {self.layer_type} realTime: {self.real_us:.0f} "
            f"cpu: {self.cpu_us:.0f} execType: {self.exec_type}"
        )


def total_us(rows: Iterable[ProfileRow]) -> float:
    """Sum of the real times, in microseconds."""
    return sum(row.real_us for row in rows)


def format_profile(rows: Iterable[ProfileRow]) -> str:
    """The rows, one a line, and the total."""
    rows = list(rows)
    return "\n".join([*map(str, rows), f"Total time: {total_us(rows):.0f} microseconds"])
