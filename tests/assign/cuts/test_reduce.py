"""Minimum cuts with and without the reduction before the maximum flow: the same flow, the same sides."""

from __future__ import annotations

import numpy as np
import pytest

from hetero._assign import min_cut


def both_ways(a, b, capacity, back, excess):
    a, b = np.asarray(a, np.int32), np.asarray(b, np.int32)
    flow, side, cut = min_cut(a, b, capacity, back, excess)
    plain_flow, plain_side, plain_cut = min_cut(a, b, capacity, back, excess, reduce=False)
    assert flow == cut == plain_flow == plain_cut
    np.testing.assert_array_equal(side, plain_side)
    return flow, side


def with_numbers(rng, a, b, n, largest):
    """Capacities and excesses up to `largest`: the smaller, the more ties; some are unlimited one way or both."""
    a, b = np.asarray(a), np.asarray(b)
    a, b = a[a != b], b[a != b]
    capacity = rng.integers(0, largest, len(a)).astype(float)
    back = rng.integers(0, largest, len(a)) * rng.integers(0, 2, len(a)).astype(float)
    unlimited = rng.choice([0, 0.1, 0.3])
    capacity[rng.random(len(a)) < unlimited] = np.inf
    back[rng.random(len(a)) < unlimited / 4] = np.inf
    excess = rng.integers(-largest, largest + 1, n) * (rng.random(n) < rng.choice([0.2, 0.6, 1]))
    return both_ways(a, b, capacity, back, excess)


@pytest.mark.parametrize("seed", range(20))
def test_random_networks(seed):
    """With parallel edges, unlimited arcs and ties."""
    rng = np.random.default_rng(seed)
    for _ in range(100):
        n = int(rng.integers(1, 40))
        edges = int(rng.integers(0, 3 * n))
        with_numbers(rng, rng.integers(0, n, edges), rng.integers(0, n, edges), n, int(rng.choice([2, 4, 50])))


def path(n):
    return np.arange(n - 1), np.arange(1, n)


def tree(n):
    node = np.arange(1, n)
    return node // 2, node


def rails(n):
    """Two rails and rungs."""
    node = np.arange(n - 2)
    return np.concatenate([node, np.arange(0, n - 1, 2)]), np.concatenate([node + 2, np.arange(1, n, 2)])


def grid(n):
    """Ten wide."""
    v = np.arange(n // 10 * 10).reshape(-1, 10)
    return (
        np.concatenate([v[:, :-1].ravel(), v[:-1].ravel()]),
        np.concatenate([v[:, 1:].ravel(), v[1:].ravel()]),
    )


def hubs(n):
    """Two vertices that all others neighbor: many parallel edges as the others go."""
    v = np.arange(2, n)
    return np.concatenate([v, v]), np.concatenate([np.zeros(n - 2, int), np.ones(n - 2, int)])


def layers(n):
    """Complete between neighboring layers of eight."""
    v = np.arange(n // 8 * 8).reshape(-1, 8)
    a, b = np.broadcast_arrays(v[:-1, :, None], v[1:, None, :])
    return a.ravel(), b.ravel()


def skips(n):
    """Blocks of twelve in which each is joined to all before it, and the last to the next block."""
    v = np.arange(n)
    pairs = [(v[d:][v[d:] % 12 >= d] - d, v[d:][v[d:] % 12 >= d]) for d in range(1, 12)]
    start = v[12::12]
    return np.concatenate([*(p[0] for p in pairs), start - 1]), np.concatenate([*(p[1] for p in pairs), start])


@pytest.mark.parametrize("shape", [path, tree, rails, grid, hubs, layers, skips])
@pytest.mark.parametrize("largest", [3, 1000])
def test_shapes(shape, largest):
    rng = np.random.default_rng(0)
    n = 2000
    a, b = shape(n)
    for _ in range(6):
        flow, _ = with_numbers(rng, a, b, n, largest)
        assert flow > 0


def test_far_to_go():
    """All flow has to pass to the other half, through layers that no reduction takes away, with and without a limit."""
    rng = np.random.default_rng(0)
    for shape in (grid, layers, skips):
        for limit in (20, 10**6):
            a, b = shape(4000)
            n = 4000
            capacity = rng.integers(1, limit, len(a)).astype(float)
            back = rng.integers(1, limit, len(a)).astype(float)
            excess = np.where(np.arange(n) < n / 2, rng.integers(1, 50, n), -rng.integers(1, 50, n))
            both_ways(a, b, capacity, back, excess)
            both_ways(a, b, capacity, np.zeros(len(a)), excess)


def test_one_is_enough_to_tell_all():
    """A chain of unlimited arcs, one end on the sink's side: all are."""
    n = 50_000
    a, b = path(n)
    excess = np.ones(n)
    excess[0] = -n
    assert both_ways(a, b, np.zeros(n - 1), np.full(n - 1, np.inf), excess)[0] == n - 1
    _, side = both_ways(a, b, np.full(n - 1, np.inf), np.zeros(n - 1), excess)
    assert np.flatnonzero(side).tolist() == [0]


def test_unlimited_arcs_to_a_vertex_of_many_neighbors():
    """One of 100 decides the hub, which decides half of the others; the rest is cut off from it."""
    n = 102
    leaf = np.arange(2, n)
    rng = np.random.default_rng(0)
    for far in (1, 1000):
        a = np.concatenate([np.zeros(n - 2, int), leaf, [1]])
        b = np.concatenate([leaf, np.roll(leaf, 1), [0]])
        capacity = np.concatenate([np.where(leaf % 2, np.inf, 1), rng.integers(1, 9, n - 2), [np.inf]])
        back = np.concatenate([np.ones(n - 2), rng.integers(1, 9, n - 2), [0]])
        excess = np.where(np.arange(n) % 3, -3, 4)
        excess[:2] = 0, far
        both_ways(a, b, capacity, back, excess)
