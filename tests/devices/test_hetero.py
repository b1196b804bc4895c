"""HETERO: configuration, errors of the devices behind it, and schedules."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.compiling.hetero_model import HeteroCompiledModel
from hetero.plugin import CompiledModel, Plugin, Support
from model_zoo import make_model


class Fragile(Plugin):
    """Takes everything, and fails where it is told to."""

    name = "FRAGILE"
    properties = (*Plugin.properties, "PERF_COUNT", "NUM_STREAMS")

    def __init__(self, stage: str) -> None:
        super().__init__()
        self.stage = stage
        self.configs: list[dict[str, Any]] = []

    def query_model(self, model: hetero.Model, config: Mapping[str, Any]) -> Support:
        if self.stage == "query":
            raise RuntimeError("no answer")
        if self.stage == "refuse":
            return Support.from_reasons(model.num_nodes, dict.fromkeys(range(model.num_nodes), "not today"))
        return Support.from_reasons(model.num_nodes, {})

    def compile_model(self, model: hetero.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        self.configs.append(self.full_config(config))
        if self.stage == "compile":
            raise RuntimeError("no memory")
        return FragileModel(self.stage, self.name, model.inputs, model.outputs)


class FragileModel(CompiledModel):
    def __init__(self, stage: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.stage = stage

    def create_runner(self) -> FragileModel:
        return self

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        if self.stage == "run":
            raise RuntimeError("no current")
        if self.stage == "count":
            return []
        return [np.zeros((2, 3), np.float32) for _ in self.outputs]

    def profile(self) -> tuple[()]:
        return ()


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        ("query", "FRAGILE failed in query_model of 'diamond' .*RuntimeError: no answer"),
        ("compile", "FRAGILE failed in compile_model of 'diamond_subgraph1' .*'one' to '.*RuntimeError: no memory"),
        ("run", "FRAGILE failed in an inference of 'diamond_subgraph1' .*'one' to '.*RuntimeError: no current"),
        ("count", "FRAGILE returned 0 results from an inference of 'diamond_subgraph1' .* expected [12]"),
    ],
)
def test_errors_name_device_and_stage(core: hetero.Core, diamond: hetero.Model, stage: str, says: str) -> None:
    core.register_plugin("FRAGILE", lambda: Fragile(stage))
    x, strict = np.zeros((2, 3), np.float32), {"STRICT": True}
    with pytest.raises(hetero.HeteroError, match=says) as caught:
        core.compile_model(diamond, "HETERO:FRAGILE,CPU", strict, pins={"four": "CPU"})(x)
    assert stage == "count" or isinstance(caught.value.__cause__, RuntimeError)


def test_what_a_device_fails_to_compile_goes_to_the_next(core: hetero.Core, diamond: hetero.Model) -> None:
    core.register_plugin("FRAGILE", lambda: Fragile("compile"))
    core.register_plugin("PICKY", lambda: Fragile("refuse"))
    x = np.float32([[1, -2, 3], [-4, 5, 6]])
    with pytest.warns(RuntimeWarning, match="subgraph 1 moves to CPU, because FRAGILE failed: .*no memory") as warned:
        compiled = core.compile_model(diamond, "HETERO:FRAGILE,PICKY,CPU", pins={"four": "CPU"})
    assert isinstance(compiled, HeteroCompiledModel)
    assert len(warned) == 1
    assert [fallback.subgraph for fallback in compiled.fallbacks] == [1, 3]  # around "four"
    assert {fallback.device for fallback in compiled.fallbacks} == {"CPU"}
    assert compiled.get_property("EXECUTION_DEVICES") == ("CPU",)
    np.testing.assert_array_equal(compiled(x)[0], core.compile_model(diamond, "CPU")(x)[0])
    with pytest.raises(hetero.HeteroError, match="FRAGILE failed in compile_model of"):  # nobody else takes it
        core.compile_model(diamond, "HETERO:FRAGILE,PICKY")


def test_configuration_reaches_those_who_declare_it(core: hetero.Core, diamond: hetero.Model) -> None:
    fragile = Fragile("")
    core.register_plugin("FRAGILE", lambda: fragile)
    config = {"PERF_COUNT": True, "NUM_STREAMS": 2, "DEVICE_PROPERTIES": {"FRAGILE": {"NUM_STREAMS": 3}}}
    core.compile_model(diamond, "HETERO:FRAGILE,TEMPLATE", config)
    assert fragile.configs[0]["NUM_STREAMS"] == 3
    assert fragile.configs[0]["PERF_COUNT"] is True


def test_unknown_keys_raise(core: hetero.Core, diamond: hetero.Model) -> None:
    with pytest.raises(hetero.PropertyError, match="did you mean PERF_COUNT"):
        core.compile_model(diamond, "HETERO:TEMPLATE,CPU", {"PERF_CUONT": True})
    with pytest.raises(hetero.PropertyError, match="did you mean PERF_COUNT"):
        core.compile_model(diamond, "TEMPLATE", {"PERF_CUONT": True})
    with pytest.raises(hetero.PropertyError, match="'GPU', which is not in the list"):
        core.compile_model(diamond, "HETERO:TEMPLATE,CPU", {"DEVICE_PROPERTIES": {"GPU": {}}})
    with pytest.raises(hetero.PropertyError, match="expected bool, found 'maybe'"):
        core.compile_model(diamond, "HETERO:TEMPLATE,CPU", {"PERF_COUNT": "maybe"})
    with pytest.raises(hetero.PropertyError, match="read-only"):
        core.set_property("HETERO", {"FULL_DEVICE_NAME": "x"})


def test_set_property_is_a_default(core: hetero.Core, diamond: hetero.Model) -> None:
    core.set_property("HETERO", {"MULTI_DEVICE_PRIORITIES": "FPGA,CPU", "PERF_COUNT": "YES"})
    assert core.get_property("HETERO", "PERF_COUNT") is True
    compiled = core.compile_model(diamond, "HETERO")
    assert compiled.get_property("EXECUTION_DEVICES") == ("FPGA", "CPU")
    assert compiled.get_property("PERF_COUNT") is True


def test_set_property_with_keywords(core: hetero.Core) -> None:
    core.set_property("CPU", {"NUM_STREAMS": 2}, PERF_COUNT=True)
    assert (core.get_property("CPU", "NUM_STREAMS"), core.get_property("CPU", "PERF_COUNT")) == (2, True)
    with pytest.raises(hetero.PropertyError, match="did you mean PERF_COUNT"):
        core.set_property("CPU", PERF_CUONT=True)
    for values in ({"PERF_COUNT": True}, ("PERF_COUNT", True)):
        with pytest.raises(hetero.PropertyError, match="expects a device first, .*: core.set_property\\('CPU', "):
            core.set_property(values)  # type: ignore[arg-type]


def test_properties_of_others(core: hetero.Core, diamond: hetero.Model) -> None:
    """A property that exists, but not here, is not answered with a similar name."""
    with pytest.raises(hetero.PropertyError, match="'EXECUTION_DEVICES': compiled models have it"):
        core.get_property("CPU", "EXECUTION_DEVICES")
    with pytest.raises(hetero.PropertyError, match=r"'RANGE_FOR_STREAMS': devices have it, as in core.get_property\("):
        core.compile_model(diamond, "CPU").get_property("RANGE_FOR_STREAMS")
    with pytest.raises(hetero.PropertyError, match="'NUM_STREAMS': only some devices have it"):
        core.get_property("TEMPLATE", "NUM_STREAMS")


def test_compiled_properties(core: hetero.Core, diamond: hetero.Model) -> None:
    compiled = core.compile_model(diamond, "HETERO:FPGA,CPU")
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 3
    assert compiled.get_property("NETWORK_NAME") == "diamond"
    with pytest.raises(hetero.PropertyError, match="did you mean NETWORK_NAME"):
        compiled.get_property("NETWORK_NAMES")
    assert [port.name for port in compiled.inputs] == ["x"]
    assert [port.name for port in compiled.outputs] == ["y"]


def test_one_value_read_by_many_subgraphs(core: hetero.Core) -> None:
    """A value made early and read late stays until its last reader; one that is also a result stays to the end."""
    nodes = [helper.make_node("Relu", ["x"], ["v0"], "n0")]
    nodes += [helper.make_node("Add", [f"v{i}", "v0"], [f"v{i + 1}"], f"n{i + 1}") for i in range(8)]
    model = core.read_model(make_model(nodes, outputs=["v8", "v3", "v0"]))
    pins = {f"n{i}": "TEMPLATE" for i in range(1, 9, 2)}
    compiled = core.compile_model(model, "HETERO:CPU,TEMPLATE", pins=pins)
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 9
    out = compiled(np.ones((2, 3), np.float32))
    assert [float(out[name][0, 0]) for name in ("v8", "v3", "v0")] == [9.0, 4.0, 1.0]


def test_shared_constants_do_not_join_regions(core: hetero.Core) -> None:
    """A weight that two subgraphs read is cloned into both; it is no edge between them."""
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"], "first"),
        helper.make_node("Exp", ["a"], ["b"], "middle"),
        helper.make_node("Add", ["b", "w"], ["y"], "last"),
    ]
    model = core.read_model(make_model(nodes, weights={"w": np.float32([1, 2, 3])}))
    plan = core.plan(model, "HETERO:FPGA,CPU")
    assert [part.nodes for part in plan.subgraphs] == [("first",), ("middle",), ("last",)]
    out = core.compile_model(model, plan)(np.zeros((2, 3), np.float32))
    np.testing.assert_allclose(out[0][0], np.exp([1, 2, 3]) + np.float64([1, 2, 3]), rtol=1e-6)


@pytest.mark.parametrize("device", ["CPU", "ORT"])
def test_one_subgraph_runs_again_without_a_detour(core: hetero.Core, device: str) -> None:
    """Results in the model's order, fresh each time, whatever order the submodel has; an input that is read by nobody
    is checked all the same."""
    nodes = [helper.make_node("Relu", ["x"], ["a"], "one"), helper.make_node("Neg", ["a"], ["y"], "two")]
    both = make_model(nodes, outputs=["y", "a"])
    request = core.compile_model(core.read_model(both), f"HETERO:{device}").create_infer_request()
    held = []
    for value in (1, 2, 3):
        held.append(request.infer(np.full((2, 3), value, np.float32)))
        held[-1]["y"][:, 1] = 7
    assert [float(out["a"][0, 0]) for out in held] == [1, 2, 3]
    assert [out["y"][0].tolist() for out in held] == [[-v, 7, -v] for v in (1, 2, 3)]
    with pytest.raises(hetero.InferenceError, match="'x'"):
        request.infer(np.zeros((3, 2), np.float32))
    spare = make_model(nodes, inputs={"x": [2, 3], "spare": [2]})
    request = core.compile_model(core.read_model(spare), f"HETERO:{device}").create_infer_request()
    x = np.ones((2, 3), np.float32)
    for _ in range(2):
        request.infer({"x": x, "spare": np.zeros(2, np.float32)})
    with pytest.raises(hetero.InferenceError, match="'spare'"):
        request.infer({"x": x, "spare": np.zeros(3, np.float32)})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("DEVICE_ID", "1", "HETERO over CPU, TEMPLATE has no property 'DEVICE_ID'"),  # of which device?
        ("FULL_DEVICE_NAME", "mine", "FULL_DEVICE_NAME of HETERO over CPU, TEMPLATE is read-only"),
        ("RANGE_FOR_STREAMS", (1, 2), "has no property 'RANGE_FOR_STREAMS'"),  # of CPU, and read-only there
        ("NUM_STREAM", 2, "has no property 'NUM_STREAM'"),
    ],
)
def test_no_property_is_accepted_and_plays_no_part(
    core: hetero.Core, diamond: hetero.Model, key: str, value: object, message: str
) -> None:
    with pytest.raises(hetero.PropertyError, match=message):
        core.compile_model(diamond, "HETERO:CPU,TEMPLATE", {key: value})


def test_messages_of_a_cut_model(core: hetero.Core, diamond: hetero.Model, caplog: pytest.LogCaptureFixture) -> None:
    core.compile_model(diamond, "HETERO:CPU,TEMPLATE", {"LOG_LEVEL": "INFO"}, pins={"two": "TEMPLATE"})
    told = [(record.name, record.levelname) for record in caplog.records]
    assert ("hetero.CPU", "INFO") in told
    assert ("hetero.TEMPLATE", "INFO") in told


def test_messages_go_to_stderr_if_nobody_else_takes_them(tmp_path: Path) -> None:
    script = """
