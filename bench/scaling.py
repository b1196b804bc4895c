"""How CPU time and memory of `auto` and `linear` grow, up to ten million nodes, as Markdown tables.

    python bench/scaling.py                                       # 20 minutes, and 8 GB for the generators
    python bench/scaling.py --largest 1250000 --kinds comb random

CPU time: nanoseconds per node (median) for each size, each twice the one before, and the largest t(2n) / t(n).
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
from functools import partial
from itertools import pairwise
from pathlib import Path

import graphs
from hetero import _graph
from hetero.partition import Graph, partition_graph
from timing import Work, medians

POLICIES = ("auto", "linear")
DOUBLINGS = 7


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


def times(kinds: list[str], sizes: list[int]) -> None:
    names = [f"{size:,}" for size in sizes]
    print(f"| kind | policy | {' | '.join(names)} | t(2n) / t(n) at most |\n|---|---|{'---|' * (len(sizes) + 1)}")
    for kind in kinds:
        works: dict[str, Work] = {}
        num_nodes = []
        for size in sizes:
            src, dst, device = graphs.make(kind, size)
            graph = Graph.from_edges(src, dst, len(device))
            num_nodes.append(len(device))
            works[f"sort {size}"] = partial(_graph.kahn, graph._csr)
            works |= {f"{policy} {size}": partial(partition_graph, graph, device, policy) for policy in POLICIES}
        found = medians(works, rounds=5, seconds=100)
        for policy in ("sort", *POLICIES):
            spent = [found[f"{policy} {size}"] / n for size, n in zip(sizes, num_nodes, strict=True)]
            # Block kinds round n down to whole blocks: twice the time per node, not the time, is what doubles.
            worst = max((2 * b / a for a, b in pairwise(spent)), default=float("nan"))
            text = f"**{worst:.2f}**" if policy == "auto" and worst > 2.3 else f"{worst:.2f}"
            cells = " | ".join(f"{1e9 * seconds:.1f}" for seconds in spent)
            print(f"| {kind} | {policy} | {cells} | {text} |", flush=True)


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
                f"**{total / 1e6:,.0f}**" if total > 3e9 else f"{total / 1e6:,.0f}",
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
