"""Measured costs as data: from counters, merged, saved, and everything that can be wrong with them."""

from __future__ import annotations

import json

import pytest
from onnx import helper

import hetero
from hetero.assign.costs import Costs, LinkTimes, Measurement, NodeTimes
from hetero.assign.costs.measured import CostFileError, WrongModel
from hetero.errors import HeteroError, PropertyError
from hetero.plugin.profile import EXECUTED, NOT_RUN, OPTIMIZED_OUT, ProfileRow
from model_zoo import make_model

CORE = hetero.Core()


def chain(*operators, name="graph"):
    nodes = [
        helper.make_node(op, ["x" if i == 0 else f"v{i}"], [f"v{i + 1}"], f"n{i}") for i, op in enumerate(operators)
    ]
    nodes[-1].output[0] = "y"
    return CORE.read_model(make_model(nodes, {"x": [2, 3]}, name=name))


def row(node, real, status=EXECUTED, exec_type="kernel", subgraph=0):
    return ProfileRow(node, status, "Op", exec_type, real, real, subgraph)


MODEL = chain("Relu", "Exp", "Tanh")


def test_counters_add_up():
    runs = [[row("n0", 4.0), row("n1", 1.0)], [row("n0", 2.0), row("n1", 5.0)]]
    costs = Costs.from_profile(MODEL, "CPU", runs)
    (found,) = costs.measurements
    assert found.device == "CPU"
    assert dict(found.shapes) == {"x": (2, 3)}
    assert dict(found.nodes) == {"n0": NodeTimes(2, 3.0, 2.0), "n1": NodeTimes(2, 3.0, 1.0)}
    assert found.total_us == 5.0


def test_what_did_not_run_or_was_simulated_does_not_count():
    rows = [row("n0", 1.0, NOT_RUN), row("n1", 1.0, exec_type="simulated_kernel"), row("n2", 0.0, OPTIMIZED_OUT)]
    (found,) = Costs.from_profile(MODEL, "CPU", [rows]).measurements
    assert dict(found.nodes) == {"n2": NodeTimes(1, 0.0, 0.0, fused=True)}


def test_subgraphs_count_for_their_devices():
    rows = [row("n0", 1.0, subgraph=1), row("n1", 2.0, subgraph=2), row("n2", 3.0, subgraph=3)]
    costs = Costs.from_profile(MODEL, ["CPU", "ORT", "CPU"], [rows])
    assert {entry.device: sorted(entry.nodes) for entry in costs.measurements} == {"CPU": ["n0", "n2"], "ORT": ["n1"]}
    with pytest.raises(PropertyError, match="subgraph 3, expected 1 to 2"):
        Costs.from_profile(MODEL, ["CPU", "ORT"], [rows])


def test_merging_weighs_by_counts():
    one = Costs.of_model(MODEL, [Measurement("CPU", {"x": (2, 3)}, {"n0": NodeTimes(3, 10.0, 8.0)}, 8.0, 2.0)])
    other = Costs.of_model(MODEL, [Measurement("CPU", {"x": (2, 3)}, {"n0": NodeTimes(1, 2.0, 2.0)}, 2.0, 3.0)])
    larger = Costs.of_model(MODEL, [Measurement("CPU", {"x": (4, 3)}, {"n0": NodeTimes(1, 50.0, 50.0)})])
    merged = one.merge(other, larger)
    assert len(merged.measurements) == 2
    (found,) = [entry for entry in merged.measurements if entry.shapes["x"] == (2, 3)]
    assert found == Measurement("CPU", {"x": (2, 3)}, {"n0": NodeTimes(4, 8.0, 2.0)}, 2.0, 2.0)
    assert merged.measurement("CPU", {"x": (4, 3)}).nodes["n0"].min_us == 50.0
    assert merged.measurement("CPU").nodes["n0"].count == 4
    assert merged.measurement("ORT") is None
    assert one.merge(other).measurements == other.merge(one).measurements


def test_a_file_holds_all_of_it(tmp_path):
    path = tmp_path / "costs.json"
    costs = Costs.of_model(
        MODEL,
        [Measurement("CPU", {"x": (2, 3)}, {"n0": NodeTimes(3, 10.0, 8.0, fused=True)}, 1.0, 2.5)],
        [LinkTimes("CPU", "ORT", 1.5, 30.0)],
    )
    costs.save(path)
    loaded = Costs.load(path)
    assert (loaded.measurements, loaded.links, loaded.digest) == (costs.measurements, costs.links, costs.digest)
    loaded.check_model(MODEL)
    assert loaded.to_json() == costs.to_json()
    assert repr(loaded) == f"<Costs of {MODEL.name!r} on CPU>"
    assert repr(Costs.of_model(MODEL)) == f"<Costs of {MODEL.name!r} on no device>"
    with pytest.raises(HeteroError, match="cannot write costs"):
        costs.save(tmp_path / "nowhere" / "costs.json")


