"""Steps that run without Python between them: results, and every way in which they must not run so."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import hetero
from hetero import _kernels, _program, _workspace
from hetero.compiling.hetero_model import schedule_of
from hetero.devices.cpu.plugin import CpuPlugin
from hetero.plugin.executor import DeviceExecutors
from hetero.runtime.parallel import StepGraph, _memory
from hetero.runtime.schedule import ScheduleRunner

node = helper.make_node
Array = np.ndarray[Any, Any]
ONE_THREAD = {"INFERENCE_NUM_THREADS": 1}
RUNS = 5  # until the steps are bound


@pytest.fixture(autouse=True)
def always_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of these sizes are too short for it."""
    monkeypatch.setattr("hetero.runtime.schedule.saved_by_parallel", lambda graph, seconds: True)


def model_of(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("y",), size: Any = 64) -> onnx.ModelProto:
    """``x``: float32 [size, 16]; outputs of the same type, and those that begin with i are int64 of any shape."""
    for at, each in enumerate(nodes):
        each.name = f"n{at}"
    ports = [
        helper.make_tensor_value_info(
            name, TensorProto.INT64 if name[0] == "i" else TensorProto.FLOAT, None if name[0] == "i" else [size, 16]
        )
        for name in outputs
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, 16])
    graph = helper.make_graph(list(nodes), "g", [x], ports)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def cut(
    proto: onnx.ModelProto, devices: str, config: dict[str, Any] = ONE_THREAD, timed: bool = False
) -> ScheduleRunner:
    """A runner with one step for each node, on the CPU device with the id that ``devices`` gives."""
    plugin, model = CpuPlugin(), hetero.Core().read_model(proto)
    parts = [np.int32([at]) for at in range(model.num_nodes)]
    models = model.extract_all(parts, [f"part{at}" for at in range(len(parts))])
    compiled = [
        plugin.compile_model(part, {**config, "DEVICE_ID": id_, "PERF_COUNT": timed})
        for part, id_ in zip(models, devices, strict=True)
    ]
    schedule = schedule_of(model, list(zip(models, compiled, strict=True)), DeviceExecutors(plugin.executors))
    return ScheduleRunner(schedule, timed, overlaps=True)


def two_branches() -> onnx.ModelProto:
    """``a`` is an output that two later steps read."""
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Abs", ["x"], ["b"]),
        node("Exp", ["b"], ["c"]),
        node("Add", ["a", "c"], ["d"]),
        node("Mul", ["d", "a"], ["y"]),
    ]
    return model_of(nodes, ("y", "a"))


def expected(x: Array) -> list[Array]:
    return [(-x + np.exp(np.abs(x))) * -x, -x]


def inputs(seed: int, size: int = 64) -> Array:
    return np.random.default_rng(seed).standard_normal((size, 16), np.float32)


def bound(proto: onnx.ModelProto, devices: str, x: Array) -> ScheduleRunner:
    runner = cut(proto, devices)
    for _ in range(RUNS):
        runner.run([x])
    assert runner._bound is not None
    return runner


def ran_bound(runner: ScheduleRunner) -> bool:
    """Whether the last run was one without Python: the others measure steps themselves. Forgets the times."""
    assert runner._bound is not None
    return bool(np.isfinite(runner._bound.least_seconds()).all())


def run_often(runner: ScheduleRunner, x: Array) -> None:
    for _ in range(100):
        runner.run([x])


def check(runner: ScheduleRunner, x: Array) -> list[Array]:
    results = list(runner.run([x]))
    for found, value in zip(results, expected(x), strict=True):
        np.testing.assert_allclose(found, value, 1e-5)
    return results


def test_results_are_new_arrays_in_every_run() -> None:
    runner = bound(two_branches(), "01101", inputs(0))
    ran_bound(runner)
    kept = []
    for seed in range(1, 20):
        kept.append(check(runner, inputs(seed)))
        assert ran_bound(runner)
        if seed == 5:
            kept[-1][1][...] = 7  # the caller's own
            kept.pop()
        if seed % 7 == 0:
            gc.collect()
    seeds = [seed for seed in range(1, 20) if seed != 5]
    for seed, results in zip(seeds, kept, strict=True):
        for found, value in zip(results, expected(inputs(seed)), strict=True):
            np.testing.assert_allclose(found, value, 1e-5)


def test_inputs_of_other_kinds() -> None:
    """Sizes, layouts and types that differ run step by step; the next input that fits runs without Python again."""
    runner = bound(model_of(two_branches().graph.node, ("y", "a"), "n"), "01101", inputs(0))
    for x in (inputs(1, 3), inputs(2, 1), inputs(3, 0), inputs(4, 128)[::2], np.asfortranarray(inputs(5))):
        ran_bound(runner)
        check(runner, x)
        assert not ran_bound(runner)
        check(runner, inputs(6))
    unaligned = np.frombuffer(b"-" + inputs(8).tobytes(), np.uint8)[1:].view(np.float32).reshape(64, 16)
    assert not unaligned.flags.aligned
    check(runner, unaligned)
    assert check(runner, inputs(9).astype(np.float64))[0].dtype == np.float64
    check(runner, inputs(9))


