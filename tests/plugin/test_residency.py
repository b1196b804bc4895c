"""Values stay in the memory of the device that computes them, and cross only where something else reads them."""

from __future__ import annotations

import gc
import json
import pickle
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import helper

import hetero
from hetero.plugin.profile import HOST
from hetero.plugin.remote import HostTensor, RemoteTensor
from hetero.report.trace import to_trace
from island import DEVICE_TYPE, IslandPlugin, Sea, Shell
from model_zoo import make_model

node = helper.make_node
X = np.float32([[1, -2, 3], [-4, 5, -6]])


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, np.float32(0))


@pytest.fixture
def sea() -> Sea:
    return Sea()


@pytest.fixture
def islands(core: hetero.Core, sea: Sea) -> hetero.Core:
    """ISLAND and SECOND share a memory; OTHER has one of its own."""
    core.register_plugin("ISLAND", lambda: IslandPlugin(sea))
    core.register_plugin("SECOND", lambda: IslandPlugin(sea))
    core.register_plugin("OTHER", lambda: IslandPlugin(Sea("OTHER")))
    return core


def chain(*names: str) -> onnx.ModelProto:
    values = ["x", *(f"v{at}" for at in range(len(names) - 1)), "y"]
    return make_model([node("Neg", [values[at]], [values[at + 1]], name=name) for at, name in enumerate(names)])


def compiled_chain(core: hetero.Core, *devices: str, **config: Any) -> hetero.CompiledModel:
    names = [f"n{at}" for at in range(len(devices))]
    listed = ",".join(dict.fromkeys((*devices, "CPU")))
    pins = dict(zip(names, devices, strict=True))
    return core.compile_model(core.read_model(chain(*names)), f"HETERO:{listed}", config, pins=pins)


def moves_of(request: hetero.InferRequest) -> list[tuple[str, str, str, int]]:
    return [(move.value, move.origin, move.target, move.nbytes) for move in request.profiling_info.moves]


# -- between steps ----------------------------------------------------------------------------------------------------


def test_values_of_one_memory_do_not_move(islands: hetero.Core, sea: Sea) -> None:
    compiled = compiled_chain(islands, "ISLAND", "SECOND", "ISLAND", "SECOND")
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 4
    np.testing.assert_array_equal(compiled(X)[0], X)
    assert (sea.uploaded, sea.downloaded) == ([24], [24])  # the input and the output


def test_each_crossing_is_one_move(islands: hetero.Core, sea: Sea) -> None:
    compiled = compiled_chain(islands, "ISLAND", "CPU", "SECOND", PERF_COUNT=True)
    request = compiled.create_infer_request()
    for _ in range(2):
        np.testing.assert_array_equal(request.infer(X)[0], -X)
        assert moves_of(request) == [
            ("x", HOST, "ISLAND", 24),
            ("v0", "ISLAND", HOST, 24),
            ("v1", HOST, "SECOND", 24),
            ("y", "SECOND", HOST, 24),
        ]
    assert (sea.uploaded, sea.downloaded) == ([24] * 4, [24] * 4)
    profile = request.profiling_info
    for move in profile.moves:
        assert move.begin_ns <= move.end_ns
    assert [move.subgraph for move in profile.moves] == [1, 2, 3, 3]
    assert pickle.loads(pickle.dumps(profile)).moves == profile.moves
    shown = [event for event in json.loads(to_trace(profile))["traceEvents"] if event.get("cat") == "move"]
    assert [(event["name"], event["args"]["bytes"]) for event in shown] == [
        ("x", 24),
        ("v0", 24),
        ("v1", 24),
        ("y", 24),
    ]
    assert all(event["dur"] >= 0 for event in shown)
    assert str(profile.moves[0]).startswith("x: host to ISLAND, 24 B in ")


def test_two_memories_meet_on_the_host(islands: hetero.Core, sea: Sea) -> None:
    request = compiled_chain(islands, "ISLAND", "OTHER", PERF_COUNT=True).create_infer_request()
    np.testing.assert_array_equal(request.infer(X)[0], X)
    assert moves_of(request)[1:3] == [("v0", "ISLAND", HOST, 24), ("v0", HOST, "OTHER", 24)]


