"""Operators and attributes that OpenVINO (2026.4) accepts but computes differently from ONNX and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["why_different"]

_QUANTIZED = frozenset(
    f"com.microsoft::{name}"
    for name in (
        *("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QLinearAdd", "QLinearAveragePool", "QLinearConcat"),
        *("QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere"),
    )
)
"""Operators that it rounds down, does not saturate, or quantizes in another way."""

_RECURRENT = ("GRU", "LSTM", "RNN")
_IDENTITY_WITHOUT_AXES = ("ReduceL1", "ReduceL2", "ReduceLogSum")
_LEAST_MASK = -1e4  # added to a score, no larger value excludes a key


def why_different(model: Model, node: int, op_type: str) -> str:
    """Why the results of a node differ; empty if they do not."""
    if op_type in _QUANTIZED:
        return f"OpenVINO rounds or saturates {op_type.rpartition('::')[2]} in another way"
    rule = _RULES.get(op_type)
    return "" if rule is None else rule(_Node(model, node))


class _Node:
    def __init__(self, model: Model, node: int) -> None:
        self._model = model
        self.attributes: Mapping[str, object] = model.nodes[node].attributes
        self.inputs: list[int] = model.node_inputs[node].tolist()

    def has(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] >= 0

    def shape(self, position: int) -> tuple[int | str | None, ...] | None:
        return self._model.type_of(self.inputs[position]).shape

    def get(self, name: str, default: float) -> float:
        value = self.attributes.get(name, default)
        assert isinstance(value, (int, float))
        return value

    def text(self, name: str, default: str) -> str:
        value = self.attributes.get(name)
        return value.decode() if isinstance(value, bytes) else default


def _attention(node: _Node) -> str:
    is_wrong = node.get("is_causal", 0) and node.has(4)
    return "OpenVINO aligns the causal mask of Attention in another way if there are past keys" if is_wrong else ""


def _contrib_attention(node: _Node) -> str:
    if node.get("scale", 0):
        return "OpenVINO ignores the attribute scale of Attention"
    return _multi_head_attention(node)


def _multi_head_attention(node: _Node) -> str:
    if node.get("mask_filter_value", _LEAST_MASK) > _LEAST_MASK:
        return "OpenVINO ignores the attribute mask_filter_value"
    return ""


def _multi_head_attention_with_bias(node: _Node) -> str:
    if node.has(3):
        return "OpenVINO adds the bias of MultiHeadAttention to other elements for some shapes"
    return _multi_head_attention(node)


def _dft(node: _Node) -> str:
    if node.has(2) or node.get("onesided", 0):
        return "OpenVINO ignores the input axis of DFT, and computes its attribute onesided in another shape"
    return ""


def _fused_gemm(node: _Node) -> str:
    activation = node.text("activation", "")
    is_same = activation in ("", "Relu", "LeakyRelu")
    return "" if is_same else f"OpenVINO computes {activation} in FusedGemm as Relu or LeakyRelu"


def _fused_matmul(node: _Node) -> str:
    is_wrong = node.get("transBatchA", 0) or node.get("transBatchB", 0)
    return "OpenVINO ignores the attributes transBatchA and transBatchB" if is_wrong else ""


def _lrn(node: _Node) -> str:
    return "" if node.get("size", 1) % 2 else "OpenVINO centers the window of LRN in another way if its size is even"


def _normalizer(node: _Node) -> str:
    is_wrong = node.text("norm", "MAX") == "MAX"
    return "OpenVINO divides by the largest absolute value if norm is MAX" if is_wrong else ""


def _quick_gelu(node: _Node) -> str:
    return "" if node.shape(0) else "OpenVINO returns a vector for a scalar"


def _recurrent(node: _Node) -> str:
    if node.get("layout", 0):
        return "OpenVINO ignores the attribute layout of some results"
    return "OpenVINO ignores peepholes" if node.has(7) else ""


def _reduction(node: _Node) -> str:
    if not node.get("noop_with_empty_axes", 0) or (node.has(1) and all(node.shape(1) or (0,))):
        return ""
    return "OpenVINO returns the input of a reduction without axes as it is"


def _resize(node: _Node) -> str:
    return "OpenVINO ignores the attribute antialias of some modes" if node.get("antialias", 0) else ""


def _roi_align(node: _Node) -> str:
    is_wrong = node.text("mode", "avg") == "max" or not node.get("sampling_ratio", 0)
    return "OpenVINO takes other samples in RoiAlign if mode is max or sampling_ratio is 0" if is_wrong else ""


def _rotary_embedding(node: _Node) -> str:
    return "" if len(node.shape(1) or ()) == 2 else "OpenVINO does not count positions from a single number"


def _selu(node: _Node) -> str:
    is_same = node.get("alpha", 1) and node.get("gamma", 1)
    return "" if is_same else "OpenVINO takes the default for an attribute that is 0"


def _simplified_layer_normalization(node: _Node) -> str:
    return "" if "epsilon" in node.attributes else "OpenVINO takes 0 for an epsilon that is not set"


def _unique(node: _Node) -> str:
    return "" if node.get("sorted", 1) else "OpenVINO returns another order if sorted is 0"


_RULES: Mapping[str, Callable[[_Node], str]] = {
    "Attention": _attention,
    "com.microsoft::Attention": _contrib_attention,
    "com.microsoft::FusedGemm": _fused_gemm,
    "com.microsoft::FusedMatMul": _fused_matmul,
    "com.microsoft::MultiHeadAttention": _multi_head_attention_with_bias,
    "com.microsoft::QuickGelu": _quick_gelu,
    "com.microsoft::RotaryEmbedding": _rotary_embedding,
    "ai.onnx.ml::Normalizer": _normalizer,
    "DFT": _dft,
    "LRN": _lrn,
    "Resize": _resize,
    "RoiAlign": _roi_align,
    "Selu": _selu,
    "SimplifiedLayerNormalization": _simplified_layer_normalization,
    "Unique": _unique,
    **dict.fromkeys(_RECURRENT, _recurrent),
    **dict.fromkeys(_IDENTITY_WITHOUT_AXES, _reduction),
}
