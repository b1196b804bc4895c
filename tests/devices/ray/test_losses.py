"""Actors and nodes that are lost while models run on them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hetero
from ray_cases import X, chain, fragile, identity, ray_cluster
from worker_cases import lives, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(3) as found:
        yield found


@pytest.fixture(scope="module")
def core(cluster: Any) -> hetero.Core:
    core = hetero.Core()
    core.register_plugin("FRAGILE", "worker_plugins:create_plugin")
    return core


def kill(compiled: Any) -> int:
    process: int = compiled.process
    os.kill(process, signal.SIGKILL)
    return process


def test_an_actor_that_is_killed_between_inferences_is_replaced(core: hetero.Core) -> None:
    compiled = core.compile_model(chain(core), "RAY.1", {"WORKER_RETRIES": 1})
    expected = compiled(X)[0]
    for _ in range(3):
        killed = kill(compiled)
        np.testing.assert_array_equal(compiled(X)[0], expected)
        assert compiled.process != killed  # type: ignore[attr-defined]


def test_an_inference_that_loses_its_actor_fails_by_name_unless_it_may_be_tried_again(core: hetero.Core) -> None:
    crash = np.array([-101], np.float32)
    compiled = fragile(core)
    with pytest.raises(hetero.errors.WorkerLost, match=r"RAY\.0: its actor .*process \d+.* exited"):
        compiled(crash)
    np.testing.assert_array_equal(compiled(X)[0], X)
    with pytest.raises(hetero.errors.WorkerLost) as caught:
        fragile(core, WORKER_RETRIES=1)(crash)
    assert any("2 attempts" in note for note in caught.value.__notes__)
    with pytest.raises(hetero.errors.WorkerLost):
        core.compile_model(core.read_model(identity("crash")), "RAY.0", {"RAY_DEVICE": "FRAGILE"})


def test_an_inference_that_hangs_ends_with_its_actor(core: hetero.Core) -> None:
    compiled = fragile(core, WORKER_TIMEOUT_MS=500)
    process = compiled.process  # type: ignore[attr-defined]
    with pytest.raises(hetero.errors.WorkerLost, match=r"did not answer within 0.5 s and was killed"):
        compiled(np.array([-102], np.float32))
    assert until(lambda: not lives(process))
    np.testing.assert_array_equal(compiled(X)[0], X)


def test_requests_in_flight_survive_the_loss_of_actors(core: hetero.Core) -> None:
    compiled = core.compile_model(
        chain(core),
        "HETERO:RAY.0,RAY.1",
        {"WORKER_RETRIES": 20},
        pins={"first": "RAY.0", "second": "RAY.1", "third": "RAY.1"},
    )
    parts: Any = compiled.submodels  # type: ignore[attr-defined]
    stop = threading.Event()

    def kill_now_and_then() -> None:
        for number in range(4):
            if stop.wait(0.5):
                return
            actor = parts[number % 2]._supervisor._held
            if actor:
                with contextlib.suppress(ProcessLookupError):  # it is being replaced
                    os.kill(actor[0].process, signal.SIGKILL)

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    try:
        batches = (np.full(50_000, number % 7, np.float32) for number in range(150))
        for number, outputs in enumerate(compiled.map(batches, in_flight=4)):
            np.testing.assert_allclose(outputs[0], np.exp(-np.full(50_000, number % 7, np.float32)), rtol=1e-6)
    finally:
        stop.set()
        killer.join()


def test_the_stage_of_a_lost_node_moves(core: hetero.Core, cluster: Any) -> None:
    names = {"first": "RAY.0", "second": "RAY.1", "third": "RAY.2"}
    whole = core.compile_model(chain(core), "HETERO:RAY.0,RAY.1,RAY.2", {"WORKER_RETRIES": 2}, pins=names)
    once = core.compile_model(chain(core), "RAY.1")
    strict = core.compile_model(chain(core), "RAY.1", {"WORKER_RETRIES": 1, "STRICT": True})
    (number,) = [i for i, node in enumerate(cluster.others) if node.node_id == once.node]  # type: ignore[attr-defined]
    node, other = cluster.others[number], cluster.others[1 - number]
    place = f"place{number + 1}"
    resource: Any = core.compile_model(chain(core), f"RAY.{place}", {"WORKER_RETRIES": 1, "PLUGIN_TIMEOUT_MS": 20_000})
    x = np.linspace(-2, 2, 300_000, dtype=np.float32)  # which goes through the object store
    expected = np.exp(-np.maximum(x, 0))
    for compiled in (whole, once, strict, resource):
        np.testing.assert_allclose(compiled(x)[0], expected, rtol=1e-6)
    maker = core.compile_model(chain(core), "RAY.1", {"WORKER_RETRIES": 2}).create_runner()
    reader = core.compile_model(chain(core), "RAY.2", {"WORKER_RETRIES": 2}).create_runner()
    maker.keep_on_device([0])  # type: ignore[attr-defined]
    left = maker.run([x])

    os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(hetero.errors.WorkerLost, match=r"RAY\.1: its actor"):
            once(x)
        np.testing.assert_allclose(once(x)[0], expected, rtol=1e-6)
        np.testing.assert_allclose(whole(x)[0], expected, rtol=1e-6)
        # What was left on the node is made again.
        np.testing.assert_allclose(reader.run(left)[0], np.exp(-np.maximum(expected, 0)), rtol=1e-6)
    texts = [str(entry.message) for entry in caught]
    assert all(re.fullmatch(r"RAY\.1: node .* is dead; its models move to RAY\.2, node .*", text) for text in texts)
    assert texts
    with pytest.raises(hetero.DeviceUnavailable, match=r"RAY\.1: node .* is dead, and STRICT is set"):
        strict(x)
    resource._supervisor._timeout = 3.0  # as if compiled with less, which a busy machine might not meet
    with pytest.raises((hetero.DeviceUnavailable, hetero.errors.WorkerLost), match=place):
        resource(x)
    assert whole.submodels[1].node == other.node_id  # type: ignore[attr-defined]
    with pytest.raises(hetero.DeviceUnavailable, match=f"ids here: 0, 2, place{2 - number}"):
        core.compile_model(chain(core), "RAY.1")

    # One that comes takes the number.
    new = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    assert until(lambda: "1" in core._registry.plugin("RAY").device_ids())
    fresh = core.compile_model(chain(core), "RAY.1")
    assert fresh.node == new.node_id  # type: ignore[attr-defined]
    np.testing.assert_allclose(fresh(x)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(strict(x)[0], expected, rtol=1e-6)
