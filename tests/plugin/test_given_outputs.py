"""The argument ``out``: results in given arrays."""

from __future__ import annotations

import array
import asyncio
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from hetero.plugin.given_outputs import bind_out
from model_zoo import make_model

DEVICES = ("CPU", "TEMPLATE", "HETERO:TEMPLATE,CPU", "MULTI:CPU,TEMPLATE")
X = np.float32([[1, -2, 3], [-4, 5, -6]])
RELU = np.maximum(X, 0)


def _model(core: hetero.Core) -> hetero.Model:
    """y = relu(x), z = y + y, with x: [n, 3]."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="relu"),
        helper.make_node("Add", ["y", "y"], ["z"], name="add"),
    ]
    return core.read_model(make_model(nodes, {"x": ["n", 3]}, ["y", "z"]))


@pytest.fixture(params=DEVICES)
def compiled(request: pytest.FixtureRequest, core: hetero.Core) -> hetero.CompiledModel:
    return core.compile_model(_model(core), request.param)


def test_by_name_and_in_order(compiled: hetero.CompiledModel) -> None:
    request = compiled.create_infer_request()
    for number in range(3):  # the first run plans
        x = X + number
        y, z = np.full((2, 3), 7, np.float32), np.full((2, 3), 7, np.float32)
        outputs = request.infer(x, out={"z": z, "y": y} if number % 2 else [y, z])
        assert outputs["y"] is y
        assert outputs["z"] is z
        np.testing.assert_array_equal(y, np.maximum(x, 0))
        np.testing.assert_array_equal(z, 2 * y)


def test_some_outputs(compiled: hetero.CompiledModel) -> None:
    request = compiled.create_infer_request()
    z = np.empty((2, 3), np.float32)
    held = []
    for out in ({"z": z}, [None, z], {"y": None, "z": z}, {}, [None, None]):
        z[...] = 7
        outputs = request.infer(X, out=out)
        np.testing.assert_array_equal(outputs["y"], RELU)
        np.testing.assert_array_equal(outputs["z"], 2 * RELU)
        assert (outputs["z"] is z) == any(value is z for value in _values(out))
        assert not np.may_share_memory(outputs["y"], z)
        held.append(outputs["y"])
        outputs["y"][...] = 0
        np.testing.assert_array_equal(outputs["z"], 2 * RELU)
    np.testing.assert_array_equal(request.infer(X)["y"], RELU)  # the fast path


def _values(out: Any) -> list[Any]:
    return list(out.values()) if isinstance(out, dict) else out


def test_sizes_that_change(compiled: hetero.CompiledModel) -> None:
    request = compiled.create_infer_request()
    for rows in (2, 2, 5, 0, 1, 2):
        x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3) - 2
        y = np.full((rows, 3), 7, np.float32)
        assert request.infer(x, out={"y": y})["y"] is y
        np.testing.assert_array_equal(y, np.maximum(x, 0))
        for wrong in (rows + 1, max(rows - 1, 0)):
            if wrong == rows:
                continue
            says = f"out for output 'y': expected float32 [{rows}, 3], found float32 [{wrong}, 3]"
            with pytest.raises(hetero.InferenceError, match=re.escape(says)):
                request.infer(x, out={"y": np.empty((wrong, 3), np.float32)})


def test_guard_bytes_stay(compiled: hetero.CompiledModel) -> None:
    """Nothing is written beside the array."""
    request = compiled.create_infer_request()
    memory = np.full(6 + 32, 7, np.float32)
    for _ in range(3):
        y = memory[16:22].reshape(2, 3)
        request.infer(X, out={"y": y})
        np.testing.assert_array_equal(y, RELU)
        assert (memory[:16] == 7).all()
        assert (memory[22:] == 7).all()


def test_every_way_to_run(compiled: hetero.CompiledModel) -> None:
    def infer(x: np.ndarray, out: Any) -> Any:
        return compiled(x, out=out)

    def start(x: np.ndarray, out: Any) -> Any:
        request = compiled.create_infer_request()
        request.start_async(x, out=out)
        request.wait()
        return request.outputs

    def submit(x: np.ndarray, out: Any) -> Any:
        return compiled.submit(x, out=out).result()

    def arun(x: np.ndarray, out: Any) -> Any:
        return asyncio.run(compiled.arun(x, out=out))

    runs: tuple[Callable[[np.ndarray, Any], Any], ...] = (infer, start, submit, arun)
    for run in runs * 2:
        z = np.full((2, 3), 7, np.float32)
        outputs = run(X, {"z": z})
        assert outputs["z"] is z
        np.testing.assert_array_equal(z, 2 * RELU)
        np.testing.assert_array_equal(outputs["y"], RELU)
        with pytest.raises(hetero.InferenceError, match="expected float32"):
            run(X, {"z": np.empty(6, np.float32)})


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ({"y": np.empty((2, 3), np.float64)}, "out for output 'y': expected dtype float32, found float64 [2, 3]"),
        ({"y": np.empty((2, 3), ">f4")}, "out for output 'y': expected dtype float32, found >f4 [2, 3]"),
        ({"y": np.empty((3, 2), np.float32)}, "out for output 'y': expected float32 [2, 3], found float32 [3, 2]"),
        ({"y": np.empty(6, np.float32)}, "out for output 'y': expected float32 [2, 3], found float32 [6]"),
        ({"y": np.empty((2, 4), np.float32)}, "out for output 'y': expected float32 [2, 3], found float32 [2, 4]"),
        ({"y": np.empty((3, 2), np.float32).T}, "out for output 'y': the array is not C-contiguous"),
        ({"y": np.empty((2, 6), np.float32)[:, ::2]}, "strides [24, 8]"),
        ({"y": np.broadcast_to(np.float32(0), (2, 3))}, "the array is not C-contiguous"),
        ({"y": np.frombuffer(bytes(24), np.float32).reshape(2, 3)}, "out for output 'y': the array is read-only"),
        ({"w": np.empty((2, 3), np.float32)}, "out: the model has no output 'w'"),
        ([np.empty((2, 3), np.float32)], "out: expected 2 arrays in the order of the outputs, found 1"),
        (np.empty((2, 3), np.float32), "out: expected a mapping from output name to array, or a list of 2 arrays"),
        ({"y": [[0.0] * 3] * 2}, "out for output 'y': expected an array, an object with __dlpack__ or a buffer"),
        ({"y": 1.0}, "out for output 'y': expected an array"),
        ({"y": np.ma.masked_array(np.empty((2, 3), np.float32))}, "out for output 'y': a masked array"),
    ],
)
def test_bad_arrays(compiled: hetero.CompiledModel, out: Any, says: str) -> None:
    request = compiled.create_infer_request()
    for _ in range(2):
        with pytest.raises(hetero.InferenceError, match=re.escape(says)):
            request.infer(X, out=out)
        np.testing.assert_array_equal(request.infer(X)["y"], RELU)


@pytest.mark.parametrize("place", [(99, 0), (2, 7), ("x", 0), (2,), 5, None])
def test_a_device_that_nobody_has(compiled: hetero.CompiledModel, place: Any) -> None:
    class Foreign:
        def __dlpack_device__(self) -> Any:
            return place

        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("not here")

    request = compiled.create_infer_request()
    with pytest.raises(hetero.InferenceError, match="out for output 'y': Foreign"):
        request.infer(X, out={"y": Foreign()})
    with pytest.raises(hetero.InferenceError, match="input 'x': expected .* found Foreign"):
        request.infer(Foreign())
    np.testing.assert_array_equal(request.infer(X)["y"], RELU)


def test_overlaps(compiled: hetero.CompiledModel) -> None:
    request = compiled.create_infer_request()
    memory = np.zeros(32, np.float32)
    x = memory[:6].reshape(2, 3)
    x[...] = X
    for begin in (0, 5):
        with pytest.raises(hetero.InferenceError, match="out for output 'y': the array overlaps an input"):
            request.infer(x, out={"y": memory[begin : begin + 6].reshape(2, 3)})
    y = memory[6:12].reshape(2, 3)
    for begin in (6, 11):
        with pytest.raises(hetero.InferenceError, match="output 'z': the array overlaps the one for output 'y'"):
            request.infer(x, out=[y, memory[begin : begin + 6].reshape(2, 3)])
    np.testing.assert_array_equal(x, X)
    z = memory[12:18].reshape(2, 3)  # neighbors do not overlap
    for _ in range(2):
        request.infer(x, out=[y, z])
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(y, RELU)
        np.testing.assert_array_equal(z, 2 * RELU)


def test_results_of_the_last_call_are_inputs_and_places(compiled: hetero.CompiledModel) -> None:
    """Two buffers take turns."""
    first, second = X.copy(), np.empty_like(X)
    expected = X.copy()
    request = compiled.create_infer_request()
    for _ in range(4):
        request.infer(first, out={"z": second})
        expected = 2 * np.maximum(expected, 0)
        np.testing.assert_array_equal(second, expected)
        first, second = second, first


class _Subclass(np.ndarray):
    pass


def test_other_kinds_of_memory(compiled: hetero.CompiledModel, core: hetero.Core) -> None:
    tensor = core.get_default_context("CPU").create_tensor(np.float32, (2, 3))
    subclass = np.empty((2, 3), np.float32).view(_Subclass)
    viewed = memoryview(array.array("f", [0] * 6)).cast("B").cast("f", (2, 3))
    shifted = np.empty(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    for value in (tensor, subclass, viewed, shifted):
        for _ in range(2):
            assert compiled(X, out={"z": value})["z"] is value
            found = tensor.numpy() if value is tensor else np.asarray(value)
            np.testing.assert_array_equal(found, 2 * RELU)
            found[...] = 7
    with pytest.raises(hetero.InferenceError, match="out for output 'z': the array is read-only"):
        compiled(X, out={"z": memoryview(bytes(24)).cast("f", (2, 3))})


class _Holder:
    """A value that holds an array, such as openvino.Tensor."""

    data = np.zeros((2, 3), np.float32)


def test_objects_that_hold_an_array(compiled: hetero.CompiledModel) -> None:
    with pytest.raises(hetero.InferenceError, match="buffer, found _Holder; pass its array, .data$"):
        compiled(X, out={"z": _Holder()})


class _Shown:
    """A value with DLPack and without a length, such as onnxruntime.OrtValue."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_the_text_of_outputs_that_hold_other_objects(compiled: hetero.CompiledModel) -> None:
    array = np.zeros((2, 3), np.float32)
    outputs = compiled(X, out={"z": _Shown(array)})
    assert repr(outputs) == "Outputs({'y': float32[2, 3], 'z': _Shown})"
    np.testing.assert_array_equal(array, 2 * RELU)


