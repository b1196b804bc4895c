"""Partitioning beside one topological sort (Kahn's, in C) of the same graph in the same run, as Markdown tables.

    python bench/bench_partition.py                                  # everything, to 1M nodes; 5 minutes
    python bench/bench_partition.py --sizes 10000 --kinds random comb
    python bench/bench_partition.py --only closure small

Medians of CPU time. The ratios count; what is over its budget at 1M nodes is in bold.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

import graphs
from hetero import _graph
from hetero.base.formatting import duration
from hetero.errors import PartitionError
from hetero.partition import POLICIES, Graph, TransitiveClosure, check_partition, partition_graph
from scaling import memory_in_a_process
from timing import Work, medians, repeated

MILLION = 1_000_000
BLOCK_KINDS = ("transformer", "inception", "chain")


def budget(work: str, kind: str) -> float:
    """Topological sorts at a million nodes."""
    if work == "greedy":
        return 60 if kind in BLOCK_KINDS else 150
    return {"linear": 3, "auto": 25}.get(work, float("inf"))


def made(kind: str, size: int) -> tuple[Graph, NDArray[np.int32]]:
    src, dst, device = graphs.make(kind, size)
    return Graph.from_edges(src, dst, len(device)), device


def header(*columns: str) -> None:
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")


def row(cells: Iterable[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def is_maximal(graph: Graph, device: NDArray[np.int32], label: NDArray[np.int32]) -> bool:
    try:
        check_partition(graph, device, label, maximal=True)
    except PartitionError as error:
        if "not maximal" not in str(error):
            raise
        return False
    return True


def policies(kinds: list[str], sizes: list[int]) -> None:
    """Topological sorts that each policy takes, and reading the edges, and the check of auto's result."""
    names = ("linear", "auto", "greedy", "from_edges", "check", "check, maximal")
    header("kind", "nodes", "one sort", *names)
    for size in sizes:
        for kind in kinds:
            src, dst, device = graphs.make(kind, size)
            graph = Graph.from_edges(src, dst, len(device))
            label = partition_graph(graph, device).subgraph_of
            works: dict[str, Work] = {"sort": partial(_graph.kahn, graph._csr)}
            works |= {name: partial(partition_graph, graph, device, name) for name in ("linear", "auto", "greedy")}
            works["from_edges"] = partial(Graph.from_edges, src, dst, len(device))
            works["check"] = partial(check_partition, graph, device, label)
            works["check, maximal"] = partial(is_maximal, graph, device, label)
            found = medians(works, rounds=15 if size < MILLION else 5)
            cells = [kind, f"{len(device):,}", duration(found["sort"])]
            for name in names:
                ratio = found[name] / found["sort"]
                over = size >= MILLION and ratio > budget(name, kind)
                cells.append(f"**{ratio:.1f}**" if over else f"{ratio:.1f}")
            if not is_maximal(graph, device, label):
                cells[-1] += ": **not maximal**"
            row(cells)


def documented(kinds: list[str]) -> None:
    """Times, and memory beyond the graph as a share of two triangles of bits, which is what a plain closure in both
    directions takes."""
    header("kind", "nodes", "documented", "subgraphs", "memory", "of plain closure", "greedy", "subgraphs")
    for kind, size in [(kind, 2000) for kind in kinds] + [(kind, 10_000) for kind in kinds]:
        graph, device = made(kind, size)
        works = {name: partial(partition_graph, graph, device, name) for name in ("documented", "greedy")}
        seconds = medians(works, rounds=5, seconds=3)
        over = seconds["documented"] > 1 and (size < 10_000 or kind in BLOCK_KINDS)
        times = {name: duration(value) for name, value in seconds.items()}
        if over:
            times["documented"] = f"**{times['documented']}**"
        bytes_taken = memory_in_a_process(kind, size, "documented")["policy"]
        cells = [kind, f"{graph.num_nodes:,}", times["documented"], f"{works['documented']().num_subgraphs:,}"]
        share = f"{bytes_taken / (graph.num_nodes**2 / 8):.2f}" if size > 2000 else ""  # fixed costs weigh too much
        cells += [f"{bytes_taken / 1e6:.1f} MB", share]
        row([*cells, times["greedy"], f"{works['greedy']().num_subgraphs:,}"])


def closure() -> None:
    header("kind", "nodes", "TransitiveClosure", "memory")
    for kind in ("random", "transformer"):
        for size, most in ((30_000, 0.025), (100_000, 0.25)):
            graph, _ = made(kind, size)
            seconds = medians({"closure": partial(TransitiveClosure, graph)}, rounds=7)["closure"]
            text = duration(seconds)
            memory = f"{TransitiveClosure(graph).nbytes / 1e6:.1f} MB"
            row([kind, f"{graph.num_nodes:,}", f"**{text}**" if seconds > most else text, memory])


def small() -> None:
    """A call for the worked example of the documents with a tail: 10 nodes, 10 edges, one foreign."""
    src, dst = [0, 1, 1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 4, 5, 6, 7, 8, 9]
    device = np.array([0, 0, 0, 1, 0, 0, 0, 0, 0, 0], np.int32)
    graph = Graph.from_edges(np.array(src), np.array(dst), 10)
    label = partition_graph(graph, device).subgraph_of
    works: dict[str, Work] = {policy: partial(partition_graph, graph, device, policy) for policy in POLICIES}
    works["check_partition"] = partial(check_partition, graph, device, label)
    works["Graph.from_edges"] = partial(Graph.from_edges, np.array(src), np.array(dst), 10)
    calls = 2000
    found = medians({name: repeated(work, calls) for name, work in works.items()}, rounds=15)
    header("10 nodes", "a call")
    for name, seconds in found.items():
        text = duration(seconds / calls)
        row([name, f"**{text}**" if seconds / calls > 15e-6 else text])


PARTS = ("policies", "documented", "closure", "small")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--kinds", nargs="+", choices=graphs.KINDS, default=list(graphs.KINDS), metavar="KIND")
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 100_000, MILLION], metavar="NODES")
    arguments = parser.parse_args()
    if "policies" in arguments.only:
        policies(arguments.kinds, arguments.sizes)
        print()
    if "documented" in arguments.only:
        documented(arguments.kinds)
        print()
    if "closure" in arguments.only:
        closure()
        print()
    if "small" in arguments.only:
        small()


if __name__ == "__main__":
    main()
