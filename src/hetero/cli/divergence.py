"""`hetero compare --nodes`: compares two devices at every node, and finds the first node that diverges.

A small model runs once, with all its values as outputs. Extra outputs keep a device from fusing nodes and need memory
for all values, so a large model is bisected instead: each step compares only the values that cross a cut. It runs the
nodes between the last cut that passed and this one, on the values that each device computed there. Values inside units,
which a device runs as one operation (`Support.units`), are not compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.collection import collection_paused
from ..base.difference import Difference, difference
from ..core import Core
from ..model.model import Model

__all__ = ["Divergence", "Prober", "Start", "compare_nodes", "find_divergence", "has_few_values"]

_MOST_VALUES = 2000  # compiling both devices with as many outputs takes a few seconds
_MOST_BYTES = 1 << 29  # of all values of one device


@dataclasses.dataclass(frozen=True, slots=True)
class Divergence:
    """The first node that diverges: its outputs differ, and what it reads does not.

    ``differences``: of its outputs. ``bisected``: whether it was found by bisection; a node before it may then diverge
    without an effect on the values after it.
    """

    node: str
    op_type: str
    differences: tuple[Difference, ...]
    bisected: bool

    def as_json(self) -> dict[str, Any]:
        values = [entry.as_json() for entry in self.differences]
        return {"node": self.node, "op_type": self.op_type, "values": values, "bisected": self.bisected}


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """Where a run begins: behind the node ``after``, with the values that the judged device and the reference computed
    up to there and that later nodes read. -1: at the inputs of the model."""

    after: int = -1
    judged: Mapping[int, Any] = dataclasses.field(default_factory=dict)
    reference: Mapping[int, Any] = dataclasses.field(default_factory=dict)


_BEGINNING = Start()


@dataclasses.dataclass(frozen=True, slots=True)
class Prober:
    """Runs parts of one model on two devices.

    ``model``: the planned model, whose nodes have their devices. ``judged``, ``reference``: device strings.
    ``left_out``: bool [num_values], the values that are not compared.
    """

    core: Core
    model: Model
    judged: str
    reference: str
    config: Mapping[str, Any]
    arrays: Mapping[str, Any]
    tolerances: tuple[float, float]
    left_out: NDArray[np.bool_]

    def compare(self, values: Sequence[int], start: Start = _BEGINNING, *, keep: bool = False) -> dict[int, Difference]:
        """The differences of these values. ``keep``: whether the model's own outputs are computed too."""
        return self.differences(*self.results(values, start, keep=keep))

    def results(
        self, values: Sequence[int], start: Start, *, keep: bool = False
    ) -> tuple[dict[int, Any], dict[int, Any]]:
        """These values, which nodes after ``start`` compute, on the judged device and on the reference."""
        names = [self.model.value_name(value) for value in values]
        part, read = self._after(start, values)
        part = part.with_outputs(names, keep=keep)
        given = {port.name: self.arrays[port.name] for port in part.inputs if port.name in self.arrays}
        judged, reference = (
            {**given, **{self.model.value_name(value): known[value] for value in read}}
            for known in (start.judged, start.reference)
        )
        with collection_paused():
            found = self.core.compile_model(part, self.judged, self.config)(judged)
            expected = self.core.compile_model(part.with_affinity({}), self.reference)(reference)
        return (
            {value: found[name] for value, name in zip(values, names, strict=True)},
            {value: expected[name] for value, name in zip(values, names, strict=True)},
        )

    def differences(self, found: Mapping[int, Any], expected: Mapping[int, Any]) -> dict[int, Difference]:
        """The differences of the results of two devices."""
        return {
            value: difference(self.model.value_name(value), found[value], expected[value], *self.tolerances)
            for value in found
        }

    def _after(self, start: Start, values: Sequence[int]) -> tuple[Model, list[int]]:
        """The nodes after ``start`` up to those that compute these values, and the values of ``start`` that they read.
        The whole model if ``start`` lacks one of them, such as a sequence."""
        if start.after >= 0:
            last = int(self.model.producer[list(values)].max())
            part = self.model.extract(np.arange(start.after + 1, last + 1))
            read = [self.model.value_id(port.name) for port in part.inputs if port.name not in self.arrays]
            if all(value in start.judged for value in read):
                return part, read
        return self.model, []

    def outputs_of(self, node: int) -> list[int]:
        """The tensors that a node computes and that something reads. An optional output that nothing reads may be one
        that the device does not support."""
        computed = self.model.node_outputs[node].tolist()
        return self._tensors(value for value in computed if value >= 0 and self.model.read_count[value] > 0)

    def inputs_of(self, node: int) -> list[int]:
        """The tensors that a node reads and other nodes compute."""
        read = [*self.model.node_inputs[node].tolist(), *self.model.node_captures[node].tolist()]
        return self._tensors(value for value in dict.fromkeys(read) if value >= 0 and self.model.producer[value] >= 0)

    def crossing(self, last: int) -> list[int]:
        """The tensors that nodes up to ``last`` compute and later nodes read, or that are outputs of the model."""
        model = self.model
        computed = (model.producer >= 0) & (model.producer <= last)
        needed = np.zeros(model.num_values, np.bool_)
        for ragged in (model.node_inputs, model.node_captures):
            later = ragged.values[ragged.indptr[last + 1] :]
            needed[later[later >= 0]] = True
        needed[list(model.output_ids)] = True
        return self._tensors(np.flatnonzero(computed & needed).tolist())

    def _tensors(self, values: Any) -> list[int]:
        return [value for value in values if value >= 0 and not self.left_out[value] and self.model.is_tensor(value)]


