"""A look at the usual suspects in a minute, with pytest-benchmark: is something slower than before my change?

    python -m pytest bench/bench_quick.py --benchmark-enable
    python -m pytest bench/bench_quick.py --benchmark-enable --benchmark-autosave          # before
    python -m pytest bench/bench_quick.py --benchmark-enable --benchmark-compare           # after

CPU time; compare only results of one machine. The published tables come from `python bench/figures.py`.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import graphs
import hetero
import kernels
from hetero.partition import POLICIES, Graph, partition_graph

pytestmark = pytest.mark.benchmark(timer=time.process_time, disable_gc=True, warmup=True)
KINDS = ("transformer", "inception", "random")
NODES = 10_000


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "documented"])
@pytest.mark.parametrize("kind", KINDS)
def bench_partition(benchmark: Any, kind: str, policy: str) -> None:
    source, target, device = graphs.make(kind, NODES)
    graph = Graph.from_edges(source, target, len(device))
    benchmark.group = f"partition {kind}, {NODES} nodes"
    partition = benchmark(partition_graph, graph, device, policy)
    assert partition.num_subgraphs > 1


@pytest.mark.parametrize("device", ["onnxruntime", "CPU"])
@pytest.mark.parametrize("name", list(kernels.FAMILIES))
def bench_operator(benchmark: Any, name: str, device: str) -> None:
    benchmark.group = name
    result = benchmark(kernels.family(name)[device])
    assert result is not None


def bench_compile_and_run(benchmark: Any) -> None:
    core = hetero.Core()
    x = np.ones((4, 8), np.float32)
    model = core.read_model(kernels.model_of("Relu", {"x": x}, ()))
    benchmark(lambda: core.compile_model(model, "CPU")(x))
