"""Values stay in the memory of an execution provider, here of one that poses as a GPU: its memory is the host's, as
``OrtValue`` objects, and copies to and from it are counted."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.devices.ort import OrtPlugin, backend, memory, nvidia, support
from hetero.devices.ort.memory import OrtMemory, OrtTensor
from hetero.devices.ort.plugin import create_plugin
from hetero.plugin.remote import HostContext
from model_zoo import make_model, minilm
from posing import Posing

onnxruntime = pytest.importorskip("onnxruntime")

node = helper.make_node
X = np.float32([[1, -2, 3], [-4, 5, -6]])


class Driver:
    """NVIDIA's library, with an H100 and a smaller GPU."""

    ATTRIBUTES = ({13: 1980000, 16: 132, 36: 2619000, 37: 5120}, {13: 1000000, 16: 10, 36: 1000000, 37: 128})

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def cuDeviceGet(self, handle: Any, number: int) -> int:
        handle._obj.value = number
        return 0

    def cuDeviceTotalMem_v2(self, size: Any, handle: ctypes.c_int) -> int:
        size._obj.value = (80 << 30, 4 << 30)[handle.value]
        return 0

    def cuDeviceGetAttribute(self, value: Any, which: int, handle: ctypes.c_int) -> int:
        value._obj.value = self.ATTRIBUTES[handle.value][which]
        return 0


class AllKernels(Posing):
    """The posing provider takes every node."""

    def InferenceSession(self, encoded: bytes, options: Any, providers: list[Any], enable_fallback: int) -> Any:
        names = [entry if isinstance(entry, str) else entry[0] for entry in providers]
        session = onnxruntime.InferenceSession(encoded, options, providers=["CPUExecutionProvider"])
        if "PosingExecutionProvider" not in names:
            return session
        nodes = onnx.ModelProto.FromString(encoded).graph.node
        info = [types.SimpleNamespace(ep_name="PosingExecutionProvider", get_nodes=lambda: nodes)]
        self.made.append(providers[0])
        return types.SimpleNamespace(
            _sess=session._sess,
            run=session.run,
            io_binding=session.io_binding,
            get_inputs=session.get_inputs,
            get_outputs=session.get_outputs,
            end_profiling=session.end_profiling,
            get_providers=lambda: names,
            get_provider_graph_assignment_info=lambda: info,
        )

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []


