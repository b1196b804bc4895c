"""What the tests of RAY share: a Ray cluster of several nodes on this machine, and models."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.devices.ray.cluster import is_installed
from model_zoo import make_model

TESTS = Path(__file__).parent
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",  # else a token is written to the home folder
    "RAY_worker_niceness": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "86400",  # a process that waits longer for a lost head calls _exit
    "RAY_ENABLE_AUTO_CONNECT": "0",  # else an actor that is ended during ray.shutdown connects again
}
# So that the death of a node is seen within a second, not within fifteen.
SYSTEM = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 200, "health_check_failure_threshold": 3}


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def ray_cluster(nodes: int) -> Iterator[Any]:
    """A `ray.cluster_utils.Cluster`, that this process is connected to. Node 1 has a resource ``place1``, and so on."""
    if not is_installed():
        pytest.skip("ray is not installed: pip install 'hetero[ray]'")
    folder = tempfile.mkdtemp(prefix="hr", dir="/tmp")  # sockets in it have long names already
    paths = os.pathsep.join([str(Path(hetero.__file__).parent.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
    with environment(**ENVIRONMENT, RAY_TMPDIR=folder, PYTHONPATH=paths):
        import ray
        from ray.cluster_utils import Cluster

        assert not ray.is_initialized()
        cluster = Cluster()
        options = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
        try:
            try:
                cluster.add_node(**options, _system_config=SYSTEM)
                cluster.others = [
                    cluster.add_node(**options, resources={f"place{number}": 1}) for number in range(1, nodes)
                ]
                ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.CRITICAL)
            except (OSError, RuntimeError, ConnectionError) as error:
                pytest.skip(f"no Ray cluster can be started here: {error}")
            yield cluster
        finally:
            gc.collect()
            ray.shutdown()
            cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


X = np.linspace(-2, 2, 6, dtype=np.float32)


def chain(core: hetero.Core, size: int | str = "n") -> hetero.Model:
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="first"),
        helper.make_node("Neg", ["h"], ["g"], name="second"),
        helper.make_node("Exp", ["g"], ["y"], name="third"),
    ]
    return core.read_model(make_model(nodes, inputs={"x": [size]}))


def identity(name: str = "identity") -> bytes:
    port = [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n"]) for value in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"], name="it")], name, port[:1], port[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def fragile(core: hetero.Core, **config: object) -> hetero.CompiledModel:
    return core.compile_model(core.read_model(identity()), "RAY.0", {"RAY_DEVICE": "FRAGILE", **config})
