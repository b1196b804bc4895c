"""Assignment by cost within limits of memory, against the best of all assignments that fit."""

from __future__ import annotations

import itertools

import numpy as np
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


def test_what_is_found_is_near_the_best_that_fits():
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
    assert missed <= 3
    assert np.median(ratios) < 1.05
    assert max(ratios) < 2