@pytest.mark.parametrize(
    "config", [{"INFERENCE_NUM_THREADS": 2}, {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 2}], ids=["threads", "streams"]
)
def test_devices_of_several_threads(config: dict[str, Any]) -> None:
    runner = cut(two_branches(), "01101", config)
    for seed in range(2 * RUNS):
        check(runner, inputs(seed))
    assert (runner._bound is None) == (config["INFERENCE_NUM_THREADS"] > 1)


def test_timed_steps_are_not_bound() -> None:
    runner = cut(two_branches(), "01101", timed=True)
    for seed in range(2 * RUNS):
        check(runner, inputs(seed))
    assert runner._bound is None
    assert len(runner.profile()) == 5


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        # The number of results depends on the data.
        ([node("Abs", ["x"], ["y"]), node("NonZero", ["x"], ["i"]), node("Neg", ["x"], ["z"])], ("y", "i", "z")),
        # An output is an input.
        ([node("Abs", ["x"], ["y"]), node("Identity", ["x"], ["z"])], ("y", "z")),
    ],
    ids=["data", "identity"],
)
def test_steps_that_are_more_than_a_program(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> None:
    runner = cut(model_of(nodes, outputs), "0" + "1" * (len(nodes) - 1))
    for seed in range(2 * RUNS):
        x = inputs(seed)
        x[::3] = 0
        found = dict(zip(outputs, runner.run([x]), strict=True))
        np.testing.assert_array_equal(found["y"], np.abs(x))
        if "i" in found:
            np.testing.assert_array_equal(found["i"], np.nonzero(x))
    assert runner._bound is None


def test_a_step_that_fails() -> None:
    """The error is the same as in a run step by step, and the next run is right."""
    nodes = [
        node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        node("Abs", ["x"], ["b"]),
        node("Gather", ["b", "i"], ["c"]),
        node("Neg", ["x"], ["a"]),
        node("ReduceSum", ["c"], ["y"]),
        node("Add", ["y", "a"], ["z"]),
    ]
    proto = model_of(nodes, ("z",))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    good = np.abs(inputs(0))
    runner = bound(proto, "010110", good)
    before = runner.run([good])[0]
    bad = good.copy()
    bad[5, 5] = 1e6
    for _ in range(3):
        ran_bound(runner)
        with pytest.raises(hetero.InferenceError, match="subgraph 3") as raised:
            runner.run([bad])
        assert runner._bound is not None
        assert not np.isfinite(runner._bound.least_seconds()[4:]).any()  # these read what the step did not write
        assert "out of" in str(raised.value) or "index" in str(raised.value)
        np.testing.assert_array_equal(runner.run([good])[0], before)


def test_steps_of_one_device_run_one_at_a_time() -> None:
    """They share scratch memory, here for the packed second operands."""
    size, count = 96, 6
    nodes = [node("Neg", ["x"], ["w"])]
    nodes += [node("MatMul", ["x", "w" if i % 2 else "x"], [f"v{i}"]) for i in range(count)]
    proto = model_of(nodes, ("w", *(f"v{i}" for i in range(count))), size)
    for port in (*proto.graph.input, *proto.graph.output):
        port.type.tensor_type.shape.dim[1].dim_value = size
    x = np.random.default_rng(0).integers(-8, 8, (size, size)).astype(np.float32)
    square = x @ x
    runner = bound(proto, "1" + "0" * count, x)
    for _ in range(20):
        for i, found in enumerate(runner.run([x])[1:]):
            np.testing.assert_array_equal(found, -square if i % 2 else square)


def test_cancellation() -> None:
    """A request to cancel from another thread ends a long run, also while only the other thread has a step."""
    size = 512
    nodes = [node("MatMul", ["x", "x"], ["v0"]), node("Neg", ["x"], ["w"])]
    nodes += [node("MatMul", [f"v{i}", "x"], [f"v{i + 1}"]) for i in range(30)]
    nodes += [node("Add", ["v30", "w"], ["y"])]
    proto = model_of(nodes)
    for port in (*proto.graph.input, *proto.graph.output):
        port.type.tensor_type.shape.dim[0].dim_value = port.type.tensor_type.shape.dim[1].dim_value = size
    x = np.eye(size, dtype=np.float32)
    runner = bound(proto, "10" + "1" * 30 + "0", x)
    ran_bound(runner)
    begin = time.perf_counter()
    np.testing.assert_array_equal(runner.run([x])[0], 0 * x)
    whole = time.perf_counter() - begin
    assert ran_bound(runner)
    timer = threading.Timer(whole / 4, runner.cancellation.request)
    timer.start()
    try:
        with pytest.raises(hetero.Cancelled):
            run_often(runner, x)
    finally:
        timer.join()
        runner.cancellation.clear()
    np.testing.assert_array_equal(runner.run([x])[0], 0 * x)


@pytest.mark.parametrize(("reads", "fills"), [([0], [2]), ([0, 1, 3], [2]), ([0, 1], []), ([0, 1], [2, 3])])
def test_steps_with_other_numbers_of_values_than_their_programs(reads: list[int], fills: list[int]) -> None:
    f4 = np.dtype(np.float32)
    tensors = [(f4, (3,), 2, 0), (f4, (3,), 2, 1), (f4, (3,), 3, 0)]
    adds = _program.Program(tensors, [("add", [0, 1], [2], (), (), "")], (), [((3,), f4)] * 2, [((3,), f4)], 0)
    values = {slot: np.zeros(3, np.float32) for slot in range(4)}

    def bound(reads: list[int], fills: list[int]) -> _workspace.BoundSteps:
        step = _workspace.Workspace(adds)
        return _workspace.BoundSteps([step], [0], [reads], [fills], [0], [[]], fills, values, _kernels.Team(1))

    bound([0, 1], [2])
    with pytest.raises(ValueError, match="cannot run without Python"):
        bound(reads, fills)


def test_requests_at_the_same_time() -> None:
    """Requests of one compiled model share the threads: one at a time uses them, and others run step by step."""
    runner = bound(two_branches(), "01101", inputs(0))
    schedule = runner._schedule
    errors: list[BaseException] = []

    def work(first: int) -> None:
        try:
            own = ScheduleRunner(schedule, overlaps=True)
            for seed in range(first, first + 150):
                check(own, inputs(seed))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_places_for_results() -> None:
    runner = bound(two_branches(), "01101", inputs(0))
    places = [np.empty(64 * 16 * 4, np.uint8) for _ in range(2)]
    results = runner.run_into([inputs(1)], places)
    for found, place, value in zip(results, places, expected(inputs(1)), strict=True):
        np.testing.assert_allclose(found, value, 1e-5)
        assert np.shares_memory(found, place)
    check(runner, inputs(2))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_graphs(data: st.DataObject) -> None:
    """The same results as NumPy's, whatever the order in which steps of two devices end."""
    count = data.draw(st.integers(2, 16))
    nodes, values = [], ["x"]
    for number in range(count):
        op = data.draw(st.sampled_from(["Neg", "Abs", "Add", "Mul", "Max"]))
        reads = [data.draw(st.sampled_from(values)) for _ in range(1 if op in ("Neg", "Abs") else 2)]
        nodes.append(node(op, reads, [f"v{number}"]))
        values.append(f"v{number}")
    read = {name for each in nodes for name in each.input}
    ends = [name for name in values[1:] if name not in read]
    outputs = sorted({*ends, data.draw(st.sampled_from(values[1:]))})
    runner = cut(model_of(nodes, outputs), "".join(data.draw(st.sampled_from("01")) for _ in range(count)))
    numpy = {"Neg": np.negative, "Abs": np.abs, "Add": np.add, "Mul": np.multiply, "Max": np.maximum}
    for seed in range(RUNS + 3):
        x = np.clip(inputs(seed), -1, 1)
        wanted = {"x": x}
        for each in nodes:
            wanted[each.output[0]] = numpy[each.op_type](*[wanted[name] for name in each.input])
        for name, found in zip(outputs, runner.run([x]), strict=True):
            np.testing.assert_allclose(found, wanted[name], 1e-5, 1e-6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_values_in_one_memory_are_never_alive_at_the_same_time(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    reads = [data.draw(st.lists(st.integers(0, number), max_size=3)) for number in range(count)]
    graph = StepGraph.of([("A", reads[number], [number + 1]) for number in range(count)], ())
    specs = {slot: ((data.draw(st.integers(0, 40)), 4), np.dtype(np.float32)) for slot in range(1, count + 1)}
    arrays = _memory(graph, reads, [[number + 1] for number in range(count)], specs)
    reach = [{number} for number in range(count)]
    for number in reversed(range(count)):
        for follower in graph.followers[number]:
            reach[number] |= reach[follower]
    users = {slot: {slot - 1} | {number for number in range(count) if slot in reads[number]} for slot in specs}
    for slot, array in arrays.items():
        assert (array.shape, array.dtype) == specs[slot]
        assert array.ctypes.data % 64 == 0
        for other in range(1, slot):
            if np.shares_memory(array, arrays[other]):
                assert all(slot - 1 in reach[user] and user != slot - 1 for user in users[other])
