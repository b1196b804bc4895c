"""Plans as values: they pickle and compare."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

import hetero

X = np.float32([[1, -2, 3], [-4, 5, 6]])


@pytest.mark.parametrize(
    ("device", "config"),
    [
        ("HETERO:FPGA,CPU", {}),
        ("HETERO:CPU,TEMPLATE", {"ASSIGNMENT": "COST"}),
        ("HETERO:FPGA,CPU", {"OBJECTIVE": "LATENCY"}),
        ("HETERO:FPGA,CPU", {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}),
    ],
)
def test_pickles(core: hetero.Core, diamond: hetero.Model, device: str, config: dict[str, str], tmp_path: Path) -> None:
    plan = core.plan(diamond, device, config)
    for pickled in (pickle.loads(pickle.dumps(plan)), pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(plan))))):
        assert isinstance(pickled, hetero.LoadedPlan)
        assert pickled == plan
        assert plan == pickled
        assert hash(pickled) == hash(plan)
        np.testing.assert_array_equal(
            core.compile_model(diamond, pickled, config)(X)["y"], core.compile_model(diamond, plan, config)(X)["y"]
        )
    plan.save(tmp_path / "plan.json")
    assert hetero.Plan.load(tmp_path / "plan.json") == plan
    assert copy.copy(plan) is plan
    assert copy.deepcopy(plan) is plan


def test_compares(core: hetero.Core, diamond: hetero.Model) -> None:
    plan = core.plan(diamond, "HETERO:FPGA,CPU")
    assert plan == core.plan(diamond, "HETERO:FPGA,CPU")
    assert plan != core.plan(diamond, "HETERO:CPU,FPGA")
    assert plan != core.plan(diamond, "HETERO:FPGA,CPU", pins={diamond.key_of(0): "CPU"})
    assert plan != core.plan(diamond, "HETERO:FPGA,CPU", max_memory={"CPU": "1GB"})
    assert plan != "HETERO:FPGA,CPU"
    assert len({plan, core.plan(diamond, "HETERO:FPGA,CPU"), core.plan(diamond, "HETERO:CPU,FPGA")}) == 2
