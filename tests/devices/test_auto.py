"""AUTO: starts on the CPU, moves over to what is fastest, and loses no request."""

from __future__ import annotations

import gc
import io
import logging
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import hetero
from hetero.devices import auto
from hetero.devices.auto import AutoCompiledModel
from hetero.errors import Cancelled
from hetero.plugin import CompiledModel, Plugin, Support
from model_zoo import make_model

X = np.float32([[1, -2, 3], [-4, 5, 6]])


class Late(Plugin):
    """Relu. Compiles only when ``gate`` is open, and fails where it is told to."""

    name = "LATE"

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.runs = 0
        self.compiles_badly = self.runs_badly = False
        self.seconds = 0.0

    def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> Support:
        refused = {i: "only Relu" for i in range(model.num_nodes) if model.nodes[i].op_type != "Relu"}
        return Support.from_reasons(model.num_nodes, refused)

    def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        self.begun.set()
        assert self.gate.wait(30)
        if self.compiles_badly:
            raise ValueError("no licence")
        return LateModel(self, model)


class LateModel(CompiledModel):
    def __init__(self, plugin: Late, model: hetero.Model) -> None:
        super().__init__("LATE", model.inputs, model.outputs)
        self.plugin = plugin

    def create_runner(self) -> LateModel:
        return self

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        self.plugin.runs += 1
        time.sleep(self.plugin.seconds)
        if self.plugin.runs_badly or np.isnan(inputs[0]).any():
            raise ValueError("out of order")
        return [np.maximum(inputs[0], 0)]

    def profile(self) -> tuple[()]:
        return ()


@pytest.fixture
def late(core: hetero.Core) -> Iterator[Late]:
    plugin = Late()
    core.register_plugin("LATE", lambda: plugin)
    yield plugin
    plugin.gate.set()


@pytest.fixture
def relu(core: hetero.Core) -> hetero.Model:
    return core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"])]))


def compiled_on(core: hetero.Core, model: hetero.Model, device: str, config: Any = None) -> AutoCompiledModel:
    compiled = core.compile_model(model, device, config)
    assert isinstance(compiled, AutoCompiledModel)
    return compiled


def test_starts_on_the_cpu_and_moves_over(core: hetero.Core, late: Late, relu: hetero.Model) -> None:
    compiled = compiled_on(core, relu, "AUTO:LATE,CPU", {"TRIAL_RUNS": 0, "COSTS": costs_of(relu, 1e6, 1.0)})
    assert late.begun.wait(30)
    request = compiled.create_infer_request()
    np.testing.assert_array_equal(request.infer(X)[0], np.maximum(X, 0))
    assert compiled.choice.device == "CPU"
    assert not compiled.choice.is_final
    assert compiled.choice.reason == "while LATE compiles" in repr(compiled)
    assert compiled.get_property("EXECUTION_DEVICES") == ("CPU",)
    assert late.runs == 0
    assert not compiled.wait(1)
    late.gate.set()
    assert compiled.wait(30_000)
    np.testing.assert_array_equal(request.infer(X)[0], np.maximum(X, 0))  # the same request
    assert late.runs == 1
    assert compiled.choice.device == "LATE"
    assert compiled.choice.is_final
    assert compiled.get_property("AUTO_CHOICE") == str(compiled.choice)
    assert compiled.choice.reason == "predicted 3 µs per inference, CPU 1 s"  # 2 µs for the launch
    assert compiled.get_property("EXECUTION_DEVICES") == ("LATE",)


@pytest.mark.parametrize(("seconds", "least"), [(0.0, 0.25), (0.3, 1.5)])
def test_the_head_start_grows_with_the_time_of_compiling(
    core: hetero.Core, late: Late, relu: hetero.Model, monkeypatch: pytest.MonkeyPatch, seconds: float, least: float
) -> None:
    """The first inference of a model that takes long to compile also takes long."""
    waits = []
    monkeypatch.setattr(auto, "_Compiling", lambda choice, steps, head_start: waits.append(head_start) or Nothing())
    compile_model = auto.compile_model

    def slow(*arguments: Any) -> CompiledModel:
        time.sleep(seconds)
        return compile_model(*arguments)

    monkeypatch.setattr(auto, "compile_model", slow)
    begin = time.perf_counter()
    compiled_on(core, relu, "AUTO:LATE,CPU")
    took = time.perf_counter() - begin
    (wait,) = waits
    assert least <= wait <= max(0.25, 5 * took)


