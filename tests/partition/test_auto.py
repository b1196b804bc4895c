"""Policy ``auto``: valid, maximal, and at least as good as contraction (in count) and depth (in cut)."""

from __future__ import annotations

import numpy as np
import pytest

import optimum
from hetero.partition import Graph, check_partition, partition_graph
from threads import in_threads


def contraction(g, device):
    """The naive twin of contraction: from the sinks over successors, until nothing changes. Number of subgraphs."""
    n = g.num_nodes
    label = list(range(n))
    children = [set(g.successors(v).tolist()) for v in range(n)]
    parents = [set(g.predecessors(v).tolist()) for v in range(n)]
    order = g.topological_order.tolist()

    def joined_otherwise(a, b):
        stack, seen = [c for c in children[a] if c != b], set()
        while stack:
            x = stack.pop()
            if x == b:
                return True
            if x not in seen:
                seen.add(x)
                stack.extend(children[x])
        return False

    changed = True
    while changed:
        changed = False
        for u in reversed(order):
            for v in g.successors(u).tolist():
                a, b = label[u], label[v]
                if a == b or device[u] != device[v] or joined_otherwise(a, b):
                    continue
                changed = True
                label = [a if x == b else x for x in label]
                for c in children[b]:
                    parents[c] = (parents[c] - {b}) | {a}
                for p in parents[b] - {a}:
                    children[p] = (children[p] - {b}) | {a}
                children[a] = (children[a] | children[b]) - {a, b}
                parents[a] = (parents[a] | parents[b]) - {a, b}
                children[b], parents[b] = set(), set()
    return len(set(label))


def relabeled(g, device, rng):
    """The same graph under random numbers, and the number of each old node."""
    number = rng.permutation(g.num_nodes)
    src = np.repeat(np.arange(g.num_nodes), np.diff(g.indptr))
    moved = np.empty_like(device)
    moved[number] = device
    return Graph.from_edges(number[src], number[g.indices], g.num_nodes), moved, number


@pytest.mark.parametrize("seed", range(300))
def test_valid_and_maximal_on_random_graphs(seed, dags, evaluate):
    g, device = dags.one(seed)
    if seed % 2:
        g, device, _ = relabeled(g, device, np.random.default_rng(seed))
    g = Graph.from_csr(g.indptr, g.indices)  # edges in the order of g.indices, none twice
    weight = np.random.default_rng(seed).random(g.num_edges) if seed % 3 == 0 else None
    p = partition_graph(g, device, edge_weight=weight)
    check_partition(g, device, p.subgraph_of, maximal=True, ordered=True)
    assert evaluate(g, device, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)
    assert np.array_equal(partition_graph(g, device, edge_weight=weight).subgraph_of, p.subgraph_of)
    if weight is not None:
        src = np.repeat(np.arange(g.num_nodes), np.diff(g.indptr))
        cut = p.subgraph_of[src] != p.subgraph_of[g.indices]
        assert p.cut_weight == pytest.approx(weight[cut].sum())


@pytest.mark.parametrize("n", [1000, 5000])
def test_every_kind_beats_contraction_and_depth(n, kinds, evaluate):
    for kind in kinds.KINDS:
        src, dst, device = kinds.make(kind, n)
        g = Graph.from_edges(src, dst, len(device))
        p = partition_graph(g, device)
        check_partition(g, device, p.subgraph_of, maximal=True, ordered=True)
        assert evaluate(g, device, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)
        assert p.cut_edges <= partition_graph(g, device, "linear").cut_edges, kind
        if n == 1000:
            assert p.num_subgraphs <= contraction(g, device), kind


def test_results_are_equal_across_threads(kinds):
    src, dst, device = kinds.make("random", 30_000)
    g = Graph.from_edges(src, dst, len(device))
    expected = partition_graph(g, device).subgraph_of
    found = [None] * 4

    def run(i):
        found[i] = partition_graph(g, device).subgraph_of

    in_threads(run, range(4))
    for labels in found:
        assert np.array_equal(labels, expected)


def test_isolated_node_changes_nothing_else(dags):
    for seed in range(50):
        g, device = dags.one(seed)
        src = np.repeat(np.arange(g.num_nodes), np.diff(g.indptr))
        larger = Graph.from_edges(src, g.indices, g.num_nodes + 1)
        alone = partition_graph(g, device).subgraph_of
        p = partition_graph(larger, np.append(device, 1)).subgraph_of
        assert np.array_equal(p[:-1, None] == p[:-1], alone[:, None] == alone)
        assert (p == p[-1]).sum() == 1


def star(n, rng):
    """One hub in the middle: half of the nodes before it, half behind."""
    hub = n // 2
    rest = np.delete(np.arange(n), hub)
    return np.minimum(rest, hub), np.maximum(rest, hub), rng.random(n) < 0.3


