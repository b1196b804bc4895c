"""Quantized operators of onnxruntime (domain com.microsoft) as calls of the kernels for ONNX's operators.

Products have exact int32 sums. QLinearAdd, QLinearMul and QLinearAveragePool round as onnxruntime does: scales are
often multiples of each other, so that many results lie halfway between two integers, and onnxruntime adds the zero
point before it rounds. The other operators convert to float32, compute, and round once to bytes, so values close to
halfway between two integers may differ by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...._sizes import ask
from ....errors import InferenceError
from ..qdq.schemes import table
from ..registry import F32, Contradiction, Node, contradicting
from ..values import Context, Value
from .elementwise import _optional, _required, binary, broadcast, cast, unary, unary_code
from .fitting import (
    axis_trouble,
    broadcast_trouble,
    joining_trouble,
    known_shape,
    product_trouble,
    shapes_trouble,
    window_trouble,
)
from .movement import axis_of, lines_of, transposed
from .network import WINDOW, _pool, reduced
from .onnxruntime import (
    _contrib,
    _vector,
    _with_bias,
    attended_product,
    attention_refusal,
    embedded,
    embedding_refusal,
)
from .quantized import (
    Quantized,
    _as_constant,
    _integer_product,
    _Requantization,
    columns_of,
    columns_trouble,
    constants,
    parameter_refusal,
)
from .recurrent import _ATTRIBUTES, _directions, _expect, _input_bias, _names, _steps

if TYPE_CHECKING:
    from ....model.model import Model, NodeView
    from ..registry import ExaminedNode

_BYTES = ("int8", "uint8")
_F32, _BYTE, _INT32 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int32)
_SIGMOID, _LEAKY_RELU = map(unary_code, ("SIGMOID", "LEAKY_RELU"))


def _one(context: Context, name: str, value: Value | None) -> Value | None:
    """A scale or zero point of a whole tensor."""
    if value is not None and value.size != 1:
        raise InferenceError(f"expected one {name}, found shape {list(value.shape)}")
    return None if value is None else context.reshaped(value, ())


def _dequantized(context: Context, x: Value, scale: Value | None, zero: Value | None) -> Value:
    scale, zero = _one(context, "scale", scale), _one(context, "zero point", zero)
    if zero is not None and zero.dtype != x.dtype:
        raise InferenceError(f"expected a zero point of type {x.dtype}, found {zero.dtype}")
    return context.call("dequantize", [x, _required(scale), zero], x.shape, _F32, [1, 1, x.size, 0])


def _quantized(context: Context, x: Value, scale: Value | None, zero: Value | None, dtype: np.dtype[Any]) -> Value:
    scale, zero = _one(context, "scale", scale), _one(context, "zero point", zero)
    if zero is not None and zero.dtype != dtype:
        raise InferenceError(f"expected a zero point of type {dtype}, found {zero.dtype}")
    return context.call("quantize", [x, _required(scale), zero], x.shape, dtype, [1, 1, x.size, 0])


# Scales of infinity are what quantizers write for masks of the least float32.
_UNARY_TYPES = (_BYTES, F32, _BYTES, F32, _BYTES)
_unary_parameters = parameter_refusal(Quantized("X", 0, 1, 2), Quantized("Y", 0, 3, 4), infinite=True)


_binary_parameters = parameter_refusal(
    Quantized("A", 0, 1, 2), Quantized("B", 3, 4, 5), Quantized("C", 0, 6, 7), infinite=True
)
_where_parameters = parameter_refusal(
    Quantized("x", 1, 2, 3), Quantized("y", 4, 5, 6), Quantized("z", 1, 7, 8), infinite=True
)


@_contrib(
    "QLinearAdd", "QLinearMul",
    dtypes=(_BYTES, F32, _BYTES, _BYTES, F32, _BYTES, F32, _BYTES),
    required=(0, 1, 3, 4, 6),
    check=lambda model, view: broadcast_trouble(model, view, 0, 3) or _binary_parameters(model, view),
)  # fmt: skip
def _binary(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    a, b = _required(inputs[0]), _required(inputs[3])
    if a.dtype != b.dtype:
        raise InferenceError(f"expected operands of the same type, found {a.dtype} and {b.dtype}")
    names = ("A_scale", "A_zero_point", "B_scale", "B_zero_point", "C_scale", "C_zero_point")
    values = (*inputs[1:3], *inputs[4:6], inputs[6], _optional(inputs, 7))
    parameters = [_one(context, name, value) for name, value in zip(names, values, strict=True)]
    for name, value in zip(names[1::2], parameters[1::2], strict=True):
        if value is not None and value.dtype != a.dtype:
            raise InferenceError(f"expected {name} of type {a.dtype}, found {value.dtype}")
    kernel = "quantized_add" if node.op_type.endswith("Add") else "quantized_mul"
    return [context.call(kernel, [a, *parameters[:2], b, *parameters[2:]], broadcast(a, b), a.dtype)]


@_contrib("QLinearSigmoid", dtypes=_UNARY_TYPES, required=(0, 1, 3), check=_unary_parameters)
@_contrib(
    "QLinearLeakyRelu", dtypes=_UNARY_TYPES, attributes={"alpha": None}, required=(0, 1, 3), check=_unary_parameters
)
def _unary(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])

    def computed(context: Context, x: Value) -> Value:
        wide = _dequantized(context, x, inputs[1], inputs[2])
        if node.op_type.endswith("Sigmoid"):
            made = unary(context, _SIGMOID, wide)
        else:
            made = unary(context, _LEAKY_RELU, wide, node.get("alpha", 0.01))
        return _quantized(context, made, inputs[3], _optional(inputs, 4), x.dtype)

    return [_by_table(context, x, inputs[1:], computed)]


def _by_table(
    context: Context, x: Value, parameters: Sequence[Value | None], computed: Callable[[Context, Value], Value]
) -> Value:
    """The result of an elementwise function of bytes: a look-up in a table of its 256 results if its parameters are
    constants of the model."""
    if x.data is not None or not all(value is None or value.shared for value in parameters):
        return computed(context, x)
    levels = context.constant(table(x.dtype, computed))
    return context.call("lookup", [x, levels], x.shape, x.dtype)


def _softmax_refusal(model: Model, view: ExaminedNode) -> str | None:
    if view.attributes.get("opset", 0) < 1:
        return Contradiction(f"QLinearSoftmax with opset = {view.attributes.get('opset', 0)}; expected 1 or more")
    # Before opset 13, all axes from this one on form a line, which may be empty.
    last = int(view.attributes["opset"] < 13)
    trouble = axis_trouble(model, view, view.attributes.get("axis", -1), 0, last=last)
    return trouble or _unary_parameters(model, view)


@_contrib(
    "QLinearSoftmax",
    dtypes=_UNARY_TYPES,
    attributes={"axis": None, "opset": None},
    required=(0, 1, 3, 4),
    check=_softmax_refusal,
)
def _softmax(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """As Softmax of the version ``opset`` of ONNX, along ``axis`` (by default the last)."""
    x = _required(inputs[0])
    lines = Node("Softmax", node.get("opset", 0), {"axis": node.get("axis", -1)}, 1)
    outer, size, inner = lines_of(lines, x)
    wide = _dequantized(context, x, inputs[1], inputs[2])
    made = context.call("softmax", [wide], x.shape, _F32, [outer, size, inner, 0])
    return [_quantized(context, made, inputs[3], inputs[4], x.dtype)]


@_contrib(
    "QLinearGlobalAveragePool",
    dtypes=_UNARY_TYPES,
    attributes={"channels_last": (0, 1)},
    required=range(5),
    check=_unary_parameters,
)
def _global_pool(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    if x.rank < 3:
        raise InferenceError(f"expected an input of rank 3 or more, found shape {list(x.shape)}")
    axes = range(1, x.rank - 1) if node.get("channels_last", 0) else range(2, x.rank)
    made = reduced(context, _dequantized(context, x, inputs[1], inputs[2]), "mean", axes, keep=True)
    return [_quantized(context, made, inputs[3], inputs[4], x.dtype)]


def _pool_refusal(model: Model, view: ExaminedNode) -> str | None:
    return window_trouble(model, view, 0) or _unary_parameters(model, view)


@_contrib(
    "QLinearAveragePool",
    dtypes=_UNARY_TYPES,
    attributes={name: values for name, values in WINDOW.items() if name != "dilations"}
    | {"ceil_mode": (0, 1), "count_include_pad": (0, 1), "channels_last": (0,)},
    required=(0, 1, 3),
    check=_pool_refusal,
)
def _average_pool(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    pool = Node("AveragePool", node.opset, node.attributes, 1)
    (made,) = _pool(context, pool, [_dequantized(context, x, inputs[1], inputs[2])])
    scale, zero = _one(context, "scale", _required(inputs[3])), _one(context, "zero point", _optional(inputs, 4))
    assert scale is not None
    made = binary(context, "div", made, scale)
    if zero is not None:  # before rounding
        if zero.dtype != x.dtype:
            raise InferenceError(f"expected a zero point of type {x.dtype}, found {zero.dtype}")
        made = binary(context, "add", made, cast(context, zero, _F32))
    return [_quantized(context, made, context.scalar(1, _F32), None, x.dtype)]


def _concat_refusal(model: Model, view: ExaminedNode) -> str | None:
    count = len(view.inputs)
    if count < 5 or count % 3 != 2 or not all(view.inputs):
        return "QLinearConcat whose inputs are not a scale, a zero point, and three for each tensor"
    if "axis" not in view.attributes:
        return "QLinearConcat without its attribute axis"
    for position in range(count):
        dtype, kind = view.type_of_input(position), (position - 2) % 3
        if dtype is not None and (dtype == "float32") != (kind == 1 if position >= 2 else position == 0):
            return f"QLinearConcat whose input {position} is {dtype}"
    axis, tensors = view.attributes["axis"], range(2, count, 3)
    parts = [Quantized(f"input {at}", at, at + 1, at + 2) for at in tensors]
    trouble = axis_trouble(model, view, axis, *tensors) or joining_trouble(model, view, axis, tensors)
    return trouble or parameter_refusal(Quantized("Y", 2, 0, 1), *parts, infinite=True)(model, view)


@_contrib("QLinearConcat", dtypes=(*_BYTES, "float32"), attributes={"axis": None}, check=_concat_refusal, result=1)
def _concat(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    zero = _required(inputs[1])
    parts = []
    for i in range(2, len(inputs), 3):
        if _required(inputs[i]).dtype != zero.dtype:
            raise InferenceError(f"expected operands of type {zero.dtype}, found {_required(inputs[i]).dtype}")
        wide = _dequantized(context, _required(inputs[i]), inputs[i + 1], inputs[i + 2])
        parts.append(_quantized(context, wide, inputs[0], zero, zero.dtype))
    first = parts[0]
    axis = axis_of(node.get("axis", 0), first.rank)
    for part in parts:
        if (*part.shape[:axis], *part.shape[axis + 1 :]) != (*first.shape[:axis], *first.shape[axis + 1 :]):
            shapes = ", ".join(str(list(each.shape)) for each in parts)
            raise InferenceError(f"cannot join {shapes} along axis {axis}")
    shape = list(first.shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return [context.call("concat", parts, shape, zero.dtype, [axis])]


@_contrib(
    "QLinearWhere",
    dtypes=(("bool",), _BYTES, F32, _BYTES, _BYTES, F32, _BYTES, F32, _BYTES),
    required=range(9),
    check=lambda model, view: broadcast_trouble(model, view, 0, 1, 4) or _where_parameters(model, view),
    result=1,
)
def _where(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    condition, x, y = (_required(inputs[at]) for at in (0, 1, 4))
    if x.dtype != y.dtype:
        raise InferenceError(f"expected operands of the same type, found {x.dtype} and {y.dtype}")
    scale, zero = inputs[7:9]

    def rounded(at: int) -> Value:
        def computed(context: Context, operand: Value) -> Value:
            wide = _dequantized(context, operand, inputs[at + 1], inputs[at + 2])
            return _quantized(context, wide, scale, zero, operand.dtype)

        return _by_table(context, _required(inputs[at]), [*inputs[at + 1 : at + 3], scale, zero], computed)

    parts = [rounded(1), rounded(4)]
    shape = broadcast(condition, Value(x.dtype, broadcast(x, y)))
    return [context.call("where", [condition, *parts], shape, x.dtype)]


_TABLES = {"word_embedding": 2, "position_embedding": 3, "segment_embedding": 4, "gamma": 5, "beta": 6}
_embedding_parameters = parameter_refusal(
    *(Quantized(name, at, at + 6, at + 11) for name, at in _TABLES.items()), any_sign=True
)


def _embedding_refusal(model: Model, view: ExaminedNode) -> str | None:
    if (view.inputs[4] == "") != (view.inputs[10] == ""):
        return "QEmbedLayerNormalization with only one of segment_embedding and its scale"
    return embedding_refusal(model, view) or _embedding_parameters(model, view)


@_contrib(
    "QEmbedLayerNormalization",
    dtypes=(("int32",), ("int32",), *(_BYTES,) * 5, ("int32",), *(F32,) * 5, *(_BYTES,) * 5),
    attributes={"epsilon": None},
    required=(0, 2, 3, 5, 6, 8, 9, 11, 12, 13, 14, 16, 17),
    check=_embedding_refusal,
    result="float32",
)
def _embed_layer_norm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """Rows are gathered as bytes and then widened."""

    def widen(value: Value, at: int) -> Value:
        return _dequantized(context, value, inputs[at + 6], inputs[at + 11])

    return embedded(context, node, inputs[:8], None, widen)[: node.num_outputs]


# ---- products


def _per_column(context: Context, name: str, value: Value | None, columns: int) -> Value | None:
    """A parameter of all columns of the right operand, or of each."""
    if value is None or value.size == 1:
        return _one(context, name, value)
    return _vector(name, value, columns)


def _scaled_product(
    context: Context,
    a: Value,
    a_scale: Value,
    a_zero: Value | None,
    b: Value,
    b_scale: Value,
    b_zero: Value | None,
    bias: Value | None,
) -> Value:
    columns = b.shape[-1] if b.rank > 1 else 1
    zeros = _one(context, "zero point of A", a_zero), _per_column(context, "zero point of B", b_zero, columns)
    sums = _integer_product(context, a, b, *zeros)
    scale = _per_column(context, "scale of B", b_scale, columns)
    left = _one(context, "scale of A", a_scale)
    assert scale is not None
    assert left is not None
    made = binary(context, "mul", cast(context, sums, _F32), binary(context, "mul", left, scale))
    return _with_bias(context, made, bias)


_to_float_parameters = parameter_refusal(Quantized("A", 0, 2, 4), Quantized("B", 1, 3, 5, single=False), any_sign=True)
_dynamic_parameters = parameter_refusal(Quantized("B", 1, 2, 3, single=False), any_sign=True)


def _to_float_refusal(model: Model, view: ExaminedNode) -> str | None:
    _, b, _, scale, _, zero, bias = constants(model, view, 7)
    trouble = product_trouble(model, view, 0, 1)
    trouble = trouble or columns_trouble(view, columns_of(b), b_scale=scale, b_zero_point=zero, bias=bias)
    return trouble or _to_float_parameters(model, view)


def _dynamic_refusal(model: Model, view: ExaminedNode) -> str | None:
    _, b, scale, zero, bias = constants(model, view, 5)
    trouble = product_trouble(model, view, 0, 1)
    trouble = trouble or columns_trouble(view, columns_of(b), b_scale=scale, b_zero_point=zero, bias=bias)
    return trouble or _dynamic_parameters(model, view)


@_contrib(
    "MatMulIntegerToFloat",
    dtypes=(_BYTES, _BYTES, F32, F32, _BYTES, _BYTES, F32),
    required=(0, 1, 2, 3),
    check=_to_float_refusal,
    result="float32",
)
def _matmul_integer_to_float(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    a, b, a_scale, b_scale = (_required(value) for value in inputs[:4])
    a_zero, b_zero, bias = (_optional(inputs, i) for i in range(4, 7))
    return [_scaled_product(context, a, a_scale, a_zero, b, b_scale, b_zero, bias)]


def _bytes_of(context: Context, x: Value) -> list[Value]:
    """x rounded to bytes, their scale, and their zero point."""
    return context.call_many("dynamic_quantize", [x], [(x.shape, _BYTE), ((), _F32), ((), _BYTE)])


@_contrib(
    "DynamicQuantizeMatMul",
    dtypes=(F32, _BYTES, F32, _BYTES, F32),
    required=(0, 1, 2),
    check=_dynamic_refusal,
)
def _dynamic_quantize_matmul(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, b, b_scale = (_required(value) for value in inputs[:3])
    a, a_scale, a_zero = _bytes_of(context, x)
    return [_scaled_product(context, a, a_scale, a_zero, b, b_scale, _optional(inputs, 3), _optional(inputs, 4))]


_attention_parameters = parameter_refusal(
    Quantized("input", 0, 3, 6), Quantized("weight", 1, 4, 7, single=False), any_sign=True
)


def _attention_refusal(model: Model, view: ExaminedNode) -> str | None:
    _, weights, bias, _, scale, _, _, zero = constants(model, view, 8)
    return (
        attention_refusal(model, view)
        or columns_trouble(view, columns_of(weights), weight_scale=scale, weight_zero_point=zero, bias=bias)
        or _attention_parameters(model, view)
    )


@_contrib(
    "QAttention",
    dtypes=(_BYTES, _BYTES, F32, F32, F32, ("int32",), _BYTES, _BYTES, F32),
    attributes={
        "num_heads": None,
        "unidirectional": (0, 1),
        "scale": None,
        "mask_filter_value": None,
        "do_rotary": (0,),
        "past_present_share_buffer": (0,),
    },
    required=range(5),
    check=_attention_refusal,
    result="float32",
)
def _attention(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """Attention whose first product is one of bytes."""
    x, weights, bias, x_scale, scale = (_required(value) for value in inputs[:5])
    mask, x_zero, zero, past = (_optional(inputs, i) for i in range(5, 9))
    if x.rank != 3 or weights.rank != 2:
        raise InferenceError(f"an input of shape {list(x.shape)} does not fit weights of shape {list(weights.shape)}")
    product = _scaled_product(context, x, x_scale, x_zero, weights, scale, zero, bias)
    return attended_product(context, node, product, mask, past, None)


_gemm_parameters = parameter_refusal(
    Quantized("A", 0, 1, 2), Quantized("B", 3, 4, 5, single=False), Quantized("y", -1, 7, 8), infinite=True
)


def _gemm_refusal(model: Model, view: ExaminedNode) -> str | None:
    has_scale, has_zero = (len(view.inputs) > at and view.inputs[at] != "" for at in (7, 8))
    if has_scale != has_zero:
        return "QGemm with only one of y_scale and y_zero_point"
    _, _, _, b, scale, zero, *_ = constants(model, view, 9)
    trans_a, trans_b = (view.attributes.get(name, 0) == 1 for name in ("transA", "transB"))
    columns = b.shape[0 if trans_b else 1] if b is not None and b.rank == 2 else None
    return (
        product_trouble(model, view, 0, 3, trans_a=trans_a, trans_b=trans_b, ranks=(2, 2))
        or columns_trouble(view, columns, b_scale=scale, b_zero_point=zero)
        or _sum_trouble(model, view, columns)
        or _gemm_parameters(model, view)
    )


@contradicting
def _sum_trouble(model: Model, view: NodeView, columns: int | None) -> str | None:
    """Why the operand C of QGemm does not broadcast to the product."""
    c = known_shape(model, view, 6)
    if c is None or (len(c) <= 2 and (not c or columns is None or c[-1] in (1, columns) or not isinstance(c[-1], int))):
        return None
    return f"QGemm with C of shape {list(c)}, which does not broadcast to {columns or 'the'} columns"


@_contrib(
    "QGemm",
    dtypes=(_BYTES, F32, _BYTES, _BYTES, F32, _BYTES, ("int32",), F32, _BYTES),
    attributes={"alpha": None, "transA": (0, 1), "transB": (0, 1)},
    required=range(6),
    check=_gemm_refusal,
    result=(8, "float32"),
)
def _gemm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """alpha * a_scale * b_scale * ((A - a_zero) (B - b_zero) + C): float32, or bytes by y_scale and y_zero_point."""
    a, a_scale, a_zero, b, b_scale, b_zero = (_required(value) for value in inputs[:6])
    c, y_scale, y_zero = (_optional(inputs, i) for i in range(6, 9))
    if a.rank != 2 or b.rank != 2:
        raise InferenceError(f"cannot multiply {list(a.shape)} by {list(b.shape)}")
    if node.get("transA", 0):
        a = transposed(context, a, (1, 0))
    if node.get("transB", 0):
        b = context.packed(b, "transposed", lambda: transposed(context, b, (1, 0)))
    columns = b.shape[1]
    scale, zero = _per_column(context, "b_scale", b_scale, columns), _per_column(context, "b_zero", b_zero, columns)
    left = _one(context, "a_scale", a_scale)
    assert left is not None
    assert scale is not None
    sums = _integer_product(context, a, b, _one(context, "a_zero_point", a_zero), zero)
    if c is not None:
        if broadcast(sums, c) != sums.shape:
            raise InferenceError(f"C of shape {list(c.shape)} does not broadcast to {list(sums.shape)}")
        sums = binary(context, "add", sums, c)
    factor = binary(context, "mul", left, scale)
    if node.get("alpha", 1.0) != 1.0:
        factor = binary(context, "mul", factor, context.scalar(node.get("alpha", 1.0), _F32))
    if y_scale is None or y_zero is None:
        return [binary(context, "mul", cast(context, sums, _F32), factor)]
    to, y_zero = _one(context, "y_scale", y_scale), _one(context, "y_zero_point", y_zero)
    assert to is not None
    assert y_zero is not None
    return [_Requantization(binary(context, "div", factor, to), y_zero).of(context, sums)]


# ---- LSTM


_lstm_parameters = parameter_refusal(
    Quantized("W", 1, 8, 9, single=False), Quantized("R", 2, 10, 11, single=False), any_sign=True
)


def _lstm_refusal(model: Model, view: ExaminedNode) -> str | None:
    values = model.node_inputs[view.index].tolist()
    if len(values) != 12:
        return f"DynamicQuantizeLSTM with {len(values)} inputs; expected 12"
    for position, name in (
        (1, "W"),
        (2, "R"),
        (8, "W_scale"),
        (9, "W_zero_point"),
        (10, "R_scale"),
        (11, "R_zero_point"),
    ):
        if values[position] < 0 or not model.is_constant[values[position]]:
            return f"DynamicQuantizeLSTM whose input {name} is not constant"
    names = _names("LSTM", view.attributes)
    if names != _names("LSTM", {**view.attributes, "activations": None}):
        return f"DynamicQuantizeLSTM with activations {names}"
    clip = view.attributes.get("clip", 0.0)
    if clip < 0:
        return f"DynamicQuantizeLSTM with clip = {clip!r}"
    return _lstm_trouble(model, view) or _lstm_parameters(model, view)


@contradicting
def _lstm_trouble(model: Model, view: NodeView) -> str | None:
    """Why constants do not fit each other. W and R are [directions, features, 4 * hidden]."""
    _, w, r, bias, _, _, _, peepholes, w_scale, w_zero, r_scale, r_zero = constants(model, view, 12)
    if w is None or r is None or w.rank != 3 or r.rank != 3:
        return "DynamicQuantizeLSTM whose inputs W and R do not have rank 3"
    directions, hidden, width = r.shape
    single, full = [directions], [directions, width]
    for name, value, expected in (
        ("W", w, [[directions, w.shape[1], 4 * hidden]]),
        ("R", r, [[_directions(view.attributes), hidden, 4 * hidden]]),
        ("B", bias, [[directions, 2 * width]]),
        ("W_scale", w_scale, [single, full]),
        ("W_zero_point", w_zero, [single, full]),
        ("R_scale", r_scale, [single, full]),
        ("R_zero_point", r_zero, [single, full]),
        ("P", peepholes, [[directions, 3 * hidden]]),
    ):
        if value is not None and list(value.shape) not in expected:
            shapes = " or ".join(map(str, expected))
            return f"DynamicQuantizeLSTM with {name} of shape {list(value.shape)}; expected {shapes}"
    if view.attributes.get("hidden_size", hidden) != hidden:
        return f"DynamicQuantizeLSTM with hidden_size = {view.attributes['hidden_size']}; R has shape {list(r.shape)}"
    return shapes_trouble(
        *(model, view, {}),
        X=(0, (None, "batch", w.shape[1])),
        sequence_lens=(4, ("batch",)),
        initial_h=(5, (directions, "batch", hidden)),
        initial_c=(6, (directions, "batch", hidden)),
    )


@_contrib(
    "DynamicQuantizeLSTM",
    dtypes=(F32, _BYTES, _BYTES, F32, ("int32",), F32, F32, F32, F32, _BYTES, F32, _BYTES),
    attributes={
        "activations": None,
        "clip": None,
        "direction": _ATTRIBUTES["direction"],
        "hidden_size": None,
        "input_forget": (0,),
    },
    check=_lstm_refusal,
)
def _dynamic_quantize_lstm(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """LSTM with weights of 8 bits. X is rounded to bytes as a whole, the state of all sequences in each step."""
    x, w, r = (_required(value) for value in inputs[:3])
    bias, lengths, h0, c0, peepholes = (_optional(inputs, position) for position in range(3, 8))
    w_scale, w_zero, r_scale, r_zero = (_required(value) for value in inputs[8:])
    directions = _directions(node.attributes)
    if x.rank != 3 or w.rank != 3 or r.rank != 3 or r.shape[1] < 1:
        raise InferenceError(f"expected X, W and R of rank 3, found shapes {[list(v.shape) for v in (x, w, r)]}")
    (steps, batch, features), hidden = x.shape, r.shape[1]
    if node.get("hidden_size", hidden) != hidden:
        raise InferenceError(f"hidden_size {node.get('hidden_size', hidden)} does not fit R of {list(r.shape)}")
    width = 4 * hidden
    _expect("W", w, (directions, features, width))
    _expect("R", r, (directions, hidden, width))
    _expect("B", bias, (directions, 2 * width))
    _expect("sequence_lens", lengths, (batch,))
    columns = directions * width
    w_scale, w_zero, r_scale, r_zero = (
        _of_columns(context, name, value, directions, width)
        for name, value in (("scale", w_scale), ("zero point", w_zero), ("scale", r_scale), ("zero point", r_zero))
    )
    if w.dtype != w_zero.dtype or r.dtype != r_zero.dtype:
        raise InferenceError(f"weights {w.dtype}, {r.dtype} with zero points {w_zero.dtype}, {r_zero.dtype}")
    added = None
    if bias is not None:
        source = bias
        added = context.packed(bias, ("recurrent", False), lambda: _input_bias(context, source, 4, hidden, False))
        added = context.reshaped(added, (columns,))
    levels, scale, zero = _bytes_of(context, context.reshaped(x, (steps * batch, features)))

    def columns_of() -> Value:
        assert w.data is not None
        return context.constant(np.ascontiguousarray(w.data.transpose(1, 0, 2)).reshape(features, columns))

    matrix = context.packed(w, "columns", columns_of)
    shares = _scaled_product(context, levels, scale, zero, matrix, w_scale, w_zero, added)

    def pack() -> Value:
        assert r.data is not None
        gates = r.data.reshape(directions, hidden, 4, hidden).swapaxes(1, 2)
        operands = [context.constant(np.ascontiguousarray(gates).reshape(-1, hidden, hidden)), r_zero]
        ints = [4 * directions, hidden, hidden]
        size = 4 * directions * ask("quad_bytes", hidden, hidden)
        return context.call("pack_quads", operands, (size,), _BYTE, ints, lasting=True)

    packed = _as_constant(context, r, r_zero, ("pack_quads", "gates"), pack)
    attributes = {name: value for name, value in node.attributes.items() if name not in ("clip", "activations")}
    if node.get("clip", 0.0) > 0:  # 0: no limit
        attributes["clip"] = node.get("clip", 0.0)
    lstm = Node("LSTM", node.opset, attributes, node.num_outputs)
    return _steps(context, lstm, (steps, batch, hidden), [shares, packed, lengths, h0, c0, peepholes, r_scale])


def _of_columns(context: Context, name: str, value: Value, directions: int, width: int) -> Value:
    """A constant parameter with one element for each direction, or for each of its columns: one for each column."""
    assert value.data is not None
    if value.shape not in ((directions,), (directions, width)):
        raise InferenceError(f"a {name} of shape {list(value.shape)} does not fit {directions} x {width} columns")
    wide = np.broadcast_to(value.data.reshape(directions, -1), (directions, width))
    return context.constant(np.ascontiguousarray(wide).reshape(-1))