class _Legacy:
    """A tensor of a library, as NumPy before 2.3 imports it: by DLPack without leave to write."""

    def __init__(self, memory: np.ndarray, viewed: np.ndarray) -> None:
        self._memory, self._viewed = memory, viewed

    def __dlpack__(self, **options: Any) -> Any:
        return self._memory.__dlpack__()  # not versioned, so it does not say whether it is writable

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._viewed


def test_tensors_that_dlpack_imports_read_only(compiled: hetero.CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """They receive results if they are writable as arrays over the same memory."""
    imported = np.from_dlpack

    def read_only(value: Any) -> np.ndarray:
        array = imported(value)
        array.flags.writeable = False
        return array

    monkeypatch.setattr(np, "from_dlpack", read_only)
    memory, other = np.full((2, 3), 7, np.float32), np.full((2, 3), 7, np.float32)
    value = _Legacy(memory, memory)
    assert compiled(X, out={"z": value})["z"] is value
    np.testing.assert_array_equal(memory, 2 * RELU)
    fixed = memory.view()
    fixed.flags.writeable = False
    for viewed in (other, fixed, memory.T, memory.view(np.int32)):
        with pytest.raises(hetero.InferenceError, match="out for output 'z': the array is read-only"):
            compiled(X, out={"z": _Legacy(memory, viewed)})
    np.testing.assert_array_equal(other, np.full((2, 3), 7))


def test_torch(compiled: hetero.CompiledModel) -> None:
    torch = pytest.importorskip("torch")
    value = torch.zeros((2, 3))
    assert compiled(X, out={"z": value})["z"] is value
    np.testing.assert_array_equal(value.numpy(), 2 * RELU)
    with pytest.raises(hetero.InferenceError, match="Tensor, whose __dlpack__ returned no CPU array"):
        compiled(X, out={"z": torch.zeros((2, 3), requires_grad=True)})


@pytest.mark.parametrize("device", DEVICES)
def test_results_that_are_inputs_constants_or_views(core: hetero.Core, device: str) -> None:
    """The runner cannot place an input, a constant, a value that it returns twice, or a reshaped value."""
    c = np.float32([1, 2])
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["flat"]),
        helper.make_node("Identity", ["a"], ["b"]),
    ]
    model = make_model(nodes, {"x": [2, 3]}, ["same", "a", "flat", "b", "c"])
    model.graph.initializer.extend([numpy_helper.from_array(c, "c"), numpy_helper.from_array(np.int64([6]), "shape")])
    request = core.compile_model(core.read_model(model), device).create_infer_request()
    expected = {"same": X, "a": RELU, "flat": RELU.ravel(), "b": RELU, "c": c}
    names = list(expected)
    for number in range(64):  # every subset of the outputs, twice
        chosen = [name for bit, name in enumerate(names) if number >> bit & 1]
        out = {name: np.full(expected[name].shape, 7, np.float32) for name in chosen}
        x = X.copy()
        outputs = request.infer(x, out=out)
        x[...] = 0
        for name in names:
            np.testing.assert_array_equal(outputs[name], expected[name], err_msg=f"{name} of {chosen}")
            assert (name in out) == (outputs[name] is out.get(name))
            assert not any(np.may_share_memory(outputs[name], outputs[other]) for other in names if other != name)
    np.testing.assert_array_equal(core.compile_model(core.read_model(model), device)(X)["c"], c)


