"""Stage 2 and model-local functions: which calls stay whole, and which are replaced by the nodes of the function.

A call is an ordinary node if its device supports the whole call. It is inlined if

- no device supports the whole call, or the device that it is pinned to does not;
- a device of higher priority than the first that supports the whole call supports a node inside it, because a node goes
  to the first device that supports it;
- a pin or an affinity names a node inside it.

The devices are queried, calls are replaced one level deep, and this repeats until no call is left to replace. Then
inlining that did not improve placement is undone. The cost is one query per level of nested calls. A model without
functions needs a single query.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError, raise_out_of_memory
from ..model.function_library import FunctionKey, FunctionLibrary
from ..model.functions import calls_in, inline_calls, may_hold_graphs
from ..plugin.contract import Support
from .affinity import SupportedNodes, first_supporting, supported_nodes
from .pins import placed_numbers

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["ResolvedModel", "resolve_calls"]

Ask = Callable[["Model"], Sequence[Support]]
"""Each device's answer about a model."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ResolvedModel:
    """A model in which every call stays whole or is replaced, and each device's answer about it.

    ``original``: the model before; ``model``: the same object if nothing was replaced. ``source``:
    int32[model.num_nodes], the node of the original that each node is or comes from. ``enclosing``: node -> keys of
    the calls that contained it, the outermost first, for nodes that come from calls.
    """

    original: Model
    model: Model
    devices: tuple[str, ...]
    supports: tuple[Support, ...]
    source: NDArray[np.int32]
    enclosing: Mapping[int, tuple[str, ...]]

    def supported_nodes(self) -> SupportedNodes:
        """The answer in nodes of the original. For a call that is spread over devices, the answer lists the keys of its
        nodes. A call with a node that no device supports is not supported."""
        if self.model is self.original:
            return supported_nodes(self.model, self.devices, self.supports)
        number = first_supporting(self.model.num_nodes, self.supports)
        chosen: dict[str, str] = {}
        reasons: dict[str, dict[str, str]] = {}
        for node, inner in self._groups():
            key = self.original.key_of(node)
            used = set(number[inner].tolist())
            if -1 in used or len(used) < 2:
                if -1 not in used:
                    chosen[key] = self.devices[max(used, default=0)]
                refused = {device: self._refusal(at, inner) for at, device in enumerate(self.devices)}
                told = {device: why for device, why in refused.items() if why is not None}
                if told:
                    reasons[key] = told
                continue
            for part in inner.tolist():
                part_key = self.model.key_of(part)
                chosen[part_key] = self.devices[int(number[part])]
                for device, support in zip(self.devices, self.supports, strict=True):
                    if part in support.reasons:
                        reasons.setdefault(part_key, {})[device] = support.reasons[part]
        return SupportedNodes(chosen, reasons)

    def support(self) -> Support:
        """The combined answer of all devices about the nodes of the original."""
        taken = np.logical_or.reduce([support.mask for support in self.supports])
        mask = np.ones(self.original.num_nodes, np.bool_)
        mask[self.source[~taken]] = False
        reasons = {}
        for node, inner in self._groups(np.flatnonzero(~mask)):
            refused = inner[~taken[inner]]
            told = (self._refusal(at, refused) for at in range(len(self.devices)))
            reasons[node] = "; ".join(f"{device}: {why}" for device, why in zip(self.devices, told, strict=True) if why)
        return Support(mask, reasons)

    def _groups(self, nodes: NDArray[np.intp] | None = None) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Nodes of the original, each with the nodes that replace it."""
        order = np.argsort(self.source, kind="stable")
        chosen = np.arange(self.original.num_nodes) if nodes is None else nodes
        start = np.searchsorted(self.source[order], chosen)
        end = np.searchsorted(self.source[order], chosen, side="right")
        for node, begin, until in zip(chosen.tolist(), start.tolist(), end.tolist(), strict=True):
            yield node, order[begin:until]

    def _refusal(self, device: int, nodes: NDArray[np.intp]) -> str | None:
        """Why a device does not support all of these nodes, which replace one; None if it does."""
        support = self.supports[device]
        for node in nodes[~support.mask[nodes]].tolist():
            why = support.reasons.get(node, "not supported, without a reason")
            key = self.model.key_of(node)
            if key == self.original.key_of(int(self.source[node])):
                return why
            return f"its node {key!r} ({self.model.op_types[self.model.op_type_of[node]]}): {why}"
        return None


def resolve_calls(
    model: Model, devices: Sequence[str], ask: Ask, pins: Mapping[str, str] | None = None
) -> ResolvedModel:
    """Query the devices about a model, and inline calls as described above.

    Raises `ModelError` if a call must be inlined and is recursive or exceeds the limits of inlining.
    """
    supports = ask(model)
    if not model.functions:
        return _unchanged(model, devices, supports)
    resolving = _Resolving(model, devices, ask, pins or {})
    resolved, in_vain = resolving.resolve(supports, frozenset())
    if in_vain:
        resolved, _ = resolving.resolve(supports, in_vain)
    return resolved


def _unchanged(model: Model, devices: Sequence[str], supports: Sequence[Support]) -> ResolvedModel:
    source = np.arange(model.num_nodes, dtype=np.int32)
    return ResolvedModel(model, model, tuple(devices), tuple(supports), source, {})


@dataclasses.dataclass(slots=True)
class _Candidate:
    """A node that could be replaced. ``device``: the number of the device that supports it whole, -1 if it must be
    replaced; ``pin``: the device that it is pinned to, -1 for none."""

    key: str
    device: int
    pin: int


class _Resolving:
    """Settles the calls of one model."""

    def __init__(self, model: Model, devices: Sequence[str], ask: Ask, pins: Mapping[str, str]) -> None:
        self._model = model
        self._devices = devices
        self._ask = ask
        self._pins = pins
        self._library = FunctionLibrary(model.file)

    def resolve(self, supports: Sequence[Support], keep: frozenset[str]) -> tuple[ResolvedModel, frozenset[str]]:
        """The resolved model, and the keys of the calls whose inlining did not improve placement. ``keep``: keys of
        calls that stay whole if possible."""
        state = _unchanged(self._model, self._devices, supports)
        replaced: dict[str, _Candidate] = {}
        blocked: dict[str, str] = {}
        while state.model.functions:
            pinned, unmatched = placed_numbers(state.model, self._pins, self._devices, state.enclosing)
            wanted = self._candidates(state, pinned, unmatched, keep, blocked)
            if not wanted:
                break
            inlined = inline_calls(state.model, wanted, self._library)
            for node, why in inlined.kept_whole.items():
                blocked[wanted.pop(node).key] = why
            replaced.update((candidate.key, candidate) for candidate in wanted.values())
            if inlined.model is state.model:
                continue
            enclosing = {}
            for node in np.flatnonzero(np.isin(inlined.source, [*wanted, *state.enclosing])).tolist():
                before = int(inlined.source[node])
                inside = (wanted[before].key,) if before in wanted else ()
                enclosing[node] = (*state.enclosing.get(before, ()), *inside)
            state = ResolvedModel(
                self._model,
                inlined.model,
                state.devices,
                tuple(self._ask(inlined.model)),
                state.source[inlined.source],
                enclosing,
            )
        in_vain = self._replaced_in_vain(state, replaced)
        return _with_blocked(state, blocked), in_vain

    def _candidates(
        self,
        state: ResolvedModel,
        pinned: Mapping[int, int],
        unmatched: Sequence[str],
        keep: frozenset[str],
        blocked: Mapping[str, str],
    ) -> dict[int, _Candidate]:
        """The nodes to replace next."""
        model = state.model
        first = first_supporting(model.num_nodes, state.supports)
        calls = _calls(model, self._library)
        named = {node for pin in (*model.affinity, *unmatched) for node in _calls_around(model, pin, calls)}
        everywhere = any(not any(_calls_around(model, pin, calls)) for pin in unmatched)
        needed: dict[int, _Candidate] = {}
        tried: dict[int, _Candidate] = {}
        # Calls are always considered, other nodes only if a device does not support them.
        refused = first != 0
        for node, device in pinned.items():
            refused[node] |= not state.supports[device].mask[node]
        for node in dict.fromkeys([*sorted(calls), *np.flatnonzero(refused & may_hold_graphs(model)).tolist()]):
            key = model.key_of(node)
            if key in blocked:
                continue
            pin = pinned.get(node, -1)
            device = int(first[node]) if pin < 0 else pin if state.supports[pin].mask[node] else -1
            is_forced = node in named or (everywhere and node in calls and key not in keep)
            is_tried = pin < 0 and device > 0 and key not in keep
            if device >= 0 and not is_forced and not is_tried:
                continue
            if node not in calls and not calls_in(model, node, self._library):
                continue
            (tried if device >= 0 and not is_forced else needed)[node] = _Candidate(key, device, pin)
        if tried and not self._fit(model, [*needed, *tried]):
            return needed
        return {**needed, **tried}

    def _fit(self, model: Model, nodes: Sequence[int]) -> bool:
        totals: Counter[FunctionKey] = Counter()
        for node in nodes:
            totals.update(calls_in(model, node, self._library))
        try:
            self._library.check(totals)
        except ModelError as error:
            raise_out_of_memory(error)
            return False
        return True

    def _replaced_in_vain(self, state: ResolvedModel, replaced: Mapping[str, _Candidate]) -> frozenset[str]:
        """The keys of calls without a node on a better device than the one that supports the whole call."""
        optional = {key: candidate for key, candidate in replaced.items() if candidate.device >= 0}
        if not optional:
            return frozenset()
        device_of = first_supporting(state.model.num_nodes, state.supports)
        pinned, _ = placed_numbers(state.model, self._pins, self._devices, state.enclosing)
        for node, device in pinned.items():
            device_of[node] = device
        of_use: set[str] = set()
        filled: set[str] = set()
        for node, keys in state.enclosing.items():
            filled.update(keys)
            for key in keys:
                candidate = optional.get(key)
                if candidate is not None and (
                    pinned.get(node, -1) != candidate.pin or 0 <= device_of[node] < candidate.device
                ):
                    of_use.add(key)
        return frozenset(key for key in optional if key in filled and key not in of_use)


def _calls(model: Model, library: FunctionLibrary) -> frozenset[int]:
    """The nodes that call a function."""
    found: list[int] = []
    for op, name in enumerate(model.op_types):
        domain, _, op_type = name.rpartition("::")
        if (domain, op_type) in library.names:
            nodes = np.flatnonzero(model.op_type_of == op).tolist()
            found += (node for node in nodes if library.key_of_call(model.nodes[node].proto()) is not None)
    return frozenset(found)


def _calls_around(model: Model, key: str, calls: frozenset[int]) -> Iterator[int]:
    """The call that contains the node of a key, if the key is not a node of this model."""
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
    """Add the reason why a call was not replaced to each device's reason for not supporting it."""
    nodes = {node: why for key, why in blocked.items() if (node := state.model.find_key(key)) is not None}
    if not nodes:
        return state
    supports = []
    for support in state.supports:
        told = {node: f"{support.reasons[node]}; {why}" for node, why in nodes.items() if node in support.reasons}
        supports.append(Support(support.mask, {**support.reasons, **told}))
    return dataclasses.replace(state, supports=tuple(supports))
