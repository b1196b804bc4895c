"""Growth of CPU time and memory of `auto` and `linear` with the number of nodes.

    python bench/scaling.py times                          # up to ten million nodes: 20 minutes, 8 GB
    python bench/scaling.py times --largest 2500000 --kinds comb random
    python bench/scaling.py memory

Times: nanoseconds per node (median) for sizes that double, and the mean and the largest t(2n) / t(n). The largest is
also given for user time alone, because the cost of fresh memory at large sizes depends on the operating system and on
the state of the machine.
Memory: a process for each kind at the largest size. The graph; what the policy takes in addition, including its result;
and the peak of both (resident set, without the interpreter, NumPy and the edge arrays that the graph was made from).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean

import graphs
from hetero import _graph
from hetero.partition import POLICIES as PARTITION_POLICIES
from hetero.partition import Graph, partition_graph
from table import Table
from timing import Work, medians_by_clock, user_time

POLICIES = ("auto", "linear")
DOUBLINGS = 7
MOST_GROWTH = 2.3
MOST_BYTES = 3e9


def resident() -> int:
    """Bytes of this process in memory now."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def memory(kind: str, size: int, policy: str) -> dict[str, int]:
    """Bytes of the graph, and of the policy in addition; for a fresh process."""
    src, dst, device = graphs.make(kind, size)
    before = resident()
    graph = Graph.from_edges(src, dst, len(device))
    after = resident()
    del src, dst
    # A forked child's peak begins at what is resident now: the generator's own peak is not in it.
    read, write = os.pipe()
    child = os.fork()
    if not child:
        start = resident()
        partition_graph(graph, device, policy)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        os.write(write, json.dumps({"graph": after - before, "policy": peak - start}).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        bytes_taken: dict[str, int] = json.load(answer)
    return bytes_taken


def memory_in_a_process(kind: str, size: int, policy: str) -> dict[str, int]:
    command = [sys.executable, __file__, "process", "--kinds", kind, "--largest", str(size), "--policy", policy]
    # With a fixed threshold, glibc returns freed arrays at once. Arrays that it kept would hide what the policy takes.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    bytes_taken: dict[str, int] = json.loads(answer.stdout)
    return bytes_taken


def doublings(seconds: list[float], num_nodes: list[int]) -> list[float]:
    """t(2n) / t(n) of consecutive sizes, from times per node, because block kinds round n down."""
    per_node = [t / n for t, n in zip(seconds, num_nodes, strict=True)]
    return [2 * after / before for before, after in pairwise(per_node)]


def times(kinds: Sequence[str], sizes: Sequence[int]) -> Table:
    columns = ["kind", "policy", *(f"{size:,}" for size in sizes)]
    columns += ["t(2n) / t(n): mean", "at most", "user time at most"]
    table = Table(*columns)
    for kind in kinds:
        works: dict[str, Work] = {}
        num_nodes = []
        for size in sizes:
            src, dst, device = graphs.make(kind, size)
            graph = Graph.from_edges(src, dst, len(device))
            num_nodes.append(len(device))
            works[f"sort {size}"] = partial(_graph.kahn, graph._csr)
            works |= {f"{policy} {size}": partial(partition_graph, graph, device, policy) for policy in POLICIES}
        by_work, user = medians_by_clock(works, (time.process_time, user_time), rounds=9, seconds=60)
        for policy in ("sort", *POLICIES):
            total = [by_work[f"{policy} {size}"] for size in sizes]
            growth = doublings(total, num_nodes)
            user_growth = doublings([user[f"{policy} {size}"] for size in sizes], num_nodes)
            cells = [f"{1e9 * seconds / n:.1f}" for seconds, n in zip(total, num_nodes, strict=True)]
            for worst in (geometric_mean(growth), max(growth), max(user_growth)):
                cells.append(f"**{worst:.2f}**" if policy == "auto" and worst > MOST_GROWTH else f"{worst:.2f}")
            table.add(kind, policy, *cells)
    return table


def peaks(kinds: Sequence[str], size: int) -> Table:
    table = Table(f"{size:,} nodes", "graph, MB", *(cell for policy in POLICIES for cell in (f"{policy}, MB", "both")))
    for kind in kinds:
        cells: list[str] = []
        for policy in POLICIES:
            taken = memory_in_a_process(kind, size, policy)
            if not cells:
                cells.append(f"{taken['graph'] / 1e6:,.0f}")
            total = taken["graph"] + taken["policy"]
            text = f"{total / 1e6:,.0f}"
            cells += [f"{taken['policy'] / 1e6:,.0f}", f"**{text}**" if total > MOST_BYTES else text]
        table.add(kind, *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("times", "memory", "process"), help="process: used by memory")
    parser.add_argument("--kinds", nargs="+", choices=graphs.KINDS, default=list(graphs.KINDS), metavar="KIND")
    parser.add_argument("--largest", type=int, default=10_000_000, metavar="NODES")
    parser.add_argument("--policy", choices=PARTITION_POLICIES, default="auto", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.what == "process":
        print(json.dumps(memory(arguments.kinds[0], arguments.largest, arguments.policy)))
    elif arguments.what == "times":
        times(arguments.kinds, [arguments.largest >> i for i in range(DOUBLINGS, -1, -1)]).print()
    else:
        peaks(arguments.kinds, arguments.largest).print()


if __name__ == "__main__":
    main()
