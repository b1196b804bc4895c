"""Running pipelines: overlap, order, back-pressure, failures, cancelling, exits."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.errors import Cancelled, InferenceError, QueueFull
from hetero.plugin import CompiledModel, Plugin, Support
from hetero.plugin.request import RequestState
from hetero.runtime.pipelined import requests_to_fill
from model_zoo import make_model

PIPELINE = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}
STAGES = "HETERO:STEP.0,STEP.1,STEP.2"
LONG = 120.0  # seconds after which a test has hung


class Watch:
    """What stages did. ``seconds``: that each takes, by device id."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seconds = {"0": 0.0, "1": 0.0, "2": 0.0}
        self.events: list[tuple[str, str, float]] = []  # begin or end, device id, what was in the request
        self.threads: dict[str, set[str]] = {}
        self.runners = 0
        self.gate: threading.Event | None = None
        self.meets: dict[tuple[str, float], threading.Barrier] = {}  # what can only run at the same time

    def note(self, what: str, id_: str, number: float) -> None:
        with self.lock:
            self.events.append((what, id_, number))
            self.threads.setdefault(id_, set()).add(threading.current_thread().name)

    def most_at_once(self, ids: str = "012") -> int:
        running = most = 0
        for what, id_, _ in self.events:
            if id_ in ids:
                running += 1 if what == "begin" else -1
                most = max(most, running)
        return most


class Step(Plugin):
    """Adds one for each node; fails in stage 1 for numbers from 1000 up."""

    name = "STEP"
    properties = (*Plugin.properties, "NUM_STREAMS")

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> Support:
        return Support.from_reasons(model.num_nodes, {})

    def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        return StepModel(self.watch, str(config.get("DEVICE_ID", "")), model, self.full_config(config))

    def device_ids(self) -> tuple[str, ...]:
        return ("0", "1", "2")


class StepModel(CompiledModel):
    def __init__(self, watch: Watch, id_: str, model: hetero.Model, settings: Mapping[str, Any]) -> None:
        streams = settings["NUM_STREAMS"] or 1
        super().__init__(f"STEP.{id_}", model.inputs, model.outputs, {"NUM_STREAMS": streams})
        self.watch, self.id, self.count = watch, id_, model.num_nodes

    def create_runner(self) -> StepRunner:
        self.watch.runners += 1
        return StepRunner(self)


class StepRunner:
    def __init__(self, compiled: StepModel) -> None:
        self.compiled = compiled
        self.is_running = False

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        assert not self.is_running, "a runner does one thing at a time"
        self.is_running = True
        try:
            watch, id_ = self.compiled.watch, self.compiled.id
            number = float(inputs[0].flat[0])
            watch.note("begin", id_, number)
            if id_ == "1" and watch.gate is not None:
                assert watch.gate.wait(LONG)
            if (id_, number) in watch.meets:
                watch.meets[id_, number].wait(LONG)
            time.sleep(watch.seconds[id_])
            watch.note("end", id_, number)
            if id_ == "1" and number >= 1000:
                raise ValueError("too much")
            return [inputs[0] + np.float32(self.compiled.count)]
        finally:
            self.is_running = False

    def profile(self) -> tuple[()]:
        return ()


@pytest.fixture
def watch() -> Watch:
    return Watch()


