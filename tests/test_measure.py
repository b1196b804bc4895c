"""Measuring costs of nodes, links and devices."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.errors import PropertyError
from hetero.measure import measure_costs, measure_link, measure_speed
from model_zoo import make_model

CORE = hetero.Core()


def test_measuring_nodes():
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "n0"),
        helper.make_node("Softmax", ["a"], ["b"], "n1"),
        helper.make_node("Tanh", ["b"], ["y"], "n2"),
    ]
    model = CORE.read_model(make_model(nodes, {"x": [2, 3]}))
    inputs = {"x": np.ones((2, 3), np.float32)}
    costs = measure_costs(CORE, model, "CPU", inputs, runs=3)
    (found,) = costs.measurements
    assert set(found.nodes) == {"n0", "n1", "n2"}
    assert all(times.count == 3 and times.min_us <= times.mean_us for times in found.nodes.values())
    assert found.launch_us is not None
    both = measure_costs(CORE, model.with_affinity({"n1": "TEMPLATE"}), "HETERO:CPU,TEMPLATE", inputs, runs=2)
    assert sorted(entry.device for entry in both.measurements) == ["CPU", "TEMPLATE"]
    costs.merge(both)
    with pytest.raises(PropertyError, match="runs"):
        measure_costs(CORE, model, "CPU", inputs, runs=0)


def test_measuring_links_and_devices():
    link = measure_link(CORE, "CPU", "TEMPLATE")
    assert (link.source, link.target) == ("CPU", "TEMPLATE")
    assert 0 <= link.latency_us < 1e5
    assert 0 <= link.us_per_mb < 1e5
    with pytest.raises(PropertyError, match="two different devices"):
        measure_link(CORE, "CPU", "CPU")
    speed = measure_speed(CORE, "CPU")
    assert 1e8 < speed.flops_per_s < 1e14
    assert 1e7 < speed.bytes_per_s < 1e13
