"""`cost_table`: the costs of a model over a list of devices, combined from all sources, as input for
`hetero.assign`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...base.grouped import distinct
from ...model.constant_nodes import inner_constant_nodes
from ...plugin.speed import CostSource, DeviceSpeed
from ..cuts import AssignmentProblem
from ..memory.values import reads_of, sized
from .estimate import estimate_work
from .measured import Costs, Measurement
from .units import bytes_in_units, computing_types, types_in_units

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["CostTable", "cost_table"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """Costs in seconds, for k devices and n nodes.

    ``devices``: names. ``work``: float64 [k, n], each node on each device, supported or not. ``source``: uint8 [k, n],
    `CostSource` of each entry of ``work``. ``launch``: float64 [k], per subgraph. ``latency``, ``per_byte``: float64
    [k + 1, k + 1], of a transfer from one device to another; the last row and column are the host, which sends inputs
    and receives outputs. ``link_source``: uint8 [k + 1, k + 1], `CostSource` of each link. ``value_bytes``: float64
    [num_values]. ``host``: the first device without a link of its own, which shares the host's memory; k if there is
    none.
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
        """The problem of the model's n nodes and, as the last node, the host, which makes the inputs and reads the
        outputs. Its devices are the k devices, and the host as the last. ``allowed``: bool [k, n], which device may
        have which node."""
        n, k = self.model.num_nodes, len(self.devices)
        work = np.full((k + 1, n + 1), np.inf)
        work[:k, :n] = np.where(allowed, self.work, np.inf)
        work[self.host, n] = 0
        value, reader = _readers(self.model)
        producer = np.where(self.model.producer < 0, n, self.model.producer)
        begins = np.flatnonzero(np.diff(value, prepend=-1))
        read, indptr = value[begins], np.append(begins, len(value))
        return AssignmentProblem.from_values(
            work, producer[read], indptr, reader, self.value_bytes[read], self.latency, self.per_byte
        )

    @property
    def launches(self) -> NDArray[np.float64]:
        """float64 [k + 1]: `launch`, then 0 for the host."""
        return np.append(self.launch, 0.0)


def cost_table(
    model: Model,
    devices: Sequence[str],
    speeds: Sequence[DeviceSpeed],
    costs: Costs | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    sizes: Mapping[str, int] | None = None,
    units: Sequence[Sequence[NDArray[np.int32]]] = (),
) -> CostTable:
    """For each node and device, the measured time if there is one, else an estimate from the device's speed.

    ``speeds``: one per device. ``shapes``: of the inputs; selects among measurements. ``sizes``: symbolic dim -> size,
    for estimates; by default from ``shapes``, or else from the shapes of the first measurement. ``units``: of each
    device's answer (`Support.units`); values inside a unit do not count as bytes there. Sizes that the file leaves open
    are inferred as for memory (`sized`). The caller checks that ``costs`` belong to this model. Nodes that are folded
    when the model is compiled (`inner_constant_nodes`) cost nothing.
    """
    measured = [costs.measurement(device, shapes) if costs else None for device in devices]
    if sizes is None:
        input_shapes = shapes or next((entry.shapes for entry in measured if entry is not None), {})
        sizes = _symbol_sizes(model, input_shapes)
    work = estimate_work(sized(model, units), sizes)
    count = len(devices)
    seconds = np.empty((count, model.num_nodes))
    source = np.empty((count, model.num_nodes), np.uint8)
    launch = np.empty(count)
    dtypes, dtype_of = computing_types(model) if any(speed.flops_per_s_of for speed in speeds) else ([], None)
    for number, (speed, entry) in enumerate(zip(speeds, measured, strict=True)):
        of_device = units[number] if units else ()
        moved = bytes_in_units(model, work, of_device) if of_device else work.bytes
        types = types_in_units(dtype_of, of_device) if dtype_of is not None and of_device else dtype_of
        seconds[number] = speed.seconds(work.flops, moved, dtypes, types)
        source[number] = np.where(work.assumed, CostSource.ASSUMED, speed.source)
        launch[number] = speed.launch_s
        if entry is not None:
            _put_measured(model, entry, seconds[number], source[number])
            if entry.launch_us is not None:
                launch[number] = entry.launch_us * 1e-6
    size = work.sizes.bytes
    costless = inner_constant_nodes(model)
    if costless is not None:
        seconds[:, costless] = 0
        size = np.where((model.producer >= 0) & costless[model.producer], 0.0, size)
    latency, per_byte, link_source = _links(devices, speeds, costs)
    arrays = (seconds, source, launch, latency, per_byte, link_source)
    for array in arrays:
        array.setflags(write=False)
    host = next((number for number, speed in enumerate(speeds) if speed.link_bytes_per_s is None), count)
    return CostTable(model, tuple(devices), *arrays, size, host)


