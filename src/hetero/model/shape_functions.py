"""Shapes of the results of onnxruntime's operators, for onnx's inference, which does not know them.

An operator is described by a function of ONNX's operators whose results have the same types and shapes, not the same
elements. A skeleton for inference gets the functions of the operators that it uses; onnx then infers through them.
Results that a function leaves out stay unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import ModelError, raise_out_of_memory
from .file import ModelFile
from .rows import Rows
from .views import NodeView

__all__ = ["ShapeFunctions"]

_DOMAIN = "com.microsoft"
_OPSET = 18  # of the bodies
_MOST_INPUTS, _MOST_OUTPUTS = 20, 5  # of the operators
_LIKE_FIRST = "(x) => (y) { y = Identity (x) }"
_SKIPPED = "(x, skip, scale) => (y, mean, deviation, sum) { y = Identity (x) sum = Identity (x) }"


def _transposed(name: str, attribute: str) -> str:
    """Text that makes ``{name}_t``, the matrix with the last two dimensions exchanged if the attribute is 1. The
    shape of a vector stays unknown, because inference rejects its Trilu."""
    return f"""
        {name}_matrix = Trilu ({name})
        {name}_head = Shape <end: int = -2> ({name}_matrix)
        {name}_tail = Shape <start: int = -2> ({name}_matrix)
        {name}_one = Constant <value_ints = [1]> ()
        {name}_at = Constant <value_int: int = @{attribute}> ()
        {name}_axis = Constant <value_ints = [0]> ()
        {name}_first = Unsqueeze ({name}_at, {name}_axis)
        {name}_second = Sub ({name}_one, {name}_first)
        {name}_rows = Gather ({name}_tail, {name}_first)
        {name}_columns = Gather ({name}_tail, {name}_second)
        {name}_shape = Concat <axis = 0> ({name}_head, {name}_rows, {name}_columns)
        {name}_zeros = ConstantOfShape ({name}_shape)
        {name}_t = CastLike ({name}_zeros, {name})"""


_BODIES = {
    "Gelu QuickGelu FastGelu BiasGelu RotaryEmbedding QLinearSigmoid QLinearLeakyRelu QLinearSoftmax": _LIKE_FIRST,
    "SkipLayerNormalization SkipSimplifiedLayerNormalization": _SKIPPED,
    "QuantizeLinear": "(x, scale, zero) => (y) { y = CastLike (x, zero) }",
    "DequantizeLinear": "(x, scale) => (y) { y = CastLike (x, scale) }",
    "QLinearAdd QLinearMul": "(a, as, az, b) => (y) { y = Add (a, b) }",
    "QLinearWhere": "(c, a, as, az, b) => (y) { y = Where (c, a, b) }",
    "DynamicQuantizeMatMul": "(a, b) => (y) { wide = CastLike (b, a) y = MatMul (a, wide) }",
    "MatMulIntegerToFloat": """(a, b, scale) => (y) {
        left = CastLike (a, scale)
        right = CastLike (b, scale)
        y = MatMul (left, right)
    }""",
    "FusedConv": """<auto_pad, dilations, group, kernel_shape, pads, strides>(x, w) => (y) {
        y = Conv <auto_pad: string = @auto_pad, dilations: ints = @dilations, group: int = @group,
                  kernel_shape: ints = @kernel_shape, pads: ints = @pads, strides: ints = @strides> (x, w)
    }""",
    "QLinearAveragePool": """<auto_pad, ceil_mode, kernel_shape, pads, strides>(x, scale) => (y) {
        wide = CastLike (x, scale)
        pooled = AveragePool <auto_pad: string = @auto_pad, ceil_mode: int = @ceil_mode,
                              kernel_shape: ints = @kernel_shape, pads: ints = @pads, strides: ints = @strides> (wide)
        y = CastLike (pooled, x)
    }""",
    "QLinearGlobalAveragePool": """(x, scale) => (y) {
        wide = CastLike (x, scale)
        pooled = GlobalAveragePool (wide)
        y = CastLike (pooled, x)
    }""",
    "GroupQueryAttention": "(q) => (y) { y = Identity (q) }",
    "Attention": "(x, w) => (y) { all = MatMul (x, w) y, k, v = Split <axis = -1, num_outputs = 3> (all) }",
    "QAttention": """(x, w, bias) => (y) {
        left = CastLike (x, bias)
        right = CastLike (w, bias)
        all = MatMul (left, right)
        y, k, v = Split <axis = -1, num_outputs = 3> (all)
    }""",
    "EmbedLayerNormalization": """(ids, segments, words) => (y, mask, sum) {
        y = Gather (words, ids)
        sum = Identity (y)
    }""",
    "FusedMatMul": f"""<transA: int = 0, transB: int = 0>(a, b) => (y) {{
        {_transposed("a", "transA")}
        {_transposed("b", "transB")}
        y = MatMul (a_t, b_t)
    }}""",
    "FusedGemm": """<transA, transB>(a, b) => (y) {
        y = Gemm <transA: int = @transA, transB: int = @transB> (a, b)
    }""",
    "QLinearConcat": "<axis>(ys, yz, {parts}) => (y) {{ y = Concat <axis: int = @axis> ({joined}) }}",
    "GatherBlockQuantized": """(data, ids, scales) => (y) {{
        lead = Shape <end: int = -1> (data)
        last = Shape <start: int = -1> (data)
        packed = Constant <value_ints = [{packed}]> ()
        width = Mul (last, packed)
        shape = Concat <axis = 0> (lead, width)
        zeros = ConstantOfShape (shape)
        wide = CastLike (zeros, scales)
        y = Gather (wide, ids)
    }}""",
    "QGemm": """<transA, transB>(a, as, az, b, bs, bz, c, ys, yz) => (y) {
        left = CastLike (a, as)
        right = CastLike (b, as)
        wide = Gemm <transA: int = @transA, transB: int = @transB> (left, right)
        y = CastLike (wide, yz)
    }""",
    "MultiHeadAttention": """(q, k, v) => (y) {
        lead = Shape <end: int = 2> (q)
        batch = Shape <end: int = 1> (v)
        keys = Shape <start: int = -2, end: int = -1> (v)
        rest = Constant <value_ints = [-1]> ()
        rows = Concat <axis = 0> (batch, keys, rest)
        merged = Reshape (v, rows)
        width = Shape <start: int = -1> (merged)
        shape = Concat <axis = 0> (lead, width)
        zeros = ConstantOfShape (shape)
        y = CastLike (zeros, q)
    }""",
    "MatMulNBits": """<K, N>(a) => (y) {
        zero = Constant <value_ints = [0]> ()
        k = Constant <value_int: int = @K> ()
        n = Constant <value_int: int = @N> ()
        rows = Unsqueeze (k, zero)
        columns = Unsqueeze (n, zero)
        shape = Concat <axis = 0> (rows, columns)
        b = ConstantOfShape (shape)
        wide = CastLike (b, a)
        y = MatMul (a, wide)
    }""",
}
"""Operators -> signature and body. `_FORMS` lists the operators whose body depends on their nodes."""


def _lacks(name: str) -> Callable[[NodeView], bool]:
    """Whether an integer attribute is 0, or an attribute is absent."""
    return lambda node: not node.attributes.get(name)


_CONDITIONS: dict[str, Callable[[NodeView], bool]] = {
    "Attention": _lacks("qkv_hidden_sizes"),
    "GatherBlockQuantized": _lacks("gather_axis"),
    "GroupQueryAttention": lambda node: len(node.inputs) > 1 and node.inputs[1] != "",  # queries alone, not all three
    "FusedMatMul": lambda node: not (node.attributes.get("transBatchA") or node.attributes.get("transBatchB")),
    "MultiHeadAttention": lambda node: len(node.inputs) > 2 and all(node.inputs[:3]),  # queries, keys and values apart
    "QGemm": lambda node: len(node.inputs) > 8 and node.inputs[8] != "",  # otherwise, the result is float32
    "QLinearAveragePool": _lacks("channels_last"),
    "QLinearConcat": lambda node: len(node.inputs) % 3 == 2 and 5 <= len(node.inputs) <= _MOST_INPUTS,
    "QLinearGlobalAveragePool": _lacks("channels_last"),
}
"""Operator -> what must hold for its nodes. If it does not for one of them, all stay unknown."""


def _holds(name: str, rows: Rows, nodes: Sequence[int]) -> bool:
    condition = _CONDITIONS.get(name)
    try:
        return condition is None or all(condition(NodeView(rows, node)) for node in nodes)
    except ModelError as error:  # malformed attributes, which the devices report
        raise_out_of_memory(error)
        return False


@functools.cache
def _texts() -> dict[str, str]:
    return {name: text for names, text in _BODIES.items() for name in names.split()}


def _concat_form(rows: Rows, node: int) -> dict[str, str]:
    names = [f"x{number}" for number in range((len(rows.node_inputs[node]) - 2) // 3)]
    return {"joined": ", ".join(names), "parts": ", ".join(f"{x}, {x}s, {x}z" for x in names)}


def _gather_form(rows: Rows, node: int) -> dict[str, str] | None:
    """Bytes hold two elements of 4 bits, or one of 8."""
    constant = int(rows.file.value_constant[rows.node_inputs[node][0]])
    if constant < 0:
        return None
    is_packed = rows.constants.type_of(constant).dtype == np.uint8 and NodeView(rows, node).attributes.get("bits") != 8
    return {"packed": "2" if is_packed else "1"}


_FORMS: dict[str, Callable[[Rows, int], dict[str, str] | None]] = {
    "GatherBlockQuantized": _gather_form,
    "QLinearConcat": _concat_form,
}
"""Operator -> what to fill in for a node, or None if its shape stays unknown. If nodes differ, all stay unknown: one
function serves all of them."""


@functools.cache
def _encoded(name: str, text: str, outputs: int) -> tuple[bytes, frozenset[str]]:
    """A function with at most this number of outputs, encoded, and the operators of its body. ``text``: its signature
    and body."""
    from onnx.parser import parse_function

    attributes, bracket, rest = text.rpartition(">(")
    signature = f"{attributes}> ({rest}" if bracket else rest
    head = f'<domain: "{_DOMAIN}", opset_import: ["": {_OPSET}]>'
    function = parse_function(f"{head} {name} {signature}")
    # onnx rejects nodes with more inputs or outputs than their function, and with fewer outputs than it infers.
    function.input.extend(f"input {at}" for at in range(len(function.input), _MOST_INPUTS))
    del function.output[outputs:]
    function.output.extend(f"output {at}" for at in range(len(function.output), _MOST_OUTPUTS))
    return function.SerializeToString(), frozenset(node.op_type for node in function.node)


class ShapeFunctions:
    """The functions for the operators of a file. ``operators``: the operators of their bodies."""

    def __init__(self, file: ModelFile, rows: Rows) -> None:
        made = []
        for number, (domain, name) in enumerate(zip(file.op_domains, file.op_names, strict=True)):
            if domain != _DOMAIN or name not in _texts() or (domain, name) in file.functions:
                continue
            nodes = np.flatnonzero(file.node_op == number).tolist()
            if not nodes or not _holds(name, rows, nodes):
                continue
            text, form = _texts()[name], _FORMS.get(name)
            if form is not None:
                forms = [form(rows, node) for node in nodes]
                if forms[0] is None or any(other != forms[0] for other in forms):
                    continue
                text = text.format(**forms[0])
            made.append(_encoded(name, text, min(len(rows.node_outputs[node]) for node in nodes)))
        self.encoded = [encoded for encoded, _ in made]
        self.operators = frozenset[str]().union(*(operators for _, operators in made))
