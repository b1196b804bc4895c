"""`Plan.what_if`: how a plan would differ if devices supported more operators, or with other pins."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..assign.affinity import Origin, first_supporting, place
from ..assign.assigning import assign_and_cut
from ..assign.pins import check_pins, resolve_pins
from ..base.formatting import byte_size, counted, duration
from ..base.names import first_few
from ..errors import PropertyError, did_you_mean, shown
from ..plugin.contract import Support
from .traffic import boundary_of, cut_bytes, traffic
from .warning import is_for_latency

if TYPE_CHECKING:
    from ..model.model import Model
    from .bound import BoundPlan

__all__ = ["Difference", "Moved", "more_support", "what_if"]


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """A node that would be on another device."""

    node: str
    before: str
    after: str


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Difference:
    """How a plan would differ.

    ``moved``: the nodes that would be on another device, in topological order. ``values_before``, ``values_after``: the
    number of values between subgraphs; ``bytes_before``, ``bytes_after``: their bytes if known, each value counted
    once; ``unknown_before``, ``unknown_after``: the number of values of unknown size. ``latency_before_s``,
    ``latency_after_s``: the predicted latency in seconds, if nodes are assigned by cost.
    """

    subgraphs_before: int
    subgraphs_after: int
    values_before: int
    values_after: int
    bytes_before: int
    bytes_after: int
    unknown_before: int
    unknown_after: int
    moved: tuple[Moved, ...]
    latency_before_s: float | None = None
    latency_after_s: float | None = None

    def to_json(self) -> bytes:
        """The fields, as JSON."""
        import msgspec

        return msgspec.json.encode(self)

    def __str__(self) -> str:
        ways: dict[tuple[str, str], list[str]] = {}
        for move in self.moved:
            ways.setdefault((move.before, move.after), []).append(move.node)
        moves = [
            f"{counted(len(nodes), 'node')} from {before} to {after} ({first_few(nodes, 3)})"
            for (before, after), nodes in ways.items()
        ]
        predicted = []
        if self.latency_before_s is not None and self.latency_after_s is not None:
            predicted = [f"predicted   {duration(self.latency_before_s)} -> {duration(self.latency_after_s)}"]
        return "\n".join(
            [
                f"subgraphs   {self.subgraphs_before:,} -> {self.subgraphs_after:,}",
                f"cut values  {self.values_before:,} -> {self.values_after:,}",
                f"cut bytes   {_bytes(self.bytes_before, self.unknown_before)} -> "
                f"{_bytes(self.bytes_after, self.unknown_after)}",
                *predicted,
                f"moved       {'; '.join(moves) or 'nothing'}",
            ]
        )

    def __repr__(self) -> str:
        return (
            f"<Difference: {self.subgraphs_before:,} -> {self.subgraphs_after:,} subgraphs, "
            f"{self.values_before:,} -> {self.values_after:,} cut values, {counted(len(self.moved), 'node')} moved>"
        )


def what_if(
    plan: BoundPlan, device_supports: Mapping[str, Iterable[str]], pins: Mapping[str, str], without_pins: Sequence[str]
) -> Difference:
    """See `Plan.what_if`."""
    model, affinity = plan.assignment.model, plan.assignment.affinity
    pins = check_pins(pins)
    if not isinstance(device_supports, Mapping):
        raise PropertyError(
            f"device_supports must be a mapping from devices to operators, found {shown(device_supports)}"
        )
    if plan.pipeline is not None:
        raise PropertyError(
            f"{plan.label} is a pipeline, whose stages depend on each other; plan the model again with other pins"
        )
    if is_for_latency(plan) and not plan.rules.speeds:
        raise PropertyError(
            f"{plan.label} was made with OBJECTIVE=LATENCY, then saved or bound to another model, and its costs were "
            "not kept; plan the model again to compare predictions"
        )
    devices = affinity.devices
    supports = list(affinity.answers or affinity.supports)
    for device, op_types in device_supports.items():
        if device not in devices:
            raise PropertyError(
                f"device {shown(device)} is not in the plan's list {', '.join(devices)}{did_you_mean(device, devices)}"
            )
        number = devices.index(device)
        if not isinstance(op_types, Iterable):
            raise PropertyError(f"device_supports of {device}: expected operators, found {shown(op_types)}")
        names = [op_types] if isinstance(op_types, str) else list(op_types)
        supports[number] = more_support(supports[number], model, [_operator(model, name) for name in names])
    left_out = set(without_pins)
    for pin in without_pins:
        if pin not in plan.pins:
            raise PropertyError(f"the plan has no pin {shown(pin)}{did_you_mean(pin, plan.pins)}")
    origin = affinity.origin.copy()
    origin[np.isin(origin, (Origin.COST, Origin.MEMORY))] = Origin.PRIORITY  # moved again if that is still better
    for node, pin in affinity.pins.items():
        if pin in left_out:
            origin[node] = Origin.PRIORITY
    device_of = np.where(
        origin == Origin.PRIORITY, first_supporting(model.num_nodes, supports), affinity.device_of
    ).astype(np.int32)
    placed_by = {node: pin for node, pin in affinity.pins.items() if pin not in left_out}
    for node, (number, pin) in resolve_pins(model, pins, devices).items():
        device_of[node], origin[node], placed_by[node] = number, Origin.PIN, pin
    changed = place(model, devices, supports, device_of, origin, placed_by)
    changed = dataclasses.replace(changed, groups=affinity.groups)
    after = assign_and_cut(plan.original, model, changed, plan.rules)
    cut = traffic(model, after.partition.subgraph_of)
    moved = np.flatnonzero(after.affinity.device_of != affinity.device_of).tolist()
    bytes_before, unknown_before = cut_bytes(plan.boundary)
    bytes_after, unknown_after = cut_bytes(boundary_of(after.sized_model, cut))
    return Difference(
        plan.num_subgraphs,
        after.partition.num_subgraphs,
        len(plan.traffic.value),
        len(cut.value),
        bytes_before,
        bytes_after,
        unknown_before,
        unknown_after,
        tuple(
            Moved(model.key_of(node), devices[affinity.device_of[node]], devices[after.affinity.device_of[node]])
            for node in moved
        ),
        None if plan.latency is None else plan.latency.total_s,
        None if after.latency is None else after.latency.total_s,
    )


def more_support(support: Support, model: Model, operators: Sequence[int]) -> Support:
    """The answer of a device that also supports these operators, given by number."""
    more: NDArray[np.bool_] = np.isin(model.op_type_of, operators)
    return dataclasses.replace(support, mask=support.mask | more)


def _operator(model: Model, name: str) -> int:
    """The number of an operator type. Raises `PropertyError` if the model does not use it."""
    if name not in model.op_types:
        raise PropertyError(
            f"model {model.name!r} has no operator {shown(name)}{did_you_mean(str(name), model.op_types)}; "
            f"it has {', '.join(model.op_types)}"
        )
    return model.op_types.index(name)


def _bytes(known: int, unknown: int) -> str:
    return byte_size(known) + (f" and {counted(unknown, 'value')} of unknown size" if unknown else "")
