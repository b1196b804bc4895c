"""`Costs`: measured times of a model's nodes, which can be merged over runs, devices and shapes, and saved."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from ...base.decoding import decode_json, place_in
from ...base.file_kinds import other_than_text
from ...base.files import read_file, write_file
from ...errors import HeteroError, PropertyError, did_you_mean, file_error
from ...model.identity import graph_digest
from ...plugin.profile import NOT_RUN, OPTIMIZED_OUT, ProfileRow, with_bodies_summed

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["FORMAT_VERSION", "CostFileError", "Costs", "LinkTimes", "Measurement", "NodeTimes", "WrongModel"]

FORMAT_VERSION: Literal[1] = 1

Shapes = Mapping[str, tuple[int, ...]]


class CostFileError(HeteroError):
    """Costs with a wrong format or invalid times."""


class WrongModel(HeteroError):
    """Costs were measured on another model."""


@dataclasses.dataclass(frozen=True, slots=True)
class NodeTimes:
    """Microseconds of one node. ``count``: measured runs. ``fused``: another node's time includes its work."""

    count: int
    mean_us: float
    min_us: float
    fused: bool = False

    def merged(self, other: NodeTimes) -> NodeTimes:
        """Both together: counts add up, means are weighted by them, and the smaller minimum is kept."""
        count = self.count + other.count
        share = other.count / count if count else 0.0
        mean = self.mean_us + (other.mean_us - self.mean_us) * share
        return NodeTimes(count, mean, min(self.min_us, other.min_us), self.fused and other.fused)


@dataclasses.dataclass(frozen=True, slots=True)
class Measurement:
    """Times on one device with inputs of the given shapes (input name -> shape).

    ``nodes``: node key -> times. ``total_us``: microseconds of all nodes together in the fastest inference; at least
    the sum of the nodes' minima. ``launch_us``: microseconds that a subgraph takes in addition to its nodes. Both are
    None if not measured.
    """

    device: str
    shapes: Mapping[str, tuple[int, ...]]
    nodes: Mapping[str, NodeTimes]
    total_us: float | None = None
    launch_us: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class LinkTimes:
    """The time to send a value from one device to another: ``latency_us`` plus ``us_per_mb`` for each 10^6 bytes."""

    source: str
    target: str
    latency_us: float
    us_per_mb: float


