"""Assignment by cost within limits of memory, against the best of all assignments that fit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import helper

import hetero
from hetero.assign.costs import Costs, Measurement, NodeTimes
from hetero.assign.memory import footprint, values_of
from hetero.partition import partition_graph
from model_zoo import make_model

CORE = hetero.Core()


def random_model(rng, count):
    """Matrix products and additions, each of one of the two values before it."""
    nodes, weights = [], {}
    for i in range(count):
        source = "x" if i == 0 else f"v{int(rng.integers(max(0, i - 2), i))}"
        op, rows = ("MatMul", 64) if rng.random() < 0.6 else ("Add", 1)
        weights[f"w{i}"] = np.zeros((rows, 64), np.float32)
        nodes.append(helper.make_node(op, [source, f"w{i}"], [f"v{i}"], f"n{i}"))
    read = {name for node in nodes for name in node.input}
    outputs = [node.output[0] for node in nodes if node.output[0] not in read]
    return CORE.read_model(make_model(nodes, {"x": [1, 64]}, outputs, weights=weights))


def random_costs(rng, model, devices):
    return Costs.of_model(
        model,
        [
            Measurement(
                device,
                {},
                {f"n{i}": NodeTimes(1, us, us) for i, us in enumerate(rng.integers(1, 100, model.num_nodes).tolist())},
                launch_us=float(rng.integers(0, 10)),
            )
            for device in devices
        ],
    )


def test_few_assignments_are_tried_each():
    rng = np.random.default_rng(3)
    ratios, missed, impossible, wrongly_proven = [], 0, 0, 0
    for _ in range(30):
        devices = ("TEMPLATE", "CPU") if rng.random() < 0.6 else ("TEMPLATE", "CPU.0", "CPU.1")
        model = random_model(rng, int(rng.integers(3, 6)))
        config = {"ASSIGNMENT": "COST", "COSTS": random_costs(rng, model, devices)}
        values = values_of(model)
        total = footprint(values, np.zeros(model.num_nodes), [0], 1).total[0]
        limits = {device: int(total * rng.uniform(0.25, 0.9)) for device in devices if rng.random() < 0.8}
        most = np.array([limits.get(device, np.inf) for device in devices])
        listed = f"HETERO:{','.join(devices)}"
        free = CORE.plan(model, listed, config).assignment
        best = np.inf
        for device_of in itertools.product(range(len(devices)), repeat=model.num_nodes):
            partition = partition_graph(model.graph, np.array(device_of, np.int32))
            needs = footprint(values, partition.subgraph_of, partition.device_of, len(devices))
            if (needs.total <= most).all():
                best = min(best, free.predict(partition).total)
        try:
            plan = CORE.plan(model, listed, config, max_memory=limits)
        except hetero.InsufficientMemory as error:
            missed += bool(np.isfinite(best))
            proven = "no assignment can fit" in str(error)
            impossible += proven
            wrongly_proven += proven and bool(np.isfinite(best))
            continue
        partition = plan.assignment.partition
        needs = footprint(values, partition.subgraph_of, partition.device_of, len(devices))
        assert (needs.total <= most).all()
        assert plan.latency.total_s >= best * (1 - 1e-9)
        assert plan.latency.lower_bound_s <= best * (1 + 1e-9)
        if plan.latency.memory_binds:
            ratios.append(plan.latency.total_s / best)
    assert len(ratios) >= 8
    assert impossible >= 1
    assert wrongly_proven == 0
    assert missed == 0
    assert max(ratios) < 1.0101  # each assignment is tried, unless one takes at most 1 % longer than without limits


def test_limits_at_the_edges():
    """Pins, devices that support disjoint nodes, equal devices, limits of one byte and huge ones, costs of zero."""
    rng = np.random.default_rng(4)
    model = random_model(rng, 6)
    total = int(footprint(values_of(model), np.zeros(6), [0], 1).total[0])
    listed, devices = "HETERO:CPU.0,CPU.1", ("CPU.0", "CPU.1")

    def costs(us):
        times = {f"n{i}": NodeTimes(1, us, us) for i in range(6)}
        return Costs.of_model(model, [Measurement(device, {}, times, launch_us=0.0) for device in devices])

    for us in (0.0, 5.0):  # equal devices
        config = {"ASSIGNMENT": "COST", "COSTS": costs(us)}
        huge = CORE.plan(model, listed, config, max_memory={"CPU": 2**63 - 1})
        assert not huge.latency.memory_binds
        tight = CORE.plan(model, listed, config, max_memory={"CPU.0": 1})
        assert set(tight.affinity.values()) == {"CPU.1"}
        half = CORE.plan(model, listed, config, max_memory={"CPU": int(total * 0.75)})
        assert set(half.affinity.values()) == set(devices)
        pinned = CORE.plan(model, listed, config, pins={"n5": "CPU.1"}, max_memory={"CPU": int(total * 0.75)})
        assert pinned.affinity["n5"] == "CPU.1"
        with pytest.raises(hetero.InsufficientMemory, match="no assignment can fit, because"):
            CORE.plan(model, listed, config, max_memory={"CPU": 1})
        with pytest.raises(hetero.InsufficientMemory, match="no assignment can fit, because"):
            CORE.plan(model, listed, config, pins={f"n{i}": devices[i % 2] for i in range(6)}, max_memory={"CPU.1": 1})


def test_a_swap_between_full_devices():
    """Each device has room for one of two equal constants; the assignment by priority has them the wrong way round."""
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"v{i}"], f"n{i}") for i in range(2)]
    weights = {f"w{i}": np.zeros((64, 64), np.float32) for i in range(2)}
    model = CORE.read_model(make_model(nodes, {"x": [1, 64]}, ["v0", "v1"], weights=weights))
    times = {"TEMPLATE": (90.0, 10.0), "CPU": (10.0, 20.0)}
    costs = Costs.of_model(
        model,
        [
            Measurement(device, {}, {f"n{i}": NodeTimes(1, us, us) for i, us in enumerate(each)}, launch_us=0.0)
            for device, each in times.items()
        ],
    )
    config = {"ASSIGNMENT": "COST", "COSTS": costs}
    plan = CORE.plan(model, "HETERO:TEMPLATE,CPU", config, max_memory={"TEMPLATE": 20_000, "CPU": 20_000})
    assert dict(plan.affinity) == {"n0": "CPU", "n1": "TEMPLATE"}