def test_results_in_the_memory_of_each_other(compiled: hetero.CompiledModel) -> None:
    """A runner may return, for one output, what it has placed in the array for another."""
    y, z = np.full((2, 3), 1, np.float32), np.full((2, 3), 2, np.float32)
    given = bind_out(compiled.outputs, [y, z], [])
    given.check([z, y])
    given.fill([z, y])
    np.testing.assert_array_equal(y, np.full((2, 3), 2))
    np.testing.assert_array_equal(z, np.full((2, 3), 1))


@pytest.mark.parametrize("device", DEVICES)
def test_shapes_that_depend_on_data(core: hetero.Core, device: str) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("Neg", ["at"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "data",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1, "k"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    request = core.compile_model(core.read_model(model), device).create_infer_request()
    for x in ([0, 1, 0, 1], [0, 1, 0, 1], [1, 1, 1, 0], [0, 0, 0, 0]):
        values = np.float32(x)
        expected = -np.array(np.nonzero(values))
        y = np.full(expected.shape, 7, np.int64)
        assert request.infer(values, out=y)["y"] is y
        np.testing.assert_array_equal(y, expected)
        says = f"out for output 'y': expected int64 [1, {expected.shape[1]}], found int64 [1, 5]"
        with pytest.raises(hetero.InferenceError, match=re.escape(says)):
            request.infer(values, out=np.empty((1, 5), np.int64))


@pytest.mark.parametrize("device", ["TEMPLATE", "HETERO:TEMPLATE,CPU"])
def test_strings(core: hetero.Core, device: str) -> None:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "text",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [2])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    y = np.empty(2, object)
    compiled = core.compile_model(core.read_model(model), device)
    compiled({"x": np.array(["a", "b"], object)}, out={"y": y})
    assert y.tolist() == ["a", "b"]


@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU.0,CPU.1"])
def test_cpu_allocates_nothing_for_given_outputs(core: hetero.Core, device: str) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="relu"), helper.make_node("Sqrt", ["a"], ["y"], name="sqrt")]
    model = core.read_model(make_model(nodes, {"x": [1 << 18]}, ["y"]))
    pins = {"sqrt": "CPU.1"} if device.startswith("HETERO") else None
    compiled = core.compile_model(model, device, pins=pins)
    request = compiled.create_infer_request()
    x, y = np.full(1 << 18, 4, np.float32), np.empty(1 << 18, np.float32)
    between = x.nbytes if pins else 0
    request.infer(x, out=y)
    tracemalloc.start()
    try:
        request.infer(x, out=y)
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert used < between + 20_000
    np.testing.assert_array_equal(y, np.full(1 << 18, 2, np.float32))


