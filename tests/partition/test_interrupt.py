"""Signals are answered during a long computation, and leave nothing behind."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest

from hetero.partition import Graph, TransitiveClosure, check_partition, partition_graph

# Seconds: far below what the work takes by itself or repeats for, and far above what a busy machine adds to the tenth
# of a second that an answer takes.
PATIENCE = 5.0


class Alarm(Exception):
    pass


def delay_of_answer(work, after):
    """Seconds between a signal, ``after`` seconds into ``work``, and the exception; None when work ended before."""

    def ring(number, frame):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        started = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, after)
        work()
    except Alarm:
        return time.perf_counter() - started - after
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None


@pytest.fixture(scope="module")
def large():
    n = 1_500_000
    rng = np.random.default_rng(0)
    node = np.arange(1, n)
    src = np.concatenate([node - 1, node - 1 - rng.integers(0, np.minimum(node, 64))])
    g = Graph.from_edges(src, np.concatenate([node, node]), n)
    return g, (rng.random(n) < 0.3).astype(np.int32)


@pytest.mark.parametrize("policy", ["auto", "documented"])
def test_policies_answer_signals(policy, large, kinds):
    g, device = large
    if policy == "documented":  # for thousands of nodes
        src, dst, device = kinds.make("unet", 20_000)
        g = Graph.from_edges(src, dst, len(device))
    delay = delay_of_answer(lambda: partition_graph(g, device, policy), 0.03)
    assert delay is not None
    assert delay < PATIENCE
    small = Graph.from_edges([0], [1], 2)
    assert partition_graph(small, [0, 1], policy).num_subgraphs == 2


def test_building_and_checking_answer_signals(large):
    g, device = large
    src = np.repeat(np.arange(g.num_nodes, dtype=np.int32), np.diff(g.indptr))[::-1].copy()
    dst = g.indices[::-1].copy()
    labels = partition_graph(g, device, "linear").subgraph_of

    def forever(work):
        while True:
            work()

    for work in (
        lambda: Graph.from_edges(src, dst, g.num_nodes),
        lambda: partition_graph(g, device, "linear"),
        lambda: check_partition(g, device, labels),
        lambda: TransitiveClosure(g),
    ):
        delay = delay_of_answer(lambda work=work: forever(work), 0.02)
        assert delay is not None
        assert delay < PATIENCE


def test_other_threads_run_meanwhile(large):
    """Without the GIL: a thread counts while another partitions."""
    g, device = large
    counted, done = 0, threading.Event()

    def work():
        partition_graph(g, device, "auto")
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        counted += 1
    thread.join()
    assert counted > 1000