def _put_measured(model: Model, entry: Measurement, seconds: NDArray[np.float64], source: NDArray[np.uint8]) -> None:
    """Replace estimates with measured times, in place.

    One node's counter holds the time of a whole fused group. It is divided among the group in proportion to the
    estimates, so that splitting a group is not free. The minima of single nodes add up to less than any inference took,
    so they are scaled to the fastest inference.
    """
    times = np.full(model.num_nodes, np.nan)
    fused = np.zeros(model.num_nodes, np.bool_)
    for node, key in enumerate(model.keys):
        node_times = entry.nodes.get(key)
        if node_times is not None:
            times[node] = node_times.min_us * 1e-6
            fused[node] = node_times.fused
    is_measured = ~np.isnan(times)
    if not is_measured.any():
        return
    sum_of_minima = sum(node_times.min_us for node_times in entry.nodes.values())
    if entry.total_us is not None and sum_of_minima > 0:
        times *= entry.total_us / sum_of_minima
    group = _fused_groups(model, fused)
    weight = np.where(is_measured, seconds + 1e-12, 0.0)
    total_weight = np.bincount(group, weight, model.num_nodes)
    total_time = np.bincount(group, np.where(is_measured, times, 0.0), model.num_nodes)
    share = total_time[group] * weight / np.maximum(total_weight[group], 1e-300)
    seconds[is_measured] = share[is_measured]
    source[is_measured] = CostSource.MEASURED


def _fused_groups(model: Model, fused: NDArray[np.bool_]) -> NDArray[np.intp]:
    """intp [num_nodes]: the group of each node, as the number of one of its nodes. A fused node belongs to its last
    predecessor's group, or to its first successor's if it has no predecessor."""
    group = np.arange(model.num_nodes)
    graph = model.graph
    for node in np.flatnonzero(fused).tolist():
        predecessors = graph.predecessors(node)
        if len(predecessors):
            group[node] = group[predecessors[-1]]
    # A group that is named after a fused node has no counter: it joins the group of its last nodes' first successor.
    for node in np.flatnonzero(fused)[::-1].tolist():
        if fused[group[node]]:
            successors = graph.successors(node)
            if len(successors) and group[successors[0]] != group[node]:
                group[group == group[node]] = group[successors[0]]
    return group


def _links(
    devices: Sequence[str], speeds: Sequence[DeviceSpeed], costs: Costs | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.uint8]]:
    """`CostTable.latency`, ``per_byte`` and ``link_source``.

    A transfer leaves one device for the host and goes from there to the other, unless the link was measured. Devices
    with the same memory need no transfer.
    """
    count = len(devices)
    per_byte_of = np.array([1 / s.link_bytes_per_s if s.link_bytes_per_s else 0.0 for s in speeds] + [0.0])
    latency_of = np.array([s.link_latency_s if s.link_bytes_per_s else 0.0 for s in speeds] + [0.0])
    rank = np.array([int(s.source) for s in speeds] + [int(CostSource.PROFILE)], np.uint8)
    per_byte, latency = per_byte_of[:, None] + per_byte_of, latency_of[:, None] + latency_of
    source = np.maximum(rank[:, None], rank)
    names = [speed.memory for speed in speeds]
    for a in range(count):
        for b in range(count):
            if a == b or (names[a] and names[a] == names[b]):
                per_byte[a, b] = latency[a, b] = 0
    per_byte[count, count] = latency[count, count] = 0
    for a in range(count):
        for b in range(count):
            measured = costs.link(devices[a], devices[b]) if costs and a != b else None
            if measured is not None:
                latency[a, b], per_byte[a, b] = measured.latency_us * 1e-6, measured.us_per_mb * 1e-12
                source[a, b] = CostSource.MEASURED
    return latency, per_byte, source


def _readers(model: Model) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """int32 [num_reads] each: every value that is not a constant, and each node that reads it, ordered by value. The
    host is node num_nodes; it reads the outputs."""
    n = model.num_nodes
    outputs = np.array(model.output_ids, np.int64)
    value, node = reads_of(model)
    value, node = np.concatenate([value, outputs]), np.concatenate([node, np.full(len(outputs), n)])
    is_variable = ~model.is_constant[value]
    pairs = distinct(value[is_variable].astype(np.int64) * (n + 1) + node[is_variable])
    return (pairs // (n + 1)).astype(np.int32), (pairs % (n + 1)).astype(np.int32)


def _symbol_sizes(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Symbolic dim of an input -> size, from the shapes of the inputs."""
    sizes: dict[str, int] = {}
    for port in model.inputs:
        shape = shapes.get(port.name)
        if shape and port.shape is not None and len(shape) == len(port.shape):
            sizes.update({dim: size for dim, size in zip(port.shape, shape, strict=True) if isinstance(dim, str)})
    return sizes
