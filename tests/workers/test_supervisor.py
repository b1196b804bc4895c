"""Workers that are killed, stopped, or lose their parent, over and over: right results or errors, and nothing left."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import hetero
from worker_cases import children_of, identity, lives, parent_of, resident_bytes, stop, until

PROCESS = {"ISOLATION": "PROCESS"}
X = np.linspace(-2, 2, 6, dtype=np.float32)
LONG = 120  # seconds after which a test has hung


@pytest.fixture
def core(core: hetero.Core) -> hetero.Core:
    core.register_plugin("FRAGILE", "worker_plugins:create_plugin")
    return core


def fragile(core: hetero.Core, **config: object) -> hetero.CompiledModel:
    return core.compile_model(core.read_model(identity()), "FRAGILE", {**PROCESS, **config})


def test_a_killed_worker_costs_nothing_but_time_with_retries(core: hetero.Core) -> None:
    compiled = fragile(core, WORKER_RETRIES=2)
    over, kills, done = threading.Event(), 0, 0

    def kill() -> None:
        """Once after an inference, so that none loses three workers, however slowly they start."""
        nonlocal kills
        last = -1
        while not over.wait(0.005):
            if done > last:
                last = done
                os.kill(compiled.process, signal.SIGKILL)
                kills += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        while kills < 20:
            assert int(compiled(np.full(10, done, np.float32))[0][0]) == done
            done += 1
    finally:
        over.set()
        killer.join()


def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    script = """
import os, sys, time, numpy as np, hetero
core = hetero.Core()
compiled = core.compile_model(core.read_model(sys.argv[1]), "CPU", {"ISOLATION": "PROCESS"})
compiled(np.ones(3, np.float32))
print(compiled.process, flush=True)
time.sleep(600)
"""
    (tmp_path / "m.onnx").write_bytes(identity())
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path / "tmp")}
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "m.onnx")], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    fork_server = parent_of(worker)
    assert lives(worker)
    assert lives(fork_server)
    parent.kill()
    parent.communicate()
    assert until(lambda: not lives(worker) and not lives(fork_server))
    assert os.listdir(tmp_path / "tmp") == []


def test_nothing_outlives_a_parent_that_is_killed_during_inferences(tmp_path: Path) -> None:
    """One that hangs, and one that the worker computes."""
    script = """
import os, sys, threading, time, numpy as np, hetero
core = hetero.Core()
core.register_plugin("FRAGILE", "worker_plugins:create_plugin")
model = core.read_model(sys.argv[1])
hangs, works = (core.compile_model(model, "FRAGILE", {"ISOLATION": "PROCESS"}) for _ in range(2))
threading.Thread(target=hangs, args=(np.full(3, -102, np.float32),)).start()
print(hangs.process, works.process, flush=True)
while True:
    works(np.ones(1 << 20, np.float32))
"""
    (tmp_path / "m.onnx").write_bytes(identity())
    (tmp_path / "tmp").mkdir()
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path / "tmp")}
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "m.onnx")], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    processes = [*workers, parent_of(workers[0])]
    time.sleep(0.2)
    assert all(map(lives, processes))
    parent.kill()
    parent.communicate()
    assert until(lambda: not any(map(lives, processes)))
    assert os.listdir(tmp_path / "tmp") == []
    assert not before or not {name for name in os.listdir("/dev/shm") if "hetero" in name} - before


@pytest.mark.parametrize("retries", [0, 1])
def test_a_stopped_worker_is_killed_at_the_deadline(core: hetero.Core, retries: int) -> None:
    """It takes messages yet, and answers none."""
    compiled = fragile(core, WORKER_TIMEOUT_MS=4000, WORKER_RETRIES=retries)
    lost = compiled.process
    stop(lost)
    if retries:
        np.testing.assert_array_equal(compiled(X)[0], X)
    else:
        with pytest.raises(hetero.WorkerLost, match="did not answer within 4 s, and was killed"):
            compiled(X)
    assert until(lambda: not lives(lost))
    np.testing.assert_array_equal(compiled(X)[0], X)


def test_inferences_on_other_lanes_of_a_hanging_worker_go_on_or_are_lost(core: hetero.Core) -> None:
    """The deadline of one ends the worker of all."""
    model = core.read_model(identity())
    compiled = core.compile_model(model, "CPU", {**PROCESS, "NUM_STREAMS": 2, "WORKER_TIMEOUT_MS": 4000})
    np.testing.assert_array_equal(compiled(X)[0], X)
    stop(compiled.process)
    futures = [compiled.submit(X) for _ in range(2)]
    for future in futures:
        with pytest.raises(hetero.WorkerLost):
            future.result(LONG)
    np.testing.assert_array_equal(compiled(X)[0], X)


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("retries", [0, 5])
def test_threads_share_a_model_whose_worker_is_killed(core: hetero.Core, streams: int, retries: int) -> None:
    model = core.read_model(identity())
    config = {**PROCESS, "NUM_STREAMS": streams, "INFERENCE_NUM_THREADS": streams, "WORKER_RETRIES": retries}
    compiled = core.compile_model(model, "CPU", config)
    wrong: list[object] = []
    done, lost = [0, 0], [0, 0]
    over = threading.Event()

    def work(number: int) -> None:
        value = 0
        while not over.is_set():
            value += 1
            x = np.full(50_000, 2 * value + number, np.float32)
            try:
                if not (compiled(x)[0] == x).all():
                    wrong.append(value)
                done[number] += 1
            except hetero.WorkerLost:
                lost[number] += 1
            except BaseException as error:
                wrong.append(error)
                return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(8):
        count = list(done)
        assert until(lambda count=count: wrong or done != count)  # so that no inference loses all of its attempts
        os.kill(compiled.process, signal.SIGKILL)
    count = list(done)
    assert until(lambda: all(now > then for now, then in zip(done, count, strict=True)))  # both go on
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong
    if retries:
        assert lost == [0, 0]


@pytest.mark.soak
def test_nothing_gathers_in_the_processes_behind_a_model(core: hetero.Core) -> None:
    """10,000 inferences and 50 kills, of which ``HETERO_SOAK_SHARE`` here. The application's own footprint is looked at
    by bench/soak.py."""
    share = float(os.environ.get("HETERO_SOAK_SHARE", "0.1"))
    compiled = fragile(core, WORKER_RETRIES=1)
    fork_server = parent_of(compiled.process)
    inferences, kills = round(10_000 * share), max(2, round(50 * share))

    def infer(count: int) -> None:
        for number in range(count):
            x = np.full(1000 + number % 7, number, np.float32)
            assert (compiled(x)[0] == x).all()

    def descriptors(process: int) -> int:
        return len(os.listdir(f"/proc/{process}/fd"))

    def taken() -> list[int]:
        return [
            descriptors(fork_server),
            descriptors(os.getpid()),
            descriptors(compiled.process),
            len(children_of(fork_server)),
        ]

    for _ in range(2):  # what is made once
        os.kill(compiled.process, signal.SIGKILL)
        infer(50)
    gc.collect()  # models of other tests, which have workers of their own
    before, resident, young = taken(), resident_bytes(fork_server), resident_bytes(compiled.process)
    infer(inferences)
    grown = resident_bytes(compiled.process) - young
    for _ in range(kills):
        os.kill(compiled.process, signal.SIGKILL)
        infer(3)
    assert until(lambda: all(now <= then for now, then in zip(taken(), before, strict=True))), (taken(), before)
    assert resident_bytes(fork_server) - resident < 2 << 20
    assert grown < 4 << 20
