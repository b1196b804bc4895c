"""Real models over every kind of device list, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import hetero
from model_zoo import LIGHT_MODELS
from real_models import FETCHED, image, molecule, speech
from sessions import onnxruntime_session

# One of the models declares the shape of what it gave before its export.
pytestmark = pytest.mark.filterwarnings("ignore:.*is declared:RuntimeWarning")

MODELS = (*LIGHT_MODELS, "minilm", *FETCHED)
Load = Callable[[str], tuple[onnx.ModelProto, dict[str, np.ndarray]]]


@pytest.fixture(scope="module")
def expected(real_model: Load) -> Callable[[str], dict[str, np.ndarray]]:
    cache: dict[str, dict[str, np.ndarray]] = {}

    def of(name: str) -> dict[str, np.ndarray]:
        if name not in cache:
            model, inputs = real_model(name)
            cache[name] = run_onnxruntime(model, inputs)
        return cache[name]

    return of


def run_onnxruntime(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime_session(model)
    return dict(zip([port.name for port in session.get_outputs()], session.run(None, dict(inputs)), strict=True))


def assert_agrees(found: Mapping[str, Any], expected: Mapping[str, np.ndarray]) -> None:
    assert list(found.keys()) == list(expected)
    for name, wanted in expected.items():
        assert found[name].dtype == wanted.dtype
        assert found[name].shape == wanted.shape
        assert np.abs(found[name] - wanted).max() <= 1e-4 * np.abs(wanted).max(), name


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_not_degenerate(name: str, expected: Callable[[str], dict[str, np.ndarray]]) -> None:
    outputs = [array for array in expected(name).values() if array.dtype == np.float32]
    main = max(outputs, key=lambda array: array.size).astype(np.float64).ravel()
    assert np.isfinite(main).all()
    assert main.std() > 1e-5
    assert len(np.unique(main)) > min(100, main.size // 2)
    if name in LIGHT_MODELS:
        assert main.max() < 0.9  # a softmax over 1000 classes that has not saturated


@pytest.mark.spread(2)
@pytest.mark.filterwarnings("ignore:FPGA may exceed its limit")  # sizes are open
@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU,TEMPLATE", "HETERO:FPGA,CPU"])
@pytest.mark.parametrize("name", MODELS)
def test_device_lists(
    core: hetero.Core, real_model: Load, expected: Callable[[str], dict[str, np.ndarray]], name: str, device: str
) -> None:
    model, inputs = real_model(name)
    compiled = core.compile_model(core.read_model(model), device)
    assert_agrees(compiled(inputs), expected(name))
    if device == "HETERO:CPU,TEMPLATE":
        assert compiled.get_property("EXECUTION_DEVICES") == ("CPU",)  # it takes the whole of these models


@pytest.mark.parametrize("name", MODELS)
def test_any_number_of_threads_gives_the_same_bits(core: hetero.Core, real_model: Load, name: str) -> None:
    proto, inputs = real_model(name)
    model = core.read_model(proto)
    one, *others = (
        core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": threads})(inputs) for threads in (1, 2, 3, 0)
    )
    for other in others:
        assert all(map(np.array_equal, one.values(), other.values()))


@pytest.mark.parametrize("name", MODELS)
def test_every_third_node_elsewhere(
    core: hetero.Core, real_model: Load, expected: Callable[[str], dict[str, np.ndarray]], name: str
) -> None:
    proto, inputs = real_model(name)
    model = core.read_model(proto)
    affinity = {model.nodes[i].key: "FPGA_LIKE" if i % 3 == 0 else "CPU" for i in range(model.num_nodes)}
    core.register_plugin("FPGA_LIKE", "hetero.devices.cpu:create_plugin")
    compiled = core.compile_model(model.with_affinity(affinity), "HETERO:CPU,FPGA_LIKE")
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") > model.num_nodes // 5
    assert_agrees(compiled(inputs), expected(name))


@pytest.mark.parametrize("name", ["light_squeezenet", "minilm"])
def test_every_third_node_on_the_reference(
    core: hetero.Core, real_model: Load, expected: Callable[[str], dict[str, np.ndarray]], name: str
) -> None:
    proto, inputs = real_model(name)
    model = core.read_model(proto)
    pins = {model.key_of(i): "TEMPLATE" for i in range(0, model.num_nodes, 3)}
    compiled = core.compile_model(model, "HETERO:CPU,TEMPLATE", pins=pins)
    assert_agrees(compiled(inputs), expected(name))


def test_one_request_takes_many_shapes(core: hetero.Core, real_model: Load) -> None:
    proto, _ = real_model("minilm")
    compiled = core.compile_model(core.read_model(proto), "HETERO:CPU,TEMPLATE", pins={".*Softmax": "TEMPLATE"})
    request = compiled.create_infer_request()
    for batch, length in ((1, 5), (3, 9), (1, 5), (2, 1)):
        tokens = np.random.default_rng(batch).integers(1000, 20000, (batch, length))
        inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
        assert_agrees(request.infer(inputs), run_onnxruntime(proto, inputs))


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("minimol", [molecule(7), molecule(12, graphs=3), molecule(7)]),
        ("silero_vad", [speech(1), speech(5)]),
        ("PP-OCRv6_rec_small", [image("x", 2, 3, 48, 40), image("x", 1, 3, 48, 104)]),
        ("PP-OCRv6_det_small", [image("x", 1, 3, 64, 96), image("x", 2, 3, 96, 32)]),
    ],
    ids=["minimol", "silero_vad", "rec", "det"],
)
def test_other_sizes(core: hetero.Core, real_model: Load, name: str, inputs: list[dict[str, np.ndarray]]) -> None:
    proto, _ = real_model(name)
    request = core.compile_model(core.read_model(proto), "CPU").create_infer_request()
    for given in inputs:
        assert_agrees(request.infer(given), run_onnxruntime(proto, given))