def fan() -> onnx.ModelProto:
    """x is read by three nodes, v by two on the host and one on the device, and is an output."""
    return make_model(
        [
            node("Neg", ["x"], ["v"], name="v"),
            node("Add", ["x", "v"], ["a"], name="a"),
            node("Mul", ["v", "x"], ["b"], name="b"),
            node("Add", ["v", "a"], ["c"], name="c"),
            node("Add", ["b", "c"], ["y"], name="y"),
        ],
        outputs=("y", "v"),
    )


@pytest.mark.parametrize("timed", [False, True])
def test_a_value_is_moved_once_for_all_readers(islands: hetero.Core, sea: Sea, timed: bool) -> None:
    pins = {"v": "ISLAND", "a": "CPU", "b": "SECOND", "c": "CPU", "y": "ISLAND"}
    compiled = islands.compile_model(
        islands.read_model(fan()), "HETERO:ISLAND,SECOND,CPU", {"PERF_COUNT": timed}, pins=pins
    )
    request = compiled.create_infer_request()
    for _ in range(70):  # the runtime decides in between whether steps overlap
        y, v = request.infer(X)
    np.testing.assert_array_equal(v, -X)
    np.testing.assert_array_equal(y, -X * X - X)
    assert len(sea.uploaded) == 2 * 70  # x once, c once
    assert len(sea.downloaded) == 2 * 70  # v once for two readers and the output, y once
    v[:] = 0  # the caller's own
    np.testing.assert_array_equal(request.infer(X)[1], -X)


def test_steps_that_overlap_share_moves(islands: hetero.Core, sea: Sea) -> None:
    from hetero.runtime.schedule import ScheduleRunner

    pins = {"v": "ISLAND", "a": "CPU", "b": "TEMPLATE", "c": "CPU", "y": "ISLAND"}
    compiled = islands.compile_model(islands.read_model(fan()), "HETERO:ISLAND,CPU,TEMPLATE", pins=pins)
    assert isinstance(compiled, hetero.CompiledModel)
    runner = ScheduleRunner(compiled._schedule, overlaps=True)  # type: ignore[attr-defined]
    for times in range(1, 21):
        y, v = runner.run([X])
        np.testing.assert_array_equal(y, -X * X - X)
        np.testing.assert_array_equal(v, -X)
        assert len(sea.downloaded) == 2 * times
        assert len(sea.uploaded) == 3 * times  # x, b and c


def test_tensors_are_freed_after_their_last_reader(islands: hetero.Core, sea: Sea) -> None:
    compiled = compiled_chain(islands, *["ISLAND", "SECOND"] * 10)
    sea.capacity = 3 * X.nbytes  # the input, and an input and an output of a step
    np.testing.assert_array_equal(compiled(X)[0], X)
    gc.collect()
    assert sea.used() == 0


def test_single_devices_pipelines_and_multi(islands: hetero.Core, sea: Sea) -> None:
    model = islands.read_model(chain("n0", "n1"))
    for device, config in (
        ("ISLAND", {}),
        ("MULTI:ISLAND,CPU", {}),
        ("HETERO:ISLAND,CPU", {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}),
    ):
        compiled = islands.compile_model(model, device, config)
        for outputs in (compiled(X), compiled.submit(X).result(), compiled(X)):
            np.testing.assert_array_equal(outputs[0], X)
        kept = compiled(X, out=hetero.ON_DEVICE)[0]
        assert isinstance(kept, RemoteTensor)
        np.testing.assert_array_equal(kept.numpy(), X)