class Nothing:
    def run(self) -> None:
        pass

    def interrupt(self) -> None:
        pass

    def abandon(self, why: str) -> None:
        pass


def test_the_head_start_ends_with_the_first_inference(
    core: hetero.Core, late: Late, relu: hetero.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "_HEAD_START", 3600.0)
    compiled = compiled_on(core, relu, "AUTO:LATE,CPU")
    assert not late.begun.wait(0.1)
    compiled(X)
    assert late.begun.wait(30)


def test_the_head_start_lasts_while_the_first_inference_runs(
    core: hetero.Core, late: Late, relu: hetero.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "_HEAD_START", 0.1)
    monkeypatch.setattr(auto, "_HEAD_START_FACTOR", 0.0)
    has_begun = threading.Event()

    class Watched(auto._Compiling):
        def run(self) -> None:
            assert has_begun.wait(30)  # else the head start could end before the inference begins, on a busy machine
            super().run()

    monkeypatch.setattr(auto, "_Compiling", Watched)
    compiled = compiled_on(core, relu, "AUTO:LATE,CPU")
    make = compiled._choice.start.compiled.create_runner

    class Slow:
        def __init__(self) -> None:
            self.runner = make()

        def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            has_begun.set()
            assert not late.begun.wait(0.3)  # longer than the head start
            return self.runner.run(inputs)

        def profile(self) -> tuple[()]:
            return ()

    monkeypatch.setattr(compiled._choice.start.compiled, "create_runner", Slow)
    compiled(X)
    assert late.begun.wait(30)


