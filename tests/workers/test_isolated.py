"""ISOLATION=PROCESS: the same results, and what becomes of workers that crash, hang, or lose their parent."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import socket
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

import hetero
from model_zoo import make_model
from worker_cases import children_of, identity, lives, parent_of, until

PROCESS = {"ISOLATION": "PROCESS"}
X = np.linspace(-2, 2, 6, dtype=np.float32)


@pytest.fixture
def core(core: hetero.Core) -> hetero.Core:
    core.register_plugin("FRAGILE", "worker_plugins:create_plugin")
    return core


def fragile(core: hetero.Core, **config: object) -> hetero.CompiledModel:
    return core.compile_model(core.read_model(identity()), "FRAGILE", {**PROCESS, **config})


@pytest.mark.parametrize(
    "device", ["CPU", "TEMPLATE", "HETERO:CPU,TEMPLATE", "HETERO:CPU.0,CPU.1", "MULTI:CPU,TEMPLATE"]
)
def test_results_are_those_of_this_process(core: hetero.Core, diamond: hetero.Model, device: str) -> None:
    pins = {"four": "TEMPLATE"} if device == "HETERO:CPU,TEMPLATE" else None
    here = core.compile_model(diamond, device, pins=pins)
    there = core.compile_model(diamond, device, PROCESS, pins=pins)
    shape = [dim if isinstance(dim, int) else 3 for dim in diamond.inputs[0].shape or ()]
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(there(x)[0], here(x)[0])
    assert [port.name for port in there.outputs] == [port.name for port in here.outputs]


def test_weights_and_all_sizes_pass(core: hetero.Core) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], inputs={"x": ["n", 64]}, weights={"w": weight})
    there = core.compile_model(core.read_model(model), "CPU", PROCESS)
    here = core.compile_model(core.read_model(model), "CPU")
    for rows in (1, 5, 0, 300, 2):  # results outgrow their room, and fit again
        x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)
        np.testing.assert_array_equal(there(x)[0], here(x)[0])


@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU.0,CPU.1"])
def test_memory_that_is_used_again_changes_no_plan(core: hetero.Core, device: str) -> None:
    """A plan depends on ``k``, which lies in memory that the next inference writes."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (int64 k, float[2] x) => (int64[n] r, float[2] y)
        <int64 zero = {0}, int64 one = {1}>
        {
            r = Range (zero, k, one)
            y = Loop (k, , x) <body = b (int64 i, bool go, float[2] a) => (bool go2, float[2] a2)
                { go2 = Identity (go)  c = Constant <value_float = 1.0> ()  a2 = Add (a, c) }>
        }""")
    compiled = core.compile_model(core.read_model(model), device, PROCESS)
    for trips in (3, 1, 3, 2, 3, 5, 1, 2, 3, 0, 4, 4, 2):
        found = compiled({"k": np.array(trips), "x": np.zeros(2, np.float32)})
        assert found["r"].tolist() == list(range(trips))
        assert found["y"].tolist() == [trips, trips]


def test_results_outlive_later_inferences(core: hetero.Core) -> None:
    compiled = fragile(core)
    kept = [compiled(np.full(1000, number, np.float32))[0] for number in range(1, 20)]
    assert [int(array[0]) for array in kept] == list(range(1, 20))
    assert all((array == array[0]).all() for array in kept)


def test_a_boundary_value_stays_where_the_first_worker_wrote_it(
    core: hetero.Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hetero.workers.shared_memory import SharedPool

    copies = []
    share = SharedPool.share

    def counted(self: SharedPool, array: np.ndarray) -> tuple[np.ndarray, int]:
        own, offset = share(self, array)
        copies.append(own is not array)
        return own, offset

    nodes = [helper.make_node("Relu", ["x"], ["h"], name="first"), helper.make_node("Neg", ["h"], ["y"], name="second")]
    compiled = core.compile_model(
        core.read_model(make_model(nodes, outputs=("y",))),
        "HETERO:CPU.0,CPU.1",
        PROCESS,
        pins={"first": "CPU.0", "second": "CPU.1"},
    )
    x = np.ones([dim if isinstance(dim, int) else 3 for dim in compiled.inputs[0].shape or ()], np.float32)
    monkeypatch.setattr(SharedPool, "share", counted)
    compiled(x)
    assert copies == [True, False]


def test_many_threads_and_streams(core: hetero.Core) -> None:
    model = core.read_model(identity())
    compiled = core.compile_model(model, "CPU", {**PROCESS, "NUM_STREAMS": 2, "INFERENCE_NUM_THREADS": 2})
    assert compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 2
    found = list(compiled.map([np.full(100, number, np.float32) for number in range(50)], in_flight=8))
    assert [int(outputs[0][0]) for outputs in found] == list(range(50))


def test_errors_come_through(core: hetero.Core) -> None:
    compiled = fragile(core)
    with pytest.raises(hetero.InferenceError, match="no such luck"):
        compiled(np.full(3, -103, np.float32))
    np.testing.assert_array_equal(compiled(X)[0], X)
    with pytest.raises(hetero.UnsupportedModel):
        core.compile_model(core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"])])), "FRAGILE", PROCESS)


def test_a_device_may_wait_for_its_own_children(core: hetero.Core) -> None:
    np.testing.assert_array_equal(fragile(core)(np.full(3, -105, np.float32))[0], np.full(3, 3))


def test_a_worker_that_crashes_is_replaced(core: hetero.Core) -> None:
    compiled = fragile(core)
    for _ in range(2):
        lost = compiled.process
        with pytest.raises(hetero.WorkerLost, match=f"FRAGILE: its worker process {lost} ended"):
            compiled(np.full(3, -101, np.float32))
        np.testing.assert_array_equal(compiled(X)[0], X)
        assert compiled.process != lost


def test_a_worker_that_hangs_is_killed_and_replaced(core: hetero.Core) -> None:
    compiled = fragile(core, WORKER_TIMEOUT_MS=4000)
    lost = compiled.process
    with pytest.raises(hetero.WorkerLost, match="did not answer within 4 s, and was killed"):
        compiled(np.full(3, -102, np.float32))
    np.testing.assert_array_equal(compiled(X)[0], X)
    assert until(lambda: not lives(lost))


def test_other_submodels_go_on(core: hetero.Core) -> None:
    first, second = fragile(core), fragile(core)
    before = second.process
    with pytest.raises(hetero.WorkerLost):
        first(np.full(3, -101, np.float32))
    np.testing.assert_array_equal(second(X)[0], X)
    assert second.process == before


def test_a_crash_while_compiling_is_an_error(
    core: hetero.Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(hetero.WorkerLost, match=r"FRAGILE: its worker process \d+ ended"):
        core.compile_model(core.read_model(identity("crash")), "FRAGILE", PROCESS)
    gc.collect()
    assert os.listdir(tmp_path) == []


def test_cancelling(core: hetero.Core) -> None:
    loop = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n] x, int64 trips) => (float[n] y)
        { c = Constant<value = bool {1}>()
          y = Loop(trips, c, x) <body = b (int64 i, bool ci, float[n] v) => (bool co, float[n] w)
            { co = Identity(ci)  w = Neg(v) }> }"""
    ).SerializeToString()
    compiled = core.compile_model(core.read_model(loop), "CPU", PROCESS)
    request = compiled.create_infer_request()
    request.start_async({"x": X, "trips": np.int64(1 << 60)})
    time.sleep(0.1)
    process = compiled.process
    request.cancel()
    with pytest.raises(hetero.Cancelled):
        request.wait(120_000)
    np.testing.assert_array_equal(compiled({"x": X, "trips": np.int64(2)})[0], X)
    assert compiled.process == process


