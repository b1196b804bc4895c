"""Stage 2 and model-local functions: which calls stay whole, and which are replaced by the nodes of the function.

Problem. Nodes go to the first device of the list that supports them. A call is one node if its device supports it
whole; inlining it gives its nodes to several devices. A call is *necessary* to inline if

- no device supports it whole, or the device that it is pinned to does not;
- a pin or an affinity names a node inside it, or a pin that matches no node yet may match one inside it.

It is *optional* to inline if a device supports it whole, but not the first of the list, and it is not pinned: a device
of higher priority may support nodes inside it. A node that is not a call, such as an If, is treated like a call if it
has calls in its nested graphs.

Algorithm (`resolve_calls`):
1. Query the devices. Inline the necessary and the optional calls one level deep; leave out the optional ones if
   inlining all would exceed the limits of inlining (`FunctionLibrary.check`). Repeat until there is nothing left to
   inline.
2. A call that a device supports whole was inlined in vain if none of its nodes went to a device of higher priority, and
   no pin applied to one. If there are such calls, start again and keep them whole, unless a pin names a node inside.

Invariants: `ResolvedModel.source` maps each node to the node of the original model that it comes from, and
`ResolvedModel.enclosing` holds the keys of the inlined calls around it. Calls are identified by their keys, because
node numbers change with each level.

Cost: one query of all devices for each level of nested calls, twice if 2 applies. A model without functions needs one.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, raise_out_of_memory
from ..model.copies import with_copies
from ..model.function_library import FunctionKey, FunctionLibrary
from ..model.functions import calls_in, inline_calls, may_hold_graphs
from ..plugin.contract import Support
from .affinity import SupportedNodes, first_supporting
from .pins import placed_numbers
from .with_readers import WithReaders

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["ResolvedModel", "resolve_calls"]

Query = Callable[["Model"], Sequence[Support]]
"""Asks all devices about a model: one answer per device, in the order of the list."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ResolvedModel:
    """A model in which every call stays whole or is inlined, and each device's answer about it.

    ``original``: the model before; ``model``: the same object if nothing was inlined. ``supports``: one answer per
    device about ``model``. ``source``: int32 [model.num_nodes], the node of ``original`` that each node is or comes
    from. ``enclosing``: for nodes that come from calls, node -> keys of these calls, the outermost first.
    """

    original: Model
    model: Model
    devices: tuple[str, ...]
    supports: tuple[Support, ...]
    source: NDArray[np.int32]
    enclosing: Mapping[int, tuple[str, ...]]

    def supported_nodes(self) -> SupportedNodes:
        """The answer in nodes of the original, with the devices of a plan by priority. For a call that is spread over
        devices, the answer lists the keys of its nodes. A call with a node that no device supports is not supported."""
        device_of = WithReaders(self.model, self.supports).place(first_supporting(self.model.num_nodes, self.supports))
        device_by_key: dict[str, str] = {}
        reasons: dict[str, dict[str, str]] = {}
        if self.model is self.original:
            for node in np.flatnonzero(device_of >= 0).tolist():
                device_by_key[self.model.key_of(node)] = self.devices[int(device_of[node])]
            for device, support in zip(self.devices, self.supports, strict=True):
                for node, why in support.reasons.items():
                    reasons.setdefault(self.model.key_of(node), {})[device] = why
            return SupportedNodes(device_by_key, reasons)
        for node, parts in self._parts_of():
            used_devices = set(device_of[parts].tolist())
            if -1 not in used_devices and len(used_devices) > 1:
                for part in parts.tolist():
                    key = self.model.key_of(part)
                    device_by_key[key] = self.devices[int(device_of[part])]
                    for device, support in zip(self.devices, self.supports, strict=True):
                        if part in support.reasons:
                            reasons.setdefault(key, {})[device] = support.reasons[part]
                continue
            key = self.original.key_of(node)
            if -1 not in used_devices:
                device_by_key[key] = self.devices[max(used_devices, default=0)]
            refusals = self._refusals(parts)
            if refusals:
                reasons[key] = refusals
        return SupportedNodes(device_by_key, reasons)

    def with_copies(self, reads: Iterable[tuple[int, int]], ask: Query) -> ResolvedModel:
        """The same with copies of nodes for single readers (`hetero.model.copies`), about which ``ask`` queries the
        devices."""
        model, copied = with_copies(self.model, reads)
        enclosing = {node: self.enclosing[one] for node, one in enumerate(copied.tolist()) if one in self.enclosing}
        source = self.source[copied]
        return ResolvedModel(self.original, model, self.devices, tuple(ask(model)), source, enclosing)

    def support(self) -> Support:
        """The combined answer of all devices about the nodes of the original."""
        is_supported = np.logical_or.reduce([support.mask for support in self.supports])
        mask = np.ones(self.original.num_nodes, np.bool_)
        mask[self.source[~is_supported]] = False
        reasons = {}
        for node, parts in self._parts_of(np.flatnonzero(~mask)):
            refusals = self._refusals(parts[~is_supported[parts]])
            reasons[node] = "; ".join(f"{device}: {reason}" for device, reason in refusals.items() if reason)
        return Support(mask, reasons)

    def _parts_of(self, nodes: NDArray[np.intp] | None = None) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Nodes of the original (None: all), each with its parts: the nodes of the model that come from it."""
        by_source = np.argsort(self.source, kind="stable")
        originals = np.arange(self.original.num_nodes) if nodes is None else nodes
        begins = np.searchsorted(self.source[by_source], originals)
        ends = np.searchsorted(self.source[by_source], originals, side="right")
        for node, begin, end in zip(originals.tolist(), begins.tolist(), ends.tolist(), strict=True):
            yield node, by_source[begin:end]

    def _refusals(self, parts: NDArray[np.intp]) -> dict[str, str]:
        """Device -> the reason why it rejects a part of one original node, for the devices that reject any."""
        reasons = {}
        for device, support in zip(self.devices, self.supports, strict=True):
            refused = parts[~support.mask[parts]]
            if len(refused):
                node = int(refused[0])
                reason = support.reasons.get(node, "not supported, without a reason")
                key = self.model.key_of(node)
                if key != self.original.key_of(int(self.source[node])):
                    reason = f"its node {key!r} ({self.model.op_types[self.model.op_type_of[node]]}): {reason}"
                reasons[device] = reason
        return reasons


def resolve_calls(
    model: Model, devices: Sequence[str], ask: Query, pins: Mapping[str, str] | None = None
) -> ResolvedModel:
    """Query the devices about a model, and inline calls as the module describes. ``pins``: node key -> device.

    Raises `ModelError` if a call must be inlined and is recursive or exceeds the limits of inlining.
    """
    supports = ask(model)
    if not model.functions:
        return _unchanged(model, devices, supports)
    resolver = _Resolver(model, devices, ask, pins or {})
    resolved, in_vain = resolver.resolve(supports, frozenset())
    if in_vain:
        resolved, _ = resolver.resolve(supports, in_vain)
    return resolved


def _unchanged(model: Model, devices: Sequence[str], supports: Sequence[Support]) -> ResolvedModel:
    source = np.arange(model.num_nodes, dtype=np.int32)
    return ResolvedModel(model, model, tuple(devices), tuple(supports), source, {})


@dataclasses.dataclass(slots=True)
class _Candidate:
    """A node to inline: a call, or a node with calls in its nested graphs.

    ``device``: the number of the device that would run the whole node, -1 if none can. ``pin``: the number of the
    device that it is pinned to, -1 if it is not pinned.
    """

    key: str
    device: int
    pin: int


class _Resolver:
    """Resolves the calls of one model."""

    def __init__(self, model: Model, devices: Sequence[str], ask: Query, pins: Mapping[str, str]) -> None:
        self._model = model
        self._devices = devices
        self._ask = ask
        self._pins = pins
        self._library = FunctionLibrary(model.file)

    def resolve(self, supports: Sequence[Support], keep: frozenset[str]) -> tuple[ResolvedModel, frozenset[str]]:
        """The resolved model, and the keys of the calls that were inlined in vain. ``supports``: the answers about the
        model with its calls whole. ``keep``: keys of optional calls that stay whole."""
        state = _unchanged(self._model, self._devices, supports)
        inlined_calls: dict[str, _Candidate] = {}
        blocked: dict[str, str] = {}  # key of a call that cannot be inlined -> reason
        while state.model.functions:
            pinned, unmatched = placed_numbers(state.model, self._pins, self._devices, state.enclosing)
            candidates = self._candidates(state, pinned, unmatched, keep, blocked)
            if not candidates:
                break
            inlined = inline_calls(state.model, candidates, self._library)
            for node, reason in inlined.kept_whole.items():
                blocked[candidates.pop(node).key] = reason
            inlined_calls.update((candidate.key, candidate) for candidate in candidates.values())
            if inlined.model is state.model:
                continue
            enclosing = {}
            for node in np.flatnonzero(np.isin(inlined.source, [*candidates, *state.enclosing])).tolist():
                call = int(inlined.source[node])
                inside = (candidates[call].key,) if call in candidates else ()
                enclosing[node] = (*state.enclosing.get(call, ()), *inside)
            state = ResolvedModel(
                self._model,
                inlined.model,
                state.devices,
                tuple(self._ask(inlined.model)),
                state.source[inlined.source],
                enclosing,
            )
        return _with_blocked(state, blocked), self._inlined_in_vain(state, inlined_calls)

    def _candidates(
        self,
        state: ResolvedModel,
        pinned: Mapping[int, int],
        unmatched: Sequence[str],
        keep: frozenset[str],
        blocked: Mapping[str, str],
    ) -> dict[int, _Candidate]:
        """The calls to inline next, by node.

        ``pinned``: node -> device number. ``unmatched``: pins that match no node of this model; they may name a node
        inside a call.
        """
        model = state.model
        first = first_supporting(model.num_nodes, state.supports)
        calls = _calls(model, self._library)
        named = {node for pin in (*model.affinity, *unmatched) for node in _calls_around(model, pin, calls)}
        # A pin, such as a regular expression, that names no call around its node may match inside any call.
        may_match_anywhere = any(not any(_calls_around(model, pin, calls)) for pin in unmatched)
        necessary: dict[int, _Candidate] = {}
        optional: dict[int, _Candidate] = {}
        # Calls are always considered, other nodes only if the device that they would go to first rejects them.
        is_refused = first != 0
        for node, device in pinned.items():
            is_refused[node] |= not state.supports[device].mask[node]
        for node in dict.fromkeys([*sorted(calls), *np.flatnonzero(is_refused & may_hold_graphs(model)).tolist()]):
            key = model.key_of(node)
            if key in blocked:
                continue
            pin = pinned.get(node, -1)
            device = int(first[node]) if pin < 0 else pin if state.supports[pin].mask[node] else -1
            is_named = node in named or (may_match_anywhere and node in calls and key not in keep)
            is_necessary = device < 0 or is_named
            is_optional = pin < 0 and device > 0 and key not in keep
            if not is_necessary and not is_optional:
                continue
            if node not in calls and not calls_in(model, node, self._library):
                continue
            (necessary if is_necessary else optional)[node] = _Candidate(key, device, pin)
        if optional and not self._within_limits(model, [*necessary, *optional]):
            return necessary
        return {**necessary, **optional}

    def _within_limits(self, model: Model, nodes: Sequence[int]) -> bool:
        """Whether inlining all of these calls keeps the limits of inlining."""
        totals: Counter[FunctionKey] = Counter()
        for node in nodes:
            totals.update(calls_in(model, node, self._library))
        try:
            self._library.check(totals)
        except ModelError as error:
            raise_out_of_memory(error)
            return False
        return True

    def _inlined_in_vain(self, state: ResolvedModel, inlined_calls: Mapping[str, _Candidate]) -> frozenset[str]:
        """The keys of calls without a node whose pin differs from the call's, or that went to a device of higher
        priority than the one that supports the whole call."""
        supported_whole = {key: candidate for key, candidate in inlined_calls.items() if candidate.device >= 0}
        if not supported_whole:
            return frozenset()
        device_of = first_supporting(state.model.num_nodes, state.supports)
        pinned, _ = placed_numbers(state.model, self._pins, self._devices, state.enclosing)
        for node, device in pinned.items():
            device_of[node] = device
        useful: set[str] = set()
        with_nodes: set[str] = set()
        for node, keys in state.enclosing.items():
            with_nodes.update(keys)
            for key in keys:
                call = supported_whole.get(key)
                if call is not None and (pinned.get(node, -1) != call.pin or 0 <= device_of[node] < call.device):
                    useful.add(key)
        return frozenset(key for key in supported_whole if key in with_nodes and key not in useful)


def _calls(model: Model, library: FunctionLibrary) -> frozenset[int]:
    """The nodes that call a function."""
    calls: list[int] = []
    for op, name in enumerate(model.op_types):
        domain, _, op_type = name.rpartition("::")
        if (domain, op_type) in library.names:
            nodes = np.flatnonzero(model.op_type_of == op).tolist()
            calls += (node for node in nodes if library.key_of_call(model.nodes[node].proto()) is not None)
    return frozenset(calls)


def _calls_around(model: Model, key: str, calls: frozenset[int]) -> Iterator[int]:
    """The call around the node that a key names, if the key is not a node of this model but one of its prefixes that
    end before a "/" is a call: inlined nodes have keys such as "call/node". At most one."""
    if model.find_key(key) is not None:
        return
    end = key.rfind("/")
    while end > 0:
        node = model.find_key(key[:end])
        if node is not None and node in calls:
            yield node
            return
        end = key.rfind("/", 0, end)


def _with_blocked(state: ResolvedModel, blocked: Mapping[str, str]) -> ResolvedModel:
    """Add the reason why a call was not inlined to each device's reason for not supporting it."""
    nodes = {node: reason for key, reason in blocked.items() if (node := state.model.find_key(key)) is not None}
    if not nodes:
        return state
    supports = []
    for support in state.supports:
        extended = {node: f"{support.reasons[node]}; {nodes[node]}" for node in nodes if node in support.reasons}
        supports.append(dataclasses.replace(support, reasons={**support.reasons, **extended}))
    return dataclasses.replace(state, supports=tuple(supports))