def layers(n, rng):
    """Complete bipartite layers of 24."""
    width = 24
    node = np.arange(n - width)
    src = np.repeat(node, width)
    dst = (node // width + 1)[:, None] * width + np.arange(width)
    keep = dst.ravel() < n
    return src[keep], dst.ravel()[keep], rng.random(n) < 0.1


def anywhere(n, rng):
    """Two producers anywhere before: no two nodes are far apart."""
    node = np.repeat(np.arange(1, n), 2)
    return (rng.random(2 * n - 2) * node).astype(np.int64), node, rng.random(n) < 0.1


def butterfly(n, rng):
    """Stages of a fast Fourier transform of 64 values."""
    node = np.arange(64, n)
    stage = node // 64 % 6
    straight = node - 64
    return np.concatenate([straight, straight ^ (1 << stage)]), np.concatenate([node, node]), rng.random(n) < 0.1


def guarded_fan(n, rng):
    """Pairs a, b below one hub that a leads to; the hub leads on to what feeds b, for half of them."""
    k = (n - 1) // 3
    a, c, b, hub = np.arange(k), k + 1 + np.arange(k), 2 * k + 1 + np.arange(k), k
    guarded = np.flatnonzero(rng.random(k) < 0.5)
    src = np.concatenate([a, a, c, np.full(len(guarded), hub)])
    dst = np.concatenate([b, np.full(k, hub), b, c[guarded]])
    device = np.zeros(n, np.int64)
    device[hub] = 1
    device[c] = 2
    return src, dst, device


@pytest.mark.parametrize("make", [star, layers, anywhere, butterfly, guarded_fan])
def test_graphs_made_to_be_hard(make, evaluate):
    rng = np.random.default_rng(0)
    for n in (100, 3000, 40_000):
        src, dst, device = make(n, rng)
        g = Graph.from_edges(src, dst, n)
        p = partition_graph(g, device.astype(np.int32))
        check_partition(g, device.astype(np.int32), p.subgraph_of, ordered=True)
        assert evaluate(g, device, p.subgraph_of) == (p.num_subgraphs, p.cut_edges)


@pytest.mark.spread(2)
@pytest.mark.parametrize("kind", ["random", "towers", "ladder", "loose_comb", "three_devices", "half_foreign"])
@pytest.mark.parametrize("n", [60, 700, 12_000])
def test_weights_never_cost_a_subgraph(kind, n, kinds):
    for seed in range(3 if n < 10_000 else 1):
        src, dst, device = kinds.make(kind, n, seed)
        g = Graph.from_edges(src, dst, n)
        plain = partition_graph(g, device)
        rng = np.random.default_rng(seed)
        lower = 0
        for weight in (rng.random(len(src)), np.power(10.0, rng.integers(0, 7, len(src))), np.zeros(len(src))):
            p = partition_graph(g, device, edge_weight=weight)
            check_partition(g, device, p.subgraph_of, maximal=True, ordered=True)
            assert p.num_subgraphs <= plain.num_subgraphs
            cut = plain.subgraph_of[src] != plain.subgraph_of[dst]
            lower += p.cut_weight < weight[cut].sum()
            assert p.num_subgraphs < plain.num_subgraphs or p.cut_weight <= weight[cut].sum() * (1 + 1e-6)
        assert lower or plain.lower_bound == plain.num_subgraphs or n < 100


PROVED = (
    ("window 8, 3 edges a node", 40, 2, 12),
    ("three devices", 50, 3, 31),
    ("random", 50, 8, 4),
    ("loose comb", 50, 13, 4),
)


def test_is_optimal_on_graphs_that_a_single_start_misses():
    """Minimums that CP-SAT proved; bench/optimum.py has more."""
    for name, n, seed, minimum in PROVED:
        src, dst, device = optimum.FAMILIES[name](np.random.default_rng([seed, len(name)]), n)
        assert partition_graph(Graph.from_edges(src, dst, n), device).num_subgraphs == minimum, (name, n, seed)


def test_all_pairs():
    """A path through all nodes, so every change of device needs another subgraph."""
    n = 1500
    src, dst = np.triu_indices(n, 1)
    device = (np.random.default_rng(0).random(n) < 0.5).astype(np.int32)
    g = Graph.from_edges(src, dst, n)
    p = partition_graph(g, device)
    check_partition(g, device, p.subgraph_of, maximal=True, ordered=True)
    assert p.num_subgraphs == p.lower_bound == 1 + np.count_nonzero(np.diff(device))


def test_maximal_when_searches_run_out_of_budget(kinds):
    """Contraction runs again on the quotient, and continues with the edges that the previous run left open."""
    src, dst, device = kinds.make("linked_chains", 120_000)
    g = Graph.from_edges(src, dst, len(device))
    p = partition_graph(g, device)
    check_partition(g, device, p.subgraph_of, maximal=True, ordered=True)


def test_combs_side_by_side_take_few_searches(kinds):
    """Every edge that cannot be merged has a detour along the spine of its comb, which the spanning forest contains."""
    src, dst, device = kinds.make("combs", 40_000)
    g = Graph.from_edges(src, dst, len(device))
    p = partition_graph(g, device)
    check_partition(g, device, p.subgraph_of, maximal=True, ordered=True)
    assert p.num_subgraphs == p.lower_bound


def most_alive(g, label):
    """The most values that are alive at the same time between subgraphs that run in order of their numbers."""
    alive, most = 0, 0
    ends = {}  # subgraph -> values that it reads last
    for s in range(label.max() + 1):
        for v in np.flatnonzero(label == s).tolist():
            last = max(label[g.successors(v)].tolist(), default=s)
            if last > s:
                alive += 1
                ends[last] = ends.get(last, 0) + 1
        most = max(most, alive)
        alive -= ends.get(s, 0)
    return most


def numbered(p, key):
    """The labels if the ready subgraph with the smallest ``key(subgraph, position when it became ready)`` runs next."""
    q, done = p.quotient, []
    waits_for = np.diff(q.pred_indptr)
    ready = dict.fromkeys(np.flatnonzero(waits_for == 0).tolist(), 0)
    while ready:
        s = min(ready, key=lambda s: key(s, ready[s]))
        del ready[s]
        done.append(s)
        waits_for[q.successors(s)] -= 1
        ready |= {t: len(done) for t in q.successors(s).tolist() if waits_for[t] == 0}
    return np.argsort(done)[p.subgraph_of]


@pytest.mark.parametrize("kind", ["combs", "half_foreign", "joined_trees", "linked_chains", "towers"])
def test_numbers_keep_few_values_alive(kind, kinds):
    """At most as many as in the order of the model, and about as many as depth first."""
    src, dst, device = kinds.make(kind, 2500)
    part = np.flatnonzero((src < 1200) & (dst < 1200))
    device = device[:1200]
    g = Graph.from_edges(src[part], dst[part], len(device))
    p = partition_graph(g, device)
    first = [int(p.nodes(s)[0]) for s in range(p.num_subgraphs)]
    in_order = numbered(p, lambda s, since: first[s])
    depth_first = numbered(p, lambda s, since: (-since, first[s]))
    assert most_alive(g, p.subgraph_of) <= min(most_alive(g, in_order), 1.1 * most_alive(g, depth_first) + 2)


@pytest.mark.parametrize("length", [10, 800])
def test_numbers_complete_one_branch_before_the_next(length):
    """Also in large graphs, if few edges are between subgraphs; the model lists the branches side by side."""
    branches, runs, wide = 32, 6, 8
    node = np.arange(branches * runs * length).reshape(runs, length, branches)
    inner = node[:, :-1].ravel(), node[:, 1:].ravel()
    between = node[:-1, -wide:].ravel(), node[1:, :wide].ravel()
    src, dst = (np.concatenate(edges) for edges in zip(inner, between, strict=True))
    device = np.broadcast_to(np.arange(runs)[:, None, None] % 2, node.shape).ravel()
    g = Graph.from_edges(src, dst, node.size)
    p = partition_graph(g, device)
    assert p.num_subgraphs == branches * runs
    assert most_alive(g, p.subgraph_of) == 2 * wide


def test_a_quick_partition_is_valid_and_has_no_fewer_subgraphs():
    rng = np.random.default_rng(8)
    fewer = 0
    for _ in range(20):
        n = int(rng.integers(100, 300))
        dst = np.repeat(np.arange(1, n), 2)
        graph = Graph.from_edges(np.maximum(0, dst - 1 - rng.integers(0, 8, len(dst))), dst, n)
        device = rng.integers(0, 3, n)
        quick, thorough = (partition_graph(graph, device, thorough=each) for each in (False, True))
        check_partition(graph, device, quick.subgraph_of, maximal=True, ordered=True)
        assert thorough.num_subgraphs <= quick.num_subgraphs
        fewer += thorough.num_subgraphs < quick.num_subgraphs
    assert fewer


@pytest.mark.parametrize(("kind", "seed"), [("loose_comb", 0), ("loose_comb", 3), ("three_devices", 3)])
def test_weights_that_are_mostly_zero(kind, seed, kinds):
    """The heaviest edge is followed by one without weight."""
    src, dst, device = kinds.make(kind, 300, seed)
    g = Graph.from_edges(src, dst, len(device))
    weight = (np.random.default_rng(seed).random(len(src)) < 0.02).astype(float)
    cuts = []
    for weights in (weight, np.zeros(len(src))):
        subgraph_of = partition_graph(g, device, edge_weight=weights).subgraph_of
        cuts.append(weight[subgraph_of[src] != subgraph_of[dst]].sum())
    assert cuts[0] < cuts[1]