def test_nothing_is_left_behind(core: hetero.Core) -> None:
    fragile(core)(X)
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))
    processes = []
    for _ in range(5):
        compiled = fragile(core)
        compiled(X)
        processes.append(compiled.process)
        del compiled
    gc.collect()
    assert until(lambda: not any(map(lives, processes)))
    assert until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors + 2)


def test_a_forked_child_makes_its_own(core: hetero.Core) -> None:
    compiled = fragile(core)
    worker = compiled.process
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with pytest.raises(hetero.InferenceError, match="parent process: compile the model again in this process"):
                compiled(X)
            own = fragile(hetero.Core())
            status = 2
        except hetero.UnknownDevice:
            try:
                fresh = hetero.Core()
                fresh.register_plugin("FRAGILE", "worker_plugins:create_plugin")
                own = fragile(fresh)
                status = 0 if own.process != worker and (own(X)[0] == X).all() else 3
            except BaseException:
                status = 4
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(compiled(X)[0], X)
    assert compiled.process == worker


def test_what_cannot_pass_is_refused(core: hetero.Core, diamond: hetero.Model, tmp_path: Path) -> None:
    strings = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (string[n] x) => (string[n] y) { y = Identity(x) }'
    ).SerializeToString()
    with pytest.raises(hetero.NotSupported, match="is not a tensor of numbers"):
        core.compile_model(core.read_model(strings), "TEMPLATE", PROCESS)
    with pytest.raises(hetero.NotSupported, match="does not support CACHE_ENCRYPTION_CALLBACKS"):
        core.compile_model(diamond, "CPU", {**PROCESS, "CACHE_ENCRYPTION_CALLBACKS": (bytes, bytes)})
    with pytest.raises(hetero.PropertyError, match="remote context"):
        core.compile_model(diamond, "CPU", PROCESS, context=core.get_default_context("CPU"))
    compiled = core.compile_model(diamond, "CPU", PROCESS)
    with pytest.raises(hetero.NotSupported, match="CPU cannot export .* compile it without ISOLATION"):
        compiled.export_model(tmp_path / "m.hetero")
    core.compile_model(diamond, "CPU").export_model(tmp_path / "m.hetero")
    with pytest.raises(hetero.NotSupported, match="set ISOLATION=NONE"):
        core.import_model(tmp_path / "m.hetero", "CPU", PROCESS)

    from worker_plugins import FragilePlugin

    core.register_plugin("LOCAL", functools.partial(FragilePlugin))
    with pytest.raises(hetero.NotSupported, match="cannot import"):
        core.compile_model(core.read_model(identity()), "LOCAL", PROCESS)


