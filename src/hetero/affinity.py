"""Stage 2, assign: a device for each node, and the reason wherever a device was passed over.

Fallback by priority: each node goes to the first device of the list that takes it. A pin (from the user, or an
affinity in the model) goes before that, for its node only; the rest is still assigned automatically.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .errors import PropertyError, UnsupportedModel, did_you_mean
from .plugin import Support

if TYPE_CHECKING:
    from .model.model import Model

__all__ = [
    "Affinity",
    "Origin",
    "SupportedNodes",
    "assign",
    "find_pinned",
    "first_supporting",
    "resolve_pins",
    "supported_nodes",
]


class Origin(enum.IntEnum):
    """Where a node's device came from."""

    PRIORITY = 0
    MODEL = 1
    PIN = 2


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
    uint8[num_nodes] of `Origin`. ``refusals``: per device, node index -> why it does not take the node.
    """

    devices: tuple[str, ...]
    device_of: NDArray[np.int32]
    origin: NDArray[np.uint8]
    refusals: tuple[Mapping[int, str], ...]

    def reason(self, node: int) -> str:
        """Why the node is where it is, in words."""
        number = int(self.device_of[node])
        device = self.devices[number]
        if self.origin[node] == Origin.PIN:
            return f"pinned to {device}"
        if self.origin[node] == Origin.MODEL:
            return f"affinity {device} in the model"
        passed_over = [
            f"{self.devices[i]}: {self.refusals[i][node]}" for i in range(number) if node in self.refusals[i]
        ]
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

    ``supports``: one answer per device. ``pins``: node key or regular expression -> device; they go before the
    affinities in the model, which go before priority. ``enclosing``: node -> keys of the calls of functions that it was
    in, the outermost first; a pin of a call holds for all its nodes.

    Raises `PropertyError` for a pin to a device outside the list or one that matches nothing, and `UnsupportedModel`
    for nodes that no device takes, or that are pinned to a device that refuses them: all of them, with each reason.
    """
    device_of = first_supporting(model.num_nodes, supports)
    origin = np.full(model.num_nodes, Origin.PRIORITY, np.uint8)
    for source, wanted in (
        (Origin.MODEL, _by_index(model, model.affinity, devices)),
        (Origin.PIN, resolve_pins(model, pins or {}, devices, enclosing)),
    ):
        for node, number in wanted.items():
            device_of[node] = number
            origin[node] = source
    _check(model, devices, supports, device_of, origin)
    device_of.flags.writeable = False
    origin.flags.writeable = False
    return Affinity(tuple(devices), device_of, origin, tuple(support.reasons for support in supports))


def resolve_pins(
    model: Model,
    pins: Mapping[str, str],
    devices: Sequence[str],
    enclosing: Mapping[int, Sequence[str]] | None = None,
) -> dict[int, int]:
    """Node index -> device number. A key wins over the key of a call around it, that over an expression, a later
    expression over an earlier one."""
    matcher = _PinMatcher(model, enclosing)
    for pin, device in pins.items():
        number = _device_number(device, devices, f"pin {pin!r}")
        try:
            found = matcher.match(pin, number)
        except re.error as error:
            raise PropertyError(f"pin {pin!r} is neither a node key nor a regular expression: {error}") from error
        if not found:
            raise PropertyError(f"pin {pin!r} matches no node{did_you_mean(pin, model.keys[:10_000])}")
    return matcher.pinned()


def find_pinned(
    model: Model,
    pins: Mapping[str, str],
    devices: Sequence[str],
    enclosing: Mapping[int, Sequence[str]] | None = None,
) -> tuple[dict[int, int], list[str]]:
    """Node index -> device number by pins and the model's affinities, and the pins that match nothing, which may name
    nodes inside of calls. What is wrong with any is left to `assign`."""
    matcher = _PinMatcher(model, enclosing)
    unmatched = []
    for pin, device in pins.items():
        try:
            if device in devices and not matcher.match(pin, devices.index(device)):
                unmatched.append(pin)
        except re.error:
            unmatched.append(pin)
    stated = {key: device for key, device in model.affinity.items() if device in devices}
    return _by_index(model, stated, devices) | matcher.pinned(), unmatched


