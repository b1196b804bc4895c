"""Runs of OPENCL: copies that overlap with kernels, results that stay, memory, streams and counters."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.devices.opencl import backend
from hetero.devices.opencl.context import OpenclTensor
from hetero.devices.opencl.runner import OpenclRunner
from hetero.plugin import CompiledModel
from opencl import as_gpu, first_device, model_of, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

node = helper.make_node


def runner_of(compiled: CompiledModel) -> OpenclRunner:
    runner = compiled.create_runner()
    assert isinstance(runner, OpenclRunner)
    return runner


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("staged", [False, True], ids=["direct", "pinned"])
def test_copies_overlap_with_kernels(core: hetero.Core, staged: bool) -> None:
    """The last node's input is uploaded, and the first node's result downloaded, while products run."""
    size = 256
    inputs = {"x": normal(size, size), "late": normal(64, size, size)}
    weights = {"w": normal(size, size) / np.float32(size), "shape": np.array([64, size, size])}
    nodes = [node("Expand", ["x", "shape"], ["early"])]
    nodes += [node("MatMul", [f"v{at}" if at else "x", "w"], [f"v{at + 1}"]) for at in range(8)]
    nodes.append(node("Add", ["v8", "late"], ["y"]))
    model = core.read_model(model_of(nodes, inputs, weights, outputs=["early", "y"]))
    overlaps = {"upload": False, "download": False}
    with as_gpu(staged):
        first_device().is_gpu = False  # products for processors, whichever way the copies go
        runner = runner_of(core.compile_model(model, "OPENCL", {"PERF_COUNT": True}))
        for _ in range(20):
            found = runner.run([inputs["x"], inputs["late"]])
            uploads, kernels, downloads = (
                [command for command in runner.commands if command.kind == kind]
                for kind in ("upload", "kernel", "download")
            )
            assert (len(uploads), len(kernels), len(downloads)) == (2, 10, 2)
            assert uploads[1].end_ns <= kernels[-1].begin_ns
            assert kernels[0].end_ns <= downloads[0].begin_ns
            for copy, others in ((uploads[1], kernels[:-1]), (downloads[0], kernels[1:])):
                overlaps[copy.kind] |= any(
                    copy.begin_ns < each.end_ns and each.begin_ns < copy.end_ns for each in others
                )
            if all(overlaps.values()):
                break
    assert overlaps == {"upload": True, "download": True}
    value = inputs["x"]
    for _ in range(8):
        value = value @ weights["w"]
    np.testing.assert_allclose(found[1], value + inputs["late"], 1e-4, 1e-4)
    np.testing.assert_array_equal(found[0], np.broadcast_to(inputs["x"], (64, size, size)))


@pytest.mark.parametrize("like_gpu", [False, True], ids=["processor", "gpu"])
def test_values_stay_between_subgraphs(core: hetero.Core, like_gpu: bool) -> None:
    """Other models of the device read values that stay, and later runs do not change them."""
    x = normal(7, 5)
    first = model_of([node("Relu", ["x"], ["a"]), node("Exp", ["x"], ["b"]), node("Identity", ["x"], ["c"])], {"x": x})
    second = model_of(
        [node("Add", ["a", "b"], ["s"]), node("Mul", ["s", "c"], ["y"])], dict.fromkeys("abc", x), outputs=["y"]
    )
    with as_gpu(like_gpu):
        compiled = [core.compile_model(core.read_model(model), "OPENCL") for model in (first, second)]
        assert compiled[0].memory_space is compiled[1].memory_space is not None
        makers, reader = [runner_of(compiled[0]) for _ in range(2)], runner_of(compiled[1])
        for maker in makers:
            maker.keep_on_device([0, 1])
        kept = [(maker, given, maker.run([given])) for given in (x, x + 1, x - 2) for maker in makers]
        for _, given, (a, b, c) in kept:
            assert isinstance(a, OpenclTensor)
            assert isinstance(b, OpenclTensor)
            assert isinstance(c, np.ndarray)
            wanted = (np.maximum(given, 0) + np.exp(given)) * given
            np.testing.assert_allclose(reader.run([a, b, c])[0], wanted, 1e-5, 1e-6)
            np.testing.assert_allclose(a.numpy(), np.maximum(given, 0))
        # Blocks return to the pool, and are used again, while readers may still run.
        reader.keep_on_device([0])
        for step in range(50):
            given = x + np.float32(step)
            (result,) = reader.run(makers[step % 2].run([given]))
            if step % 10 == 9:
                np.testing.assert_allclose(result.numpy(), (np.maximum(given, 0) + np.exp(given)) * given, 1e-5, 1e-6)


def test_inputs_and_constants_may_be_results(core: hetero.Core) -> None:
    x, w = normal(2, 3), normal(3, 2)
    shape = np.array([3, 2])
    nodes = [node("Reshape", ["x", "shape"], ["r"]), node("Relu", ["x"], ["y"]), node("Reshape", ["r", "back"], ["b"])]
    nodes += [node("Shape", ["x"], ["s"]), node("Transpose", ["w"], ["t"]), node("Unsqueeze", ["w", "s0"], ["u"])]
    constants = {"shape": shape, "back": np.array([2, 3]), "w": w, "s0": np.array([0])}
    outputs = ["r", "y", "b", "s", "t", "u", "w", "x"]
    compiled = core.compile_model(core.read_model(model_of(nodes, {"x": x}, constants, outputs=outputs)), "OPENCL")
    expected = [x.reshape(3, 2), np.maximum(x, 0), x, np.array([2, 3]), w.T, w[None], w, x]
    for outputs_of_run in (compiled(x), compiled(x)):
        for found, wanted in zip(outputs_of_run, expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    runner = runner_of(compiled)
    runner.keep_on_device(range(len(outputs)))
    for found, wanted in zip(runner.run([x]), expected, strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted)


@pytest.mark.parametrize("device", ["OPENCL", "HETERO:OPENCL,CPU"])
def test_constant_results_are_the_callers_own(core: hetero.Core, device: str) -> None:
    """Nothing that a caller does with results on the device changes the constants of the model."""
    x, w = normal(2, 3), normal(2, 3)
    nodes = [node("Exp", ["w"], ["e"]), node("Add", ["x", "e"], ["y"]), node("Reshape", ["e", "shape"], ["r"])]
    nodes.append(node("Add", ["x", "w"], ["z"]))
    model = model_of(nodes, {"x": x}, {"w": w, "shape": np.array([3, 2])}, outputs=["e", "r", "w", "y", "z"])
    request = core.compile_model(core.read_model(model), device).create_infer_request()
    for out in (hetero.ON_DEVICE, None):
        outputs = request.infer(x, out=out)
        for value in outputs.values():
            if out is None:
                value[...] = 7
            else:
                value.write(np.full(value.shape, 7, np.float32))
        again = request.infer(x)
        np.testing.assert_allclose(again["e"], np.exp(w), 1e-5)
        np.testing.assert_allclose(again["r"], np.exp(w).reshape(3, 2), 1e-5)
        np.testing.assert_array_equal(again["w"], w)
        np.testing.assert_allclose(again["y"], x + np.exp(w), 1e-5)
        np.testing.assert_array_equal(again["z"], x + w)


def test_remote_tensors(core: hetero.Core) -> None:
    x = normal(4, 3)
    context = core.get_default_context("OPENCL")
    assert context is core.get_default_context("OPENCL")
    tensor = context.create_tensor(np.float32, x.shape)
    tensor.write(x)
    assert (tensor.dtype, tensor.shape) == (x.dtype, x.shape)
    np.testing.assert_array_equal(tensor.numpy(), x)
    np.testing.assert_array_equal(np.from_dlpack(tensor), x)
    model = core.read_model(model_of([node("Exp", ["x"], ["y"])], {"x": x}))
    compiled = core.compile_model(model, "OPENCL", context=context)
    np.testing.assert_allclose(compiled(tensor)[0], np.exp(x), 1e-5)
    runner = runner_of(compiled)
    np.testing.assert_allclose(runner.run([tensor])[0], np.exp(x), 1e-5)  # without a copy to the host
    tensor.write(x + 1)
    np.testing.assert_allclose(runner.run([tensor])[0], np.exp(x + 1), 1e-5)
    for wrong in (x.astype(np.float64), x[:2], [1, 2]):
        with pytest.raises(hetero.PropertyError, match="cannot write .* to a tensor of float32"):
            tensor.write(wrong)
    for dtype, shape in ((np.float64, (2,)), (np.float32, (-1,)), (np.float32, (2**20, 2**20))):
        with pytest.raises(hetero.PropertyError, match="cannot create"):
            context.create_tensor(dtype, shape)
    tensor.write(tensor)
    np.testing.assert_array_equal(tensor.numpy(), x + 1)
    left = compiled(tensor, out=hetero.ON_DEVICE)[0]
    assert isinstance(left, OpenclTensor)
    np.testing.assert_allclose(left.numpy(), np.exp(x + 1), 1e-5)
    target = context.create_tensor(np.float32, x.shape)
    assert compiled(left, out=target)[0] is target
    np.testing.assert_allclose(target.numpy(), np.exp(np.exp(x + 1)), 1e-5)
    array = np.empty_like(x)
    compiled(left, out=array)
    np.testing.assert_array_equal(array, target.numpy())
    with pytest.raises(hetero.PropertyError, match="DEVICE_ID"):
        core.create_context("OPENCL", {"QUEUE": 1})
    with pytest.raises(hetero.PropertyError, match="accepts only a context"):
        core.compile_model(model, "OPENCL", context=core.get_default_context("CPU"))


def test_out_of_device_memory(core: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("Exp", ["x"], ["e"]), node("Tile", ["e", "t"], ["y"])]
    times = {"t": np.array([1, 1000])}
    model = core.read_model(model_of(nodes, {"x": normal(1, 9)}, times, outputs=["y"], dynamic=True))
    request = core.compile_model(model, "OPENCL").create_infer_request()
    x = normal(10, 1000)
    expected = np.tile(np.exp(x), (1, 1000))
    small = normal(1, 9)
    memory = first_device().memory
    request.infer(small)
    monkeypatch.setattr(memory, "limit", memory.used + 1_000_000)
    with pytest.raises(hetero.InsufficientMemory, match="does not fit") as caught:
        request.infer(x)
    assert 30_000_000 < caught.value.shortfall["OPENCL.0"] < 45_000_000
    np.testing.assert_allclose(request.infer(small)[0], np.tile(np.exp(small), (1, 1000)), 1e-5)
    monkeypatch.setattr(memory, "limit", memory.used + 100_000_000)
    np.testing.assert_allclose(request.infer(x)[0], expected, 1e-5)


def test_memory_of_dropped_results_gets_no_owner_while_kernels_write_to_it(core: hetero.Core) -> None:
    """One request runs ahead of the device and drops its results; another one on another queue gets their memory."""
    size = 500
    x, w = normal(size, size), normal(size, size) / np.float32(size**0.5)
    values = ["x", "v0", "v1", "v2", "v3"]
    nodes = [node("MatMul", [values[at], "w"], [values[at + 1]]) for at in range(4)]
    nodes.append(node("Softmax", ["v3"], ["y"]))
    config = {"OUTPUTS_ON_DEVICE": True}
    slow = core.compile_model(core.read_model(model_of(nodes, {"x": x}, {"w": w}, outputs=["y"])), "OPENCL", config)
    quick = core.compile_model(core.read_model(model_of([node("Neg", ["x"], ["y"])], {"x": x})), "OPENCL", config)
    first, second = slow.create_infer_request(), quick.create_infer_request()
    negated = quick(x)[0]
    for request in (first, second):
        request.infer(negated)[0].numpy()
    for _ in range(3):
        for _ in range(2):  # the second frees the memory of the first
            first.infer(negated)
        results = [second.infer(negated)[0] for _ in range(4)]
        runner: Any = first._runner
        runner._finish()
        for result in results:
            np.testing.assert_array_equal(result.numpy(), x)


class Failing:
    """pyopencl, of which all commands after the next ``left`` fail with ``error``."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.left = NONE_FAILS
        self.cl = backend.load()

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.cl, name)
        if not name.startswith("enqueue_"):
            return function

        def command(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise self.error
            return function(*arguments, **options)

        return command


NONE_FAILS = 1 << 30


@pytest.mark.parametrize("is_full", [False, True], ids=["lost", "full"])
def test_a_device_that_fails_in_the_middle(core: hetero.Core, monkeypatch: pytest.MonkeyPatch, is_full: bool) -> None:
    """Each command in turn. The error names the device, also for a copy that another device needs."""
    nodes = [node("Neg", ["x"], ["a"]), node("Exp", ["a"], ["b"]), node("Neg", ["b"], ["y"])]
    x, y = normal(2, 3), -np.exp(-normal(2, 3))
    model = core.read_model(model_of(nodes, {"x": x}, outputs=["y"]))
    request = core.compile_model(model, "HETERO:OPENCL,CPU", pins={"b": "CPU"}).create_infer_request()
    np.testing.assert_allclose(request.infer(x)[0], y, 1e-5)
    cl: Any = backend.load()
    failing = Failing(cl.MemoryError("no memory") if is_full else cl.RuntimeError("lost"))
    expected, message = (hetero.InsufficientMemory, "no memory") if is_full else (hetero.InferenceError, "failed: lost")
    monkeypatch.setattr(backend, "load", lambda: failing)
    monkeypatch.setattr(first_device().memory, "_cl", failing)
    request.infer(x)
    count = NONE_FAILS - failing.left
    assert count > 4
    for number in range(count):
        failing.left = number
        with pytest.raises(expected, match=f"OPENCL.*{message}") as caught:
            request.infer(x)
        assert any("subgraph" in note for note in caught.value.__notes__)
        failing.left = NONE_FAILS
        np.testing.assert_allclose(request.infer(x)[0], y, 1e-5)


def test_memory_is_freed(core: hetero.Core) -> None:
    gc.collect()  # models of other tests
    memory = first_device().memory
    model = core.read_model(
        model_of([node("Exp", ["x"], ["y"]), node("Relu", ["x"], ["z"])], {"x": normal(1, 9)}, dynamic=True)
    )
    compiled = core.compile_model(model, "OPENCL")
    request = compiled.create_infer_request()
    request.infer(normal(1, 9))
    used = memory.used
    gc.disable()  # plans that are dropped are in no cycles
    try:
        for size in range(40):  # more plans than a request keeps
            request.infer(normal(1000, 100 + size))
    finally:
        gc.enable()
    assert used < memory.used < used + 14_000_000  # of 57 MB for all of them
    del request, compiled
    gc.collect()
    assert memory.used <= used


def test_weights_are_uploaded_once(core: hetero.Core) -> None:
    memory = first_device().memory
    weights = {"w": normal(1000, 500), "b": normal(500)}
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "b"], ["y"])]
    compiled = core.compile_model(
        core.read_model(model_of(nodes, {"x": normal(1, 1000)}, weights, dynamic=True)), "OPENCL"
    )
    before = memory.used
    requests = [compiled.create_infer_request() for _ in range(4)]
    for rows in (1, 2, 3):
        for request in requests:
            request.infer(normal(rows, 1000))
    assert memory.used - before < 2_500_000  # 2 MB of weights, and small values


