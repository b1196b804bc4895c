"""How far each policy is from the true minimum, on graphs small enough to search exhaustively.

    python bench/optimum.py                     # 6,000 graphs of 4 to 14 nodes; half a minute
    python bench/optimum.py --graphs 200 --max-nodes 9
    python bench/optimum.py --proved --graphs 420    # graphs of 20 to 60 nodes, by CP-SAT (OR-Tools); minutes

The minimum is first of the number of subgraphs, then of the edges cut among partitions of that number. `minimum` finds
it by dynamic programming over the sets of nodes closed under predecessors: since the quotient is acyclic, subgraphs can
be laid down one after the other, and what lies is always such a set. The sets are bit masks and the code shares nothing
with the compiled core. `minimum_of_all` tries every way to split the nodes into sets and proves the other right.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import graphs
from hetero.partition import POLICIES, Graph, check_partition, partition_graph
from table import Table

Ints = NDArray[np.integer]

RANDOM = "random DAGs"


class Minimum(NamedTuple):
    subgraphs: int
    cut_edges: int


def connected_sets(neighbors: list[int], allowed: int) -> Iterator[int]:
    """Every non-empty connected set of ``allowed`` nodes, once, as a bit mask."""
    while allowed:
        lowest = allowed & -allowed
        # (the set, nodes that may be added, nodes left out for good); all sets with `lowest` but no node below it
        stack = [(lowest, neighbors[lowest.bit_length() - 1] & allowed & ~lowest, lowest)]
        while stack:
            members, border, done = stack.pop()
            yield members
            while border:
                new = border & -border
                border ^= new
                done |= new
                onward = neighbors[new.bit_length() - 1] & allowed & ~done & ~border
                stack.append((members | new, border | onward, done))
        allowed ^= lowest


def minimum(src: Ints, dst: Ints, device: Ints) -> Minimum:
    """By dynamic programming over sets closed under predecessors. For up to about 16 nodes."""
    n = len(device)
    readers, sources, neighbors = [0] * n, [0] * n, [0] * n
    for u, v in zip(src.tolist(), dst.tolist(), strict=True):
        readers[u] |= 1 << v
        sources[v] |= 1 << u
        neighbors[u] |= 1 << v
        neighbors[v] |= 1 << u
    found: list[tuple[int, int, int]] = []
    for number in set(np.asarray(device).tolist()):
        allowed = sum(1 << v for v in range(n) if device[v] == number)
        for members in connected_sets(neighbors, allowed):
            nodes = [v for v in range(n) if members >> v & 1]
            outside = 0
            for v in nodes:
                outside |= sources[v] & ~members
            found.append((members, outside, sum((sources[v] & ~members).bit_count() for v in nodes)))
    block, needs, cut = (np.array(column, np.int64) for column in zip(*found, strict=True))
    weight = (np.int64(1) << 20) + cut  # one subgraph, and the edges that lead into it

    best = np.full(1 << n, np.iinfo(np.int64).max)
    best[0] = 0
    for laid in range(1 << n):  # a set's subsets are smaller numbers
        if best[laid] < np.iinfo(np.int64).max:
            fits = (block & laid == 0) & (needs & ~laid == 0)
            after = block[fits] | laid  # different blocks, different sets
            best[after] = np.minimum(best[after], best[laid] + weight[fits])
    return Minimum(int(best[-1] >> 20), int(best[-1] & (1 << 20) - 1))


def minimum_of_all(src: Ints, dst: Ints, device: Ints) -> Minimum:
    """By trying every way to split the nodes into sets: Bell(n) of them. For up to about 8 nodes."""
    n = len(device)
    edges = list(zip(src.tolist(), dst.tolist(), strict=True))
    best = (n + 1, 0)
    label = [-1] * n

    def valid(count: int) -> bool:
        # Connected: edges inside join as many nodes as there are beyond one per set. Acyclic: sources can be peeled.
        group = list(range(n))
        joined = 0
        for u, v in edges:
            if label[u] == label[v] and group[u] != group[v]:
                group = [group[u] if g == group[v] else g for g in group]
                joined += 1
        if joined != n - count:
            return False
        between = {(label[u], label[v]) for u, v in edges if label[u] != label[v]}
        left = set(range(count))
        while ready := left - {b for _, b in between}:
            left -= ready
            between = {(a, b) for a, b in between if a in left}
        return not left

    def split(v: int, count: int) -> None:
        nonlocal best
        if v == n:
            cut = sum(label[a] != label[b] for a, b in edges)
            if (count, cut) < best and valid(count):
                best = (count, cut)
            return
        for k in range(count + 1):
            if k == count or device[label.index(k)] == device[v]:
                label[v] = k
                split(v + 1, max(count, k + 1))
                label[v] = -1

    split(0, 0)
    return Minimum(*best)


def prove(src: Ints, dst: Ints, device: Ints, at_most: int, at_least: int = 1, seconds: float = 20.0) -> int | None:
    """The minimum number of subgraphs by CP-SAT, or None if it is not proved within ``seconds`` of work. For up to
    about 60 nodes.

    ``at_most``, ``at_least``: of any partition and of any bound; the solver starts from them.

    Every node gets a level. Levels rise along edges between devices and never fall along others, so the components of
    equal level are a valid partition; and every valid partition has such levels, the positions of its subgraphs. Each
    node but one of a component hangs below a neighbor of the same level.
    """
    from ortools.sat.python import cp_model

    n = len(device)
    if at_most <= at_least:
        return at_most
    model = cp_model.CpModel()
    level = [model.new_int_var(0, at_most - 1, "") for _ in range(n)]
    rank = [model.new_int_var(0, n - 1, "") for _ in range(n)]
    below: list[list[cp_model.IntVar]] = [[] for _ in range(n)]
    for u, v in zip(src.tolist(), dst.tolist(), strict=True):
        model.add(level[v] >= level[u] + int(device[u] != device[v]))
        if device[u] != device[v]:
            continue
        same = model.new_bool_var("")
        model.add(level[u] == level[v]).only_enforce_if(same)
        for a, b in ((u, v), (v, u)):
            hangs = model.new_bool_var("")
            model.add_implication(hangs, same)
            model.add(rank[a] >= rank[b] + 1).only_enforce_if(hangs)
            below[a].append(hangs)
    for v in range(n):
        model.add_at_most_one(below[v])
    joined = sum(hangs for row in below for hangs in row)
    model.add(joined <= n - at_least)
    model.add(joined >= n - at_most)
    model.maximize(joined)
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = seconds
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    return n - round(solver.objective_value) if status == cp_model.OPTIMAL else None


def random_dag(rng: np.random.Generator, n: int) -> tuple[Ints, Ints, Ints]:
    """Any density, any window, 1 to 4 devices in any proportion."""
    edges = int(rng.integers(n - 1, 3 * n)) if n > 1 else 0
    window = int(rng.integers(1, n + 1))
    v = rng.integers(1, n, edges) if n > 1 else np.zeros(0, np.int64)
    u = v - 1 - (rng.random(edges) * np.minimum(window, v)).astype(np.int64)
    pairs = np.unique(np.stack([u, v]), axis=1)
    devices = int(rng.integers(1, 5))
    return pairs[0], pairs[1], rng.choice(devices, n, p=rng.dirichlet(np.ones(devices))).astype(np.int32)


def piece_of_kind(rng: np.random.Generator, n: int, kind: str) -> tuple[Ints, Ints, Ints]:
    """``n`` nodes that follow each other somewhere in a graph of the kind."""
    src, dst, device = graphs.make(kind, max(4 * n, 300), int(rng.integers(1 << 30)))
    first = int(rng.integers(0, len(device) - n + 1))
    inside = (src >= first) & (dst < first + n)
    return src[inside] - first, dst[inside] - first, device[first : first + n]


def whole_kind(rng: np.random.Generator, n: int, kind: str) -> tuple[Ints, Ints, Ints]:
    return graphs.make(kind, n, int(rng.integers(1 << 30)))


def window_dag(rng: np.random.Generator, n: int, density: float, window: int, devices: int) -> tuple[Ints, Ints, Ints]:
    """``density`` edges per node, each from one of the ``window`` nodes before."""
    v = rng.integers(1, n, int(density * n))
    u = v - 1 - (rng.random(len(v)) * np.minimum(window, v)).astype(np.int64)
    pairs = np.unique(np.stack([u, v]), axis=1)
    return pairs[0], pairs[1], rng.integers(0, devices, n).astype(np.int32)


def layered_dag(rng: np.random.Generator, n: int, width: int, devices: int) -> tuple[Ints, Ints, Ints]:
    """Layers of ``width`` nodes; each node reads two nodes of the layer before."""
    v = np.repeat(np.arange(width, n), 2)
    u = (v // width - 1) * width + rng.integers(0, width, len(v))
    pairs = np.unique(np.stack([u, v]), axis=1)
    return pairs[0], pairs[1], rng.integers(0, devices, n).astype(np.int32)


def distinct(u: Ints, v: Ints) -> tuple[Ints, Ints]:
    """Edges from the smaller number to the greater, without duplicates and loops."""
    pairs = np.unique(np.sort(np.stack([u, v]), axis=0), axis=1)
    pairs = pairs[:, pairs[0] < pairs[1]]
    return pairs[0], pairs[1]


def any_edges(rng: np.random.Generator, n: int) -> tuple[Ints, Ints, Ints]:
    """Two edges per node between any nodes; three nodes in a row have the same device."""
    edges = distinct(rng.integers(0, n, 2 * n), rng.integers(0, n, 2 * n))
    return *edges, np.repeat(rng.integers(0, 2, n), 3)[:n].astype(np.int32)


def spine(rng: np.random.Generator, n: int) -> tuple[Ints, Ints, Ints]:
    """A chain, and an edge between any nodes for each second node."""
    u, v = rng.integers(0, n, n // 2), rng.integers(0, n, n // 2)
    edges = distinct(np.append(np.arange(n - 1), u), np.append(np.arange(1, n), v))
    return *edges, rng.integers(0, 2, n).astype(np.int32)


def linked_chains(rng: np.random.Generator, n: int, count: int, devices: int) -> tuple[Ints, Ints, Ints]:
    """Chains side by side, and an edge between any nodes for each fourth node."""
    u, v = rng.integers(0, n, n // 4), rng.integers(0, n, n // 4)
    edges = distinct(np.append(np.arange(n - count), u), np.append(np.arange(count, n), v))
    return *edges, rng.integers(0, devices, n).astype(np.int32)


def grid(rng: np.random.Generator, n: int) -> tuple[Ints, Ints, Ints]:
    """Rows of eight nodes; each node reads the one before it and the one above it."""
    node = np.arange(n)
    beside, below = node[node % 8 > 0], node[8:]
    edges = distinct(np.append(beside - 1, below - 8), np.append(beside, below))
    return *edges, rng.integers(0, 2, n).astype(np.int32)


def hub(rng: np.random.Generator, n: int) -> tuple[Ints, Ints, Ints]:
    """One node that every second node reads or feeds, and an edge per node between any nodes."""
    some = np.arange(0, n, 2)
    u, v = rng.integers(0, n, n), rng.integers(0, n, n)
    edges = distinct(np.append(some, u), np.append(np.full(len(some), n // 2), v))
    return *edges, rng.integers(0, 2, n).astype(np.int32)


FAMILIES: dict[str, Callable[[np.random.Generator, int], tuple[Ints, Ints, Ints]]] = {
    **{
        f"window {window}, {density} edges a node": partial(window_dag, density=density, window=window, devices=2)
        for window in (8, 64)
        for density in (1.2, 2, 3)
    },
    "window 64, 2 edges a node, 3 devices": partial(window_dag, density=2, window=64, devices=3),
    "layers of 4": partial(layered_dag, width=4, devices=2),
    "layers of 8": partial(layered_dag, width=8, devices=2),
    "any edges": any_edges,
    "spine": spine,
    "4 linked chains, 3 devices": partial(linked_chains, count=4, devices=3),
    "8 linked chains": partial(linked_chains, count=8, devices=2),
    "grid": grid,
    "hub": hub,
    "experts": partial(piece_of_kind, kind="experts"),
    **{
        kind.replace("_", " "): partial(whole_kind, kind=kind)  # kinds of blocks have up to 13 nodes fewer
        for kind in graphs.KINDS
        if kind != "experts"  # a block has 130 nodes
    },
}
"""Graphs of 20 to 60 nodes."""


def cases(count: int, min_nodes: int, max_nodes: int) -> Iterator[tuple[str, tuple[Ints, Ints, Ints]]]:
    """Two in three are random; the rest go round the kinds."""
    kinds = list(graphs.KINDS)
    for i in range(count):
        rng = np.random.default_rng(i)
        n = min_nodes + i % (max_nodes - min_nodes + 1)
        if i % 3 == 2:
            kind = kinds[i // 3 % len(kinds)]
            yield kind, piece_of_kind(rng, n, kind)
        else:
            yield RANDOM, random_dag(rng, n)


class Gap(NamedTuple):
    subgraphs: int
    """More than the minimum."""
    cut_edges: int | None
    """More than the least among partitions of the minimum number; None where there are more subgraphs."""


def gap(policy: str, src: Ints, dst: Ints, device: Ints, least: Minimum) -> Gap:
    graph = Graph.from_edges(src, dst, len(device))
    found = partition_graph(graph, device, policy)
    check_partition(graph, device, found.subgraph_of)
    more = found.num_subgraphs - least.subgraphs
    assert more >= 0, "fewer subgraphs than the minimum"
    assert more or found.cut_edges >= least.cut_edges, "fewer edges cut than the least"
    return Gap(more, None if more else found.cut_edges - least.cut_edges)


def summary(gaps: list[Gap]) -> list[str]:
    """Cells of the table."""
    more = np.array([g.subgraphs for g in gaps])
    cuts = np.array([g.cut_edges for g in gaps if g.cut_edges is not None])
    subgraphs = [f"{(more == 0).mean():.2%}", f"{more.mean():.4f}", f"{more.max()}"]
    return [f"{len(gaps):,}", *subgraphs, f"{(cuts == 0).mean():.2%}", f"{cuts.mean():.3f}", f"{cuts.max()}"]


def optimum(count: int, min_nodes: int, max_nodes: int, show: int = 0) -> Table:
    """``show``: how many graphs on which `auto` has a gap are reported on stderr."""
    gaps: dict[tuple[str, str], list[Gap]] = defaultdict(list)
    for i, (kind, edges) in enumerate(cases(count, min_nodes, max_nodes)):
        least = minimum(*edges)
        for policy in POLICIES:
            one = gap(policy, *edges, least)
            gaps[policy, "all"].append(one)
            gaps[policy, "random" if kind == RANDOM else "pieces of the kinds"].append(one)
            if policy == "auto" and one != (0, 0) and show:
                show -= 1
                src, dst, device = (column.tolist() for column in edges)
                print(f"case {i} ({kind}): {one}, {least}; src={src} dst={dst} device={device}", file=sys.stderr)
    table = Table(
        *("policy", "graphs", "number", "minimum reached", "mean gap", "worst"),
        *("then least cut reached", "mean gap, edges", "worst"),
    )
    for policy in POLICIES:
        for graphs_of in ("all", "pieces of the kinds", "random"):
            table.add(policy, graphs_of, *summary(gaps[policy, graphs_of]))
    return table


def proved(count: int, seconds: float = 6.0, first: int = 0) -> Table:
    """`auto` and its lower bound on ``count`` graphs of `FAMILIES`, of 20 to 60 nodes. Graphs whose minimum CP-SAT does
    not prove count as "not proved"."""
    columns = ("family", "graphs", "not proved", "minimum reached", "worst", "bound met", "another policy better")
    rows: dict[str, list[tuple[int, int | None, bool, bool]]] = defaultdict(list)
    for i in range(first, first + -(-count // len(FAMILIES))):
        n = 20 + 10 * (i % 5)
        for name, make in FAMILIES.items():
            src, dst, device = make(np.random.default_rng([i, len(name)]), n)
            graph = Graph.from_edges(src, dst, len(device))
            made = {policy: partition_graph(graph, device, policy) for policy in POLICIES}
            auto = made["auto"]
            check_partition(graph, device, auto.subgraph_of)
            least = prove(src, dst, device, auto.num_subgraphs, auto.lower_bound, seconds)
            better = any(other.num_subgraphs < auto.num_subgraphs for other in made.values())
            for row in (name, "all"):
                more = None if least is None else auto.num_subgraphs - least
                rows[row].append((auto.num_subgraphs, more, auto.lower_bound == least, better))
    table = Table(*columns)
    for name in (*FAMILIES, "all"):
        known = [row for row in rows[name] if row[1] is not None]
        gaps = np.array([row[1] for row in known])
        table.add(
            *(name, f"{len(rows[name])}", f"{len(rows[name]) - len(known)}", f"{(gaps == 0).mean():.1%}"),
            *(
                f"{gaps.max(initial=0)}",
                f"{np.mean([row[2] for row in known]):.1%}",
                f"{sum(row[3] for row in rows[name])}",
            ),
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=6000, metavar="COUNT")
    parser.add_argument("--min-nodes", type=int, default=4, metavar="NODES")
    parser.add_argument("--max-nodes", type=int, default=14, metavar="NODES")
    parser.add_argument("--show", type=int, default=0, metavar="COUNT", help="graphs on which `auto` has a gap")
    parser.add_argument("--proved", action="store_true", help="graphs of 20 to 60 nodes, by CP-SAT")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of the graphs of --proved")
    arguments = parser.parse_args()
    if arguments.proved:
        proved(arguments.graphs, first=arguments.first).print()
        return
    optimum(arguments.graphs, arguments.min_nodes, arguments.max_nodes, arguments.show).print()


if __name__ == "__main__":
    main()