# -- inputs and outputs on the device ---------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["ISLAND", "HETERO:ISLAND,CPU", "HETERO:ISLAND,SECOND,CPU"])
def test_nothing_crosses_for_tensors_of_the_device(islands: hetero.Core, sea: Sea, device: str) -> None:
    pins = {"n1": "SECOND"} if "SECOND" in device else None
    compiled = islands.compile_model(islands.read_model(chain("n0", "n1", "n2")), device, pins=pins)
    x = sea.upload(X)
    sea.uploaded.clear()
    for run in (compiled, lambda *given, **more: compiled.submit(*given, **more).result()):
        y = run({"x": x}, out=hetero.ON_DEVICE)[0]
        assert isinstance(y, Shell)
        y = run({"x": y}, out={"y": hetero.ON_DEVICE})["y"]  # the output of one inference as the input of the next
        place = sea.create_tensor(np.float32, (2, 3))
        assert run(y, out=place)[0] is place
        assert (sea.uploaded, sea.downloaded) == ([], [])
        np.testing.assert_array_equal(place.secret, -X)
    np.testing.assert_array_equal(place.numpy(), -X)
    np.testing.assert_array_equal(compiled(x)[0], -X)  # an array again
    assert isinstance(compiled(x)[0], np.ndarray)
    assert repr(compiled(x, out=hetero.ON_DEVICE)) == "Outputs({'y': float32[2, 3]})"


class Foreign:
    """A tensor of another library."""

    def __init__(self, array: Any, kind: int = DEVICE_TYPE) -> None:
        self.array, self.kind = array, kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0

    def __dlpack__(self, **options: Any) -> Any:
        return self.array


def test_tensors_of_other_libraries_are_adopted(islands: hetero.Core, sea: Sea) -> None:
    compiled = compiled_chain(islands, "ISLAND", "CPU")
    np.testing.assert_array_equal(compiled(Foreign(X))[0], X)
    assert sea.uploaded == []
    place = Foreign(np.zeros_like(X))
    assert compiled_chain(islands, "CPU", "ISLAND")(X, out=place)[0] is place
    np.testing.assert_array_equal(place.array, X)
    for wrong, message in (
        (Foreign(X.astype(np.float64)), "expected float32 .*found dtype float64"),
        (Foreign(X[:1]), r"found shape \[1, 3\]"),
        (Foreign(X, kind=2), "Foreign, whose __dlpack__ returned no CPU array"),
    ):
        with pytest.raises(hetero.InferenceError, match=f"input 'x': {message}|input 'x'.*{message}"):
            compiled(wrong)
    with pytest.raises(hetero.InferenceError, match="input 'x'"):  # a device that nobody has
        islands.compile_model(islands.read_model(chain("n0")), "CPU")(Foreign(X))


def test_an_input_for_the_device_and_the_host(islands: hetero.Core, sea: Sea) -> None:
    pins = {"v": "ISLAND", "a": "CPU", "b": "SECOND", "c": "CPU", "y": "ISLAND"}
    compiled = islands.compile_model(islands.read_model(fan()), "HETERO:ISLAND,SECOND,CPU", pins=pins)
    x = sea.upload(X)
    sea.uploaded.clear()
    np.testing.assert_array_equal(compiled({"x": x})["y"], -X * X - X)
    assert len(sea.downloaded) == 3  # x, v and y
    assert len(sea.uploaded) == 1  # c
    other = Sea("OTHER").upload(X)
    np.testing.assert_array_equal(compiled({"x": other})["y"], -X * X - X)  # through the host


def test_a_device_tensor_on_the_cpu(islands: hetero.Core, sea: Sea) -> None:
    """It is copied to the host, and results are copied to it."""
    compiled = islands.compile_model(islands.read_model(chain("n0")), "CPU")
    place = sea.create_tensor(np.float32, (2, 3))
    assert compiled(sea.upload(X), out=place)[0] is place
    np.testing.assert_array_equal(place.secret, -X)
    kept = compiled(X, out=hetero.ON_DEVICE)[0]
    assert isinstance(kept, HostTensor)
    np.testing.assert_array_equal(np.from_dlpack(kept), -X)


def test_inputs_that_are_outputs_are_copied(islands: hetero.Core, sea: Sea) -> None:
    proto = make_model([node("Neg", ["x"], ["y"], name="n0")], outputs=("y", "x"))
    compiled = islands.compile_model(islands.read_model(proto), "HETERO:ISLAND,CPU")
    x = sea.upload(X)
    y, same = compiled(x, out=hetero.ON_DEVICE)
    assert same is not x
    same.write(y)
    np.testing.assert_array_equal(x.secret, X)
    array = compiled(x)[1]
    array[:] = 0
    np.testing.assert_array_equal(x.secret, X)