class Foreign:
    """A tensor of another library, which only offers DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Crossings:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.up, self.down = 0, 0
        write, numpy = OrtTensor.write, OrtTensor.numpy

        def counted_write(tensor: OrtTensor, value: Any) -> None:
            self.up += not isinstance(value, OrtTensor)
            write(tensor, value)

        def counted_numpy(tensor: OrtTensor) -> Any:
            self.down += 1
            return numpy(tensor)

        monkeypatch.setattr(OrtTensor, "write", counted_write)
        monkeypatch.setattr(OrtTensor, "numpy", counted_numpy)

    def taken(self) -> tuple[int, int]:
        before, self.up, self.down = (self.up, self.down), 0, 0
        return before


@pytest.fixture
def posing(monkeypatch: pytest.MonkeyPatch) -> Iterator[AllKernels]:
    """ORT.POSING with two devices, .0 and .1, and a memory for each."""
    provider = AllKernels()
    monkeypatch.setattr(backend, "load", lambda: provider)
    monkeypatch.setattr(backend, "_CUDA", {"PosingExecutionProvider": "cpu"})
    monkeypatch.setattr(nvidia, "driver", Driver)
    memory.memory_at.cache_clear()
    yield provider
    memory.memory_at.cache_clear()


@pytest.fixture
def crossings(monkeypatch: pytest.MonkeyPatch) -> Crossings:
    return Crossings(monkeypatch)


def chain(count: int) -> onnx.ModelProto:
    values = ["x", *(f"v{at}" for at in range(count - 1)), "y"]
    return make_model([node("Neg", [values[at]], [values[at + 1]], name=f"n{at}") for at in range(count)])


def cut(core: hetero.Core, *devices: str, **config: Any) -> hetero.CompiledModel:
    pins = {f"n{at}": device for at, device in enumerate(devices)}
    listed = ",".join(dict.fromkeys((*devices, "CPU")))
    return core.compile_model(core.read_model(chain(len(devices))), f"HETERO:{listed}", config, pins=pins)


def test_subgraphs_of_one_gpu_share_values(core: hetero.Core, posing: AllKernels, crossings: Crossings) -> None:
    core.register_plugin("SECOND", create_plugin)
    compiled = cut(core, "ORT.POSING", "SECOND.POSING.0", "ORT.POSING", "SECOND.POSING")
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 4
    request = compiled.create_infer_request()
    for factor in (1, 2):
        np.testing.assert_array_equal(request.infer(X * factor)[0], X * factor)
        assert crossings.taken() == (1, 1)
    kept = request.infer(X, out=hetero.ON_DEVICE)[0]
    assert isinstance(kept, OrtTensor)
    assert crossings.taken() == (1, 0)
    again = request.infer(kept, out=hetero.ON_DEVICE)[0]
    assert crossings.taken() == (0, 0)
    np.testing.assert_array_equal(again.numpy(), X)
    np.testing.assert_array_equal(kept.numpy(), X)  # not overwritten


def test_two_gpus_by_id(core: hetero.Core, posing: AllKernels, crossings: Crossings) -> None:
    assert core.get_property("ORT", "AVAILABLE_DEVICES")[:4] == ("CPU", "POSING", "POSING.0", "POSING.1")
    own = {"DEVICE_PROPERTIES": {"ORT.POSING.1": {"ORT_PROVIDER_OPTIONS": {"speed": "9"}}}}
    compiled = cut(core, "ORT.POSING.0", "ORT.POSING.1", "ORT.POSING.0", **own, PERF_COUNT=False)
    np.testing.assert_array_equal(compiled(X)[0], -X)
    assert crossings.taken() == (3, 3)
    assert compiled.get_property("EXECUTION_DEVICES") == ("ORT.POSING.0", "ORT.POSING.1")
    options = [entry[1] for entry in posing.made]
    assert {"device_id": "0"} in options
    assert {"speed": "9", "device_id": "1"} in options
    with pytest.raises(hetero.DeviceUnavailable, match=r"no device ORT\.POSING\.2; ids here: CPU, POSING, POSING\.0"):
        core.compile_model(core.read_model(chain(1)), "ORT.POSING.2")
    with pytest.raises(hetero.PropertyError, match="device_id is 0, but the name of the device selects 1"):
        core.compile_model(core.read_model(chain(1)), "ORT.POSING.1", {"ORT_PROVIDER_OPTIONS": {"device_id": 0}})
    assert core.get_default_context("ORT.POSING.0") is core.get_default_context("ORT.POSING")
    assert core.get_default_context("ORT.POSING.1") is not core.get_default_context("ORT.POSING.0")
    assert isinstance(core.get_default_context("ORT"), HostContext)  # onnxruntime's own kernels


def test_tensors_of_other_libraries(core: hetero.Core, posing: AllKernels, crossings: Crossings) -> None:
    compiled = core.compile_model(core.read_model(chain(3)), "HETERO:ORT.POSING,CPU")
    x, y = Foreign(X.copy()), Foreign(np.zeros((2, 3), np.float32))
    assert compiled(x, out=y)[0] is y
    np.testing.assert_array_equal(y.array, -X)
    assert crossings.taken() == (0, 0)
    kept = compiled(x, out=hetero.ON_DEVICE)[0]
    np.testing.assert_array_equal(np.from_dlpack(kept), -X)
    context = core.get_default_context("ORT.POSING")
    tensor = context.create_tensor(np.float32, (2, 3))
    tensor.write(X.T.copy().T)  # not contiguous
    np.testing.assert_array_equal(compiled(tensor)[0], -X)
    with pytest.raises(hetero.PropertyError, match=r"cannot write float64 \[2, 3\] to a tensor of float32 \[2, 3\]"):
        tensor.write(X.astype(np.float64))
    with pytest.raises(hetero.PropertyError, match="cannot create a tensor of"):
        context.create_tensor(object, (2,))
    apart = Foreign(X.T.copy().T)
    with pytest.raises(hetero.InferenceError, match="input 'x'.* failed: the tensor is not contiguous; pass a"):
        compiled(apart)
    with pytest.raises(hetero.InferenceError, match="out for output 'y'.* failed: the tensor is not contiguous"):
        compiled(x, out=apart)
    for out, message in (
        (Foreign(np.zeros((3, 2), np.float32)), r"expected float32 \[2, 3\], found float32 \[3, 2\]"),
        (Foreign(np.zeros((2, 3))), "expected dtype float32"),
        (x, "overlaps an input"),
    ):
        with pytest.raises(hetero.InferenceError, match=message):
            compiled(x, out=out)
    del x
    np.testing.assert_array_equal(compiled(Foreign(X.copy()))[0], -X)


def test_arrays_and_tensors_over_the_same_memory(core: hetero.Core, posing: AllKernels) -> None:
    """One subgraph is in the provider's memory and one in the host's, and the provider adopts the host's memory."""
    proto = make_model(
        [
            node("Neg", ["x"], ["a"], name="n0"),
            node("Abs", ["a"], ["b"], name="n1"),
            node("Neg", ["b"], ["y"], name="n2"),
        ],
        outputs=["b", "y"],
    )
    compiled = core.compile_model(core.read_model(proto), "HETERO:ORT.POSING,CPU", pins={"n1": "CPU"})
    shared = Foreign(np.zeros((2, 3), np.float32))
    for out, message in (
        ([shared, shared], "output 'y': the tensor overlaps the one for output 'b'"),
        ([shared.array, shared], "output 'y': the tensor overlaps the one for output 'b'"),
        # NumPy 1 makes the array of a foreign tensor read-only.
        ([Foreign(X), None], "output 'b': the array (overlaps an input|is read-only)"),
    ):
        with pytest.raises(hetero.InferenceError, match=message):
            compiled(Foreign(X), out=out)
    # The CPU reads a tensor of the provider's, to which a later subgraph writes.
    compiled = core.compile_model(core.read_model(chain(2)), "HETERO:ORT.POSING,CPU", pins={"n0": "CPU"})
    kept = compiled(X, out=hetero.ON_DEVICE)[0]
    assert compiled(kept, out=kept)[0] is kept
    np.testing.assert_array_equal(kept.numpy(), X)


