"""Results where the caller gets them, and values in the memory of a GPU, here of the CPU that poses as one: its remote
tensors are host memory that only it may read, and copies to and from it are counted. No real GPU or NPU was used."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.devices.openvino import backend
from hetero.devices.openvino.memory import OpenvinoMemory, OpenvinoTensor
from hetero.devices.openvino.plugin import OpenvinoPlugin

openvino = pytest.importorskip("openvino")

node = helper.make_node


def small(nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any]) -> onnx.ModelProto:
    """``inputs``, ``outputs``: name -> element type and shape."""
    ports = [
        [helper.make_tensor_value_info(name, *type_) for name, type_ in each.items()] for each in (inputs, outputs)
    ]
    for at, each in enumerate(nodes):
        each.name = f"n{at}"
    graph = helper.make_graph(nodes, "g", *ports)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def chain(shape: list[Any] | None = None) -> onnx.ModelProto:
    """Neg, Exp and Abs; the first result is also an output."""
    type_ = (TensorProto.FLOAT, ["n", "m"] if shape is None else shape)
    nodes = [node("Neg", ["x"], ["a"]), node("Exp", ["a"], ["b"]), node("Abs", ["b"], ["y"])]
    return small(nodes, {"x": type_}, {"y": type_, "a": type_})


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("shape", [None, [2, 3]], ids=["any sizes", "stated"])
def test_results_are_written_where_the_caller_gets_them(shape: list[int] | None) -> None:
    compiled = hetero.Core().compile_model(chain(shape), "OPENVINO")
    request = compiled.create_infer_request()
    x = np.float32([[1, -2, 3], [-4, 5, -6]])
    request.infer(x)
    y = request.infer(x)["y"]
    assert address(request._runner._request.get_output_tensor(0).data) == address(y)  # type: ignore[attr-defined]
    out = {name: np.empty((2, 3), np.float32) for name in ("y", "a")}
    request.infer(x, out)
    for at, array in enumerate(out.values()):
        assert address(request._runner._request.get_output_tensor(at).data) == address(array)  # type: ignore[attr-defined]
    np.testing.assert_allclose(out["y"], np.exp(-x), 1e-5)
    np.testing.assert_array_equal(out["a"], -x)
    before = out["y"].copy()
    request.infer(2 * x)
    np.testing.assert_array_equal(out["y"], before)


def test_results_stay_the_callers_own_when_sizes_change() -> None:
    request = hetero.Core().compile_model(chain(), "OPENVINO").create_infer_request()
    random = np.random.default_rng(0)
    earlier = []
    for shape in ((2, 3), (2, 3), (1, 1), (5, 7), (5, 7), (0, 3), (2, 3), (5, 7), (0, 3), (0, 3)):
        x = random.standard_normal(shape).astype(np.float32)
        out = np.empty(shape, np.float32) if len(earlier) % 2 else None
        earlier.append((x, request.infer(x, {"y": out})))
        for x, results in earlier:
            np.testing.assert_allclose(results["y"], np.exp(-x), 1e-5)
            np.testing.assert_array_equal(results["a"], -x)


def test_sizes_that_depend_on_data() -> None:
    """Memory for the last result is too small or too large for the next one."""
    nodes = [node("NonZero", ["x"], ["at"])]
    proto = small(nodes, {"x": (TensorProto.FLOAT, ["n"])}, {"at": (TensorProto.INT64, [1, None])})
    request = hetero.Core().compile_model(proto, "OPENVINO").create_infer_request()
    earlier = []
    for x in ([1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [1, 1, 1]):
        earlier.append((x, request.infer(np.float32(x))["at"]))
        for given, result in earlier:
            np.testing.assert_array_equal(result, np.nonzero(given))


def test_inputs_and_values_that_are_outputs_twice() -> None:
    nodes = [node("Identity", ["x"], ["y"]), node("Neg", ["x"], ["z"]), node("Identity", ["z"], ["w"])]
    type_ = (TensorProto.FLOAT, [2])
    proto = small(nodes, {"x": type_}, {"y": type_, "z": type_, "w": type_})
    request = hetero.Core().compile_model(proto, "OPENVINO").create_infer_request()
    for value in (1.0, 2.0):
        x = np.full(2, value, np.float32)
        results = request.infer(x)
        results["z"][0] = 7
        np.testing.assert_array_equal(results["w"], -np.full(2, value))
        results["y"][:] = 9
        np.testing.assert_array_equal(x, np.full(2, value))


@pytest.mark.parametrize("op_type", ["Dropout", "Identity", "Flatten"])
def test_results_that_are_inputs(op_type: str) -> None:
    """OpenVINO removes a Dropout: its result is then the input itself."""
    type_ = (TensorProto.FLOAT, [2, 3])
    proto = small([node(op_type, ["x"], ["y"]), node("Exp", ["x"], ["z"])], {"x": type_}, {"y": type_, "z": type_})
    request = hetero.Core().compile_model(proto, "OPENVINO").create_infer_request()
    for value in range(3):
        x = np.full((2, 3), value, np.float32)
        out = {"y": np.full((2, 3), -1, np.float32)}
        for results in (request.infer(x), request.infer(x, out)):
            np.testing.assert_array_equal(results["y"], np.full((2, 3), value))
            np.testing.assert_allclose(results["z"], np.exp(x), 1e-5)
            np.testing.assert_array_equal(x, np.full((2, 3), value))
            results["y"][:] = 9
            np.testing.assert_array_equal(x, np.full((2, 3), value))


class Remote:
    """A remote tensor: memory that only `Request` and copies reach."""

    def __init__(self, type_: Any, shape: Any) -> None:
        self.hidden = openvino.Tensor(type_, shape)

    @property
    def shape(self) -> Any:
        return self.hidden.shape

    def copy_to(self, target: Any) -> None:
        Remote.copies += 1
        target.data[...] = self.hidden.data

    def copy_from(self, source: Any) -> None:
        Remote.copies += not isinstance(source, Remote)
        self.hidden.data[...] = source.hidden.data if isinstance(source, Remote) else source.data

    copies = 0


class Context:
    is_full = False

    def create_tensor(self, type_: Any, shape: Any, properties: Any) -> Remote:
        if Context.is_full:
            raise RuntimeError("[GPU] CL_MEM_OBJECT_ALLOCATION_FAILURE")
        return Remote(type_, shape)


class Request:
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._outputs: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def set_input_tensor(self, position: int, tensor: Any) -> None:
        self._inner.set_input_tensor(position, getattr(tensor, "hidden", tensor))

    def set_output_tensor(self, position: int, tensor: Any) -> None:
        self._outputs[position] = tensor
        self._inner.set_output_tensor(position, getattr(tensor, "hidden", tensor))

    def get_output_tensor(self, position: int) -> Any:
        given = self._outputs.get(position)
        return given if isinstance(given, Remote) else self._inner.get_output_tensor(position)


class Compiled:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_infer_request(self) -> Request:
        return Request(self._inner.create_infer_request())


class PosingCore:
    available_devices = ("CPU", "GPU")

    def __init__(self) -> None:
        self._inner = backend.core()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def query_model(self, model: Any, device: str, *rest: Any) -> Any:
        return self._inner.query_model(model, "CPU", *rest)

    def compile_model(self, model: Any, device: str, config: Any) -> Any:
        compiled = self._inner.compile_model(model, "CPU", {})
        return Compiled(compiled) if device == "GPU" else compiled

    def get_default_context(self, device: str) -> Context:
        assert device == "GPU"
        return Context()


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> hetero.Core:
    """OPENVINO.GPU is the CPU with memory of its own."""

    class PosingPlugin(OpenvinoPlugin):
        def __init__(self) -> None:
            super().__init__()
            self._core = PosingCore()

    monkeypatch.setattr(Context, "is_full", False)
    core = hetero.Core()
    core.register_plugin("OV", PosingPlugin)
    Remote.copies = 0
    return core


def test_values_stay_in_the_memory_of_the_device(core: hetero.Core) -> None:
    compiled = core.compile_model(chain(), "HETERO:OV.GPU,CPU", pins={"n0": "OV.GPU", "n1": "OV.GPU", "n2": "CPU"})
    request = compiled.create_infer_request()
    for shape in ((2, 3), (2, 3), (4, 1), (1, 5)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        results = request.infer(x)
        np.testing.assert_allclose(results["y"], np.exp(-x), 1e-5)
        np.testing.assert_array_equal(results["a"], -x)
    Remote.copies = 0
    x = np.float32([[1, -2, 3]])
    for _ in range(2):
        results = request.infer(x, {"a": hetero.ON_DEVICE})
    assert isinstance(results["a"], OpenvinoTensor)
    np.testing.assert_array_equal(results["a"].numpy(), -x)
    memory = core.get_default_context("OV.GPU")
    assert isinstance(memory, OpenvinoMemory)
    given, out = memory.upload(x), memory.create_tensor(np.float32, (1, 3))
    Remote.copies = 0
    results = request.infer(given, {"a": out})
    assert Remote.copies == 1  # of y, to the host
    assert results["a"] is out
    np.testing.assert_array_equal(np.from_dlpack(out), -x)


def test_a_value_between_two_subgraphs_does_not_leave(core: hetero.Core) -> None:
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Exp", ["a"], ["b"]),
        node("Add", ["a", "b"], ["y"]),
    ]
    type_ = (TensorProto.FLOAT, [3])
    proto = small(nodes, {"x": type_}, {"y": type_})
    compiled = core.compile_model(proto, "HETERO:OV.GPU,CPU", pins={"n0": "OV.GPU", "n1": "CPU", "n2": "OV.GPU"})
    x = np.float32([1, -2, 0.5])
    request = compiled.create_infer_request()
    request.infer(x)
    Remote.copies = 0
    np.testing.assert_allclose(request.infer(x)["y"], np.exp(-x) - x, 1e-5)
    assert Remote.copies == 4  # x and b to the device, a and y to the host; a is not copied for the Add


def test_sizes_on_the_device_that_depend_on_data(core: hetero.Core) -> None:
    nodes = [node("NonZero", ["x"], ["at"]), node("Cast", ["at"], ["i"], to=TensorProto.INT32)]
    proto = small(nodes, {"x": (TensorProto.FLOAT, ["n"])}, {"i": (TensorProto.INT32, [1, None])})
    request = core.compile_model(proto, "OV.GPU").create_infer_request()
    for x in ([1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]):
        result = request.infer(np.float32(x), hetero.ON_DEVICE)["i"]
        np.testing.assert_array_equal(result.numpy(), np.nonzero(x))


def test_a_full_device(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    request = core.compile_model(chain([2, 3]), "OV.GPU").create_infer_request()
    x = np.float32([[1, -2, 3], [-4, 5, -6]])
    monkeypatch.setattr(Context, "is_full", True)
    with pytest.raises(hetero.InsufficientMemory, match="ALLOCATION_FAILURE") as caught:
        request.infer(x, hetero.ON_DEVICE)
    assert caught.value.shortfall == {"OV.GPU": x.nbytes}
    monkeypatch.setattr(Context, "is_full", False)
    np.testing.assert_array_equal(request.infer(x)["a"], -x)


def test_wrong_tensors(core: hetero.Core) -> None:
    memory = core.get_default_context("OV.GPU")
    with pytest.raises(hetero.PropertyError, match="float64"):
        memory.create_tensor(np.float64, (2,))
    tensor = memory.create_tensor(np.float32, (2,))
    with pytest.raises(hetero.PropertyError, match="cannot write"):
        tensor.write(np.zeros(3, np.float32))
    with pytest.raises(hetero.PropertyError, match="this machine's memory"):
        core.compile_model(chain(), "OV.CPU", context=memory)
    with pytest.raises(hetero.PropertyError, match="as context"):
        core.compile_model(chain(), "OV.GPU", context=core.get_default_context("OV.CPU"))
