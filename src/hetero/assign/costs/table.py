"""The costs of a model over a list of devices, put together from all sources, as `hetero.assign` takes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...plugin.speed import CostSource, DeviceSpeed
from ..cuts import AssignmentProblem
from ..memory.values import reads_of
from .estimate import estimate_work
from .measured import Costs, Measurement

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["CostTable", "cost_table"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """Seconds, k devices and n nodes.

    ``devices``: their names. ``work``: float64 [k, n], of each node on each device, supported or not. ``source``: uint8
    [k, n] of `CostSource`. ``launch``: float64 [k], per subgraph. ``latency``, ``per_byte``: float64 [k + 1, k + 1], of
    a transfer from one device to another; the last row and column are the host, where inputs come from and outputs
    go. ``link_source``: uint8 [k + 1, k + 1]. ``value_bytes``: float64 [num_values]. ``host``: the device whose memory
    is the host's (the first without a link of its own), or k where there is none.
    """

    model: Model
    devices: tuple[str, ...]
    work: NDArray[np.float64]
    source: NDArray[np.uint8]
    launch: NDArray[np.float64]
    latency: NDArray[np.float64]
    per_byte: NDArray[np.float64]
    link_source: NDArray[np.uint8]
    value_bytes: NDArray[np.float64]
    host: int

    def problem(self, allowed: NDArray[np.bool_]) -> AssignmentProblem:
        """The problem for these nodes and one more, the last, which stands for the host: it makes the model's inputs
        and reads its outputs. ``allowed``: bool [k, n], which device may have which node. Devices: k, and the host.
        """
        n, k = self.model.num_nodes, len(self.devices)
        work = np.full((k + 1, n + 1), np.inf)
        work[:k, :n] = np.where(allowed, self.work, np.inf)
        work[self.host, n] = 0
        value, reader = _readers(self.model)
        producer = np.where(self.model.producer < 0, n, self.model.producer)
        read = np.unique(value)
        place = np.searchsorted(read, value)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=len(read)))])
        return AssignmentProblem.from_values(
            work, producer[read], indptr, reader, self.value_bytes[read], self.latency, self.per_byte
        )

    @property
    def launches(self) -> NDArray[np.float64]:
        """float64 [k + 1]: `launch`, and 0 for the host."""
        return np.append(self.launch, 0.0)


def cost_table(
    model: Model,
    devices: Sequence[str],
    speeds: Sequence[DeviceSpeed],
    costs: Costs | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> CostTable:
    """Per node and device the measured time, if there is one; else the estimate by the device's speed.

    ``speeds``: per device. ``shapes``: of the inputs, which choose among measurements. ``sizes``: symbolic dim -> size,
    for estimates; by default what ``shapes``, or else the inputs that were measured, say. Whether ``costs`` are of this
    model is for the caller to check.
    """
    measured = [costs.measurement(device, shapes) if costs else None for device in devices]
    if sizes is None:
        taken = shapes or next((entry.shapes for entry in measured if entry is not None), {})
        sizes = _symbols(model, taken)
    work = estimate_work(model, sizes)
    count = len(devices)
    seconds = np.empty((count, model.num_nodes))
    source = np.empty((count, model.num_nodes), np.uint8)
    launch = np.empty(count)
    for number, (speed, entry) in enumerate(zip(speeds, measured, strict=True)):
        seconds[number] = speed.seconds(work.flops, work.bytes)
        source[number] = np.where(work.assumed, CostSource.ASSUMED, speed.source)
        launch[number] = speed.launch_s
        if entry is not None:
            _put_measured(model, entry, seconds[number], source[number])
            if entry.launch_us is not None:
                launch[number] = entry.launch_us * 1e-6
    latency, per_byte, link_source = _links(devices, speeds, costs)
    arrays = (seconds, source, launch, latency, per_byte, link_source)
    for array in arrays:
        array.setflags(write=False)
    host = next((number for number, speed in enumerate(speeds) if speed.link_bytes_per_s is None), count)
    return CostTable(model, tuple(devices), *arrays, work.sizes.bytes, host)


def _put_measured(model: Model, entry: Measurement, seconds: NDArray[np.float64], source: NDArray[np.uint8]) -> None:
    """Replaces estimates by what was measured.

    The time of a fused group is one node's counter: it is shared among the group as their estimates are, so that taking
    a group apart is not for free. Minima of single nodes add up to less than any inference takes, and counting takes
    time, too, so they are scaled to the least inference.
    """
    times = np.full(model.num_nodes, np.nan)
    fused = np.zeros(model.num_nodes, np.bool_)
    for key, found in entry.nodes.items():
        node = model.find_key(key)
        if node is not None:
            times[node] = found.min_us * 1e-6
            fused[node] = found.fused
    known = ~np.isnan(times)
    if not known.any():
        return
    least = sum(found.min_us for found in entry.nodes.values())
    if entry.total_us is not None and least > 0:
        times *= entry.total_us / least
    group = _fused_groups(model, fused)
    weight = np.where(known, seconds + 1e-12, 0.0)
    total_weight = np.bincount(group, weight, model.num_nodes)
    total_time = np.bincount(group, np.where(known, times, 0.0), model.num_nodes)
    shared = total_time[group] * weight / np.maximum(total_weight[group], 1e-300)
    seconds[known] = shared[known]
    source[known] = CostSource.MEASURED


def _fused_groups(model: Model, fused: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Which group each node is in, named after one of its nodes: a fused node is with the node whose result it reads,
    or if there is none, with the first that reads its result."""
    group = np.arange(model.num_nodes)
    graph = model.graph
    for node in np.flatnonzero(fused).tolist():
        before = graph.predecessors(node)
        if len(before):
            group[node] = group[before[-1]]
    # Groups that no executed node leads go with the readers of their last nodes.
    for node in np.flatnonzero(fused)[::-1].tolist():
        if fused[group[node]]:
            after = graph.successors(node)
            if len(after) and group[after[0]] != group[node]:
                group[group == group[node]] = group[after[0]]
    return group


