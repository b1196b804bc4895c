"""Plans as data: saved, edited, loaded, compiled."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import hetero
from model_zoo import make_model

DEVICES = "HETERO:FPGA,CPU"


def test_worked_example(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, DEVICES, {"PARTITION_POLICY": "documented"})
    assert [(part.device, part.nodes) for part in plan.subgraphs] == [
        ("FPGA", ("one", "two")),
        ("CPU", ("four",)),
        ("FPGA", ("three", "five", "six", "seven")),
    ]
    hetero.check_partition(diamond.graph, plan.assignment.affinity.device_of, plan.assignment.partition.subgraph_of)


def test_save_load_compile(core: hetero.Core, diamond: hetero.Model, tmp_path: Path) -> None:
    plan = core.plan(diamond, DEVICES)
    plan.save(tmp_path / "plan.json")
    loaded = hetero.Plan.load(tmp_path / "plan.json")
    assert (loaded.devices, loaded.affinity, loaded.subgraphs) == (plan.devices, plan.affinity, plan.subgraphs)
    x = np.float32([[-1, 2, 3], [4, 5, 6]])
    expected = core.compile_model(diamond, "TEMPLATE")(x)[0]
    for given in (plan, loaded):
        compiled = core.compile_model(diamond, given)
        assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == plan.num_subgraphs
        np.testing.assert_allclose(compiled(x)[0], expected, rtol=1e-6)


def test_files_that_cannot_be_read_or_written(tmp_path: Path, core: hetero.Core, diamond: hetero.Model) -> None:
    for name in ("absent.json", "."):
        with pytest.raises(hetero.HeteroError, match=r"cannot read plan .*"):
            hetero.Plan.load(tmp_path / name)
    with pytest.raises(hetero.HeteroError, match="cannot write plan"):
        core.plan(diamond, DEVICES).save(tmp_path / "no" / "such" / "folder.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("device", ["CPU", "CPU.0", "MULTI:CPU,TEMPLATE"])
def test_plans_for_one_device(core: hetero.Core, diamond: hetero.Model, device: str) -> None:
    plan = core.plan(diamond, device)
    assert plan.devices == (device,)
    loaded = hetero.Plan.from_json(plan.to_json(), "plan p.json")
    assert core.plan(diamond, loaded).subgraphs == plan.subgraphs
    x = np.float32([[-1, 2, 3], [4, 5, 6]])
    for given in (plan, loaded):
        found = core.compile_model(diamond, given)(x)[0]
        np.testing.assert_allclose(found, core.compile_model(diamond, device)(x)[0], rtol=1e-6)


def test_a_plan_keeps_the_sizes_that_the_model_gained_after_it(core: hetero.Core) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    model = core.read_model(make_model(nodes, {"x": ["n", 3]}, ["y"]))
    plan = core.plan(model, "HETERO:CPU,TEMPLATE", pins={"op:Neg": "TEMPLATE"})
    stated = model.with_types({"x": (None, (2, 3))})
    assert core.compile_model(stated, plan).inputs[0].shape == (2, 3)
    assert core.compile_model(model, plan).inputs[0].shape == ("n", 3)


def test_a_model_without_nodes(core: hetero.Core) -> None:
    model = core.read_model(make_model([], outputs=("x",)))
    plan = core.plan(model, DEVICES)
    assert (plan.num_subgraphs, plan.values, plan.warnings, plan.missing_ops()) == (0, (), (), ())
    assert str(plan).startswith("graph on FPGA, CPU: 0 nodes in 0 subgraphs")
    loaded = hetero.Plan.from_json(plan.to_json(), "plan p.json")
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(core.compile_model(model, loaded)(x)[0], x)


def test_keys_of_megabytes_are_refused_at_once(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, DEVICES)
    for key in ("z" * 5_000_000, "/" * 1_000_000):
        data = json.loads(plan.to_json())
        data["affinity"][key] = "CPU"
        begin = time.process_time()
        with pytest.raises(hetero.PropertyError, match=r"^plan p\.json places node '") as caught:
            core.plan(diamond, hetero.Plan.from_json(json.dumps(data).encode(), "plan p.json"))
        assert len(str(caught.value)) < 1000
        assert time.process_time() - begin < 60  # less than a second; hours if quadratic