def test_the_owner_may_drop_its_tensor(core: hetero.Core, posing: AllKernels) -> None:
    compiled = core.compile_model(core.read_model(chain(1)), "ORT.POSING")
    context = core.get_default_context("ORT.POSING")
    source = Foreign(np.tile(X, (1000, 1)))
    tensor = context.adopt(source)
    assert tensor is not None
    del source
    junk = [np.full((2000, 3), 7, np.float32) for _ in range(20)]
    np.testing.assert_array_equal(tensor.numpy(), np.tile(X, (1000, 1)))
    del junk
    kept = compiled({"x": X}, out=hetero.ON_DEVICE)[0]
    array = np.from_dlpack(kept)
    del kept, compiled
    junk = [np.full((2, 3), 7, np.float32) for _ in range(20)]
    np.testing.assert_array_equal(array, -X)
    del junk


def test_the_producers_stream_is_waited_for() -> None:
    """CUDA's DLPack protocol: the consumer names its stream, and the producer makes it wait."""
    asked: list[Any] = []

    class OnGpu:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, **options: Any) -> Any:
            asked.append(options)
            raise BufferError("stop")

    with pytest.raises(BufferError, match="stop"):
        OrtMemory("cuda", 0).adopt(OnGpu())
    assert asked == [{"stream": 1}]
    assert OrtMemory("cuda", 1).adopt(OnGpu()) is None


