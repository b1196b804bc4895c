"""Plugins that raise, give what they should not, or never come back, at each stage: alone, under HETERO and MULTI."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.artifact.payload import PayloadReader, PayloadWriter
from hetero.errors import PluginTimeout
from hetero.plugin import CompiledModel, Plugin, Support
from hetero.plugin.profile import ProfileRow
from model_zoo import make_model

X = np.float32([[1, -2, 3], [-4, 5, 6]])
Y = -np.maximum(X, 0)
LONG = 120  # seconds after which a test has hung
TIMEOUT = {"PLUGIN_TIMEOUT_MS": 200}


class Bad(Plugin):
    """Runs Relu. ``fault``: the stage at which it is bad, and how."""

    name = "BAD"

    def __init__(self) -> None:
        super().__init__()
        self.fault = ("", "")
        self.gate = threading.Event()  # what hangs waits for it
        self.hangs = threading.Event()

    def given(self, stage: str, right: Any, wrong: Mapping[str, Callable[[], Any]]) -> Any:
        where, how = self.fault
        if where == stage:
            if how == "raises":
                raise ValueError("bad weather")
            if how == "hangs":
                self.hangs.set()
                self.gate.wait()
            elif how in wrong:
                return wrong[how]()
        return right

    def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> Support:
        right = Support.from_reasons(
            model.num_nodes,
            {i: "only Relu" for i in range(model.num_nodes) if model.nodes[i].op_type not in ("Relu", "Neg")},
        )
        wrong = {"type": lambda: [True], "shape": lambda: Support(np.ones(99, np.bool_), {})}
        support: Support = self.given("query", right, wrong)
        return support

    def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        operators = [model.nodes[i].op_type for i in range(model.num_nodes)]
        wrong = {
            "type": lambda: operators,
            "shape": lambda: BadModel(self, operators, model.inputs, ()),
        }
        compiled: CompiledModel = self.given(
            "compile", BadModel(self, operators, model.inputs, model.outputs, model.name), wrong
        )
        return compiled

    def import_payload(self, reader: PayloadReader, config: Mapping[str, Any]) -> CompiledModel:
        operators = reader.read_json("operators.json", list[str])
        wrong = {"type": lambda: operators, "shape": lambda: BadModel(self, operators, reader.inputs, ())}
        imported: CompiledModel = self.given(
            "import", BadModel(self, operators, reader.inputs, reader.outputs, reader.name), wrong
        )
        return imported

    def read_only_property(self, name: str) -> Any:
        if name == "FULL_DEVICE_NAME":
            return self.given("get_property", "a bad device", {"type": lambda: 7, "shape": lambda: ("a", "b")})
        return super().read_only_property(name)


class BadModel(CompiledModel):
    def __init__(self, plugin: Bad, operators: Sequence[str], inputs: Any, outputs: Any, name: str = "") -> None:
        super().__init__(plugin.name, inputs, outputs, {"NETWORK_NAME": name})
        self.plugin = plugin
        self.operators = list(operators)

    def get_property(self, name: str) -> Any:
        right = super().get_property(name)
        if name != "OPTIMAL_NUMBER_OF_INFER_REQUESTS":
            return right
        return self.plugin.given("compiled property", right, {"type": lambda: "many", "shape": lambda: (1, 2)})

    def create_runner(self) -> BadRunner:
        right = BadRunner(self.plugin, self.operators)
        runner: BadRunner = self.plugin.given("request", right, {"type": lambda: "a runner"})
        return runner

    def export_payload(self, writer: PayloadWriter) -> None:
        wrong = {"type": lambda: writer.add("bad", "text"), "shape": lambda: writer.add("../bad", b"")}  # type: ignore[arg-type]
        self.plugin.given("export", None, wrong)
        writer.add_json("operators.json", self.operators)


class BadRunner:
    def __init__(self, plugin: Bad, operators: Sequence[str]) -> None:
        self.plugin = plugin
        self.operators = operators

    def run(self, inputs: Sequence[np.ndarray]) -> Any:
        y = inputs[0]
        for operator in self.operators:
            y = np.maximum(y, 0) if operator == "Relu" else -y
        wrong = {
            "type": lambda: None,
            "items": lambda: ["text"],
            "dtype": lambda: [y.astype(np.int32)],
            "count": lambda: [y, y],
        }
        return self.plugin.given("infer", [y], wrong)

    def profile(self) -> Sequence[ProfileRow]:
        rows: Sequence[ProfileRow] = self.plugin.given(
            "counters", (), {"type": lambda: 5, "shape": lambda: ["a row"], "items": lambda: "rows"}
        )
        return rows


@pytest.fixture
def bad(core: hetero.Core) -> Iterator[Bad]:
    plugin = Bad()
    core.register_plugin("BAD", lambda: plugin)
    yield plugin
    plugin.gate.set()


@pytest.fixture
def model(core: hetero.Core) -> hetero.Model:
    """Relu 'first', then Neg 'second'; of stated shapes, so that other ones can be told."""
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="first"),
        helper.make_node("Neg", ["h"], ["y"], name="second"),
    ]
    proto = make_model(nodes)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [2, 3]))
    proto.graph.value_info.append(helper.make_tensor_value_info("h", 1, [2, 3]))
    return core.read_model(proto)


def compiled_for(core: hetero.Core, model: hetero.Model, device: str, **config: Any) -> CompiledModel:
    """Under HETERO 'first' is on BAD if BAD takes it, and 'second' on CPU."""
    return core.compile_model(model, device, config, pins={"second": "CPU"} if device.startswith("HETERO") else None)


ALONE_OR_STRICT: Any = [("BAD", {}), ("HETERO:BAD,CPU", {"STRICT": True}), ("MULTI:BAD,CPU", {"STRICT": True})]
BEFORE_RUNNING: Any = [
    ("query", "raises", "BAD failed in query_model of .*'first'.*: ValueError: bad weather"),
    ("query", "type", "BAD returned list, expected a Support, from query_model of .*'first'"),
    (
        "query",
        "shape",
        r"BAD returned a Support whose mask is bool\[99\], expected bool\[2\], from query_model of .*'first'",
    ),
    ("query", "hangs", r"BAD did not finish query_model of .*'first'.* within 200 ms"),
    ("compile", "raises", "BAD failed in compile_model of .*'first'.*: ValueError: bad weather"),
    ("compile", "type", "BAD returned list from compile_model of .*'first'.*, expected a CompiledModel"),
    (
        "compile",
        "shape",
        r"BAD returned a model with the outputs \[\] from compile_model of .*'first'.*, expected \['[hy]'\]",
    ),
    ("compile", "hangs", r"BAD did not finish compile_model of .*'first'.* within 200 ms"),
]
RUNNING: Any = [
    ("request", "raises", "BAD failed in making a request of .*'first'.*: ValueError: bad weather"),
    ("request", "type", "BAD returned str for a request of .*'first'.*, expected a Runner"),
    ("infer", "raises", "BAD failed in an inference of .*'first'.*: ValueError: bad weather"),
    ("infer", "type", "BAD returned NoneType from an inference of .*'first'.*, expected a list of 1 results"),
    (
        "infer",
        "items",
        r"BAD: output '[hy]' is declared float32 \[2, 3\], found str(.|\n)*in an inference of .*'first'",
    ),
    ("infer", "dtype", r"BAD: output '[hy]' is declared float32 \[2, 3\], found int32(.|\n)*in an inference .*'first'"),
    ("infer", "count", "BAD returned 2 results from an inference of .*'first'.*, expected 1"),
    ("counters", "raises", "BAD failed in the counters of an inference of .*'first'.*: ValueError: bad weather"),
    ("counters", "type", "BAD returned int for the counters of an inference of .*'first'.*, expected a sequence"),
    ("counters", "shape", "BAD returned str for the counters of an inference of .*'first'.*, expected a sequence"),
    ("counters", "items", "BAD returned str for the counters of an inference of .*'first'.*, expected a sequence"),
]


def text_of(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def assert_named(error: BaseException, pattern: str) -> None:
    import re

    assert re.search(pattern, text_of(error)), text_of(error)


@pytest.mark.parametrize(("device", "config"), ALONE_OR_STRICT)
@pytest.mark.parametrize(("stage", "how", "pattern"), BEFORE_RUNNING)
def test_before_running_the_error_is_named(
    core: hetero.Core,
    bad: Bad,
    model: hetero.Model,
    device: str,
    config: Mapping[str, Any],
    stage: str,
    how: str,
    pattern: str,
) -> None:
    bad.fault = (stage, how)
    begin = time.monotonic()
    with pytest.raises(hetero.HeteroError) as caught:
        compiled_for(core, model, device, **config, **TIMEOUT)
    assert_named(caught.value, pattern)
    assert isinstance(caught.value, PluginTimeout) == (how == "hangs")
    assert time.monotonic() - begin < LONG
    bad.fault = ("", "")
    np.testing.assert_array_equal(compiled_for(core, model, device, **config)(X)["y"], Y)  # it is not remembered


@pytest.mark.parametrize("device", ["HETERO:BAD,CPU", "MULTI:BAD,CPU"])
@pytest.mark.parametrize(("stage", "how", "pattern"), BEFORE_RUNNING)
def test_before_running_the_next_device_of_a_list_goes_on(
    core: hetero.Core, bad: Bad, model: hetero.Model, device: str, stage: str, how: str, pattern: str
) -> None:
    bad.fault = (stage, how)
    with pytest.warns(RuntimeWarning, match=pattern):
        compiled = compiled_for(core, model, device, **TIMEOUT)
    assert compiled.get_property("EXECUTION_DEVICES") == ("CPU",)
    np.testing.assert_array_equal(compiled(X)["y"], Y)


@pytest.mark.parametrize("device", ["BAD", "HETERO:BAD,CPU"])
@pytest.mark.parametrize(("stage", "how", "pattern"), RUNNING)
def test_a_failing_run_is_named_and_others_go_on(
    core: hetero.Core, bad: Bad, model: hetero.Model, device: str, stage: str, how: str, pattern: str
) -> None:
    compiled, other = compiled_for(core, model, device), compiled_for(core, model, "CPU")
    held = compiled.create_infer_request()
    np.testing.assert_array_equal(held.infer(X)["y"], Y)
    if stage == "counters" and device != "BAD":
        pytest.skip("asked for one by one, where they were asked to count")
    bad.fault = (stage, how)
    with pytest.raises(hetero.InferenceError) as caught:
        compiled.create_infer_request().infer(X)
    assert_named(caught.value, pattern)
    future = compiled.submit(X) if stage != "request" else None
    np.testing.assert_array_equal(other(X)["y"], Y)
    if future is not None:
        error = future.exception(LONG)
        assert error is not None
        assert_named(error, pattern)
    bad.fault = ("", "")
    np.testing.assert_array_equal(held.infer(X)["y"], Y)
    np.testing.assert_array_equal(compiled.submit(X).result(LONG)["y"], Y)


@pytest.mark.parametrize(("stage", "how", "pattern"), [row for row in RUNNING if row[0] == "infer"])
def test_multi_runs_what_failed_elsewhere(
    core: hetero.Core, bad: Bad, model: hetero.Model, stage: str, how: str, pattern: str
) -> None:
    compiled = compiled_for(core, model, "MULTI:BAD,CPU")
    bad.fault = (stage, how)
    with pytest.warns(
        RuntimeWarning, match="MULTI no longer uses BAD, because a request failed there and succeeded on CPU"
    ):
        np.testing.assert_array_equal(compiled(X)["y"], Y)
    np.testing.assert_array_equal(compiled(X)["y"], Y)


@pytest.mark.parametrize("device", ["BAD", "HETERO:BAD,CPU", "MULTI:BAD,CPU"])
def test_a_hanging_run_can_be_given_up(core: hetero.Core, bad: Bad, model: hetero.Model, device: str) -> None:
    compiled, other = compiled_for(core, model, device), compiled_for(core, model, "CPU")
    request = compiled.create_infer_request()
    bad.fault = ("infer", "hangs")
    request.start_async(X)
    assert not request.wait(50)
    np.testing.assert_array_equal(other(X)["y"], Y)
    np.testing.assert_array_equal(other.submit(X).result(LONG)["y"], Y)
    request.cancel()
    assert not request.wait(50)
    bad.fault = ("", "")
    np.testing.assert_array_equal(compiled(X)["y"], Y)  # a request of its own, in this thread
    with pytest.raises(hetero.InferenceError, match="busy"):
        request.infer(X)
    bad.gate.set()
    with pytest.raises(hetero.errors.Cancelled):
        request.wait(LONG * 1000)
    np.testing.assert_array_equal(request.infer(X)["y"], Y)


def test_multi_leaves_a_hanging_device_alone(
    core: hetero.Core, bad: Bad, model: hetero.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = 0  # the clock is moved, because on a busy machine the CPU could exceed a short time limit, too
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600 * hours, perf_counter_ns=time.perf_counter_ns)
    monkeypatch.setattr("hetero.devices.multi.time", clock)
    compiled = compiled_for(core, model, "MULTI:BAD,CPU")
    bad.fault = ("infer", "hangs")
    stuck = [compiled.create_infer_request() for _ in range(2)]
    stuck[0].start_async(X)  # on BAD, the first of the list
    assert bad.hangs.wait(LONG)
    hours = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results: list[np.ndarray] = []
        threads = [threading.Thread(target=lambda: results.append(compiled(X)["y"])) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
    assert len(results) == 6
    assert not stuck[0].wait(0)
    bad.gate.set()
    assert stuck[0].wait(LONG * 1000)


@pytest.mark.parametrize("device", ["BAD", "HETERO:BAD,CPU", "MULTI:BAD,CPU"])
@pytest.mark.parametrize(
    ("how", "pattern"),
    [
        ("raises", "BAD failed in export_payload of .*'first'.*: ValueError: bad weather"),
        ("type", "BAD failed in export_payload of .*'first'.*: TypeError: file 'bad': expected bytes"),
        ("shape", r"is not a valid name of an entry(.|\n)*in export_payload of .*'first'.*, by BAD"),
        ("hangs", r"BAD did not finish export_payload of .*'first'.* within 200 ms"),
    ],
)
def test_exporting(
    core: hetero.Core, bad: Bad, model: hetero.Model, tmp_path: Path, device: str, how: str, pattern: str
) -> None:
    compiled = compiled_for(core, model, device, **TIMEOUT)
    bad.fault = ("export", how)
    path = tmp_path / "m.hetero"
    with pytest.raises(hetero.HeteroError) as caught:
        compiled.export_model(path)
    assert_named(caught.value, pattern)
    assert not path.exists()
    np.testing.assert_array_equal(compiled(X)["y"], Y)


@pytest.mark.spread(2)
@pytest.mark.parametrize("device", ["BAD", "HETERO:BAD,CPU", "MULTI:BAD,CPU"])
@pytest.mark.parametrize(
    ("how", "pattern"),
    [
        ("raises", "BAD cannot import its part: .*ValueError: bad weather"),
        ("type", "BAD cannot import its part: .*returned list, expected a CompiledModel"),
        ("shape", "the ports of the model for BAD are not those that the file states"),
        ("hangs", "BAD did not finish import_payload of .* within 200 ms"),
    ],
)
def test_importing(core: hetero.Core, bad: Bad, model: hetero.Model, device: str, how: str, pattern: str) -> None:
    stream = io.BytesIO()
    compiled_for(core, model, device).export_model(stream)
    bad.fault = ("import", how)
    with pytest.raises(hetero.HeteroError) as caught:
        core.import_model(stream.getvalue(), device, TIMEOUT)
    assert_named(caught.value, pattern)
    bad.fault = ("", "")
    np.testing.assert_array_equal(core.import_model(stream.getvalue(), device)(X)["y"], Y)


@pytest.mark.parametrize(
    ("how", "pattern"),
    [
        ("raises", r"BAD failed in get_property \(FULL_DEVICE_NAME\): ValueError: bad weather"),
        ("type", r"BAD returned 7 from get_property \(FULL_DEVICE_NAME\), expected str"),
        ("shape", r"BAD returned \('a', 'b'\) from get_property \(FULL_DEVICE_NAME\), expected str"),
        ("hangs", r"BAD did not finish get_property \(FULL_DEVICE_NAME\) within 200 ms"),
    ],
)
def test_properties_of_a_device(core: hetero.Core, bad: Bad, model: hetero.Model, how: str, pattern: str) -> None:
    core.set_property("BAD", TIMEOUT)
    bad.fault = ("get_property", how)
    with pytest.raises(hetero.HeteroError, match=pattern):
        core.get_property("BAD", "FULL_DEVICE_NAME")
    assert {info.name for info in core.devices()} > {"CPU"} if how != "hangs" else True
    assert core.get_property("CPU", "FULL_DEVICE_NAME")


@pytest.mark.parametrize("device", ["HETERO:BAD,CPU", "MULTI:BAD,CPU"])
@pytest.mark.parametrize(
    ("how", "pattern"),
    [
        ("raises", "BAD failed in get_property.OPTIMAL_NUMBER_OF_INFER_REQUESTS.*'first'.*: ValueError: bad weather"),
        ("type", "BAD returned 'many' from get_property.OPTIMAL_NUMBER_OF_INFER_REQUESTS.*'first'.*expected 1 or more"),
        ("shape", r"BAD returned \(1, 2\) from get_property.OPTIMAL_NUMBER_OF_INFER_REQUESTS.*'first'.*d 1 or more"),
        ("hangs", "BAD did not finish get_property.OPTIMAL_NUMBER_OF_INFER_REQUESTS.*'first'.* within 200 ms"),
    ],
)
def test_properties_of_a_part(
    core: hetero.Core, bad: Bad, model: hetero.Model, device: str, how: str, pattern: str
) -> None:
    bad.fault = ("compiled property", how)
    with pytest.raises(hetero.HeteroError, match=pattern):
        compiled_for(core, model, device, **TIMEOUT)


def test_a_plugin_that_hangs_when_it_is_made_hurts_nobody_else(core: hetero.Core, model: hetero.Model) -> None:
    gate, begun = threading.Event(), threading.Event()

    def create() -> Plugin:
        begun.set()
        gate.wait()
        return Bad()

    core.register_plugin("BAD", create)
    asking = threading.Thread(target=lambda: core.get_property("BAD", "DEVICE_TYPE"))
    asking.start()
    assert begun.wait(LONG)
    np.testing.assert_array_equal(core.compile_model(model, "HETERO:CPU,TEMPLATE")(X)["y"], Y)
    gate.set()
    asking.join(LONG)
    assert core.get_property("BAD", "FULL_DEVICE_NAME") == "a bad device"


# ---- exit

HANGING = """
import faulthandler, sys, threading, time
sys.path[:0] = {paths!r}
import numpy as np
import hetero
from test_caller import Bad, X, compiled_for
from onnx import helper
from model_zoo import make_model

