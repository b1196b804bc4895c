"""The arena that all sessions share: results, memory, and what happens to it after models are dropped."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hetero
from hetero.devices.ort import arena
from model_zoo import make_model

pytest.importorskip("onnxruntime")

node = helper.make_node

MEMORY = """
import gc, sys
import numpy as np
import onnx
from onnx import helper
import hetero

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20

nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"]),
         helper.make_node("Mul", ["a", "b"], ["c"]), helper.make_node("ReduceMax", ["c"], ["y"], keepdims=0)]
port = lambda name, shape: helper.make_tensor_value_info(name, 1, shape)
graph = helper.make_graph(nodes, "g", [port("x", ["n"])], [port("y", [])])
proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
core = hetero.Core()
model = core.read_model(proto)
config = {"ORT_SESSION_OPTIONS": {"graph_optimization_level": "ORT_DISABLE_ALL"}, "ORT_SESSION_CONFIG": GIVEN}
x = np.zeros(4 << 20, np.float32)  # 16 MiB
assert core.compile_model(model, "ORT", config)(x[:1])[0] == 1
begin = resident()
requests = [core.compile_model(model, "ORT", config).create_infer_request() for _ in range(6)]
for request in requests:
    assert request.infer(x)[0] == 1
used = resident() - begin
del requests, request
print(used, resident() - begin)
"""


def memory(config: dict[str, str]) -> list[int]:
    """MiB that six models use, and that they leave behind."""
    script = MEMORY.replace("GIVEN", repr(config))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return list(map(int, done.stdout.split()))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_sessions_use_the_same_memory_and_leave_none_behind() -> None:
    used, left = memory({})
    own, _ = memory({"session.use_env_allocators": "0"})
    assert used < 100  # the values of one of the models, at most 48 MiB
    assert own > 250
    assert left < 20


def test_the_tiny_model_is_valid() -> None:
    model = onnx.ModelProto.FromString(arena._TINY)
    assert [(each.op_type, each.input, each.output) for each in model.graph.node] == [("Identity", ["x"], ["y"])]


def test_who_shares_it(core: hetero.Core) -> None:
    model = core.read_model(make_model([node("Neg", ["x"], ["y"])]))

    def entry(config: dict[str, Any]) -> str:
        session = core.compile_model(model, "ORT", config)._session  # type: ignore[attr-defined]
        try:
            return str(session.get_session_options().get_session_config_entry("session.use_env_allocators"))
        except RuntimeError:
            return "missing"

    assert entry({}) == "1"
    assert entry({"ORT_SESSION_CONFIG": {"session.use_env_allocators": "0"}}) == "0"
    assert entry({"ORT_SESSION_OPTIONS": {"enable_cpu_mem_arena": False}}) == "missing"


def test_models_come_and_go_while_others_run(core: hetero.Core) -> None:
    """Memory that is returned is not in use: results of other threads, and results that outlive their model."""
    nodes = [node("Exp", ["x"], ["a"]), node("Add", ["a", "x"], ["b"]), node("Mul", ["a", "b"], ["y"])]
    model = core.read_model(make_model(nodes))
    failures: list[str] = []
    held: list[tuple[np.ndarray, np.ndarray]] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(15):
            x = random.standard_normal((2, 3)).astype(np.float32)
            expected = np.exp(x) * (np.exp(x) + x)
            compiled = core.compile_model(model, "ORT", {"INFERENCE_NUM_THREADS": 1})
            for _ in range(5):
                held.append((compiled(x)[0], expected))
            del compiled
            gc.collect(0)
            if not all(np.allclose(found, wanted, 1e-4) for found, wanted in held[-50:]):
                failures.append(str(seed))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for found, wanted in held:
        np.testing.assert_allclose(found, wanted, 1e-4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_leaves_the_arena_alone(core: hetero.Core) -> None:
    compiled = core.compile_model(core.read_model(make_model([node("Neg", ["x"], ["y"])])), "ORT")
    shared = compiled.share  # type: ignore[attr-defined]
    assert shared is not None
    pid = os.fork()
    if not pid:
        shared._arena._session = None  # a run would fail
        try:
            shared._arena.shrink()
            os._exit(arena.lease() is not None)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
