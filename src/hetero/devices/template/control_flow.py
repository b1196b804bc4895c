"""If, Loop, Scan and SequenceMap.

``onnx.reference`` is not used for these, because its Loop stacks scan outputs incorrectly (``np.vstack``), never runs
with an empty condition, and fails on zero iterations; its Scan supports only axis 0, one direction, and opset 9 and
later; and its nested graphs can read every value of the outer graph by name.

An operator is created once per node. It is called with the node's inputs, followed by the outer values that its nested
graphs read (`captures`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from ...model.types import dtype_of
from .program import Program, Refused, Scope

__all__ = ["RULES"]


class _Operator:
    """A node with nested graphs. `captures`: the outer values that they read, each once."""

    def __init__(self, node: onnx.NodeProto, scope: Scope, version: int) -> None:
        self.version = version
        self.num_inputs = len(node.input)
        self.num_outputs = len(node.output)
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        self.captures: tuple[str, ...] = ()
        self._scope = scope

    def program(self, attribute: str) -> Program:
        graph = self.attributes.get(attribute)
        if not isinstance(graph, onnx.GraphProto):
            raise Refused(f"its graph attribute {attribute!r} is missing")
        program = self._scope.graph_program(graph)
        self.captures = tuple(dict.fromkeys((*self.captures, *program.captures)))
        return program

    def split(self, values: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """The node's inputs, and the outer values by name."""
        return values[: self.num_inputs], dict(zip(self.captures, values[self.num_inputs :], strict=True))


class If(_Operator):
    """Runs one of two graphs without inputs."""

    def __init__(self, node: onnx.NodeProto, scope: Scope, version: int) -> None:
        super().__init__(node, scope, version)
        self._branches = (self.program("else_branch"), self.program("then_branch"))

    def __call__(self, *values: Any) -> Sequence[Any]:
        (condition,), outer = self.split(values)
        if condition.size != 1:
            raise ValueError(f"expected a condition with one element, found shape {list(condition.shape)}")
        branch = self._branches[bool(condition.reshape(-1)[0])]
        return branch.run((), [outer[name] for name in branch.captures])


class Loop(_Operator):
    """Inputs: optional trip count, optional condition, carried values. Body: (iteration, condition, carried...) ->
    (condition, carried..., scanned...)."""

    def __init__(self, node: onnx.NodeProto, scope: Scope, version: int) -> None:
        super().__init__(node, scope, version)
        self._body = self.program("body")
        self._num_carried = len(self._body.input_names) - 2
        self._scanned = _output_types(self.attributes["body"])[1 + max(self._num_carried, 0) :]
        # Bodies may declare the number and the condition with one dimension, as in onnxruntime.
        own = self.attributes["body"].input[:2]
        self._shapes = [(1,) if len(value.type.tensor_type.shape.dim) == 1 else () for value in own]
        if self._num_carried != max(self.num_inputs - 2, 0) or len(self._body.output_names) <= self._num_carried:
            raise Refused(
                f"its body has {len(self._body.input_names)} inputs and {len(self._body.output_names)} outputs, which "
                f"does not match the node's {self.num_inputs} inputs"
            )

    def __call__(self, *values: Any) -> Sequence[Any]:
        inputs, outer = self.split(values)
        limit, condition, *carried = [*inputs, None, None][: max(len(inputs), 2)]
        captured = [outer[name] for name in self._body.captures]
        trips = None if limit is None else int(limit.reshape(-1)[0])
        proceed = True if condition is None else bool(condition.reshape(-1)[0])
        scanned: list[list[Any]] = [[] for _ in self._scanned]
        iteration = 0
        while proceed and (trips is None or iteration < trips):
            number, flag = map(np.full, self._shapes, (iteration, proceed))
            state = (number, flag, *carried)
            following, *results = self._body.run(state, captured)
            proceed = bool(np.asarray(following).reshape(-1)[0])
            carried = results[: self._num_carried]
            for collected, value in zip(scanned, results[self._num_carried :], strict=True):
                collected.append(value)
            iteration += 1
        return [*carried, *map(_stack, scanned, self._scanned)]