Bad.compiles_beside_others = True
core = hetero.Core()
bad = Bad()
core.register_plugin("BAD", lambda: bad)
nodes = [helper.make_node("Relu", ["x"], ["h"], name="first"), helper.make_node("Neg", ["h"], ["a"], name="second"),
         helper.make_node("Relu", ["a"], ["y"], name="third")]
model = core.read_model(make_model(nodes))
"""
WAYS = {
    "infer": """
bad.fault = ("infer", "hangs")
core.compile_model(model, "BAD").submit(X)
assert bad.hangs.wait({long})
""",
    "query": """
bad.fault = ("query", "hangs")
try:
    core.compile_model(model, "BAD", {"PLUGIN_TIMEOUT_MS": 100})
except hetero.errors.PluginTimeout:
    pass
else:
    raise SystemExit("not told")
""",
    "parts": """
bad.fault = ("compile", "hangs")
def compile():
    core.compile_model(model, "HETERO:BAD,CPU", pins={"second": "CPU"})
threading.Thread(target=compile, daemon=True).start()
assert bad.hangs.wait({long})
""",
}


def script(way: str) -> str:
    here = Path(__file__).parent
    return (
        HANGING.format(paths=[str(here), str(here.parent / "helpers")])
        + way.replace("{long}", str(LONG))
        + 'print("end", flush=True)\n'
    )


@pytest.mark.parametrize("way", WAYS)
def test_the_interpreter_exits_while_a_plugin_hangs(way: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script(WAYS[way])], capture_output=True, text=True, timeout=LONG, check=False
    )
    assert done.stdout == "end\n", done.stderr
    assert done.returncode == 0, done.stderr


def test_ctrl_c_ends_a_compilation_that_hangs() -> None:
    # Where a shell runs the tests in the background, SIGINT is ignored, and programs inherit that.
    hanging = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
bad.fault = ("compile", "hangs")
def tell():
    bad.hangs.wait()
    time.sleep(1)  # until the main thread waits for the plugin
    print("hangs", flush=True)
threading.Thread(target=tell, daemon=True).start()
core.compile_model(model, "HETERO:BAD,CPU", pins={"second": "CPU"})
"""
    with subprocess.Popen(
        [sys.executable, "-c", script(hanging)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hangs\n"
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=LONG)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in errors
