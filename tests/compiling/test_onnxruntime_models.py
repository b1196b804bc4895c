"""Models that onnxruntime's tools wrote, cut over devices: none fails after planning, and results are onnxruntime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import hetero
from hetero.errors import UnsupportedModel
from onnxruntime_models import MODELS, feeds, run_directly

pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    return MODELS[request.param](Path(tmp_path_factory.mktemp("model")))


def check(model: onnx.ModelProto, compiled: hetero.CompiledModel) -> None:
    inputs = feeds(model, seed=5)
    (expected,) = run_directly(model, inputs)
    distance = np.abs(compiled(inputs)["y"] - expected)
    if any("Quantize" in node.op_type for node in model.graph.node):
        # One ULP of a float32 result before a rounding moves the rounded number by one step, also within onnxruntime
        # with optimizations. Results are between -1 and 1.
        assert distance.mean() < 0.02
        assert distance.max() < 0.2
    else:
        assert distance.max() < 2e-6


@pytest.mark.spread(2)
@pytest.mark.parametrize("device", ["ORT", "HETERO:CPU,ORT", "HETERO:ORT,CPU", "HETERO:TEMPLATE,ORT"])
def test_runs(model: onnx.ModelProto, device: str) -> None:
    check(model, hetero.compile(model, device))


@pytest.mark.spread(2)
@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU,TEMPLATE"])
def test_runs_or_is_refused_while_planning(model: onnx.ModelProto, device: str) -> None:
    core = hetero.Core()
    try:
        if device != "CPU":
            core.plan(model, device)
        compiled = core.compile_model(model, device)
    except UnsupportedModel as error:
        refused = set(error.unsupported)
        proto = core.read_model(model.SerializeToString())
        assert all(proto.nodes[proto.index_of(name)].domain for name in refused)
    else:
        check(model, compiled)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (1, 2))])
def test_every_cut_has_known_types(model: onnx.ModelProto, seed: int) -> None:
    """Nodes on random devices, so that nearly every value is cut."""
    core = hetero.Core()
    read = core.read_model(model.SerializeToString())
    supported = core.query_model(read, "HETERO:CPU,ORT")
    random = np.random.default_rng(seed)
    pins = {key: "ORT" for key, device in supported.items() if device == "CPU" and random.random() < 0.5}
    compiled = core.compile_model(read, "HETERO:CPU,ORT", pins=pins)
    check(model, compiled)
    unknown = [read.value_name(value) for value in range(read.num_values) if not read.has_type(value)]
    assert not unknown
