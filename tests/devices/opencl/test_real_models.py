"""Real models on OPENCL, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import hetero
from model_zoo import light
from opencl import as_gpu, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

Load = Callable[[str], tuple[onnx.ModelProto, dict[str, np.ndarray]]]
DEEP = ("light_inception_v1", "light_inception_v2", "light_resnet50", "light_shufflenet", "light_densenet121")
LARGE = ("light_bvlc_alexnet", "light_zfnet512", "light_vgg19")


def assert_agrees(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for name, wanted in expected.items():
        assert found[name].dtype == wanted.dtype
        assert found[name].shape == wanted.shape
        assert np.abs(found[name] - wanted).max() <= 1e-4 * np.abs(wanted).max(), name


def test_squeezenet(core: hetero.Core, real_model: Load) -> None:
    proto, inputs = real_model("light_squeezenet")
    model = core.read_model(proto)
    expected = core.compile_model(model, "ORT")(inputs)
    compiled = core.compile_model(model, "OPENCL")
    for outputs in (compiled(inputs), compiled(inputs)):
        assert_agrees(outputs, expected)


@pytest.mark.parametrize("like_gpu", [False, True], ids=["processor", "gpu"])
def test_minilm_takes_any_sizes(core: hetero.Core, real_model: Load, like_gpu: bool) -> None:
    proto, _ = real_model("minilm")
    model = core.read_model(proto)
    reference = core.compile_model(model, "ORT")
    with as_gpu(like_gpu):
        request = core.compile_model(model, "OPENCL").create_infer_request()
        for batch, length in ((2, 12), (1, 5), (2, 12), (3, 1)):
            tokens = np.random.default_rng(length).integers(1000, 20000, (batch, length))
            mask = np.ones_like(tokens)
            mask[-1, length // 2 + 1 :] = 0
            inputs = {"input_ids": tokens, "attention_mask": mask}
            assert_agrees(request.infer(inputs), reference(inputs))


@pytest.mark.parametrize("device", ["HETERO:OPENCL,CPU", "HETERO:CPU,OPENCL"])
def test_parts_elsewhere(core: hetero.Core, real_model: Load, device: str) -> None:
    proto, inputs = real_model("minilm")
    model = core.read_model(proto)
    pins = {model.key_of(node): device.rpartition(",")[2] for node in range(0, model.num_nodes, 7)}
    compiled = core.compile_model(model, device, pins=pins)
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") > 3
    expected = core.compile_model(model, "ORT")(inputs)
    assert_agrees(compiled(inputs), expected)
    assert_agrees(compiled(inputs), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*DEEP, LARGE[0], *(pytest.param(n, marks=pytest.mark.exhaustive) for n in LARGE[1:])])
def test_light_models(core: hetero.Core, name: str) -> None:
    proto, inputs = light(name)
    model = core.read_model(proto)
    expected = core.compile_model(model, "ORT")(inputs)
    assert_agrees(core.compile_model(model, "OPENCL")(inputs), expected)
