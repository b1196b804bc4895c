"""RAY over two nodes on this machine: the same results, what passes where, what is told, and the contract suite."""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hetero
from hetero.devices.ray import cluster as connection
from hetero.devices.ray.actor import Actor, Place, Pool
from hetero.plugin import Plugin
from hetero.registry import Registry
from hetero.testing import PluginContract
from model_zoo import light, make_model
from ray_cases import X, chain, fragile, ray_cluster
from sessions import onnxruntime_session
from worker_cases import lives, until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(2) as found:
        yield found


@pytest.fixture(scope="module")
def shared(cluster: Any) -> hetero.Core:
    """For models that leave nothing behind: its actors are used again."""
    core = hetero.Core()
    core.register_plugin("FRAGILE", "worker_plugins:create_plugin")
    return core


def second_half(proto: onnx.ModelProto) -> list[str]:
    keys = hetero.Core().read_model(proto).keys
    return list(keys[len(keys) // 2 :])


@pytest.mark.parametrize(
    "device", ["RAY", "RAY.1", "RAY.place1", "HETERO:RAY.0,RAY.1", "HETERO:RAY.1,CPU", "MULTI:RAY.0,RAY.1"]
)
def test_results_are_those_of_onnxruntime(shared: hetero.Core, device: str) -> None:
    proto, feed = light("light_squeezenet")
    last = device.rpartition(",")[2]
    pins = dict.fromkeys(second_half(proto), last) if device.startswith("HETERO") else None
    compiled = shared.compile_model(shared.read_model(proto), device, pins=pins)
    session = onnxruntime_session(proto)
    expected = session.run(None, feed)
    for found, wanted in zip(compiled(feed).arrays(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        found[...] = 0  # results are the caller's
    if pins:
        assert set(compiled.get_property("EXECUTION_DEVICES")) == set(device.partition(":")[2].split(","))


def test_each_stage_is_on_its_node(shared: hetero.Core, cluster: Any) -> None:
    compiled = shared.compile_model(
        chain(shared), "HETERO:RAY.0,RAY.1", pins={"first": "RAY.0", "second": "RAY.1", "third": "RAY.1"}
    )
    nodes = [part.node for part in compiled.submodels]  # type: ignore[attr-defined]
    assert nodes == [cluster.head_node.node_id, cluster.others[0].node_id]
    assert len({part.process for part in compiled.submodels}) == 2  # type: ignore[attr-defined]
    (place,) = [shared.compile_model(chain(shared), "RAY.place1").node]  # type: ignore[attr-defined]
    assert place == nodes[1]


@pytest.mark.parametrize("size", [6, 300_000])
@pytest.mark.parametrize("config", [{}, {"PERF_COUNT": True}])
def test_a_value_between_two_nodes_does_not_come_here(
    shared: hetero.Core, monkeypatch: pytest.MonkeyPatch, size: int, config: dict[str, Any]
) -> None:
    import ray

    compiled = shared.compile_model(
        chain(shared), "HETERO:RAY.0,RAY.1", config, pins={"first": "RAY.0", "second": "RAY.1", "third": "RAY.0"}
    )
    x = np.linspace(-2, 2, size, dtype=np.float32)
    arrays = []
    get = ray.get

    def counted(references: Any, **options: Any) -> Any:
        found = get(references, **options)
        arrays.extend(
            value for value in (found if isinstance(found, list) else [found]) if isinstance(value, np.ndarray)
        )
        return found

    monkeypatch.setattr(ray, "get", counted)
    request = compiled.create_infer_request()
    np.testing.assert_allclose(request.infer(x)[0], np.exp(-np.maximum(x, 0)), rtol=1e-6)
    assert len(arrays) == 1  # the result
    if config:
        assert [row.subgraph for row in request.profiling_info] == [1, 2, 3]
        assert [transfer.nbytes for transfer in request.profiling_info.transfers] == [x.nbytes, x.nbytes]


def test_a_value_that_others_read_comes_here(shared: hetero.Core) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["h"], name="first"),
        helper.make_node("Neg", ["h"], ["y"], name="second"),
        helper.make_node("Exp", ["h"], ["z"], name="third"),
    ]
    model = shared.read_model(make_model(nodes, inputs={"x": ["n"]}, outputs=("h", "y", "z")))
    pins = {"first": "RAY.0", "second": "RAY.1", "third": "CPU"}
    outputs = shared.compile_model(model, "HETERO:RAY.0,RAY.1,CPU", pins=pins)(X)
    np.testing.assert_array_equal(outputs["h"], np.maximum(X, 0))
    np.testing.assert_array_equal(outputs["y"], -np.maximum(X, 0))
    np.testing.assert_allclose(outputs["z"], np.exp(np.maximum(X, 0)), rtol=1e-6)


def test_weights_and_all_sizes_pass(shared: hetero.Core) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], inputs={"x": ["n", 64]}, weights={"w": weight})
    there = shared.compile_model(shared.read_model(model), "RAY.1")
    here = shared.compile_model(shared.read_model(model), "CPU")
    for rows in (1, 0, 3000, 2):
        x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)
        np.testing.assert_array_equal(there(x)[0], here(x)[0])


