"""Steps of one inference at the same time: which wait for which, when it is worth it, and what comes out."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import hetero
from hetero.assign.costs import Costs, Measurement, NodeTimes
from hetero.plugin import CompiledModel, Plugin, Support
from hetero.plugin.executor import DeviceExecutors, ExecutorManager
from hetero.runtime.parallel import ParallelRun, StepGraph, saved_by_parallel
from model_zoo import make_model

X = np.float32([[1, -2, 3], [-4, 5, 6]])
SLEEP = 0.005


class Sleepy(Plugin):
    """Relu, in `SLEEP` seconds; tells how many ran at one time."""

    name = "SLEEPY"

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> Support:
        return Support.from_reasons(model.num_nodes, {})

    def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        return SleepyModel(self.watch, str(config.get("DEVICE_ID", "")), model)

    def device_ids(self) -> tuple[str, ...]:
        return ("0", "1", "2")


class Watch:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: dict[str, int] = {}
        self.most = 0
        self.most_of_one_device = 0
        self.threads: set[str] = set()
        self.fails = False


class SleepyModel(CompiledModel):
    def __init__(self, watch: Watch, id_: str, model: hetero.Model) -> None:
        super().__init__(f"SLEEPY.{id_}", model.inputs, model.outputs)
        self.watch = watch

    def create_runner(self) -> SleepyModel:
        return self

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        watch = self.watch
        with watch.lock:
            watch.running[self.device] = watch.running.get(self.device, 0) + 1
            watch.most = max(watch.most, sum(watch.running.values()))
            watch.most_of_one_device = max(watch.most_of_one_device, watch.running[self.device])
            watch.threads.add(threading.current_thread().name)
        time.sleep(SLEEP)
        with watch.lock:
            watch.running[self.device] -= 1
        if watch.fails and self.device == "SLEEPY.1":
            raise ValueError("overslept")
        return [sum(np.maximum(value, 0) for value in inputs) for _ in self.outputs]

    def profile(self) -> tuple[()]:
        return ()


@pytest.fixture
def watch(core: hetero.Core) -> Watch:
    watch = Watch()
    core.register_plugin("SLEEPY", lambda: Sleepy(watch))
    return watch


def compile_branches(core: hetero.Core, device: str, chain: bool = False) -> CompiledModel:
    """x -> a, b -> y on three devices; or a chain over them."""
    second = "a" if chain else "x"
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="left"),
        helper.make_node("Relu", [second], ["b"], name="right"),
        helper.make_node("Add", ["a", "b"], ["y"], name="join"),
    ]
    model = core.read_model(make_model(nodes))
    return core.compile_model(
        model, f"HETERO:{device}.0,{device}.1,{device}.2", pins={"right": f"{device}.1", "join": f"{device}.2"}
    )


def test_branches_run_at_the_same_time(core: hetero.Core, watch: Watch) -> None:
    request = compile_branches(core, "SLEEPY").create_infer_request()
    for _ in range(500):  # after some of them it looks at the time that each step took
        np.testing.assert_array_equal(request.infer(X)[0], np.maximum(X, 0) * 2)
        if watch.most == 2:
            break
    assert watch.most == 2
    assert watch.most_of_one_device == 1
    assert threading.current_thread().name in watch.threads


def test_a_chain_stays_in_its_thread(core: hetero.Core, watch: Watch) -> None:
    compiled = compile_branches(core, "SLEEPY", chain=True)
    for _ in range(3):
        compiled(X)
    assert watch.most == 1
    assert watch.threads == {threading.current_thread().name}


def test_short_steps_stay_in_their_thread(core: hetero.Core) -> None:
    branches = make_model(
        [helper.make_node(op, ["x"], [y]) for op, y in (("Relu", "a"), ("Neg", "b"))], outputs=("a", "b")
    )
    compiled = core.compile_model(core.read_model(branches), "HETERO:CPU,TEMPLATE", pins={"b": "TEMPLATE"})
    before = threading.active_count()
    for _ in range(200):
        np.testing.assert_array_equal(compiled(X)["b"], -X)
    assert threading.active_count() <= before  # threads of earlier tests may end meanwhile


def test_an_error_comes_out_when_nothing_runs_any_longer(core: hetero.Core, watch: Watch) -> None:
    request = compile_branches(core, "SLEEPY").create_infer_request()
    request.infer(X)
    watch.fails = True
    with pytest.raises(hetero.InferenceError, match="SLEEPY.1 failed in an inference .*overslept"):
        request.infer(X)
    assert sum(watch.running.values()) == 0
    watch.fails = False
    np.testing.assert_array_equal(request.infer(X)[0], np.maximum(X, 0) * 2)


def test_requests_in_flight_overlap_across_devices(core: hetero.Core, watch: Watch) -> None:
    compiled = compile_branches(core, "SLEEPY", chain=True)
    assert compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 3
    for _ in range(100):
        assert len(list(compiled.map([X] * 6, in_flight=4))) == 6
        if watch.most > 1:
            break
    assert watch.most > 1


def test_step_graph() -> None:
    steps = [("A", (0,), (1,)), ("B", (0,), (2,)), ("A", (1, 2, 1), (3,))]
    graph = StepGraph.of(steps, (3, 1))
    assert graph.followers == ((2,), (2,), ())
    assert graph.waits_for == (0, 0, 2)
    assert graph.readers == (2, 2, 1, 1)
    assert graph.is_wide
    assert not StepGraph.of([("A", (0,), (1,)), ("B", (1,), (2,))], (2,)).is_wide
    assert not StepGraph.of([("A", (0,), (1,)), ("A", (0,), (2,))], (1, 2)).is_wide
    assert not StepGraph.of([], ()).is_wide
    assert saved_by_parallel(graph, [0.01, 0.01, 0.01])
    assert not saved_by_parallel(graph, [1e-5, 1e-5, 1e-5])
    assert not saved_by_parallel(graph, [0.01, 1e-5, 0.01])


@given(data=st.data())
def test_random_schedules(data: st.DataObject) -> None:
    """Every step once, after those it waits for, one at a time on each device; slots are emptied when read by all."""
    count = data.draw(st.integers(1, 14))
    devices = [data.draw(st.sampled_from("ABC")) for _ in range(count)]
    reads = [data.draw(st.lists(st.integers(0, number), max_size=3)) for number in range(count)]
    kept = data.draw(st.lists(st.integers(0, count), max_size=4))
    steps = [(devices[number], reads[number], [number + 1]) for number in range(count)]  # slot 0 is the input
    graph = StepGraph.of(steps, kept)
    slots: list[Any] = ["input"] + [None] * count
    running: list[str] = []
    done: list[int] = []
    lock = threading.Lock()

    def run_step(number: int, slots: list[Any]) -> None:
        with lock:
            assert devices[number] not in running
            running.append(devices[number])
            assert all(slots[slot] is not None for slot in reads[number])
        time.sleep(0.0002)
        with lock:
            running.remove(devices[number])
            slots[number + 1] = number
            done.append(number)

    ParallelRun(graph, slots, [1.0] * count, run_step, DeviceExecutors(ExecutorManager())).run()
    assert sorted(done) == list(range(count))
    for slot in range(1, count + 1):
        if slot in kept:
            assert slots[slot] == slot - 1
        elif any(slot in read for read in reads):
            assert slots[slot] is None


@pytest.mark.parametrize(("hint", "most"), [("LATENCY", 2), ("THROUGHPUT", 1)])
def test_the_hint_decides_whether_steps_overlap(core: hetero.Core, watch: Watch, hint: str, most: int) -> None:
    """A plan for the least latency overlaps from the first inference; for throughput, no inference does."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="left"),
        helper.make_node("Relu", ["x"], ["b"], name="right"),
        helper.make_node("Add", ["a", "b"], ["y"], name="join"),
    ]
    model = core.read_model(make_model(nodes))
    times = {node.key: NodeTimes(1, 1e6 * SLEEP, 1e6 * SLEEP) for node in model.nodes}
    devices = ("SLEEPY.0", "SLEEPY.1")
    config = {"OBJECTIVE": "LATENCY", "COSTS": Costs.of_model(model, [Measurement(d, {}, times) for d in devices])}
    plan = core.plan(model, f"HETERO:{','.join(devices)}", config)
    in_turn = "one after the other: predicted 15 ms instead of 10.* ms for one inference"
    with pytest.warns(match=in_turn) if hint == "THROUGHPUT" else contextlib.nullcontext():
        compiled = core.compile_model(model, plan, {"PERFORMANCE_HINT": hint})
    for _ in range(500 if most > 1 else 1):  # on a busy machine, a thread may wake up after the other step has ended
        np.testing.assert_array_equal(compiled.create_infer_request().infer(X)[0], np.maximum(X, 0) * 2)
        if watch.most == most:
            break
    assert watch.most == most