def test_models_that_cannot_be_bound(core: hetero.Core, posing: AllKernels) -> None:
    """Strings go through arrays, and types that NumPy lacks do not stay on the device."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("Identity", ["s"], ["t"], name="text"), node("Neg", ["x"], ["y"], name="n")],
        "g",
        [info("s", TensorProto.STRING, ["n"]), info("x", TensorProto.FLOAT, ["n"])],
        [info("t", TensorProto.STRING, ["n"]), info("y", TensorProto.FLOAT, ["n"])],
    )
    model = core.read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    outputs = core.compile_model(model, "ORT.POSING")({"s": ["a", "b", "c"], "x": X[0]}, out=hetero.ON_DEVICE)
    assert list(outputs["t"]) == ["a", "b", "c"]
    np.testing.assert_array_equal(outputs["y"].numpy(), -X[0])
    graph = helper.make_graph(
        [node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16, name="c"), node("Identity", ["b"], ["y"], name="i")],
        "g",
        [info("x", TensorProto.FLOAT, ["n"])],
        [info("y", TensorProto.BFLOAT16, ["n"])],
    )
    model = core.read_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
    for device, pins in (("ORT.POSING", None), ("HETERO:ORT.POSING,ORT.POSING.1", {"c": "ORT.POSING.1"})):
        y = core.compile_model(model, device, pins=pins)(X[0])[0]
        assert y.dtype.name == "bfloat16"
        np.testing.assert_array_equal(y.astype(np.float32), X[0])


@pytest.mark.parametrize("config", [{}, {"PERF_COUNT": True}])
def test_an_input_that_is_an_output(core: hetero.Core, posing: AllKernels, config: dict[str, Any]) -> None:
    """The result is the caller's own, and given memory receives it, which onnxruntime leaves as it is."""
    compiled = core.compile_model(
        core.read_model(make_model([node("Neg", ["x"], ["y"])], outputs=["x", "y"])), "ORT.POSING", config
    )
    x = X.copy()
    kept = compiled(x, out=hetero.ON_DEVICE)
    kept["x"].write(X * 5)
    np.testing.assert_array_equal(x, X)
    given = core.get_default_context("ORT.POSING").create_tensor(np.float32, X.shape)
    for value in (x, kept["x"]):
        assert compiled(value, out={"x": given})["x"] is given
        np.testing.assert_array_equal(given.numpy(), X if value is x else X * 5)
    passed = compiled(kept["x"], out=hetero.ON_DEVICE)["x"]
    passed.write(X * 7)
    np.testing.assert_array_equal(kept["x"].numpy(), X * 5)


def test_results_of_minilm(core: hetero.Core, posing: AllKernels, crossings: Crossings) -> None:
    proto, inputs = minilm()
    model = core.read_model(proto)
    expected = core.compile_model(model, "ORT")(inputs)
    core.register_plugin("SECOND", create_plugin)
    third = len(model.nodes) // 3
    pins = dict.fromkeys(model.keys[third : 2 * third], "SECOND.POSING")
    compiled = core.compile_model(model, "HETERO:ORT.POSING,SECOND.POSING", pins=pins)
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") > 2
    outputs = compiled(inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[name], value, atol=1e-5)
    used = [port.name for port in model.inputs]
    up, down = crossings.taken()
    assert (up, down) == (len(used), len(model.outputs))


def test_counters_of_bound_runs(core: hetero.Core, posing: AllKernels) -> None:
    compiled = core.compile_model(core.read_model(chain(2)), "ORT.POSING", {"PERF_COUNT": True})
    request = compiled.create_infer_request()
    np.testing.assert_array_equal(request.infer(X)[0], X)
    assert [row.node for row in request.profiling_info] == ["n0", "n1"]
    np.testing.assert_array_equal(request.infer(X, out=hetero.ON_DEVICE)[0].numpy(), X)


