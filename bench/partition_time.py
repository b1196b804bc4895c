"""Partitioning beside one topological sort (Kahn's algorithm, in C) of the same graph in the same run.

    python bench/partition_time.py policies                                # to a million nodes; minutes
    python bench/partition_time.py policies --sizes 10000 --kinds random comb
    python bench/partition_time.py hard                                    # kinds made to be hard
    python bench/partition_time.py documented                              # also: closure, small

Medians of CPU time. Values over their budget are bold. The ratios are more reliable than the times.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

import graphs
from hetero import _graph, _partition
from hetero.base.formatting import duration
from hetero.errors import PartitionError
from hetero.partition import POLICIES, Graph, TransitiveClosure, check_partition, partition_graph
from scaling import memory_in_a_process
from table import Table
from timing import Work, medians, repeated

MILLION = 1_000_000
BLOCK_KINDS = ("transformer", "inception", "chain")


HARD_BUDGET = 60  # of `auto` on the kinds of `graphs.HARD`


def budget(work: str) -> float:
    """Topological sorts at a million nodes."""
    return {"linear": 3, "depth_height": 4, "auto": 25}.get(work, float("inf"))


def made(kind: str, size: int) -> tuple[Graph, NDArray[np.int32]]:
    src, dst, device = graphs.make(kind, size)
    return Graph.from_edges(src, dst, len(device)), device


def is_maximal(graph: Graph, device: NDArray[np.int32], label: NDArray[np.int32]) -> bool:
    try:
        check_partition(graph, device, label, maximal=True)
    except PartitionError as error:
        if "not maximal" not in str(error):
            raise
        return False
    return True


def policies(kinds: Sequence[str], sizes: Sequence[int]) -> Table:
    """The time of each policy, of reading the edges and of checking the result of `auto`, in topological sorts."""
    names = ("linear", "depth_height", "auto", "lower_bound", "from_edges", "check", "check, maximal")
    table = Table("kind", "nodes", "one sort", *names)
    for size in sizes:
        for kind in kinds:
            src, dst, device = graphs.make(kind, size)
            graph = Graph.from_edges(src, dst, len(device))
            label = partition_graph(graph, device).subgraph_of
            works: dict[str, Work] = {"sort": partial(_graph.kahn, graph._csr)}
            works |= {
                name: partial(partition_graph, graph, device, name) for name in ("linear", "depth_height", "auto")
            }
            works["lower_bound"] = partial(_partition.lower_bound, graph._csr, device)
            works["from_edges"] = partial(Graph.from_edges, src, dst, len(device))
            works["check"] = partial(check_partition, graph, device, label)
            works["check, maximal"] = partial(is_maximal, graph, device, label)
            times = medians(works, rounds=15 if size < MILLION else 9, seconds=20)
            cells = [kind, f"{len(device):,}", duration(times["sort"])]
            for name in names:
                ratio = times[name] / times["sort"]
                most = HARD_BUDGET if kind in graphs.HARD and name == "auto" else budget(name)
                over = size >= MILLION and ratio > most
                cells.append(f"**{ratio:.1f}**" if over else f"{ratio:.1f}")
            if not is_maximal(graph, device, label):
                cells[-1] += ": **not maximal**"
            table.add(*cells)
    return table


def documented(kinds: Sequence[str], sizes: Sequence[int]) -> Table:
    """Times, and memory in addition to the graph, also as a share of the two triangles of bits that a plain closure in
    both directions takes."""
    table = Table("kind", "nodes", "documented", "subgraphs", "memory", "of plain closure", "auto", "subgraphs")
    for kind, size in [(kind, size) for size in sizes for kind in kinds]:
        graph, device = made(kind, size)
        works = {name: partial(partition_graph, graph, device, name) for name in ("documented", "auto")}
        seconds = medians(works, rounds=5, seconds=3)
        over = seconds["documented"] > 1 and (size < 10_000 or kind in BLOCK_KINDS)
        times = {name: duration(value) for name, value in seconds.items()}
        if over:
            times["documented"] = f"**{times['documented']}**"
        bytes_taken = memory_in_a_process(kind, size, "documented")["policy"]
        cells = [kind, f"{graph.num_nodes:,}", times["documented"], f"{works['documented']().num_subgraphs:,}"]
        share = f"{bytes_taken / (graph.num_nodes**2 / 8):.2f}" if size > 2000 else ""  # fixed costs dominate below
        cells += [f"{bytes_taken / 1e6:.1f} MB", share]
        table.add(*cells, times["auto"], f"{works['auto']().num_subgraphs:,}")
    return table


def closure() -> Table:
    table = Table("kind", "nodes", "TransitiveClosure", "memory")
    for kind in ("random", "transformer"):
        for size, limit in ((30_000, 0.025), (100_000, 0.25)):
            graph, _ = made(kind, size)
            seconds = medians({"closure": partial(TransitiveClosure, graph)}, rounds=7)["closure"]
            text = duration(seconds)
            memory = f"{TransitiveClosure(graph).nbytes / 1e6:.1f} MB"
            table.add(kind, f"{graph.num_nodes:,}", f"**{text}**" if seconds > limit else text, memory)
    return table


def small() -> Table:
    """The time of a call for the documents' worked example with a tail: 10 nodes, 10 edges, one foreign node."""
    src, dst = [0, 1, 1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 4, 5, 6, 7, 8, 9]
    device = np.array([0, 0, 0, 1, 0, 0, 0, 0, 0, 0], np.int32)
    graph = Graph.from_edges(np.array(src), np.array(dst), 10)
    label = partition_graph(graph, device).subgraph_of
    works: dict[str, Work] = {policy: partial(partition_graph, graph, device, policy) for policy in POLICIES}
    works["check_partition"] = partial(check_partition, graph, device, label)
    works["Graph.from_edges"] = partial(Graph.from_edges, np.array(src), np.array(dst), 10)
    calls = 2000
    times = medians({name: repeated(work, calls) for name, work in works.items()}, rounds=15)
    table = Table("10 nodes", "a call")
    for name, seconds in times.items():
        text = duration(seconds / calls)
        table.add(name, f"**{text}**" if seconds / calls > 15e-6 else text)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("policies", "hard", "documented", "closure", "small"))
    parser.add_argument("--kinds", nargs="+", choices=graphs.KINDS | graphs.HARD, metavar="KIND")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="NODES")
    arguments = parser.parse_args()
    kinds = arguments.kinds or list(graphs.KINDS)
    if arguments.what == "policies":
        table = policies(kinds, arguments.sizes or (10_000, 100_000, MILLION))
    elif arguments.what == "hard":
        table = policies(arguments.kinds or list(graphs.HARD), arguments.sizes or (100_000, MILLION))
    elif arguments.what == "documented":
        table = documented(kinds, arguments.sizes or (2000, 10_000))
    else:
        table = {"closure": closure, "small": small}[arguments.what]()
    table.print()


if __name__ == "__main__":
    main()