def _links(
    devices: Sequence[str], speeds: Sequence[DeviceSpeed], costs: Costs | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.uint8]]:
    """Over the host: what it takes to leave one device, and to reach the other; what was measured goes before."""
    count = len(devices)
    per_byte_of = np.array([1 / s.link_bytes_per_s if s.link_bytes_per_s else 0.0 for s in speeds] + [0.0])
    latency_of = np.array([s.link_latency_s if s.link_bytes_per_s else 0.0 for s in speeds] + [0.0])
    rank = np.array([int(s.source) for s in speeds] + [int(CostSource.PROFILE)], np.uint8)
    per_byte, latency = per_byte_of[:, None] + per_byte_of, latency_of[:, None] + latency_of
    source = np.maximum(rank[:, None], rank)
    np.fill_diagonal(per_byte, 0)
    np.fill_diagonal(latency, 0)
    for a in range(count):
        for b in range(count):
            found = costs.link(devices[a], devices[b]) if costs and a != b else None
            if found is not None:
                latency[a, b], per_byte[a, b] = found.latency_us * 1e-6, found.us_per_mb * 1e-12
                source[a, b] = CostSource.MEASURED
    return latency, per_byte, source


def _readers(model: Model) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Every value that is no constant and a node that reads it, each pair once, ordered by value; the node after the
    last is the host, which reads outputs."""
    n = model.num_nodes
    outputs = np.array(model.output_ids, np.int64)
    value, node = reads_of(model)
    value, node = np.concatenate([value, outputs]), np.concatenate([node, np.full(len(outputs), n)])
    counts = ~model.is_constant[value]
    pairs = np.unique(value[counts].astype(np.int64) * (n + 1) + node[counts])
    return (pairs // (n + 1)).astype(np.int32), (pairs % (n + 1)).astype(np.int32)


def _symbols(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Sizes of the symbolic dims of the model's inputs, by the shapes that these have."""
    found: dict[str, int] = {}
    for port in model.inputs:
        given = shapes.get(port.name)
        if given and port.shape is not None and len(given) == len(port.shape):
            found.update({dim: size for dim, size in zip(port.shape, given, strict=True) if isinstance(dim, str)})
    return found