class OneAtATime(Sleepy):
    """Devices that run one step at a time; another step waits. Records which requests (by the value of their input) run
    at the same time."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        self.changed = threading.Condition()
        self.running: dict[str, float] = {}  # device -> request
        self.together: set[tuple[float, ...]] = set()
        self.waited: set[float] = set()  # requests with a step that found its device busy
        self.ended = 0
        self.may_end: Callable[[float], bool] = lambda request: True

    def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        return OneAtATimeModel(self, str(config.get("DEVICE_ID", "")), model)

    def run(self, device: str, request: float) -> None:
        with self.changed:
            while device in self.running:
                self.waited.add(request)
                self.changed.notify_all()
                assert self.changed.wait(120)
            self.running[device] = request
            self.together.add(tuple(sorted(self.running.values())))
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.may_end(request), 120)
            del self.running[device]
            self.ended += 1
            self.changed.notify_all()


class OneAtATimeModel(SleepyModel):
    def __init__(self, plugin: OneAtATime, id_: str, model: hetero.Model) -> None:
        super().__init__(plugin.watch, id_, model)
        self.plugin = plugin

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        self.plugin.run(self.device, float(inputs[0].max()))
        return [inputs[0] for _ in self.outputs]


@pytest.mark.parametrize("hint", ["LATENCY", "THROUGHPUT"])
def test_requests_in_flight_with_a_hint(core: hetero.Core, hint: str) -> None:
    """LATENCY: the first request uses both devices, and the second finds them busy. THROUGHPUT: the requests use both
    devices, one each, and neither waits for a device or needs further threads."""
    plugin = OneAtATime(Watch())
    core.register_plugin("SLEEPY", lambda: plugin)
    nodes = [helper.make_node("Relu", ["x"], [y], name=y) for y in ("a", "b")]
    model = core.read_model(make_model(nodes, outputs=("a", "b")))
    times = {node.key: NodeTimes(1, 1e4, 1e4) for node in model.nodes}
    devices = ("SLEEPY.0", "SLEEPY.1")
    config = {"OBJECTIVE": "LATENCY", "COSTS": Costs.of_model(model, [Measurement(d, {}, times) for d in devices])}
    plan = core.plan(model, f"HETERO:{','.join(devices)}", config)
    with pytest.warns(match="one after the other") if hint == "THROUGHPUT" else contextlib.nullcontext():
        compiled = core.compile_model(model, plan, {"PERFORMANCE_HINT": hint})
    if hint == "LATENCY":
        plugin.may_end = lambda request: request == 2 or 2 in plugin.waited
    else:
        plugin.may_end = lambda request: (
            plugin.ended >= 2 if request == 2 else plugin.ended == 0 or (1, 2) in plugin.together
        )
    before = threading.active_count()
    threads = [threading.Thread(target=compiled.create_infer_request().infer, args=(X * 0 + i,)) for i in (1, 2)]
    threads[0].start()
    with plugin.changed:
        assert plugin.changed.wait_for(lambda: (1, 1) in plugin.together if hint == "LATENCY" else plugin.ended, 120)
    threads[1].start()
    if hint == "THROUGHPUT":
        with plugin.changed:
            assert plugin.changed.wait_for(lambda: (1, 2) in plugin.together, 120)
        assert threading.active_count() <= before + 2
    for thread in threads:
        thread.join(120)
    assert plugin.ended == 4
    if hint == "LATENCY":
        assert (1, 1) in plugin.together
        assert plugin.waited == {2}
    else:
        assert not {(1, 1), (2, 2)} & plugin.together
        assert not plugin.waited


def test_short_steps_do_not_wait_for_the_calling_thread() -> None:
    """While the calling thread runs a long step, a short one on another device goes to the thread of that device."""
    graph = StepGraph.of([("A", (0,), (1,)), ("B", (0,), (2,))], (1, 2))
    started = threading.Event()

    def run_step(number: int, slots: list[Any]) -> None:
        if number == 0:
            assert started.wait(120)
        started.set()
        slots[number + 1] = number

    slots: list[Any] = ["input", None, None]
    ParallelRun(graph, slots, [1.0, 1e-6], run_step, DeviceExecutors(ExecutorManager())).run()
    assert slots[1:] == [0, 1]


class CountedExecutors:
    """Executors that record for which devices they were asked. Those of ``deaf`` accept work and never run it."""

    def __init__(self, deaf: str = "") -> None:
        self.asked: list[str] = []
        self._deaf = deaf
        self._executors = DeviceExecutors(ExecutorManager())

    def __call__(self, device: str) -> Any:
        self.asked.append(device)
        return self if device in self._deaf else self._executors(device)

    def submit(self, work: object) -> None:
        pass


def run_while_the_caller_waits(
    steps: Sequence[tuple[str, Sequence[int], Sequence[int]]], held: int, deaf: str = "", together: Sequence[int] = ()
) -> list[str]:
    """The devices whose executors were asked. Step 0 ends after ``held`` has started, which ends after the calling
    thread has nothing left to do. The steps ``together`` can only run at the same time."""
    executors, barrier, started = CountedExecutors(deaf), threading.Barrier(max(1, len(together))), threading.Event()
    done: list[int] = []

    def run_step(number: int, slots: list[Any]) -> None:
        if number == 0:
            assert started.wait(120)
        if number == held:
            started.set()
            deadline = time.monotonic() + 120
            while not run._caller_waits:
                assert time.monotonic() < deadline
                time.sleep(0.001)
        if number in together:
            barrier.wait(120)
        slots[steps[number][2][0]] = number
        done.append(number)

    slots: list[Any] = ["input"] + [None] * len(steps)
    run = ParallelRun(StepGraph.of(steps, (len(steps),)), slots, [1.0] * len(steps), run_step, executors)
    thread = threading.Thread(target=run.run, daemon=True)
    thread.start()
    thread.join(300)
    assert not thread.is_alive()
    assert sorted(done) == list(range(len(steps)))
    return executors.asked


def test_one_thread_wakes_for_a_step() -> None:
    """The calling thread waits. It gets the step that becomes ready, so the executor of its device is not asked."""
    steps = [("A", (0,), (1,)), ("B", (0,), (2,)), ("A", (1, 2), (3,))]
    assert run_while_the_caller_waits(steps, held=1) == ["B"]


def test_a_waiting_caller_gets_one_step_and_executors_get_the_rest() -> None:
    steps = [("A", (0,), (1,)), ("B", (0,), (2,)), ("A", (1, 2), (3,)), ("C", (2,), (4,)), ("B", (2,), (5,))]
    assert run_while_the_caller_waits(steps, held=1, together=(2, 3, 4)) == ["B", "C"]


def test_a_waiting_caller_gets_a_step_that_its_device_ignores() -> None:
    """The thread of A is busy with another request, and holds an old offer."""
    steps = [("C", (0,), (1,)), ("A", (0,), (2,)), ("B", (0,), (3,)), ("A", (3,), (4,)), ("B", (3, 4), (5,))]
    asked = run_while_the_caller_waits(steps, held=2, deaf="A")
    assert asked[:2] == ["A", "B"]
    assert asked.count("A") == 1