def test_property_of_the_compiled_model(islands: hetero.Core, sea: Sea) -> None:
    model = islands.read_model(fan())
    pins = {"v": "ISLAND", "a": "CPU", "b": "SECOND", "c": "CPU", "y": "CPU"}
    for device, kinds in (("HETERO:ISLAND,SECOND,CPU", (HostTensor, Shell)), ("ISLAND", (Shell, Shell))):
        own = pins if "HETERO" in device else None
        compiled = islands.compile_model(model, device, {"OUTPUTS_ON_DEVICE": True}, pins=own)
        for _ in range(3):
            y, v = compiled(X)
            assert (type(y), type(v)) == kinds
            np.testing.assert_array_equal(y.numpy(), -X * X - X)
            np.testing.assert_array_equal(v.numpy(), -X)
        compiled = islands.compile_model(model, device, {"OUTPUTS_ON_DEVICE": ("v",)}, pins=own)
        y, v = compiled(X)
        assert (type(y), type(v)) == (np.ndarray, Shell)
        place = np.empty_like(X)
        y, v = compiled(X, out=[None, place])  # a call overrides the property
        assert (type(y), v is place) == (np.ndarray, True)
    with pytest.raises(hetero.PropertyError, match="no output 'z'.*its outputs: y, v"):
        islands.compile_model(model, "CPU", {"OUTPUTS_ON_DEVICE": ("z",)})(X)
    with pytest.raises(hetero.PropertyError, match="OUTPUTS_ON_DEVICE: "):
        islands.compile_model(model, "CPU", {"OUTPUTS_ON_DEVICE": (1,)})
    cpu = islands.compile_model(model, "CPU", {"OUTPUTS_ON_DEVICE": True})
    assert [type(value) for value in cpu(X)] == [HostTensor, HostTensor]
    islands.set_property("CPU", {"OUTPUTS_ON_DEVICE": True})  # also in what HETERO computes when it compiles
    folded = make_model(
        [node("Neg", ["w"], ["f"], name="f"), node("Add", ["x", "f"], ["y"], name="y")], weights={"w": X}
    )
    compiled = islands.compile_model(islands.read_model(folded), "HETERO:ISLAND,CPU", pins={"f": "CPU"})
    np.testing.assert_array_equal(compiled(X)[0], X - X)


# -- bad input --------------------------------------------------------------------------------------------------------


def given(sea: Sea, dtype: Any = np.float32, shape: Sequence[int] = (2, 3)) -> Shell:
    return sea.create_tensor(dtype, shape)


@pytest.mark.parametrize("device", ["ISLAND", "HETERO:ISLAND,CPU"])
def test_wrong_tensors_for_results(islands: hetero.Core, sea: Sea, device: str) -> None:
    compiled = islands.compile_model(islands.read_model(fan()), device)
    x = sea.upload(X)
    read_only = given(sea)
    read_only.is_writable = False  # type: ignore[misc]
    shared = given(sea)
    for out, message in (
        ({"y": given(sea, np.float64)}, r"output 'y': expected dtype float32, found float64 \[2, 3\]"),
        ({"y": given(sea, shape=(3, 2))}, r"output 'y': expected float32 \[2, 3\], found float32 \[3, 2\]"),
        ({"y": read_only}, "output 'y': the tensor is read-only"),
        ({"v": x}, "output 'v': the tensor overlaps an input"),
        ({"v": Shell(sea, x.secret[:])}, "output 'v': the tensor overlaps an input"),
        ([shared, shared], "output 'v': the tensor overlaps the one for output 'y'"),
        ({"y": Foreign(X, kind=2)}, "output 'y': Foreign is in the memory of a device; pass a tensor that the context"),
    ):
        with pytest.raises(hetero.InferenceError, match=message):
            compiled(x, out=out)
    np.testing.assert_array_equal(compiled(x)["y"], -X * X - X)


