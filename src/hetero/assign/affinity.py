"""Stage 2, assign: a device for each node, and the reason wherever a device was passed over.

Fallback by priority: each node goes to the first device of the list that takes it. A pin (from the user, or an
affinity in the model) goes before that, for its node only; the rest is still assigned automatically. On demand, what is
assigned by priority is then moved to where it costs less (`hetero.assign.by_cost`).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import UnsupportedModel
from ..plugin.contract import Support
from .pins import resolve_pins, stated_numbers

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = [
    "Affinity",
    "Origin",
    "SupportedNodes",
    "assign",
    "first_supporting",
    "place",
    "supported_nodes",
]


_NO_REASON = "refused without a reason"
_MOST_LINES = 20  # of a message
_MOST_KEYS = 5  # of a line


class Origin(enum.IntEnum):
    """Where a node's device came from."""

    PRIORITY = 0
    MODEL = 1
    PIN = 2
    PLAN = 3
    COST = 4
    STAGE = 5
    MEMORY = 6


_PLACED = {
    Origin.PIN: "pinned to {}",
    Origin.MODEL: "set to {} in the model",
    Origin.PLAN: "set to {} in the plan",
    Origin.COST: "set to {} by cost",
    Origin.STAGE: "put on {} as a stage of a pipeline",
    Origin.MEMORY: "moved to {} for want of memory",
}


