"""OPENVINO: operators and attributes that it computes differently are rejected, and their neighbors are not.

Needs openvino, as test_plugin.py does.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import numpy as np
import onnx.parser
import pytest
from numpy.typing import NDArray

import hetero
from hetero.devices.openvino.differences import _QUANTIZED, _RULES

needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason="openvino is not installed: pip install 'hetero[openvino]'"
)
HEAD = '<ir_version: 10, opset_import: ["": {}, "com.microsoft": 1, "ai.onnx.ml": 3]> g '
LSTM = "(float[5,2,3] x, float[1,16,3] w, float[1,16,4] r, float[1,12] p) => (float[] y) { "
ATTENTION = "(float[2,3,8] x, float[8,24] w, float[24] b, int32[2,3] m) => (float[] y) { "
HEADS = "(float[1,3,12] q, float[1,4,12] k, float[36] b, int32[1,4] m) => (float[] y) { "
ROI = "(float[1,2,6,6] x) => (float[] y) <float[1,4] r = {0, 0, 5, 4}, int64[1] i = {0}> { "
PAST = "(float[1,2,3,8] q, float[1,2,3,8] k, float[1,2,2,8] p) => (float[] y, float[] a, float[] c) { "
DFT = "(float[2,5,6,1] x) => (float[] y) <int64 one = {1}, int64 two = {2}> { "
GEMM = "(float[2,3] x, float[3,4] w) => (float[] y) { "

CASES: list[tuple[str, int, bool]] = [
    (PAST + "y, a, c = Attention <is_causal = 1> (q, k, k, , p, p) }", 23, True),
    (PAST + "y, a, c = Attention (q, k, k, , p, p) }", 23, False),
    (ATTENTION + "y = com.microsoft.Attention <num_heads = 2, scale = 0.3> (x, w, b) }", 17, True),
    (ATTENTION + "y = com.microsoft.Attention <num_heads = 2, unidirectional = 1> (x, w, b) }", 17, False),
    (ATTENTION + "y = com.microsoft.Attention <num_heads = 2, mask_filter_value = -1.0> (x, w, b, m) }", 17, True),
    (ATTENTION + "y = com.microsoft.Attention <num_heads = 2, mask_filter_value = -10000.0> (x, w, b, m) }", 17, False),
    (HEADS + "y = com.microsoft.MultiHeadAttention <num_heads = 3> (q, k, k, b) }", 17, True),
    (HEADS + "y = com.microsoft.MultiHeadAttention <num_heads = 3, mask_filter_value = -1.0> (q, k, k, , m) }",
     17, True),
    (HEADS + "y = com.microsoft.MultiHeadAttention <num_heads = 3, scale = 0.3> (q, k, k) }", 17, False),
    (GEMM + "y = com.microsoft.FusedGemm <activation = \"Tanh\"> (x, w) }", 17, True),
    (GEMM + "y = com.microsoft.FusedGemm <activation = \"Relu\"> (x, w) }", 17, False),
    (GEMM + "y = com.microsoft.FusedGemm <activation = \"LeakyRelu\", activation_alpha = 0.3> (x, w) }", 17, False),
    ("(float[2,3,4] x, float[3,2,5] w) => (float[] y) { y = com.microsoft.FusedMatMul <transBatchA = 1, "
     "transA = 1, transBatchB = 1> (x, w) }", 17, True),
    ("(float[3,2] x, float[3,4] w) => (float[] y) { y = com.microsoft.FusedMatMul <transA = 1> (x, w) }", 17, False),
    ("(float x) => (float y) { y = com.microsoft.QuickGelu (x) }", 17, True),
    ("(float[1] x) => (float[1] y) { y = com.microsoft.QuickGelu (x) }", 17, False),
    ("(float[2,3,8] x, float[9,4] c) => (float[] y) <int64[1] p = {1}> "
     "{ y = com.microsoft.RotaryEmbedding <interleaved = 0> (x, p, c, c) }", 17, True),
    ("(float[2,3,8] x, float[9,4] c) => (float[] y) <int64[2,3] p = {1, 2, 3, 4, 5, 6}> "
     "{ y = com.microsoft.RotaryEmbedding <interleaved = 0> (x, p, c, c) }", 17, False),
    ("(float[2,3] x) => (float[] y) { y = ai.onnx.ml.Normalizer (x) }", 17, True),
    ("(float[2,3] x) => (float[] y) { y = ai.onnx.ml.Normalizer <norm = \"L1\"> (x) }", 17, False),
    (DFT + "y = DFT (x, , two) }", 20, True),
    (DFT + "y = DFT (x, , one) }", 20, True),
    (DFT + "y = DFT <axis = 2, onesided = 1> (x) }", 17, True),
    (DFT + "y = DFT <axis = 2> (x) }", 17, False),
    ("(float[1,5,2,2] x) => (float[] y) { y = LRN <size = 4> (x) }", 17, True),
    ("(float[1,5,2,2] x) => (float[] y) { y = LRN <size = 3> (x) }", 17, False),
    ("(float[1,1,9] x) => (float[] y) <int64[3] s = {1, 1, 4}> "
     "{ y = Resize <mode = \"linear\", antialias = 1> (x, , , s) }", 18, True),
    ("(float[1,1,9] x) => (float[] y) <int64[3] s = {1, 1, 4}> { y = Resize <mode = \"linear\"> (x, , , s) }",
     18, False),
    (ROI + "y = RoiAlign <mode = \"max\", sampling_ratio = 2> (x, r, i) }", 17, True),
    (ROI + "y = RoiAlign (x, r, i) }", 17, True),
    (ROI + "y = RoiAlign <sampling_ratio = 2> (x, r, i) }", 17, False),
    ("(float[4] x) => (float[] y) { y = Selu <gamma = 0.0> (x) }", 17, True),
    ("(float[4] x) => (float[] y) { y = Selu <alpha = 0.0> (x) }", 17, True),
    ("(float[4] x) => (float[] y) { y = Selu <alpha = 0.5> (x) }", 17, False),
    ("(float[2,3] x, float[3] s) => (float[] y) { y = SimplifiedLayerNormalization (x, s) }", 17, True),
    ("(float[2,3] x, float[3] s) => (float[] y) { y = SimplifiedLayerNormalization <epsilon = 0.5> (x, s) }",
     17, False),
    ("(float[4] x) => (float[] y) { y = Unique <sorted = 0> (x) }", 17, True),
    ("(float[4] x) => (float[] y) { y = Unique (x) }", 17, False),
    (LSTM + "y = LSTM <hidden_size = 4> (x, w, r, , , , , p) }", 17, True),
    (LSTM + "y = LSTM <hidden_size = 4, layout = 1> (x, w, r) }", 17, True),
    (LSTM + "y = LSTM <hidden_size = 4> (x, w, r) }", 17, False),
    *((f"(float[2,3] x) => (float[] y) {{ y = {op} <noop_with_empty_axes = 1> (x) }}", 18, True)
      for op in ("ReduceL1", "ReduceL2", "ReduceLogSum")),
    ("(float[2,3] x) => (float[] y) { y = ReduceLogSumExp <noop_with_empty_axes = 1> (x) }", 18, False),
    ("(float[2,3] x, int64[n] a) => (float[] y) { y = ReduceL1 <noop_with_empty_axes = 1> (x, a) }", 18, True),
    ("(float[2,3] x) => (float[] y) <int64[1] a = {1}> { y = ReduceL1 <noop_with_empty_axes = 1> (x, a) }", 18, False),
    ("(float x, int64[0] s) => (float y) { y = Tile (x, s) }", 17, True),
    ("(float[2,3] x) => (float[2,0] y, int64[2,0] i) <int64[1] k = {0}> { y, i = TopK (x, k) }", 17, True),
    ("(float[0,5] x) => (float[0,5] y) { y = LogSoftmax <axis = 0> (x) }", 12, True),
]  # fmt: skip


def inputs_of(model: hetero.Model) -> Mapping[str, NDArray[np.generic]]:
    rng = np.random.default_rng(1)
    found = {}
    for port in model.inputs:
        assert port.shape is not None
        assert port.dtype is not None
        sizes = [size for size in port.shape if isinstance(size, int)]
        array = np.ones(sizes) if port.dtype.kind == "i" else rng.standard_normal(sizes)
        found[port.name] = array.astype(port.dtype)
    return found


@needs_openvino
@pytest.mark.parametrize(("text", "opset", "is_refused"), CASES)
def test_what_is_refused(text: str, opset: int, is_refused: bool) -> None:
    core = hetero.Core()
    model = core.read_model(onnx.parser.parse_model(HEAD.format(opset) + text))
    reasons = core.query_model(model, "OPENVINO").reasons
    assert bool(reasons) == is_refused, reasons
    if is_refused:
        with pytest.raises(hetero.UnsupportedModel, match="(?i)openvino"):
            core.compile_model(model, "OPENVINO")
        return
    inputs = inputs_of(model)
    found, expected = (core.compile_model(model, device)(inputs)[0] for device in ("OPENVINO", "CPU"))
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5, strict=True)


@needs_openvino
@pytest.mark.parametrize("op", sorted(_QUANTIZED))
def test_quantized_operators_are_refused(op: str) -> None:
    domain, _, op_type = op.rpartition("::")
    graph = onnx.parser.parse_model(HEAD.format(17) + "(uint8[4] x, float s, uint8 z) => (uint8[] y) "
                                    f"{{ y = {domain}.{op_type} (x, s, z, x, s, z, s, z) }}")  # fmt: skip
    reasons = hetero.Core().query_model(graph, "OPENVINO").reasons
    assert "rounds or saturates" in str(reasons)


def test_every_rule_is_tested() -> None:
    tested = {op for op in _RULES if any(f" {op.replace('::', '.')} " in text for text, _, _ in CASES)}
    assert set(_RULES) - tested == {"GRU", "RNN"}  # they share the rule of LSTM
