"""Partitioning beside one topological sort (Kahn's, in C) of the same graph in the same run."""

from __future__ import annotations

from typing import Any

import pytest

from graphs import make
from hetero import Graph, _graph, partition_graph

KINDS = ("transformer", "inception", "random", "chain")
SIZES = (10_000, 100_000, 1_000_000)


@pytest.mark.parametrize("policy", ["sort", "linear", "auto"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def bench_partition(benchmark: Any, size: int, kind: str, policy: str) -> None:
    src, dst, device = make(kind, size)
    graph = Graph.from_edges(src, dst, len(device))
    benchmark.group = f"partition {kind} {size:,}"
    benchmark.extra_info["label"] = "one topological sort" if policy == "sort" else policy
    rounds = 20 if size < 1_000_000 else 7
    if policy == "sort":
        benchmark.extra_info["reference"] = True
        benchmark.pedantic(_graph.kahn, (graph._csr,), rounds=rounds, warmup_rounds=1)
        return
    found = benchmark.pedantic(partition_graph, (graph, device, policy), rounds=rounds, warmup_rounds=1)
    benchmark.extra_info["label"] = f"{policy}: {found.num_subgraphs:,} subgraphs, {found.cut_edges:,} edges cut"
