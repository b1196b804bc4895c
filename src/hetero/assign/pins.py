"""Pins: finds the nodes that a user's pins match.

A pin maps one of these to a device:

- a node key, or the key of a call of a model-local function, for all its nodes;
- ``op:`` and an operator type (``op:Conv``, ``op:com.microsoft::FusedConv``), or a regular expression that matches one
  as a whole (``op:Conv|ConvTranspose``);
- ``weight:`` and the name of a constant, or a regular expression that matches such names as a whole
  (``weight:experts\\..*``): the nodes that read it, also through nodes that depend on constants only, such as a
  DequantizeLinear;
- a regular expression that matches a whole key (``/head/.*``).

A pin that matches no node of the main graph can match nodes in the nested graphs of an If, Loop or Scan, whose keys are
``<key of the outer node>/<name>``. The outer node then goes to the device CONTROL_FLOW, which applies the pin. So does
a node that a ``weight:`` pin matches only because its nested graphs read the constant.

A key overrides the key of an enclosing call, which overrides the others. Of these, a later one overrides an earlier
one.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import re
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..base.device_string import CONTROL_FLOW
from ..base.expressions import matching
from ..base.plain import plain
from ..errors import PropertyError, did_you_mean, shown
from ..model.bodies import BODY_ATTRIBUTES, BodyNode, body_nodes
from .memory.values import reads_of

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = [
    "OPERATOR_PREFIX",
    "WEIGHT_PREFIX",
    "PinMatcher",
    "check_pins",
    "device_number",
    "enclosing_node",
    "find_nodes",
    "find_pinned",
    "matches_any",
    "matches_outside",
    "needs_control_flow",
    "outer_nodes",
    "pins_of_body",
    "placed_numbers",
    "resolve_pins",
    "stated_numbers",
]

OPERATOR_PREFIX = "op:"
WEIGHT_PREFIX = "weight:"

_MOST_KEYS_TO_GUESS_FROM = 10_000  # difflib is slow


def check_pins(pins: Mapping[str, str] | None) -> dict[str, str]:
    """A caller's pins as plain strings, empty for None.

    Raises `PropertyError` if ``pins`` is not a mapping from strings to strings.
    """
    if pins is None:
        return {}
    if not isinstance(pins, Mapping):
        raise PropertyError(f"pins must be a mapping such as {{'/head/.*': 'CPU'}}, found {shown(pins)}")
    for pin, device in pins.items():
        if not isinstance(pin, str) or not isinstance(device, str):
            raise PropertyError(
                f"a pin maps a node key or expression to a device, both strings, found {shown(pin)}: {shown(device)}"
            )
    return {plain(pin): plain(device) for pin, device in pins.items()}


def resolve_pins(
    model: Model,
    pins: Mapping[str, str],
    devices: Sequence[str],
    enclosing: Mapping[int, Sequence[str]] | None = None,
) -> dict[int, tuple[int, str]]:
    """Node index -> device number and pin.

    Raises `PropertyError` for a device outside the list, and for a pin that matches nothing, with the nearest key.
    """
    matcher = PinMatcher(model, enclosing, devices)
    for pin, device in pins.items():
        _match(matcher, model, pin, device_number(device, devices, f"pin {pin!r}"), "pin")
    return matcher.pinned()


def find_nodes(model: Model, text: str, what: str, enclosing: Mapping[int, Sequence[str]] | None = None) -> list[int]:
    """The nodes that a text written like a pin matches, ascending. ``what``: what it is, for errors. Raises
    `PropertyError` if it matches nothing."""
    matcher = PinMatcher(model, enclosing)
    _match(matcher, model, text, 0, what)
    return sorted(matcher.pinned())


def outer_nodes(model: Model, text: str) -> list[int]:
    """The nodes in whose nested graphs a text written like a pin matches nodes, ascending."""
    with contextlib.suppress(re.error):
        return _outer_nodes(_inner_nodes(model), text)
    return []


def matches_outside(model: Model, text: str, enclosing: Mapping[int, Sequence[str]] | None = None) -> bool:
    """Whether a text written like a pin matches a node that is not in a nested graph."""
    with contextlib.suppress(re.error):
        return PinMatcher(model, enclosing).match(text, 0)
    return False


def matches_any(model: Model, text: str) -> bool:
    """Whether a text written like a pin matches a node of a model, or of its nested graphs."""
    return matches_outside(model, text) or bool(outer_nodes(model, text))


def _match(matcher: PinMatcher, model: Model, pin: str, number: int, what: str) -> None:
    """`PinMatcher.match`, which must match something. Raises `PropertyError`."""
    try:
        matches_any = matcher.match(pin, number)
    except re.error as error:
        raise PropertyError(f"{what} {pin!r} is neither a node key nor a regular expression: {error}") from error
    if not matches_any:
        raise PropertyError(f"{what} {pin!r} matches no node{_hint(model, pin)}")


def find_pinned(
    model: Model,
    pins: Mapping[str, str],
    devices: Sequence[str],
    enclosing: Mapping[int, Sequence[str]] | None = None,
) -> tuple[dict[int, tuple[int, str]], list[str]]:
    """As `resolve_pins`, without raising for invalid pins. Also returns the pins that match nothing: they may name
    nodes inside calls."""
    matcher = PinMatcher(model, enclosing, devices)
    unmatched = []
    for pin, device in pins.items():
        try:
            if device in devices and not matcher.match(pin, devices.index(device)):
                unmatched.append(pin)
        except re.error:
            unmatched.append(pin)
    return matcher.pinned(), unmatched


def needs_control_flow(model: Model, pins: Mapping[str, str]) -> bool:
    """Whether a pin matches nodes in nested graphs only, so that it requires the device CONTROL_FLOW."""
    if not pins or not _with_bodies(model):
        return False
    matcher = PinMatcher(model, None, (CONTROL_FLOW,))
    for pin in pins:
        with contextlib.suppress(re.error):  # `resolve_pins` raises for it
            matcher.match(pin, 0)
    return bool(matcher.inside)


def pins_of_body(body: Model, outer_key: str, pins: Mapping[str, str], devices: Sequence[str]) -> dict[str, str]:
    """The pins that apply in a nested graph of the node ``outer_key``. A pin of that node applies to the whole graph,
    except to nodes with a pin of their own."""
    whole = {
        f"{re.escape(outer_key)}/.*": device
        for pin, device in pins.items()
        if pin == outer_key and device != CONTROL_FLOW
    }
    further = {pin: device for pin, device in pins.items() if pin != outer_key and device in devices}
    _, unmatched = find_pinned(body, whole | further, (*devices, CONTROL_FLOW))  # a body may have no nodes at all
    return {pin: device for pin, device in (whole | further).items() if pin not in unmatched}


def placed_numbers(
    model: Model,
    pins: Mapping[str, str],
    devices: Sequence[str],
    enclosing: Mapping[int, Sequence[str]] | None = None,
) -> tuple[dict[int, int], list[str]]:
    """Node index -> device number, from pins and the model's affinities; and the pins that match nothing, as in
    `find_pinned`."""
    pinned, unmatched = find_pinned(model, pins, devices, enclosing)
    stated = {key: device for key, device in model.affinity.items() if device in devices}
    return stated_numbers(model, stated, devices) | {node: number for node, (number, _) in pinned.items()}, unmatched


def stated_numbers(model: Model, affinity: Mapping[str, str], devices: Sequence[str]) -> dict[int, int]:
    """Node index -> device number, for affinities by key. Ignores keys that the model does not have."""
    number_of = {}
    for key, device in affinity.items():
        node = model.find_key(key)
        if node is not None:
            number_of[node] = device_number(device, devices, f"affinity of node {key!r}")
    return number_of


def device_number(device: str, devices: Sequence[str], whose: str) -> int:
    """The number of a device in the list. Raises `PropertyError` if the list does not contain it."""
    if device not in devices:
        raise PropertyError(
            f"{whose}: device {device!r} is not in the list {', '.join(devices)}{did_you_mean(str(device), devices)}"
        )
    return devices.index(device)


class PinMatcher:
    """Collects the nodes that pins match.

    ``enclosing``: node -> keys of the calls of functions that contained it, the outermost first. ``devices``: the
    list; pins can match nodes in nested graphs if it has the device CONTROL_FLOW.
    """

    def __init__(
        self, model: Model, enclosing: Mapping[int, Sequence[str]] | None, devices: Sequence[str] = ()
    ) -> None:
        self._model = model
        self._control_flow = devices.index(CONTROL_FLOW) if CONTROL_FLOW in devices else None
        self.inside: dict[int, tuple[int, str]] = {}
        """The nodes with nested graphs that pins match inside: the number of CONTROL_FLOW, and the pin."""
        self._inside: dict[str, list[int]] = {}  # key of a call -> the nodes it became
        self._depth: dict[str, int] = {}
        for node, calls in (enclosing or {}).items():
            for depth, call in enumerate(calls):
                self._inside.setdefault(call, []).append(node)
                self._depth[call] = depth
        self._by_key: dict[int, tuple[int, str]] = {}
        self._by_call: list[tuple[int, str, int]] = []
        self._by_pattern: dict[int, tuple[int, str]] = {}

    def match(self, pin: str, number: int) -> bool:
        """Assign the nodes that the pin matches to a device number. Returns whether it matches any. Raises
        `re.error`."""
        return self._match_outside(pin, number) or self._match_inside(pin)

    def _match_inside(self, pin: str, among: Container[int] | None = None) -> bool:
        """Assign the nodes in whose nested graphs the pin matches a node to CONTROL_FLOW. ``among``: only these."""
        if self._control_flow is None:
            return False
        outer = [node for node in _outer_nodes(self._inner, pin) if among is None or node in among]
        self.inside.update(dict.fromkeys(outer, (self._control_flow, pin)))
        return bool(outer)

    @functools.cached_property
    def _inner(self) -> list[tuple[int, BodyNode]]:
        return _inner_nodes(self._model)

    def _match_outside(self, pin: str, number: int) -> bool:
        model = self._model
        node = model.find_key(pin)
        if node is not None:
            self._by_key[node] = number, pin
        if pin in self._inside:
            self._by_call.append((self._depth[pin], pin, number))
        if node is not None or pin in self._inside or pin in model.constant_keys:
            return True  # constants are cloned into each subgraph that reads them
        if pin.startswith(OPERATOR_PREFIX):
            matches = _of_operators(model, pin.removeprefix(OPERATOR_PREFIX))
            self._by_pattern.update(dict.fromkeys(matches, (number, pin)))
            return bool(matches)
        if pin.startswith(WEIGHT_PREFIX):
            matches, captured = _of_weights(model, pin.removeprefix(WEIGHT_PREFIX))
            if captured and self._control_flow is not None:
                self._match_inside(pin, captured)
                matches = [node for node in matches if node not in self.inside]
            self._by_pattern.update(dict.fromkeys(matches, (number, pin)))
            return bool(matches or captured)
        calls, constants = list(self._inside), sorted(model.constant_keys)
        first_call, first_constant = model.num_nodes, model.num_nodes + len(calls)
        matches = matching(pin, [*model.keys, *calls, *constants])
        for place in matches:
            if place < first_call:
                self._by_pattern[place] = number, pin
            elif place < first_constant:
                self._by_pattern.update(dict.fromkeys(self._inside[calls[place - first_call]], (number, pin)))
        return bool(matches)

    def pinned(self) -> dict[int, tuple[int, str]]:
        """Node index -> device number, and the pin."""
        by_call: dict[int, tuple[int, str]] = {}
        for _, call, number in sorted(self._by_call):  # inner calls override outer ones
            by_call.update(dict.fromkeys(self._inside[call], (number, call)))
        return self._by_pattern | by_call | self._by_key | self.inside


def _of_operators(model: Model, pattern: str) -> list[int]:
    """The nodes of the operator type ``pattern``, or of the types that match it as an expression."""
    if pattern in model.op_types:
        numbers = [model.op_types.index(pattern)]
    else:
        numbers = matching(pattern, model.op_types)
    return np.flatnonzero(np.isin(model.op_type_of, numbers)).tolist()


def _of_weights(model: Model, pattern: str) -> tuple[list[int], set[int]]:
    """The nodes that read the constant ``pattern``, or constants whose names match it as an expression; where such a
    node depends on constants only, also the readers of its results. Also returns those of them that can be cut and
    whose nested graphs alone read such a constant."""
    constants = np.flatnonzero(model.is_constant).tolist()
    names = list(map(model.value_name, constants))
    chosen = np.array(constants, np.int64)[[names.index(pattern)] if pattern in names else matching(pattern, names)]
    value, node = reads_of(model)
    pending = np.unique(node[np.isin(value, chosen)]).tolist()
    captured = {
        reader
        for reader in pending
        if model.op_types[model.op_type_of[reader]] in BODY_ATTRIBUTES
        and not np.isin(model.node_inputs[reader], chosen).any()
    }
    found = set(pending)
    made_from_constants: set[int] = set()
    heapq.heapify(pending)  # nodes are in topological order
    while pending:
        reader = heapq.heappop(pending)
        read = [*model.node_inputs[reader].tolist(), *model.node_captures[reader].tolist()]
        if all(at < 0 or model.is_constant[at] or int(model.producer[at]) in made_from_constants for at in read):
            made_from_constants.add(reader)
            for further in model.graph.successors(reader).tolist():
                captured.discard(further)  # it also reads a result of the constant
                if further not in found:
                    found.add(further)
                    heapq.heappush(pending, further)
    return sorted(found), captured


def _hint(model: Model, pin: str) -> str:
    """What to write instead of a text that matches nothing."""
    several = _as_expression(model, pin)
    if several:
        return f": to select several, write {several!r}"
    inner = _inner_nodes(model)
    inside = _inside_a_body(model, inner, pin)
    if inside:
        return inside
    if pin.startswith(WEIGHT_PREFIX):
        names = [model.value_name(value) for value in np.flatnonzero(model.is_constant).tolist()]
        names += [name for _, each in inner for name in each.constants]
        expected = ": expected the name of a constant that a node reads, or a regular expression for such names"
        return _similar(pin, WEIGHT_PREFIX, names, "names") or expected
    if pin.startswith(OPERATOR_PREFIX):
        return _similar(pin, OPERATOR_PREFIX, [*model.op_types, *(each.op for _, each in inner)], "types")
    for op in model.op_types:
        if op.casefold() == pin.casefold():
            return f" (did you mean {OPERATOR_PREFIX}{op}, for all nodes of that operator?)"
    keys = [*model.keys[:_MOST_KEYS_TO_GUESS_FROM], *(each.key for _, each in inner)]
    example = f" such as {keys[0]!r}" if keys else ""
    return _similar(pin, "", keys, "keys") or (
        f": expected a node key{example}, a regular expression for whole keys, op: and an operator, or weight: and a "
        "constant"
    )


def _as_expression(model: Model, pin: str) -> str:
    """The expression for a list with commas whose entries all match; empty if it is something else."""
    prefix = next(prefix for prefix in (OPERATOR_PREFIX, WEIGHT_PREFIX, "") if pin.startswith(prefix))
    names = [part.strip().removeprefix(prefix) for part in pin.split(",")]
    if len(names) == 1 or not all(matches_any(model, prefix + name) for name in names):
        return ""
    return prefix + "|".join(names)


def _similar(pin: str, prefix: str, names: Sequence[str], what: str) -> str:
    """The nearest of ``names``, or else one that contains the text of the pin after its prefix."""
    text, names = pin.removeprefix(prefix), names[:_MOST_KEYS_TO_GUESS_FROM]
    containing = next((name for name in names if text and text in name), None)
    nearest = did_you_mean(text, names, prefix)
    if nearest or containing is None:
        return nearest
    return f": expressions match whole {what}; '{prefix}.*{re.escape(text)}.*' matches {containing!r}"


def _with_bodies(model: Model) -> list[int]:
    """The nodes whose nested graphs can be cut."""
    numbers = [number for number, op_type in enumerate(model.op_types) if op_type in BODY_ATTRIBUTES]
    return np.flatnonzero(np.isin(model.op_type_of, numbers)).tolist() if numbers else []


def _inner_nodes(model: Model) -> list[tuple[int, BodyNode]]:
    """The nodes in nested graphs, each after its outer node."""
    return [(node, inner) for node in _with_bodies(model) for inner in body_nodes(model, node)]


def enclosing_node(model: Model, key: str) -> int | None:
    """The If, Loop or Scan in whose nested graphs a node has this key, or None."""
    return next((node for node, each in _inner_nodes(model) if each.key == key), None)


def _outer_nodes(inner: Sequence[tuple[int, BodyNode]], pin: str) -> list[int]:
    """The outer nodes with inner nodes that a pin matches."""
    if pin.startswith(OPERATOR_PREFIX):
        texts = [(node, each.op) for node, each in inner]
    elif pin.startswith(WEIGHT_PREFIX):
        texts = [(node, name) for node, each in inner for name in each.constants]
    else:
        texts = [(node, each.key) for node, each in inner]
    if not texts:
        return []
    pattern = pin.removeprefix(OPERATOR_PREFIX).removeprefix(WEIGHT_PREFIX)
    places = [place for place, (_, text) in enumerate(texts) if text == pattern]
    places = places or matching(pattern, [text for _, text in texts])
    return sorted({texts[place][0] for place in places})


def _inside_a_body(model: Model, inner: Sequence[tuple[int, BodyNode]], pin: str) -> str:
    """The hint for a text that selects nodes of nested graphs, or a node there without the key of its outer node, or
    after that key and the name of the nested graph."""
    with contextlib.suppress(re.error):
        outer = _outer_nodes(inner, pin)
        if outer:
            where = f"{model.key_of(outer[0])!r} ({model.op_types[model.op_type_of[outer[0]]]})"
            return f": it matches only nodes inside the graphs of {where}, which counts as one node here"
    last = pin.rpartition("/")[2]
    for node, (key, _, _) in inner:
        outer_key = model.key_of(node)
        if f"/{key}".endswith(f"/{pin.removeprefix('/')}") or (
            pin.startswith(f"{outer_key}/") and key.endswith(f"/{last}")
        ):
            op = model.op_types[model.op_type_of[node]]
            return f": it is inside a graph of {outer_key!r} ({op}): write {key!r}"
    return ""
