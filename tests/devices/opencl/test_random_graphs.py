"""Random graphs with the nodes that OPENCL supports on OPENCL, compared with CPU, and CPU with onnxruntime: broadcasts,
views, sizes of 0 and 1, values that are results, near misses of fusions, and sizes that change between calls."""

from __future__ import annotations

from collections import Counter

import pytest

import hetero
from fuzz import differential, run
from opencl import unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

DEVICES = "HETERO:OPENCL,CPU,TEMPLATE"


@pytest.mark.parametrize("kind", ["graphs", "near_misses", "sizes"])
@pytest.mark.parametrize("cases", [5, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_random_graphs(kind: str, cases: int) -> None:
    nodes: Counter[str] = Counter()
    for number in range(cases // 3 if kind == "sizes" else cases):
        case = run.case_of(kind, 1, number)
        core = hetero.Core()
        nodes.update({total.device: total.nodes for total in core.plan(core.read_model(case.model), DEVICES).totals})
        mine, cpu = differential.on_hetero(case, DEVICES, {}), differential.on_hetero(case, "CPU", {})
        assert not mine.refused
        assert not mine.troubles
        assert not list(differential._compared(case, "CPU", mine, cpu, case.tolerance)), f"{kind}, case {number}"
    assert nodes["OPENCL"] > nodes["CPU"] + nodes["TEMPLATE"]
