"""`Plan.explain` and `Plan.missing_ops`, on graphs small enough to know the answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.plan.explain import Asked, MissingOp
from model_zoo import make_model

DEVICES = "HETERO:FPGA,CPU"


def test_a_node_that_an_earlier_device_refuses(core: hetero.Core, diamond: hetero.Model) -> None:
    told = core.plan(diamond, DEVICES).explain("four")
    assert (told.op_type, told.device, told.subgraph, told.num_subgraphs, told.origin) == (
        "Exp",
        "CPU",
        2,
        3,
        "priority",
    )
    assert told.asked == (Asked("FPGA", "the profile of FPGA does not list Exp"), Asked("CPU", None))
    assert [(cut.neighbor, cut.value, cut.reads, cut.device, cut.subgraph) for cut in told.cuts] == [
        ("two", "n2", True, "FPGA", 1),
        ("five", "n4", False, "FPGA", 3),
    ]
    assert told.missing_ops == (MissingOp("FPGA", "Exp", 1, 3, 1),)
    assert "if FPGA supported Exp (1 node): 1 subgraph instead of 3" in str(told)
    assert json.loads(told.to_json())["cuts"][0]["neighbor"] == "two"


def test_neighbors_of_one_device_in_two_subgraphs_have_a_path_around(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, DEVICES, {"PARTITION_POLICY": "documented"})
    told = plan.explain("two")  # with "one"; "three" is with "five"
    (to_three,) = (cut for cut in told.cuts if cut.neighbor == "three")
    assert [(step.node, step.device, step.subgraph) for step in to_three.path] == [
        ("two", "FPGA", 1),
        ("four", "CPU", 2),
        ("five", "FPGA", 3),
    ]
    assert "cannot be merged" in str(told)
    back = plan.explain("three")
    assert [(cut.neighbor, cut.reads) for cut in back.cuts] == [("two", True)]
    assert back.cuts[0].path == to_three.path


def test_a_policy_that_leaves_more_subgraphs_than_needed_says_so(core: hetero.Core, tmp_path) -> None:  # type: ignore[no-untyped-def]
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], f"r{i}") for i in range(3)]
    model = core.read_model(make_model(nodes, inputs={"v0": [2, 3]}, outputs=("v3",)))
    path = tmp_path / "plan.json"
    core.plan(model, "HETERO:CPU").save(path)
    data = json.loads(path.read_text())
    data["subgraphs"] = [{"device": "CPU", "nodes": ["r0"]}, {"device": "CPU", "nodes": ["r1", "r2"]}]
    path.write_text(json.dumps(data))
    plan = core.plan(model, hetero.Plan.load(path))
    assert plan.num_subgraphs == 2
    (cut,) = plan.explain("r0").cuts
    assert (cut.neighbor, cut.path) == ("r1", ())
    assert "the policy kept them apart" in str(plan.explain("r0"))


@pytest.mark.parametrize("seed", range(6))
def test_paths_are_paths(core: hetero.Core, seed: int) -> None:
    """On random graphs: each path leads from one subgraph through others to the other, along edges or inside one."""
    rng = np.random.default_rng(seed)
    nodes = []
    for i in range(60):
        reads = sorted({f"v{j}" for j in rng.integers(max(0, i - 8), i + 1, 2)})
        op = ("Add" if len(reads) == 2 else "Relu") if rng.random() < 0.7 else ("Max" if len(reads) == 2 else "Exp")
        nodes.append(helper.make_node(op, reads, [f"v{i + 1}"], f"n{i}"))
    model = core.read_model(make_model(nodes, inputs={"v0": [2, 3]}, outputs=("v60",)))
    plan = core.plan(model, DEVICES)
    edges = {(model.key_of(u), model.key_of(int(v))) for u in range(60) for v in model.graph.successors(u)}
    subgraph_of = {key: number for number, part in enumerate(plan.subgraphs, 1) for key in part.nodes}
    cuts = [cut for key in model.keys for cut in plan.explain(key).cuts]
    assert any(cut.path for cut in cuts)
    for cut in cuts:
        assert cut.subgraph == subgraph_of[cut.neighbor]
        if not cut.path:
            continue
        assert {cut.path[0].subgraph, cut.path[-1].subgraph} >= {cut.subgraph}
        assert len({step.subgraph for step in cut.path}) >= 3
        for here, there in zip(cut.path, cut.path[1:], strict=False):
            assert here.subgraph == there.subgraph or (here.node, there.node) in edges
            assert subgraph_of[here.node] == here.subgraph
            assert plan.affinity[here.node] == here.device


def test_origins(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond.with_affinity({"one": "CPU"}), DEVICES, pins={"op:LeakyRelu": "CPU"})
    assert plan.explain("one").origin == "model"
    told = plan.explain("two")
    assert (told.origin, told.reason) == ("pin", "pinned to CPU by 'op:LeakyRelu'")
    assert told.asked[0] == Asked("FPGA", None)
    assert plan.explain("five").origin == "priority"


def test_questions_about_no_node(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, DEVICES)
    with pytest.raises(hetero.ModelError, match=r"no node 'foru' \(did you mean four\?\)"):
        plan.explain("foru")
    nodes = [
        helper.make_node("Constant", [], ["c"], "const", value_float=1.0),
        helper.make_node("Add", ["x", "c"], ["y"], "add"),
    ]
    with pytest.raises(hetero.PropertyError, match="'const' is a constant"):
        core.plan(core.read_model(make_model(nodes)), DEVICES).explain("const")


def test_a_loaded_plan_has_to_be_bound_first(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, DEVICES)
    loaded = hetero.Plan.from_json(plan.to_json(), "plan p.json")
    for ask in (lambda: loaded.explain("one"), loaded.missing_ops, loaded.what_if):
        with pytest.raises(hetero.PropertyError, match=r"plan p.json was loaded.*core\.plan\(model, plan\)"):
            ask()
    assert str(core.plan(diamond, loaded).explain("one")) == str(plan.explain("one"))


def test_missing_ops_are_ranked_by_what_they_save(core: hetero.Core) -> None:
    ops = ["Relu", "Exp", "Relu", "Exp", "Relu", "Neg", "Relu"]
    nodes = [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], f"n{i}") for i, op in enumerate(ops)]
    model = core.read_model(make_model(nodes, inputs={"v0": [2, 3]}, outputs=("v7",)))
    plan = core.plan(model, DEVICES)
    assert plan.num_subgraphs == 7
    assert plan.missing_ops() == (MissingOp("FPGA", "Exp", 2, 7, 3), MissingOp("FPGA", "Neg", 1, 7, 5))
    assert plan.missing_ops(1) == plan.missing_ops()[:1]


def test_missing_ops_say_whether_other_nodes_of_the_operator_are_supported(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        'name = "P"\nruns_on = "CPU"\n[ops]\nRelu = {}\nExp = {}\n[[patterns]]\nchain = ["Exp", "Relu"]\n'
        '[[patterns]]\nchain = ["Relu"]\n[subgraph]\nmax_count = 1\n'
    )
    core = hetero.Core()
    core.register_plugin("P", path)
    ops = ["Exp", "Relu", "Exp", "Exp", "Relu", "Neg", "Relu"]
    nodes = [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], f"n{i}") for i, op in enumerate(ops)]
    plan = core.plan(core.read_model(make_model(nodes, inputs={"v0": [2, 3]}, outputs=("v7",))), "HETERO:P,CPU")
    assert [key for key, device in plan.affinity.items() if device == "P"] == ["n0", "n1"]
    # P rejects n2 and n5; the others are on the CPU because P runs only one subgraph.
    missing = plan.explain("n2").missing_ops
    assert missing == (MissingOp("P", "Exp", 1, 2, 2, supported_elsewhere=True),)
    assert str(missing[0]) == "if P also supported Exp in 1 more place: still 2 subgraphs"
    assert plan.explain("n4").missing_ops == ()


def test_printing(core: hetero.Core, diamond: hetero.Model) -> None:
    text = str(core.plan(diamond, DEVICES))
    assert text.startswith("diamond on FPGA, CPU: 7 nodes in 3 subgraphs (proved minimum); 3 values cut, 72 B\n")
    assert re.search(r"^CPU +1 +1 +0 B +48 B +24 B +24 B$", text, re.MULTILINE)
    assert re.search(r"^ +2 +CPU +1 +24 B +four$", text, re.MULTILINE)
    assert "warning: 1 tiny island on CPU next to subgraphs of FPGA" in text


def test_long_plans_are_abridged(core: hetero.Core) -> None:
    ops = ["Relu", "Exp"] * 100
    nodes = [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], f"n{i}") for i, op in enumerate(ops)]
    nodes[3].name = "a\nb" + "x" * 300
    model = core.read_model(make_model(nodes, inputs={"v0": [2, 3]}, outputs=("v200",)))
    lines = str(core.plan(model, DEVICES)).splitlines()
    assert len(lines) < 50
    assert max(map(len, lines)) < 200
    assert any("170 more: 85 on FPGA, 85 on CPU" in line for line in lines)
    assert any(line.split()[:2] == ["200", "CPU"] for line in lines)


def test_operators_that_save_nothing_are_left_out(core: hetero.Core) -> None:
    """With Neg on the first device, too, there would be one subgraph more."""
    nodes = [
        helper.make_node("Exp", ["v0"], ["v1"], "a"),
        helper.make_node("Neg", ["v1"], ["v2"], "b"),
        helper.make_node("Exp", ["v2"], ["v3"], "c"),
    ]
    plan = core.plan(core.read_model(make_model(nodes, inputs={"v0": [2]}, outputs=("v3",))), DEVICES)
    assert plan.num_subgraphs == 1
    assert plan.missing_ops() == ()
    assert plan.explain("b").missing_ops == (MissingOp("FPGA", "Neg", 1, 1, 3),)