class Scan(_Operator):
    """Inputs: states, then tensors to scan along an axis. Opset 8 has a batch axis and the length of each batch."""

    def __init__(self, node: onnx.NodeProto, scope: Scope, version: int) -> None:
        super().__init__(node, scope, version)
        self._body = self.program("body")
        self._num_scanned_in = int(self.attributes["num_scan_inputs"])
        self._num_states = len(self._body.input_names) - self._num_scanned_in
        types = _output_types(self.attributes["body"])
        if self._num_scanned_in < 1 or self._num_states < 0 or len(types) < self._num_states:
            raise Refused(f"num_scan_inputs is {self._num_scanned_in}, which does not match its body")
        if self.num_inputs != len(self._body.input_names) + (version < 9):
            expected = len(self._body.input_names) + (version < 9)
            raise Refused(f"expected {expected} inputs, as many as its body, found {self.num_inputs}")
        self._scanned = types[self._num_states :]
        num_scanned = len(self._scanned)
        inward = "directions" if version < 9 else "scan_input_directions"
        self._in_backward = self._per_value(inward, self._num_scanned_in)
        self._out_backward = self._per_value("scan_output_directions", num_scanned)
        self._in_axes = self._per_value("scan_input_axes", self._num_scanned_in)
        self._out_axes = self._per_value("scan_output_axes", num_scanned)

    def _per_value(self, attribute: str, count: int) -> list[int]:
        entries = [int(item) for item in self.attributes.get(attribute, ())] or [0] * count
        if len(entries) != count:
            raise Refused(f"expected {count} entries in {attribute}, found {len(entries)}")
        if attribute.endswith("directions") and not set(entries) <= {0, 1}:
            raise Refused(f"{attribute} is {entries}, expected 0 and 1")
        return entries

    def __call__(self, *values: Any) -> Sequence[Any]:
        inputs, outer = self.split(values)
        captured = [outer[name] for name in self._body.captures]
        if self.version >= 9:
            return self._scan(inputs, captured, None)
        lengths, *rest = inputs
        (batch,) = {value.shape[0] for value in rest}
        (longest,) = {value.shape[1] for value in rest[self._num_states :]}
        lengths = np.full(batch, longest) if lengths is None else lengths
        if lengths.shape != (batch,) or not ((lengths >= 0) & (lengths <= longest)).all():
            raise ValueError(f"sequence_lens {lengths.tolist()} does not fit {batch} rows of {longest}")
        rows = [
            self._scan([value[index] for value in rest], captured, int(length)) for index, length in enumerate(lengths)
        ]
        outputs = list(zip(*rows, strict=True))
        states, scanned = outputs[: self._num_states], outputs[self._num_states :]
        return [*map(np.stack, states), *(np.stack([_padded(part, longest) for part in parts]) for parts in scanned)]

    def _scan(self, inputs: Sequence[Any], captured: Sequence[Any], length: int | None) -> Sequence[Any]:
        states = list(inputs[: self._num_states])
        tracks = []
        for value, axis, backward in zip(inputs[self._num_states :], self._in_axes, self._in_backward, strict=True):
            track = np.moveaxis(value, axis, 0)[:length]
            tracks.append(track[::-1] if backward else track)
        sizes = {len(track) for track in tracks}
        if len(sizes) != 1:
            raise ValueError(f"the scanned inputs have different lengths: {sorted(sizes)}")
        scanned: list[list[Any]] = [[] for _ in self._scanned]
        for slices in zip(*tracks, strict=True):
            results = self._body.run((*states, *map(np.asarray, slices)), captured)
            states = results[: self._num_states]
            for collected, value in zip(scanned, results[self._num_states :], strict=True):
                collected.append(value)
        outputs = []
        for collected, kind, axis, backward in zip(
            scanned, self._scanned, self._out_axes, self._out_backward, strict=True
        ):
            stacked = _stack(collected[::-1] if backward else collected, kind)
            outputs.append(np.moveaxis(stacked, 0, axis))
        return [*states, *outputs]


class SequenceMap(_Operator):
    """Runs its body on each element of a sequence. Further inputs are sequences of the same length, or tensors."""

    def __init__(self, node: onnx.NodeProto, scope: Scope, version: int) -> None:
        super().__init__(node, scope, version)
        self._body = self.program("body")

    def __call__(self, *values: Any) -> Sequence[Any]:
        (sequence, *others), outer = self.split(values)
        captured = [outer[name] for name in self._body.captures]
        outputs: list[list[Any]] = [[] for _ in self._body.output_names]
        for index, item in enumerate(sequence):
            further = [other[index] if isinstance(other, list) else other for other in others]
            for collected, value in zip(outputs, self._body.run((item, *further), captured), strict=True):
                collected.append(value)
        return outputs


RULES: dict[tuple[str, str], type[Any]] = {
    ("", "If"): If,
    ("", "Loop"): Loop,
    ("", "Scan"): Scan,
    ("", "SequenceMap"): SequenceMap,
}


_Kind = tuple[str, Any, tuple[int, ...] | None]
"""A name, an element type, and a shape with 0 for unknown sizes; None if the rank is unknown."""


def _output_types(graph: onnx.GraphProto) -> list[_Kind]:
    """The kinds that the graph declares for its outputs, used if there are no iterations."""
    types = []
    for output in graph.output:
        tensor = output.type.tensor_type
        dtype = dtype_of(tensor.elem_type) or np.dtype(np.float32)
        shape = tuple(dim.dim_value for dim in tensor.shape.dim) if tensor.HasField("shape") else None
        types.append((output.name, dtype, shape))
    return types


def _stack(collected: Sequence[Any], kind: _Kind) -> Any:
    if collected:
        return np.stack(collected)
    name, dtype, shape = kind
    if shape is None:
        raise ValueError(f"cannot determine the rank of the scanned output {name!r} of its body without an iteration")
    return np.empty((0, *shape), dtype)


def _padded(rows: np.ndarray, count: int) -> np.ndarray:
    """Rows of zeros, or of empty strings, at the end, so that there are ``count``."""
    filler = np.full((count - len(rows), *rows.shape[1:]), "" if rows.dtype == object else 0, rows.dtype)
    return np.concatenate([rows, filler])
