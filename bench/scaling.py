"""How CPU time and memory of `auto` and `linear` grow, up to ten million nodes, as Markdown tables.

    python bench/scaling.py                                       # 20 minutes, and 8 GB for the generators
    python bench/scaling.py --largest 1250000 --kinds comb random

CPU time: nanoseconds per node (median) for each size, each twice the one before, and the mean and the largest
t(2n) / t(n); the largest also of user time alone, since the cost of fresh memory at the large sizes depends on the
operating system and the state of the machine.
Memory: each kind in a process of its own at the largest size: the graph, what the policy needs beyond it while it
works, its result included, and the peak of both together (resident set; the interpreter, NumPy and the edge arrays
from which the graph was made are left out).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean

import graphs
from hetero import _graph
from hetero.partition import Graph, partition_graph
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
    """Bytes of the graph, and of policy beyond it; for a fresh process."""
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
        found: dict[str, int] = json.load(answer)
    return found


def memory_in_a_process(kind: str, size: int, policy: str) -> dict[str, int]:
    command = [sys.executable, __file__, "--memory-of", kind, str(size), policy]
    # A fixed threshold makes glibc give freed arrays back at once; kept ones would hide what the policy takes.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, int] = json.loads(answer.stdout)
    return found


def doublings(seconds: list[float], num_nodes: list[int]) -> list[float]:
    """t(2n) / t(n) of sizes that follow each other. Block kinds round n down: times are per node."""
    per_node = [t / n for t, n in zip(seconds, num_nodes, strict=True)]
    return [2 * after / before for before, after in pairwise(per_node)]


def times(kinds: list[str], sizes: list[int]) -> None:
    columns = ["kind", "policy", *(f"{size:,}" for size in sizes)]
    columns += ["t(2n) / t(n): mean", "at most", "user time at most"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for kind in kinds:
        works: dict[str, Work] = {}
        num_nodes = []
        for size in sizes:
            src, dst, device = graphs.make(kind, size)
            graph = Graph.from_edges(src, dst, len(device))
            num_nodes.append(len(device))
            works[f"sort {size}"] = partial(_graph.kahn, graph._csr)
            works |= {f"{policy} {size}": partial(partition_graph, graph, device, policy) for policy in POLICIES}
        found, user = medians_by_clock(works, (time.process_time, user_time), rounds=3, seconds=60)
        for policy in ("sort", *POLICIES):
            total = [found[f"{policy} {size}"] for size in sizes]
            growth = doublings(total, num_nodes)
            user_growth = doublings([user[f"{policy} {size}"] for size in sizes], num_nodes)
            cells = [f"{1e9 * seconds / n:.1f}" for seconds, n in zip(total, num_nodes, strict=True)]
            for worst in (geometric_mean(growth), max(growth), max(user_growth)):
                cells.append(f"**{worst:.2f}**" if policy == "auto" and worst > MOST_GROWTH else f"{worst:.2f}")
            print(f"| {kind} | {policy} | {' | '.join(cells)} |", flush=True)


def peaks(kinds: list[str], size: int) -> None:
    print(f"| {size:,} nodes | graph, MB | {' | '.join(f'{policy}, MB | both' for policy in POLICIES)} |")
    print(f"|---|---|{'---|' * (2 * len(POLICIES))}")
    for kind in kinds:
        cells: list[str] = []
        for policy in POLICIES:
            found = memory_in_a_process(kind, size, policy)
            if not cells:
                cells.append(f"{found['graph'] / 1e6:,.0f}")
            total = found["graph"] + found["policy"]
            cells += [
                f"{found['policy'] / 1e6:,.0f}",
                f"**{total / 1e6:,.0f}**" if total > MOST_BYTES else f"{total / 1e6:,.0f}",
            ]
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=graphs.KINDS, default=list(graphs.KINDS), metavar="KIND")
    parser.add_argument("--largest", type=int, default=10_000_000, metavar="NODES")
    parser.add_argument("--only", choices=("times", "memory"))
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        kind, size, policy = arguments.memory_of
        print(json.dumps(memory(kind, int(size), policy)))
        return
    if arguments.only != "memory":
        times(arguments.kinds, [arguments.largest >> i for i in range(DOUBLINGS, -1, -1)])
        print()
    if arguments.only != "times":
        peaks(arguments.kinds, arguments.largest)


if __name__ == "__main__":
    main()
