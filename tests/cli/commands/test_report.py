"""``hetero report``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from command_line import Invoke, Json

LIST = ("-d", "HETERO:FPGA,CPU")


def report_data() -> Any:
    return json.loads(re.findall(r'id="data">(.*?)</script>', Path("report.html").read_text())[0])


def test_report(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    assert "Wrote report.html" in hetero("report", diamond_path, *LIST).stdout
    assert "norm" in Path("report.html").read_text()
    assert "already exists" in hetero("report", diamond_path, *LIST, code=1).stderr
    found = hetero_json("report", diamond_path, *LIST, "--run", "--overlays", ".", "-o", "run.html")
    assert found["paths"][0] == "run.html"
    assert len(found["paths"]) == 3
    assert len(Path("run.html").read_text()) > len(Path("report.html").read_text())
    assert all(Path(path).is_file() for path in found["paths"])
    assert "already exists" in hetero("report", diamond_path, *LIST, "--overlays", ".", "-o", "2.html", code=1).stderr
    assert not Path("2.html").exists()
    assert "-d DEVICE or --plan" in hetero("report", diamond_path, code=2).stderr


def test_other_kinds_of_files(hetero: Invoke, diamond_path: Path) -> None:
    done = hetero("report", diamond_path, "-d", "HETERO:FPGA,CPU", "-o", "r.pdf", code=2)
    assert "-o r.pdf: a report is an HTML file, so its name must end in .html or .htm" in done.stderr
    hetero("report", diamond_path, "-d", "HETERO:FPGA,CPU", "-o", "r.HTM")


def test_a_run_of_a_pipeline(hetero: Invoke, diamond_path: Path) -> None:
    """Several inferences are in flight."""
    policy = ("--property", "MODEL_DISTRIBUTION_POLICY=PIPELINE_PARALLEL")
    hetero("report", diamond_path, "-d", "HETERO:CPU.0,CPU.1", *policy, "--run")
    data = report_data()
    spans, stages = data["run"]["spans"], data["stages"]
    assert "predicted" not in data["run"]
    assert set(spans["request"]) == set(range(len(stages) + 3))
    assert set(spans["subgraph"]) == {first for first, _ in stages}


@pytest.mark.filterwarnings("default:FPGA may exceed its limit")
def test_sizes_of_a_model_that_leaves_them_open(hetero: Invoke, two_inputs_path: Path) -> None:
    """With --run, they are those of the inputs."""
    open_sizes = "set 'batch', 'length', as in shapes={'batch': 1} or --dim batch=1"
    command = "report", two_inputs_path, *LIST, "--force"
    assert "may exceed" in hetero(*command).stderr
    pages = [report_data()]
    for options in ("--run",), ("--dim", "batch=2", "--dim", "length=3"):
        assert "may exceed" not in hetero(*command, *options).stderr
        pages.append(report_data())
    assert [page["unknown_sizes"] for page in pages] == [open_sizes, "", ""]
    assert [set(page["values"]["bytes"]) for page in pages] == [{-1}, {4, 12}, {24, 72}]
