"""ORT.CUDA on a real GPU: values stay there, and come from and go to PyTorch. Skipped without one.

Run it where onnxruntime-gpu and PyTorch are installed: ``pytest tests/devices/ort/test_on_gpu.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hetero
from cached_decoder import cached_decoder, empty_cache, host_loop
from hetero.plugin import Plugin
from hetero.registry import Registry
from hetero.testing import PluginContract
from model_zoo import light

onnxruntime = pytest.importorskip("onnxruntime")
if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
    pytest.skip("this onnxruntime has no CUDA", allow_module_level=True)
torch: Any = pytest.importorskip("torch")  # its CUDA libraries are those that onnxruntime finds
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

EXACT = {"ORT_PROVIDER_OPTIONS": {"use_tf32": 0}}
node = helper.make_node


class TestCuda(PluginContract):
    config: Mapping[str, Any] = {"DEVICE_ID": "CUDA", **EXACT}

    @pytest.fixture
    def plugin(self) -> Plugin:
        return Registry().plugin("ORT")


def products(size: int = 256, count: int = 6, rows: Any = "n") -> onnx.ModelProto:
    """A chain of products and Relu: x [n, size] -> y, with the intermediate result v2 as an output."""
    nodes, weights = [], []
    for at in range(count):
        array = np.random.default_rng(at).standard_normal((size, size), np.float32) / np.float32(size**0.5)
        weights.append(numpy_helper.from_array(array, f"w{at}"))
        nodes.append(node("MatMul", [f"r{at}" if at else "x", f"w{at}"], [f"v{at}"], f"m{at}"))
        nodes.append(node("Relu", [f"v{at}"], [f"r{at + 1}" if at + 1 < count else "y"], f"n{at}"))
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, size]) for name in ("x", "y", "v2")]
    graph = helper.make_graph(nodes, "products", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def filled(rows: int, size: int = 256, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, size), np.float32)


def assert_close(found: Any, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


@pytest.fixture(scope="module")
def compiled() -> hetero.CompiledModel:
    core = hetero.Core()
    return core.compile_model(core.read_model(products()), "ORT.CUDA", EXACT)


@pytest.fixture(scope="module")
def expected() -> Any:
    core = hetero.Core()
    return core.compile_model(core.read_model(products()), "CPU")


def test_facts(core: hetero.Core) -> None:
    assert "CUDA" in core.get_property("ORT", "AVAILABLE_DEVICES")
    plugin = Registry().plugin("ORT")
    assert (plugin.available_bytes("ORT.CUDA") or 0) > 1 << 30
    assert plugin.speed("ORT.CUDA").flops_per_s > 1e12
    plan = core.plan(core.read_model(products()), "HETERO:ORT.CUDA,CPU")
    assert {subgraph.device for subgraph in plan.subgraphs} == {"ORT.CUDA"}


@pytest.mark.parametrize("rows", [1, 3, 0, 513])
def test_arrays(compiled: hetero.CompiledModel, expected: Any, rows: int) -> None:
    wanted = expected(filled(rows))
    for _ in range(3):
        found = compiled(filled(rows))
        for name in ("y", "v2"):
            assert_close(found[name], wanted[name])


def test_tensors_of_torch_stay_there(compiled: hetero.CompiledModel, expected: Any) -> None:
    x = torch.from_numpy(filled(64)).cuda()
    wanted = expected(x.cpu().numpy())
    outputs = compiled(x, out=hetero.ON_DEVICE)
    y = torch.from_dlpack(outputs["y"])
    assert y.is_cuda
    assert_close(y.cpu().numpy(), wanted["y"])
    again = compiled(outputs["y"], out=hetero.ON_DEVICE)
    assert_close(again["y"].numpy(), expected(wanted["y"])["y"])
    assert_close(y.cpu().numpy(), wanted["y"])  # not overwritten


def test_work_of_the_producer_is_waited_for(compiled: hetero.CompiledModel, expected: Any) -> None:
    """The tensor is computed on a stream of its own, which is busy for a while."""
    stream, busy = torch.cuda.Stream(), torch.ones((8192, 8192), device="cuda")
    source = torch.from_numpy(filled(64)).cuda()
    torch.cuda.synchronize()
    for turn in range(5):
        with torch.cuda.stream(stream):
            x = torch.zeros_like(source)
            for _ in range(20):
                busy = busy @ busy
                busy /= busy.abs().max()
            x += source * (turn + 1)
            outputs = compiled(x)
        assert_close(outputs["y"], expected(filled(64) * np.float32(turn + 1))["y"])


def test_consumers_on_another_stream_see_the_result(compiled: hetero.CompiledModel, expected: Any) -> None:
    stream = torch.cuda.Stream()
    x = filled(4096)
    wanted = expected(x)["y"]
    for _ in range(5):
        outputs = compiled(x, out=hetero.ON_DEVICE)
        with torch.cuda.stream(stream):
            twice = torch.from_dlpack(outputs["y"]) * 2
        stream.synchronize()
        assert_close(twice.cpu().numpy(), wanted * 2)


def test_memory_is_not_used_again_while_a_consumer_reads_it(compiled: hetero.CompiledModel, expected: Any) -> None:
    """The consumer drops its tensor while its stream is still busy."""
    stream, busy = torch.cuda.Stream(), torch.ones((8192, 8192), device="cuda")
    x, other = filled(4096), filled(4096, seed=5)
    wanted = expected(x)["y"]
    for _ in range(5):
        with torch.cuda.stream(stream):
            outputs = compiled(x, out=hetero.ON_DEVICE)
            for _ in range(20):
                busy = busy @ busy
                busy /= busy.abs().max()
            y = torch.from_dlpack(outputs["y"])
            twice = y * 2
        del y, outputs
        compiled(other)
        compiled(other)
        stream.synchronize()
        assert_close(twice.cpu().numpy(), wanted * 2)


def test_results_in_given_tensors(compiled: hetero.CompiledModel, expected: Any) -> None:
    x = torch.from_numpy(filled(32)).cuda()
    y = torch.zeros((32, 256), device="cuda")
    outputs = compiled(x, out={"y": y})
    assert outputs["y"] is y
    wanted = expected(filled(32))
    assert_close(y.cpu().numpy(), wanted["y"])
    assert_close(outputs["v2"], wanted["v2"])
    host = np.zeros((32, 256), np.float32)
    assert compiled(x, out={"y": host})["y"] is host
    assert_close(host, wanted["y"])
    for wrong, message in (
        (torch.zeros((31, 256), device="cuda"), r"\[32, 256\]"),
        (torch.zeros((32, 256), device="cuda", dtype=torch.float64), "float32"),
        (x, "overlaps an input"),
    ):
        with pytest.raises(hetero.InferenceError, match=message):
            compiled(x, out={"y": wrong})
    assert_close(compiled(x)["y"], wanted["y"])


def test_wrong_tensors(compiled: hetero.CompiledModel) -> None:
    wide = torch.zeros((32, 512), device="cuda")
    for wrong in (wide[:, ::2], wide[:, :256], torch.zeros((256, 32), device="cuda").T, wide, wide[:, :256].double()):
        if wrong.is_contiguous() and wrong.shape[1] == 256 and wrong.dtype == torch.float32:
            continue
        with pytest.raises(hetero.InferenceError):
            compiled(wrong)
    assert compiled(wide[:0, :256].contiguous())["y"].shape == (0, 256)


def test_the_owner_drops_its_tensor(compiled: hetero.CompiledModel, expected: Any) -> None:
    context = hetero.Core().get_default_context("ORT.CUDA")
    source = torch.from_numpy(filled(128)).cuda()
    tensor = context.adopt(source)
    del source
    junk = [torch.full((128, 256), 7.0, device="cuda") for _ in range(30)]
    assert_close(compiled(tensor)["y"], expected(filled(128))["y"])
    kept = compiled(filled(128), out=hetero.ON_DEVICE)["y"]
    y = torch.from_dlpack(kept)
    del kept, junk
    for seed in range(5):
        compiled(filled(128, seed=seed))
    assert_close(y.cpu().numpy(), expected(filled(128))["y"])


@pytest.mark.parametrize(
    ("listed", "second"), [("HETERO:ORT.CUDA,CPU", "CPU"), ("HETERO:ORT.CUDA,SECOND.CUDA.0", "SECOND.CUDA.0")]
)
def test_cuts(core: hetero.Core, expected: Any, listed: str, second: str) -> None:
    core.register_plugin("SECOND", lambda: Registry().plugin("ORT"))
    model = core.read_model(products())
    pins = {f"m{at}": second for at in (1, 3, 4)}
    config = {"DEVICE_PROPERTIES": {device: EXACT for device in listed[7:].split(",") if device != "CPU"}}
    cut = core.compile_model(model, listed, {**config, "PERF_COUNT": True}, pins=pins)
    plain = core.compile_model(model, listed, config, pins=pins)
    request = plain.create_infer_request()
    for rows in (5, 64, 5, 1):
        wanted = expected(filled(rows, seed=rows))
        for found in (request.infer(filled(rows, seed=rows)), cut(filled(rows, seed=rows))):
            for name in ("y", "v2"):
                assert_close(found[name], wanted[name])
    counted = cut.create_infer_request()
    counted.infer(filled(8))
    moves = counted.profiling_info.moves
    crossings = 7 if second == "CPU" else 0  # between subgraphs; values of one GPU stay
    assert len([move for move in moves if move.value not in ("x", "y", "v2")]) <= crossings
    assert [row.node for row in counted.profiling_info] == list(model.keys)


def test_eight_threads(compiled: hetero.CompiledModel, expected: Any) -> None:
    wanted = {seed: expected(filled(40, seed=seed))["y"] for seed in range(8)}
    failures: list[str] = []

    def work(seed: int) -> None:
        request = compiled.create_infer_request()
        x = torch.from_numpy(filled(40, seed=seed)).cuda()
        for turn in range(30):
            outputs = request.infer(x if turn % 2 else filled(40, seed=seed), out=hetero.ON_DEVICE)
            if not np.allclose(outputs["y"].numpy(), wanted[seed], 1e-4, 1e-5):
                failures.append(f"thread {seed}, turn {turn}")

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_requests_in_flight(compiled: hetero.CompiledModel, expected: Any) -> None:
    feeds = [filled(16, seed=seed) for seed in range(20)]
    for outputs, x in zip(compiled.map(feeds), feeds, strict=True):
        assert_close(outputs["y"], expected(x)["y"])


@pytest.mark.parametrize("device", ["ORT.CUDA", "HETERO:ORT.CUDA,CPU"])
def test_states(core: hetero.Core, device: str) -> None:
    """The cache of a decoder stays on the GPU; also if a layer runs on the CPU."""
    proto = cached_decoder()
    model = core.read_model(proto)
    reference = core.compile_model(model, "CPU")
    pins = None if device == "ORT.CUDA" else {key: "CPU" for key in model.keys if key.startswith("1.")}
    config = EXACT if pins is None else {"DEVICE_PROPERTIES": {"ORT.CUDA": EXACT}}
    compiled = core.compile_model(model, device, config, pins=pins)
    request = compiled.create_stateful_request()
    plain = reference.create_infer_request()
    past = empty_cache(proto)
    random = np.random.default_rng(1)
    saved: Any = None
    for step in range(20):
        ids = random.integers(0, 40, (1, 3 if step == 0 else 1))
        if step == 10:
            saved = request.snapshot_state(), dict(past)
        if step == 15:
            request.restore_state(saved[0])
            past = saved[1]
        wanted = plain.infer({"input_ids": ids, **past})
        found = request.infer({"input_ids": ids})
        np.testing.assert_allclose(found["logits"], wanted["logits"], 1e-3, 1e-4)
        past = {name: wanted[name.replace("past_key_values", "present")] for name in past}


def test_lack_of_memory(core: hetero.Core) -> None:
    free, _ = torch.cuda.mem_get_info()
    rows = free // (256 * 4) + (1 << 20)
    nodes = [node("Expand", ["x", "shape"], ["wide"]), node("ReduceSum", ["wide"], ["y"], keepdims=0)]
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 256]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, []),
    ]
    graph = helper.make_graph(nodes, "wide", ports[:2], ports[2:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    request = core.compile_model(core.read_model(proto), "ORT.CUDA").create_infer_request()
    x = np.ones((1, 256), np.float32)
    assert request.infer({"x": x, "shape": np.array([4, 256])})[0] == 1024
    with pytest.raises(hetero.InsufficientMemory) as caught:
        request.infer({"x": x, "shape": np.array([rows, 256])})
    assert caught.value.shortfall["ORT.CUDA"] > 0
    assert request.infer({"x": x, "shape": np.array([4, 256])})[0] == 1024
    with pytest.raises(hetero.InsufficientMemory):
        core.get_default_context("ORT.CUDA").create_tensor(np.float32, (rows, 256))


@pytest.mark.parametrize("name", ["light_squeezenet", "light_inception_v1", "light_resnet50"])
def test_light_models(core: hetero.Core, name: str) -> None:
    proto, inputs = light(name)
    model = core.read_model(proto)
    wanted = core.compile_model(model, "CPU")(inputs)
    for device, config, pins in (
        ("ORT.CUDA", EXACT, None),
        ("HETERO:ORT.CUDA,CPU", {"DEVICE_PROPERTIES": {"ORT.CUDA": EXACT}}, dict.fromkeys(model.keys[7::20], "CPU")),
    ):
        found = core.compile_model(model, device, config, pins=pins)(inputs)
        for output, value in wanted.items():
            assert np.abs(found[output] - value).max() <= 1e-4 * np.abs(value).max()


@pytest.mark.parametrize(("scale", "axis"), [([1], -1), ([1, 4], 1), ([3, 4], 1), ([4], -1)])
def test_layer_normalization(core: hetero.Core, scale: list[int], axis: int) -> None:
    """Where onnxruntime reads beyond the end of the scale, another device computes it."""
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4]),
        helper.make_tensor_value_info("scale", TensorProto.FLOAT, scale),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 4]),
    ]
    nodes = [node("LayerNormalization", ["x", "scale"], ["y"], axis=axis)]
    graph = helper.make_graph(nodes, "normalized", ports[:2], ports[2:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    feed = {"x": filled(6, 4).reshape(2, 3, 4), "scale": filled(1, int(np.prod(scale))).reshape(scale)}
    wanted = core.compile_model(proto, "CPU")(feed)[0]
    assert_close(core.compile_model(proto, "HETERO:ORT.CUDA,CPU")(feed)[0], wanted)
    if scale in ([3, 4], [4]):
        assert_close(core.compile_model(proto, "ORT.CUDA")(feed)[0], wanted)
    else:
        with pytest.raises(hetero.UnsupportedModel, match="beyond its end"):
            core.compile_model(proto, "ORT.CUDA")


def test_export_and_import(core: hetero.Core, compiled: hetero.CompiledModel, expected: Any, tmp_path: Any) -> None:
    path = tmp_path / "net.hetero"
    compiled.export_model(path)
    loaded = core.import_model(path)
    np.testing.assert_allclose(loaded(filled(3))["y"], expected(filled(3))["y"], 1e-2, 1e-2)  # with TF32


def test_steps_are_those_of_the_host_loop(core: hetero.Core) -> None:
    proto = cached_decoder()
    model = core.read_model(proto)
    tokens = [np.array([[3, 1, 4]]), *(np.array([[token]]) for token in range(10))]
    wanted, _ = host_loop(core.compile_model(model, "CPU"), empty_cache(proto), tokens)
    request = core.compile_model(model, "ORT.CUDA", EXACT).create_stateful_request()
    for ids, logits in zip(tokens, wanted, strict=True):
        kept = request.infer({"input_ids": ids}, out=hetero.ON_DEVICE)["logits"]
        np.testing.assert_allclose(kept.numpy(), logits, 1e-3, 1e-4)
