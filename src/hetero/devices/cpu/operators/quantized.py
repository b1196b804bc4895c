"""Quantized operators: conversion to small integers and back, and integer products and convolutions.

Products and convolutions of bytes have exact int32 sums. `MatMulInteger` and `ConvInteger` return them; `QLinearMatMul`
and `QLinearConv` convert them to bytes (`_Requantization`), within the kernel if it supports their multipliers.

A constant right operand or filter is packed once per compiled model, together with its zero point if that is constant
too. The layouts count in quads: four bytes that one lane of a vector instruction multiplies and adds up
(kernels/integer_micro.h).

A convolution with constant weights first loses the taps that only read padding (`_without_padding`). Then it takes the
first of these ways that applies (`_integer_convolution`):

1. `depthwise_integer`: one input channel per group, up to two spatial axes, enough channels, and padded rows that fit
   its memory (`_is_depthwise`).
2. A matrix product of windows and filters: only QLinearConv of one group with constant weights, if rows are so short
   that the next way would waste an eighth of its sums (`_is_short`, `_by_product`).
3. `conv_integer`, which computes panels of adjacent pixels of a row from a packed image.

All ways give the same results.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import _kernels
from ...._sizes import ask
from ....errors import InferenceError
from ....model.types import dtype_of
from ..registry import F32, Contradiction, Node, contradicting, name_of, operator, stated_shape
from ..values import Context, Value
from .elementwise import _optional, _required, binary, broadcast, cast
from .fitting import product_trouble, window_trouble
from .movement import axis_of, expanded, strided, strides_of, transposed
from .network import WINDOW, convolution_of, products_of, three

if TYPE_CHECKING:
    from ....model.model import Model, NodeView
    from ..registry import ExaminedNode

_BYTES = ("int8", "uint8")
_SMALL = (*_BYTES, "int16", "uint16")
_NIBBLES = {"int4": (-8, 7), "uint4": (0, 15)}  # limits; one element per byte, which kernels read and write
_LEVELS = (*_SMALL, "int32", *_NIBBLES)
_SCALES = (*F32, "float16", "bfloat16")
_F32 = np.dtype(np.float32)
_BYTE, _INT32 = np.dtype(np.uint8), np.dtype(np.int32)
_PAD_CONSTANT = _kernels.constant("PAD_CONSTANT")
_MIN_PRODUCT_CHANNELS = 32  # input and output channels of convolutions that run as products


# ---- QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear


def _scheme(x: Value, scale: Value, zero: Value | None, axis: int, block: int) -> list[int]:
    """The ints of the kernels `quantize` and `dequantize`: x as [outer, size of the axis, inner], and the length of a
    block along the axis (0: none). None for one scale."""
    _check_zero(scale, zero)
    if scale.size == 1:
        return []
    axis = axis_of(axis, x.rank)
    size = x.shape[axis]
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    if block:
        block = min(block, max(size, 1))
        expected_shape: tuple[int, ...] = (*x.shape[:axis], -(-size // block), *x.shape[axis + 1 :])
    else:
        expected_shape = (size,)
    if scale.shape != expected_shape:
        raise InferenceError(f"expected a scale of shape {list(expected_shape)}, found {list(scale.shape)}")
    return [outer, size, inner, block]


def _check_zero(scale: Value, zero: Value | None) -> None:
    if zero is not None and zero.shape != scale.shape and not zero.size == scale.size == 1:
        raise InferenceError(
            f"a zero point of shape {list(zero.shape)} does not fit a scale of shape {list(scale.shape)}"
        )


def _along(context: Context, x: Value, scale: Value, scheme: Sequence[int], axis: int) -> Value:
    """``scale`` in a shape that broadcasts to ``x``."""
    if scale.size == 1:
        return context.reshaped(scale, ())
    _, size, _, block = scheme
    axis = axis_of(axis, x.rank)
    if not block:
        return context.reshaped(scale, (size, *[1] * (x.rank - axis - 1)))
    numbers = context.constant(np.arange(size, dtype=np.int64) // block)
    return context.call("gather", [scale, numbers], x.shape, scale.dtype, [axis])


def _parameters(context: Context, scale: Value, zero: Value | None, dtype: np.dtype[Any]) -> list[Value | None]:
    """Scale and zero point as the kernels take them. One of each has rank 0, so that it broadcasts in chains."""
    if scale.size != 1:
        return [cast(context, scale, _F32), zero]
    zero = context.scalar(0, dtype) if zero is None else context.reshaped(zero, ())
    return [context.reshaped(cast(context, scale, _F32), ()), zero]


def _type_of(number: int | None, default: np.dtype[Any]) -> np.dtype[Any]:
    return (dtype_of(number) if number else None) or default


_MOST_MOVES = 16  # before a scale, so that many nodes behind one long chain take linear time
# Operators whose result has all elements of their first operand.
_MOVES = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def _moved_constant(model: Model, value: int) -> int | None:
    """``value`` if it is constant, or the constant that at most `_MOST_MOVES` operators of `_MOVES` turn into it.
    Otherwise None."""
    for _ in range(_MOST_MOVES + 1):
        if value < 0 or model.is_constant[value]:
            return value if value >= 0 else None
        node = int(model.producer[value])
        if node < 0 or model.op_types[model.op_type_of[node]] not in _MOVES or not len(model.node_inputs[node]):
            return None
        value = int(model.node_inputs[node][0])
    return None


def _scale_refusal(
    any_sign: bool = False, infinite: bool = False, **positions: int
) -> Callable[[Model, NodeView], str | None]:
    """A check of constant scales, given by name and position: they must be numbers, finite unless ``infinite``, and
    positive unless ``any_sign``."""
    expected = ("" if any_sign else "positive ") + ("numbers" if infinite else "finite numbers")

    @contradicting
    def check(model: Model, view: NodeView) -> str | None:
        inputs = model.node_inputs[view.index].tolist()
        for name, position in positions.items():
            constant = _moved_constant(model, inputs[position]) if position < len(inputs) else None
            if constant is None:
                continue
            scales = model.constant(constant, aligned=False).reshape(-1)
            valid = (~np.isnan(scales) if infinite else np.isfinite(scales)) & (any_sign | (scales > 0))
            if not valid.all():
                at = int(np.argmin(valid))
                of = f"{name}[{at}]" if scales.size > 1 else name
                return f"{view.op_type} with {of} = {scales[at]}; expected {expected}"
        return None

    return check


@dataclasses.dataclass(frozen=True, slots=True)
class Quantized:
    """Which inputs of a node are a quantized tensor, its scale and its zero point. ``tensor``: for a result, an input
    of the same type, or -1. ``single``: scale and zero point have one element."""

    name: str
    tensor: int
    scale: int | None
    zero: int
    single: bool = True

    @contradicting
    def trouble(self, model: Model, view: ExaminedNode) -> str | None:
        """Why the parameters do not fit the tensor, as far as it is known."""
        inputs = model.node_inputs[view.index].tolist()
        parameters = {"scale": self.scale, "zero_point": self.zero}
        named = {name: inputs[at] for name, at in parameters.items() if at is not None and at < len(inputs)}
        for name, value in named.items():
            kind = model.constant_type(value) if self.single and value >= 0 and model.is_constant[value] else None
            if kind is not None and kind.shape is not None and math.prod(map(int, kind.shape)) != 1:  # type: ignore[arg-type]
                return f"{view.op_type} with {self.name}_{name} of shape {list(kind.shape)}; expected 1 element"
        if self.tensor >= 0 and named.get("zero_point", -1) >= 0:
            found, expected = view.type_of_input(self.zero), view.type_of_input(self.tensor)
            if found is not None and expected is not None and found != expected:
                return (
                    f"{view.op_type} with {self.name}_zero_point of type {found}; expected {expected}, as {self.name}"
                )
        return None


def parameter_refusal(
    *tensors: Quantized, any_sign: bool = False, infinite: bool = False
) -> Callable[[Model, ExaminedNode], str | None]:
    """A check of scales, as `_scale_refusal`, and of zero points."""
    scales = {f"{each.name}_scale": each.scale for each in tensors if each.scale is not None}
    check_scales = _scale_refusal(any_sign, infinite, **scales)

    def check(model: Model, view: ExaminedNode) -> str | None:
        troubles = (each.trouble(model, view) for each in tensors)
        return next(filter(None, troubles), None) or check_scales(model, view)

    return check


def _refusal(default: np.dtype[Any], made: Sequence[str], scale: str) -> Callable[[Model, ExaminedNode], str | None]:
    """A check of (De)QuantizeLinear: ``output_dtype``, by default ``default``, must be one of ``made``, ``block_size``
    must not be negative, and constant scales (``scale`` is their name) must not be NaN and must fit the zero points
    and the operand, if these are constants. Those of QuantizeLinear, which divides by them, must be positive;
    quantizers of 4-bit weights write negative scales, and 0 for blocks of zeros. Infinity is what quantizers write for
    masks of the least float32."""
    check_scales = _scale_refusal(any_sign=scale == "x_scale", infinite=True, **{scale: 1})

    def check(model: Model, view: ExaminedNode) -> str | None:
        dtype = _type_of(view.attributes.get("output_dtype", None), default)
        if name_of(dtype) not in made:
            return f"{view.op_type} to {name_of(dtype)}"
        if view.attributes.get("block_size", 0) < 0:
            return Contradiction(f"{view.op_type} with a negative block_size")
        return check_scales(model, view) or _scheme_trouble(model, view)

    return check


@contradicting
def _scheme_trouble(model: Model, view: ExaminedNode) -> str | None:
    """Why constant operands of (De)QuantizeLinear do not fit each other, or an input whose shape the model states. The
    others are checked when they are known."""
    x, scale, zero = constants(model, view, 3)
    first = int(model.node_inputs[view.index][0])
    shape = stated_shape(model, first)
    stated = None if shape is None else model.type_of(first, infer=False).dtype
    if x is None and stated is not None and shape is not None and all(isinstance(size, int) for size in shape):
        x = Value(stated, tuple(map(int, shape)))  # type: ignore[arg-type]
    if zero is not None:
        if view.op_type == "DequantizeLinear":
            expected, reason = view.type_of_input(0), "x"
        else:
            expected, reason = name_of(_type_of(view.attributes.get("output_dtype", None), zero.dtype)), "output_dtype"
        if expected is not None and name_of(zero.dtype) != expected:
            return f"{view.op_type} with a zero point of type {zero.dtype}; expected {expected}, as {reason}"
    if scale is None:
        return None
    try:
        _check_zero(scale, zero)
        if x is not None:
            _scheme(x, scale, zero, view.attributes.get("axis", 1), view.attributes.get("block_size", 0))
    except InferenceError as error:
        return f"{view.op_type}: {error}"
    return None


def constants(model: Model, view: NodeView, count: int) -> list[Value | None]:
    """Type and shape of the first ``count`` operands; None for those that are absent or not constant."""
    values = model.node_inputs[view.index].tolist()[:count]
    types = [model.constant_type(value) if value >= 0 and model.is_constant[value] else None for value in values]
    made = [
        None
        if kind is None or kind.dtype is None or kind.shape is None
        else Value(kind.dtype, tuple(map(int, kind.shape)))  # type: ignore[arg-type]
        for kind in types
    ]
    return made + [None] * (count - len(made))


@operator(
    "QuantizeLinear",
    dtypes=((*_SCALES, "int32"), _SCALES, (*_SMALL, *_NIBBLES)),
    attributes={"axis": None, "saturate": None, "block_size": None, "output_dtype": None, "precision": (0, 1, 10, 16)},
    check=_refusal(_BYTE, (*_SMALL, *_NIBBLES), "y_scale"),
    result=lambda attributes: (2, name_of(_type_of(attributes.get("output_dtype", None), _BYTE))),
)
def _quantize(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    """``saturate`` only affects 8-bit floats, which are not supported."""
    x, scale, zero = _required(inputs[0]), _required(inputs[1]), _optional(inputs, 2)
    axis = node.get("axis", 1)
    scheme = _scheme(x, scale, zero, axis, node.get("block_size", 0))
    made = _type_of(node.get("output_dtype", None), _BYTE)
    dtype = made if zero is None else zero.dtype
    if zero is not None and node.get("output_dtype", 0) and dtype != made:
        raise InferenceError(f"expected a zero point of output_dtype, {made}, found {dtype}")
    precision = _type_of(node.get("precision", None), scale.dtype)
    if precision != np.float32:  # the quotient is rounded to half precision before it is rounded to an integer
        x, scale = cast(context, x, precision), cast(context, scale, precision)
        divisor = cast(context, _along(context, x, scale, scheme, axis), _F32)
        quotient = binary(context, "div", cast(context, x, _F32), divisor)
        x = cast(context, quotient, precision)
        scale = context.constant(np.ones(scale.shape, np.float32))
    kernel_dtype = _byte_of(dtype)
    zero = None if zero is None else _in_bytes(context, zero)
    operands = [cast(context, x, _F32), *_parameters(context, scale, zero, kernel_dtype)]
    y = context.call("quantize", operands, x.shape, kernel_dtype, scheme)
    if dtype == kernel_dtype:
        return [y]
    low, high = _NIBBLES[dtype.name]
    y = binary(context, "max", y, context.scalar(low, kernel_dtype))
    y = cast(context, binary(context, "min", y, context.scalar(high, kernel_dtype)), _BYTE)
    return [_with_dtype(binary(context, "bitwise_and", y, context.scalar(15, _BYTE)), dtype)]  # as NumPy writes them


@operator(
    "DequantizeLinear",
    dtypes=(_LEVELS, _SCALES, _LEVELS),
    attributes={"axis": None, "block_size": None},
    until=22,
    check=_refusal(_F32, _SCALES, "x_scale"),
    result=1,
)
@operator(
    "DequantizeLinear",
    dtypes=(_LEVELS, _SCALES, _LEVELS),
    attributes={"axis": None, "block_size": None, "output_dtype": None},
    since=23,
    check=_refusal(_F32, _SCALES, "x_scale"),
    result=lambda attributes: 1 if not (number := attributes.get("output_dtype", 0)) else _type_of(number, _F32).name,
)
def _dequantize(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, scale, zero = _in_bytes(context, _required(inputs[0])), _required(inputs[1]), _optional(inputs, 2)
    zero = None if zero is None else _in_bytes(context, zero)
    if zero is not None and zero.dtype != x.dtype:
        raise InferenceError(f"expected a zero point of type {x.dtype}, found {zero.dtype}")
    scheme = _scheme(x, scale, zero, node.get("axis", 1), node.get("block_size", 0))
    y = context.call("dequantize", [x, *_parameters(context, scale, zero, x.dtype)], x.shape, _F32, scheme)
    return [cast(context, y, _type_of(node.get("output_dtype", None), scale.dtype))]


_BYTE_OF: dict[str, np.dtype[Any]] = {"int4": np.dtype(np.int8), "uint4": np.dtype(np.uint8)}


def _byte_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type as which kernels compute with ``dtype``: of 4 bits, a byte for each element."""
    return _BYTE_OF.get(dtype.name, dtype)


