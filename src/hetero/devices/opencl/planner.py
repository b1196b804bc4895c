"""Turns a model into plans: one for each set of input shapes.

Values that depend only on shapes and constants are computed on the host while planning, so a plan knows all sizes.
Nodes that depend on constants only are run once, when the model is compiled.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import HeteroError, InferenceError, inference_error, raise_out_of_memory
from .builder import Builder, check_size
from .device import Device
from .operators import OPERATORS, Operator, PlannedNode
from .plan import Plan
from .support import Examination
from .tensors import CONSTANT, INPUT, Slot, Tensor

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["Planner", "Settings"]

_LARGEST_ON_HOST = 1 << 16
"""Elements: the largest value that is computed on the host. Shapes are far smaller."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """``uses_clblast``: for products of float32. ``tunes``: whether a faster kernel takes its place. ``cache_folder``:
    for the results of tuning; empty for the user's."""

    uses_clblast: bool
    tunes: bool
    cache_folder: str


@dataclasses.dataclass(frozen=True)
class _Node:
    key: str
    operator: Operator
    attributes: Mapping[str, Any]
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    host_only: bool


class Planner:
    """The nodes and the constants of a model. Thread-safe."""

    def __init__(self, model: Model, device: Device, settings: Settings, examination: Examination) -> None:
        """``examination``: of the model, which the device supports as a whole."""
        self.device = device
        self.inputs = tuple(model.input_ids)
        self.outputs = tuple(model.output_ids)
        self.keys = [(node.key, node.op_type) for node in model.nodes]
        self._settings = settings
        self._lock = threading.Lock()
        self._model = model
        self._nodes = [
            _Node(
                node.key,
                OPERATORS[node.op_type],
                node.attributes,
                examination.versions[node.index],
                tuple(model.node_inputs[node.index].tolist()),
                tuple(model.node_outputs[node.index].tolist()),
                node.index in examination.host_only,
            )
            for node in model.nodes
        ]
        self._num_readers: dict[int, int] = dict.fromkeys(self.outputs, 2)
        for node in self._nodes:
            for value in set(node.inputs):
                self._num_readers[value] = self._num_readers.get(value, 0) + 1
        self._constants: dict[int, Tensor] = {}
        self._folded: set[int] = set()
        self.read_on_host = self._needed_on_host()
        self._split_constants()

    def _needed_on_host(self) -> frozenset[int]:
        """The inputs of the model whose values a plan must know."""
        needed: set[int] = set()
        for node in reversed(self._nodes):
            for position in node.operator.host:
                if position < len(node.inputs):
                    needed.add(node.inputs[position])
            if node.host_only or (node.operator.on_host is not None and needed.intersection(node.outputs)):
                needed.update(node.inputs)
        return frozenset(needed.intersection(self.inputs))

    def _split_constants(self) -> None:
        known = np.array(self._model.is_constant).tolist()
        for number, node in enumerate(self._nodes):
            if all(value < 0 or known[value] for value in node.inputs):
                self._folded.add(number)
                for value in node.outputs:
                    if value >= 0:
                        known[value] = True

    # -- constants

    def folding(self) -> tuple[Plan, list[int]] | None:
        """The plan that computes values which depend on constants only, and these values. None if there are none."""
        if not self._folded:
            return None
        made = {value for number in self._folded for value in self._nodes[number].outputs if value >= 0}
        rest = [node for number, node in enumerate(self._nodes) if number not in self._folded]
        read = {value for node in rest for value in node.inputs} | set(self.outputs)
        kept = sorted(made & read)
        builder, values = self._builder(), dict[int, Tensor]()
        self._plan_nodes(builder, values, sorted(self._folded))
        tensors = [values[value] for value in kept]
        for tensor in tensors:
            if tensor.array is None:
                builder.memory(tensor)
        return self._finished(builder, [], tensors), kept

    def keep(self, values: Iterable[int], plan: Plan) -> None:
        """Use the results of `folding`, whose plan has run."""
        for value, tensor in zip(values, plan.outputs, strict=True):
            if tensor.slot is not None:
                assert tensor.slot.block is not None
                tensor.slot.block.is_constant = True
                kept = Slot(tensor.nbytes, CONSTANT, tensor.slot.block)
                self._constants[value] = Tensor(tensor.dtype, tensor.shape, kept)
            else:
                self._constants[value] = tensor

    def _constant(self, value: int) -> Tensor:
        tensor = self._constants.get(value)
        if tensor is None:
            array = self._model.constant(value, aligned=False)
            tensor = self._constants.setdefault(value, Tensor(array.dtype, array.shape, array=array))
        return tensor

    # -- plans

    def plan(self, types: Sequence[tuple[np.dtype[Any], tuple[int, ...]]], arrays: Mapping[int, NDArray[Any]]) -> Plan:
        """The plan for inputs of these types. ``arrays``: the values of the inputs in `read_on_host`."""
        with self._lock:  # plans share the memory of constants
            return self._plan(types, arrays)

    def _plan(self, types: Sequence[tuple[np.dtype[Any], tuple[int, ...]]], arrays: Mapping[int, NDArray[Any]]) -> Plan:
        builder, values = self._builder(), dict[int, Tensor]()
        inputs = []
        for value, (dtype, shape) in zip(self.inputs, types, strict=True):
            check_size(shape)
            tensor = Tensor(dtype, shape, array=arrays.get(value))
            tensor.slot = Slot(tensor.nbytes, INPUT)
            values[value] = tensor
            inputs.append(tensor)
        self._plan_nodes(builder, values, [at for at in range(len(self._nodes)) if at not in self._folded])
        outputs = [values[value] if value in values else self._constant(value) for value in self.outputs]
        for tensor in outputs:
            if tensor.array is None:
                builder.memory(tensor)
        return self._finished(builder, inputs, outputs)

    def _builder(self) -> Builder:
        return Builder(self.device, *dataclasses.astuple(self._settings))

    def _finished(self, builder: Builder, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Plan:
        return Plan(self.device, builder.steps, inputs, outputs, builder.failed)

    def _plan_nodes(self, builder: Builder, values: dict[int, Tensor], numbers: Iterable[int]) -> None:
        for number in numbers:
            node = self._nodes[number]
            builder.node = number
            inputs = [
                None if value < 0 else values[value] if value in values else self._constant(value)
                for value in node.inputs
            ]
            try:
                results = self._results(builder, node, inputs)
            except InferenceError as error:
                raise InferenceError(f"{self.device.name}: node {node.key!r}: {error}") from error
            except HeteroError as error:
                error.add_note(f"in node {node.key!r}, on {self.device.name}")
                raise
            except Exception as error:
                raise_out_of_memory(error)
                text = f"{self.device.name}: node {node.key!r} cannot be planned: {type(error).__name__}: {error}"
                raise inference_error(text, error) from error
            for value, tensor in zip(node.outputs, results, strict=False):
                if value >= 0:
                    tensor.num_readers = self._num_readers.get(value, 0)
                    values[value] = tensor

    def _results(self, builder: Builder, node: _Node, inputs: Sequence[Tensor | None]) -> Sequence[Tensor]:
        operator = node.operator
        planned = PlannedNode(node.attributes, node.version, inputs, len(node.outputs), builder)
        are_known = all(each is None or (each.array is not None and each.size <= _LARGEST_ON_HOST) for each in inputs)
        if operator.on_host is not None and are_known and not _may_be_large(node, inputs):
            arrays = [None if each is None else each.array for each in inputs]
            with np.errstate(all="ignore"):
                array = np.asarray(operator.on_host(node.attributes, node.version, arrays))
            return [Tensor(array.dtype, array.shape, array=array)]
        if operator.plan is None or node.host_only:
            raise InferenceError("it is computed on the host only, and its inputs are too large for that")
        return operator.plan(planned)


def _may_be_large(node: _Node, inputs: Sequence[Tensor | None]) -> bool:
    """Whether a result may be too large for the host. Those of views and slices are not larger than their input."""
    if node.operator.states_size:
        shape = inputs[node.operator.host[0]]
        assert shape is not None
        assert shape.array is not None
        sizes = shape.array.reshape(-1).tolist()
        return len(sizes) > 64 or math.prod(max(size, 1) for size in sizes) > _LARGEST_ON_HOST
    if node.operator.host:
        return False
    return math.prod(max(each.size, 1) for each in inputs if each is not None) > 16 * _LARGEST_ON_HOST