import hetero, numpy as np, sys
core = hetero.Core()
model = core.read_model(sys.argv[1])
core.compile_model(model, "CPU")
core.set_property("CPU", {"LOG_LEVEL": "INFO"})
core.compile_model(model, "CPU")
core.compile_model(model, "CPU", {"LOG_LEVEL": "NO"})
"""
    path = tmp_path / "relu.onnx"
    path.write_bytes(make_model([helper.make_node("Relu", ["x"], ["y"], name="relu")]).SerializeToString())
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("INFO hetero.CPU: compiled in")
    assert "'relu'" in line


@pytest.mark.parametrize("devices", ["CPU", "CPU,TEMPLATE"])
def test_what_lies_on_one_device_is_compiled_whole(core: hetero.Core, devices: str) -> None:
    """Two chains that no edge joins, and inputs that are outputs, too."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Neg", ["a"], ["y"], name="neg"),
        helper.make_node("Exp", ["z"], ["w"], name="exp"),
        helper.make_node("Identity", ["z"], ["z_out"], name="through"),
    ]
    proto = make_model(nodes, {"x": [2, 3], "z": ["n"]}, ["y", "w", "z_out", "x"])
    model = core.read_model(proto)
    plan = core.plan(model, f"HETERO:{devices}")
    assert plan.num_subgraphs == 3  # each is connected
    compiled = core.compile_model(model, f"HETERO:{devices}")
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 1
    assert compiled.get_property("EXECUTION_DEVICES") == ("CPU",)
    x, z = np.float32([[1, -2, 3], [-4, 5, 6]]), np.float32([0, 1])
    stream = io.BytesIO()
    compiled.export_model(stream)
    for runs in (compiled, core.import_model(stream.getvalue())):
        request = runs.create_infer_request()
        for _ in range(2):
            out = request.infer({"x": x, "z": z})
            np.testing.assert_array_equal(out["y"], -np.maximum(x, 0))
            np.testing.assert_allclose(out["w"], np.exp(z), rtol=1e-6)
            np.testing.assert_array_equal(out["z_out"], z)
            np.testing.assert_array_equal(out["x"], x)
            assert not np.may_share_memory(out["x"], x)
    cut = core.compile_model(model, f"HETERO:{devices}", pins={"exp": devices.split(",")[-1]})
    assert cut.get_property("HETERO_NUMBER_OF_SUBMODELS") == (1 if devices == "CPU" else 3)
