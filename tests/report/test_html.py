"""The report as a file: what its columns say, and that nothing in it can become anything but text."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import hetero
from graphs import TRANSFORMER
from hetero.base.names import clean
from hetero.plugin.profile import Profile
from hetero.report.data import report_data
from hetero.report.html import report_html, write_report
from model_zoo import make_model
from report_cases import HOSTILE_NAMES, blocks

Run = Callable[[hetero.Model, str | hetero.Plan], Profile]


class Elements(html.parser.HTMLParser):
    """Every element of a page with its attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[list[Any]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append([tag, dict(attributes), ""])

    def handle_endtag(self, tag: str) -> None:
        self.found.append(["", {}, ""])  # what follows is not the element's

    def handle_data(self, data: str) -> None:
        if self.found:
            self.found[-1][2] += data

    def of(self, tag: str) -> list[tuple[dict[str, str], str]]:
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


def data_of(text: str) -> dict[str, Any]:
    ((attributes, content),) = [entry for entry in Elements(text).of("script") if entry[0].get("id") == "data"]
    if attributes["type"] == "application/json":
        return json.loads(content)
    return json.loads(zlib.decompress(base64.b64decode(content)))


def test_columns_of_a_plan(core: hetero.Core) -> None:
    model = core.read_model(blocks(TRANSFORMER, 5, refused=[5]).SerializeToString())
    plan = core.plan(model, "HETERO:FPGA,CPU")
    data = report_data(plan)
    keys = data["nodes"]["key"]
    sizes, at = data["subgraphs"]["size"], 0
    for part, device, size in zip(plan.subgraphs, data["subgraphs"]["device"], sizes, strict=True):
        assert tuple(keys[at : at + size]) == part.nodes
        assert data["devices"][device] == part.device
        at += size
    strings = data["strings"]
    ops = [data["ops"][op]["name"] for op in data["nodes"]["op"]]
    reasons = [strings[reason] for reason in data["nodes"]["reason"]]
    affinity = plan.assignment.affinity
    for key, op, reason in zip(keys, ops, reasons, strict=True):
        node = model.index_of(key)
        assert op == model.nodes[node].op_type
        assert reason == affinity.reason(node)
    for column, names in (("reads", lambda node: node.inputs), ("writes", lambda node: node.outputs)):
        at = 0
        for place, count in enumerate(data[column]["count"]):
            steps = data[column]["tensor"][at : at + count]
            found = tuple("" if step is None else data["tensors"]["name"][place + step] for step in steps)
            assert found == names(model.nodes[model.index_of(keys[place])])
            at += count
    values, at = data["values"], 0
    assert len(values["name"]) == len(plan.values) > 5
    for i, value in enumerate(plan.values):
        count = values["count"][i]
        assert (values["name"][i], values["bytes"][i], values["source"][i] + 1) == (value.name, 256, value.source)
        assert strings[values["type"][i]] == "float32[1, 64]"
        assert tuple(reader + 1 for reader in values["reader"][at : at + count]) == value.readers
        at += count
    assert data["run"] is None


def test_columns_of_a_run(core: hetero.Core, diamond: hetero.Model, profile_of: Run) -> None:
    plan = core.plan(diamond, "HETERO:FPGA,CPU")
    profile = profile_of(diamond, plan)
    run = report_data(plan, profile)["run"]
    keys = [key for part in plan.subgraphs for key in part.nodes]
    rows = {row.node: row for row in profile}
    assert run["real"] == [round(1000 * rows[key].real_us) for key in keys]
    assert run["devices"] == ["FPGA", "CPU"]
    assert [run["lanes"][lane][0] for lane in run["spans"]["lane"]] == [0, 1, 0]
    assert run["spans"]["begin"][0] == 0
    lengths = [end - begin for begin, end in zip(run["spans"]["begin"], run["spans"]["end"], strict=True)]
    assert lengths == [span.end_ns - span.begin_ns for span in profile.spans]
    assert dict(run["bytes"]) == {value.name: value.bytes for value in plan.values}


def test_a_subgraph_that_another_device_had_to_take(core: hetero.Core, diamond: hetero.Model, profile_of: Run) -> None:
    plan = core.plan(diamond, "HETERO:FPGA,CPU")
    run = report_data(plan, profile_of(diamond, "HETERO:TEMPLATE,CPU"))["run"]
    assert run["devices"] == ["FPGA", "CPU", "TEMPLATE"]


def test_a_loaded_plan(core: hetero.Core, diamond: hetero.Model, profile_of: Run) -> None:
    plan = core.plan(diamond, "HETERO:FPGA,CPU")
    loaded = hetero.Plan.from_json(plan.to_json(), "plan")
    whole, data = report_data(plan), report_data(loaded)
    assert data["tensors"] is None
    assert data["ops"] == []
    assert set(data["nodes"]["op"]) == {-1}
    assert data["nodes"]["key"] == whole["nodes"]["key"]
    assert (data["values"], data["totals"]) != ([], [])
    with_run = report_data(loaded, profile_of(diamond, plan))
    ops = [with_run["ops"][op]["name"] for op in with_run["nodes"]["op"]]
    assert sorted(ops) == sorted(node.op_type for node in diamond.nodes)


@pytest.mark.parametrize("compress", [False, True])
def test_names_stay_data(hostile_plan: hetero.Plan, compress: bool) -> None:
    text = report_html(hostile_plan, compress=compress)
    elements = Elements(text)
    assert len(elements.of("script")) == 2
    assert not elements.of("img")
    data = data_of(text)
    assert data["nodes"]["key"] == [clean(name) for part in hostile_plan.subgraphs for name in part.nodes]
    assert set(data["nodes"]["key"]) == {clean(name) for name in HOSTILE_NAMES}
    ((_, title),) = elements.of("title")
    assert title.startswith("../</title><script>")


def test_the_policy_lets_in_what_is_there_and_nothing_else(hostile_plan: hetero.Plan) -> None:
    elements = Elements(report_html(hostile_plan))
    (policy,) = [a["content"] for a, _ in elements.of("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    script = next(text for attributes, text in elements.of("script") if not attributes)
    ((_, style),) = elements.of("style")

    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives == {
        "default-src": "'none'",
        "script-src": source(script),
        "style-src": source(style),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    for forbidden in ("://", "eval(", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "import("):
        assert forbidden not in script
        assert forbidden not in style
    assert not re.search(r"""\s(?:src|href|style|on\w+)=["']""", "".join(str(a) for _, a, _ in elements.found))


def test_compression_is_chosen_by_size(core: hetero.Core, diamond: hetero.Model) -> None:
    small = core.plan(diamond, "HETERO:FPGA,CPU")
    assert "application/json" in report_html(small)
    model = core.read_model(blocks(TRANSFORMER, 800, refused=[5]).SerializeToString())
    large = core.plan(model, "HETERO:FPGA,CPU")
    packed, plain = report_html(large), report_html(large, compress=False)
    assert data_of(packed) == data_of(plain)
    assert len(packed) < len(plain) / 2


def test_written_whole_or_not_at_all(core: hetero.Core, diamond: hetero.Model, tmp_path: Path) -> None:
    plan = core.plan(diamond, "HETERO:FPGA,CPU")
    write_report(plan, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == report_html(plan)
    with pytest.raises(hetero.HeteroError, match="cannot write"):
        write_report(plan, tmp_path / "nowhere" / "report.html")


def test_the_documentation(
    diamond: hetero.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    text = (request.config.rootpath / "docs" / "pictures.md").read_text()
    first, several = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    diamond.save("model.onnx")
    names: dict[str, Any] = {"x": np.ones((2, 3), np.float32)}
    exec(first, names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "plan.html", "run.html", "trace.json"]
    exec(several, {**names, "requests": [names["request"]] * 2})
    described = set(re.findall(r"^\| (`\w+`.*?) \|", text[text.index("### Data format") :], re.MULTILINE))
    columns = set(data_of((tmp_path / "run.html").read_text())) - {"strings"}
    assert columns == {name for entry in described for name in re.findall(r"`(\w+)`", entry)}


@pytest.mark.slow
def test_a_model_of_100k_nodes(core: hetero.Core) -> None:
    model = core.read_model(blocks(TRANSFORMER, 100_000 // 14, refused=[5]).SerializeToString())
    plan = core.plan(model, "HETERO:FPGA,CPU")
    text = report_html(plan)
    assert len(text) < 1_500_000
    assert sum(data_of(text)["subgraphs"]["size"]) == model.num_nodes


def test_a_plan_with_predicted_times_has_a_timeline(core: hetero.Core) -> None:
    """Two chains of one size on two devices, at the same time."""
    nodes = [helper.make_node("Relu", [f"{t}{i}" if i else "x"], [f"{t}{i + 1}"]) for t in "ab" for i in range(1500)]
    model = core.read_model(make_model(nodes, {"x": [64, 64]}, ("a1500", "b1500")))
    plan = core.plan(model, "HETERO:CPU.0,CPU.1", {"OBJECTIVE": "LATENCY", "INFERENCE_NUM_THREADS": 1})
    assert plan.latency is not None
    run = data_of(report_html(plan))["run"]
    assert run["predicted"]
    assert [device for device, _ in run["lanes"]] == sorted(set(data_of(report_html(plan))["subgraphs"]["device"]))
    assert run["spans"]["begin"] == [round(begin * 1e9) for begin in plan.latency.begin_s]
    assert max(run["spans"]["end"]) == round(max(plan.latency.end_s) * 1e9)
    assert len(run["real"]) == model.num_nodes
    profile = core.compile_model(model, plan, {"PERF_COUNT": True, "INFERENCE_NUM_THREADS": 1}).create_infer_request()
    profile.infer(np.ones((64, 64), np.float32))
    assert "predicted" not in data_of(report_html(plan, profile.profiling_info))["run"]