@pytest.mark.parametrize("device", ["ISLAND", "HETERO:ISLAND,SECOND,CPU"])
def test_out_of_device_memory(islands: hetero.Core, sea: Sea, device: str) -> None:
    pins = {"n1": "SECOND"} if "SECOND" in device else None
    compiled = islands.compile_model(islands.read_model(chain("n0", "n1", "n2")), device, pins=pins)
    request = compiled.create_infer_request()
    request.infer(X)
    sea.capacity = 40
    for start in (request.infer, lambda x: (request.start_async(x), request.wait())):
        with pytest.raises(hetero.InsufficientMemory, match="8 bytes too few") as caught:
            start(X)
        assert caught.value.shortfall == {"ISLAND": 8}
    sea.capacity = 1000
    np.testing.assert_array_equal(request.infer(X)[0], -X)
    request.start_async(X)
    request.wait()
    np.testing.assert_array_equal(request.outputs[0], -X)


def test_a_device_that_is_lost(islands: hetero.Core, sea: Sea) -> None:
    compiled = compiled_chain(islands, "ISLAND", "CPU", "SECOND")
    request = compiled.create_infer_request()
    kept = request.infer(X, out=hetero.ON_DEVICE)[0]
    sea.is_lost = True
    with pytest.raises(hetero.InferenceError, match="ISLAND.*the island sank"):
        request.infer(X)
    with pytest.raises(RuntimeError, match="sank"):
        kept.numpy()
    sea.is_lost = False
    np.testing.assert_array_equal(request.infer(X)[0], -X)


def test_copies_that_fail(islands: hetero.Core, sea: Sea, monkeypatch: pytest.MonkeyPatch) -> None:
    request = compiled_chain(islands, "ISLAND", "CPU", "SECOND").create_infer_request()
    for owner, name, copied, note in (
        (Sea, "upload", "'x' could not be copied from host to ISLAND", "in subgraph 1 on ISLAND"),
        (Shell, "numpy", "'v0' could not be copied from ISLAND to host", "in subgraph 2 on CPU"),
    ):
        for error, expected in ((OSError("cable"), hetero.InferenceError), (MemoryError("pinned"), MemoryError)):
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, mock.Mock(side_effect=error))
                with pytest.raises(expected, match=f"{copied}: {type(error).__name__}: {error}") as caught:
                    request.infer(X)
            assert note in caught.value.__notes__
            np.testing.assert_array_equal(request.infer(X)[0], -X)


def test_results_outlive_the_next_run(islands: hetero.Core, sea: Sea) -> None:
    compiled = compiled_chain(islands, "ISLAND", "SECOND")
    request = compiled.create_infer_request()
    kept = [request.infer(X * factor, out=hetero.ON_DEVICE)[0] for factor in (1, 2, 3)]
    del request, compiled
    for factor, tensor in enumerate(kept, 1):
        np.testing.assert_array_equal(tensor.numpy(), X * factor)


# -- plans ------------------------------------------------------------------------------------------------------------


def test_plans_count_only_moves_that_happen(islands: hetero.Core) -> None:
    """Between devices with one memory a cut costs nothing but a launch."""
    from hetero.plugin import DeviceSpeed

    for name in ("ISLAND", "SECOND", "OTHER"):
        speed = DeviceSpeed(1e9, 1e9, 0.0, 0.0, 1e6, 1e-3, memory="sea" if name != "OTHER" else "")
        islands._registry.plugin(name).speed = lambda device, speed=speed: speed  # type: ignore[method-assign,misc]
    model = islands.read_model(chain("n0", "n1", "n2", "n3"))
    config = {"ASSIGNMENT": "COST"}
    transfers = {}
    for second in ("SECOND", "OTHER"):
        pins = {"n0": "ISLAND", "n1": second, "n2": "ISLAND", "n3": second}
        plan = islands.plan(model, f"HETERO:ISLAND,{second}", config, pins=pins)
        assert plan.latency is not None
        transfers[second] = plan.latency.transfers_s
    assert transfers["SECOND"] == pytest.approx(2 * (1e-3 + 24e-6))  # the input and the output
    assert transfers["OTHER"] == pytest.approx(2 * (1e-3 + 24e-6) + 3 * 2 * (1e-3 + 24e-6))