def test_pipelines(core: hetero.Core) -> None:
    config = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}
    compiled = core.compile_model(_model(core), "HETERO:CPU.0,CPU.1", config, pins={"add": "CPU.1", "relu": "CPU.0"})
    given = [[np.empty((2, 3), np.float32) for _ in range(2)] for _ in range(8)]
    futures = [compiled.submit(X + number, out=out) for number, out in enumerate(given)]
    for number, (future, (y, z)) in enumerate(zip(futures, given, strict=True)):
        outputs = future.result()
        assert outputs["y"] is y
        assert outputs["z"] is z
        np.testing.assert_array_equal(y, np.maximum(X + number, 0))
        np.testing.assert_array_equal(z, 2 * y)
    with pytest.raises(hetero.InferenceError, match="expected float32"):
        compiled.submit(X, out={"z": np.empty(2, np.float32)}).result()
    y = np.empty((2, 3), np.float32)
    assert compiled(X, out={"y": y})["y"] is y
    np.testing.assert_array_equal(y, RELU)


def test_worker_processes(core: hetero.Core) -> None:
    compiled = core.compile_model(_model(core), "CPU", {"ISOLATION": "PROCESS"})
    for _ in range(2):
        z = np.full((2, 3), 7, np.float32)
        outputs = compiled(X, out={"z": z})
        assert outputs["z"] is z
        np.testing.assert_array_equal(z, 2 * RELU)
        np.testing.assert_array_equal(outputs["y"], RELU)