def _with_dtype(x: Value, dtype: np.dtype[Any]) -> Value:
    """The same bytes as another type of one byte."""
    return dataclasses.replace(x, dtype=dtype, data=None if x.data is None else x.data.view(dtype))


def _in_bytes(context: Context, x: Value) -> Value:
    """Elements of 4 bits as bytes."""
    kernel_dtype = _byte_of(x.dtype)
    if kernel_dtype == x.dtype:
        return x
    if x.data is not None:
        stored, (low, high) = x.data.view(kernel_dtype), _NIBBLES[x.dtype.name]
        is_extended = low <= stored.min(initial=0) and stored.max(initial=0) <= high
        return Value(kernel_dtype, x.shape, stored if is_extended else x.data.astype(kernel_dtype))
    # NumPy keeps an element in the low bits of its byte, and does not define the others.
    y = binary(context, "bitwise_and", _with_dtype(x, _BYTE), context.scalar(15, _BYTE))
    if kernel_dtype == _BYTE:
        return y
    flipped = cast(context, binary(context, "bitwise_xor", y, context.scalar(8, _BYTE)), kernel_dtype)
    return binary(context, "sub", flipped, context.scalar(8, kernel_dtype))


@operator("DynamicQuantizeLinear", dtypes=F32, result="uint8", further=("float32", "uint8"))
def _dynamic_quantize(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    return context.call_many("dynamic_quantize", [x], [(x.shape, _BYTE), ((), _F32), ((), _BYTE)])


# ---- products


def _per_row(context: Context, value: Value) -> Value:
    """A parameter of the rows of a matrix, in a shape that broadcasts: a vector becomes a column."""
    if value.size == 1:
        return context.reshaped(value, ())
    return context.reshaped(value, (value.size, 1)) if value.rank == 1 else value


def _per_column(context: Context, value: Value) -> Value:
    return context.reshaped(value, ()) if value.size == 1 else value


def _zero_of(context: Context, x: Value, zero: Value | None) -> Value:
    if zero is None:
        return context.scalar(0, x.dtype)
    if x.dtype != zero.dtype:
        raise InferenceError(f"expected a zero point of type {x.dtype}, found {zero.dtype}")
    return zero


def _zeros_of(context: Context, x: Value, zero: Value | None, axis: int) -> Value:
    """The zero points of a matrix or a batch of matrices: one, or one for each row (axis -2) or column (-1) of every
    matrix."""
    zero = _zero_of(context, x, zero)
    if zero.size == 1:
        return zero
    other = x.rank - 3 - axis  # the other one of the last two axes, along which a zero point may not vary
    per_line = tuple(1 if i == other or x.rank == 1 else n for i, n in enumerate(x.shape))
    if broadcast(zero, Value(zero.dtype, per_line)) != per_line:
        raise InferenceError(f"a zero point of shape {list(zero.shape)} does not fit {list(x.shape)}")
    return zero if zero.size == math.prod(per_line) else expanded(context, zero, per_line)


def _as_constant(context: Context, x: Value, zero: Value, layout: tuple[object, ...], make: Any) -> Value:
    """The result of ``make``, kept for all plans if both ``x`` and its zero point are constants."""
    if zero.data is None:
        made: Value = make()
        return made
    return context.packed(x, (*layout, zero.data.tobytes()), make)


@dataclasses.dataclass(frozen=True, slots=True)
class _Requantization:
    """How int32 sums become bytes: ``round(sums * multiplier) + zero``, saturated to the type of ``zero``.

    A product whose bias is float32, in units of the result, adds it before rounding."""

    multiplier: Value
    zero: Value

    def fits(self, per: int) -> bool:
        """Whether the product's own kernel supports it: one multiplier or ``per`` of them, and one zero point."""
        return self.multiplier.size in (1, per) and self.zero.size == 1

    def of(self, context: Context, sums: Value) -> Value:
        for name, value in (("scales", self.multiplier), ("a zero point", self.zero)):
            if broadcast(sums, value) != sums.shape:
                raise InferenceError(f"{name} of shape {list(value.shape)} do not fit {list(sums.shape)}")
        return context.call("requantize", [sums, self.multiplier, self.zero], sums.shape, self.zero.dtype)


def _integer_product(
    context: Context,
    a: Value,
    b: Value,
    a_zero: Value | None,
    b_zero: Value | None,
    requantization: _Requantization | None = None,
    bias: Value | None = None,
) -> Value:
    """The matrix product (a - a_zero) (b - b_zero) + bias: int32, or bytes with ``requantization``.

    ``bias``: one number per column, int32; or float32 if the ``requantization`` has one multiplier or a vector of
    them."""
    p = products_of(a, b)
    matrix = ask("quad_bytes", p.k, p.n)
    left_zero = _zeros_of(context, a, None if a_zero is None else _per_row(context, a_zero), -2)
    right_zero = _zeros_of(context, b, None if b_zero is None else _per_column(context, b_zero), -1)

    def pack() -> Value:
        ints = [math.prod(p.right), p.k, p.n]
        return context.call("pack_quads", [b, right_zero], (math.prod(p.right) * matrix,), _BYTE, ints, lasting=True)

    right = _as_constant(context, b, right_zero, ("pack_quads",), pack)
    ints = [p.m, p.n, p.k, len(p.batch), *p.batch, *p.steps(p.m * p.k, matrix)]
    operands, dtype, is_separate = [a, left_zero, right], _INT32, True
    if requantization is not None and requantization.fits(p.n):
        columns = requantization.multiplier
        is_separate = columns.size != 1 and columns.shape[-1:] != (p.n,)  # as many rows as columns: per row
        if not is_separate:
            operands, dtype = [*operands, columns, requantization.zero], requantization.zero.dtype
            operands += [] if bias is None else [bias]
    made = context.call("matmul_integer", operands, p.shape, dtype, ints)
    if bias is not None and is_separate:
        made = binary(context, "add", made, bias)
    return requantization.of(context, made) if requantization is not None and is_separate else made


@contradicting
def columns_trouble(view: NodeView, columns: int | None, **parameters: Value | None) -> str | None:
    """Why constant parameters of the columns of a matrix do not fit it. ``columns``: None if they are not known."""
    for name, value in parameters.items():
        if columns is None or value is None or (value.size == 1 and name != "bias"):
            continue
        if value.size != columns or value.shape[-1:] != (columns,):
            expected = f"{columns}" if name == "bias" else f"1 or {columns}"
            return f"{view.op_type} with {name} of shape {list(value.shape)}; expected {expected} elements"
    return None


def columns_of(b: Value | None) -> int | None:
    """The columns of a constant matrix."""
    return b.shape[1] if b is not None and b.rank == 2 else None


_sums_parameters = parameter_refusal(Quantized("a", 0, None, 2, single=False), Quantized("b", 1, None, 3, single=False))


def _sums_refusal(model: Model, view: ExaminedNode) -> str | None:
    _, b, a_zero, b_zero = constants(model, view, 4)
    return (
        product_trouble(model, view, 0, 1)
        or columns_trouble(view, columns_of(b), b_zero_point=b_zero)
        or _rows_trouble(model, view, a_zero_point=a_zero)
        or _sums_parameters(model, view)
    )


@operator("MatMulInteger", dtypes=_BYTES, check=_sums_refusal, result="int32")
def _matmul_integer(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    a_zero, b_zero = _optional(inputs, 2), _optional(inputs, 3)
    return [_integer_product(context, _required(inputs[0]), _required(inputs[1]), a_zero, b_zero)]


def _multiplier(context: Context, x_scale: Value, w_scale: Value, y_scale: Value) -> Value:
    """x_scale * w_scale / y_scale as float32, rounded to the type of the scales after each operation."""
    dtype = x_scale.dtype
    if not dtype == w_scale.dtype == y_scale.dtype:
        raise InferenceError(f"expected scales of the same type, found {dtype}, {w_scale.dtype}, {y_scale.dtype}")
    wide = [cast(context, value, _F32) for value in (x_scale, w_scale, y_scale)]
    product = cast(context, cast(context, binary(context, "mul", wide[0], wide[1]), dtype), _F32)
    return cast(context, cast(context, binary(context, "div", product, wide[2]), dtype), _F32)


_matmul_parameters = parameter_refusal(
    Quantized("a", 0, 1, 2, single=False), Quantized("b", 3, 4, 5, single=False), Quantized("y", -1, 6, 7, single=False)
)


def _matmul_refusal(model: Model, view: ExaminedNode) -> str | None:
    _, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = constants(model, view, 8)
    rows = {"a_scale": a_scale, "a_zero_point": a_zero, "y_scale": y_scale, "y_zero_point": y_zero}
    types = dict.fromkeys(name for position in (1, 4, 6) if (name := view.type_of_input(position)) in _SCALES)
    if len(types) > 1:
        return Contradiction(f"QLinearMatMul with scales of types {' and '.join(map(str, types))}; expected one type")
    return (
        product_trouble(model, view, 0, 3)
        or columns_trouble(view, columns_of(b), b_scale=b_scale, b_zero_point=b_zero)
        or _rows_trouble(model, view, **rows)
        or _matmul_parameters(model, view)
    )


@contradicting
def _rows_trouble(model: Model, view: NodeView, **parameters: Value | None) -> str | None:
    """Why constant vectors of parameters of the rows of a matrix do not fit it, if the model states its rows."""
    shape = stated_shape(model, int(model.node_inputs[view.index][0]))
    rows = shape[-2] if shape is not None and len(shape) > 1 else None
    for name, value in parameters.items():
        if isinstance(rows, int) and value is not None and value.rank == 1 and value.size not in (1, rows):
            return f"{view.op_type} with {name} of shape {list(value.shape)}; expected 1 or {rows} elements"
    return None


@operator(
    "QLinearMatMul",
    dtypes=(_BYTES, _SCALES, _BYTES, _BYTES, _SCALES, _BYTES, _SCALES, _BYTES),
    check=_matmul_refusal,
    result=7,
)
def _qlinear_matmul(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (_required(value) for value in inputs)
    rows = [_per_row(context, value) for value in (a_scale, y_scale, y_zero)]
    if b.rank == 1:  # the result has no axis of columns
        rows = [context.reshaped(row, row.shape[:-1]) if row.shape[-1:] == (1,) else row for row in rows]
    multiplier = _multiplier(context, rows[0], _per_column(context, b_scale), rows[1])
    return [_integer_product(context, a, b, a_zero, b_zero, _Requantization(multiplier, rows[2]))]


# ---- convolutions


def _integer_convolution(
    context: Context,
    node: Node,
    x: Value,
    weights: Value,
    x_zero: Value | None,
    w_zero: Value | None,
    bias: Value | None = None,
    requantization: _Requantization | None = None,
) -> Value:
    """The convolution of (x - x_zero) and (weights - w_zero): int32, or bytes with ``requantization``, which has one
    multiplier or one per output channel, and one zero point. The header lists the ways it can run."""
    group, window, shape = convolution_of(node, x, weights, bias)
    outputs, channels = weights.shape[:2]
    zero, weights_zero = _zero_of(context, x, x_zero), _zero_of(context, weights, w_zero)
    if zero.size != 1:
        raise InferenceError(f"expected one zero point of x, found {zero.dtype}{list(zero.shape)}")
    if weights_zero.size != 1 and weights_zero.shape != (outputs,):
        raise InferenceError(f"a zero point of shape {list(weights_zero.shape)} does not fit {list(weights.shape)}")
    sizes = three(shape[2:], 1)
    weights, window = _without_padding(context, weights, window, x.shape, sizes)
    ints = [group, channels, *window, *sizes]
    operands: list[Value | None] = [zero, bias]
    dtype = _INT32
    if requantization is not None:
        operands += [requantization.multiplier, requantization.zero]
        dtype = requantization.zero.dtype
    if _is_depthwise(x, weights, ints):

        def pack_depthwise() -> Value:
            size = ask("depthwise_bytes", outputs, *ints)
            return context.call("pack_depthwise", [weights, weights_zero], (size,), _BYTE, ints, lasting=True)

        filters = _as_constant(context, weights, weights_zero, ("pack_depthwise", group), pack_depthwise)
        return context.call("depthwise_integer", [x, filters, *operands], shape, dtype, ints)
    if requantization is not None and _is_short(x, weights, weights_zero, shape, ints):
        return _by_product(context, x, weights, zero, weights_zero, bias, requantization, window, shape)
    pixels = context.call("pack_pixels", [x, zero], (ask("pixel_bytes", x.shape[0], *ints),), _BYTE, ints)

    def pack() -> Value:
        size = ask("filter_bytes", outputs, *ints)
        return context.call("pack_filters", [weights, weights_zero], (size,), _BYTE, ints, lasting=True)

    filters = _as_constant(context, weights, weights_zero, ("pack_filters",), pack)
    return context.call("conv_integer", [pixels, filters, *operands], shape, dtype, ints)


def _without_padding(
    context: Context, weights: Value, window: list[int], image: Sequence[int], sizes: Sequence[int]
) -> tuple[Value, list[int]]:
    """Constant filters without the taps at their ends that only ever read padding, and their window. Padding adds
    nothing to a sum, because it is the zero point of the image. ``sizes``: three, of the result.

    A dilated filter that is larger than its image has many such taps. At least one tap remains, and the pads before
    do not become negative."""
    if not weights.shared or 0 in image or 0 in sizes:
        return weights, window
    kernel, strides, before, dilations = (window[i : i + 3] for i in range(0, 12, 3))
    first, extents = [0, 0, 0], three(image[2:], 1)
    for axis, (size, count, pad, step) in enumerate(zip(extents, sizes, before, dilations, strict=True)):
        end, reach = kernel[axis], (count - 1) * strides[axis]
        while end > 1 and (end - 1) * step - pad >= size:  # no window reaches back to the image
            end -= 1
        while first[axis] < end - 1 and reach + first[axis] * step < pad and before[axis] >= step:
            first[axis] += 1
            before[axis] -= step
        kernel[axis] = end - first[axis]
    if kernel == window[:3]:
        return weights, window
    steps = strides_of(weights.shape)
    rank = weights.rank - 2
    offset = sum(start * step for start, step in zip(first[3 - rank :], steps[2:], strict=True))
    shape = (*weights.shape[:2], *kernel[3 - rank :])
    kept = context.packed(weights, ("taps", *first, *kernel), lambda: strided(context, weights, offset, shape, steps))
    return kept, [*kernel, *strides, *before, *dilations]


def _is_short(x: Value, weights: Value, weights_zero: Value, shape: Sequence[int], ints: Sequence[int]) -> bool:
    """Whether `conv_integer` would compute at least an eighth more sums than there are: it computes whole panels of
    pixels, across the ends of the rows. Then a product of windows and filters is faster.

    Only for one group, two spatial axes, constant weights, and enough channels. ``ints``: those of the kernel."""
    if ints[0] != 1 or x.rank != 4 or not weights.shared or weights_zero.data is None or 0 in shape or 0 in x.shape:
        return False
    if weights.shape[1] < _MIN_PRODUCT_CHANNELS or weights.shape[0] < _MIN_PRODUCT_CHANNELS:
        return False
    return ask("integer_columns", *ints) * 8 >= math.prod(shape[2:]) * 9


def _by_product(
    context: Context,
    x: Value,
    weights: Value,
    zero: Value,
    weights_zero: Value,
    bias: Value | None,
    requantization: _Requantization,
    window: Sequence[int],
    shape: Sequence[int],
) -> Value:
    """A convolution as a matrix product: one row per window, with channels innermost, times one column per filter."""
    (_, kh, kw), (_, sh, sw), (_, top, left), (_, dh, dw) = (window[i : i + 3] for i in range(0, 12, 3))
    images, channels, height, width = x.shape
    rows, columns = shape[2:]
    turned = transposed(context, x, (0, 2, 3, 1))
    # The pixels are the windows if a single tap reads each pixel once: no strides, and no pads at either end.
    if (kh, kw, sh, sw, top, left) != (1, 1, 1, 1, 0, 0) or (height, width) != (rows, columns):
        needed = ((rows - 1) * sh + (kh - 1) * dh + 1, (columns - 1) * sw + (kw - 1) * dw + 1)
        padded = (images, max(needed[0], height + top), max(needed[1], width + left), channels)
        if padded != turned.shape:
            turned = context.call("pad", [turned, zero], padded, x.dtype, [_PAD_CONSTANT, 0, top, left, 0])
        pixel, row = channels, padded[2] * channels
        steps = (padded[1] * row, sh * row, sw * pixel, dh * row, dw * pixel, 1)
        turned = strided(context, turned, 0, (images, rows, columns, kh, kw, channels), steps)
    m, k, n = images * rows * columns, kh * kw * channels, weights.shape[0]

    def pack() -> Value:
        filters = context.reshaped(transposed(context, weights, (2, 3, 1, 0)), (k, n))
        size = ask("quad_bytes", k, n)
        return context.call("pack_quads", [filters, weights_zero], (size,), _BYTE, [1, k, n], lasting=True)

    right = _as_constant(context, weights, weights_zero, ("pack_windows",), pack)
    operands = [context.reshaped(turned, (m, k)), zero, right, requantization.multiplier, requantization.zero]
    if bias is not None:
        operands.append(bias)
    made = context.call("matmul_integer", operands, (m, n), requantization.zero.dtype, [m, n, k, 0])
    made = transposed(context, context.reshaped(made, (images, rows * columns, n)), (0, 2, 1))
    return context.reshaped(made, shape)


def _is_depthwise(x: Value, weights: Value, ints: Sequence[int]) -> bool:
    """Whether the kernel `depthwise_integer`, with these ints, supports the convolution and suits it."""
    if weights.shape[1] != 1 or x.rank > 4:
        return False
    return bool(ask("depthwise_pays", *three(x.shape[2:], 1)[1:], *ints))


_conv_integer_parameters = parameter_refusal(Quantized("x", 0, None, 2), Quantized("w", 1, None, 3, single=False))


@contradicting
def _outputs_trouble(view: NodeView, w: Value | None, **parameters: Value | None) -> str | None:
    """Why constant parameters of the output channels of constant weights do not fit them."""
    if w is None or not w.rank:
        return None
    for name, value in parameters.items():
        if value is not None and value.shape != (w.shape[0],) and (value.size != 1 or name == "B"):
            return f"{view.op_type} with {name} of shape {list(value.shape)}; expected {w.shape[0]} elements, as w"
    return None


def _conv_integer_refusal(model: Model, view: ExaminedNode) -> str | None:
    _, w, _, w_zero = constants(model, view, 4)
    trouble = window_trouble(model, view, 0, 1) or _outputs_trouble(view, w, w_zero_point=w_zero)
    return trouble or _conv_integer_parameters(model, view)


@operator(
    "ConvInteger",
    dtypes=_BYTES,
    attributes=WINDOW | {"group": None},
    check=_conv_integer_refusal,
    result="int32",
)
def _conv_integer(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x_zero, w_zero = _optional(inputs, 2), _optional(inputs, 3)
    return [_integer_convolution(context, node, _required(inputs[0]), _required(inputs[1]), x_zero, w_zero)]


_convolution_parameters = parameter_refusal(
    Quantized("x", 0, 1, 2), Quantized("w", 3, 4, 5, single=False), Quantized("y", -1, 6, 7)
)


def _convolution_refusal(model: Model, view: ExaminedNode) -> str | None:
    _, _, _, w, w_scale, w_zero, _, _, bias = constants(model, view, 9)
    trouble = window_trouble(model, view, 0, 3)
    trouble = trouble or _outputs_trouble(view, w, w_scale=w_scale, w_zero_point=w_zero, B=bias)
    return trouble or _convolution_parameters(model, view)


@operator(
    "QLinearConv",
    dtypes=(_BYTES, F32, _BYTES, _BYTES, F32, _BYTES, F32, _BYTES, ("int32",)),
    attributes=WINDOW | {"group": None},
    check=_convolution_refusal,
    result=7,
)
def _qlinear_conv(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (_required(value) for value in inputs[:8])
    if max(x_scale.size, y_scale.size, y_zero.size) > 1 or (w_scale.size > 1 and w_scale.shape != (w.shape[0],)):
        raise InferenceError("expected one scale for x, one for y, and for w one or one per output channel")
    per_map = (w_scale.size,) if w_scale.size > 1 else ()
    scales = [context.reshaped(value, ()) for value in (x_scale, y_scale)]
    multiplier = _multiplier(context, scales[0], context.reshaped(w_scale, per_map), scales[1])
    bias, requantization = _optional(inputs, 8), _Requantization(multiplier, context.reshaped(y_zero, ()))
    return [_integer_convolution(context, node, x, w, x_zero, w_zero, bias, requantization)]
