"""ENABLE_CPU_PINNING: where the threads of a model stay, as the system tells."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

import hetero
from hetero import _kernels
from hetero.devices.cpu.plugin import _dealt_out
from runtime import products_model

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system pins no threads")
X = np.ones((64, 64), np.float32)


def threads() -> dict[int, set[int]]:
    """Thread -> the processors that it may run on."""
    found = {}
    for entry in Path("/proc/self/task").iterdir():
        try:
            found[int(entry.name)] = os.sched_getaffinity(int(entry.name))
        except ProcessLookupError:
            continue  # it has just ended
    return found


@pytest.fixture
def before() -> dict[int, set[int]]:
    return threads()


@pytest.fixture
def model(core: hetero.Core) -> hetero.Model:
    return core.read_model(products_model(branches=False, size=64, depth=2))


def new_threads(before: dict[int, set[int]]) -> list[set[int]]:
    return [allowed for number, allowed in threads().items() if number not in before]


def test_processors_are_dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetero.devices.cpu.plugin._processors", lambda: [2, 3, 5, 7, 11])
    assert _dealt_out(0, streams=2, threads=2) == [[2, 3], [5, 7]]
    assert _dealt_out(1, streams=1, threads=2) == [[5, 7]]  # beside those of CPU.0
    assert _dealt_out(0, streams=3, threads=2) == [[2, 3], [5, 7], [11, 2]]
    assert _dealt_out(0, streams=1, threads=7) == [[2, 3, 5, 7, 11, 2, 3]]


def test_threads_of_a_team_are_pinned(before: dict[int, set[int]]) -> None:
    mine = sorted(os.sched_getaffinity(0))
    table = [[mine[0], mine[-1], mine[0]], [mine[-1], mine[0], mine[-1]]]
    team = _kernels.Team(3, 2, table)
    assert sorted(map(sorted, new_threads(before))) == sorted([[mine[-1]], [mine[0]], [mine[0]], [mine[-1]]])
    assert os.sched_getaffinity(0) == set(mine)  # whoever makes it is not
    del team
    assert new_threads(before) == []


@pytest.mark.parametrize("table", [[[0]], [[0, 1], [0]], [[0, -1]], [0, 1], []])
def test_processors_that_cannot_be(table: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        _kernels.Team(2, 1, table)  # type: ignore[arg-type]


def test_a_processor_that_is_not_there_is_left_out(before: dict[int, set[int]]) -> None:
    team = _kernels.Team(2, 1, [[0, 5000]])
    assert new_threads(before) == [os.sched_getaffinity(0)]
    del team


@pytest.mark.parametrize(("streams", "threads_in_all"), [(1, 2), (2, 4), (2, 2)])
def test_threads_of_a_model_are_pinned(
    core: hetero.Core, model: hetero.Model, before: dict[int, set[int]], streams: int, threads_in_all: int
) -> None:
    config = {"NUM_STREAMS": streams, "INFERENCE_NUM_THREADS": threads_in_all}
    expected = core.compile_model(model, "CPU", config)(X)[0]
    assert all(len(allowed) == len(os.sched_getaffinity(0)) for allowed in new_threads(before))
    existing = threads()
    compiled = core.compile_model(model, "CPU", {**config, "ENABLE_CPU_PINNING": True})
    barrier = threading.Barrier(streams)
    requests = [compiled.create_infer_request() for _ in range(streams)]
    for request in requests:  # as many at one time as there are streams, so that each has its thread
        request.set_callback(lambda error: barrier.wait(30) and None)
        request.start_async(X)
    for request in requests:
        assert request.wait(30_000)
        np.testing.assert_array_equal(request.outputs[0], expected)
    pinned = new_threads(existing)
    table = _dealt_out(0, streams, threads_in_all // streams)
    assert sorted(map(sorted, pinned)) == sorted([processor] for own in table for processor in own)
    np.testing.assert_array_equal(compiled(X)[0], expected)  # in a thread that nobody pinned
