"""``hetero bench``."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import onnx
import pytest

import hetero as library
from command_line import Invoke, Json


def test_several_devices_in_turn(hetero_json: Json, hetero: Invoke, diamond_path: Path) -> None:
    found = hetero_json("bench", diamond_path, "-d", "CPU", "-d", "HETERO:FPGA,CPU", "-t", "0.3")
    one, two = found["results"]
    assert (one["device"], two["device"]) == ("CPU", "HETERO:FPGA,CPU")
    assert one["ratio"] == {"wall": 1.0, "cpu": 1.0}
    assert two["ratio"]["wall"] > 0
    for result in found["results"]:
        latency = result["latency_ms"]
        order = [latency[key] for key in ("min", "p50", "p90", "p95", "p99", "max")]
        assert order == sorted(order)
        assert result["seconds"] >= 0.3
        assert result["throughput_per_s"] == pytest.approx(result["inferences"] / result["seconds"])
    text = hetero("bench", diamond_path, "-d", "CPU", "-d", "TEMPLATE", "-niter", "3", "--warmup", "0").stdout
    assert "CPU time, ratio to the first" in text


def test_auto_has_chosen(hetero_json: Json, hetero: Invoke, diamond_path: Path) -> None:
    (result,) = hetero_json("bench", diamond_path, "-d", "AUTO:TEMPLATE,CPU", "-niter", "3")["results"]
    assert result["device"] == "AUTO:TEMPLATE,CPU"
    assert result["choice"].startswith("CPU: ")
    assert "while" not in result["choice"]
    text = hetero("bench", diamond_path, "-d", "AUTO:TEMPLATE,CPU", "-niter", "3").stdout
    assert "AUTO:TEMPLATE,CPU chose CPU: " in text


def test_options_of_benchmark_app(hetero_json: Json, diamond_path: Path) -> None:
    found = hetero_json(
        "bench", "-m", diamond_path, "-d", "CPU", "-niter", "12", "-nstreams", "2", "-nireq", "3", "-shape", "[1,4,5,6]"
    )
    (result,) = found["results"]
    assert result["in_flight"] == 3
    assert result["streams"] == 2
    assert 12 <= result["inferences"] <= 14
    (both,) = hetero_json("bench", diamond_path, "-niter", "2", "-t", "0.2")["results"]
    assert both["seconds"] >= 0.2
    assert both["inferences"] > 2
    (many,) = hetero_json("bench", diamond_path, "--niter", "5", "-hint", "throughput", "-nthreads", "2")["results"]
    assert many["in_flight"] == many["streams"] == 2
    each = ("bench", diamond_path, "-d", "HETERO:FPGA,CPU", "-niter", "1", "-hint", "none", "-nstreams")
    (listed,) = hetero_json(*each, "FPGA:3,CPU:2")["results"]
    assert listed["streams"] == listed["in_flight"] == 5


@pytest.mark.parametrize("streams", ["0", "-1", "x", "", "1,2", "CPU", "CPU:", ":2", "CPU:0", "CPU:1,2"])
def test_streams_that_make_no_sense(hetero: Invoke, diamond_path: Path, streams: str) -> None:
    assert "DEVICE:NUMBER" in hetero("bench", diamond_path, f"-nstreams={streams}", code=2).stderr


def test_counters(hetero_json: Json, hetero: Invoke, diamond_path: Path) -> None:
    (result,) = hetero_json("bench", diamond_path, "-d", "HETERO:FPGA,CPU", "-niter", "2", "-pc")["results"]
    assert [part["device"] for part in result["counters"]["subgraphs"]] == ["FPGA", "CPU", "FPGA"]
    text = hetero("bench", diamond_path, "-d", "HETERO:FPGA,CPU", "-niter", "2", "-pc").stdout
    assert "Counters of HETERO:FPGA,CPU, by subgraph" in text


def test_costs_are_saved_and_merged_and_planned_with(
    hetero: Invoke, hetero_json: Json, diamond_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "costs.json"
    for _ in range(2):
        hetero("bench", diamond_path, "-d", "CPU", "-d", "TEMPLATE", "-niter", "2", "--save-costs", path)
    costs = library.Costs.load(path)
    assert sorted(entry.device for entry in costs.measurements) == ["CPU", "TEMPLATE"]
    assert {(link.source, link.target) for link in costs.links} == {("CPU", "TEMPLATE"), ("TEMPLATE", "CPU")}
    counts = {times.count for entry in costs.measurements for times in entry.nodes.values()}
    assert all(count >= 2 for count in counts)
    core = library.Core()
    config = {"ASSIGNMENT": "COST", "COSTS": path}
    plan = core.plan(core.read_model(diamond_path), "HETERO:TEMPLATE,CPU", config)
    assert set(plan.latency.sources) == {"measured"}
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert "other.json" in hetero("bench", diamond_path, "-niter", "2", "--save-costs", other, code=1).stderr


def test_exported_model(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    hetero("export", diamond_path, "-d", "HETERO:FPGA,CPU", "-o", "d.hetero")
    (result,) = hetero_json("bench", "d.hetero", "-niter", "2")["results"]
    assert result["device"] == "HETERO:FPGA,CPU"


def test_what_goes_wrong_in_a_run_is_told(hetero: Invoke, two_inputs_path: Path) -> None:
    error = hetero("bench", two_inputs_path, "-niter", "2", "-nireq", "2", "--range", "tokens=50:60", code=1).stderr
    assert "look up" in error


def test_pins_are_for_lists(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    assert "give -d HETERO" in hetero("bench", diamond_path, "-d", "CPU", "--pin", "last=CPU", code=2).stderr
    both = ("-d", "CPU", "-d", "HETERO:FPGA,CPU", "--pin", "last=CPU", "-niter", "1", "-pc")
    found = hetero_json("bench", diamond_path, *both)["results"]
    assert [part["device"] for part in found[1]["counters"]["subgraphs"]] == ["FPGA", "CPU", "FPGA", "CPU"]


def test_what_cannot_be_written_is_told_before_measuring(hetero: Invoke, diamond_path: Path) -> None:
    for option in ("--trace", "--save-costs"):
        assert "No such file" in hetero("bench", diamond_path, "-t", "100", option, "gone/x.json", code=1).stderr
    hetero("export", diamond_path, "-o", "d.hetero")
    assert "give the ONNX file" in hetero("bench", "d.hetero", "-t", "100", "--save-costs", "c.json", code=1).stderr


def test_csv_of_a_scalar(hetero: Invoke) -> None:
    """The column has shapes as --shape expects them."""
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, []) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", ports[:1], ports[1:])
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]), "s.onnx")
    hetero("bench", "s.onnx", "-niter", "1", "--warmup", "0", "--csv", "out.csv")
    with open("out.csv", newline="") as file:
        assert [row["inputs"] for row in csv.DictReader(file)] == ["x=scalar"]


def test_csv(hetero_json: Json, hetero: Invoke, diamond_path: Path) -> None:
    found = hetero_json("bench", diamond_path, "-d", "CPU", "-d", "TEMPLATE", "-niter", "7", "--csv", "out.csv", "-pc")
    with open("out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["device"] for row in rows] == ["CPU", "TEMPLATE"]
    for row, result in zip(rows, found["results"], strict=True):
        assert float(row["latency_ms.p50"]) == result["latency_ms"]["p50"]
        assert [float(row[f"median_interval.{end}"]) for end in ("low", "high")] == result["median_interval"]
        assert float(row["ratio.wall"]) == result["ratio"]["wall"]
        low, high = result["median_interval"]
        assert result["latency_ms"]["min"] <= low <= result["latency_ms"]["p50"] <= high <= result["latency_ms"]["max"]
    hetero_json("bench", diamond_path, "-d", "AUTO:CPU", "-niter", "1", "--csv", "out.csv")  # with another column
    with open("out.csv", newline="") as file:
        again = list(csv.DictReader(file))
    assert again[:2] == [{**row, "choice": ""} for row in rows]
    assert again[2]["choice"].startswith("CPU")
    assert (again[2]["model"], again[2]["inputs"]) == (diamond_path.name, "x=1x4x5x6")
    hetero("bench", diamond_path, "-niter", "1", "--csv", "out.csv", "--force")
    with open("out.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 1


@pytest.mark.parametrize(
    "content", [b"", b"a,b\n1,2\n", b"\xff", b"time,model,inputs\na,b,c,d\n", b'time,model,inputs\n"']
)
def test_a_file_that_is_not_a_table_of_bench(content: bytes, hetero: Invoke, diamond_path: Path) -> None:
    Path("out.csv").write_bytes(content)
    failed = hetero("bench", diamond_path, "-t", "100", "--csv", "out.csv", code=1).stderr
    assert "out.csv" in failed
    assert "--force replaces it" in failed
    assert Path("out.csv").read_bytes() == content


def test_history(hetero_json: Json, hetero: Invoke, diamond_path: Path, two_inputs_path: Path) -> None:
    bench = ("bench", diamond_path, "-d", "CPU", "-niter", "20", "--history", "h.jsonl")
    assert hetero_json(*bench)["changes"] == []
    (change,) = hetero_json(*bench)["changes"]
    first, second = (json.loads(line) for line in Path("h.jsonl").read_text().splitlines())
    assert change["device"] == "CPU"
    assert change["before_ms"] == first["results"][0]["latency_ms"]["p50"]
    assert change["after_ms"] == second["results"][0]["latency_ms"]["p50"]
    assert change["ratio"] == pytest.approx(change["after_ms"] / change["before_ms"])
    assert change["time"] == first["time"]
    assert change["same_host"]
    assert "Since the last run" in hetero(*bench).stdout
    # Another device, model, number of requests or shape is another measurement.
    assert hetero_json(*bench[:2], "-d", "TEMPLATE", *bench[4:])["changes"] == []
    assert hetero_json(*bench, "-nireq", "2")["changes"] == []
    assert hetero_json("bench", two_inputs_path, *bench[2:])["changes"] == []
    assert hetero_json("bench", two_inputs_path, *bench[2:], "--dim", "batch=3")["changes"] == []
    assert len(Path("h.jsonl").read_text().splitlines()) == 7


def test_a_history_tells_a_slower_model(hetero_json: Json, diamond_path: Path) -> None:
    bench = ("bench", diamond_path, "-d", "CPU", "-niter", "20", "--history", "h.jsonl")
    hetero_json(*bench)
    entry = json.loads(Path("h.jsonl").read_text())
    for factor, differs in ((1e-3, True), (1e3, True), (None, None)):
        old = json.loads(json.dumps(entry))
        (result,) = old["results"]
        result["median_interval"] = None if factor is None else [factor * end for end in result["median_interval"]]
        Path("h.jsonl").write_text(json.dumps(old) + "\n")
        (change,) = hetero_json(*bench)["changes"]
        assert change["differs"] is differs


@pytest.mark.parametrize("line", ["", "x", "{}", "[]", '{"format": "hetero-bench", "version": 2, "results": []}', "7"])
def test_a_file_that_is_not_a_history(line: str, hetero: Invoke, diamond_path: Path) -> None:
    Path("h.jsonl").write_text(f"{line}\n")
    done = hetero("bench", diamond_path, "-niter", "1", "--history", "h.jsonl", code=1)
    assert "h.jsonl: line 1 is not an entry of a history" in done.stderr
    assert Path("h.jsonl").read_text() == f"{line}\n"