def test_sequences_are_refused(core: hetero.Core) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> s (float[2] x) => (seq(float[2]) y) { y = SequenceConstruct(x) }'
    )
    compiled = core.compile_model(core.read_model(model), "TEMPLATE")
    with pytest.raises(hetero.InferenceError, match="out for output 'y': only tensors"):
        compiled(np.zeros(2, np.float32), out={"y": np.zeros(2, np.float32)})


def test_a_failed_inference(core: hetero.Core) -> None:
    """A failed inference with given arrays leaves the request usable."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> m (float[n] x, int64[1] s) => (float[k] y) { y = Reshape(x, s) }'
    )
    for device in DEVICES[:3]:
        request = core.compile_model(core.read_model(model), device).create_infer_request()
        x, y = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
        for shape, fails in ((4, False), (3, True), (4, False)):
            feed = {"x": x, "s": np.int64([shape])}
            if fails:
                with pytest.raises(hetero.InferenceError):
                    request.infer(feed, out=y)
            else:
                np.testing.assert_array_equal(request.infer(feed, out=y)["y"], x)
                assert not np.may_share_memory(request.infer(feed)["y"], y)


@pytest.mark.parametrize("config", [{}, {"PERF_COUNT": True}, {"OBJECTIVE": "LATENCY"}])
def test_steps_write_outputs_that_later_steps_read(core: hetero.Core, config: dict[str, Any]) -> None:
    """Two branches on two devices and a join: y is an output of the model and an input of two steps."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="first"),
        helper.make_node("Add", ["y", "y"], ["a"], name="left"),
        helper.make_node("Mul", ["y", "y"], ["b"], name="right"),
        helper.make_node("Sub", ["a", "b"], ["z"], name="join"),
    ]
    model = core.read_model(make_model(nodes, {"x": ["n", 3]}, ["z", "y", "b"]))
    pins = {"first": "CPU.0", "left": "CPU.1", "right": "CPU.0", "join": "CPU.1"}
    request = core.compile_model(model, "HETERO:CPU.0,CPU.1", config, pins=pins).create_infer_request()
    for rows in (2, 2, 3, 2, 2, 1):
        x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3) - 2
        y = np.maximum(x, 0)
        expected = {"z": y + y - y * y, "y": y, "b": y * y}
        for number in range(8):
            out = {name: np.full_like(x, 7) for bit, name in enumerate(expected) if number >> bit & 1}
            outputs = request.infer(x, out=out)
            for name, wanted in expected.items():
                np.testing.assert_array_equal(outputs[name], wanted)
                assert (outputs[name] is out.get(name)) == (name in out)


