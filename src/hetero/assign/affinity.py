"""Stage 2, assign: a device for each node, with the reason.

Fallback by priority: each node goes to the first device of the list that supports it. A pin (from the user, or an
affinity in the model) overrides priority for its node. With `hetero.assign.by_cost`, nodes that were assigned by
priority then move to where they cost less.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ..base.formatting import counted
from ..errors import UnsupportedModel
from ..plugin.contract import Support
from .pins import resolve_pins, stated_numbers

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = [
    "Affinity",
    "NodeReasons",
    "Origin",
    "SupportedNodes",
    "assign",
    "first_supporting",
    "place",
]


_NO_REASON = "not supported, without a reason"
_MOST_LINES = 20  # of a message
_MOST_KEYS = 3  # of a line


class Origin(enum.IntEnum):
    """The reason for a node's device."""

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
    Origin.STAGE: "placed on {} as a stage of a pipeline",
    Origin.MEMORY: "moved to {} because of memory limits",
}


class SupportedNodes(dict[str, str]):
    """Node key -> device, for the nodes that some device of the list supports; the result of `Core.query_model`.

    ``reasons``: node key -> {device: reason}, for every device that does not support the node. ``limits``: device ->
    its limits on memory, and on the size and number of its subgraphs, as text. Only plans apply them, because they
    depend on the cut.
    """

    def __init__(
        self,
        devices: Mapping[str, str],
        reasons: Mapping[str, Mapping[str, str]],
        limits: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(devices)
        self.reasons = {key: dict(per_device) for key, per_device in reasons.items()}
        self.limits = {device: tuple(texts) for device, texts in (limits or {}).items()}


class NodeReasons(Protocol):
    """The reasons why nodes moved, each computed on request."""

    def reason(self, node: int) -> str:
        """Why the node is on its device."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Affinity:
    """A device per node.

    ``devices``: names in priority order. ``device_of``: int32[num_nodes], indices into ``devices``. ``origin``:
    uint8[num_nodes] of `Origin`. ``supports``: each device's answer. ``pins``: node index -> the pin that placed it, as
    written, for nodes of origin PIN. ``cost_reasons``: about nodes of origin COST or STAGE; ``memory_reasons``: about
    nodes of origin MEMORY. ``groups``: int32 arrays of nodes that go to one device. ``answers``: the devices' own
    answers, if constraints on the assignment restrict ``supports``; empty if they do not.
    """

    devices: tuple[str, ...]
    device_of: NDArray[np.int32]
    origin: NDArray[np.uint8]
    supports: tuple[Support, ...]
    pins: Mapping[int, str]
    cost_reasons: NodeReasons | None = None
    memory_reasons: NodeReasons | None = None
    groups: tuple[NDArray[np.int32], ...] = ()
    answers: tuple[Support, ...] = ()

    @property
    def units(self) -> tuple[Sequence[NDArray[np.int32]], ...]:
        """The units of each device's answer (`Support.units`)."""
        answered = tuple(support.units for support in self.supports)
        return answered + ((),) * (len(self.devices) - len(answered))

    def refusal(self, device: int, node: int) -> str | None:
        """Why a device, by number, does not support a node; None if it does."""
        support = self.supports[device]
        return None if support.mask[node] else support.reasons.get(node, _NO_REASON)

    def reason(self, node: int) -> str:
        """Why the node is on its device, as text, and how the device runs it if the device says so."""
        note = self.note(node)
        return f"{self._reason(node)}; {note}" if note else self._reason(node)

    def note(self, node: int) -> str:
        """How the device of the node runs it, as the device says; usually empty."""
        number = int(self.device_of[node])
        return self.supports[number].notes.get(node, "") if number < len(self.supports) else ""

    def notes(self) -> Mapping[int, str]:
        """Node -> `note`, for the nodes that have one."""
        nodes = sorted({node for support in self.supports for node in support.notes})
        return {node: note for node in nodes if (note := self.note(node))}

    def _reason(self, node: int) -> str:
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
            assert self.cost_reasons is not None
            return self.cost_reasons.reason(node)
        if origin == Origin.COST:
            assert self.cost_reasons is not None
            return f"{device} by cost: {self.cost_reasons.reason(node)}"
        if origin == Origin.MEMORY:
            assert self.memory_reasons is not None
            return f"{device} because of memory limits: {self.memory_reasons.reason(node)}"
        if any(self.supports[i].mask[node] for i in range(number)):  # `hetero.assign.with_readers`
            return f"it depends on constants only, and its results are read on {device}"
        refused = ((self.devices[i], self.supports[i].reasons.get(node)) for i in range(number))
        passed_over = [f"{name}: {why}" for name, why in refused if why is not None]
        if not passed_over:
            return f"{device} is the first device of the list that supports it"
        return f"{device} supports it; not on {'; '.join(passed_over)}"


def assign(
    model: Model,
    devices: Sequence[str],
    supports: Sequence[Support],
    pins: Mapping[str, str] | None = None,
    enclosing: Mapping[int, Sequence[str]] | None = None,
) -> Affinity:
    """Assign every node.

    ``supports``: one answer per device. ``pins``: node key, expression or operator -> device (see `pins`). Pins
    override affinities in the model, which override priority. ``enclosing``: node -> keys of the calls of functions
    that contained it, the outermost first; a pin of a call applies to all its nodes.

    Raises `PropertyError` for a pin to a device outside the list, or a pin that matches nothing. Raises
    `UnsupportedModel` with all nodes that no device supports, or that are pinned to a device that does not support
    them, each with the reasons.
    """
    device_of = first_supporting(model.num_nodes, supports)
    origin = np.full(model.num_nodes, Origin.PRIORITY, np.uint8)
    pinned = resolve_pins(model, pins or {}, devices, enclosing)
    for source, device_numbers in (
        (Origin.MODEL, stated_numbers(model, model.affinity, devices)),
        (Origin.PIN, {node: number for node, (number, _) in pinned.items()}),
    ):
        for node, number in device_numbers.items():
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
    """The `Affinity` of the arrays, which become read-only.

    Raises `UnsupportedModel` for nodes without a device (-1), and for nodes on a device that does not support them.
    """
    _check(model, devices, supports, device_of, origin)
    device_of.flags.writeable = False
    origin.flags.writeable = False
    return Affinity(tuple(devices), device_of, origin, tuple(supports), pins)


def first_supporting(num_nodes: int, supports: Sequence[Support]) -> NDArray[np.int32]:
    """int32[num_nodes]: the first device that supports each node, or -1."""
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
    """Raise `UnsupportedModel` for all nodes on a device that does not support them. The message groups nodes with
    equal reasons in one line and shows the first lines; the exception's ``unsupported`` contains all nodes."""
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
        device_numbers = range(len(devices)) if number < 0 else [number]
        reasons = {devices[i]: supports[i].reasons.get(node, _NO_REASON) for i in device_numbers}
        unsupported[key] = reasons
        placed = "" if number < 0 else _PLACED[origin[node]].format(devices[number])
        each = [f"{device}: {reason}" for device, reason in reasons.items()]
        if number >= 0:  # `placed` names the device
            why = f" {reasons[devices[number]]}"
        else:
            why = f" {each[0]}" if len(each) == 1 else "".join(f"\n    {line}" for line in each)
        alike.setdefault((op, placed, why), []).append(key)
    lines = []
    for (op, placed, why), keys in list(alike.items())[:_MOST_LINES]:
        more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
        which = f" {'is' if len(keys) == 1 else 'are'} {placed}" if placed else ""
        lines.append(f"  {', '.join(map(repr, keys[:_MOST_KEYS]))}{more} ({op}){which}:{why}")
    if len(alike) > _MOST_LINES:
        left = sum(map(len, list(alike.values())[_MOST_LINES:]))
        lines.append(f"  and {counted(left, 'more node')}; the exception's `unsupported` lists all")
    count = f"{counted(len(troubled), 'node')} {'is' if len(troubled) == 1 else 'are'}"
    if bool((device_of[troubled] < 0).any()):
        trouble = f"not supported by any device in the list [{', '.join(devices)}]"
        if not any(device.partition(".")[0] == "CPU" for device in devices):
            them = "it" if len(troubled) == 1 else "them"
            lines.append(f"  add a device that supports {them} at the end of the list: HETERO:{','.join(devices)},CPU")
    else:
        trouble = "placed on a device that does not support " + ("it" if len(troubled) == 1 else "them")
    raise UnsupportedModel(f"model {model.name!r}: {count} {trouble}:\n" + "\n".join(lines), unsupported)