def test_strings_and_halves_pass(shared: hetero.Core) -> None:
    import ml_dtypes

    for dtype, array in (
        (TensorProto.STRING, np.array(["a", "größer"], object)),
        (TensorProto.BFLOAT16, np.arange(70_000).astype(ml_dtypes.bfloat16)),
        (TensorProto.FLOAT16, np.arange(3).astype(np.float16)),
    ):
        ports = [helper.make_tensor_value_info(name, dtype, ["n"]) for name in ("x", "y")]
        graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "one", ports[:1], ports[1:])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        compiled = shared.compile_model(shared.read_model(proto), "RAY.0", {"RAY_DEVICE": "TEMPLATE"})
        found = compiled(array)[0]
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_another_device_may_run_there(shared: hetero.Core) -> None:
    config = {"RAY_DEVICE": "ORT", "RAY_DEVICE_PROPERTIES": {"INFERENCE_NUM_THREADS": 1}, "PERF_COUNT": True}
    request = shared.compile_model(chain(shared), "RAY.1", config).create_infer_request()
    np.testing.assert_allclose(request.infer(X)[0], np.exp(-np.maximum(X, 0)), rtol=1e-6)
    assert {row.node for row in request.profiling_info} == {"first", "second", "third"}
    support = shared.query_model(chain(shared), "RAY.0", {"RAY_DEVICE": "FPGA"})
    assert set(support.reasons) == {"second", "third"}
    assert "FPGA" in support.reasons["third"]["RAY.0"]
    for config, says in (
        ({"RAY_DEVICE": "RAY.1"}, "expected a device other than RAY"),
        ({"RAY_DEVICE_PROPERTIES": {"NUM_STREAM": 1}}, "did you mean NUM_STREAMS"),
        ({"RAY_RESOURCES": {"GPU": -1}}, "RAY_RESOURCES"),
    ):
        with pytest.raises(hetero.PropertyError, match=says):
            shared.compile_model(chain(shared), "RAY.0", config)