def compiled_for(watch: Watch, config: Mapping[str, Any] | None = None, device: str = STAGES) -> CompiledModel:
    core = hetero.Core()
    core.register_plugin("STEP", lambda: Step(watch))
    nodes = [helper.make_node("Relu", ["x" if i == 0 else f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(3)]
    nodes[-1].output[0] = "y"
    model = core.read_model(make_model(nodes, {"x": [1, 4]}))
    compiled = core.compile_model(model, device, {**PIPELINE, **(config or {})})
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == device.count("STEP")
    return compiled


def batch(number: float) -> np.ndarray:
    return np.full((1, 4), number, np.float32)


def eventually(condition, seconds=LONG) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.002)


def test_stages_overlap_and_results_are_in_order(watch: Watch) -> None:
    """Three requests at a time, one in each stage, which wait for one another. Each stage adds one."""
    for number in range(2, 10):
        watch.meets |= dict.fromkeys([(id_, number) for id_ in "012"], threading.Barrier(3))
    compiled = compiled_for(watch)
    results = [float(found[0][0, 0]) for found in compiled.map(batch(i) for i in range(10))]
    assert results == [i + 3 for i in range(10)]
    assert watch.most_at_once() == 3
    assert all(watch.most_at_once(id_) == 1 for id_ in "012")
    for id_ in "012":
        assert [number for what, i, number in watch.events if (what, i) == ("begin", id_)] == sorted(
            number for what, i, number in watch.events if (what, i) == ("begin", id_)
        )
        (thread,) = watch.threads[id_]
        assert f"STEP.{id_}" in thread


def test_a_slow_stage_sets_the_pace_and_nothing_piles_up_before_it(watch: Watch) -> None:
    watch.gate = threading.Event()
    compiled = compiled_for(watch)
    futures = [compiled.submit(batch(i)) for i in range(20)]
    eventually(lambda: ("begin", "1", 1.0) in watch.events and ("end", "0", 2.0) in watch.events)
    time.sleep(0.05)
    # One in stage 1; two were done by stage 0 and wait; it begins no other.
    assert [number for what, id_, number in watch.events if (what, id_) == ("end", "0")] == [0, 1, 2]
    watch.gate.set()
    assert [float(future.result()[0][0, 0]) for future in futures] == [i + 3 for i in range(20)]


def test_unbounded_input_is_not_read_ahead(watch: Watch) -> None:
    drawn = []

    def endless():
        number = 0
        while True:
            drawn.append(number)
            yield batch(number)
            number += 1

    compiled = compiled_for(watch)
    in_flight = compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
    assert in_flight == requests_to_fill([1, 1, 1]) == 5
    results = compiled.map(endless())
    for i in range(12):
        assert float(next(results)[0][0, 0]) == i + 3
        assert len(drawn) <= i + in_flight
    results.close()


def test_a_failed_request_does_not_stop_the_others(watch: Watch) -> None:
    watch.seconds = dict.fromkeys("012", 0.002)
    compiled = compiled_for(watch)
    numbers = [0, 1, 1000, 3, 2000, 5, 6, 7]
    found = list(compiled.map([batch(number) for number in numbers], return_exceptions=True))
    for number, result in zip(numbers, found, strict=True):
        if number >= 1000:
            assert isinstance(result, InferenceError)
            assert "STEP.1 failed" in str(result)
            assert "too much" in str(result)
            assert any("subgraph 2" in note for note in result.__notes__)
        else:
            assert float(result[0][0, 0]) == number + 3
    futures = [compiled.submit(batch(number)) for number in numbers]
    assert [future.exception() is None for future in futures] == [number < 1000 for number in numbers]
    results = compiled.map([batch(number) for number in numbers])
    assert [float(next(results)[0][0, 0]) for _ in range(2)] == [3, 4]
    with pytest.raises(InferenceError, match="too much"):
        next(results)
    assert float(compiled(batch(4))[0][0, 0]) == 7


def test_runners_are_one_for_each_stage(watch: Watch) -> None:
    watch.seconds = dict.fromkeys("012", 0.002)
    compiled = compiled_for(watch)
    for future in [compiled.submit(batch(i)) for i in range(30)]:
        future.result()
    assert watch.runners == 3
    for i in range(5):
        assert float(compiled(batch(i))[0][0, 0]) == i + 3
    assert watch.runners == 3


def test_a_stage_with_streams_runs_several(watch: Watch) -> None:
    watch.meets = dict.fromkeys([("1", 1.0), ("1", 2.0)], threading.Barrier(2))
    compiled = compiled_for(watch, {"DEVICE_PROPERTIES": {"STEP.1": {"NUM_STREAMS": 2}}})
    assert compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 1 + 2 + 1 + 2 + 1
    results = [float(found[0][0, 0]) for found in compiled.map((batch(i) for i in range(16)), in_flight=8)]
    assert results == [i + 3 for i in range(16)]
    assert watch.most_at_once("1") == 2
    assert watch.most_at_once("0") == 1


def test_queue_limit(watch: Watch) -> None:
    watch.gate = threading.Event()
    compiled = compiled_for(watch, {"QUEUE_LIMIT": 3})
    futures = [compiled.submit(batch(0))]
    eventually(lambda: ("begin", "1", 1.0) in watch.events)
    futures += [compiled.submit(batch(i)) for i in (1, 2, 3)]
    eventually(lambda: ("end", "0", 2.0) in watch.events)
    futures += [compiled.submit(batch(i)) for i in (4, 5)]
    # One in stage 1, two before it, three before stage 0.
    with pytest.raises(QueueFull, match="3 requests wait"):
        compiled.submit(batch(7)).result()
    request = compiled.create_infer_request()
    with pytest.raises(QueueFull, match="use map"):
        request.start_async(batch(7))
    assert request.state is RequestState.IDLE
    watch.gate.set()
    assert [float(future.result()[0][0, 0]) for future in futures] == [i + 3 for i in range(6)]
    request.start_async(batch(9))
    assert request.wait(LONG * 1000)
    assert float(request.outputs[0][0, 0]) == 12
    with pytest.raises(hetero.PropertyError, match="QUEUE_LIMIT"):
        compiled_for(watch, {"QUEUE_LIMIT": -1})


def test_cancelling(watch: Watch) -> None:
    watch.gate = threading.Event()
    compiled = compiled_for(watch)
    requests = [compiled.create_infer_request() for _ in range(6)]
    for i, request in enumerate(requests):
        request.start_async(batch(i))
    eventually(lambda: ("end", "0", 2.0) in watch.events)
    time.sleep(0.05)
    # 0 runs in stage 1, 1 and 2 wait for it, 3 waits for room, 4 and 5 for stage 0.
    for i in (5, 2, 3, 0):
        requests[i].cancel()
    for i in (5, 2, 3):
        with pytest.raises(Cancelled):
            requests[i].wait(LONG * 1000)
    watch.gate.set()
    with pytest.raises(Cancelled):
        requests[0].wait(LONG * 1000)
    for i in (1, 4):
        assert requests[i].wait(LONG * 1000)
        assert float(requests[i].outputs[0][0, 0]) == i + 3
    assert [number for what, id_, number in watch.events if (what, id_) == ("begin", "1")] == [1, 2, 5]
    for i, request in enumerate(requests):
        request.start_async(batch(i))
        assert request.wait(LONG * 1000)
        assert float(request.outputs[0][0, 0]) == i + 3


def test_callbacks_may_start_the_next_and_must_not_wait(watch: Watch) -> None:
    compiled = compiled_for(watch)
    request, other = compiled.create_infer_request(), compiled.create_infer_request()
    rounds, waited = [], []

    def go_on(error: BaseException | None) -> None:
        rounds.append(error)
        if len(rounds) < 5:
            request.start_async(batch(len(rounds)))
            return
        other.start_async(batch(0))
        try:
            other.wait()
        except InferenceError as raised:
            waited.append(str(raised))

    request.set_callback(go_on)
    request.start_async(batch(0))
    eventually(lambda: waited)
    assert rounds == [None] * 5
    assert "must not wait" in waited[0]


def test_coroutines(watch: Watch) -> None:
    compiled = compiled_for(watch)

    async def many():
        return await asyncio.gather(*(compiled.arun(batch(i)) for i in range(8)))

    assert [float(found[0][0, 0]) for found in asyncio.run(many())] == [i + 3 for i in range(8)]


def test_requests_that_take_turns_do_not_overlap(watch: Watch) -> None:
    watch.seconds = dict.fromkeys("012", 0.002)
    compiled = compiled_for(watch, {"EXCLUSIVE_ASYNC_REQUESTS": True})
    assert len(list(compiled.map(batch(i) for i in range(4)))) == 4
    assert watch.most_at_once() == 1


def test_counters_of_requests_in_flight() -> None:
    core = hetero.Core()
    nodes = [helper.make_node("Exp", ["x" if i == 0 else f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(6)]
    nodes[-1].output[0] = "y"
    model = core.read_model(make_model(nodes, {"x": [8, 8]}))
    config = {**PIPELINE, "PERF_COUNT": True, "DISABLE_TRANSFORMATIONS": True}
    compiled = core.compile_model(model, "HETERO:CPU.0,CPU.1", config)
    requests = [compiled.create_infer_request() for _ in range(4)]
    for request in requests:
        request.start_async(np.zeros((8, 8), np.float32))
    for request in requests:
        request.wait()
        profile = request.profiling_info
        assert {row.subgraph for row in profile} == {1, 2}
        assert [span.device for span in profile.spans] == ["CPU.0", "CPU.1"]
        assert all("stage" in span.thread for span in profile.spans)
        assert [(t.source, t.readers, t.nbytes) for t in profile.transfers] == [(1, (2,), 256)]
    requests[0].infer(np.zeros((8, 8), np.float32))
    assert [span.device for span in requests[0].profiling_info.spans] == ["CPU.0", "CPU.1"]


def test_exported_pipelines_are_pipelines(tmp_path) -> None:
    core = hetero.Core()
    nodes = [helper.make_node("Exp", ["x" if i == 0 else f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(6)]
    nodes[-1].output[0] = "y"
    model = core.read_model(make_model(nodes, {"x": [8, 8]}))
    compiled = core.compile_model(model, "HETERO:CPU.0,CPU.1", PIPELINE)
    compiled.export_model(tmp_path / "m.hetero")
    imported = core.import_model(tmp_path / "m.hetero", "HETERO:CPU.0,CPU.1")
    assert imported.plan.pipeline == compiled.plan.pipeline
    assert imported.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 3
    x = np.full((8, 8), -3, np.float32)
    np.testing.assert_array_equal(next(imported.map([x]))[0], compiled(x)[0])


def test_threads_are_shared_out() -> None:
    core = hetero.Core()
    nodes = [helper.make_node("Exp", ["x" if i == 0 else f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(6)]
    nodes[-1].output[0] = "y"
    model = core.read_model(make_model(nodes, {"x": [8, 8]}))
    processors = len(os.sched_getaffinity(0))

    def threads(config):
        compiled = core.compile_model(model, "HETERO:CPU.0,CPU.1", {**PIPELINE, **config})
        return [part.get_property("INFERENCE_NUM_THREADS") for part in compiled.submodels]

    assert threads({}) == [max(1, processors // 2)] * 2
    assert threads({"INFERENCE_NUM_THREADS": 1}) == [1, 1]
    assert threads({"DEVICE_PROPERTIES": {"CPU.1": {"INFERENCE_NUM_THREADS": 3}}}) == [processors, 3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_leaves_the_child_a_pipeline_that_works(watch: Watch) -> None:
    watch.seconds = dict.fromkeys("012", 0.05)
    compiled = compiled_for(watch)
    request = compiled.create_infer_request()
    futures = [compiled.submit(batch(i)) for i in range(6)]
    request.start_async(batch(9))
    eventually(lambda: ("begin", "2", 2.0) in watch.events)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                request.wait(LONG * 1000)
            except InferenceError as error:
                code = 0 if "forked" in str(error) else 2
            results = [float(found[0][0, 0]) for found in compiled.map([batch(i) for i in range(3)])]
            code = code or (0 if results == [3, 4, 5] else 3)
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert [float(future.result()[0][0, 0]) for future in futures] == [i + 3 for i in range(6)]


def test_stages_in_worker_processes() -> None:
    core = hetero.Core()
    nodes = [helper.make_node("Exp", ["x" if i == 0 else f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(6)]
    nodes[-1].output[0] = "y"
    model = core.read_model(make_model(nodes, {"x": [1, "n"]}))
    config = {**PIPELINE, "ISOLATION": "PROCESS", "INFERENCE_NUM_THREADS": 1}
    compiled = core.compile_model(model, "HETERO:CPU.0,CPU.1", config)
    here = core.compile_model(model, "CPU")
    batches = [np.full((1, 3 + i % 3), -4 - i, np.float32) for i in range(12)]
    for found, given in zip(compiled.map(batches), batches, strict=True):
        np.testing.assert_allclose(found[0], here(given)[0], rtol=1e-6)
    found = list(compiled.map([batches[0], np.zeros((2, 3), np.float32), batches[1]], return_exceptions=True))
    assert [isinstance(each, InferenceError) for each in found] == [False, True, False]