def test_lack_of_device_memory(core: hetero.Core, posing: AllKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = core.compile_model(core.read_model(chain(2)), "ORT.POSING")
    request = compiled.create_infer_request()
    request.infer(X)
    bound = request._runner
    text = (
        "[ONNXRuntimeError] : 1 : FAIL : bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal(size_t) "
        "Available memory of 1000 is smaller than requested bytes of 4000"
    )
    session = bound._session  # type: ignore[attr-defined]

    def run(*arguments: Any) -> None:
        raise RuntimeError(text)

    failing = types.SimpleNamespace(run=run, run_with_iobinding=run)
    bound._session = types.SimpleNamespace(_sess=failing)  # type: ignore[attr-defined]
    with pytest.raises(hetero.InsufficientMemory, match="ORT.POSING: the device needs up to") as caught:
        request.infer(X)
    assert caught.value.shortfall == {"ORT.POSING": 3000}
    assert isinstance(caught.value, hetero.InferenceError)
    assert isinstance(caught.value, MemoryError)
    bound._session = session  # type: ignore[attr-defined]
    np.testing.assert_array_equal(request.infer(X)[0], X)


def test_a_run_can_be_cancelled(core: hetero.Core, posing: AllKernels) -> None:
    request = core.compile_model(core.read_model(chain(2)), "ORT.POSING").create_infer_request()
    request._runner.cancellation.request()  # type: ignore[attr-defined]
    with pytest.raises(hetero.Cancelled):
        request._runner.run([X])


# -- support ----------------------------------------------------------------------------------------------------------


def test_compiling_asks_no_more_than_the_plan(
    core: hetero.Core, posing: AllKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = core.read_model(chain(3))
    plan = core.plan(model, "HETERO:ORT.POSING,CPU", pins={"n1": "CPU"})
    posing.made.clear()
    core.plan(model, "HETERO:ORT.POSING,CPU", pins={"n1": "CPU"})
    assert posing.made == []
    core.compile_model(model, plan)
    assert len(posing.made) == 2  # one session per subgraph
    monkeypatch.setattr(support, "_not_assigned", lambda *given: pytest.fail("asked again"))
    core.compile_model(model, "ORT.POSING")


def test_registered_providers(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """The devices of a library that was registered with onnxruntime; here the CPU's, as if it were one."""
    if not hasattr(onnxruntime, "get_ep_devices"):
        pytest.skip("this onnxruntime has no registered providers")

    class Registered(Posing):
        def get_available_providers(self) -> list[str]:
            return ["AzureExecutionProvider"]

    monkeypatch.setattr(backend, "load", Registered)
    found = backend.targets()
    assert found["CPU.0"] == backend.Target("CPUExecutionProvider", 0, True)
    name, options = found["CPU.0"].entry({"a": 1})
    assert (name, options) == ("CPUExecutionProvider#0", {"a": 1})
    monkeypatch.setattr(backend, "load", lambda: onnxruntime)
    encoded = chain(1).SerializeToString()
    session = backend.new_session(encoded, onnxruntime.SessionOptions(), [(name, {}), "CPUExecutionProvider"])
    assert [device.ep_name for device in session.get_input_epdevices()] == ["CPUExecutionProvider"]
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], -X)
    with pytest.raises(hetero.DeviceUnavailable, match="no longer lists device 9 of CPUExecutionProvider"):
        backend.new_session(encoded, onnxruntime.SessionOptions(), [("CPUExecutionProvider#9", {})])


# -- what the driver says ---------------------------------------------------------------------------------------------


def test_memory_and_speed_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithCuda(Posing):
        def get_available_providers(self) -> list[str]:
            return [f"{name}ExecutionProvider" for name in ("Tensorrt", "CUDA", "Dml", "CPU")]

    plugin = OrtPlugin()
    monkeypatch.setattr(backend, "load", WithCuda)
    monkeypatch.setattr(nvidia, "driver", Driver)
    assert plugin.device_ids() == (*("CPU", "TENSORRT", "TENSORRT.0", "TENSORRT.1", "CUDA", "CUDA.0", "CUDA.1", "DML"),)
    assert plugin.available_bytes("ORT.CUDA") == plugin.available_bytes("ORT.TENSORRT.0") == 80 << 30
    assert plugin.available_bytes("ORT.CUDA.1") == 4 << 30
    assert plugin.available_bytes("ORT.DML") is plugin.memory_bytes("ORT.CUDA") is None
    big, small, unknown, cpu = (plugin.speed(f"ORT{id_}") for id_ in (".CUDA", ".CUDA.1", ".DML", ""))
    assert big.flops_per_s == pytest.approx(33e12, rel=0.05)
    assert big.bytes_per_s == pytest.approx(2.5e12, rel=0.05)
    assert small.flops_per_s < big.flops_per_s
    assert plugin.speed("ORT.TENSORRT.0").memory == plugin.speed("ORT.CUDA").memory == big.memory != small.memory
    assert unknown.link_bytes_per_s is not None
    assert unknown.memory == ""
    assert cpu.link_bytes_per_s is None
    monkeypatch.setattr(nvidia, "driver", lambda: None)
    assert plugin.device_ids() == ("CPU", "TENSORRT", "CUDA", "DML")
    assert plugin.available_bytes("ORT.CUDA") is None
    assert plugin.speed("ORT.CUDA").link_bytes_per_s is not None