def test_a_device_that_only_the_nodes_have_is_asked_there(shared: hetero.Core, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = shared._registry.plugin("ORT")
    refuse = lambda id_: (_ for _ in ()).throw(hetero.DeviceUnavailable("not here"))  # noqa: E731
    monkeypatch.setattr(plugin, "check_device_id", refuse)
    config = {"RAY_DEVICE": "ORT.CPU"}
    assert set(shared.query_model(chain(shared), "RAY.1", config)) == {"first", "second", "third"}
    found = shared.compile_model(chain(shared), "RAY.1", config)(X)[0]
    np.testing.assert_allclose(found, np.exp(-np.maximum(X, 0)), rtol=1e-6)


def test_custom_operators_stay_here(shared: hetero.Core) -> None:
    core = hetero.Core()
    core.add_extension(hetero.CustomOp("Twice", "my.domain", function=lambda x: 2 * x))
    nodes = [helper.make_node("Relu", ["x"], ["h"], name="first")]
    nodes.append(helper.make_node("Twice", ["h"], ["y"], name="own", domain="my.domain"))
    proto = make_model(nodes, inputs={"x": ["n"]})
    proto.opset_import.append(helper.make_opsetid("my.domain", 1))
    model = core.read_model(proto)
    found = core.query_model(model, "HETERO:RAY.0,CPU")
    assert dict(found) == {"first": "RAY.0", "own": "CPU"}
    assert "exists only in this process" in found.reasons["own"]["RAY.0"]
    np.testing.assert_array_equal(core.compile_model(model, "HETERO:RAY.0,CPU")(X)[0], 2 * np.maximum(X, 0))


def test_log_lines_warnings_and_errors_come_here(shared: hetero.Core, caplog: pytest.LogCaptureFixture) -> None:
    shared.compile_model(chain(shared), "RAY.1", {"LOG_LEVEL": "INFO"})
    lines = [record.getMessage() for record in caplog.records if record.name == "hetero.RAY.1"]
    assert any("CPU: compiled in" in line and "process" in line for line in lines)
    config = {"RAY_DEVICE": "HETERO:FPGA,NOTHING_HERE,CPU"}
    with pytest.raises(hetero.DeviceUnavailable, match="NOTHING_HERE"):
        shared.compile_model(chain(shared), "RAY.1", config)

    compiled = fragile(shared)
    with pytest.raises(hetero.InferenceError, match=r"RAY\.0: .*no such luck") as caught:
        compiled(np.array([-103], np.float32))
    assert any("process" in note and "node" in note for note in caught.value.__notes__)
    assert any("'it'" in note for note in caught.value.__notes__)
    np.testing.assert_array_equal(compiled(X)[0], X)


def test_exports_and_contexts_are_refused(shared: hetero.Core) -> None:
    for device in ("RAY.0", "HETERO:RAY.0,CPU"):
        compiled = shared.compile_model(chain(shared), device)
        with pytest.raises(hetero.NotSupported, match="compile for CPU and export the result"):
            compiled.export_model(io.BytesIO())
    with pytest.raises(hetero.NotSupported, match="no remote contexts"):
        shared.get_default_context("RAY")
    with pytest.raises(hetero.PropertyError, match="ISOLATION"):
        shared.compile_model(chain(shared), "RAY.0", {"ISOLATION": "PROCESS"})


def test_many_requests_in_flight_come_in_order(shared: hetero.Core) -> None:
    compiled = shared.compile_model(
        chain(shared), "HETERO:RAY.0,RAY.1", pins={"first": "RAY.0", "second": "RAY.1", "third": "RAY.1"}
    )
    assert compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") >= 2
    batches = [np.full(100_000, number, np.float32) for number in range(40)]
    for number, outputs in enumerate(compiled.map(batches, in_flight=8)):
        np.testing.assert_allclose(outputs[0], np.exp(-batches[number]), rtol=1e-6)


def test_a_pipeline_has_a_stage_on_each_node(shared: hetero.Core) -> None:
    proto, feed = light("light_squeezenet")
    config = {"MODEL_DISTRIBUTION_POLICY": "PIPELINE_PARALLEL"}
    compiled = shared.compile_model(shared.read_model(proto), "HETERO:RAY.0,RAY.1", config)
    assert [part.device for part in compiled.submodels] == ["RAY.0", "RAY.1"]  # type: ignore[attr-defined]
    session = onnxruntime_session(proto)
    (expected,) = session.run(None, feed)
    for outputs in compiled.map([feed] * 6):
        np.testing.assert_allclose(outputs[0], expected, rtol=1e-4, atol=1e-5)


def test_a_program_that_ends_the_connection_is_told(cluster: Any) -> None:
    import ray

    core = hetero.Core()
    compiled = core.compile_model(chain(core), "RAY.1")
    ray.shutdown()
    with pytest.raises(hetero.InferenceError, match="was closed: compile the model again"):
        compiled(X)
    assert not ray.is_initialized()  # Ray would connect by itself where it can
    again = core.compile_model(chain(core), "RAY.1", {"RAY_ADDRESS": cluster.address})
    np.testing.assert_allclose(again(X)[0], np.exp(-np.maximum(X, 0)), rtol=1e-6)


def test_an_inference_can_be_waited_for_and_cancelled(shared: hetero.Core) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "s"], ["s_out"]),
            helper.make_node("Identity", ["c"], ["c_out"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("c_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s_out", TensorProto.FLOAT, [1]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body, name="loop")],
        "loops",
        [
            helper.make_tensor_value_info("trips", TensorProto.INT64, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = shared.compile_model(shared.read_model(proto), "RAY.1")
    requests = [compiled.create_infer_request() for _ in range(3)]  # two wait for their turn there
    feed = {"trips": np.int64(1 << 60), "x": np.ones(1, np.float32)}
    for request in requests:
        request.start_async(feed)
    assert not requests[0].wait(timeout_ms=300)
    for request in requests:
        request.cancel()
    for request in requests:
        with pytest.raises(hetero.errors.Cancelled):
            request.wait(timeout_ms=120_000)
    feed["trips"] = np.array(3, np.int64)
    assert requests[0].infer(feed)[0] == [8]


def waiting_in(core: hetero.Core) -> set[int]:
    """Processes of actors without a model."""
    spares = list(core._registry.plugin("RAY")._pool._idle.values())  # type: ignore[attr-defined]
    assert until(lambda: any(spares))
    assert all(len(spare) <= 2 for spare in spares)
    return {actor.process for spare in spares for actor in spare if actor.process}


def test_actors_end_with_the_models_and_the_core(cluster: Any) -> None:
    core = hetero.Core()
    compiled = core.compile_model(chain(core), "HETERO:RAY.0,RAY.1", pins={"second": "RAY.1"})
    request = compiled.create_infer_request()
    processes = {part.process for part in compiled.submodels}  # type: ignore[attr-defined]
    assert len(processes) == 3
    request.infer(X)
    del compiled
    request.infer(X)  # a request keeps them
    del request
    gc.collect()
    again = core.compile_model(chain(core), "RAY.0")
    again(X)
    del again
    processes |= waiting_in(core)
    del core
    gc.collect()
    assert until(lambda: not any(map(lives, processes))), processes


def test_ids_are_nodes_and_resources(shared: hetero.Core, cluster: Any) -> None:
    (info,) = [entry for entry in shared.devices() if entry.name == "RAY"]
    assert info.ids == ("0", "1", "place1")
    assert "2 nodes" in info.description
    assert {"RAY.0", "RAY.1", "RAY.place1"} <= set(shared.available_devices)
    for device in ("RAY.2", "RAY.place2"):
        with pytest.raises(hetero.DeviceUnavailable, match="ids here: 0, 1, place1"):
            shared.compile_model(chain(shared), device)
    with pytest.warns(RuntimeWarning, match=r"skipping RAY\.7"):
        shared.compile_model(chain(shared), "HETERO:RAY.7,CPU")
    with pytest.raises(hetero.PropertyError, match="cannot connect to"):
        shared.compile_model(chain(shared), "RAY", {"RAY_ADDRESS": "192.0.2.77:6379"})


def test_a_fork_is_told(shared: hetero.Core) -> None:
    compiled = shared.compile_model(chain(shared), "RAY.0")
    compiled(X)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for action in (lambda: compiled(X), lambda: shared.compile_model(chain(shared), "RAY.0")):
                try:
                    action()
                    os.write(write, b"nothing\n")
                except hetero.HeteroError as error:
                    os.write(write, f"{type(error).__name__}: {error}\n".encode())
        finally:  # whatever it raises: the child must not go on with the tests of its parent
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    said = os.read(read, 10_000).decode().splitlines()
    os.close(read)
    assert len(said) == 2
    assert all("forked" in line for line in said), said
    np.testing.assert_allclose(compiled(X)[0], np.exp(-np.maximum(X, 0)), rtol=1e-6)


def test_a_plan_by_cost_keeps_small_work_here_and_sends_large_work_there(shared: hetero.Core, tmp_path: Path) -> None:
    small = shared.plan(chain(shared, 6), "HETERO:RAY.0,CPU", {"ASSIGNMENT": "COST"})
    assert set(small.affinity.values()) == {"CPU"}
    # A device here that is a thousand times slower than that on the node.
    path = tmp_path / "snail.toml"
    path.write_text(
        'name = "SNAIL"\nruns_on = "CPU"\n[ops]\nMatMul = {}\n[cost]\nflops_per_s = 1e8\nbytes_per_s = 1e7\n'
    )
    core = hetero.Core()
    core.register_plugin("SNAIL", path)
    weight = np.ones((1000, 1000), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="large")]
    model = core.read_model(make_model(nodes, inputs={"x": [1000, 1000]}, weights={"w": weight}))
    large = core.plan(model, "HETERO:SNAIL,RAY.0", {"ASSIGNMENT": "COST"})
    assert large.affinity == {"large": "RAY.0"}


def test_hosts_that_have_another_hetero_or_none(cluster: Any, tmp_path: Path) -> None:
    """As a node whose environment is another: Ray gives the actors that of the property."""
    other, none = tmp_path / "other" / "hetero", tmp_path / "none"
    other.mkdir(parents=True)
    none.mkdir()
    (other / "__init__.py").write_text('__version__ = "0.0.7"\n')
    (none / "hetero.py").write_text("raise ModuleNotFoundError(\"No module named 'hetero'\")\n")
    core = hetero.Core()
    for folder, kind, says in (
        (other.parent, hetero.errors.VersionMismatch, r"RAY\.0: node .* has hetero 0\.0\.7, but this process has 0\.1"),
        (none, hetero.DeviceUnavailable, r"RAY\.0: node .* does not have hetero .*pip install 'hetero\[ray\]'"),
    ):
        config = {"RAY_RUNTIME_ENV": {"env_vars": {"PYTHONPATH": str(folder)}}, "RAY_STANDBY": False}
        with pytest.raises(kind, match=says):
            core.compile_model(chain(core), "RAY.0", config)
        with pytest.warns(RuntimeWarning, match="subgraph 1 moves to CPU, because RAY.0 failed"):
            compiled = core.compile_model(chain(core), "HETERO:RAY.0,CPU", config)
        np.testing.assert_allclose(compiled(X)[0], np.exp(-np.maximum(X, 0)), rtol=1e-6)
    _check_python_and_numpy(cluster)


def _check_python_and_numpy(cluster: Any) -> None:
    place = Place("RAY.0", node=cluster.head_node.node_id)
    actor = Actor(place)
    actor.greet()
    import ray

    versions = ray.get(actor._greeting)
    assert versions["hetero"] == hetero.__version__
    for name, value, says in (("python", "3.1", "Python 3.1"), ("numpy", "0.9", "NumPy 0")):
        actor._greeting = ray.put({**versions, name: value})
        with pytest.raises(hetero.errors.VersionMismatch, match=says):
            actor.greet()
    pool = Pool(connection.connect())
    with pytest.raises(hetero.DeviceUnavailable, match=r"Ray did not start an actor within 1 s \(.*GPU: 5"):
        pool.actor(Place("RAY", reserved=(("GPU", 5),)), 1.0)
    actor.kill()


@pytest.fixture(scope="module")
def registry(cluster: Any) -> Registry:
    """One for all tests, which so share the actors that wait for a model."""
    return Registry()


class TestRay(PluginContract):
    @pytest.fixture
    def plugin(self, registry: Registry) -> Plugin:
        return registry.plugin("RAY")

    def valid_values(self, plugin: Plugin, name: str) -> Sequence[Any]:
        # A place of its own each, where processes have to be started.
        return ("", "0", "1") if name == "DEVICE_ID" else super().valid_values(plugin, name)
