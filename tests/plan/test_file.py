"""Plans as files: edits take effect, and errors say precisely what is wrong with a bad edit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.plan.schema import json_schema
from model_zoo import make_model

DEVICES = "HETERO:FPGA,CPU"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def saved(core: hetero.Core, diamond: hetero.Model, tmp_path: Path) -> Path:
    core.plan(diamond, DEVICES, {"PARTITION_POLICY": "documented"}).save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> hetero.Plan:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return hetero.Plan.load(path)


def test_the_same_plan_gives_the_same_bytes(core: hetero.Core, diamond: hetero.Model, saved: Path) -> None:
    first = saved.read_bytes()
    core.plan(diamond, DEVICES, {"PARTITION_POLICY": "documented"}).save(saved)
    assert saved.read_bytes() == first
    loaded = hetero.Plan.load(saved)
    loaded.save(saved)
    assert saved.read_bytes() == first
    core.plan(diamond, loaded).save(saved)
    assert saved.read_bytes() == first
    assert b'\n  "four": "CPU",\n' in first  # a line per node


def test_everything_is_as_it_was(core: hetero.Core, diamond: hetero.Model, saved: Path) -> None:
    plan = core.plan(diamond, DEVICES, {"PARTITION_POLICY": "documented"})
    loaded = hetero.Plan.load(saved)
    for name in ("affinity", "devices", "identity", "model_name", "num_nodes", "num_subgraphs", "pins", "policy"):
        assert getattr(loaded, name) == getattr(plan, name), name
    for name in ("reasons", "subgraphs", "totals", "values", "warnings"):
        assert getattr(loaded, name) == getattr(plan, name), name
        assert getattr(plan, name), name
    assert str(loaded) == str(plan)


def test_an_edited_device_is_honored(core: hetero.Core, diamond: hetero.Model, saved: Path) -> None:
    plan = core.plan(diamond, edit(saved, lambda data: data["affinity"].update(six="CPU")))
    assert plan.affinity["six"] == "CPU"
    assert plan.reasons["six"] == "set to CPU in the plan"
    assert plan.explain("six").origin == "plan"
    assert plan.num_subgraphs == 5
    x = np.float32([[-1, 2, 3], [4, 5, 6]])
    found = core.compile_model(diamond, plan)(x)[0]
    np.testing.assert_allclose(found, core.compile_model(diamond, "CPU")(x)[0], rtol=1e-6)


def test_edited_subgraphs_are_honored(core: hetero.Core, diamond: hetero.Model, saved: Path) -> None:
    """Node "three" goes over to the first subgraph, where it can be too."""

    def change(data: dict[str, Any]) -> None:
        data["subgraphs"][0]["nodes"].append("three")
        data["subgraphs"][2]["nodes"].remove("three")

    plan = core.plan(diamond, edit(saved, change))
    assert [part.nodes for part in plan.subgraphs] == [("one", "two", "three"), ("four",), ("five", "six", "seven")]
    compiled = core.compile_model(diamond, hetero.Plan.load(saved))
    assert compiled.plan.subgraphs == plan.subgraphs
    x = np.float32([[-1, 2, 3], [4, 5, 6]])
    np.testing.assert_allclose(compiled(x)[0], core.compile_model(diamond, "CPU")(x)[0], rtol=1e-6)


def test_subgraphs_that_are_left_out_are_cut_anew(core: hetero.Core, diamond: hetero.Model, saved: Path) -> None:
    before = hetero.Plan.load(saved).subgraphs
    assert core.plan(diamond, edit(saved, lambda data: data.update(subgraphs=[]))).subgraphs == before
    assert core.plan(diamond, edit(saved, lambda data: data.pop("subgraphs"))).subgraphs == before


def test_a_plan_can_be_written_by_hand(core: hetero.Core, diamond: hetero.Model, tmp_path: Path) -> None:
    affinity = dict.fromkeys(diamond.keys, "FPGA") | {"four": "CPU"}
    data = {
        "format": "hetero-plan",
        "version": 1,
        "model": {"name": ""},
        "devices": ["FPGA", "CPU"],
        "affinity": affinity,
    }
    (tmp_path / "plan.json").write_text(json.dumps(data))
    plan = core.plan(diamond, hetero.Plan.load(tmp_path / "plan.json"))
    assert plan.subgraphs == core.plan(diamond, DEVICES).subgraphs


def test_pins_are_remembered(core: hetero.Core, diamond: hetero.Model, tmp_path: Path) -> None:
    pins = {"op:LeakyRelu": "CPU", "seven": "FPGA"}
    core.plan(diamond, DEVICES, pins=pins).save(tmp_path / "plan.json")
    plan = core.plan(diamond, hetero.Plan.load(tmp_path / "plan.json"))
    assert plan.pins == pins
    assert plan.explain("two").reason == "pinned to CPU by 'op:LeakyRelu'"
    assert plan.explain("seven").origin == "pin"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data["affinity"].update(six="FPGAA"), r"node 'six' is on 'FPGAA'.*did you mean FPGA"),
        (lambda data: data["affinity"].update(six=3), r"affinity of 'six': expected a string, found 3"),
        (
            lambda data: data.update(version=99),
            "format version 99, this version of hetero reads version 1: update hetero",
        ),
        (lambda data: data.update(version=0), "version 0, .* plan the model again"),
        (lambda data: data.update(format="other"), "its `format` is 'other'"),
        (lambda data: data.pop("devices"), "missing required field `devices`"),
        (lambda data: data.update(devices=[]), "list of devices is empty"),
        (lambda data: data.update(devices=["FPGA", "CPU", "FPGA"]), "'FPGA' is listed twice"),
        (lambda data: data.update(policy="atuo"), r"unknown policy 'atuo' \(did you mean auto\?\)"),
        (lambda data: data["subgraphs"][0].update(device=3), r"subgraphs\[0\]\.device"),
        (lambda data: data["subgraphs"][1].update(device="CUP"), r"subgraph 2 is on 'CUP'.*did you mean CPU"),
        (lambda data: data["subgraphs"][1].update(nodes=[]), "subgraph 2 has no nodes"),
        (lambda data: data["totals"][0].update(sent_bytes=10**400), "the number 1000*0 is out of range"),
    ],
)
def test_what_the_file_alone_tells(saved: Path, change: Callable[[dict[str, Any]], object], says: str) -> None:
    with pytest.raises(hetero.HeteroError, match=f"^plan {saved}: .*{says}"):
        edit(saved, change)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda data: data["affinity"].update(sxi=data["affinity"].pop("six")),
            r"'sxi', which .* \(did you mean six\?\)",
        ),
        (lambda data: data["affinity"].pop("six"), "has no device for node 'six' of model 'diamond'$"),
        (lambda data: [data["affinity"].pop(key) for key in ("one", "six")], "node 'one' of .* for 1 more"),
        (lambda data: data["subgraphs"][1]["nodes"].append("two"), "'two' is in subgraph 1 and in subgraph 2"),
        (lambda data: data["subgraphs"][0]["nodes"].remove("two"), "'two' is not in any subgraph"),
        (lambda data: data["subgraphs"][0]["nodes"].append("twoo"), "subgraph 1 holds node 'twoo'.*did you mean two"),
        (lambda data: data["subgraphs"].reverse(), "edge 'two' -> 'three' leads from subgraph 3 to subgraph 1"),
        (
            lambda data: data.update(
                subgraphs=[
                    {"device": "FPGA", "nodes": ["one", "two", "three", "five", "six", "seven"]},
                    {"device": "CPU", "nodes": ["four"]},
                ]
            ),
            "cannot run: not convex.*'two' -> 'four' -> 'five'",
        ),
        (
            lambda data: data["model"].update(digest="0" * 64),
            "another model with the same node names.*remove the digest",
        ),
    ],
)
def test_what_the_model_tells(
    core: hetero.Core, diamond: hetero.Model, saved: Path, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    plan = edit(saved, change)
    for use in (core.plan, core.compile_model):
        with pytest.raises(hetero.HeteroError, match=f"^plan {saved}.*{says}"):
            use(diamond, plan)


def test_a_device_that_refuses_says_why(core: hetero.Core, diamond: hetero.Model, saved: Path) -> None:
    plan = edit(saved, lambda data: data["affinity"].update(four="FPGA"))
    with pytest.raises(
        hetero.UnsupportedModel, match="'four' .Exp. is set to FPGA in the plan: the profile .* not list Exp"
    ):
        core.compile_model(diamond, plan)


def test_without_its_digest_a_plan_is_for_any_model_that_fits(
    core: hetero.Core, diamond: hetero.Model, saved: Path
) -> None:
    plan = edit(saved, lambda data: data["model"].pop("digest"))
    proto = diamond.to_proto()
    proto.graph.node[0].op_type = "Neg"
    other = core.read_model(proto)
    with pytest.raises(hetero.UnsupportedModel, match="FPGA.*Neg"):
        core.plan(other, plan)
    assert core.plan(other, edit(saved, lambda data: data["affinity"].update(one="CPU"))).affinity["one"] == "CPU"


def test_the_digest_is_of_the_graph(core: hetero.Core, diamond: hetero.Model) -> None:
    digest = core.plan(diamond, DEVICES).identity.digest
    proto = diamond.to_proto()
    assert core.plan(core.read_model(proto.SerializeToString()), DEVICES).identity.digest == digest
    proto.graph.node[1].attribute.add(name="alpha", type=1, f=0.25)
    assert core.plan(core.read_model(proto), DEVICES).identity.digest == digest
    for change in ("name", "input"):
        other = diamond.to_proto()
        if change == "name":
            other.graph.node[2].name = "drei"
        else:
            other.graph.node[3].input[0] = "n1"
        assert core.plan(core.read_model(other), DEVICES).identity.digest != digest


def test_a_plan_for_another_model_says_so(core: hetero.Core, saved: Path) -> None:
    other = core.read_model(make_model([helper.make_node("Relu", ["x"], ["y"], "one")]))
    says = "places node 'two', which model 'graph' does not have; it was made for another model, 'diamond' of 7 nodes"
    with pytest.raises(hetero.PropertyError, match=says):
        core.compile_model(other, hetero.Plan.load(saved))


def test_a_byte_order_mark_is_ignored(saved: Path) -> None:
    expected = hetero.Plan.load(saved)
    saved.write_bytes(b"\xef\xbb\xbf" + saved.read_bytes())
    assert hetero.Plan.load(saved) == expected


def test_broken_json_is_told_by_line_and_column(saved: Path) -> None:
    lines = saved.read_text().splitlines()
    lines[7] = lines[7].rstrip(",")
    saved.write_text("\n".join(lines))
    with pytest.raises(hetero.HeteroError, match=r"plan\.json: line 9, column \d: Expecting ',' delimiter"):
        hetero.Plan.load(saved)


def test_a_key_that_stands_twice(saved: Path) -> None:
    saved.write_text(saved.read_text().replace('  "six": "FPGA"', '  "six": "FPGA",\n  "six": "CPU"'))
    with pytest.raises(hetero.PropertyError, match="duplicate key 'six', the second time with 'CPU'"):
        hetero.Plan.load(saved)


def test_a_key_that_stands_twice_with_another_type(saved: Path) -> None:
    """Python's reader of JSON, which looks for the key to name, keeps only the second value."""
    saved.write_text(saved.read_text().replace('  "six": "FPGA"', '  "six": 6,\n  "six": "CPU"'))
    with pytest.raises(hetero.HeteroError, match=r"Expected `str`, got `int` - at `\$\.affinity\[\.\.\.\]`"):
        hetero.Plan.load(saved)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe", b"[1]", b"null", b"[" * 100_000, b'{"format": "hetero-plan"}', b'{"version": 1e999}'],
)
def test_files_that_are_no_plan(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "plan.json").write_bytes(data)
    with pytest.raises(hetero.HeteroError, match=r"plan\.json: "):
        hetero.Plan.load(tmp_path / "plan.json")