class _PinMatcher:
    """Collects the nodes that pins match."""

    def __init__(self, model: Model, enclosing: Mapping[int, Sequence[str]] | None) -> None:
        self._model = model
        self._inside: dict[str, list[int]] = {}  # key of a call -> the nodes it became
        self._depth: dict[str, int] = {}
        for node, calls in (enclosing or {}).items():
            for depth, call in enumerate(calls):
                self._inside.setdefault(call, []).append(node)
                self._depth[call] = depth
        self._by_key: dict[int, int] = {}
        self._by_call: list[tuple[int, str, int]] = []
        self._by_pattern: dict[int, int] = {}

    def match(self, pin: str, number: int) -> bool:
        """Whether the pin matches something. Raises `re.error`."""
        model = self._model
        node = model.find_key(pin)
        if node is not None:
            self._by_key[node] = number
        if pin in self._inside:
            self._by_call.append((self._depth[pin], pin, number))
        if node is not None or pin in self._inside or pin in model.constant_keys:
            return True  # a constant is cloned to wherever it is read
        pattern = re.compile(pin)
        matches = [i for i, key in enumerate(model.keys) if pattern.fullmatch(key)]
        for call, nodes in self._inside.items():
            if pattern.fullmatch(call):
                matches += nodes
        self._by_pattern.update(dict.fromkeys(matches, number))
        return bool(matches) or any(pattern.fullmatch(key) for key in model.constant_keys)

    def pinned(self) -> dict[int, int]:
        """Node index -> device number."""
        by_call: dict[int, int] = {}
        for _, call, number in sorted(self._by_call):  # inner calls win over outer ones
            by_call.update(dict.fromkeys(self._inside[call], number))
        return self._by_pattern | by_call | self._by_key


def _by_index(model: Model, affinity: Mapping[str, str], devices: Sequence[str]) -> dict[int, int]:
    wanted = {}
    for key, device in affinity.items():
        node = model.find_key(key)
        if node is not None:
            wanted[node] = _device_number(device, devices, f"affinity of node {key!r}")
    return wanted


def _device_number(device: str, devices: Sequence[str], whose: str) -> int:
    if device not in devices:
        raise PropertyError(
            f"{whose}: device {device!r} is not in the list {', '.join(devices)}{did_you_mean(str(device), devices)}"
        )
    return devices.index(device)


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
    unsupported: dict[str, dict[str, str]] = {}
    lines = []
    refused = np.zeros(model.num_nodes, np.bool_)
    for i, support in enumerate(supports):
        refused |= (device_of == i) & ~support.mask
    for node in np.flatnonzero(refused | (device_of < 0)).tolist():
        key, op = model.key_of(node), model.op_types[model.op_type_of[node]]
        if device_of[node] < 0:
            reasons = {
                device: support.reasons.get(node, "refused without a reason")
                for device, support in zip(devices, supports, strict=True)
            }
            placed = ""
        else:
            number = int(device_of[node])
            reasons = {devices[number]: supports[number].reasons.get(node, "refused without a reason")}
            placed = f" is {'pinned' if origin[node] == Origin.PIN else 'set'} to {devices[number]}"
        unsupported[key] = reasons
        why = "; ".join(f"{device}: {reason}" for device, reason in reasons.items())
        lines.append(f"  {key!r} ({op}){placed}: {why}")
    if lines:
        count = "1 node is" if len(lines) == 1 else f"{len(lines)} nodes are"
        raise UnsupportedModel(
            f"model {model.name!r}: {count} taken by no device of {', '.join(devices)}:\n" + "\n".join(lines),
            unsupported,
        )
