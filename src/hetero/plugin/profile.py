"""Counters of one inference: one row per node, and the time span of each subgraph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ..base.device_string import CONTROL_FLOW
from ..base.formatting import byte_size, counted, duration
from ..base.lanes import Box, lanes_svg
from ..base.names import shortened

__all__ = [
    "EXECUTED",
    "HOST",
    "NOT_RUN",
    "OPTIMIZED_OUT",
    "Move",
    "Profile",
    "ProfileRow",
    "Span",
    "Transfer",
    "format_profile",
    "profile_svg",
    "total_us",
    "with_bodies_summed",
]

EXECUTED = "EXECUTED"
NOT_RUN = "NOT_RUN"
OPTIMIZED_OUT = "OPTIMIZED_OUT"
HOST = "host"
"""The memory of this machine, in `Move`."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProfileRow:
    """One node of one inference. Times are in µs. ``subgraph`` counts from 1; it is 0 outside HETERO."""

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


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """When and where one subgraph of one inference ran. ``subgraph`` counts from 1; it is 0 outside HETERO.

    ``thread``: the name of the thread. ``begin_ns``, ``end_ns``: values of ``time.perf_counter_ns``, so that spans of
    several requests in one process can be compared.
    """

    subgraph: int
    device: str
    thread: str
    begin_ns: int
    end_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Transfer:
    """A boundary value in one inference: the subgraph that computed it, the subgraphs that read it, its size in B."""

    value: str
    source: int
    readers: tuple[int, ...]
    nbytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """A copy of a value between the memory of a device and `HOST`, in one inference.

    ``origin``, ``target``: a device, or `HOST`. ``begin_ns``, ``end_ns``: as in `Span`. ``subgraph``: the subgraph that
    the value was moved for; of an output of the model, the last subgraph.
    """

    value: str
    origin: str
    target: str
    nbytes: int
    begin_ns: int
    end_ns: int
    subgraph: int

    def __str__(self) -> str:
        seconds = (self.end_ns - self.begin_ns) * 1e-9
        return f"{self.value}: {self.origin} to {self.target}, {byte_size(self.nbytes)} in {duration(seconds)}"


class Profile(tuple[ProfileRow, ...]):
    """The counters of one inference: a tuple of rows, with the time spans of its subgraphs. Treat it as immutable.

    ``spans``: one per subgraph that ran, in the order of subgraphs; empty if the inference was not timed.
    ``transfers``: the boundary values, moved or not. ``moves``: the copies between memories, in order. ``devices``: the
    device list of the plan, so that pictures have the plan's order and colors.
    """

    spans: tuple[Span, ...]
    transfers: tuple[Transfer, ...]
    moves: tuple[Move, ...] = ()
    devices: tuple[str, ...] = ()

    def __new__(
        cls,
        rows: Iterable[ProfileRow] = (),
        spans: Iterable[Span] = (),
        transfers: Iterable[Transfer] = (),
        moves: Iterable[Move] = (),
        devices: Iterable[str] = (),
    ) -> Profile:
        profile = super().__new__(cls, rows)
        profile.spans = tuple(spans)
        profile.transfers = tuple(transfers)
        profile.moves = tuple(moves)
        profile.devices = tuple(devices)
        return profile

    def timed_spans(self) -> tuple[Span, ...]:
        """`spans`. If the inference was not timed: consecutive spans, each as long as the sum of its rows."""
        if self.spans or not self:
            return self.spans
        spans: list[Span] = []
        begin = 0
        for subgraph, rows in sorted(self.by_subgraph().items()):
            length = round(1000 * total_us(rows))
            spans.append(Span(subgraph, "device", "not timed", begin, begin + length))
            begin += length
        return tuple(spans)

    def by_subgraph(self) -> dict[int, list[ProfileRow]]:
        """Subgraph -> its rows, in the order of the profile."""
        rows: dict[int, list[ProfileRow]] = {}
        for row in self:
            rows.setdefault(row.subgraph, []).append(row)
        return rows

    def __str__(self) -> str:
        return format_profile(self)

    def _repr_svg_(self) -> str | None:
        """A timeline for notebooks. None if there are no counters; notebooks then show the text."""
        return profile_svg(self) if self else None


def with_bodies_summed(rows: Iterable[ProfileRow]) -> list[ProfileRow]:
    """The rows of a model's own nodes. The row of a node on CONTROL_FLOW gets the times of the nodes in its bodies,
    whose rows follow it."""
    found: list[ProfileRow] = []
    for row in rows:
        outer = found[-1] if found and found[-1].exec_type.startswith(CONTROL_FLOW) else None
        if outer is not None and row.subgraph == outer.subgraph and row.node.startswith(f"{outer.node}/"):
            real, cpu = outer.real_us + row.real_us, outer.cpu_us + row.cpu_us
            found[-1] = dataclasses.replace(outer, real_us=real, cpu_us=cpu)
        else:
            found.append(row)
    return found


def total_us(rows: Iterable[ProfileRow]) -> float:
    """The sum of the real times, in µs."""
    return sum(row.real_us for row in rows)


def format_profile(rows: Iterable[ProfileRow]) -> str:
    """The rows, one per line, and the total."""
    rows = list(rows)
    return "\n".join([*map(str, rows), f"Total time: {total_us(rows):.0f} microseconds"])


def profile_svg(profile: Profile) -> str:
    """A timeline of the subgraphs of an inference, with one lane per device, which runs one subgraph at a time."""
    spans = profile.timed_spans()
    rows = profile.by_subgraph()
    listed = list(dict.fromkeys([*profile.devices, *(span.device for span in spans)]))
    used = {span.device for span in spans}
    lanes = [device for device in listed if device in used]
    start = min(span.begin_ns for span in spans)
    end = max(span.end_ns for span in spans)
    boxes = []
    for span in spans:
        name = f"subgraph {span.subgraph}" if span.subgraph else "model"
        slowest = max(rows.get(span.subgraph, ()), key=lambda row: row.real_us, default=None)
        tip = f"{name} on {span.device}, {span.thread}: {duration((span.end_ns - span.begin_ns) * 1e-9)}"
        if slowest is not None:
            tip += f"; most in {shortened(slowest.node, 80)} ({slowest.layer_type}): {duration(slowest.real_us * 1e-6)}"
        boxes.append(
            Box(lanes.index(span.device), span.begin_ns - start, span.end_ns - start, str(span.subgraph or ""), tip)
        )
    busy = [sum(box.end - box.begin for box in boxes if box.lane == lane) for lane in range(len(lanes))]
    notes = [f"{device} · {duration(time * 1e-9)}" for device, time in zip(lanes, busy, strict=True)]
    box_of = {span.subgraph: number for number, span in enumerate(spans)}
    edges = [
        (box_of.get(transfer.source, -1), box_of.get(target, -1))
        for transfer in profile.transfers
        for target in transfer.readers
    ]
    moved = sum(transfer.nbytes for transfer in profile.transfers)
    title = f"One inference: {duration((end - start) * 1e-9)}"
    below = f"{counted(len(profile.transfers), 'boundary value')}, {byte_size(moved)}" if profile.transfers else ""
    return lanes_svg(title, notes, boxes, edges, below, [listed.index(device) for device in lanes])
