"""``hetero tune``."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero as library
from command_line import Invoke, Json
from hetero.cli.tuning import Trial, Tuning, summary
from hetero.plugin import CompiledModel, Plugin, Support
from model_zoo import make_model

X = np.float32([[1, -2, 3], [-4, 5, 6]])


class Quick(Plugin):
    """Relu; ``offset`` makes its results wrong, ``seconds`` makes it slow."""

    name = "QUICK"
    offset = 0.0
    seconds = 0.0

    def query_model(self, model: library.Model, config: Mapping[str, Any]) -> Support:
        refused = {i: "only Relu" for i in range(model.num_nodes) if model.nodes[i].op_type != "Relu"}
        return Support.from_reasons(model.num_nodes, refused)

    def compile_model(self, model: library.Model, config: Mapping[str, Any], context: object = None) -> CompiledModel:
        return QuickModel(self, model)


class QuickModel(CompiledModel):
    def __init__(self, plugin: Quick, model: library.Model) -> None:
        super().__init__("QUICK", model.inputs, model.outputs)
        self.plugin = plugin

    def create_runner(self) -> QuickModel:
        return self

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        time.sleep(self.plugin.seconds)
        return [np.maximum(inputs[0], 0) + np.float32(self.plugin.offset)]

    def profile(self) -> tuple[()]:
        return ()


@pytest.fixture
def quick(core: library.Core) -> Quick:
    plugin = Quick()
    core.register_plugin("QUICK", lambda: plugin)
    return plugin


def tuned(core: library.Core, devices: str, config: Any = None, seconds: float = 0.3, model: Any = None) -> Tuning:
    model = model if model is not None else make_model([helper.make_node("Relu", ["x"], ["y"])])
    tuning = Tuning(
        core, core.read_model(model), devices.split(","), config or {}, {"x": X}, seconds=seconds, tolerances=(1e-3, 0)
    )
    tuning.best = tuning.run()  # type: ignore[attr-defined]
    return tuning


def test_control_flow_is_tried_only_in_lists(hetero: Invoke, core: library.Core) -> None:
    tuning = tuned(core, "CONTROL_FLOW,CPU", seconds=0.01)
    names = [trial.name for trial in tuning.trials]
    assert [name for name in names if name.endswith(" alone")] == ["CPU alone"]
    assert "by priority CONTROL_FLOW, CPU" in names
    assert "give the devices to choose from" in hetero("tune", "x.onnx", "-d", "CONTROL_FLOW", code=2).stderr


def test_the_plan_is_written_and_runs(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    found = hetero_json("tune", diamond_path, "-d", "FPGA,CPU", "-t", "3")
    states = {entry["plan"]: entry["state"] for entry in found["candidates"]}
    assert list(states) == [
        "CPU alone", "FPGA alone", "by priority FPGA, CPU", "by priority CPU, FPGA", "by cost", "in parallel"
    ]  # fmt: skip
    assert states["CPU alone"] == "measured"
    assert states["FPGA alone"] == "failed"  # LRN
    (reason,) = [entry["reason"] for entry in found["candidates"] if entry["plan"] == "FPGA alone"]
    assert reason.endswith("in the list [FPGA]")
    assert states["by priority CPU, FPGA"] == "same"
    best = next(entry for entry in found["candidates"] if entry["plan"] == found["best"])
    assert best["state"] == "measured"
    assert best["runs"] >= 5
    measured = [entry for entry in found["candidates"] if entry["state"] == "measured"]
    assert best["median_ms"] <= 1.5 * min(entry["median_ms"] for entry in measured)
    assert all(entry["difference"]["passes"] for entry in measured if entry["difference"])
    core = library.Core()
    plan = library.Plan.load("plan.json")
    feed = {"x": np.random.default_rng(0).random((1, 4, 5, 6), np.float32)}
    expected = core.compile_model(diamond_path, "CPU")(feed)["y"]
    np.testing.assert_allclose(core.compile_model(diamond_path, plan)(feed)["y"], expected, rtol=1e-5)
    assert "y" in hetero("run", diamond_path, "--plan", "plan.json").stdout
    text = hetero("tune", diamond_path, "-d", "FPGA", "-d", "CPU", "-t", "0.2", "-f").stdout
    assert re.search(r"^The (fastest|best) is '", text, re.MULTILINE)
    assert "Wrote plan.json: hetero run" in text
    assert "Simulated devices: FPGA. Their times are not" in text


def test_a_candidate_with_more_subgraphs_may_be_a_little_faster() -> None:
    class Timed:
        def __init__(self, seconds: float) -> None:
            self.latencies = [seconds]

        def ratio_to(self, other: Timed, clock: str) -> float:
            return self.latencies[0] / other.latencies[0]

    made: list[Any] = [Timed(seconds) for seconds in (1.0, 0.99, 2.0)]
    one, two, three = (Trial(name, "measured", contender=timed) for name, timed in zip("abc", made, strict=True))
    assert summary(one, one, [one, two, three]) == (
        "The best is 'a': 1 s per inference; 'b' is less than 3 % faster, with more subgraphs"
    )
    assert summary(two, one, [one, two, three]) == "The fastest is 'b': 990 ms per inference, 0.990 times that of 'a'"


def test_wrong_results_do_not_win(core: library.Core, quick: Quick) -> None:
    quick.offset = 1.0
    # Time for the imports of the first run. With one candidate left, the tuning ends after a second.
    tuning = tuned(core, "QUICK,CPU", seconds=20)
    states = {trial.name: trial.state for trial in tuning.trials}
    assert states["CPU alone"] == "measured"
    assert states["QUICK alone"] == "differs"
    (trial,) = [trial for trial in tuning.trials if trial.name == "QUICK alone"]
    assert trial.reason.startswith("'y' differs from that of 'CPU alone': max |Δ| 1, 6 elements off")
    assert tuning.best.name == "CPU alone"  # type: ignore[attr-defined]


def test_a_slow_candidate_is_not_measured_for_long(core: library.Core, quick: Quick) -> None:
    quick.seconds = 0.05
    tuning = tuned(core, "QUICK,CPU")
    (trial,) = [trial for trial in tuning.trials if trial.name == "QUICK alone"]
    assert trial.state == "slow"
    assert re.fullmatch(r"slow: its fastest run takes [0-9.]+ times as long as the best", trial.reason)
    assert trial.median_s is not None
    assert trial.median_s >= 0.05
    assert tuning.best.name == "CPU alone"  # type: ignore[attr-defined]


def test_one_slow_run_does_not_rule_a_candidate_out(
    core: library.Core, quick: Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = []

    def seconds(trial: Trial) -> float:
        timed.append(trial.name)
        return 0.1 if timed.count(trial.name) == 1 and trial.name == "QUICK alone" else 1e-3

    monkeypatch.setattr("hetero.cli.tuning._seconds_of_a_run", seconds)
    tuning = tuned(core, "QUICK,CPU", seconds=1)
    assert {trial.name: trial.state for trial in tuning.trials}["QUICK alone"] == "measured"
    assert timed.count("QUICK alone") == 2


def test_the_time_bounds_the_candidates(core: library.Core, quick: Quick) -> None:
    quick.seconds = 0.2
    tuning = tuned(core, "QUICK,TEMPLATE,CPU", seconds=0.01)
    assert tuning.trials[0].name == "CPU alone"
    assert tuning.trials[0].state == "measured"
    assert {trial.state for trial in tuning.trials[1:]} == {"no time"}
    assert tuning.best.name == "CPU alone"  # type: ignore[attr-defined]


def test_random_outputs_are_not_compared(core: library.Core) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("RandomUniformLike", ["x"], ["r"])]
    tuning = tuned(core, "TEMPLATE,CPU", model=make_model(nodes, outputs=("y", "r")))
    assert tuning.unstable == ["r"]
    assert [trial.state for trial in tuning.trials if trial.state == "differs"] == []


def test_properties_reach_their_devices(core: library.Core) -> None:
    config = {"NUM_STREAMS": 2, "DEVICE_PROPERTIES": {"CPU": {"INFERENCE_NUM_THREADS": 1}}}
    tuning = tuned(core, "TEMPLATE,CPU", config)
    assert all(trial.state != "failed" for trial in tuning.trials), [trial.reason for trial in tuning.trials]
    (alone,) = tuning.trials[0].compiled.submodels  # type: ignore[union-attr]
    assert alone.get_property("INFERENCE_NUM_THREADS") == 1


def test_errors(hetero: Invoke, diamond_path: Path) -> None:
    assert "give the devices to choose from" in hetero("tune", diamond_path, code=2).stderr
    for device in ("AUTO", "HETERO", "MULTI", "MULTI:ORT,CPU"):
        words = f"-d {device}: give the devices to choose from, such as -d ORT,CPU"
        assert words in hetero("tune", diamond_path, "-d", device, code=2).stderr
    assert "CPU is listed twice" in hetero("tune", diamond_path, "-d", "CPU,CPU", code=2).stderr
    assert "cannot be part of" in hetero("tune", diamond_path, "-d", "AUTO,CPU", code=2).stderr
    assert "unknown device 'NOPE'" in hetero("tune", diamond_path, "-d", "NOPE,CPU", code=1).stderr
    assert "no candidate can run" in hetero("tune", diamond_path, "-d", "FPGA", "-t", "0.1", code=1).stderr
    Path("plan.json").write_text("mine")
    assert "already exists" in hetero("tune", diamond_path, "-d", "CPU", code=1).stderr
    assert Path("plan.json").read_text() == "mine"
    hetero("export", diamond_path, "-o", "d.hetero")
    assert "exported model" in hetero("tune", "d.hetero", "-d", "CPU", "-f", code=1).stderr
