"""Model-local functions: calls carried whole or inlined, with the same results either way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import hetero
from hetero.model.functions import FunctionLibrary, inline_calls
from hetero.model.model import Model
from hetero.model.read import read_model

LAYERS = """
<ir_version: 10, opset_import: ["": 18, "local": 1]>
g (float[3] x, bool c) => (float[3] y, float[3] z)
{
    [first] a = local.Layer <alpha: float = 0.3> (x)
    [relu] b = Relu (a)
    [second] z = local.Layer (b)
    [choice] y = If (c) <
        then_branch = t () => (float[3] p) { p = local.Layer <alpha: float = 0.7> (z) },
        else_branch = e () => (float[3] q) { q = Neg (a) }>
}
<domain: "local", opset_import: ["": 17, "local": 1]>
Layer <alpha: float = 0.5> (v) => (w)
{
    [leak] u = local.Leak <slope: float = @alpha> (v)
    half = Constant <value_float: float = 0.5> ()
    [shift] w = Add (u, half)
}
<domain: "local", opset_import: ["": 18]>
Leak <slope> (v) => (w)
{
    [lrelu] w = LeakyRelu <alpha: float = @slope> (v)
}
"""
X = np.array([-4, 0.25, 2], np.float32)


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def on_onnxruntime(proto: onnx.ModelProto, feeds: dict[str, Any]) -> Sequence[Any]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def agree(found: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(found) == len(expected)
    for result, wanted in zip(found, expected, strict=True):
        assert result.dtype == wanted.dtype
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def inlined(model: Model) -> Model:
    """All calls replaced, whatever devices say."""
    library = FunctionLibrary(model.file)
    while model.functions:
        model = inline_calls(model, range(model.num_nodes), library).model
    return model


def run(model: Model | onnx.ModelProto, device: str, feeds: dict[str, Any], **kwargs: Any) -> list[Any]:
    core = hetero.Core()
    if isinstance(model, onnx.ModelProto):
        model = core.read_model(model)
    return list(core.compile_model(model, device, **kwargs)(feeds).values())


@pytest.mark.parametrize("device", ["TEMPLATE", "HETERO:CPU,TEMPLATE", "HETERO:TEMPLATE,CPU"])
@pytest.mark.parametrize("condition", [True, False])
def test_every_device_list_gives_what_onnxruntime_gives(device: str, condition: bool) -> None:
    proto = parse(LAYERS)
    feeds = {"x": X, "c": np.array(condition)}
    agree(run(proto, device, feeds), on_onnxruntime(proto, feeds))


def test_the_inlined_model_is_an_ordinary_one() -> None:
    proto = parse(LAYERS)
    model = inlined(read_model(proto))
    onnx.checker.check_model(model.to_proto(), full_check=True)
    assert model.functions == ()
    feeds = {"x": X, "c": np.array(True)}
    agree(on_onnxruntime(model.to_proto(), feeds), on_onnxruntime(proto, feeds))
    assert model.keys == (*("first/leak/lrelu", "first/shift", "relu", "second/leak/lrelu", "second/shift", "choice"),)


def test_a_call_stays_whole_where_the_first_device_takes_it() -> None:
    core = hetero.Core()
    model = core.read_model(parse(LAYERS))
    assert set(core.plan(model, "HETERO:TEMPLATE,CPU").affinity) == {"first", "relu", "second", "choice"}
    assert core.plan(model, "TEMPLATE").bound[0].num_nodes == 4


def test_a_call_is_inlined_where_a_better_device_takes_its_nodes() -> None:
    core = hetero.Core()
    model = core.read_model(parse(LAYERS))
    plan = core.plan(model, "HETERO:CPU,TEMPLATE")
    assert plan.affinity == {
        "first/leak/lrelu": "CPU",
        "first/shift": "CPU",
        "relu": "CPU",
        "second/leak/lrelu": "CPU",
        "second/shift": "CPU",
        "choice": "TEMPLATE",
    }
    assert dict(core.query_model(model, "CPU")) == {"first": "CPU", "relu": "CPU", "second": "CPU"}
    assert core.query_model(model, "CPU").reasons == {"choice": {"CPU": "no kernel for If"}}