def test_costs_of_another_model():
    costs = Costs.of_model(MODEL)
    other = chain("Relu", "Exp", "Sigmoid", name="other")
    with pytest.raises(WrongModel, match="measured on 'graph', which has other nodes than model 'other'"):
        costs.check_model(other)
    with pytest.raises(WrongModel, match="cannot be merged"):
        costs.merge(Costs.of_model(other))


def test_costs_of_other_devices():
    costs = Costs.of_model(MODEL, [Measurement("CPU", {}, {})])
    costs.check_devices(["TEMPLATE", "CPU"])
    Costs.of_model(MODEL).check_devices(["TEMPLATE"])
    with pytest.raises(
        PropertyError, match="the costs were measured on CPU, and the device list TEMPLATE, ORT has none of these"
    ):
        costs.check_devices(["TEMPLATE", "ORT"])


def saved(tmp_path, change):
    costs = Costs.of_model(
        MODEL, [Measurement("CPU", {}, {"n0": NodeTimes(1, 1.0, 1.0)}, 1.0, 1.0)], [LinkTimes("CPU", "ORT", 1.0, 1.0)]
    )
    data = json.loads(costs.to_json())
    change(data)
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(data))
    return path


def test_checking_many_links_takes_linear_time():
    """A search per link through all links would take an hour."""
    names = [f"D{number}" for number in range(300)]
    links = [LinkTimes(source, target, 1.0, 1.0) for source in names for target in names if source != target]
    assert len(Costs.of_model(MODEL, links=links).links) == 300 * 299


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), "format"),
        (lambda d: d.update(version=2), "version"),
        (lambda d: d.pop("digest"), "digest"),
        (lambda d: d["measurements"][0]["nodes"]["n0"].update(min_us=-1.0), "CPU: node 'n0': expected a time.*-1.0"),
        (lambda d: d["measurements"][0]["nodes"]["n0"].update(mean_us="1"), "mean_us"),
        (lambda d: d["measurements"][0]["nodes"]["n0"].update(mean_us=1e999), "float|number|time"),
        (lambda d: d["measurements"][0]["nodes"]["n0"].update(mean_us=float("nan")), "malformed|invalid"),
        (lambda d: d["measurements"][0]["nodes"]["n0"].update(count=0), "count of 1 or more, found 0"),
        (lambda d: d["measurements"][0].update(launch_us=-2), "launch_us: expected a time"),
        (lambda d: d["measurements"].append(d["measurements"][0]), "measured twice"),
        (lambda d: d["links"][0].update(us_per_mb=-3), "link from CPU to ORT: expected a time"),
        (lambda d: d["links"].append(d["links"][0]), "given twice"),
    ],
)
def test_bad_files(tmp_path, change, message):
    with pytest.raises(CostFileError, match=message):
        Costs.load(saved(tmp_path, change))


def test_files_that_are_none(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "deep").write_bytes(b"[" * 100_000)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    for name in ("empty", "deep", "binary", "missing"):
        with pytest.raises(CostFileError, match=name):
            Costs.load(tmp_path / name)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_times_that_are_none(value):
    with pytest.raises(CostFileError, match="expected a time"):
        Costs.of_model(MODEL, [Measurement("CPU", {}, {"n0": NodeTimes(1, value, 1.0)})])
    for name in ("total_us", "launch_us"):
        with pytest.raises(CostFileError, match=f"costs: CPU: {name}: expected a time"):
            Costs(MODEL.name, "", (Measurement("CPU", {}, {}, **{name: value}),))
    with pytest.raises(CostFileError, match="expected a time"):
        Costs.from_profile(MODEL, "CPU", [[row("n0", value)]])
    with pytest.raises(CostFileError, match="link"):
        Costs.of_model(MODEL, [], [LinkTimes("CPU", "ORT", value, 1.0)])


def test_shapes_of_unknown_inputs():
    with pytest.raises(PropertyError, match="no input 'X'"):
        Costs.from_profile(MODEL, "CPU", [], {"X": (2, 3)})
