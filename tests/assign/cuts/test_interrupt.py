"""Ctrl-C is answered during an assignment of a large graph."""

from __future__ import annotations

import signal

import numpy as np
import pytest

import graphs
from hetero.assign import AssignmentProblem
from hetero.partition import Graph


class Alarm(Exception):
    pass


@pytest.mark.slow
def test_a_move_answers_signals():
    n = 300_000
    src, dst, _ = graphs.make("random", n, 0)
    rng = np.random.default_rng(0)
    graph, work, size = Graph.from_edges(src, dst, n), rng.exponential(1, (2, n)), rng.exponential(10, n)
    problem = AssignmentProblem.from_graph(graph, work, size, np.zeros((2, 2)), np.ones((2, 2)))

    def ring(number, frame):
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Alarm):
            problem.move(np.zeros(n, np.int32), 1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert problem.cost(np.zeros(n, np.int32)).transfers == 0
