"""Nodes that OpenVINO's CPU device (2026.4) accepts but computes differently from ONNX and onnxruntime.

`integers` treats what depends on the size of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...errors import HeteroError, raise_out_of_memory
from ...model.bodies import BODY_ATTRIBUTES, Body, bodies_of
from ..contradictions import contradictions

if TYPE_CHECKING:
    from ...model.model import Model

__all__ = ["wrong_results"]

_FIRST_WITHOUT_AXES, _FIRST_WITH_AXES_AS_INPUT = 13, 18  # opsets; see `_converts_otherwise`
_WITH_EMPTY_LISTS = ("Concat", "ConstantOfShape", "Reshape", "Resize", "Squeeze")
_WITH_PARAMETERS = frozenset((
    *("CastLike", "Clip", "Expand", "Gather", "GatherElements", "GatherND", "Pad", "ReduceL1", "ReduceL2", "ReduceMax"),
    *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Resize", "Slice", "Split", "Squeeze", "Tile"),
    *("Unsqueeze", "Upsample"),
))  # fmt: skip
"""Operators whose result may be their first operand as it is, so that OpenVINO may remove the node. It may find that
the others have no effect even if they are not constants of the model."""

_REMOVED = _WITH_PARAMETERS | frozenset((
    *("Add", "And", "Cast", "Concat", "DepthToSpace", "Div", "Dropout", "Einsum", "Flatten", "Identity", "Max", "Mean"),
    *("Min", "Mul", "Or", "Pow", "SpaceToDepth", "Sub", "Sum", "Transpose", "Where", "Xor"),
))  # fmt: skip
"""Those, and operators whose result may be any of their operands."""

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


def wrong_results(model: Model) -> dict[int, str]:
    """Node -> reason, for each node that OpenVINO accepts although its results may be wrong or mean nothing."""
    reasons = ((node, _computes_otherwise(model, node)) for node in range(model.num_nodes))
    return {**contradictions(model), **{node: why for node, why in reasons if why}}


def _computes_otherwise(model: Model, node: int) -> str:
    """Why the results of a node, or of one in its bodies, may be wrong; empty if they are not. Holds for OpenVINO's CPU
    (2026.4)."""
    op_type = model.op_types[int(model.op_type_of[node])]
    rules = (_keeps_old_results, _rounds_up_windows, _converts_otherwise, _is_empty, _reads_otherwise)
    why = next(filter(None, (rule(model, node, op_type) for rule in rules)), "")
    if why or op_type not in BODY_ATTRIBUTES:
        return why
    try:
        bodies = bodies_of(model, node)
    except HeteroError as error:  # OpenVINO does not read it either
        raise_out_of_memory(error)
        return ""
    if op_type != "If":
        why = _passes_values(bodies[0], int(model.nodes[node].attributes.get("num_scan_inputs", 0)))
        if why:
            return why
    inside = (_computes_otherwise(body.model, at) for body in bodies for at in range(body.model.num_nodes))
    return next(filter(None, inside), "")


def _keeps_old_results(model: Model, node: int, op_type: str) -> str:
    """OpenVINO does not write the scanned results of a Loop without iterations, or the results of Unique for an empty
    input, so they keep the elements and shapes of an earlier run."""
    inputs = model.node_inputs[node].tolist()
    if op_type == "Unique" and inputs:
        shape = model.type_of(inputs[0]).shape
        if shape is None or not all(isinstance(size, int) and size for size in shape):
            return "OpenVINO returns results of an earlier run if the input is empty"
    elif op_type == "Loop":
        is_scanned = len(model.node_outputs[node]) > len(inputs) - 2
        limits = [value for value in inputs[:2] if value >= 0]  # the number of iterations and the first condition
        if is_scanned and not all(model.is_constant[value] and (model.constant(value) > 0).all() for value in limits):
            return "OpenVINO returns scanned results of an earlier run if a Loop has no iterations"
    return ""


def _rounds_up_windows(model: Model, node: int, op_type: str) -> str:
    """With ceil_mode, OpenVINO's MaxPool adds a window that lies in the padding alone, its average counts padding
    beyond the pads, and its LpPool scales partial windows."""
    if op_type not in ("MaxPool", "AveragePool", "LpPool"):
        return ""
    attributes = model.nodes[node].attributes
    if not attributes.get("ceil_mode", 0):
        return ""
    if op_type == "MaxPool":
        kernel = attributes.get("kernel_shape") or []
        ones = [1] * len(kernel)
        strides, dilations = (attributes.get(name) or ones for name in ("strides", "dilations"))
        ends = (attributes.get("pads") or [0] * 2 * len(kernel))[len(kernel) :]
        windows = zip(kernel, strides, dilations, ends, strict=False)  # OpenVINO rejects attributes of wrong lengths
        is_same = all(stride + end <= (size - 1) * step + 1 for size, stride, step, end in windows)
    else:
        is_same = op_type == "AveragePool" and not attributes.get("count_include_pad", 0)
    return "" if is_same else f"OpenVINO computes {op_type} with these attributes and ceil_mode in another way"


def _converts_otherwise(model: Model, node: int, op_type: str) -> str:
    """OpenVINO ignores the attribute axes of some reductions in opsets 13 to 17 and storage_order, and does not remove
    the axis that a vector adds in a MatMulInteger."""
    inputs = [value for value in model.node_inputs[node].tolist() if value >= 0]
    if op_type in ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp"):
        opset = model.opsets.get("", 0)
        if _FIRST_WITHOUT_AXES <= opset < _FIRST_WITH_AXES_AS_INPUT and model.nodes[node].attributes.get("axes"):
            return f"OpenVINO ignores the attribute axes of {op_type} in opset {opset}"
    elif op_type == "MaxPool":
        if len(model.node_outputs[node]) > 1 and model.nodes[node].attributes.get("storage_order", 0):
            return "OpenVINO ignores storage_order"
    elif op_type == "MatMulInteger":
        shapes = [model.type_of(value).shape for value in inputs[:2]]
        if any(shape is None or len(shape) < 2 for shape in shapes):
            return "OpenVINO does not remove the axis that a vector adds"
    return ""


def _is_empty(model: Model, node: int, op_type: str) -> str:
    """OpenVINO reads an empty constant as one number, unless it is a list of axes or sizes, and computes some results
    without elements in another shape, ends the inference or ends the process."""
    if op_type in _WITH_EMPTY_LISTS:
        return ""
    inputs = model.node_inputs[node].tolist()
    for value in (*(inputs[:1] if op_type.startswith("Reduce") else inputs), *model.node_outputs[node].tolist()):
        if value >= 0 and 0 in (model.type_of(value).shape or ()):
            return f"OpenVINO may compute tensors without elements incorrectly, such as {model.value_name(value)!r}"
    return ""


def _passes_values(body: Body, num_scanned: int) -> str:
    """OpenVINO copies the states of a Loop or Scan one after the other. If a new state is the memory of another input
    of the body, that input may have its next value by then: two states that are exchanged become equal. A scanned
    input that is returned as it is has another rank, and OpenVINO crashes at some results that are returned twice.

    ``num_scanned``: the number of scanned inputs of a Scan, 0 for a Loop."""
    model = body.model
    if len(set(body.results)) < len(body.results):
        return "OpenVINO may end the process if a body returns a value twice"
    own = model.input_ids[: len(model.input_ids) - len(body.captures)]
    is_loop = not num_scanned
    passable = list(own)[2:] if is_loop else list(own)  # not the iteration number and the condition
    states = passable[: len(passable) - num_scanned]
    results = [model.output_ids[place] for place in body.results][is_loop:]
    source = {value: value for value in passable}  # value -> the input that it may be
    variable = set(model.input_ids)  # values that depend on inputs
    for node in range(model.num_nodes):
        inputs = [value for value in model.node_inputs[node].tolist() if value in variable]
        if not inputs and variable.isdisjoint(model.node_captures[node].tolist()):
            continue
        outputs = model.node_outputs[node].tolist()
        variable.update(value for value in outputs if value >= 0)
        op_type = model.op_types[int(model.op_type_of[node])]
        if op_type in _WITH_PARAMETERS:
            inputs = model.node_inputs[node].tolist()[:1]
        elif op_type == "Where":
            inputs = model.node_inputs[node].tolist()[1:]
        operands = variable.intersection(inputs)
        if op_type in _REMOVED and len(operands) == 1:
            source.update((value, source[of]) for of in operands if of in source for value in outputs if value >= 0)
    for at, result in enumerate(results):
        passed = source.get(result)
        if passed is None or (at < len(states) and passed == states[at]) or (at >= len(states) and passed in states):
            continue
        return f"OpenVINO may return wrong values if a body passes on its input {model.value_name(passed)!r}"
    return ""


def _reads_otherwise(model: Model, node: int, op_type: str) -> str:
    """OpenVINO ignores some attributes and inputs of these operators, or interprets them differently."""
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
