"""Elementwise operators of one, two or several operands; also Where, Cast, Clip."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import _kernels
from ....errors import InferenceError
from ....model.types import dtype_of
from ..registry import ANY, BOOL, FLOATS, INTEGERS, NUMBERS, Node, name_of, operator, stated_by
from ..values import Context, Value

if TYPE_CHECKING:
    from ....model.model import Model, NodeView

_BOOL = np.dtype(np.bool_)
_INT64 = np.dtype(np.int64)
_SIGNED = (*FLOATS, "int8", "int16", "int32", "int64")


def unary_code(name: str) -> int:
    """The code of a unary operation: kernels/unary_codes.h."""
    return _kernels.constant(f"UNARY_{name}")


# ONNX operator -> code, element types, attributes (name, default) in the order p0, p1.
_UNARY: dict[str, tuple[int, Sequence[str], tuple[tuple[str, float], ...]]] = {
    "Relu": (unary_code("RELU"), NUMBERS, ()),
    "LeakyRelu": (unary_code("LEAKY_RELU"), FLOATS, (("alpha", 0.01),)),
    "Elu": (unary_code("ELU"), FLOATS, (("alpha", 1.0),)),
    "Selu": (unary_code("SELU"), FLOATS, (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875))),
    "Celu": (unary_code("CELU"), FLOATS, (("alpha", 1.0),)),
    "ThresholdedRelu": (unary_code("THRESHOLDED_RELU"), FLOATS, (("alpha", 1.0),)),
    "Sigmoid": (unary_code("SIGMOID"), FLOATS, ()),
    "HardSigmoid": (unary_code("HARD_SIGMOID"), FLOATS, (("alpha", 0.2), ("beta", 0.5))),
    "Tanh": (unary_code("TANH"), FLOATS, ()),
    "Softplus": (unary_code("SOFTPLUS"), FLOATS, ()),
    "Softsign": (unary_code("SOFTSIGN"), FLOATS, ()),
    "Mish": (unary_code("MISH"), FLOATS, ()),
    "Erf": (unary_code("ERF"), FLOATS, ()),
    "Exp": (unary_code("EXP"), FLOATS, ()),
    "Log": (unary_code("LOG"), FLOATS, ()),
    "Sqrt": (unary_code("SQRT"), FLOATS, ()),
    "Reciprocal": (unary_code("RECIPROCAL"), FLOATS, ()),
    "Abs": (unary_code("ABS"), NUMBERS, ()),
    "Neg": (unary_code("NEG"), _SIGNED, ()),
    "Floor": (unary_code("FLOOR"), FLOATS, ()),
    "Ceil": (unary_code("CEIL"), FLOATS, ()),
    "Round": (unary_code("ROUND"), FLOATS, ()),
    "Sign": (unary_code("SIGN"), NUMBERS, ()),
    "Sin": (unary_code("SIN"), FLOATS, ()),
    "Cos": (unary_code("COS"), FLOATS, ()),
    "Tan": (unary_code("TAN"), FLOATS, ()),
    "Asin": (unary_code("ASIN"), FLOATS, ()),
    "Acos": (unary_code("ACOS"), FLOATS, ()),
    "Atan": (unary_code("ATAN"), FLOATS, ()),
    "Sinh": (unary_code("SINH"), FLOATS, ()),
    "Cosh": (unary_code("COSH"), FLOATS, ()),
    "Asinh": (unary_code("ASINH"), FLOATS, ()),
    "Acosh": (unary_code("ACOSH"), FLOATS, ()),
    "Atanh": (unary_code("ATANH"), FLOATS, ()),
    "Shrink": (unary_code("SHRINK"), FLOATS, (("bias", 0.0), ("lambd", 0.5))),
}
_SELU_1 = (("alpha", 1.673200011253357), ("gamma", 1.0506999492645264))
"""Its attributes before opset 6, which had fewer digits."""
_CLIP, _HARD_SWISH, _SWISH, _GELU_ERF, _GELU_TANH = map(
    unary_code, ("CLIP", "HARD_SWISH", "SWISH", "GELU_ERF", "GELU_TANH")
)
_NOT, _BITWISE_NOT, _ISNAN, _ISINF = map(unary_code, ("NOT", "BITWISE_NOT", "ISNAN", "ISINF"))


def unary(context: Context, code: int, x: Value, p0: float = 0.0, p1: float = 0.0) -> Value:
    return context.call("unary", [x], x.shape, x.dtype, [code], [p0, p1])


def _lower_unary(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    code, _, attributes = _UNARY[node.op_type]
    if node.op_type == "Selu" and node.opset < 6:
        attributes = _SELU_1
    parameters = [float(node.get(name, default)) for name, default in attributes]
    return [unary(context, code, _required(inputs[0]), *parameters)]


for _name, (_code, _dtypes, _attributes) in _UNARY.items():
    operator(_name, dtypes=_dtypes, attributes={name: None for name, _ in _attributes} | {"consumed_inputs": None})(
        _lower_unary
    )


@operator("HardSwish", dtypes=FLOATS)
def _hard_swish(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [unary(context, _HARD_SWISH, _required(inputs[0]), 1 / 6, 0.5)]


@operator("Swish", dtypes=FLOATS, attributes={"alpha": None})
def _swish(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [unary(context, _SWISH, _required(inputs[0]), node.get("alpha", 1.0))]


@operator("Gelu", dtypes=FLOATS, attributes={"approximate": (b"none", b"tanh")})
def _gelu(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    tanh = node.get("approximate", b"none") == b"tanh"
    return [unary(context, _GELU_TANH if tanh else _GELU_ERF, _required(inputs[0]))]


@operator("Not", dtypes=BOOL)
def _not(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [unary(context, _NOT, _required(inputs[0]))]


@operator("BitwiseNot", dtypes=INTEGERS)
def _bitwise_not(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [unary(context, _BITWISE_NOT, _required(inputs[0]))]


@operator("IsNaN", dtypes=FLOATS, result="bool")
def _is_nan(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    return [context.call("unary", [x], x.shape, _BOOL, [_ISNAN], [0.0, 0.0])]


@operator("IsInf", dtypes=FLOATS, attributes={"detect_negative": (0, 1), "detect_positive": (0, 1)}, result="bool")
def _is_inf(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    which = [float(node.get("detect_negative", 1)), float(node.get("detect_positive", 1))]
    return [context.call("unary", [x], x.shape, _BOOL, [_ISINF], which)]


# The largest finite number of each float type. A missing bound of Clip is that number or its negation, so infinities
# are clipped to it; from opset 6 to 10 that of float32 is the default of the attributes, for every type.
_LARGEST = {
    "float16": 65504.0,
    "bfloat16": float.fromhex("0x1.fep127"),
    "float32": float(np.finfo(np.float32).max),
    "float64": float(np.finfo(np.float64).max),
}
_HALVES = ("float16", "bfloat16")


def _clipped(context: Context, x: Value, low: Value | None, high: Value | None) -> Value:
    for bound in (low, high):
        if bound is not None and bound.size != 1:
            raise InferenceError(f"expected scalar min and max, found shape {list(bound.shape)}")
    largest = _LARGEST.get(name_of(x.dtype))
    if largest is not None:
        low = context.scalar(-largest, x.dtype) if low is None else low
        high = context.scalar(largest, x.dtype) if high is None else high
    dtype = x.dtype
    if name_of(dtype) in _HALVES:  # exact in float32: the bounds have this type too
        wide = np.dtype(np.float32)
        x = cast(context, x, wide)
        low, high = (None if bound is None else cast(context, bound, wide) for bound in (low, high))
    known = [float(bound.data.reshape(())) for bound in (low, high) if bound is not None and bound.data is not None]
    if x.dtype.kind == "f" and len(known) == 2 and not any(map(math.isnan, known)):
        x = unary(context, _CLIP, x, *known)
    else:  # a bound of NaN makes all results NaN, as Min and Max do
        for kernel, bound in (("max", low), ("min", high)):
            if bound is not None:
                x = binary(context, kernel, x, context.reshaped(bound, ()))
    return cast(context, x, dtype)


_CLIP_ATTRIBUTES: Mapping[str, None] = {"min": None, "max": None, "consumed_inputs": None}


@operator("Clip", dtypes=(*FLOATS, *_HALVES), attributes=_CLIP_ATTRIBUTES, until=5)
def _clip_by_attributes(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [_clipped_to(context, inputs, node.get("min", None), node.get("max", None))]


@operator("Clip", dtypes=(*FLOATS, *_HALVES), attributes=_CLIP_ATTRIBUTES, since=6, until=10)
def _clip_by_defaults(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    largest = _LARGEST["float32"]
    return [_clipped_to(context, inputs, node.get("min", -largest), node.get("max", largest))]


def _clipped_to(context: Context, inputs: Sequence[Value | None], low: float | None, high: float | None) -> Value:
    x = _required(inputs[0])
    with np.errstate(over="ignore"):  # beyond the type: an infinity, which clips nothing
        bounds = [None if number is None else context.scalar(number, x.dtype) for number in (low, high)]
    return _clipped(context, x, *bounds)


@operator("Clip", dtypes=(*NUMBERS, *_HALVES), since=11)
def _clip(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [_clipped(context, _required(inputs[0]), _optional(inputs, 1), _optional(inputs, 2))]


# ---- two operands and more

_BINARY = {
    "Add": ("add", NUMBERS),
    "Sub": ("sub", NUMBERS),
    "Mul": ("mul", NUMBERS),
    "Div": ("div", NUMBERS),
    "BitwiseAnd": ("bitwise_and", INTEGERS),
    "BitwiseOr": ("bitwise_or", INTEGERS),
    "BitwiseXor": ("bitwise_xor", INTEGERS),
}
_COMPARE = {
    "Equal": ("equal", (*NUMBERS, *BOOL)),
    "Less": ("less", NUMBERS),
    "LessOrEqual": ("less_or_equal", NUMBERS),
    "Greater": ("greater", NUMBERS),
    "GreaterOrEqual": ("greater_or_equal", NUMBERS),
    "And": ("and", BOOL),
    "Or": ("or", BOOL),
    "Xor": ("xor", BOOL),
}


def broadcast(*values: Value) -> tuple[int, ...]:
    """The broadcast shape of the operands. Raises `InferenceError` if they do not broadcast."""
    shape = values[0].shape
    for value in values[1:]:
        other = value.shape
        if shape is other:
            continue
        missing = len(shape) - len(other)
        shape = (1,) * -missing + shape
        sizes = []
        for size, more in zip(shape, (1,) * missing + other, strict=True):
            if more is size or more == 1:
                sizes.append(size)
            elif size == 1 or size == more:
                sizes.append(more)
            else:
                shapes = " and ".join(str(list(value.shape)) for value in values)
                raise InferenceError(f"shapes {shapes} do not broadcast")
        shape = tuple(sizes)
    return shape


def binary(context: Context, kernel: str, x: Value, y: Value, dtype: np.dtype[Any] | None = None) -> Value:
    if x.dtype != y.dtype:
        raise InferenceError(f"expected operands of the same type, found {x.dtype} and {y.dtype}")
    return context.call(kernel, [x, y], broadcast(x, y), x.dtype if dtype is None else dtype)


def _old_broadcast(context: Context, node: Node, inputs: Sequence[Value | None]) -> tuple[Value, Value]:
    """Both operands. Before opset 7, the second is aligned to the first at ``axis`` instead of at the last axis."""
    x, y = _required(inputs[0]), _required(inputs[1])
    axis = node.get("axis", None)
    if node.opset < 7 and axis is not None and y.rank < x.rank:
        axis += x.rank if axis < 0 else 0
        y = context.reshaped(y, (*y.shape, *[1] * (x.rank - axis - y.rank)))
    return x, y


_OLD_BROADCAST = {"axis": None, "broadcast": (0, 1), "consumed_inputs": None}


def _lower_binary(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [binary(context, _BINARY[node.op_type][0], *_old_broadcast(context, node, inputs))]


def _lower_compare(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [binary(context, _COMPARE[node.op_type][0], *_old_broadcast(context, node, inputs), _BOOL)]


for _name, (_kernel, _dtypes) in _BINARY.items():
    operator(_name, dtypes=_dtypes, attributes=_OLD_BROADCAST, until=6)(_lower_binary)
    operator(_name, dtypes=_dtypes, since=7)(_lower_binary)
for _name, (_kernel, _dtypes) in _COMPARE.items():
    operator(_name, dtypes=_dtypes, attributes=_OLD_BROADCAST, until=6, result="bool")(_lower_compare)
    operator(_name, dtypes=_dtypes, since=7, result="bool")(_lower_compare)


@operator("PRelu", dtypes=_SIGNED, attributes={"consumed_inputs": None})
def _prelu(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """Up to opset 6, a vector has one slope per channel; from 7 on, it broadcasts like any operand."""
    x, slope = _required(inputs[0]), _required(inputs[1])
    if node.opset < 7 and slope.rank == 1 and slope.size > 1 and x.rank > 1:
        slope = context.reshaped(slope, (slope.size, *[1] * (x.rank - 2)))
    if broadcast(x, slope) != x.shape:
        raise InferenceError(f"slope {list(slope.shape)} does not broadcast to {list(x.shape)}")
    return [binary(context, "prelu", x, slope)]


@operator("BitShift", dtypes=INTEGERS, attributes={"direction": (b"LEFT", b"RIGHT")})
def _bit_shift(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    kernel = "shift_left" if node.get("direction", b"") == b"LEFT" else "shift_right"
    return [binary(context, kernel, _required(inputs[0]), _required(inputs[1]))]


@operator("Mod", dtypes=NUMBERS, attributes={"fmod": (0, 1)})
def _mod(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, y = _required(inputs[0]), _required(inputs[1])
    if node.get("fmod", 0) or x.dtype.kind != "f":
        return [binary(context, "fmod" if node.get("fmod", 0) else "mod", x, y)]
    # The remainder has the sign of the divisor: where fmod's differs, the divisor is added.
    rest, zero = binary(context, "fmod", x, y), context.scalar(0, x.dtype)
    below, above = (binary(context, "less", value, zero, _BOOL) for value in (rest, y))
    other = binary(context, "xor", below, above, _BOOL)
    wrong = binary(context, "and", other, unary(context, _NOT, binary(context, "equal", rest, zero, _BOOL)), _BOOL)
    more = binary(context, "add", rest, y)
    return [context.call("where", [wrong, more, rest], rest.shape, x.dtype)]


def _dropout_refusal(model: Model, view: NodeView) -> str | None:
    training = int(model.node_inputs[view.index][2]) if len(view.inputs) > 2 else -1
    if training >= 0 and not (model.is_constant[training] and not model.constant(training).any()):
        return "Dropout whose training_mode is not constant False"
    return None


@operator("Pow", dtypes=(NUMBERS, NUMBERS), attributes=_OLD_BROADCAST)
def _pow(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, y = _old_broadcast(context, node, inputs)
    # Powers of 0.5 stay powers: unlike a square root, the power is inf for -inf and 0 for -0.
    if x.dtype.kind == "f" and y.size == 1 and y.data is not None and y.data == 2 and broadcast(x, y) == x.shape:
        return [binary(context, "mul", x, x)]
    if x.dtype == y.dtype:
        return [binary(context, "pow", x, y)]
    wide = _type_of_powers(x, y)
    power = cast(context, binary(context, "pow", cast(context, x, wide), cast(context, y, wide)), x.dtype)
    if x.dtype == np.uint64 and y.dtype.kind == "i":
        # Bases from 2**63 on are negative as int64. With a negative exponent the result is 0, but int64's is 1 or -1
        # for the base -1.
        base_below, below = (_below_zero(context, cast(context, value, _INT64)) for value in (x, y))
        both = binary(context, "and", base_below, below, _BOOL)
        power = context.call("where", [both, context.scalar(0, x.dtype), power], power.shape, x.dtype)
    return [power]


def _below_zero(context: Context, x: Value) -> Value:
    return binary(context, "less", x, context.scalar(0, x.dtype), _BOOL)


def _type_of_powers(x: Value, y: Value) -> np.dtype[Any]:
    """The type in which powers of ``x`` are computed. It represents both operands.

    For integers, whose powers wrap: 64 bits, signed if the exponent may be negative. For a float base: its own type if
    it represents the exponents exactly, otherwise float64.
    """
    if x.dtype.kind != "f" and y.dtype.kind != "f":
        return _INT64 if y.dtype.kind == "i" else np.dtype(np.uint64)
    if x.dtype.kind == "f":
        exact = y.data is not None and y.size == 1 and y.data.astype(x.dtype).astype(y.dtype) == y.data
        if exact or np.can_cast(y.dtype, x.dtype):
            return x.dtype
    return np.dtype(np.float64)


@operator("Sum", "Max", "Min", "Mean", dtypes=NUMBERS, attributes={"consumed_inputs": None})
def _variadic(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    kernel = {"Sum": "add", "Mean": "add", "Max": "max", "Min": "min"}[node.op_type]
    result = _required(inputs[0])
    for other in inputs[1:]:
        result = binary(context, kernel, result, _required(other))
    if node.op_type == "Mean":
        result = binary(context, "div", result, context.scalar(len(inputs), result.dtype))
    if len(inputs) == 1:
        result = context.reshaped(result, result.shape)
    return [result]


@operator("Where", dtypes=(BOOL, ANY), result=1)
def _where(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    condition, x, y = (_required(value) for value in inputs)
    if x.dtype != y.dtype:
        raise InferenceError(f"expected operands of the same type, found {x.dtype} and {y.dtype}")
    return [context.call("where", [condition, x, y], broadcast(condition, x, y), x.dtype)]


def cast(context: Context, x: Value, dtype: np.dtype[Any]) -> Value:
    return x if x.dtype == dtype else context.call("cast", [x], x.shape, dtype)


def _cast_refusal(model: Model, view: NodeView) -> str | None:
    to = view.attributes.get("to", 1)
    dtype = dtype_of(to) if isinstance(to, int) else None
    if dtype is None or dtype.name not in ANY:
        return f"Cast to {to if dtype is None else dtype.name}"
    return None


@operator(
    "Cast",
    dtypes=ANY,
    attributes={"to": None, "saturate": None, "round_mode": None},
    since=6,
    check=_cast_refusal,
    result=stated_by("to", 1),
)
def _cast(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    dtype = dtype_of(node.get("to", 1))
    assert dtype is not None
    return [cast(context, _required(inputs[0]), dtype)]


@operator("CastLike", dtypes=ANY, attributes={"saturate": None, "round_mode": None}, result=1)
def _cast_like(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [cast(context, _required(inputs[0]), _required(inputs[1]).dtype)]


@operator("Identity", dtypes=ANY)
def _identity(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    return [_required(inputs[0])]


@operator(
    "Dropout",
    dtypes=(ANY, FLOATS, BOOL),
    attributes={"ratio": None, "is_test": None, "seed": None, "consumed_inputs": None},
    check=_dropout_refusal,
)
def _dropout(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    if node.num_outputs == 1:
        return [x]
    mask = context.constant(np.broadcast_to(np.ones((), x.dtype if node.opset < 10 else _BOOL), x.shape).copy())
    return [x, mask]


def _required(value: Value | None) -> Value:
    if value is None:
        raise InferenceError("a required input is missing")
    return value


def _optional(inputs: Sequence[Value | None], position: int) -> Value | None:
    return inputs[position] if position < len(inputs) else None
