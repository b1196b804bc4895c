"""Steps that never run at the same time share the memory for intermediate values."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.runtime.schedule import ScheduleRunner
from model_zoo import make_model

DEVICES = "HETERO:CPU.0,CPU.1"


def network(rng: np.random.Generator, blocks: int) -> hetero.Model:
    """Products, transposes and softmax of any number of rows, in blocks that read one or two earlier values. Each
    block has a result."""
    nodes, weights, values = [], {}, ["x"]
    for i in range(blocks):
        source, other = (values[int(rng.integers(len(values)))] for _ in range(2))
        weights[f"w{i}"] = rng.standard_normal((16, 16)).astype(np.float32)
        nodes += [
            helper.make_node("MatMul", [source, f"w{i}"], [f"a{i}"], f"product{i}"),
            helper.make_node("Transpose", [f"a{i}"], [f"b{i}"], f"turn{i}", perm=[1, 0]),
            helper.make_node("Softmax", [f"b{i}"], [f"c{i}"], f"softmax{i}", axis=1),
            helper.make_node("Transpose", [f"c{i}"], [f"d{i}"], f"back{i}", perm=[1, 0]),
            helper.make_node("Add", [f"d{i}", other], [f"e{i}"], f"add{i}"),
        ]
        values.append(f"e{i}")
    proto = make_model(nodes, {"x": ["n", 16]}, [f"e{i}" for i in range(blocks)], weights=weights)
    return hetero.Core().read_model(proto)


def runner_of(core: hetero.Core, model: hetero.Model, pins: dict[str, str], hint: str) -> ScheduleRunner:
    config = {"INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": hint, "PARTITION_POLICY": "linear"}
    runner = core.compile_model(model, DEVICES, config, pins=pins).new_runner()
    assert isinstance(runner, ScheduleRunner)
    return runner


@pytest.mark.spread(2)
@pytest.mark.parametrize("hint", ["LATENCY", "THROUGHPUT"])
@pytest.mark.parametrize("seed", range(6))
def test_results_of_steps_with_one_memory(core: hetero.Core, seed: int, hint: str) -> None:
    """The memory grows and is too large in turn, while it is in use by several steps; earlier results stay."""
    rng = np.random.default_rng(seed)
    model = network(rng, 6)
    pins = {node.key: f"CPU.{int(rng.integers(2))}" for node in model.nodes}
    runner = runner_of(core, model, pins, hint)
    if runner._graph is not None:
        runner._in_parallel, runner._until_look = True, 1 << 30
    whole = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1})
    inputs = [rng.standard_normal((rows, 16)).astype(np.float32) for rows in (3, 300, 1, 300, 40, 0, 1000, 3)]
    results = [runner.run([x]) for x in inputs]
    for x, of_run in zip(inputs, results, strict=True):
        for got, expected in zip(of_run, whole(x).values(), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("hint", "memories"), [("LATENCY", 2), ("THROUGHPUT", 1)])
def test_which_steps_share(core: hetero.Core, hint: str, memories: int) -> None:
    """Those of a device; all, if no steps overlap."""
    model = network(np.random.default_rng(0), 4)
    pins = {node.key: f"CPU.{i // 2 % 2}" for i, node in enumerate(model.nodes)}
    runner = runner_of(core, model, pins, hint)
    devices = [step.compiled.device for step in runner._schedule.steps]
    arenas = [id(step_runner._arena) for step_runner in runner._runners]  # type: ignore[attr-defined]
    assert len(arenas) > 4
    assert len(set(arenas)) == memories
    assert len(set(zip(devices, arenas, strict=True))) == 2
    other = runner_of(core, model, pins, hint)
    assert not {id(step_runner._arena) for step_runner in other._runners} & set(arenas)  # type: ignore[attr-defined]


def test_two_requests_share_nothing(core: hetero.Core) -> None:
    model = network(np.random.default_rng(1), 5)
    pins = {node.key: f"CPU.{i % 2}" for i, node in enumerate(model.nodes)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = core.compile_model(model, DEVICES, {"INFERENCE_NUM_THREADS": 1}, pins=pins)
    inputs = [np.full((rows, 16), value, np.float32) for rows, value in ((50, 0.5), (7, 2), (200, -1))] * 20
    expected = [list(core.compile_model(model, "CPU")(x).values()) for x in inputs[:3]]
    for i, results in enumerate(compiled.map(inputs, in_flight=3)):
        for got, of_whole in zip(results.values(), expected[i % 3], strict=True):
            np.testing.assert_allclose(got, of_whole, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:FPGA may exceed its limit")
def test_simulated_devices_share(core: hetero.Core) -> None:
    """Those of one kind. Other runners, such as TEMPLATE's, take no part."""
    model = network(np.random.default_rng(2), 4)
    devices = ("FPGA", "CPU", "TEMPLATE")
    pins = {node.key: devices[i % 3] for i, node in enumerate(model.nodes) if node.op_type == "Add"}
    pins |= {node.key: "CPU" for node in model.nodes if node.op_type == "Softmax"}
    compiled = core.compile_model(model, f"HETERO:{','.join(devices)}", {"PERFORMANCE_HINT": "THROUGHPUT"}, pins=pins)
    runner = compiled.new_runner()
    assert isinstance(runner, ScheduleRunner)
    arenas: dict[str, set[int]] = {}
    for step, of_step in zip(runner._schedule.steps, runner._runners, strict=True):
        inner = getattr(of_step, "_inner", of_step)
        arenas.setdefault(step.compiled.device, set()).add(id(getattr(inner, "_arena", None)))
    assert set(arenas) == set(devices)
    assert [len(of_device) for of_device in arenas.values()] == [1, 1, 1]
    x = np.random.default_rng(3).standard_normal((5, 16)).astype(np.float32)
    for got, expected in zip(runner.run([x]), core.compile_model(model, "CPU")(x).values(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