@dataclasses.dataclass(frozen=True, slots=True)
class _CostFile:
    """The schema of the file. On reading, msgspec checks it and names the place of an error."""

    format: Literal["hetero-costs"]
    version: Literal[1]
    model: str
    digest: str
    measurements: tuple[Measurement, ...]
    links: tuple[LinkTimes, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Measured times of one model. Immutable. Raises `CostFileError` for invalid times.

    ``digest``: identifies the model's graph (operators, names, connections; not weights). ``measurements``: at most one
    for each device and shapes. ``links``: at most one for each ordered pair of devices.
    """

    model_name: str
    digest: str
    measurements: tuple[Measurement, ...] = ()
    links: tuple[LinkTimes, ...] = ()

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def from_profile(
        cls,
        model: Model,
        device: str | Sequence[str],
        runs: Iterable[Iterable[ProfileRow]],
        shapes: Shapes | None = None,
    ) -> Costs:
        """Costs from the counters of inferences.

        ``device``: the device that ran them; for a model on HETERO, the device of each subgraph, in order. ``runs``:
        `InferRequest.profiling_info` of each inference. ``shapes``: of the inputs; by default those that the model
        states. Counters of simulated devices and of nodes that did not run are ignored. Raises `PropertyError` for
        shapes of unknown inputs and counters of unknown subgraphs, `CostFileError` for invalid times.
        """
        model_shapes = {port.name: _stated_shape(port.shape) for port in model.inputs}
        input_shapes = {name: tuple(map(int, shape)) for name, shape in {**model_shapes, **dict(shapes or {})}.items()}
        unknown = [name for name in input_shapes if name not in model_shapes]
        if unknown:
            raise PropertyError(
                f"shapes: model {model.name!r} has no input {unknown[0]!r}{did_you_mean(unknown[0], model_shapes)}"
            )
        times: dict[str, dict[str, NodeTimes]] = {}
        totals: dict[str, float] = {}
        for rows in runs:
            sums: dict[str, float] = {}
            measured = (row for row in rows if row.status != NOT_RUN and not row.exec_type.startswith("simulated"))
            for row in with_bodies_summed(measured):
                name = device if isinstance(device, str) else _device_of(device, row)
                per_node = times.setdefault(name, {})
                fused = row.status == OPTIMIZED_OUT
                this_run = NodeTimes(1, _checked_time(row.real_us, row.node), row.real_us, fused)
                earlier_runs = per_node.get(row.node)
                per_node[row.node] = this_run if earlier_runs is None else earlier_runs.merged(this_run)
                sums[name] = sums.get(name, 0.0) + row.real_us
            totals.update({name: min(total, totals.get(name, total)) for name, total in sums.items()})
        measurements = tuple(Measurement(name, input_shapes, nodes, totals[name]) for name, nodes in times.items())
        return cls(model.name, graph_digest(model), measurements)

    @classmethod
    def of_model(cls, model: Model, measurements: Iterable[Measurement] = (), links: Iterable[LinkTimes] = ()) -> Costs:
        """Costs of a model from times of any origin. Raises `CostFileError` for invalid times."""
        return cls(model.name, graph_digest(model), tuple(measurements), tuple(links))

    def merge(self, *others: Costs) -> Costs:
        """These and other costs together, as `NodeTimes.merged` says; of several times of a link, the last is kept.
        Raises `WrongModel` for costs of another model."""
        measurements: dict[tuple[str, tuple[tuple[str, tuple[int, ...]], ...]], Measurement] = {}
        links: dict[tuple[str, str], LinkTimes] = {}
        for costs in (self, *others):
            if costs.digest != self.digest:
                raise WrongModel(
                    f"costs of {costs.model_name!r} cannot be merged with costs of {self.model_name!r}: "
                    f"their graphs have different nodes"
                )
            for entry in costs.measurements:
                key = entry.device, tuple(sorted(entry.shapes.items()))
                measurements[key] = _merged(measurements[key], entry) if key in measurements else entry
            links.update({(link.source, link.target): link for link in costs.links})
        return Costs(self.model_name, self.digest, tuple(measurements.values()), tuple(links.values()))

    def measurement(self, device: str, shapes: Shapes | None = None) -> Measurement | None:
        """The times on a device: with inputs of these shapes if there are any, else of the most runs; None if it was
        not measured."""
        of_device = [entry for entry in self.measurements if entry.device == device]
        for entry in of_device:
            if shapes is not None and {name: tuple(shape) for name, shape in shapes.items()} == dict(entry.shapes):
                return entry
        return max(of_device, key=lambda entry: sum(times.count for times in entry.nodes.values()), default=None)

    def link(self, source: str, target: str) -> LinkTimes | None:
        """The time to send a value from one device to another; None if it was not measured."""
        return next((link for link in self.links if (link.source, link.target) == (source, target)), None)

    def check_model(self, *models: Model) -> None:
        """Raise `WrongModel` unless the costs were measured on one of these models."""
        if not any(graph_digest(model) == self.digest for model in models):
            raise WrongModel(
                f"the costs were measured on {self.model_name!r}, which has other nodes than model {models[0].name!r}; "
                f"measure this model"
            )

    def check_devices(self, devices: Sequence[str]) -> None:
        """Raise `PropertyError` if none of the devices was measured, because the costs would then have no effect."""
        measured = [entry.device for entry in self.measurements]
        if measured and not set(measured) & set(devices):
            raise PropertyError(
                f"the costs were measured on {', '.join(dict.fromkeys(measured))}, and the device list "
                f"{', '.join(devices)} has none of these{did_you_mean(measured[0], devices)}"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the costs as JSON, atomically. The order of keys is stable."""
        import msgspec

        write_file(path, [msgspec.json.format(self.to_json(), indent=1), b"\n"], "costs ")

    def to_json(self) -> bytes:
        """The JSON that `save` writes, on one line."""
        import msgspec

        file = _CostFile("hetero-costs", FORMAT_VERSION, self.model_name, self.digest, self.measurements, self.links)
        return msgspec.json.encode(file)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Costs:
        """Read a file that `save` wrote. Raises `CostFileError` with the problem and its place in the file."""
        import msgspec

        label = f"costs {os.fsdecode(path)}"
        try:
            data = read_file(path)
            file = decode_json(data, _CostFile)
        except OSError as error:
            raise file_error(CostFileError, f"{label}: cannot be read: {error.strerror or error}", error) from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            other = other_than_text(data) or ("a plan" if "'hetero-plan'" in str(error) else None)
            trouble = str(error) if other is None else f"expected measured costs in JSON, found {other}"
            if place := re.search(r"^JSON is malformed: (.*) \(byte (\d+)\)$", trouble):
                trouble = f"{place_in(data, int(place[2]))}: {place[1]}"
            raise CostFileError(f"{label}: {trouble}") from error
        try:
            return cls(file.model, file.digest, file.measurements, file.links)
        except CostFileError as error:
            raise CostFileError(f"{label}{str(error).removeprefix('costs')}") from None

    def __repr__(self) -> str:
        devices = ", ".join(dict.fromkeys(entry.device for entry in self.measurements))
        return f"<Costs of {self.model_name!r} on {devices or 'no device'}>"


def _merged(one: Measurement, other: Measurement) -> Measurement:
    nodes = dict(one.nodes)
    for key, times in other.nodes.items():
        nodes[key] = nodes[key].merged(times) if key in nodes else times
    is_comparable = one.nodes.keys() == other.nodes.keys()  # otherwise the totals sum up different nodes
    total = _minimum(one.total_us, other.total_us) if is_comparable else None
    return Measurement(one.device, one.shapes, nodes, total, _minimum(one.launch_us, other.launch_us))


def _minimum(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _device_of(devices: Sequence[str], row: ProfileRow) -> str:
    if not 1 <= row.subgraph <= len(devices):
        raise PropertyError(
            f"the counter of node {row.node!r} has subgraph {row.subgraph}, expected 1 to {len(devices)}"
        )
    return devices[row.subgraph - 1]


def _stated_shape(shape: tuple[int | str | None, ...] | None) -> tuple[int, ...]:
    """The shape if all of its dims are numbers, else ()."""
    sizes = tuple(dim for dim in shape or () if isinstance(dim, int))
    return sizes if shape is not None and len(sizes) == len(shape) else ()


def _checked_time(value: float, where: str) -> float:
    if not 0 <= value < math.inf:
        raise CostFileError(f"{where}: expected a time of 0 or more µs, found {value!r}")
    return value


def _check(costs: Costs) -> None:
    """Raise `CostFileError` for times that are negative or not finite, counts below 1, and duplicates."""
    seen = set()
    for entry in costs.measurements:
        where = f"costs: {entry.device}"
        key = entry.device, tuple(sorted(entry.shapes.items()))
        if key in seen:
            raise CostFileError(f"{where}: measured twice with the same shapes {dict(entry.shapes)}")
        seen.add(key)
        for name in ("launch_us", "total_us"):
            if getattr(entry, name) is not None:
                _checked_time(getattr(entry, name), f"{where}: {name}")
        for node, times in entry.nodes.items():
            _checked_time(times.mean_us, f"{where}: node {node!r}")
            _checked_time(times.min_us, f"{where}: node {node!r}")
            if times.count < 1:
                raise CostFileError(f"{where}: node {node!r}: expected a count of 1 or more, found {times.count}")
    pairs = set()
    for link in costs.links:
        where = f"costs: link from {link.source} to {link.target}"
        if (link.source, link.target) in pairs:
            raise CostFileError(f"{where} is given twice")
        pairs.add((link.source, link.target))
        _checked_time(link.latency_us, where)
        _checked_time(link.us_per_mb, where)
