"""Asynchronous requests: states, waiting, cancelling, callbacks, futures, and what happens when things go wrong."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.errors import Cancelled
from hetero.plugin import CompiledModel, Plugin, Support
from hetero.plugin.cancellation import Cancellation
from hetero.plugin.request import RequestState
from model_zoo import make_model

DEVICES = ("CPU", "TEMPLATE", "HETERO:TEMPLATE,CPU")
X = np.float32([[1, -2, 3], [-4, 5, 6]])
LONG = 120  # seconds after which a test has hung


class Gated(Plugin):
    """Runs wait for ``gate``; ``begun`` tells how many have begun. Runs can be stopped unless ``stubborn``."""

    name = "GATED"
    properties = (*Plugin.properties, "NUM_STREAMS", "EXCLUSIVE_ASYNC_REQUESTS", "MODEL_PRIORITY")

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)
        self.stubborn = False

    def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> Support:
        return Support.from_reasons(model.num_nodes, {})

    def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        settings = self.full_config(config)
        return GatedModel(self, model, {**settings, "NUM_STREAMS": settings["NUM_STREAMS"] or 1})


class GatedModel(CompiledModel):
    def __init__(self, plugin: Gated, model: hetero.Model, settings: Mapping[str, Any]) -> None:
        super().__init__("GATED", model.inputs, model.outputs, settings)
        self.plugin = plugin

    def create_runner(self) -> GatedRunner:
        return GatedRunner(self.plugin, len(self.outputs))


class GatedRunner:
    def __init__(self, plugin: Gated, results: int) -> None:
        self._plugin = plugin
        self._results = results
        self.cancellation = Cancellation()

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        self._plugin.begun.release()
        while not self._plugin.gate.wait(0.005):
            if not self._plugin.stubborn:
                self.cancellation.check()
        if np.isnan(inputs[0]).any():
            raise ValueError("not a number")
        return [inputs[0] * 2 for _ in range(self._results)]

    def profile(self) -> tuple[()]:
        return ()


@pytest.fixture
def gated(core: hetero.Core) -> Iterator[Gated]:
    plugin = Gated()
    core.register_plugin("GATED", lambda: plugin)
    yield plugin
    plugin.stubborn = False
    plugin.gate.set()


@pytest.fixture
def doubling(core: hetero.Core, gated: Gated) -> CompiledModel:
    model = make_model([helper.make_node("Add", ["x", "x"], ["y"])], {"x": ["n", 3]})
    return core.compile_model(core.read_model(model), "GATED")


@pytest.fixture(params=DEVICES)
def compiled(request: pytest.FixtureRequest, core: hetero.Core, diamond: hetero.Model) -> CompiledModel:
    return core.compile_model(diamond, request.param)


def threads_of(device: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"hetero {device} stream")]


# ---- the way it should go


def test_start_and_wait(compiled: CompiledModel) -> None:
    expected = compiled(X)["y"]
    request = compiled.create_infer_request()
    assert request.wait() is True  # nothing was started
    with pytest.raises(hetero.InferenceError, match="no results"):
        request.outputs  # noqa: B018
    for factor in (1, 2):
        request.start_async({"x": X * factor})
        assert request.wait(LONG * 1000) is True
        assert request.state is RequestState.IDLE
    np.testing.assert_array_equal(request.outputs["y"], compiled(X * 2)["y"])
    np.testing.assert_array_equal(request.infer(X)["y"], expected)


def test_states(doubling: CompiledModel, gated: Gated) -> None:
    request = doubling.create_infer_request()
    assert request.state is RequestState.IDLE
    request.start_async(X)
    assert request.state is RequestState.BUSY
    assert request.wait(1) is False
    with pytest.raises(hetero.InferenceError, match="no results"):
        request.outputs  # noqa: B018
    for start in (request.start_async, request.infer):
        with pytest.raises(hetero.InferenceError, match="busy"):
            start(X)
    gated.gate.set()
    assert request.wait() is True
    assert request.state is RequestState.IDLE
    np.testing.assert_array_equal(request.outputs[0], X * 2)
    with pytest.raises(hetero.InferenceError, match="input 'x'"):
        request.start_async(X.astype(np.float64))
    assert request.state is RequestState.IDLE


def test_what_goes_wrong_is_raised_by_wait(doubling: CompiledModel, gated: Gated) -> None:
    gated.gate.set()
    request = doubling.create_infer_request()
    request.start_async(X * np.nan)
    for _ in range(2):
        with pytest.raises(
            hetero.InferenceError, match="GATED failed in an inference of 'graph' .*: ValueError: not a number"
        ):
            request.wait()
    assert request.state is RequestState.FAILED
    with pytest.raises(hetero.InferenceError, match="not a number"):
        request.outputs  # noqa: B018
    request.start_async(X)
    assert request.wait()


def test_many_threads_on_one_model(compiled: CompiledModel) -> None:
    """The same bits as one after the other."""
    inputs = [np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32) for seed in range(200)]
    expected = [compiled(x)["y"] for x in inputs]
    futures = [compiled.submit(x) for x in inputs]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        called = list(pool.map(compiled, inputs))
    for future, out, wanted in zip(futures, called, expected, strict=True):
        np.testing.assert_array_equal(future.result(LONG)["y"], wanted)
        np.testing.assert_array_equal(out["y"], wanted)


def test_streams_run_at_one_time(core: hetero.Core, gated: Gated, diamond: hetero.Model) -> None:
    compiled = core.compile_model(diamond, "GATED", {"NUM_STREAMS": 3})
    assert compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 3
    futures = [compiled.submit(X) for _ in range(4)]
    for _ in range(3):
        assert gated.begun.acquire(timeout=LONG)
    assert not gated.begun.acquire(timeout=0.05)  # the fourth waits
    gated.gate.set()
    assert all(future.result(LONG) for future in futures)
    assert len(threads_of("GATED")) == 3


def test_exclusive_requests_take_turns(core: hetero.Core, gated: Gated, diamond: hetero.Model) -> None:
    exclusive = {"EXCLUSIVE_ASYNC_REQUESTS": True, "NUM_STREAMS": 2}
    futures = [core.compile_model(diamond, "GATED", exclusive).submit(X) for _ in range(2)]
    assert gated.begun.acquire(timeout=LONG)
    assert not gated.begun.acquire(timeout=0.05)
    gated.gate.set()
    assert all(future.result(LONG) for future in futures)


def test_of_exclusive_requests_those_of_higher_priority_go_first(
    core: hetero.Core, gated: Gated, diamond: hetero.Model
) -> None:
    order: list[str] = []
    exclusive = {"EXCLUSIVE_ASYNC_REQUESTS": True}
    first = core.compile_model(diamond, "GATED", exclusive).submit(X)
    assert gated.begun.acquire(timeout=LONG)
    requests = []
    for name in ("LOW", "MEDIUM", "HIGH", "MEDIUM", "LOW", "HIGH"):
        compiled = core.compile_model(diamond, "GATED", {**exclusive, "MODEL_PRIORITY": name})
        requests.append(compiled.create_infer_request())
        requests[-1].set_callback(lambda error, name=name: order.append(name if error is None else "cancelled"))
        requests[-1].start_async(X)
    requests[-2].cancel()  # it is found among the others
    gated.gate.set()
    first.result(LONG)
    for position in (0, 1, 2, 3, 5):
        assert requests[position].wait(LONG * 1000)
    assert order == ["cancelled", "HIGH", "HIGH", "MEDIUM", "MEDIUM", "LOW"]


def test_threads_end_with_their_plugin(diamond: hetero.Model) -> None:
    others = threads_of("TEMPLATE")  # of models that wait for the garbage collector
    core = hetero.Core()
    compiled = core.compile_model(diamond, "TEMPLATE")
    compiled.submit(X).result(LONG)
    (thread,) = set(threads_of("TEMPLATE")) - set(others)
    lease = weakref.ref(compiled._executor)
    del compiled
    while lease() is not None:  # its thread lets go of the last request
        time.sleep(0.001)
    other = core.compile_model(diamond, "TEMPLATE")
    other.submit(X).result(LONG)
    assert set(threads_of("TEMPLATE")) - set(others) == {thread}  # the idle one was handed on
    del core, other
    thread.join(LONG)
    assert not thread.is_alive()


def test_threads_outlive_a_core_as_long_as_a_model_does(diamond: hetero.Model) -> None:
    others = threads_of("TEMPLATE")
    core = hetero.Core()
    compiled = core.compile_model(diamond, "TEMPLATE")
    del core
    compiled.submit(X).result(LONG)
    (thread,) = set(threads_of("TEMPLATE")) - set(others)
    compiled.submit(X).result(LONG)
    del compiled
    thread.join(LONG)
    assert not thread.is_alive()


# ---- cancelling


def test_cancel_while_it_runs(doubling: CompiledModel, gated: Gated) -> None:
    request = doubling.create_infer_request()
    request.cancel()  # nothing to cancel
    request.start_async(X)
    assert gated.begun.acquire(timeout=LONG)
    request.cancel()
    with pytest.raises(Cancelled):
        request.wait(LONG * 1000)
    assert request.state is RequestState.CANCELLED
    gated.gate.set()
    request.start_async(X)
    assert request.wait()


def test_cancel_before_it_begins(doubling: CompiledModel, gated: Gated) -> None:
    first, second = doubling.create_infer_request(), doubling.create_infer_request()
    errors: list[BaseException | None] = []
    second.set_callback(errors.append)
    first.start_async(X)
    assert gated.begun.acquire(timeout=LONG)
    second.start_async(X)
    second.cancel()
    with pytest.raises(Cancelled, match="before it began"):
        second.wait(0)
    assert isinstance(errors[0], Cancelled)
    gated.gate.set()
    assert first.wait(LONG * 1000)
    assert not gated.begun.acquire(timeout=0)


def test_what_cannot_be_stopped_is_cancelled_when_done(doubling: CompiledModel, gated: Gated) -> None:
    gated.stubborn = True
    request = doubling.create_infer_request()
    request.start_async(X)
    assert gated.begun.acquire(timeout=LONG)
    request.cancel()
    assert request.wait(20) is False
    gated.gate.set()
    with pytest.raises(Cancelled):
        request.wait(LONG * 1000)
    assert request.state is RequestState.CANCELLED


def test_cancel_an_inference_in_another_thread(doubling: CompiledModel, gated: Gated) -> None:
    request = doubling.create_infer_request()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(request.infer, X)
        assert gated.begun.acquire(timeout=LONG)
        request.cancel()
        with pytest.raises(Cancelled):
            future.result(LONG)
    assert request.state is RequestState.CANCELLED
    gated.gate.set()
    np.testing.assert_array_equal(request.infer(X)[0], X * 2)


@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU,TEMPLATE"])
def test_cancel_a_loop_without_end(core: hetero.Core, device: str) -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["v", "v"], ["w"])],
        "body",
        [value("trip", 7, []), value("go", 9, []), value("v", 1, [2, 3])],
        [value("on", 9, []), value("w", 1, [2, 3])],
    )
    trips = np.array(2**62, np.int64)
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)]
    model = core.read_model(make_model(nodes, weights={"trips": trips}))
    request = core.compile_model(model, device).create_infer_request()
    request.start_async(X)
    assert request.wait(50) is False
    request.cancel()
    with pytest.raises(Cancelled):
        request.wait(LONG * 1000)


def test_cut_models_stop_between_their_parts(core: hetero.Core, gated: Gated, diamond: hetero.Model) -> None:
    compiled = core.compile_model(diamond, "HETERO:GATED,CPU", pins={"four": "CPU"})
    request = compiled.create_infer_request()
    gated.stubborn = True
    request.start_async(X)
    assert gated.begun.acquire(timeout=LONG)
    request.cancel()
    gated.gate.set()
    with pytest.raises(Cancelled):
        request.wait(LONG * 1000)
    assert not gated.begun.acquire(timeout=0)  # the last part is on GATED too


# ---- callbacks


def test_callback(compiled: CompiledModel) -> None:
    seen: list[tuple[BaseException | None, RequestState]] = []
    request = compiled.create_infer_request()
    request.set_callback(lambda error: seen.append((error, request.state)))
    request.start_async(X)
    request.wait()
    assert seen == [(None, RequestState.IDLE)]
    request.infer(X)
    request.set_callback(None)
    request.start_async(X)
    request.wait()
    assert len(seen) == 1


def test_callback_is_told_what_went_wrong(doubling: CompiledModel, gated: Gated) -> None:
    gated.gate.set()
    seen: list[BaseException | None] = []
    request = doubling.create_infer_request()
    request.set_callback(seen.append)
    request.start_async(X * np.nan)
    with pytest.raises(hetero.InferenceError) as caught:
        request.wait()
    assert seen == [caught.value]


def test_callback_that_raises(compiled: CompiledModel) -> None:
    request = compiled.create_infer_request()

    def fail(error: BaseException | None) -> None:
        raise KeyError("lost")

    request.set_callback(fail)
    request.start_async(X)
    with pytest.raises(hetero.InferenceError, match=r"the callback raised KeyError: 'lost'") as caught:
        request.wait()
    assert isinstance(caught.value.__cause__, KeyError)
    assert request.state is RequestState.FAILED
    request.set_callback(None)
    request.start_async(X)
    assert request.wait()


def test_callback_that_starts_again(compiled: CompiledModel) -> None:
    request = compiled.create_infer_request()
    rounds = itertools.count(1)
    done = threading.Event()
    trouble: list[BaseException] = []

    def again(error: BaseException | None) -> None:
        if next(rounds) == 5:
            done.set()
            return
        request.infer(X)  # in this thread
        request.start_async(X)
        try:
            request.wait()
        except hetero.InferenceError as raised:
            trouble.append(raised)

    request.set_callback(again)
    request.start_async(X)
    assert done.wait(LONG)
    assert request.wait(LONG * 1000)
    assert len(trouble) == 4
    assert all("must not wait" in str(raised) for raised in trouble)


def test_waiting_in_the_callback_for_what_is_done(compiled: CompiledModel) -> None:
    seen: list[bool] = []
    request = compiled.create_infer_request()
    request.set_callback(lambda error: seen.append(request.wait()))
    request.start_async(X)
    assert request.wait(LONG * 1000)
    assert seen == [True]


# ---- futures


def test_map_keeps_the_order_and_draws_no_more_than_it_runs(doubling: CompiledModel, gated: Gated) -> None:
    gated.gate.set()
    drawn = itertools.count()
    results = doubling.map((X * next(drawn) for _ in range(20)), in_flight=3)
    np.testing.assert_array_equal(next(results)[0], X * 0)
    assert next(drawn) == 3
    for factor, out in enumerate(results, start=1):
        np.testing.assert_array_equal(out[0], X * 2 * (factor if factor < 3 else factor + 1))
    with pytest.raises(ValueError, match="in_flight"):
        doubling.map([], in_flight=0)
    assert list(doubling.map([])) == []


def test_map_raises_in_turn_and_cancels_the_rest(doubling: CompiledModel, gated: Gated) -> None:
    gated.gate.set()
    results = doubling.map([X, X * np.nan, X, X, X], in_flight=3)
    assert next(results)
    with pytest.raises(hetero.InferenceError, match="not a number"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)
    np.testing.assert_array_equal(doubling(X)[0], X * 2)


def test_futures_can_be_cancelled(doubling: CompiledModel, gated: Gated) -> None:
    running, queued = doubling.submit(X), doubling.submit(X)
    assert gated.begun.acquire(timeout=LONG)
    assert repr(queued) == "<InferenceFuture: pending>"
    assert queued.cancel()
    assert running.cancel()
    done, _ = concurrent.futures.wait([running, queued], timeout=LONG)
    assert done == {running, queued}
    assert running.cancelled()
    assert repr(running) == "<InferenceFuture: cancelled>"
    gated.gate.set()
    future = doubling.submit(X)
    assert future.result(LONG)
    assert repr(future) == f"<InferenceFuture: {future.result()!r}>"
    assert running.cancel()  # once more changes nothing


def test_futures_of_bad_inputs(compiled: CompiledModel) -> None:
    with pytest.raises(hetero.InferenceError, match="expected float32"):
        compiled.submit(X.astype(np.int8)).result(LONG)
    future = compiled.submit(X.astype(np.int8))
    assert future.exception(LONG) is not None
    assert repr(future) == "<InferenceFuture: failed with InferenceError>"
    assert compiled.submit(X).exception(LONG) is None


def test_coroutines(compiled: CompiledModel) -> None:
    async def main() -> list[Any]:
        return await asyncio.gather(*(compiled.arun(X * factor) for factor in range(5)))

    for factor, out in enumerate(asyncio.run(main())):
        np.testing.assert_array_equal(out["y"], compiled(X * factor)["y"])


def test_a_cancelled_coroutine_stops_its_inference(doubling: CompiledModel, gated: Gated) -> None:
    async def main() -> None:
        await asyncio.wait_for(doubling.arun(X), 0.05)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(main())
    gated.gate.set()
    assert doubling.submit(X).result(LONG)


# ---- the process


def run_script(script: str) -> str:
    command = [sys.executable, "-c", PRELUDE + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


PRELUDE = f"""
import os, signal, sys, threading, time
sys.path[:0] = {sys.path!r}
import numpy as np
import hetero
from onnx import helper
from model_zoo import make_model
X = np.ones((2, 3), np.float32)
value = helper.make_tensor_value_info
body = helper.make_graph(
    [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["v"], ["w"])],
    "body",
    [value("trip", 7, []), value("go", 9, []), value("v", 1, [2, 3])],
    [value("on", 9, []), value("w", 1, [2, 3])],
)
core = hetero.Core()
endless = core.compile_model(core.read_model(make_model(
    [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)], weights={{"trips": np.array(2**62)}}
)), "CPU")
short = core.compile_model(core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"])])), "CPU")
"""


def test_interpreter_exit_with_work_under_way() -> None:
    run_script("requests = [endless.create_infer_request() for _ in range(3)]\nfor r in requests: r.start_async(X)\n")


def test_exit_tells_those_who_wait() -> None:
    said = run_script(
        "r = endless.create_infer_request()\n"
        "r.set_callback(lambda error: print(type(error).__name__))\n"
        "r.start_async(X)\ntime.sleep(0.1)\n"
    )
    assert said.strip() == "Cancelled"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork() -> None:
    said = run_script(
        "r = endless.create_infer_request()\nr.start_async(X)\nshort.submit(X).result()\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "if os.fork() == 0:\n"
        "    try: r.wait()\n"
        "    except hetero.InferenceError as error: print(r.state, error, flush=True)\n"
        "    print(short.submit(X).result()[0].sum(), short(X)[0].sum(), flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\nr.cancel()\n"
        "try: r.wait()\n"
        "except hetero.InferenceError as error: print('parent', type(error).__name__)\n"
    )
    assert "RequestState.FAILED the inference was abandoned: the process forked" in said
    assert "6.0 6.0" in said
    assert "parent Cancelled" in said


def test_interrupted_wait() -> None:
    said = run_script(
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "r = endless.create_infer_request()\nr.start_async(X)\n"
        "timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))\n"
        "try: timer.start(); r.wait()\n"
        "except KeyboardInterrupt: print('interrupted', r.state)\n"
        "r.cancel()\n"
        "try: r.wait()\n"
        "except hetero.InferenceError as error: print(type(error).__name__, r.state)\n"
    )
    assert re.findall(r"\S+", said) == ["interrupted", "RequestState.BUSY", "Cancelled", "RequestState.CANCELLED"]