def test_saving_is_all_or_nothing(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    plan = hetero.Plan.load(saved)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(hetero.HeteroError, match=r"cannot write plan .*plan\.json: No space left"):
        plan.save(saved)
    assert saved.read_bytes() == before
    assert os.listdir(tmp_path) == ["plan.json"]


def test_hostile_names_survive(core: hetero.Core, tmp_path: Path) -> None:
    names = ['"quoted"', "new\nline\r\u2028", "../../etc", "<script>", "\\", "nul\0", "{", "ключ", "x" * 70_000]
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name) for i, name in enumerate(names)]
    model = core.read_model(make_model(nodes, inputs={"v0": [1]}, outputs=(f"v{len(names)}",)))
    plan = core.plan(model, DEVICES, pins={names[0]: "CPU", names[1]: "CPU"})
    plan.save(tmp_path / "plan.json")
    loaded = hetero.Plan.load(tmp_path / "plan.json")
    assert list(loaded.affinity) == names
    assert core.plan(model, loaded).subgraphs == plan.subgraphs
    assert all(line.isprintable() for line in str(loaded).splitlines())


def test_devices_that_are_not_here(core: hetero.Core, diamond: hetero.Model, saved: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        data["devices"] = ["BROKEN", "CPU"]
        for entry in data["subgraphs"]:
            entry["device"] = entry["device"].replace("FPGA", "BROKEN")
        for key, device in data["affinity"].items():
            data["affinity"][key] = device.replace("FPGA", "BROKEN")

    core.register_plugin("BROKEN", "no.such.module:create_plugin")
    plan = edit(saved, change)
    with pytest.warns(RuntimeWarning, match="skipping BROKEN") as caught:
        bound = core.plan(diamond, plan)
    assert len(caught) == 1
    assert set(bound.affinity.values()) == {"CPU"}
    assert bound.num_subgraphs == 1
    assert "BROKEN is left out: " in bound.warnings[0].message
    with pytest.raises(hetero.DeviceUnavailable, match="No module"):
        core.plan(diamond, plan, {"STRICT": True})


def test_the_published_schema_is_current() -> None:
    expected = json.dumps(json_schema(), indent=2) + "\n"
    for place in ("docs/plan.schema.json", "src/hetero/plan/plan.schema.json"):
        assert (ROOT / place).read_text() == expected, f"{place}: run tools/plan_schema.py"


def test_saved_plans_have_what_the_schema_says(saved: Path) -> None:
    definitions = json_schema()["$defs"]
    data = json.loads(saved.read_text())
    assert list(data) == list(definitions["PlanFile"]["properties"])
    for name, kind in (("subgraphs", "PlannedSubgraph"), ("values", "BoundaryValue"), ("totals", "DeviceTotals")):
        assert list(data[name][0]) == list(definitions[kind]["properties"])
        assert all(entry["description"] for entry in definitions[kind]["properties"].values())


@pytest.mark.parametrize("seed", range(4))
def test_files_that_are_damaged_anyhow(core: hetero.Core, diamond: hetero.Model, saved: Path, seed: int) -> None:
    """Bytes changed, lines lost, swapped and repeated, values of another kind: a plan, or a `HeteroError`."""
    rng = np.random.default_rng(seed)
    original = saved.read_bytes()
    refused = 0
    for _ in range(150):
        data = bytearray(original)
        lines = original.split(b"\n")
        first, second = rng.integers(len(lines), size=2)
        match rng.integers(5):
            case 0:
                data[rng.integers(len(data))] = rng.integers(256)
            case 1:
                del data[rng.integers(len(data)) :]
            case 2:
                lines[first], lines[second] = lines[second], lines[first]
                data = bytearray(b"\n".join(lines))
            case 3:
                data = bytearray(b"\n".join([*lines[:first], *lines[second:]]))
            case 4:
                whole = json.loads(original)
                values = [None, -1, 2**70, "x", [], {}, [[]], {"x": 1}, True, 1e300, "\ud800"]
                keys = list(whole)
                whole[keys[rng.integers(len(keys))]] = values[rng.integers(len(values))]
                data = bytearray(json.dumps(whole).encode())
        saved.write_bytes(data)
        try:
            core.plan(diamond, hetero.Plan.load(saved))
        except hetero.HeteroError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"affinity": {"a": NaN}}', "line 1, column 20: NaN is not valid in JSON"),
        (b'{\n "lower_bound": -Infinity}', "-Infinity is not valid in JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\x93NUMPY\x01\0v\0", "`hetero plan --save` write it; found a NumPy array"),
        (b"\x08\x08\x12\x04onnx\xff", "`hetero plan --save` write it; found an ONNX file"),
        (bytes(range(256)), "`hetero plan --save` write it; found a binary file"),
        (b"\xfe\xffabc", "`hetero plan --save` write it; found text in UTF-16, as PowerShell's `>` writes it"),
        (b" \n", "plan.json: the file is empty; expected a plan in JSON, as Plan.save and"),
        (b"a,b\n", "`hetero plan --save` write it; line 1, column 1: Expecting value"),
        (b"[1]", "`hetero plan --save` write it; found an array"),
        (b"2.5", "`hetero plan --save` write it; found a number"),
        (b"null", "`hetero plan --save` write it; found null"),
        (b"{}", "`hetero plan --save` write it; the field `format` is missing"),
        (b'{"format": "hetero-costs"}', "`hetero plan --save` write it; its `format` is 'hetero-costs'"),
    ],
)
def test_what_is_found_instead_of_a_plan(data: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(data)
    with pytest.raises(hetero.HeteroError) as caught:
        hetero.Plan.load(tmp_path / "plan.json")
    assert says in str(caught.value)


def test_a_folder_where_a_plan_is_to_be_saved(
    core: hetero.Core, diamond: hetero.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (".", str(tmp_path)):
        with pytest.raises(hetero.HeteroError, match="Is a directory"):
            core.plan(diamond, DEVICES).save(path)
    assert not list(tmp_path.iterdir())