class SupportedNodes(dict[str, str]):
    """Node key -> device, for the nodes that some device of the list takes; what `Core.query_model` returns.

    ``reasons``: node key -> {device: why not}, an entry for every refusal.
    """

    def __init__(self, devices: Mapping[str, str], reasons: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__(devices)
        self.reasons = {key: dict(per_device) for key, per_device in reasons.items()}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Affinity:
    """A device per node.

    ``devices``: names in priority order. ``device_of``: int32[num_nodes], indices into ``devices``. ``origin``:
    uint8[num_nodes] of `Origin`. ``supports``: each device's answer. ``pins``: node index -> the pin that placed it, as
    it was written, for nodes of origin PIN. ``explain_cost``: node index -> what it costs where, for nodes of origin
    COST or STAGE; ``explain_memory``: node index -> where there was no room, for nodes of origin MEMORY.
    """

    devices: tuple[str, ...]
    device_of: NDArray[np.int32]
    origin: NDArray[np.uint8]
    supports: tuple[Support, ...]
    pins: Mapping[int, str]
    explain_cost: Callable[[int], str] | None = None
    explain_memory: Callable[[int], str] | None = None

    def refusal(self, device: int, node: int) -> str | None:
        """Why a device, by number, does not take a node; None if it does."""
        support = self.supports[device]
        return None if support.mask[node] else support.reasons.get(node, _NO_REASON)

    def reason(self, node: int) -> str:
        """Why the node is where it is, in words."""
        number = int(self.device_of[node])
        device = self.devices[number]
        origin = int(self.origin[node])
        if origin == Origin.PIN:
            pin = self.pins.get(node)
            return f"pinned to {device}" + ("" if pin is None else f" by {pin!r}")
        if origin == Origin.MODEL:
            return f"affinity {device} in the model"
        if origin == Origin.PLAN:
            return f"set to {device} in the plan"
        if origin == Origin.STAGE:
            return f"{device} is a stage of the pipeline" if self.explain_cost is None else self.explain_cost(node)
        if origin == Origin.COST:
            return f"{device} by cost" + ("" if self.explain_cost is None else f": {self.explain_cost(node)}")
        if origin == Origin.MEMORY:
            return f"{device} for want of memory" + (
                "" if self.explain_memory is None else f": {self.explain_memory(node)}"
            )
        refused = ((self.devices[i], self.supports[i].reasons.get(node)) for i in range(number))
        passed_over = [f"{name}: {why}" for name, why in refused if why is not None]
        if not passed_over:
            return f"{device} is the first device of the list that takes it"
        return f"{device} takes it; passed over {'; '.join(passed_over)}"


def supported_nodes(model: Model, devices: Sequence[str], supports: Sequence[Support]) -> SupportedNodes:
    """The answer of all devices together, by priority, affinities ignored."""
    number = first_supporting(model.num_nodes, supports)
    chosen = {model.key_of(int(i)): devices[number[i]] for i in np.flatnonzero(number >= 0)}
    reasons: dict[str, dict[str, str]] = {}
    for device, support in zip(devices, supports, strict=True):
        for node, why in support.reasons.items():
            reasons.setdefault(model.key_of(node), {})[device] = why
    return SupportedNodes(chosen, reasons)


def assign(
    model: Model,
    devices: Sequence[str],
    supports: Sequence[Support],
    pins: Mapping[str, str] | None = None,
    enclosing: Mapping[int, Sequence[str]] | None = None,
) -> Affinity:
    """Assign every node.

    ``supports``: one answer per device. ``pins``: node key, expression or operator -> device (see `pins`); they go
    before the affinities in the model, which go before priority. ``enclosing``: node -> keys of the calls of
    functions that it was in, the outermost first; a pin of a call holds for all its nodes.

    Raises `PropertyError` for a pin to a device outside the list or one that matches nothing, and `UnsupportedModel`
    for nodes that no device takes, or that are pinned to a device that refuses them: all of them, with each reason.
    """
    device_of = first_supporting(model.num_nodes, supports)
    origin = np.full(model.num_nodes, Origin.PRIORITY, np.uint8)
    pinned = resolve_pins(model, pins or {}, devices, enclosing)
    for source, wanted in (
        (Origin.MODEL, stated_numbers(model, model.affinity, devices)),
        (Origin.PIN, {node: number for node, (number, _) in pinned.items()}),
    ):
        for node, number in wanted.items():
            device_of[node] = number
            origin[node] = source
    return place(model, devices, supports, device_of, origin, {node: pin for node, (_, pin) in pinned.items()})


def place(
    model: Model,
    devices: Sequence[str],
    supports: Sequence[Support],
    device_of: NDArray[np.int32],
    origin: NDArray[np.uint8],
    pins: Mapping[int, str],
) -> Affinity:
    """The affinity that the arrays say, which are made read-only; see `Affinity`.

    Raises `UnsupportedModel` for nodes of no device (-1), and for those on a device that refuses them.
    """
    _check(model, devices, supports, device_of, origin)
    device_of.flags.writeable = False
    origin.flags.writeable = False
    return Affinity(tuple(devices), device_of, origin, tuple(supports), pins)


def first_supporting(num_nodes: int, supports: Sequence[Support]) -> NDArray[np.int32]:
    """int32[num_nodes]: the first device that takes each node, -1 where none does."""
    number = np.full(num_nodes, -1, np.int32)
    for i in range(len(supports) - 1, -1, -1):
        number[supports[i].mask] = i
    return number


def _check(
    model: Model,
    devices: Sequence[str],
    supports: Sequence[Support],
    device_of: NDArray[np.int32],
    origin: NDArray[np.uint8],
) -> None:
    """Raise for all nodes that cannot be where they are put. The message tells nodes alike in one line, and of many
    lines the first; the exception's ``unsupported`` has them all."""
    refused = np.zeros(model.num_nodes, np.bool_)
    for i, support in enumerate(supports):
        refused |= (device_of == i) & ~support.mask
    troubled = np.flatnonzero(refused | (device_of < 0)).tolist()
    if not troubled:
        return
    unsupported: dict[str, dict[str, str]] = {}
    alike: dict[tuple[str, str, str], list[str]] = {}
    for node in troubled:
        key, op = model.key_of(node), model.op_types[model.op_type_of[node]]
        number = int(device_of[node])
        asked = range(len(devices)) if number < 0 else [number]
        reasons = {devices[i]: supports[i].reasons.get(node, _NO_REASON) for i in asked}
        unsupported[key] = reasons
        placed = "" if number < 0 else f" is {_PLACED[origin[node]].format(devices[number])}"
        why = "; ".join(f"{device}: {reason}" for device, reason in reasons.items())
        alike.setdefault((op, placed, why), []).append(key)
    lines = []
    for (op, placed, why), keys in list(alike.items())[:_MOST_LINES]:
        more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
        lines.append(f"  {', '.join(map(repr, keys[:_MOST_KEYS]))}{more} ({op}){placed}: {why}")
    if len(alike) > _MOST_LINES:
        left = sum(map(len, list(alike.values())[_MOST_LINES:]))
        lines.append(f"  and {left} more nodes; the exception's `unsupported` lists all")
    count = "1 node is" if len(troubled) == 1 else f"{len(troubled)} nodes are"
    if bool((device_of[troubled] < 0).any()):
        trouble = f"taken by no device of {', '.join(devices)}"
    else:
        trouble = "put on a device that does not take " + ("it" if len(troubled) == 1 else "them")
    raise UnsupportedModel(f"model {model.name!r}: {count} {trouble}:\n" + "\n".join(lines), unsupported)