@pytest.mark.parametrize("end", ["wait", "close"])
def test_the_head_start_ends_with_a_call(
    core: hetero.Core, late: Late, relu: hetero.Model, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(auto, "_HEAD_START", 3600.0)
    late.gate.set()
    compiled = compiled_on(core, relu, "AUTO:LATE,CPU")
    if end == "wait":
        assert compiled.wait(30_000)
    else:
        compiled.close()
        assert compiled._choice.done.wait(30)
    assert late.begun.is_set() == (end == "wait")


def costs_of(model: hetero.Model, cpu_us: float, late_us: float) -> hetero.Costs:
    from hetero.assign.costs.measured import Costs
    from hetero.plugin import ProfileRow

    def costs(device: str, us: float) -> Costs:
        row = ProfileRow(model.key_of(0), "Relu", "", device, us, us)
        return Costs.from_profile(model, device, [[row]])

    return costs("CPU", cpu_us).merge(costs("LATE", late_us))


@pytest.mark.parametrize(("seconds", "chosen"), [(0.02, "CPU"), (0.0, "LATE")])
def test_a_trial_decides(
    core: hetero.Core, late: Late, relu: hetero.Model, seconds: float, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    late.gate.set()
    late.seconds = seconds
    compiled = compiled_on(core, relu, "AUTO:LATE,CPU")
    if chosen == "LATE":  # the CPU takes 2 ms
        start = compiled._choice.start.compiled
        make = start.create_runner

        class Slow:
            def __init__(self) -> None:
                self.runner = make()

            def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
                time.sleep(0.02)
                return self.runner.run(inputs)

            def profile(self) -> tuple[()]:
                return ()

        monkeypatch.setattr(start, "create_runner", Slow)
    assert compiled.wait(30_000)
    for _ in range(11):
        np.testing.assert_array_equal(compiled(X)[0], np.maximum(X, 0))
        assert not compiled.choice.is_final
    compiled(X)  # both devices: one run to warm up, and five
    assert late.runs == 6
    choice = compiled.choice
    assert choice.is_final
    assert choice.device == chosen
    states = {row.device: row for row in choice.candidates}
    assert states[chosen].state == "runs"
    other = states["LATE" if chosen == "CPU" else "CPU"]
    assert other.state == "slower"
    assert other.measured_s is not None
    assert other.measured_s > 0.019 > (states[chosen].measured_s or 1)
    runs = late.runs
    compiled(X)
    assert late.runs - runs == (chosen == "LATE")


def test_a_trial_compares_runs_of_the_same_shapes(core: hetero.Core, late: Late) -> None:
    late.gate.set()
    model = core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n"]}))
    compiled = compiled_on(core, model, "AUTO:LATE,CPU")
    assert compiled.wait(30_000)
    for size in range(1, 20):
        compiled(np.ones(size, np.float32))
    assert not compiled.choice.is_final
    for _ in range(40):
        compiled(np.ones(7, np.float32))
    assert compiled.choice.is_final


def test_a_device_that_does_not_compile(core: hetero.Core, late: Late, relu: hetero.Model) -> None:
    late.compiles_badly = True
    late.gate.set()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compiled = compiled_on(core, relu, "AUTO:LATE,CPU")
        assert compiled.wait(30_000)
    (warning,) = told
    assert str(warning.message).startswith("AUTO continues without LATE: it failed to compile: ")
    assert warning.filename == __file__
    assert compiled.choice.device == "CPU"
    assert compiled.choice.is_final
    assert "no licence" in str(compiled.choice)
    np.testing.assert_array_equal(compiled(X)[0], np.maximum(X, 0))
    with pytest.raises(hetero.HeteroError, match="no licence"):
        core.compile_model(relu, "AUTO:LATE,CPU", {"STRICT": True})


def test_an_absent_device_gives_one_warning_with_its_reason(core: hetero.Core, relu: hetero.Model) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        compiled = compiled_on(core, relu, "AUTO:CPU.77,CPU")
        assert compiled.wait(30_000)
    (warning,) = told
    assert str(warning.message).startswith("AUTO continues without CPU.77: there is no device CPU.77")
    assert warning.filename == __file__


def test_a_failed_asynchronous_request_warns_at_the_line_that_compiled(
    core: hetero.Core, late: Late, relu: hetero.Model
) -> None:
    late.gate.set()
    late.runs_badly = True
    compiled = compiled_on(core, relu, "AUTO:LATE,CPU")
    assert compiled.wait(30_000)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(4):
            request = compiled.create_infer_request()
            request.start_async([X])
            request.wait()
    (warning,) = told
    assert str(warning.message).startswith("AUTO no longer uses LATE")
    assert warning.filename == __file__


def test_a_device_that_does_not_run(core: hetero.Core, late: Late, relu: hetero.Model) -> None:
    late.gate.set()
    late.runs_badly = True
    compiled = compiled_on(core, relu, "AUTO:LATE,CPU")
    assert compiled.wait(30_000)
    with pytest.warns(RuntimeWarning, match="AUTO no longer uses LATE, because a request failed there and succeeded"):
        results = [compiled(X)[0] for _ in range(4)]
    for result in results:
        np.testing.assert_array_equal(result, np.maximum(X, 0))
    assert late.runs == 1
    assert compiled.choice.device == "CPU"
    assert compiled.choice.is_final


class Early(Late):
    """A device that AUTO starts with."""

    name = "EARLY"


@pytest.fixture
def early(core: hetero.Core) -> Early:
    plugin = Early()
    plugin.gate.set()
    core.register_plugin("EARLY", lambda: plugin)
    return plugin


@pytest.mark.parametrize("slower", ["EARLY", "LATE"])
def test_the_next_device_takes_over(
    core: hetero.Core, early: Early, late: Late, relu: hetero.Model, slower: str
) -> None:
    """The device that AUTO started with fails after the trial, whether it was chosen or not. No request is lost."""
    late.gate.set()
    (early if slower == "EARLY" else late).seconds = 0.01
    compiled = compiled_on(core, relu, "AUTO:EARLY,LATE")
    assert compiled.wait(30_000)
    request = compiled.create_infer_request()
    for _ in range(12):
        request.infer(X)
    assert compiled.choice.is_final
    assert compiled.choice.device != slower
    early.runs_badly = True
    if slower == "EARLY":  # then it runs nothing, so its failure has no effect
        np.testing.assert_array_equal(request.infer(X)[0], np.maximum(X, 0))
        return
    with pytest.warns(RuntimeWarning, match="AUTO no longer uses EARLY, because a request failed there and succeeded"):
        results = [request.infer(X)[0] for _ in range(3)]
    for result in results:
        np.testing.assert_array_equal(result, np.maximum(X, 0))
    assert compiled.choice.device == "LATE"
    assert compiled.choice.is_final
    assert [entry.state for entry in compiled.choice.candidates if entry.device == "EARLY"] == ["failed"]
    late.runs_badly = True
    with pytest.raises(hetero.HeteroError, match="out of order"):
        request.infer(X)


def test_the_next_device_takes_over_during_the_trial(
    core: hetero.Core, early: Early, late: Late, relu: hetero.Model
) -> None:
    late.gate.set()
    compiled = compiled_on(core, relu, "AUTO:EARLY,LATE")
    assert compiled.wait(30_000)
    early.runs_badly = True
    requests = [compiled.create_infer_request() for _ in range(8)]

    def run_all() -> None:
        for request in requests:
            request.start_async(X)
        for request in requests:
            request.wait()

    with pytest.warns(RuntimeWarning, match="AUTO no longer uses EARLY") as told:
        run_all()  # any of them may be the first to fail, before the last one starts too
    assert len(told) == 1
    for request in requests:
        np.testing.assert_array_equal(request.outputs[0], np.maximum(X, 0))
    assert compiled.choice.device == "LATE"


def test_a_request_at_fault_takes_no_device_out(
    core: hetero.Core, early: Early, late: Late, relu: hetero.Model
) -> None:
    late.gate.set()
    compiled = compiled_on(core, relu, "AUTO:EARLY,LATE")
    assert compiled.wait(30_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(hetero.HeteroError, match="out of order"):
            compiled(np.full_like(X, np.nan))
    assert {entry.state for entry in compiled.choice.candidates} <= {"runs", "on trial"}


def test_errors_of_the_cpu_are_raised(core: hetero.Core, late: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index out of range is the fault of the request, although LATE would return something."""
    monkeypatch.setattr(late, "query_model", lambda model, config: Support.from_reasons(model.num_nodes, {}))
    monkeypatch.setattr(LateModel, "run", lambda self, inputs: [np.zeros((1, 3), np.float32)])
    late.gate.set()
    inputs = [helper.make_tensor_value_info("x", 1, [2, 3]), helper.make_tensor_value_info("i", 7, [1])]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"])], "g", inputs, [helper.make_tensor_value_info("y", 1, [1, 3])]
    )
    compiled = compiled_on(core, core.read_model(helper.make_model(graph, ir_version=8)), "AUTO:LATE,CPU")
    assert compiled.wait(30_000)
    for _ in range(3):
        with pytest.raises(hetero.InferenceError, match="index"):
            compiled({"x": X, "i": np.array([9])})
    assert compiled.choice.device == "CPU"


@pytest.mark.parametrize("device", ["AUTO:ORT,CPU", "AUTO:ORT"])
def test_compiled_models_are_cached(core: hetero.Core, diamond: hetero.Model, tmp_path: Path, device: str) -> None:
    config = {"CACHE_DIR": str(tmp_path), "TRIAL_RUNS": 1}
    x = {port.name: np.ones([2 if not isinstance(dim, int) else dim for dim in port.shape or ()], port.dtype)
         for port in diamond.inputs}  # fmt: skip
    expected = core.compile_model(diamond, "CPU")(x)
    files = set()
    for is_again in (False, True):
        compiled = compiled_on(core, diamond, device, config)
        assert compiled.wait(60_000)
        entries = [compiled._choice.start, *compiled._choice.others(compiled._choice.start)]
        assert {entry.compiled.get_property("LOADED_FROM_CACHE") for entry in entries} == {is_again}
        for _ in range(8):
            for name, value in compiled(x).items():
                np.testing.assert_allclose(value, expected[name], rtol=1e-5)
        found = {path.name for path in tmp_path.glob("*.hetero")}
        assert found == (files or found)
        files = found
    assert len(files) >= len(entries)
    again = core.compile_model(diamond, "ORT", {"CACHE_DIR": str(tmp_path)})
    assert again.get_property("LOADED_FROM_CACHE")  # an entry is for AUTO and for the device alone


class Rough(Late):
    """Adds ``error`` to each result, and ``drift`` for each run before."""

    error = drift = 0.0

    def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        return RoughModel(self, model)


class RoughModel(LateModel):
    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        (result,) = super().run(inputs)
        assert isinstance(self.plugin, Rough)
        return [result + np.float32(self.plugin.error + self.plugin.drift * self.plugin.runs)]


@pytest.mark.parametrize(("error", "is_used"), [(0.0, True), (0.005, True), (0.007, False), (np.nan, False)])
@pytest.mark.parametrize("trial_runs", [0, 2])
def test_other_results_are_not_used(
    core: hetero.Core, relu: hetero.Model, error: float, is_used: bool, trial_runs: int
) -> None:
    rough = Rough()  # the maximum of the results is 6
    rough.error = error
    core.register_plugin("LATE", lambda: rough)
    config = {"TRIAL_RUNS": trial_runs, "COSTS": costs_of(relu, 3.0, 1.0)}
    compiled = compiled_on(core, relu, "AUTO:LATE,CPU", config)
    assert compiled.wait(30_000)
    request = compiled.create_infer_request()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = [request.infer(X)[0] for _ in range(20)]
    candidate = next(entry for entry in compiled.choice.candidates if entry.device == "LATE")
    if is_used:
        assert candidate.state in ("runs", "slower")
        assert not caught
        return
    np.testing.assert_array_equal(results, [np.maximum(X, 0)] * 20)
    assert rough.runs == 1
    assert compiled.choice.device == "CPU"
    assert candidate.state == "differs"
    assert "output 'y': max |Δ|" in candidate.reason
    assert [str(entry.message)[:71] for entry in caught] == [
        "AUTO does not use LATE, because its results differ from those of CPU: o"
    ]


def test_random_results_are_not_compared(core: hetero.Core, relu: hetero.Model) -> None:
    rough = Rough()
    rough.gate.set()
    rough.drift = 1.0
    core.register_plugin("LATE", lambda: rough)
    compiled = compiled_on(core, relu, "AUTO:LATE,ORT")
    assert compiled.wait(30_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            compiled(X)
    assert {entry.state for entry in compiled.choice.candidates} == {"runs", "slower"}


def test_requests_in_flight_survive(core: hetero.Core, late: Late, relu: hetero.Model) -> None:
    """Requests are in flight before, during and after the move, from several threads; all give the same result."""
    compiled = compiled_on(core, relu, "AUTO:LATE,CPU", {"NUM_STREAMS": 2})
    arrays = [np.float32(np.random.default_rng(i).standard_normal((2, 3))) for i in range(200)]
    results: list[Any] = []
    for i, output in enumerate(compiled.map(arrays, in_flight=8)):
        results.append(output[0])
        if i == 50:
            late.gate.set()
            compiled.wait(30_000)
        if i == 150:
            late.runs_badly = True
    assert len(results) == 200
    for array, result in zip(arrays, results, strict=True):
        np.testing.assert_array_equal(result, np.maximum(array, 0))
    assert late.runs > 0


def test_cancel_reaches_the_device(core: hetero.Core, late: Late) -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["v"], ["w"])],
        "body",
        [value("trip", 7, []), value("go", 9, []), value("v", 1, [2, 3])],
        [value("on", 9, []), value("w", 1, [2, 3])],
    )
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)]
    model = core.read_model(make_model(nodes, weights={"trips": np.array(2**62)}))
    compiled = compiled_on(core, model, "AUTO:CPU.0,CPU.1")
    request = compiled.create_infer_request()
    for _ in range(2):
        request.start_async(X)
        assert request.wait(20) is False
        request.cancel()
        with pytest.raises(Cancelled):
            request.wait(20_000)
        assert compiled.wait(30_000)


def test_release_while_compiling(core: hetero.Core, late: Late, relu: hetero.Model) -> None:
    before = set(threading.enumerate())
    compiled = compiled_on(core, relu, "AUTO:LATE,CPU")
    assert late.begun.wait(30)
    seen = weakref.ref(compiled)
    of_choice = weakref.ref(compiled._choice)
    (thread,) = [thread for thread in threading.enumerate() if thread not in before and "AUTO" in thread.name]
    del compiled
    gc.collect()
    assert seen() is None
    assert of_choice() is None
    late.gate.set()
    thread.join(30)
    assert not thread.is_alive()


def test_export(core: hetero.Core, late: Late, relu: hetero.Model, tmp_path: Path) -> None:
    late.gate.set()
    compiled = compiled_on(core, relu, "AUTO:CPU.0,CPU.1")
    compiled.export_model(tmp_path / "chosen.hetero")
    loaded = core.import_model(tmp_path / "chosen.hetero")
    assert loaded.device == compiled.choice.device
    np.testing.assert_array_equal(loaded(X)[0], np.maximum(X, 0))
    stream = io.BytesIO()
    compiled.export_model(stream)
    with pytest.raises(hetero.WrongDevice):
        core.import_model(stream.getvalue(), "AUTO:CPU.0,CPU.1")


def test_other_outputs_and_sizes(core: hetero.Core, diamond: hetero.Model) -> None:
    model = diamond.with_outputs([diamond.value_name(diamond.output_ids[0]), diamond.nodes[0].outputs[0]])
    expected = core.compile_model(model, "CPU")(X)
    compiled = compiled_on(core, model, "AUTO:TEMPLATE,CPU")
    compiled.wait()
    for _ in range(15):
        for found, array in zip(compiled(X), expected, strict=True):
            np.testing.assert_allclose(found, array, rtol=1e-6)
    dynamic = core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 3]}))
    fixed = core.compile_model(dynamic, "AUTO:TEMPLATE,CPU", shapes={"x": (2, 3)})
    assert fixed.inputs[0].shape == (2, 3)
    np.testing.assert_array_equal(fixed(X)[0], np.maximum(X, 0))


def test_a_model_that_no_device_supports_alone(core: hetero.Core, late: Late, tmp_path: Path) -> None:
    """Then AUTO starts with the split."""
    late.gate.set()
    (tmp_path / "npu.toml").write_text('name = "NPU"\nruns_on = "TEMPLATE"\n[ops]\nTanh = {}\n')
    core.register_plugin("NPU", tmp_path / "npu.toml")
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])]
    model = core.read_model(make_model(nodes))
    compiled = compiled_on(core, model, "AUTO:LATE,NPU")
    assert compiled.choice.device == "HETERO:LATE,NPU"
    np.testing.assert_allclose(compiled(X)[0], np.tanh(np.maximum(X, 0)), rtol=1e-6)
    assert compiled.wait(30_000)
    assert compiled.choice.is_final
    with pytest.raises(hetero.UnsupportedModel, match="only Relu"):
        core.compile_model(core.read_model(make_model([helper.make_node("Abs", ["x"], ["y"])])), "AUTO:LATE,NPU")


def test_wrong_inputs_take_nobody_out(core: hetero.Core, late: Late, relu: hetero.Model) -> None:
    late.gate.set()
    late.seconds = 0
    compiled = compiled_on(core, relu, "AUTO:LATE,CPU")
    compiled.wait()
    with pytest.raises(hetero.InferenceError, match="shape|expected"):
        compiled(np.ones((5, 5), np.float32))
    assert all(row.state != "failed" for row in compiled.choice.candidates)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("AUTO:", "the device list is empty; expected for example 'AUTO:"),
        ("AUTO:CPU,", "the list has an empty entry"),
        ("AUTO:CPU,NOPE", "unknown device 'NOPE' in AUTO:CPU,NOPE"),
        ("AUTO:ORTT,CPU", "unknown device 'ORTT' in AUTO:ORTT,CPU .did you mean ORT"),
        ("AUTO:AUTO", "'AUTO' cannot be part of a device list"),
        ("HETERO:AUTO,CPU", "'AUTO' cannot be part of a device list"),
        ("MULTI:AUTO,CPU", "'AUTO' cannot be part of a device list"),
        ("AUTO:HETERO,CPU", "'HETERO' cannot be part of a device list"),
        ("AUTO:CPU,CPU", "CPU is listed twice"),
        ("AUTO.1", "no device AUTO.1"),
    ],
)
def test_bad_device_strings(core: hetero.Core, relu: hetero.Model, device: str, message: str) -> None:
    with pytest.raises(hetero.HeteroError, match=message):
        core.compile_model(relu, device)


def test_properties(core: hetero.Core, late: Late, relu: hetero.Model) -> None:
    late.gate.set()
    compiled = compiled_on(core, relu, "AUTO:LATE,CPU", {"INFERENCE_NUM_THREADS": 1, "TRIAL_RUNS": 2})
    assert compiled.get_property("TRIAL_RUNS") == 2
    assert compiled.get_property("NETWORK_NAME") == relu.name
    assert compiled._choice.start.compiled.get_property("INFERENCE_NUM_THREADS") == 1
    for name, value, message in [
        ("TRIAL_RUNS", -1, "TRIAL_RUNS: found -1, expected 0 to"),
        ("NUM_STREAM", 2, "no property 'NUM_STREAM'"),
        ("AUTO_CHOICE", "CPU", "read-only"),
        ("DEVICE_PROPERTIES", {"ORT": {}}, "names 'ORT', which is not in the list"),
        ("DEVICE_PROPERTIES", {"LATE": {"NUM_STREAM": 2}}, "LATE has no property 'NUM_STREAM'"),
    ]:
        with pytest.raises(hetero.PropertyError, match=message):
            core.compile_model(relu, "AUTO:LATE,CPU", {name: value})
    with pytest.raises(hetero.PropertyError, match="AUTO:LATE,CPU decides when it compiles, so it has no plan"):
        core.plan(relu, "AUTO:LATE,CPU")
    assert core.query_model(relu, "AUTO:LATE,CPU")
    core.set_property("AUTO", {"TRIAL_RUNS": 3})
    assert core.compile_model(relu, "AUTO:CPU").get_property("TRIAL_RUNS") == 3
    assert "AUTO" not in core.available_devices


def test_says_what_it_chose(
    core: hetero.Core, late: Late, relu: hetero.Model, caplog: pytest.LogCaptureFixture
) -> None:
    late.gate.set()
    late.seconds = 0.01
    with caplog.at_level(logging.INFO, "hetero"):
        compiled = compiled_on(core, relu, "AUTO:LATE,CPU", {"LOG_LEVEL": "INFO"})
        assert compiled.wait(30_000)
        for _ in range(12):
            compiled(X)
    assert any(line.startswith("AUTO chose CPU: ") and "LATE" in line for line in caplog.messages)


def test_without_a_list(core: hetero.Core, relu: hetero.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = core._registry.plugin("AUTO")
    monkeypatch.setattr(plugin, "device_names", lambda: ("CPU", "TEMPLATE", "FPGA", "HETERO", "MULTI", "AUTO"))
    compiled = compiled_on(core, relu, "AUTO")
    assert compiled.device == "AUTO"
    assert compiled.wait(30_000)
    assert compiled.choice.is_final
    assert [row.device for row in compiled.choice.candidates] == ["CPU"]
    np.testing.assert_array_equal(compiled(X)[0], np.maximum(X, 0))


def test_functions(core: hetero.Core) -> None:
    """Calls of model-local functions that a device does not take whole are inlined."""
    body = [helper.make_node("Relu", ["a"], ["b"])]
    function = helper.make_function("local", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    model = make_model([helper.make_node("Twice", ["x"], ["y"], domain="local")])
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.append(function)
    compiled = core.compile_model(model, "AUTO:TEMPLATE,CPU")
    for _ in range(14):
        np.testing.assert_array_equal(compiled(X)[0], np.maximum(X, 0))


def test_close_stops_compiling(core: hetero.Core, late: Late, relu: hetero.Model) -> None:
    with compiled_on(core, relu, "AUTO:LATE,TEMPLATE,CPU") as compiled:
        assert late.begun.wait(30)
        request = compiled.create_infer_request()
    late.gate.set()
    assert compiled.wait(30_000)
    names = [row.device for row in compiled.choice.candidates]
    assert "TEMPLATE" not in names  # the slowest comes last
    np.testing.assert_array_equal(request.infer(X)[0], np.maximum(X, 0))


SCRIPT = """
import os, sys, threading, time
sys.path[:0] = {paths!r}
import numpy as np
import hetero
from test_auto import Late, X
from onnx import helper
from model_zoo import make_model

core = hetero.Core()
late = Late()
core.register_plugin("LATE", lambda: late)
compiled = core.compile_model(core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"])])), "AUTO:LATE,CPU")
compiled(X)
assert late.begun.wait(30)
{end}
"""
FORK = """
child = os.fork()
if not child:
    assert compiled.wait(0), "the child compiles nothing"
    assert np.array_equal(compiled(X)[0], np.maximum(X, 0))
    assert compiled.submit(X).result(30)
    assert compiled.choice.device == "CPU" and "forked" in str(compiled.choice), compiled.choice
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
late.gate.set()
assert compiled.wait(30_000)
assert len(compiled.choice.candidates) == 2
print("end")
"""


@pytest.mark.parametrize("end", ["print('end')", FORK], ids=["exit", "fork"])
def test_the_process_exits_or_forks_while_compiling(end: str) -> None:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "helpers")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT.format(paths=paths, end=end)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "end"), done.stderr


@pytest.mark.parametrize("devices", ["NPU,CONTROL_FLOW,CPU", "NPU,TEMPLATE"])
def test_a_device_that_runs_only_a_part_is_in_the_split(core: hetero.Core, tmp_path: Path, devices: str) -> None:
    """Without a warning, because a part is what splits are for. Without the CPU, AUTO tries such a device first."""
    cost = "flops_per_s = 1e15\nbytes_per_s = 1e15\nlink_bytes_per_s = 1e12\n"
    text = f'name = "NPU"\nruns_on = "TEMPLATE"\n[ops]\nMatMul = {{}}\n[cost]\n{cost}'
    (tmp_path / "npu.toml").write_text(text)
    core.register_plugin("NPU", tmp_path / "npu.toml")
    weights = np.ones((256, 256), np.float32)
    nodes = [helper.make_node("Tanh", ["x"], ["h"])]
    nodes += [helper.make_node("MatMul", [f"h{i}" if i else "h", "w"], [f"h{i + 1}"]) for i in range(8)]
    nodes.append(helper.make_node("Sigmoid", ["h8"], ["y"]))
    proto = make_model(nodes, {"x": [256, 256]})
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    model = core.read_model(proto)
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        compiled = compiled_on(core, model, f"AUTO:{devices}", {"TRIAL_RUNS": 0})
        assert compiled.wait(30_000)
    assert not issued
    rows = [(candidate.device, candidate.state) for candidate in compiled.choice.candidates]
    states = dict(rows)
    assert len(rows) == len(states)
    assert all(state == "failed" for device, state in rows if device in ("NPU", "CONTROL_FLOW"))
    assert states["NPU"] == "failed"
    assert states[f"HETERO:{devices}"] not in ("failed", "not tried")
    x = np.full((256, 256), 0.01, np.float32)
    expected = core.compile_model(model, "CPU")(x)[0]
    np.testing.assert_allclose(compiled(x)[0], expected, rtol=1e-4)