def test_requests_at_the_same_time(core: hetero.Core) -> None:
    compiled = core.compile_model(_model(core), "CPU", {"NUM_STREAMS": 2})
    given = [np.empty((64, 3), np.float32) for _ in range(50)]
    inputs = [np.full((64, 3), number, np.float32) for number in range(50)]
    futures = [compiled.submit(x, {"z": z}) for x, z in zip(inputs, given, strict=True)]
    for x, z, future in zip(inputs, given, futures, strict=True):
        assert future.result()["z"] is z
        np.testing.assert_array_equal(z, 2 * x)


@pytest.mark.parametrize(
    ("devices", "config"),
    [
        ("CPU.0,CPU.1", {}),
        ("CPU.0,CPU.1", {"OBJECTIVE": "LATENCY"}),
        ("CPU.0,CPU.1", {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}),
        ("TEMPLATE,CPU", {}),
    ],
)
def test_random_places_beside_inputs_over_several_devices(
    core: hetero.Core, devices: str, config: dict[str, Any]
) -> None:
    """Inputs and places are anywhere in one buffer. A call raises if a place overlaps an input or another place, and
    otherwise changes nothing but the places."""
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"], name="0"),
        helper.make_node("Relu", ["a"], ["b"], name="1"),
        helper.make_node("Identity", ["b"], ["c"], name="2"),
        helper.make_node("Sub", ["c", "x"], ["d"], name="3"),
    ]
    model = core.read_model(make_model(nodes, {"x": ["n", 3], "w": ["n", 3]}, ["d", "b", "c", "a", "x"]))
    names = devices.split(",")
    pins = {} if "MODEL_DISTRIBUTION_POLICY" in config else {str(node): names[node % 2] for node in range(4)}
    request = core.compile_model(model, f"HETERO:{devices}", config, pins=pins).create_infer_request()
    rng, outcomes = np.random.default_rng(7), {True: 0, False: 0}
    for _ in range(150):
        rows = int(rng.integers(0, 3))
        buffer = rng.integers(-9, 9, 120).astype(np.float32)
        begins = {name: int(rng.integers(0, 115)) for name in "xwabcd"}
        given = [name for name in "abcd" if rng.random() < 0.6]
        at = {name: buffer[begins[name] :][: 3 * rows] for name in begins}
        rows = min(len(array) for array in at.values()) // 3
        at = {name: array[: 3 * rows].reshape(rows, 3) for name, array in at.items()}
        x, w = at["x"].copy(), at["w"].copy()
        expected = {"a": x + w, "b": np.maximum(x + w, 0), "d": np.maximum(x + w, 0) - x, "x": x}
        expected["c"] = expected["b"]
        wanted = buffer.copy()
        for name in given:
            wanted[begins[name] :][: 3 * rows] = expected[name].ravel()
        used = [(name, other) for name in given for other in [*given[: given.index(name)], "x", "w"]]
        overlaps = rows > 0 and any(abs(begins[name] - begins[other]) < 3 * rows for name, other in used)
        outcomes[overlaps] += 1
        out = {name: at[name] for name in given}
        if overlaps:
            before = buffer.copy()
            with pytest.raises(hetero.InferenceError, match="overlaps"):
                request.infer({"x": at["x"], "w": at["w"]}, out=out)
            np.testing.assert_array_equal(buffer, before)
            continue
        outputs = request.infer({"x": at["x"], "w": at["w"]}, out=out)
        np.testing.assert_array_equal(buffer, wanted)
        for name, value in expected.items():
            np.testing.assert_array_equal(outputs[name], value)
            assert (name in out) == (outputs[name] is out.get(name))
    assert min(outcomes.values()) > 20