def test_counters_come_through(core: hetero.Core, diamond: hetero.Model) -> None:
    compiled = core.compile_model(diamond, "CPU", {**PROCESS, "PERF_COUNT": True})
    request = compiled.create_infer_request()
    shape = [dim if isinstance(dim, int) else 3 for dim in diamond.inputs[0].shape or ()]
    request.infer(np.ones(shape, np.float32))
    assert {row.node for row in request.profiling_info} == {"one", "two", "three", "four", "five", "six", "seven"}


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_wait_costs_the_next_inference_nothing(core: hetero.Core) -> None:
    """The worker still writes the results of the inference that nobody waits for: not where the next ones lie, and its
    late answer is not taken for the next."""
    compiled = fragile(core)
    compiled(X)
    process = compiled.process
    main = threading.main_thread().ident
    assert main is not None

    def interrupted() -> None:
        timer.start()
        compiled(np.full(6, -104, np.float32))  # takes half a second

    for round_ in range(5):
        timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        timer.join()
        for number in range(3):
            found = compiled(np.full(6, 10 * round_ + number, np.float32))[0]
            assert (found == 10 * round_ + number).all()
    assert compiled.process == process


def test_an_interrupted_start_costs_the_next_worker_nothing(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that forks workers still answers. That answer is not taken for the next one, which would have models
    watch and kill each other's workers."""
    kept = fragile(core)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(socket, "recv_fds", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fragile(core)
    first, second = fragile(core), fragile(core)
    assert len({kept.process, first.process, second.process}) == 3
    lost = second.process
    del second
    gc.collect()
    assert until(lambda: not lives(lost))
    for compiled in (kept, first):
        np.testing.assert_array_equal(compiled(X)[0], X)
        assert lives(compiled.process)


def test_large_answers_come_through(core: hetero.Core) -> None:
    """The counters of a large model are more than a socket holds at one time."""
    count = 5000
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=f"node{i}" * 20) for i in range(count)]
    port = [helper.make_tensor_value_info(value, TensorProto.FLOAT, [2]) for value in ("v0", f"v{count}")]
    graph = helper.make_graph(nodes, "long", port[:1], port[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    compiled = core.compile_model(core.read_model(model), "CPU", {**PROCESS, "PERF_COUNT": True})
    request = compiled.create_infer_request()
    request.infer(np.ones(2, np.float32))
    assert len(request.profiling_info) == count


def test_descriptors_may_be_many(core: hetero.Core) -> None:
    """`select.select` takes none above 1023."""
    import resource

    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1400:
        pytest.skip("this process may not open as many files")
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        compiled = fragile(core, WORKER_RETRIES=1)
        os.kill(compiled.process, signal.SIGKILL)
        np.testing.assert_array_equal(compiled(X)[0], X)
    finally:
        for descriptor in taken:
            os.close(descriptor)


def test_no_descriptors_left_is_an_error_and_nothing_else(
    core: hetero.Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever on the way to a worker they run out."""
    import resource

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    kept = fragile(core)
    fork_server = parent_of(kept.process)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    outcomes = set()
    for spare in range(30):
        gc.collect()
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 40, limits[1]))
        taken = []
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for descriptor in taken[:spare]:
            os.close(descriptor)
        try:
            compiled = fragile(core)
        except hetero.HeteroError:
            outcomes.add("error")
        else:
            outcomes.add("compiled")
            del compiled
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for descriptor in taken[spare:]:
                os.close(descriptor)
    assert outcomes == {"error", "compiled"}
    gc.collect()
    assert until(lambda: children_of(fork_server) == {kept.process})
    assert os.listdir(tmp_path) == []
    np.testing.assert_array_equal(fragile(core)(X)[0], X)
