"""Assignments within memory limits beside the best of all assignments that fit, on small random models.

    python bench/limits.py                     # 100 models of each kind; some minutes
    python bench/limits.py --models 20 --max-nodes 6

Each model has five nodes or more over two or three devices, nearly all of them with limits. "By cost": how much longer
the plan with `ASSIGNMENT=COST` is predicted to take than the best assignment that fits, where limits bind; and the
plans rejected of those for which an assignment fits. "By priority": the rejected plans without costs. Exhaustive search
inside the planner is off unless ``--exact`` is given, because larger models are planned without it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from pathlib import Path

import numpy as np
from onnx import helper

import hetero
from hetero.assign.costs import Costs, Measurement, NodeTimes
from hetero.assign.memory import footprint, moves, values_of
from hetero.partition import partition_graph
from table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from model_zoo import make_model

CORE = hetero.Core()
KINDS = ("even", "shared weights", "large values", "tight")


def random_model(rng: np.random.Generator, kind: str, count: int) -> hetero.Model:
    """Products and additions of one of the values before, with constants of 1 to 64 rows, and nodes that join two.

    "shared weights": constants that several nodes read. "large values": values as large as constants.
    """
    width = 64
    nodes, weights, rows = [], {}, 8 if kind == "large values" else 1
    for i in range(count):
        sources = ["x"] if i == 0 else [f"v{int(rng.integers(max(0, i - 3), i))}" for _ in range(2)]
        if i > 1 and rng.random() < 0.25:
            nodes.append(helper.make_node("Add", sources, [f"v{i}"], f"n{i}"))
            continue
        constant = f"w{int(rng.integers(0, 3)) if kind == 'shared weights' else i}"
        is_product = weights[constant].shape[0] > 1 if constant in weights else rng.random() < 0.6
        if constant not in weights:
            weights[constant] = np.zeros((width if is_product else 1, width), np.float32)
        nodes.append(helper.make_node("MatMul" if is_product else "Add", [sources[0], constant], [f"v{i}"], f"n{i}"))
    read = {name for node in nodes for name in node.input}
    outputs = [node.output[0] for node in nodes if node.output[0] not in read]
    size = rows * (16 if kind == "large values" else 1)
    return CORE.read_model(make_model(nodes, {"x": [size, width]}, outputs, weights=weights))


def random_costs(rng: np.random.Generator, model: hetero.Model, devices: tuple[str, ...]) -> Costs:
    def times() -> dict[str, NodeTimes]:
        us = rng.integers(1, 100, model.num_nodes).tolist()
        return {f"n{i}": NodeTimes(1, each, each) for i, each in enumerate(us)}

    return Costs.of_model(
        model, [Measurement(device, {}, times(), launch_us=float(rng.integers(0, 10))) for device in devices]
    )


def limits(kind: str, count: int, max_nodes: int) -> tuple[str, ...]:
    """Cells of the row of a kind."""
    ratios, refused, refused_by_priority, possible = [], 0, 0, 0
    for seed in range(count):
        rng = np.random.default_rng([seed, KINDS.index(kind)])
        devices = ("TEMPLATE", "CPU") if rng.random() < 0.5 else ("TEMPLATE", "CPU.0", "CPU.1")
        model = random_model(rng, kind, int(rng.integers(5, max_nodes + 1)))
        config = {"ASSIGNMENT": "COST", "COSTS": random_costs(rng, model, devices)}
        values = values_of(model)
        total = footprint(values, np.zeros(model.num_nodes), [0], 1).total[0]
        low, high = (0.3, 0.6) if kind == "tight" else (0.35, 0.9)
        max_bytes = {device: int(total * rng.uniform(low, high)) for device in devices if rng.random() < 0.85}
        listed = f"HETERO:{','.join(devices)}"
        free = CORE.plan(model, listed, config).assignment
        bytes_of = np.array([max_bytes.get(device, np.inf) for device in devices])
        best = np.inf
        for device_of in itertools.product(range(len(devices)), repeat=model.num_nodes):
            partition = partition_graph(model.graph, np.array(device_of, np.int32))
            needs = footprint(values, partition.subgraph_of, partition.device_of, len(devices))
            if (needs.total <= bytes_of).all():
                best = min(best, free.predict(partition).total)
        if np.isinf(best):
            continue
        possible += 1
        try:
            plan = CORE.plan(model, listed, config, max_memory=max_bytes)
        except hetero.InsufficientMemory:
            refused += 1
        else:
            assert plan.latency is not None
            assert plan.latency.total_s >= best * (1 - 1e-9), (kind, seed)
            if plan.latency.memory_binds:
                ratios.append(plan.latency.total_s / best - 1)
        try:
            CORE.plan(model, listed, max_memory=max_bytes)
        except hetero.InsufficientMemory:
            refused_by_priority += 1
    more = np.array(ratios)
    return (
        f"{possible}",
        f"{len(more)}",
        f"{more.mean():.2%}",
        f"{np.median(more):.2%}",
        f"{np.quantile(more, 0.9):.1%}",
        f"{more.max():.0%}",
        f"{refused}",
        f"{refused_by_priority}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100, metavar="COUNT", help="of each kind")
    parser.add_argument("--max-nodes", type=int, default=7, metavar="NODES")
    parser.add_argument("--exact", action="store_true", help="let the planner search exhaustively, too")
    arguments = parser.parse_args()
    if not arguments.exact:
        moves.MAX_ASSIGNMENTS = 0
    warnings.simplefilter("ignore")
    table = Table(
        *("model", "an assignment fits", "limits matter", "by cost: mean above the best", "median", "90th percentile"),
        *("worst", "not found", "by priority: not found"),
    )
    for kind in KINDS:
        table.add(kind, *limits(kind, arguments.models, arguments.max_nodes))
    table.print()


if __name__ == "__main__":
    main()
