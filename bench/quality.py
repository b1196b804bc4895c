"""Quality of partitions: subgraphs and cut of each policy beside the two twins of bench/twins.py.

    python bench/quality.py                                         # every kind, 1k and 10k, 3 seeds
    python bench/quality.py --sizes 100000 1000000 --seeds 1        # minutes
    python bench/quality.py --sizes 1000 --seeds 50 --weights heavy

The table shows the first seed, as "subgraphs / cut edges" (with weights: cut weight), and how far `auto` can be from
the minimum number of subgraphs: its number divided by the lower bound. Each graph of any seed on which another column
has fewer subgraphs than `auto`, or as many and a smaller cut, or on which weights cost `auto` a subgraph, is reported
on stderr, and makes the exit status 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import graphs
import twins
from hetero.partition import Graph, partition_graph
from table import Table

POLICIES = ("auto", "linear")
WEIGHTS = ("one", "uniform", "heavy")
ROUNDING = 1e-9  # relative; cut weights are sums of floats in different orders
MAX_STEPS = 600_000_000  # of contraction's searches: a minute; only loose_comb at 1M nodes needs more


class Result(NamedTuple):
    subgraphs: int
    cut: float

    def __str__(self) -> str:
        return f"{self.subgraphs:,} / {self.cut:,.0f}"


class Row(NamedTuple):
    kind: str
    nodes: int
    seed: int
    results: dict[str, Result | None]
    lower_bound: int
    unweighted: int
    """Subgraphs of `auto` without weights."""

    @property
    def misses(self) -> list[str]:
        """The policies that beat `auto`: by fewer subgraphs, or by a smaller cut with as many."""
        auto = self.results["auto"]
        assert auto is not None
        better = [
            name
            for name, other in self.results.items()
            if other is not None
            and (other.subgraphs < auto.subgraphs or (other.subgraphs == auto.subgraphs and _less(other.cut, auto.cut)))
        ]
        return better + ["auto without weights"] * (self.unweighted < auto.subgraphs)


def _less(cut: float, than: float) -> bool:
    return cut < than * (1 - ROUNDING)


def edge_weights(kind: str, num_edges: int, seed: int) -> NDArray[np.float64]:
    """``uniform``: 0 to 1; ``heavy``: whole powers of ten, as the bytes of tensors spread."""
    rng = np.random.default_rng([seed, 1])
    if kind == "uniform":
        return rng.random(num_edges)
    return np.power(10.0, rng.integers(0, 7, num_edges)) if kind == "heavy" else np.ones(num_edges)


def measure(kind: str, size: int, seed: int, weights: str = "one", max_steps: int = MAX_STEPS) -> Row:
    src, dst, device = graphs.make(kind, size, seed)
    n = len(device)
    weight = edge_weights(weights, len(src), seed)
    optional_weight = None if weights == "one" else weight

    def judge(label: NDArray[np.integer]) -> Result:
        return Result(len(np.unique(label)), float(weight[label[src] != label[dst]].sum()))

    graph = Graph.from_edges(src, dst, n)
    results: dict[str, Result | None] = {
        policy: judge(partition_graph(graph, device, policy, optional_weight).subgraph_of) for policy in POLICIES
    }
    results["depth"] = judge(twins.depth(src, dst, device))
    label = twins.contraction(src, dst, device, max_steps) if max_steps else None
    results["contraction"] = None if label is None else judge(label)
    plain = partition_graph(graph, device)
    return Row(kind, n, seed, results, plain.lower_bound, plain.num_subgraphs)


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    for size in arguments.sizes:
        for kind in arguments.kinds:
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
                steps = arguments.max_steps if size <= arguments.contraction_up_to else 0
                row = measure(kind, size, seed, arguments.weights, steps)
                yield row
                if not graphs.SEEDED[kind] and arguments.weights == "one":
                    break


def quality(measured: Iterable[Row], first_seed: int) -> tuple[Table, list[str]]:
    """The table for the first seed, and a line for each graph on which `auto` misses a twin."""
    names = [*POLICIES, "depth", "contraction"]
    table, missed = Table("kind", "nodes", *names, "auto / lower bound"), []
    for row in measured:
        if row.misses:
            results = ", ".join(f"{name} {row.results[name]}" for name in names)
            missed.append(f"{row.kind} {row.nodes:,} seed {row.seed}: {', '.join(row.misses)}: {results}")
        if row.seed == first_seed:
            cells = [str(row.results[name] or "not measured") for name in names]
            proof = "proved minimum" if row.unweighted == row.lower_bound else f"{row.unweighted / row.lower_bound:.3f}"
            table.add(row.kind, f"{row.nodes:,}", *cells, proof)
    return table, missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=graphs.KINDS, default=list(graphs.KINDS), metavar="KIND")
    parser.add_argument("--sizes", nargs="+", type=int, default=[1000, 10_000], metavar="NODES")
    parser.add_argument("--seeds", type=int, default=3, metavar="COUNT")
    parser.add_argument("--first-seed", type=int, default=0, metavar="SEED")
    parser.add_argument("--weights", choices=WEIGHTS, default="one", help="of edges (default: 1 for each)")
    parser.add_argument("--max-steps", type=int, default=MAX_STEPS, help="of contraction's searches; 0: none")
    parser.add_argument("--contraction-up-to", type=int, default=10_000_000, metavar="NODES", help="not for more nodes")
    arguments = parser.parse_args()
    table, missed = quality(rows(arguments), arguments.first_seed)
    table.print()
    for line in missed:
        print(line, file=sys.stderr)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