def test_streams_run_at_the_same_time(core: hetero.Core) -> None:
    x = normal(64, 64)
    model = core.read_model(model_of([node("MatMul", ["x", "x"], ["y"]), node("Relu", ["y"], ["z"])], {"x": x}))
    for streams in (1, 3):
        compiled = core.compile_model(model, "OPENCL", {"NUM_STREAMS": streams})
        failures: list[BaseException] = []

        def work(compiled: CompiledModel = compiled, failures: list[BaseException] = failures) -> None:
            try:
                for step in range(10):
                    given = x + np.float32(step)
                    np.testing.assert_allclose(compiled(given)["y"], given @ given, 1e-4, 1e-3)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures


def test_cancelled_runs_leave_the_request_usable(core: hetero.Core) -> None:
    x = normal(304, 304)  # a multiple of 8: with 300, pocl takes ten times as long
    nodes = [node("MatMul", ["x" if at == 0 else f"v{at}", "w"], [f"v{at + 1}"]) for at in range(800)]
    model = core.read_model(model_of(nodes, {"x": x}, {"w": np.eye(304, dtype=np.float32)}, outputs=["v800"]))
    request = core.compile_model(model, "OPENCL").create_infer_request()
    np.testing.assert_allclose(request.infer(x)[0], x, 1e-5)
    request.start_async(x)
    request.cancel()
    with pytest.raises(hetero.Cancelled):
        request.wait()
    np.testing.assert_allclose(request.infer(x)[0], x, 1e-5)


def test_callers_may_change_their_arrays(core: hetero.Core) -> None:
    x = normal(100, 100)
    model = core.read_model(model_of([node("Exp", ["x"], ["y"])], {"x": x}))
    request = core.compile_model(model, "OPENCL").create_infer_request()
    given = x.copy()
    first = request.infer(given)[0]
    expected = np.exp(x)
    given[:] = 7
    second = request.infer(given)[0]
    np.testing.assert_allclose(first, expected, 1e-5)
    np.testing.assert_allclose(second, np.exp(np.float32(7)) * np.ones_like(x), 1e-5)
    strided = np.asfortranarray(x)
    np.testing.assert_allclose(request.infer(strided)[0], expected, 1e-5)
