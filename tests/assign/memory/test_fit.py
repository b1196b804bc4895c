"""Assignments within limits, against trying everything."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetero.assign.memory import Values
from hetero.assign.memory.fit import fit, prove_infeasible
from hetero.assign.memory.order import late_order
from hetero.partition import check_partition
from memory_graphs import by_priority, cut, graph_of, needs_of, problems, random_tree, random_values, solutions


@given(problems())
def test_limits_hold_or_the_excess_is_told(problem):
    values, allowed, limits, work = problem
    start = by_priority(allowed)
    found = fit(values, start.copy(), allowed, limits, lambda device_of: cut(values, device_of), work)
    assert allowed[found.device_of, np.arange(values.num_nodes)].all()
    if work is None:
        assert (found.device_of >= start).all()  # nodes go on by priority
    needs = needs_of(values, found.device_of, len(limits))
    assert needs.tolist() == found.needs.total.tolist()
    assert found.excess.tolist() == np.maximum(needs - limits, 0).tolist()
    assert found.fits == (needs <= limits).all()
    assert found.excess.sum() <= np.maximum(needs_of(values, start, len(limits)) - limits, 0).sum()
    check_partition(graph_of(values), found.device_of, found.partition.subgraph_of)


@given(problems(max_nodes=5))
def test_what_is_proven_impossible_is(problem):
    values, allowed, limits, work = problem
    proof = prove_infeasible(values, allowed, limits)
    if proof is None:
        return
    assert proof.bytes > proof.limit
    assert not any(True for _ in solutions(values, allowed, limits, only_onward=False))
    found = fit(values, by_priority(allowed), allowed, limits, lambda device_of: cut(values, device_of), work)
    assert not found.fits


def test_how_much_filling_misses():
    """Of random problems where something fits, the rule finds something in nearly all."""
    missed = possible = 0
    rng = np.random.default_rng(1)
    for _ in range(150):
        n, count = int(rng.integers(3, 6)), 3
        values, weight = random_tree(rng, n)
        allowed = np.ones((count, n), np.bool_)
        allowed[rng.integers(0, 2, n), np.arange(n)] &= rng.random(n) < 0.7
        limits = np.array(
            [weight.sum() * 0.6, weight.sum() * 0.8, np.inf if rng.random() < 0.3 else weight.sum() * 0.8]
        )
        if next(solutions(values, allowed, limits, only_onward=True), None) is None:
            continue
        possible += 1
        found = fit(values, by_priority(allowed), allowed, limits, lambda device_of, v=values: cut(v, device_of))
        missed += not found.fits
    assert possible > 50
    assert missed <= 0.03 * possible


def chain(n, weight=10.0, activation=1.0, count=2):
    """A chain with a constant per node."""
    values = Values.from_arrays(
        n,
        [*range(n), *[-1] * n],
        [activation] * n + [weight] * n,
        [*range(n - 1), *range(n, 2 * n)],
        [*range(1, n), *range(n)],
        [False] * n + [True] * n,
    )
    return values, np.ones((count, n), np.bool_)


@given(st.integers(1, 30), st.integers(4, 40), st.integers(2, 4), st.integers(0, 3))
def test_chains_are_filled_device_by_device(n, weight, count, holdable):
    values, allowed = chain(n, weight, 1.0, count)
    limits = np.full(count, holdable * weight + 3.0)
    limits[-1] = np.inf
    found = fit(values, np.zeros(n, np.int32), allowed, limits, lambda device_of: cut(values, device_of))
    assert found.fits
    counts = [holdable] * (count - 1)
    expected = np.repeat(np.arange(count), [*counts, max(0, n - sum(counts))])[:n]
    assert found.device_of.tolist() == expected.tolist()


def test_the_cut_is_where_little_crosses():
    """Within a tenth of the limit, the device ends where the smallest value is handed on."""
    values, allowed = chain(40, weight=100.0)
    size = values.bytes.copy()
    size[:40] = 20
    size[18] = 1
    values = Values.from_arrays(40, values.producer, size, values.read_value, values.read_node, values.is_constant)
    found = fit(
        values, np.zeros(40, np.int32), allowed, np.array([2050, np.inf]), lambda device_of: cut(values, device_of)
    )
    assert np.bincount(found.device_of).tolist() == [19, 21]


def test_large_activations_at_the_beginning_do_not_keep_the_rest_away():
    """As in convolutional networks: what is too large for the device goes on, what comes later fits."""
    size = [1000, 1000, 1000, 10, 10, 10]
    values = Values.from_arrays(6, range(6), size, range(5), range(1, 6))
    found = fit(
        values,
        np.zeros(6, np.int32),
        np.ones((2, 6), np.bool_),
        np.array([100, np.inf]),
        lambda device_of: cut(values, device_of),
    )
    assert found.device_of.tolist() == [1, 1, 1, 1, 0, 0]


def test_peaks_that_no_node_makes_alone_do_not_keep_the_rest_away():
    """Each node would fit, but at the beginning more is alive than that; the device gets what comes later."""
    n = 20
    size = [40] * 4 + [1] * 16
    # The first node's value is read by the fourth, so that up to three large ones are alive at once.
    values = Values.from_arrays(n, range(n), size, [*range(n - 1), 0], [*range(1, n), 3])
    found = fit(
        values,
        np.zeros(n, np.int32),
        np.ones((2, n), np.bool_),
        np.array([100, np.inf]),
        lambda device_of: cut(values, device_of),
    )
    assert found.fits
    assert found.device_of.tolist() == [1] * 4 + [0] * 16


def test_nodes_that_can_be_nowhere_else_go_first():
    values, allowed = chain(10)
    allowed[1, 5:] = False
    found = fit(values, np.zeros(10, np.int32), allowed, np.array([54.0, np.inf]), lambda d: cut(values, d))
    assert found.device_of.tolist() == [1] * 5 + [0] * 5


@pytest.mark.parametrize("kind", ["transformer", "random", "experts"])
def test_a_hundred_thousand_nodes(kind):
    from graphs import make

    src, dst, _ = make(kind, 100_000)
    n = int(dst.max()) + 1
    rng = np.random.default_rng(0)
    values = Values.from_arrays(
        n,
        [*range(n), *[-1] * n],
        np.concatenate([rng.integers(1, 100, n), rng.integers(1, 100, n)]),
        np.concatenate([src, np.arange(n, 2 * n)]),
        np.concatenate([dst, np.arange(n)]),
        np.arange(2 * n) >= n,
    )
    allowed = np.ones((3, n), np.bool_)
    limits = np.array([values.bytes[n:].sum() * 0.4, values.bytes[n:].sum() * 0.4, np.inf])
    graph = graph_of(values)
    from hetero.partition import partition_graph

    begin = time.process_time()
    found = fit(values, np.zeros(n, np.int32), allowed, limits, lambda device_of: partition_graph(graph, device_of))
    assert time.process_time() - begin < 30  # about 1 s
    assert found.fits
    assert (found.needs.total[:2] > 0.85 * limits[:2]).all()
    assert found.partition.num_subgraphs < 200


def test_nodes_without_inputs_are_filled_with_their_readers():
    # 0 and 1 make weights of 2 and 3, which read the input and each other; 1 comes long before 3.
    values = Values.from_arrays(
        4, [0, 1, -1, 2, 3], [8, 8, 8, 8, 8], [0, 1, 2, 3], [2, 3, 2, 3], is_output=[False] * 4 + [True]
    )
    assert late_order(values).tolist() == [0, 2, 1, 3]
    assert values.renumbered(late_order(values)).producer.tolist() == [0, 2, -1, 1, 3]
    # Without an order of its own, 0 and 1 would stay and 2 and 3 go on; an island for one value is none now.
    found = fit(
        values,
        np.zeros(4, np.int32),
        np.ones((2, 4), np.bool_),
        np.array([24.0, np.inf]),
        lambda device_of: cut(values, device_of),
    )
    assert found.fits
    assert found.device_of.tolist() == [0, 1, 0, 1]


@given(random_values(8))
def test_late_order_is_topological(values):
    order = late_order(values)
    assert sorted(order.tolist()) == list(range(values.num_nodes))
    position = np.argsort(order)
    made = values.producer[values.read_value] >= 0
    before, after = values.producer[values.read_value[made]], values.read_node[made]
    assert (position[before] < position[after]).all()
    back = values.renumbered(order).renumbered(position)
    assert all(
        np.array_equal(getattr(back, name), getattr(values, name))
        for name in values.__slots__
        if name not in ("num_nodes", "_arrays")
    )