def has_few_values(model: Model) -> bool:
    """Whether all values of a model can be outputs at once. Unknown sizes count as 1."""
    values = np.flatnonzero(model.producer >= 0).tolist()
    if len(values) > _MOST_VALUES:
        return False
    size = 0
    for value in values:
        kind = model.type_of(value)
        dims = [dim if isinstance(dim, int) else 1 for dim in kind.shape or ()]
        size += int(np.prod(dims, dtype=object)) * (4 if kind.dtype is None else kind.dtype.itemsize)
    return size <= _MOST_BYTES


def compare_nodes(prober: Prober) -> tuple[list[Difference], Divergence | None]:
    """All values, with the first node that diverges. None if no value differs."""
    model = prober.model
    values = [value for node in range(model.num_nodes) for value in prober.outputs_of(node)]
    found = prober.compare(values, keep=True)
    # Nodes are in topological order, so the first that differs reads nothing that differs.
    first = next((value for value in values if not found[value].passes), None)
    if first is None:
        return list(found.values()), None
    node = int(model.producer[first])
    return list(found.values()), _divergence(prober, node, [found[value] for value in prober.outputs_of(node)], False)


def find_divergence(
    prober: Prober, outputs: Mapping[int, Difference], tell: Callable[[float], None]
) -> Divergence | None:
    """Bisect for the first node that diverges. None if no tensor of the outputs differs. ``outputs``: the differences
    of the model's outputs. ``tell`` receives the progress, 0 to 1."""
    model = prober.model
    low, high = -1, model.num_nodes - 1
    if high < 0 or all(outputs[value].passes for value in prober.crossing(high)):
        return None
    steps = high.bit_length() + 1
    start = start_of_high = _BEGINNING
    while high - low > 1:
        tell(1 - (high - low).bit_length() / steps)
        middle = (low + high) // 2
        crossing = prober.crossing(middle)
        values = [value for value in crossing if model.producer[value] > start.after]  # the others pass
        found, expected = prober.results(values, start) if values else ({}, {})
        if all(entry.passes for entry in prober.differences(found, expected).values()):
            judged, reference = {**start.judged, **found}, {**start.reference, **expected}
            start = Start(middle, {key: judged[key] for key in crossing}, {key: reference[key] for key in crossing})
            low = middle
        else:
            high, start_of_high = middle, start
    node = high
    while True:
        # A difference can disappear and come back, so what the node reads may differ too: continue there, which ends
        # because producers come before their readers. The run begins where it did when the cut after the node differed,
        # so the device fuses the same nodes.
        read, computed = prober.inputs_of(node), prober.outputs_of(node)
        values = [value for value in (*read, *computed) if model.producer[value] > start_of_high.after]
        compared = prober.compare(values, start_of_high)
        earlier = [value for value in read if value in compared and not compared[value].passes]
        if not earlier:
            return _divergence(prober, node, [compared[value] for value in computed], True)
        node = min(int(model.producer[value]) for value in earlier)


def _divergence(prober: Prober, node: int, differences: list[Difference], bisected: bool) -> Divergence:
    model = prober.model
    operator = model.op_types[model.op_type_of[node]]
    return Divergence(model.key_of(node), operator, tuple(differences), bisected)
