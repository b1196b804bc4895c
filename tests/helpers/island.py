"""A device with its own memory: NumPy arrays that no one else can read, each copy in and out of which is counted."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hetero
from hetero.plugin import CompiledModel, Plugin, RemoteContext, RemoteTensor, Runner, Support
from hetero.plugin.address_ranges import range_of

OPERATORS: Mapping[str, Callable[..., NDArray[Any]]] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "Identity": lambda x: x,
}
DEVICE_TYPE = 12  # kDLExtDev of DLPack, which no other library reads


class Sea(RemoteContext):
    """The memory. ``uploaded``, ``downloaded``: the sizes in B of the arrays that crossed. ``live``: its tensors.
    ``capacity``: in B."""

    moves_values = True

    def __init__(self, device: str = "ISLAND", capacity: int = 1 << 40) -> None:
        self.device = device
        self.capacity = capacity
        self.uploaded: list[int] = []
        self.downloaded: list[int] = []
        self.live: weakref.WeakSet[Shell] = weakref.WeakSet()
        self.is_lost = False

    def used(self) -> int:
        return sum({id(tensor.secret): tensor.nbytes for tensor in self.live}.values())

    def hold(self, array: NDArray[Any]) -> Shell:
        """A tensor over memory of the device."""
        missing = self.used() + array.nbytes - self.capacity
        if missing > 0:
            raise hetero.InsufficientMemory(
                f"{self.device}: {missing} bytes too few for a tensor of {array.nbytes} bytes", {self.device: missing}
            )
        return Shell(self, array)

    def create_tensor(self, dtype: Any, shape: Sequence[int]) -> Shell:
        return self.hold(np.zeros(shape, dtype))

    def upload(self, array: NDArray[Any]) -> Shell:
        self.uploaded.append(array.nbytes)
        return self.hold(array.copy())

    def adopt(self, value: Any) -> Shell | None:
        if value.__dlpack_device__()[0] != DEVICE_TYPE:
            return None
        return self.hold(value.__dlpack__())


class Shell(RemoteTensor):
    def __init__(self, context: Sea, array: NDArray[Any]) -> None:
        self.context: Sea = context
        self.secret = array
        self.is_writable = array.flags.writeable  # type: ignore[misc]
        context.live.add(self)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.secret.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.secret.shape

    is_writable = True

    def numpy(self) -> NDArray[Any]:
        if self.context.is_lost:
            raise RuntimeError("the island sank")
        self.context.downloaded.append(self.nbytes)
        return self.secret.copy()

    def write(self, value: Any) -> None:
        if isinstance(value, RemoteTensor):
            assert isinstance(value, Shell)
            assert value.context is self.context
            self.secret[...] = value.secret
        else:
            self.context.uploaded.append(value.nbytes)
            self.secret[...] = value

    @property
    def address_range(self) -> tuple[int, int]:
        return range_of(self.secret)

    def __dlpack__(self, **options: Any) -> Any:
        return self.secret

    def __dlpack_device__(self) -> tuple[int, int]:
        return DEVICE_TYPE, 0


class IslandPlugin(Plugin):
    """Elementwise operators. ``given``: for each run, the types of its inputs."""

    name = "ISLAND"
    properties = (*Plugin.properties, "PERF_COUNT")

    def __init__(self, sea: Sea | None = None, operators: Sequence[str] = tuple(OPERATORS)) -> None:
        super().__init__()
        self.sea = Sea() if sea is None else sea
        self.operators = operators

    def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> Support:
        reasons = {
            node.index: f"{node.op_type} is not supported"
            for node in model.nodes
            if node.domain
            or node.op_type not in self.operators
            or any(model.type_of(value).dtype != np.float32 for value in model.node_inputs[node.index])
        }
        return Support.from_reasons(model.num_nodes, reasons)

    def compile_model(
        self, model: hetero.Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        return IslandModel(self.name, model, self.sea)

    def get_default_context(self) -> RemoteContext:
        return self.sea


class IslandModel(CompiledModel):
    def __init__(self, device: str, model: hetero.Model, sea: Sea) -> None:
        super().__init__(device, model.inputs, model.outputs)
        self.model = model
        self.memory_space = sea

    def create_runner(self) -> Runner:
        return IslandRunner(self.model, self.memory_space)


class IslandRunner(Runner):
    def __init__(self, model: hetero.Model, sea: Sea) -> None:
        self.model = model
        self.sea = sea
        self.kept: frozenset[int] = frozenset()

    def keep_on_device(self, positions: Sequence[int]) -> None:
        self.kept = frozenset(positions)

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return self.run_into(inputs, [None] * len(self.model.output_ids))

    def run_into(self, inputs: Sequence[Any], places: Sequence[Any]) -> Sequence[Any]:
        sea, model = self.sea, self.model
        if sea.is_lost:
            raise RuntimeError("the island sank")
        shells = [value if isinstance(value, Shell) else sea.upload(value) for value in inputs]
        values = dict(zip(model.input_ids, [shell.secret for shell in shells], strict=True))
        values |= {value: model.constant(value) for value in np.flatnonzero(model.is_constant)}
        for node in model.nodes:
            (result,), arguments = model.node_outputs[node.index], model.node_inputs[node.index]
            values[result] = np.asarray(OPERATORS[node.op_type](*[values[value] for value in arguments]))
        results: list[Any] = []
        for position, (value, place) in enumerate(zip(model.output_ids, places, strict=True)):
            if position in self.kept and isinstance(place, Shell) and place.shape == values[value].shape:
                place.secret[...] = values[value]
                results.append(place)
            elif position in self.kept:
                results.append(sea.hold(values[value]))
            else:
                results.append(sea.hold(values[value]).numpy())
        return results
